"""Groups found on rough counts, by the error `formulas`: post-processing, which spends nothing."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dphist.domain.groups import Groups, Ints
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.partition.formulas import Ahp, Constant, Formula, Halves, Penalty, Unbiased
from dphist.steps.protocols import Order, Rough, Step, require_rough, variance

_ENOUGH = 1 << 18  # total number of bins, over all halvings, beyond which another halving adds nothing


@dataclass(frozen=True)
class _OnRough(Step, ABC):
    """What all partitioners of rough counts share: they see values in order, and a penalty."""

    needs_rough: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Cut the rough counts, in order, into groups; no further budget."""
        noisy = require_rough(rough)
        h = noisy.values if order is None else noisy.values[order]
        rough_variance = float(np.max(variance(noisy.scale)))
        # With nothing left to estimate with, a total to come is worth nothing: means of the rough counts.
        final_variance = float(variance(curator.scale(later))) if later else 0.0
        return Groups(self.cut(h, rough_variance, final_variance), order)

    @abstractmethod
    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        """Return where groups start, and n."""


@dataclass(frozen=True)
class Optimal(_OnRough):
    """The partition of least expected error, of all there are: O(n log n) in order, near-linear else.

    Ordered counts are a least-weight-subsequence problem with monotone decisions, unordered ones penalised
    change-point detection; both are solved exactly (docs/how-it-is-fast.md).

    Args:
        formula: what a group costs.
        penalty: ``published`` charges a group what the formula says. ``auto`` charges up to n rough
            variances in place of one: as many as would have been best on one half of the rough counts,
            judged by the other half (`formulas.Halves`). It takes a search for each of about log n
            choices, and wants rough counts as they were measured, not thresholded ones. ``cautious`` is
            ``auto`` that does not believe a few bins which noise alone may have lifted out of many.
    """

    formula: Formula = field(default_factory=Unbiased)
    penalty: Literal["published", "auto", "cautious"] = "published"

    def __post_init__(self) -> None:
        if self.penalty not in ("published", "auto", "cautious"):
            raise UsageError(f"penalty is 'published', 'auto' or 'cautious', not {self.penalty!r}.")

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        ordered = bool((h[1:] >= h[:-1]).all())
        factor = 1.0 if self.penalty == "published" else self._factor(h, rough, final, ordered)
        while True:
            found = _least(h, self._charged(factor, rough, final, h.size), ordered)
            if self.penalty != "cautious" or factor >= _believable(h.size, found.size - 1):
                return found
            factor *= math.sqrt(2)

    def _charged(self, factor: float, rough: float, final: float, n: int) -> Penalty:
        """Return the formula's penalty with ``factor`` rough variances per group in place of one."""
        found = self.formula.penalty(rough=rough, final=final, n=n)
        return found._replace(beta=found.beta + (factor - 1) * rough)

    def _factor(self, h: Ints, rough: float, final: float, ordered: bool) -> float:
        """Return the factor of least error on halved counts, the mean of a few halvings."""
        turns = min(max(_ENOUGH // h.size, 1), 8)  # many bins average by themselves
        halves = [Halves.of(h, rough=rough, turn=turn, ordered=ordered) for turn in range(turns)]
        best, least = 1.0, math.inf
        for factor in _factors(h.size):
            charged = self._charged(factor, 2 * rough, final, h.size)
            cuts = [_least(half.first, charged, ordered) for half in halves]
            error = sum(half.error(s, b=charged.b, final=final) for half, s in zip(halves, cuts, strict=True))
            if error < least:
                best, least = factor, error
            if max(s.size for s in cuts) == 2:
                break  # one group: charging more changes nothing
        return best


@dataclass(frozen=True)
class PowersOfTwo(_OnRough):
    """The best partition into groups whose sizes are powers of two: the papers' approximation."""

    formula: Formula = field(default_factory=Unbiased)

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        from dphist.kernels.partition import changepoints

        return changepoints.powers_of_two(h, **_numbers(self.formula, rough, final, h.size))


@dataclass(frozen=True)
class Greedy(_OnRough):
    """Left to right, a bin joins the group before it while that costs less (SORTaki Algorithm 5)."""

    formula: Formula = field(default_factory=Ahp)

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        from dphist.kernels.partition import clusters

        return clusters.greedy(h, **_numbers(self.formula, rough, final, h.size))


@dataclass(frozen=True)
class AhpGreedy(_OnRough):
    """AHP's greedy clusters with look-ahead and its rule for stopping (Zhang et al. 2014, Algorithm 3)."""

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        from dphist.kernels.partition import clusters

        return clusters.ahp_greedy(h, a=final)


@dataclass(frozen=True)
class Empirical(_OnRough):
    """The exact best k groups for four rules of thumb for k, the cheapest of them (AHP Algorithm 2)."""

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        from dphist.kernels.partition import clusters

        return clusters.empirical(h, a=final)


@dataclass(frozen=True)
class KdTree(_OnRough):
    """Cut a group in two while its rough counts vary by more than xi (DPCube, Xiao et al. 2012).

    Args:
        xi: the variance that is left alone, in variances of the rough noise; 1 worked best in SORTaki.
    """

    xi: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.xi) and self.xi > 0):
            raise UsageError(f"xi must be a number above 0, not {self.xi!r}.")

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        from dphist.kernels.partition import clusters

        return clusters.kd_splits(h, threshold=self.xi * rough)


@dataclass(frozen=True)
class Subtrees(_OnRough):
    """The best partition into full subtrees of a tree over the bins: bottom up, in O(n) (S2+H)."""

    formula: Formula = field(default_factory=Constant)
    fanout: int = 16

    def __post_init__(self) -> None:
        if self.fanout < 2:
            raise UsageError(f"a tree's fanout is at least 2, not {self.fanout}.")

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        """Keep a block whole where that costs less than the best of its parts."""
        from dphist.kernels.partition import l1_search

        beta, a, b = self.formula.penalty(rough=rough, final=final, n=h.size)
        size, costs = 1, []
        while size <= h.size:
            blocks = h[: h.size // size * size].reshape(-1, size).astype(np.float64)
            spread = np.square(blocks - blocks.mean(axis=1, keepdims=True)).sum(axis=1)
            costs.append(spread + beta + a / (b + size))
            size *= self.fanout
        # The search is in integers: as fine a grid as leaves room for the sum of all costs.
        unit = max(float(level.max()) for level in costs) * (h.size + 1) / 2.0**60
        return l1_search.dp_subtrees([np.rint(level / unit).astype(np.int64) for level in costs], self.fanout)


def _least(h: Ints, penalty: Penalty, ordered: bool) -> Ints:
    """Return the partition of least cost."""
    from dphist.kernels.partition import changepoints, segments

    beta, a, b = penalty
    if ordered:
        return segments.optimal_sorted(h, beta=beta, a=a, b=b)
    return changepoints.optimal_runs(h, beta=beta, a=a, b=b)


def _factors(n: int) -> Iterator[float]:
    """Yield rising factors to try: by two at first, by four from 16 on."""
    factor = 1.0
    while factor <= n:
        yield factor
        factor *= 2 if factor < 16 else 4


def _believable(n: int, k: int) -> float:
    """Return how many rough variances per group make k groups of n bins unlikely to be noise.

    Of n noises the k largest exceed ln(n/k) scales, and a variance is two squared scales. Both halves of an
    outlier have it, so that halving alone, though right in the mean, takes it for real whenever it happens.
    """
    return (1 + math.log(n / k)) ** 2 / 2


def _numbers(formula: Formula, rough: float, final: float, n: int) -> dict[str, float]:
    return Penalty._asdict(formula.penalty(rough=rough, final=final, n=n))
