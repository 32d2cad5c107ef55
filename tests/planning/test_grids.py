"""Grids and declared bins in Python: numpy's arguments, and errors that are ours."""

import datetime

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist import records
from dphist.errors import DphistError, PrivacyError, UsageError
from dphist.planning.grouped import GroupedPlan

BOX = ((0, 1), (0, 1))


@pytest.mark.parametrize(
    ("bins", "range_"),
    [
        (3, BOX),
        ((3, 2), BOX),
        ([0, 1, 2, 3], None),
        (np.array([0.0, 1.0, 2.0]), None),
        (([0, 1, 2], [0, 1]), None),
        ([np.array([0, 1, 2]), 4], ((0, 2), (0, 1))),
    ],
)
def test_bins_are_as_numpy_has_them(bins, range_):
    expected = np.histogram2d([0.5], [0.5], bins=bins, range=range_)[1:]
    if isinstance(bins, list) and isinstance(bins[0], np.ndarray):
        range_ = (None, range_[1])  # which numpy has for a number only, but wants for both
    release = dphist.histogram2d([0.5], [0.5], bins=bins, range=range_, epsilon=1)
    for axis, edges in zip(release.domain.axes, expected, strict=True):
        assert np.array_equal(axis.edges, edges)


def test_axes_of_two_kinds():
    bins = (dphist.Categories(("a", "b")), dphist.Integers(0, 9))
    assert dphist.histogram2d(["a"], [3], bins=bins, epsilon=1).values().shape == (2, 10)


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({}, UsageError, "bins is needed"),
        ({"bins": 3}, UsageError, "range is needed"),
        ({"bins": 3, "range": 5}, UsageError, "pair of pairs"),
        ({"bins": 3, "range": (0, 1)}, UsageError, "two numbers"),
        ({"bins": 3, "range": ((0, 1),)}, UsageError, "pair of pairs"),
        ({"bins": 3, "range": "auto"}, PrivacyError, "leaks"),
        ({"bins": "auto", "range": BOX}, PrivacyError, "leaks"),
        ({"bins": 2.5, "range": BOX}, UsageError, "whole number"),
        ({"bins": ([[1, 2], [3]], [0, 1])}, UsageError, "flat list"),
        ({"bins": ([3, 2, 1], [0, 1])}, UsageError, "Sort them"),
        ({"bins": object(), "range": BOX}, UsageError, "whole number"),
        ({"bins": {"a": 1}}, UsageError, "number"),
        ({"bins": dphist.Domain((dphist.Integers(0, 1),))}, UsageError, "one axis"),
        (
            {"bins": dphist.Domain((dphist.Integers(0, 1),) * 2), "range": BOX},
            UsageError,
            "already has its ends",
        ),
    ],
)
def test_an_error_is_ours(more, error, words):
    with pytest.raises(error, match=words):
        dphist.histogram2d([0.5], [0.5], epsilon=1, **more)


@pytest.mark.parametrize(
    "pair",
    [
        (5, 6),
        ([1], 5),
        ("ab", "cd"),
        ((i for i in [1]), [1]),
        ([1], [1, 2]),
        (np.ones((2, 2)), np.ones((2, 2))),
    ],
)
def test_what_are_no_arrays_is_said_in_our_words(pair):
    with pytest.raises(DphistError, match="flat list|different lengths"):
        dphist.histogram2d(*pair, bins=2, range=BOX, epsilon=1)


def exact(data, **declared):
    """Publish with so much budget that the noise is zero but for a chance of 1e-20."""
    release = dphist.histogram(data, epsilon=50, **declared)
    return dict(zip(release.domain.axis.names(), release.values().round().astype(int).tolist(), strict=True))


class TestDeclared:
    def test_every_form(self, tmp_path):
        (tmp_path / "colours.txt").write_text("red\ngreen\n")
        assert exact([1, 2, 2, 7], integers=(1, 3)) == {"1": 1, "2": 2, "3": 0}
        assert exact([1, 5, 50], log=(1, 100), bins=2) == {"[1, 10)": 2, "[10, 100]": 1}
        days = [datetime.date(2024, 1, 5), datetime.date(2024, 3, 1)]
        year = exact(days, range=("2024-01-01", "2024-04-01"), every="month")
        assert year == {"2024-01": 1, "2024-02": 0, "2024-03": 1}
        labels = {"other": "rest", "null": "none"}
        for named in (["red", "green"], tmp_path / "colours.txt", str(tmp_path / "colours.txt")):
            found = exact(["red", "blue", None, "red"], categories=named, **labels)
            assert found == {"red": 2, "green": 0, "rest": 1, "none": 1}

    def test_a_zone(self):
        moment = datetime.datetime(2024, 1, 1, 23, 30, tzinfo=datetime.UTC)
        days = {"range": ("2024-01-01", "2024-01-03"), "every": "day"}
        assert exact([moment], **days) == {"2024-01-01": 1, "2024-01-02": 0}
        assert exact([moment], **days, timezone="Europe/Berlin") == {"2024-01-01": 0, "2024-01-02": 1}

    def test_an_axis_says_it_all(self):
        for extra in ({"range": (0, 1)}, {"every": "day"}, {"categories": ["a"]}, {"other": "x"}):
            with pytest.raises(UsageError, match="so does the Integers given"):
                dphist.Plan(bins=dphist.Integers(0, 9), epsilon=1, **extra)

    def test_releases_with_named_other_bins_are_saved_and_opened(self, tmp_path):
        release = dphist.histogram(["a"], categories=["a"], other="rest", null="none", epsilon=1)
        for name in ("r.json", "r.parquet"):
            release.save(tmp_path / name)
            assert dphist.load(tmp_path / name).domain.axis.names() == ["a", "rest", "none"]


GROUPS = {"by": "ward", "groups": ["N", "S"], "column": "x", "epsilon": 1}


class TestOtherBesideGroups:
    def test_without_labels_it_is_a_group(self):
        plan = GroupedPlan(integers=(0, 1), other="elsewhere", **GROUPS)
        assert plan.hierarchy.leaves == ("N", "S", "elsewhere") and plan.other is None
        again = GroupedPlan(integers=(0, 1), group_other="elsewhere", **GROUPS)
        assert again.hierarchy.leaves == plan.hierarchy.leaves

    def test_with_labels_it_is_a_label(self):
        plan = GroupedPlan(categories=["a"], other="rest", group_other="elsewhere", **GROUPS)
        assert plan.hierarchy.leaves == ("N", "S", "elsewhere") and plan.domain.axis.names() == ["a", "rest"]
        plan = GroupedPlan(categories=["a"], other="rest", **GROUPS)
        assert plan.hierarchy.leaves == ("N", "S") and plan.domain.axis.names() == ["a", "rest"]

    def test_one_group_cannot_have_two_names(self):
        with pytest.raises(UsageError, match="other and null name bins"):
            GroupedPlan(integers=(0, 1), other="x", group_other="y", **GROUPS)

    def test_without_groups(self):
        with pytest.raises(UsageError, match="group_other and importances go with by="):
            dphist.histogram([1], integers=(0, 1), group_other="x", epsilon=1)


@pytest.mark.parametrize("form", ["csv", "frame", "arrays"])
def test_numbers_are_clipped_beside_labels_which_have_no_ends(form, tmp_path):
    ages, wards = [-5, 3, 99, 4], ["a", "b", "b", "z"]
    data = pd.DataFrame({"age": ages, "ward": wards})
    if form == "csv":
        data.to_csv(tmp_path / "t.csv", index=False)
    domain = dphist.Domain((dphist.Integers(0, 9), dphist.Categories(["a", "b"])))
    given = {"csv": tmp_path / "t.csv", "frame": data, "arrays": (np.array(ages), np.array(wards))}[form]
    columns = {} if form == "arrays" else {"columns": ("age", "ward")}
    counts = records.count(given, domain, outside="clip", **columns).values.reshape(domain.shape)
    assert counts.sum() == 3
    assert counts[0, 0] == counts[3, 1] == counts[9, 1] == 1


def test_groups_have_clipped_numbers_too():
    data = pd.DataFrame({"age": [-5, 3, 99, 4], "ward": ["a", "b", "b", "z"]})
    release = dphist.histogram(
        data, column="age", integers=(0, 9), by="ward", groups=["a", "b"], outside="clip", epsilon=50
    )
    assert release["a"].sum(0, 1).value == 1 and release["b"].sum(9, 10).value == 1
