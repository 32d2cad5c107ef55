"""The command line as a person meets it: results, messages, exit codes, and nothing lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DPHIST = str(Path(sys.executable).parent / "dphist")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    rows = "\n".join(f"{i % 100},{'ab'[i % 2]},p{i % 10}" for i in range(1000))
    (tmp_path / "people.csv").write_text(f"age,kind,person\n{rows}\n")
    return tmp_path


def dphist(*arguments, code=0, **more):
    run = subprocess.run([DPHIST, *map(str, arguments)], capture_output=True, text=True, check=False, **more)
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    assert "Traceback" not in run.stderr
    return run


PUBLISH = ("publish", "people.csv", "--column", "age", "--bins", "10", "--range", "0", "100")


def test_publish_query_plot_and_ledger_end_to_end(here):
    run = dphist(*PUBLISH, "--epsilon", "0.5", "--ledger", "l.db", "--out", "r.json", "--plot", "p.png")
    assert "identity" in run.stdout
    assert "spent 0.5" in run.stderr
    assert (here / "p.png").read_bytes().startswith(b"\x89PNG")
    answer = json.loads(dphist("query", "r.json", "0", "100", "--json").stdout)
    assert answer["low"] < answer["value"] < answer["high"]
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
    assert "nothing charged" in dphist(*PUBLISH, "--epsilon", "1", "--dry-run").stdout
    assert not list(here.glob("*.db"))
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
    dphist("publish", "people.csv", "--column", "age", "--edges", "0,18,65,100", "--epsilon", "1")
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
        "range is needed",
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
    "unknown method": ((*PUBLISH, "--epsilon", "1", "--method", "identty"), 2, "identity"),
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
    for name, content in {
        "empty.csv": b"",
        "fake.parquet": b"age\n1\n",
        "fake.json": b"\x00\x01nonsense",
    }.items():
        (here / name).write_bytes(content)
        run = dphist(
            "publish", name, "--column", "age", "--bins", "3", "--range", "0", "1", "--epsilon", "1", code=4
        )
        assert name in run.stderr


def test_negative_ends_of_a_range_and_a_query(here):
    dphist(
        "publish", "people.csv", "--column", "age", "--bins", "4", "--range", "-100", "100", "--epsilon", "1"
    )
    assert dphist("query", "release.json", "-100", "0").stdout


@pytest.mark.slow
def test_an_interrupted_run_leaves_ledger_and_outputs_whole(here):
    (here / "old.json").write_text("an older release")
    many = "age\n" + "\n".join(str(i % 100) for i in range(300_000))
    (here / "people.csv").write_text(many)
    for delay in (0.2, 0.5, 0.8, 1.1):
        process = subprocess.Popen(
            [DPHIST, *PUBLISH, "--epsilon", "0.1", "--ledger", "l.db", "--out", "old.json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        text = (here / "old.json").read_text()
        assert text == "an older release" or json.loads(text)["format"] == "dphist-release"
        assert not [p for p in os.listdir(here) if p.startswith(".dphist-")]
        if (here / "l.db").exists():
            dphist("ledger", "show", "l.db")


def test_methods_and_help_and_version():
    assert "identity" in dphist("methods").stdout
    rows = json.loads(dphist("methods", "--json").stdout)
    assert {"name", "summary", "citation"} == set(rows[0])
    assert "publish" in dphist("--help").stdout
    assert dphist("--version").stdout.startswith("dphist ")


@pytest.mark.slow
def test_the_demo_leaves_release_picture_and_ledger(here):
    run = dphist("demo")
    assert "flights at least an hour late" in run.stderr
    made = {p.name for p in (here / "dphist-demo").iterdir()}
    assert {"release.json", "release.png", "release.html", "ledger.db", "flights.parquet"} <= made
    assert "arr_delay" in dphist("ledger", "show", "dphist-demo/ledger.db").stdout
    dphist("demo")  # a second time works, and is charged again
    assert "spent 0.02" in dphist("ledger", "show", "dphist-demo/ledger.db").stdout
