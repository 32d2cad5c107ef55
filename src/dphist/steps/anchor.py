"""After step 4: the error model of a release, from the unbiased measurement that its values come from.

It is post-processing: only numbers that are part of the release are read.
"""

from __future__ import annotations

import math

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups, Ints
from dphist.steps.order import hilbert
from dphist.steps.protocols import Estimated
from dphist.uncertainty.anchored import Anchored
from dphist.uncertainty.models import ErrorModel, GroupTotals
from dphist.uncertainty.risk import estimated_risk

_FOLDS = 4  # parts of the bins, each of which is left out once
_SURE = 3.0  # noise scales: where neighbours differ by more, their mean is no guess


def anchored(domain: Domain, estimated: Estimated) -> ErrorModel:
    """Return the error model of values that were averaged or grouped: intervals from what was measured first.

    That is the measurement an estimator names, or else the rough counts, if every bin has one. All bins get
    their intervals by this one rule, whatever groups they are in: groups were chosen by the same noise, and
    an interval given only to bins that stayed alone would miss more often than it says. Errors that a part of
    the budget has measured, and values that were not averaged, keep their model.
    """
    base, measured, noisy = estimated.error, estimated.measured, estimated.rough
    if measured is None:
        if base.is_calibrated or noisy is None or np.ndim(noisy.scale) or noisy.values.shape != (domain.n,):
            return base
        measured = (noisy.values if noisy.measured is None else noisy.measured).astype(np.float64)
        base = GroupTotals(Groups.singletons(domain.n), float(noisy.scale))
    scale = base.bin_scale
    if scale is None:
        return Anchored(base, measured, estimated.values)
    base = GroupTotals(Groups.singletons(domain.n), scale)  # in the domain's own order
    guesses, doubts = guessed(measured, scale, _path(domain))
    average = estimated.averaging
    risk = None if average is None else estimated_risk(measured, estimated.values, scale, average, doubts)
    return Anchored(
        base, measured, estimated.values, np.where(doubts < _SURE * scale, guesses, math.nan), risk
    )


def _path(domain: Domain) -> Ints | None:
    """Return an order of the bins in which neighbours are alike; it is public, as the domain is."""
    return hilbert(*domain.shape) if len(domain.axes) == 2 else None


def guessed(measured: Floats, scale: float, path: Ints | None) -> tuple[Floats, Floats]:
    """Return guesses of every bin's count and their doubts, both independent of the bin's own noise.

    Every fourth bin along the path is left out, the others are averaged without it, and the guess is the mean
    of what that gives its two neighbours. An infinite doubt is no guess.
    """
    n = measured.size
    guesses, doubts = np.zeros(n), np.full(n, math.inf)
    if n < 2 * _FOLDS:
        return guesses, doubts
    line, place = (measured, np.arange(n)) if path is None else (measured[path], path)
    for fold in range(_FOLDS):
        left_out = np.arange(n) % _FOLDS == fold
        means, doubt = np.zeros(n), np.zeros(n)
        means[~left_out], doubt[~left_out] = _averaged(line[~left_out], scale)
        bins = np.flatnonzero(left_out)
        before, after = np.where(bins > 0, bins - 1, bins + 1), np.where(bins < n - 1, bins + 1, bins - 1)
        one, two = means[before], means[after]
        guesses[place[bins]] = np.rint((one + two) / 2)
        doubts[place[bins]] = (doubt[before] + doubt[after]) / 2 + np.abs(one - two) / 2
    return guesses, doubts


def _averaged(noisy: Floats, scale: float) -> tuple[Floats, Floats]:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(noisy, 3, mode="edge"), 7)
    return np.maximum(windows.mean(axis=1), 0.0), windows.std(axis=1)
