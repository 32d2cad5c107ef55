"""Draws the pictures of the texts: ``python docs/pictures/make.py`` writes the SVG files beside it.

All data are made up and all noise is simulated, with fixed seeds: the same files come out every time. Times
are not so; those of the skyline were measured once and written down.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from gallery import shortened
from numpy.typing import NDArray

import dphist
from dphist.charts.picture import BLUE, CONFIG, GREY, INK, SCHEMA, SKY, VERMILION, Picture
from dphist.lab import figures

Spec = dict[str, Any]
Floats = NDArray[np.float64]
HERE = Path(__file__).parent
PURPLE = "#CC79A7"


def main(endings: tuple[str, ...] = (".svg",)) -> None:
    """Write every picture."""
    for draw in (quadrangle, decisions, levels, sliding, skyline, outcomes, buys, joint):
        for ending in endings:
            file = draw().save(HERE / f"{draw.__name__}{ending}", overwrite=True)
            if ending == ".svg":
                file.write_text(shortened(file.read_text("utf-8")), "utf-8")


def picture(about: str, spec: Spec) -> Picture:
    """Return a Vega-Lite description in the package's own style."""
    return Picture({"$schema": SCHEMA, "description": about, "config": CONFIG | {"aria": False}} | spec)


def layer(rows: list[Spec], mark: str | Spec, **encoding: Any) -> Spec:
    """Return one layer with its own rows."""
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def axis(
    field: str, title: str | None = None, *, span: tuple[float, float] | None = None, **more: Any
) -> Spec:
    """Return a quantitative channel."""
    scale: Spec = {"zero": False, "nice": False} | ({"domain": list(span)} if span else {})
    return {"field": field, "type": "quantitative", "title": title, "scale": scale} | more


def text(rows: list[Spec], x: Spec, y: Spec, *, align: str = "center", dx: float = 0, dy: float = 0) -> Spec:
    """Return labels: each row's ``label`` in its ``ink``."""
    mark = {"type": "text", "fontSize": 13, "align": align, "dx": dx, "dy": dy}
    color = {"field": "ink", "type": "nominal", "scale": None}
    return layer(rows, mark, x=x, y=y, text={"field": "label", "type": "nominal"}, color=color)


def quadrangle() -> Picture:
    """Two crossing groups of sorted counts, each measured from another group's mean."""
    a, b, c = [1.0, 2.0, 2.7, 4.0], [5.0, 6.5, 8.0, 9.0], [10.3, 11.9]
    m, u = float(np.mean(a + b + c)), float(np.mean(b))
    rows = [
        ("w(a,d): all three, from its own mean m", (*a, *b, *c), m, GREY),
        ("w(b,c): the middle, from its own mean u", b, u, GREY),
        ("w(a,c) ≤ left and middle, from m", (*a, *b), m, BLUE),
        ("w(b,d) ≤ middle and right, from u", (*b, *c), u, VERMILION),
    ]
    y: Spec = {"field": "row", "type": "nominal", "title": None, "sort": None}
    y |= {"axis": {"labelLimit": 400, "labelFontSize": 13, "ticks": False, "domain": False, "grid": False}}
    x = axis("count", "count, sorted", span=(0, 13), axis={"grid": False})
    bars, dots, marks = [], [], []
    for name, group, centre, ink in rows:
        bars.append({"row": name, "count": min(group), "to": max(group), "ink": ink})
        marks.append({"row": name, "count": centre, "label": "m" if centre == m else "u", "ink": ink})
        dots += [{"row": name, "count": value, "ink": ink} for value in group]
    ink = {"field": "ink", "type": "nominal", "scale": None}
    far = [{"row": rows[3][0], "count": sum(c) / 2, "label": "nearer to u than to m", "ink": VERMILION}]
    return picture(
        "two crossing groups cost no more than the nested ones",
        {
            "width": 520,
            "height": 230,
            "layer": [
                layer(
                    bars,
                    {"type": "bar", "height": 26, "opacity": 0.2},
                    x=x,
                    x2={"field": "to"},
                    y=y,
                    color=ink,
                ),
                layer(dots, {"type": "circle", "size": 70, "opacity": 1}, x=x, y=y, color=ink),
                layer(marks, {"type": "tick", "thickness": 3, "height": 34}, x=x, y=y, color={"value": INK}),
                text([row | {"ink": INK} for row in marks], x, y, dy=-22),
                text(far, x, y, dy=-22),
            ],
        },
    )


def decisions() -> Picture:
    """Where the last group of the best partition starts, for every end: sorted counts and unsorted ones."""
    true = np.repeat([4, 30, 12, 60, 22, 45], [40, 25, 45, 20, 40, 30])
    noisy = np.asarray(dphist.simulate(true, epsilon="0.3", seed=5))[0]
    order = np.sort(noisy)
    beta = 2 * (1 / 0.3) ** 2 * 3
    reach = 2 * np.sqrt(2 * beta)
    parts = []
    for h, name in ((order, "sorted: never falls"), (noisy, "unsorted: jumps back")):
        start, alive = last_starts(h, beta)
        ends = np.arange(1, h.size + 1)
        ticks = {"values": [0, 50, 100, 150, 200]}
        x = axis("end", "end of the group", span=(0, 200), axis=ticks)
        y = axis("start", "best start of the group", span=(0, 200), axis=ticks)
        dots = [{"end": int(e), "start": int(s)} for e, s in zip(ends, start, strict=True)]
        layers = [layer(dots, {"type": "circle", "size": 16, "color": BLUE, "opacity": 1}, x=x, y=y)]
        if h is order:
            first = np.searchsorted(h, h - reach)
            band = [{"end": int(e), "start": int(f)} for e, f in zip(ends, first, strict=True)]
            band = [row | {"to": row["end"] - 1} for row in band]
            layers.insert(
                0, layer(band, {"type": "area", "color": SKY, "opacity": 0.3}, x=x, y=y, y2={"field": "to"})
            )
            note = [
                {"end": 4, "start": 192, "label": "shaded: the band of starts that can matter", "ink": INK}
            ]
            layers.append(text(note, x, y, align="left"))
        else:
            spans = [{"end": lo, "to": hi, "start": s} for s, (lo, hi) in alive.items()]
            rule = {"type": "rule", "color": SKY, "strokeWidth": 3, "opacity": 0.6}
            layers.insert(0, layer(spans, rule, x=x, x2={"field": "to"}, y=y))
            note = [{"end": 4, "start": 192, "label": "light: the ends until a start is pruned", "ink": INK}]
            layers.append(text(note, x, y, align="left"))
        parts.append({"width": 300, "height": 300, "title": {"text": name, "fontSize": 14}, "layer": layers})
    return picture("best starts of sorted and unsorted counts", {"hconcat": parts, "spacing": 40})


def last_starts(h: Floats, beta: float) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Return the best start for every end, and for every start the ends between which pruning keeps it."""
    n = h.size
    best, starts, alive, lives = np.zeros(n + 1), [], [0], {}
    for j in range(1, n + 1):
        cost = [best[i] + sse(h[i:j]) for i in range(j)]
        lives |= {i: (i, j) for i in alive}
        starts.append(int(np.argmin(cost)))
        best[j] = cost[starts[-1]] + beta
        alive = [*(i for i in alive if wins_somewhere(h, best, i, j, alive)), j]
    return starts, lives


def sse(x: Floats) -> float:
    """Return the sum of squared distances to the mean."""
    return float(((x - x.mean()) ** 2).sum())


def wins_somewhere(h: Floats, best: Floats, i: int, j: int, others: list[int]) -> bool:
    """Say whether start i is still best at some level among the starts alive at end j."""
    grid = np.linspace(h.min(), h.max(), 400)
    return bool((curve(h, best, i, j, grid) <= envelope(h, best, [*others, j], j, grid) + 1e-9).any())


def curve(h: Floats, best: Floats, i: int, j: int, grid: Floats) -> Floats:
    """Return what start i costs up to end j if its group has the level m, for each m of a grid."""
    return np.asarray(best[i] + ((h[i:j, None] - grid) ** 2).sum(axis=0))


def envelope(h: Floats, best: Floats, starts: list[int], j: int, grid: Floats) -> Floats:
    """Return the least of the curves of several starts."""
    return np.asarray(np.min([curve(h, best, i, j, grid) for i in starts], axis=0))


def levels() -> Picture:
    """The costs of the starts that are alive at one end, as functions of the level of their group."""
    true = np.repeat([20, 38, 30], [14, 9, 6])
    h = np.asarray(dphist.simulate(true, epsilon="0.35", seed=4))[0]
    beta, n = 40.0, h.size
    best = np.zeros(n + 1)
    for j in range(1, n + 1):
        best[j] = min(best[i] + sse(h[i:j]) for i in range(j)) + beta
    grid = np.linspace(10, 50, 801)
    low = envelope(h, best, list(range(n + 1)), n, grid)
    lines, bars, names = [], [], []
    inks = [BLUE, VERMILION, "#009E73", PURPLE, "#E69F00", INK]
    alive = [i for i in range(n + 1) if (curve(h, best, i, n, grid) <= low + 1e-9).any()]
    dead = [i for i in range(n + 1) if i not in alive][1::4]
    floor, top = float(low.min()), float(low.min()) + 260
    for i in [*dead, *alive]:
        ink = inks[alive.index(i) % len(inks)] if i in alive else GREY
        cost = curve(h, best, i, n, grid)
        lines += [
            {"level": float(g), "cost": float(v), "start": i, "ink": ink}
            for g, v in zip(grid[::4], cost[::4], strict=True)
            if v <= top
        ]
        if i not in alive:
            continue
        wins = np.flatnonzero(cost <= low + 1e-9)
        for run in np.split(wins, np.flatnonzero(np.diff(wins) > 1) + 1):
            piece = {"level": float(grid[run[0]]), "to": float(grid[run[-1]]), "cost": floor - 30, "ink": ink}
            bars.append(piece)
            if piece["to"] - piece["level"] > 0.8:
                middle = (piece["level"] + piece["to"]) / 2
                names.append({"level": middle, "cost": floor - 30, "label": str(i), "ink": ink})
    x = axis("level", "level m of the group that is still open", span=(10, 50), axis={"grid": False})
    y = axis(
        "cost",
        "cost up to here",
        span=(floor - 55, top),
        axis={"labels": False, "ticks": False, "grid": False},
    )
    ink = {"field": "ink", "type": "nominal", "scale": None}
    one = {"field": "start", "type": "nominal"}
    note = [
        {
            "level": 10.4,
            "cost": floor + 12,
            "label": "grey: starts that are worse at every level",
            "ink": "#777777",
        }
    ]
    return picture(
        "starts and the levels at which they may still win",
        {
            "width": 620,
            "height": 300,
            "layer": [
                layer(
                    lines, {"type": "line", "strokeWidth": 2, "clip": True}, x=x, y=y, color=ink, detail=one
                ),
                layer(bars, {"type": "rule", "strokeWidth": 7}, x=x, x2={"field": "to"}, y=y, color=ink),
                text(names, x, y, dy=15),
                text(note, x, y, align="left"),
            ],
        },
    )


def sliding() -> Picture:
    """A window's counters over distinct counts, before and after it moves by one bin."""
    row = np.array([3, 7, 2, 3, 9, 7, 2, 3, 26])
    parts = []
    for lo, name in ((0, "window 0 to 7"), (1, "one step on: 3 leaves, 26 enters")):
        window = row[lo : lo + 8]
        mean = float(window.mean())
        values, counts = np.unique(window, return_counts=True)
        changed = {3, 26} if lo else set()
        bars = [
            {
                "count": int(v),
                "bins": int(c),
                "ink": BLUE if v <= mean else SKY,
                "edge": INK if v in changed else None,
            }
            for v, c in zip(values, counts, strict=True)
        ]
        x = axis("count", "distinct count", span=(0, 28), axis={"grid": False, "tickMinStep": 1})
        y = axis("bins", "bins in the window", span=(0, 4), axis={"tickMinStep": 1, "tickCount": 4})
        color = {"field": "ink", "type": "nominal", "scale": None}
        edge = {"field": "edge", "type": "nominal", "scale": None}
        below = [{"count": mean, "bins": 3.8, "label": f"mean {mean:.2f}", "ink": VERMILION}]
        sums = f"c = {int((window <= mean).sum())} bins of sum s = {int(window[window <= mean].sum())}"
        total = [{"count": mean, "bins": 3.4, "label": sums, "ink": BLUE}]
        parts.append(
            {
                "width": 300,
                "height": 190,
                "title": {"text": name, "fontSize": 14},
                "layer": [
                    layer(
                        bars,
                        {"type": "bar", "width": 9, "strokeWidth": 2},
                        x=x,
                        y=y,
                        color=color,
                        stroke=edge,
                    ),
                    layer(below, {"type": "rule", "strokeWidth": 2, "color": VERMILION}, x=x),
                    text(below, x, y, align="left", dx=6),
                    text(total, x, y, align="left", dx=6),
                ],
            }
        )
    return picture(
        "counters of a sliding window and the pointer at its mean", {"hconcat": parts, "spacing": 40}
    )


# dphist compare --like "bins=4096 records=1e6 hourly" --epsilon 0.1 --workload random --jobs 1, of these:
# median CPU time of a run in milliseconds, mean absolute error of a query.
MEASURED = {
    "identity": (0.31, 331),
    "uniform": (0.44, 99_011),
    "privelet": (0.64, 207),
    "ahp": (1.2, 2530),
    "hb": (1.3, 131),
    "s2": (1.4, 350),
    "sdwf": (1.5, 447),
    "greedyh": (2.1, 141),
    "s2+h": (2.3, 171),
    "sa": (5.5, 402),
    "dawa": (7.4, 181),
    "php": (11, 9640),
    "efpa": (14, 3816),
    "dawa2": (31, 108),
    "hats": (33, 109),
    "s1": (270, 343),
}


def skyline() -> Picture:
    """Time against error of sixteen methods, as the laboratory draws them."""
    rows = [{"method": m, "seconds": t / 1000, "error": error} for m, (t, error) in MEASURED.items()]
    drawn = figures.skyline(
        rows,
        error="error",
        title="Random ranges over 4,096 bins",
        subtitle="hourly peaks, a million records, epsilon 0.1",
        error_title="mean absolute error of a query",
    )
    return Picture(drawn.spec | {"config": CONFIG | {"aria": False}})


# Forty bins of ages with three thousand people in them, at an epsilon that shows.
AGES = {"bins": 40, "range": (0, 120), "epsilon": "0.1"}


def outcomes() -> Picture:
    """A dozen releases that could come out, and the band of nine in ten."""
    drawn = dphist.Plan(**AGES).preview(records=3000).plot()
    return Picture(drawn.spec | {"config": CONFIG | {"aria": False}})


def buys() -> Picture:
    """Error against epsilon, for the methods that are advised."""
    methods = ["identity", "hats", "dawa2", "ahp", "uniform"]
    advice = dphist.advise(1024, records=1e6, epsilon="0.1", workload="ranges", like="heaps", methods=methods)
    return Picture(advice.plot().spec | {"config": CONFIG | {"aria": False}})


def joint() -> Picture:
    """One simulated release with its intervals for each bin alone and for all at once."""
    preview = dphist.Plan(**AGES).preview(records=3000)
    release, truth = preview.releases[0], preview.truth
    rows = []
    for kind, ends in (
        ("each bin alone", release.intervals()),
        ("all bins at once", release.intervals(joint=True)),
    ):
        for k, (low, high, true) in enumerate(zip(*ends, truth, strict=True)):
            row = {"age": 3 * k + 1.5, "low": float(low), "high": float(high), "kind": kind}
            rows.append(row | {"true": int(true), "ink": GREY if low <= true <= high else VERMILION})
    parts = []
    for kind in ("each bin alone", "all bins at once"):
        some = [row for row in rows if row["kind"] == kind]
        missed = sum(row["ink"] == VERMILION for row in some)
        x = axis("age", "age", span=(0, 120), axis={"grid": False})
        y = axis("low", "people", span=(-100, 300))
        ink = {"field": "ink", "type": "nominal", "scale": None}
        layers = [
            layer(some, {"type": "rule", "strokeWidth": 3}, x=x, y=y, y2={"field": "high"}, color=ink),
            layer(
                some,
                {"type": "point", "filled": True, "size": 28, "color": INK},
                x=x,
                y=y | {"field": "true"},
            ),
        ]
        title = f"95 % for {kind}: {missed} of {len(some)} miss the truth"
        parts.append({"width": 330, "height": 240, "title": {"text": title, "fontSize": 14}, "layer": layers})
    return picture("intervals of one release, for each bin alone and for all at once", {"hconcat": parts})


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or (".svg",))
