"""The command line as a person meets it: results, messages, exit codes, and nothing lost."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dphist as package
from dphist import cli
from dphist.cli.demo import called
from shell import DPHIST, PUBLISH, dphist, program


def test_publish_query_plot_and_ledger_end_to_end(here):
    dphist("ledger", "create", "l.db")
    run = program(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db", "--out", "r.json", "--plot", "p.png")
    assert "identity" in run.stdout
    assert "spent 0.5" in run.stderr
    assert (here / "p.png").read_bytes().startswith(b"\x89PNG")
    answer = json.loads(dphist("query", "r.json", "0", "100", "--json").stdout)
    assert answer["low"] <= answer["value"] <= answer["high"]
    assert abs(answer["value"] - 1000) < 200
    assert "95" in dphist("query", "r.json", "20", "40").stdout
    assert "inside a bin" in dphist("query", "r.json", "25", "40", code=2).stderr
    dphist("plot", "r.json", "q.svg")
    assert "<svg" in (here / "q.svg").read_text()
    shown = dphist("ledger", "show", "l.db").stdout
    assert "identity" in shown
    assert "0.5" in shown
    assert json.loads(dphist("ledger", "export", "l.db", "--format", "json").stdout)
    assert dphist("ledger", "export", "l.db").stdout.count("\n") == 2


def test_without_out_a_fresh_name_is_chosen_and_nothing_is_overwritten(here):
    for _ in range(2):
        dphist(*PUBLISH, "--epsilon", "1")
    assert {p.name for p in here.glob("release*.json")} == {"release.json", "release-2.json"}
    assert (here / "dphist-ledger.db").exists()
    assert "spent 2" in dphist("ledger").stdout


def test_json_goes_to_stdout_alone(here):
    run = dphist(*PUBLISH, "--epsilon", "1", "--json")
    assert json.loads(run.stdout)["format"] == "dphist-release"


def test_a_limit_is_kept(here):
    dphist("ledger", "create", "l.db", "--limit", "1")
    dphist(*PUBLISH, "--epsilon", "0.75", "--ledger", "l.db")
    run = dphist(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db", "--out", "no.json", code=3)
    assert "0.25" in run.stderr
    assert not (here / "no.json").exists()
    dphist("ledger", "limit", "l.db", "2")
    dphist(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db")
    assert "0.75 left" in dphist("ledger", "show", "l.db").stdout


def test_a_dry_run_checks_and_spends_nothing(here):
    run = dphist(*PUBLISH, "--epsilon", "1", "--dry-run", "--unit", "person", "--max-contributions", "3")
    words = (
        "nothing charged",
        "0 to 100",
        "one person with at most 3",
        "identity",
        "would be made",
        "no limit",
    )
    assert all(word in run.stdout for word in words)
    assert not list(here.glob("*.db"))
    assert "auto" in dphist(*PUBLISH[:-2], "--epsilon", "1", "--dry-run").stdout, "the default"
    dphist("ledger", "create", "l.db", "--limit", "2", "--dataset", "people")
    ask = (*PUBLISH, "--dry-run", "--ledger", "l.db", "--dataset")
    facts = json.loads(dphist(*ask, "people", "--epsilon", "0.5", "--json").stdout)
    assert (facts["left"], facts["left_after"], facts["bins"]) == ("2", "1.5", 10)
    assert "2 is left" in dphist(*ask, "people", "--epsilon", "3", code=3).stderr
    assert "Did you mean 'people'" in dphist(*ask, "peple", "--epsilon", "1", code=3).stderr
    assert (
        "nowhere" in dphist(*PUBLISH, "--epsilon", "1", "--dry-run", "--ledger", "nowhere/l", code=3).stderr
    )
    assert "spent 0 of 2" in dphist("ledger", "show", "l.db").stdout and not list(here.glob("release*"))
    dphist("publish", "people.csv", "--column", "age", "--bins", "3", "--epsilon", "1", "--dry-run", code=2)


def test_categories_edges_persons_filters_and_grids(here):
    dphist(
        "publish",
        "people.csv",
        "--column",
        "kind",
        "--categories",
        "a,b,c",
        "--epsilon",
        "1",
        "--out",
        "k.json",
    )
    assert "95" in dphist("query", "k.json", "b").stdout
    dphist("publish", "people.csv", "--column", "age", "--bins", "0,18,65,100", "--epsilon", "1")
    run = dphist(
        *PUBLISH,
        "--epsilon",
        "1",
        "--unit",
        "person",
        "--max-contributions",
        "3",
        "--where",
        "age < 50",
        "--json",
    )
    assert json.loads(run.stdout)["sensitivity"] == 3
    grid = ("--column", "age", "--bins", "2", "--range", "0", "100")
    grid += ("--y-column", "age", "--y-bins", "3", "--y-range", "-5", "100")
    dphist("publish", "people.csv", *grid, "--epsilon", "1", "--out", "g.json", "--plot", "g.png")


BAD = {
    "no range": (
        ("publish", "people.csv", "--column", "age", "--bins", "3", "--epsilon", "1"),
        2,
        "--range is needed",
    ),
    "range off the data": (
        (
            "publish",
            "people.csv",
            "--column",
            "age",
            "--bins",
            "3",
            "--range",
            "min",
            "max",
            "--epsilon",
            "1",
        ),
        5,
        "read off the data",
    ),
    "no bins": (("publish", "people.csv", "--column", "age", "--epsilon", "1"), 2, "--bins"),
    "no epsilon": (PUBLISH, 2, "epsilon"),
    "epsilon 0": ((*PUBLISH, "--epsilon", "0"), 2, "epsilon"),
    "epsilon negative": ((*PUBLISH, "--epsilon", "-1"), 2, "epsilon"),
    "epsilon nan": ((*PUBLISH, "--epsilon", "nan"), 2, "epsilon"),
    "epsilon a word": ((*PUBLISH, "--epsilon", "lots"), 2, "epsilon"),
    "bins a fraction": (
        ("publish", "people.csv", "--column", "age", "--bins", "2.5", "--range", "0", "1", "--epsilon", "1"),
        2,
        "whole number",
    ),
    "missing column": (
        ("publish", "people.csv", "--column", "aeg", "--bins", "3", "--range", "0", "1", "--epsilon", "1"),
        4,
        "'age'",
    ),
    "missing file": (
        (
            "publish",
            "people.parquet",
            "--column",
            "age",
            "--bins",
            "3",
            "--range",
            "0",
            "1",
            "--epsilon",
            "1",
        ),
        4,
        "people.parquet",
    ),
    "unknown method": ((*PUBLISH[:-2], "--epsilon", "1", "--method", "identty"), 2, "identity"),
    "unwritable out": ((*PUBLISH, "--epsilon", "1", "--out", "nowhere/r.json"), 2, "does not exist"),
    "out with an odd ending": ((*PUBLISH, "--epsilon", "1", "--out", "r.xlsx"), 2, ".parquet"),
    "plot with an odd ending": ((*PUBLISH, "--epsilon", "1", "--plot", "p.gif"), 2, ".png"),
    "unwritable ledger": ((*PUBLISH, "--epsilon", "1", "--ledger", "nowhere/l.db"), 3, "nowhere"),
    "query of nothing": (("query", "none.json", "0", "1"), 4, "none.json"),
    "ledger of nothing": (("ledger", "show", "none.db"), 3, "none.db"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_clear_message_an_exit_code_and_no_charge(here, what):
    arguments, code, words = BAD[what]
    run = dphist(*arguments, code=code)
    assert words in run.stderr
    assert not list(here.glob("release*"))
    if (here / "dphist-ledger.db").exists():
        assert "spent 0" in dphist("ledger").stdout or "budget" not in dphist("ledger").stdout


def test_files_that_are_not_what_they_say(here):
    for name, content, code in (
        ("empty.csv", b"", 4),
        ("fake.parquet", b"age\n1\n", 4),
        ("fake.json", b"\x00\x01nonsense", 2),  # an array must be declared well-formed, whatever it holds
    ):
        (here / name).write_bytes(content)
        bins = ("--bins", "3", "--range", "0", "1")
        run = dphist("publish", name, "--column", "age", *bins, "--epsilon", "1", code=code)
        assert name in run.stderr


def test_negative_ends_of_a_range_and_a_query(here):
    dphist(
        "publish", "people.csv", "--column", "age", "--bins", "4", "--range", "-100", "100", "--epsilon", "1"
    )
    assert dphist("query", "release.json", "-100", "0").stdout


@pytest.mark.slow
def test_an_interrupted_run_leaves_ledger_and_outputs_whole(here):
    (here / "old.json").write_text("an older release")
    dphist("ledger", "create", "l.db")
    before = dphist("ledger", "export", "l.db").stdout.count("\n")
    said = (  # the last words at every moment an interrupt can come
        r"interrupted; nothing was charged\.",
        r"interrupted after epsilon 0\.1 was charged; nothing was saved\.",
        r"interrupted; the release is safe in old\.json, and epsilon .* was charged\.",
        r"interrupted\. What was charged stays charged .*; files are whole\.",
    )
    many = "age\n" + "\n".join(str(i % 100) for i in range(300_000))
    (here / "people.csv").write_text(many)
    for delay in (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.3):
        process = subprocess.Popen(
            [DPHIST, *PUBLISH, "--epsilon", "0.1", "--ledger", "l.db", "--out", "old.json", "--overwrite"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        words = process.communicate(timeout=60)[1].decode()
        rows = dphist("ledger", "export", "l.db").stdout.count("\n")
        if process.returncode == 130 and words:
            last = words.rstrip().splitlines()[-1]
            assert any(re.fullmatch(one, last) for one in said), words
        elif process.returncode == 130:  # while the program was still being imported: nothing was charged
            assert rows == before
        before = rows
        text = (here / "old.json").read_text()
        assert text == "an older release" or json.loads(text)["format"] == "dphist-release"
        assert not [p for p in os.listdir(here) if p.startswith(".dphist-")]
        dphist("ledger", "show", "l.db")


def test_methods_and_help_and_version():
    assert "identity" in dphist("methods").stdout
    rows = json.loads(dphist("methods", "--json").stdout)
    assert {"name", "summary", "citation", "family", "intervals", "suits", "aliases"} < set(rows[0])
    assert [row["name"] for row in rows if "stgahp" in row["aliases"]] == ["ahp"]
    for flag in ("-h", "--help"):
        shown = dphist(flag).stdout
        assert "publish" in shown and "3 the ledger refuses" in shown and "130 interrupted" in shown
        for command in (["publish"], ["query"], ["ledger", "show"]):
            shown = dphist(*command, flag).stdout
            assert "--json" in shown and "bool" not in shown and "by whom" not in shown
    assert dphist("--version").stdout.startswith("dphist ")


def test_the_command_line_starts_without_what_is_heavy():
    heavy = {
        "numba",
        "duckdb",
        "altair",
        "vl_convert",
        "joblib",
        "pandas",
        "dphist.planning.plan",
        "dphist.lab",
    }
    code = f"import sys, dphist.cli; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_only_the_command_that_is_named_is_imported():
    from dphist.cli import program

    def commands(words):
        return [command.callback.__name__ for command in program.made(words).registered_commands]

    for words in (["studio"], ["methods", "--help"], ["ledger", "show"]):
        groups = [group.name for group in program.made(words).registered_groups]
        assert commands(words) + groups == words[:1]
    for words in ([], ["--help", "studio"], ["studi"]):  # the help lists all, and so does a suggestion
        assert commands(words) == list(program._COMMANDS)
    code = (
        "import sys; from dphist.cli import program; program.made(['studio']); "
        "print(sorted({'numpy', 'dphist.domain', 'dphist.cli.publish'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.slow
def test_the_demo_leaves_release_picture_and_ledger(here):
    run = dphist("demo")
    assert "1 to 3 hours late" in run.stderr
    assert max(map(len, (run.stdout + run.stderr).splitlines())) <= 80
    made = {p.name for p in (here / "dphist-demo").iterdir()}
    assert {"release.json", "release.png", "release.html", "ledger.db", "flights.parquet"} <= made
    assert "arr_delay" in dphist("ledger", "show", "dphist-demo/ledger.db").stdout
    (here / "dphist-demo" / "flights.parquet").write_bytes(b"whatever was left here")
    assert "again: earlier runs were charged 0.01" in dphist("demo").stderr
    assert "spent 0.02" in dphist("ledger", "show", "dphist-demo/ledger.db").stdout


# Nothing that is there is lost


@pytest.mark.parametrize(
    ("data", "more", "words"),
    [
        ("people.csv", ["--out", "people.csv"], "would replace the records"),
        ("people.csv", ["--out", "people.csv", "--overwrite"], "would replace the records"),
        ("people.csv", ["--out", "link.csv", "--overwrite"], "would replace the records"),
        ("people.csv", ["--out", "hard.csv", "--overwrite"], "would replace the records"),
        ("link.csv", ["--out", "folder/../people.csv", "--overwrite"], "would replace the records"),
        ("folder", ["--out", "folder/deep/a.csv", "--overwrite"], "would replace the records"),
        ("folder/*/*.csv", ["--out", "folder/deep/a.csv", "--overwrite"], "would replace the records"),
        ("folder/**/*.csv", ["--out", "folder/deep/a.csv", "--overwrite"], "would replace the records"),
        ("folder", ["--out", "folder/new.json"], "next time"),
        (".", [], "next time"),
        ("folder/*/*.csv", ["--out", "folder/deep/new.csv"], "next time"),
        ("people.csv", ["--ledger", "l.json", "--out", "l.json"], "also the ledger"),
        ("people.csv", ["--ledger", "l.db", "--out", "log.json"], "also the ledger"),
        ("people.csv", ["--out", "same.json", "--plot", "same.json"], ".vl.json"),
        ("people.csv", ["--out", "same.vl.json", "--plot", "same.vl.json"], "also --out"),
        ("people.csv", ["--ledger", "l.svg", "--plot", "l.svg"], "also the ledger"),
        ("people.csv", ["--out", "old.json"], "old.json exists; choose another name or add --overwrite"),
    ],
)
def test_results_replace_neither_records_nor_ledger_nor_each_other(here, data, more, words):
    (here / "folder" / "deep").mkdir(parents=True)
    (here / "folder" / "deep" / "a.csv").write_bytes((here / "people.csv").read_bytes())
    (here / "link.csv").symlink_to("people.csv")
    (here / "hard.csv").hardlink_to("people.csv")
    (here / "log.json").symlink_to("l.db-wal")
    (here / "old.json").write_text("older")
    before = {p: p.read_bytes() for p in here.rglob("*") if p.is_file()}
    run = dphist("publish", data, *PUBLISH[2:], "--epsilon", "1", *more, code=2)
    assert words in run.stderr
    assert {p: p.read_bytes() for p in here.rglob("*") if p.is_file()} == before


def test_a_glob_beside_its_results_is_fine(here):
    dphist("publish", "*.csv", *PUBLISH[2:], "--epsilon", "1", "--out", "r.json")
    dphist("publish", "*.csv", *PUBLISH[2:], "--epsilon", "1", "--out", "r.json", "--overwrite")
    assert "spent 2" in dphist("ledger").stdout


def test_a_picture_is_not_drawn_over_a_release(here):
    dphist(*PUBLISH, "--epsilon", "1", "--out", "r.vl.json")
    (here / "r.svg").symlink_to("r.vl.json")
    before = (here / "r.vl.json").read_bytes()
    assert ".vl.json" in dphist("plot", "r.vl.json", "r.json", code=2).stderr
    for name in ("r.vl.json", "r.svg"):
        assert "the release itself" in dphist("plot", "r.vl.json", name, code=2).stderr
    assert (here / "r.vl.json").read_bytes() == before
    dphist("plot", "r.vl.json", "s.vl.json")
    assert "vega-lite" in json.loads((here / "s.vl.json").read_text())["$schema"]


def test_parallel_runs_keep_every_release(here):
    command = [DPHIST, *PUBLISH, "--epsilon", "1"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    said = [run.communicate(timeout=60)[1].decode() for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, said
    names = sorted(p.name for p in here.glob("release*.json"))
    assert names == ["release-2.json", "release-3.json", "release-4.json", "release.json"]
    assert all(f"release: {name}\n" in "".join(said) for name in names)
    assert len({(here / name).read_bytes() for name in names}) == 4


def test_a_refused_run_leaves_no_file(here):
    dphist("ledger", "create", "l.db", "--limit", "1")
    before = set(os.listdir(here))
    dphist(*PUBLISH, "--epsilon", "2", "--ledger", "l.db", code=3)
    dphist(
        "publish", "people.csv", "--column", "aeg", *PUBLISH[4:], "--epsilon", "1", "--ledger", "l.db", code=4
    )
    assert set(os.listdir(here)) == before


def test_a_name_taken_while_counting_is_left_alone(here, monkeypatch):
    from dphist.methods.pipeline import Pipeline

    def slow(self, *args, **more):
        (here / "r.json").write_text("somebody else's")
        return run(self, *args, **more)

    run = Pipeline.run
    monkeypatch.setattr(Pipeline, "run", slow)
    said = dphist(*PUBLISH, "--epsilon", "1", "--out", "r.json", code=2).stderr
    assert "written by another process" in said and "release: r-2.json" in said
    assert (here / "r.json").read_text() == "somebody else's"
    assert json.loads((here / "r-2.json").read_text())["format"] == "dphist-release"


def test_a_ledger_is_created_once(here):
    dphist("ledger", "create", "l.db", "--limit", "1")
    for more in ([], ["--limit", "5"]):
        assert "dphist ledger limit l.db" in dphist("ledger", "create", "l.db", *more, code=3).stderr
    assert "spent 0 of 1" in dphist("ledger", "show", "l.db").stdout
    assert "not a dphist ledger" in dphist("ledger", "create", "people.csv", code=3).stderr
    dphist("ledger", "create", "n.db", "--dataset", " odd ", code=2)
    assert not (here / "n.db").exists()


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_ledger_whose_name_is_misspelt_is_not_made(here, monkeypatch, how):
    dphist("ledger", "create", "hospital.db", "--limit", "1")
    more = ["--ledger", "hopsital.db"] if how == "option" else []
    if how == "environment":
        monkeypatch.setenv("DPHIST_LEDGER", "hopsital.db")
    for dry in ([], ["--dry-run"]):
        said = dphist(*PUBLISH, "--epsilon", "5", *more, *dry, code=3).stderr
        assert "there is no ledger" in said and "Did you mean 'hospital.db'?" in said
        assert f"dphist ledger create {here / 'hopsital.db'}" in said
    assert not (here / "hopsital.db").exists() and not list(here.glob("release*"))


def test_the_ledger_that_nobody_named_says_that_it_was_made(here):
    said = dphist(*PUBLISH, "--epsilon", "1").stderr
    assert "a new ledger was made: dphist-ledger.db" in said
    assert "was made" not in dphist(*PUBLISH, "--epsilon", "1").stderr
    code = "import dphist; dphist.histogram('people.csv', bins=2, range=(0, 9), column='age', epsilon=1)"
    for expected in (1, 0):
        (here / "dphist-ledger.db").unlink() if expected else None
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stderr.count("a new ledger was made") == expected


@pytest.mark.parametrize("command", ["publish", "show", "create", "limit"])
def test_an_emptied_ledger_is_refused(here, command):
    (here / "l.db").touch()
    words = {
        "publish": (*PUBLISH, "--epsilon", "1", "--ledger", "l.db"),
        "limit": ("ledger", "limit", "l.db", "1"),
    }.get(command, ("ledger", command, "l.db"))
    assert "is empty" in dphist(*words, code=3).stderr
    assert (here / "l.db").read_bytes() == b""


def test_a_row_names_its_release_and_whom_it_protects(here):
    dphist("ledger", "create", "l.db", "--limit", "2")
    person = ("--unit", "person", "--max-contributions", "3", "--out", "r.json")
    printed = dphist(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db", *person).stdout
    row = json.loads(dphist("ledger", "show", "l.db", "--json").stdout)[1]
    assert row["release"] == json.loads((here / "r.json").read_text())["id"] == package.load("r.json").id
    assert row["unit"] == package.load("r.json").unit == "one person with at most 3 records"
    short = row["release"][:8]
    shown = dphist("ledger", "show", "l.db").stdout
    assert short in shown and short in printed and "at most 3 records" in " ".join(shown.split())
    assert short in dphist("query", "r.json", "0", "50").stderr
    assert json.loads(dphist("query", "r.json", "0", "50", "--json").stdout)["release"] == row["release"]
    assert short in package.load("r.json")._repr_html_()
    assert "different units" not in shown
    said = dphist(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db", "--out", "s.json").stderr
    assert package.load("s.json").id != row["release"]
    for text in (said, dphist("ledger", "show", "l.db").stdout):
        assert "different units (one person with at most 3 records; one record)" in text
        assert "bounds the loss of none" in text


def test_waiting_for_a_ledger_is_told(here):
    import fcntl

    dphist("ledger", "create", "l.db")
    with (here / "l.db").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run = subprocess.Popen(
            [DPHIST, *PUBLISH, "--epsilon", "1", "--ledger", "l.db"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert f"waiting for the ledger {here / 'l.db'}" in run.stderr.readline()
    assert "spent 1" in run.communicate(timeout=120)[1] and run.returncode == 0


# Interrupts and broken pipes


def test_an_interrupt_says_what_was_charged(here, monkeypatch):
    from dphist import records
    from dphist.methods.pipeline import Pipeline
    from dphist.privacy.ledger import Ledger

    def stop(*_, **__):
        raise KeyboardInterrupt

    def stop_in_duckdb(*_, **__):
        raise RuntimeError("Query interrupted")

    dphist("ledger", "create", "l.db")
    ask = (*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db")
    for how in (stop, stop_in_duckdb):
        with monkeypatch.context() as patch:
            patch.setattr(records, "count", how)
            assert dphist(*ask, code=130).stderr == "interrupted; nothing was charged.\n"
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_spend", stop)
        assert dphist(*ask, code=130).stderr == "interrupted; nothing was charged.\n"
    assert "spent 0," in dphist("ledger", "show", "l.db").stdout
    spend = Ledger._spend
    with monkeypatch.context() as patch:  # just after the row is safe, before anybody hears of it
        patch.setattr(Ledger, "_spend", lambda *how: (spend(*how), stop()))
        said = dphist(*ask, "--dataset", "late", code=130).stderr
        assert said == "interrupted after epsilon 0.5 was charged; nothing was saved.\n"
    with monkeypatch.context() as patch:  # and where the ledger cannot be read any more
        patch.setattr(Ledger, "_spend", lambda *how: (Path("l.db").rename("elsewhere"), stop()))
        assert "interrupted; look with: dphist ledger show" in dphist(*ask, code=130).stderr
    Path("elsewhere").rename("l.db")
    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "run", stop)
        said = dphist(*ask, code=130).stderr
        assert said == "interrupted after epsilon 0.5 was charged; nothing was saved.\n"
    assert "spent 0.5," in dphist("ledger", "show", "l.db").stdout
    assert not list(here.glob("release*"))
    with monkeypatch.context() as patch:
        patch.setattr(cli.publish, "show_release", stop)
        assert "the release is safe in release.json" in dphist(*ask, code=130).stderr
    with monkeypatch.context() as patch:
        patch.setattr(package.release, "load", stop)
        assert "interrupted" in dphist("query", "release.json", "0", "10", code=130).stderr


def test_other_errors_are_not_taken_for_interrupts(here, monkeypatch):
    from dphist import records

    def fail(*_, **__):
        raise RuntimeError("something else")

    monkeypatch.setattr(records, "count", fail)
    with pytest.raises(RuntimeError, match="something else"):
        dphist(*PUBLISH, "--epsilon", "1")


def test_ctrl_c_while_saving_waits(here, monkeypatch):
    import dphist.release as release_module

    real = release_module.save_fresh

    def pressed(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*args)

    monkeypatch.setattr(release_module, "save_fresh", pressed)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background run starts with it ignored
    try:
        dphist(*PUBLISH, "--epsilon", "1")
        assert (here / "release.json").exists()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_just_after_saving_says_where_the_release_is(here, monkeypatch):
    real = cli.publish.undisturbed

    @contextlib.contextmanager
    def pressed_at_the_end():
        with real():
            yield
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.publish, "undisturbed", pressed_at_the_end)
    said = dphist(*PUBLISH, "--epsilon", "1", code=130).stderr
    assert said.endswith("interrupted; the release is safe in release.json, and epsilon 1 was charged.\n")
    assert "nothing was saved" not in said and (here / "release.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_or_closed_output_loses_no_release(here):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        run = program(*PUBLISH, "--epsilon", "1", code=2, stdout=full)
    assert "release: release.json" in run.stderr and "No space left" in run.stderr
    for arguments in ((*PUBLISH, "--epsilon", "1"), ("methods",), ("query", "release.json", "0", "10")):
        read, write = os.pipe()
        os.close(read)
        program(*arguments, stdout=write)
        os.close(write)
    assert (here / "release-2.json").exists()


def test_a_release_outlives_its_picture(here, monkeypatch):
    from dphist.charts.picture import Picture

    def broken(*_, **__):
        raise ValueError("no fonts.")

    monkeypatch.setattr(Picture, "save", broken)
    run = dphist(*PUBLISH, "--epsilon", "1", "--out", "r.json", "--plot", "p.png", code=2)
    assert "no fonts. The release is safe in r.json. Draw it with: dphist plot r.json p.png" in run.stderr
    assert "95 % interval" in run.stdout and (here / "r.json").exists()


# What is said


def test_labels_and_edges_are_a_line_of_csv(here):
    (here / "people.csv").write_text('kind\n"a, b"\nc\n')
    ask = ("publish", "people.csv", "--column", "kind", "--epsilon", "1", "--json", "--categories")
    domain = json.loads(dphist(*ask, '"a, b", c , " say ""hi""",""').stdout)["domain"]
    assert domain["axes"][0]["labels"] == ["a, b", "c", ' say "hi"', ""]
    domain = json.loads(dphist(*ask, "a , b").stdout)["domain"]
    assert domain["axes"][0]["labels"] == ["a", "b"]
    for wrong in ('a,"b', "a,,b", "a,b,", '"a"b', "a\nb"):
        assert "--categories" in dphist(*ask, wrong, code=2).stderr
    edges = ("publish", "people.csv", "--column", "kind", "--epsilon", "1", "--bins")
    assert "--bins needs a number, not 'x'" in dphist(*edges, "0,x", code=2).stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--bins", "3"], "--range is needed"),
        (["--bins", "0,1", "--range", "0", "1"], "--range goes with a number of --bins"),
        (["--categories", "a,b", "--outside", "clip"], "clip is for numeric bins"),
        (
            ["--bins", "3", "--range", "0", "1", "--max-contributions", "2"],
            "--max-contributions needs --unit",
        ),
        (["--bins", "3", "--range", "0", "1", "--y-bins", "2"], "--y-column is needed with --y-bins"),
        (["--bins", "3", "--range", "0", "1", "--y-range", "0", "1"], "--y-column is needed with --y-range"),
    ],
)
def test_advice_is_in_flags(here, flags, words):
    said = dphist("publish", "people.csv", "--column", "age", "--epsilon", "1", *flags, code=2).stderr
    assert words in said and "=" not in said


def test_a_column_is_needed(here):
    assert (
        "--column is needed" in dphist("publish", "people.csv", *PUBLISH[4:], "--epsilon", "1", code=2).stderr
    )


def test_a_large_epsilon_is_warned_of(here):
    assert "hardly protects a single record" in dphist(*PUBLISH, "--epsilon", "11", "--dry-run").stderr
    assert "hardly protects" not in dphist(*PUBLISH, "--epsilon", "10", "--dry-run").stderr


def test_a_grid_is_summed_up_and_asked(here):
    grid = ("--column", "age", "--bins", "2", "--range", "0", "100")
    grid += ("--y-column", "age", "--y-bins", "4", "--y-range", "-100", "100")
    run = dphist("publish", "people.csv", *grid, "--epsilon", "1", "--out", "g.json")
    assert "grid of 2 x 4 bins; records in all: " in run.stdout and "level 0.95" in run.stdout
    release = package.load("g.json")
    found = json.loads(dphist("query", "g.json", "0", "50", "-50", "50", "--json").stdout)
    assert found["value"] == release.sum((0, 50), (-50, 50)).value
    for wrong in (["0", "50"], ["0"], ["0", "50", "0", "50", "1"]):
        assert "query RELEASE XLO XHI YLO YHI" in dphist("query", "g.json", *wrong, code=2).stderr


def test_queries_of_labels_numbers_and_ranges(here):
    counts = package.from_counts
    counts([5, 6, 7], bins=["a", "b, c", "d"], epsilon=1).save("labels.json")
    counts([5, 6, 7], epsilon=1).save("numbers.json")
    counts([5, 6], bins=[0, 1, 2], epsilon=1).save("edges.json")
    counts([[5, 6], [7, 8]], bins=([0, 1, 2], ["x", "y"]), epsilon=1).save("mixed.json")

    def value(*ask):
        return json.loads(dphist("query", *ask, "--json").stdout)["value"]

    assert value("labels.json", "b, c") == package.load("labels.json").count("b, c").value
    assert value("labels.json", "a", "d") == package.load("labels.json").sum("a", "d").value
    assert value("numbers.json", "1") == package.load("numbers.json").count(1).value
    assert value("numbers.json", "1", "3") == package.load("numbers.json").sum(1, 3).value
    assert value("mixed.json", "0", "2", "y") == package.load("mixed.json").sum((0, 2), "y").value
    assert "query RELEASE LO HI" in dphist("query", "edges.json", "0", code=2).stderr
    assert "query RELEASE XLO XHI YLABEL" in dphist("query", "mixed.json", "0", code=2).stderr
    assert "Did you mean 'b, c'" in dphist("query", "labels.json", "b,c", code=2).stderr
    assert "no such option: --jointly" in dphist("query", "edges.json", "0", "--jointly", code=2).stderr


def test_large_numbers_are_read_in_full(here):
    package.from_counts([30_000_000, 5], bins=[0, 1, 2], epsilon=1).save("r.json")
    said = dphist("query", "r.json", "0", "1").stdout
    number = r"(30,000|29,999),\d{3}"
    assert re.fullmatch(rf"{number} \({number} to {number}, level 0.95\)\n", said)


def test_a_simulated_release_says_so(here):
    package.Plan(bins=3, range=(0, 3), epsilon=1).preview().releases[0].save("s.json")
    assert "SIMULATED: not private" in dphist("query", "s.json", "0", "1").stdout
    found = json.loads(dphist("query", "s.json", "0", "1", "--json").stdout)
    assert found["simulated"] is True and found["note"].startswith("SIMULATED: not private.")
    dphist(*PUBLISH, "--epsilon", "1")
    assert "SIMULATED" not in dphist("query", "release.json", "0", "10").stdout
    assert json.loads(dphist("query", "release.json", "0", "10", "--json").stdout)["simulated"] is False


def test_tables_fit_a_screen(here, monkeypatch):
    labels = ["a", "b" * 200, "数" * 60]
    package.from_counts([9_000_000, 6_000_000, 3], bins=labels, epsilon=1).save("r.json")
    for width in (80, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            cli.shown.show_release(package.load("r.json"))
        lines = out.getvalue().splitlines()[1:]
        assert max(map(len, lines)) <= width and "…" in out.getvalue()
        ends = [line.index(" to ") for line in lines[2:4]]
        bars = [line.count("█") for line in lines[2:5]]
        assert len(set(ends)) == 1 and bars[0] >= 8 and bars[0] > bars[1] > 3 and bars[2] == 0
    monkeypatch.setenv("COLUMNS", "80")
    dphist("ledger", "create", "l.db", "--limit", "2")
    dphist(*PUBLISH, "--epsilon", "1/3", "--ledger", "l.db")
    shown = dphist("ledger", "show", "l.db").stdout
    assert max(map(len, shown.splitlines())) <= 80 and "exactly" not in shown and "people.csv, age" in shown
    assert f"{time.strftime('%Y-%m-%d', time.gmtime())} " in shown and "+00:00" not in shown
    assert "spent 0.333333 of 2, 1.66667 left" in shown


def test_a_ledger_without_entries_or_without_that_dataset(here):
    dphist("ledger", "create", "l.db")
    shown = dphist("ledger", "show", "l.db").stdout
    assert "nothing was charged yet" in shown and "budget of 'default': spent 0" in shown
    assert "dphist ledger limit l.db VALUE --dataset default" in shown
    assert "no dataset yet" in dphist("ledger", "show", "l.db", "--dataset", "x", code=2).stderr
    dphist("ledger", "limit", "l.db", "1", "--dataset", "visits")
    for command in ("show", "export"):
        said = dphist("ledger", command, "l.db", "--dataset", "vists", code=2).stderr
        assert "Did you mean 'visits'" in said
    assert "no limit" in dphist("ledger", "limit", "l.db", "none", "--dataset", "visits").stdout


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--epsilon", "0"), 2),  # ours, in the command
        (("--epsilon", "1", "--post", "x", "--post", "y"), 2),  # ours, in the arguments
        (("--epsilom", "1"), 2),  # of the reader of arguments
        ((), 2),  # an option that is missing
        (("--epsilon", "1", "--where", "agee > 1"), 4),
        (("--epsilon", "1", "--ledger", "no.db"), 3),
    ],
)
def test_an_error_before_the_charge_says_that_nothing_was_charged(here, more, code):
    said = " ".join(dphist(*PUBLISH, *more, code=code).stderr.replace("│", " ").split())
    assert said.count("Nothing was charged.") == 1
    assert "nothing was charged" not in dphist("query", "no.json", "1", "2", code=4).stderr.casefold()


def test_an_error_after_the_charge_does_not_say_that_nothing_was_charged(here, monkeypatch, unrehearsed):
    def fail(*given, **options):
        raise package.errors.UsageError("drawn, and then broken.")

    monkeypatch.setattr("dphist.methods.pipeline.Pipeline.run", fail)
    said = dphist(*PUBLISH, "--epsilon", "1", code=2).stderr
    assert "drawn, and then broken." in said
    assert "nothing was charged" not in said.casefold()
    assert "spent 1" in dphist("ledger", "show").stdout


def test_a_charge_that_may_be_written_is_not_called_nothing(here, monkeypatch, unrehearsed):
    def fail(*given, **options):
        raise package.errors.LedgerError("the disk failed under the ledger.")

    monkeypatch.setattr("dphist.privacy.ledger.Ledger._append", fail)
    said = dphist(*PUBLISH, "--epsilon", "1", code=3).stderr
    assert "the disk failed" in said and "nothing was charged" not in said.casefold()


def test_a_demo_without_its_data_says_how_to_get_it(here, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = dphist("demo", code=4).stderr
    assert "pip install '.[demo]'" in said and "1. records" not in said
    assert not (here / "dphist-demo").exists()


def test_a_demo_keeps_out_of_other_peoples_folders(here):
    (here / "flights.parquet").write_text("mine")
    assert "folder of its own" in dphist("demo", "--out", ".", code=2).stderr
    assert (here / "flights.parquet").read_text() == "mine" and not (here / "ledger.db").exists()


def test_an_audit_says_what_it_found_and_draws_it(here):
    run = dphist("audit", "identity", "--epsilon", "1", "--trials", "100", "--json", "--plot", "a.svg")
    found = json.loads(run.stdout)
    assert found["claim"] == 1
    assert [part["part"] for part in found["parts"]] == ["measure"]
    assert not found["violated"]
    assert found["bound"] <= 1
    assert "<svg" in (here / "a.svg").read_text()
    assert "not refuted" in dphist("audit", "identity", "--trials", "100").stdout
    dphist("audit", "identiti", code=2)


def test_the_demo_names_the_program_as_the_shell_finds_it(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", [".venv/bin/dphist", "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert called() == ".venv/bin/dphist"
    (tmp_path / "dphist").write_text("")
    (tmp_path / "dphist").chmod(0o755)
    assert called() == "dphist"
