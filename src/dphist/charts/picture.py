"""Pictures of histograms: Vega-Lite descriptions, drawn to PNG, SVG and one-file HTML without a network.

Pictures are made of public numbers. Every text a person gave travels as data inside the description.
"""

from __future__ import annotations

import html
import json
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.leftovers import file_beside
from dphist.domain import Axis, Domain, Instants
from dphist.domain.groups import Floats, Ints
from dphist.errors import OutputError, UsageError, did_you_mean

if TYPE_CHECKING:
    import altair

Spec: TypeAlias = dict[str, Any]
MAX_BARS, MAX_COLUMNS, MAX_CELLS = 150, 1000, 128
MAX_OUTCOME_COLUMNS = 250  # a dozen lines are drawn over each
WIDTH, HEIGHT = 720, 320
SCHEMA, MIME = "https://vega.github.io/schema/vega-lite/v6.json", "application/vnd.vegalite.v6+json"
# Okabe and Ito's palette, which stays distinct under the common kinds of colour blindness.
BLUE, SKY, VERMILION, GREY, INK = "#0072B2", "#56B4E9", "#D55E00", "#B3B3B3", "#262626"
INKS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", SKY, INK, GREY)
TEXT = {"labelFontSize": 12, "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal"}
CONFIG: Spec = {
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "title": {"anchor": "start", "frame": "group", "color": INK, "fontSize": 18, "offset": 12}
    | {"subtitleColor": INK, "subtitleFontSize": 13, "subtitlePadding": 6, "subtitleLineHeight": 17},
    "axis": TEXT | {"gridColor": "#E6E6E6", "titleFontSize": 13, "titlePadding": 10, "labelPadding": 4},
    "legend": TEXT | {"titleFontSize": 12, "labelLimit": 300},
}
ENDINGS = (".png", ".svg", ".html", ".vl.json")
TIP = {"tooltip": {"content": "data"}}
# The policy keeps the page off the network, whatever a description may ask for.
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:">
<script>{library}</script></head><body><div id="picture"></div><script>
vegaEmbed("#picture", {spec}, {{renderer: "svg", actions: {{export: true, source: false, editor: false}}}});
</script></body></html>"""


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, held as its Vega-Lite description; ``altair.Chart.from_dict(picture.spec)`` reads it."""

    spec: Spec

    def __repr__(self) -> str:
        return f"Picture({self.spec['description']!r})"

    def to_png(self, *, scale: float = 2.0) -> bytes:
        """Return the picture as PNG; scale 2 suits dense screens and print."""
        import vl_convert

        if not 0.1 <= scale <= 10:
            raise UsageError(f"scale must lie between 0.1 and 10, not {scale!r}.")
        return bytes(vl_convert.vegalite_to_png(self.spec, scale=scale))

    def to_svg(self) -> str:
        """Return the picture as SVG."""
        import vl_convert

        return str(vl_convert.vegalite_to_svg(self.spec))

    def to_html(self) -> str:
        """Return a page that holds the picture and the program that draws it, and loads nothing else."""
        import vl_convert

        # '</script' and '<!--' end or bend a script wherever they stand in it, so no '<' of the description
        # may remain. This is why the page is ours: vl-convert's leaves them in.
        spec = json.dumps(self.spec).replace("<", "\\u003c")
        library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        return PAGE.format(title=html.escape(self.spec["description"]), library=library, spec=spec)

    def save(self, path: str | os.PathLike[str], *, scale: float = 2.0, overwrite: bool = False) -> Path:
        """Write the picture as its ending says: .png, .svg, .html, or .vl.json for its description.

        Another file of that name is left alone unless ``overwrite=True``, and so it is if writing fails.
        """
        target = Path(path)
        texts: dict[str, Callable[[], str]] = {".svg": self.to_svg, ".html": self.to_html}
        texts[".vl.json"] = lambda: json.dumps(self.spec)
        ending = next((e for e in ENDINGS if target.name.lower().endswith(e)), "")
        if not ending:
            raise OutputError(
                f"{target.name!r} names no picture: end it in {', '.join(ENDINGS)}.{_json(target)}"
            )
        if not target.parent.is_dir():
            raise OutputError(f"there is no directory {str(target.parent)!r}; make it first.")
        content = self.to_png(scale=scale) if ending == ".png" else texts[ending]().encode()
        try:
            if not overwrite and target.is_file() and target.read_bytes() not in (b"", content):
                raise OutputError(
                    f"{str(target)!r} exists and is not this picture: choose another name, or say "
                    "overwrite=True."
                )
            with file_beside(target) as partial:
                partial.write_bytes(content)
                partial.replace(target)
        except OSError as error:
            raise OutputError(
                f"{str(target)!r} cannot be written: {error.strerror}; try elsewhere."
            ) from error
        return target

    def to_altair(self) -> altair.Chart | altair.LayerChart | altair.ConcatChart | altair.FacetChart:
        """Return the picture as an Altair chart, to restyle or combine with others."""
        try:
            import altair
        except ImportError:
            raise UsageError("Altair is not installed: pip install altair.") from None

        if "concat" in self.spec:
            return altair.ConcatChart.from_dict(self.spec, validate=False)
        if "facet" in self.spec:
            return altair.FacetChart.from_dict(self.spec, validate=False)
        kind = altair.LayerChart if "layer" in self.spec else altair.Chart
        # Validating every row of the data takes minutes for a heat map, and the tests validate the shape.
        return kind.from_dict(self.spec, validate=False)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Spec:
        return {"image/svg+xml": self.to_svg(), MIME: self.spec, "text/plain": repr(self)}


def histogram_chart(
    domain: Domain,
    values: ArrayLike,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    title: str = "",
    subtitle: str = "",
    scale: Literal["linear", "log"] = "linear",
    truth: ArrayLike | None = None,
    x_title: str = "",
    y_title: str = "records",
    simulated: bool = False,
    note: str = "",
) -> Picture:
    """Return bars, or steps where bars would be too thin, with intervals wherever both ends are finite.

    Args:
        scale: "log" is linear around zero, so that zero and negative noisy values stay visible.
        truth: exact values, for public data only.
        simulated: the values are not private, and are not called so.
        note: a sentence that stands below the subtitle.
    """
    if scale not in ("linear", "log"):
        raise UsageError(f"unknown scale {scale!r}. {did_you_mean(str(scale), ('linear', 'log'))}")
    if (low is None) != (high is None):
        raise UsageError("low and high go together: give both ends of the intervals, or neither.")
    x, y = Columns.of(domain.axis, MAX_COLUMNS), checked(values, domain, "values")
    bars, shown = x.m <= MAX_BARS, ""
    drawn = "simulated" if simulated else "private"
    data, kinds = {"value": x.mean(y)}, {drawn: SKY if bars else BLUE}
    if x.k > 1:
        data |= {"least": np.minimum.reduceat(y, x.starts), "most": np.maximum.reduceat(y, x.starts)}
        kinds["lowest to highest bin"] = GREY
        shown = f"each column shows {x.k:,} bins: mean, lowest and highest"
    if low is not None and high is not None:
        a, b = checked(low, domain, "low", gaps=True), checked(high, domain, "high", gaps=True)
        known = np.isfinite(a) & np.isfinite(b)
        below, above = np.where(known, y - a, np.nan), np.where(known, b - y, np.nan)
        if (below + above < 0).any():
            raise UsageError("low lies above high in some bin; were they swapped?")
        data |= {"low": data["value"] - x.mean(below), "high": data["value"] + x.mean(above)}
        kinds["interval" if x.k == 1 else "typical interval"] = INK if bars else SKY
        shown += "; interval typical of one bin (mean half-width)" if shown else ""
    if truth is not None:
        data["truth"] = x.mean(checked(truth, domain, "truth"))
        kinds["true"] = VERMILION
    legend = {"orient": "top", "title": None, "symbolType": "square", "symbolOpacity": 1, "offset": 4}
    color: Spec = {"field": "kind", "type": "nominal", "legend": legend if len(kinds) > 1 else None}
    color["scale"] = {"domain": list(kinds), "range": list(kinds.values())}
    ruler, layers = x.ruler("x", x_title), []
    height = _height(data, scale, plain(y_title) + (", mean per bin" if x.k > 1 else ""))
    for mark, place, kind, field, other in _marks(x, drawn):
        if field in data:
            where = {"x": ruler["x"] | {"field": place}, "y": height | {"field": field}, "color": color}
            where |= ({"x2": ruler["x2"]} if place == "x from" else {}) | ({"y2": other} if other else {})
            named = [{"calculate": f"'{name}'", "as": "kind"} for name in kinds if kind in name]
            source = {"data": {"name": "corners" if place == "corner" else "bins"}, "transform": named}
            layers.append(source | {"mark": mark, "encoding": where})
    # Two points per column draw exact steps, and a gap in the intervals stays exactly as wide as it is.
    corners = {key: np.repeat(part, 2) for key, part in ({"corner": x.edges} | data).items()}
    corners["corner"] = corners["corner"][1:-1]
    tables = {"corners": corners} | ({"bins": x.places("x") | data} if bars else {})
    about = f"histogram of {domain.n:,} bins"
    spec = frame(title, subtitle, (note, shown), about, tables, {"xnames": x.names})
    return Picture(spec | {"width": WIDTH, "height": HEIGHT, "layer": layers})


def heatmap_chart(
    domain: Domain,
    values: ArrayLike,
    *,
    title: str = "",
    subtitle: str = "",
    x_title: str = "",
    y_title: str = "",
    note: str = "",
) -> Picture:
    """Return a grid as coloured cells: the first axis to the right, the second upwards (labels downwards)."""
    if len(domain.axes) != 2:
        raise UsageError("a heat map needs a grid of two axes; histogram_chart draws a single one.")
    x, y = (Columns.of(axis, MAX_CELLS) for axis in domain.axes)
    grid = checked(values, domain, "values").reshape(domain.shape)
    cells = np.add.reduceat(np.add.reduceat(grid, x.starts, axis=0), y.starts, axis=1)
    table = {key: np.repeat(part, y.m) for key, part in x.places("x").items()}
    table |= {key: np.tile(part, x.m) for key, part in y.places("y").items()} | {"value": cells.ravel()}
    lo, hi, shade = float(cells.min()), float(cells.max()), "value"
    legend: Spec = {"title": "records", "gradientLength": 300, "labelExpr": tick_text(lo, hi)}
    if max(-lo, hi) > 20 * float(np.abs(cells).mean()):  # a few large cells would leave all others one colour
        # We bend the values, not the scale: a symlog scale's legend is drawn in a few straight pieces.
        shade, table["shade"] = "shade", _symlog(cells.ravel())
        legend["values"] = _symlog(np.array(_powers(lo, hi))).tolist()
        back = "(datum.value < 0 ? -1 : 1) * round(exp(abs(datum.value)) - 1)"
        legend["labelExpr"] = tick_text(lo, hi, number=back)
    color = {"field": shade, "type": "quantitative", "legend": legend, "scale": {"scheme": "viridis"}}
    shown = "" if x.k * y.k == 1 else f"each cell shows the sum of {x.k:,} x {y.k:,} bins"
    about = f"heat map of {domain.shape[0]:,} by {domain.shape[1]:,} bins"
    names = {"xnames": x.names, "ynames": y.names}
    spec = frame(title, subtitle, (note, shown), about, {"cells": table}, names)
    # Whole pixels per cell: otherwise the background shines through the seams.
    spec |= {"width": x.m * max(1, round(520 / x.m)), "height": y.m * max(1, round(390 / y.m))}
    spec |= {"data": {"name": "cells"}, "mark": {"type": "rect"} | TIP}
    return Picture(spec | {"encoding": x.ruler("x", x_title) | y.ruler("y", y_title) | {"color": color}})


def overlap_chart(
    samples: dict[str, ArrayLike],
    *,
    threshold: float,
    upwards: bool,
    title: str = "",
    subtitle: str = "",
    x_title: str = "",
) -> Picture:
    """Return two samples of scores as overlapping bars, and the range of scores that counts as the event."""
    parts = {plain(name): np.asarray(values, dtype=np.float64) for name, values in samples.items()}
    edges = np.histogram_bin_edges(np.concatenate(list(parts.values())), 60)
    table: dict[str, list[NDArray[Any]]] = {"kind": [], "from": [], "to": [], "share": []}
    for name, values in parts.items():
        share = np.histogram(values, edges)[0] / values.size
        for key, column in zip(table, (np.full(60, name), edges[:-1], edges[1:], share), strict=True):
            table[key].append(column)
    end = float(edges[-1] if upwards else edges[0])
    event = {"from": np.array([min(threshold, end)]), "to": np.array([max(threshold, end)])}
    tables = {"bars": {key: np.concatenate(column) for key, column in table.items()}, "event": event}
    legend = {"orient": "top", "title": None, "symbolType": "square", "symbolOpacity": 0.6, "offset": 4}
    color: Spec = {"field": "kind", "type": "nominal", "legend": legend}
    color["scale"] = {"domain": list(parts), "range": [BLUE, VERMILION]}
    x: Spec = {"field": "from", "type": "quantitative", "title": plain(x_title), "axis": {"grid": False}}
    x["scale"] = {"domain": [float(edges[0]), float(edges[-1])], "nice": False, "zero": False}
    y = {"field": "share", "type": "quantitative", "title": "share of runs", "stack": None}
    bar = {"type": "bar", "opacity": 0.55, "orient": "vertical"} | TIP
    rule = {"type": "rule", "color": INK, "strokeDash": [4, 3]}
    span, where = {"x": x, "x2": {"field": "to"}}, {"x": x | {"field": "from" if upwards else "to"}}
    layers = [
        {"data": {"name": "event"}, "mark": {"type": "rect", "color": "#F2F2F2"}, "encoding": span},
        {"data": {"name": "bars"}, "mark": bar, "encoding": span | {"y": y, "color": color}},
        {"data": {"name": "event"}, "mark": rule, "encoding": where},
    ]
    spec = frame(title, subtitle, ("grey: the event",), "scores of two samples", tables, {})
    return Picture(spec | {"width": WIDTH, "height": HEIGHT, "layer": layers})


def outcomes_chart(
    domain: Domain,
    outcomes: ArrayLike,
    *,
    truth: ArrayLike,
    drawn: int = 12,
    title: str = "",
    subtitle: str = "",
    scale: Literal["linear", "log"] = "linear",
    x_title: str = "",
    y_title: str = "records",
    note: str = "",
) -> Picture:
    """Return what several runs gave, drawn together: the truth, some outcomes, and a band of nine in ten.

    Args:
        outcomes: values, one row per run; the band is made of all of them.
        drawn: how many of them are drawn.
        scale: "log" is linear around zero.
    """
    if scale not in ("linear", "log"):
        raise UsageError(f"unknown scale {scale!r}. {did_you_mean(str(scale), ('linear', 'log'))}")
    x = Columns.of(domain.axis, MAX_OUTCOME_COLUMNS)
    rows = [x.mean(checked(row, domain, "outcomes")) for row in np.asarray(outcomes, dtype=np.float64)]
    if not rows:
        raise UsageError("there is nothing to draw: give at least one outcome.")
    low, high = np.quantile(rows, (0.05, 0.95), axis=0)
    data = {"truth": x.mean(checked(truth, domain, "truth")), "low": low, "high": high}
    lines = {"outcome": np.concatenate(rows[:drawn]), "run": np.repeat(np.arange(len(rows[:drawn])), x.m)}
    kinds = {
        "nine in ten outcomes": SKY,
        f"{len(rows[:drawn])} outcomes": "#777777",
        "made-up truth": VERMILION,
    }
    legend = {"orient": "top", "title": None, "symbolType": "square", "symbolOpacity": 1, "offset": 4}
    color: Spec = {"field": "kind", "type": "nominal", "legend": legend}
    color["scale"] = {"domain": list(kinds), "range": list(kinds.values())}
    height = _height(data | {"outcome": lines["outcome"]}, scale, plain(y_title))
    height["title"] += ", mean per bin" if x.k > 1 else ""
    ruler = x.ruler("x", x_title)["x"] | {"field": "corner"}
    line = {"type": "line", "strokeJoin": "round"}
    layers = []
    for kind, source, mark, more in zip(
        kinds,
        ("columns", "outcomes", "columns"),
        (
            {"type": "area", "opacity": 0.5},
            line | {"strokeWidth": 0.7, "opacity": 0.8},
            line | {"strokeWidth": 1.8},
        ),
        (
            {"y": height | {"field": "low"}, "y2": {"field": "high"}},
            {"y": height | {"field": "outcome"}, "detail": {"field": "run"}},
            {"y": height | {"field": "truth"}},
        ),
        strict=True,
    ):
        named = {"data": {"name": source}, "transform": [{"calculate": f"'{kind}'", "as": "kind"}]}
        layers.append(named | {"mark": mark, "encoding": {"x": ruler, "color": color} | more})
    # Two points per column draw exact steps.
    corner = np.repeat(x.edges, 2)[1:-1]
    tables = {
        "columns": {"corner": corner} | {key: np.repeat(part, 2) for key, part in data.items()},
        "outcomes": {"corner": np.tile(corner, len(rows[:drawn]))}
        | {key: np.repeat(part, 2) for key, part in lines.items()},
    }
    shown = f"each column shows the mean of {x.k:,} bins; single bins vary more" if x.k > 1 else ""
    about = f"{len(rows)} outcomes of {domain.n:,} bins"
    spec = frame(title, subtitle, (note, shown), about, tables, {"xnames": x.names})
    return Picture(spec | {"width": WIDTH, "height": HEIGHT, "layer": layers})


def curves_chart(
    curves: dict[str, list[tuple[float, float]]],
    *,
    title: str = "",
    subtitle: str = "",
    x_title: str = "",
    y_title: str = "",
    x_mark: float | None = None,
    y_mark: float | None = None,
    note: str = "",
) -> Picture:
    """Return named curves on logarithmic axes; the first is drawn strongest, and all are named at their ends.

    Args:
        curves: points (x, y) above 0, at most eight curves; others are left out.
        x_mark: where a dashed line stands upright.
        y_mark: where one lies.
        note: a sentence that stands below the subtitle.
    """
    shown = {plain(name): sorted(points) for name, points in list(curves.items())[: len(INKS)] if points}
    if not shown:
        raise UsageError("there is nothing to draw: give at least one curve.")
    first = next(iter(shown))
    table: dict[str, list[Any]] = {"name": [], "x": [], "y": [], "first": []}
    for name, points in shown.items():
        for x, y in points:
            for key, value in zip(table, (name, x, y, name == first), strict=True):
                table[key].append(value)
    color: Spec = {"field": "name", "type": "nominal", "sort": None}
    color["scale"] = {"domain": list(shown), "range": list(INKS[: len(shown)])}
    color["legend"] = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 3}
    shape: Spec = {"field": "name", "type": "nominal", "sort": None, "legend": None}
    axes: dict[str, Spec] = {}
    for field, text in (("x", x_title), ("y", y_title)):
        ends = [*table[field], *([mark] if (mark := {"x": x_mark, "y": y_mark}[field]) else [])]
        axis = {"labelExpr": "format(datum.value, ',.12~g')", "labelOverlap": True, "values": _decades(ends)}
        scale = {"type": "log", "domain": [min(ends), max(ends)], "nice": False}
        axes[field] = {
            "field": field,
            "type": "quantitative",
            "title": plain(text),
            "axis": axis,
            "scale": scale,
        }
    thick = {"condition": {"test": "datum.first", "value": 3.5}, "value": 1.6}
    both = axes | {"color": color}
    line, point = {"type": "line"}, {"type": "point", "filled": True, "size": 45} | TIP
    layers: list[Spec] = [
        {"data": {"name": "curves"}, "mark": line, "encoding": both | {"strokeWidth": thick}},
        {"data": {"name": "curves"}, "mark": point, "encoding": both | {"shape": shape}},
    ]
    rule = {"type": "rule", "color": INK, "strokeDash": [4, 3]}
    tables: Spec = {"curves": {key: np.array(column) for key, column in table.items()}}
    for field, mark in (("x", x_mark), ("y", y_mark)):
        if mark is not None:
            tables[f"{field} mark"] = {field: np.array([mark])}
            layers.append({"data": {"name": f"{field} mark"}, "mark": rule, "encoding": {field: axes[field]}})
    spec = frame(title, subtitle, (note,), f"{len(shown)} curves", tables, {})
    return Picture(spec | {"width": WIDTH - 120, "height": HEIGHT, "layer": layers})


@dataclass(frozen=True, eq=False)
class Columns:
    """One axis on paper: columns of k bins each, the last one perhaps of fewer."""

    k: int
    starts: Ints
    edges: Floats
    names: list[str]  # written at the columns, if they are not on a ruler
    moments: list[str]  # when the columns begin, if the ruler is a clock
    kind: str

    @classmethod
    def of(cls, axis: Axis, limit: int) -> Columns:
        """Return the columns of an axis, at most so many."""
        k = -(-axis.n // limit)
        starts = np.arange(0, axis.n, k)
        cuts = np.append(starts, axis.n)
        widths = np.diff(axis.edges)
        counted = axis.kind == "categories" or (axis.n <= 60 and widths.max() > 40 * widths.min())
        # Named bins lie at 1, 2, ..., and a whole number lies in the middle of its bin.
        edges = cuts + 0.5 if counted else axis.edges[cuts] - (0.5 if axis.kind == "integers" else 0)
        names = [plain(name) for name in axis.names()] if counted and axis.n <= min(limit, MAX_BARS) else []
        moments = []
        if isinstance(axis, Instants) and not counted:
            moments = [axis.moment(edge) for edge in edges[:-1].tolist()]
        return cls(k, starts, edges, names, moments, axis.kind)

    @property
    def m(self) -> int:
        """How many columns there are."""
        return self.starts.size

    def mean(self, x: Floats) -> Floats:
        """Return each column's mean, leaving out NaN; NaN where nothing is left."""
        known = ~np.isnan(x)
        total = np.add.reduceat(np.where(known, x, 0.0), self.starts)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / np.add.reduceat(known.astype(np.float64), self.starts))

    def places(self, field: str) -> dict[str, NDArray[Any]]:
        """Return where each column begins, ends and has its middle."""
        a, b = self.edges[:-1], self.edges[1:]
        named = {f"{field} bin": np.array(self.names)} if self.names else {}
        return named | {f"{field} from": a, f"{field} to": b, f"{field} middle": (a + b) / 2}

    def ruler(self, field: str, title: str) -> dict[str, Spec]:
        """Return the axis on which the columns lie."""
        lo, hi = float(self.edges[0]), float(self.edges[-1])
        scale = {"domain": [lo, hi], "nice": False, "zero": False, "padding": 0}
        axis: Spec = {"grid": False, "labelFlush": False, "labelOverlap": not self.names}
        if self.names:
            every = -(-self.m // (60 if field == "x" else 30))
            wide = field == "x" and sum(map(len, self.names)) * 7 + self.m * 8 > WIDTH
            crowded = wide and self.m > 36
            axis |= {"labelExpr": f"{field}names[datum.value - 1]", "labelFontSize": 10 if crowded else 12}
            axis |= {"labelAngle": -90 if crowded else -40 if wide else 0, "labelLimit": 130}
            axis["values"] = list(range(1, self.m + 1, every))
            scale["reverse"] = field == "y"  # a list is read from the top
        elif self.moments:
            every = -(-self.m // (7 if field == "x" else 12))
            at, shown = self.edges[:-1:every].tolist(), self.moments[::every]
            axis |= {
                "values": at,
                "labelExpr": f"{json.dumps(shown)}[indexof({json.dumps(at)}, datum.value)]",
            }
        else:
            axis |= {"labelExpr": tick_text(lo, hi, comma=1e4), "labelSeparation": 6, "tickCount": 10}
            axis |= {"tickMinStep": 1} if self.kind in ("integers", "categories") else {}
            title = f"{title or 'category'}, by number" if self.kind == "categories" else title
        start = {"field": f"{field} from", "type": "quantitative", "scale": scale, "axis": axis}
        return {field: start | {"title": plain(title) or None}, f"{field}2": {"field": f"{field} to"}}


def _marks(x: Columns, drawn: str) -> list[tuple[Spec, str, str, str, Spec | None]]:
    """Return what is drawn, back to front: the mark, its place, its kind, its field, its other end."""
    high, zero = {"field": "high"}, {"datum": 0}
    if x.m > MAX_BARS:
        line = {"type": "line", "strokeJoin": "round", "strokeWidth": 1.3}
        floor = {"type": "area", "opacity": 0.25 if x.k == 1 else 0}
        return [
            ({"type": "area", "opacity": 0.75}, "corner", "bin", "least", {"field": "most"}),
            (floor, "corner", drawn, "value", zero),
            ({"type": "area", "opacity": 0.6}, "corner", "interval", "low", high),
            (line, "corner", drawn, "value", None),
            (line, "corner", "true", "truth", None),
        ]
    narrowest = WIDTH * float(np.diff(x.edges).min() / (x.edges[-1] - x.edges[0]))
    gap = 0.1 * narrowest if x.names else 0.4 if narrowest > 4 else 0
    bar = {"type": "bar", "orient": "vertical", "xOffset": gap, "x2Offset": -gap} | TIP
    cap = {"type": "tick", "orient": "horizontal", "opacity": 1, "thickness": 1.6, "width": 7}
    return [
        (bar, "x from", drawn, "value", zero),
        ({"type": "line", "strokeWidth": 2}, "corner", "true", "truth", None),
        ({"type": "rule", "strokeWidth": 1.6 if x.m <= 60 else 1}, "x middle", "interval", "low", high),
        *((cap, "x middle", "interval", end, None) for end in ("low", "high") if narrowest > 14),
    ]


def _height(data: dict[str, Floats], scale: str, title: str) -> Spec:
    ends = np.concatenate([[0.0], *data.values()])
    lo, hi = float(np.nanmin(ends)), float(np.nanmax(ends))
    hi = hi if hi > lo else 1.0
    # The line at zero is darker: noisy values lie on both sides of it.
    grid = {"condition": {"test": "datum.value === 0", "value": "#777777"}, "value": "#E6E6E6"}
    axis: Spec = {"labelExpr": tick_text(lo, hi), "gridColor": grid}
    if scale == "log":
        shape: Spec = {"type": "symlog", "domain": [1.2 * lo, 1.2 * hi], "nice": False}
        axis["values"] = _powers(lo, hi)  # and no tickCount, by which Vega would thin them
    else:
        shape, axis["tickCount"] = {"domain": [lo, hi], "nice": True}, 6
    return {"type": "quantitative", "title": title, "scale": shape, "axis": axis}


def _symlog(x: Floats) -> Floats:
    return np.copysign(np.log1p(np.abs(x)), x)


def _powers(lo: float, hi: float) -> list[float]:
    """Return round ticks for a scale that is logarithmic on both sides of zero."""
    top = int(np.log10(max(-lo, hi, 1.0)))
    step = -(-(top + 1) // (4 if lo < -10 else 8))
    powers = [float(10**e) for e in range(top, 0 if top > 1 else -1, -step)]
    return sorted({0.0, *(p for p in powers if p <= hi), *(-p for p in powers if -p >= lo)})


def _decades(values: list[float]) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 3, 10, 30 ... inside the values."""
    lo, hi = min(values), max(values)
    first, last = math.floor(math.log10(lo)), math.ceil(math.log10(hi))
    ticks = [
        float(f"{k}e{e}") for e in range(first, last + 1) for k in ((1, 3) if last - first <= 5 else (1,))
    ]
    return [tick for tick in ticks if lo * (1 - 1e-9) <= tick <= hi * (1 + 1e-9)]


def tick_text(lo: float, hi: float, *, number: str = "datum.value", comma: float = 0) -> str:
    """Return the expression of a tick's text: SI letters for large numbers that stay distinct with them."""
    big = max(abs(lo), abs(hi))
    letters = 1e5 <= big < 1e4 * (hi - lo)
    return f"format({number}, '{'~s' if letters else ',.12~g' if big >= comma else '.12~g'}')"


def frame(title: str, subtitle: str, notes: Sequence[str], about: str, tables: Spec, names: Spec) -> Spec:
    """Return what every description has: its words, and its data by name."""
    name = plain(title)
    head: Spec = {"text": textwrap.wrap(name, 76, max_lines=3, placeholder=" …") or [" "]}
    lines = [line for part in (subtitle, *notes) for line in textwrap.wrap(plain(part), 112)]
    head |= {"subtitle": lines} if lines else {}
    head |= {"subtitleColor": VERMILION, "subtitleFontWeight": "bold"} if "SIMULATED" in subtitle else {}
    spec = {"$schema": SCHEMA, "description": f"{name}: {about}" if name else about, "title": head}
    rows = {key: _rows(table) for key, table in tables.items()}
    params = [{"name": key, "value": labels} for key, labels in names.items() if labels]
    return spec | {"config": CONFIG, "datasets": rows, "params": params}


def _rows(table: dict[str, NDArray[Any]]) -> list[Spec]:
    columns = [[None if v != v else v for v in part.tolist()] for part in table.values()]  # NaN is no JSON
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def checked(values: ArrayLike, domain: Domain, name: str, *, gaps: bool = False) -> Floats:
    """Return one number for each bin, or say what is wrong with them."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((domain.n,), domain.shape):
        raise UsageError(f"the domain has {domain.n} bins and {name} has shape {array.shape}.")
    if not gaps and not np.isfinite(array).all():
        raise UsageError(f"{name} must be finite: NaN and infinity cannot be drawn.")
    return array.ravel()


def _json(target: Path) -> str:
    ours = target.suffix.lower() == ".json"  # the ending of releases, which a picture must not write over
    return f" For the Vega-Lite description: {target.stem}.vl.json." if ours else ""


def plain(text: str) -> str:
    """Return a text in which control characters, line breaks and lone surrogates are blanks."""
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in text)
