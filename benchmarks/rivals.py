"""Time and memory of the rivals: ``python -m benchmarks.rivals``.

One JSON line per figure on standard output, progress on standard error; the exit code is 1 if a limit is
missed. Every method runs once, after its kernels are compiled, in a process of its own on public made-up
counts; times are CPU time, memory is the most that the process held.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.core import Row, _report, _row, _run, _say
from dphist.domain.groups import Ints
from dphist.methods.catalogue import choose

# Everybody's methods that DAWA, SORTaki and the paper on engineering compare with their own, and not ours.
OWN = ("SORTaki", "DAWA", "TKDE 2019", "SDM 2014", "dphist")
RIVALS = choose(lambda m: not any(paper in m.citation for paper in OWN))
LINE = choose(lambda m: m.name in RIVALS and 1 in m.dimensions)
GRID = choose(
    lambda m: m.name in RIVALS and m.family not in ("sorted", "runs"),
    lambda m: 2 in m.dimensions and m.cost != "quadratic",
)
BINS, SIDE = 1 << 17, 1024
SECONDS, MEGABYTES = 10.0, 2048.0


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    given = sys.argv[1:] if arguments is None else arguments
    if given:
        print(json.dumps(_one(given[0], given[1])))
        return 0
    return _report(figures())


def figures() -> Iterator[Row]:
    """Run every method on a line, then those for grids on a grid."""
    for kind, methods, n in (("line", LINE, BINS), ("grid", GRID, SIDE * SIDE)):
        for method in methods:
            _say(f"{method} on a {kind} ...")
            command = [sys.executable, "-m", "benchmarks.rivals", method, kind]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, megabytes = json.loads(done.stdout)
            what = f"one release of a {kind} of {n} bins at epsilon 0.1"
            limit = None if method == "mwem" else SECONDS
            yield _row(f"{method} on a {kind}", f"{what}, CPU time", n, 1, seconds, "s", at_most=limit)
            if kind == "grid":
                what = f"{what}, most memory of the process"
                yield _row(f"memory of {method}", what, n, 1, megabytes, "MB", at_most=MEGABYTES)


def _one(method: str, kind: str) -> tuple[float, float]:
    """Return the seconds and megabytes of one release in this process."""
    import dphist

    counts, small = _counts(kind)
    asked = "ranges" if kind == "line" else "rectangles:2000"
    dphist.simulate(small, epsilon="0.1", method=method, workload=asked)
    start = time.process_time()
    dphist.simulate(counts, epsilon="0.1", method=method, workload=asked)
    return time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _counts(kind: str) -> tuple[Ints, Ints]:
    """Return steps with noise on a line or a cloud on a grid, and a few bins of it."""
    draws = np.random.default_rng(1)
    if kind == "line":
        line = np.repeat(draws.poisson(50, BINS // 64), 64) + draws.poisson(5, BINS)
        return line, line[:64]
    grid = np.zeros((SIDE, SIDE), np.int64)
    at = np.clip(draws.normal(SIDE / 2, SIDE / 7, (2, 1_000_000)).astype(np.int64), 0, SIDE - 1)
    np.add.at(grid, (at[0], at[1]), 1)
    return grid, grid[:8, :8]


if __name__ == "__main__":
    _run(main)
