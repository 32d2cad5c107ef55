"""Comparisons: what is ranked and how, what is written, and what is refused before anything runs."""

import base64
import html.parser
import json
import math
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.workload import Points
from dphist.errors import DataError, DphistError, OutputError, UsageError
from dphist.lab import compare, grid, metrics, page
from dphist.methods import catalogue
from shell import DPHIST, dphist

QUIET = ("--jobs", "1", "--no-progress")
TINY = ("--like", "bins=64 records=1e4 steps", "--trials", "6", "--samples", "2", *QUIET)
BOTH = ("--method", "identity,uniform", "--epsilon", "1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_BENCH_DATA", raising=False)
    return tmp_path


def row(method, value, *, dataset="a", trial=0, epsilon=1.0, status="ok", error=""):
    found = dict.fromkeys(grid.COLUMNS) | {"dataset": dataset, "epsilon": epsilon, "method": method}
    figures = {"trial": trial, "seed": trial, "seconds": 0.25, "mean_absolute": value, "draw": 0}
    return found | (figures if status == "ok" else {}) | {"status": status, "error": error}


def question(names=("a",), **more):
    subjects = tuple(
        compare.Subject(compare.Source(name, "steps", 8, 99), 8, 99, ("x", "y"), 4) for name in names
    )
    given = {"epsilons": ("1",), "workload": "points", "trials": 4, "metric": "mean_absolute"} | more
    return compare.Question(subjects, **given)


# What the rows say


def test_methods_are_ranked_with_intervals_and_regret():
    least = {"far": 40, "near": 10.1, "best": 10}
    rows = [row(m, base + t % 2, trial=t) for m, base in least.items() for t in range(8)]
    rows += [row("broken", None, status="failed", error="UsageError: no such thing.")]
    (ranking,) = compare.rank(question(), rows).rankings
    assert [line.method for line in ranking.lines] == ["best", "near", "far"]
    best, _, far = ranking.lines
    assert (best.mean, best.regret, best.seconds, best.trials) == (10.5, 1, 0.25, 8)
    assert best.low < best.mean < best.high and best.low >= 10 and best.high <= 11
    assert far.regret == pytest.approx(40.5 / 10.5)
    assert ranking.failed == {"broken": "no such thing."}
    assert [line.competitive for line in ranking.lines] == [True, False, False]  # near is always 0.1 worse


def test_a_difference_that_the_trials_do_not_show_is_competitive():
    noise = [0, 3, -2, 1, -1, 2]
    rows = [row("best", 10, trial=t) for t in range(6)]
    rows += [row("like", 10.4 + noise[t], trial=t) for t in range(6)]
    (ranking,) = compare.rank(question(), rows).rankings
    assert [(line.method, line.competitive) for line in ranking.lines] == [("best", True), ("like", True)]


def test_the_standing_is_over_all_rankings():
    rows = [row("x", 1, dataset="a"), row("y", 4, dataset="a")]
    rows += [row("x", 18, dataset="b"), row("y", 2, dataset="b")]
    rows += [row("z", 1, dataset="b"), row("z", None, dataset="a", status="failed", error="no")]
    overall = compare.rank(question(("a", "b")), rows).overall
    assert [s.method for s in overall] == ["y", "x", "z"]  # z is the best where it runs, and does not always
    assert overall[0].regret == pytest.approx((4 * 2) ** 0.5) and overall[0].worst == 4
    assert overall[1].regret == pytest.approx((1 * 18) ** 0.5)
    assert overall[2].rankings == 1


def test_a_method_is_chosen_on_one_half_and_judged_on_the_other():
    # a and c, the first and the third, choose x; b and d judge it, and there y is best. And the other way.
    errors = {"a": (1, 4, 2), "b": (6, 2, 3), "c": (2, 8, 4), "d": (27, 3, 6)}
    rows = [
        row(m, e, dataset=d)
        for d, each in errors.items()
        for m, e in zip("xyz", each, strict=True)
        if (m, d) != ("z", "d")
    ]
    rows.append(row("z", None, dataset="d", status="failed", error="no"))
    one, two = compare.rank(question("abcd", split=True), rows).choices
    assert (one.chosen_on, one.judged_on, one.method) == (("a", "c"), ("b", "d"), "x")
    assert one.regret_where_chosen == 1 and one.worst == 9
    assert one.regret == pytest.approx((3 * 9) ** 0.5) and (one.best, one.best_regret) == ("y", 1)
    assert (two.chosen_on, two.judged_on, two.method) == (("b", "d"), ("a", "c"), "y")
    assert two.regret == pytest.approx(4) == two.worst and two.best == "x"


def test_without_a_split_nothing_is_chosen_and_with_one_json_and_page_say_so():
    rows = [row(m, e, dataset=d) for d in "ab" for m, e in (("x", 1), ("y", 2))]
    plain, made = (compare.rank(question("ab", split=split), rows) for split in (False, True))
    assert plain.choices == () and "choices" not in plain.to_dict()
    assert [c["method"] for c in made.to_dict()["choices"]] == ["x", "x"]
    text = page.page(made, command="dphist compare --split", date="2030-01-01")
    assert "judged on the other" in text and "judged on the other" not in page.page(
        plain, command="", date=""
    )


def test_a_split_needs_a_method_that_ran_everywhere():
    rows = [row("x", 1, dataset="a"), row("y", 2, dataset="b")]
    with pytest.raises(UsageError, match="no method ran on all datasets"):
        compare.rank(question("ab", split=True), rows)
    with pytest.raises(UsageError, match="but one dataset"):
        metrics.held_out([row("x", 1)], cell=["dataset"], value="mean_absolute")


def test_json_has_no_infinity():
    rows = [row("x", 0.0), row("y", 2.0)]
    made = compare.rank(question(), rows)
    assert made.rankings[0].lines[1].regret == float("inf")
    text = json.dumps(made.to_dict(), allow_nan=False)
    assert json.loads(text)["rankings"][0]["lines"][1]["regret"] is None


# What is asked


def test_trials_are_spread_over_samples():
    asked = compare.ask(like=["bins=32 records=100 steps"], samples=3, trials=7, methods=["identity"])
    assert [(s.source.draw, s.trials) for s in asked.subjects] == [(0, 3), (1, 2), (2, 2)]
    assert len({s.source.name for s in asked.subjects}) == 1
    few = compare.ask(like=["bins=32 records=100 steps"], samples=5, trials=2, methods=["identity"])
    assert [s.trials for s in few.subjects] == [1, 1]


def test_the_default_methods_suit_the_dimensions(here):
    np.save("line.npy", np.arange(16))
    np.save("plane.npy", np.ones((8, 8), int))
    asked = compare.ask(files=[Path()], trials=2)
    assert {s.source.name: s.methods for s in asked.subjects} == {
        name: catalogue.usual(Domain(tuple(Integers(0, n - 1) for n in shape)), Points(math.prod(shape)))
        for name, shape in {"line": (16,), "plane": (8, 8)}.items()
    }
    everything = compare.ask(files=[Path("line.npy")], methods=["all"])
    assert everything.subjects[0].methods == tuple(compare.CATALOGUE)
    assert (everything.subjects[0].bins, everything.subjects[0].records) == (16, 120)


def test_an_epsilon_or_a_file_named_twice_counts_once(here):
    np.save("x.npy", np.arange(16))
    (here / "more").mkdir()
    np.save("more/x.npy", np.arange(8))
    asked = compare.ask(files=[Path("x.npy"), Path("x.npy"), Path("more")], epsilons=["0.5", "1/2", "1"])
    assert asked.epsilons == ("0.5", "1")
    names = [s.source.name for s in asked.subjects]
    assert len(names) == len(set(names)) == 2  # two files of one name are told apart


WRONG = {
    "nothing": ({}, UsageError, "--like"),
    "no such shape": ({"like": ["bins=64 spase"]}, UsageError, "Did you mean 'sparse'"),
    "a bad n": ({"like": ["bins=many sparse"]}, UsageError, "whole number"),
    "no bins": ({"like": ["bins=0 sparse"]}, UsageError, "at least 1"),
    "too many bins": ({"like": ["bins=1e12 sparse"]}, UsageError, "at most"),
    "an unknown word": ({"like": ["size=64 sparse"]}, UsageError, "bins=4096 records=1e6 sparse"),
    "no such method": ({"like": ["steps"], "methods": ["identty"]}, UsageError, "Did you mean 'identity'"),
    "no such metric": (
        {"like": ["steps"], "metric": "mean_square"},
        UsageError,
        "Did you mean 'mean_squared'",
    ),
    "no such workload": ({"like": ["steps"], "workload": "point"}, UsageError, "Did you mean 'points'"),
    "a workload that does not fit": ({"like": ["bins=20 steps"], "workload": "big"}, UsageError, "20 bins"),
    "epsilon 0": ({"like": ["steps"], "epsilons": ["0"]}, UsageError, "epsilon"),
    "one trial": ({"like": ["steps"], "trials": 1}, UsageError, "spread"),
    "one dataset to split": ({"like": ["steps"], "split": True}, UsageError, "a split needs two datasets"),
    "no samples": ({"like": ["steps"], "samples": 0}, UsageError, "samples"),
    "no such file": ({"files": [Path("gone.npy")]}, DataError, "gone.npy"),
    "no such folder": ({"files": [Path("gone")]}, UsageError, "gone"),
    "another kind of file": ({"files": [Path("x.parquet")]}, UsageError, ".npy or .csv"),
    "no counts": ({"files": [Path("words.csv")]}, DataError, "words.csv"),
    "a grid and ranges": ({"files": [Path("plane.npy")], "workload": "ranges"}, UsageError, "plane: ranges"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_question_is_told_before_anything_runs(here, what):
    np.save("plane.npy", np.ones((4, 4), int))
    (here / "words.csv").write_text("a\nb\n")
    given, kind, words = WRONG[what]
    with pytest.raises(DphistError, match=re.escape(words)) as told:
        compare.ask(**given)
    assert isinstance(told.value, kind)


# What is written


@pytest.mark.slow
def test_compare_prints_a_ranking_and_writes_picture_page_and_rows(here):
    run = dphist("compare", *TINY, *BOTH, "--epsilon", "0.1", "--out", "c")
    assert "steps bins=64 records=10000, epsilon 1" in run.stdout and "epsilon 0.1" in run.stdout
    assert re.search(r"identity +0\.\d+ +0\.\d+ to [01]\.\d+ +1\.00 .*best", run.stdout)
    assert "over all 2" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80 and "without privacy" not in run.stderr
    assert {p.name for p in (here / "c").iterdir() if p.name[0] != "."} == {
        *("compare.png", "skyline.png", "compare.html", "comparison.json", "rows.jsonl", "rows.parquet")
    }
    assert (here / "c" / "compare.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((here / "c" / "comparison.json").read_text())
    assert facts["command"].startswith("dphist compare --like") and facts["trials"] == 6
    again = dphist("compare", *TINY, *BOTH, "--epsilon", "0.1", "--out", "c")
    assert again.stdout == run.stdout


def test_json_and_a_hint(here):
    run = dphist("compare", *TINY, *BOTH, "--json")
    found = json.loads(run.stdout)
    (ranking,) = found["rankings"]
    assert [line["method"] for line in ranking["lines"]] == ["identity", "uniform"]
    assert (ranking["n"], ranking["records"], ranking["lines"][0]["trials"]) == (64, 10_000, 6)
    assert run.stderr == "" and not list(here.iterdir())
    assert "--out" in dphist("compare", *TINY, *BOTH).stderr
    few = [word if word != "6" else "4" for word in TINY]
    assert "4 trials distinguish few methods" in dphist("compare", *few, *BOTH).stderr


def test_a_split_is_told_on_the_screen(here):
    like = ("--like", "bins=64 records=1e4 smooth")
    shown = dphist("compare", *TINY, *like, *BOTH, "--split").stdout.split("over all 2")[1]
    assert shown.count("Chosen on") == 2 and "identity, 1.00 times the best there" in " ".join(shown.split())


def test_public_data_is_warned_of_and_a_failed_method_shown(here, monkeypatch):
    def broken(domain):
        raise ZeroDivisionError("it <broke>")

    monkeypatch.setitem(catalogue.CATALOGUE, "efpa", replace(catalogue.CATALOGUE["efpa"], build=broken))
    np.save("plane.npy", np.full((8, 8), 50))
    ask = ("compare", "--data", "plane.npy", "--epsilon", "1", "--trials", "2", *QUIET, "--method")
    run = dphist(*ask, "identity,efpa", "--workload", "rectangles:20", "--out", "c")
    assert run.stderr.startswith("warning: this runs without privacy: use public data only.")
    assert "plane (64 bins, 3,200 records), epsilon 1" in run.stdout
    assert re.search(r"^identity .*best", run.stdout, re.M)
    assert "efpa failed: ZeroDivisionError: it <broke>\n" in run.stdout
    assert "efpa failed: ZeroDivisionError: it &lt;broke&gt;" in (here / "c" / "compare.html").read_text()
    alone = dphist(*ask, "efpa", "--out", "d", code=2)
    assert "every method failed" in alone.stderr and "efpa failed: " in alone.stdout
    assert (here / "d" / "compare.html").exists() and not (here / "d" / "compare.png").exists()


def test_other_peoples_folders_are_left_alone(here):
    (here / "full").mkdir()
    (here / "full" / "mine.txt").write_text("mine")
    (here / "odd").mkdir()
    (here / "odd" / "comparison.json").write_text("[1]")
    (here / "file").write_text("mine")
    told = {"full": "something else", "odd": "something else", "file": "elsewhere", "file/x": "elsewhere"}
    for name, words in told.items():
        assert words in dphist("compare", *TINY, *BOTH, "--out", name, code=2).stderr
    assert os.listdir(here / "full") == ["mine.txt"] and (here / "file").read_text() == "mine"
    assert (here / "odd" / "comparison.json").read_text() == "[1]"


class Reader(html.parser.HTMLParser):
    """Sees which tags are open, and what a page loads."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing():
    bad = "<script>alert(1)</script>&"
    rows = [row(m, base + t, dataset=bad, trial=t) for m, base in (("x", 1), ("y", 2)) for t in range(4)]
    rows.append(row("z", None, dataset=bad, status="failed", error=bad))
    text = page.page(compare.rank(question((bad,)), rows), command=f"dphist compare {bad}", date="2030-01-01")
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and "script" not in reader.seen
    assert reader.seen.count("table") == 1 and reader.seen.count("img") == 2
    assert all(link.startswith("data:image/svg+xml;base64,") for link in reader.loaded)
    assert all("<svg" in base64.b64decode(link.partition(",")[2]).decode() for link in reader.loaded)
    assert 'name="viewport"' in text and "2030-01-01" in text and "z failed" in text


def test_many_rankings_are_drawn_as_regret():
    names = [f"d{i}" for i in range(page.MANY + 1)]
    least = {"x": 1, "y": 4}
    rows = [row(m, base * (i + 1), dataset=n) for i, n in enumerate(names) for m, base in least.items()]
    made = compare.rank(question(names), rows)
    drawn = page.errors(made).spec["data"]["values"]
    assert {r["method"]: r["error"] for r in drawn} == {"x": pytest.approx(1), "y": pytest.approx(4)}
    assert "9 datasets" in str(page.times(made).spec["title"])


# The command line of the laboratory


def test_shapes_are_listed(here):
    assert "salaries" in dphist("shapes").stdout
    assert {"name": "uniform", "summary": "all bins equal"}.items() <= json.loads(
        dphist("shapes", "--json").stdout
    )[0].items()


def test_help_names_every_option():
    shown = dphist("compare", "--help").stdout
    flags = "--data --like --method --epsilon --workload --trials --metric --split --jobs --out --json"
    assert all(flag in shown for flag in flags.split())
    assert "list[" not in shown


def test_an_interrupted_comparison_says_how_to_go_on(here, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run", stop)
    assert "nothing was kept; with --out" in dphist("compare", *TINY, *BOTH, code=130).stderr
    assert "kept in c: the same command" in dphist("compare", *TINY, *BOTH, "--out", "c", code=130).stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_finished(here):
    ask = [
        "compare",
        "--like",
        "bins=4096 records=1e6 sparse",
        "--method",
        "identity,dawa,mwem",
        "--trials",
        "40",
    ]
    ask += ["--jobs", "2", "--out", "c"]
    process = subprocess.Popen(
        [DPHIST, *ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    rows = here / "c" / "rows.jsonl"
    until = time.monotonic() + 60
    while not (rows.exists() and rows.stat().st_size) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    words = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "Traceback" not in words, words
    assert words.rstrip().endswith("kept in c: the same command goes on from there.")
    assert all(json.loads(line) for line in rows.read_text().splitlines())


def test_a_folder_that_cannot_be_made_is_told(here, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match="No space left"):
        compare.claim(here / "c", command="x")
