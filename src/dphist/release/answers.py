"""From the edges or labels of a query, in the units of the data, to bins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain import (
    Addresses,
    Axis,
    Categories,
    Codes,
    Domain,
    Hashed,
    Instants,
    Integers,
    Keyed,
    Labelled,
    Regular,
    Variable,
    as_int,
    cut,
    shown,
)
from dphist.domain.axes import is_edge
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError, did_you_mean


def cells(domain: Domain, where: tuple[Any, ...]) -> Ints:
    """Return the numbers of the bins that a query names, rising."""
    axes = domain.axes
    if len(axes) == 1:
        return pick(axes[0], where)
    if len(where) != 2:
        raise UsageError("on a grid name a part of each axis: sum((0, 10), (20, 30)) or sum((0, 10), ['a']).")
    rows, columns = (pick(axis, part) for axis, part in zip(axes, where, strict=True))
    return (rows[:, None] * axes[1].n + columns).ravel()


def bin_named(domain: Domain, label: str | int) -> int:
    """Return the bin of a label, of a whole number, or of the date or time at which it begins."""
    axis = domain.axis
    if isinstance(axis, Categories):
        return int(_pick_labels(axis, label)[0])
    if isinstance(axis, Keyed):
        first, last = axis.run(label)  # type: ignore[arg-type]
        if last - first > 1:
            raise UsageError(f"{shown(label)} names {last - first:,} bins; ask for their sum.")
        return first
    if isinstance(axis, Instants):
        _refuse_longer(axis, label)
        if (at := axis.cut(label)) < axis.n:
            return at
        raise UsageError(f"{label} is where the last bin ends; a bin is named by where it begins.")
    if not isinstance(axis, Integers):
        raise UsageError("these bins have no single name; ask between two edges: sum(lo, hi).")
    try:
        number = int(label) if isinstance(label, str) else as_int(label, "a bin's number")
    except ValueError:
        raise UsageError(f"bins are integers; {label!r} is not an integer.") from None
    if not axis.low <= number <= axis.high:
        raise UsageError(f"{number} lies outside the domain, which runs from {axis.low} to {axis.high}.")
    return number - axis.low


_PERIODS = {  # how it is written, and the units of bins that last as long, or longer
    "year": (r"\d{4}", ("y",)),
    "month": (r"\d{4}-\d{2}", ("mo", "y")),
    "day": (r"\d{4}-\d{2}-\d{2}", ("d", "w", "mo", "y")),
}


def _refuse_longer(axis: Instants, label: object) -> None:
    """Refuse a year, a month or a day where a bin is shorter: its first bin alone is not meant."""
    count, unit = axis.step
    for period, (written, units) in _PERIODS.items():
        if isinstance(label, str) and re.fullmatch(written, label):
            if unit in units or (period == "year" and unit == "mo" and count % 12 == 0):
                return
            raise UsageError(
                f"{label} is a {period}, and a bin lasts {count} {unit}: ask for all of it between two "
                f"edges, or name the bin by where it begins, such as {axis.name(0)!r}."
            )


def shared_bins(domain: Domain) -> str:
    """Return what must be said of every answer about keys that may share a bin; nothing for other bins."""
    return " ".join(axis.words for axis in domain.axes if isinstance(axis, Hashed))


def pick(axis: Axis, part: object) -> Ints:
    """Return the bins of an axis between two edges, or of some labels or keys; rising."""
    if isinstance(axis, Labelled):
        return _pick_labels(axis, part)
    return np.arange(*ends_of(axis, part))


def ends_of(axis: Axis, part: object) -> tuple[int, int]:
    """Return the first bin between two edges of an ordered axis, and the one after the last."""
    if isinstance(axis, Addresses | Codes):
        return keyed_ends(axis, part)
    if isinstance(part, str) or not isinstance(part, Sequence | np.ndarray) or len(part) != 2:
        raise UsageError(f"a part of a numeric axis is two of its edges, such as 30, 40; not {part!r}.")
    lo, hi = (int(cuts(axis, end)) for end in part)
    if not lo < hi:
        raise UsageError(f"the part from {part[0]!r} to {part[1]!r} has no bins; its ends must increase.")
    return lo, hi


def keyed_ends(axis: Addresses | Codes, part: object) -> tuple[int, int]:
    """Return the bins of a network or of a beginning of codes, or those from one up to another."""
    named = [part] if isinstance(part, str) else list(part) if isinstance(part, Sequence) else []
    if not 1 <= len(named) <= 2 or not all(isinstance(end, str) for end in named):
        raise UsageError(
            f"a part of these bins is named by text: one part, such as {axis.name(0)}, or two, of which the "
            f"second is excluded; not {shown(part)}."
        )
    runs = [axis.run(end) for end in named]
    first, last = runs[0] if len(runs) == 1 else (runs[0][0], runs[1][0])
    if not first < last:
        raise UsageError(f"the part from {named[0]} to {named[-1]} has no bins; its ends must increase.")
    return first, last


def cuts(axis: Axis, ends: Any) -> Ints:
    """Return which edges of the axis these are; the first that is none is an error."""
    if isinstance(axis, Addresses | Codes):
        given = np.asarray(ends, dtype=object)
        return np.array([axis.run(end)[0] for end in np.atleast_1d(given)]).reshape(given.shape)
    if isinstance(axis, Instants):
        given = np.asarray(ends)
        if given.dtype.kind == "M":
            given = given.astype("datetime64[us]")
        places = {end: axis.cut(end) for end in set(np.atleast_1d(given).tolist())}
        at: Ints = np.array([places[end] for end in np.atleast_1d(given).tolist()])
        return at.reshape(given.shape)
    if np.asarray(ends).dtype.kind not in "iuf":
        for end in np.atleast_1d(np.asarray(ends, dtype=object)).ravel():
            cut(axis.edges, end)  # raises for the first that is not a number
    values = np.asarray(ends, dtype=np.float64)
    edges = axis.edges
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(axis, Regular | Integers):
            width = (edges[-1] - edges[0]) / axis.n
            at = np.clip(np.nan_to_num(np.rint((values - edges[0]) / width)), 0, axis.n).astype(np.int64)
        else:
            at = np.clip(np.searchsorted(edges, values), 1, axis.n)
            at = at - (values - edges[at - 1] < edges[at] - values)
    wrong = np.flatnonzero(~is_edge(edges, at, values))
    if wrong.size:
        cut(edges, float(np.ravel(values)[wrong[0]]))  # raises, and says which edges there are
    return at


def _pick_labels(axis: Labelled, part: object) -> Ints:
    labels = (part,) if isinstance(part, str) else part
    if isinstance(labels, tuple) and len(labels) == 1 and not isinstance(labels[0], str):
        labels = labels[0]
    if not isinstance(labels, Sequence | set | frozenset | np.ndarray) or not len(labels):
        such = "'some key'" if isinstance(axis, Hashed) else repr(axis.labels[0])
        raise UsageError(f"name these bins by their labels, such as {such}; not {part!r}.")
    if isinstance(axis, Hashed):
        return np.unique([axis.run(key)[0] for key in labels])
    found = [axis.bin(label) if isinstance(label, str) else None for label in labels]
    for label, at in zip(labels, found, strict=True):
        if at is None:
            raise UsageError(f"there is no category {label!r}. {did_you_mean(str(label), axis.names())}")
    return np.unique(np.array(found, dtype=np.int64))


def ordered_axis(domain: Domain) -> Axis:
    """Return the only axis of a domain whose bins have an order."""
    axis = domain.axis
    if isinstance(axis, Labelled):
        raise UsageError(
            f"{'categories' if isinstance(axis, Categories) else 'hashed keys'} have no order; this needs a "
            "numeric axis. Use sum() with labels."
        )
    return axis


def coarse_starts(axis: Axis, into: int | Sequence[Any] | NDArray[Any]) -> Ints:
    """Return which of the axis's edges remain."""
    if isinstance(into, Sequence | np.ndarray) and not isinstance(into, str):
        starts = np.array([_edge(axis, edge) for edge in into], dtype=np.int64)
        if starts.size < 2 or starts[0] != 0 or starts[-1] != axis.n or (np.diff(starts) < 1).any():
            spell = axis.moment if isinstance(axis, Instants) else "{:g}".format
            ends = f"{spell(axis.edges[0])} to {spell(axis.edges[-1])}"
            raise UsageError(f"new edges must increase from {ends}, the ends of the domain.")
        return starts
    factor = as_int(into, "the number of bins to merge")
    if not 1 <= factor <= axis.n or axis.n % factor:
        raise UsageError(
            f"{axis.n} bins cannot be merged by {factor}: take a divisor of {axis.n}, or give edges."
        )
    return np.arange(0, axis.n + 1, factor)


def _edge(axis: Axis, edge: Any) -> int:
    """Return which edge is meant; of instants as text, date or time, or in seconds as the edges are."""
    if isinstance(axis, Instants) and not isinstance(edge, int | float | np.number):
        return axis.cut(edge)
    return cut(axis.edges, edge)


def coarser(axis: Axis, starts: Ints) -> Axis:
    """Return the axis with bins merged: of its own kind if steps of time are, else by its edges."""
    edges = axis.edges[starts]
    if isinstance(axis, Addresses):
        digits = int(starts[1]).bit_length() - 1
        if starts[1] == 1 << digits and np.array_equal(starts, np.arange(0, axis.n + 1, starts[1])):
            return Addresses(axis.network, axis.prefix - digits)
    if isinstance(axis, Instants):
        with suppress(UsageError):  # steps too long to be written
            merged = axis.every(int(starts[1]))
            if np.array_equal(merged.edges, edges):
                return merged
    if np.array_equal(edges, np.linspace(edges[0], edges[-1], edges.size)):
        return Regular(lo=float(edges[0]), hi=float(edges[-1]), bins=edges.size - 1)
    return Variable(edges)


def invert(edges: Floats, shares: Floats, q: float) -> float:
    """Return the least x whose share is q; for q = 0 the greatest, which is where the records begin."""
    if q == 0.0:
        return float(edges[np.searchsorted(shares, 0.0, side="right") - 1])
    j = int(np.searchsorted(shares, q))
    inside = (q - shares[j - 1]) / (shares[j] - shares[j - 1])
    return float(edges[j - 1] + inside * (edges[j] - edges[j - 1]))


def possible_bins(raw: Floats, margins: Floats, *, q: float) -> Ints:
    """Return the bins of which the noisy sums do not refute that they hold the q-quantile."""
    below = np.concatenate(([0.0], np.cumsum(raw)))
    excess = below - q * below[-1]  # in truth <= 0 at the right bin's lower edge, >= 0 at its upper
    # The right bin passes both tests with at least the level of the margins, since it fails either on one
    # side of a two-sided interval. At the domain's ends there is nothing to test.
    not_too_high, not_too_low = excess <= margins, excess >= -margins
    not_too_high[0] = not_too_low[-1] = True
    return np.flatnonzero(not_too_high[:-1] & not_too_low[1:])
