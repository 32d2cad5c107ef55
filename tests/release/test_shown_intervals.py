"""Intervals for reading: rounded outwards wherever they are shown, so that none is narrower than it is."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dphist
from dphist._common.rounded import NOTHING_ELSE, above, below, interval
from dphist.cli.shown import show_release
from dphist.release import show
from dphist.reports import sheet, tables
from shell import dphist as shell

NUMBER = r"[-\N{MINUS SIGN}]?[\d,]+(?:\.\d+)?"


def as_number(text):
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def shown_ends(text):
    """Return the ends of all intervals in a text."""
    found = re.findall(rf"({NUMBER}) to ({NUMBER})", text)
    return np.array([[as_number(end) for end in pair] for pair in found]).T


def fractional():
    """Return a release whose intervals end at no whole numbers."""
    counts = np.random.default_rng(5).integers(20, 900, 12)
    labels = [f"label {i}" for i in range(12)]
    release = dphist.from_counts(counts, bins=labels, epsilon=1, method="geometric-tree", workload="ranges")
    low, high = release.presentable_intervals()
    assert (low != np.round(low)).any() and (high != np.round(high)).any()
    return release, low, high


def test_ends_are_rounded_outwards():
    assert interval(1.7, 3.2) == "1 to 4"
    assert interval(0.995, 3.005) == "0 to 4", "also where a nearer number would do for reading"
    assert interval(-1.2, -0.3) == "-2 to 0"
    assert interval(1.26, 3.21, 1) == "1.2 to 3.3"
    assert interval(0.0, 0.4) == "0 to 1"
    assert interval(2.0, 5.0) == "2 to 5"
    assert interval(0.1 + 0.2, 3 * 0.1, 1) == "0.3 to 0.3", "what base 2 adds is no digit"
    assert interval(1234.5, 1e9) == "1,234 to 1,000,000,000"
    assert interval(None, None) == interval(float("nan"), float("nan")) == "not known"
    assert interval(0.0, float("inf")) == "0 to inf"
    assert (below(-0.5), above(2.01, 1)) == (-1.0, 2.1)


def test_the_shell_and_the_report_show_no_interval_narrower_than_it_is(capsys):
    release, low, high = fractional()
    show_release(release)
    told = capsys.readouterr().out
    report = "\n".join(row[2] for row in next(tables.tables(release, level=0.95)).rows)
    for text in (told, report):
        least, most = shown_ends(text)
        assert (least <= low).all() and (least > low - 1).all()
        assert (most >= high).all() and (most < high + 1).all()


def test_the_card_shows_no_interval_narrower_than_it_is():
    release, low, high = fractional()
    rows = re.findall(rf"<td class='number'>({NUMBER})</td>" * 3, release._repr_html_())
    shown = np.array([[as_number(cell) for cell in row] for row in rows])
    assert len(shown) == 12
    assert (shown[:, 1] <= low).all() and (shown[:, 2] >= high).all()
    assert np.allclose(shown[:, 1:], np.array([low, high]).T, rtol=1e-5, atol=1e-5)


def test_half_widths_are_rounded_up(capsys):
    release = dphist.from_counts(np.full((16, 4), 9), epsilon=1, method="hats", workload="rectangles")
    margin = sheet._typical(release, 0.95)
    assert margin != round(margin)
    assert f"\N{PLUS-MINUS SIGN} {np.ceil(margin):.0f}<" in sheet._tiles(release, 0.95)


# ---- an interval of 0 to 0 ------------------------------------------------------------------------------


def empty(method="average", **more):
    """Return a release of bins without records, of which some intervals are cut to 0 to 0."""
    return dphist.from_counts(np.zeros(200, dtype=int), epsilon=1, method=method, **more)


@pytest.mark.parametrize(("method", "post"), [("average", "none"), ("identity", "nonneg")])
def test_an_interval_of_0_to_0_is_explained_where_it_is_shown(capsys, method, post):
    release = empty(method, post=post)
    low, high = release.presentable_intervals()
    assert ((low == 0) & (high == 0)).any(), "in 200 bins there are some but for a chance below 1e-6"
    assert NOTHING_ELSE in next(tables.tables(release, level=0.95)).note
    assert NOTHING_ELSE in release._repr_html_()
    show_release(release)
    told = " ".join(capsys.readouterr().out.split())
    assert (NOTHING_ELSE in told) == (" 0 to 0 " in told)


def test_the_shell_explains_an_answer_of_0_to_0(tmp_path):
    release = next(made for made in iter(empty, None) if made.sum(0, 200).high >= 1)  # as nearly all are
    low, high = release.presentable_intervals()
    at = int(np.flatnonzero((low == 0) & (high == 0))[0])
    release.save(tmp_path / "r.json")
    run = shell("query", tmp_path / "r.json", at, at + 1)
    assert "0 (0 to 0, level 0.95)" in run.stdout and NOTHING_ELSE in run.stderr
    run = shell("query", tmp_path / "r.json", 0, 200)
    assert NOTHING_ELSE not in run.stderr


def test_other_intervals_need_no_such_word(capsys):
    release = dphist.from_counts(np.full(8, 900), epsilon=1)
    show_release(release)
    assert "0 to 0" not in capsys.readouterr().out.replace("An interval of", "")
    assert "certainly empty" not in release._repr_html_()
    assert not next(tables.tables(release, level=0.95)).note


def test_values_that_were_averaged_are_not_called_measured():
    counts = np.full(12, 900)
    averaged = dphist.from_counts(counts, epsilon=1)
    assert "averaged after the measurement" in sheet._reading(averaged, 0.95)
    assert "intervals are those of the measurement" in sheet._reading(averaged, 0.95)
    plain = dphist.from_counts(counts, epsilon=1, method="identity")
    assert "averaged" not in sheet._reading(plain, 0.95)
    for release in (averaged, plain):
        assert "as measured" not in sheet._reading(release, 0.95)


def test_ends_in_a_notebook_are_rounded_outwards_to_the_digits_that_are_shown():
    for number in (1.2345678, 123.45678, 0.00123456789, 1e-310, 99999.99):
        low, high = (
            as_number(show._cell(number, name)) if number > 1e-300 else number for name in ("low", "high")
        )
        assert low <= number <= high
        assert show._cell(number, "high")
