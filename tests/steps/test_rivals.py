"""The rivals: transforms, private selection, weights and grids, against slow twins and theory."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dphist
from dphist.domain import Domain, Integers, workload
from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.kernels.transforms import fourier
from dphist.kernels.transforms.exact import exact_answers
from dphist.kernels.transforms.haar import haar_cells, haar_error, haar_variances
from dphist.kernels.transforms.weights import reweighted
from dphist.kernels.trees import tree as trees
from dphist.kernels.trees.variances import range_variances
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.privacy import queries as scores
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.queries import Boxes, Fourier, Haar, OnGroups
from dphist.steps import estimate, initialize, partition
from dphist.steps.estimate import grids
from dphist.steps.partition import formulas
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import TreeTotals, Unknown
from dphist.uncertainty.products import WaveletTotals
from dphist.uncertainty.reading import error_model_from_dict

SURE = 10**6
RNG = np.random.default_rng(6)


@pytest.fixture(autouse=True)
def _same_data_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(6).bit_generator.state


RIVALS = ["noisefirst", "structurefirst", "php", "efpa", "gs", "privelet", "geometric-tree", "mwem", "dpcube",
          "quadtree", "hybridtree", "uniformgrid", "adaptivegrid"]  # fmt: skip
COMPONENTS = [c() for slot in (partition, estimate) for c in map(vars(slot).get, slot.__all__)]


def curator_of(x, epsilon=1, seed=0):
    domain = Domain(tuple(Integers(0, n - 1) for n in np.shape(x)))
    return Curator.simulated(Counts(np.asarray(x), domain), epsilon=Fraction(epsilon), seed=seed)


def served(method, shape):
    """Return the shape, as a grid of one column if the method refuses lines."""
    return (*shape, 1) if method in ("quadtree", "hybridtree") and len(shape) == 1 else shape


@pytest.mark.parametrize("step", COMPONENTS, ids=repr)
def test_a_component_is_a_frozen_dataclass_that_prints_and_compares(step):
    assert step.__dataclass_params__.frozen
    assert step == type(step)()
    assert hash(step) == hash(type(step)())
    assert type(step).__name__ in repr(step)
    assert isinstance(step.spends, bool)
    assert isinstance(step.needs_rough, bool)


@pytest.mark.parametrize("shape", [(1,), (2,), (37,), (64,), (1, 6), (7, 5), (16, 16)], ids=str)
class TestEveryRival:
    @pytest.mark.parametrize("method", RIVALS)
    def test_spends_exactly_everything_and_is_finite_on_lines_and_grids(self, method, shape):
        shape = served(method, shape)
        x = RNG.integers(0, 50, shape)
        for asked in ["points", "ranges" if len(shape) == 1 else "rectangles:9"]:
            curator = curator_of(x, Fraction(1, 3))
            queries = workload.make_workload(asked, curator.domain)
            pipeline = make_pipeline(method, curator.domain)
            pipeline.check(curator.domain, queries)
            release = pipeline.run(curator, queries)
            assert sum(s.epsilon for s in curator.spent) == Fraction(1, 3)
            assert np.isfinite(release.raw).all()
            assert release.raw.size == x.size

    @pytest.mark.parametrize(
        "method", ["privelet", "geometric-tree", "dpcube", "quadtree", "hybridtree", "efpa"]
    )
    def test_without_noise_what_groups_nothing_gives_the_counts(self, method, shape):
        shape = served(method, shape)
        x = RNG.integers(0, 1000, shape)
        values = dphist.simulate(x, epsilon=SURE, method=method)[0]
        # The weights of Fourier sums are rounded to 2^-16; all else is exact.
        close = 1e-5 * np.linalg.norm(x) if method == "efpa" else 1e-7
        assert np.asarray(values) == pytest.approx(x.ravel(), abs=close)

    @pytest.mark.parametrize("method", ["noisefirst", "structurefirst", "php", "gs", "mwem", "uniformgrid"])
    def test_without_noise_flat_counts_come_out_flat(self, method, shape):
        values = dphist.simulate(np.full(shape, 70), epsilon=SURE, method=method)[0]
        assert np.asarray(values) == pytest.approx(70, abs=1e-6)


def dense(transform):
    """Return the matrix of linear queries, a column per bin."""
    return np.stack([transform(e) for e in np.eye(transform.n, dtype=np.int64)], axis=1)


class TestTransforms:
    @pytest.mark.parametrize("shape", [(1, 1), (2, 1), (7, 1), (64, 1), (1, 9), (6, 5), (8, 8)], ids=str)
    def test_haar_is_the_differences_of_halves_and_its_bound_is_the_worst_column(self, shape):
        haar = Haar(*shape)
        matrix = dense(haar)
        assert set(np.unique(matrix)) <= {-1, 0, 1}
        assert (matrix[0] == 1).all()
        assert np.abs(matrix).sum(axis=0).max() == haar.sensitivity
        x = RNG.integers(0, 1000, haar.n)
        assert haar_cells(haar(x).astype(float), *shape) == pytest.approx(x)
        inverse = np.linalg.inv(matrix)
        assert np.square(inverse).sum(axis=1) == pytest.approx(haar_variances(*shape))

    @pytest.mark.parametrize("n", [1, 2, 5, 16])
    def test_the_variance_of_every_range_is_that_of_the_dense_inverse(self, n):
        inverse = np.linalg.inv(dense(Haar(n)))
        for lo, hi in itertools.combinations(range(n + 1), 2):
            assert range_variances(haar_error(n), [lo], [hi]) == pytest.approx(
                np.square(inverse[lo:hi].sum(axis=0)).sum()
            )

    def test_the_published_weights_are_these(self):
        """Privelet: coefficient (left mean - right mean)/2, noise of scale (1 + log2 n)/epsilon over size."""
        n, x = 8, RNG.integers(0, 50, 8)
        haar = Haar(n)
        tree = trees.make_tree(n, 2)
        inner = np.flatnonzero(tree.left)
        left, size = tree.left[inner], (tree.hi - tree.lo)[inner]
        mean = np.array([x[a:b].mean() for a, b in zip(tree.lo, tree.hi, strict=True)])
        published = (mean[left] - mean[left + 1]) / 2
        assert haar(x)[1:] == pytest.approx(published * size)
        assert haar.sensitivity == 1 + math.log2(n)

    @pytest.mark.parametrize("n", [4, 12, 64, 100])
    def test_a_table_without_a_fold_gives_the_same_sums(self, n, monkeypatch):
        x, most = np.random.default_rng(n).integers(0, 2**40, n), fourier.most_frequencies(n)
        asked = [(most, 7), (most - 1, 1 << 16), (1, 1)]
        folded = [fourier.fourier_answers(x, *each).tolist() for each in asked]
        sums = [fourier.column_sums(n, *each).tolist() for each in asked]
        assert fourier._is_folded(n, 1 << 16)
        monkeypatch.setattr(fourier, "_is_folded", lambda n, weight: False)
        fourier.column_sums.cache_clear()
        assert folded == [fourier.fourier_answers(x, *each).tolist() for each in asked]
        assert sums == [fourier.column_sums(n, *each).tolist() for each in asked]

    @pytest.mark.parametrize(("n", "kept"), [(1, 1), (2, 2), (3, 2), (9, 3), (16, 9), (16, 4), (33, 17)])
    def test_fourier_sums_are_rounded_cosines_and_sines(self, n, kept):
        sums = Fourier(n, kept, 1 << 10)
        matrix = dense(sums)
        f, j = np.arange(kept)[:, None], np.arange(n)
        angle = 2 * np.pi * f * j / n
        exact = 1024 * np.concatenate([np.cos(angle), np.sin(angle[1 : 1 + fourier.sine_count(n, kept)])])
        assert np.abs(matrix - exact).max() <= 0.5 + 1e-9
        assert np.abs(matrix).sum(axis=0).max() == sums.sensitivity
        assert matrix.shape == (sums.size, n)
        lengths = np.array([math.sqrt(sum(fourier.energies(column, kept))) for column in matrix.T])
        assert lengths.max() <= sums.length_sensitivity <= 1.5 * math.sqrt(n) * 1024
        if kept == n // 2 + 1:
            x = RNG.integers(0, 100, n)
            cells = fourier.fourier_cells(sums(x).astype(float), n, kept, 1 << 10)
            assert cells == pytest.approx(x, abs=1)

    def test_answers_are_exact_for_any_counts_and_cut_off_where_they_do_not_fit(self):
        weights = RNG.integers(-(1 << 16), 1 << 16, (40, 30))
        for top in (100, 1 << 40, 1 << 53):
            x = RNG.integers(0, top, 30)
            right = [sum(int(w) * int(c) for w, c in zip(row, x, strict=True)) for row in weights]
            cut = [max(min(v, 1 << 61), -(1 << 61)) for v in right]
            assert exact_answers(lambda part: weights @ part, x, most=1 << 16).tolist() == cut
        assert any(v != c for v, c in zip(right, cut, strict=True))

    @given(st.data())
    def test_one_record_moves_the_answers_by_no_more_than_the_bound(self, data):
        n = data.draw(st.integers(1, 40))
        kept = data.draw(st.integers(1, n // 2 + 1))
        top = data.draw(st.sampled_from([9, 1 << 52]))
        x = np.array(data.draw(st.lists(st.integers(0, top), min_size=n, max_size=n)))
        y = x.copy()
        y[data.draw(st.integers(0, n - 1))] += 1
        groups = Groups(np.unique([0, n // 2, n])) if n > 1 else Groups.whole(1)
        for asked in (
            Haar(n),
            Haar(1, n),
            Fourier(n, kept, 1 << 16),
            OnGroups(Haar(groups.k), groups),
        ):
            assert np.abs(asked(y) - asked(x)).sum() <= asked.sensitivity


def deviation(x):
    return int(np.abs(x - np.sort(x)[len(x) // 2]).sum())


def least(x, pieces):
    """Return the least cost of at most so many groups, by trying all."""
    if len(x) == 0:
        return 0
    cuts = (c for k in range(pieces) for c in itertools.combinations(range(1, len(x)), k))
    return min(sum(deviation(part) for part in np.split(x, list(c))) for c in cuts)


class TestScores:
    @given(st.data())
    def test_cuts_are_the_cost_of_each_partition(self, data):
        n = data.draw(st.integers(1, 12))
        x = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
        starts = np.unique([0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))])
        order = np.array(data.draw(st.permutations(range(n))))
        found = scores.Cuts(starts, 3, order)(x)
        assert found.size == n == scores.Cuts(starts, 3).size
        stay = -sum(deviation(part) for part in np.split(x[order], starts[1:-1]))
        assert found[0] == stay
        for cut in range(1, n):
            parts = np.split(x[order], np.union1d(starts[1:-1], cut))
            assert found[cut] == -sum(map(deviation, parts)) - 3

    @settings(max_examples=40)
    @given(st.data())
    def test_last_cuts_are_the_best_before_and_one_group_behind(self, data):
        n = data.draw(st.integers(1, 8))
        x = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
        edges = np.unique([0, n, *data.draw(st.lists(st.integers(0, n), max_size=8))])
        end, pieces = data.draw(st.integers(0, edges.size - 1)), data.draw(st.integers(1, 4))
        found = scores.LastCut(edges, end, pieces)(x)
        for i in range(end):
            inner = [c for c in edges if 0 < c < edges[i]]
            before = min(
                sum(map(deviation, np.split(x[: edges[i]], list(cuts))))
                for k in range(pieces)
                for cuts in itertools.combinations(inner, k)
            ) if edges[i] else 0  # fmt: skip
            assert found[i] == -before - deviation(x[edges[i] : edges[end]])
        assert (found[end:] == -(1 << 61)).all()

    @settings(max_examples=60)
    @given(st.data())
    def test_one_record_moves_no_score_by_more_than_is_declared(self, data):
        n = 12
        x = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))
        y = x.copy()
        y[data.draw(st.integers(0, n - 1))] += 1
        boxes = Boxes((4, 3), np.array([0, 1]), np.array([2, 4]), np.array([0, 1]), np.array([3, 2]))
        sums = Fourier(n, 5, 64)
        plain = Groups.singletons(n)
        for score in (
            scores.Cuts(np.array([0, 5, 12]), 2),
            scores.LastCut(np.arange(13), 10, 3),
            scores.Medians((4, 3), (0, 4, 0, 2), 0),
            scores.Medians((4, 3), (1, 3, 0, 3), 1),
            scores.Dropped(sums, tuple(range(5)), plain),
            scores.WorstAnswered(boxes, np.array([7, 11]), plain),
        ):
            before, after = score(x), score(y)
            assert before.dtype == np.int64
            assert before.shape == (score.size,)
            assert np.abs(after - before).max() <= score.sensitivity

    def test_the_declared_sensitivities_are_reached(self):
        """A smaller one would be caught: some neighbours need all of it (for lengths, nearly all)."""
        x, y = np.zeros(12, np.int64), np.eye(12, dtype=np.int64)[3]
        for score in (scores.Cuts(np.array([0, 12]), 0), scores.Medians((4, 3), (0, 4, 0, 3), 0)):
            assert np.abs(score(y) - score(x)).max() == 1
        sums = Fourier(12, 7, 1 << 10)
        dropped = scores.Dropped(sums, (0,) * 7, Groups.singletons(12))
        assert np.abs(dropped(y) - dropped(x)).max() > 0.9 * dropped.sensitivity


def dense_error(matrix, variances, n):
    """Return the mean squared error over all ranges of the least squares answer to noisy queries."""
    covariance = np.linalg.inv(matrix.T @ (matrix / variances[:, None]))
    corners = np.zeros((n + 1, n + 1))
    corners[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    diagonal = np.diag(corners)
    each = diagonal[:, None] + diagonal[None, :] - 2 * corners  # of the range between two prefixes
    return each[np.triu_indices(n + 1, 1)].mean()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["privelet", "hay", "hb", "identity", "geometric-tree"])
def test_the_error_over_all_ranges_is_what_theory_says(method):
    n, trials = 256, 800
    queries = workload.AllRanges(n)
    curator = curator_of(np.zeros(n, int))
    _, found = make_pipeline(method, curator.domain).values(curator, queries)
    if isinstance(found.error, TreeTotals):
        tree, scales = trees.make_tree(n, found.error.branching), found.error.scales
        kept = np.isfinite(scales)
        matrix = np.array(
            [(np.arange(n) >= a) & (np.arange(n) < b) for a, b in zip(tree.lo, tree.hi, strict=True)]
        )
        expected = dense_error(matrix[kept].astype(float), noise_law.variance(scales[kept]), n)
    elif method == "privelet":
        expected = dense_error(dense(Haar(n)).astype(float), np.full(n, noise_law.variance(9.0)), n)
    else:
        expected = dense_error(np.eye(n), np.full(n, noise_law.variance(1.0)), n)
    values = dphist.simulate(
        np.zeros(n, int), epsilon=1, method=method, workload=queries, trials=trials, seed=5
    )
    seen = np.mean([queries.mean_squared_error(np.asarray(v)) for v in values])
    assert seen == pytest.approx(expected, rel=0.05)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", RIVALS)
def test_scale_and_epsilon_are_exchangeable(method):
    """Sixteen times the data at a sixteenth of epsilon has the same relative error (Hay et al. 2016)."""
    x = 40 * np.repeat(RNG.permutation(np.arange(16)), 4).reshape(8, 8)
    x = x if method in ("quadtree", "hybridtree", "uniformgrid", "adaptivegrid") else x.ravel()
    flat = x.ravel()
    first = dphist.simulate(x, epsilon="1/4", method=method, trials=150, seed=1)
    second = dphist.simulate(16 * x, epsilon="1/64", method=method, trials=150, seed=2)
    ratio = np.square(second / 16 - flat).mean() / np.square(first - flat).mean()
    assert 0.8 < ratio < 1.25


class TestPriveletErrors:
    @pytest.mark.slow
    def test_95_percent_intervals_of_ranges_hold_in_95_percent_of_releases(self):
        n, queries = 256, workload.random(256, 300)
        inside, narrow = [], []
        for seed in range(150):
            curator = curator_of(np.zeros(n, int), "1/10", seed)
            _, found = make_pipeline("privelet", curator.domain).values(curator, queries)
            if seed == 0:  # public, the same for every release
                ends = zip(*(end.tolist() for end in queries.pairs()), strict=True)
                margins = np.array([found.error.margin(a, b, level=0.95) for a, b in ends])
            gap = np.abs(queries.answers(found.values))
            inside.append(gap <= margins)
            narrow.append(gap <= 0.9 * margins)
        assert 0.94 <= np.mean(inside) <= 0.96
        assert np.mean(narrow) < 0.94, "intervals a tenth too narrow would be seen"

    def test_what_cuts_a_group_or_lies_on_a_grid_has_no_interval(self):
        model = WaveletTotals(Groups(np.array([0, 4, 5, 8])), 1, 10.0)
        assert model.margin(0, 8, level=0.95) is not None
        assert model.margin(0, 5, level=0.95) is not None
        assert model.margin(1, 5, level=0.95) is None
        assert np.isnan(model.variances()).sum() == 7
        grid = WaveletTotals(Groups.singletons(12), 3, 10.0)
        assert np.isfinite(grid.variances()).all()
        assert grid.margin(0, 5, level=0.95) is None
        again = error_model_from_dict(grid.to_dict(), grid.groups.n)
        assert np.array_equal(again.variances(), grid.variances())
        assert again.margin(0, 12, level=0.9) == grid.margin(0, 12, level=0.9)

    def test_a_release_carries_its_error_through_a_file(self, tmp_path):
        release = dphist.from_counts(np.arange(100), epsilon=1, method="privelet", workload="ranges")
        release.save(tmp_path / "r.json")
        again = dphist.load(tmp_path / "r.json")
        assert again == release
        assert (again.total().low, again.total().high) == (release.total().low, release.total().high)


class TestNoiseFirst:
    def test_it_is_the_best_number_of_best_segments(self):
        for _ in range(30):
            h = RNG.integers(0, 12, 9)
            rough = 4.0
            table = {}
            for k in range(1, 10):
                for cuts in itertools.combinations(range(1, 9), k - 1):
                    sse = sum(np.square(part - part.mean()).sum() for part in np.split(h, list(cuts)))
                    table[cuts] = sse - (9 - k) * rough + k * rough  # the error that the paper estimates
            starts = partition.Optimal(formula=formulas.Unbiased(extra=1)).cut(h, rough, 0.0)
            assert table[tuple(starts[1:-1])] == pytest.approx(min(table.values()))

    def test_values_are_means_of_the_noisy_counts(self):
        curator = curator_of([5, 5, 90, 90], 1, seed=3)
        groups, found = make_pipeline("noisefirst", curator.domain).values(curator, workload.Points(4))
        noisy = curator_of([5, 5, 90, 90], 1, seed=3).measure(Groups.singletons(4), share=Fraction(1)).values
        assert found.values == pytest.approx(groups.means(groups.totals(noisy)))
        assert isinstance(found.error, Unknown)


class TestSelection:
    STEPS = np.repeat([5, 900, 40, 300], [10, 20, 14, 20])

    @pytest.mark.parametrize("method", ["php", "structurefirst"])
    def test_without_noise_the_steps_are_found(self, method):
        values = dphist.simulate(self.STEPS, epsilon=SURE, method=method)[0]
        assert np.asarray(values) == pytest.approx(self.STEPS, abs=1e-6)

    def test_php_stops_where_cutting_costs_more_than_it_saves(self):
        groups = partition.PHp(rounds=20)(
            curator_of(self.STEPS, SURE), None, None, share=Fraction(1, 2), later=Fraction(1, 2)
        )
        assert groups.starts.tolist() == [0, 10, 30, 44, 64]

    def test_structurefirst_makes_no_more_groups_than_asked(self):
        for most in (2, 3, 9):
            groups = partition.StructureFirst(groups=most)(
                curator_of(self.STEPS, 1), None, None, share=Fraction(1), later=Fraction(0)
            )
            assert groups.k <= most

    def test_groups_of_one_size(self):
        cut = partition.FixedSize(size=4)(
            curator_of(np.arange(10)), None, None, share=Fraction(0), later=Fraction(1)
        )
        assert cut.starts.tolist() == [0, 4, 8, 10]
        cut = partition.FixedSize()(
            curator_of(np.arange(100)), None, None, share=Fraction(0), later=Fraction(1)
        )
        assert set(cut.sizes) == {10}

    def test_efpa_keeps_few_frequencies_of_a_wave_and_spends_both_halves(self):
        x = np.rint(1000 + 800 * np.sin(np.arange(256) * 2 * np.pi * 3 / 256)).astype(int)
        curator = curator_of(x, "1/10")
        make_pipeline("efpa", curator.domain).values(curator, workload.Points(256))
        kept = int(curator.spent[1].purpose.split()[0])
        assert [s.share for s in curator.spent] == [Fraction(1, 2)] * 2
        assert 7 <= kept <= 12
        curator = curator_of(RNG.integers(0, 10**6, 256), 10)
        make_pipeline("efpa", curator.domain).values(curator, workload.Points(256))
        assert int(curator.spent[1].purpose.split()[0]) > 200


class TestMwem:
    def test_weights_of_pieces_are_those_of_cells(self):
        """The slow twin multiplies every cell."""
        shape = (7, 6)
        boxes = Boxes(
            shape, np.array([0, 2, 1]), np.array([3, 7, 2]), np.array([1, 0, 0]), np.array([4, 2, 6])
        )
        measured = np.array([200.0, 5.0, 90.0])
        a = np.full(shape, 10.0)
        for _ in range(4):
            for i, m in enumerate(measured):
                box = np.s_[boxes.x0[i] : boxes.x1[i], boxes.y0[i] : boxes.y1[i]]
                w = np.ones(shape)
                w[box] = np.exp((m - a[box].sum()) / (2 * 420.0))
                a = a * w * 420.0 / (a * w).sum()
        assert reweighted(np.full(shape, 10.0), boxes.sides, measured, passes=4) == pytest.approx(a)

    def test_sums_of_boxes(self):
        queries = workload.random_rectangles((9, 4), 30)
        boxes = Boxes((9, 4), queries.x0, queries.x1, queries.y0, queries.y1)
        x = RNG.integers(0, 50, 36)
        assert np.array_equal(boxes(x), queries.answers(x))
        assert boxes.sensitivity == queries.coverage().max()

    def test_without_noise_and_with_rounds_enough_the_counts_are_found(self):
        for asked, start in itertools.product(("points", "prefixes", "ranges"), range(4)):
            x = np.random.default_rng(start).integers(20, 100, 16)
            method = Pipeline(estimate=estimate.Mwem(rounds=60, passes=400))
            values = dphist.simulate(x, epsilon=SURE, method=method, workload=asked)[0]
            # Scores are whole numbers, so what is off by little is not asked again; 1e-9 is for rounding.
            assert np.asarray(values) == pytest.approx(x, abs=1.5 + 1e-9)

    def test_each_round_makes_the_worst_answer_better(self):
        x = np.where(np.arange(64) < 5, 500, 3)
        queries = workload.make_workload("random:200", 64)
        worst = []
        for rounds in (1, 4, 16):
            method = Pipeline(estimate=estimate.Mwem(rounds=rounds))
            values = dphist.simulate(x, epsilon=SURE, method=method, workload=queries)[0]
            worst.append(queries.max_absolute_error(np.asarray(values) - x))
        assert worst[0] > 2 * worst[1] > 4 * worst[2]

    def test_the_total_is_paid_for_and_a_negative_one_is_kept_and_spread(self):
        curator = curator_of(np.zeros(8, int), "1/1000", seed=2)
        make_pipeline("mwem", curator.domain).values(curator, workload.Points(8))
        assert [s.share for s in curator.spent] == [Fraction(1, 11)] + [Fraction(1, 22)] * 20
        totals = []
        for seed in range(20):
            curator = curator_of(np.zeros(8, int), "1/1000", seed=seed)
            values = make_pipeline("mwem", curator.domain).values(curator, workload.Points(8))[1].values
            totals.append(values.sum())
            assert values.sum() > 0 or np.ptp(values) == pytest.approx(0, abs=1e-9)
        assert min(totals) < 0 < max(totals)


class Recorded:
    """A curator that remembers what it measured."""

    def __init__(self, curator):
        self._curator = curator
        self.measured = []

    def __getattr__(self, name):
        return getattr(self._curator, name)

    def measure(self, groups, *, share):
        self.measured.append((groups, self._curator.measure(groups, share=share)))
        return self.measured[-1][1]


class TestGrids:
    @pytest.mark.parametrize("shape", [(8, 8), (7, 5), (1, 6), (64, 1), (16, 3)], ids=str)
    def test_nodes_of_a_quadtree_are_boxes_that_their_children_share(self, shape):
        tree, order = grids._grow(shape, lambda levels, axis, boxes: grids._middle(axis, boxes))
        assert sorted(order) == list(range(shape[0] * shape[1]))
        for q in range(tree.size):
            rows, columns = np.divmod(order[tree.lo[q] : tree.hi[q]], shape[1])
            assert (np.ptp(rows) + 1) * (np.ptp(columns) + 1) == rows.size
            if tree.left[q]:
                a, b = tree.left[q], tree.left[q] + 1
                assert (tree.lo[a], tree.hi[a], tree.hi[b]) == (tree.lo[q], tree.lo[b], tree.hi[q])
                assert tree.parent[a] == tree.parent[b] == q
            else:
                assert tree.leaf[tree.lo[q]] == q
        parts = trees.level_weights(tree, ratio=1.5)
        sums = [parts[(tree.lo <= i) & (i < tree.hi)].sum() for i in range(tree.k)]
        assert sums == pytest.approx(np.ones(tree.k))

    def test_on_a_square_it_is_the_known_tree_with_known_errors(self):
        curator = curator_of(RNG.integers(0, 9, (8, 8)))
        _, found = make_pipeline("quadtree", curator.domain).values(curator, workload.Points(64))
        assert isinstance(found.error, TreeTotals)
        assert found.error.branching == 4
        values = np.asarray(dphist.simulate(np.zeros((8, 8), int), epsilon=1, method="quadtree", trials=800))
        assert np.square(values).mean() == pytest.approx(found.error.variances().mean(), rel=0.03)
        assert np.square(values).mean(axis=0) == pytest.approx(found.error.variances(), rel=0.4)
        curator = curator_of(RNG.integers(0, 9, (7, 5)))
        _, found = make_pipeline("quadtree", curator.domain).values(curator, workload.Points(35))
        values = np.asarray(dphist.simulate(np.zeros((7, 5), int), epsilon=1, method="quadtree", trials=800))
        assert np.square(values).mean() == pytest.approx(found.error.variances().mean(), rel=0.05)

    def test_a_hybrid_tree_cuts_where_both_sides_hold_as_much(self):
        x = np.ones((32, 32), int)
        x[:4] = 7
        score = scores.Medians((32, 32), (0, 32, 0, 32), 0)
        assert int(np.argmax(score(x.ravel()))) == 3  # four rows of 7 hold as much as 28 of 1
        curator = curator_of(x, SURE)
        make_pipeline("hybridtree", curator.domain).values(curator, workload.Points(1024))
        chosen = [s for s in curator.spent if "choice" in s.purpose]
        assert len(chosen) == 15
        assert {s.share for s in chosen} == {Fraction(1, 100)}
        assert curator.spent[-1].share == Fraction(85, 100)

    def test_the_size_of_a_uniform_grid_follows_the_noisy_total(self):
        for total, side in ((1000, 10), (100_000, 31), (10**7, 64)):
            x = np.zeros((64, 64), int)
            x[1, 1] = total
            groups = partition.UniformGrid()(
                curator_of(x, "1/10"), None, None, share=Fraction(1, 20), later=Fraction(19, 20)
            )
            assert groups.k == pytest.approx(side**2, rel=0.1)
            sizes = groups.sizes
            assert sizes.max() <= (math.ceil(64 / math.isqrt(groups.k))) ** 2

    def test_an_adaptive_grid_is_finer_where_it_is_full(self):
        x = np.zeros((100, 100), int)
        x[:10, :10] = 1000
        values = np.asarray(dphist.simulate(x, epsilon=1, method="adaptivegrid", seed=1)[0]).reshape(100, 100)
        assert np.unique(values[:10, :10]).size > 40  # one value per cell, some of them equal by chance
        assert np.unique(values[50:60, 50:60]).size < 10

    def test_an_adaptive_grid_fits_both_rounds_by_least_squares(self):
        x = RNG.integers(0, 300, (12, 12))
        step = estimate.AdaptiveGrid(least=2)
        values = dphist.simulate(x, epsilon=SURE, method=Pipeline(estimate=step))[0]
        assert np.asarray(values) == pytest.approx(x.ravel(), abs=1e-6)
        seen = Recorded(curator_of(x, "1/2"))
        values = step(seen, None, Groups.singletons(144), workload.Points(144), share=Fraction(1)).values
        _, (coarse, first), (fine, second) = seen.measured
        assert coarse.k < fine.k
        owner = coarse.labels()[fine.ordered(np.arange(144))[fine.starts[:-1]]]  # coarse box of each fine one
        inside = owner == np.arange(coarse.k)[:, None]
        one, two = (1 / math.sqrt(noisy.variance) for noisy in (first, second))
        queries = np.concatenate([one * inside, two * np.eye(fine.k)])
        answers = np.concatenate([one * first.values, two * second.values])
        fitted = np.linalg.lstsq(queries, answers, rcond=None)[0]
        assert values == pytest.approx(fine.means(fitted))

    def test_dpcube_finds_boxes_of_a_grid(self):
        x = np.zeros((32, 32), int)
        x[5:11, 20:29] = 500
        curator = curator_of(x, 2)
        groups, _ = make_pipeline("dpcube", curator.domain).values(curator, workload.Points(1024))
        inside = groups.labels().reshape(32, 32)
        assert not set(inside[5:11, 20:29].ravel()) & (set(inside[:5].ravel()) | set(inside[:, :20].ravel()))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "method", ["privelet", "dpcube", "quadtree", "hybridtree", "uniformgrid", "adaptivegrid"]
    )
    def test_a_grid_of_a_million_cells_is_no_trouble(self, method):
        x = np.zeros((1024, 1024), int)
        x[400:600, 300:500] = 30
        values = dphist.simulate(x, epsilon=1, method=method)[0]
        assert np.asarray(values).sum() == pytest.approx(x.sum(), rel=0.01)


def test_components_refuse_senseless_settings():
    for make in (
        lambda: partition.PHp(rounds=0),
        lambda: partition.StructureFirst(groups=1),
        lambda: partition.FixedSize(size=0),
        lambda: estimate.Mwem(rounds=0),
        lambda: partition.KdGrid(xi=0),
        lambda: partition.UniformGrid(constant=0),
        lambda: estimate.AdaptiveGrid(least=0),
        lambda: estimate.QuadTree(ratio=0),
        lambda: estimate.HybridTree(choosing=Fraction(1)),
        lambda: Fourier(8, 6, 4),
        lambda: Fourier(8, 2, 0),
    ):
        with pytest.raises(UsageError):
            make()


def test_new_components_go_with_the_others():
    x = RNG.integers(0, 30, 64)
    for groups, final in itertools.product(
        [partition.Greedy(), partition.FixedSize(), partition.KdGrid()],
        [estimate.Privelet(), estimate.Efpa(), estimate.Mwem(), estimate.AdaptiveGrid(), estimate.Tree()],
    ):
        mixed = Pipeline(
            initialize=initialize.Noisy(), order=dphist.steps.order.ByNoisyCount(), partition=groups,
            estimate=final, split=Split(initialize="0.5", estimate="0.5"),
        )  # fmt: skip
        assert np.isfinite(dphist.simulate(x, epsilon=1, method=mixed, workload="random:30")).all()
    assert dataclasses.replace(partition.PHp(), rounds=3).rounds == 3
