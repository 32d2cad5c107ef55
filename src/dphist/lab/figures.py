"""Pictures of measurements: lines, the skyline of time and error, ranked dots.

A method has the same colour, mark and dash in every picture. Colours are Okabe and Ito's, and marks and
dashes differ too, so that the charts can be read without colour.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from dphist.charts.picture import CONFIG, INK, SCHEMA, TIP, Picture, Spec
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE

Row = Mapping[str, Any]
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
STAR = "M0,-1.3L.31,-.42L1.24,-.4L.5,.16L.77,1.05L0,.52L-.77,1.05L-.5,.16L-1.24,-.4L-.31,-.42Z"
SALTIRE = "M-1,-.65L-.65,-1L0,-.35L.65,-1L1,-.65L.35,0L1,.65L.65,1L0,.35L-.65,1L-1,.65L-.35,0Z"
MARKS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", STAR, SALTIRE)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
WIDE, HIGH = 340, 250  # one of several panels; a single one is larger
_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
LETTER = 6.3  # how wide a letter of a label is, in pixels at 11 points


@dataclass(frozen=True)
class Style:
    """How one method is drawn everywhere."""

    colour: str
    mark: str
    dash: tuple[int, ...]


def _style(colour: int, mark: int) -> Style:
    return Style(COLOURS[colour], MARKS[mark], tuple(DASHES[mark % len(DASHES)]))


# The catalogue lists family by family, so that members of one have the same or neighbouring colours.
STYLES = {
    name: _style(*divmod(k, len(MARKS)))
    for k, m in enumerate(CATALOGUE.values())
    for name in (m.name, *m.aliases)
}


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return each name's style: fixed for known methods; any other name gets the next that is free."""
    asked = list(names)
    found = {name: STYLES[name] for name in asked if name in STYLES}
    for name in asked:
        if name not in found:
            free = [_style(i % 8, (i + i // 8) % 8) for i in (1, 2, 3, 0, *range(4, 64))]
            free = [style for style in free if style not in found.values()] or free
            colours = {style.colour for style in found.values()}
            found[name] = next((style for style in free if style.colour not in colours), free[0])
    return {name: found[name] for name in asked}


def front(times: Sequence[float], errors: Sequence[float]) -> list[bool]:
    """Return for each point whether no other is at least as fast and as exact, and better in one of both."""
    points = list(zip(times, errors, strict=True))
    return [not any(t <= a and e <= b and (t, e) != (a, b) for t, e in points) for a, b in points]


def lines(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    by: str,
    column: str | None = None,
    title: str,
    subtitle: str = "",
    x_title: str,
    y_title: str,
    log_x: bool = True,
    log_y: bool = True,
    low: str | None = None,
    high: str | None = None,
    row: str | None = None,
    columns: int = 2,
) -> Picture:
    """Return a line for each value of ``by``, with intervals from low to high where these are named.

    Rows that agree in by, x and panel are averaged; rows that a logarithmic axis cannot show are left out.
    """
    fields = [y, *(f for f in (low, high) if f)]
    means = _averaged(rows, keys=[by, x, *_given(column, row)], values=fields)
    logs = [f for f, log in ((x, log_x), (y, log_y)) if log]
    means = [r for r in means if _drawable(r, [x, y], logs)]
    means.sort(key=lambda r: r[x])
    names = _names(rows, by, means)
    panels = []
    for head, part in _split(means, rows, column, row):
        ends = [r[f] for r in part for f in fields if _number(r[f]) and (r[f] > 0 or not log_y)]
        across = _axis(x, [r[x] for r in part], x_title, log=log_x, exact=True)
        up = _axis(y, ends, y_title, log=log_y)
        colour, shape, dash = _legend(by, names)
        line = {"mark": {"type": "line", "strokeWidth": 1.6}, "encoding": {"color": colour}}
        line["encoding"]["strokeDash"] = dash  # type: ignore[index]
        point: Spec = {"mark": {"type": "point", "filled": True, "size": 55, "opacity": 1} | TIP}
        point["encoding"] = {"color": colour, "shape": shape}
        layers: list[Spec] = [line, point]
        if low and high:
            bar: Spec = {"mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.6}}
            bar["encoding"] = {"y": up | {"field": low}, "y2": {"field": high}, "color": colour}
            layers.insert(0, bar)
        panels.append(_panel(head, part, {"x": across, "y": up}, layers))
    return _picture(panels, title, subtitle, f"{y} against {x}, a line for each {by}", columns)


def skyline(
    rows: Sequence[Row],
    *,
    time: str = "seconds",
    error: str = "mean_squared",
    label: str = "method",
    column: str | None = None,
    row: str | None = None,
    title: str,
    subtitle: str = "",
    error_title: str,
    columns: int = 2,
) -> Picture:
    """Return time against error, every point named; those that no other beats in both lie on a stepped line.

    Names on the skyline are bold. Rows that agree in label and panel are averaged.
    """
    means = _averaged(rows, keys=[label, *_given(column, row)], values=[time, error])
    means = [r for r in means if _drawable(r, [time, error], [time, error])]
    names = _names(rows, label, means)
    panels = []
    many = len(_split(means, rows, column, row)) > 1
    size = (WIDE + 60, HIGH + 50) if many else (620, 430)
    for head, part in _split(means, rows, column, row):
        best = front([r[time] for r in part], [r[error] for r in part])
        part = [dict(r) | {"skyline": b} for r, b in zip(part, best, strict=True)]
        across = _axis(time, [r[time] for r in part], "CPU time of one run", log=True, unit="time")
        up = _axis(error, [r[error] for r in part], error_title, log=True)
        _place_labels(part, time, error, label, across["scale"]["domain"], up["scale"]["domain"], size)
        colour, shape, _ = _legend(label, names)
        where: Spec = {"x": across, "y": up}
        text = {"type": "text", "align": "center", "baseline": "middle", "fontSize": 11, "color": INK}
        near: Spec = {"x": across | {"field": "label x"}, "y": up | {"field": "label y"}}
        name = near | {"text": {"field": label, "type": "nominal"}}
        on, off = ({"filter": f"{sign}datum.skyline"} for sign in ("", "!"))
        step = {"type": "line", "interpolate": "step-after", "color": INK, "strokeWidth": 1.2}
        leader = {"type": "rule", "color": "#9A9A9A", "strokeWidth": 0.7}
        ends = where | {"x2": {"field": "leader x"}, "y2": {"field": "leader y"}}
        point = {"type": "point", "filled": True, "size": 80, "opacity": 1} | TIP
        plain = colour | {"legend": None}
        layers: list[Spec] = [
            {"transform": [on], "mark": step | {"strokeDash": [4, 3]}, "encoding": where},
            {"transform": [{"filter": "datum.far"}], "mark": leader, "encoding": ends},
            {"mark": point, "encoding": where | {"color": plain, "shape": shape | {"legend": None}}},
            {"transform": [off], "mark": text, "encoding": name},
            {"transform": [on], "mark": text | {"fontWeight": "bold"}, "encoding": name},
        ]
        panels.append(_panel(head, part, {}, layers, size=size))
    about = f"{error} against {time}; bold: on the skyline, no other is both faster and more exact"
    note = "bold and dashed line: the skyline, where no other method is both faster and more exact"
    return _picture(panels, title, f"{subtitle}; {note}" if subtitle else note, about, columns)


def dots(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    by: str | None = None,
    column: str | None = None,
    title: str,
    subtitle: str = "",
    x_title: str,
    low: str | None = None,
    high: str | None = None,
    log_x: bool = True,
    columns: int = 2,
) -> Picture:
    """Return a dot for each row on the line of its y, the least on top, with intervals from low to high."""
    fields = [x, *(f for f in (low, high) if f)]
    means = _averaged(rows, keys=[y, *_given(by, column)], values=fields)
    means = [r for r in means if _drawable(r, [x], [x] if log_x else [])]
    names = _names(rows, by or y, means)
    panels = []
    for head, part in _split(means, rows, column, None):
        ends = [r[f] for r in part for f in fields if _number(r[f]) and (r[f] > 0 or not log_x)]
        across = _axis(x, ends, x_title, log=log_x)
        score = {name: [r[x] for r in part if r[y] == name] for name in {r[y] for r in part}}
        ranked = sorted(
            score, key=lambda name: (sum(map(_rank(log_x), score[name])) / len(score[name]), name)
        )
        up: Spec = {"field": y, "type": "nominal", "sort": ranked, "title": None}
        up["axis"] = {"grid": True, "labelLimit": 220, "ticks": False, "domain": False}
        colour, shape, _ = _legend(by or y, names)
        if by is None:
            colour, shape = colour | {"legend": None}, shape | {"legend": None}
        point: Spec = {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1} | TIP}
        point["encoding"] = {"color": colour, "shape": shape}
        layers = [point]
        if low and high:
            bar: Spec = {"mark": {"type": "rule", "strokeWidth": 1.4, "opacity": 0.7}}
            bar["encoding"] = {"x": across | {"field": low}, "x2": {"field": high}, "color": colour}
            layers.insert(0, bar)
        size = (WIDE if column else 520, 20 * len(ranked))
        panels.append(_panel(head, part, {"x": across, "y": up}, layers, size=size))
    return _picture(panels, title, subtitle, f"{x} of each {y}, the least on top", columns)


def groups(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    by: str,
    column: str | None = None,
    title: str,
    subtitle: str = "",
    x_title: str,
    y_title: str,
    log_y: bool = True,
    low: str | None = None,
    high: str | None = None,
    columns: int = 1,
) -> Picture:
    """Return marks side by side over each name on the x axis, which come in the order of the rows."""
    fields = [y, *(f for f in (low, high) if f)]
    means = _averaged(rows, keys=[by, x, *_given(column)], values=fields)
    means = [r for r in means if _drawable(r, [y], [y] if log_y else [])]
    names, places = _names(rows, by, means), _names(rows, x, means)
    panels = []
    for head, part in _split(means, rows, column, None):
        ends = [r[f] for r in part for f in fields if _number(r[f]) and (r[f] > 0 or not log_y)]
        up = _axis(y, ends, y_title, log=log_y)
        across: Spec = {"field": x, "type": "nominal", "sort": places, "title": x_title}
        across["scale"] = {"paddingInner": 0.25, "paddingOuter": 0.125}
        across["axis"] = {"labelAngle": 0, "tickBand": "extent", "grid": True, "labelLimit": 160}
        beside = {"field": by, "type": "nominal", "sort": names}
        colour, shape, _ = _legend(by, names)
        where = {"x": across, "y": up, "xOffset": beside}
        point: Spec = {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1} | TIP}
        point["encoding"] = {"color": colour, "shape": shape}
        layers = [point]
        if low and high:
            bar: Spec = {"mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7}}
            bar["encoding"] = {"y": up | {"field": low}, "y2": {"field": high}, "color": colour}
            layers.insert(0, bar)
        here = len({r[x] for r in part})
        size = (max(240, 13 * here * len(names)) if columns > 1 else 780, 190)
        panels.append(_panel(head, part, where, layers, size=size))
    return _picture(panels, title, subtitle, f"{y} by {x} and {by}", columns)


def _rank(log: bool) -> Any:
    return math.log if log else float


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _drawable(row: Row, fields: Sequence[str], logs: Sequence[str]) -> bool:
    return all(_number(row[f]) for f in fields) and all(row[f] > 0 for f in logs)


def _names(rows: Sequence[Row], field: str, means: Sequence[dict[str, Any]]) -> list[str]:
    """Write a field's values as texts, and return those drawn, in the order in which the rows bring them."""
    for mean in means:
        mean[field] = _name(mean[field])
    left = {mean[field] for mean in means}
    return [name for name in dict.fromkeys(_name(r[field]) for r in rows) if name in left]


def _averaged(rows: Sequence[Row], *, keys: Sequence[str], values: Sequence[str]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in keys), []).append(row)
    made = []
    for key, members in groups.items():
        known = {v: [float(m[v]) for m in members if _number(m[v])] for v in values}
        means = {v: sum(part) / len(part) if part else None for v, part in known.items()}
        made.append(dict(zip(keys, key, strict=True)) | means)
    if not made:
        raise UsageError("there is nothing to draw: no rows were given.")
    return made


def _split(
    means: Sequence[dict[str, Any]], rows: Sequence[Row], column: str | None, row: str | None
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the panels, row by row: what stands above each, and its rows; empty ones are left out."""
    if not means:
        raise UsageError(
            "there is nothing to draw: no row has finite figures, above 0 on a logarithmic axis."
        )
    downs = list(dict.fromkeys(r[row] for r in rows)) if row else [None]
    rights = list(dict.fromkeys(r[column] for r in rows)) if column else [None]
    panels = []
    for down, right in product(downs, rights):
        part = [r for r in means if (not row or r[row] == down) and (not column or r[column] == right)]
        if part:
            heads = [_head(f, v) for f, v in ((row, down), (column, right)) if f]
            panels.append((", ".join(heads), part))
    return panels


def _head(field: str, value: object) -> str:
    return f"{field.replace('_', ' ')} {_name(value)}" if isinstance(value, int | float) else str(value)


def _name(value: object) -> str:
    return (
        f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _legend(field: str, names: Sequence[str]) -> tuple[Spec, Spec, Spec]:
    """Return the encodings of colour, mark and dash, which share one legend."""
    drawn = styles(names)
    ranges: dict[str, list[Any]] = {
        "color": [s.colour for s in drawn.values()],
        "shape": [s.mark for s in drawn.values()],
        "strokeDash": [list(s.dash) for s in drawn.values()],
    }
    legend = {"title": field.replace("_", " "), "symbolSize": 90, "symbolOpacity": 1}
    legend |= {"symbolStrokeWidth": 0}  # a dashed outline would spoil the marks
    made = []
    for channel in ("color", "shape", "strokeDash"):
        scale = {"domain": list(names), "range": ranges[channel]}
        made.append({"field": field, "type": "nominal", "scale": scale, "legend": legend})
    return made[0], made[1], made[2]


def _axis(
    field: str, values: Sequence[float], title: str, *, log: bool, exact: bool = False, unit: str = ""
) -> Spec:
    """Return the encoding of a place; ``exact`` puts a tick at every value if these are few."""
    lo, hi = min(values), max(values)
    made: Spec = {"field": field, "type": "quantitative", "title": title}
    if not log:
        low = min(0.0, lo)
        made["scale"] = {"domain": [low, hi if hi > low else low + 1.0], "nice": True}
        made["axis"] = {"tickCount": 6}
        return made
    pad = max((hi / lo) ** 0.06, 1.15)
    low, high = lo / pad, hi * pad
    own = sorted(set(values))
    ticks = own if exact and len(own) <= 8 else _ticks(low, high)
    texts = {_key(t): _seconds(t) if unit == "time" else _power(t) for t in ticks}
    made["scale"] = {"type": "log", "domain": [low, high], "nice": False}
    lookup = ", ".join(f"'{key}': '{text}'" for key, text in texts.items())
    made["axis"] = {"values": ticks, "labelExpr": f"{{{lookup}}}[format(datum.value, '.3e')]"}
    made["axis"] |= {"labelOverlap": "parity", "labelSeparation": 4}
    return made


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, thinned if they are many; round numbers an equal step apart within one power."""
    if high < 10 * low:
        rough = (high - low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = unit * next(d for d in (1, 2, 5, 10) if d * unit >= rough * 0.99)
        first, last = math.ceil(low / step), math.floor(high / step)
        # Through text: 3 * 0.1 is 0.3 on paper.
        return [float(f"{i * step:.9g}") for i in range(first, last + 1)] or [low, high]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5)):
        found = [t for e in powers for d in digits if low <= (t := float(f"{d}e{e}")) <= high]
        if len(found) >= 3:
            break
    return found[:: max(1, -(-len(found) // 9))]


def _key(value: float) -> str:
    """Return what Vega's format(value, '.3e') writes."""
    digits, _, power = f"{value:.3e}".partition("e")
    return f"{digits}e{'+' if int(power) >= 0 else '-'}{abs(int(power))}"


def _power(value: float) -> str:
    if 1e-3 <= value < 1e6:
        return f"{value:,.10g}"
    digits, _, power = f"{value:.6e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def _seconds(value: float) -> str:
    unit, size = next((u for u in _UNITS if value >= u[1] * (1 - 1e-9)), _UNITS[-1])
    return f"{value / size:,.6g} {unit}"


def _place_labels(
    part: list[dict[str, Any]],
    x: str,
    y: str,
    label: str,
    across: Sequence[float],
    up: Sequence[float],
    size: tuple[int, int],
) -> None:
    """Give every row the nearest place for its label that covers no point, line or other label."""
    width, height = size

    def pixel(value: float, ends: Sequence[float], length: int) -> float:
        return length * math.log(value / ends[0]) / math.log(ends[1] / ends[0])

    points = [(pixel(r[x], across, width), pixel(r[y], up, height)) for r in part]
    taken = [(a - 6, b - 6, a + 6, b + 6) for a, b in points]
    steps = sorted(point for point, r in zip(points, part, strict=True) if r["skyline"])
    for (a, b), (c, d) in pairwise(steps):
        taken += [(a, b - 1, c, b + 1), (c - 1, d, c + 1, b)]
    # The skyline first: its labels are the ones that must stand near.
    for i in sorted(range(len(part)), key=lambda i: (not part[i]["skyline"], points[i])):
        a, b = points[i]
        half = (len(str(part[i][label])) * LETTER + 4) / 2
        best: tuple[float, tuple[float, float, float, float], float, float, bool] | None = None
        for ring in range(9):
            for turn in range(12):
                angle = math.pi * (0.5 + turn / 6)
                u = a + math.cos(angle) * (half + 7 + 11 * ring)
                v = b + math.sin(angle) * (13 + 11 * ring)
                box = (u - half, v - 7, u + half, v + 7)
                outside = box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height
                cost = sum(_overlap(box, other) for other in taken) + 60 * ring + (10_000 if outside else 0)
                if best is None or cost < best[0]:
                    best = (cost, box, u, v, ring > 0)
        assert best is not None
        _, box, u, v, far = best
        taken.append(box)
        # A leader ends where it meets the label's box: it must not strike the name through.
        inside = min(half / abs(u - a) if u != a else 9.0, 7 / abs(v - b) if v != b else 9.0, 1.0)
        for name, across_at, up_at in (
            ("label", u, v),
            ("leader", u - inside * (u - a), v - inside * (v - b)),
        ):
            part[i][f"{name} x"] = across[0] * (across[1] / across[0]) ** (across_at / width)
            part[i][f"{name} y"] = up[0] * (up[1] / up[0]) ** (up_at / height)
        part[i]["far"] = far


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return 300 + wide * high if wide > 0 and high > 0 else 0.0


def _panel(
    head: str,
    rows: Sequence[Row],
    encoding: Spec,
    layers: Sequence[Spec],
    *,
    size: tuple[int, int] = (WIDE, HIGH),
) -> Spec:
    panel: Spec = {"width": size[0], "height": size[1], "data": {"values": [dict(r) for r in rows]}}
    panel |= {"layer": [layer | {"encoding": encoding | layer["encoding"]} for layer in layers]}
    if head:
        title = {"text": head, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 6}
        panel["title"] = title
    return panel


def _picture(panels: list[Spec], title: str, subtitle: str, about: str, columns: int) -> Picture:
    single = len(panels) == 1
    wide = 76 if single else 50 * min(columns, len(panels))
    head: Spec = {"text": textwrap.wrap(title, wide) or [" "]}
    if subtitle:
        head["subtitle"] = textwrap.wrap(subtitle, int(1.4 * wide))
    spec: Spec = {"$schema": SCHEMA, "description": f"{title}: {about}", "config": CONFIG}
    if single:
        body = panels[0]
        if "title" in body:
            head["subtitle"] = [body["title"]["text"], *head.get("subtitle", [])]
        return Picture(spec | body | {"title": head})
    shared = {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}}
    return Picture(
        spec | {"title": head, "concat": panels, "columns": columns, "spacing": 24, "resolve": shared}
    )
