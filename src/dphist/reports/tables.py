"""Tables for reading: few enough rows for a page, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dphist._common.rounded import interval, nothing_else
from dphist.domain import Addresses, Axis, Categories, Codes, Hashed, Keyed
from dphist.domain.groups import Floats
from dphist.release.grouped import GroupedRelease
from dphist.release.grouped_show import errors
from dphist.release.release import Estimate, Release
from dphist.release.sparse import SparseRelease
from dphist.release.words import AnyRelease, column_names

MOST_ROWS, COARSE_ROWS, MOST_LABELS = 200, 60, 100
MOST_ACROSS = 8  # columns of a grid
_FEW_RECORDS = 4  # an interval narrower than this is written with a digit after the point


@dataclass(frozen=True)
class Table:
    """Texts in rows; the first column names the row, and the others are numbers."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def tables(release: AnyRelease, *, level: float) -> Iterator[Table]:
    """Yield the tables of a release."""
    if isinstance(release, GroupedRelease):
        yield from _of_groups(release, level=level)
    elif isinstance(release, SparseRelease):
        yield _of_pieces(release, level=level)
    elif len(release.domain.axes) == 2:
        yield from _of_grid(release, level=level)
    else:
        yield _of_line(release, level=level)


def number(value: float, digits: int = 0) -> str:
    """Return a number for reading, with a true minus sign."""
    rounded = f"{value:,.{digits}f}"
    return (rounded.removeprefix("-") if not float(rounded.replace(",", "")) else rounded).replace(
        "-", "\N{MINUS SIGN}"
    )


def ends(low: float | None, high: float | None, digits: int = 0) -> str:
    """Return an interval for reading, rounded outwards, with true minus signs."""
    return interval(low, high, digits).replace("-", "\N{MINUS SIGN}")


def digits_of(low: Floats, high: Floats) -> int:
    """Return how many digits a column needs: none where the error is of several records or not known."""
    width = high - low
    known = width[np.isfinite(width)]
    return 1 if known.size and float(np.median(known)) < _FEW_RECORDS else 0


def _percent(level: float) -> str:
    return f"{100 * level:g}\N{NO-BREAK SPACE}% interval"


def _of_line(release: Release, *, level: float) -> Table:
    n, note = release.domain.n, ""
    shown = release
    if n > MOST_ROWS and not isinstance(release.domain.axis, Categories | Keyed):
        each = _each(n)
        shown = release.rebin(np.append(release.domain.axis.edges[:-1:each], release.domain.axis.edges[-1]))
        note = f"Each row is the sum of {each} of the {n:,} published bins, with its own interval."
        note += " The last row has fewer." if n % each else ""
    values, (low, high) = shown.presentable, shown.presentable_intervals(level=level)
    names = shown.domain.axis.names()
    which = list(range(len(names)))
    if len(names) > MOST_ROWS:
        which = sorted(np.argsort(-values, kind="stable")[:MOST_LABELS].tolist())
        note = f"The {MOST_LABELS} largest of {n:,} labels; the exported table has all."
    digits = digits_of(low, high)
    rows = [(names[i], number(values[i], digits), ends(low[i], high[i], digits)) for i in which]
    note = f"{note} {nothing_else(low[which], high[which])}".strip()
    return Table("Published values", (_named(release, 0), "records", _percent(level)), rows, note)


def _of_pieces(release: SparseRelease, *, level: float) -> Table:
    """Return the largest listed bins, or the largest groups of bins."""
    table, listing = release.columns(level=level), release.listing
    values, low, high = table["value"], table["low"], table["high"]
    largest = np.argsort(-values, kind="stable")[:MOST_LABELS].tolist()
    digits, many = digits_of(low, high), values.size
    what = "groups" if listing is None else "listed bins"
    note = "" if many <= MOST_LABELS else f"The {MOST_LABELS} largest of {many:,} {what}. "
    if listing is None:
        sides = ("first bin", "last bin", "bins", "records", _percent(level))
        groups = [
            (
                *(str(table[name][i]) for name in ("first", "last")),
                f"{table['bins'][i]:,}",
                number(values[i], digits),
                ends(low[i], high[i], digits),
            )
            for i in largest
        ]
        note += nothing_else(low[largest], high[largest])
        return Table("Published groups", sides, groups, note.strip())
    off = listing.all_listed(level) - 1
    header = ("bin", "records", f"at least ({100 * level:g} %, all at once)")
    rows = [
        (str(table["bin"][i]), number(values[i]), number(max(table["raw"][i] - off, 0.0))) for i in largest
    ]
    why = "These bins are shown because they are listed, so that what holds for all at once is said."
    note += why if rows else "No noisy count reached the threshold."
    return Table("Listed bins", header, rows, note)


def _each(n: int) -> int:
    """Return how many bins make a row: a divisor if there is one at hand."""
    least = -(-n // COARSE_ROWS)
    return next((each for each in range(least, 2 * least + 1) if n % each == 0), least)


def _named(release: Release, axis: int) -> str:
    names = column_names(release)
    return names[axis] if names else ("bin", "second axis")[axis]


def _of_grid(release: Release, *, level: float) -> Iterator[Table]:
    """Yield the grid itself if it is small, and the sums along each axis."""
    x, y = release.domain.axes
    if x.n <= COARSE_ROWS and y.n <= MOST_ACROSS:
        values, (low, high) = release.values(), release.presentable_intervals(level=level)
        digits = digits_of(low, high)
        rows = [
            (name, *(_cell(values[i, j], low[i, j], high[i, j], digits) for j in range(y.n)))
            for i, name in enumerate(x.names())
        ]
        corner = f"{_named(release, 0)} (down), {_named(release, 1)} (across)"
        empty = nothing_else(low.ravel(), high.ravel())
        note = f"Below each value: the {_percent(level)} of this cell alone. {empty}".rstrip()
        yield Table("Published values", (corner, *y.names()), rows, note)
    for axis, (along, other) in enumerate(((x, y), (y, x))):
        if along.n > MOST_ROWS or isinstance(x, Hashed) or isinstance(y, Hashed):
            continue  # whole rows of hashes have no name
        rows = []
        for i, name in enumerate(along.names()):
            part, whole = _part(along, i), _all(other)
            rows.append(
                (name, *_answer(release.sum(*((part, whole) if axis == 0 else (whole, part)), level=level)))
            )
        caption = f"Sums along {_named(release, 1 - axis)}"
        yield Table(caption, (_named(release, axis), "records", _percent(level)), rows)


def _cell(value: float, low: float, high: float, digits: int) -> str:
    return f"{number(value, digits)}\n{ends(low, high, digits)}"


def _part(axis: Axis, i: int) -> object:
    if isinstance(axis, Categories):
        return [axis.names()[i]]
    if isinstance(axis, Addresses | Codes):
        return axis.name(i)
    return tuple(axis.edges[i : i + 2].tolist())


def _all(axis: Axis) -> object:
    if isinstance(axis, Categories):
        return axis.names()
    if isinstance(axis, Addresses | Codes):
        return axis.network if isinstance(axis, Addresses) else ""
    return float(axis.edges[0]), float(axis.edges[-1])


def _answer(estimate: Estimate) -> tuple[str, str]:
    return number(estimate.value), ends(estimate.low, estimate.high)


def _of_groups(release: GroupedRelease, *, level: float) -> Iterator[Table]:
    """Yield the totals of the groups of each level, and how large errors are."""
    tree = release.hierarchy
    for at, name in enumerate(tree.names):
        totals, labels = release.totals(name), tree.labels[at]
        most = np.argsort(-totals, kind="stable")[:MOST_LABELS].tolist()
        which = range(len(labels)) if len(labels) <= MOST_ROWS else sorted(most)
        note = "" if len(which) == len(labels) else f"The {MOST_LABELS} largest of {len(labels):,} groups."
        rows = []
        for i in which:
            total = release[name, labels[i]].total(level=level)
            low = total.low if total.low is None or release.post == "none" else max(total.low, 0.0)
            rows.append((labels[i], number(totals[i]), ends(low, total.high)))
        yield Table(f"All records, by {name}", (name, "records", _percent(level)), rows, note)
    head, *rest = errors(release, level=level)
    yield Table("How large errors are", head, rest, "The typical half-width of an interval on each level.")
