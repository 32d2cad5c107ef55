"""The expected error of a release, before anything is spent: methods compared on made-up data.

No private record is read. Each method runs a few times with simulated noise, on made-up data of the expected
shape; results are cached on disk, so that the same question is answered at once the second time.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from dphist._common import __version__
from dphist._common.renamed import renamed, renamed_fields
from dphist.charts.curves import curves_chart
from dphist.charts.picture import Picture, html_table, svg_or_nothing
from dphist.domain import Domain, Integers, as_int, shown
from dphist.domain.workload import Workload, make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import MANY_BINS, choose, make_pipeline, usual
from dphist.methods.pipeline import Pipeline
from dphist.planning.plan import Bins, WorkloadLike, make_domain
from dphist.planning.preview import Pattern, patterns, short
from dphist.planning.ranking import competitive
from dphist.planning.shapes import EXTREMES, RANGE
from dphist.planning.shapes import USUAL as SHAPES
from dphist.planning.simulated_errors import SimulatedErrors
from dphist.privacy.ledger import as_decimal, parse_epsilon
from dphist.release.grouped import GroupedRelease
from dphist.uncertainty.models import bounding

if TYPE_CHECKING:
    from dphist.domain.hierarchy import GroupsLike
    from dphist.methods.levels import Importances
    from dphist.planning.grouped_advice import GroupedAdvice
    from dphist.planning.level_errors import GroupedLike, SumsLike

# One run of a slow method takes up to half a second: they get few runs, and the epsilon for an error is
# computed for them only if they are asked for by name.
SLOW = choose(lambda m: m.cost == "slow")
FIXED = choose(lambda m: not m.data_dependent)  # their errors do not depend on the data
_CONTENDERS = 8  # number of methods that get more runs, after a few runs of all
_SOLVED = 6  # number of methods for which the epsilon for an error is computed
_RANGED = 4  # number of methods of which the error is simulated for every shape
_FAR_OFF = 3  # times the least error of the best few for the hardest data: such a method is not advised
_RIVALS = 4  # methods that may rank this high get more runs, until their error is known well
LEAST, MOST = Fraction(1, 10**8), Fraction(1000)  # the search range of epsilon for an error
_CLOSE = 0.03  # relative tolerance of the error that is asked for


@renamed_fields(runs="trials")
@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected error of one method.

    Args:
        epsilon: the budget in question, or the budget that the method needs for the error in question.
        error: the mean absolute error per query, in records, averaged over all trials.
        low: the error for the easiest of many shapes, all of `dphist.shapes.RANGE` and what ``like`` says;
            None for methods that are not among the best few.
        high: the error for the hardest of them.
        least: the smallest error of a trial.
        most: the largest error of a trial.
        trials: the number of trials.
        intervals: whether a release of this method has confidence intervals.
        competitive: whether it is not significantly worse than the method of least error (a paired t-test, as
            in `compare`); if an error is asked for, whether it needs no more epsilon than the first.
        shapes: the mean error for each shape of the data.
        curve: pairs of an epsilon and the error there.
    """

    method: str
    epsilon: Fraction
    error: float
    least: float
    most: float
    trials: int
    intervals: bool
    competitive: bool
    shapes: tuple[tuple[str, float], ...] = field(repr=False)
    curve: tuple[tuple[float, float], ...] = field(repr=False)
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "epsilon": as_decimal(self.epsilon),
            "error": self.error,
            "low": self.low,
            "high": self.high,
            "least": self.least,
            "most": self.most,
            "trials": self.trials,
            "runs": self.trials,  # its old name, for one version
            "intervals": self.intervals,
            "competitive": self.competitive,
            "shapes": dict(self.shapes),
            "curve": [list(point) for point in self.curve],
        }


@renamed_fields(scale="records")
@dataclass(frozen=True, kw_only=True, repr=False)
class Advice:
    """Methods with their expected errors, best first; no record was read and nothing was spent.

    >>> advice = dphist.advise(12, records=10_000, epsilon=1, methods=["identity", "uniform"], like="smooth")
    >>> advice.best.method
    'identity'

    Args:
        rows: sorted by error if an epsilon is given, by the epsilon they need if an error is given.
        bins: the number of bins of each axis.
        records: the assumed number of records.
        workload: the queries by which the error is measured.
        like: the assumed shape of the data.
        answer: the mean answer to a query if the records are spread evenly.
        target: the error that was asked for, in records per query, or None.
        max_contributions: the number of records that are counted of one person.
        sure: how clear the choice is, in a sentence.
        out_of_reach: methods that cannot reach the target, with their smallest errors.
    """

    rows: tuple[Expected, ...]
    bins: tuple[int, ...]
    records: int
    workload: str
    like: str
    answer: float
    target: float | None
    max_contributions: int
    sure: str
    out_of_reach: tuple[tuple[str, float], ...] = ()

    @property
    def best(self) -> Expected:
        """The recommended method: the first that has intervals and is not far off if the data are hard.

        Far off is more than three times the error that another of the best few has for the shape that is
        hardest for it: what is assumed of the data may be wrong.
        """
        return _safe(_with_intervals(self.rows))[0]

    def table(self) -> str:
        """Return all rows as an aligned table.

        >>> print(advice.table().splitlines()[0])
        method    epsilon  error per query  of a mean answer  easy data  hard data
        """
        header, *rows = lines = [self.header(), *self.cells()]
        wide = [max(len(line[k]) for line in lines) for k in range(len(header))]
        aligned = [
            "  ".join(
                cell.rjust(w) if k else cell.ljust(w)
                for k, (cell, w) in enumerate(zip(line, wide, strict=True))
            )
            for line in (header, *rows)
        ]
        return "\n".join(line.rstrip() for line in aligned)

    def header(self) -> tuple[str, ...]:
        """Return the titles of the columns.

        >>> advice.header()[0]
        'method'
        """
        return ("method", "epsilon", "error per query", "of a mean answer", "easy data", "hard data")

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text, cell by cell.

        >>> [row[0] for row in advice.cells()]
        ['identity', 'uniform']
        """
        return [
            (
                row.method,
                as_decimal(row.epsilon),
                short(row.error),
                self._share(row.error),
                "" if row.low is None else short(row.low),
                "" if row.high is None else short(row.high),
            )
            for row in self.rows
        ]

    def _share(self, error: float) -> str:
        percent = 100 * error / self.answer
        return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"

    def words(self) -> str:
        """Return the advice in a few sentences.

        >>> advice.words().startswith("Take identity with epsilon 1")
        True
        """
        best = self.best
        cost = f"epsilon {as_decimal(best.epsilon)}"
        share = f"{self._share(best.error)} of a mean answer"
        off = f"{short(best.error)} records per query on average ({share}){_range(best)}"
        sure = f"{self.sure}{_risk(self.rows, best)}"
        return f"Take {best.method} with {cost}: off by {off}. {sure} {self._bounding()}".rstrip()

    def _bounding(self) -> str:
        """Return the warning about the bias of contribution bounding, which these errors do not include."""
        return bounding(self.max_contributions) if self.max_contributions > 1 else ""

    def plot(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> Picture:
        """Return a chart of error against epsilon for the best methods; save it if a path is given.

        >>> advice.plot("advice.svg").to_svg().startswith("<svg")
        True
        """
        curves = {row.method: [(x, y) for x, y in row.curve if y > 0] for row in self.rows[:6]}
        picture = curves_chart(
            curves,
            title="What epsilon buys",
            subtitle=f"{self.question()}; SIMULATED on made-up data",
            x_title="epsilon",
            y_title="mean error per query, records",
            x_mark=float(self.best.epsilon),
            y_mark=self.target,
            note=self._bounding(),
        )
        if path is not None:
            picture.save(path, overwrite=overwrite)
        return picture

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain values, ready for JSON.

        >>> advice.to_dict()["best"]
        'identity'
        """
        return {
            "bins": list(self.bins),
            "records": self.records,
            "scale": self.records,  # its old name, for one version
            "workload": self.workload,
            "like": self.like,
            "answer": self.answer,
            "target": self.target,
            "max_contributions": self.max_contributions,
            "best": self.best.method,
            "epsilon": as_decimal(self.best.epsilon),
            "sure": self.sure,
            **({"bounding": self._bounding()} if self._bounding() else {}),
            "rows": [row.to_dict() for row in self.rows],
            "out_of_reach": dict(self.out_of_reach),
            "simulated": True,
            "dphist": __version__,
        }

    def question(self) -> str:
        """Return the question that this advice answers.

        >>> advice.question()
        '12 bins, 10,000 records, points, smooth'
        """
        bins = " x ".join(f"{n:,}" for n in self.bins)
        bins += " bin" if bins == "1" else " bins"
        return f"{bins}, {self.records:,} records, {self.workload}, {self.like}"

    def __repr__(self) -> str:
        return f"Advice({self.question()}: {self.best.method!r}, epsilon={as_decimal(self.best.epsilon)})"

    def __str__(self) -> str:
        return f"{self.question()}\n\n{self.table()}\n\n{self.words()}"

    def _repr_html_(self) -> str:
        table = html_table([self.header(), *self.cells()])
        picture = f"<div>{svg}</div>" if (svg := svg_or_nothing(self.plot)) else ""
        words = html.escape(self.words())
        return f"<div><p>{html.escape(self.question())}</p><p>{words}</p>{table}{picture}</div>"


@overload
def advise(bins: Bins, *, records: float, by: None = None, **options: Any) -> Advice: ...
@overload
def advise(bins: Bins, *, records: float, by: str | Sequence[str], **options: Any) -> GroupedAdvice: ...
@renamed(domain="bins", scale="records")  # type: ignore[misc]
def advise(
    bins: Bins,
    *,
    records: float,
    epsilon: Any = None,
    error: float | str | None = None,
    workload: WorkloadLike = "points",
    like: GroupedLike | None = None,
    methods: Sequence[str | Pipeline] | None = None,
    max_contributions: int = 1,
    by: str | Sequence[str] | None = None,
    groups: GroupsLike | None = None,
    group_other: str | None = None,
    importances: Importances | None = None,
    at: str | None = None,
    sums: SumsLike | None = None,
    progress: Callable[[str], None] | None = None,
) -> Advice | GroupedAdvice:
    """Return the expected error of every suitable method, or the epsilon that each needs for an error.

    Errors are those of releases with default settings, in which methods that group bins spend a share of
    epsilon on their intervals.

    >>> advice = dphist.advise(12, records=10_000, epsilon=1, methods=["identity", "uniform"], like="smooth")
    >>> advice.best.method, advice.records
    ('identity', 10000)

    Args:
        bins: the number of bins, edges, an axis, or a ``Domain``.
        records: the approximate number of records, from public knowledge.
        epsilon: the budget; give either this or ``error``.
        error: the mean absolute error per query to reach: in records, or relative ("2%") to the mean answer
            if the records are spread evenly, which for single bins is ``records`` divided by the number of
            bins.
        workload: the queries that matter, as in ``Plan``.
        like: the expected shape of the data: a name of ``dphist.shapes.SHAPES``, an earlier release of the
            same bins or its file, or public counts, as an array or a file (.npy, .csv). By default the error
            is averaged over several shapes.
        methods: the methods to compare, instead of the usual ones for these bins.
        max_contributions: how many records of one person are counted; ``records`` counts those only.
        by: for a histogram of each group, the column or the levels, as in ``GroupedPlan``; so are ``groups``,
            ``group_other`` and ``importances``. Errors are then root mean squares, for each level.
        at: the level whose error is asked for and ranks the methods; by default all levels by their
            importances or, if an error is asked for, the lowest.
        sums: lists of groups that will be asked for together, such as ``[["H1", "H3"]]``.
        progress: called with a few words before each simulation, which may take seconds.
    """
    if (epsilon is None) == (error is None):
        raise UsageError("give either epsilon= (what will the error be?) or error= (what does it cost?).")
    if by is not None:
        return _by_group(
            bins=_domain(bins),
            by=by,
            groups=groups,
            group_other=group_other,
            importances=importances,
            at=at,
            sums=sums,
            records=records,
            epsilon=epsilon,
            error=error,
            workload=workload,
            like=like,
            methods=methods,
            max_contributions=max_contributions,
            progress=progress,
        )
    if isinstance(like, GroupedRelease):
        raise UsageError("like is a release by group: give by= and groups= too, or one of its groups.")
    if any(given is not None for given in (groups, group_other, importances, at, sums)):
        raise UsageError("groups, group_other, importances, at and sums go with by=, the column of groups.")
    place, many = _domain(bins), read_records(records)
    queries = make_workload(workload, place)
    budget = None if epsilon is None else read_epsilon(epsilon)
    answer = queries.mean_answer(many)
    target = math.nan if error is None else read_target(error, answer)
    pipelines = suitable(methods, place, queries)
    if methods is None and error is not None:
        pipelines = {name: made for name, made in pipelines.items() if name not in SLOW}
    looks = patterns(like, place, SHAPES[::2] if place.n > MANY_BINS else SHAPES)
    at_most = as_int(max_contributions, "max_contributions")
    named = methods is None or all(isinstance(m, str) for m in methods)
    study = SimulatedErrors(place, queries, many, at_most, pipelines, looks, named, progress)
    study.load_cache()
    wide = _widened(study, looks, place)
    wide.load_cache()
    if budget is not None:
        rows, sure, never = _rank_at_epsilon(study, wide, budget)
    else:
        rows, sure, never = _epsilon_for_error(study, wide, target)
    for simulated in (study, wide):
        simulated.save_cache()
    if methods is not None and budget is not None:
        sure += _same(study, rows, budget)
    return Advice(
        rows=rows,
        bins=place.shape,
        records=many,
        workload=workload if isinstance(workload, str) else f"{queries.size:,} queries",
        like=looks[0].name if len(looks) == 1 else f"on average over {len(looks)} shapes",
        answer=answer,
        target=None if error is None else target,
        max_contributions=at_most,
        sure=sure,
        out_of_reach=never,
    )


def _widened(study: SimulatedErrors, looks: Sequence[Pattern], place: Domain) -> SimulatedErrors:
    """Return the study of the same question for many shapes, what was assumed of the data among them."""
    named = [Pattern(name) for name in (EXTREMES if place.n > MANY_BINS else RANGE)]
    known = {pattern.key: pattern for pattern in (*named, *looks)}
    return study.about(tuple(known.values()))


def _ranged(wide: SimulatedErrors, rows: Sequence[Expected]) -> tuple[Expected, ...]:
    """Return the rows with the errors for the easiest and the hardest shape, of the best few."""
    first = {row.method for chosen in (rows, _with_intervals(rows)) for row in chosen[:_RANGED]}
    return tuple(_with_range(row, wide) if row.method in first else row for row in rows)


def _with_range(row: Expected, wide: SimulatedErrors) -> Expected:
    if row.method in FIXED:
        return replace(row, low=row.error, high=row.error)
    errors = [*wide.by_shape(row.method, row.epsilon, wide.many).values(), row.error]
    return replace(row, low=min(errors), high=max(errors))


def _range(row: Expected) -> str:
    """Return in words how far the error depends on the data."""
    if row.low is None or row.high is None or row.low == row.high:
        return ""
    return f", {short(row.low)} to {short(row.high)} depending on how the records lie"


def _by_group(*, groups: GroupsLike | None, **options: Any) -> GroupedAdvice:
    from dphist.planning.grouped_advice import advise_groups

    if groups is None:
        raise UsageError(
            "by= needs groups=, the list of all of them: groups that were read off the data would leak."
        )
    return advise_groups(groups=groups, **options)


Found = tuple[tuple[Expected, ...], str, tuple[tuple[str, float], ...]]


def _said(study: SimulatedErrors, rows: tuple[Expected, ...], never: tuple[tuple[str, float], ...]) -> Found:
    """Return the rows with what is to be said about the choice among them."""
    able = _with_intervals(rows)
    after = able[able.index(_safe(able)[0]) :]
    return rows, _confidence_note(study, after) + _silent(rows), never


def _rank_at_epsilon(study: SimulatedErrors, wide: SimulatedErrors, epsilon: Fraction) -> Found:
    """Rank the methods at one epsilon: all of them roughly, then the best of them closely."""
    rough = _ranked(study.pipelines, lambda m: study.mean(m, epsilon, study.few))
    near = _ranked(rough[:_CONTENDERS], lambda m: study.mean(m, epsilon, study.many))
    # Methods that may still rank among the first few after these runs get more runs.
    bar = study.mean(near[:_RIVALS][-1], epsilon, study.many)
    rivals = [
        m
        for m in near
        if m not in SLOW and study.mean(m, epsilon, study.many) - 2 * study.doubt(m, epsilon) <= bar
    ]
    runs = {m: study.settle(m, epsilon) if m in rivals else study.many for m in near}
    runs |= dict.fromkeys(rough[_CONTENDERS:], study.few)
    close = _ranked(near, lambda m: study.mean(m, epsilon, runs[m])) + rough[_CONTENDERS:]
    tied = competitive({m: dict(enumerate(study.errors(m, epsilon, runs[m]))) for m in close})
    drawn = [m for m in near if m not in SLOW or m == close[0]]
    rows = [
        expected_row(study, m, epsilon, runs[m], around=epsilon if m in drawn else None, tied=m in tied)
        for m in close
    ]
    return _said(study, _ranged(wide, rows), ())


def _epsilon_for_error(study: SimulatedErrors, wide: SimulatedErrors, target: float) -> Found:
    """Find the epsilon that each method needs for an error; the cheapest comes first."""
    check_target(study, target)
    first = next(iter(study.pipelines))
    guess = _clamp(study.mean(first, Fraction(1), study.few) / target)
    rough = _ranked(study.pipelines, lambda m: study.mean(m, guess, study.few))
    solved, never = {}, {}
    plain = [m for m in rough[_SOLVED:] if m == "identity"]  # the baseline
    for method in (*rough[:_SOLVED], *plain):
        solved[method] = solve(study, method, target, guess)
    known = [e for e in solved.values() if e is not None]
    # The best method may change with epsilon, so all methods are ranked again at the lowest epsilon found.
    guess = min(known, default=MOST)
    for method in _ranked(study.pipelines, lambda m: study.mean(m, guess, study.few))[:_RIVALS]:
        if method not in solved:
            solved[method] = solve(study, method, target, guess)
    for method, epsilon in solved.items():
        if epsilon is None:
            never[method] = study.mean(method, MOST, study.few)
    if len(never) == len(solved):
        best = min(never, key=lambda m: never[m])
        raise UsageError(
            f"no epsilon up to {MOST} reaches an error of {short(target)} records per query: the smallest "
            f"is {short(never[best])}, with {best}. Ask for a larger error."
        )
    reached = {m: e for m, e in solved.items() if e is not None}
    order = sorted(reached, key=lambda m: (reached[m], study.mean(m, reached[m], study.many)))
    least = reached[order[0]]
    rows = [
        expected_row(study, m, reached[m], study.many, around=least, tied=reached[m] == least) for m in order
    ]
    return _said(study, _ranged(wide, rows), tuple(never.items()))


def check_target(study: SimulatedErrors, target: float) -> None:
    """Refuse an error that needs no data, or that cannot be measured."""
    nothing = study.without_data()
    if target >= nothing:
        raise UsageError(
            f"an error of {short(target)} records per query needs no data at all: spreading the records "
            f"evenly has an error of {short(nothing)}. Ask for a smaller error."
        )
    if target < study.finest:
        raise UsageError(
            f"an error of {short(target)} records per query is too small to be measured by simulation: "
            "the noise is an integer, and would be 0 for almost every bin. Ask for "
            f"{short(study.finest)} or more."
        )


def solve(study: SimulatedErrors, method: str, target: float, guess: Fraction) -> Fraction | None:
    """Return the epsilon at which a method's error equals the target, or None if no epsilon reaches it."""

    def error(epsilon: Fraction) -> float:
        return study.mean(method, epsilon, study.few)

    # Most errors are proportional to 1/epsilon, so this is a good start.
    low = high = _clamp(float(guess) * error(guess) / target)
    while error(high) > target:
        low, high = high, _round_epsilon(high, 1)
        if high > MOST:
            return None
    while error(low) <= target:
        high, low = low, _round_epsilon(low, -1)
        if low < LEAST:
            raise UsageError(
                f"an error of {short(target)} records per query needs hardly any epsilon: "
                f"{float(LEAST):g} is enough for {method}. Ask for a smaller error."
            )
    above, below = error(low), error(high)
    for _ in range(3):
        middle = _between(low, high, above, below, target)
        if middle in (low, high) or target <= below * (1 + _CLOSE):
            break
        if (found := error(middle)) > target:
            low, above = middle, found
        else:
            high, below = middle, found
    # So far the errors are means over few runs; more runs correct the result.
    for tries in range(12):
        found = study.mean(method, high, study.many)
        if found <= target and (tries > 2 or target <= found * (1 + 2 * _CLOSE)):
            return high
        factor = found / target if tries <= 2 else 1.1
        high = Fraction(f"{float(high) * min(max(factor, 0.5), 2.0):.3g}")
        if high > MOST:
            return None
    return None


def _between(low: Fraction, high: Fraction, above: float, below: float, target: float) -> Fraction:
    """Return where the chord on logarithmic axes meets the target, rounded to three digits."""
    a, b = math.log(float(low)), math.log(float(high))
    up, down = math.log(above), math.log(max(below, above * 1e-9))
    share = (up - math.log(target)) / (up - down) if up > down else 0.5
    return Fraction(f"{math.exp(a + min(max(share, 0.1), 0.9) * (b - a)):.3g}")


def expected_row(
    study: SimulatedErrors,
    method: str,
    epsilon: Fraction,
    runs: int,
    *,
    around: Fraction | None,
    tied: bool,
    sketch: bool = False,
) -> Expected:
    """Return one method's expected error over ``runs``, with the curve around an epsilon if asked for.

    Args:
        sketch: the curve has its two ends alone, as that of a slow method.
    """
    errors = study.errors(method, epsilon, runs)
    drawn = [] if around is None else along(around, sketch=sketch or method in SLOW)
    curve = {e: study.mean(method, e, study.few) for e in drawn}
    # Fewer runs were made along the curve; where more runs exist, they correct its level.
    first = float(errors[: study.few].mean())
    curve = {e: y * float(errors.mean()) / first if first else y for e, y in curve.items()}
    curve[epsilon] = float(errors.mean())
    return Expected(
        method=method,
        epsilon=epsilon,
        error=float(errors.mean()),
        least=float(errors.min()),
        most=float(errors.max()),
        trials=errors.size,
        intervals=study.has_intervals(method, epsilon),
        competitive=tied,
        shapes=tuple(study.by_shape(method, epsilon, runs).items()),
        curve=tuple(sorted((float(e), y) for e, y in curve.items())),
    )


def along(around: Fraction, *, sketch: bool = False) -> list[Fraction]:
    """Return the budgets at which a curve around one of them is simulated; of a sketch, its ends alone."""
    steps = (-2, 2) if sketch else (-2, -1, 0, 1, 2)
    return [e for e in (_round_epsilon(around, k) for k in steps) if LEAST <= e <= MOST]


def _ranked(methods: Iterable[str], error: Callable[[str], float]) -> list[str]:
    """Return the methods sorted by error, dropping methods with identical error."""
    by_error = sorted(methods, key=error)
    kept: list[str] = []
    for method in by_error:
        if not any(math.isclose(error(method), error(other), rel_tol=1e-12) for other in kept):
            kept.append(method)
    return kept


def _same(study: SimulatedErrors, rows: Sequence[Expected], epsilon: Fraction) -> str:
    """Name the methods without a row of their own, since their error equals another method's."""
    kept = [row.method for row in rows]
    note = ""
    for method in study.pipelines:
        if method not in kept:
            error = study.mean(method, epsilon, study.few)
            other = min(kept, key=lambda m: abs(study.mean(m, epsilon, study.few) - error))
            note += f" {method} has exactly the same error here as {other}."
    return note


def _over(error: float, best: float) -> str:
    """Return how large an error is beside the best one, which may be nothing."""
    return f"{error / best:.3g} times as much" if best else f"{short(error)} instead of nothing"


def _confidence_note(study: SimulatedErrors, rows: Sequence[Expected]) -> str:
    """Describe how clear the choice between the first and the second method is."""
    if len(study.pipelines) == 1:
        return "It was the only method compared."
    best, next_ = rows[0], rows[min(1, len(rows) - 1)]
    if best is next_:
        note = ""
    elif best.epsilon != next_.epsilon:
        more = float(next_.epsilon / best.epsilon)
        note = f"Next is {next_.method}, which needs {more:.3g} times the epsilon."
    else:
        runs = min(best.trials, next_.trials)
        one, two = (study.errors(row.method, row.epsilon, runs) for row in (best, next_))
        wins = int((one < two).sum())
        note = f"Next is {next_.method}, off by {_over(next_.error, best.error)}; "
        note += f"{best.method} wins {wins} of {one.size} runs"
        note += (
            ": no significant difference (paired t-test)." if best.competitive and next_.competitive else "."
        )
    safe = next((row for row in rows if row.method in FIXED), None)
    if safe is best:
        note += f" The error of {best.method} does not depend on the data."
    elif safe and best.epsilon == safe.epsilon:
        note += f" {safe.method}, whose error does not depend on the data, is off by "
        note += f"{_over(safe.error, best.error)}."
    elif safe:
        note += f" {safe.method}, whose error does not depend on the data, needs "
        note += f"{float(safe.epsilon / best.epsilon):.3g} times the epsilon."
    winners = {
        shape: min(rows, key=lambda r: (r.epsilon, dict(r.shapes)[shape])).method for shape, _ in best.shapes
    }
    others = [f"{method} for {shape}" for shape, method in winners.items() if method != best.method]
    if others and best.epsilon == next_.epsilon:
        note += f" It depends on the data: {', '.join(others)}. If you know more, say it with like."
    return note.lstrip()


def _with_intervals(rows: Sequence[Expected]) -> list[Expected]:
    """Return the methods whose releases have confidence intervals; all methods if none does."""
    return [row for row in rows if row.intervals] or list(rows)


def _safe(rows: Sequence[Expected]) -> list[Expected]:
    """Return the methods with a range that is not far above the least of all; all if none has a range."""
    most = [row.high for row in rows if row.high is not None]
    return [r for r in rows if r.high is not None and r.high <= _FAR_OFF * min(most)] or list(rows)


def _risk(rows: Sequence[Expected], best: Expected) -> str:
    """Describe what a better method would do on data that are not as assumed."""
    first = _with_intervals(rows)[0]
    if first is best or first.high is None or best.high is None:
        return ""
    if first.epsilon != best.epsilon:
        gain = f"is {1 - float(first.epsilon / best.epsilon):.0%} cheaper"
    else:
        gain = f"is off by {1 - first.error / best.error:.0%} less"
    worse = f"but by up to {short(first.high)} if the records lie otherwise"
    return f" {first.method} {gain.replace('%', ' %')} on such data, {worse}."


def _silent(rows: Sequence[Expected]) -> str:
    """Describe the gain of a better method without confidence intervals."""
    first, best = rows[0], _safe(_with_intervals(rows))[0]
    if first.intervals:
        return ""
    if first is best:
        return f" A release of {best.method} has no intervals, since its error cannot be measured."
    if first.epsilon != best.epsilon:
        gain = f"is {1 - float(first.epsilon / best.epsilon):.0%} cheaper"
    else:
        gain = f"is off by {1 - first.error / best.error:.0%} less"
    return f" {first.method} {gain.replace('%', ' %')}, without error bars."


def _domain(bins: Any) -> Domain:
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        if bins < 1:
            raise UsageError(f"a histogram needs at least one bin, not {bins}.")
        return Domain((Integers(0, int(bins) - 1),))
    return make_domain(bins)


def read_epsilon(epsilon: Any) -> Fraction:
    """Return a budget for which errors can be predicted."""
    budget = parse_epsilon(epsilon)
    if not LEAST <= budget <= MOST:
        raise UsageError(f"epsilon must lie between {float(LEAST):g} and {MOST}, not {as_decimal(budget)}.")
    return budget


def read_records(records: object) -> int:
    """Return a number of records, which may be written as 1e6."""
    real = isinstance(records, int | float | np.number) and not isinstance(records, bool)
    if not real or not 1 <= float(records) <= 2**53:  # type: ignore[arg-type]
        raise UsageError(
            f"records must be the approximate number of records, such as 1e6, not {shown(records)}."
        )
    return round(float(records))  # type: ignore[arg-type]


def read_target(error: object, answer: float) -> float:
    """Return an error in records, which may be given in percent of a mean answer."""
    text, share = str(error).strip(), 1.0
    if isinstance(error, str) and text.endswith("%"):
        text, share = text[:-1], answer / 100
    try:
        target = math.nan if isinstance(error, bool) else float(text) * share
    except ValueError:
        target = math.nan
    if not 0 < target < math.inf:
        raise UsageError(
            f'error must be above 0: records per query, such as 50, or relative, "2%"; not {shown(error)}.'
        )
    return target


def suitable(
    methods: Sequence[str | Pipeline] | None, domain: Domain, queries: Workload
) -> dict[str, Pipeline]:
    """Return the pipelines to compare: those named, or the usual ones for the domain and the queries."""
    if methods is not None:
        if isinstance(methods, str) or not len(methods):
            raise UsageError("methods must be a list of names, such as ['identity', 'dawa2'].")
        made = [make_pipeline(m, domain, queries).with_intervals() for m in methods]
        for pipeline in made:
            pipeline.check(domain, queries)
        if len({p.name for p in made}) < len(made):
            raise UsageError("methods must have different names.")
        return {p.name: p for p in made}
    return {m: make_pipeline(m, domain, queries).with_intervals() for m in usual(domain, queries)}


def _round_epsilon(epsilon: Fraction, steps: int = 0) -> Fraction:
    """Return the nearest of ... 0.1, 0.3, 1, 3 ..., moved on by this number of steps."""
    at = round(2 * math.log10(float(epsilon))) + steps
    return Fraction(f"{(1, 3)[at % 2]}e{at // 2}")


def _clamp(epsilon: float) -> Fraction:
    return _round_epsilon(Fraction(min(max(epsilon, float(LEAST)), float(MOST))))
