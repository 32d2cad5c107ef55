"""What all parts of the query share: the engine's contract and small pieces of syntax."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

Kind: TypeAlias = Literal["integer", "float", "boolean", "text", "time", "other"]


@dataclass(frozen=True)
class Field:
    """What kind of value a column holds, and the engine's own word for its type."""

    kind: Kind
    type: str


class Engine(ABC):
    """Where the records are: what a database must offer for the counting query to run there."""

    dialect: str
    name: str  # the data, in messages
    source: exp.Table

    @abstractmethod
    def fields(self, query: exp.Select) -> dict[str, Field]:
        """Return the columns of a query without running it."""

    @abstractmethod
    def declare(self, types: dict[str, Literal["number", "text"]]) -> None:
        """Take columns of a source without types (CSV) as numbers or as the text they are."""

    @abstractmethod
    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Table:
        """Return a small table of the columns, with the row number from zero as ``bin``."""

    @abstractmethod
    def run(self, query: exp.Select) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Run a counting query; return the bins that occur and how often."""

    def search(
        self, rows: exp.Select, value: str, carried: list[str], edges: NDArray[np.float64]
    ) -> exp.Select:
        """Replace each value by the number of the last edge that is not above it."""
        ends = [*edges[1:-1].tolist(), math.inf]
        table = self.lookup(f"edges_{value}", {"low": edges[:-1].tolist(), "high": ends})
        inside = exp.and_(
            exp.GTE(this=column(value), expression=column("low", "edges")),
            exp.LT(this=column(value), expression=column("high", "edges")),
        )
        return (
            select(carried, **{value: column("bin", "edges")})
            .from_(rows.subquery("r"))
            .join(table.as_("edges"), on=inside)
        )

    def bound(self, rows: exp.Select, limit: int) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, those with the least draws; nulls are units of one."""
        rank = exp.Window(
            this=exp.RowNumber(),
            partition_by=[column("unit")],
            order=exp.Order(expressions=[exp.Ordered(this=column(c)) for c in ("draw", "bin")]),
        )
        # The draw has a select of its own, so that it is drawn once.
        drawn = select(["unit", "bin"], draw=exp.Rand()).from_(rows.subquery("r"))
        ranked = select(["unit", "bin"], rank=rank).from_(drawn.subquery("r"))
        few = exp.LTE(this=column("rank"), expression=exp.Literal.number(limit))
        return select(["bin"]).from_(ranked.subquery("r")).where(exp.or_(few, is_null("unit")))


def generate(query: exp.Expression, dialect: str) -> str:
    """Return the query as text of a dialect; comments are left behind."""
    return query.sql(dialect, comments=False)


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


def double(value: float) -> exp.Expression:
    """Write a double to its last bit: digits alone would be a decimal in some engines."""
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    return exp.cast(exp.Literal.string("NaN" if math.isnan(value) else text), "double")
