"""What the partitions with one boundary more cost: the sums of the bins' distances from their groups'
medians."""

from __future__ import annotations

import itertools

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels import kernel
from dphist.kernels.partition.deviations import Ranks, cost_cap, ranks
from dphist.kernels.partition.l1_search import empty_lists, enter, entries, median_row


def cut_costs(x: Ints, starts: Ints, penalty: int) -> Ints:
    """Return the cost of the partition as it is and with a cut before bin 1, 2, ..., n - 1: O(n log n).

    Args:
        starts: where the groups begin and, last, n.
        penalty: what every cut costs besides, one that is there already too.
    """
    cap = cost_cap(x.size)
    out = np.zeros(x.size, np.int64)
    uncut = 0
    for a, b in itertools.pairwise(starts.tolist()):
        values, rank = ranks(x[a:b])
        right = _suffix_costs(x[a:b], values, rank, cap)
        left = _suffix_costs(x[a:b][::-1].copy(), values, rank[::-1].copy(), cap)[::-1]
        alone = int(right[0])
        out[a + 1 : b] = left[:-1] + right[1:] + penalty - alone
        uncut += alone
    out[starts[1:-1]] = penalty
    return out + uncut


def last_cut_costs(x: Ints, edges: Ints, pieces: int) -> Ints:
    """Return, for each edge e but the last, the least cost of x[:e] in ``pieces`` groups plus that of
    x[e:end].

    Time is O(n edges + pieces edges^2).

    Args:
        edges: the places where groups may begin, from 0, and the end of the bins that are looked at.
        pieces: at most how many groups lie before e.
    """
    if edges.size == 1:
        return np.empty(0, np.int64)
    values, rank = ranks(x[: edges[-1]])
    return _last_cuts(x, values, rank, edges, pieces, cost_cap(x.size))


@kernel
def _suffix_costs(x: Ints, values: Ints, rank: Ranks, cap: int) -> Ints:
    """Return the median cost of x[i:] for every i: O(n) once the ranks are known."""
    n, distinct = x.size, values.size
    out = np.zeros(n, np.int64)
    entry = entries(rank, distinct)
    lists = empty_lists(distinct)
    for j in range(1, n + 1):
        enter(j, rank, entry, lists)
    median_row(n, x, values, rank, lists, np.empty_like(lists), cap, out)
    return out


@kernel
def _last_cuts(x: Ints, values: Ints, rank: Ranks, edges: Ints, pieces: int, cap: int) -> Ints:
    m = edges.size - 1
    n = edges[m]
    cost = np.zeros((m + 1, m + 1), np.int64)  # [j, i]: of the bins between edges i and j
    row = np.zeros(n, np.int64)
    entry = entries(rank, values.size)
    lists = empty_lists(values.size)
    work = np.empty_like(lists)
    at = 1
    for j in range(1, n + 1):
        enter(j, rank, entry, lists)
        if j == edges[at]:
            median_row(j, x, values, rank, lists, work, cap, row)
            for i in range(at):
                cost[at, i] = row[edges[i]]
            at += 1
    best = cost[:, 0].copy()
    for _ in range(1, pieces):
        for j in range(m, 1, -1):  # downwards, so that best[i] is still that of one group less
            least = best[j]
            for i in range(1, j):
                least = min(least, best[i] + cost[j, i])
            best[j] = least
    out = np.empty(m, np.int64)
    for i in range(m):
        out[i] = best[i] + cost[m, i]
    return out
