"""The score that asks whether nearly all bins differ from their neighbours: see `dphist.kernels.scores`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels.partition import deviations


@dataclass(frozen=True, eq=False)
class Roughness:
    """Whether nearly every block of 16 bins is rough: candidate 0 if it is, 1 if it is not.

    A block's roughness is the sum of its bins' distances from their median, at most ``cap``; one record
    changes it by at most 1, in one block. They are rough together at three quarters of all they could be.

    Args:
        cap: a block that differs by so many records is as rough as it need be.
        order: of the bins; None is the domain's.
    """

    sensitivity: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    cap: int
    order: Ints | None = None

    def candidates(self, n: int) -> int:
        """Return 2: rough or not."""
        return 2

    def __call__(self, counts: Ints) -> Ints:
        """Return the roughness of all blocks together, and the bar."""
        x = counts if self.order is None else counts[self.order]
        size = min(16, x.size)
        costs = np.minimum(deviations.median_costs(x, size, stride=size), self.cap)
        return np.array([costs.sum(), 3 * costs.size * self.cap // 4])
