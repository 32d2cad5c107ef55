"""Noise on every bin, and those at or above a public threshold are published."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import MOST_LIFTED, Curator
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.uncertainty.listing import Listing, expected_false, threshold_for
from dphist.uncertainty.models import GroupTotals

_TOTAL = Fraction(1, 50)  # of the share, for the number of all records


@dataclass(frozen=True)
class Listed(Step):
    """The bins whose noisy count reaches a public threshold (Cormode et al. 2012, with exact positions).

    A fiftieth of the share measures the number of all records, which no listing tells.

    Args:
        false_bins: how many empty bins are listed in expectation: it sets the threshold.
        most: list the largest bins only, so many of them; it sets ``false_bins``, so that they are the
            largest of all bins unless fewer are listed.
        threshold: the least noisy count that is listed, instead of ``false_bins``.
    """

    spends: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True
    false_bins: float = 1.0
    most: int | None = None
    threshold: int | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and self.threshold < 1:
            raise UsageError(
                f"a threshold is at least 1 record, not {self.threshold}; without one, it is set for you."
            )
        if not 0 < self.false_bins <= MOST_LIFTED:
            raise UsageError(
                f"the expected number of empty bins in a list is above 0 and at most {MOST_LIFTED:,}, not "
                f"{self.false_bins:g}."
            )
        if self.most is not None and not 1 <= self.most <= MOST_LIFTED // 2:
            raise UsageError(f"a list of the largest has 1 to {MOST_LIFTED // 2:,} bins, not {self.most:,}.")

    def least(self, n: int, scale: float) -> int:
        """Return the threshold for n bins and noise of a scale: public."""
        if self.threshold is not None:
            return self.threshold
        wanted = self.false_bins if self.most is None else self.most + 6 * self.most**0.5 + 6
        return threshold_for(n, scale, wanted)

    def refuse_too_many(self, n: int, *, epsilon: Fraction, sensitivity: int) -> None:
        """Refuse a threshold that so many empty bins would pass that they do not fit into memory."""
        scale = float(sensitivity / (epsilon * (1 - _TOTAL)))
        least = self.least(n, scale)
        if (false := expected_false(n, scale, least)) > MOST_LIFTED:
            fit = threshold_for(n, scale, 1.0)
            raise UsageError(
                f"about {false:.2g} empty bins would be listed at a threshold of {least:,}: more than fit "
                f"into memory. Nothing was charged; at {fit:,} one would be."
            )

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        n, for_bins = curator.domain.n, share * (1 - _TOTAL)
        least = self.least(n, curator.scale(for_bins))
        bins, noisy = curator.list_bins(threshold=least, share=for_bins)
        all_records = curator.measure(Groups.whole(n), share=share * _TOTAL)
        values, cutoff = noisy.values, least - 1
        if self.most is not None and bins.size > self.most:
            largest = np.sort(np.lexsort((bins, -values))[: self.most])
            bins, values = bins[largest], values[largest]
            cutoff = int(values.min())
        starts, at = _with_gaps(bins, n)
        totals, scales = np.zeros(starts.size - 1), np.full(starts.size - 1, np.inf)
        totals[at], scales[at] = values, noisy.scale
        made = Listing(
            bins=n,
            threshold=least,
            scale=float(np.max(noisy.scale)),
            most=self.most,
            cutoff=cutoff,
            total=int(all_records.values[0]),
            total_scale=float(np.max(all_records.scale)),
        )
        alone = Groups.singletons(starts.size - 1)
        return Estimated(totals, GroupTotals(alone, scales), groups=Groups(starts), listing=made)


def _with_gaps(bins: Ints, n: int) -> tuple[Ints, Ints]:
    """Return where the listed bins and the gaps between them start, and n; and which are the listed ones."""
    starts = np.unique(np.concatenate((bins, bins + 1, [0, n])))
    return starts, np.searchsorted(starts, bins)
