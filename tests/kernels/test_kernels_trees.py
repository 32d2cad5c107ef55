"""Trees, their tuning and hats against dense twins."""

import itertools
import math
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

import naive_trees as naive
from dphist.errors import UsageError
from dphist.kernels.trees import (
    budget,
    hat_rules,
    hats_fit,
    hats_ranges,
    located,
    pyramids,
    tuning,
    tuning_closed,
    variances,
)
from dphist.kernels.trees import hats as hat
from dphist.kernels.trees import tree as trees

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 33, 48)
CLOSED = ("all-ranges", "prefixes")


def some_tree(draw, k=None):
    k = int(draw.choice(SIZES)) if k is None else k
    return trees.make_tree(k, int(draw.choice([2, 2, 3, 4, 5, 16])))


def some_queries(draw, n):
    """Listed ranges of every sort: random, repeated, nested, single bins, prefixes, suffixes, everything."""
    m = int(draw.integers(1, 30))
    ends = np.sort(np.stack([draw.integers(0, n, m), draw.integers(0, n, m)]), axis=0)
    lo, hi = ends[0], ends[1] + 1
    sort = draw.integers(0, 6)
    if sort == 0:
        lo = np.zeros_like(lo)
    elif sort == 1:
        hi = np.full_like(hi, n)
    elif sort == 2:
        lo, hi = np.repeat(lo, 3), np.repeat(hi, 3)
    elif sort == 3:
        depth = np.arange((n + 1) // 2)
        lo, hi = depth, n - depth
    elif sort == 4 and n > 1:
        lo, hi = np.array([0, 0, 1]), np.array([n, n, n])
    return lo.astype(np.int64), hi.astype(np.int64)


def some_variance(draw, tree, missing):
    v = np.exp(draw.normal(0, 2, tree.size))
    v[~tree.measured] = np.inf
    v[draw.random(tree.size) < missing] = np.inf
    return v


def shares_of(tree, weights):
    rest, share = np.ones(tree.size), np.zeros(tree.size)
    for q in range(tree.size):
        budget = rest[tree.parent[q]] if q else 1.0
        share[q] = weights[q] / budget if budget > 0 else 0.0
        rest[q] = budget - weights[q]
    return share


# ---- shape


@pytest.mark.parametrize("t", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("k", SIZES)
def test_measured_nodes_are_those_of_the_paper(k, t):
    tree = trees.make_tree(k, t)
    assert tree.size == 2 * k - 1
    expected = naive.level_nodes(k, t)
    real = {(int(a), int(b)): int(h) for a, b, h in zip(tree.lo, tree.hi, tree.height, strict=True)}
    found = [(int(a), int(b)) for a, b in zip(tree.lo[tree.measured], tree.hi[tree.measured], strict=True)]
    assert sorted(found) == sorted(expected)
    assert all(real[node] == level for node, level in expected.items())
    assert (tree.hi[tree.leaf] - tree.lo[tree.leaf] == 1).all()
    assert np.array_equal(tree.lo[tree.leaf], np.arange(k))
    inner = np.flatnonzero(tree.left)
    left = tree.left[inner]
    assert (
        (left > inner).all() and (tree.parent[left] == inner).all() and (tree.parent[left + 1] == inner).all()
    )
    assert np.array_equal(tree.lo[left], tree.lo[inner]) and np.array_equal(tree.hi[left + 1], tree.hi[inner])
    assert np.array_equal(tree.hi[left], tree.lo[left + 1])


def test_pruned_tree_stops_at_its_groups():
    tree = trees.pruned_tree(np.array([0, 4, 5, 6, 7, 8, 12, 14]), 4)
    found = {(int(a), int(b)) for a, b in zip(tree.lo[tree.measured], tree.hi[tree.measured], strict=True)}
    assert found == {(i, i + 1) for i in range(7)} | {(0, 7), (1, 5)}
    weights = trees.level_weights(tree)  # three levels of a tree over 14 bins; a pruned group has the rest
    assert np.allclose(weights[tree.leaf], [2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    with pytest.raises(UsageError, match="not a node"):
        trees.pruned_tree(np.array([0, 3, 8]), 2)


@pytest.mark.parametrize("k", SIZES)
def test_level_weights_use_the_whole_budget_of_every_path(k):
    for t, ratio, root in ((2, 1.0, True), (4, 2 ** (1 / 3), False), (16, 0.5, True)):
        tree = trees.make_tree(k, t)
        weights = trees.level_weights(tree, ratio=ratio, root=root)
        assert np.allclose(naive.node_matrix(tree.lo, tree.hi, k).T @ weights, 1.0)
        assert not weights[~tree.measured].any() and (root or k == 1 or weights[0] == 0)


# ---- exact parts


@pytest.mark.parametrize("seed", range(20))
def test_parts_never_add_up_to_more_than_the_whole(seed):
    draw = np.random.default_rng(seed)
    tree = some_tree(draw)
    weights = np.where(tree.measured, draw.random(tree.size) ** 6, 0.0)
    over = naive.node_matrix(tree.lo, tree.hi, tree.k)
    weights /= (over.T @ weights).max() / (1 + 3e-7 * (seed % 2))  # a little too much, as rounding may be
    for whole in (1, 7, 1000, trees.WHOLE):
        parts = trees.integer_parts(weights, lo=tree.lo, hi=tree.hi, k=tree.k, whole=whole)
        assert max(int(column) for column in over.T.astype(int) @ parts) <= whole
        assert (parts <= weights * whole + 1e-9).all()
        assert (parts >= weights * whole * (1 - 4e-7) - 1.001).all()


def test_parts_refuse_what_is_no_budget():
    tree = trees.make_tree(4)
    for wrong in (np.full(7, 0.5), np.full(7, -0.1), np.full(7, np.nan), np.full(6, 0.1)):
        with pytest.raises(UsageError):
            trees.integer_parts(wrong, lo=tree.lo, hi=tree.hi, k=4)


# ---- least squares and its variances


@pytest.mark.parametrize("seed", range(60))
def test_least_squares_and_all_variances_agree_with_dense_matrices(seed):
    draw = np.random.default_rng(seed)
    tree = some_tree(draw)
    variance = some_variance(draw, tree, missing=(0.0, 0.3, 0.8)[seed % 3])
    y = draw.normal(0, 100, tree.size)
    x, covariance, open_ = naive.fit(naive.node_matrix(tree.lo, tree.hi, tree.k), y, variance)
    y[np.isinf(variance)] = np.nan  # must not be looked at
    assert np.allclose(trees.least_squares(tree, y, variance), x, rtol=1e-8, atol=1e-8)

    error = variances.tree_error(tree, variance)
    each = variances.group_variances(error)
    lost = (abs(open_) > 1e-9).any(axis=0)
    assert np.array_equal(np.isinf(each), lost)
    assert np.allclose(each[~lost], np.diag(covariance)[~lost], rtol=1e-8)

    widths = draw.integers(1, 4, tree.k)
    lo, hi = naive.query_list(widths, "all-ranges")
    w = naive.query_matrix(widths, "all-ranges")
    dense = np.einsum("ij,jk,ik->i", w, covariance, w)
    lost = (abs(w @ open_) > 1e-8).any(axis=1)
    starts = variances.edges(widths)
    found = variances.range_variances(error, variances.positions(starts, lo), variances.positions(starts, hi))
    assert np.array_equal(np.isinf(found), lost)
    assert np.allclose(found[~lost], dense[~lost], rtol=1e-8)
    for queries in (*CLOSED, "points", some_queries(draw, int(widths.sum()))):
        w = naive.query_matrix(widths, queries)
        total = variances.total_variance(error, widths, queries)
        if (abs(w @ open_) > 1e-8).any():
            assert np.isinf(total)
        else:
            assert np.isclose(total, np.trace(w @ covariance @ w.T), rtol=1e-8)


def test_noise_free_measurements_are_reproduced():
    tree = trees.make_tree(13, 3)
    x = np.arange(13.0) ** 2
    y = naive.node_matrix(tree.lo, tree.hi, 13) @ x
    for variance in (np.zeros(tree.size), np.full(tree.size, 5e-324), np.full(tree.size, 1e300)):
        assert np.allclose(trees.least_squares(tree, y, variance), x)
        assert (variances.group_variances(variances.tree_error(tree, variance)) >= 0).all()
    exact = variances.tree_error(tree, np.zeros(tree.size))
    assert variances.total_variance(exact, np.ones(13, int), "all-ranges") == 0


def test_a_large_tree_solves_the_normal_equations():
    draw = np.random.default_rng(8)
    k = 70_000
    tree = trees.make_tree(k, 3)
    variance = some_variance(draw, tree, missing=0.2)
    variance[tree.leaf] = 1.0
    y = draw.normal(0, 1e3, tree.size)
    sums = np.concatenate([[0], np.cumsum(trees.least_squares(tree, y, variance))])
    residual = (sums[tree.hi] - sums[tree.lo] - y) / variance
    gradient = np.zeros(k + 1)
    np.add.at(gradient, tree.lo, residual)
    np.subtract.at(gradient, tree.hi, residual)
    assert abs(np.cumsum(gradient)[:-1]).max() < 1e-6 * abs(residual).max()


def test_wrong_input_is_refused():
    tree = trees.make_tree(4)
    error = variances.tree_error(tree, np.ones(7))
    ones = np.ones(4, int)
    for wrong in (
        lambda: trees.make_tree(0),
        lambda: trees.make_tree(4, 1),
        lambda: trees.level_weights(tree, ratio=0.0),
        lambda: trees.least_squares(tree, np.ones(6), np.ones(7)),
        lambda: trees.least_squares(tree, np.full(7, np.nan), np.ones(7)),
        lambda: trees.least_squares(tree, np.ones(7), np.full(7, -1.0)),
        lambda: variances.range_variances(error, [2.0], [1.0]),
        lambda: variances.range_variances(error, [0.0], [4.5]),
        lambda: variances.total_variance(error, np.ones(3, int), "points"),
        lambda: variances.total_variance(error, ones * 0, "points"),
        lambda: variances.total_variance(error, ones, "prefix"),
        lambda: tuning.greedy_weights(tree, ones, (np.array([2]), np.array([2]))),
        lambda: tuning.greedy_weights(tree, ones, (np.array([0]), np.array([5]))),
        lambda: tuning.greedy_weights(tree, ones, (np.array([]), np.array([]))),
        lambda: tuning.tuned_weights(tree, ones, (np.array([0.5]), np.array([1.5]))),
        lambda: tuning.tuned_weights(tree, ones, "all-ranges", reserve=1.0),
    ):
        with pytest.raises(UsageError):
            wrong()


# ---- greedy shares


def check_greedy(draw, tree, widths, queries, *, decay):
    """Objective and choice of every node against dense matrices; returns how many nodes were measured."""
    w = naive.query_matrix(widths, queries)
    passes = tuning.Passes.over(tree, widths, queries, decay=decay, collapse=False)
    share = np.empty(tree.size)
    passes.rise(share, budget.GREEDY)
    weights = tuning.greedy_weights(tree, widths, queries, decay=decay)
    assert np.allclose(budget.weights_of(tree, share), weights, rtol=0, atol=0)
    assert np.allclose(naive.node_matrix(tree.lo, tree.hi, tree.k).T @ weights, 1.0)
    node = {(int(a), int(b)): q for q, (a, b) in enumerate(zip(tree.lo, tree.hi, strict=True))}
    state, used = passes.state, 0
    chosen = {ends: share[q] for ends, q in node.items()}
    for ends, objective in naive.greedy(w, tree.k, tree.branching, decay, chosen):
        q, lam = node[ends], chosen[ends]
        c = tree.left[q]
        s = state[c, 0] + state[c + 1, 0]
        mu = passes.decay[tree.height[q]]
        moved = (1 - mu) * state[q, tuning_closed.CROSS] / s
        j = state[q, tuning_closed.J] * (1 - lam) ** 2 + moved
        if lam == 1.0:  # all of it: nothing tells the groups below apart
            assert j <= 1e-12 * objective(0.0)
            return used
        for other in (0.0, 0.1, 0.5, 0.9):
            r = other / (1 - other)
            closed = (1 + r) ** 2 * (j + (state[q, tuning_closed.B] - moved / s) / (1 / s + r * r))
            assert np.isclose(closed, objective(other), rtol=1e-8)
        least = min(
            objective(x) for x in [*np.linspace(0, 0.99, 8), *np.clip([lam - 1e-4, lam + 1e-4], 0, 0.999)]
        )
        assert objective(lam) <= least * (1 + 1e-12) + 1e-13
        used += lam > 0
    return used


@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 8, 13, 32])
def test_greedy_minimises_equation_nine_for_all_ranges_and_prefixes(k, decay):
    draw = np.random.default_rng(k)
    used = 0
    for queries in CLOSED:
        for widths in (np.ones(k, int), draw.integers(1, 6, k)):
            used += check_greedy(draw, trees.make_tree(k, 2), widths, queries, decay=decay)
    check_greedy(draw, trees.make_tree(k, int(draw.choice([3, 4, 5]))), widths, queries, decay=decay)
    assert used or k < 32


@pytest.mark.parametrize("seed", range(24))
def test_greedy_minimises_equation_nine_for_listed_ranges(seed):
    draw = np.random.default_rng(seed)
    tree = some_tree(draw)
    widths = draw.integers(1, 5, tree.k)
    check_greedy(draw, tree, widths, some_queries(draw, int(widths.sum())), decay=seed % 4 != 3)


@pytest.mark.parametrize("queries", CLOSED)
def test_closed_forms_agree_with_the_list_of_the_same_ranges(queries):
    draw = np.random.default_rng(5)
    for k, t in ((1, 2), (2, 2), (29, 2), (64, 4), (50, 3)):
        tree, widths = trees.make_tree(k, t), draw.integers(1, 5, k)
        listed = naive.query_list(widths, queries)
        for find in (tuning.greedy_weights, tuning.tuned_weights):
            a, b = find(tree, widths, queries), find(tree, widths, listed)
            assert np.allclose(a, b, atol=1e-8)
            errors = [variances.expected_error(tree, a, widths, x) for x in (queries, listed)]
            assert np.isclose(*errors, rtol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3, 16, 21, 64])
def test_single_bins_get_exactly_the_laplace_allocation(k):
    draw = np.random.default_rng(k)
    tree = trees.make_tree(k)
    for widths in (np.ones(k, int), draw.integers(1, 6, k)):
        leaves = (tree.left == 0).astype(float)
        listed = naive.query_list(widths, "points")
        assert np.array_equal(tuning.greedy_weights(tree, widths, listed), leaves)
        assert np.array_equal(tuning.greedy_weights(tree, widths, "points"), leaves)
        assert np.array_equal(tuning.tuned_weights(tree, widths, "points"), leaves)


def test_greedy_error_is_that_of_the_published_method():
    for k, expected in ((1024, 98.3), (4096, 174.8)):
        tree, widths = trees.make_tree(k), np.ones(k, int)
        weights = tuning.greedy_weights(tree, widths, "all-ranges")
        assert abs(variances.expected_error(tree, weights, widths, "all-ranges") - expected) < 0.06


# ---- tuned shares


def check_fall(tree, widths, queries, share):
    """What the way down says of the rest of the tree, against dense matrices."""
    passes = tuning.Passes.over(tree, widths, queries, decay=True, collapse=True)
    total = passes.rise(share, budget.GIVEN)
    passes.fall(share)
    c = budget.weights_of(tree, share)
    y = naive.node_matrix(tree.lo, tree.hi, tree.k)
    with np.errstate(divide="ignore"):
        _, covariance, _ = naive.fit(y, np.zeros(tree.size), 1 / c**2)
    w = naive.query_matrix(widths, queries)
    assert np.isclose(total, np.trace(w @ covariance @ w.T), rtol=1e-8)
    cross = w @ covariance @ y.T
    reached = passes.down[:, budget.BUDGET] > 0
    assert np.allclose(passes.down[:, budget.SEEN], np.diag(y @ covariance @ y.T), rtol=1e-8)
    assert np.allclose(passes.down[:, budget.PULL], (cross**2).sum(axis=0), rtol=1e-7, atol=1e-9 * total)
    assert reached.all()
    assert np.isclose((c**2 * passes.down[:, budget.PULL]).sum(), total, rtol=1e-8)


@pytest.mark.parametrize("seed", range(24))
def test_the_way_down_agrees_with_dense_matrices(seed):
    draw = np.random.default_rng(seed)
    tree = some_tree(draw)
    widths = draw.integers(1, 4, tree.k)
    share = np.where(tree.left == 0, 1.0, np.where(tree.measured, draw.random(tree.size) * 0.8, 0.0))
    for queries in (*CLOSED, some_queries(draw, int(widths.sum()))):
        check_fall(tree, widths, queries, share)


@pytest.mark.parametrize("seed", range(16))
def test_tuned_is_never_worse_than_greedy_and_always_the_same(seed):
    draw = np.random.default_rng(seed)
    tree = some_tree(draw)
    widths = draw.integers(1, 4, tree.k)
    w = naive.node_matrix(tree.lo, tree.hi, tree.k)
    for queries in (*CLOSED, some_queries(draw, int(widths.sum()))):
        greedy = variances.expected_error(
            tree, tuning.greedy_weights(tree, widths, queries, collapse=True), widths, queries
        )
        for quick in (False, True):
            weights = tuning.tuned_weights(tree, widths, queries, quick=quick)
            assert variances.expected_error(tree, weights, widths, queries) <= greedy * (1 + 1e-9)
            assert np.allclose(w.T @ weights, 1.0) and not weights[~tree.measured].any()
            assert np.array_equal(weights, tuning.tuned_weights(tree, widths, queries, quick=quick))


def test_tuned_error_is_far_below_greedy():
    for k, queries, limit in (
        (1024, "all-ranges", 73.5),
        (4096, "all-ranges", 126.0),
        (1024, "prefixes", 57.0),
        (4096, "prefixes", 90.0),
    ):
        tree, widths = trees.make_tree(k), np.ones(k, int)
        weights = tuning.tuned_weights(tree, widths, queries)
        assert variances.expected_error(tree, weights, widths, queries) < limit


def test_a_reserve_keeps_what_no_query_separates_within_reach():
    tree, widths = trees.make_tree(16), np.ones(16, int)
    queries = (np.array([0, 8, 0]), np.array([8, 16, 16]))
    bare = tuning.tuned_weights(tree, widths, queries)
    assert np.isinf(variances.expected_error(tree, bare, widths, "points"))
    kept = tuning.tuned_weights(tree, widths, queries, reserve=0.125)
    assert np.isfinite(variances.expected_error(tree, kept, widths, "points"))
    assert np.allclose(kept[tree.leaf], 0.125)
    best, fair = (variances.expected_error(tree, x, widths, queries) for x in (bare, kept))
    assert best < fair < best / 0.875**2


def test_measuring_more_ranges_than_there_are_nodes_is_the_same_as_repeating_them():
    tree, widths = trees.make_tree(20), np.ones(20, int)
    once = (np.array([0, 3, 5, 11]), np.array([4, 9, 20, 12]))
    often = tuple(np.tile(x, 50) for x in once)
    assert np.allclose(tuning.tuned_weights(tree, widths, once), tuning.tuned_weights(tree, widths, often))
    at = located.locate(tree, located.ends_of(np.arange(21), *once))
    assert (np.diff(at.top) <= 0).all()


@pytest.mark.parametrize("seed", range(60))
def test_a_tree_cut_off_where_no_range_ends_gives_the_same_weights(seed):
    """Bit for bit those of the whole tree, of single bins and of groups that a range may end in."""
    draw = np.random.default_rng(seed)
    k = int(draw.integers(1, 300))
    tree, widths = trees.make_tree(k), draw.integers(1, 5, k) if seed % 2 else np.ones(k, int)
    n, m = int(widths.sum()), int(draw.integers(1, (3, 12, 60)[seed % 3]))
    lo = draw.integers(0, n, m)
    hi = np.minimum(lo + 1 + draw.integers(0, max(int(n * draw.choice([0.02, 0.2, 1.0])), 1), m), n)
    passes = tuning.Passes.over(tree, widths, (lo, hi), decay=True, collapse=True)
    for reserve in (0.0, 0.05):
        share = tuning._quickly(passes)
        if reserve:
            budget.reserve_below(tree, share, reserve)
        found = tuning.tuned_weights(tree, widths, (lo, hi), quick=True, reserve=reserve)
        assert found.tobytes() == budget.weights_of(tree, share).tobytes()


def test_few_ranges_need_few_nodes_of_a_large_tree():
    tree, ends = trees.make_tree(1 << 12), located.ends_of(np.arange(4097), np.array([5]), np.array([900]))
    fold = located.folded(tree, ends)
    assert fold.tree.size < 4 * 12 + 2
    assert fold.many[fold.tree.leaf].sum() == 1 << 12
    edges = np.concatenate(([0], np.cumsum(fold.many[fold.tree.leaf])))
    assert [edges[at[0]] for at in (fold.ends.begin, fold.ends.end)] == [5, 900]


# ---- hats


def some_hats(draw):
    n = int(draw.integers(1, 70))
    levels = int(draw.integers(0, 4)) if n > 2 else 0
    cuts = draw.integers(2, n + 1, levels)
    whole = int(draw.choice([64, 1000, 4096]))
    weights = draw.integers(1, max(whole // (levels + 1), 2), levels)
    ends = draw.random(2) < 0.5
    return hat.make_hats(
        n, cuts=cuts, weights=weights, whole=whole, at_start=bool(ends[0]), at_end=bool(ends[1])
    )


@pytest.mark.parametrize("seed", range(40))
def test_hats_agree_with_dense_matrices(seed):
    draw = np.random.default_rng(seed)
    hats = some_hats(draw)
    rows = naive.hat_matrix(hats)
    assert (rows >= 0).all() and (hats.bins > 0).all()
    assert (abs(rows).sum(axis=0) == hats.whole).all()  # one unit moves the answers by exactly the whole
    assert (hat.column_sums(hats) == hats.whole).all()
    x = draw.integers(0, 10**6, hats.n)
    assert np.array_equal(hat.apply_hats((hats,), x), rows.astype(int) @ x)

    variance = np.exp(draw.normal(0, 1, hats.size))
    y = draw.normal(0, 1e4, hats.size)
    fitted, covariance, _ = naive.fit(rows, y, variance)
    error = hats_fit.hats_error(hats, variance)
    given = y.copy()
    assert np.allclose(hats_fit.solve_hats(error, y), fitted, rtol=1e-8, atol=1e-8)
    assert np.array_equal(y, given)
    widths = np.ones(hats.n, int)
    lo, hi = naive.query_list(widths, "all-ranges")
    w = naive.query_matrix(widths, "all-ranges")
    dense = np.einsum("ij,jk,ik->i", w, covariance, w)
    assert np.allclose(hats_fit.hats_range_variances(error, lo, hi), dense, rtol=1e-8)

    _, covariance, _ = naive.fit(rows / hats.whole, y, np.ones(hats.size))
    for queries in (*CLOSED, "points", some_queries(draw, hats.n)):
        w = naive.query_matrix(widths, queries)
        expected = np.trace(w @ covariance @ w.T) / w.shape[0]
        assert np.isclose(hats_fit.hats_expected_error(hats, queries), expected, rtol=1e-8)


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (3, 7), (30, 2), (1, 40), (26, 35)])
def test_hats_of_both_sides_are_products_of_dense_matrices(rows, columns):
    draw = np.random.default_rng(rows)
    sides = hat.sides_of(rows, columns, "all-ranges")
    both = np.kron(*(naive.hat_matrix(side) for side in sides))
    x = draw.integers(0, 10**6, rows * columns)
    assert np.array_equal(hat.apply_hats(sides, x), both.astype(int) @ x)
    assert (abs(both).sum(axis=0) == sides[0].whole * sides[1].whole).all()

    y = draw.normal(0, 1e9, both.shape[0])
    fitted, *_ = np.linalg.lstsq(both, y, rcond=None)
    errors = [hats_fit.hats_error(side, 1.0) for side in sides]
    given = y.copy()
    assert np.allclose(hats_fit.solve_sides(*errors, y), fitted, rtol=1e-7, atol=1e-6)
    assert np.array_equal(y, given)

    unit = np.linalg.inv(both.T @ both) * (sides[0].whole * sides[1].whole) ** 2
    ends = [[np.arange(a, b) for a, b in itertools.combinations(range(n + 1), 2)] for n in (rows, columns)]
    some = [(r, c) for r in ends[0][:: 1 + len(ends[0]) // 20] for c in ends[1][:: 1 + len(ends[1]) // 20]]
    for r, c in some[::7]:
        box = np.isin(np.arange(rows), r)[:, None] & np.isin(np.arange(columns), c)
        dense = unit[np.ix_(box.ravel(), box.ravel())].sum()
        product = math.prod(
            float(hats_fit.hats_range_variances(e, [k[0]], [k[-1] + 1])[0]) * float(e.hats.whole) ** 2
            for e, k in zip(errors, (r, c), strict=True)
        )
        assert product == pytest.approx(dense, rel=1e-7)
    weights = draw.normal(0, 1, rows)
    alone = np.linalg.inv(naive.hat_matrix(sides[0]).T @ naive.hat_matrix(sides[0]))
    assert hats_fit.hats_weighted_variance(errors[0], weights) == pytest.approx(weights @ alone @ weights)


def test_the_gain_of_both_sides_is_that_of_the_mean_rectangle():
    rows, columns = 30, 26
    errors = [hats_fit.hats_error(s, float(s.whole) ** 2) for s in hat.sides_of(rows, columns, "all-ranges")]
    by_sides, by_cells = [], []
    for n, error in zip((rows, columns), errors, strict=True):
        lo, hi = np.array(list(itertools.combinations(range(n + 1), 2))).T
        by_sides.append(hats_fit.hats_range_variances(error, lo, hi).mean())
        by_cells.append((hi - lo).mean())
    gain = math.sqrt(math.prod(by_sides) / math.prod(by_cells))
    assert hats_fit.sides_gain(rows, columns) == pytest.approx(gain)
    assert hats_fit.sides_gain(1, 2) == hats_fit.sides_gain(20, 9) == 1.0  # no hats pay
    assert hats_fit.sides_gain(64, 64) < 0.72


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 7), (12, 20), (2, 60), (26, 35)])
def test_pyramids_over_a_grid_are_those_of_dense_matrices(rows, columns):
    draw, n = np.random.default_rng(rows), rows * columns
    (shape,) = hat.sides_of(rows, columns, "rectangles")
    rows_of = naive.hat_matrix(shape)
    x = draw.integers(0, 10**6, n)
    assert np.array_equal(hat.apply_hats((shape,), x), rows_of.astype(int) @ x)
    assert (rows_of >= 0).all() and (rows_of.sum(axis=0) == shape.whole).all() and shape.bins.min() > 0
    turned = naive.hat_matrix(hat.fitted_pyramids(columns, rows))
    back = turned.reshape(-1, columns, rows).transpose(0, 2, 1).reshape(-1, n)
    assert sorted(back.tolist()) == sorted(rows_of.tolist())  # files may be read column by column

    y = draw.normal(0, 1e6, shape.size)
    known = pyramids.pyramids_error(rows, columns)
    fitted, *_ = np.linalg.lstsq(rows_of, y)
    assert np.allclose(hats_fit.solve_hats(known.error, y), fitted, rtol=1e-7, atol=1e-6)
    dense = np.linalg.inv(rows_of.T @ rows_of)
    ends = [np.array(list(itertools.combinations(range(k + 1), 2))) for k in (rows, columns)]
    x0, y0 = (np.meshgrid(*(e[:, 0] for e in ends), indexing="ij")[i].ravel() for i in (0, 1))
    x1, y1 = (np.meshgrid(*(e[:, 1] for e in ends), indexing="ij")[i].ravel() for i in (0, 1))
    found = pyramids.rectangle_variances(known, x0, x1, y0, y1)
    for i in range(0, x0.size, 1 + x0.size // 200):
        box = np.zeros((rows, columns))
        box[x0[i] : x1[i], y0[i] : y1[i]] = 1.0
        assert found[i] == pytest.approx(box.ravel() @ dense @ box.ravel(), rel=1e-9)
    gain = math.sqrt(found.mean() * float(shape.whole) ** 2 / ((x1 - x0) * (y1 - y0)).mean())
    assert pyramids.pyramids_gain(rows, columns) == pytest.approx(gain)
    assert pyramids.grid_gain(rows, columns) == pytest.approx(min(gain, hats_fit.sides_gain(rows, columns)))


def test_pyramids_have_less_error_than_triangles_of_the_sides_up_to_some_9000_cells():
    gains = {n: (pyramids.pyramids_gain(n, n), hats_fit.sides_gain(n, n)) for n in (16, 32, 64, 96, 110)}
    assert [gains[n][0] for n in (16, 32, 64)] == pytest.approx([0.942, 0.816, 0.672], abs=0.002)
    assert [a < b for a, b in gains.values()] == [True, True, True, True, False]
    for rows, columns in ((1, 40), (40, 1), (129, 128)):
        assert not pyramids.have_pyramids(rows, columns)
        assert pyramids.grid_gain(rows, columns) == hats_fit.sides_gain(rows, columns)
        with pytest.raises(UsageError, match="pyramids are for grids of up to 16,384 cells"):
            hat.fitted_pyramids(rows, columns)
    assert pyramids.have_pyramids(128, 128) and hat.fitted_pyramids(128, 128).n == 1 << 14


def test_pyramids_are_those_of_the_rule_that_files_name():
    """A file says rule 1 and no weight: if one of these changes, so must the number of the rule."""
    sums = {}
    for shape in ((6, 4), (12, 20), (40, 70), (2, 1000)):
        made = hat.fitted_pyramids(*shape)
        sums[shape] = zlib.crc32(made.bins.astype("<i8").tobytes() + made.weights.astype("<i8").tobytes())
    assert list(sums.values()) == [3405002160, 1448795935, 2855017129, 2210292149]


def test_rectangles_are_looked_up_the_same_in_blocks(monkeypatch):
    known = pyramids.pyramids_error(4, 3)
    x0, x1, y0, y1 = np.indices((4, 5, 3, 4)).reshape(4, -1)
    ends = [end[(x0 < x1) & (y0 < y1)] for end in (x0, x1, y0, y1)]
    at_once = pyramids.rectangle_variances(known, *ends)
    for size in (1, 7, at_once.size - 1):
        monkeypatch.setattr(pyramids, "_AT_ONCE", size)
        assert np.array_equal(pyramids.rectangle_variances(known, *ends), at_once)


def test_two_rows_have_one_line_of_pyramids():
    """A side has at most one for every two bins, and these are not six times over the same."""
    assert hat.fitted_pyramids(2, 1000).first.size == hat.fitted_pyramids(1000, 2).first.size == 6


def test_the_table_of_rectangles_is_made_in_little_more_memory_than_it_takes():
    pyramids.pyramids_error.__wrapped__(12, 12)  # compiled
    tracemalloc.start()
    try:
        known = pyramids.pyramids_error.__wrapped__(64, 64)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * known.under.nbytes
    finally:
        tracemalloc.stop()


def test_the_gain_of_pyramids_over_a_long_side_takes_memory_for_its_bins_and_not_for_pairs_of_them():
    tracemalloc.start()
    try:
        assert 0.0 < pyramids.pyramids_gain(2, 2048) < 1.0
        assert tracemalloc.get_traced_memory()[1] < 8 * 2048**2 / 8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ends", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("n", "cuts"), [(2, [2]), (3, [3, 2]), (40, [40, 7]), (61, [9, 4, 2]), (300, [17])])
def test_hats_are_triangles(n, cuts, ends):
    tops = [300] * len(cuts)
    hats = hat.make_hats(n, cuts=cuts, weights=tops, at_start=ends[0], at_end=ends[1])
    found, expected = naive.hat_matrix(hats)[n:], naive.triangles(n, cuts, tops, *ends)
    assert found.shape == expected.shape
    apart = abs(found[:, None] - expected[None]).max(axis=2)
    assert (apart.min(axis=1) <= 0.5 + 1e-9).all() and len(set(apart.argmin(axis=1))) == len(found)


@pytest.mark.parametrize("queries", CLOSED)
def test_hats_are_the_same_in_small_blocks(monkeypatch, queries):
    def made():
        hats = hat.fitted_hats.__wrapped__(500, queries)
        known = hats_fit.hats_error(hats, 2.0).segments
        return hats.weights, hats.bins, *known

    at_once = made()
    monkeypatch.setattr(hat, "_BLOCK", 7)
    monkeypatch.setattr(hats_ranges, "_BLOCK", 5)
    assert all(map(np.array_equal, made(), at_once))
    for n in (1, 5, 6, 9):  # a last block may be of one
        assert [i for some in hats_ranges._blocks(n) for i in range(n)[some]] == list(range(n))


@pytest.mark.parametrize("queries", CLOSED)
def test_few_ranges_have_the_variances_that_they_have_among_many(monkeypatch, queries):
    """Sums up to the ends of these ranges are those of all bins, and so is all that follows."""
    draw = np.random.default_rng(4)
    lo = draw.integers(0, 3000, 60)
    hi = np.minimum(lo + 1 + (draw.integers(0, 3000, 60) >> draw.integers(0, 12, 60)), 3000)
    found = []
    for most in (0, 1000):
        monkeypatch.setattr(hats_fit, "_BINS_PER_RANGE", most)
        error = hats_fit.hats_error(hat.fitted_hats(3000, queries), 2.0)
        found.append(hats_fit.hats_range_variances(error, lo, hi).tobytes())
        assert ("sums" in vars(error)) == (most > 0)  # which take memory for each bin
    assert found[0] == found[1]


def test_a_tampered_weight_shows_in_the_bound():
    hats = hat.fitted_hats(100, "all-ranges")
    weights = hats.weights.copy()
    weights[3] += 1
    assert hat.column_sums(replace(hats, weights=weights)).max() == hats.whole + 1


@pytest.mark.parametrize(
    ("n", "queries", "limit"),
    [
        (256, "all-ranges", 32.7),
        (1024, "all-ranges", 61.1),
        (4096, "all-ranges", 101.7),
        (16, "prefixes", 7.1),
        (256, "prefixes", 27.8),
        (1024, "prefixes", 45.9),
        (4096, "prefixes", 73.1),
    ],
)
def test_fitted_hats_beat_tuned_trees_and_even_hats(n, queries, limit):
    tree, widths = trees.make_tree(n), np.ones(n, int)
    tuned = variances.expected_error(tree, tuning.tuned_weights(tree, widths, queries), widths, queries)
    found = hats_fit.hats_expected_error(hat.fitted_hats(n, queries), queries)
    assert found < limit and found < 0.97 * tuned
    assert found < 0.99 * hats_fit.hats_expected_error(hat.even_hats(n, queries), queries)


@pytest.mark.parametrize("queries", CLOSED)
def test_another_level_begins_where_it_pays(queries):
    least = hat_rules.LEAST[queries]
    for levels, n in enumerate(least[:3]):
        few, more = (
            hats_fit.hats_expected_error(
                hat.stack_hats(n, hat.place_knots(n, rules, mirrored=queries == "prefixes")), queries
            )
            for rules in ((), *hat_rules.RULES[queries])[levels : levels + 2]
        )
        assert 0.98 < more / few < 1.02 or (levels == 0 and more < few)
        assert hat.fitted_hats(n, queries).size > hat.fitted_hats(n - 1, queries).size + levels


@pytest.mark.parametrize("seed", range(30))
def test_stacked_hats_are_lines_between_their_knots(seed):
    draw = np.random.default_rng(seed)
    n, half = int(draw.integers(3, 60)), int(draw.integers(1, 9))
    levels = []
    for flat in draw.random(int(draw.integers(1, 4))) < 0.5:
        knots = np.sort(draw.choice(np.arange(-half, 2 * half * n + half), 5, replace=False))
        levels.append(
            hat.Level(np.append(knots[0], knots) if flat else knots, draw.integers(1, 800, 3 + flat), half)
        )
    hats = hat.stack_hats(n, levels)
    found, expected = naive.hat_matrix(hats)[n:], naive.lines(n, levels)
    assert found.shape == expected.shape and (hat.column_sums(hats) == hats.whole).all()
    apart = abs(found[:, None] - expected[None]).max(axis=2)
    assert (apart.min(axis=1) <= 0.5 + 1e-9).all() and len(set(apart.argmin(axis=1))) == len(found)


@pytest.mark.parametrize("n", [1, 2, 7, 13, 14, 23, 24, 25, 100, 204, 205, 479, 480, 10_000, 200_003])
def test_fitted_hats_of_any_size_spend_exactly_the_whole(n):
    for queries in (*CLOSED, "points"):
        hats = hat.fitted_hats(n, queries)
        assert hat.column_sums(hats).max() == hats.whole and (hats.bins > hats.whole // 8).all()
        y = hat.apply_hats((hats,), np.full(n, 3))
        assert np.allclose(hats_fit.solve_hats(hats_fit.hats_error(hats, 2.0), y), 3.0)
        assert queries != "points" or hats.size == n


@pytest.mark.parametrize("queries", CLOSED)
@pytest.mark.parametrize("n", [24, 25, 32, 33, 47, 64, 100, 255, 300])
def test_variances_of_all_ranges_are_those_of_the_dense_inverse(n, queries):
    hats = hat.fitted_hats(n, queries)
    variance = np.exp(np.random.default_rng(n).normal(0, 1, hats.size))
    error = hats_fit.hats_error(hats, variance)
    lo, hi, dense = naive.hat_variances(hats, variance)
    assert np.allclose(hats_fit.hats_range_variances(error, lo, hi), dense, rtol=1e-9, atol=0)
    some = np.random.default_rng(n).integers(0, lo.size, 32)  # few ranges go another way
    assert np.allclose(hats_fit.hats_range_variances(error, lo[some], hi[some]), dense[some], rtol=1e-9)


@pytest.mark.parametrize("queries", CLOSED)
@pytest.mark.parametrize("n", [1000, 4096, 30_000])
def test_many_ranges_have_the_variances_of_few(n, queries):
    draw = np.random.default_rng(n)
    hats = hat.fitted_hats(n, queries)
    error = hats_fit.hats_error(hats, np.exp(draw.normal(0, 1, hats.size)))
    ends = np.sort(draw.integers(0, n + 1, (2, 400)), axis=0)
    lo = np.concatenate((ends[0], np.zeros(100, int), np.arange(100), draw.integers(0, n - 40, 100)))
    hi = np.concatenate((ends[1], np.linspace(0, n, 100).astype(int), np.arange(1, 101), lo[-100:] + 40))
    alone = [hats_fit.hats_range_variances(error, a, b)[0] for a, b in zip(lo, hi, strict=True)]
    found = hats_fit.hats_range_variances(error, lo, hi)
    assert np.allclose(found, alone, rtol=1e-8, atol=1e-12)
    assert (found[lo == hi] == 0).all() and (found[lo < hi] > 0).all()


@pytest.mark.parametrize("queries", CLOSED)
def test_the_error_of_large_domains_is_worked_out_not_sampled(queries):
    hats = hat.fitted_hats(20_000, queries)
    error = hats_fit.hats_error(hats, float(hats.whole) ** 2)
    some = np.arange(0, 20_000, 500)
    prefixes = [hats_fit.hats_range_variances(error, 0, b)[0] for b in some + 1]
    rest = hats_fit.hats_range_variances(error, np.zeros(20_000, int), np.arange(1, 20_001))
    assert np.allclose(rest[some], prefixes, rtol=1e-8)
    if queries == "prefixes":
        assert np.isclose(hats_fit.hats_expected_error(hats, queries), rest.mean(), rtol=1e-12)


def test_hats_refuse_wrong_input():
    hats = hat.fitted_hats(50, "prefixes")
    error = hats_fit.hats_error(hats, 1.0)
    for wrong in (
        lambda: hat.fitted_hats(0, "prefixes"),
        lambda: hat.fitted_hats(9, "ranges"),
        lambda: hat.make_hats(9, cuts=[1], weights=[5]),
        lambda: hat.make_hats(9, cuts=[3], weights=[5], whole=5),
        lambda: hat.make_hats(9, cuts=[3, 2], weights=[5]),
        lambda: hat.make_hats(9, cuts=[3], weights=[1], whole=2),  # two halves are both rounded up
        lambda: hat.apply_hats((hats,), np.ones(49, int)),
        lambda: hats_fit.hats_error(hats, 0.0),
        lambda: hats_fit.hats_error(hats, np.ones(3)),
        lambda: hats_fit.solve_hats(error, np.full(hats.size, np.nan)),
        lambda: hats_fit.hats_range_variances(error, [3], [2]),
    ):
        with pytest.raises(UsageError):
            wrong()
