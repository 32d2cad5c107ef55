"""Noise on every bin, averaged over dyadic partitions at no further cost."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Floats, Groups
from dphist.domain.workload import Workload
from dphist.privacy.curator import Curator
from dphist.steps.estimate.transforms import grid_of
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.uncertainty.models import GroupTotals


@dataclass(frozen=True)
class Averaged(Step):
    """One noisy total per group, averaged over all dyadic partitions of the line or the grid of groups.

    What is measured is unbiased, and its noise is known: intervals are about that measurement.
    """

    spends: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Spend the whole share on the measurement; the averaging is post-processing."""
        from dphist.kernels.averaging.dyadic import dyadic_average

        noisy = curator.measure(groups, share=share)
        scale, shape = float(np.max(noisy.scale)), grid_of(curator, groups)

        def average(counts: Floats) -> Floats:
            return dyadic_average(counts, scale, shape=shape)[0]

        counts = noisy.values.astype(np.float64)
        plain = groups.are_singletons and groups.order is None
        return Estimated(
            groups.means(average(counts)),
            GroupTotals(groups, noisy.scale),
            measured=groups.means(counts),
            averaging=average if plain else None,
        )
