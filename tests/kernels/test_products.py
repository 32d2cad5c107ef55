"""Averages of a grid by products of its sides' contrasts, against dense matrices and plain sums."""

import itertools
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import naive_trees as naive
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import random_rectangles
from dphist.errors import UsageError
from dphist.kernels.averaging import products
from dphist.kernels.averaging.products import (
    SPREADS,
    averaged_pyramids,
    coefficients,
    contrasts_of,
    made_of,
    shrunk,
)
from dphist.kernels.trees import pyramids
from dphist.kernels.trees.hats import WHOLE, fitted_pyramids
from dphist.methods import memory
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate
from dphist.steps.estimate.trees import measured_grid

SHAPES = ((2, 2), (2, 9), (5, 3), (12, 20), (16, 16))


def dense(side):
    """Return the contrasts of a side as rows of a matrix."""
    n = len(side.low)
    rows = np.zeros((n, n))
    for row, low, middle, high, left, right in zip(rows, *side[:5], strict=True):
        row[low:middle], row[middle:high] = left, right
    return rows


def plain_means(ratios):
    """Return the posterior means of one class of numbers, in whole arrays."""
    variance = SPREADS**2
    densities = np.exp(-0.5 * ratios[:, None] ** 2 / (1 + variance)) / np.sqrt(1 + variance)
    densities[np.abs(ratios) >= 32] = np.eye(SPREADS.size)[-1]
    weights = np.full(SPREADS.size, 1 / SPREADS.size)
    for _ in range(40):
        found = weights * densities
        found /= found.sum(axis=1, keepdims=True)
        weights = (found.sum(axis=0) + 2 / SPREADS.size) / (ratios.size + 2)
    found = weights * densities
    found /= found.sum(axis=1, keepdims=True)
    return np.where(np.abs(ratios) >= 32, ratios, ratios * (found * variance / (1 + variance)).sum(axis=1))


def plain_averages(cells, shape, variance):
    """Return the averages by dense matrices: covariances of all coefficients, classes one by one."""
    answers = naive.hat_matrix(fitted_pyramids(*shape)) / 1.0
    covariance = variance * np.linalg.inv(answers.T @ answers)
    total = np.zeros(shape)
    for basis in products._bases(*shape):
        both = np.kron(dense(basis.down), dense(basis.across))
        found, deviation = both @ cells, np.sqrt(np.diag(both @ covariance @ both.T))
        pairs = [(a, b) for a in basis.down.height for b in basis.across.height]
        for pair in {*pairs} - {(0, 0)}:
            of = np.array([p == pair for p in pairs])
            found[of] = deviation[of] * plain_means(found[of] / deviation[of])
        total += (both.T @ found).reshape(shape)
    return cells / 3 + total.ravel() / 4 * 2 / 3


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 21])
def test_contrasts_are_a_basis_whatever_the_shift(n):
    for shift in range(1 << (n - 1).bit_length()):
        side = contrasts_of(n, shift)
        rows = dense(side)
        assert np.allclose(rows @ rows.T, np.eye(n))
        assert np.allclose(rows[0], 1 / np.sqrt(n)) and side.height[0] == 0 and (side.height[1:] > 0).all()
        sizes = side.high - side.low
        assert (sizes[1:] <= 2 ** side.height[1:]).all() and (2 * sizes[1:] > 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_coefficients_are_those_of_dense_matrices_and_make_the_grid_again(shape):
    grid = np.random.default_rng(1).normal(size=shape)
    for basis in products._bases(*shape):
        found = coefficients(grid, basis)
        assert np.allclose(found, dense(basis.down) @ grid @ dense(basis.across).T)
        assert np.allclose(made_of(found, basis), grid)


def test_numbers_are_drawn_towards_0_as_plain_sums_say():
    rng = np.random.default_rng(2)
    sizes = (1, 3, 40, 200, 7)
    begins = np.cumsum((0, *sizes))
    found = np.concatenate([rng.normal(size=n) * rng.choice((0.5, 3.0, 60.0), n) for n in sizes])
    deviations = rng.uniform(0.5, 2.0, found.size)
    made = shrunk(found, deviations, begins)
    for a, b in itertools.pairwise(begins):
        assert np.allclose(made[a:b], deviations[a:b] * plain_means(found[a:b] / deviations[a:b]))
    assert (np.abs(made) <= np.abs(found) + 1e-12).all() and (made * found >= 0).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("height", [0.1, 3.0, 500.0])
def test_averages_are_those_of_dense_matrices(shape, height):
    rng = np.random.default_rng(3)
    cells, variance = height * rng.gamma(0.7, size=shape).ravel(), 2.0
    made = averaged_pyramids(cells, *shape, variance * float(WHOLE) ** 2)
    assert np.allclose(made, plain_averages(cells, shape, variance * float(WHOLE) ** 2))


def test_averages_keep_the_total_and_what_is_far_from_0():
    cells = np.random.default_rng(4).normal(size=240)
    made = averaged_pyramids(cells, 12, 20, float(WHOLE) ** 2)
    assert made.sum() == pytest.approx(cells.sum())
    assert np.abs(made).sum() < 0.9 * np.abs(cells).sum()
    assert np.allclose(averaged_pyramids(cells * 1e9, 12, 20, float(WHOLE) ** 2), cells * 1e9)


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-12, 1.0, 1e30, 1e200])
@pytest.mark.parametrize("size", [0.0, 1.0, 2.0**62])
def test_whatever_the_size_of_counts_and_noise_averages_are_finite(variance, size):
    cells = size * np.random.default_rng(5).normal(size=35).round(2)
    with np.errstate(all="raise", under="ignore"):
        made = averaged_pyramids(cells, 5, 7, variance)
    assert np.isfinite(made).all()
    assert variance > 0 or made is cells


def test_averages_refuse_another_size_and_numbers_that_are_not_finite():
    for cells in (np.zeros(5), np.full(6, np.nan)):
        with pytest.raises(UsageError, match="finite estimates of 2 x 3 cells"):
            averaged_pyramids(cells, 2, 3, 1.0)


def _simulated(x, seed, epsilon=Fraction(1, 10)):
    return Curator.simulated(
        Counts(x, Domain(tuple(Integers(0, n - 1) for n in x.shape))), epsilon=epsilon, seed=seed
    )


def test_cells_that_stay_alone_are_averaged_and_intervals_are_about_the_measurement():
    x = np.arange(48 * 40).reshape(48, 40) // 7
    boxes, whole = random_rectangles(x.shape, 2000), Fraction(1)
    alone = Groups.singletons(x.size)
    found = estimate.AveragedTree()(_simulated(x, 1), None, alone, boxes, share=whole)
    measured = measured_grid(_simulated(x, 1), "rectangles", share=whole)
    noise = 2 * (float(WHOLE) * 10) ** 2
    assert np.array_equal(found.measured, measured.values)
    assert found.error.to_dict() == measured.error.to_dict()
    assert np.allclose(found.values, averaged_pyramids(measured.values, 48, 40, noise), rtol=1e-6)


def test_averages_of_a_grid_have_less_error_on_slopes_and_levels():
    rows, columns = np.indices((48, 40))
    boxes = random_rectangles((48, 40), 500)
    for x, most in ((np.full((48, 40), 30), 0.8), (rows + 2 * columns, 0.95), ((rows // 12) * 40, 0.85)):
        errors = []
        for seed in range(12):
            found = measured_grid(_simulated(x, seed), "rectangles", share=Fraction(1)).values
            made = averaged_pyramids(found, 48, 40, 2 * (float(WHOLE) * 10) ** 2)
            errors.append([boxes.mean_absolute_error(each - x.ravel()) for each in (found, made)])
        before, after = np.mean(errors, axis=0)
        assert after < most * before


def test_trees_of_rows_and_of_columns_are_shifted_by_other_steps():
    for one in products._bases(16, 16)[1:]:
        assert not np.array_equal(one.down.low, one.across.low)


def test_what_pyramids_take_off_is_worked_out_in_little_memory():
    products._bases.cache_clear()
    pyramids.pyramids_error(64, 64)
    tracemalloc.start()
    products._bases(64, 64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    domain = Domain((Integers(0, 63), Integers(0, 63)))
    assert peak < memory.bytes_needed(make_pipeline("dawa3", domain), domain)
