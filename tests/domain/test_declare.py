"""Declarations: plain values to axes and back, and what is refused, in the words of whoever declares."""

import contextlib
import datetime

import numpy as np
import pytest

from dphist.domain import Categories, Instants, Integers, Regular, Variable, declaration, declared_axis
from dphist.domain.declare import EVERY, sort_other
from dphist.errors import DphistError, PrivacyError, UsageError

YEAR = ("2024-01-01", "2025-01-01")
FORMS = {
    "equal bins": ({"bins": 12, "range": [0, 120]}, Regular(lo=0, hi=120, bins=12)),
    "edges": ({"bins": [0, 18, 65, 120]}, Variable([0, 18, 65, 120])),
    "one bin": ({"bins": [1, 10]}, Variable([1, 10])),
    "integers": ({"integers": [0, 120]}, Integers(0, 120)),
    "log": ({"log": [1, 1e6], "bins": 24}, Variable(np.geomspace(1, 1e6, 25))),
    "weeks": ({"range": YEAR, "every": "week"}, Instants(*YEAR, "1w", "UTC")),
    "dates": ({"range": [datetime.date(2024, 1, 1), datetime.date(2025, 1, 1)], "every": "quarter"},
              Instants(*YEAR, "3mo", "UTC")),
    "a zone": ({"range": YEAR, "every": "day", "timezone": "Europe/Berlin"},
               Instants(*YEAR, "1d", "Europe/Berlin")),
    "minutes": ({"range": ["2024-01-01T06:30", "2024-01-02"], "every": "15min"},
                Instants("2024-01-01T06:30", "2024-01-02", "15min", "UTC")),
    "years": ({"range": ["2020", "2025"], "every": "year"},
              Instants("2020-01-01", "2025-01-01", "1y", "UTC")),
    "labels": ({"categories": ["a", "b"]}, Categories(("a", "b"))),
    "others": ({"categories": ["a", "b"], "other": "rest", "null": "unknown"},
               Categories(("a", "b"), "rest", "unknown")),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_makes_its_axis_and_comes_back(form):
    said, axis = FORMS[form]
    made = declared_axis(said)
    assert type(made) is type(axis) and made.to_dict() == axis.to_dict()
    again = declaration(made)
    assert declared_axis(again).to_dict() == axis.to_dict()
    assert set(again) <= set(said) | {"timezone"}  # in the same words: log bins are no list of edges


def test_none_stands_for_no_value():
    assert declared_axis({"bins": None, "integers": (1, 3), "range": None}) == Integers(1, 3)


def test_each_step_of_time_is_what_it_says():
    sizes = {"hour": 366 * 24, "day": 366, "week": 53, "month": 12, "quarter": 4, "year": 1}
    assert set(sizes) == set(EVERY)
    for every, n in sizes.items():
        assert declared_axis({"range": YEAR, "every": every}).n == n


def test_an_axis_of_time_without_a_zone_has_no_declaration():
    with pytest.raises(UsageError, match="tz='UTC'"):
        declaration(Instants(*YEAR, "1d"))


def test_edges_that_are_nearly_equal_ratios_are_edges():
    edges = np.geomspace(1, 1000, 4)
    edges[1] = 10.5
    assert declaration(Variable(edges)) == {"bins": edges.tolist()}
    assert declaration(Variable([1.0, 10.0])) == {"bins": [1.0, 10.0]}


WRONG = {
    "nothing": ({}, "bins is needed"),
    "an unknown key": ({"bin": 3}, "Did you mean 'bins'"),
    "two kinds": ({"integers": (0, 9), "log": (1, 9)}, "integers and log each say"),
    "bins and integers": ({"bins": 3, "integers": (0, 9)}, "bins and integers each say.*leave one out"),
    "bins and steps": ({"bins": 3, "range": YEAR, "every": "day"}, "bins and every each say"),
    "labels and bins": ({"bins": 3, "categories": ["a"]}, "leave one out"),
    "range and integers": ({"range": (0, 9), "integers": (0, 9)}, "range goes with a number of bins"),
    "a grid's bins": ({"bins": (25, 25), "range": ((0, 1), (0, 2))}, "Two columns are a grid: histogram2d"),
    "edges and range": ({"bins": (0, 1), "range": (0, 1)}, "edges have their ends.$"),
    "other without labels": ({"bins": 3, "range": (0, 1), "other": "x"}, "beside those of categories"),
    "dates without steps": ({"range": YEAR}, "say how long a bin is.*every='week'"),
    "dates and bins": ({"bins": 3, "range": YEAR}, "every='week', instead of bins"),
    "steps of numbers": ({"range": (0, 9), "every": "day"}, "needs two dates"),
    "steps alone": ({"every": "day"}, "every needs range"),
    "a wrong step": ({"range": YEAR, "every": "weeks"}, "Did you mean 'week'"),
    "no step": ({"range": YEAR, "every": "0d"}, "every is one of hour, day"),
    "a step that is no text": ({"range": YEAR, "every": 7}, "every is one of"),
    "no such day": ({"range": ("2024-02-30", "2024-04-01"), "every": "day"}, "no day 2024-02-30.*2024-02-29"),
    "no such month": ({"range": ("2024-13-01", "2024-04-01"), "every": "day"}, "must be a date"),
    "another order": ({"range": ("1.2.2024", "1.3.2024"), "every": "day"}, "written as 2024-01-31"),
    "backwards": ({"range": YEAR[::-1], "every": "day"}, "must increase"),
    "an hour the clock left out": (
        {"range": ("2024-03-31T02:30", "2024-04-01"), "every": "hour", "timezone": "Europe/Berlin"},
        "Europe/Berlin did not show 2024-03-31 02:30:00; it was put forward to 2024-03-31 03:30:00",
    ),
    "no such zone": ({"range": YEAR, "every": "day", "timezone": "Mars"}, "no time zone 'Mars'"),
    "log of zero": ({"log": (0, 10), "bins": 3}, "above 0"),
    "log of less": ({"log": (-5, 10), "bins": 3}, "-5 has no logarithm"),
    "log backwards": ({"log": (10, 1), "bins": 3}, "must increase"),
    "log without bins": ({"log": (1, 10)}, "log needs bins"),
    "log of no bins": ({"log": (1, 10), "bins": 0}, "at least 1"),
    "log of edges": ({"log": (1, 10), "bins": [1, 2]}, "takes a number of bins"),
    "log too fine": ({"log": (1, 1 + 1e-12), "bins": 100_000}, "finer than double"),
    "log too many": ({"log": (1, 10), "bins": 10**10}, "more than"),
    "half integers": ({"integers": (0.5, 3)}, "an end of integers must be a whole number"),
    "one integer": ({"integers": (3,)}, "integers must be two numbers"),
    "integers backwards": ({"integers": (3, 1)}, "must increase"),
    "descending edges": ({"bins": [0, 2, 1]}, "Sort them"),
    "repeated edges": ({"bins": [0, 1, 1, 2]}, "repeated"),
    "lists of edges": ({"bins": [[0, 1], [2]]}, "flat list of numbers"),
    "one label as text": ({"categories": "red"}, "no file 'red'.*one per line"),
    "no labels": ({"categories": []}, "at least one label"),
    "labels twice": ({"categories": ["a", "b", "a"]}, "declared twice"),
    "other is a label": ({"categories": ["a", "b"], "other": "b"}, "two bins, one of them for other"),
    "null is other": ({"categories": ["a"], "other": "x", "null": "x"}, "two bins, one of them for null"),
    "empty other": ({"categories": ["a"], "other": ""}, "other is the label of a bin"),
    "a number of labels": ({"categories": 3}, "must be a list of labels"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_axis_is_refused_with_advice(what):
    said, words = WRONG[what]
    with pytest.raises(UsageError, match=words):
        declared_axis(said)


@pytest.mark.parametrize("what", WRONG)
def test_the_words_are_those_of_whoever_declares(what):
    said, _ = WRONG[what]
    with pytest.raises(UsageError) as error:
        declared_axis(said, lambda key, *values: f"<{key}>")
    assert "range=" not in str(error.value) and "every=" not in str(error.value)


@pytest.mark.parametrize(
    "said",
    [
        {"bins": 3, "range": "auto"},
        {"bins": "auto"},
        {"bins": 3, "range": ("min", "max")},
        {"log": ("min", 9), "bins": 3},
    ],
)
def test_ends_that_would_be_read_off_the_data_are_a_privacy_error(said):
    with pytest.raises(PrivacyError, match="leaks"):
        declared_axis(said)


class TestFilesOfLabels:
    def test_one_label_per_line(self, tmp_path):
        file = tmp_path / "wards.txt"
        file.write_bytes("\ufeffNorth\r\nSüd, rechts\r\n\r\n x \r\n".encode())
        for named in (file, str(file)):
            assert declared_axis({"categories": named}).labels == ("North", "Süd, rechts", " x ")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "has no labels"),
            (b" \n\n", "has no labels"),
            (b"a\nb\n\na\n", "line 4 of .*wards.txt repeats the label of line 1"),
            ("Süd".encode("latin-1"), "not UTF-8; save the list of labels as UTF-8"),
        ],
    )
    def test_a_bad_file_is_refused(self, tmp_path, content, words):
        file = tmp_path / "wards.txt"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            declared_axis({"categories": file})

    def test_no_file_and_a_folder(self, tmp_path):
        with pytest.raises(UsageError, match="there is no file"):
            declared_axis({"categories": tmp_path / "gone.txt"})
        with pytest.raises(UsageError, match="cannot be read from"):
            declared_axis({"categories": tmp_path})


def test_days_and_hours_of_a_zone_with_summer_time():
    berlin = {"timezone": "Europe/Berlin"}
    days = declared_axis({"range": ("2024-03-30", "2024-04-02"), "every": "day", **berlin})
    assert (np.diff(days.edges) / 3600).tolist() == [24, 23, 24]
    short, long = ("2024-03-31", "2024-04-01"), ("2024-10-27", "2024-10-28")
    assert [declared_axis({"range": r, "every": "hour", **berlin}).n for r in (short, long)] == [23, 25]
    # A day whose midnight the clock left out is a day still.
    day = ("2018-11-04", "2018-11-06")
    assert declared_axis({"range": day, "every": "day", "timezone": "America/Sao_Paulo"}).n == 2


@pytest.mark.parametrize(
    ("ends", "every", "short"),
    [
        (YEAR, "week", True),
        (YEAR, "month", False),
        (YEAR, "quarter", False),
        (("2024-01-01", "2024-12-30"), "week", False),
        (("2024-01-31", "2024-03-31"), "month", False),
        (("2024-01-31", "2024-03-30"), "month", True),
        (("2024-01-01", "2024-01-02T00:30"), "hour", True),
        (("2024-01-01", "2024-01-02"), "hour", False),
    ],
)
def test_a_range_that_ends_within_a_step_is_known(ends, every, short):
    assert declared_axis({"range": ends, "every": every}).is_cut_short is short


def test_what_other_means_beside_groups():
    assert sort_other(None, "rest", None) == (None, "rest")
    assert sort_other(["a"], "rest", None) == ("rest", None)
    assert sort_other(["a"], "rest", "elsewhere") == ("rest", "elsewhere")


def test_every_error_is_ours():
    for value in (object(), 3.5, float("nan"), b"x", {}, [None], np.array([]), True):
        for key in ("bins", "range", "every", "integers", "log", "categories", "other", "null", "timezone"):
            base = {"other": {"categories": ["a"]}, "null": {"categories": ["a"]}, "log": {"bins": 3},
                    "range": {"bins": 3}, "every": {"range": YEAR}}.get(key, {})  # fmt: skip
            with contextlib.suppress(DphistError):
                declared_axis(base | {key: value})
