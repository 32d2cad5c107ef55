"""Averages of a grid's least squares estimate by the contrasts of its sides' trees.

A contrast of the rows says how the upper half of a node differs from its lower half, and one of the columns
does so from left to right. The products of both are a basis of all grids: a coefficient that is fine along
one side and coarse along the other says how far an edge or a slope goes on. Such a slope is seen where single
cells are drowned by noise, and it is what a rectangle's border cuts through; coefficients that are fine along
both sides are noise alone in a smooth grid.

The variance of each coefficient is known exactly. Each pair of heights has its own prior: 0, or normal with
one of a few standard deviations, whose weights are learnt from its coefficients. Coefficients are replaced by
their posterior means as if noise were normal and independent, which decides how well the average does and not
what any interval says. The mean over several pairs of trees, each shifted against the others, has no steps at
fixed places.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.averaging import GOLDEN
from dphist.kernels.trees.pyramids import pyramids_error, under_pyramids

_TREES = 4  # pairs of shifted trees, of which the mean is taken
_PART = 2.0 / 3.0  # of the result that is averaged: what slopes lose in an average, they lose in part
_SHIFTS = GOLDEN, 1.7 * GOLDEN  # by which the trees of the rows and of the columns move on
_FAR = 32.0  # standard errors from 0 up to which coefficients are drawn towards it
SPREADS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])  # of the prior, in standard errors
_FIRST = 2.0  # coefficients that the first weights, which are equal, count as
_SWEEPS = 40


class Contrasts(NamedTuple):
    """The contrasts of one tree over a side, the mean of all first: each has length 1.

    Args:
        low, middle, high: where its halves begin and end. The mean has no second half.
        left, right: what it has in each place of its halves.
        height: of its node, from 1 on; 0 for the mean.
    """

    low: Ints
    middle: Ints
    high: Ints
    left: Floats
    right: Floats
    height: Ints


class Products(NamedTuple):
    """The products of two sides' contrasts.

    Args:
        down, across: of the rows and of the columns.
        deviation: the standard error of each coefficient, for noise of variance 1 on every answer.
        order: all coefficients but that of the grid's mean, those of equal heights next to each other.
        begins: where those of each pair of heights begin in this order, and where the last end.
    """

    down: Contrasts
    across: Contrasts
    deviation: Floats
    order: Ints
    begins: Ints


def averaged_pyramids(cells: Floats, rows: int, columns: int, variance: float) -> Floats:
    """Return averages of a grid's cells, as pyramids over them say: O(n) for each of a few trees.

    Args:
        cells: by least squares, row by row.
        variance: of the noise on every answer.
    """
    if cells.shape != (rows * columns,) or not np.isfinite(cells).all():
        raise UsageError(f"averaging needs finite estimates of {rows} x {columns} cells.")
    if not variance > 0.0:
        return cells
    grid, total = cells.reshape(rows, columns), np.zeros((rows, columns))
    for basis in _bases(rows, columns):
        found = coefficients(grid, basis).ravel()
        found[basis.order] = shrunk(
            found[basis.order], np.sqrt(variance) * basis.deviation.ravel()[basis.order], basis.begins
        )
        total += made_of(found.reshape(rows, columns), basis)
    return np.asarray((1.0 - _PART) * cells + _PART / _TREES * total.ravel())


@lru_cache(maxsize=2)
def _bases(rows: int, columns: int) -> tuple[Products, ...]:
    """Return the products of shifted trees: O(n) for each pyramid and tree."""
    error = pyramids_error(rows, columns).error
    own, under, made = error.own.reshape(rows, columns), under_pyramids(error), []
    for tree in range(_TREES):
        down, across = (
            contrasts_of(n, round((1 << (n - 1).bit_length()) * (tree * step % 1.0)))
            for n, step in zip((rows, columns), _SHIFTS, strict=True)
        )
        # Noise on cells is independent, and what the pyramids say of it is taken off.
        variances = _along_both(own, down, across, 2)
        for k in range(under.shape[1]):  # one by one, for all at once take eleven times the memory
            variances -= _along_both(under[:, k].reshape(rows, columns), down, across) ** 2
        pair = (down.height[:, None] * (across.height.max() + 1) + across.height).ravel()
        order = np.argsort(pair, kind="stable")[1:]
        begins = np.flatnonzero(np.diff(pair[order], prepend=-1, append=-1))
        deviation = np.sqrt(np.maximum(variances, 1e-12))
        for kept in (deviation, order, begins):
            kept.flags.writeable = False  # it is shared
        made.append(Products(down, across, deviation, order, begins))
    return tuple(made)


def contrasts_of(n: int, shift: int) -> Contrasts:
    """Return the contrasts of the tree whose nodes of height h begin at multiples of 2^h, less the shift."""
    low, middle, high, height = [0], [n], [n], [0]
    for h in range(1, (1 << (n - 1).bit_length()).bit_length() + 1):
        for node in range(shift >> h, ((n - 1 + shift) >> h) + 1):
            begin = (node << h) - shift
            ends = max(begin, 0), begin + (1 << (h - 1)), min(begin + (1 << h), n)
            if ends[0] < ends[1] < ends[2]:
                for each, end in zip((low, middle, high, height), (*ends, h), strict=True):
                    each.append(end)
    lows, middles, highs = (np.array(each) for each in (low, middle, high))
    one, two = (middles - lows).astype(np.float64), (highs - middles).astype(np.float64)
    two[0] = 1.0  # which is not looked at
    length = np.sqrt(1.0 / one + 1.0 / two)
    left, right = 1.0 / (one * length), -1.0 / (two * length)
    left[0], right[0] = 1.0 / np.sqrt(n), 0.0
    return Contrasts(lows, middles, highs, left, right, np.array(height))


def _along(x: Floats, side: Contrasts, power: int = 1) -> Floats:
    """Return the sums along the first axis, each place times what contrasts have there, to a power."""
    sums = np.concatenate((np.zeros((1, *x.shape[1:])), np.cumsum(x, axis=0)))
    each = (-1,) + (1,) * (x.ndim - 1)
    low, middle, high = sums[side.low], sums[side.middle], sums[side.high]
    made = (side.left**power).reshape(each) * (middle - low)
    made += (side.right**power).reshape(each) * (high - middle)
    return np.asarray(made)


def _along_both(grid: Floats, down: Contrasts, across: Contrasts, power: int = 1) -> Floats:
    """Return the same of both axes of a grid."""
    return _along(_along(grid, down, power).T, across, power).T


def _back(found: Floats, side: Contrasts) -> Floats:
    """Return what coefficients of contrasts make along the first axis."""
    steps = np.zeros((found.shape[0] + 1, found.shape[1]))
    left, right = side.left[:, None] * found, side.right[:, None] * found
    np.add.at(steps, side.low, left)
    np.add.at(steps, side.middle, right - left)
    np.subtract.at(steps, side.high, right)
    return np.cumsum(steps, axis=0)[:-1]


def coefficients(grid: Floats, basis: Products) -> Floats:
    """Return the coefficients of a grid: rows by contrasts down, columns by contrasts across."""
    return np.ascontiguousarray(_along_both(grid, basis.down, basis.across))


def made_of(found: Floats, basis: Products) -> Floats:
    """Return the grid that has these coefficients."""
    return np.ascontiguousarray(_back(_back(found, basis.down).T, basis.across).T)


def shrunk(found: Floats, deviations: Floats, begins: Ints) -> Floats:
    """Return posterior means of coefficients, with a prior for each class of them: O(n).

    Args:
        deviations: their standard errors.
        begins: where each class begins, and where the last ends.
    """
    out = np.empty(found.size)
    most = int(np.diff(begins).max(initial=0))
    _shrink(found / deviations, begins, np.empty((most, SPREADS.size)), out)
    return out * deviations


@kernel
def _shrink(ratios: Floats, begins: Ints, densities: Floats, out: Floats) -> None:
    """Write the posterior means of numbers with noise of variance 1, class by class.

    Args:
        densities: room for those of a class under each part of the prior.
    """
    parts = SPREADS.size
    weights, counted = np.empty(parts), np.empty(parts)
    for c in range(begins.size - 1):
        first, size = begins[c], begins[c + 1] - begins[c]
        far = 0
        for i in range(size):
            z = ratios[first + i]
            if abs(z) >= _FAR:
                far += 1
                continue
            for p in range(parts):
                variance = 1.0 + SPREADS[p] * SPREADS[p]
                densities[i, p] = np.exp(-0.5 * z * z / variance) / np.sqrt(variance)
        weights[:] = 1.0 / parts
        for _ in range(_SWEEPS):
            counted[:] = _FIRST / parts
            counted[parts - 1] += far
            for i in range(size):
                if abs(ratios[first + i]) < _FAR:
                    every = 0.0
                    for p in range(parts):
                        every += weights[p] * densities[i, p]
                    for p in range(parts):
                        counted[p] += weights[p] * densities[i, p] / every
            weights[:] = counted / (size + _FIRST)
        for i in range(size):
            z = ratios[first + i]
            if abs(z) >= _FAR:
                out[first + i] = z
                continue
            every, kept = 0.0, 0.0
            for p in range(parts):
                variance = SPREADS[p] * SPREADS[p]
                every += weights[p] * densities[i, p]
                kept += weights[p] * densities[i, p] * variance / (1.0 + variance)
            out[first + i] = z * kept / every
