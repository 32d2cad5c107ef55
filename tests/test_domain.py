"""Bins are numpy's, declared first, and survive being written down."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.domain import Categories, Domain, Integers, Regular, Variable, cut, make_axis
from dphist.errors import PrivacyError, UsageError

finite = st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e15, max_value=1e15)


@st.composite
def regular(draw):
    lo = draw(st.floats(-1e6, 1e6))
    width = draw(st.floats(1e-3, 1e6))
    return Regular(lo=lo, hi=lo + width, bins=draw(st.integers(1, 300)))


@st.composite
def axes(draw):
    kind = draw(st.sampled_from(["regular", "variable", "integers", "categories"]))
    if kind == "regular":
        return draw(regular())
    if kind == "variable":
        return Variable(sorted(draw(st.sets(finite, min_size=2, max_size=30))))
    if kind == "integers":
        low = draw(st.integers(-(10**6), 10**6))
        return Integers(low, low + draw(st.integers(0, 200)))
    labels = draw(st.lists(st.text(max_size=8), min_size=1, max_size=20, unique=True))
    return Categories(tuple(labels), other=draw(st.booleans()))


@given(st.lists(axes(), min_size=1, max_size=2))
def test_a_domain_survives_json_and_equals_itself(parts):
    domain = Domain(tuple(parts))
    again = Domain.from_dict(json.loads(json.dumps(domain.to_dict())))
    assert again == domain
    assert hash(again) == hash(domain)
    assert domain.n == np.prod([len(axis.names()) for axis in parts])


@given(regular(), st.lists(st.floats(allow_infinity=False, allow_nan=False), max_size=50), st.data())
def test_counting_by_index_is_numpys_histogram(axis, values, data):
    # values next to edges are where a formula goes wrong
    near = data.draw(st.lists(st.integers(0, axis.n), max_size=20))
    steps = [np.nextafter(axis.edges[i], s) for i in near for s in (-np.inf, np.inf)]
    x = np.array([*values, *axis.edges[near], *steps], dtype=float)
    index = axis.index(x)
    want, edges = np.histogram(x, bins=axis.bins, range=(axis.lo, axis.hi))
    assert np.array_equal(edges, axis.edges)
    assert np.array_equal(np.bincount(index[index >= 0], minlength=axis.n), want)


def test_the_last_bin_is_closed_on_both_sides_and_the_others_on_the_left():
    axis = Variable([0, 1, 2])
    assert axis.index([0, 1, 2, -0.1, 2.1, np.nan]).tolist() == [0, 1, 1, -1, -1, -1]
    assert axis.index([-5, 7, np.inf, -np.inf, np.nan], "clip").tolist() == [0, 1, 1, 0, -1]


def test_integers_take_both_ends_and_floor_fractions():
    axis = Integers(3, 5)
    assert axis.n == 3
    assert axis.index([2.9, 3, 3.9, 5, 5.99, 6, np.nan]).tolist() == [-1, 0, 0, 2, 2, -1, -1]
    assert axis.index([-10, 99, np.inf], "clip").tolist() == [0, 2, 2]


def test_categories_count_declared_labels_and_may_gather_the_rest():
    plain, other = Categories(("a", "b")), Categories(("a", "b"), other=True)
    assert plain.index(["b", "z", None, float("nan")]).tolist() == [1, -1, -1, -1]
    assert other.index(["b", "z", None, float("nan")]).tolist() == [1, 2, -1, -1]
    with pytest.raises(UsageError, match="no ends to clip"):
        plain.index(["a"], "clip")


@pytest.mark.parametrize(
    ("bins", "range_", "words"),
    [
        (0, (0, 1), "at least 1"),
        (-3, (0, 1), "at least 1"),
        (2.5, (0, 1), "whole number"),
        (2.0, (0, 1), "write 2 instead"),
        (True, (0, 1), "whole number"),
        (10, None, "range is needed.*public knowledge"),
        (10, (1, 1), "must rise"),
        (10, (2, 1), "must rise"),
        (10, (0, float("inf")), "finite"),
        (10, (float("nan"), 1), "finite"),
        (10, ("0", 1), "must be a number"),
        (10, (True, 2), "must be a number"),
        (10, (0, 1, 2), "two numbers"),
        (10, 5, "two numbers"),
        (10, (1e16, 1e16 + 8), "finer than double"),
        (10**9, (0, 1), "more than"),
        ([0], None, "at least two"),
        ([0, 2, 1], None, "Sort them"),
        ([0, 1, 1], None, "repeated"),
        ([0, float("nan")], None, "finite"),
        (["a", "b"], None, "must be a number"),
        ([0, 1], (0, 1), "already have their ends"),
        (Integers(0, 1), (0, 1), "already have their ends"),
    ],
)
def test_bad_bins_are_refused_with_advice(bins, range_, words):
    with pytest.raises(UsageError, match=words):
        make_axis(bins, range_)


@pytest.mark.parametrize(("bins", "range_"), [("auto", None), ("fd", (0, 1)), (10, "auto"), (10, "minmax")])
def test_bins_read_off_the_data_are_a_privacy_error(bins, range_):
    with pytest.raises(PrivacyError, match="leaks"):
        make_axis(bins, range_)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Integers(5, 4), "must rise"),
        (lambda: Integers(0.5, 4), "whole number"),
        (lambda: Integers(0, 1 << 60), "within"),
        (lambda: Categories(()), "at least one"),
        (lambda: Categories("abc"), "not one string"),
        (lambda: Categories(("a", "a")), "declared twice"),
        (lambda: Categories(("a", 3)), "must be a string"),
        (lambda: Domain(()), "one or two axes"),
        (lambda: Domain((Integers(0, 1),) * 3), "one or two axes"),
        (lambda: Domain((Integers(0, 10**5),) * 2), "more than"),
        (lambda: Domain.from_dict({"axes": [{"kind": "spiral"}]}), "unknown kind"),
    ],
)
def test_bad_axes_are_refused_with_advice(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_a_query_is_cut_at_edges_only():
    edges = Regular(lo=0, hi=1, bins=10).edges
    assert cut(edges, 0.3) == 3  # 0.30000000000000004 in the edges
    with pytest.raises(UsageError, match="inside a bin.*0.3 or 0.4"):
        cut(edges, 0.35)
    with pytest.raises(UsageError, match="outside the domain"):
        cut(edges, 1.5)


def test_domains_are_frozen():
    axis = Regular(lo=0, hi=1, bins=2)
    with pytest.raises(AttributeError):
        axis.bins = 3
    with pytest.raises(ValueError, match="read-only"):
        axis.edges[0] = 5
