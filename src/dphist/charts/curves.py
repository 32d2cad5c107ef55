"""Curves of error against epsilon, named at their ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.charts.columns import decades
from dphist.charts.picture import HEIGHT, INK, INKS, TIP, WIDTH, Picture, Spec, frame, plain
from dphist.domain.groups import Floats
from dphist.errors import UsageError

LINE_GAP = 15  # pixels between the names of curves


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
        axis = {"labelExpr": "format(datum.value, ',.12~g')", "labelOverlap": True, "values": decades(ends)}
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
