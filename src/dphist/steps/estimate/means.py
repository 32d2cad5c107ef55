"""One total per group, spread evenly over its bins: newly measured, from rough counts, or both."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.privacy.curator import Curator
from dphist.steps.protocols import WIDEST_SCALE, Estimated, Rough, Step, require_rough, variance
from dphist.uncertainty.models import FineTotals, GroupTotals, Unknown

if TYPE_CHECKING:
    pass

_TWICE_USED = (
    "the groups were chosen by the same noisy counts that enter the values, which hides part of the error"
)
_FINEST = 1 << 10  # steps per record: the noise's variance is the continuous law's up to epsilon^2 / 10^7


@dataclass(frozen=True)
class GroupMeans(Step):
    """One noisy total per group, spread evenly over its bins (AHP, Zhang et al. 2014, with one draw)."""

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Measure the groups and divide by their sizes; a group's noise is drawn once, not per bin."""
        noisy = curator.measure(groups, share=share)
        return Estimated(groups.means(noisy.values), GroupTotals(groups, noisy.scale))


@dataclass(frozen=True)
class RoughMeans(Step):
    """The means of the rough counts of each group, at no further cost (NoiseFirst, Xu et al. 2013)."""

    needs_rough: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        return Estimated(groups.means(groups.totals(require_rough(rough).values)), Unknown(_TWICE_USED))


@dataclass(frozen=True)
class WeightedMeans(Step):
    """SORTaki's finalizer WAF: rough counts and a fresh total, weighted by their variances (eq. 3)."""

    spends: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    needs_rough: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Average the two means of each group: variances final/size^2 and rough/size, both exact."""
        old, new = require_rough(rough), curator.measure(groups, share=share)
        sizes = groups.sizes
        fresh, before = sizes / variance(new.scale), 1 / variance(old.scale)
        total = (fresh * new.values + before * groups.totals(old.values)) / (fresh + before)
        noise = sizes / (fresh + before)
        return Estimated(groups.spread(total / sizes), Unknown(_TWICE_USED), noise=noise)


@dataclass(frozen=True)
class LeastSquares(Step):
    """DPCube's estimate: the cells that agree best with their rough counts and the groups' fresh totals."""

    spends: ClassVar[bool] = True
    needs_rough: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Distribute the difference between the new total and the sum of the noisy counts evenly.

        This is the closed form of least squares.
        """
        old, new = require_rough(rough), curator.measure(groups, share=share)
        gap = new.values - groups.totals(old.values)
        step = gap / (groups.sizes + variance(new.scale) / variance(old.scale))
        return Estimated(old.values + groups.spread(step), Unknown(_TWICE_USED))


@dataclass(frozen=True)
class FineMeans(Step):
    """One noisy total per group, spread evenly: noise in steps of 1/1024 record, as good as continuous.

    The papers draw continuous Laplace noise. On whole records its variance is smaller, at epsilon 1 by 8 %.
    """

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        from dphist.privacy.queries import Multiples, OnGroups

        grid = _FINEST
        while grid > 1 and curator.scale(share) * grid > WIDEST_SCALE:  # noise that wide needs no finer steps
            grid //= 2
        noisy = curator.measure_linear(OnGroups(Multiples(groups.k, grid), groups), share=share)
        error = FineTotals(GroupTotals(groups, noisy.scale), grid)
        return Estimated(groups.means(noisy.values / grid), error)
