"""The auditor: a lower bound on the epsilon of any mechanism, from its outputs alone.

A mechanism that is e-differentially private gives every event E, on any two neighbouring histograms x and
x', probabilities with P(E | x) <= exp(e) P(E | x'). One event whose two probabilities provably lie further
apart refutes a claim. The auditor looks for a pair and an event that lie far apart, and then states how far:

* Search: small audits of structured pairs, in rounds that keep the best; their runs are then thrown away.
* First quarter of the runs on the pair found: log likelihood ratios of what can be seen of an output.
* Second quarter: which of these scores, which direction, which threshold.
* Last half, untouched so far: one-sided Clopper-Pearson bounds, each wrong with chance at most beta/2; a
  lower one p on the likelier side, an upper one q on the other. The result is ln(p/q).

Nothing before the last half can make the bound wrong, only weak: the earlier runs fix the event, and given
it the last half's frequencies are binomial. Hence P(bound > true epsilon) <= beta, for any mechanism. A
violation is proof up to beta; a bound below the claim proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain import whole
from dphist.errors import UsageError
from dphist.groups import Floats, Ints

Mechanism: TypeAlias = Callable[[Ints, int], ArrayLike]
Pair: TypeAlias = tuple[Ints, Ints]
LEAST_RUNS, HEIGHTS = 100, range(1, 9)  # heights are dense: a threshold is crossed at one of them only
_KEEP = 4  # one pair of so many goes on to the next round
_PARTS = 24  # into so many parts a value's range is cut, or fewer if there are not 16 runs for each


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: but for a chance of beta, epsilon is at least ``bound``.

    Args:
        claim: the epsilon that the mechanism promises.
        bound: what it loses at the least, on this pair, by this event.
        pair: two histograms, the second with one record more.
        event: the event in words.
        scores: of the tested runs, on each of the pair; more is evidence for the record.
        threshold: where the event begins among the scores.
        upwards: whether the event is at least the threshold, likelier with the record; else at most.
        seen: in how many of the tested runs it happened, on each of the pair.
        runs: how often the mechanism ran on each of the pair; half of these were tested.
        beta: how likely the bound may be too high.
    """

    claim: Fraction
    bound: float
    pair: Pair
    event: str
    scores: tuple[Floats, Floats] = field(repr=False)
    threshold: float
    upwards: bool
    seen: tuple[int, int]
    runs: int
    beta: float

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.claim


def audit(
    mechanism: Mechanism,
    *,
    claim: Fraction,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    runs: int = 10_000,
    beta: float = 1e-6,
    bins: int = 8,
) -> Audit:
    """Return a lower bound on what a mechanism loses, beside what it claims to lose at most.

    Args:
        mechanism: called with counts and a trial number that never comes twice; returns one number per bin,
            or two rows of them: the values, and which group each bin is in. Trials must be independent.
        claim: the promised epsilon, for one record.
        pair: two histograms that differ by one record; by default the worst of some that are searched.
        runs: how often the mechanism runs on each of the pair; the search takes about three times as many.
        beta: how likely the bound may be too high.
        bins: how many bins the searched histograms have.
    """
    if whole(runs, "runs") < LEAST_RUNS or not 0 < beta < 1 or claim <= 0:
        raise UsageError(f"an audit needs {LEAST_RUNS} runs or more, a positive claim, and beta in (0, 1).")
    trials = itertools.count()
    found = _search(mechanism, pairs(bins), runs, trials) if pair is None else _neighbours(*pair)
    table = _observe(mechanism, found, runs, trials)
    half = runs // 2
    event = _learn(table[:, : half // 2], table[:, half // 2 : half], beta)
    scores = event.score(table[0, half:]), event.score(table[1, half:])
    tested, up = scores[0].size, event.upwards
    seen = int(_hits(scores[0], event.threshold, up)), int(_hits(scores[1], event.threshold, up))
    p = least_probability(seen[up], tested, beta / 2)
    q = 1 - least_probability(tested - seen[not up], tested, beta / 2)
    words = f"{event.name}, as evidence for the record, weighs {'at least' if up else 'at most'} "
    words += f"{event.threshold:.3g}: in {seen[1]:,} of {tested:,} runs with it and in {seen[0]:,} without"
    bound = math.log(p / q) if p > q else 0.0
    return Audit(claim, bound, found, words, scores, event.threshold, up, seen, runs, beta)


def pairs(bins: int) -> list[Pair]:
    """Return neighbours worth trying: flat, a spike, a dip, a bin beside a large one, both ends of a step."""
    if whole(bins, "bins") < 2:
        raise UsageError(f"the histograms to search need at least two bins, not {bins}.")
    middle, place = bins // 2, np.arange(bins)
    tried = [(np.full(bins, h), p) for h in (0, 5) for p in (0, middle)]
    for h in HEIGHTS:
        tried += [(h * (place == p), p) for p in (0, middle)]
        tried += [(h * (place < middle), p) for p in (middle - 1, middle)]
        tried += [(h * (place != middle), middle), (h * (place == middle - 1), middle)]
    return [(x.astype(np.int64), x + (place == p)) for x, p in tried]


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


def _search(mechanism: Mechanism, tried: list[Pair], runs: int, trials: Iterator[int]) -> Pair:
    """Return the pair that small audits find worst; each round takes about ``runs`` runs on each side."""
    while len(tried) > 1:
        each = max(LEAST_RUNS, runs // len(tried)) // 2 * 2
        promise = np.zeros(len(tried))
        for i, pair in enumerate(tried):
            halves = np.split(_observe(mechanism, pair, each, trials), 2, axis=1)
            for learned, judged in (halves, halves[::-1]):
                event = _learn(learned, learned, 0.3)  # a rough beta: nothing is claimed here
                promise[i] += _gain([event.score(s) for s in judged], event.threshold, event.upwards, 0.3)
        tried = [tried[i] for i in np.argsort(-promise, kind="stable")[: -(-len(tried) // _KEEP)]]
    return tried[0]


class _Event(NamedTuple):
    """A range of scores, which are sums of log likelihood ratios of columns, with the record to without."""

    name: str
    ratios: list[tuple[int, Callable[[Floats], Floats]]]
    upwards: bool = True
    threshold: float = 0.0

    def score(self, rows: Floats) -> Floats:
        return np.asarray(sum(ratio(rows[:, column]) for column, ratio in self.ratios))


def _learn(fit: Floats, choose: Floats, beta: float) -> _Event:
    """Return the most telling event there is: the ratios from some runs, all else from others."""
    m = fit.shape[2] - 3  # see _observe for the columns
    ratios = [(j, _ratio(fit[0, :, j], fit[1, :, j], named=j > m)) for j in range(m + 3)]
    looks = {
        "the changed bin's value": ratios[m : m + 1],
        "all values together": ratios[:m],
        "the partition": ratios[m + 1 : m + 2],
        "the partition with the changed bin's value": ratios[m : m + 2],
        "the partition with all values": ratios[:m] + ratios[m + 1 : m + 2],
        "the last row, exactly": ratios[m + 2 :],
    }
    best, most = _Event("nothing", ratios[:1]), -math.inf
    for name, used in looks.items():
        scores = [_Event(name, used).score(side) for side in choose]
        cuts = np.unique(np.quantile(np.concatenate(scores), np.linspace(0, 1, 101), method="lower"))
        for up in (True, False):
            gains = _gain(scores, cuts, up, beta)
            if gains.max() > most:
                best, most = _Event(name, used, up, float(cuts[gains.argmax()])), float(gains.max())
    return best


def _ratio(without: Floats, within: Floats, *, named: bool) -> Callable[[Floats], Floats]:
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


def _neighbours(one: ArrayLike, other: ArrayLike) -> Pair:
    """Return the pair with the smaller histogram first, or refuse it."""
    found = [np.asarray(one), np.asarray(other)]
    if all(a.dtype.kind in "iu" and a.ndim == 1 and a.shape == found[0].shape for a in found):
        x, y = sorted((a.astype(np.int64) for a in found), key=lambda a: int(a.sum()))
        if x.size and x.min() >= 0 and np.abs(y - x).sum() == 1:
            return x, y
    raise UsageError("a pair is two histograms of whole numbers that differ by one record in one bin.")


def _observe(mechanism: Mechanism, pair: Pair, runs: int, trials: Iterator[int]) -> Floats:
    """Return what is seen of each run on each of a pair: pair x runs x columns.

    The columns are the values; the changed bin's value; and, numbered, the partition (bins whose entries in
    the last row are equal are together) and the last row as a whole. The numbers are names, given over all
    runs: what a name tells is learned from some of them, and a name not met there tells nothing.
    """
    rows = [[np.atleast_2d(mechanism(x.copy(), next(trials))) for _ in range(runs)] for x in pair]
    shape = rows[0][0].shape
    if shape not in ((1, pair[0].size), (2, pair[0].size)) or any(r.shape != shape for s in rows for r in s):
        raise UsageError("a mechanism must return one number per bin, or two rows of them, always alike.")
    seen = np.array(rows, dtype=np.float64)
    last = seen[:, :, -1].reshape(2 * runs, -1)
    first = np.stack([(last[:, : j + 1] == last[:, [j]]).argmax(axis=1) for j in range(shape[1])], axis=1)
    named = [np.unique(a, axis=0, return_inverse=True)[1].reshape(2, runs) for a in (first, last)]
    changed = seen[:, :, 0, int(np.argmax(pair[1] - pair[0]))]
    return np.concatenate([seen[:, :, 0], np.stack([changed, *named], axis=-1)], axis=-1)
