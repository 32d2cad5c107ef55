"""Markdown tables, and our figures beside published ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

Row = Mapping[str, Any]
CLOSE = 1.05  # errors within 5 % of the least share the first place: published figures have two digits
FAR = 2.0  # the ratio beyond which a figure is said to disagree


@dataclass(frozen=True)
class Pair:
    """One figure of ours and the published one, None where the paper has none.

    Args:
        table: of the paper.
        column: of that table, in words.
        method: as the paper calls it, or as we do where it has none.
    """

    table: str
    column: str
    method: str
    ours: float | None
    published: float | None

    @property
    def ratio(self) -> float:
        """Ours over the published one, NaN if either is missing."""
        if self.ours is None or not self.published:
            return math.nan
        return self.ours / self.published

    @property
    def far(self) -> bool:
        """Whether the two differ by more than a factor of two."""
        return not math.isnan(self.ratio) and not 1 / FAR <= self.ratio <= FAR


def number(value: object) -> str:
    """Return a figure with three digits; nothing for None or NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    size = abs(float(value))
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 or not size else f"{value:.2e}"


def table(rows: Sequence[Row], *, title: str, note: str = "", columns: Sequence[str] = ()) -> str:
    """Return a Markdown table under a heading: one line per row, figures to the right.

    Args:
        columns: those shown, in their order; all of the first row if none are named.
    """
    columns = columns or list(rows[0])
    numeric = [
        all(isinstance(r.get(c), int | float | np.number | None) for r in rows) and c != columns[0]
        for c in columns
    ]
    lines = [f"### {title}", "", *([note, ""] if note else [])]
    lines += [_line(columns), _line(["---:" if right else "---" for right in numeric])]
    lines += [_line([number(r.get(c)) for c in columns]) for r in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return each value's place, 1 for the least; equal ones share the mean of theirs."""
    return np.asarray(rankdata(values), dtype=np.float64)


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Return the correlation of two orders, NaN if there is none."""
    x, y = ranks(a), ranks(b)
    if x.size < 2 or not x.std() or not y.std():
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def best(values: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names whose value is the least, or within 5 % of it."""
    least = min(values.values())
    return tuple(name for name, value in values.items() if value <= CLOSE * least)


def beside(pairs: Sequence[Pair], *, title: str, note: str = "") -> str:
    """Return one table of the paper: our figure / the published one in each cell, and places below."""
    columns = list(dict.fromkeys(p.column for p in pairs))
    methods = list(dict.fromkeys(p.method for p in pairs))
    cell = {(p.method, p.column): p for p in pairs}

    def text(pair: Pair | None) -> str:
        if pair is None or pair.ours is None:
            return "" if pair is None else "failed"
        return number(pair.ours) + (f" / {number(pair.published)}" if pair.published is not None else "")

    rows = [{"method": m} | {c: text(cell.get((m, c))) for c in columns} for m in methods]
    note = f"{note} Ours / published.".strip()
    shown = table(rows, title=title, note=note)
    places: dict[str, dict[str, str]] = {}
    for c in columns:
        both = _known([p for p in pairs if p.column == c])
        for p, a, b in zip(both, *map(ranks, _values(both)), strict=True):
            places.setdefault(p.method, {})[c] = f"{a:g} / {b:g}"
    listed = [{"method": m} | places[m] for m in methods if m in places]
    if not listed:
        return shown
    placed = table(listed, columns=["method", *columns], title=f"{title}: places, 1 is best")
    return f"{shown}\n{placed.replace('### ', '#### ', 1)}"


def agreement(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return how alike ours and the published figures are in every column of every table."""
    found = []
    for name, column in dict.fromkeys((p.table, p.column) for p in pairs):
        both = _known([p for p in pairs if (p.table, p.column) == (name, column)])
        if len(both) < 2:
            continue
        ours, theirs = ({p.method: v for p, v in zip(both, values, strict=True)} for values in _values(both))
        winners = best(ours), best(theirs)
        found.append(
            {
                "table": name,
                "column": column,
                "rank correlation": spearman(list(ours.values()), list(theirs.values())),
                "best here": ", ".join(winners[0]),
                "best published": ", ".join(winners[1]),
                "same winner": "yes" if set(winners[0]) & set(winners[1]) else "no",
                "within a factor 2": f"{sum(not p.far for p in both)} of {len(both)}",
            }
        )
    return found


def verdict(pairs: Sequence[Pair]) -> str:
    """Return how far ours and the published figures agree, in sentences and tables made from the figures."""
    both, columns = _known(pairs), agreement(pairs)
    if not columns:
        return "No figure can be compared: the runs failed, or the paper prints none.\n"
    order = [c["rank correlation"] for c in columns if not math.isnan(c["rank correlation"])]
    same = sum(c["same winner"] == "yes" for c in columns)
    far = [p for p in both if p.far]
    larger = sum(p.ratio > 1 for p in far)
    text = (
        f"Of {len(both)} published figures, {len(both) - len(far)} are met within a factor of 2; of the "
        f"others, {larger} are larger here and {len(far) - larger} smaller. "
        f"The order of the methods agrees with a rank correlation of {number(median(order))} in the median "
        f"column (lowest {number(min(order))}, highest {number(max(order))}; {len(columns)} columns). "
        f"The best method, or one within 5 % of it, is the same in {same} of {len(columns)} columns.\n"
    )
    rows: list[Row] = []
    for method in dict.fromkeys(p.method for p in both):
        ratios = sorted(p.ratio for p in both if p.method == method)
        row: dict[str, Any] = {"method": method, "cells": len(ratios)}
        row |= {"least ratio": ratios[0], "median ratio": median(ratios), "largest ratio": ratios[-1]}
        row |= {"above a factor 2": sum(r > FAR for r in ratios)}
        rows.append(row | {"below a half": sum(r < 1 / FAR for r in ratios)})
    listed = table(rows, title="Ours over the published figure, by method")
    return "\n".join([text, listed, table(columns, title="Column by column")])


def _known(pairs: Iterable[Pair]) -> list[Pair]:
    return [p for p in pairs if not math.isnan(p.ratio)]


def _values(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Return both figures of pairs that have both."""
    return [float(p.ours or 0) for p in pairs], [float(p.published or 0) for p in pairs]
