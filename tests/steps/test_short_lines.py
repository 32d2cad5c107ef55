"""Lines in few groups have posterior means of what was measured: which lines, and by which numbers."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.kernels.averaging import contrasts, posterior, pruned
from dphist.kernels.averaging.trends import along_trends
from dphist.kernels.trees import tree as trees
from dphist.kernels.trees import variances
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate
from dphist.steps.estimate import averaged_trees
from dphist.uncertainty import noise_law
from naive_posterior import Twin, first


def measured(monkeypatch, groups, *, spec="ranges", epsilon="1/10", shape=None, high=90):
    """Return an estimate, and the noisy totals that agree which it is made of, if there are any."""
    kept = []
    draw = averaged_trees.agreeing_totals

    def agreeing_totals(curator, groups, tree, weights, *, share):
        noisy = draw(curator, groups, tree, weights, share=share)
        kept.append((tree, noisy))
        return noisy

    monkeypatch.setattr(averaged_trees, "agreeing_totals", agreeing_totals)
    n = groups.n
    domain = Domain(tuple(Integers(0, side - 1) for side in shape or (n,)))
    x = np.where(np.arange(n) < n // 3, high, 2).reshape(domain.shape)
    made = Curator.simulated(Counts(x, domain), epsilon=Fraction(epsilon), seed=4)
    found = estimate.AveragedTree()(made, None, groups, make_workload(spec, domain), share=Fraction(1))
    return found, *kept[0]


def deviations(tree, noisy):
    error = variances.tree_error(tree, noise_law.variance(noisy.scale))
    return np.sqrt(variances.range_variances(error, tree.lo, tree.hi))


def wanted(tree, groups, noisy, few=False):
    """Posterior means by the scales of the factors, on grids as wide as the noise of each total is."""
    values = noisy.values.astype(np.float64)
    return posterior.posterior_totals(
        tree, groups.starts, values, noisy.own, deviations(tree, noisy), few=few
    )


def averages(tree, groups, noisy):
    return pruned.averaged(
        pruned.gathered(tree, groups.starts, noisy.values, noisy.scale, noise_law.variance)
    )


def uneven_groups(n):
    """Nodes of the binary tree over n = 2^h bins, of many sizes."""
    ends = [n // 2 + (1 << i) for i in range(n.bit_length() - 1)]
    return Groups(np.array([0, n // 4, n // 2, *ends]))


@pytest.mark.parametrize("spec", ["ranges", "prefixes"])
@pytest.mark.parametrize("n", [16, 63, 64])
def test_bins_of_short_lines_have_posterior_means(monkeypatch, n, spec):
    groups = Groups.singletons(n)
    found, tree, noisy = measured(monkeypatch, groups, spec=spec)
    assert np.array_equal(found.values, wanted(tree, groups, noisy))
    assert np.array_equal(found.measured, noisy.values[tree.leaf])


def test_bins_of_longer_lines_have_averages_both_ways(monkeypatch):
    groups = Groups.singletons(65)
    found, tree, noisy = measured(monkeypatch, groups)
    error = variances.tree_error(tree, noise_law.variance(noisy.scale))
    spread = contrasts.spread_of(65, partial(variances.range_variances, error))
    shifted = contrasts.averaged_by(noisy.values[tree.leaf].astype(float), spread)
    assert np.allclose(found.values, (averages(tree, groups, noisy) + shifted) / 2)


@pytest.mark.parametrize("n", [64, 1024])
def test_groups_of_lines_have_posterior_means_that_follow_trends(monkeypatch, n):
    groups = uneven_groups(n)
    found, tree, noisy = measured(monkeypatch, groups, high=400)
    assert found.error.pruned and found.error.agreeing
    totals = wanted(tree, groups, noisy)
    assert np.array_equal(found.values, along_trends(totals, groups.starts))
    assert not np.allclose(totals, averages(tree, groups, noisy), rtol=1e-3)
    assert not np.allclose(totals, wanted(tree, groups, noisy, few=True), rtol=1e-3)


@pytest.mark.parametrize("n", [128, 1024])
def test_groups_of_few_records_have_the_mean_of_both(monkeypatch, n):
    groups = uneven_groups(n)
    found, tree, noisy = measured(monkeypatch, groups, high=2 if n > 128 else 40)
    assert noisy.values[0] < 9_000, "1,000 scales"
    totals = (wanted(tree, groups, noisy, few=True) + averages(tree, groups, noisy)) / 2
    assert np.allclose(found.values, along_trends(totals, groups.starts), rtol=1e-12)


def test_records_are_few_up_to_1000_scales_of_all_of_epsilon(monkeypatch):
    """Whatever share of it was left for the groups."""
    groups = uneven_groups(128)
    _, tree, noisy = measured(monkeypatch, groups)

    def few(total, scale):
        said = []
        monkeypatch.setattr(
            averaged_trees,
            "posterior",
            lambda tree, groups, noisy, *, few=False: said.append(few) or np.full(groups.k, total / groups.k),
        )
        moved = noisy._replace(values=noisy.values + (total - noisy.values[0]))
        averaged_trees.totals_of_few(tree, groups, moved, scale=scale)
        return said

    assert few(10_000, 10.0) == [True] and few(10_001, 10.0) == [False] and few(10_001, 10.1) == [True]
    groups = uneven_groups(64)
    _, tree, noisy = measured(monkeypatch, groups)
    assert few(100, 10.0) == [False], "few bins have no use for it"


@pytest.mark.parametrize(("moved", "trusted"), [(0.9, True), (-0.9, True), (1.1, False), (-1.1, False)])
def test_means_that_move_all_records_by_a_standard_error_are_not_taken(monkeypatch, moved, trusted):
    groups = uneven_groups(128)
    _, tree, noisy = measured(monkeypatch, groups, high=400)
    found, cautious = np.zeros(groups.k), np.arange(groups.k)
    found[0] = noisy.values[0] + moved * deviations(tree, noisy)[0]
    monkeypatch.setattr(
        averaged_trees,
        "posterior",
        lambda tree, groups, noisy, *, few=False: (cautious if few else found).astype(np.float64),
    )
    made = averaged_trees.totals_of_few(tree, groups, noisy, scale=1.0)
    assert np.allclose(made, found if trusted else (cautious + averages(tree, groups, noisy)) / 2)


def test_many_groups_have_averages_over_prunings(monkeypatch):
    for k, few in ((256, True), (257, False)):
        groups = Groups(np.arange(k + 1) * 2)
        found, tree, noisy = measured(monkeypatch, groups)
        totals = wanted(tree, groups, noisy) if few else averages(tree, groups, noisy)
        assert np.allclose(found.values, along_trends(totals, groups.starts), rtol=1e-12)


def test_groups_along_a_curve_have_averages_over_prunings(monkeypatch):
    groups = Groups(uneven_groups(64).starts, np.arange(64)[::-1].copy())
    found, tree, noisy = measured(monkeypatch, groups)
    assert np.allclose(found.values, groups.means(averages(tree, groups, noisy)))


@pytest.mark.parametrize("groups", [Groups.singletons(40), uneven_groups(128)])
def test_the_scales_of_the_factors_are_those_that_were_paid_for(monkeypatch, groups):
    """1/s of the nodes above a group add up to epsilon: so not of noise that would be as large."""
    _, tree, noisy = measured(monkeypatch, groups)
    paid = [
        sum(1 / noisy.own[q] for q in range(tree.size) if tree.lo[q] <= i < tree.hi[q]) for i in range(tree.k)
    ]
    assert paid == pytest.approx([0.1] * tree.k, rel=0.02)
    assert (noisy.scale <= noisy.own * 1.05).all() and (noisy.scale < 0.9 * noisy.own).any()


def test_a_grid_reaches_what_the_children_have_at_least():
    """Beside a child far below 0 the other has more than the parent's noisy total."""
    tree = trees.pruned_tree(np.arange(5))
    leaves = np.array([300.0, -280.0, -250.0, 260.0])
    below = np.concatenate(([0], np.cumsum(leaves)))
    low, step = posterior.grids(tree, below[tree.hi] - below[tree.lo], np.full(tree.size, 2.0))
    high = low + step * (posterior.POINTS - 1)
    for q in np.flatnonzero(tree.left):
        c = tree.left[q]
        assert high[q] >= low[c] + low[c + 1] + 9.99


def test_totals_however_far_below_0_are_drawn_to_0():
    """Of a child that is far below 0 the factor falls off as it does from 0 on: it does not vanish."""
    tree, starts = trees.pruned_tree(np.array([0, 1, 2])), np.array([0, 1, 2])
    near, far = (
        posterior.posterior_totals(tree, starts, np.array([2 * y, y, y]), np.ones(3), np.ones(3))
        for y in (-30.0, -900.0)
    )
    assert far == pytest.approx(near, rel=1e-6) and far.max() < 1


def test_what_fits_nothing_that_others_say_has_its_own_mean():
    """Nothing near the parent's total is a sum of the children's: these stay what they were measured as."""
    tree, starts = trees.pruned_tree(np.array([0, 1, 2])), np.array([0, 1, 2])
    small = np.full(3, 1e-3)
    odd = posterior.posterior_totals(tree, starts, np.array([1e9, 10.0, 5.0]), small, small)
    assert odd == pytest.approx([10, 5], abs=0.01)


def test_a_factor_far_narrower_than_its_grid_leaves_finite_means():
    """No point of the grids, 1.8 apart, has a likelihood above 0 in double precision."""
    tree, starts = trees.pruned_tree(np.array([0, 1, 2])), np.array([0, 1, 2])
    noisy = np.array([20.0, 10.0, 10.0])
    found = posterior.posterior_totals(tree, starts, noisy, np.full(3, 1e-4), np.full(3, 10.0))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 60).all()


@pytest.mark.parametrize("seed", range(6))
def test_points_that_leave_nothing_to_the_other_child_count_whatever_is_rounded(seed):
    """Grids from 0 that are alike: a parent's points are those of its children but for rounding."""
    tree, starts = trees.pruned_tree(np.arange(3)), np.arange(3)
    scale = np.full(3, np.random.default_rng(seed).uniform(0.1, 9))
    given = tree, starts, np.full(3, -0.5 * seed * scale[0]), scale, scale
    prior = first(2)
    assert posterior._Posterior(*given, False).passed(prior)[0] == pytest.approx(
        Twin(*given).passed(prior)[0], rel=1e-7
    )


def test_few_records_are_told_by_the_noise_of_all_of_epsilon(monkeypatch):
    seen, made = [], averaged_trees.totals_of_few
    monkeypatch.setattr(
        averaged_trees,
        "totals_of_few",
        lambda *given, scale: seen.append(scale) or made(*given, scale=scale),
    )
    domain = Domain((Integers(0, 199),))
    held = Curator.simulated(Counts(np.full(200, 50), domain), epsilon=Fraction(1, 2), seed=0)
    groups = Groups(np.arange(0, 201, 4))
    estimate.AveragedTree()(held, None, groups, make_workload("ranges", domain), share=Fraction(1, 4))
    assert seen == [held.scale(Fraction(1))]
