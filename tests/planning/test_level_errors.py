"""Expected errors by level, set of groups and range: as measured, before anything is spent."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.domain.groups import Groups
from dphist.domain.hierarchy import make_hierarchy
from dphist.domain.workload import AllRanges, make_workload
from dphist.errors import UsageError
from dphist.methods import memory
from dphist.methods.levels import make_importances, make_shares
from dphist.planning import grouped
from dphist.planning.grouped import GroupedPlan
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.uncertainty.models import GroupTotals
from dphist.uncertainty.noise_law import normal_quantile
from dphist.uncertainty.reconciled import Reconciled

TREE = {"North": ["H1", "H2", "H3"], "South": ["H4", "H5"], "West": ["H6"]}
SUMS = {"coast": ["H1", "H4", "West"]}


def plan(shares=None, **more):
    usual = {"by": ("nation", "region", "hospital"), "groups": TREE, "bins": 24, "range": (0, 24)}
    made = GroupedPlan(**usual | {"epsilon": 1} | more)
    if shares is not None:
        made.__dict__["shares"] = tuple(map(Fraction, shares))
    return made


def measured(asked, trials, rows=None, seed=1000):
    """Return root mean squared errors per level and of the sum, as many releases have them."""
    rows = np.random.default_rng(1).poisson(40, (6, asked.domain.n)) if rows is None else rows
    counts = Counts(rows.ravel(), asked._counted, asked.max_contributions)
    squares = []
    for i in range(trials):
        curator = Curator.simulated(counts, epsilon=asked.budget, seed=seed + i)
        release = asked._run(curator, {})
        missed = [
            release.raw(name) - np.add.reduceat(rows, asked.hierarchy.runs(at).starts[:-1], axis=0)
            for at, name in enumerate(asked.hierarchy.names)
        ]
        missed.append(missed[-1][[0, 3, 5]].sum(axis=0)[None])
        squares.append(
            [np.mean([asked.queries.mean_squared_error(row) for row in level]) for level in missed]
        )
    return np.sqrt(np.mean(squares, axis=0))


def _long(*values):
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


@pytest.mark.parametrize("workload", ["ranges", *_long("points", "prefixes", [(0, 5), (3, 20)])])
@pytest.mark.parametrize("method", ["identity", "hats", "privelet", *_long("laplace")])
def test_what_is_predicted_from_variances_is_measured(method, workload):
    asked = plan((".2", ".3", ".5"), method=method, workload=workload, unit="p", max_contributions=2)
    preview = asked.preview(sums=SUMS)
    rows = (*preview.levels, *preview.sums)
    assert all(row.exact for row in rows)
    # The mean over 200 seeded releases has a standard error of about 3 % on the top level.
    assert [row.error for row in rows] == pytest.approx(measured(asked, 200), rel=0.1)


def test_a_level_that_is_added_up_and_a_single_level():
    asked = plan((".5", "0", ".5"), method="hats", workload="ranges")
    rows = [row.error for row in (*asked.preview(sums=SUMS).levels, *asked.preview(sums=SUMS).sums)]
    assert rows == pytest.approx(measured(asked, 200), rel=0.1)
    alone = plan(by="hospital", groups=["H1", "H2"], workload="ranges", method="identity")
    together, one = (alone.preview(sums=[["H1", "H2"]]), plan(by="hospital", groups=["H1"]))
    assert together.sums[0].error == pytest.approx(math.sqrt(2) * together.levels[0].error)
    assert one.preview().levels[0].bin_error == pytest.approx(together.levels[0].bin_error)


def test_the_error_of_the_leaves_alone_is_that_of_a_plain_histogram():
    asked = plan(by="hospital", groups=["H1", "H2"], workload="prefixes", bins=16, method="identity")
    plain = dphist.Plan(bins=16, range=(0, 24), epsilon=1, method="identity")
    variance = plain.preview().releases[0].error.variances()[0]
    # The mean length of a prefix of 16 bins is 8.5.
    assert asked.preview().levels[0].error == pytest.approx(math.sqrt(8.5 * variance))


@pytest.mark.parametrize("method", ["dawa2", *_long("ahp")])
def test_biased_groups_are_simulated_below_levels_whose_variances_are_known(method):
    asked = plan((".2", ".3", ".5"), method=method, workload="ranges")
    rows = np.repeat(np.arange(1, 7), 24).reshape(6, 24)
    with pytest.warns(UserWarning, match="public"):
        preview = asked.preview(records=5000, like=rows, sums=SUMS | {"both": ["North", "West"]})
    assert [row.exact for row in preview.levels] == [True, True, False]
    assert [row.exact for row in preview.sums] == [False, True]
    found = measured(asked, 100, preview.truth)
    assert [row.error for row in preview.levels[:2]] == pytest.approx(found[:2], rel=0.12)
    assert [preview.levels[2].error, preview.sums[0].error] == pytest.approx(found[2:], rel=0.12)


@pytest.mark.long
def test_many_groups_are_simulated_on_a_part_of_them(monkeypatch):
    monkeypatch.setattr(grouped, "_CELLS", 1 << 12)
    groups = {f"R{i}": [f"H{i}-{j}" for j in range(12)] for i in range(10)}
    asked = plan(groups=groups, method="dawa2", workload="ranges", bins=50)
    preview = asked.preview(records=100_000)
    assert preview.levels[2].groups == 120 > len(preview.releases[0]) == 4096 // 50
    study = asked.errors(records=100_000, like="smooth")
    whole = study.of(asked.pipeline, asked.budget, cells=1 << 30, enough=240)
    assert [row.error for row in preview.levels] == pytest.approx([row.error for row in whole], rel=0.15)
    nothing_above = plan(groups=groups, method="sa", bins=200, importances="points")
    levels = nothing_above.preview(records=1000).levels
    assert [math.isnan(row.error) for row in levels] == [True, True, False]
    assert levels[0].to_dict()["error"] is None


def test_the_dozen_add_up_and_one_group_is_a_preview_like_any_other(tmp_path):
    preview = plan(workload="ranges", post="integer").preview(records=5000, like="early")
    assert len(preview.releases) == 12 and all(release.simulated for release in preview.releases)
    assert preview.truth.shape == (6, 24) and abs(preview.truth.sum() - 5000) <= 6
    north = preview["North"]
    assert np.array_equal(north.truth, preview.truth[:3].sum(axis=0))
    assert np.array_equal(north.values[0], preview.releases[0]["North"].values())
    assert preview.plot(tmp_path / "p.svg").to_svg().count("<svg") == 1
    assert "SIMULATED" in repr(preview) and "SIMULATED" in str(preview)
    assert "<svg" in preview._repr_html_() and "hospital" in preview._repr_html_()
    with pytest.raises(UsageError, match="was not simulated"):
        preview["H9"]


def test_an_earlier_release_tells_sizes_and_shapes(tmp_path):
    asked = plan(importances=None)
    rows = np.zeros((6, 24), dtype=int)
    rows[2, 5] = 10**6
    curator = Curator.simulated(Counts(rows.ravel(), asked._counted), epsilon=Fraction(10), seed=0)
    earlier = asked._run(curator, {})
    for like in (earlier, earlier.save(tmp_path / "r.parquet"), str(earlier.save(tmp_path / "r.json"))):
        truth = asked.preview(records=1000, like=like).truth
        assert truth[2, 5] > 990
    with pytest.raises(UsageError, match=r"6 groups of 24 bins"):
        plan(groups={"A": ["B"]}).preview(like=earlier)


@pytest.mark.parametrize(
    ("sums", "words"),
    [
        ([["H1", "H9"]], "no group"),
        ([["H1", "North"]], "overlap"),
        ([[]], "a sum is"),
        ("H1", "list of lists"),
        (["H1"], "a sum is"),
    ],
)
def test_sums_that_mean_nothing(sums, words):
    with pytest.raises(UsageError, match=words):
        plan().preview(sums=sums)


@pytest.mark.parametrize("records", [0, -1, 1.5, True])
def test_bad_numbers_of_records(records):
    with pytest.raises(UsageError, match="records"):
        plan().preview(records=records)


class TestProductWorkloads:
    def test_words_for_the_queries_along_the_groups(self):
        tree = make_hierarchy(("nation", "region", "hospital"), TREE)
        assert make_importances(tree, "points") == {"nation": 0, "region": 0, "hospital": 1}
        assert make_importances(tree, "totals") == {"nation": 0.1, "region": 0, "hospital": 0}
        assert make_importances(tree, "levels") == make_importances(tree)
        assert make_shares(tree, "points") == (0, 0, 1)
        assert make_shares(tree, "totals")[0] > Fraction(1, 2)
        with pytest.raises(UsageError, match="points, levels, totals"):
            make_importances(tree, "ranges")

    def test_shares_follow_what_is_asked_along_the_groups(self):
        errors = {
            word: [row.error for row in plan(importances=word).preview().levels]
            for word in ("points", "levels", "totals")
        }
        assert errors["totals"][0] < errors["levels"][0] <= errors["points"][0]
        assert errors["points"][2] <= errors["levels"][2] < errors["totals"][2]

    def test_strategies_are_tuned_to_the_queries_along_the_bins(self):
        def error(made_for, asked):
            tuned = plan(method="greedyh-tuned", workload=made_for, bins=64)
            release = tuned.preview().releases[0]["H1"]
            pairs = make_workload(asked, tuned.domain).pairs()
            return np.mean(release.error.sum_variances(*pairs))

        lists = [(i, i + 1) for i in range(64)] * 20 + [(0, 64)]
        for one, other in (("ranges", lists), (lists, "ranges")):
            assert error(one, one) < 0.9 * error(other, one)

    def test_auto_is_unbiased_whatever_level_is_asked_for(self):
        for importances in (None, "points", "totals"):
            for workload, method in (("ranges", "hats"), ("points", "identity")):
                made = plan(method="auto", workload=workload, importances=importances).pipeline
                assert (made.name, made.choice) == ("auto", method)


def test_queries_at_even_distances():
    ranges = AllRanges(50)
    listed = list(zip(*ranges.pairs(), strict=True))
    assert list(zip(*ranges.some_pairs(10**6), strict=True)) == listed
    some = list(zip(*ranges.some_pairs(100), strict=True))
    assert len(set(some)) == 100 and set(some) <= set(listed)
    large = AllRanges(1 << 20).some_pairs(1000)
    assert (large[0] < large[1]).all() and large[1].max() <= 1 << 20
    assert np.mean(large[1] - large[0]) == pytest.approx((1 << 20) / 3, rel=0.05)
    prefixes = make_workload("prefixes", 1000).some_pairs(10)
    assert not prefixes[0].any() and prefixes[1].size == 10


@pytest.mark.parametrize("method", ["identity", "laplace", "hats", "hb", "privelet"])
def test_variances_of_sums_are_those_of_their_margins(method):
    made = dphist.Plan(bins=20, range=(0, 20), epsilon=1, method=method, workload="ranges").preview()
    error, pairs = made.releases[0].error, AllRanges(20).pairs()
    found = error.sum_variances(*pairs)
    if method in ("identity", "laplace"):
        assert found == pytest.approx((pairs[1] - pairs[0]) * error.variances()[0])
    else:
        assert found == pytest.approx((error.margins(*pairs, level=0.9) / normal_quantile(0.9)) ** 2)
    assert np.allclose(error.sum_variances(np.arange(20), np.arange(1, 21)), error.variances())
    wider = Reconciled(error, 20, 1.5)
    assert np.allclose(wider.sum_variances(*pairs), 1.5 * found)
    assert np.isnan(Reconciled(error, 20, 1.0, np.ones(20)).sum_variances(*pairs)).all()


def test_variances_of_sums_that_cut_a_group_are_unknown():
    error = GroupTotals(Groups([0, 1, 3]), 2.0)
    found = error.sum_variances(np.array([0, 0]), np.array([1, 2]))
    assert found[0] == error.variances()[0] and np.isnan(found[1])


def test_many_groups_that_fit_are_not_refused_for_a_method_that_does_not_run(monkeypatch):
    asked = plan(by="h", groups=[f"H{i}" for i in range(10_000)], bins=1000, workload="ranges")
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)  # 100 bytes for each bin
    asked.prepare()
    monkeypatch.setattr(memory, "available", lambda: 1 << 26)
    with pytest.raises(UsageError, match="memory"):
        asked.prepare()
