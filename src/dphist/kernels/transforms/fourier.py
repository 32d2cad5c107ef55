"""Real Fourier sums with whole-number weights, exact for any counts; a ``Transform`` like the wavelet.

A fast Fourier transform rounds, and by how much depends on the counts, so that no exact bound on what a
record changes would hold. These are plain sums over a table of rounded cosines, O(n) for each frequency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.domain import whole
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.transforms.exact import exact_answers

Table = NDArray[np.int32]
MOST_WEIGHT = 1 << 16  # counts of up to 2^45 in all are answered exactly; answers beyond are cut off
MOST_FREQUENCIES = 4096  # more would be mostly noise
_MOST_TERMS = 1 << 29  # cells times frequencies: a second or two


@dataclass(frozen=True)
class Fourier:
    """Cosine and sine sums of the lowest frequencies 0, 1, ..., with weights rounded to whole numbers.

    Args:
        n: the number of cells.
        frequencies: how many, from 0; at most n // 2 + 1.
        weight: of a cosine of 1; rounding puts every weight off by at most a half.
    """

    n: int
    frequencies: int
    weight: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", whole(self.weight, "the weight"))
        if not 1 <= self.frequencies <= most_frequencies(self.n) or not 1 <= self.weight <= MOST_WEIGHT:
            raise UsageError("Fourier sums need 1 to n // 2 + 1 frequencies, and weights of 1 to 2**16.")

    @property
    def size(self) -> int:
        """How many sums: cosines, then sines, whose frequencies 0 and n/2 would be zero."""
        return self.frequencies + self.sines

    @property
    def sines(self) -> int:
        """How many sines."""
        return self.frequencies - 1 - (2 * (self.frequencies - 1) == self.n)

    def bound(self) -> int:
        """Return the worst cell's sum of |weights|."""
        return _fourier_bound(self)

    def __call__(self, counts: Ints) -> Ints:
        """Return the answers, cut off at +-2^61: O(n frequencies)."""
        cosines, sines = _tables(self.n, self.weight)

        def sums(x: Ints) -> Ints:
            return np.concatenate(_sums(x, cosines, sines, self.frequencies, self.sines))

        return exact_answers(sums, counts, most=self.weight)

    def inverse(self, answers: Floats) -> Floats:
        """Return the smooth row with these sums; the table's rounding is not undone."""
        spectrum = np.zeros(self.n // 2 + 1, np.complex128)
        spectrum[: self.frequencies] = answers[: self.frequencies] / self.weight
        spectrum[1 : self.sines + 1] -= 1j * answers[self.frequencies :] / self.weight
        return np.fft.irfft(spectrum, self.n) if self.n > 1 else spectrum.real

    def energies(self, answers: Ints) -> list[int]:
        """Return each frequency's squared sums, as often as it occurs in the whole circle: exact."""
        squares = [int(a) ** 2 for a in answers[: self.frequencies]]
        for f, b in enumerate(answers[self.frequencies :], 1):
            squares[f] = 2 * (squares[f] + int(b) ** 2)
        return squares

    def norm_bound(self) -> int:
        """Return at least how far one record can move the square root of the energies' sum."""
        cosines, sines = _tables(self.n, self.weight)
        most = int((cosines.astype(np.int64) ** 2 + sines.astype(np.int64) ** 2).max())
        return math.isqrt(most * (2 * self.frequencies - 1) - 1) + 1


def most_frequencies(n: int) -> int:
    """Return how many frequencies n cells have, or as many as there is time for."""
    return min(n // 2 + 1, MOST_FREQUENCIES, max(_MOST_TERMS // n, 64))


@lru_cache(maxsize=2)
def _tables(n: int, weight: int) -> tuple[Table, Table]:
    """Return the weights of a whole turn in n steps: even for cosines and odd for sines, exactly."""
    angle = 2 * np.pi * np.arange(n // 2 + 1) / n
    cosines, sines = np.empty(n, np.int32), np.zeros(n, np.int32)
    cosines[: n // 2 + 1] = np.rint(weight * np.cos(angle))
    sines[: n // 2 + 1] = np.rint(weight * np.sin(angle))
    if n > 2:
        cosines[n // 2 + 1 :] = cosines[1 : (n + 1) // 2][::-1]
        sines[n // 2 + 1 :] = -sines[1 : (n + 1) // 2][::-1]
    return cosines, sines


@kernel
def _sums(x: Ints, cosines: Table, sines: Table, frequencies: int, odd: int) -> tuple[Ints, Ints]:
    """Add up cells j and n - j together: they share their cosine, and their sine but for its sign."""
    n = x.size
    half = (n - 1) // 2
    even = np.empty(half + 1, np.int64)
    uneven = np.empty(half + 1, np.int64)
    for j in range(1, half + 1):
        even[j] = x[j] + x[n - j]
        uneven[j] = x[j] - x[n - j]
    a = np.empty(frequencies, np.int64)
    b = np.empty(odd, np.int64)
    for f in range(frequencies):
        total = np.int64(cosines[0]) * x[0]
        if n % 2 == 0:
            total += np.int64(cosines[(f * (n // 2)) % n]) * x[n // 2]
        other = np.int64(0)
        at = 0
        for j in range(1, half + 1):
            at += f
            if at >= n:
                at -= n
            total += np.int64(cosines[at]) * even[j]
            other += np.int64(sines[at]) * uneven[j]
        a[f] = total
        if 1 <= f <= odd:
            b[f - 1] = other
    return a, b


@lru_cache(maxsize=4)
def _fourier_bound(f: Fourier) -> int:
    cosines, sines = _tables(f.n, f.weight)
    return int(_column_sums(np.abs(cosines), np.abs(sines), f.frequencies, f.sines).max())


@kernel
def _column_sums(cosines: Table, sines: Table, frequencies: int, odd: int) -> Ints:
    """Add up the weights of cells 0 to n/2; those of the mirror images are the same."""
    n = cosines.size
    out = np.zeros(n // 2 + 1, np.int64)
    for j in range(out.size):
        at = 0
        for f in range(frequencies):
            out[j] += cosines[at]
            if 1 <= f <= odd:
                out[j] += sines[at]
            at += j
            if at >= n:
                at -= n
    return out
