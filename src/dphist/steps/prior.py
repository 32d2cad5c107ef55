"""A prior: public numbers whose shape the counts may have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphist.domain.groups import Floats


@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """Numbers of the same bins that are public already, from an earlier release or from elsewhere.

    Args:
        counts: one number from 0 on for each bin.
        name: what is said of it in a release; it holds no counts.
    """

    counts: Floats
    name: str

    def __repr__(self) -> str:
        return self.name

    def over(self, n: int) -> Floats:
        """Return the prior of n bins; if it has another number of bins, which is so in rehearsals, any.

        These are not all alike, whatever the prior's first bins hold: unlike numbers have loops of their own.
        """
        return self.counts if self.counts.size == n else (1 + np.arange(n) % 3).astype(np.float64)
