"""What all partitioners share: checked input, exact grids, the cost of a partition, the way back."""

from __future__ import annotations

import math
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel

Row: TypeAlias = Ints | Floats
TINY = 2.0**-200  # stands in for a range of zero


def numbers(h: ArrayLike) -> Row:
    """Return the input as a contiguous int64 or float64 row, or say what is wrong with it."""
    x = np.asarray(h)
    if x.ndim != 1 or x.size == 0:
        raise UsageError(f"a partition needs a row of at least one number, not shape {x.shape}.")
    if x.dtype.kind in "iub":
        if x.dtype == np.uint64 and (x >= 1 << 63).any():
            raise UsageError("a number above 2**63 cannot be partitioned; convert the numbers to floats.")
        return np.ascontiguousarray(x, dtype=np.int64)
    if x.dtype.kind != "f":
        raise UsageError(f"a partition needs numbers, not {x.dtype}.")
    if not np.isfinite(x).all():
        raise UsageError("a partition needs finite numbers, and there is a NaN or an infinity.")
    if (np.abs(x) > 2.0**200).any():
        raise UsageError("a partition needs numbers up to 2**200; divide them by their scale first.")
    return np.ascontiguousarray(x, dtype=np.float64)


def penalties(beta: float, a: float, b: float) -> tuple[float, float, float]:
    """Return the three numbers of the group cost as floats if they are finite and not negative."""
    for name, value in (("beta", beta), ("a", a), ("b", b)):
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"the group cost needs a finite {name} of at least 0, not {value!r}.")
    return float(beta), float(a), float(b)


def gridded(h: Row, *, room: int = 62) -> tuple[Ints, float]:
    """Return ``h`` as integers times a power of two, and that unit; n times their range is below 2^room.

    Integers that fit come back as they are. Others are rounded to the finest grid that fits: relative to the
    range, the rounding is at most n / 2^room.
    """
    low, high = h.min().item(), h.max().item()
    span = max(float(high) - float(low), TINY)
    top = max(abs(low), abs(high), TINY)
    exponent = math.floor(room - math.log2(h.size) - math.log2(span) - 0.01)
    exponent = min(exponent, math.floor(61.99 - math.log2(top)))
    return on_grid(h, exponent)


def on_grid(h: Row, exponent: int) -> tuple[Ints, float]:
    """Return round(h * 2^exponent) and 2^-exponent; integers are never made finer than they are."""
    if h.dtype == np.int64:
        whole = cast(Ints, h)
        if exponent >= 0:
            return whole, 1.0
        return ((whole >> (-exponent - 1)) + 1) >> 1, 2.0**-exponent
    return np.rint(np.ldexp(h, exponent)).astype(np.int64), 2.0**-exponent


def is_sorted(h: Row) -> bool:
    """Say whether the numbers never fall."""
    return bool((h[1:] >= h[:-1]).all())


def trace(back: Ints) -> Ints:
    """Return the starts that the chain of last groups passes through."""
    starts = np.empty(back.size, np.int64)
    return starts[_trace(back, starts) :].copy()


@kernel
def _trace(back: Ints, starts: Ints) -> int:
    """Write the starts at the end of as many places as there are, and return the first of these."""
    at = back.size - 1
    starts[at] = at
    while starts[at] > 0:
        starts[at - 1] = back[starts[at]]
        at -= 1
    return at


def cost(h: ArrayLike, starts: Ints, *, beta: float, a: float, b: float) -> float:
    """Return the total cost of a partition, each group measured from its own mean: O(n), no cancellation."""
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    s = np.ascontiguousarray(starts, dtype=np.int64)
    if s.ndim != 1 or s.size < 2 or s[0] != 0 or s[-1] != x.size or (np.diff(s) < 1).any():
        raise UsageError("a partition's starts must increase from 0 to the number of bins.")
    return cost_of(x, s, beta, a, b)


@kernel
def cost_of(h: Row, starts: Ints, beta: float, a: float, b: float) -> float:
    """Return the cost of a partition that is known to be one."""
    total = 0.0
    lost = 0.0  # what the additions rounded away so far
    for g in range(starts.size - 1):
        lo, hi = starts[g], starts[g + 1]
        mean = 0.0
        for k in range(lo, hi):
            mean += np.float64(h[k] - h[lo])
        mean /= hi - lo
        sse = 0.0
        rest = 0.0
        for k in range(lo, hi):
            d = np.float64(h[k] - h[lo]) - mean
            sse += d * d
            rest += d
        term = sse - rest * rest / (hi - lo) + (beta + a / (b + (hi - lo))) - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total
