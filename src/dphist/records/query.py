"""The counting query, built with sqlglot so that every engine gets it in its own dialect.

::

    SELECT bin, COUNT(*) FROM (one row per record: its bin) GROUP BY bin

The rows come from nested selects: the filtered values, then the bin on each axis, then one number per
record, and with a unit the bounded choice of records. What users write enters the query as a parsed and
checked syntax tree or as a table of values, never as text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dphist.domain import (
    MAX_BINS,
    NEEDS_ZONE,
    Axis,
    Categories,
    Domain,
    Hashed,
    Instants,
    Integers,
    Keyed,
    Outside,
    Regular,
    Variable,
)
from dphist.errors import DataError, UsageError
from dphist.records.cells import UNDECODED
from dphist.records.coded import hashed, place_text
from dphist.records.expressions import expression, names_hint, resolve
from dphist.records.reading import kind, with_decimal_commas
from dphist.records.rounding import slack
from dphist.records.sql import Engine, Field, any_of, column, double, holds, is_null, select, try_cast, whole

_LABELS = {"integer": re.compile("0|-?[1-9][0-9]*"), "boolean": re.compile("true|false")}
_SMALL = 64  # up to this number of edges, a tree of comparisons is faster than a join


@dataclass(frozen=True)
class Question:
    """The checked expressions that are evaluated for every record: a value per axis, the filter, the unit.

    Counting and checking both build on it, so that a check describes exactly what would be counted.
    """

    written: list[exp.Expression]  # the values as asked for,
    values: list[exp.Expression]  # and as what their axes are searched by: text, a hash, seconds or a double
    kinds: list[Field]
    fields: dict[str, Field]
    keep: exp.Expression | None
    person: exp.Expression | None  # null where it is not known whose record it is,
    undecoded: exp.Expression | None  # among them those whose unit is not valid text in the encoding
    prefix: str = ""  # of its names, where several questions are asked at once

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}v{i}" for i in range(len(self.values))]


def ask(
    engine: Engine, domain: Domain, *, columns: tuple[str, ...], where: str | None, unit: str | None
) -> Question:
    """Return the expressions for every record; refuse columns that cannot be binned."""
    fields = engine.columns()
    if len(columns) != len(domain.axes):
        wanted = "one column" if len(domain.axes) == 1 else "two columns"
        given = "none was" if not columns else f"{len(columns)} {'was' if len(columns) == 1 else 'were'}"
        such = 'column="age"' if len(domain.axes) == 1 else 'column=("age", "pay")'
        raise UsageError(
            f"the domain needs {wanted} and {given} given; name what to count, such as {such}. "
            + names_hint("", fields, engine)
        )
    written = [resolve(text, fields, engine) for text in columns]
    keep = None if where is None else expression(where, fields, engine)
    person = None if unit is None else resolve(unit, fields, engine)
    values = [_read(v, fields, axis) for v, axis in zip(written, domain.axes, strict=True)]
    if engine.decimal == ",":
        values = [with_decimal_commas(value, fields) for value in values]
        keep = None if keep is None else with_decimal_commas(keep, fields)
    found = _check_kinds(engine, fields, domain, columns, values, keep, unit, person)
    if person is not None and found["unit"].kind == "float":  # NaN is how a dataframe writes a missing number
        person = exp.Nullif(this=person, expression=double(math.nan))
    undecoded = None
    if person is not None:
        texts = _texts(person, fields)
        undecoded = any_of([holds(c, UNDECODED) for c in texts])
        # Different invalid bytes are read as the same text, so that two people could be bounded as one.
        person = exp.case().when(undecoded, exp.Null()).else_(person) if texts else person
    kinds = [found[f"c{i}"] for i in range(len(values))]
    typed = [_typed(engine, v, f, a) for v, f, a in zip(values, kinds, domain.axes, strict=True)]
    return Question(written, typed, kinds, fields, keep, person, undecoded)


def _texts(tree: exp.Expression, fields: dict[str, Field]) -> list[str]:
    """Return the columns of text that an expression is made of."""
    return sorted({node.name for node in tree.find_all(exp.Column) if fields[node.name].kind == "text"})


@dataclass(frozen=True)
class Part:
    """One of the questions of a counting query, and how its records are counted."""

    domain: Domain
    asked: Question
    outside: Outside
    max_contributions: int


def counting_query(engine: Engine, parts: list[Part]) -> exp.Expression:
    """Return the query that counts the records of each bin, or for very many bins that of each one's bin.

    Of several questions, the bins of each follow those of the one before. What is evaluated for a record is
    evaluated once, and the rows of these values are shared by all parts, each of which then filters, bins and
    bounds as if it were alone.
    """
    if len(parts) == 1:
        rows = _rows(engine, parts[0].asked, parts[0], engine.source)
        # Public: how records are counted must not depend on them. The sort takes numbers of 31 digits.
        is_sorted = engine.groups_up_to < parts[0].domain.n <= MAX_BINS
        return rows if is_sorted else _grouped(rows)
    values: dict[str, tuple[str, exp.Expression]] = {}

    def held(value: exp.Expression) -> exp.Expression:
        # Told apart by the whole tree: some trees compare as equal that differ in the case of a word.
        return column(values.setdefault(repr(value), (f"shared_{len(values)}", value))[0])

    questions = [
        replace(
            part.asked,
            prefix=f"h{i}_",
            values=[held(v) for v in part.asked.values],
            keep=None if part.asked.keep is None else held(part.asked.keep),
            person=None if part.asked.person is None else held(part.asked.person),
        )
        for i, part in enumerate(parts)
    ]
    rows = select([], **dict(values.values())).from_(engine.source)
    shared, first = engine.share(rows), 0
    counted: list[exp.Select] = []
    for part, asked in zip(parts, questions, strict=True):
        one = _grouped(_rows(engine, asked, part, shared.copy()))
        bin = exp.Add(this=column("bin"), expression=exp.cast(exp.Literal.number(first), "bigint"))
        counted.append(select([], bin=bin, tally=column("tally")).from_(one.subquery("r")))
        first += part.domain.n
    return exp.union(*counted, distinct=False)


def _rows(engine: Engine, asked: Question, part: Part, source: exp.Expression) -> exp.Select:
    """Return a row with its bin for every record that is counted."""
    domain, outside = part.domain, part.outside
    names, person = asked.names, asked.person
    carried = [] if person is None else ["unit"]
    rows = select([], **dict(zip(names, asked.values, strict=True)))
    rows = rows.from_(source)
    if person is not None:
        rows = rows.select(exp.alias_(person, "unit", quoted=True))
    if asked.keep is not None:
        rows = rows.where(asked.keep)
    for name, field, axis in zip(names, asked.kinds, domain.axes, strict=True):
        others = [*carried, *(n for n in names if n != name)]
        if isinstance(axis, Categories):
            rows = _place_label(engine, rows, name, others, axis)
        elif isinstance(axis, Keyed):
            rows = place_text(rows, name, others, axis)
        elif isinstance(axis, Instants) and axis.ticks is not None:
            rows = _keep(rows, name, others, *ends(axis, field), outside)
            rows = _place_tick(rows, name, others, axis.ticks)
        elif isinstance(axis, Instants):
            rows = _keep(rows, name, others, *ends(axis, field), outside)
            rows = _place_second(engine, rows, name, others, *clock(axis, field))
        else:
            rows = _keep(rows, name, others, *ends(axis, field), outside)
            rows = _place_number(engine, rows, name, others, axis)
    rows = select(carried, bin=_number_of(names, domain)).from_(rows.subquery("r"))
    if person is not None:
        # Records without a unit are left out: several of them could belong to one person.
        rows = rows.where(exp.not_(is_null("unit")))
        rows = engine.bound(rows, part.max_contributions, is_large=domain.is_large)
    return rows


def _grouped(rows: exp.Select) -> exp.Select:
    counted = select(["bin"], tally=exp.Count(this=exp.Star())).from_(rows.subquery("r"))
    return counted.group_by(column("bin"))


def _read(value: exp.Expression, fields: dict[str, Field], axis: Axis) -> exp.Expression:
    """Convert untyped values to the type of their axis; values that cannot be converted get no bin."""
    if isinstance(axis, Categories | Keyed) or kind(value, fields) != "text":
        return value
    return try_cast(value, "timestamp" if isinstance(axis, Instants) else "double")


def _check_kinds(
    engine: Engine,
    fields: dict[str, Field],
    domain: Domain,
    columns: tuple[str, ...],
    values: list[exp.Expression],
    keep: exp.Expression | None,
    unit: str | None,
    person: exp.Expression | None,
) -> dict[str, Field]:
    """Refuse columns that cannot be binned or cannot name a unit; return columns, filter and unit."""
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
    for i, (text, axis) in enumerate(zip(columns, domain.axes, strict=True)):
        _check_column(engine, text, found[f"c{i}"], axis)
    if keep is not None and found["keep"].kind != "boolean":
        raise UsageError(f"where must be a condition that is true or false, not a {found['keep'].type}.")
    if person is not None and found["unit"].kind == "other":
        raise DataError(f"the unit {unit!r} is of type {found['unit'].type}; name a plain column.")
    return found


def _check_column(engine: Engine, text: str, field: Field, axis: Axis) -> None:
    """Refuse a column whose values these bins cannot take."""
    if isinstance(axis, Categories):
        if field.kind not in ("text", "integer", "boolean"):
            raise DataError(
                f"the column {text!r} is of type {field.type}, and categories are text, whole numbers "
                "or booleans; declare other bins, or convert it with CAST."
            )
        form = _LABELS.get(field.kind)
        if form is not None and not any(form.fullmatch(label) for label in axis.labels):
            raise UsageError(
                f"the column {text!r} is of type {field.type}, and no declared category could ever be one of "
                "its values; nothing would be counted."
            )
    elif isinstance(axis, Keyed):
        if field.kind != "text":
            raise DataError(
                f"the column {text!r} is of type {field.type}, and "
                f"{'hashed keys' if isinstance(axis, Hashed) else axis.kind} are text; convert it with CAST."
            )
    elif isinstance(axis, Instants):
        if field.kind == "instant" and axis.tz is None:
            raise DataError(f"the column {text!r} is of type {field.type}: {NEEDS_ZONE}")
        if field.kind not in ("date", "local", "instant"):
            raise DataError(
                f"the column {text!r} is of type {field.type}, and these bins need dates or times; if it "
                f"holds times written as text, count CAST({text} AS TIMESTAMP)."
            )
    elif field.kind == "text":
        raise DataError(
            f"the column {text!r} is text ({field.type}), and these bins need numbers. If it holds "
            f"numbers written as text, count {engine.to_number.format(text)}. Or declare categories."
        )
    elif field.kind in ("date", "local", "instant"):
        raise DataError(
            f"the column {text!r} is of type {field.type}, and these bins need numbers; declare Instants, "
            f"or count a number made from it, for example EXTRACT(hour FROM {text})."
        )
    elif field.kind not in ("integer", "decimal", "float", "boolean"):
        nested = field.type.upper().startswith(("LIST", "STRUCT", "MAP", "ARRAY", "UNION"))
        mend = "make its parts columns of their own first, in a view or a new file"
        mend = mend if nested else f"count a number made from it, for example EXTRACT(hour FROM {text})"
        raise DataError(f"the column {text!r} is of type {field.type}, which these bins cannot take; {mend}.")


def _typed(engine: Engine, value: exp.Expression, field: Field, axis: Axis) -> exp.Expression:
    """Return a value as what its axis is searched by: text, a hash of it, seconds or a double."""
    if isinstance(axis, Hashed):
        return hashed(engine, engine.text(value), axis)
    if isinstance(axis, Categories | Keyed):
        return engine.text(value)
    if isinstance(axis, Instants):
        return engine.seconds(value, field) if axis.ticks is None else engine.microseconds(value, field)
    return engine.number(value, field)


def clock(axis: Instants, field: Field) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the edges that instants, or what a clock showed, are searched by, and their bins."""
    return (axis.edges, np.arange(axis.n)) if field.kind == "instant" else axis.clock


def ends(axis: Axis, field: Field) -> tuple[float, float]:
    """Return the least and the greatest value that lie in a bin of numbers or times; microseconds as int."""
    if isinstance(axis, Integers):
        # The last double below the end; floors are taken after this, where they fit every engine's integers.
        return float(axis.low), max(math.nextafter(axis.high + 1.0, -math.inf), float(axis.high))
    if isinstance(axis, Instants):
        if axis.ticks is not None:
            return axis.ticks[0], axis.ticks[1] - 1
        edges, _ = clock(axis, field)
        return edges[0].item(), edges[-1].item() - 1
    return axis.edges[0].item(), axis.edges[-1].item()


def fits(value: exp.Expression, low: float, high: float, outside: Outside) -> exp.Expression:
    """Ask whether a value gets a bin: in [low, high], or with ``clip`` any number; never null or NaN."""
    if outside == "drop":
        above = exp.GTE(this=value.copy(), expression=_end(low))
        return exp.And(this=above, expression=exp.LTE(this=value.copy(), expression=_end(high)))
    # NaN is the greatest number of all to these engines; null passes no comparison.
    return exp.LTE(this=value.copy(), expression=double(math.inf))


def known_label(axis: Categories, value: exp.Expression, bin: exp.Expression) -> exp.Expression:
    """Ask whether a label gets a bin, given its value and what the table of labels has for it."""
    missing = exp.Is(this=value, expression=exp.Null())
    declared = exp.not_(exp.Is(this=bin.copy(), expression=exp.Null()))
    enough = exp.true() if axis.other else declared
    if axis.null:
        return exp.Or(this=missing, expression=enough)
    return exp.And(this=exp.not_(missing), expression=enough)


def label_table(engine: Engine, name: str, axis: Categories) -> exp.Expression:
    """Return the table of the declared labels and their bins."""
    # No text in any engine holds half a character, or for some a NUL: such a label's bin stays empty.
    labels, bins = list(axis.labels), list(range(len(axis.labels)))
    if not all(map(str.isascii, labels)):
        bins = [bin for bin, label in enumerate(labels) if label.isascii() or _whole(label)]
        labels = [labels[bin] for bin in bins]
    return engine.lookup(f"labels_{name}", {"label": labels, "bin": bins})


def _keep(
    rows: exp.Select, name: str, carried: list[str], low: float, high: float, outside: Outside
) -> exp.Select:
    """Drop the rows whose value is not in [low, high], or move the value there; null and NaN are dropped."""
    value = column(name)
    there = fits(value, low, high, outside)
    if outside == "drop":
        return select([*carried, name]).from_(rows.subquery("r")).where(there)
    moved = (
        exp.case()
        .when(exp.LT(this=value, expression=_end(low)), _end(low))
        .when(exp.GT(this=value.copy(), expression=_end(high)), _end(high))
        .else_(value.copy())
    )
    return select(carried, **{name: moved}).from_(rows.subquery("r")).where(there)


def _place_number(
    engine: Engine,
    rows: exp.Select,
    name: str,
    carried: list[str],
    axis: Regular | Variable | Integers,
) -> exp.Select:
    """Replace a number that has a bin by its bin."""
    if isinstance(axis, Integers):
        low = double(float(axis.low))
        bin = exp.cast(_minus(exp.Floor(this=column(name)), low), "bigint")
        return select(carried, **{name: bin}).from_(rows.subquery("r"))
    if isinstance(axis, Regular) and slack(axis) < 0.25:
        return _place_regular(rows, name, carried, axis)
    return _place_between(engine, rows, name, carried, axis.edges[:-1].tolist(), list(range(axis.n)))


def _end(value: float) -> exp.Expression:
    """Return an end of the values that are counted, as what these are: a double, or a whole number."""
    return whole(value) if isinstance(value, int) else double(value)


def _place_tick(rows: exp.Select, name: str, carried: list[str], ticks: tuple[int, int, int]) -> exp.Select:
    """Replace whole microseconds that have a bin by the bin they lie in."""
    first, _, step = ticks
    since = exp.paren(exp.Sub(this=column(name), expression=whole(first)))
    bin = exp.cast(exp.IntDiv(this=since, expression=whole(step)), "bigint")
    return select(carried, **{name: bin}).from_(rows.subquery("r"))


def _place_second(
    engine: Engine,
    rows: exp.Select,
    name: str,
    carried: list[str],
    edges: NDArray[np.float64],
    bins: NDArray[np.int64],
) -> exp.Select:
    """Replace whole seconds that have a bin by the bin they lie in."""
    low, end = edges[0].item(), edges[-1].item()
    starts = edges[:-1]
    step = np.diff(edges)[0].item()
    even = np.array_equal(starts, low + step * np.arange(starts.size)) and end - starts[-1].item() <= step
    if even and bins[-1] - bins[0] == bins.size - 1:
        # Whole numbers a and b below 2**53: rounding a / b never reaches the next whole number, which is
        # at least 1 / b away, while the rounding is below 2**-53 * a / b.
        quotient = exp.Floor(this=_div(exp.Sub(this=column(name), expression=double(low)), double(step)))
        return select(carried, **{name: exp.cast(quotient, "bigint")}).from_(rows.subquery("r"))
    return _place_between(engine, rows, name, carried, starts.tolist(), bins[: starts.size].tolist())


def _place_between(
    engine: Engine, rows: exp.Select, name: str, carried: list[str], starts: list[float], bins: list[int]
) -> exp.Select:
    if len(starts) > _SMALL:
        return engine.search(rows, name, carried, starts, bins)
    found = exp.cast(_tree(starts, bins, column(name)), "bigint")
    return select(carried, **{name: found}).from_(rows.subquery("r"))


def _place_regular(rows: exp.Select, name: str, carried: list[str], axis: Regular) -> exp.Select:
    """The bin by arithmetic; next to an edge, compared with the very doubles numpy has as edges.

    Away from edges (``slack``) the floor of the quotient is right. Near one it is off by at most one,
    and the comparison with edge g and edge g + 1, computed as numpy computes them, puts it right.
    """
    guess, below = f"{name}_q", f"{name}_f"
    quotient = _div(exp.Sub(this=column(name), expression=double(axis.lo)), double(axis.step))
    rows = select([*carried, name], **{guess: quotient}).from_(rows.subquery("r"))
    # The floor has a select of its own, so that it is taken once.
    rows = select([*carried, name, guess], **{below: exp.Floor(this=column(guess))}).from_(rows.subquery("r"))
    floor = column(below)

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
    table = label_table(engine, name, axis)
    bin: exp.Expression = column("bin", "labels")
    if axis.other:
        bin = exp.Coalesce(this=bin, expressions=[exp.Literal.number(len(axis.labels))])
    if axis.null:
        bin = exp.case().when(is_null(name), exp.Literal.number(axis.n - 1)).else_(bin)
    return (
        select(carried, **{name: exp.cast(bin, "bigint")})
        .from_(rows.subquery("r"))
        .join(
            exp.alias_(table, "labels", table=True),
            on=exp.EQ(this=column(name), expression=column("label", "labels")),
            join_type="left" if axis.other or axis.null else "inner",
        )
        .where(known_label(axis, column(name), column("bin", "labels")))
    )


def _whole(label: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in label)


def _tree(starts: list[float], bins: list[int], value: exp.Expression) -> exp.Expression:
    """A binary search written out as nested CASE."""
    if len(starts) == 1:
        return exp.Literal.number(bins[0])
    middle = len(starts) // 2
    below = exp.LT(this=value.copy(), expression=double(starts[middle]))
    left = _tree(starts[:middle], bins[:middle], value)
    return exp.case().when(below, left).else_(_tree(starts[middle:], bins[middle:], value))


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
