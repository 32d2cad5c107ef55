"""Typed columns that DuckDB cannot take as they are, from tables in memory and Parquet files.

While it scans the records DuckDB converts coarse times to its microseconds, and some of its functions fail on
a time of day beyond the day or on text that is not UTF-8: a single record would stop the count. So columns of
such types are handed over as the whole numbers or the bytes that they are made of, and a view makes times and
text of these:

* A time beyond DuckDB's calendar, and a span beyond its longest, become the last that it has.
* A time of day that no day has is null.
* Bytes that are not UTF-8 are U+FFFD.

Whether a column is handed over in this way depends on its type alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
from sqlglot import exp

from dphist.errors import UsageError
from dphist.records.cells import UNDECODED


@dataclass(frozen=True)
class Raw:
    """The type in which a column is handed over, and the SQL that restores a value ``{0}``."""

    stored: Literal["int32", "int64", "large_binary"]  # by Arrow's name
    made: str


_FIRST, _LAST = -9_223_372_022_400_000_000, 9_223_372_036_854_000_000  # DuckDB's calendar, in microseconds
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ODD_FLOATS = ("float16", "float96", "float128")
_MISSING = -(2**63)  # how numpy and pandas represent a missing time (NaT)
# DuckDB writes ? for bytes that are not valid text, so every ? in such a value is marked.
_TEXT = Raw(
    "large_binary", f"COALESCE(TRY(decode({{0}})), REPLACE(decode({{0}}, 'replace'), '?', '{UNDECODED}'))"
)


def register(connection: duckdb.DuckDBPyConnection, name: str, data: Any) -> None:
    """Let a table in memory be read by DuckDB under a name."""
    data = _doubles(data)
    raw = _raw(data)
    handed = f"{name}_handed"
    connection.register(handed, _handed(data, raw) if raw else data)
    made = ", ".join(f"{how.made.format(_name(c))} AS {_name(c)}" for c, how in raw.items())
    chosen = f"* REPLACE ({made})" if raw else "*"
    # Always a view, for the same name may stand for other columns later.
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(name)} AS SELECT {chosen} FROM {_name(handed)}")


def parquet_table(
    connection: duckdb.DuckDBPyConnection,
    paths: tuple[Path, ...],
    listed: str,
    folders: list[str],
    root: Path,
) -> Any:
    """Return Parquet files as an Arrow dataset if they hold times that DuckDB's reader refuses; else None.

    Args:
        listed: the paths as a list of DuckDB's SQL.
        folders: the columns that folders named key=value below the root give, which are text.
    """
    found = connection.execute(
        f"SELECT 1 FROM parquet_schema({listed}) WHERE converted_type = 'TIMESTAMP_MILLIS' "
        "OR logical_type LIKE 'TimestampType%MILLIS=Milli%' OR converted_type LIKE 'TIME_M%' "
        "OR logical_type LIKE 'TimeType%' LIMIT 1"
    ).fetchall()
    if not found:
        return None
    try:
        import pyarrow
        from pyarrow import dataset
    except ImportError:
        raise UsageError(
            "the Parquet files hold times of day, or times in milliseconds, which need pyarrow: "
            "pip install 'dphist[frames]'."
        ) from None
    keys = pyarrow.schema([(name, pyarrow.string()) for name in folders])
    partitioning = dataset.partitioning(keys, flavor="hive") if folders else None
    return dataset.dataset(
        [str(p) for p in paths],
        format="parquet",
        partitioning=partitioning,
        partition_base_dir=str(root),
    )


def marked(replaced: str, shortened: str) -> str:
    """Return the SQL of text with bytes that are not UTF-8 marked, given it with ? for them and without."""
    return (
        f"CASE WHEN {replaced} IS DISTINCT FROM {shortened} "
        f"THEN REPLACE({replaced}, '?', '{UNDECODED}') ELSE {replaced} END"
    )


def _doubles(data: Any) -> Any:
    """Return a pandas table with its floats as doubles: DuckDB knows none that are wider."""
    if not type(data).__module__.startswith("pandas"):
        return data
    odd = [at for at, dtype in enumerate(data.dtypes) if str(dtype) in _ODD_FLOATS]
    made = data.copy(deep=False) if odd else data
    with np.errstate(all="ignore"):  # a warning would disclose that some value is huge
        for at in odd:
            made.isetitem(at, data.iloc[:, at].to_numpy(dtype=np.float64))
    return made


def _raw(data: Any) -> dict[str, Raw]:
    """Return the columns that are handed over as what they are made of, and how."""
    package = type(data).__module__.partition(".")[0]
    if package == "pandas":
        columns = zip(map(str, data.columns), data.dtypes, strict=True)
        found = {name: _of_pandas(dtype) for name, dtype in columns}
    elif package == "polars":
        found = {name: _of_polars(dtype) for name, dtype in data.collect_schema().items()}
    else:
        schema = data.schema if hasattr(data, "schema") else data.projected_schema
        found = {field.name: _of_arrow(field.type) for field in schema}
    return {name: raw for name, raw in found.items() if raw is not None}


def _of_arrow(type: Any) -> Raw | None:
    from pyarrow import types

    if types.is_dictionary(type):
        return _of_arrow(type.value_type)
    if types.is_timestamp(type):
        return _moment(type.unit, zoned=type.tz is not None)
    if types.is_duration(type):
        return _span(type.unit)
    if types.is_time(type):
        return _time_of_day(type.unit, "int32" if types.is_time32(type) else "int64")
    texts = (types.is_string, types.is_large_string, getattr(types, "is_string_view", types.is_string))
    return _TEXT if any(is_one(type) for is_one in texts) else None


def _of_polars(dtype: Any) -> Raw | None:
    unit = getattr(dtype, "time_unit", None)
    kind = str(dtype.base_type())
    if kind == "Datetime" and unit:
        return _moment(unit, zoned=dtype.time_zone is not None)
    if kind == "Duration" and unit:
        return _span(unit)
    if kind == "Time":
        return _time_of_day("ns", "int64")
    return _TEXT if kind == "String" else None


def _of_pandas(dtype: Any) -> Raw | None:
    if hasattr(dtype, "pyarrow_dtype"):
        return _of_arrow(dtype.pyarrow_dtype)
    if getattr(dtype, "storage", "") == "pyarrow":
        return _TEXT
    kind = getattr(dtype, "kind", "")
    if kind not in ("M", "m"):
        return None
    unit = _pandas_unit(dtype)
    return _span(unit) if kind == "m" else _moment(unit, zoned=hasattr(dtype, "tz"))


def _pandas_unit(dtype: Any) -> str:
    return getattr(dtype, "unit", None) or str(dtype).partition("[")[2].rstrip("]")


def _handed(data: Any, raw: dict[str, Raw]) -> Any:
    """Return the table with these columns as what they are made of, without copies where possible."""
    package = type(data).__module__.partition(".")[0]
    if package == "polars":
        import polars

        stored = {"int64": polars.Int64, "large_binary": polars.Binary}
        return data.with_columns(polars.col(name).cast(stored[how.stored]) for name, how in raw.items())
    if package == "pandas":
        made = data.copy(deep=False)
        for at, name in enumerate(map(str, data.columns)):
            if name in raw:
                made.isetitem(at, _pandas_handed(data.iloc[:, at], raw[name]))
        return made
    return _arrow_handed(data, raw)


def _pandas_handed(series: Any, raw: Raw) -> Any:
    kind = getattr(series.dtype, "kind", "")
    if kind in ("M", "m") and not hasattr(series.dtype, "pyarrow_dtype"):
        return series.to_numpy(dtype=f"{kind}8[{_pandas_unit(series.dtype)}]").view("int64")
    import pandas
    import pyarrow

    cells = pyarrow.array(series.array)
    return pandas.arrays.ArrowExtensionArray(_stored(cells, cells.type, raw))


def _arrow_handed(data: Any, raw: dict[str, Raw]) -> Any:
    import pyarrow
    from pyarrow import dataset

    if isinstance(data, dataset.Dataset):
        fields = {f.name: (dataset.field(f.name), f.type) for f in data.schema}
        return data.scanner(
            columns={n: _stored(c, type, raw[n]) if n in raw else c for n, (c, type) in fields.items()}
        )
    if isinstance(data, pyarrow.Table | pyarrow.RecordBatch):
        cells = [
            _stored(cells, cells.type, raw[name]) if name in raw else cells
            for name, cells in zip(data.schema.names, data.columns, strict=True)
        ]
        return pyarrow.table(cells, names=data.schema.names)
    reader = data.to_reader() if isinstance(data, dataset.Scanner) else data
    types = [getattr(pyarrow, raw[f.name].stored)() if f.name in raw else f.type for f in reader.schema]
    schema = pyarrow.schema([f.with_type(type) for f, type in zip(reader.schema, types, strict=True)])
    batches = (_arrow_handed(batch, raw).cast(schema) for batch in reader)
    return pyarrow.RecordBatchReader.from_batches(
        schema, (part for table in batches for part in table.to_batches())
    )


def _stored(cells: Any, type: Any, raw: Raw) -> Any:
    """Return cells, or an expression of them, as what they are made of."""
    from pyarrow import types

    plain = cells.cast(type.value_type) if types.is_dictionary(type) else cells
    return plain.cast(raw.stored)


def _moment(unit: str, *, zoned: bool) -> Raw | None:
    """Return how a time is handed over, so that no number fails; None for one that DuckDB takes as it is."""
    make = "make_timestamptz" if zoned else "make_timestamp"
    if unit == "ns" and zoned:  # a type for which DuckDB has hardly a function
        inside = f"GREATEST({{0}}, {_MISSING + 2000})"  # or rounding down would leave the whole numbers
        made = f"({inside} - (({inside} % 1000) + 1000) % 1000) // 1000"
    elif unit in ("s", "ms"):
        made = _microseconds(unit)
    else:
        return None
    return Raw("int64", f"CASE WHEN {{0}} > {_MISSING} THEN {make}({made}) END")


def _span(unit: str) -> Raw | None:
    """Return how a span of time is handed over; None for one that DuckDB takes as it is."""
    if unit not in ("s", "ms"):
        return None
    return Raw("int64", f"CASE WHEN {{0}} > {_MISSING} THEN to_microseconds({_microseconds(unit)}) END")


def _microseconds(unit: str) -> str:
    per = 10**6 // _PER_SECOND[unit]
    return f"LEAST(GREATEST({{0}}, {_FIRST // per}), {_LAST // per}) * {per}"


def _time_of_day(unit: str, stored: Literal["int32", "int64"]) -> Raw:
    """Return how a time of day is handed over."""
    per = _PER_SECOND[unit]
    whole = f"CAST({{0}} AS BIGINT) * {10**6 // per}" if per <= 10**6 else f"{{0}} // {per // 10**6}"
    inside = f"{{0}} BETWEEN 0 AND {86_400 * per - 1}"
    return Raw(stored, f"CASE WHEN {inside} THEN TIME '00:00:00' + to_microseconds({whole}) END")


def _name(value: str) -> str:
    return exp.to_identifier(value, quoted=True).sql("duckdb")
