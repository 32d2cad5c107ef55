"""The auditor: a lower bound on the epsilon of any mechanism, from its outputs alone.

A mechanism that is e-differentially private gives every event E, on any two neighbouring histograms x and
x', probabilities with P(E | x) <= exp(e) P(E | x'). One event whose two probabilities provably lie further
apart refutes a claim. The auditor looks for a pair and an event that lie far apart, and then states how far:

* Search: small audits of structured pairs, in rounds that keep the best; their runs are then thrown away.
* First sixth of the runs on the pair found: log likelihood ratios of what can be seen of an output.
* Second sixth: which of these scores, which direction, which threshold.
* The rest, untouched so far: one-sided Clopper-Pearson bounds, each wrong with chance at most beta/2; a
  lower one p on the likelier side, an upper one q on the other. The result is ln(p/q).

Nothing before the rest can make the bound wrong, only weak: the earlier runs fix the event, and given it
the rest's frequencies are binomial. Hence P(bound > true epsilon) <= beta, for any mechanism. A violation is
proof up to beta; a bound below the claim proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist._common.renamed import renamed, renamed_fields
from dphist.domain import as_int
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError

Mechanism: TypeAlias = Callable[[Ints, int], ArrayLike]
Pair: TypeAlias = tuple[Ints, Ints]
Ratio: TypeAlias = Callable[[Floats], Floats]
LEAST_TRIALS, HEIGHTS = 100, range(1, 9)  # heights are dense: a threshold is crossed at one of them only
_KEEP = 6  # one pair in this many goes on to the next round
_LATTICE = 4  # up to this number of bins, every histogram of three heights is tried
_PARTS = 24  # number of parts a value's range is cut into; fewer if there are not 16 runs for each


@renamed_fields(runs="trials")
@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit: with probability at least 1 - beta, epsilon is at least ``bound``.

    Args:
        claim: the epsilon that the mechanism claims.
        bound: the lower bound on epsilon from this pair and this event.
        pair: two histograms, the second with one unit more.
        event: the event in words.
        scores: of the tested runs, on each of the pair; more is evidence for the record.
        threshold: where the event begins among the scores.
        upwards: whether the event is at least the threshold, likelier with the record; else at most.
        seen: the number of tested runs in which the event happened, for each histogram of the pair.
        trials: how often the mechanism ran on each of the pair; two thirds of these were tested.
        beta: the largest probability that the bound is too high.
    """

    claim: Fraction
    bound: float
    pair: Pair
    event: str
    scores: tuple[Floats, Floats] = field(repr=False)
    threshold: float
    upwards: bool
    seen: tuple[int, int]
    trials: int
    beta: float

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.claim


@renamed(runs="trials")
def audit(
    mechanism: Mechanism,
    *,
    claim: Fraction,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    trials: int = 15_000,
    beta: float = 1e-6,
    bins: int = 8,
    unit: int = 1,
) -> Audit:
    """Return a lower bound on a mechanism's epsilon, beside the epsilon that it claims.

    Args:
        mechanism: called with counts and a trial number that never comes twice; returns a row of numbers, or
            two rows with one number per bin: the values, and which group each bin is in. Trials must be
            independent.
        claim: the promised epsilon, for one unit.
        pair: two histograms that differ by one unit; by default the worst of some that are searched.
        trials: how often the mechanism runs on each of the pair; the search takes two or three times as many.
        beta: how likely the bound may be too high.
        bins: how many bins the searched histograms have.
        unit: how many records one unit has at the most, in one bin or in several.
    """
    if as_int(trials, "trials") < LEAST_TRIALS or not 0 < beta < 1 or claim <= 0 or as_int(unit, "unit") < 1:
        raise UsageError(
            f"an audit needs {LEAST_TRIALS} trials or more, a positive claim, and beta in (0, 1)."
        )
    look = _Looker(mechanism)
    found = _search(look, pairs(bins, claim, unit), trials) if pair is None else _neighbours(*pair, unit)
    table = _columns(found, [look(x, trials) for x in found])
    sixth = trials // 6
    event = _learn(table[:, :sixth], table[:, sixth : 2 * sixth], beta)
    scores = event.score(table[0, 2 * sixth :]), event.score(table[1, 2 * sixth :])
    tested, up = scores[0].size, event.upwards
    seen = int(_hits(scores[0], event.threshold, up)), int(_hits(scores[1], event.threshold, up))
    p = least_probability(seen[up], tested, beta / 2)
    q = 1 - least_probability(tested - seen[not up], tested, beta / 2)
    words = f"{event.name}, as evidence for the unit, weighs {'at least' if up else 'at most'} "
    words += f"{event.threshold:.3g}: in {seen[1]:,} of {tested:,} runs with it and in {seen[0]:,} without"
    bound = math.log(p / q) if p > q else 0.0
    return Audit(claim, bound, found, words, scores, event.threshold, up, seen, trials, beta)


def pairs(bins: int, epsilon: Fraction = Fraction(1), unit: int = 1) -> list[Pair]:
    """Return neighbours worth trying: flat, a spike, a dip, a bin beside a large one, both ends of a step.

    Heights are in steps of unit/epsilon, as the noise is. The unit's records lie in one bin, and in several.
    Of few bins, every histogram of three heights that are two steps apart is tried too.
    """
    if as_int(bins, "bins") < 2:
        raise UsageError(f"the histograms to search need at least two bins, not {bins}.")
    step, middle, place = unit / epsilon, bins // 2, np.arange(bins)
    heights = list(dict.fromkeys(max(round(i * step), 1) for i in HEIGHTS))
    tried = [(np.full(bins, round(h * step)), p) for h in (0, 5) for p in (0, middle)]
    tried += [(h * (place == middle), middle) for h in heights]
    several = tried if unit > 1 else []
    if bins <= _LATTICE:
        levels = [i * max(round(2 * step), unit) for i in range(3)]
        all_of_them = itertools.product(levels, repeat=bins)
        tried = tried + [(np.array(x), p) for x in all_of_them for p in range(bins) if x[p] < levels[-1]]
    else:
        for h in heights:
            tried = [*tried, (h * (place == 0), 0), (h * (place == middle - 1), middle)]
            tried += [(h * (place < middle), p) for p in (middle - 1, middle)]
            tried.append((h * (place != middle), middle))
    changes = [(x, unit * (place == p)) for x, p in tried]
    changes += [(x, 1 * np.isin(place, (p + np.arange(unit)) % bins)) for x, p in several]
    return [(x.astype(np.int64), x + change) for x, change in changes]


def least_probability(k: int, n: int, alpha: float) -> float:
    """Return the one-sided Clopper-Pearson bound: up to which p, k or more of n have chance alpha at most."""
    if k <= 0:
        return 0.0
    j = np.arange(k, n + 1)
    ways = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in j.tolist()])
    goal = math.log(alpha) - 1e-14 * math.lgamma(n + 2)  # rounding takes less than this from the sum
    lo, hi = 0.0, 1.0
    for _ in range(50):
        p = (lo + hi) / 2
        terms = ways + j * math.log(p) + (n - j) * math.log1p(-p)
        top = float(terms.max())
        lo, hi = (p, hi) if top + math.log(float(np.exp(terms - top).sum())) <= goal else (lo, p)
    return lo  # the safe side


class _Looker:
    """Runs a mechanism; no trial number comes twice."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism, self._trials = mechanism, itertools.count()
        self._shape: tuple[int, ...] | None = None

    def __call__(self, x: Ints, runs: int) -> Floats:
        """Return the outputs on a histogram: runs x rows x numbers."""
        rows = [np.atleast_2d(self._mechanism(x.copy(), next(self._trials))) for _ in range(runs)]
        self._shape = self._shape or rows[0].shape
        shapes = {r.shape for r in rows} | {self._shape}
        if len(shapes) > 1 or len(self._shape) > 2 or self._shape[0] > 2 or self._shape[:2] == (2, 0):
            raise _ill_shaped()
        if self._shape[0] == 2 and self._shape[1] != x.size:
            raise _ill_shaped()
        return np.array(rows, dtype=np.float64)


def _ill_shaped() -> UsageError:
    return UsageError(
        "a mechanism must return a row of numbers, or two rows of one number per bin, always of one shape."
    )


def _search(look: _Looker, tried: list[Pair], runs: int) -> Pair:
    """Return the pair that small audits find worst; pairs share the runs on the histograms they share."""
    while len(tried) > 1:
        histograms = {x.tobytes(): x for pair in tried for x in pair}
        each = max(min(LEAST_TRIALS, runs // 10), runs // len(histograms)) // 2 * 2
        seen = {key: look(x, each) for key, x in histograms.items()}
        if len(np.unique(np.concatenate(list(seen.values())), axis=0)) == 1:
            break  # it says the same whatever it is given
        promise = np.zeros(len(tried))
        for i, pair in enumerate(tried):
            halves = np.split(_columns(pair, [seen[x.tobytes()] for x in pair]), 2, axis=1)
            for learned, judged in (halves, halves[::-1]):
                event = _learn(learned, learned, 0.3)  # a rough beta: nothing is claimed here
                promise[i] += _gain([event.score(s) for s in judged], event.threshold, event.upwards, 0.3)
        tried = [tried[i] for i in np.argsort(-promise, kind="stable")[: -(-len(tried) // _KEEP)]]
    return tried[0]


class _Event(NamedTuple):
    """A range of scores, which are sums of log likelihood ratios, with the unit to without.

    A ratio is of one column, or of a weighted sum of the first columns.
    """

    name: str
    ratios: list[tuple[int | Floats, Ratio]]
    upwards: bool = True
    threshold: float = 0.0

    def score(self, rows: Floats) -> Floats:
        return np.asarray(sum(ratio(_seen(rows, of)) for of, ratio in self.ratios))


def _seen(rows: Floats, of: int | Floats) -> Floats:
    return rows[:, of] if isinstance(of, int) else rows[:, : of.size] @ of


def _learn(fit: Floats, choose: Floats, beta: float) -> _Event:
    """Return the event with the strongest evidence: ratios from some runs, all else from others."""
    m = fit.shape[2] - 4  # see _columns
    ratios: list[tuple[int | Floats, Ratio]] = [
        (j, _ratio(fit[0, :, j], fit[1, :, j], named=j > m)) for j in range(m + 4)
    ]
    spread = [ratio(_seen(fit[1], j)).mean() - ratio(_seen(fit[0], j)).mean() for j, ratio in ratios[:m]]
    telling = [ratios[j] for j in np.argsort(spread)[::-1]]
    looks: dict[str, list[Any]] = {
        "the changed bins' value": ratios[m : m + 1],
        "all values together": ratios[:m],
        **{f"the {k} most telling values": telling[:k] for k in (1, 2, 4, 8) if k < m},
        "a weighted sum of the values": _discriminant(fit[:, :, :m]),
        "the partition": ratios[m + 1 : m + 2],
        "the partition with the changed bins' value": ratios[m : m + 2],
        "the partition with all values": ratios[:m] + ratios[m + 1 : m + 2],
        "the group of a changed bin": ratios[m + 2 : m + 3],
        "the last row, exactly": ratios[m + 3 :],
    }
    best, most = _Event("nothing", ratios[:1]), -math.inf
    for name, used in looks.items():
        if not used:
            continue
        scores = [_Event(name, used).score(side) for side in choose]
        cuts = np.unique(np.quantile(np.concatenate(scores), np.linspace(0, 1, 101), method="lower"))
        for up in (True, False):
            gains = _gain(scores, cuts, up, beta)
            if gains.max() > most:
                best, most = _Event(name, used, up, float(cuts[gains.argmax()])), float(gains.max())
    return best


def _discriminant(values: Floats) -> list[tuple[Floats, Ratio]]:
    """Return Fisher's linear discriminant, which best separates two samples of values, with its ratio."""
    if values.shape[2] < 2 or not np.isfinite(values).all():
        return []
    spread = np.cov(values[0].T) + np.cov(values[1].T)
    weights = np.linalg.pinv(spread, hermitian=True) @ (values[1].mean(axis=0) - values[0].mean(axis=0))
    return [(weights, _ratio(values[0] @ weights, values[1] @ weights, named=False))]


def _ratio(without: Floats, within: Floats, *, named: bool) -> Ratio:
    """Return the log likelihood ratio of one column, as a table over parts of its range or over its names."""
    both, pool = (without, within), np.sort(np.concatenate([without, within]))
    cuts, most = np.unique(pool), min(_PARTS, max(4, pool.size // 16))
    if not named and cuts.size > most:
        cuts = np.unique(pool[:: -(-pool.size // most)])
    tally = [np.bincount(np.searchsorted(cuts, c, side="right"), minlength=cuts.size + 1) for c in both]
    table = np.log(tally[1] + 0.5) - np.log(tally[0] + 0.5)

    def ratio(column: Floats) -> Floats:
        at = np.searchsorted(cuts, column, side="right")
        return np.where(cuts[np.maximum(at - 1, 0)] == column, table[at], 0.0) if named else table[at]

    return ratio


def _hits(scores: Floats, cuts: float | Floats, upwards: bool) -> Any:
    at = np.searchsorted(np.sort(scores), cuts, side="left" if upwards else "right")
    return scores.size - at if upwards else at


def _gain(scores: list[Floats], cuts: float | Floats, upwards: bool, beta: float) -> Any:
    """Return about what the test would find: Wilson's bounds are quick, and near enough to choose by."""
    n, z = scores[0].size, NormalDist().inv_cdf(1 - beta / 2)

    def wilson(k: Any, sign: int) -> Any:
        return (k + z * z / 2 + sign * z * np.sqrt(k * (n - k) / n + z * z / 4)) / (n + z * z)

    rare, likely = (_hits(side, cuts, upwards) for side in scores[:: 1 if upwards else -1])
    return np.log(np.maximum(wilson(likely, -1), 1e-9) / wilson(rare, 1))


def _neighbours(one: ArrayLike, other: ArrayLike, unit: int) -> Pair:
    """Return the pair with the smaller histogram first, or refuse it."""
    found = [np.asarray(one), np.asarray(other)]
    if all(a.dtype.kind in "iu" and a.ndim == 1 and a.shape == found[0].shape for a in found):
        x, y = sorted((a.astype(np.int64) for a in found), key=lambda a: int(a.sum()))
        if x.size and x.min() >= 0 and (y >= x).all() and 1 <= (y - x).sum() <= unit:
            return x, y
    records = "one record in one bin" if unit == 1 else f"up to {unit} records, all on one side"
    raise UsageError(f"a pair is two histograms of whole numbers that differ by {records}.")


def _columns(pair: Pair, outputs: list[Floats]) -> Floats:
    """Return the observable columns of each run on each of a pair: pair x runs x columns.

    The columns are the values; the sum of those of the changed bins; and, numbered, the partition (bins whose
    entries in the last row are equal are together), the group of the first changed bin, and the last row as a
    whole. The numbers are names, given over all runs: the evidence of a name is learned from some of them,
    and a name that does not occur there is no evidence.
    """
    seen = np.stack(outputs)
    runs, size = seen.shape[1], seen.shape[3]
    last = seen[:, :, -1].reshape(2 * runs, size)
    changed = np.flatnonzero(pair[1] - pair[0]) if size == pair[0].size else np.zeros(1, np.int64)
    first = np.stack([(last[:, : j + 1] == last[:, [j]]).argmax(axis=1) for j in range(size)], axis=1)
    group = last == last[:, changed[:1]]
    named = [np.unique(a, axis=0, return_inverse=True)[1].reshape(2, runs) for a in (first, group, last)]
    total = seen[:, :, 0, changed].sum(axis=-1)
    return np.concatenate([seen[:, :, 0], np.stack([total, *named], axis=-1)], axis=-1)
