"""Slow corners, before and now: part of ``python -m benchmarks.scale``.

What stood there before is in each line's text; it was measured on another day, so that only figures of one
unit other than seconds compare exactly. First uses and memory are those of a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.core import Row, _row
from dphist.domain import Domain, Integers, Regular
from dphist.domain.groups import Floats
from dphist.domain.workload import AllRanges, Points
from dphist.kernels.partition.changepoints import optimal_runs
from dphist.kernels.trees.hats import fitted_hats
from dphist.kernels.trees.hats_fit import hats_error, hats_range_variances
from dphist.methods.catalogue import make_pipeline, usual
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.records import count
from dphist.release import Release

MANY = 1 << 20
# First uses before anything was done for them, by family, in one run with those of docs/many-bins.md.
_FIRST = """
ahp line points 9.1
average line points 8.6
dpc line points 9.8
dpcube grid points 9.7
dawa line points 6.0
dawa3 line points 11.8
dawa3 line ranges 23.7
hb line points 4.5
hats line ranges 3.8
greedyh-tuned line ranges 6.6
privelet line points 5.6
efpa line points 1.3
mwem line points 1.3
quadtree grid points 3.2
"""
_PEAK = """
import sys, numpy as np, dphist
def kilobytes(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))
method, side = sys.argv[1], sys.argv[2] == "grid"
x = np.where(np.arange(1 << 20) % 4096 < 1000, np.random.default_rng(0).integers(0, 9, 1 << 20), 0)
whole, some = (x.reshape(1024, 1024), x[:4096].reshape(64, 64)) if side else (x, x[:4096])
workload = "points" if side or method in ("average", "dawa") else "ranges"
dphist.simulate(some, epsilon=1, method=method, workload=workload)  # compiles, imports: as for many bins
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
base = kilobytes("VmRSS")
dphist.simulate(whole, epsilon=1, method=method, workload=workload)
print((kilobytes("VmHWM") - base) * 1024 / x.size)
"""
_PREPARE = """
import sys, time, dphist
from dphist.domain import Domain, Integers
method, place, workload = sys.argv[1:]
bins = Domain((Integers(0, 99),) if place == "line" else (Integers(0, 9), Integers(0, 9)))
start = time.process_time()
dphist.Plan(bins=bins, epsilon=1, method=method, workload=workload).prepare()
print(time.process_time() - start)
"""


def corners() -> Iterator[Row]:
    """Measure every corner once or a few times."""
    yield from _error_bars()
    yield from _sums()
    yield from _runs()
    yield from _sorts()
    yield from _persons()
    for method, place, workload, before in map(str.split, _FIRST.split("\n")[1:-1]):
        taken = _alone(_PREPARE, method, place, workload)
        yield _row(
            f"first-{method}-{workload}",
            f"first use of {method}, {place}, {workload}, nothing compiled; before: {before}",
            100,
            1,
            taken,
            "s",
        )
    yield from _memory()


def _memory() -> Iterator[Row]:
    """Measure the peak of one run at 2^20 bins; of all methods that advise may name, against a limit."""
    before = {
        "line": {"average": 338, "dawa3": 48, "hats": 196, "dawa": 187, "hb": 277, "privelet": 157},
        "grid": {"quadtree": 334, "hybridtree": 154, "hb": 157, "dawa3": 533},
    }
    line, grid = Domain((Integers(0, MANY - 1),)), Domain((Integers(0, 1023), Integers(0, 1023)))
    for place, advised in (("line", usual(line, AllRanges(MANY))), ("grid", usual(grid, Points(MANY)))):
        for method in advised:
            was = before[place].get(method)
            what = f"memory of {method}, {place}" + (f"; before: {was}" if was else "")
            # These counts are grouped on a line alone; of a grid, dawa3 averages over a tree of all cells.
            peak = _alone(_PEAK, method, place)
            yield _row(f"memory-{method}-{place}", what, MANY, 1, peak, "bytes per bin", at_most=150)
    for method, was in {"greedyh-tuned": 356, "mwem": 380}.items():
        peak = _alone(_PEAK, method, "line")
        what = f"memory of {method}, which advise does not name for so many bins; before: {was}"
        yield _row(f"memory-{method}", what, MANY, 1, peak, "bytes per bin")


def _error_bars() -> Iterator[Row]:
    for digits, before in ((17, "6.3"), (20, "some 900, reckoned from 300 bins")):
        hats = fitted_hats(1 << digits, "all-ranges")
        at = np.arange(1 << digits)
        error = hats_error(hats, float(hats.whole) ** 2)
        hats_range_variances(error, at[:5000], at[:5000] + 1)
        taken = _seconds(hats_range_variances, error, at, at + 1)
        what = f"error bars of all bins, hats; before: {before}"
        yield _row(f"hats-bars-{digits}", what, at.size, 1, taken, "s")


def _sums() -> Iterator[Row]:
    taken = []
    for digits in (10, 20):
        release = _released("identity", np.zeros(1 << digits, np.int64))
        release.sum(3, 900)
        taken.append(sum(_seconds(release.sum, 3, 900) for _ in range(200)))
    what = "release.sum, over that of 2^10 bins; before: in proportion to the bins"
    yield _row("sum-growth", what, MANY, 200, taken[1] / taken[0], "times")


def _runs() -> Iterator[Row]:
    scale = 1 / 0.98
    rough, final = 2 * scale**2, 2 * 50.0**2
    for digits, before in ((15, "0.71"), (17, "14.2"), (18, "not run")):
        x = np.round(np.random.default_rng(digits).laplace(0, scale, 1 << digits))
        taken = _seconds(partial(optimal_runs, x, beta=64 * rough, a=final, b=final / rough))
        what = f"runs of noise at epsilon 1, 64 variances a run; before: {before}"
        yield _row(f"runs-{digits}", what, x.size, 1, taken, "s")


def _sorts() -> Iterator[Row]:
    x = np.where(np.arange(MANY) % 4096 < 1000, np.random.default_rng(0).integers(0, 9, MANY), 0)
    noisy = x + np.random.default_rng(1).laplace(0, 1, MANY)
    sort = _seconds(partial(np.argsort, noisy, kind="stable"))
    for method, before in (("php", "27, here 12"), ("efpa", "38, here 15")):
        _released(method, x[:4096])
        taken = _seconds(_released, method, x)
        what = f"{method}, over a stable argsort of as many doubles; before: {before}"
        yield _row(f"sorts-{method}", what, MANY, 1, taken / sort, "argsorts", at_most=8)
    _released("dpc", x[:4096])
    fewer, more = (min(_seconds(_released, "dpc", x[: 1 << digits]) for _ in range(3)) for digits in (16, 19))
    what = "exponent of dpc's time from 2^16 to 2^19 bins, a row of 4,096 again and again; before: 1.7"
    yield _row("growth-dpc", what, 1 << 19, 3, float(np.log2(more / fewer) / 3), "exponent", at_most=1.2)


def _persons(rows: int = 2_000_000) -> Iterator[Row]:
    import duckdb

    bins = Domain((Regular(lo=0, hi=100, bins=4096),))
    with tempfile.TemporaryDirectory() as folder:
        for name, key in (("ten-each", f"hash(i) % {rows // 10}"), ("one-each", "i")):
            file = Path(folder) / f"{name}.parquet"
            duckdb.connect().execute(
                f"COPY (SELECT CAST({key} AS BIGINT) AS person, hash(i * 8 + 1) % 100000 / 1000.0 AS x "
                f"FROM range({rows}) t(i)) TO '{file}' (FORMAT parquet)"
            )
            free = min(_seconds(partial(count, file, bins, columns="x")) for _ in range(3))
            for k in (1, 3):
                bounded = partial(count, file, bins, columns="x", unit="person", max_contributions=k)
                before = "; before: 6.7 to 7.8 of 20M rows" if k == 3 else ""
                what = f"at most {k} records each, {name}, over the free count{before}"
                taken = min(_seconds(bounded) for _ in range(2))
                yield _row(f"persons-{k}-{name}", what, rows, 2, taken / free, "times")


def _released(method: str, x: Floats | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Release:
    domain = Domain((Integers(0, x.size - 1),))
    workload = AllRanges(x.size) if method == "efpa" else Points(x.size)
    held, pipeline = Counts(x.astype(np.int64), domain), make_pipeline(method, domain, workload)
    (made,) = trials(pipeline, held, workload, epsilon=Fraction(1), seeds=[1])
    return made.release(post="none", provenance={})


def _seconds(run: Callable[..., object], *given: object) -> float:
    start = time.process_time()
    run(*given)
    return time.process_time() - start


def _alone(program: str, *words: str) -> float:
    """Return what a process of its own prints; it has compiled nothing before."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-c", program, *words],
            env=os.environ | {"NUMBA_CACHE_DIR": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(found.stdout)
