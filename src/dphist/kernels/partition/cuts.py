"""What the partitions with one boundary more cost: the sums of the bins' distances from their groups'
medians."""

from __future__ import annotations

import itertools

import numpy as np

from dphist.domain.groups import Ints
from dphist.kernels import kernel
from dphist.kernels.partition.deviations import Ranks, cost_cap, ranks, row_of_counts
from dphist.kernels.partition.l1_search import empty_lists, enter, entries, full_lists, median_row


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
        lists = full_lists(rank, values.size)
        right = _suffix_costs(x[a:b], values, rank, lists, cap)
        left = _suffix_costs(x[a:b][::-1], values, rank[::-1].copy(), lists, cap)[::-1]
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
    x = row_of_counts(x)
    values, rank = ranks(x[: edges[-1]])
    entry, lists, cap = entries(rank, values.size), empty_lists(values.size), cost_cap(x.size)
    cost = np.zeros((edges.size, edges.size), np.int64)
    work, row, done = np.empty_like(lists), np.zeros(edges[-1], np.int64), 0
    for at in range(1, edges.size):
        _enter_some(done, edges[at], rank, entry, lists)
        done = edges[at]
        median_row(done, x, values, rank, lists, work, cap, row)
        cost[at, :at] = row[edges[:at]]
    best = cost[:, 0].copy()
    _best_last(cost, best, pieces)
    return np.asarray((best + cost[-1])[:-1])


def _suffix_costs(x: Ints, values: Ints, rank: Ranks, lists: Ranks, cap: int) -> Ints:
    """Return the median cost of x[i:] for every i: O(n) once the ranks are known, and lists of all bins."""
    out = np.zeros(x.size, np.int64)
    median_row(x.size, row_of_counts(x), values, rank, lists, np.empty_like(lists), cap, out)
    return out


@kernel
def _enter_some(first: int, last: int, rank: Ranks, entry: Ranks, lists: Ranks) -> None:
    """Make lists of the first ``first`` bins into lists of the first ``last``."""
    for j in range(first, last):
        enter(j + 1, rank, entry, lists)


@kernel
def _best_last(cost: Ints, best: Ints, pieces: int) -> None:
    """Let ``best``, the least costs before each edge in one group, be those in so many pieces.

    ``cost[j, i]`` is that of the bins between edges i and j.
    """
    m = best.size - 1
    for _ in range(1, pieces):
        for j in range(m, 1, -1):  # downwards, so that best[i] is still that of one group less
            least = best[j]
            for i in range(1, j):
                least = min(least, best[i] + cost[j, i])
            best[j] = least
