"""Pictures inside a page: charts of releases as SVG, without their words, for a wide and a narrow screen."""

from __future__ import annotations

import json
import re
from typing import Any

from dphist.charts.multiples import MOST_BARS, Panel, multiples_chart
from dphist.charts.picture import INK, Picture, Spec
from dphist.release.grouped import GroupedRelease
from dphist.release.release import Release
from dphist.release.show import subtitle
from dphist.release.sparse import SparseRelease
from dphist.release.words import AnyRelease

WIDE, NARROW = 720, 352  # pixels
_ROLES = {INK: "ink", "#E6E6E6": "grid", "#777777": "zero"}  # colours that a dark page has its own of
_ROW = 20  # pixels for a bar with its label
_LETTER, _MOST_BESIDE = 7, 170  # pixels for a letter, and for labels beside bars


def pictures(release: AnyRelease, *, level: float, name: str) -> tuple[str, str, str]:
    """Return the chart of a release twice, for a wide and for a narrow screen, and what it says of itself.

    Args:
        name: what the ids inside begin with, so that no two pictures of a page share one.
    """
    drawn = release.drawn() if isinstance(release, SparseRelease) else release
    spec = drawn.plot(level=level).spec
    return (
        _svg(_fitted(spec, WIDE, 250), f"{name}-wide"),
        _svg(_fitted(_listed(drawn, level) or spec, NARROW, 220), f"{name}-thin"),
        _notes(drawn, spec, level),
    )


def _notes(release: Release | GroupedRelease, spec: Spec, level: float) -> str:
    """Return what stands below a chart's title, besides what the page says itself."""
    text = " ".join(spec["title"].get("subtitle", []))
    for known in (subtitle(release, level), subtitle(release, None), release.bounding):
        text = text.replace(" ".join(known.split()), "")
    return " ".join(text.split())


def _listed(release: Release | GroupedRelease, level: float) -> Spec | None:
    """Return a list of bars with flat labels; None if there are no labels, or too many."""
    if isinstance(release, GroupedRelease) or len(release.domain.axes) > 1:
        return None
    axis = release.domain.axis
    if axis.kind != "categories" or axis.n > MOST_BARS:
        return None
    low, high = release.presentable_intervals(level=level)
    spec = multiples_chart(release.domain, [Panel("all", release.values(), low, high)]).spec
    return spec | {"spec": spec["spec"] | {"height": axis.n * _ROW}}


def _fitted(spec: Spec, width: int, height: int) -> Spec:
    """Return a description for a width, without title: the page has the words."""
    made: Spec = json.loads(json.dumps(spec))
    made.pop("title", None)
    made["config"] = made["config"] | {"background": "transparent", "padding": 6}
    if "facet" in made:
        return made if width == WIDE else _stacked(made, width)
    if made.get("data", {}).get("name") == "cells":
        return _mapped(made, width)
    for view in made["layer"]:
        _turned(view["encoding"], _names(made), width)
    fit = {"type": "fit-x", "contains": "padding"}
    listed = "xnames" in str(made["layer"][0]["encoding"]["y"]["axis"].get("labelExpr"))
    return made | {"width": width, "height": made["height"] if listed else height, "autosize": fit}


def _mapped(spec: Spec, width: int) -> Spec:
    """Return a heat map whose cells have whole pixels, or the background would shine through the seams."""
    cells = len({row["x from"] for row in spec["datasets"]["cells"]})
    room = width - (150 if width == WIDE else 80)
    spec["width"] = cells * max(1, room // cells)
    if width == NARROW and "layer" in spec:  # numbers have no room
        spec["layer"] = [view for view in spec["layer"] if view["mark"]["type"] != "text"]
    for view in spec.get("layer", [spec]):
        _turned(view["encoding"], _names(spec), width)
        if width == NARROW and "legend" in view["encoding"].get("color", {}):  # it would take a third
            view["encoding"]["color"]["legend"] |= {"orient": "bottom", "gradientLength": width - 80}
    return spec


def _stacked(spec: Spec, width: int) -> Spec:
    """Return small pictures two in a row, or below each other where labels stand beside bars."""
    inner = spec["spec"]
    beside = inner["layer"][0]["mark"].get("orient") == "horizontal"
    names = _names(spec)
    labels = min(_MOST_BESIDE, max(map(len, names), default=0) * _LETTER)
    spec["columns"] = 1 if beside else 2
    inner["width"] = width - labels - 34 if beside else (width - 66) // 2
    for layer in inner["layer"] if beside else ():
        layer["encoding"]["y"]["axis"]["labelLimit"] = labels
    spec["facet"]["header"]["labelLimit"] = inner["width"] + 20
    spec["resolve"] = {"axis": {"x": "independent"}}
    return spec


def _names(spec: Spec) -> list[str]:
    """Return the labels of a description's first axis."""
    return next((p["value"] for p in spec.get("params", []) if p["name"] == "xnames"), [])


def _turned(encoding: dict[str, Any], names: list[str], width: int) -> None:
    """Turn the labels below a picture if they do not fit side by side."""
    axis = encoding.get("x", {}).get("axis")
    if axis is None or "xnames" not in str(axis.get("labelExpr", "")):
        return
    if sum(map(len, names)) * _LETTER + 8 * len(names) > width - 60:
        axis |= {"labelAngle": -90 if len(names) * 14 > width - 60 else -40, "labelLimit": 120}


def _svg(spec: Spec, name: str) -> str:
    """Return SVG whose ids are its own and whose ink follows the page."""
    svg = Picture(spec).to_svg()
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    for colour, role in _ROLES.items():
        svg = re.sub(rf'="{colour}"', f'="var(--{role},{colour})"', svg, flags=re.IGNORECASE)
    return svg
