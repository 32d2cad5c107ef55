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
from benchmarks.group_coverage import cells, coverage
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.hierarchy import Hierarchy, make_hierarchy
from dphist.domain.workload import make_workload
from dphist.kernels.topdown import top_down
from dphist.methods.catalogue import make_pipeline
from dphist.planning.simulate import trials_by_group
from dphist.privacy.counts import Counts
from dphist.release.grouped import GroupedRelease, Level

F = Fraction
Exact = list[Ints]
SHARES = (F(1, 10), F(2, 10), F(7, 10))
ENOUGH = 2000  # intervals of which not all should hold
_Z = 1.959963984540054
_FIVE: dict[str, float] = {"at_least": 0.95, "at_most": 1.05}


def main() -> int:
    """Print every figure and return 1 if one misses its limit."""
    parts = (regions, hospitals, whole, covered, scale)
    return _report(_in_turn({figures.__name__: figures for figures in parts}))


def regions(*, trials: int = 40) -> Iterator[Row]:
    """64 regions x 128 ages: with and without a share for the nation."""
    names, exact = _regions()
    what = "64 regions x 128 ages, hats"
    plain = _errors("hats", names, exact, (F(0), F(1)), trials)
    shared = _errors("hats", names, exact, (F(3, 10), F(7, 10)), trials)
    for label, error, least, most in (
        ("regions, no levels", plain[1], 6.8 * 0.95, 6.8 * 1.05),
        ("nation, no levels", plain[0], 50 * 0.7, 50 * 1.3),
        ("nation, shares .3 .7", shared[0], None, 23),
        ("regions, shares .3 .7", shared[1], 9.6 * 0.95, 9.6 * 1.05),
    ):
        at: dict[str, Any] = {"at_least": least, "at_most": most}
        yield _row("regions", f"{what}, {label}", 64, trials, error, "records", **at)


def hospitals(*, trials: int = 6) -> Iterator[Row]:
    """3,000 hospitals in 50 regions x 100 bins: the error of every level, said and found, and the time."""
    names, exact = _hospitals()
    what = "3,000 hospitals in 50 regions x 100 bins, shares .1 .2 .7"
    start = time.process_time()
    _one("hats", names, exact, SHARES, 0)  # compiles
    start = time.process_time()
    _one("hats", names, exact, SHARES, 1)
    cpu = time.process_time() - start
    runs = [_one("hats", names, exact, SHARES, 1000 + seed) for seed in range(trials)]
    hats = _levels(runs, exact)
    wanted = {"nation": (61, 0.3), "region": (29, 0.1), "hospital": (9.0, 0.1)}
    for name, error in zip(names.names, hats, strict=True):
        middle, off = wanted[name]
        at = {"at_least": middle * (1 - off), "at_most": middle * (1 + off)}
        yield _row("hospitals", f"{what}, hats, {name}", 3000, trials, error, "records", **at)
    yield _row("hospitals", f"{what}, hats, all levels", 3000, 1, cpu, "CPU s", at_most=4)
    for name, error, level in zip(names.names, hats, runs[0], strict=True):
        at = _FIVE if name == "hospital" else {}
        ratio = error / float(np.sqrt(_said(level)))
        yield _row("hospitals", f"hats, {name}: found over said", 3000, trials, ratio, "ratio", **at)
    yield from _sums(names, exact, runs)
    dawa2 = [_one("dawa2", names, exact, SHARES, 1000 + seed) for seed in range(trials)]
    other = _levels(dawa2, exact)
    label = "dawa2 over hats, the same noise above the leaves"
    for name, one, two, most in zip(names.names, other, hats, (1.3, None, 1), strict=True):
        yield _row("hospitals", f"{name}: {label}", 3000, trials, one / two, "ratio", at_most=most)
    lowest = (F(0), F(0), F(1))
    one, two = (_levels([_one(m, names, exact, lowest, 7)], exact)[-1] for m in ("dawa2", "hats"))
    yield _row("hospitals", "hospital, no levels: dawa2 over hats", 3000, 1, one / two, "ratio", at_most=1)


def _sums(names: Hierarchy, exact: Exact, runs: Sequence[tuple[Level, ...]]) -> Iterator[Row]:
    """Compare what intervals say of sums over bins and groups with what is found."""
    draws, lo, hi = np.random.default_rng(3), 20, 65
    leaves, n = names.sizes[-1], exact[0].shape[1]
    mixed = draws.permutation(leaves)
    asked = {
        "one hospital, bins 20 to 64": np.arange(leaves)[:, None],
        "10 hospitals of all regions, bins 20 to 64": mixed.reshape(-1, 10),
        "200 hospitals of all regions, bins 20 to 64": mixed.reshape(-1, 200),
    }
    for what, sets in asked.items():
        squares = []
        for i, levels in enumerate(runs):
            release = _release(names, n, levels)
            for some in sets[i :: len(runs)] if len(sets) == leaves else sets:
                found = release.sum(lo, hi, groups=[names.leaves[j] for j in some.tolist()])
                assert found.high is not None
                said = (found.high - found.value) / _Z
                squares.append(((found.value - exact[-1][some, lo:hi].sum()) / said) ** 2)
        ratio = float(np.sqrt(np.mean(squares)))
        at = _FIVE if len(squares) >= 1000 else {}  # of few, the figure itself is uncertain
        yield _row("sums", f"{what}: found over said", len(sets), len(squares), ratio, "ratio", **at)


def whole(*, trials: int = 6) -> Iterator[Row]:
    """Whole numbers that add up: their error beside the raw one, the bias of totals, and time."""
    for data, made_up, shares in (("hospitals", _hospitals(), SHARES), ("regions", _regions(), SHARES[1:])):
        names, exact = made_up
        each = trials if data == "hospitals" else 10 * trials
        for method in ("hats", "identity"):
            yield from _whole(f"{data}, {method}", method, names, exact, _whole_of(shares), each)


def _whole(
    what: str, method: str, names: Hierarchy, exact: Exact, shares: Sequence[F], trials: int
) -> Iterator[Row]:
    raw, made, cpu, groups = [], [], [], names.sizes[-1]
    for seed in range(trials):
        found = _one(method, names, exact, shares, 100 + seed)
        values, factors = [level.values for level in found], [level.factors for level in found]
        top_down(names.parents, values, factors)
        start = time.process_time()
        numbers = top_down(names.parents, values, factors)
        cpu.append(time.process_time() - start)
        raw.append(values[-1])
        made.append(numbers[-1].astype(np.float64))
    ratio = _rmse([x - exact[-1] for x in made]) / _rmse([x - exact[-1] for x in raw])
    most = 1 if method == "hats" else 1.02  # of single bins rounding is a part of the noise
    yield _row("whole", f"{what}: leaf error over raw", groups, trials, ratio, "ratio", at_most=most)
    nodes = f"{sum(names.sizes):,} x {exact[0].shape[1]}"
    yield _row("whole", f"{what}: {nodes} made whole", groups, trials, min(cpu), "CPU s", at_most=0.5)
    size = exact[-1].sum(axis=1)
    order, quarter = np.argsort(size, kind="stable"), groups // 4
    off = np.mean([x.sum(axis=1) - size for x in made], axis=0)[order]
    cuts = (0, quarter, groups - quarter, groups)
    for name, first, last in zip(("small", "middle", "large"), cuts, cuts[1:], strict=False):
        bias = abs(float(off[first:last].mean()))
        limit = 1 if groups >= 1000 else None  # the mean of few groups is noise
        label = f"{what}: bias of the totals of {name} groups"
        yield _row("whole", label, groups, trials, bias, "records", at_most=limit)


def covered(*, trials: int = 30) -> Iterator[Row]:
    """How often 95 % intervals hold: bins, ranges, sums over groups, and bands for all bins at once."""
    for cell in cells():
        for what, held in coverage(cell, trials=trials).items():
            if not held.asked:
                yield _row("coverage", f"{cell}; {what}: no intervals", held.without, trials, 0, "intervals")
                continue
            at: dict[str, Any] = {"at_least": 0.9}
            if "all bins" in what:
                at["at_least"] = 0.95 - 3 * (0.05 * 0.95 / held.asked) ** 0.5
            elif held.asked >= ENOUGH:
                at["at_most"] = 0.995
            yield _row("coverage", f"{cell}; {what}", held.asked, trials, held.rate, "of intervals", **at)


def scale(*, groups: int = 100_000, bins: int = 1000, records: int = 20_000_000) -> Iterator[Row]:
    """10^5 groups x 10^3 bins from a Parquet file of 2 x 10^7 records, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dphist-bench-") as folder:
        source = Path(folder) / "records.parquet"
        _write(source, groups, bins, records)
        cpu, peak = _alone(f"_publish({str(source)!r}, {groups}, {bins})")
        size = (Path(folder) / "release.parquet").stat().st_size / 1e6
        opened, read = _alone(f"_read({str(source)!r}, {groups})")
    what = f"{groups:,} groups x {bins:,} bins, {records:,} records"
    yield _row("scale", f"{what}: counted, drawn and written", groups, 1, cpu, "CPU s", at_most=15)
    yield _row("scale", f"{what}: peak memory", groups, 1, peak, "MB", at_most=1500)
    yield _row("scale", f"{what}: the file", groups, 1, size, "MB")
    yield _row("scale", f"{what}: the file opened", groups, 1, opened, "CPU ms")
    yield _row("scale", f"{what}: one group read from the file", groups, 1, read, "CPU ms", at_most=50)


def _alone(call: str) -> list[float]:
    """Return the figures that a function of this module prints in a process of its own."""
    code = f"from benchmarks import groups; groups.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def _write(source: Path, groups: int, bins: int, records: int) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'G' || CAST(floor({groups} * pow(random(), 2)) AS INT) AS g, CAST(floor({bins} * "
            f"(random() + random()) / 2) AS INT) AS b FROM range({records})) TO '{source}' (FORMAT parquet)"
        )


def _publish(source: str, groups: int, bins: int) -> None:
    """Publish and save; print CPU seconds from the start of the process on, and peak megabytes."""
    import dphist
    from dphist.privacy.ledger import MemoryLedger

    names = [f"G{i}" for i in range(groups)]
    made = dphist.histogram(
        source, column="b", bins=Integers(0, bins - 1), by="g", groups=names, epsilon=1, ledger=MemoryLedger()
    )
    made.save(Path(source).with_name("release.parquet"))
    print(_cpu(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def _read(source: str, groups: int) -> None:
    """Open the release and read one group; print the CPU milliseconds of each."""
    import dphist
    from dphist.release import grouped_files  # noqa: F401 - what is imported is not what is measured

    start = _cpu()
    opened: Any = dphist.load(Path(source).with_name("release.parquet"))
    loaded = _cpu()
    opened[f"G{groups // 3}"]
    print((loaded - start) * 1000, (_cpu() - loaded) * 1000)


def _cpu() -> float:
    """Return the CPU seconds of this process, its threads and the processes it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


# ---- made-up counts, and the error of all ranges --------------------------------------------------------


def _regions(seed: int = 5, records: int = 200_000) -> tuple[Hierarchy, Exact]:
    draws, ages = np.random.default_rng(seed), np.arange(128)
    rows = []
    for size in _sizes(draws, 64, 1.2, records).tolist():
        middle, width = 30 + 25 * draws.random(), 15 + 15 * draws.random()
        shape = np.exp(-(((ages - middle) / width) ** 2) / 2) + 0.15 * (ages < 18)
        rows.append(draws.multinomial(int(size), shape / shape.sum()))
    names = make_hierarchy(("nation", "region"), [f"R{i}" for i in range(64)])
    return names, _totals(names, np.array(rows))


def _hospitals(seed: int = 7, records: int = 1_200_000) -> tuple[Hierarchy, Exact]:
    draws, bins = np.random.default_rng(seed), np.arange(100)
    region = np.sort(draws.integers(0, 50, 3000))
    region[:50] = np.arange(50)
    region = np.sort(region)
    sizes = _sizes(draws, 3000, 1.1, records)
    middles, widths = 25 + 40 * draws.random(50), 12 + 15 * draws.random(50)
    rows = []
    for r, size in zip(region.tolist(), sizes.tolist(), strict=True):
        middle, width = middles[r] + 8 * draws.normal(), widths[r] * np.exp(0.3 * draws.normal())
        shape = np.exp(-(((bins - middle) / width) ** 2) / 2) + 0.1 * (bins < 5) + 0.02
        rows.append(draws.multinomial(round(size), shape / shape.sum()))
    below = {f"R{r}": [f"H{i}" for i in np.flatnonzero(region == r)] for r in range(50)}
    names = make_hierarchy(("nation", "region", "hospital"), below)
    return names, _totals(names, np.array(rows))


def _sizes(draws: np.random.Generator, groups: int, power: float, records: int) -> Floats:
    sizes = draws.pareto(power, groups) + 1
    return np.asarray(sizes / sizes.sum() * records)


def _whole_of(shares: Sequence[F]) -> list[F]:
    return [share / sum(shares) for share in shares]


def _totals(names: Hierarchy, leaves: Ints) -> Exact:
    return [np.add.reduceat(leaves, names.runs(i).starts[:-1], axis=0) for i in range(names.depth)]


def _one(method: str, names: Hierarchy, exact: Exact, shares: Sequence[F], seed: int) -> tuple[Level, ...]:
    bins = Domain((Integers(0, exact[0].shape[1] - 1),))
    asked = make_workload("ranges", bins)
    held = Counts(exact[-1], Domain((names.axis, bins.axes[0])))
    pipeline = make_pipeline(method, bins, asked)
    ((_, made),) = trials_by_group(pipeline, held, names, asked, shares, epsilon=F(1), seeds=[seed])
    return made


def _errors(method: str, names: Hierarchy, exact: Exact, shares: Sequence[F], trials: int) -> list[float]:
    return _levels([_one(method, names, exact, shares, 1000 + seed) for seed in range(trials)], exact)


def _levels(runs: Sequence[tuple[Level, ...]], exact: Exact) -> list[float]:
    return [_rmse([run[i].values - exact[i] for run in runs]) for i in range(len(exact))]


def _release(names: Hierarchy, n: int, levels: tuple[Level, ...]) -> GroupedRelease:
    return GroupedRelease(
        hierarchy=names,
        bins=Domain((Integers(0, n - 1),)),
        levels=levels,
        shares=SHARES,
        post="none",
        epsilon=F(1),
        charges=(),
        unit="one record",
        sensitivity=1,
        method="simulated",
        parameters={},
        provenance={},
        versions={},
        created="",
        simulated=True,
    )


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
    margins = level.errors[0].margins(lo, hi + 1, level=0.95)
    return float(np.mean((margins / _Z) ** 2) * level.factors.mean())


if __name__ == "__main__":
    _run(main)
