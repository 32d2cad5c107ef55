"""The private splits: the exact law of small cases, the bounds that the proof needs, and a slow twin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.workload import Ranges
from dphist.errors import UsageError
from dphist.kernels.partition import deviations
from dphist.methods.catalogue import make_pipeline
from dphist.privacy import splits
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.queries import Roughness
from dphist.steps.order import hilbert
from dphist.steps.partition import Splits

Law = dict[tuple[int, ...], float]


def median_cost(x: tuple[int, ...]) -> int:
    return min(sum(abs(v - c) for v in x) for c in x)


def constants(scale: float) -> tuple[int, int]:
    slack = math.ceil(1.25 * scale) + 1
    return slack, 2 * slack + splits.GRID


def exact_law(x: tuple[int, ...], scale: float, fanout: int, step: int | None = None) -> Law:
    """Return the probability of every outcome, which is written as the starts of its groups."""
    slack, usual = constants(scale)
    step = usual if step is None else step
    a = math.exp(-1 / scale)

    def node(lo: int, size: int, depth: int) -> Law:
        hi = min(lo + size, len(x))
        if size == 1:
            return {(lo,): 1.0}
        g = max(splits.GRID * median_cost(x[lo:hi]) - depth * step, -slack)
        split = 1 - a ** (g + 1) / (1 + a) if g >= 0 else a**-g / (1 + a)
        stay = a ** (g + 1) / (1 + a) if g >= 0 else 1 - a**-g / (1 + a)
        parts = [node(c, size // fanout, depth + 1) for c in range(lo, hi, size // fanout)]
        found: Law = {(lo,): stay}
        for combined in itertools.product(*(part.items() for part in parts)):
            starts = tuple(s for key, _ in combined for s in key)
            found[starts] = found.get(starts, 0.0) + split * math.prod(p for _, p in combined)
        return found

    size = 1
    while size < len(x):
        size *= fanout
    return node(0, size, 0)


def loss(x: tuple[int, ...], p: int, scale: float, step: int | None = None) -> float:
    more = tuple(v + (i == p) for i, v in enumerate(x))
    one, other = (exact_law(y, scale, 2, step) for y in (x, more))
    return max(abs(math.log(one[k] / other[k])) for k in one if min(one[k], other[k]) > 1e-200)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_no_neighbours_are_told_apart_by_more_than_epsilon(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    cases = [
        tuple(rng.integers(0, top, n).tolist()) for n in (2, 3, 8) for top in (2, 9, 60) for _ in range(8)
    ]
    cases += [(h, 0, 0, 0, 0, 0, 0, 0) for h in range(0, int(60 / epsilon), max(1, int(4 / epsilon)))]
    worst = max(loss(x, p, 6 / epsilon) for x in cases for p in range(len(x)))
    assert 0.5 * epsilon < worst <= epsilon


def test_level_thresholds_would_be_caught() -> None:
    assert max(loss((h, *[0] * 7), 0, 12.0, step=0) for h in range(0, 60, 2)) > 0.5


def test_proof_constants() -> None:
    q = math.exp(-1.25)
    series = sum(q ** (2 * i - 1) / (2 - q ** (2 * i - 1)) for i in range(1, 50))
    assert splits.GRID * (1 + series) < splits.GRID * 1.181 < splits.SENSITIVITY


def test_scores_move_by_one_at_most_and_never_rise_downwards() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        n, fanout = int(rng.integers(1, 70)), int(rng.integers(2, 6))
        x = rng.integers(0, int(rng.choice([2, 10, 1000])), n)
        sizes = [1]
        while sizes[-1] < n:
            sizes.append(sizes[-1] * fanout)
        scores = deviations.tree_costs(x, sizes)
        y = x.copy()
        y[rng.integers(n)] += 1
        for height, (score, other) in enumerate(zip(scores, deviations.tree_costs(y, sizes), strict=True)):
            assert np.abs(score - other).sum() <= 1
            runs = [tuple(x[i : i + sizes[height]].tolist()) for i in range(0, n, sizes[height])]
            assert score.tolist() == [median_cost(run) for run in runs]
        for below, above in itertools.pairwise(scores):
            assert (below <= np.repeat(above, fanout)[: below.size]).all()


@pytest.mark.parametrize("fanout", [2, 4])
def test_scores_cut_off_keep_what_the_proof_needs(fanout: int) -> None:
    """Near the largest counts, too, a node's score is at most its parent's and moves by one at most."""
    rng = np.random.default_rng(fanout)
    cut = 0
    for top in (1 << 50, 1 << 52, 1 << 53):
        for n in (7, 40, 170):
            sizes = [1]
            while sizes[-1] < n:
                sizes.append(sizes[-1] * fanout)
            x = np.where(rng.random(n) < 0.5, 0, top)
            y = x.copy()
            y[np.flatnonzero(x == 0)[0]] += 1
            before, after = deviations.tree_costs(x, sizes), deviations.tree_costs(y, sizes)
            for one, other in zip(before, after, strict=True):
                assert np.abs(one - other).sum() <= 1
            for below, above in itertools.pairwise(before):
                assert (below <= np.repeat(above, fanout)[: below.size]).all()
            runs = [tuple(x[i : i + size].tolist()) for size in sizes for i in range(0, n, size)]
            exact = [median_cost(run) for run in runs]
            cap = min((1 << 61) // (n + 1), 1 << 56)
            assert [int(v) for level in before for v in level] == [min(e, cap) for e in exact]
            cut += max(exact) > cap
    assert cut


def drawer(noise: np.ndarray) -> Callable[[int], np.ndarray]:
    at = iter(noise.tolist())
    return lambda size: np.array([next(at) for _ in range(size)], dtype=np.int64)


def slow_splits(x: tuple[int, ...], noise: np.ndarray, scale: float, fanout: int) -> list[int]:
    slack, step = constants(scale)
    size, depth, at = 1, 0, iter(noise.tolist())
    while size < len(x):
        size *= fanout
    reached, starts = [0], []
    while reached and size > 1:
        kept = []
        for lo in reached:
            score = max(splits.GRID * median_cost(x[lo : lo + size]), depth * step - slack)
            if score + next(at) >= depth * step:
                kept += range(lo, min(lo + size, len(x)), size // fanout)
            else:
                starts.append(lo)
        reached, size, depth = kept, size // fanout, depth + 1
    return sorted([*starts, *reached, len(x)])


def test_splits_are_those_of_the_slow_twin() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        n, fanout = int(rng.integers(1, 90)), int(rng.integers(2, 6))
        x = rng.integers(0, int(rng.choice([1, 10, 300])), n)
        scale = float(rng.choice([0.1, 3.0, 40.0]))
        noise = rng.integers(-int(3 * scale), int(3 * scale) + 1, 3 * n + 10)
        found = splits.noisy_splits(x, drawer(noise), scale=scale, fanout=fanout)
        assert found.tolist() == slow_splits(tuple(x.tolist()), noise, scale, fanout)


def test_roughness_moves_by_one_at_most() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        n = int(rng.integers(1, 80))
        x = rng.integers(0, 30, n)
        y = x.copy()
        y[rng.integers(n)] += 1
        score = Roughness(n, int(rng.integers(1, 300)), rng.permutation(n))
        one, other = score(x), score(y)
        assert one.size == score.size == 2
        assert abs(one[0] - other[0]) <= score.sensitivity
        assert one[1] == other[1]


@pytest.mark.parametrize(("rough", "left"), [(True, Fraction("0.99")), (False, Fraction("0.85"))])
def test_rough_counts_are_left_alone_and_save_their_budget(rough: bool, left: Fraction) -> None:
    n = 4096
    x = np.random.default_rng(5).integers(0, 100_000 if rough else 1, n)
    domain = Domain((Integers(0, n - 1),))
    curator = Curator.simulated(Counts(x, domain), epsilon=Fraction(1), seed=1)
    groups, _ = make_pipeline("dawa2", domain).values(curator, Ranges(n, [0, 5], [9, n]))
    assert curator.spent[-1].share == left
    assert sum(spent.share for spent in curator.spent) == 1
    assert (groups.k == n) == rough


@pytest.mark.parametrize(("sides", "percent", "cap"), [(False, 50, 80), (True, 27, 40)])
def test_a_grid_may_be_less_rough_where_its_cells_are_measured_with_pyramids(
    sides: bool, percent: int, cap: int
) -> None:
    domain = Domain((Integers(0, 63), Integers(0, 63)))
    step, epsilon = Splits(sides=sides), Fraction(1, 100)
    assert step._bar(domain) == percent
    checked = np.tile([[0, 1], [1, 0]], (2, 2))  # a block of 4 x 4 cells, of which 8 differ from the median
    for share, alone in ((percent - 8, False), (percent + 8, True)):
        some = np.random.default_rng(7).permutation(256) < 256 * share // 100
        each = round(share / 100 * cap / 8 / epsilon)
        # So many of the blocks are as rough as they can count, the others flat; and all are so rough.
        for blocks in (some * 10**7, np.full(256, each)):
            x = np.kron(blocks.reshape(16, 16), checked)
            curator = Curator.simulated(Counts(x, domain), epsilon=epsilon, seed=1)
            made = step(curator, None, hilbert(64, 64), share=Fraction(1, 4), later=Fraction(3, 4))
            assert (made.k == domain.n) == alone


def test_much_budget_reproduces_the_counts() -> None:
    x = np.random.default_rng(6).integers(0, 3, 1000) * (np.arange(1000) > 500)
    values = dphist.simulate(x, epsilon=1_000_000, method="dawa2", workload="ranges")
    assert np.abs(np.asarray(values[0]) - x).max() < 1e-6


def test_a_fanout_of_one_is_refused() -> None:
    curator = Curator.simulated(
        Counts(np.ones(4, dtype=np.int64), Domain((Integers(0, 3),))), epsilon=Fraction(1), seed=1
    )
    with pytest.raises(UsageError, match="fanout"):
        curator.partition_splits(share=Fraction(1), fanout=1)
    assert curator.spent == ()


@pytest.mark.parametrize("fanout", [2, 3, 4])
def test_of_bins_that_hold_records_alone_the_same_nodes_are_split(fanout):
    rng = np.random.default_rng(fanout)
    for seed in range(200):
        x = rng.integers(0, 3, int(rng.integers(1, 40))) * int(rng.integers(1, 60))
        cells = np.flatnonzero(x)
        dense, sparse = (np.random.default_rng(seed) for _ in range(2))
        wanted = splits.noisy_splits(x, lambda k, r=dense: r.integers(-3, 4, k), scale=1.0, fanout=fanout)
        found = splits.sparse_splits(
            cells, x[cells], x.size, lambda k, r=sparse: r.integers(-3, 4, k), scale=1.0, fanout=fanout
        )
        assert found.tolist() == wanted.tolist(), (x, seed)
