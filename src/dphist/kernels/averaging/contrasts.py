"""Averages of a least squares estimate over shifted binary trees and all their prunings.

A node's contrast is the estimate of D = T_left - a T, see ``offsets.py``. Its variance is known exactly; the
contrasts of one tree are taken to be independent and normal, which decides how well the average does and not
what any interval says. From the leaves up, each node gets the evidence for being uniform and for being
divided; from the root down, its mean given both. That is O(n) for each tree, and the mean over several trees,
each shifted against the others, has no steps at fixed places.

Node J of height h of the tree with shift s has the bins J 2^h - s to (J + 1) 2^h - s - 1, as far as they
exist, and the children 2J and 2J + 1 of height h - 1. A node with one child is that child.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.averaging import GOLDEN
from dphist.kernels.averaging.offsets import (
    COUNTED,
    HIGH,
    HIGH_GAIN,
    KEPT,
    LEFT,
    LOW,
    LOW_GAIN,
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

_AVERAGED = 8  # trees of which the mean is taken
_MANY = 1 << 17  # bins of all these trees together, at most
_BLOCK, _BLOCKS = 1 << 12, 16  # of more bins the prior is learnt from so many blocks of so many
_SAMPLE = 8  # nodes of one height and tree whose variances are worked out; those of the others are their mean
_ONLY = -1.0  # marks a node with one child, instead of a probability


class Spread(NamedTuple):
    """The variances of the contrasts of some trees, see `contrast_variances`."""

    shifts: tuple[int, ...]
    whole: Floats
    edges: Floats


def averaged_contrasts(x: Floats, variances: Callable[[Ints, Ints], Floats]) -> Floats:
    """Return non-negative bins: O(n) for each tree, besides a few hundred variances.

    Args:
        x: the bins by least squares.
        variances: of the sums of x over the bins lo[i] to hi[i] - 1, for arrays lo and hi.
    """
    _check(x)
    return averaged_by(x, spread_of(x.size, variances))


def spread_of(n: int, variances: Callable[[Ints, Ints], Floats]) -> Spread:
    """Return the variances of the contrasts of all trees over n bins."""
    span = 1 << (n - 1).bit_length()
    shifts = tuple(round(span * (i * GOLDEN % 1.0)) for i in range(sum(_trees(n))))
    return Spread(shifts, *contrast_variances(n, shifts, variances))


def averaged_by(x: Floats, spread: Spread) -> Floats:
    """Return non-negative bins; what the variances were worked out from is not needed any more."""
    _check(x)
    n = x.size
    learning, averaged = _trees(n)
    sums = _prefix_sums(x)
    prior = Prior.first(spread.whole.size) if learning else _from_blocks(x, spread.whole)
    scales, total = sums, np.zeros(0)
    for i, shift in enumerate(spread.shifts):
        counted = np.zeros((prior.empty.size if i < learning else 0, COUNTED))
        made = _averaged_tree(sums, scales, shift, spread.whole, spread.edges[i], prior, counted)
        if i < learning:
            prior = Prior.learnt(counted)
        scales = _prefix_sums(made) if i + 1 < len(spread.shifts) else scales
        if i == learning:
            total = made
        elif i > learning:
            total += made
    total += 0.0  # which is 0 where it was -0
    total /= averaged
    return total


def _check(x: Floats) -> None:
    if x.ndim != 1 or not x.size or not np.isfinite(x).all():
        raise UsageError("averaging needs finite estimates of one bin or more.")


def _trees(n: int) -> tuple[int, int]:
    """Return from how many trees of all bins the prior is learnt, and how many are averaged."""
    return (2 if n <= _MANY else 0), min(max(_MANY // n, 1), _AVERAGED)


def _from_blocks(x: Floats, whole: Floats) -> Prior:
    """Return the prior that blocks of many bins suggest, which lie far from each other."""
    first = Prior.first(whole.size)
    counted, heights = np.zeros((whole.size, COUNTED)), _BLOCK.bit_length()
    for begin in np.linspace(0, x.size - _BLOCK, _BLOCKS).astype(np.int64):
        sums = _prefix_sums(x[begin : begin + _BLOCK])
        edges = np.zeros((heights, 2))  # none is cut off
        _averaged_tree(sums, sums, 0, whole[:heights], edges, first, counted)
    return Prior.learnt(counted)


def _prefix_sums(x: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(x)))


def contrast_variances(
    n: int, shifts: Sequence[int], variances: Callable[[Ints, Ints], Floats]
) -> tuple[Floats, Floats]:
    """Return the variance of a whole node's contrast for each height; for each tree those of cut-off nodes.

    Whole nodes of one height have nearly equal ones, whatever the shift; only the first and the last node of
    a height can be cut off.
    """
    at, low, middle, high = _divided_nodes(n, tuple(shifts))
    one, two, both = np.split(
        variances(np.concatenate((low, middle, low)), np.concatenate((middle, high, high))), 3
    )
    part = (middle - low) / np.maximum(high - low, 1)
    # Var(T_left - a T), with the covariance of the children from the variance of their sum
    found = (1.0 - part) * one + part * two - part * (1.0 - part) * both
    found = np.maximum(found, 1e-12 * (one + two))
    heights, whole = _heights(n), 2 * len(shifts)
    cells = heights * (whole + 1)
    mean = np.bincount(at, found, minlength=cells) / np.maximum(np.bincount(at, minlength=cells), 1)
    mean = mean.reshape(heights, whole + 1)
    edges = mean[:, :whole].reshape(heights, len(shifts), 2).transpose(1, 0, 2)
    return np.ascontiguousarray(mean[:, whole]), np.ascontiguousarray(edges)


def _heights(n: int) -> int:
    return (1 << (n - 1).bit_length()).bit_length() + 1


@lru_cache(maxsize=16)  # the same for all estimates of as many bins, and a few thousand numbers
def _divided_nodes(n: int, shifts: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return nodes of all heights and trees with two children: cell of the table, first bin, middle, end.

    The table has a row for each height, two columns for each tree's first and last node, and one for all
    whole nodes.
    """
    whole = 2 * len(shifts)
    place, lows, middles, highs = [], [], [], []
    for h in range(1, _heights(n)):
        columns, nodes, moved = [], [], []
        for i, shift in enumerate(shifts):
            begin, end = -(-shift >> h), (n + shift) >> h  # the whole ones
            some = np.unique(np.linspace(begin, end - 1, _SAMPLE if end > begin else 0).astype(np.int64))
            nodes.append(np.concatenate(([shift >> h, (n - 1 + shift) >> h], some)))
            columns.append(np.concatenate(([2 * i, 2 * i + 1], np.full(some.size, whole))))
            moved.append(np.full(some.size + 2, shift))
        node, shift_of, column = (np.concatenate(each) for each in (nodes, moved, columns))
        low = np.maximum((node << h) - shift_of, 0)
        middle = (node << h) + (1 << (h - 1)) - shift_of
        high = np.minimum(((node + 1) << h) - shift_of, n)
        divided = (low < middle) & (middle < high)
        place.append((h * (whole + 1) + column)[divided])
        lows.append(low[divided])
        middles.append(middle[divided])
        highs.append(high[divided])
    at, low, middle, high = (
        np.concatenate([np.empty(0, np.int64), *a]) for a in (place, lows, middles, highs)
    )
    for kept in (at, low, middle, high):
        kept.flags.writeable = False  # it is shared
    return at, low, middle, high


def _averaged_tree(
    sums: Floats, scales: Floats, shift: int, whole: Floats, edges: Floats, prior: Prior, counted: Floats
) -> Floats:
    """Return the mean of every bin over the prunings of one tree; see `_tree`."""
    n, heights = sums.size - 1, np.arange(1, whole.size)
    nodes = ((n - 1 + shift) >> heights) - (shift >> heights) + 1
    rows = np.where((heights == 1) & (n > _MANY), 0, nodes)
    begin = np.concatenate(([0, 0], np.cumsum(rows)))
    inside = np.diff(sums)
    _tree(
        sums, scales, shift, whole, edges, prior.empty, prior.mixture, np.append(n, nodes), begin,
        np.empty((begin[-1] // 2, KEPT)), np.empty((begin[-1] - begin[-1] // 2 + 1, KEPT)),
        np.empty(nodes[0]), np.empty(nodes[0]), inside, np.empty((2, PARTS)), counted,
    )  # fmt: skip
    return inside


@kernel
def _tree(
    sums: Floats,
    scales: Floats,
    shift: int,
    whole: Floats,
    edges: Floats,
    empty: Floats,
    mixture: Floats,
    nodes: Ints,
    begin: Ints,
    kept: Floats,
    more: Floats,
    even: Floats,
    any_way: Floats,
    inside: Floats,
    parts: Floats,
    counted: Floats,
) -> None:
    """Let ``inside``, the bins' own estimates at first, be the mean of every bin over one tree's prunings.

    Args:
        sums: of the estimates up to each bin.
        scales: of an earlier result, up to each bin; the prior's standard deviations are relative to it.
        whole: the variance of a whole node's contrast, for each height.
        edges: of the first and the last node of each height.
        nodes: how many each height has, bins first.
        begin: in which rows of what is kept the nodes of each height are; bins are not. If nodes of two bins
            are not, either, what the way down needs of them is worked out there again, in the last row.
        kept: room for the first half of these rows; in two pieces they take memory that is free already.
        more: room for the others.
        even, any_way: room for the log evidence of a uniform node, and of one of which nothing is known, for
            every node of two bins; those of bins are 0.
        parts: room for the exponents and the probabilities of the mixture's parts.
        counted: what `Prior.learnt` learns from is added to this, or to nothing if it is empty.

    A node takes the place of one of its children, or of one before them, once these have been looked at.
    """
    n, heights = sums.size - 1, whole.size
    exponent, posterior = parts[0], parts[1]
    for h in range(1, heights):
        first, below = shift >> h, nodes[h - 1]
        divided, one_side = np.log(1.0 - 2.0 * empty[h]), np.log(empty[h])
        for j in range(nodes[h]):
            row = begin[h] + j if begin[h] < begin[h + 1] else begin[heights]
            own = kept[row] if row < len(kept) else more[row - len(kept)]
            left = 2 * (first + j) - (shift >> (h - 1))
            right = left + 1
            if left < 0 or right >= below:
                only = right if left < 0 else left
                even[j] = even[only] if h > 1 else 0.0
                any_way[j] = any_way[only] if h > 1 else 0.0
                inside[j] = inside[only]
                own[RIGHT] = _ONLY
                continue
            offset, part, scale, drift, v = _contrast(sums, scales, shift, whole, edges, h, first + j)
            evens, any_ways = (0.0, 0.0), (0.0, 0.0)
            if h > 1:
                evens, any_ways = (even[left], even[right]), (any_way[left], any_way[right])
            either = _divided(
                offset, part, scale, drift, v, divided, one_side, mixture[h], evens, any_ways, exponent,
                posterior, own,
            )  # fmt: skip
            low, high = max(((first + j) << h) - shift, 0), min(((first + j + 1) << h) - shift, n)
            inside[j] = _from_inside(own, sums[high] - sums[low], offset, part, inside[left], inside[right])
            even[j] = evens[0] + evens[1] - 0.5 * (offset * offset / v + np.log(v))
            any_way[j] = either
            if counted.size:
                count(own, posterior, counted[h])
    # Down: the means of the totals, from the last node of a height to the first.
    inside[0] = max(inside[0], 0.0)
    for h in range(heights - 1, 0, -1):
        first, again = shift >> h, begin[h] == begin[h + 1]
        divided, one_side = np.log(1.0 - 2.0 * empty[h]), np.log(empty[h])
        for j in range(nodes[h] - 1, -1, -1):
            total = inside[j]
            row = begin[heights] if again else begin[h] + j
            own = kept[row] if row < len(kept) else more[row - len(kept)]
            left = 2 * (first + j) - (shift >> (h - 1))
            if left < 0 or left + 1 >= nodes[h - 1]:
                inside[max(left, 0)] = total
                continue
            offset, part, scale, drift, v = _contrast(sums, scales, shift, whole, edges, h, first + j)
            if again:
                _divided(
                    offset, part, scale, drift, v, divided, one_side, mixture[h], (0.0, 0.0), (0.0, 0.0),
                    exponent, posterior, own,
                )  # fmt: skip
            inside[left] = expected(own, offset, part, total)
            inside[left + 1] = total - inside[left]


@subkernel
def _divided(
    offset: float,
    part: float,
    scale: float,
    drift: float,
    v: float,
    divided: float,
    one_side: float,
    mixture: Floats,
    even: tuple[float, float],
    any_way: tuple[float, float],
    exponent: Floats,
    posterior: Floats,
    own: Floats,
) -> float:
    """Return the log evidence of a node, and write what is kept of it.

    Args:
        divided: how likely it is that neither child is empty, as a logarithm.
        one_side: the same of one child.
        even, any_way: the log evidence of the left and the right child.
    """
    one = offset + part * scale
    two = scale - one
    density = mixed(mixture, offset, v, one, v, two, v, scale, drift, exponent, posterior)
    keep(posterior, v, scale, drift, own)
    emptied = one_side - 0.5 * np.log(v)
    return float(
        decided(
            divided + density + any_way[0] + any_way[1],
            emptied - 0.5 * one * one / v + even[0] + any_way[1],
            emptied - 0.5 * two * two / v + any_way[0] + even[1],
            own,
        )
    )


@subkernel
def _from_inside(kept: Floats, total: float, offset: float, part: float, left: float, right: float) -> float:
    """Return the estimate of a node's total that the division of its bins suggests.

    Beside a child that is empty, or nearly so, the other one's estimate is that of both, and has less noise.
    """
    one = max(part * total + offset, 0.0)
    two = max((1.0 - part) * total - offset, 0.0)
    apart = (1.0 - kept[LOW] - kept[HIGH]) * total
    apart += kept[LOW] * right + kept[LOW_GAIN] * one + kept[HIGH] * left + kept[HIGH_GAIN] * two
    return float((1.0 - kept[LEFT] - kept[RIGHT]) * apart + kept[LEFT] * right + kept[RIGHT] * left)


@subkernel
def _contrast(
    sums: Floats, scales: Floats, shift: int, whole: Floats, edges: Floats, h: int, node: int
) -> tuple[float, float, float, float, float]:
    """Return a node's contrast, its left child's part of the bins, its scale, its trend and the variance."""
    n = sums.size - 1
    begin = (node << h) - shift
    middle, end = begin + (1 << (h - 1)), begin + (1 << h)
    low, high = max(begin, 0), min(end, n)
    part = (middle - low) / (high - low)
    offset = sums[middle] - sums[low] - part * (sums[high] - sums[low])
    scale = max(scales[high] - scales[low], 0.0)
    if begin < 0 or end > n:
        return offset, part, scale, 0.0, edges[h, 0 if begin < 0 else 1]
    before, after = 2 * low - high, 2 * high - low
    if before < 0 or after > n:
        return offset, part, scale, 0.0, whole[h]
    drift = trend(scales[low] - scales[before], scale, scales[after] - scales[high])
    return offset, part, scale, drift, whole[h]
