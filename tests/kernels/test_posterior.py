"""Posterior means by the exact law of noise that agrees: their plain twin, and what must hold of any."""

import math

import numpy as np
import pytest
from scipy.special import betainc, ndtr

from dphist.errors import UsageError
from dphist.kernels.averaging import posterior
from dphist.kernels.averaging.posterior import posterior_totals
from dphist.kernels.trees import tree as trees
from naive_posterior import EMPTY, EVEN, Twin, first, table


def measured(draw, starts, *, scale=8.0, total=200.0, unmeasured=False):
    """Noisy totals of a tree over groups that agree, made of noise of some scale."""
    tree = trees.pruned_tree(starts)
    exact = draw.gamma(0.6, total / tree.k, tree.k) * (draw.random(tree.k) < 0.7)
    noisy = exact + draw.laplace(0, scale, tree.k)
    below = np.concatenate(([0], np.cumsum(noisy)))
    own = scale * draw.uniform(0.8, 3, tree.size)
    if unmeasured:
        own[0] = np.inf
    deviation = scale * draw.uniform(1, 2, tree.size)
    return tree, starts, below[tree.hi] - below[tree.lo], own, deviation


@pytest.mark.parametrize("starts", [(0, 1, 2), (0, 4, 6, 7, 8), (0, 8, 12, 13), (0, 16, 24)])
@pytest.mark.parametrize("total", [0.5, 40.0, 5000.0])
@pytest.mark.parametrize("few", [False, True])
def test_one_pass_and_what_is_learnt_of_it_equal_their_twin(starts, total, few):
    draw = np.random.default_rng(len(starts) + int(total))
    given = measured(draw, np.array(starts), total=total, unmeasured=total > 1)
    made, twin = posterior._Posterior(*given, few), Twin(*given, few)
    prior = first(len(made.first), few) * draw.uniform(0.5, 2, made.first.shape)
    prior /= prior.sum(axis=1, keepdims=True)
    mean, counted, uneven = made.passed(prior)
    wanted, wanted_counted, cells = twin.passed(prior)
    tiny = 1e-9 * (1 + abs(given[2]).max())
    assert mean == pytest.approx(wanted, rel=1e-7, abs=tiny)
    assert counted == pytest.approx(wanted_counted, rel=1e-6, abs=1e-9)
    parts = np.unique(made.part[made.tree.left > 0])
    assert uneven.sum() == pytest.approx(sum(cells.values()), rel=1e-6)
    left_out = (1.0 if few else 0.6) * twin.empty
    everything = np.count_nonzero(made.tree.left)
    assert counted.sum() + uneven.sum() + left_out == pytest.approx(everything, rel=1e-5), "all nodes"
    for (height, part, octave, cell), many in cells.items():
        which = int(np.argmin(abs(parts - part)))
        nearby = uneven[height, which, octave, max(cell - 1, 0) : cell + 2].sum()
        assert nearby >= many * (1 - 1e-6) - 1e-12, "a point at a cell's end may count for either"
    found = made._learnt(prior, counted, uneven)
    assert found == pytest.approx(twin.learnt(prior, wanted_counted, cells), rel=1e-3, abs=1e-4)
    assert found.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("few", [False, True])
def test_the_posterior_means_equal_their_twin(few):
    draw = np.random.default_rng(int(few))
    given = measured(draw, np.array([0, 4, 6, 8]), total=60.0)
    found = posterior_totals(*given, few=few)
    assert found == pytest.approx(Twin(*given, few).means(), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("few", [False, True])
def test_the_prior_before_anything_is_learnt(few):
    assert posterior.first_odds(9, few) == pytest.approx(first(9, few))
    assert posterior.first_odds(9, few).sum(axis=1) == pytest.approx(1)


def test_two_groups_have_the_mean_of_a_fine_integral():
    """Of the density itself, integrated far more finely than the kernel does, without its tables."""
    starts, scale = np.array([0, 1, 2]), np.array([np.inf, 6.0, 6.0])
    noisy = np.array([22.0, 20.0, 2.0])
    tree = trees.pruned_tree(starts)
    made = posterior._Posterior(tree, starts, noisy, scale, np.full(3, 9.0), False)
    prior = first(len(made.first))
    row = prior[1]
    one, two = (np.linspace(0, 90, 601) for _ in range(2))
    step = one[1]
    likelihood = np.exp(-abs(20 - one[:, None]) / 6 - abs(2 - two) / 6)
    total = one[:, None] + two
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.clip((one[:, None] / total), 1e-12, 1 - 1e-12)
        density = np.zeros_like(total)
        for weight, c in zip(row[EMPTY + 1 :], posterior.UNEVEN, strict=True):
            # the concentration of the octave that a total lies in, as the tables have it
            octave = np.floor(np.log2(np.clip(total, 1, 2.0**13)))
            own = np.maximum(1 / (1 / (c + 1) + 2.0 ** -(octave + 0.5)) - 1, 0.25)
            upper, lower = np.clip(u + step / 2 / total, 0, 1), np.clip(u - step / 2 / total, 0, 1)
            mass = betainc(own / 2, own / 2, upper) - betainc(own / 2, own / 2, lower)
            density += weight * mass
        for weight, c in zip(row, EVEN, strict=False):
            sd = np.sqrt(total / 4 * (1 + total / (c + 1)))
            at = [
                ndtr((np.clip(x, 0, total) - total / 2) / sd)
                for x in (one[:, None] + step / 2, one[:, None] - step / 2)
            ]
            density += weight * (at[0] - at[1]) / (2 * ndtr(np.sqrt(total / (1 + total / (c + 1)))) - 1)
    density[0, 0] = 0
    # Lines of one total are crossed by points one apart: the mass of each is that of its cell.
    divided = likelihood * density
    left_empty = row[EMPTY] / 2 * np.exp(-20 / 6 - abs(2 - one) / 6)
    right_empty = row[EMPTY] / 2 * np.exp(-abs(20 - one) / 6 - 2 / 6)
    whole = divided.sum() + left_empty.sum() + right_empty.sum()
    moment = (divided * one[:, None]).sum() + (right_empty * one).sum()
    mean = made.passed(prior)[0]
    assert mean[tree.leaf[0]] == pytest.approx(moment / whole, abs=0.12), "of a standard deviation of 9"
    assert mean[0] == pytest.approx(mean[1] + mean[2], abs=0.05)


def test_means_follow_what_was_measured_where_noise_is_small():
    starts = np.array([0, 1, 2, 3, 4])
    tree = trees.pruned_tree(starts)
    exact = np.array([500.0, 20.0, 0.0, 3.0])
    below = np.concatenate(([0], np.cumsum(exact)))
    found = posterior_totals(
        tree, starts, below[tree.hi] - below[tree.lo], np.full(tree.size, 0.01), np.full(tree.size, 0.01)
    )
    assert found == pytest.approx(exact, abs=0.01)


def test_groups_that_noise_may_have_made_are_drawn_to_nothing_and_others_are_not():
    starts = np.arange(9)
    tree = trees.pruned_tree(starts)

    def found(*noisy):
        below = np.concatenate(([0], np.cumsum(noisy)))
        own = np.where(tree.left > 0, 60.0, 10.0)
        return posterior_totals(tree, starts, below[tree.hi] - below[tree.lo], own, np.full(tree.size, 12.0))

    lone = found(900, 5, -8, 9, -3, 6, -9, 4)
    assert lone[0] == pytest.approx(900, abs=15)
    assert lone[1:].max() < 1, "seven empty ones beside it"
    level = found(35, 20, 42, 29, 33, 24, 19, 38)
    assert np.ptp(level) < 10, "alike: closer to each other than the noisy ones, which are 23 apart"
    assert level.sum() == pytest.approx(240, abs=10)
    many = found(10_035, 10_020, 10_042, 10_029, 10_033, 10_024, 10_019, 10_038)
    assert np.ptp(many) > 18, "by chance 10,000 records are farther from each other than noise is from 0"


def test_a_mirrored_line_has_mirrored_means():
    draw = np.random.default_rng(3)
    tree, starts, noisy, _, deviation = measured(draw, np.array([0, 4, 8, 12, 16]))
    own, deviation = np.full(tree.size, 9.0), np.full(tree.size, 12.0)
    leaves = noisy[tree.leaf]
    below = np.concatenate(([0], np.cumsum(leaves[::-1])))
    back = posterior_totals(tree, starts, below[tree.hi] - below[tree.lo], own, deviation)
    assert posterior_totals(tree, starts, noisy, own, deviation) == pytest.approx(back[::-1], rel=1e-6)


@pytest.mark.parametrize("part", [0.5, 1 / 3, 0.9, 1 / 256])
def test_tables_are_those_of_beta_laws(part):
    found = posterior.beta_laws(part)
    for octave in range(len(found)):
        assert found[octave] == pytest.approx(table(part, octave), abs=1e-10)


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e6, 1e12])
def test_any_numbers_have_finite_means_that_are_not_negative(size, scale):
    draw = np.random.default_rng(7)
    for starts in (np.array([0, 3]), np.array([0, 1, 2]), np.array([0, 4, 6, 7, 8, 16])):
        tree = trees.pruned_tree(starts)
        noisy = size * draw.normal(0, 3, tree.k)
        below = np.concatenate(([0], np.cumsum(noisy)))
        given = tree, starts, below[tree.hi] - below[tree.lo]
        found = posterior_totals(*given, np.full(tree.size, scale), np.full(tree.size, scale))
        assert np.isfinite(found).all() and (found >= 0).all()


def test_noise_that_contradicts_itself_leaves_finite_means():
    """Children far below 0 and far above it: no total of the parent's grid would fit what both say."""
    starts = np.array([0, 1, 2])
    tree = trees.pruned_tree(starts)
    noisy = np.array([10.0, 1e6, 10.0 - 1e6])
    found = posterior_totals(tree, starts, noisy, np.full(3, 1.0), np.full(3, 1.0))
    assert np.isfinite(found).all() and (found >= 0).all()
    odd = posterior_totals(tree, starts, np.array([1e9, 10.0, 5.0]), np.full(3, 1e-3), np.full(3, 1e-3))
    assert np.isfinite(odd).all() and (odd >= 0).all()


def test_a_group_alone_is_as_it_was_measured_but_not_below_0():
    tree, starts = trees.pruned_tree(np.array([0, 5])), np.array([0, 5])
    for noisy, wanted in ((7.5, 7.5), (-3.0, 0.0)):
        assert posterior_totals(tree, starts, np.array([noisy]), np.ones(1), np.ones(1)) == [wanted]


@pytest.mark.parametrize("wrong", ["noisy", "scale", "zero", "deviation", "shape", "starts"])
def test_what_is_no_measurement_is_refused(wrong):
    tree, starts = trees.pruned_tree(np.array([0, 1, 2])), np.array([0, 1, 2])
    given = {"noisy": np.ones(3), "scale": np.ones(3), "deviation": np.ones(3)}
    if wrong == "starts":
        starts = np.array([0, 2])
    elif wrong == "shape":
        given["scale"] = np.ones(2)
    elif wrong == "zero":
        given["scale"] = np.zeros(3)
    else:
        given[wrong] = np.array([1.0, math.nan, 1.0])
    with pytest.raises(UsageError, match="a posterior needs"):
        posterior_totals(tree, starts, *given.values())


@pytest.mark.parametrize("deviation", [1e-6, 1.0])
def test_grids_narrower_than_double_precision_are_never_indexed_by_nan(deviation):
    tree, starts = trees.pruned_tree(np.arange(3)), np.arange(3)
    half = 2.0**57 if deviation == 1.0 else 1e12
    noisy = np.array([2 * half, half, half])
    _, step = posterior.grids(tree, noisy, np.full(3, deviation))
    assert (step > 0).all(), "a step of 0 divides 0 by 0"
    assert np.isfinite(
        posterior.posterior_totals(tree, starts, noisy, np.full(3, 1.0), np.full(3, deviation))
    ).all()
