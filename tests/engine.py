"""One DuckDB for what the tests themselves read and write: to open one takes longer than most readings."""

from __future__ import annotations

import functools

import duckdb


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that keeps nothing of a file, which may be another one the next time."""
    return duckdb.connect(config={"enable_external_file_cache": False})
