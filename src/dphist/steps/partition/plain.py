"""Groups that are known beforehand: nothing is asked and nothing is paid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Order, Rough, Step


@dataclass(frozen=True)
class Singletons(Step):
    """Every bin is its own group."""

    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        alone = Groups.singletons(curator.domain.n)
        return alone if order is None else Groups(alone.starts, order)


@dataclass(frozen=True)
class Whole(Step):
    """All bins are one group."""

    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        return Groups(np.array([0, curator.domain.n]), order)


@dataclass(frozen=True)
class FixedSize(Step):
    """Groups of one size, in order (GS, Kellaris and Papadopoulos 2013, without sampling).

    Args:
        size: of a group; None is the square root of the number of bins, up to 100, AHP's choice for it.
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UsageError(f"a group has at least one bin, not {self.size}.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Cut into groups of equal size; the last group may be smaller."""
        n = curator.domain.n
        size = self.size or min(math.isqrt(n), 100)
        return Groups(np.append(np.arange(0, n, size), n), order)
