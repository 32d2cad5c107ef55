"""A value planted in the records is nowhere to be seen: in no message, log, warning, plan or release."""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
import traceback
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dphist
from dphist import cli
from dphist.domain import Categories, Domain, Instants, Integers, Regular
from dphist.errors import DphistError
from dphist.privacy.ledger import MemoryLedger
from dphist.records import count
from dphist.records.check import check
from dphist.records.engines import duck

# Text, a number and a date, by what each would look like wherever it came out; and the number of records.
TEXT, NUMBER, DATE, ROWS = "Hjördis-Quartz", 7781.7781, dt.date(3817, 7, 18), 2371
TRACES = ("Quartz", "Hj", "7781", "3817", "2371")
COLUMNS = {
    "s": [TEXT] * ROWS,
    "n": [NUMBER] * ROWS,
    "d": [DATE] * ROWS,
    "e": pd.Categorical([TEXT] * ROWS),
}
TABLE = pa.table({"s": COLUMNS["s"], "n": COLUMNS["n"], "d": pa.array(COLUMNS["d"], pa.date32())})


def as_csv(folder: Path) -> tuple[object, dict[str, object]]:
    path = folder / "x.csv"
    path.write_text("s,n,d\n" + f"{TEXT},{NUMBER},{DATE}\n" * ROWS + f'"{TEXT}\n{TEXT},{TEXT}\n', "utf-8")
    return path, {}


def as_latin(folder: Path) -> tuple[object, dict[str, object]]:
    path = folder / "l.tsv"
    path.write_bytes(f"s\tn\td\n{TEXT}\t{NUMBER}\t{DATE}\n".encode("latin-1") * 2)
    return path, {}


def as_jsonl(folder: Path) -> tuple[object, dict[str, object]]:
    path = folder / "x.jsonl"
    line = json.dumps({"s": TEXT, "n": NUMBER, "d": str(DATE)}, ensure_ascii=False)
    path.write_text(f"{line}\n" * ROWS + f'{{"s": "{TEXT}\n', "utf-8")
    return path, {}


def as_json(folder: Path) -> tuple[object, dict[str, object]]:
    path = folder / "x.json"
    path.write_text(json.dumps([{"s": TEXT, "n": NUMBER, "d": str(DATE)}] * ROWS), "utf-8")
    return path, {"well_formed": True}


def as_parquet(folder: Path) -> tuple[object, dict[str, object]]:
    """With a footer that holds the number of records and their least and greatest values."""
    pq.write_table(TABLE, folder / "x.parquet", write_statistics=True, row_group_size=1000)
    return folder / "x.parquet", {}


def as_damaged(folder: Path) -> tuple[object, dict[str, object]]:
    """A good footer and damaged pages."""
    path = as_parquet(folder)[0]
    raw = bytearray(path.read_bytes())
    raw[4 : len(raw) // 2] = TEXT.encode() * ((len(raw) // 2 - 4) // len(TEXT.encode()))
    path.write_bytes(raw)
    return path, {}


def as_duckdb(folder: Path) -> tuple[object, dict[str, object]]:
    with duckdb.connect(str(folder / "x.duckdb")) as made:
        made.register("t", TABLE)
        made.execute("CREATE TABLE records AS SELECT * FROM t")
        made.execute("CREATE VIEW failing AS SELECT CAST(s AS INTEGER) AS n, s, d FROM records")
    return folder / "x.duckdb", {"table": "records"}


def as_failing_view(folder: Path) -> tuple[object, dict[str, object]]:
    return as_duckdb(folder)[0], {"table": "failing"}


def as_sqlite(folder: Path) -> tuple[object, dict[str, object]]:
    with closing(sqlite3.connect(folder / "x.sqlite")) as made:
        made.execute("CREATE TABLE records (s TEXT, n INTEGER, d DATE)")
        made.executemany("INSERT INTO records VALUES (?, ?, ?)", [(TEXT, TEXT, str(DATE))] * ROWS)
        made.commit()
    return folder / "x.sqlite", {"table": "records"}


def as_arrow(folder: Path) -> tuple[object, dict[str, object]]:
    return TABLE, {}


def as_failing_reader(folder: Path) -> tuple[object, dict[str, object]]:
    """A reader whose own code raises half-way, with a record in its words."""

    def batches():
        yield TABLE.to_batches()[0]
        raise ValueError(f"cannot convert {TEXT} {NUMBER}")

    return pa.RecordBatchReader.from_batches(TABLE.schema, batches()), {}


def as_polars(folder: Path) -> tuple[object, dict[str, object]]:
    return pl.from_arrow(TABLE), {}


def as_pandas(folder: Path) -> tuple[object, dict[str, object]]:
    return pd.DataFrame(COLUMNS), {}


def as_odd_objects(folder: Path) -> tuple[object, dict[str, object]]:
    class Odd:
        def __str__(self):
            raise ValueError(TEXT)

        def __repr__(self):
            return TEXT

    return pd.DataFrame({"s": [TEXT, Odd()], "n": [NUMBER, Odd()], "d": [DATE, Odd()]}), {}


LOADS = [
    as_csv,
    as_latin,
    as_jsonl,
    as_json,
    as_parquet,
    as_damaged,
    as_duckdb,
    as_failing_view,
    as_sqlite,
    as_arrow,
    as_failing_reader,
    as_polars,
    as_pandas,
    as_odd_objects,
]
NUMBERS, LABELS = Domain((Regular(lo=0, hi=9, bins=3),)), Domain((Categories(("a", "b")),))
DAYS = Domain((Instants("2024-01-01", "2024-01-04"),))
QUESTIONS = [
    (NUMBERS, {"columns": "n"}),
    (NUMBERS, {"columns": "s"}),
    (NUMBERS, {"columns": "d"}),
    (NUMBERS, {}),
    (NUMBERS, {"columns": "nobody"}),
    (NUMBERS, {"columns": "CAST(s AS DOUBLE)"}),
    (NUMBERS, {"columns": "s + 1"}),
    (NUMBERS, {"columns": "n", "where": "s > n"}),
    (NUMBERS, {"columns": "n", "where": "s"}),
    (NUMBERS, {"columns": "n", "where": "CAST(s AS DATE) > CAST('2024-01-01' AS DATE)"}),
    (NUMBERS, {"columns": "n", "where": "s LIKE '%('"}),
    (NUMBERS, {"columns": "n", "unit": "s"}),
    (NUMBERS, {"columns": "n", "unit": "s", "max_contributions": 0}),
    (LABELS, {"columns": "s"}),
    (LABELS, {"columns": "e"}),
    (LABELS, {"columns": "n"}),
    (DAYS, {"columns": "d"}),
    (DAYS, {"columns": "s"}),
    (DAYS, {"columns": "n"}),
]


def clean(text: str) -> None:
    assert not [trace for trace in TRACES if trace in text], text


def clean_error(error: BaseException) -> None:
    """Look at the message, the printed traceback and everything that is chained to it."""
    clean("".join(traceback.format_exception(error)))
    while error is not None:
        clean(f"{error!s} {error!r} {error.args}")
        assert error.__cause__ is None and error.__context__ is None
        error = error.__cause__


@pytest.mark.parametrize("load", LOADS, ids=lambda f: f.__name__)
def test_no_value_is_quoted(load, tmp_path, capfd, caplog, recwarn):
    for domain, question in QUESTIONS:
        data, where = load(tmp_path)
        try:
            count(data, domain, **question, **where)
        except DphistError as error:
            clean_error(error)
        for path in tmp_path.iterdir():
            path.unlink()
    clean("".join(capfd.readouterr()) + caplog.text + " ".join(str(w.message) for w in recwarn))


@pytest.mark.parametrize("load", LOADS[:9], ids=lambda f: f.__name__)
def test_the_command_line_shows_no_value(load, tmp_path, capfd, monkeypatch):
    """Dry runs, failures and real releases; no bin of a release has as many records as there are."""
    monkeypatch.chdir(tmp_path)
    data, where = load(tmp_path)
    dphist.Ledger.open("book.db", create=True)
    said = ["--well-formed"] if "well_formed" in where else []
    said += ["--table", where["table"]] if "table" in where else []
    told = ["dphist", "publish", str(data), "--epsilon", "1", "--bins", "3", "--range", "0", "9", *said]
    told += ["--method", "identity"]
    asked = ["--column", "n"], ["--column", "s + 1"], ["--column", "nobody"], []
    ways = [], ["--dry-run", "--json"], ["--json"], ["--dry-run"]
    for question in asked:
        for more in ways if question is asked[0] else ways[:2]:
            monkeypatch.setattr("sys.argv", [*told, *question, *more, "--ledger", "book.db"])
            with suppress(SystemExit):
                cli.main()
    shown = "".join(capfd.readouterr())
    # Random bits: the noise, the identifiers and the moment of a release.
    clean(re.sub(r"[0-9a-f]{8,}|-?[0-9]+\.[0-9]+|[0-9]{4}-[0-9:T.+-]+", "", shown.replace(str(tmp_path), "")))
    assert "Traceback" not in shown
    assert list(tmp_path.glob("release*.json")) or load in (as_damaged, as_failing_view)


def test_a_plan_and_a_release_hold_no_value(tmp_path):
    path = as_parquet(tmp_path)[0]
    plan = dphist.Plan(bins=Integers(0, 3), column="n", where="s IS NOT NULL", epsilon=50)
    released = plan.release(path, ledger=MemoryLedger())
    clean(repr(plan))
    kept = {"source", "column", "where", "outside", "table", "timezone", "dataset", "journaled"}
    assert set(released.provenance) >= kept
    clean(json.dumps(dict(released.provenance)))


def test_a_failure_that_nobody_foresaw_is_told_in_our_words(monkeypatch):
    def odd(*_: object, **__: object) -> None:
        raise KeyError(TEXT)

    monkeypatch.setattr(duck.Duck, "run", odd)
    for door in (count, check):
        with pytest.raises(DphistError, match="an unexpected error .KeyError.") as caught:
            door(TABLE, NUMBERS, columns="n")
        clean_error(caught.value)
    monkeypatch.setattr(np, "histogram", odd)
    with pytest.raises(DphistError, match="an unexpected error .KeyError.") as caught:
        count(np.array([NUMBER]), NUMBERS)
    clean_error(caught.value)


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, KeyError])
@pytest.mark.parametrize("where", ["count", "engine"])
def test_a_record_that_speaks_of_an_interrupt_is_none(monkeypatch, kind, where):
    """A Ctrl-C is told by its type, or by the whole of what DuckDB says of it."""

    def quotes(*_: object, **__: object) -> None:
        raise kind(f"cannot read '{TEXT} Query interrupted'")

    class Connection:
        execute = quotes

    if where == "count":
        monkeypatch.setattr(duck.Duck, "run", quotes)
    else:
        broken = duck.Duck(Connection(), "x", progress=False)
        monkeypatch.setattr(duck.Duck, "tally", lambda *_: broken._execute("SELECT 1"))
    with pytest.raises(DphistError) as caught:
        count(TABLE, NUMBERS, columns="n")
    clean_error(caught.value)


# --- schemas only -------------------------------------------------------------------------------------------

TOO_MUCH = ("parquet_metadata", "parquet_file_metadata", "num_rows", "count_rows", "sniff_csv", "summarize")
GUESSES = (
    r"auto_detect\s*=\s*true",
    r"hive_types_autocast\s*=\s*true",
    "sample_size",
    "inferSchema",
    "read_csv_auto",
)


def too_curious(text: str) -> list[str]:
    """Return what a source text asks of a file beyond its schema."""
    return [word for word in (*TOO_MUCH, *GUESSES) if re.search(word, text, re.IGNORECASE)]


def test_nothing_but_schemas_is_asked_of_a_file():
    planted = ["SELECT * FROM parquet_metadata('x')", "pq.read_metadata(p).num_rows", "auto_detect = true"]
    assert all(too_curious(text) for text in planted)
    folder = Path(duck.__file__).parent
    assert {p.name: found for p in folder.glob("*.py") if (found := too_curious(p.read_text("utf-8")))} == {}
