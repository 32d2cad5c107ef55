"""Our figures beside published ones: tables, places and how far they agree."""

import math
from dataclasses import replace

import numpy as np
import pytest

from papers import tables
from papers.tables import Pair


def test_a_table_has_a_heading_a_note_and_figures_to_the_right():
    rows = [
        {"method": "a|b", "error": 0.26667, "words": "x"},
        {"method": "c", "error": None, "words": "y"},
    ]
    text = tables.table(rows, columns=["method", "error", "words"], title="T", note="Why.")
    assert text.splitlines() == [
        "### T",
        "",
        "Why.",
        "",
        "| method | error | words |",
        "| --- | ---: | --- |",
        "| a\\|b | 0.267 | x |",
        "| c |  | y |",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (123456.7, "123,457"), (1e-5, "1.00e-05"), (math.nan, ""), (26.67, "26.7")),
        *((7_500_000, "7,500,000"), ("as is", "as is"), (np.int64(1024), "1,024"), (True, "True")),
    ],
)
def test_figures_have_three_digits(value, text):
    assert tables.number(value) == text


def test_ranks_and_their_correlation():
    assert tables.ranks([3.0, 1.0, 3.0, 0.5]).tolist() == [3.5, 2.0, 3.5, 1.0]
    assert tables.spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert tables.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert tables.spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert math.isnan(tables.spearman([1, 1], [1, 2]))


def test_the_best_share_the_first_place():
    assert tables.best({"a": 1.0, "b": 1.04, "c": 1.06}) == ("a", "b")


def test_the_verdict_follows_from_the_figures():
    pairs = [
        Pair("I", "c", "A", 1.0, 1.0),
        Pair("I", "c", "B", 2.0, 3.0),
        Pair("I", "c", "C", 90.0, 9.0),
        Pair("I", "c", "D", None, 1.0),
        Pair("I", "c", "ours", 5.0, None),
    ]
    (column,) = tables.agreement(pairs)
    assert column["rank correlation"] == pytest.approx(1)
    assert (column["best here"], column["same winner"]) == ("A", "yes")
    assert column["within a factor 2"] == "2 of 3"
    text = tables.verdict(pairs)
    assert "Of 3 published figures, 2 are met within a factor of 2; of the others, 1 are larger here" in text
    assert "the same in 1 of 1 columns" in text
    assert "| C | 1 | 10 | 10 | 10 | 1 | 0 |" in text
    swapped = [replace(p, ours=p.published and 1 / p.published) for p in pairs]
    (column,) = tables.agreement(swapped)
    assert column["rank correlation"] < 0 and column["same winner"] == "no"
    assert "No figure can be compared" in tables.verdict([pairs[-1]])


def test_each_cell_shows_both_figures_and_places():
    pairs = [
        Pair("I", "c", "A", 1.0, 4.0),
        Pair("I", "c", "B", 2.0, 3.0),
        Pair("I", "c", "ours", 9.0, None),
    ]
    text = tables.beside(pairs, title="Table I")
    assert "| A | 1 / 4 |" in text and "| ours | 9 |" in text
    assert "| A | 1 / 2 |" in text and "| B | 2 / 1 |" in text
