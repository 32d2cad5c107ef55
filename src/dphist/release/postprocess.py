"""Post-processing of the unbiased values: nonnegative or integer values, at no privacy cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels.halving import halved, public_key, public_uniforms, whole_numbers

Post: TypeAlias = Literal["none", "nonneg", "integer"]
POSTS: tuple[Post, ...] = ("none", "nonneg", "integer")


def nonneg(raw: Floats) -> Floats:
    """Return values that are not negative and keep the total, found from the total down.

    The total is shared between the two halves of the bins, those between their quarters, and so on; see
    ``kernels/halving.py``. Setting negative values to zero would inflate the total by about one noise scale
    for every empty bin, and the nearest values with the right total would take that from the full ones: sums
    over many bins keep their error only if they are decided first. A total below zero becomes zero. O(n) for
    n bins.

    Args:
        raw: the values in the shape of the domain.
    """
    if raw.min() >= 0.0:
        return raw.copy()
    return halved(raw, np.array(max(float(raw.sum()), 0.0)))


def integer(raw: Floats) -> Floats:
    """Return nonnegative integers with the rounded total.

    They are halved from the rounded total down and then rounded by systematic sampling: means stay, and no
    sum of neighbours (in the order of the bins, in a grid row by row) changes by 1 or more. Its one random
    number is a public hash of the raw values, so that anybody can repeat it.
    """
    total = np.rint(max(float(raw.sum()), 0.0))
    start = public_uniforms(public_key(raw), 1)[0]
    return whole_numbers(halved(raw, np.array(total)).ravel(), start).reshape(raw.shape)


def present_levels(
    parents: Sequence[Ints], raw: Sequence[Floats], variances: Sequence[Floats], *, post: Post
) -> tuple[Floats, ...]:
    """Return presentable values of a tree of groups, a row of bins for each node of each level.

    Not negative, and both levels and bins add up to the last bit: whole numbers, or with ``nonneg``
    sixteenths, shared out from the top level and the total down; see ``kernels/topdown.py``.

    Args:
        parents: the tree, as in ``kernels/levels.py``.
        raw: the reconciled estimates.
        variances: one number for each node of each level.
    """
    if post == "none":
        return tuple(raw)
    from dphist.kernels.topdown import top_down

    grid = 1 if post == "integer" else 16
    return tuple(rows / grid for rows in top_down(parents, raw, variances, grid=grid))


def rising(raw: Floats) -> Floats:
    """Return the running sums, from 0 to the total (or 0), changed as little as makes them rise.

    Half-way between the greatest sum so far and the least still to come: of all rising curves the nearest
    in the largest difference, so nowhere further from the truth than the raw sums are at their worst.
    """
    sums: Floats = np.concatenate(([0.0], np.cumsum(raw)))
    sums = np.clip(sums, 0.0, max(float(sums[-1]), 0.0))
    return (np.maximum.accumulate(sums) + np.minimum.accumulate(sums[::-1])[::-1]) / 2
