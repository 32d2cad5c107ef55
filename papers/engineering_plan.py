"""What the paper on engineering methods measured, and the cells that measure it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from dphist.domain import Domain
from dphist.domain.workload import Workload, fraction, make_workload
from dphist.lab import data as bench_data
from dphist.lab.data import Source
from dphist.lab.figures import front
from dphist.lab.grid import Cell
from dphist.lab.metrics import summarise

Row = dict[str, Any]
# Table 1: the paper's name, and the time it states.
METHODS: Mapping[str, tuple[str, str]] = {
    "s1": ("S1", "N² log N"),
    "sa": ("S~", "N log² N"),
    "s2": ("S2", "N²"),
    "o+s1": ("O+S1", "N² log N"),
    "o+sa": ("O+S~", "N log² N"),
    "o+s2": ("O+S2", "N²"),
    "s1+mm": ("S1+MM", "N³ log N"),
    "sa+mm": ("S~+MM", "N³ log N"),
    "s2+mm": ("S2+MM", "N³ log N"),
    "s1+pmm": ("S1+PMM", "N² log N"),
    "sa+pmm": ("S~+PMM", "N² log N"),
    "s2+pmm": ("S2+PMM", "N² log N"),
    "h": ("H", "N"),
    "s1+h": ("S1+H", "N log N"),
    "s2+h": ("S2+H", "N"),
}
TOP = ("sa", "o+sa", "s1+pmm", "h", "s2+h")  # the best of each group, by the paper's Table 2
EVERY_INTERVAL = ("s1", "o+s1", "s1+mm", "s1+pmm")  # they weigh all intervals: quadratic time, here too
SMALL, LARGE = "0.01", "1"
BETWEEN = ("0.05", "0.1", "0.5")
POINTS, INTERVALS = "points", "all-ranges"
QUERIES = {POINTS: "point queries", INTERVALS: "all intervals"}
LENGTHS = ("1%", "2%", "4%", "8%", "16%", "32%", "64%")
ERROR = "mean squared error (records²)"
# The paper does not print how many records Rome and Log have.
DATA = (
    Source("Rome", "hourly", 1442, 100_000),
    Source("Log", "hourly", 32_768, 335_889),
    Source("Citations", "power-sorted", 2414, 27_770),
    Source("PUMS", "heaps", 7578, 500_000),
)
ABOUT = {
    "Rome": "cars on a road, by minute; the number of records is ours",
    "Log": "a keyword's frequency over time; as many records as DPBench's SEARCHLOGS has",
    "Citations": "papers by how often they are cited; about as many as the citation network has",
    "PUMS": "people by income; the paper's number of records",
}
# Who is on the skyline of each figure, by the text of Section 7.2; together it gives the totals of Table 2.
SKYLINES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "3a": ("Rome", SMALL, POINTS, ("sa", "s1+h", "s2+h")),
    "3b": ("Rome", SMALL, INTERVALS, ("s1", "s2", "s2+h")),
    "4a": ("Rome", LARGE, POINTS, ("sa", "o+sa", "h")),
    "4b": ("Rome", LARGE, INTERVALS, ("s1+pmm", "s2+h")),
    "5a": ("Log", SMALL, POINTS, ("s1+h", "s2+h")),
    "5b": ("Log", SMALL, INTERVALS, ("s1+h", "s2+h")),
    "6a": ("Log", LARGE, POINTS, ("sa", "o+sa", "s2+h")),
    "6b": ("Log", LARGE, INTERVALS, ("s2+h",)),
    "7a": ("Citations", SMALL, POINTS, ("sa", "s1+h", "s2+h")),
    "7b": ("Citations", SMALL, INTERVALS, ("sa", "s2+h")),
    "8a": ("Citations", LARGE, POINTS, ("sa", "s1+h", "s2+h")),
    "8b": ("Citations", LARGE, INTERVALS, ("s1", "sa+pmm", "s1+h", "s2+h")),
    "9a": ("PUMS", SMALL, POINTS, ("sa", "o+sa", "s2+h")),
    "9b": ("PUMS", SMALL, INTERVALS, ("s1+pmm", "sa+pmm", "s2+h")),
    "10a": ("PUMS", LARGE, POINTS, ("sa", "o+sa", "s2+h")),
    "10b": ("PUMS", LARGE, INTERVALS, ("s2+h",)),
}
TABLE_2 = {"s1": 2, "sa": 8, "s2": 1, "o+sa": 4, "s1+pmm": 2, "sa+pmm": 2, "h": 1, "s1+h": 6, "s2+h": 15}


def queries(name: str, domain: Domain) -> Workload:
    """Return the workload of a name; ``4%`` is all intervals that span so much of the domain."""
    return fraction(domain.n, float(name[:-1])) if name.endswith("%") else make_workload(name, domain)


def plan(sources: Sequence[Source], *, quick: bool) -> tuple[Cell, ...]:
    """Return the cells: all methods at the smallest and largest epsilon, the best five between them too."""
    cells = []
    for source in sources:
        n = source.counts().size
        for method in METHODS:
            best = method in TOP
            for epsilon in (SMALL, LARGE, *(BETWEEN if best else ())):
                judged = (POINTS, INTERVALS, *(LENGTHS if best and epsilon in (SMALL, LARGE) else ()))
                many = trials(method, n, quick=quick)
                cells.append(Cell(source, epsilon, INTERVALS, method, many, judged))
    # The longest first, so that no core is left alone with one of them at the end.
    return tuple(sorted(cells, key=lambda c: -_weight(c.method, c.source.n or 0) * c.trials))


def trials(method: str, n: int, *, quick: bool) -> int:
    """Return how often a method is run: the paper's 100 times, less where it takes seconds."""
    slow = _weight(method, n)
    if quick:
        return 2 if slow > 1e8 else 5 if slow > 1e7 else 10
    return 10 if slow > 1e8 else 100


def real_files(folder: Path | None) -> tuple[Source, ...]:
    """Return the files of one axis in a folder, made coarser if they are larger than the paper's largest."""
    if folder is None:
        return ()
    found = bench_data.folder(folder, dims=1)
    most = max(source.n or 0 for source in DATA)
    return tuple(replace(s, n=most) if s.counts().size > most else s for s in found)


def _weight(method: str, n: int) -> float:
    """Return roughly how many steps a run takes."""
    return float(n) ** 2 if method in EVERY_INTERVAL else 30.0 * n


def measured(rows: Iterable[Row]) -> list[Row]:
    """Return the mean error and the median time of every method in every setting."""
    good = [row for row in rows if row["status"] == "ok"]
    by = ("dataset", "n", "epsilon", "judged", "method")
    times: dict[tuple[Any, ...], list[float]] = {}
    for row in good:
        times.setdefault(tuple(row[name] for name in by), []).append(row["seconds"])
    # A busy machine only ever adds time, so a median over trials says more than a mean.
    found = [
        line | {"error": line["mean"], "seconds": median(times[tuple(line[name] for name in by)])}
        for line in summarise(good, by=by, value="mean_squared")
    ]
    place = {source.name: i for i, source in enumerate(DATA)}
    methods = list(METHODS)
    return sorted(found, key=lambda p: (place.get(p["dataset"], len(place)), methods.index(p["method"])))


@dataclass(frozen=True)
class Look:
    """Finds the measured error and time of a method in a setting; NaN if it failed or was not run."""

    at: Mapping[tuple[str, float, str, str], Row]

    @classmethod
    def into(cls, points: Iterable[Row]) -> Look:
        """Return a look into measured points."""
        return cls({(p["dataset"], p["epsilon"], p["judged"], p["method"]): p for p in points})

    def error(self, dataset: str, epsilon: str, judged: str, method: str) -> float:
        """Return the mean squared error."""
        found = self.at.get((dataset, float(epsilon), judged, method))
        return math.nan if found is None else float(found["error"])

    def seconds(self, dataset: str, epsilon: str, method: str) -> float:
        """Return the CPU time of one run."""
        found = self.at.get((dataset, float(epsilon), POINTS, method))
        return math.nan if found is None else float(found["seconds"])

    def skyline(self, dataset: str, epsilon: str, judged: str) -> tuple[str, ...]:
        """Return the methods that no other beats in both time and error."""
        there = self._errors(dataset, epsilon, judged, tuple(METHODS))
        times = [self.seconds(dataset, epsilon, m) for m in there]
        return tuple(m for m, on in zip(there, front(times, list(there.values())), strict=True) if on)

    def best(self, dataset: str, epsilon: str, judged: str, among: Sequence[str]) -> str:
        """Return the method of least error among some."""
        there = self._errors(dataset, epsilon, judged, among)
        return min(there, key=lambda m: there[m], default="")

    def worst(self, dataset: str, epsilon: str, judged: str, among: Sequence[str]) -> str:
        """Return the method of largest error among some."""
        there = self._errors(dataset, epsilon, judged, among)
        return max(there, key=lambda m: there[m], default="")

    def fastest(self, dataset: str, epsilon: str) -> str:
        """Return the method of least time."""
        there = self._errors(dataset, epsilon, POINTS, tuple(METHODS))
        return min(there, key=lambda m: self.seconds(dataset, epsilon, m), default="")

    def _errors(self, dataset: str, epsilon: str, judged: str, among: Sequence[str]) -> dict[str, float]:
        there = {m: self.error(dataset, epsilon, judged, m) for m in among}
        return {m: error for m, error in there.items() if not math.isnan(error)}


def size_of(points: Sequence[Row], dataset: str) -> int:
    """Return how many bins a data set has, 0 if it is not there."""
    return next((int(p["n"]) for p in points if p["dataset"] == dataset), 0)
