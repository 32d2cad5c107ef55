"""The simulation loop: seeded trials of a pipeline on public counts.

No private data is read and nothing is spent. The same seed always gives the same trial: `simulate`,
`preview`, `advise`, `compare`, `audit` and the reruns of papers all run this loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dphist.domain.groups import Floats, Groups
from dphist.domain.hierarchy import Hierarchy
from dphist.domain.workload import Workload
from dphist.methods.levels import run_levels
from dphist.methods.pipeline import Pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release import Post, Release
from dphist.release.grouped import Level
from dphist.steps.protocols import Estimated


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of a pipeline.

    Args:
        seconds: the CPU time that it took.
    """

    pipeline: Pipeline
    queries: Workload
    curator: Curator
    groups: Groups
    estimated: Estimated
    seconds: float

    @property
    def values(self) -> Floats:
        """The values of all bins."""
        return self.estimated.values

    def release(self, *, post: Post, provenance: dict[str, Any]) -> Release:
        """Return the release that this run would publish, stamped simulated; its error is not estimated."""
        found = self.groups, self.estimated
        return self.pipeline.wrap(
            self.curator, self.queries, *found, post=post, provenance=provenance, quick=True
        )


def trials(
    pipeline: Pipeline, counts: Counts, queries: Workload, *, epsilon: Fraction, seeds: Iterable[int]
) -> Iterator[Trial]:
    """Run a pipeline on public or made-up counts, once for every seed."""
    for curator in _curators(counts, epsilon, seeds):
        start = time.thread_time()
        groups, estimated = pipeline.values(curator, queries)
        yield Trial(pipeline, queries, curator, groups, estimated, time.thread_time() - start)


def trials_by_group(
    pipeline: Pipeline,
    counts: Counts,
    hierarchy: Hierarchy,
    queries: Workload,
    shares: Sequence[Fraction],
    *,
    epsilon: Fraction,
    seeds: Iterable[int],
) -> Iterator[tuple[Curator, tuple[Level, ...]]]:
    """Run a pipeline in every group of a hierarchy, once for every seed."""
    for curator in _curators(counts, epsilon, seeds):
        yield curator, run_levels(pipeline, curator, hierarchy, queries, shares)


def _curators(counts: Counts, epsilon: Fraction, seeds: Iterable[int]) -> Iterator[Curator]:
    return (Curator.simulated(counts, epsilon=epsilon, seed=seed) for seed in seeds)
