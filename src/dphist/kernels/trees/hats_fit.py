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
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.hats import HatShape, Weights, sides_of
from dphist.kernels.trees.hats_ranges import Segments, make_segments, range_variances
from dphist.kernels.trees.variances import Queries, closed_form, query_count, range_ends

_FEW = 32  # ranges, up to which one solution each is quicker than sweeps for all


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
        sums = np.empty(hats.weights.size + hats.first.size)
        _sum_under(hats.first, hats.offset, hats.weights, self.own, sums)
        return sums

    @cached_property
    def segments(self) -> Segments:
        """What the variances of many ranges are read from."""
        return make_segments(self.hats, self.own, self.row[:-1] - self.start, self.factor)


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
    _factorise(hats.first, hats.offset, hats.weights, own, own_noise, start, row, factor)
    return HatsError(hats, own, start, row, factor)


@kernel
def _sum_under(first: Ints, offset: Ints, weights: Weights, own: Floats, under: Floats) -> None:
    for g in range(first.size):
        total = 0.0
        at = offset[g] + g
        under[at] = 0.0
        for i in range(offset[g + 1] - offset[g]):
            total += weights[offset[g] + i] * own[first[g] + i]
            under[at + i + 1] = total


@kernel
def _factorise(
    first: Ints,
    offset: Ints,
    weights: Weights,
    own: Floats,
    noise: Floats,
    start: Ints,
    row: Ints,
    factor: Floats,
) -> None:
    for g in range(first.size):
        end = first[g] + offset[g + 1] - offset[g]
        for h in range(start[g], g + 1):
            total = noise[g] if h == g else 0.0
            one, two = offset[g] - first[g], offset[h] - first[h]
            for b in range(max(first[g], first[h]), min(end, first[h] + offset[h + 1] - offset[h])):
                total += weights[one + b] * own[b] * weights[two + b]
            mine, other = row[g] - start[g], row[h] - start[h]
            for i in range(max(start[g], start[h]), h):
                total -= factor[mine + i] * factor[other + i]
            factor[mine + h] = np.sqrt(total) if h == g else total / factor[other + h]


def solve_hats(error: HatsError, answers: ArrayLike) -> Floats:
    """Return the bins that fit the noisy answers best: exact weighted least squares, O(n) for each level."""
    y = np.ascontiguousarray(answers, dtype=np.float64)
    hats = error.hats
    if y.shape != (hats.size,) or not np.isfinite(y).all():
        raise UsageError(f"least squares needs {hats.size} finite noisy answers.")
    return _solve_each(error, y[np.newaxis]).ravel()


def side_errors(rows: int, columns: int) -> tuple[HatsError, HatsError]:
    """Return what least squares makes of noise of variance 1 along either side of a grid."""
    down, across = (hats_error(side, 1.0) for side in sides_of(rows, columns, "all-ranges"))
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
    _solve_rows(
        hats.first, hats.offset, hats.weights, error.own, error.start, error.row, error.factor,
        np.empty(hats.first.size), gap, x,
    )  # fmt: skip
    return x


@kernel
def _solve_rows(
    first: Ints,
    offset: Ints,
    weights: Weights,
    own: Floats,
    start: Ints,
    row: Ints,
    factor: Floats,
    under: Floats,
    gap: Floats,
    x: Floats,
) -> None:
    """Fit every row of x, the bins' own answers, to the hats' answers in ``gap``."""
    for k in range(x.shape[0]):
        for h in range(first.size):
            under[h] = 0.0
        _under_hats(first, offset, weights, x[k], under)
        for h in range(first.size):
            gap[k, h] -= under[h]
        _forward(start, row, factor, gap[k])
        _correct(first, offset, weights, own, start, row, factor, gap[k], x[k])


@subkernel
def _correct(
    first: Ints,
    offset: Ints,
    weights: Weights,
    own: Floats,
    start: Ints,
    row: Ints,
    factor: Floats,
    gap: Floats,
    x: Floats,
) -> None:
    """Move x, the bins' own answers, to the best fit: by own H' M^-1 (y - H x), M the factorised matrix.

    The gap is y - H x, solved with the factor; here it is solved with the factor transposed.
    """
    p = first.size
    for h in range(p - 1, -1, -1):
        at = row[h] - start[h]
        gap[h] /= factor[at + h]
        for i in range(start[h], h):
            gap[i] -= factor[at + i] * gap[h]
    for h in range(p):
        for i in range(offset[h], offset[h + 1]):
            b = first[h] + i - offset[h]
            x[b] += own[b] * weights[i] * gap[h]


@kernel
def _forward(start: Ints, row: Ints, factor: Floats, gap: Floats) -> None:
    """Solve with the factor in place."""
    for h in range(gap.size):
        at = row[h] - start[h]
        total = gap[h]
        for i in range(start[h], h):
            total -= factor[at + i] * gap[i]
        gap[h] = total / factor[at + h]


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
        out[some] = range_variances(error.segments, a[some], b[some])
        return out
    return np.array([_one_range(error, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])


def _one_range(error: HatsError, lo: int, hi: int) -> float:
    """Return the variance of the bins' own answers less what the hats take off it."""
    first, offset = error.hats.first, error.hats.offset
    at, width = offset[:-1] + np.arange(first.size), np.diff(offset)
    gap = error.under[at + np.clip(hi - first, 0, width)] - error.under[at + np.clip(lo - first, 0, width)]
    _forward(error.start, error.row, error.factor, gap)
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
    _forward(error.start, error.row, error.factor, gap)
    return float((error.own * weights**2).sum() - (gap**2).sum())


def _sums_under_hats(hats: HatShape, x: Floats) -> Floats:
    """Return each hat's weighted sum of x."""
    out = np.zeros(hats.first.size)
    _under_hats(hats.first, hats.offset, hats.weights, x, out)
    return out


@kernel
def _under_hats(first: Ints, offset: Ints, weights: Weights, x: Floats, out: Floats) -> None:
    for h in range(first.size):
        for i in range(offset[h], offset[h + 1]):
            out[h] += weights[i] * x[first[h] + i - offset[h]]
