"""DuckDB, embedded: files, database files and dataframes in memory.

Every count has a connection of its own that reads the named files and nothing else: no network, no
extensions, no other file, no Python variable. DuckDB's own messages quote records, so none is passed on.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import numpy as np
from sqlglot import exp

from dphist._common.leftovers import spill_folder
from dphist.domain import MAX_BINS
from dphist.errors import DataError, DphistError, UsageError, did_you_mean, is_interrupt
from dphist.records import sql, typed
from dphist.records.engines import files
from dphist.records.engines.relations import named_rows, refuse_guessed, refuse_guessed_files
from dphist.records.expressions import table_rows
from dphist.records.progress import watching
from dphist.records.sql import Field, Kind
from dphist.records.tallies import Tallies, merged, tallied

SOURCE = "dphist_records"
_BINS = "dphist_bins"
_SORTED = 1 << 25  # records whose bins are sorted at once
_SHARED = "dphist_shared"
_LOOKUP = "dphist_lookup"
_FILE = "dphist_file"  # the column of a Parquet file's path
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
    **dict.fromkeys(("FLOAT", "DOUBLE"), "float"),
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), "text"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "local"),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), "instant"),
    **dict.fromkeys(("TIME", "TIME WITH TIME ZONE", "INTERVAL"), "time"),
    "DATE": "date",
    "DECIMAL": "decimal",
    "BOOLEAN": "boolean",
}
_VIEWS = (
    " If it is counted through a view or a relation, write TRY_CAST instead of CAST there, and TRY(...) "
    "around what else may fail: a query that one record stops tells of that record."
)
# Whole seconds, rounded down before 1970 too; infinite times lie beyond every domain.
_SECONDS = """
    CASE WHEN ISFINITE(v) THEN CAST((units - ((units % per) + per) % per) // per AS DOUBLE)
         WHEN v > CAST('1970-01-01' AS TIMESTAMP) THEN CAST('Infinity' AS DOUBLE)
         WHEN v IS NOT NULL THEN CAST('-Infinity' AS DOUBLE) END
"""
_MICROSECONDS = """
    CASE WHEN ISFINITE(v) THEN (units - ((units % per) + per) % per) // per
         WHEN v > CAST('1970-01-01' AS TIMESTAMP) THEN far
         WHEN v IS NOT NULL THEN -far END
"""


class Duck(sql.Engine):
    """A DuckDB connection that has the records under one name."""

    dialect = "duckdb"
    groups_up_to = 1 << 24  # sorting whole numbers then takes half the time and memory of hashing them
    to_number = "TRY_CAST({} AS DOUBLE); values that are not numbers are then left out"

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, *, progress: bool) -> None:
        self.connection = connection
        self.name = name
        self.source = exp.table_(exp.to_identifier(SOURCE, quoted=True))
        self.progress = progress
        self.untyped: frozenset[str] = frozenset()
        self.remedy = ""  # what else may help where a record stops the count
        self._shared: exp.Select | None = None

    def columns(self) -> dict[str, Field]:
        """Return the columns of the records; those without a type are text."""
        found = super().columns()
        return {name: replace(field, untyped=name in self.untyped) for name, field in found.items()}

    def guard(self, expression: exp.Expression) -> exp.Expression:
        """Let an expression be null where it fails, for example because a sum is too large."""
        return exp.Try(this=expression)

    def fields(self, query: exp.Select) -> dict[str, Field]:
        found = self._execute("DESCRIBE " + sql.generate(query, self.dialect), fetch=True)
        return dict(zip(found["column_name"], map(_field, found["column_type"]), strict=True))

    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Expression:
        """Return a small temporary table of the columns."""
        table = exp.table_(exp.to_identifier(f"dphist_{name}", quoted=True))
        types = {c: "BIGINT" if c == "bin" else "VARCHAR" if c == "label" else "DOUBLE" for c in columns}
        kinds = {"BIGINT": np.int64, "VARCHAR": object, "DOUBLE": np.float64}
        # Read where they are: of ten million labels, parameters of a query would be several copies.
        self.connection.register(_LOOKUP, {c: np.array(v, dtype=kinds[types[c]]) for c, v in columns.items()})
        made = ", ".join(f'CAST("{c}" AS {types[c]}) AS "{c}"' for c in columns)
        self._execute(f"CREATE TEMP TABLE {table.sql(self.dialect)} AS SELECT {made} FROM {_LOOKUP}")
        self.connection.unregister(_LOOKUP)
        return table

    def search(
        self, rows: exp.Select, value: str, carried: list[str], starts: list[float], bins: list[int]
    ) -> exp.Select:
        """Replace each value by the bin of the last start that is not above it: DuckDB's ASOF join."""
        table = self.lookup(f"edges_{value}", {"low": starts, "bin": bins})
        above = exp.GTE(this=sql.column(value), expression=sql.column("low", "edges"))
        return (
            sql.select(carried, **{value: sql.column("bin", "edges")})
            .from_(rows.subquery("r"))
            .join(exp.alias_(table, "edges", table=True), on=above, join_type="asof")
        )

    def text(self, value: exp.Expression) -> exp.Expression:
        # A column may have been made with a collation for which 'a' is 'A'.
        return exp.Collate(this=exp.cast(value, "text"), expression=exp.to_identifier("C"))

    def seconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        moment, units, per = self._units(value, field)
        # The least of all whole numbers cannot be rounded down: such a time has no bin.
        return self.guard(sql.fill(_SECONDS, self.dialect, v=moment, units=units, per=sql.whole(per)))

    def microseconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        moment, units, per = self._units(value, field)
        parts = {"v": moment, "units": units, "per": sql.whole(per // 10**6), "far": sql.whole(1 << 62)}
        return self.guard(sql.fill(_MICROSECONDS, self.dialect, **parts))

    def _units(self, value: exp.Expression, field: Field) -> tuple[exp.Expression, exp.Expression, int]:
        """Return a time that can be compared, its units since 1970, and how many of them are a second."""
        fine = field.type.endswith("_NS")
        # What cannot be converted is beyond the calendar, and has no bin. Of whole seconds and milliseconds
        # in a database, and of dates, that may be some.
        moment = value
        if field.type == "TIMESTAMPTZ_NS":
            moment = sql.try_cast(value, "timestamptz")
        elif field.kind == "date" or field.type in ("TIMESTAMP_S", "TIMESTAMP_MS"):
            moment = sql.try_cast(value, "timestamp")
        units = exp.Anonymous(
            this="epoch_ns" if fine else "epoch_us", expressions=[value if fine else moment]
        )
        return moment, units, 10**9 if fine else 10**6

    def bound(self, rows: exp.Select, limit: int, *, is_large: bool = False) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, those with the least draws; no unit is null.

        One sort by unit and draw, and a row is kept when the row ``limit`` places before it belongs to
        someone else: about five times faster than ranking inside a window of each unit. DuckDB keeps the
        order of a sorted subquery in a window without clauses; a row out of order would stop the query.
        The draw and the bin are packed into one integer, which sorts faster than two columns; the bins of
        large domains do not fit in there, and are ranked.
        """
        if is_large:
            return super().bound(rows, limit)
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
        disorder = exp.GT(this=last, expression=unit)
        stop = exp.cast(exp.func("error", exp.Literal.string("order")), "boolean")
        kept = exp.NullSafeNEQ(this=far, expression=unit.copy())
        checked = exp.case().when(disorder, stop).else_(kept)
        return sql.select(["bin"]).from_(looking_back.subquery("r")).where(checked)

    def share(self, rows: exp.Select) -> exp.Expression:
        """Hold the rows in a table, which is filled just before it is counted: the records are read once."""
        self._shared = rows
        self._fill("LIMIT 0")
        return exp.table_(exp.to_identifier(_SHARED, quoted=True))

    def _fill(self, limit: str = "") -> None:
        """Put the records that are in reach now into the table that is shared, if there is one."""
        if self._shared is not None:
            rows = sql.generate(self._shared, self.dialect)
            self._execute(f"CREATE OR REPLACE TEMP TABLE {_SHARED} AS {rows} {limit}")

    def asked(self, query: exp.Expression) -> set[str]:
        """Return the names of the columns that a query reads."""
        return {
            node.name
            for each in (query, self._shared)
            if each is not None
            for node in each.find_all(exp.Column)
        }

    def run(self, query: exp.Expression) -> Tallies:
        with watching(self.name, self._share, shown=self.progress):
            return self.tally(query)

    def tally(self, query: exp.Expression) -> Tallies:
        """Count the records that are in reach now."""
        self._fill()
        return self.answer(query)

    def answer(self, query: exp.Expression) -> Tallies:
        """Return the bins that a query finds, and how often."""
        text = sql.generate(query, self.dialect)
        if isinstance(query, exp.Select) and "tally" not in query.named_selects:
            return self._sorted(text)
        found = self._execute(text, fetch=True)
        return found["bin"].astype(np.int64), found["tally"].astype(np.int64)

    def _sorted(self, text: str) -> Tallies:
        """Count records by sorting their bins, some at a time; what does not fit in memory is on disk."""
        self._execute(
            f"CREATE OR REPLACE TEMP TABLE {_BINS} AS SELECT CAST(bin AS INTEGER) AS bin FROM ({text})"
        )
        (many,) = self._execute(f"SELECT count(*) AS many FROM {_BINS}", fetch=True)["many"].tolist()
        made = tallied(np.zeros(0, dtype=np.int32))
        for start in range(0, many, _SORTED):
            part = f"SELECT bin FROM {_BINS} WHERE rowid >= {start} AND rowid < {start + _SORTED}"
            made = merged(made, tallied(self._execute(part, fetch=True)["bin"]))
        self._execute(f"DROP TABLE {_BINS}")
        return made

    def _share(self) -> float:
        return self.connection.query_progress() / 100

    def _execute(self, text: str, values: list[Any] | None = None, *, fetch: bool = False) -> dict[str, Any]:
        try:
            done = self.connection.execute(text, values)
            return done.fetchnumpy() if fetch else {}
        except duckdb.Error as error:
            if not isinstance(error, duckdb.InterruptException):
                _rephrase(error, self.name, self.remedy)
        except RuntimeError as error:
            if not is_interrupt(error):
                raise DphistError(f"DuckDB failed while counting {self.name}; nothing was counted.") from None
        raise KeyboardInterrupt from None


class ParquetDuck(Duck):
    """Parquet files of one schema, and what folders named key=value say of them, which is text."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, found: files.Files, *, progress: bool) -> None:
        super().__init__(connection, found.name, progress=progress)
        self.found = found
        self.own = self._schema()
        self.folders = list(files.folders(found)[0])
        files.refuse_keys(found, self.folders, self.own)
        self.untyped = frozenset(self.folders)
        try:
            listed = in_list(found.paths)
            timed = typed.parquet_table(connection, found.paths, listed, self.folders, found.root)
            if timed is None:
                hidden = {c: f"TRY({identifier(c)})" for c in self._of("float", "text")}
                self._show(f"{self._rows('strict')} AS r", hidden)
            else:
                typed.register(connection, SOURCE, timed)
        except duckdb.Error:
            self._refuse()

    def tally(self, query: exp.Expression) -> Tallies:
        """Count the records; if some text turns out not to be UTF-8, with its bytes marked.

        The extremes that a file states for a column are kept from DuckDB (``TRY`` hides them). NaN is no
        part of them: it drops ``x <= 9`` as true of every record where the greatest stated value is 5, and
        all NaN are then counted; or it skips a group of records that ``x > 9`` could not be true of, though
        it is of NaN. One record moves an extreme, and so could move all NaN at once. The extremes of text are
        those of its bytes before any was marked.
        """
        try:
            return super().tally(query)
        except DataError:
            if not self._of("text"):
                raise
        # Where the text with ? for such bytes is not the text without them, there are some.
        made = {c: typed.marked(f"r.{identifier(c)}", f"i.{identifier(c)}") for c in self._of("text")}
        made |= {c: f"TRY(r.{identifier(c)})" for c in self._of("float")}
        rows = f"{self._rows('replace')} AS r POSITIONAL JOIN {self._rows('ignore')} AS i"
        self._show(rows, made)
        return super().tally(query)

    def _of(self, *kinds: Kind) -> list[str]:
        return [name for name, type in self.own.items() if _field(type).kind in kinds]

    def _rows(self, validation: str) -> str:
        options = f"hive_partitioning = false, filename = {quoted(_FILE)}, utf8_validation = '{validation}'"
        return f"read_parquet({in_list(self.found.paths)}, {options})"

    def _show(self, rows: str, made: dict[str, str]) -> None:
        replaced = ", ".join(f"{value} AS {identifier(c)}" for c, value in made.items())
        keys = "".join(f", {_said(key)} AS {identifier(key)}" for key in self.folders)
        chosen = f"r.* EXCLUDE ({_FILE}) {f'REPLACE ({replaced})' if made else ''}"
        self._execute(f"CREATE OR REPLACE TEMP VIEW {SOURCE} AS SELECT {chosen}{keys} FROM {rows}")

    def _schema(self) -> dict[str, str]:
        """Return the columns that all files have, and their types."""
        try:
            schemas = [_schema(self.connection, path) for path in self.found.paths]
        except duckdb.Error:
            self._refuse()
        if any(schema != schemas[0] for schema in schemas):
            raise DataError(
                f"the Parquet files of {self.name} differ in the names or types of their columns; count "
                "those that agree, or write them again with one schema."
            )
        return schemas[0]

    def _refuse(self) -> NoReturn:
        raise DataError(
            f"{self.name} could not be read as Parquet: it is damaged or not what its ending says."
        ) from None


def _said(key: str) -> str:
    """Return the SQL of what the last folder named key=value on a file's path says."""
    value = f"regexp_extract(r.{_FILE}, {quoted(f'.*/{re.escape(key)}=([^/]*)/')}, 1)"
    return f"CASE WHEN {value} <> '__HIVE_DEFAULT_PARTITION__' THEN url_decode({value}) END"


@contextmanager
def connect(
    data: object,
    *,
    table: str | None,
    zone: str = "UTC",
    text: files.Text = files.PLAIN,
    progress: bool,
) -> Iterator[Duck]:
    """Open a file, folder, database or dataframe for counting; everything is gone afterwards."""
    # Sorting many records may spill: to a folder only this user can read, removed at the end.
    with (
        spill_folder() as spill,
        closing(duckdb.connect(config=_settings(spill))) as connection,
    ):
        _set_zone(connection, zone)
        if isinstance(data, Path):
            found = files.find(data, text)
            if found.format in ("csv", "tsv", "json", "jsonl"):
                yield _open_text(connection, found, table, text, Path(spill), progress=progress)
            else:
                _refuse_text(found.name, text)
                yield _open_files(connection, found, table, progress=progress)
            return
        name = f"the {type(data).__module__.partition('.')[0].lstrip('_')} data"
        if isinstance(data, duckdb.DuckDBPyConnection):
            data = _table_of(data, table)
        elif table is not None:
            raise UsageError("table is for a database; this is a table already.")
        with _streamed(data, name) as frame:
            try:
                engine = _open_frame(connection, frame, name, progress=progress)
            except (duckdb.Error, TypeError):
                _refuse_kind(data)
            except ImportError:
                _need_pyarrow(name)
            _seal(connection)
            yield engine


@contextmanager
def _streamed(data: Any, name: str) -> Iterator[Any]:
    """Yield a table as it is; a relation, or another object that streams Arrow, as a reader of batches.

    Each is read once, and in the end given back to whoever owns it, also when nothing was counted.
    """
    if type(data).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        refuse_guessed_files(data)
        yield data
        return
    if isinstance(data, duckdb.DuckDBPyRelation):
        refuse_guessed(data)
    try:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(data)
    except ImportError:
        _need_pyarrow(name)
    except Exception as error:  # whatever the object raises, which may quote a record
        if is_interrupt(error):
            raise
        if isinstance(data, duckdb.DuckDBPyRelation):
            raise DataError(
                f"the relation could not be read: its own query fails, or its connection is closed or in the "
                f"middle of another result.{_VIEWS}"
            ) from None
        _refuse_kind(data)
    with closing(reader):
        yield reader


def _table_of(connection: duckdb.DuckDBPyConnection, table: str | None) -> duckdb.DuckDBPyRelation:
    """Return a table or a view of somebody's connection."""
    try:
        listed = connection.sql(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal "
            "AND database_name IN (current_database(), 'temp') UNION "
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal "
            "AND database_name IN (current_database(), 'temp')"
        ).fetchall()
    except duckdb.Error:
        raise UsageError(
            "the DuckDB connection is closed, or in the middle of a result: fetch all of that, or count on "
            "connection.cursor()."
        ) from None
    known = {(name if schema == "main" else f"{schema}.{name}"): (schema, name) for schema, name in listed}
    if table is None:
        raise UsageError(f"a DuckDB connection needs table=. {did_you_mean('', known)}")
    if table not in known:
        raise UsageError(
            f"the connection has no table {table!r}. {did_you_mean(table, known)} To count a SELECT, give "
            "connection.sql(...) as the data."
        )
    schema, name = known[table]
    return named_rows(connection, f"{'' if schema == 'main' else identifier(schema) + '.'}{identifier(name)}")


def _refuse_kind(data: object) -> NoReturn:
    raise UsageError(
        f"records of type {type(data).__name__} cannot be counted; give an array, a pandas, "
        "polars or Arrow table, a DuckDB relation, or the path of a file."
    ) from None


def _need_pyarrow(name: str) -> NoReturn:
    raise UsageError(f"{name} needs pyarrow: pip install 'dphist[frames]'.") from None


def _set_zone(connection: duckdb.DuckDBPyConnection, zone: str) -> None:
    try:
        connection.execute(f"SET TimeZone = {quoted(zone)}")
    except duckdb.Error:
        raise UsageError(f"DuckDB does not know the time zone {zone}; name another.") from None


def _open_frame(connection: duckdb.DuckDBPyConnection, data: Any, name: str, *, progress: bool) -> Duck:
    from dphist.records.engines.untyped import ObjectDuck, is_written_anew  # it builds on this module

    if type(data).__module__.startswith("pandas") and any(map(is_written_anew, data.dtypes)):
        return ObjectDuck(connection, data, name, progress=progress)
    engine = Duck(connection, name, progress=progress)
    typed.register(connection, SOURCE, data)
    return engine


def _settings(spill: str) -> dict[str, Any]:
    # Enough for a sort to be fast, little enough for a laptop; beyond it DuckDB goes to disk.
    memory = max(2048, 128 * (os.cpu_count() or 1))
    return {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
        # It would take parts that fail out of the TRY they stand in.
        "disabled_optimizers": "common_subexpressions",
        "memory_limit": f"{memory}MB",
        "temp_directory": spill,
        "enable_external_file_cache": False,  # the same file holds one part of the records after another
    }


def _seal(connection: duckdb.DuckDBPyConnection, paths: tuple[Path, ...] = ()) -> None:
    """Leave the connection no way to the outside but the given files."""
    connection.execute("SET enable_progress_bar = true")  # how far it is can be asked for,
    connection.execute("SET enable_progress_bar_print = false")  # and nothing is printed to stdout
    if paths:
        written = {name for p in paths for name in (str(p), glob.escape(str(p)))}  # as in_list writes them
        connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, sorted(written)))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _refuse_table(found: files.Files, table: str | None) -> None:
    if table is not None:
        raise UsageError(f"table goes with a database file, and {found.name} is {_READERS[found.format]}.")


def _refuse_text(name: str, text: files.Text) -> None:
    if text != files.PLAIN:
        raise UsageError(
            f"well_formed, encoding and decimal describe CSV, TSV or JSON, and {name} has another format."
        )


def _open_text(
    connection: duckdb.DuckDBPyConnection,
    found: files.Files,
    table: str | None,
    text: files.Text,
    spill: Path,
    *,
    progress: bool,
) -> Duck:
    from dphist.records.engines.untyped import CsvDuck, JsonDuck  # it builds on this module

    _refuse_table(found, table)
    if text.decimal == "," and found.format not in ("csv", "tsv"):
        raise UsageError(
            "decimal goes with CSV and TSV: JSON writes numbers with a point. If they are text with a comma, "
            "count CAST(REPLACE(x, ',', '.') AS DOUBLE)."
        )
    _refuse_wide(found, text)
    chunk = spill / "records.txt"
    chunk.touch(mode=0o600)
    _seal(connection, (chunk,))  # the records reach it through this file, a part at a time
    made = CsvDuck if found.format in ("csv", "tsv") else JsonDuck
    return made(connection, found, text, chunk, progress=progress)


def _refuse_wide(found: files.Files, text: files.Text) -> None:
    """Refuse UTF-16 where a record could decide how the others are read; no byte of the file has a say."""
    if not text.encoding.startswith("utf-16"):
        return
    if not text.well_formed:
        raise UsageError(
            f"in UTF-16 one record with an odd number of bytes shifts all that follow, so {found.name} needs "
            "well_formed=True (--well-formed), if a correct program wrote it. Or convert it first, for "
            "example with iconv -f UTF-16 -t UTF-8."
        )
    if text.encoding == "utf-16" and found.format in ("json", "jsonl"):
        raise UsageError(
            "JSON has no header, so with utf-16 its first record would say in which order all bytes are: say "
            "utf-16-le or utf-16-be."
        )


def _open_files(
    connection: duckdb.DuckDBPyConnection, found: files.Files, table: str | None, *, progress: bool
) -> Duck:
    if found.format == "duckdb":
        return _open_database(connection, found, table, progress=progress)
    if found.format == "sqlite":
        _seal(connection)
        from dphist.records.engines.sqlite import SqliteDuck  # it builds on this module

        return SqliteDuck(connection, found, table, progress=progress)
    _refuse_table(found, table)
    _seal(connection, found.paths)
    return ParquetDuck(connection, found, progress=progress)


def _schema(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    found = connection.execute(
        f"DESCRIBE SELECT * FROM read_parquet({in_list((path,))}, hive_partitioning = false)"
    )
    return {name: type for name, type, *_ in found.fetchall()}


def _open_database(
    connection: duckdb.DuckDBPyConnection, found: files.Files, table: str | None, *, progress: bool
) -> Duck:
    try:
        connection.execute(f"ATTACH {quoted(str(found.paths[0]))} AS source (READ_ONLY)")
        connection.execute("USE source")
    except duckdb.Error:
        raise DataError(
            f"the database {found.name} could not be opened for reading: another process may be writing to "
            "it, or it is damaged or from a later version of DuckDB."
        ) from None
    _seal(connection)
    engine = Duck(connection, found.name, progress=progress)
    listed = connection.execute(
        "SELECT schema_name, table_name, false FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
        "SELECT schema_name, view_name, true FROM duckdb_views() WHERE database_name = 'source' "
        "AND NOT internal"
    ).fetchall()
    known = {(name if schema == "main" else f"{schema}.{name}"): (schema, name) for schema, name, _ in listed}
    if any(is_view for *_, is_view in listed):
        engine.remedy = _VIEWS
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


def _rephrase(error: duckdb.Error, name: str, remedy: str) -> NoReturn:
    """Raise an error of ours without DuckDB's message, which may quote records."""
    if isinstance(error, duckdb.OutOfMemoryException):
        raise DataError(
            f"{name} needs more memory or disk than there is; free space in {tempfile.gettempdir()}, "
            "or set TMPDIR to a larger disk."
        ) from None
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        raise DphistError(f"DuckDB failed while counting {name}; nothing was counted.") from None
    raise DataError(
        f"{name} could not be counted: a record does not fit the type of its column, or the file is damaged "
        f"or was changed meanwhile. Which record is not said here, for it is private.{remedy}"
    ) from None


def _lag(by: int) -> exp.Window:
    return exp.Window(this=exp.Lag(this=sql.column("unit"), offset=exp.Literal.number(by)))


def quoted(value: str) -> str:
    """Return text as a literal of DuckDB's SQL."""
    return exp.Literal.string(value).sql("duckdb")


def identifier(name: str) -> str:
    """Return the name of a column as DuckDB's SQL has it."""
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def in_list(paths: tuple[Path, ...]) -> str:
    """Return paths as a list of DuckDB's SQL; its functions would take ``[ ] * ?`` in them for patterns."""
    return f"[{', '.join(quoted(glob.escape(str(p))) for p in paths)}]"
