"""Exact positions of the empty bins that noise lifts to a public threshold, in time of their number.

Every bin of N has noise Z, discrete Laplace of scale s (a double, taken as exactly the number it is), and an
empty bin is listed iff Z >= t, t >= 1. With a = exp(-1/s),

    p = P(Z >= t) = a^t/(1 + a),   r = -ln(1 - p).

The listed ones among empty bins are a Bernoulli(p) process, so that the gaps between them are geometric: the
number G of bins that are passed over has P(G >= k) = (1 - p)^k = exp(-k r).

Why no double of 62 digits is needed. Let M = 2^j and G = M H + L, 0 <= L < M. Then

    P(G = M h + l) = [exp(-h M r) (1 - exp(-M r))] * [exp(-l r) p/(1 - exp(-M r))],

so H and L are independent: H = floor(c E), E = -ln u, c = 1/(M r), and L has odds exp(-l r). j makes c at
least 2^20 where 1/r is: then L is j fair digits, accepted with probability exp(-l r) >= 1 - 2^-20. H is found
like the draws of `dphist.privacy.noise`, by the same bound with h = 1 (c is within a relative 2^-52, far
inside what is left of its factor 8), and only up to the number of blocks of M bins that there are: what lies
beyond the last bin need not be known. Whatever doubles do not decide is decided in decimal arithmetic with
proven bounds, and as many more digits of u as it takes. So every position is the true function of the digits.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Ints
from dphist.errors import UsageError

MOST_SCALES = 1100  # of a threshold: beyond, its decimals would be many
_HALF = 1 << 63
_LONGEST = 60  # digits of L: M H + L + 1 stays inside int64
_CHUNK = 1 << 20


class Digits(Protocol):
    """A stream of random digits."""

    def words(self, k: int) -> NDArray[np.uint64]:
        """Return the next k words of 64 digits."""

    def more(self) -> int:
        """Return 64 further digits, of their own."""


class Rate:
    """The real number r of a scale and a threshold, to any precision; public."""

    def __init__(self, scale: float, threshold: int) -> None:
        if threshold < 1:
            raise UsageError(f"a threshold is at least 1 record, not {threshold}.")
        if threshold > MOST_SCALES * scale:
            raise UsageError(
                f"a threshold of {threshold} records is far above the noise. List with a lower one, and "
                "leave out the smaller bins afterwards: that is free."
            )
        self.scale, self.threshold = scale, threshold
        r = self.at(30)
        with decimal.localcontext(decimal.Context(prec=40)):  # not that of the caller, who may have rounded
            inverse = 1 / r
            digits = math.floor(inverse.log10() / Decimal(2).log10()) - 20
            self.block = 1 << max(0, min(_LONGEST, digits))  # M
            # Where it is cut off, nothing is decided.
            self.c = float(min(inverse / self.block, Decimal(10) ** 300))

    @property
    def p(self) -> float:
        """The probability that an empty bin is listed, as a double."""
        return math.exp(-self.threshold / self.scale) / (1 + math.exp(-1 / self.scale))

    def at(self, precision: int) -> Decimal:
        """Return r within a relative 10^-precision.

        With w = precision + 8 + log10(exp(t/s)) digits, e = 5/10^w an operation: t/s, exp, sum and quotient
        put p off by a relative (t/s + 5) e < 1200 e; that, times 1/(1 - p) <= 2, goes to r. Rounding 1 - p
        costs e/p <= 2 exp(t/s) e, doubled by 1/(1 - p); ln costs e. In all less than 2400 e + 4 exp(t/s) e +
        e < 10^-precision.
        """
        digits = precision + 8 + math.ceil(self.threshold / self.scale / math.log(10))
        with decimal.localcontext(decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_EVEN)):
            s = Decimal(self.scale)
            p = (-self.threshold / s).exp() / (1 + (-1 / s).exp())
            return -(1 - p).ln()


def hits(n: int, rate: Rate, stream: Digits) -> Ints:
    """Return, rising, which of n bins are hit, each with probability p on its own: O(1 + n p) expected."""
    found = [np.empty(0, np.int64)]
    at, last = 0, False  # at: the first bin that is not decided yet
    while at < n and not last:
        left = (n - at) * rate.p
        size = int(min(left + 4 * math.sqrt(left) + 8, _CHUNK))
        high = _high_parts(rate, size, stream, n // rate.block + 1)
        gaps = high * rate.block + _low_parts(rate, size, stream) + 1  # at most n + 2 M + 1 < 2^63
        # Running sums in halves, so that they cannot wrap.
        upper, lower = np.cumsum(gaps >> 32), np.cumsum(gaps & 0xFFFFFFFF)
        upper += lower >> 32
        inside = upper <= n >> 32
        places = (upper[inside] << 32) + (lower[inside] & 0xFFFFFFFF) - 1  # counted from at
        places = places[places < n - at]
        found.append(places + at)
        last = places.size < size
        at += 0 if last else int(places[-1]) + 1
    return np.concatenate(found)


def _high_parts(rate: Rate, size: int, stream: Digits, most: int) -> Ints:
    """Return floor(-c ln u), or ``most`` where it is more, for fresh u."""
    w = (stream.words(size) >> np.uint64(1)).astype(np.int64)
    with np.errstate(all="ignore"):  # of w = 0 the logarithm is -inf, which decides nothing
        t = -np.log(w * 2.0**-63)
        y = rate.c * t
        bound = rate.c * ((t + 1.0) * 2.0**-46 + 2.0 / w)
        floor = np.floor(y)
        beyond = y - bound >= most
        sure = beyond | ((y - floor > bound) & (floor + 1.0 - y > bound))
        found = np.where(beyond, most, np.where(sure, floor, 0.0)).astype(np.int64)
    for i in np.flatnonzero(~sure):
        found[i] = min(_floor(rate, int(w[i]), stream), most)
    return np.minimum(found, most)


def _floor(rate: Rate, w: int, stream: Digits) -> int:
    """Return floor(-c ln u) in decimal arithmetic, from 63 digits w of u and as many more as it takes."""
    bits = 63
    while True:
        precision = bits // 3 + 15
        r = rate.at(precision)
        with decimal.localcontext(decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_EVEN)):
            if w:
                # Quotient, ln, product, quotient and r put an end off by less than 10/10^(precision - 1),
                # relative and (the ln near 0) absolute: the slack is ten times that.
                slack = Decimal(10) ** (3 - precision)
                ends = []
                for end, sign in ((w + 1, -1), (w, 1)):
                    e = -(Decimal(end) / 2**bits).ln()
                    ends.append(
                        math.floor((e + sign * slack * (e + 1)) / (r * rate.block) * (1 + sign * slack))
                    )
                if max(ends[0], 0) == ends[1]:
                    return int(ends[1])
        w, bits = (w << 64) | stream.more(), bits + 64


def _low_parts(rate: Rate, size: int, stream: Digits) -> Ints:
    """Return draws from 0 to M - 1 with odds exp(-l r): fair digits, rejected with probability below M r."""
    out, todo = np.zeros(size, np.int64), np.arange(size if rate.block > 1 else 0)
    sure = _HALF - math.ceil(1.001 * _HALF / rate.c) - 1  # below it, u < 1 - M r <= exp(-l r)
    shift = np.uint64(65 - rate.block.bit_length())
    while todo.size:
        low = (stream.words(todo.size) >> shift).astype(np.int64)
        w = (stream.words(todo.size) >> np.uint64(1)).astype(np.int64)
        accepted = w < sure
        for i in np.flatnonzero(~accepted):
            accepted[i] = _below(rate, int(low[i]), int(w[i]), stream)
        out[todo[accepted]] = low[accepted]
        todo = todo[~accepted]
    return out


def _below(rate: Rate, low: int, w: int, stream: Digits) -> bool:
    """Return whether u < exp(-l r), u of 63 digits w and as many more as it takes."""
    bits = 63
    while True:
        precision = bits // 3 + 15
        r = rate.at(precision)
        with decimal.localcontext(decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_EVEN)):
            # l r < 2^-19: product, exp and quotients err by far less than the slack.
            edge, slack = (-low * r).exp(), Decimal(10) ** (3 - precision)
            if Decimal(w + 1) / 2**bits <= edge - slack:
                return True
            if Decimal(w) / 2**bits >= edge + slack:
                return False
        w, bits = (w << 64) | stream.more(), bits + 64
