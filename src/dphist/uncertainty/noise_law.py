"""The law of the noise: discrete Laplace draws, their sums and their maxima. Public mathematics, no data.

With scale s and a = exp(-1/s), P(X = x) = (1 - a) / (1 + a) * a**abs(x). Every quantile here is the least
whole number that is wide enough, so that an interval covers at least its level (up to rounding, about 1e-13).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from statistics import NormalDist
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dphist.domain import shown
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError

_STEP, _NODES = 1 / 28, 560  # of the trapezoid rule in `_contour`: finer ones change no digit that counts
_SLOPE = 0.5  # real over imaginary part far out; below 1, so that no factor grows along the curve
_CLEAR = 0.6  # how near to the nearest pole the curve may cross the real axis
_BLOCK = 1 << 15  # scales whose variances are computed at once
_SLICE = 1024  # distinct scales handled at once, to bound memory
_FEW, _DEGREE = 64, 10  # numbers of draws in an octave that are not worth an interpolation, and its degree
_PARTS = 64  # steps between a normal law and a Laplace one, between which quantiles are interpolated
_SMALL = 100.0  # variance below which noise of whole numbers is not taken for continuous


@overload
def variance(scale: float) -> float: ...
@overload
def variance(scale: Floats) -> Floats: ...
def variance(scale: float | Floats) -> float | Floats:
    """Return the variance 2a / (1 - a)**2 of one draw, or of one draw per scale."""
    out = np.atleast_1d(-1 / _positive(scale))
    with np.errstate(divide="ignore"):  # an infinite scale has an infinite variance
        for at in range(0, out.size, _BLOCK):
            some = out[at : at + _BLOCK]
            below = np.expm1(some)
            np.exp(some, out=some)
            some *= 2
            some /= np.square(below, out=below)
    return out if isinstance(scale, np.ndarray) else float(out[0])


def scale_of(variance: Floats) -> Floats:
    """Return the scales of draws that have these variances, rounded up to three digits."""
    with np.errstate(invalid="ignore"):
        a = variance / (variance + 1.0 + np.sqrt(2.0 * variance + 1.0))
        exact = np.where(np.isinf(variance), np.inf, -1.0 / np.log(np.maximum(a, 1e-300)))
        unit = 10.0 ** (np.floor(np.log10(exact)) - 2.0)
        return np.where(np.isinf(exact), np.inf, np.ceil(exact / unit) * unit)


def tail(scale: float, k: float) -> float:
    """Return the probability that one draw is further than k from zero."""
    return float(_tail(_positive(scale), np.asarray(float(k))))


def quantile(scale: float, level: float) -> float:
    """Return the least whole k with P(abs(X) <= k) >= level; infinity for an infinite scale."""
    s, t = _positive(scale), 1 - check_level(level)
    return math.inf if math.isinf(s) else int(_least(s, t))


def sum_quantile(scales: Floats, repeats: Ints, level: float) -> float:
    """Return the least whole k with P(abs(S) <= k) >= level; infinity if a scale is.

    S is the sum of ``repeats[i]`` independent draws of ``scales[i]``, over all i.
    """
    s, m = _draws(scales, repeats)
    distinct, which = np.unique(s[m > 0], return_inverse=True)
    total = np.bincount(which, weights=m[m > 0], minlength=distinct.size).astype(np.int64)
    find = _sum_quantile if distinct.size <= 64 else _sum_quantile.__wrapped__  # long keys fill memory
    return find(tuple(distinct.tolist()), tuple(total.tolist()), check_level(level))


@lru_cache(maxsize=4096)
def _sum_quantile(scales: tuple[float, ...], repeats: tuple[int, ...], level: float) -> float:
    if not scales or math.isinf(scales[-1]):  # they rise
        return math.inf if scales else 0
    if repeats == (1,):
        return quantile(scales[0], level)
    t = 1 - level
    fixed, turning, high = _contour(np.array(scales), np.array(repeats), t)
    low, step = high, max(high // 32, 1)
    while low >= 0 and _sum_tail(fixed, turning, low) <= t:  # in growing steps: far below, rounding grows
        low, high, step = max(low - step, -1), low, 2 * step
    while high - low > 1:
        k = (low + high) // 2
        low, high = (low, k) if _sum_tail(fixed, turning, k) <= t else (k, high)
    return high


def sum_quantiles(scale: float, repeats: Ints, level: float) -> Floats:
    """Return `sum_quantile` of ``repeats[i]`` draws of one scale, for each i: O(size) for very many of them.

    The tail of m draws is a smooth function of m and k, both taken as real numbers, so where it crosses t is
    a smooth function of m, and the least whole k is that number, rounded up. It is interpolated inside each
    octave of m, and the interpolation is compared with the function itself between its nodes. A number that
    is nearer to a whole one than the interpolation is exact goes to `sum_quantile`, and so does an octave of
    few numbers, or one where the interpolation fails: the result is always that of `sum_quantile`.
    """
    s, level = float(_positive(scale)), check_level(level)
    if not repeats.size:
        return np.empty(0)
    distinct, place = _distinct(repeats)
    out = np.zeros(distinct.size)
    octaves = np.searchsorted(distinct, 2 ** np.arange(int(distinct[-1]).bit_length() + 1))
    for begin, end in zip([0, *octaves[:-1]], octaves, strict=True):
        out[begin:end] = _octave_quantiles(s, distinct[begin:end], level)
    return out[place]


def _distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, rising, and where each of ``numbers``, none negative, is among them."""
    most = int(numbers.max())
    if most > 16 * numbers.size:
        distinct, place = np.unique(numbers, return_inverse=True)
        return distinct, place
    seen = np.zeros(most + 1, dtype=bool)
    seen[numbers] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[numbers]


def _octave_quantiles(s: float, m: Ints, level: float) -> Floats:
    """Return the quantiles for rising numbers of draws that all lie between a power of two and the next."""

    def exact(draws: int) -> float:
        return sum_quantile(np.array([s]), np.array([draws]), level)

    if m.size <= _FEW or math.isinf(s):
        return np.array([exact(int(draws)) for draws in m], dtype=np.float64)
    low, t = math.log2(int(m[0])) // 1, 1 - level
    nodes = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    between = np.cos(np.pi * np.arange(1, _DEGREE + 1) / (_DEGREE + 1))

    def at(x: Floats) -> Floats:
        return np.array(
            [_crossing_of_tail(s, draws, t) / math.sqrt(draws) for draws in 2 ** (low + (x + 1) / 2)]
        )

    fit = np.polynomial.chebyshev.chebfit(nodes, at(nodes), _DEGREE)
    off = float(np.abs(np.polynomial.chebyshev.chebval(between, fit) - at(between)).max())
    roots = np.sqrt(m)
    crossing = np.polynomial.chebyshev.chebval(2 * (np.log2(m) - low) - 1, fit) * roots
    doubt = 4 * off * roots + 1e-13 * np.abs(crossing) + 1e-9
    if not doubt[-1] < 0.05:  # few distinct quantiles, or a tail that is not smooth; NaN too
        return _between(exact, m)
    out = np.maximum(np.ceil(crossing), 0.0)
    for i in np.flatnonzero(np.abs(crossing - np.round(crossing)) <= doubt):
        out[i] = exact(int(m[i]))
    return out


def _between(quantile_of: Callable[[int], float], m: Ints) -> Floats:
    """Return a quantile that does not fall in m, for rising m: between two equal ones it is the same."""
    out = np.empty(m.size)
    first, last = 0, m.size - 1
    out[first], out[last] = quantile_of(int(m[first])), quantile_of(int(m[last]))
    open_ends = [(first, last)]
    while open_ends:
        first, last = open_ends.pop()
        if out[first] == out[last]:
            out[first:last] = out[last]
        elif last - first > 1:
            middle = (first + last) // 2
            out[middle] = quantile_of(int(m[middle]))
            open_ends += [(first, middle), (middle, last)]
    return out


def _crossing_of_tail(s: float, m: float, t: float) -> float:
    """Return the real k at which the tail of m draws is t; NaN where Newton's steps do not settle."""
    fixed, turning, start = _contour(np.array([s]), np.array([m]), t)
    k, goal = min(float(start), normal_quantile(1 - t) * math.sqrt(m * variance(s))), math.log(t)
    for _ in range(50):
        each = np.exp(fixed - (2.0 * k + 1) * turning)
        tail, slope = float(each.imag.sum()), float(-2 * (each * turning).imag.sum())
        if not (tail > 0 and slope < 0):
            return math.nan
        step = (math.log(tail) - goal) * tail / slope
        k -= step
        if abs(step) <= 1e-13 * abs(k) + 1e-12:
            return k
    return math.nan


def joint_quantile(scales: Floats, repeats: Ints, level: float) -> Ints:
    """Return one k per scale such that all draws together stay within theirs with probability >= level.

    There are ``repeats[j]`` independent draws of ``scales[j]``. The k's are the quantiles at one common tail
    probability, the largest for which the product of the coverages still reaches the level.
    """
    s, m = _draws(scales, repeats)
    if np.isinf(s).any():
        raise UsageError("a joint band needs finite scales; leave out what was not measured.")
    goal = math.log(check_level(level))

    def enough(log_t: float) -> bool:
        covered = np.log1p(-np.minimum(_tail(s, _least(s, math.exp(log_t))), 1 - 1e-16))
        return float(m @ covered) >= goal

    # Draws that all had this tail would reach the level exactly; on a lattice a larger one may do.
    low, high = math.log(-math.expm1(goal / max(int(m.sum()), 1))) - 1e-12, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return _least(s, math.exp(low)).astype(np.int64)


@overload
def sum_margin_bound(sd: float, level: float) -> float: ...
@overload
def sum_margin_bound(sd: Floats, level: float) -> Floats: ...
def sum_margin_bound(sd: float | Floats, level: float) -> float | Floats:
    """Return a half-width wide enough for any sum of draws with this standard deviation, at levels from 0.9.

    It serves where very many sums are judged at once; `sum_quantile` is exact. One draw alone needs at most
    log(1/t) sqrt((sd**2 + 1/6) / 2) + 1/2, t = 1 - level, because 1/x**2 <= 1/sinh(x)**2 + 1/3. No sum was
    found to need more at levels from 0.92; at 0.9 the normal law does, by 1 %: hence 0.72, not 0.7071.
    """
    if check_level(level) < 0.9:
        raise UsageError(f"the simple margin holds for levels from 0.9, not {level}; ask for the exact one.")
    out = 0.72 * -math.log1p(-level) * np.sqrt(np.square(sd) + 1 / 6) + 0.5
    return out if isinstance(sd, np.ndarray) else float(out)


def normal_quantile(level: float) -> float:
    """Return z with P(abs(Z) <= z) = level for a standard normal variable Z."""
    return NormalDist().inv_cdf((1 + check_level(level)) / 2)


def mixed_quantile(part: Floats, level: float) -> Floats:
    """Return z with P(abs(X) <= z) = level, X of variance 1: one Laplace draw and a normal variable together.

    ``part`` is the draw's part of the variance, from 0 (normal) to 1 (Laplace). It is the law of a weighted
    sum of draws one of which outweighs the others.
    """
    return np.interp(part, np.linspace(0.0, 1.0, _PARTS + 1), _mixed_quantiles(check_level(level)))


# Much of the noise in the sum of a few values is that of their own answers, and not normal.
#
# Least squares gives the own answer of a value, of variance o, the weight V/o in a value of variance V, so
# that this draw has the part V/o of V. In a sum of m values, whose own answers have variances that add up to
# o, they have about V/o together, and each an equal part of it if they are alike. By their fourth cumulants
# they count as one draw with the part V/o / sqrt(m). Where the sum itself has an answer, of variance t, this
# has the part V/t besides; fourth cumulants add up, and so do the squares of such parts. At low levels, where
# that would be narrower than the normal law, the normal law is kept.


def sum_margins(
    variances: Floats,
    own: Floats,
    values: Ints | float,
    level: float,
    total: Floats | float = math.inf,
    *,
    whole: bool = False,
) -> Floats:
    """Return margins of sums of fitted values.

    Args:
        variances: of the sums; NaN where one is unknown, and so its margin.
        own: of each sum the variances of its values' own answers, added up; infinite where none is known.
        values: how many each sum has.
        total: the variance of an answer to the sum itself; infinite where none was measured.
        whole: whether answers are whole numbers. Where nothing but its own answer tells a value, and its
            noise is small, its margin is one, too: such noise is far from any continuous law.
    """

    def part_of(answers: Floats) -> Floats:
        known = np.broadcast_to(np.isfinite(answers), variances.shape)
        return np.divide(variances, np.maximum(answers, 1e-300), out=np.zeros_like(variances), where=known)

    part = np.hypot(part_of(np.sqrt(np.maximum(values, 1)) * own), part_of(np.asarray(total)))
    z = mixed_quantile(np.minimum(part, 1.0), level)
    margins = np.maximum(z, normal_quantile(level)) * np.sqrt(variances)
    if not whole:
        return np.asarray(margins)
    alone = (np.asarray(values) == 1) & (part > 1 - 1e-9) & (variances > 0) & (variances < _SMALL)
    return np.where(alone, np.maximum(margins, _whole_quantiles(variances, level)), margins)


def _whole_quantiles(variances: Floats, level: float) -> Floats:
    """Return for each variance the least whole k with P(abs(X) <= k) >= level, X discrete Laplace."""
    v = np.where((variances > 0) & (variances < _SMALL), variances, 1.0)
    return _least(1 / np.arccosh(1 + 1 / v), 1 - level)  # for v = 1 / (cosh(1/scale) - 1)


@lru_cache(maxsize=64)
def _mixed_quantiles(level: float) -> Floats:
    """Return the quantile for each of some parts, evenly spaced from 0 to 1."""
    inner = [_mixed_quantile(i / _PARTS, level) for i in range(1, _PARTS)]
    return np.array([normal_quantile(level), *inner, -math.log1p(-level) / math.sqrt(2)])


def _mixed_quantile(part: float, level: float) -> float:
    b, sd = math.sqrt(part / 2), math.sqrt(1 - part)

    def tail(z: float) -> float:
        """P(X > z): what the normal variable misses, and what the draw adds, integrated by parts."""
        there, back = sd / b - z / sd, sd / b + z / sd
        bell = 0.5 * math.exp(-0.5 * (z / sd) ** 2)
        beyond = 0.5 * math.erfc(z / sd / math.sqrt(2))
        if there > 0:
            return beyond + 0.5 * bell * (_scaled_erfc(there) - _scaled_erfc(back))
        inside = 0.5 * math.exp(0.5 * (sd / b) ** 2 - z / b) * math.erfc(there / math.sqrt(2))
        return beyond + 0.5 * inside - 0.5 * bell * _scaled_erfc(back)

    low, high = 0.0, 2.0 - 2 * math.log1p(-level)
    for _ in range(60):
        z = (low + high) / 2
        low, high = (z, high) if 2 * tail(z) > 1 - level else (low, z)
    return high


def _scaled_erfc(y: float) -> float:
    """Return exp(y^2 / 2) erfc(y / sqrt(2)) for y > 0."""
    if y < 30:
        return math.exp(0.5 * y * y) * math.erfc(y / math.sqrt(2))
    return math.sqrt(2 / math.pi) / y * (1 - 1 / y**2 + 3 / y**4)


def check_level(level: float) -> float:
    """Return a confidence level, or say what one is."""
    if isinstance(level, bool) or not isinstance(level, Real | Decimal) or not 0 < level < 1:
        raise UsageError(f"a level lies between 0 and 1, such as 0.95; not {shown(level)}.")
    return float(level)


def _tail(s: Floats, k: Floats) -> Floats:
    inside = 2 * np.exp(-(np.maximum(np.floor(k), -1.0) + 1) / s) / (1 + np.exp(-1 / s))
    return np.where(k < 0, 1.0, inside)


def _least(s: Floats, t: float) -> Floats:
    """Return, per scale, the least whole k whose tail is at most t, as floats (all below 2**53)."""
    k = np.maximum(np.ceil(s * (math.log(2 / t) - np.log1p(np.exp(-1 / s))) - 1), 0.0)
    # The logarithm may round across a whole number; the tail itself decides.
    k = np.where((k > 0) & (_tail(s, k - 1) <= t), k - 1, k)
    return np.where(_tail(s, k) > t, k + 1, k)


def _crossing(poles: Floats, m: Ints, t: float) -> tuple[float, int]:
    """Return where the curve should cross the real axis to resolve tails near t, and a k with a tail below t.

    That is the saddle point of the k where Chernoff's bound on P(S > k) is t/2, unless a pole is near: then
    the heaviest draws decide, and the bound falls at their rate.
    """
    goal = math.log(t / 2)

    def chernoff(b: float) -> tuple[float, float]:
        x = (b / poles) ** 2
        k = float(m @ (x / (1 - x))) / b * math.sqrt(1 + b * b)
        return -float(m @ np.log1p(-x)) - 2 * k * math.asinh(b), k

    low, high = 0.0, min(_CLEAR * float(poles.min()), 1e3)  # a larger b would only risk overflow
    bound, k = chernoff(high)
    if bound > goal:
        return high, math.ceil(k + (bound - goal) / (2 * math.asinh(high)))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if chernoff(middle)[0] <= goal else (middle, high)
    return high, math.ceil(chernoff(high)[1])


def _contour(s: Floats, m: Ints, t: float) -> tuple[NDArray[np.complex128], NDArray[np.complex128], int]:
    """Return what `_sum_tail` adds up, without k and per 2k + 1; and a k with a tail below t.

    In w = sinh(z/2), E exp(zS) is the product of (1 - (w/p)**2)**-m with poles p = sinh(1/2s), and P(S > k)
    is 1/(2 pi i) times the integral of that times exp(-(2k+1) asinh w) / (w sqrt(1 + w**2)) dw, upwards along
    any curve in the right half plane that crosses the real axis between 0 and the nearest pole. (The half
    plane is the strip abs(Im z) <= pi, on whose two edges the integrand agrees: the lattice is exact.) On the
    hyperbola w = b cosh u + i b/slope sinh u the real part of w**2 is largest at u = 0, so that no factor
    grows, and the exponential falls off like exp(-exp u): the trapezoid rule converges geometrically.
    """
    poles = np.sinh(np.minimum(0.5 / s, 350.0))  # beyond, a draw is 0 in double precision
    b, enough = _crossing(poles, m, t)
    u = _STEP * np.arange(_NODES)
    w = b * np.cosh(u) + 1j * (b / _SLOPE) * np.sinh(u)
    dw = b * np.sinh(u) + 1j * (b / _SLOPE) * np.cosh(u)
    fixed = np.log(2 * _STEP / np.pi * dw / (w * np.sqrt(1 + w * w)))
    fixed[0] -= math.log(2)  # half the weight: the other half of the curve is the mirror image
    for i in range(0, s.size, _SLICE):
        inverse = -1 / poles[i : i + _SLICE] ** 2
        x, y = np.outer(inverse, (w * w).real), np.outer(inverse, (w * w).imag)
        # log(1 + x + iy) without losing a small x, which a million draws would magnify
        size, angle = 0.5 * np.log1p(x * (2 + x) + y * y), np.arctan2(y, 1 + x)
        fixed -= m[i : i + _SLICE] @ size + 1j * (m[i : i + _SLICE] @ angle)
    return fixed, np.arcsinh(w), enough


def _sum_tail(fixed: NDArray[np.complex128], turning: NDArray[np.complex128], k: int) -> float:
    return float(np.exp(fixed - (2.0 * k + 1) * turning).imag.sum())


def _positive(scale: float | Floats) -> Floats:
    if not np.greater(scale, 0).all():
        raise UsageError("a scale of noise must be positive.")
    return np.asarray(scale, dtype=np.float64)


def _draws(scales: Floats, repeats: Ints) -> tuple[Floats, Ints]:
    s, m = _positive(scales), np.asarray(repeats)
    if s.ndim != 1 or m.shape != s.shape or m.dtype.kind not in "iu" or (m < 0).any():
        raise UsageError("repeats must be whole numbers, none negative, one for each scale.")
    return s, m.astype(np.int64)
