"""An unbiased estimate of the squared error of values that were averaged from noise of known law.

**The identity** (Stein's, for the discrete Laplace law). Let P(z) = (1-p)/(1+p) p^|z|, and let Z and Z' be
independent draws. The generating function of P is (1-p)^2 / ((1-pu)(1-p/u)). The derivative of its logarithm,
times u, is sum_{w>=1} p^w (u^w - u^-w); so z P(z) = sum_w sign(w) p^|w| P(z - w). Because p^|w| = r P(w) with
r = (1+p)/(1-p), for every function g whose means exist

    E[Z g(x + Z)] = r E[sign(Z') g(x + Z + Z')].

With y = x + Z and a bin's value g_i(y), of which Z_i moves one coordinate, it follows that

    E(g_i - x_i)^2 = E[(g_i(y) - y_i)^2 + 2 r sign(Z') g_i(y + Z' e_i) - v],    v = Var Z.

So the bracket, which knows no true count, is right on average, whatever the data and the averaging. It is
post-processing: Z' is a public draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels.halving import public_key
from dphist.uncertainty import noise_law

Average = Callable[[Floats], Floats]  # what made the values from the measurement, or from rows of them
_AT_ONCE = 1 << 14  # bins of all measurements that are averaged in one call
_RUNS = 1 << 14  # bins in all runs of one sign, up to which fewer bins are moved at once than need be
_PARTS = 16  # the bins are moved in at least so many parts: in eight, estimates were a seventh too large
_MOVED = 1 << 12  # bins that are moved, of more
_JUDGED = 256  # bins that are moved to see whether averaging helps
_MOST = 1 << 17  # bins beyond which nothing is moved, for the time it takes
_FEWEST = 1024  # bins from which classes of them have a squared error of their own
_CLASSES, _IN_CLASS = 4, 512
_DOUBT = 2.5  # standard errors that are added to a class's squared error before it makes an interval


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of bins, by how much their neighbours differ, with a squared error of their own.

    Args:
        of: the class of each bin.
        means: the mean squared error of each class, as estimated; chance may make it negative.
        errors: their standard errors.
    """

    of: Ints
    means: Floats
    errors: Floats

    def __post_init__(self) -> None:
        k = self.means.size
        numbers = self.means.shape == self.errors.shape == (k,) and np.isfinite(self.means).all()
        if not (numbers and (self.errors >= 0).all() and self.of.min() >= 0 and self.of.max() < k):
            raise UsageError("every bin is in a class, which has a squared error and its standard error.")

    def half_widths(self, *, level: float) -> Floats:
        """Return, for each bin, a half-width for most bins of its class: as if errors had Laplace's law."""
        wide = -math.log1p(-noise_law.check_level(level)) / math.sqrt(2)
        return (wide * np.sqrt(np.maximum(self.means, 0.0) + _DOUBT * self.errors))[self.of]


@dataclass(frozen=True, eq=False)
class Risk:
    """The mean squared error of a release's values, as estimated from the release.

    Args:
        mean: over all bins; chance may make it negative.
        error: its standard error, for the error of this release.
        classes: the same for classes of bins; None for few bins.
    """

    mean: float
    error: float
    classes: Classes | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 <= self.error < math.inf):
            raise UsageError("a mean squared error is a number with its standard error.")

    @property
    def description(self) -> str:
        """The root mean square error in words."""
        most = math.sqrt(max(self.mean, 0.0) + 2 * self.error)
        words = "Root mean square error of this release:"
        if most < 1e-6:  # what is left is that of rounding
            return f"{words} next to nothing."
        if self.mean < 2 * self.error:
            return f"{words} at most about {most:.3g}; it may be much less."
        return f"{words} about {math.sqrt(self.mean):.3g}, at most about {most:.3g}, by an unbiased estimate."

    def moved(self, order: Ints) -> Risk:
        """Return the same for bins in another order."""
        if self.classes is None:
            return self
        return Risk(self.mean, self.error, replace(self.classes, of=self.classes.of[order]))

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file."""
        described: dict[str, Any] = {"mean": self.mean, "error": self.error}
        if self.classes is not None:
            described["classes"] = {
                name: getattr(self.classes, name).tolist() for name in ("of", "means", "errors")
            }
        return described

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Risk:
        """Return what ``to_dict`` described."""
        found = described.get("classes")
        classes = None
        if found is not None:
            means, errors = (np.array(found[name], dtype=np.float64) for name in ("means", "errors"))
            classes = Classes(np.array(found["of"], dtype=np.int64), means, errors)
        return cls(float(described["mean"]), float(described["error"]), classes)


def estimated_risk(
    measured: Floats, values: Floats, scale: float, average: Average, doubts: Floats | None
) -> Risk | None:
    """Return the mean squared error of averaged values; None for too many bins or without noise.

    Up to 128 bins each is moved alone, which is exact. Of more bins, some that lie far from each other are
    moved at once, in parts of up to a sixteenth: what one does to another is neglected. Of more than 4,096
    bins some of these parts, with about as many bins, stand for all; beyond 131,072 nothing is estimated.

    Args:
        average: what made the values from the measurement.
        doubts: how much each bin's neighbours differ, which must not depend on its own noise; the classes
            are made by it.
    """
    n, v = measured.size, noise_law.variance(scale)
    if n > _MOST or not 0 < v < math.inf:
        return None
    parts = n if n * n <= _RUNS else max(_RUNS // n, _PARTS)
    covariance, known = _covariances(
        measured, scale, average, parts=parts, runs=parts if n <= _MOVED else max(parts * _MOVED // n, 1)
    )
    each = ((values - measured) ** 2 + 2 * covariance - v)[known]
    p = math.exp(-1 / scale)
    fourth = 2 * p * (1 + 10 * p + p * p) / (1 - p) ** 4  # E Z^4
    squares = max(fourth - v * v, 0.0)
    mean, error = _mean(each, squares)
    # What is estimated, the error of this release, varies by its own noise besides, as far as that is in it.
    error = math.hypot(error, min(max(mean / v, 0.0), 1.0) * math.sqrt(squares / n))
    if doubts is None or n < _FEWEST:
        return Risk(mean, error)
    k = min(_CLASSES, n // _IN_CLASS)
    classes = np.empty(n, dtype=np.int64)
    classes[np.argsort(doubts, kind="stable")] = np.arange(n) * k // n
    found = np.array([_mean(each[classes[known] == c], squares) for c in range(k)])
    return Risk(mean, error, Classes(classes, found[:, 0], found[:, 1]))


def averaging_helps(measured: Floats, values: Floats, scale: float, average: Average) -> bool:
    """Return whether averaged values have less squared error than the measurement, by the same estimate.

    About 256 bins are moved, a sixteenth of all at once; of more than 131,072 bins it is taken for granted.
    """
    n, v = measured.size, noise_law.variance(scale)
    if n > _MOST or not 0 < v < math.inf:
        return True
    parts = min(n, _PARTS)
    runs = min(max(_JUDGED * parts // n, 1), parts)
    covariance, known = _covariances(measured, scale, average, parts=parts, runs=runs)
    return float(np.mean((values - measured) ** 2) + 2 * covariance[known].mean()) < 2 * v


def _covariances(
    measured: Floats, scale: float, average: Average, *, parts: int, runs: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return estimates of E[Z_i g_i] by the identity, and for which bins there are any.

    Args:
        parts: one bin in so many is moved at once.
        runs: how many of the parts are moved.
    """
    n = measured.size
    covariance, known = np.zeros(n), np.zeros(n, dtype=bool)
    draws = public_draws(measured, scale)
    each = max(_AT_ONCE // (2 * n), 1)
    for begin in range(0, runs, each):
        ks = range(begin, min(begin + each, runs))
        moves = np.zeros((len(ks), n))
        for move, k in zip(moves, ks, strict=True):
            move[k::parts] = draws[k::parts]
        made = average(np.concatenate((measured + moves, measured - moves)))
        gains = np.sign(moves) * (made[: len(ks)] - made[len(ks) :]) / 2
        covariance += gains.sum(axis=0)  # of each bin one row, at most, is not 0
        for k in ks:
            known[k::parts] = True
    p = math.exp(-1 / scale)
    return (1 + p) / (1 - p) * covariance, known


def _mean(each: Floats, squares: float) -> tuple[float, float]:
    """Return a mean and its standard error, which is at least that of the squared noise."""
    if not each.size:
        return 0.0, math.sqrt(squares)
    return float(each.mean()), math.sqrt(max(float(each.var()), squares) / each.size)


def public_draws(measured: Floats, scale: float) -> Floats:
    """Return a discrete Laplace draw for each bin, by a public hash of the measurement: SplitMix64.

    They are as good as fresh: a function of the published numbers that has nothing to do with their values.
    """
    key = np.frombuffer(public_key(measured)[:8], dtype="<u8")[0]
    with np.errstate(over="ignore"):
        words = key + np.uint64(0x9E3779B97F4A7C15) * (
            2 * np.arange(measured.size, dtype=np.uint64)[:, None] + np.arange(1, 3, dtype=np.uint64)
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        words ^= words >> np.uint64(31)
    # The difference of two geometric draws is discrete Laplace.
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    draws: Floats = np.floor(-scale * np.log(uniforms))
    return draws[:, 0] - draws[:, 1]
