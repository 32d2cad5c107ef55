"""Small multiples: a histogram for each of several groups, on the same axes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.charts.columns import Columns, tick_text
from dphist.charts.picture import BAR as BAR_COLOUR
from dphist.charts.picture import (
    BLUE,
    INK,
    MOST_ROWS,
    SKY,
    TIP,
    WIDTH,
    Picture,
    Spec,
    Table,
    checked,
    checked_size,
    frame,
    plain,
    words_of,
)
from dphist.domain import Domain
from dphist.domain.groups import Floats
from dphist.errors import UsageError

MOST_COLUMNS = 200  # of bins in a small picture
MOST_BARS = 24  # labels that are written beside their bars
GAP, BAR = 18, 13  # pixels between pictures, and for each bar
_LETTER = 6.4  # the width of a letter, in pixels
_MOST_BESIDE = 180  # pixels for labels beside their bars
_LINE = 0.02  # room for the line of the largest value, in the same units
_WORDS, _HEAD = 110, 48  # pixels for the words above all pictures, and for those of each row
_REACH = 0.5  # how far above all values a band may reach, in units of the values' range


@dataclass(frozen=True, eq=False)
class Panel:
    """What is drawn of one group.

    Args:
        name: its label.
        values: one per bin.
        low: the lower ends of the intervals, NaN where unknown.
        high: the upper ends.
        is_clear: whether its total is clearly above zero, so that shares of it mean something.
    """

    name: str
    values: Floats
    low: Floats
    high: Floats
    is_clear: bool = True

    @property
    def total(self) -> float:
        """The sum of all bins."""
        return float(np.sum(self.values))


def multiples_chart(
    domain: Domain,
    panels: Sequence[Panel],
    *,
    shares: bool = False,
    title: str = "",
    subtitle: str = "",
    x_title: str = "",
    y_title: str = "records",
    note: str = "",
    size: tuple[float, float] | None = None,
) -> Picture:
    """Return a small histogram for each group, all on the same axes, each with its total at its name.

    Args:
        shares: draw each bin's share of its group: groups of very different size can then be compared.
        note: a sentence that stands below the subtitle.
        size: width and height of the whole picture, in pixels.
    """
    if not panels:
        raise UsageError("there is nothing to draw: give at least one group.")
    x = Columns.of(domain.axis, MOST_COLUMNS)
    lists = bool(x.names) and x.m <= MOST_BARS
    beside = min(_MOST_BESIDE, round(max(map(len, x.names)) * _LETTER)) if lists else 40
    size = checked_size(size)
    room = WIDTH if size is None else int(size[0]) - 30
    across, width = _layout(panels, room - beside)
    drawn = [_numbers(panel, domain, x, shares=shares) for panel in panels]
    lo, hi, cut = _reach(drawn)
    blank = sum(not panel.is_clear for panel in panels) if shares else 0
    along = plain(x_title) or "bin"
    along += ", by number" if x.kind == "categories" and not lists else ""
    of = f"share of the group's {plain(y_title)}" if shares else plain(y_title)
    said = [
        note,
        f"Bars: {of}, by {along}." if lists else f"Across: {along}; upwards: {of}.",
        "Same scale in all; at the name: all records of the group.",
        f"No shares of {blank:,} whose total cannot be told from zero." if blank else "",
        f"Each step is the mean of {x.k:,} bins, with the interval typical of one." if x.k > 1 else "",
        "Bands that reach further are cut off." if cut else "",
    ]
    value = _value_axis(lo, hi, shares=shares, width=width if lists else 0)
    build = _bars if lists else _steps
    table, layers = build(x, drawn, value, _place_axis(x, width, lists=lists))
    two = any(len(_head(panel, width, two=False)) > 1 for panel in panels)
    names = {"xnames": x.names, "panelnames": [_head(panel, width, two=two) for panel in panels]}
    about = f"{len(panels):,} histograms of {domain.n:,} bins"
    spec = frame(
        title, subtitle, (" ".join(filter(None, said)),), about, {"panels": table}, names, width=room
    )
    head: Spec = {
        "title": None,
        "labelExpr": "panelnames[datum.value]",
        "labelAnchor": "start",
        "labelColor": INK,
    }
    head |= {"labelFontSize": 12, "labelPadding": 4, "labelLimit": width + GAP}
    tall = x.m * BAR if lists else 150 if len(panels) <= 3 else 95
    if size is not None:
        rows = -(-len(panels) // across)
        tall = max(30, round((size[1] - _WORDS) / rows) - _HEAD)
    return Picture(
        spec
        | {
            "data": {"name": "panels"},
            "facet": {"field": "panel", "type": "ordinal", "header": head},
            "columns": across,
            "spacing": {"row": 14, "column": GAP},
            "spec": {"width": width, "height": tall, "layer": layers},
            # Where the last row has gaps, a common axis would stand below nothing.
            "resolve": {"axis": {"x": "independent" if len(panels) % across else "shared"}},
        },
        _table(domain, panels),
    )


def _table(domain: Domain, panels: Sequence[Panel]) -> Table:
    """Return the values in words, a row for each bin and a column for each group."""
    if domain.n * len(panels) > MOST_ROWS:
        return ()
    columns = [[words_of(value) for value in np.ravel(panel.values).tolist()] for panel in panels]
    head = ["bin", *(panel.name for panel in panels)]
    return [head, *([name, *row] for name, *row in zip(domain.axis.names(), *columns, strict=True))]


def _layout(panels: Sequence[Panel], room: int) -> tuple[int, int]:
    """Return how many pictures stand side by side and how wide each is.

    Rows come out as even as they can, and names on two lines as whole as they can.
    """
    many, longest = len(panels), max(len(panel.name) + len(_total(panel)) for panel in panels)
    widths = {across: (room - (across - 1) * GAP) // across for across in range(1, 7)}
    if many <= 3:
        return many, widths[many]
    sides = range(4 if many <= 12 else 6, 1, -1)
    fit = [across for across in sides if 2 * _letters(widths[across]) >= longest] or [2]
    across = min((across for across in fit if across > 2), key=lambda k: -many % k, default=fit[0])
    return across, widths[across]


def _numbers(panel: Panel, domain: Domain, x: Columns, *, shares: bool) -> dict[str, Floats]:
    """Return what is drawn for each column of bins; nothing where shares mean nothing."""
    y = checked(panel.values, domain, "values")
    low, high = (checked(end, domain, "intervals", gaps=True) for end in (panel.low, panel.high))
    known = np.isfinite(low) & np.isfinite(high)
    middle = x.mean(y)
    unit = 1.0
    if shares:
        unit = panel.total if panel.is_clear and panel.total > 0 else np.nan
    return {
        "value": middle / unit,
        "low": (middle - x.mean(np.where(known, y - low, np.nan))) / unit,
        "high": (middle + x.mean(np.where(known, high - y, np.nan))) / unit,
    }


def _reach(drawn: Sequence[dict[str, Floats]]) -> tuple[float, float, bool]:
    """Return the ends of the common axis, and whether some band is cut off by them."""
    values = np.concatenate([[0.0], *(part["value"] for part in drawn)])
    lo, hi = float(np.nanmin(values)), float(np.nanmax(values))
    hi = hi if hi > lo else 1.0
    bands = np.concatenate([[lo, hi], *(part[end] for part in drawn for end in ("low", "high"))])
    least, most = float(np.nanmin(bands)), float(np.nanmax(bands))
    room, line = _REACH * (hi - lo), _LINE * (hi - lo)
    top = max(min(most, hi + room), hi + line)  # half of a line at the edge would be cut off
    return max(least, lo - room), top, least < lo - room or most > hi + room


def _value_axis(lo: float, hi: float, *, shares: bool, width: int) -> Spec:
    text = "format(datum.value, '.0%')" if hi - lo > 0.05 else "format(datum.value, '.1%')"
    grid = {"condition": {"test": "datum.value === 0", "value": "#777777"}, "value": "#E6E6E6"}
    axis: Spec = {"labelExpr": text if shares else tick_text(lo, hi), "gridColor": grid, "domain": False}
    axis |= {"ticks": False, "tickCount": 3, "labelFlush": bool(width), "labelOverlap": True}
    scale = {"domain": [lo, hi], "nice": False, "zero": False}
    return {"type": "quantitative", "title": None, "scale": scale, "axis": axis}


def _place_axis(x: Columns, width: int, *, lists: bool) -> Spec:
    """Return the axis along the bins, with few enough words for a small picture."""
    lo, hi = float(x.edges[0]), float(x.edges[-1])
    axis: Spec = {"grid": False, "labelOverlap": True, "labelFlush": True}
    scale: Spec = {"domain": [lo, hi], "nice": False, "zero": False, "padding": 0}
    if lists:
        scale["reverse"] = True  # a list is read from the top
        axis |= {"values": list(range(1, x.m + 1)), "labelExpr": "xnames[datum.value - 1]"}
        axis |= {
            "labelLimit": _MOST_BESIDE,
            "labelOverlap": False,
            "labelFlush": False,
            "ticks": False,
            "domain": False,
        }
    elif x.moments:
        longest = max(map(len, x.moments))
        many = max(1, int(width / (longest * _LETTER + 12)))
        at = list(range(0, x.m, -(-x.m // many)))
        places, words = [float(x.edges[i]) for i in at], [x.moments[i] for i in at]
        axis |= {"values": places, "labelOverlap": False, "labelAlign": "left"}
        axis["labelExpr"] = f"{json.dumps(words)}[indexof({json.dumps(places)}, datum.value)]"
    else:
        axis |= {"labelExpr": tick_text(lo, hi, comma=1e4), "tickCount": max(2, width // 60)}
        axis |= {"tickMinStep": 1} if x.kind in ("integers", "categories") else {}
    return {"type": "quantitative", "title": None, "scale": scale, "axis": axis}


def _steps(
    x: Columns, drawn: Sequence[dict[str, Floats]], value: Spec, place: Spec
) -> tuple[dict[str, NDArray[Any]], list[Spec]]:
    """Return a line of steps for each group, with a band as wide as its bin."""
    corner = np.repeat(x.edges, 2)[1:-1]  # two points per column draw exact steps
    table: dict[str, NDArray[Any]] = {
        "panel": np.repeat(np.arange(len(drawn)), corner.size),
        "corner": np.tile(corner, len(drawn)),
    }
    table |= {key: np.concatenate([np.repeat(part[key], 2) for part in drawn]) for key in drawn[0]}
    along, area = {"x": place | {"field": "corner"}}, {"type": "area", "clip": True}
    line = {"type": "line", "strokeJoin": "round", "strokeWidth": 1.3, "color": BLUE, "clip": True}
    return table, [
        {
            "mark": area | {"color": SKY, "opacity": 0.25},
            "encoding": along | {"y": value | {"field": "value"}, "y2": {"datum": 0}},
        },
        {
            "mark": area | {"color": SKY, "opacity": 0.8},
            "encoding": along | {"y": value | {"field": "low"}, "y2": {"field": "high"}},
        },
        {"mark": line, "encoding": along | {"y": value | {"field": "value"}}},
    ]


def _bars(
    x: Columns, drawn: Sequence[dict[str, Floats]], value: Spec, place: Spec
) -> tuple[dict[str, NDArray[Any]], list[Spec]]:
    """Return a list of bars for each group, with a thin line for each interval."""
    table: dict[str, NDArray[Any]] = {"panel": np.repeat(np.arange(len(drawn)), x.m)}
    table |= {key: np.tile(part, len(drawn)) for key, part in x.places("x").items()}
    table |= {key: np.concatenate([part[key] for part in drawn]) for key in drawn[0]}
    bar = {
        "type": "bar",
        "orient": "horizontal",
        "color": BAR_COLOUR,
        "yOffset": 1.5,
        "y2Offset": -1.5,
        "clip": True,
    }
    rule = {"type": "rule", "color": INK, "strokeWidth": 1.25, "clip": True}
    span = {"y": place | {"field": "x from"}, "y2": {"field": "x to"}}
    middle = {"y": place | {"field": "x middle"}}
    return table, [
        {"mark": bar | TIP, "encoding": span | {"x": value | {"field": "value"}, "x2": {"datum": 0}}},
        {"mark": rule, "encoding": middle | {"x": value | {"field": "low"}, "x2": {"field": "high"}}},
    ]


def _head(panel: Panel, width: int, *, two: bool) -> list[str]:
    """Return a group's name with its total on one line or two, the name cut where it would not fit."""
    room, total, name = _letters(width), _total(panel), plain(panel.name)
    lines = textwrap.wrap(f"{name[: 2 * room]}{total}", room)
    for end in range(min(len(name), 2 * room), 0, -1):
        if len(lines) <= 2:
            break
        lines = textwrap.wrap(f"{name[:end]}…{total}", room)
    return [" ", *lines] if two and len(lines) == 1 else lines


def _total(panel: Panel) -> str:
    return f": {panel.total:z,.0f}".replace("-", "\u2212")


def _letters(width: int) -> int:
    """Return how many letters have room above a picture."""
    return int((width + GAP / 2) / _LETTER)
