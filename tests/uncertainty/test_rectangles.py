"""Rectangles of grids: exact variances of any set of bins, against dense linear algebra, for every method."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.boxes import Boxes, running
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import ReleaseFileError, UsageError
from dphist.kernels.transforms.haar import haar_answers, haar_error
from dphist.kernels.trees.tree import make_tree, shaped_tree
from dphist.kernels.trees.variances import group_variances, range_variances, tree_error, weighted_variance
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.queries import Hats
from dphist.steps.order import hilbert
from dphist.uncertainty import noise_law
from dphist.uncertainty.calibrated import Calibrated
from dphist.uncertainty.models import FineTotals, GroupTotals, TreeTotals
from dphist.uncertainty.products import GridHatTotals, MeasuredGrid, PyramidTotals, WaveletTotals
from dphist.uncertainty.reading import error_model_from_dict
from samples import later

GRID = Domain((Integers(0, 7), Integers(0, 7)))
COUNTS = np.add.outer(np.arange(8) // 3 * 90, np.arange(8) // 2 * 25)
METHODS = [m.name for m in CATALOGUE.values() if m.serves(GRID) and m.intervals != "none"]
BOXES = tuple(np.array(ends) for ends in ((0, 3, 1), (2, 7, 8), (1, 0, 2), (1, 2, 0)))


def covariance(tree, scales):
    """Return the covariance of the groups' totals fitted to a noisy tree, by dense least squares."""
    seen = np.isfinite(scales)
    rows = np.array(
        [(np.arange(tree.k) >= a) & (np.arange(tree.k) < b) for a, b in zip(tree.lo, tree.hi, strict=True)]
    )
    weighed = rows[seen] / np.sqrt(noise_law.variance(scales[seen]))[:, None]
    return np.linalg.inv(weighed.T @ weighed)


def released(method, *, seed=0, counts=COUNTS, epsilon="0.1", domain=GRID):
    queries = make_workload("rectangles", domain)
    pipeline = make_pipeline(method, domain, queries).with_intervals()
    curator = Curator.simulated(Counts(counts, domain), epsilon=Fraction(epsilon), seed=seed)
    return pipeline.run(curator, queries)


@pytest.mark.parametrize("k", [1, 2, 7, 16])
@pytest.mark.parametrize("branching", [2, 4])
def test_the_variance_of_any_weighted_sum_of_leaves_is_that_of_dense_least_squares(k, branching):
    rng = np.random.default_rng(k)
    tree = make_tree(k, branching)
    scales = np.where(
        tree.hi - tree.lo == 1, rng.uniform(1, 3, tree.lo.size), rng.choice([2.0, math.inf], tree.lo.size)
    )
    error, dense = tree_error(tree, noise_law.variance(scales)), covariance(tree, scales)
    for _ in range(10):
        w = rng.normal(size=k)
        assert weighted_variance(error, w) == pytest.approx(w @ dense @ w)
    for a, b in itertools.combinations(range(k + 1), 2):
        w = ((np.arange(k) >= a) & (np.arange(k) < b)).astype(float)
        assert weighted_variance(error, w) == pytest.approx(range_variances(error, [a], [b])[0])
    assert np.allclose([weighted_variance(error, row) for row in np.eye(k)], group_variances(error))


def test_leaves_that_nothing_tells_apart_have_no_variance_alone():
    tree = make_tree(4, 2)
    scales = np.where(tree.hi - tree.lo == 1, math.inf, 1.0)
    error = tree_error(tree, noise_law.variance(scales))
    assert math.isinf(weighted_variance(error, np.array([1.0, 0, 0, 0])))
    assert math.isfinite(weighted_variance(error, np.array([1.0, 1, 0, 0])))
    model = TreeTotals(Groups(np.arange(5), np.array([0, 2, 1, 3])), 2, False, scales)
    assert model.cells_margin(np.array([0]), level=0.9) is None
    assert model.cells_margin(np.array([0, 2]), level=0.9) is not None


def test_a_tree_along_a_curve_knows_every_rectangle():
    order, tree = hilbert(4, 4), make_tree(16, 2)
    scales = np.random.default_rng(1).uniform(1, 4, tree.lo.size)
    model = TreeTotals(Groups(np.arange(17), order), 2, False, scales)
    dense = covariance(tree, scales)
    place = np.argsort(order)
    boxes = Boxes((4, 4), tuple(map(np.array, ([0, 1, 2, 0], [2, 4, 3, 4], [1, 0, 3, 0], [4, 2, 4, 4]))))
    for level in (0.5, 0.8):  # at which few cells are taken to be normal, too
        found = model.boxes_margins(boxes, level=level)
        for i in range(len(boxes)):
            w = np.zeros(16)
            w[place[boxes.cells(i)]] = 1
            assert found[i] == pytest.approx(noise_law.normal_quantile(level) * math.sqrt(w @ dense @ w))
    turned = model.transposed(4)
    across = np.arange(16).reshape(4, 4).T.ravel()
    for cells in ([0, 1, 5], [2, 3, 4, 5, 6]):
        moved = np.sort(np.flatnonzero(np.isin(across, cells)))
        assert turned.cells_margin(moved, level=0.9) == pytest.approx(
            model.cells_margin(np.array(cells), level=0.9)
        )


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (6, 2)])
def test_a_wavelet_knows_every_rectangle_and_any_rows_and_columns(rows, columns):
    n = rows * columns
    model = WaveletTotals(Groups.singletons(n), columns, 3.0)
    forward = np.array([haar_answers(row.reshape(rows, columns)) for row in np.eye(n, dtype=np.int64)]).T
    back = np.linalg.inv(forward.astype(float))
    z = noise_law.normal_quantile(0.95) * math.sqrt(noise_law.variance(3.0))
    all_of = [
        (a, b, c, d)
        for a, b in itertools.combinations(range(rows + 1), 2)
        for c, d in itertools.combinations(range(columns + 1), 2)
    ]
    boxes = Boxes((rows, columns), tuple(np.array(ends) for ends in zip(*all_of, strict=True)))
    found = model.boxes_margins(boxes, level=0.95)
    for i in range(len(boxes)):
        cells = boxes.cells(i)
        exact = z * np.linalg.norm(back[cells].sum(axis=0))
        assert found[i] == pytest.approx(exact) and model.cells_margin(cells, level=0.95) == pytest.approx(
            exact
        )
    picked = (np.array([0, 2])[:, None] * columns + np.array([0, columns - 1])).ravel()
    assert model.cells_margin(picked, level=0.95) == pytest.approx(
        z * np.linalg.norm(back[picked].sum(axis=0))
    )
    assert model.cells_margin(np.array([0, columns + 1]), level=0.95) is None  # no rows and columns
    across = np.arange(n).reshape(rows, columns).T.ravel()
    lo, hi = np.arange(columns) * rows, (np.arange(columns) + 1) * rows
    turned = model.transposed(rows).margins(lo, hi, level=0.95)
    assert np.allclose(
        turned, [z * np.linalg.norm(back[across[a:b]].sum(axis=0)) for a, b in zip(lo, hi, strict=True)]
    )
    assert np.isnan(model.margins(np.array([1]), np.array([columns + 1]), level=0.95)[0])
    assert haar_error(rows).tree.k == rows


@pytest.mark.parametrize(("rows", "columns"), [(26, 3), (2, 30), (5, 4)])
def test_triangles_of_both_sides_know_every_rectangle_and_any_rows_and_columns(rows, columns):
    n, draw = rows * columns, np.random.default_rng(rows)
    model = GridHatTotals(rows, columns, 3e6)
    queries = Hats(n, "all-ranges", columns)
    weights = np.array([queries(row) for row in np.eye(n, dtype=np.int64)], dtype=float)
    dense = np.linalg.inv(weights @ weights.T) * noise_law.variance(3e6)
    z = noise_law.normal_quantile(0.8)  # a level at which small rectangles are taken to be normal, too
    ends = [np.sort(draw.integers(0, k + 1, (40, 2)), axis=1) for k in (rows, columns)]
    some = (ends[0][:, 0] < ends[0][:, 1]) & (ends[1][:, 0] < ends[1][:, 1])
    boxes = Boxes((rows, columns), tuple(e[some, i] for e in ends for i in (0, 1)))
    found = model.boxes_margins(boxes, level=0.8)
    for i in range(len(boxes)):
        cells = boxes.cells(i)
        exact = z * math.sqrt(dense[np.ix_(cells, cells)].sum())
        assert found[i] == pytest.approx(exact)
        assert model.cells_margin(cells, level=0.8) == pytest.approx(exact)
    assert np.allclose(model.variances(), np.diag(dense))
    picked = (np.array([0, rows - 1])[:, None] * columns + np.array([0, columns - 1])).ravel()
    apart = z * math.sqrt(dense[np.ix_(picked, picked)].sum())
    assert model.cells_margin(picked, level=0.8) == pytest.approx(apart)
    assert model.cells_margin(np.array([0, columns + 1]), level=0.8) is None  # no rows and columns
    lo, hi = np.array([0, columns, 0, 1]), np.array([columns, 2 * columns, n, columns + 1])
    rows_of = model.sum_variances(lo, hi)
    whole = [dense[a:b, a:b].sum() for a, b in zip(lo[:3], hi[:3], strict=True)]
    assert np.allclose(rows_of[:3], whole) and np.isnan(rows_of[3])
    column = np.arange(rows) * columns
    turned = model.transposed(rows).margins(np.array([0]), np.array([rows]), level=0.8)
    assert turned[0] == pytest.approx(z * math.sqrt(dense[np.ix_(column, column)].sum()))
    read = error_model_from_dict(json.loads(json.dumps(model.to_dict())), n)
    assert read.to_dict() == model.to_dict() and np.allclose(read.variances(), model.variances())
    for damaged in ({"rule": 3}, {"rule": 1}, {"rows": rows + 1}):
        with pytest.raises(ReleaseFileError):
            error_model_from_dict(model.to_dict() | damaged, n)


def test_a_grid_of_one_row_that_triangles_measured_is_known_along_both_axes(tmp_path):
    release = dphist.from_counts(
        np.arange(40).reshape(1, 40), epsilon=1, method="hats", workload="rectangles:40"
    )
    assert isinstance(release.error, GridHatTotals)
    for axis, ends in ((0, (0, 1)), (1, (3, 30))):
        line = release.project(axis)
        line.save(tmp_path / f"{axis}.json")
        for found in (line, dphist.load(tmp_path / f"{axis}.json")):
            asked, other = found.sum(*ends), release.sum((0, 1), ends if axis else (0, 40))
            assert (asked.value, asked.low, asked.high) == pytest.approx((other.value, other.low, other.high))
            assert np.isfinite(found.intervals()).all() and np.isfinite(found.variances()).all()


@pytest.mark.parametrize(("rows", "columns"), [(26, 3), (2, 30), (12, 14)])
def test_pyramids_know_every_rectangle_any_range_and_any_cells(rows, columns):
    n, draw = rows * columns, np.random.default_rng(rows)
    model = PyramidTotals(rows, columns, 3e6)
    queries = Hats(n, "rectangles", columns)
    weights = np.array([queries(row) for row in np.eye(n, dtype=np.int64)], dtype=float)
    dense = np.linalg.inv(weights @ weights.T) * noise_law.variance(3e6)
    z = noise_law.normal_quantile(0.8)  # a level at which small rectangles are taken to be normal, too
    ends = [np.sort(draw.integers(0, k + 1, (40, 2)), axis=1) for k in (rows, columns)]
    some = (ends[0][:, 0] < ends[0][:, 1]) & (ends[1][:, 0] < ends[1][:, 1])
    boxes = Boxes((rows, columns), tuple(e[some, i] for e in ends for i in (0, 1)))
    found = model.boxes_margins(boxes, level=0.8)
    for i in range(len(boxes)):
        cells = boxes.cells(i)
        assert found[i] == pytest.approx(z * math.sqrt(dense[np.ix_(cells, cells)].sum()))
        assert model.cells_margin(cells, level=0.8) == pytest.approx(found[i])
    assert np.allclose(model.variances(), np.diag(dense))
    picked = draw.choice(n, 9, replace=False)
    apart = z * math.sqrt(dense[np.ix_(picked, picked)].sum())
    assert model.cells_margin(picked, level=0.8) == pytest.approx(apart)
    lo, hi = np.array([0, columns, 0, 1, 5]), np.array([columns, 2 * columns, n, columns + 1, 5])
    exact = [dense[a:b, a:b].sum() for a, b in zip(lo, hi, strict=True)]
    assert np.allclose(model.sum_variances(lo, hi), exact)
    column = np.arange(rows) * columns
    turned = model.transposed(rows).margins(np.array([0]), np.array([rows]), level=0.8)
    assert turned[0] == pytest.approx(z * math.sqrt(dense[np.ix_(column, column)].sum()))
    read = error_model_from_dict(json.loads(json.dumps(model.to_dict())), n)
    assert read.to_dict() == model.to_dict() and np.allclose(read.variances(), model.variances())
    sides = {"rows": rows + 1}, {"rows": 1}, {"rows": 1, "columns": n}, {"rows": n, "columns": 1}
    for damaged in ({"rule": 2}, {"rule": 0}, *sides):
        with pytest.raises(ReleaseFileError):
            error_model_from_dict(model.to_dict() | damaged, n)
    largest = {"rows": 128, "columns": 128, "n": 1 << 14}
    assert error_model_from_dict(model.to_dict() | largest, 1 << 14).to_dict() == model.to_dict() | largest
    large = {"rows": 200, "columns": 100, "n": 20_000}
    with pytest.raises(ReleaseFileError, match="pyramids over up to 16,384 cells"):
        error_model_from_dict(model.to_dict() | large, 20_000)


def test_whole_groups_have_the_exact_law_of_their_number_wherever_they_lie():
    groups = Groups(np.array([0, 2, 4, 5, 9]), np.array([0, 5, 1, 6, 2, 3, 4, 7, 8]))
    model = GroupTotals(groups, 4.0)
    assert model.cells_margin(np.array([0, 1, 5, 6]), level=0.9) == noise_law.sum_quantile(
        np.array([4.0]), np.array([2]), 0.9
    )
    assert model.cells_margin(np.array([0, 1, 5]), level=0.9) is None
    uneven = GroupTotals(groups, np.array([1.0, 2.0, 3.0, 4.0]))
    assert uneven.cells_margin(np.array([0, 2, 5]), level=0.9) == noise_law.sum_quantile(
        np.array([1.0, 3.0]), np.array([1, 1]), 0.9
    )
    fine = FineTotals(model, 8)
    assert (
        fine.cells_margin(np.array([0, 5]), level=0.9) == model.cells_margin(np.array([0, 5]), level=0.9) / 8
    )


def test_bins_that_cut_groups_lie_between_the_groups_inside_and_all_they_touch():
    groups = Groups(np.array([0, 3, 5, 9]), np.array([0, 4, 8, 1, 5, 2, 3, 6, 7]))
    model = Calibrated(
        base=GroupTotals(groups, 2.0),
        groups=groups,
        values=np.array([10.0, 20.0, 1.0]),
        bias=np.ones(3),
        distances=np.array([5.0]),
        classes=np.zeros(3, dtype=np.int64),
        scale=2.0,
    )
    cells = np.array([1, 2, 5])  # all of the second group, and one of four bins of the third
    value, low, high = model.cells_answer(41.0, cells, level=0.9)
    one, two = (noise_law.sum_quantile(np.array([2.0]), np.array([k]), 0.9) for k in (1, 2))
    assert (value, low, high) == (41.0, 40.0 - one, 44.0 + two)
    value, low, high = model.cells_answer(10.0, np.array([0, 6]), level=0.9)
    assert low == 0.0 and high == 34.0 + two  # of two groups a part each
    turned = model.transposed(3)
    across = np.arange(9).reshape(3, 3).T.ravel()
    moved = np.sort(np.flatnonzero(np.isin(across, cells)))
    assert turned.cells_answer(41.0, moved, level=0.9) == (41.0, 40.0 - one, 44.0 + two)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_knows_rectangles_cells_and_both_projections(method):
    found = released(method)
    assert np.isfinite(found.intervals()).all()
    asked = found.sum((BOXES[0], BOXES[1]), (BOXES[2], BOXES[3] + 5))
    assert (
        np.isfinite(asked.low).all()
        and (asked.low <= asked.value).all()
        and (asked.value <= asked.high).all()
    )
    one = found.sum((int(BOXES[0][1]), int(BOXES[1][1])), (int(BOXES[2][1]), int(BOXES[3][1] + 5)))
    assert (one.value, one.low, one.high) == pytest.approx((asked.value[1], asked.low[1], asked.high[1]))
    for axis in (0, 1):
        line = found.project(axis)
        low, high = line.intervals()
        assert np.isfinite(low).all() and (low <= line.raw).all() and (line.raw <= high).all()
        truth = COUNTS.sum(axis=1 - axis)
        assert np.mean((low <= truth) & (truth <= high)) > 0.6
        assert line.sum(2, 7).low is not None


COVERED = ["hb", "privelet", "quadtree", "dawa", "uniformgrid", "ahp", "geometric-tree"]


@pytest.mark.parametrize(
    ("method", "epsilon"),
    [(m, "0.1") for m in COVERED]
    + [("hb", "2"), ("ahp", "2")]
    + [later(m, "2") for m in COVERED if m not in ("hb", "ahp")],
)
def test_intervals_of_rectangles_hold_in_repeatable_releases(method, epsilon):
    rng = np.random.default_rng(3)
    counts = rng.poisson(COUNTS)
    held = []
    for seed in range(15):
        a, c = rng.integers(0, 8, (2, 40))
        b, d = rng.integers(a + 1, 9), rng.integers(c + 1, 9)
        asked = released(method, seed=seed, counts=counts, epsilon=epsilon).sum((a, b), (c, d))
        truth = np.array([counts[i:j, k:m].sum() for i, j, k, m in zip(a, b, c, d, strict=True)])
        held.append(np.mean((asked.low <= truth) & (truth <= asked.high)))
    assert np.mean(held) > 0.9


@pytest.mark.parametrize("shape", [(5, 7), (8, 3), (1, 6), (2, 2)])
def test_a_quadtree_of_uneven_boxes_knows_every_rectangle(shape, tmp_path):
    domain = Domain(tuple(Integers(0, k - 1) for k in shape))
    found = released("quadtree", counts=np.ones(shape, dtype=np.int64), domain=domain)
    error = found.error
    tree = error.total_noise._error.tree
    dense, place = covariance(tree, error.scales), np.argsort(error.groups.order)
    z = noise_law.normal_quantile(0.8)  # a level at which few cells are taken to be normal, too
    for a, b in itertools.combinations(range(shape[0] + 1), 2):
        box = Boxes(shape, tuple(map(np.array, ([a], [b], [0], [max(shape[1] // 2, 1)]))))
        w = np.zeros(tree.k)
        w[place[box.cells(0)]] = 1
        assert error.boxes_margins(box, level=0.8)[0] == pytest.approx(z * math.sqrt(w @ dense @ w))
    again = dphist.load(found.save(tmp_path / "r.json"))
    assert again == found and np.array_equal(again.intervals(), found.intervals())


def test_the_shape_of_a_tree_is_read_level_by_level():
    tree = shaped_tree(np.array([True, False, True, True, False, False, False]))
    assert tree.left.tolist() == [1, 0, 3, 5, 0, 0, 0] and tree.parent.tolist() == [-1, 0, 0, 2, 2, 3, 3]
    assert tree.lo.tolist() == [0, 0, 1, 1, 3, 1, 2] and tree.hi.tolist() == [4, 1, 4, 3, 4, 2, 3]
    assert tree.leaf.tolist() == [1, 5, 6, 4]
    for wrong in ([True], [True, True, False], [False, True, False]):
        with pytest.raises(UsageError):
            shaped_tree(np.array(wrong))


def test_a_private_cut_changes_no_law():
    held = []
    for seed in range(12):
        found = released("hybridtree", seed=seed, epsilon="0.5")
        low, high = found.intervals()
        held.append(np.mean((low <= COUNTS) & (high >= COUNTS)))
    assert np.mean(held) > 0.9


@pytest.mark.parametrize("method", ["dawa2", "dawa3"])
def test_rectangles_that_cut_groups_lie_between_bounds_that_hold(method):
    x = np.zeros((32, 32), dtype=np.int64)
    x[5:12, 6:20], x[20:22, 3:9] = 40, 200
    square = Domain((Integers(0, 31),) * 2)
    plan = dphist.Plan(bins=square, epsilon="0.1", method=method, workload="rectangles:50")
    boxes = [((a, a + 7), (b, b + 11)) for a in range(0, 24, 5) for b in range(0, 20, 4)]
    held = []
    for seed in range(6):
        curator = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=seed)
        release = plan.pipeline.run(curator, plan.queries)
        for (a, b), (c, d) in boxes:
            found = release.sum((a, b), (c, d))
            assert found.low is not None and found.low <= found.value <= found.high
            held.append(found.low <= x[a:b, c:d].sum() <= found.high)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize(
    "change",
    [{"columns": 0, "rows": 12}, {"columns": -4, "rows": -3}, {"columns": 4.0}, {"rows": None}, {"rows": 2}],
)
def test_triangles_of_a_grid_that_is_none_are_refused_when_they_are_read(change):
    told = GridHatTotals(3, 4, 2.0).to_dict()
    assert error_model_from_dict(told, 12).to_dict() == told
    with pytest.raises(ReleaseFileError, match="(triangles of a grid are for|of its error model should be)"):
        error_model_from_dict(told | change, 12)


def test_both_grids_are_written_as_ever_and_share_one_base():
    for kind, name, rule in ((GridHatTotals, "grid hat totals", 2), (PyramidTotals, "pyramid totals", 1)):
        model = kind(3, 4, 2.0)
        wanted = f'{{"kind": "{name}", "n": 12, "rows": 3, "columns": 4, "scale": 2.0, "rule": {rule}}}'
        assert json.dumps(model.to_dict()) == wanted
        back = error_model_from_dict(json.loads(wanted), 12)
        assert type(back) is kind and back.to_dict() == model.to_dict()
        turned = model.transposed(3)
        assert type(turned) is kind and (turned.rows, turned.columns, turned.scale) == (4, 3, 2.0)
        assert isinstance(model, MeasuredGrid) and not {"to_dict", "transposed"} & set(vars(kind))


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (100, 100)])
def test_cells_and_rectangles_of_grids_hold_as_often_as_they_say(rows, columns):
    domain, queries, trials = *_grid(rows, columns), 300 if rows == 16 else 40
    counts, level = Counts(np.zeros((rows, columns), dtype=np.int64), domain), 0.95
    draw, kinds = np.random.default_rng(1), {}
    for height, width in ((1, 2), (2, 2), (1, 8), (rows // 4, columns // 4)):
        a, c = (draw.integers(0, n - k + 1, 200) for n, k in ((rows, height), (columns, width)))
        kinds[height, width] = Boxes((rows, columns), (a, a + height, c, c + width))
    pipeline, held, cells = make_pipeline("hats", domain, queries), {kind: [] for kind in kinds}, []
    for seed in range(trials):
        found = pipeline.values(Curator.simulated(counts, epsilon=Fraction(1, 10), seed=seed), queries)[1]
        cells.append(np.mean(abs(found.values) <= found.error.bin_margins(level=level)))
        for kind, boxes in kinds.items():
            sums = boxes.sums(running(found.values.reshape(rows, columns)))
            held[kind].append(np.mean(abs(sums) <= found.error.boxes_margins(boxes, level=level)))
    # The normal law holds in 93.8 % of single cells: ten standard errors below.
    assert 0.946 < np.mean(cells) < 0.954
    for kind, often in held.items():
        assert 0.93 < np.mean(often) < 0.965, kind


def _grid(rows, columns):
    domain = Domain((Integers(0, rows - 1), Integers(0, columns - 1)))
    return domain, make_workload("rectangles", domain)


@pytest.mark.parametrize("model", [PyramidTotals(12, 9, 3e6), GridHatTotals(12, 9, 3e6)])
def test_a_cell_has_one_margin_however_it_is_asked_for(model):
    at, level = np.array([0, 13, 107]), 0.95
    row, column = np.divmod(at, 9)
    wanted = model.bin_margins(level=level)[at]
    boxes = Boxes((12, 9), (row, row + 1, column, column + 1))
    assert np.allclose(model.boxes_margins(boxes, level=level), wanted)
    assert np.allclose(model.margins(at, at + 1, level=level), wanted)
    assert np.allclose([model.cells_margin(at[i : i + 1], level=level) for i in range(3)], wanted)
    assert (wanted > noise_law.normal_quantile(level) * np.sqrt(model.variances()[at])).all()
    assert model.margins(np.array([4]), np.array([4]), level=level)[0] == 0


def test_a_laplace_draw_and_a_normal_one_together_have_their_own_quantiles():
    draw, parts = np.random.default_rng(3), np.array([0.0, 0.1, 0.37, 0.8, 1.0])
    laplace, normal = draw.laplace(size=400_000) / math.sqrt(2), draw.normal(size=400_000)
    for level in (0.5, 0.9, 0.95, 0.999):
        for part, z in zip(parts, noise_law.mixed_quantile(parts, level), strict=True):
            inside = np.mean(abs(math.sqrt(part) * laplace + math.sqrt(1 - part) * normal) <= z)
            assert abs(inside - level) < 5 * math.sqrt(level * (1 - level) / 400_000)
    assert noise_law.mixed_quantile(parts, 1 - 1e-12)[[0, -1]] == pytest.approx([7.1305, 19.538], rel=1e-3)


@pytest.mark.parametrize("model", [PyramidTotals(12, 9, 3e6), GridHatTotals(12, 9, 3e6)])
def test_a_rectangle_of_a_few_cells_has_one_margin_however_it_is_asked_for(model):
    boxes = Boxes((12, 9), tuple(map(np.array, ([2, 5], [4, 6], [3, 1], [5, 7]))))
    wanted = [model.cells_margin(boxes.cells(i), level=0.95) for i in range(2)]
    assert np.allclose(model.boxes_margins(boxes, level=0.95), wanted)


@pytest.mark.parametrize("model", [PyramidTotals(12, 9, 3e6), GridHatTotals(12, 9, 3e6)])
def test_a_few_cells_of_a_row_have_one_margin_however_they_are_asked_for(model):
    lo, hi = np.array([2, 30]), np.array([6, 32])  # each inside one row
    wanted = [model.cells_margin(np.arange(a, b), level=0.95) for a, b in zip(lo, hi, strict=True)]
    assert np.allclose(model.margins(lo, hi, level=0.95), wanted)
