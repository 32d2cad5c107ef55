"""Sums of few fitted values, much of whose noise is one Laplace draw each, have margins that know it."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.boxes import Boxes
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.kernels.trees.tree import make_tree
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.uncertainty import joint_ranges, noise_law
from dphist.uncertainty.models import HatTotals, TreeTotals
from dphist.uncertainty.reading import error_model_from_dict

Z = noise_law.normal_quantile(0.95)
LAPLACE = -math.log(0.05) / math.sqrt(2.0)  # of variance 1


def tree_of(k: int, *, inner: float, starts: np.ndarray | None = None, **more: bool) -> TreeTotals:
    """Return the model of a binary tree whose leaves have noise of scale 1,000, the others of ``inner``."""
    tree = make_tree(k, 2)
    groups = Groups.singletons(k) if starts is None else Groups(starts)
    return TreeTotals(groups, 2, False, np.where(tree.left > 0, inner, 1000.0), **more)


def test_a_value_that_only_its_own_answer_knows_has_the_margin_of_a_laplace_draw():
    model, sd = tree_of(8, inner=math.inf), math.sqrt(noise_law.variance(1000.0))
    assert np.allclose(model.bin_margins(level=0.95), LAPLACE * sd)
    assert model.bin_margins(level=0.95)[0] == pytest.approx(noise_law.quantile(1000.0, 0.95), rel=1e-3)
    assert model.margin(3, 4, level=0.95) == pytest.approx(LAPLACE * sd)
    assert model.cells_margin(np.array([3]), level=0.95) == pytest.approx(LAPLACE * sd)
    assert np.allclose(model.total_noise.margins(level=0.95), LAPLACE * sd)
    # Of four equal draws one part is a half: their fourth cumulant is a quarter of that of one as large.
    four = noise_law.mixed_quantile(np.array([0.5]), 0.95)[0] * 2.0 * sd
    assert model.margin(2, 6, level=0.95) == pytest.approx(four)
    assert model.cells_margin(np.array([0, 2, 5, 7]), level=0.95) == pytest.approx(four)
    exact = noise_law.sum_quantile(np.array([1000.0]), np.array([4]), 0.95)
    assert Z * 2.0 * sd < four < exact and exact == pytest.approx(four, rel=0.015)


def test_the_more_else_is_known_of_a_value_the_nearer_its_margin_is_to_the_normal_law():
    model = tree_of(8, inner=300.0)
    own, found = noise_law.variance(1000.0), model.variances()
    part = found / own
    assert (part > 0.3).all() and (part < 0.9).all()
    wanted = noise_law.mixed_quantile(part, 0.95) * np.sqrt(found)
    assert np.allclose(model.bin_margins(level=0.95), wanted) and (wanted > Z * np.sqrt(found)).all()
    pair = model.sum_variances(np.array([2]), np.array([4]))
    parts = (
        pair / (2 * own * math.sqrt(2.0)),
        pair / noise_law.variance(300.0),
    )  # of two leaves, of their node
    z = noise_law.mixed_quantile(np.hypot(*parts), 0.95)
    assert np.allclose(model.margins(np.array([2]), np.array([4]), level=0.95), z * np.sqrt(pair))
    # Where the mixed law would be narrower, the normal one is kept; nothing has no margin.
    assert np.allclose(model.bin_margins(level=0.5), noise_law.normal_quantile(0.5) * np.sqrt(found))
    assert model.margins(np.array([4]), np.array([4]), level=0.95)[0] == 0.0


def test_groups_count_as_values_wherever_their_bins_lie():
    starts = np.array([0, 3, 4, 9, 10])
    groups, plain = tree_of(4, inner=math.inf, starts=starts), tree_of(4, inner=math.inf)
    for a, b in ((0, 1), (1, 3), (0, 4)):
        assert groups.margin(starts[a], starts[b], level=0.95) == pytest.approx(
            plain.margin(a, b, level=0.95)
        )
    assert groups.margin(0, 5, level=0.95) is None  # cuts a group
    each = groups.bin_margins(level=0.95)
    assert (
        np.flatnonzero(np.isfinite(each)).tolist() == [3, 9] and each[3] == plain.bin_margins(level=0.95)[0]
    )
    order = np.array([1, 0, 3, 2])
    along = TreeTotals(Groups(np.arange(5), order), 2, False, plain.scales)
    assert np.allclose(along.bin_margins(level=0.95), plain.bin_margins(level=0.95))
    assert along.margins(np.array([1]), np.array([3]), level=0.95)[0] == plain.margin(1, 3, level=0.95)
    # What it takes for the union bound is the variance, not a margin.
    assert along.sum_variances(np.array([1]), np.array([3]))[0] == pytest.approx(2 * plain.variances()[0])


def test_a_leaf_that_was_not_measured_has_no_own_answer():
    tree = make_tree(4, 2)
    scales = np.where(tree.left > 0, 1000.0, math.inf)
    scales[tree.leaf[:2]] = 1000.0
    model = TreeTotals(Groups.singletons(4), 2, False, scales)
    lo, hi = np.array([0, 1, 2]), np.array([1, 4, 4])
    found, sd = model.margins(lo, hi, level=0.95), np.sqrt(model.sum_variances(lo, hi))
    node = noise_law.mixed_quantile(np.array([sd[2] ** 2 / noise_law.variance(1000.0)]), 0.95)[0]
    assert found[0] > 1.02 * Z * sd[0] and np.allclose(found[1:], [Z * sd[1], node * sd[2]])
    assert node > 1.02 * Z
    assert np.isnan(model.margins(np.array([2]), np.array([3]), level=0.95)).all()


def test_a_bin_of_triangles_has_the_part_that_its_own_answer_keeps():
    model = HatTotals(64, "all-ranges", 8192.0)
    found, own = model.variances(), model._error.own
    wanted = noise_law.mixed_quantile(found / own, 0.95) * np.sqrt(found)
    assert np.allclose(model.bin_margins(level=0.95), wanted)
    assert np.allclose(model.margins(np.arange(64), np.arange(1, 65), level=0.95), wanted)
    assert (wanted > 1.03 * Z * np.sqrt(found)).all()
    long = np.sqrt(model.sum_variances(np.array([5]), np.array([60])))
    assert model.margin(5, 60, level=0.95) == pytest.approx(Z * long[0], rel=0.01)


@pytest.mark.parametrize(
    "model",
    [tree_of(8, inner=300.0), tree_of(8, inner=300.0, agreeing=True), HatTotals(8, "prefixes", 900.0)],
)
def test_files_of_earlier_versions_keep_their_margins(model):
    described = json.loads(json.dumps(model.to_dict()))
    assert described["tails"] and "own answers of few bins" in model.description
    again = error_model_from_dict(described, 8)
    assert again.to_dict() == described
    assert np.array_equal(again.bin_margins(level=0.95), model.bin_margins(level=0.95))
    del described["tails"]
    old = error_model_from_dict(described, 8)
    assert old.to_dict() == described and "own answers" not in old.description
    lo, hi = np.array([0, 2, 1]), np.array([1, 4, 8])
    normal = Z * np.sqrt(model.sum_variances(lo, hi))
    rounded = 1.0 if getattr(model, "agreeing", False) else 0.0  # margins of whole numbers
    assert np.allclose(old.margins(lo, hi, level=0.95), normal, atol=rounded)
    assert model.margins(lo, hi, level=0.95)[0] > normal[0] * 1.01


@pytest.mark.parametrize(
    ("method", "workload"), [("hats", "ranges"), ("dawa3", "ranges"), ("hb", "prefixes")]
)
def test_intervals_of_single_bins_hold_as_often_as_they_say(method, workload):
    """By the normal law they held in 93.7 to 94.4 percent of releases."""
    n, releases = 16, 1500
    domain = Domain((Integers(1, n),))
    held, queries = Counts(np.full(n, 10**6), domain), make_workload(workload, domain)
    pipeline, off, margins = make_pipeline(method, domain, queries), [], None
    for seed in range(releases):
        made = Curator.simulated(held, epsilon=Fraction("0.01"), seed=seed)
        found = pipeline.values(made, queries)[1]
        off.append((found.values if found.measured is None else found.measured) - held.values)
        margins = found.error.bin_margins(level=0.95) if margins is None else margins
    assert 0.945 < np.mean(np.abs(off) <= margins) < 0.96


def test_a_few_bins_of_triangles_have_a_draw_each():
    model, lo, hi = HatTotals(64, "all-ranges", 8192.0), np.array([3, 40]), np.array([5, 45])
    found, below = model.sum_variances(lo, hi), np.concatenate(([0.0], np.cumsum(model._error.own)))
    part = found / (below[hi] - below[lo]) / np.sqrt(hi - lo)
    wanted = noise_law.mixed_quantile(part, 0.95) * np.sqrt(found)
    assert np.allclose(model.margins(lo, hi, level=0.95), wanted)
    assert (wanted > 1.002 * Z * np.sqrt(found)).all()


def test_the_own_answer_of_a_group_is_that_of_its_leaf():
    tree = make_tree(5, 2)  # whose leaves are not its last nodes
    scales = np.full(tree.left.size, 1000.0)
    scales[tree.leaf] = 400.0, 500.0, 600.0, 700.0, 800.0
    model = TreeTotals(Groups.singletons(5), 2, False, scales)
    part = model.variances() / noise_law.variance(scales[tree.leaf])
    wanted = noise_law.mixed_quantile(part, 0.95) * np.sqrt(model.variances())
    assert np.allclose(model.bin_margins(level=0.95), wanted)
    assert np.allclose(model.margins(np.arange(5), np.arange(1, 6), level=0.95), wanted)


def test_a_leaf_after_others_that_were_not_measured_has_its_own_answer():
    tree = make_tree(4, 2)
    scales = np.where(tree.left > 0, 1000.0, math.inf)
    scales[tree.leaf[2:]] = 1000.0
    model = TreeTotals(Groups.singletons(4), 2, False, scales)
    sd = math.sqrt(model.sum_variances(np.array([3]), np.array([4]))[0])
    assert model.margin(3, 4, level=0.95) == pytest.approx(model.bin_margins(level=0.95)[3])
    assert model.margin(3, 4, level=0.95) > 1.02 * Z * sd
    # What nothing tells apart has no margin among those of all ranges either, not an infinite one.
    wide, _ = model.joint_boxes(Boxes((4,), (np.array([0, 3]), np.array([1, 4]))), level=0.95)
    assert np.isnan(wide[0]) and np.isfinite(wide[1])


def test_ranges_that_cut_a_scattered_group_have_no_variance():
    groups = Groups(np.array([0, 2, 3, 4, 5]), np.array([0, 3, 1, 2, 4]))
    model = TreeTotals(groups, 2, False, tree_of(4, inner=300.0).scales)
    lo, hi = np.array([0, 1]), np.array([2, 2])
    found = model.sum_variances(lo, hi)
    assert np.isnan(found[0]) and found[1] == pytest.approx(model.total_noise.variances[1])
    wide, _ = model.joint_boxes(Boxes((5,), (lo, hi)), level=0.95)
    assert np.isnan(wide[0]) and np.isfinite(wide[1])


@pytest.mark.parametrize("tails", [False, True])
def test_a_turned_grid_has_the_tails_it_had(tails):
    model = tree_of(8, inner=300.0, tails=tails)
    turned = model.transposed(2)
    assert turned.tails == tails
    assert np.allclose(np.sort(turned.bin_margins(level=0.95)), np.sort(model.bin_margins(level=0.95)))


def test_bins_of_noise_that_agrees_have_margins_of_whole_numbers():
    model = tree_of(8, inner=300.0, agreeing=True)
    found = model.bin_margins(level=0.95)
    assert (found == np.round(found)).all()
    assert np.array_equal(found, model.margins(np.arange(8), np.arange(1, 9), level=0.95))


@pytest.mark.parametrize("agreeing", [False, True])
def test_joint_margins_of_ranges_come_from_the_variances_alone(agreeing):
    tree, starts = make_tree(4, 2), np.array([0, 3, 4, 9, 10])
    scales = np.where(tree.left > 0, 0.6, 1.0)  # margins of whole numbers are far from these
    model = TreeTotals(Groups(starts), 2, False, scales, agreeing=agreeing)
    lo, hi = np.array([3, 0, 3, 0]), np.array([4, 3, 9, 10])
    boxes = Boxes((10,), (lo, hi))
    sd, each = np.sqrt(model.sum_variances(lo, hi)), joint_ranges.bonferroni(boxes, 0.95)
    found, how = model.joint_boxes(boxes, level=0.95)
    assert how == joint_ranges.BONFERRONI
    assert np.allclose(found, noise_law.sum_margin_bound(sd, max(each, 0.9)))


def test_groups_that_are_no_run_have_no_answer_of_their_own():
    model, cells = tree_of(8, inner=300.0), np.array([0, 2, 5, 7])  # the run from first to last was measured
    variance = model.total_noise.sum_variance(np.isin(np.arange(8), cells))
    part = variance / (2.0 * 4 * noise_law.variance(1000.0))
    wanted = noise_law.mixed_quantile(np.array([part]), 0.95)[0] * math.sqrt(variance)
    assert model.cells_margin(cells, level=0.95) == pytest.approx(wanted)


def test_each_total_has_its_own_answer_whatever_the_order_of_its_nodes():
    tree = make_tree(8, 2)
    inner = np.flatnonzero(tree.left > 0)
    scales = np.full(tree.left.size, 1000.0)
    scales[inner] = 300.0 + 50.0 * np.arange(inner.size)
    model = TreeTotals(Groups.singletons(8), 2, False, scales)
    lo, hi = tree.lo[inner].astype(np.int64), tree.hi[inner].astype(np.int64)
    found = model.sum_variances(lo, hi)
    own = np.sqrt(hi - lo) * (hi - lo) * noise_law.variance(1000.0)
    part = np.hypot(found / own, found / noise_law.variance(scales[inner]))
    wanted = noise_law.mixed_quantile(np.minimum(part, 1.0), 0.95) * np.sqrt(found)
    assert np.allclose(model.margins(lo, hi, level=0.95), wanted)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("scale", [0.15, 0.3, 0.5, 1.0, 2.0, 20.0])
def test_a_value_that_its_own_answer_alone_tells_has_the_law_of_whole_numbers(scale, level):
    """Small noise is 0, 1 or 2: a margin between two of these would hold too seldom."""
    v = np.array([noise_law.variance(scale)])
    (margin,) = noise_law.sum_margins(v, v, 1, level, whole=True)
    assert margin >= noise_law.sum_margins(v, v, 1, level)[0]
    if v[0] >= 100:
        return
    assert 1 - noise_law.tail(scale, math.floor(margin + 1e-9)) >= level - 1e-12
    assert margin >= noise_law.quantile(scale, level)
    model = TreeTotals(Groups.singletons(4), 2, False, np.where(make_tree(4, 2).left == 0, scale, math.inf))
    assert (model.bin_margins(level=level) == margin).all()
    assert model.margin(1, 2, level=level) == model.cells_margin(np.array([1]), level=level) == margin
