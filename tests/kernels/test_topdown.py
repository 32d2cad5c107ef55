"""Whole numbers over trees of groups: against a slow twin, and what they promise of any estimates."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.errors import UsageError
from dphist.kernels import halving, levels, topdown
from dphist.release.postprocess import present_levels


def some_tree(draw, depth, tops):
    parents, size = [], tops
    for _ in range(depth - 1):
        parents.append(np.repeat(np.arange(size), draw.integers(1, 6, size)))
        size = parents[-1].size
    return tuple(parents)


def some_case(seed, *, depth=None, bins=None, size=None):
    """A tree, estimates that add up, and their variances; many counts near 0 or below."""
    draw = np.random.default_rng(seed)
    depth = int(draw.integers(1, 5)) if depth is None else depth
    bins = int(draw.integers(1, 12)) if bins is None else bins
    tops = int(draw.integers(1, 4))
    parents = some_tree(draw, depth, tops)
    scale = float(draw.choice([0.1, 3.0, 50.0, 1e6])) if size is None else size
    y = [
        draw.normal(draw.choice([-1, 0, 1]) * scale, scale, (count, bins))
        for count in (tops, *(p.size for p in parents))
    ]
    v = [np.exp(draw.normal(0, 1, len(rows))) for rows in y]
    return parents, levels.reconcile(parents, v, y), levels.variances(parents, v)


# ---- one share


def slow_level(y, h, bound, total):
    """Return the projection, in fractions: the places where a child stops, and lines between them."""
    y, h, bound = ([Fraction(v) for v in each] for each in (y, h, map(int, bound)))

    def at(t):
        return [min(max(a - t * b, Fraction(0)), c) for a, b, c in zip(y, h, bound, strict=True)]

    places = sorted({(a - v) / b for a, b, c in zip(y, h, bound, strict=True) for v in (0, c)})
    place = next(p for p in places if sum(at(p)) <= total)
    if sum(at(place)) < total:
        before = places[places.index(place) - 1]
        high, low = sum(at(before)), sum(at(place))
        place = before + (place - before) * (high - total) / (high - low)
    return [float(x) for x in at(place)]


def shared(y, h, bound, total, start):
    out = np.empty(len(y), dtype=np.int64)
    topdown.share(
        np.asarray(y, float), np.asarray(h, float), np.asarray(bound, np.int64), int(total), start, out
    )
    return out


@st.composite
def shares(draw):
    m = draw(st.integers(1, 7))
    number = st.integers(-80, 160).map(lambda v: v / 8) | st.floats(-1e6, 1e6)
    y = draw(st.lists(number, min_size=m, max_size=m))
    h = draw(st.lists(st.sampled_from([0.25, 1.0, 1.0, 3.0, 0.7]), min_size=m, max_size=m))
    bound = draw(st.lists(st.integers(0, 12), min_size=m, max_size=m))
    return y, h, bound, draw(st.integers(0, sum(bound)))


@given(shares())
def test_a_share_is_the_nearest_point_of_the_box_with_that_sum(case):
    """Over all starts the mean of the whole numbers is the exact projection: so rounding is unbiased too."""
    y, h, bound, total = case
    wanted = slow_level(y, h, bound, total)
    starts = (np.arange(128) + 0.5) / 128
    found = np.array([shared(y, h, bound, total, start) for start in starts])
    assert (found.sum(axis=1) == total).all()
    assert (found >= 0).all() and (found <= bound).all()
    assert (np.abs(found - wanted) < 1 + 1e-6).all()
    np.testing.assert_allclose(found.mean(axis=0), wanted, atol=1 / 64)


@given(
    st.lists(
        st.tuples(st.floats(-1e300, 1e300), st.floats(1e-6, 1e6), st.integers(0, 2**50)),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_share_keeps_bounds_and_sum_where_digits_run_out(rows, part, start):
    y, h, bound = zip(*rows, strict=True)
    total = min(int(sum(bound) * part), sum(bound))
    found = shared(y, h, bound, total, start)
    assert found.sum() == total and (found >= 0).all() and (found <= np.array(bound)).all()


# ---- whole trees


def slow_top_down(parents, estimates, variances):
    """Node by node and block by block, in dictionaries, with projections by bisection."""
    key = halving.public_key(*estimates)
    bins = estimates[0].shape[1]
    tops = len(estimates[0])
    starts = halving.public_uniforms(key + b"\0", tops)
    made = [[slow_top(row, start) for row, start in zip(estimates[0], starts, strict=True)]]
    for level, parent in enumerate(parents, start=1):
        uniform = halving.public_uniforms(key + bytes([level]), len(made[-1]) * bins).reshape(-1, bins)
        rows = [None] * parent.size
        for q, above in enumerate(made[-1]):
            children = np.flatnonzero(parent == q).tolist()
            given = slow_children(
                above, estimates[level][children], variances[level][children], uniform[q].tolist()
            )
            for child, row in zip(children, given, strict=True):
                rows[child] = row
        made.append(rows)
    return made


def slow_round(x, start, sampled):
    """Count the whole numbers that the running sum passes; values near one are that."""
    run, passed, made = Fraction(start), 0, []
    for value in x:
        near = round(value)
        run += near if abs(value - near) < 1e-9 and sampled else Fraction(value)
        made.append(math.floor(run) - passed)
        passed = math.floor(run)
    return made


def slow_top(row, start):
    total = max(round(math.fsum(row)), 0)
    made = [0.0] * len(row)

    def halve(a, b, value):
        if b - a == 1:
            made[a] = value
            return
        middle = (a + b) // 2
        first = math.fsum(row[a:middle]) + (value - math.fsum(row[a:b])) / 2
        first = min(max(first, 0.0), value)
        halve(a, middle, first)
        halve(middle, b, value - first)

    halve(0, len(row), float(total))
    return slow_round(made, start, sampled=False)


def slow_children(above, rows, h, uniform):
    known = {}

    def share(y, bound, total, start):
        return slow_round(slow_level(y, h, bound, total), start, sampled=True)

    def halve(a, b):
        if b - a == 1:
            return
        middle = (a + b) // 2
        bound = known[a, b]
        moved = [c - math.fsum(row[a:b]) for c, row in zip(bound, rows, strict=True)]
        y = [math.fsum(row[a:middle]) + m / 2 for row, m in zip(rows, moved, strict=True)]
        known[a, middle] = share(y, bound, sum(above[a:middle]), uniform[middle])
        known[middle, b] = [c - x for c, x in zip(bound, known[a, middle], strict=True)]
        halve(a, middle)
        halve(middle, b)

    n, total = len(above), sum(above)
    known[0, n] = share([math.fsum(row) for row in rows], [total] * len(rows), total, uniform[0])
    halve(0, n)
    return [[known[j, j + 1][c] for j in range(n)] for c in range(len(rows))]


@pytest.mark.parametrize("seed", range(25))
def test_top_down_is_the_slow_one(seed):
    parents, estimates, variances = some_case(seed, size=[0.5, 4.0, 30.0][seed % 3])
    found = topdown.top_down(parents, estimates, variances)
    wanted = slow_top_down(parents, estimates, variances)
    assert [rows.tolist() for rows in found] == wanted


def check_adding_up(parents, found):
    for rows in found:
        assert (rows >= 0).all()
    for parent, above, below in zip(parents, found, found[1:], strict=False):
        summed = np.zeros_like(above)
        np.add.at(summed, parent, below)
        assert np.array_equal(summed, above)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_whole_not_negative_and_adding_up(seed):
    parents, estimates, variances = some_case(seed)
    found = topdown.top_down(parents, estimates, variances)
    assert all(rows.dtype == np.int64 for rows in found)
    check_adding_up(parents, found)
    assert found[0].sum(axis=1).tolist() == np.maximum(np.rint(estimates[0].sum(axis=1)), 0).tolist()
    again = topdown.top_down(parents, [rows.copy() for rows in estimates], variances)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))  # anybody can repeat it
    for post, grid in (("integer", 1), ("nonneg", 16)):
        shown = present_levels(parents, estimates, variances, post=post)
        check_adding_up(parents, shown)
        assert all(np.array_equal(rows * grid, np.rint(rows * grid)) for rows in shown)
    assert present_levels(parents, estimates, variances, post="none") == estimates


@given(st.integers(0, 2**32 - 1), st.sampled_from([2.0**40, 2.0**55, 2.0**61, 1e200]))
def test_they_add_up_beyond_every_count(seed, size):
    """Also where the estimates do not, and where their digits run out."""
    parents, _, variances = some_case(seed)
    draw = np.random.default_rng(seed)
    estimates = [draw.normal(0, 1, (len(h), 6)) * size for h in variances]
    check_adding_up(parents, topdown.top_down(parents, estimates, variances))


@given(st.integers(0, 2**32 - 1))
def test_what_is_presentable_already_stays_as_it_is(seed):
    draw = np.random.default_rng(seed)
    parents = some_tree(draw, 3, int(draw.integers(1, 3)))
    rows = [draw.integers(0, 4, (parents[-1].size, 7)) * draw.integers(0, 2, 7)]
    for parent in reversed(parents):
        rows.insert(0, np.zeros((parent.max() + 1, 7), dtype=np.int64))
        np.add.at(rows[0], parent, rows[1])
    h = [np.exp(draw.normal(size=len(each))) for each in rows]
    found = topdown.top_down(parents, [each.astype(float) for each in rows], h)
    assert all(np.array_equal(a, b) for a, b in zip(found, rows, strict=True))


def test_a_noisier_group_gives_way():
    """Two groups whose sum is fixed: what is missing is taken from each by its variance."""
    parents = (np.array([0, 0]),)
    estimates = [np.array([[100.0]]), np.array([[90.0], [50.0]])]
    found = topdown.top_down(parents, estimates, [np.ones(1), np.array([3.0, 1.0])])
    assert found[1].ravel().tolist() == [60, 40]


def test_large_sums_are_decided_first():
    """Children of many sizes with much noise in every bin: their totals keep what they had, without bias."""
    draw = np.random.default_rng(5)
    truth = draw.integers(0, 2, (60, 64)) * np.repeat([0, 1, 20], 20)[:, None]
    parents = (np.zeros(60, dtype=np.int64),)
    v = (40.0, 8.0)
    raw_error, error, bias = [], [], np.zeros(60)
    for _ in range(20):
        y = [truth.sum(axis=0)[None] + draw.laplace(0, 20, (1, 64)), truth + draw.laplace(0, 2, truth.shape)]
        raw = levels.reconcile(parents, v, y)
        found = topdown.top_down(parents, raw, levels.variances(parents, v))
        raw_error.append(np.cumsum(raw[1] - truth, axis=1))
        error.append(np.cumsum(found[1] - truth, axis=1))
        bias += (found[1] - truth).sum(axis=1) / 20
    assert np.square(error).mean() < 1.02 * np.square(raw_error).mean()
    clipped = np.maximum(y[1], 0) - truth  # each bin by itself: what is avoided
    assert np.abs(bias.reshape(3, 20).mean(axis=1)).max() < 8 < clipped.sum(axis=1)[:20].mean()


def test_rows_must_fit():
    with pytest.raises(UsageError, match="one row"):
        topdown.top_down((np.array([0, 0]),), [np.zeros((1, 3)), np.zeros((3, 3))], [np.ones(1), np.ones(3)])


@given(st.integers(1, 200))
def test_every_block_is_halved_once_and_larger_ones_first(bins):
    known, splits = {(0, bins)}, topdown._splits(bins).tolist()
    for a, middle, b in splits:
        known.remove((a, b))
        assert a < middle < b and middle - a in (b - middle, b - middle - 1)
        known |= {(a, middle), (middle, b)}
    assert known == {(j, j + 1) for j in range(bins)} and len(splits) == bins - 1
    assert sorted(middle for _, middle, _ in splits) == list(range(1, bins))
