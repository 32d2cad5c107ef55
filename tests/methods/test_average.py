"""The method average: at no shape much worse than plain noise, and far better where bins are alike."""

import numpy as np
import pytest

import dphist
from benchmarks import held_out
from dphist import shapes

CELLS = [("0.01", 4), ("0.1", 400), ("1", 4), ("1", 400)]  # epsilon, records per bin
NAMES = [*shapes.SHAPES, *held_out.LINES]


def error_over_noise(x, epsilon, *, trials):
    """Return the mean absolute error over that of noise alone, with the same noise."""
    average, noise = (
        float(np.abs(dphist.simulate(x, epsilon=epsilon, method=method, trials=trials) - x.ravel()).mean())
        for method in ("average", "identity")
    )
    return average / noise


@pytest.mark.parametrize("name", NAMES)
def test_no_shape_is_much_worse_than_plain_noise(name):
    for epsilon, each in CELLS:
        n = 1024
        records = each * n
        if name in shapes.SHAPES:
            x = shapes.draw(name, n=n, records=records, seed=1)
        else:
            x = held_out.line(name, n=n, records=records)
        assert error_over_noise(x, epsilon, trials=4) < 1.1, epsilon


@pytest.mark.parametrize("name", held_out.GRIDS)
def test_no_grid_is_much_worse_than_plain_noise(name):
    for epsilon, each in CELLS[1:3]:
        x = held_out.grid(name, rows=40, columns=30, records=1200 * each)
        assert error_over_noise(x, epsilon, trials=3) < 1.1, epsilon


def test_over_all_shapes_the_error_falls():
    ratios = [
        error_over_noise(shapes.draw(name, n=1024, records=100_000, seed=1), "0.1", trials=2)
        for name in shapes.SHAPES
    ]
    assert np.exp(np.log(ratios).mean()) < 0.7


def test_a_release_is_averaged_from_noise_whose_law_it_states():
    x = np.repeat([500, 20, 0, 70], 64)
    release = dphist.from_counts(x, epsilon=1, method="average")
    assert (release.raw >= 0).all() and release.charges[0].share == 1
    low, high = release.intervals()
    assert np.isfinite(low).all() and np.isfinite(high).all()
    assert release.error.to_dict()["kind"] == "anchored" and release.parameters["shares"]["estimate"] == "1"
