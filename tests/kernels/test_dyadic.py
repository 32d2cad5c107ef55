"""Averages over dyadic partitions: against their definition, at the limits, and what must not change them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_averaging as naive
from dphist.kernels.averaging import dyadic
from dphist.kernels.averaging.partitions import dyadic_average

KINDS = ("empty", "even", "steps", "jagged", "sparse", "pairs")


def counts(kind, n, scale, seed=0):
    draw = np.random.default_rng((seed, n))
    height = max(1, round(4 * scale))
    made = {
        "empty": np.zeros(n),
        "even": np.full(n, height),
        "steps": np.repeat(draw.integers(0, 9, n // 5 + 1), 5)[:n] * height,
        "jagged": draw.integers(0, 40, n) * height,
        "sparse": np.where(draw.random(n) < 0.1, 60 * height, 0),
        "pairs": np.repeat(draw.integers(0, 90, n // 2 + 1), 2)[:n] * height,
    }[kind]
    return made.astype(np.int64)


def noisy(kind, n, scale, seed=0):
    draw = np.random.default_rng((seed, n, 1))
    return counts(kind, n, scale, seed) + np.rint(draw.laplace(0, scale, n))


def close(found, expected, scale):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-4 * scale)
    # The kernel leaves out parts of less than a millionth, which squares of large distances make visible.
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=5e-3 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 61, 130])
@pytest.mark.parametrize("scale", [0.3, 10.0])
def test_a_line_is_averaged_as_defined(kind, n, scale):
    y = noisy(kind, n, scale)
    close(dyadic_average(y, scale, shifts=3), naive.dyadic_average(y, scale, shifts=3), scale)


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (2, 2), (5, 7), (8, 8), (3, 30)])
@pytest.mark.parametrize("kind", ["steps", "sparse"])
def test_a_grid_is_averaged_as_defined(kind, shape):
    y = noisy(kind, shape[0] * shape[1], 5.0)
    found = dyadic_average(y, 5.0, shape=shape, shifts=3)
    close(found, naive.dyadic_average(y, 5.0, shape=shape, shifts=3), 5.0)


@pytest.mark.parametrize("kind", ["jagged", "steps", "sparse"])
@pytest.mark.parametrize("shape", [None, (10, 11)])
def test_a_prior_enters_as_defined(kind, shape):
    y, prior = noisy(kind, 110, 5.0), counts(kind, 110, 5.0) * 3 + np.sqrt(np.arange(110) % 4)
    prior[::9] *= 1 + np.arange(13) / 97  # no sums of weights are exact halves
    found = dyadic_average(y, 5.0, shape=shape, prior=prior, shifts=2)
    close(found, naive.dyadic_average(y, 5.0, shape=shape, prior=prior, shifts=2), 5.0)


@pytest.mark.parametrize("n", [40_000, 70_000])  # two rows, or one, are more bins than odds are learnt from
def test_each_row_of_very_many_bins_is_averaged_as_if_it_were_alone(n):
    rows = np.stack([noisy(kind, n, 10.0) for kind in ("steps", "sparse")])
    together = dyadic_average(rows, 10.0, shifts=1)
    for row, means, doubt in zip(rows, *together, strict=True):
        alone = dyadic_average(row, 10.0, shifts=1)
        assert (alone[0] == means).all() and (alone[1] == doubt).all()


@pytest.mark.parametrize(
    ("n", "shape", "believed"), [(1, None, False), (45, None, False), (45, (5, 9), False), (45, None, True)]
)
def test_each_row_is_averaged_as_if_it_were_alone(n, shape, believed):
    rows = np.stack([noisy(kind, n, 5.0) for kind in KINDS])
    prior = counts("steps", n, 5.0) * 1.5 if believed else None
    alone = [dyadic_average(row, 5.0, shape=shape, prior=prior) for row in rows]
    together = dyadic_average(rows, 5.0, shape=shape, prior=prior)
    for k in range(len(rows)):
        assert (together[0][k] == alone[k][0]).all() and (together[1][k] == alone[k][1]).all()


@pytest.mark.parametrize("r", [0.35, 1.0, 1.4, 30.0])
def test_likelihoods_of_dispersed_bins_are_the_integrals_that_they_claim_to_be(r):
    u = np.linspace(-60 * (r + 1), 60 * (r + 1), 2_000_001)
    for gap in (0.0, 0.5, 3.0, 20.0):
        joint = np.exp(-np.abs(u) / r - np.abs(gap - u)) / (2 * r)
        density, first = dyadic.between(r, np.array([gap]))
        assert density[0] == pytest.approx(np.trapezoid(joint, u), rel=3e-3)
        assert first[0] == pytest.approx(np.trapezoid(u * joint, u), rel=3e-3, abs=1e-6)


def test_every_cell_of_a_shifted_grid_has_its_place():
    for shape in ((1, 1), (2, 3), (7, 5), (16, 16), (3, 100)):
        for tree in range(4):
            order, keys = dyadic._placed(shape[0] * shape[1], shape, tree)
            order = np.arange(shape[0] * shape[1])[order]
            assert sorted(order) == list(range(shape[0] * shape[1]))
            assert (np.diff(keys) > 0).all()
            places = naive.places(order.size, shape, tree)
            assert [places[i] for i in order] == list(keys)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 1000, 5000])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e9, 2.0**40])
def test_no_number_is_too_large_and_none_is_negative(n, scale):
    draw = np.random.default_rng(n)
    most = 2.0**53
    tall = np.where(draw.random(n) < 0.3, most, draw.integers(0, 4, n))
    prior = np.where(draw.random(n) < 0.5, most, 1e-3)
    with np.errstate(all="raise", under="ignore"):
        for x in (np.zeros(n), np.full(n, most), tall):
            y = x + np.rint(draw.laplace(0, scale, n))
            for given_prior in (None, prior, np.zeros(n)):
                for each in dyadic_average(y, scale, prior=given_prior):
                    assert np.isfinite(each).all() and (each >= 0).all()


def test_without_noise_counts_stay_exactly():
    draw = np.random.default_rng(3)
    for x in (draw.integers(0, 5, 999), draw.integers(0, 2**53, 999), counts("steps", 999, 7)):
        assert (dyadic_average(x.astype(float), 1e-6)[0] == x).all()


@given(st.integers(1, 90), st.sampled_from(KINDS), st.integers(-20, 40), st.integers(0, 9))
@settings(max_examples=60)
def test_another_unit_changes_nothing(n, kind, power, seed):
    y, unit = noisy(kind, n, 6.0, seed), 2.0**power
    means, doubt = dyadic_average(y, 6.0)
    again = dyadic_average(y * unit, 6.0 * unit, step=unit)
    assert (again[0] == means * unit).all() and (again[1] == doubt * unit).all()
    assert (dyadic_average(y, 6.0)[0] == means).all()


def test_only_the_shape_of_a_prior_matters():
    y, prior = noisy("jagged", 200, 5.0), counts("jagged", 200, 5.0)
    a, b = (dyadic_average(y, 5.0, prior=prior * factor)[0] for factor in (1, 1024))
    assert (a == b).all()


def test_a_transposed_grid_of_one_row_is_a_line():
    y = noisy("steps", 77, 5.0)
    line = dyadic_average(y, 5.0)[0]
    for shape in ((1, 77), (77, 1)):
        assert (dyadic_average(y, 5.0, shape=shape)[0] == line).all()


def error(values, x):
    return float(np.abs(values - x).mean())


@pytest.mark.parametrize(
    ("kind", "most"), [("empty", 0.05), ("even", 0.2), ("steps", 0.8), ("pairs", 0.9), ("sparse", 0.3)]
)
def test_alike_bins_are_averaged_and_others_are_left_alone(kind, most):
    scale, n = 10.0, 4096
    x, y = counts(kind, n, scale), noisy(kind, n, scale)
    assert error(dyadic_average(y, scale)[0], x) < most * error(y, x)
    x, y = counts("jagged", n, scale), noisy("jagged", n, scale)
    assert error(dyadic_average(y, scale)[0], x) < 1.02 * error(y, x)


def test_quadtrees_see_both_directions():
    x = np.zeros((64, 64))
    x[8:40, 16:48] = 40
    y = (x + np.rint(np.random.default_rng(1).laplace(0, 10, x.shape))).ravel()
    grid, line = (error(dyadic_average(y, 10.0, shape=s)[0], x.ravel()) for s in ((64, 64), None))
    assert grid < 0.8 * line


def test_a_prior_of_the_right_shape_helps_and_of_a_wrong_one_harms_little():
    scale, n = 10.0, 2048
    x = counts("jagged", n, scale, seed=5)
    y = x + np.rint(np.random.default_rng(2).laplace(0, scale, n))
    right, wrong = np.random.default_rng(3).poisson(4 * x), counts("jagged", n, scale, seed=6)
    alone = error(dyadic_average(y, scale)[0], x)
    assert error(dyadic_average(y, scale, prior=x / 8)[0], x) < 0.1 * alone
    assert error(dyadic_average(y, scale, prior=right)[0], x) < 0.9 * alone
    assert error(dyadic_average(y, scale, prior=wrong)[0], x) < 1.02 * alone


def test_doubt_is_that_of_the_posterior():
    scale, n = 10.0, 4096
    for kind in KINDS:
        x, y = counts(kind, n, scale), noisy(kind, n, scale)
        means, doubt = dyadic_average(y, scale)
        off, said = math.sqrt(((means - x) ** 2).mean()), math.sqrt((doubt**2).mean())
        assert 0.5 * off < said < 2 * off + 0.2 * scale, kind


def test_each_grid_of_very_many_cells_is_averaged_as_if_it_were_alone():
    shape, draw = (260, 256), np.random.default_rng(4)  # more cells than odds are learnt from
    rows = np.stack([np.where(draw.random(66_560) < part, 600, 0) for part in (0.01, 0.6)])
    rows = rows + draw.laplace(0, 10, rows.shape)
    together = dyadic_average(rows, 10.0, shape=shape, shifts=1)
    for row, means, doubt in zip(rows, *together, strict=True):
        alone = dyadic_average(row, 10.0, shape=shape, shifts=1)
        assert (alone[0] == means).all() and (alone[1] == doubt).all()
