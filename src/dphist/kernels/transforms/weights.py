"""Multiplicative weights for sums over boxes of a grid, without a matrix of queries.

A line is a grid of one column. Weights start even and every update multiplies a box, so they are constant on
the pieces into which the edges of the measured boxes cut the grid: a handful, whatever the number of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel


@dataclass(frozen=True, eq=False)
class Boxes:
    """Sums over the boxes [x0, x1) x [y0, y1) of a grid whose cells are numbered row by row."""

    shape: tuple[int, int]
    x0: Ints
    x1: Ints
    y0: Ints
    y1: Ints

    @classmethod
    def ranges(cls, n: int, lo: Ints, hi: Ints) -> Boxes:
        """Return ranges of a line."""
        return cls((n, 1), lo, hi, np.zeros_like(lo), np.ones_like(lo))

    @property
    def n(self) -> int:
        """How many cells there are."""
        return self.shape[0] * self.shape[1]

    @property
    def size(self) -> int:
        """How many boxes there are."""
        return self.x0.size

    def take(self, which: list[int]) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.shape, self.x0[which], self.x1[which], self.y0[which], self.y1[which])

    def bound(self) -> int:
        """Return how many boxes contain the cell that is in most: all weights are 1."""
        steps = np.zeros((self.shape[0] + 1, self.shape[1] + 1), np.int64)
        for x, y, sign in self._corners():
            np.add.at(steps, (x, y), sign)
        return int(steps.cumsum(axis=0).cumsum(axis=1).max())

    def __call__(self, counts: Ints) -> Ints:
        """Return every box's sum of whole numbers, exactly."""
        exact: Ints = self.sums(counts)
        return exact

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return every box's sum, from those of the boxes at the origin: O(cells + boxes)."""
        corner = np.zeros((self.shape[0] + 1, self.shape[1] + 1), values.dtype)
        np.cumsum(values.reshape(self.shape), axis=0, out=corner[1:, 1:])
        np.cumsum(corner, axis=1, out=corner)
        return reduce(np.add, (sign * corner[x, y] for x, y, sign in self._corners()))

    def _corners(self) -> list[tuple[Ints, Ints, int]]:
        return [
            (self.x1, self.y1, 1),
            (self.x0, self.y1, -1),
            (self.x1, self.y0, -1),
            (self.x0, self.y0, 1),
        ]


def reweighted(values: Floats, boxes: Boxes, measured: Floats, *, passes: int) -> Floats:
    """Return values moved towards what was measured of some boxes, their positive total kept (Hardt et al.).

    Args:
        values: what is believed so far, constant wherever no edge of the boxes lies between two cells.
        boxes: those measured, in order.
        measured: their noisy sums.
        passes: how often each of them is gone through.
    """
    rows, columns = (
        np.unique(np.concatenate(ends))
        for ends in (([0, boxes.shape[0]], boxes.x0, boxes.x1), ([0, boxes.shape[1]], boxes.y0, boxes.y1))
    )
    grid = values.reshape(boxes.shape)
    density = grid[np.ix_(rows[:-1], columns[:-1])]
    heights, widths = np.diff(rows), np.diff(columns)
    edges = [np.searchsorted(rows, x) for x in (boxes.x0, boxes.x1)]
    edges += [np.searchsorted(columns, y) for y in (boxes.y0, boxes.y1)]
    mass = density * np.outer(heights, widths)
    _update(mass, np.stack(edges), np.clip(measured, 0.0, mass.sum()), passes)
    density = mass / np.outer(heights, widths)
    return np.repeat(np.repeat(density, heights, axis=0), widths, axis=1).ravel()


@kernel
def _update(mass: Floats, edges: Ints, measured: Floats, passes: int) -> None:
    total = mass.sum()
    for _ in range(passes):
        for i in range(measured.size):
            inside = mass[edges[0, i] : edges[1, i], edges[2, i] : edges[3, i]]
            before = inside.sum()
            # As published: one over twice the total, so that a step is at most half a natural logarithm.
            inside *= np.exp((measured[i] - before) / (2.0 * total))
            mass *= total / mass.sum()
