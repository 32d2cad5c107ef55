"""Least squares from noisy answers of bins and hats, and the variance of any range.

The hats are sorted by their ends, so each overlaps only a run of the hats before it. The matrix of their
overlaps has a Cholesky factor inside the same runs: time and memory are proportional to n times the number of
levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.trees.hats import WHOLE_OF_A_SIDE, HatShape, Weights, fitted_hats, sides_of
from dphist.kernels.trees.hats_ranges import (
    Segments,
    Sums,
    make_segments,
    make_sums,
    range_variances,
    running_sums,
)
from dphist.kernels.trees.variances import Queries, closed_form, query_count, range_ends

_FEW = 32  # ranges, up to which one solution each is quicker than sweeps for all
_BINS_PER_RANGE = 64  # with more, sums are made up to the ends of the ranges alone, and not kept


@dataclass(frozen=True, eq=False)
class HatsError:
    """The noise of the hats' answers, prepared for least squares and for the variance of any range.

    Args:
        own: the variance of each bin from its own query alone.
        start: the first hat that each hat's row of ``factor`` reaches back to.
        row: where each row begins in ``factor``, and, last, how long that is.
        factor: lower Cholesky factor of the hats' own noise plus that of the bins under them, row after row.
    """

    hats: HatShape
    own: Floats
    start: Ints
    row: Ints
    factor: Floats

    @cached_property
    def under(self) -> Floats:
        """For each hat, the sums of weight times ``own`` over its first 0, 1, ... bins."""
        hats = self.hats
        sums = np.zeros(hats.weights.size + hats.first.size)
        _sum_under(hats, self.own, hats.offset[:-1] + np.arange(hats.first.size), 1, sums)
        return sums

    @cached_property
    def base(self) -> Ints:
        """Where the row of each hat would begin in ``factor``, did it begin with the first hat."""
        return self.row[:-1] - self.start

    @cached_property
    def segments(self) -> Segments:
        """What the variances of many ranges are read from."""
        return make_segments(self.hats, self.base, self.factor)

    @cached_property
    def sums(self) -> Sums:
        """The sums over the first bins of each segment."""
        return make_sums(self.segments, self.hats, self.own, np.arange(self.hats.n + 1))


def hats_error(hats: HatShape, variance: ArrayLike) -> HatsError:
    """Return the prepared structure: O(n) for each level. One variance for all answers, or one for each."""
    v = np.asarray(variance, dtype=np.float64)
    if v.shape not in ((), (hats.size,)) or not (np.isfinite(v).all() and (v > 0).all()):
        raise UsageError(f"the noise of {hats.size} answers needs one positive variance, or one for each.")
    each = np.broadcast_to(v, hats.size)
    own = hats.bins.astype(np.float64)
    own *= own
    np.divide(each[: hats.n], own, out=own)
    last = hats.first + np.diff(hats.offset)
    start = np.searchsorted(last, hats.first, side="right")
    row = np.zeros(start.size + 1, np.int64)
    np.cumsum(np.arange(start.size) - start + 1, out=row[1:])
    own_noise = np.array(each[hats.n :])  # which can be written to, as all of them: compiled once
    factor = np.empty(row[-1])
    error = HatsError(hats, own, start, row, factor)
    shift = hats.offset[:-1] - hats.first
    _factorise(hats.first, last, shift, hats.weights, own, own_noise, start, error.base, factor)
    return error


def _sum_under(hats: HatShape, x: Floats, at: Ints, step: int, out: Floats) -> None:
    """Write the sums of weight times x under each hat, as `running_sums` does."""
    running_sums(hats.first, hats.offset[:-1], np.diff(hats.offset), hats.weights, x, at, step, out)


@kernel
def _factorise(
    first: Ints,
    last: Ints,
    shift: Ints,
    weights: Weights,
    own: Floats,
    noise: Floats,
    start: Ints,
    base: Ints,
    factor: Floats,
) -> None:
    for g in range(first.size):
        for h in range(start[g], g + 1):  # which end no later
            total = noise[g] if h == g else 0.0
            for b in range(first[g] if first[g] > first[h] else first[h], last[h]):
                total += weights[shift[g] + b] * own[b] * weights[shift[h] + b]
            for i in range(start[g] if start[g] > start[h] else start[h], h):
                total -= factor[base[g] + i] * factor[base[h] + i]
            factor[base[g] + h] = np.sqrt(total) if h == g else total / factor[base[h] + h]


def solve_hats(error: HatsError, answers: ArrayLike) -> Floats:
    """Return the bins that fit the noisy answers best: exact weighted least squares, O(n) for each level."""
    y = np.ascontiguousarray(answers, dtype=np.float64)
    hats = error.hats
    if y.shape != (hats.size,) or not np.isfinite(y).all():
        raise UsageError(f"least squares needs {hats.size} finite noisy answers.")
    return _solve_each(error, y[np.newaxis]).ravel()


def side_errors(rows: int, columns: int) -> tuple[HatsError, HatsError]:
    """Return what least squares makes of noise of variance 1 along either side of a grid."""
    sides = (fitted_hats(n, "all-ranges", whole=WHOLE_OF_A_SIDE) for n in (rows, columns))
    down, across = (hats_error(side, 1.0) for side in sides)
    return down, across


def solve_sides(down: HatsError, across: HatsError, answers: ArrayLike) -> Floats:
    """Return the cells of a grid, row by row, that fit noisy answers of `hats.apply_hats` best.

    All answers have noise of one variance, so least squares goes along the columns, then along the rows.
    """
    y = np.asarray(answers, dtype=np.float64)
    shape = down.hats.size, across.hats.size
    if y.shape != (shape[0] * shape[1],) or not np.isfinite(y).all():
        raise UsageError(f"least squares needs {shape[0]} x {shape[1]} finite noisy answers.")
    rows = _solve_each(across, y.reshape(shape))
    return np.ascontiguousarray(_solve_each(down, np.ascontiguousarray(rows.T)).T).ravel()


def _solve_each(error: HatsError, y: Floats) -> Floats:
    """Return the best fit to every row of answers."""
    hats = error.hats
    x = y[:, : hats.n] / hats.bins
    gap = y[:, hats.n :].copy()  # one row would be handed on as it is, and written over
    start, base, factor = error.start, error.base, error.factor
    under, at = np.zeros(hats.first.size), np.arange(hats.first.size)
    for fitted, off in zip(x, gap, strict=True):
        _sum_under(hats, fitted, at, 0, under)
        off -= under
        _forward(start, base, factor, off)
        _correct(hats.first, hats.offset, hats.weights, error.own, start, base, factor, off, fitted)
    return x


@kernel
def _correct(
    first: Ints,
    offset: Ints,
    weights: Weights,
    own: Floats,
    start: Ints,
    base: Ints,
    factor: Floats,
    gap: Floats,
    x: Floats,
) -> None:
    """Move x, the bins' own answers, to the best fit: by own H' M^-1 (y - H x), M the factorised matrix.

    The gap is y - H x, solved with the factor; here it is solved with the factor transposed.
    """
    p = first.size
    for h in range(p - 1, -1, -1):
        gap[h] /= factor[base[h] + h]
        for i in range(start[h], h):
            gap[i] -= factor[base[h] + i] * gap[h]
    for h in range(p):
        for i in range(offset[h], offset[h + 1]):
            b = first[h] + i - offset[h]
            x[b] += own[b] * weights[i] * gap[h]


@kernel
def _forward(start: Ints, base: Ints, factor: Floats, gap: Floats) -> None:
    """Solve with the factor in place."""
    for h in range(gap.size):
        for i in range(start[h], h):
            gap[h] -= factor[base[h] + i] * gap[i]
        gap[h] /= factor[base[h] + h]


def hats_range_variances(error: HatsError, lo: ArrayLike, hi: ArrayLike) -> Floats:
    """Return the variance of each answer to a range of bins [lo, hi).

    A few ranges take O(number of hats) each; many take O(levels^2) each, after O(n) for each power of two
    among their lengths.
    """
    a, b = (np.atleast_1d(np.asarray(x, dtype=np.int64)) for x in (lo, hi))
    hats = error.hats
    if a.shape != b.shape or a.ndim != 1 or not ((a >= 0) & (a <= b) & (b <= hats.n)).all():
        raise UsageError(f"ranges need as many begins as ends, rising, within the {hats.n} bins.")
    if a.size > _FEW:
        out, some = np.zeros(a.size), np.flatnonzero(a < b)
        a, b, known = a[some], b[some], error.segments
        if a.size * _BINS_PER_RANGE < hats.n:
            sums = make_sums(known, hats, error.own, np.unique(np.concatenate((known.edge, a, b))))
        else:
            sums = error.sums
        out[some] = range_variances(known, sums, a, b)
        return out
    return np.array([_one_range(error, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])


def _one_range(error: HatsError, lo: int, hi: int) -> float:
    """Return the variance of the bins' own answers less what the hats take off it."""
    first, offset = error.hats.first, error.hats.offset
    at, width = offset[:-1] + np.arange(first.size), np.diff(offset)
    gap = error.under[at + np.clip(hi - first, 0, width)] - error.under[at + np.clip(lo - first, 0, width)]
    _forward(error.start, error.base, error.factor, gap)
    return float(error.own[lo:hi].sum() - gap @ gap)


def hats_expected_error(hats: HatShape, queries: Queries) -> float:
    """Return E, the variance of an answer in units of 2/epsilon^2, per query.

    Over all ranges, the sum of Var(P_y - P_x) is (n + 1) times that of the prefixes' Var(P_x), less Var(sum
    P_x).
    """
    error = hats_error(hats, float(hats.whole) ** 2)
    n = hats.n
    count = query_count(np.ones(n, np.int64), queries)
    if isinstance(queries, tuple):
        return float(hats_range_variances(error, *range_ends(queries, n)).sum()) / count
    at = np.arange(n)
    if closed_form(queries) == "points":
        return float(hats_range_variances(error, at, at + 1).sum()) / count
    total = float(hats_range_variances(error, np.zeros_like(at), at + 1).sum())
    if queries == "prefixes":
        return total / count
    weights = n - np.arange(float(n))
    return ((n + 1) * total - hats_weighted_variance(error, weights)) / count


def sides_gain(rows: int, columns: int) -> float:
    """Return the standard error of a grid's mean rectangle by hats of its sides, over that by single cells.

    The mean of all ranges of n bins has (n + 2) / 3 of them.
    """
    gain = 1.0
    for side in sides_of(rows, columns, "all-ranges"):
        gain *= hats_expected_error(side, "all-ranges") * 3.0 / (side.n + 2.0)
    return math.sqrt(gain)


def hats_weighted_variance(error: HatsError, weights: Floats) -> float:
    """Return the variance of the sum of all bins, each times its weight."""
    gap = _sums_under_hats(error.hats, error.own * weights)
    _forward(error.start, error.base, error.factor, gap)
    return float((error.own * weights**2).sum() - (gap**2).sum())


def _sums_under_hats(hats: HatShape, x: Floats) -> Floats:
    """Return each hat's weighted sum of x."""
    out = np.zeros(hats.first.size)
    _sum_under(hats, x, np.arange(out.size), 0, out)
    return out
