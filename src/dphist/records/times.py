"""Times that DuckDB cannot take as they are, from tables in memory and Parquet files.

DuckDB computes in microseconds. Coarser times are converted while the records are scanned, and for one far
enough away that fails: a single record would stop the count. So a column of seconds or milliseconds is
handed over as the whole numbers it is made of, and a view turns these into times; one beyond DuckDB's
calendar becomes the last that it has. Whether a column is such is told by its type alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
from sqlglot import exp

from dphist.errors import UsageError

Times: TypeAlias = dict[str, tuple[str, bool]]  # by column: the unit, and whether it has a zone

_FIRST, _LAST = -9_223_372_022_400_000_000, 9_223_372_036_854_000_000  # DuckDB's calendar, in microseconds
_MICROSECONDS = {"s": 10**6, "ms": 10**3}
_ODD_FLOATS = ("float16", "float96", "float128")
_MISSING = -(2**63)  # how numpy and pandas write that there is no time


def register(connection: duckdb.DuckDBPyConnection, name: str, data: Any) -> None:
    """Let a table in memory be read by DuckDB under a name."""
    data = _doubles(data)
    times = _times(data)
    if not times:
        connection.register(name, data)
        return
    numbers = f"{name}_whole"
    connection.register(numbers, _whole(data, times))
    made = ", ".join(f"{_time(column, *times[column])} AS {_name(column)}" for column in times)
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW {_name(name)} AS SELECT * REPLACE ({made}) FROM {_name(numbers)}"
    )


def parquet_table(
    connection: duckdb.DuckDBPyConnection, paths: tuple[Path, ...], listed: str, folders: list[str]
) -> Any:
    """Return Parquet files as an Arrow dataset if they hold times in milliseconds; None otherwise.

    Args:
        listed: the paths as a list of DuckDB's SQL.
        folders: the columns that folders named key=value give, which are text.
    """
    found = connection.execute(
        f"SELECT 1 FROM parquet_schema({listed}) WHERE converted_type = 'TIMESTAMP_MILLIS' "
        "OR logical_type LIKE 'TimestampType%MILLIS=Milli%' LIMIT 1"
    ).fetchall()
    if not found:
        return None
    try:
        import pyarrow
        from pyarrow import dataset
    except ImportError:
        raise UsageError(
            "the Parquet files hold times in milliseconds, which need pyarrow: pip install 'dphist[frames]'."
        ) from None
    keys = pyarrow.schema([(name, pyarrow.string()) for name in folders])
    partitioning = dataset.partitioning(keys, flavor="hive") if folders else None
    return dataset.dataset([str(p) for p in paths], format="parquet", partitioning=partitioning)


def _doubles(data: Any) -> Any:
    """Return a pandas table with its floats as doubles: DuckDB knows none that are wider."""
    if not type(data).__module__.startswith("pandas"):
        return data
    odd = [at for at, dtype in enumerate(data.dtypes) if str(dtype) in _ODD_FLOATS]
    made = data.copy(deep=False) if odd else data
    with np.errstate(all="ignore"):  # a warning would tell that some value is huge
        for at in odd:
            made.isetitem(at, data.iloc[:, at].to_numpy(dtype=np.float64))
    return made


def _times(data: Any) -> Times:
    """Return the columns whose times DuckDB cannot take."""
    package = type(data).__module__.partition(".")[0]
    if package == "pandas":
        columns = zip(map(str, data.columns), data.dtypes, strict=True)
        found = {name: _pandas_time(dtype) for name, dtype in columns}
    elif package == "polars":
        found = {name: _polars_time(dtype) for name, dtype in data.collect_schema().items()}
    else:
        schema = data.schema if hasattr(data, "schema") else data.projected_schema
        found = {field.name: _arrow_time(field.type) for field in schema}
    times = {name: time for name, time in found.items() if time is not None}
    return {
        n: (unit, zoned) for n, (unit, zoned) in times.items() if unit in _MICROSECONDS or _fine(unit, zoned)
    }


def _fine(unit: str, zoned: bool) -> bool:
    return unit == "ns" and zoned  # a type for which DuckDB has hardly a function


def _arrow_time(type: Any) -> tuple[str, bool] | None:
    import pyarrow

    return (type.unit, type.tz is not None) if pyarrow.types.is_timestamp(type) else None


def _polars_time(dtype: Any) -> tuple[str, bool] | None:
    unit = getattr(dtype, "time_unit", None)
    return (unit, dtype.time_zone is not None) if hasattr(dtype, "time_zone") and unit else None


def _pandas_time(dtype: Any) -> tuple[str, bool] | None:
    if hasattr(dtype, "pyarrow_dtype"):
        return _arrow_time(dtype.pyarrow_dtype)
    if getattr(dtype, "kind", "") != "M":
        return None
    unit = getattr(dtype, "unit", None) or str(dtype).partition("[")[2].rstrip("]")
    return unit, hasattr(dtype, "tz")


def _whole(data: Any, times: Times) -> Any:
    """Return the table with its times as whole numbers; no cell is copied where the library can help it."""
    package = type(data).__module__.partition(".")[0]
    if package == "polars":
        import polars

        return data.with_columns(polars.col(name).cast(polars.Int64) for name in times)
    if package == "pandas":
        made = data.copy(deep=False)
        for at, name in enumerate(map(str, data.columns)):
            if name in times:
                made.isetitem(at, _pandas_whole(data.iloc[:, at], times[name][0]))
        return made
    return _arrow_whole(data, times)


def _pandas_whole(series: Any, unit: str) -> Any:
    if hasattr(series.dtype, "pyarrow_dtype"):
        return series.astype("int64[pyarrow]")
    return series.to_numpy(dtype=f"datetime64[{unit}]").view("int64")


def _arrow_whole(data: Any, times: Times) -> Any:
    import pyarrow
    from pyarrow import dataset

    whole = pyarrow.int64()
    if isinstance(data, dataset.Dataset):
        fields = {name: dataset.field(name) for name in data.schema.names}
        return data.scanner(columns={n: f.cast(whole) if n in times else f for n, f in fields.items()})
    if isinstance(data, pyarrow.Table | pyarrow.RecordBatch):
        cells = [
            c.cast(whole) if n in times else c for n, c in zip(data.schema.names, data.columns, strict=True)
        ]
        return pyarrow.table(cells, names=data.schema.names)
    reader = data.to_reader() if isinstance(data, dataset.Scanner) else data
    schema = pyarrow.schema([f.with_type(whole) if f.name in times else f for f in reader.schema])
    batches = (batch.cast(schema) for batch in reader)
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


def _time(column: str, unit: str, zoned: bool) -> str:
    """Return the SQL that makes a time of a whole number; no number makes it fail."""
    make = "make_timestamptz" if zoned else "make_timestamp"
    value = _name(column)
    if unit == "ns":
        inside = f"GREATEST({value}, {_MISSING + 2000})"  # or rounding down would leave the whole numbers
        made = f"({inside} - (({inside} % 1000) + 1000) % 1000) // 1000"
    else:
        per = _MICROSECONDS[unit]
        made = f"LEAST(GREATEST({value}, {_FIRST // per}), {_LAST // per}) * {per}"
    return f"CASE WHEN {value} > {_MISSING} THEN {make}({made}) END"


def _name(value: str) -> str:
    return exp.to_identifier(value, quoted=True).sql("duckdb")
