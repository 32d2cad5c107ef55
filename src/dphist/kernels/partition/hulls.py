"""Where to cut a long row in two so that its squared error falls most, without looking at every place.

**Why hulls.** Let P(i) be the sum of the first i numbers, and a row run from a to b with mean t. Cut at i,
its squared error falls by D^2 m / ((i - a)(b - i)), where m = b - a and D = P(i) - P(a) - (i - a) t is how
far the point (i, P(i)) lies from the chord of the row. The places where this is below some constant are those
with |D| < c sqrt((i - a)(b - i)), between an ellipse's halves: a convex set. A function of which all such
sets are convex is greatest at a corner of a convex hull. So of a block of places, those at the corners of its
upper and lower hull are enough, whatever the row that it lies in: hulls of blocks of 64, 128, ... places are
found once, O(n) for each size, and a row is cut by a few of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Ints
from dphist.kernels import kernel, subkernel
from dphist.kernels.partition.deviations import Whole

Places = NDArray[np.int32]
BLOCK = 64  # places of the smallest blocks
SHORT = 256  # numbers of a row, up to which all places are looked at
_ROOM = 1 << 62


class Hulls(NamedTuple):
    """The corners of blocks: of each its upper hull, then its lower one, both from the left.

    Args:
        corners: of all blocks of the smallest size, then of the next, ...
        begin: where each hull begins there, and, last, how many corners there are.
        first: the number of the first block of each size, and, last, how many blocks there are.
    """

    corners: Places
    begin: Ints
    first: Ints


def fits(x: Ints) -> bool:
    """Return whether all products below stay inside int64."""
    n, top = x.size, max(abs(int(x.min())), abs(int(x.max())), 1)
    return n < 1 << 31 and 4 * n * top * max(n, top) < _ROOM


def make_hulls(sums: Ints, *, block: int) -> Hulls:
    """Return the hulls of the points (i, sums[i]) in blocks of neighbours: O(n) for each size."""
    many = sums.size // block
    corners, begin = np.empty(2 * many * block, np.int32), np.zeros(2 * many + 1, np.int64)
    _base_hulls(sums, block, corners, begin)
    found, begins, first = [corners[: begin[-1]].copy()], [begin], [0, many]
    while True:
        many //= 2
        below, ends = found[-1], begins[-1]
        corners, begin = np.empty(below.size, np.int32), np.zeros(2 * many + 1, np.int64)
        _joined_hulls(sums, below, ends, corners, begin)  # of no block too, so that a rehearsal compiles it
        if many == 0:
            break
        found.append(corners[: begin[-1]].copy())
        begins.append(begin)
        first.append(first[-1] + many)
    before = np.concatenate(([0], np.cumsum([each.size for each in found])))
    starts = [each[:-1] + shift for each, shift in zip(begins, before[:-1], strict=True)]
    return Hulls(np.concatenate(found), np.concatenate([*starts, before[-1:]]), np.array(first))


@subkernel
def _push(sums: Ints, corners: Places, first: Whole, top: Whole, place: Whole, side: int) -> Whole:
    """Add a place to the hull that begins at ``first``, and return its end; side 1 is above, -1 below."""
    while top - first >= 2:
        a, b = np.int64(corners[top - 2]), np.int64(corners[top - 1])
        turn = (sums[b] - sums[a]) * (place - b) - (sums[place] - sums[b]) * (b - a)
        if side * turn > 0:
            break
        top -= 1
    corners[top] = place
    return top + 1


@kernel
def _base_hulls(sums: Ints, block: int, corners: Places, begin: Ints) -> None:
    top: Whole = np.int64(0)  # a literal would have `_push` compiled once more
    for hull in range(begin.size - 1):
        begin[hull] = top
        start = top
        for place in range(hull // 2 * block, (hull // 2 + 1) * block):
            top = _push(sums, corners, start, top, place, 1 - 2 * (hull % 2))
    begin[begin.size - 1] = top


@kernel
def _joined_hulls(sums: Ints, below: Places, ends: Ints, corners: Places, begin: Ints) -> None:
    """Write the hulls of two blocks each, by the corners of these."""
    top: Whole = np.int64(0)
    for hull in range(begin.size - 1):
        begin[hull] = top
        start = top
        for half in range(2):
            part = 4 * (hull // 2) + 2 * half + hull % 2
            for i in range(ends[part], ends[part + 1]):
                top = _push(sums, corners, start, top, np.int64(below[i]), 1 - 2 * (hull % 2))
    begin[begin.size - 1] = top


@subkernel
def best_cut(
    sums: Ints,
    corners: Places,
    begin: Ints,
    first: Ints,
    block: int,
    short: int,
    a: Whole,
    b: Whole,
    whole: int,
    part: float,
) -> Whole:
    """Return the first place where a cut of the row from a to b lowers its squared error most.

    Args:
        block: the smallest size of ``corners``, ``begin`` and ``first``, those of `Hulls`.
        short: rows up to this length are looked at place by place.
        whole, part: the mean of the row, in two parts, so that differences are exact.
    """
    most, best, place = -1.0, a + 1, a + 1
    while place < b:
        size = 1
        node: Whole = -1
        if b - a > short and place % block == 0 and place + block <= b:
            size, level, number = block, 0, place // block
            if number < first[1]:
                node = number
                while (
                    level + 2 < first.size
                    and number % 2 == 0
                    and place + 2 * size <= b
                    and number // 2 < first[level + 2] - first[level + 1]
                ):
                    size, level, number = 2 * size, level + 1, number // 2
                    node = first[level] + number
            else:
                size = 1
        lo, hi = (begin[2 * node], begin[2 * node + 2]) if node >= 0 else (0, 1)
        for i in range(lo, hi):
            at = np.int64(corners[i]) if node >= 0 else place
            length = np.float64(at - a)
            off = np.float64(sums[at] - sums[a] - whole * (at - a)) - length * part
            gain = off * off / (length * (np.float64(b - a) - length))
            if gain > most or (gain == most and at < best):
                most = gain
                best = at
        place += size
    return best
