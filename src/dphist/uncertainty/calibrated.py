"""Intervals for values that bins share: the known noise, and a measured distance from the true counts.

Bins of a group share one value. Its error is the noise of their total and a bias: how much the bins differ
from each other. The bias depends on the data. So a small part of the budget measures it: once the values are
public, the sum of |count - value| over some bins changes by at most 1 with one record, and so does the sum
over disjoint parts of groups. From these noisy sums come mean biases, and with the noise, margins:

* one bin: noise and bias, as if the bias were nearly a Laplace variable, which fits many kinds of data;
* a range whose ends cut groups: its noise, and for either end the bias of a part of a group, which is largest
  in the middle and has the variance of a Brownian bridge between the group's ends;
* a range over groups that are not runs of neighbours (methods that sort): its noise, and a bias that is
  interpolated by length between single bins and quarters of the domain; rough counts of every bin, where the
  method took them, say more of the bias in this very range, and both are weighed as normal variables.

These hold for most bins or ranges, not for every single one. The joint band does: it takes no averages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import UsageError
from dphist.uncertainty import constants, noise_law
from dphist.uncertainty.models import Answers, ErrorModel, Reader, transposed_groups
from dphist.uncertainty.total_noise import ApproximateNoise, TotalNoise


@dataclass(frozen=True)
class Runs:
    """The measured bias of the sums of long runs of bins.

    Args:
        length: of the runs, in bins.
        bias: the mean deviation of their sums, besides the noise.
    """

    length: float
    bias: float


@dataclass(frozen=True, eq=False)
class RoughCounts:
    """Noisy counts of every bin that a method took on its way; they are part of the release.

    Args:
        counts: as measured.
        scale: of their noise.
        covariance: of a bin's noise with the error of its value; positive because the noise chose the group.
    """

    counts: Ints
    scale: float
    covariance: float


@dataclass(frozen=True, eq=False)
class Calibrated(ErrorModel):
    """Values shared by groups of bins, with what was measured of their distance from the true counts.

    Args:
        base: the error of the groups' totals.
        groups: the bins that share a value.
        values: each group's value for one bin.
        noise: the variance of each group's total, where ``base`` does not state it.
        bias: the mean deviation of a bin of each group, besides the noise; 0 for a group of one bin.
        half_bias: the same for the sum of half a group; None unless the groups are runs of neighbours.
        few: the standard deviation of the bias of a few bins, for each and in terms of ``bias``.
        runs: the same for long runs, if the groups are not runs of neighbours.
        distances: the noisy sums of the distances of single bins, one per class of groups.
        classes: which of these a group's bins are in; -1 for a group of one bin, whose error is known.
        scale: of the noise on these sums.
        rough: noisy counts of every bin that the method took on its way, if it did.
    """

    kind: ClassVar[str] = "calibrated"
    base: ErrorModel
    groups: Groups
    values: Floats
    bias: Floats
    distances: Floats
    classes: Ints
    scale: float
    noise: Floats | None = None
    half_bias: Floats | None = None
    few: float = constants.SD_OVER_MEAN_DEVIATION  # of former releases
    runs: Runs | None = None
    rough: RoughCounts | None = None

    def __post_init__(self) -> None:
        k = self.groups.k
        per_group = (self.values, self.bias, self.classes, self.noise, self.half_bias)
        if any(a is not None and a.shape != (k,) for a in per_group):
            raise UsageError(f"an error model of {k} groups needs one number for each.")
        if self.rough is not None and self.rough.counts.shape != (self.groups.n,):
            raise UsageError("rough counts are one for each bin.")
        fits = self.classes.min() >= -1 and self.classes.max() < self.distances.size
        if not (fits and self.scale > 0 and 0 < self.few < math.inf and (self.bias >= 0).all()):
            raise UsageError("the measured distances do not fit the groups.")
        if self._noise.k != k:
            raise UsageError("the noise is that of another number of groups.")

    @property
    def description(self) -> str:
        rough = ", and on what the rough counts of its bins say" if self._sorted and self.rough else ""
        ranges = "The records of a range that cuts groups lie between those of its whole groups and all. "
        if self.half_bias is not None or self.runs is not None:
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

    @property
    def is_calibrated(self) -> bool:
        return True

    # ---- single bins ---------------------------------------------------------------------------------

    def variances(self) -> Floats:
        """Return the variance of each bin's error: of the noise, and of a Laplace variable with the bias."""
        sizes = self.groups.sizes
        return self.groups.spread(self._noise.variances / sizes**2 + 2 * self.bias**2)

    def bin_margins(self, *, level: float) -> Floats:
        """Return the margin of each bin for itself."""
        tail = constants.TAIL_OF_NEIGHBOURS
        if self._sorted:
            tail = constants.TAIL_OF_SORTED if self.noise is None else constants.TAIL_OF_SORTED_REUSED
        wide = -math.log1p(-noise_law.check_level(level)) * tail
        noise = self._noise.margins(level=level) / self.groups.sizes
        return self.groups.spread(np.hypot(noise, wide * self.bias))

    # ---- ranges --------------------------------------------------------------------------------------

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        wide = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(wide) else wide

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        if not ((lo >= 0) & (lo <= hi) & (hi <= self.groups.n)).all():
            raise UsageError(f"ranges lie within the {self.groups.n} bins.")
        out = np.full(lo.shape, math.nan)
        several = hi - lo > 1
        if self._sorted:
            out[several], whole = self._scattered(lo[several], hi[several], level)
        else:
            out[several], whole = self._contiguous(lo[several], hi[several], level)
        of_whole = np.flatnonzero(several)[whole]
        exact = self.base.margins(lo[of_whole], hi[of_whole], level=level)
        out[of_whole] = np.where(np.isnan(exact), out[of_whole], exact)
        alone = hi - lo == 1
        if alone.any():
            out[alone] = self.bin_margins(level=level)[lo[alone]]
        out[hi == lo] = 0.0
        return out

    # ---- where no margin is known: a part of a group lies between nothing and the whole ----------------

    def range_answers(self, sums: Floats, lo: Ints, hi: Ints, *, level: float) -> Answers:
        """Return the sums and the ends of their intervals, by bounds where no margin is known."""
        answers, low, high = super().range_answers(sums, lo, hi, level=level)
        for i in np.flatnonzero(np.isnan(low)):
            cells = np.arange(lo[i], hi[i])
            _, low[i], high[i] = self._between(float(sums[i]), cells, level=level)
        return answers, low, high

    def boxes_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> Answers:
        """Return the same of ranges of a line or rectangles of a grid."""
        lo, hi, sizes = boxes.flat()
        together = hi - lo == sizes
        answers, low, high = np.array(sums), np.full(sums.shape, math.nan), np.full(sums.shape, math.nan)
        found = self.range_answers(sums[together], lo[together], hi[together], level=level)
        answers[together], low[together], high[together] = found
        for i in np.flatnonzero(~together):
            _, low[i], high[i] = self._between(float(sums[i]), boxes.cells(int(i)), level=level)
        return answers, low, high

    def cells_answer(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return the same of some bins."""
        margin = self.cells_margin(cells, level=level)
        if margin is not None:
            return value, value - margin, value + margin
        return self._between(value, cells, level=level)

    def _between(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return bounds of the sum of some bins: of all groups inside, and of these and all that are cut.

        Counts are not negative, so the records in a part of a group are between none and all of it. Either
        end is missed with at most half of the probability of a miss, by the law of the totals' noise.
        """
        if self.noise is not None:  # no law: its totals were chosen by their noise
            return value, math.nan, math.nan
        inside = np.bincount(self._labels[cells], minlength=self.groups.k)
        totals = self.values * self.groups.sizes
        ends = []
        for picked, side in ((inside == self.groups.sizes, -1.0), (inside > 0, 1.0)):
            margin = self._noise.sum_margin(picked, level=noise_law.check_level(level))
            ends.append(max(float(totals[picked].sum()) + side * margin, 0.0))
        return value, min(ends[0], value), max(ends[1], value)

    def transposed(self, rows: int) -> ErrorModel:
        """Return the model of the same groups of a grid, their bins in the order of columns.

        What was measured of halves of groups and of long runs is about the other order, and left out.
        """
        rough = self.rough
        if rough is not None:
            moved = np.arange(self.groups.n).reshape(rows, -1).T.ravel()
            rough = replace(rough, counts=rough.counts[moved])
        groups, base = transposed_groups(self.groups, rows), self.base.transposed(rows)
        return replace(self, base=base, groups=groups, half_bias=None, runs=None, rough=rough)

    def _contiguous(self, lo: Ints, hi: Ints, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the margins of ranges over groups of neighbours, and which consist of whole groups."""
        starts, sizes = self.groups.starts, self.groups.sizes
        first, last = self.groups.ended(lo), self.groups.ended(hi - 1)
        # Bins of the first group before the range, and of the last group up to its end.
        skipped, taken = lo - starts[first], hi - starts[last]
        bias = np.where(
            first == last,
            self._part_variance(first, hi - lo),
            self._part_variance(first, skipped) + self._part_variance(last, taken),
        )
        noise = self._noise.range_variances(first, skipped / sizes[first], last, taken / sizes[last])
        whole = (skipped == 0) & (taken == sizes[last])
        return noise_law.normal_quantile(level) * np.sqrt(noise + bias), whole

    def _part_variance(self, group: Ints, bins: Ints) -> Floats:
        """Return the variance of the bias of a part of a group with this number of bins."""
        sizes, half_bias = self.groups.sizes[group], self.half_bias
        if half_bias is None:
            return np.where(bins % sizes == 0, 0.0, math.nan)
        part = bins / sizes
        bridge = (constants.SD_OVER_MEAN_DEVIATION_AT_CUTS * half_bias[group]) ** 2 * 4 * part * (1 - part)
        # The bias of a few bins is at most the sum of the biases of each.
        few = (self.few * self.bias[group] * np.minimum(bins, sizes - bins)) ** 2
        return np.minimum(bridge, np.where(few > 0, few, bridge))

    def _scattered(self, lo: Ints, hi: Ints, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the margins of ranges that take bins of many groups, and which take only whole groups."""
        if not self._noise.independent or self.runs is None:
            whole = (lo == 0) & (hi == self.groups.n)
            return np.full(lo.shape, math.nan), whole
        noise, whole = self._scattered_noise(lo, hi)
        beside = constants.NOISE_BESIDE_RUNS if self.noise is None else constants.NOISE_BESIDE_RUNS_REUSED
        bias = constants.SD_OVER_MEAN_DEVIATION * self._run_bias(hi - lo)
        variance = beside**2 * noise + bias**2
        if self.rough is None:
            return noise_law.normal_quantile(level) * np.sqrt(variance), whole
        # The rough counts observe the error of the range, with their own noise and with its opposite sign.
        # Given that observation, the error is normal with this mean and standard deviation.
        length = (hi - lo) * (1 - (hi - lo) / self.groups.n)
        below = np.concatenate(([0.0], np.cumsum(self.rough.counts - self.groups.spread(self.values))))
        observed = below[hi] - below[lo]
        covariance = self.rough.covariance * length
        variance = np.maximum(variance, covariance)
        rough_noise = noise_law.variance(self.rough.scale) * (hi - lo)
        of_observed = np.maximum(variance + rough_noise - 2 * covariance, 1e-300)
        weight = (variance - covariance) / of_observed
        remaining = np.maximum(variance - (variance - covariance) * weight, 0.0)
        return _folded_normal_quantile(weight * observed, np.sqrt(remaining), level), whole

    def _scattered_noise(self, lo: Ints, hi: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        from dphist.kernels.scattered import sums_of_squares, whole_ranges

        labels, each = self._labels, self._noise.variances / self.groups.sizes**2
        return sums_of_squares(labels, each, lo, hi), whole_ranges(labels, self.groups.k, lo, hi)

    def _run_bias(self, length: Ints) -> Floats:
        """Return the mean deviation of the sums of runs of some lengths, besides the noise."""
        runs, n = self.runs, self.groups.n
        one = float(np.average(self.bias**2, weights=self.groups.sizes)) ** 0.5
        if runs is None:
            return np.asarray(one * np.sqrt(length))
        # The sum of all bins has no bias: lengths count as on a bridge from the first bin to the last.
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
        """Return margins that hold for all bins at once, with a probability of at least the level.

        The probability of a miss is divided by the union bound. A third is for the groups' totals, whose
        noise is known: the count of a bin lies between 0 and the total of its group. Another third is for a
        second bound: the bin's own rough count, or else that no distance exceeds the sum of all in its
        class. The narrower bound counts; the last third is left for safety.
        """
        missing = (1 - noise_law.check_level(level)) / constants.JOINT_PARTS
        sizes, v = self.groups.sizes, self.values
        total = self._noise.joint(level=1 - missing)
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

    # ---- what it rests on ----------------------------------------------------------------------------

    @property
    def _sorted(self) -> bool:
        return self.groups.order is not None

    @cached_property
    def _labels(self) -> Ints:
        return self.groups.labels()

    @cached_property
    def _noise(self) -> TotalNoise:
        noise = self.base.total_noise if self.noise is None else ApproximateNoise(self.noise)
        if noise is None:
            raise UsageError("nothing is known of the noise in these groups.")
        return noise

    def to_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "kind": self.kind,
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
        if self.half_bias is not None:
            described["cuts"] = self.half_bias.tolist()
            if self.few != constants.SD_OVER_MEAN_DEVIATION:
                described["few"] = self.few
        if self.runs is not None:
            described["runs"] = {"length": self.runs.length, "bias": self.runs.bias}
        if self.rough is not None:
            described["rough"] = {
                "counts": self.rough.counts.tolist(),
                "scale": self.rough.scale,
                "kept": self.rough.covariance,
            }
        return described

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Calibrated:
        def floats(name: str) -> Floats:
            return np.array(described[name], dtype=np.float64)

        runs, rough = described.get("runs"), described.get("rough")
        if runs is not None:
            runs = Runs(float(runs["length"]), float(runs["bias"]))
        if rough is not None:
            counts = np.array(rough["counts"], dtype=np.int64)
            rough = RoughCounts(counts, float(rough["scale"]), float(rough["kept"]))
        groups = Groups.from_dict(described["groups"])
        return cls(
            base=read(described["base"], groups.n),
            groups=groups,
            values=floats("values"),
            bias=floats("bias"),
            distances=floats("distances"),
            classes=np.array(described["classes"], dtype=np.int64),
            scale=float(described["scale"]),
            noise=floats("noise") if "noise" in described else None,
            half_bias=floats("cuts") if "cuts" in described else None,
            few=float(described.get("few", constants.SD_OVER_MEAN_DEVIATION)),
            runs=runs,
            rough=rough,
        )


def _folded_normal_quantile(mean: Floats, sd: Floats, level: float) -> Floats:
    """Return m with P(|X| <= m) at least the level for normal X; at most 7.5 % of the sd too wide."""
    one, two = NormalDist().inv_cdf(level), noise_law.normal_quantile(level)
    off = np.abs(mean)
    ratio = off / np.maximum(sd, 1e-300)
    return off + sd * (one + (two - one) * np.exp(-constants.FOLDED_DECAY * np.minimum(ratio, 50.0)))
