"""Heat maps of grids, which show how well each cell is known."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dphist.charts.columns import Columns, powers, symlog, tick_text
from dphist.charts.picture import (
    DARK,
    FAINT,
    INK,
    INSET,
    LETTER,
    MAP_HEIGHT,
    MAP_WIDTH,
    MAX_CELLS,
    MOST_ROWS,
    MUTED,
    QUARTER,
    ROOMY,
    TIP,
    WHITE,
    Picture,
    Spec,
    Table,
    checked,
    checked_size,
    fit,
    frame,
    plain,
    words_of,
)
from dphist.domain import Domain
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError


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
        shade, table["shade"] = "shade", symlog(cells.ravel())
        legend["values"] = symlog(np.array(powers(0, hi))).tolist()
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
    spec |= fit(size, width, height) | {"data": {"name": "cells"}}
    rows = _grid_table(domain, (x_title, y_title), grid)
    if not numbers and not said:
        return Picture(spec | {"mark": _rect(across, up), "encoding": where}, rows)
    return Picture(spec | {"layer": _cells(where, across, up, known=bool(said), numbers=numbers)}, rows)


def _cells(where: dict[str, Spec], across: float, up: float, *, known: bool, numbers: bool) -> list[Spec]:
    """Return the layers of a grid: cells by what is known of them, and numbers."""
    rect, seam = _rect(across, up), {"stroke": WHITE, "strokeWidth": 1} if numbers else {}
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
        below = {"mark": {"type": "rect", "color": FAINT} | seam, "encoding": place}
        layers = [
            *([below] if roomy else []),  # the page is white as it is
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


def _rect(across: float, up: float) -> Spec:
    """Return the mark of a cell; small cells are many, and have no words of their own: there is a table."""
    return {"type": "rect"} | TIP | ({} if min(across, up) >= ROOMY else {"aria": False})


def _known(values: Floats, low: Floats, high: ArrayLike) -> Ints:
    """Return how well cells are known: 2 to a quarter or if nobody knows, 1 less well, 0 if maybe zero."""
    ends = np.asarray(high, dtype=np.float64).ravel()
    far = np.fmax(ends - values, values - low)
    known = np.where(low <= 0, 0, np.where(far <= QUARTER * values, 2, 1))
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
