"""Files of releases of many groups (docs/release-format.md, version 2): one row for each group of each level.

The header is of the same size however many groups there are. A small file is read and checked whole; of a
large Parquet file the labels are read at once, and the rows of a group when it is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups
from dphist.domain.hierarchy import MOST_LEVELS, Hierarchy
from dphist.errors import DataError, OutputError, ReleaseFileError
from dphist.release import files
from dphist.release.grouped import AnyLevel, GroupedRelease, Level
from dphist.release.parquet import Column, Writer
from dphist.uncertainty.models import ErrorModel
from dphist.uncertainty.reading import error_model_from_dict
from dphist.uncertainty.reconciled import Reconciled

if TYPE_CHECKING:
    import duckdb

MOST_IN_JSON = 1 << 16  # values; and up to as many a file is read whole
MOST_IN_CSV = 1 << 22  # values, which are a row each
_LINE = 200  # bytes of such a row
_ROW_GROUP = 1 << 19  # values that are stored together
_MOST_TEXT = 1 << 30  # bytes of labels in a file, beyond which it is damaged
_BLOCK = 2048  # rows whose error models are read at once

Row = dict[str, Any]


def header(release: GroupedRelease) -> dict[str, Any]:
    """Return the document without its rows."""
    tree, levels = release.hierarchy, release.levels
    agreed = [level.variance for level in levels if not math.isnan(level.variance)]
    about = {
        "by": {
            "names": list(tree.names),
            "sizes": list(tree.sizes),
            "other": tree.other,
            "shares": [str(share) for share in release.shares],
            "variances": [None if math.isinf(v) else v for v in agreed],
        },
        "domain": release.bins.to_dict(),
        "groups": [level.groups[0].to_dict() if len(level.groups) == 1 else None for level in levels],
        "error": [level.errors[0].to_dict() if len(level.errors) == 1 else None for level in levels],
    }
    return files.headed(release, files.GROUPED, about)


def document(release: GroupedRelease) -> dict[str, Any]:
    """Return the whole document."""
    return header(release) | {"rows": list(_rows(release))}


def save(release: GroupedRelease, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a release in the format its path's ending names; nothing but itself is replaced unasked."""
    return files.save_with(writer(release, Path(path)), path, overwrite=overwrite)


def writer(release: GroupedRelease, target: Path) -> Callable[[Path], object]:
    """Return what writes a release in the format of a name."""
    ending = target.suffix.lower()
    refuse_too_many(sum(release.hierarchy.sizes) * release.bins.n, ending)
    if ending == ".json":
        text = files.sealed(document(release))
        return lambda file: file.write_text(text, encoding="utf-8")
    if ending == ".parquet":
        return lambda file: _write_parquet(release, file)
    if ending == ".csv":
        from dphist.release.grouped_show import columns

        return lambda file: files.write_table(release, columns(release), file)
    raise files.no_format(target)


def refuse_too_many(values: int, ending: str) -> None:
    """Refuse a format that does not take so many values."""
    most = {".json": MOST_IN_JSON, ".csv": MOST_IN_CSV}.get(ending, values)
    if values > most:
        raise OutputError(
            f"{values:,} values are too many for {ending}, which takes {most:,}: save as .parquet."
        )


def bytes_at_most(values: int, ending: str, *, presented: bool) -> int:
    """Return about how large a file can become: a double for each value, twice where they are presented."""
    return values * (9 * (1 + presented) if ending == ".parquet" else _LINE)


def to_json(release: GroupedRelease) -> str:
    """Return the whole document as JSON, if it is not too large for that."""
    refuse_too_many(sum(release.hierarchy.sizes) * release.bins.n, ".json")
    return files.written(document(release))


def _rows(release: GroupedRelease) -> Iterator[Row]:
    tree = release.hierarchy
    for at, (level, labels) in enumerate(zip(release.levels, tree.labels, strict=True)):
        above = _labels_above(tree, at)
        values = None if release.post == "none" else release.values(tree.names[at])
        for i, label in enumerate(labels):
            row: Row = {"level": at, "group": label, "parent": above[i], "factor": float(level.factors[i])}
            if len(level.errors) > 1:
                row["error"] = level.errors[i].to_dict()
            if len(level.groups) > 1:
                row["partition"] = level.groups[i].to_dict()
            row["raw"] = files.numbers(level.values[i])
            if values is not None:
                row["values"] = files.numbers(values[i])
            yield row


def _labels_above(tree: Hierarchy, at: int) -> Sequence[str | None]:
    """Return the label of the group above each of a level's; None at the top."""
    if at == 0:
        return [None] * tree.sizes[0]
    above = _texts(tree.labels[at - 1])
    return [above[i] for i in tree.parents[at - 1]]


def _texts(labels: Sequence[str]) -> list[str]:
    """Return labels as a column; half a character, which no file can hold, is written out."""
    return [label.encode("utf-8", "backslashreplace").decode() for label in labels]


# ---- Parquet, written -------------------------------------------------------------------------------


def _write_parquet(release: GroupedRelease, file: Path) -> None:
    """Write a row for each group; it takes the memory of the rows that are stored together."""
    with file.open("wb") as opened:
        made = Writer(opened, _columns(release))
        for at in range(release.hierarchy.depth):
            for rows, block in _blocks(release, at):
                made.block(block, rows=rows)
        made.close({files.PARQUET_KEY: files.written(header(release))})


def _columns(release: GroupedRelease) -> list[Column]:
    found = [Column("level", "int8"), Column("group", "text"), Column("parent", "text")]
    found += [Column("factor", "double"), *(Column(name, "text") for name in _own_columns(release))]
    found.append(Column("raw", "doubles"))
    if release.post != "none":
        found.append(Column("values", "int64s" if release.post == "integer" else "doubles"))
    return found


def _blocks(release: GroupedRelease, at: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a level, as many at a time as are stored together."""
    tree, level = release.hierarchy, release.levels[at]
    many = max(_ROW_GROUP // release.bins.n, 1)
    values = None if release.post == "none" else release.values(tree.names[at])
    above = None if at == 0 else tree.labels[at - 1]
    for start in range(0, tree.sizes[at], many):
        rows = range(start, min(start + many, tree.sizes[at]))
        of = slice(rows.start, rows.stop)
        block: dict[str, Any] = {
            "level": np.full(len(rows), at),
            "group": _texts(tree.labels[at][of]),
            "parent": None if above is None else _texts([above[i] for i in tree.parents[at - 1][of]]),
            "factor": level.factors[of],
            "error": _models(level.errors, rows),
            "partition": _models(level.groups, rows),
            "raw": level.block(rows),
        }
        if values is not None:
            block["values"] = values[of].astype(np.int64) if release.post == "integer" else values[of]
        yield len(rows), block


def _models(made: Sequence[Any], rows: range) -> list[str] | None:
    """Return the models of some groups; None where one is that of all, and in the header."""
    return None if len(made) == 1 else [files.written(made[i].to_dict()) for i in rows]


def _own_columns(release: GroupedRelease) -> list[str]:
    """Return the columns for what differs from group to group on some level."""
    found = {
        "error": any(len(level.errors) > 1 for level in release.levels),
        "partition": any(len(level.groups) > 1 for level in release.levels),
    }
    return [name for name, needed in found.items() if needed]


# ---- read -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    """What a document says of its levels, checked."""

    described: Mapping[str, Any]
    bins: Domain
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    other: bool
    variances: tuple[float, ...]
    errors: tuple[ErrorModel | None, ...]
    groups: tuple[Groups | None, ...]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> _Header:
        bins, by = Domain.from_dict(described["domain"]), files.mapping(described["by"])
        names, sizes = tuple(map(files.text, by["names"])), tuple(by["sizes"])
        depth = len(names)
        if not 1 <= depth <= MOST_LEVELS or not (
            depth == len(sizes) == len(by["shares"]) == len(described["error"]) == len(described["groups"])
        ):
            raise DataError("its levels do not fit together.")
        if not all(type(size) is int and size > 0 for size in sizes):
            raise DataError("the size of a level must be a whole number above 0.")
        return cls(
            described,
            bins,
            names,
            sizes,
            files.flag(by["other"]),
            _variances(by["variances"], depth),
            tuple(None if e is None else _error_model(bins)(e, bins.n) for e in described["error"]),
            tuple(None if g is None else files.groups_of(g, bins.n) for g in described["groups"]),
        )

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def post(self) -> Any:
        return self.described["post"]

    def starts(self) -> list[int]:
        """Return the first row of each level."""
        return [0, *np.cumsum(self.sizes)[:-1].tolist()]

    def build(self, tree: Hierarchy, levels: Sequence[AnyLevel]) -> GroupedRelease:
        return GroupedRelease(
            hierarchy=tree,
            bins=self.bins,
            levels=tuple(levels),
            shares=tuple(map(files.fraction, self.described["by"]["shares"])),
            **files.said(self.described),
        )


def _variances(described: Sequence[float | None], depth: int) -> tuple[float, ...]:
    """Return the variance of a measurement on every level: those least squares made agree are the upper."""
    found = [math.inf if v is None else float(v) for v in described]
    if len(found) > depth or not all(v > 0 for v in found):
        raise DataError("a level's variance must be above 0.")
    return (*found, *[math.nan] * (depth - len(found)))


def read_rows(described: object, name: str) -> GroupedRelease:
    """Return the release that a document with its rows describes, or say why it is none."""
    with files.reading(name):
        head = _Header.of(files.mapping(described))
        rows = head.described["rows"]
        if len(rows) != head.rows:
            raise DataError(f"it is about {head.rows} groups and holds {len(rows)} rows.")
        if len(rows) * head.bins.n > MOST_IN_JSON:
            raise DataError("it holds more values than such a file may.")
        columns = {key: [row[key] for row in rows] for key in ("level", "group", "parent", "factor", "raw")}
        if head.post != "none":
            columns["values"] = [row["values"] for row in rows]
        columns["error"] = [row.get("error") for row in rows]
        columns["partition"] = [row.get("partition") for row in rows]
        return _whole(head, columns)


def _whole(head: _Header, columns: Mapping[str, Sequence[Any]]) -> GroupedRelease:
    """Return the release of rows that were all read."""
    n, tree = head.bins.n, _tree(head, columns["level"], columns["group"], columns["parent"])
    factors = _factors(columns["factor"], head.rows)
    levels = []
    for at, (start, size) in enumerate(zip(head.starts(), head.sizes, strict=True)):
        of = slice(start, start + size)
        error, groups = head.errors[at], head.groups[at]
        presented = None
        if head.post != "none":
            presented = files.presentable(_matrix(columns["values"][of], n), head.post)
        levels.append(
            Level(
                numbers=_matrix(columns["raw"][of], n),
                errors=[_error_model(head.bins)(files.mapping(e), n) for e in columns["error"][of]]
                if error is None
                else [error],
                groups=[files.groups_of(files.mapping(g), n) for g in columns["partition"][of]]
                if groups is None
                else [groups],
                factors=factors[of],
                variance=head.variances[at],
                presentable=presented,
            )
        )
    _check_sums(tree, [level.presentable for level in levels])
    return head.build(tree, levels)


def _matrix(rows: Sequence[Any], n: int) -> Floats:
    return np.stack([files.doubles(row, n) for row in rows])


def _check_sums(tree: Hierarchy, presented: Sequence[Floats | None]) -> None:
    """Refuse presentable values that do not add up to those above them."""
    for at, (upper, lower) in enumerate(pairwise(presented)):
        if upper is not None and lower is not None:
            starts = np.flatnonzero(np.diff(tree.parents[at], prepend=-1))
            if not np.allclose(upper, np.add.reduceat(lower, starts, axis=0), rtol=1e-9, atol=1e-6):
                raise DataError("its presentable values do not add up.")


def _tree(head: _Header, level: Sequence[Any], group: Sequence[Any], parent: Sequence[Any]) -> Hierarchy:
    """Return the hierarchy of the rows' labels."""
    if list(level) != np.repeat(np.arange(len(head.sizes)), head.sizes).tolist():
        raise DataError("its rows are not in the order of its levels.")
    labels, parents, found = [], [], {}
    places: dict[str, int] = {}
    for at, (start, size) in enumerate(zip(head.starts(), head.sizes, strict=True)):
        names = tuple(map(files.text, group[start : start + size]))
        if at:
            above = parent[start : start + size]
            if any(label not in places for label in above):
                raise DataError("a group is below one that is not there.")
            parents.append(np.array([places[label] for label in above], dtype=np.int64))
        places = {label: i for i, label in enumerate(names)}
        if len(places) != size or not all(label.strip() for label in names):
            raise DataError(f"two groups of the level {head.names[at]!r} are called the same, or nothing.")
        labels.append(names)
        found[at] = places
    return Hierarchy(head.names, tuple(labels), tuple(parents), head.other).knowing(found)


def _factors(numbers: Sequence[Any], n: int) -> Floats:
    factors = files.doubles(numbers if isinstance(numbers, np.ndarray) else list(numbers), n)
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise DataError("the factor of a variance must be above 0.")
    factors.flags.writeable = False
    return factors


# ---- Parquet, read ----------------------------------------------------------------------------------


def open_parquet(file: Path, described: Mapping[str, Any], rows: int) -> GroupedRelease:
    """Return the release of a Parquet file, whole if it is small; of a large one, rows are read on demand."""
    with files.reading(repr(file.name)):
        head = _Header.of(described)
        if rows != head.rows:
            raise DataError(f"it is about {head.rows} groups and holds {rows} rows.")
        stored = _Stored(file)
        stored.check(head)
        names = stored.ask('SELECT level, "group", parent, factor FROM {} ORDER BY file_row_number')
        if head.rows * head.bins.n <= MOST_IN_JSON:
            return _whole(head, names | _all_rows(stored, head))
        tree = _tree(head, names["level"].tolist(), names["group"].tolist(), names["parent"].tolist())
        factors = _factors(names["factor"], head.rows)
        levels = [
            StoredLevel(stored, head, at, start, factors[start : start + head.sizes[at]])
            for at, start in enumerate(head.starts())
        ]
        return head.build(tree, levels)


def _all_rows(stored: _Stored, head: _Header) -> dict[str, Sequence[Any]]:
    """Return the numbers and models of all rows of a small file."""
    found: dict[str, Sequence[Any]] = {"raw": list(stored.matrix("raw", 0, head.rows, head.bins.n))}
    if head.post != "none":
        found["values"] = list(stored.matrix("values", 0, head.rows, head.bins.n))
    for column, models in (("error", head.errors), ("partition", head.groups)):
        texts: list[Any] = [None] * head.rows
        for start, size, model in zip(head.starts(), head.sizes, models, strict=True):
            if model is None:
                texts[start : start + size] = stored.texts(column, start, size, head.bins.n)
        found[column] = texts
    return found


class _Stored:
    """A Parquet file of a release, of which nothing is read before its size is known to be right."""

    def __init__(self, file: Path, mark: tuple[int, int, int] | None = None) -> None:
        self.file, self.mark = file.resolve(), mark or _mark(file)
        self._lock = Lock()
        self._db: duckdb.DuckDBPyConnection | None = None

    def __reduce__(self) -> tuple[type[_Stored], tuple[Path, tuple[int, int, int]]]:
        return _Stored, (self.file, self.mark)

    def ask(self, query: str, *parameters: object) -> dict[str, Any]:
        """Return the columns of a query, in which the rows stand where the braces are."""
        import duckdb

        source = "read_parquet(?, file_row_number = true)"
        return self._run(duckdb, query.format(source), [str(self.file), *parameters])

    def _run(self, duckdb: Any, query: str, parameters: list[Any]) -> dict[str, Any]:
        try:
            if _mark(self.file) != self.mark:
                raise ReleaseFileError(f"{self.file.name!r} has changed since it was opened: load it again.")
            with self._lock:  # and one connection, for making one takes longer than reading a row
                if self._db is None:
                    self._db = duckdb.connect()
                db = self._db.cursor()
            found = db.execute(query, parameters).fetchnumpy()
        except FileNotFoundError:
            raise ReleaseFileError(
                f"{self.file.name!r} is no longer there: load it from elsewhere."
            ) from None
        except duckdb.Error as error:
            raise files.damaged(self.file, error) from None
        return {key: _filled(column) for key, column in found.items()}

    def check(self, head: _Header) -> None:
        """Refuse a file that lacks columns, or would take more memory than its header says."""
        import duckdb

        number = "BIGINT[]" if head.post == "integer" else "DOUBLE[]"
        wanted = {"level": "TINYINT", "group": "VARCHAR", "parent": "VARCHAR", "factor": "DOUBLE"}
        wanted |= {"raw": "DOUBLE[]"} | ({} if head.post == "none" else {"values": number})
        wanted |= {"error": "VARCHAR"} if None in head.errors else {}
        wanted |= {"partition": "VARCHAR"} if None in head.groups else {}
        found = self._run(duckdb, "DESCRIBE FROM read_parquet(?)", [str(self.file)])
        types = dict(zip(found["column_name"], found["column_type"], strict=True))
        for name, kind in wanted.items():
            if types.get(name) != kind:
                raise DataError(f"its column {name!r} should be {kind} and is {types.get(name, 'missing')}.")
        # A small file may stand for billions of values, and a label in it for all the memory there is.
        counted = "SELECT path_in_schema AS path, num_values::BIGINT AS n FROM parquet_metadata(?)"
        chunks = self._run(duckdb, counted, [str(self.file)])
        for name in ("raw", "values") if head.post != "none" else ("raw",):
            of = np.array([str(path).split(",")[0].strip() == name for path in chunks["path"]], dtype=bool)
            if int(chunks["n"][of].sum()) != head.rows * head.bins.n:
                raise DataError(f"it should hold {head.bins.n} values in each of {head.rows} rows.")
        length = 'SELECT sum(strlen("group") + coalesce(strlen(parent), 0))::DOUBLE AS bytes FROM {}'
        if not self.ask(length)["bytes"][0] <= _MOST_TEXT:
            raise DataError("its labels are longer than any labels are.")

    def matrix(self, column: str, start: int, size: int, n: int) -> Floats:
        """Return the numbers of a run of rows."""
        where = "WHERE file_row_number BETWEEN ? AND ?"
        ends = (start, start + size - 1)
        lengths = f"SELECT min(len({column})) AS a, max(len({column})) AS b, count({column}) AS c FROM {{}} "
        found = self.ask(lengths + where, *ends)
        if (found["a"][0], found["b"][0], found["c"][0]) != (n, n, size):
            raise DataError(f"every group should have {n} values.")
        # In the file's order, which DuckDB keeps.
        numbers = self.ask(f"SELECT unnest({column})::DOUBLE AS number FROM {{}} {where}", *ends)["number"]
        return _finite(numbers.astype(np.float64, copy=False).reshape(size, n))

    def rows(self, column: str, numbers: Sequence[int], n: int) -> Floats:
        """Return the numbers of some rows."""
        query = f"SELECT file_row_number AS at, {column} AS row FROM {{}} WHERE file_row_number IN"
        found = self.ask(f"{query} ({', '.join('?' * len(numbers))})", *numbers)
        places = {int(at): row for at, row in zip(found["at"], found["row"], strict=True)}
        made = [np.ma.filled(np.ma.asarray(places[at], dtype=np.float64), np.nan) for at in numbers]
        return _finite(np.stack([files.doubles(row, n) for row in made]))

    def texts(self, column: str, start: int, size: int, n: int) -> list[object]:
        """Return the models, written as JSON, of a run of rows."""
        where = "WHERE file_row_number BETWEEN ? AND ?"
        ends = (start, start + size - 1)
        longest = f"SELECT max(strlen({column})) AS longest, count({column}) AS c FROM {{}} {where}"
        found = self.ask(longest, *ends)
        if found["c"][0] != size or found["longest"][0] > 4096 + 512 * n:
            raise DataError(f"a group lacks its {column}, or it is for another number of bins.")
        query = f"SELECT {column} AS made FROM {{}} {where} ORDER BY file_row_number"
        return [files.parse(made.encode(), self.file.name) for made in self.ask(query, *ends)["made"]]


def _mark(file: Path) -> tuple[int, int, int]:
    """Return what tells whether a file is still the same one."""
    known = file.stat()
    return known.st_ino, known.st_size, known.st_mtime_ns


def _filled(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column without its mask: None, or NaN, where a value is missing."""
    if not np.ma.isMaskedArray(column):
        return column
    if column.dtype.kind == "f":
        return np.asarray(np.ma.filled(column, np.nan))
    return np.asarray(np.ma.filled(column.astype(object), None)) if np.ma.is_masked(column) else column.data


def _finite(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise DataError("a release's values must be finite numbers.")
    values.flags.writeable = False
    return values


@dataclass(frozen=True, eq=False)
class StoredLevel:
    """A level of a large file: what `Level` is, read when it is asked for."""

    stored: _Stored
    head: _Header
    at: int
    start: int
    factors: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """How many groups there are, and bins in each."""
        return self.head.sizes[self.at], self.head.bins.n

    @property
    def variance(self) -> float:
        """The variance of a measurement on this level."""
        return self.head.variances[self.at]

    @cached_property
    def values(self) -> Floats:
        """All rows of the level."""
        with self._reading():
            return self.stored.matrix("raw", self.start, *self.shape)

    @cached_property
    def _presentable(self) -> Floats:
        with self._reading():
            return files.presentable(self.stored.matrix("values", self.start, *self.shape), self.head.post)

    def block(self, groups: range) -> Floats:
        """Return the values of groups that lie side by side."""
        if "values" in self.__dict__:
            return self.values[groups.start : groups.stop]
        with self._reading():
            return self.stored.matrix("raw", self.start + groups.start, len(groups), self.shape[1])

    def rows(self, groups: Sequence[int]) -> Floats:
        """Return the values of some groups."""
        if "values" in self.__dict__ or len(groups) > _BLOCK:
            made: Floats = self.values[groups]
            return made
        with self._reading():
            return self.stored.rows("raw", [self.start + i for i in groups], self.shape[1])

    def presented(self, group: int | None = None) -> Floats | None:
        """Return the presentable values of a group, or of all."""
        if group is None or "_presentable" in self.__dict__:
            return self._presentable if group is None else self._presentable[group]
        with self._reading():
            (row,) = self.stored.rows("values", [self.start + group], self.shape[1])
            return files.presentable(row, self.head.post)

    @cached_property
    def errors(self) -> Sequence[ErrorModel]:
        """The error of each group's bins before ``factors``, or a single one for all."""
        one = self.head.errors[self.at]
        return [one] if one is not None else _Models(self, "error", _error_model(self.head.bins))

    @cached_property
    def groups(self) -> Sequence[Groups]:
        """Which bins of each group share a value, or a single partition for all."""
        one = self.head.groups[self.at]
        return [one] if one is not None else _Models(self, "partition", files.groups_of)

    def error(self, i: int) -> ErrorModel:
        """Return the error of one group's bins."""
        base, factor = self.errors[i if len(self.errors) > 1 else 0], float(self.factors[i])
        return base if factor == 1.0 else Reconciled(base, self.shape[1], factor)

    def partition(self, i: int) -> Groups:
        """Return which bins of one group share a value."""
        return self.groups[i if len(self.groups) > 1 else 0]

    def _reading(self) -> Any:
        return files.reading(repr(self.stored.file.name))


def _error_model(bins: Domain) -> Callable[[Any, int], ErrorModel]:
    """Return the reader of the error models of some bins."""
    return partial(error_model_from_dict, columns=files.columns_of(bins))


class _Models(Sequence[Any]):
    """The models of a level's groups, of which a block is read at a time."""

    def __init__(self, level: StoredLevel, column: str, read: Callable[[Any, int], Any]) -> None:
        self.level, self.column, self.read = level, column, read
        self.block: tuple[int, list[Any]] = (-1, [])

    def __len__(self) -> int:
        return self.level.shape[0]

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        (size, n), i = self.level.shape, range(len(self))[i]
        number, made = self.block
        with files.reading(repr(self.level.stored.file.name)):
            if number != i // _BLOCK:
                number = i // _BLOCK
                start = number * _BLOCK
                many = min(_BLOCK, size - start)
                made = self.level.stored.texts(self.column, self.level.start + start, many, n)
                self.block = number, made
            return self.read(files.mapping(made[i - number * _BLOCK]), n)
