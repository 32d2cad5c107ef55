"""Records become exact counts, whatever holds them, and nothing a record says gets into a message."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

import duckdb
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import dphist
from dphist.domain import Axis, Categories, Domain, Integers, Regular, Variable
from dphist.errors import DataError, DphistError, PrivacyError, UsageError
from dphist.privacy.ledger import Ledger
from dphist.records import count, progress, query, sql
from dphist.records.engines import duck
from dphist.records.expressions import Field, expression, rows_of
from dphist.records.progress import watching
from dphist.records.sql import Engine

AGES = np.array([0.0, 17.9, 18.0, 18.0, 44.0, 64.999, 65.0, 119.5, 120.0, -1.0, 121.0, math.nan])
AGE = Domain((Regular(lo=0, hi=120, bins=12),))
AGE_COUNTS = np.histogram(AGES, bins=12, range=(0, 120))[0]


def counted(data, axis: Axis | Domain, **options) -> np.ndarray:
    domain = axis if isinstance(axis, Domain) else Domain((axis,))
    return count(data, domain, **options).values


def through_engine(values, axis: Axis, **options) -> np.ndarray:
    """The same values as a table, so that the engine's query counts them and not numpy."""
    return counted(pa.table({"x": pa.array(values)}), axis, columns="x", **options)


def around(edges: np.ndarray) -> np.ndarray:
    """Every edge and its neighbouring doubles, near and a little further off."""
    near = [edges]
    for towards in (-np.inf, np.inf):
        step = edges
        for _ in range(3):
            step = np.nextafter(step, towards)
            near.append(step)
    return np.concatenate([*near, (edges[1:] + edges[:-1]) / 2, [math.inf, -math.inf, math.nan, 0.0, -0.0]])


# --- the bins are numpy's, to the last bit ------------------------------------------------------------------


@st.composite
def regular_axes(draw) -> Regular:
    lo = draw(st.floats(-1e9, 1e9))
    width = draw(st.floats(1e-3, 1e9))
    bins = draw(st.integers(1, 300))
    try:
        return Regular(lo=lo, hi=lo + width, bins=bins)
    except UsageError:
        return Regular(lo=0.0, hi=width, bins=bins)


@settings(max_examples=40, deadline=None)
@given(axis=regular_axes())
def test_regular_bins_equal_numpy_for_doubles_next_to_edges(axis):
    values = around(axis.edges)
    finite = values[np.isfinite(values)]
    expected = np.histogram(finite, bins=axis.edges)[0]
    assert np.array_equal(through_engine(values, axis), expected)
    assert np.array_equal(counted(values, axis), expected)


@pytest.mark.parametrize(
    ("lo", "hi", "bins"),
    [
        (0, 1, 10),
        (0.1, 0.7, 6),
        (-1, 1, 3),
        (0, 1, 4097),
        (1e15, 1e15 + 100, 50),
        (1.7e9, 1.7e9 + 1, 1000),
        (1e15, 1e15 + 300, 1000),
        (0, 5e-324 * 1000, 100),
        (-1e308, 7e307, 7),
        (0, 100, 99_999),
    ],
)
def test_regular_bins_that_rounding_makes_hard(lo, hi, bins):
    axis = Regular(lo=lo, hi=hi, bins=bins)
    values = around(axis.edges)
    expected = np.histogram(values[np.isfinite(values)], bins=axis.edges)[0]
    assert np.array_equal(through_engine(values, axis), expected)
    assert np.array_equal(counted(values, axis), expected)


def test_the_correction_near_edges_is_needed():
    """Without it the arithmetic puts some doubles next to an edge into the wrong bin."""
    axis = Regular(lo=-1, hi=1, bins=49)
    values = around(axis.edges)
    inside = values[(values >= axis.lo) & (values <= axis.hi)]
    naive = np.minimum(np.floor((inside - axis.lo) / axis.step), axis.n - 1)
    assert not np.array_equal(naive.astype(int), axis.index(inside))


@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=200, unique=True).map(
        lambda e: np.sort(np.array(e) + 0.0)
    )
)
def test_variable_bins_equal_numpy_for_doubles_next_to_edges(edges):
    edges = np.unique(edges)
    if edges.size < 2:
        edges = np.array([0.0, 1.0])
    values = around(edges)
    expected = np.histogram(values[np.isfinite(values)], bins=edges)[0]
    assert np.array_equal(through_engine(values, Variable(edges)), expected)
    assert np.array_equal(counted(values, Variable(edges)), expected)


@pytest.mark.parametrize(
    "axis",
    [
        Regular(lo=-3, hi=7, bins=13),
        Variable([-3, 0, 0.5, 7]),
        Variable(np.geomspace(1e-3, 1e6, 500)),
        Integers(-5, 20),
        Integers(-(2**53), -(2**53) + 3),
    ],
)
@pytest.mark.parametrize("outside", ["drop", "clip"])
def test_the_engine_and_the_array_path_agree(axis, outside):
    values = np.concatenate([around(axis.edges), np.random.default_rng(1).normal(0, 10, 5000)])
    assert np.array_equal(
        through_engine(values, axis, outside=outside), counted(values, axis, outside=outside)
    )
    small = values[np.isfinite(values)][:50]
    slow = [0] * axis.n
    for value in small:
        i = axis.index([value], outside)[0]
        if i >= 0:
            slow[i] += 1
    assert counted(small, axis, outside=outside).tolist() == slow


def test_clipping_moves_infinities_to_the_ends_and_never_counts_nan():
    values = [math.inf, -math.inf, math.nan, 5.0]
    for get in (counted, through_engine):
        assert get(values, Regular(lo=0, hi=10, bins=2), outside="clip").tolist() == [1, 2]
        assert get(values, Integers(0, 9), outside="clip").sum() == 3
        assert get(values, Regular(lo=0, hi=10, bins=2)).tolist() == [0, 1]


@pytest.mark.parametrize(
    "type",
    [
        pa.int8(),
        pa.int64(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(20, 2),
    ],
)
def test_numeric_types(type):
    table = pa.table({"x": pa.array([1, 2, 2, 3, None], pa.int8()).cast(type)})
    assert counted(table, Regular(lo=0, hi=4, bins=4), columns="x").tolist() == [0, 1, 2, 1]


def test_booleans_are_zero_and_one_or_labels():
    table = pa.table({"b": [True, False, True, None]})
    assert counted(table, Integers(0, 1), columns="b").tolist() == [1, 2]
    assert counted(table, Categories(("true", "false")), columns="b").tolist() == [2, 1]
    assert counted([True, False, True, None], Categories(("true", "false"))).tolist() == [2, 1]


# --- categories ---------------------------------------------------------------------------------------------

HOSTILE = [
    "'; DROP TABLE dphist_records; --",
    '" OR 1=1 --',
    "a\\'b",
    "${HOME}",
    "",
    " ",
    "NULL",
    "x" * 5000,
    "日本語\n\t",
    "%",
]


def test_hostile_labels_are_only_labels():
    cells = [*HOSTILE, *HOSTILE[:3], "unseen", None]
    expected = [2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    axis = Categories(tuple(HOSTILE))
    assert through_engine(cells, axis).tolist() == expected
    assert counted(cells, axis).tolist() == expected
    with_other = Categories(tuple(HOSTILE), other=True)
    assert through_engine(cells, with_other).tolist() == [*expected, 1]
    assert counted(cells, with_other).tolist() == [*expected, 1]


def test_categories_of_whole_numbers_and_of_many_labels():
    axis = Categories(tuple(str(i) for i in range(20_000)))
    values = np.random.default_rng(0).integers(0, 20_000, 50_000)
    expected = np.bincount(values, minlength=20_000)
    assert np.array_equal(through_engine(values, axis), expected)
    assert np.array_equal(counted(values, axis), expected)
    with pytest.raises(DataError, match="categories are text"):
        through_engine([1.5], axis)
    with pytest.raises(DataError, match="categories are text"):
        counted(np.array([1.5]), axis)
    assert counted([1.5, 7], axis).sum() == 1  # a list promises nothing: each cell is what it is


# --- grids --------------------------------------------------------------------------------------------------


def test_two_columns_equal_numpy():
    draws = np.random.default_rng(3)
    x, y = draws.normal(0, 2, 20_000), draws.uniform(-1, 11, 20_000)
    domain = Domain((Regular(lo=-3, hi=3, bins=7), Variable([0, 1, 5, 10])))
    expected = np.histogram2d(x, y, bins=[domain.axes[0].edges, domain.axes[1].edges])[0]
    expected = expected.astype(np.int64).ravel()
    assert np.array_equal(counted((x, y), domain), expected)
    assert np.array_equal(counted(pd.DataFrame({"x": x, "y": y}), domain, columns=("x", "y")), expected)
    wide = Domain((Regular(lo=-3, hi=3, bins=1000), Regular(lo=0, hi=10, bins=1000)))
    edges = [a.edges for a in wide.axes]
    expected = np.histogram2d(x, y, bins=edges)[0].astype(np.int64).ravel()
    assert np.array_equal(counted(pd.DataFrame({"x": x, "y": y}), wide, columns=("x", "y")), expected)


def test_a_grid_of_a_number_and_two_kinds_of_labels():
    table = pl.DataFrame({"n": [1, 1, 2, 9], "s": ["a", "b", "a", "a"], "t": ["u", "u", "u", None]})
    domain = Domain((Integers(1, 2), Categories(("a",), other=True)))
    assert counted(table, domain, columns=("n", "s")).tolist() == [1, 1, 1, 0]
    domain = Domain((Categories(("a", "b")), Categories(("u", "v"))))
    assert counted(table, domain, columns=("s", "t")).tolist() == [2, 0, 1, 0]


# --- every holder of records --------------------------------------------------------------------------------


def as_csv(path: Path, *, sep: str = ",") -> Path:
    lines = [sep.join(("id", "age", "city"))]
    lines += [sep.join((str(i), "" if math.isnan(a) else repr(float(a)), "x y")) for i, a in enumerate(AGES)]
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def as_json(path: Path) -> Path:
    rows = [{"id": i, "age": None if math.isnan(a) else float(a)} for i, a in enumerate(AGES)]
    text = json.dumps(rows) if path.name.endswith(".json") else "\n".join(json.dumps(r) for r in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def as_parquet(path: Path) -> Path:
    pq.write_table(pa.table({"id": range(AGES.size), "age": AGES}), path)
    return path


def as_duckdb(path: Path) -> Path:
    with duckdb.connect(str(path)) as database:
        database.register("ages", pa.table({"id": range(AGES.size), "age": AGES}))
        database.execute('CREATE TABLE visits AS SELECT * FROM ages; CREATE SCHEMA "s p"')
        database.execute(
            'CREATE TABLE "s p"."odd ""name" AS SELECT * FROM ages; CREATE VIEW v AS FROM visits'
        )
    return path


def as_sqlite(path: Path) -> Path:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE visits (id INTEGER, age REAL, name TEXT, mixed)")
    rows = [(i, None if math.isnan(a) else a, f"n{i}", i if i % 2 else "t") for i, a in enumerate(AGES)]
    database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("r.csv", as_csv),
        ("r.CSV", as_csv),
        ("r.csv.gz", as_csv),
        ("a[1] 'q'.csv", as_csv),
        ("r.tsv", lambda p: as_csv(p, sep="\t")),
        ("r.tsv.gz", lambda p: as_csv(p, sep="\t")),
        ("r.json", as_json),
        ("r.jsonl", as_json),
        ("r.ndjson", as_json),
        ("r.jsonl.gz", as_json),
        ("r.parquet", as_parquet),
        ("r.pq", as_parquet),
    ],
)
def test_every_file_format(tmp_path, name, write):
    path = write(tmp_path / name)
    for given_as in (path, str(path)):
        result = count(given_as, AGE, columns="age", well_formed=name == "r.json")
        assert np.array_equal(result.values, AGE_COUNTS)
        assert result.sensitivity == 1
        assert result.unit == "one record"


def test_a_view_that_a_record_stops_says_how_to_mend_it(tmp_path):
    """What a view computes is its owner's: it is not rewritten, and the error says what to write instead."""
    path, ledger = tmp_path / "d.duckdb", Ledger.open(tmp_path / "l.db", create=True)
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE r AS SELECT * FROM (VALUES ('5'), ('6'), ('Hj7781')) AS t(age)")
        made.execute("CREATE VIEW failing AS SELECT CAST(age AS INTEGER) AS age FROM r")
        made.execute("CREATE VIEW mended AS SELECT TRY_CAST(age AS INTEGER) AS age FROM r")
    ages = Domain((Integers(5, 6),))
    asked = {"bins": ages, "epsilon": 1, "column": "age", "ledger": ledger, "dataset": "d"}
    with pytest.raises(DataError, match="TRY_CAST") as caught:
        dphist.histogram(path, table="failing", **asked)
    assert "Hj7781" not in str(caught.value) and ledger.spent("d") == 0
    selected = "SELECT CAST(age AS INTEGER) AS age FROM r"  # one's own SELECT needs no care
    for table in ("mended", selected):
        assert count(path, ages, columns="age", table=table).values.tolist() == [1, 1]


def test_folders_and_globs(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    as_parquet(tmp_path / "a" / "1.parquet")
    as_parquet(tmp_path / "a" / "b" / "2.parquet")
    (tmp_path / "a" / "_SUCCESS").write_text("")
    (tmp_path / "a" / "notes.txt").write_text("no records")
    assert np.array_equal(counted(tmp_path / "a", AGE, columns="age"), 2 * AGE_COUNTS)
    assert np.array_equal(counted(str(tmp_path / "*" / "*.parquet"), AGE, columns="age"), AGE_COUNTS)
    assert np.array_equal(counted(str(tmp_path / "**" / "*.parquet"), AGE, columns="age"), 2 * AGE_COUNTS)
    as_csv(tmp_path / "a" / "3.csv")
    with pytest.raises(UsageError, match="several formats"):
        count(tmp_path / "a", AGE, columns="age")


@pytest.mark.parametrize("name", ["d.duckdb", "d.db"])
def test_duckdb_files(tmp_path, name):
    path = as_duckdb(tmp_path / name)
    for table in ("visits", "v", 's p.odd "name', "SELECT age FROM visits WHERE id >= 0", "select * from v"):
        assert np.array_equal(counted(path, AGE, columns="age", table=table), AGE_COUNTS), table
    assert count(path, AGE, columns="age", table="visits", unit="id").sensitivity == 1


@pytest.mark.parametrize("name", ["d.sqlite", "d.db", "a?b.sqlite3".replace("?", "#")])
def test_sqlite_files(tmp_path, name):
    path = as_sqlite(tmp_path / name)
    for table in ("visits", "SELECT age, id FROM visits WHERE id >= 0"):
        assert np.array_equal(counted(path, AGE, columns="age", table=table), AGE_COUNTS)
    got = counted(path, AGE, columns="age + 0", table="visits", where="id < 2 OR name = 'n2'", unit="id")
    assert got.sum() == 3
    assert counted(path, Categories(("n1", "n2")), columns="name", table="visits").tolist() == [1, 1]
    assert counted(path, Categories(("t", "1")), columns="mixed", table="visits").tolist() == [6, 1]
    assert counted(path, AGE, columns="mixed", table="visits").sum() == 6  # text is in no bin, like a null


def test_sqlite_takes_more_rows_than_a_batch(tmp_path):
    database = sqlite3.connect(tmp_path / "d.sqlite")
    database.execute("CREATE TABLE t (x)")
    database.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(120_000)))
    database.commit()
    database.close()
    got = counted(tmp_path / "d.sqlite", Regular(lo=0, hi=120_000, bins=12), columns="x", table="t")
    assert got.tolist() == [10_000] * 12


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"age": AGES}),
        pd.DataFrame({"age": pd.array(AGES, dtype="Float64")}),
        pl.DataFrame({"age": AGES}),
        pl.LazyFrame({"age": AGES}),
        pa.table({"age": AGES}),
        pa.table({"age": AGES}).to_batches()[0],
        pa.chunked_array([AGES, []]),
        pa.array(AGES),
        pd.Series(AGES),
        pd.Series(AGES, name="other", dtype="Float64"),
        pl.Series("s", AGES),
        AGES,
        AGES.tolist(),
        tuple(AGES.tolist()),
        [None if math.isnan(a) else a for a in AGES.tolist()],
        np.ma.masked_invalid(AGES),
    ],
    ids=lambda f: f"{type(f).__module__}.{type(f).__name__}",
)
def test_everything_in_memory(frame):
    named = isinstance(frame, pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatch)
    assert np.array_equal(counted(frame, AGE, columns="age" if named else ()), AGE_COUNTS)


def test_labels_in_pandas_categories_and_strings():
    frame = pd.DataFrame(
        {"c": pd.Categorical(["a", "b", "a"]), "s": pd.Series(["a", None, "z"], dtype=object)}
    )
    axis = Categories(("a", "b"), other=True)
    assert counted(frame, axis, columns="c").tolist() == [2, 1, 0]
    assert counted(frame, axis, columns="s").tolist() == [1, 0, 1]
    assert counted(frame["c"], axis).tolist() == [2, 1, 0]


def test_every_bin_is_there_and_no_records_are_no_error(tmp_path):
    (tmp_path / "e.csv").write_text("age,id\n")
    empty = pa.table({"age": pa.array([], pa.float64()), "id": pa.array([], pa.int64())})
    pq.write_table(empty, tmp_path / "e.parquet")
    for data in (tmp_path / "e.parquet", empty):
        assert counted(data, AGE, columns="age").tolist() == [0] * 12
        assert counted(data, AGE, columns="age", unit="id").tolist() == [0] * 12
    assert counted([], AGE).tolist() == [0] * 12
    assert counted([5.0], AGE).size == 12


def test_csv_columns_are_taken_as_what_is_declared(tmp_path):
    """DuckDB guesses types from the first rows only; a fraction or a leading zero may come later."""
    lines = ["v,zip", *["1,007"] * 30_000, "1.5,01234", "1.5,7"]
    (tmp_path / "late.csv").write_text("\n".join(lines) + "\n")
    got = counted(tmp_path / "late.csv", Regular(lo=1, hi=2, bins=4), columns="v")
    assert got.tolist() == [30_000, 0, 2, 0]
    got = counted(tmp_path / "late.csv", Categories(("007", "7", "01234")), columns="zip")
    assert got.tolist() == [30_000, 1, 1]


# --- expressions and filters --------------------------------------------------------------------------------

PEOPLE = pa.table(
    {"a": [1, 2, 3, 4], "b": [10, 20, 30, None], "s": ["x", "y", "x", "z"], "a + b": [7, 7, 7, 7]}
)
TENS = Regular(lo=0, hi=50, bins=5)


def test_expressions_and_filters():
    assert counted(PEOPLE, TENS, columns="b + a").tolist() == [0, 1, 1, 1, 0]
    assert counted(PEOPLE, TENS, columns="a + b").tolist() == [4, 0, 0, 0, 0]  # the column of that name
    assert counted(PEOPLE, TENS, columns="coalesce(B, 0) * 1.0", where="s = 'x' OR a > 3").sum() == 3
    assert counted(PEOPLE, TENS, columns="b", where="s IN ('x', 'y') AND NOT a BETWEEN 2 AND 2").sum() == 2
    assert counted(PEOPLE, TENS, columns="CASE WHEN s LIKE 'x%' THEN 1 ELSE 40 END").tolist() == [
        2,
        0,
        0,
        0,
        2,
    ]
    assert counted(PEOPLE, Categories(("X",)), columns="upper(s)").tolist() == [2]
    assert counted(PEOPLE, TENS, columns="TRY_CAST(s AS DOUBLE)").sum() == 0
    assert counted(PEOPLE, TENS, columns="a", where="b IS NULL").sum() == 1


def test_columns_named_like_the_queries_own():
    names = [
        "bin",
        "unit",
        "v0",
        "v0_q",
        "v1",
        "r",
        "tally",
        "draw",
        "last",
        "far",
        "rank",
        "low",
        "edges",
        "label",
    ]
    frame = pa.table({n: [1.0, 2.0, 2.0] for n in names})
    axis = Variable(np.linspace(0, 3, 100))
    for name in names:
        got = counted(
            frame, axis, columns=name, unit=name, where=f'"{name}" > 1 AND v0 > 0', max_contributions=2
        )
        assert got.sum() == 2, name


@pytest.mark.parametrize("name", [*HOSTILE[:4], " ", "select", "a.b", "Ä", "a;b", "a\nb", "$1", "?"])
def test_hostile_column_names_are_only_names(name):
    frame = pa.table({name: [1.0, 2.0], "u": [1, 1]})
    if not name.strip():
        with pytest.raises(UsageError):
            count(frame, AGE, columns=name)
        return
    assert counted(frame, AGE, columns=name, unit=name, max_contributions=2).sum() == 2
    with pytest.raises(DphistError):
        count(PEOPLE, AGE, columns=name)


REFUSED = [
    "a; DROP TABLE dphist_records",
    "1) FROM dphist_records; SELECT (1",
    "(SELECT 1)",
    "SELECT 1",
    "a IN (SELECT a FROM dphist_records)",
    "EXISTS (SELECT 1)",
    "read_csv('/etc/passwd')",
    "read_text('/etc/passwd')",
    "getenv('HOME')",
    "current_setting('memory_limit')",
    "getvariable('x')",
    "COPY a TO '/tmp/x'",
    "ATTACH '/tmp/x'",
    "PRAGMA database_list",
    "SET memory_limit = '1GB'",
    "INSTALL httpfs",
    "sum(a) OVER ()",
    "count(*)",
    "max(a)",
    "row_number() OVER ()",
    "random()",
    "now()",
    "current_user",
    "error('x')",
    "columns('a')",
    "*",
    "a AS b",
    "a, b",
    "(a, b)",
    "?",
    "$1",
    "dphist_records.a",
    "nextval('s')",
    "a +",
    "'unclosed",
    "",
    "rowid",
    "[x for x in [1]]",
    "(" * 2000 + "a" + ")" * 2000,
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda t: t[:30])
def test_expressions_that_are_refused(text):
    with pytest.raises(DphistError):
        count(PEOPLE, TENS, columns="b", where=text)
    with pytest.raises(DphistError):
        count(PEOPLE, TENS, columns=text)
    with pytest.raises(DphistError):
        count(PEOPLE, TENS, columns="b", unit=text)


def test_what_gets_past_the_parser_meets_a_sealed_engine(tmp_path):
    """The second wall: even a query of ours could open no other file and change no setting."""
    other = as_csv(tmp_path / "other.csv")
    path = as_parquet(tmp_path / "r.parquet")
    with duck.connect(path, table=None, progress=False) as engine:
        for text in (
            f"FROM read_csv('{other}')",
            f"FROM '{other}'",
            f"ATTACH '{tmp_path / 'x.db'}'",
            f"COPY (SELECT 1) TO '{tmp_path / 'x.csv'}'",
            "SET enable_external_access = true",
            "INSTALL httpfs",
            "FROM PEOPLE",
        ):
            with pytest.raises(duckdb.Error):
                engine.connection.execute(text)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.csv", "r.parquet"]


REFUSED_TABLES = [
    "SELECT DISTINCT age FROM visits",
    "SELECT age FROM visits LIMIT 3",
    "SELECT age FROM visits ORDER BY age",
    "SELECT max(age) AS age FROM visits",
    "SELECT age, count(*) FROM visits GROUP BY age",
    "SELECT avg(age) OVER () AS age FROM visits",
    "SELECT age FROM visits WHERE id IN (SELECT max(id) FROM visits)",
    "SELECT (SELECT max(age) FROM visits) AS age FROM visits",
    "SELECT age FROM visits UNION ALL SELECT age FROM visits",
    "WITH w AS (SELECT 1 AS age) SELECT age FROM w",
    "SELECT age FROM read_csv('/etc/passwd')",
    "SELECT age FROM visits TABLESAMPLE 10%",
    "SELECT 1 AS age; DROP TABLE visits",
    "SELECT * FROM '/etc/passwd'",
    "SELECT age FROM nowhere",
    "visits; DROP TABLE visits",
    'visits" --',
    "visit",
    "",
    None,
]


@pytest.mark.parametrize("write", [as_duckdb, as_sqlite])
def test_tables_that_are_refused(tmp_path, write):
    path = write(tmp_path / "d.db")
    for text in REFUSED_TABLES:
        with pytest.raises(DphistError):
            count(path, AGE, columns="age", table=text)
            pytest.fail(f"{text} was taken")
    assert np.array_equal(counted(path, AGE, columns="age", table="visits"), AGE_COUNTS)


def test_the_checker_lets_ordinary_things_through():
    class Nothing:
        dialect = "duckdb"
        name = "d"
        guard = staticmethod(lambda tree: tree)

    fields = {"a": Field("integer", "BIGINT"), "d": Field("date", "DATE"), "s": Field("text", "VARCHAR")}
    for text in (
        "a % 2 = 0 AND s || 'x' <> 'yx'",
        "EXTRACT(hour FROM d)",
        "year(d)",
        "date_trunc('month', d) > DATE '2020-01-01'",
        "round(ln(a), 2)",
        "a::DOUBLE / 3",
        "d + INTERVAL 1 DAY > d",
        "regexp_matches(s, 'x')",
        "a -- a comment",
    ):
        expression(text, fields, Nothing())
    assert rows_of("SELECT a.x, a.y + 1 AS z FROM (SELECT x, y FROM t) AS a WHERE a.x > 1", "duckdb")


# --- one person, many records -------------------------------------------------------------------------------


class Plain(duck.Duck):
    """The parts of the query that any database can run, as the slow twin of DuckDB's own."""

    bound = Engine.bound

    def search(self, rows, value, carried, starts, bins):
        table = self.lookup(f"edges_{value}", {"low": starts, "high": [*starts[1:], math.inf], "bin": bins})
        inside = f'"{value}" >= edges.low AND "{value}" < edges.high'
        chosen = sql.select(carried, **{value: sql.column("bin", "edges")}).from_(rows.subquery("r"))
        return chosen.join(table.sql("duckdb") + " AS edges", on=inside, dialect="duckdb")


def run_on(kind, table, domain, **options):
    how = {name: options.pop(name) for name in ("outside", "max_contributions") if name in options}
    with duck.connect(table, table=None, progress=False) as engine:
        engine.__class__ = kind
        asked = query.ask(engine, domain, **({"columns": ("x",), "where": None, "unit": None} | options))
        part = query.Part(domain, asked, **({"outside": "drop", "max_contributions": 1} | how))
        bins, tallies = engine.run(query.counting_query(engine, [part]))
    out = np.zeros(domain.n, dtype=np.int64)
    out[bins] = tallies
    return out


@pytest.mark.parametrize("kind", [duck.Duck, Plain])
def test_both_ways_to_search_edges(kind):
    values = np.random.default_rng(4).normal(0, 1, 3000)
    axis = Variable(np.sort(np.random.default_rng(5).normal(0, 1, 300)))
    got = run_on(kind, pa.table({"x": values}), Domain((axis,)))
    assert np.array_equal(got, np.histogram(values, axis.edges)[0])


def people(persons: int, rows: int, seed: int = 0) -> pa.Table:
    draws = np.random.default_rng(seed)
    unit = (draws.pareto(1.0, rows) * 3).astype(np.int64) % persons
    return pa.table({"u": unit, "x": unit.astype(np.float64), "y": draws.uniform(0, 10, rows)})


@pytest.mark.parametrize("kind", [duck.Duck, Plain])
@pytest.mark.parametrize("limit", [1, 2, 3, 50, 3000, 10**6])
def test_no_person_counts_more_than_the_limit(kind, limit):
    """Every person has a bin of their own, so the counts are what each contributed."""
    table = people(200, 20_000)
    per_person = np.bincount(table["u"].to_numpy(), minlength=200)
    assert per_person.max() > 3000
    got = run_on(kind, table, Domain((Integers(0, 199),)), unit="u", max_contributions=limit)
    assert np.array_equal(got, np.minimum(per_person, limit))


@pytest.mark.parametrize("unit_type", [pa.string(), pa.float64(), pa.int32(), pa.date32(), pa.binary()])
def test_units_of_any_plain_type_and_null_units(unit_type):
    if unit_type == pa.date32():
        ids = pa.array([1, 1, 1, 2, None, None, None], pa.int32()).cast(pa.date32())
    elif unit_type == pa.binary():
        ids = pa.array([b"1", b"1", b"1", b"2", None, None, None])
    else:
        ids = pa.array([1, 1, 1, 2, None, None, None]).cast(unit_type)
    table = pa.table({"u": ids, "x": [1.0] * 7})
    if unit_type == pa.binary():
        with pytest.raises(DataError, match="unit"):
            count(table, AGE, columns="x", unit="u")
        return
    got = counted(table, Regular(lo=0, hi=2, bins=1), columns="x", unit="u", max_contributions=2)
    assert got.tolist() == [2 + 1]


@pytest.mark.parametrize("kind", [duck.Duck, Plain])
@pytest.mark.parametrize("limit", [1, 2, 9])
def test_records_without_a_unit_never_reach_the_bounding(kind, limit):
    """They belong to nobody, so no limit holds for them; an engine's bounding need not look for nulls."""
    table = pa.table({"u": pa.array([None, None, None, 4, 4, 5]), "x": [0.0, 0.0, 1.0, 2.0, 2.0, 3.0]})
    got = run_on(kind, table, Domain((Integers(0, 3),)), unit="u", max_contributions=limit)
    assert got.tolist() == [0, 0, min(limit, 2), 1]


def test_a_nan_unit_is_left_out():
    for frame in (pa.table({"u": [math.nan] * 3 + [1.0] * 3, "x": [1.0] * 6}),
                  pd.DataFrame({"u": [math.nan] * 3 + [1.0] * 3, "x": [1.0] * 6})):  # fmt: skip
        assert counted(frame, Regular(lo=0, hi=2, bins=1), columns="x", unit="u").tolist() == [1]


def test_a_large_limit_is_exact_and_says_its_sensitivity():
    table = people(300, 5000)
    axis = Regular(lo=0, hi=10, bins=20)
    result = count(table, Domain((axis,)), columns="y", unit="u", max_contributions=5000)
    assert np.array_equal(result.values, np.histogram(table["y"].to_numpy(), axis.edges)[0])
    assert result.sensitivity == 5000
    assert result.unit == "one u with at most 5000 records"
    assert count(table, Domain((axis,)), columns="y", unit="u").unit == "one u with at most 1 record"


def test_neighbours_differ_by_at_most_the_limit():
    """Nobody exceeds the limit, so nothing is drawn by lot and the difference is the person's records."""
    draws = np.random.default_rng(7)
    frame = pd.DataFrame({"u": np.repeat(np.arange(400), 3), "x": draws.uniform(-2, 12, 1200)})
    axis = Regular(lo=0, hi=10, bins=30)
    whole = counted(frame, axis, columns="x", unit="u", max_contributions=3)
    for person in (0, 7, 399):
        without = counted(frame[frame.u != person], axis, columns="x", unit="u", max_contributions=3)
        assert np.abs(whole - without).sum() <= 3
        assert np.array_equal(whole - without, np.histogram(frame.x[frame.u == person], axis.edges)[0])


def test_records_that_do_not_count_take_nobodys_place():
    frame = pa.table({"u": [1] * 6, "x": [-5.0, 500.0, None, math.nan, 3.0, 4.0], "ok": [1, 1, 1, 1, 1, 0]})
    for _ in range(5):
        assert counted(
            frame, Regular(lo=0, hi=10, bins=1), columns="x", unit="u", where="ok = 1"
        ).tolist() == [1]


@pytest.mark.parametrize("kind", [duck.Duck, Plain])
def test_which_records_are_kept_is_left_to_chance(kind):
    """2,000 persons with a record in each of five bins, two kept: each bin gets 800 of the 4,000."""
    table = pa.table({"u": np.repeat(np.arange(2000), 5), "x": np.tile(np.arange(5.0), 2000)})
    got = run_on(kind, table, Domain((Integers(0, 4),)), unit="u", max_contributions=2)
    assert got.sum() == 4000
    # Each is a sum of 2,000 draws of variance 0.24 (standard deviation 22): eight of those.
    assert np.abs(got - 800).max() < 175
    again = run_on(kind, table, Domain((Integers(0, 4),)), unit="u", max_contributions=2)
    assert not np.array_equal(got, again)


def test_a_disordered_scan_stops_the_query(monkeypatch):
    """The fast bound rests on sorted rows; take the sorting away and it must not count."""
    bound = duck.Duck.bound

    def unsorted(self, rows, limit):
        tree = bound(self, rows, limit)
        for select in tree.find_all(duck.exp.Select):
            select.set("order", None)
        return tree

    monkeypatch.setattr(duck.Duck, "bound", unsorted)
    with pytest.raises(DphistError):
        count(people(50, 5000), Domain((Integers(0, 49),)), columns="x", unit="u")


@pytest.mark.slow
def test_bounding_spills_to_disk_and_stays_exact(monkeypatch, tmp_path):
    path = tmp_path / "many.parquet"
    ids = "SELECT (i * 7919) % 400000 AS u FROM range(4000000) t(i)"
    rows = f"SELECT u * 9000000000 AS u, u % 100 AS x FROM ({ids})"
    duckdb.execute(f"COPY ({rows}) TO '{path}'")
    settings_of = duck._settings
    limits = {"memory_limit": "60MB"}
    monkeypatch.setattr(duck, "_settings", lambda spill: settings_of(spill) | limits)
    got = counted(path, Integers(0, 99), columns="x", unit="u", max_contributions=3)
    assert got.tolist() == [12_000] * 100
    limits["temp_directory"] = ""  # without a disk it could not have been done
    with pytest.raises(DataError, match="memory or disk"):
        count(path, Domain((Integers(0, 99),)), columns="x", unit="u", max_contributions=3)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, UsageError, "one column"),
        ({"columns": ("age", "id")}, UsageError, "one column"),
        ({"columns": "agee"}, DataError, "Did you mean 'age'"),
        ({"columns": "height"}, DataError, "There is: age, id, name, nest, when"),
        ({"columns": "agee + 1"}, DataError, "Did you mean 'age'"),
        ({"columns": "name"}, DataError, "TRY_CAST"),
        ({"columns": "when"}, DataError, "EXTRACT"),
        ({"columns": "nest"}, DataError, "LIST, which .* make its parts columns"),
        ({"columns": "age", "where": "name + 1 > age"}, UsageError, "does not fit the types"),
        ({"columns": "age", "where": "name"}, UsageError, "true or false"),
        ({"columns": "age", "where": ""}, UsageError, "expression"),
        ({"columns": "age", "where": "nobody = 1"}, DataError, "no column 'nobody'"),
        ({"columns": "age", "unit": "idd"}, DataError, "Did you mean 'id'"),
        ({"columns": "age", "unit": "nest"}, DataError, "unit"),
        ({"columns": "age", "unit": ""}, UsageError, "unit"),
        ({"columns": "age", "outside": "keep"}, UsageError, "outside"),
        ({"columns": "age", "max_contributions": 3}, UsageError, "needs unit"),
        ({"columns": "age", "unit": "id", "max_contributions": 0}, UsageError, "at least 1"),
        ({"columns": "age", "unit": "id", "max_contributions": 1.5}, UsageError, "whole number"),
        ({"columns": "age", "unit": "id", "max_contributions": True}, UsageError, "whole number"),
        ({"columns": [3]}, UsageError, "column"),
        ({"columns": "age", "table": "x"}, UsageError, "database"),
    ],
)
def test_bad_arguments(options, error, words):
    table = pa.table(
        {"age": [1.0], "id": [1], "name": ["n"], "nest": [[1]], "when": pa.array([0], pa.date32())}
    )
    with pytest.raises(error, match=words):
        count(table, AGE, **options)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.array(["a", "b"]), "text"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "datetime64"),
        (np.zeros((2, 2)), "flat"),
        (np.array([1j]), "complex"),
        ({"x": [1]}, "dict"),
        (object(), "object"),
        (5, "int"),
        (None, "NoneType"),
    ],
)
def test_bad_arrays(data, words):
    with pytest.raises(DphistError, match=words):
        count(data, AGE)


def test_bad_pairs_and_options_of_arrays():
    grid = Domain((Integers(0, 1), Integers(0, 1)))
    with pytest.raises(DataError, match="different lengths"):
        count(([1], [1, 2]), grid)
    for data in (np.zeros((2, 2)), [[1], [1], [1]]):
        with pytest.raises(UsageError, match="pair"):
            count(data, grid)
    for options in ({"columns": "x"}, {"where": "x > 1"}, {"unit": "u"}, {"table": "t"}):
        with pytest.raises(UsageError, match="need a table with named columns"):
            count([1.0], AGE, **options)
    with pytest.raises(UsageError, match="clip"):
        count(["a"], Domain((Categories(("a",)),)), outside="clip")
    with pytest.raises(UsageError, match="Domain"):
        count([1.0], 12)


def broken(tmp_path: Path, what: str) -> tuple[str, bytes]:
    """Name a file and its bytes, wrong in one way."""
    parquet = as_parquet(tmp_path / "good.pq").read_bytes()
    whole_csv = gzip.compress(b"age\n" + os.urandom(50_000).hex().encode())
    return {
        "empty csv": ("e.csv", b""),
        "blank csv": ("b.csv", b"\n\n"),
        "empty gz": ("e.csv.gz", gzip.compress(b"")),
        "cut gz": ("c.csv.gz", whole_csv[:3000]),
        "not gz": ("n.csv.gz", b"age\n1\n"),
        "gz inside": ("g.csv", gzip.compress(b"age\n1\n")),
        "parquet as csv": ("p.csv", parquet),
        "utf-16": ("u.csv", "age\n1\n".encode("utf-16")),
        "csv as parquet": ("t.parquet", b"age\n1\n2\n"),
        "cut parquet": ("c.parquet", parquet[:-50]),
        "hollow parquet": ("h.parquet", b"PAR1" + b"\0" * 40 + b"PAR1"),
        "tiny parquet": ("y.parquet", b"PAR1"),
        "text as database": ("d.duckdb", b"age\n1\n"),
        "cut duckdb": ("e.duckdb", b"\0" * 8 + b"DUCK" + b"\0" * 500),
        "cut sqlite": ("f.sqlite", b"SQLite format 3\0" + b"\1" * 500),
        "unknown": ("x.xlsx", b"PK"),
        "none": ("noending", b"age\n1\n"),
        "parquet gz": ("z.parquet.gz", gzip.compress(parquet)),
    }[what]


@pytest.mark.parametrize(
    "what",
    [
        "empty csv",
        "blank csv",
        "empty gz",
        "cut gz",
        "not gz",
        "gz inside",
        "parquet as csv",
        "utf-16",
        "csv as parquet",
        "cut parquet",
        "hollow parquet",
        "tiny parquet",
        "text as database",
        "cut duckdb",
        "cut sqlite",
        "unknown",
        "none",
        "parquet gz",
    ],
)
def test_files_that_are_not_what_they_say(tmp_path, what):
    name, content = broken(tmp_path, what)
    path = tmp_path / name
    path.write_bytes(content)
    table = "visits" if path.suffix in (".duckdb", ".sqlite") else None
    with pytest.raises(DphistError) as caught:
        count(path, AGE, columns="age", table=table)
    assert isinstance(caught.value, DataError | UsageError)
    assert name in str(caught.value)


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "void").mkdir()
    for path, words in (
        (tmp_path / "nobody.csv", "no file"),
        (tmp_path / "void", "no data files"),
        (str(tmp_path / "*.parquet"), "no file matches"),
        ("https://example.org/x.csv", "download"),
        ("x" * 5000 + ".csv", "path"),
        ("nul\0.csv", "no file"),
    ):
        with pytest.raises((DataError, UsageError), match=words):
            count(path, AGE, columns="age")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    path = as_csv(tmp_path / "locked.csv")
    path.chmod(0)
    with pytest.raises(DataError, match="permission"):
        count(path, AGE, columns="age")


SECRET = "Hjördis-Quartz-7781"


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("headless.csv", f"{SECRET},34\nx,1\n", {}),
        ("short.parquet", f"PAR1 {SECRET} PAR1", {}),
        ("d.sqlite", f"SQLite format 3\0 {SECRET}", {"table": "t"}),
    ],
    ids=lambda v: v if isinstance(v, str) and len(v) < 20 else "",
)
def test_no_message_quotes_a_record(tmp_path, name, content, options):
    path = tmp_path / name
    path.write_bytes(content.encode())
    with pytest.raises(DphistError) as caught:
        count(path, AGE, **({"columns": "age"} | options))
    shown = "".join(traceback.format_exception(caught.value))
    assert "Hj" not in shown.replace(str(path), "")
    assert "7781" not in shown


@pytest.mark.parametrize(
    "data",
    [
        np.array([SECRET]),
        pd.Series([SECRET], dtype="string"),
        pd.DataFrame({"age": pd.Categorical(pd.array([SECRET], dtype="string"))}),
    ],
    ids=["numpy", "series", "enum"],
)
def test_no_message_quotes_a_value_in_memory(data):
    options = {"columns": "age", "where": "age + 1 > 2"} if isinstance(data, pd.DataFrame) else {}
    with pytest.raises(DphistError) as caught:
        count(data, AGE, **options)
    assert "7781" not in "".join(traceback.format_exception(caught.value))


# --- manners ------------------------------------------------------------------------------------------------


def test_the_engine_is_imported_only_when_needed():
    code = (
        "import sys, numpy; from dphist.records import count; from dphist.domain import Domain, Integers; "
        "count(numpy.arange(3), Domain((Integers(0, 2),))); "
        "print(sorted({'duckdb', 'sqlglot', 'pandas', 'pyarrow', 'polars'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_nothing_is_left_behind_or_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    path = as_csv(tmp_path / "r.csv")
    count(path, AGE, columns="age", unit="id", progress=True)
    assert [p.name for p in tmp_path.iterdir()] == ["r.csv"]
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_on_a_terminal_after_a_second(monkeypatch):
    class Terminal:
        def __init__(self):
            self.text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    terminal, passed, now = Terminal(), threading.Event(), [0.0]

    class Clock(threading.Event):
        """A wait of a second is over at once if the work is said to take longer, any other when it ends."""

        def wait(self, timeout=None):
            if timeout == 1.0 and not passed.is_set():
                now[0] += timeout
                return False
            passed.set()  # something was shown, or nothing will be
            return super().wait()

    monkeypatch.setattr(progress, "threading", SimpleNamespace(Event=Clock, Thread=threading.Thread))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(sys, "stderr", terminal)
    for share, words in ((lambda: 0.417, "counting r.csv:  42%"), (lambda: None, "counting r.csv: 1 s")):
        passed, now[0] = threading.Event(), 0.0
        with watching("r.csv", share, shown=True):
            assert passed.wait(60)
        assert words in terminal.text
        assert terminal.text.endswith("\r\033[K")  # nothing is left on the line
        terminal.text = ""
    with watching("r.csv", lambda: 0.5, shown=False):
        pass
    passed.set()  # from here on no second passes
    with watching("r.csv", lambda: 0.5, shown=True):
        pass
    assert terminal.text == ""


# --- what a file states about itself ------------------------------------------------------------------------


@pytest.mark.parametrize("type", [pa.float64(), pa.float32()])
def test_one_record_does_not_move_the_nans_of_a_parquet_file(tmp_path, type):
    """A file's stated extremes leave NaN out, so an engine that believes them would count all NaN or none."""
    axis = Domain((Regular(lo=0, hi=10, bins=2),))
    one = Domain((Integers(1, 1),))
    for name, values in (("a", []), ("b", [1.0]), ("c", [1.0, 9.0])):
        path = tmp_path / f"{name}.parquet"
        x = pa.array([math.nan] * 100 + values, type)
        pq.write_table(pa.table({"x": x, 'odd "name"': x, "y": [1] * len(x)}), path)
        for column in ("x", 'odd "name"'):
            for outside in ("drop", "clip"):
                got = count(path, axis, columns=column, outside=outside).values
                assert got.tolist() == [len(values[:1]), len(values[1:])], (name, outside)
        for where, expected in (
            ("x > 5", 100 + len(values[1:])),  # NaN is above every number here
            ("x < 5", len(values[:1])),
            ("x + 1 > 6", 100 + len(values[1:])),
            ("x IN (9)", len(values[1:])),
        ):
            assert count(path, one, columns="y", where=where).values.tolist() == [expected], (name, where)


def test_counts_of_many_bins_are_the_same_with_less_memory(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("x,p\n" + "".join(f"{7 * i % 90},p{i % 40}\n" for i in range(200)))
    domain, asked = Domain((Integers(0, 99),)), {"columns": "x", "unit": "p", "max_contributions": 5}
    dense = count(path, domain, **asked)
    monkeypatch.setattr("dphist.records._MANY", 50)
    sparse = count(path, domain, **asked)
    assert (sparse.sensitivity, sparse.unit) == (dense.sensitivity, dense.unit) == (5, dense.unit)
    assert np.array_equal(sparse.values, dense.values)
    assert np.array_equal(sparse.block(13, 60), dense.block(13, 60))
    assert "200" not in repr(sparse)
    with pytest.raises(PrivacyError):
        pickle.dumps(sparse)


def test_a_cut_or_damaged_gzip_is_told_apart_and_quotes_no_record(tmp_path):
    draws = np.random.default_rng(2).integers(0, 100, 200_000)
    packed = gzip.compress(b"age\n" + b"".join(b"%d,7781\n" % age for age in draws))
    few = gzip.compress(b"age\n" + b"".join(b"%d,7781\n" % age for age in draws[:50]))
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    for content, words in (
        (packed[:5], "was cut short"),
        (packed[: len(packed) // 2], "was cut short"),
        (packed[:-3], "was cut short"),
        (few[:-6], "was cut short"),
        (few[: len(few) // 2], "was cut short"),
        (bytes(damaged), "is damaged: gzip cannot unpack it"),
    ):
        path = tmp_path / "c.csv.gz"
        path.write_bytes(content)
        with pytest.raises(DataError, match=words) as caught:
            count(path, AGE, columns="age")
        assert "download it again" in str(caught.value) and "7781" not in str(caught.value)
        assert "lost drive" not in str(caught.value)
    (tmp_path / "g.csv").write_bytes(packed)
    with pytest.raises(DataError, match="unpack it first"):
        count(tmp_path / "g.csv", AGE, columns="age")
