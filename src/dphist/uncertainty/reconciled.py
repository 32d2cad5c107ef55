"""The error of a group whose values were made to add up with those of other levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.uncertainty import joint_ranges, noise_law
from dphist.uncertainty.models import Answers, Ends, ErrorModel, Reader


@dataclass(frozen=True, eq=False)
class Reconciled(ErrorModel):
    """A measurement's error after least squares over levels, and what a value was moved besides.

    Least squares over a tree of groups leaves the covariance of every group's bins what it was, times one
    number (`kernels.levels`). The noise is a sum of independent ones, and its tail is not above that of one
    such noise of the same variance: prod 1/(1 - b_i^2 t^2) <= 1/(1 - sum b_i^2 t^2). So quantiles of the
    measurement, times the square root of that number, hold for high levels; for low ones a normal quantile
    is larger, and is taken.

    Args:
        base: the error of one measurement.
        n: the number of bins.
        factor: the variance of every sum of bins, in units of the measurement's.
        moved: by how much each bin was moved to add up, where that is in no variance: margins are wider by
            as much.
    """

    kind: ClassVar[str] = "reconciled"
    base: ErrorModel
    n: int
    factor: float
    moved: Floats | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise UsageError(f"the factor of a variance must be above 0, not {self.factor!r}.")
        if self.moved is not None:
            moved = np.array(self.moved, dtype=np.float64)
            if moved.shape != (self.n,) or not np.isfinite(moved).all():
                raise UsageError("every bin was moved by some number.")
            moved.flags.writeable = False
            object.__setattr__(self, "moved", moved)

    @property
    def description(self) -> str:
        """What an interval covers and how it was obtained."""
        words = "The values were made to add up with those of other levels"
        if self.moved is None:
            return f"{words} by least squares, which changes all variances alike. {self.base.description}"
        if self._averaged:
            return f"{words}; intervals are as measured, extended to hold them. {self.base.description}"
        return f"{words}; intervals are wider by as much as that moved them. {self.base.description}"

    @property
    def is_calibrated(self) -> bool:
        """Whether a part of the budget measured the bias."""
        return self.base.is_calibrated

    def variances(self) -> Floats | None:
        """Return the variance of each bin's error; None where a value was moved by what is in no variance."""
        variances = self.base.variances()
        return None if variances is None or self.moved is not None else variances * self.factor

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of each sum; NaN where a value was moved by what is in no variance."""
        return self.base.sum_variances(lo, hi) * (self.factor if self.moved is None else math.nan)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the margin of the sum of bins lo to hi - 1, for this query alone."""
        margin = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(margin) else margin

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the margins of many ranges, each for itself."""
        shifts = 0.0
        if self.moved is not None:
            sums = np.concatenate(([0.0], np.cumsum(self.moved)))
            shifts = np.abs(sums[hi] - sums[lo])
        made: Floats = self._wider(self.base.margins(lo, hi, level=level), level) + shifts
        return made

    def bin_margins(self, *, level: float) -> Floats | None:
        """Return the margin of each bin for itself."""
        margins = self.base.bin_margins(level=level)
        return None if margins is None else self._wider(margins, level) + self._moves

    def joint(self, *, level: float) -> Floats | None:
        """Return margins that hold for all bins at once."""
        margins = self.base.joint(level=level)
        return None if margins is None else self._wider(margins, level) + self._moves

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of some bins."""
        margin = self.base.cells_margin(cells, level=level)
        moved = 0.0 if self.moved is None else abs(float(self.moved[cells].sum()))
        return None if margin is None else self._wider(margin, level) + moved

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of boxes of a grid."""
        if self.moved is not None:
            return super().boxes_margins(boxes, level=level)
        made: Floats = self._wider(self.base.boxes_margins(boxes, level=level), level)
        return made

    # ---- values that were averaged: an interval is about the true counts, wherever the value was moved ----

    def bin_intervals(self, values: Floats, *, level: float, joint: bool = False) -> Ends:
        """Return the ends of the bins' intervals: those of the measurement, extended to hold the values."""
        if not self._averaged:
            return super().bin_intervals(values, level=level, joint=joint)
        low, high = self.base.bin_intervals(values, level=level, joint=joint)
        return np.minimum(low, values), np.maximum(high, values)

    def range_answers(self, sums: Floats, lo: Ints, hi: Ints, *, level: float) -> Answers:
        """Return the sums, which add up with those of other groups, and intervals that hold them."""
        if not self._averaged:
            return super().range_answers(sums, lo, hi, level=level)
        _, low, high = self.base.range_answers(sums, lo, hi, level=level)
        return sums, np.minimum(low, sums), np.maximum(high, sums)

    def boxes_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> Answers:
        """Return the same of boxes."""
        if not self._averaged:
            return super().boxes_answers(sums, boxes, level=level)
        _, low, high = self.base.boxes_answers(sums, boxes, level=level)
        return sums, np.minimum(low, sums), np.maximum(high, sums)

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return that nothing is known of all ranges at once."""
        return np.full(len(boxes), math.nan), joint_ranges.NONE

    def cells_answer(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return the same of some bins."""
        if not self._averaged:
            return super().cells_answer(value, cells, level=level)
        _, low, high = self.base.cells_answer(value, cells, level=level)
        return value, min(low, value), max(high, value)

    @property
    def measured_values(self) -> Floats | None:
        """The unbiased values; None: the released ones are."""
        return self.base.measured_values if self._averaged else None

    @property
    def bin_scale(self) -> float | None:
        """The scale of the noise of every measured bin."""
        return self.base.bin_scale if self._averaged else None

    @property
    def _averaged(self) -> bool:
        """Whether intervals come from a measurement that the values were averaged from: its law is whole."""
        return self.factor == 1.0 and self.base.measured_values is not None

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        """Return the margin of a weighted sum: a bound, which factors widen."""
        bare = self.moved is None or self._averaged
        margin = self.base.weighted_margin(weights, level=level) if bare else None
        return None if margin is None else margin * math.sqrt(self.factor)

    def quantile_margins(self, q: float, *, level: float, edges: Ints | None = None) -> Floats | None:
        """Return the margins of the sums that tell where a quantile lies: bounds, which factors widen."""
        bare = self.moved is None or self._averaged
        margins = self.base.quantile_margins(q, level=level, edges=edges) if bare else None
        return None if margins is None else margins * math.sqrt(self.factor)

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file."""
        moved = None if self.moved is None else self.moved.tolist()
        return {
            "kind": self.kind,
            "n": self.n,
            "base": self.base.to_dict(),
            "factor": self.factor,
            "moved": moved,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Reconciled:
        """Return the model that ``to_dict`` described."""
        moved, base = described["moved"], described["base"]
        return cls(
            read(base, described["n"]),
            described["n"],
            described["factor"],
            None if moved is None else np.array(moved),
        )

    @property
    def _moves(self) -> Floats | float:
        return 0.0 if self.moved is None else np.abs(self.moved)

    def _wider(self, margin: Any, level: float) -> Any:
        return margin * (math.sqrt(self.factor) * tail_ratio(level))


def tail_ratio(level: float) -> float:
    """Return by how much a normal margin is above that of one Laplace noise of the same variance, or 1.

    >>> round(tail_ratio(0.5), 2), round(tail_ratio(0.9), 3), tail_ratio(0.95)
    (1.38, 1.01, 1.0)
    """
    return max(noise_law.normal_quantile(level) / (-math.log(1 - level) / math.sqrt(2)), 1.0)
