"""What is expected of one histogram of a plan, part by part: its error first, then all that takes longer.

Every number is one that `advise` or `preview` gives; nothing private is read and nothing is spent. The parts
come as soon as they are known, and the work ends when ``between``, which is called before each trial, raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dphist.domain import Axis, Instants, Integers, Labelled, Regular
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.methods.catalogue import MANY_BINS
from dphist.methods.pipeline import Pipeline
from dphist.planning.advise import (
    LEAST,
    MOST,
    SLOW,
    Expected,
    check_target,
    expected_row,
    read_epsilon,
    read_records,
    read_target,
    solve,
    suitable,
)
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan import Plan
from dphist.planning.preview import Pattern, Preview, preview, short
from dphist.planning.publication import Publication
from dphist.planning.shapes import USUAL as SHAPES
from dphist.planning.simulate import trials
from dphist.planning.simulated_errors import SimulatedErrors
from dphist.privacy.counts import Counts, unit_words
from dphist.release import Release
from dphist.release.words import unit_word

_LOOSE = 0.4  # of a typical answer: an error above it serves nobody
_MOSTLY = 0.9  # of all bins: where so many are noise, there are too many bins
_LEAST_BINS = 16  # below which bins are not called too many
_PLACES = 16  # ranges of each length whose intervals are averaged
_MOST_EDGES = 400  # of a remedy
_EVEN, _ROUNDS = Pattern("smooth"), 2  # what shares are divided by, and how often


@dataclass(frozen=True)
class Warned:
    """A warning in plain words, with its remedy if there is one.

    Args:
        remedy: what to do, in a few words.
        change: the words of the histogram in a plan file that do it; None takes a word away.
    """

    code: str
    message: str
    remedy: str = ""
    change: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Widths:
    """How wide the intervals of one histogram are, as one simulated release has them."""

    example: Release

    def of_bins(self, level: float) -> tuple[Floats, Floats]:
        """Return half the width of every bin's interval, for each on its own and for all at once."""
        each, joint = (self.example.intervals(level=level, joint=j) for j in (False, True))
        return tuple((high - low).ravel() / 2 for low, high in (each, joint))  # type: ignore[return-value]

    def of_ranges(self, level: float) -> list[tuple[int, float, float]]:
        """Return half the mean widths of ranges of some lengths: for one alone, and for all at once."""
        axis, n = self.example.domain.axes[0], self.example.domain.n
        if len(self.example.domain.axes) != 1 or isinstance(axis, Labelled):
            return []
        found = []
        for length in sorted({1, max(n // 10, 1), max(n // 4, 1), max(n // 2, 1), n}):
            lo = np.unique(np.linspace(0, n - length, _PLACES).astype(np.int64))
            each, joint = (self.half(lo, lo + length, level, joint=j) for j in (False, True))
            found.append((length, each, joint))
        return found

    def half(self, lo: Any, hi: Any, level: float, *, joint: bool) -> float:
        """Return half the width of the intervals of ranges of bins, on average."""
        axis = self.example.domain.axes[0]
        if isinstance(axis, Labelled):
            names = axis.names()
            sums = [names[a:b] for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
            found = [self.example.sum(list(labels), level=level, joint=joint) for labels in sums]
            return float(np.mean([one.high - one.low for one in found])) / 2
        edges = np.array(axis.moments()) if isinstance(axis, Instants) else axis.edges
        made = self.example.sum(edges[lo].tolist(), edges[hi].tolist(), level=level, joint=joint)
        return float(np.mean(made.high - made.low)) / 2


class Foresight:
    """The expected errors of one histogram, simulated when they are first asked for.

    Args:
        plan: of one histogram; plans by group have `GroupedPlan.preview`.
        records: the approximate number of records, from public knowledge.
        look: the expected shape of the data; by default several shapes, of which the first is drawn.
        progress: called with a few words before each simulation.
        between: called before each trial; what it raises ends the work.
    """

    over = ""  # which errors are compared: those of all queries

    def __init__(
        self,
        plan: Plan,
        *,
        records: float,
        look: Pattern | None = None,
        progress: Callable[[str], None] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.records = plan, read_records(records)
        self.epsilon = read_epsilon(plan.budget)
        usual = SHAPES[::2] if plan.domain.n > MANY_BINS else SHAPES
        looks = tuple(Pattern(name) for name in usual) if look is None else (look,)
        self._look, self._between = look or Pattern("smooth"), between
        named = isinstance(plan.method, str) and plan.calibrate is None and plan.prior is None
        others = suitable(None, plan.domain, plan.queries)
        asked = plan.domain, plan.queries, self.records, plan.max_contributions
        self._study = SimulatedErrors(*asked, others | self._own, looks, named, progress, between)
        self._study.load_cache()

    @property
    def _own(self) -> dict[str, Pipeline]:
        return {self.plan.pipeline.name: self.plan.pipeline}

    @property
    def method(self) -> str:
        """The method of the plan."""
        return self.plan.pipeline.name

    @property
    def others(self) -> list[str]:
        """All suitable methods but that of the plan, slow ones last."""
        others = [name for name in self._study.pipelines if name != self.method]
        return sorted(others, key=lambda name: name in SLOW)

    @property
    def answer(self) -> float:
        """The mean answer to a query, if the records are spread evenly."""
        return self.plan.queries.mean_answer(self.records)

    def rough(self, method: str) -> float:
        """Return the error per query of a method, from a few trials."""
        return self._study.mean(method, self.epsilon, self._study.few)

    def row(self, method: str, *, closely: bool = False, sketch: bool = False) -> Expected:
        """Return a method's error at the plan's epsilon, and its curve around it or the ends of that."""
        runs = self._settled(method) if closely else self._study.few
        around = self.epsilon
        return expected_row(self._study, method, around, runs, around=around, tied=False, sketch=sketch)

    def settled(self) -> float:
        """Return the error per query of the plan's method alone, as `advise` states it."""
        return self._study.mean(self.method, self.epsilon, self._settled(self.method))

    def _settled(self, method: str) -> int:
        return self._study.many if method in SLOW else self._study.settle(method, self.epsilon)

    def has_intervals(self, method: str) -> bool:
        """Return whether a release of a method has intervals."""
        return self._study.has_intervals(method, self.epsilon)

    def compared(self, method: str) -> float:
        """Return a method's error divided by that of the plan's, on the same made-up data and noise."""
        own = self.rough(self.method)
        return self.rough(method) / own if own else 1.0

    def epsilon_for(self, error: float | str) -> tuple[Fraction, float]:
        """Return the epsilon of this histogram at which the plan's method has an error, and that error."""
        target = read_target(error, self.answer)
        check_target(self._study, target)
        found = solve(self._study, self.method, target, self.epsilon)
        if found is None:
            raise UsageError(
                f"no epsilon up to {MOST} reaches an error of {short(target)} records per query with "
                f"{self.method}. Ask for a larger error, or choose another method."
            )
        return found, self._study.mean(self.method, found, self._study.many)

    def save(self) -> None:
        """Keep what was simulated for the next time."""
        self._study.save_cache()

    # ---- outcomes -----------------------------------------------------------------------------------

    @cached_property
    def made_up(self) -> Counts:
        """Made-up counts of the expected shape."""
        plan = self.plan
        drawn = self._look.draw(plan.domain, self.records, 0)
        unit = unit_words(plan.unit, plan.max_contributions)
        return Counts(drawn, plan.domain, plan.max_contributions, unit)

    def outcomes(self) -> Preview:
        """Return a dozen simulated releases, as `Plan.preview` does."""
        plan = self.plan
        return preview(
            plan.pipeline,
            plan.queries,
            self.made_up,
            epsilon=plan.budget,
            post=plan.post,
            like=self._look.name,
            between=self._between,
        )

    @property
    def expected(self) -> Ints:
        """The counts that were made up."""
        return self.made_up.values

    @cached_property
    def widths(self) -> Widths:
        """The intervals of one simulated release."""
        plan = self.plan
        (trial,) = trials(plan.pipeline, self.made_up, plan.queries, epsilon=plan.budget, seeds=[0])
        return Widths(trial.release(post=plan.post, provenance={"source": "preview"}))

    # ---- warnings -----------------------------------------------------------------------------------

    def warnings(self, level: float) -> list[Warned]:
        """Return what a person should know of this histogram before publishing it."""
        found = [self._noise(level), self._bounded(), self._silent()]
        return [warning for warning in found if warning is not None]

    def _bounded(self) -> Warned | None:
        plan = self.plan
        if plan.unit is None:
            return None
        many = plan.max_contributions
        return Warned(
            "bounded",
            f"Of a {unit_word(plan.unit)} with more than {many} record{'s' * (many > 1)}, only {many} "
            f"{'are' if many > 1 else 'is'} counted. The result is lower than the true number of records by "
            "an amount that no interval shows. The report says so.",
        )

    def _silent(self) -> Warned | None:
        if self.has_intervals(self.method):
            return None
        return Warned(
            "no_intervals",
            f"A release of {self.method} has no intervals: how far off it is cannot be said afterwards.",
        )

    def _noise(self, level: float) -> Warned | None:
        """Return a warning of bins that hold fewer records than the noise: nearly all, or those at an end."""
        plan, n = self.plan, self.plan.domain.n
        half = self.widths.of_bins(level)[0]
        expected = np.mean([self._look.draw(plan.domain, self.records, k) for k in range(4)], axis=0)
        with np.errstate(invalid="ignore"):
            drowned = expected < half
        if n >= _LEAST_BINS and drowned.mean() >= _MOSTLY:
            return self._too_many(float(np.nanmedian(half)))
        if len(plan.domain.axes) == 1 and not isinstance(plan.domain.axis, Labelled):
            return self._thin(drowned)
        return None

    def _too_many(self, half: float) -> Warned:
        plan = self.plan
        message = (
            f"{plan.domain.n:,} bins are too many for epsilon {short(float(plan.budget))}: nine of ten bins "
            "are mostly noise."
        )
        axis = plan.domain.axes[0]
        fewer = 1 << max(int(np.log2(max(self.records / max(2 * half, 1e-9), 2))), 1)
        if len(plan.domain.axes) == 1 and isinstance(axis, Regular) and fewer < axis.n:
            return Warned("too_many_bins", message, f"Use {fewer:,} bins", {"bins": fewer})
        return Warned("too_many_bins", message)

    def _thin(self, drowned: Any) -> Warned | None:
        """Return a warning of the bins at one end, if several of them hold fewer records than the noise."""
        n = drowned.size
        top = n - int(np.argmin(drowned[::-1])) if drowned[-1] and not drowned.all() else n
        bottom = int(np.argmin(drowned)) if drowned[0] and not drowned.all() else 0
        if max(n - top, bottom) < 2:
            return None
        upwards = n - top >= bottom
        first, last = (top, n) if upwards else (0, bottom)
        axis, names = self.plan.domain.axis, self.plan.domain.axis.names()
        where = f"from about {names[first]} upwards" if upwards else f"up to about {names[last - 1]}"
        message = (
            f"The bins {where} hold fewer records than the noise. Single bins there say little, and some "
            "come out negative. Sums over several bins are fine."
        )
        change = _merged(axis, first, last)
        remedy = f"Make {names[first]} to {names[last - 1]} one bin" if change else ""
        return Warned("small_bins", message, remedy, change)


def no_method(best: float, answer: float) -> Warned | None:
    """Return a warning if even the error of the best of all methods is far off."""
    if best <= _LOOSE * answer:
        return None
    percent = f"{100 * best / answer:,.0f}"
    return Warned(
        "no_method",
        f"No method answers this workload well here: the best is off by {percent} % of a typical answer.",
    )


def even_shares(
    publication: Publication, *, records: float, between: Callable[[], None] = lambda: None
) -> dict[str, Fraction]:
    """Return shares in hundredths with which all histograms are off by about the same part of an answer.

    Most errors are proportional to 1/epsilon, which gives the first shares; those of other methods are
    simulated again with them.
    """
    plans = dict(publication.plans)
    if any(isinstance(plan, GroupedPlan) for plan in plans.values()):
        raise UsageError("shares are not divided by error where a histogram has groups: choose them.")
    total, shares = publication.budget, publication.shares
    for _ in range(_ROUNDS):
        needed = {}
        for name, plan in plans.items():
            found = Foresight(
                replace(plan, epsilon=total * shares[name]), records=records, look=_EVEN, between=between
            )
            needed[name] = float(shares[name]) * found.settled() / found.answer
            found.save()
        shares = _hundredths(needed)
    return shares


def _hundredths(parts: dict[str, float]) -> dict[str, Fraction]:
    """Return shares of at least a hundredth, in hundredths, that add up to 1 and are near the given parts."""
    if len(parts) > 100:
        raise UsageError("more than 100 histograms cannot have a hundredth each: choose the shares yourself.")
    whole = sum(parts.values())
    wanted = {name: 100 * part / whole if whole else 100 / len(parts) for name, part in parts.items()}
    given = {name: max(int(part), 1) for name, part in wanted.items()}
    while (left := 100 - sum(given.values())) != 0:
        step = 1 if left > 0 else -1
        able = [name for name in given if step > 0 or given[name] > 1]
        given[max(able, key=lambda name: step * (wanted[name] - given[name]))] += step
    return {name: Fraction(many, 100) for name, many in given.items()}


def plan_epsilon(found: Fraction, share: Fraction) -> Fraction:
    """Return the epsilon of a whole plan that gives a histogram this one, rounded up to three digits."""
    exact = min(max(found / share, LEAST), MOST)
    unit = Fraction(10) ** (len(str(int(exact))) - 3) if exact >= 1 else Fraction(1, 1000)
    while exact < 100 * unit:
        unit /= 10
    return -(-exact // unit) * unit


def _merged(axis: Axis, first: int, last: int) -> dict[str, Any] | None:
    """Return the words of a plan file for the same bins, some of which at one end are one."""
    if axis.n - (last - first) > _MOST_EDGES or not isinstance(axis, Integers | Regular):
        return None
    edges = axis.edges.tolist()
    if isinstance(axis, Integers):  # the last bin is closed on both sides, and the next number stays outside
        edges = [*map(int, edges[:-1]), axis.high if last == axis.n else axis.high + 0.5]
    kept = [*edges[: first + 1], *edges[last:]]
    return {"integers": None, "range": None, "bins": kept}
