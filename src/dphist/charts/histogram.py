"""Pictures of one histogram: bars or steps with intervals, outcomes that could be, two of them compared."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.charts.columns import Columns, block_words, cut_short, height_scale, is_counted, shared, widths_of
from dphist.charts.picture import (
    BAR,
    BLUE,
    ERROR_HEIGHT,
    GREY,
    HEIGHT,
    INK,
    LEGEND,
    LETTER,
    LIST_ROW,
    MAX_BARS,
    MAX_COLUMNS,
    MOST_LISTED,
    MOST_ROWS,
    MUTED,
    SKY,
    TIP,
    VERMILION,
    WIDTH,
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
from dphist.domain import Axis, Domain
from dphist.domain.groups import Floats, Groups
from dphist.errors import UsageError, did_you_mean

MAX_OUTCOME_COLUMNS = 250  # a dozen lines are drawn over each

WHISKER = 1.25  # the width of a whisker

VISIBLE = 3  # the least half-height of an interval that can be seen


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
    starts = shared(groups, [y, *ends.values(), *(() if exact is None else (exact,))])
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
    ruler, height, layers = ruled.ruler("x", x_title, room), height_scale(data, scale, counted), []
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
    blocks = block_words(groups, domain.n, starts.size) if merged else ""
    notes = (note, shown, blocks, _area(density) or _unlike(domain.axis), cut_short(domain.axis))
    small = _too_small(data, height, scale, tall, counted)
    spec = frame(title, subtitle, (*notes, small), about, tables, {"xnames": ruled.names}, width=room)
    rows = _table_of(domain.axis, plain(x_title), y * per, {key: part * per for key, part in ends.items()})
    if lying:
        layers, tall = [_lying(layer, ruled.m) for layer in layers], LIST_ROW * ruled.m
    return Picture(spec | fit(size, room if size is None else WIDTH, tall) | {"layer": layers}, rows)


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
    """Return the intervals in words if they can hardly be seen."""
    if "low" not in data or scale == "log" or not np.isfinite(data["low"]).any():
        return ""
    half = float(np.nanmedian(data["high"] - data["low"])) / 2
    bottom, top = height["scale"]["domain"]
    if half * tall / (top - bottom) >= VISIBLE:
        return ""
    return f"Intervals of about ± {words_of(float(f'{half:.2g}'))} {counted}: hardly to be seen here."


def _table_of(axis: Axis, name: str, values: Floats, ends: dict[str, Floats]) -> Table:
    """Return the bins in words, with values and intervals; nothing if they are too many for a page."""
    if axis.n > MOST_ROWS:
        return ()
    columns = [values, *((values - ends["low"], values + ends["high"]) if ends else ())]
    rows = zip(axis.names(), *([words_of(v) for v in column.tolist()] for column in columns), strict=True)
    return [(name or "bin", "value", "low", "high")[: 1 + len(columns)], *rows]


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
    height = height_scale(data | {"outcome": lines["outcome"]}, scale, counted)
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
    wrong = height_scale(
        off | {"outcome": tables["outcomes"]["outcome off"]}, "linear", "outcome minus truth"
    )
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
