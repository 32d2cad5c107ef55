"""Questions about all records at once, whose answers say what is worth measuring."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dphist.domain.groups import Groups
from dphist.privacy.curator import Curator
from dphist.steps.protocols import WIDEST_SCALE


def cannot_ask(curator: Curator, share: Fraction) -> bool:
    """Return whether a share pays for noise so wide that none is drawn: nothing is asked then."""
    return curator.scale(Fraction(1)) / float(share) > WIDEST_SCALE


def total(curator: Curator, share: Fraction) -> tuple[float, float]:
    """Return the noisy number of all records, and the scale of its noise."""
    noisy = curator.measure(Groups.whole(curator.domain.n), share=share)
    return float(noisy.values[0]), float(np.max(noisy.scale))


def whole_level(curator: Curator, scales: float) -> int:
    """Return a level of noise scales that the whole budget pays, in whole records whose sum is an int64."""
    return min(int(scales * curator.scale(Fraction(1))), (1 << 60) // curator.domain.n)


def above(curator: Curator, level: int, share: Fraction) -> tuple[float, float]:
    """Return twice the records above a level in each bin, less all records, and the scale of its noise."""
    n = curator.domain.n
    noisy = curator.measure_distances(
        Groups.singletons(n), np.full(n, level), np.zeros(n, dtype=np.int64), grid=1, share=share
    )
    return float(int(noisy.values[0]) - n * level), float(np.max(noisy.scale))


def below(curator: Curator, level: int, share: Fraction) -> float:
    """Return the noisy number of records up to a level in each bin: the level for each bin held, or less.

    Half of the share measures all records, the other half how many more lie above the level than below.
    """
    return (total(curator, share / 2)[0] - above(curator, level, share / 2)[0]) / 2
