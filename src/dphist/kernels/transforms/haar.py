"""Whole-number linear queries with fast answers: the Haar wavelet on a line or a grid, queries of groups.

Each is a ``Transform`` for `Curator.measure_linear`: weights fixed beforehand, exact answers, and a ``bound``
that is the worst bin's sum of |weights|, counted on the weights themselves. None forms a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dphist.domain import whole
from dphist.domain.groups import Floats, Groups, Ints
from dphist.kernels import kernel
from dphist.kernels.trees.tree import Tree, make_tree


class Queries(Protocol):
    """What the curator asks of linear queries."""

    @property
    def n(self) -> int:
        """Over how many cells."""

    @property
    def size(self) -> int:
        """How many queries."""

    def bound(self) -> int:
        """Return the largest sum of |weights| of one cell."""

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers."""


@dataclass(frozen=True, eq=False)
class OnGroups:
    """Queries over the totals of a partition's groups, in its order: a bin has the weights of its group."""

    inner: Queries
    groups: Groups

    @property
    def n(self) -> int:
        """How many bins there are."""
        return self.groups.n

    @property
    def size(self) -> int:
        """How many queries there are."""
        return self.inner.size

    def bound(self) -> int:
        """Return the bound of the queries: a record is in one group."""
        return self.inner.bound()

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers."""
        return self.inner(self.groups.totals(counts))


@dataclass(frozen=True)
class Multiples:
    """Every cell times one whole number, so that noise in steps of 1 is in steps of 1/weight of a record.

    Totals above 2^61/weight are cut off there: that moves them no further than before, so the bound holds.
    """

    n: int
    weight: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", whole(self.weight, "the weight"))

    @property
    def size(self) -> int:
        """How many queries: as many as cells."""
        return self.n

    def bound(self) -> int:
        """Return the weight: a record is in one cell."""
        return self.weight

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers: O(n)."""
        return np.minimum(counts, (1 << 61) // self.weight) * self.weight


@dataclass(frozen=True)
class Haar:
    """The total and, at every node of a binary tree, the left half less the right half (Privelet).

    Privelet's coefficient is that difference over the node's size, with noise of scale 1/size: the weights of
    the published levels and the sizes cancel, so every weight here is 1 or -1 and nothing is rounded. On a
    grid the columns are transformed, then the rows. No answer exceeds the total of the counts, below 2^62.
    """

    rows: int
    columns: int = 1

    @property
    def n(self) -> int:
        """How many cells there are."""
        return self.rows * self.columns

    @property
    def size(self) -> int:
        """How many queries: as many as cells."""
        return self.n

    def bound(self) -> int:
        """Return the worst cell's number of queries, of weight 1 or -1: 1 + its depth, along each axis."""
        return haar_bound(self.rows) * haar_bound(self.columns)

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers: O(n) per axis."""
        folded = _fold(counts.reshape(self.rows, self.columns))
        return np.ascontiguousarray(_fold(folded.T).T).ravel()

    def inverse(self, answers: Floats) -> Floats:
        """Return the cells that have these answers."""
        unfolded = _unfold(answers.reshape(self.columns if self.rows == 1 else self.rows, -1).astype(float))
        if 1 in (self.rows, self.columns):
            return unfolded.ravel()
        return np.ascontiguousarray(_unfold(np.ascontiguousarray(unfolded.T)).T).ravel()

    def variances(self) -> Floats:
        """Return each cell's variance for noise of variance 1: 1/4 + ... + 1/4^d + 1/4^d at depth d."""
        rows, columns = (_leaf_variances(make_tree(k, 2)) for k in (self.rows, self.columns))
        return np.outer(rows, columns).ravel()


def haar_bound(k: int) -> int:
    """Return one more than the greatest depth of the tree over k cells, counted on the tree."""
    tree = make_tree(k, 2)
    return 1 + int(_depths(tree.parent)[tree.leaf].max())


def haar_range_variance(k: int, begin: int, end: int) -> float:
    """Return the variance of the sum of cells begin..end-1 of a line, for noise of variance 1: O(k).

    A node hands half of its total's error to either side, and its difference's error with opposite signs. So
    with u the part of a node's error that reaches the range, u of its parent is the mean of both sides' u and
    the difference enters with half of theirs.
    """
    tree = make_tree(k, 2)
    return _reaching(tree.left, tree.lo, begin, end)


def _fold(x: Ints) -> Ints:
    """Transform along the first axis."""
    k = x.shape[0]
    if k == 1:
        return x
    tree = make_tree(k, 2)
    sums = np.zeros((k + 1, x.shape[1]), np.int64)
    np.cumsum(x, axis=0, out=sums[1:])
    inner = np.flatnonzero(tree.left)
    first, last = tree.left[inner], tree.left[inner] + 1
    out = np.empty_like(x)
    out[0] = sums[k]
    out[1:] = 2 * sums[tree.hi[first]] - sums[tree.lo[first]] - sums[tree.hi[last]]
    return out


def _unfold(y: Floats) -> Floats:
    tree = make_tree(y.shape[0], 2)
    return _descend(tree.left, y)[tree.leaf]


@kernel
def _descend(left: Ints, y: Floats) -> Floats:
    """Give every node its total, from the root down; row 1 + i of y is the i-th inner node's difference."""
    z = np.empty((left.size, y.shape[1]))
    z[0] = y[0]
    row = 0
    for q in range(left.size):
        if left[q] > 0:
            row += 1
            for c in range(y.shape[1]):
                z[left[q], c] = (z[q, c] + y[row, c]) / 2.0
                z[left[q] + 1, c] = (z[q, c] - y[row, c]) / 2.0
    return z


@kernel
def _depths(parent: Ints) -> Ints:
    depth = np.zeros(parent.size, np.int64)
    for q in range(1, parent.size):
        depth[q] = depth[parent[q]] + 1
    return depth


def _leaf_variances(tree: Tree) -> Floats:
    quarter = 0.25 ** _depths(tree.parent)[tree.leaf]
    return (1.0 - quarter) / 3.0 + quarter


@kernel
def _reaching(left: Ints, lo: Ints, begin: int, end: int) -> float:
    u = np.empty(left.size)
    total = 0.0
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        if c == 0:
            u[q] = 1.0 if begin <= lo[q] < end else 0.0
        else:
            u[q] = (u[c] + u[c + 1]) / 2.0
            total += (u[c] - u[c + 1]) ** 2 / 4.0
    return float(total + u[0] * u[0])
