"""Ends of intervals for reading: rounded outwards, so that no interval is shown narrower than it is."""

from __future__ import annotations

import math
from collections.abc import Iterable

_SLACK = 1e-6  # of the last digit that is shown: what is lost by writing a number in base 2

NOTHING_ELSE = (
    "An interval of 0 to 0 comes from noise so far below 0 that no other count is left in it. It misses as "
    "often as any other, and does not say that the bin is certainly empty."
)


def below(number: float, digits: int = 0) -> float:
    """Return a lower end, rounded down to this many digits after the point."""
    steps = number * 10.0**digits
    return math.floor(steps + _SLACK) / 10.0**digits if math.isfinite(steps) else number


def above(number: float, digits: int = 0) -> float:
    """Return an upper end, or a half-width, rounded up to this many digits after the point."""
    return -below(-number, digits)


def interval(low: float | None, high: float | None, digits: int = 0) -> str:
    """Return an interval for reading, rounded outwards."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "not known"
    return f"{below(low, digits):z,.{digits}f} to {above(high, digits):z,.{digits}f}"


def nothing_else(low: Iterable[float | None], high: Iterable[float | None]) -> str:
    """Return what an interval of 0 to 0 means, if there is one among these; nothing otherwise."""
    return NOTHING_ELSE if any(a == 0 == b for a, b in zip(low, high, strict=True)) else ""
