"""Whole numbers that are not negative and add up, over the levels of a tree of groups and over the bins.

Trees are given as in ``levels.py``. From the top level down, and inside every node from its total to halves
of the bins, quarters, ..., single bins: so large sums are decided first, while they are far above 0 for most
nodes, and single bins last. Each step shares a number X among the children of one node, for one block of
bins: with the estimates y_c, their variances h_c, and the numbers b_c that the children have been given for
the block of twice the size,

    least sum over c of (x_c - y_c)^2 / h_c   with   sum of x_c = X   and   0 <= x_c <= b_c.

There always is a solution: X is the parent's number for half of its block, so 0 <= X <= parent's block = sum
of b_c. It is x_c = clip(y_c - t h_c, 0, b_c), where the sum falls in t and is linear between the 2m places
at which a child of m leaves b_c or reaches 0: sorting them and walking along gives t exactly, in O(m log m).
The estimate y_c of a half is its own plus half of what its block was moved by. Then x is rounded by
systematic sampling along the children: means stay, and so do the sum and the bounds, which are whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.halving import cuts, halved, public_key, public_uniforms, whole_numbers

LARGEST = 2.0**53  # totals are clipped to this, so that all numbers stay exact integers


def top_down(
    parents: Sequence[Ints],
    estimates: Sequence[NDArray[np.floating]],
    variances: Sequence[Floats],
    *,
    grid: int = 1,
) -> tuple[Ints, ...]:
    """Return whole numbers per level, a row per node and a column per bin: O(nodes x bins) up to the sorting.

    None is negative, and the rows of children add up to their parent's. The totals of the top level are the
    estimated ones, rounded, or 0. The random numbers are hashes of the estimates, so that anybody can repeat
    them.

    Args:
        parents: the tree.
        estimates: per level a row of bins for each node; they add up, at least nearly.
        variances: per level one number for each node, see ``levels.variances``; only their ratios matter.
        grid: how many parts a record has: 16 returns sixteenths.
    """
    values = [np.ascontiguousarray(rows, dtype=np.float64) * grid for rows in estimates]
    if [len(rows) for rows in values[1:]] != [parent.size for parent in parents]:
        raise UsageError("the values of each level need one row for each of its nodes.")
    key = public_key(*estimates)
    bins = values[0].shape[1]
    splits = _splits(bins)
    made = [_tops(values[0], public_uniforms(key + b"\0", len(values[0])))]
    for level, (parent, rows) in enumerate(zip(parents, values[1:], strict=True), start=1):
        starts = np.searchsorted(parent, np.arange(len(made[-1]) + 1))
        places = public_uniforms(key + bytes([level]), len(made[-1]) * bins).reshape(-1, bins)
        h = np.asarray(variances[level], dtype=np.float64)
        shared = np.zeros(rows.shape, dtype=np.int64)
        _share_level(starts, made[-1], rows, h / h.mean(), splits, places, shared)
        made.append(shared)
    return tuple(made)


def _tops(rows: Floats, starts: Floats) -> Ints:
    """Return whole numbers for nodes that share nothing: each is a histogram by itself."""
    totals = np.clip(np.rint(rows.sum(axis=1)), 0.0, LARGEST)
    return whole_numbers(halved(rows, totals), starts).astype(np.int64)


def _splits(bins: int) -> Ints:
    """Return begin, middle and end of every block that is halved, larger ones first."""
    edges, rows = np.array([0, bins]), []
    for _, into in cuts([bins]):
        lo, hi = edges[:-1][into == 2], edges[1:][into == 2]
        rows.append(np.stack((lo, (lo + hi) // 2, hi), axis=1))
        edges = np.union1d(edges, rows[-1][:, 1])
    return np.concatenate(rows) if rows else np.empty((0, 3), dtype=np.int64)


@kernel
def _share_level(
    starts: Ints, above: Ints, rows: Floats, h: Floats, splits: Ints, places: Floats, out: Ints
) -> None:
    """Share the numbers of each node of a level among its children; a block is kept at its first bin."""
    bins = rows.shape[1]
    most = 0
    for q in range(starts.size - 1):
        most = max(most, starts[q + 1] - starts[q])
    wanted, bound, given = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    for q in range(starts.size - 1):
        lo, hi = starts[q], starts[q + 1]
        m = hi - lo
        sums = np.zeros((bins + 1, m))  # of the estimates, and below of what the parent has, up to each bin
        for c in range(m):
            for j in range(bins):
                sums[j + 1, c] = sums[j, c] + rows[lo + c, j]
        parent = np.zeros(bins + 1, np.int64)
        for j in range(bins):
            parent[j + 1] = parent[j] + above[q, j]
        now = np.zeros((bins, m), np.int64)
        for c in range(m):
            wanted[c], bound[c] = sums[bins, c], parent[bins]
        share(wanted[:m], h[lo:hi], bound[:m], int(parent[bins]), places[q, 0], now[0])
        for s in range(splits.shape[0]):
            a, mid, b = splits[s, 0], splits[s, 1], splits[s, 2]
            for c in range(m):
                bound[c] = now[a, c]
                own = sums[mid, c] - sums[a, c]
                wanted[c] = own + (bound[c] - (sums[b, c] - sums[a, c])) / 2
            half = int(parent[mid] - parent[a])
            share(wanted[:m], h[lo:hi], bound[:m], half, places[q, mid], given[:m])
            for c in range(m):
                now[a, c] = given[c]
                now[mid, c] = bound[c] - given[c]
        for c in range(m):
            for j in range(bins):
                out[lo + c, j] = now[j, c]


@kernel
def share(y: Floats, h: Floats, bound: Ints, total: int, start: float, out: Ints) -> None:
    """Write whole numbers from 0 to their bounds, with the total, into ``out``: the nearest to y, rounded.

    Args:
        y: the estimates; any numbers.
        h: their variances, above 0.
        bound: the largest numbers allowed; they add up to the total or more.
        start: where systematic sampling begins, in [0, 1).
    """
    t = _level(y, h, bound, total)
    left = total
    for c in range(y.size):
        x = min(max(y[c] - t * h[c], 0.0), float(bound[c]))
        low = int(np.floor(x))
        start += x - low
        if start >= 1.0:
            start -= 1.0
            low += 1
        out[c] = min(max(low, 0), bound[c])
        left -= out[c]
    # In exact arithmetic nothing is left. The last digits of a sum may leave one: whoever has room takes it.
    for c in range(y.size):
        moved = min(max(left, -out[c]), bound[c] - out[c])
        out[c] += moved
        left -= moved


@subkernel
def _level(y: Floats, h: Floats, bound: Ints, total: int) -> float:
    """Return t with sum of clip(y - t h, 0, bound) = total."""
    m = y.size
    places, slopes = np.empty(2 * m), np.empty(2 * m)
    now = 0.0
    for c in range(m):
        places[c], slopes[c] = (y[c] - bound[c]) / h[c], h[c]
        places[m + c], slopes[m + c] = y[c] / h[c], -h[c]
        now += bound[c]
    order = np.argsort(places)
    slope = 0.0
    for k in range(2 * m - 1):
        slope += slopes[order[k]]
        here, then = places[order[k]], places[order[k + 1]]
        falls = slope * (then - here)
        if now - falls <= total:
            return float(here + (now - total) / slope if falls > 0.0 else here)
        now -= falls
    return float(places[order[2 * m - 1]])
