"""The margins of many ranges at once are those of the ranges asked one by one."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.kernels.scattered import sums_of_squares, whole_ranges
from dphist.kernels.trees import tree as trees
from dphist.kernels.trees import variances
from dphist.release import Release
from dphist.uncertainty import noise_law
from dphist.uncertainty.calibrated import Calibrated
from dphist.uncertainty.models import ErrorModel, GroupTotals, TreeTotals
from dphist.uncertainty.products import WaveletTotals

MODELS = sorted((Path(__file__).parent / "error_models").glob("*.json"))


def one_by_one(model, lo, hi, level):
    each = (model.margin(int(a), int(b), level=level) for a, b in zip(lo, hi, strict=True))
    return np.array([math.nan if margin is None else margin for margin in each])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_many_margins_are_those_of_single_ranges(path, level):
    release = Release.from_dict(json.loads(path.read_text())["release"])
    model, ends = release.error, range(release.domain.n + 1)
    lo, hi = np.array(list(itertools.combinations_with_replacement(ends, 2))).T
    many, each = model.margins(lo, hi, level=level), one_by_one(model, lo, hi, level)
    if re.search('(hat|pyramid) totals"', path.read_text()):  # many ranges of hats share sweeps
        np.testing.assert_allclose(many, each, rtol=1e-9)
    else:  # to the last bit
        assert np.array_equal(many, each, equal_nan=True)


class TestSumsOfOneScale:
    @pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 3.7, 100.0, 1e5])
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
    def test_the_interpolated_quantile_is_the_exact_one(self, scale, level):
        draws = np.arange(200_001)
        rng = np.random.default_rng(7)
        asked = np.concatenate((np.arange(0, 140, 9), 2 ** np.arange(18), rng.integers(1, draws.size, 12)))
        many = noise_law.sum_quantiles(scale, draws, level)
        one = [noise_law.sum_quantile(np.array([scale]), np.array([m]), level) for m in asked]
        assert many[asked].tolist() == one
        assert (np.diff(many) >= 0).all()

    def test_where_interpolation_fails_the_exact_quantile_is_searched(self, monkeypatch):
        monkeypatch.setattr(noise_law, "_crossing_of_tail", lambda s, m, t: math.nan)
        many = noise_law.sum_quantiles(1.0, np.arange(300), 0.95)
        assert many.tolist() == [
            noise_law.sum_quantile(np.array([1.0]), np.array([m]), 0.95) for m in range(300)
        ]

    def test_near_a_whole_number_the_exact_quantile_decides(self, monkeypatch):
        """An interpolation that is off by less than its doubt must not move any quantile."""
        true = noise_law._crossing_of_tail
        monkeypatch.setattr(
            noise_law, "_crossing_of_tail", lambda s, m, t: true(s, m, t) + 1e-3 * math.sin(40 * m)
        )
        many = noise_law.sum_quantiles(1.0, np.arange(64, 1000), 0.95)
        assert many.tolist() == [
            noise_law.sum_quantile(np.array([1.0]), np.array([m]), 0.95) for m in range(64, 1000)
        ]

    def test_few_large_numbers_none_and_an_unmeasured_scale(self):
        assert noise_law.sum_quantiles(1.0, np.array([], dtype=np.int64), 0.95).size == 0
        huge = np.array([10**9, 0, 10**9])
        one = noise_law.sum_quantile(np.array([1.0]), huge[:1], 0.95)
        assert noise_law.sum_quantiles(1.0, huge, 0.95).tolist() == [one, 0, one]
        assert noise_law.sum_quantiles(math.inf, np.arange(200), 0.95).tolist() == [0] + [math.inf] * 199


@st.composite
def scattered(draw):
    labels = np.array(draw(st.lists(st.integers(0, 4), min_size=1, max_size=24)))
    groups, labels = np.unique(labels, return_inverse=True)
    ranges = np.array(list(itertools.combinations_with_replacement(range(labels.size + 1), 2)))
    few = draw(st.booleans())
    return labels, groups.size, *(ranges[:5] if few else ranges).T


@settings(max_examples=60, deadline=None)
@given(scattered())
def test_ranges_over_scattered_groups_as_counted_one_by_one(case):
    labels, k, lo, hi = case
    weights = np.array([0.5, 0.25, 3.0, 0.5, 7.0])[:k]
    counted = np.array([np.bincount(labels[a:b], minlength=k) for a, b in zip(lo, hi, strict=True)])
    sizes = np.bincount(labels, minlength=k)
    assert (
        whole_ranges(labels, k, lo, hi).tolist() == ((counted == 0) | (counted == sizes)).all(axis=1).tolist()
    )
    together = sums_of_squares(labels, weights, lo, hi)
    assert together == pytest.approx(counted**2 @ weights, rel=1e-14)
    alone = [sums_of_squares(labels, weights, lo[i : i + 1], hi[i : i + 1])[0] for i in range(lo.size)]
    assert together.tolist() == alone


def test_a_range_outside_the_bins_is_refused():
    model = GroupTotals(Groups.singletons(4), 1.0)
    with pytest.raises(UsageError, match="bins 3 to 5"):
        model.margins(np.array([0, 3]), np.array([2, 5]), level=0.95)


def some_error(draw, k, branching, missing):
    """Return what the variances over a tree depend on, some of its nodes not being measured."""
    tree = trees.make_tree(k, branching)
    variance = draw.uniform(0.5, 2.0, tree.size)
    variance[draw.random(tree.size) < missing] = math.inf
    return variances.tree_error(tree, variance)


def some_ends(draw, k, ranges):
    """Return ranges over k groups: half of the ends are edges, the others lie inside a group."""
    ends = draw.integers(0, k + 1, (2, ranges)) + draw.integers(0, 2, (2, ranges)) * draw.random((2, ranges))
    return np.sort(np.minimum(ends, k), axis=0)


@pytest.mark.parametrize("top", [1, 3, 9, 31, 101])
def test_where_the_top_of_a_tree_begins_changes_no_digit(monkeypatch, top):
    """The loops as Python runs them: climbs in the order of the groups, and each range climbing alone."""
    draw = np.random.default_rng(top)
    loops = ("_up_from_begin", "_up_from_end", "added", "_by_group", "_climb", "_answer")
    for loop in loops:
        monkeypatch.setattr(variances, loop, getattr(variances, loop).py_func)
    climbs, climb = [], variances._climb
    monkeypatch.setattr(variances, "_climb", lambda *ends: climbs.append("in order") or climb(*ends))
    for k, branching, missing in itertools.product([2, 5, 40, 67], [2, 3, 16], [0.0, 0.4]):
        error = some_error(draw, k, branching, missing)
        begin, end = some_ends(draw, k, 300)
        monkeypatch.setattr(variances, "_TOP", 1 << 20)
        alone = variances.range_variances(error, begin, end)
        assert climbs == []
        monkeypatch.setattr(variances, "_TOP", top)
        assert np.array_equal(variances.range_variances(error, begin, end), alone)
        assert climbs == ["in order"] * 2 * (error.tree.size > top)  # begins, then ends
        climbs.clear()


@pytest.mark.parametrize("branching", [2, 16])
@pytest.mark.parametrize("missing", [0.0, 0.01])
def test_variances_of_many_ranges_over_a_large_tree_are_those_of_single_ones(branching, missing):
    draw = np.random.default_rng(branching)
    k = 30_000
    error = some_error(draw, k, branching, missing)
    begin, end = some_ends(draw, k, 5_000)
    end[::5] = np.minimum(begin[::5] + 3, k)  # short ones, below one node of the top
    alone = [variances.range_variances(error, a, b)[0] for a, b in zip(begin, end, strict=True)]
    assert error.tree.size > variances._TOP and begin.size >= k // variances._GROUPS_PER_RANGE
    assert variances.range_variances(error, begin, end).tolist() == alone


def test_siblings_are_both_at_the_top_of_a_tree_or_neither():
    assert variances._TOP % 2 == 1
    tree = trees.make_tree(1000, 7)
    assert (tree.left[tree.left > 0] % 2 == 1).all()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.data())
def test_groups_ended_before_an_edge_as_counted_one_by_one(sizes, data):
    groups = Groups(np.cumsum([0, *sizes]))
    all_edges = np.arange(groups.n + 1)
    counted = [int((groups.starts[1:] <= edge).sum()) for edge in all_edges]
    assert groups.ended(all_edges).tolist() == counted
    edge = data.draw(st.integers(0, groups.n))
    assert groups.ended(np.array([edge])).tolist() == counted[edge : edge + 1]


@pytest.mark.parametrize("kind", ["tree", "wavelet", "calibrated"])
def test_many_margins_over_many_bins_are_those_of_single_ranges(kind):
    """As many ranges as tables are made for, and few of them that need none."""
    draw = np.random.default_rng(3)
    starts = np.unique(np.concatenate(([0, 20_000], draw.integers(0, 20_000, 12_000))))
    groups, scales = Groups(starts), np.full(2 * (starts.size - 1) - 1, 2.0)
    model: ErrorModel = TreeTotals(groups, 2, False, scales)
    if kind == "wavelet":
        model = WaveletTotals(groups, 1, 2.0)
    if kind == "calibrated":
        k = groups.k
        bias, none = np.where(groups.sizes > 1, 1.5, 0.0), np.where(groups.sizes > 1, 0, -1)
        model = Calibrated(model, groups, np.ones(k), bias, np.ones(1), none, 1.0, half_bias=bias)
    lo, hi = np.sort(draw.integers(0, 20_001, (2, 3_000)), axis=0)
    lo[:1000], hi[:1000] = np.sort(draw.choice(starts, (2, 1000)), axis=0)
    alone = one_by_one(model, lo, hi, 0.95)
    assert np.isfinite(alone).sum() >= 1000
    assert np.array_equal(model.margins(lo, hi, level=0.95), alone, equal_nan=True)
