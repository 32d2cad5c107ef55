"""Error formulas: what a group of bins is expected to cost, judged on rough counts alone.

Every formula is SSE + beta + a/(b + size) for a group, with the three numbers taken from public variances:
``rough``, of the noise on a rough count, and ``final``, of the noise on a total still to be measured.
The published ones subtract (size - 1) * rough for the noise inside the SSE; summed over the groups of a
partition that is a constant less rough * (number of groups), hence the beta below.

That subtraction is right for a group fixed beforehand, not for the one that looked best of all: the optimum
of a formula fits some noise. `Halves` judges a partition without that flattery.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dphist.domain.groups import Floats, Ints
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


@dataclass(frozen=True, eq=False)
class Halves:
    """Rough counts h made into two: a partition is chosen on the first and judged, unbiased, on the second.

    With public noise w of the same discrete Laplace law as the secret noise on h, the halves are h + w and
    h - w. Whatever is done with the first, the second still knows the exact counts x. Given h + w,

    - h - w has the mean x, because the two noises can be exchanged;
    - (h - w)^2 - e(w) has the mean x^2, for e(w) = w^2 + c|w| + c^2 - 1 and c = coth(1/scale). Proof: the law
      p, of variance v, is undone by a second difference: E g(x + noise) = f(x) if g = f - (v/2) D2 f. Take
      f(x) = x^2 (p*p)(z - x) for each value z of h + w; then g(h)/p(w) is (h - w)^2 - e(w). A constant in
      place of e would not do: given h + w, the spread of h - w grows with the unseen noise, and what is an
      outlier in both halves would pass for real.

    Nothing here is secret: w is a hash of h, which was paid for.
    """

    first: Ints
    second: Ints
    shift: Ints
    excess: Floats

    @classmethod
    def of(cls, h: Ints, *, rough: float, turn: int, ordered: bool) -> Halves:
        """Split counts of noise variance ``rough``; each turn gives other halves, ordered by the first."""
        w = public_noise(h, rough, turn)
        order = np.argsort(h + w, kind="stable") if ordered else slice(None)
        h, w = h[order], w[order]
        c = (1 + rough) / math.sqrt(1 + 2 * rough)
        size = np.abs(w).astype(np.float64)
        return cls(h + w, h - w, w, size * (size + c) + rough * (rough / (1 + 2 * rough)))

    def error(self, starts: Ints, *, b: float, final: float) -> float:
        """Return the squared error to expect of a partition of the first half, up to a constant.

        It is SSE of the exact counts, plus the noise of fresh totals, plus that of the rough counts as far as
        they enter the values: with weight b/(b + size), or alone if nothing is to be measured.
        """
        from dphist.kernels.partition.costs import cost_of

        sizes = np.diff(starts)
        excess = np.add.reduceat(self.excess, starts[:-1])
        gap = 2.0 * np.add.reduceat(self.shift, starts[:-1])  # between the halves' totals
        old = b / (b + sizes) if final else np.ones(sizes.size)
        rest = excess + (1 - old) ** 2 * final + old**2 * (gap**2 - excess)
        return cost_of(self.second, starts, 0.0, 0.0, 0.0) + float((rest / sizes).sum())


def public_noise(h: Ints, variance: float, turn: int) -> Ints:
    """Return a discrete Laplace number for each of h, hashed from h: it repeats itself and hides nothing."""
    stream = hashlib.shake_128(b"dphist halves %d" % turn)
    stream.update(h.astype("<i8").tobytes())  # other counts, other noise: no unlucky draw stays for ever
    words = np.frombuffer(stream.digest(8 * h.size), dtype="<u8")
    rate = 2 * math.asinh(1 / math.sqrt(2 * variance))  # one over the scale
    t = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    # P(size >= k) = 2 exp(-k rate)/(1 + exp(-rate)), for k >= 1
    size = np.floor(-np.log(t * (1 + math.exp(-rate)) / 2) / rate).astype(np.int64)
    return np.where(words & np.uint64(1), size, -size)


def _not_negative(extra: float) -> None:
    if not (math.isfinite(extra) and extra >= 0):
        raise UsageError(f"extra must be a number from 0 on, not {extra!r}.")
