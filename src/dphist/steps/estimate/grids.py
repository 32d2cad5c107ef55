"""Trees of boxes, and grids that are finer where there are more records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.estimate.trees import measured_tree
from dphist.steps.partition.grids import (
    boxes_of_side,
    boxes_per_side,
    check_grid,
    groups_of,
    rows_and_columns,
)
from dphist.steps.protocols import Estimated, Rough, Step, variance
from dphist.uncertainty.models import TreeTotals, Unknown

if TYPE_CHECKING:
    from dphist.kernels.trees.tree import Tree

_TOTAL = Fraction(1, 20)  # of a share, for the noisy total that sets a grid's size
_REFINED = "the finer grid was chosen by noisy counts that enter the values, which hides part of the error"
Boxes = tuple[Ints, Ints, Ints, Ints]  # first row, last row + 1, first column, last column + 1
Cut = Callable[[Ints, int, Boxes], Ints]  # each box's level, the axis, the boxes -> where each is cut


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

        def cut(levels: Ints, axis: int, boxes: Boxes) -> Ints:
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

    groups = Groups(np.arange(order.size + 1), order)
    weights = trees.level_weights(tree, ratio=ratio)
    found, noisy = measured_tree(curator, groups, tree, weights, share=share, pruned=False)
    plain = trees.make_tree(tree.k, tree.branching)
    if np.array_equal(plain.lo, tree.lo) and np.array_equal(plain.hi, tree.hi):
        return found
    shape = tree.left > 0  # uneven boxes: the tree does not follow from their number
    error = TreeTotals(groups, tree.branching, False, np.asarray(noisy.scale), shape)
    return Estimated(found.values, error)


def _grow(shape: tuple[int, int], cut: Cut) -> tuple[Tree, Ints]:
    """Return the tree of boxes, and the cells in its order: rows are parted first, then columns.

    It is binary, as `kernels.trees` wants it: between a box and its quarters lie two halves that are not
    measured. Level by level, so that parents come before children and two children are neighbours.
    """
    from dphist.kernels.trees.tree import Tree

    rows, columns = shape
    n = rows * columns
    zero = np.zeros(1, np.int64)
    box = np.array([zero, zero + rows, zero, zero + columns])
    nodes = [(zero, zero + n, zero - 1, np.ones(1, bool), zero)]  # lo, hi, parent, measured, depth
    left, order, leaf = [], np.empty(n, np.int64), np.empty(n, np.int64)
    made = 1
    while box.shape[1]:
        lo, hi, _, _, depth = nodes[-1]
        first = made - lo.size  # the number of this level's first node
        tall, broad = box[1] - box[0] > 1, box[3] - box[2] > 1
        single = ~(tall | broad)
        order[lo[single]] = box[0, single] * columns + box[2, single]
        leaf[lo[single]] = first + np.flatnonzero(single)
        parted = np.where(nodes[-1][3], np.where(tall, 0, 1), 1)  # measured boxes by rows, halves by columns
        inner = np.flatnonzero(~single)
        at = np.empty(inner.size, np.int64)
        for axis in (0, 1):
            here = parted[inner] == axis
            r0, r1, c0, c1 = box[:, inner[here]]
            at[here] = cut(depth[inner[here]], axis, (r0, r1, c0, c1))
        low, high = box[:, inner].copy(), box[:, inner].copy()
        side = parted[inner]
        low[2 * side + 1, np.arange(inner.size)] = at
        high[2 * side, np.arange(inner.size)] = at
        cells = (low[1] - low[0]) * (low[3] - low[2])
        children = np.zeros(lo.size, np.int64)
        children[inner] = made + 2 * np.arange(inner.size)
        left.append(children)
        middle = lo[inner] + cells
        halves = (side == 0) & broad[inner]  # still to be parted by columns
        begin, end = (np.stack(pair, axis=1).ravel() for pair in ((lo[inner], middle), (middle, hi[inner])))
        above, whole, deep = (np.repeat(each, 2) for each in (first + inner, ~halves, depth[inner] + ~halves))
        nodes.append((begin, end, above, whole, deep))
        box = np.stack([low, high], axis=2).reshape(4, -1)
        made += box.shape[1]
    lo, hi, parent, measured, depth = (np.concatenate(part) for part in zip(*nodes, strict=True))
    height = (depth.max() - depth).astype(np.int8)
    branching = 4 if min(shape) > 1 else 2
    return Tree(lo, hi, parent, np.concatenate(left), measured, height, leaf, branching), order


def _middle(axis: int, boxes: Boxes) -> Ints:
    return (boxes[2 * axis] + boxes[2 * axis + 1] + 1) // 2


def _inner(lines: Ints, sides: Ints) -> tuple[Ints, Ints]:
    """Return into how many each coarse box's side is parted, and in which of them each of its lines lies."""
    sizes = np.bincount(lines)
    boxes = np.minimum(sides, sizes[:, None])
    offset = np.arange(lines.size) - (np.cumsum(sizes) - sizes)[lines]
    return boxes, offset[:, None] * boxes[lines] // sizes[lines][:, None]
