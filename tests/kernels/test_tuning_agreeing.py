"""Weights of noise that agrees with itself: what each node is worth, against matrices and differences."""

import math

import numpy as np
import pytest

import naive_trees as naive
from dphist.kernels.trees import agreeing, budget, tuning, tuning_agreeing, variances
from dphist.kernels.trees import tree as trees

LISTED = (np.array([0, 2, 2, 4]), np.array([3, 5, 3, 8]))


def matched(matrix, variance):
    """Expectation propagation by matrices, until nothing changes: the precision and slope of every node."""
    precision, slope = 1 / variance, np.full(variance.size, 2.0)
    for _ in range(400):
        seen = np.diag(matrix @ np.linalg.inv(matrix.T @ (precision[:, None] * matrix)) @ matrix.T)
        others = 1 / seen - precision
        new = [1 / agreeing_moment(1 / o, v) - o for o, v in zip(others, variance, strict=True)]
        change = np.abs(new / precision - 1).max()
        precision = np.array(new)
        if change < 1e-13:
            break
    for q, (o, v) in enumerate(zip(others, variance, strict=True)):
        up, down = (math.log(1 / agreeing_moment(1 / o, v * math.exp(-2 * d)) - o) for d in (1e-4, -1e-4))
        slope[q] = (up - down) / 2e-4
    return precision, slope


def agreeing_moment(normal, laplace):
    t = math.sqrt(2 * normal / laplace)
    tail = 0.5 * math.erfc(t / math.sqrt(2))
    return normal * (1 + t * t - t * math.exp(-0.5 * t * t) / (math.sqrt(2 * math.pi) * tail))


def error_of(tree, widths, queries, weights):
    """The error of all queries by matrices, from noise that agrees."""
    matrix = naive.node_matrix(tree.lo, tree.hi, tree.k)
    precision, _ = matched(matrix, 2 / weights**2)
    covariance = np.linalg.inv(matrix.T @ (precision[:, None] * matrix))
    asked = naive.query_matrix(widths, queries)
    return np.trace(asked @ covariance @ asked.T)


def worth_of(tree, widths, queries, precision, slope):
    """What the kernel says that a unit of every node's precision is worth."""
    passes = tuning.Passes.over(tree, widths, queries, decay=False, collapse=False)
    passes.rise(precision, budget.KNOWN)
    passes.fall(precision, budget.KNOWN)
    worth = np.zeros(tree.size)
    for _ in range(200):
        tuning_agreeing.rise_in_worth(
            tree.left,
            passes.variance,
            passes.down[:, budget.SEEN],
            precision,
            slope,
            passes.down[:, budget.PULL],
            worth,
        )
    return worth


@pytest.mark.parametrize("queries", ["all-ranges", "prefixes", LISTED], ids=str)
@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_what_a_node_is_worth_is_what_the_error_falls_by(k, queries):
    rng = np.random.default_rng(k)
    tree, widths = trees.make_tree(k), rng.integers(3, 6, k)
    weights = rng.uniform(0.05, 0.4, tree.size)
    precision, slope = matched(naive.node_matrix(tree.lo, tree.hi, k), 2 / weights**2)
    assert (slope >= 1).all() and (slope <= 2).all() and slope.min() < 1.7
    gain = slope * precision * worth_of(tree, widths, queries, precision, slope)
    for q in range(tree.size):
        moved = [np.where(np.arange(tree.size) == q, math.exp(d), 1.0) * weights for d in (-1e-4, 1e-4)]
        less, more = (error_of(tree, widths, queries, w) for w in moved)
        assert (less - more) / 2e-4 == pytest.approx(gain[q], rel=1e-5)


@pytest.mark.parametrize("k", [2, 5, 16])
def test_slopes_are_those_of_the_twin(k):
    rng = np.random.default_rng(k)
    tree = trees.make_tree(k)
    variance = rng.uniform(1, 30, tree.size)
    precision, slope = matched(naive.node_matrix(tree.lo, tree.hi, k), variance)
    found, slopes = agreeing.equal_precisions(tree, variance)
    assert found == pytest.approx(np.maximum(precision / 1.04, 1 / variance), rel=5e-3)
    assert slopes == pytest.approx(slope, abs=5e-3)


def test_slopes_are_one_for_faint_nodes_and_two_for_those_that_know_all():
    tree = trees.make_tree(2)
    faint, sharp = (agreeing.equal_precisions(tree, np.array([v, 1.0, 1.0]))[1] for v in (1e10, 1e-10))
    assert faint[0] == pytest.approx(1, abs=1e-3) and sharp[0] == pytest.approx(2, abs=1e-3)
    alone = agreeing.equal_precisions(tree, np.array([math.inf, 1.0, 1.0]))[1]
    assert alone[1:].tolist() == [2.0, 2.0], "of a leaf nothing else is known"


@pytest.mark.parametrize("seed", range(12))
def test_passes_with_known_precisions_agree_with_dense_matrices(seed):
    draw = np.random.default_rng(seed)
    tree = trees.make_tree(int(draw.integers(2, 40)), int(draw.choice([2, 3])))
    widths = draw.integers(1, 4, tree.k)
    precision = np.where(draw.random(tree.size) < 0.3, 0.0, draw.uniform(0.1, 3, tree.size))
    precision[tree.leaf] = draw.uniform(0.1, 3, tree.k)
    n = int(widths.sum())
    ends = np.sort(draw.integers(0, n, (2, 9)), axis=0)
    matrix = naive.node_matrix(tree.lo, tree.hi, tree.k)
    covariance = np.linalg.inv(matrix.T @ (precision[:, None] * matrix))
    for queries in ("all-ranges", "prefixes", (ends[0], ends[1] + 1)):
        passes, given = (
            tuning.Passes.over(tree, widths, queries, decay=False, collapse=False),
            precision.copy(),
        )
        total = passes.rise(given, budget.KNOWN)
        passes.fall(given, budget.KNOWN)
        assert np.array_equal(given, precision), "they are not shares to be set"
        asked = naive.query_matrix(widths, queries)
        assert total == pytest.approx(np.trace(asked @ covariance @ asked.T), rel=1e-9)
        pull = ((asked @ covariance @ matrix.T) ** 2).sum(axis=0)
        assert passes.down[:, budget.PULL] == pytest.approx(pull, rel=1e-7)
        assert passes.down[:, budget.SEEN] == pytest.approx(np.diag(matrix @ covariance @ matrix.T), rel=1e-9)


def foreseen(tree, widths, queries, weights):
    with np.errstate(divide="ignore"):
        equal = agreeing.equal_variances(tree, 2 / weights**2)
    error = variances.tree_error(tree, equal)
    return variances.total_variance(error, widths, queries) / variances.query_count(widths, queries)


def weights_for(tree, widths, queries, *, below=math.inf, draws=math.inf):
    separate = tuning.tuned_weights(tree, widths, queries, reserve=0.05)
    found = tuning_agreeing.agreeing_weights(tree, widths, queries, separate, below=below, draws=draws)
    return separate, found


STARTS = np.array([0, 512, 768, 770, 772, 774, 775, 776, 784, 800, 832, 896, 1024])
GROUPED = trees.pruned_tree(STARTS)


@pytest.mark.parametrize("queries", ["all-ranges", "prefixes"])
@pytest.mark.parametrize(
    ("tree", "least"), [(trees.make_tree(64), 0.98), (trees.make_tree(500), 0.97), (GROUPED, 1.0)]
)
def test_they_have_less_error_than_any_that_are_spread_evenly(tree, least, queries):
    widths = np.diff(STARTS) if tree is GROUPED else np.ones(tree.k, np.int64)
    separate, found = weights_for(tree, widths, queries)
    paths = naive.node_matrix(tree.lo, tree.hi, tree.k).T @ found
    assert paths == pytest.approx(np.ones(tree.k)) and (found > 0).all()
    others = [
        foreseen(tree, widths, queries, agreeing.shared_weights(tree, rest, part))
        for rest in (separate, tuning.leaves_only(tree))
        for part in (0.15, 0.3, 0.45, 0.6, 0.75)
    ]
    assert foreseen(tree, widths, queries, found) < least**2 * min(others)


def test_no_small_move_along_a_path_gains_much():
    tree, widths = trees.make_tree(32), np.ones(32, np.int64)
    _, found = weights_for(tree, widths, "all-ranges")
    share, rest = np.ones(tree.size), np.ones(tree.size)
    for q in range(tree.size):
        share[q] = found[q] / rest[q]
        if tree.left[q]:
            rest[tree.left[q] : tree.left[q] + 2] = rest[q] - found[q]
    least = error_of(tree, widths, "all-ranges", found)
    for q in np.flatnonzero(tree.left):
        for factor in (0.8, 1.25):
            moved = share.copy()
            moved[q] *= factor
            assert error_of(tree, widths, "all-ranges", budget.weights_of(tree, moved)) > 0.999 * least


def test_listed_ranges_count_most_and_others_are_not_forgotten():
    rng = np.random.default_rng(4)
    tree, widths = trees.make_tree(512), np.ones(512, np.int64)
    ends = np.sort(rng.integers(0, 513, (2, 300)), axis=0)
    queries = tuple(x[ends[0] < ends[1]] for x in ends)
    _, found = weights_for(tree, widths, queries)
    _, general = weights_for(tree, widths, "all-ranges")
    assert foreseen(tree, widths, queries, found) < 0.98 * foreseen(tree, widths, queries, general)
    assert foreseen(tree, widths, "all-ranges", found) < 1.1 * foreseen(tree, widths, "all-ranges", general)


def test_few_listed_ranges_keep_weights_of_separate_noise():
    tree, widths = trees.make_tree(256), np.ones(256, np.int64)
    queries = np.array([3, 70, 100]), np.array([90, 200, 103])
    separate, found = weights_for(tree, widths, queries)
    spread = [agreeing.shared_weights(tree, separate, part) for part in (0.15, 0.3, 0.45)]
    assert foreseen(tree, widths, queries, found) <= min(foreseen(tree, widths, queries, w) for w in spread)


def test_none_are_better_than_what_is_better_and_none_may_take_too_long():
    tree, widths = trees.make_tree(64), np.ones(64, np.int64)
    separate, found = weights_for(tree, widths, "all-ranges")
    error = foreseen(tree, widths, "all-ranges", found)
    alone = 2 * variances.expected_error(tree, separate, widths, "all-ranges")
    assert 0.85**2 * alone < error < 0.9**2 * alone
    assert weights_for(tree, widths, "all-ranges", below=1.001 * error)[1] is not None
    assert weights_for(tree, widths, "all-ranges", below=0.999 * error)[1] is None
    draws = agreeing.expected_visits(tree, 2 / found**2).sum()
    fewer = weights_for(tree, widths, "all-ranges", draws=draws / 1.2)[1]
    assert agreeing.expected_visits(tree, 2 / np.maximum(fewer, 1e-99) ** 2).sum() < draws / 1.2
    assert foreseen(tree, widths, "all-ranges", fewer) > error
    assert weights_for(tree, widths, "all-ranges", draws=tree.size)[1] is None


def test_they_are_the_same_every_time():
    tree, widths = trees.make_tree(100), np.arange(1, 101)
    assert np.array_equal(weights_for(tree, widths, LISTED)[1], weights_for(tree, widths, LISTED)[1])


def test_the_slope_of_a_node_too_faint_for_rounding_is_one():
    slopes = agreeing.equal_precisions(trees.make_tree(2), np.array([1e40, 1.0, 1.0]))[1]
    assert slopes[0] == 1.0


def test_an_error_that_is_no_less_is_not_below_another():
    tree, widths = trees.make_tree(64), np.ones(64, np.int64)
    separate, _ = weights_for(tree, widths, "all-ranges")
    least = min(error for _, error in tuning_agreeing._tried(tree, widths, "all-ranges", separate))
    assert weights_for(tree, widths, "all-ranges", below=least)[1] is None
    assert weights_for(tree, widths, "all-ranges", below=math.nextafter(least, math.inf))[1] is not None


def test_the_search_ends_where_listed_ranges_and_a_quarter_of_all_have_least_error():
    tree, widths = trees.make_tree(16), np.ones(16, np.int64)
    listed = np.array([0, 0, 3]), np.array([4, 8, 5])
    separate, _ = weights_for(tree, widths, listed)
    *_, (found, _) = tuning_agreeing._tried(tree, widths, listed, separate)

    def both(weights):
        return error_of(tree, widths, listed, weights) / 3 + 0.25 * error_of(
            tree, widths, "all-ranges", weights
        ) / (16 * 17 / 2)

    share, rest = np.ones(tree.size), np.ones(tree.size)
    for q in range(tree.size):
        share[q] = found[q] / rest[q]
        if tree.left[q]:
            rest[tree.left[q] : tree.left[q] + 2] = rest[q] - found[q]
    least = both(found)
    for q in np.flatnonzero(tree.left):
        for factor in (0.8, 1.25):
            moved = share.copy()
            moved[q] = min(moved[q] * factor, 0.99)
            assert both(budget.weights_of(tree, moved)) > 0.999 * least
