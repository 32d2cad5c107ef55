"""Methods for domains of which most bins are empty: up to 2^62 bins, in time and memory of the records.

Their release has one number for each group of bins. Which methods serve such a domain, and which of them
``auto`` chooses, depends on the number of bins and on the workload alone: both are public.
"""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from typing import Any, cast

from dphist.domain import MAX_BINS, Domain, Hashed, Integers, Regular, curve, shown
from dphist.domain.groups import Groups
from dphist.domain.workload import AllRanges, Points, Prefixes, Ranges, Workload
from dphist.errors import UsageError
from dphist.methods.pipeline import Pipeline, Split, spent_so_far
from dphist.privacy.curator import Curator
from dphist.release import Post, Release
from dphist.release.sparse import SparseRelease
from dphist.steps.estimate import GroupMeans, Listed, WorkloadTree
from dphist.steps.partition import PlainSplits, Whole
from dphist.steps.protocols import Estimated

_OPTION = re.compile(r"(false|most|threshold)=([0-9]+(?:\.[0-9]+)?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparsePipeline(Pipeline):
    """A mechanism that publishes one number for each of some groups of bins, and never holds all bins.

    The groups are found first. From then on each is a bin of a small domain (`Curator.gather`), on which an
    estimator works as on any other: every group counts as much as any other, however many bins it has.
    """

    def __post_init__(self) -> None:
        if self.calibrate:
            raise UsageError(
                f"{self.name} needs no calibrate: an interval of a range that cuts a group reaches from none "
                "of the group's records to all of them."
            )
        super().__post_init__()

    def check(self, domain: Domain, workload: Workload) -> None:
        super().check(domain, workload)
        if not isinstance(self.partition, PlainSplits):
            return
        if len(domain.axes) == 1:
            return
        ordered = all(isinstance(axis, Integers | Regular) for axis in domain.axes)
        if not ordered or max(domain.shape) > curve.LONGEST_SIDE:
            raise UsageError(
                f"{self.name} splits a line, or a grid of two axes of numbers with at most 2**26 equal bins "
                "each: use the method listed, or count one column."
            )

    def check_noise(self, domain: Domain, *, epsilon: Fraction, sensitivity: int) -> None:
        """Refuse what the noise of a budget would make too large, before anything is charged."""
        if isinstance(self.estimate, Listed):
            self.estimate.refuse_too_many(domain.n, epsilon=epsilon, sensitivity=sensitivity)

    def with_intervals(self, part: Fraction = Fraction(0)) -> Pipeline:
        """Return this method: its intervals cost nothing."""
        return self

    def found(self, curator: Curator, workload: Workload) -> tuple[Groups, Estimated]:
        """Return the groups of bins, and a value for each; those of a split grid lie along a curve."""
        if self._on_curve(curator.domain):
            curator, workload = curator.along_curve(), AllRanges(curve.side(curator.domain.shape) ** 2)
        groups = self.partition(curator, None, None, share=self.split.partition, later=self.split.estimate)
        found = spent_so_far(curator)
        if isinstance(self.estimate, Listed):
            made = self.estimate(curator, None, groups, workload, share=self.split.estimate)
            groups = made.groups or groups
        else:
            alone, asked = Groups.singletons(groups.k), onto(workload, groups)
            made = self.estimate(curator.gather(groups), None, alone, asked, share=self.split.estimate)
        shares = {"partition": found, "estimate": spent_so_far(curator) - found}
        return groups, dataclasses.replace(made, shares=shares)

    def values(self, curator: Curator, workload: Workload) -> tuple[Groups, Estimated]:
        """Return a value for every bin, where these are few enough."""
        groups, made = self.found(curator, workload)
        if curator.domain.is_large:
            raise UsageError(f"{curator.domain.n:,} bins are too many for a value each.")
        release = self._released(curator, workload, groups, made)
        return groups, dataclasses.replace(made, values=release.values().ravel())

    def _on_curve(self, domain: Domain) -> bool:
        return isinstance(self.partition, PlainSplits) and len(domain.axes) == 2

    def run(
        self,
        curator: Curator,
        workload: Workload,
        *,
        post: Post = "none",
        provenance: dict[str, Any] | None = None,
    ) -> Release:
        """Run the steps and return their result; it answers what a release answers, for its groups."""
        groups, made = self.found(curator, workload)
        return cast(Release, self._released(curator, workload, groups, made, post, provenance))

    def _released(
        self,
        curator: Curator,
        workload: Workload,
        groups: Groups,
        made: Estimated,
        post: Post = "none",
        provenance: dict[str, Any] | None = None,
    ) -> SparseRelease:
        alone, line = Groups.singletons(groups.k), Domain((Integers(0, groups.k - 1),))
        pieces = self.released(curator, workload, line, alone, made, post, provenance)
        way = self._on_curve(curator.domain)
        return SparseRelease(
            domain=curator.domain, groups=groups, pieces=pieces, listing=made.listing, along_curve=way
        )


def make_sparse(method: str, domain: Domain, workload: Workload | None) -> SparsePipeline:
    """Return the method of a name for a domain of too many bins to hold a number for each."""
    name, _, options = method.partition(":")
    if name == "listed":
        return listed(options)
    if options:
        raise UsageError(f"{name} takes no options; {shown(options)} is one too many.")
    if name == "auto":
        chosen = "listed" if workload is None or isinstance(workload, Points) else "dawa2"
        return dataclasses.replace(make_sparse(chosen, domain, workload), choice=chosen)
    if name == "dawa2":
        return SparsePipeline(
            partition=PlainSplits(),
            estimate=WorkloadTree(weights="tuned"),
            split=Split(partition=Fraction(1, 4), estimate=Fraction(3, 4)),
        )
    if name == "uniform":
        return SparsePipeline(partition=Whole(), estimate=GroupMeans())
    ranges = "" if any(isinstance(axis, Hashed) for axis in domain.axes) else "dawa2 for ranges "
    raise UsageError(
        f"{name} holds a number for every bin, and {domain.n:,} bins are more than the {MAX_BINS:,} that "
        f"fit: use listed for single bins, {ranges}or uniform for the total; or wider bins."
    )


def listed(options: str = "") -> SparsePipeline:
    """Return the listing of large bins.

    Args:
        options: ``false=100``, how many empty bins it lists in expectation; ``most=50``, how many of the
            largest it lists; or ``threshold=30``, the least noisy count; by default ``false=1``.
    """
    said: dict[str, Any] = {}
    if options:
        found = _OPTION.fullmatch(options)
        if found is None or (found[1] != "false" and "." in found[2]):
            raise UsageError(
                f"listed:{options} is not understood: write listed:false=100, listed:most=50 or "
                "listed:threshold=30."
            )
        name, number = found[1], found[2]
        said = {"false_bins": float(number)} if name == "false" else {name: int(number)}
    return SparsePipeline(partition=Whole(), estimate=Listed(**said))


def onto(workload: Workload, groups: Groups) -> Workload:
    """Return a workload on groups of bins, each of which counts as one bin: O(groups + queries)."""
    if isinstance(workload, Points):
        return Points(groups.k)
    if isinstance(workload, Prefixes):
        return Prefixes(groups.k)
    if isinstance(workload, Ranges):
        first = groups.starts.searchsorted(workload.lo, side="right") - 1
        return Ranges(groups.k, first, groups.starts.searchsorted(workload.hi))
    return AllRanges(groups.k)
