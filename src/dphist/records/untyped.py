"""Sources without types, for DuckDB: delimited text, JSON, and pandas columns of Python objects.

DuckDB would guess types from some of the records, and then one record could change how all others are
read. So nothing is guessed: names come from the header or from the question, and every cell is text.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dphist.errors import UsageError
from dphist.records import files, times
from dphist.records.cells import written
from dphist.records.duck import SOURCE, Duck, in_list, quoted
from dphist.records.sql import Field


class CsvDuck(Duck):
    """Delimited text: one header line, then records of text; a line of another length stays one record."""

    names_are_public = False

    def __init__(self, connection: duckdb.DuckDBPyConnection, found: files.Files, *, progress: bool) -> None:
        super().__init__(connection, found.name, progress=progress)
        header = files.header(found)
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in header.names)
        # Reading in parallel would have to guess where a record begins.
        self._execute(
            f"CREATE TEMP VIEW {SOURCE} AS SELECT * FROM read_csv({in_list(found.paths)}, "
            f"auto_detect = false, header = true, skip = {header.skip}, columns = {{{columns}}}, "
            f"delim = {quoted(header.delimiter)}, quote = '\"', escape = '\"', null_padding = true, "
            "strict_mode = false, ignore_errors = true, parallel = false, hive_types_autocast = false)"
        )
        self.untyped = frozenset(self.columns())


class JsonDuck(Duck):
    """JSON objects: each brings its own names, so a column is whatever is asked for, null where it is not."""

    _NONE = "dphist_none"  # DuckDB wants at least one column

    def __init__(self, connection: duckdb.DuckDBPyConnection, found: files.Files, *, progress: bool) -> None:
        super().__init__(connection, found.name, progress=progress)
        self.found = found
        self.names: list[str] = []
        self._view()
        self.untyped = frozenset(super().columns())

    def columns(self) -> dict[str, Field]:
        """Return what the folders' names say; all else is adopted."""
        return {name: field for name, field in super().columns().items() if name != self._NONE}

    def adopt(self, name: str) -> Field | None:
        """Take a name as that of a column of text."""
        self.names.append(name)
        self.untyped |= {name}
        self._view()
        return self.columns().get(name)

    def _view(self) -> None:
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in (self._NONE, *self.names))
        form = "newline_delimited" if self.found.format == "jsonl" else "auto"
        self._execute(
            f"CREATE OR REPLACE TEMP VIEW {SOURCE} AS SELECT * FROM read_json({in_list(self.found.paths)}, "
            f"format = '{form}', records = true, auto_detect = false, columns = {{{columns}}}, "
            "ignore_errors = true, hive_types_autocast = false)"
        )


class ObjectDuck(Duck):
    """A pandas table with columns of Python objects, which are turned into text one by one."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, frame: Any, name: str, *, progress: bool
    ) -> None:
        super().__init__(connection, name, progress=progress)
        self.frame = frame
        self.names = [str(label) for label in frame.columns]
        if len({n.casefold() for n in self.names}) < len(self.names):
            raise UsageError("two columns of the table have the same name; rename one.")
        kinds = zip(self.names, frame.dtypes, strict=True)
        self.untyped = frozenset(name for name, dtype in kinds if is_object(dtype))
        times.register(connection, SOURCE, self._typed(frame.iloc[:0], self.names))

    def run(self, query: exp.Select) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn the columns that the query names into text, and run it."""
        asked = {node.name for node in query.find_all(exp.Column)}
        used = [name for name in self.names if name in asked] or self.names[:1]
        times.register(self.connection, SOURCE, self._typed(self.frame, used))
        return super().run(query)

    def _typed(self, frame: Any, names: list[str]) -> Any:
        import pandas

        made = {}
        for at, name in enumerate(self.names):
            if name in names:
                cells = frame.iloc[:, at].array
                text = name in self.untyped
                made[name] = pandas.array([written(c) for c in cells], dtype="string") if text else cells
        return pandas.DataFrame(made)


def is_object(dtype: Any) -> bool:
    """Say whether a pandas type promises nothing about its values."""
    categories = getattr(dtype, "categories", None)
    return str(dtype if categories is None else categories.dtype) == "object"
