"""The method average: at no shape much worse than plain noise, and far better where bins are alike."""

import numpy as np
import pytest

import dphist
from benchmarks import held_out
from dphist import shapes
from dphist.uncertainty.risk import averaging_helps
from samples import later

CELLS = [("0.01", 4), ("0.1", 400), ("1", 4)]  # epsilon, records per bin
NAMES = [*shapes.SHAPES, *held_out.LINES]


def error_over_noise(x, epsilon, *, trials):
    """Return the mean absolute error over that of noise alone, with the same noise."""
    average, noise = (
        float(np.abs(dphist.simulate(x, epsilon=epsilon, method=method, trials=trials) - x.ravel()).mean())
        for method in ("average", "identity")
    )
    return average / noise


@pytest.mark.parametrize(
    ("name", "cell"),
    [(n, c) if (i + k) % 3 == 0 else later(n, c) for i, n in enumerate(NAMES) for k, c in enumerate(CELLS)],
)
def test_no_shape_is_much_worse_than_plain_noise(name, cell):
    (epsilon, each), n = cell, 512
    if name in shapes.SHAPES:
        x = shapes.draw(name, n=n, records=each * n, seed=1)
    else:
        x = held_out.line(name, n=n, records=each * n)
    assert error_over_noise(x, epsilon, trials=3) < 1.1, name


@pytest.mark.parametrize("name", held_out.GRIDS)
def test_no_grid_is_much_worse_than_plain_noise(name):
    for epsilon, each in CELLS[1:3]:
        x = held_out.grid(name, rows=40, columns=30, records=1200 * each)
        assert error_over_noise(x, epsilon, trials=3) < 1.1, epsilon


@pytest.mark.parametrize(
    ("name", "n", "epsilon", "each"),
    [
        ("one spike", 100, "1", 100),
        ("heaped ages", 1000, "0.1", 1000),
        ("saw", 16, "0.1", 100),
        ("walk", 16, "0.1", 100),
        ("plateaus and spikes", 64, "1", 100),
    ],
)
def test_where_averaging_would_do_harm_the_noisy_counts_are_left(name, n, epsilon, each):
    x = held_out.line(name, n=n, records=n * each)
    assert error_over_noise(x, epsilon, trials=1600 // n + 4) < 1.1


def test_noisy_counts_that_are_left_are_cut_at_0_and_their_error_is_told(monkeypatch):
    monkeypatch.setattr("dphist.steps.estimate.averaged.averaging_helps", lambda *_: False)
    release = dphist.from_counts(np.zeros(200, dtype=np.int64), epsilon="0.1", method="average")
    assert np.array_equal(release.raw, np.maximum(release.error.measured, 0)) and (release.raw > 0).any()
    # Of an empty bin half of the noise is cut, and with it half of the squared error: 199.8 / 2.
    assert release.error.risk.mean == pytest.approx(100, abs=6 * release.error.risk.error)


def test_harm_is_told_from_help_by_the_noisy_counts_alone():
    rng = np.random.default_rng(4)
    keep = 1 - np.exp(-0.1)

    def judged(counts, average):
        noise = rng.geometric(keep, counts.size) - rng.geometric(keep, counts.size)
        noisy = (counts + noise).astype(float)
        return averaging_helps(noisy, average(noisy), 10.0, average)

    def flat(noisy):
        return np.broadcast_to(noisy.mean(axis=-1, keepdims=True), noisy.shape)

    for n in (64, 300, 5000):
        assert all(judged(np.full(n, 50), flat) for _ in range(5))
        assert not any(judged(np.arange(n) % 2 * 60, flat) for _ in range(5))


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
