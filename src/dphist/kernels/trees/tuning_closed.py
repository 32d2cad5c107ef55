"""The error of all ranges or all prefixes on a tree, and how it depends on each share: O(k) each way.

F(x) is the part of a node's total that the subtree expects left of the end x. Measuring the node or rescaling
its subtree leaves F as it is; going up one level, F becomes t F on the left child and t + (1 - t) F on the
right.
"""

from __future__ import annotations

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel
from dphist.kernels.trees.budget import (
    BUDGET,
    GREEDY,
    KNOWN,
    PULL,
    SEEN,
    SWEEP,
    WIDTH,
    greedy_share,
    settled,
    swept_share,
)
from dphist.kernels.trees.tree import Bytes, Flags, Nodes
from dphist.kernels.trees.variances import contrast, covered, leaf_spread, pooled

V, J, B, CROSS, MEAN, DEV = range(6)  # columns of the state: see kernels.trees.budget; MEAN and DEV are of F
STATE, DOWN = 6, WIDTH + 1
_FAR = WIDTH  # the last column on the way down: see `fall_closed`


@kernel
def rise_closed(
    lo: Nodes,
    hi: Nodes,
    left: Nodes,
    measured: Flags,
    height: Bytes,
    starts: Ints,
    prefixes: bool,
    decay: Floats,
    collapse: bool,
    mode: int,
    share: Floats,
    down: Floats,
    state: Floats,
) -> float:
    """Fill ``state``, set ``share`` unless it is given, and return the error of all queries.

    The slow twin is the dense ``query_matrix`` with ``fit`` (and ``greedy``) of tests/naive_trees.py.
    """
    n = starts[starts.size - 1]
    for q in range(left.size - 1, -1, -1):
        begin, end = starts[lo[q]], starts[hi[q]]
        before, after = begin + 1.0, n - end + 1.0
        c = left[q]
        # Step 1, a leaf: F is even inside a group, whose total has variance 1 per unit of budget.
        if c == 0:
            spread = leaf_spread(end - begin)
            if mode != KNOWN:
                share[q] = 1.0
            state[q, V] = 1.0 / share[q]
            state[q, J] = 0.0
            state[q, B] = covered(prefixes, before, end - begin - 1.0, after, 0.5, spread)
            state[q, CROSS] = 0.0
            state[q, MEAN] = 0.5
            state[q, DEV] = spread
            continue
        # Step 2: pool F of both children, as the module says F changes on the way up.
        d = c + 1
        n1 = starts[hi[c]] - begin - 1.0
        n2 = end - starts[lo[d]] - 1.0
        v1, v2, mean1, mean2 = state[c, V], state[d, V], state[c, MEAN], state[d, MEAN]
        s = v1 + v2
        t = v1 / s
        u = 1.0 - t
        mean, spread = pooled(
            n1, t * mean1, t * t * state[c, DEV], t, n2, t + u * mean2, u * u * state[d, DEV]
        )
        # Step 3: the error that the node's total causes (b), and that its subtree adds (j).
        b = covered(prefixes, before, end - begin - 1.0, after, mean, spread)
        both = contrast(prefixes, n + 1.0, n1, mean1, state[c, DEV], n2, mean2, state[d, DEV])
        j = state[c, J] + state[d, J] + both * (t * v2)
        # Step 4: choose the node's share of the budget, then rescale the subtree to what is left.
        if mode == GREEDY:
            across = after + n2 * mean2
            if not prefixes:
                across *= before + n1 * (1.0 - mean1)
            cross = 2.0 * v1 * v2 * across
            if not measured[c]:
                cross += state[c, CROSS]
            if not measured[d]:
                cross += state[d, CROSS]
            state[q, CROSS] = cross
            share[q] = greedy_share(j, b, cross, s, decay[height[q]], collapse) if measured[q] else 0.0
        elif mode == SWEEP:
            share[q] = swept_share(j, s, state[q, V], down[q]) if measured[q] else 0.0
        state[q, V], state[q, J] = settled(j, s, share[q], mode)
        state[q, B] = b
        state[q, MEAN] = mean
        state[q, DEV] = spread
    return float(state[0, V] * state[0, B] + state[0, J])


@kernel
def fall_closed(
    lo: Nodes,
    hi: Nodes,
    left: Nodes,
    starts: Ints,
    prefixes: bool,
    share: Floats,
    mode: int,
    state: Floats,
    down: Floats,
) -> None:
    """Fill ``down``: the budget that reaches each node, S and H as in ``swept_share``, from the root down.

    A prefix that ends inside a node has the covariance far + S F(end) with the node's total; for all ranges,
    far is taken less its mean over all ends. The children's totals are t x + e and (1 - t) x - e, Var(e) =
    loose, and so the covariances g with the queries become t g + loose (c1 - c2) and (1 - t) g - loose (c1 -
    c2).
    """
    ends = starts[starts.size - 1] + 1.0
    times = 1.0 if prefixes else ends
    total = state[0, V]
    down[0, BUDGET] = 1.0
    down[0, SEEN] = total
    down[0, PULL] = total * total * state[0, B]
    down[0, _FAR] = 0.0 if prefixes else -total * ((ends - 2.0) * state[0, MEAN] + 1.0) / ends
    for q in range(left.size):
        c = left[q]
        if c == 0:
            continue
        d = c + 1
        budget = 1.0 if mode == KNOWN else down[q, BUDGET] * (1.0 - share[q])
        if budget == 0.0:
            down[c] = 0.0
            down[d] = 0.0
            continue
        n1 = starts[hi[c]] - starts[lo[c]] - 1.0
        n2 = starts[hi[d]] - starts[lo[d]] - 1.0
        mean1, mean2, dev1, dev2 = state[c, MEAN], state[d, MEAN], state[c, DEV], state[d, DEV]
        s = state[c, V] + state[d, V]
        t = state[c, V] / s
        u = 1.0 - t
        loose = t * state[d, V] / (budget * budget)
        seen, pull, far = down[q, SEEN], down[q, PULL], down[q, _FAR]
        right = n2 * (1.0 - mean2)
        change = n1 * mean1 + 1.0 + right  # the sum over all prefixes of c1 - c2
        # And of F (c1 - c2).
        moved = t * (dev1 + n1 * mean1 * mean1 + 1.0 + right) + u * (mean2 * right - dev2)
        along = times * (far * change + seen * moved)
        both = contrast(prefixes, ends, n1, mean1, dev1, n2, mean2, dev2)
        mean = 0.0 if prefixes else change / ends
        down[c, BUDGET] = budget
        down[c, SEEN] = t * t * seen + loose
        down[c, PULL] = max(t * t * pull + 2.0 * t * loose * along + loose * loose * both, 0.0)
        down[c, _FAR] = t * far - loose * mean
        down[d, BUDGET] = budget
        down[d, SEEN] = u * u * seen + loose
        down[d, PULL] = max(u * u * pull - 2.0 * u * loose * along + loose * loose * both, 0.0)
        down[d, _FAR] = u * (far + t * seen) - loose * (1.0 - mean)
