"""Step 4: a value for every bin."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dphist.accuracy import GroupTotals
from dphist.groups import Groups
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.workload import Workload


@dataclass(frozen=True)
class GroupMeans(Step):
    """One noisy total per group, spread evenly over its bins (AHP, Zhang et al. 2014, with one draw)."""

    spends: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Measure the groups and divide by their sizes; a group's noise is drawn once, not per bin."""
        noisy = curator.measure(groups, share=share)
        return Estimated(groups.means(noisy.values), GroupTotals(groups, noisy.scale))
