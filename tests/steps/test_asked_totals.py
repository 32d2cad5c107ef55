"""How a total is asked for, what it decides, and what is spent on either way."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods import rehearsal
from dphist.methods.catalogue import make_pipeline
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import order, partition
from dphist.steps.partition import private

SHARES = {"share": Fraction("0.16"), "later": Fraction("0.84")}


def curator(x, *, epsilon="1", seed=0, sensitivity=1):
    domain = Domain(tuple(Integers(0, n - 1) for n in np.shape(x)))
    return Curator.simulated(Counts(np.asarray(x), domain, sensitivity), epsilon=Fraction(epsilon), seed=seed)


def parts(made):
    return [part.share / SHARES["share"] for part in made.spent]


def ask_and_say_no(self, made, share):
    private.above(made, 1, share)
    return False


@pytest.mark.parametrize(
    ("found", "twice"), [(116.0, False), (114.0, True), (99.0, True), (20.0, True), (-500.0, True)]
)
def test_a_number_is_asked_for_once_more_unless_it_is_surely_above_the_bar(found, twice):
    answers, asked = iter([(found, 10.0), (50.0, 5.0)]), []

    def ask(share):
        asked.append(share)
        return next(answers)

    first, second = Fraction(1, 4), Fraction(3, 4)
    got, noise = private._asked(ask, first, second, bar=100.0)
    assert noise == (5.0 if twice else 10.0)
    assert asked == ([first, second] if twice else [first])
    # Weighted by the variances, of which the second is a quarter of the first.
    assert got == pytest.approx(0.2 * found + 0.8 * 50.0 if twice else found)


class TestScarce:
    @pytest.mark.parametrize("sensitivity", [1, 7])
    @pytest.mark.parametrize(("found", "few"), [(0, True), (249, True), (251, False), (400, False)])
    def test_the_bar_is_so_many_scales_of_all_of_epsilon(self, monkeypatch, found, few, sensitivity):
        scale = 100.0 * sensitivity
        monkeypatch.setattr(private, "total", lambda *_: (found * scale, 1e-3))
        monkeypatch.setattr(private, "_even", lambda *_: None)
        made = curator(np.zeros(512, dtype=np.int64), epsilon="0.01", sensitivity=sensitivity)
        partition.Splits(scarce=250.0)(made, None, None, **SHARES)
        assert parts(made) == ([Fraction(50, 64)] if few else [Fraction(1, 30), Fraction(14, 30)])

    @pytest.mark.parametrize(("above", "times"), [(5.1, 1), (4.9, 2), (-1.6, 2)])
    def test_it_is_asked_for_twice_up_to_five_scales_above(self, monkeypatch, above, times):
        asked, noise = [], 1000.0

        def total(_, share):
            asked.append(share / SHARES["share"])
            return 250.0 * 100.0 + above * noise, noise

        monkeypatch.setattr(private, "total", total)
        made = curator(np.zeros(512, dtype=np.int64), epsilon="0.01")
        monkeypatch.setattr(private, "_even", lambda *_: None)
        partition.Splits(scarce=250.0)(made, None, None, **SHARES)
        assert asked == [Fraction(1, 64), Fraction(6, 64)][:times]

    def test_groups_of_few_records_have_the_order_and_the_fanout_that_were_asked_for(self):
        order = np.random.default_rng(1).permutation(512)
        made = curator(np.zeros(512, dtype=np.int64))
        groups = partition.Splits(fanout=3, scarce=250.0)(made, None, order, **SHARES)
        assert parts(made)[-1] == Fraction(50, 64) and made.spent[-1].purpose == "splits of a 3-ary tree"
        assert np.array_equal(groups.order, order)

    @pytest.mark.parametrize(("found", "blocks", "k"), [(0, 4, 2), (1000, 1, 4)])
    def test_blocks_are_for_few_records_and_halves_for_many(self, monkeypatch, found, blocks, k):
        given = []

        def groups_of(*_, **options):
            given.append(options)
            return Groups(np.array([0, 256, 512]))

        monkeypatch.setattr(private, "total", lambda *_: (100.0 * found, 1e-3))
        monkeypatch.setattr(private, "_even", lambda *_: None)
        monkeypatch.setattr(Curator, "choose", lambda *_, **__: 1)
        monkeypatch.setattr(Curator, "partition_splits", groups_of)
        made = curator(np.zeros(512, dtype=np.int64), epsilon="0.01")
        groups = partition.Splits(halved=True, scarce=250.0, blocks=4)(made, None, None, **SHARES)
        assert given[0]["blocks"] == blocks and groups.k == k


class TestEvenBlocks:
    """A line with neither few records nor very many is asked whether public, even blocks are smooth."""

    SPLITS = partition.Splits(halved=True, scarce=250.0, blocks=4)

    def of(self, monkeypatch, records, *, n=4096, epsilon="0.01", found=1, **given):
        """Return what is asked, and the groups, of a line of so many records in noise scales."""
        asked = []
        monkeypatch.setattr(
            Curator, "choose", lambda _, score, *, share: asked.append((score, share)) or found
        )
        made = curator(np.zeros(n, dtype=np.int64), epsilon=epsilon, **given)
        scale = made.scale(Fraction(1))
        monkeypatch.setattr(private, "total", lambda *_: (records * scale, 1e-3))
        return asked, self.SPLITS(made, None, None, **SHARES)

    @pytest.mark.parametrize(
        ("records", "parts", "runs", "wide"),
        [(301, 16, 256, 256), (700, 12, 64, 256), (6400, 4, 64, 128), (100_000, 1, 16, 48)],
    )
    def test_how_many_there_are_and_what_is_paid_depends_on_the_records(
        self, monkeypatch, records, parts, runs, wide
    ):
        for given in ({}, {"sensitivity": 3}):
            asked, groups = self.of(monkeypatch, records, **given)
            ((score, share),) = asked
            assert share == SHARES["share"] * parts / 64
            assert groups.n == 4096 and groups.order is None
            expected = [*range(0, 4096 - runs + 1, wide), 4096]
            assert groups.starts.tolist() == expected
            inside = [a + j * (b - a) // runs for a, b in itertools.pairwise(expected) for j in range(runs)]
            assert score.starts.tolist() == [*inside, 4096] and score.block == runs
            many = groups.k
            bar = score.percent * many * score.cap / 100
            scale = 100 * given.get("sensitivity", 1)
            assert bar == pytest.approx(0.9 * records**0.3 * many * scale, rel=1e-3)
            assert score.cap >= bar  # one block alone may be as rough as all may be together

    @pytest.mark.parametrize(
        ("records", "asks"), [(299, False), (301, True), (100_000, True), (100_001, False)]
    )
    def test_they_are_asked_for_between_two_numbers_of_records(self, monkeypatch, records, asks):
        asked, _ = self.of(monkeypatch, records)
        assert (asked[0][0].starts is not None) == asks

    @pytest.mark.parametrize(("found", "asks"), [(398, False), (402, True)])
    def test_records_count_as_far_as_they_are_sure(self, monkeypatch, found, asks):
        """A line of spikes that is taken for one of more records would seem smooth."""
        asked = []
        monkeypatch.setattr(Curator, "choose", lambda _, score, *, share: asked.append(score) or 1)
        monkeypatch.setattr(private, "total", lambda *_: (found * 100.0, 6667.0))
        groups = self.SPLITS(curator(np.zeros(4096, dtype=np.int64), epsilon="0.01"), None, None, **SHARES)
        assert (asked[0].starts is not None) == asks and (not asks or groups.k == 16)

    @pytest.mark.parametrize(("n", "asks"), [(297, False), (298, True)])
    def test_blocks_of_fewer_than_eight_bins_are_not_asked_for(self, monkeypatch, n, asks):
        asked, _ = self.of(monkeypatch, 6400, n=n)
        assert (asked[0][0].starts is not None) == asks

    def test_rough_blocks_are_not_taken_and_the_groups_have_what_they_had(self, monkeypatch):
        given = []
        monkeypatch.setattr(
            Curator, "partition_splits", lambda *_, **how: given.append(how) or Groups.whole(4096)
        )
        asked, groups = [], None
        monkeypatch.setattr(
            Curator, "choose", lambda _, score, *, share: asked.append(share) or len(asked) - 1
        )
        monkeypatch.setattr(private, "total", lambda *_: (640_000.0, 1e-3))
        groups = self.SPLITS(curator(np.zeros(4096, dtype=np.int64), epsilon="0.01"), None, None, **SHARES)
        # First the blocks are found to be rough, then the bins to be worth grouping.
        assert asked == [SHARES["share"] / 16, SHARES["share"] / 30] and groups.k == 2
        assert given[0]["share"] == SHARES["share"] / 2 * Fraction(14, 15) and given[0]["blocks"] == 1

    def test_the_order_of_the_bins_is_kept(self, monkeypatch):
        asked, order = [], np.random.default_rng(1).permutation(512)
        monkeypatch.setattr(Curator, "choose", lambda _, score, *, share: asked.append(score) or 1)
        monkeypatch.setattr(private, "total", lambda *_: (70_000.0, 1e-3))
        made = curator(np.zeros(512, dtype=np.int64), epsilon="0.01")
        groups = self.SPLITS(made, None, order, **SHARES)
        assert np.array_equal(groups.order, order) and np.array_equal(asked[0].order, order)

    def test_nothing_is_asked_where_noise_is_too_wide(self):
        made = curator(np.zeros(512, dtype=np.int64), epsilon="1e-11")
        assert private._even(made, 500.0, SHARES["share"], None) is None and not made.spent

    @pytest.mark.parametrize(("spikes", "even"), [(1, True), (100, False), (3, False), (7, False)])
    def test_smooth_lines_have_them_and_lines_of_spikes_have_not(self, spikes, even):
        n, times = 1000, 0
        x = np.where(np.arange(n) % spikes == 0, 100 * spikes, 0)  # a comb may have as many in each quarter
        for seed in range(20):
            made = Curator.simulated(
                Counts(x.astype(np.int64), Domain((Integers(0, n - 1),))), epsilon=Fraction(1, 10), seed=seed
            )
            times += self.SPLITS(made, None, None, **SHARES).k == 62
        assert times > 15 if even else times == 0

    def test_a_smooth_line_has_less_error_by_them(self, monkeypatch):
        n = 1000
        x = np.rint(15 * np.exp(-(((np.arange(n) - 500) / 300.0) ** 2))).astype(np.int64)
        domain = Domain((Integers(0, n - 1),))
        queries, held = make_workload("random:500", domain), Counts(x, domain)
        made, errors = make_pipeline("dawa3", domain, queries), []
        for _ in range(2):
            found = trials(made, held, queries, epsilon=Fraction("0.2"), seeds=range(40))
            errors.append(np.mean([queries.mean_absolute_error(one.values - x) for one in found]))
            monkeypatch.setattr(private, "_even", lambda *_: None)
        assert errors[0] < 0.9 * errors[1]


def test_what_a_question_of_few_cells_leaves_is_all_for_the_groups(monkeypatch):
    monkeypatch.setattr(partition.Splits, "_stand_out", ask_and_say_no)
    made = curator(np.zeros(100, dtype=np.int64))
    partition.Splits(level=1.5)(made, None, None, **SHARES)
    rest = Fraction(13, 15)
    assert parts(made) == [Fraction(2, 15), rest / 15, rest * 14 / 15] and sum(parts(made)) == 1


def test_how_rough_few_blocks_are_is_asked_with_more():
    for blocks, asked in ((1, Fraction(1, 15)), (4, Fraction(2, 15))):
        made = curator(np.zeros(100, dtype=np.int64))
        partition.Splits(blocks=blocks)(made, None, None, **SHARES)
        assert parts(made) == [asked, 1 - asked]


@pytest.mark.parametrize("sensitivity", [1, 7])
@pytest.mark.parametrize(
    ("blocks", "n", "each"), [(4, 256, 40), (4, 128, 40), (4, 64, 80), (1, 64, 320), (1, 512, 40)]
)
def test_the_bar_is_half_of_what_blocks_can_be(monkeypatch, blocks, n, each, sensitivity):
    """The cap is 80 noise scales for a block, and more of few; at half of all of it bins stay alone."""
    seen = []

    def choose(_, score, *, share):
        seen.append(score)
        return 1

    monkeypatch.setattr(Curator, "choose", choose)
    made = curator(np.zeros(n, dtype=np.int64), epsilon="0.01", sensitivity=sensitivity)
    partition.Splits(blocks=blocks)(made, None, None, **SHARES)
    (asked,) = seen
    assert (asked.cap, asked.percent) == (2 * each * 100 * sensitivity, 50)
    for rough, first in ((each - 1, False), (each + 1, True)):
        x = np.zeros((n // 16, 16), dtype=np.int64)
        x[:, 0] = rough * 100 * sensitivity
        scores = asked(x.ravel())
        assert (scores[0] > scores[1]) == first and scores.sum() == 2 * each * 100 * sensitivity * (n // 16)


@pytest.mark.parametrize("blocks", [1, 5])
def test_groups_are_asked_for_with_the_order_the_fanout_and_the_blocks_given(monkeypatch, blocks):
    order, asked = np.random.default_rng(1).permutation(100), []

    def found(_, **given):
        asked.append(given)
        return Groups(np.array([0, 50, 100]), order)

    monkeypatch.setattr(Curator, "partition_splits", found)
    made = curator(np.zeros(100, dtype=np.int64))
    partition.Splits(fanout=8, blocks=blocks)(made, None, order, **SHARES)
    (given,) = asked
    assert np.array_equal(given.pop("order"), order)
    rest = Fraction(14 if blocks == 1 else 13, 15)
    assert given == {"share": SHARES["share"] * rest, "fanout": 8, "blocks": blocks}


@pytest.mark.parametrize(("n", "scales"), [(40, 1024), (256, 160), (512, 80), (4096, 80)])
def test_what_counts_as_rough_is_more_where_blocks_are_few(monkeypatch, n, scales):
    order, asked = np.random.default_rng(1).permutation(n), []
    monkeypatch.setattr(Curator, "choose", lambda _, score, *, share: asked.append((score, share)) or 0)
    made = curator(np.zeros(n, dtype=np.int64), epsilon="0.01", sensitivity=3)
    groups = partition.Splits()(made, None, order, **SHARES)
    ((score, share),) = asked
    assert groups.are_singletons and np.array_equal(groups.order, order) and share == SHARES["share"] / 15
    assert (score.n, score.cap, score.percent) == (n, scales * 300, 50)
    assert np.array_equal(score.order, order)


@pytest.mark.parametrize(("epsilon", "asks"), [("99", True), ("100", True), ("101", False)])
def test_nothing_is_asked_where_the_noise_of_the_share_is_far_below_a_record(epsilon, asks):
    made = curator(np.zeros(100, dtype=np.int64), epsilon=epsilon)  # 16 / 0.16 is 100
    groups = partition.Splits(level=100.0, blocks=5)(made, None, None, **SHARES)
    assert bool(made.spent) == asks and groups.are_singletons == (not asks)


@pytest.mark.parametrize(("k", "alone"), [(20, False), (21, True)])
def test_halves_count_where_there_may_be_too_many_groups(monkeypatch, k, alone):
    found = Groups(np.append(np.arange(k) * 4, 100))
    monkeypatch.setattr(Curator, "partition_splits", lambda *_, **__: found)
    groups = partition.Splits(halved=True)(curator(np.zeros(100, dtype=np.int64)), None, None, **SHARES)
    assert groups.are_singletons == alone and groups.k == (100 if alone else 2 * k)


@pytest.mark.parametrize(
    ("shape", "share", "level", "scarce", "blocks"),
    [
        ((17,), "0.12", None, None, 4),
        ((256,), "0.12", None, None, 4),
        ((257,), "0.16", None, 250.0, 4),
        ((4096,), "0.16", None, 250.0, 4),
        ((20, 15), "0.25", 1.5, None, 1),
        ((32, 32), "0.25", 1.5, None, 1),
        ((33, 32), "0.25", None, None, 1),
    ],
)
def test_lines_and_grids_are_asked_what_is_documented(shape, share, level, scarce, blocks):
    made = make_pipeline("dawa3", Domain(tuple(Integers(0, n - 1) for n in shape)))
    assert made.split.partition == Fraction(share) and made.split.estimate == 1 - Fraction(share)
    assert (made.partition.level, made.partition.scarce) == (level, scarce)
    assert made.partition.blocks == blocks
    assert made.partition.halved == (len(shape) == 2 or shape[0] > 256)


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1"])
def test_made_up_counts_take_every_way_that_a_total_can_lead_to(epsilon):
    domain = Domain((Integers(0, rehearsal._LINE - 1),))
    made = make_pipeline("dawa3", Domain((Integers(0, 999),)))
    queries, ways = make_workload("ranges", domain), []
    height = 64 * (1 + int(1 / Fraction(epsilon)))
    for x in rehearsal._patterns(domain.n, height=height):
        held = Curator.simulated(Counts(x, domain), epsilon=Fraction(epsilon), seed=0)
        groups, _ = made.values(held, queries)
        ways.append((any("choice" in part.purpose for part in held.spent), groups.are_singletons))
    # Few records; many, grouped; many, alone.
    assert ways == [(False, False), (True, False), (True, True)]


class TestWhetherBinsStandOut:
    @pytest.mark.parametrize("sensitivity", [1, 3])
    @pytest.mark.parametrize(
        ("each", "holding", "alone"),
        [(3.5, 1, True), (2.8, 1, False), (4, 10, True), (1, 10, False), (60, 50, True), (0, 1, False)],
    )
    def test_they_do_if_most_records_lie_above_a_level_of_noise_scales(
        self, each, holding, alone, sensitivity
    ):
        """One bin in so many holds so many noise scales; above the level of 1.5 lie each - 1.5 of them."""
        scale = 100 * sensitivity
        x = np.where(np.arange(10_000) % holding == 0, round(each * scale), 0)
        made = curator(x, epsilon="0.01", sensitivity=sensitivity)
        groups = partition.Splits(level=1.5)(made, None, None, **SHARES)
        assert (len(made.spent) == 1) == alone  # nothing else is asked
        assert groups.are_singletons or not alone
        above = float((np.maximum(x - 1.5 * scale, 0) - np.minimum(x, 1.5 * scale)).sum())
        assert (above >= 0.1 * x.size * scale) == alone

    def test_the_bar_is_a_tenth_of_a_noise_scale_for_each_bin(self, monkeypatch):
        made = curator(np.zeros(1_000, dtype=np.int64), epsilon="0.01", sensitivity=2)
        for found, alone in ((0.099, False), (0.101, True)):
            answer = (found * 1_000 * 200.0, 1e-3)
            monkeypatch.setattr(private, "above", lambda *_, answer=answer: answer)
            assert partition.Splits(level=1.5)._stand_out(made, Fraction("0.01")) == alone

    @pytest.mark.parametrize(("epsilon", "level"), [("0.01", 150), ("1", 1), ("20", 1)])
    def test_the_level_is_a_number_of_records_that_adds_up(self, monkeypatch, epsilon, level):
        asked = []
        above = lambda _, level, share: asked.append((level, share)) or (0.0, 1.0)  # noqa: E731
        monkeypatch.setattr(private, "above", above)
        made = curator(np.zeros(40, dtype=np.int64), epsilon=epsilon)
        for given in (1.5, 1e30):
            partition.Splits(level=given)._stand_out(made, Fraction("0.02"))
        assert asked == [(level, Fraction("0.02")), (2**60 // 40, Fraction("0.02"))]


def of_ratio(ratio):
    """Return a curator of nothing, whose epsilon is one over this."""
    return curator(np.zeros(100, dtype=np.int64), epsilon=Fraction(1, round(ratio)))


@pytest.mark.parametrize("asks", [True, False])
def test_where_noise_is_too_wide_to_ask_bins_the_whole_share_is_for_the_groups(monkeypatch, asks):
    monkeypatch.setattr(partition.Splits, "_stand_out", ask_and_say_no)
    made = of_ratio(1e9 if asks else 7e9)  # 2^38 times the 75th of the share that asks is 5.9e9
    groups = partition.Splits(level=1.5, blocks=4)(made, None, None, **SHARES)
    left = Fraction(13, 15) if asks else Fraction(1)
    parts = [part.share / SHARES["share"] for part in made.spent]
    assert parts == [Fraction(2, 15)] * asks + [left * 2 / 15, left * 13 / 15] and sum(parts) == 1
    assert groups.n == 100


@pytest.mark.parametrize("blocks", [1, 4])
def test_bins_are_asked_only_if_what_follows_can_be_paid(monkeypatch, blocks):
    """What is refused is refused by public numbers, so that a rehearsal sees it."""
    monkeypatch.setattr(partition.Splits, "_stand_out", ask_and_say_no)
    asked, refused = 0, 0
    for ratio in np.geomspace(1e9, 4e10, 80):
        made = of_ratio(ratio)
        try:
            partition.Splits(level=1.5, blocks=blocks)(made, None, None, **SHARES)
            asked += any("distances" in part.purpose for part in made.spent)
        except UsageError:
            refused += 1
            assert not any("distances" in part.purpose for part in made.spent), ratio
    assert asked and refused


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((121, 6), order.ToAndFro),
        ((6, 72), order.ToAndFro),  # twelve times as long as wide
        ((71, 6), order.Hilbert),
        ((143, 12), order.Hilbert),  # a row short of it
        ((24, 24), order.Hilbert),
        ((365, 24), order.ToAndFro),
        ((121,), order.AsGiven),
    ],
)
def test_long_grids_are_grouped_along_their_longer_side(shape, found):
    made = make_pipeline("dawa3", Domain(tuple(Integers(0, n - 1) for n in shape)))
    assert type(made.order) is found


@pytest.mark.parametrize(("shape", "path"), [((3, 2), [0, 2, 4, 5, 3, 1]), ((2, 3), [0, 1, 2, 5, 4, 3])])
def test_cells_of_a_long_grid_are_gone_through_to_and_fro(shape, path):
    domain = Domain(tuple(Integers(0, n - 1) for n in shape))
    found = order.ToAndFro()(domain, None)
    assert found.tolist() == path and not found.flags.writeable


def test_lines_that_have_no_neighbours_are_refused():
    line = Domain((Integers(0, 9),))
    with pytest.raises(UsageError, match="two-dimensional"):
        order.ToAndFro().check(line, make_workload("ranges", line))


def test_a_ward_of_its_own_level_is_told_from_those_beside_it():
    """Ages of six wards: groups along a curve lie across all wards, and are far off in each."""
    ages = np.exp(-(((np.arange(121) - 50) / 30.0) ** 2))
    x = np.rint(np.outer(ages, [40, 5, 25, 2, 60, 10])).astype(np.int64)
    domain = Domain((Integers(0, 120), Integers(0, 5)))
    queries, held = make_workload("rectangles:300", domain), Counts(x, domain)
    made = make_pipeline("dawa3", domain, queries)
    errors = [
        np.mean(
            [
                queries.mean_absolute_error(trial.values - held.values)
                for trial in trials(each, held, queries, epsilon=Fraction("0.05"), seeds=range(12))
            ]
        )
        for each in (made, replace(made, order=order.Hilbert()))
    ]
    assert errors[0] < 0.7 * errors[1]
