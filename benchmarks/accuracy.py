"""The accuracy of ``auto``: error, regret, coverage and speed (``python -m benchmarks.accuracy --data DIR``).

Five parts, each alone with ``--parts``. One JSON line per cell and per figure on standard output, each with
its standard error; the exit code is 1 if a limit is missed. ``--out`` keeps the lines of every part in a
folder, and ``--table`` writes the figures of all parts that the folder holds.

* peers: random ranges of seven public histograms, over the best error of other libraries and papers.
* former: points, ranges, prefixes and rectangles over the ``auto`` before it averaged, and over identity.
* regret: over the best method of the whole catalogue.
* coverage: how often 95 % intervals hold, and how wide they are.
* speed: of a whole release, in stable argsorts, and its growth.

An error is the mean absolute error per query of the workload. Made-up histograms are those of
`benchmarks.held_out`, on which nothing was tuned; the public ones were in view when constants were chosen.
Times are CPU time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import dphist
from benchmarks import held_out
from benchmarks.core import _fastest, _run, _say
from dphist._common import __version__
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.workload import Workload, make_workload
from dphist.errors import UsageError
from dphist.lab.data import DPBENCH, folder
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.planning import shapes
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.release import Release
from dphist.steps.estimate import WorkloadTree
from dphist.steps.partition import Splits

Row = dict[str, Any]
EPSILONS = ("0.01", "0.1", "1")
RANDOM = "random:2000"
# The least error of other libraries and papers for these ranges, per histogram at epsilon 0.01, 0.1 and 1.
PEERS = {
    "ADULTFRANK": (187.0, 78.0, 7.0),
    "HEPTH": (733.0, 121.0, 12.1),
    "INCOME": (859.0, 121.0, 12.1),
    "MEDCOST": (294.0, 61.0, 6.5),
    "NETTRACE": (207.0, 25.0, 1.7),
    "PATENT": (1209.0, 121.0, 12.1),
    "SEARCHLOGS": (1022.0, 121.0, 12.1),
}
# Of the former auto: at most so much in the geometric mean, for each kind of queries.
MEANS = {"points": 0.75, "ranges": 0.8, "prefixes": 0.9, "rectangles": 0.8, "points of grids": 0.75}
PEER_RUNS = 64  # of a cell: with 16 the geometric mean of all cells was uncertain by 3 %
PEER_CLOSELY = 0.95  # above this over the best peer, a cell gets eight times the runs
CLOSELY = (
    1.04  # above this over the former auto, a cell gets more runs: of few bins, which take no time, many
)
TIMES, TIMES_OF_FEW = 4, 24
WORST = 1.1  # in any cell, over the former auto, and for points over identity
ASKED = {
    "points": "points",
    "ranges": RANDOM,
    "prefixes": "prefixes",
    "rectangles": "rectangles:2000",
    "points of grids": "points",
}
SIZES = (100, 1000, 4096)  # bins of the made-up lines; each shape has two of them, by turns
SIDES = ((64, 64), (40, 60))  # of the made-up grids, by turns
DENSITY = (10, 100, 1000)  # records per bin, by turns
COVERED_SIZES = (16, 64, 256, 1024, 4096)
COVERED_SHAPES = ("uniform", "smooth", "steps", "power-sorted", "power-shuffled", "sparse", "hourly", "heaps")
RELEASES = {16: 40, 64: 24, 256: 12, 1024: 8, 4096: 4}  # of a cell; four times as many if it misses
LEAST, MOST, LEVEL = 0.90, 0.995, 0.95
QUERIES = 500  # ranges of each kind in a cell of coverage
FIRST = 1 << 40  # the first seed, far from those of other simulations


@dataclass(frozen=True, eq=False)
class Case:
    """A histogram by name; it is public, or made up."""

    name: str
    public: bool
    counts: Ints

    @property
    def domain(self) -> Domain:
        """Its bins, along one axis or two."""
        return Domain(tuple(Integers(0, n - 1) for n in self.counts.shape))

    @property
    def facts(self) -> Row:
        """What it is, for a line of JSON."""
        bins = " x ".join(map(str, self.counts.shape))
        return {"data": self.name, "public": self.public, "bins": bins, "records": int(self.counts.sum())}


@dataclass(frozen=True)
class Figure:
    """A number and its standard error."""

    value: float
    se: float

    def __str__(self) -> str:
        return f"{self.value:.3g} +- {self.se:.1g}"


# ---- histograms -----------------------------------------------------------------------------------------


def public_lines(data: Path | None, n: int | None = None) -> list[Case]:
    """Return the public histograms of one axis, put together to n bins; none without a folder."""
    return _public(data, 1, n)


def public_grids(data: Path | None, n: int | None = None) -> list[Case]:
    """Return the public grids, put together to n cells; none without a folder."""
    return _public(data, 2, n)


def _public(data: Path | None, dims: int, n: int | None) -> list[Case]:
    if data is None:
        return []
    return [Case(source.name, True, source.counts()) for source in folder(data, n=n, dims=dims)]


def made_up_lines(sizes: Sequence[int] | None = None) -> list[Case]:
    """Return the held-out shapes, of the sizes given or of two out of three, sparser and denser by turns."""
    return [
        Case(name, False, held_out.line(name, n=n, records=n * DENSITY[(k // 3 + j) % len(DENSITY)]))
        for k, name in enumerate(held_out.LINES)
        for j, n in enumerate(sizes or (SIZES[k % 3], SIZES[(k + 1) % 3]))
    ]


def made_up_grids(sides: tuple[int, int] | None = None) -> list[Case]:
    """Return the held-out grids, of the sides given or of two by turns."""
    made = []
    for k, name in enumerate(held_out.GRIDS):
        rows, columns = sides or SIDES[k % 2]
        records = rows * columns * DENSITY[k % len(DENSITY)]
        made.append(Case(name, False, held_out.grid(name, rows=rows, columns=columns, records=records)))
    return made


# ---- errors ---------------------------------------------------------------------------------------------


class FormerSplits(Splits):
    """Splits as they were when ``auto`` did not average."""

    rough = (75, 75)
    cap = (20, 20)


def former(domain: Domain, kind: str) -> Pipeline:
    """Return what ``auto`` was before it averaged: wf-auto for points, else dawa2."""
    if kind.startswith("points"):
        return make_pipeline("wf-auto", domain)
    made = replace(make_pipeline("dawa2", domain), partition=FormerSplits())
    if len(domain.axes) == 2:
        split = Split(partition=Fraction("0.3"), estimate=Fraction("0.7"))
        return replace(made, split=split, estimate=WorkloadTree(weights="tuned"))
    return made


def errors(
    pipeline: Pipeline, case: Case, queries: Workload, epsilon: str, runs: int, first: int = 0
) -> Floats:
    """Return the mean absolute error per query of each of some runs, as published, nothing calibrated."""
    held = Counts(case.counts, case.domain)
    seeds = _seeds(case, epsilon, first, first + runs)
    made = trials(pipeline, held, queries, epsilon=Fraction(epsilon), seeds=seeds)
    return np.array([queries.mean_absolute_error(trial.values - held.values) for trial in made])


def _seeds(case: Case, epsilon: str, first: int, last: int) -> range:
    """Return the seeds of some runs of a cell: no other cell has them, so that luck does not add up."""
    cell = zlib.crc32(f"{case.name} {case.counts.shape} {epsilon}".encode())
    begin = FIRST + (cell << 16)
    return range(begin + first, begin + last)


def mean(of: Floats) -> Figure:
    """Return the mean of some runs."""
    spread = float(of.std(ddof=1)) / math.sqrt(of.size) if of.size > 1 else math.nan
    return Figure(float(of.mean()), spread)


def ratio(over: Figure, under: Figure) -> Figure:
    """Return the quotient of two means; 1 if both are nothing."""
    if under.value == 0:
        return Figure(1.0 if over.value == 0 else math.inf, 0.0)
    value = over.value / under.value
    parts = [(f.se / f.value) ** 2 if f.value else 0.0 for f in (over, under)]
    return Figure(value, value * math.sqrt(sum(parts)))


def geometric_mean(of: Sequence[Figure]) -> Figure:
    """Return the geometric mean; its standard error is that of the noise, for these histograms."""
    value = math.exp(float(np.mean([math.log(max(f.value, 1e-300)) for f in of])))
    parts = [(f.se / f.value) ** 2 if f.value else 0.0 for f in of]
    return Figure(value, value * math.sqrt(sum(parts)) / len(of))


def compared(
    pipelines: dict[str, Pipeline],
    case: Case,
    queries: Workload,
    epsilon: str,
    runs: int,
    *,
    first: int = 0,
    closely: float = math.inf,
    times: int = 4,
) -> tuple[dict[str, Figure], int]:
    """Return the errors of some methods and how many runs they had.

    Args:
        first: the number of the first run.
        closely: if the first method's error is above this many times the second's, all get so many times the
            runs, so that no limit is missed by chance.
    """
    found = {m: errors(p, case, queries, epsilon, runs, first) for m, p in pipelines.items()}
    one, two = (found[m].mean() for m in list(pipelines)[:2])
    if one > closely * two:
        rest = (times - 1) * runs, first + runs
        more = {m: errors(p, case, queries, epsilon, *rest) for m, p in pipelines.items()}
        found, runs = {m: np.concatenate((found[m], more[m])) for m in found}, times * runs
    return {m: mean(e) for m, e in found.items()}, runs


def runs_for(n: int, kind: str) -> int:
    """Return how many runs a cell gets: many bins are many errors to average, sums have few that differ."""
    if kind == "rectangles":
        return 4  # a run takes a quarter of a second
    if kind.startswith("points"):
        return 3 if n >= 4096 else 6 if n >= 1000 else 20
    return 24 if n >= 1000 else 48


def peers(data: Path | None) -> Iterator[Row]:
    """Hold random ranges of the public histograms against the best of others."""
    cases = {case.name: case for case in public_lines(data)}
    ratios: dict[tuple[str, str], Figure] = {}
    for name, least in PEERS.items():
        if name not in cases:
            _say(f"no {name} among the public histograms: its peers are left out")
            continue
        case = cases[name]
        queries = make_workload(RANDOM, case.domain)
        made = make_pipeline("auto", case.domain, queries)
        for epsilon, best in zip(EPSILONS, least, strict=True):
            found = errors(made, case, queries, epsilon, PEER_RUNS)
            if found.mean() > PEER_CLOSELY * best:
                more = errors(made, case, queries, epsilon, 7 * PEER_RUNS, PEER_RUNS)
                found = np.concatenate((found, more))
            over = ratio(mean(found), Figure(best, 0.0))
            ratios[name, epsilon] = over
            yield _cell("peers", case, epsilon, "ranges", found.size, {"auto": mean(found)}, over) | {
                "peer": best
            }
    if ratios:
        what = f"auto's error of 2,000 random ranges over the best peer's, {len(ratios)} cells"
        yield _figure("peers", f"{what}: geometric mean", geometric_mean(list(ratios.values())), at_most=0.65)
        yield _worst("peers", what, ratios, at_most=1.0)


def against_former(data: Path | None) -> Iterator[Row]:
    """Hold auto against what it was before and against identity, for every kind of queries."""
    real, made_up = public_lines(data), made_up_lines()
    grids = [*public_grids(data, 4096), *made_up_grids()]
    for kind, asked in ASKED.items():
        flat = kind not in ("rectangles", "points of grids")
        lines = [*real, *(made_up if kind == "points" else made_up[::2])]  # sums: each shape once
        over: dict[tuple[str, str], Figure] = {}
        plain: dict[tuple[str, str], Figure] = {}
        known: set[tuple[str, str]] = set()
        for case in lines if flat else grids:
            domain = case.domain
            queries = make_workload(asked, domain)
            pipelines = {
                "auto": make_pipeline("auto", domain, queries),
                "former": former(domain, kind),
                "identity": make_pipeline("identity", domain),
            }
            for epsilon in EPSILONS:
                runs = runs_for(domain.n, kind)
                times = TIMES_OF_FEW if domain.n <= 256 else TIMES
                found, runs = compared(pipelines, case, queries, epsilon, runs, closely=CLOSELY, times=times)
                at = (f"{case.name}, {case.facts['bins']} bins", epsilon)
                over[at], plain[at] = (ratio(found["auto"], found[m]) for m in ("former", "identity"))
                if case.public:
                    known.add(at)
                more = {"over_identity": plain[at].value}
                yield _cell("former", case, epsilon, kind, runs, found, over[at]) | more
        yield from _of_former(kind, over, plain, known)


def _of_former(
    kind: str,
    over: dict[tuple[str, str], Figure],
    plain: dict[tuple[str, str], Figure],
    known: set[tuple[str, str]],
) -> Iterator[Row]:
    what = f"{kind}: auto's error over the former auto's"
    all_of = geometric_mean(list(over.values()))
    yield _figure("former", f"{what}, {len(over)} cells: geometric mean", all_of, at_most=MEANS[kind])
    for title, chosen in (("public", known), ("made up, held out", set(over) - known)):
        if chosen:
            part = geometric_mean([over[at] for at in chosen])
            yield _figure("former", f"{what}, {title}, {len(chosen)} cells: geometric mean", part)
    yield _worst("former", what, over, at_most=WORST)
    what = f"{kind}: auto's error over identity's"
    yield _figure("former", f"{what}: geometric mean", geometric_mean(list(plain.values())))
    yield _worst("former", what, plain, at_most=WORST if kind.startswith("points") else None)


# ---- regret ---------------------------------------------------------------------------------------------

PILOT, CLOSER, FRESH = 2, 8, 16  # runs
NEAREST, NEAR = 6, 1.4
FAR = 1.15  # above this over the best, a cell gets five times the fresh runs
SEARCHED = ("broad mixture", "jagged", "clusters", "half empty", "plateaus and spikes")
SEARCHED_GRIDS = ("blobs", "roads")


def regret(data: Path | None) -> Iterator[Row]:
    """Hold auto against every method of the catalogue that serves a cell."""
    lines = [*public_lines(data, 512), *(c for c in made_up_lines([500]) if c.name in SEARCHED)]
    grids = [c for c in made_up_grids((20, 25)) if c.name in SEARCHED_GRIDS] + public_grids(data, 256)[:2]
    cells = [(case, kind) for case in lines for kind in ("points", "ranges", "prefixes")]
    cells += [(case, kind) for case in grids for kind in ("points of grids", "rectangles")]
    over: dict[tuple[str, str], Figure] = {}
    for case, kind in cells:
        queries = make_workload(ASKED[kind], case.domain)
        pipelines = _serving(case.domain, queries)
        for epsilon in EPSILONS:
            best, found, runs = _searched(pipelines, case, queries, epsilon)
            over[f"{case.name}, {kind}, best {best}", epsilon] = times = ratio(found["auto"], found["best"])
            named = {"best_method": best, "methods": len(pipelines)}
            yield _cell("regret", case, epsilon, kind, runs, found, times) | named
    what = f"auto's error over the least of the whole catalogue, {len(over)} cells"
    yield _figure("regret", f"{what}: geometric mean", geometric_mean(list(over.values())), at_most=1.03)
    yield _worst("regret", what, over, at_most=1.3)


def _serving(domain: Domain, queries: Workload) -> dict[str, Pipeline]:
    """Return every method that serves a domain and a workload."""
    made = {}
    for name, method in CATALOGUE.items():
        if method.serves(domain):
            pipeline = make_pipeline(name, domain, queries)
            try:
                pipeline.check(domain, queries)
            except UsageError:
                continue
            made[name] = pipeline
    return made


def _searched(
    pipelines: dict[str, Pipeline], case: Case, queries: Workload, epsilon: str
) -> tuple[str, dict[str, Figure], int]:
    """Return the best other method, the errors of auto and of that one, and of how many runs they are.

    A few runs of all methods say which come near, more runs of these which is best; the least of many noisy
    means is too low by chance, so both errors are those of fresh runs.
    """
    pilot = {m: errors(p, case, queries, epsilon, PILOT).mean() for m, p in pipelines.items() if m != "auto"}
    ranked = sorted(pilot, key=pilot.__getitem__)
    near = [m for k, m in enumerate(ranked[:NEAREST]) if k < 2 or pilot[m] <= NEAR * pilot[ranked[0]]]
    closer = {m: errors(pipelines[m], case, queries, epsilon, CLOSER, PILOT).mean() for m in near}
    best = min(closer, key=closer.__getitem__)
    both, first = {"auto": pipelines["auto"], "best": pipelines[best]}, PILOT + CLOSER
    return best, *compared(both, case, queries, epsilon, FRESH, first=first, closely=FAR, times=5)


# ---- coverage -------------------------------------------------------------------------------------------


@dataclass
class Held:
    """What the intervals of one kind of queries did in some releases of a cell.

    Args:
        shares: of each release, the share of its intervals that hold.
        unknown: queries without an interval.
        full: of each release, how many non-empty bins there are, and how many of their intervals hold.
        each: the shares of releases whose intervals speak of one query each, not of most of them.
    """

    shares: list[float]
    half_widths: list[float]
    errors: list[float]
    full: list[tuple[int, int]]
    unknown: int = 0
    each: list[float] = field(default_factory=list)

    def add(self, value: Floats, low: Floats, high: Floats, truth: Floats, *, of_most: bool = False) -> None:
        """Count one release."""
        slack = 1e-9 * (1 + np.abs(truth))
        known = ~(np.isnan(low) | np.isnan(high))
        inside = (low - slack <= truth) & (truth <= high + slack)
        self.unknown += int((~known).sum())
        if known.any():
            self.shares.append(float(inside[known].mean()))
            self.each += [] if of_most else self.shares[-1:]
            self.half_widths.append(float((high - low)[known].mean() / 2))
        self.errors.append(float(np.abs(value - truth).mean()))
        some = known & (truth > 0)
        self.full.append((int(some.sum()), int(inside[some].sum())))

    @property
    def coverage(self) -> Figure:
        """The share that hold."""
        return mean(np.array(self.shares)) if self.shares else Figure(math.nan, math.nan)

    @property
    def width(self) -> float:
        """The mean half-width over the mean error."""
        off = float(np.mean(self.errors))
        return float(np.mean(self.half_widths)) / off if self.half_widths and off > 0 else math.nan

    @property
    def within(self) -> bool:
        """Whether the coverage is what it should be, and every query has an interval.

        Intervals that were measured speak of most bins or ranges, and may hold more often.
        """
        often = float(np.mean(self.each)) if self.each else 0.0
        return self.unknown == 0 and self.coverage.value >= LEAST and often <= MOST


def coverage(data: Path | None) -> Iterator[Row]:
    """Count how often 95 % intervals hold, of bins, of ranges and of rectangles."""
    cells: dict[tuple[str, str], dict[tuple[str, str], Held]] = {}
    sparse: dict[tuple[str, str, str], float] = {}
    for case in _covered_cases(data):
        asked = ("points", RANDOM) if case.counts.ndim == 1 else ("points", "rectangles:2000")
        for workload in asked:
            for epsilon in EPSILONS:
                found = _covered(case, workload, epsilon)
                for kind, held in found.items():
                    title = f"{kind} of a release for {workload.split(':')[0]}"
                    at = (f"{case.name}, {case.facts['bins']} bins", epsilon)
                    cells.setdefault((workload, kind), {})[at] = held
                    share = held.coverage
                    yield {
                        "part": "coverage",
                        **case.facts,
                        "epsilon": float(epsilon),
                        "queries": title,
                        "releases": len(held.errors),
                        "coverage": _digits(share.value),
                        "se": _digits(share.se),
                        "unknown": held.unknown,
                        "half_width_over_error": _digits(held.width),
                        "held": held.within,
                    }
                    many, inside = np.sum(held.full, axis=0).tolist()
                    if kind == "bins" and many >= 200 and (case.counts > 0).mean() <= 0.2:
                        sparse[workload, at[0], at[1]] = inside / many
    yield from _of_coverage(cells, sparse)


def _of_coverage(
    cells: dict[tuple[str, str], dict[tuple[str, str], Held]], sparse: dict[tuple[str, str, str], float]
) -> Iterator[Row]:
    for (workload, kind), found in cells.items():
        title = f"{kind} of a release for {workload.split(':')[0]}, {len(found)} cells"
        out = {at: h for at, h in found.items() if not h.within}
        yield _figure("coverage", f"{title}: cells outside 90 to 99.5 %", Figure(len(out), 0), at_most=0) | {
            "cells": [f"{a}, epsilon {e}: {_told(h)}" for (a, e), h in out.items()][:12]
        }
        above = sum(h.within and h.coverage.value > MOST for h in found.values())
        if above:
            yield _figure(
                "coverage", f"{title}: cells above it whose intervals speak of most", Figure(above, 0)
            )
        shares = {at: h.coverage for at, h in found.items() if h.shares}
        for name, pick in (("least", min), ("most", max)) if shares else ():
            at = pick(shares, key=lambda a: shares[a].value)
            where = {"cells": [f"{at[0]}, epsilon {at[1]}"]}
            yield _figure("coverage", f"{title}: the {name} covered cell", shares[at]) | where
        widths = [h.width for h in found.values() if not math.isnan(h.width)]
        fits = (workload == "points") == (kind == "bins")
        limit = (4 if kind == "bins" else 6) if fits else None
        wide = Figure(float(np.median(widths)) if widths else math.inf, 0.0)
        yield _figure(
            "coverage", f"{title}: mean half-width over mean error, median cell", wide, at_most=limit
        )
    for asked in dict.fromkeys(workload for workload, _, _ in sparse):
        own = {key: share for key, share in sparse.items() if key[0] == asked}
        _, name, epsilon = least = min(own, key=own.__getitem__)
        title = f"non-empty bins of sparse data, releases for {asked.split(':')[0]}, {len(own)} cells"
        # Bins of a release for sums are told what most bins err by; those of one for points, each its own.
        needed = LEAST if asked == "points" else None
        share = _figure("coverage", f"{title}: the least covered", Figure(own[least], 0.0), at_least=needed)
        yield share | {"cells": [f"{name}, epsilon {epsilon}"]}


def _told(held: Held) -> str:
    unknown = f", {held.unknown} without an interval" if held.unknown else ""
    return f"{100 * held.coverage.value:.1f} +- {100 * held.coverage.se:.1f} %{unknown}"


def _covered_cases(data: Path | None) -> Iterator[Case]:
    for n in COVERED_SIZES:
        for name in COVERED_SHAPES:
            yield Case(name, False, shapes.draw(name, n=n, records=250 * n, seed=7))
        yield from public_lines(data, n)
    yield from made_up_grids((32, 32))
    yield from made_up_grids((48, 64))  # measured by their sides where cells are not grouped
    yield from public_grids(data, 1024)
    yield from public_grids(data, 4096)


def _covered(case: Case, workload: str, epsilon: str) -> dict[str, Held]:
    """Return what the intervals of some releases do; a cell that misses gets four times the releases.

    Intervals that speak of one query each are judged by themselves. Where few releases of a cell have them,
    because the others were grouped, it gets eight times as many again: two releases of 64 bins tell nothing
    of half a percent.
    """
    queries = make_workload(workload, case.domain)
    pipeline = make_pipeline("auto", case.domain, queries).with_intervals()
    line = case.counts.ndim == 1
    boxes = _ranges(case.domain.n) if line else _rectangles(case.counts.shape)
    exact = Counts(case.counts, case.domain)
    found = {kind: Held([], [], [], []) for kind in ("bins", "ranges" if line else "rectangles")}
    many = next(r for n, r in RELEASES.items() if case.domain.n <= n)
    for first, last in ((0, many), (many, 4 * many), (4 * many, 32 * many)):
        if first > many and not any(0 < len(held.each) < many for held in found.values()):
            break
        seeds = _seeds(case, epsilon, first, last)
        for trial in trials(pipeline, exact, queries, epsilon=Fraction(epsilon), seeds=seeds):
            _judge(trial.release(post="none", provenance={}), case.counts, boxes, found)
        if all(held.within or held.unknown for held in found.values()):
            break
    return found


def _judge(release: Release, counts: Ints, boxes: tuple[Ints, ...], found: dict[str, Held]) -> None:
    bins, sums = found.values()
    low, high = release.intervals(level=LEVEL)
    truth = counts.astype(np.float64)
    of_most = release.error.is_calibrated
    bins.add(release.raw, low.ravel(), high.ravel(), truth.ravel(), of_most=of_most)
    if counts.ndim == 1:
        lo, hi = boxes
        told = release.sum(lo, hi, level=LEVEL)
        below = np.concatenate(([0.0], np.cumsum(truth)))
        exact = below[hi] - below[lo]
    else:
        a, b, c, d = boxes
        told = release.sum((a, b), (c, d), level=LEVEL)
        below = np.pad(truth.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
        exact = below[b, d] - below[a, d] - below[b, c] + below[a, c]
    sums.add(told.value, told.low, told.high, exact, of_most=of_most)


@cache
def _ranges(n: int) -> tuple[Ints, Ints]:
    """Return ranges between random bins, and as many whose lengths are spread evenly in their logarithm."""
    source = np.random.default_rng(n)
    ends = np.sort(source.integers(0, n, (2, QUERIES)), axis=0)
    long = np.minimum(np.exp(source.uniform(0, math.log(n + 1), QUERIES)).astype(np.int64), n)
    start = source.integers(0, n - long + 1)
    return np.concatenate((ends[0], start)), np.concatenate((ends[1] + 1, start + long))


@cache
def _rectangles(shape: tuple[int, int]) -> tuple[Ints, ...]:
    rows, columns = (_ranges(size) for size in shape)
    mixed = np.random.default_rng(1).permutation(columns[0].size)
    return *rows, columns[0][mixed], columns[1][mixed]


# ---- speed ----------------------------------------------------------------------------------------------

LARGE, STEPS, PATIENCE = 1 << 20, (1 << 16, 1 << 18, 1 << 20), 20.0


def speed(data: Path | None) -> Iterator[Row]:
    """Time a whole release by auto, and how its time grows."""
    for name in ("flat", "sparse", "jagged", *(["tiled real data"] if data else [])):
        for workload in ("points", "ranges", "prefixes"):
            yield from _timed(f"{name}, {workload}", workload, partial(_large, name, data))
    for name in ("flat", "sparse", "jagged", *(["tiled real data"] if data else [])):
        for workload in ("points", "rectangles:2000"):
            title = f"grid, {name}, {workload.split(':')[0]}"
            yield from _timed(title, workload, partial(_square, name, data))


def _timed(title: str, workload: str, make: Callable[[int], Ints]) -> Iterator[Row]:
    seconds: dict[int, float] = {}
    sort = math.nan
    for n in STEPS:
        counts = make(n)
        numbers = np.random.default_rng(1).integers(0, 1 << 60, n)

        def release(counts: Ints = counts) -> object:
            return dphist.from_counts(counts, epsilon="0.1", method="auto", workload=workload)

        if n == STEPS[0]:
            release()  # compiles
        repeats = 3 if n < LARGE else 2
        sort, seconds[n] = _fastest(repeats, partial(np.argsort, numbers, kind="stable"), release)
        if seconds[n] * 16 > PATIENCE * 4 and n < LARGE:
            break
    done = max(seconds)
    what = f"{title}: a release by auto of {done:,} bins, {seconds[done]:.2f} s of CPU"
    short = "" if done == LARGE else "; more bins would take too long"
    over = Figure(seconds[done] / sort if done == LARGE else math.inf, 0.0)
    yield _figure("speed", f"{what}, in stable argsorts{short}", over, at_most=8)
    if len(seconds) > 1:
        slope = float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])
        what = f"{title}: exponent of the time's growth, {min(seconds):,} to {done:,} bins"
        yield _figure("speed", what, Figure(slope, 0.0), at_most=1.15)


def _large(name: str, data: Path | None, n: int) -> Ints:
    source = np.random.default_rng(n)
    if name == "flat":
        return np.full(n, 100)
    if name == "sparse":
        return np.asarray((source.random(n) < 0.01) * source.integers(1, 1000, n))
    if name == "jagged":
        return source.integers(0, 1000, n)
    real = np.concatenate([case.counts for case in public_lines(data)])
    return np.resize(real, n)


def _square(name: str, data: Path | None, n: int) -> Ints:
    side = math.isqrt(n)
    return _large(name, data, side * side).reshape(side, side)


# ---- lines and tables -----------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Path | None], Iterator[Row]]] = {
    "peers": peers,
    "former": against_former,
    "regret": regret,
    "coverage": coverage,
    "speed": speed,
}


def _digits(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _cell(
    part: str, case: Case, epsilon: str, kind: str, runs: int, found: dict[str, Figure], over: Figure
) -> Row:
    figures = {m: [_digits(f.value), _digits(f.se)] for m, f in found.items()}
    head = {"part": part, **case.facts, "epsilon": float(epsilon), "queries": kind, "runs": runs}
    return {**head, **figures, "ratio": _digits(over.value), "se": _digits(over.se)}


def _figure(
    part: str, name: str, figure: Figure, *, at_most: float | None = None, at_least: float | None = None
) -> Row:
    held = (at_most is None or figure.value <= at_most) and (at_least is None or figure.value >= at_least)
    limit = None if at_most is None and at_least is None else at_most if at_least is None else at_least
    side = None if limit is None else "at most" if at_least is None else "at least"
    value, se = _digits(figure.value), _digits(figure.se)
    return {
        "part": part,
        "figure": name,
        "value": value,
        "se": se,
        "limit": limit,
        "side": side,
        "verdict": None if limit is None else "held" if held else "missed",
    }


def _worst(part: str, what: str, over: dict[tuple[str, str], Figure], *, at_most: float | None) -> Row:
    """Return the largest of some ratios, with the names of the five largest."""
    ranked = sorted(over, key=lambda at: -over[at].value)
    found = _figure(part, f"{what}: the worst cell", over[ranked[0]], at_most=at_most)
    return found | {"cells": [f"{at[0]}, epsilon {at[1]}: {over[at]}" for at in ranked[:5]]}


def table(rows: Sequence[Row], seconds: dict[str, float]) -> str:
    """Return the figures as Markdown, with the cells behind the worst of them."""
    lines = [
        "# Accuracy",
        "",
        "Made by `make bench-accuracy` (`python -m benchmarks.accuracy`, whose head says what is measured), "
        f"{time.strftime('%Y-%m-%d')}, dphist {__version__}. +- is the standard error of the noise. Public "
        "histograms are DPBench's, made-up ones those of `benchmarks/held_out.py`.",
        "",
    ]
    for part in PARTS:
        own = [row for row in rows if row["part"] == part]
        if not own:
            continue
        cells = sum("figure" not in row for row in own)
        lines += [f"## {part}", "", f"{cells} cells, {seconds.get(part, 0):.0f} s of CPU."]
        lines += _peers_table(own) if part == "peers" else []
        lines += ["", "| figure | value | limit | |", "|---|---:|---:|---|"]
        for row in own:
            if "figure" in row:
                se = f" +- {row['se']:.1g}" if row["se"] else ""
                value = "none" if row["value"] is None else f"{row['value']:.3g}{se}"
                limit = "" if row["limit"] is None else f"{row['side']} {row['limit']:g}"
                verdict = row["verdict"] or ""
                verdict = f"**{verdict}**" if verdict == "missed" else verdict
                lines.append(f"| {row['figure']}{_named(row)} | {value} | {limit} | {verdict} |")
        lines.append("")
    return "\n".join(lines)


def _named(row: Row) -> str:
    return "".join(f"<br>{cell}" for cell in row.get("cells", [])[:3])


def _peers_table(rows: Sequence[Row]) -> list[str]:
    over = {(r["data"], r["epsilon"]): f"{r['ratio']:.2f}" for r in rows if "figure" not in r}
    names = list(dict.fromkeys(name for name, _ in over))
    lines = ["", "| epsilon | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for epsilon in map(float, EPSILONS):
        lines.append(f"| {epsilon:g} | " + " | ".join(over.get((n, epsilon), "") for n in names) + " |")
    return lines


def _kept(out: Path) -> tuple[list[Row], dict[str, float]]:
    """Return the lines of all parts that a folder holds, and the CPU time of each."""
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    for part in PARTS:
        if (file := out / f"{part}.jsonl").is_file():
            *found, last = (json.loads(line) for line in file.read_text("utf-8").splitlines())
            rows, seconds[part] = [*rows, *found], last["cpu_seconds"]
    return rows, seconds


def _measured(part: str, rows: Iterable[Row], out: Path) -> int:
    """Print the lines of a part and keep them; return how many limits were missed."""
    _say(f"{part} ...")
    start, lines, missed = time.process_time(), [], 0
    for row in rows:
        lines.append(json.dumps(row))
        print(lines[-1], flush=True)
        if row.get("verdict"):
            _say(f"{row['verdict']}: {row['figure']}: {row['value']} ({row['side']} {row['limit']:g})")
            missed += row["verdict"] == "missed"
    seconds = time.process_time() - start
    _say(f"{part}: {seconds:.0f} s of CPU, {missed} limits missed")
    out.mkdir(parents=True, exist_ok=True)
    done = json.dumps({"part": part, "cpu_seconds": round(seconds, 1)})
    (out / f"{part}.jsonl").write_text("\n".join([*lines, done, ""]), "utf-8")
    return missed


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--data", type=Path, default=DPBENCH, help="a folder of public histograms")
    parser.add_argument("--parts", default=",".join(PARTS), help="a comma-separated list")
    parser.add_argument("--out", type=Path, default=Path("build/accuracy"), help="where lines are kept")
    parser.add_argument("--table", type=Path, help="a Markdown file for the figures of all kept parts")
    given = parser.parse_args(arguments)
    parts = given.parts.split(",")
    if wrong := [part for part in parts if part not in PARTS]:
        raise UsageError(f"there is no part {wrong[0]!r}; there are {', '.join(PARTS)}.")
    data = given.data if given.data.is_dir() else None
    if data is None:
        _say(f"no folder {given.data}: made-up histograms only; name one with --data")
    missed = sum(_measured(part, PARTS[part](data), given.out) for part in parts)
    if given.table is not None:
        given.table.parent.mkdir(parents=True, exist_ok=True)
        given.table.write_text(table(*_kept(given.out)), "utf-8")
    _say(f"{missed} limits missed" if missed else "all limits held")
    return int(missed > 0)


if __name__ == "__main__":
    _run(main)
