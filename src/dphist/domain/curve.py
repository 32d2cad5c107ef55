"""Morton's curve through the cells of a grid: neighbours on it are neighbours in the grid. Public arithmetic.

The grid is taken as a part of a square whose side is a power of two. A cell's place has the binary digits of
its row and its column in turn, so that every run of 4^h places that begins at a multiple of 4^h is a square.
"""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Groups, Ints

LONGEST_SIDE = 1 << 26  # 4^26 places are whole numbers that doubles have
_STEPS = ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F))
_LAST = ((2, 0x3333333333333333), (1, 0x5555555555555555))


def side(shape: tuple[int, ...]) -> int:
    """Return the side of the square: the least power of two that is not below either axis."""
    return 1 << (max(shape) - 1).bit_length()


def places(rows: Ints, columns: Ints) -> Ints:
    """Return the places of cells on the curve."""
    return (_apart(rows) << 1) | _apart(columns)


def cells(at: Ints) -> tuple[Ints, Ints]:
    """Return the rows and the columns of places on the curve."""
    return _together(at >> 1), _together(at)


def squares(groups: Groups, shape: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the first rows and those after the last, and the columns, of groups that are squares."""
    rows, columns = cells(groups.starts[:-1])
    length = np.sqrt(groups.sizes.astype(np.float64)).round().astype(np.int64)  # a power of two: exact
    ends = np.minimum(rows + length, shape[0]), np.minimum(columns + length, shape[1])
    return np.minimum(rows, shape[0]), ends[0], np.minimum(columns, shape[1]), ends[1]


def _apart(x: Ints) -> Ints:
    """Return numbers with a zero before each of their binary digits."""
    x = x.astype(np.int64)
    for step, mask in _STEPS + _LAST:
        x = (x | (x << step)) & mask
    return x


def _together(x: Ints) -> Ints:
    """Return numbers of every other binary digit."""
    x = x & _LAST[-1][1]
    for (step, _), (_, mask) in zip(
        (_STEPS + _LAST)[::-1], [*_LAST[:1], *_STEPS[::-1], (0, 0xFFFFFFFF)], strict=True
    ):
        x = (x | (x >> step)) & mask
    return x
