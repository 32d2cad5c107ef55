"""The counting query, built with sqlglot so that every engine gets it in its own dialect.

::

    SELECT bin, COUNT(*) FROM (one row per record: its bin) GROUP BY bin

The rows come from nested selects: the filtered values, then the bin on each axis, then one number per
record, and with a unit the bounded choice of records. Whatever a person wrote goes in as a parsed,
checked syntax tree or as a table of values, never as text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dphist.domain import Axis, Categories, Domain, Integers, Outside, Regular
from dphist.errors import DataError, UsageError, did_you_mean

Kind: TypeAlias = Literal["integer", "float", "boolean", "text", "time", "other"]
_SMALL = 64  # up to so many edges a tree of comparisons is faster than a join

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
_ROWS = "Select From Join Table TableAlias Alias Star Where Subquery"


def _nodes(names: str) -> frozenset[type]:
    # Some names are not in every version of the parser.
    return frozenset(getattr(exp, name) for name in names.split() if hasattr(exp, name))


_ALLOWED = _nodes(_SCALAR)
_ALLOWED_ROWS = _ALLOWED | _nodes(_ROWS)


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


def counting_query(
    engine: Engine,
    domain: Domain,
    *,
    columns: tuple[str, ...],
    where: str | None,
    outside: Outside,
    unit: str | None,
    max_contributions: int,
) -> exp.Select:
    """Return the query that counts the records of each bin; refuse columns that cannot be binned."""
    fields = engine.fields(exp.select("*").from_(engine.source))
    if len(columns) != len(domain.axes):
        wanted = "one column" if len(domain.axes) == 1 else "two columns"
        raise UsageError(
            f"the domain needs {wanted} and {len(columns) or 'none'} was given; name what to count. "
            + did_you_mean("", _printable(fields))
        )
    values = [resolve(text, fields, engine) for text in columns]
    keep = None if where is None else expression(where, fields, engine)
    person = None if unit is None else resolve(unit, fields, engine)
    _declare(engine, domain, values, [e for e in (keep, person) if e is not None], fields)
    person = _check_kinds(engine, fields, domain, columns, values, keep, unit, person)

    names = [f"v{i}" for i in range(len(values))]
    carried = [] if person is None else ["unit"]
    typed = {n: exp.cast(v, _wanted(a)) for n, v, a in zip(names, values, domain.axes, strict=True)}
    rows = select([], **typed).from_(engine.source)
    if person is not None:
        rows = rows.select(exp.alias_(person, "unit", quoted=True))
    if keep is not None:
        rows = rows.where(keep)
    for name, axis in zip(names, domain.axes, strict=True):
        others = [n for n in names if n != name]
        rows = _place(engine, rows, name, [*carried, *others], axis, outside)
    rows = select(carried, bin=_number_of(names, domain)).from_(rows.subquery("r"))
    if person is not None:
        rows = engine.bound(rows, max_contributions)
    counted = select(["bin"], tally=exp.Count(this=exp.Star())).from_(rows.subquery("r"))
    return counted.group_by(column("bin"))


def expression(text: str, fields: dict[str, Field], engine: Engine) -> exp.Expression:
    """Return a checked scalar expression of one record, its columns quoted."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"an SQL expression is needed, not {text!r}.")
    tree = _parse(text, engine.dialect)
    _refuse(tree, _ALLOWED, text)
    for node in list(tree.find_all(exp.Column)):
        if node.table:
            raise UsageError(f"in {text!r}, write {node.name!r} without a table or struct before it.")
        name = _known(node.name, fields, engine)
        node.set("this", exp.to_identifier(name, quoted=True))
    return tree


def resolve(text: str, fields: dict[str, Field], engine: Engine) -> exp.Expression:
    """Return the column of exactly this name, or else the expression the text is."""
    if text in fields:
        return column(text)
    try:
        tree = _parse(text, engine.dialect)
    except UsageError:
        raise _missing(text, fields, engine) from None
    if isinstance(tree, exp.Column) and not tree.table:
        return column(_known(tree.name, fields, engine))
    return expression(text, fields, engine)


def rows_of(text: str, dialect: str) -> exp.Select:
    """Return a checked SELECT whose every row is one record: choosing, joining and computing only."""
    tree = _parse(text, dialect)
    if not isinstance(tree, exp.Select):
        raise UsageError("table must be the name of a table, or one SELECT.")
    _refuse(tree, _ALLOWED_ROWS, text)
    for inner in tree.find_all(exp.Subquery):
        if not isinstance(inner.parent, exp.From | exp.Join):
            raise UsageError("a SELECT inside a condition is refused: one record could decide about others.")
    return tree


def generate(query: exp.Expression, dialect: str) -> str:
    """Return the query as text of a dialect; comments are left behind."""
    return query.sql(dialect, comments=False)


def _parse(text: str, dialect: str) -> exp.Expression:
    try:
        trees = sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError):
        raise UsageError(f"{text!r} is not an SQL expression that can be read; check its spelling.") from None
    if len(trees) != 1 or trees[0] is None:
        raise UsageError(f"{text!r} must be exactly one SQL expression, without a semicolon.")
    return cast("exp.Expression", trees[0])


def _refuse(tree: exp.Expression, allowed: frozenset[type], text: str) -> None:
    for node in tree.walk():
        if type(node) not in allowed:
            what = node.name if isinstance(node, exp.Anonymous) else node.key.upper()
            raise UsageError(
                f"{what} is not allowed in {text!r}: only arithmetic, comparisons, CASE, CAST and plain "
                "functions of one record are, so that no record can touch another or anything outside."
            )


def _known(name: str, fields: dict[str, Field], engine: Engine) -> str:
    if name in fields:
        return name
    folded = [f for f in fields if f.casefold() == name.casefold()]
    if len(folded) == 1:
        return folded[0]
    raise _missing(name, fields, engine)


def _missing(name: str, fields: dict[str, Field], engine: Engine) -> DataError:
    return DataError(f"{engine.name} has no column {name!r}. {did_you_mean(name, _printable(fields))}")


def _printable(fields: dict[str, Field]) -> list[str]:
    """Column names fit to be shown: a file without a header may have put anything there."""
    return [f for f in fields if f.isprintable() and len(f) <= 60]


def _declare(
    engine: Engine,
    domain: Domain,
    values: list[exp.Expression],
    others: list[exp.Expression],
    fields: dict[str, Field],
) -> None:
    """Tell an engine that guesses types what plain columns are wanted as."""
    used = [c.name for e in (*values, *others) for c in e.find_all(exp.Column)]
    types: dict[str, Literal["number", "text"]] = {}
    for value, axis in zip(values, domain.axes, strict=True):
        if isinstance(value, exp.Column) and used.count(value.name) == 1:
            if isinstance(axis, Categories):
                types[value.name] = "text"
            elif fields[value.name].kind in ("integer", "float"):
                types[value.name] = "number"
    if types:
        engine.declare(types)


def _check_kinds(
    engine: Engine,
    fields: dict[str, Field],
    domain: Domain,
    columns: tuple[str, ...],
    values: list[exp.Expression],
    keep: exp.Expression | None,
    unit: str | None,
    person: exp.Expression | None,
) -> exp.Expression | None:
    """Refuse what cannot be binned; return the unit with NaN taken as null."""
    named = {f"c{i}": v for i, v in enumerate(values)}
    if keep is not None:
        named["keep"] = keep
    if person is not None:
        named["unit"] = person
    try:
        found = engine.fields(select([], **named).from_(engine.source))
    except DataError:
        used = {c.name for e in named.values() for c in e.find_all(exp.Column)}
        types = ", ".join(f"{c!r} is {fields[c].type}" for c in sorted(used))
        raise UsageError(f"an expression does not fit the types of its columns: {types}.") from None
    for text, axis, i in zip(columns, domain.axes, range(2), strict=False):
        field = found[f"c{i}"]
        if isinstance(axis, Categories):
            if field.kind not in ("text", "integer", "boolean"):
                raise DataError(
                    f"the column {text!r} is of type {field.type}, and categories are text, whole numbers "
                    "or booleans; declare numeric bins, or convert it with CAST."
                )
        elif field.kind == "text":
            raise DataError(
                f"the column {text!r} is text ({field.type}), and these bins need numbers. If it holds "
                f"numbers written as text, count TRY_CAST({text} AS DOUBLE); what is no number is then left "
                "out. Or declare categories."
            )
        elif field.kind not in ("integer", "float", "boolean"):
            raise DataError(
                f"the column {text!r} is of type {field.type}, which these bins cannot take; count a number "
                f"made from it, for example EXTRACT(hour FROM {text})."
            )
    if keep is not None and found["keep"].kind not in ("boolean", "integer"):
        raise UsageError(f"where must be a condition that is true or false, not a {found['keep'].type}.")
    if person is not None:
        if found["unit"].kind == "other":
            raise DataError(f"the unit {unit!r} is of type {found['unit'].type}; name a plain column.")
        if found["unit"].kind == "float":  # NaN is how a dataframe writes a missing number
            return exp.Nullif(this=person, expression=double(math.nan))
    return person


def _wanted(axis: Axis) -> str:
    return "text" if isinstance(axis, Categories) else "double"


def _place(
    engine: Engine, rows: exp.Select, name: str, carried: list[str], axis: Axis, outside: Outside
) -> exp.Select:
    """Replace a value by its bin on an axis; rows without a bin are gone."""
    if isinstance(axis, Categories):
        return _place_label(engine, rows, name, carried, axis)
    value: exp.Expression = column(name)
    low, high = (
        (float(axis.low), float(axis.high))
        if isinstance(axis, Integers)
        else (axis.edges[0].item(), axis.edges[-1].item())
    )
    if isinstance(axis, Integers):
        value = exp.Floor(this=value)
    if outside == "clip":
        # NaN is the greatest number of all to these engines; null passes no comparison.
        kept: exp.Condition = exp.LTE(this=value, expression=double(math.inf))
        value = (
            exp.case()
            .when(exp.LT(this=value.copy(), expression=double(low)), double(low))
            .when(exp.GT(this=value.copy(), expression=double(high)), double(high))
            .else_(value.copy())
        )
    else:
        kept = exp.and_(
            exp.GTE(this=value, expression=double(low)), exp.LTE(this=value.copy(), expression=double(high))
        )
    rows = select(carried, **{name: value.copy()}).from_(rows.subquery("r")).where(kept)
    if isinstance(axis, Integers):
        shifted = exp.cast(exp.Sub(this=column(name), expression=double(low)), "bigint")
        return select(carried, **{name: shifted}).from_(rows.subquery("r"))
    if isinstance(axis, Regular) and _slack(axis) < 0.25:
        return _place_regular(rows, name, carried, axis)
    if axis.n <= _SMALL:
        found = _tree(axis.edges.tolist(), 0, axis.n, name)
        return select(carried, **{name: found}).from_(rows.subquery("r"))
    return engine.search(rows, name, carried, axis.edges)


def _slack(axis: Regular) -> float:
    """How far from an edge, in bins, rounding could move a value across it.

    With m the larger end and u = 2**-53, so m u < ulp(m), and x - lo <= 2m: the quotient
    (x - lo) / step is off by at most 4 ulp(m) / step (two roundings), an edge i * step + lo by 3 ulp(m)
    (two), and the last edge, which is hi itself, by 4. Sixteen is twice what can come together.
    """
    return 16 * math.ulp(max(abs(axis.lo), abs(axis.hi))) / axis.step


def _place_regular(rows: exp.Select, name: str, carried: list[str], axis: Regular) -> exp.Select:
    """The bin by arithmetic; next to an edge, compared with the very doubles numpy has as edges.

    Away from edges (``_slack``) the floor of the quotient is right. Near one it is off by at most one,
    and the comparison with edge g and edge g + 1, computed as numpy computes them, puts it right.
    """
    guess = f"{name}_q"
    quotient = _div(exp.Sub(this=column(name), expression=double(axis.lo)), double(axis.step))
    rows = select([*carried, name], **{guess: quotient}).from_(rows.subquery("r"))
    floor = exp.Floor(this=column(guess))

    def edge(i: exp.Expression) -> exp.Expression:
        return exp.Add(this=exp.Mul(this=i, expression=double(axis.step)), expression=double(axis.lo))

    last = double(float(axis.n - 1))
    after = exp.paren(exp.Add(this=floor.copy(), expression=double(1.0)))
    exact = (
        exp.case()
        .when(exp.LT(this=column(name), expression=edge(floor.copy())), _minus(floor, double(1.0)))
        .when(exp.GTE(this=floor.copy(), expression=last), last.copy())  # the last bin is closed
        .when(exp.GTE(this=column(name), expression=edge(after)), after.copy())
        .else_(floor.copy())
    )
    slack = max(_slack(axis), 2.0**-40)
    away = exp.Between(this=_minus(column(guess), floor), low=double(slack), high=double(1 - slack))
    bin = exp.case().when(away, floor.copy()).else_(exact)
    return select(carried, **{name: exp.cast(bin, "bigint")}).from_(rows.subquery("r"))


def _place_label(
    engine: Engine, rows: exp.Select, name: str, carried: list[str], axis: Categories
) -> exp.Select:
    labels = engine.lookup(f"labels_{name}", {"label": list(axis.labels)}).as_("labels")
    bin: exp.Expression = column("bin", "labels")
    if axis.other:
        bin = exp.Coalesce(this=bin, expressions=[exp.Literal.number(len(axis.labels))])
    same = exp.EQ(this=column(name), expression=column("label", "labels"))
    kind = "left" if axis.other else "inner"
    return (
        select(carried, **{name: bin})
        .from_(rows.subquery("r"))
        .join(labels, on=same, join_type=kind)
        .where(exp.not_(is_null(name)))
    )


def _tree(edges: list[float], low: int, high: int, name: str) -> exp.Expression:
    """A binary search written out as nested CASE."""
    if high - low == 1:
        return exp.Literal.number(low)
    middle = (low + high) // 2
    below = exp.LT(this=column(name), expression=double(edges[middle]))
    return exp.case().when(below, _tree(edges, low, middle, name)).else_(_tree(edges, middle, high, name))


def _number_of(names: list[str], domain: Domain) -> exp.Expression:
    if len(names) == 1:
        return column(names[0])
    stride = exp.cast(exp.Literal.number(domain.axes[1].n), "bigint")
    return exp.Add(this=exp.Mul(this=column(names[0]), expression=stride), expression=column(names[1]))


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


def _minus(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.paren(exp.Sub(this=left.copy(), expression=right.copy()))


def _div(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    # Both are doubles: no dialect may turn this into integer division or guard against zero.
    return exp.Div(this=exp.paren(left), expression=right, typed=True, safe=False)


def double(value: float) -> exp.Expression:
    """A double to its last bit: digits alone would be a decimal in some engines."""
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    return exp.cast(exp.Literal.string("NaN" if math.isnan(value) else text), "double")
