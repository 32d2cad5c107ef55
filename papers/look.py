"""The figures of a run, found by what they are figures of: data, epsilon, queries and method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from dphist.lab.figures import front
from dphist.lab.metrics import summarise
from papers.tables import table

Row = dict[str, Any]
Setting = tuple[str, str, str]  # data, epsilon, queries


def measured(rows: Iterable[Row], *, error: str) -> list[Row]:
    """Return one point for each setting and method: its mean error with an interval, and its median time.

    Args:
        rows: of a grid. What a row calls ``queries`` replaces the workload that judged it, so that random
            workloads of one kind count as one.
        error: the column that the paper measures.
    """
    good = [{"queries": row["judged"]} | row for row in rows if row["status"] == "ok"]
    by = ("dataset", "n", "epsilon", "queries", "method")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in good:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    points = []
    for line in summarise(good, by=by, value=error):
        members = groups[tuple(line[name] for name in by)]
        # A busy machine only ever adds time, so a median over trials says more than a mean.
        found = {"error": line["mean"], "seconds": median(row["seconds"] for row in members)}
        divergences = [row["kl"] for row in members if row["kl"] is not None]
        points.append(line | found | ({"divergence": fmean(divergences)} if divergences else {}))
    return points


@dataclass(frozen=True)
class Look:
    """Finds a figure of a method in a setting; NaN if the method failed or was not run."""

    at: Mapping[tuple[str, float, str, str], Row]

    @classmethod
    def into(cls, points: Iterable[Row]) -> Look:
        """Return a look into points; those of one setting and method are put together."""
        at: dict[tuple[str, float, str, str], Row] = {}
        for p in points:
            key = (p["dataset"], float(p["epsilon"]), p["queries"], p["method"])
            at[key] = at.get(key, {}) | p
        return cls(at)

    def figure(self, name: str, data: str, epsilon: str, queries: str, method: str) -> float:
        """Return the figure of a name, such as ``error`` or ``seconds``."""
        return float(self.at.get((data, float(epsilon), queries, method), {}).get(name, math.nan))

    def error(self, data: str, epsilon: str, queries: str, method: str) -> float:
        """Return the mean error."""
        return self.figure("error", data, epsilon, queries, method)

    def known(
        self, name: str, data: str, epsilon: str, queries: str, methods: Iterable[str]
    ) -> dict[str, float]:
        """Return a figure of those methods that have one."""
        found = {method: self.figure(name, data, epsilon, queries, method) for method in methods}
        return {method: value for method, value in found.items() if not math.isnan(value)}

    def skyline(self, data: str, epsilon: str, queries: str, methods: Sequence[str]) -> tuple[str, ...]:
        """Return the methods that no other beats in both time and error."""
        errors = self.known("error", data, epsilon, queries, methods)
        times = [self.figure("seconds", data, epsilon, queries, method) for method in errors]
        return tuple(m for m, on in zip(errors, front(times, list(errors.values())), strict=True) if on)

    def size(self, data: str) -> int:
        """Return how many bins a data set has, 0 if it was not run."""
        return next((int(p["n"]) for (name, *_), p in self.at.items() if name == data and "n" in p), 0)

    def table(
        self, methods: Mapping[str, str], columns: Mapping[str, Setting], *, title: str, note: str = ""
    ) -> str:
        """Return a table of mean errors: a row for each method, by its label, a column for each setting."""
        rows = [
            {"method": label} | {column: self.error(*at, method) for column, at in columns.items()}
            for label, method in methods.items()
        ]
        return table(rows, title=title, note=note)
