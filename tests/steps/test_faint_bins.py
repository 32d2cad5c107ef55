"""Bins that noise would drown are grouped; those that can be seen, many or few, are left alone."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.methods.catalogue import make_pipeline
from dphist.planning import shapes
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate, partition
from dphist.steps.partition import private
from dphist.uncertainty.models import GroupTotals

N, EPSILON = 1024, Fraction(1, 100)
FAINT = shapes.draw("smooth", n=N, records=15 * N)
FEW_STAND_OUT = shapes.draw("sparse", n=N, records=15 * N)
ALL_STAND_OUT = shapes.draw("smooth", n=N, records=1000 * N)


def values(x, *, epsilon=EPSILON, seed=0, intervals=False):
    domain = Domain((Integers(0, len(x) - 1),))
    queries = make_workload("points", domain)
    made = make_pipeline("average2", domain, queries)
    made = made.with_intervals() if intervals else made
    curator = Curator.simulated(Counts(np.asarray(x), domain), epsilon=Fraction(epsilon), seed=seed)
    return made, curator, *made.values(curator, queries)


def grouped(x, *, trials=20):
    """Return how often bins are grouped."""
    return sum(not values(x, seed=seed)[2].are_singletons for seed in range(trials)) / trials


class TestTheQuestion:
    def test_faint_bins_are_grouped_and_others_are_not(self):
        assert grouped(FAINT) >= 0.8
        assert grouped(FEW_STAND_OUT) <= 0.1
        assert grouped(ALL_STAND_OUT, trials=5) == 0

    @pytest.mark.parametrize(("found", "alone"), [(-0.03, True), (-0.05, False), (0.5, True)])
    def test_the_bar_is_a_twenty_fifth_of_a_scale_for_each_bin(self, monkeypatch, found, alone):
        scale = 100.0  # of the noise that all of epsilon pays for
        monkeypatch.setattr(private, "above", lambda curator, level, share: (found * N * scale, 1e-3))
        domain = Domain((Integers(0, N - 1),))
        curator = Curator.simulated(Counts(np.zeros(N, np.int64), domain), epsilon=EPSILON, seed=1)
        order = np.random.default_rng(1).permutation(N)
        groups = partition.FaintBins()(curator, None, order, share=Fraction(1, 10), later=Fraction(9, 10))
        assert groups.are_singletons == alone and np.array_equal(groups.order, order)

    def test_so_little_epsilon_that_no_noise_is_wide_enough_asks_nothing(self):
        n = 100_000
        domain = Domain((Integers(0, n - 1),))
        curator = Curator.simulated(Counts(np.zeros(n, np.int64), domain), epsilon=Fraction(1, 10**9), seed=1)
        made = make_pipeline("average2", domain, make_workload("points", domain))
        groups, _ = made.values(curator, make_workload("points", domain))
        assert groups.are_singletons and len(curator.spent) == 1 and curator.spent[0].share == 1

    def test_a_question_without_its_level_would_tell_them_apart_no_more(self, monkeypatch):
        above = private.above
        monkeypatch.setattr(private, "above", lambda curator, level, share: above(curator, 0, share))
        assert grouped(FAINT, trials=5) == grouped(FEW_STAND_OUT, trials=5) == 0

    @given(arrays.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 10**6)), st.integers(1, 10**6))
    @settings(max_examples=40, deadline=None)
    def test_it_is_twice_the_records_above_the_level_less_all(self, x, level):
        domain = Domain((Integers(0, x.size - 1),))
        curator = Curator.simulated(Counts(x, domain), epsilon=Fraction(10**6), seed=0)
        found, noise = private.above(curator, level, Fraction(1, 2))
        assert found == 2 * np.maximum(x - level, 0).sum() - x.sum() and noise < 0.01

    def test_bins_that_stand_out_are_asked_about_once_and_the_rest_is_theirs(self):
        made, curator, groups, found = values(ALL_STAND_OUT)
        asked, rest = (part.share for part in curator.spent)
        assert groups.are_singletons and isinstance(found.by, estimate.Averaged)
        assert asked == made.split.partition / 14 == Fraction(1, 4 * 32) and asked + rest == 1

    def test_faint_bins_are_asked_about_twice(self):
        _, curator, groups, found = values(FAINT)
        first, second, *others = (part.share for part in curator.spent)
        assert not groups.are_singletons and found.by is None
        assert 5 * first == second and first + second + sum(others) == 1

    def test_noise_below_a_record_leaves_nothing_to_ask(self):
        _, curator, groups, _ = values(np.zeros(N, dtype=np.int64), epsilon="0.5")
        assert groups.are_singletons and [part.share for part in curator.spent] == [1]

    def test_few_bins_and_grids_are_never_grouped(self):
        for shape, asks in (((1,), False), ((256,), False), ((257,), True), ((40, 40), False)):
            made = make_pipeline("average2", Domain(tuple(Integers(0, n - 1) for n in shape)))
            assert isinstance(made.partition, partition.FaintBins) == asks


@pytest.mark.parametrize("epsilon", ["1e-9", "0.01", "1000000"])
@pytest.mark.parametrize("n", [1, 2, 3, 257])
def test_any_number_of_bins_and_any_epsilon(n, epsilon):
    x = np.arange(n) % 5
    domain = Domain((Integers(0, n - 1),))
    share = Fraction(1, 4)
    pipeline = dphist.Pipeline(
        partition=partition.FaintBins(),
        estimate=estimate.AveragedTree(flat=True),
        split=dphist.Split(partition=share, estimate=1 - share),
        calibrate=Fraction(1, 20),
    )
    for seed in range(5):
        curator = Curator.simulated(Counts(x, domain), epsilon=Fraction(epsilon), seed=seed)
        release = pipeline.run(curator, make_workload("points", domain))
        low, high = release.intervals()
        assert np.isfinite(release.raw).all() and (low <= high).all()
        assert sum(part.share for part in curator.spent) == 1
        if epsilon == "1000000":
            assert np.array_equal(release.raw, x)


class TestIntervals:
    def test_every_bin_and_range_of_grouped_bins_has_one_that_mostly_holds(self):
        lo = np.repeat(np.arange(0, N, 32), 4)
        hi = np.minimum(lo + np.tile([1, 20, 150, 700], N // 32), N)
        exact = np.concatenate(([0], np.cumsum(FAINT)))
        held, ranges = [], []
        for seed in range(12):
            made, curator, groups, found = values(FAINT, seed=seed, intervals=True)
            if groups.are_singletons:
                continue
            release = made.wrap(curator, make_workload("points", curator.domain), groups, found)
            low, high = release.intervals()
            told = release.sum(lo, hi)
            held.append(np.mean((low <= FAINT) & (high >= FAINT)))
            ranges.append(np.mean((told.low <= exact[hi] - exact[lo]) & (exact[hi] - exact[lo] <= told.high)))
            assert release.error.is_calibrated and np.isfinite(release.intervals(most=True)).all()
        assert len(held) >= 8 and np.mean(held) >= 0.9 and np.mean(ranges) >= 0.9

    def test_bins_that_are_left_alone_have_those_of_average(self):
        made, curator, groups, found = values(ALL_STAND_OUT, intervals=True)
        release = made.wrap(curator, make_workload("points", curator.domain), groups, found)
        assert isinstance(found.error, GroupTotals) and not release.error.is_calibrated
        assert release.error.to_dict()["risk"] is not None, "its error is estimated, as that of average is"
        assert np.isfinite(release.intervals(most=True)).all()


def test_with_a_prior_every_bin_is_left_alone():
    plan = dphist.Plan(bins=N, range=(0, N), epsilon=EPSILON, prior=FAINT, public_prior=True)
    assert plan.pipeline.choice == "average" and plan.pipeline.split.estimate == 1
    assert isinstance(plan.pipeline.estimate, estimate.Averaged) and not plan.pipeline.calibrate


def test_groups_take_much_off_the_error_of_faint_bins():
    ours, plain = (
        np.abs(dphist.simulate(FAINT, epsilon=EPSILON, method=m, trials=12) - FAINT).mean()
        for m in ("average2", "average")
    )
    assert ours < 0.8 * plain
