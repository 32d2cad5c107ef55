"""Multiplicative weights for sums over boxes of a grid, without a matrix of queries.

A line is a grid of one column. Weights start even and every update multiplies a box, so they are constant on
the pieces into which the edges of the measured boxes cut the grid: a handful, whatever the number of cells.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel

Sides: TypeAlias = tuple[Ints, Ints, Ints, Ints]  # of the boxes [x0, x1) x [y0, y1): x0, x1, y0, y1


def box_sums(grid: NDArray[Any], sides: Sides) -> NDArray[Any]:
    """Return every box's sum, from those of the boxes at the origin: O(cells + boxes)."""
    corner = np.zeros((grid.shape[0] + 1, grid.shape[1] + 1), grid.dtype)
    np.cumsum(grid, axis=0, out=corner[1:, 1:])
    np.cumsum(corner, axis=1, out=corner)
    return reduce(np.add, (sign * corner[x, y] for x, y, sign in _corners(sides)))


def box_cover(shape: tuple[int, int], sides: Sides) -> Ints:
    """Return how many of the boxes contain each cell."""
    steps = np.zeros((shape[0] + 1, shape[1] + 1), np.int64)
    for x, y, sign in _corners(sides):
        np.add.at(steps, (x, y), sign)
    return steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


def _corners(sides: Sides) -> list[tuple[Ints, Ints, int]]:
    x0, x1, y0, y1 = sides
    return [(x1, y1, 1), (x0, y1, -1), (x1, y0, -1), (x0, y0, 1)]


def reweighted(grid: Floats, sides: Sides, measured: Floats, *, passes: int) -> Floats:
    """Return a grid moved towards what was measured of some boxes, their positive total kept (Hardt et al.).

    Args:
        grid: the estimates so far, constant wherever no edge of the boxes lies between two cells.
        sides: of the boxes that were measured, in order.
        measured: their noisy sums.
        passes: how often each of them is gone through.
    """
    rows, columns = (
        np.unique(np.concatenate(ends))
        for ends in (([0, grid.shape[0]], *sides[:2]), ([0, grid.shape[1]], *sides[2:]))
    )
    density = grid[np.ix_(rows[:-1], columns[:-1])]
    heights, widths = np.diff(rows), np.diff(columns)
    mass = np.ascontiguousarray(density * np.outer(heights, widths))
    _update(mass.ravel(), _inside(rows, columns, sides), np.clip(measured, 0.0, mass.sum()), passes)
    density = mass / np.outer(heights, widths)
    return np.repeat(np.repeat(density, heights, axis=0), widths, axis=1)


def _inside(rows: Ints, columns: Ints, sides: Sides) -> NDArray[np.bool_]:
    """Return of every box which of the pieces between these edges it holds, row by row."""
    x0, x1, y0, y1 = (ends[:, np.newaxis] for ends in sides)
    down, across = (x0 <= rows[:-1]) & (rows[:-1] < x1), (y0 <= columns[:-1]) & (columns[:-1] < y1)
    return (down[:, :, np.newaxis] & across[:, np.newaxis]).reshape(x0.size, -1)


@kernel
def _update(mass: Floats, inside: NDArray[np.bool_], measured: Floats, passes: int) -> None:
    total = 0.0
    for p in range(mass.size):
        total += mass[p]
    for turn in range(passes * measured.size):
        i = turn % measured.size
        before, after = 0.0, 0.0
        for p in range(mass.size):
            if inside[i, p]:
                before += mass[p]
        # As published: one over twice the total, so that a step is at most half a natural logarithm.
        factor = np.exp((measured[i] - before) / (2.0 * total))
        for p in range(mass.size):
            if inside[i, p]:
                mass[p] *= factor
            after += mass[p]
        for p in range(mass.size):
            mass[p] *= total / after
