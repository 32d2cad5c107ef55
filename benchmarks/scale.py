"""Very many bins against their limits: ``python -m benchmarks.scale``.

One JSON line per figure on standard output, progress on standard error; the exit code is 1 if a limit is
missed. Times are of this process's own processor seconds, after a first run that compiles. The records are
made up: addresses in clusters, some single hosts with many records, and a background.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks.core import Row, _in_turn, _report, _row, _run
from benchmarks.corners import corners
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import AllRanges, Points
from dphist.methods.sparse import make_sparse
from dphist.privacy.counts import Counts, SparseCounts
from dphist.privacy.curator import Curator
from dphist.release import SparseRelease

RECORDS = 1_000_000
REPEATS = 3
LINE = 1 << 32
_MOST_INTEGER = 1 << 53


def main() -> int:
    """Print every figure and return 1 if one misses its limit."""
    return _report(
        _in_turn({figures.__name__: figures for figures in (splitting, accuracy, listing, corners)})
    )


def addresses(records: int, seed: int) -> Ints:
    """Return clustered addresses: Zipf's law over /16 networks and their /24s, heavy hosts, a background."""
    rng = np.random.default_rng(seed)

    def zipf(k: int, power: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        weights = 1 / np.arange(1, k + 1) ** power
        return np.asarray(weights / weights.sum())

    net = rng.choice(rng.choice(1 << 16, 400, replace=False), records, p=zipf(400, 1.1)).astype(np.int64)
    part = (rng.choice(256, records, p=zipf(256, 1.3)) * 97 + net * 31) % 256
    found = (net << 16) | (part << 8) | np.minimum(rng.geometric(0.03, records), 255)
    pick = rng.random(records)
    found = np.where(pick < 0.15, rng.choice(rng.integers(0, LINE, 300), records, p=zipf(300, 1.0)), found)
    return np.sort(np.where(pick > 0.95, rng.integers(0, LINE, records), found))


def held(records: Ints, n: int) -> SparseCounts:
    """Return the counts of records over bins 0 to n - 1."""
    high = min(n, _MOST_INTEGER)
    axes = (Integers(0, high - 1),) if n == high else (Integers(0, n // high - 1), Integers(0, high - 1))
    return SparseCounts(*np.unique(records, return_counts=True), Domain(axes))


def release(counts: SparseCounts, method: str, seed: int) -> SparseRelease:
    """Return a release of made-up counts at epsilon 1."""
    n = counts.domain.n
    workload = AllRanges(n) if method == "dawa2" else Points(n)
    curator = Curator.simulated(counts, epsilon=Fraction(1), seed=seed)
    made: object = make_sparse(method, counts.domain, workload).run(curator, workload)
    assert isinstance(made, SparseRelease)
    return made


def listing(*, records: int = RECORDS, repeats: int = REPEATS) -> Iterator[Row]:
    """Compare a listing of as many bins as records with drawing as many numbers, and sorting them."""
    domain = Domain((Integers(0, records - 1),))
    zeros = Counts(np.zeros(records, dtype=np.int64), domain)

    def drawn() -> None:
        curator = Curator.simulated(zeros, epsilon=Fraction(1), seed=1)
        np.sort(curator.measure(Groups.singletons(records), share=Fraction(1)).values)

    for digits in (32, 40, 62):
        keys = np.random.default_rng(digits).integers(0, 1 << digits, records)
        counts = held(keys, 1 << digits)
        ours, theirs = _fastest(repeats, partial(release, counts, "listed", 2), drawn)
        what = f"listed, 2^{digits} bins, over drawing and sorting as many numbers"
        yield _row(f"listed-{digits}", what, records, repeats, ours / theirs, "times", at_most=3)
        yield _row(f"listed-{digits}-seconds", f"listed, 2^{digits} bins", records, repeats, ours, "s")


def splitting(*, records: int = RECORDS) -> Iterator[Row]:
    """Measure dawa2 on clustered addresses: time, memory of the whole process."""
    release(held(addresses(1000, 9), LINE), "dawa2", 1)  # compiles
    counts = held(addresses(records, 1), LINE)
    start = time.process_time()
    made = release(counts, "dawa2", 1)
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield _row("dawa2-seconds", "dawa2, 2^32 bins, clustered addresses", records, 1, spent, "s", at_most=10)
    yield _row("dawa2-memory", "peak of the process", records, 1, peak, "GiB", at_most=1)
    yield _row("dawa2-groups", "groups", records, 1, made.groups.k, "groups")


def accuracy(*, records: int = RECORDS, repeats: int = REPEATS, queries: int = 2000) -> Iterator[Row]:
    """Measure the error between random records, and between random addresses, at epsilon 1."""
    between: list[float] = []
    uniform: list[float] = []
    covered: list[float] = []
    for seed in range(repeats):
        x = addresses(records, seed)
        made = release(held(x, LINE), "dawa2", seed)
        rng = np.random.default_rng(100 + seed)
        for found, ends in (
            (between, x[np.sort(rng.integers(0, records, (queries, 2)), axis=1)]),
            (uniform, np.sort(rng.integers(0, LINE, (queries, 2)), axis=1)),
        ):
            answers: Any = made.sum(ends[:, 0].tolist(), (ends[:, 1] + 1).tolist())
            truth = np.searchsorted(x, ends[:, 1], side="right") - np.searchsorted(x, ends[:, 0])
            found.append(float(np.abs(np.asarray(answers) - truth).mean()))
            covered.append(float(((answers.low <= truth) & (truth <= answers.high)).mean()))
    many = repeats * queries
    name = "mean error of dawa2 at epsilon 1, 2^32 bins, "
    yield _row(
        "dawa2-between",
        name + "between random records",
        many,
        repeats,
        float(np.mean(between)),
        "records",
        at_most=40,
    )
    yield _row(
        "dawa2-uniform", name + "between random addresses", many, repeats, float(np.mean(uniform)), "records"
    )
    yield _row(
        "dawa2-covered",
        "share of 95 % intervals that hold",
        2 * many,
        repeats,
        float(np.mean(covered)),
        "share",
        at_least=0.94,
    )


def _fastest(repeats: int, *runs: Callable[[], object]) -> list[float]:
    """Return the least processor time of each, taken in turn."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats + 1):  # the first compiles
        for times, run in zip(found, runs, strict=True):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    return [min(times[1:]) for times in found]


if __name__ == "__main__":
    _run(main)
