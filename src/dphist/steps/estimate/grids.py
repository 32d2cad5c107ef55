"""Trees of boxes, and grids that are finer where there are more records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Domain
from dphist.domain.groups import Groups, Ints, frozen
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.estimate.trees import fitted_tree, tree_totals
from dphist.steps.partition.grids import (
    boxes_of_side,
    boxes_per_side,
    check_grid,
    groups_of,
    rows_and_columns,
)
from dphist.steps.protocols import Estimated, Rough, Step, variance
from dphist.uncertainty.models import Unknown

if TYPE_CHECKING:
    from dphist.kernels.trees.tree import Tree

_TOTAL = Fraction(1, 20)  # of a share, for the noisy total that sets a grid's size
_REFINED = "the finer grid was chosen by noisy counts that enter the values, which hides part of the error"
Lines = NDArray[np.int32]  # numbers of rows or columns
Boxes = tuple[Lines, Lines, Lines, Lines]  # first row, last row + 1, first column, last column + 1
Cut = Callable[
    [NDArray[np.int8], int, Boxes], Lines
]  # each box's level, the axis, the boxes -> where each is cut


@dataclass(frozen=True)
class AdaptiveGrid(Step):
    """A coarse grid, and in each of its boxes one as fine as the noisy count allows (Qardaji et al. 2013).

    The total takes a twentieth of the share, the two grids half of the rest each. Groups are not looked at.
    """

    spends: ClassVar[bool] = True
    constant: float = 10.0
    least: int = 10

    def __post_init__(self) -> None:
        check_grid(self.constant, self.least)

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        shape, half = rows_and_columns(curator), share * (1 - _TOTAL) / 2
        total = curator.measure(Groups.whole(curator.domain.n), share=share * _TOTAL).values[0]
        side = max(-(-int(boxes_per_side(curator, total, 2 * half, self.constant)) // 4), self.least)
        rows, columns = (boxes_of_side(cells, side) for cells in shape)
        wide = int(columns[-1]) + 1
        coarse = groups_of(rows[:, None] * wide + columns)
        first = curator.measure(coarse, share=half)
        sides = boxes_per_side(curator, first.values, half, self.constant / 2).reshape(-1, wide)
        (down, row), (across, column) = _inner(rows, sides), _inner(columns, sides.T)
        counts = (down * across.T).ravel()  # fine boxes in each coarse one
        starts = np.cumsum(counts) - counts
        labels = starts.reshape(-1, wide)[rows][:, columns] + column[:, rows].T
        labels += row[:, columns] * across.T[rows][:, columns]
        fine = groups_of(labels)
        second = curator.measure(fine, share=half)
        # As in estimate.LeastSquares: a coarse total's disagreement is spread evenly over its fine boxes.
        gap = first.values - np.add.reduceat(second.values, starts)
        step = gap / (counts + variance(first.scale) / variance(second.scale))
        return Estimated(fine.means(second.values + np.repeat(step, counts)), Unknown(_REFINED))


@dataclass(frozen=True)
class QuadTree(Step):
    """Noisy totals of all quarters of quarters, more budget lower down, made to agree (Cormode et al. 2012).

    Groups are not looked at: the tree goes down to single cells.

    Args:
        ratio: how many times a level's budget the next below gets.
    """

    spends: ClassVar[bool] = True
    ratio: float = 2 ** (1 / 3)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise UsageError(f"the ratio of two levels' budgets must be positive, not {self.ratio!r}.")

    def check(self, domain: Domain, workload: Workload) -> None:
        _check_axes(domain, "quadtree")

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        tree, order = _grow(rows_and_columns(curator), lambda levels, axis, boxes: _middle(axis, boxes))
        return _fitted(curator, tree, order, self.ratio, share)


@dataclass(frozen=True)
class HybridTree(Step):
    """A quadtree whose upper boxes are cut at private medians (kd-hybrid, Cormode et al. 2012).

    Args:
        levels: how many levels of quarters are cut at medians; each needs four times as many choices.
        choosing: the part of the share that the choices take together.
        ratio: how many times a level's budget the next below gets.
    """

    spends: ClassVar[bool] = True
    levels: int = 2
    choosing: Fraction = Fraction(3, 20)
    ratio: float = 2 ** (1 / 3)

    def __post_init__(self) -> None:
        if not (0 <= self.levels <= 4 and 0 < self.choosing < 1 and 0 < self.ratio < math.inf):
            raise UsageError("HybridTree takes 0 to 4 levels, part of the share, and a positive ratio.")

    def check(self, domain: Domain, workload: Workload) -> None:
        _check_axes(domain, "hybridtree")

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Choose the upper cuts, then measure with all that is left."""
        from dphist.privacy.queries import Medians

        shape, left = rows_and_columns(curator), share
        each = share * self.choosing / (4**self.levels - 1) if self.levels else share

        def cut(levels: NDArray[np.int8], axis: int, boxes: Boxes) -> Lines:
            nonlocal left
            at = _middle(axis, boxes)
            for i in np.flatnonzero(levels < self.levels):
                r0, r1, c0, c1 = (int(side[i]) for side in boxes)
                chosen = curator.choose(Medians(shape, (r0, r1, c0, c1), axis), share=each)
                at[i] = boxes[2 * axis][i] + 1 + chosen
                left -= each
            return at

        tree, order = _grow(shape, cut)
        return _fitted(curator, tree, order, self.ratio, left)


def _check_axes(domain: Domain, method: str) -> None:
    if len(domain.axes) != 2:
        raise UsageError(
            f"{method} cuts a grid into quarters, and this domain is a line: use geometric-tree, the same "
            "with halves, or hb."
        )


def _fitted(curator: Curator, tree: Tree, order: Ints, ratio: float, share: Fraction) -> Estimated:
    """Measure a tree over the cells in some order."""
    from dphist.kernels.trees import tree as trees

    groups = Groups(Groups.singletons(order.size).starts, frozen(order))
    inner = (
        None if trees.is_plain(tree) else tree.left > 0
    )  # uneven boxes: it does not follow from their number
    return fitted_tree(  # nobody keeps the weights, nor the totals
        groups,
        tree,
        tree_totals(curator, groups, tree, trees.level_weights(tree, ratio=ratio), share=share),
        pruned=False,
        inner=inner,
    )


def _grow(shape: tuple[int, int], cut: Cut) -> tuple[Tree, Ints]:
    """Return the tree of boxes, and the cells in its order: rows are parted first, then columns.

    It is binary, as `kernels.trees` wants it: between a box and its quarters lie two halves that are not
    measured. Level by level, so that parents come before children and two children are neighbours.
    """
    from dphist.kernels.trees.tree import fixed_tree

    rows, columns = shape
    n = rows * columns
    lo, hi, left = (np.zeros(2 * n - 1, np.int32) for _ in range(3))
    measured, depth = np.ones(lo.size, bool), np.zeros(lo.size, np.int8)
    order, leaf = np.empty(n, np.int64), np.empty(n, np.int32)
    hi[0] = n
    box = np.array([[0], [rows], [0], [columns]], np.int32)
    first, made = 0, 1  # the first node of this level, and the first of the next
    while first < made:
        tall, broad = box[1] - box[0] > 1, box[3] - box[2] > 1
        single = np.flatnonzero(~(tall | broad))
        at_leaf = lo[first:made][single]
        order[at_leaf] = box[0, single] * columns + box[2, single]
        leaf[at_leaf] = single + first
        del at_leaf, single
        by_columns = np.where(measured[first:made], ~tall, True)  # measured boxes by rows, halves by columns
        inner = np.flatnonzero(tall | broad)
        side, above = by_columns[inner], first + inner
        at = np.empty(inner.size, np.int32)
        for axis in (0, 1):
            here = side == axis
            r0, r1, c0, c1 = box[:, inner[here]]
            at[here] = cut(depth[above[here]], axis, (r0, r1, c0, c1))
        box = np.repeat(box[:, inner], 2, axis=1)  # each box twice, then cut: its low and its high part
        for axis in (0, 1):
            here = np.flatnonzero(side == axis)
            box[2 * axis + 1, 2 * here] = box[2 * axis, 2 * here + 1] = at[here]
        low, high = slice(made, made + 2 * inner.size, 2), slice(made + 1, made + 2 * inner.size, 2)
        left[above] = np.arange(low.start, low.stop, 2)
        lo[low] = lo[above]
        hi[high] = hi[above]
        hi[low] = lo[high] = lo[above] + (box[1, ::2] - box[0, ::2]) * (box[3, ::2] - box[2, ::2])
        whole = side | ~broad[inner]  # others are still to be parted by columns
        for part in (low, high):
            measured[part], depth[part] = whole, depth[above] + whole
        first, made = made, low.stop
    height = depth.max() - depth
    return fixed_tree(lo, hi, left, measured, height, leaf, 4 if min(shape) > 1 else 2), order


def _middle(axis: int, boxes: Boxes) -> Lines:
    return (boxes[2 * axis] + boxes[2 * axis + 1] + 1) // 2


def _inner(lines: Ints, sides: Ints) -> tuple[Ints, Ints]:
    """Return into how many each coarse box's side is parted, and in which of them each of its lines lies."""
    sizes = np.bincount(lines)
    boxes = np.minimum(sides, sizes[:, None])
    offset = np.arange(lines.size) - (np.cumsum(sizes) - sizes)[lines]
    return boxes, offset[:, None] * boxes[lines] // sizes[lines][:, None]
