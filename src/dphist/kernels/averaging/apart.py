"""Single bins that stand far above both neighbours: set aside, they do not divide the bins around them.

A high bin divides every block that holds it, so that the bins around it are averaged over smaller blocks than
they need be: where all others are alike or empty, over a half, a quarter, an eighth of them. Without it they
are one block. Whether that explains the noisy counts better is a question of evidence: that of the other bins
by themselves, times that of the high ones, each being such a one with the same probability, at a level that
may be anything (the scale-free law of `dyadic`); against the evidence of all bins together. Bins that differ
in many ways, or lie in heaps, are explained better together.

Whatever was averaged, on lines and grids, with a prior or without: a bin whose noisy count is farther from
its average than noise puts any of n bins, but for one release in fifty, is as it was measured. A few blocks
explain thousands of bins so well that the evidence of one bin does not outweigh another block.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats
from dphist.kernels.averaging.dyadic import LEARN, log_evidence, sampled
from dphist.kernels.averaging.partitions import dyadic_average

_HIGH = 2.0  # noise scales, besides log n: by so much, which noise seldom is, a bin is above both neighbours
_BETTER = 3.0  # nats of evidence
_TREES = 4  # by which evidence is weighed
_FEWEST = 8  # bins
_BEYOND = 4.0  # noise scales, besides log n, that none of n noises exceeds with a probability of 98 %


def standing_apart(noisy: Floats, scale: float) -> NDArray[np.bool_]:
    """Return which bins of a line are set aside: high ones, if the others are explained better without them.

    Args:
        noisy: counts of a line with independent Laplace noise.
        scale: of that noise.
    """
    n = noisy.size
    beside = np.concatenate(([-math.inf], noisy, [-math.inf]))
    high = noisy - np.maximum(beside[:-2], beside[2:]) > (_HIGH + math.log(max(n, 1))) * scale
    nobody = np.zeros(n, dtype=bool)
    if n < _FEWEST or not high.any():
        return nobody
    asked, among = noisy, high
    if n > LEARN:
        some = sampled(n)
        asked, among = noisy[some], high[some]
    return high if evidence_without(asked, scale, among) > _BETTER else nobody


def evidence_without(noisy: Floats, scale: float, high: NDArray[np.bool_]) -> float:
    """Return the log evidence for bins that are set aside, over that for all bins together."""
    n, many = noisy.size, int(high.sum())
    likely = (many + 0.5) / (n + 1)
    above = np.maximum(noisy[high], 0.0)  # beside a much lower bin one may be high, and below 0 itself
    of_high = many * math.log(likely) - float(np.log(2.0 * (above / scale + 2.0)).sum())
    of_others = (n - many) * math.log1p(-likely) + log_evidence(noisy[~high], scale, shifts=_TREES)
    return of_high + of_others - log_evidence(noisy, scale, shifts=_TREES)


def averaged_apart(noisy: Floats, scale: float, high: NDArray[np.bool_]) -> Floats:
    """Return averages over all dyadic partitions of the bins that are not set aside; the others as they are.

    Args:
        noisy: counts of a line, or rows of them, from which the same bins are set aside.
    """
    out, others = np.maximum(noisy, 0.0), ~high
    out[..., others] = dyadic_average(noisy[..., others], scale)[0]
    return out


def left_where_far(noisy: Floats, made: Floats, scale: float) -> Floats:
    """Return averages, which are changed: noisy counts that lie too far from theirs for noise are kept.

    Args:
        noisy: the counts that were averaged, or rows of them.
        made: their averages.
        scale: of the noise.
    """
    away = np.subtract(noisy, made)
    np.abs(away, out=away)
    far = away > (math.log(max(noisy.shape[-1], 1)) + _BEYOND) * scale
    made[far] = np.maximum(noisy[far], 0.0)
    return made
