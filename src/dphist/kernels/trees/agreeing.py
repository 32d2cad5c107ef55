"""Noise on the nodes of a tree that agrees with itself: how it is put together, and how large it is.

`dphist.privacy.agreeing` has the law: with u_v the sum of the noise of all groups below node v, the
probability is in proportion to exp(-sum |u_v| / s_v), s_v being the scale of v. Here is the walk that puts
draws together so that they have this law, and what is known of the law without a draw.

Its variances are those of least squares on independent noise of other variances, to a few percent: every
factor exp(-|u|/s) is replaced by a normal density that has the same second moment among the others
(expectation propagation, Minka 2001). The normal density of a node is narrower than its factor alone would
be, the more so the more the nodes above and below it know already. So the totals of a tree that agree have
less noise than those that are made to agree afterwards, at the same scales.
"""

from __future__ import annotations

import math

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.tree import Nodes, Tree

_ROUNDS = 20  # of moment matching, at most; five to ten are usual
_SETTLED = 1e-3  # the largest relative change of a variance in the last round
_FAR = 30.0  # from where on three terms of a series give the second moment to six digits
# The true variances of nodes are 1 to 6 % above those of the normal densities (trees of 16 to 1,024 groups).
_ABOVE = 1.04
_EXACT = 1e-12  # below such a variance counts are known exactly


def walk_order(tree: Tree) -> tuple[Nodes, Nodes]:
    """Return the nodes, children before their parents and left before right, and where each subtree begins.

    Returns:
        The nodes in the order of the walk; for each node, the place in that order of the first node below it.
    """
    order, first = np.empty(tree.size, np.int32), np.empty(tree.size, np.int32)
    _order(tree.left, order, first)
    return order, first


@kernel
def _order(left: Nodes, order: Nodes, first: Nodes) -> None:
    """See `walk_order`; a subtree over g groups has 2g - 1 nodes, all next to each other in the order."""
    size = np.ones(left.size, np.int32)
    for q in range(left.size - 1, -1, -1):
        if left[q] > 0:
            size[q] += size[left[q]] + size[left[q] + 1]
    first[0] = 0
    for q in range(left.size):
        order[first[q] + size[q] - 1] = q
        c = left[q]
        if c > 0:
            first[c] = first[q]
            first[c + 1] = first[q] + size[c]


@kernel
def walk(
    left: Nodes, order: Nodes, first: Nodes, draws: Ints, begin: Ints, end: Ints, total: Ints, at: int
) -> int:
    """Go on with the walk from a place of its order; return the next place where a node has no draw left.

    A leaf takes its next draw. An inner node has the sum of its children, and is passed if its next draw is
    at least as far from 0; otherwise everything below it is drawn anew. A node without draws of its own is
    always passed.

    Args:
        draws: of all nodes, those of node q from begin[q] on, up to end[q]; begin is moved forward. A node
            that needs none has an end of -1.
        total: the noise of every node, which is written.
    """
    while at < order.size:
        q = order[at]
        c = left[q]
        if c > 0:
            total[q] = total[c] + total[c + 1]
            if end[q] < 0:
                at += 1
                continue
        if begin[q] == end[q]:
            return at
        drawn = draws[begin[q]]
        begin[q] += 1
        if c == 0:
            total[q] = drawn
            at += 1
        elif drawn >= abs(total[q]):
            at += 1
        else:
            at = first[q]
    return at


def queued(draws: Ints, begin: Ints, left: Ints, fresh: Ints, more: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the queues of some nodes with fresh draws behind those that are left, and where each lies.

    Args:
        draws: those that were there before.
        begin: where the queue of each node begins in them.
        left: how many draws each queue has.
        fresh: new ones, node by node.
        more: how many of them each node gets.
    """
    ends = np.cumsum(left + more)
    out = np.empty(int(ends[-1]), np.int64)
    _queue(draws, begin, left, fresh, more, out)
    return out, ends - left - more, ends


@kernel
def _queue(draws: Ints, begin: Ints, left: Ints, fresh: Ints, more: Ints, out: Ints) -> None:
    """Write the queues one after the other; see `queued`."""
    at, new = 0, 0
    for q in range(left.size):
        for i in range(begin[q], begin[q] + left[q]):
            out[at] = draws[i]
            at += 1
        for _ in range(more[q]):
            out[at] = fresh[new]
            at, new = at + 1, new + 1


def equal_variances(tree: Tree, variance: Floats) -> Floats:
    """Return the variances of independent noise on the nodes that least squares would leave as much of.

    Args:
        variance: of a draw of each node's own scale; infinite where a node is not measured. Every leaf is.
    """
    with np.errstate(divide="ignore"):
        return 1.0 / equal_precisions(tree, variance)[0]  # an infinite one stays infinite


def equal_precisions(tree: Tree, variance: Floats) -> tuple[Floats, Floats]:
    """Return 1 / `equal_variances`, and by which power of 1/s each grows, if the others stay: from 1 to 2."""
    given, slope = np.maximum(variance, _EXACT), np.full(tree.size, 2.0)
    precision = 1.0 / given
    _match(tree.left, given, precision, slope)
    return np.maximum(precision / _ABOVE, 1.0 / given), slope


@kernel
def _match(left: Nodes, variance: Floats, precision: Floats, slope: Floats) -> None:
    """Replace the precision of every factor, that of itself alone at first, by what it adds to the others.

    What `_slope` says of each is written, too, unless nothing else is known of its node.
    """
    n = left.size
    below, own, above = np.empty(n), np.empty(n), np.empty(n)
    for _ in range(_ROUNDS):
        # The variance of a node's total by what is below it, without and with its own factor.
        for q in range(n - 1, -1, -1):
            c = left[q]
            below[q] = own[c] + own[c + 1] if c > 0 else np.inf
            own[q] = 1.0 / (1.0 / below[q] + precision[q])
        worst, above[0] = 0.0, np.inf
        for q in range(n):
            others = 1.0 / below[q] + 1.0 / above[q]
            c = left[q]
            if c > 0:
                known = precision[q] + 1.0 / above[q]
                own_total = 1.0 / known if known > 0.0 else np.inf
                above[c] = own_total + own[c + 1]
                above[c + 1] = own_total + own[c]
            if precision[q] > 0.0 and others > 0.0:
                moment = _second_moment(1.0 / others, variance[q])
                slope[q] = _slope(math.sqrt(2.0 / (others * variance[q])), moment * others)
                new = max(1.0 / moment - others, 1.0 / variance[q])
                worst = max(worst, abs(new / precision[q] - 1.0))
                precision[q] = new
        if worst < _SETTLED:
            return


@subkernel
def _second_moment(normal: float, laplace: float) -> float:
    """Return the second moment of a density: a normal one times a Laplace one, given by their variances."""
    t = math.sqrt(2.0 * normal / laplace)
    if t > _FAR:
        return laplace * (1.0 - 5.0 / (t * t) + 37.0 / (t * t * t * t))
    tail = 0.5 * math.erfc(t / math.sqrt(2.0))
    return normal * (1.0 + t * t - t * math.exp(-0.5 * t * t) / (math.sqrt(2.0 * math.pi) * tail))


@subkernel
def _slope(t: float, m: float) -> float:
    """Return d log(1/m - 1) / d log t, where m is `_second_moment` for a standard normal density."""
    if t > _FAR:
        return 2.0
    ratio = (1.0 + t * t - m) / t
    return -t * (2.0 * t - ratio - t * ratio * (ratio - t)) / (m * (1.0 - m)) if m < 1.0 else 1.0


def expected_visits(tree: Tree, variance: Floats) -> Floats:
    """Return about how often a walk reaches each node: so many draws it takes.

    What is below a node is taken to be normal before the node is tested: the true numbers are not far off.

    Args:
        variance: as in `equal_variances`.
    """
    given, reached = np.maximum(variance, _EXACT), np.ones(tree.size)
    _visit(tree.left, given, reached)
    return reached


@kernel
def _visit(left: Nodes, variance: Floats, reached: Floats) -> None:
    """Write how often every node is reached: as often as what is above it is, over what it lets pass."""
    own = variance.copy()
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        if c > 0:
            below = own[c] + own[c + 1]
            if np.isfinite(variance[q]):
                reached[q] = 1.0 / _passed(math.sqrt(2.0 * below / variance[q]))
                own[q] = _second_moment(below, variance[q])
            else:
                own[q] = below
    for q in range(left.size):
        c = left[q]
        if c > 0:
            reached[c] *= reached[q]
            reached[c + 1] *= reached[q]


@subkernel
def _passed(t: float) -> float:
    """Return E exp(-t |X|) for a standard normal X."""
    if t > _FAR:
        return math.sqrt(2.0 / math.pi) / t
    return math.exp(0.5 * t * t) * math.erfc(t / math.sqrt(2.0))


def shared_weights(tree: Tree, weights: Floats, part: float) -> Floats:
    """Return weights of which a part is taken from all nodes and spread evenly over the levels.

    Noise that agrees with itself is the smaller the more levels are measured, even a little.

    Args:
        weights: of each node, at most one in all on every path.
        part: of the budget, from 0 to 1. A leaf whose path is short gets what its levels leave.
    """
    out = (1.0 - part) * weights
    _spread(tree.left, part, np.empty(tree.size), np.empty(tree.size), out)
    return out


@kernel
def _spread(left: Nodes, part: float, levels: Floats, rest: Floats, weights: Floats) -> None:
    """Add the part, evenly over the inner nodes of the longest way down from each node; the root has none."""
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        levels[q] = 1.0 + max(levels[c], levels[c + 1]) if c > 0 else 0.0
    rest[0] = part
    for q in range(left.size):
        c = left[q]
        added = rest[q]
        if c > 0:
            added = rest[q] / levels[q] if q > 0 else 0.0
            rest[c] = rest[q] - added
            rest[c + 1] = rest[c]
        weights[q] += added
