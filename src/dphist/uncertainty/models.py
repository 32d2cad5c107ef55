"""Error models: how far released values may be from the true counts, computed from public facts alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty import joint_ranges, noise_law
from dphist.uncertainty.quantiles import quantile_margins, weighted_margin
from dphist.uncertainty.total_noise import LaplaceNoise, TotalNoise, TreeNoise


def bounding(at_most: int) -> str:
    """Return the warning that intervals do not cover the bias of contribution bounding."""
    return (
        f"Values and intervals are about the records counted after keeping at most {at_most} per unit. "
        "Records beyond are left out, so counts are biased downwards, by an amount not known from the "
        "release and not in any interval."
    )


Ends = tuple[Floats, Floats]  # of intervals: the lower and the upper ones
Answers = tuple[Floats, Floats, Floats]  # and before them what they are intervals of


def about(values: Floats, margins: Floats) -> Answers:
    """Return values with the ends of symmetric intervals."""
    return values, values - margins, values + margins


class ErrorModel(Protocol):
    """Everything that can be asked about the errors of a release; the defaults answer "unknown".

    Every model inherits from this class, so that a new one states only what it knows. An interval is a value
    plus and minus a half-width, which is called a margin. A level is a confidence level such as 0.95.
    """

    kind: ClassVar[str]  # the name of the model in files

    @property
    def description(self) -> str:
        """What an interval covers and how it was obtained, or why there is none."""

    @property
    def accuracy(self) -> str:
        """What is known of the error of all values together; nothing, by default."""
        return ""

    @property
    def words(self) -> str:
        """The former name of ``description``."""
        warnings.warn("error.words is now error.description.", DeprecationWarning, stacklevel=2)
        return self.description

    @property
    def is_calibrated(self) -> bool:
        """Whether a part of the budget measured the bias."""
        return False

    @property
    def total_noise(self) -> TotalNoise | None:
        """The noise in the groups' totals, where its law is known."""
        return None

    @property
    def bin_scale(self) -> float | None:
        """The scale of every bin's noise, where each bin has its own and all have the same law."""
        return None

    @property
    def group_scales(self) -> float | Floats | None:
        """The scale of the noise of each group's total, or of all of them, where that is its law."""
        return None

    def variances(self) -> Floats | None:
        """Return the variance of each bin's error, NaN for bins without a known one; None if all are."""
        return None

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of the sum of bins lo to hi - 1, for each pair; NaN where it is unknown."""
        return np.full(lo.shape, np.nan)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the margin of the sum of bins lo to hi - 1, for this query alone; None if it is unknown."""
        return None

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the margins of many ranges, each for itself; NaN where a margin is unknown."""
        pairs = zip(lo.tolist(), hi.tolist(), strict=True)
        return np.array([self.margin(a, b, level=level) for a, b in pairs], dtype=np.float64)

    def bin_margins(self, *, level: float) -> Floats | None:
        """Return the margin of each bin for itself, NaN for bins without one; None if no bin has one."""
        return None

    def joint(self, *, level: float) -> Floats | None:
        """Return margins that hold for all bins at once, NaN for bins without one; None if no bin has one."""
        return None

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of some bins, given in rising order; None if it is unknown."""
        first, last = int(cells[0]), int(cells[-1])
        return self.margin(first, last + 1, level=level) if last - first == cells.size - 1 else None

    def quantile_margins(self, q: float, *, level: float, edges: Ints | None = None) -> Floats | None:
        """Return, for each edge of the bins, the margin of (1-q) x (records below) - q x (records above).

        Args:
            q: which quantile, from 0 to 1.
            level: the confidence level.
            edges: the edges asked about, in bins; all of them if None.
        """
        return None

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of ranges of a line or rectangles of a grid; NaN where one is unknown."""
        lo, hi, sizes = boxes.flat()
        together = hi - lo == sizes
        out = np.full(lo.shape, math.nan)
        out[together] = self.margins(lo[together], hi[together], level=level)
        for i in np.flatnonzero(~together):
            margin = self.cells_margin(boxes.cells(int(i)), level=level)
            out[i] = math.nan if margin is None else margin
        return out

    # ---- intervals about the true counts, for values that may have been averaged from what was measured ----

    @property
    def measured_values(self) -> Floats | None:
        """The unbiased values that quantiles and means are bounded by; None: the released values are."""
        return None

    @property
    def summable_values(self) -> Floats | None:
        """Unbiased values of single bins, whose sums gather no bias; None: the released values are added."""
        return None

    def bin_intervals(self, values: Floats, *, level: float, joint: bool = False) -> Ends:
        """Return the ends of the bins' intervals around their values, NaN where they are unknown.

        Args:
            values: as released.
            level: the confidence level, of each on its own.
            joint: of all bins at once instead.
        """
        margins = self.joint(level=level) if joint else self.bin_margins(level=level)
        wide = np.full(values.shape, math.nan) if margins is None else margins
        return values - wide, values + wide

    def most_intervals(self, values: Floats, *, level: float) -> Ends | None:
        """Return narrower intervals, which hold for about ``level`` of all bins; None if there are none."""
        return None

    def range_answers(self, sums: Floats, lo: Ints, hi: Ints, *, level: float) -> Answers:
        """Return the answers to ranges, whose released values add up to ``sums``, and their intervals' ends.

        An answer is the sum itself, unless what was measured of the range contradicts it.
        """
        return about(sums, self.margins(lo, hi, level=level))

    def boxes_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> Answers:
        """Return the same of ranges of a line or rectangles of a grid."""
        return about(sums, self.boxes_margins(boxes, level=level))

    def cells_answer(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return the same of some bins, given in rising order; the ends are NaN where they are unknown."""
        margin = self.cells_margin(cells, level=level)
        wide = math.nan if margin is None else margin
        return value, value - wide, value + wide

    # ---- of all ranges at once, and so of those that were picked after looking ----------------------------

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins that hold for all ranges or rectangles at once, and how they were obtained."""
        each = joint_ranges.bonferroni(boxes, level)
        if self.is_calibrated or each is None:
            return np.full(len(boxes), math.nan), joint_ranges.NONE
        return self.boxes_margins(boxes, level=each), joint_ranges.BONFERRONI

    def joint_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> tuple[Answers, str]:
        """Return the answers of ``boxes_answers`` with intervals that hold for all of them at once."""
        margins, how = self.joint_boxes(boxes, level=level)
        return about(sums, margins), how

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        """Return a margin of the sum of all bins, each times its weight, that holds on either side alone.

        Either side is missed with a probability of at most (1 - level) / 2. None if it is unknown.
        """
        return None

    def transposed(self, rows: int) -> ErrorModel:
        """Return the model of the same bins of a grid with this number of rows, column after column."""
        return Unknown("of this method, the error of a grid's other axis is not known")

    def merged(self, starts: Ints) -> ErrorModel:
        """Return the model of coarser bins that begin at these bins; the last start is the number of bins."""
        return Merged(self, starts)

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file, with ``kind``."""

    def to_dict_beside(self, raw: Floats) -> dict[str, Any]:
        """Return the same for a file that holds the raw values too, without repeating them."""
        return self.to_dict()

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> ErrorModel:
        """Return the model that ``to_dict`` described; ``read`` reads a nested model with ``n`` bins."""


Reader = Callable[[dict[str, Any], int], ErrorModel]


@dataclass(frozen=True, eq=False)
class GroupTotals(ErrorModel):
    """One noisy total per group, with independent discrete Laplace noise, spread evenly over its bins.

    Sums of whole groups err by their noise alone, whose law is known. Inside a group the even spread adds a
    bias that depends on the counts there, and of that nothing is claimed.

    Args:
        groups: the groups whose totals were measured.
        scale: of the noise, one for all groups or one per group; infinity for a group never measured.
    """

    kind: ClassVar[str] = "group totals"
    groups: Groups
    scale: float | Floats

    def __post_init__(self) -> None:
        s = np.array(self.scale, dtype=np.float64)
        if s.shape not in ((), (self.groups.k,)) or not (s > 0).all():
            raise UsageError(
                f"the noise of {self.groups.k} groups needs one positive scale, or one for each."
            )
        s.flags.writeable = False
        object.__setattr__(self, "scale", float(s.flat[0]) if (s == s.flat[0]).all() else s)

    @property
    def description(self) -> str:
        once = "An interval holds for its query alone; the joint band holds for all of its bins at once."
        if self._alone.all():
            return (
                "exact: the noise on every bin is known; a 95 % interval contains the exact count of the "
                f"records that were counted in at least 95 % of releases. {once}"
            )
        return (
            "exact for ranges made of whole groups: the noise on every group's total is known; a 95 % "
            "interval contains the exact count of the records that were counted in at least 95 % of "
            "releases. No interval for a range that cuts a group: how records lie inside a group was not "
            f"measured; releases made with calibrate= pay for that, and give one. {once}"
        )

    @cached_property
    def total_noise(self) -> LaplaceNoise:
        return LaplaceNoise(self.groups, self.scale)

    @property
    def group_scales(self) -> float | Floats:
        return self.scale

    @property
    def bin_scale(self) -> float | None:
        known = self.groups.are_singletons and isinstance(self.scale, float) and math.isfinite(self.scale)
        return float(np.max(self.scale)) if known else None

    def variances(self) -> Floats:
        """Return the variance of each bin that is a group of its own, NaN for the others."""
        return self.groups.spread(np.where(self._alone, self.total_noise.variances, np.nan))

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of sums of bins that are groups of their own, NaN for the others."""
        each = self.variances()
        until, unknown = (
            np.concatenate(([0.0], np.cumsum(x))) for x in (np.nan_to_num(each), np.isnan(each))
        )
        return np.where(unknown[hi] > unknown[lo], math.nan, until[hi] - until[lo])

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the exact margin of a union of whole groups, for this query alone; None for other ranges."""
        margin = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(margin) else margin

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the exact margins of many ranges, NaN for those that cut a group."""
        noise_law.check_level(level)
        wrong = np.flatnonzero(~((lo >= 0) & (lo <= hi) & (hi <= self.groups.n)))
        if wrong.size:
            ends = f"bins {lo[wrong[0]]} to {hi[wrong[0]]}"
            raise UsageError(f"{ends} are not a range of the {self.groups.n} bins.")
        whole = self._whole(lo, hi)
        out = np.full(lo.shape, math.nan)
        out[whole] = self._whole_margins(lo[whole], hi[whole], level)
        return out

    def bin_margins(self, *, level: float) -> Floats:
        """Return the exact margin of each bin that is a group of its own, NaN for the others."""
        return self.groups.spread(np.where(self._alone, self.total_noise.margins(level=level), np.nan))

    def joint(self, *, level: float) -> Floats:
        """Return margins that hold at once for all bins that are their own group, NaN for the others."""
        noise_law.check_level(level)
        distinct, which = self._scales
        width = np.full(distinct.size, math.inf)  # a total never measured has no bound and uses up no level
        finite = np.isfinite(distinct)
        repeats = np.bincount(which[self._alone], minlength=distinct.size)
        width[finite] = noise_law.joint_quantile(distinct[finite], repeats[finite], level)
        return self.groups.spread(np.where(self._alone, width[which], np.nan))

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the exact margin of the sum of some bins that are whole groups together."""
        if not self.groups.are_singletons:
            return whole_margin(self.groups, self._labels, self.total_noise, cells, level=level)
        if int(cells[-1] - cells[0]) == cells.size - 1:
            return self.margin(int(cells[0]), int(cells[-1]) + 1, level=level)
        if isinstance(self.scale, float):  # only the number of bins matters
            return self.margin(0, cells.size, level=level)
        kinds, repeats = np.unique(self.groups.spread(self.scale)[cells], return_counts=True)
        return float(noise_law.sum_quantile(kinds, repeats.astype(np.int64), level))

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of boxes: where all bins have the same noise, only their number matters."""
        if self.groups.are_singletons and isinstance(self.scale, float):
            return noise_law.sum_quantiles(self.scale, boxes.flat()[2], level)
        return super().boxes_margins(boxes, level=level)

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return the margins at one tail for all, which was simulated where every bin has the same noise."""
        tail = None if self.bin_scale is None else joint_ranges.identity_tail(boxes, level)
        if tail is None:
            return super().joint_boxes(boxes, level=level)
        return self.boxes_margins(boxes, level=1.0 - tail), joint_ranges.SIMULATED

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        """Return the margin of a weighted sum, if every bin is a group of its own (Chernoff's bound)."""
        if not self.groups.are_singletons:
            return None
        scales = self.scale if isinstance(self.scale, float) else self.groups.spread(self.scale)
        return weighted_margin(scales, weights, level=level)

    def transposed(self, rows: int) -> GroupTotals:
        """Return the model of the same groups and totals, their bins in the order of columns."""
        if self.groups.are_singletons and isinstance(self.scale, float):
            return self
        return GroupTotals(transposed_groups(self.groups, rows), self.scale)

    def quantile_margins(self, q: float, *, level: float, edges: Ints | None = None) -> Floats | None:
        """Return the margins by which a quantile is bounded, if every bin is a group of its own."""
        if not self.groups.are_singletons:
            return None
        scales = self.scale if isinstance(self.scale, float) else self.groups.spread(self.scale)
        edges = np.arange(self.groups.n + 1) if edges is None else edges
        return quantile_margins(scales, edges, q=q, level=level)

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file, where an infinite scale is null."""
        each = np.atleast_1d(self.scale).tolist()
        scale = [None if math.isinf(s) else s for s in each]
        return {
            "kind": self.kind,
            "groups": self.groups.to_dict(),
            "scale": scale if isinstance(self.scale, np.ndarray) else scale[0],
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> GroupTotals:
        scale = np.array(described["scale"], dtype=np.float64)  # null is read as NaN
        return cls(Groups.from_dict(described["groups"]), np.where(np.isnan(scale), math.inf, scale))

    @cached_property
    def _alone(self) -> NDArray[np.bool_]:
        alone: NDArray[np.bool_] = self.groups.sizes == 1
        return alone

    @cached_property
    def _scales(self) -> tuple[Floats, Ints]:
        """The distinct scales, and which of them each group has."""
        return self.total_noise.distinct

    @cached_property
    def _labels(self) -> Ints:
        return self.groups.labels()

    def _whole(self, lo: Ints, hi: Ints) -> NDArray[np.bool_]:
        """Return which ranges consist of whole groups."""
        if self.groups.order is not None:
            from dphist.kernels.scattered import whole_ranges

            return whole_ranges(self._labels, self.groups.k, lo, hi)
        if self.groups.are_singletons:
            return np.ones(lo.shape, dtype=bool)
        edge = np.zeros(self.groups.n + 1, dtype=bool)
        edge[self.groups.starts] = True
        whole: NDArray[np.bool_] = (edge[lo] & edge[hi]) | (lo == hi)
        return whole

    def _whole_margins(self, lo: Ints, hi: Ints, level: float) -> Floats:
        """Return the margins of ranges that consist of whole groups."""
        if self.groups.are_singletons and isinstance(self.scale, float):
            return noise_law.sum_quantiles(self.scale, hi - lo, level)
        first = np.full(self.groups.k, self.groups.n)  # the first bin of each group
        first[self._labels[::-1]] = np.arange(self.groups.n)[::-1]
        begun = np.zeros(self.groups.n + 1, dtype=np.int64)
        begun[first + 1] = 1
        begun = np.cumsum(begun)
        if isinstance(self.scale, float):
            return noise_law.sum_quantiles(self.scale, begun[hi] - begun[lo], level)
        scales, which = self._scales
        kinds = which[np.argsort(first)]
        each = [
            np.bincount(kinds[a:b], minlength=scales.size) for a, b in zip(begun[lo], begun[hi], strict=True)
        ]
        return np.array([noise_law.sum_quantile(scales, repeats, level) for repeats in each])


@dataclass(frozen=True, eq=False)
class FineTotals(ErrorModel):
    """Noisy totals on a grid finer than whole records: the noise of ``base``, divided by ``grid``."""

    kind: ClassVar[str] = "fine totals"
    base: GroupTotals
    grid: int

    @property
    def description(self) -> str:
        return self.base.description

    def variances(self) -> Floats:
        return self.base.variances() / self.grid**2

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        return self.base.sum_variances(lo, hi) / self.grid**2

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        margin = self.base.margin(lo, hi, level=level)
        return None if margin is None else margin / self.grid

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        return self.base.margins(lo, hi, level=level) / self.grid

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        return self.base.boxes_margins(boxes, level=level) / self.grid

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        margin = self.base.cells_margin(cells, level=level)
        return None if margin is None else margin / self.grid

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        margins, how = self.base.joint_boxes(boxes, level=level)
        return margins / self.grid, how

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        return self.base.weighted_margin(weights / self.grid, level=level)

    def transposed(self, rows: int) -> FineTotals:
        return FineTotals(self.base.transposed(rows), self.grid)

    def bin_margins(self, *, level: float) -> Floats:
        return self.base.bin_margins(level=level) / self.grid

    def joint(self, *, level: float) -> Floats:
        return self.base.joint(level=level) / self.grid

    def to_dict(self) -> dict[str, Any]:
        return self.base.to_dict() | {"kind": self.kind, "grid": self.grid}

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> FineTotals:
        return cls(GroupTotals.from_dict(described, read), described["grid"])


OWN_TAILS = ("", ", but for what the own answers of few bins have in it")  # without them, and with


class NormalSums(ErrorModel, Protocol):
    """Values that are weighted sums of independent noise of known variance, taken to be normal.

    But for what the own answers of few values have in them, where these are known (`noise_law.sum_margins`).
    """

    _whole_numbers: ClassVar[bool] = False  # whether these answers are such

    @property
    def _distinct_values(self) -> int:
        """How many distinct values there are, each of which the joint band must cover."""

    def variances(self) -> Floats:
        """Return the variance of each bin, NaN for bins that share a value."""

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of the sum of each range of bins, not finite where it is unknown."""

    def _own_answers(self, lo: Ints, hi: Ints) -> tuple[Floats, Ints]:
        """Return the variances of the own answers of each range's values, added up, and how many these are.

        They are infinite where none is known.
        """
        return np.full(lo.shape, math.inf), hi - lo

    def _own_totals(self, lo: Ints, hi: Ints) -> Floats | float:
        """Return the variance of the answer to each range itself; infinite where none was measured."""
        return math.inf

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of the sum of bins lo to hi - 1, for each pair; not finite where unknown."""
        return self._range_variances(lo, hi)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the margin of the sum of bins lo to hi - 1, for this query alone; None if it is unknown."""
        margin = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(margin) else margin

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the margins of many ranges, each for itself; NaN where a margin is unknown."""
        variances = np.where(lo == hi, 0.0, self._range_variances(lo, hi))
        known = np.where(np.isfinite(variances), variances, math.nan)
        own, total = self._own_answers(lo, hi), self._own_totals(lo, hi)
        return noise_law.sum_margins(known, *own, level, total, whole=self._whole_numbers)

    def bin_margins(self, *, level: float) -> Floats:
        """Return the margin of each bin for itself, NaN for bins that share a value."""
        variances = self.variances()
        bins = np.arange(variances.size)
        return noise_law.sum_margins(variances, *self._own_answers(bins, bins + 1), level)

    def joint(self, *, level: float) -> Floats:
        """Return margins that hold for all bins at once, by the union bound: conservative."""
        each = 1 - (1 - noise_law.check_level(level)) / self._distinct_values
        return np.asarray(noise_law.sum_margin_bound(np.sqrt(self.variances()), each))

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins by the union bound; so far out, sums of few draws are not normal."""
        each = joint_ranges.bonferroni(boxes, level)
        if each is None:
            return np.full(len(boxes), math.nan), joint_ranges.NONE
        sd = np.sqrt(self._boxes_variances(boxes))
        return np.asarray(noise_law.sum_margin_bound(sd, max(each, 0.9))), joint_ranges.BONFERRONI

    def _boxes_variances(self, boxes: Boxes) -> Floats:
        """Return the variances of ranges of a line or rectangles of a grid; NaN where one is unknown."""
        lo, hi, sizes = boxes.flat()
        together = hi - lo == sizes
        out = np.full(lo.shape, math.nan)
        out[together] = self.sum_variances(lo[together], hi[together])
        for i in np.flatnonzero(~together):
            out[i] = self._cells_variance(boxes.cells(int(i)))
        return np.where(np.isfinite(out), out, math.nan)

    def _cells_variance(self, cells: Ints) -> float:
        """Return the variance of the sum of bins that are no range; NaN if it is unknown."""
        return math.nan


@dataclass(frozen=True, eq=False)
class TreeTotals(NormalSums):
    """Noisy totals on a tree over the groups, made to agree by least squares, spread evenly inside a group.

    Args:
        groups: the leaves of the tree.
        branching: how many children a node has.
        pruned: whether the tree is the one over the bins, cut off at the groups, or one over the groups.
        scales: the noise of each node, infinite where it was not measured.
        inner: which nodes have two children, numbered level by level, of a tree that follows from none of the
            above; None of the others.
        agreeing: whether the noise was drawn so that it agrees, and the scales are those of independent noise
            of which least squares would leave as much.
        tails: whether margins of few groups know that much of their noise is that of their own answers, which
            has longer tails than the normal law; they did not in earlier versions.
    """

    kind: ClassVar[str] = "tree totals"
    groups: Groups
    branching: int
    pruned: bool
    scales: Floats
    inner: NDArray[np.bool_] | None = None
    agreeing: bool = False
    tails: bool = True
    _whole_numbers: ClassVar[bool] = True

    @property
    def description(self) -> str:
        known = (
            "the noise of all totals of the tree was drawn together, so that they agree, and its variance is "
            "known to a few percent for every range of whole groups"
            if self.agreeing
            else "the noise on every total of the tree is known, and so is the variance of every range of "
            "whole groups"
        )
        return (
            f"{known}; intervals take the sum of that noise to be normal{OWN_TAILS[self.tails]}, so that "
            "a 95 % interval holds in about 95 % of releases, for this query alone. Ranges that cut a group "
            "have none: how records lie inside a group was not measured; releases made with calibrate= pay "
            "for that, and give one"
        )

    @cached_property
    def total_noise(self) -> TreeNoise:
        return TreeNoise(self.groups, self.branching, self.pruned, self.scales, self.inner, self.tails)

    @property
    def _distinct_values(self) -> int:
        return self.groups.k

    @cached_property
    def _labels(self) -> Ints:
        return self.groups.labels()

    def variances(self) -> Floats:
        each = self.total_noise.variances
        return self.groups.spread(np.where((self.groups.sizes == 1) & np.isfinite(each), each, np.nan))

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        first, last, whole = whole_groups(self.groups, lo, hi)
        out, nothing = np.full(lo.shape, math.nan), np.zeros(int(whole.sum()))
        out[whole] = self.total_noise.range_variances(first[whole], nothing, last[whole], nothing)
        return out

    def _own_answers(self, lo: Ints, hi: Ints) -> tuple[Floats, Ints]:
        """Return the same of ranges of whole groups; what it returns of others is not used."""
        first, last, _ = whole_groups(self.groups, lo, hi)
        return self.total_noise.own_in(first, last), last - first

    def _own_totals(self, lo: Ints, hi: Ints) -> Floats:
        first, last, _ = whole_groups(self.groups, lo, hi)
        return self.total_noise.total_of(first, last)

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of the sum of each range of bins, not finite for those that cut a group."""
        if self.groups.order is None:
            return super().sum_variances(lo, hi)
        return np.array([self._cells_variance(np.arange(a, b)) for a, b in zip(lo, hi, strict=True)])

    def _cells_variance(self, cells: Ints) -> float:
        taken = whole_cells(self.groups, self._labels, cells)
        return math.nan if taken is None else self.total_noise.sum_variance(taken)

    def bin_margins(self, *, level: float) -> Floats:
        """Return the margin of each bin for itself, NaN for bins that share a value."""
        own = self.groups.spread(self.total_noise.own)
        return self._whole(noise_law.sum_margins(self.variances(), own, 1, level, whole=True))

    def _whole(self, margins: Floats) -> Floats:
        """Return the margins of whole numbers, which noise that agrees is made of: up to a half counts."""
        return np.maximum(np.ceil(margins - 0.5), 0.0) if self.agreeing else margins

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the margins of many ranges, NaN for those that cut a group."""
        if self.groups.order is None:
            return self._whole(super().margins(lo, hi, level=level))
        each = (self.cells_margin(np.arange(a, b), level=level) for a, b in zip(lo, hi, strict=True))
        return np.array([math.nan if margin is None else margin for margin in each])

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of some bins that are whole groups together, wherever they lie."""
        found = whole_margin(self.groups, self._labels, self.total_noise, cells, level=level)
        return None if found is None else float(self._whole(np.array([found]))[0])

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins from the simulated supremum over all ranges of single bins, where that is known."""
        alone = self.agreeing and self.groups.are_singletons and self.groups.order is None
        simulated = alone and len(boxes.shape) == 1 and self.scales.min() >= joint_ranges.LEAST_SCALE
        factor = joint_ranges.hat_factor(self.groups.n, "all-ranges", level) if simulated else None
        if factor is None:
            return super().joint_boxes(boxes, level=level)
        added = joint_ranges.PLUS**2 * self.total_noise.mean_variance
        margins = np.sqrt(self._range_variances(*boxes.ends) + added)
        return joint_ranges.AGREEING * factor * margins, joint_ranges.SIMULATED

    def transposed(self, rows: int) -> TreeTotals:
        """Return the model of the same tree, its bins in the order of columns."""
        return replace(self, groups=transposed_groups(self.groups, rows))

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file; distinct scales are written once, an infinite one as null."""
        distinct, which = np.unique(self.scales, return_inverse=True)
        return {
            "kind": self.kind,
            "groups": self.groups.to_dict(),
            "branching": self.branching,
            "pruned": self.pruned,
            "scales": [None if math.isinf(s) else s for s in distinct.tolist()],
            "scale_of_node": which.tolist(),
            **({} if self.inner is None else {"inner": self.inner.astype(np.int64).tolist()}),
            **({"agreeing": True} if self.agreeing else {}),
            **({"tails": True} if self.tails else {}),
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> TreeTotals:
        distinct = np.array(described["scales"], dtype=np.float64)  # null is read as NaN
        scales = np.where(np.isnan(distinct), math.inf, distinct)[np.array(described["scale_of_node"])]
        groups = Groups.from_dict(described["groups"])
        if scales.shape != (2 * groups.k - 1,):
            raise ReleaseFileError("the release's error model does not fit its groups; the file is damaged.")
        inner = described.get("inner")
        if inner is not None and len(inner) != scales.size:
            raise ReleaseFileError("the release's error model does not fit its tree; the file is damaged.")
        shape = None if inner is None else np.array(inner, dtype=bool)
        agreeing, tails = (bool(described.get(name, False)) for name in ("agreeing", "tails"))
        return cls(groups, described["branching"], described["pruned"], scales, shape, agreeing, tails)


@dataclass(frozen=True, eq=False)
class HatTotals(NormalSums):
    """Noisy answers to the bins and to overlapping triangles over them, made to agree by least squares.

    Args:
        n: the number of bins.
        queries: what the triangles were fitted to: ``all-ranges`` or ``prefixes``.
        scale: of the noise on each answer, in units of the answers' weights.
        rule: by which the triangles were placed; files without one have evenly spaced triangles, rule 1.
        tails: as of `TreeTotals`, of few bins.
    """

    kind: ClassVar[str] = "hat totals"
    n: int
    queries: str
    scale: float
    rule: int = 2
    tails: bool = True

    @property
    def description(self) -> str:
        return (
            "the noise on every answer is known, and so is the variance of every range; intervals take the "
            f"sum of that noise to be normal{OWN_TAILS[self.tails]}, so that a 95 % interval holds in about "
            "95 % of releases, for this query alone"
        )

    @cached_property
    def _error(self) -> Any:
        from dphist.kernels.trees import hats, hats_fit

        place = hats.fitted_hats if self.rule == 2 else hats.even_hats
        return hats_fit.hats_error(place(self.n, self.queries), noise_law.variance(self.scale))

    @cached_property
    def _bins(self) -> Floats:
        return self._range_variances(np.arange(self.n), np.arange(1, self.n + 1))

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        from dphist.kernels.trees import hats_fit

        return hats_fit.hats_range_variances(self._error, lo, hi)

    @cached_property
    def _own_below(self) -> Floats:
        return np.concatenate(([0.0], np.cumsum(self._error.own)))

    def _own_answers(self, lo: Ints, hi: Ints) -> tuple[Floats, Ints]:
        if not self.tails:
            return super()._own_answers(lo, hi)
        return self._own_below[hi] - self._own_below[lo], hi - lo

    @property
    def _distinct_values(self) -> int:
        return self.n

    def variances(self) -> Floats:
        """Return the variance of each bin."""
        return self._bins

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins from the simulated supremum over all ranges, where that is known."""
        simulated = self.rule == 2 and self.scale >= joint_ranges.LEAST_SCALE and len(boxes.shape) == 1
        factor = joint_ranges.hat_factor(self.n, self.queries, level) if simulated else None
        if factor is None:
            return super().joint_boxes(boxes, level=level)
        added = joint_ranges.PLUS**2 * self._mean_variance
        return factor * np.sqrt(self._range_variances(*boxes.ends) + added), joint_ranges.SIMULATED

    @cached_property
    def _mean_variance(self) -> float:
        """Of all ranges."""
        from dphist.kernels.trees import hats, hats_fit

        shape = hats.fitted_hats(self.n, self.queries)
        unit = hats_fit.hats_expected_error(shape, "all-ranges")
        return unit * noise_law.variance(self.scale) / float(shape.whole) ** 2

    def to_dict(self) -> dict[str, Any]:
        described = {"kind": self.kind, "n": self.n, "queries": self.queries, "scale": self.scale}
        rule = {} if self.rule == 1 else {"rule": self.rule}
        return described | rule | ({"tails": True} if self.tails else {})

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> HatTotals:
        rule = described.get("rule", 1)
        if rule not in (1, 2):
            raise ReleaseFileError(
                f"triangles by rule {rule} are not known to this version of dphist; update it."
            )
        tails = bool(described.get("tails", False))
        return cls(described["n"], described["queries"], described["scale"], rule, tails)


def transposed_groups(groups: Groups, rows: int) -> Groups:
    """Return the same groups of a grid with this number of rows, its bins column after column."""
    n = groups.n
    moved_to = np.arange(n).reshape(-1, rows).T.ravel()  # where each bin lies afterwards
    order = np.arange(n) if groups.order is None else groups.order
    return Groups(groups.starts, moved_to[order])


def whole_margin(
    groups: Groups, labels: Ints, noise: TotalNoise, cells: Ints, *, level: float
) -> float | None:
    """Return the margin of the sum of some bins; None if they cut a group, or a total was not measured."""
    taken = whole_cells(groups, labels, cells)
    if taken is None:
        return None
    margin = noise.sum_margin(taken, level=noise_law.check_level(level))
    return margin if math.isfinite(margin) else None


def whole_cells(groups: Groups, labels: Ints, cells: Ints) -> NDArray[np.bool_] | None:
    """Return which groups some bins are together; None if they cut one."""
    inside = np.bincount(labels[cells], minlength=groups.k)
    return None if ((inside > 0) & (inside < groups.sizes)).any() else inside > 0


def whole_groups(groups: Groups, lo: Ints, hi: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return the first group of each range, the one after its last, and which ranges cut no group.

    Of groups that are not runs of neighbours, only the range of all bins is known to consist of whole ones.
    """
    if groups.order is not None:
        whole = (lo == 0) & (hi == groups.n)
        return np.zeros_like(lo), np.full_like(lo, groups.k), whole
    if groups.are_singletons:
        return lo, hi, np.ones(lo.shape, dtype=bool)
    first, last = groups.ended(lo), groups.ended(hi)
    return first, last, (groups.starts[first] == lo) & (groups.starts[last] == hi)


@dataclass(frozen=True)
class Unknown(ErrorModel):
    """No interval can be given.

    Args:
        reason: why, for the person who reads the release.
    """

    kind: ClassVar[str] = "unknown"
    reason: str

    @property
    def description(self) -> str:
        return f"no interval: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "reason": self.reason}

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Unknown:
        return cls(described["reason"])


@dataclass(frozen=True, eq=False)
class Merged(ErrorModel):
    """The error of bins that were merged from finer ones, computed from the model of the finer bins.

    Args:
        base: the model of the finer bins.
        starts: where each merged bin begins among the finer ones, and, last, how many finer ones there are.
    """

    kind: ClassVar[str] = "merged"
    base: ErrorModel
    starts: Ints

    def __post_init__(self) -> None:
        starts = np.array(self.starts, dtype=np.int64)
        if starts.ndim != 1 or starts.size < 2 or starts[0] != 0 or (np.diff(starts) < 1).any():
            raise UsageError("merged bins must start at rising places, the first at 0.")
        starts.flags.writeable = False
        object.__setattr__(self, "starts", starts)

    @property
    def description(self) -> str:
        return (
            f"{self.base.description} Bins were merged from finer ones; their joint band is wider than it "
            "must be."
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether a part of the budget measured the bias of the finer bins."""
        return self.base.is_calibrated

    def variances(self) -> Floats | None:
        """Return the variance of each merged bin, NaN where it is unknown; None if all are."""
        found = self.base.sum_variances(self.starts[:-1], self.starts[1:])
        known = np.isfinite(found)  # the finer bins need not be independent
        return np.where(known, found, math.nan) if known.any() else None

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the margin of the sum of merged bins lo to hi - 1, for this query alone."""
        return self.base.margin(int(self.starts[lo]), int(self.starts[hi]), level=level)

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the margins of many ranges of merged bins, each for itself."""
        return self.base.margins(self.starts[lo], self.starts[hi], level=level)

    def bin_margins(self, *, level: float) -> Floats | None:
        """Return the margin of each merged bin for itself, NaN for bins without one; None if all are."""
        each = self.base.margins(self.starts[:-1], self.starts[1:], level=level)
        return None if np.isnan(each).all() else each

    def joint(self, *, level: float) -> Floats | None:
        """Return margins that hold for all merged bins at once, by the union bound."""
        if self.base.is_calibrated:  # its margins for single queries hold for most bins, not for each
            band = self.base.joint(level=level)
            return None if band is None else np.add.reduceat(band, self.starts[:-1])
        return self.bin_margins(level=1.0 - (1.0 - level) / (self.starts.size - 1))

    def quantile_margins(self, q: float, *, level: float, edges: Ints | None = None) -> Floats | None:
        """Return the margins by which a quantile is bounded, at the edges of merged bins."""
        return self.base.quantile_margins(
            q, level=level, edges=self.starts if edges is None else self.starts[edges]
        )

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        """Return the margin of a weighted sum of merged bins: the finer ones have their bin's weight."""
        return self.base.weighted_margin(np.repeat(weights, np.diff(self.starts)), level=level)

    @property
    def measured_values(self) -> Floats | None:
        """The unbiased values of the merged bins."""
        fine = self.base.measured_values
        return None if fine is None else np.add.reduceat(fine, self.starts[:-1])

    def bin_intervals(self, values: Floats, *, level: float, joint: bool = False) -> Ends:
        """Return the ends of the merged bins' intervals, which hold their values."""
        if joint and self.base.is_calibrated:
            return self._joint_ends(values, level)
        each = 1.0 - (1.0 - level) / values.size if joint else level
        _, low, high = self.base.range_answers(values, self.starts[:-1], self.starts[1:], level=each)
        return np.minimum(low, values), np.maximum(high, values)

    def _joint_ends(self, values: Floats, level: float) -> Ends:
        """Return ends that hold for all merged bins at once: sums of the finer ones', and at most the total.

        The probability of a miss is divided between the finer bins and the total.
        """
        fine, each = self.base.measured_values, 1.0 - (1.0 - level) / 2.0
        if fine is None:
            return super().bin_intervals(values, level=level, joint=True)
        low, high = (
            np.add.reduceat(np.maximum(ends, 0.0), self.starts[:-1])
            for ends in self.base.bin_intervals(fine, level=each, joint=True)
        )
        total, whole = np.array([values.sum()]), (self.starts[:1], self.starts[-1:])
        most = self.base.range_answers(total, *whole, level=each)[2]
        high = np.where(np.isnan(most), high, np.minimum(high, most))
        return np.minimum(low, values), np.maximum(high, values)

    def range_answers(self, sums: Floats, lo: Ints, hi: Ints, *, level: float) -> Answers:
        """Return answers and intervals of many ranges of merged bins, each for itself."""
        return self.base.range_answers(sums, self.starts[lo], self.starts[hi], level=level)

    def boxes_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> Answers:
        """Return the same of boxes: merged bins lie on a line."""
        lo, hi = boxes.ends
        return self.range_answers(sums, lo, hi, level=level)

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins that hold for all ranges of the finer bins at once, and so for these."""
        return self.base.joint_boxes(self._finer(boxes), level=level)

    def joint_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> tuple[Answers, str]:
        """Return the answers with intervals that hold for all ranges of the finer bins at once."""
        return self.base.joint_answers(sums, self._finer(boxes), level=level)

    def _finer(self, boxes: Boxes) -> Boxes:
        return Boxes((int(self.starts[-1]),), tuple(self.starts[end] for end in boxes.ends))

    def cells_answer(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return the same of some merged bins: all finer bins of theirs."""
        fine = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in cells])
        return self.base.cells_answer(value, fine, level=level)

    def merged(self, starts: Ints) -> Merged:
        """Return the model of yet coarser bins: merging twice is merging once."""
        return Merged(self.base, self.starts[starts])

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "base": self.base.to_dict(), "starts": self.starts.tolist()}

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Merged:
        starts = np.array(described["starts"], dtype=np.int64)
        return cls(read(described["base"], int(starts[-1])), starts)
