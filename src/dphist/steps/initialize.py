"""Step 1: rough counts, which the later steps may look at as often as they like."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dphist.privacy.curator import Curator
from dphist.steps.protocols import Rough, Step


@dataclass(frozen=True)
class Nothing(Step):
    """No rough counts: the whole budget goes to the later steps."""

    def __call__(self, curator: Curator, *, share: Fraction) -> Rough:
        """Return None."""
        return None
