"""Plans of a histogram for each of some groups: one count, one charge, levels that add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dphist.domain import MAX_BINS, Domain, as_int
from dphist.domain.declare import sort_other
from dphist.domain.groups import frozen
from dphist.domain.hierarchy import GroupsLike, Hierarchy, make_hierarchy
from dphist.errors import UsageError
from dphist.methods.levels import (
    Importances,
    bytes_needed,
    is_unbiased,
    make_shares,
    run_levels,
    upper_method,
    usual_above,
)
from dphist.methods.memory import refuse_groups_that_do_not_fit
from dphist.methods.pipeline import Pipeline, origin
from dphist.methods.rehearsal import rehearse
from dphist.methods.sparse import SparsePipeline
from dphist.planning.grouped_preview import GroupedPreview
from dphist.planning.level_errors import (
    GroupedLike,
    LevelErrors,
    SumsLike,
    grouped_pattern,
    make_sums,
)
from dphist.planning.plan import Plan
from dphist.planning.preview import DRAWN
from dphist.planning.shapes import USUAL as SHAPES
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import LedgerLike
from dphist.release.grouped import GroupedRelease, Level
from dphist.release.postprocess import present_levels

_CELLS, _ENOUGH = 1 << 15, 512  # bins that are simulated at once, and groups of all runs together


@dataclass(frozen=True, kw_only=True)
class GroupedPlan(Plan):
    """A release of one histogram for each group, fully described before any record is read.

    Groups are disjoint, so that each has the whole of epsilon, and all of them together cost it once. A
    person may be in many groups: ``max_contributions`` bounds their records over all groups together.

    >>> wards = dphist.GroupedPlan(by=("all", "ward"), groups=["A", "B"], bins=4, range=(0, 40), epsilon=1)
    >>> wards.hierarchy.sizes, wards.shares
    ((1, 2), (Fraction(0, 1), Fraction(1, 1)))

    Args:
        by: the column that says to which group a record belongs; or the names of all levels from the top
            down, the last of which is that column.
        groups: the groups, from public knowledge: a list, dictionaries of lists for the levels above, or a
            text file with one group per line. Every declared group is published, empty or not.
        group_other: a label for all records of groups that were not declared, which are left out otherwise.
            Without ``categories`` it may be given as ``other``.
        importances: how much a squared error counts on each level; by default 1 on the lowest, 1/10 above. Or
            a word for the queries along the groups: ``points`` for the lowest level alone, ``totals`` for the
            top level alone, ``levels`` for the default. Those along the bins are the ``workload``.
    """

    by: str | Sequence[str] = ()
    groups: GroupsLike = ()
    group_other: str | None = None
    importances: Importances | None = None

    def __post_init__(self) -> None:
        other, group_other = sort_other(self.categories, self.other, self.group_other)
        object.__setattr__(self, "other", other)
        object.__setattr__(self, "group_other", group_other)
        self.hierarchy  # noqa: B018 - wrong groups are refused here
        if self.prior is not None:
            raise UsageError("a prior is of one histogram, and groups have many: leave prior= out.")
        super().__post_init__()
        if isinstance(self.pipeline, SparsePipeline):
            raise UsageError(
                f"{self.pipeline.name} publishes bins of one histogram: leave by= out, or count a grid of "
                "groups and bins with it."
            )
        self.shares  # noqa: B018 - and wrong importances

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The groups of every level."""
        return make_hierarchy(self.by, self.groups, other=self.group_other)

    @property
    def size(self) -> int:
        """How many values a release has: those of all bins of all groups of all levels."""
        return sum(self.hierarchy.sizes) * self.domain.n

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """The part of epsilon that each level is measured with, the top first."""
        return make_shares(self.hierarchy, self.importances, biased=not is_unbiased(self.pipeline))

    @property
    def _named_method(self) -> str | Pipeline:
        """The method; ``auto`` is unbiased here: groups are added up, and so would small biases be."""
        if not isinstance(self.method, str) or self.method != "auto":
            return self.method
        made = usual_above(self.domain, self.queries)
        return replace(made, name="auto", choice=made.name)

    def errors(self, *, records: int, like: GroupedLike | None, sums: SumsLike | None = None) -> LevelErrors:
        """Return what the errors of this plan are computed from; spends nothing.

        >>> study = wards.errors(records=1000, like="smooth")
        >>> [row.name for row in study.of(wards.pipeline, wards.budget, cells=1000, enough=10)]
        ['all', 'ward']
        """
        many = as_int(records, "records")
        if many < 1:
            raise UsageError(
                f"records, the approximate number of records, must be at least 1, not {records}."
            )
        return LevelErrors(
            hierarchy=self.hierarchy,
            bins=self.domain,
            queries=self.queries,  # type: ignore[arg-type]
            shares={
                biased: make_shares(self.hierarchy, self.importances, biased=biased)
                for biased in (False, True)
            }
            | {not is_unbiased(self.pipeline): self.shares},
            max_contributions=self.max_contributions,
            records=many,
            look=grouped_pattern(like, self.hierarchy, self.domain, SHAPES),
            sums=make_sums(sums, self.hierarchy),
        )

    def preview(  # type: ignore[override]
        self, *, records: int = 10_000, like: GroupedLike = "smooth", sums: SumsLike | None = None
    ) -> GroupedPreview:
        """Return the expected error of every level, and a dozen simulated releases; spends nothing.

        >>> round(wards.preview(records=1000).levels[1].error, 2)
        1.36

        Args:
            records: the approximate number of records in all groups together, from public knowledge.
            like: the expected shape of each group's data, or an earlier release of the same groups or its
                file, or public counts, a row for each group.
            sums: lists of groups that will be asked for together, such as ``[["H1", "H3"]]``.
        """
        return self.foreseen(self.errors(records=records, like=like, sums=sums))

    def foreseen(self, study: LevelErrors) -> GroupedPreview:
        """Return a preview from what `errors` gave; spends nothing.

        >>> [row.name for row in wards.foreseen(wards.errors(records=1000, like="smooth")).levels]
        ['all', 'ward']
        """
        rows = study.of(self.pipeline, self.budget, cells=_CELLS, enough=_ENOUGH)
        part = study.part(self.pipeline, cells=_CELLS)
        provenance = {"source": "preview", "like": study.look.name}
        made = study.run(self.pipeline, part, self.budget, seeds=range(DRAWN))
        depth = self.hierarchy.depth
        return GroupedPreview(
            levels=rows[:depth],
            sums=rows[depth:],
            releases=tuple(self._wrap(*each, part.hierarchy, provenance) for each in made),
            truth=part.counts,
            queries=self.queries,
            records=study.records,
            like=study.look.name,
        )

    def release(  # type: ignore[override]
        self, data: Any, *, ledger: LedgerLike | str | Path | None = None, dataset: str = "default"
    ) -> GroupedRelease:
        """Count the records, pay once for all groups, and publish; the arguments are those of ``Plan``.

        >>> wards.release((["A", "B", "A"], [12, 30, 31]))["A"].values().shape
        (4,)
        """
        if self.column is None and not isinstance(data, tuple):
            raise UsageError(
                "with by= name the column to count, such as column='age'; of arrays give a pair: the groups "
                "of all records, and their values."
            )
        made: Any = super().release(data, ledger=ledger, dataset=dataset)
        return made  # type: ignore[no-any-return]

    @property
    def _bytes(self) -> int:
        return bytes_needed(self.pipeline, self.hierarchy, self.domain.n)

    def prepare(self, *, sensitivity: int | None = None) -> None:
        """Make sure that memory will do, and compile and import all that a release needs; spends nothing.

        >>> wards.prepare()
        """
        refuse_groups_that_do_not_fit(
            self.pipeline.name,
            self._bytes,
            groups=len(self.hierarchy.leaves),
            bins=self.domain.n,
        )
        unit = self.max_contributions if sensitivity is None else sensitivity
        for method in {id(m): m for m in (self.pipeline, self._above)}.values():
            rehearse(method, self.domain, self.queries, epsilon=self.budget, sensitivity=unit)
        made_up = make_hierarchy(("above", "below"), {"a": ["b", "c"]})
        values = [frozen(np.full((size, 4), 1.5)) for size in made_up.sizes]
        present_levels(made_up.parents, values, [np.ones(size) for size in made_up.sizes], post=self.post)

    @cached_property
    def _above(self) -> Pipeline:
        return upper_method(self.pipeline, self.domain, self.queries)

    @cached_property
    def _counted(self) -> Domain:
        groups, n = len(self.hierarchy.leaves), self.domain.n
        if groups * n > MAX_BINS:
            raise UsageError(
                f"{groups:,} groups of {n:,} bins are {groups * n:,} bins, more than the {MAX_BINS:,} that "
                "one release takes. Declare fewer groups and count the others together, or use fewer bins."
            )
        if len(self.domain.axes) != 1:
            raise UsageError("with by= every group has a histogram of one axis; give bins for one column.")
        return Domain((self.hierarchy.axis, *self.domain.axes))

    @property
    def _columns(self) -> tuple[str, ...]:
        bins = super()._columns
        return (self.hierarchy.names[-1], *bins) if bins else ()

    @property
    def _lists(self) -> tuple[object, ...]:
        return (*super()._lists, self.groups)

    def _shares(self) -> Iterator[Fraction]:
        for part in super()._shares():
            yield part * self.shares[-1]
        yield from self.shares[:-1]

    def _run(self, curator: Curator, provenance: dict[str, Any]) -> Any:
        levels = run_levels(self.pipeline, curator, self.hierarchy, self.queries, self.shares)
        return self._wrap(curator, levels, self.hierarchy, provenance)

    def _wrap(
        self, curator: Curator, levels: tuple[Level, ...], hierarchy: Hierarchy, provenance: dict[str, Any]
    ) -> GroupedRelease:
        return GroupedRelease(
            hierarchy=hierarchy,
            bins=self.domain,
            levels=levels,
            shares=self.shares,
            post=self.post,
            method=self.pipeline.name,
            parameters=self.pipeline.describe(self.queries)
            | {
                "levels": {name: str(share) for name, share in zip(hierarchy.names, self.shares, strict=True)}
            },
            provenance=provenance,
            **origin(curator),
        )
