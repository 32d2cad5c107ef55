"""Private splits of a tree: which of its nodes hold bins that differ, from the root down.

The tree. Its leaves are the bins in a public order; a node of height h is a run of ``fanout**h`` bins, the
last of a height being shorter. There may be several trees side by side instead, whose nodes have public sizes
that divide the next larger: each bin has one path all the same. The score s(v) of a node is the sum of
|x_j - median| over its bins, a whole number:

* one record more in bin p changes it by at most 1, up or down, and by 0 if p is not in v;
* it never exceeds its parent's: the parent's median is one of the centres that the child's median beats.

Both stay true of the smaller of the score and a public constant, the same for all nodes.

The mechanism. Scores are taken in fifths (GRID = 5). At depth d the threshold is first + d * step, first a
constant. A node that is reached, and is no single bin, is split iff max(5 s, threshold - slack) + Z >=
threshold, its own Z a discrete Laplace draw of scale l >= 6/e; slack >= 5 l/4 and step >= 2 slack + 5. The
nodes that were reached and not split are the groups. Nothing else is published.

Theorem. For one record more or less this costs e.

Proof. Fix the groups and bin p. Only the nodes on the path of p have other odds on x than on x': those down
to the group of p, all split but the last. Write g for max(5 s, threshold - slack) - threshold on x and g' on
x'; g and g' differ by at most 5. A node's odds change by a factor of at most exp(5/l) either way, and by
none if g = g' = -slack.

Let v be the lowest node of the path where they change. There one of the two, say g, exceeds -slack, so it
is 5 s - threshold. Scores do not fall on the way up and thresholds fall by a step, so i nodes further up the
same data set has at least g + i step, and the other at least g + i step - 5 >= (2i - 1) slack. Those nodes
are split. With a = exp(-1/l) a node is split with probability 1 - a^(g+1)/(1+a) for g >= 0, so between g and
g + 5 its logarithm moves by at most a^(g+1) (1 - a^5)/(1 + a - a^(g+1)) <= (5/l) t/(2 - t), t = a^g, as
1 - a^5 <= 5/l and a t/(1 + a - a t) grows with a. With t <= q^(2i-1), q = exp(-5/4), these add up over all i
to less than 0.181 * 5/l. Together with v itself: less than 1.181 * 5/l < 6/l <= e.

So thresholds that rise on the way down make a path of any length cost hardly more than one node: the idea of
PrivTree (Zhang, Xiao, Xie 2016), here for deviations, which may go either way, and with a smaller constant
because the step is twice the slack. The slack is also why bins that are alike are seldom split: with
probability at most exp(-5/4)/2 a node, but for a single root, whose threshold is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels.partition.node_sizes import node_sizes

GRID = 5
SENSITIVITY = 6  # what the noise is scaled to, in steps of the grid, for one record

# draw(size) returns integer noise, charged before
Draw = Callable[[int], Ints]
_CAP = 1 << 56  # of scores: public and the same for all nodes; nothing here adds scores up


def noisy_splits(x: Ints, draw: Draw, *, scale: float, fanout: int, blocks: int = 1) -> Ints:
    """Return where the groups start, and n; see the module's proof.

    Args:
        scale: of the noise that ``draw`` returns.
        blocks: how many trees there are, see `node_sizes`. The tops of several have the slack for a
            threshold, a single root has 0.
    """
    from dphist.kernels.partition import deviations

    sizes = node_sizes(x.size, fanout, blocks)
    scores = deviations.tree_costs(x, sizes)
    return _grown(x.size, sizes, lambda height, nodes: scores[height][nodes], draw, scale)


def sparse_splits(
    cells: Ints, tallies: Ints, n: int, draw: Draw, *, scale: float, fanout: int, blocks: int = 1
) -> Ints:
    """Return where the groups start among n bins, and n; only bins that hold records take memory.

    The same nodes, scores and draws as those of `noisy_splits`, so that the proof is the same: it uses
    neither the number of bins nor the depth. Scores are worked out where a node is reached; they are cut off
    at one constant for every n.

    Args:
        cells: the bins that hold records, rising.
        tallies: how many each of them holds.
    """
    from dphist.kernels.partition import deviations

    sizes = node_sizes(n, fanout, blocks)
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(tallies)))

    def scores(height: int, nodes: Ints) -> Ints:
        size = min(sizes[height], n)  # a root may be longer than int64 has numbers
        lo = nodes * size
        hi = lo + np.minimum(n - lo, size)
        first, last = np.searchsorted(cells, lo), np.searchsorted(cells, hi)
        return np.minimum(deviations.run_costs(tallies, sums, first, last, hi - lo), _CAP)

    return _grown(n, sizes, scores, draw, scale)


def _grown(n: int, sizes: list[int], scores: Callable[[int, Ints], Ints], draw: Draw, scale: float) -> Ints:
    """Split nodes from the tops down, their scores given by height and number; return the groups' starts."""
    slack = math.ceil(1.25 * scale) + 1  # one more than needed: the product is rounded
    step = 2 * slack + GRID
    reached = np.arange((n - 1) // sizes[-1] + 1, dtype=np.int64)
    starts, threshold = [], slack if sizes[-1] < n else 0
    for height in range(len(sizes) - 1, 0, -1):
        found = np.maximum(GRID * scores(height, reached), threshold - slack)
        split = found + draw(reached.size) >= threshold
        starts.append(reached[~split] * min(sizes[height], n))
        parts = sizes[height] // sizes[height - 1]
        below = (reached[split, None] * parts + np.arange(parts)).ravel()
        reached = below[below <= (n - 1) // sizes[height - 1]]
        threshold += step
        if not reached.size:
            break
    return np.sort(np.concatenate([*starts, reached, [n]]))
