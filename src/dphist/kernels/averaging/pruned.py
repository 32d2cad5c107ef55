"""Averages over all prunings of a tree of noisy totals: belief propagation, with the prior of ``offsets.py``.

Given the total T of a node, the measurements below it are independent of all others. So each node sends up
one message: what they say of T, the likelihood Z N(T; mean, variance), a mixture of the ways to divide the
node brought to its first two moments. Noise is taken to be normal with its exact variance, which decides how
well the average does and not what any interval says. From the root down each node then gets the mean of its
total. All of it is O(k) for k groups, besides looking up the neighbours of the nodes.

Half of the nodes are leaves, and half of the others are pairs of single bins. Of a leaf nothing is kept but
its measurement. Of a pair only its mean is: what the way down needs of it is worked out there again, from its
two leaves, where there are many. So the numbers that a node needs for the way down are kept for a quarter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

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
from dphist.kernels.trees.tree import Bytes, Nodes, Tree, node_variances

_LEARNING = 2  # passes in which the prior is learnt
_FEW = 1 << 17  # groups up to which pairs are kept, too: it takes less time
_BLOCK = 1 << 15  # inner nodes whose numbers for the way down lie together: small pieces fit anywhere
_EXACT = 1e-12  # below such a variance counts are known exactly
# The mean, the variance and the log evidence, and the log evidence of all counts from the node down being 0.
Message: TypeAlias = tuple[float, float, float, float]
_NOTHING: Message = (0.0, 0.0, 0.0, 0.0)
# Flags of a node: its left or right child is a pair, the node is measured, its left or right pair is.
_PAIRS, _OWN, _OWN_PAIRS = 1, 4, 8


@dataclass(frozen=True, eq=False)
class Gathered:
    """Noisy totals of a tree's nodes, gathered so that averages need neither the tree nor these any more.

    Inner nodes are the root and all that are no pair of two leaves of height 1; they are numbered level by
    level, as pairs are.

    Args:
        starts: where each group begins among the bins and, last, the number of bins.
        lo: the first group of each inner node.
        mid: the first group of its right child.
        hi: the group after its last.
        height: of each inner node.
        flags: which of its children are pairs, and which of these and itself are measured.
        leaf: the noisy total of each group and its variance, which is infinite if it was not measured. All
            have one variance where it is the same.
        inner: the same of all inner nodes that were measured.
        pair: the same of all pairs that were measured.
    """

    starts: Ints
    lo: Nodes
    mid: Nodes
    hi: Nodes
    height: Bytes
    flags: Bytes
    leaf: tuple[Floats, Floats]
    inner: tuple[Floats, Floats]
    pair: tuple[Floats, Floats]


def averaged_totals(tree: Tree, sizes: Ints, noisy: Floats, variance: Floats) -> Floats:
    """Return non-negative totals of the groups: O(k log k).

    Args:
        sizes: how many bins each group has.
        noisy: one noisy total per node; what stands at an unmeasured node is not looked at.
        variance: of each total's noise; infinity where there was no measurement.
    """
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return averaged(gathered(tree, starts, noisy, node_variances(tree, variance)))


def gathered(
    tree: Tree,
    starts: Ints,
    noisy: Floats | Ints,
    scale: Floats,
    variance: Callable[[Floats], Floats] | None = None,
) -> Gathered:
    """Return what `averaged` needs of a tree and its noisy totals: O(k).

    Args:
        starts: where each group begins among the bins and, last, the number of bins.
        noisy: one noisy total per node; what stands at an unmeasured node is not looked at.
        scale: of each total's noise; infinity where there was no measurement.
        variance: the variances of noise of some scales; None if the scales are variances themselves.
    """

    def measured(nodes: Ints | Nodes) -> tuple[Floats, Floats]:
        spread = scale[nodes]
        if spread.size and (spread == spread[0]).all():
            spread = spread[:1].copy()
        spread = np.maximum(spread if variance is None else variance(spread), _EXACT)
        found = noisy[nodes].astype(np.float64, copy=False)
        if not (np.isfinite(found) | np.isinf(spread)).all():
            raise UsageError(words)
        return found, spread

    words = f"averaging needs a finite noisy total at each of the {tree.size} nodes."
    if noisy.shape != (tree.size,) or scale.shape != (tree.size,) or starts.shape != (tree.k + 1,):
        raise UsageError(words)
    seen, two = np.isfinite(scale), tree.left > 0
    nodes = np.flatnonzero(two).astype(np.int32)
    two &= tree.height == 1
    two[nodes[tree.hi[nodes] - tree.lo[nodes] > 2]] = False
    two[0] = False
    nodes = nodes[~two[nodes]]
    left = tree.left[nodes]
    flags = np.where(seen[nodes], np.int8(_OWN), np.int8(0))
    for side in range(2):
        flags[two[left + side]] |= _PAIRS << side
        flags[two[left + side] & seen[left + side]] |= _OWN_PAIRS << side
    lo, mid, hi, height = tree.lo[nodes], tree.hi[left], tree.hi[nodes], tree.height[nodes]
    nodes, pairs = nodes[seen[nodes]], np.flatnonzero(two & seen)
    del seen, two, left
    return Gathered(starts, lo, mid, hi, height, flags, measured(tree.leaf), measured(nodes), measured(pairs))


def averaged(given: Gathered) -> Floats:
    """Return non-negative totals of the groups."""
    k, inner = given.starts.size - 1, given.lo.size
    found = [_largest(*given.leaf), _largest(*given.inner), _largest(*given.pair)]
    most, widest = (max(each) for each in zip(*found, strict=True))
    if widest == 0.0:  # nothing was measured
        return np.zeros(k)
    if k == 1:
        return np.maximum(given.leaf[0], 0.0)
    starts = given.starts.view()
    starts.flags.writeable = False
    tree = starts, given.lo, given.mid, given.hi, given.height, given.flags
    measured = *given.leaf, *given.inner, *given.pair, (1e3 * (most + np.sqrt(widest))) ** 2
    # The means of pairs, each at half of its first group's number, then those of inner nodes.
    means, below = np.zeros((k + 1) // 2 + inner), np.zeros(k + 1)
    drift, message = np.zeros((k + 1) // 2), np.empty((inner, 3))
    blocks = range(0, inner, _BLOCK)
    kept = [np.empty((min(_BLOCK, inner - begin), KEPT)) for begin in blocks]
    room = np.empty((drift.size if k <= _FEW else 2, KEPT + 2)), np.empty((2, PARTS)), np.zeros(2)
    prior = Prior.first(max(int(given.height.max()), 1) + 1)
    for i in range(_LEARNING + 1):
        counted = np.zeros((prior.empty.size if i < _LEARNING else 0, COUNTED))
        odds = np.empty((prior.empty.size, 2))
        _logarithms(prior.empty, odds)
        known = *tree, *measured, i == 0, odds, prior.mixture, *room, below, means, drift, message
        at = np.array([inner, given.inner[0].size, given.pair[0].size])
        for begin, own in zip(reversed(blocks), reversed(kept), strict=True):
            _rise(*known, begin, own, at, counted)
        at[:] = 1, 0, 0
        for begin, own in zip(blocks, kept, strict=True):
            _fall(*known, begin, own, at)
        if i < _LEARNING:
            prior = Prior.learnt(counted)
            np.cumsum(below, out=below)
    return below[1:]


def _largest(noisy: Floats, var: Floats) -> tuple[float, float]:
    """Return the largest of some noisy totals, and of their variances: of those that were measured."""
    seen = np.isfinite(var)
    return np.abs(noisy).max(initial=0.0, where=seen), var.max(initial=0.0, where=seen)


@kernel
def _logarithms(empty: Floats, odds: Floats) -> None:
    """Write the logarithms of how likely neither child of a node of each height is empty, and one of them."""
    for h in range(empty.size):
        odds[h, 0] = np.log(1.0 - 2.0 * empty[h])
        odds[h, 1] = np.log(empty[h])


@kernel
def _rise(
    starts: Ints,
    lo: Nodes,
    mid: Nodes,
    hi: Nodes,
    height: Bytes,
    flags: Bytes,
    leaf_noisy: Floats,
    leaf_var: Floats,
    noisy: Floats,
    var: Floats,
    pair_noisy: Floats,
    pair_var: Floats,
    open_variance: float,
    first: bool,
    odds: Floats,
    mixture: Floats,
    pair_kept: Floats,
    parts: Floats,
    last: Floats,
    below: Floats,
    means: Floats,
    drift: Floats,
    message: Floats,
    begin: int,
    kept: Floats,
    at: Ints,
    counted: Floats,
) -> None:
    """Write the message of every inner node of a block, and what is kept of it for the way down.

    Args:
        open_variance: of totals that nothing measures.
        first: whether there was no pass before.
        odds: see `_logarithms`.
        pair_kept: room for what is kept of all pairs, and for the mean and the variance of their messages; or
            for that of two pairs, of which it is worked out again on the way down.
        parts: room for the exponents and the probabilities of the mixture's parts.
        last: room for a variance and the logarithm made of it.
        below: the sums of the means of all groups before each, of the pass before.
        means: those of the pass before; an inner node's is replaced by that of its message.
        drift: room for the trends of pairs.
        message: the other numbers of every inner node's.
        begin: the first inner node of the block.
        kept: of each node of the block.
        at: how many inner nodes, measured inner nodes and measured pairs are children of, or are, nodes
            before those of the last block; brought forward to this one.
        counted: what `Prior.learnt` learns from is added to this, or to nothing if it is empty.
    """
    posterior, pairs, one, two = parts[1], means.size - lo.size, _NOTHING, _NOTHING
    child, own, own_pair = at
    for q in range(begin + len(kept) - 1, begin - 1, -1):
        for side in range(1, -1, -1):  # pairs are counted from the last to the first
            a = mid[q] if side else lo[q]
            b = hi[q] if side else mid[q]
            if b - a == 1:
                found = _leaf(leaf_noisy[a], _variance(leaf_var, np.int64(a)), open_variance, last)
            elif flags[q] & (_PAIRS << side):
                p, y, v = a >> 1, 0.0, np.inf
                if flags[q] & (_OWN_PAIRS << side):
                    own_pair -= 1
                    y, v = pair_noisy[own_pair], _variance(pair_var, own_pair)
                drift[p] = 0.0 if first else _trend(starts, below, a, b, means[p])
                row = pair_kept[p if len(pair_kept) == drift.size else side]
                found = _pair(
                    starts, a, leaf_noisy, leaf_var, open_variance, -1.0 if first else means[p], drift[p],
                    odds[1], mixture[1], y, v, parts, last, row,
                )  # fmt: skip
                row[KEPT], row[KEPT + 1] = found[0], found[1]
                if counted.size:
                    count(row, posterior, counted[1])
            else:
                child -= 1
                found = means[pairs + child], message[child, 0], message[child, 1], message[child, 2]
            if side:
                two = found
            else:
                one = found
        h, y, v, scale, away = height[q], 0.0, np.inf, -1.0, 0.0
        if flags[q] & _OWN:
            own -= 1
            y, v = noisy[own], _variance(var, own)
        if not first:
            scale = means[pairs + q]
            away = _trend(starts, below, lo[q], hi[q], scale)
        part = _part(starts[lo[q]], starts[mid[q]], starts[hi[q]])
        found = _divided(one, two, part, scale, away, odds[h], mixture[h], y, v, parts, kept[q - begin])
        means[pairs + q], message[q, 0], message[q, 1], message[q, 2] = found
        if counted.size:
            count(kept[q - begin], posterior, counted[h])
    at[0], at[1], at[2] = child, own, own_pair


@kernel
def _fall(
    starts: Ints,
    lo: Nodes,
    mid: Nodes,
    hi: Nodes,
    height: Bytes,
    flags: Bytes,
    leaf_noisy: Floats,
    leaf_var: Floats,
    noisy: Floats,
    var: Floats,
    pair_noisy: Floats,
    pair_var: Floats,
    open_variance: float,
    first: bool,
    odds: Floats,
    mixture: Floats,
    pair_kept: Floats,
    parts: Floats,
    last: Floats,
    below: Floats,
    means: Floats,
    drift: Floats,
    message: Floats,
    begin: int,
    kept: Floats,
    at: Ints,
) -> None:
    """Write the means of the totals of a block's children, from the root down; of groups into ``below``.

    The arguments are those of `_rise`, after which this is called for one block after another. ``at`` has how
    many inner nodes, the root besides, and measured pairs are children of nodes before the block.
    """
    pairs, one, two, (child, _, own_pair) = means.size - lo.size, _NOTHING, _NOTHING, at
    if begin == 0:
        below[0] = 0.0
        means[pairs] = max(means[pairs], 0.0)
    for q in range(begin, begin + len(kept)):
        older = child
        for side in range(2):
            a = mid[q] if side else lo[q]
            b = hi[q] if side else mid[q]
            if b - a == 1:
                found = _leaf(leaf_noisy[a], _variance(leaf_var, np.int64(a)), open_variance, last)
            elif flags[q] & (_PAIRS << side):
                p, y, v = a >> 1, 0.0, np.inf
                if flags[q] & (_OWN_PAIRS << side):
                    y, v = pair_noisy[own_pair], _variance(pair_var, own_pair)
                    own_pair += 1
                if len(pair_kept) == drift.size:
                    found = pair_kept[p, KEPT], pair_kept[p, KEPT + 1], 0.0, 0.0
                else:
                    found = _pair(
                        starts, a, leaf_noisy, leaf_var, open_variance, -1.0 if first else means[p], drift[p],
                        odds[1], mixture[1], y, v, parts, last, pair_kept[side],
                    )  # fmt: skip
            else:
                found = means[pairs + child], message[child, 0], 0.0, 0.0
                child += 1
            if side:
                two = found
            else:
                one = found
        total, part = means[pairs + q], _part(starts[lo[q]], starts[mid[q]], starts[hi[q]])
        given = _left(one, two, part, kept[q - begin], total)
        for side in range(2):
            a = mid[q] if side else lo[q]
            b = hi[q] if side else mid[q]
            mean = total - given if side else given
            if b - a == 1:
                below[b] = mean
            elif flags[q] & (_PAIRS << side):
                means[a >> 1] = mean
                one = _leaf(leaf_noisy[a], _variance(leaf_var, np.int64(a)), open_variance, last)
                two = _leaf(leaf_noisy[a + 1], _variance(leaf_var, a + 1), open_variance, last)
                row = pair_kept[a >> 1 if len(pair_kept) == drift.size else side]
                below[a + 1] = _left(one, two, _part(starts[a], starts[a + 1], starts[b]), row, mean)
                below[b] = mean - below[a + 1]
            else:
                means[pairs + older] = mean
                older += 1
    at[0], at[2] = child, own_pair


@subkernel
def _leaf(noisy: float, var: float, open_variance: float, last: Floats) -> Message:
    """Return the message of a leaf. Most have one variance, whose logarithm is not worked out again."""
    seen = np.isfinite(var)
    v = var if seen else open_variance
    if v != last[0]:
        last[0] = v
        last[1] = 0.5 * np.log(2.0 * np.pi * v)
    return noisy if seen else 0.0, v, last[1], 0.0 - 0.5 * noisy * noisy / var if seen else 0.0


@subkernel
def _variance(var: Floats, node: int | np.int64) -> float:
    """Return the variance of a leaf, a pair or an inner node, which may be that of all."""
    return float(var[node if var.size > 1 else 0])


@subkernel
def _pair(
    starts: Ints,
    a: int,
    leaf_noisy: Floats,
    leaf_var: Floats,
    open_variance: float,
    scale: float,
    drift: float,
    odds: Floats,
    mixture: Floats,
    noisy: float,
    var: float,
    parts: Floats,
    last: Floats,
    kept: Floats,
) -> Message:
    """Return the message of the pair of a group and the next; write what is kept of it for the way down."""
    one = _leaf(leaf_noisy[a], _variance(leaf_var, np.int64(a)), open_variance, last)
    two = _leaf(leaf_noisy[a + 1], _variance(leaf_var, a + 1), open_variance, last)
    part = _part(starts[a], starts[a + 1], starts[a + 2])
    return _divided(one, two, part, scale, drift, odds, mixture, noisy, var, parts, kept)


@subkernel
def _divided(
    one: Message,
    two: Message,
    part: float,
    scale: float,
    drift: float,
    odds: Floats,
    mixture: Floats,
    noisy: float,
    var: float,
    parts: Floats,
    kept: Floats,
) -> Message:
    """Return the message of a node from those of its children; write what is kept of it for the way down.

    Args:
        part: of the bins that the left child has.
        scale: the mean of the pass before; -1 in the first.
        drift: the trend.
        noisy: what was measured of the node, with the variance of its noise.
    """
    posterior = parts[1]
    mean1, v1, evidence1, empty1 = one
    mean2, v2, evidence2, empty2 = two
    t = scale if scale >= 0.0 else max(mean1 + mean2, 0.0)
    offset = (1.0 - part) * mean1 - part * mean2
    v = (1.0 - part) * (1.0 - part) * v1 + part * part * v2
    density = mixed(mixture, offset, v, mean1, v1, mean2, v2, t, drift, parts[0], posterior) - 0.5 * np.log(
        2.0 * np.pi
    )
    keep(posterior, v1 * (v2 / (v1 + v2)), t, drift, kept)
    # The ways to divide a node: both children, left empty, right empty.
    both = mean1 + mean2, v1 + v2, odds[0] + density + evidence1 + evidence2
    right = mean2, v2, evidence2 + (odds[1] + empty1)
    left = mean1, v1, evidence1 + (odds[1] + empty2)
    nothing = empty1 + empty2
    if np.isfinite(var):
        both, right, left = (
            _measured(both, noisy, var),
            _measured(right, noisy, var),
            _measured(left, noisy, var),
        )
        nothing -= 0.5 * noisy * noisy / var
    evidence = decided(both[2], right[2], left[2], kept)
    weight = 1.0 - kept[LEFT] - kept[RIGHT]
    mean = weight * both[0] + kept[LEFT] * right[0] + kept[RIGHT] * left[0]
    gap, gap_right, gap_left = both[0] - mean, right[0] - mean, left[0] - mean
    v = weight * (both[1] + gap * gap)
    v += kept[LEFT] * (right[1] + gap_right * gap_right)
    v += kept[RIGHT] * (left[1] + gap_left * gap_left)
    return mean, v, evidence, nothing


@subkernel
def _measured(way: tuple[float, float, float], noisy: float, var: float) -> tuple[float, float, float]:
    """Return a mean, a variance and a log evidence with one more measurement of the total."""
    mean, v, evidence = way
    both = v + var
    gap = noisy - mean
    evidence -= 0.5 * (gap * gap / both + np.log(both / var))
    return mean + v / both * gap, v * (var / both), evidence


@subkernel
def _part(lo: int, mid: int, hi: int) -> float:
    """Return the part of a node's bins that its left child has, given where the children begin and end."""
    return float(float(mid - lo) / float(hi - lo))


@subkernel
def _trend(starts: Ints, below: Floats, lo: int, hi: int, mean: float) -> float:
    """Return the trend of a node, with groups taken to be uniform; 0 where it has too few neighbours."""
    low, high = starts[lo], starts[hi]
    if 2 * low - high < 0 or 2 * high - low > starts[starts.size - 1]:
        return 0.0
    before = below[lo] - _sum_before(starts, below, 2 * low - high)
    return trend(before, mean, _sum_before(starts, below, 2 * high - low) - below[hi])


@subkernel
def _sum_before(starts: Ints, below: Floats, place: int) -> float:
    """Return the sum of all bins before a place, by linear interpolation inside a group."""
    k = starts.size - 1
    if starts[k] == k:
        return float(below[place])
    low, high = 0, k + 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= place:
            low = middle
        else:
            high = middle
    if starts[low] == place:
        return float(below[low])
    slope = (below[low + 1] - below[low]) / float(starts[low + 1] - starts[low])
    return float(slope * float(place - starts[low]) + below[low])


@subkernel
def _left(one: Message, two: Message, part: float, kept: Floats, total: float) -> float:
    """Return the mean of the left child's total, given the node's and the messages of both."""
    mean1, v1, _, _ = one
    mean2, v2, _, _ = two
    gap = total - mean1 - mean2
    given = mean1 + v1 / (v1 + v2) * gap
    return float(expected(kept, given - part * total, part, total))
