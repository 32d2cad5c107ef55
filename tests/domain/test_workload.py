"""Workloads against twins that list every query and add with exact fractions."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dphist.domain import Categories, Domain, Integers, Regular
from dphist.domain import workload as wl
from dphist.errors import UsageError

# ------------------------------------------------------------------ the slow, obvious twin


def listed(w):
    """Every query as the list of the (flat) bins it adds up."""
    n = w.n
    if isinstance(w, wl.Points):
        return [[i] for i in range(n)]
    if isinstance(w, wl.Prefixes):
        return [list(range(j)) for j in range(1, n + 1)]
    if isinstance(w, wl.AllRanges):
        return [list(range(i, j)) for i in range(n) for j in range(i + 1, n + 1)]
    if isinstance(w, wl.RangesOfLength):
        return [list(range(i, i + v)) for v in w.lengths for i in range(n) if i + v <= n]
    if isinstance(w, wl.Ranges):
        return [list(range(i, j)) for i, j in zip(w.lo.tolist(), w.hi.tolist(), strict=True)]
    columns = w.shape[1]
    ends = zip(w.x0.tolist(), w.x1.tolist(), w.y0.tolist(), w.y1.tolist(), strict=True)
    return [[x * columns + y for x in range(a, b) for y in range(c, d)] for a, b, c, d in ends]


def exact(w, x):
    x = [Fraction(v) for v in np.asarray(x).ravel().tolist()]
    return [sum(x[i] for i in query) for query in listed(w)]


def check_against_twin(w, x):
    truth = exact(w, x)
    tiny = 1e-22 * float(np.abs(x).sum() + 1) * w.size
    assert w.size == len(truth)
    assert w.answers(x).tolist() == pytest.approx([float(v) for v in truth], rel=1e-9, abs=tiny)
    for method, twin in (
        ("squared_error", sum(v * v for v in truth)),
        ("absolute_error", sum(abs(v) for v in truth)),
        ("max_absolute_error", max(abs(v) for v in truth)),
        ("mean_squared_error", sum(v * v for v in truth) / len(truth)),
        ("mean_absolute_error", sum(abs(v) for v in truth) / len(truth)),
    ):
        assert getattr(w, method)(x) == pytest.approx(float(twin), rel=1e-9, abs=tiny), method


@st.composite
def ranges(draw, n):
    pairs = draw(st.lists(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True), min_size=1))
    lo, hi = np.sort(np.array(pairs), axis=1).T
    return lo, hi


@st.composite
def workloads(draw):
    n = draw(st.integers(1, 30))
    kind = draw(st.sampled_from(["points", "prefixes", "all", "length", "explicit", "rectangles"]))
    if kind == "length":
        lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
        return wl.RangesOfLength(n, (draw(st.integers(1, n)), *lengths))
    if kind == "explicit":
        return wl.Ranges(n, *draw(ranges(n)))
    if kind == "rectangles":
        rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        m = draw(st.integers(1, 6))
        x, y = (
            np.sort(
                [draw(st.lists(st.integers(0, k), min_size=2, max_size=2, unique=True)) for _ in range(m)]
            ).T
            for k in (rows, columns)
        )
        return wl.Rectangles((rows, columns), *x, *y)
    return {"points": wl.Points, "prefixes": wl.Prefixes, "all": wl.AllRanges}[kind](n)


@given(workloads(), st.data())
@settings(max_examples=300, deadline=None)
def test_every_workload_agrees_with_its_twin_on_decimals(w, data):
    # Eighths are exact in binary: what a grid's corners lose to cancellation is measured below.
    grain = 8 if isinstance(w, wl.Rectangles) else 1000
    whole = st.lists(st.integers(-(10**8), 10**8), min_size=w.n, max_size=w.n)
    check_against_twin(w, np.array(data.draw(whole)) / grain)


@given(workloads(), st.data())
@settings(max_examples=150, deadline=None)
def test_integers_are_added_exactly(w, data):
    x = np.array(data.draw(st.lists(st.integers(-(2**53), 2**53), min_size=w.n, max_size=w.n)))
    answers = w.answers(x)
    assert answers.dtype == np.int64
    assert answers.tolist() == exact(w, x)
    assert w.squared_error(x) == pytest.approx(w.squared_error(x.astype(float)), rel=1e-12)


@given(workloads())
@settings(max_examples=150, deadline=None)
def test_coverage_counts_the_queries_of_each_bin(w):
    queries = listed(w)
    twin = np.zeros(w.n)
    for query in queries:
        twin[query] += 1
    assert w.coverage().tolist() == twin.tolist()
    assert w.coverage().sum() == sum(map(len, queries))
    # A query's answer to all ones is its length.
    assert w.coverage().sum() == w.answers(np.ones(w.shape, dtype=int)).sum()


@given(workloads())
@settings(max_examples=100, deadline=None)
def test_the_pairs_spell_out_the_queries(w):
    if isinstance(w, wl.Rectangles):
        return
    lo, hi = w.pairs()
    assert [list(range(i, j)) for i, j in zip(lo.tolist(), hi.tolist(), strict=True)] == listed(w)
    same = wl.Ranges(w.n, lo, hi)
    assert same.squared_error(np.arange(w.n)) == pytest.approx(w.squared_error(np.arange(w.n)), rel=1e-12)


@given(workloads())
@settings(max_examples=150, deadline=None)
def test_a_workload_comes_back_from_its_description(w):
    back = wl.workload_from_dict(json.loads(json.dumps(w.to_dict())))
    assert type(back) is type(w)
    assert back == w and hash(back) == hash(w)
    assert listed(back) == listed(w)


# ------------------------------------------------------------------ numbers that cancel


def test_a_small_bin_between_huge_ones_keeps_its_value():
    x = np.array([1e16, 1.0, 1.0, -1e16, 3.0])
    check_against_twin(wl.RangesOfLength(5, (1, 2)), x)
    assert wl.explicit(5, [(1, 3)]).answers(x).tolist() == [2.0]  # plain prefix sums say 0 or 4
    assert np.diff(np.cumsum(x)[[0, 2]]).tolist() != [2.0]


@pytest.mark.parametrize("w", [wl.AllRanges(800), wl.Prefixes(800), wl.small(800)])
def test_a_common_bias_does_not_cost_digits(w):
    x = 1e9 + np.random.default_rng(1).normal(size=800)
    lo, hi = w.pairs()
    p = [Fraction(0)]
    for v in x.tolist():
        p.append(p[-1] + Fraction(v))
    if w.size > 10_000:  # the closed forms, in exact arithmetic
        assert w.squared_error(x) == pytest.approx(
            float(801 * sum(v * v for v in p) - sum(p) ** 2), rel=1e-12
        )
        twin = sum(abs(float(p[j] - p[i])) for i in range(0, 800, 7) for j in range(i + 1, 801))
        some = wl.explicit(800, [(i, j) for i in range(0, 800, 7) for j in range(i + 1, 801)])
        assert some.absolute_error(x) == pytest.approx(twin, rel=1e-12)
    else:
        truth = [p[j] - p[i] for i, j in zip(lo.tolist(), hi.tolist(), strict=True)]
        assert w.answers(x).tolist() == pytest.approx([float(v) for v in truth], rel=1e-15)


def test_all_ranges_of_an_error_that_is_nearly_nothing_but_bias_in_one_bin():
    x = np.zeros(30)
    x[0] = 1e12  # every prefix sum but the first is huge, and their differences are not
    x[1:] = np.random.default_rng(2).normal(size=29)
    check_against_twin(wl.AllRanges(30), x)


def test_one_wrong_bin_among_a_million_cancels_nothing():
    x = np.zeros(10**6)
    x[0] = 0.1  # the n ranges that contain it are each wrong by it; (n+1) sum p^2 and (sum p)^2 nearly agree
    assert wl.AllRanges(10**6).squared_error(x) == pytest.approx(0.01 * 10**6, rel=1e-11)
    assert wl.AllRanges(10**6).absolute_error(x) == pytest.approx(0.1 * 10**6, rel=1e-13)


def test_rectangles_of_a_large_grid_of_noise_and_bias():
    shape = (150, 170)
    x = 100 + np.random.default_rng(3).normal(size=shape)
    w = wl.Rectangles(shape, [0, 149, 70, 0], [1, 150, 73, 150], [0, 169, 80, 0], [1, 170, 82, 170])
    truth = exact(w, x)
    assert w.answers(x).tolist() == pytest.approx([float(v) for v in truth], rel=1e-10)
    assert w.answers(x.ravel()).tolist() == w.answers(x).tolist()


def test_totals_over_all_ranges_of_a_million_bins_list_none_of_them(monkeypatch):
    monkeypatch.setattr(wl.AllRanges, "_blocks", lambda self: pytest.fail("the ranges were listed"))
    w = wl.AllRanges(10**6)
    n = 10**6  # a unit error in every bin: the sum of L^2 (n+1-L) over the lengths L
    assert w.squared_error(np.ones(n)) == pytest.approx(n * (n + 1) ** 2 * (n + 2) // 12, rel=1e-12)
    assert w.absolute_error(np.ones(n)) == pytest.approx(n * (n + 1) * (n + 2) // 6, rel=1e-12)
    assert w.size == 500_000_500_000


# ------------------------------------------------------------------ the named sets


def test_one_bin_has_one_query():
    for w in (
        wl.Points(1),
        wl.Prefixes(1),
        wl.AllRanges(1),
        wl.small(1),
        wl.fraction(1, 5),
        wl.random(1, 1),
    ):
        assert w.size == 1
        assert w.answers([7]).tolist() == [7]
        assert w.squared_error([-3]) == 9.0
        assert w.absolute_error([-3]) == w.max_absolute_error([-3]) == 3.0
        assert w.coverage().tolist() == [1.0]


def test_small_and_big_ranges_are_as_published():
    assert wl.small(1000).lengths == tuple(range(1, 11))
    assert wl.big(5000).lengths == tuple(range(100, 1001, 100))
    assert wl.small(1000).size == sum(1001 - v for v in range(1, 11))
    assert wl.small(4).lengths == (1, 2, 3, 4)
    assert wl.big(250).lengths == (100, 200)
    with pytest.raises(UsageError, match="1 to 99 bins"):
        wl.big(99)


def test_a_fraction_is_all_ranges_of_that_part_of_the_domain():
    assert wl.fraction(1442, 64).lengths == (923,)
    assert wl.fraction(200, 1).lengths == (2,)
    assert wl.fraction(10, 1).lengths == (1,)
    assert wl.fraction(10, 100).size == 1


def test_identity_error_of_points_is_the_plain_sum():
    x = np.random.default_rng(5).normal(size=50)
    assert wl.Points(50).squared_error(x) == pytest.approx(float(x @ x), rel=1e-15)
    assert wl.Points(50).answers(x).tolist() == x.tolist()


# ------------------------------------------------------------------ public samples


def test_random_ranges_are_the_same_everywhere():
    w = wl.random(1000, 5)
    assert w.lo.tolist() == [764, 328, 134, 34, 221]
    assert w.hi.tolist() == [892, 567, 573, 216, 528]
    assert wl.random(1000, 5) == w and wl.random(1000, 5, draw=1) != w
    assert wl.random(1000, 5000).lo[:5].tolist() == w.lo.tolist()  # a longer sample begins with the shorter
    c = wl.clustered(4096, 6)
    assert c.lo.tolist() == [2290, 3831, 2596, 1968, 3055, 2148]
    assert c.hi.tolist() == [2533, 4096, 2886, 2172, 3520, 2758]
    r = wl.random_rectangles((10, 20), 4)
    assert [r.x0.tolist(), r.x1.tolist()] == [[3, 1, 3, 5], [4, 10, 6, 7]]
    assert [r.y0.tolist(), r.y1.tolist()] == [[8, 8, 15, 3], [10, 12, 20, 7]]


@pytest.mark.parametrize("draw", range(5))
def test_the_ends_of_random_ranges_are_two_uniform_bins(draw):
    n, m = 7, 40_000
    w = wl.random(n, m, draw=draw)
    table = np.zeros((n, n))
    np.add.at(table, (w.lo, w.hi - 1), 1)
    seen = table[np.triu_indices(n)]
    pairs = np.where(np.equal(*np.triu_indices(n)), 1, 2) * m / n**2
    assert table.sum() == seen.sum() == m
    assert stats.chisquare(seen, pairs).pvalue > 1e-4
    assert stats.chisquare(seen, np.full(seen.size, m / seen.size)).pvalue < 1e-9  # not all ranges alike


def test_random_rectangles_have_independent_uniform_sides():
    w = wl.random_rectangles((3, 4), 40_000)
    table = np.zeros((6, 10))
    rows, columns = (np.zeros((k, k), dtype=int) for k in (3, 4))
    rows[np.triu_indices(3)], columns[np.triu_indices(4)] = range(6), range(10)
    np.add.at(table, (rows[w.x0, w.x1 - 1], columns[w.y0, w.y1 - 1]), 1)
    chance = [np.where(np.equal(*np.triu_indices(k)), 1, 2) / k**2 for k in (3, 4)]
    assert stats.chisquare(table.ravel(), np.outer(*chance).ravel() * 40_000).pvalue > 1e-4


@pytest.mark.parametrize("sd", [256, 1024])
def test_clustered_ranges_are_as_published(sd):
    n, m = 10**6, 5 * 2000
    w = wl.clustered(n, m, sd=sd, draw=3)
    lo, hi = w.lo.reshape(-1, 5), w.hi.reshape(-1, 5)
    centre = (lo.max(axis=0) + hi.min(axis=0) - 1) / 2  # all ranges of a cluster contain its centre
    assert (lo.max(axis=0) < hi.min(axis=0)).all() and (hi.min(axis=0) - lo.max(axis=0) < 0.02 * sd).all()
    assert len(set(np.round(centre))) == 5
    left, right = (centre - lo).ravel() + 0.5, (hi - 1 - centre).ravel() + 0.5  # cut to whole bins
    for side in (left, right):
        assert stats.kstest(side, stats.halfnorm(scale=sd).cdf).pvalue > 1e-4
        assert stats.kstest(side, stats.halfnorm(scale=1.1 * sd).cdf).pvalue < 1e-6
    assert abs(np.corrcoef(left, right)[0, 1]) < 0.04
    assert (hi - lo).mean() == pytest.approx(2 * sd * np.sqrt(2 / np.pi), rel=0.03)


def test_centres_of_clusters_are_uniform_and_ranges_end_with_the_domain():
    centres = [int(wl.clustered(8, 1, centers=1, sd=1e-9, draw=d).lo[0]) for d in range(4000)]
    assert stats.chisquare(np.bincount(centres, minlength=8)).pvalue > 1e-4
    w = wl.clustered(300, 2000, sd=1024)
    assert w.lo.min() == 0 and w.hi.max() == 300


# ------------------------------------------------------------------ what a person writes


@pytest.mark.parametrize(
    ("spec", "kind", "size"),
    [
        ("points", wl.Points, 1200),
        ("prefixes", wl.Prefixes, 1200),
        ("ranges", wl.AllRanges, 1200 * 1201 // 2),
        ("random", wl.Ranges, 2000),
        ("random:17", wl.Ranges, 17),
        ("random:17:4", wl.Ranges, 17),
        ("clustered", wl.Ranges, 2000),
        ("large-clustered:10", wl.Ranges, 10),
        ("small", wl.RangesOfLength, sum(1201 - v for v in range(1, 11))),
        ("big", wl.RangesOfLength, sum(1201 - v for v in range(100, 1001, 100))),
        ([(0, 1), (5, 1200)], wl.Ranges, 2),
        (np.array([[0, 1], [5, 1200]], dtype=np.uint64), wl.Ranges, 2),
        (iter([[0, 1], [0, 1]]), wl.Ranges, 2),
        (wl.Prefixes(1200), wl.Prefixes, 1200),
    ],
)
def test_make_workload_understands(spec, kind, size):
    made = wl.make_workload(spec, Domain((Integers(1, 1200),)))
    assert type(made) is kind
    assert made.size == size and made.n == 1200


def test_names_stand_for_the_functions():
    assert wl.make_workload("random:17:4", 1200) == wl.random(1200, 17, draw=4)
    assert wl.make_workload("clustered:9", (1200,)) == wl.clustered(1200, 9)
    assert wl.make_workload("large-clustered", 1200) == wl.clustered(1200, 2000, sd=1024)
    assert wl.make_workload("rectangles:5", (4, 6)) == wl.random_rectangles((4, 6), 5)


def test_a_grid_takes_rectangles_and_points():
    grid = Domain((Regular(lo=0, hi=1, bins=4), Categories(("a", "b", "c"))))
    assert wl.make_workload("points", grid) == wl.Points(12)
    assert wl.make_workload(wl.Points(12), grid) == wl.Points(12)
    assert wl.make_workload("rectangles", grid).shape == (4, 3)
    own = wl.random_rectangles((4, 3), 7)
    assert wl.make_workload(own, grid) is own
    for spec in ("ranges", "prefixes", "random", "big", [(0, 3)], [(0, 1, 0, 1)], wl.AllRanges(12)):
        with pytest.raises(UsageError, match="use rectangles"):
            wl.make_workload(spec, grid)
    with pytest.raises(UsageError, match="shape"):
        wl.make_workload(wl.random_rectangles((3, 4), 7), grid)


BAD = [
    ("rangs", 10, "Did you mean 'ranges'"),
    ("", 10, "no workload"),
    ("points:3", 10, "not understood"),
    ("ranges:0", 10, "write points, prefixes, ranges, .*drawn at random: random:2000, .*rectangles:2000"),
    ("random:", 10, "not understood"),
    ("random:-5", 10, "not understood"),
    ("random:2.5", 10, "not understood"),
    ("random:1:2:3", 10, "not understood"),
    ("random:0", 10, "1 to 10000000 queries"),
    ("random:99999999999", 10, "1 to 10000000 queries"),
    ("rectangles", 10, "grid of two"),
    ("big", 50, "1 to 50 bins"),
    (wl.Points(9), 10, r"\(9,\)"),
    (wl.random_rectangles((2, 5), 3), 10, "shape"),
    ([], 10, "needs queries"),
    (None, 10, "list of pairs"),
    (3, 10, "list of pairs"),
    ((0, 5), 10, r"queries\[0\] must be a pair"),
    ([(0, 5), (1, 2, 3)], 10, r"queries\[1\] must be a pair"),
    ([(0, 5), "ab"], 10, r"queries\[1\]"),
    ([(0, 5), (float("nan"), 3)], 10, r"queries\[1\].*nan"),
    ([(0, 5), (1, float("inf"))], 10, r"queries\[1\].*inf"),
    ([(0, 5), (1, 2.5)], 10, r"queries\[1\].*2\.5"),
    ([(0, 5), (1, 2.0)], 10, r"queries\[1\].*write 2"),
    ([(0, 5), (False, True)], 10, r"queries\[1\]"),
    ([(0, 5), ("1", 2)], 10, r"queries\[1\]"),
    ([(0, 5), (4, 4)], 10, r"queries\[1\] is \[4, 4\)"),
    ([(0, 5), (7, 4)], 10, r"queries\[1\] is \[7, 4\)"),
    ([(0, 5), (0, 11)], 10, r"queries\[1\] is \[0, 11\)"),
    ([(0, 5), (-1, 4)], 10, r"queries\[1\] is \[-1, 4\)"),
    ([(0, 5), (0, 10**30)], 10, r"queries\[1\]"),
    (np.array([[0, 5], [2**63, 2**63 + 5]], dtype=np.uint64), 10, r"queries\[1\]"),
    (np.array([[0.0, 5.0]]), 10, r"queries\[0\]"),
    ("points", 0, "1 to"),
    ("points", -3, "1 to"),
    ("points", 2.0, "whole number"),
    ("points", (1 << 62) + 1, "1 to"),
    ("small", 1 << 40, "points, prefixes, ranges"),
    ("random:5", 1 << 40, "points, prefixes, ranges"),
    ("points", (), "one axis"),
    ("points", (2, 3, 4), "one axis"),
]


@pytest.mark.parametrize(("spec", "over", "says"), BAD)
def test_bad_workloads_are_refused_with_the_reason(spec, over, says):
    with pytest.raises(UsageError, match=says):
        wl.make_workload(spec, over)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: wl.RangesOfLength(10, ()), "1 to 10 bins"),
        (lambda: wl.RangesOfLength(10, (0, 1)), "1 to 10 bins"),
        (lambda: wl.RangesOfLength(10, (1.5,)), r"lengths\[0\]"),
        (lambda: wl.fraction(10, 0), "percentage"),
        (lambda: wl.fraction(10, 101), "percentage"),
        (lambda: wl.fraction(10, float("nan")), "percentage"),
        (lambda: wl.fraction(10, "5"), "percentage"),
        (lambda: wl.clustered(10, 5, sd=0), "sd must"),
        (lambda: wl.clustered(10, 5, sd=float("nan")), "sd must"),
        (lambda: wl.clustered(10, 5, centers=0), "sample"),
        (lambda: wl.clustered(10, 0), "sample"),
        (lambda: wl.random(10, 5, draw=1.5), "draw"),
        (lambda: wl.random(0, 5), "1 to"),
        (lambda: wl.random((3, 4), 5), "one axis"),
        (lambda: wl.Ranges(10, [0, 1], [2]), "as many lows"),
        (lambda: wl.Ranges(10, np.array([[0, 1]]), np.array([[2, 3]])), "as many lows"),
        (lambda: wl.Rectangles((4, 4), [0], [2], [1], [5]), r"queries\[0\] is y in \[1, 5\)"),
        (lambda: wl.Rectangles((4, 4), [0, 1], [2, 2], [1], [2]), "as many ranges of x"),
        (lambda: wl.Rectangles((16,), [0], [2], [1], [2]), "grid of two"),
        (lambda: wl.workload_from_dict({"kind": "hexagons", "n": 3}), "hexagons"),
        (lambda: wl.workload_from_dict({"kind": "points"}), "points"),
        (lambda: wl.workload_from_dict({"kind": "explicit", "n": 3, "lo": [0], "hi": [9]}), r"queries\[0\]"),
        (lambda: wl.AllRanges(10**5).answers(np.zeros(10**5)), "use the totals"),
        (lambda: wl.AllRanges(10**5).pairs(), "use the totals"),
        (lambda: wl.Points(3).answers([1.0, 2.0]), "over 3 bins"),
        (lambda: wl.AllRanges(6).squared_error(np.zeros((2, 3))), "over 6 bins"),
        (lambda: wl.Points(3).squared_error([1.0, float("nan"), 0.0]), "finite"),
        (lambda: wl.Prefixes(2).squared_error([1e308, 1e308]), "finite"),
        (lambda: wl.Points(2).answers(["a", "b"]), "numbers"),
        (lambda: wl.Prefixes(2).answers(np.array([2**62, 2**62])), r"2\*\*62"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(make, says):
    with pytest.raises(UsageError, match=says):
        make()


def test_a_workload_never_changes():
    lo, hi = np.array([0, 2]), np.array([1, 5])
    w = wl.Ranges(5, lo, hi)
    lo[0] = 4
    assert w.lo.tolist() == [0, 2]
    with pytest.raises(ValueError, match="read-only"):
        w.lo[0] = 3
    for attribute in ("n", "lo", "size"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(w, attribute, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        wl.Points(3).n = 4


def test_different_workloads_differ():
    different = [
        wl.Points(4),
        wl.Points(5),
        wl.Prefixes(4),
        wl.AllRanges(4),
        wl.RangesOfLength(4, (1,)),
        wl.RangesOfLength(4, (4,)),
        wl.explicit(4, [(0, 1), (2, 3)]),
        wl.explicit(4, [(2, 3), (0, 1)]),
        wl.Rectangles((2, 2), [0], [1], [0], [1]),
    ]
    assert len(set(different)) == len(different)
    assert wl.Points(4) != "points" and repr(wl.AllRanges(4)) == "AllRanges(10 queries, shape=(4,))"
