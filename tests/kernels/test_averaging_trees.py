"""Averages over prunings against their plain twins, and what must hold of them for any numbers."""

import numpy as np
import pytest

import naive_pruning as naive
from dphist.errors import UsageError
from dphist.kernels.averaging import contrasts, pruned
from dphist.kernels.averaging.contrasts import averaged_contrasts
from dphist.kernels.averaging.offsets import COUNTED, Prior
from dphist.kernels.averaging.pruned import averaged_totals
from dphist.kernels.trees import tree as trees

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 21, 32)


def counts(draw, n):
    """Counts with empty stretches, level stretches and single peaks."""
    x = np.repeat(draw.integers(0, 40, n), 1 + draw.integers(0, 4, n))[:n].astype(float)
    x[draw.random(n) < 0.4] = 0.0
    x[draw.integers(0, n)] += 300.0
    return x


def covariance(draw, n, scale):
    """Of least squares from noisy bins, pairs and the total."""
    rows = [np.eye(n), np.kron(np.eye(-(-n // 2)), np.ones((1, 2)))[:, :n], np.ones((1, n))]
    design = np.concatenate(rows)
    return np.linalg.inv(design.T @ np.diag(draw.uniform(0.5, 2, len(design)) / scale**2) @ design)


def of_ranges(cov):
    sums = np.zeros((len(cov) + 1,) * 2)
    sums[1:, 1:] = cov.cumsum(axis=0).cumsum(axis=1)
    return lambda lo, hi: sums[hi, hi] - sums[lo, hi] - sums[hi, lo] + sums[lo, lo]


def noisy_tree(draw, k, *, grouped=True, missing=0.2, scale=8.0):
    """Return a tree over groups that are its nodes, their sizes, noisy totals and variances."""
    n = 4 * k
    starts = np.arange(n + 1)
    while grouped and starts.size - 1 > k:  # two neighbouring leaves become one
        tree = trees.pruned_tree(starts)
        inner = np.flatnonzero(
            (tree.left > 0) & (tree.left[tree.left] == 0) & (tree.left[tree.left + 1] == 0)
        )
        starts = np.delete(starts, tree.hi[tree.left[draw.choice(inner)]])
    tree = trees.pruned_tree(starts)
    sizes = np.diff(starts)
    below = np.concatenate(([0], np.cumsum(counts(draw, n))))
    exact = below[starts[tree.hi]] - below[starts[tree.lo]]
    variance = scale**2 * draw.uniform(0.3, 3, tree.size)
    variance[draw.random(tree.size) < missing] = np.inf
    variance[tree.leaf[0]] = scale**2
    noise = draw.normal(0, 1, tree.size) * np.sqrt(np.where(np.isfinite(variance), variance, 0))
    return tree, sizes, exact + noise, variance


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [0.3, 5.0, 100.0])
def test_contrasts_equal_their_twin(n, scale):
    draw = np.random.default_rng(n)
    cov = covariance(draw, n, scale)
    x = draw.multivariate_normal(counts(draw, n), cov)
    found, wanted = averaged_contrasts(x, of_ranges(cov)), naive.contrasts(x, cov)
    assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * abs(x).max())


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("scale", [0.3, 5.0, 100.0])
def test_trees_equal_their_twin(k, scale):
    draw = np.random.default_rng(k)
    for missing, grouped in ((0.0, True), (0.3, True), (0.3, False)):  # of single bins, half are pairs
        given = noisy_tree(draw, k, grouped=grouped, missing=missing, scale=scale)
        found, wanted = averaged_totals(*given), naive.pruned(*given)
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * wanted.max() + 1e-12)


def test_two_groups_alone_equal_their_twin():
    given = trees.make_tree(2), np.array([1, 1]), np.array([9.0, 7.0, 1.0]), np.array([2.0, 3.0, 4.0])
    assert np.allclose(averaged_totals(*given), naive.pruned(*given), rtol=1e-9)


def test_what_stands_at_a_node_without_a_measurement_is_not_looked_at():
    tree, sizes, noisy, variance = noisy_tree(np.random.default_rng(7), 40, grouped=False, missing=0.5)
    made = averaged_totals(tree, sizes, noisy, variance)
    for rest in (1e200, np.nan):
        other = np.where(np.isfinite(variance), noisy, rest)
        assert averaged_totals(tree, sizes, other, variance).tobytes() == made.tobytes()


def test_totals_without_noise_are_what_they_are():
    """The variance of very narrow noise is 0 as a number of double precision."""
    tree, exact = trees.make_tree(16), counts(np.random.default_rng(8), 16)
    below = np.concatenate(([0.0], np.cumsum(exact)))
    noisy = below[tree.hi] - below[tree.lo]
    assert np.allclose(averaged_totals(tree, np.ones(16, int), noisy, np.zeros(tree.size)), exact)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_blocks_of_any_size_give_the_same_numbers(monkeypatch, grouped, missing):
    given = noisy_tree(np.random.default_rng(5), 60, grouped=grouped, missing=missing)
    whole = averaged_totals(*given)
    for size, few in (
        (1, 0),
        (2, 1000),
        (7, 0),
        (64, 1000),
    ):  # with pairs of leaves kept, or worked out again
        monkeypatch.setattr(pruned, "_BLOCK", size)
        monkeypatch.setattr(pruned, "_FEW", few)
        assert averaged_totals(*given).tobytes() == whole.tobytes()


def test_totals_are_gathered_with_the_law_of_their_noise():
    """Whole numbers with scales give what their variances give, whether these differ or not."""
    draw = np.random.default_rng(6)
    tree, sizes, noisy, variance = noisy_tree(draw, 40)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    whole = np.rint(noisy).astype(np.int64)
    mixed = np.full(tree.size, 3.0)
    mixed[tree.leaf[1:-1]] = 5.0  # the first and the last are as one, and those between are not
    for scale in (np.sqrt(variance), np.where(tree.left == 0, 3.0, np.inf), mixed, np.full(tree.size, 3.0)):
        found = pruned.averaged(pruned.gathered(tree, starts, whole, scale, np.square))
        wanted = naive.pruned(tree, sizes, whole.astype(float), scale**2)
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * wanted.max() + 1e-12)
        assert found.tobytes() == averaged_totals(tree, sizes, whole.astype(float), scale**2).tobytes()


def test_one_variance_stands_for_many():
    tree = trees.make_tree(8)
    given = pruned.gathered(tree, np.arange(9), np.ones(15), np.where(tree.left == 0, 2.0, np.inf))
    assert [var.size for _, var in (given.leaf, given.inner, given.pair)] == [1, 0, 0]
    assert (given.lo.size, given.flags.tolist()) == (3, [0, 3, 3])  # the root and its halves, of two pairs


EXTREMES = [(1, 1e-100), (2.0**50, 1e-100), (2.0**53, 1e9), (5.0, 1e9), (0.0, 1.0), (2.0**50, 1.0)]


@pytest.mark.parametrize("n", [1, 2, 3, 64])
@pytest.mark.parametrize(("height", "scale"), EXTREMES)
def test_any_numbers_give_finite_counts_that_are_not_negative(n, height, scale):
    draw = np.random.default_rng(n)
    for x in (np.full(n, height), np.where(np.arange(n) % 3 == 0, height, 0.0)):
        noise = draw.normal(0, scale, n)
        found = averaged_contrasts(x + noise, lambda lo, hi: (hi - lo) * scale**2)
        assert np.isfinite(found).all() and (found >= 0).all()
        tree, ones = trees.make_tree(n), np.ones(n, dtype=np.int64)
        below = np.concatenate(([0.0], np.cumsum(x)))
        noisy = below[tree.hi] - below[tree.lo] + draw.normal(0, scale, tree.size)
        totals = averaged_totals(tree, ones, noisy, np.full(tree.size, scale**2))
        assert np.isfinite(totals).all() and (totals >= 0).all()
        if scale < 1e-9:
            assert max(np.abs(found - x).max(), np.abs(totals - x).max()) <= 1e-12 * height


def test_the_same_numbers_give_the_same_result():
    draw = np.random.default_rng(1)
    x = draw.normal(10, 5, 100)
    one, two = (averaged_contrasts(x, lambda lo, hi: (hi - lo) * 25.0) for _ in range(2))
    assert np.array_equal(one, two)
    given = noisy_tree(draw, 20)
    assert np.array_equal(averaged_totals(*given), averaged_totals(*given))


@pytest.mark.parametrize("kind", ["empty", "level", "jagged"])
def test_averages_are_nearer_to_the_truth_than_least_squares(kind):
    """Much nearer where bins are empty or alike, and about as near where they are not."""
    draw, n = np.random.default_rng(7), 256
    x = {"empty": np.zeros(n), "level": np.full(n, 5.0), "jagged": draw.lognormal(6, 1, n)}[kind]
    x[3] += 1000.0
    most = {"empty": 0.3, "level": 0.4, "jagged": 1.02}[kind]
    tree, ones = trees.make_tree(n), np.ones(n, dtype=np.int64)
    below = np.concatenate(([0.0], np.cumsum(x)))
    before, after, fitted, averaged = [], [], [], []
    for _ in range(20):
        noisy = x + draw.normal(0, 10, n)
        before.append(noisy - x)
        after.append(averaged_contrasts(noisy, lambda lo, hi: (hi - lo) * 100.0) - x)
        totals = below[tree.hi] - below[tree.lo] + draw.normal(0, 10, tree.size)
        variance = np.full(tree.size, 100.0)
        fitted.append(trees.least_squares(tree, totals, variance) - x)
        averaged.append(averaged_totals(tree, ones, totals, variance) - x)
    assert np.abs(after).mean() < most * np.abs(before).mean()
    assert np.abs(averaged).mean() < most * np.abs(fitted).mean()


def test_what_cannot_be_averaged_is_refused():
    tree = trees.make_tree(4)
    ones, sizes = np.ones(tree.size), np.ones(4, dtype=np.int64)
    for noisy, given in ((ones[:3], sizes), (np.where(ones > 0, np.nan, 0), sizes), (ones, sizes[:2])):
        with pytest.raises(UsageError, match="finite noisy total"):
            averaged_totals(tree, given, noisy, ones)
    for x in (np.empty(0), np.array([1.0, np.inf]), np.ones((2, 2))):
        with pytest.raises(UsageError, match="finite estimates"):
            averaged_contrasts(x, lambda lo, hi: (hi - lo) * 1.0)


def test_a_tree_without_measurements_says_nothing():
    tree = trees.make_tree(3)
    nothing = averaged_totals(
        tree, np.ones(3, dtype=np.int64), np.zeros(tree.size), np.full(tree.size, np.inf)
    )
    assert nothing.tolist() == [0, 0, 0]


def test_the_prior_of_many_bins_is_learnt_from_blocks_of_them(monkeypatch):
    rng = np.random.default_rng(8)
    block = np.where(np.arange(64) < 20, 200.0, 0.0) + rng.normal(0, 3, 64)
    whole = np.full(10, 9.0)
    monkeypatch.setattr(contrasts, "_BLOCK", 64)
    monkeypatch.setattr(contrasts, "_BLOCKS", 4)
    four = contrasts._from_blocks(np.tile(block, 4), whole)
    monkeypatch.setattr(contrasts, "_BLOCKS", 1)
    one = contrasts._from_blocks(np.concatenate((block, np.zeros(192))), whole)
    # Four alike blocks count four times as much as one beside what is believed before.
    assert np.abs(four.mixture - one.mixture).max() > 1e-4
    assert np.abs(four.mixture - one.mixture)[:6].max() < 0.1
    assert np.allclose(four.mixture.sum(axis=1), 1.0)
    assert (four.mixture[7:] == four.mixture[-1]).all()  # nothing is learnt of nodes larger than a block


@pytest.mark.parametrize("n", [1, 2, 3, 8, 77, 1000])
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_pairs_of_many_bins_are_worked_out_again_to_the_same_numbers(monkeypatch, n, shift):
    draw = np.random.default_rng(n + shift)
    sums, scales = (np.concatenate(([0.0], np.cumsum(counts(draw, n) + draw.normal(0, 4, n)))) for _ in "ab")
    whole, (edges,) = contrasts.contrast_variances(n, [shift], lambda lo, hi: (hi - lo) * 16.0)
    prior, found = Prior.first(whole.size), []
    for many in (1 << 17, 0):
        monkeypatch.setattr(contrasts, "_MANY", many)
        counted = np.zeros((whole.size, COUNTED))
        made = contrasts._averaged_tree(sums, scales, shift, whole, edges, prior, counted)
        found.append((made.tobytes(), counted.tobytes()))
    assert found[0] == found[1]


def test_many_bins_gain_by_averaging_too():
    rng, n = np.random.default_rng(9), (1 << 17) + 5
    truth = np.where(np.arange(n) // 1000 % 2 == 0, 40.0, 0.0)
    noisy = truth + rng.laplace(0, 5, n)
    made = averaged_contrasts(noisy, lambda lo, hi: (hi - lo) * 50.0)
    few = averaged_contrasts(noisy[:4096], lambda lo, hi: (hi - lo) * 50.0)
    plain = np.abs(noisy - truth).mean()
    assert np.abs(made - truth).mean() < 0.4 * plain  # one tree instead of eight
    assert np.abs(few - truth[:4096]).mean() < 0.3 * plain
    assert made.sum() == pytest.approx(noisy.sum(), rel=1e-4)


def test_inner_loops_of_prunings_are_compiled_once(monkeypatch):
    """Those that call them are compiled here: what is read from disk leaves no trace of inner loops."""
    from numba import njit

    for name in ("_rise", "_fall"):
        monkeypatch.setattr(pruned, name, njit(getattr(pruned, name).py_func))
    averaged_totals(*noisy_tree(np.random.default_rng(1), 16, grouped=False))
    assert len(pruned._part.signatures) == len(pruned._variance.signatures) == 1
    assert len(pruned._left.signatures) == len(pruned._leaf.signatures) == 1
