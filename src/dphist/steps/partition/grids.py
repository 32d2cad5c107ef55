"""Boxes of a grid: cut where rough counts vary, or equal and as many as a noisy total allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphist.domain.groups import Groups, Ints
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Order, Rough, Step, require_rough, variance

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class KdGrid(Step):
    """DPCube's boxes: cut in two while the rough counts of a box vary by more than xi (Xiao et al. 2012).

    Args:
        xi: the variance that is left alone, in variances of the rough noise.
    """

    needs_rough: ClassVar[bool] = True
    xi: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.xi) and self.xi > 0):
            raise UsageError(f"xi must be a number above 0, not {self.xi!r}.")

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Cut where the sum of squares falls most; no further budget."""
        from dphist.kernels.partition import clusters

        noisy = require_rough(rough)
        threshold = self.xi * float(np.max(variance(noisy.scale)))
        if order is not None:
            return Groups(clusters.kd_splits(noisy.values[order], threshold=threshold), order)
        return groups_of(
            clusters.kd_grid(noisy.values.reshape(rows_and_columns(curator)), threshold=threshold)
        )


@dataclass(frozen=True)
class UniformGrid(Step):
    """Equal boxes, about sqrt(N epsilon/10) to a side, N a noisy total (Qardaji et al. 2013).

    Args:
        constant: the 10 above.
        least: how many boxes a side has at least, if it has the cells.
    """

    spends: ClassVar[bool] = True
    constant: float = 10.0
    least: int = 10

    def __post_init__(self) -> None:
        check_grid(self.constant, self.least)

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Measure the total, and compute the size of the grid from it."""
        total = curator.measure(Groups.whole(curator.domain.n), share=share).values[0]
        side = max(int(boxes_per_side(curator, total, later, self.constant)), self.least)
        if order is not None:  # runs of a line: as many as there would be boxes
            n = curator.domain.n
            return Groups(
                np.searchsorted(boxes_of_side(n, side * side), np.arange(min(side * side, n) + 1)), order
            )
        rows, columns = (boxes_of_side(cells, side) for cells in rows_and_columns(curator))
        return groups_of(rows[:, None] * (columns[-1] + 1) + columns)


def check_grid(constant: float, least: int) -> None:
    """Refuse settings of which no grid can be made."""
    if not (math.isfinite(constant) and constant > 0 and least >= 1):
        raise UsageError("a grid takes a constant above 0 and at least one box to a side.")


def boxes_of_side(cells: int, side: int) -> Ints:
    """Return the number of the box in which each cell of a side lies, for at most ``side`` boxes."""
    boxes = min(side, cells)
    return np.arange(cells) * boxes // cells


def boxes_per_side(curator: Curator, total: Ints, share: Fraction, constant: float) -> Ints:
    """Return sqrt(N epsilon/constant), rounded up, for noisy totals N; at least 1."""
    records = np.maximum(np.asarray(total, dtype=np.float64), 0.0)
    budget = float(curator.epsilon * share) / curator.sensitivity
    return np.clip(np.ceil(np.sqrt(records * budget / constant)), 1, 1 << 20).astype(np.int64)


def groups_of(labels: Ints) -> Groups:
    """Return cells with the same label as groups, in the order of the labels."""
    flat = labels.ravel()
    sizes = np.bincount(flat)
    starts = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    return Groups(starts, None if (flat[1:] >= flat[:-1]).all() else np.argsort(flat, kind="stable"))


def rows_and_columns(curator: Curator) -> tuple[int, int]:
    """Return the sides of a grid; a line is one column."""
    shape = curator.domain.shape
    return (shape[0], shape[1]) if len(shape) == 2 else (curator.domain.n, 1)
