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
from dphist.kernels.partition.node_sizes import checked_trees, node_sizes
from dphist.methods.catalogue import make_pipeline
from dphist.privacy import splits
from dphist.privacy.counts import Counts, SparseCounts
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


def top(n: int, fanout: int, blocks: int) -> int:
    """Return how many bins the tops have: the largest power of 2 of which there are enough, or all bins."""
    size = 1
    if blocks == 1:
        while size < n:
            size *= fanout
        return size
    while -(-n // (2 * size)) >= blocks:
        size *= 2
    return size


def together(parts: list[Law]) -> Law:
    """Return the law of independent outcomes side by side."""
    found: Law = {}
    for combined in itertools.product(*(part.items() for part in parts)):
        starts = tuple(s for key, _ in combined for s in key)
        found[starts] = found.get(starts, 0.0) + math.prod(p for _, p in combined)
    return found


def exact_law(x: tuple[int, ...], scale: float, fanout: int, step: int | None = None, blocks: int = 1) -> Law:
    """Return the probability of every outcome, which is written as the starts of its groups."""
    slack, usual = constants(scale)
    step = usual if step is None else step
    first = slack if blocks > 1 else 0
    a = math.exp(-1 / scale)

    def node(lo: int, size: int, depth: int) -> Law:
        hi = min(lo + size, len(x))
        if size == 1:
            return {(lo,): 1.0}
        g = max(splits.GRID * median_cost(x[lo:hi]) - first - depth * step, -slack)
        split = 1 - a ** (g + 1) / (1 + a) if g >= 0 else a**-g / (1 + a)
        stay = a ** (g + 1) / (1 + a) if g >= 0 else 1 - a**-g / (1 + a)
        below = max(size // fanout, 1)
        found: Law = {(lo,): stay}
        for starts, chance in together([node(c, below, depth + 1) for c in range(lo, hi, below)]).items():
            found[starts] = found.get(starts, 0.0) + split * chance
        return found

    size = top(len(x), fanout, blocks)
    return together([node(lo, size, 0) for lo in range(0, len(x), size)])


def loss(
    x: tuple[int, ...], p: int, scale: float, step: int | None = None, blocks: int = 1, records: int = 1
) -> float:
    more = tuple(v + records * (i == p) for i, v in enumerate(x))
    one, other = (exact_law(y, scale, 2, step, blocks) for y in (x, more))
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


@pytest.mark.parametrize("records", [1, 3])
def test_no_neighbours_are_told_apart_by_several_trees(records: int) -> None:
    epsilon = 1.0
    rng = np.random.default_rng(records)
    cases = [
        tuple(rng.integers(0, high, n).tolist())
        for n in (2, 4, 6, 8)
        for high in (2, 9, 60)
        for _ in range(6)
    ]
    cases += [(h, 0, 0, 0, 0, 0, 0, 0) for h in range(0, 90, 3)]
    scale = 6 * records / epsilon
    worst = max(loss(x, p, scale, blocks=2, records=records) for x in cases for p in range(len(x)))
    assert 0.5 * epsilon < worst <= epsilon


@pytest.mark.parametrize("records", [1, 2])
def test_several_trees_have_the_law_of_the_proof(records: int) -> None:
    x, drawn = (5, 0, 0, 9, 2, 2, 7), 3_000
    held = Counts(np.array(x), Domain((Integers(0, 6),)), records)
    law = exact_law(x, 6.0 * records / 1.5, 2, blocks=3)
    assert len(law) > 3 and all({0, 2, 4, 6} <= set(starts) for starts in law)
    found = dict.fromkeys(law, 0)
    for seed in range(drawn):
        curator = Curator.simulated(held, epsilon=Fraction(3, 2), seed=seed)
        groups = curator.partition_splits(share=Fraction(1), fanout=2, blocks=3)
        found[tuple(groups.starts[:-1].tolist())] += 1
    for starts, chance in law.items():
        assert abs(found[starts] - drawn * chance) < 5 * math.sqrt(drawn * chance * (1 - chance)) + 1


@pytest.mark.parametrize(
    ("kind", "fanout", "sizes"),
    [
        ("dense", 4, [1, 2, 8]),
        ("sparse", 2, [1, 2, 4, 8]),
        ("ordered", 4, [1, 2, 8]),
        ("sparse and ordered", 4, [1, 2, 8]),
    ],
)
def test_higher_trees_have_the_law_of_the_proof_however_bins_are_held(
    kind: str, fanout: int, sizes: list[int]
) -> None:
    """Every node has a draw of its own, and every level its threshold, the last of 2 to 1 too."""
    x, drawn = np.array((4, 0, 0, 1, 0, 0, 0, 5, 3, 0, 0, 0, 0, 0, 0, 0, 7)), 2_000
    law = exact_law(tuple(x.tolist()), 4.0, fanout, blocks=3)
    assert node_sizes(x.size, fanout, 3) == sizes and max(law.values()) < 0.3
    order = np.random.default_rng(7).permutation(x.size) if "ordered" in kind else None
    y = x if order is None else x[np.argsort(order)]
    held: Counts | SparseCounts = Counts(y, Domain((Integers(0, x.size - 1),)))
    if "sparse" in kind:
        held = SparseCounts(*held.held(), held.domain, 1, held.unit)
    found = dict.fromkeys(law, 0)
    for seed in range(drawn):
        curator = Curator.simulated(held, epsilon=Fraction(3), seed=seed)
        groups = curator.partition_splits(share=Fraction(1, 2), order=order, fanout=fanout, blocks=3)
        assert order is None or np.array_equal(groups.order, order)
        found[tuple(groups.starts[:-1].tolist())] += 1
    for starts, chance in law.items():
        assert abs(found[starts] - drawn * chance) < 5 * math.sqrt(drawn * chance * (1 - chance)) + 1
    # Draws that nodes share put many outcomes off by a little each.
    squares = sum((found[s] - drawn * c) ** 2 / (drawn * c) for s, c in law.items() if drawn * c > 5)
    assert squares < 2 * sum(drawn * c > 5 for c in law.values())


def test_level_thresholds_would_be_caught() -> None:
    assert max(loss((h, *[0] * 7), 0, 12.0, step=0) for h in range(0, 60, 2)) > 0.5


def test_proof_constants() -> None:
    q = math.exp(-1.25)
    series = sum(q ** (2 * i - 1) / (2 - q ** (2 * i - 1)) for i in range(1, 50))
    assert splits.GRID * (1 + series) < splits.GRID * 1.181 < splits.SENSITIVITY


def test_scores_move_by_one_at_most_and_never_rise_downwards() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        n, fanout, blocks = int(rng.integers(1, 70)), int(rng.integers(2, 6)), int(rng.integers(1, 9))
        x = rng.integers(0, int(rng.choice([2, 10, 1000])), n)
        sizes = node_sizes(n, fanout if blocks == 1 else 4, blocks)
        scores = deviations.tree_costs(x, sizes)
        y = x.copy()
        y[rng.integers(n)] += 1
        for height, (score, other) in enumerate(zip(scores, deviations.tree_costs(y, sizes), strict=True)):
            assert np.abs(score - other).sum() <= 1
            runs = [tuple(x[i : i + sizes[height]].tolist()) for i in range(0, n, sizes[height])]
            assert score.tolist() == [median_cost(run) for run in runs]
        for height, (below, above) in enumerate(itertools.pairwise(scores)):
            parts, left = divmod(sizes[height + 1], sizes[height])
            assert left == 0 and (below <= np.repeat(above, parts)[: below.size]).all()


@pytest.mark.parametrize("blocks", [2, 3, 5, 8])
@pytest.mark.parametrize("fanout", [2, 4, 8])
def test_several_trees_are_of_equal_size_and_nearly_as_many_as_asked_for(fanout: int, blocks: int) -> None:
    for n in range(1, 300):
        sizes = node_sizes(n, fanout, blocks)
        assert sizes[0] == 1 and sizes[-1] == top(n, fanout, blocks)
        trees = -(-n // sizes[-1])
        assert trees == n if n <= blocks else blocks <= trees < 2 * blocks
        assert all(one * fanout == two for one, two in itertools.pairwise(sizes[1:]))
        assert len(sizes) == 1 or 1 < sizes[1] <= fanout


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


def slow_splits(
    x: tuple[int, ...], noise: np.ndarray, scale: float, fanout: int, blocks: int = 1
) -> list[int]:
    slack, step = constants(scale)
    size, at = top(len(x), fanout, blocks), iter(noise.tolist())
    threshold = slack if blocks > 1 else 0
    reached, starts = list(range(0, len(x), size)), []
    while reached and size > 1:
        kept, below = [], max(size // fanout, 1)
        for lo in reached:
            score = max(splits.GRID * median_cost(x[lo : lo + size]), threshold - slack)
            if score + next(at) >= threshold:
                kept += range(lo, min(lo + size, len(x)), below)
            else:
                starts.append(lo)
        reached, size, threshold = kept, below, threshold + step
    return sorted([*starts, *reached, len(x)])


def test_splits_are_those_of_the_slow_twin() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        n, fanout = int(rng.integers(1, 90)), int(rng.integers(2, 6))
        x = rng.integers(0, int(rng.choice([1, 10, 300])), n)
        scale = float(rng.choice([0.1, 3.0, 40.0]))
        noise = rng.integers(-int(3 * scale), int(3 * scale) + 1, 3 * n + 10)
        blocks = int(rng.integers(1, 7)) if fanout in (2, 4) else 1
        found = splits.noisy_splits(x, drawer(noise), scale=scale, fanout=fanout, blocks=blocks)
        assert found.tolist() == slow_splits(tuple(x.tolist()), noise, scale, fanout, blocks)


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
        assert (np.abs(one - other) <= score.sensitivity).all()
        # What is left of blocks of 16 is not looked at.
        bar = score.percent * max(n // 16, 1) * score.cap // 100
        assert one.sum() == other.sum() == 2 * bar


def nested(totals: list[int]) -> int:
    """Return the roughness of one block of runs, level by level."""
    found, many = 0, len(totals)
    times = 1
    while many // times >= 4:
        each = many // times
        parts = [totals[at : at + each] for at in range(0, times * each, each)]
        quarters = [[sum(one[q * each // 4 : (q + 1) * each // 4]) for q in range(4)] for one in parts]
        rough = sum(sum(abs(a - sorted(four)[2]) for a in four) for four in quarters)
        found, times = max(found, rough // times), 4 * times
    return found


def test_roughness_of_runs_is_that_of_their_totals() -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        n, block = int(rng.integers(70, 300)), int(rng.choice([4, 16, 64]))
        starts = np.append(np.sort(rng.permutation(n - 1)[: rng.integers(block, n - 1)]) + 1, n)
        starts = np.append(0, starts)
        x, order, cap = rng.integers(0, 30, n), rng.permutation(n), int(rng.integers(1, 200))
        totals = [sum(x[order][a:b].tolist()) for a, b in itertools.pairwise(starts.tolist())]
        blocks = [totals[at : at + block] for at in range(0, len(totals) - block + 1, block)]
        rough = [min(nested(some), cap) for some in blocks]
        score = Roughness(n, cap, order, 30, starts, block)
        bar = 30 * len(blocks) * cap // 100
        assert score(x).tolist() == [sum(rough), 2 * bar - sum(rough)]
        y = x.copy()
        y[rng.integers(n)] += 1
        assert (np.abs(score(y) - score(x)) <= score.sensitivity).all()


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


@pytest.mark.parametrize(
    ("fanout", "blocks", "match"),
    [
        (1, 1, "fanout"),
        (1 << 40, 1, "from 2 to 65536"),
        (4, 0, "1 or more blocks"),
        (3, 2, "2, 4, 8"),
        (6, 5, "2, 4, 8"),
    ],
)
def test_what_are_no_trees_is_refused_and_costs_nothing(fanout: int, blocks: int, match: str) -> None:
    curator = Curator.simulated(
        Counts(np.ones(4, dtype=np.int64), Domain((Integers(0, 3),))), epsilon=Fraction(1), seed=1
    )
    with pytest.raises(UsageError, match=match):
        curator.partition_splits(share=Fraction(1), fanout=fanout, blocks=blocks)
    assert curator.spent == ()
    with pytest.raises(UsageError, match=match):
        Splits(fanout=fanout, blocks=blocks)


def test_the_largest_fanout_is_allowed() -> None:
    assert checked_trees(1 << 16, 1) == (1 << 16, 1)
    with pytest.raises(UsageError, match="from 2 to 65536"):
        checked_trees((1 << 16) + 1, 1)


@pytest.mark.parametrize(
    ("epsilon", "given", "match"),
    [
        (Fraction(1, 10**12), {"blocks": 5}, "epsilon is too small"),
        (Fraction(1), {"blocks": 2.5}, "number of blocks"),
        (Fraction(1), {"blocks": True}, "number of blocks"),
        (Fraction(1), {"fanout": 4.0}, "fanout"),
    ],
)
def test_splits_that_cannot_be_drawn_are_refused_before_anything_is_taken(epsilon, given, match) -> None:
    curator = Curator.simulated(
        Counts(np.ones(40, dtype=np.int64), Domain((Integers(0, 39),))), epsilon=epsilon, seed=1
    )
    with pytest.raises(UsageError, match=match):
        curator.partition_splits(share=Fraction(1), **given)
    assert curator.spent == ()


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_top_may_be_longer_than_whole_numbers_of_64_bits(blocks: int) -> None:
    n, none = (1 << 62) + 1, np.zeros(0, dtype=np.int64)
    found = splits.sparse_splits(none, none, n, lambda k: np.full(k, -1), scale=1.0, fanout=4, blocks=blocks)
    assert found.tolist() == [*range(0, n, n if blocks == 1 else 1 << 60), n]


@pytest.mark.parametrize("fanout", [2, 3, 4])
def test_of_bins_that_hold_records_alone_the_same_nodes_are_split(fanout):
    rng = np.random.default_rng(fanout)
    for seed in range(200):
        x = rng.integers(0, 3, int(rng.integers(1, 40))) * int(rng.integers(1, 60))
        cells = np.flatnonzero(x)
        dense, sparse = (np.random.default_rng(seed) for _ in range(2))
        trees = {"scale": 1.0, "fanout": fanout, "blocks": 1 if fanout == 3 else 1 + seed % 4}
        wanted = splits.noisy_splits(x, lambda k, r=dense: r.integers(-3, 4, k), **trees)
        found = splits.sparse_splits(
            cells, x[cells], x.size, lambda k, r=sparse: r.integers(-3, 4, k), **trees
        )
        assert found.tolist() == wanted.tolist(), (x, seed)
