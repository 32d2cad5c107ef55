"""How much of the budget each node of a tree should get, if the noise of all nodes agrees with itself.

Nothing here looks at data or spends anything. Queries and weights are those of ``kernels.trees.tuning``.

`agreeing.equal_precisions` says which independent noise is as large: node v has the precision p_v, which
depends on its own weight and on all others. Let S_v be the variance of its total, C_uv the covariance of two,
and H_v the sum of its squared covariances with the queries. A unit more of p_v takes H_v off the error of all
queries and C_uv^2 off the variance of every other total, and a total that the others know better gains more
by its own noise being drawn together with theirs: p_u grows by a_u C_uv^2. So in all the unit is worth L_v,

    L_v = H_v + sum over all u but v of C_uv^2 a_u L_u.

If v's weight grows by a small part r of itself, p_v grows by the part b_v r, where b_v is from 1 to 2, and
a_v = (1 - b_v / 2) p_v / (S_v (1 - p_v S_v)).

Where the error is least, no budget can be moved along a path with a gain: what a part r more of its weight
gains at each node is then the same part of what it gains in the subtree as its weight is of what reaches it.
A step sets the weights so, by what each is worth at present.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats
from dphist.kernels import kernel
from dphist.kernels.trees import agreeing
from dphist.kernels.trees.budget import KNOWN, PULL, SEEN, weights_of
from dphist.kernels.trees.tree import Nodes, Tree
from dphist.kernels.trees.tuning import Passes, leaves_only
from dphist.kernels.trees.variances import Queries, group_widths, query_count

_SPREAD = (0.15, 0.3, 0.45)  # parts of the weights of separate noise that are tried for all levels alike
_BEGIN = 0.6  # the same, of what the groups have, where the steps begin
_OTHERS = 0.25  # what the mean over all ranges counts beside that over listed ones: others will be asked
_STEPS, _SETTLED = 16, 1e-4  # as many at most, while the error changes by more than such a part of itself

_ROUNDS = 2  # in which what a node is worth is brought up to date: it changes little from step to step


def agreeing_weights(
    tree: Tree, widths: ArrayLike, queries: Queries, separate: Floats, *, below: float, draws: float
) -> Floats | None:
    """Return the weights of noise that agrees; None if its error is not below another, or it takes long.

    Those of all that were tried that have the least error of the queries themselves: O(k), and O(k + m) for
    m listed ranges.

    Args:
        widths: how many bins each group has.
        separate: weights of independent noise, tuned to the same queries.
        below: the mean variance of a query to be beaten, where the whole budget buys noise of scale 1.
        draws: as many as it may take.
    """
    best = None
    for weights, error in _tried(tree, widths, queries, separate):
        if error < below and agreeing.expected_visits(tree, _variances(weights)).sum() < draws:
            below, best = error, weights
    return best


def _tried(
    tree: Tree, widths: ArrayLike, queries: Queries, separate: Floats
) -> Iterator[tuple[Floats, float]]:
    """Yield weights and the mean variance of a query, one pair after another."""
    w = group_widths(widths, tree.k)
    kinds: list[tuple[Queries, float]] = [(queries, 1.0)]
    if isinstance(queries, tuple):
        kinds.append(("all-ranges", _OTHERS))
    passes = [
        (Passes.over(tree, w, kind, decay=False, collapse=False), times / query_count(w, kind))
        for kind, times in kinds
    ]
    for part in _SPREAD:
        weights = agreeing.shared_weights(tree, separate, part)
        precision, _ = agreeing.equal_precisions(tree, _variances(weights))
        yield weights, passes[0][1] * passes[0][0].rise(precision, KNOWN)
    weights = agreeing.shared_weights(tree, leaves_only(tree), _BEGIN)
    root = 0.5 * min(weights[1], weights[2])  # it was given none, and none would stay none
    weights *= 1.0 - root
    weights[0] = root
    last, worth, share = 0.0, np.zeros(tree.size), np.ones(tree.size)
    for _ in range(_STEPS):
        precision, slope = agreeing.equal_precisions(tree, _variances(weights))
        errors, pull = [], np.zeros(tree.size)
        for each, times in passes:
            errors.append(times * each.rise(precision, KNOWN))
            each.fall(precision, KNOWN)
            pull += times * each.down[:, PULL]
        yield weights, errors[0]
        if abs(sum(errors) - last) < _SETTLED * last:
            return
        last, (each, _) = sum(errors), passes[0]
        for _ in range(_ROUNDS):
            rise_in_worth(tree.left, each.variance, each.down[:, SEEN], precision, slope, pull, worth)
        share_by_worth(tree.left, slope * precision * worth, share)
        weights = weights_of(tree, share)


def _variances(weights: Floats) -> Floats:
    """Return those of noise that some weights buy, where the whole budget buys noise of scale 1."""
    with np.errstate(divide="ignore"):
        return 2.0 / np.square(weights)


@kernel
def rise_in_worth(
    left: Nodes,
    variance: Floats,
    seen: Floats,
    precision: Floats,
    slope: Floats,
    pull: Floats,
    worth: Floats,
) -> None:
    """Replace L by the right side of the module's equation for it: done again and again, this solves it.

    A child's total is a part of its node's and something that is independent of all outside the node. So the
    covariance of a node with one of its subtree is its variance times a product of parts, and with one
    outside its parent's subtree it is a part of its parent's.

    Args:
        variance: of each node's total, by what is measured of it and below it.
        seen: by all that is measured: S.
        slope: b.
        pull: H.
        worth: L.
    """
    n = left.size
    own, inside, outside = (
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )  # sums of C^2 a L, but for the node's variance
    for q in range(n - 1, -1, -1):
        own[q] = 0.0
        if slope[q] < 2.0:
            loose = seen[q] * (1.0 - precision[q] * seen[q])
            own[q] = (1.0 - 0.5 * slope[q]) * precision[q] / loose * worth[q]
        inside[q] = own[q]
        c = left[q]
        if c > 0:
            t = variance[c] / (variance[c] + variance[c + 1])
            inside[q] += t * t * inside[c] + (1.0 - t) * (1.0 - t) * inside[c + 1]
    outside[0] = 0.0
    for q in range(n):
        square = seen[q] * seen[q]
        worth[q] = pull[q] + outside[q] + square * (inside[q] - own[q])
        c = left[q]
        if c > 0:
            t = variance[c] / (variance[c] + variance[c + 1])
            u = 1.0 - t
            siblings = t * (u * seen[q] - variance[c + 1])
            above = outside[q] + square * own[q]
            outside[c] = t * t * above + siblings * siblings * inside[c + 1]
            outside[c + 1] = u * u * above + siblings * siblings * inside[c]


@kernel
def share_by_worth(left: Nodes, gain: Floats, share: Floats) -> None:
    """Write the part of what a subtree gains that its node does; a leaf's stays 1."""
    total = gain.copy()
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        if c > 0:
            total[q] += total[c] + total[c + 1]
            share[q] = gain[q] / total[q]
