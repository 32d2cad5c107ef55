"""The margins of many ranges at once are those of the ranges asked one by one."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.kernels.scattered import sums_of_squares, whole_ranges
from dphist.release import Release
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import GroupTotals

MODELS = sorted((Path(__file__).parent / "error_models").glob("*.json"))


def one_by_one(model, lo, hi, level):
    each = (model.margin(int(a), int(b), level=level) for a, b in zip(lo, hi, strict=True))
    return np.array([math.nan if margin is None else margin for margin in each])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_many_margins_are_those_of_single_ranges_to_the_last_bit(path, level):
    release = Release.from_dict(json.loads(path.read_text())["release"])
    model, ends = release.error, range(release.domain.n + 1)
    lo, hi = np.array(list(itertools.combinations_with_replacement(ends, 2))).T
    assert np.array_equal(
        model.margins(lo, hi, level=level), one_by_one(model, lo, hi, level), equal_nan=True
    )


class TestSumsOfOneScale:
    @pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 3.7, 100.0, 1e5])
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
    def test_the_interpolated_quantile_is_the_exact_one(self, scale, level):
        draws = np.arange(200_001)
        rng = np.random.default_rng(7)
        asked = np.concatenate((np.arange(140), 2 ** np.arange(18), rng.integers(1, draws.size, 60)))
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
