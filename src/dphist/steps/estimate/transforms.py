"""Noisy wavelet or Fourier coefficients in place of noisy counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.privacy.curator import Curator
from dphist.steps.protocols import WIDEST_SCALE, Estimated, Rough, Step, variance
from dphist.uncertainty.models import Unknown
from dphist.uncertainty.products import WaveletTotals

_SMOOTHED = "dropping the higher frequencies adds an error that depends on the counts and was not measured"


@dataclass(frozen=True)
class Privelet(Step):
    """Noisy Haar wavelet coefficients with Privelet's weights (Xiao et al. 2010), on a line or a grid.

    Groups are a line in their order; single bins of a grid in its own order are transformed along both axes.
    """

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Measure the total and all differences of halves, and put the bins together from them."""
        from dphist.kernels.transforms.haar import haar_cells
        from dphist.privacy.queries import Haar, OnGroups

        rows, columns = grid_of(curator, groups)
        noisy = curator.measure_linear(OnGroups(Haar(rows, columns), groups), share=share)
        totals = haar_cells(noisy.values.astype(np.float64), rows, columns)
        error = WaveletTotals(groups, columns, float(np.max(noisy.scale)))
        return Estimated(groups.means(totals), error)


@dataclass(frozen=True)
class Efpa(Step):
    """Noisy Fourier coefficients, the lowest ones only, their number chosen privately (Acs et al. 2012).

    Both the cosine and the sine sums are noisy. Half of the share chooses how many frequencies are kept, of
    at most 4,096 (fewer beyond 131,072 bins), and half measures them.
    """

    spends: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Weigh what dropping loses against the noise of keeping, then keep."""
        from dphist.kernels.transforms.fourier import MOST_WEIGHT, fourier_cells, most_frequencies
        from dphist.privacy.queries import Dropped, Fourier, OnGroups

        most, half = most_frequencies(groups.k), share / 2
        # The finest grid on which the noise of all sums still fits the sampler; a power of two.
        room = WIDEST_SCALE / (curator.scale(half) * 2 * max(most, math.sqrt(groups.k)))
        weight = min(MOST_WEIGHT, 1 << max(math.floor(math.log2(room)), 0)) if room >= 1 else 1
        kept = np.arange(1, most + 1)
        # A bin's cosine and sine add up to 4/pi on average; noise on both, each frequency twice in a circle.
        scales = curator.scale(half) * weight * np.maximum(4 / math.pi * kept, 1.0)
        noise = tuple(int(v) for v in (4 * kept - 3) * np.asarray(variance(scales)))
        sums = Fourier(groups.k, most, weight)
        best = 1 + curator.choose(Dropped(sums, noise, groups), share=half)
        noisy = curator.measure_linear(OnGroups(Fourier(groups.k, best, weight), groups), share=half)
        totals = fourier_cells(noisy.values.astype(np.float64), groups.k, best, weight)
        return Estimated(groups.means(totals), Unknown(_SMOOTHED))


def grid_of(curator: Curator, groups: Groups) -> tuple[int, int]:
    """Return rows and columns of the cells: the grid's own if they are its bins, else one line of groups."""
    shape = curator.domain.shape
    if len(shape) == 2 and groups.are_singletons and groups.order is None:
        return shape[0], shape[1]
    return groups.k, 1
