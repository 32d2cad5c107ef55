"""Groups cut in halves, trees and hats averaged, and the method that is made of both."""

import json
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.kernels.averaging import contrasts, pruned
from dphist.kernels.averaging.trends import along_trends
from dphist.kernels.trees import agreeing, hats, hats_fit, variances
from dphist.kernels.trees import tree as trees
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate, partition
from dphist.steps.estimate import averaged_trees
from dphist.steps.partition import private
from dphist.steps.protocols import WIDEST_SCALE
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import HatTotals, TreeTotals
from dphist.uncertainty.reading import error_model_from_dict


def curator(x, *, epsilon="1", seed=0):
    domain = Domain(tuple(Integers(0, n - 1) for n in np.shape(x)))
    return Curator.simulated(Counts(np.asarray(x), domain), epsilon=Fraction(epsilon), seed=seed)


def values(x, *, method="dawa3", spec="ranges", **given):
    made = curator(x, **given)
    queries = make_workload(spec, made.domain)
    groups, found = make_pipeline(method, made.domain, queries).values(made, queries)
    return groups, found, made


class TestHalves:
    @pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 21, 64, 100, 257])
    def test_every_group_is_cut_where_a_binary_tree_cuts(self, n):
        for size in (1, 4, 16, 64, 256):
            groups = Groups(np.append(np.arange(0, n, size), n))
            halves = private._halved(groups)
            tree = trees.pruned_tree(halves.starts)  # which refuses groups that are not its nodes
            assert tree.k == groups.k + (groups.sizes > 1).sum()
            assert set(groups.starts) <= set(halves.starts)

    def test_the_order_is_kept(self):
        order = np.array([3, 1, 0, 2])
        halves = private._halved(Groups(np.array([0, 4]), order))
        assert halves.starts.tolist() == [0, 2, 4] and halves.order.tolist() == [3, 1, 0, 2]

    def test_groups_are_halves_of_what_splits_find(self):
        x = np.repeat([5, 900, 0, 40], 256)
        one, two = (
            partition.Splits(halved=halved)(
                curator(x), None, None, share=Fraction(1, 8), later=Fraction(7, 8)
            )
            for halved in (False, True)
        )
        assert np.array_equal(private._halved(one).starts, two.starts) and two.k > one.k

    def test_many_groups_become_single_bins(self):
        x = np.arange(1024) * 7919 % 13 * 10**6 * (np.arange(1024) < 450)
        given = {"share": Fraction(1, 8), "later": Fraction(7, 8)}
        plain = partition.Splits()(curator(x), None, None, **given)
        assert private._halved(plain).k > 0.4 * 1024 and not plain.are_singletons
        assert partition.Splits(halved=True)(curator(x), None, None, **given).are_singletons


class TestAverages:
    def test_bins_on_their_own_have_noise_that_agrees_where_it_beats_triangles(self):
        x = np.where(np.arange(200) < 30, 40, 0)
        for spec in ("ranges", "prefixes", "random:300"):
            made, queries = curator(x, epsilon="0.1"), make_workload(spec, curator(x).domain)
            found = estimate.AveragedTree()(made, None, Groups.singletons(200), queries, share=Fraction(1))
            assert isinstance(found.error, TreeTotals) and found.error.agreeing
            assert np.array_equal(found.measured, np.rint(found.measured)), (
                "whole numbers, as they were drawn"
            )
            assert np.abs(found.values - x).mean() < 0.5 * np.abs(found.measured - x).mean()
            tree, scales = trees.make_tree(200), found.error.scales
            bins, law = found.measured, noise_law.variance
            below = np.concatenate(([0.0], np.cumsum(bins)))
            over_tree = pruned.averaged_totals(
                tree, np.ones(200, np.int64), below[tree.hi] - below[tree.lo], law(scales)
            )
            error = variances.tree_error(tree, law(scales))
            shifted = contrasts.averaged_contrasts(bins, partial(variances.range_variances, error))
            assert np.allclose(found.values, (over_tree + shifted) / 2)

    def test_the_least_foreseen_error_decides(self, monkeypatch):
        made = curator(np.zeros(300, np.int64))
        queries = make_workload("ranges", made.domain)
        tree = averaged_trees._weights_of_bins(queries, "all-ranges")
        ones = np.ones(300, np.int64)
        hats_error = 2 * hats_fit.hats_expected_error(hats.fitted_hats(300, "all-ranges"), "all-ranges")
        with np.errstate(divide="ignore"):
            equal = agreeing.equal_variances(trees.make_tree(300), 2 / tree**2)
        error = variances.tree_error(trees.make_tree(300), equal)
        found = variances.total_variance(error, ones, "all-ranges") / variances.query_count(
            ones, "all-ranges"
        )
        assert 0.8 * hats_error < found < hats_error
        monkeypatch.setattr(averaged_trees, "_MOST_DRAWS", 10)
        averaged_trees._weights_of_bins.cache_clear()
        assert averaged_trees._weights_of_bins(queries, "all-ranges") is None, "it would take too long"
        averaged_trees._weights_of_bins.cache_clear()

    def test_hats_are_measured_as_ever_and_averaged_then(self, monkeypatch):
        monkeypatch.setattr(averaged_trees, "_MOST_AGREEING", 100)
        x = np.where(np.arange(200) < 30, 40, 0)
        made, queries = curator(x, epsilon="0.1"), make_workload("ranges", curator(x).domain)
        found = estimate.AveragedTree()(made, None, Groups.singletons(200), queries, share=Fraction(1))
        _, plain, other = values(x, epsilon="0.1", method="hats")
        assert np.array_equal(found.measured, plain.values) and isinstance(found.error, HatTotals)
        assert made.spent == other.spent
        assert np.abs(found.values - x).mean() < 0.5 * np.abs(plain.values - x).mean()

    def test_trees_are_cut_off_at_the_groups(self):
        x = np.repeat([5, 900, 0, 40], 256)
        groups, found, _ = values(x)
        assert isinstance(found.error, TreeTotals) and found.error.pruned and 1 < groups.k < 100
        assert np.allclose(found.measured, groups.means(groups.totals(found.measured)))
        assert np.allclose(found.values, along_trends(groups.totals(found.values), groups.starts))
        assert found.error.agreeing, "noise that agrees is smaller"

    def test_groups_that_are_no_nodes_have_a_tree_of_their_own(self):
        groups, made = Groups(np.array([0, 3, 4, 10])), curator(np.arange(10))
        queries = make_workload("ranges", made.domain)
        found = estimate.AveragedTree()(made, None, groups, queries, share=Fraction(1))
        assert not found.error.pruned and np.isfinite(found.values).all()

    @pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 300])
    @pytest.mark.parametrize("epsilon", ["1/1000000000", "1", "1000000"])
    @pytest.mark.parametrize("spec", ["ranges", "prefixes", "points"])
    def test_any_size_and_budget(self, n, epsilon, spec):
        for x in (np.zeros(n, dtype=np.int64), np.full(n, 1 << 42), np.arange(n) % 7):
            _, found, made = values(x, epsilon=epsilon, spec=spec)
            assert np.isfinite(found.values).all() and (found.values >= 0).all()
            assert np.isfinite(found.measured).all()
            assert sum(part.share for part in made.spent) == 1
            if epsilon == "1000000":
                assert np.abs(found.values - x).max() <= 0.5

    def test_averages_know_the_variance_of_the_noise(self, monkeypatch):
        seen, average = [], pruned.averaged
        monkeypatch.setattr(pruned, "averaged", lambda given: seen.append(given) or average(given))
        monkeypatch.setattr(averaged_trees, "_FEW_GROUPS", 2)
        _, found, _ = values(np.repeat([5, 900, 0, 40], 256))
        known = noise_law.variance(found.error.scales)
        assert isinstance(found.error, TreeTotals) and seen[0].leaf[1].size
        assert all(np.isin(of[1], known).all() for of in (seen[0].leaf, seen[0].inner, seen[0].pair))

    def test_grids_go_along_a_curve(self):
        x = np.zeros((20, 20), dtype=np.int64)
        x[3:9, 4:11] = 300
        groups, found, _ = values(x, spec="rectangles:50")
        assert groups.order is not None and found.values.shape == (400,) and (found.values >= 0).all()
        groups, found, _ = values(np.zeros((48, 40), dtype=np.int64), spec="rectangles:50")
        assert not groups.are_singletons and isinstance(found.error, TreeTotals), "groups that were paid for"

    def test_the_cells_of_small_grids_have_noise_each_if_they_stand_out(self):
        x = np.random.default_rng(4).integers(0, 60, (20, 15))
        groups, found, made = values(x, spec="rectangles:50")
        assert groups.are_singletons and isinstance(found.by, estimate.Averaged)
        assert found.error.variances() == pytest.approx(
            np.full(300, 2 / (0.75 + 0.25 * 13 / 15) ** 2), rel=0.1
        )
        total = Fraction("0.25") * 2 / 15
        assert [part.share for part in made.spent] == [total, 1 - total]
        assert np.abs(found.measured - x.ravel()).max() < 12, "cells keep their places"
        groups, found, _ = values(x // 30, spec="rectangles:50", epsilon="0.1")
        assert not groups.are_singletons and found.by is None
        for shape, flat in (((4, 4), True), ((32, 32), True), ((32, 33), False), ((1024, 1), True)):
            made = make_pipeline("dawa3", Domain(tuple(Integers(0, n - 1) for n in shape)))
            assert made.estimate.flat == flat == (getattr(made.partition, "level", 1.5) is not None)
        assert not make_pipeline("dawa3", Domain((Integers(0, 99),))).estimate.flat

    def test_few_bins_are_not_grouped(self):
        for n, grouped in ((16, False), (17, True), (256, True), (257, True)):
            made = make_pipeline("dawa3", Domain((Integers(0, n - 1),)))
            assert (made.with_intervals().calibrate > 0) == grouped
            assert isinstance(made.partition, partition.Splits) == grouped
            assert not grouped or (made.partition.scarce is None) == (n <= 256)

    def test_some_bins_are_grouped_if_there_are_few_records(self):
        few, rough = np.zeros(100, dtype=np.int64), np.arange(100) % 2 * 150
        groups, _, made = values(few)
        assert 4 <= groups.k < 20 and {0, 32, 64, 96} <= set(groups.starts.tolist())
        question = Fraction("0.12") * 2 / 15
        assert [part.share for part in made.spent] == [
            question,
            Fraction("0.12") - question,
            Fraction("0.88"),
        ]
        groups, found, made = values(rough)
        assert groups.are_singletons and found.error.agreeing
        assert [part.share for part in made.spent] == [question, 1 - question]

    def test_bins_of_several_trees_stay_alone_if_most_are_split_off(self, monkeypatch):
        for blocks, k, alone in ((1, 41, False), (5, 40, False), (5, 41, True)):
            found = Groups(np.append(np.arange(k), 100))
            monkeypatch.setattr(Curator, "partition_splits", lambda *_, found=found, **__: found)
            made = partition.Splits(blocks=blocks)(curator(np.zeros(100, np.int64)), None, None, **SHARES)
            assert made.are_singletons == alone and made.k == (100 if alone else k)


SHARES = {"share": Fraction("0.12"), "later": Fraction("0.88")}


class TestWhetherBinsStandOut:
    def test_an_order_is_kept_by_single_bins(self):
        order = np.arange(40)[::-1].copy()
        made = partition.Splits(level=1.5)(curator(np.full(40, 10**6)), None, order, **SHARES)
        assert made.are_singletons and np.array_equal(made.order, order)

    @pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
    @pytest.mark.parametrize("name", ["level", "scarce"])
    def test_a_bound_that_is_none_is_refused(self, name, value):
        with pytest.raises(UsageError, match=f"{name} is a number of noise scales"):
            partition.Splits(**{name: value})


def test_cells_are_averaged_for_rectangles_whatever_their_estimated_error(monkeypatch):
    monkeypatch.setattr("dphist.steps.estimate.averaged.averaging_helps", lambda *_: False)
    x = np.zeros((16, 16), dtype=np.int64)
    for spec, left in (("rectangles:20", False), ("points", True)):
        made = curator(x, epsilon="0.1")
        found = estimate.AveragedTree(flat=True)(
            made, None, Groups.singletons(256), make_workload(spec, made.domain), share=Fraction(1)
        )
        assert np.array_equal(found.values, np.maximum(found.measured, 0)) == left, spec


class TestScarceRecords:
    """A total, asked for once or twice, says how much of the share finds groups."""

    SHARE = Fraction("0.16")

    def shares(self, x, **given):
        made = curator(x, **given)
        groups = partition.Splits(halved=True, scarce=250.0)(
            made, None, None, share=self.SHARE, later=1 - self.SHARE
        )
        return groups, [part.share / self.SHARE for part in made.spent]

    def test_few_records_have_most_of_the_share_for_their_groups(self):
        x = np.zeros(4096, dtype=np.int64)
        x[:50] = 2
        _, spent = self.shares(x)
        assert spent == [Fraction(1, 64), Fraction(6, 64), Fraction(50, 64)]

    def test_many_records_have_half_of_it_and_are_asked_for_once(self):
        x = np.zeros(4096, dtype=np.int64)
        x[::80] = 1000
        _, spent = self.shares(x)
        # The second asks whether even blocks are smooth.
        assert spent == [Fraction(1, 64), Fraction(1, 64), Fraction(1, 30), Fraction(14, 30)]

    def test_the_line_is_a_number_of_noise_scales_in_all(self):
        # The second question's noise has a scale of 67, and its distance from the line is 250. The first is
        # enough by mistake in 6 % of cases.
        for records, few in ((0, True), (500, False)):
            for n in (512, 4096):
                x = np.zeros(n, dtype=np.int64)
                x[n // 3] = records
                found = [self.shares(x, seed=seed)[1][-1] == Fraction(50, 64) for seed in range(20)]
                assert np.mean(found) > 0.75 if few else np.mean(found) < 0.2
        _, spent = self.shares(np.full(512, 10), epsilon="0.001")  # many records, and still more noise
        assert spent[-1] == Fraction(50, 64)

    def test_groups_of_few_records_are_not_halved(self, monkeypatch):
        found = Groups(np.array([0, 16, 32, 4096]))
        monkeypatch.setattr(Curator, "partition_splits", lambda *_, **__: found)
        assert self.shares(np.zeros(4096, dtype=np.int64))[0] is found

    def test_nothing_is_asked_where_no_noise_is_wide_enough(self):
        for epsilon in ("1e-9", "1e-10"):
            _, spent = self.shares(np.zeros(512, dtype=np.int64), epsilon=epsilon)
            assert spent == [Fraction(50, 64)]


class TestNoiseThatAgrees:
    def test_files_keep_what_it_is(self):
        x = np.repeat([5, 900, 0, 40], 64)
        _, found, _ = values(x)
        described = json.loads(json.dumps(found.error.to_dict()))
        again = error_model_from_dict(described, 256)
        assert described["agreeing"] is True and again.agreeing
        assert "agree" in again.description and again.description == found.error.description
        assert np.array_equal(again.scales, found.error.scales)
        assert not error_model_from_dict(
            {k: v for k, v in described.items() if k != "agreeing"}, 256
        ).agreeing

    def test_cells_of_a_grid_stay_where_they_are(self):
        x = np.zeros((48, 48), dtype=np.int64)
        x[3:9, 4:11] = 4000
        _, found, _ = values(x, spec="rectangles:60", epsilon="0.1")
        each = found.values.reshape(48, 48)
        assert each[3:9, 4:11].mean() > 30 * each[20:, 20:].mean()

    def test_whole_numbers_have_margins_that_hold(self):
        for n, spec, epsilon in ((33, "prefixes", "1"), (64, "ranges", "1"), (64, "ranges", "0.05")):
            held = {0.95: [], 0.99: []}
            x = np.full(n, 5000)
            for seed in range(300):
                made = curator(x, epsilon=epsilon, seed=seed)
                queries = make_workload(spec, made.domain)
                found = estimate.AveragedTree()(made, None, Groups.singletons(n), queries, share=Fraction(1))
                assert found.error.agreeing
                for level, each in held.items():
                    margin = found.error.bin_margins(level=level)
                    assert np.array_equal(margin, np.rint(margin))
                    each.append(np.abs(found.measured - x) <= margin)
            assert 0.935 <= np.mean(held[0.95]) <= 0.985 and np.mean(held[0.99]) >= 0.98

    def test_of_two_groups_the_noise_is_independent(self):
        made = curator(np.array([7, 7, 9, 9]))
        found = estimate.AveragedTree()(
            made, None, Groups(np.array([0, 2, 4])), make_workload("ranges", made.domain), share=Fraction(1)
        )
        assert not found.error.agreeing

    def test_a_budget_that_no_noise_is_wide_enough_for_leaves_draws_apart(self):
        weights = np.array([0.0, 1e-6, 0.5])
        assert averaged_trees._too_wide(weights, WIDEST_SCALE * 1.1e-6)
        assert not averaged_trees._too_wide(weights, WIDEST_SCALE * 0.9e-6)


GROUPS = Groups(np.array([0, 8, 12, 14, 15, 16, 32, 48, 64]))


def agrees(spec="ranges", *, epsilon="1", groups=GROUPS):
    made = curator(np.zeros(groups.n, np.int64), epsilon=epsilon)
    queries = make_workload(spec, made.domain)
    found = estimate.AveragedTree()(made, None, groups, queries, share=Fraction(1))
    assert sum(part.share for part in made.spent) == 1 and np.isfinite(found.values).all()
    return found.error.agreeing


def test_groups_have_separate_draws_where_those_that_agree_take_too_long(monkeypatch):
    assert agrees()
    monkeypatch.setattr(averaged_trees, "_MOST_DRAWS", 10)
    assert not agrees()


def test_groups_have_separate_draws_where_these_have_less_error():
    assert not agrees([(0, 64)]), "the root alone says it best"


def test_groups_have_separate_draws_where_no_noise_is_wide_enough():
    assert agrees(epsilon="1e-8") and not agrees(epsilon="1e-10")


@pytest.mark.parametrize("epsilon", ["1e5", "1e6"])
@pytest.mark.parametrize("spec", ["ranges", "prefixes", "random:300"])
@pytest.mark.parametrize("n", [3000, 4096, 5000])
def test_many_bins_are_measured_however_large_the_budget(n, spec, epsilon):
    _, found, made = values(np.arange(n) % 7, epsilon=epsilon, spec=spec)
    assert np.abs(found.values - np.arange(n) % 7).max() <= 0.5
    assert sum(part.share for part in made.spent) == 1
