"""Histograms by group against their limits: ``python -m benchmarks.groups``.

One JSON line per figure on standard output, progress on standard error; the exit code is 1 if a limit is
missed. Errors are root mean squared errors over all ranges of bins, at epsilon 1 and one record per person,
over seeded noise. The counts are made up: regions with age pyramids, and hospitals of very uneven sizes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.core import Row, _in_turn, _report, _row, _run
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.hierarchy import Hierarchy, make_hierarchy
from dphist.domain.workload import make_workload
from dphist.kernels.topdown import top_down
from dphist.methods.catalogue import make_pipeline
from dphist.methods.levels import run_levels
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release.grouped import Level

F = Fraction
Exact = list[Ints]


def main() -> int:
    """Print every figure and return 1 if one misses its limit."""
    return _report(_in_turn({"regions": regions, "hospitals": hospitals, "whole": whole, "scale": scale}))


def regions(*, trials: int = 20) -> Iterator[Row]:
    """64 regions x 128 ages: with and without a share for the nation."""
    names, exact = _regions()
    what = "64 regions x 128 ages, hats"
    plain = _errors("hats", names, exact, (F(0), F(1)), trials)
    yield _row("regions", f"{what}, regions, no levels", 64, trials, plain[1], "records", at_most=6.8 * 1.05)
    yield _row("regions", f"{what}, nation, no levels", 64, trials, plain[0], "records")
    shared = _errors("hats", names, exact, (F(3, 10), F(7, 10)), trials)
    yield _row("regions", f"{what}, nation, shares .3 .7", 64, trials, shared[0], "records", at_most=23)
    yield _row("regions", f"{what}, regions, shares .3 .7", 64, trials, shared[1], "records")


def hospitals(*, trials: int = 4) -> Iterator[Row]:
    """3,000 hospitals in 50 regions x 100 bins: the error of every level, and the time."""
    names, exact = _hospitals()
    shares = (F(1, 10), F(2, 10), F(7, 10))
    what = "3,000 hospitals in 50 regions x 100 bins, shares .1 .2 .7"
    start = time.process_time()
    _one("hats", names, exact, shares, 0)  # compiles
    start = time.process_time()
    first = _one("hats", names, exact, shares, 1)
    cpu = time.process_time() - start
    hats = _errors("hats", names, exact, shares, trials)
    limits = {"nation": 61 * 1.3, "region": 29 * 1.1, "hospital": 9.0 * 1.1}
    for name, error in zip(names.names, hats, strict=True):
        yield _row("hospitals", f"{what}, hats, {name}", 3000, trials, error, "records", at_most=limits[name])
    yield _row("hospitals", f"{what}, hats, all levels", 3000, 1, cpu, "CPU s", at_most=4)
    said = float(np.sqrt(_said(first[-1])))
    yield _row("hospitals", "leaves, hats: measured over predicted", 3000, trials, hats[-1] / said, "ratio",
               at_most=1.05, at_least=None)  # fmt: skip
    dawa2 = _errors("dawa2", names, exact, shares, trials)
    yield _row("hospitals", "leaves: dawa2 over hats", 3000, trials, dawa2[-1] / hats[-1], "ratio", at_most=1)
    yield _row("hospitals", "nation: dawa2 over hats", 3000, trials, dawa2[0] / hats[0], "ratio", at_most=1.3)


def whole(*, trials: int = 4) -> Iterator[Row]:
    """Whole numbers that add up: their error beside the raw one, the bias of totals, and time."""
    names, exact = _hospitals()
    raw, made, cpu = [], [], []
    for seed in range(trials):
        found = _one("hats", names, exact, (F(1, 10), F(2, 10), F(7, 10)), 100 + seed)
        values, factors = [level.values for level in found], [level.factors for level in found]
        top_down(names.parents, values, factors)
        start = time.process_time()
        numbers = top_down(names.parents, values, factors)
        cpu.append(time.process_time() - start)
        raw.append(values[-1])
        made.append(numbers[-1].astype(np.float64))
    before, after = (_rmse([x - exact[-1] for x in each]) for each in (raw, made))
    yield _row(
        "whole", "leaf error, whole numbers over raw", 3000, trials, after / before, "ratio", at_most=1
    )
    yield _row("whole", "3,051 x 100 made whole", 3000, trials, min(cpu), "CPU s", at_most=0.5)
    size = exact[-1].sum(axis=1)
    order = np.argsort(size, kind="stable")
    off = np.mean([x.sum(axis=1) - size for x in made], axis=0)[order]
    for name, part in zip(
        ("small", "middle", "large"), (slice(0, 750), slice(750, 2250), slice(2250, 3000)), strict=True
    ):
        bias = abs(float(off[part].mean()))
        yield _row(
            "whole", f"bias of the totals of {name} hospitals", 3000, trials, bias, "records", at_most=1
        )


def scale(*, groups: int = 100_000, bins: int = 1000, records: int = 20_000_000) -> Iterator[Row]:
    """10^5 groups x 10^3 bins from a Parquet file of 2 x 10^7 records, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dphist-bench-") as folder:
        source = Path(folder) / "records.parquet"
        _write(source, groups, bins, records)
        code = f"from benchmarks.groups import _publish; _publish({str(source)!r}, {groups}, {bins})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        cpu, peak, read = map(float, done.stdout.split())
    what = f"{groups:,} groups x {bins:,} bins, {records:,} records"
    yield _row("scale", f"{what}: counted, drawn and written", groups, 1, cpu, "CPU s", at_most=15)
    yield _row("scale", f"{what}: peak memory", groups, 1, peak, "MB", at_most=1500)
    yield _row("scale", f"{what}: one group read from the file", groups, 1, read, "ms", at_most=50)


def _write(source: Path, groups: int, bins: int, records: int) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'G' || CAST(floor({groups} * pow(random(), 2)) AS INT) AS g, CAST(floor({bins} * "
            f"(random() + random()) / 2) AS INT) AS b FROM range({records})) TO '{source}' (FORMAT parquet)"
        )


def _publish(source: str, groups: int, bins: int) -> None:
    """Publish and save, and print CPU seconds, peak megabytes and the milliseconds of reading one group."""
    import dphist
    from dphist.privacy.ledger import MemoryLedger

    names = [f"G{i}" for i in range(groups)]
    start = time.process_time()
    made = dphist.histogram(
        source, column="b", bins=Integers(0, bins - 1), by="g", groups=names, epsilon=1, ledger=MemoryLedger()
    )
    target = Path(source).with_name("release.parquet")
    made.save(target)
    cpu = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    opened: Any = dphist.load(target)
    start = time.perf_counter()
    opened[names[groups // 3]]
    print(cpu, peak, (time.perf_counter() - start) * 1000)


# ---- made-up counts, and the error of all ranges --------------------------------------------------------


def _regions(seed: int = 5, records: int = 200_000) -> tuple[Hierarchy, Exact]:
    draws, ages = np.random.default_rng(seed), np.arange(128)
    sizes = _sizes(draws, 64, 1.2, records)
    rows = []
    for size in sizes:
        middle, width = draws.uniform(30, 55), draws.uniform(15, 30)
        rows.append(
            draws.multinomial(
                size, _shares(np.exp(-(((ages - middle) / width) ** 2) / 2) + 0.15 * (ages < 18))
            )
        )
    names = make_hierarchy(("nation", "region"), [f"R{i}" for i in range(64)])
    return names, _totals(names, np.array(rows))


def _hospitals(seed: int = 7, records: int = 1_200_000) -> tuple[Hierarchy, Exact]:
    draws, bins = np.random.default_rng(seed), np.arange(100)
    region = np.sort(np.concatenate([np.arange(50), draws.integers(0, 50, 2950)]))
    sizes = _sizes(draws, 3000, 1.1, records)
    middles, widths = draws.uniform(25, 65, 50), draws.uniform(12, 27, 50)
    rows = []
    for r, size in zip(region.tolist(), sizes, strict=True):
        middle, width = draws.normal(middles[r], 8), widths[r] * np.exp(draws.normal(0, 0.3))
        shape = np.exp(-(((bins - middle) / width) ** 2) / 2) + 0.1 * (bins < 5) + 0.02
        rows.append(draws.multinomial(size, _shares(shape)))
    below = {f"R{r}": [f"H{i}" for i in np.flatnonzero(region == r)] for r in range(50)}
    names = make_hierarchy(("nation", "region", "hospital"), below)
    return names, _totals(names, np.array(rows))


def _sizes(draws: np.random.Generator, groups: int, power: float, records: int) -> Sequence[int]:
    sizes = draws.pareto(power, groups) + 1
    return [round(size) for size in (sizes / sizes.sum() * records).tolist()]


def _shares(shape: Floats) -> Floats:
    return np.asarray(shape / shape.sum())


def _totals(names: Hierarchy, leaves: Ints) -> Exact:
    return [np.add.reduceat(leaves, names.runs(i).starts[:-1], axis=0) for i in range(names.depth)]


def _one(method: str, names: Hierarchy, exact: Exact, shares: Sequence[F], seed: int) -> tuple[Level, ...]:
    bins = Domain((Integers(0, exact[0].shape[1] - 1),))
    asked = make_workload("ranges", bins)
    held = Counts(exact[-1], Domain((names.axis, bins.axes[0])))
    curator = Curator.simulated(held, epsilon=F(1), seed=seed)
    return run_levels(make_pipeline(method, bins, asked), curator, names, asked, shares)


def _errors(method: str, names: Hierarchy, exact: Exact, shares: Sequence[F], trials: int) -> list[float]:
    runs = [_one(method, names, exact, shares, 1000 + seed) for seed in range(trials)]
    return [_rmse([run[i].values - exact[i] for run in runs]) for i in range(names.depth)]


def _rmse(errors: Sequence[NDArray[np.float64]]) -> float:
    """Return the root of the mean squared error over all ranges of bins: O(bins) for each group."""
    sums = np.cumsum(np.concatenate(errors), axis=1)
    sums = np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)
    n = sums.shape[1] - 1
    squares = ((n + 1) * (sums * sums).sum(axis=1) - sums.sum(axis=1) ** 2) / (n * (n + 1) / 2)
    return float(np.sqrt(squares.mean()))


def _said(level: Level) -> float:
    """Return the predicted mean squared error over all ranges of the bins of a level's groups."""
    n = level.values.shape[1]
    lo, hi = np.triu_indices(n)
    z = 1.959963984540054
    margins = level.errors[0].margins(lo, hi + 1, level=0.95)
    return float(np.mean((margins / z) ** 2) * level.factors.mean())


if __name__ == "__main__":
    _run(main)
