"""Real Fourier sums with whole-number weights, exact for any counts.

A fast Fourier transform rounds, and by how much depends on the counts, so that no exact bound on what a
record changes would hold. These are plain sums over a table of rounded cosines, O(n) for each frequency.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints, frozen
from dphist.kernels import kernel
from dphist.kernels.transforms.exact import exact_answers

Table = NDArray[np.int32]
MOST_WEIGHT = 1 << 16  # counts of up to 2^45 in all are answered exactly; answers beyond are cut off
MOST_FREQUENCIES = 4096  # more would be mostly noise
_MOST_TERMS = 1 << 29  # cells times frequencies: a second or two


def sine_count(n: int, frequencies: int) -> int:
    """Return how many sine sums there are: those of frequencies 0 and n/2 would be zero."""
    return frequencies - 1 - (2 * (frequencies - 1) == n)


def fourier_answers(counts: Ints, frequencies: int, weight: int) -> Ints:
    """Return the cosine sums, then the sine sums, each cut off at +-2^61: O(n frequencies)."""
    cosines, sines = tables(counts.size, weight)
    odd = sine_count(counts.size, frequencies)

    def sums(x: Ints) -> Ints:
        return np.concatenate(_sums(x, cosines, sines, frequencies, odd))

    return exact_answers(sums, counts, most=weight)


def fourier_cells(answers: Floats, n: int, frequencies: int, weight: int) -> Floats:
    """Return the smooth row of n cells with these sums; the table's rounding is not undone."""
    odd = sine_count(n, frequencies)
    spectrum = np.zeros(n // 2 + 1, np.complex128)
    spectrum[:frequencies] = answers[:frequencies] / weight
    spectrum[1 : odd + 1] -= 1j * answers[frequencies:] / weight
    return np.fft.irfft(spectrum, n) if n > 1 else spectrum.real


def energies(answers: Ints, frequencies: int) -> list[int]:
    """Return each frequency's squared sums, as often as it occurs in the whole circle: exact."""
    squares = [int(a) ** 2 for a in answers[:frequencies]]
    for f, b in enumerate(answers[frequencies:], 1):
        squares[f] = 2 * (squares[f] + int(b) ** 2)
    return squares


@lru_cache(maxsize=4)
def column_sums(n: int, frequencies: int, weight: int) -> Ints:
    """Return the sum of |weights| of each of the cells 0 to n/2; the others are their mirror images."""
    cosines, sines = tables(n, weight)
    return frozen(_column_sums(np.abs(cosines), np.abs(sines), frequencies, sine_count(n, frequencies)))


def most_frequencies(n: int) -> int:
    """Return how many frequencies n cells have, or as many as there is time for."""
    return min(n // 2 + 1, MOST_FREQUENCIES, max(_MOST_TERMS // n, 64))


@lru_cache(maxsize=2)
def tables(n: int, weight: int) -> tuple[Table, Table]:
    """Return the weights of a whole turn in n steps: even for cosines and odd for sines, exactly."""
    angle = 2 * np.pi * np.arange(n // 2 + 1) / n
    cosines, sines = np.empty(n, np.int32), np.zeros(n, np.int32)
    cosines[: n // 2 + 1] = np.rint(weight * np.cos(angle))
    sines[: n // 2 + 1] = np.rint(weight * np.sin(angle))
    if n > 2:
        cosines[n // 2 + 1 :] = cosines[1 : (n + 1) // 2][::-1]
        sines[n // 2 + 1 :] = -sines[1 : (n + 1) // 2][::-1]
    return frozen(cosines), frozen(sines)


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
