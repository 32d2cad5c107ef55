"""The Haar wavelet of whole numbers on a line or a grid, its inverse, and the variance of what that returns.

None forms a matrix.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels.trees.tree import Tree, make_tree
from dphist.kernels.trees.variances import TreeError


def haar_answers(cells: Ints) -> Ints:
    """Return the coefficients of a line or a grid of whole numbers: O(cells) per axis, exact.

    A coefficient is the total, or at a node of the binary tree the left half less the right half. On a grid
    the columns are transformed, then the rows.
    """
    return np.ascontiguousarray(_fold(_fold(cells).T).T).ravel()


def haar_cells(answers: Floats, rows: int, columns: int) -> Floats:
    """Return the cells of a grid of this shape, or of a line, that have these coefficients."""
    unfolded = _unfold(answers.reshape(columns if rows == 1 else rows, -1).astype(float))
    if 1 in (rows, columns):
        return unfolded.ravel()
    return np.ascontiguousarray(_unfold(np.ascontiguousarray(unfolded.T)).T).ravel()


def haar_variances(rows: int, columns: int) -> Floats:
    """Return each cell's variance for noise of variance 1: 1/4 + ... + 1/4^d + 1/4^d at depth d."""
    return np.outer(*(_leaf_variances(make_tree(k, 2)) for k in (rows, columns))).ravel()


def leaf_depths(k: int) -> Ints:
    """Return how many nodes lie above each cell in the binary tree over k cells, counted on the tree."""
    return _leaf_depths(make_tree(k, 2))


def _leaf_depths(tree: Tree) -> Ints:
    depth = np.repeat(np.arange(len(tree.levels)), [end - begin for begin, end in tree.levels])
    return depth[tree.leaf]


def haar_error(k: int) -> TreeError:
    """Return what the variance of any range of a line's cells is read from, for noise of variance 1.

    A node hands half of its total's error to either side, and half of its difference's error with opposite
    signs: a tree in which every left child takes the part 1/2, and the children differ by a variance of 1/4.
    """
    tree = make_tree(k, 2)
    loose = np.where(tree.left > 0, 0.25, 0.0)
    return TreeError(tree, np.full(loose.size, 0.5), loose, 1.0)


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
    z = np.empty((tree.size, y.shape[1]))
    z[0] = y[0]
    row = 1  # of y, which has the differences of the nodes with children in order
    for (begin, end), (child, last) in pairwise(tree.levels):
        above = z[begin:end][tree.left[begin:end] > 0]
        below = y[row : row + len(above)]
        row += len(above)
        for side, total in enumerate((above + below, above - below)):
            z[child + side : last : 2] = total / 2.0
    return np.asarray(z[tree.leaf])


def _leaf_variances(tree: Tree) -> Floats:
    quarter = 0.25 ** _leaf_depths(tree)
    return (1.0 - quarter) / 3.0 + quarter
