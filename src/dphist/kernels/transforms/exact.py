"""Whole-number linear answers to counts of any allowed size, without a wrap and without a refusal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dphist.domain.groups import Ints
from dphist.errors import UsageError

_CEILING = 1 << 61


def exact_answers(linear: Callable[[Ints], Ints], x: Ints, *, most: int) -> Ints:
    """Return a whole-number linear map of counts, each answer cut off at +-2^61: exact for any counts.

    Cutting an answer off moves it no further than before, so a bound on the map still holds. Large counts
    are taken apart into digits, so short that the answers to them fit, and put together with carries.

    Args:
        most: no weight of the map is larger.
    """
    digit = 61 - (x.size * most).bit_length()  # the cells' digits times their weights stay below 2^61
    if digit < 1:
        raise UsageError(f"{x.size} cells are too many for weights of up to {most}.")
    if float(x.sum()) * most < 2.0**60:
        return linear(x)
    mask, high = (1 << digit) - 1, 61 // digit * digit
    whole, carry = (np.zeros(1, np.int64) for _ in range(2))
    for shift in range(0, high, digit):
        part = linear((x >> shift) & mask) + carry
        whole, carry = whole + ((part & mask) << shift), part >> digit
    top = linear(x >> high) + carry
    room = _CEILING >> high
    found: Ints = np.where(top < -room, -_CEILING, np.where(top >= room, _CEILING, whole + (top << high)))
    return found
