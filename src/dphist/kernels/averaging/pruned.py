"""Averages over all prunings of a tree of noisy totals: belief propagation, with the prior of ``offsets.py``.

Given the total T of a node, the measurements below it are independent of all others. So each node sends up
one message: what they say of T, the likelihood Z N(T; mean, variance), a mixture of the ways to divide the
node brought to its first two moments. Noise is taken to be normal with its exact variance, which decides how
well the average does and not what any interval says. From the root down each node then gets the mean of its
total. All of it is O(k) for k groups, besides looking up the neighbours of the nodes.
"""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.averaging.offsets import (
    COUNTED,
    KEPT,
    LEFT,
    PARTS,
    RIGHT,
    Prior,
    count,
    decided,
    expected,
    keep,
    mixed,
    trend,
)
from dphist.kernels.trees.tree import Bytes, Flags, Nodes, Tree, node_variances

_LEARNING = 2  # passes in which the prior is learnt
MEAN, VARIANCE, EVIDENCE = range(3)  # columns of a message


def averaged_totals(tree: Tree, sizes: Ints, noisy: Floats, variance: Floats) -> Floats:
    """Return non-negative totals of the groups: O(k log k).

    Args:
        sizes: how many bins each group has.
        noisy: one noisy total per node; what stands at an unmeasured node is not looked at.
        variance: of each total's noise; infinity where there was no measurement.
    """
    var = np.maximum(node_variances(tree, variance), 1e-12)  # below that counts are known exactly
    seen = np.isfinite(var)
    if noisy.shape != (tree.size,) or not np.isfinite(noisy[seen]).all() or sizes.shape != (tree.k,):
        raise UsageError(f"averaging needs a finite noisy total at each of the {tree.size} nodes.")
    if not seen.any():
        return np.zeros(tree.k)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    size = (starts[tree.hi] - starts[tree.lo]).astype(np.float64)
    open_variance = (1e3 * (np.abs(noisy[seen]).max() + np.sqrt(var[seen].max()))) ** 2
    zero, mean = np.zeros(tree.size), np.empty(tree.size)
    _if_empty(tree.left, noisy, var, zero)
    message, kept = np.zeros((tree.size, 3)), np.empty((tree.size, KEPT))
    prior = Prior.first(int(tree.height.max()) + 1)
    scale, drift = np.full(tree.size, -1.0), np.zeros(tree.size)
    for i in range(_LEARNING + 1):
        counted = np.zeros((prior.empty.size if i < _LEARNING else 0, COUNTED))
        _pass(
            tree.left, tree.height, size, noisy, var, zero, open_variance, scale, drift, prior.empty,
            prior.mixture, np.empty((3, 3)), np.empty((2, PARTS)), message, kept, counted,
        )  # fmt: skip
        _means(tree.left, size, message, kept, mean)
        if i < _LEARNING:
            prior = Prior.learnt(counted)
            scale, drift = mean.copy(), _trends(tree, starts, mean)
    return mean[tree.leaf]


def _trends(tree: Tree, starts: Ints, mean: Floats) -> Floats:
    """Return the trend of every node, with groups taken to be uniform."""
    n = starts[-1]
    sums = np.concatenate(([0.0], np.cumsum(mean[tree.leaf])))
    low, high = starts[tree.lo], starts[tree.hi]
    before, after = (
        np.interp(b, starts, sums) - np.interp(a, starts, sums)
        for a, b in ((2 * low - high, low), (high, 2 * high - low))
    )
    inside = (2 * low - high >= 0) & (2 * high - low <= n)
    out = np.zeros(mean.size)
    _limited(before, mean, after, inside, out)
    return out


@kernel
def _limited(before: Floats, mean: Floats, after: Floats, inside: Flags, out: Floats) -> None:
    for q in range(mean.size):
        if inside[q]:
            out[q] = trend(before[q], mean[q], after[q])


@kernel
def _if_empty(left: Nodes, noisy: Floats, var: Floats, out: Floats) -> None:
    """Write the log likelihood, without its constant, of all counts from each node down being 0, over 0."""
    for q in range(left.size - 1, -1, -1):
        if left[q] > 0:
            out[q] = out[left[q]] + out[left[q] + 1]
        if np.isfinite(var[q]):
            out[q] -= 0.5 * noisy[q] * noisy[q] / var[q]


@kernel
def _pass(
    left: Nodes,
    height: Bytes,
    size: Floats,
    noisy: Floats,
    var: Floats,
    zero: Floats,
    open_variance: float,
    scale: Floats,
    drift: Floats,
    empty: Floats,
    mixture: Floats,
    ways: Floats,
    parts: Floats,
    message: Floats,
    kept: Floats,
    counted: Floats,
) -> None:
    """Write every node's message, and what is kept of it for the way down.

    Args:
        zero: see `_if_empty`.
        open_variance: of totals that nothing measures.
        scale: the means of the pass before; -1 in the first.
        drift: the trends.
        ways: room for those of dividing the node: both children, left empty, right empty.
        parts: room for the exponents and the probabilities of the mixture's parts.
        counted: what `Prior.learnt` learns from is added to this, or to nothing if it is empty.
    """
    exponent, posterior = parts[0], parts[1]
    for q in range(left.size - 1, -1, -1):
        c, h = left[q], height[q]
        if c == 0:
            v = var[q] if np.isfinite(var[q]) else open_variance
            message[q, MEAN] = noisy[q] if np.isfinite(var[q]) else 0.0
            message[q, VARIANCE] = v
            message[q, EVIDENCE] = 0.5 * np.log(2.0 * np.pi * v)
            continue
        one, two, part = message[c], message[c + 1], size[c] / size[q]
        t = scale[q] if scale[q] >= 0.0 else max(one[MEAN] + two[MEAN], 0.0)
        offset = (1.0 - part) * one[MEAN] - part * two[MEAN]
        v = (1.0 - part) * (1.0 - part) * one[VARIANCE] + part * part * two[VARIANCE]
        density = mixed(
            mixture[h], offset, v, one[MEAN], one[VARIANCE], two[MEAN], two[VARIANCE], t, drift[q], exponent,
            posterior,
        ) - 0.5 * np.log(2.0 * np.pi)  # fmt: skip
        keep(
            posterior, one[VARIANCE] * (two[VARIANCE] / (one[VARIANCE] + two[VARIANCE])), t, drift[q], kept[q]
        )
        ways[0, MEAN] = one[MEAN] + two[MEAN]
        ways[0, VARIANCE] = one[VARIANCE] + two[VARIANCE]
        ways[0, EVIDENCE] = np.log(1.0 - 2.0 * empty[h]) + density + one[EVIDENCE] + two[EVIDENCE]
        for k in range(3):
            ways[1, k] = two[k]
            ways[2, k] = one[k]
        ways[1, EVIDENCE] += np.log(empty[h]) + zero[c]
        ways[2, EVIDENCE] += np.log(empty[h]) + zero[c + 1]
        if np.isfinite(var[q]):
            for w in range(3):
                _measured(ways[w], noisy[q], var[q])
        message[q, EVIDENCE] = decided(ways[0, EVIDENCE], ways[1, EVIDENCE], ways[2, EVIDENCE], kept[q])
        _moments(ways, kept[q], message[q])
        if counted.size:
            count(kept[q], posterior, counted[h])


@subkernel
def _measured(way: Floats, noisy: float, var: float) -> None:
    """Bring one more measurement of the total into a message."""
    both = way[VARIANCE] + var
    gap = noisy - way[MEAN]
    way[EVIDENCE] -= 0.5 * (gap * gap / both + np.log(both / var))
    way[MEAN] += way[VARIANCE] / both * gap
    way[VARIANCE] *= var / both


@subkernel
def _moments(ways: Floats, kept: Floats, message: Floats) -> None:
    """Fill in the mean and the variance of the mixture of three messages."""
    mean, v = 0.0, 0.0
    for w in range(3):
        mean += _weight(kept, w) * ways[w, MEAN]
    for w in range(3):
        gap = ways[w, MEAN] - mean
        v += _weight(kept, w) * (ways[w, VARIANCE] + gap * gap)
    message[MEAN] = mean
    message[VARIANCE] = v


@subkernel
def _weight(kept: Floats, way: int) -> float:
    """Return how likely it is that both children, the right one alone or the left one alone hold records."""
    if way == 0:
        return float(1.0 - kept[LEFT] - kept[RIGHT])
    return float(kept[LEFT] if way == 1 else kept[RIGHT])


@kernel
def _means(left: Nodes, size: Floats, message: Floats, kept: Floats, total: Floats) -> None:
    """Write the mean of every node's total, from the root down."""
    total[0] = max(message[0, MEAN], 0.0)
    for q in range(left.size):
        c = left[q]
        if c == 0:
            continue
        one, two, part = message[c], message[c + 1], size[c] / size[q]
        gap = total[q] - one[MEAN] - two[MEAN]
        given = one[MEAN] + one[VARIANCE] / (one[VARIANCE] + two[VARIANCE]) * gap
        total[c] = expected(kept[q], given - part * total[q], part, total[q])
        total[c + 1] = total[q] - total[c]
