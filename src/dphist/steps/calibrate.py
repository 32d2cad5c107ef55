"""After step 4: a small share of the budget measures the distance of the values from the true counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Groups, Ints
from dphist.privacy.curator import Curator
from dphist.steps.protocols import WIDEST_SCALE, Estimated
from dphist.uncertainty import constants, noise_law
from dphist.uncertainty.bias import fit_bias, isotonic_sums, poisson_mean_deviation
from dphist.uncertainty.calibrated import Calibrated, RoughCounts, Runs
from dphist.uncertainty.total_noise import ApproximateNoise, TotalNoise


def calibrate(curator: Curator, groups: Groups, estimated: Estimated, *, share: Fraction) -> Estimated:
    """Return the values with measured intervals; unchanged, at no cost, where no bins share a value."""
    base, reused = estimated.error, estimated.noise is not None
    noise = base.total_noise if estimated.noise is None else ApproximateNoise(estimated.noise)
    if groups.are_singletons or noise is None or not np.isfinite(noise.variances).all():
        return estimated
    sizes = groups.sizes
    # The noise is known of what was measured, and intervals are about that; values may be averaged from it.
    made = estimated.values if estimated.measured is None else estimated.measured
    values = groups.ordered(made)[groups.starts[:-1]]
    deviation = noise.mean_deviation * np.sqrt(noise.variances)
    ranges = groups.order is None or noise.independent
    points = share * constants.SHARE_FOR_BINS if ranges else share

    # Noisy counts that are used again have singled out bins by their noise: these are biased like the others.
    counted = (sizes > 1) | reused
    # As many classes as leave the noise on a sum small beside the records in it.
    records = float(np.abs(values[counted]) @ sizes[counted])
    most = max(int(records / (constants.RECORDS_OVER_SCALE * curator.scale(points))), 1)
    most = min(most, constants.BIN_CLASSES)
    classes = _classes(np.abs(values), sizes, counted, most=most)
    sums, scale = _distances(curator, Groups.singletons(groups.n), made, groups.spread(classes), share=points)
    prior = np.maximum(poisson_mean_deviation(values), _hidden(np.abs(values), sizes, classes, scale))
    if reused:  # fresh noise could make a value negative by chance; here it is bias, since no count is
        prior = np.maximum(prior, np.maximum(-values, 0) / constants.VALUE_BELOW_ZERO_OVER_BIAS)
    weights = np.where(classes < 0, 0, sizes)
    bias = _biases(deviation / sizes, prior, weights, classes, sums, scale)
    half_bias, runs = None, None
    if ranges and groups.order is None:
        half_bias = _half_biases(curator, groups, made, deviation, bias, share=share - points)
    elif ranges:
        runs = _runs(curator, groups, made, noise, bias, share=share - points)
    rough = None
    if estimated.rough is not None and estimated.rough.values.shape == (groups.n,):
        rough = _rough_counts(groups, estimated, float(sums.sum()) / int(weights.sum()), counted)
    error = Calibrated(
        base=base,
        groups=groups,
        values=values,
        bias=bias,
        distances=sums,
        classes=classes,
        scale=scale,
        noise=estimated.noise,
        half_bias=half_bias,
        few=constants.SD_OVER_MEAN_DEVIATION_OF_FEW,
        runs=runs,
        rough=rough,
    )
    return dataclasses.replace(estimated, error=error)


def _distances(
    curator: Curator, pieces: Groups, targets: Floats, classes: Ints, *, share: Fraction
) -> tuple[Floats, float]:
    """Return the noisy sums of |total of a piece - target|, one per class, and the scale of their noise."""
    grid = constants.GRID_OF_DISTANCES
    while grid > 1 and curator.scale(share) * grid > WIDEST_SCALE:
        grid //= 2
    centres = np.clip(np.rint(targets * grid), -(2.0**60), 2.0**60).astype(np.int64)
    noisy = curator.measure_distances(pieces, centres, classes, grid=grid, share=share)
    return noisy.values / grid, float(np.max(noisy.scale)) / grid


def _hidden(values: Floats, sizes: Ints, classes: Ints, scale: float) -> Floats:
    """Return the mean distance from each group's value that noise on the measured sums may well hide.

    Of few records a sum says little: their bins are then taken to be off by as much as the value they share.
    """
    records = np.append(np.bincount(classes[classes >= 0], weights=(values * sizes)[classes >= 0]), math.inf)
    unseen = constants.HIDDEN * math.sqrt(2) * scale / np.maximum(records, 1e-300)
    return np.asarray(values * np.minimum(unseen, 1.0)[classes])


def _classes(key: Floats, sizes: Ints, counted: NDArray[np.bool_], *, most: int) -> Ints:
    """Return classes of groups by increasing key, of about equally many bins; -1 for groups not counted."""
    out = np.full(key.size, -1, dtype=np.int64)
    which = np.flatnonzero(counted)
    which = which[np.argsort(key[which], kind="stable")]
    ends = np.cumsum(sizes[which])
    middle = ends - sizes[which] / 2
    raw = np.minimum((middle / ends[-1] * most).astype(np.int64), most - 1)
    out[which] = np.unique(raw, return_inverse=True)[1]  # no class is left empty
    return out


def _biases(noise: Floats, prior: Floats, weights: Ints, classes: Ints, sums: Floats, scale: float) -> Floats:
    """Return each group's bias, by upper confidence bounds of the measured means, which rise with the class.

    Args:
        noise: the mean deviation by noise alone, of each group.
        prior: the bias expected of each group.
        weights: how many distances of each group are in its sum.
        classes: the class of each group, -1 for none.
        sums: the measured sums of distances, one per class.
        scale: of the noise on these sums.
    """
    counts = np.bincount(classes[classes >= 0], weights=weights[classes >= 0]).astype(np.int64)
    bias = np.zeros(noise.size)
    for c, total in enumerate(isotonic_sums(sums, counts).tolist()):
        own = classes == c
        bias[own] = fit_bias(noise[own], prior[own], weights[own], total + constants.UPPER * scale)
    return bias


def _half_biases(
    curator: Curator, groups: Groups, values: Floats, noise: Floats, bias: Floats, *, share: Fraction
) -> Floats:
    """Return the mean deviation of the sum of half of each group, besides its noise.

    Halves of very few groups may balance by chance while their quarters do not. So these are cut into more
    pieces. Since the deviations of a group's pieces add up to nothing, no range of pieces deviates by more
    than half of their absolute sum; half a group is then said to deviate so that intervals are as wide.

    Args:
        noise: the mean deviation of each group's total by noise alone.
    """
    sizes, starts = groups.sizes, groups.starts
    few = groups.k < constants.FEW_GROUPS
    parts = np.minimum(sizes, -(-constants.PIECES // groups.k) if few else 2)
    inside = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    cuts = np.repeat(starts[:-1], parts) + np.repeat(sizes, parts) * inside // np.repeat(parts, parts)
    pieces = Groups(np.append(cuts, groups.n))
    below = np.concatenate(([0.0], np.cumsum(values)))
    means, several = values[starts[:-1]], sizes > 1
    classes = _classes(np.abs(means) * sizes, sizes, several, most=constants.HALF_CLASSES)
    sums, scale = _distances(
        curator, pieces, np.diff(below[pieces.starts]), np.repeat(classes, parts), share=share
    )
    # One piece makes up for the others.
    prior = _summed(bias, sizes / parts) * np.where(several, np.sqrt(1 - 1 / parts), 0)
    found = _biases(noise / parts, prior, np.where(several, parts, 0), classes, sums, scale)
    wide = noise_law.normal_quantile(constants.USUAL_LEVEL) * constants.SD_OVER_MEAN_DEVIATION_AT_CUTS
    return found * parts / (2 * wide) if few else found


def _summed(bias: Floats, bins: Floats) -> Floats:
    """Return the bias expected of sums of some bins from that of one, before anything is measured.

    Independent biases add up like the square root of the number of bins, equal ones like the number itself.
    This is in between, somewhat nearer to the former.
    """
    return np.asarray(bias * bins ** (0.5 + 0.5 * constants.CORRELATION))


def _runs(
    curator: Curator, groups: Groups, values: Floats, noise: TotalNoise, bias: Floats, *, share: Fraction
) -> Runs:
    """Return the mean deviation of the sums of quarters of the domain, besides their noise."""
    n = groups.n
    k = constants.LONG_RUNS
    starts = np.arange(k + 1) * n // k if n >= k else np.array([0, n])
    runs = Groups(starts)
    below = np.concatenate(([0.0], np.cumsum(values)))
    sums, scale = _distances(
        curator, runs, np.diff(below[starts]), np.zeros(runs.k, dtype=np.int64), share=share
    )
    labels = groups.labels()
    parts = np.stack(
        [np.bincount(labels[a:b], minlength=groups.k) for a, b in itertools.pairwise(starts.tolist())]
    )
    deviation = constants.MEAN_DEVIATION_OF_SUMS * np.sqrt((parts / groups.sizes) ** 2 @ noise.variances)
    length = n / runs.k
    each = math.sqrt(float(np.average(bias**2, weights=groups.sizes)))
    prior = np.repeat(_summed(np.array([each]), np.array([length])), runs.k)
    total, ones = float(sums[0]) + constants.UPPER * scale, np.ones(runs.k, dtype=np.int64)
    return Runs(length, float(fit_bias(deviation, prior, ones, total).mean()))


def _rough_counts(
    groups: Groups, estimated: Estimated, distance: float, counted: NDArray[np.bool_]
) -> RoughCounts | None:
    """Return the rough counts, and the covariance of a bin's noise with the error of its value."""
    noisy = estimated.rough
    if noisy is None or np.ndim(noisy.scale) != 0:
        return None
    counts = noisy.values if noisy.measured is None else noisy.measured
    scale = float(noisy.scale)
    noise = noise_law.variance(scale)
    observed = float(np.mean((counts - estimated.values)[groups.spread(counted)] ** 2))
    error = constants.SECOND_MOMENT * max(distance, 0.0) ** 2
    # E(rough count - value)^2 = E(error)^2 + the noise's variance - twice the covariance of the two.
    covariance = min(max((error + noise - observed) / 2, 0.0), noise, error)
    return RoughCounts(counts, scale, covariance)
