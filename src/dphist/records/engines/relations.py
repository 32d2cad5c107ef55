"""Relations of DuckDB: counted if their types are declared, whatever the records are.

DuckDB guesses the types of CSV, JSON and pandas columns of objects from the records, and SQLite promises
none. One record could turn numbers into text, so that a count is refused, or stop it far down a file: neither
is paid for. So the sources of a relation decide, and no type that was guessed has a say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from dphist.errors import UsageError

_DECLARED = {  # tables, Parquet, and rows that the query itself writes down
    *("SEQ_SCAN", "READ_PARQUET", "PARQUET_SCAN"),
    *("DUMMY_SCAN", "RANGE", "GENERATE_SERIES", "REPEAT", "UNNEST"),
    *("CTE_SCAN", "DELIM_GET"),  # of rows that stand elsewhere in the plan
}
_REFUSED = (
    "a relation or view is counted if its query reads nothing but tables and Parquet, whose types are "
    "declared, and this one reads something else, cannot be planned any more, or has a connection whose "
    "configuration is locked. From CSV, JSON, pandas, Arrow, SQLite and results that are in memory already, "
    "types may be guessed from the records, and one record could stop the count. Give the file or the "
    'dataframe itself, such as histogram("visits.csv", ...), or CREATE TABLE with declared types first, and '
    "INSERT the records there."
)


def refuse_guessed(relation: duckdb.DuckDBPyRelation) -> None:
    """Refuse a relation unless each of its sources has declared types.

    The plan is the one before optimization: the optimizer drops sources because of what tables hold, and of
    what was guessed. A query that cannot be planned is refused in the same words, since the reason may be a
    guess that came out differently.
    """
    try:
        sources = list(_sources(_plan(relation)))
    except (duckdb.Error, ValueError, KeyError):
        raise UsageError(_REFUSED) from None
    if not _DECLARED.issuperset(sources):
        raise UsageError(_REFUSED)


def refuse_guessed_files(data: Any) -> None:
    """Refuse Arrow's readers of text, which guess types from the first records and stop at later ones."""
    kind = type(data)
    of_text = kind.__module__ == "pyarrow._csv"
    if kind.__module__ == "pyarrow._dataset":
        for part in getattr(data, "children", [data]):
            file = type(getattr(part, "format", None)).__name__
            of_text = of_text or file in ("CsvFileFormat", "JsonFileFormat")
    if of_text:
        raise UsageError(
            "Arrow guesses the types of CSV and JSON from the records, and one record could stop the count. "
            'Give the files themselves, such as histogram("visits.csv", ...) or a folder of them.'
        )


def named_rows(connection: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyRelation:
    """Return the rows of a table or view of a connection, given its name in SQL."""
    try:
        return connection.sql(f"SELECT * FROM {name}")
    except duckdb.Error:  # of a view over a file, because of what is guessed of its records now
        raise UsageError(_REFUSED) from None


def _plan(relation: duckdb.DuckDBPyRelation) -> dict[str, Any]:
    """Return the plan of a relation before it is optimized; its connection is left as it was."""
    ((before,),) = _ask(relation, "SELECT current_setting('explain_output')").fetchall()
    _ask(relation, "SET explain_output = 'all'")
    try:
        plans = relation.explain(format="json")  # one JSON document after another, the first not optimized
    finally:
        _ask(relation, f"SET explain_output = '{before}'")
    (plan,), _ = json.JSONDecoder().raw_decode(plans)
    return dict(plan)


def _ask(relation: duckdb.DuckDBPyRelation, statement: str) -> Any:
    return relation.query("dphist_relation", statement)


def _sources(plan: dict[str, Any]) -> Iterator[str]:
    """Yield where the rows come from: the leaves, and the functions of Python, which make rows anew."""
    name = plan["name"]
    if not plan["children"] or name.startswith("PYTHON"):
        yield name
    for below in plan["children"]:
        yield from _sources(below)
