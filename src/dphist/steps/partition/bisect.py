"""Groups found by private selection: boundaries chosen one after the other, each paid for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Order, Rough, Step


@dataclass(frozen=True)
class PHp(Step):
    """P-HP: bisect again and again, each cut chosen privately by absolute error (Acs et al. 2012).

    Each round chooses among all cuts of all groups, or to stay: where to stop is found on the way. Published,
    the two halves of a cut share one budget; here a round is one choice, so rounds are few.

    Args:
        rounds: how many choices; None is the logarithm of the number of bins, rounded up.
    """

    spends: ClassVar[bool] = True
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise UsageError(f"P-HP needs at least one round, not {self.rounds}.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Cut where the distances from the medians, and a noise scale for the further group, fall most."""
        from dphist.privacy.queries import Cuts

        n = curator.domain.n
        rounds = self.rounds or max((n - 1).bit_length(), 1)
        penalty = round(curator.scale(later)) if later else 0
        starts = np.array([0, n])
        for _ in range(rounds):
            cut = curator.choose(Cuts(starts, penalty, order), share=share / rounds)
            starts = np.union1d(starts, cut)  # 0, to stay, is there already
        return Groups(starts, order)


@dataclass(frozen=True)
class StructureFirst(Step):
    """Boundaries from the last to the first, each by private selection (Xu et al. 2013).

    A boundary is as good as the best groups that there could be before it, and the one group behind it.

    With the medians of the paper's second variant, because squared errors have no bounded sensitivity.
    Boundaries lie on one of at most 1,024 places, evenly spaced and fewer beyond 32,768 bins.

    Args:
        groups: at most how many; None is a tenth of the bins, from 2 to 32.
    """

    spends: ClassVar[bool] = True
    groups: int | None = None

    def __post_init__(self) -> None:
        if self.groups is not None and self.groups < 2:
            raise UsageError(f"StructureFirst needs at least two groups, not {self.groups}.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Choose one boundary after the other, each with the same part of the share."""
        from dphist.privacy.queries import LastCut

        n = curator.domain.n
        places = min(n, max(64, min(1024, (1 << 25) // n)))
        edges = np.arange(places + 1) * n // places
        most = self.groups or min(max(-(-n // 10), 2), 32)
        end, starts = places, [0, n]
        for pieces in range(most - 1, 0, -1):
            # Once the first group is reached the choices that are left cut nothing.
            end = min(end, curator.choose(LastCut(edges, end, pieces, order), share=share / (most - 1)))
            starts.append(int(edges[end]))
        return Groups(np.unique(starts), order)
