"""Step 1: rough counts, which the later steps may read at no further cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.privacy.curator import Noisy as NoisyCounts
from dphist.steps.protocols import Rough, Step


@dataclass(frozen=True)
class Nothing(Step):
    """No rough counts: the whole budget goes to the later steps."""

    def __call__(self, curator: Curator, *, share: Fraction) -> Rough:
        return None


@dataclass(frozen=True)
class Noisy(Step):
    """Noise on every bin (SORTaki Algorithm 1)."""

    spends: ClassVar[bool] = True
    measures_bins: ClassVar[bool] = True

    def __call__(self, curator: Curator, *, share: Fraction) -> Rough:
        return curator.measure(Groups.singletons(curator.domain.n), share=share)


@dataclass(frozen=True)
class Thresholded(Step):
    """Noise on every bin; counts below eta ln(n)/epsilon become 0 (AHP Algorithm 1, line 4).

    Args:
        eta: how many times ln(n) noise scales a count must reach; 0.35 as DPBench runs AHP.
    """

    spends: ClassVar[bool] = True
    measures_bins: ClassVar[bool] = True
    eta: float = 0.35

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and self.eta >= 0):
            raise UsageError(f"eta must be a number from 0 on, not {self.eta!r}.")

    def __call__(self, curator: Curator, *, share: Fraction) -> Rough:
        """Measure every bin, then drop what the noise alone could have made."""
        noisy = curator.measure(Groups.singletons(curator.domain.n), share=share)
        floor = self.eta * math.log(curator.domain.n) * curator.scale(share)
        values = np.where(noisy.values < floor, 0, noisy.values)
        return NoisyCounts(values, noisy.scale, measured=noisy.values)
