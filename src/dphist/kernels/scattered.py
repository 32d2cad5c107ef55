"""Ranges over groups that are not runs of neighbours: which hold whole groups, and squares of counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel

_FEW = 8  # ranges that are not worth a table


def whole_ranges(labels: Ints, k: int, lo: Ints, hi: Ints) -> NDArray[np.bool_]:
    """Return which ranges [lo, hi) hold all bins of every group they touch: O((n + m) log n).

    A range does so if its bins' groups begin at lo or later and end before hi. The least over a range is read
    from tables of the least over 1, 2, 4, ... neighbours; few ranges are looked at directly.

    Args:
        labels: the group of each bin.
        k: the number of groups.
    """
    bins = np.arange(labels.size)
    first, last = np.empty(k, np.int64), np.empty(k, np.int64)
    last[labels] = bins  # the last assignment holds
    first[labels[::-1]] = bins[::-1]
    begins, ends = first[labels], -last[labels]
    out = np.ones(lo.size, dtype=np.bool_)
    if lo.size <= _FEW:
        for i, (a, b) in enumerate(zip(lo, hi, strict=True)):
            out[i] = a == b or (begins[a:b].min() >= a and ends[a:b].min() > -b)
        return out
    _compare_least(begins, lo, hi, lo, out)
    _compare_least(ends, lo, hi, 1 - hi, out)
    return out


@kernel
def _compare_least(each: Ints, lo: Ints, hi: Ints, bound: Ints, out: NDArray[np.bool_]) -> None:
    """Clear ``out`` where the least of a range is below its bound; ``each`` becomes a table of spans."""
    span = 1
    while span <= each.size:
        for i in range(lo.size):
            length = hi[i] - lo[i]
            if span <= length < 2 * span and min(each[lo[i]], each[hi[i] - span]) < bound[i]:
                out[i] = False
        for j in range(each.size - span):
            each[j] = min(each[j], each[j + span])
        span *= 2


def sums_of_squares(labels: Ints, weights: Floats, lo: Ints, hi: Ints) -> Floats:
    """Return, for each range, the sum over the groups of weight x (bins of the group in the range) squared.

    The ranges are visited in such an order that one differs little from the next (Mo's algorithm): O(n sqrt
    m) steps for m ranges. No near-linear way is known. Squares are added as integers, for each weight apart:
    the result does not depend on which other ranges are asked.

    Args:
        labels: the group of each bin.
        weights: of each group, finite.
    """
    distinct, kinds = np.unique(weights, return_inverse=True)
    if lo.size <= _FEW:
        return np.array([_directly(labels[a:b], kinds, distinct) for a, b in zip(lo, hi, strict=True)])
    block = max(int(labels.size / max(lo.size, 1) ** 0.5), 1)
    part = lo // block
    visit = np.lexsort((np.where(part % 2 == 0, hi, -hi), part))
    return _visit(labels, kinds.astype(np.int64), distinct, lo, hi, visit)


def _directly(labels: Ints, kinds: Ints, distinct: Floats) -> float:
    """Return the sum for one range; the numbers are added in the order in which ``_visit`` adds them."""
    squares = np.zeros(distinct.size, np.int64)
    np.add.at(squares, kinds, np.bincount(labels, minlength=kinds.size) ** 2)
    return float(np.cumsum(distinct * squares)[-1])


@kernel
def _visit(labels: Ints, kinds: Ints, distinct: Floats, lo: Ints, hi: Ints, visit: Ints) -> Floats:
    inside = np.zeros(kinds.size, np.int64)
    squares = np.zeros(distinct.size, np.int64)
    out = np.zeros(lo.size)
    begin = end = 0
    for i in visit:
        while begin > lo[i]:
            begin -= 1
            g = labels[begin]
            squares[kinds[g]] += 2 * inside[g] + 1
            inside[g] += 1
        while end < hi[i]:
            g = labels[end]
            squares[kinds[g]] += 2 * inside[g] + 1
            inside[g] += 1
            end += 1
        while begin < lo[i]:
            g = labels[begin]
            inside[g] -= 1
            squares[kinds[g]] -= 2 * inside[g] + 1
            begin += 1
        while end > hi[i]:
            end -= 1
            g = labels[end]
            inside[g] -= 1
            squares[kinds[g]] -= 2 * inside[g] + 1
        total = 0.0
        for d in range(distinct.size):
            total += distinct[d] * squares[d]
        out[i] = total
    return out
