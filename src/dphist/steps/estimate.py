"""Step 4: a value for every bin."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dphist.accuracy import GroupTotals, Unknown
from dphist.groups import Groups
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Estimated, Rough, Step, needed, variance
from dphist.workload import Workload

_TWICE_USED = (
    "the groups were chosen by the same noisy counts that enter the values, which hides part of the error"
)


@dataclass(frozen=True)
class GroupMeans(Step):
    """One noisy total per group, spread evenly over its bins (AHP, Zhang et al. 2014, with one draw)."""

    spends: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Measure the groups and divide by their sizes; a group's noise is drawn once, not per bin."""
        noisy = curator.measure(groups, share=share)
        return Estimated(groups.means(noisy.values), GroupTotals(groups, noisy.scale))


@dataclass(frozen=True)
class WeightedMeans(Step):
    """SORTaki's finalizer WAF: rough counts and a fresh total, weighted by their variances (eq. 3)."""

    spends: ClassVar[bool] = True
    needs_rough: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Average the two means of each group: variances final/size^2 and rough/size, both exact."""
        old, new = needed(rough), curator.measure(groups, share=share)
        sizes = groups.sizes
        fresh, before = sizes / variance(new.scale), 1 / variance(old.scale)
        total = (fresh * new.values + before * groups.totals(old.values)) / (fresh + before)
        return Estimated(groups.spread(total / sizes), Unknown(_TWICE_USED))


@dataclass(frozen=True)
class LeastSquares(Step):
    """DPCube's estimate: the cells that agree best with their rough counts and the groups' fresh totals."""

    spends: ClassVar[bool] = True
    needs_rough: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Spread what a fresh total differs by evenly over its cells: the closed form of least squares."""
        old, new = needed(rough), curator.measure(groups, share=share)
        gap = new.values - groups.totals(old.values)
        step = gap / (groups.sizes + variance(new.scale) / variance(old.scale))
        return Estimated(old.values + groups.spread(step), Unknown(_TWICE_USED))
