"""Step 3: which bins share one value.

Partitioners that look at rough counts spend nothing: they are post-processing, and the error formula that
they minimise is one of `formulas`. `L1` looks at the data itself, through the curator, and pays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.formulas import Ahp, Constant, Formula, Halves, Penalty, Unbiased
from dphist.steps.protocols import Order, Rough, Step, needed, variance

_ENOUGH = 1 << 18  # bins, over all halvings, after which one more tells nothing new


@dataclass(frozen=True)
class Singletons(Step):
    """Every bin is its own group."""

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Return n groups of one bin."""
        n = curator.domain.n
        return Groups.singletons(n) if order is None else Groups(np.arange(n + 1), order)


@dataclass(frozen=True)
class Whole(Step):
    """All bins are one group."""

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Return one group of n bins."""
        return Groups(np.array([0, curator.domain.n]), order)


@dataclass(frozen=True)
class _OnRough(Step, ABC):
    """What all partitioners of rough counts share: they see values in order, and a penalty."""

    needs_rough: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Cut the rough counts, in order, into groups; no further budget."""
        noisy = needed(rough)
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
        """Minimise the formula exactly."""
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
        """Minimise the formula over sizes 1, 2, 4, ..."""
        from dphist.kernels.partition import changepoints

        return changepoints.powers_of_two(h, **_numbers(self.formula, rough, final, h.size))


@dataclass(frozen=True)
class Greedy(_OnRough):
    """Left to right, a bin joins the group before it while that costs less (SORTaki Algorithm 5)."""

    formula: Formula = field(default_factory=Ahp)

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        """Join while joining costs less."""
        from dphist.kernels.partition import clusters

        return clusters.greedy(h, **_numbers(self.formula, rough, final, h.size))


@dataclass(frozen=True)
class AhpGreedy(_OnRough):
    """AHP's greedy clusters with look-ahead and its rule for stopping (Zhang et al. 2014, Algorithm 3)."""

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        """Grow each cluster until no larger one could be better."""
        from dphist.kernels.partition import clusters

        return clusters.ahp_greedy(h, a=final)


@dataclass(frozen=True)
class Empirical(_OnRough):
    """The exact best k groups for four rules of thumb for k, the cheapest of them (AHP Algorithm 2)."""

    def cut(self, h: Ints, rough: float, final: float) -> Ints:
        """Try square root, Sturges, Doane and Rice."""
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
        """Split where the sum of squares falls most."""
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


@dataclass(frozen=True)
class L1(Step):
    """The private L1 partition: DAWA's first stage (Li et al. 2014), with its proof mended.

    Args:
        candidates: ``powers`` of two (DAWA, S~), ``all`` intervals (S1), or ``subtrees`` (S1+H).
        center: deviations from the ``mean`` (published) or the ``median`` (ours: half the sensitivity).
        one_sided: geometric noise instead of two-sided: the same guarantee, half the variance (ours).
        fanout: of the tree whose subtrees are tried.
        extra: what a group costs besides, in scales of the noise on its cost; 0 as published. Among many
            noisy candidates the best looks better than it is, and the more groups the more so.
    """

    spends: ClassVar[bool] = True
    candidates: Literal["powers", "all", "subtrees"] = "powers"
    center: Literal["mean", "median"] = "mean"
    one_sided: bool = False
    extra: float = 0.0
    fanout: int = 16

    def __post_init__(self) -> None:
        if self.candidates not in ("powers", "all", "subtrees") or self.center not in ("mean", "median"):
            raise UsageError("L1 takes candidates powers, all or subtrees, and center mean or median.")
        if self.fanout < 2:
            raise UsageError(f"a tree's fanout is at least 2, not {self.fanout}.")
        if not (math.isfinite(self.extra) and self.extra >= 0):
            raise UsageError(f"extra must be a number from 0 on, not {self.extra!r}.")

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse all intervals of more bins than can be tried."""
        if self.candidates == "all" and domain.n > 1 << 16:
            raise UsageError(f"all intervals of {domain.n} bins are too many; use candidates='powers'.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Ask the curator; a group costs, besides its deviations, the scale of the noise on its total."""
        return curator.partition_l1(
            candidates=self.candidates,
            center=self.center,
            one_sided=self.one_sided,
            penalty=(curator.scale(later) if later else 0.0) + self.extra * curator.scale(share),
            share=share,
            order=order,
            fanout=self.fanout,
        )


@dataclass(frozen=True)
class Splits(Step):
    """The nodes of a tree whose bins look alike, found from the root down (ours; `dphist.privacy.splits`).

    A small part of the share first asks whether nearly all blocks of 16 bins are rough against the noise. If
    they are, or the noise is far below a record, grouping gains nothing: every bin is its own group, and
    what is left of the share goes to the estimate.

    Args:
        fanout: how many parts a node is split into.
    """

    spends: ClassVar[bool] = True
    fanout: int = 4

    def __post_init__(self) -> None:
        if self.fanout < 2:
            raise UsageError(f"a tree's fanout is at least 2, not {self.fanout}.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Ask whether to group at all, then how."""
        from dphist.privacy.queries import Roughness

        n = curator.domain.n
        alone = Groups.singletons(n) if order is None else Groups(np.arange(n + 1), order)
        if curator.scale(share) < 1 / 16:
            return alone
        # Few blocks must be rougher to stand out from the noise of the question.
        cap = round(20 * curator.scale(Fraction(1)) * max(2048 / n, 1.0))
        asked = Roughness(n, max(cap, 1), order)
        if curator.choose(asked, share=share / 15) == 0:
            return alone
        return curator.partition_splits(share=share * 14 / 15, order=order, fanout=self.fanout)


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
