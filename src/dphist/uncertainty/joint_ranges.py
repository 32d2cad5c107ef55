"""Intervals that hold for all ranges at once, and so for ranges that were picked after looking.

Bonferroni's inequality always gives some: each of N ranges misses with a probability of (1 - level)/N. But
ranges overlap, and count as far fewer. How many was simulated for noise of public law, ``python -m
benchmarks.joint``, which also checks on fresh noise what is here:

* **Identity noise.** The exact law of the sum of so many draws, at one tail for all lengths: 2 (1 - level) /
  (n log2 n) on a line of n bins, 5 (1 - level) / (n log2(n)^2) for rectangles of a grid.
* **Hats.** A factor times sqrt(variance of the range + a quarter of the mean variance of all ranges): the
  second term keeps the long tails of short ranges from widening all others. The factor is the quantile of the
  greatest error of any range, over that root.
* **Noise that agrees on a tree of single bins.** The same, with 1.07 times the factor of hats for all ranges.

Beyond the numbers of bins and the levels that were simulated, Bonferroni's inequality stays.
"""

from __future__ import annotations

import math

from dphist.domain.boxes import Boxes
from dphist.uncertainty.noise_law import check_level

_AT_ONCE = "This interval holds for all ranges at once, and so for one picked after looking: "
SIMULATED = (
    f"{_AT_ONCE}its width comes from simulated noise of the same law, and was checked on other such noise; "
    "that is no proof."
)
BONFERRONI = f"{_AT_ONCE}its width comes from Bonferroni's inequality over all of them."
NONE = (
    "No interval is known that holds for all ranges at once, where a bias was measured or where values were "
    "made to add up with those of other groups."
)
LEVELS = (0.9, 0.95, 0.99)
PLUS = 0.5  # of the mean standard deviation of ranges, that widths of hats have in addition
LEAST_SCALE = 8.0  # of hats' noise; below, whole numbers have heavier tails than were simulated
AGREEING = 1.07  # of the factor of hats; trees of 32 to 1,024 bins for ranges and prefixes need 0.95 to 1.07
BINS = (16, 4096)  # for which identity noise was simulated

HATS: dict[str, dict[int, tuple[float, float, float]]] = {
    "all-ranges": {
        32: (3.30, 3.64, 4.40),
        64: (3.48, 3.80, 4.57),
        128: (3.70, 3.99, 4.60),
        256: (3.87, 4.14, 4.68),
        512: (4.29, 4.53, 5.16),
        1024: (4.49, 4.71, 5.27),
        2048: (4.67, 4.90, 5.44),
        4096: (4.81, 5.05, 5.60),
    },
    "prefixes": {
        32: (3.24, 3.58, 4.45),
        64: (3.52, 3.83, 4.49),
        128: (3.70, 3.98, 4.68),
        256: (4.11, 4.37, 5.02),
        512: (4.26, 4.53, 5.11),
        1024: (4.49, 4.71, 5.22),
        2048: (4.67, 4.92, 5.52),
        4096: (5.05, 5.28, 6.28),
    },
}


def identity_tail(boxes: Boxes, level: float) -> float | None:
    """Return the tail of every range or rectangle under noise of one scale; None if it was not simulated."""
    n = math.prod(boxes.shape)
    if not (LEVELS[0] <= level <= LEVELS[-1] and BINS[0] <= n <= BINS[1]):
        return None
    if len(boxes.shape) == 1:
        return 2.0 * (1.0 - level) / (n * math.log2(n))
    return 5.0 * (1.0 - level) / (n * math.log2(n) ** 2)


def hat_factor(n: int, queries: str, level: float) -> float | None:
    """Return the factor of hats' widths, for the next number of bins and level; None if none is known."""
    sizes = [k for k in HATS[queries] if k >= n]
    levels = [i for i, simulated in enumerate(LEVELS) if simulated >= level]
    return HATS[queries][min(sizes)][levels[0]] if sizes and levels else None


def bonferroni(boxes: Boxes, level: float) -> float | None:
    """Return the level of each range that makes all hold at once; None if no number is so near to 1."""
    tail = (1.0 - check_level(level)) / boxes.possible
    return 1.0 - tail if tail > 1e-14 else None
