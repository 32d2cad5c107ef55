"""High bins that are set aside: when they are, and what the others gain."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import naive_averaging as naive
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.kernels.averaging import apart, dyadic
from dphist.kernels.averaging.apart import left_where_far
from dphist.kernels.averaging.partitions import dyadic_average
from dphist.methods.catalogue import make_pipeline
from dphist.planning import shapes
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps.estimate import Averaged
from dphist.steps.prior import Prior


def noisy(x, scale, seed=0):
    return x + np.rint(np.random.default_rng(seed).laplace(0, scale, len(x)))


def one_spike(n=512, *, level=0, at=100, height=10_000):
    x = np.full(n, level)
    x[at] = height
    return x


def naive_evidence(y, scale, shifts):
    """Return the mean log evidence of some trees, by their definition."""
    n, found = y.size, []
    trust = n / (n + dyadic.FEW)
    odds = dyadic.first_odds(1, trust)
    for k in range(shifts):
        tables, spike = dyadic.tables_for(len(dyadic.SCALES)), dyadic.SPIKE * trust
        tree = naive.Tree(y / scale, [np.ones(n)], naive.places(n, None, k), tables, spike)
        for _ in range(dyadic.ROUNDS if k == 0 else 0):
            odds = dyadic.next_odds(tree.average(odds)[3], trust)
        found.append(tree.average(odds)[0])
    return np.mean(found)


@pytest.mark.parametrize("n", [8, 21, 64, 100])
def test_the_evidence_is_that_of_all_partitions(n):
    for x in (one_spike(n, at=n // 3, height=900), np.arange(n) % 5 * 40, np.zeros(n)):
        y = noisy(x, 10.0, n)
        for shifts in (1, 3):
            found = dyadic.log_evidence(y, 10.0, shifts=shifts)
            assert found == pytest.approx(naive_evidence(y, 10.0, shifts), abs=0.01)


def test_what_is_weighed_is_both_explanations():
    y, scale = noisy(one_spike(64, at=20, height=900), 10.0), 10.0
    high = np.arange(64) == 20
    likely, others = 1.5 / 65, y[~high]
    alone = math.log(likely / (2 * (y[20] / scale + 2)))
    rest = 63 * math.log(1 - likely) + naive_evidence(others, scale, 4)
    expected = alone + rest - naive_evidence(y, scale, 4)
    assert apart.evidence_without(y, scale, high) == pytest.approx(expected, abs=0.01)


class TestWhoIsSetAside:
    @pytest.mark.parametrize("at", [100, 301, 511])
    @pytest.mark.parametrize("level", [0, 50])
    def test_a_bin_high_above_bins_that_are_alike(self, at, level):
        found = apart.standing_apart(noisy(one_spike(level=level, at=at), 10.0), 10.0)
        assert np.flatnonzero(found).tolist() == [at]

    def test_by_more_than_two_scales_and_the_logarithm_of_all_bins(self, monkeypatch):
        monkeypatch.setattr(apart, "evidence_without", lambda *_: 9.0)
        for n in (64, 512):
            bar = (2 + math.log(n)) * 10.0
            for above, aside in ((1.0, True), (-1.0, False)):
                y = np.zeros(n)
                y[[7, 30]] = bar + above
                y[31] = 2.0 * (above > 0)  # the higher neighbour counts
                found = np.flatnonzero(apart.standing_apart(y, 10.0)).tolist()
                assert found == ([7] if aside else [])

    @pytest.mark.parametrize(("nats", "aside"), [(2.9, False), (3.1, True)])
    def test_only_if_the_evidence_is_much_better(self, monkeypatch, nats, aside):
        monkeypatch.setattr(apart, "evidence_without", lambda *_: nats)
        assert apart.standing_apart(one_spike().astype(float), 10.0).any() == aside

    def test_nobody_among_bins_in_heaps_or_that_differ_or_two_high_ones_together(self):
        n = 500
        heaps = shapes.draw("heaps", n=n, records=300 * n)
        differ = np.random.default_rng(2).integers(0, 3000, n)
        pair = one_spike(n)
        pair[101] = 9_950
        for x in (
            heaps,
            differ,
            pair,
            np.zeros(n, dtype=np.int64),
            shapes.draw("smooth", n=n, records=99 * n),
        ):
            assert not apart.standing_apart(noisy(x, 10.0), 10.0).any()

    def test_few_bins_have_nobody(self):
        assert not apart.standing_apart(one_spike(7, at=3).astype(float), 10.0).any()
        for n in (1, 2):
            assert not apart.standing_apart(np.full(n, 900.0), 10.0).any()

    def test_of_very_many_bins_some_are_asked(self, monkeypatch):
        seen, weigh = [], apart.evidence_without
        monkeypatch.setattr(
            apart, "evidence_without", lambda y, *rest: seen.append(y.size) or weigh(y, *rest)
        )
        n = dyadic.LEARN + 5000
        x = np.zeros(n)
        x[::997] = 50_000
        found = apart.standing_apart(noisy(x, 10.0), 10.0)
        assert np.array_equal(found, x > 0) and seen == [dyadic.LEARN]


class TestAverages:
    def test_the_others_are_averaged_as_if_there_were_no_high_bin(self):
        y = noisy(one_spike(level=20), 10.0)
        high = np.arange(512) == 100
        found = apart.averaged_apart(y, 10.0, high)
        assert found[100] == y[100]
        assert np.array_equal(found[~high], dyadic_average(y[~high], 10.0)[0])
        rows = apart.averaged_apart(np.stack((y, -y)), 10.0, high)
        assert np.allclose(rows[0], found) and rows[1, 100] == 0

    def test_a_flat_line_with_one_high_bin_has_less_error(self):
        x = one_spike(level=20)
        both = [
            (
                np.abs(apart.averaged_apart(y, 20.0, apart.standing_apart(y, 20.0)) - x).mean(),
                np.abs(dyadic_average(y, 20.0)[0] - x).mean(),
            )
            for y in (noisy(x, 20.0, seed) for seed in range(12))
        ]
        ours, plain = np.mean(both, axis=0)
        assert ours < 0.9 * plain

    def test_bins_that_stand_out_from_the_noise_are_not_lost_among_empty_ones(self):
        x = np.zeros(1000, dtype=np.int64)
        x[[100, 350, 777]] = 20_000, 3_000, 130  # the last has 13 scales of noise
        found = []
        for seed in range(20):
            y = noisy(x, 10.0, seed)
            aside = apart.standing_apart(y, 10.0)
            assert aside[[100, 350]].all()
            found.append(apart.averaged_apart(y, 10.0, aside)[777])
        assert np.mean(found) == pytest.approx(130, abs=12)

    def test_the_step_sets_bins_of_lines_aside_and_no_others(self, monkeypatch):
        seen = []
        monkeypatch.setattr(apart, "standing_apart", lambda y, s: seen.append(s) or np.zeros(y.size, bool))
        line, grid = Domain((Integers(0, 299),)), Domain((Integers(0, 19), Integers(0, 14)))
        prior = Prior(np.ones(300), "public counts")
        for domain, step in ((grid, Averaged()), (line, Averaged(prior=prior)), (line, Averaged())):
            queries = make_workload("points", domain)
            counts = Counts(np.zeros(domain.shape, dtype=np.int64), domain)
            made = make_pipeline("average", domain)
            curator = Curator.simulated(counts, epsilon=Fraction(1), seed=0)
            replace(made, estimate=step).values(curator, queries)
        assert seen == [1.0]


@pytest.mark.parametrize("shape", [(100,), (10, 10), (30, 30), (4096,), (64, 64)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bin_that_no_noise_can_explain_is_as_it_was_measured(shape, sign):
    n = math.prod(shape)
    bar = math.log(n) + 4  # noise scales
    grid = shape if len(shape) == 2 else None
    for away, kept in ((bar + 2, True), (bar - 2, False)):
        y = 400 + np.random.default_rng(n).laplace(0, 10, n).clip(-50, 50)
        y[n // 2] = 400 + sign * 10 * away
        made = dyadic_average(y, 10.0, shape=grid)[0]
        left = left_where_far(y, made.copy(), 10.0)
        assert (abs(left - y) <= 10 * bar).all()
        if n > 500:  # of few bins the averages themselves come half of the way
            assert (left[n // 2] == y[n // 2]) == kept
        others = np.arange(n) != n // 2
        assert (left[others] == made[others]).all()
    if n > 1000:
        assert made[n // 2] == pytest.approx(400, abs=20), "averages alone would hide it"


def test_bins_that_are_left_are_not_negative_and_rows_are_judged_each_by_itself():
    made = left_where_far(np.array([[-50.0, 3.0], [2.0, 40.0]]), np.array([[1.0, 3.0], [2.0, 2.0]]), 1.0)
    assert made.tolist() == [[0.0, 3.0], [2.0, 40.0]]
    assert left_where_far(np.array([9.0]), np.array([8.0]), 0.5).tolist() == [8.0]
    bar = math.log(2) + 4
    made = left_where_far(np.array([bar + 1.01, bar + 0.99]), np.ones(2), 1.0)
    assert made.tolist() == [bar + 1.01, 1.0], "farther than log n and 4 scales"


@pytest.mark.parametrize("edge", [-20.0, -25.0, -60.0])
def test_a_bin_below_0_beside_a_much_lower_one_has_an_evidence_too(edge):
    """Noise may leave such a bin high above its only neighbour, and it is no likelier a spike for that."""
    y = np.concatenate((np.zeros(38), [edge - 60.0, edge]))
    high = np.arange(40) == 39
    found = apart.evidence_without(y, 10.0, high)
    assert math.isfinite(found)
    assert apart.standing_apart(y, 10.0).tolist() in (high.tolist(), [False] * 40)
