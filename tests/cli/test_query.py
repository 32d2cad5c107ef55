"""Many questions to one release from the shell: ranges from a file, quantiles, means; as CSV and JSON."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import dphist as package
from dphist.domain import Categories, Domain, Instants, Regular
from shell import dphist


@pytest.fixture
def line(here):
    package.from_counts([50, 60, 70, 80], bins=Regular(lo=0, hi=4, bins=4), epsilon=1).save("line.json")
    return package.load("line.json")


def rows(*asked):
    return list(csv.DictReader(io.StringIO(dphist("query", *asked, "--csv").stdout)))


def test_ranges_of_a_file_are_answered_at_once(line):
    Path("ranges.csv").write_text("name,lo,hi\nyoung,0,2\nold,1,4\n")
    found = json.loads(dphist("query", "line.json", "--ranges", "ranges.csv", "--json").stdout)
    for answer, (lo, hi) in zip(found["answers"], [(0, 2), (1, 4)], strict=True):
        one = line.sum(lo, hi)
        assert (answer["value"], answer["low"], answer["high"]) == (one.value, one.low, one.high)
    assert [a["asked"] for a in found["answers"]] == [["0", "2"], ["1", "4"]]
    assert found["level"] == 0.95
    assert found["note"]
    table = rows("line.json", "--ranges", "ranges.csv", "--level", "0.5")
    assert float(table[1]["high"]) == line.sum(1, 4, level=0.5).high
    assert table[1]["asked"] == "1 4"
    assert dphist("query", "line.json", "--ranges", "ranges.csv").stdout.startswith("0 2: ")


def test_quantiles_and_the_mean(line):
    table = rows("line.json", "--quantile", "0.5", "--quantile", "0.9", "--mean", "0", "2")
    assert [row["asked"] for row in table] == ["0 2", "quantile 0.5", "quantile 0.9", "mean"]
    expected = [line.sum(0, 2), line.quantile(0.5), line.quantile(0.9), line.mean()]
    assert [float(row["low"]) for row in table] == [answer.low for answer in expected]


def test_without_a_part_the_release_is_shown_as_when_it_was_published(line):
    run = dphist("query", "line.json")
    assert run.stdout.startswith("Release('auto', 4 bins") and "[3, 4]" in run.stdout
    assert "such as: dphist query line.json 0 1" in run.stderr
    assert "ask for a part, such as 0 1" in dphist("query", "line.json", "--json", code=2).stderr


@pytest.mark.parametrize(
    "given, words",
    [
        (("query", "line.json", "--quantile", "0,5"), "a number such as 0.5, with a decimal point"),
        (("query", "line.json", "0", "1", "--level", "95%"), "a number such as 0.5, with a decimal point"),
        (("publish", "people.csv", "--max-contributions", "1.5"), "a whole number such as 3"),
    ],
)
def test_a_number_that_is_none_is_told_how_to_write_it(line, given, words):
    said = " ".join(dphist(*given, code=2).stderr.replace("│", " ").split())
    assert words in said and "unable to parse" not in said


def test_time_grids_and_labels_in_their_own_words(here):
    days = package.from_counts([3, 4, 5], bins=Instants("2024-01-01", "2024-01-04", "1d"), epsilon=1)
    days.save("days.json")
    Path("days.csv").write_text("lo,hi\n2024-01-01,2024-01-03\n")
    table = rows("days.json", "--ranges", "days.csv", "--mean")
    assert float(table[0]["value"]) == days.sum("2024-01-01", "2024-01-03").value
    assert table[1]["value"].startswith("2024-01-0")
    grid = package.from_counts([[5, 6], [7, 8]], bins=([0, 1, 2], ["p", "q"]), epsilon=1)
    grid.save("grid.json")
    Path("grid.csv").write_text("x_lo,x_hi,y_label\n0,2,q\n1,2,p\n")
    table = rows("grid.json", "--ranges", "grid.csv")
    assert [float(row["value"]) for row in table] == [
        grid.sum((0, 2), "q").value,
        grid.sum((1, 2), "p").value,
    ]
    plane = package.from_counts([[5, 6], [7, 8]], bins=([0, 1, 2], [0, 3, 4]), epsilon=1)
    plane.save("plane.json")
    Path("plane.csv").write_text("x_lo,x_hi,y_lo,y_hi\n0,2,3,4\n")
    (row,) = rows("plane.json", "--ranges", "plane.csv")
    assert float(row["high"]) == pytest.approx(plane.sum((0, 2), (3, 4)).high)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("from,to\n0,1\n", 4, "columns lo, hi"),
        ("lo,hi\n", 4, "at least one row"),
        ("lo,hi\n0\n", 4, "in each a text"),
        ("lo,hi\n0,x\n", 2, "HI"),
        ("lo,hi\n0,1\n0.5,1\n", 2, "inside a bin"),
        ("", 4, "columns lo, hi"),
    ],
)
def test_a_file_that_lists_no_ranges(line, text, code, says):
    Path("ranges.csv").write_text(text)
    assert says in dphist("query", "line.json", "--ranges", "ranges.csv", code=code).stderr


def test_nothing_asked_and_both_formats(line):
    assert "such as" in dphist("query", "line.json", "--joint", code=2).stderr
    assert "not both" in dphist("query", "line.json", "0", "1", "--csv", "--json", code=2).stderr
    assert "cannot be read" in dphist("query", "line.json", "--ranges", "none.csv", code=4).stderr


@pytest.mark.parametrize(
    ("asked", "call"), [(("--mean",), "mean()"), (("--quantile", "0.5"), "quantile(0.5)")]
)
def test_what_grids_and_labels_do_not_have_is_refused_with_what_the_shell_can_ask(here, asked, call):
    grid = Domain((Regular(lo=0, hi=4, bins=2), Categories(["A", "B"])))
    package.from_counts([[5, 6], [7, 8]], bins=grid, epsilon=1).save("grid.json")
    package.from_counts([5, 6], bins=["North", "South"], epsilon=1).save("wards.json")
    name = asked[0][2:]
    refused = dphist("query", "grid.json", *asked, code=2).stderr
    assert f"a grid has no {name}: ask for a part, such as 0 2 A, or in Python for release." in refused
    assert f"release.project(axis).{call}." in refused and "project it first" not in refused
    assert dphist("query", "grid.json", "0", "2", "A", "--json").stdout
    refused = dphist("query", "wards.json", *asked, code=2).stderr
    assert f"labels have no {name}: ask for one of them, such as North." in refused
    along = package.load("grid.json").project(0)
    assert (along.mean() if name == "mean" else along.quantile(0.5)).value >= 0


def test_an_interval_for_a_part_that_was_picked_after_looking(line):
    found = json.loads(dphist("query", "line.json", "1", "3", "--joint", "--json").stdout)
    one, alone = line.sum(1, 3, joint=True), line.sum(1, 3)
    assert (found["value"], found["low"], found["high"]) == (one.value, one.low, one.high)
    assert found["high"] - found["low"] > alone.high - alone.low


def test_the_change_since_an_earlier_release(line):
    package.from_counts([40, 60, 70, 80], bins=Regular(lo=0, hi=4, bins=4), epsilon=1).save("old.json")
    new, old = (package.load(name).sum(0, 2, level=0.975) for name in ("line.json", "old.json"))
    asked = ("query", "line.json", "0", "2", "--since", "old.json")
    found = json.loads(dphist(*asked, "--json").stdout)["change"]
    assert found["value"] == new.value - old.value
    assert (found["low"], found["high"]) == (new.low - old.high, new.high - old.low)
    assert "changed by" in dphist(*asked).stdout
    package.from_counts([1, 2], epsilon=1).save("other.json")
    assert "other bins" in dphist(*asked[:-1], "other.json", code=2).stderr
    assert "go with one PART" in dphist("query", "line.json", "--mean", "--joint", code=2).stderr


def test_a_change_needs_both_intervals_and_one_level():
    from dphist.errors import UsageError
    from dphist.release.differences import change, level_of_each

    known = package.Estimate(5.0, 3.0, 7.0, level_of_each(0.95), "")
    unknown = package.Estimate(5.0, None, None, level_of_each(0.95), "")
    assert change(known, known).level == 0.95 and change(known, unknown).low is None
    with pytest.raises(UsageError, match="one level"):
        change(known, package.Estimate(5.0, 3.0, 7.0, 0.95, ""))


@pytest.mark.parametrize(
    ("bins", "part", "counts"),
    [
        ([package.Integers(20, 29)], ["22", "25"], "22 to 24"),
        ([package.Integers(-3, 6)], ["-2", "7.0"], "-2 to 6"),
        ([package.Integers(0, 4), package.Integers(5, 6)], ["0", "2", "5", "7"], "0 to 1 by 5 to 6"),
        ([Regular(lo=0, hi=4, bins=10)], ["0", "2"], None),
        ([package.Integers(20, 29)], ["22"], None),
    ],
)
def test_which_integers_lie_between_two_edges_is_said(here, bins, part, counts):
    """The upper edge is not among them, as with all bins; who asks from 22 to 25 may think it is."""
    domain = Domain(tuple(bins))
    package.from_counts(np.full(domain.shape, 50), bins=domain, epsilon=1).save("r.json")
    said = dphist("query", "r.json", "--", *part).stderr
    assert (f"this counts {counts}, both included" in said) if counts else "both included" not in said
