"""Step 3: which bins share one value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist.groups import Groups
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Order, Rough, Step


@dataclass(frozen=True)
class Singletons(Step):
    """Every bin is its own group."""

    def __call__(self, curator: Curator, rough: Rough, order: Order, *, share: Fraction) -> Groups:
        """Return n groups of one bin."""
        n = curator.domain.n
        return Groups.singletons(n) if order is None else Groups(np.arange(n + 1), order)


@dataclass(frozen=True)
class Whole(Step):
    """All bins are one group."""

    def __call__(self, curator: Curator, rough: Rough, order: Order, *, share: Fraction) -> Groups:
        """Return one group of n bins."""
        return Groups(np.array([0, curator.domain.n]), order)
