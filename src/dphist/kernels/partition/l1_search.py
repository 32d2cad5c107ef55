"""Searches over given window costs, and the costs of all intervals, one row at a time.

A row is all intervals that end at one place, so n rows need O(n) memory for n^2 costs. ``mean_row`` and
``median_row`` are compiled and meant to be called from another compiled loop, in this order:

    entry = entries(rank, distinct); lists = empty_lists(distinct); work = np.empty_like(lists)
    for j in range(1, n + 1):
        enter(j, rank, entry, lists)
        mean_row(j, x, values, rank, lists, work, grid, cap, out)

after which ``out[i]`` is the cost of x[i:j] for each i < j, as ``deviations`` defines it. Ties are always
broken the same way: shorter groups are tried first and a later one must be strictly cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Ints
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.partition.costs import trace
from dphist.kernels.partition.deviations import Center, Ranks, cost_cap, mean_cost, ranks, row_of_counts

_NARROW = (1 << 31) - 1


def with_row(table: Ints | Ranks, k: int, costs: Ints) -> Ints | Ranks:
    """Return a table of costs with one more row, in 32 digits as long as all of them fit."""
    if table.dtype == np.int32 and (costs.min() < -_NARROW or costs.max() > _NARROW):
        table = table.astype(np.int64)
    table[k, : costs.size] = costs
    return table


def dp_lengths(costs: Ints | Ranks | Sequence[Ints], lengths: Sequence[int]) -> Ints:
    """Return the partition of least total cost into windows of the given lengths: O(n x lengths) time.

    ``costs[k][s]`` is the (noisy) integer cost of the window of lengths[k] bins that starts at s; lengths
    rise from 1. At each end, lengths are tried in that order and the first strict minimum is kept. Costs so
    large that their sum could leave int64 are added as Python integers instead: slow, never wrong.
    """
    size = np.array(lengths, dtype=np.int64)
    n = len(costs[0])
    if size.size != len(costs) or size[0] != 1 or (np.diff(size) < 1).any() or size[-1] > n:
        raise UsageError(f"lengths must increase from 1 to at most {n}, with one row of costs each.")
    table = np.asarray(costs) if isinstance(costs, np.ndarray) else np.zeros((size.size, n), np.int64)
    if table is not costs:
        for k, row in enumerate(costs):
            table[k, : n - size[k] + 1] = row
    if table.dtype not in (np.int32, np.int64) or table.shape != (size.size, n):
        raise UsageError(f"costs must be int32 or int64, one row of {n} for each length, not {table.shape}.")
    limit = (1 << 62) // (n + 1)
    if table.min() >= -limit and table.max() <= limit:
        sums, starts = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        slim = size.size if table.dtype == np.int32 else 0
        narrow, wide = table[:slim].astype(np.int32, copy=False), table[slim:].astype(np.int64, copy=False)
        _best_lengths(narrow, wide, size, sums, starts)
        return trace(starts)
    best, back = [0], [0]
    for j in range(1, n + 1):
        tried = [(best[j - m] + int(row[j - m]), j - m) for m, row in zip(size, table, strict=True) if m <= j]
        least = min(tried, key=lambda pair: pair[0])  # min keeps the first of equals
        best.append(least[0])
        back.append(int(least[1]))
    return trace(np.array(back, dtype=np.int64))


@kernel
def _best_lengths(narrow: Ranks, wide: Ints, lengths: Ints, best: Ints, back: Ints) -> None:
    """Write the least costs of the first bins and where their last groups begin; one table has all costs."""
    slim = narrow.size > 0
    for j in range(1, best.size):
        start, least = -1, np.int64(0)
        for k in range(lengths.size):
            i = j - lengths[k]
            if i < 0:
                break
            v = best[i] + (np.int64(narrow[k, i]) if slim else wide[k, i])
            if start < 0 or v < least:
                least = v
                start = i
        best[j] = least
        back[j] = start


def dp_subtrees(costs: Sequence[Ints], fanout: int) -> Ints:
    """Return the partition of least total cost into full subtrees of a tree over n bins: O(n).

    ``costs[k][i]`` is the (noisy) integer cost of the i-th block of fanout^k bins, for the n // fanout^k full
    blocks of each level; bins left over at a level belong to the blocks below. Bottom up, best(v) is the
    cost of v if that is strictly less than the sum of its children's best: a partition of v's bins either is
    {v} or splits into one of each child.
    """
    n = costs[0].size
    if (
        fanout < 2
        or any(level.size != n // fanout**k for k, level in enumerate(costs))
        or costs[-1].size == 0
    ):
        raise UsageError(
            f"costs must hold n, n // {fanout}, n // {fanout}^2, ... numbers, each at least one."
        )
    limit = (1 << 62) // (n + 1)
    fits = all(level.min() >= -limit and level.max() <= limit for level in costs)
    levels: list[NDArray[np.generic]] = [level if fits else level.astype(object) for level in costs]
    best = levels[0]
    whole = [np.ones(n, dtype=bool)]
    for level in levels[1:]:
        split = best[: level.size * fanout].reshape(level.size, fanout).sum(axis=1)
        whole.append(np.asarray(level < split, dtype=bool))
        best = np.where(whole[-1], level, split)
    starts = [np.array([n])]
    covered = np.zeros(whole[-1].size, dtype=bool)
    for k in range(len(whole) - 1, -1, -1):
        starts.append(np.flatnonzero(whole[k] & ~covered) * fanout**k)
        if k > 0:
            below = np.zeros(whole[k - 1].size, dtype=bool)
            below[: whole[k].size * fanout] = np.repeat(whole[k] | covered, fanout)
            covered = below
    return np.sort(np.concatenate(starts)).astype(np.int64)


def best_intervals(x: Ints, *, center: Center, penalty: int, grid: int = 1) -> Ints:
    """Return the partition of exact counts of least cost plus a penalty per group, over all intervals.

    Without noise, hence for tests and laboratories only. O(n^2) time, O(n) memory.
    """
    x = row_of_counts(x)
    values, rank = ranks(x)
    n, cap = x.size, cost_cap(x.size)
    if center not in ("mean", "median") or not 0 <= penalty <= cap:
        raise UsageError(f"center is 'mean' or 'median' and the penalty 0 to {cap}.")
    best, back, entry, lists = search_start(rank, values.size)
    constant, noise = np.full(n, penalty, np.int64), np.zeros((1, n), np.int64)
    for j in range(1, n + 1):
        search_rows(
            j, x, values, rank, entry, lists, np.empty_like(lists), best, back, noise, constant,
            np.empty(n, np.int64), center == "mean", grid, cap,
        )  # fmt: skip
    return trace(back)


def search_start(rank: Ranks, distinct: int) -> tuple[Ints, Ints, Ranks, Ranks]:
    """Return the state of a search over all intervals before its first row: best, back, entry, lists."""
    n = rank.size
    return (
        np.zeros(n + 1, np.int64),
        np.zeros(n + 1, np.int64),
        entries(rank, distinct),
        empty_lists(distinct),
    )


@kernel
def search_rows(
    first: int,
    x: Ints,
    values: Ints,
    rank: Ranks,
    entry: Ranks,
    lists: Ranks,
    work: Ranks,
    best: Ints,
    back: Ints,
    noise: Ints,
    constant: Ints,
    row: Ints,
    mean: bool,
    grid: int,
    cap: int,
) -> None:
    """Carry a search over all intervals through the rows that end at ``first``, ``first + 1``, ...

    An interval of m bins costs its L1 cost plus ``constant[m - 1]`` plus ``noise[row, m - 1]``; there are as
    many rows as ``noise`` has. ``best`` and ``back`` are filled in; sums must fit into int64. ``x`` is as
    ``row_of_counts`` gives it; ``work``, as large as ``lists``, and ``row``, as large as ``x``, hold nothing.
    """
    for r in range(noise.shape[0]):
        j = first + r
        enter(j, rank, entry, lists)
        if mean:
            mean_row(j, x, values, rank, lists, work, grid, cap, row)
        else:
            median_row(j, x, values, rank, lists, work, cap, row)
        least = best[j - 1] + row[j - 1] + constant[0] + noise[r, 0]
        start = j - 1
        for i in range(j - 2, -1, -1):
            v = best[i] + row[i] + constant[j - i - 1] + noise[r, j - i - 1]
            if v < least:
                least = v
                start = i
        best[j] = least
        back[j] = start


def empty_lists(distinct: int) -> Ranks:
    """Return three rows: how often each rank is present, and the present ranks after and before it.

    The place ``distinct`` stands for both ends.
    """
    lists = np.zeros((3, distinct + 1), np.int32)
    lists[1, distinct] = distinct
    lists[2, distinct] = distinct
    return lists


def full_lists(rank: Ranks, distinct: int) -> Ranks:
    """Return lists of all bins: those that entering all of them makes."""
    places = np.arange(distinct + 1, dtype=np.int32)
    lists = np.stack((np.zeros_like(places), np.roll(places, -1), np.roll(places, 1)))
    lists[0, :-1] = np.bincount(rank, minlength=distinct)
    return lists


def entries(rank: Ranks, distinct: int) -> Ranks:
    """Return, for each bin, the rank it comes after when it is the first of its kind, or -1: O(n).

    Found backwards: in a list of all ranks, taking bins out from the last leaves its neighbour at that time.
    """
    entry = np.full(rank.size, -1, np.int32)
    _fill_entries(rank, np.zeros((3, distinct + 1), np.int32), entry)
    return entry


@kernel
def _fill_entries(rank: Ranks, lists: Ranks, entry: Ranks) -> None:
    n, distinct = rank.size, lists.shape[1] - 1
    for r in range(distinct + 1):
        lists[1, r] = 0 if r == distinct else r + 1
        lists[2, r] = distinct if r == 0 else r - 1
    for i in range(n):
        lists[0, rank[i]] += 1
    for i in range(n - 1, -1, -1):
        r = rank[i]
        lists[0, r] -= 1
        if lists[0, r] == 0:
            entry[i] = lists[2, r]
            lists[1, lists[2, r]] = lists[1, r]
            lists[2, lists[1, r]] = lists[2, r]


@kernel
def enter(j: int, rank: Ranks, entry: Ranks, lists: Ranks) -> None:
    """Make lists of the first j - 1 bins into lists of the first j: O(1)."""
    r = rank[j - 1]
    lists[0, r] += 1
    before = entry[j - 1]
    if before >= 0:
        after = lists[1, before]
        lists[1, before] = r
        lists[2, r] = before
        lists[1, r] = after
        lists[2, after] = r


@kernel
def mean_row(
    j: int, x: Ints, values: Ints, rank: Ranks, lists: Ranks, work: Ranks, grid: int, cap: int, out: Ints
) -> None:
    """Write the mean cost of x[i:j] to out[i] for all i < j.

    The window loses its first bin at each step; a pointer at the mean moves over present counts only.
    """
    count, after, before = work[0], work[1], work[2]
    end = values.size
    for k in range(3):
        for r in range(end + 1):
            work[k, r] = lists[k, r]
    total = np.int64(0)
    for i in range(j):
        total += x[i]
    at = np.int64(end)  # the largest present rank whose value is not above q; (c, s) up to it
    c = np.int64(0)
    s = np.int64(0)
    for i in range(j):
        m = j - i
        q = total // m
        step = after[at]
        while step != end and values[step] <= q:
            c += count[step]
            s += count[step] * values[step]
            at = step
            step = after[at]
        while at != end and values[at] > q:
            c -= count[at]
            s -= count[at] * values[at]
            at = before[at]
        out[i] = mean_cost((total - s) - (m - c) * q, m - c, total - q * m, m, grid, cap)
        r = rank[i]
        if x[i] <= q:
            c -= 1
            s -= x[i]
        total -= x[i]
        count[r] -= 1
        if count[r] == 0:
            after[before[r]] = after[r]
            before[after[r]] = before[r]
            if r == at:
                at = before[r]


@kernel
def median_row(
    j: int, x: Ints, values: Ints, rank: Ranks, lists: Ranks, work: Ranks, cap: int, out: Ints
) -> None:
    """Write the median cost of x[i:j] to out[i] for all i < j; the pointer moves by at most one each time."""
    count, after, before = work[0], work[1], work[2]
    end = values.size
    for k in range(3):
        for r in range(end + 1):
            work[k, r] = lists[k, r]
    total = np.int64(0)
    for i in range(j):
        total += x[i]
    at = np.int64(after[end])  # the rank of the middle bin; (c, s) below it
    c = np.int64(0)
    s = np.int64(0)
    for i in range(j):
        m = j - i
        half = m // 2
        while c + count[at] <= half:
            c += count[at]
            s += count[at] * values[at]
            at = after[at]
        while c > half:
            at = before[at]
            c -= count[at]
            s -= count[at] * values[at]
        below = s + (half - c) * values[at]
        out[i] = min(total - 2 * below - (m - 2 * half) * values[at], cap)
        r = rank[i]
        if r < at:
            c -= 1
            s -= x[i]
        total -= x[i]
        count[r] -= 1
        if count[r] == 0:
            after[before[r]] = after[r]
            before[after[r]] = before[r]
            if r == at:
                at = after[r]
                if at == end and m > 1:
                    at = before[r]
                    c -= count[at]
                    s -= count[at] * values[at]
