"""Every axis from the shell, end to end: published, shown, drawn and asked in the words of the axis.

Epsilon is 50, so that the noise is zero but for a chance of 1e-20, and numbers can be compared.
"""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dphist as package
from shell import DPHIST, dphist, program

EXACT = ("--epsilon", "50", "--json")
HEADER = "person,admitted,age,ward,cost"
ROWS = [
    "p1,2024-01-01 08:00,30,North,1.5",
    "p1,2024-01-03T09:30:00,31,North,2500",
    "p2,2024-01-08,31,South,10",
    "p3,2024-02-29 23:59:59,64,\"East, upper\",99.99",
    "p3,2024-12-31 12:00,0,Mars,100000",
    "p4,2025-01-01,120,,0",
    "p5,2024-02-30,121,North,x",
    "p6,,,Mars,",
]  # fmt: skip
YEAR = ("--column", "admitted", "--range", "2024-01-01", "2025-01-01", "--every")
LABELS = '"East, upper",North,South'


@pytest.fixture
def visits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    (tmp_path / "visits.csv").write_text("\n".join([HEADER, *ROWS, ""]))
    (tmp_path / "wards.txt").write_text("East, upper\nNorth\n\nSouth\n")
    return tmp_path


def publish(*options, out="r.json", data="visits.csv", code=0):
    return dphist("publish", data, *options, *EXACT, "--out", out, "--overwrite", code=code)


def values(*options, **more):
    publish(*options, **more)
    release = package.load("r.json")
    return [
        dict(zip(axis.names(), release.values().sum(axis=1 - i).tolist(), strict=True))
        if len(release.domain.axes) == 2
        else dict(zip(axis.names(), release.values().tolist(), strict=True))
        for i, axis in enumerate(release.domain.axes)
    ]


def positive(table):
    return {name: round(value) for name, value in table.items() if round(value)}


def query(*part):
    return round(json.loads(dphist("query", "r.json", *part, "--json").stdout)["value"])


@pytest.mark.parametrize(
    ("every", "bins", "expected"),
    [
        ("week", 53, {"2024-01-01": 2, "2024-01-08": 1, "2024-02-26": 1, "2024-12-30": 1}),
        ("month", 12, {"2024-01": 3, "2024-02": 1, "2024-12": 1}),
        ("quarter", 4, {"2024-01": 4, "2024-10": 1}),
        ("year", 1, {"2024": 5}),
        ("day", 366, {"2024-01-01": 1, "2024-01-03": 1, "2024-01-08": 1, "2024-02-29": 1, "2024-12-31": 1}),
    ],
)
def test_time(visits, every, bins, expected):
    (found,) = values(*YEAR, every)
    assert len(found) == bins and positive(found) == expected
    for name, value in expected.items():
        assert query(name) == value  # a bin is asked by its name


def test_weeks_are_dates_in_the_table_the_picture_and_the_answers(visits):
    run = dphist(
        "publish", "visits.csv", *YEAR, "week", "--epsilon", "50", "--out", "r.json", "--plot", "p.svg"
    )
    assert "2024-01-08        1" in run.stdout and "95 % interval" in run.stdout
    assert "the last bin, 2024-12-30, is shorter than the others: --range ends at 2025-01-01" in run.stderr
    assert "2024-01-01" in (visits / "p.svg").read_text()
    assert query("2024-01-01", "2024-01-15") == 3 and query("2024-01", "2024-01-08") == 2
    assert "use its edges" not in dphist("query", "r.json", "2024-01-09", "2024-01-15", code=2).stderr
    said = dphist("query", "r.json", "2024-01-09", "2024-01-15", code=2).stderr
    assert "ask at its edges, 2024-01-08 or 2024-01-15" in said
    assert "is where the last bin ends" in dphist("query", "r.json", "2025-01-01", code=2).stderr
    assert "no day 2024-02-30" in dphist("query", "r.json", "2024-02-30", "2024-03-04", code=2).stderr
    assert "outside the domain" in dphist("query", "r.json", "2023-01-01", "2024-01-08", code=2).stderr


def test_no_note_where_all_steps_are_whole(visits):
    assert "shorter" not in publish(*YEAR, "month").stderr


def test_hours_and_days_of_a_named_zone(visits):
    (visits / "visits.csv").write_text("t\n2024-03-31 01:59\n2024-03-31 03:01\n2024-10-27 02:30\n")
    march = ("--column", "t", "--range", "2024-03-31", "2024-04-01", "--timezone", "Europe/Berlin", "--every")
    (found,) = values(*march, "hour")
    assert len(found) == 23
    assert positive(found) == {"2024-03-31 01:00+01:00": 1, "2024-03-31 03:00+02:00": 1}
    assert query("2024-03-31 03:00+02:00") == query("2024-03-31T03:00") == 1
    said = dphist("query", "r.json", "2024-03-31T02:00", "2024-03-31T04:00", code=2).stderr
    assert "did not show 2024-03-31 02:00:00" in said
    assert positive(values(*march, "day")[0]) == {"2024-03-31": 2}


def test_integers(visits):
    (found,) = values("--column", "age", "--integers", "0", "120")
    assert len(found) == 121 and positive(found) == {"0": 1, "30": 1, "31": 2, "64": 1, "120": 1}
    assert query("31") == 2 and query("30", "65") == 4


def test_log_bins_and_answers_at_the_edges_as_they_are_shown(visits):
    (found,) = values("--column", "cost", "--log", "1", "1e5", "--bins", "10")
    expected = {"[1, 3.16228)": 1, "[10, 31.6228)": 1, "[31.6228, 100)": 1, "[1000, 3162.28)": 1,
                "[31622.8, 100000]": 1}  # fmt: skip
    assert positive(found) == expected
    assert query("3.16228", "3162.28") == 3 and query("31622.8", "100000") == 1
    assert "3.16228 or 10" in dphist("query", "r.json", "4", "10", code=2).stderr
    (found,) = values("--column", "cost", "--log", "1", "1e5", "--bins", "10", "--outside", "clip")
    assert positive(found)["[1, 3.16228)"] == 2  # the cost of nothing


def test_edges(visits):
    (found,) = values("--column", "age", "--bins", "0,18,65,120")
    assert positive(found) == {"[0, 18)": 1, "[18, 65)": 4, "[65, 120]": 1}
    assert query("18", "120") == 5


@pytest.mark.parametrize("labels", [LABELS, "wards.txt"])
def test_labels_inline_or_from_a_file(visits, labels):
    (found,) = values("--column", "ward", "--categories", labels)
    assert positive(found) == {"East, upper": 1, "North": 3, "South": 1}
    (found,) = values("--column", "ward", "--categories", labels, "--other", "elsewhere", "--null", "unknown")
    assert positive(found) == {"East, upper": 1, "North": 3, "South": 1, "elsewhere": 2, "unknown": 1}
    assert query("elsewhere", "unknown") == 3 and query("East, upper") == 1
    assert "Did you mean 'elsewhere'" in dphist("query", "r.json", "elsewere", code=2).stderr
    assert "Did you mean 'North'" in dphist("query", "r.json", "north", code=2).stderr


def test_a_single_label_is_quoted(visits):
    (found,) = values("--column", "ward", "--categories", '"North"', "--other", "elsewhere")
    assert positive(found) == {"North": 3, "elsewhere": 4}


def test_undeclared_and_missing_labels_move_nothing_else(visits):
    labels = ("--column", "ward", "--categories", "wards.txt")
    (before,) = values(*labels)
    with (visits / "visits.csv").open("a") as file:
        file.write("p9,2024-05-05,50,Pluto,5\np9,2024-05-05,50,,5\n")
    assert values(*labels) == [before]
    (named,) = values(*labels, "--other", "elsewhere", "--null", "unknown")
    assert {name: named[name] for name in before} == before
    assert (named["elsewhere"], named["unknown"]) == (3, 2)


GRIDS = {
    "ages by ward": (
        ("--column", "age", "--integers", "0", "120", "--y-column", "ward", "--y-categories", "wards.txt"),
        {"30": 1, "31": 2, "64": 1}, {"East, upper": 1, "North": 2, "South": 1},
        (("30", "32", "North"), 2), (("30", "32", "North", "South"), 3),
    ),
    "wards by month": (
        ("--column", "ward", "--categories", LABELS, "--other", "rest",
         "--y-column", "admitted", "--y-range", "2024-01", "2025-01", "--y-every", "month"),
        {"East, upper": 1, "North": 2, "South": 1, "rest": 1}, {"2024-01": 3, "2024-02": 1, "2024-12": 1},
        (("North", "2024-01", "2024-03"), 2), (("North", "South", "rest", "2024-01-01", "2024-03-01"), 3),
    ),
    "costs by week": (
        ("--column", "cost", "--log", "1", "1e5", "--bins", "5", "--y-column", "admitted",
         "--y-range", "2024-01-01", "2024-01-15", "--y-every", "week"),
        {"[1, 10)": 1, "[10, 100)": 1, "[1000, 10000)": 1}, {"2024-01-01": 2, "2024-01-08": 1},
        (("1", "100", "2024-01-08", "2024-01-15"), 1), (("1", "1e5", "2024-01-01", "2024-01-15"), 3),
    ),
    "wards by persons": (
        ("--column", "ward", "--categories", LABELS, "--null", "none",
         "--y-column", "person", "--y-categories", "p1,p2,p4", "--y-other", "others"),
        {"East, upper": 1, "North": 3, "South": 1, "none": 1}, {"p1": 2, "p2": 1, "p4": 1, "others": 2},
        (("North", "p1"), 2), (("none", "p4"), 1),
    ),
    "edges by equal bins": (
        ("--column", "age", "--bins", "0,18,120", "--y-column", "age", "--y-bins", "2",
         "--y-range", "0", "120"),
        {"[0, 18)": 1, "[18, 120]": 5}, {"[0, 60)": 4, "[60, 120]": 2},
        (("18", "120", "0", "60"), 3), (("0", "18", "60", "120"), 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("grid", GRIDS)
def test_any_two_axes_make_a_grid(visits, grid):
    options, x, y, *asked = GRIDS[grid]
    assert [positive(table) for table in values(*options)] == [x, y]
    for part, expected in asked:
        assert query(*part) == expected
    run = dphist("publish", "visits.csv", *options, "--epsilon", "50", "--out", "g.json", "--plot", "g.svg")
    names = [axis.names() for axis in package.load("g.json").domain.axes]
    few = min(names, key=len)
    assert all(name in run.stdout for name in few) and "ask for a part of it, such as:" in run.stdout
    example = run.stdout.rpartition("RELEASE ")[2].splitlines()[0]
    assert few[0] in (visits / "g.svg").read_text() or "[" in few[0]
    dphist("query", "g.json", *shlex.split(example))  # the example is a query of this release
    said = dphist("query", "g.json", "1", code=2).stderr
    assert "this release is a grid" in said and "such as" in said


def test_a_table_of_a_grid_holds_its_values(visits):
    options, *_ = GRIDS["ages by ward"]
    shown = dphist("publish", "visits.csv", *options, "--epsilon", "50", "--out", "g.json").stdout
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line and line[0].isdigit()}
    assert lines["0"] == ["0", "0", "0"] and "…" in shown and "95 % interval: 0 below to 0 above" in shown
    assert "age by ward" in shown


def test_a_grid_of_many_by_many_is_summed_up(visits):
    ages = ("--column", "age", "--integers", "0", "120", "--y-column", "age", "--y-integers", "0", "120")
    shown = dphist("publish", "visits.csv", *ages, "--epsilon", "50").stdout
    assert "grid of 121 x 121 bins" in shown and len(shown.splitlines()) in (4, 5)


class TestOtherBesideGroups:
    AGES = ("--column", "age", "--bins", "1", "--range", "0", "120", "--by", "ward", "--groups", "wards.txt")
    PERSONS = ("--column", "person", "--categories", "p1,p2", "--by", "ward", "--groups", "wards.txt")

    def groups(self, *options):
        how = ("--epsilon", "50", "--out", "g.json", "--overwrite")
        shown = dphist("publish", "visits.csv", *options, *how).stdout
        release = package.load("g.json")
        found = {name: release[name].values().round().tolist() for name in release.hierarchy.leaves}
        self.example = shown.rpartition("--group LABEL ")[2]
        return found, release.bins.axis.names()

    def test_without_labels_it_is_a_group(self, visits):
        found, _ = self.groups(*self.AGES, "--other", "elsewhere")
        assert found["elsewhere"] == [1] and self.groups(*self.AGES, "--group-other", "elsewhere")[0] == found

    def test_with_labels_it_is_a_label(self, visits):
        found, names = self.groups(*self.PERSONS, "--other", "others")
        assert names == ["p1", "p2", "others"] and found["North"] == [2, 0, 1] and len(found) == 3
        assert self.example == "p1\n" and "2 (" in dphist("query", "g.json", "--group", "North", "p1").stdout
        found, names = self.groups(*self.PERSONS, "--other", "others", "--group-other", "elsewhere")
        assert names == ["p1", "p2", "others"] and found["elsewhere"] == [0, 0, 2]

    def test_without_groups_it_needs_labels(self, visits):
        ages = ("--column", "age", "--integers", "0", "9")
        assert "--other and --null" in publish(*ages, "--other", "x", code=2).stderr
        assert "go with --by" in publish(*ages, "--group-other", "x", code=2).stderr


WRONG = {
    "bins and integers": (("--column", "age", "--bins", "3", "--integers", "0", "9"), "--bins and --int"),
    "bins and categories": (("--column", "age", "--bins", "3", "--categories", "a,b"), "leave one out"),
    "steps without dates": (("--column", "age", "--every", "week"), "--every needs --range"),
    "steps of numbers": (("--column", "age", "--every", "week", "--range", "0", "9"), "needs two dates"),
    "dates without steps": (("--column", "age", "--range", "2024-01-01", "2025-01-01"), "as --every week"),
    "a wrong step": ((*YEAR, "wek"), "Did you mean 'week'"),
    "an impossible date": (
        ("--column", "admitted", "--range", "2024-02-30", "2025-01-01", "--every", "day"),
        "no day 2024-02-30"),
    "dates of another order": (
        ("--column", "admitted", "--range", "1.2.2024", "1.3.2024", "--every", "day"),
        "written as 2024-01-31"),
    "backwards": (
        ("--column", "admitted", "--range", "2025-01-01", "2024-01-01", "--every", "day"), "must increase"),
    "a gap of the clock": (
        ("--column", "admitted", "--range", "2024-03-31T02:30", "2024-04-01", "--every", "hour", "--timezone",
         "Europe/Berlin"), "did not show 2024-03-31 02:30:00"),
    "no such zone": ((*YEAR, "day", "--timezone", "Europe/Berlinn"), "no time zone 'Europe/Berlinn'"),
    "log of zero": (("--column", "cost", "--log", "0", "9", "--bins", "3"), "--log needs ends above 0"),
    "log of less": (("--column", "cost", "--log", "-1", "9", "--bins", "3"), "-1 has no logarithm"),
    "log without bins": (("--column", "cost", "--log", "1", "9"), "--log needs --bins"),
    "log and range": (("--column", "cost", "--log", "1", "9", "--range", "1", "9", "--bins", "3"),
                      "--range goes"),
    "descending edges": (("--column", "age", "--bins", "0,65,18"), "Sort them"),
    "overlapping edges": (("--column", "age", "--bins", "0,18,18,65"), "repeated"),
    "no file of labels": (("--column", "ward", "--categories", "wads.txt"), "no file 'wads.txt'"),
    "labels twice": (("--column", "ward", "--categories", "a,b,a"), "declared twice"),
    "other twice": (("--column", "ward", "--categories", "a,b", "--other", "b"), "the name of two bins"),
    "half a grid": (("--column", "age", "--integers", "0", "9", "--y-column", "ward"), "--y-bins is needed"),
    "a grid without its column": (
        ("--column", "age", "--integers", "0", "9", "--y-categories", "a,b"), "--y-column is needed with"),
    "a wrong second axis": (
        ("--column", "age", "--integers", "0", "9", "--y-column", "cost", "--y-log", "0", "9",
         "--y-bins", "3"),
        "--y-log needs ends above 0"),
    "numbers with a format": (("--column", "age", "--integers", "0", "9", "--format", "csv"), "named -"),
    "no integers": (("--column", "age", "--integers", "0", "9.5"), "--integers needs a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_options_and_nothing_is_charged(visits, what):
    options, words = WRONG[what]
    for command in (("publish", "visits.csv", *options, "--epsilon", "1"), ("check", "visits.csv", *options)):
        said = dphist(*command, code=2).stderr
        assert words in said and "=" not in said
    assert not list(visits.glob("*.db")) and not list(visits.glob("release*"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\nb\na\n", "line 3 of wards.txt repeats"),
        ("Süd".encode("latin-1"), "not UTF-8"),
        (b"\n", "no labels"),
    ],
)
def test_bad_files_of_labels(visits, content, words):
    (visits / "wards.txt").write_bytes(content)
    assert words in publish("--column", "ward", "--categories", "wards.txt", code=2).stderr
    assert not list(visits.glob("*.db"))


def test_a_check_and_a_dry_run_take_the_same_options(visits):
    weeks = (*YEAR, "week")
    # What the steward alone may see: exact counts.
    assert re.search("would be counted +5\n", dphist("check", "visits.csv", *weeks).stdout)
    facts = json.loads(dphist("publish", "visits.csv", *weeks, *EXACT, "--dry-run").stdout)
    assert facts["bins"] == 53 and facts["range"] == "2024-01-01 to 2025-01-01"
    ages = ("--column", "age", "--integers", "0", "120")
    assert (
        json.loads(dphist("publish", "visits.csv", *ages, *EXACT, "--dry-run").stdout)["range"] == "0 to 120"
    )


class TestHelp:
    @pytest.mark.parametrize("command", ["publish", "check"])
    def test_it_fits_a_screen_in_panels(self, command, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        text = dphist(command, "--help").stdout
        assert len(text.splitlines()) <= 60
        order = [text.index(f"─ {panel} ─") for panel in ("Data", "Bins", "Privacy")]
        assert order == sorted(order) and "─ Options ─" not in text

    def test_every_option_of_a_second_axis_is_there(self, visits):
        from dphist.cli.bins import _OF_AN_AXIS
        from dphist.cli.options import Axes
        from dphist.domain import KEYS

        named = set(Axes.__dataclass_fields__)
        assert {*KEYS} == {*_OF_AN_AXIS, "timezone"}
        assert named == {"column", "y_column", *KEYS, *(f"y_{key}" for key in _OF_AN_AXIS)}


def test_the_examples_of_the_page_run(visits):
    page = (Path(__file__).parents[2] / "docs" / "shell.md").read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("dphist ")]
    assert len(commands) == 11 and len(lines) == 12
    for command in commands:
        assert dphist(*command).stdout


def test_the_words_of_a_bundle_are_what_was_typed():
    from dphist.cli.bins import words
    from dphist.cli.options import Axes, Groups, Reading

    axes = Axes(column="age", bins="0,18,65", y_column="ward", y_categories="wards.txt", y_null="?")
    typed = ["--column", "age", "--bins", "0,18,65"]
    assert words(axes) == [*typed, "--y-column", "ward", "--y-categories", "wards.txt", "--y-null", "?"]
    assert words(Axes(range=("0", "9"))) == ["--range", "0", "9"]
    assert words(Groups(importance=["a=1", "b=2"])) == ["--importance", "a=1", "--importance", "b=2"]
    assert words(Reading(well_formed=True, decimal=",")) == ["--decimal", ",", "--well-formed"]


class TestStandardInput:
    AGES = ("--column", "age", "--integers", "0", "120")

    @pytest.fixture
    def piped(self, visits, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(visits / "tmp"))
        (visits / "tmp").mkdir()
        monkeypatch.setattr("tempfile.tempdir", None)

        def pipe(data):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

        yield pipe
        monkeypatch.setattr("tempfile.tempdir", None)
        assert not list((visits / "tmp").iterdir())  # nothing of the records is left

    def test_csv(self, visits, piped):
        piped((visits / "visits.csv").read_bytes())
        (found,) = values(*self.AGES, data="-")
        assert positive(found)["31"] == 2
        assert package.load("r.json").provenance["source"] == "stdin.csv"

    def test_json_lines_and_tabs(self, visits, piped):
        piped(b'{"age": 31, "who": "a"}\n{"age": 31, "who": "b"}\nnonsense\n{"age": 31, "who": "b"}\n')
        person = ("--unit", "who", "--max-contributions", "1")
        (found,) = values(*self.AGES, "--format", "jsonl", *person, data="-")
        assert positive(found) == {"31": 2}
        piped(b"who\tage\na,b\t31\n")
        assert positive(values(*self.AGES, "--format", "tsv", data="-")[0]) == {"31": 1}

    def test_no_record_decides_on_the_format(self, visits, piped):
        piped(b'{"age": 31}\n')
        said = publish(*self.AGES, data="-", code=4).stderr  # its first line is a header: of no column age
        assert "no column" in said or "age" in said
        assert not list(visits.glob("*.db"))

    def test_a_check(self, visits, piped):
        piped((visits / "visits.csv").read_bytes())
        assert re.search("would be counted +6\n", dphist("check", "-", *self.AGES).stdout)

    def test_a_dry_run_reads_nothing(self, visits, piped, monkeypatch):
        class Untouched(io.BytesIO):
            def read(self, *_):
                raise AssertionError("a dry run has read records")

            readinto = read1 = read

        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Untouched())))
        dphist("publish", "-", *self.AGES, *EXACT, "--dry-run")

    def test_bad_input(self, visits, piped, monkeypatch):
        assert "--format must be one of" in publish(*self.AGES, "--format", "xlsx", data="-", code=2).stderr
        piped(b"")
        assert "standard input is empty" in publish(*self.AGES, data="-", code=4).stderr
        terminal = io.TextIOWrapper(io.BytesIO())
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin", terminal)
        assert "nothing is piped in" in publish(*self.AGES, data="-", code=2).stderr
        assert not list(visits.glob("release*"))

    def test_the_program(self, visits, piped):
        with (visits / "visits.csv").open() as file:
            run = program("publish", "-", *self.AGES, *EXACT, "--out", "r.json", stdin=file)
        assert json.loads(run.stdout)["provenance"]["source"] == "stdin.csv" and query("31") == 2

    @pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
    def test_an_interrupt_leaves_nothing_and_charges_nothing(self, visits, piped):
        command = [DPHIST, "publish", "-", *self.AGES, "--epsilon", "1", "--out", "r.json"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            run.stdin.write(f"{HEADER}\n{ROWS[0]}\n")
            run.stdin.flush()
            for _ in range(1200):  # until the records are being kept
                if list((visits / "tmp").glob("*/stdin.csv")):
                    break
                time.sleep(0.1)
            time.sleep(0.2)
            os.kill(run.pid, signal.SIGINT)
            said = run.stderr.read()
        assert run.returncode == 130 and "nothing was charged" in said
        assert not (visits / "r.json").exists() and not list(visits.glob("*.db"))
