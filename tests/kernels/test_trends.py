"""Bins that follow the trend of their groups: a slow twin, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from dphist.errors import UsageError
from dphist.kernels.averaging.trends import along_trends


def twin(totals: np.ndarray, starts: np.ndarray) -> np.ndarray:
    k, out = totals.size, np.empty(starts[-1])
    for g in range(k):
        size = starts[g + 1] - starts[g]
        centre, mean, slope = (starts[g] + starts[g + 1]) / 2, totals[g] / size, 0.0
        if 0 < g < k - 1:
            one, two = (
                (totals[h] / (starts[h + 1] - starts[h]) - mean) / ((starts[h] + starts[h + 1]) / 2 - centre)
                for h in (g - 1, g + 1)
            )
            if one * two > 0:
                slope = 2 * one * two / (one + two)
            slope = min(max(slope, -2 * mean / size), 2 * mean / size)
        for i in range(starts[g], starts[g + 1]):
            out[i] = mean + slope * (i + 0.5 - centre)
    return out


@pytest.mark.parametrize("seed", range(30))
def test_trends_are_their_twin_and_keep_every_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    cuts = np.flatnonzero(rng.random(n - 1) < rng.random()) + 1
    starts = np.concatenate(([0], cuts, [n])).astype(np.int64)
    totals = rng.gamma(0.5, 10, starts.size - 1) * (rng.random(starts.size - 1) < 0.8)
    found = along_trends(totals, starts)
    assert found == pytest.approx(twin(totals, starts), abs=1e-9)
    assert np.add.reduceat(found, starts[:-1]) == pytest.approx(totals, abs=1e-9)
    assert (found >= 0).all()


def test_a_line_is_found_and_nothing_else_is_invented() -> None:
    line = 3.0 + np.arange(40)
    starts = np.arange(0, 41, 5)
    found = along_trends(np.add.reduceat(line, starts[:-1]), starts)
    assert found[5:-5] == pytest.approx(line[5:-5]), "inside, where both neighbours are known"
    assert np.ptp(found[:5]) == np.ptp(found[-5:]) == 0
    peak = along_trends(np.array([4.0, 40.0, 4.0]), np.array([0, 4, 8, 12]))
    assert peak.tolist() == [1.0] * 4 + [10.0] * 4 + [1.0] * 4
    jump = along_trends(np.array([0.0, 0.0, 40.0, 40.0]), np.array([0, 4, 8, 12, 16]))
    assert jump.tolist() == [0.0] * 8 + [10.0] * 8
    huge = along_trends(np.full(4, 2.0**60), np.arange(0, 9, 2))
    assert huge.tolist() == [2.0**59] * 8


def test_totals_that_have_no_bins_are_refused() -> None:
    for wrong in (np.array([1.0, -1.0]), np.array([1.0]), np.array([1.0, np.nan])):
        with pytest.raises(UsageError, match="not negative"):
            along_trends(wrong, np.array([0, 2, 4]))


def test_the_least_of_slopes_overflows_nothing() -> None:
    tiny = along_trends(np.array([0.0, 5e-324, 1e-300, 1.0, 1e300]), np.arange(0, 11, 2))
    assert np.isfinite(tiny).all()
