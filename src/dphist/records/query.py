"""The counting query, built with sqlglot so that every engine gets it in its own dialect.

::

    SELECT bin, COUNT(*) FROM (one row per record: its bin) GROUP BY bin

The rows come from nested selects: the filtered values, then the bin on each axis, then one number per
record, and with a unit the bounded choice of records. Whatever a person wrote goes in as a parsed,
checked syntax tree or as a table of values, never as text.
"""

from __future__ import annotations

import math
from typing import Literal

from sqlglot import exp

from dphist.domain import Axis, Categories, Domain, Integers, Outside, Regular
from dphist.errors import DataError, UsageError, did_you_mean
from dphist.records.expressions import expression, printable, resolve
from dphist.records.rounding import slack
from dphist.records.sql import Engine, Field, column, double, is_null, select

_SMALL = 64  # up to so many edges a tree of comparisons is faster than a join


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
            + did_you_mean("", printable(fields))
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
    if keep is not None and found["keep"].kind != "boolean":
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
    if isinstance(axis, Regular) and slack(axis) < 0.25:
        return _place_regular(rows, name, carried, axis)
    if axis.n <= _SMALL:
        found = _tree(axis.edges.tolist(), 0, axis.n, name)
        return select(carried, **{name: found}).from_(rows.subquery("r"))
    return engine.search(rows, name, carried, axis.edges)


def _place_regular(rows: exp.Select, name: str, carried: list[str], axis: Regular) -> exp.Select:
    """The bin by arithmetic; next to an edge, compared with the very doubles numpy has as edges.

    Away from edges (``slack``) the floor of the quotient is right. Near one it is off by at most one,
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
    margin = max(slack(axis), 2.0**-40)
    away = exp.Between(this=_minus(column(guess), floor), low=double(margin), high=double(1 - margin))
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


def _minus(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.paren(exp.Sub(this=left.copy(), expression=right.copy()))


def _div(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    # Both are doubles: no dialect may turn this into integer division or guard against zero.
    return exp.Div(this=exp.paren(left), expression=right, typed=True, safe=False)
