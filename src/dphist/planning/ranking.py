"""The ranking of methods in `advise` and `compare`: by mean error, with a test for ties with the best.

As in DPBench (Hay et al., SIGMOD 2016), a method is competitive if a paired t-test against the method of
least mean error finds no significant difference: two-sided, at a level divided by the number of comparisons
(Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.05
Trials = Mapping[Hashable, float]  # which trial, and its error: those of the same name are pairs


def ranked(errors: Mapping[str, Trials]) -> list[str]:
    """Return the methods by their mean error, the least first."""
    return sorted(errors, key=lambda method: math.fsum(errors[method].values()) / len(errors[method]))


def competitive(errors: Mapping[str, Trials], *, level: float = LEVEL) -> list[str]:
    """Return the methods not significantly worse than the one of least mean, best first.

    >>> errors = {"a": (5.0, 6.0, 5.5), "b": (5.1, 5.9, 5.6), "c": (9.0, 9.9, 9.4)}
    >>> competitive({method: dict(enumerate(e)) for method, e in errors.items()})
    ['a', 'b']
    """
    best, *others = ranked(errors)
    least = level / max(1, len(others))
    found = [best]
    for method in others:
        both = [at for at in errors[method] if at in errors[best]]
        if paired_t_test([errors[method][at] for at in both], [errors[best][at] for at in both]) >= least:
            found.append(method)
    return found


def paired_t_test(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of Student's t-test that pairs differ by nothing on average.

    Fewer than two pairs show nothing: 1. Pairs that all differ by the same leave no doubt: 0, or 1 if by 0.
    """
    d = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    if d.size < 2:
        return 1.0
    spread = float(d.std(ddof=1)) / math.sqrt(d.size)
    if spread == 0:
        return float(d.mean() == 0)
    return _beyond(float(d.mean()) / spread, d.size - 1)


def t_quantile(level: float, freedom: int) -> float:
    """Return what Student's t lies below with a probability of more than a half.

    >>> round(t_quantile(0.975, 9), 3)
    2.262
    """
    low, high = 0.0, 1.0
    while _beyond(high, freedom) > 2 * (1 - level):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(middle, freedom) > 2 * (1 - level) else (low, middle)
    return high


def _beyond(t: float, freedom: int) -> float:
    """Return the probability that Student's t is farther from 0, either way."""
    from dphist.kernels.beta import incomplete_beta

    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
