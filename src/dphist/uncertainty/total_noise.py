"""The noise in the totals of groups, which calibrated intervals join with the bias inside the groups."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Groups, Ints
from dphist.uncertainty import constants, noise_law


class TotalNoise(ABC):
    """Noise of known variance. The defaults take it to be normal and independent between groups."""

    independent: ClassVar[bool] = True
    mean_deviation: ClassVar[float] = constants.MEAN_DEVIATION_OF_SUMS  # E|X| at a standard deviation of 1

    @property
    @abstractmethod
    def k(self) -> int:
        """How many groups there are."""

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """The variance of each group's total, infinite where nothing determines it."""

    @property
    def law(self) -> str:
        """The law that every total's noise has, in words; nothing where they differ or it is not known."""
        return ""

    @abstractmethod
    def joint(self, *, level: float) -> Floats:
        """Return margins that hold for all totals at once."""

    def margins(self, *, level: float) -> Floats:
        """Return the margin of each total for itself."""
        return noise_law.normal_quantile(level) * np.sqrt(self.variances)

    def sum_margin(self, whole: NDArray[np.bool_], *, level: float) -> float:
        """Return the margin of the sum of some groups' totals."""
        return noise_law.normal_quantile(level) * math.sqrt(float(self.variances[whole].sum()))

    def range_variances(self, first: Ints, skipped: Floats, last: Ints, taken: Floats) -> Floats:
        """Return the variance of ranges from inside one group to inside the same or another.

        Args:
            first: the group in which each range begins.
            skipped: the fraction of that group which lies before the range.
            last: the group in which each range ends.
            taken: the fraction of the last group which lies before the end of the range.
        """
        each, below = self.variances, np.concatenate(([0.0], np.cumsum(self.variances)))
        between = below[last] - below[np.minimum(first + 1, last)]
        ends = (1 - skipped) ** 2 * each[first] + taken**2 * each[last]
        inside = ((last + taken) - (first + skipped)) ** 2 * each[first]
        return np.where(first == last, inside, ends + between)


@dataclass(frozen=True, eq=False)
class ApproximateNoise(TotalNoise):
    """Noise whose variance alone is known: the noisy counts in the totals have chosen the groups as well."""

    given: Floats

    @property
    def k(self) -> int:
        return self.given.size

    @property
    def variances(self) -> Floats:
        return self.given

    def joint(self, *, level: float) -> Floats:
        """Return infinite margins: noise that chose the groups does not have the law of a fresh draw."""
        return np.full(self.given.size, np.inf)


@dataclass(frozen=True, eq=False)
class LaplaceNoise(TotalNoise):
    """Independent discrete Laplace noise on the total of each group, as in ``models.GroupTotals``."""

    groups: Groups
    scale: float | Floats
    mean_deviation: ClassVar[float] = constants.MEAN_DEVIATION_OF_LAPLACE

    @property
    def k(self) -> int:
        return self.groups.k

    @property
    def variances(self) -> Floats:
        return np.broadcast_to(noise_law.variance(np.asarray(self.scale)), self.k)

    @property
    def law(self) -> str:
        return "" if isinstance(self.scale, np.ndarray) else f"independent noise of scale {self.scale:g}"

    @cached_property
    def distinct(self) -> tuple[Floats, Ints]:
        """The distinct scales, and which of them each total has."""
        if isinstance(self.scale, np.ndarray):
            scales, which = np.unique(self.scale, return_inverse=True)
            return scales, which
        return np.array([self.scale]), np.zeros(self.k, dtype=np.int64)

    def margins(self, *, level: float) -> Floats:
        """Return the exact margin of each total for itself; equal scales are computed once."""
        scales, which = self.distinct
        return np.array([noise_law.quantile(float(s), level) for s in scales], dtype=np.float64)[which]

    def sum_margin(self, whole: NDArray[np.bool_], *, level: float) -> float:
        """Return the exact margin of the sum of some groups' totals."""
        scales, which = self.distinct
        return noise_law.sum_quantile(scales, np.bincount(which[whole], minlength=scales.size), level)

    def joint(self, *, level: float) -> Floats:
        """Return margins that hold for all totals at once; exact, since the noise is independent."""
        scales, which = self.distinct
        return noise_law.joint_quantile(scales, np.bincount(which), level)[which].astype(np.float64)


@dataclass(frozen=True, eq=False)
class TreeNoise(TotalNoise):
    """The noise of totals fitted by least squares to a noisy tree over them; it is not independent.

    The arguments are those of ``models.TreeTotals``.
    """

    groups: Groups
    branching: int
    pruned: bool
    scales: Floats
    inner: NDArray[np.bool_] | None = None
    tails: bool = True
    independent: ClassVar[bool] = False

    @property
    def k(self) -> int:
        return self.groups.k

    @cached_property
    def _error(self) -> Any:
        from dphist.kernels.trees import tree as trees
        from dphist.kernels.trees import variances

        if self.inner is not None:
            tree = trees.shaped_tree(self.inner, self.branching)
        elif self.pruned:
            tree = trees.pruned_tree(self.groups.starts, self.branching)
        else:
            tree = trees.make_tree(self.groups.k, self.branching)
        return variances.tree_error(tree, noise_law.variance(self.scales))

    @cached_property
    def variances(self) -> Floats:
        from dphist.kernels.trees import variances

        return variances.group_variances(self._error)

    @cached_property
    def own(self) -> Floats:
        """The variance of each group's own answer alone; infinite where there is none or none counts."""
        if not self.tails:
            return np.full(self.k, math.inf)
        leaves: Ints = self._error.tree.leaf
        return noise_law.variance(self.scales[leaves])

    @cached_property
    def _own_below(self) -> tuple[Floats, Ints]:
        """Those that are finite, added up over the groups before each and over all; how many are not."""
        unknown = np.isinf(self.own)
        known = np.where(unknown, 0.0, self.own)
        return np.concatenate(([0.0], np.cumsum(known))), np.concatenate(([0], np.cumsum(unknown)))

    def own_in(self, first: Ints, last: Ints) -> Floats:
        """Return the variances of the own answers of groups first to last - 1, added up, for each pair."""
        below, unknown = self._own_below
        return np.where(unknown[last] > unknown[first], math.inf, below[last] - below[first])

    @cached_property
    def _totals(self) -> tuple[Ints, Floats]:
        """The runs of several groups whose total was measured, by numbers that rise, and its variance."""
        tree = self._error.tree
        asked = np.isfinite(self.scales) & (tree.hi - tree.lo > 1) & self.tails
        key = tree.lo[asked].astype(np.int64) * (self.k + 1) + tree.hi[asked]
        order = np.argsort(key)
        return np.append(key[order], -1), np.append(noise_law.variance(self.scales[asked][order]), math.inf)

    def total_of(self, first: Ints, last: Ints) -> Floats:
        """Return the variance of the answer to the total of groups first to last - 1; infinite if none."""
        keys, variances = self._totals
        key = np.asarray(first) * (self.k + 1) + last
        at = np.searchsorted(keys[:-1], key)
        return np.where(keys[at] == key, variances[at], math.inf)

    @property
    def mean_variance(self) -> float:
        """The mean variance of all ranges of bins."""
        from dphist.kernels.trees import variances

        sizes, asked = self.groups.sizes, "all-ranges"
        return variances.total_variance(self._error, sizes, asked) / variances.query_count(sizes, asked)

    def joint(self, *, level: float) -> Floats:
        """Return margins that hold for all totals at once, by the union bound."""
        each = max(1 - (1 - level) / self.groups.k, 0.9)
        return np.asarray(noise_law.sum_margin_bound(np.sqrt(self.variances), each))

    def margins(self, *, level: float) -> Floats:
        """Return the margin of each total for itself."""
        return noise_law.sum_margins(self.variances, self.own, 1, level, whole=True)

    def sum_margin(self, whole: NDArray[np.bool_], *, level: float) -> float:
        """Return the margin of the sum of some groups' totals, wherever in the tree they are."""
        variance, own = np.array(self.sum_variance(whole)), np.array(self.own[whole].sum())
        groups = np.flatnonzero(whole)
        run = groups.size > 0 and groups[-1] - groups[0] + 1 == groups.size
        total = self.total_of(groups[0], groups[-1] + 1) if run else math.inf
        return float(noise_law.sum_margins(variance, own, groups.size, level, total, whole=True))

    def sum_variance(self, whole: NDArray[np.bool_]) -> float:
        """Return the variance of that sum."""
        from dphist.kernels.trees import variances

        return variances.weighted_variance(self._error, whole.astype(np.float64))

    def range_variances(self, first: Ints, skipped: Floats, last: Ints, taken: Floats) -> Floats:
        """Return the variance of ranges from inside one group to inside the same or another."""
        from dphist.kernels.trees import variances

        return variances.range_variances(self._error, first + skipped, last + taken)
