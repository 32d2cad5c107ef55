"""A release among arrays: many ranges, means, shares, projections, and the histograms of other libraries."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from typing import Any

import numpy as np
import pytest

import dphist
from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.domain.boxes import running
from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.release import Estimates, Release
from dphist.uncertainty.models import FineTotals, GroupTotals, Unknown
from dphist.uncertainty.quantiles import weighted_margin

RNG = np.random.default_rng(11)
COUNTS = RNG.integers(0, 300, 24)


def line(**options: Any) -> Release:
    return dphist.from_counts(COUNTS, bins=Regular(lo=0, hi=12, bins=24), **({"epsilon": 1} | options))


def grid(**options: Any) -> Release:
    counts = RNG.integers(0, 300, (4, 6))
    axes = Domain((Regular(lo=0, hi=4, bins=4), Categories(("a", "b", "c", "d", "e", "f"))))
    return dphist.from_counts(counts, bins=axes, **({"epsilon": 1} | options))


class TestManyRanges:
    @pytest.mark.parametrize(
        "method", ["identity", "laplace", "dawa", "ahp", "h", "hats", "privelet", "efpa"]
    )
    def test_they_are_the_answers_to_single_ranges(self, method):
        release = line(method=method)
        lo, hi = np.array(list(itertools.combinations(np.arange(0, 12.5, 0.5), 2))).T
        asked = release.sum(lo, hi, level=0.9)
        assert isinstance(asked, Estimates)
        assert len(asked) == lo.size
        for a, b, answer in zip(lo, hi, asked, strict=True):
            assert answer == release.sum(a, b, level=0.9)
            assert answer.note == release.sum(a, b, level=0.9).note

    def test_on_a_grid(self):
        release = grid()
        asked = release.sum(([0, 1, 0], [1, 3, 4]), ["b", "c"])
        for (a, b), answer in zip([(0, 1), (1, 3), (0, 4)], asked, strict=True):
            one = release.sum((a, b), ["b", "c"])
            assert answer.value == pytest.approx(one.value, rel=1e-13)
            assert (answer.high - answer.low) == pytest.approx(one.high - one.low, rel=1e-13)
        with pytest.raises(UsageError, match="side by side"):
            release.sum(([0], [1]), ["a", "c"])

    def test_of_instants(self):
        days = dphist.from_counts([3, 4, 5], bins=Instants("2024-01-01", "2024-01-04", "1d"), epsilon=10**6)
        asked = days.sum(["2024-01-01", "2024-01-02"], ["2024-01-03", "2024-01-04"])
        assert asked.value.tolist() == [7, 9]
        at = np.array(["2024-01-01", "2024-01-03"], dtype="datetime64[D]")
        assert days.sum(at, at + 1).value.tolist() == [3, 5]

    def test_of_edges_that_lie_closer_than_others_are_exact(self):
        near = dphist.from_counts([1, 2, 4], bins=[0, 1e-12, 1, 1000], epsilon=10**6)
        assert near.sum([0, 1e-12], [1e-12, 1]).value.tolist() == [1, 2]
        assert near.sum(0, 1e-12).value == 1

    @pytest.mark.parametrize(
        ("where", "says"),
        [
            (([0, 3.2], [1, 4]), "3.2 lies inside a bin"),
            (([0, 3], [1, 40]), "40 lies outside the domain"),
            (([0, 3], [1, 3]), "range 1 has no bins"),
            (([0, 3], [1, 4, 5]), "as many"),
            (([0, math.nan], [1, 4]), "."),
            ((["a"], ["b"]), "."),
            (([[0], [1]], [[2], [3]]), "one dimension"),
            (([0], [1], [2]), "two arrays"),
        ],
    )
    def test_bad_ones_are_refused(self, where, says):
        with pytest.raises(UsageError, match=says):
            line().sum(*where)

    def test_running_sums_keep_the_digits_of_a_small_range_behind_large_values(self):
        raw = np.full(100_000, 1e9 / 3)
        raw[-3:] = [0.1, 0.2, 0.3]
        sums, lost = running(raw)
        assert (sums[-1] - sums[-4]) + (lost[-1] - lost[-4]) == pytest.approx(0.6, rel=1e-15)
        rows = RNG.normal(size=(5, 7))
        both = running(rows)
        assert sum(both)[3, 5] == pytest.approx(rows[:3, :5].sum(), rel=1e-14)


class TestMeansAndShares:
    def test_the_mean_without_noise_lies_between_what_the_edges_allow(self):
        release = line(epsilon=10**6)
        edges = np.linspace(0, 12, 25)
        mean = release.mean()
        assert mean.value == pytest.approx(np.average(edges[:-1] + 0.25, weights=COUNTS))
        assert mean.low == pytest.approx(np.average(edges[:-1], weights=COUNTS), abs=1e-3)
        assert mean.high == pytest.approx(np.average(edges[1:], weights=COUNTS), abs=1e-3)
        whole = dphist.from_counts([1, 0, 3], bins=Integers(5, 7), epsilon=10**6).mean()
        assert (whole.value, whole.low, whole.high) == pytest.approx((6.5, 6.5, 6.5), abs=1e-3)

    def test_the_interval_of_a_mean_covers(self):
        """400 made-up releases: a miss has a probability of at most 0.05, and is far rarer in fact."""
        rng, n, scale = np.random.default_rng(5), 8, 4.0
        error, axis = GroupTotals(Groups.singletons(n), scale), Integers(0, n - 1)
        counts = np.array([9, 30, 5, 0, 2, 40, 7, 3])
        truth = float(np.average(np.arange(n), weights=counts))
        base = dphist.from_counts(counts, bins=axis, epsilon=1)
        missed = 0
        for _ in range(400):
            noise = rng.geometric(1 - math.exp(-1 / scale), (2, n))
            mean = dataclasses.replace(base, raw=counts + noise[0] - noise[1], error=error).mean()
            missed += mean.low is not None and not mean.low <= truth <= mean.high
        assert missed <= 20

    def test_a_weighted_margin_is_at_least_that_of_the_equal_weights(self):
        from dphist.uncertainty import noise_law

        for n in (1, 3, 100, 10_000):
            bound = weighted_margin(2.0, np.full(n, -3.0), level=0.95)
            exact = 3 * noise_law.sum_quantile(np.array([2.0]), np.array([n]), 0.95)
            assert exact <= bound <= 2 * exact
        assert weighted_margin(2.0, np.zeros(3), level=0.95) == 0
        assert weighted_margin(math.inf, np.ones(3), level=0.95) is None

    def test_a_mean_that_is_not_known(self):
        assert math.isnan(dphist.from_counts([0, 0], epsilon=10**6, bins=[0, 1, 2]).mean().value)
        unknown = line(method="h").mean()
        assert unknown.low is None
        assert "unknown" in unknown.note
        assert unknown.note.endswith("the law of the noise is worked out for sums of bins alone.")
        assert "are unknown. no interval: dropping the higher" in line(method="efpa").mean().note
        with pytest.raises(UsageError, match="no order"):
            dphist.from_counts([1, 2], bins=["a", "b"], epsilon=1).mean()

    def test_a_mean_of_calibrated_groups_says_why_it_has_no_interval(self):
        counts = np.repeat([40, 2, 300, 0], 25)
        made = {
            part: dphist.from_counts(counts, epsilon="0.1", method="dawa2", calibrate=part)
            for part in (0, "0.05")
        }
        assert "releases made with calibrate=" in made[0].mean().note
        assert made["0.05"].holds_for_most and made["0.05"].mean().low is None
        assert made["0.05"].mean().note == (
            "Intervals for the mean of this release are unknown: it weighs every bin by its place, and of "
            "how records lie inside the groups only the errors of bins and ranges were measured."
        )

    @pytest.mark.parametrize("method", ["identity", "h", "dawa"])
    def test_shares_below_points(self, method):
        release = line(method=method)
        x = np.array([0, 0.5, 3.3, 6, 11.75, 12])
        shares = release.cdf(x)
        assert shares.value == pytest.approx(np.interp(x, np.linspace(0, 12, 25), release.cdf()))
        assert (shares.low <= shares.value).all()
        assert (shares.value <= shares.high).all()
        assert shares[2] == release.cdf(3.3)
        assert shares[0].low == shares[0].high == 0
        assert shares[-1].low == shares[-1].high == 1
        inside, lower, upper = release.cdf(3.3), release.cdf(3.0), release.cdf(3.5)
        assert (inside.low, inside.high) == (lower.low, upper.high)
        with pytest.raises(UsageError, match="lies in the domain"):
            release.cdf(12.5)

    def test_without_noise_a_share_is_exact(self):
        share = line(epsilon=10**6).cdf(6)
        assert share.value == share.low == share.high == pytest.approx(COUNTS[:12].sum() / COUNTS.sum())

    def test_several_quantiles_are_each_their_own(self):
        release = line()
        asked = release.quantile([0.1, 0.5, 0.9])
        assert [asked[i] for i in range(3)] == [release.quantile(q) for q in (0.1, 0.5, 0.9)]
        with pytest.raises(UsageError, match="from 0 to 1"):
            release.quantile([0.5, 2])
        days = dphist.from_counts([3, 4, 5], bins=Instants("2024-01-01", "2024-01-04", "1d"), epsilon=1)
        assert str(days.quantile([0.5])[0]) == str(days.quantile(0.5))


class TestProjections:
    def test_the_sums_over_the_other_axis_with_their_error(self):
        release = grid()
        for axis, name in ((0, "x"), (1, "y")):
            one = release.project(axis)
            assert one == release.project(name)
            assert one.domain.axes == (release.domain.axes[axis],)
            assert one.raw == pytest.approx(release.values().sum(axis=1 - axis))
            across = release.domain.shape[1 - axis]
            assert one.variances() == pytest.approx(release.variances().sum(axis=1 - axis))
            low, high = one.intervals()
            part = release.sum((0, 1), list("abcdef")) if axis == 0 else release.sum((0, 4), ["a"])
            assert (high - low)[0] == part.high - part.low, across
            assert Release.from_dict(one.to_dict()) == one

    @pytest.mark.parametrize("scale", [3.0, np.array([1.0, 2.0, 3.0])])
    def test_columns_of_groups_are_found_in_the_transposed_model(self, scale):
        """Three groups over 2 x 3 bins: the first column, and each of the others' bins in pairs."""
        groups = Groups(np.array([0, 2, 4, 6]), np.array([0, 3, 1, 4, 2, 5]))
        across = GroupTotals(groups, scale).transposed(2).merged(np.array([0, 2, 4, 6]))
        straight = GroupTotals(Groups(np.array([0, 2, 4, 6])), scale).merged(np.array([0, 2, 4, 6]))
        assert np.array_equal(across.bin_margins(level=0.9), straight.bin_margins(level=0.9))
        cut_through = (
            GroupTotals(Groups(np.array([0, 2, 6])), 1.0).transposed(2).merged(np.array([0, 2, 4, 6]))
        )
        assert cut_through.bin_margins(level=0.9) is None
        uneven = GroupTotals(Groups.singletons(6), np.array([1.0, 2, 3, 4, 5, 6])).transposed(2)
        assert uneven.variances() == pytest.approx(
            GroupTotals(Groups.singletons(6), np.array([1.0, 4, 2, 5, 3, 6])).variances()
        )
        assert isinstance(FineTotals(GroupTotals(groups, 1.0), 4).transposed(2), FineTotals)

    def test_an_error_that_does_not_follow_is_unknown(self):
        unknown = Unknown("nothing was measured")
        assert unknown.transposed(2).merged(np.array([0, 2, 4, 6])).bin_margins(level=0.95) is None

    def test_presented_values_add_up_and_names_hold(self):
        x, y = RNG.random(400), RNG.random(400)
        release = dphist.histogram2d(x, y, bins=(3, 2), range=((0, 1), (0, 1)), epsilon=1, post="integer")
        assert release.project(0).values().dtype == np.float64
        with pytest.raises(UsageError, match="no axis 'z'"):
            release.project("z")
        with pytest.raises(UsageError, match="one axis already"):
            line().project(0)


class TestArrays:
    def test_numpy_reads_values_and_unpacks_like_its_own_histograms(self):
        release = line(post="integer")
        assert np.asarray(release).tolist() == release.values().tolist()
        assert np.asarray(release, dtype=np.int64).dtype == np.int64
        counts, edges = release
        assert (counts.size, edges.size) == (24, 25)
        table, x_edges, y_edges = grid()
        assert (table.shape, x_edges.size, y_edges.size) == ((4, 6), 5, 7)

    def test_what_is_read_is_a_copy(self):
        release = line()
        before = release.values().copy()
        np.array(release)[0] = -1
        counts, _ = release
        counts[0] = -1
        assert np.array_equal(release.values(), before)
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(release)[0] = -1


AXES = {
    "regular": Regular(lo=0, hi=4, bins=4),
    "variable": Variable([0, 1, 5, 6, 20]),
    "integers": Integers(7, 10),
    "labels": Categories(("a", "b", "c"), other=True),
    "instants": Instants("2024-01-01", "2024-01-05", "1d"),
}


class TestOtherLibraries:
    @pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
    @pytest.mark.parametrize("method", ["identity", "dawa"])
    def test_boost_histogram_and_hist_take_a_release(self, axis, method):
        bh = pytest.importorskip("boost_histogram")
        hist = pytest.importorskip("hist")
        release = dphist.from_counts([10, 20, 30, 40], bins=axis, method=method, calibrate=0, epsilon=1)
        for made in (bh.Histogram(release), hist.Hist(release)):
            assert made.values().tolist() == release.values().tolist()
            assert len(made.axes[0]) == 4
            if method == "identity":
                assert made.variances().tolist() == release.variances().tolist()
            if not isinstance(axis, Categories):
                assert made.axes[0].edges.tolist() == axis.edges.tolist()
            else:
                assert list(made.axes[0]) == axis.names()

    def test_a_grid_too(self):
        bh = pytest.importorskip("boost_histogram")
        release = grid()
        made = bh.Histogram(release)
        assert made.values().tolist() == release.values().tolist()
        assert made.variances() == pytest.approx(release.variances())

    @pytest.mark.filterwarnings("ignore")  # of the other library's
    def test_mplhep_draws_a_line_and_a_grid(self):
        mplhep = pytest.importorskip("mplhep")
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        release = line()
        drawn = mplhep.histplot(release)
        assert drawn[0].stairs.get_data().values.tolist() == release.values().tolist()
        mplhep.hist2dplot(dphist.from_counts(RNG.integers(0, 9, (3, 4)), epsilon=1))
        plt.close("all")

    def test_without_the_library_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "boost_histogram", None)
        with pytest.raises(UsageError, match="pip install boost-histogram"):
            line()._to_boost_histogram_()
