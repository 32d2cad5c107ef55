"""Margins for quantiles and means of a histogram whose bins carry independent noise: Chernoff's bound."""

from __future__ import annotations

import math

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.uncertainty import noise_law


def quantile_margins(scales: float | Floats, edges: Ints, *, q: float, level: float) -> Floats | None:
    """Return, for each edge, a margin of (1-q) x (bins below) - q x (bins above); None if one is unbounded.

    Chernoff's bound: conservative, and the same work for a million edges as for one. With
    log E[exp(uX)] = -log1p(-2 var sinh(u/2)^2) for discrete Laplace noise X, every t > 0 for which this is
    finite bounds the margin by (log(2/(1-level)) + the sum of the logarithms at t) / t; the least over a
    grid of t is taken.

    Args:
        scales: of the noise, one for all bins or one for each.
        edges: rising, in bins; the last is the number of bins.
        q: which quantile, from 0 to 1.
        level: the confidence level.
    """
    variance = np.asarray(noise_law.variance(scales))
    worst = float(variance.max())
    if not math.isfinite(worst):
        return None
    n = int(edges[-1])
    log_chance = math.log(2.0 / (1.0 - level))
    # A scale so small that its noise is always 0 in double precision has the variance 0.
    limit = 2.0 * math.asinh(math.sqrt(0.5 / max(worst, 1e-300))) / max(q, 1.0 - q)
    # The best t is near limit * sqrt(log_chance / number of bins in play); beyond both ends the bound grows.
    grid = limit * np.geomspace(min(0.5, 0.5 * math.sqrt(log_chance / n)), 0.999, 32)
    best = np.full(edges.size, np.inf)
    for t in grid:
        below, above = (_sums_below(_log_moment(variance, w * t), edges) for w in (1.0 - q, q))
        np.minimum(best, (log_chance + below + above[-1] - above) / t, out=best)
    return best


def weighted_margin(scales: float | Floats, weights: Floats, *, level: float) -> float | None:
    """Return k such that a weighted sum of noise is above k with a probability of at most (1 - level) / 2.

    It is below -k likewise. Chernoff's bound. The logarithm of the moment of weight w and variance v at t is
    convex in w^2 and in v, and 0 where one is 0. So it is at most v w^2 / (V W^2) times that of
    the largest, V and W, and their sum is bounded in one step for every t.
    """
    variance = np.asarray(noise_law.variance(scales))
    worst, widest = float(variance.max()), float(np.abs(weights).max())
    if not math.isfinite(worst):
        return None
    if widest == 0.0 or worst == 0.0:
        return 0.0
    many = float((variance * (weights / widest) ** 2).sum()) / worst
    log_chance = math.log(2.0 / (1.0 - noise_law.check_level(level)))
    limit = 2.0 * math.asinh(math.sqrt(0.5 / worst)) / widest
    grid = limit * np.geomspace(min(0.5, 0.5 * math.sqrt(log_chance / max(many, 1.0))), 0.999, 64)
    logs = -np.log1p(-2.0 * worst * np.sinh(0.5 * widest * grid) ** 2)
    return float(((log_chance + many * logs) / grid).min())


def _log_moment(variance: Floats, u: float) -> Floats:
    return np.asarray(-np.log1p(-2.0 * variance * math.sinh(0.5 * u) ** 2), dtype=np.float64)


def _sums_below(each: Floats, edges: Ints) -> Floats:
    """Return the sum over the bins below each edge; one number stands for all bins."""
    if each.ndim == 0:
        return edges.astype(np.float64) * float(each)
    sums: Floats = np.concatenate(([0.0], np.cumsum(each)))
    return sums[edges]
