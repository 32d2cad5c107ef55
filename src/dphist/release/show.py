"""How a release shows itself: axes for plotting libraries, a tidy table, a picture, a line, a small page."""

from __future__ import annotations

import html
import importlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.rounded import above, below, nothing_else
from dphist.domain import Axis, Categories, Instants, Integers, Keyed, Regular
from dphist.errors import UsageError
from dphist.release.release import Release

if TYPE_CHECKING:
    from dphist.charts.picture import Picture
    from dphist.release.grouped import GroupedRelease
    from dphist.release.sparse import SparseRelease

Columns = dict[str, NDArray[Any]]
SQL_WORDS = {"CASE", "WHEN", "THEN", "ELSE", "END", "AND", "OR", "NOT", "IS", "IN", "NULL", "LIKE", "BETWEEN"}
NOT_JOURNALED = "not journaled: no ledger will count this epsilon against later releases"


@dataclass(frozen=True)
class Traits:
    """The traits of an axis in the UHI protocol."""

    discrete: bool
    circular: bool = False


@dataclass(frozen=True, repr=False)
class AxisView:
    """An axis as the UHI protocol describes it: a sequence of intervals, whole numbers or labels."""

    axis: Axis

    @property
    def traits(self) -> Traits:
        """Whether bins are single values rather than intervals."""
        return Traits(discrete=isinstance(self.axis, Categories | Integers | Keyed))

    @property
    def edges(self) -> NDArray[np.float64]:
        return self.axis.edges

    def __len__(self) -> int:
        return self.axis.n

    def __getitem__(self, index: int) -> tuple[float, float] | int | str:
        i = range(self.axis.n)[index]
        if isinstance(self.axis, Integers):
            return self.axis.low + i
        if isinstance(self.axis, Categories):
            return self.axis.names()[i]
        if isinstance(self.axis, Keyed):
            return self.axis.name(i)
        return float(self.axis.edges[i]), float(self.axis.edges[i + 1])

    def __iter__(self) -> Iterator[tuple[float, float] | int | str]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"AxisView({self.axis.kind}, {len(self)} bin{'s' * (len(self) != 1)})"


def columns(release: Release, *, level: float = 0.95) -> Columns:
    """Return the tidy table: where each bin is, its value, its raw value and its interval."""
    axes, shape = release.domain.axes, release.domain.shape
    table: Columns = {}
    for i, axis in enumerate(axes):
        prefix = "" if len(axes) == 1 else ("x_", "y_")[i]
        along = [-1 if j == i else 1 for j in range(len(axes))]
        for name, column in axis_columns(axis).items():
            table[prefix + name] = np.broadcast_to(column.reshape(along), shape).ravel()
    low, high = release.presentable_intervals(level=level)
    return table | {
        "value": release.presentable,
        "raw": release.raw,
        "low": low.ravel(),
        "high": high.ravel(),
    }


def axis_columns(axis: Axis) -> Columns:
    """Return where the bins of an axis are."""
    if isinstance(axis, Categories | Keyed):
        return {"label": np.array(axis.names(), dtype=object)}
    edges: NDArray[Any] = axis.edges
    if isinstance(axis, Integers):
        edges = edges.astype(np.int64)
    elif isinstance(axis, Instants):
        edges = np.array(axis.moments(), dtype=object)
    return {"lo": edges[:-1], "hi": edges[1:]}


def frame(release: Release, library: Literal["pandas", "pyarrow", "polars"], *, level: float) -> Any:
    """Return the tidy table as a dataframe of an optional library."""
    return to_frame(release, columns(release, level=level), library)


def to_frame(release: Release | GroupedRelease, table: Columns, library: str) -> Any:
    """Return a release's table as a dataframe that carries with it whether it is private."""
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise UsageError(f"this needs {library}: pip install 'dphist[frames]'.") from error
    # Copies: a dataframe's owner may write into it, a release never changes.
    table = {name: np.array(column) for name, column in table.items()}
    if library == "pyarrow":
        stamp = {name: _bytes(text) for name, text in stamps(release).items()}
        return module.table(table).replace_schema_metadata(stamp)
    made = module.DataFrame(table)
    if library == "pandas":
        made.attrs = stamps(release) | {"simulated": release.simulated}
    return made


def stamps(release: Release | GroupedRelease | SparseRelease) -> dict[str, str]:
    """Return the metadata of a table: above all whether it is private."""
    return {
        "simulated": "yes: not private" if release.simulated else "no",
        "method": release.method,
        "epsilon": decimal(release.epsilon),
        "unit": release.unit,
        **({"bounding": release.bounding} if release.bounding else {}),
    }


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def decimal(number: Fraction) -> str:
    """Return a fraction as people write it: 0.1, or 1/3 where no decimal is exact."""
    text = repr(float(number))
    return text.removesuffix(".0") if Fraction(text) == number else str(number)


def boost_histogram(release: Release) -> Any:
    """Return the values, with their variances where all are known, as a histogram of boost-histogram."""
    try:
        bh = importlib.import_module("boost_histogram")
    except ImportError as error:
        raise UsageError("this needs boost-histogram: pip install boost-histogram.") from error
    axes = [_boost_axis(bh.axis, axis) for axis in release.domain.axes]
    values, variances = release.values(), release.variances()
    if variances is None or not np.isfinite(variances).all():
        made = bh.Histogram(*axes, storage=bh.storage.Double())
        made[...] = values
    else:
        made = bh.Histogram(*axes, storage=bh.storage.Weight())
        made[...] = np.stack((values, variances), axis=-1)
    return made


def _boost_axis(kinds: Any, axis: Axis) -> Any:
    """Return an axis of boost-histogram without the bins beyond its ends."""
    closed = {"underflow": False, "overflow": False}
    if isinstance(axis, Categories | Keyed):
        return kinds.StrCategory(axis.names(), overflow=False)
    if isinstance(axis, Integers):
        return kinds.Integer(axis.low, axis.high + 1, **closed)
    if isinstance(axis, Regular):
        return kinds.Regular(axis.bins, axis.lo, axis.hi, **closed)
    return kinds.Variable(axis.edges, **closed)


def not_journaled(release: Release | GroupedRelease | SparseRelease) -> bool:
    """Return whether no durable ledger was charged for this release."""
    return release.provenance.get("journaled") is False


def short_id(identifier: str) -> str:
    """Return the beginning of a release's id, enough to distinguish releases."""
    return identifier[:8]


def one_line(release: Release | SparseRelease) -> str:
    """Return the release in one line."""
    stamp = ", SIMULATED" if release.simulated else ", not journaled" if not_journaled(release) else ""
    if release.id is not None and not not_journaled(release):
        stamp += f", id={short_id(release.id)}"
    unit, name = " ".join(release.unit.split()), type(release).__name__
    bins = f"{_size(release)} bin{'s' * (release.domain.shape != (1,))}"
    about = f"{release.method!r}, {bins}, epsilon={decimal(release.epsilon)}"
    return f"{name}({about}, unit={unit!r}{stamp})"


def _size(release: Release | SparseRelease) -> str:
    """Return how many bins there are along each axis; very many with commas."""
    form = "d" if isinstance(release, Release) else ",d"
    return " x ".join(f"{n:{form}}" for n in release.domain.shape)


@dataclass(frozen=True)
class Looks:
    """What a person says of a picture: its words, and its width and height in pixels."""

    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    size: tuple[float, float] | None = None


def for_whom(release: Release | GroupedRelease, level: float, *, joint: bool = False) -> str:
    """Return for which bins intervals hold."""
    if joint:
        return f"{100 * level:g} % for all bins at once"
    if release.holds_for_most:
        return f"for about {100 * level:g} % of all bins"
    return f"{100 * level:g} % for each bin on its own"


def subtitle(release: Release | GroupedRelease, level: float | None, *, joint: bool = False) -> str:
    """Return the line under a picture's title."""
    parts = [release.method, f"epsilon {decimal(release.epsilon)}", f"unit: {release.unit}"]
    if release.provenance.get("where"):
        parts.append(f"where {release.provenance['where']}")
    if level is not None:
        parts.append(f"intervals: {for_whom(release, level, joint=joint)}")
    if release.simulated:
        parts.append("SIMULATED: not private")
    return "; ".join(parts)


def draw(
    release: Release,
    *,
    log: bool,
    level: float,
    joint: bool,
    truth: ArrayLike | None,
    looks: Looks,
) -> Picture:
    """Return the picture of a release."""
    from dphist.charts.heatmap import heatmap_chart
    from dphist.charts.histogram import histogram_chart
    from dphist.release.words import usual_title

    title = looks.title or usual_title(release)
    low, high = release.presentable_intervals(level=level, joint=joint)
    finite = np.isfinite(low)
    low, high = np.where(finite, low, np.nan), np.where(finite, high, np.nan)
    known = bool(finite.any())
    if len(release.domain.axes) == 2:
        if truth is not None:
            raise UsageError("a grid is drawn as a map of one release; plot the truth separately.")
        return heatmap_chart(
            release.domain,
            release.values(),
            low=low if known else None,
            high=high if known else None,
            title=title,
            subtitle=subtitle(release, level if known else None, joint=joint),
            x_title=looks.xlabel or _title(release, 0),
            y_title=looks.ylabel or _title(release, 1),
            note=_note(release, known=release.error.variances() is not None),
            size=looks.size,
        )
    return histogram_chart(
        release.domain,
        release.values(),
        low=low if known else None,
        high=high if known else None,
        title=title,
        subtitle=subtitle(release, level if known else None, joint=joint),
        simulated=release.simulated,
        scale="log" if log else "linear",
        truth=truth,
        x_title=looks.xlabel or _title(release, 0),
        y_title=looks.ylabel or "records",
        note=_note(release, known=known),
        groups=None if release.groups.are_singletons else release.groups,
        size=looks.size,
    )


def _note(release: Release, *, known: bool) -> str:
    """Return the note of a chart: why errors are unknown, and the bias of contribution bounding."""
    why = release.error.description.removeprefix("no interval: ").rstrip(".")
    unknown = "" if known else f"How far these values are off is not known: {why}."
    return f"{unknown} {release.bounding}".strip()


def _title(release: Release, axis: int) -> str:
    """Return the name of the column an axis was counted over; nothing for an SQL expression."""
    columns: Any = release.provenance.get("column")
    names = (columns,) if isinstance(columns, str) else columns
    if isinstance(names, tuple) and len(names) == len(release.domain.axes) and isinstance(names[axis], str):
        return plain_name(names[axis])
    return ""


def plain_name(column: str) -> str:
    """Return what was counted if it is the name of a column; nothing if it is an SQL expression.

    A minus with a blank beside it and a word of SQL among several make an expression.
    """
    name = column[1:-1] if re.fullmatch(r'"[^"]+"', column) else column
    words = set(name.upper().split())
    named = re.fullmatch(r"\w+(?:[ .-]\w+)*", name) and not re.fullmatch(r"[\d.-]+", name)
    return name if named and (len(words) == 1 or not SQL_WORDS & words) else ""


def facts(release: Release | SparseRelease) -> list[tuple[str, str]]:
    """Return the release's main facts as names and texts."""
    known = [
        ("method", release.method),
        ("bins", _size(release)),
        ("epsilon", decimal(release.epsilon)),
        ("protects", f"{release.unit} (sensitivity {release.sensitivity})"),
        ("values", release.post if release.post != "none" else "as estimated"),
        ("error", release.error.description if isinstance(release, Release) else release.description),
        *([("accuracy", release.error.accuracy)] if release.error.accuracy else []),
        *([("bounding", release.bounding)] if release.bounding else []),
        ("created", release.created),
        *([] if release.id is None else [("id", short_id(release.id))]),
    ]
    if not_journaled(release):
        known.insert(3, ("ledger", NOT_JOURNALED))
    if release.simulated:
        known.insert(0, ("SIMULATED", "the noise came from a seed; this protects nobody"))
    return known


CARD = """<style>
.dphist-card{max-width:60rem;color:inherit;font:14px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
.dphist-card svg{max-width:100%;height:auto;background:#fff}
.dphist-card table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0}
.dphist-card th,.dphist-card td{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0;
border-bottom:1px solid rgba(127,127,127,.3)}
.dphist-card .number{text-align:right;white-space:nowrap}
.dphist-card .bins{max-height:22rem;overflow:auto}
.dphist-card summary{cursor:pointer;padding:.3rem 0}
</style>"""
MOST_ROWS = 200  # of a card's table; the whole table is in to_pandas() and in the files


def page(release: Release | SparseRelease) -> str:
    """Return a card for notebooks: picture, table and facts, in HTML without scripts; all text is escaped."""
    from dphist.charts.picture import svg_or_nothing

    known = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in facts(release)
    )
    picture = f"<div>{svg}</div>" if (svg := svg_or_nothing(release.plot)) else ""
    stamp = "<p><strong>SIMULATED: not private.</strong></p>" if release.simulated else ""
    bins = f"<div class='bins'>{_table(release)}</div>"
    named = ""
    if not isinstance(release, Release) and release.listing is not None:
        named = " of bins that were named before the list was seen"
    bins = f"<details open><summary>Values and 95 % intervals{named}</summary>{bins}</details>"
    about = f"<details><summary>{html.escape(one_line(release))}</summary><table>{known}</table></details>"
    return f"<div class='dphist-card'>{CARD}{stamp}{picture}{bins}{about}</div>"


def _table(release: Release | SparseRelease) -> str:
    """Return the first bins, their values and intervals, as an HTML table; of very many, the largest."""
    table = columns(release) if isinstance(release, Release) else _largest(release.columns())
    numbers = ("value", "low", "high")
    names = [name for name in table if name not in (*numbers, "raw")] + list(numbers)
    head = "".join(f"<th{_right(name)}>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    many = table["value"].size
    shown = min(many, MOST_ROWS)
    cells = [
        [f"<td{_right(name)}>{html.escape(_cell(x, name))}</td>" for x in table[name][:shown]]
        for name in names
    ]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    what = "bins" if isinstance(release, Release) or release.listing is not None else "groups of bins"
    rest = f"<p>{many - shown:,} more {what} are in <code>to_pandas()</code>.</p>" if many > shown else ""
    empty = nothing_else(table["low"][:shown], table["high"][:shown])
    return f"<table><tr>{head}</tr>{rows}</table>{rest}{f'<p>{empty}</p>' if empty else ''}"


def _largest(table: Columns) -> Columns:
    order = np.argsort(-table["value"], kind="stable")
    return {name: column[order] for name, column in table.items()}


def _right(name: str) -> str:
    return "" if "label" in name or name in ("bin", "first", "last") else " class='number'"


def _cell(entry: Any, name: str) -> str:
    """Return an entry for reading; an end of an interval is rounded outwards, and a dash if not known."""
    if isinstance(entry, str):
        return entry
    number = float(entry)
    if not np.isfinite(number):
        return "\u2013" if np.isnan(number) else str(number)
    outwards = {"low": below, "high": above}.get(name)
    if outwards is not None and number:
        number = outwards(number, min(max(5 - math.floor(math.log10(abs(number))), 0), 300))
    return f"{number:z,.0f}" if number == round(number) or abs(number) >= 1e5 else f"{number:,.6g}"
