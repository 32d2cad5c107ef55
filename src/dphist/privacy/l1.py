"""The private L1 partition: which cut into groups looks best once every candidate's cost is noisy.

Costs. A candidate group b has the cost c(b) = sum |x_j - mean| on a grid of 1/8, rounded down, or
sum |x_j - median|: whole numbers. One record more in one bin p of b changes it by at most D_b, which is
ceil(2 (1 - 1/size) 8) grid steps for the mean (by the triangle inequality the change of the deviations is
at most |P e_p|_1 = 2 (1 - 1/size), P the centring; rounding down to a grid adds less than one step and
whole steps are what is left) and 1 for the median; 0 if b has one bin, and 0 if p is not in b.

Theorem. Let every candidate, single bins included, get independent noise Z_b of scale (D + D_b)/e, D the
largest D_b there is, and let the partition of least total c + Z + constants win, ties by an order that
depends on nothing but the partitions. Then publishing the winning partition, and nothing else, costs e.

Proof. Fix a partition B, its group i that holds p, and all noise but Z_i. Among partitions that contain i no
other group holds p, so whether B beats those is the same for x and x'. B beats a partition without i iff
Z_i <= T for an integer T; from x to x' the other side moves by at most D, B itself by at most D_i, so T
falls by at most D + D_i. Two-sided noise, and minus a geometric, both satisfy
P(Z <= T - t) >= exp(-t/scale) P(Z <= T). So P(B) falls by a factor of at most exp(-e), one record more or
less either way; a unit of several records is that many steps of e divided by their number.

What the proof needs, and the published variants lack: noise on single bins, no clipping of noisy costs,
the full scale, ties that do not look at the data. Constants (the penalty per group, the mean of one-sided
noise) are public and may be rounded in any way. Costs are capped by a public constant before noise, which
changes them no more than the record does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from dphist.domain.groups import Ints

Candidates: TypeAlias = Literal["all", "powers", "subtrees"]
Center: TypeAlias = Literal["mean", "median"]
GRID = 8  # steps per record of the mean cost: fine against the noise, which is at least two records wide
MOST_INTERVALS = 1 << 16  # bins up to which all intervals are tried; beyond, hours
_BLOCK = 1 << 22  # noise drawn at a time

# draw(sensitivity, size) returns integer noise around zero for one record, charged before
Draw: TypeAlias = Callable[[int, int], Ints]


def change(size: int, center: Center) -> int:
    """Return D_b: by how much one record can change the cost of a group of some size."""
    if size == 1:
        return 0
    return 1 if center == "median" else -((-2 * GRID * (size - 1)) // size)


def lengths(n: int, candidates: Candidates, fanout: int) -> list[int]:
    """Return the sizes of candidate groups, rising from 1."""
    if candidates == "all":
        return list(range(1, n + 1))
    base, sizes = (2 if candidates == "powers" else fanout), [1]
    while sizes[-1] * base <= n:
        sizes.append(sizes[-1] * base)
    return sizes


def noisy_partition(
    x: Ints, draw: Draw, *, candidates: Candidates, center: Center, penalty: float, fanout: int
) -> Ints:
    """Return where the groups of the winning partition start, and n; see the module's proof."""
    from dphist.kernels.partition import deviations, l1_search

    n = x.size
    sizes = lengths(n, candidates, fanout)
    top = change(sizes[-1], center)
    grid = GRID if center == "mean" else 1
    constant = min(round(penalty * grid), deviations.cost_cap(n))
    if candidates == "all":
        return _all_intervals(x, draw, center, constant, grid, top)
    ranked = deviations.ranks(x)

    def noisy_costs(size: int, stride: int) -> Ints:
        if center == "mean":
            cost = deviations.mean_costs(x, size, grid=grid, stride=stride, ranked=ranked)
        else:
            cost = deviations.median_costs(x, size, stride=stride, ranked=ranked)
        cost += constant
        if top:
            cost += draw(top + change(size, center), cost.size)
        return cost

    if candidates == "subtrees":
        return l1_search.dp_subtrees([noisy_costs(size, size) for size in sizes], fanout)
    table: Any = np.zeros((len(sizes), n), dtype=np.int32)  # one table, filled in place
    for k, size in enumerate(sizes):
        table = l1_search.with_row(table, k, noisy_costs(size, 1))
    return l1_search.dp_lengths(table, sizes)


def _all_intervals(x: Ints, draw: Draw, center: Center, constant: int, grid: int, top: int) -> Ints:
    """Try every interval, some rows of noise at a time: O(n^2) time, O(n) memory."""
    from dphist.kernels.partition import costs, deviations, l1_search

    x, n = deviations.row_of_counts(x), x.size
    values, rank = deviations.ranks(x)
    best, back, entry, lists = l1_search.search_start(rank, values.size)
    # Sizes of one D_b stand together, as it never falls: one draw for each such run of sizes.
    changes = np.array([change(size, center) for size in range(1, n + 1)])
    runs = [0, *(np.flatnonzero(np.diff(changes)) + 1).tolist(), n]
    constants = np.full(n, constant, dtype=np.int64)
    first = 1
    while first <= n:
        rows = min(max(_BLOCK // n, 1), n + 1 - first)
        noise = np.zeros((rows, first + rows - 1), dtype=np.int64)
        for lo, hi in itertools.pairwise(runs):
            part = noise[:, lo:hi]
            if part.size and top:
                part[:] = draw(top + int(changes[lo]), part.size).reshape(part.shape)
        l1_search.search_rows(
            first, x, values, rank, entry, lists, np.empty_like(lists), best, back, noise, constants,
            np.empty(n, dtype=np.int64), center == "mean", grid, deviations.cost_cap(n),
        )  # fmt: skip
        first += rows
    return costs.trace(back)
