"""SQLite files: read with Python's own library, counted by DuckDB (whose SQLite reader is a download)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import duckdb
from sqlglot import exp

from dphist.errors import DataError
from dphist.records import sql
from dphist.records.cells import written
from dphist.records.engines import files
from dphist.records.engines.duck import SOURCE, Duck, identifier
from dphist.records.expressions import table_rows
from dphist.records.progress import watching
from dphist.records.tallies import Tallies

_BATCH = 50_000  # rows taken at a time


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
                table_rows(table, {name: (name,) for name in known}, self.name, "sqlite"), "sqlite"
            )
            self.rows = f"({rows})"
            names = [d[0] for d in database.execute(f"SELECT * FROM {self.rows} LIMIT 0").description]
        # An SQLite column holds values of any type, whatever was declared: each is taken as text.
        self.names = names
        made = ", ".join(f"{identifier(c)} VARCHAR" for c in names)
        self._execute(f"CREATE TEMP TABLE {SOURCE} ({made})")
        self.untyped = frozenset(self.columns())

    def run(self, query: exp.Expression) -> Tallies:
        """Copy the columns the query names, a batch at a time, and run it."""
        used = [c for c in self.names if c in self.asked(query)]
        if not used:  # an expression of constants: the rows still have to be there
            used = self.names[:1]
        into = ", ".join(identifier(c) for c in used)
        values = ", ".join("UNNEST(CAST(? AS VARCHAR[]))" for _ in used)
        with watching(self.name, lambda: None, shown=self.progress), self._reading() as database:
            cursor = database.execute(f"SELECT {into} FROM {self.rows}")
            while batch := cursor.fetchmany(_BATCH):
                self._execute(
                    f"INSERT INTO {SOURCE} ({into}) SELECT {values}",
                    [list(map(written, c)) for c in zip(*batch, strict=True)],
                )
        return super().run(query)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as database:
                database.text_factory = lambda raw: raw.decode("utf-8", "replace")
                yield database
        except (sqlite3.Error, OverflowError):
            raise DataError(
                f"{self.name} could not be read by SQLite: it may be locked or damaged, or the SELECT does "
                "not fit its tables."
            ) from None
