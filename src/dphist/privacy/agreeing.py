"""Noise for nested totals that agrees with itself: the K-norm mechanism (Hardt, Talwar 2010) on a tree.

The law. A full binary tree has the groups as its leaves. Node v has a scale s_v, infinite if it is not
measured; that of every leaf is finite. Let z be whole numbers, one for each group, and u_v their sum below v.
Then P(z) is in proportion to w(z) = exp(-sum over all v of |u_v| / s_v). These are independent discrete
Laplace draws for all nodes, given that each is the sum of its children's: where separate draws are made to
agree afterwards by least squares, these agree from the start, and are smaller.

Cost. The totals x of the groups are published as y = x + z, and nothing else is. One record more, in group i,
moves x_i by one. Then u_v moves by one if i is below v, and stays as it is otherwise, so that w changes by a
factor of at most exp(sum of 1/s_v over the nodes above i and i itself), either way; what w is divided by does
not depend on x. If these sums are at most e/D for all i, D records lose at most e.

The sampler. The walk visits children before their parents. At a leaf it draws a discrete Laplace number of
scale s_v. At an inner node it adds up the children, draws G with P(G >= k) = exp(-k/s_v), and passes if G >=
|u_v|; otherwise it goes back and draws all that is below v anew. A node of infinite scale is passed.

It is exact: when the walk has passed v, the numbers below v have the law P_v, in proportion to the product of
exp(-|u_q|/s_q) over v and all q below. This is true of a leaf. Let it be true of the children of v. Before v
is tested, the numbers below it have the law P_left P_right, as the draws of one have no part in those of the
other. They are kept with probability exp(-|u_v|/s_v), or else all drawn anew, independent of what was thrown
away. So what is kept at last is in proportion to P_left P_right exp(-|u_v|/s_v), which is P_v. At last the
root is passed, and P_root is P.

Draws of one node come from a queue of its own and are used in their order, each once; so it does not matter
how many were drawn, or when. How long a walk takes depends on its draws and on the tree, both independent of
the counts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels.trees import agreeing
from dphist.kernels.trees.tree import Tree

MOST_DRAWS = 1 << 24  # expected of one walk: a second or two
_FIRST, _MOST = 8, 1024  # draws that a node's queue has besides twice as many as are expected, and at most

# draw(nodes, signed) returns a number for each: a discrete Laplace draw if signed, else a geometric one
Draw = Callable[[Ints, bool], Ints]


def agreeing_noise(tree: Tree, live: Ints, reached: Floats, draw: Draw) -> Ints:
    """Return the noise of every group; see the module's proof.

    Args:
        live: the nodes with a finite scale, all leaves among them.
        reached: how often a walk is expected to reach each node, which says how long queues are at first.
        draw: charged before.
    """
    order, first = agreeing.walk_order(tree)
    begin, end = np.zeros(tree.size, np.int64), np.full(tree.size, -1)
    end[live] = 0
    total, draws, at = np.zeros(tree.size, np.int64), np.empty(0, np.int64), 0
    wanted = _FIRST + np.minimum(np.ceil(2.0 * reached[live]), _MOST).astype(np.int64)
    while at < tree.size:
        left = (end - begin)[live]
        more = np.where(2 * left < wanted, wanted - left, 0)
        asked = np.repeat(live, more)
        fresh, at_leaf = np.empty(asked.size, np.int64), tree.left[asked] == 0
        for some, signed in ((at_leaf, True), (~at_leaf, False)):
            fresh[some] = draw(asked[some], signed)
        draws, begin[live], end[live] = agreeing.queued(draws, begin[live], left, fresh, more)
        at = agreeing.walk(tree.left, order, first, draws, begin, end, total, at)
    return total[tree.leaf]
