"""Noise on every bin, averaged over dyadic partitions at no further cost."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.estimate.transforms import grid_of
from dphist.steps.prior import Prior
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.uncertainty.models import GroupTotals
from dphist.uncertainty.risk import averaging_helps


@dataclass(frozen=True)
class Averaged(Step):
    """One noisy total per group, averaged over all dyadic partitions of the line or the grid of groups.

    What is measured is unbiased, and its noise is known: intervals are about that measurement. Where an
    unbiased estimate of the squared error says that averaging did harm, the noisy counts are left as they
    are, but for those below 0.

    Args:
        prior: public numbers of the same bins. A block may then be a multiple of them, too, if the noisy
            counts say so; a bin that contradicts them is as it was measured.
        always: whether averages are taken even where they seem to do harm. Noise that is cut at 0 adds up in
            sums of many bins, to many times the error of averages.
    """

    spends: ClassVar[bool] = True
    prior: Prior | None = None
    always: bool = False

    def check(self, domain: Domain, workload: Workload) -> None:
        if self.prior is not None and self.prior.counts.shape != (domain.n,):
            raise UsageError(f"the prior has {self.prior.counts.size:,} bins, and the domain {domain.n:,}.")

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Spend the whole share on the measurement; the averaging is post-processing."""
        from dphist.kernels.averaging.apart import averaged_apart, left_where_far, standing_apart
        from dphist.kernels.averaging.partitions import dyadic_average

        noisy = curator.measure(groups, share=share)
        scale, shape = float(np.max(noisy.scale)), grid_of(curator, groups)
        counts, error = noisy.values.astype(np.float64), GroupTotals(groups, noisy.scale)
        del noisy
        prior = None if self.prior is None else groups.totals(self.prior.over(groups.n))
        on_line = prior is None and 1 in shape
        apart = standing_apart(counts, scale) if on_line else np.zeros(counts.size, dtype=bool)

        def average(counts: Floats) -> Floats:
            if apart.any():
                found = averaged_apart(counts, scale, apart)
            else:
                found = dyadic_average(counts, scale, shape=shape, prior=prior)[0]
            return left_where_far(counts, found, scale)

        made, by = average(counts), average
        if not (self.always or averaging_helps(counts, made, scale, average)):
            made, by = cut_at_0(counts), cut_at_0
        plain = groups.are_singletons and groups.order is None
        return Estimated(
            groups.means(made),
            error,
            measured=groups.means(counts),
            averaging=by if plain else None,
        )


def cut_at_0(counts: Floats) -> Floats:
    """Return noisy counts, none of them negative."""
    return np.maximum(counts, 0.0)
