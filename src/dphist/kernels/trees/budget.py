"""Dividing a budget over a tree: node q keeps ``share[q]`` of what reaches it and hands on the rest.

A leaf keeps all, so path sums are exactly one. Trees are those of ``kernels.trees``. For a subtree that owns
a unit budget: v is the variance of its total from the subtree alone, s the same before the node itself is
measured, B the sum over the queries of the squared part they take of the total, and J their error if the
total were known. Then the error of all queries is B v + J. A node that keeps l has 1/v = (1 - l)^2/s + l^2
and J grows by 1/(1 - l)^2.
"""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Floats
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.tree import Flags, Nodes, Tree

# How a pass sets the shares: equation (9), not at all, from the rest of the tree; or not at all, and what
# stands in their place is the precision of each node's own measurement.
GREEDY, GIVEN, SWEEP, KNOWN = 0, 1, 2, 3
BUDGET, SEEN, PULL, WIDTH = 0, 1, 2, 3  # what every way down leaves behind, one column each


@subkernel
def least_ratio(j: float, b: float, s: float, outside: float) -> float:
    """Return the r >= 0 that makes (1 + r)^2 (j + b/N) least, N = 1/s + r^2 + outside (1 + r)^2.

    Here r = l/(1 - l). It is stationary where j N^2 = b (r - 1/s): a convex function and a line, so the
    minimum is 0 or the larger crossing, and Newton's steps from the right of it only ever move left. Infinite
    if j is 0.
    """
    if not b > 0.0:
        return 0.0
    if not j > 0.0:
        return np.inf
    a = 1.0 / s
    if outside == 0.0:  # most nodes end here: where the line comes nearest to the curve, it is still below
        r = (2.0 * a + np.sqrt(4.0 * a * a + 3.0 * a)) / 3.0
        if j * (a + r * r) ** 2 >= b * (r - a):
            return 0.0
    r = (b / (j * (1.0 + outside) ** 2)) ** (1.0 / 3.0)
    for _ in range(100):
        near = a + r * r + outside * (1.0 + r) ** 2
        slope = 4.0 * j * near * (r + outside * (1.0 + r)) - b
        if r <= a or slope <= 0.0:
            return 0.0
        step = (j * near * near - b * (r - a)) / slope
        r -= step
        if step <= 1e-14 * r:
            break
    near = a + r * r + outside * (1.0 + r) ** 2
    return r if (1.0 + r) ** 2 * (j + b / near) < j + b / (a + outside) else 0.0


@subkernel
def greedy_share(j: float, b: float, cross: float, s: float, decay: float, collapse: bool) -> float:
    """Return the l that minimises DAWA's equation (9).

    ``cross`` is 2 v1 v2 times the sum over the queries of the parts c1 c2 they take of two children, added up
    over the children. The decay moves (1 - decay) cross/s from what measuring the node can mend to what it
    cannot.
    """
    if collapse and j == 0.0 and b > 0.0:
        return 1.0
    moved = (1.0 - decay) * cross / s
    return _share(least_ratio(j + moved, max(b - moved / s, 0.0), s, 0.0))


@subkernel
def swept_share(j: float, s: float, v: float, down: Floats) -> float:
    """Return the best l of one node while all shares outside its subtree stay: the row ``down`` knows them.

    The rest of the tree knows the total with the precision 1/S - 1/v (at the node's own budget), and the
    queries move it by H/S^2, S being its variance and H the sum of its squared covariances with the queries.
    """
    if not (down[BUDGET] > 0.0 and down[SEEN] > 0.0):
        return 0.0
    outside = max(1.0 / (down[SEEN] * down[BUDGET] ** 2) - 1.0 / v, 0.0)
    return _share(least_ratio(j, down[PULL] / down[SEEN] ** 2, s, outside))


@subkernel
def _share(r: float) -> float:
    return 1.0 if np.isinf(r) else r / (1.0 + r)


@subkernel
def settled(j: float, s: float, share: float, mode: int) -> tuple[float, float]:
    """Return v and J of a node once its share is known, or in its place its precision."""
    if mode == KNOWN:
        return s / (1.0 + share * s), j
    rest = 1.0 - share
    return s / (rest * rest + share * share * s), (j / (rest * rest) if j > 0.0 else 0.0)


def weights_of(tree: Tree, share: Floats) -> Floats:
    """Return the fraction of the whole budget that each node keeps."""
    weights, budget = np.empty(share.size), np.ones(1)
    for begin, end in tree.levels:
        np.multiply(budget, share[begin:end], out=weights[begin:end])
        budget *= 1.0 - share[begin:end]
        budget = np.repeat(budget[tree.left[begin:end] > 0], 2)
    return weights


def reserve_below(tree: Tree, share: Floats, reserve: float) -> None:
    """Let every node that kept all hand on ``reserve``, and its leaves take it."""
    below = np.zeros(1, np.bool_)  # nodes of a level that lie below one that kept all
    for begin, end in tree.levels:
        own, inner = share[begin:end], tree.left[begin:end] > 0
        all_of_it = inner & ~below & (own == 1.0)
        own[inner & below] = 0.0
        own[all_of_it] = 1.0 - reserve
        below = np.repeat((below | all_of_it)[inner], 2)


def reallocate(left: Nodes, measured: Flags, down: Floats, share: Floats) -> None:
    """Set the shares that are best for the present way of combining the measurements: never a greater error.

    With c the present fractions, the error of that way is the sum of c^4 H / c'^2 for new fractions c'; under
    unit path sums its minimum for a subtree is K^3, K = (c^4 H)^(1/3) + (sum of the children's K^3)^(1/3).
    """
    _reallocate(left, measured, down, np.empty(share.size), share)


@kernel
def _reallocate(left: Nodes, measured: Flags, down: Floats, cubed: Floats, share: Floats) -> None:
    """See `reallocate`; ``cubed`` is room for the K^3."""
    for q in range(share.size - 1, -1, -1):
        own = (down[q, BUDGET] * share[q]) ** 4 * down[q, PULL]
        c = left[q]
        if c == 0:
            cubed[q] = own
            continue
        own = own ** (1.0 / 3.0) if measured[q] else 0.0
        root = own + (cubed[c] + cubed[c + 1]) ** (1.0 / 3.0)
        share[q] = own / root if own > 0.0 else 0.0
        cubed[q] = root**3
