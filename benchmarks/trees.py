"""Speed, error and coverage of the query trees and DAWA: ``python -m benchmarks.trees [--data DIR]``.

One JSON line per figure on standard output, progress and a readable table on standard error; the exit
code is 1 if a limit is missed. Times are CPU time, the minimum of the repeats; ratios are to a stable
``np.argsort`` of as many doubles, measured in turn with what they judge.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

import dphist
from benchmarks.core import Row, _fastest, _in_turn, _report, _row, _run, _say
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Groups, Ints
from dphist.domain.workload import AllRanges, Prefixes, Ranges, Workload
from dphist.kernels.trees import tree as trees
from dphist.kernels.trees import tuning, variances
from dphist.lab.data import DPBENCH
from dphist.methods.catalogue import choose, find, make_pipeline
from dphist.methods.pipeline import Pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate
from dphist.steps.protocols import Estimated

EPSILONS = ("0.01", "0.1", "1")
QUERIES = 2000
GB = 1 << 30
METHODS = choose(
    lambda m: m.family in ("tree", "runs and tree") or m.name == "identity",
    lambda m: bool(m.usual) or not m.data_dependent,
)
# The best public results for the same ranges, DAWA's partition noise doubled but its single bins still bare;
# behind them, at which epsilons a tree was best.
PUBLIC = {
    "ADULTFRANK": ((187, 78, 7.0), ()),
    "HEPTH": ((733, 121, 12.1), ("0.1", "1")),
    "INCOME": ((859, 121, 12.1), ("0.1", "1")),
    "MEDCOST": ((294, 61, 6.5), ()),
    "NETTRACE": ((207, 25, 1.7), ()),
    "PATENT": ((1209, 121, 12.1), ("0.01", "0.1", "1")),
    "SEARCHLOGS": ((1022, 121, 12.1), ("0.1", "1")),
}


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trees", description=__doc__)
    parser.add_argument("--data", type=Path, default=DPBENCH, help="folder with 1D/*.npy, real histograms")
    parser.add_argument("--trials", type=int, default=20, help="of every method on every histogram")
    given = parser.parse_args(arguments)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "fixed workloads": fixed_workloads,
        "listed ranges": listed_ranges,
        "error of the trees": expected_errors,
        "dawa": dawa_grows,
        "coverage": coverage,
        "properties of dawa": properties,
        "real histograms": lambda: real(given.data, trials=given.trials),
    }
    return _report(_in_turn(parts))


def random_ranges(n: int, m: int = QUERIES) -> Ranges:
    """Return the ranges of all figures: pairs of sorted uniform bins, both included."""
    ends = np.sort(np.random.default_rng(1234).integers(0, n, (m, 2)), axis=1)
    return Ranges(n, ends[:, 0], ends[:, 1] + 1)


def fixed_workloads(*, sizes: tuple[tuple[int, int], ...] = ((32_768, 10), (1_000_000, 6))) -> Iterator[Row]:
    """Time MM and PMM, one bin per group, from the counts to the values."""
    mm = Pipeline(estimate=estimate.WorkloadTree(queries="ranges"))
    pmm = Pipeline(estimate=estimate.WorkloadTree(queries="prefixes"))
    for n, limit in sizes:
        counts, doubles = _power_law(n), np.random.default_rng(2).standard_normal(n)
        repeats = 15 if n < 100_000 else 5
        sort, ranges, prefixes = _fastest(
            repeats,
            partial(np.argsort, doubles, kind="stable"),
            partial(_values, mm, counts, AllRanges(n)),
            partial(_values, pmm, counts, Prefixes(n)),
        )
        for name, seconds in (("MM", ranges), ("PMM", prefixes)):
            what = f"weights, noise and least squares over all bins, {1000 * seconds:.3g} ms, over an argsort"
            yield _row(name, what, n, repeats, seconds / sort, "argsorts", at_most=limit)


def listed_ranges(*, k: int = 100_000, repeats: int = 7) -> Iterator[Row]:
    """Time greedyh for listed ranges over given groups."""
    n = 4 * k
    counts, doubles = _power_law(n), np.random.default_rng(2).standard_normal(k)
    groups, queries = Groups(np.arange(0, n + 1, 4)), random_ranges(n)
    step = estimate.WorkloadTree()

    def run() -> Estimated:
        curator = _curator(counts, "0.1")
        return step(curator, None, groups, queries, share=Fraction(1))

    sort, seconds = _fastest(repeats, lambda: np.argsort(doubles, kind="stable"), run)
    what = (
        f"{QUERIES} random ranges over {k} groups, counts to values, {1000 * seconds:.3g} ms, over an argsort"
    )
    yield _row("listed ranges", what, k, repeats, seconds / sort, "argsorts", at_most=6)


def expected_errors() -> Iterator[Row]:
    """Print E, the variance of an answer in units of 2/epsilon^2, of the trees for all ranges."""
    for k, published, limit in ((1024, 98.3, 75), (4096, 174.8, 128)):
        tree, widths = trees.make_tree(k), np.ones(k, dtype=np.int64)
        greedy, tuned = (
            variances.expected_error(tree, choose(tree, widths, "all-ranges"), widths, "all-ranges")
            for choose in (tuning.greedy_weights, tuning.tuned_weights)
        )
        what = "all ranges, variance of an answer times epsilon^2/2"
        yield _row(
            "E of greedyh",
            f"{what}: {greedy:.2f}, apart from the report's {published}",
            k,
            1,
            abs(greedy - published),
            "",
            at_most=0.06,
        )
        yield _row("E of the tuned tree", what, k, 1, tuned, "", at_most=limit)


def dawa_grows(*, exponents: tuple[int, ...] = (14, 16, 18, 20)) -> Iterator[Row]:
    """Time DAWA end to end, and dawa2, with listed ranges; then the peak of a process of its own."""
    for method in ("dawa", "dawa2"):
        times = []
        for exponent in exponents:
            n = 1 << exponent
            counts, queries = _power_law(n), random_ranges(n)
            pipeline = make_pipeline(method, _domain(n))
            repeats = 5 if exponent < 18 else 2
            (seconds,) = _fastest(repeats, partial(_values, pipeline, counts, queries))
            times.append(seconds)
            yield _row(method, f"{QUERIES} random ranges, counts to values", n, repeats, seconds, "s")
        slope = float(np.polyfit(np.log(2.0) * np.array(exponents), np.log(times), 1)[0])
        what = f"exponent of the time's growth from 2^{exponents[0]} to 2^{exponents[-1]} bins"
        yield _row(f"growth of {method}", what, 1 << exponents[-1], 1, slope, "", at_most=1.2)
    code = (
        "import sys\n"
        "from benchmarks import trees\n"
        "n = int(sys.argv[2])\n"
        "p = trees.make_pipeline(sys.argv[1], trees._domain(n))\n"
        "trees._values(p, trees._power_law(n), trees.random_ranges(n))\n"
        # Not ru_maxrss: a child starts with its parent's.
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])\n"
    )
    for method in ("dawa", "dawa2"):
        command = [sys.executable, "-c", code, method, str(1 << exponents[-1])]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        peak = int(run.stdout) * 1024 / GB
        yield _row(
            f"memory of {method}", "peak of the process, all included", 1 << exponents[-1], 1, peak, "GiB"
        )


def coverage(*, n: int = 1024, releases: int = 500, level: float = 0.95) -> Iterator[Row]:
    """Count how often the intervals of random ranges hold; they are public, the same in every release."""
    counts, queries = _power_law(n), random_ranges(n)
    lo, hi = queries.pairs()
    for method in ("h", "greedyh", "hay"):
        error = _values(make_pipeline(method, _domain(n)), counts, queries).error
        found = [error.margin(int(a), int(b), level=level) for a, b in zip(lo, hi, strict=True)]
        margins = np.array([math.nan if m is None else m for m in found])
        values = dphist.simulate(
            counts, epsilon="0.1", method=method, workload=queries, trials=releases, seed=3
        )
        inside = np.mean([np.abs(queries.answers(np.asarray(v) - counts)) <= margins for v in values])
        what = f"of the 95 % intervals of {QUERIES} random ranges that hold, over {releases} releases"
        yield _row(
            f"coverage of {method}", what, n, releases, 100 * float(inside), "%", at_least=94, at_most=96
        )


def properties(*, n: int = 4096, trials: int = 30) -> Iterator[Row]:
    """Check what DAWA's paper says of it."""
    widths = np.ones(n, dtype=np.int64)
    weights = tuning.greedy_weights(trees.make_tree(n), widths, "points")
    apart = float(np.abs(weights - (trees.make_tree(n).left == 0)).max())
    what = "weights for single bins apart from Laplace noise on every bin (section 5.3.3)"
    yield _row("points workload", what, n, 1, apart, "", at_most=0)
    counts, queries = _power_law(n), random_ranges(n)
    for method in ("dawa", "dawa2"):
        exact = dphist.simulate(counts, epsilon=1_000_000, method=method, workload=queries)
        off = float(np.abs(np.asarray(exact[0]) - counts).max())
        what = "most that a bin is off at epsilon 1,000,000"
        yield _row(f"consistency of {method}", what, n, 1, off, "records", at_most=0.5)
        few, many = (
            _mean_error(factor * counts, method, epsilon, queries, trials, seed=seed) / factor
            for factor, epsilon, seed in ((1, "1", 1), (10, "0.1", 2))
        )
        what = f"ten times the counts at a tenth of epsilon {EPSILONS[-1]}: the scaled error over the other's"
        yield _row(
            f"exchangeability of {method}", what, n, trials, many / few, "", at_least=0.85, at_most=1.15
        )


def real(folder: Path, *, trials: int) -> Iterator[Row]:
    """Print the mean absolute error per query on real histograms beside the best public results."""
    files = sorted((folder / "1D").glob("*.npy"))
    if not files:
        _say(f"there are no histograms in {folder / '1D'}: use --data for real ones.")
        return
    over: list[float] = []
    lines = [f"{'':11}{'epsilon':>8}{'public':>8}" + "".join(f"{m[:9]:>10}" for m in METHODS)]
    for file in files:
        name, counts = file.name.split(".")[0], np.load(file).astype(np.int64)
        queries = random_ranges(counts.size)
        for i, epsilon in enumerate(EPSILONS):
            errors = {}
            for method in METHODS:
                exact = _expected_error(counts, method, epsilon, queries)
                # A tree's error does not depend on the data: it is worked out.
                errors[method] = exact or _mean_error(counts, method, epsilon, queries, trials, seed=i)
                what = f"{name}, epsilon {epsilon}: mean absolute error of {QUERIES} random ranges"
                what += ", worked out" if exact else ""
                yield _row(f"error of {method}", what, counts.size, trials, errors[method], "records")
            best, won = PUBLIC.get(name, ((math.nan,) * 3, ()))
            line = f"{name:11}{epsilon:>8}{best[i]:>8}"
            lines.append(line + "".join(f"{errors[m]:10.4g}" for m in METHODS))
            if epsilon in won:
                what = f"{name}, epsilon {epsilon}: better of dawa2 and greedyh-tuned over the best tree"
                ratio = min(errors["dawa2"], errors["greedyh-tuned"]) / best[i]
                yield _row("against trees", what, counts.size, trials, ratio, "", at_most=1)
            elif name in PUBLIC:
                over.append(errors["dawa2"] / best[i])
    if over:
        mean = math.exp(sum(map(math.log, over)) / len(over))
        what = "geometric mean of dawa2's error over the best public result where no tree won"
        yield _row("against DAWA", what, len(over), trials, mean, "", at_most=1)
    for line in lines:
        _say(line)


def _mean_error(counts: Ints, method: str, epsilon: str, queries: Ranges, trials: int, *, seed: int) -> float:
    values = dphist.simulate(
        counts, epsilon=epsilon, method=method, workload=queries, trials=trials, seed=seed
    )
    return float(np.mean([queries.mean_absolute_error(np.asarray(v) - counts) for v in values]))


def _expected_error(counts: Ints, method: str, epsilon: str, queries: Ranges) -> float | None:
    """Return the expected error if the variance of every range is public, taking the noise to be normal."""
    if find(method).data_dependent:
        return None
    error = _values(make_pipeline(method, _domain(counts.size)), counts, queries, epsilon).error
    one = math.erf(1 / math.sqrt(2))  # the level whose margin is a standard deviation
    margins: Floats = np.array(
        [error.margin(int(a), int(b), level=one) for a, b in zip(*queries.pairs(), strict=True)], dtype=float
    )
    return float(margins.mean() * math.sqrt(2 / math.pi))


def _values(pipeline: Pipeline, counts: Ints, queries: Workload, epsilon: str = "0.1") -> Estimated:
    return pipeline.values(_curator(counts, epsilon), queries)[1]


def _curator(counts: Ints, epsilon: str) -> Curator:
    return Curator.simulated(Counts(counts, _domain(counts.size), 1), epsilon=Fraction(epsilon), seed=1)


def _domain(n: int) -> Domain:
    return Domain((Integers(0, n - 1),))


def _power_law(n: int) -> Ints:
    """Return counts of which many are small and few large, in runs of like size."""
    rng = np.random.default_rng(1)
    level = np.repeat(rng.zipf(1.5, n // 64 + 1), 64)[:n]
    return rng.poisson(np.minimum(level, 10_000)).astype(np.int64)


if __name__ == "__main__":
    _run(main)
