"""What is expected of a plan by group, part by part, as `foresee` tells it of one histogram.

Errors are root mean squares of the lowest level; methods are compared on all levels, by their importances, as
`advise` does: whose groups have less error may add up to more above them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from dphist.domain.groups import Ints
from dphist.methods.levels import make_importances
from dphist.planning.advise import SLOW, read_epsilon, read_records, read_target, suitable
from dphist.planning.foresee import Widths
from dphist.planning.grouped import GroupedPlan
from dphist.planning.grouped_advice import Comparison, GroupedExpected, cheapest, is_same
from dphist.planning.grouped_preview import GroupedPreview
from dphist.planning.preview import Preview


class GroupedForesight:
    """The expected errors of a plan by group, simulated when they are first asked for.

    Args:
        records: the approximate number of records in all groups together, from public knowledge.
        like: the name of the expected shape of each group's data.
        between: called before each trial; what it raises ends the work.
    """

    def __init__(
        self, plan: GroupedPlan, *, records: float, like: str, between: Callable[[], None] = lambda: None
    ) -> None:
        self.plan, self.records = plan, read_records(records)
        self.epsilon = read_epsilon(plan.budget)
        named = isinstance(plan.method, str) and plan.calibrate is None
        self.study = plan.errors(records=self.records, like=like).waiting(between, keep=named)
        weights = tuple(make_importances(plan.hierarchy, plan.importances).values())
        usual = suitable(None, plan.domain, plan.queries)
        quick = {name: made for name, made in usual.items() if name not in SLOW}
        self._all = Comparison(self.study, quick | {self.method: plan.pipeline}, weights)
        self._lowest = self._all.at(plan.hierarchy.depth - 1)

    @property
    def method(self) -> str:
        """The method of the plan."""
        return self.plan.pipeline.name

    @property
    def over(self) -> str:
        """Which errors are compared, in words."""
        return " over all levels, by their importance," if self.plan.hierarchy.depth > 1 else ""

    @cached_property
    def others(self) -> list[str]:
        """All suitable methods but that of the plan; of those that have the same noise, one."""
        kept, others = [self._all.row(self.method, self.epsilon)], []
        for method in self._all.pipelines:
            if method == self.method:
                continue
            if not self._all.simulates(method):
                row = self._all.row(method, self.epsilon)
                if any(is_same(row, other) for other in kept):
                    continue
                kept.append(row)
            others.append(method)
        return others

    @property
    def answer(self) -> float:
        """The mean answer to a query about one group, if the records are spread evenly."""
        return self.plan.queries.mean_answer(self.records) / len(self.plan.hierarchy.leaves)

    def rough(self, method: str) -> float:
        """Return the error per query of a method on the lowest level, from a few trials."""
        return self._lowest.row(method, self.epsilon).error

    @cached_property
    def preview(self) -> GroupedPreview:
        """The errors of all levels and a dozen simulated releases, as `GroupedPlan.preview` gives them."""
        return self.plan.foreseen(self.study)

    @property
    def drawn(self) -> str:
        """The group of which outcomes are drawn: the first."""
        return self.preview.hierarchy.leaves[0]

    @cached_property
    def one(self) -> Preview:
        """The dozen outcomes of that group."""
        return self.preview[self.drawn]

    @cached_property
    def widths(self) -> Widths:
        """The intervals of one simulated release of that group."""
        return Widths(self.one.releases[0])

    @property
    def expected(self) -> Ints:
        """The counts that were made up of that group."""
        return self.one.truth

    def row(self, method: str, *, closely: bool = False, sketch: bool = False) -> GroupedExpected:
        """Return a method's error on the lowest level at the plan's epsilon, and its curve around it."""
        row = self._lowest.row(method, self.epsilon)
        if closely:
            row = replace(row, error=self.preview.levels[-1].error)
        return self._lowest.drawn(row, self.epsilon, sketch=sketch)

    def has_intervals(self, method: str) -> bool:
        """Return whether a release of a method has intervals."""
        return self._all.has_intervals(method)

    def compared(self, method: str) -> float:
        """Return a method's error on all levels divided by that of the plan's, on the same made-up data.

        It is infinite where a level's error is not known.
        """
        own, other = (self._all.row(one, self.epsilon).error for one in (self.method, method))
        times = other / own if own else 1.0
        return math.inf if math.isnan(times) else times

    def epsilon_for(self, error: float | str) -> tuple[Fraction, float]:
        """Return the epsilon of this histogram at which the lowest level has an error, and that error."""
        own = replace(self._lowest, pipelines={self.method: self.plan.pipeline})
        (row,), _ = cheapest(own, read_target(error, self.answer))
        return row.epsilon, row.error

    def save(self) -> None:
        """Keep what was simulated for the next time."""
        if self.study.kept is not None:
            self.study.kept.save()
