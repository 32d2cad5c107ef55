"""Holds ``auto`` against every other method on real histograms: ``python -m benchmarks.auto --data DIR``.

JSON lines, exit code 1 if a limit is missed. Error is the root of the mean squared error per query of the
workload, over all trials; regret is a method's error over the least error that any other method of the
catalogue has on the same data, epsilon and workload.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.core import Row, _report, _row, _run
from dphist.lab import data, grid, metrics
from dphist.methods.catalogue import CATALOGUE

EPSILONS = ("0.01", "0.1", "1")
WORKLOADS = {"points": "points", "ranges": "random:2000", "prefixes": "prefixes"}
ABOUT = """# How auto fares

Made by `python -m benchmarks.auto`: its error over that of the best other method."""


def real(folder: Path, out: Path, *, jobs: int, trials: int) -> Iterator[Row]:
    """Hold the method against every other one on real histograms."""
    sources = data.folder(folder, dims=1)
    methods = list(CATALOGUE)
    workloads = tuple(WORKLOADS.values())
    first = grid.run(grid.Grid(sources, EPSILONS, workloads, methods, 3).cells(), out=out, jobs=jobs)
    cell = ("dataset", "epsilon", "workload")
    rough = metrics.regret(metrics.summarise(first, by=(*cell, "method"), value="mean_squared"), cell=cell)
    near = {tuple(line[k] for k in (*cell, "method")) for line in rough if line["regret"] < 4}
    again = [
        grid.Cell(source, epsilon, workload, method, trials)
        for source in sources
        for epsilon in EPSILONS
        for workload in workloads
        for method in methods
        if method == "auto" or (source.name, float(epsilon), workload, method) in near
    ]
    second = grid.run(again, out=out, jobs=jobs)
    # The first trials of the second round are those of the first.
    found = {tuple(row[k] for k in (*cell, "method", "trial")): row for row in (*first, *second)}
    lines = metrics.summarise(found.values(), by=(*cell, "method"), value="mean_squared")
    errors: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        errors.setdefault(tuple(line[k] for k in cell), {})[line["method"]] = math.sqrt(line["mean"])
    least = {at: min(v for m, v in each.items() if m != "auto") for at, each in errors.items()}
    everywhere = [m for m in methods if all(m in each for each in errors.values())]
    regret = {m: {at: each[m] / least[at] for at, each in errors.items()} for m in everywhere}
    names = {spec: asked for asked, spec in WORKLOADS.items()}
    for at, value in regret["auto"].items():
        what = "auto's error over the least of any method, per query"
        yield _row(f"{at[0]}, epsilon {at[1]:g}, {names[at[2]]}", what, 1, trials, value, "times", at_most=2)
    mean = {method: metrics.geometric_mean(list(each.values())) for method, each in regret.items()}
    ours = mean.pop("auto")
    what = f"geometric mean of the regret over {len(regret['auto'])} cells"
    cells = len(regret["auto"])
    yield _row("auto", what, cells, trials, ours, "times", at_most=1.15)
    worst = max(regret["auto"].values())
    yield _row("auto, worst", "the largest regret of all cells", cells, trials, worst, "times", at_most=2)
    for method in sorted(mean, key=mean.__getitem__)[:5]:
        also = f"{what}; its worst is {max(regret[method].values()):.3g}"
        yield _row(f"always {method}", also, cells, trials, mean[method], "times")
    ratio, also = ours / min(mean.values()), f"{what}, over that of the best method"
    yield _row("auto against one method", also, cells, trials, ratio, "times", at_most=1)


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=data.DPBENCH, help="a folder with real histograms, .npy or .csv"
    )
    parser.add_argument("--out", type=Path, default=Path("build/auto"), help="where trials are kept")
    parser.add_argument("--table", type=Path, help="a Markdown file for all figures")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--trials", type=int, default=20, help="of every method that comes near the best")
    given = parser.parse_args(arguments)
    rows = real(given.data, given.out, jobs=given.jobs, trials=given.trials)
    return _report(rows, table=given.table, about=ABOUT)


if __name__ == "__main__":
    _run(main)
