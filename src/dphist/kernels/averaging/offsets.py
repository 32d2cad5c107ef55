"""How a total is divided between two halves: the prior of the averages over trees, and how it is learnt.

A node of a binary tree has the total T, and its left child the part a of its bins. Either child is empty,
and so is everything below it, with probability ``empty`` each. Otherwise the offset D = T_left - a T is drawn
from a mixture of

* normals with mean 0, for each c of ``SPREADS``; with c = 0 the halves are alike;
* normals about the trend, the offset of a line through the node's neighbours, for each c of ``TRENDS``;
* one child being nearly empty: its total is half-normal with standard deviation c T, for each c of ``NEAR``.

The normals have the variance (c T)^2 of the rates and T/4 of records that fall to either half by chance.

All probabilities depend on the height of the node, and are learnt from the noisy numbers themselves by
expectation maximisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphist.domain.groups import Floats
from dphist.kernels import subkernel

SPREADS = np.array([0.0, 2.0**-5, 2.0**-3, 2.0**-1])
TRENDS = np.array([0.0, 2.0**-5])
NEAR = np.array([2.0**-10, 2.0**-7, 2.0**-4])
_S, _R, _N = SPREADS.size, TRENDS.size, NEAR.size
PARTS = _S + _R + 2 * _N  # of the mixture, in this order; left nearly empty, then right nearly empty

# What is kept of a node for the way down, a column each: the probability that the left or the right child is
# empty, and six sums over the mixture, see `keep`.
LEFT, RIGHT, GAIN, DRIFT, LOW, LOW_GAIN, HIGH, HIGH_GAIN = range(8)
KEPT = 8
NODES, EMPTIED = range(2)  # what is counted for each height to learn the prior; then the parts of the mixture
COUNTED = 2 + PARTS

_EMPTY, _NEAR, _TREND = 0.1, 0.01, 0.2  # the prior before anything is learnt
_UNEVEN = np.array([1.0, 1.0, 2.5, 7.5])  # how likely the spreads are, one beside the others
_NOTHING = -50.0  # a log of what need not be computed
_POOLED = 1.0  # nodes of the mean of all heights that count as much as those of one height
_MIXTURE = np.concatenate(
    (
        (1 - _NEAR - _TREND) * _UNEVEN / _UNEVEN.sum(),
        np.full(_R, _TREND / _R),
        np.full(2 * _N, _NEAR / (2 * _N)),
    )
)


@dataclass(frozen=True, eq=False)
class Prior:
    """The probabilities of each height.

    Args:
        empty: that the left child is empty, and again that the right one is.
        mixture: of the parts of the mixture, a row for each height.
    """

    empty: Floats
    mixture: Floats

    @classmethod
    def first(cls, heights: int) -> Prior:
        """Return the prior before anything is learnt."""
        return cls(np.full(heights, _EMPTY), np.tile(_MIXTURE, (heights, 1)))

    @classmethod
    def learnt(cls, counted: Floats) -> Prior:
        """Return the prior after a pass: what was counted at each height, drawn to the mean of all."""
        nodes, emptied = counted[:, :2].T
        parts = counted[:, 2:]
        mean = (emptied.sum() + _EMPTY) / (nodes.sum() + 1.0)
        empty = (emptied + _POOLED * mean) / (nodes + _POOLED)
        means = (parts.sum(axis=0) + 0.5 * PARTS * _MIXTURE) / (parts.sum() + 0.5 * PARTS)
        mixture = (parts + _POOLED * means) / (parts.sum(axis=1, keepdims=True) + _POOLED)
        return cls(np.clip(empty / 2.0, 0.0005, 0.45), mixture)


@subkernel
def trend(before: float, total: float, after: float) -> float:
    """Return the offset of a line through a node and its two neighbours of the same size.

    Its slope is limited as in finite volume schemes (van Leer 1977): none at a peak, and nowhere below 0.
    """
    down, up = total - before, after - total
    if down * up <= 0.0:
        return 0.0
    slope = min(0.5 * abs(down + up), 2.0 * abs(down), 2.0 * abs(up))
    return -0.125 * slope if up > 0.0 else 0.125 * slope


@subkernel
def spread(c: float, total: float) -> float:
    """Return the variance of an offset: that of the rate, and that of records which fall to either half."""
    return c * total * (c * total) + 0.25 * total


@subkernel
def mixed(
    mixture: Floats,
    offset: float,
    variance: float,
    left: float,
    left_variance: float,
    right: float,
    right_variance: float,
    total: float,
    drift: float,
    exponent: Floats,
    posterior: Floats,
) -> float:
    """Return the log density of a noisy offset, without the constant; fill in the parts' probabilities.

    Args:
        mixture: the prior probabilities of the parts.
        offset: the noisy offset, with the variance of its noise.
        left: the noisy total of the left child, and so on.
        total: what the standard deviations of the parts are relative to.
        drift: the trend.
        exponent: room for a number of each part; what it holds does not matter.
    """
    best = -np.inf
    for k in range(PARTS):
        if k < _S:
            x, v, sides, c = offset, variance + spread(SPREADS[k], total), 1.0, 0.0
        elif k < _S + _R:
            x, v, sides, c = offset - drift, variance + spread(TRENDS[k - _S], total), 1.0, 0.0
        elif k < _S + _R + _N:
            x, v, sides, c = left, left_variance, 2.0, NEAR[k - _S - _R] * total
        else:
            x, v, sides, c = right, right_variance, 2.0, NEAR[k - _S - _R - _N] * total
        narrow = 1.0 / np.sqrt(v + c * c)
        posterior[k] = sides * mixture[k] * narrow
        x *= narrow
        exponent[k] = -0.5 * x * x
        best = max(best, exponent[k])
    whole = 0.0
    for k in range(PARTS):
        below = exponent[k] - best
        posterior[k] = posterior[k] * np.exp(below) if below > _NOTHING else 0.0
        whole += posterior[k]
    share = 1.0 / whole
    for k in range(PARTS):
        posterior[k] *= share
    return float(best + np.log(whole))


@subkernel
def keep(posterior: Floats, variance: float, total: float, drift: float, kept: Floats) -> None:
    """Fill in the sums over the mixture from which `expected` computes the mean of the offset."""
    for k in range(GAIN, KEPT):
        kept[k] = 0.0
    for k in range(_S):
        own = spread(SPREADS[k], total)
        kept[GAIN] += posterior[k] * (own / (own + variance))
    for k in range(_R):
        own = spread(TRENDS[k], total)
        gain = own / (own + variance)
        kept[GAIN] += posterior[_S + k] * gain
        kept[DRIFT] += posterior[_S + k] * (1.0 - gain) * drift
    for k in range(_N):
        own = NEAR[k] * total
        own *= own
        gain = own / (own + variance)
        kept[LOW] += posterior[_S + _R + k]
        kept[LOW_GAIN] += posterior[_S + _R + k] * gain
        kept[HIGH] += posterior[_S + _R + _N + k]
        kept[HIGH_GAIN] += posterior[_S + _R + _N + k] * gain


@subkernel
def expected(kept: Floats, offset: float, part: float, total: float) -> float:
    """Return the mean of the left child's total, given the node's.

    Args:
        kept: of the node.
        offset: the noisy offset.
        part: a, of the bins that the left child has.
        total: of the node, not negative.
    """
    own, other = part * total, (1.0 - part) * total
    left, right = max(offset + own, 0.0), max(other - offset, 0.0)
    moved = kept[GAIN] * offset + kept[DRIFT] + kept[LOW_GAIN] * left - kept[LOW] * own
    moved += kept[HIGH] * other - kept[HIGH_GAIN] * right
    moved = min(max(moved, -own), other)
    both = 1.0 - kept[LEFT] - kept[RIGHT]
    return float(min(max(own + both * moved - kept[LEFT] * own + kept[RIGHT] * other, 0.0), total))


@subkernel
def decided(both: float, left: float, right: float, kept: Floats) -> float:
    """Return the log of the sum of three weights given by their logs; fill in two of the probabilities."""
    best = max(both, max(left, right))
    left, right = np.exp(left - best), np.exp(right - best)
    whole = np.exp(both - best) + left + right
    kept[LEFT] = left / whole
    kept[RIGHT] = right / whole
    return float(best + np.log(whole))


@subkernel
def count(kept: Floats, posterior: Floats, counted: Floats) -> None:
    """Add what one node says to what is counted of its height."""
    either = kept[LEFT] + kept[RIGHT]
    counted[NODES] += 1.0
    counted[EMPTIED] += either
    for k in range(PARTS):
        counted[2 + k] += (1.0 - either) * posterior[k]
