"""Bins are numpy's, declared first, and survive being written down."""

import datetime as dt
import json
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable, cut, make_axis
from dphist.errors import PrivacyError, UsageError

finite = st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e15, max_value=1e15)


@st.composite
def regular(draw):
    lo = draw(st.floats(-1e6, 1e6))
    width = draw(st.floats(1e-3, 1e6))
    return Regular(lo=lo, hi=lo + width, bins=draw(st.integers(1, 300)))


@st.composite
def axes(draw):
    kind = draw(st.sampled_from(["regular", "variable", "integers", "categories", "instants"]))
    if kind == "regular":
        return draw(regular())
    if kind == "variable":
        return Variable(sorted(draw(st.sets(finite, min_size=2, max_size=30))))
    if kind == "integers":
        low = draw(st.integers(-(10**6), 10**6))
        return Integers(low, low + draw(st.integers(0, 200)))
    if kind == "instants":
        start = draw(st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2030, 1, 1))).replace(microsecond=0)
        length = dt.timedelta(seconds=draw(st.integers(1, 200 * 86_400)))
        freq = draw(st.sampled_from(["1h", "5h", "1d", "1w", "1mo", "1y"]))
        zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin", "Australia/Lord_Howe"]))
        try:
            return Instants(start, start + length, freq=freq, tz=zone)
        except UsageError:  # a short time that a clock ran through backwards
            return Instants("2024-01-01", "2024-02-01")
    labels = draw(st.lists(st.text(max_size=8), min_size=1, max_size=20, unique=True))
    return Categories(tuple(labels), other=draw(st.booleans()), null=draw(st.booleans()))


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
    assert plain.index(["b", "z"], "clip").tolist() == [1, -1]  # labels have no ends


@pytest.mark.parametrize(
    ("bins", "range_", "words"),
    [
        (0, (0, 1), "at least 1"),
        (-3, (0, 1), "at least 1"),
        (2.5, (0, 1), "whole number"),
        (2.0, (0, 1), "write 2 instead"),
        (True, (0, 1), "whole number"),
        (10, None, "range is needed.*public knowledge"),
        (10, (1, 1), "must increase"),
        (10, (2, 1), "must increase: 2.0 is not below 1.0. Give the smaller end first"),
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
        ([0, 1], (0, 1), "edges have their ends"),
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
        (lambda: Integers(5, 4), "must increase"),
        (lambda: Integers(0.5, 4), "whole number"),
        (lambda: Integers(0, 1 << 60), "within"),
        (lambda: Categories(()), "at least one"),
        (lambda: Categories("abc"), "not one string"),
        (lambda: Categories(("a", "a")), "declared twice"),
        (lambda: Categories(("a", 3)), "must be a string"),
        (lambda: Instants("2024-02-01", "2024-01-01"), "must increase"),
        (lambda: Instants("2024-02-01", "2024-02-01"), "must increase"),
        (lambda: Instants("yesterday", "2024-01-01"), "such as '2024-01-31'"),
        (lambda: Instants(5, "2024-01-01"), "such as '2024-01-31'"),
        (lambda: Instants(np.datetime64("NaT"), "2024-01-01"), "such as"),
        (lambda: Instants("2024-01-01T00:00:00.5", "2024-02-01"), "whole second"),
        (lambda: Instants("2024-01-01T00:00+02:00", "2024-02-01"), "tz="),
        (lambda: Instants("0001-01-01", "2024-02-01"), "years"),
        (lambda: Instants("2024-01-01", "2024-02-01", freq="1"), "freq"),
        (lambda: Instants("2024-01-01", "2024-02-01", freq="0d"), "freq"),
        (lambda: Instants("2024-01-01", "2024-02-01", freq=1), "freq"),
        (lambda: Instants("2024-01-01", "2024-02-01", tz="Berlin"), "no time zone 'Berlin'"),
        (lambda: Instants("2024-01-01", "2024-02-01", tz="../etc/passwd"), "no time zone"),
        (lambda: Instants("1000-01-01", "9000-01-01", "1s", "Europe/Rome"), "too fine"),
        (lambda: Domain(()), "one or two axes"),
        (lambda: Domain((Integers(0, 1),) * 3), "one or two axes"),
        (lambda: Domain((Integers(0, 1 << 31),) * 2), "more than"),
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


# --- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "names", "hours"),
    [
        (Instants("2024-03-30", "2024-04-02", tz="Europe/Berlin"),
         ["2024-03-30", "2024-03-31", "2024-04-01"], [24, 23, 24]),
        (Instants("2024-10-26", "2024-10-29", tz="Europe/Berlin"),
         ["2024-10-26", "2024-10-27", "2024-10-28"], [24, 25, 24]),
        (Instants("2024-10-26", "2024-10-28"), ["2024-10-26", "2024-10-27"], [24, 24]),
        # Samoa had no 30 December in 2011, and midnight of 4 November 2018 was left out in Sao Paulo.
        (Instants("2011-12-29", "2012-01-01", tz="Pacific/Apia"), ["2011-12-29", "2011-12-31"], [24, 24]),
        (Instants("2018-11-03", "2018-11-06", tz="America/Sao_Paulo"),
         ["2018-11-03", "2018-11-04", "2018-11-05"], [24, 23, 24]),
        (Instants("2024-01-31", "2024-05-01", freq="1mo"),
         ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"], [29 * 24, 31 * 24, 30 * 24, 24]),
        (Instants("2023-01-01", "2024-01-01", freq="6mo"), ["2023-01", "2023-07"], [181 * 24, 184 * 24]),
        (Instants("2000-01-01", "2003-01-01", freq="2y"), ["2000", "2002"], [731 * 24, 365 * 24]),
        (Instants("2024-10-27T01:00", "2024-10-27T04:00", freq="1h", tz="Europe/Berlin"),
         ["2024-10-27 01:00+02:00", "2024-10-27 02:00+02:00", "2024-10-27 02:00+01:00",
          "2024-10-27 03:00+01:00"], [1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_instants_follow_the_calendar_and_the_clock(axis, names, hours):
    assert axis.names() == names
    assert (np.diff(axis.edges) / 3600).tolist() == hours
    assert [axis.cut(e) for e in (axis.start, axis.stop)] == [0, axis.n]


@given(
    st.lists(st.integers(0, 4 * 86_400 * 10**6), max_size=50), st.sampled_from(["1h", "1d", "7h", "90min"])
)
def test_instants_place_values_as_a_slow_search_does(steps, freq):
    axis = Instants("2024-10-26", "2024-10-29", freq=freq, tz="Europe/Berlin")
    start = dt.datetime(2024, 10, 25, 12)
    walls = [start + dt.timedelta(microseconds=s) for s in steps]
    zone = ZoneInfo("Europe/Berlin")
    edges = [dt.datetime.fromtimestamp(e, dt.UTC) for e in axis.edges]

    def slow(moment: dt.datetime) -> int:
        at = sum(e <= moment for e in edges) - 1
        return at if at < axis.n else -1

    # Nothing is left out of the clock in these days, so a wall time is the first instant that showed it.
    assert axis.index(walls).tolist() == [slow(w.replace(tzinfo=zone).astimezone(dt.UTC)) for w in walls]
    aware = [w.replace(tzinfo=dt.UTC) for w in walls]
    assert axis.index(aware).tolist() == [slow(w) for w in aware]
    assert axis.index(np.array(walls, dtype="datetime64[us]")).tolist() == axis.index(walls).tolist()


def test_instants_take_dates_drop_nothing_by_mistake_and_clip():
    axis = Instants("2018-11-03", "2018-11-06", tz="America/Sao_Paulo")
    days = [dt.date(2018, 11, d) for d in range(2, 8)]
    assert axis.index(days).tolist() == [-1, 0, 1, 2, -1, -1]
    assert axis.index(days, "clip").tolist() == [0, 0, 1, 2, 2, 2]
    assert axis.index([None, float("nan"), np.datetime64("NaT")], "clip").tolist() == [-1, -1, -1]
    assert axis.index(np.array(["NaT", "2018-11-03"], dtype="datetime64[D]")).tolist() == [-1, 0]
    # One odd value stops nothing; it has no bin, and an instant has none on a clock without a zone.
    assert axis.index([3, object(), dt.date(2018, 11, 3), pd.NaT]).tolist() == [-1, -1, 0, -1]
    moment = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    assert Instants("2024-01-01", "2024-02-01").index(moment, "clip").tolist() == [-1]


def test_an_hour_that_came_twice_keeps_its_offset_when_written_down():
    axis = Instants("2024-10-27T02:00+01:00", "2024-10-27T04:00", freq="1h", tz="Europe/Berlin")
    again = Domain.from_dict(json.loads(json.dumps(Domain((axis,)).to_dict()))).axes[0]
    assert again == axis
    assert again.names() == ["2024-10-27 02:00+01:00", "2024-10-27 03:00+01:00"]


def test_instants_are_cut_at_edges_only():
    axis = Instants("2024-01-01", "2024-07-01", freq="1mo", tz="Europe/Berlin")
    assert axis.cut("2024-02-01") == axis.cut(dt.date(2024, 2, 1)) == 1
    assert axis.cut("2024-01-31T23:00Z") == 1
    with pytest.raises(UsageError, match="inside a bin.*2024-02 or 2024-03"):
        axis.cut("2024-02-10")
    with pytest.raises(UsageError, match="outside the domain.*2024-01 to 2024-07"):
        axis.cut("2025-01-01")


def test_categories_may_give_nulls_a_bin():
    axis = Categories(("a", "b"), other=True, null=True)
    assert axis.names() == ["a", "b", "(other)", "(null)"]
    assert axis.index(["b", "z", None, float("nan")]).tolist() == [1, 2, 3, 3]
    assert Categories(("a",), null=True).index(["z", None]).tolist() == [-1, 1]
    old = {"kind": "categories", "labels": ["a"], "other": False}  # as written before there was a null bin
    assert Domain.from_dict({"axes": [old]}).axes[0] == Categories(("a",))


def test_too_many_equal_bins_say_of_which_there_may_be_more():
    with pytest.raises(
        UsageError, match=r"1,099,511,627,776 bins are more than .* whole numbers, .* up to 2\^62"
    ):
        Regular(lo=0, hi=1, bins=2**40)
