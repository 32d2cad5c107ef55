"""The law of the counts of single bins, learnt from noisy ones: how many are empty, how large the others are.

Where counts lie scattered, as on the roads of a map, a bin's neighbours say little of it, and all other bins
say much: most are empty, none is small. The law is a mixture, in units of the noise scale: nothing; counts of
exponential laws whose means grow threefold; and counts beyond `FAR` scales by a power law. Its weights are
learnt by expectation maximisation from the noisy counts, whose noise has Laplace's law of scale 1. Sums of
posterior means by a learnt law are close to those of the noisy counts, which is worth most to sums of many
bins: means by a fixed law are all too large, or all too small.

Posterior moments are those of the distance from the noisy count, so that large counts lose nothing. With
b = 1 - 1/r and c = 1 + 1/r, and a count that is t below a noisy count z > 0, or s above it, the joint density
of an exponential law of mean r is exp(-z/r - b t) / 2r for t in (0, z) and exp(-z/r - c s) / 2r for s > 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dphist.domain.groups import Floats
from dphist.kernels import kernel

# Chosen on public grids and eighteen made-up ones: see docs/constants.md.
MEANS = (2.0, 6.0, 18.0, 54.0, 162.0, 486.0)  # of the exponential laws, in noise scales
FAR = 600.0  # noise scales, from which on counts have a density like z to the power of -1.5
FITTED = 0.05  # nats by which a bin is less likely, because the law was fitted to it
ROUNDS = 30  # of expectation maximisation
BEFORE = 0.5  # bins that are counted for all laws together before any is seen


class Drawn(NamedTuple):
    """What the law says of every bin.

    Args:
        likely: the logarithm of its noisy count's density over that of noise at 0, less `FITTED`.
        moved: its mean less its noisy count, or less 0 if that is negative.
        square: the mean square of that distance.
    """

    likely: Floats
    moved: Floats
    square: Floats


def drawn(z: Floats, learnt_from: Floats) -> Drawn:
    """Return what the law of some noisy counts says of these, all in units of the noise scale."""
    means = np.array(MEANS)
    densities, weights = np.empty((learnt_from.size, means.size + 2)), np.empty(means.size + 2)
    _densities(learnt_from, means, densities)
    _learn(densities, np.empty(weights.size), weights)
    found = Drawn(np.empty(z.size), np.empty(z.size), np.empty(z.size))
    _moments(z, means, weights, *found)
    return found


@kernel
def _densities(z: Floats, means: Floats, out: Floats) -> None:
    """Write each law's density of noisy counts, the same factor for all laws: nothing, the means, far."""
    last = means.size + 1
    for i in range(z.size):
        noise = math.exp(-z[i]) if z[i] > 0 else 1.0
        out[i, 0] = noise
        for k in range(means.size):
            r = means[k]
            above = 1 / (r + 1)
            if z[i] > 0:
                prior = math.exp(-z[i] / r)
                out[i, 1 + k] = (prior - noise) / (r - 1) + prior * above
            else:
                out[i, 1 + k] = above
        out[i, last] = math.sqrt(FAR / z[i]) / z[i] if z[i] > FAR else 0.0


@kernel
def _learn(densities: Floats, taken: Floats, weights: Floats) -> None:
    """Write how often each law is followed; ``taken`` is room for as many numbers."""
    n, many = densities.shape
    weights[:] = 1.0 / many
    for _ in range(ROUNDS):
        taken[:] = BEFORE / many
        for i in range(n):
            total = 0.0
            for k in range(many):
                total += densities[i, k] * weights[k]
            if total > 0:
                for k in range(many):
                    taken[k] += densities[i, k] * weights[k] / total
        whole = taken.sum()
        for k in range(many):
            weights[k] = taken[k] / whole


@kernel
def _moments(
    z: Floats, means: Floats, weights: Floats, likely: Floats, moved: Floats, square: Floats
) -> None:
    """Write the log density of every noisy count and its posterior moments, see `Drawn`."""
    share, below, above = weights[1:-1] / means, 1 / (1 - 1 / means), 1 / (1 + 1 / means)
    one, two, three = below + above, above * above - below * below, 2 * (above**3 + below**3)
    for i in range(z.size):
        at, first, second = max(z[i], 0.0), 0.0, 0.0
        noise = math.exp(-at)
        total = weights[0] * noise
        if noise > 0:
            first, second = -total * at, total * at * at
        for k in range(means.size):
            prior = share[k] * math.exp(-at / means[k])
            total += prior * one[k]
            first += prior * two[k]
            second += prior * three[k]
            if noise > 0:
                part = share[k] * noise * below[k]
                total -= part
                first += part * (at + below[k])
                second -= part * (at * at + 2 * below[k] * (at + below[k]))
        if at > FAR:
            far = weights[-1] * math.sqrt(FAR / at) / at
            total += far
            second += 2 * far
        likely[i] = math.log(total) + min(z[i], 0.0) - FITTED
        moved[i] = max(first / total, -at)
        square[i] = max(second / total, moved[i] * moved[i])
