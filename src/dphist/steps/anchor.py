"""After step 4: the error model of a release, from the unbiased measurement that its values come from.

It is post-processing: only numbers that are part of the release are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups, Ints
from dphist.steps.order import hilbert
from dphist.steps.protocols import Estimated
from dphist.uncertainty import noise_law
from dphist.uncertainty.anchored import Anchored
from dphist.uncertainty.models import ErrorModel, GroupTotals
from dphist.uncertainty.risk import estimated_risk

_FOLDS = 4  # parts of the bins, each of which is left out once
_SURE = 3.0  # noise scales: where neighbours differ by more, their mean is no guess
_MOST_AVERAGED = 1 << 16  # bins up to which guesses are averages: a fifth of a second
_TREES, _BINS_OF_TREES = 8, 1 << 15  # of one averaging: the most trees, and bins times trees
_NEARER = 0.5  # the sum of all bins is moved to within a standard error, nearly, of what was measured
_NEIGHBOURS = 4  # bins on either side whose mean is a quick guess
Guesses: TypeAlias = tuple[Floats, Floats]


def anchored(domain: Domain, estimated: Estimated, *, quick: bool = False) -> ErrorModel:
    """Return the error model of values that were averaged or grouped: intervals from what was measured first.

    That is the measurement an estimator names, or else the rough counts, if every bin has one. All bins get
    their intervals by this one rule, whatever groups they are in: groups were chosen by the same noise, and
    an interval given only to bins that stayed alone would miss more often than it says. Errors that a part of
    the budget has measured, and values that were not averaged, keep their model.

    Args:
        quick: for one of very many histograms: guesses by a few neighbours, and no estimate of the error.
    """
    base, measured, noisy = estimated.error, estimated.measured, estimated.rough
    nearer = 0.0 if measured is None else _NEARER  # rough counts know less than what was measured after them
    if measured is None:
        if base.is_calibrated or noisy is None or np.ndim(noisy.scale) or noisy.values.shape != (domain.n,):
            return base
        measured = (noisy.values if noisy.measured is None else noisy.measured).astype(np.float64)
        base = GroupTotals(Groups.singletons(domain.n), float(noisy.scale))
    scale = base.bin_scale
    if scale is None:
        return Anchored(base, measured, estimated.values, nearer=nearer)
    base = GroupTotals(Groups.singletons(domain.n), scale)  # in the domain's own order
    by_neighbours = quick or domain.n > _MOST_AVERAGED
    path = hilbert(*domain.shape) if len(domain.axes) == 2 and not by_neighbours else None
    guesses, doubts = guessed(measured, scale, path, quick=by_neighbours)
    average = None if quick else estimated.averaging
    risk = None if average is None else estimated_risk(measured, estimated.values, scale, average, doubts)
    guesses = np.where(doubts < _SURE * scale, guesses, math.nan)
    return Anchored(base, measured, estimated.values, guesses, risk, nearer)


def guessed(measured: Floats, scale: float, path: Ints | None, *, quick: bool = False) -> Guesses:
    """Return guesses of every bin's count and their doubts, both independent of the bin's own noise.

    Every fourth bin along the path is left out, the others are averaged without it, and the guess is the mean
    of what that gives its two neighbours. An infinite doubt is no guess.

    Args:
        path: an order of the bins in which neighbours are alike, which must be public; None for their own.
        quick: for very many bins: the guess is the mean of a few bins on either side.
    """
    n = measured.size
    if n < 2 * _FOLDS:
        return np.zeros(n), np.full(n, math.inf)
    line = measured if path is None else measured[path]
    found = _by_neighbours(line, scale) if quick else _by_folds(line, scale)
    if path is None:
        return found
    guesses, doubts = np.empty(n), np.empty(n)
    guesses[path], doubts[path] = found
    return guesses, doubts


def _by_folds(line: Floats, scale: float) -> Guesses:
    """Return guesses by averaging the line once for every fold, which is left out."""
    from dphist.kernels.averaging.partitions import dyadic_average

    n, guesses, doubts = line.size, np.zeros(line.size), np.zeros(line.size)
    shifts = max(min(_TREES, _BINS_OF_TREES // n), 1)
    for fold in range(_FOLDS):
        left_out = np.arange(n) % _FOLDS == fold
        means, doubt = np.zeros(n), np.zeros(n)
        means[~left_out], doubt[~left_out] = dyadic_average(line[~left_out], scale, shifts=shifts)
        bins = np.flatnonzero(left_out)
        before, after = np.where(bins > 0, bins - 1, bins + 1), np.where(bins < n - 1, bins + 1, bins - 1)
        one, two = means[before], means[after]
        guesses[bins] = np.rint((one + two) / 2)
        doubts[bins] = (doubt[before] + doubt[after]) / 2 + np.abs(one - two) / 2
    return guesses, doubts


def _by_neighbours(line: Floats, scale: float) -> Guesses:
    """Return guesses by the mean of a few bins on either side; doubts by how they differ beyond the noise."""
    around, ones = (np.pad(each, _NEIGHBOURS) for each in (line, np.ones(line.size)))

    def beside(each: Floats) -> Iterator[Floats]:
        for away in range(1, _NEIGHBOURS + 1):
            for start in (_NEIGHBOURS - away, _NEIGHBOURS + away):
                yield each[start : start + line.size]

    size = sum(beside(ones), np.zeros(line.size))
    mean = sum(beside(around), np.zeros(line.size)) / size
    squares = (one * (y - mean) ** 2 for y, one in zip(beside(around), beside(ones), strict=True))
    spread = np.sqrt(np.maximum(sum(squares, np.zeros(line.size)) / size - noise_law.variance(scale), 0.0))
    return np.rint(np.maximum(mean, 0.0)), spread + scale / np.sqrt(size / 2)
