"""Addresses, codes and hashes to bins, in the query: digits are looked up in text, and no record can fail.

Nothing is cast: a text that is no address or code would stop the query there. What the digits of such a text
come to is a small number that nobody reads, since its form decides.
"""

from __future__ import annotations

from sqlglot import exp

from dphist.domain import Addresses, Codes, Hashed, Keyed
from dphist.domain.addresses import FORMS
from dphist.domain.hashed import LONGEST_KEY
from dphist.records.cells import UNDECODED
from dphist.records.sql import Engine, column, double, is_null, select, whole

_HEX = "0123456789abcdef"


def with_bins(rows: exp.Select, name: str, carried: list[str], axis: Keyed) -> exp.Select:
    """Replace the texts that are addresses or codes, or hashes, by their bins, and all others by null."""
    if isinstance(axis, Codes):
        return _with_codes(rows, name, carried, axis)
    if isinstance(axis, Hashed):
        bin = _where([exp.not_(is_null(name))], _first_bits(column(name), axis.bits))
        return select(carried, **{name: bin}).from_(rows.subquery("r"))
    return _with_addresses(rows, name, carried, axis)


def place_text(rows: exp.Select, name: str, carried: list[str], axis: Keyed) -> exp.Select:
    """Replace the texts that have bins by these; rows with others are left out."""
    found = with_bins(rows, name, carried, axis)
    return select([*carried, name]).from_(found.subquery("r")).where(exp.not_(is_null(name)))


def hashed(engine: Engine, text: exp.Expression, axis: Hashed) -> exp.Expression:
    """Return the digits of a key's hash in base 16; null for what is no text, or longer than any key."""
    short = exp.LTE(this=exp.Length(this=text.copy()), expression=exp.Literal.number(LONGEST_KEY))
    whole = exp.EQ(this=_position_in(text, UNDECODED), expression=exp.Literal.number(0))
    salted = exp.DPipe(this=_text(axis.salt), expression=text.copy()) if axis.salt else text.copy()
    return _where([short, whole], engine.sha256(salted))


def _first_bits(digits: exp.Expression, bits: int) -> exp.Expression:
    """Return the number that the first bits of digits in base 16 write."""
    many, more = divmod(bits, 4)
    found = _number(digits, 16, many)
    if more:
        digit = _minus_one(_position(_HEX, _part(digits, many + 1, 1)))
        share = exp.Mul(this=exp.cast(exp.paren(digit), "double"), expression=double(2.0 ** (more - 4)))
        found = _plus(_times(found, 1 << more), exp.cast(exp.Floor(this=share), "bigint"))
    return found


def _with_codes(rows: exp.Select, name: str, carried: list[str], axis: Codes) -> exp.Select:
    value, ok = column(name), f"{name}_ok"
    places = [f"{name}_c{i}" for i in range(len(axis.places))]
    found = {
        made: _position(of, _part(value, i, 1))
        for i, (made, of) in enumerate(zip(places, axis.places, strict=True), 1)
    }
    found[ok] = exp.EQ(this=exp.Length(this=value.copy()), expression=exp.Literal.number(len(places)))
    rows = select(carried, **found).from_(rows.subquery("r"))
    bin: exp.Expression = whole(0)
    for made, of in zip(places, axis.places, strict=True):
        bin = _plus(_times(bin, len(of)), exp.paren(_minus_one(column(made))))
    every = [exp.GT(this=column(p), expression=exp.Literal.number(0)) for p in places]
    return select(carried, **{name: _where([column(ok), *every], bin)}).from_(rows.subquery("r"))


def _with_addresses(rows: exp.Select, name: str, carried: list[str], axis: Addresses) -> exp.Select:
    width, base, pad, mark = (8, 10, 3, ".") if axis.family == 4 else (16, 16, 4, ":")
    value, ok = column(name), f"{name}_ok"
    # A newline at the end passes the $ of some engines, so that the last character is looked at, too.
    last = _part(value, exp.Length(this=value.copy()), 1)
    ends = exp.GT(this=_position(_HEX + _HEX[10:].upper() + ":", last), expression=exp.Literal.number(0))
    form = exp.RegexpLike(this=value.copy(), expression=exp.Literal.string(FORMS[axis.family]))
    rows = select([*carried, name], **{ok: exp.And(this=form, expression=ends)}).from_(rows.subquery("r"))
    carried = [*carried, ok]
    if axis.family == 6:
        rows = _written_out(rows, name, carried)
    limbs = [f"{name}_l{i}" for i in range(max(-(-axis.prefix // width), 1))]
    split = {
        limb: exp.Anonymous(
            this="LPAD", expressions=[_split(column(name), mark, i), exp.Literal.number(pad), _text("0")]
        )
        for i, limb in enumerate(limbs, 1)
    }
    rows = select(carried, **split).from_(rows.subquery("r"))
    numbers = {limb: _number(column(limb), base, pad) for limb in limbs}
    rows = select(carried, **numbers).from_(rows.subquery("r"))
    inside, bin = _of_limbs(axis, limbs, width)
    found = {name: _where([column(ok), *inside], bin)}
    return select([c for c in carried if c != ok], **found).from_(rows.subquery("r"))


def _where(conditions: list[exp.Expression], bin: exp.Expression) -> exp.Expression:
    """Return a bin where all conditions are true, and null elsewhere."""
    return exp.case().when(exp.and_(*conditions), bin)


def _of_limbs(axis: Addresses, limbs: list[str], width: int) -> tuple[list[exp.Expression], exp.Expression]:
    """Return what the parts of an address in the network satisfy, and the bin that they come to."""
    inside: list[exp.Expression] = []
    bin: exp.Expression = whole(0)
    for i, limb in enumerate(limbs):
        start = i * width  # of the digits of an address, this part has those from start to start + width
        shared = min(max(axis.length - start, 0), width)
        low = (axis.base >> (axis.bits - start - width)) & ((1 << width) - 1)
        if shared:
            high = low + (1 << (width - shared)) - 1
            inside.append(exp.Between(this=column(limb), low=whole(low), high=whole(high)))
        beyond = max(start + width - axis.prefix, 0)  # digits that no bin tells apart
        if shared == width:
            continue
        part: exp.Expression = exp.Sub(this=column(limb), expression=whole(low)) if low else column(limb)
        if beyond:
            share = exp.Mul(this=exp.cast(exp.paren(part), "double"), expression=double(2.0**-beyond))
            part = exp.cast(exp.Floor(this=share), "bigint")
        bin = _plus(bin, _times(exp.paren(part), 1 << max(axis.prefix - start - width, 0)))
    return inside, bin


def _written_out(rows: exp.Select, name: str, carried: list[str]) -> exp.Select:
    """Write the groups out that :: leaves out. With a zero beside it, there are as many groups as colons."""
    value = column(name)
    colon = _text(":")
    first, last = _part(value, 1, 1), _part(value, exp.Length(this=value.copy()), 1)
    before = exp.case().when(exp.EQ(this=first, expression=colon), _text("0")).else_(_text(""))
    after = exp.case().when(exp.EQ(this=last, expression=colon.copy()), _text("0")).else_(_text(""))
    padded = exp.DPipe(this=exp.DPipe(this=before, expression=exp.Lower(this=value.copy())), expression=after)
    rows = select(carried, **{name: padded}).from_(rows.subquery("r"))
    none = exp.Length(this=_replaced(column(name), ":", _text("")))
    colons = exp.Sub(this=exp.Length(this=column(name)), expression=none)
    missing = exp.Mul(
        this=exp.paren(exp.Sub(this=exp.Literal.number(8), expression=exp.paren(colons))),
        expression=exp.Literal.number(2),
    )
    # Without :: nothing is replaced, and there is one colon less than groups.
    zeros = exp.Substring(this=_text("0:" * 8), start=exp.Literal.number(1), length=missing)
    between = exp.DPipe(this=_text(":"), expression=zeros)
    return select(carried, **{name: _replaced(column(name), "::", between)}).from_(rows.subquery("r"))


def _number(digits: exp.Expression, base: int, many: int) -> exp.Expression:
    found: exp.Expression = whole(0)
    for i in range(1, many + 1):
        digit = _minus_one(_position(_HEX[:base], _part(digits, i, 1)))
        found = _plus(_times(found, base), exp.paren(digit))
    return found


def _position(of: str, character: exp.Expression) -> exp.Expression:
    """Return where a character stands in a text, from 1 on; 0 if nowhere."""
    return exp.cast(exp.StrPosition(this=_text(of), substr=character), "bigint")


def _position_in(value: exp.Expression, text: str) -> exp.Expression:
    return exp.StrPosition(this=exp.paren(value.copy()), substr=_text(text))


def _part(value: exp.Expression, start: int | exp.Expression, length: int) -> exp.Expression:
    at = exp.Literal.number(start) if isinstance(start, int) else start
    return exp.Substring(this=value.copy(), start=at, length=exp.Literal.number(length))


def _split(value: exp.Expression, mark: str, at: int) -> exp.Expression:
    return exp.Anonymous(this="SPLIT_PART", expressions=[value, _text(mark), exp.Literal.number(at)])


def _replaced(value: exp.Expression, old: str, new: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="REPLACE", expressions=[value, _text(old), new])


def _text(value: str) -> exp.Expression:
    return exp.Literal.string(value)


def _plus(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.paren(exp.Add(this=left, expression=right))


def _times(value: exp.Expression, factor: int) -> exp.Expression:
    return exp.Mul(this=value, expression=whole(factor))


def _minus_one(value: exp.Expression) -> exp.Expression:
    return exp.Sub(this=value, expression=exp.Literal.number(1))
