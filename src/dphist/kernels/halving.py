"""Values that are not negative, from the total down: halves, quarters, ..., single bins.

Each block's value is decided before those of its halves, large sums first, while they are far above 0 for
most blocks. What a block was moved by, its halves share equally; a half that would leave [0, value of the
block] stops at its end, and the other half takes the rest. Noise of empty bins cancels inside blocks before
anything is cut off, so sums keep about the error they had. Setting all bins right at once, each by itself,
gathers it instead: bins that are cut off at 0 take from all others, which ruins every range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints

Cut = tuple[int, Ints]  # an axis, and how many blocks along it each block becomes: 1 or 2


def cuts(shape: Sequence[int]) -> list[Cut]:
    """Return the steps from all bins to single ones: along one axis each, that on which blocks are longest.

    Blocks of one step differ by at most one bin along each axis, the first half being the smaller. Of all
    ways to halve a grid this one holds for any data: rows before columns, or columns before rows, can be
    better on one grid and ten times worse on the next, wherever the axis halved last has noise alone.
    """
    sizes = [np.array([n]) for n in shape]
    steps: list[Cut] = []
    while True:
        axis = max(range(len(sizes)), key=lambda a: int(sizes[a].max()))
        now = sizes[axis]
        if now.max() <= 1:
            return steps
        into = np.where(now > 1, 2, 1)
        steps.append((axis, into))
        first = np.where(now > 1, now // 2, now)
        sizes[axis] = _interleaved(first, now - first, into)


def halved(values: Floats, totals: Floats) -> Floats:
    """Return values with these totals, none negative: O(n) for n bins, all blocks of a step at once.

    Args:
        values: the estimates; its first axes are those of ``totals``, the others those of one histogram.
        totals: what each histogram adds up to, none below 0.
    """
    many = totals.ndim
    steps = [(many + axis, into) for axis, into in cuts(values.shape[many:])]
    sums = [values]
    for axis, into in reversed(steps):
        sums.append(np.add.reduceat(sums[-1], _starts(into), axis=axis))
    sums.reverse()
    now = totals.reshape(sums[0].shape).astype(np.float64)
    for (axis, into), whole, parts in zip(steps, sums, sums[1:], strict=False):
        first = np.take(parts, _starts(into), axis=axis)
        first += (now - whole) / 2
        np.clip(first, 0.0, now, out=first)
        single = np.flatnonzero(into == 1)
        np.moveaxis(first, axis, 0)[single] = np.moveaxis(now, axis, 0)[single]
        now = _interleaved(first, now - first, into, axis)
    return now


def whole_numbers(values: Floats, start: Floats) -> Floats:
    """Return whole numbers instead of the values, by systematic sampling: one start in [0, 1) for each row.

    The running sums are moved up by the start and rounded down. Over a uniform start every value keeps its
    mean; it becomes one of the two whole numbers around it, and no sum of neighbours changes by 1 or more.
    No value may be negative, and rows have whole sums.
    """
    run = np.cumsum(values, axis=-1)
    run[..., -1] = np.rint(run[..., -1])
    np.minimum(run, run[..., -1:], out=run)
    low = np.floor(run)
    low += run - low + start[..., None] >= 1.0
    return np.diff(low, axis=-1, prepend=0.0)


def public_key(*values: NDArray[np.floating]) -> bytes:
    """Return SHA-256 of the values as little-endian doubles, in order: who has the release has it too."""
    found = hashlib.sha256(b"dphist rounding")
    for each in values:
        found.update((each + 0.0).astype("<f8").tobytes())  # + 0.0: files know no negative zero
    return found.digest()


def public_uniforms(key: bytes, size: int) -> Floats:
    """Return numbers in [0, 1) from SHA-256 of the key and a counter: 53 bits each, four to a digest."""
    digests = (hashlib.sha256(key + i.to_bytes(8, "little")).digest() for i in range(-(-size // 4)))
    bits = np.frombuffer(b"".join(digests), dtype="<u8")[:size]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _starts(into: Ints) -> Ints:
    return np.cumsum(into) - into


def _interleaved(first: NDArray[Any], second: NDArray[Any], into: Ints, axis: int = 0) -> NDArray[Any]:
    """Return each block's first part and, where it has two, its second, in order along the axis."""
    first, second = np.moveaxis(first, axis, 0), np.moveaxis(second, axis, 0)
    starts, two = _starts(into), np.flatnonzero(into == 2)
    made = np.empty((int(into.sum()), *first.shape[1:]), dtype=first.dtype)
    made[starts] = first
    made[starts[two] + 1] = second[two]
    return np.moveaxis(made, 0, axis)
