"""Simulated releases by group before anything is spent, and the expected error of every level."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dphist.charts.picture import Picture, html_table, svg_or_nothing
from dphist.domain import shown
from dphist.domain.groups import Floats, Ints
from dphist.domain.hierarchy import Hierarchy
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.planning.level_errors import LevelError
from dphist.planning.preview import Preview, short
from dphist.release.grouped import GroupedRelease


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupedPreview:
    """A dozen simulated releases by group, and the expected error of every level.

    >>> plan = dphist.GroupedPlan(by=("all", "ward"), groups=["A", "B"], bins=4, range=(0, 40), epsilon=1)
    >>> preview = plan.preview(records=1000)
    >>> [row.name for row in preview.levels], preview.levels[0].exact
    (['all', 'ward'], True)

    Args:
        levels: the expected errors, from the top level to the lowest; those of the unpresented values.
        sums: the expected errors of the sums of groups that were asked for.
        releases: the dozen, each stamped simulated; of a part of the groups, where there are very many.
        truth: the made-up counts of these groups, a row for each.
        queries: the workload along the bins.
        records: how many records were made up, about, in all groups together.
        like: what the made-up data look like.
    """

    levels: tuple[LevelError, ...]
    sums: tuple[LevelError, ...]
    releases: tuple[GroupedRelease, ...]
    truth: Ints
    queries: Workload
    records: int
    like: str

    @property
    def hierarchy(self) -> Hierarchy:
        """The groups of the simulated releases."""
        return self.releases[0].hierarchy

    def __getitem__(self, group: str) -> Preview:
        """Return the dozen outcomes of one group, as of any other histogram."""
        if group not in self.releases[0]:
            some = ", ".join(self.hierarchy.leaves[:3])
            raise UsageError(f"the group {shown(group)} was not simulated; some that were: {some}.")
        at, i = self.hierarchy.find(group)
        starts = self.hierarchy.runs(at).starts
        truth = self.truth[starts[i] : starts[i + 1]].sum(axis=0)
        ones = tuple(release[self.hierarchy.names[at], group] for release in self.releases)
        values = np.array([one.presentable for one in ones])
        values.flags.writeable = False
        errors = np.array([self.queries.mean_absolute_error(row - truth) for row in values])
        return Preview(
            releases=ones, values=values, truth=truth, errors=errors, like=self.like, queries=self.queries
        )

    def header(self) -> tuple[str, ...]:
        """Return the titles of the table's columns.

        >>> preview.header()[:2]
        ('level', 'groups')
        """
        return ("level", "groups", "share", "error per query", "error per bin", "known by")

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows as text: the levels, then the sums.

        >>> [row[:2] for row in preview.cells()]
        [('all', '1'), ('ward', '2')]
        """
        return [error_cells(row) for row in (*self.levels, *self.sums)]

    def table(self) -> str:
        """Return the expected errors as an aligned table.

        >>> print(preview.table().splitlines()[0])
        level  groups     share  error per query  error per bin   known by
        """
        return aligned([self.header(), *self.cells()])

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, group: str | None = None, overwrite: bool = False
    ) -> Picture:
        """Return a chart of what one group's histogram could be, by default a group of middle size.

        >>> preview.plot("outcomes.svg", group="A").to_svg().startswith("<svg")
        True
        """
        return self[group or self._middle].plot(path, overwrite=overwrite)

    @cached_property
    def _middle(self) -> str:
        sizes: Floats = self.truth.sum(axis=1)
        return self.hierarchy.leaves[int(np.argsort(sizes, kind="stable")[sizes.size // 2])]

    def question(self) -> str:
        """Return what was simulated, in a line.

        >>> preview.question()
        'auto, 1 all x 2 ward, 4 bins, epsilon 1, 1,000 made-up records, smooth'
        """
        release = self.releases[0]
        from dphist.release.show import decimal

        groups = " x ".join(f"{row.groups:,} {row.name}" for row in self.levels)
        bins = f"{release.bins.n:,} bin{'s' * (release.bins.n != 1)}"
        return (
            f"{release.method}, {groups}, {bins}, epsilon {decimal(release.epsilon)}, "
            f"{self.records:,} made-up records, {self.like}"
        )

    def __repr__(self) -> str:
        errors = ", ".join(f"{row.name} {short(row.error)}" for row in self.levels)
        about = f" {self.releases[0].bounding}" if self.releases[0].bounding else ""
        return f"GroupedPreview({self.question()}; error per query: {errors}; SIMULATED){about}"

    def __str__(self) -> str:
        return f"{self.question()}; SIMULATED\n\n{self.table()}"

    def _repr_html_(self) -> str:
        picture = svg_or_nothing(self.plot)
        table = html_table([self.header(), *self.cells()])
        return f"<div><p>{html.escape(repr(self))}</p>{table}{picture}</div>"


def error_cells(row: LevelError) -> tuple[str, ...]:
    """Return an expected error as text."""
    known = "variances" if row.exact else "simulation" if row.error == row.error else "not known"
    share = "added up" if not row.share else f"{float(row.share):.3g}"
    return (row.name, f"{row.groups:,}", share, short(row.error), short(row.bin_error), known)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return rows of text as a table, whose first column is text and whose others are numbers."""
    wide = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    texts = (
        "  ".join(
            cell.rjust(w) if k else cell.ljust(w) for k, (cell, w) in enumerate(zip(line, wide, strict=True))
        )
        for line in lines
    )
    return "\n".join(text.rstrip() for text in texts)
