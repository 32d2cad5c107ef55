"""Scores that read off one number of a histogram, at a level: see `dphist.kernels.scores`.

The numbers are the features by which a method is chosen. Each is a sum over blocks of neighbouring bins of
something that one record changes by at most 1, in one block, cut off where a block stands out clearly from
the noise. Whatever the counts are, the sum is then at most as many noises as there are blocks, and a small
share of the budget reads it well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dphist.domain.groups import Ints
from dphist.errors import UsageError
from dphist.kernels.partition import deviations


@dataclass(frozen=True, eq=False)
class Level:
    """How full, or how uneven, the blocks are: the level nearest to what they make together wins.

    A block's total changes with each of its records by 1, the sum of its bins' distances from their median by
    at most 1; cutting either off at ``cap`` changes it by no more. A record lies in one block. So the sum S
    over all blocks moves by at most 1, and so does every score -|S - level|; some rise while others fall.

    Args:
        of: totals of the blocks, or distances of their bins from the median.
        size: bins of a block; the last block may be shorter.
        cap: a block of so many records, or so uneven by so many, counts as much as any.
        steps: levels lie at 0, 1, ..., ``steps`` parts of the most that S can be.
        order: of the bins; None is the domain's.
    """

    sensitivity: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    of: Literal["totals", "distances"]
    size: int
    cap: int
    steps: int
    order: Ints | None = None

    def __post_init__(self) -> None:
        if min(self.size, self.cap, self.steps) < 1:
            raise UsageError("levels need blocks, a cap and steps of at least 1.")
        if self.order is not None and (np.bincount(self.order) != 1).any():
            raise UsageError(
                "an order of bins has each of them once."
            )  # twice would double what a record moves

    def candidates(self, n: int) -> int:
        """Return how many levels there are."""
        return self.steps + 1

    def __call__(self, counts: Ints) -> Ints:
        """Return minus the distance of S from every level: O(n log n)."""
        x = counts if self.order is None else counts[self.order]
        if self.of == "totals":
            blocks = np.add.reduceat(x, np.arange(0, x.size, self.size))
        else:
            (blocks,) = deviations.tree_costs(x, [self.size])
        most = blocks.size * self.cap
        levels = np.array([most * i // self.steps for i in range(self.steps + 1)], np.int64)
        reached: Ints = np.abs(np.minimum(blocks, self.cap).sum() - levels)
        return -reached
