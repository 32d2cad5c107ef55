"""What a person may write in SQL: expressions of one record, and a SELECT of rows from a database.

What a cell is read as is decided by the expression, never by what other records hold (``reading``), and
no record can make an expression fail: every CAST gives null for what it cannot convert.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dphist.errors import DataError, UsageError, did_you_mean
from dphist.records.reading import may_fail, read_by_use
from dphist.records.sql import Engine, Field, column

# What may stand in an expression. Everything here computes one value from one record; aggregates,
# windows, subqueries, random draws and functions unknown to the parser are left out, because one
# record's bin must not depend on another record (see the proof in records.count).
_SCALAR = (
    "Column Identifier Literal Boolean Null Var Paren Neg Add Sub Mul Div IntDiv Mod Pow "
    "And Or Not EQ NEQ GT GTE LT LTE Is NullSafeEQ NullSafeNEQ Between In Like ILike Escape Case If "
    "Cast TryCast DataType DataTypeParam Coalesce Nullif Greatest Least Abs Ceil Floor Round Trunc Sign "
    "Sqrt Cbrt Exp Ln Log Log2 Log10 IsNan IsInf Lower Upper Length Substring Left Right Trim Replace Concat "
    "DPipe StartsWith EndsWith Contains RegexpLike StrPosition Extract Year Quarter Month Week Day Hour "
    "Minute Second DayOfWeek DayOfWeekIso DayOfMonth DayOfYear WeekOfYear TimestampTrunc DateTrunc DateDiff "
    "TimeToUnix Interval"
)
# One table only: in a join one record could add, or take away, any number of rows.
_ROWS = "Select From Table TableAlias Alias Star Where Subquery"


def _nodes(names: str) -> frozenset[type]:
    # Some names are not in every version of the parser.
    return frozenset(getattr(exp, name) for name in names.split() if hasattr(exp, name))


_LONGEST_NAME = 200  # characters of what may be a column's name rather than an expression
_LONGEST, _DEEPEST = 20_000, 256  # characters of an expression, and terms: more would exhaust the stack
_ALLOWED = _nodes(_SCALAR)
_ALLOWED_ROWS = _ALLOWED | _nodes(_ROWS)


def expression(text: str, fields: dict[str, Field], engine: Engine) -> exp.Expression:
    """Return a checked scalar expression of one record, its columns quoted."""
    if not isinstance(text, str) or not text.strip():
        what = "an empty text" if isinstance(text, str) else type(text).__name__
        raise UsageError(f"an SQL expression is needed, not {what}.")
    tree = _parse(text, engine.dialect)
    _refuse(tree, _ALLOWED, text)
    for node in list(tree.find_all(exp.Column)):
        if node.table:
            raise UsageError(f"in {_short(text)}, write {node.name!r} without a table or struct before it.")
        name = _known(node.name, fields, engine)
        node.set("this", exp.to_identifier(name, quoted=True))
    tree = read_by_use(_tolerant(tree), fields, text)
    return engine.guard(tree) if may_fail(tree, fields) else tree


def resolve(text: str, fields: dict[str, Field], engine: Engine) -> exp.Expression:
    """Return the column of exactly this name, or else the expression the text is."""
    if text in fields:
        return column(text)
    try:
        tree = _parse(text, engine.dialect)
    except _TooDeepError:
        raise
    except UsageError:
        if len(text) > _LONGEST_NAME:
            raise
        return column(_known(text, fields, engine))
    if isinstance(tree, exp.Column) and not tree.table:
        return column(_known(tree.name, fields, engine))
    return expression(text, fields, engine)


def rows_of(text: str, dialect: str) -> exp.Select:
    """Return a checked SELECT whose every row is one record of one table: choosing and computing only."""
    tree = _parse(text, dialect)
    if not isinstance(tree, exp.Select):
        raise UsageError("table must be the name of a table, or one SELECT.")
    if tree.find(exp.Join):
        raise UsageError(
            "a SELECT from several tables is refused: one record could add or take away many rows. Count one "
            "table, or a view that its owner made with one row per record."
        )
    _refuse(tree, _ALLOWED_ROWS, text)
    for inner in tree.find_all(exp.Subquery):
        if not isinstance(inner.parent, exp.From):
            raise UsageError("a SELECT inside a condition is refused: one record could decide about others.")
    return _unfailing(tree, dialect)


def _unfailing(tree: exp.Select, dialect: str) -> exp.Select:
    """Let what a SELECT computes be null where it fails, or refuse what could fail."""
    if dialect == "sqlite":  # of what is allowed, only these two can fail there
        fixed = [node.expression.is_string for node in tree.find_all(exp.Like, exp.ILike)]
        if tree.find(exp.Abs) or not all(fixed):
            raise UsageError("ABS, and LIKE without a fixed pattern, are refused in a SELECT from SQLite.")
    if dialect != "duckdb":
        return tree
    made = cast("exp.Select", _tolerant(tree))
    for select in made.find_all(exp.Select):
        if not all(isinstance(part, exp.Alias | exp.Column | exp.Star) for part in select.expressions):
            raise UsageError("give what the SELECT computes a name, for example age + 1 AS next.")
    for part in list(made.find_all(exp.Alias, exp.Where)):
        if not isinstance(part.this, exp.Column):
            part.set("this", exp.Try(this=part.this))
    return made


def _tolerant(tree: exp.Expression) -> exp.Expression:
    """Turn CAST into TRY_CAST; that of a literal is the same for all records and may fail."""

    def soften(node: exp.Expression) -> exp.Expression:
        if type(node) is exp.Cast and not isinstance(node.this, exp.Literal):
            return exp.TryCast(this=node.this, to=node.args["to"])
        return node

    return tree.transform(soften)


def _parse(text: str, dialect: str) -> exp.Expression:
    if len(text) > _LONGEST:
        raise UsageError(f"an SQL expression of {len(text):,} characters is too long; {_LONGEST:,} are read.")
    try:
        trees = sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError):
        raise UsageError(
            f"{_short(text)} is not an SQL expression that can be read; check its spelling."
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise UsageError(f"{_short(text)} must be exactly one SQL expression, without a semicolon.")
    if _is_too_deep(cast("exp.Expression", trees[0])):
        raise _TooDeepError(
            f"{_short(text)} has too many terms in a row or inside each other: {_DEEPEST} are read. "
            "Write IN or BETWEEN instead of a chain of OR, or compute it in a view."
        )
    return cast("exp.Expression", trees[0])


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]} ...")


def _is_too_deep(tree: exp.Expression) -> bool:
    level: list[exp.Expression] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return False
    return True


class _TooDeepError(UsageError):
    """An expression that no engine would be handed, though it can be read."""


def _refuse(tree: exp.Expression, allowed: frozenset[type], text: str) -> None:
    for node in tree.walk():
        if type(node) not in allowed:
            what = node.name if isinstance(node, exp.Anonymous) else node.key.upper()
            raise UsageError(
                f"{what} is not allowed in {_short(text)}: only arithmetic, comparisons, CASE, CAST and "
                "plain functions of one record are, so that no record can touch another or anything outside."
            )


def _known(name: str, fields: dict[str, Field], engine: Engine) -> str:
    if name in fields:
        return name
    if (adopted := engine.adopt(name)) is not None:
        fields[adopted] = Field("text", "VARCHAR", untyped=True)
        return adopted
    folded = [f for f in fields if f.casefold() == name.casefold()]
    if len(folded) == 1:
        return folded[0]
    raise DataError(f"{engine.name} has no column {name!r}. {names_hint(name, fields, engine)}")


def names_hint(name: str, fields: dict[str, Field], engine: Engine) -> str:
    """Return which columns could be meant; the first line of a text file may be a record, so not all."""
    shown = printable(fields)
    if engine.names_are_public:
        return did_you_mean(name, shown)
    near = difflib.get_close_matches(name, shown, n=3)
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    return "Its columns are what its first line says."


def printable(fields: dict[str, Field]) -> list[str]:
    """Return the column names fit to be shown: a file without a header may have put anything there."""
    return [f for f in fields if f.isprintable() and len(f) <= 60]


def table_rows(
    table: str | None, known: Mapping[str, tuple[str, ...]], name: str, dialect: str
) -> exp.Select:
    """Return the rows of a table by name, or those of a checked SELECT."""
    listed = did_you_mean("" if table is None else table, known) if known else "It has no tables."
    if table is None:
        raise UsageError(f"{name} is a database; say which table= to count. {listed}")
    if table in known:
        parts = [exp.to_identifier(part, quoted=True) for part in known[table]]
        return exp.select("*").from_(exp.Table(this=parts[-1], db=parts[0] if len(parts) > 1 else None))
    if table.lstrip(" (\n\t").lower().startswith(("select", "from", "with")):
        return rows_of(table, dialect)
    raise DataError(f"{name} has no table {table!r}. {listed}")
