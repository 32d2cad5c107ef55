"""One odd record changes the counts by one record's worth, whatever holds the records.

Every source is written twice, without and with one more record (or one more person's), and the L1 distance
of the two counts is what the claimed sensitivity bounds. No record can rename columns, change how other
records are read, stop a count or get into a message.
"""

from __future__ import annotations

import gzip
import inspect
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dphist.domain import Axis, Categories, Domain, Instants, Integers, Regular, Variable
from dphist.errors import DataError, DphistError, UsageError
from dphist.records import Tally, count, count_together
from dphist.records.cells import number, written
from dphist.records.engines import duck
from dphist.records.reading import may_fail
from dphist.records.sql import Field

Row = dict[str, object]
EDGES = Variable([0, 9.65, 20])


def counts(data: object, axis: Axis | Domain, **options: object) -> np.ndarray:
    domain = axis if isinstance(axis, Domain) else Domain((axis,))
    return count(data, domain, **options).values


# --- the same rows in every holder --------------------------------------------------------------------------


def delimited(folder: Path, rows: list[Row], *, sep: str, name: str) -> tuple[object, dict]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [sep.join(keys)]
    lines += [sep.join("" if row.get(k) is None else str(row[k]) for k in keys) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name, {}


def as_csv(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    return delimited(folder, rows, sep=",", name="r.csv")


def as_tsv(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    return delimited(folder, rows, sep="\t", name="r.tsv")


def as_json_lines(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "r.jsonl", {}


def as_json(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    (folder / "r.json").write_text(json.dumps(rows, indent=1))
    return folder / "r.json", {"well_formed": True}


def as_objects(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    return pd.DataFrame(rows, dtype=object), {}


def as_sqlite(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    database = sqlite3.connect(folder / "r.sqlite")
    database.execute(f"CREATE TABLE t ({', '.join(keys)})")
    marks = ", ".join("?" for _ in keys)
    database.executemany(f"INSERT INTO t VALUES ({marks})", [[row.get(k) for k in keys] for row in rows])
    database.commit()
    database.close()
    return folder / "r.sqlite", {"table": "t"}


UNTYPED = [as_csv, as_tsv, as_json_lines, as_json, as_objects, as_sqlite]


def arrow(rows: list[Row]) -> pa.Table:
    """The types are declared, as whoever made the table did: a number, and text for ids."""
    return pa.table(
        {
            "age": pa.array([number(row["age"]) for row in rows], pa.float64()),
            "id": pa.array([written(row.get("id")) for row in rows], pa.string()),
        }
    )


def as_parquet_folder(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    """The last record comes with a file of its own."""
    (folder / "parts").mkdir()
    for i, part in enumerate((rows[:-1], rows[-1:])):
        pq.write_table(arrow(part), folder / "parts" / f"{i}.parquet")
    return folder / "parts", {}


def as_polars(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    return pl.from_arrow(arrow(rows)), {}


def as_duckdb(folder: Path, rows: list[Row]) -> tuple[object, dict]:
    with duckdb.connect(str(folder / "r.duckdb")) as database:
        database.register("given", arrow(rows))
        database.execute("CREATE TABLE t AS SELECT * FROM given")
    return folder / "r.duckdb", {"table": "t"}


TYPED = [as_parquet_folder, as_polars, as_duckdb]
Write = Callable[[Path, list[Row]], tuple[object, dict]]


def distance(
    folder: Path, write: Write, rows: list[Row], more: list[list[Row]], axis: Axis, **options
) -> int:
    """Return how far in L1 any of the further batches of records moves the counts, put last or first."""
    found = []
    for data, table in written_apart(folder, write, rows, more):
        found.append(counts(data, axis, **(options | table)))
    return max(int(np.abs(found[0] - other).sum()) for other in found[1:])


def written_apart(
    folder: Path, write: Write, rows: list[Row], more: list[list[Row]]
) -> Iterator[tuple[object, dict]]:
    """Write records without and with each of the further batches, put last or first."""
    for i, batch in enumerate([[], *more]):
        own = folder / str(i)
        own.mkdir(parents=True)
        yield write(own, [*batch, *rows] if i % 2 else [*rows, *batch])


ODD = [5.5, "A", "unknown", "007", 1e300, None, True, "2020-01-01"]


@pytest.mark.parametrize("write", [*UNTYPED, *TYPED], ids=lambda f: f.__name__)
def test_one_odd_record_is_one_record(tmp_path, write):
    rows: list[Row] = [{"age": 5, "id": i} for i in range(300)]
    rows += [{"age": 9.6, "id": i} for i in range(300, 400)]
    more: list[list[Row]] = [[{"age": odd, "id": odd}] for odd in ODD]
    domain = Domain((EDGES,))
    asked = [
        Tally(domain, ("age",)),
        Tally(domain, ("age + 0",), where="age >= 0 AND id <> '7'"),
        Tally(domain, ("age",), unit="id"),
    ]
    found = []
    for data, options in written_apart(tmp_path, write, rows, more):
        found.append([each.values for each in count_together(data, asked, progress=False, **options)])
    for other in found[1:]:
        assert all(np.abs(a - b).sum() <= 1 for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("write", [*UNTYPED, *TYPED], ids=lambda f: f.__name__)
def test_the_counts_are_right_to_begin_with(tmp_path, write):
    rows: list[Row] = [{"age": 5, "id": "a"}] * 30 + [{"age": 9.6, "id": "b"}] * 10 + [{"age": 12, "id": "c"}]
    data, table = write(tmp_path, rows)
    for options in ({"columns": "age"}, {"columns": "age * 1", "where": "age >= 0 AND age < 50"}):
        assert counts(data, EDGES, **(options | table)).tolist() == [40, 1]
    got = counts(data, Categories(("a", "b", "z")), columns="id", **table)
    assert got.tolist() == [30, 10, 0]


@pytest.mark.parametrize("write", UNTYPED, ids=lambda f: f.__name__)
def test_one_odd_person_is_one_person(tmp_path, write):
    """Ids that are the same number but not the same text stay different people, before and after."""
    rows: list[Row] = [{"age": i % 3, "id": str(i)} for i in range(600)]
    rows += [{"age": i % 3, "id": f"0{i}"} for i in range(600)]
    data, table = write(tmp_path, rows)
    assert counts(data, Integers(0, 2), columns="age", unit="id", **table).tolist() == [400, 400, 400]
    more: list[list[Row]] = [[{"age": 1, "id": odd}] * 4 for odd in ("007x", "1.0", "2020-01-01", None, "é")]
    options = {"columns": "age", "unit": "id", "max_contributions": 2}
    assert distance(tmp_path / "more", write, rows, more, Integers(0, 2), **options) <= 2


@pytest.mark.parametrize("write", UNTYPED, ids=lambda f: f.__name__)
def test_text_is_compared_as_text_whatever_the_others_are(tmp_path, write):
    rows: list[Row] = [{"code": "9"}] * 100 + [{"code": "10"}] * 7
    options = {"columns": "1", "where": "code < '2'"}
    data, table = write(tmp_path, rows)
    assert counts(data, Integers(1, 1), **(options | table)).tolist() == [7]
    assert distance(tmp_path / "more", write, rows, [[{"code": "A"}]] * 2, Integers(1, 1), **options) <= 1


def test_long_json_ids_stay_apart(tmp_path):
    lines = [f'{{"id": {10**23 + i}, "age": 1}}\n' for i in range(500)]
    (tmp_path / "r.jsonl").write_text("".join(lines))
    assert counts(tmp_path / "r.jsonl", Integers(0, 2), columns="age", unit="id").sum() == 500


def test_json_names_are_whatever_is_asked_for(tmp_path):
    """That a record has a name nobody else has must not show; and names are told apart by their case."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"age": 1, "a-b": 2}\n{"Age": 2}\n{"age": {"x": 1}}\n{"age": [1]}\n')
    assert counts(path, Integers(0, 2), columns="age").tolist() == [0, 1, 0]
    assert counts(path, Integers(0, 2), columns='"a-b"').tolist() == [0, 0, 1]
    assert counts(path, Integers(0, 2), columns="nobody").sum() == 0
    assert counts(path, Integers(0, 2), columns="age", where="nobody IS NULL AND age > 0").sum() == 1
    assert counts(path, Integers(1, 1), columns="1").tolist() == [4]


def test_parquet_files_of_different_types_are_refused(tmp_path):
    for part, values in ((0, pa.array([10] * 10)), (1, pa.array([9.6] * 10))):
        pq.write_table(pa.table({"age": values}), tmp_path / f"{part}.parquet")
    with pytest.raises(DataError, match="differ in the names or types"):
        count(tmp_path, Domain((EDGES,)), columns="age")
    (tmp_path / "0.parquet").unlink()
    assert counts(tmp_path, EDGES, columns="age").tolist() == [10, 0]


def test_folders_that_name_a_column_give_text(tmp_path):
    """One folder more, p=A, would have changed the type of p for all."""
    for value in ("1", "9", "10"):
        (tmp_path / f"p={value}").mkdir()
        pq.write_table(pa.table({"age": [float(value)]}), tmp_path / f"p={value}" / "r.parquet")
    options = {"columns": "age", "where": "p < 10"}
    before = counts(tmp_path, Integers(0, 10), **options)
    assert before.sum() == 2
    (tmp_path / "p=A").mkdir()
    pq.write_table(pa.table({"age": [5.0]}), tmp_path / "p=A" / "r.parquet")
    assert np.abs(counts(tmp_path, Integers(0, 10), **options) - before).sum() <= 1
    assert counts(tmp_path, Integers(0, 10), columns="p").sum() == 3


# --- lines that are not like the others ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"2",
        b"2,b,c,d,e",
        b"2" + b",x" * 3000,
        b"",
        b"   ",
        b",",
        b'2,"b"c',
        b"2,5'11\"",
        b'2,"b\nc"',
        b'2,"b""c"',
        b"2,b\rc",
        b"2,b\r",
        b"2,b\0c",
        b"2,\xe9",
        b"# 2,b",
        b"2," + b"x" * 3_000_000,
    ],
    ids=lambda v: repr(v[:12]) if isinstance(v, bytes) else v,
)
def test_an_odd_line_is_one_record(tmp_path, line):
    """It neither renames the columns nor moves the others; 20,000 lines are more than are ever sampled."""
    half = b"1,a\n" * 10_000
    for lines in (line + b"\n" + half + half, half + line + b"\n" + half, half + half + line):
        (tmp_path / "r.csv").write_bytes(b"age,n\n" + lines)
        got = counts(tmp_path / "r.csv", Integers(0, 3), columns="age", where="n <> 'z'")
        assert np.abs(got - [0, 20_000, 0, 0]).sum() <= 1


def test_an_odd_line_of_json_is_one_record(tmp_path):
    for odd in (b"5", b"null", b"[1]", b'{"age": ', b'{"age": "\xe9"}', b'{"age": 2} x', b"", b"nonsense"):
        (tmp_path / "r.jsonl").write_bytes(b'{"age": 1}\n' * 500 + odd + b"\n" + b'{"age": 1}\n' * 500)
        got = counts(tmp_path / "r.jsonl", Integers(0, 3), columns="age")
        assert np.abs(got - [0, 1000, 0, 0]).sum() <= 1, odd


def test_late_text_is_left_out(tmp_path):
    (tmp_path / "r.csv").write_text("age\n" + "30\n" * 60_000 + "unknown\n")
    for column in ("age", "TRY_CAST(age AS DOUBLE)", "CAST(age AS DOUBLE)", "age + 0"):
        got = counts(tmp_path / "r.csv", Regular(lo=0, hi=120, bins=2), columns=column)
        assert got.tolist() == [60_000, 0]


def test_headers(tmp_path):
    def read(text: str, column: str, name: str = "r.csv", **options) -> int:
        (tmp_path / name).write_bytes(text.encode())
        return int(counts(tmp_path / name, Integers(0, 9), columns=column, **options).sum())

    assert read("\ufeffage,n\r\n1,a\r\n2,b\r\n", "age") == 2
    assert read("\n\nage,n\n1,a\n2,b\n", "age") == 2
    assert read("age;n\n1;a,b\n2;c\n", "age") == 2
    assert read("age|n\n1|a\n", "age") == 1
    assert read('"my ""age"", now",n\n1,a\n', 'my "age", now') == 1
    assert read("age,age,Age,\n1,2,3,4\n", "age_1") == 1
    assert read("age,,n\n1,4,3\n", "column1") == 1
    for first in ("sep=;", '"sep=,"', "SEP=\t", "sep="):
        with pytest.raises(DataError, match="delimiter \\(sep=\\): remove it"):
            read(f"{first}\r\nage;n\n1;a\n", "age")
    assert read(" age , n\n 1 , a\n", "age") == 1
    assert read("age\n1\n\n2\n", "age") == 2
    assert read("age,n\n", "age") == 0
    assert read("age,n", "age") == 0
    assert read("age,id\n1,x\n2,x\n", "age", unit="id") == 1
    assert read("age\tn\n1\ta\n", "age", "r.tsv") == 1


def test_files_with_different_headers_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("age,n\n1,2\n")
    (tmp_path / "b.csv").write_text("n,age\n1,2\n")
    with pytest.raises(DataError, match="first lines"):
        count(tmp_path, Domain((Integers(0, 9),)), columns="age")


# --- every record once --------------------------------------------------------------------------------------


def test_links_and_copies_are_not_counted_twice(tmp_path):
    (tmp_path / "a.csv").write_text("age\n1\n2\n")
    (tmp_path / "latest.csv").symlink_to(tmp_path / "a.csv")
    os.link(tmp_path / "a.csv", tmp_path / "hard.csv")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "again.csv").symlink_to(tmp_path / "a.csv")
    for path in (tmp_path, str(tmp_path / "*.csv"), str(tmp_path / "**" / "*.csv")):
        assert counts(path, Integers(0, 9), columns="age").sum() == 2
    (tmp_path / "b.csv").write_text("age\n1\n2\n")
    assert counts(tmp_path, Integers(0, 9), columns="age").sum() == 4  # another file, whatever it holds
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"age\n1\n2\n"))
    with pytest.raises(UsageError, match="side by side"):
        count(tmp_path, Domain((Integers(0, 9),)), columns="age")
    assert counts(tmp_path / "b.csv.gz", Integers(0, 9), columns="age").sum() == 2


JOINS = [
    "SELECT a.age FROM t a JOIN t b ON a.h = b.h",
    "SELECT a.age FROM t a, t b WHERE a.h = b.h",
    "SELECT a.age FROM t a LEFT JOIN t b ON a.h = b.h WHERE b.id IS NULL",
    "SELECT a.age FROM t a CROSS JOIN t b",
    "SELECT a.age FROM (SELECT x.age FROM t x, t y) a",
    "SELECT age FROM t NATURAL JOIN t",
]


@pytest.mark.parametrize("text", [*JOINS, "SELECT a.age FROM t a ANTI JOIN t b ON a.h = b.h"])
def test_joins_are_refused(tmp_path, text):
    with duckdb.connect(str(tmp_path / "r.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS age, 1 AS h, range AS id FROM range(20)")
    database = sqlite3.connect(tmp_path / "r.sqlite")
    database.execute("CREATE TABLE t (age, h, id)")
    database.executemany("INSERT INTO t VALUES (1, 1, ?)", [(i,) for i in range(20)])
    database.commit()
    database.close()
    for name in ("r.duckdb", "r.sqlite"):
        with pytest.raises(UsageError):
            count(tmp_path / name, Domain((Integers(0, 9),)), columns="age", table=text)
        one = "SELECT age + 1 AS age FROM (SELECT age FROM t WHERE id > 4)"
        assert counts(tmp_path / name, Integers(0, 9), columns="age", table=one).sum() == 15


# --- nothing fails because of one record --------------------------------------------------------------------

ORACLES = [
    "CAST(CASE WHEN name = 'alice' THEN 'x' ELSE '1' END AS INTEGER) = 1",
    "CASE WHEN name = 'alice' THEN 9223372036854775807 ELSE 1 END + 1 > 0",
    "CASE WHEN name = 'alice' THEN 9223372036854775807 ELSE 1 END * 2 > 0",
    "-(CASE WHEN name = 'alice' THEN -9223372036854775807 - 1 ELSE 1 END) < 0",
    "abs(CASE WHEN name = 'alice' THEN -9223372036854775807 - 1 ELSE 1 END) > 0",
    "5 // (CASE WHEN name = 'alice' THEN 0 ELSE 1 END) = 5",
    "5 % (CASE WHEN name = 'alice' THEN 0 ELSE 1 END) = 0",
    "sqrt(CASE WHEN name = 'alice' THEN -1 ELSE 1 END) = 1",
    "ln(CASE WHEN name = 'alice' THEN 0 ELSE 1 END) = 0",
    "power(10, CASE WHEN name = 'alice' THEN 1000 ELSE 1 END) > 0",
    "exp(CASE WHEN name = 'alice' THEN 100000 ELSE 1 END) > 0",
    "regexp_matches('x', CASE WHEN name = 'alice' THEN '(' ELSE 'x' END)",
    "'x' LIKE 'x' ESCAPE (CASE WHEN name = 'alice' THEN 'xx' ELSE '!' END)",
    "CAST(CASE WHEN name = 'alice' THEN 'x' ELSE '2020-01-01' END AS DATE) > DATE '2000-01-01'",
    "CASE WHEN name = 'alice' THEN 'x' ELSE '2020-01-01' END > DATE '2000-01-01'",
    "date_trunc(CASE WHEN name = 'alice' THEN 'x' ELSE 'day' END, DATE '2020-01-01') > DATE '2000-01-01'",
    "substring('abc', CASE WHEN name = 'alice' THEN 9223372036854775807 ELSE 1 END) <> ''",
    "DATE '2020-01-01' + INTERVAL (CASE WHEN name = 'alice' THEN 999999999 ELSE 1 END) YEAR > DATE '1-1-1'",
    # The same part twice, which an optimizer would compute once, outside of the guard.
    "CAST(name AS INTEGER) + 1 > 0 OR CAST(name AS INTEGER) + 2 > 0 OR name <> ''",
]


@pytest.mark.parametrize("condition", ORACLES, ids=lambda c: c[:40])
@pytest.mark.parametrize("write", [as_csv, "arrow", "table"], ids=["csv", "arrow", "table"])
def test_no_record_makes_a_condition_fail(tmp_path, condition, write):
    """Whether it fails must not tell whether alice is there."""
    outcomes = []
    for name in ("bob", "alice"):
        (tmp_path / name).mkdir()
        rows: list[Row] = [{"age": 1, "name": "carol"}] * 5 + [{"age": 1, "name": name}]
        options: dict = {"columns": "age", "where": condition}
        if write == "arrow":
            data: object = pa.Table.from_pylist(rows)
        elif write == "table":
            data = tmp_path / name / "r.duckdb"
            with duckdb.connect(str(data)) as database:
                database.register("given", pa.Table.from_pylist(rows))
                database.execute("CREATE TABLE t AS SELECT * FROM given")
            options = {"columns": "age", "table": f"SELECT age FROM t WHERE {condition}"}
        else:
            data, table = write(tmp_path / name, rows)
            options |= table
        try:
            outcomes.append(counts(data, Integers(0, 2), **options))
        except DphistError as error:  # refused for what it is, with and without her
            outcomes.append(str(error).replace(str(tmp_path / name), ""))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        assert np.abs(outcomes[0] - outcomes[1]).sum() <= 1


def test_conversions_in_columns_and_units_do_not_fail(tmp_path):
    (tmp_path / "r.csv").write_text("age,n\n1,x\n2,7\n")
    read = {"axis": Integers(0, 9), "data": tmp_path / "r.csv"}
    assert counts(**read, columns="CAST(n AS INTEGER)").tolist()[7] == 1
    assert counts(**read, columns="CAST(n AS INTEGER) + CAST(n AS INTEGER) * 0").tolist()[7] == 1
    assert counts(**read, columns="age", unit="CAST(n AS INTEGER)").tolist()[2] == 1
    assert counts(**read, columns="age", where="CAST(n AS INTEGER) > 0", unit="n").sum() == 1
    table = pa.table({"a": [2**62, 1, 2], "u": [1, 2, 3]})
    assert counts(table, Integers(0, 9), columns="a + a").sum() == 2
    assert counts(table, Integers(0, 9), columns="a", unit="u * 4611686018427387904").sum() == 0
    assert counts(table, Integers(0, 9), columns="u", unit="a * 3").sum() == 2


def test_sqlite_selects_that_could_fail_are_refused(tmp_path):
    path, _ = as_sqlite(tmp_path, [{"age": 1, "name": "alice"}])
    for part in ("abs(age) AS age", "age, name LIKE name AS same"):
        with pytest.raises(UsageError, match="SQLite"):
            count(path, Domain((Integers(0, 2),)), columns="age", table=f"SELECT {part} FROM t")


def test_sqlite_text_that_is_no_text(tmp_path):
    path, table = as_sqlite(tmp_path, [{"age": 1}, {"age": b"\xff\xfe"}, {"age": math.inf}])
    database = sqlite3.connect(path)
    database.execute("INSERT INTO t VALUES (CAST(X'ff31' AS TEXT))")
    database.commit()
    database.close()
    assert counts(path, Integers(0, 2), columns="age", **table).sum() == 1


def test_objects_of_any_kind_are_text_or_nothing():
    class Rude:
        def __str__(self):
            raise RuntimeError

        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    key = uuid.UUID(int=5)
    cells = [1, "1", 1.0, True, None, math.nan, pd.NA, pd.NaT, Rude(), [1], b"1", key, "\ud800", 10**400, 1j]
    for data in (cells, np.array(cells, dtype=object), pd.Series(cells, dtype=object)):
        assert counts(data, Integers(0, 1)).sum() >= 3
        assert counts(data, Categories(("1", str(key), "true"))).tolist() == [2, 1, 1]
        clipped = counts(data, Regular(lo=0, hi=2, bins=1), outside="clip")
        assert abs(int(clipped[0]) - 5) <= 1
    assert written(0.1) == "0.1"
    assert written(np.float32(0.5)) == "0.5"
    assert number("  7 ") == 7
    assert number(-(10**400)) == -math.inf


def test_huge_numbers_in_a_list_are_beyond_the_end():
    assert counts([1, 10**400], Integers(0, 2)).tolist() == [0, 1, 0]
    assert counts([1, 10**400], Integers(0, 2), outside="clip").tolist() == [0, 1, 1]


# --- people -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", UNTYPED, ids=lambda f: f.__name__)
def test_records_without_a_person_are_left_out(tmp_path, write):
    rows: list[Row] = [{"age": 1, "p": "a"}] * 3 + [{"age": 1, "p": None}] * 4
    data, table = write(tmp_path, rows)
    assert counts(data, Integers(0, 2), columns="age", unit="p", **table).tolist() == [0, 1, 0]
    found = count(data, Domain((Integers(0, 2),)), columns="age", unit="p", max_contributions=9, **table)
    assert found.values.tolist() == [0, 3, 0]
    assert found.sensitivity == 9


# --- expressions over untyped columns -----------------------------------------------------------------------


@pytest.mark.parametrize("write", UNTYPED, ids=lambda f: f.__name__)
def test_what_untyped_columns_are_read_as(tmp_path, write):
    rows: list[Row] = [
        {"a": "9", "b": "10", "s": "x", "day": "2020-03-01 10:00:00"},
        {"a": "10", "b": "9", "s": "y", "day": "2021-03-01 23:00:00"},
        {"a": "z", "b": "1", "s": "9", "day": "soon"},
    ]
    data, table = write(tmp_path, rows)
    got = counts(data, Integers(0, 20), columns="CASE WHEN s = 'x' THEN a ELSE b END", **table)
    assert got.nonzero()[0].tolist() == [1, 9]

    def kept(where: str) -> int:
        return int(counts(data, Integers(1, 1), columns="1", where=where, **table).sum())

    assert kept("a < 10") == 1
    assert kept("a < '2'") == 1  # as text, "10" comes before "2"
    assert kept("year(day) = 2020") == 1
    if write is not as_csv:  # what follows is the same for all
        return
    assert kept("10 > a") == 1
    assert kept("a = b - 1") == 1
    assert kept("a BETWEEN 9.5 AND 11") == 1
    assert kept("a IN (9, 10)") == 2
    assert kept("a IN ('9', 'z')") == 2
    assert kept("NOT a > 9") == 1
    assert kept("abs(a) >= 0") == 2
    assert kept("round(a, 0) = 9") == 1
    assert kept("coalesce(a, 0) = 10") == 1
    assert kept("CASE WHEN s = 'x' THEN a ELSE 3 END = 9") == 1
    assert kept("CASE a WHEN 9 THEN true ELSE false END") == 1
    assert kept("substring(a, 1, 1) = 1") == 1
    assert kept("length(a) = 2") == 1
    assert kept("s || a = 'x9'") == 1
    assert kept("a = b OR s = '9'") == 1
    assert kept("EXTRACT(hour FROM day) = 23") == 1
    assert kept("day > DATE '2020-06-01'") == 1
    assert kept("day + INTERVAL 1 DAY > TIMESTAMP '2021-01-01'") == 1
    assert kept("CAST(a AS DOUBLE) < CAST(b AS DOUBLE)") == 1
    for text in ("a < b", "greatest(a, b) = 'x'", "s BETWEEN a AND b"):
        with pytest.raises(UsageError, match="say what they are"):
            kept(text)
    with pytest.raises(UsageError, match="true or false"):
        kept("s")


def test_a_plain_filter_of_typed_columns_is_left_to_the_engine():
    """Wrapped in a guard it could not be pushed down to the file, and it cannot fail."""
    import sqlglot

    fields = {
        "a": Field("integer", "BIGINT"),
        "h": Field("integer", "HUGEINT"),
        "s": Field("text", "VARCHAR"),
        "u": Field("text", "VARCHAR", untyped=True),
    }
    for text in ("a < 50", "a >= 18 AND NOT (s = 'x' OR a IN (1, 2))", "a BETWEEN 1 AND 2", "s IS NULL"):
        assert not may_fail(sqlglot.parse_one(text, dialect="duckdb"), fields), text
    for text in (
        "a < '50'",
        "s < 5",
        "a + 1 < 5",
        "a = s",
        "h < 1.5",
        "CAST(s AS INT) = 1",
        "s > DATE '2020-01-01'",
    ):
        assert may_fail(sqlglot.parse_one(text, dialect="duckdb"), fields), text
    assert not may_fail(sqlglot.parse_one("TRY_CAST(u AS DOUBLE) < 50", dialect="duckdb"), fields)


def test_labels_that_no_value_could_ever_be_are_refused():
    table = pa.table({"age": [1, 2], "ok": [True, False], "s": ["1", "x"]})
    for column in ("age", "ok"):
        with pytest.raises(UsageError, match="no declared category"):
            count(table, Domain((Categories(("north", "south")),)), columns=column)
    assert counts(table, Categories(("north", "2")), columns="age").tolist() == [0, 1]
    assert counts(table, Categories(("north", "south")), columns="s").tolist() == [0, 0]
    assert counts(pd.DataFrame({"age": [1, 2]}, dtype=object), Categories(("n",)), columns="age").sum() == 0


# --- messages -----------------------------------------------------------------------------------------------

SECRET = "Hjördis-Quartz-7781"


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(DphistError) as caught:
        act()
    return "".join(traceback.format_exception(caught.value)[-1:])


def test_arguments_that_are_records_are_not_quoted(tmp_path):
    frame = pd.DataFrame({"age": [77.81, 3.5, 1.0, 2.0], "id": [SECRET, "b", "c", "d"]})
    domain = Domain((EDGES,))
    (tmp_path / "headless.csv").write_text(f"alice,{SECRET}\nbob,2\n")
    texts = [
        refused(lambda: count(frame, domain, columns=frame.age)),
        refused(lambda: count(frame, domain, columns="age", unit=frame.id)),
        refused(lambda: count(frame, domain, columns="age", where=frame.age > 1)),
        refused(lambda: count(frame, domain, columns="age", unit="id", max_contributions=frame.age)),
        refused(lambda: count(frame, domain, columns="age", outside=frame.id)),
        refused(lambda: Variable(frame.age.to_numpy())),
        refused(lambda: Variable([77.81, 77.81, 80, 90])),
        refused(lambda: Variable([1, 2, SECRET, 7781.0, 77.81])),
        refused(lambda: Variable([1, 2, 3, 10**400])),
        refused(lambda: Categories(tuple(frame.age))),
        refused(lambda: Categories((*frame.id, SECRET))),
        refused(lambda: Regular(lo=0, hi=10, bins=frame.age)),
        refused(lambda: count(tmp_path / "headless.csv", domain, columns="age")),
        refused(lambda: count(tmp_path / "headless.csv", domain)),
        refused(lambda: count(tmp_path / "headless.csv", domain, columns=("age", "id"))),
    ]
    for text in texts:
        assert not any(word in text for word in ("Hj", "77.8", "7781", "alice", "00000000")), text


def test_what_somebody_wrote_by_hand_is_quoted():
    assert "5.0 is followed by 2.0" in refused(lambda: Variable([5, 2, 7]))
    assert "number 2 is followed by number 3" in refused(lambda: Variable([1, 5, 2, 7]))
    assert "'a'" in refused(lambda: Categories(("a", "a")))
    assert "number 4 is declared twice" in refused(lambda: Categories(("a", "b", "c", "a")))
    assert "12.5" in refused(lambda: Regular(lo=0, hi=10, bins=12.5))
    assert "finite" in refused(lambda: Regular(lo=0, hi=10**400, bins=2))
    assert "1 column" not in refused(lambda: count(pa.table({"a": [1]}), Domain((EDGES,))))
    assert "2 were given" in refused(
        lambda: count(pa.table({"a": [1]}), Domain((EDGES,)), columns=("a", "b"))
    )


def test_near_names_are_suggested(tmp_path):
    (tmp_path / "visits.csv").write_text("age,name\n1,2\n")
    assert "visits.csv" in refused(lambda: count(tmp_path / "visist.csv", Domain((EDGES,)), columns="age"))
    assert "'age'" in refused(lambda: count(tmp_path / "visits.csv", Domain((EDGES,)), columns="agee"))
    text = refused(lambda: count(tmp_path / "visits.csv", Domain((EDGES,)), columns="height"))
    assert "first line" in text
    assert "'name'" not in text


# --- stopping -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_ctrl_c_stops_a_count(tmp_path, kind):
    """A count of many records is interrupted while DuckDB (or SQLite) works: KeyboardInterrupt, no other."""
    path = tmp_path / f"many.{kind}"
    if kind == "parquet":
        duckdb.execute(
            f"COPY (SELECT (i * 7919) % 3000000 AS u, i % 9 AS x FROM range(12000000) t(i)) TO '{path}'"
        )
    else:
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE t (u, x)")
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) "
            "INSERT INTO t SELECT i, i % 9 FROM n"
        )
        database.commit()
        database.close()
    table = "t" if kind == "sqlite" else None
    code = f"""
        from dphist.domain import Domain, Integers
        from dphist.records import count
        from dphist.records.engines import duck
        domain = Domain((Integers(0, 8),))
        print("ready", flush=True)
        try:
            while True:
                count({str(path)!r}, domain, columns="x", unit="u", table={table!r})
        except KeyboardInterrupt:
            print("stopped", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(1.2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (out, err, child.returncode) == ("stopped\n", "", 0)


def test_an_interrupted_query_is_an_interrupt_and_nothing_else_is(monkeypatch):
    class Connection:
        def __init__(self, error: Exception):
            self.error = error

        def execute(self, *_: object) -> None:
            raise self.error

    for error in (RuntimeError("Query interrupted"), duckdb.InterruptException("INTERRUPT")):
        with pytest.raises(KeyboardInterrupt):
            duck.Duck(Connection(error), "d", progress=False)._execute("SELECT 1")
    for error in (duckdb.ConversionException(SECRET), RuntimeError(SECRET)):
        text = refused(
            lambda error=error: duck.Duck(Connection(error), "d", progress=False)._execute("SELECT 1")
        )
        assert "7781" not in text


def test_dates_in_untyped_sources(tmp_path):
    axis = Instants("2024-01-01", "2024-01-04")
    days = ["2024-01-01", "2024-01-02T08:00", "soon", None, 5, "2024-01-02"]
    rows: list[Row] = [{"day": day} for day in days]
    assert counts(days, axis).tolist() == [1, 2, 0]
    for write in (as_csv, as_json_lines, as_objects):
        data, _ = write(tmp_path, rows)
        assert counts(data, axis, columns="day").tolist() == [1, 2, 0]


def test_a_part_that_two_guards_share_stays_inside_them(monkeypatch):
    """DuckDB would compute it once, outside of both, and fail; so that optimizer is off."""
    table = pa.table({"a": [2**62, 1]})
    query = "SELECT TRY(a * 3 + 1), TRY(a * 3 + 2) FROM dphist_records"
    with duck.connect(table, table=None, progress=False) as engine:
        assert engine.connection.execute(query).fetchall() == [(None, None), (4, 5)]
    settings = duck._settings
    monkeypatch.setattr(duck, "_settings", lambda spill: settings(spill) | {"disabled_optimizers": ""})
    with (
        duck.connect(table, table=None, progress=False) as engine,
        pytest.raises(duckdb.OutOfRangeException),
    ):
        engine.connection.execute(query).fetchall()


@pytest.mark.parametrize("axis", [Integers(0, 9), Categories(("1", "5"), other=True)])
def test_lists_inside_a_list_are_cells_whatever_the_others_are(axis):
    """Refused when all were lists, and counted when one was not: the one decided."""
    domain = Domain((axis,))
    lists = [[1], (2, 3), np.array([3, 4])]
    alone = count(lists, domain).values
    assert (count([*lists, 5], domain).values - alone).sum() == 1
    assert (
        count([[1], [2]], domain).values == count([[1]], domain).values + count([[2]], domain).values
    ).all()
    if isinstance(axis, Integers):
        assert alone.sum() == 0


def test_a_scanner_is_counted():
    table = pa.table({"a": [1, 2, 2], "t": pa.array([0, 1, 2], pa.timestamp("ms"))})
    scanner = ds.dataset(table).scanner
    assert count(scanner(), Domain((Integers(0, 3),)), columns="a").values.tolist() == [0, 1, 2, 0]
    chosen = count(scanner(columns=["a"]), Domain((Integers(0, 3),)), columns="a", where="a > 1")
    assert chosen.values.tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("holder", ["parquet", "arrow"])
def test_the_least_time_of_all_stops_nothing(tmp_path, unit, zone, holder):
    if (holder, unit) == ("parquet", "s"):
        pytest.skip("Parquet has no whole seconds")
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    noon = 19723 * 86400 * ticks
    axis = Instants("2024-01-01", "2024-01-03", tz=zone)

    def tallies(moments: list[int]) -> list[np.ndarray]:
        table = pa.table({"t": pa.array(moments, pa.int64()).view(pa.timestamp(unit, tz=zone))})
        if holder == "parquet":
            pq.write_table(table, tmp_path / "t.parquet")
        asked = [Tally(Domain((axis,)), ("t",), outside=outside) for outside in ("drop", "clip")]
        made = count_together(table if holder == "arrow" else tmp_path / "t.parquet", asked, progress=False)
        return [found.values for found in made]

    for before in tallies([noon] * 3):
        assert before.tolist() == [3, 0]
    for far in (-(2**63), -(2**63) + 1, 2**63 - 1):
        for found in tallies([noon] * 3 + [far]):
            assert abs(found - before).sum() <= 1


def kinds_of_text():
    yield "string[python]"
    if "na_value" in inspect.signature(pd.StringDtype).parameters:  # since pandas 2.3
        yield pd.StringDtype("python", na_value=np.nan)


@pytest.mark.parametrize("dtype", list(kinds_of_text()))
@pytest.mark.parametrize("categorical", [False, True])
def test_half_a_character_in_a_column_of_text_is_one_record(dtype, categorical):
    def frame(cells: list[str]) -> pd.DataFrame:
        text = pd.Series(cells, dtype=dtype)
        return pd.DataFrame({"t": text.astype("category") if categorical else text, "n": [1] * len(cells)})

    plain, odd = frame(["a", "b"]), frame(["a", "b", "\ud800"])
    labels = Categories(("a", "b"), other=True)
    assert counts(plain, labels, columns="t").tolist() == [1, 1, 0]
    assert counts(odd, labels, columns="t").tolist() == [1, 1, 1]
    assert counts(plain, Integers(0, 3), columns="n", unit="t").tolist() == [0, 2, 0, 0]
    assert counts(odd, Integers(0, 3), columns="n", unit="t").tolist() == [0, 2, 0, 0]  # whose it is, is lost
    with pytest.raises(DataError, match="is text"):  # it has a type, and keeps it
        counts(plain, Integers(0, 3), columns="t")
