"""The Hilbert curve through the cells of a grid, and the runs of it that lie in rectangles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels import kernel, subkernel

_ROOM = 1 << 22  # ends of runs that are listed at once


def along_curve(rows: int, columns: int) -> Ints:
    """Return the cells of a grid, numbered row by row, along the Hilbert curve of the square around it."""
    bits = max(rows - 1, columns - 1, 1).bit_length()
    place = np.empty(rows * columns, dtype=np.int64)
    _places(rows, columns, bits, place)
    if place.size < 1 << 2 * bits:
        return np.argsort(place, kind="stable")
    path = np.empty_like(place)
    path[place] = np.arange(place.size)  # every place of the square is taken
    return path


@kernel
def _places(rows: int, columns: int, bits: int, out: Ints) -> None:
    """Write where on the curve every cell lies."""
    for i in range(rows):
        for j in range(columns):
            x, y, place = i, j, 0
            for bit in range(bits - 1, -1, -1):
                side = 1 << bit
                right, up = (x & side) > 0, (y & side) > 0
                place = (place << 2) | ((3 if right else 0) ^ (1 if up else 0))
                # Turn each quadrant so that its part of the curve begins and ends where the whole one does.
                x, y = x & (side - 1), y & (side - 1)
                if right and not up:
                    x, y = side - 1 - x, side - 1 - y
                if not up:
                    x, y = y, x
            out[i * columns + j] = place


def runs_in(boxes: Ints, columns: int, path: Ints, place: Ints, jumps: Ints) -> tuple[Ints, Ints]:
    """Return the runs of a curve inside rectangles, box by box: O(their borders), not O(their cells).

    A curve enters and leaves a rectangle at cells of its border, unless it jumps there. Both places are
    numbered on from box to box, so that one sort of each puts many runs in order.

    Args:
        boxes: the rows ``x0``, ``x1``, ``y0`` and ``y1`` of the rectangles [x0, x1) x [y0, y1).
        columns: of the grid.
        path: the cell at each place of the curve.
        place: of each cell on the curve.
        jumps: places whose cell is not adjacent to the previous one.
    """
    border = 2 * (boxes[1] - boxes[0] + boxes[3] - boxes[2]) + 2 * jumps.size  # at most so many ends
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in _parts(border):
        room = np.empty((2, int(border[part].sum())), np.int64)
        found = _ends(boxes[:, part], columns, path, place, jumps, room)
        begins.append(np.sort(room[0, :found]) % path.size)
        ends.append(np.sort(room[1, :found]) % path.size + 1)
    return np.concatenate(begins), np.concatenate(ends)


def _parts(sizes: Ints) -> list[slice]:
    """Return parts of a row of sizes that add up to little more than `_ROOM` each."""
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // _ROOM)) + 1
    return [slice(a, b) for a, b in pairwise([0, *cuts.tolist(), sizes.size])]


@kernel
def _ends(boxes: Ints, columns: int, path: Ints, place: Ints, jumps: Ints, out: Ints) -> int:
    """Write the places that begin a run, and those that end one, and return how many there are of each.

    A place in the i-th box is written as i times the cells of the grid and the place.
    """
    begun, ended, n = 0, 0, path.size
    for i in range(boxes.shape[1]):
        x0, x1, y0, y1 = boxes[0, i], boxes[1, i], boxes[2, i], boxes[3, i]
        for x in range(x0, x1):
            rim = x == x0 or x == x1 - 1
            y = y0
            while y < y1:
                at = place[x * columns + y]
                if not _within(at - 1, x0, x1, y0, y1, columns, path):
                    out[0, begun] = i * n + at
                    begun += 1
                if not _within(at + 1, x0, x1, y0, y1, columns, path):
                    out[1, ended] = i * n + at
                    ended += 1
                y += 1 if rim or y == y1 - 1 else y1 - 1 - y0  # inside, the first and the last column alone
        # A jump may lead into a rectangle's inside, or out of there.
        for j in jumps:
            here = _within(j, x0, x1, y0, y1, columns, path)
            before = _within(j - 1, x0, x1, y0, y1, columns, path)
            if not before and _inside(j, x0, x1, y0, y1, columns, path):
                out[0, begun] = i * n + j
                begun += 1
            if not here and _inside(j - 1, x0, x1, y0, y1, columns, path):
                out[1, ended] = i * n + j - 1
                ended += 1
    return begun


@subkernel
def _within(at: int, x0: int, x1: int, y0: int, y1: int, columns: int, path: Ints) -> bool:
    """Return whether the cell at a place lies in a rectangle; there is none beyond the curve's ends."""
    if at < 0 or at >= path.size:
        return False
    x = path[at] // columns
    y = path[at] - x * columns
    return bool(x0 <= x < x1 and y0 <= y < y1)


@subkernel
def _inside(at: int, x0: int, x1: int, y0: int, y1: int, columns: int, path: Ints) -> bool:
    """Return whether the cell at a place lies in a rectangle, and not on its border."""
    return _within(at, x0 + 1, x1 - 1, y0 + 1, y1 - 1, columns, path)
