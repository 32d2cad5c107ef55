"""Intervals from an unbiased measurement, for values that were averaged from it.

Averaging makes values better and their error unknown. The measurement they were averaged from keeps its law,
and an interval of that law holds whatever was done to the values: it is about the true counts. So values come
from the averaging, and intervals from the measurement.

* **A range fixed beforehand**: the interval of the measured sum, cut at 0. The answer is the sum of the
  values, moved into the interval at 95 %, or into a part of it around the measured sum that is the smaller
  the more bins are added: small biases of many bins add up, and what was measured knows better.
* **A single bin** that was measured with noise Z of its own, y = x + Z: a *tilted* interval. Let c be a guess
  of the count x that does not depend on this bin's noise, and P(Z > q1) <= 0.9 a, P(Z > q2) <= 0.1 a with
  a = 1 - level. The interval is

      low = min(max(c, y - q2), y - q1),    high = max(min(c, y + q2), y + q1).

  *Proof that it holds.* Given the noise of all other bins, c is a constant. If x >= c, then high < x only if
  y + q1 < x, that is Z < -q1, which has a probability of at most 0.9 a; and low > x only if
  max(c, y - q2) > x, hence y - q2 > x, that is Z > q2, at most 0.1 a. x <= c is the mirror image. So x is
  missed with a probability of at most a, for every x and c. Cutting at 0 and extending the interval to hold
  the released value lose no x >= 0. Where the guess is doubtful, which its neighbours say, both tails have
  a / 2; that too does not depend on the bin's own noise. (Pratt 1961; FAB intervals, Yu and Hoff 2018.)

Both statements are about one question that was chosen before the release was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dphist.domain.boxes import Boxes, running
from dphist.domain.groups import Floats, Groups, Ints, frozen
from dphist.errors import UsageError
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import Answers, Ends, ErrorModel, GroupTotals, Reader
from dphist.uncertainty.risk import Risk
from dphist.uncertainty.total_noise import TotalNoise

OUTER = 0.9  # the part of the probability of a miss on the side towards the guess; the rest is for the other
_CLEARLY = 0.8  # intervals of most bins are used where they are narrower by this factor
_MOVED_AT = 0.95  # the level of the intervals into which the sums of values are moved


@dataclass(frozen=True, eq=False)
class Anchored(ErrorModel):
    """Values averaged from an unbiased measurement, whose law gives the intervals.

    Args:
        base: the error of ``measured``.
        measured: unbiased values, one per bin.
        values: what was averaged from them.
        guesses: of each bin's count, by the noise of other bins alone; NaN where there is none. None unless
            every bin was measured with noise of its own.
        risk: what is known of the mean squared error of ``values``.
        nearer: by which part the interval that the sum of all bins is moved into is narrower than that of
            95 %; of fewer bins by less, in proportion.
    """

    kind: ClassVar[str] = "anchored"
    base: ErrorModel
    measured: Floats
    values: Floats
    guesses: Floats | None = None
    risk: Risk | None = None
    nearer: float = 0.0

    def __post_init__(self) -> None:
        n = np.size(self.values)
        for name in ("measured", "values", "guesses"):
            if getattr(self, name) is None:
                continue
            array = frozen(np.array(getattr(self, name), dtype=np.float64))
            if array.shape != (n,) or not (np.isfinite(array).all() or name == "guesses"):
                raise UsageError("what was measured, and what was averaged, is a finite number for each bin.")
            object.__setattr__(self, name, array)
        if self.guesses is not None and self.base.bin_scale is None:
            raise UsageError("only bins with noise of their own have guesses.")
        if not 0.0 <= self.nearer <= 1.0:
            raise UsageError(f"intervals become narrower by a part from 0 to 1, not by {self.nearer!r}.")
        if self.risk is not None and self.risk.classes is not None and self.risk.classes.of.shape != (n,):
            raise UsageError("the classes of a squared error are one for each bin.")

    @property
    def description(self) -> str:
        """What an interval covers and how it was obtained."""
        tilted = (
            "; that of a single bin leans towards a guess from the noise of other bins, and has at least its "
            "level whatever the guess"
            if self.guesses is not None
            else ""
        )
        part = ", or a part of it for many bins" if self.nearer else ""
        return (
            "from the measurement: values were averaged or grouped afterwards, and intervals come from the "
            f"unbiased measurement before that, cut at 0{tilted}. The answer to a range is the sum of its "
            f"values, moved into that interval{part}. Of the measurement: "
            f"{self.base.description.rstrip('.')}."
        )

    @property
    def accuracy(self) -> str:
        """The root mean square error of the values in words, where it was estimated."""
        return "" if self.risk is None else self.risk.description

    @property
    def is_calibrated(self) -> bool:
        """Whether a part of the budget measured the bias of groups."""
        return self.base.is_calibrated

    @property
    def total_noise(self) -> TotalNoise | None:
        """The noise of the measurement."""
        return self.base.total_noise

    @property
    def measured_values(self) -> Floats:
        """The unbiased values."""
        return self.measured

    @property
    def bin_scale(self) -> float | None:
        """The scale of the noise of every measured bin."""
        return self.base.bin_scale

    @property
    def summable_values(self) -> Floats | None:
        """The measurement, where every bin has noise of its own; averaged trees are better in sums, too."""
        return self.measured if self.base.bin_scale is not None else None

    # ---- intervals about the true counts -------------------------------------------------------------

    def bin_intervals(self, values: Floats, *, level: float, joint: bool = False) -> Ends:
        """Return the ends of the bins' intervals, which hold the values; of all bins at once if joint."""
        low, high = self._measured_ends(level, joint=joint)
        return np.minimum(low, values), np.maximum(high, values)

    def most_intervals(self, values: Floats, *, level: float) -> Ends | None:
        """Return intervals that hold for about ``level`` of all bins: narrower if most errors are small."""
        scale = self.base.bin_scale
        if self.risk is None or self.risk.classes is None or scale is None:
            return None
        half = self.risk.classes.half_widths(level=level)
        low, high = self.bin_intervals(values, level=level)
        narrow = half < _CLEARLY * one_sided_quantile(scale, OUTER * (1 - level))
        return (
            np.where(narrow, np.minimum(np.maximum(values - half, 0.0), values), low),
            np.where(narrow, values + half, high),
        )

    def range_answers(self, sums: Floats, lo: Ints, hi: Ints, *, level: float) -> Answers:
        """Return the sums, moved into the interval of what was measured, and the ends of that."""
        raw = sum((part[hi] - part[lo] for part in self._below), start=np.zeros(lo.shape))

        def ends(at: float) -> Ends:
            return self.base.range_answers(raw, lo, hi, level=at)[1:]

        return self._moved(sums, raw, ends, hi - lo, lo, level)

    def boxes_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> Answers:
        """Return the same of rectangles of a grid."""
        lo, _, sizes = boxes.flat()
        raw = boxes.sums(running(self.measured.reshape(boxes.shape)))

        def ends(at: float) -> Ends:
            return self.base.boxes_answers(raw, boxes, level=at)[1:]

        return self._moved(sums, raw, ends, sizes, lo, level)

    def _moved(
        self, sums: Floats, raw: Floats, ends: Callable[[float], Ends], sizes: Ints, first: Ints, level: float
    ) -> Answers:
        """Return sums, moved into intervals of what was measured, and the ends of these.

        Args:
            raw: the sums of what was measured.
            ends: those of the intervals of a level.
            sizes: how many bins each sum has. The value of a single bin is better than what was measured.
            first: the first bin of each.
        """
        asked = ends(level)
        usual = asked if level == _MOVED_AT else ends(_MOVED_AT)
        several = sizes != 1
        low, high = (np.where(several, end, math.nan) for end in self._narrowed(usual, raw, sizes))
        answers, low, high = moved_into(sums, asked, (low, high))
        alone = first[~several]
        scale = self.base.bin_scale
        if self.guesses is not None and scale is not None:
            values = answers[~several]
            found = tilted(self.measured[alone], self.guesses[alone], scale, level)
            low[~several] = np.minimum(np.maximum(found[0], 0.0), values)
            high[~several] = np.maximum(np.maximum(found[1], 0.0), values)
        return answers, low, high

    def _narrowed(self, ends: Ends, raw: Floats, sizes: Ints) -> Ends:
        """Return intervals narrowed towards what was measured, by the number of bins that are added."""
        part = self.nearer * sizes / self.values.size
        low, high = (end + part * (raw - end) for end in ends)
        return low, high

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return how far either end of such an interval is from the sum of the values, at most."""
        margins, how = self.base.joint_boxes(boxes, level=level)
        values, raw = (boxes.sums(running(x.reshape(boxes.shape))) for x in (self.values, self.measured))
        return margins + abs(values - raw), how

    def joint_answers(self, sums: Floats, boxes: Boxes, *, level: float) -> tuple[Answers, str]:
        """Return the usual answers, with intervals about what was measured that hold for all at once."""
        margins, how = self.base.joint_boxes(boxes, level=level)
        raw = boxes.sums(running(self.measured.reshape(boxes.shape)))
        answers, _, _ = self.boxes_answers(sums, boxes, level=_MOVED_AT)
        low, high = np.maximum(raw - margins, 0.0), np.maximum(raw + margins, 0.0)
        return (answers, np.minimum(low, answers), np.maximum(high, answers)), how

    def cells_answer(self, value: float, cells: Ints, *, level: float) -> tuple[float, float, float]:
        """Return the same of some bins."""
        if cells[-1] - cells[0] == cells.size - 1:
            ends = cells[:1], cells[-1:] + 1
            made = self.range_answers(np.array([value]), *ends, level=level)
        else:
            raw = float(self.measured[cells].sum())
            found = (self.base.cells_answer(raw, cells, level=at)[1:] for at in (level, _MOVED_AT))
            asked, (least, most) = (np.array(ends, dtype=np.float64).reshape(2, 1) for ends in found)
            usual = self._narrowed((least, most), np.array([raw]), np.array([cells.size]))
            made = moved_into(np.array([value]), (asked[0], asked[1]), usual)
        answer, lowest, highest = (float(x[0]) for x in made)
        return answer, lowest, highest

    def _measured_ends(self, level: float, *, joint: bool = False) -> Ends:
        """Return the ends of the bins' intervals, cut at 0, whatever their values."""
        noise_law.check_level(level)
        scale = self.base.bin_scale
        if self.guesses is not None and scale is not None and not joint:
            low, high = tilted(self.measured, self.guesses, scale, level)
        else:
            margins = self.base.joint(level=level) if joint else self.base.bin_margins(level=level)
            wide = np.full(self.values.shape, math.nan) if margins is None else margins
            low, high = self.measured - wide, self.measured + wide
        return np.maximum(low, 0.0), np.maximum(high, 0.0)

    @cached_property
    def _below(self) -> tuple[Floats, Floats]:
        return running(self.measured)

    # ---- symmetric about the values: half-widths that contain these intervals --------------------------

    def variances(self) -> Floats | None:
        """Return the variances of the measurement; averaging changes the error by what is in no variance."""
        return self.base.variances()

    def sum_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return the variance of each measured sum."""
        return self.base.sum_variances(lo, hi)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return how far either end of a range's interval is from the sum of its values, at most."""
        wide = float(self.margins(np.array([lo]), np.array([hi]), level=level)[0])
        return None if math.isnan(wide) else wide

    def margins(self, lo: Ints, hi: Ints, *, level: float) -> Floats:
        """Return the same of many ranges."""
        below = running(self.values)
        sums = sum((part[hi] - part[lo] for part in below), start=np.zeros(lo.shape))
        _, low, high = self.range_answers(sums, lo, hi, level=level)
        return np.maximum(sums - low, high - sums)

    def bin_margins(self, *, level: float) -> Floats | None:
        """Return the same of each bin for itself."""
        return self._widest(*self.bin_intervals(self.values, level=level))

    def joint(self, *, level: float) -> Floats | None:
        """Return the same of all bins at once."""
        return self._widest(*self.bin_intervals(self.values, level=level, joint=True))

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the same of some bins."""
        value = float(self.values[cells].sum())
        _, low, high = self.cells_answer(value, cells, level=level)
        return None if math.isnan(low) else max(value - low, high - value)

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the same of rectangles of a grid."""
        sums = boxes.sums(running(self.values.reshape(boxes.shape)))
        _, low, high = self.boxes_answers(sums, boxes, level=level)
        return np.maximum(sums - low, high - sums)

    def _widest(self, low: Floats, high: Floats) -> Floats | None:
        return None if np.isnan(low).all() else np.maximum(self.values - low, high - self.values)

    # ---- of what was measured --------------------------------------------------------------------------

    def quantile_margins(self, q: float, *, level: float, edges: Ints | None = None) -> Floats | None:
        """Return the margins by which ``measured_values`` bound a quantile."""
        return self.base.quantile_margins(q, level=level, edges=edges)

    def weighted_margin(self, weights: Floats, *, level: float) -> float | None:
        """Return the margin of a weighted sum of ``measured_values``."""
        return self.base.weighted_margin(weights, level=level)

    def transposed(self, rows: int) -> ErrorModel:
        """Return the model of the same bins of a grid, column after column."""
        moved = np.arange(self.values.size).reshape(rows, -1).T.ravel()
        guesses = None if self.guesses is None else self.guesses[moved]
        risk = None if self.risk is None else self.risk.moved(moved)
        base, measured, values = self.base.transposed(rows), self.measured[moved], self.values[moved]
        return Anchored(base, measured, values, guesses, risk, self.nearer)

    def to_dict(self) -> dict[str, Any]:
        """Return a description for a JSON file; a guess that is not there is null."""
        return self._described() | {"values": _whole(self.values)}

    def to_dict_beside(self, raw: Floats) -> dict[str, Any]:
        """Return the same without the values, if they are the release's own."""
        return self._described() if np.array_equal(self.values, raw) else self.to_dict()

    def _described(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "kind": self.kind,
            "n": self.values.size,
            "base": self.base.to_dict(),
            "measured": _whole(self.measured),
        }
        if self.guesses is not None:
            described["guesses"] = [None if g != g else int(g) for g in self.guesses.tolist()]
        if self.risk is not None:
            described["risk"] = self.risk.to_dict()
        if self.nearer:
            described["nearer"] = self.nearer
        return described

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Anchored:
        """Return the model that ``to_dict`` described; null is read as NaN."""
        guesses, risk = described.get("guesses"), described.get("risk")
        return cls(
            read(described["base"], described["n"]),
            np.array(described["measured"], dtype=np.float64),
            np.array(described["values"], dtype=np.float64),
            None if guesses is None else np.array(guesses, dtype=np.float64),
            None if risk is None else Risk.from_dict(risk),
            float(described.get("nearer", 0.0)),
        )


def joined(models: Sequence[ErrorModel], values: Floats) -> Anchored | None:
    """Return the model of the bins of several histograms, one after the other; None if it is not known.

    It is where each was averaged from noise on every bin, all of one scale: the noise is independent.

    Args:
        values: a row of bins for each.
    """
    scales = {model.bin_scale for model in models}
    measured = [model.measured_values for model in models]
    known = [each for each in measured if each is not None]
    scale = scales.pop()
    if scales or scale is None or len(known) < len(measured):
        return None
    base = GroupTotals(Groups.singletons(values.size), scale)
    return Anchored(base, np.concatenate(known), values.ravel())


def tilted(measured: Floats, guesses: Floats, scale: float, level: float) -> Ends:
    """Return the ends of intervals that lean towards guesses; equal tails where a guess is NaN.

    A guess must not depend on the noise of its own bin. Proof in the module's docstring.
    """
    missing = 1 - noise_law.check_level(level)
    near, far = (one_sided_quantile(scale, part * missing) for part in (OUTER, 1 - OUTER))
    equal = noise_law.quantile(scale, level)
    doubtful = np.isnan(guesses)
    q1, q2 = np.where(doubtful, equal, near), np.where(doubtful, equal, far)
    c = np.where(doubtful, measured, guesses)
    low = np.minimum(np.maximum(c, measured - q2), measured - q1)
    high = np.maximum(np.minimum(c, measured + q2), measured + q1)
    return low, high


def one_sided_quantile(scale: float, tail: float) -> float:
    """Return the least whole k from 0 on that one draw exceeds with a probability of at most ``tail``."""
    # By symmetry twice that probability is the chance to be further from 0 than k.
    return noise_law.quantile(scale, 1 - 2 * tail) if tail < 0.5 else 0


def moved_into(sums: Floats, ends: Ends, usual: Ends) -> Answers:
    """Return sums of values, moved into the usual intervals of the measured ones, and the ends asked for.

    The usual intervals have 95 %, so that an answer does not depend on the level asked for; an interval of a
    lower level is extended to hold it. What is not known moves nothing.
    """
    low, high, least, most = (np.maximum(end, 0.0) for end in (*ends, *usual))
    known = np.isfinite(least) & np.isfinite(most)
    answers = np.where(known, np.clip(sums, np.where(known, least, 0.0), np.where(known, most, 0.0)), sums)
    return answers, np.minimum(low, answers), np.maximum(high, answers)


def _whole(numbers: Floats) -> list[float | int]:
    """Return numbers for a file, whole ones without a fraction part."""
    if (np.abs(numbers) < 2.0**53).all() and (numbers == np.rint(numbers)).all():
        whole: list[float | int] = numbers.astype(np.int64).tolist()
        return whole
    return [int(x) if x.is_integer() and abs(x) < 2.0**53 else x for x in numbers.tolist()]
