"""All blocks of a grid that halving down or across leads to, and sums over all ways to halve them.

A block of size (a, b) has 2^a rows and 2^b columns of a larger grid in which the cells lie, and begins where
these numbers divide its place there: a dyadic rectangle. It can be halved either way, down or across, if both
halves hold cells; a block whose half holds none is the other half. So a grid of n cells has some 4n
blocks, up to 5.3n, and every partition by such halves is a tree over some of them. One
block has many parents: sums over all these trees go through the sizes, each block once.

Blocks are numbered size by size, from `Lattice.begin` on; those of one size column by column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints, frozen
from dphist.kernels import kernel, subkernel
from dphist.kernels.averaging.dyadic import (
    HEIGHT,
    KEPT,
    ROUNDS,
    SLIGHT,
    SMALLEST,
    SPLIT,
    WAYS,
    Explained,
    Known,
    Places,
    add_block,
    back,
    laid_out,
    next_odds,
    shifted,
)


class Lattice(NamedTuple):
    """The blocks of a grid that lies somewhere in a larger one.

    Args:
        rows: for each a, the first block of 2^a rows that holds cells, and how many there are; a row each.
        columns: the same of columns.
        begin: the number of the first block of each size (a, b); and how many blocks there are.
        many: how many blocks each size has.
    """

    rows: Ints
    columns: Ints
    begin: Ints
    blocks: int
    many: Ints


def lattice(shape: tuple[int, int], down: int, right: int) -> Lattice:
    """Return the blocks of a grid whose first cell lies at a place of the larger one."""
    rows, columns = (_runs(size, first) for size, first in zip(shape, (down, right), strict=True))
    count = np.outer(rows[:, 1], columns[:, 1])
    begin = np.cumsum(count) - count.ravel()
    return Lattice(
        frozen(rows), frozen(columns), frozen(begin.reshape(count.shape)), int(count.sum()), frozen(count)
    )


def _runs(size: int, first: int) -> Ints:
    """Return for each power of 2 the first run of so many places that holds any of a side, and how many."""
    last = first + size - 1
    powers = np.arange(int(first ^ last).bit_length() + 1)
    return np.stack((first >> powers, (last >> powers) - (first >> powers) + 1), axis=1)


def places(shape: tuple[int, int], down: int, right: int, wide: int) -> tuple[Ints, Ints]:
    """Return the cells in an order in which all blocks of 2^wide columns are runs of them, and keys.

    Shifted by a + wide, the keys number the blocks of size (a, wide); shifts below ``wide`` would number
    parts of one row, of which another order has the blocks.
    """
    r, c = (first + np.arange(size) for size, first in zip(shape, (down, right), strict=True))
    height = int(r[0] ^ r[-1]).bit_length()
    low, high = c & ((1 << wide) - 1), (c >> wide) - (c[0] >> wide)
    inside = r & ((1 << height) - 1)
    keys = ((high << (height + wide)) | low) + (inside << wide)[:, None]
    order = np.argsort(keys, axis=None, kind="stable")
    return order, keys.ravel()[order]


@subkernel
def _halves(
    rows: Ints, columns: Ints, begin: Ints, a: int, b: int, row: int, column: int, down: bool
) -> tuple[int, int, int]:
    """Return the numbers of a block's halves, one above the other or side by side, and how many hold cells.

    If only one does, both numbers are its own; of blocks of one row or one column none does.
    """
    if down:
        if a == 0:
            return 0, 0, 0
        first = 2 * (rows[a, 0] + row) - rows[a - 1, 0]
        one, two = max(first, 0), min(first + 1, rows[a - 1, 1] - 1)
        before = begin[a - 1, b] + column * rows[a - 1, 1]
        return before + one, before + two, two - one + 1
    if b == 0:
        return 0, 0, 0
    first = 2 * (columns[b, 0] + column) - columns[b - 1, 0]
    one, two = max(first, 0), min(first + 1, columns[b - 1, 1] - 1)
    return begin[a, b - 1] + one * rows[a, 1] + row, begin[a, b - 1] + two * rows[a, 1] + row, two - one + 1


@kernel
def rise(
    rows: Ints,
    columns: Ints,
    begin: Ints,
    evidence: Floats,
    log_odds: Floats,
    ways: Floats,
    below: Floats,
    post: Floats,
    down: Floats,
) -> float:
    """Return the log evidence of all partitions; write how likely each block is halved, or taken in each way.

    Args:
        evidence: of each way, a row each, and block. That of `SPLIT` is not read.
        log_odds: of each way, by a + b.
        ways: room for one number each.
        below: the evidence of all partitions of each block; that of single cells is there already.
        post: a row for each way; those of single cells are left at 0.
        down: how likely a block that is halved is halved down.
    """
    for height in range(1, rows.shape[0] + columns.shape[0] - 1):
        for a in range(max(height - columns.shape[0] + 1, 0), min(height, rows.shape[0] - 1) + 1):
            b, block = height - a, begin[a, height - a]
            for column in range(columns[b, 1]):
                for row in range(rows[a, 1]):
                    one, two, above = _halves(rows, columns, begin, a, b, row, column, True)
                    left, right, beside = _halves(rows, columns, begin, a, b, row, column, False)
                    for way in range(ways.size):
                        post[way, block] = 0.0
                    if above == 1 or beside == 1:  # the block is its half
                        down[block] = 1.0 if above == 1 else 0.0
                        post[SPLIT, block] = 1.0
                        below[block] = below[one] if above == 1 else below[left]
                        block += 1
                        continue
                    parts = -math.inf, -math.inf
                    if above == 2:
                        parts = below[one] + below[two], parts[1]
                    if beside == 2:
                        parts = parts[0], below[left] + below[right]
                    most = max(parts[0], parts[1])
                    first, second = math.exp(parts[0] - most), math.exp(parts[1] - most)
                    down[block] = first / (first + second)
                    ways[SPLIT] = log_odds[height, SPLIT] + most + math.log(first + second)
                    if above == 2 and beside == 2:
                        ways[SPLIT] -= math.log(2.0)
                    most = ways[SPLIT]
                    for way in range(1, ways.size):
                        ways[way] = log_odds[height, way] + evidence[way, block]
                        most = max(most, ways[way])
                    total = 0.0
                    for way in range(ways.size):
                        ways[way] = math.exp(ways[way] - most)
                        total += ways[way]
                    for way in range(ways.size):
                        post[way, block] = ways[way] / total
                    below[block] = most + math.log(total)
                    block += 1
    return float(below[below.size - 1])


@kernel
def reach(
    rows: Ints, columns: Ints, begin: Ints, post: Floats, down: Floats, reached: Floats, taken: Floats
) -> None:
    """Write how likely each block is one of a tree's, and how often each way is taken, by a + b.

    Args:
        reached: zeros at first.
        taken: zeros at first; a row for each a + b, a column for each way. Blocks that are their halves do
            not count.
    """
    reached[reached.size - 1] = 1.0
    for height in range(rows.shape[0] + columns.shape[0] - 2, 0, -1):
        for a in range(max(height - columns.shape[0] + 1, 0), min(height, rows.shape[0] - 1) + 1):
            b, block = height - a, begin[a, height - a]
            for column in range(columns[b, 1]):
                for row in range(rows[a, 1]):
                    one, two, above = _halves(rows, columns, begin, a, b, row, column, True)
                    left, right, beside = _halves(rows, columns, begin, a, b, row, column, False)
                    halved = reached[block] * post[SPLIT, block]
                    if above > 0:
                        reached[one] += halved * down[block]
                        if above == 2:
                            reached[two] += halved * down[block]
                    if beside > 0:
                        reached[left] += halved * (1.0 - down[block])
                        if beside == 2:
                            reached[right] += halved * (1.0 - down[block])
                    if above != 1 and beside != 1:
                        for way in range(post.shape[0]):
                            taken[height, way] += reached[block] * post[way, block]
                    block += 1


class Rectangles:
    """All blocks of a shifted grid that halving leads to, down or across: nodes of a few trees.

    Tree b has the blocks of 2^b columns, above blocks of one row. If there are more columns than rows, both
    change places.
    """

    def __init__(self, known: Known, shift: int) -> None:
        self.known, self.lines = known, len(known.z)
        assert known.shape is not None and known.sizes is not None, "rectangles are those of a grid"
        made = _kept_blocks if known.z.size <= KEPT else _blocks
        self.lattice, self.orders, layouts = made(known.shape, self.lines, shift)
        ways = 2 + WAYS * len(known.shapes)
        self.evidence = np.empty((self.lines, ways, self.lattice.blocks))
        self.found = list[Explained]()
        for wide, (order, layout) in enumerate(zip(self.orders, layouts, strict=True)):
            found = known.explained(order, layout, max(SMALLEST, wide))
            for tall, own in self._sizes_of(wide):
                if tall + wide > 0:
                    begin, end = found.offset[tall + wide : tall + wide + 2] - found.offset[1]
                    these = found.evidence[:, begin : end - 1].reshape(ways, self.lines, -1)
                    self.evidence[:, :, own] = these.transpose(1, 0, 2)
            self.found.append(found._replace(evidence=_NONE))
        self.cells = self.found[0].leaves.reshape(self.lines, -1)

    def _sizes_of(self, wide: int) -> Iterator[tuple[int, slice]]:
        """Yield how tall the blocks of 2^wide columns may be, and the numbers of these blocks."""
        begins, counts = self.lattice.begin[:, wide], self.lattice.many[:, wide]
        for tall, (begin, many) in enumerate(zip(begins, counts, strict=True)):
            yield tall, slice(int(begin), int(begin + many))

    def _passed(self, line: int, log_odds: Floats) -> tuple[float, Floats, Floats, Floats]:
        """Return a line's log evidence, how each block is taken, how likely it is one, and ways by height."""
        (rows, columns, begin, blocks, _), ways = self.lattice, self.evidence.shape[1]
        below, down, reached = np.zeros(blocks), np.zeros(blocks), np.zeros(blocks)
        post, taken = np.zeros((ways, blocks)), np.zeros((HEIGHT, ways))
        below[: self.cells.shape[1]] = self.cells[line]
        evidence = rise(
            rows, columns, begin, self.evidence[line], log_odds[line], np.empty(ways), below, post, down
        )
        reach(rows, columns, begin, post, down, reached, taken)
        return evidence, post, reached, taken

    def learnt(self, log_odds: Floats) -> Floats:
        """Return the logarithm of how often blocks of each size take each way."""
        for _ in range(ROUNDS):
            taken = np.array([self._passed(line, log_odds)[-1] for line in range(self.lines)])
            log_odds = np.log(next_odds(taken, self.known.trust))
        return log_odds

    def averaged(self, log_odds: Floats) -> tuple[list[float], Floats, Floats]:
        """Return each line's log evidence, and the mean and mean square by which each cell moves."""
        passed = [self._passed(line, log_odds) for line in range(self.lines)]
        post, reached = (np.stack([each[k] for each in passed], axis=-2) for k in (1, 2))
        moved, square = np.zeros((2, *self.known.z.shape))
        tables = self.known.tables
        for wide, (order, found) in enumerate(zip(self.orders, self.found, strict=True)):
            change, changes = np.zeros((2, found.z.size))
            assert found.sizes is not None
            away, squares = found.sizes[1:]
            for tall, own in self._sizes_of(wide):
                ways = np.ascontiguousarray(post[..., own]).reshape(len(post), -1)
                if tall + wide == 0:
                    ways[1] = 1.0
                _add_blocks(
                    found.z, found.shapes, found.start, found.levels, found.empty, found.scales,
                    int(found.offset[tall + wide]), np.ascontiguousarray(reached[:, own]).ravel(), ways,
                    tables.far_moved, tables.spread_moved, tables.per_step, tables.scales, away, squares,
                    change, changes,
                )  # fmt: skip
            moved += back(change.reshape(moved.shape), order)
            square += back(changes.reshape(moved.shape), order)
        return [each[0] for each in passed], moved, square


_NONE = frozen(np.empty((2, 0)))
_Tree = tuple[Ints, Places, Places]


def _blocks(shape: tuple[int, int], lines: int, shift: int) -> tuple[Lattice, list[Ints], list[_Tree]]:
    """Return the blocks of a shifted grid, and of each tree over them the cells in its order and itself."""
    down, right = shifted(shape, shift)
    turned = shape[1] > shape[0]
    given = (shape[::-1], right, down) if turned else (shape, down, right)
    found, orders, layouts = lattice(*given), list[Ints](), list[_Tree]()
    for wide in range(len(found.columns)):
        order, keys = places(*given, wide)
        orders.append(order % shape[0] * shape[1] + order // shape[0] if turned else order)
        layouts.append(laid_out(keys, lines, wide + len(found.rows) - 1))
    return found, orders, layouts


_kept_blocks = lru_cache(maxsize=32)(_blocks)  # a few sets, for each of a few numbers of lines


@kernel
def _add_blocks(
    z: Floats,
    shapes: Floats,
    start: Places,
    levels: Floats,
    empty: Floats,
    scales: NDArray[np.int8],
    first: int,
    reached: Floats,
    post: Floats,
    far_moved: Floats,
    spread_moved: Floats,
    per_step: Floats,
    widths: Floats,
    away: Floats,
    squares: Floats,
    moved: Floats,
    square: Floats,
) -> None:
    """Add blocks of one size to the moments of their bins, about each bin's noisy count or 0.

    Args:
        start: where each node of a tree begins; the next entry is where it ends.
        first: the first node of this size.
        reached: how likely each is one of a partition's blocks, or holds some.
        post: of these, how likely it is taken in each way.
        away, squares: the moments of drawn bins.
    """
    for block in range(reached.size):
        node = first + block
        lo, hi, at = start[node], start[node + 1], levels[0, node]
        m, part = hi - lo, reached[block] * post[1, block]
        none = part * empty[node]
        doubt = (1 + 1.0 / m) / m
        for k in range(lo, hi):
            own = max(z[k], 0.0)
            gap = at - own
            moved[k] += part * gap - none * at
            square[k] += (part - none) * (gap * gap + doubt) + none * own * own
        if m > 1:
            alone = reached[block] * post[post.shape[0] - 1, block]
            for k in range(lo, hi):
                moved[k] += alone * away[k]
                square[k] += alone * squares[k]
        for way in range(2, 1 + WAYS * shapes.shape[0]):
            part = reached[block] * post[way, block]
            if part > SLIGHT:
                shape = (way - 1) // WAYS
                add_block(
                    z, shapes[shape], lo, hi, levels[shape, node], (way - 1) % WAYS, scales[shape, node],
                    part, far_moved, spread_moved, per_step, widths, moved, square,
                )  # fmt: skip
