"""The release: the published result. It holds no exact count, and opens without the records or the ledger."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.renamed import renamed_scale, warn_renamed
from dphist._common.rounded import above, below
from dphist._common.spent import Spent
from dphist.domain import Domain, Instants, Labelled, as_int
from dphist.domain.boxes import running
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import PrivacyError, UsageError, did_you_mean
from dphist.release import answers, many
from dphist.release.answers import coarse_starts, coarser, invert, ordered_axis, possible_bins
from dphist.release.plain import freeze
from dphist.release.postprocess import POSTS, Post, integer, nonneg, rising
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import Answers, ErrorModel, bounding

if TYPE_CHECKING:
    from dphist.charts.picture import Picture
    from dphist.release.show import AxisView


STAMP = "SIMULATED: not private."


def _shown(number: float) -> str:
    """Return a number for reading: integers and large numbers in full, others with six digits."""
    whole = math.isfinite(number) and (number == round(number) or abs(number) >= 1e5)
    return f"{round(number):,d}" if whole else f"{number:,.6g}"


def _readable(value: float, low: float | None, high: float | None) -> list[str]:
    """Return an answer and the ends of its interval for reading, with the digits that the interval supports.

    Two digits of its half-width are shown. Ends are rounded outwards, so that the interval holds as before.
    """
    if low is None or high is None:
        return [_shown(value)]
    half = (high - low) / 2
    if not (math.isfinite(half) and half > 0):
        return [_shown(number) for number in (value, low, high)]
    digits = max(1 - math.floor(math.log10(half)), 0)  # after the point
    if digits > 300 or max(abs(low), abs(high), abs(value)) > 10.0 ** (15 - digits):  # more than there are
        return [_shown(number) for number in (value, low, high)]
    rounded = (round(value * 10.0**digits) / 10.0**digits, below(low, digits), above(high, digits))
    texts = [f"{number:z,.{digits}f}" for number in rounded]
    return [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]


def check_paid(epsilon: object, charges: Sequence[Spent], sensitivity: object) -> None:
    """Refuse a release whose statement of what it cost and whom it protects cannot be true."""
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        raise UsageError(f"a release's epsilon must be a Fraction above 0, not {epsilon!r}.")
    if sum((charge.epsilon for charge in charges), Fraction(0)) > epsilon:
        raise PrivacyError("the charges add up to more than the epsilon this release would state.")
    if as_int(sensitivity, "the unit's sensitivity") < 1:
        raise UsageError(f"the unit's sensitivity must be at least 1, not {sensitivity}.")


def bounding_of(unit: str, sensitivity: int) -> str:
    """Return the warning about the bias of contribution bounding; nothing if a unit is one record."""
    return bounding(sensitivity) if unit != "one record" or sensitivity > 1 else ""


def stamped(words: str, bounding: str, *, simulated: bool) -> str:
    """Return what is said of an answer, with the warnings that go with its release."""
    about = f"{words.rstrip('.')}. {bounding}" if bounding else words
    return f"{STAMP} {about}" if simulated else about


@dataclass(frozen=True)
class Estimate:
    """An answer with its confidence interval; ``low`` and ``high`` are None where no interval is known.

    >>> estimate = dphist.Estimate(value=12.0, low=9.0, high=15.0, level=0.95, note="")
    >>> str(estimate)
    '12 (9 to 15, level 0.95)'

    Args:
        level: the confidence level of the interval.
        note: what the interval covers and how it was obtained, or why there is none.
        spelled: value, low and high as text, for axes of time: what the clock shows.
        words: the answer as a sentence, where the number alone would mislead: of a bin that is not listed.
    """

    value: float
    low: float | None
    high: float | None
    level: float
    note: str = field(repr=False)
    spelled: tuple[str, ...] = field(default=(), repr=False, compare=False)
    words: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        if self.words:
            return f"{self.words}{f' {STAMP}' if self.note.startswith(STAMP) else ''}"
        value, *ends = self.spelled or _readable(self.value, self.low, self.high)
        if not ends:
            return f"{value} (no interval: {self.note.replace('no interval: ', '', 1)})"
        stamp = f" {STAMP}" if self.note.startswith(STAMP) else ""
        return f"{value} ({ends[0]} to {ends[1]}, level {self.level:g}){stamp}"


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Many answers with their confidence intervals, as arrays; one of them is an ``Estimate``.

    >>> release = dphist.from_counts([30, 20, 50, 10], bins=[0, 10, 20, 30, 40], epsilon=1)
    >>> answers = release.sum([0, 10], [20, 40])
    >>> answers
    Estimates(2 answers, level=0.95)
    >>> answers[1] == release.sum(10, 40), answers.value.shape
    (True, (2,))

    Args:
        low: the lower ends of the intervals, NaN where none is known; ``high`` likewise.
        level: the confidence level, of each interval on its own.
        note: what the intervals cover and how they were obtained, or why there is none.
        spell: what the clock shows, for numbers that are instants.
    """

    value: Floats
    low: Floats
    high: Floats
    level: float
    note: str
    spell: Callable[[float], str] | None = None

    def __len__(self) -> int:
        return self.value.size

    def __getitem__(self, index: int) -> Estimate:
        numbers = [float(array[index]) for array in (self.value, self.low, self.high)]
        known = [x for x in numbers if not math.isnan(x)]
        low, high = (None if math.isnan(x) else x for x in numbers[1:])
        spelled = tuple(map(self.spell, known)) if self.spell else ()
        return Estimate(numbers[0], low, high, self.level, self.note, spelled)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"Estimates({len(self):,} answers, level={self.level:g})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Release:
    """A private histogram, with how it was made, what it cost and how large its error may be.

    >>> release = dphist.from_counts([30, 20, 50, 10], bins=[0, 10, 20, 30, 40], epsilon=1)
    >>> release
    Release('auto', 4 bins, epsilon=1, unit='one record', not journaled)

    Args:
        raw: the values as estimated, unbiased where the method is; they may be negative or fractional.
        post: how ``values()`` follow from them: unchanged, made nonnegative, or rounded to integers.
        charges: the parts of ``epsilon`` and what each was spent on.
        sensitivity: the largest change of the exact counts that one unit can cause, added over all bins.
        parameters: the method's components and settings, ready for JSON.
        provenance: where the records came from and how they were selected; never a count.
        created: the time of publication in UTC, as ISO 8601.
        simulated: True if the noise came from a seed, so that nothing is protected.
        id: the random name of this release in the ledger; None if no ledger was charged or the file is older.
        presented: presentable values that were made together with those of other groups, which they add up
            with; None where they follow from ``raw`` and ``post`` alone.
    """

    domain: Domain
    raw: Floats
    post: Post
    groups: Groups
    error: ErrorModel
    epsilon: Fraction
    charges: tuple[Spent, ...]
    unit: str
    sensitivity: int
    method: str
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    versions: Mapping[str, Any]
    created: str
    simulated: bool
    id: str | None = None
    presented: Floats | None = None

    def __post_init__(self) -> None:
        raw = np.array(self.raw, dtype=np.float64)
        if raw.shape not in ((self.domain.n,), self.domain.shape):
            raise UsageError(f"the domain has {self.domain.n} bins and the values have shape {raw.shape}.")
        if not np.isfinite(raw).all():
            raise UsageError("a release's values must be finite numbers.")
        if self.post not in POSTS:
            raise UsageError(f"there is no post={self.post!r}. {did_you_mean(str(self.post), POSTS)}")
        if self.groups.n != self.domain.n:
            raise UsageError(f"the domain has {self.domain.n} bins and the groups {self.groups.n}.")
        check_paid(self.epsilon, self.charges, self.sensitivity)
        raw = raw.ravel()
        raw.flags.writeable = False
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "charges", tuple(self.charges))
        for name in ("parameters", "provenance", "versions"):
            object.__setattr__(self, name, freeze(getattr(self, name), name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        together = self.presented is not None or other.presented is not None
        alike = not together or np.array_equal(self.presentable, other.presentable)
        return alike and np.array_equal(self.raw, other.raw) and self._header() == other._header()

    def __hash__(self) -> int:
        return hash((self.method, self.epsilon, self.created, self.domain.shape))

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Release], tuple[dict[str, Any]]]:
        return Release.from_dict, (self.to_dict(),)

    # ---- what it holds ------------------------------------------------------------------------------

    @cached_property
    def presentable(self) -> Floats:
        """The values after post-processing, one per bin, read-only."""
        if self.post == "none":
            return self.raw
        if self.presented is not None:
            return self.presented
        made = nonneg if self.post == "nonneg" else integer
        return _read_only(made(self.raw.reshape(self.domain.shape)).ravel())

    def values(self) -> Floats:
        """Return the values after post-processing, in the shape of the domain.

        >>> release.values().shape
        (4,)
        """
        return self.presentable.reshape(self.domain.shape)

    def counts(self) -> Floats:
        """Return ``values()`` under the name that plotting libraries use; they are not exact counts.

        >>> bool((release.counts() == release.values()).all())
        True
        """
        return self.values()

    def variances(self) -> Floats | None:
        """Return the variance of each raw value, read-only: NaN where it is unknown, None if all are.

        >>> release.variances().round(2).tolist()
        [1.84, 1.84, 1.84, 1.84]
        """
        variances = self.error.variances()
        return None if variances is None else _read_only(variances.reshape(self.domain.shape))

    @property
    def kind(self) -> str:
        """The kind of values, as plotting libraries name it (the UHI protocol)."""
        return "COUNT"

    @cached_property
    def axes(self) -> tuple[AxisView, ...]:
        """The axes as plotting libraries read them (the UHI protocol)."""
        from dphist.release.show import AxisView

        return tuple(AxisView(axis) for axis in self.domain.axes)

    @property
    def bounding(self) -> str:
        """The warning about the bias of contribution bounding; empty if a unit is one record."""
        return bounding_of(self.unit, self.sensitivity)

    # ---- questions ----------------------------------------------------------------------------------

    @overload
    def sum(
        self, lo: float | str, hi: float | str, /, *, level: float = ..., joint: bool = ...
    ) -> Estimate: ...
    @overload
    def sum(self, *where: Any, level: float = ..., joint: bool = ...) -> Any: ...
    def sum(self, *where: Any, level: float = 0.95, joint: bool = False) -> Estimate | Estimates:
        """Return the sum of the raw values of some bins, with a confidence interval for this query.

        >>> estimate = release.sum(10, 30)
        >>> estimate.low < estimate.value < estimate.high, estimate.level
        (True, 0.95)

        On a numeric axis give two edges: ``sum(30, 40)`` is 30 <= x < 40. For categories give labels:
        ``sum("red", "blue")`` or ``sum(["red", "blue"])``. On a grid give one of these for each axis:
        ``sum((0, 10), ["red"])``. Arrays of edges ask for many ranges at once, and return ``Estimates``.

        >>> release.sum([0, 10, 20], [10, 30, 40]).value.shape
        (3,)

        An interval is for a range that was chosen before looking at the release. With ``joint=True`` it is
        wider and holds for all ranges, or all rectangles of a grid, at once. The note says whether it comes
        from simulated noise or from Bonferroni's inequality.

        >>> picked = release.sum(10, 30, joint=True)
        >>> picked.low < estimate.low, estimate.high < picked.high
        (True, True)
        """
        noise_law.check_level(level)
        if joint:
            return self._joint_sum(where, level)
        if many.are_many(self.domain, where):
            boxes = many.boxes(self.domain, where)
            made = self.error.boxes_answers(boxes.sums(self._below), boxes, level=level)
            return Estimates(*made, level, self._note(self.error.description))
        if len(self.domain.axes) == 1 and not isinstance(self.domain.axis, Labelled):
            return self._range(*answers.ends_of(self.domain.axis, where), level)
        cells = answers.cells(self.domain, where)
        value = float(self.raw[cells].sum())
        return self._estimate(*self.error.cells_answer(value, cells, level=level), level)

    def count(self, label: str | int, *, level: float = 0.95) -> Estimate:
        """Return the raw value of one bin, named by its label, its integer, or when it begins.

        >>> colours = dphist.from_counts([300, 20], bins=["red", "green"], epsilon=1)
        >>> colours.count("red").level
        0.95
        """
        bin_of = answers.bin_named(self.domain, label)
        return self._range(bin_of, bin_of + 1, level)

    def total(self, *, level: float = 0.95) -> Estimate:
        """Return the sum of the raw values of all bins.

        >>> release.total(level=0.99).level
        0.99
        """
        noise_law.check_level(level)
        sums, ends = np.array([self.raw.sum()]), np.array([[0], [self.domain.n]])
        return self._estimate(*_single(self.error.range_answers(sums, *ends, level=level)), level)

    @property
    def holds_for_most(self) -> bool:
        """Whether intervals hold for about their level of all bins or ranges, and are no promise about each.

        They do where bins were measured together, and a part of the budget measured how they differ.

        >>> release.holds_for_most
        False
        """
        return self.error.is_calibrated

    def intervals(
        self, *, level: float = 0.95, joint: bool = False, most: bool = False
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of confidence intervals around the raw values, NaN where unknown.

        They hold for each bin on its own, or with ``joint=True`` simultaneously for all bins. With
        ``most=True`` they are narrower and hold for about 95 % of all bins: a statement about most bins, not
        about the one full bin among empty ones. It is known of averaged values of 1,024 bins or more;
        intervals that a part of epsilon has measured speak of most bins anyway.

        >>> low, high = release.intervals(joint=True)
        >>> bool((low < release.raw).all() and (release.raw < high).all())
        True
        """
        noise_law.check_level(level)
        if most and joint:
            raise UsageError("intervals hold for all bins at once (joint) or for most of them, not for both.")
        found = self.error.most_intervals(self.raw, level=level) if most else None
        if most and found is None and not self.error.is_calibrated:
            raise UsageError(
                "intervals of most bins are known of averaged values of 1,024 bins or more, such as those of "
                "method='average'; leave out most=True for those of each bin on its own."
            )
        low, high = found or self.error.bin_intervals(self.raw, level=level, joint=joint)
        return low.reshape(self.domain.shape), high.reshape(self.domain.shape)

    def presentable_intervals(self, *, level: float = 0.95, joint: bool = False) -> tuple[Floats, Floats]:
        """Return ``intervals``, cut at 0 if ``post`` makes the values nonnegative.

        True counts are never negative, so the cut does not change the coverage.

        >>> low, high = dphist.from_counts([0, 3], epsilon=1, post="nonneg").presentable_intervals()
        >>> bool((low >= 0).all())
        True
        """
        low, high = self.intervals(level=level, joint=joint)
        return (low, high) if self.post == "none" else (np.maximum(low, 0.0), np.maximum(high, 0.0))

    @overload
    def cdf(self, x: None = ..., *, level: float = ...) -> Floats: ...
    @overload
    def cdf(self, x: float | str, *, level: float = ...) -> Estimate: ...
    @overload
    def cdf(self, x: ArrayLike, *, level: float = ...) -> Any: ...
    def cdf(self, x: Any = None, *, level: float = 0.95) -> Floats | Estimate | Estimates:
        """Return the share of records below x, from 0 to 1, interpolated evenly inside a bin.

        It is NaN if the total is not positive. Without x, the shares below all edges are returned as an
        array, without intervals. They are computed from the
        running sums of the raw values, whose errors are known. An interval joins those of the records below
        and above, with at least the level (the union bound); inside a bin it reaches from what is possible at
        the lower edge to what is at the upper.

        >>> release.cdf().size
        5
        >>> below = release.cdf(20)
        >>> 0 <= below.low <= below.value <= below.high <= 1
        True
        """
        axis = ordered_axis(self.domain)
        if x is None:
            return self._shares
        noise_law.check_level(level)
        at = many.places(axis, x)
        value = np.interp(at, axis.edges, self._shares)
        low, high = self._share_ends(np.atleast_1d(at), np.atleast_1d(value), level)
        note = (
            "The intervals of the records below and above, joined by the union bound; holds for this x alone."
        )
        if np.isnan(low).any():
            note = f"Some intervals of shares are unknown. {self.error.description}"
        made = Estimates(np.atleast_1d(value), low, high, level, self._note(note))
        return made[0] if at.ndim == 0 else made

    def _share_ends(self, at: Floats, value: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the ends of the intervals of shares below some points."""
        edges, n, each = self.domain.axis.edges, self.domain.n, 1 - (1 - level) / 2
        lower = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, n)
        upper = np.clip(np.searchsorted(edges, at), 0, n)
        sums = self._below[0] + self._below[1]
        ends = []
        for edge, sign in ((lower, -1.0), (upper, 1.0)):
            start, stop = np.zeros_like(edge), np.full_like(edge, n)
            which = 1 if sign < 0 else 2  # of value, low and high: the share is least with few records below
            below = self.error.range_answers(sums[edge], start, edge, level=each)[which]
            above = self.error.range_answers(sums[-1] - sums[edge], edge, stop, level=each)[3 - which]
            below, above = np.maximum(below, 0.0), np.maximum(above, 0.0)
            some = below + above > 0  # neither is known to hold a record: any share is possible
            nothing = ~np.isfinite(below + above)
            with np.errstate(invalid="ignore"):  # where a bin was not measured
                share = np.where(some, below / np.where(some, below + above, 1.0), (1 + sign) / 2)
            ends.append(np.where(nothing, math.nan, share))
        return np.minimum(ends[0], value), np.maximum(ends[1], value)

    @cached_property
    def _shares(self) -> Floats:
        """The share of records below each edge; all NaN if the total is not positive."""
        sums = rising(self.raw)
        return _read_only(sums / sums[-1] if sums[-1] > 0.0 else np.full(sums.size, math.nan))

    @cached_property
    def _below(self) -> tuple[Floats, Floats]:
        """The running sums of the raw values."""
        return running(self.raw.reshape(self.domain.shape))

    @cached_property
    def _line_below(self) -> tuple[Floats, Floats]:
        """The running sums of the raw values, one bin after the other."""
        return self._below if len(self.domain.axes) == 1 else running(self.raw)

    def mean(self, *, level: float = 0.95) -> Estimate:
        """Return the mean of the records, each taken to lie in the middle of its bin, with an interval.

        The interval has at least the level. It counts the noise (Chernoff's bound) and that a record may lie
        anywhere in its bin; on an axis of integers it has the value of its integer. It is known where every
        bin has noise of its own. On an axis of time the number is in seconds since 1970, and ``str`` writes
        what the clock shows.

        >>> mean = release.mean()
        >>> 0 <= mean.low <= mean.value <= mean.high <= 40
        True
        """
        noise_law.check_level(level)
        axis, raw, measured = ordered_axis(self.domain), self.raw, self._measured
        least, most = many.mean_ends(axis)
        clock = axis.moment if isinstance(axis, Instants) else None
        total = float(raw.sum())
        if not total > 0.0:
            note = "The release has no mean: its total is not above zero."
            return Estimate(math.nan, None, None, level, self._note(note))
        ends = float(axis.edges[0]), float(axis.edges[-1])
        value = min(max(float((least + most) @ raw) / (2 * total), ends[0]), ends[1])
        if self.error.weighted_margin(least - value, level=level) is None:
            note = f"Intervals for the mean of this release are unknown{self._why_no_mean()}"
            return Estimate(value, None, None, level, self._note(note), (clock(value),) if clock else ())

        def possible(mean: float, at: Floats, sign: float) -> bool:
            excess = sign * float((at - mean) @ measured)
            return excess <= (self.error.weighted_margin(at - mean, level=level) or 0.0)

        low, high = ends
        if measured.sum() > 0.0:  # otherwise nothing is refuted
            low = many.last_accepted(value, ends[0], lambda mean: possible(mean, least, 1.0))
            high = many.last_accepted(value, ends[1], lambda mean: possible(mean, most, -1.0))
        note = "Holds for the mean alone, with at least the stated level (Chernoff's bound)."
        spelled = tuple(map(clock, (value, low, high))) if clock else ()
        return Estimate(value, low, high, level, self._note(note), spelled)

    def _why_no_mean(self) -> str:
        """Return why there is no interval of the mean, which weighs every bin by its place."""
        known = ""
        if self.error.is_calibrated:
            known = "of how records lie inside the groups only the errors of bins and ranges were measured"
        elif self.groups.are_singletons and self.error.total_noise is not None:
            known = "the law of the noise is worked out for sums of bins alone"
        return f": it weighs every bin by its place, and {known}." if known else f". {self.error.description}"

    @overload
    def quantile(self, q: float, *, level: float = ...) -> Estimate: ...
    @overload
    def quantile(self, q: ArrayLike, *, level: float = ...) -> Any: ...
    def quantile(self, q: Any, *, level: float = 0.95) -> Estimate | Estimates:
        """Return the value below which the share q of the records lies, interpolated evenly inside its bin.

        The interval runs between edges and has at least the confidence level: it joins all bins that may
        contain the quantile according to the noisy sums. On an axis of time the numbers are seconds since
        1970, and ``str`` writes what the clock shows. An array of shares returns ``Estimates``, each interval
        for its quantile alone.

        >>> median = release.quantile(0.5)
        >>> 0 <= median.low <= median.value <= median.high <= 40
        True
        >>> len(release.quantile([0.25, 0.5, 0.75]))
        3
        """
        noise_law.check_level(level)
        if isinstance(q, list | tuple | np.ndarray) and np.ndim(q) == 1 and len(q):
            known = cache(partial(self._edge_intervals, level))  # of all quantiles the same
            each = [self._quantile(share, level, known) for share in q]
            rows = [[e.value, *(math.nan if x is None else x for x in (e.low, e.high))] for e in each]
            axis = self.domain.axis
            clock = axis.moment if isinstance(axis, Instants) else None
            value, low, high = np.array(rows, dtype=np.float64).T
            return Estimates(value, low, high, level, each[0].note, clock)
        return self._quantile(q, level, partial(self._edge_intervals, level))

    def _edge_intervals(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends of the intervals of the shares below all edges."""
        return self._share_ends(self.domain.axis.edges, self.cdf(), level)

    def _quantile(self, q: Any, level: float, known: Callable[[], tuple[Floats, Floats]]) -> Estimate:
        """Return one quantile; ``known`` says what ``_edge_intervals`` does, if it is asked."""
        if isinstance(q, bool) or not isinstance(q, int | float | np.number) or not 0 <= q <= 1:
            raise UsageError(f"q must be a number from 0 to 1, such as 0.5, not {q!r}.")
        axis = ordered_axis(self.domain)
        edges, clock = axis.edges, axis.moment if isinstance(axis, Instants) else None
        shares = self.cdf()
        if math.isnan(shares[-1]):
            note = "The release has no quantiles: its total is not above zero."
            return Estimate(math.nan, None, None, level, self._note(note))
        value = invert(edges, shares, float(q))
        margins = self.error.quantile_margins(float(q), level=level)
        if margins is not None:
            bins = possible_bins(self._measured, margins, q=float(q))
            note = "Holds for this quantile alone, with at least the stated level (Chernoff's bound)."
        else:
            # The edges of the quantile's own bin are fixed: it is left out only if either's interval misses.
            least, most = known()
            if np.isnan(least).any():
                note = f"Intervals for quantiles of this release are unknown. {self.error.description}"
                return Estimate(value, None, None, level, self._note(note), (clock(value),) if clock else ())
            bins = np.flatnonzero((least[:-1] <= q) & (most[1:] >= q))
            note = f"Holds for this quantile alone, as intervals of shares do. {self.error.description}"
        ends = (edges[bins[0]], edges[bins[-1] + 1]) if bins.size else (value, value)
        low, high = min(float(ends[0]), value), max(float(ends[1]), value)
        spelled = tuple(map(clock, (value, low, high))) if clock else ()
        return Estimate(value, low, high, level, self._note(note), spelled)

    def rebin(self, into: int | Sequence[Any] | NDArray[Any]) -> Release:
        """Return a release with coarser bins: every ``into`` neighbours merged, or cut at these edges.

        This is post-processing and spends nothing. The edges must be edges of this release, since nothing
        was measured inside a bin.

        >>> release.rebin(2).domain.shape, release.rebin([0, 10, 40]).domain.shape
        ((2,), (2,))
        """
        axis = ordered_axis(self.domain)
        starts = coarse_starts(axis, into)
        if starts.size == axis.n + 1:
            return self
        coarse = coarser(axis, starts)
        return dataclasses.replace(
            self,
            domain=Domain((coarse,)),
            raw=self._merged_values(self.raw, self.error, starts),
            groups=Groups.singletons(coarse.n),
            error=self.error.merged(starts),
            presented=None if self.presented is None else np.add.reduceat(self.presented, starts[:-1]),
            parameters={"rebinned_from": axis.n, **self.parameters},
        )

    def project(self, axis: int | str) -> Release:
        """Return the histogram of one axis of a grid: the sums over the other, with the error that follows.

        This is post-processing and spends nothing. Name the axis 0 or 1, "x" or "y", or by its column.

        >>> grid = dphist.from_counts([[30, 20], [50, 10], [5, 5]], epsilon=1)
        >>> grid.project(0).domain.shape, grid.project("y").domain.shape
        ((3,), (2,))
        """
        if len(self.domain.axes) != 2:
            raise UsageError("only a grid can be projected; this release has one axis already.")
        columns = self.provenance.get("column")
        names = columns if isinstance(columns, tuple) and len(columns) == 2 else ("x", "y")
        known = {0: 0, 1: 1, "x": 0, "y": 1, names[0]: 0, names[1]: 1}
        if isinstance(axis, bool) or axis not in known:
            raise UsageError(f"there is no axis {axis!r}: a grid has 0 and 1, or 'x' and 'y'.")
        kept = known[axis]
        rows, across = self.domain.shape[kept], self.domain.shape[1 - kept]
        error = self.error if kept == 0 else self.error.transposed(across)
        grid, starts = self.raw.reshape(self.domain.shape), np.arange(0, self.domain.n + 1, across)
        presented = None if self.presented is None else self.values().sum(axis=1 - kept)
        return dataclasses.replace(
            self,
            domain=Domain((self.domain.axes[kept],)),
            raw=self._merged_values((grid if kept == 0 else grid.T).ravel(), error, starts),
            groups=Groups.singletons(rows),
            error=error.merged(starts),
            presented=presented,
            parameters={"projected_from": list(self.domain.shape), **self.parameters},
            provenance={**self.provenance, "column": names[kept] if columns else columns},
        )

    # ---- handing out --------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values(), dtype=dtype, copy=copy)

    def __iter__(self) -> Iterator[Floats]:
        """Unpack as ``numpy.histogram`` and ``numpy.histogram2d`` do: ``values, edges = release``."""
        return iter(self.to_numpy())

    def _to_boost_histogram_(self) -> Any:
        """Return a histogram of boost-histogram, which ``bh.Histogram`` and ``hist.Hist`` ask for."""
        from dphist.release.show import boost_histogram

        return boost_histogram(self)

    def to_numpy(self) -> tuple[Floats, ...]:
        """Return values and edges, like ``numpy.histogram`` (for a grid like ``numpy.histogram2d``).

        >>> values, edges = release.to_numpy()
        >>> edges.tolist()
        [0.0, 10.0, 20.0, 30.0, 40.0]
        """
        return (self.values().copy(), *(axis.edges for axis in self.domain.axes))

    def to_pandas(self, *, level: float = 0.95) -> Any:
        """Return a pandas table, one row per bin.

        >>> list(release.to_pandas())
        ['lo', 'hi', 'value', 'raw', 'low', 'high']
        """
        from dphist.release.show import frame

        return frame(self, "pandas", level=level)

    def to_arrow(self, *, level: float = 0.95) -> Any:
        """Return a pyarrow table, one row per bin.

        >>> release.to_arrow().num_rows
        4
        """
        from dphist.release.show import frame

        return frame(self, "pyarrow", level=level)

    def to_polars(self, *, level: float = 0.95) -> Any:
        """Return a polars table, one row per bin.

        >>> release.to_polars().height
        4
        """
        from dphist.release.show import frame

        return frame(self, "polars", level=level)

    def to_dict(self) -> dict[str, Any]:
        """Return the release as the document of docs/release-format.md: new dictionaries and lists.

        >>> release.to_dict()["method"]
        'auto'
        """
        made: dict[str, Any] = json.loads(self.to_json())
        return made

    def to_json(self) -> str:
        """Return the document of ``to_dict`` as JSON text.

        >>> release.to_json().startswith("{")
        True
        """
        from dphist.release.files import document, written

        return written(document(self))

    @classmethod
    def from_dict(cls, described: object) -> Release:
        """Return the release that ``to_dict`` described; raise ReleaseFileError for anything else.

        >>> dphist.Release.from_dict(release.to_dict()) == release
        True
        """
        from dphist.release.files import read_document

        return read_document(described, "this document")

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a .json or .parquet file, which ``dphist.load`` reads, or a .csv file.

        An existing file is an error unless it holds this same release or ``overwrite=True``. It is then
        replaced atomically.

        >>> release.save("ages.json").name
        'ages.json'
        >>> dphist.load("ages.json") == release
        True
        """
        from dphist.release.files import save

        return save(self, path, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        level: float = 0.95,
        title: str | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write a table for spreadsheets and other programs: .csv, .xlsx (with a sheet on methods), .parquet.

        What each column means, and the release itself, stand in a file of metadata beside it (CSVW), by which
        ``dphist.load`` finds the release again.

        >>> release.export("table.csv").name
        'table.csv'
        >>> dphist.load("table.csv") == release
        True

        Args:
            level: the confidence level of the intervals.
            title: of the table, for its metadata.
            overwrite: replace another file of that name.
        """
        from dphist.release.export import export

        return export(self, path, level=level, title=title, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """The old name of ``dphist.load``."""
        from dphist.release.files import load_one

        warn_renamed("Release.load", "dphist.load")
        return load_one(path)

    @renamed_scale
    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        log: bool = False,
        level: float = 0.95,
        joint: bool = False,
        truth: ArrayLike | None = None,
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
        size: tuple[float, float] | None = None,
        overwrite: bool = False,
    ) -> Picture:
        """Return a chart with the confidence intervals that are known; save it if a path is given.

        >>> release.plot("ages.svg", log=True).to_svg().startswith("<svg")
        True

        Args:
            log: draw the counts on a logarithmic axis.
            joint: draw the intervals that hold simultaneously for all bins.
            truth: exact counts to draw beside the values; only for data that is public.
            title: what stands above the picture; by default what was counted.
            xlabel: the name of the bins' axis.
            ylabel: the name of the other axis.
            size: width and height of the whole picture in pixels, such as (900, 400).
            overwrite: replace an existing file.
        """
        from dphist.release.show import Looks, draw

        looks = Looks(title, xlabel, ylabel, size)
        picture = draw(self, log=log, level=level, joint=joint, truth=truth, looks=looks)
        if path is not None:
            picture.save(path, overwrite=overwrite)
        return picture

    def __repr__(self) -> str:
        from dphist.release.show import one_line

        return one_line(self)

    def _repr_html_(self) -> str:
        from dphist.release.show import page

        return page(self)

    # ---- inside -------------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        from dphist.release.files import header

        return header(self)

    def _estimate(self, value: float, low: float, high: float, level: float, how: str = "") -> Estimate:
        note = self._note(how + self.error.description)
        if math.isnan(low):
            return Estimate(value, None, None, level, note)
        return Estimate(value, low, high, level, note)

    def _joint_sum(self, where: tuple[Any, ...], level: float) -> Estimate | Estimates:
        """Return sums with intervals that hold for all ranges at once."""
        boxes = many.boxes(self.domain, where)
        made, how = self.error.joint_answers(boxes.sums(self._below), boxes, level=level)
        if many.are_many(self.domain, where):
            return Estimates(*made, level, self._note(f"{how} {self.error.description}"))
        return self._estimate(*_single(made), level, f"{how} ")

    def _range(self, first: int, last: int, level: float) -> Estimate:
        """Return the sum of bins first to last - 1."""
        value = float(sum(part[last] - part[first] for part in self._line_below))
        ends = np.array([first]), np.array([last])
        return self._estimate(
            *_single(self.error.range_answers(np.array([value]), *ends, level=level)), level
        )

    @cached_property
    def _measured(self) -> Floats:
        """The unbiased values: the raw ones, or what they were averaged from."""
        measured = self.error.measured_values
        return self.raw if measured is None else measured

    @staticmethod
    def _merged_values(raw: Floats, error: ErrorModel, starts: Ints) -> Floats:
        """Return the values of merged bins: sums, moved where what was measured contradicts them."""
        sums = np.add.reduceat(raw, starts[:-1])
        return error.range_answers(sums, starts[:-1], starts[1:], level=0.95)[0]

    def _note(self, words: str) -> str:
        shared = answers.shared_bins(self.domain)
        about = f"{words.rstrip('.')}. {shared}" if shared else words
        return stamped(about, self.bounding, simulated=self.simulated)


def _single(answers: Answers) -> tuple[float, float, float]:
    value, low, high = (float(each[0]) for each in answers)
    return value, low, high


def _read_only(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
