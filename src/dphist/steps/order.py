"""Step 2: the order in which bins stand when they are grouped."""

from __future__ import annotations

from dataclasses import dataclass

from dphist.domain import Domain
from dphist.steps.protocols import Order, Rough, Step


@dataclass(frozen=True)
class AsGiven(Step):
    """The domain's own order."""

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        """Return None: nothing is moved."""
        return None
