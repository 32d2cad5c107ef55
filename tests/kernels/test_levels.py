"""Least squares over trees of groups against dense twins; sums to the last bit; the best shares."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.errors import UsageError
from dphist.kernels import levels

RNG = np.random.default_rng(0)


def some_tree(draw, depth, tops=1):
    """Parents of every level below the top, at most four children each."""
    parents, size = [], tops
    for _ in range(depth - 1):
        parents.append(np.repeat(np.arange(size), draw.integers(1, 5, size)))
        size = parents[-1].size
    return tuple(parents)


def sizes(parents, tops):
    return [tops, *(p.size for p in parents)]


def leaves_below(parents, tops):
    """Per level a matrix that adds leaves up to nodes."""
    matrices = [np.eye(sizes(parents, tops)[-1])]
    for parent in reversed(parents):
        add = np.zeros((parent.max() + 1, parent.size))
        add[parent, np.arange(parent.size)] = 1
        matrices.insert(0, add @ matrices[0])
    return matrices


def dense(parents, tops, v, y, q):
    """Generalised least squares of the leaves' bins: estimates and their whole covariance."""
    n, matrices = len(q), leaves_below(parents, tops)
    normal, right = 0, 0
    for add, variances, rows in zip(matrices, v, y, strict=True):
        for node, (variance, row) in enumerate(zip(np.broadcast_to(variances, len(rows)), rows, strict=True)):
            if np.isfinite(variance):
                design = np.kron(add[node : node + 1], np.eye(n))
                weight = np.linalg.inv(variance * q)
                normal, right = normal + design.T @ weight @ design, right + design.T @ weight @ row
    covariance = np.linalg.inv(normal)
    return (covariance @ right).reshape(-1, n), covariance


def some_case(seed):
    draw = np.random.default_rng(seed)
    tops, depth, n = int(draw.integers(1, 4)), int(draw.integers(1, 5)), 3
    parents = some_tree(draw, depth, tops)
    counts = sizes(parents, tops)
    strategy = np.vstack([np.eye(n), draw.integers(0, 3, (4, n))])
    q = np.linalg.inv(strategy.T @ strategy)
    v = []
    for level, count in enumerate(counts):
        each = np.exp(draw.normal(0, 1.5, count))
        if level < depth - 1:  # some nodes, or whole levels, are not measured
            each[draw.random(count) < draw.choice([0, 0.3, 1])] = np.inf
        v.append(each if draw.random() < 0.7 or depth == 1 else each[0])
    y = [draw.normal(0, 100, (count, n)) for count in counts]
    return tops, parents, v, y, q


@pytest.mark.parametrize("seed", range(40))
def test_reconciling_is_dense_least_squares_for_any_strategy(seed):
    tops, parents, v, y, q = some_case(seed)
    wanted, covariance = dense(parents, tops, v, y, q)
    found = levels.reconcile(parents, v, y)
    matrices = leaves_below(parents, tops)
    assert np.abs(found[-1] - wanted).max() <= levels.GRID + 1e-9
    assert np.abs(np.cumsum(found[-1] - wanted, axis=1)).max() <= levels.GRID / 2 + 1e-9
    for add, rows in zip(matrices, found, strict=True):
        assert np.array_equal(rows, add @ found[-1])
    n = len(q)
    for add, h in zip(matrices, levels.variances(parents, v), strict=True):
        for node, each in enumerate(h):
            picked = np.kron(add[node : node + 1], np.eye(n))
            np.testing.assert_allclose(picked @ covariance @ picked.T, each * q, rtol=1e-7, atol=1e-12)
    draw = np.random.default_rng(seed)
    for weights in (draw.integers(0, 2, len(wanted)), draw.normal(size=len(wanted)), np.ones(len(wanted))):
        picked = np.kron(weights[None], np.eye(n))
        h = levels.set_variance(parents, v, weights)
        np.testing.assert_allclose(picked @ covariance @ picked.T, h * q, rtol=1e-7, atol=1e-12)


def test_bins_that_share_a_value_do_not_add_up_their_rounding():
    shared = np.full((50, 400), 0.3) + np.arange(50)[:, None] / 1000
    found = levels.on_grid(shared)
    assert np.array_equal(found * 16, np.rint(found * 16))
    assert np.abs(found - shared).max() <= levels.GRID
    sums = np.cumsum(found - shared, axis=1)
    assert np.abs(sums).max() <= levels.GRID / 2 + 1e-9  # bin by bin it would be 5
    assert np.array_equal(levels.on_grid(found), found)


def test_what_was_not_measured_is_ignored_whatever_stands_there():
    parents = (np.array([0, 0, 1]),)
    y = [np.array([[np.nan], [7.0]]), np.array([[1.0], [2.0], [3.0]])]
    with np.errstate(all="raise"):
        top, leaves = levels.reconcile(parents, [[math.inf, 1.0], 1.0], y)
    assert leaves.ravel().tolist() == [1.0, 2.0, 5.0] and top.ravel().tolist() == [3.0, 5.0]


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-3, 1.0, 1e6, 2.0**44, 2.0**52, 2.0**61]),
    st.integers(1, 4),
)
def test_totals_add_up_to_the_last_bit_in_any_order(seed, size, depth):
    draw = np.random.default_rng(seed)
    tops = int(draw.integers(1, 3))
    parents = some_tree(draw, depth, tops)
    y = [draw.normal(0, 1, (count, 5)) * size for count in sizes(parents, tops)]
    found = levels.reconcile(parents, [np.full(len(rows), 1.0 + i) for i, rows in enumerate(y)], y)
    leaves = found[-1]
    total = math.fsum(leaves.ravel())
    for rows in found:
        for _ in range(3):
            one_by_one = 0.0
            for value in draw.permutation(rows.ravel()):
                one_by_one += value
            assert one_by_one == total == rows.sum() == rows.sum(axis=0).sum() == rows.sum(axis=1).sum()
    for parent, above, below in zip(parents, found, found[1:], strict=False):
        for node in range(len(above)):
            children = draw.permutation(np.flatnonzero(parent == node))
            assert np.array_equal(np.cumsum(below[children], axis=0)[-1], above[node])
    if size <= 2.0**44:
        assert np.array_equal(leaves * 16, np.rint(leaves * 16))
    assert not np.signbit(leaves[leaves == 0]).any()


def test_one_level_and_chains():
    y = np.array([[1.26, -0.01], [3.0, 4.5]])
    (only,) = levels.reconcile((), [np.array([1.0, 2.0])], [y])
    assert only.tolist() == [[1.25, 0.0], [3.0, 4.5]]
    assert levels.set_variance((), [np.array([1.0, 2.0])], [1, 1]) == 3.0
    chain = (np.array([0]), np.array([0]))  # three measurements of one thing
    assert levels.variances(chain, [1.0, 1.0, 1.0])[0].tolist() == pytest.approx([1 / 3])
    found = levels.reconcile(chain, [1.0, 1.0, 1.0], [np.array([[v]]) for v in (3.0, 6.0, 9.0)])
    assert [float(rows[0, 0]) for rows in found] == [6.0, 6.0, 6.0]


@pytest.mark.parametrize(
    ("parents", "v", "words"),
    [
        ([[0, 1, 0]], [1, 1], "sorted"),
        ([[1, 1, 2]], [1, 1], "begin with 0"),
        ([[0, 2, 2]], [1, 1], "without children"),
        ([[]], [1, 1], "sorted"),
        ([[0, 0]], [1], "2 levels"),
        ([[0, 0], [0, 0, 0]], [1, 1, 1], "needs a child"),
        ([[0, 0]], [1, math.inf], "every leaf"),
        ([[0, 0]], [0, 1], "above 0"),
        ([[0, 0]], [1, [1, 1, 1]], "one for each"),
        ([[0, 0]], [math.nan, 1], "above 0"),
    ],
)
def test_no_tree(parents, v, words):
    with pytest.raises(UsageError, match=words):
        levels.variances([np.array(p, dtype=np.int64) for p in parents], v)


def test_rows_and_weights_must_fit():
    with pytest.raises(UsageError, match="one row"):
        levels.reconcile((np.array([0, 0]),), [1, 1], [np.zeros((1, 3)), np.zeros((3, 3))])
    with pytest.raises(UsageError, match="2 leaves and 3 weights"):
        levels.set_variance((np.array([0, 0]),), [1, 1], [1, 0, 1])


# ---- shares

EVERY = {
    "level": lambda counts: [1.0] * len(counts),
    "node": lambda counts: [c / sum(counts) for c in counts],
}
EVERY["tenth"] = lambda counts: [0.1] * (len(counts) - 1) + [1.0]
EVERY["leaves"] = lambda counts: [0.0] * (len(counts) - 1) + [1.0]
TABLE = [  # nodes, importance, best shares, their standard deviations, what cube root, even, leaves only cost
    ((1, 64), "level", (0.50, 0.50), (1.99, 1.97), (1.000, 1.000, 8.3)),
    ((1, 64), "tenth", (0.31, 0.69), (3.2, 1.43), (1.002, 1.43, 2.4)),
    ((1, 64), "node", (0.16, 0.84), (5.2, 1.19), (1.015, 2.2, 1.09)),
    ((1, 64), "leaves", (0.0, 1.0), (8, 1), (1, 3.9, 1)),
    ((1, 50, 3000), "level", (0.33, 0.33, 0.34), (3.0, 3.0, 3.0), (1.000, 1.000, 116)),
    ((1, 50, 3000), "tenth", (0.24, 0.23, 0.53), (4.1, 4.1, 1.9), (1.002, 1.53, 44)),
    ((1, 50, 3000), "node", (0.04, 0.16, 0.79), (19.5, 5.2, 1.25), (1.016, 4.2, 1.4)),
    ((1, 50, 3000), "leaves", (0, 0, 1), (55, 7.7, 1), (1, 8.9, 1)),
]


@pytest.mark.parametrize(("counts", "importance", "shares", "deviations", "ratios"), TABLE)
def test_best_shares(counts, importance, shares, deviations, ratios):
    w = EVERY[importance](counts)
    found = levels.best_shares(counts, w)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(found - shares).max() <= 0.0055  # half a unit of the last place, and the search's own error
    sd = np.sqrt(levels.even_variances(found, counts))
    np.testing.assert_allclose(sd, deviations, rtol=0.02)
    cube = np.cbrt(w) / np.cbrt(w).sum()
    leaves = np.eye(len(counts))[-1]
    others = [levels.cost(s, counts, w) for s in (cube, np.full(len(counts), 1 / len(counts)), leaves)]
    np.testing.assert_allclose(np.array(others) / levels.cost(found, counts, w), ratios, rtol=0.03)


@pytest.mark.parametrize("tops", [1, 3])
def test_cost_is_the_mean_variance_of_an_even_tree(tops):
    parents = (np.repeat(np.arange(tops), 4), np.repeat(np.arange(4 * tops), 5))
    counts = (tops, 4 * tops, 20 * tops)
    for shares in ((0.2, 0.3, 0.5), (0.0, 0.4, 0.6), (0.0, 0.0, 1.0)):
        v = [1 / s**2 if s else math.inf for s in shares]
        h = [each.mean() for each in levels.variances(parents, v)]
        np.testing.assert_allclose(levels.even_variances(shares, counts), h)
        assert levels.cost(shares, counts, (1.0, 0.5, 2.0)) == pytest.approx(np.dot(h, (1.0, 0.5, 2.0)))


@pytest.mark.parametrize(
    ("counts", "importances"),
    [((1, 5), (0.3, 1)), ((2, 9, 40), (0.1, 0, 1)), ((1, 2, 300), (1, 0.01, 0.2)), ((1, 3, 9), (0, 1, 0))],
)
def test_no_shares_on_a_grid_are_better(counts, importances):
    w = np.maximum(importances, [0.0] * (len(counts) - 1) + [1e-3 * max(importances)])
    best = levels.cost(levels.best_shares(counts, importances), counts, w)
    for parts in itertools.product(range(51), repeat=len(counts)):
        if sum(parts) == 50 and parts[-1]:
            assert best <= levels.cost([p / 50 for p in parts], counts, w) * (1 + 1e-6)


def test_shares_do_not_depend_on_the_unit_of_importance():
    one = levels.best_shares((1, 50, 3000), (0.1, 0.1, 1))
    np.testing.assert_allclose(levels.best_shares((1, 50, 3000), (1e-7, 1e-7, 1e-6)), one, atol=1e-6)
    assert levels.best_shares((7,), (0.2,)).tolist() == [1.0]
    assert levels.best_shares((1, 50), (1, 0))[-1] > 0.05  # leaves of no importance are measured all the same


@pytest.mark.parametrize(
    ("counts", "importances", "words"),
    [
        ((1, 5), (0, 0), "above 0"),
        ((1, 5), (1,), "one for each"),
        ((), (), "one for each"),
        ((1, 5), (1, -1), "0 or above"),
        ((1, 5), (1, math.nan), "0 or above"),
        ((1, 5), (1, math.inf), "0 or above"),
        (range(1, 10), [1] * 9, "at most 8"),
    ],
)
def test_importances_that_say_nothing(counts, importances, words):
    with pytest.raises(UsageError, match=words):
        levels.best_shares(counts, importances)
