"""The door: what each verb returns, what it refuses, and that its sensitivity is what it says."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import also
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups, frozen
from dphist.errors import PrivacyError, UsageError
from dphist.privacy import queries
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import MemoryLedger
from dphist.uncertainty import noise_law

ONE = Fraction(1)


def held(values, sensitivity=1):
    return Counts(np.asarray(values), Domain((Integers(0, len(values) - 1),)), sensitivity)


def curator(values, *, epsilon=Fraction(1), seed=0, sensitivity=1):
    return Curator.simulated(held(values, sensitivity), epsilon=epsilon, seed=seed)


def test_at_a_huge_epsilon_every_verb_tells_the_truth():
    x = np.array([5, 0, 3, 8, 1, 1])
    sure = curator(x, epsilon=Fraction(10**6))
    groups = Groups(np.array([0, 2, 6]), np.array([3, 0, 1, 2, 4, 5]))
    assert sure.measure(groups, share=Fraction(1, 4)).values.tolist() == [13, 5]
    runs = sure.measure_ranges(
        Groups.singletons(6),
        np.array([0, 2, 0]),
        np.array([6, 4, 1]),
        parts=np.array([1, 1, 0]),
        whole=2,
        share=Fraction(1, 4),
    )
    assert runs.values.tolist() == [18, 11, 0]
    assert runs.scale[2] == np.inf
    assert sure.choose(queries.Cuts(np.array([0, 6]), 2), share=Fraction(1, 4)) == 1  # 5 | 0 3 8 1 1
    assert (
        sure.measure_linear(queries.Multiples(6, 2), share=Fraction(1, 4)).values.tolist() == (2 * x).tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_measured_noise_has_the_variance_of_sensitivity_over_epsilon(sensitivity):
    n, epsilon = 200_000, Fraction(1, 2)
    noisy = curator(np.zeros(n, int), epsilon=epsilon, sensitivity=sensitivity).measure(
        Groups.singletons(n), share=Fraction(1, 2)
    )
    want = noise_law.variance(sensitivity / 0.25)
    seen = noisy.values.var()
    assert noisy.variance == pytest.approx(want, rel=1e-12)
    assert seen == pytest.approx(want, rel=0.03)
    for wrong in (0.9, 1.1):  # the test must be able to tell a scale that is off by a tenth
        assert seen != pytest.approx(noise_law.variance(wrong * sensitivity / 0.25), rel=0.03)


def test_per_run_budgets_set_per_run_scales():
    noisy = curator(np.zeros(4, int)).measure_ranges(
        Groups.singletons(4),
        np.array([0, 0, 2]),
        np.array([4, 2, 4]),
        parts=np.array([1, 3, 2]),
        whole=4,
        share=ONE,
    )
    assert noisy.scale == pytest.approx([4, 4 / 3, 2], rel=1e-12)
    exact = [Fraction(4), Fraction(4, 3), Fraction(2)]
    assert all(Fraction(float(s)) >= e for s, e in zip(noisy.scale, exact, strict=True)), (
        "rounded up, never down"
    )


@st.composite
def runs(draw):
    k = draw(st.integers(1, 12))
    m = draw(st.integers(1, 10))
    lo = [draw(st.integers(0, k - 1)) for _ in range(m)]
    hi = [draw(st.integers(a + 1, k)) for a in lo]
    parts = [draw(st.integers(0, 5)) for _ in range(m)]
    return k, lo, hi, parts, draw(st.integers(1, 12))


@given(runs())
def test_runs_are_refused_exactly_when_some_group_would_be_charged_more_than_the_whole(case):
    k, lo, hi, parts, whole = case
    door = curator(np.zeros(k, int))
    worst = max(sum(p for a, b, p in zip(lo, hi, parts, strict=True) if a <= j < b) for j in range(k))
    call = dict(parts=np.array(parts), whole=whole, share=ONE)
    if worst <= whole and max(parts) <= whole:
        door.measure_ranges(Groups.singletons(k), np.array(lo), np.array(hi), **call)
        assert door.spent[0].epsilon == 1
    else:
        with pytest.raises(PrivacyError):
            door.measure_ranges(Groups.singletons(k), np.array(lo), np.array(hi), **call)
        assert door.spent == ()


@pytest.mark.parametrize("place", [0, (1 << 15) - 1, 1 << 15, (1 << 16) + 2])
def test_of_very_many_runs_each_counts_wherever_it_stands(place):
    many = (1 << 16) + 3
    groups, lo = Groups.singletons(many), np.arange(many)
    lo[-1] = place  # once more
    parts = np.full(many, 2)
    door = curator(np.arange(many), epsilon=10**9)
    if place < many - 1:
        with pytest.raises(PrivacyError, match="4 parts of 3"):
            door.measure_ranges(groups, lo, lo + 1, parts=parts, whole=3, share=ONE)
        assert door.spent == ()
        parts[place] = 1
    told = door.measure_ranges(groups, lo, lo + 1, parts=parts, whole=3, share=ONE)
    assert told.values.tolist() == lo.tolist()


@pytest.mark.parametrize(
    ("lo", "hi", "parts", "whole"),
    [
        ([0], [5], [1], 1),
        ([-1], [2], [1], 1),
        ([2], [2], [1], 1),
        ([], [], [], 1),
        ([0], [1], [0.5], 1),
        ([0, 1], [1], [1], 1),
        ([0], [1], [-1], 1),
        ([0], [1], [1], 0),
        ([0], [1], [1], 1 << 41),
    ],
)
def test_runs_that_make_no_sense_are_refused_and_cost_nothing(lo, hi, parts, whole):
    door = curator([1, 2, 3])
    with pytest.raises((UsageError, PrivacyError)):
        door.measure_ranges(
            Groups.singletons(3), np.array(lo), np.array(hi), parts=np.array(parts), whole=whole, share=ONE
        )
    assert door.spent == ()


def test_shares_beyond_the_whole_are_refused_before_any_draw():
    door = curator([1, 2, 3])
    door.measure(Groups.singletons(3), share=Fraction(2, 3))
    with pytest.raises(PrivacyError):
        door.measure(Groups.singletons(3), share=Fraction(1, 2))
    door.measure(Groups.whole(3), share=Fraction(1, 3))
    assert [s.share for s in door.spent] == [Fraction(2, 3), Fraction(1, 3)]
    assert sum(s.epsilon for s in door.spent) == 1


def test_a_partition_of_another_domain_is_refused():
    with pytest.raises(UsageError, match="4 bins"):
        curator([1, 2, 3]).measure(Groups.singletons(4), share=ONE)


def test_only_real_groups_are_shown_the_counts():
    class Spy(Groups):
        def totals(self, x):
            raise AssertionError("the counts got out")

    door = curator([1, 2, 3])
    with pytest.raises(PrivacyError, match="Spy"):
        door.measure(Spy(np.array([0, 3])), share=ONE)
    assert door.spent == ()


@dataclass(frozen=True)
class BinCounts:
    """A score planted here: each bin's own count, so that the fullest bin is chosen."""

    n: int
    sensitivity: int = 1

    @property
    def size(self):
        return self.n

    def __call__(self, counts):
        return counts


def test_a_score_whose_number_depends_on_the_data_is_refused_and_costs_nothing():
    class Filled(BinCounts):
        def __call__(self, counts):
            return counts[counts > 0]

    door = curator([1, 0, 3])
    with also(Filled), pytest.raises(PrivacyError, match="as many as it declares"):
        door.choose(Filled(3), share=ONE)
    assert door.spent == ()


def test_scores_of_any_size_are_taken():
    class Huge(BinCounts):
        def __call__(self, counts):
            return np.where(counts > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)

    with also(Huge):
        for seed in range(20):  # with noise, most of which would wrap the largest score around
            door = curator([0, 5, 0], epsilon=Fraction(1, 100), seed=seed)
            assert door.choose(Huge(3), share=ONE) == 1


def test_the_curator_shows_no_count():
    door = curator([111, 222, 333])
    assert "222" not in repr(door)
    assert not [name for name in vars(door) if not name.startswith("_Curator__")]


@pytest.mark.slow
def test_choice_follows_the_law_of_permute_and_flip_and_not_of_a_wrong_scale():
    # Two candidates d apart with one-sided geometric noise: the lower one wins with a known probability.
    d, epsilon, runs_ = 2, 0.8, 20_000
    with also(BinCounts):
        picks = np.array(
            [
                curator([5 + d, 5], epsilon=Fraction(4, 5), seed=s).choose(BinCounts(2), share=ONE)
                for s in range(runs_)
            ]
        )

    def lower_wins(scale):  # first of equals is the higher one
        a = np.exp(-1 / scale)
        return a ** (d + 1) / (1 + a)

    sd = np.sqrt(0.2 / runs_)
    assert abs(picks.mean() - lower_wins(2 / epsilon)) < 4 * sd
    for wrong in (0.8, 1.25):
        assert abs(picks.mean() - lower_wins(2 * wrong / epsilon)) > 4 * sd


@given(
    x=st.lists(st.integers(0, 50), min_size=2, max_size=10),
    extra=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    cuts=st.sets(st.integers(1, 9), max_size=5),
)
def test_totals_of_disjoint_groups_move_by_no_more_than_the_unit(x, extra, cuts):
    n = len(x)
    before = np.array(x)
    after = before.copy()
    for i in extra:
        after[i % n] += 1
    groups = Groups(np.array([0, *sorted(c for c in cuts if c < n), n]))
    assert np.abs(groups.totals(after) - groups.totals(before)).sum() <= len(extra)


def test_the_secure_curator_never_repeats_itself_and_is_not_simulated():
    def once():
        charge = MemoryLedger().charge(Fraction(1, 100), mechanism="t", what="t")
        door = Curator(held(np.zeros(50, int)), charge)
        assert not door.is_simulated
        return door.measure(Groups.singletons(50), share=ONE).values.tolist()

    assert once() != once()
    assert curator(np.zeros(3, int)).is_simulated


def test_runs_that_nobody_can_change_are_taken_as_they_are():
    lo, hi, parts = np.array([0, 1, 0]), np.array([4, 3, 2]), np.array([1, 0, 1])
    asked = []
    for made in (lambda a: a, lambda a: frozen(a.astype(np.int32)), lambda a: frozen(a.copy())):
        given = [made(a) for a in (lo, hi, parts)]
        door = curator(np.array([5, 6, 7, 8]))
        asked.append(
            door.measure_ranges(Groups.singletons(4), *given[:2], parts=given[2], whole=2, share=ONE)
        )
    assert {tuple(found.values) for found in asked} == {tuple(asked[0].values)}
    assert asked[0].values[1] == 0, "what has no part is not measured"
