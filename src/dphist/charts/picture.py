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
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import OutputError, UsageError, did_you_mean

if TYPE_CHECKING:
    import altair

Spec: TypeAlias = dict[str, Any]
MAX_BARS, MAX_COLUMNS, MAX_CELLS = 150, 1000, 128
LINE_GAP = 15  # pixels between the names of curves
MAX_OUTCOME_COLUMNS = 250  # a dozen lines are drawn over each
WIDTH, HEIGHT = 720, 320
SMALLEST, LARGEST = 200, 4000  # pixels of a whole picture
MAP_WIDTH, MAP_HEIGHT, ERROR_HEIGHT = 640, 390, 130
MOST_LISTED, LIST_ROW = 60, 22  # labels in a list of bars, and the pixels of each
WHISKER = 1.25  # the width of a whisker
MOST_EDGES = 13  # bins whose edges are written
VISIBLE = 3  # the least half-height of an interval that can be seen
LETTER, ROOMY = 6.3, 14  # the width of a letter, and the least cell that can be drawn smaller
INSET, QUARTER, DARK = 0.14, 0.25, 0.6  # of smaller cells, of well-known values, where letters turn white
SCHEMA, MIME = "https://vega.github.io/schema/vega-lite/v6.json", "application/vnd.vegalite.v6+json"
WHITE, INK, MUTED, GREY = "#FFFFFF", "#262626", "#57606A", "#87909A"
BLUE, BAR, VERMILION = "#0A5A97", "#4A8FC7", "#B84700"  # lines, bars under whiskers, what stands out
SKY, FAINT = "#7DB1DB", "#F1F3F6"  # bands, which a line of their own names, and empty cells
# Curves: distinct under the common kinds of colour blindness, and each dark enough for white paper.
INKS = ("#1050C8", "#733000", "#1B9A7E", "#D048B8", "#958A2A", "#222222")
RAMP = ["#DCE9F5", "#BDD7EC", "#95C0E1", "#5FA0CF", "#2678B2", "#0A4F86", "#06325A"]  # cells, from zero up
TEXT = {"labelFontSize": 12, "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal"}
CONFIG: Spec = {
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "title": {"anchor": "start", "frame": "bounds", "color": INK, "fontSize": 18, "offset": 12}
    | {"subtitleColor": INK, "subtitleFontSize": 13, "subtitlePadding": 6, "subtitleLineHeight": 17},
    "axis": TEXT | {"gridColor": "#E6E6E6", "titleFontSize": 13, "titlePadding": 10, "labelPadding": 4},
    "legend": TEXT | {"titleFontSize": 12, "labelLimit": 300},
    "range": {"heatmap": RAMP, "ramp": RAMP},
}
LEGEND: Spec = {"orient": "top", "title": None, "symbolType": "square", "symbolOpacity": 1, "offset": 4}
Table: TypeAlias = Sequence[Sequence[str]]  # words, the first row is the head
MOST_ROWS = 1000  # of a page's table
ENDINGS = (".png", ".svg", ".html", ".vl.json")
TIP = {"tooltip": {"content": "data"}}
# The policy keeps the page off the network, whatever a description may ask for.
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
body{{margin:1rem auto;padding:0 .6rem;max-width:75rem;
font:15px/1.45 Helvetica,Arial,sans-serif;color:#262626}}
#picture,#picture svg.marks{{display:block;width:100%;height:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}
th,td{{text-align:right;padding:.15rem .8rem;border-bottom:1px solid #ddd}}
th:first-child,td:first-child{{text-align:left;overflow-wrap:anywhere}}
</style><script>{library}</script></head><body><div id="picture"></div>{table}<script>
vegaEmbed("#picture", {spec}, {{renderer: "svg", actions: {{export: true, source: false, editor: false}}}});
</script></body></html>"""


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, held as its Vega-Lite description; ``altair.Chart.from_dict(picture.spec)`` reads it."""

    spec: Spec
    table: Table = ()

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
        """Return a page as wide as its window: the picture, the program that draws it, and the table of it.

        It loads nothing else.
        """
        import vl_convert

        # '</script' and '<!--' end or bend a script wherever they stand in it, so no '<' of the description
        # may remain. This is why the page is ours: vl-convert's leaves them in.
        spec = json.dumps(self.spec).replace("<", "\\u003c")
        library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        title, table = html.escape(self.spec["description"]), _page_table(self.table)
        return PAGE.format(title=title, library=library, spec=spec, table=table)

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

    def to_altair(
        self,
    ) -> altair.Chart | altair.LayerChart | altair.ConcatChart | altair.VConcatChart | altair.FacetChart:
        """Return the picture as an Altair chart, to restyle or combine with others."""
        try:
            import altair
        except ImportError:
            raise UsageError("Altair is not installed: pip install altair.") from None

        if "concat" in self.spec:
            return altair.ConcatChart.from_dict(self.spec, validate=False)
        if "vconcat" in self.spec:
            return altair.VConcatChart.from_dict(self.spec, validate=False)
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
    groups: Groups | None = None,
    size: tuple[float, float] | None = None,
) -> Picture:
    """Return bars, or steps where bars would be too thin, with intervals wherever both ends are finite.

    Bins of unequal width are drawn by their density, logarithmic ones on a logarithmic axis, and labels that
    do not fit side by side as a list.

    Args:
        scale: "log" is linear around zero, so that zero and negative noisy values stay visible.
        truth: exact values, for public data only.
        simulated: the values are not private, and are not called so.
        note: a sentence that stands below the subtitle.
        groups: the bins that were measured together: neighbours that share a value are drawn as one block.
        size: width and height of the whole picture, in pixels.
    """
    if scale not in ("linear", "log"):
        raise UsageError(f"unknown scale {scale!r}. {did_you_mean(str(scale), ('linear', 'log'))}")
    if (low is None) != (high is None):
        raise UsageError("low and high go together: give both ends of the intervals, or neither.")
    size = checked_size(size)
    room, tall = (WIDTH, HEIGHT) if size is None else (size[0] - 80, size[1] - 110)
    ruled, y = Columns.of(domain.axis, MAX_COLUMNS), checked(values, domain, "values")
    per, density = widths_of(domain.axis, plain(x_title))
    y = y / per
    ends: dict[str, Floats] = {}
    if low is not None and high is not None:
        a, b = checked(low, domain, "low", gaps=True) / per, checked(high, domain, "high", gaps=True) / per
        known = np.isfinite(a) & np.isfinite(b)
        ends = {"low": np.where(known, y - a, np.nan), "high": np.where(known, b - y, np.nan)}
        if (ends["low"] + ends["high"] < 0).any():
            raise UsageError("low lies above high in some bin; were they swapped?")
    exact = None if truth is None else checked(truth, domain, "truth") / per
    starts = _shared(groups, [y, *ends.values(), *(() if exact is None else (exact,))])
    merged = starts.size < domain.n and starts.size <= MAX_COLUMNS
    x = ruled.blocks(domain.axis, starts) if merged else ruled
    bars, shown = x.m <= MAX_BARS * min(1.0, room / WIDTH), ""
    drawn = "simulated" if simulated else "private"
    data, kinds = {"value": x.mean(y, per)}, {drawn: BAR if bars else BLUE}
    if x.k > 1:
        data |= {"least": np.minimum.reduceat(y, x.starts), "most": np.maximum.reduceat(y, x.starts)}
        kinds["lowest to highest bin"] = GREY
        shown = f"each column shows {x.k:,} bins: mean, lowest and highest"
    if ends:
        data["low"] = data["value"] - x.mean(ends["low"], per)
        data["high"] = data["value"] + x.mean(ends["high"], per)
        kinds["interval" if x.k == 1 else "typical interval"] = INK if bars else SKY
        shown += "; interval typical of one bin (mean half-width)" if shown else ""
    if exact is not None:
        data["truth"] = x.mean(exact, per)
        kinds["true"] = VERMILION
    color: Spec = {"field": "kind", "type": "nominal", "legend": LEGEND if len(kinds) > 1 else None}
    color["scale"] = {"domain": list(kinds), "range": list(kinds.values())}
    lying = bool(ruled.names) and ruled.is_wide(room) and ruled.m <= MOST_LISTED
    counted = plain(y_title) + density + (", mean per bin" if x.k > 1 else "")
    ruler, height, layers = ruled.ruler("x", x_title, room), _height(data, scale, counted), []
    for mark, place, kind, field, other in _marks(x, drawn, room, bars=bars):
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
    if density and bars and not merged:
        tables["bins"] |= _written(x, data, y * per, room)
        layers.append(_counts(ruler["x"], height))
    about = f"histogram of {domain.n:,} bins"
    blocks = _block_words(groups, domain.n) if merged else ""
    notes = (note, shown, blocks, _area(density) or _unlike(domain.axis), _cut_short(domain.axis))
    small = _too_small(data, height, scale, tall, counted)
    spec = frame(title, subtitle, (*notes, small), about, tables, {"xnames": ruled.names}, width=room)
    rows = _table_of(domain.axis, plain(x_title), y * per, {key: part * per for key, part in ends.items()})
    if lying:
        layers, tall = [_lying(layer, ruled.m) for layer in layers], LIST_ROW * ruled.m
    return Picture(spec | _fit(size, room if size is None else WIDTH, tall) | {"layer": layers}, rows)


def _area(density: str) -> str:
    return "Bins of unequal width: the area of a bar is its count, its height the density." if density else ""


def _unlike(axis: Axis) -> str:
    named = axis.kind != "categories" and is_counted(axis)
    return "Bins of very different widths: each is named, and none is drawn to scale." if named else ""


def _written(x: Columns, data: dict[str, Floats], counts: Floats, room: float) -> dict[str, NDArray[Any]]:
    """Return the counts to be written above bars, where they fit."""
    words = [words_of(round(count)) for count in counts.tolist()]
    fit = [len(word) * LETTER <= room * share for word, share in zip(words, x.across, strict=True)]
    top = np.fmax(data["value"], data.get("high", data["value"]))
    shown = [word if is_wide else "" for word, is_wide in zip(words, fit, strict=True)]
    return {"count": np.array(shown), "top": np.fmax(top, 0.0)}


def _counts(ruler: Spec, height: Spec) -> Spec:
    """Return the layer that writes counts above bars."""
    mark = {"type": "text", "baseline": "bottom", "dy": -3, "fontSize": 11, "color": INK}
    where = {"x": ruler | {"field": "x middle"}, "y": height | {"field": "top"}}
    named = [{"calculate": "'count'", "as": "kind"}]
    return {
        "data": {"name": "bins"},
        "transform": named,
        "mark": mark,
        "encoding": where | {"text": {"field": "count", "type": "nominal"}},
    }


def _lying(layer: Spec, m: int) -> Spec:
    """Return a layer turned to the side, so that labels lie flat, the first on top."""
    turned = {"x": "y", "x2": "y2", "y": "x", "y2": "x2"}
    where = {turned.get(key, key): part for key, part in layer["encoding"].items()}
    axis = where["y"]["axis"] | {"labelAngle": 0, "labelFontSize": 12, "labelLimit": 260}
    axis |= {"values": list(range(1, m + 1)), "ticks": False, "domain": False}
    where["y"] = where["y"] | {"axis": axis, "scale": where["y"]["scale"] | {"reverse": True}, "title": None}
    mark = {{"xOffset": "yOffset", "x2Offset": "y2Offset"}.get(k, k): v for k, v in layer["mark"].items()}
    mark |= {"orient": "horizontal"} if mark["type"] == "bar" else {}
    where |= {"order": {"field": "corner"}} if mark["type"] == "line" else {}
    return layer | {"mark": mark, "encoding": where}


def _too_small(data: dict[str, Floats], height: Spec, scale: str, tall: float, counted: str) -> str:
    """Return the intervals in words if they are too small to be seen."""
    if "low" not in data or scale == "log" or not np.isfinite(data["low"]).any():
        return ""
    half = float(np.nanmedian(data["high"] - data["low"])) / 2
    bottom, top = height["scale"]["domain"]
    if half * tall / (top - bottom) >= VISIBLE:
        return ""
    return f"Intervals of about ± {words_of(float(f'{half:.2g}'))} {counted}: too small to be seen here."


def _table_of(axis: Axis, name: str, values: Floats, ends: dict[str, Floats]) -> Table:
    """Return the bins in words, with values and intervals; nothing if they are too many for a page."""
    if axis.n > MOST_ROWS:
        return ()
    columns = [values, *((values - ends["low"], values + ends["high"]) if ends else ())]
    rows = zip(axis.names(), *([words_of(v) for v in column.tolist()] for column in columns), strict=True)
    return [(name or "bin", "value", "low", "high")[: 1 + len(columns)], *rows]


def heatmap_chart(
    domain: Domain,
    values: ArrayLike,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    title: str = "",
    subtitle: str = "",
    x_title: str = "",
    y_title: str = "",
    note: str = "",
    size: tuple[float, float] | None = None,
) -> Picture:
    """Return a grid as coloured cells: the first axis to the right, the second upwards (labels downwards).

    Colour is the value, and so are numbers where they fit; a cell's size is what is known of it: full within
    a quarter, a smaller square within more, an open dot where its interval reaches zero.

    Args:
        low: the lower ends of the intervals, NaN where unknown.
        high: the upper ends.
        size: width and height of the whole picture, in pixels.
    """
    if len(domain.axes) != 2:
        raise UsageError("a heat map needs a grid of two axes; histogram_chart draws a single one.")
    size = checked_size(size)
    x, y = (Columns.of(axis, MAX_CELLS) for axis in domain.axes)
    # Whole pixels per cell: otherwise the background shines through the seams.
    room = (size[0] - 170, size[1] - 120) if size else (MAP_WIDTH, MAP_HEIGHT)
    width, height = (one.m * max(1, round(side / one.m)) for one, side in zip((x, y), room, strict=True))
    grid = checked(values, domain, "values").reshape(domain.shape)
    cells = np.add.reduceat(np.add.reduceat(grid, x.starts, axis=0), y.starts, axis=1)
    table = {key: np.repeat(part, y.m) for key, part in x.places("x").items()}
    table |= {key: np.tile(part, x.m) for key, part in y.places("y").items()} | {"value": cells.ravel()}
    lo, hi, shade = float(cells.min()), float(cells.max()), "value"
    top = hi if hi > 0 else 1.0
    legend: Spec = {
        "title": "records",
        "tickCount": 5,
        "gradientLength": min(300, round(0.6 * height)),
        "labelExpr": tick_text(0, top),
    }
    if max(-lo, hi) > 20 * float(np.abs(cells).mean()):  # a few large cells would leave all others one colour
        # We bend the values, not the scale: a symlog scale's legend is drawn in a few straight pieces.
        shade, table["shade"] = "shade", _symlog(cells.ravel())
        legend["values"] = _symlog(np.array(_powers(0, hi))).tolist()
        back = "(datum.value < 0 ? -1 : 1) * round(exp(abs(datum.value)) - 1)"
        legend["labelExpr"] = tick_text(0, top, number=back, log=True)
        top = math.log1p(top)
    # No colour is for less than nothing: what lies below zero has that of zero.
    color: Spec = {"field": shade, "type": "quantitative", "legend": legend}
    color["scale"] = {"domain": [0, top], "clamp": True}
    shown = "" if x.k * y.k == 1 else f"each cell shows the sum of {x.k:,} x {y.k:,} bins"
    across, up = width * float(x.across.min()), height * float(y.across.min())
    said = ""
    if low is not None and high is not None and not shown:
        table["known"] = _known(grid.ravel(), checked(low, domain, "low", gaps=True), high)
        said = _known_words(table["known"], roomy=min(across, up) >= ROOMY)
    words = [_short(value, max(-lo, hi)) for value in cells.ravel().tolist()]
    numbers = max(map(len, words)) * LETTER + 4 <= across and up >= 16
    if numbers:
        table["number"] = np.array(words)
        table["ink"] = np.where(table[shade] > DARK * top, WHITE, INK)
    about = f"heat map of {domain.shape[0]:,} by {domain.shape[1]:,} bins"
    names = {"xnames": x.names, "ynames": y.names}
    spec = frame(title, subtitle, (note, shown, said), about, {"cells": table}, names, width=room[0] + 80)
    where = x.ruler("x", x_title, width) | y.ruler("y", y_title) | {"color": color}
    spec |= _fit(size, width, height) | {"data": {"name": "cells"}}
    rows = _grid_table(domain, (x_title, y_title), grid)
    if not numbers and not said:
        return Picture(spec | {"mark": {"type": "rect"} | TIP, "encoding": where}, rows)
    return Picture(spec | {"layer": _cells(where, across, up, known=bool(said), numbers=numbers)}, rows)


def _cells(where: dict[str, Spec], across: float, up: float, *, known: bool, numbers: bool) -> list[Spec]:
    """Return the layers of a grid: cells by what is known of them, and numbers."""
    rect, seam = {"type": "rect"} | TIP, {"stroke": WHITE, "strokeWidth": 1} if numbers else {}
    place = {key: part for key, part in where.items() if key != "color"}
    middle = {k: place[k] | {"field": f"{k} middle"} for k in ("x", "y")}
    layers: list[Spec] = [{"mark": rect | seam, "encoding": where}]
    if known:
        roomy = min(across, up) >= ROOMY
        dx, dy = (INSET * side if roomy else 0 for side in (across, up))
        # The second axis runs upwards unless it is a list, which is read from the top.
        dy = dy if where["y"]["scale"].get("reverse") else -dy
        inset = {"xOffset": dx, "x2Offset": -dx, "yOffset": dy, "y2Offset": -dy}
        dot = {"type": "point", "shape": "circle", "size": 22, "filled": False, "color": MUTED}
        layers = [
            {"mark": {"type": "rect", "color": FAINT if roomy else WHITE} | seam, "encoding": place},
            {"transform": [{"filter": "datum.known == 2"}]} | layers[0],
            {"transform": [{"filter": "datum.known == 1"}], "mark": rect | inset, "encoding": where},
        ]
        if roomy:
            unsure = {"transform": [{"filter": "datum.known == 0"}], "mark": dot | TIP, "encoding": middle}
            layers.append(unsure)
    if numbers:
        ink = {"field": "ink", "type": "nominal", "scale": None}
        text: Spec = {"mark": {"type": "text", "fontSize": 11}}
        text["encoding"] = middle | {"text": {"field": "number", "type": "nominal"}, "color": ink}
        layers.append(({"transform": [{"filter": "datum.known > 0"}]} if known else {}) | text)
    return layers


def _known(values: Floats, low: Floats, high: ArrayLike) -> Ints:
    """Return how well cells are known: 2 to a quarter or if nobody knows, 1 less well, 0 if maybe zero."""
    ends = np.asarray(high, dtype=np.float64).ravel()
    far = np.fmax(ends - values, values - low)
    known = np.where(far <= QUARTER * values, 2, np.where(low <= 0, 0, 1))
    return np.where(np.isfinite(low) & np.isfinite(ends), known, 2)


def _known_words(known: Ints, *, roomy: bool) -> str:
    if (known == 2).all():
        return "All cells are known to within 25 % of their values."
    if not roomy:
        return "Cells left blank cannot be told from zero."
    return "Full cell: known to within 25 % of its value; smaller: less well; dot: cannot be told from zero."


def _short(value: float, most: float) -> str:
    """Return the number of a cell: all cells in whole records, or all in thousands or millions."""
    size, letter = next((u for u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if most >= 100 * u[0]), (1.0, ""))
    return words_of(round(value / size)) + letter


def _grid_table(domain: Domain, titles: tuple[str, str], grid: Floats) -> Table:
    if domain.n > MOST_ROWS:
        return ()
    (rows, columns), (along, up) = (axis.names() for axis in domain.axes), map(plain, titles)
    head = [f"{along} \\ {up}" if along and up else "bin", *columns]
    return [head, *([name, *map(words_of, row)] for name, row in zip(rows, grid.tolist(), strict=True))]


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
    per, density = widths_of(domain.axis, plain(x_title))
    rows = [x.mean(checked(row, domain, "outcomes") / per, per) for row in np.asarray(outcomes, dtype=float)]
    if not rows:
        raise UsageError("there is nothing to draw: give at least one outcome.")
    low, high = np.quantile(rows, (0.05, 0.95), axis=0)
    truth = x.mean(checked(truth, domain, "truth") / per, per)
    data = {"truth": truth, "low": low, "high": high}
    lines = {"outcome": np.concatenate(rows[:drawn]), "run": np.repeat(np.arange(len(rows[:drawn])), x.m)}
    counted = plain(y_title) + density + (", mean per bin" if x.k > 1 else "")
    height = _height(data | {"outcome": lines["outcome"]}, scale, counted)
    ruler = x.ruler("x", x_title)["x"] | {"field": "corner"}
    layers = _outcome_layers(ruler, height, len(rows[:drawn]), "")
    # Two points per column draw exact steps.
    corner = np.repeat(x.edges, 2)[1:-1]
    tables = {
        "columns": {"corner": corner} | {key: np.repeat(part, 2) for key, part in data.items()},
        "outcomes": {"corner": np.tile(corner, len(rows[:drawn]))}
        | {key: np.repeat(part, 2) for key, part in lines.items()},
    }
    shown = f"each column shows the mean of {x.k:,} bins; single bins vary more" if x.k > 1 else ""
    about = f"{len(rows)} outcomes of {domain.n:,} bins"
    field: Spec = {"width": WIDTH, "height": HEIGHT}
    bottom, top = height["scale"]["domain"]
    thin = float(np.median(high - low)) * HEIGHT / (top - bottom)
    if scale == "log" or thin >= 2 * VISIBLE:
        spec = frame(title, subtitle, (note, shown), about, tables, {"xnames": x.names})
        return Picture(spec | field | {"layer": layers})
    # The band is too thin to be seen beside the counts: what is off is drawn by itself, below and larger.
    off = {f"{key} off": part - truth for key, part in data.items()}
    many = np.tile(np.repeat(truth, 2), len(rows[:drawn]))
    tables["columns"] |= {key: np.repeat(part, 2) for key, part in off.items()}
    tables["outcomes"] |= {"outcome off": tables["outcomes"]["outcome"] - many}
    wrong = _height(off | {"outcome": tables["outcomes"]["outcome off"]}, "linear", "outcome minus truth")
    reach = wrong["scale"]["domain"]
    factor = (top - bottom) / (reach[1] - reach[0]) * (ERROR_HEIGHT / HEIGHT)
    larger = f"Below: what the outcomes are off, drawn {words_of(float(f'{factor:.2g}'))} times as large."
    spec = frame(title, subtitle, (note, shown, larger), about, tables, {"xnames": x.names})
    bare = ruler | {"axis": ruler["axis"] | {"labels": False}, "title": None}
    parts = [
        field | {"layer": _outcome_layers(bare, height, len(rows[:drawn]), "")},
        field | {"height": ERROR_HEIGHT, "layer": _outcome_layers(ruler, wrong, len(rows[:drawn]), " off")},
    ]
    return Picture(spec | {"vconcat": parts, "spacing": 12})


def _outcome_layers(ruler: Spec, height: Spec, drawn: int, of: str) -> list[Spec]:
    """Return band, outcomes and truth; of the values, or of what they are off."""
    kinds = {"nine in ten outcomes": SKY, f"{drawn} outcomes": MUTED, "made-up truth": VERMILION}
    color: Spec = {"field": "kind", "type": "nominal", "legend": LEGEND}
    color["scale"] = {"domain": list(kinds), "range": list(kinds.values())}
    line = {"type": "line", "strokeJoin": "round"}
    band = {"y": height | {"field": f"low{of}"}, "y2": {"field": f"high{of}"}}
    runs = {"y": height | {"field": f"outcome{of}"}, "detail": {"field": "run"}}
    views = (
        ("columns", {"type": "area", "opacity": 0.7}, band),
        ("outcomes", line | {"strokeWidth": 0.7, "opacity": 0.8}, runs),
        ("columns", line | {"strokeWidth": 1.8}, {"y": height | {"field": f"truth{of}"}}),
    )
    return [
        {"data": {"name": source}, "transform": [{"calculate": f"'{kind}'", "as": "kind"}], "mark": mark}
        | {"encoding": {"x": ruler, "color": color} | more}
        for kind, (source, mark, more) in zip(kinds, views, strict=True)
    ]


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
        curves: points (x, y) above 0, at most six curves; others are left out.
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
    color["legend"] = None  # the names stand at the ends
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
    layers.append({"data": {"name": "ends"}} | _end_names(both))
    rule = {"type": "rule", "color": INK, "strokeDash": [4, 3]}
    tables: Spec = {"curves": {key: np.array(column) for key, column in table.items()}}
    tables["ends"] = _ends(shown, axes["y"]["scale"]["domain"])
    for field, mark in (("x", x_mark), ("y", y_mark)):
        if mark is not None:
            tables[f"{field} mark"] = {field: np.array([mark])}
            layers.append({"data": {"name": f"{field} mark"}, "mark": rule, "encoding": {field: axes[field]}})
    spec = frame(title, subtitle, (note,), f"{len(shown)} curves", tables, {})
    return Picture(spec | {"width": WIDTH - 120, "height": HEIGHT, "layer": layers})


def _end_names(encoding: Spec) -> Spec:
    """Return the names of curves, written at their ends."""
    mark = {"type": "text", "align": "left", "baseline": "middle", "dx": 9, "fontSize": 12}
    return {"mark": mark, "encoding": encoding | {"text": {"field": "name", "type": "nominal"}}}


def _ends(curves: dict[str, list[tuple[float, float]]], domain: list[float]) -> dict[str, NDArray[Any]]:
    """Return where the names of curves stand: at their last points, pushed apart to be readable."""
    bottom, top = math.log(domain[0]), math.log(max(domain[1], domain[0] * 1.000001))
    names = sorted(curves, key=lambda name: curves[name][-1][1])
    at = [HEIGHT * (math.log(curves[name][-1][1]) - bottom) / (top - bottom) for name in names]
    heights = np.exp(bottom + (top - bottom) * _apart(at, LINE_GAP) / HEIGHT)
    return {"name": np.array(names), "x": np.array([curves[name][-1][0] for name in names]), "y": heights}


def _apart(at: list[float], gap: float) -> Floats:
    """Return rising places at least a gap apart, moved from where they should be as little as can be.

    Places that would touch form heaps, and each heap is centred over the places that its members wanted.
    """
    heaps: list[list[float]] = []
    for place in at:
        heaps.append([place])
        while len(heaps) > 1 and _top(heaps[-2], gap) + gap > _bottom(heaps[-1], gap):
            last = heaps.pop()
            heaps[-1] += last
    return np.array([_bottom(heap, gap) + gap * i for heap in heaps for i in range(len(heap))])


def _bottom(heap: list[float], gap: float) -> float:
    return float(np.mean(heap)) - gap * (len(heap) - 1) / 2


def _top(heap: list[float], gap: float) -> float:
    return _bottom(heap, gap) + gap * (len(heap) - 1)


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
            axis |= {"labelExpr": tick_text(lo, hi, log=True), "values": _decades([lo, hi])}
        else:
            axis |= {"labelExpr": tick_text(lo, hi, comma=1e4), "labelSeparation": 6}
            edges = {"values": self.edges.tolist(), "labelOverlap": "greedy"}
            axis |= edges if self._has_round_edges() else {"tickCount": 10}
            axis |= {"tickMinStep": 1} if self.kind in ("integers", "categories") else {}
            title = f"{title or 'category'}, by number" if self.kind == "categories" else title
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


def _cut_short(axis: Axis) -> str:
    """Return a word about the last bin of time, if the end cuts it short."""
    widths = np.diff(axis.edges)
    short = isinstance(axis, Instants) and axis.n > 1 and widths[-1] < 0.85 * widths[:-1].min()
    return "The last bin is shorter than the others." if short else ""


def _places(axis: Axis, cuts: Ints) -> Floats:
    """Return where bins begin: named ones lie at 1, 2, ..., and a whole number in the middle of its bin."""
    if is_counted(axis):
        return np.asarray(cuts + 0.5)
    return np.asarray(axis.edges[cuts] - (0.5 if axis.kind == "integers" else 0))


def _shared(groups: Groups | None, columns: Sequence[Floats]) -> Ints:
    """Return where blocks begin: runs of bins that were measured together and have all numbers in common."""
    n = columns[0].size
    if groups is None:
        return np.arange(n)
    new = np.diff(groups.labels()) != 0
    for column in columns:
        a, b = column[:-1], column[1:]
        new |= (a != b) & ~(np.isnan(a) & np.isnan(b))
    return np.concatenate(([0], np.flatnonzero(new) + 1))


def _block_words(groups: Groups | None, n: int) -> str:
    """Return what is said of bins that share a measurement."""
    if groups is None or groups.k == n:
        return ""
    which = "neighbours" if groups.order is None else "bins of like counts, wherever they lie,"
    alike = "" if groups.order is None else ", and equal heights are one measurement"
    return (
        f"{n:,} bins, {groups.k:,} measurement{'' if groups.k == 1 else 's'}: {which} that were measured "
        f"together share one mean and are drawn as one block{alike}."
    )


def _marks(
    x: Columns, drawn: str, room: float, *, bars: bool
) -> list[tuple[Spec, str, str, str, Spec | None]]:
    """Return what is drawn, back to front: the mark, its place, its kind, its field, its other end."""
    high, zero = {"field": "high"}, {"datum": 0}
    if not bars:
        line = {"type": "line", "strokeJoin": "round", "strokeWidth": 1.3}
        floor = {"type": "area", "opacity": 0.2 if x.k == 1 else 0}
        return [
            ({"type": "area", "opacity": 0.55}, "corner", "bin", "least", {"field": "most"}),
            (floor, "corner", drawn, "value", zero),
            ({"type": "area", "opacity": 0.8}, "corner", "interval", "low", high),
            (line, "corner", drawn, "value", None),
            (line, "corner", "true", "truth", None),
        ]
    narrowest = room * float(x.across.min())
    gap = 0.1 * narrowest if x.names else 0.5 if narrowest > 3 else 0
    bar = {"type": "bar", "orient": "vertical", "xOffset": gap, "x2Offset": -gap} | TIP
    # Whiskers have no caps: those of a short interval would be larger than what it says.
    whisker = {"type": "rule", "strokeWidth": min(WHISKER, max(0.6, narrowest / 3))}
    return [
        (bar, "x from", drawn, "value", zero),
        ({"type": "line", "strokeWidth": 2}, "corner", "true", "truth", None),
        (whisker, "x middle", "interval", "low", high),
    ]


def _height(data: dict[str, Floats], scale: str, title: str) -> Spec:
    ends = np.concatenate([[0.0], *data.values()])
    lo, hi = float(np.nanmin(ends)), float(np.nanmax(ends))
    hi = hi if hi > lo else 1.0
    # The line at zero is darker: noisy values lie on both sides of it.
    grid = {"condition": {"test": "datum.value === 0", "value": "#777777"}, "value": "#E6E6E6"}
    axis: Spec = {"labelExpr": tick_text(lo, hi, log=scale == "log"), "gridColor": grid}
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


def frame(
    title: str,
    subtitle: str,
    notes: Sequence[str],
    about: str,
    tables: Spec,
    names: Spec,
    *,
    width: float = WIDTH,
) -> Spec:
    """Return what every description has: its words, broken into lines for a width, and its data by name."""
    name, letters = plain(title), max(width / WIDTH, 0.3)
    head: Spec = {"text": textwrap.wrap(name, int(76 * letters), max_lines=3, placeholder=" …") or [" "]}
    lines = [line for part in (subtitle, *notes) for line in textwrap.wrap(plain(part), int(112 * letters))]
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


def checked_size(size: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the width and height of a whole picture in pixels, or say what is wrong with them."""
    if size is None:
        return None
    try:
        width, height = (float(side) for side in size)
    except (TypeError, ValueError):
        raise UsageError("size is a width and a height in pixels, such as (900, 400).") from None
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise UsageError(f"a picture is {SMALLEST} to {LARGEST} pixels wide and high, such as 900 by 400.")
    return width, height


def _fit(size: tuple[float, float] | None, width: float, height: float) -> Spec:
    """Return the size of a picture: of its field, or, if a person asks for a size, of the whole."""
    if size is None:
        return {"width": width, "height": height}
    fit = {"type": "fit", "contains": "padding"}
    return {"width": size[0], "height": size[1], "autosize": fit}


def words_of(number: float) -> str:
    """Return a number as people write it, with a true minus; a dash where there is none."""
    if not math.isfinite(number):
        return "\u2013"
    whole = number == round(number) or abs(number) >= 1e5
    text = f"{number:,.0f}" if whole else f"{number:,.6g}"
    return "0" if text == "-0" else text.replace("-", "\u2212")


def _page_table(table: Table) -> str:
    if not table:
        return ""
    head, *rows = table
    shown = "".join(f"<th>{html.escape(plain(word))}</th>" for word in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(plain(word))}</td>" for word in row) + "</tr>" for row in rows
    )
    return f"<details open><summary>Table</summary><table><tr>{shown}</tr>{lines}</table></details>"


def _json(target: Path) -> str:
    ours = target.suffix.lower() == ".json"  # the ending of releases, which a picture must not write over
    return f" For the Vega-Lite description: {target.stem}.vl.json." if ours else ""


def plain(text: str) -> str:
    """Return a text in which control characters, line breaks and lone surrogates are blanks."""
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in text)
