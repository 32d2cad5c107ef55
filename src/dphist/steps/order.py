"""Step 2: the order of the bins in which they are grouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dphist.domain import Domain
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.steps.protocols import Order, Rough, Step, require_rough


@dataclass(frozen=True)
class AsGiven(Step):
    """The domain's own order."""

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        return None


@dataclass(frozen=True)
class ByNoisyCount(Step):
    """Bins from the smallest rough count to the largest; equals keep the domain's order."""

    needs_rough: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        return np.argsort(require_rough(rough).values, kind="stable")


@dataclass(frozen=True)
class Hilbert(Step):
    """The cells of a grid along a Hilbert curve: neighbours on the curve are neighbours on the map."""

    def check(self, domain: Domain, workload: Workload) -> None:
        if len(domain.axes) != 2:
            raise UsageError("order.Hilbert needs a two-dimensional domain; use order.AsGiven.")

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        return hilbert(*domain.shape)


def hilbert(rows: int, columns: int) -> Order:
    """Return the cells of any grid, row by row numbered, along the Hilbert curve of the square around it.

    Cells outside the grid are left out, so the curve may jump there and nowhere else. O(cells log side).
    """
    bits = max(rows - 1, columns - 1, 1).bit_length()
    x, y = (a.ravel() for a in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    x, y = x.astype(np.int64), y.astype(np.int64)
    place = np.zeros(x.size, dtype=np.int64)
    for bit in range(bits - 1, -1, -1):
        side = 1 << bit
        right, up = (x & side) > 0, (y & side) > 0
        place = (place << 2) | ((3 * right) ^ up)
        # Turn each quadrant so that its part of the curve begins and ends where the whole one does.
        x, y = x & (side - 1), y & (side - 1)
        flip = right & ~up
        x, y = np.where(flip, side - 1 - x, x), np.where(flip, side - 1 - y, y)
        x, y = np.where(~up, y, x), np.where(~up, x, y)
    return np.argsort(place, kind="stable")
