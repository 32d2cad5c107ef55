"""Groups found on the data itself, through the curator, by the private partitions: both pay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.kernels.partition.node_sizes import checked_trees
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Order, Rough, Step, checked_scale
from dphist.steps.questions import above, cannot_ask, total, whole_level

_FEW = 0.4  # groups for each bin, above which hats on all bins do better; by the histograms of DPBench
_ABOVE = 0.1  # noise scales for each bin: bins stand out if so many more records lie above a level than below
_SURE = 1.5  # noise scales of a first question above its bar, from which on it is enough
_SURER = 5.0  # the same where it says, too, how many even blocks there may be
# Records in all, in noise scales, between which a line is asked whether even blocks are enough; about how
# many there are, times the cube root of the records, and of how many bins at least; how rough each may be, in
# scales, times their power of 0.3; how many 64ths of the share ask of 700 records, up to 16.
_SMOOTH, _EVEN, _FEWEST, _UNEVEN, _ASKED = (300.0, 1e5), 2.0, 8, 0.9, 12.0


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
    """The nodes of a tree whose bins are similar, found from the root down (ours; `dphist.privacy.splits`).

    A small part of the share first asks whether nearly all blocks of 16 bins are rough against the noise,
    unless few records were found in all. If they are, or the noise is far below a record, grouping gains
    nothing: every bin is its own group, and what is left of the share goes to the estimate.

    Args:
        fanout: how many parts a node is split into.
        halved: whether each group is cut in two once more, which is free, as groups are public. An estimate
            that averages loses little by a needless cut, and gains where the noise hid a difference. If there
            are then more than 0.4 groups for a bin, every bin is its own; so it is where there are several
            blocks, but for few records.
        sides: whether cells of a grid that are not grouped will be measured by pyramids over them, or by
            triangles over its sides. The larger the grid, the less error these have, and the less rough it
            need be to group none.
        level: in scales of noise that the whole budget pays. Two fifteenths of the share first ask whether
            most records lie above it, bin by bin, as `FaintBins` does: then every bin is its own group, for
            each stands out from the noise, or few do from many that are empty. It is cut to whole records,
            and is one at least. None does not ask.
        scarce: records in all, in such scales, up to which 50 64ths of the share are for the groups, and
            none is halved; otherwise half of it is, in one tree, and the estimate has the rest. A 64th of the
            share first measures the total, and six more do where that left doubts. From 300 to 100,000, up to
            16 64ths ask whether some even blocks are smooth, fewer the more records there are: they are
            the groups then, and the estimate has the rest. None asks for no total, and the whole share is
            for the groups.
        blocks: into how many trees the bins are divided at least, by public places; with ``scarce``, where
            few records were found. A root of all bins is nearly always split, and what is below it must
            differ by more to be split, too. Without ``scarce``, twice as much of the share asks how rough
            several are.
        slight: a scale of noise that the whole budget pays, below which every bin is its own group: noise of
            whole records vanishes faster than its scale does.
    """

    spends: ClassVar[bool] = True
    # How rough all blocks must be to group none, in percent of the most that counts, and that most for one in
    # scales of the noise that the whole budget pays; the second of each for grids measured by their sides.
    rough: ClassVar[tuple[int, int]] = (50, 45)
    cap: ClassVar[tuple[int, int]] = (80, 40)
    fanout: int = 4
    halved: bool = False
    sides: bool = False
    level: float | None = None
    scarce: float | None = None
    blocks: int = 1
    slight: float = 0.0

    def __post_init__(self) -> None:
        checked_trees(self.fanout, self.blocks)
        for name in ("level", "scarce"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} is a number of noise scales above 0, not {value!r}.")
        checked_scale(self.slight)

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        from dphist.privacy.queries import Roughness

        n = curator.domain.n
        alone = Groups.singletons(n) if order is None else Groups(np.arange(n + 1), order)
        if curator.scale(share) < 1 / 16 or curator.scale(Fraction(1)) < self.slight:
            return alone
        # Nothing is asked unless the question after it can be asked, too.
        if self.level is not None and not cannot_ask(curator, share * 13 / 225):
            if self._stand_out(curator, share * 2 / 15):
                return alone
            share = share * 13 / 15
        if self.scarce is not None:
            records, doubt = self._records(curator, share)
            if records <= self.scarce:
                return curator.partition_splits(
                    share=share * 50 / 64, order=order, fanout=self.fanout, blocks=self.blocks
                )
            even = _even(curator, records - _SURE * doubt, share, order)
            if even is not None:
                return even
            share = share / 2
        # Few blocks must be rougher to stand out from the noise of the question, or it must have more.
        several = self.blocks > 1 and self.scarce is None
        first, least = (share * 2 / 15, 10240) if several else (share / 15, 40960)
        cap = round(max(self.cap[self.sides], least / n) * curator.scale(Fraction(1)))
        asked = Roughness(n, max(cap, 1), order, self._bar(curator.domain))
        if curator.choose(asked, share=first) == 0:
            return alone
        groups = curator.partition_splits(
            share=share - first, order=order, fanout=self.fanout, blocks=self.blocks if several else 1
        )
        groups = _halved(groups) if self.halved else groups
        return alone if (self.halved or several) and groups.k > _FEW * n else groups

    def _stand_out(self, curator: Curator, share: Fraction) -> bool:
        """Ask whether most records lie in bins that stand out."""
        found, _ = above(curator, max(whole_level(curator, self.level or 0.0), 1), share)
        return found >= _ABOVE * curator.domain.n * curator.scale(Fraction(1))

    def _records(self, curator: Curator, share: Fraction) -> tuple[float, float]:
        """Return how many noise scales all records are, and what scale the noise of that has.

        They are asked for with up to 7 64ths of the share.
        """
        if cannot_ask(curator, share / 64):
            return 0.0, 0.0
        scale = curator.scale(Fraction(1))
        bar = (self.scarce or 0.0) * scale
        ask = partial(total, curator)
        found, noise = _asked(ask, share / 64, share * 3 / 32, bar=bar, sure=_SURER)
        return found / scale, noise / scale

    def _bar(self, domain: Domain) -> int:
        """Return how rough all blocks must be to group none, in percent of the most that they could be."""
        if not self.sides:
            return self.rough[0]
        from dphist.kernels.trees.pyramids import grid_gain

        return max(round(self.rough[1] * math.pow(grid_gain(*domain.shape), 1.25)), 1)


def _even(curator: Curator, records: float, share: Fraction, order: Order) -> Groups | None:
    """Return even blocks that are smooth, as the data say; None if they are not, or nothing was asked.

    A smooth line needs few groups, which public places serve as well as found ones. What these cost is saved.
    Of fewer records than it was taken for, a line of spikes would seem smooth.

    Args:
        records: how many there surely are, in noise scales.
    """
    from dphist.privacy.queries import Roughness

    n, scale = curator.domain.n, curator.scale(Fraction(1))
    if not _SMOOTH[0] <= records <= _SMOOTH[1]:
        return None
    bins = int(n / (_EVEN * np.cbrt(records)))  # of a block
    asked = share * min(max(round(_ASKED * math.sqrt(700 / records)), 1), 16) / 64
    if bins < _FEWEST or cannot_ask(curator, asked):
        return None
    # All parts of a block have as many bins, but for those of the last one.
    parts = 4 ** ((bins.bit_length() - 1) // 2)
    starts = np.append(np.arange(0, n - parts + 1, parts * round(bins / parts)), n)
    inside = starts[:-1, None] + np.arange(parts) * np.diff(starts)[:, None] // parts
    many = starts.size - 1
    most = math.ceil(_UNEVEN * records**0.3 * many * scale)  # may lie in one block: a percent of all caps
    rough = Roughness(n, math.ceil(100 * most / many), order, 1, np.append(inside.ravel(), n), parts)
    return None if curator.choose(rough, share=asked) == 0 else Groups(starts, order)


@dataclass(frozen=True)
class FaintBins(Step):
    """Groups of bins where noise on each would drown them; else every bin is its own (ours).

    A bin is compared with a level below the noise: a public part of the noise scale. The sum of the bins'
    distances from it, less the level for each bin, is twice the records above the level less all records. It
    is far below 0 if there are records, and nearly all of them lie below it, bin by bin: then only groups
    stand out from the noise. It is above 0 if most records lie in bins that can be seen, be they many or few.

    A fourteenth of the share asks first, which is enough for most data; five more ask where that left doubts,
    and the others are for the groups. What is not used goes to the estimate. Where the noise is so small that
    the level is below a record, nothing is asked.

    Args:
        then: what groups the bins.
    """

    spends: ClassVar[bool] = True
    parts: ClassVar[tuple[int, int, int]] = (1, 5, 8)  # of the share: two questions, and the groups
    level: ClassVar[float] = 0.4  # noise scales that the whole budget pays
    below: ClassVar[float] = 0.04  # the same for each bin: down to here none are faint
    then: Splits = Splits(halved=True)

    def check(self, domain: Domain, workload: Workload) -> None:
        self.then.check(domain, workload)

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        n = curator.domain.n
        alone = Groups.singletons(n) if order is None else Groups(np.arange(n + 1), order)
        scale = curator.scale(Fraction(1))
        level = whole_level(curator, self.level)
        if level < 1:
            return alone
        first, second, rest = (share * part / sum(self.parts) for part in self.parts)
        if cannot_ask(curator, first):
            return alone
        if _asked(partial(above, curator, level), first, second)[0] > -self.below * n * scale:
            return alone
        return self.then(curator, rough, order, share=rest, later=later)


def _asked(
    ask: Callable[[Fraction], tuple[float, float]],
    first: Fraction,
    second: Fraction,
    *,
    bar: float = 0.0,
    sure: float = _SURE,
) -> tuple[float, float]:
    """Return a noisy number and its noise's scale, asked for once more where it is not surely above a bar.

    Args:
        ask: returns it for a share, and the scale of its noise.
        sure: how many of these scales above the bar are enough.
    """
    found, noise = ask(first)
    if found > bar + sure * noise:
        return found, noise
    again, less = ask(second)
    weight = noise**2 / (noise**2 + less**2)  # by the variances
    return (1 - weight) * found + weight * again, less


@dataclass(frozen=True)
class PlainSplits(Step):
    """`Splits` without its question: among very many bins nearly all blocks are empty, and alike.

    Args:
        fanout: how many parts a node is split into.
    """

    spends: ClassVar[bool] = True
    fanout: int = 4

    def __post_init__(self) -> None:
        checked_trees(self.fanout, 1)

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        return curator.partition_splits(share=share, order=order, fanout=self.fanout)


def _halved(groups: Groups) -> Groups:
    """Cut every group of two bins or more where a binary tree over the bins does."""
    large = groups.sizes > 1
    half = 1 << (np.frexp(groups.sizes[large] - 1)[1] - 1).astype(np.int64)  # the last power of 2 below
    return Groups(np.sort(np.concatenate((groups.starts, groups.starts[:-1][large] + half))), groups.order)
