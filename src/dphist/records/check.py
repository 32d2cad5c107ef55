"""How many records are counted and why others are not: exact, for the data steward alone, never published.

Records that fall into no bin are left out of a count silently, since any message would disclose them. So a
decimal comma, a foreign encoding or a misspelt label looks like a histogram of zeros. Here the steward, who
may see the records, learns how many are left out and why. It is built from the same parts as the counting
query, in one pass of the engine::

    SELECT records * 64 + fate, COUNT(*) FROM (
        SELECT fate, person, COUNT(*) AS records FROM (one row per record: its fate) GROUP BY fate, person
    ) GROUP BY records, fate

Nothing that publishes may import this module; import contracts and a test see to that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dphist import records
from dphist.domain import Axis, Categories, Domain, Instants, Keyed, Outside, clock_zone
from dphist.errors import PrivacyError
from dphist.records import query
from dphist.records.cells import UNDECODED, number, written
from dphist.records.coded import with_bins
from dphist.records.engines.files import Text
from dphist.records.engines.untyped import CsvDuck, LineDuck
from dphist.records.lines import LONGEST, is_ended, line_count, open_quotes
from dphist.records.lines import raw as blocks_of
from dphist.records.progress import watching
from dphist.records.sql import Engine, Field, any_of, column, double, holds, is_null, select

__all__ = ["BANNER", "Check", "check"]

BANNER = "NOT PRIVATE: exact counts, for the steward's eyes only. Do not publish, save or send them."
_NOTABLE = 0.1  # the part of all records from which a class gets a hint


class Fate(IntEnum):
    """What becomes of a record: the first case that applies. The last cases are reported for each column."""

    COUNTED = 0
    FILTERED = 1
    NO_UNIT = 2
    LOST_UNIT = 3  # the unit's bytes are not valid text
    UNDECODABLE = 4
    MISSING = 5
    UNREADABLE = 6
    COMMA = 7  # unreadable, and there is a comma, or a point where commas were declared
    UNKNOWN = 8
    NEAR = 9  # unknown, and a declared label but for case and spaces
    OUTSIDE = 10


_NONE_OF = {
    "addresses": "no address of the network",
    "codes": "no code of the form",
    "hashed": "no text",
}
_CODES = 64  # fates of two axes fit: 16 * axis + fate
_PER_AXIS = 16


class Check:
    """How many records were read, counted and left out: not private, so it is shown and never saved.

    Attributes:
        read: all records; the sum of all other numbers.
        counted: those that a release would count.
        filtered: those that do not meet ``where``.
        undecodable: those whose value holds bytes that are not valid in the encoding.
        missing: those without a value: null, NaN or empty.
        unreadable: those whose value is not a number, or not a date or time.
        unknown: those whose label was not declared.
        outside: those beyond the ends of the domain.
        without_unit: those without a value in the unit's column.
        undecodable_unit: those whose unit holds bytes that are not valid in the encoding.
        bounded: those beyond ``max_contributions`` of one person.
        lines_left_out: lines that are not records and are not read: too long, or not a JSON object.
        hints: what to try where many records are left out.
    """

    def __init__(
        self,
        fates: dict[int, int],
        bounded: int,
        *,
        domain: Domain,
        columns: Sequence[str],
        where: str | None,
        unit: str | None,
        encoding: str | None = None,
        decimal: str | None = None,
        lines: int = 0,
        lines_left_out: int = 0,
        open_quotes: int = 0,
        open_ends: int = 0,
        repeated: Sequence[str] = (),
        empty: Sequence[str] = (),
    ) -> None:
        self._fates = fates
        self._domain = domain
        self._columns = columns
        self._where = where
        self._unit = unit
        self._encoding, self._decimal = encoding, decimal
        self._lines, self._empty = lines, empty
        self._open_quotes, self._open_ends, self._repeated = open_quotes, open_ends, repeated
        self.bounded = bounded
        self.lines_left_out = lines_left_out
        self.read = sum(fates.values())
        self.counted = fates.get(Fate.COUNTED, 0) - bounded
        self.filtered = fates.get(Fate.FILTERED, 0)
        self.without_unit = fates.get(Fate.NO_UNIT, 0)
        self.undecodable_unit = fates.get(Fate.LOST_UNIT, 0)
        self.undecodable = self._sum(Fate.UNDECODABLE)
        self.missing = self._sum(Fate.MISSING)
        self.unreadable = self._sum(Fate.UNREADABLE, Fate.COMMA)
        self.unknown = self._sum(Fate.UNKNOWN, Fate.NEAR)
        self.outside = self._sum(Fate.OUTSIDE)

    def _sum(self, *fates: Fate, axis: int | None = None) -> int:
        axes = range(len(self._domain.axes)) if axis is None else (axis,)
        return sum(self._fates.get(_PER_AXIS * i + fate, 0) for i in axes for fate in fates)

    @property
    def hints(self) -> tuple[str, ...]:
        """What to try where many records are left out."""
        found = []
        if self.lines_left_out:
            found.append(
                f"{self.lines_left_out:,} lines are not records: they are longer than {LONGEST:,} bytes, or "
                "not one JSON object."
            )
        if not self.read:
            found.append("no record was read: CSV needs lines after its header, JSON an object on each line.")
            return tuple(found)
        if self._lines > 2 * self.read + 1:
            found.append(
                f"{self._lines:,} lines make {self.read:,} records: a quote that is never closed takes all "
                "that follows it. Leave well_formed out (--well-formed), or mend the quote."
            )
        if self._open_quotes > 1:
            found.append(
                f"{self._open_quotes:,} lines have a quote that is not closed before their end. Newlines "
                "inside quotes take records apart unless they are declared: well_formed=True (--well-formed)."
            )
        if self._open_ends:
            several = f"{self._open_ends:,} files end" if self._open_ends > 1 else "the file ends"
            found.append(
                f"{several} without a newline, as one does that was cut short: compare its size with the "
                "original. Nothing is amiss if the program that wrote it leaves the last newline out."
            )
        found += [
            f"the first line names {name!r} more than once: the first of them is counted, and the next is "
            f"called {name + '_1'!r} here."
            for name in self._repeated
        ]
        for axis, (kind, name) in enumerate(zip(self._domain.axes, self._columns, strict=True)):
            for fate in list(Fate)[Fate.UNDECODABLE :]:
                if self._notable(many := self._sum(fate, axis=axis)):
                    found.append(f"{self._share(many)} {self._hint(fate, name, kind)}")
        if self._notable(self.without_unit):
            found.append(f"{self._share(self.without_unit)} have no {self._unit}, and are left out.")
        if self._notable(self.undecodable_unit):
            found.append(
                f"{self._share(self.undecodable_unit)} have invalid bytes in {self._unit}, and are "
                "left out: different people could be read as one."
                + (" Say what the encoding is (--encoding)." if self._encoding is not None else "")
            )
        if self._notable(self.bounded):
            found.append(
                f"{self._share(self.bounded)} are further records of people who have more of them than "
                "are counted: see max_contributions in docs/error.md."
            )
        if self.filtered and self.filtered == self.read:
            encoding = " and the encoding (--encoding)" if self._encoding is not None else ""
            found.append(
                f"no record meets the condition of where: check how its values are written{encoding}."
            )
        return tuple(found)

    def _hint(self, fate: Fate, name: str, axis: Axis) -> str:
        """Return what many records of one fate have in common, and what to try."""
        if fate == Fate.UNDECODABLE and self._encoding is not None:
            other = "latin-1" if self._encoding == "utf-8" else "utf-8"
            return (
                f"have bytes in {name!r} that are not valid {self._encoding}: try encoding={other!r} "
                f"(--encoding {other}), or the encoding of the program that wrote the file."
            )
        if fate == Fate.UNKNOWN and isinstance(axis, Keyed):
            such = f", such as {axis.name(0)}: check the declaration" if axis.kind != "hashed" else ""
            return f"have in {name!r} {_NONE_OF[axis.kind]}{such}."
        if fate == Fate.UNREADABLE and isinstance(axis, Instants):
            return f"have no date or time in {name!r} that can be read: write 2024-12-31 23:59:59."
        if fate == Fate.COMMA and self._decimal == ",":
            return f"have a point in {name!r} and are not numbers with decimal commas: leave decimal out."
        if fate == Fate.COMMA:
            cast = f"count CAST(REPLACE({name}, ',', '.') AS DOUBLE)"
            mend = cast if self._decimal is None else "try decimal=',' (--decimal ,)"
            return f"have a comma in {name!r} and are not numbers: {mend}."
        return {
            Fate.UNDECODABLE: f"have U+FFFD in {name!r}, which replaces invalid bytes.",
            Fate.MISSING: f"have no value in {name!r}: is it the right column?",
            Fate.UNREADABLE: f"have no number in {name!r}: is it the right column? Text is counted by "
            "categories.",
            Fate.UNKNOWN: f"have a label in {name!r} that was not declared: check how it is spelt"
            + (", and the encoding (--encoding)." if self._encoding is not None else ".")
            + (f" No record has {', '.join(map(repr, self._empty))}." if self._empty else ""),
            Fate.NEAR: f"have in {name!r} a declared label but for case or spaces: declare the labels as the "
            f"records have them, or count LOWER(TRIM({name})).",
            Fate.OUTSIDE: f"lie outside the range of {name!r}: check its ends, and what it is measured in.",
        }[fate]

    def _share(self, many: int) -> str:
        """Return a part of the records in percent; 100% is shown only for all of them."""
        nearly = many < self.read and many >= 0.995 * self.read
        return "99.9%" if nearly else f"{many / self.read:.0%}"

    def _notable(self, many: int) -> bool:
        return many >= _NOTABLE * self.read and many > 0

    def rows(self) -> list[tuple[str, int]]:
        """Return the table: words, and how many records."""
        rows = [("records read", self.read), ("would be counted", self.counted)]
        if self._where is not None:
            rows.append(("do not meet where", self.filtered))
        for axis, (kind, name) in enumerate(zip(self._domain.axes, self._columns, strict=True)):
            rows += [(f"{name}: {words}", self._sum(*fates, axis=axis)) for fates, words in _classes(kind)]
        if self._unit is not None:
            rows.append((f"without a {self._unit}", self.without_unit))
            rows.append((f"{self._unit}: undecodable", self.undecodable_unit))
            rows.append((f"beyond the bound on one {self._unit}", self.bounded))
        return rows

    def __repr__(self) -> str:
        first, *rows = self.rows()
        rows = [
            first,
            *([("lines that are not records", self.lines_left_out)] * bool(self.lines_left_out)),
            *rows,
        ]
        wide, figures = max(len(words) for words, _ in rows), len(f"{self.read:,}")
        lines = [f"  {words:<{wide}}  {many:>{figures},}" for words, many in rows]
        return "\n".join([BANNER, *lines, *(f"hint: {hint}" for hint in self.hints)])

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a check is not private, so it cannot be pickled; run it again instead.")


def _classes(axis: Axis) -> list[tuple[tuple[Fate, ...], str]]:
    """Return under which heading records without a bin on an axis are reported."""
    rows = [((Fate.UNDECODABLE,), "undecodable"), ((Fate.MISSING,), "missing")]
    if isinstance(axis, Categories):
        return [*rows, ((Fate.UNKNOWN, Fate.NEAR), "not a declared label")]
    if isinstance(axis, Keyed):
        return [*rows, ((Fate.UNKNOWN,), _NONE_OF[axis.kind])]
    what = "not a date or time" if isinstance(axis, Instants) else "not a number"
    return [*rows, ((Fate.UNREADABLE, Fate.COMMA), what), ((Fate.OUTSIDE,), "outside the range")]


@records.in_our_words
def check(
    data: Any,
    domain: Domain,
    *,
    columns: str | Sequence[str] = (),
    where: str | None = None,
    outside: Outside = "drop",
    unit: str | None = None,
    max_contributions: int = 1,
    table: str | None = None,
    timezone: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    progress: bool = True,
) -> Check:
    """Return what becomes of every record in a count with these arguments: exact and not private."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    k = records.validate_reading(domain, names, outside, unit, max_contributions)
    zone = clock_zone(domain, timezone)
    written_as = Text(well_formed, encoding, decimal)
    reading: dict[str, Any] = {"table": table, "timezone": timezone, "well_formed": well_formed}
    reading |= {"encoding": encoding, "decimal": decimal, "progress": progress}
    frame, names = records.as_frame(data, names)
    text = records.declared(frame, written_as)
    if frame is None:
        records.refuse_names(names, where, unit, table)
        with watching("the arrays", lambda: None, shown=progress):
            found = _sort_arrays(data, domain, outside)
        plain = ["value"] if len(domain.axes) == 1 else ["first value", "second value"]
        return Check(found, 0, domain=domain, columns=plain, where=None, unit=None)
    options = {"table": table, "zone": zone, "progress": progress, **text}
    with records.engine_of(frame).connect(frame, **options) as engine:
        asked = query.ask(engine, domain, columns=names, where=where, unit=unit)
        codes, groups = engine.run(sorting_query(engine, domain, asked, outside=outside))
        lines = _lines(engine)
        quotes = 0 if well_formed else _open_quotes(engine)
        ends = _open_ends(engine)
    fates: dict[int, int] = {}
    bounded = 0
    for code, many in zip(codes.tolist(), groups.tolist(), strict=True):
        size, fate = divmod(code, _CODES)
        fates[fate] = fates.get(fate, 0) + size * many
        if unit is not None and fate == Fate.COUNTED:
            bounded += max(0, size - k) * many
    empty: list[str] = []
    unknown = any(code % _PER_AXIS in (Fate.UNKNOWN, Fate.NEAR) for code in fates)
    if unknown and not domain.is_large and any(isinstance(axis, Categories) for axis in domain.axes):
        exact = records.count(data, domain, columns=names, where=where, outside=outside, **reading).values
        empty = _empty_labels(domain, exact)
    return Check(
        fates,
        bounded,
        domain=domain,
        columns=names,
        where=where,
        unit=unit,
        encoding=engine.encoding,
        decimal=engine.decimal,
        lines=lines if well_formed else 0,
        lines_left_out=0 if well_formed else max(0, lines - sum(fates.values())),
        open_quotes=quotes,
        open_ends=ends,
        repeated=_repeated(engine, (*names, unit)),
        empty=empty,
    )


def _lines(engine: Engine) -> int:
    """Return the number of lines of text, including lines that are too long; 0 for data that is not text."""
    if not isinstance(engine, LineDuck) or engine.found.format == "json":
        return 0
    found = engine.found
    many = sum(
        line_count(blocks_of(path, engine.declared.encoding), engine.skips_blank) for path in found.paths
    )
    return many if found.format == "jsonl" else many - len(found.paths)  # the headers


def _open_quotes(engine: Engine) -> int:
    """Return the number of lines of delimited text with a quote that they do not close."""
    if not isinstance(engine, CsvDuck):
        return 0
    encoding = engine.declared.encoding
    return sum(open_quotes(blocks_of(path, encoding)) for path in engine.found.paths)


def _open_ends(engine: Engine) -> int:
    """Return how many files of lines end without a newline."""
    if not isinstance(engine, LineDuck) or engine.found.format == "json":
        return 0
    return sum(not is_ended(path, engine.declared.encoding) for path in engine.found.paths)


def _repeated(engine: Engine, names: Sequence[str | None]) -> list[str]:
    """Return which of some columns have a name that the header of delimited text has more than once."""
    return [
        name
        for name in names
        if isinstance(engine, CsvDuck) and name and name.casefold() in engine.header.repeated
    ]


def _empty_labels(domain: Domain, counts: NDArray[Any]) -> list[str]:
    """Return the declared labels that no record has, at most eight of each axis."""
    found = []
    grid = counts.reshape(domain.shape)
    for at, axis in enumerate(domain.axes):
        if isinstance(axis, Categories):
            others = tuple(i for i in range(grid.ndim) if i != at)
            sums = grid.sum(axis=others)
            found += [label for label, many in zip(axis.labels, sums, strict=False) if not many][:8]
    return found


def sorting_query(engine: Engine, domain: Domain, asked: query.Question, *, outside: Outside) -> exp.Select:
    """Return the query that counts the records of each fate, those with a bin by whose they are."""
    rows = _with_facts(engine, asked)
    carried = [expression.alias for expression in rows.expressions]
    for name, axis in zip(asked.names, domain.axes, strict=True):
        if isinstance(axis, Categories):
            rows = _with_labels(engine, rows, name, carried, axis)
            carried += [f"{name}_bin", f"{name}_near"]
        elif isinstance(axis, Keyed):
            rows = with_bins(rows, name, [c for c in carried if c != name], axis)
    fate = exp.case()
    if asked.keep is not None:
        fate = fate.when(_false(column("keep")), _code(Fate.FILTERED))
    for at, (name, axis, field) in enumerate(zip(asked.names, domain.axes, asked.kinds, strict=True)):
        if isinstance(axis, Keyed):
            there: exp.Expression = exp.not_(is_null(name))
            why = _why_no_label(name, at, labelled=False)
        elif isinstance(axis, Categories):
            there = query.known_label(axis, column(name), column(f"{name}_bin"))
            why = _why_no_label(name, at)
        else:
            there = query.fits(column(name), *query.ends(axis, field), outside)
            why = _why_no_value(name, at)
        fate = fate.when(_false(there), why)
    if asked.person is not None:
        fate = fate.when(column("unit_broken"), _code(Fate.LOST_UNIT)).when(
            is_null("unit"), _code(Fate.NO_UNIT)
        )
    sorted_ = select([] if asked.person is None else ["unit"], bin=fate.else_(_code(Fate.COUNTED)))
    rows = sorted_.from_(rows.subquery("r"))
    return _by_person(rows if asked.person is None else engine.gather(rows), person=asked.person is not None)


def _by_person(rows: exp.Select, *, person: bool) -> exp.Select:
    keys = ["bin"]
    if person:
        counted = exp.EQ(this=column("bin"), expression=_code(Fate.COUNTED))
        rows = select(["bin"], who=exp.case().when(counted, column("unit"))).from_(rows.subquery("r"))
        keys.append("who")
    grouped = select(["bin"], many=exp.Count(this=exp.Star())).from_(rows.subquery("r"))
    grouped = grouped.group_by(*[column(key) for key in keys])
    scaled = exp.Mul(this=column("many"), expression=exp.Literal.number(_CODES))
    code = exp.cast(exp.Add(this=scaled, expression=column("bin")), "bigint")
    coded = select([], bin=code).from_(grouped.subquery("r"))
    return (
        select(["bin"], tally=exp.Count(this=exp.Star())).from_(coded.subquery("r")).group_by(column("bin"))
    )


def _with_facts(engine: Engine, asked: query.Question) -> exp.Select:
    """Select for each record its values as a count has them, and what is known of the cells behind them."""
    made: dict[str, exp.Expression] = {}
    mark = "." if engine.decimal == "," else ","
    for name, value, source in zip(asked.names, asked.values, asked.written, strict=True):
        used = {node.name: asked.fields[node.name] for node in source.find_all(exp.Column)}
        made[name] = value.copy()
        made[f"{name}_absent"] = any_of([_absent(c, f) for c, f in used.items()])
        made[f"{name}_broken"] = any_of([holds(c, UNDECODED) for c, f in used.items() if f.untyped])
        made[f"{name}_comma"] = any_of([holds(c, mark) for c, f in used.items() if f.kind == "text"])
    if asked.keep is not None:
        made["keep"] = asked.keep.copy()
    if asked.person is not None:
        made["unit"] = asked.person.copy()
        made["unit_broken"] = (asked.undecoded or exp.false()).copy()
    return select([], **made).from_(engine.source)


def _with_labels(
    engine: Engine, rows: exp.Select, name: str, carried: list[str], axis: Categories
) -> exp.Select:
    """Join a label with the declared ones, and with those that differ in case and spaces alone."""
    labels = query.label_table(engine, name, axis)
    folded = sorted({label.strip().lower() for label in axis.labels if label.isprintable()})
    near = engine.lookup(f"near_{name}", {"label": folded, "bin": list(range(len(folded)))})
    same = exp.EQ(this=column(name), expression=column("label", "labels"))
    alike = exp.EQ(this=exp.Lower(this=exp.Trim(this=column(name))), expression=column("label", "near"))
    found = {f"{name}_bin": column("bin", "labels"), f"{name}_near": column("bin", "near")}
    return (
        select(carried, **found)
        .from_(rows.subquery("r"))
        .join(exp.alias_(labels, "labels", table=True), on=same, join_type="left")
        .join(exp.alias_(near, "near", table=True), on=alike, join_type="left")
    )


def _why_no_value(name: str, axis: int) -> exp.Expression:
    """Return the reason why a number or a time has no bin."""
    null = (
        exp.case()
        .when(column(f"{name}_broken"), _code(Fate.UNDECODABLE, axis))
        .when(column(f"{name}_absent"), _code(Fate.MISSING, axis))
        .when(column(f"{name}_comma"), _code(Fate.COMMA, axis))
        .else_(_code(Fate.UNREADABLE, axis))
    )
    not_a_number = exp.GT(this=column(name), expression=double(math.inf))  # NaN is above all in these engines
    return (
        exp.case()
        .when(is_null(name), null)
        .when(not_a_number, _code(Fate.MISSING, axis))
        .else_(_code(Fate.OUTSIDE, axis))
    )


def _why_no_label(name: str, axis: int, *, labelled: bool = True) -> exp.Expression:
    """Return the reason why a label, an address or a code has no bin."""
    why = (
        exp.case()
        .when(column(f"{name}_broken"), _code(Fate.UNDECODABLE, axis))
        .when(column(f"{name}_absent"), _code(Fate.MISSING, axis))
    )
    if labelled:
        why = why.when(exp.not_(is_null(f"{name}_near")), _code(Fate.NEAR, axis))
    return why.else_(_code(Fate.UNKNOWN, axis))


def _absent(name: str, field: Field) -> exp.Expression:
    if field.kind == "text":
        empty = exp.EQ(this=exp.Trim(this=exp.cast(column(name), "text")), expression=exp.Literal.string(""))
    elif field.kind == "float":
        empty = exp.EQ(this=column(name), expression=double(math.nan))
    else:
        return is_null(name)
    return exp.Or(this=is_null(name), expression=empty)


def _false(condition: exp.Expression) -> exp.Expression:
    """Ask whether a condition is not true: false or null."""
    return exp.not_(exp.Coalesce(this=exp.paren(condition), expressions=[exp.false()]))


def _code(fate: Fate, axis: int = 0) -> exp.Expression:
    return exp.Literal.number(_PER_AXIS * axis + fate)


def _sort_arrays(data: object, domain: Domain, outside: Outside) -> dict[int, int]:
    """Count what becomes of the values of bare arrays; the bins are found as a count finds them."""
    arrays = records.plain_arrays(data, domain)
    cells: Sequence[Any] = [data] if len(arrays) == 1 else data  # type: ignore[assignment]
    fates = np.zeros(len(arrays[0]), dtype=np.int64)
    for at, (axis, part, raw) in enumerate(zip(domain.axes, arrays, cells, strict=True)):
        values = records.as_labels(part) if isinstance(axis, Categories | Keyed) else part
        folded = {label.strip().lower() for label in axis.labels} if isinstance(axis, Categories) else set()
        gone = (axis.index(values, outside) < 0) & (fates == Fate.COUNTED)
        for i in np.flatnonzero(gone).tolist():
            fates[i] = _PER_AXIS * at + _why(axis, raw[i], folded)
    codes, many = np.unique(fates, return_counts=True)
    return dict(zip(codes.tolist(), many.tolist(), strict=True))


def _why(axis: Axis, cell: Any, folded: set[str]) -> Fate:
    """Return the reason why one cell has no bin."""
    text = None if cell is np.ma.masked else written(cell)
    if text is None or not text.strip():
        return Fate.MISSING
    if UNDECODED in text:
        return Fate.UNDECODABLE
    if isinstance(axis, Keyed):
        return Fate.UNKNOWN
    if isinstance(axis, Categories):
        return Fate.NEAR if text.strip().lower() in folded else Fate.UNKNOWN
    value = np.array([cell], dtype=object) if isinstance(axis, Instants) else [number(cell)]
    if axis.index(value, "clip")[0] >= 0:
        return Fate.OUTSIDE
    return Fate.COMMA if "," in text else Fate.UNREADABLE
