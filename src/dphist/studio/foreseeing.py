"""What the page foresees: a stream of parts, dropped between two trials as soon as the page asks anew."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any

import numpy as np

from dphist.domain import MAX_BINS
from dphist.errors import DataError, UsageError
from dphist.planning import shapes
from dphist.planning.advise import Expected
from dphist.planning.foresee import Foresight, Warned, even_shares, no_method, plan_epsilon
from dphist.planning.grouped import GroupedPlan
from dphist.planning.grouped_advice import GroupedExpected
from dphist.planning.grouped_foresee import GroupedForesight
from dphist.planning.level_errors import LevelError
from dphist.planning.plan import Plan
from dphist.planning.preview import Pattern, Preview, pattern
from dphist.planning.publication import Publication
from dphist.release import Release
from dphist.release.words import chance_after, guess_in_words, times_in_hundred, unit_word
from dphist.studio.answers import MOST_DRAWN, exact, number, numbers
from dphist.studio.guard import MOST_VALUES, Refusal, to_json
from dphist.studio.ledgers import Ledgers
from dphist.studio.plans import Checked, Plans, workload_name
from dphist.studio.releases import Releases, level_in, whole
from dphist.studio.service import Asked
from dphist.studio.told import Told

_TABS, _KEPT = 64, 16  # tabs, and histograms whose ranges are asked for
RECORDS = 10_000  # that a page guesses until it is told better
_CLEARLY = 0.97  # times the plan's error: what is below it is clearly less
_NEAR = 7  # methods of least error that have a whole curve; of the others its ends are enough
_PATIENCE, _TRIES = 0.02, 100  # how long a question waits for the tab's earlier one to end

AnyForesight = Foresight | GroupedForesight
Part = dict[str, Any] | bytes  # what is told in one line, as JSON or ready to become it


class Superseded(Exception):  # noqa: N818 - the name is the event
    """The page has asked anew, and nobody waits for this answer."""


class Turns:
    """The newest question of each tab: the others end at their next trial, and none waits in a queue."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, tuple[int, Lock]] = OrderedDict()
        self._lock = Lock()
        self._taken = 0

    def take(self, tab: str, sequence: int) -> tuple[Callable[[], None], Lock]:
        """Return what raises once a tab has asked anew, and the lock of the tab's work."""
        with self._lock:
            self._taken += 1
            newest, lock = self._newest.get(tab, (sequence, Lock()))
            self._newest[tab] = (max(newest, sequence), lock)
            self._newest.move_to_end(tab)
            while len(self._newest) > _TABS:
                self._newest.popitem(last=False)

        def check() -> None:
            found = self._newest.get(tab)
            if found is None or found[0] != sequence:
                raise Superseded

        return check, lock

    def free(self) -> Callable[[], None]:
        """Return what raises once any tab has asked."""
        before = self._taken

        def check() -> None:
            if self._taken != before:
                raise Superseded

        return check


@dataclass(frozen=True, eq=False)
class Question:
    """What one stream is about.

    Args:
        about: what every part of the error repeats of it.
        check: raises once nobody waits for it any more.
    """

    made: Checked
    plan: Plan
    level: float
    records: float
    look: Pattern | None
    about: dict[str, Any]
    check: Callable[[], None]

    @property
    def key(self) -> str:
        """What the answer depends on, besides the level."""
        return _key(self.made, self.about["histogram"], self.records, self.look)

    @property
    def question(self) -> dict[str, Any]:
        """All that the answer depends on."""
        return {"about": self.key, "level": self.level}


class Foreseeing:
    """The questions about what is expected of a plan; no record is read for any of them."""

    def __init__(self, plans: Plans, releases: Releases, ledgers: Ledgers) -> None:
        self.plans, self.releases, self.ledgers = plans, releases, ledgers
        self.turns = Turns()
        self._kept: OrderedDict[str, AnyForesight] = OrderedDict()
        self._told = Told()
        self._lock = Lock()

    def ahead(self, made: Checked) -> None:
        """Foresee what the page asks first of each histogram, until it asks for anything; it is kept."""
        check = self.turns.free()
        for name, plan in made.publication.plans.items():
            if isinstance(plan, GroupedPlan) or plan.domain.n > MOST_DRAWN:
                continue
            about = {"plan_digest": made.digest, "sequence": 0, "histogram": name}
            asked = Question(made, plan, 0.95, RECORDS, Pattern("smooth"), about, check)
            with suppress(Superseded):
                for _ in self._one(asked):
                    pass
                check()
                if len(plan.domain.axes) == 1:  # whose ranges are asked for next
                    _ = self._foresight(made, {"histogram": name, "shape": {"name": "smooth"}}, plan).widths

    # ---- questions ----------------------------------------------------------------------------------

    def foresee(self, asked: Asked) -> Iterator[Part]:
        """Return a stream of parts: what is known first comes first."""
        made = self.plans.of(asked)
        plan, level = _histogram(made, asked), level_in(asked)
        records, look = _records(asked), self._look(asked, plan)
        tab, sequence = asked.get("tab", ""), whole(asked.get("sequence", 0), "sequence")
        if not isinstance(tab, str) or len(tab) > 100:
            raise UsageError("tab must be a word.")
        check, lock = self.turns.take(tab, sequence)
        about = {"plan_digest": made.digest, "sequence": sequence, "histogram": asked["histogram"]}
        return self._stream(Question(made, plan, level, records, look, about, check), lock)

    def range(self, asked: Asked) -> dict[str, Any]:
        """Return what a range of bins will hold about, and how wide its interval will be."""
        made = self.plans.of(asked)
        plan, level = _histogram(made, asked), level_in(asked)
        if len(plan.domain.axes) != 1:
            raise UsageError("a range is foreseen of a histogram with one axis.")
        found = self._foresight(made, asked, plan)
        n = plan.domain.n
        lo, hi = (whole(asked.get(end), end) for end in ("lo", "hi"))
        if not lo < hi <= n:
            raise UsageError(f"a range of bins rises, from 0 to {n} at most.")
        expected = float(found.expected[lo:hi].sum())
        each, joint = (
            found.widths.half(np.array([lo]), np.array([hi]), level, joint=j) for j in (False, True)
        )
        return {
            "plan_digest": made.digest,
            "expected": expected,
            "half": number(each),
            "joint_half": number(joint),
            "relative": number(each / expected) if expected else None,
            "level": level,
        }

    def target(self, asked: Asked) -> dict[str, Any]:
        """Return the epsilon of the plan at which one of its histograms has an error."""
        made = self.plans.of(asked)
        plan = _histogram(made, asked)
        error = asked.get("error")
        if isinstance(error, bool) or not isinstance(error, int | float | str):
            raise UsageError('error must be a number of records, or a part such as "2%".')
        found = self._foresight(made, asked, plan)
        epsilon, reached = found.epsilon_for(error)
        found.save()
        share = made.publication.shares[asked["histogram"]]
        whole = plan_epsilon(epsilon, share)
        return {
            "plan_digest": made.digest,
            "epsilon": exact(whole),
            "histogram_epsilon": exact(whole * share),
            "error": reached,
            "method": plan.pipeline.name,
        }

    def shares(self, asked: Asked) -> dict[str, Any]:
        """Return shares with which all histograms are off by about the same part of an answer."""
        made = self.plans.of(asked)
        for name in made.publication.plans:
            _histogram(made, {"histogram": name})
        found = even_shares(made.publication, records=_records(asked))
        return {"plan_digest": made.digest, "shares": {name: exact(share) for name, share in found.items()}}

    # ---- the stream ---------------------------------------------------------------------------------

    def _stream(self, asked: Question, lock: Lock) -> Iterator[Part]:
        start = time.monotonic()
        try:
            mine = any(_taken(lock, asked.check) for _ in range(_TRIES))
            try:
                asked.check()
                yield self._odds(asked.made.publication)
                yield from self._one(asked)
            finally:
                if mine:
                    lock.release()
        except Superseded:
            yield {"part": "superseded"}
            return
        yield {"part": "end", "seconds": round(time.monotonic() - start, 3)}

    def _one(self, asked: Question) -> Iterator[Part]:
        """Yield the parts about one histogram; those of a question that was answered are told again."""
        told = self._told.get(asked.question)
        if told is not None:
            yield from (_told_again(line, asked.about) for line in told)
            return
        lines, plan = [], asked.plan
        for part in self._foreseen(asked):
            if part["part"] != "progress":
                lines.append(to_json(part))
            yield part if part["part"] == "progress" else lines[-1]
        given = plan.prior is not None or (asked.look is not None and not asked.look.lasting)
        self._told.keep(asked.question, lines, lasting=not given)

    def _foreseen(self, asked: Question) -> Iterator[dict[str, Any]]:
        is_streaming = True

        def between() -> None:
            if is_streaming:  # what is kept answers later questions, which nothing has superseded
                asked.check()

        found = _foresight(asked.plan, asked.records, asked.look, between)
        try:
            yield from _one(asked, found) if isinstance(found, Foresight) else _by_group(asked, found)
        finally:
            found.save()
        is_streaming = False
        self._keep(asked.key, found)

    def _odds(self, publication: Publication) -> dict[str, Any]:
        epsilon = publication.budget
        together = epsilon + self._spent(publication)
        unit = next(iter(publication.plans.values())).unit
        even = Fraction(1, 2)
        earlier = {"epsilon": exact(together), "after": times_in_hundred(chance_after(even, together))}
        return {
            "part": "odds",
            "epsilon": exact(epsilon),
            "before": 50,
            "after": times_in_hundred(chance_after(even, epsilon)),
            "words": guess_in_words(epsilon, unit_word(unit), with_earlier=together),
            "with_earlier": earlier if together > epsilon else None,
        }

    def _spent(self, publication: Publication) -> Fraction:
        try:
            book, _ = self.ledgers.opened(publication, read_only=True)
        except Refusal:
            return Fraction(0)
        return book.spent(publication.dataset)

    # ---- what is assumed ----------------------------------------------------------------------------

    def _foresight(self, made: Checked, asked: Asked, plan: Plan) -> AnyForesight:
        """Return what was foreseen before of the same question, or a new one."""
        records, look = _records(asked), self._look(asked, plan)
        key = _key(made, asked["histogram"], records, look)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        found = _foresight(plan, records, look)
        self._keep(key, found)
        return found

    def _keep(self, key: str, found: AnyForesight) -> None:
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def _look(self, asked: Asked, plan: Plan) -> Pattern | None:
        """Return the shape that is assumed: by name, drawn by hand, or of an earlier release."""
        shape = asked.get("shape") or {}
        if not isinstance(shape, dict) or len(shape) > 1:
            raise UsageError("shape must have a name, values, or a release.")
        if "values" in shape:
            return _drawn(shape["values"], plan)
        if "release" in shape:
            earlier = self.releases.opened(shape["release"])
            if not isinstance(earlier, Release):
                raise UsageError("a shape is that of one histogram, and this release has many groups.")
            if earlier.simulated:
                raise UsageError("that release is simulated: choose one that was published.")
            return pattern(earlier, plan.domain)
        if "name" in shape:
            return Pattern(shapes.find(str(shape["name"])).name)
        return None


def _taken(lock: Lock, check: Callable[[], None]) -> bool:
    """Wait a moment for the tab's earlier work to end, unless nobody waits for this one any more."""
    check()
    return lock.acquire(timeout=_PATIENCE)


def _histogram(made: Checked, asked: Asked) -> Plan:
    plans = made.publication.plans
    name = asked.get("histogram")
    if not isinstance(name, str) or name not in plans:
        raise UsageError("histogram must be the name of one in the plan.")
    if plans[name].domain.n > MOST_DRAWN:
        shell = "The shell tells their error: dphist plan price PLAN."
        many = "What so many say depends on the records: docs/many-bins.md has figures."
        told = shell if plans[name].domain.n <= MAX_BINS else many
        raise UsageError(f"more than {MOST_DRAWN:,} bins are not foreseen here. {told}")
    return plans[name]


def _records(asked: Asked) -> float:
    records = asked.get("records", RECORDS)
    if isinstance(records, bool) or not isinstance(records, int | float):
        raise UsageError("records must be the approximate number of records, such as 46000.")
    return records


def _drawn(values: Any, plan: Plan) -> Pattern:
    n = plan.domain.n
    if not isinstance(values, list) or len(values) != n or n > MOST_VALUES:
        raise UsageError(f"a drawn shape has one number for each of the {n:,} bins.")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise DataError("a drawn shape is made of numbers.")
    drawn = np.array(values, dtype=np.float64)
    if not np.isfinite(drawn).all() or (drawn < 0).any() or not drawn.sum() > 0:
        raise DataError("a drawn shape has numbers of 0 or more, and not only 0.")
    return Pattern("drawn by hand", drawn, lasting=False)


def _key(made: Checked, histogram: str, records: float, look: Pattern | None) -> str:
    """Return what tells a question from others; of bins and groups that are in a file, what it holds now."""
    plan = made.publication.plans[histogram]
    groups = plan.hierarchy.to_dict() if isinstance(plan, GroupedPlan) else None
    shape = None if look is None else look.key
    asked = json.dumps([made.digest, histogram, plan.domain.to_dict(), groups, records, shape])
    return hashlib.sha256(asked.encode()).hexdigest()


def _foresight(
    plan: Plan, records: float, look: Pattern | None, between: Callable[[], None] = lambda: None
) -> AnyForesight:
    if isinstance(plan, GroupedPlan):
        return GroupedForesight(plan, records=records, like=_named_shape(look), between=between)
    return Foresight(plan, records=records, look=look, between=between)


def _told_again(line: bytes, about: dict[str, Any]) -> Part:
    """Return a part of an earlier answer; that of the error says what is asked now."""
    return json.loads(line) | about if line.startswith(b'{"part":"error"') else line


# ---- parts ------------------------------------------------------------------------------------------


def _error(plan: Plan, about: dict[str, Any], error: float, answer: float, *, final: bool) -> dict[str, Any]:
    return {
        "part": "error",
        **about,
        "method": plan.pipeline.name,
        "chosen": plan.pipeline.choice,
        "epsilon": exact(plan.budget),
        "error": number(error),
        "within": None,
        "answer": answer,
        "relative": number(error / answer),
        "queries": workload_name(plan),
        "measure": "mean absolute",
        "final": final,
    }


def _outcomes(found: Preview) -> dict[str, Any]:
    low, high = found.band()
    return {
        "part": "outcomes",
        "truth": numbers(found.truth),
        "outcomes": [numbers(release.presentable) for release in found.releases],
        "low": numbers(low),
        "high": numbers(high),
        "shape": list(found.domain.shape),
        "like": found.like,
    }


def _widths(found: AnyForesight, level: float) -> dict[str, Any]:
    each, joint = found.widths.of_bins(level)
    lengths = [
        {"bins": bins, "each": number(one), "joint": number(both)}
        for bins, one, both in found.widths.of_ranges(level)
    ]
    return {
        "part": "widths",
        "level": level,
        "each": numbers(each),
        "joint": numbers(joint),
        "lengths": lengths,
        "note": found.widths.example.error.description,
    }


def _warnings(warned: list[Warned]) -> dict[str, Any]:
    said = [
        {
            "code": warning.code,
            "message": warning.message,
            "remedy": {"label": warning.remedy, "histogram": warning.change} if warning.remedy else None,
        }
        for warning in warned
    ]
    return {"part": "warnings", "warnings": said}


def _curve(row: Expected | GroupedExpected) -> dict[str, Any]:
    points = [[epsilon, error] for epsilon, error in row.curve]
    return {"part": "curve", "method": row.method, "points": points, "intervals": row.intervals}


def _compared(found: AnyForesight, warned: list[Warned]) -> Iterator[dict[str, Any]]:
    """Compare the other methods: all at the plan's epsilon, then their curves, least error first."""
    others, times = found.others, {found.method: 1.0}
    for at, method in enumerate(others):
        yield {"part": "progress", "done": at, "of": 2 * len(others), "words": method}
        times[method] = found.compared(method)
    if (last := no_method(min(map(found.rough, times)), found.answer)) is not None:
        yield _warnings([*warned, last])
    yield _advice(found, times)
    for at, method in enumerate(sorted(others, key=lambda name: times[name])):
        yield {"part": "progress", "done": len(others) + at, "of": 2 * len(others), "words": method}
        yield _curve(found.row(method, sketch=at >= _NEAR))


def _advice(found: AnyForesight, compared: dict[str, float]) -> dict[str, Any]:
    """Return the method of least error among those with intervals, and how much less it is."""
    times = {method: error for method, error in compared.items() if found.has_intervals(method)}
    best = min(times, key=lambda method: times[method], default=found.method)
    if times.get(best, 1.0) > _CLEARLY:
        best = found.method
    least = times.get(best, 1.0)
    words = f"No method has clearly less error here than {found.method}."
    if best != found.method:
        words = f"With {best} the error{found.over} would be {least:.2f} times this one."
    return {"part": "advice", "method": best, "ratio": number(1 / least) if least else None, "words": words}


def _named_shape(look: Pattern | None) -> str:
    if look is not None and look.counts is not None:
        raise UsageError("of a histogram by group the shape is named.")
    return "smooth" if look is None else look.name


def _one(asked: Question, found: Foresight) -> Iterator[dict[str, Any]]:
    plan, level, about = asked.plan, asked.level, asked.about
    yield _error(plan, about, found.rough(found.method), found.answer, final=False)
    outcomes = found.outcomes()
    within = {"within": number(outcomes.within(level)), "level": level}
    yield _error(plan, about, found.rough(found.method), found.answer, final=False) | within
    yield _outcomes(outcomes)
    yield _widths(found, level)
    warned = found.warnings(level)
    yield _warnings(warned)
    yield _curve(found.row(found.method))
    yield _error(plan, about, found.settled(), found.answer, final=True) | within
    yield _curve(found.row(found.method, closely=True))
    yield from _compared(found, warned)


def _by_group(asked: Question, found: GroupedForesight) -> Iterator[dict[str, Any]]:
    plan, about, measured = asked.plan, asked.about, {"measure": "root mean square"}
    yield _error(plan, about, found.rough(found.method), found.answer, final=False) | measured
    yield _curve(found.row(found.method))
    rows = found.preview.levels
    levels = {"levels": [_level(row) for row in rows]}
    yield _error(plan, about, rows[-1].error, found.answer, final=True) | measured | levels
    yield _outcomes(found.one) | {"group": found.drawn}
    yield _widths(found, asked.level)
    yield _warnings([])
    yield _curve(found.row(found.method, closely=True))
    yield from _compared(found, [])


def _level(row: LevelError) -> dict[str, Any]:
    errors = {"error": number(row.error), "bin_error": number(row.bin_error)}
    return {"name": row.name, "groups": row.groups, **errors}
