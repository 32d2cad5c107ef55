"""What an untyped column is read as inside an expression: decided by its use there, no record has a say.

* In arithmetic, in a function of numbers, or compared with a number it is a number.
* In a function of dates and times, or compared with one, it is a timestamp.
* Everywhere else it is the text as written. Which of two untyped columns is the greater is refused,
  because as text 10 comes before 9.

What cannot be read so is null. Columns with a type keep it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlglot import exp

from dphist.errors import UsageError
from dphist.records.sql import Field, try_cast

Read: TypeAlias = Literal["number", "time", "text", "open"]  # text: of untyped columns; open: the rest


def _nodes(names: str) -> tuple[type[exp.Expression], ...]:
    # Some names are not in every version of the parser.
    return tuple(getattr(exp, name) for name in names.split() if hasattr(exp, name))


_ARITHMETIC = _nodes("Add Sub Mul Div IntDiv Mod Pow Neg")
_OF_NUMBERS = _nodes("Abs Ceil Floor Round Trunc Sign Sqrt Cbrt Exp Ln Log Log2 Log10 IsNan IsInf")
_TRUNCATED = _nodes("TimestampTrunc DateTrunc")
_OF_TIMES = (
    *_TRUNCATED,
    *_nodes("Extract Year Quarter Month Week Day Hour Minute Second DayOfWeek DayOfWeekIso DayOfMonth"),
    *_nodes("DayOfYear WeekOfYear DateDiff TimeToUnix"),
)
_LENGTHS = _nodes("Length StrPosition")
_TEXTS = _nodes("Lower Upper Substring Left Right Trim Replace Concat DPipe")
_RISING = _nodes("GT GTE LT LTE Between Greatest Least")
_COMPARED = (*_RISING, *_nodes("EQ NEQ NullSafeEQ NullSafeNEQ In Nullif"))
_MERGED = _nodes("Coalesce Nullif Greatest Least Case If")
_FIRST_ONLY = (*_TRUNCATED, *_nodes("Round Trunc TimeToUnix"))  # the other arguments say how, not what
_PLAIN = (
    *_nodes("Column Identifier Literal Boolean Null Paren And Or Not Is TryCast DataType"),
    *_nodes("EQ NEQ GT GTE LT LTE Between In"),
)
_WIDE = ("HUGEINT", "UHUGEINT")  # comparing them with a literal converts them, which may overflow


def read_by_use(tree: exp.Expression, fields: dict[str, Field], text: str) -> exp.Expression:
    """Return the expression with every untyped column converted to the type its use demands."""
    nodes: list[exp.Expression] = list(tree.find_all(exp.Expression))
    for node in reversed(nodes):  # the inner parts first
        sides = _operands(node)
        if isinstance(node, _ARITHMETIC):
            _read(sides, "time" if "time" in _kinds(sides, fields) else "number", fields)
        elif isinstance(node, _OF_NUMBERS):
            _read(sides, "number", fields)
        elif isinstance(node, _OF_TIMES):
            _read(sides, "time", fields)
        elif isinstance(node, (*_COMPARED, *_MERGED)):
            _agree(sides, fields)
            if isinstance(node, exp.Case) and node.this is not None:
                _agree([node.this, *(branch.this for branch in node.args["ifs"])], fields)
        if isinstance(node, _RISING) and [kind(p, fields) for p in _operands(node)].count("text") > 1:
            raise UsageError(
                f"in {text!r}, two columns of a source without types are compared; say what they are, for "
                "example CAST(a AS DOUBLE) < CAST(b AS DOUBLE)."
            )
    return tree


def kind(node: exp.Expression, fields: dict[str, Field]) -> Read:
    """Return what a part of an expression is, from its syntax and the declared types alone."""
    if isinstance(node, exp.Column):
        field = fields[node.name]
        if field.kind in ("integer", "decimal", "float"):
            return "number"
        timed = field.kind in ("date", "local", "instant", "time")
        return "text" if field.untyped else "time" if timed else "open"
    if isinstance(node, exp.Literal):
        return "open" if node.is_string else "number"
    if isinstance(node, (exp.Paren, exp.Try)):
        return kind(node.this, fields)
    if isinstance(node, exp.Cast):
        to = node.args["to"].this
        numeric, temporal = exp.DataType.NUMERIC_TYPES, exp.DataType.TEMPORAL_TYPES
        return "number" if to in numeric else "time" if to in temporal else "open"
    if isinstance(node, _ARITHMETIC):
        return "time" if "time" in _kinds(_operands(node), fields) else "number"
    if isinstance(node, (exp.Interval, *_TRUNCATED)):
        return "time"
    if isinstance(node, (*_OF_NUMBERS, *_OF_TIMES, *_LENGTHS)):
        return "number"
    if isinstance(node, _TEXTS):
        return "text" if any(fields[c.name].untyped for c in node.find_all(exp.Column)) else "open"
    if isinstance(node, _MERGED):
        found = _kinds(_operands(node), fields)
        order: tuple[Read, ...] = ("number", "time", "text", "open")
        return next(read for read in order if read in found)
    return "open"


def with_decimal_commas(tree: exp.Expression, fields: dict[str, Field]) -> exp.Expression:
    """Return the expression with text read as numbers whose decimal mark is a comma, never a point."""

    def swapped(node: exp.Expression) -> exp.Expression:
        numeric = isinstance(node, exp.TryCast) and node.args["to"].this in exp.DataType.NUMERIC_TYPES
        if not numeric or kind(node.this, fields) != "text":
            return node
        # No number holds a semicolon, so that what had a point is null.
        text = _replaced(_replaced(exp.cast(node.this, "text"), ".", ";"), ",", ".")
        return exp.TryCast(this=text, to=node.args["to"])

    return tree.transform(swapped)


def _replaced(text: exp.Expression, old: str, new: str) -> exp.Expression:
    made: exp.Expression = exp.Anonymous(
        this="REPLACE", expressions=[text, exp.Literal.string(old), exp.Literal.string(new)]
    )
    return made


def may_fail(tree: exp.Expression, fields: dict[str, Field]) -> bool:
    """Return whether some value could make the expression fail: all but comparisons with literals may."""
    if not all(isinstance(node, _PLAIN) for node in tree.walk()):
        return True
    return not all(_safe(_operands(node), fields) for node in tree.find_all(*_COMPARED))


def _safe(sides: list[exp.Expression], fields: dict[str, Field]) -> bool:
    """Say whether a column can be compared with literals without converting it."""
    first, *others = [side.unnest() for side in sides]
    if not all(isinstance(other, exp.Literal) for other in others):
        return False
    strings = [other.is_string for other in others]
    if isinstance(first, exp.TryCast):
        return kind(first, fields) == "number" and not any(strings)
    if not isinstance(first, exp.Column):
        return False
    field = fields[first.name]
    numbers = field.kind in ("integer", "float") and field.type not in _WIDE
    return (numbers and not any(strings)) or (field.kind == "text" and all(strings))


def _operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the values that a node brings together; of CASE and IF, the results."""
    if isinstance(node, exp.Case):
        parts = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
    elif isinstance(node, exp.If):
        parts = [node.args.get("true"), node.args.get("false")]
    elif isinstance(node, _FIRST_ONLY):
        parts = [node.this]
    elif isinstance(node, exp.Extract):
        parts = [node.expression]
    else:
        named = [node.args.get(key) for key in ("this", "expression", "low", "high")]
        parts = [*named, *node.expressions]
    return [part for part in parts if isinstance(part, exp.Expression)]


def _kinds(parts: list[exp.Expression], fields: dict[str, Field]) -> set[Read]:
    return {kind(part, fields) for part in parts}


def _agree(parts: list[exp.Expression], fields: dict[str, Field]) -> None:
    found = _kinds(parts, fields)
    if "number" in found:
        _read(parts, "number", fields)
    elif "time" in found:
        _read(parts, "time", fields)


def _read(parts: list[exp.Expression], use: Read, fields: dict[str, Field]) -> None:
    for part in parts:
        if kind(part, fields) == "text":
            part.replace(try_cast(part.copy(), "double" if use == "number" else "timestamp"))
