"""The regularised incomplete beta function: the distribution function of beta laws and of Student's t."""

from __future__ import annotations

import math

from dphist.kernels import kernel, subkernel

_TINY = 1e-300
_MOST = 10_000  # terms of the fraction


@kernel
def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges quickly on the other side
        return 1.0 - _below(b, a, 1.0 - x)
    return _below(a, b, x)


@subkernel
def _below(a: float, b: float, x: float) -> float:
    """Return it for a small x."""
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST):  # Lentz's method
        even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        d, c = 1.0 / _away(1.0 + even * d), _away(1.0 + even / c)
        value *= c * d
        d, c = 1.0 / _away(1.0 + odd * d), _away(1.0 + odd / c)
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value / a


@subkernel
def _away(x: float) -> float:
    return x if abs(x) > _TINY else _TINY
