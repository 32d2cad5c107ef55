"""How far rounding can carry a value when its bin is found by arithmetic."""

from __future__ import annotations

import math

from dphist.domain import Regular


def slack(axis: Regular) -> float:
    """Return how far from an edge, in bins, rounding could move a value across it.

    With m the larger end and u = 2**-53, so m u < ulp(m), and x - lo <= 2m: the quotient
    (x - lo) / step is off by at most 4 ulp(m) / step (two roundings), an edge i * step + lo by 3 ulp(m)
    (two), and the last edge, which is hi itself, by 4. Numpy's own quotient has a third rounding: 6.
    Sixteen covers all of them together. Below a quarter, a guess is off by at most one bin.
    """
    return 16 * math.ulp(max(abs(axis.lo), abs(axis.hi))) / axis.step
