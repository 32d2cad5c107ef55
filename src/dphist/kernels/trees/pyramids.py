"""The variance of rectangles of a grid whose cells and pyramids over them are measured.

Least squares is that of `hats_fit`, for the cells row by row are a line. The variance of a rectangle is that
of its cells' own answers less the squared length of L^-1 s, where s has what of its cells is under each
pyramid and L is the factor of their overlaps. Both parts are sums over its cells before they are squared, so
that four corners of a table suffice: it has an entry for every corner of the grid and every pyramid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel
from dphist.kernels.trees.hat_rules import MOST_CELLS
from dphist.kernels.trees.hats import fitted_pyramids
from dphist.kernels.trees.hats_fit import HatsError, hats_error, sides_gain

_AT_ONCE = 1 << 12  # rectangles, whose entries are held at the same time


@dataclass(frozen=True, eq=False)
class PyramidsError:
    """What least squares makes of noise of variance 1 on every answer, prepared for rectangles.

    Args:
        error: of the cells as a line.
        own: sums of the cells' own variances, up to each corner of the grid.
        under: L^-1 s up to each corner.
    """

    error: HatsError
    own: Floats
    under: Floats


@lru_cache(maxsize=2)
def pyramids_error(rows: int, columns: int) -> PyramidsError:
    """Return the prepared structure: O(n) for each pyramid."""
    error = hats_error(fitted_pyramids(rows, columns), 1.0)
    under = np.empty((rows + 1, columns + 1, error.hats.first.size))
    for h, line in enumerate(_lines(error)):
        under[..., h] = _up_to_corners(line.reshape(rows, columns))
    _solve_all(error.start, error.base, error.factor, under.reshape(-1, under.shape[2]))
    return PyramidsError(error, _up_to_corners(error.own.reshape(rows, columns)), under)


def under_pyramids(error: HatsError) -> Floats:
    """Return L^-1 s of every single cell: sums of squares are what pyramids take off a variance."""
    under = np.empty((error.hats.n, error.hats.first.size))
    for h, line in enumerate(_lines(error)):
        under[:, h] = line
    _solve_all(error.start, error.base, error.factor, under)
    return under


def _lines(error: HatsError) -> Iterator[Floats]:
    """Yield for each pyramid its weight in every cell, times the variance of the cell's own answer."""
    hats = error.hats
    for lo, weights in zip(hats.first, np.split(hats.weights, hats.offset[1:-1]), strict=True):
        line = np.zeros(hats.n)
        line[lo : lo + weights.size] = weights
        yield line * error.own


def _up_to_corners(cells: Floats) -> Floats:
    """Return the sums of a grid's cells above and left of every corner."""
    return np.pad(cells.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))


@kernel
def _solve_all(start: Ints, base: Ints, factor: Floats, gaps: Floats) -> None:
    """Solve with the factor every row in place."""
    for c in range(gaps.shape[0]):
        for h in range(gaps.shape[1]):
            total = gaps[c, h]
            for i in range(start[h], h):
                total -= factor[base[h] + i] * gaps[c, i]
            gaps[c, h] = total / factor[base[h] + h]


def rectangle_variances(known: PyramidsError, x0: Ints, x1: Ints, y0: Ints, y1: Ints) -> Floats:
    """Return the variance of each rectangle of rows x0 to x1 - 1 and columns y0 to y1 - 1."""
    out = np.empty(x0.size)
    for begin in range(0, x0.size, _AT_ONCE):
        a, b, c, d = (end[begin : begin + _AT_ONCE] for end in (x0, x1, y0, y1))
        own, under = (of[b, d] - of[a, d] - of[b, c] + of[a, c] for of in (known.own, known.under))
        out[begin : begin + _AT_ONCE] = own - np.einsum("ij,ij->i", under, under)
    return out


def have_pyramids(rows: int, columns: int) -> bool:
    """Return whether there are pyramids over a grid's cells."""
    return min(rows, columns) > 1 and rows * columns <= MOST_CELLS


@lru_cache(maxsize=8)
def grid_gain(rows: int, columns: int) -> float:
    """Return the standard error of a grid's mean rectangle over that by single cells.

    It is that of pyramids over its cells or of triangles of its sides, whichever is less.
    """
    sides = sides_gain(rows, columns)
    return min(sides, pyramids_gain(rows, columns)) if have_pyramids(rows, columns) else sides


def pyramids_gain(rows: int, columns: int) -> float:
    """Return the standard error of a grid's mean rectangle by pyramids, over that by single cells."""
    shape = fitted_pyramids(rows, columns)
    error = hats_error(shape, float(shape.whole) ** 2)
    under = np.array([*_lines(error)])
    asked = [_held_together(_held_together(line.reshape(rows, columns)).T).T.ravel() for line in under]
    overlaps = np.array(asked) @ under.T
    _solve_all(error.start, error.base, error.factor, overlaps)
    twice = np.ascontiguousarray(overlaps.T)
    _solve_all(error.start, error.base, error.factor, twice)
    down, across = (np.arange(n, 0.0, -1) * np.arange(1, n + 1) / (n * (n + 1) / 2) for n in (rows, columns))
    alone = np.outer(down, across).ravel()  # which part of all rectangles holds each cell
    return math.sqrt((float((alone * error.own).sum()) - float(np.trace(twice))) / float(alone.sum()))


def _held_together(x: Floats) -> Floats:
    """Return for each column the sum of all, each times the part of all ranges that holds both: O(n).

    Columns i <= j of n, from 0, are both in (i + 1) (n - j) of n (n + 1) / 2 ranges.
    """
    n = x.shape[1]
    begins, ends = np.arange(1.0, n + 1), np.arange(n, 0.0, -1)
    before = np.cumsum(begins * x, axis=1)
    after = np.cumsum((ends * x)[:, ::-1], axis=1)[:, ::-1] - ends * x
    return np.asarray((ends * before + begins * after) / (n * (n + 1) / 2))
