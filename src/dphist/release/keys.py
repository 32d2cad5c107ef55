"""From labels, addresses, codes and edges to bins of a domain that may be too large for arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dphist.domain import Addresses, Axis, Codes, Domain, Instants, Integers, Keyed, Labelled, as_int, shown
from dphist.errors import UsageError
from dphist.release import answers

Run = tuple[int, int]  # the first bin, and the one after the last


def bin_names(domain: Domain, bins: list[int]) -> list[str]:
    """Return how some bins are called; those of a grid by both axes."""
    ways = [
        axis.name if isinstance(axis, Integers | Instants | Keyed) else axis.names().__getitem__
        for axis in domain.axes
    ]
    if len(ways) == 1:
        return [ways[0](bin) for bin in bins]
    across = domain.axes[1].n
    return [", ".join(name(at) for name, at in zip(ways, divmod(bin, across), strict=True)) for bin in bins]


def key_bin(domain: Domain, key: tuple[Any, ...]) -> int:
    """Return the bin of a key: one label, address, code or number for each axis."""
    if len(key) != len(domain.axes):
        raise UsageError(f"a bin of this domain is named by {len(domain.axes)} keys, not by {len(key)}.")
    bin = 0
    for axis, part in zip(domain.axes, key, strict=True):
        bin = bin * axis.n + _one(axis, part)
    return bin


def _one(axis: Axis, part: Any) -> int:
    return answers.bin_named(Domain((axis,)), part)


def line_runs(axis: Axis, where: tuple[Any, ...]) -> list[Run]:
    """Return the bins of an axis that a query names: of networks, of beginnings of codes, between edges."""
    if isinstance(axis, Labelled):
        return [(int(at), int(at) + 1) for at in answers.pick(axis, where)]
    if len(where) == 1 and isinstance(where[0], tuple | list):
        where = tuple(where[0])
    if isinstance(axis, Integers) and len(where) == 2:
        run = (_integer(axis, where[0]), _integer(axis, where[1]))
    else:
        run = answers.ends_of(axis, where)
    if not run[0] < run[1]:
        raise UsageError(
            f"the part from {shown(where[0])} to {shown(where[-1])} has no bins; ends must increase."
        )
    return [run]


def _integer(axis: Integers, end: Any) -> int:
    """Return which edge of an axis of integers an end is."""
    if isinstance(end, float | np.floating) and float(end).is_integer():
        end = int(end)
    number = as_int(end, "an end of the query")
    if not axis.low <= number <= axis.high + 1:
        raise UsageError(
            f"{number} lies outside the domain, which runs from {axis.low} to {axis.high + 1}, where it ends."
        )
    return number - axis.low


def position(axis: Axis, bin: int) -> float:
    """Return a bin as a number: where it begins, or its number."""
    if isinstance(axis, Integers):
        return float(axis.low + bin)
    if isinstance(axis, Instants):
        return axis.seconds(bin)
    return float(bin) if isinstance(axis, Addresses | Codes) else float(axis.edges[bin])


def spelled(axis: Axis, bin: int) -> str:
    """Return the edge at which a bin begins, as people write it; the end of the last one, too."""
    if isinstance(axis, Addresses | Codes):
        return axis.name(min(bin, axis.n - 1))
    if isinstance(axis, Integers):
        return str(axis.low + bin)
    return axis.edge_name(bin) if isinstance(axis, Instants) else f"{axis.edges[bin]:.12g}"


def are_arrays(where: tuple[Any, ...]) -> bool:
    """Return whether a query asks for many ranges: two lists of ends."""
    return (
        len(where) == 2
        and all(isinstance(part, Sequence | np.ndarray) and not isinstance(part, str) for part in where)
        and all(np.ndim(part) == 1 for part in where)
    )
