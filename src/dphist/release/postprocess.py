"""From unbiased values to presentable ones. Free: nothing here looks at the data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from dphist.domain.groups import Floats

Post: TypeAlias = Literal["none", "nonneg", "integer"]
POSTS: tuple[Post, ...] = ("none", "nonneg", "integer")


def nonneg(raw: Floats) -> Floats:
    """Return the nearest values (least squares) that are not negative and keep the total.

    Setting negative values to zero would inflate the total by about one noise scale for every empty bin;
    the projection lowers all values by one common amount instead. A total below zero becomes zero.
    O(n log n) for n bins.
    """
    total = float(raw.sum())
    if total <= 0.0:
        return np.zeros_like(raw)
    if raw.min() >= 0.0:
        return raw.copy()
    falling = np.sort(raw)[::-1]
    # If the k largest bins stay positive, this is what each of them gives up.
    lowered_by = (np.cumsum(falling) - total) / np.arange(1, raw.size + 1)
    k = int(np.flatnonzero(falling > lowered_by)[-1])
    out: Floats = np.maximum(raw - lowered_by[k], 0.0)
    return out


def integer(values: Floats, *, total: float) -> Floats:
    """Return nonnegative values as whole numbers with the rounded total: the largest remainders go up."""
    low = np.floor(values)
    missing = round(total) - int(low.sum())
    if missing > 0:
        low[np.argsort(low - values, kind="stable")[:missing]] += 1.0
    elif missing < 0:  # the last digits of the projection lifted a value to the next whole number
        filled = np.flatnonzero(low > 0.0)
        low[filled[np.argsort((values - low)[filled], kind="stable")[:-missing]]] -= 1.0
    return low


def rising(raw: Floats) -> Floats:
    """Return the running sums, from 0 to the total (or 0), changed as little as makes them rise.

    Half-way between the greatest sum so far and the least still to come: of all rising curves the nearest
    in the largest difference, so nowhere further from the truth than the raw sums are at their worst.
    """
    sums: Floats = np.concatenate(([0.0], np.cumsum(raw)))
    sums = np.clip(sums, 0.0, max(float(sums[-1]), 0.0))
    return (np.maximum.accumulate(sums) + np.minimum.accumulate(sums[::-1])[::-1]) / 2
