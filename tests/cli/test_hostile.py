"""Hostile texts, files, disks and moments: nothing obeyed, nothing lost, no traceback."""

import ast
import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import dphist
from dphist import cli
from dphist._common import leftovers
from dphist._common.text import cell, comment, harmless
from dphist.domain import Categories, Domain, Integers
from dphist.errors import DataError, OutputError, ReleaseFileError, UsageError
from dphist.privacy.ledger import Ledger, to_csv
from dphist.release.files import PARQUET_KEY
from shell import PUBLISH, program
from shell import dphist as run_dphist

SOURCE = Path(dphist.__file__).parent
ESCAPE, CSI, BIDI, BELL = "\x1b]0;owned\x07", "\x9b31m", "\u202e", "\x07"
HOSTILE = f"red{ESCAPE}{CSI}{BIDI}\r\n{BELL}"
OBEYED = set("\x1b\x9b\u202e\x07\r\u2066\u200f")


def released(labels, values=None, **changes):
    """Return a release of labels, as somebody hostile may have written it."""
    made = dphist.from_counts(
        np.arange(len(labels)) + 5, bins=Domain((Categories(tuple(labels)),)), epsilon=1
    )
    return dphist.Release.from_dict(made.to_dict() | changes)


# ---- terminals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 👩\u200d💻 a\u00a0b", "plain ü 漢 👩\u200d💻 a\u00a0b"),
        ("a\x1b[31mb", r"a\u001b[31mb"),
        ("a\x9bb\x85\x00\x7f", r"a\u009bb\u0085\u0000\u007f"),
        ("\u202eevil\u2066\u200f\u2028", r"\u202eevil\u2066\u200f\u2028"),
        ("\U000e0041\ud800", r"\udb40\udc41\ud800"),
        ("two\nlines\tand\r", "two\nlines\tand" + r"\u000d"),
    ],
)
def test_what_a_terminal_obeys_is_written_out(text, shown):
    assert harmless(text) == shown
    assert "\n" not in harmless(text, keep="")


def test_a_json_document_stays_the_same_document():
    document = json.dumps({HOSTILE: [HOSTILE, "\U000e0041 ü"]}, ensure_ascii=False, indent=2)
    assert OBEYED & set(document)
    assert not OBEYED & set(harmless(document))
    assert json.loads(harmless(document)) == json.loads(document)


def test_labels_columns_names_and_words_never_reach_the_terminal(here, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "")
    file = f"h{ESCAPE}{BIDI}.csv"
    column = f"c{CSI}{BELL}"
    (here / file).write_text(f'"{column}"\nred\nred\n', encoding="utf-8")
    labels = f'red,"{HOSTILE}"'
    flags = ("--column", column, "--categories", labels, "--epsilon", "1", "--plot", f"p{ESCAPE}.svg")
    runs = [
        run_dphist("publish", file, *flags, "--out", f"r{ESCAPE}.json"),
        run_dphist("publish", file, *flags[:-2], "--json"),
        run_dphist("publish", file, *flags[:-2], "--dry-run"),
        run_dphist("query", f"r{ESCAPE}.json", HOSTILE),
        run_dphist("query", f"r{ESCAPE}.json", f"no{ESCAPE}", code=2),
        run_dphist("plot", f"r{ESCAPE}.json", f"q{ESCAPE}.svg"),
        run_dphist("plot", f"r{ESCAPE}.json", f"q{ESCAPE}.svg", code=2),
        run_dphist("query", f"none{ESCAPE}.json", "a", code=4),
        run_dphist("audit", f"no{ESCAPE}", code=2),
        *(run_dphist("ledger", *words) for words in (("show",), ("export",), ("export", "--format", "json"))),
    ]
    assert json.loads(runs[1].stdout)["domain"]["axes"][0]["labels"][1] == HOSTILE
    for run in runs:
        assert not OBEYED & set(run.stdout + run.stderr), run
    assert r"\u001b" in runs[0].stdout


def test_everything_is_printed_in_one_place():
    for file in (SOURCE / "cli").glob("*.py"):
        calls = [
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call)
        ]
        loud = [c for c in calls if c in ("print", "typer.echo", "typer.secho", "sys.stdout.write")]
        assert len(loud) == (3 if file.name == "common.py" else 0), file


# ---- spreadsheets -----------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\t=1", "\r=1", " =1", "'=1", "\uff1d1", "-1+1", "+1-1"]
PLAIN = ["-5", "+5", "1e-3", "-1.5e+3", "red", "a=b", "'twas", "", "a-b"]


@pytest.mark.parametrize("text", FORMULAS + PLAIN)
def test_a_formula_gets_an_apostrophe_and_a_number_does_not(text):
    assert cell(text) == (f"'{text}" if text in FORMULAS else text)


def test_formulas_are_harmless_in_the_csv_of_a_release(tmp_path):
    labels = [t for t in FORMULAS + PLAIN if t.strip() == t and t]
    release = released(labels, unit="one a,=cmd with at most 3 records", method="x;\t@SUM(1)")
    file = release.save(tmp_path / "r.csv")
    lines = file.read_text("utf-8").splitlines()
    stamp = [line for line in lines if line.startswith("# dphist")]
    assert "# dphist unit: one a,'=cmd with at most 3 records" in stamp
    assert "# dphist method: x; '@SUM(1)" in stamp
    rows = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    assert [row["label"] for row in rows] == [cell(label) for label in labels]
    assert [float(row["raw"]) for row in rows] == release.raw.tolist()


def test_negative_numbers_stay_numbers_in_the_csv_of_a_release(tmp_path):
    made = dphist.from_counts(np.zeros(5, int), bins=Domain((Integers(-3, 1),)), epsilon=1)
    release = dphist.Release.from_dict(made.to_dict() | {"raw": [-4, -2.5, 0, 1, 2]})
    lines = release.save(tmp_path / "r.csv").read_text("utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    assert [row["lo"] for row in rows] == ["-3", "-2", "-1", "0", "1"]
    assert [float(row["raw"]) for row in rows] == [-4, -2.5, 0, 1, 2]


def test_formulas_are_harmless_in_the_csv_of_a_ledger(tmp_path):
    book = Ledger.open(tmp_path / "l.db", create=True)
    book.charge("1/3", dataset="=cmd|x", mechanism="@a", what="+b,-c")
    (row,) = csv.DictReader(io.StringIO(to_csv(book.entries())))
    assert (row["dataset"], row["mechanism"], row["what"]) == ("'=cmd|x", "'@a", "'+b,-c")
    assert (row["number"], row["epsilon"]) == ("1", "1/3")


def test_a_comment_is_one_line():
    assert comment("a\n=b") == "a =b"
    assert comment("a\n,=b;  -c") == "a ,'=b; '-c"


# ---- disks ------------------------------------------------------------------------------------------------

RELEASE = ("--epsilon", "1", "--out", "r.json", "--ledger", "l.db")


def test_a_release_that_is_rescued_is_an_error(here, monkeypatch):
    from dphist.release import files

    (here / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(here / "elsewhere"))
    put = files.put

    def full(target, write, *, replace):
        if target.name == "r.json" and "elsewhere" not in str(target):
            raise OutputError("the disk is full.")
        put(target, write, replace=replace)

    monkeypatch.setattr(files, "put", full)
    Ledger.open("l.db", create=True)
    run = run_dphist(*PUBLISH, *RELEASE, code=2)
    (kept,) = (here / "elsewhere").rglob("r.json")
    assert f"error: the disk is full. The release is paid for, so it was kept in {kept}" in run.stderr
    assert dphist.load(kept).epsilon == 1
    assert not (here / "r.json").exists()


def test_a_file_that_may_not_grow_is_an_error_and_the_release_is_printed(here):
    Ledger.open("l.db", create=True)

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    program(*PUBLISH, *RELEASE)
    (here / "r.json").unlink()
    wide = ("publish", "people.csv", "--column", "age", "--bins", "40000", "--range", "0", "100")
    run = program(*wide, *RELEASE, code=2, preexec_fn=small_files)
    assert "the release is paid for" in run.stderr.lower()
    assert json.loads(run.stdout.splitlines()[0])["format"] == "dphist-release"
    assert not (here / "r.json").exists()
    assert [p.name for p in here.iterdir() if p.name.startswith(".")] == []


def test_a_picture_replaces_a_file_only_when_told_to(here):
    (here / "p.svg").write_text("mine")
    Ledger.open("l.db", create=True)
    run = run_dphist(*PUBLISH, *RELEASE, "--plot", "p.svg", code=2)
    assert "p.svg exists; choose another name or add --overwrite" in run.stderr
    assert Ledger.open("l.db").entries() == []
    run_dphist(*PUBLISH, *RELEASE)
    advise = ("advise", "--bins", "8", "--records", "1000", "--epsilon", "1", "--method", "identity")
    for command in (("plot", "r.json"), ("audit", "identity", "--plot"), (*advise, "--plot")):
        assert "--overwrite" in run_dphist(*command, "p.svg", code=2).stderr
    assert (here / "p.svg").read_text() == "mine"
    run_dphist("plot", "r.json", "p.svg", "--overwrite")
    assert "<svg" in (here / "p.svg").read_text()
    run_dphist(*PUBLISH, *RELEASE, "--plot", "p.svg", "--overwrite")


def test_a_picture_that_came_meanwhile_is_left_alone(here, monkeypatch):
    from dphist.methods.pipeline import Pipeline

    run = Pipeline.run
    monkeypatch.setattr(
        Pipeline, "run", lambda *a, **k: (here / "p.svg").write_text("theirs") and run(*a, **k)
    )
    said = run_dphist(*PUBLISH, "--epsilon", "1", "--out", "r.json", "--plot", "p.svg", code=2).stderr
    assert "The release is safe in r.json" in said
    assert (here / "p.svg").read_text() == "theirs"


# ---- leftovers --------------------------------------------------------------------------------------------

KILLED = """
import sys, os, signal
from pathlib import Path
from dphist._common import leftovers
with leftovers.file_beside(Path("target.json")) as file, leftovers.spill_folder() as folder:
    file.write_text("half"), (Path(folder) / "records").write_text("private")
    print("made", flush=True)
    sys.stdin.readline()
"""


def aged(*paths):
    for path in paths:
        os.utime(path, (time.time() - 3600,) * 2)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = os.environ | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    (tmp_path / ".dphist-notes.txt").write_text("mine")
    (tmp_path / ".dphist-link.tmp").symlink_to(".dphist-notes.txt")
    (tmp_path / "dphist-spill-mine").mkdir()
    with subprocess.Popen([sys.executable, "-c", KILLED], env=env, **pipes) as process:
        assert process.stdout.readline() == "made\n"
        (file,) = set(tmp_path.glob(".dphist-*.tmp")) - {tmp_path / ".dphist-link.tmp"}
        (folder,) = set(tmp_path.glob("dphist-spill-*")) - {tmp_path / "dphist-spill-mine"}
        aged(file, folder)
        leftovers.sweep_files(tmp_path), leftovers.sweep_folders(tmp_path)
        assert file.exists() and (folder / "records").exists()
        process.kill()
    fresh = [tmp_path / ".dphist-new.tmp", tmp_path / "dphist-spill-new"]
    fresh[0].write_text(""), fresh[1].mkdir()
    aged(file, folder)
    dphist.from_counts([1], epsilon=1).save(tmp_path / "r.json")  # sweeps its own folder
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "x.csv").write_text("x\n1\n")
    Ledger.open(tmp_path / "l.db", create=True)
    dphist.histogram("x.csv", column="x", bins=2, range=(0, 2), epsilon=1, ledger=tmp_path / "l.db")
    assert not file.exists() and not folder.exists()
    assert all(path.exists() for path in fresh)
    for name in (".dphist-notes.txt", ".dphist-link.tmp", "dphist-spill-mine"):
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_process_that_is_told_to_end_leaves_no_records_behind(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    env = os.environ | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    nested = KILLED.replace("as folder:", "as folder, leftovers.spill_folder():")
    with subprocess.Popen([sys.executable, "-c", nested], env=env, **pipes) as process:
        assert process.stdout.readline() == "made\n"
        assert len(list(tmp_path.glob("dphist-spill-*"))) == 2
        process.send_signal(getattr(signal, name))
        assert process.wait() == -getattr(signal, name)
    assert not list(tmp_path.glob("dphist-spill-*"))


def test_a_spill_folder_that_others_still_write_to_keeps_its_lock_and_is_swept_later(tmp_path, monkeypatch):
    spill = tmp_path / "dphist-spill-x"
    (spill / "parts").mkdir(parents=True)
    for name in ("lock", "a.csv", "parts/b.csv"):
        (spill / name).write_text("records")
    unlink = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda path: unlink(path) or (spill / "late.csv").write_text("records")
    )
    leftovers._empty(spill)
    assert sorted(path.name for path in spill.iterdir()) == ["late.csv", "lock"]
    monkeypatch.undo()
    os.utime(spill, (0, 0))
    leftovers.sweep_folders(tmp_path)
    assert not spill.exists()


def test_a_signal_to_end_that_somebody_handles_is_left_to_them(monkeypatch):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with leftovers.spill_folder():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with leftovers.spill_folder() as kept:
            monkeypatch.setattr(os, "getpid", lambda: 1), monkeypatch.setattr(os, "kill", lambda *_: None)
            signal.getsignal(signal.SIGTERM)(signal.SIGTERM)  # as in a child that was forked meanwhile
            assert Path(kept).exists()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_probe_of_a_folder_leaves_nothing_even_when_killed(tmp_path, monkeypatch):
    from dphist.cli import places

    seen = []
    real = tempfile.TemporaryFile

    def probe(**more):
        file = real(**more)
        seen.append(os.listdir(tmp_path))
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", probe)
    places.check_writable(tmp_path / "r.json", places.RELEASES)
    assert seen == [[]]


# ---- moments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [(2,), (0,), (0, 1, 2)])
def test_closed_streams_are_no_traceback(here, closed):
    Ledger.open("l.db", create=True)

    def close():
        for number in closed:
            os.close(number)

    command = [sys.executable, "-m", "dphist", *PUBLISH, *RELEASE]
    with (here / "said").open("w") as error:
        run = subprocess.run(command, preexec_fn=close, stdout=subprocess.PIPE, stderr=error, check=False)
    assert (run.returncode, "Traceback" in (here / "said").read_text()) == (0, False)
    assert dphist.load("r.json").epsilon == 1
    assert Ledger.open("l.db").spent("default") == 1


SLOW_IMPORT = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from dphist.cli import main
main()
"""


def test_ctrl_c_while_importing_is_quiet():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, "methods"], **pipes) as run:
        assert run.stdout.readline() == "importing\n"
        run.send_signal(signal.SIGINT)
        rest = run.communicate()
    assert (run.returncode, rest) == (130, ("", "interrupted; nothing was charged.\n"))


def test_ctrl_c_anywhere_else_is_quiet(monkeypatch):
    from dphist.cli import program as commands

    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "made", lambda words: pressed)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130


# ---- files ------------------------------------------------------------------------------------------------


def nested(levels):
    value = "deep"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [65, 400, 900, 3000, 100_000])
@pytest.mark.parametrize("field", ["provenance", "parameters", "versions"])
def test_nested_provenance_is_refused(tmp_path, field, levels):
    text = released(["a", "b"]).to_json()
    start = text.index(f'"{field}":{{') + len(field) + 4
    deep = '"x":' + "[" * levels + "1" + "]" * levels
    comma = "" if text[start] == "}" else ","
    (tmp_path / "r.json").write_text(text[:start] + deep + comma + text[start:])
    with pytest.raises(ReleaseFileError, match="nested"):
        dphist.load(tmp_path / "r.json")


def test_provenance_of_any_plain_kind_is_read_shown_and_drawn(tmp_path):
    for value in (nested(60), {"a": {"b": [None, 1.5, True]}}, None, 7, [["x"], {"y": 1}], "text"):
        provenance = {"column": value, "where": value, "source": value, "outside": value}
        file = released(["a", "b"], provenance=provenance).save(tmp_path / "r.json", overwrite=True)
        again = dphist.load(file)
        assert json.loads(again.to_json())["provenance"]["where"] == value
        assert again.plot().to_svg().startswith("<svg")
        assert "Release(" in repr(again)
        assert again._repr_html_()


TERMS = 3000


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["x"] * TERMS),
        " OR ".join(f"x = {i}" for i in range(TERMS)),
        "NOT " * TERMS + "x = 1",
        "(" * TERMS + "x" + ")" * TERMS,
        "-" * 1 + "abs(" * TERMS + "x" + ")" * TERMS,
        "CASE WHEN x = 1 THEN 1 ELSE " * TERMS + "2" + " END" * TERMS,
    ],
    ids=["sum", "or", "not", "parentheses", "calls", "case"],
)
def test_endless_expressions_are_refused_in_few_words(tmp_path, text):
    (tmp_path / "x.csv").write_text("x\n1\n2\n")
    Ledger.open(tmp_path / "l.db", create=True)
    common = {"bins": 2, "range": (0, 2), "epsilon": 1, "ledger": tmp_path / "l.db"}
    for flags in ({"column": text}, {"column": "x", "where": text}):
        with pytest.raises((UsageError, DataError)) as caught:
            dphist.histogram(tmp_path / "x.csv", **flags, **common)
        assert len(str(caught.value)) < 600
    assert Ledger.open(tmp_path / "l.db").entries() == []


def test_long_expressions_are_read(tmp_path):
    (tmp_path / "x.csv").write_text("x\n1\n2\n")
    Ledger.open(tmp_path / "l.db", create=True)
    listed = f"x IN ({', '.join(map(str, range(2000)))})"
    chained = " OR ".join(f"x = {i}" for i in range(100))
    for where in (listed, chained):
        plan = dphist.Plan(bins=2, range=(0, 4), epsilon=1000, column="x", where=where)
        assert plan.release(tmp_path / "x.csv", ledger=tmp_path / "l.db").total().value == 2


def bomb(file, rows, document):
    import duckdb

    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT 0.0::DOUBLE AS raw FROM range({rows})) TO ? "
            f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{PARQUET_KEY}: ?}})",
            [str(file), json.dumps(document)],
        )


LOAD = """
import resource, sys, dphist, dphist.release.files, duckdb
duckdb.connect().execute("SELECT 1").fetchall()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    dphist.load(sys.argv[1])
except dphist.errors.ReleaseFileError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_parquet_of_many_rows_is_refused_without_reading_them(tmp_path):
    document = released(["a", "b"]).to_dict()
    del document["raw"]
    bomb(tmp_path / "r.parquet", 50_000_000, document)
    assert (tmp_path / "r.parquet").stat().st_size < 1 << 20
    command = [sys.executable, "-c", LOAD, str(tmp_path / "r.parquet")]
    run = subprocess.run(command, text=True, capture_output=True, check=True)
    said, grown = run.stdout.splitlines()
    assert "2 bins and it holds 50000000 values" in said
    assert int(grown) < 100_000  # kilobytes; the values alone would be 400,000


@pytest.mark.parametrize("domain", [None, {}, {"axes": [{"kind": "integers", "low": 0, "high": 10**30}]}])
def test_a_parquet_whose_domain_is_damaged_is_refused(tmp_path, domain):
    document = released(["a", "b"]).to_dict() | {"domain": domain}
    del document["raw"]
    bomb(tmp_path / "r.parquet", 2, document)
    with pytest.raises(ReleaseFileError):
        dphist.load(tmp_path / "r.parquet")


def test_a_parquet_of_text_is_no_release(tmp_path):
    import duckdb

    document = released(["a", "b"]).to_dict()
    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT '1' AS raw FROM range(2)) TO ? (FORMAT parquet, KV_METADATA {{{PARQUET_KEY}: ?}})",
            [str(tmp_path / "r.parquet"), json.dumps(document)],
        )
    with pytest.raises(ReleaseFileError, match="not numbers"):
        dphist.load(tmp_path / "r.parquet")
