"""Methods compared for histograms by group: the expected error of every level, before anything is spent."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dphist._common import __version__
from dphist.charts.curves import curves_chart
from dphist.charts.picture import Picture, html_table
from dphist.domain import as_int
from dphist.domain.hierarchy import GroupsLike
from dphist.errors import UsageError
from dphist.methods.catalogue import find
from dphist.methods.levels import Importances, is_unbiased, lowest_agreed, make_importances
from dphist.methods.pipeline import Pipeline
from dphist.planning.advise import (
    LEAST,
    MOST,
    SLOW,
    along,
    read_epsilon,
    read_records,
    read_target,
    suitable,
)
from dphist.planning.grouped import GroupedPlan
from dphist.planning.grouped_preview import aligned
from dphist.planning.level_errors import GroupedLike, LevelError, LevelErrors, SumsLike
from dphist.planning.plan import Bins, WorkloadLike
from dphist.planning.preview import short
from dphist.privacy.ledger import as_decimal
from dphist.uncertainty.models import bounding

Progress = Callable[[str], None]
# Simulated cells of a run, and groups of all runs: of all methods, and of the best.
_NONE, _ROUGH, _CLOSELY = (0, 0), (1 << 12, 40), (1 << 14, 256)
_DRAWN = 6  # methods that have a curve
_CONTENDERS = 3  # methods whose groups are simulated closely, or solved for an error
_TRIES = 10
_CLOSE = 0.03  # how far below an error that is asked for the answer may be


@dataclass(frozen=True, kw_only=True)
class GroupedExpected:
    """The expected errors of one method.

    Args:
        epsilon: the budget in question, or the one that the method needs for the error in question.
        levels: root mean square errors of the levels, from the top to the lowest.
        sums: those of the sums of groups that were asked for.
        error: by which the methods are ranked: the root mean square over the levels, weighed by their
            importances, or the error of the level in question.
        intervals: whether a release of this method has confidence intervals.
        curve: pairs of an epsilon and the error there; of methods that are not among the best few, nothing.
    """

    method: str
    epsilon: Fraction
    levels: tuple[LevelError, ...]
    sums: tuple[LevelError, ...]
    error: float
    intervals: bool
    curve: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        return {
            "method": self.method,
            "epsilon": as_decimal(self.epsilon),
            "error": None if math.isnan(self.error) else self.error,
            "levels": [row.to_dict() for row in self.levels],
            "sums": [row.to_dict() for row in self.sums],
            "intervals": self.intervals,
            "curve": [list(point) for point in self.curve],
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupedAdvice:
    """Methods for histograms by group with their expected errors, best first; nothing was spent.

    >>> wards = {"by": ("all", "ward"), "groups": ["A", "B", "C"], "methods": ["identity", "hats"]}
    >>> advice = dphist.advise(100, records=10_000, epsilon=1, workload="ranges", **wards)
    >>> advice.best.method, [row.name for row in advice.best.levels]
    ('hats', ['all', 'ward'])

    Args:
        rows: sorted by error if an epsilon is given, by the epsilon they need if an error is given.
        bins: the number of bins of each group.
        records: the assumed number of records in all groups together.
        workload: the queries along the bins.
        importances: how much a squared error counts on each level.
        like: the assumed shape of the data.
        at: the level whose error was asked for or ranks the methods; None for all by their importances.
        target: the error that was asked for, in records per query, or None.
        max_contributions: the number of records that are counted of one person.
        curves: for each level, pairs of an epsilon and the error of the best method there.
        out_of_reach: methods that cannot reach the target.
    """

    rows: tuple[GroupedExpected, ...]
    bins: int
    records: int
    workload: str
    importances: Mapping[str, float]
    like: str
    at: str | None
    target: float | None
    max_contributions: int
    curves: Mapping[str, tuple[tuple[float, float], ...]] = field(repr=False)
    out_of_reach: tuple[str, ...] = ()

    @property
    def best(self) -> GroupedExpected:
        """The recommended method: the first whose releases have confidence intervals, or else the first."""
        return _recommended(self.rows)

    def header(self) -> tuple[str, ...]:
        """Return the titles of the table's columns: errors per query of each level, and of each sum.

        >>> advice.header()
        ('method', 'epsilon', 'all', 'ward')
        """
        return ("method", "epsilon", *(row.name for row in (*self.best.levels, *self.best.sums)))

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows as text; simulated figures are marked with ``~``.

        >>> [row[0] for row in advice.cells()]
        ['hats', 'identity']
        """
        return [
            (row.method, as_decimal(row.epsilon), *(_figure(each) for each in (*row.levels, *row.sums)))
            for row in self.rows
        ]

    def table(self) -> str:
        """Return all rows as an aligned table.

        >>> advice.table().splitlines()[0].split()
        ['method', 'epsilon', 'all', 'ward']
        """
        return aligned([self.header(), *self.cells()])

    def words(self) -> str:
        """Return the advice in a few sentences.

        >>> advice.words().startswith("Take hats with epsilon 1: off by")
        True
        """
        best = self.best
        levels = ", ".join(f"{short(row.error)} on level {row.name}" for row in reversed(best.levels))
        note = f"Take {best.method} with epsilon {as_decimal(best.epsilon)}: off by {levels}"
        note += " (records per query, root mean square over queries and groups)."
        note += self._next()
        if not best.levels[-1].exact:
            note += f" Errors marked ~ depend on the data and were simulated, {self.like}."
        if self.max_contributions > 1:
            note += f" {bounding(self.max_contributions)}"
        return note

    def _next(self) -> str:
        """Return how far the method after the best is from it, and what one without intervals would gain."""
        best, first = self.best, self.rows[0]
        after = self.rows[self.rows.index(best) + 1 :]
        gain = "" if first is best else f" {first.method} is off by {short(first.error)} instead of "
        gain += "" if first is best else f"{short(best.error)}, without intervals."
        if not after or not best.error:
            return gain
        if self.target is None:
            return (
                f" Next is {after[0].method}, off by {after[0].error / best.error:.3g} times as much.{gain}"
            )
        more = float(after[0].epsilon / best.epsilon)
        return f" Next is {after[0].method}, which needs {more:.3g} times the epsilon."

    def question(self) -> str:
        """Return the question that this advice answers.

        >>> advice.question()
        '1 all x 3 ward, 100 bins, 10,000 records, ranges, 6 shapes mixed'
        """
        groups = " x ".join(f"{row.groups:,} {row.name}" for row in self.best.levels)
        bins = f"{self.bins:,} bin{'s' * (self.bins != 1)}"
        return f"{groups}, {bins}, {self.records:,} records, {self.workload}, {self.like}"

    def plot(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> Picture:
        """Return a chart of error against epsilon: of the best methods on the level in question.

        Without such a level it shows the best method's error on each of them.

        >>> advice.plot("levels.svg").to_svg().startswith("<svg")
        True
        """
        title, curves = f"What epsilon buys on each level with {self.best.method}", dict(self.curves)
        if self.at is not None:
            title = f"What epsilon buys on level {self.at}"
            curves = {row.method: row.curve for row in self.rows if row.curve}
        picture = curves_chart(
            {name: [(x, y) for x, y in curve if y > 0] for name, curve in curves.items()},
            title=title,
            subtitle=f"{self.question()}; SIMULATED on made-up data",
            x_title="epsilon",
            y_title="root mean square error per query, records",
            x_mark=float(self.best.epsilon),
            y_mark=self.target,
            note=bounding(self.max_contributions) if self.max_contributions > 1 else "",
        )
        if path is not None:
            picture.save(path, overwrite=overwrite)
        return picture

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain values, ready for JSON.

        >>> advice.to_dict()["best"]
        'hats'
        """
        return {
            "groups": {row.name: row.groups for row in self.best.levels},
            "bins": self.bins,
            "records": self.records,
            "workload": self.workload,
            "importances": dict(self.importances),
            "like": self.like,
            "at": self.at,
            "target": self.target,
            "max_contributions": self.max_contributions,
            "best": self.best.method,
            "epsilon": as_decimal(self.best.epsilon),
            "rows": [row.to_dict() for row in self.rows],
            "out_of_reach": list(self.out_of_reach),
            "simulated": True,
            "dphist": __version__,
        }

    def __repr__(self) -> str:
        return (
            f"GroupedAdvice({self.question()}: {self.best.method!r}, epsilon={as_decimal(self.best.epsilon)})"
        )

    def __str__(self) -> str:
        return f"{self.question()}\n\n{self.table()}\n\n{self.words()}"

    def _repr_html_(self) -> str:
        table = html_table([self.header(), *self.cells()])
        about = "".join(f"<p>{html.escape(text)}</p>" for text in (self.question(), self.words()))
        return f"<div>{about}{table}</div>"


def _recommended(rows: Sequence[GroupedExpected]) -> GroupedExpected:
    return next((row for row in rows if row.intervals), rows[0])


def _figure(row: LevelError) -> str:
    return "?" if math.isnan(row.error) else f"{'' if row.exact else '~'}{short(row.error)}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is asked about each method.

    Args:
        weights: how much a squared error counts on each level.
        say: called with a few words before a method is asked about.
    """

    study: LevelErrors
    pipelines: dict[str, Pipeline]
    weights: tuple[float, ...]
    say: Progress = lambda text: None

    def at(self, level: int) -> Comparison:
        """Return the same about one level alone."""
        return replace(self, weights=_only(level, self.study.hierarchy.depth))

    def row(self, method: str, epsilon: Fraction, effort: tuple[int, int] = _ROUGH) -> GroupedExpected:
        """Return a method's errors at an epsilon."""
        self.say(f"{method} at epsilon {as_decimal(epsilon)}")
        found = self.study.of(self.pipelines[method], epsilon, cells=effort[0], enough=effort[1])
        depth = self.study.hierarchy.depth
        squares = [
            w * row.error**2 for w, row in zip(self.weights, found[:depth], strict=True) if w > 0
        ]  # of levels that nobody asks for, nothing needs to be known
        return GroupedExpected(
            method=method,
            epsilon=epsilon,
            levels=found[:depth],
            sums=found[depth:],
            error=math.sqrt(sum(squares) / sum(self.weights)),
            intervals=self.has_intervals(method),
        )

    def drawn(self, row: GroupedExpected, around: Fraction, *, sketch: bool = False) -> GroupedExpected:
        """Return a method with its curve, or the ends of that; what is known closely corrects its level."""
        near = self.row(row.method, row.epsilon).error
        times = row.error / near if near else 1.0
        curve = {e: self.row(row.method, e).error * times for e in along(around, sketch=sketch)}
        curve[row.epsilon] = row.error
        known = sorted((float(e), error) for e, error in curve.items() if not math.isnan(error))
        return replace(row, curve=tuple(known))

    def simulates(self, method: str) -> bool:
        """Return whether a method's errors depend on data."""
        return not is_unbiased(self.pipelines[method])

    def has_intervals(self, method: str) -> bool:
        """Return whether a release of a method has intervals."""
        made = self.pipelines[method]
        return bool(made.calibrate) or not self.simulates(method) or _listed(method) != "none"

    def ranked(self, epsilon: Fraction) -> list[GroupedExpected]:
        """Return all methods by their errors; the best of those that are simulated are so more closely."""
        rows = _distinct(self.row(m, epsilon) for m in self.pipelines)
        best = [row.method for row in rows if self.simulates(row.method)][:_CONTENDERS]
        return _distinct(self.row(r.method, epsilon, _CLOSELY) if r.method in best else r for r in rows)

    def solved(self, method: str, target: float, guess: Fraction) -> GroupedExpected | None:
        """Return a method at the least epsilon at which its error is the target or below; None if at none."""
        epsilon, reached = guess, None
        made = self.pipelines[method]
        known = self._asked() <= lowest_agreed(made, self.study.shares[not is_unbiased(made)])
        for _ in range(_TRIES):
            row = self.row(method, epsilon, _NONE if known else _CLOSELY)
            if row.error <= target and (reached is None or epsilon < reached.epsilon):
                reached = row
            if row.error <= target <= row.error * (1 + _CLOSE):
                break
            epsilon = _three_digits(min(float(epsilon) * row.error / target * 1.005, float(MOST)))
            if epsilon < LEAST:
                raise UsageError(
                    f"an error of {short(target)} records per query needs hardly any epsilon. Ask for a "
                    "smaller error."
                )
        return self.row(method, reached.epsilon, _CLOSELY) if reached is not None and known else reached

    def _asked(self) -> int:
        """Return the lowest level that is asked for."""
        return max(level for level, weight in enumerate(self.weights) if weight > 0)


def _distinct(rows: Iterable[GroupedExpected]) -> list[GroupedExpected]:
    """Return methods by their errors, dropping those that are the same as another."""
    kept: list[GroupedExpected] = []
    for row in sorted(rows, key=_by_error):
        if not any(is_same(row, other) for other in kept):
            kept.append(row)
    return kept


def is_same(one: GroupedExpected, other: GroupedExpected) -> bool:
    """Return whether two methods have the same errors on all levels."""
    return all(
        math.isclose(a.error, b.error, rel_tol=1e-12) for a, b in zip(one.levels, other.levels, strict=True)
    )


def _by_error(row: GroupedExpected) -> tuple[float, float]:
    """Return the error, and that of the lowest level for those that differ by that alone."""
    errors = (math.inf if math.isnan(e) else float(f"{e:.9g}") for e in (row.error, row.levels[-1].error))
    return next(errors), next(errors)


def _listed(method: str) -> str:
    try:
        return find(method).intervals
    except UsageError:
        return "none"


def _three_digits(number: float) -> Fraction:
    return Fraction(f"{number:.3g}")


def advise_groups(
    bins: Bins,
    *,
    by: str | Sequence[str],
    groups: GroupsLike,
    group_other: str | None,
    importances: Importances | None,
    at: str | None,
    sums: SumsLike | None,
    records: float,
    epsilon: Any,
    error: float | str | None,
    workload: WorkloadLike,
    like: GroupedLike | None,
    methods: Sequence[str | Pipeline] | None,
    max_contributions: int,
    progress: Progress | None,
) -> GroupedAdvice:
    """Return the expected error of every suitable method on every level; the arguments are `advise`'s."""
    many, at_most = read_records(records), as_int(max_contributions, "max_contributions")
    plan = GroupedPlan(
        by=by,
        groups=groups,
        group_other=group_other,
        importances=importances,
        bins=bins,
        epsilon=1 if epsilon is None else epsilon,
        workload=workload,
        unit=None if at_most == 1 else "unit",
        max_contributions=at_most,
    )
    tree = plan.hierarchy
    asked_at = tree.names[-1] if at is None and error is not None else at
    level = None if asked_at is None else tree.level(asked_at)
    importance = make_importances(tree, importances)
    weights = tuple(importance.values()) if level is None else _only(level, tree.depth)
    named = methods is None or all(isinstance(method, str) for method in methods)
    study = plan.errors(records=many, like=like, sums=sums).waiting(lambda: None, keep=named)
    pipelines = suitable(methods, plan.domain, plan.queries)
    if methods is None:
        pipelines = {name: made for name, made in pipelines.items() if name not in SLOW}
    question = Comparison(study, pipelines, weights, progress or (lambda text: None))
    never: tuple[str, ...] = ()
    target = None
    if error is None:
        rows = question.ranked(read_epsilon(epsilon))
    else:
        answer = plan.queries.mean_answer(many)
        target = read_target(error, answer / tree.sizes[tree.level(asked_at or tree.names[-1])])
        rows, never = cheapest(question, target)
    best = _recommended(rows)
    drawn = {best.method, *(row.method for row in rows[:_DRAWN])}
    made = GroupedAdvice(
        rows=tuple(question.drawn(r, best.epsilon) if r.method in drawn else r for r in rows),
        bins=plan.domain.n,
        records=many,
        workload=workload if isinstance(workload, str) else f"{plan.queries.size:,} queries",
        importances=importance,
        like=study.look.name,
        at=asked_at,
        target=target,
        max_contributions=at_most,
        curves=_curves(question, best),
        out_of_reach=never,
    )
    if study.kept is not None:
        study.kept.save()
    return made


def _only(level: int, depth: int) -> tuple[float, ...]:
    return tuple(float(i == level) for i in range(depth))


def cheapest(question: Comparison, target: float) -> tuple[list[GroupedExpected], tuple[str, ...]]:
    """Return the methods by the epsilon that they need for an error, and those that never reach it."""
    rough = _distinct(question.row(m, Fraction(1)) for m in question.pipelines)
    simulated = [row for row in rough if question.simulates(row.method)][:_CONTENDERS]
    tried = [row for row in rough if not question.simulates(row.method) or row in simulated]
    found = {}
    for row in tried:
        guess = _three_digits(min(max(row.error / target, float(LEAST)), float(MOST)))
        found[row.method] = question.solved(row.method, target, guess)
    reached = [row for row in found.values() if row is not None]
    reached.sort(key=lambda row: (row.epsilon, row.levels[-1].error))
    if not reached:
        raise UsageError(
            f"no epsilon up to {MOST} reaches an error of {short(target)} records per query. Ask for a "
            "larger error."
        )
    return reached, tuple(method for method, row in found.items() if row is None)


def _curves(question: Comparison, best: GroupedExpected) -> dict[str, tuple[tuple[float, float], ...]]:
    """Return the errors of the best method on each level at a few budgets around its own."""
    rows = [question.row(best.method, e) for e in along(best.epsilon) if e != best.epsilon]
    rows = sorted([*rows, best], key=lambda row: row.epsilon)
    return {
        level.name: tuple((float(row.epsilon), row.levels[k].error) for row in rows)
        for k, level in enumerate(best.levels)
    }
