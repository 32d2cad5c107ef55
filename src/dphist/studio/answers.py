"""What the library says, as JSON: exact numbers as text, what is not known as null."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Axis, Categories, Instants, Integers, Keyed, Regular, Variable
from dphist.release import Estimate
from dphist.release.show import decimal

MOST_EDGES, MOST_NAMES, MOST_LINE = 4096, 400, 64
MOST_DRAWN = 1 << 16  # bins of an axis that is drawn at all


def exact(value: Fraction | None) -> str | None:
    """Return a budget as people write it, exactly."""
    return None if value is None else decimal(value)


def number(value: float | None) -> float | None:
    """Return a number that is known and finite; null otherwise."""
    return None if value is None or not math.isfinite(value) else float(value)


def numbers(values: NDArray[Any]) -> list[float | None]:
    """Return an array in row order; what is not finite is null."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return [value if math.isfinite(value) else None for value in flat.tolist()]


def axis_of(axis: Axis, name: str) -> dict[str, Any]:
    """Return what is drawn of an axis; of very many bins the first, and of too many the ends alone."""
    cut = axis.n > MOST_NAMES
    said: dict[str, Any] = {"kind": axis.kind, "name": name, "n": axis.n, "edges": None, "cut": cut}
    said |= {"ends": _ends(axis), "names": []}
    if axis.n > MOST_DRAWN or isinstance(axis, Keyed):
        return said
    said["names"] = list(axis.names()[:MOST_NAMES])
    if isinstance(axis, Categories):
        return said
    if axis.n <= MOST_EDGES:
        edges: NDArray[Any] = axis.edges
        said["edges"] = edges.astype(np.int64).tolist() if isinstance(axis, Integers) else edges.tolist()
    if isinstance(axis, Instants):
        said["moments"] = axis.moments()[: MOST_NAMES + 1]
    return said


def _ends(axis: Axis) -> list[Any] | None:
    """Return where an axis of numbers or of time begins and ends."""
    if isinstance(axis, Regular):
        return [axis.lo, axis.hi]
    if isinstance(axis, Integers):
        return [axis.low, axis.high + 1]
    if isinstance(axis, Instants):
        return [axis.start, axis.stop]
    return [float(axis.edges[0]), float(axis.edges[-1])] if isinstance(axis, Variable) else None


def estimate(found: Estimate) -> dict[str, Any]:
    """Return an answer with its interval."""
    ends = {"value": number(found.value), "low": number(found.low), "high": number(found.high)}
    return ends | {"words": str(found)}


def line(values: NDArray[Any]) -> list[float | None]:
    """Return a small line: the mean of each of at most 64 stretches of bins."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    parts = np.array_split(flat, min(flat.size, MOST_LINE))
    return numbers(np.array([part.mean() for part in parts]))
