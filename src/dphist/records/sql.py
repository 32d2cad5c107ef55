"""What all parts of the query share: the engine's contract and small pieces of syntax."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from dphist.errors import UsageError

# A "local" time is what a clock showed, an "instant" has a time zone; "time" is a time of day or a span.
Kind: TypeAlias = Literal[
    "integer", "decimal", "float", "boolean", "text", "date", "local", "instant", "time", "other"
]


@dataclass(frozen=True)
class Field:
    """What kind of value a column holds, and the engine's own word for its type.

    The columns of a source without types (CSV, JSON lines, SQLite) are untyped: every cell is the text it
    was written as; its type is decided by the query alone, never by other records.
    """

    kind: Kind
    type: str
    untyped: bool = False


class Engine(ABC):
    """Where the records are: what a database must offer for the counting query to run there."""

    dialect: str
    name: str  # the data, in messages
    source: exp.Expression
    to_number: str  # how a person turns a column of text into numbers here

    encoding: str | None = None  # what text is written in, and
    decimal: str | None = None  # the decimal mark of numbers, where these can be declared
    groups_up_to: float = math.inf  # bins, beyond which records are not grouped there but sorted here
    names_are_public = True  # False where a file without a header would show a record as its names

    def columns(self) -> dict[str, Field]:
        """Return the columns of the records."""
        return self.fields(exp.select("*").from_(self.source))

    def adopt(self, name: str) -> str | None:
        """Return the column of an undeclared name, if records bring their own names; None otherwise."""
        return None

    def guard(self, expression: exp.Expression) -> exp.Expression:
        """Make an expression null where it fails: a failure would disclose something about one record."""
        return expression

    @abstractmethod
    def fields(self, query: exp.Select) -> dict[str, Field]:
        """Return the columns of a query without running it."""

    @abstractmethod
    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Expression:
        """Return a small table of columns of text, doubles or (the one named bin) whole numbers."""

    @abstractmethod
    def search(
        self, rows: exp.Select, value: str, carried: list[str], starts: list[float], bins: list[int]
    ) -> exp.Select:
        """Replace each value by the bin of the last start that is not above it; there always is one."""

    @abstractmethod
    def text(self, value: exp.Expression) -> exp.Expression:
        """Return a value as text that equals other text only if all its characters do."""

    def sha256(self, text: exp.Expression) -> exp.Expression:
        """Return the SHA-256 of the UTF-8 of a text, as 64 digits in base 16, a to f in lower case."""
        return exp.Anonymous(this="SHA256", expressions=[text])

    def number(self, value: exp.Expression, field: Field) -> exp.Expression:
        """Return a number as a double; no number may make this fail."""
        # Not every engine takes the direct way from a boolean.
        return exp.cast(exp.cast(value, "int") if field.kind == "boolean" else value, "double")

    @abstractmethod
    def seconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        """Return the whole seconds since 1970 of a date, a local time or an instant, as a double."""

    @abstractmethod
    def microseconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        """Return the whole microseconds since 1970 of a date, a local time or an instant, as 64 bits.

        What lies beyond the years of all axes may be any number beyond these; no value may make this fail.
        """

    @abstractmethod
    def run(self, query: exp.Expression) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Run a counting query, or one of each record's bin; return the bins that occur and how often."""

    def share(self, rows: exp.Select) -> exp.Expression:
        """Return rows that several parts of a counting query read; some engines hold them for all."""
        return rows.subquery("shared")

    def gather(self, rows: exp.Select) -> exp.Select:
        """Return these rows of all records at once, where an engine reads the records in parts."""
        return rows

    def bound(self, rows: exp.Select, limit: int, *, is_large: bool = False) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, those with the least draws; no unit is null.

        Args:
            is_large: whether the number of a bin may be 2**27 or more; public.
        """
        rank = exp.Window(
            this=exp.RowNumber(),
            partition_by=[column("unit")],
            order=exp.Order(expressions=[exp.Ordered(this=column(c)) for c in ("draw", "bin")]),
        )
        # The draw has a select of its own, so that it is drawn once.
        drawn = select(["unit", "bin"], draw=exp.Rand()).from_(rows.subquery("r"))
        ranked = select(["unit", "bin"], rank=rank).from_(drawn.subquery("r"))
        few = exp.LTE(this=column("rank"), expression=exp.Literal.number(limit))
        return select(["bin"]).from_(ranked.subquery("r")).where(few)


def generate(query: exp.Expression, dialect: str) -> str:
    """Return the query as text of a dialect; comments are left behind, and nothing else may be.

    A part that a dialect lacks would be left out with no more than a line in the log. Without its TRY(...),
    for example, an expression could fail for one record, and the failure would disclose it.
    """
    try:
        return query.sql(dialect, comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError:
        raise UsageError(
            "the query needs something that this engine's SQL lacks; write the expression differently."
        ) from None


def select(carried: list[str], **named: exp.Expression) -> exp.Select:
    """Select carried columns as they are and expressions by name."""
    made = [exp.alias_(e, n, quoted=True) for n, e in named.items()]
    return exp.select(*[column(c) for c in carried], *made)


def column(name: str, table: str | None = None) -> exp.Column:
    """Name a column, quoted."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def is_null(name: str) -> exp.Expression:
    """Ask whether a column is null."""
    return exp.Is(this=column(name), expression=exp.Null())


def holds(name: str, text: str) -> exp.Expression:
    """Ask whether a column, as text, has this in it."""
    return exp.Like(this=exp.cast(column(name), "text"), expression=exp.Literal.string(f"%{text}%"))


def any_of(conditions: list[exp.Expression]) -> exp.Expression:
    """Ask whether one of the conditions is true; null is not."""
    made: exp.Expression = exp.false()
    for condition in conditions:
        known = exp.Coalesce(this=exp.paren(condition), expressions=[exp.false()])
        made = known if isinstance(made, exp.Boolean) else exp.Or(this=made, expression=known)
    return made


def try_cast(value: exp.Expression, type: str) -> exp.Expression:
    """Convert a value; null where it cannot be."""
    return exp.TryCast(this=value, to=exp.DataType.build(type))


def fill(template: str, dialect: str, **parts: exp.Expression) -> exp.Expression:
    """Parse a template and replace the columns that it names by expressions."""
    tree = cast("exp.Expression", sqlglot.parse_one(template, dialect=dialect))
    return tree.transform(
        lambda node: parts[node.name].copy() if isinstance(node, exp.Column) and node.name in parts else node
    )


def whole(value: int) -> exp.Expression:
    """Write a whole number of 64 bits."""
    return exp.cast(exp.Literal.number(value), "bigint")


def double(value: float) -> exp.Expression:
    """Write a double to its last bit: digits alone would be a decimal in some engines."""
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    return exp.cast(exp.Literal.string("NaN" if math.isnan(value) else text), "double")
