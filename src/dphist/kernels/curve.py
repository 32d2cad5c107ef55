"""The Hilbert curve through the cells of a grid, and the runs of it that lie in rectangles."""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels import kernel


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
    numbered on from box to box, so that one sort of each puts all runs in order.

    Args:
        boxes: the rows ``x0``, ``x1``, ``y0`` and ``y1`` of the rectangles [x0, x1) x [y0, y1).
        columns: of the grid.
        path: the cell at each place of the curve.
        place: of each cell on the curve.
        jumps: places whose cell is not adjacent to the previous one.
    """
    none = np.empty(0, dtype=np.int64)
    begins = np.empty(_ends(boxes, columns, path, place, jumps, -1, none), dtype=np.int64)
    ends = np.empty(begins.size, dtype=np.int64)
    _ends(boxes, columns, path, place, jumps, -1, begins)
    _ends(boxes, columns, path, place, jumps, 1, ends)
    begins.sort()
    ends.sort()
    return begins % path.size, ends % path.size + 1


@kernel
def _ends(boxes: Ints, columns: int, path: Ints, place: Ints, jumps: Ints, step: int, out: Ints) -> int:
    """Write the places that begin a run (step -1) or end it (1), and return how many; no room, none written.

    A place in the i-th box is written as i times the cells of the grid and the place.
    """
    found, n = 0, path.size
    for i in range(boxes.shape[1]):
        x0, x1, y0, y1 = boxes[0, i], boxes[1, i], boxes[2, i], boxes[3, i]
        for x in range(x0, x1):
            rim = x == x0 or x == x1 - 1
            y = y0
            while y < y1:
                at = place[x * columns + y]
                if not _within(at + step, boxes[:, i], columns, path):
                    if out.size:
                        out[found] = i * n + at
                    found += 1
                y += 1 if rim or y == y1 - 1 else y1 - 1 - y0  # inside, the first and the last column alone
        for j in jumps:
            at = j if step < 0 else j - 1
            x, y = path[at] // columns, path[at] % columns
            if x0 < x < x1 - 1 and y0 < y < y1 - 1 and not _within(at + step, boxes[:, i], columns, path):
                if out.size:
                    out[found] = i * n + at
                found += 1
    return found


@kernel
def _within(at: int, box: Ints, columns: int, path: Ints) -> bool:
    """Return whether the cell at a place lies in a rectangle; there is none beyond the curve's ends."""
    if at < 0 or at >= path.size:
        return False
    x, y = path[at] // columns, path[at] % columns
    return bool(box[0] <= x < box[1] and box[2] <= y < box[3])
