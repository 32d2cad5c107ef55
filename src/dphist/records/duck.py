"""DuckDB, embedded: files, database files and dataframes in memory.

Every count has a connection of its own that reads the named files and nothing else: no network, no
extensions, no other file, no Python variable. DuckDB's own messages quote records, so none is passed on.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dphist.domain import MAX_BINS
from dphist.errors import DataError, DphistError, UsageError, did_you_mean
from dphist.records import files, sql
from dphist.records.sql import Field, Kind

_SOURCE = "dphist_records"
_BATCH = 50_000  # rows taken from SQLite at a time
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
        self.source = exp.table_(exp.to_identifier(_SOURCE, quoted=True))
        self.progress = progress

    def fields(self, query: exp.Select) -> dict[str, Field]:
        """Return the columns of a query without running it."""
        rows = self._execute("DESCRIBE " + sql.generate(query, self.dialect)).fetchall()
        return {name: _field(type) for name, type, *_ in rows}

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
            found = self._execute(sql.generate(query, self.dialect)).fetchnumpy()
        return found["bin"].astype(np.int64), found["tally"].astype(np.int64)

    def _execute(self, text: str, values: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        try:
            return self.connection.execute(text, values)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            _rephrase(error, self.name)


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
        self._execute(f"CREATE OR REPLACE TEMP VIEW {_SOURCE} AS SELECT * FROM read_csv({reader})")


class SqliteDuck(Duck):
    """An SQLite file: its own library reads the columns that are needed, DuckDB counts them."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: files.Files,
        table: str | None,
        *,
        progress: bool,
    ) -> None:
        super().__init__(connection, found.name, progress=progress)
        self.path = found.paths[0]
        with self._reading() as database:
            query = (
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            )
            known = [name for (name,) in database.execute(query)]
            rows = sql.generate(
                _rows(table, {name: (name,) for name in known}, self.name, "sqlite"), "sqlite"
            )
            self.rows = f"({rows})"
            names = [d[0] for d in database.execute(f"SELECT * FROM {self.rows} LIMIT 0").description]
            self.types = dict(zip(names, self._types(database, names), strict=True))
        made = ", ".join(f"{_name(c)} {t}" for c, t in self.types.items())
        self._execute(f"CREATE TEMP TABLE {_SOURCE} ({made})")

    def run(self, query: exp.Select) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Copy the columns the query names, a batch at a time, and run it."""
        used = [c for c in self.types if c in {n.name for n in query.find_all(exp.Column)}]
        if not used:  # an expression of constants: the rows still have to be there
            used = list(self.types)[:1]
        wanted = ", ".join(
            f"CAST({_name(c)} AS TEXT)" if self.types[c] == "VARCHAR" else _name(c) for c in used
        )
        into = ", ".join(_name(c) for c in used)
        values = ", ".join(f"UNNEST(CAST(? AS {self.types[c]}[]))" for c in used)
        with self._reading() as database:
            cursor = database.execute(f"SELECT {wanted} FROM {self.rows}")
            while batch := cursor.fetchmany(_BATCH):
                self._execute(
                    f"INSERT INTO {_SOURCE} ({into}) SELECT {values}",
                    [list(c) for c in zip(*batch, strict=True)],
                )
        return super().run(query)

    def _types(self, database: sqlite3.Connection, names: list[str]) -> list[str]:
        """Return what the values of each column are: SQLite's columns have values of any type."""
        asked = [f"MAX(TYPEOF({_name(c)}) = '{t}')" for c in names for t in ("text", "blob", "real")]
        flags = database.execute(f"SELECT {', '.join(asked)} FROM {self.rows}").fetchone() if names else ()
        columns = [flags[i : i + 3] for i in range(0, len(flags), 3)]
        return ["BLOB" if b else "VARCHAR" if t else "DOUBLE" if r else "BIGINT" for t, b, r in columns]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as database:
                yield database
        except (sqlite3.Error, OverflowError):
            raise DataError(
                f"{self.name} could not be read by SQLite: it may be locked or damaged, or the SELECT does "
                "not fit its tables."
            ) from None


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
            connection.register(_SOURCE, data)
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
        return SqliteDuck(connection, found, table, progress=progress)
    if table is not None:
        raise UsageError(f"table goes with a database file, and {found.name} is {_READERS[found.format]}.")
    _seal(connection, found.paths)
    try:
        if found.format in ("csv", "tsv"):
            engine: Duck = CsvDuck(connection, found, progress=progress)
        else:
            reader = {"json": "read_json", "jsonl": "read_ndjson", "parquet": "read_parquet"}[found.format]
            connection.execute(f"CREATE TEMP VIEW {_SOURCE} AS SELECT * FROM {reader}({_paths(found)})")
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
    rows = sql.generate(_rows(table, known, found.name, "duckdb"), "duckdb")
    try:
        connection.execute(f"CREATE TEMP VIEW {_SOURCE} AS {rows}")
        engine.fields(exp.select("*").from_(engine.source))
    except (duckdb.Error, DataError):
        raise UsageError(
            f"the table or SELECT does not fit {found.name}: check its names and types, and that it reads "
            "nothing outside this file."
        ) from None
    return engine


def _rows(table: str | None, known: Mapping[str, tuple[str, ...]], name: str, dialect: str) -> exp.Select:
    """Return the rows of a table by name, or those of a checked SELECT."""
    listed = did_you_mean("" if table is None else table, known) if known else "It has no tables."
    if table is None:
        raise UsageError(f"{name} is a database; say which table= to count. {listed}")
    if table in known:
        parts = [exp.to_identifier(part, quoted=True) for part in known[table]]
        return exp.select("*").from_(exp.Table(this=parts[-1], db=parts[0] if len(parts) > 1 else None))
    if table.lstrip(" (\n\t").lower().startswith(("select", "from", "with")):
        return sql.rows_of(table, dialect)
    raise DataError(f"{name} has no table {table!r}. {listed}")


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


def _name(value: str) -> str:
    return exp.to_identifier(value, quoted=True).sql("duckdb")


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
