"""A domain: one or two axes, declared before any record is read; public and immutable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dphist.domain.addresses import Addresses
from dphist.domain.axes import MAX_BINS, MOST_BINS, Categories, Integers, Regular, Variable, check_size
from dphist.domain.codes import Codes
from dphist.domain.hashed import Hashed
from dphist.domain.instants import Instants, time_zone
from dphist.errors import UsageError

Keyed: TypeAlias = Addresses | Codes | Hashed  # bins of texts, by a function of the text
Labelled: TypeAlias = Categories | Hashed  # bins without an order, named one by one
Axis: TypeAlias = Regular | Variable | Integers | Categories | Instants | Addresses | Codes | Hashed


@dataclass(frozen=True)
class Domain:
    """One axis, or a grid of two; the bins of a grid are numbered row by row (numpy's C order).

    >>> grid = dphist.Domain((dphist.Integers(0, 9), dphist.Categories(["red", "green"])))
    >>> grid.shape, grid.n
    ((10, 2), 20)
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        axes = (self.axes,) if isinstance(self.axes, Axis) else tuple(self.axes)
        object.__setattr__(self, "axes", axes)
        if not 1 <= len(axes) <= 2:
            raise UsageError(f"a domain has one or two axes, not {len(axes)}.")
        check_size(self.n, MOST_BINS)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.n for axis in self.axes)

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    @property
    def is_large(self) -> bool:
        """Whether there are too many bins to hold a number for each: public, like the domain."""
        return self.n > MAX_BINS

    @property
    def axis(self) -> Axis:
        """The only axis of a one-dimensional domain."""
        if len(self.axes) != 1:
            raise UsageError(
                "this needs a one-dimensional histogram, and the domain is a grid: project it first."
            )
        return self.axes[0]

    def to_dict(self) -> dict[str, Any]:
        return {
            "axes": [axis.to_dict() for axis in self.axes],
            "closure": "left-closed, last bin closed",
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Domain:
        return cls(tuple(_axis_from_dict(axis) for axis in described["axes"]))


def _axis_from_dict(described: dict[str, Any]) -> Axis:
    kind = described.get("kind")
    if kind == "regular":
        return Regular(lo=described["lo"], hi=described["hi"], bins=described["bins"])
    if kind == "variable":
        return Variable(np.asarray(described["edges"]))
    if kind == "integers":
        return Integers(described["low"], described["high"])
    if kind == "categories":
        return Categories(tuple(described["labels"]), described["other"], described.get("null", False))
    if kind == "instants":
        return Instants(*(described[key] for key in ("start", "stop", "freq", "tz")))
    if kind == "addresses":
        return Addresses(described["network"], described["prefix"])
    if kind == "codes":
        return Codes(described["pattern"])
    if kind == "hashed":
        return Hashed(described["bits"], described["salt"])
    raise UsageError(f"unknown kind of axis {kind!r}; this file may come from a later version.")


def clock_zone(domain: Domain, timezone: str | None) -> str:
    """Return the time zone of expressions: the declared zone, else that of bins of time, else UTC."""
    followed = {axis.tz for axis in domain.axes if isinstance(axis, Instants) and axis.tz is not None}
    if timezone is None:
        return followed.pop() if len(followed) == 1 else "UTC"
    time_zone(timezone)
    if followed and timezone not in followed:
        raise UsageError(
            f"the bins follow the clock of {' and '.join(sorted(followed))}, and timezone says {timezone}; "
            "leave timezone out, or let both say the same."
        )
    return timezone
