"""Axes and scales on paper: columns of bins, rulers, and the text of ticks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.charts.picture import MAX_BARS, WIDTH, Spec, plain
from dphist.domain import Axis, Instants
from dphist.domain.groups import Floats, Groups, Ints

MOST_EDGES = 13  # bins whose edges are written


@dataclass(frozen=True, eq=False)
class Columns:
    """One axis on paper: columns of k bins each, the last one perhaps of fewer."""

    k: int
    starts: Ints
    edges: Floats
    names: list[str]  # written at the columns, if they are not on a ruler
    moments: list[str]  # when the columns begin, if the ruler is a clock
    kind: str
    log: bool = False  # whether the ruler is logarithmic

    @classmethod
    def of(cls, axis: Axis, limit: int) -> Columns:
        """Return the columns of an axis, at most so many."""
        k = -(-axis.n // limit)
        starts = np.arange(0, axis.n, k)
        counted = is_counted(axis)
        edges = _places(axis, np.append(starts, axis.n))
        names = [plain(name) for name in axis.names()] if counted and axis.n <= min(limit, MAX_BARS) else []
        moments = []
        if isinstance(axis, Instants) and not counted:
            moments = [axis.moment(edge) for edge in edges[:-1].tolist()]
        return cls(k, starts, edges, names, moments, axis.kind, is_log(axis))

    def blocks(self, axis: Axis, starts: Ints) -> Columns:
        """Return the columns of bins that were measured together, on the same ruler."""
        edges = _places(axis, np.append(starts, axis.n))
        names = self.names if starts.size == axis.n else []
        return Columns(1, starts, edges, names, [], self.kind, self.log)

    @property
    def m(self) -> int:
        """How many columns there are."""
        return self.starts.size

    @property
    def across(self) -> Floats:
        """How much of the ruler each column takes."""
        ends = np.log(self.edges) if self.log else self.edges
        return np.asarray(np.diff(ends) / (ends[-1] - ends[0]))

    def mean(self, x: Floats, weights: Floats | None = None) -> Floats:
        """Return each column's mean, leaving out NaN; NaN where nothing is left."""
        known = ~np.isnan(x)
        weighed = known.astype(np.float64) if weights is None else np.where(known, weights, 0.0)
        total = np.add.reduceat(np.where(known, x, 0.0) * weighed, self.starts)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / np.add.reduceat(weighed, self.starts))

    def places(self, field: str) -> dict[str, NDArray[Any]]:
        """Return where each column begins, ends and has its middle."""
        a, b = self.edges[:-1], self.edges[1:]
        named = {f"{field} bin": np.array(self.names)} if self.names else {}
        middle = np.sqrt(a * b) if self.log else (a + b) / 2
        return named | {f"{field} from": a, f"{field} to": b, f"{field} middle": middle}

    def is_wide(self, room: float) -> bool:
        """Return whether the names do not fit side by side."""
        return max(map(len, self.names)) * 7 + 8 > room / self.m

    def ruler(self, field: str, title: str, room: float = WIDTH) -> dict[str, Spec]:
        """Return the axis on which the columns lie."""
        lo, hi = float(self.edges[0]), float(self.edges[-1])
        scale: Spec = {"domain": [lo, hi], "nice": False, "zero": False, "padding": 0}
        axis: Spec = {"grid": False, "labelFlush": False, "labelOverlap": not self.names}
        if self.names:
            every = -(-self.m // (60 if field == "x" else 30))
            wide = field == "x" and self.is_wide(room)
            crowded = wide and self.m > 36
            axis |= {"labelExpr": f"{field}names[datum.value - 1]", "labelFontSize": 10 if crowded else 12}
            axis |= {"labelAngle": -90 if crowded else -40 if wide else 0, "labelLimit": 130}
            axis["values"] = list(range(1, self.m + 1, every))
            scale["reverse"] = field == "y"  # a list is read from the top
        elif self.moments:
            every = -(-self.m // (max(2, round(room / 100)) if field == "x" else 12))
            at, shown = self.edges[:-1:every].tolist(), self.moments[::every]
            axis |= {
                "values": at,
                "labelExpr": f"{json.dumps(shown)}[indexof({json.dumps(at)}, datum.value)]",
            }
        elif self.log:
            scale = {"type": "log", "domain": [lo, hi], "nice": False}
            axis |= {"labelExpr": tick_text(lo, hi, log=True), "values": decades([lo, hi])}
        else:
            axis |= {"labelExpr": tick_text(lo, hi, comma=1e4), "labelSeparation": 6}
            edges = {"values": self.edges.tolist(), "labelOverlap": "greedy"}
            axis |= edges if self._has_round_edges() else {"tickCount": 10}
            axis |= {"tickMinStep": 1} if self.kind in ("integers", "categories") else {}
            named = self.kind in ("categories", "addresses", "codes")
            title = f"{title or 'category'}, by number" if named else title
        start = {"field": f"{field} from", "type": "quantitative", "scale": scale, "axis": axis}
        return {field: start | {"title": plain(title) or None}, f"{field}2": {"field": f"{field} to"}}

    def _has_round_edges(self) -> bool:
        """Return whether the edges are few and short enough to be written at the ruler."""
        if self.m > MOST_EDGES or self.kind not in ("regular", "variable") or self.k > 1:
            return False
        step = f"{self.edges[1] - self.edges[0]:.3e}".split("e")[0].rstrip("0").rstrip(".")
        short = all(len(f"{edge:.12g}") <= 7 for edge in self.edges.tolist())
        return short and (self.kind == "variable" or step in ("1", "2", "2.5", "3", "5"))


def is_log(axis: Axis) -> bool:
    """Return whether the edges rise by one factor, as those of logarithmic bins do."""
    edges = axis.edges
    if axis.kind != "variable" or axis.n < 3 or edges[0] <= 0:
        return False
    steps = np.diff(np.log(edges))
    return bool(steps.max() <= 1.02 * steps.min() and edges[-1] >= 2 * edges[0])


def is_counted(axis: Axis) -> bool:
    """Return whether bins are named one by one: labels, and widths that no ruler can show."""
    if axis.kind == "categories":
        return True
    widths = np.diff(axis.edges)
    return axis.n <= 60 and bool(widths.max() > 40 * widths.min()) and not is_log(axis)


def widths_of(axis: Axis, x_title: str) -> tuple[Floats, str]:
    """Return what counts are divided by, and its name: bins of unequal width are drawn by their density.

    Weeks, months and years of the calendar are counted, as everybody does.
    """
    widths = np.diff(axis.edges)
    even = widths.max() <= (1 + 1e-6) * widths.min()
    if axis.kind != "variable" or even or is_counted(axis) or is_log(axis):
        return np.ones(axis.n), ""
    return widths, f" per unit of {x_title or 'the axis'} (density)"


def cut_short(axis: Axis) -> str:
    """Return a word about the last bin of time, if the end cuts it short."""
    widths = np.diff(axis.edges)
    short = isinstance(axis, Instants) and axis.n > 1 and widths[-1] < 0.85 * widths[:-1].min()
    return "The last bin is shorter than the others." if short else ""


def _places(axis: Axis, cuts: Ints) -> Floats:
    """Return where bins begin: named ones lie at 1, 2, ..., and a whole number in the middle of its bin."""
    if is_counted(axis):
        return np.asarray(cuts + 0.5)
    return np.asarray(axis.edges[cuts] - (0.5 if axis.kind == "integers" else 0))


def shared(groups: Groups | None, columns: Sequence[Floats]) -> Ints:
    """Return where blocks begin: runs of bins that were measured together and have all numbers in common."""
    n = columns[0].size
    if groups is None:
        return np.arange(n)
    new = np.diff(groups.labels()) != 0
    for column in columns:
        a, b = column[:-1], column[1:]
        new |= (a != b) & ~(np.isnan(a) & np.isnan(b))
    return np.concatenate(([0], np.flatnonzero(new) + 1))


def block_words(groups: Groups | None, n: int, blocks: int) -> str:
    """Return what is said of bins that share a measurement.

    Args:
        blocks: how many are drawn; more than there are groups, if some bins of one have other numbers.
    """
    if groups is None or groups.k == n:
        return ""
    many = f"{n:,} bins, {groups.k:,} measurement{'' if groups.k == 1 else 's'}"
    if groups.order is None and blocks > groups.k:
        return (
            f"{many}: neighbours that were measured together are drawn as one block where they have all "
            "numbers in common, and bin by bin elsewhere."
        )
    which = "neighbours" if groups.order is None else "bins of like counts, wherever they lie,"
    alike = "" if groups.order is None else ", and equal heights are one measurement"
    return f"{many}: {which} that were measured together share one mean and are drawn as one block{alike}."


def height_scale(data: dict[str, Floats], scale: str, title: str) -> Spec:
    """Return the scale on which counts are drawn, with zero in it."""
    ends = np.concatenate([[0.0], *data.values()])
    lo, hi = float(np.nanmin(ends)), float(np.nanmax(ends))
    hi = hi if hi > lo else 1.0
    # The line at zero is darker: noisy values lie on both sides of it.
    grid = {"condition": {"test": "datum.value === 0", "value": "#777777"}, "value": "#E6E6E6"}
    axis: Spec = {"labelExpr": tick_text(lo, hi, log=scale == "log"), "gridColor": grid}
    if scale == "log":
        shape: Spec = {"type": "symlog", "domain": [1.2 * lo, 1.2 * hi], "nice": False}
        axis["values"] = powers(lo, hi)  # and no tickCount, by which Vega would thin them
    else:
        shape, axis["tickCount"] = {"domain": [lo, hi], "nice": True}, 6
    return {"type": "quantitative", "title": title, "scale": shape, "axis": axis}


def symlog(x: Floats) -> Floats:
    """Return logarithms on both sides of zero."""
    return np.copysign(np.log1p(np.abs(x)), x)


def powers(lo: float, hi: float) -> list[float]:
    """Return round ticks for a scale that is logarithmic on both sides of zero."""
    top = int(np.log10(max(-lo, hi, 1.0)))
    step = -(-(top + 1) // (4 if lo < -10 else 8))
    powers = [float(10**e) for e in range(top, 0 if top > 1 else -1, -step)]
    return sorted({0.0, *(p for p in powers if p <= hi), *(-p for p in powers if -p >= lo)})


def decades(values: list[float]) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 3, 10, 30 ... inside the values."""
    lo, hi = min(values), max(values)
    first, last = math.floor(math.log10(lo)), math.ceil(math.log10(hi))
    ticks = [
        float(f"{k}e{e}") for e in range(first, last + 1) for k in ((1, 3) if last - first <= 5 else (1,))
    ]
    return [tick for tick in ticks if lo * (1 - 1e-9) <= tick <= hi * (1 + 1e-9)]


def tick_text(
    lo: float, hi: float, *, number: str = "datum.value", comma: float = 0, log: bool = False
) -> str:
    """Return the expression of a tick's text: one notation for all ticks of an axis.

    Large numbers that stay distinct so are written in thousands (k), millions (M) or billions (G), all in the
    same; those of a logarithmic axis with all their digits, or with letters where these are too many.
    """
    big = max(abs(lo), abs(hi))
    if log:
        return f"format({number}, '{',.12~g' if big < 1e7 else '~s'}')"
    if not 1e5 <= big < 1e4 * (hi - lo) or big >= 1e15:
        return f"format({number}, '{',.12~g' if comma <= big < 1e15 else '.12~g'}')"
    size, letter = next(unit for unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if big >= unit[0])
    return f"({number}) == 0 ? '0' : format(({number}) / {size:.0f}, ',.12~g') + '{letter}'"
