"""Real Fourier sums with whole-number weights, exact for any counts.

A fast Fourier transform rounds, and by how much depends on the counts, so that no exact bound on what a
record changes would hold. These are plain sums over a table of rounded cosines, O(n) for each frequency.
Cells whose weights differ by their sign at most are taken together: n - j with j, and n/2 - j too where the
table is symmetric there, which is looked up.
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
    odd, folded = sine_count(counts.size, frequencies), _is_folded(counts.size, weight)

    def sums(x: Ints) -> Ints:
        a, b = np.zeros(frequencies, np.int64), np.zeros(odd + 1, np.int64)
        for first, (even, uneven) in enumerate(_halves(x, folded)):
            _sums(even, cosines, first, 1 + folded, a)
            _sums(uneven, sines, first, 1 + folded, b)
        return np.concatenate((a, b[1:]))

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
    cosines, sines = (np.abs(table) for table in tables(n, weight))
    odd, out = sine_count(n, frequencies), np.zeros(n // 2 + 1, np.int64)
    some = n // 4 + 1 if _is_folded(n, weight) else out.size
    both = frozen(cosines + sines)
    _sums(np.append(0, np.ones(odd, np.int64)), both, 0, 1, out[:some])  # as if cells were frequencies
    for f in {0, frequencies - 1} - set(range(1, odd + 1)):  # these have no sine
        out[:some] += cosines[f * np.arange(some) % n]
    out[some:] = out[: out.size - some][::-1]
    return frozen(out)


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


@lru_cache(maxsize=2)
def _is_folded(n: int, weight: int) -> bool:
    """Return whether the weights a quarter turn to either side of a quarter turn are each other's mirrors."""
    if n % 4:
        return False
    cosines, sines = tables(n, weight)
    half, quarter = n // 2, n // 4
    even = np.array_equal(cosines[: quarter + 1], -cosines[half : quarter - 1 : -1])
    return even and np.array_equal(sines[: quarter + 1], sines[half : quarter - 1 : -1])


def _halves(x: Ints, folded: bool) -> list[tuple[Ints, Ints]]:
    """Return what the cosines and the sines of all frequencies weigh; if folded, of even ones, then of odd.

    Cells j and n - j share their cosine, and their sine but for its sign. Where the table is folded, so do
    j and n/2 - j: of even frequencies the cosine, of odd ones the sine, and the others but for their sign.
    """
    half, quarter = x.size // 2, x.size // 4
    mirrored = x[: half if x.size > 1 else None : -1]  # cells n - 1, n - 2, ... above the half
    even, uneven = x[: half + 1].copy(), x[: half + 1].copy()
    even[1 : mirrored.size + 1] += mirrored
    uneven[1 : mirrored.size + 1] -= mirrored
    uneven[[0, half] if x.size % 2 == 0 else 0] = 0  # whose sines are 0
    if not folded:
        return [(even, uneven)]
    found = []
    for sign in (1, -1):
        cosine, sine = even[: quarter + 1].copy(), uneven[: quarter + 1].copy()
        cosine[:quarter] += sign * even[half:quarter:-1]
        sine[:quarter] -= sign * uneven[half:quarter:-1]
        found.append((cosine, sine))
    return found


@kernel
def _sums(x: Ints, table: Table, first: int, step: int, out: Ints) -> None:
    """Write the sums of x times the weights of frequencies first, first + step, ..., none a whole turn."""
    for f in range(first, out.size, step):
        total = at = 0
        for j in range(x.size):
            total += table[at] * x[j]
            at += f
            if at >= table.size:
                at -= table.size
        out[f] = total
