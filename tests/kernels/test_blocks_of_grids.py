"""All blocks of a grid that halving leads to: where they are, and what averages over them are worth."""

import tracemalloc

import numpy as np
import pytest

from dphist.kernels.averaging import partitions, rectangles
from dphist.kernels.averaging.partitions import dyadic_average

SHAPES = [(2, 2), (3, 2), (5, 7), (7, 5), (8, 8), (16, 3), (3, 30)]


def cells_of(lattice, a, b, row, column, shape, down, right):
    """Return the cells of a block as pairs of a row and a column of the grid."""
    tall, wide = lattice.rows[a, 0] + row, lattice.columns[b, 0] + column
    return {
        (r, c)
        for r in range(shape[0])
        for c in range(shape[1])
        if (r + down) >> a == tall and (c + right) >> b == wide
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (5, 3)])
def test_each_block_is_the_union_of_its_halves_and_all_have_cells(shape, place):
    found = rectangles.lattice(shape, *place)
    blocks = {}
    for a in range(len(found.rows)):
        for b in range(len(found.columns)):
            for column in range(found.columns[b, 1]):
                for row in range(found.rows[a, 1]):
                    number = found.begin[a, b] + column * found.rows[a, 1] + row
                    assert number not in blocks
                    blocks[number] = cells_of(found, a, b, row, column, shape, *place)
                    assert blocks[number]
                    for down, power in ((True, a), (False, b)):
                        one, two, many = rectangles._halves.py_func(
                            found.rows, found.columns, found.begin, a, b, row, column, down
                        )
                        assert (many == 0) == (power == 0)
                        if many:
                            assert (one == two) == (many == 1)
                            assert blocks[one] | blocks[two] == blocks[number]
                            assert many == 1 or not blocks[one] & blocks[two]
    assert (
        sorted(blocks) == list(range(found.blocks)) and len(blocks[found.blocks - 1]) == shape[0] * shape[1]
    )


def test_a_grid_of_powers_of_2_has_fewer_than_four_blocks_a_cell():
    for shape in ((8, 8), (64, 64), (4, 128)):
        assert rectangles.lattice(shape, 0, 0).blocks < 4 * shape[0] * shape[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_are_runs_of_cells_in_the_order_of_their_tree(shape):
    down, right = 3, 1
    found = rectangles.lattice(shape, down, right)
    for wide in range(len(found.columns)):
        order, keys = rectangles.places(shape, down, right, wide)
        assert sorted(order) == list(range(shape[0] * shape[1])) and (np.diff(keys) > 0).all()
        for a in range(len(found.rows)):
            named = keys >> (a + wide)
            assert (np.diff(named) >= 0).all()
            runs = np.split(order, np.flatnonzero(np.diff(named)) + 1)
            assert len(runs) == found.many[a, wide]
            for k, run in enumerate(runs):
                row, column = k % found.rows[a, 1], k // found.rows[a, 1]
                cells = cells_of(found, a, wide, row, column, shape, down, right)
                assert {(i // shape[1], i % shape[1]) for i in run} == cells


def error(values, x):
    return float(np.abs(values - x).mean())


def squares_alone(monkeypatch):
    monkeypatch.setattr(partitions, "MOST_IN_RECTANGLES", 0)


def test_edges_along_an_axis_are_seen_in_few_blocks(monkeypatch):
    x = np.zeros((32, 32))
    x[:, 5] = 60
    x[11] = 25
    y = [x.ravel() + np.rint(np.random.default_rng(s).laplace(0, 10, x.size)) for s in range(6)]
    both = np.mean([error(dyadic_average(each, 10.0, shape=x.shape)[0], x.ravel()) for each in y])
    squares_alone(monkeypatch)
    squares = np.mean([error(dyadic_average(each, 10.0, shape=x.shape)[0], x.ravel()) for each in y])
    assert both < 0.4 * squares


def test_edges_aslant_cost_little(monkeypatch):
    r, c = np.indices((32, 32))
    x = np.where(np.abs(r - c) < 4, 40.0, 0.0)
    y = [x.ravel() + np.rint(np.random.default_rng(s).laplace(0, 10, x.size)) for s in range(6)]
    both = np.mean([error(dyadic_average(each, 10.0, shape=x.shape)[0], x.ravel()) for each in y])
    squares_alone(monkeypatch)
    squares = np.mean([error(dyadic_average(each, 10.0, shape=x.shape)[0], x.ravel()) for each in y])
    assert both < 1.06 * squares


def test_a_turned_grid_has_turned_averages():
    x = np.repeat(np.random.default_rng(3).integers(0, 90, 12), 5).reshape(12, 5).astype(float)
    y = x + np.rint(np.random.default_rng(4).laplace(0, 8, x.shape))
    z = y.ravel() / 8.0
    known = partitions.Known(
        z[None], np.ones((1, 60)), (12, 5), partitions.tables_for(3), 0.5, partitions.sizes_of(z[None])
    )
    across = y.T.ravel() / 8.0
    turned = known._replace(z=across[None], shape=(5, 12), sizes=partitions.sizes_of(across[None]))
    odds = np.log(partitions.first_odds(1, 0.5, by_size=True)[None])
    one, two = (rectangles.Rectangles(each, 0) for each in (known, turned))
    first, second = (each.averaged(each.learnt(odds)) for each in (one, two))
    np.testing.assert_allclose(first[0], second[0])
    for a, b in zip(first[1:], second[1:], strict=True):
        np.testing.assert_allclose(a.reshape(12, 5), b.reshape(5, 12).T, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "asked"),
    [((4, 5), 4), ((64, 64), 4), ((90, 91), 2), ((90, 92), 0), ((2, 4096), 4), ((4096, 2), 4)],
)
def test_how_many_sets_of_trees_a_grid_has(shape, asked, monkeypatch):
    kinds = list(partitions._kinds(shape[0] * shape[1], shape, 8))
    assert sum(kind is rectangles.Rectangles for kind, _ in kinds) == asked
    assert sum(kind is partitions.Tree for kind, _ in kinds) == 8
    assert all(kind is partitions.Tree for kind, _ in partitions._kinds(shape[0] * shape[1], None, 8))


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e9, 2.0**40])
@pytest.mark.parametrize("shape", [(2, 2), (2, 9), (31, 7)])
def test_no_number_is_too_large_and_none_is_negative(shape, scale):
    n = shape[0] * shape[1]
    draw = np.random.default_rng(n)
    most = 2.0**53
    tall = np.where(draw.random(n) < 0.3, most, draw.integers(0, 4, n))
    prior = np.where(draw.random(n) < 0.5, most, 1e-3)
    with np.errstate(all="raise", under="ignore"):
        for x in (np.zeros(n), np.full(n, most), tall):
            y = x + np.rint(draw.laplace(0, scale, n))
            for given in (None, prior, np.zeros(n)):
                for each in dyadic_average(y, scale, shape=shape, prior=given):
                    assert np.isfinite(each).all() and (each >= 0).all()


def test_many_rows_are_averaged_a_few_at_a_time():
    shape = 33, 64  # of which one row fits into what is kept, and two do not
    rows = np.random.default_rng(5).laplace(0, 10, (5, 33 * 64)) + 3
    prior = np.arange(33.0 * 64)
    for given, step in ((None, 1.0), (prior, 1.0), (None, 20.0)):
        together = dyadic_average(rows, 10.0, shape=shape, prior=given, step=step, shifts=2)
        for row, means, doubt in zip(rows, *together, strict=True):
            alone = dyadic_average(row, 10.0, shape=shape, prior=given, step=step, shifts=2)
            assert (alone[0] == means).all() and (alone[1] == doubt).all()


@pytest.mark.parametrize("power", [-20, 3, 40])
def test_another_unit_changes_nothing(power):
    x = np.repeat(np.random.default_rng(3).integers(0, 90, 12), 5)
    y, unit = x + np.rint(np.random.default_rng(4).laplace(0, 6, x.size)), 2.0**power
    means, doubt = dyadic_average(y, 6.0, shape=(12, 5))
    again = dyadic_average(y * unit, 6.0 * unit, shape=(12, 5), step=unit)
    assert (again[0] == means * unit).all() and (again[1] == doubt * unit).all()


@pytest.mark.parametrize("name", ["rise", "reach", "_add_blocks"])
def test_loops_have_arrays_of_one_layout_whatever_is_averaged(name, monkeypatch):
    layouts, loop = set(), getattr(rectangles, name)

    def watched(*given):
        layouts.add(tuple(a.flags.c_contiguous for a in given if isinstance(a, np.ndarray)))
        return loop(*given)

    monkeypatch.setattr(rectangles, name, watched)
    y = np.random.default_rng(1).laplace(0, 10, (3, 30))
    prior = np.arange(30.0)
    for rows, shape, given in (
        (y[0], (5, 6), None),
        (y, (6, 5), None),
        (y[1], (5, 6), prior),
        (y, (2, 15), prior),
    ):
        dyadic_average(rows, 10.0, shape=shape, prior=given)
    assert len(layouts) == 1 and all(*layouts)


def test_many_rows_take_little_more_memory_than_a_few():
    rows, peaks = np.random.default_rng(5).laplace(0, 10, (16, 32 * 64)) + 3, []
    for some in (rows[:2], rows):
        dyadic_average(some, 10.0, shape=(32, 64))  # its blocks are kept
        tracemalloc.start()
        try:
            dyadic_average(some, 10.0, shape=(32, 64))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_only_the_blocks_of_few_cells_are_kept():
    rectangles._kept_blocks.cache_clear()
    y = np.random.default_rng(1).laplace(0, 10, 65 * 64)
    dyadic_average(y, 10.0, shape=(65, 64), shifts=1)
    assert rectangles._kept_blocks.cache_info().currsize == 0
    dyadic_average(y[:4096], 10.0, shape=(64, 64), shifts=1)
    assert rectangles._kept_blocks.cache_info().currsize == 1
