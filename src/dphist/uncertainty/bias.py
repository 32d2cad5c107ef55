"""Estimating the bias of bins that share a value from noisy sums of |count - value|: pure mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dphist.domain.groups import Floats, Ints


def fit_bias(noise: Floats, prior: Floats, weights: Ints, bound: float) -> Floats:
    """Return biases that agree with a bound on the sum of distances: the prior ones, enlarged or cut down.

    Args:
        noise: the mean deviation by noise alone, of each group.
        prior: the bias expected of each group.
        weights: how often each group's distance is in the sum.
        bound: an upper confidence bound of the sum; if the prior predicts more, the largest biases are cut.
    """

    def total(bias: Floats) -> float:
        return float(weights @ np.hypot(noise, bias))

    if total(prior) > bound:
        return np.minimum(prior, _solve_increasing(lambda b: total(np.minimum(prior, b)), bound))
    return np.hypot(prior, _solve_increasing(lambda b: total(np.hypot(prior, b)), bound))


def _solve_increasing(function: Callable[[float], float], goal: float) -> float:
    """Return where an increasing function on [0, infinity) reaches a goal; 0 if it starts above."""
    low, high = 0.0, 1.0
    if function(0.0) >= goal:
        return 0.0
    while function(high) < goal:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < goal else (low, middle)
    return high


def isotonic_sums(sums: Floats, sizes: Ints) -> Floats:
    """Return the sums nearest to these whose means do not decrease (pool adjacent violators)."""
    pools: list[tuple[float, int, int]] = []
    for value, size in zip(sums.tolist(), sizes.tolist(), strict=True):
        pools.append((value, size, 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            (a, m, c), (b, w, d) = pools[-2:]
            pools[-2:] = [(a + b, m + w, c + d)]
    means = np.concatenate([np.full(count, total / max(size, 1)) for total, size, count in pools])
    return means * sizes


def poisson_mean_deviation(mean: Floats) -> Floats:
    """Return E|X - m| of Poisson counts X of mean m: 2 exp(-m) m^(k+1) / k!, k being m rounded down."""
    m = np.maximum(mean, 0.0)
    k = np.minimum(np.floor(m), 50)
    log_factorial = np.array([math.lgamma(i + 1) for i in range(51)])[k.astype(np.int64)]
    exact = 2 * np.exp(-np.minimum(m, 60) + (k + 1) * np.log(np.clip(m, 1e-300, 60)) - log_factorial)
    return np.where(m < 50, exact, np.sqrt(2 / math.pi * m))
