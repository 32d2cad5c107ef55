"""Intervals for values that bins share: the known noise, and a measured distance from the true counts.

Bins of a group get one value each, which is wrong by the noise of their total and by how much the bins differ
from each other. The second part, the bias, depends on the data. So a small part of the budget measures it:
once the values are public, the sum of |count - value| over some bins changes by at most 1 with one record,
and so does the sum over disjoint parts of groups. From these noisy sums come typical biases, and from those,
with the noise, half-widths:

* one bin: noise and bias, as if the bias were nearly a Laplace variable, which fits many kinds of data;
* a range whose ends cut groups: its noise, and for either end the bias of a part of a group, which is largest
  in the middle and takes the course of a random bridge between the group's ends;
* a range of groups that are not neighbours (methods that sort): its noise, and a bias that grows with the
  length as from single bins to quarters of the domain; rough counts of every bin, where there are any, say
  more of the bias in this very range, and both are weighed as normal variables.

These hold for most bins or ranges, not for every single one. The joint band does: it takes no averages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import ErrorModel, GroupTotals, TreeTotals, error_model_from_dict

# From a mean distance to a standard deviation: of a normal variable, and of the bias at a cut, which has a
# heavier tail: some groups are far more uneven than others of their class, and ranges end in long ones more
# often than in short ones.
_NORMAL, _CUT = math.sqrt(math.pi / 2), 2.2
# How heavy the tail of a bin's bias is beside a Laplace variable's. Neighbours share a value because
# they are near, some being quite unlike the rest; sorted bins because they were alike; noise that is used
# twice sorts worse.
_NEAR, _ALIKE, _ALIKE_TWICE = 1.12, 0.9, 1.0
# How much of the noise's standard deviation counts in a range of sorted bins: what came out large was seen in
# the long runs and counts there already; the law of noise used twice is known less well.
_SEEN, _SEEN_TWICE = 0.8, 1.2


@dataclass(frozen=True)
class Runs:
    """How far the sums of long runs of bins were found to be off, besides their noise.

    Args:
        length: of the runs, in bins.
        bias: the mean distance of their sums.
    """

    length: float
    bias: float


@dataclass(frozen=True, eq=False)
class Rough:
    """Noisy counts of every bin, known to whoever has the release.

    Args:
        counts: as measured.
        scale: of their noise.
        kept: how much of a bin's noise variance went into its value, because the noise chose its group.
    """

    counts: Ints
    scale: float
    kept: float


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Values shared by groups of bins, with what was measured of their distance from the true counts.

    Args:
        base: the error of the groups' totals.
        groups: the bins that share a value.
        values: each group's value for one bin.
        noise: the variance of each group's total, where ``base`` tells of none.
        bias: how far a bin of each group is off in the mean, besides the noise; 0 for a group of one bin.
        cuts: the same for the sum of half a group; None unless the groups are runs of neighbours.
        runs: the same for long runs, if the groups are not runs of neighbours.
        distances: the noisy sums of the distances of single bins, one per class of groups.
        classes: which of these a group's bins are in; -1 for a group of one bin, whose error is known.
        scale: of the noise on these sums.
        rough: noisy counts of every bin that the method took on its way, if it did.
    """

    base: ErrorModel
    groups: Groups
    values: Floats
    bias: Floats
    distances: Floats
    classes: Ints
    scale: float
    noise: Floats | None = None
    cuts: Floats | None = None
    runs: Runs | None = None
    rough: Rough | None = None

    def __post_init__(self) -> None:
        k = self.groups.k
        per_group = (self.values, self.bias, self.classes, self.noise, self.cuts)
        if any(a is not None and a.shape != (k,) for a in per_group):
            raise UsageError(f"an error model of {k} groups needs one number for each.")
        if self.rough is not None and self.rough.counts.shape != (self.groups.n,):
            raise UsageError("rough counts are one for each bin.")
        fits = self.classes.min() >= -1 and self.classes.max() < self.distances.size
        if not (fits and self.scale > 0 and (self.bias >= 0).all()):
            raise UsageError("the measured distances do not fit the groups.")
        if self.noise is None and not isinstance(self.base, GroupTotals | TreeTotals):
            raise UsageError("nothing is known of the noise in these groups.")

    @property
    def words(self) -> str:
        """What the intervals cover and how they were obtained."""
        rough = ", and on what the rough counts of its bins say" if self._sorted and self.rough else ""
        ranges = "Ranges that cut a group have none. "
        if self.cuts is not None or self.runs is not None:
            ranges = f"A range's interval rests on what was measured of parts of groups or long runs{rough}. "
        law_of = "approximately known" if self.noise is not None else "known"
        return (
            f"measured: bins that share a value are off by noise, whose law is {law_of}, and by how they "
            "differ from each other, of which a part of the budget bought noisy averages. A 95 % interval "
            "joins the two; it is meant to hold for about 95 % of all bins, and of all ranges, over "
            f"releases, but may miss a bin that is unlike those it shares a value with. {ranges}The joint "
            "band for all bins at once takes no averages and is safe, therefore wide: it rests on the law "
            "of the noise, on counts not being negative, and on the noisy numbers themselves"
        )

    # ---- single bins ---------------------------------------------------------------------------------

    def variances(self) -> Floats:
        """Return the variance of each bin's error: of the noise, and of a Laplace variable with the bias."""
        sizes = self.groups.sizes
        return self.groups.spread(self._totals / sizes**2 + 2 * self.bias**2)

    def bin_margins(self, *, level: float) -> Floats:
        """Return each bin's own half-width."""
        tail = _NEAR if not self._sorted else _ALIKE if self.noise is None else _ALIKE_TWICE
        wide = -math.log1p(-noise_law.check_level(level)) * tail
        sizes = self.groups.sizes
        if isinstance(self.base, GroupTotals):
            scales, which = np.unique(np.broadcast_to(self.base.scale, sizes.shape), return_inverse=True)
            noise = np.array([noise_law.quantile(float(s), level) for s in scales])[which]
        else:
            noise = _two_sided(level) * np.sqrt(self._totals)
        return self.groups.spread(np.hypot(noise / sizes, wide * self.bias))

    # ---- ranges --------------------------------------------------------------------------------------

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the half-width for the sum of bins lo to hi-1, for this query alone."""
        wide = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(wide) else wide

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the half-widths of many ranges, each for itself; NaN where unknown."""
        if not ((lo >= 0) & (lo <= hi) & (hi <= self.groups.n)).all():
            raise UsageError(f"ranges lie within the {self.groups.n} bins.")
        out = np.full(lo.shape, math.nan)
        several = hi - lo > 1
        if self._sorted:
            out[several], whole = self._scattered(lo[several], hi[several], level)
        else:
            out[several], whole = self._contiguous(lo[several], hi[several], level)
        for i in np.flatnonzero(several)[whole]:
            exact = self.base.margin(int(lo[i]), int(hi[i]), level=level)
            out[i] = out[i] if exact is None else exact
        alone = hi - lo == 1
        if alone.any():
            out[alone] = self.bin_margins(level=level)[lo[alone]]
        out[hi == lo] = 0.0
        return out

    def _contiguous(self, lo: Ints, hi: Ints, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return half-widths of ranges over groups of neighbours, and which consist of whole groups."""
        starts, sizes = self.groups.starts, self.groups.sizes
        first, last = (np.searchsorted(starts, at, side="right") - 1 for at in (lo, hi - 1))
        before, inside = (
            lo - starts[first],
            hi - starts[last],
        )  # bins left out at the left, and taken at the right
        same = first == last
        bias = np.where(
            same,
            self._cut(first, hi - lo),
            self._cut(first, before) + self._cut(last, inside),
        )
        begin, end = first + before / sizes[first], last + inside / sizes[last]
        if isinstance(self.base, TreeTotals):
            noise = self.base.noise_variances(begin, end)
        else:
            each, below = self._totals, np.concatenate(([0.0], np.cumsum(self._totals)))
            between = below[last] - below[np.minimum(first + 1, last)]
            ends = (1 - before / sizes[first]) ** 2 * each[first] + (inside / sizes[last]) ** 2 * each[last]
            noise = np.where(same, (end - begin) ** 2 * each[first], ends + between)
        return _two_sided(level) * np.sqrt(noise + bias), (before == 0) & (inside == sizes[last])

    def _cut(self, group: Ints, bins: Ints) -> Floats:
        """Return the variance of the bias of a part of a group with so many bins."""
        sizes, cuts = self.groups.sizes[group], self.cuts
        if cuts is None:
            return np.where(bins % sizes == 0, 0.0, math.nan)
        part = bins / sizes
        bridge = (_CUT * cuts[group]) ** 2 * 4 * part * (1 - part)
        # Few bins cannot be further off than as many times one bin.
        few = (_NORMAL * self.bias[group] * np.minimum(bins, sizes - bins)) ** 2
        return np.minimum(bridge, np.where(few > 0, few, bridge))

    def _scattered(self, lo: Ints, hi: Ints, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return half-widths of ranges that take bins of many groups, and which take whole groups alone."""
        if isinstance(self.base, TreeTotals) or self.runs is None:
            whole = (lo == 0) & (hi == self.groups.n)
            return np.full(lo.shape, math.nan), whole
        noise, whole = self._scattered_noise(lo, hi)
        seen_before = _SEEN if self.noise is None else _SEEN_TWICE
        variance = seen_before**2 * noise + (_NORMAL * self._run_bias(hi - lo)) ** 2
        if self.rough is None:
            return _two_sided(level) * np.sqrt(variance), whole
        length = (hi - lo) * (1 - (hi - lo) / self.groups.n)
        below = np.concatenate(([0.0], np.cumsum(self.rough.counts - self.groups.spread(self.values))))
        seen = below[hi] - below[lo]  # the error's negative, and the rough counts' noise
        kept = self.rough.kept * length
        variance = np.maximum(variance, kept)
        drawn = noise_law.variance(self.rough.scale) * (hi - lo)
        together = np.maximum(variance + drawn - 2 * kept, 1e-300)
        weight = (variance - kept) / together
        left = np.maximum(variance - (variance - kept) * weight, 0.0)
        return _around(weight * seen, np.sqrt(left), level), whole

    def _scattered_noise(self, lo: Ints, hi: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        labels, sizes, k = self._labels, self.groups.sizes, self.groups.k
        noise, whole = np.empty(lo.size), np.empty(lo.size, dtype=bool)
        for i, (a, b) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
            part = np.bincount(labels[a:b], minlength=k) / sizes
            noise[i] = (part * part) @ self._totals
            whole[i] = ((part == 0) | (part == 1)).all()
        return noise, whole

    def _run_bias(self, length: Ints) -> Floats:
        """Return how far runs of some lengths are off in the mean, besides the noise."""
        runs, n = self.runs, self.groups.n
        one = float(np.average(self.bias**2, weights=self.groups.sizes)) ** 0.5
        if runs is None:
            return np.asarray(one * np.sqrt(length))
        # All bins together have noise alone: lengths count as on a bridge from the first bin to the last.
        room, known = (x * (1 - x / (n + 1)) for x in (length, np.array([1.0, runs.length])))
        if not known[1] > known[0]:  # a run that was measured says no more than a bin does
            return np.asarray(one * np.sqrt(length))
        x, y = np.log(known), np.log(np.maximum([one, runs.bias], 1e-12))
        slope = min(max((y[1] - y[0]) / (x[1] - x[0]), 0.0), 1.0)
        at = np.log(room)
        beyond = y[1] + slope * (at - x[1])
        return np.asarray(np.exp(np.where(at > x[1], beyond, np.interp(at, x, y))))

    # ---- all bins at once ----------------------------------------------------------------------------

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold for all bins at once, at least with the level.

        A third of what may go wrong is for the groups' totals, whose noise is known: a bin of a group holds
        from 0 to the total. Another third is for a second bound: a bin's own rough count, or else that no
        distance exceeds the sum of all in its class. The narrower one counts; a third is left for safety.
        """
        missing = (1 - noise_law.check_level(level)) / 3
        sizes, v = self.groups.sizes, self.values
        total = self._joint_totals(1 - missing)
        inside = np.where(sizes == 1, total, np.maximum(v, (sizes - 1) * v + total))
        bound = self.groups.spread(inside)
        if self.rough is not None:
            own = noise_law.joint_quantile(
                np.array([self.rough.scale]), np.array([self.groups.n]), 1 - missing
            )[0]
            second = np.abs(self.rough.counts - self.groups.spread(v)) + own
        else:
            most = self.distances + self.scale * math.log(max(self.distances.size / (2 * missing), 1.0))
            most = np.append(np.maximum(most, 0), math.inf)  # the last is for class -1
            second = self.groups.spread(most[self.classes])
        return np.asarray(np.minimum(bound, second))

    def _joint_totals(self, level: float) -> Floats:
        if isinstance(self.base, GroupTotals):
            scales, which = np.unique(np.broadcast_to(self.base.scale, self.groups.k), return_inverse=True)
            return np.asarray(
                noise_law.joint_quantile(scales, np.bincount(which), level)[which], dtype=np.float64
            )
        if isinstance(self.base, TreeTotals):
            sd = np.sqrt(self._totals)
            return np.asarray(noise_law.sum_margin_bound(sd, max(1 - (1 - level) / self.groups.k, 0.9)))
        return np.full(self.groups.k, math.inf)  # noise that chose the groups has not the law of a fresh draw

    # ---- what it rests on ----------------------------------------------------------------------------

    @property
    def _sorted(self) -> bool:
        return self.groups.order is not None

    @cached_property
    def _labels(self) -> Ints:
        return self.groups.labels()

    @cached_property
    def _totals(self) -> Floats:
        return total_variances(self.base, self.noise)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        described: dict[str, Any] = {
            "kind": "calibrated",
            "base": self.base.to_dict(),
            "groups": self.groups.to_dict(),
            "values": self.values.tolist(),
            "bias": self.bias.tolist(),
            "distances": self.distances.tolist(),
            "classes": self.classes.tolist(),
            "scale": self.scale,
        }
        if self.noise is not None:
            described["noise"] = self.noise.tolist()
        if self.cuts is not None:
            described["cuts"] = self.cuts.tolist()
        if self.runs is not None:
            described["runs"] = {"length": self.runs.length, "bias": self.runs.bias}
        if self.rough is not None:
            described["rough"] = {
                "counts": self.rough.counts.tolist(),
                "scale": self.rough.scale,
                "kept": self.rough.kept,
            }
        return described

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Calibrated:
        """Return the model that ``to_dict`` described."""

        def floats(name: str) -> Floats:
            return np.array(described[name], dtype=np.float64)

        runs, rough = described.get("runs"), described.get("rough")
        if runs is not None:
            runs = Runs(float(runs["length"]), float(runs["bias"]))
        if rough is not None:
            counts = np.array(rough["counts"], dtype=np.int64)
            rough = Rough(counts, float(rough["scale"]), float(rough["kept"]))
        model = cls(
            base=error_model_from_dict(described["base"]),
            groups=Groups.from_dict(described["groups"]),
            values=floats("values"),
            bias=floats("bias"),
            distances=floats("distances"),
            classes=np.array(described["classes"], dtype=np.int64),
            scale=float(described["scale"]),
            noise=floats("noise") if "noise" in described else None,
            cuts=floats("cuts") if "cuts" in described else None,
            runs=runs,
            rough=rough,
        )
        if isinstance(model.base, GroupTotals | TreeTotals) and model.base.groups.k != model.groups.k:
            raise ReleaseFileError("the release's error model does not fit its groups; the file is damaged.")
        return model


def total_variances(base: ErrorModel, noise: Floats | None) -> Floats:
    """Return the variance of the noise in each group's total."""
    if noise is not None:
        return noise
    if isinstance(base, GroupTotals | TreeTotals):
        return base.total_variances()
    raise UsageError("nothing is known of the noise in these groups.")


def fitted(
    noise: Floats, prior: Floats, weights: Ints, measured: float, *, least: float, most: float
) -> Floats:
    """Return the biases that agree with a measured sum of distances: the prior ones unless it refutes them.

    Args:
        noise: the mean distance by noise alone, of each group.
        prior: the bias to be expected of each group.
        weights: how often each group's distance is in the sum.
        measured: the sum as it was measured; taken where the prior says less than ``least``.
        least: what the sum is not believed to fall short of.
        most: what it is not believed to exceed; where the prior says more, the largest biases are cut down.
    """

    def total(bias: Floats) -> float:
        return float(weights @ np.hypot(noise, bias))

    if total(prior) > most:
        return np.minimum(prior, _solved(lambda b: total(np.minimum(prior, b)), most))
    if total(prior) < least:
        return np.hypot(prior, _solved(lambda b: total(np.hypot(prior, b)), measured))
    return prior


def _solved(rising: Callable[[float], float], goal: float) -> float:
    """Return where a rising function of numbers from 0 on reaches a goal; 0 if it begins beyond."""
    low, high = 0.0, 1.0
    if rising(0.0) >= goal:
        return 0.0
    while rising(high) < goal:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return high


def rising_means(sums: Floats, sizes: Ints) -> Floats:
    """Return the sums whose means do not fall, nearest to these: neighbours that do are pooled."""
    pools: list[tuple[float, int, int]] = []
    for value, size in zip(sums.tolist(), sizes.tolist(), strict=True):
        pools.append((value, size, 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            (a, m, c), (b, w, d) = pools[-2:]
            pools[-2:] = [(a + b, m + w, c + d)]
    means = np.concatenate([np.full(count, total / max(size, 1)) for total, size, count in pools])
    return means * sizes


def poisson_distance(mean: Floats) -> Floats:
    """Return E|X - m| of Poisson counts X of mean m: 2 exp(-m) m^(k+1) / k!, k being m rounded down."""
    m = np.maximum(mean, 0.0)
    k = np.minimum(np.floor(m), 50)
    log_factorial = np.array([math.lgamma(i + 1) for i in range(51)])[k.astype(np.int64)]
    exact = 2 * np.exp(-np.minimum(m, 60) + (k + 1) * np.log(np.clip(m, 1e-300, 60)) - log_factorial)
    return np.where(m < 50, exact, np.sqrt(2 / math.pi * m))


def _two_sided(level: float) -> float:
    return NormalDist().inv_cdf((1 + noise_law.check_level(level)) / 2)


def _around(mean: Floats, sd: Floats, level: float) -> Floats:
    """Return m with P(|X| <= m) about the level (at most 1 % of sd too wide) for normal X with this mean."""
    one, two = NormalDist().inv_cdf(level), _two_sided(level)
    off = np.abs(mean)
    ratio = off / np.maximum(sd, 1e-300)
    return off + sd * (one + (two - one) * np.exp(-2.2 * np.minimum(ratio, 50.0)))
