"""Whether intervals hold what they promise: ``python -m benchmarks.error [--data DIR] [--releases R]``.

Every method that shares values among bins, with a part of its budget for calibrating, on real and made-up
histograms: how often nominal 95 % intervals of all single bins and of 1,000 random ranges hold the truth, on
average over releases; in how many releases the joint band holds it everywhere; and how wide they are beside
the true errors. One JSON line per cell and one per method, progress and a table on standard error; the exit
code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from benchmarks.core import Row, _run, _say
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats
from dphist.domain.workload import Ranges, random
from dphist.errors import UsageError
from dphist.lab.data import DPBENCH, Source, folder, shapes_as
from dphist.methods.catalogue import choose, make_pipeline
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.steps.protocols import Estimated

METHODS = choose(lambda m: m.intervals == "calibrated" and 1 in m.usual)
SHAPES = ("uniform", "smooth", "steps", "power-sorted", "power-shuffled", "sparse", "hourly", "heaps")
EPSILONS = ("0.01", "0.1", "1")
SLOW = dict.fromkeys(choose(lambda m: m.cost == "quadratic"), 2)  # so many times fewer releases
QUERIES, LEVEL = 1000, 0.95
LEAST, MOST, JOINT = 0.90, 0.995, 0.93
N, RECORDS = 4096, 1_000_000  # of the made-up histograms


@dataclass(frozen=True)
class Cell:
    """One method on one histogram at one epsilon."""

    source: Source
    method: str
    epsilon: str
    calibrate: str
    releases: int


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error", description=__doc__)
    parser.add_argument("--data", type=Path, default=DPBENCH, help="folder of real histograms, .npy or .csv")
    parser.add_argument("--releases", type=int, default=40, help="of every method on every histogram")
    parser.add_argument("--methods", default=",".join(METHODS), help="a comma-separated list")
    parser.add_argument("--calibrate", default="0.05", help="the part of the budget that measures the errors")
    parser.add_argument("--jobs", type=int, default=-1, help="cells at once")
    parser.add_argument("--out", type=Path, help="a folder for coverage.md")
    given = parser.parse_args(arguments)
    if given.releases < 1:
        raise UsageError(f"coverage needs at least one release, not {given.releases}.")
    sources = shapes_as(SHAPES, n=N, records=RECORDS)
    if given.data.is_dir():
        sources = (*folder(given.data, dims=1), *sources)
    else:
        _say(f"no folder {given.data}: made-up histograms only; name one with --data")
    rows: list[Row] = []
    for method in given.methods.split(","):
        _say(f"{method} ...")
        releases = max(given.releases // SLOW.get(method, 1), 1)
        cells = [Cell(s, method, e, given.calibrate, releases) for s in sources for e in EPSILONS]
        found = list(Parallel(n_jobs=given.jobs)(delayed(coverage)(cell) for cell in cells))
        for row in (*found, summary(method, found)):
            print(json.dumps(row), flush=True)
        rows += found
    text = table(rows)
    _say(text)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "coverage.md").write_text(text, "utf-8")
    missed = sum(not row["pass"] for row in rows)
    _say(f"{missed} of {len(rows)} cells miss a limit" if missed else "all within their limits")
    return int(missed > 0)


def coverage(cell: Cell) -> Row:
    """Return how often the intervals of some releases hold the truth, and how wide they are."""
    counts = cell.source.counts()
    domain = Domain((Integers(0, counts.size - 1),))
    workload = random(counts.size, QUERIES)
    pipeline = replace(make_pipeline(cell.method, domain), calibrate=Fraction(cell.calibrate))
    held = Counts(counts, domain)
    seen = []
    for trial in trials(pipeline, held, workload, epsilon=Fraction(cell.epsilon), seeds=range(cell.releases)):
        seen.append(_judged(trial.estimated, counts - trial.values, workload))
    points, ranges, joint, *sizes = np.mean(seen, axis=0).tolist()
    passed = LEAST <= points <= MOST and LEAST <= ranges <= MOST and joint >= JOINT
    names = ("half_points", "error_points", "half_ranges", "error_ranges", "half_joint", "error_joint")
    return {
        "name": "coverage",
        "dataset": cell.source.name,
        "method": cell.method,
        "epsilon": float(cell.epsilon),
        "calibrate": cell.calibrate,
        "releases": cell.releases,
        "points": round(points, 4),
        "ranges": round(ranges, 4),
        "joint": round(joint, 4),
        **{name: float(f"{size:.4g}") for name, size in zip(names, sizes, strict=True)},
        "limit": [LEAST, MOST, JOINT],
        "pass": bool(passed),
    }


def _judged(estimated: Estimated, errors: Floats, workload: Ranges) -> tuple[float, ...]:
    """Return the shares that hold of bins and ranges, whether the band does, and median widths and errors."""
    model, off = estimated.error, np.abs(errors)
    lo, hi = workload.pairs()
    wide, each, band = (
        model.margins(lo, hi, level=LEVEL),
        model.bin_margins(level=LEVEL),
        model.joint(level=LEVEL),
    )
    below = np.concatenate(([0.0], np.cumsum(errors)))
    far = np.abs(below[hi] - below[lo])
    if each is None or band is None or np.isnan(wide).any() or np.isnan(each).any():
        raise UsageError("a bin or a range has no interval; is the method calibrated?")
    slack = 1e-9 * (1 + far.max())  # of summing doubles
    shares = (off <= each + slack).mean(), (far <= wide + slack).mean(), float((off <= band + slack).all())
    sizes = np.median(each), np.median(off), np.median(wide), np.median(far), np.median(band), off.max()
    return *map(float, shares), *map(float, sizes)


def summary(method: str, rows: Sequence[Row]) -> Row:
    """Return the worst of a method's cells, and how wide its intervals are in errors."""

    def worst(name: str, end: int) -> str:
        row = sorted(rows, key=lambda r: r[name])[end]
        return f"{row[name]:.3f} {row['dataset']} {row['epsilon']:g}"

    def ratio(name: str) -> float:
        each = [r[f"half_{name}"] / r[f"error_{name}"] for r in rows if r[f"error_{name}"] > 0]
        return float(f"{np.median(each):.3g}") if each else float("nan")

    return {
        "name": "coverage summary",
        "method": method,
        "cells": len(rows),
        "within": sum(r["pass"] for r in rows),
        "points": [worst("points", 0), worst("points", -1)],
        "ranges": [worst("ranges", 0), worst("ranges", -1)],
        "joint": worst("joint", 0),
        "half_width_over_error": {name: ratio(name) for name in ("points", "ranges", "joint")},
        "pass": all(r["pass"] for r in rows),
    }


def table(rows: Sequence[Row]) -> str:
    """Return the figures as Markdown: one table per method, what misses a limit in bold."""
    calibrate = ", ".join(dict.fromkeys(r["calibrate"] for r in rows))
    fewer = "".join(
        f" ({m}: 1/{by} of that)" for m, by in SLOW.items() if any(r["method"] == m for r in rows)
    )
    releases = f"{max(r['releases'] for r in rows)}{fewer}"
    lines = [
        "# Coverage of nominal 95 % intervals",
        "",
        f"`python -m benchmarks.error`: {releases} releases per cell, {calibrate} of the budget for "
        f"calibrating, all bins and {QUERIES:,} random ranges. A cell reads: share of bins / share of ranges "
        "/ share of releases whose joint band holds everywhere, in percent. Limits: "
        f"{100 * LEAST:g} to {100 * MOST:g} for bins and ranges, at least {100 * JOINT:g} for the band; "
        "**bold** misses one. Below each: the median half-width over the median true error, for bins and for "
        "ranges, and the band's median half-width over the largest error.",
        "",
        f"Within the limits: {sum(r['pass'] for r in rows)} of {len(rows)} cells. {_misses(rows)}",
        "",
    ]
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {(r["dataset"], r["epsilon"]): r for r in rows if r["method"] == method}
        epsilons = list(dict.fromkeys(e for _, e in own))
        lines += [f"## {method}", "", "| data | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |"]
        lines.append("|---" * (1 + len(epsilons)) + "|")
        for dataset in dict.fromkeys(d for d, _ in own):
            lines.append(f"| {dataset} | " + " | ".join(_shown(own[dataset, e]) for e in epsilons) + " |")
        lines.append("")
    return "\n".join(lines)


def _misses(rows: Sequence[Row]) -> str:
    """Return how many cells miss which limit, and by how much at worst."""
    parts = []
    for name, least in (("points", LEAST), ("ranges", LEAST), ("joint", JOINT)):
        below = [r[name] for r in rows if r[name] < least]
        above = [r[name] for r in rows if r[name] > MOST and name != "joint"]
        what = {"points": "bins", "ranges": "ranges", "joint": "band"}[name]
        parts += [f"{what} below in {len(below)}, the worst {100 * min(below):.1f} %"] if below else []
        parts += [f"{what} above in {len(above)}, the worst {100 * max(above):.1f} %"] if above else []
    return f"Of the others: {'; '.join(parts)}." if parts else ""


def _shown(row: Row) -> str:
    marks = [
        _marked(row["points"], LEAST, MOST),
        _marked(row["ranges"], LEAST, MOST),
        _marked(row["joint"], JOINT, 1.0),
    ]
    over = [
        f"{row[f'half_{name}'] / row[f'error_{name}']:.2g}" if row[f"error_{name}"] > 0 else "-"
        for name in ("points", "ranges", "joint")
    ]
    return f"{' / '.join(marks)} <br> {' / '.join(over)}"


def _marked(share: float, least: float, most: float) -> str:
    text = f"{100 * share:.1f}"
    return text if least <= share <= most else f"**{text}**"


if __name__ == "__main__":
    _run(main)
