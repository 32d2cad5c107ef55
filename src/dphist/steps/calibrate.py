"""After step 4: a small part of the budget measures how far the values are from the true counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Groups, Ints
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Estimated
from dphist.uncertainty import noise_law
from dphist.uncertainty.calibrated import (
    Calibrated,
    Rough,
    Runs,
    fitted,
    poisson_distance,
    rising_means,
    total_variances,
)
from dphist.uncertainty.models import GroupTotals, TreeTotals

POINTS = Fraction(2, 5)  # of the share, for single bins; the rest is for parts of groups, which are fewer
_BIN_CLASSES, _CUT_CLASSES, _RUNS = 4, 2, 4
_CLEAR = 20  # how many times the noise's scale the records of a class shall be
_GRID, _WIDEST = 1 << 8, 2.0**38
_LAPLACE, _NORMAL = math.sqrt(0.5), 0.78  # E|X| of noise with standard deviation 1: of a total, of several
_SQUARE = 1.8  # E[X^2] over E|X|^2, between a normal and a Laplace variable
_SHARED = 0.8  # the variance of |X| over its squared mean, likewise
_WARY = 0.4  # of the doubt about a measured sum, added to it where everything hangs on that one
_TOGETHER = 0.4  # how far bins are off together: 0 is independently, 1 is all in one direction


def calibrate(curator: Curator, groups: Groups, estimated: Estimated, *, share: Fraction) -> Estimated:
    """Return the values with measured intervals; as they are, and unpaid, where nothing is hidden."""
    base, noise = estimated.error, estimated.noise
    known = noise is not None or isinstance(base, GroupTotals | TreeTotals)
    if groups.are_singletons or not known:
        return estimated
    variances = total_variances(base, noise)
    if not np.isfinite(variances).all():
        return estimated
    sizes = groups.sizes
    values = groups.ordered(estimated.values)[groups.starts[:-1]]
    mean = (_LAPLACE if isinstance(base, GroupTotals) else _NORMAL) * np.sqrt(variances)
    ranges = groups.order is None or not isinstance(base, TreeTotals)
    points = share * POINTS if ranges else share

    # Twice used noise has singled out bins because of their noise: they are no better known than the others.
    counted = (sizes > 1) | (noise is not None)
    # So many classes that the noise on a sum is small beside the records in it.
    records = float(np.abs(values[counted]) @ sizes[counted])
    most = min(max(int(records / (_CLEAR * curator.scale(points))), 1), _BIN_CLASSES)
    classes = _classes(np.abs(values), sizes, counted, most=most)
    sums, scale = _distances(
        curator, Groups.singletons(groups.n), estimated.values, groups.spread(classes), share=points
    )
    prior = poisson_distance(values)
    if noise is not None:  # twice used: values below zero are no chance of fresh noise, and no count is
        prior = np.maximum(prior, np.maximum(-values, 0) / 3)
    weights = np.where(classes < 0, 0, sizes)
    bias = _biases(mean / sizes, prior, weights, sizes, classes, sums, scale)
    cuts, runs = None, None
    if ranges and groups.order is None:
        cuts = _cuts(curator, groups, estimated.values, mean / 2, bias, share=share - points)
    elif ranges:
        runs = _runs(curator, groups, estimated.values, variances, bias, share=share - points)
    rough = None
    if estimated.rough is not None and estimated.rough.values.shape == (groups.n,):
        rough = _rough(groups, estimated, float(sums.sum()) / int(weights.sum()), counted)
    error = Calibrated(
        base=base,
        groups=groups,
        values=values,
        bias=bias,
        distances=sums,
        classes=classes,
        scale=scale,
        noise=noise,
        cuts=cuts,
        runs=runs,
        rough=rough,
    )
    return dataclasses.replace(estimated, error=error)


def _distances(
    curator: Curator, pieces: Groups, targets: Floats, classes: Ints, *, share: Fraction
) -> tuple[Floats, float]:
    """Return the noisy sums of |total of a piece - target|, one per class, and the scale of their noise."""
    grid = _GRID
    while grid > 1 and curator.scale(share) * grid > _WIDEST:
        grid //= 2
    centres = np.clip(np.rint(targets * grid), -(2.0**60), 2.0**60).astype(np.int64)
    noisy = curator.measure_distances(pieces, centres, classes, grid=grid, share=share)
    return noisy.values / grid, float(np.max(noisy.scale)) / grid


def _classes(key: Floats, sizes: Ints, counted: NDArray[np.bool_], *, most: int) -> Ints:
    """Return classes of groups by a rising key, with about as many bins each; -1 for groups not counted."""
    out = np.full(key.size, -1, dtype=np.int64)
    which = np.flatnonzero(counted)
    which = which[np.argsort(key[which], kind="stable")]
    ends = np.cumsum(sizes[which])
    middle = ends - sizes[which] / 2
    raw = np.minimum((middle / ends[-1] * most).astype(np.int64), most - 1)
    out[which] = np.unique(raw, return_inverse=True)[1]  # no class is left empty
    return out


def _biases(
    noise: Floats,
    prior: Floats,
    weights: Ints,
    shared: Ints,
    classes: Ints,
    sums: Floats,
    scale: float,
    *,
    certain: bool = False,
) -> Floats:
    """Return each group's bias: the prior, unless the measured means, which rise with the class, refute it.

    Args:
        weights: how many distances of each group are in its sum.
        shared: how many of them its noise moves together.
        certain: whether a measured sum above the prior is taken as it is, not only if it is clearly above.
    """
    counts = np.bincount(classes[classes >= 0], weights=weights[classes >= 0]).astype(np.int64)
    risen = rising_means(sums, counts)
    bias = np.zeros(noise.size)
    for c, total in enumerate(risen.tolist()):
        own = classes == c
        moved = _SHARED * float(((shared[own] * noise[own]) ** 2).sum())
        doubt = math.sqrt(2 * scale**2 + moved)
        least = total if certain else total - doubt
        bias[own] = fitted(noise[own], prior[own], weights[own], total, least=least, most=total + 2 * doubt)
    return bias


def _cuts(
    curator: Curator, groups: Groups, values: Floats, noise: Floats, bias: Floats, *, share: Fraction
) -> Floats:
    """Return how far the sum of half of each group is off in the mean, besides its noise."""
    sizes, starts = groups.sizes, groups.starts
    several = sizes > 1
    middles = (starts[:-1] + sizes // 2)[several]
    halves = Groups(np.sort(np.concatenate((starts, middles))))
    below = np.concatenate(([0.0], np.cumsum(values)))
    means = values[starts[:-1]]
    classes = _classes(np.abs(means) * sizes, sizes, several, most=_CUT_CLASSES)
    per_half = np.repeat(classes, np.where(several, 2, 1))
    sums, scale = _distances(curator, halves, np.diff(below[halves.starts]), per_half, share=share)
    prior = _summed(bias, sizes / 2) * np.where(several, math.sqrt(0.5), 0)  # one half makes up for the other
    twice = np.where(several, 2, 0)
    return _biases(noise, prior, twice, twice, classes, sums, scale, certain=True)


def _summed(bias: Floats, bins: Floats) -> Floats:
    """Return how far sums of some bins may be off if each is off by a bias, before anything is measured.

    If they are off independently of each other, the sums grow like a square root; if all are off in the same
    direction, like the number of bins. This is in between, somewhat nearer to the former.
    """
    return np.asarray(bias * bins ** (0.5 + 0.5 * _TOGETHER))


def _runs(
    curator: Curator, groups: Groups, values: Floats, variances: Floats, bias: Floats, *, share: Fraction
) -> Runs:
    """Return how far sums of quarters of the domain are off in the mean, besides their noise."""
    n = groups.n
    starts = np.arange(_RUNS + 1) * n // _RUNS if n >= _RUNS else np.array([0, n])
    runs = Groups(starts)
    below = np.concatenate(([0.0], np.cumsum(values)))
    sums, scale = _distances(
        curator, runs, np.diff(below[starts]), np.zeros(runs.k, dtype=np.int64), share=share
    )
    labels = groups.labels()
    parts = np.stack(
        [np.bincount(labels[a:b], minlength=groups.k) for a, b in itertools.pairwise(starts.tolist())]
    )
    noise = _NORMAL * np.sqrt((parts / groups.sizes) ** 2 @ variances)
    length = n / runs.k
    each = math.sqrt(float(np.average(bias**2, weights=groups.sizes)))
    prior = np.repeat(_summed(np.array([each]), np.array([length])), runs.k)
    doubt = math.sqrt(2 * scale**2 + 0.6 * float(noise @ noise))
    # One sum for all ranges: where chance made it small, every one of them would be too narrow.
    total, ones = float(sums[0]) + _WARY * doubt, np.ones(runs.k, dtype=np.int64)
    most = float(sums[0]) + doubt
    return Runs(length, float(fitted(noise, prior, ones, total, least=total, most=most).mean()))


def _rough(groups: Groups, estimated: Estimated, distance: float, several: NDArray[np.bool_]) -> Rough | None:
    """Return the rough counts, and how much of a bin's noise is in its value."""
    noisy = estimated.rough
    if noisy is None or np.ndim(noisy.scale) != 0:
        return None
    counts = noisy.values if noisy.measured is None else noisy.measured
    scale = float(noisy.scale)
    drawn = noise_law.variance(scale)
    shared = groups.spread(several)
    seen = float(np.mean((counts - estimated.values)[shared] ** 2))
    off = _SQUARE * max(distance, 0.0) ** 2
    # E(count - value)^2 = E(error)^2 + the noise's variance - twice what the two have in common.
    kept = min(max((off + drawn - seen) / 2, 0.0), drawn, off)
    return Rough(counts, scale, kept)
