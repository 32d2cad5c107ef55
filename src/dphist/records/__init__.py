"""Records to counts: one group-by query, which runs where the records are.

``count`` and, for several histograms at once, ``count_together`` are the only entry points. Files and
dataframes are counted by DuckDB, databases by themselves, with a query that ``query`` builds in the engine's
dialect; plain arrays are counted in place. The result is ``Counts`` over every bin of the domain, with the
sensitivity of the unit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dphist.domain import (
    Axis,
    Categories,
    Domain,
    Instants,
    Keyed,
    Outside,
    Regular,
    as_int,
    clock_zone,
    shown,
)
from dphist.errors import DataError, DphistError, UsageError, is_interrupt
from dphist.privacy.counts import Counts, SparseCounts, unit_words
from dphist.records.cells import number, written
from dphist.records.engines.files import PLAIN, Text
from dphist.records.progress import watching
from dphist.records.rounding import slack
from dphist.records.tallies import Tallies, merged, rising, tallied

__all__ = ["Tally", "count", "count_together"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MANY = 1 << 24  # bins beyond which those without records take no memory
_CHUNK = 1 << 20  # values binned at a time, so that the copies stay small
_VALUE = "value"  # the column name a bare series gets
_FRAMES = ("pandas", "polars", "pyarrow", "psycopg", "psycopg2", "pyspark")
_DUCKDB = ("duckdb", "_duckdb")
_STREAM = "__arrow_c_stream__"  # the Arrow PyCapsule interface


def in_our_words(door: Callable[_P, _R]) -> Callable[_P, _R]:
    """Replace errors of engines and libraries, also as causes, since their messages may quote a record."""

    @functools.wraps(door)
    def spoken(*given: _P.args, **named: _P.kwargs) -> _R:
        try:
            return door(*given, **named)
        except DphistError as error:
            error.__cause__ = error.__context__ = None
            raise
        except MemoryError:
            kind = ""
        except Exception as error:
            if is_interrupt(error):
                raise
            kind = type(error).__name__
        if not kind:
            raise DataError(
                "counting needs more memory than is available; nothing was charged. Use fewer bins, close "
                "other programs, or count on a larger machine."
            )
        raise DphistError(
            f"counting failed with an unexpected error ({kind}); nothing was charged. Its message is not "
            "repeated here, since it may quote a record; please report the arguments and the versions."
        )

    return spoken


@in_our_words
def count(
    data: Any,
    domain: Domain,
    *,
    columns: str | Sequence[str] = (),
    where: str | None = None,
    outside: Outside = "drop",
    unit: str | None = None,
    max_contributions: int = 1,
    table: str | None = None,
    timezone: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    progress: bool = True,
) -> Counts | SparseCounts:
    """Return how many records fall into each bin of the domain.

    Args:
        data: an array or list (two of them for a grid), a pandas, polars or Arrow table, or the path
            of a CSV, TSV, JSON lines or Parquet file, a glob or folder of those, a DuckDB or an
            SQLite database; a DuckDB relation or connection, or any object with the Arrow C stream
            interface; a ``postgresql://`` address or a psycopg connection; or a Spark DataFrame.
        columns: one column per axis: a name, or an SQL expression such as ``"a + b"``.
        where: an SQL condition such as ``"age >= 18"``; only records for which it is true are counted.
        outside: records outside the domain are dropped, or moved to the nearest bin. Records without a value
            (null, NaN) are dropped, unless ``Categories(..., null=True)`` gives them a bin.
        unit: the column that identifies a person; None when a record is its own unit. Records whose
            unit is null are left out.
        max_contributions: how many records of one unit are counted at most.
        table: the table of a database, or a SELECT of rows from it.
        timezone: the zone in which expressions turn instants into dates, hours or text, or compare them with
            times that name no zone. By default that of an ``Instants`` axis, else UTC;
            never that of the machine, the server or the session.
        well_formed: declares that a correct program wrote every record of the CSV, TSV or JSON. Then a quoted
            field may hold newlines, and a JSON array is read. A single malformed record in such a file can
            move all others, so the guarantee rests on this declaration; it is recorded in the release.
        encoding: the encoding of CSV, TSV or JSON text, such as ``latin-1`` or ``utf-16``. Invalid bytes
            become U+FFFD, in their own line only.
        decimal: the decimal mark in CSV and TSV: a point, or a comma; with a comma, points are not allowed.
        progress: show the progress of a count that takes more than a second, if stderr is a terminal.

    **What a cell is read as never depends on other records.** Parquet, Arrow, polars, numpy and database
    tables have declared types and keep them. CSV, TSV, JSON, SQLite and pandas columns of objects have
    none: their cells are text, read as numbers (or times) for numeric axes, and as written for
    categories and the unit. Inside an expression an untyped column is a number in arithmetic, in a
    function of numbers and next to a number (``age < 50``), a timestamp in a function of times and next
    to one, and otherwise text (``code < '10'``); two untyped columns cannot be put in order without a
    CAST. Text that is not a number falls into no bin, like a null, and an expression that fails for a
    record is null for it: no record can stop a count. JSON has no header, so a name that no record has
    is a column of nulls.

    With a unit, at most k = ``max_contributions`` of each unit's records are kept, after the filter
    and after records without a bin are gone. **The counts then have sensitivity k.** Proof: let D'
    be D with all records of one unit p added. Filter, binning and clipping look at one record at a
    time (``expressions`` refuses whatever does not), so the records of everybody else reach the
    choice unchanged. Every record draws a uniform number, independently of all others and of the
    data, and a unit keeps its k records with the least draws: what the others keep is a function of
    their own draws, whose law is the same for D and D' (on Spark the draws are a hash of the salt and of
    the unit's own records, so they are the same). Couple the two by giving the others the same
    draws; then the counts differ by what p keeps, at most k records, each adding 1 to one bin:
    ||c(D') - c(D)||_1 <= k, for every value of the draws. A mechanism that is epsilon-private for
    counts at that distance is so given the draws, hence also on average over them. (How uniform the
    draws are affects which records are kept, never how many.) A record whose unit is null or NaN, or
    text with U+FFFD for invalid bytes, adds nothing, since several such records could belong to one person.
    With ``unit=None`` a record adds 1 to one bin.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    one = Tally(domain, names, where, outside, unit, max_contributions, timezone)
    text = Text(well_formed, encoding, decimal)
    (counts,) = _count(data, [one], one.zone, text, table=table, progress=progress)
    return counts


@dataclass(frozen=True)
class Tally:
    """What one of several histograms counts; the arguments are those of `count`."""

    domain: Domain
    columns: tuple[str, ...] = ()
    where: str | None = None
    outside: Outside = "drop"
    unit: str | None = None
    max_contributions: int = 1
    timezone: str | None = None

    def __post_init__(self) -> None:
        validate_reading(self.domain, self.columns, self.outside, self.unit, self.max_contributions)

    @property
    def zone(self) -> str:
        return clock_zone(self.domain, self.timezone)


@in_our_words
def count_together(
    data: Any,
    tallies: Sequence[Tally],
    *,
    table: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    progress: bool = True,
) -> list[Counts | SparseCounts]:
    """Return the counts of several histograms of the same records, read once by DuckDB.

    Each has its own bins, filter and bound on a unit's records, and its own draws of the records that a unit
    keeps. **The counts of histogram i have sensitivity k_i**, its own bound, for every value of the draws of
    all of them: the proof of `count` holds for each, and one coupling gives the other units the same draws in
    all. So mechanisms of epsilon_i on the counts of each lose at most the sum of the epsilon_i together, by
    sequential composition. It is the sum, for a unit may be in every histogram.

    Tallies whose expressions are evaluated in different time zones are read once for each zone, and those
    with a unit apart from those without: of text, which is read in parts, the former count what was gathered
    of all parts, and the latter add up the counts of each. A domain of more than 2**27 bins is read by
    itself.
    """
    found: dict[int, Counts | SparseCounts] = {}
    text = Text(well_formed, encoding, decimal)
    # The bins of those that are counted together are numbered one after the other: large domains go alone.
    kinds = [(each.zone, each.unit is None, i * each.domain.is_large) for i, each in enumerate(tallies, 1)]
    if len(set(kinds)) > 1:
        data = _read_again(data)
    for kind in dict.fromkeys(kinds):
        at = [i for i, each in enumerate(kinds) if each == kind]
        counted = _count(data, [tallies[i] for i in at], kind[0], text, table=table, progress=progress)
        found |= dict(zip(at, counted, strict=True))
    return [found[i] for i in range(len(tallies))]


def _read_again(data: Any) -> Any:
    """Return data that can be read more than once: of a stream, which gives its records once, the table."""
    data = _of_its_library(data)
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if package == "pyarrow" and kind == "Scanner":
        return data.to_table()
    known = package in (*_FRAMES, *_DUCKDB) and kind != "RecordBatchReader"
    if known or not hasattr(type(data), _STREAM):
        return data
    import pyarrow

    return pyarrow.table(data)


def _count(
    data: Any, tallies: list[Tally], zone: str, text: Text, *, table: str | None, progress: bool
) -> list[Counts | SparseCounts]:
    """Count for tallies of one time zone."""
    frame, only = as_frame(data, ())
    written_as = declared(frame, text)
    if frame is None:
        return [_count_plain(data, each, table, progress) for each in tallies]

    from dphist.records import query

    options = {"table": table, "zone": zone, "progress": progress, **written_as}
    with engine_of(frame).connect(frame, **options) as engine:
        parts = []
        for each in tallies:
            columns = each.columns or only
            asked = query.ask(engine, each.domain, columns=columns, where=each.where, unit=each.unit)
            parts.append(query.Part(each.domain, asked, each.outside, as_int(each.max_contributions, "k")))
        bins, totals = engine.run(query.counting_query(engine, parts))
    if len(tallies) == 1:  # which may have too many bins for a copy
        return [_hold(bins, totals, tallies[0])]
    ends = np.cumsum([0, *(each.domain.n for each in tallies)])
    held = []
    for each, first, last in zip(tallies, ends, ends[1:], strict=False):
        own = (bins >= first) & (bins < last)
        held.append(_hold(bins[own] - first, totals[own], each))
    return held


def _count_plain(data: Any, asked: Tally, table: str | None, progress: bool) -> Counts | SparseCounts:
    refuse_names(asked.columns, asked.where, asked.unit, table)
    # A warning of numpy would disclose that some value is huge.
    with np.errstate(all="ignore"):
        arrays = plain_arrays(data, asked.domain)
    with np.errstate(all="ignore"), watching("the arrays", lambda: None, shown=progress):
        if asked.domain.n > _MANY:  # public, as below
            return SparseCounts(*_tally_arrays(arrays, asked.domain, asked.outside), asked.domain)
        return Counts(_count_arrays(arrays, asked.domain, asked.outside), asked.domain)


def _hold(bins: NDArray[np.int64], tallies: NDArray[np.int64], asked: Tally) -> Counts | SparseCounts:
    """Return the counts of all bins, given those that hold records."""
    domain, k = asked.domain, as_int(asked.max_contributions, "max_contributions")
    words = unit_words(asked.unit, k)
    if domain.n > _MANY:  # public: how counts are held must not depend on them
        return SparseCounts(*rising(bins, tallies), domain, sensitivity=k, unit=words)
    totals = np.zeros(domain.n, dtype=np.int64)  # every bin is present, also empty ones
    totals[bins] = tallies
    return Counts(totals, domain, sensitivity=k, unit=words)


def validate_reading(
    domain: Domain, columns: tuple[str, ...], outside: str, unit: str | None, limit: object
) -> int:
    """Refuse wrong arguments before any record is read; return the sensitivity."""
    if not isinstance(domain, Domain):
        raise UsageError(f"the domain must be a dphist Domain, not {type(domain).__name__}.")
    if not isinstance(outside, str) or outside not in ("drop", "clip"):
        raise UsageError(f"outside must be 'drop' or 'clip', not {shown(outside)}.")
    if outside == "clip" and all(isinstance(axis, Categories | Keyed) for axis in domain.axes):
        raise UsageError(
            "clip is for numeric bins: categories, addresses, codes and hashes have no ends to clip to. "
            "Leave it out; for categories ask for other to get a bin for all other labels."
        )
    if odd := [c for c in columns if not isinstance(c, str) or not c.strip()]:
        raise UsageError(f"a column must be a name or an SQL expression, not {_what(odd[0])}.")
    if unit is not None and (not isinstance(unit, str) or not unit.strip()):
        raise UsageError(f"unit must be the name of a column, not {_what(unit)}.")
    k = as_int(limit, "max_contributions")
    if k < 1:
        raise UsageError(f"max_contributions must be at least 1, not {k}.")
    if unit is None and k != 1:
        raise UsageError(
            "max_contributions needs unit, the column that identifies a person (--max-contributions needs "
            "--unit): without it every record is its own unit and counts once."
        )
    return k


def refuse_names(columns: tuple[str, ...], where: str | None, unit: str | None, table: str | None) -> None:
    """Refuse names for bare arrays, which have none."""
    if columns or where is not None or unit is not None or table is not None:
        raise UsageError(
            "columns, where, unit and table need a table with named columns: give a dataframe, such as "
            "pandas.DataFrame(data), or the path of a file or a database."
        )


def _what(value: object) -> str:
    # Not the value itself: whoever writes column=df.age has put records there.
    return "an empty text" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def engine_of(frame: object) -> Any:
    """Return the module that counts such data."""
    package = type(frame).__module__.partition(".")[0]
    if isinstance(frame, str) or package in ("psycopg", "psycopg2"):
        from dphist.records.engines import postgres

        return postgres
    if package == "pyspark":
        from dphist.records.engines import spark

        return spark
    from dphist.records.engines import duck

    return duck


def declared(frame: object, text: Text) -> dict[str, Any]:
    """Return the declared properties of text files, for the engine that reads them."""
    if isinstance(frame, Path):
        return {"text": text}
    if text != PLAIN:
        raise UsageError(
            "well_formed, encoding and decimal describe CSV, TSV or JSON; these records have another format."
        )
    return {}


def as_frame(data: object, columns: tuple[str, ...]) -> tuple[object | None, tuple[str, ...]]:
    """Return what the engine can scan and the columns to take from it; None for bare arrays."""
    if isinstance(data, str) and data.startswith(("postgresql://", "postgres://")):
        return data, columns
    if isinstance(data, str | os.PathLike):
        return Path(data), columns
    data = _of_its_library(data)
    package = type(data).__module__.partition(".")[0]
    if package not in _FRAMES:
        return (data if package in _DUCKDB or hasattr(type(data), _STREAM) else None), columns
    if hasattr(data, "to_frame") and not hasattr(data, "columns"):  # a pandas or polars Series, or an Index
        return data.to_frame(name=_VALUE), columns or (_VALUE,)
    named = ("schema", "projected_schema")  # of a table; of a Scanner
    if package == "pyarrow" and not any(hasattr(data, name) for name in named):  # an Arrow array
        import pyarrow

        return pyarrow.table({_VALUE: data}), columns or (_VALUE,)
    return data, columns


def _of_its_library(data: Any) -> Any:
    """Return a table of somebody's subclass as one of pandas or polars, which is read by declared types.

    As a stream of Arrow its columns of objects would be typed by what all records hold: one record could
    change how the others are read, or stop the count.
    """
    for kind in type(data).__mro__[1:]:
        theirs = kind.__module__.partition(".")[0] in ("pandas", "polars")
        if theirs and kind.__name__ in ("DataFrame", "Series"):
            return kind(data)
    return data


def plain_arrays(data: object, domain: Domain) -> list[NDArray[Any]]:
    """Return one array of plain values per axis, of one length."""
    if isinstance(data, dict) or not isinstance(data, Sequence | np.ndarray):
        raise UsageError(
            f"records of type {type(data).__name__} cannot be counted; give an array, a pandas, polars "
            "or Arrow table, a DuckDB relation, or the path of a file."
        )
    parts: Sequence[Any] = [data]
    if len(domain.axes) == 2:
        if isinstance(data, np.ndarray) or len(data) != 2:
            raise UsageError("a grid needs a pair of arrays: (values of the rows, values of the columns).")
        parts = data
    arrays = [_plain(part, axis) for part, axis in zip(parts, domain.axes, strict=True)]
    if len({len(a) for a in arrays}) > 1:
        raise DataError("the two arrays have different lengths; each record needs a value in both.")
    return arrays


def _plain(values: Any, axis: Axis) -> NDArray[Any]:
    """Return numbers as float64 or integers, labels as objects; never quote a value in an error."""
    if isinstance(values, np.ma.MaskedArray):
        cells = values.data.astype(object)
        cells[np.ma.getmaskarray(values)] = None
        values = cells
    if isinstance(values, str | bytes) or not (hasattr(values, "__len__") and hasattr(values, "__iter__")):
        raise UsageError(f"the values must be a flat list or array, not of type {type(values).__name__}.")
    if not isinstance(values, np.ndarray):
        values = _listed(values, axis)
    array: NDArray[Any] = values
    if array.ndim != 1:
        raise DataError(f"the values must be a flat list or array, not one of {array.ndim} dimensions.")
    if isinstance(axis, Categories):
        if array.dtype.kind not in "OUbiu":
            raise DataError(
                f"categories are text, whole numbers or booleans, not {array.dtype}; convert the values."
            )
        return array
    if isinstance(axis, Keyed):
        if array.dtype.kind not in "OU":
            raise DataError(f"these bins need text, and the values are {array.dtype}.")
        return array
    if isinstance(axis, Instants):
        if array.dtype.kind not in "OM":
            raise DataError(f"these bins need dates or times, and the values are {array.dtype}.")
        return array
    if array.dtype.kind in "biuf":
        return array if array.dtype.itemsize <= 8 else array.astype(np.float64)
    if array.dtype.kind == "O":
        return np.array([number(cell) for cell in array.tolist()], dtype=np.float64)
    kind = "text" if array.dtype.kind in "US" else str(array.dtype)
    raise DataError(
        f"the values are {kind}, and these bins need numbers; convert them, or declare categories."
    )


def _listed(values: Sequence[Any], axis: Axis) -> NDArray[Any]:
    """Return a list as an array: of numbers if that is what all are and the axis wants, else of its cells.

    A list inside the list is a cell without a value, whatever the others are.
    """
    if not isinstance(axis, Categories | Instants | Keyed):
        try:
            plain = np.asarray(values)
        except (ValueError, OverflowError):
            pass
        else:
            if (
                plain.ndim == 1 and plain.dtype.kind in "biuf"
            ):  # number() would give the same doubles, one by one
                return plain
    cells = np.empty(len(values), dtype=object)
    for at, cell in enumerate(values):
        cells[at] = cell
    return cells


def _count_arrays(arrays: list[NDArray[Any]], domain: Domain, outside: Outside) -> NDArray[np.int64]:
    """Count arrays in place, a chunk at a time."""
    totals = np.zeros(domain.n, dtype=np.int64)
    first = domain.axes[0]
    for chunk in _chunks(arrays):
        if len(arrays) == 1 and isinstance(first, Regular) and slack(first) < 0.25:
            # Numpy guesses a bin and corrects it by one: exact, as the slack is small.
            values = np.asarray(chunk[0], dtype=np.float64)
            values = np.clip(values, first.lo, first.hi) if outside == "clip" else values
            totals += np.histogram(values, bins=first.n, range=(first.lo, first.hi))[0]
            continue
        totals += np.bincount(_binned(chunk, domain, outside), minlength=domain.n)
    return totals


def _tally_arrays(arrays: list[NDArray[Any]], domain: Domain, outside: Outside) -> Tallies:
    """Count arrays by the bins that occur, a chunk at a time: the others take no memory."""
    made = tallied(np.zeros(0, dtype=np.int64))
    for chunk in _chunks(arrays):
        made = merged(made, tallied(_binned(chunk, domain, outside)))
    return made


def _binned(chunk: list[NDArray[Any]], domain: Domain, outside: Outside) -> NDArray[np.int64]:
    """Return the bins of the records that have one."""
    bins = np.zeros(chunk[0].size, dtype=np.int64)
    kept = np.ones(chunk[0].size, dtype=np.bool_)
    for axis, part in zip(domain.axes, chunk, strict=True):
        at = axis.index(as_labels(part) if isinstance(axis, Categories | Keyed) else part, outside)
        kept &= at >= 0
        bins = bins * axis.n + at
    return bins[kept]


def _chunks(arrays: list[NDArray[Any]]) -> Iterator[list[NDArray[Any]]]:
    for start in range(0, arrays[0].size, _CHUNK):
        yield [a[start : start + _CHUNK] for a in arrays]


def as_labels(cells: NDArray[Any]) -> NDArray[Any]:
    """Return labels as the engine writes them: text as it is, whole numbers in digits, true and false."""
    return np.array([written(cell) for cell in cells.tolist()], dtype=object)
