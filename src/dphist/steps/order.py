"""Step 2: the order of the bins in which they are grouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import frozen
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
        return frozen(np.argsort(require_rough(rough).values, kind="stable"))


@dataclass(frozen=True)
class Hilbert(Step):
    """The cells of a grid along a Hilbert curve: neighbours on the curve are neighbours on the map."""

    def check(self, domain: Domain, workload: Workload) -> None:
        if len(domain.axes) != 2:
            raise UsageError("order.Hilbert needs a two-dimensional domain; use order.AsGiven.")

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        return hilbert(*domain.shape)


@dataclass(frozen=True)
class ToAndFro(Step):
    """The cells of a grid along its longer side, to and fro: a run of them lies in one line, or in few.

    Of a long grid, such as ages of six wards, neighbours on a Hilbert curve lie in all lines, however much
    these differ.
    """

    def check(self, domain: Domain, workload: Workload) -> None:
        if len(domain.axes) != 2:
            raise UsageError("order.ToAndFro needs a two-dimensional domain; use order.AsGiven.")

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        rows, columns = domain.shape
        cells = np.arange(rows * columns).reshape(rows, columns)
        lines = (cells.T if rows > columns else cells).copy()
        lines[1::2] = lines[1::2, ::-1]
        return frozen(lines.ravel())


def hilbert(rows: int, columns: int) -> Order:
    """Return the cells of any grid, row by row numbered, along the Hilbert curve of the square around it.

    Cells outside the grid are left out, so the curve may jump there and nowhere else. O(cells log side).
    """
    from dphist.kernels.curve import along_curve

    return frozen(along_curve(rows, columns))
