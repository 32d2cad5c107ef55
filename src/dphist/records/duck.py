"""DuckDB, embedded: files, database files and dataframes in memory.

Every count has a connection of its own that reads the named files and nothing else: no network, no
extensions, no other file, no Python variable. DuckDB's own messages quote records, so none is passed on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dphist.domain import MAX_BINS
from dphist.errors import DataError, DphistError, UsageError
from dphist.records import files, sql
from dphist.records.expressions import table_rows
from dphist.records.sql import Field, Kind

SOURCE = "dphist_records"
_READERS = {
    "csv": "CSV",
    "tsv": "tab-separated text",
    "json": "JSON",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), "text"),
    **dict.fromkeys(("DATE", "TIME", "INTERVAL", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "time"),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "time"),
    "BOOLEAN": "boolean",
}


class Duck(sql.Engine):
    """A DuckDB connection that has the records under one name."""

    dialect = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, *, progress: bool) -> None:
        self.connection = connection
        self.name = name
        self.source = exp.table_(exp.to_identifier(SOURCE, quoted=True))
        self.progress = progress

    def fields(self, query: exp.Select) -> dict[str, Field]:
        """Return the columns of a query without running it."""
        found = self._execute("DESCRIBE " + sql.generate(query, self.dialect), fetch=True)
        return dict(zip(found["column_name"], map(_field, found["column_type"]), strict=True))

    def declare(self, types: dict[str, Literal["number", "text"]]) -> None:
        """Nothing to declare: the columns have types."""

    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Table:
        """Return a small temporary table of the columns, with the row number as ``bin``."""
        table = exp.table_(exp.to_identifier(f"dphist_{name}", quoted=True))
        # Row i of one unnest goes with row i of the others; the values travel as parameters.
        types = {c: "VARCHAR" if isinstance(v[0], str) else "DOUBLE" for c, v in columns.items()}
        parts = [f'UNNEST(CAST(? AS {types[c]}[])) AS "{c}"' for c in columns]
        size = len(next(iter(columns.values())))
        made = ", ".join([*parts, 'UNNEST(RANGE(CAST(? AS BIGINT))) AS "bin"'])
        self._execute(
            f"CREATE TEMP TABLE {table.sql(self.dialect)} AS SELECT {made}", [*columns.values(), size]
        )
        return table

    def search(
        self, rows: exp.Select, value: str, carried: list[str], edges: NDArray[np.float64]
    ) -> exp.Select:
        """Replace each value by the number of the last edge that is not above it: DuckDB's ASOF join."""
        table = self.lookup(f"edges_{value}", {"low": edges[:-1].tolist()})
        above = exp.GTE(this=sql.column(value), expression=sql.column("low", "edges"))
        return (
            sql.select(carried, **{value: sql.column("bin", "edges")})
            .from_(rows.subquery("r"))
            .join(table.as_("edges"), on=above, join_type="asof")
        )

    def bound(self, rows: exp.Select, limit: int) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, those with the least draws; nulls are units of one.

        One sort by unit and draw, and a row is kept when the row ``limit`` places before it belongs to
        someone else: about five times faster than ranking inside a window of each unit. DuckDB keeps the
        order of a sorted subquery in a window without clauses; a row out of order would stop the query.
        The draw and the bin are packed into one integer, which sorts faster than two columns.
        """
        uniform = exp.Mul(this=exp.Rand(), expression=sql.double(2.0**35))
        draw = exp.cast(exp.Floor(this=uniform), "bigint")
        packed = exp.Add(
            this=exp.Mul(this=draw, expression=exp.Literal.number(MAX_BINS)), expression=sql.column("bin")
        )
        drawn = sql.select(["unit"], draw=packed)
        ordered = (
            sql.select(["unit", "draw"])
            .from_(drawn.from_(rows.subquery("r")).subquery("r"))
            .order_by(*[exp.Ordered(this=sql.column(c), nulls_first=True) for c in ("unit", "draw")])
        )
        mask = exp.Literal.number(MAX_BINS - 1)
        bin = exp.BitwiseAnd(this=sql.column("draw"), expression=mask)
        looking_back = sql.select(["unit"], bin=bin, last=_lag(1), far=_lag(limit)).from_(
            ordered.subquery("r")
        )
        unit, last, far = sql.column("unit"), sql.column("last"), sql.column("far")
        no_unit = sql.is_null("unit")
        disorder = exp.or_(
            exp.GT(this=last, expression=unit), exp.and_(exp.not_(sql.is_null("last")), no_unit)
        )
        stop = exp.cast(exp.func("error", exp.Literal.string("order")), "boolean")
        kept = exp.or_(exp.NullSafeNEQ(this=far, expression=unit.copy()), no_unit.copy())
        checked = exp.case().when(disorder, stop).else_(kept)
        return sql.select(["bin"]).from_(looking_back.subquery("r")).where(checked)

    def run(self, query: exp.Select) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Run a counting query; return the bins that occur and how often."""
        with _progress(self.connection, self.name, shown=self.progress):
            found = self._execute(sql.generate(query, self.dialect), fetch=True)
        return found["bin"].astype(np.int64), found["tally"].astype(np.int64)

    def _execute(self, text: str, values: list[Any] | None = None, *, fetch: bool = False) -> dict[str, Any]:
        try:
            done = self.connection.execute(text, values)
            return done.fetchnumpy() if fetch else {}
        except duckdb.Error as error:
            if not isinstance(error, duckdb.InterruptException):
                _rephrase(error, self.name)
        except RuntimeError:  # how DuckDB reports an interrupted query
            pass
        raise KeyboardInterrupt from None


class CsvDuck(Duck):
    """Delimited text: DuckDB guesses types from the first rows, so wanted columns are declared."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, found: files.Files, *, progress: bool) -> None:
        super().__init__(connection, found.name, progress=progress)
        self.found = found
        self.declare({})

    def declare(self, types: dict[str, Literal["number", "text"]]) -> None:
        """Take columns as numbers, or as the text they are; a later row may not fit the guess."""
        words = {"number": "DOUBLE", "text": "VARCHAR"}
        given = ", ".join(f"{_text(name)}: '{words[type]}'" for name, type in types.items())
        options = [f"types = {{{given}}}"] if given else []
        if self.found.format == "tsv":
            options.append("delim = '\t'")
        reader = ", ".join([_paths(self.found), *options])
        self._execute(f"CREATE OR REPLACE TEMP VIEW {SOURCE} AS SELECT * FROM read_csv({reader})")


@contextmanager
def connect(data: object, *, table: str | None, progress: bool) -> Iterator[Duck]:
    """Open a file, folder, database or dataframe for counting; everything is gone afterwards."""
    # Sorting many records may spill: to a folder only this user can read, removed at the end.
    with (
        tempfile.TemporaryDirectory(prefix="dphist-", ignore_cleanup_errors=True) as spill,
        closing(duckdb.connect(config=_settings(spill))) as connection,
    ):
        if isinstance(data, Path):
            yield _open_files(connection, files.find(data), table, progress=progress)
            return
        if table is not None:
            raise UsageError("table goes with a database file; this is a table already.")
        name = f"the {type(data).__module__.partition('.')[0]} data"
        engine = Duck(connection, name, progress=progress)
        try:
            connection.register(SOURCE, data)
        except (duckdb.Error, TypeError):
            raise UsageError(
                f"records of type {type(data).__name__} cannot be counted; give an array, a pandas, "
                "polars or Arrow table, or the path of a file."
            ) from None
        except ImportError:
            raise UsageError(f"{name} needs pyarrow: pip install 'dphist[frames]'.") from None
        _seal(connection)
        yield engine


def _settings(spill: str) -> dict[str, Any]:
    # Enough for a sort to be fast, little enough for a laptop; beyond it DuckDB goes to disk.
    memory = max(2048, 128 * (os.cpu_count() or 1))
    return {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
        "memory_limit": f"{memory}MB",
        "temp_directory": spill,
    }


def _seal(connection: duckdb.DuckDBPyConnection, paths: tuple[Path, ...] = ()) -> None:
    """Leave the connection no way to the outside but the given files."""
    connection.execute("SET enable_progress_bar = true")  # how far it is can be asked for,
    connection.execute("SET enable_progress_bar_print = false")  # and nothing is printed to stdout
    if paths:
        connection.execute(f"SET allowed_paths = [{', '.join(_text(str(p)) for p in paths)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _open_files(
    connection: duckdb.DuckDBPyConnection, found: files.Files, table: str | None, *, progress: bool
) -> Duck:
    if found.format == "duckdb":
        return _open_database(connection, found, table, progress=progress)
    if found.format == "sqlite":
        _seal(connection)
        from dphist.records.sqlite import SqliteDuck  # it builds on this module

        return SqliteDuck(connection, found, table, progress=progress)
    if table is not None:
        raise UsageError(f"table goes with a database file, and {found.name} is {_READERS[found.format]}.")
    _seal(connection, found.paths)
    try:
        if found.format in ("csv", "tsv"):
            engine: Duck = CsvDuck(connection, found, progress=progress)
        else:
            reader = {"json": "read_json", "jsonl": "read_ndjson", "parquet": "read_parquet"}[found.format]
            connection.execute(f"CREATE TEMP VIEW {SOURCE} AS SELECT * FROM {reader}({_paths(found)})")
            engine = Duck(connection, found.name, progress=progress)
        engine.fields(exp.select("*").from_(engine.source))
    except (duckdb.Error, DataError):
        raise DataError(
            f"{found.name} could not be read as {_READERS[found.format]}: it is damaged, cut short or not "
            "what its ending says. Open it and check its first and last lines."
        ) from None
    return engine


def _open_database(
    connection: duckdb.DuckDBPyConnection, found: files.Files, table: str | None, *, progress: bool
) -> Duck:
    try:
        connection.execute(f"ATTACH {_text(str(found.paths[0]))} AS source (READ_ONLY)")
        connection.execute("USE source")
    except duckdb.Error:
        raise DataError(
            f"the database {found.name} could not be opened for reading: another process may be writing to "
            "it, or it is damaged or from a later version of DuckDB."
        ) from None
    _seal(connection)
    engine = Duck(connection, found.name, progress=progress)
    listed = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
        "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'source' AND NOT internal"
    ).fetchall()
    known = {(name if schema == "main" else f"{schema}.{name}"): (schema, name) for schema, name in listed}
    rows = sql.generate(table_rows(table, known, found.name, "duckdb"), "duckdb")
    try:
        connection.execute(f"CREATE TEMP VIEW {SOURCE} AS {rows}")
        engine.fields(exp.select("*").from_(engine.source))
    except (duckdb.Error, DataError):
        raise UsageError(
            f"the table or SELECT does not fit {found.name}: check its names and types, and that it reads "
            "nothing outside this file."
        ) from None
    return engine


def _field(type: str) -> Field:
    # An ENUM's type lists its labels, which are data.
    word = type.partition("(")[0].strip()
    nested = type.endswith("]") or word not in _KINDS
    return Field("other" if nested else _KINDS[word], "LIST" if type.endswith("]") else word)


def _rephrase(error: duckdb.Error, name: str) -> NoReturn:
    """Say what went wrong without a word of DuckDB's message, which may quote records."""
    if isinstance(error, duckdb.OutOfMemoryException):
        raise DataError(
            f"{name} needs more memory or disk than there is; free space in {tempfile.gettempdir()}, "
            "or set TMPDIR to a larger disk."
        ) from None
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        raise DphistError(f"DuckDB failed while counting {name}; nothing was counted.") from None
    raise DataError(
        f"{name} could not be counted: a record does not fit the type of its column, or the file is damaged "
        "or was changed meanwhile. Which record is not said here, for it is private."
    ) from None


def _lag(by: int) -> exp.Window:
    return exp.Window(this=exp.Lag(this=sql.column("unit"), offset=exp.Literal.number(by)))


def _text(value: str) -> str:
    return exp.Literal.string(value).sql("duckdb")


def _paths(found: files.Files) -> str:
    return f"[{', '.join(_text(str(p)) for p in found.paths)}]"


@contextmanager
def _progress(connection: duckdb.DuckDBPyConnection, name: str, *, shown: bool) -> Iterator[None]:
    """Show on the terminal how far the running query is, once it has taken a second."""
    if not (shown and sys.stderr.isatty()):
        yield
        return
    done = threading.Event()

    def watch() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.2
            share = max(0.0, min(connection.query_progress(), 100.0))
            print(f"\rcounting {name}: {share:3.0f} %", end="", file=sys.stderr, flush=True)
        if wait < 1.0:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
