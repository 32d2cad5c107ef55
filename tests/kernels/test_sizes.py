"""The law of single bins' counts: against integrals, at the limits, and what it is good for."""

import numpy as np
import pytest

import naive_averaging as naive
from dphist.kernels.averaging import sizes
from dphist.kernels.averaging.dyadic import dyadic_average
from dphist.kernels.averaging.sizes import drawn


def scattered(n, seed=0, *, holding=0.15, size=80.0):
    draw = np.random.default_rng((seed, n))
    return np.where(draw.random(n) < holding, size * draw.pareto(1.5, n), 0.0) + draw.laplace(0, 1, n)


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("size", [0.0, 2.0, 80.0, 5000.0])
def test_what_the_law_says_is_what_integrals_say(n, size):
    z = scattered(n, size=size, holding=0.4)
    found, expected = drawn(z, z), naive.law_of_sizes(z)
    np.testing.assert_allclose(found.likely, expected[0], atol=1e-4)
    np.testing.assert_allclose(found.moved, expected[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.square, expected[2], rtol=1e-4, atol=1e-4)


def test_the_law_is_learnt_from_what_is_given_and_nothing_else():
    z, others = scattered(400), scattered(400, 1, holding=0.9)
    by_others = drawn(z, others)
    np.testing.assert_array_equal(by_others.moved, drawn(np.append(z, 7.0), others).moved[:-1])
    assert np.abs(by_others.moved - drawn(z, z).moved).max() > 0.1


def test_sums_are_nearly_those_of_the_noisy_counts():
    for seed, (holding, size) in enumerate(((0.05, 20.0), (0.5, 200.0), (1.0, 20.0))):
        z = scattered(4000, seed, holding=holding, size=size)
        means = np.maximum(z, 0) + drawn(z, z).moved
        assert (means >= 0).all()
        assert abs(means.sum() - z.sum()) < 0.03 * 4000, (holding, size)


def test_where_most_bins_are_empty_and_none_is_small_noise_is_told_from_counts():
    draw = np.random.default_rng(5)
    x = np.where(draw.random(2000) < 0.1, 50.0, 0.0)
    z = x + draw.laplace(0, 1, x.size)
    found = np.maximum(z, 0) + drawn(z, z).moved
    assert np.abs(found[x == 0]).mean() < 0.1
    assert np.abs(found[x > 0] - z[x > 0]).max() < 0.2


@pytest.mark.parametrize("top", [0.0, 1e3, 1e6, 2.0**53, 1e25])
def test_no_number_is_too_large(top):
    z = np.concatenate((-np.geomspace(1e-9, 1e6, 40), np.geomspace(1e-9, max(top, 1e-8), 200), [0.0, top]))
    with np.errstate(all="raise", under="ignore"):
        found = drawn(z, z)
    for each in found:
        assert np.isfinite(each).all()
    assert (found.moved >= -np.maximum(z, 0)).all()
    assert (found.square >= found.moved**2 * (1 - 1e-12)).all()


def test_a_mean_does_not_fall_where_the_noisy_count_rises():
    z = np.sort(scattered(3000))
    means = np.maximum(z, 0) + drawn(z, z).moved
    near = z < sizes.FAR  # beyond, the law is another
    assert (np.diff(means[near]) > -1e-9).all()


def test_cells_that_lie_scattered_on_a_grid_have_less_error_by_it_than_single_cells_alone():
    draw = np.random.default_rng(8)
    x = np.where(draw.random((24, 30)) < 0.12, draw.integers(60, 3000, (24, 30)), 0).ravel()
    y = x + np.rint(draw.laplace(0, 10, x.size))
    grid = dyadic_average(y, 10.0, shape=(24, 30))[0]
    empty = x == 0
    assert np.abs(grid - x)[empty].mean() < 0.08 * np.abs(y - x)[empty].mean()
    assert abs((grid - x).sum()) < 0.5 * abs((dyadic_average(y, 10.0)[0] - x).sum())


def test_a_line_has_no_such_law():
    y = 10 * scattered(300)
    as_line = dyadic_average(y, 10.0)[0]
    assert (dyadic_average(y, 10.0, shape=(1, 300))[0] == as_line).all()
    assert np.abs(dyadic_average(y, 10.0, shape=(15, 20))[0] - as_line).max() > 1


def test_the_law_of_very_many_cells_is_learnt_from_some(monkeypatch):
    from dphist.kernels.averaging import dyadic

    asked = []
    monkeypatch.setattr(dyadic, "drawn", lambda z, some: asked.append((z.size, some.size)) or drawn(z, some))
    n = 2 * dyadic.LEARN
    dyadic_average(scattered(n), 1.0, shape=(256, n // 256))
    assert asked == [(n, dyadic.LEARN)]
