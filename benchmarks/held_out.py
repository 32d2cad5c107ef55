"""Histograms on which nothing was tuned: a second family of made-up shapes, of lines and of grids.

No constant of the package was chosen by looking at these, and none may be: they judge (`benchmarks.accuracy`,
`benchmarks.advice`). The shapes of `dphist.shapes`, on which methods and advice are made, are others.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints

Weigh = Callable[[int, np.random.Generator], Floats]
WeighGrid = Callable[[int, int, np.random.Generator], Floats]


def line(name: str, *, n: int, records: int, seed: int = 0) -> Ints:
    """Return counts in n bins of so many records, drawn from a shape of `LINES`."""
    source = _source(name, seed)
    return _drawn(LINES[name](n, source), records, source)


def grid(name: str, *, rows: int, columns: int, records: int, seed: int = 0) -> Ints:
    """Return counts in the cells of a grid of so many records, drawn from a shape of `GRIDS`."""
    source = _source(name, seed)
    return _drawn(GRIDS[name](rows, columns, source), records, source)


def _source(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng((zlib.crc32(f"held out {name}".encode()), seed))


def _drawn(weights: Floats, records: int, source: np.random.Generator) -> Ints:
    w = weights.ravel()
    if not w.sum() > 0:  # of a few bins all may be empty
        w = np.eye(1, w.size)[0]
    drawn: Ints = source.multinomial(records, w / w.sum()).astype(np.int64)
    return drawn.reshape(weights.shape)


def _x(n: int) -> Floats:
    return np.asarray((np.arange(n) + 0.5) / n)


def _hump(n: int, center: float, width: float) -> Floats:
    return np.asarray(np.exp(-0.5 * ((_x(n) - center) / width) ** 2))


def _narrow_mixture(n: int, source: np.random.Generator) -> Floats:
    humps = [_hump(n, source.random(), 10 ** source.uniform(-3, -1)) * source.pareto(1.5) for _ in range(9)]
    return np.asarray(np.sum(humps, axis=0))


def _broad_mixture(n: int, source: np.random.Generator) -> Floats:
    humps = [_hump(n, source.random(), source.uniform(0.1, 0.3)) for _ in range(3)]
    return np.asarray(np.sum(humps, axis=0) + 0.3)


def _two_gammas(n: int, source: np.random.Generator) -> Floats:
    x = 20 * _x(n)
    return np.asarray(x**1.2 * np.exp(-x / 0.9) + 0.05 * np.maximum(x - 6, 0) ** 3 * np.exp(-(x - 6) / 0.8))


def _jagged(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(source.lognormal(0, 1, n))


def _rough_hump(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((_hump(n, 0.4, 0.2) + 0.05) * source.gamma(0.7, 1, n))


def _walk(n: int, source: np.random.Generator) -> Floats:
    steps = np.cumsum(source.normal(0, 0.25, n))
    return np.asarray(np.exp(steps - steps.max()))


def _saw(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(1.0 + (np.arange(n) % 17) * source.uniform(0.5, 1.5, n))


def _ages(n: int, source: np.random.Generator) -> Floats:
    at = np.arange(n)
    return np.asarray((1.1 - _x(n)) * (1 + 1.5 * (at % 10 == 0) + 0.7 * (at % 5 == 0)))


def _prices(n: int, source: np.random.Generator) -> Floats:
    w = 0.02 * np.exp(-4 * _x(n)) * source.gamma(1, 1, n)
    for every, share in ((100, 1.0), (50, 0.5), (10, 0.3)):
        at = np.arange(every - 1, n, every)
        w[at] += share * np.exp(-4 * _x(n)[at]) * source.gamma(2, 1, at.size)
    return np.asarray(w)


def _clusters(n: int, source: np.random.Generator) -> Floats:
    w, at = np.zeros(n), np.arange(n)
    for _ in range(7):
        reach = max(1.0, n * 0.002 * source.pareto(1.5))
        far = np.abs(at - source.integers(n)) / reach
        w += source.pareto(1) * np.exp(-far) * (far < 4)
    return w


def _scattered(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((source.random(n) < 0.03) * source.gamma(3, 1, n))


def _one_spike(n: int, source: np.random.Generator) -> Floats:
    w = np.full(n, 0.1 / n)
    w[source.integers(n)] = 0.9
    return w


def _weekly(n: int, source: np.random.Generator) -> Floats:
    day = np.array([1.0, 1.1, 1.05, 1.1, 1.3, 0.5, 0.3])[np.arange(n) % 7]
    return np.asarray(day * (1 + 0.6 * _x(n)))


def _yearly(n: int, source: np.random.Generator) -> Floats:
    season = 1.3 + np.sin(2 * np.pi * 5 * _x(n)) + 0.3 * np.sin(2 * np.pi * 40 * _x(n) + 1)
    return np.asarray(np.maximum(season, 0.0) * source.gamma(20, 1 / 20, n))


def _half_empty(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((_hump(n, 0.3, 0.15) + 0.4 * _hump(n, 0.8, 0.05)) * (source.random(n) < 0.45))


def _rare_and_large(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((source.random(n) < 0.15) * source.pareto(1.1, n))


def _plateaus(n: int, source: np.random.Generator) -> Floats:
    w = np.repeat(source.lognormal(0, 1, 10), -(-n // 10))[:n]
    w[source.integers(n, size=20)] += source.pareto(1.2, 20) * 20
    return np.asarray(w)


def _stairs(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(np.sort(source.exponential(1, 60))[::-1][np.arange(n) * 60 // n])


def _steep_sorted(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((np.arange(n) + 3.0) ** -1.6)


def _steep_shuffled(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(source.permutation((np.arange(n) + 3.0) ** -1.3))


def _sorted_blocks(n: int, source: np.random.Generator) -> Floats:
    each = max(1, n // 16)
    return np.asarray(source.pareto(1, 17)[np.arange(n) // each] * (np.arange(n) % each + 2.0) ** -0.8)


def _decay(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(np.exp(-9 * _x(n)))


def _holes(n: int, source: np.random.Generator) -> Floats:
    w = np.ones(n)
    for start in source.integers(n, size=6):
        w[start : start + n // 16] = 0
    return w


def _comb(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((np.arange(n) % 3 == 0) * (1.2 - _x(n)))


def _tents(n: int, source: np.random.Generator) -> Floats:
    tops = source.uniform(0, 1, 12)
    return np.asarray(np.interp(_x(n), np.linspace(0, 1, 12), tops))


def _two_worlds(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(np.where(_x(n) < 0.5, 1.0, source.lognormal(-1, 1.5, n)))


LINES: Mapping[str, Weigh] = {
    "narrow mixture": _narrow_mixture,
    "broad mixture": _broad_mixture,
    "two gammas": _two_gammas,
    "jagged": _jagged,
    "rough hump": _rough_hump,
    "walk": _walk,
    "saw": _saw,
    "heaped ages": _ages,
    "prices": _prices,
    "clusters": _clusters,
    "scattered": _scattered,
    "one spike": _one_spike,
    "weekly": _weekly,
    "yearly": _yearly,
    "half empty": _half_empty,
    "rare and large": _rare_and_large,
    "plateaus and spikes": _plateaus,
    "stairs": _stairs,
    "steep, sorted": _steep_sorted,
    "steep, shuffled": _steep_shuffled,
    "sorted blocks": _sorted_blocks,
    "decay": _decay,
    "holes": _holes,
    "comb": _comb,
    "tents": _tents,
    "two worlds": _two_worlds,
}


def _plane(rows: int, columns: int) -> tuple[Floats, Floats]:
    return _x(rows)[:, None], _x(columns)[None, :]


def _blobs(rows: int, columns: int, source: np.random.Generator) -> Floats:
    x, y = _plane(rows, columns)
    w = np.full((rows, columns), 0.01)
    for _ in range(8):
        a, b, wide = source.random(), source.random(), 10 ** source.uniform(-2, -0.7)
        w += source.pareto(1.5) * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * wide**2))
    return w


def _roads(rows: int, columns: int, source: np.random.Generator) -> Floats:
    x, y = _plane(rows, columns)
    w = np.zeros((rows, columns))
    for _ in range(10):
        slope, start = np.tan(source.uniform(-1.3, 1.3)), source.uniform(-0.5, 1.5)
        w += source.pareto(1.2) * (np.abs(x - start - slope * (y - 0.5)) < 0.008 * np.hypot(1, slope))
    return w


def _districts(rows: int, columns: int, source: np.random.Generator) -> Floats:
    down, across = (np.sort(source.integers(0, size, 5)) for size in (rows, columns))
    level: NDArray[np.float64] = source.lognormal(0, 1.5, (6, 6))
    at = np.searchsorted(down, np.arange(rows)), np.searchsorted(across, np.arange(columns))
    return np.asarray(level[np.ix_(*at)])


def _diagonal(rows: int, columns: int, source: np.random.Generator) -> Floats:
    x, y = _plane(rows, columns)
    return np.asarray(np.exp(-(((x - y) / 0.06) ** 2)) * (1.2 - x))


def _speckled(rows: int, columns: int, source: np.random.Generator) -> Floats:
    return np.asarray((source.random((rows, columns)) < 0.04) * source.pareto(1.1, (rows, columns)))


def _coast(rows: int, columns: int, source: np.random.Generator) -> Floats:
    x, y = _plane(rows, columns)
    shore = 0.5 + 0.2 * np.sin(7 * y) + 0.05 * np.sin(31 * y)
    return np.asarray((x > shore) * np.exp(-(x - shore) / 0.15))


def _heaped(rows: int, columns: int, source: np.random.Generator) -> Floats:
    x, y = _plane(rows, columns)
    round_rows = 1 + 3 * (np.arange(rows) % 5 == 0)[:, None]
    round_columns = 1 + 2 * (np.arange(columns) % 10 == 0)[None, :]
    return np.asarray(np.exp(-2 * x - y) * round_rows * round_columns)


def _rough_plane(rows: int, columns: int, source: np.random.Generator) -> Floats:
    return np.asarray(source.lognormal(0, 1, (rows, columns)))


GRIDS: Mapping[str, WeighGrid] = {
    "blobs": _blobs,
    "roads": _roads,
    "districts": _districts,
    "diagonal": _diagonal,
    "speckled": _speckled,
    "coast": _coast,
    "heaped grid": _heaped,
    "rough plane": _rough_plane,
}
