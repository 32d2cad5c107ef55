"""Intervals of all ranges at once: simulate public noise, make the table of hats, check the rules.

    python -m benchmarks.joint            how often all ranges are covered, on fresh noise (minutes)
    python -m benchmarks.joint table      the table of `dphist.uncertainty.joint_ranges` (minutes)

The noise is that of the strategy alone, and no data are read. A number of the table is an order statistic of
the simulated suprema that exceeds the quantile itself with a probability of about 0.98.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats
from dphist.kernels import kernel
from dphist.kernels.trees.hats import fitted_hats
from dphist.kernels.trees.hats_fit import hats_error, hats_expected_error, hats_range_variances, solve_hats
from dphist.uncertainty import joint_ranges, noise_law

_DRAWS = {32: 8000, 64: 8000, 128: 8000, 256: 8000, 512: 6000, 1024: 4000, 2048: 2000, 4096: 1000}
_LEVELS = joint_ranges.LEVELS


def table() -> None:
    """Print, for each number of bins, by how much noise exceeds its widths for all ranges at once."""
    for queries in joint_ranges.HATS:
        print(f'    "{queries}": {{')
        for n, draws in _DRAWS.items():
            suprema = np.sort(hat_suprema(n, queries, draws, seed=n))
            rows = [
                min(level * draws + 2 * math.sqrt(level * (1 - level) * draws), draws - 1)
                for level in _LEVELS
            ]
            found = ", ".join(f"{suprema[math.ceil(row)]:.2f}" for row in rows)
            print(f"        {n}: ({found}),", flush=True)
        print("    },")


def hat_suprema(n: int, queries: str, draws: int, *, seed: int) -> Floats:
    """Return the greatest error of any range over its width, for each draw of the noise of all answers."""
    hats = fitted_hats(n, queries)
    error = hats_error(hats, 2.0)  # Laplace noise of scale 1
    lo, hi = np.triu_indices(n + 1, 1)
    spread = joint_ranges.PLUS**2 * hats_expected_error(hats, "all-ranges") * 2.0 / float(hats.whole) ** 2
    inverse = 1.0 / np.sqrt(hats_range_variances(error, lo, hi) + spread)
    draw, out = np.random.default_rng(seed), np.empty(draws)
    for i in range(draws):
        values = solve_hats(error, draw.laplace(size=hats.size))
        out[i] = _supremum(np.concatenate(([0.0], np.cumsum(values))), inverse)
    return out


@kernel
def _supremum(below: Floats, inverse: Floats) -> float:
    out, at = 0.0, 0
    for i in range(below.size):
        for j in range(i + 1, below.size):
            out = max(out, abs(below[j] - below[i]) * inverse[at])
            at += 1
    return out


def line_coverage(n: int, scale: float, level: float, draws: int, *, seed: int) -> float:
    """Return how often identity noise stays within the widths of all ranges of a line."""
    widths = noise_law.sum_quantiles(scale, np.arange(1, n + 1), 1 - _tail((n,), level))
    draw, held = np.random.default_rng(seed), 0
    for _ in range(draws):
        below = np.concatenate(([0.0], np.cumsum(_discrete(draw, scale, n))))
        held += all((abs(below[k:] - below[:-k]) <= widths[k - 1]).all() for k in range(1, n + 1))
    return held / draws


def grid_coverage(side: int, scale: float, level: float, draws: int, *, seed: int) -> float:
    """Return how often identity noise stays within the widths of all rectangles of a square."""
    widths = noise_law.sum_quantiles(scale, np.arange(1, side * side + 1), 1 - _tail((side, side), level))
    draw, held = np.random.default_rng(seed), 0
    for _ in range(draws):
        below = np.zeros((side + 1, side + 1))
        below[1:, 1:] = _discrete(draw, scale, side * side).reshape(side, side).cumsum(axis=0).cumsum(axis=1)
        rows = [below[h:] - below[:-h] for h in range(1, side + 1)]
        held += all(
            (abs(row[:, w:] - row[:, :-w]) <= widths[h * w - 1]).all()
            for h, row in enumerate(rows, 1)
            for w in range(1, side + 1)
        )
    return held / draws


def _tail(shape: tuple[int, ...], level: float) -> float:
    tail = joint_ranges.identity_tail(Boxes(shape, ()), level)
    assert tail is not None, "more bins than were simulated"
    return tail


def _discrete(draw: np.random.Generator, scale: float, size: int) -> Floats:
    p = -math.expm1(-1.0 / scale)
    return (draw.geometric(p, size) - draw.geometric(p, size)).astype(np.float64)


def check() -> None:
    """Print the coverage of all ranges at once, on noise that chose nothing."""
    for level in _LEVELS:
        for n, draws in ((16, 4000), (64, 4000), (256, 2000), (1024, 1000)):
            for scale in (1.0, 100.0):
                found = line_coverage(n, scale, level, draws, seed=7 * n)
                print(f"identity, {n} bins, scale {scale:g}, level {level}: {found:.4f}", flush=True)
        for side, draws in ((4, 4000), (8, 3000), (16, 1000), (32, 200)):
            found = grid_coverage(side, 100.0, level, draws, seed=side)
            print(f"identity, {side} x {side} bins, level {level}: {found:.4f}", flush=True)
    for queries in joint_ranges.HATS:
        for n in (32, 48, 100, 256, 700, 1024):
            suprema = hat_suprema(n, queries, 2000, seed=10**6 + n)
            factors = np.array([joint_ranges.hat_factor(n, queries, level) for level in _LEVELS], float)
            covered = (suprema[:, None] <= factors).mean(axis=0).round(4).tolist()
            print(f"hats for {queries}, {n} bins, levels {_LEVELS}: {covered}", flush=True)


if __name__ == "__main__":
    table() if sys.argv[1:] == ["table"] else check()
