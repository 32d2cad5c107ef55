"""Entropy, and the exact discrete Laplace sampler: the only place where noise is drawn.

The law. With scale s and a = exp(-1/s), P(X = x) = (1 - a)/(1 + a) a^|x| on all integers, so that for k >= 1
P(|X| >= k) = 2 a^k/(1 + a). Hence, for u uniform on (0, 1) and a fair sign of its own,

    |X| = floor(y),   y = -s ln(h u),   h = (1 + a)/2.

The one-sided (geometric) law P(G >= k) = a^k is the same formula with h = 1 and no sign.

Why the result is exact. u is a real number whose binary digits are drawn when they are needed: 63 of them
first, w = floor(2^63 u). y is computed in double precision and its floor is believed only where no integer
is within a proven bound of it. The rest, a share of about s/2^44, is decided in decimal arithmetic between
the values of y at both ends of the interval that the digits leave to u; while an integer lies between them,
64 more digits are drawn. Every result is therefore the true function of the digits, at every scale and in
all tails, and the same on every machine, whatever the last bits of its logarithm.

The bound. Assumed: IEEE doubles, round to nearest, exp and log within 4 units in the last place. Let
t = y/s > 0. The double of h w/2^63 is within a relative 2^-50 of its true value (a: 2^-50, halved in
a/(1 + a), and three roundings), u is below (w + 1)/2^63, and the logarithm and the product add 2^-50 t and
2^-53 t. So the double of y is within s((t + 1) 2^-49 + 2/w) of y, for any w >= 1. The code uses 8 times the
first term; and, before that, s 2^-40 for every w >= 2^44, which is 4 times the whole since t < 45.

A double is a binary fraction, so a scale is taken as exactly the number it is; scales are rounded up from
Fractions, which only adds noise. Running time depends slightly on the values drawn: attackers who can time
a single draw are out of scope.
"""

from __future__ import annotations

import decimal
import hashlib
import itertools
import math
import os
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dphist.domain import as_int
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.privacy import gaps
from dphist.privacy.ledger import Charge

MIN_SCALE, MAX_SCALE = 2.0**-10, 2.0**40
MAX_WHOLE = 1 << 40
_CHUNK = 1 << 15  # the buffers of one round stay in the cache
_SMALL_WORD = 1 << 44  # below it 1/w is not small against the first bound


class Stream:
    """The key stream of AES-256 in counter mode, as words of 64 random digits."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        aes = algorithms.AES(key)
        self._words = Cipher(aes, modes.CTR(bytes(16))).encryptor()
        self._more = Cipher(aes, modes.CTR(b"\x80" + bytes(15))).encryptor()  # counts from 2^127

    def words(self, k: int) -> NDArray[np.uint64]:
        """Return the next k words."""
        found = np.frombuffer(self._words.update(bytes(8 * k)), np.uint64)
        return found if sys.byteorder == "little" else found.byteswap()

    def more(self) -> int:
        """Return 64 further digits, from a part of the key stream that the words never reach."""
        return int.from_bytes(self._more.update(bytes(8)), "little")


class Source(Protocol):
    """Where streams come from; a sampler takes one per call."""

    simulated: bool

    def stream(self) -> Stream:
        """Return a stream that was never used before."""


class Secure:
    """The operating system's entropy: a fresh key per stream, nothing kept, no substitute when it fails."""

    simulated = False

    def stream(self) -> Stream:
        """Return a stream under a key nobody knows."""
        return Stream(os.urandom(32))


class Simulated:
    """Reproducible digits for tests and benchmarks: whoever knows the seed can remove the noise."""

    simulated = True

    def __init__(self, seed: int) -> None:
        self._seed = as_int(seed, "the seed")
        self._calls = itertools.count()

    def stream(self) -> Stream:
        """Return the next stream of this seed."""
        text = f"dphist simulated {self._seed:x} {next(self._calls):x}"
        return Stream(hashlib.sha256(text.encode()).digest())


def scale_for(epsilon: Fraction, sensitivity: int) -> float:
    """Return the least double at or above sensitivity/epsilon and the smallest scale there is."""
    exact = _ratio(epsilon, sensitivity)
    if exact > MAX_SCALE:
        raise _too_small()
    return max(_round_up(exact), MIN_SCALE)


def laplace(charge: Charge, *, sensitivity: int, size: int, source: Source) -> tuple[Ints, float]:
    """Return discrete Laplace draws that spend the charge, and their scale."""
    return Draws(charge, source).laplace(sensitivity=sensitivity, size=size)


def geometric(charge: Charge, *, sensitivity: int, size: int, source: Source) -> tuple[Ints, float]:
    """Return one-sided geometric draws, 0 and up, that spend the charge, and their scale."""
    return Draws(charge, source).geometric(sensitivity=sensitivity, size=size)


def laplace_each(
    charge: Charge, *, sensitivity: int, parts: Ints, whole: int, source: Source
) -> tuple[Ints, Floats]:
    """Return one discrete Laplace draw per part of the charge, and their scales.

    Args:
        charge: what all draws together spend; the caller has proved that the parts fit into it.
        sensitivity: by how much one unit can change what a draw is added to.
        parts: draw i costs ``parts[i] / whole`` of the charge; 0 draws nothing: value 0, scale infinite.
        whole: what the parts are parts of.
        source: where the digits come from.
    """
    top = _top(charge.epsilon, sensitivity, parts, whole)
    charge.use()
    if parts.min(initial=1) > 0:
        return _draw_each(top, parts, source.stream())
    draws, scales, stream = np.zeros(parts.size, np.int64), np.full(parts.size, np.inf), source.stream()
    for at in range(0, parts.size, _CHUNK):  # a stream's words are the same in chunks of any size
        live = at + np.flatnonzero(parts[at : at + _CHUNK])
        draws[live], scales[live] = _draw_each(top, parts[live], stream)
    return draws, scales


class Draws:
    """Several vectors of noise for one charge, of which the caller has proved that they cost it together."""

    def __init__(self, charge: Charge, source: Source) -> None:
        self._epsilon = charge.use()
        self._source = source

    def laplace(self, *, sensitivity: int, size: int) -> tuple[Ints, float]:
        """Return discrete Laplace draws and their scale."""
        scale = scale_for(self._epsilon, sensitivity)
        return _draw(np.array([scale]), size, self._source.stream(), signed=True), scale

    def geometric(self, *, sensitivity: int, size: int) -> tuple[Ints, float]:
        """Return one-sided geometric draws, 0 and up, and their scale."""
        scale = scale_for(self._epsilon, sensitivity)
        return _draw(np.array([scale]), size, self._source.stream(), signed=False), scale

    def of_parts(self, *, sensitivity: int, parts: Ints, whole: int, signed: bool) -> Ints:
        """Return a discrete Laplace draw, or a geometric one, for each part, of which none is 0."""
        top = _top(self._epsilon, sensitivity, parts, whole)
        return _draw_each(top, parts, self._source.stream(), signed=signed)[0]

    def lifted(self, *, sensitivity: int, threshold: int, n: int) -> Ints:
        """Return those of n bins, rising, whose own discrete Laplace draw is at least the threshold."""
        rate = gaps.Rate(scale_for(self._epsilon, sensitivity), threshold)
        return gaps.hits(n, rate, self._source.stream())


def scales_for(epsilon: Fraction, sensitivity: int, parts: Ints, whole: int) -> Floats:
    """Return the scales of draws that cost so many parts of a whole epsilon each, infinite for no part."""
    top = _top(epsilon, sensitivity, parts, whole)
    with np.errstate(divide="ignore"):
        return _scales(top, parts)


def _top(epsilon: Fraction, sensitivity: int, parts: Ints, whole: int) -> Fraction:
    """Return the scale of a draw that costs one part, having checked all parts."""
    whole = as_int(whole, "the whole")
    if not 1 <= whole <= MAX_WHOLE:
        raise UsageError(f"whole must be from 1 to 2**40, not {whole}.")
    if parts.dtype != np.int64 or parts.min(initial=0) < 0 or parts.max(initial=0) > whole:
        raise UsageError("parts must be int64 and from 0 to whole; scale them to integers first.")
    top = _ratio(epsilon, sensitivity) * whole
    if top > MAX_SCALE * int(parts.min(where=parts > 0, initial=MAX_WHOLE)):
        raise _too_small()
    return top


def _ratio(epsilon: Fraction, sensitivity: int) -> Fraction:
    exact = as_int(sensitivity, "the sensitivity")
    if exact < 1 or epsilon <= 0:
        raise UsageError("the sensitivity must be at least 1, and epsilon positive.")
    return exact / epsilon


def _round_up(exact: Fraction) -> float:
    near = exact.numerator / exact.denominator  # integers divide to the nearest double
    return near if near >= exact else math.nextafter(near, math.inf)


def _too_small() -> UsageError:
    return UsageError("epsilon is too small: its noise would be of a scale above 2**40; use a larger one.")


def _draw_each(top: Fraction, parts: Ints, stream: Stream, *, signed: bool = True) -> tuple[Ints, Floats]:
    """Return draws of scales at or above top/parts, and the scales."""
    scales = _scales(top, parts)
    same = scales.size > 1 and (scales == scales[0]).all()  # for which less is worked out
    return _draw(scales[:1] if same else scales, scales.size, stream, signed=signed), scales


def _scales(top: Fraction, parts: Ints) -> Floats:
    """Return scales at or above top/parts."""
    # The division rounds to nearest and so loses at most a relative 2^-53: 2^-52 are added first.
    bound = _round_up(top * (1 + Fraction(1, 1 << 52)))
    scales: Floats = np.divide(bound, parts)
    if bound < MIN_SCALE * int(parts.max(initial=0)):
        np.maximum(scales, MIN_SCALE, out=scales)
    return scales


def _draw(scales: Floats, size: int, stream: Stream, *, signed: bool) -> Ints:
    """Return draws of one scale, or of one scale each."""
    out = np.empty(size, np.int64)
    w_room, y_room, k_room = np.empty(min(size, _CHUNK), np.int64), *np.empty((2, min(size, _CHUNK)))
    with np.errstate(all="ignore"):  # exp may underflow to 0; of w = 0 the logarithm is -inf, see _settle
        s, h = scales, _factor(scales[:1], signed)
        for at in range(0, size, _CHUNK):
            found = out[at : at + _CHUNK]
            w, y, floor = w_room[: found.size], y_room[: found.size], k_room[: found.size]
            if scales.size > 1:
                s = scales[at : at + _CHUNK]
                h = _factor(s, signed)
            words = stream.words(found.size)
            np.right_shift(words, 1, out=w.view(np.uint64))
            np.multiply(w, h, out=y)
            np.log(y, out=y)
            y *= -s
            np.floor(y, out=floor)
            np.copyto(found, floor, casting="unsafe")
            y -= floor  # exact
            y -= 0.5
            np.abs(y, out=y)
            edge = 0.5 - s.max() * 2.0**-40  # from here on an integer is within the first bound
            if y.max() >= edge or w.min() < _SMALL_WORD:
                doubtful = np.flatnonzero((y >= edge) | (w < _SMALL_WORD))
                found[doubtful] = _settle(np.broadcast_to(s, w.shape)[doubtful], w[doubtful], stream, signed)
            if signed:  # the digit of the word that w does without; x ^ -1 is -x - 1
                sign = np.bitwise_and(words.view(np.int64), 1, out=w)
                np.negative(sign, out=sign)
                found ^= sign
                found -= sign
    return out


def _factor(scales: Floats, signed: bool) -> Floats:
    """Return h/2^63, which makes of w the argument of the logarithm."""
    if not signed:
        return np.full_like(scales, 2.0**-63)
    h = np.divide(-1.0, scales)
    np.exp(h, out=h)
    h += 1.0
    h *= 2.0**-64
    return h


def _settle(scales: Floats, w: Ints, stream: Stream, signed: bool) -> Ints:
    """Return floor(y) by the sharper bound where that will do, else exactly."""
    t = -np.log(w * _factor(scales, signed))
    y = scales * t
    floor = np.floor(y)
    bound = scales * ((t + 1.0) * 2.0**-46 + 2.0 / w)
    unsure = ~((y - floor > bound) & (floor + 1.0 - y > bound))  # w = 0 makes them NaN
    floor[unsure] = 0.0
    found = floor.astype(np.int64)
    for i in np.flatnonzero(unsure):
        found[i] = _exact(float(scales[i]), int(w[i]), stream, signed)
    return found


def _exact(scale: float, w: int, stream: Stream, signed: bool) -> int:
    """Return floor(y) in decimal arithmetic, from 63 digits w of u and as many more as it takes."""
    bits = 63
    while True:
        precision = bits // 3 + 12
        with decimal.localcontext(decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_EVEN)):
            s = Decimal(scale)  # exact, like the conversion of the integers below
            h = (1 + (-1 / s).exp()) / 2 if signed else Decimal(1)
            if w:
                # Every operation, exp and ln too, rounds correctly: to a relative e = 5/10^precision. 1/s,
                # exp and sum put h off by 2.4 e; half, product and quotient add e each, ln e t, and the
                # last steps 3 e(t + 1): less than 10 e s(t + 1) in all. The slack is twice that, and far
                # less than the s/2^bits or more that lie between the ends.
                t_low, t_high = (-(h * end / 2**bits).ln() for end in (w + 1, w))
                slack = s * Decimal(10) ** (2 - precision)
                low = math.floor(s * t_low - slack * (t_low + 1))
                high = math.floor(s * t_high + slack * (t_high + 1))
                if max(low, 0) == high:  # y is positive
                    return int(high)
        w, bits = (w << 64) | stream.more(), bits + 64
