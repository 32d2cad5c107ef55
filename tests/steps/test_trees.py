"""Trees and hats as released: right without noise, honest error bars, the published special cases."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dphist
import naive_trees as naive
from dphist.domain import Domain, Integers, workload
from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.kernels.trees.hats import WHOLE, fitted_pyramids
from dphist.methods.pipeline import Pipeline, Split
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.queries import Hats
from dphist.steps import estimate, initialize, order, partition
from dphist.steps.estimate.trees import grid_hats_for, measured_grid
from dphist.steps.partition import formulas
from dphist.uncertainty.models import HatTotals, TreeTotals
from dphist.uncertainty.products import GridHatTotals, PyramidTotals
from dphist.uncertainty.reading import error_model_from_dict

SURE = 10**6
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _same_data_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state


TREES = ["h", "hb", "hay", "greedyh", "greedyh-tuned", "hats"]
GROUPED = ["dawa", "dawa-all", "s1+mm", "sa+pmm", "s2+mm", "s1+h", "s2+h", "partition+geometric"]


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("n", [1, 2, 3, 31, 64, 100])
@pytest.mark.parametrize("asked", ["points", "ranges", "prefixes", "random:50"])
def test_without_noise_a_tree_over_bins_gives_the_counts(method, n, asked):
    x = RNG.integers(0, 1000, n)
    values = dphist.simulate(x, epsilon=SURE, method=method, workload=asked)[0]
    assert np.asarray(values) == pytest.approx(x, abs=1e-6)


@pytest.mark.parametrize("method", GROUPED)
@pytest.mark.parametrize("asked", ["points", "ranges", "prefixes", "random:50"])
def test_without_noise_alike_bins_are_grouped_and_come_out_right(method, asked):
    x = np.repeat(RNG.integers(0, 1000, 16), 16)
    values = dphist.simulate(x, epsilon=SURE, method=method, workload=asked)[0]
    assert np.asarray(values) == pytest.approx(x, abs=1e-6)


@pytest.mark.parametrize("method", ["greedyh", "greedyh-tuned"])
def test_for_single_bins_a_workload_tree_is_the_laplace_mechanism(method):
    x = RNG.integers(0, 50, 40)
    tree = dphist.simulate(x, epsilon=1, method=method, workload="points", trials=400, seed=1)
    plain = dphist.simulate(x, epsilon=1, method="identity", trials=1500, seed=2)
    assert (tree == np.rint(tree)).all(), "each bin is measured by itself, once"
    assert np.var(tree - x) == pytest.approx(np.var(plain - x), rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["h", "hay", "greedyh", "greedyh-tuned", "hats"])
def test_95_percent_intervals_of_ranges_hold_in_95_percent_of_releases(method):
    n, releases = 256, 150
    x = RNG.integers(0, 100, n)
    queries = workload.random(n, 300)
    lo, hi = queries.pairs()
    pipeline = dphist.CATALOGUE[method].build(Domain((Integers(0, n - 1),)))
    inside, narrow = [], []
    for seed in range(releases):
        held = Counts(x, Domain((Integers(0, n - 1),)))
        curator = Curator.simulated(held, epsilon=Fraction(1, 10), seed=seed)
        _, found = pipeline.values(curator, workload.AllRanges(n))
        if seed == 0:  # public, the same for every release
            margins = np.array(
                [found.error.margin(int(a), int(b), level=0.95) for a, b in zip(lo, hi, strict=True)]
            )
        gap = np.abs(queries.answers(found.values) - queries.answers(x))
        inside.append(gap <= margins)
        narrow.append(gap <= 0.9 * margins)
    assert 0.94 <= np.mean(inside) <= 0.96
    assert np.mean(narrow) < 0.94, "intervals a tenth too narrow would be seen"


@pytest.mark.parametrize("method", ["h", "greedyh", "s2+h", "hats", "dawa"])
def test_a_release_of_a_tree_carries_its_error_through_a_file(method, tmp_path):
    x = np.repeat(RNG.integers(0, 1000, 8), 16)
    release = dphist.from_counts(x, epsilon=1, method=method, workload="ranges", calibrate=0)
    release.save(tmp_path / "r.json")
    again = dphist.load(tmp_path / "r.json")
    assert again == release
    whole, same = release.total(), again.total()
    assert (whole.value, whole.low, whole.high) == (same.value, same.low, same.high)
    assert whole.low < x.sum() + 2000
    low, high = again.intervals()
    assert low.shape == (128,)
    joint_low, joint_high = again.intervals(joint=True)
    known = ~np.isnan(low)
    assert (joint_high - joint_low > high - low)[known].all()  # a partition may leave no bin alone
    assert known.all() or method in ("s2+h", "dawa")


def test_a_range_that_cuts_a_group_has_no_interval_and_says_why():
    groups = Groups(np.array([0, 4, 5, 8]))
    model = TreeTotals(groups, 2, False, np.full(5, 10.0))
    assert model.margin(0, 4, level=0.95) is not None
    assert model.margin(0, 8, level=0.95) is not None
    assert model.margin(4, 5, level=0.95) is not None
    assert model.margin(1, 4, level=0.95) is None
    assert np.isnan(model.variances()).tolist() == [True] * 4 + [False] + [True] * 3
    assert "cut a group" in model.description
    again = error_model_from_dict(model.to_dict(), model.groups.n)
    assert again.margin(0, 5, level=0.9) == model.margin(0, 5, level=0.9)


def test_what_no_measurement_determines_has_no_interval():
    scales = np.array([5.0, np.inf, np.inf])
    model = TreeTotals(Groups.singletons(2), 2, False, scales)
    assert model.margin(0, 2, level=0.95) is not None
    assert model.margin(0, 1, level=0.95) is None
    assert np.isnan(model.variances()).all()


@given(n=st.integers(24, 200), queries=st.sampled_from(["all-ranges", "prefixes"]), data=st.data())
def test_one_record_moves_the_answers_of_hats_by_no_more_than_their_bound(n, queries, data):
    hats = Hats(n, queries)
    x = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    y = x.copy()
    y[data.draw(st.integers(0, n - 1))] += 1
    assert np.abs(hats(y) - hats(x)).sum() <= hats.sensitivity


def test_triangles_of_the_sides_are_taken_where_there_are_too_many_cells_for_pyramids():
    for shape, kind in (((96, 90), PyramidTotals), ((100, 120), GridHatTotals), ((130, 130), GridHatTotals)):
        boxes = workload.random_rectangles(shape, 500)
        domain = Domain(tuple(Integers(0, n - 1) for n in shape))
        curator = Curator.simulated(Counts(np.zeros(shape, int), domain), epsilon=Fraction(1), seed=1)
        _, found = Pipeline(order=order.Hilbert(), estimate=estimate.Hats()).values(curator, boxes)
        assert type(found.error) is kind
    # Noise 2^20 times as wide as that of single cells would be wider than what can be drawn.
    wide = Curator.simulated(Counts(np.zeros(shape, int), domain), epsilon=Fraction(1, 1 << 24), seed=1)
    assert grid_hats_for(wide, Groups.singletons(130**2), boxes, share=Fraction(1)) is None


@pytest.mark.parametrize("size", range(1, 8))
def test_pyramids_are_chosen_if_and_only_if_they_have_less_error_than_single_cells(size):
    shape, begin = (24, 30), np.arange(0, 18)
    boxes = workload.Rectangles(shape, begin, begin + size, begin, begin + size)
    domain = Domain(tuple(Integers(0, n - 1) for n in shape))
    curator = Curator.simulated(Counts(np.zeros(shape, int), domain), epsilon=Fraction(1), seed=1)
    chosen = grid_hats_for(curator, Groups.singletons(720), boxes, share=Fraction(1))
    dense = naive.hat_matrix(fitted_pyramids(*shape)) / float(WHOLE)
    error = np.linalg.inv(dense.T @ dense)
    less = np.mean([error[np.ix_(c, c)].sum() for c in boxes.cells()]) < size**2
    assert chosen == ("rectangles" if less else None)


def test_pyramids_measure_a_grid_that_is_no_square_and_say_how_well():
    x = np.arange(240).reshape(12, 20) ** 2
    domain = Domain((Integers(0, 11), Integers(0, 19)))
    curator = Curator.simulated(Counts(x, domain), epsilon=Fraction(1000), seed=1)
    found = measured_grid(curator, "rectangles", share=Fraction(1))
    assert np.allclose(found.values, x.ravel(), atol=0.1)
    assert (found.error.rows, found.error.columns) == x.shape
    assert found.error.scale == pytest.approx(WHOLE / 1000)


def test_pyramids_are_kept_where_they_win_and_left_where_they_do_not():
    shape = (60, 72)
    boxes = workload.random_rectangles(shape, 2000)
    cells = workload.Rectangles(shape, np.arange(40), np.arange(1, 41), np.arange(40), np.arange(1, 41))
    domain = Domain(tuple(Integers(0, n - 1) for n in shape))
    for queries, pyramids in ((boxes, True), (cells, False), (workload.Points(60 * 72), False)):
        curator = Curator.simulated(Counts(np.zeros(shape, int), domain), epsilon=Fraction(1), seed=1)
        groups, found = Pipeline(order=order.Hilbert(), estimate=estimate.Hats()).values(curator, queries)
        assert groups.are_singletons and isinstance(found.error, PyramidTotals) == pyramids
    errors = {
        m: np.mean([boxes.mean_squared_error(np.asarray(v)) for v in dphist.simulate(
            np.zeros(shape, int), epsilon=1, method=m, workload=boxes, trials=12, seed=4
        )])
        for m in ("hats", "greedyh-tuned", "identity")
    }  # fmt: skip
    assert errors["hats"] < 0.85 * min(errors["greedyh-tuned"], errors["identity"])
    wide = Curator.simulated(Counts(np.zeros(shape, int), domain), epsilon=Fraction(1, 1 << 30), seed=1)
    found = Pipeline(order=order.Hilbert(), estimate=estimate.Hats()).values(wide, boxes)[1]
    assert isinstance(found.error, TreeTotals) and np.isfinite(found.values).all()


def test_hats_are_kept_where_they_win_and_left_where_they_do_not():
    n = 512
    x = np.zeros(n, dtype=int)
    ranges = workload.AllRanges(n)

    def error(method, queries):
        values = dphist.simulate(x, epsilon=1, method=method, workload=queries, trials=200, seed=4)
        return np.mean([queries.mean_squared_error(np.asarray(v)) for v in values])

    assert error("hats", ranges) < 0.95 * error("greedyh-tuned", ranges)
    listed = workload.random(n, 100)
    same = [
        dphist.simulate(x, epsilon=1, method=m, workload=listed, seed=1) for m in ("hats", "greedyh-tuned")
    ]
    assert np.array_equal(*same)
    held = Counts(x, Domain((Integers(0, n - 1),)))
    found = Pipeline(estimate=estimate.Hats()).values(
        Curator.simulated(held, epsilon=Fraction(1), seed=0), ranges
    )
    assert isinstance(found[1].error, HatTotals)


def test_the_tuned_weights_beat_the_published_ones():
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees import tuning, variances

    for k, most, published in ((1024, 75, 98.3), (4096, 128, 174.8)):
        tree, widths = trees.make_tree(k), np.ones(k, dtype=np.int64)
        greedy = tuning.greedy_weights(tree, widths, "all-ranges")
        tuned = tuning.tuned_weights(tree, widths, "all-ranges")
        assert variances.expected_error(tree, greedy, widths, "all-ranges") == pytest.approx(
            published, abs=0.06
        )
        assert variances.expected_error(tree, tuned, widths, "all-ranges") <= most


def test_subtrees_are_the_best_of_all_partitions_into_subtrees():
    formula = formulas.Constant()
    for _ in range(200):
        h = RNG.integers(0, 6, 8)
        starts = partition.Subtrees(formula=formula, fanout=2).cut(h, 1.0, 1.0)
        beta, a, b = formula.penalty(rough=1.0, final=1.0, n=8)

        def cost(cuts, h=h, beta=beta, a=a, b=b):
            return sum(
                np.square(g - g.mean()).sum() + beta + a / (b + g.size) for g in np.split(h, cuts[1:-1])
            )

        def trees_over(lo, hi):
            yield [lo]
            if hi - lo > 1:
                middle = (lo + hi) // 2
                for left, right in itertools.product(trees_over(lo, middle), trees_over(middle, hi)):
                    yield left + right

        least = min(cost([*cuts, 8]) for cuts in trees_over(0, 8))
        assert cost(starts.tolist()) == pytest.approx(least, rel=1e-9)


def test_a_pruned_tree_measures_a_group_once_with_what_its_levels_would_have_had():
    x = np.repeat([5, 900], 16)
    groups = Groups(np.array([0, 16, *range(17, 33)]))
    held = Counts(x, Domain((Integers(0, 31),)))
    curator = Curator.simulated(held, epsilon=Fraction(1), seed=0)
    found = estimate.Tree(branching=2, pruned=True)(
        curator, None, groups, workload.Points(32), share=Fraction(1)
    )
    scales = found.error.scales
    assert np.isfinite(scales).sum() == 2 * 17 - 2  # every node but the root
    # five levels below the root: the group at the first has all five fifths, its rival's path one fifth each
    assert sorted(set(np.round(scales[np.isfinite(scales)], 6)))[0] == pytest.approx(1.0, rel=1e-6)


class TestGrids:
    def test_a_grid_is_published_along_a_curve(self):
        x = np.zeros((24, 40), dtype=int)
        x[3:9, 5:17] = 700
        queries = workload.random_rectangles(x.shape, 60)
        for method in ("dawa", "dawa2", "greedyh", "identity"):
            values = dphist.simulate(x, epsilon=SURE, method=method, workload=queries)[0]
            assert np.asarray(values) == pytest.approx(x.ravel(), abs=1e-4)
        release = dphist.from_counts(x, epsilon=1, method="dawa", workload="rectangles")
        assert release.values().shape == (24, 40)

    @given(rows=st.integers(1, 20), columns=st.integers(1, 20))
    def test_the_curve_visits_every_cell_once_and_keeps_neighbours_together(self, rows, columns):
        path = order.hilbert(rows, columns)
        assert sorted(path.tolist()) == list(range(rows * columns))
        side = 1 << max(rows - 1, columns - 1, 1).bit_length()
        if rows == columns == side:
            steps = np.abs(np.diff(path // columns)) + np.abs(np.diff(path % columns))
            assert (steps == 1).all()

    @pytest.mark.parametrize("shape", [(1, 1), (2, 5), (8, 8), (13, 6), (64, 3)])
    def test_the_curve_is_that_of_its_four_quarters(self, shape):
        def curve(side):  # of a square, from its first corner along the first axis or the second
            if side == 1:
                return [(0, 0)]
            h, part = side // 2, curve(side // 2)
            one = [(y, x) for x, y in part]
            two = [(x, y + h) for x, y in part]
            three = [(x + h, y + h) for x, y in part]
            four = [(side - 1 - y, h - 1 - x) for x, y in part]
            return one + two + three + four

        side = 1 << max(max(shape) - 1, 1).bit_length()
        inside = [x * shape[1] + y for x, y in curve(side) if x < shape[0] and y < shape[1]]
        assert order.hilbert(*shape).tolist() == inside

    def test_rectangles_become_the_runs_that_cover_them(self):
        shape = (7, 5)
        queries = workload.random_rectangles(shape, 20)
        path = order.hilbert(*shape)
        lo, hi = estimate.trees.runs(queries, path)
        x = RNG.integers(0, 100, 35)
        prefix = np.concatenate([[0], np.cumsum(x[path])])
        total = (prefix[hi] - prefix[lo]).sum()
        assert total == pytest.approx(queries.answers(x).sum())

    @pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 5), (16, 16), (13, 40), (33, 32)])
    @pytest.mark.parametrize("how", ["curve", "rows", "shuffled"])
    def test_runs_are_those_of_a_plain_search(self, shape, how, monkeypatch):
        monkeypatch.setattr("dphist.kernels.curve._ROOM", 300)  # several parts
        n = shape[0] * shape[1]
        path = {"curve": order.hilbert(*shape), "rows": None, "shuffled": RNG.permutation(n)}[how]
        queries = workload.random_rectangles(shape, 60)
        lo, hi = estimate.trees.runs(queries, path)
        along = np.arange(n) if path is None else path
        slow = []
        for cells in queries.cells():
            inside = np.isin(along, cells)
            steps = np.diff(np.concatenate([[0], inside.astype(int), [0]]))
            slow += list(zip(np.flatnonzero(steps == 1), np.flatnonzero(steps == -1), strict=True))
        assert list(zip(lo, hi, strict=True)) == slow

    def test_histogram2d_takes_dawa(self):
        a, b = RNG.normal(size=500), RNG.normal(size=500)
        release = dphist.histogram2d(
            a, b, bins=(16, 8), range=((-3, 3), (-3, 3)), epsilon=1, method="dawa", workload="rectangles"
        )
        assert release.domain.shape == (16, 8)


@pytest.mark.parametrize(
    "asked",
    [[], [(3, 2)], [(0, 99)], [(0, float("nan"))], "rectangles", [(0.5, 2)], [(-1, 2)]],
)
def test_a_workload_that_makes_no_sense_is_refused_before_anything_is_charged(asked):
    ledger = dphist.MemoryLedger()
    with pytest.raises(UsageError):
        dphist.from_counts(np.arange(10), epsilon=1, method="dawa", workload=asked, ledger=ledger)
    assert ledger.spent("default") == 0


def test_components_refuse_senseless_settings():
    for make in (
        lambda: estimate.Tree(branching=1),
        lambda: estimate.Tree(ratio=0),
        lambda: estimate.WorkloadTree(weights="best"),
        lambda: estimate.WorkloadTree(queries="all"),
        lambda: partition.Subtrees(fanout=1),
        lambda: partition.L1(extra=-1),
        lambda: partition.L1(center="mode"),
        lambda: partition.KdTree(xi=0),
        lambda: initialize.Thresholded(eta=-1),
        lambda: formulas.Constant(extra=float("nan")),
    ):
        with pytest.raises(UsageError):
            make()


def test_any_partition_goes_with_any_tree():
    x = RNG.integers(0, 30, 64)
    starts = [partition.Optimal(), partition.Greedy(), partition.KdTree(), partition.AhpGreedy()]
    finals = [estimate.GroupMeans(), estimate.WeightedMeans(), estimate.LeastSquares(), estimate.Tree(),
              estimate.WorkloadTree(), estimate.Hats()]  # fmt: skip
    for first, orderer, groups, final in itertools.product(
        [initialize.Noisy(), initialize.Thresholded()],
        [order.AsGiven(), order.ByNoisyCount()],
        starts,
        finals,
    ):
        mixed = Pipeline(initialize=first, order=orderer, partition=groups, estimate=final,
                         split=Split(initialize="0.5", estimate="0.5"))  # fmt: skip
        values = dphist.simulate(x, epsilon=1, method=mixed, workload="random:30")
        assert np.isfinite(values).all()
