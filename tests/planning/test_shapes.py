"""Made-up data: any size, any scale, the same again for the same seed."""

import numpy as np
import pytest

from dphist.errors import UsageError
from dphist.planning import shapes


@pytest.mark.parametrize("name", shapes.SHAPES)
@pytest.mark.parametrize("n", [1, 2, 7, 100, 4096])
def test_every_shape_fills_any_number_of_bins(name, n):
    counts = shapes.draw(name, n=n, records=12_345, seed=3)
    assert counts.dtype == np.int64 and counts.shape == (n,)
    assert counts.sum() == 12_345 and counts.min() >= 0
    assert np.isclose(shapes.find(name).weights(n, seed=3).sum(), 1)


def test_the_seed_decides_and_nothing_else():
    same = [shapes.draw("heaps", n=512, records=10**5, seed=5) for _ in range(2)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], shapes.draw("heaps", n=512, records=10**5, seed=6))


def test_the_shapes_are_what_they_say():
    drawn = {name: shapes.draw(name, n=4096, records=10**6) for name in shapes.SHAPES}
    empty = {name: float(np.mean(x == 0)) for name, x in drawn.items()}
    rough = {name: float(np.abs(np.diff(x)).sum()) / 1e6 for name, x in drawn.items()}
    assert empty["sparse"] > 0.9 and empty["early"] > 0.9 and empty["smooth"] < 0.01
    assert rough["power-shuffled"] > 5 * rough["power-sorted"] and rough["heaps"] > 5 * rough["smooth"]
    x = drawn["early"]
    assert not x[200:].any()


def test_a_histogram_of_ones_own_is_a_shape():
    own = np.array([0, 0, 10, 30, 60, 0])
    counts = shapes.draw(own, n=6, records=10**6, seed=1)
    assert counts[[0, 1, 5]].sum() == 0 and abs(counts[4] - 600_000) < 3000
    assert np.array_equal(shapes.draw(own, n=3, records=100)[:1], [0])
    for wrong, n in (([0, 0], 2), ([-1, 2], 2), ([1, 2], 3), ([np.nan, 1], 2)):
        with pytest.raises(UsageError):
            shapes.draw(wrong, n=n, records=10)


def test_words_describe_data():
    assert shapes.parse_like("bins=4096 records=1e6 sparse") == shapes.Like(4096, 10**6, "sparse")
    assert shapes.parse_like("heaps, records=5_000") == shapes.Like(4096, 5000, "heaps")
    for wrong in ("bins=0", "records=1.5", "records=x", "sprase", "colour=red", "records=-1"):
        with pytest.raises(UsageError):
            shapes.parse_like(wrong)
    with pytest.raises(UsageError, match="Did you mean 'sparse'"):
        shapes.parse_like("sprase")
    for n, records in ((0, 1), (5, 0), (5, 2**60)):
        with pytest.raises(UsageError):
            shapes.draw("smooth", n=n, records=records)
