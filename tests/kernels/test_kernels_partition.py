"""Every fast partitioner against its slow twin, and what a twin must catch."""

from fractions import Fraction
from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_partitions as naive
from dphist.errors import UsageError
from dphist.kernels.partition import changepoints, clusters, deviations, hulls, l1_search, segments

BIG = 10**12


def rows(count, longest, *, ordered=False):
    """Yield rows of many kinds: ties, zeros, thresholded, negative, huge, heavy tails, lengths from 1."""
    rng = np.random.default_rng(20)
    for case in range(count):
        n = int(rng.integers(1, longest + 1)) if case >= 30 else 1 + case % 3
        h = [
            lambda n: np.zeros(n, np.int64),
            lambda n: rng.integers(0, 3, n),
            lambda n: np.rint(rng.laplace(0, 10, n)).astype(np.int64),
            lambda n: np.repeat(rng.integers(-9, 9, n), rng.integers(1, 7, n))[:n],
            lambda n: np.where(rng.random(n) < 0.3, np.rint(rng.laplace(0, 30, n)), 0).astype(np.int64),
            lambda n: rng.integers(0, BIG, n),
            lambda n: BIG + np.rint(rng.laplace(0, 10, n)).astype(np.int64),
            lambda n: np.rint(rng.laplace(0, 10, n)).astype(np.int64) + BIG * (rng.random(n) < 0.3),
            lambda n: (rng.pareto(1.0, n) * 10).clip(max=1e12).astype(np.int64),
            lambda n: np.array([-13] + [0] * 8 + [13]) if n > 1 else np.array([4]),
        ][case % 10](n)
        unit = [0.5, 30.0, 200.0, 1000.0][case // 10 % 4]
        if case % 10 in (5, 8) and case % 3 == 0:
            unit = float(np.var(h)) / 4 + 1.0
        beta = unit * [0.0, 0.2, 1.0, 5.0][int(rng.integers(4))]
        a = unit * [0.0, 1.0, 20.0][int(rng.integers(3))]
        b = [0.0, 2.5, 20.0][int(rng.integers(3))]
        yield (np.sort(h) if ordered else h), beta, a, b


def check(h, starts, beta, a, b, least):
    assert starts[0] == 0
    assert starts[-1] == len(h)
    assert (np.diff(starts) > 0).all()
    found = float(naive.cost(h.tolist(), starts.tolist(), beta, a, b))
    assert float(least) * (1 - 1e-9) - 1e-9 <= found <= float(least) * (1 + 1e-9) + 1e-9
    assert segments.cost(h, starts, beta=beta, a=a, b=b) == pytest.approx(found, rel=1e-12, abs=1e-9)


def test_optimal_sorted_equals_the_exact_twin():
    for h, beta, a, b in rows(1000, 18, ordered=True):
        starts = segments.optimal_sorted(h, beta=beta, a=a, b=b)
        check(h, starts, beta, a, b, naive.least_cost(h.tolist(), beta, a, b))


def every_start_tried(x, beta, a, b):
    """Where the runs of the best partition begin: each end tries all starts, the first of equals wins."""
    n = x.size
    best, back, sse, sums = np.zeros(n + 1), np.zeros(n + 1, int), np.zeros(n), np.zeros(n + 1)
    for t in range(1, n + 1):
        size = t - np.arange(t)
        off = (size - 1) * x[t - 1] - (sums[t - 1] - sums[:t])
        sse[:t] += off**2 / (size * np.maximum(size - 1, 1))
        sums[t] = sums[t - 1] + x[t - 1]
        cost = best[:t] + sse[:t] + a / (b + size)
        back[t] = np.argmin(cost)
        best[t] = cost[back[t]] + beta
    starts = [n]
    while starts[-1] > 0:
        starts.append(int(back[starts[-1]]))
    return starts[::-1]


@pytest.mark.parametrize("shape", ["level", "steps", "ramp", "wave"])
@pytest.mark.parametrize(
    ("factor", "more", "b"),
    [(0, 64, 0), (1, 64, 0), (1, 64, 3), (1, 1000, 3), (2, 300, 0), (12, 1000, 0), (32, 64, 3)],
)
def test_optimal_runs_are_those_of_all_starts(shape, factor, more, b):
    rng = np.random.default_rng(factor + more + len(shape))
    n, where = 700, np.arange(700)
    true = {
        "level": 0 * where,
        "steps": where // 90 % 3 * 9,
        "ramp": where // 9,
        "wave": np.sin(where / 40) * 20,
    }
    for scale in (1.0, 20.0):
        x = true[shape].astype(int) + np.round(rng.laplace(0, scale, n)).astype(int)
        x[1:] += (np.diff(x) == 0) * (1 + where[1:] % 2)
        x[1:] += np.diff(x) == 0  # neighbours are unequal, so that no start is held back
        x = x[np.append(True, np.diff(x) != 0)]
        beta, a = factor * 2 * scale**2, more * 2 * scale**2
        starts = changepoints.optimal_runs(x, beta=beta, a=a, b=b)
        assert starts.tolist() == every_start_tried(x, beta, a, b)


def test_optimal_runs_equals_the_exact_twin():
    for h, beta, a, b in rows(1000, 18):
        starts = changepoints.optimal_runs(h, beta=beta, a=a, b=b)
        check(h, starts, beta, a, b, naive.least_cost(h.tolist(), beta, a, b))


def test_powers_of_two_equals_the_exact_twin():
    sizes = {1 << k for k in range(10)}
    for h, beta, a, b in rows(500, 20):
        starts = changepoints.powers_of_two(h, beta=beta, a=a, b=b)
        assert set(np.diff(starts).tolist()) <= sizes
        check(h, starts, beta, a, b, naive.least_cost(h.tolist(), beta, a, b, sizes))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_few_hundred_numbers_equal_the_quadratic_twin(ordered):
    rng = np.random.default_rng(3)
    solve = segments.optimal_sorted if ordered else changepoints.optimal_runs
    for case, (h, beta, a, b) in enumerate(rows(40, 10)):
        n = 700 if case == 39 else 150
        h = [
            np.rint(np.repeat(rng.integers(0, 300, n // 10), 10) + rng.laplace(0, 10, n)).astype(np.int64),
            np.where(rng.random(n) < 0.1, rng.integers(50, 90, n), 0),
            rng.normal(0, 10, n),
            np.rint(40 * np.sin(np.arange(n) / 9) + rng.laplace(0, 10, n)).astype(np.int64),
        ][case % 4]
        h = np.sort(h) if ordered else h
        found = segments.cost(h, solve(h, beta=beta, a=a, b=b), beta=beta, a=a, b=b)
        assert found == pytest.approx(naive.least_float(h.tolist(), beta, a, b), rel=1e-9, abs=1e-9)


def test_thousands_of_random_rows_never_beat_the_optimum():
    """The optimum on sorted numbers and on runs is one problem: two unlike algorithms must agree."""
    for h, beta, a, b in rows(3000, 60, ordered=True):
        one = segments.optimal_sorted(h, beta=beta, a=a, b=b)
        two = changepoints.optimal_runs(h, beta=beta, a=a, b=b)
        costs = [segments.cost(h, s, beta=beta, a=a, b=b) for s in (one, two)]
        assert costs[0] == pytest.approx(costs[1], rel=1e-9, abs=1e-9)


def test_huge_counts_with_penalties_of_their_size_use_two_limbs_and_stay_exact():
    rng = np.random.default_rng(9)
    for n in (2, 7, 16):
        for top in (10**9, BIG, 2**52, 2**62):
            h = np.sort(rng.integers(-top, top, n))
            beta = float(np.var(h.astype(float))) / 10
            starts = segments.optimal_sorted(h, beta=beta, a=beta, b=0.0)
            least = naive.least_cost(h.tolist(), beta, beta, 0)
            assert float(naive.cost(h.tolist(), starts.tolist(), beta, beta, 0) / least) <= 1 + 1e-9
    n = 200_000  # n * band^2 is far above 2^61
    h = np.sort(rng.integers(0, BIG, n))
    found = segments.optimal_sorted(h, beta=1e20, a=0.0, b=0.0)
    again = segments.optimal_sorted(h.astype(np.float64), beta=1e20, a=0.0, b=0.0)
    assert found.size - 1 > 100
    costs = [segments.cost(h, s, beta=1e20, a=0.0, b=0.0) for s in (found, again)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


def test_ties_may_have_to_be_cut():
    h = np.array([-13] + [0] * 8 + [13])
    for solve in (segments.optimal_sorted, changepoints.optimal_runs):
        starts = solve(h, beta=0.0, a=200.0, b=0.0)
        assert starts.tolist() == [0, 5, 10]
    merged = segments.cost(h, np.array([0, 1, 9, 10]), beta=0.0, a=200.0, b=0.0)
    assert segments.cost(h, starts, beta=0.0, a=200.0, b=0.0) < merged


def test_pruning_without_slack_would_be_wrong_here():
    h = np.array([14, 0, 5, 0, 4, -11])
    starts = changepoints.optimal_runs(h, beta=0.0, a=200.0, b=0.0)
    check(h, starts, 0.0, 200.0, 0.0, naive.least_cost(h.tolist(), 0, 200, 0))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=12), st.integers(0, 300), st.integers(0, 300))
def test_any_small_row_is_partitioned_optimally(h, beta, a):
    least = naive.least_cost(h, beta, a, 0)
    check(np.array(h), changepoints.optimal_runs(h, beta=beta, a=a), beta, a, 0, least)
    h = sorted(h)
    least = naive.least_cost(h, beta, a, 0)
    check(np.array(h), segments.optimal_sorted(h, beta=beta, a=a, b=0), beta, a, 0, least)


def test_k_groups_equal_the_exact_twin_for_every_k():
    rng = np.random.default_rng(5)
    for case in range(60):
        n = 1 + case % 10
        kinds = [rng.integers(0, 4, n), np.arange(n), rng.integers(-50, 50, n), rng.integers(0, BIG, n)]
        h = np.sort(kinds[case % 4])
        for k in range(1, n + 1):
            starts = segments.k_groups_sorted(h, k)
            assert starts.size == k + 1
            check(h, starts, 0.0, 0.0, 0.0, naive.least_sse(h.tolist(), k))


def test_k_groups_on_a_straight_piece_are_spliced():
    """Equal gaps: the least SSE falls by the same amount many times, so no price has k as its only answer."""
    h = np.repeat([0, 10, 100, 110, 200, 210, 300, 310], 2)
    errors = [segments.cost(h, segments.k_groups_sorted(h, k), beta=0, a=0, b=0) for k in (4, 5, 6, 7, 8)]
    assert errors == [400.0, 300.0, 200.0, 100.0, 0.0]


def test_k_groups_of_a_thousand_numbers_equal_layers():
    rng = np.random.default_rng(6)
    h = np.sort(np.rint(rng.laplace(0, 100, 300)).astype(np.int64))
    x = (h - h[150]).astype(float)
    one, two = np.append(0, np.cumsum(x)), np.append(0, np.cumsum(x * x))
    best = np.append(0.0, np.full(300, np.inf))
    for k in range(1, 41):
        layer = np.full(301, np.inf)
        for j in range(1, 301):
            d = one[j] - one[:j]
            layer[j] = (best[:j] + two[j] - two[:j] - d * d / (j - np.arange(j))).min()
        best = layer
        found = segments.cost(h, segments.k_groups_sorted(h, k), beta=0, a=0, b=0)
        assert found == pytest.approx(best[-1], rel=1e-9)


def test_greedy_is_algorithm_5():
    for h, beta, a, b in rows(400, 25):
        beta, a = beta + 0.1234567, a + 0.0123456  # no exact ties: the twin has no rounding
        assert clusters.greedy(h, beta=beta, a=a, b=b).tolist() == naive.greedy(h.tolist(), beta, a, b)


def test_ahp_example_3_1():
    h = np.array([1, 1, 3, 3, 4, 6, 7])
    a = 2 / 0.5**2
    assert naive.look_ahead(h, 2, 8) == 1
    sums = np.append(0, np.cumsum(h - h[0]))
    assert clusters._look_ahead(sums, h[2] - h[0], 2, 7, a) == 1.0
    assert clusters.ahp_greedy(h, a=a).tolist() == [0, 2, 5, 7]
    assert clusters._ahp_greedy(h, a, False).tolist() == [0, 2, 5, 7]


def test_ahp_greedy_is_algorithm_3_and_the_stop_rule_is_exact():
    for h, _, a, _ in rows(400, 25, ordered=True):
        a += 0.0123456
        slow = naive.ahp_greedy(h.tolist(), a)
        assert clusters.ahp_greedy(h, a=a).tolist() == slow
        assert clusters._ahp_greedy(h, a, False).tolist() == slow  # by the paper's walk


def test_empirical_takes_the_best_of_four_rules():
    h = np.sort(np.rint(np.random.default_rng(8).laplace(0, 30, 1000)).astype(np.int64))
    root, sturges, doane, rice = clusters.empirical_sizes(h)
    assert (root, sturges, rice) == (32, 11, 20)
    assert doane >= sturges
    costs = {
        k: segments.cost(h, segments.k_groups_sorted(h, k), beta=0, a=900.0, b=0) for k in (32, 11, doane, 20)
    }
    found = clusters.empirical(h, a=900.0)
    assert segments.cost(h, found, beta=0, a=900.0, b=0) == min(costs.values())
    assert clusters.empirical_sizes([5]) == (1, 1, 1, 1)
    assert clusters.empirical([5, 5, 5], a=1.0)[-1] == 3


def test_kd_splits_while_the_variance_is_large():
    for h, _, _, _ in rows(300, 16):
        threshold = float(np.var(h)) / 5 + 0.01
        starts = clusters.kd_splits(h, threshold=threshold)
        slow = naive.kd(h, threshold)
        if starts.tolist() != slow:  # equally good cuts may differ; the groups must still be fine enough
            assert len(set(h.tolist())) < h.size
        for i, j in pairwise(starts):
            assert np.var(h[i:j]) <= threshold * (1 + 1e-9)
    assert clusters.kd_splits(np.array([1, 1, 1, 9, 9, 9, 1, 1]), threshold=2.0).tolist() == [0, 3, 6, 8]
    assert clusters.kd_splits(np.arange(8), threshold=0.3, split="half").tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("block", "short"), [(1, 1), (2, 3), (4, 1), (64, 256)])
def test_cuts_found_by_hulls_are_those_of_looking_everywhere(monkeypatch, block, short):
    monkeypatch.setattr(hulls, "BLOCK", block)
    monkeypatch.setattr(hulls, "SHORT", short)
    rng = np.random.default_rng(block)
    for case in range(60):
        n = int(rng.integers(1, 40)) if case < 50 else 700
        spiky = np.where(rng.random(n) < 0.1, rng.integers(0, 10**6, n), 0)
        tiled = np.resize(rng.integers(0, 50, 7), n)
        for h in (rng.integers(-9, 9, n), spiky, np.sort(spiky), tiled, np.arange(n) ** 2, np.full(n, 3)):
            for threshold in (0.0, 0.4, float(np.var(h)) / 7):
                labels = clusters.kd_grid(h[:, None], threshold=threshold)[:, 0]  # looks at every place
                expected = [*np.flatnonzero(np.diff(labels, prepend=-1)).tolist(), n]
                assert clusters.kd_splits(h, threshold=threshold).tolist() == expected


def test_numbers_whose_products_do_not_fit_are_cut_place_by_place(monkeypatch):
    h = np.random.default_rng(3).integers(0, 2**50, 100)
    assert not hulls.fits(h) and hulls.fits(h >> 35)
    monkeypatch.setattr(clusters, "_kd_row", None)
    assert clusters.kd_splits(h, threshold=1.0).size > 2


def test_loops_of_hulls_are_compiled_once(monkeypatch):
    """Those that call them are compiled here: what is read from disk leaves no trace of inner loops."""
    from numba import njit

    for module, name in ((hulls, "_base_hulls"), (hulls, "_joined_hulls"), (clusters, "_kd_row")):
        monkeypatch.setattr(module, name, njit(getattr(module, name).py_func))
    clusters.kd_splits(np.arange(600) ** 2, threshold=1.0)
    assert len(hulls._base_hulls.signatures) == len(hulls._joined_hulls.signatures) == 1
    assert len(hulls._push.signatures) == len(hulls.best_cut.signatures) == 1


def test_kd_grid_numbers_rectangles():
    grid = np.array([[1, 1, 5], [1, 1, 5], [1, 1, 7]])
    assert clusters.kd_grid(grid, threshold=0.5).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 2]]
    assert clusters.kd_grid(grid, threshold=100.0).max() == 0
    rng = np.random.default_rng(2)
    labels = clusters.kd_grid(rng.integers(0, 9, (13, 7)), threshold=1.0, split="half")
    for g in range(labels.max() + 1):
        r, c = np.nonzero(labels == g)
        assert r.size == (np.ptp(r) + 1) * (np.ptp(c) + 1)


def counts(case, rng, n):
    top = [1, 5, 60, 2**53][case % 4]
    return rng.integers(0, top + 1, n)


def test_window_costs_equal_the_exact_twin():
    rng = np.random.default_rng(4)
    for case in range(300):
        n = int(rng.integers(1, 30))
        x = counts(case, rng, n)
        length, stride = int(rng.integers(1, n + 1)), int(rng.integers(1, 4))
        grid = [1, 2, 16, 1024][case // 4 % 4]
        cap = deviations.cost_cap(n)
        windows = [x[i : i + length] for i in range(0, n - length + 1, stride)]
        means = [min(naive.mean_cost(w, grid), cap) for w in windows]
        medians = [min(naive.median_cost(w), cap) for w in windows]
        assert deviations.mean_costs(x, length, grid=grid, stride=stride).tolist() == means
        assert deviations.median_costs(x, length, stride=stride).tolist() == medians
        values, rank = deviations.ranks(x)
        x = deviations.row_of_counts(x)
        assert deviations._slid(x, values, rank, length, stride, grid).tolist() == means
        assert deviations._slid(x, values, rank, length, stride, 0).tolist() == medians


def test_sliding_is_compiled_for_one_cost_at_a_time():
    x = deviations.row_of_counts(np.arange(9))
    for grid in (1, 0):
        deviations._slid(x, *deviations.ranks(x), 3, 1, grid)
    asked = {(str(given[5]), str(given[6])) for given in deviations._slide.signatures}
    assert asked == {("int64", "none"), ("none", "int64")}


@pytest.mark.long
@pytest.mark.slow
def test_sliding_equals_starting_afresh_over_many_distinct_counts():
    rng = np.random.default_rng(14)
    for x in (rng.permutation(20_000), rng.integers(0, 300, 9000) ** 2, np.cumsum(rng.integers(0, 3, 9000))):
        x = deviations.row_of_counts(x)
        ranked, cap = deviations.ranks(x), deviations.cost_cap(x.size)
        for length in (2, 33, 256):
            slow = np.empty(x.size - length + 1, np.int64)
            deviations._mean_short(x, length, 1, 4, cap, slow)
            assert (deviations._slid(x, *ranked, length, 1, 4) == slow).all()
            deviations._median_short(x, 1, cap, np.sort(x[:length]), slow)
            assert (deviations._slid(x, *ranked, length, 1, 0) == slow).all()


def test_one_record_changes_a_cost_by_at_most_its_sensitivity():
    rng = np.random.default_rng(7)
    for case in range(400):
        m = int(rng.integers(1, 9))
        x = counts(case, rng, m)
        x = np.minimum(x, 2**40)
        y = x.copy()
        y[rng.integers(m)] += 1
        for grid in (1, 8):
            bound = -(-2 * grid * (m - 1) // m)
            change = abs(
                int(deviations.mean_costs(x, m, grid=grid)[0] - deviations.mean_costs(y, m, grid=grid)[0])
            )
            assert change <= bound
        change = abs(int(deviations.median_costs(x, m)[0] - deviations.median_costs(y, m)[0]))
        assert change <= (m > 1)
    tight = [int(deviations.mean_costs(np.array([c, 0, 0, 0]), 4)[0]) for c in (1, 2)]
    assert tight == [1, 3]  # the bound is reached: 2 for four bins


def test_rows_equal_the_exact_twin():
    rng = np.random.default_rng(11)
    for case in range(80):
        n = int(rng.integers(1, 22))
        x = deviations.row_of_counts(counts(case, rng, n))
        values, rank = deviations.ranks(x)
        cap = deviations.cost_cap(n)
        entry = l1_search.entries(rank, values.size)
        lists = l1_search.empty_lists(values.size)
        work, out = np.empty_like(lists), np.zeros(n, np.int64)
        for j in range(1, n + 1):
            l1_search.enter(j, rank, entry, lists)
            l1_search.mean_row(j, x, values, rank, lists, work, 8, cap, out)
            assert out[:j].tolist() == [min(naive.mean_cost(x[i:j], 8), cap) for i in range(j)]
            l1_search.median_row(j, x, values, rank, lists, work, cap, out)
            assert out[:j].tolist() == [min(naive.median_cost(x[i:j]), cap) for i in range(j)]


def test_best_intervals_equal_all_lengths():
    rng = np.random.default_rng(12)
    for case in range(60):
        n = int(rng.integers(1, 14))
        x = rng.integers(0, [2, 9, 100][case % 3], n)
        lengths = list(range(1, n + 1))
        for center, cost in (("mean", lambda w: naive.mean_cost(w, 4)), ("median", naive.median_cost)):
            costs = [np.array([cost(x[i : i + m]) + 3 for i in range(n - m + 1)]) for m in lengths]
            starts = l1_search.best_intervals(x, center=center, penalty=3, grid=4)
            total = sum(int(costs[j - i - 1][i]) for i, j in pairwise(starts))
            assert total == naive.dp_lengths(costs, lengths)
            assert starts.tolist() == l1_search.dp_lengths(costs, lengths).tolist()


def test_dp_lengths_is_optimal_with_a_fixed_tie_order():
    rng = np.random.default_rng(13)
    for case in range(200):
        n = int(rng.integers(1, 40))
        lengths = [1 << k for k in range(n.bit_length())]
        scale = [3, 1000, 2**61][case % 3]  # the last overflows int64 when added
        costs = [rng.integers(-scale, scale, n - m + 1) for m in lengths]
        starts = l1_search.dp_lengths(costs, lengths)
        total = sum(int(costs[int(j - i).bit_length() - 1][i]) for i, j in pairwise(starts))
        assert total == naive.dp_lengths(costs, lengths)
        if scale <= 1000:
            table = np.zeros((len(lengths), n), np.int32)
            for row, found in zip(table, costs, strict=True):
                row[: found.size] = found
            assert l1_search.dp_lengths(table, lengths).tolist() == starts.tolist()
            wide = [found << 32 for found in costs]
            assert l1_search.dp_lengths(wide, lengths).tolist() == starts.tolist()
    ties = [np.zeros(4 - m + 1, np.int64) for m in (1, 2, 4)]
    assert l1_search.dp_lengths(ties, [1, 2, 4]).tolist() == [0, 1, 2, 3, 4]


def test_dp_subtrees_equals_enumeration():
    rng = np.random.default_rng(15)
    for fanout, height in ((2, 3), (3, 2), (4, 1), (2, 0)):
        n = fanout**height
        for scale in (4, 50, 2**61):
            costs = [rng.integers(-scale, scale, n // fanout**k) for k in range(height + 1)]
            sizes = {fanout**k: k for k in range(height + 1)}

            def total(starts, costs=costs, sizes=sizes):
                return sum(int(costs[sizes[j - i]][i // (j - i)]) for i, j in pairwise(starts))

            found = l1_search.dp_subtrees(costs, fanout).tolist()
            least = min(total([*p, n]) for p in naive.subtree_partitions(n, fanout))
            assert total(found) == least
    assert l1_search.dp_subtrees([np.zeros(7, np.int64), np.full(3, -1)], 2).tolist() == [0, 2, 4, 6, 7]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: segments.optimal_sorted([2, 1], beta=1, a=1, b=0),
        lambda: segments.optimal_sorted([], beta=1, a=1, b=0),
        lambda: segments.optimal_sorted([1.0, np.nan], beta=1, a=1, b=0),
        lambda: segments.optimal_sorted([1, 2], beta=-1, a=1, b=0),
        lambda: segments.k_groups_sorted([1, 2], 3),
        lambda: segments.cost([1, 2], np.array([0, 1]), beta=0, a=0, b=0),
        lambda: changepoints.optimal_runs([1, 2], beta=np.inf),
        lambda: changepoints.optimal_runs(["a"], beta=1),
        lambda: clusters.kd_splits([1, 2], threshold=-1),
        lambda: clusters.kd_grid([1, 2], threshold=1),
        lambda: deviations.mean_costs(np.arange(3), 4),
        lambda: deviations.mean_costs(np.arange(3), 2, grid=3),
        lambda: deviations.median_costs(np.arange(3.0), 2),
        lambda: l1_search.dp_lengths([np.arange(3)], [2]),
        lambda: l1_search.dp_subtrees([np.arange(4), np.arange(3)], 2),
    ],
)
def test_wrong_input_is_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


def seconds(function, repeats=3):
    """CPU time, the least of several."""
    found = []
    for _ in range(repeats):
        begin = process_time()
        function()
        found.append(process_time() - begin)
    return min(found)


@pytest.mark.long
@pytest.mark.slow
def test_a_million_bins_take_a_few_sorts():
    rng = np.random.default_rng(1)
    n = 1_000_000
    doubles = rng.normal(size=n)
    sort = seconds(lambda: np.argsort(doubles, kind="stable"))
    noise = np.rint(rng.laplace(0, 20, n)).astype(np.int64)
    noisy = np.repeat(rng.zipf(1.5, n // 100).clip(max=10**6), 100) + noise
    ordered = np.sort(noisy)
    variance = 800.0
    figures = {
        "optimal_sorted": lambda: segments.optimal_sorted(ordered, beta=0.0, a=variance, b=0.0),
        "optimal_sorted, two penalties": lambda: segments.optimal_sorted(
            ordered, beta=variance, a=variance, b=1.0
        ),
        "optimal_runs": lambda: changepoints.optimal_runs(noisy, beta=variance),
        "optimal_runs, 2 s^2 ln n": lambda: changepoints.optimal_runs(noise, beta=2 * variance * np.log(n)),
        "optimal_runs, by size": lambda: changepoints.optimal_runs(noisy, beta=variance, a=variance),
        "optimal_runs, thresholded": lambda: changepoints.optimal_runs(
            np.where(noisy < 100, 0, noisy), beta=variance, a=variance
        ),
        "powers_of_two": lambda: changepoints.powers_of_two(noisy, beta=variance, a=variance, b=0.0),
        "ahp_greedy": lambda: clusters.ahp_greedy(ordered, a=variance),
    }
    for name, run in figures.items():
        assert seconds(run, 2) < 7 * sort, name


@pytest.mark.slow
def test_l1_costs_and_search_of_a_million_bins_take_fewer_than_thirty_sorts():
    rng = np.random.default_rng(2)
    n = 1 << 20
    doubles = rng.normal(size=n)
    sort = seconds(lambda: np.argsort(doubles, kind="stable"))
    x = rng.zipf(1.5, n).clip(max=10**4)
    lengths = [1 << k for k in range(21)]

    def run():
        ranked = deviations.ranks(x)
        table = np.zeros((21, n), np.int64)
        for k, m in enumerate(lengths):
            table[k, : n - m + 1] = deviations.mean_costs(x, m, ranked=ranked)
        return l1_search.dp_lengths(table, lengths)

    assert seconds(run, 1) < 20 * sort


def test_exactness_is_of_the_objective():
    """The approximation and the greedy methods are never below the optimum."""
    for h, beta, a, b in rows(300, 60, ordered=True):
        least = segments.cost(h, segments.optimal_sorted(h, beta=beta, a=a, b=b), beta=beta, a=a, b=b)
        for other in (
            changepoints.powers_of_two(h, beta=beta, a=a, b=b),
            clusters.greedy(h, beta=beta, a=a, b=b),
            clusters.ahp_greedy(h, a=a),
        ):
            assert segments.cost(h, other, beta=beta, a=a, b=b) >= least * (1 - 1e-9) - 1e-9
    assert Fraction(1, 3) + naive.sse([1, 2]) == Fraction(5, 6)


def test_ranks_of_small_and_of_large_counts_are_those_of_sorting():
    rng = np.random.default_rng(21)
    for n in (1, 2, 7, 100):
        for top in (1, 3, deviations._FEW_EACH * n, deviations._FEW_EACH * n + 1, 2**53):
            x = rng.integers(0, top + 1, n)
            x[0] = top
            values, rank = deviations.ranks(x)
            expected, places = np.unique(x, return_inverse=True)
            assert values.dtype == np.int64 and rank.dtype == np.int32
            assert values.tolist() == expected.tolist() and rank.tolist() == places.tolist()


def test_lists_of_all_bins_are_those_of_entering_each():
    rng = np.random.default_rng(22)
    for n in (1, 2, 5, 60):
        _, rank = deviations.ranks(rng.integers(0, 9, n))
        distinct = int(rank.max()) + 1
        lists, entry = l1_search.empty_lists(distinct), l1_search.entries(rank, distinct)
        for j in range(1, n + 1):
            l1_search.enter(j, rank, entry, lists)
        assert l1_search.full_lists(rank, distinct).tolist() == lists.tolist()


def test_costs_of_runs_with_empty_bins_are_distances_from_their_medians():
    rng = np.random.default_rng(23)
    for _ in range(200):
        sizes = rng.integers(1, 9, int(rng.integers(1, 8)))
        held = rng.integers(0, sizes + 1)
        x, last = rng.integers(1, 20, max(int(held.sum()), 1)), np.cumsum(held)
        sums = np.concatenate(([0], np.cumsum(x)))
        found = deviations.run_costs(x, sums, last - held, last, sizes)
        for cost, size, many, end in zip(found, sizes, held, last, strict=True):
            run = np.concatenate((np.zeros(size - many, int), x[end - many : end]))
            assert cost == naive.median_cost(run)
