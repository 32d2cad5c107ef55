"""Levels of groups: measured with shares of one budget, adding up, with errors that are what they say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.hierarchy import make_hierarchy
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.levels import is_unbiased, make_shares, run_levels
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

F = Fraction
BINS = Domain((Integers(0, 31),))
TREE = make_hierarchy(
    ("nation", "region", "hospital"),
    {f"R{r}": [f"R{r}H{h}" for h in range(3 + 2 * r)] for r in range(4)},
)
SHARES = (F(1, 10), F(2, 10), F(7, 10))


def truth(seed=0):
    draws = np.random.default_rng(seed)
    sizes = (draws.pareto(1.2, len(TREE.leaves)) + 1) * 60
    shape = np.exp(-0.5 * ((np.arange(32) - 12) / 6) ** 2) + 0.05
    leaves = draws.poisson(sizes[:, None] * shape / shape.sum())
    return [np.add.reduceat(leaves, TREE.runs(level).starts[:-1], axis=0) for level in range(3)]


def run(method, seed, shares=SHARES, workload="ranges", counts=None):
    asked = make_workload(workload, BINS)
    exact = truth()[-1] if counts is None else counts
    held = Counts(exact, Domain((TREE.axis, BINS.axes[0])))
    curator = Curator.simulated(held, epsilon=F(1), seed=seed)
    return run_levels(make_pipeline(method, BINS, asked), curator, TREE, asked, shares), curator


LINES = [name for name, method in CATALOGUE.items() if 1 in method.dimensions]


@pytest.mark.parametrize("method", LINES)
def test_every_method_adds_up_to_the_last_bit_and_spends_its_shares(method):
    levels, curator = run(method, 1)
    leaves = levels[-1].values
    for level in range(3):
        runs = TREE.runs(level)
        assert np.array_equal(levels[level].values, np.add.reduceat(leaves, runs.starts[:-1], axis=0))
    assert np.array_equal(leaves[::-1].sum(axis=0), levels[0].values[0])  # in any order of summation
    assert sorted(part.share for part in curator.spent) == sorted(SHARES)
    assert all(error is not None for i in range(3) for error in [levels[i].error(0)])


def test_a_method_is_unbiased_if_the_catalogue_says_that_no_data_change_it():
    asked = make_workload("ranges", BINS)
    found = {name for name in LINES if is_unbiased(make_pipeline(name, BINS, asked))}
    fixed = {name for name in LINES if not CATALOGUE[name].data_dependent}
    assert found <= fixed
    assert {"identity", "hats", "h", "hay", "privelet"} <= found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["identity", "hats", "h", "privelet"])
def test_predicted_and_measured_errors_agree_on_every_level(method):
    exact, trials = truth(), 60
    runs = [run(method, 1000 + seed)[0] for seed in range(trials)]
    for level in range(3):
        wrong = np.stack([found[level].values - exact[level] for found in runs])
        said = np.stack([runs[0][level].error(i).variances() for i in range(len(exact[level]))])
        cells = wrong.size / 32  # bins of one group are not independent; groups and trials nearly are
        assert np.mean(wrong**2) == pytest.approx(said.mean(), rel=5 * np.sqrt(2 / cells) + 0.03)
        inside = [
            abs(float(found[level].values[i, 4:20].sum() - exact[level][i, 4:20].sum()))
            <= found[level].error(i).margin(4, 20, level=0.95)
            for found in runs
            for i in range(len(exact[level]))
        ]
        assert 0.9 - 3 * np.sqrt(0.1 / len(inside)) < np.mean(inside)
        assert np.mean(inside) <= 0.995 or len(inside) < 500  # of few, all may be inside


@pytest.mark.slow
def test_biased_leaves_do_not_spoil_the_levels_above_them():
    exact, rmse = truth(), {}
    for method in ("hats", "dawa2"):
        wrong = [run(method, 2000 + s)[0][0].values[0] - exact[0][0] for s in range(30)]
        rmse[method] = np.sqrt(np.mean(np.cumsum(wrong, axis=1) ** 2))
    assert rmse["dawa2"] < 1.6 * rmse["hats"]
    alone = [run("dawa2", 3000 + s, (F(0), F(0), F(1)))[0] for s in range(5)]
    assert all("not measured" in found[0].error(0).description for found in alone)


def test_intervals_of_leaves_that_were_moved_are_wider_by_as_much():
    levels, _ = run("dawa2", 5)
    moved, (exact,) = levels[-1].error(3), (truth()[-1][3],)
    assert moved.variances() is None
    assert "wider" in moved.description
    assert levels[-1].values[3].shape == exact.shape


def test_the_cells_of_many_groups_are_measured_at_once_with_the_noise_of_each_alone():
    levels, curator = run("identity", 1, (F(0), F(0), F(1)), "points")
    assert [part.purpose for part in curator.spent] == [f"{len(TREE.leaves)} disjoint groups, each"]
    wrong = levels[-1].values - truth()[-1]
    assert np.mean(wrong**2) == pytest.approx(levels[-1].error(0).variances().mean(), rel=0.25)


def test_shares_follow_the_importances():
    assert make_shares(make_hierarchy("h", ["a", "b"])) == (F(1),)
    default = make_shares(TREE)
    assert sum(default) == 1
    assert default[-1] > 0
    only = make_shares(TREE, {"nation": 0, "region": 0})
    assert only == (0, 0, 1)
    top = make_shares(TREE, {"nation": 100, "region": 0, "hospital": 1})
    assert top[0] > default[0]
    for wrong, says in (
        ({"nation": 0, "region": 0, "hospital": 0}, "above 0"),
        ({"city": 1}, "no level 'city'"),
        ({"nation": -1}, "importance of nation"),
        ({"nation": "x"}, "importance of nation"),
        ({"nation": float("nan")}, "importance of nation"),
        ({"region": float("inf")}, "importance of region"),
        ({"region": True}, "importance of region"),
        ([1, 2, 3], "by the names of levels"),
    ):
        with pytest.raises(UsageError, match=says):
            make_shares(TREE, wrong)


@pytest.mark.parametrize("biased", [False, True])
def test_leaves_have_a_share_also_where_each_is_alone_in_its_group(biased):
    wards = {f"r{i}": {f"w{i}{j}": [f"b{i}{j}"] for j in range(2)} for i in range(3)}
    chain = make_hierarchy(("all", "region", "ward", "bed"), {"T": wards})
    for least in (0, 1e-7, 0.3):
        shares = make_shares(chain, {"all": 1, "region": 0, "ward": 1, "bed": least}, biased=biased)
        assert sum(shares) == 1
        assert shares[-1] > 0
        assert min(shares) >= 0


def test_levels_above_biased_groups_are_measured():
    """Few groups: sums of unbiased ones are good enough, sums of biased ones are not."""
    few = make_hierarchy(("nation", "region", "hospital"), {"N": ["a", "b"], "S": ["c", "d"]})
    assert make_shares(few) == (0, 0, 1)
    biased = make_shares(few, biased=True)
    assert sum(biased) == 1
    assert biased[0] == biased[1] == F(241, 1000)  # cube roots of 1/10, 1/10 and 1
    assert make_shares(few, {"region": 0}, biased=True)[1] == 0  # nobody asks


def test_leaves_of_no_importance_are_measured_all_the_same():
    shares = make_shares(TREE, {"nation": np.int64(1), "region": F(1, 2), "hospital": 0})
    assert sum(shares) == 1
    assert 0 < shares[-1] < shares[1]


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ((5, 9, 100), np.int16),
        ((5, 40_000, 7), np.int32),
        ((7, 1 << 33, 40_000), np.int64),
        ((1 << 52, 5, 7), np.int64),
    ],
)
def test_noise_and_counts_of_any_size_are_kept(monkeypatch, sizes, kept):
    """Whole numbers take as few bytes as hold all of them, whichever block brings the largest."""
    monkeypatch.setattr("dphist.methods.levels._BLOCK", 32)
    tree, asked = make_hierarchy("g", ["a", "b", "c"]), make_workload("points", BINS)
    exact = np.repeat(np.maximum(sizes, 0), 32).reshape(3, 32)
    held = Counts(exact, Domain((tree.axis, BINS.axes[0])))
    curator = Curator.simulated(held, epsilon=F(1), seed=1)
    (level,) = run_levels(make_pipeline("identity", BINS, asked), curator, tree, asked, (F(1),))
    assert level.numbers.dtype == kept and level.values.dtype == np.float64
    assert np.abs(level.values - exact).max() < 100
    assert np.array_equal(level.rows([2, 0]), level.values[[2, 0]])
    assert np.array_equal(level.block(range(1, 3)), level.values[1:3])
    assert not level.values.flags.writeable and not level.numbers.flags.writeable
