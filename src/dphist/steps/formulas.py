"""Error formulas: what a group of bins is expected to cost, judged on rough counts alone.

Every formula is SSE + beta + a/(b + size) for a group, with the three numbers taken from public variances:
``rough``, of the noise on a rough count, and ``final``, of the noise on a total still to be measured.
The published ones subtract (size - 1) * rough for the noise inside the SSE; summed over the groups of a
partition that is a constant less rough * (number of groups), hence the beta below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dphist.errors import UsageError


class Penalty(NamedTuple):
    """The three numbers of a group's cost besides its SSE: beta + a/(b + size)."""

    beta: float
    a: float
    b: float


class Formula(Protocol):
    """Turns public variances into the penalty of a group."""

    def penalty(self, *, rough: float, final: float, n: int) -> Penalty:
        """Return the penalty for n bins."""


@dataclass(frozen=True)
class Ahp:
    """AHP's: SSE of the rough counts plus the noise of one total per group (Zhang et al. 2014)."""

    def penalty(self, *, rough: float, final: float, n: int) -> Penalty:
        """Return final/size."""
        return Penalty(0.0, final, 0.0)


@dataclass(frozen=True)
class Unbiased:
    """SORTaki's UEE: the rough counts' own noise is taken off the SSE (Doudalis and Mehrotra, eq. 6 on).

    Args:
        weighted: for the finalizer WAF, which also uses the rough counts, instead of AHP's.
        extra: what a group costs besides, in variances of the rough noise; 0 as published.
    """

    weighted: bool = False
    extra: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(self.extra)

    def penalty(self, *, rough: float, final: float, n: int) -> Penalty:
        """Return rough + final/size, or with WAF rough + 1/(1/rough + size/final)."""
        return Penalty(rough * (1 + self.extra), final, final / rough if self.weighted else 0.0)


@dataclass(frozen=True)
class Constant:
    """S2's: the same for every group (Kellaris et al., section 5.1), half a total's variance as published.

    Args:
        extra: what a group costs besides, in variances of the rough noise; 0 as published.
    """

    extra: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(self.extra)

    def penalty(self, *, rough: float, final: float, n: int) -> Penalty:
        """Return rough + 1/epsilon^2."""
        return Penalty(rough * (1 + self.extra) + final / 2, 0.0, 0.0)


@dataclass(frozen=True)
class Logarithmic:
    """The penalty of change-point detection, 2 rough ln n: pure noise is left in one piece."""

    def penalty(self, *, rough: float, final: float, n: int) -> Penalty:
        """Return 2 rough ln n."""
        return Penalty(rough * max(2 * math.log(n), 1.0), 0.0, 0.0)


def _not_negative(extra: float) -> None:
    if not (math.isfinite(extra) and extra >= 0):
        raise UsageError(f"extra must be a number from 0 on, not {extra!r}.")
