"""The verb that lists bins has the law of noise on every bin followed by a filter, and costs its share."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest

from dphist.domain import Domain, Integers, curve
from dphist.domain.groups import Groups
from dphist.errors import PrivacyError, UsageError
from dphist.privacy import curator as module
from dphist.privacy import noise
from dphist.privacy.counts import MAX_COUNT, Counts, SparseCounts
from dphist.privacy.curator import Curator
from scripted import Script, scripted


def held(x, *, sensitivity=1, sparse=True):
    x = np.array(x)
    domain = Domain((Integers(0, x.size - 1),))
    dense = Counts(x, domain, sensitivity)
    return SparseCounts(*dense.held(), domain, sensitivity) if sparse else dense


def curator(counts, epsilon=F(1), seed=0):
    return Curator.simulated(counts, epsilon=epsilon, seed=seed)


def outcome(bins, values):
    return tuple(zip(bins.tolist(), values.tolist(), strict=True))


def alike(one: Counter, other: Counter) -> bool:
    """Return whether two samples of outcomes pass a chi-square test, at a level of about 1e-4."""
    cells = [k for k in {*one, *other} if one[k] + other[k] >= 20]
    rest = tuple(sum(side.values()) - sum(side[k] for k in cells) for side in (one, other))
    pairs = [(one[k], other[k]) for k in cells] + ([rest] if sum(rest) else [])
    n, m = sum(one.values()), sum(other.values())
    statistic = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in pairs)
    free = max(len(pairs) - 1, 1)
    # Wilson and Hilferty's approximation by a normal law.
    normal = ((statistic / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return normal < 3.7


@pytest.mark.parametrize(
    ("x", "scale", "threshold", "sensitivity"),
    [
        ((0, 2, 0), 1, 1, 1),
        ((0, 0, 4, 0, 1), F(3, 2), 2, 1),
        ((0,) * 20 + (6,) + (0,) * 19, 2, 5, 1),
        ((0, 3, 0, 0), 3, 4, 3),
    ],
)
def test_whole_outputs_have_the_law_of_noise_on_every_bin_and_a_filter(x, scale, threshold, sensitivity):
    epsilon, runs = F(sensitivity) / F(scale), 1000
    listed, filtered = Counter(), Counter()
    for seed in range(runs):
        bins, noisy = curator(held(x, sensitivity=sensitivity), epsilon, seed).list_bins(
            threshold=threshold, share=F(1)
        )
        listed[outcome(bins, noisy.values)] += 1
        every = curator(held(x, sensitivity=sensitivity), epsilon, runs + seed).measure(
            Groups.singletons(len(x)), share=F(1)
        )
        bins = np.flatnonzero(every.values >= threshold)
        filtered[outcome(bins, every.values[bins])] += 1
    assert alike(listed, filtered)


def test_the_chi_square_notices_noise_that_is_a_tenth_too_narrow():
    rng = np.random.default_rng(1)  # a public sample for a test
    draws = [np.floor(rng.exponential(s, 20_000)).astype(int) for s in (2.0, 1.8)]
    assert not alike(*(Counter(d.tolist()) for d in draws))
    assert alike(Counter(draws[0][:10_000].tolist()), Counter(draws[0][10_000:].tolist()))


def test_three_bins_enumerated():
    """In exact fractions: the product of what each bin draws is the filtered law, for every data set."""
    a, t = F(1, 3), 2

    def of_noise(z):
        return (1 - a) / (1 + a) * a ** abs(z)

    def tail(k):
        return a**k / (1 + a) if k >= 0 else 1 - a ** (1 - k) / (1 + a)

    p = tail(t)
    for x in itertools.product((0, 1, 3), repeat=3):
        for out in itertools.product([None, *range(t, t + 6)], repeat=3):
            dense = sparse = F(1)
            for count, shown in zip(x, out, strict=True):
                direct = 1 - tail(t - count) if shown is None else of_noise(shown - count)
                lifted = 1 - p if shown is None else p * (1 - a) * a ** (shown - t)
                dense, sparse = dense * direct, sparse * (direct if count else lifted)
            assert dense == sparse


def run_scripted(counts, hit, values, threshold=5, epsilon=F(1)):
    """Run the verb with hits and draws that a test sets; return its result and what was asked for."""
    asked = {}

    def lifted(self, *, sensitivity, threshold, n):
        asked.update(sensitivity=sensitivity, threshold=threshold, n=n)
        return np.array(hit, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch, scripted(Script(list(values))) as script:
        patch.setattr(noise.Draws, "lifted", lifted)
        bins, noisy = curator(counts, epsilon).list_bins(threshold=threshold, share=F(1))
    return bins.tolist(), noisy.values.tolist(), asked, script


def test_hits_on_bins_with_records_are_thrown_away_and_others_pass_at_the_threshold():
    counts = held([0, 9, 0, 3, 0, 4])
    # Draws: three of bins 1, 3, 5, then two of the empty bins that were hit.
    bins, values, asked, script = run_scripted(counts, [0, 1, 3, 4], [-1, 1, 1, 0, 7])
    assert (bins, values) == ([0, 1, 4, 5], [5, 8, 12, 5]), "8 = 9 - 1; 4 + 1 reaches 5, 3 + 1 does not"
    assert asked == {"sensitivity": 1, "threshold": 5, "n": 6}
    assert script.signed == [True] * 3 + [False] * 2
    assert script.scales == [1.0] * 5


def test_every_draw_is_as_wide_as_the_unit_needs():
    *_, asked, script = run_scripted(held([0, 9, 0], sensitivity=3), [0], [0, 0])
    assert script.scales == [3.0, 3.0]
    assert asked["sensitivity"] == 3


def test_what_is_drawn_for_empty_bins_does_not_depend_on_the_data():
    """With the same digits, neighbours differ in the bin that the record moved alone."""
    x = [0, 0, 40, 0, 0, 0, 7, 0]
    for bin in range(8):
        more = list(x)
        more[bin] += 1
        pairs = []
        for y in (x, more):
            bins, noisy = curator(held(y), F(1), 3).list_bins(threshold=1, share=F(1))
            pairs.append(dict(outcome(bins, noisy.values)))
        if not x[bin]:
            continue  # it now draws its own noise, in the order of the bins
        assert {k for k in {*pairs[0], *pairs[1]} if pairs[0].get(k) != pairs[1].get(k)} <= {bin}


def test_a_listing_spends_its_share_and_says_so():
    one = curator(held([3, 0]), F(1))
    one.list_bins(threshold=40, share=F(1, 4))
    assert [(s.share, s.epsilon) for s in one.spent] == [(F(1, 4), F(1, 4))]
    with pytest.raises(PrivacyError):
        one.list_bins(threshold=40, share=F(4, 5))


@pytest.mark.parametrize(("threshold", "words"), [(0, "at least 1"), (1, "empty bins would be listed")])
def test_what_cannot_be_listed_is_refused_before_the_share_is_taken(threshold, words):
    domain = Domain((Integers(0, 2**40),))
    one = curator(SparseCounts(np.array([5]), np.array([2]), domain), F(1))
    with pytest.raises(UsageError, match=words):
        one.list_bins(threshold=threshold, share=F(1))
    assert one.spent == ()


def test_a_curator_of_groups_has_their_totals_and_the_same_account():
    x = np.arange(10)
    one = curator(held(x, sensitivity=2), F(10**6))
    groups = Groups([0, 3, 4, 10])
    few = one.gather(groups)
    assert (few.domain.n, few.sensitivity, few.epsilon) == (3, 2, one.epsilon)
    assert few.measure(Groups.singletons(3), share=F(1, 2)).values.tolist() == [3, 3, 39]
    assert one.spent == few.spent
    assert len(one.spent) == 1
    with pytest.raises(PrivacyError):
        one.measure(Groups.whole(10), share=F(3, 4))
    with pytest.raises(PrivacyError, match="must be a Groups"):
        one.gather(type("Mine", (Groups,), {})([0, 10]))


def test_totals_of_groups_are_cut_off_and_never_refused():
    domain = Domain((Integers(0, 2**40),))
    counts = SparseCounts(np.array([1, 2, 7]), np.array([MAX_COUNT, MAX_COUNT, 3]), domain)
    few = curator(counts, F(10**6)).gather(Groups([0, 5, 2**40 + 1]))
    assert few.measure(Groups.singletons(2), share=F(1)).values.tolist() == [MAX_COUNT, 3]


def test_a_sparse_curator_measures_what_a_dense_one_does():
    rng = np.random.default_rng(2)
    x = np.where(rng.random(4096) < 0.05, rng.integers(1, 50, 4096), 0)
    groups = Groups(np.unique(np.append(rng.integers(1, 4096, 60), [0, 4096])))
    lo = np.arange(0, groups.k - 1)
    parts = np.ones(lo.size, dtype=np.int64)

    def measured(counts):
        one = curator(counts, F(1), 8)
        yield one.measure(groups, share=F(1, 4)).values
        yield one.measure_ranges(groups, lo, lo + 2, parts=parts, whole=2, share=F(1, 4)).values
        zeros = np.zeros(groups.k, dtype=np.int64)
        yield one.measure_distances(groups, zeros, zeros, grid=4, share=F(1, 4)).values
        yield one.partition_splits(share=F(1, 8)).starts
        yield one.list_bins(threshold=3, share=F(1, 8))[0]

    for one, other in zip(measured(held(x)), measured(held(x, sparse=False)), strict=True):
        assert np.array_equal(one, other)


def test_splits_of_counts_beyond_every_cap_stay_inside_whole_numbers():
    domain = Domain((Integers(0, 2**50),))
    cells = np.arange(400) * 3
    counts = SparseCounts(cells, np.full(400, MAX_COUNT), domain)  # 400 * 2^53 is beyond 2^61
    groups = curator(counts, F(1), 1).partition_splits(share=F(1))
    assert groups.n == 2**50 + 1
    assert groups.k > 400, "every full bin stands out"


def test_no_text_of_counts_or_curator_tells_how_many_bins_hold_records():
    domain = Domain((Integers(0, 2**50),))
    for many in (3, 4321):
        counts = SparseCounts(np.arange(many), np.ones(many, dtype=np.int64), domain)
        words = f"{counts!r} {curator(counts)!r}"
        assert words == words.replace("3", "").replace("4321", "") or "4321" not in words
        with pytest.raises(UsageError) as refused:
            counts.values  # noqa: B018
        assert "listed, dawa2 or uniform" in str(refused.value)
        assert str(many) not in str(refused.value).replace(f"{domain.n:,}", "")


def test_expected_lifts_have_a_limit():
    assert module.MOST_LIFTED == 1 << 24


def test_along_the_curve_every_cell_keeps_its_own_count():
    shape = (5, 3)
    x = np.arange(15).reshape(shape) * 7 % 15
    domain = Domain(tuple(Integers(0, side - 1) for side in shape))
    made = Curator.simulated(Counts(x, domain), epsilon=F(10_000), seed=1)  # whose noise is all zeros
    moved = made.along_curve().measure(Groups.singletons(64), share=F(1)).values
    assert moved[curve.places(*np.indices(shape))].tolist() == x.tolist()
    assert moved.sum() == x.sum()
