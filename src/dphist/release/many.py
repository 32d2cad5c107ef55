"""Many answers at once: ranges given as arrays, means and shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dphist.domain import Axis, Domain, Instants, Integers, Labelled
from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.release.answers import cuts, pick


def are_many(domain: Domain, where: tuple[Any, ...]) -> bool:
    """Return whether a query names arrays of ranges: an end on an ordered axis is an array or a list."""
    parts = (where,) if len(domain.axes) == 1 else where
    return any(
        isinstance(end, list | np.ndarray) and np.ndim(end) > 0
        for axis, part in zip(domain.axes, parts, strict=False)
        if not isinstance(axis, Labelled) and isinstance(part, tuple | list)
        for end in part
    )


def boxes(domain: Domain, where: tuple[Any, ...]) -> Boxes:
    """Return the ranges of bins, one for each axis of a domain, that a query names."""
    parts = (where,) if len(domain.axes) == 1 else where
    if len(parts) != len(domain.axes):
        raise UsageError("on a grid name a part of each axis: sum((los, his), (20, 30)).")
    ends = [end for axis, part in zip(domain.axes, parts, strict=True) for end in _run(axis, part)]
    try:
        alike = tuple(np.atleast_1d(np.ascontiguousarray(end)) for end in np.broadcast_arrays(*ends))
    except ValueError:
        shapes = " and ".join(str(end.shape) for end in ends)
        raise UsageError(f"the ends of ranges must be as many: these are {shapes}.") from None
    if any(end.ndim > 1 for end in alike):
        raise UsageError("the ends of ranges are lists of one dimension.")
    return Boxes(domain.shape, alike)


def _run(axis: Axis, part: Any) -> tuple[Ints, Ints]:
    """Return the first bin and the one after the last, of one range or of many."""
    if isinstance(axis, Labelled):
        picked = pick(axis, part)
        if picked[-1] - picked[0] != picked.size - 1:
            raise UsageError("many ranges take labels that stand side by side; ask for the others apart.")
        return np.array(picked[0]), np.array(picked[-1] + 1)
    if isinstance(part, str) or len(part) != 2:
        raise UsageError("many ranges are two arrays of edges: sum(los, his).")
    lo, hi = (cuts(axis, end) for end in part)
    wrong = np.flatnonzero(np.ravel(lo) >= np.ravel(hi)) if lo.shape == hi.shape else np.empty(0)
    if wrong.size:
        raise UsageError(f"range {wrong[0]} has no bins (counting from 0); its ends must increase.")
    return lo, hi


def mean_ends(axis: Axis) -> tuple[Floats, Floats]:
    """Return the least and the greatest value that a record of each bin may have."""
    if isinstance(axis, Integers):
        return axis.edges[:-1], axis.edges[:-1]
    return axis.edges[:-1], axis.edges[1:]


def last_accepted(inside: float, end: float, accepted: Callable[[float], bool]) -> float:
    """Return how far towards ``end`` values are accepted, which begins at ``inside``."""
    if accepted(end):
        return end
    for _ in range(50):
        middle = (inside + end) / 2
        inside, end = (middle, end) if accepted(middle) else (inside, middle)
    return end


def places(axis: Axis, x: Any) -> Floats:
    """Return points of an axis as numbers; instants that are written or dates must be edges."""
    if isinstance(axis, Instants) and np.asarray(x).dtype.kind not in "iuf":
        return axis.edges[cuts(axis, x)]
    try:
        at = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"x must be a number or an array of them, not {x!r}.") from None
    if at.ndim > 1 or not ((at >= axis.edges[0]) & (at <= axis.edges[-1])).all():
        raise UsageError(
            f"x lies in the domain, from {axis.edges[0]:g} to {axis.edges[-1]:g}, or is a list of such."
        )
    return at
