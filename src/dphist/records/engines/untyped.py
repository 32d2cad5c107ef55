"""Sources without types, for DuckDB: delimited text, JSON, and pandas columns of Python objects.

DuckDB would guess types from some of the records, and then one record could change how all others are
read. So nothing is guessed: names come from the header or from the question, and every cell is text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import numpy as np
from sqlglot import exp

from dphist.errors import DataError, UsageError
from dphist.records import lines, sql, typed
from dphist.records.cells import written
from dphist.records.engines import files
from dphist.records.engines.duck import SOURCE, Duck, in_list, quoted
from dphist.records.progress import watching
from dphist.records.sql import Field
from dphist.records.tallies import Tallies, merged, tallied

_GATHERED = "dphist_gathered"
_PART = 1 << 25  # bytes that DuckDB reads at a time


class LineDuck(Duck):
    """Text files, whose records reach DuckDB in parts: ``lines`` has put each on a line that stands alone.

    Tallies of the parts add up; records of persons are gathered first, and then bounded.
    """

    skips_blank = True  # an empty line is not a record

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: files.Files,
        text: files.Text,
        chunk: Path,
        *,
        progress: bool,
    ) -> None:
        super().__init__(connection, found.name, progress=progress)
        self.found, self.declared, self.chunk = found, text, chunk
        self.encoding = text.encoding
        self.folders = files.folders(found)
        self._gathered: dict[str, exp.Select] = {}  # the rows of each table
        self._read = 0  # bytes so far

    @abstractmethod
    def view(self, folder: dict[str, str | None]) -> str:
        """Return the query of the records in the chunk, which lay in such a folder."""

    @abstractmethod
    def alone(self, block: bytes) -> bytes:
        """Return lines that DuckDB reads one by one."""

    def show(self, folder: dict[str, str | None]) -> None:
        """Let the source be what is in the chunk now."""
        self._execute(f"CREATE OR REPLACE TEMP VIEW {SOURCE} AS {self.view(folder)}")
        self.untyped = frozenset(super().columns())

    def gather(self, rows: exp.Select) -> exp.Select:
        """Keep the rows of all parts in a table."""
        name = f"{_GATHERED}_{len(self._gathered)}"
        self._gathered[name] = rows
        self._execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql.generate(rows, self.dialect)}")
        table = exp.table_(exp.to_identifier(name, quoted=True))
        return sql.select([e.alias_or_name for e in rows.expressions]).from_(table)

    def bound(self, rows: exp.Select, limit: int, *, is_large: bool = False) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, of those of all parts."""
        return super().bound(self.gather(rows), limit, is_large=is_large)

    def run(self, query: exp.Expression) -> Tallies:
        """Run a counting query on one part after another."""
        with watching(self.name, self._part, shown=self.progress):
            if self._gathered:
                gather = [
                    f"INSERT INTO {name} {sql.generate(rows, self.dialect)}"
                    for name, rows in self._gathered.items()
                ]
                for _ in self._parts():
                    self._fill()
                    for each in gather:
                        self._execute(each)
                return self.answer(query)
            made = tallied(np.zeros(0, dtype=np.int64))
            for _ in self._parts():
                made = merged(made, self.tally(query))
            return made

    def _parts(self) -> Iterator[None]:
        """Put one part of the records after another where the source is read from."""
        try:
            with self.chunk.open("r+b") as part:  # writing over the last part is faster than anew
                for folder, blocks in groupby(self._blocks(), key=itemgetter(0)):
                    self.show(folder)
                    for _, block in blocks:
                        part.write(block)
                        if part.tell() >= _PART:
                            _cut(part)
                            yield
                    if part.tell():
                        _cut(part)
                        yield
        except OSError:
            raise DataError(
                f"no room to read {self.name} in {self.chunk.parent.parent}; free some, or set TMPDIR."
            ) from None

    def _blocks(self) -> Iterator[tuple[dict[str, str | None], bytes]]:
        for path, folder in zip(self.found.paths, self.folders, strict=True):
            for block in files.records(path, self.found.format, self.declared):
                yield folder, self.alone(block)
                self._read += len(block)

    def _part(self) -> float | None:
        packed = any(path.suffix.lower() == ".gz" for path in self.found.paths)
        return None if packed else self._read / max(1, sum(p.stat().st_size for p in self.found.paths))


class CsvDuck(LineDuck):
    """Delimited text: one header line, then records of text; a line of another length stays one record."""

    names_are_public = False

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: files.Files,
        text: files.Text,
        chunk: Path,
        *,
        progress: bool,
    ) -> None:
        super().__init__(connection, found, text, chunk, progress=progress)
        self.decimal = text.decimal
        self.header = files.header(found, text)
        self.skips_blank = len(self.header.names) > 1
        files.refuse_keys(found, self.folders[0], self.header.names)
        self.show(self.folders[0])

    def alone(self, block: bytes) -> bytes:
        """Return lines without stray quotes; of well-formed text, the records as they are."""
        block = lines.clean(block, self.header.delimiter)
        return (
            block if self.declared.well_formed else lines.requoted(lines.short(block), self.header.delimiter)
        )

    def view(self, folder: dict[str, str | None]) -> str:
        """Return the columns of the header, and those of the folder."""
        chosen = ", ".join([*map(_name, self.header.names), *_constants(folder)])
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in self.header.names)
        delimiter, longest = quoted(self.header.delimiter), 2 * lines.LONGEST
        # Reading in parallel would have to guess where a record begins.
        return (
            f"SELECT {chosen} FROM read_csv({in_list((self.chunk,))}, auto_detect = false, header = false, "
            f"columns = {{{columns}}}, delim = {delimiter}, quote = '\"', escape = '\"', "
            f"max_line_size = {longest}, null_padding = true, strict_mode = false, ignore_errors = true, "
            "parallel = false, hive_partitioning = false)"
        )


class JsonDuck(LineDuck):
    """JSON objects: each brings its own names, so a column is whatever is asked for, null where it is not.

    A line that is not one JSON object is not a record: it is left out.
    """

    _NONE = "dphist_none"  # DuckDB wants at least one column

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: files.Files,
        text: files.Text,
        chunk: Path,
        *,
        progress: bool,
    ) -> None:
        if found.format == "json" and not text.well_formed:
            raise UsageError(
                f"in a JSON array one broken record takes all others with it, so {found.name} needs "
                "well_formed=True (--well-formed) if a correct program wrote it. Or write one object on each "
                "line, for example with jq -c '.[]', into a file that ends in .jsonl."
            )
        super().__init__(connection, found, text, chunk, progress=progress)
        self.names: dict[str, str] = {}  # what the records call it, and its column here
        self.show(self.folders[0])

    def columns(self) -> dict[str, Field]:
        """Return what the folders' names say; all else is adopted."""
        return {name: field for name, field in super().columns().items() if name != self._NONE}

    def adopt(self, name: str) -> str | None:
        """Take a name as that of a column of text; to DuckDB names that differ in case alone are one."""
        if name not in self.names:
            used = {n.casefold() for n in (self._NONE, *self.folders[0], *self.names.values())}
            alias = name
            while alias.casefold() in used:
                alias += "\1"
            self.names[name] = alias
            self.show(self.folders[0])
        return self.names[name]

    def alone(self, block: bytes) -> bytes:
        """Return lines of text that are not too long."""
        return lines.short(lines.clean(block))

    def view(self, folder: dict[str, str | None]) -> str:
        """Return the columns that were asked for, and those of the folder."""
        found = [
            f"TRY(json_extract_string(line, {quoted(_pointer(n))})) AS {_name(alias)}"
            for n, alias in self.names.items()
        ]
        chosen = ", ".join([f"NULL AS {self._NONE}", *found, *_constants(folder)])
        return (
            f"SELECT {chosen} FROM read_csv({in_list((self.chunk,))}, auto_detect = false, header = false, "
            "columns = {'line': 'VARCHAR'}, delim = '\1', quote = '', escape = '', "
            f"max_line_size = {2 * lines.LONGEST}, ignore_errors = true, parallel = false, "
            "hive_partitioning = false) WHERE json_valid(line) "
            "AND (starts_with(line, '{') OR starts_with(ltrim(line, ' \t'), '{')) LIMIT 4611686018427387904"
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
        kinds = zip(self.names, frame.dtypes, strict=True)
        self.anew = frozenset(name for name, dtype in kinds if is_written_anew(dtype))
        typed.register(connection, SOURCE, self._typed(frame.iloc[:0], self.names))

    def run(self, query: exp.Expression) -> Tallies:
        """Turn the columns that the query names into text, and run it."""
        asked = self.asked(query)
        used = [name for name in self.names if name in asked] or self.names[:1]
        typed.register(self.connection, SOURCE, self._typed(self.frame, used))
        return super().run(query)

    def _typed(self, frame: Any, names: list[str]) -> Any:
        import pandas

        made = {}
        for at, name in enumerate(self.names):
            if name in names:
                cells = frame.iloc[:, at].array
                text = name in self.anew
                made[name] = pandas.array([written(c) for c in cells], dtype="string") if text else cells
        return pandas.DataFrame(made)


def is_object(dtype: Any) -> bool:
    """Say whether a pandas type promises nothing about its values."""
    return str(_of_values(dtype)) == "object"


def is_written_anew(dtype: Any) -> bool:
    """Say whether values are Python objects: also of a type for text, which may be half a character."""
    return is_object(dtype) or getattr(_of_values(dtype), "storage", "") == "python"


def _of_values(dtype: Any) -> Any:
    categories = getattr(dtype, "categories", None)
    return dtype if categories is None else categories.dtype


def _cut(part: BinaryIO) -> None:
    """Let a file end here, and be written again from its start."""
    part.truncate()
    part.seek(0)


def _name(value: str) -> str:
    return exp.to_identifier(value, quoted=True).sql("duckdb")


def _constants(folder: dict[str, str | None]) -> list[str]:
    """Return the columns that a folder's name stands for."""
    values = {key: "CAST(NULL AS VARCHAR)" if v is None else quoted(v) for key, v in folder.items()}
    return [f"{value} AS {_name(key)}" for key, value in values.items()]


def _pointer(name: str) -> str:
    """Return the JSON pointer to a member of an object."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
