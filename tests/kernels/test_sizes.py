"""The law of single bins' counts: against integrals, at the limits, and what it is good for."""

import numpy as np
import pytest

import naive_averaging as naive
from dphist.kernels.averaging import dyadic, sizes
from dphist.kernels.averaging.partitions import dyadic_average
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
    asked = []
    monkeypatch.setattr(dyadic, "drawn", lambda z, some: asked.append((z.size, some.size)) or drawn(z, some))
    n = 2 * dyadic.LEARN
    dyadic_average(scattered(n), 1.0, shape=(256, n // 256))
    assert asked == [(n, dyadic.LEARN)]


@pytest.mark.parametrize("shapes", [1, 2])
@pytest.mark.parametrize("trust", [0.2, 1.0])
def test_drawn_bins_are_as_likely_as_outliers_before_anything_is_learnt(shapes, trust):
    expected = np.array([0.45, *[0.45 / shapes * trust, 0.05 * trust, 0.05 * trust] * shapes, 0.05 * trust])
    odds = dyadic.first_odds(shapes, trust, by_size=True)
    np.testing.assert_allclose(odds, np.tile(expected / expected.sum(), (len(odds), 1)))


@pytest.mark.parametrize("shapes", [1, 2])
def test_only_splits_and_even_blocks_count_as_often_taken_from_the_start(shapes):
    columns, trust = 2 + 3 * shapes, 0.5
    before = np.array([1.0, *[0.5, 0.05, 0.05] * shapes, 0.05])
    np.testing.assert_allclose(dyadic.next_odds(np.zeros(columns), trust), before / before.sum())
    least = dyadic.next_odds(np.where(np.arange(columns) == 2, 1e9, 0.0), trust)
    assert least.tolist() == [0.02, *[0.02, 0.98, 0.001], *[0.02, 0.001, 0.001] * (shapes - 1), 0.001]


def many_cells():
    draw = np.random.default_rng(2)
    n = 2 * dyadic.LEARN
    return np.where(np.arange(n) % 5 == 0, np.arange(n) / 400.0, 0.0) + draw.laplace(0, 1, n)


def test_the_law_of_very_many_cells_is_learnt_from_blocks_all_over_the_grid(monkeypatch):
    given, z = [], many_cells()
    monkeypatch.setattr(dyadic, "drawn", lambda z, some: given.append(some) or drawn(z, some))
    dyadic.sizes_of(z[None])
    assert len(given) == 1 and np.array_equal(given[0], z[dyadic.sampled(z.size)])


def test_the_cells_that_odds_are_learnt_from_have_their_own_evidence_of_being_drawn():
    z = many_cells()[None]
    sizes, tables = dyadic.sizes_of(z), dyadic.tables_for(3)
    order, layout = dyadic._tree(z.size, (256, z.size // 256), 1, 0)
    ordered = np.ascontiguousarray(sizes[..., order]).reshape(3, -1)
    found = dyadic.explain(z[:, order], np.ones((1, z.size)), layout, tables, 1.0, ordered)
    some = dyadic._sample(found, tables, 1.0)
    bins = dyadic.sampled(z.size)
    assert np.array_equal(some.z, z[0, order][bins]) and np.array_equal(some.sizes, ordered[:, bins])
    np.testing.assert_allclose(some.evidence[-1, -2], ordered[0, bins].sum())


def test_loops_have_arrays_of_one_layout_however_many_rows_are_averaged(monkeypatch):
    layouts, loop = set(), dyadic._downward

    def watched(*given):
        layouts.add(tuple(a.flags.c_contiguous for a in given))
        loop(*given)

    monkeypatch.setattr(dyadic, "_downward", watched)
    y = np.random.default_rng(1).laplace(0, 10, (3, 30))
    for rows, shape in ((y[0], (5, 6)), (y, (5, 6)), (y[0], None), (y[0], (1, 30))):
        dyadic_average(rows, 10.0, shape=shape)
    assert layouts == {(True,) * 19}
