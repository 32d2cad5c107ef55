"""The exact law of the curator's own verbs, none written a second time: what one unit costs, for any unit.

A verb that adds noise to its answers costs, from one data set to another, sum |change of an answer|/scale.
A verb that publishes a decision is safe if for every noise on one data set some one draw, moved by what its
share of epsilon pays for at its own scale, gives the same decision on the neighbour: the move is a shift, so
it changes no probability by more. Both are looked at here with noise set by the test (`scripted`).
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from declared import EXAMPLES, also
from dphist.domain.groups import Groups
from dphist.errors import DphistError, PrivacyError, UsageError
from dphist.privacy import l1, queries
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import MemoryLedger
from scripted import Script, neighbours, random_noise, rest, run, tail

UNITS = [1, 2, 5]
SHARES = [Fraction(1), Fraction(1, 3)]
EPSILON = Fraction(3, 2)

# --- verbs that add noise to their answers


def distances(curator: Curator, share: Fraction):
    n = curator.domain.n
    centres, classes = np.array([3, 100, -7, 40, 8]), np.array([0, 1, 1, -1, 0])
    return curator.measure_distances(Groups.singletons(n), centres[:n], classes[:n], grid=8, share=share)


def ranges(curator: Curator, share: Fraction):
    lo, hi, parts = np.array([0, 0, 2, 1]), np.array([5, 2, 5, 2]), np.array([1, 2, 3, 1])
    return curator.measure_ranges(Groups.singletons(5), lo, hi, parts=parts, whole=4, share=share)


ADDING = {
    "measure": lambda c, s: c.measure(Groups(np.array([0, 2, 5]), np.array([3, 0, 1, 4, 2])), share=s),
    "measure_ranges": ranges,
    "measure_distances": distances,
}


def example(kind: type, n: int):
    return EXAMPLES[kind](np.random.default_rng(3), n)


ADDING |= {
    f"measure_linear, {kind.__name__}": lambda c, s, kind=kind: c.measure_linear(example(kind, 5), share=s)
    for kind in queries.LINEAR
}


@pytest.mark.parametrize("sensitivity", UNITS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("verb", ADDING)
def test_noisy_answers_cost_their_share_for_any_unit(verb: str, share: Fraction, sensitivity: int) -> None:
    x = np.array([4, 0, 7, 1, 30])

    def answers(counts: np.ndarray, shift: int = 0):
        script = Script(more=lambda scale, signed: shift)
        found = run(
            lambda c: ADDING[verb](c, share), counts, script, epsilon=EPSILON, sensitivity=sensitivity
        )
        assert all(script.signed)
        measured = np.isfinite(np.broadcast_to(found.scale, found.values.shape))
        stated = np.broadcast_to(found.scale, found.values.shape)[measured]
        assert stated.tolist() == script.scales, "the scale that is stated is the one that was drawn with"
        return found.values[measured].astype(object), [Fraction(s) for s in script.scales]

    before, scales = answers(x)
    for shift in (-(10**6), 10**6):  # noise is added, whatever it is: nothing is cut off
        assert (answers(x, shift)[0] - before == shift).all()
    worst = Fraction(0)
    for bins in itertools.product(range(x.size), repeat=min(sensitivity, 2)):
        more = x.copy()
        for i in bins:
            more[i] += 1
        more[bins[0]] += sensitivity - len(bins)  # all of a unit's records
        after, _ = answers(more)
        worst = max(worst, sum(abs(int(d)) / s for d, s in zip(after - before, scales, strict=True)))
    assert worst <= EPSILON * share
    assert worst > EPSILON * share * Fraction(9, 10), "and no more noise than that takes"


# --- decisions: some one draw pays for the neighbour


@dataclass(frozen=True)
class Planted:
    """A score of two or more candidates, of which one rises and the others fall with some bin's count."""

    n: int
    sensitivity: int = 1

    @property
    def size(self) -> int:
        return self.n

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return int(self.sensitivity) * (2 * counts - counts.sum())


def choose_planted(curator: Curator, share: Fraction, sensitivity: int = 1) -> int:
    with also(Planted):
        return curator.choose(Planted(curator.domain.n, sensitivity), share=share)


def l1_verb(candidates: l1.Candidates, center: l1.Center, one_sided: bool, penalty: float = 1.0):
    def verb(curator: Curator, share: Fraction):
        found = curator.partition_l1(
            candidates=candidates,
            center=center,
            one_sided=one_sided,
            penalty=penalty,
            share=share,
            fanout=2,
        )
        return tuple(found.starts.tolist())

    return verb


L1 = {
    f"{candidates} {center} {'one' if one_sided else 'two'}-sided": l1_verb(candidates, center, one_sided)
    for candidates in ("all", "powers", "subtrees")
    for center in ("mean", "median")
    for one_sided in (False, True)
}
CHOICES = {
    "opposite": choose_planted,
    "opposite, by three": lambda c, s: choose_planted(c, s, 3),
    **{
        f"choose, {kind.__name__}": lambda c, s, kind=kind: c.choose(example(kind, c.domain.n), share=s)
        for kind in queries.SCORES
    },
}
DECIDING = CHOICES | L1


def falls(verb: str) -> bool:
    """Say whether a draw helps its candidate by falling: two-sided noise on costs; else it rises."""
    return "two-sided" in verb


def unpaid(
    verb: str, x: np.ndarray, z: list[int], share: Fraction, sensitivity: int
) -> tuple[np.ndarray, object] | None:
    """Return a neighbour by one record on which no one draw's shift within the budget keeps the decision."""
    call = lambda c: DECIDING[verb](c, share)  # noqa: E731
    script = Script(list(z))
    decided = run(call, x, script, epsilon=EPSILON, sensitivity=sensitivity)
    step = EPSILON * share / sensitivity  # a unit of so many records is as many steps
    for y in neighbours(x):
        for i, scale in enumerate(script.scales):
            moved = list(z)
            shift = math.floor(Fraction(scale) * step)
            moved[i] += -shift if falls(verb) else shift
            if run(call, y, Script(moved), epsilon=EPSILON, sensitivity=sensitivity) == decided:
                break
        else:
            return y, decided
    return None


@pytest.mark.parametrize("sensitivity", [1, 3])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("verb", DECIDING)
def test_decisions_are_paid_for_by_one_draw_of_the_winner(
    verb: str, share: Fraction, sensitivity: int
) -> None:
    rng = np.random.default_rng(7)
    for _ in range(12):
        n = int(rng.choice([2, 3, 4]))
        x = rng.integers(0, 6, n)
        first = Script(more=random_noise(rng))
        run(lambda c: DECIDING[verb](c, share), x, first, epsilon=EPSILON, sensitivity=sensitivity)
        assert first.scales, "nothing was drawn"
        assert all(signed == falls(verb) for signed in first.signed)
        assert unpaid(verb, x, first.values, share, sensitivity) is None


# --- the exact law of the L1 partition on two bins, from the verb itself


@functools.cache
def whole_wins(verb: str, x: tuple[int, int], sensitivity: int) -> float:
    """Return the probability that both bins become one group: a sum over the single bins' noise.

    The draw of the pair, the last, makes the pair win from some threshold on. It is found by trying the verb
    for one value of the single bins' noise; for the others it moves by what their sum does, which is tried.
    """
    call = lambda c: DECIDING[verb](c, Fraction(1))  # noqa: E731
    options = dict(epsilon=LAW_EPSILON, sensitivity=sensitivity)
    first = Script()
    run(call, x, first, **options)

    def wins(a: int, b: int, pair: int) -> bool:
        unused = [0] * (len(first.scales) - 3)  # all intervals draw for those that would begin before 0
        return run(call, x, Script([a, b, *unused, pair]), **options) == (0, 2)

    scales, signed = [*first.scales[:2], first.scales[-1]], first.signed[0]
    assert signed == falls(verb)
    sign = -1 if signed else 1
    low, base = -500, 500  # loses at low, wins at base
    while base - low > 1:
        middle = (low + base) // 2
        low, base = (low, middle) if wins(0, 0, sign * middle) else (middle, base)
    for a, b in [(1, 0), (0, 1), (2, 1), (9, 4)] + [(-1, 3), (-5, -2)] * signed:
        moved = base + sign * (a + b)
        told = [wins(a, b, sign * (moved + step)) for step in (-1, 0)]
        assert told == [False, True], "every draw counts, and none is cut off"
    reach = int(30 * max(scales[:2]))
    k = np.arange(-reach if signed else 0, reach + 1)
    weights = [
        np.array([tail(v, s, signed) - tail(v + 1, s, signed) for v in k.tolist()]) for s in scales[:2]
    ]
    both = np.convolve(*weights)
    sums = np.arange(both.size) + 2 * int(k[0])
    return float(
        sum(p * tail(base + sign * int(t), scales[2], signed) for p, t in zip(both, sums, strict=True))
    )


LAW_EPSILON = Fraction(6)


@pytest.mark.parametrize("sensitivity", [1, 2])
@pytest.mark.parametrize("verb", L1)
def test_the_law_of_two_bins_loses_at_most_epsilon(verb: str, sensitivity: int) -> None:
    pairs = [(3, 3 + gap) for gap in range(0, 4 * sensitivity + 1, 2)]
    worst = 0.0
    for x in pairs:
        for y in [(x[0] + sensitivity, x[1]), (x[0], x[1] + sensitivity)]:
            p, q = (whole_wins(verb, z, sensitivity) for z in (x, y))
            for one, other in ((p, q), (1 - p, 1 - q)):
                if min(one, other) > 1e-6:
                    worst = max(worst, abs(math.log(one / other)))
    assert 0.2 * float(LAW_EPSILON) < worst <= float(LAW_EPSILON) * (1 + 1e-6)


# --- the exact law of the splits, from the verb itself


def split_law(
    x: np.ndarray, share: Fraction, sensitivity: int, fanout: int
) -> dict[tuple[int, int], tuple[float, float]]:
    """Return, for each inner node (depth, place), the chances that it is split and that it is not.

    All draws of the nodes above are set so high that they split; the node's own threshold is then found by
    trying the verb. Nodes of one depth are looked at together, as each has a draw of its own.
    """
    n, far = x.size, 1 << 13
    sizes = [1]
    while sizes[-1] < n:
        sizes.append(sizes[-1] * fanout)
    found = {}
    above = 0
    for depth, size in enumerate(sizes[:0:-1]):
        nodes = -(-n // size)
        starts = np.arange(nodes) * size
        low, high = np.full(nodes, -far), np.full(nodes, far)
        while (high - low > 1).any():
            middle = (low + high) // 2
            script = Script([far] * above + middle.tolist(), more=lambda scale, signed: -far)
            groups = run(
                lambda c: c.partition_splits(share=share, fanout=fanout),
                x,
                script,
                epsilon=EPSILON,
                sensitivity=sensitivity,
            )
            ends = dict(itertools.pairwise(groups.starts.tolist()))
            split = np.array([ends.get(lo) != min(lo + size, n) for lo in starts.tolist()])
            low, high = np.where(split, low, middle), np.where(split, middle, high)
        assert all(script.signed)
        for place, bar in enumerate(high.tolist()):
            scale = script.scales[above + place]
            found[depth, place] = tail(bar, scale, True), rest(bar, scale, True)
        above += nodes
    return found


def split_loss(x: np.ndarray, y: np.ndarray, share: Fraction, sensitivity: int, fanout: int) -> float:
    """Return the largest privacy loss over all outcomes: a product over the nodes that are reached."""
    one, other = (split_law(v, share, sensitivity, fanout) for v in (x, y))

    def extreme(depth: int, place: int, sign: int) -> float:
        if (depth, place) not in one:
            return 0.0
        (p, stay_p), (q, stay_q) = one[depth, place], other[depth, place]
        below = sum(extreme(depth + 1, place * fanout + i, sign) for i in range(fanout))
        options = []
        if min(p, q) > 0:
            options.append(sign * math.log(p / q) + below)
        if min(stay_p, stay_q) > 0:
            options.append(sign * math.log(stay_p / stay_q))
        return max(options)

    return max(extreme(0, 0, 1), extreme(0, 0, -1))


@pytest.mark.parametrize("sensitivity", [1, 3])
@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 8)])
def test_splits_lose_at_most_their_share_for_any_unit(share: Fraction, sensitivity: int) -> None:
    budget = float(EPSILON * share)
    worst = 0.0
    wide = sensitivity / budget
    # A spike is as uneven in every node that holds it; where a threshold meets it, its path costs most.
    for n, fanout, heights in ((64, 2, (1, 2, 3, 6, 9, 15)), (5, 2, (0, 3)), (64, 4, (2, 6))):
        for height in (math.ceil(wide * h) for h in heights):
            x = np.zeros(n, np.int64)
            x[0] = height
            y = x.copy()
            y[0] += sensitivity
            worst = max(worst, split_loss(x, y, share, sensitivity, fanout))
    assert 0.5 * budget < worst <= budget


# --- public numbers that scale noise are Python integers at the door


@dataclass(frozen=True)
class Narrow:
    """Linear queries whose sensitivity is a narrow integer."""

    sensitivity: object
    n: int = 3
    size: int = 3

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return counts


def measure_narrow(curator: Curator, sensitivity: object):
    with also(Narrow):
        return curator.measure_linear(Narrow(sensitivity), share=Fraction(1))


def scale_of(verb, *, sensitivity: object) -> list[float]:
    script = Script()
    run(verb, [1, 2, 3], script, sensitivity=sensitivity)
    return script.scales


@pytest.mark.parametrize("narrow", [np.int8, np.int16, np.uint8, np.int32, np.uint64, int])
def test_narrow_integers_never_wrap_a_scale(narrow) -> None:
    one = Fraction(1)
    three, zeros = Groups.singletons(3), np.zeros(3, np.int64)
    third = Fraction(narrow(100), narrow(101))
    lo = np.arange(3, dtype=narrow)
    for units in (1025, np.int16(1025)):
        expected = 64 * 1025
        assert scale_of(lambda c: measure_narrow(c, narrow(64)), sensitivity=units) == [expected] * 3
        chosen = scale_of(lambda c: choose_planted(c, one, narrow(64)), sensitivity=units)
        assert chosen == [2 * expected] * 3
        far = lambda c: c.measure_distances(three, zeros, zeros, grid=narrow(64), share=one)  # noqa: E731
        assert scale_of(far, sensitivity=units) == [expected]
        runs = lambda c: c.measure_ranges(  # noqa: E731
            three, lo, lo + narrow(1), parts=np.ones(3, narrow), whole=narrow(64), share=one
        )
        assert scale_of(runs, sensitivity=units) == pytest.approx([expected] * 3, rel=1e-12)
        assert scale_of(lambda c: c.measure(three, share=one), sensitivity=units) == [1025] * 3
        assert scale_of(lambda c: c.measure(three, share=third), sensitivity=units)[0] >= 1025 * 1.01
        split = lambda c: c.partition_splits(share=third, fanout=narrow(2))  # noqa: E731
        assert scale_of(split, sensitivity=units)[0] >= 6 * 1025 * 1.01
        cut = lambda c: c.partition_l1(  # noqa: E731
            candidates="subtrees",
            center="median",
            one_sided=False,
            penalty=np.float16(60000),
            share=one,
            fanout=narrow(2),
        )
        assert set(scale_of(cut, sensitivity=units)) == {1025, 2050}


@pytest.mark.parametrize("bad", [True, 2.0, 2.5, "2", None, np.float16(2), 0, -1])
def test_what_is_no_whole_number_above_zero_is_refused_and_costs_nothing(bad: object) -> None:
    one = Fraction(1)
    three, zeros = Groups.singletons(3), np.zeros(3, np.int64)
    verbs = [
        lambda c: measure_narrow(c, bad),
        lambda c: choose_planted(c, one, bad),
        lambda c: c.measure_distances(three, zeros, zeros, grid=bad, share=one),
        lambda c: c.measure_ranges(
            three, np.arange(3), np.arange(1, 4), parts=np.ones(3, int), whole=bad, share=one
        ),
        lambda c: c.partition_splits(share=one, fanout=bad),
        lambda c: c.partition_l1(
            candidates="subtrees", center="median", one_sided=False, penalty=1, share=one, fanout=bad
        ),
    ]
    for verb in verbs:
        spent = []

        def tried(curator: Curator, verb=verb, spent=spent):
            try:
                verb(curator)
            finally:
                spent.append(curator.spent)

        with pytest.raises(DphistError):
            run(tried, [1, 2, 3], Script())
        assert spent == [()]


@pytest.mark.parametrize("bad", [0.5, np.float64(0.5), np.int64(1), True, 0, 2, None])
def test_a_share_is_a_fraction(bad: object) -> None:
    for verb in (
        lambda c: c.measure(Groups.singletons(3), share=bad),
        lambda c: c.partition_splits(share=bad),
        lambda c: c.scale(bad),
    ):
        with pytest.raises((PrivacyError, UsageError)):
            run(verb, [1, 2, 3], Script())
    with pytest.raises(PrivacyError, match="share"):
        MemoryLedger().charge(Fraction(1), mechanism="t", what="t").take(bad, "t")


def test_noise_whose_sums_could_wrap_is_refused_before_the_share_is_taken() -> None:
    for bins, refused in ((1 << 16, True), (1 << 12, False)):
        script = Script()

        def tried(curator: Curator, bins=bins, refused=refused):
            if refused:
                with pytest.raises(UsageError, match="would not fit"):
                    l1_verb("powers", "median", False)(curator, Fraction(1))
                assert curator.spent == ()
            else:
                assert len(l1_verb("powers", "median", False)(curator, Fraction(1))) > 1

        run(tried, np.zeros(bins, np.int64), script, epsilon=Fraction(1, 1 << 39))


def test_penalties_are_finite_and_checked_before_the_share_is_taken() -> None:
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(UsageError, match="penalty"):
            run(lambda c, bad=bad: l1_verb("powers", "mean", False, bad)(c, Fraction(1)), [1, 2], Script())
