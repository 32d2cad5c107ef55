"""Intervals of sums that hold for all ranges at once: on fresh noise, and what their notes say."""

import numpy as np
import pytest

import dphist
from benchmarks.joint import grid_coverage, hat_suprema, line_coverage
from dphist.domain.boxes import Boxes
from dphist.errors import UsageError
from dphist.privacy import noise
from dphist.uncertainty import joint_ranges, noise_law
from dphist.uncertainty.models import GroupTotals, HatTotals


@pytest.fixture
def publish(monkeypatch):
    """Publish with the noise of a seed."""

    def run(counts, seed, **options):
        source = noise.Simulated(seed)
        monkeypatch.setattr(noise.Secure, "stream", lambda self: source.stream())
        return dphist.from_counts(counts, epsilon=1, **options)

    return run


def all_ranges(n):
    return np.triu_indices(n + 1, 1)


def held(release, counts, level=0.95):
    """Whether all ranges of a line hold at once."""
    lo, hi = all_ranges(counts.size)
    below = np.concatenate(([0], np.cumsum(counts)))
    found = release.sum(lo, hi, level=level, joint=True)
    return bool(((found.low <= below[hi] - below[lo]) & (below[hi] - below[lo] <= found.high)).all())


@pytest.mark.parametrize("level", joint_ranges.LEVELS)
@pytest.mark.parametrize(("n", "scale", "draws"), [(16, 1.0, 3000), (16, 50.0, 3000), (100, 50.0, 1500)])
def test_identity_noise_stays_within_the_widths_of_all_ranges(n, scale, draws, level):
    found = line_coverage(n, scale, level, draws, seed=101)
    assert found > level - 0.005 - 2 * np.sqrt(level * (1 - level) / draws)
    if scale > 1:  # and they are no wider than that takes
        assert found < level + 0.5 * (1 - level) + 2 * np.sqrt(level * (1 - level) / draws)


@pytest.mark.parametrize("side", [4, 10])
def test_identity_noise_stays_within_the_widths_of_all_rectangles(side):
    assert grid_coverage(side, 50.0, 0.95, 600, seed=102) > 0.945 - 0.018


@pytest.mark.parametrize("queries", ["all-ranges", "prefixes"])
@pytest.mark.parametrize("n", [32, 50, 128])
def test_the_noise_of_hats_stays_within_the_table(n, queries):
    suprema = hat_suprema(n, queries, 1500, seed=103)
    for level in joint_ranges.LEVELS:
        found = np.mean(suprema <= joint_ranges.hat_factor(n, queries, level))
        assert found > level - 0.003 - 2 * np.sqrt(level * (1 - level) / 1500)


@pytest.mark.parametrize(
    ("method", "workload"), [("identity", "points"), ("hats", "ranges"), ("average", "points")]
)
def test_sums_of_releases_hold_for_all_ranges_at_once(publish, method, workload):
    counts = np.arange(40) * 37 % 90
    releases = [publish(counts, seed, method=method, workload=workload) for seed in range(60)]
    assert (
        sum(held(release, counts) for release in releases) >= 50
    )  # below that with a chance of 1e-4 at 95 %


def test_a_joint_interval_is_wider_holds_the_same_answer_and_says_where_it_comes_from(publish):
    counts = np.arange(64) % 7 * 10
    for method, workload in (
        ("identity", "points"),
        ("hats", "ranges"),
        ("hb", "ranges"),
        ("average", "points"),
    ):
        release = publish(counts, 5, method=method, workload=workload)
        alone, joint = release.sum(3, 30), release.sum(3, 30, joint=True)
        assert joint.value == alone.value and joint.low < alone.low and joint.high > alone.high
        words = "Bonferroni" if method == "hb" else "simulated noise"
        assert words in joint.note and "at once" in joint.note and words not in alone.note
        several = release.sum([3, 0], [30, 64], joint=True)
        assert (several.value[0], several.low[0], several.high[0]) == (joint.value, joint.low, joint.high)
        assert several.note == joint.note


def test_rectangles_of_a_grid_and_labels_have_joint_intervals_too(publish):
    grid = publish(np.arange(48).reshape(6, 8), 1, method="identity")
    assert grid.sum((1, 4), (2, 5), joint=True).low < grid.sum((1, 4), (2, 5)).low
    colours = publish(list(range(20)), 2, bins=[f"c{i}" for i in range(20)])
    assert colours.sum(["c3", "c4"], joint=True).low < colours.sum(["c3", "c4"]).low
    with pytest.raises(UsageError, match="side by side"):
        colours.sum(["c3", "c7"], joint=True)


def test_where_nothing_was_simulated_the_union_bound_is_taken():
    ones = Boxes((9,), (np.array([0]), np.array([4])))
    found, how = GroupTotals(dphist.Groups.singletons(9), 10.0).joint_boxes(ones, level=0.95)
    assert how == joint_ranges.BONFERRONI
    assert found[0] == noise_law.sum_quantile(np.array([10.0]), np.array([4]), 1 - 0.05 / 45)
    boxes = Boxes((64,), (np.array([0]), np.array([4])))
    for model, level in (
        (HatTotals(64, "all-ranges", 8192.0), 0.999),  # a level that was not simulated
        (HatTotals(64, "all-ranges", 2.0), 0.95),  # whole numbers of few sizes
        (HatTotals(64, "all-ranges", 8192.0, rule=1), 0.95),  # other hats
    ):
        margins, how = model.joint_boxes(boxes, level=level)
        bound = noise_law.sum_margin_bound(np.sqrt(model.sum_variances(*boxes.ends)), 1 - (1 - level) / 2080)
        assert how == joint_ranges.BONFERRONI and np.allclose(margins, bound)
    assert HatTotals(64, "all-ranges", 8192.0).joint_boxes(boxes, level=0.95)[1] == joint_ranges.SIMULATED
    huge = Boxes((1 << 24,), (np.array([0]), np.array([4])))
    assert joint_ranges.bonferroni(huge, 0.95) is None


def test_factors_rise_with_bins_and_levels():
    for table in joint_ranges.HATS.values():
        rows = np.array(list(table.values()))
        assert (np.diff(rows, axis=1) > 0).all() and (np.diff(rows[:, 1]) >= 0).all()
    assert joint_ranges.hat_factor(33, "prefixes", 0.92) == joint_ranges.HATS["prefixes"][64][1]
    assert joint_ranges.hat_factor(5000, "prefixes", 0.95) is None


def test_a_measured_bias_has_no_joint_interval(publish):
    release = publish(np.arange(64) % 3 * 9, 2, method="dawa")
    found = release.sum(3, 30, joint=True)
    assert found.low is None and found.note.startswith(joint_ranges.NONE)


def test_merged_bins_have_the_joint_intervals_of_finer_ones(publish):
    release = publish(np.arange(64), 2, method="hats", workload="ranges")
    coarse = release.rebin(2)
    found = coarse.sum(*coarse.domain.axis.edges[[1, 4]], joint=True)
    finer = release.sum(2, 8, joint=True)
    assert (found.low, found.high) == pytest.approx((finer.low, finer.high))
