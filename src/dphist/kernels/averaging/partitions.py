"""The average of noisy counts over all dyadic partitions of a line or a grid: over trees of `dyadic`, which
differ by a shift, and on grids of up to ``MOST_IN_RECTANGLES`` cells also over sets of trees whose blocks are
`rectangles`.

Each tree, or set, counts by its evidence, tempered. Where a grid's axes mean something, many edges run along
one of them, and rectangles say so in a few blocks; squares have less error where edges lie aslant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dphist.domain.groups import Floats
from dphist.kernels.averaging import MOST_IN_RECTANGLES
from dphist.kernels.averaging.dyadic import (
    FEW,
    KEPT,
    MANY,
    MOVED,
    MOVED_STEPS,
    SCALES,
    SHARPNESS,
    Known,
    Tree,
    first_odds,
    shapes_of,
    sizes_of,
    tables_for,
)
from dphist.kernels.averaging.rectangles import Rectangles

MOST_SETS = 4  # more gain half a percent, and take as long as all else
MANY_BLOCKS = 1 << 17  # cells times sets, times the levels of the shorter side: of more there are fewer sets


def dyadic_average(
    noisy: Floats,
    scale: float,
    *,
    shape: tuple[int, int] | None = None,
    prior: Floats | None = None,
    step: float = 1.0,
    shifts: int = 8,
) -> tuple[Floats, Floats]:
    """Return every bin's average over all dyadic partitions, never negative, and its posterior deviation.

    Args:
        noisy: counts with independent Laplace noise; rows of them are averaged each by itself.
        scale: of that noise.
        shape: rows and columns of a grid whose cells are given row by row; None for a line.
        prior: counts of the same bins that are believed to have their shape, at least here and there.
        step: of the lattice on which the counts lie; counts that move by a quarter of it or less stay.
        shifts: the most trees, and the most sets of them.
    """
    counts = np.ascontiguousarray(np.atleast_2d(noisy), dtype=np.float64)
    lines, n = counts.shape
    grid = None if shape is None or 1 in shape else shape
    few = max(KEPT // n, 1)
    if grid is not None and n <= MOST_IN_RECTANGLES and lines > few:  # all at once take tens of megabytes
        parts = [
            dyadic_average(counts[at : at + few], scale, shape=shape, prior=prior, step=step, shifts=shifts)
            for at in range(0, lines, few)
        ]
        means, doubt = (np.concatenate(each) for each in zip(*parts, strict=True))
        return means.reshape(noisy.shape), doubt.reshape(noisy.shape)
    tables = tables_for(sum(r < min(MOVED, 1 + MOVED_STEPS * scale / step) for r in SCALES))
    sizes = None if grid is None else sizes_of(counts / scale)
    known = Known(counts / scale, shapes_of(prior, n), grid, tables, n / (n + FEW), sizes)
    odds = first_odds(len(known.shapes), known.trust, by_size=grid is not None)
    first = np.log(np.stack([odds] * lines))
    weight, best, sharp = np.zeros((lines, 1)), [0.0] * lines, min(1.0, SHARPNESS / n)
    for kind, shift in _kinds(n, grid, shifts):
        found = kind(known, shift)
        if shift == 0:
            log_odds = found.learnt(first)
        evidence, change, changes = found.averaged(log_odds)
        one = not weight.any()
        best = evidence if one else best
        gained = ((a - b) * sharp for a, b in zip(evidence, best, strict=True))
        part = np.array([[math.exp(min(max(gain, -60.0), 60.0))] for gain in gained])
        del found
        change *= part
        changes *= part
        if one:
            moved, square = change, changes
        else:
            moved += change
            square += changes
        weight += part
    del known, sizes, change, changes
    moved /= weight
    square /= weight
    own = np.maximum(counts, 0.0)
    near = np.abs(scale * moved) <= step / 4
    means = np.where(near, own, np.maximum(own + scale * moved, 0.0))
    doubt = scale * np.sqrt(np.maximum(square - moved * moved, 0.0))
    return means.reshape(noisy.shape), doubt.reshape(noisy.shape)


def _kinds(
    n: int, grid: tuple[int, int] | None, shifts: int
) -> Iterator[tuple[type[Tree] | type[Rectangles], int]]:
    """Yield the trees, and the sets of them, by the number of their shift."""
    for shift in range(max(1, min(shifts, MANY // n)) if n > 1 else 1):
        yield Tree, shift
    if grid is not None and n <= MOST_IN_RECTANGLES:
        for shift in range(min(shifts, MOST_SETS, MANY_BLOCKS // (n * min(grid).bit_length()))):
            yield Rectangles, shift
