"""Integer L1 costs of windows of exact counts, for the private partition: exact, so their sensitivity holds.

``x`` is int64 of shape (n,), 0 <= x <= 2^53 and a total of at most 2^62. For a window of m bins with sum S:

- mean cost: floor(grid * dev), dev = sum |x - S/m|. With q = S // m, r = S % m, E = the sum of x - q over
  the k bins above q: dev = 2 (E - k r/m), so the cost is 2 grid E - ceil(2 grid k r / m): no product of two
  large numbers. For grid a power of two, one record changes it by at most ceil(2 grid (1 - 1/m)).
- median cost: sum |x - median| = the sum of the upper half less the sum of the lower half. One record
  changes it by at most 1 (0 if m = 1).

Costs stop growing at ``cost_cap(n)``, which is public and keeps every sum of costs inside int64; the smaller
of a cost and a constant changes no more than the cost.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel

Ranks = NDArray[np.int32]
Center = Literal["mean", "median"]
Whole: TypeAlias = int | np.int64
_FEW_EACH = 4  # numbers for each bin up to which counts are ranked in a table of all numbers


def cost_cap(n: int) -> int:
    """Return the largest cost of a window among n bins: n + 1 of them, and as much noise, stay below 2^62."""
    return (1 << 61) // (n + 1)


def ranks(x: Ints) -> tuple[Ints, Ranks]:
    """Return the distinct counts in order and each bin's place among them: O(n log n), O(n) of small ones."""
    x = row_of_counts(x)
    top = int(x.max())
    if x.min() < 0 or top > _FEW_EACH * x.size:
        values, rank = np.unique(x, return_inverse=True)
        return values, rank.astype(np.int32)
    place = np.zeros(top + 1, np.int32)
    place[x] = 1
    values = np.flatnonzero(place)
    place[values] = np.arange(values.size)
    return values, place[x]


def mean_costs(
    x: Ints, length: int, *, grid: int = 1, stride: int = 1, ranked: tuple[Ints, Ranks] | None = None
) -> Ints:
    """Return the mean costs, in units of 1/grid, of the windows of one length at 0, stride, 2 stride...

    O(n length) by vector instructions for short windows; otherwise O(n) steps of a window sliding over the
    sorted distinct counts. Give ``ranked`` (from ``ranks``) when asking for several lengths.
    """
    x, length, stride = _window(x, length, stride)
    if grid < 1 or grid & (grid - 1) or 2 * grid * length * length >= 1 << 62:
        raise UsageError(f"the grid must be a power of two with 2 grid length^2 below 2**62, not {grid}.")
    values, rank = ranked or ranks(x)
    if length <= _shortest_slide(values.size):
        out = np.empty((x.size - length) // stride + 1, np.int64)
        _mean_short(x, length, stride, grid, cost_cap(x.size), out)
        return out
    return _slid(x, values, rank, length, stride, grid)


def median_costs(x: Ints, length: int, *, stride: int = 1, ranked: tuple[Ints, Ranks] | None = None) -> Ints:
    """Return the median costs of the windows of one length at 0, stride, 2 stride...; see ``mean_costs``."""
    x, length, stride = _window(x, length, stride)
    values, rank = ranked or ranks(x)
    if length <= _shortest_slide(values.size):
        out = np.empty((x.size - length) // stride + 1, np.int64)
        _median_short(x, stride, cost_cap(x.size), np.sort(x[:length]), out)
        return out
    return _slid(x, values, rank, length, stride, 0)


def block_costs(x: Ints, size: int, *, nested: bool = False) -> Ints:
    """Return the median costs of neighbouring blocks of one size, but for what is left over.

    Nested: of blocks of 4^k numbers, for k from 1 on, the greatest of k costs, each a sum over some parts.
    The first compares the block's quarters; the next the quarters of each of these, divided by 4; and so on,
    down to single numbers, divided by 4^(k-1). What is fine within a block does less to sums of its bins.
    """
    if not nested:
        return median_costs(x, size, stride=size)
    x = x[: x.size // size * size]
    costs, times = np.zeros(x.size // size, np.int64), size // 4
    while times >= 1:
        found = median_costs(x, 4, stride=4).reshape(costs.size, -1).sum(axis=1) // times
        costs = np.maximum(costs, found)
        x, times = x.reshape(-1, 4).sum(axis=1), times // 4
    return costs


def tree_costs(x: Ints, sizes: list[int]) -> list[Ints]:
    """Return the median costs of neighbouring runs of each size, the last run being what is left.

    One cap for all of them keeps a run's cost at or below that of any run it lies in.
    """
    ranked, cap = ranks(x), min(cost_cap(x.size), 1 << 56)
    costs = []
    for size in sizes:
        whole, rest = divmod(x.size, size)
        found = [median_costs(x, size, stride=size, ranked=ranked)] if whole else []
        if rest:
            found.append(median_costs(x[-rest:], rest))
        costs.append(np.minimum(np.concatenate(found), cap))
    return costs


def run_costs(x: Ints, sums: Ints, first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Return the median costs of runs of bins of which few hold records: O(runs), O(c log c) for a full one.

    Args:
        x: the counts of the bins that hold records.
        sums: of the first 0, 1, 2, ... of them.
        first, last: which of them lie in each run: c = last - first.
        sizes: how many bins each run has, those without records included.

    Where at most half of a run's bins hold records its median is 0, and its cost its sum.
    """
    costs = sums[last] - sums[first]
    full = np.flatnonzero(last - first > sizes // 2)
    if full.size:
        costs[full] = _full_costs(row_of_counts(x), first[full], last[full], sizes[full])
    return costs


def _full_costs(x: Ints, first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Return the costs of runs of which more than half of the bins hold records: sorted, all runs at once.

    Nothing is compiled for it: whether there are such runs is for the records to say.
    """
    many = last - first
    begin, run = np.cumsum(many) - many, np.repeat(np.arange(first.size), many)
    found = x[np.arange(run.size) + (first - begin)[run]]
    sums = np.concatenate(([0], np.cumsum(found[np.lexsort((found, run))])))
    half = sizes // 2  # bins without records come before all others, and are in the lower half
    above = sums[begin + many] - sums[begin + many - half]
    return np.asarray(above - (sums[begin + half - (sizes - many)] - sums[begin]))


def row_of_counts(x: Ints) -> Ints:
    """Return the counts as every loop takes them: contiguous and read-only, so that each is compiled once."""
    x = np.ascontiguousarray(x).view()
    x.flags.writeable = False
    if x.dtype != np.int64 or x.ndim != 1 or x.size == 0:
        raise UsageError(f"L1 costs need a row of int64 counts, not {x.dtype} of shape {x.shape}.")
    return x


def _window(x: Ints, length: int, stride: int) -> tuple[Ints, int, int]:
    x = row_of_counts(x)
    if not 1 <= length <= x.size:
        raise UsageError(f"a window among {x.size} bins has 1 to {x.size} of them, not {length}.")
    if stride < 1:
        raise UsageError(f"the stride must be at least 1, not {stride}.")
    return x, int(length), int(stride)


def _shortest_slide(distinct: int) -> int:
    """Return the longest window done afresh: measured; the slide is slow where counts hardly repeat."""
    return 8 if distinct <= 2048 else 32 if distinct <= 16384 else 256


# intervals.py calls this too; numba's cache watches only the caller's own file, so touch that one as well.
@subkernel
def mean_cost(above: Whole, k: Whole, r: Whole, m: int, grid: int, cap: int) -> Whole:
    """Return min(2 grid above - ceil(2 grid k r / m), cap) without overflow."""
    if above > cap // (2 * grid) + m:  # k r / m < m
        return cap
    return min(2 * grid * above - (2 * grid * k * r + m - 1) // m, cap)


@kernel
def _mean_short(x: Ints, length: int, stride: int, grid: int, cap: int, out: Ints) -> None:
    total = np.int64(0)
    for i in range(length):
        total += x[i]
    for w in range(out.size):
        lo = w * stride
        q = total // length
        above = np.int64(0)
        k = np.int64(0)
        for i in range(lo, lo + length):
            d = x[i] - q
            above += max(d, np.int64(0))
            k += np.int64(d > 0)
        out[w] = mean_cost(above, k, total - q * length, length, grid, cap)
        if w + 1 < out.size:
            for i in range(lo, min(lo + stride, lo + length)):
                total -= x[i]
            for i in range(max(lo + stride, lo + length), lo + stride + length):
                total += x[i]


@kernel
def _median_short(x: Ints, stride: int, cap: int, window: Ints, out: Ints) -> None:
    """Keep the window sorted, which is the first one at first: one bin leaves and one enters at each step."""
    length = window.size
    half = length // 2
    for lo in range((out.size - 1) * stride + 1):
        if lo > 0:
            old = x[lo - 1]
            new = x[lo + length - 1]
            i, above = 0, length  # the leaving bin lies between: halve until few places are left
            while above - i > 8:
                middle = (i + above) // 2
                if window[middle] <= old:
                    i = middle
                else:
                    above = middle
            while window[i] != old:
                i += 1
            while i + 1 < length and window[i + 1] < new:
                window[i] = window[i + 1]
                i += 1
            while i > 0 and window[i - 1] > new:
                window[i] = window[i - 1]
                i -= 1
            window[i] = new
        if lo % stride == 0:
            cost = np.int64(0)
            for i in range(half):
                cost += window[length - 1 - i] - window[i]
            out[lo // stride] = cost if cost < cap else cap


def _slid(x: Ints, values: Ints, rank: Ranks, length: int, stride: int, grid: int) -> Ints:
    """Return the costs of all windows by `_slide`."""
    distinct = values.size
    out = np.empty((x.size - length) // stride + 1, np.int64)
    count = np.zeros(((distinct >> 9) + 1) << 9, np.int32)
    near = np.zeros(((distinct >> 4) + 33, 2), np.int64)
    far = np.zeros(((distinct >> 9) + 2, 2), np.int64)
    asked, half = (grid, None) if grid else (None, length // 2)
    _slide(x, values, rank, length, stride, asked, half, cost_cap(x.size), count, near, far, out)
    return out


@kernel
def _slide(
    x: Ints,
    values: Ints,
    rank: Ranks,
    length: int,
    stride: int,
    grid: int | None,
    half: int | None,
    cap: int,
    count: Ranks,
    near: Ints,
    far: Ints,
    out: Ints,
) -> None:
    """Slide one window over the counts: for the mean cost on a grid, or the median cost by half of its bins.

    The other of the two is None, and what it would be needed for is not compiled.

    The slow twins are ``mean_cost`` and ``median_cost`` in tests/naive_partitions.py. Invariant: ``at`` is a
    rank among the distinct counts, and (c, s) are the number and the sum of the window's bins of lower rank.
    After step 2 these are, for the mean, the bins not above q; for the median, those below the middle one. A
    slide changes two counters, then the pointer moves, by 16 or 512 ranks at a time where it can: ``count``,
    ``near`` and ``far``, zeros at first, hold the window by rank, by 16 and by 512 ranks.
    """
    distinct = values.size
    total = np.int64(0)
    at = np.int64(0)
    c = np.int64(0)
    s = np.int64(0)
    for e in range((out.size - 1) * stride + length):
        # Step 1: bin e enters and bin e - length leaves; the invariant holds for the same ``at``.
        for side in range(2):
            i = e if side == 0 else e - length
            if i < 0:
                break
            sign = 1 - 2 * side
            r = rank[i]
            y = sign * x[i]
            total += y
            count[r] += sign
            near[r >> 4, 0] += sign
            near[r >> 4, 1] += y
            far[r >> 9, 0] += sign
            far[r >> 9, 1] += y
            if r < at:
                c += sign
                s += y
        lo = e - length + 1
        if lo < 0 or lo % stride:
            continue
        if grid is not None:
            # Step 2, mean: move ``at`` up, then down, to the first distinct count above q.
            q = total // length
            while at < distinct and values[at] <= q:
                if at & 15 == 0 and at + 16 <= distinct and values[at + 15] <= q:
                    if at & 511 == 0 and at + 512 <= distinct and values[at + 511] <= q:
                        c += far[at >> 9, 0]
                        s += far[at >> 9, 1]
                        at += 512
                    else:
                        c += near[at >> 4, 0]
                        s += near[at >> 4, 1]
                        at += 16
                else:
                    c += count[at]
                    s += count[at] * values[at]
                    at += 1
            while at > 0 and values[at - 1] > q:
                if at & 15 == 0 and values[at - 16] > q:
                    if at & 511 == 0 and values[at - 512] > q:
                        at -= 512
                        c -= far[at >> 9, 0]
                        s -= far[at >> 9, 1]
                    else:
                        at -= 16
                        c -= near[at >> 4, 0]
                        s -= near[at >> 4, 1]
                else:
                    at -= 1
                    c -= count[at]
                    s -= count[at] * values[at]
            # Step 3: the k bins above q exceed it by (total - s) - k q in all; see the module's formula.
            k = length - c
            out[lo // stride] = mean_cost((total - s) - k * q, k, total - q * length, length, grid, cap)
        if half is not None:
            # Step 2, median: move ``at`` up, then down, to the rank of the middle bin.
            while c + count[at] <= half:
                if at & 15 == 0 and c + near[at >> 4, 0] <= half:
                    if at & 511 == 0 and c + far[at >> 9, 0] <= half:
                        c += far[at >> 9, 0]
                        s += far[at >> 9, 1]
                        at += 512
                    else:
                        c += near[at >> 4, 0]
                        s += near[at >> 4, 1]
                        at += 16
                else:
                    c += count[at]
                    s += count[at] * values[at]
                    at += 1
            while c > half:
                if at & 15 == 0 and c - near[(at >> 4) - 1, 0] > half:
                    if at & 511 == 0 and c - far[(at >> 9) - 1, 0] > half:
                        at -= 512
                        c -= far[at >> 9, 0]
                        s -= far[at >> 9, 1]
                    else:
                        at -= 16
                        c -= near[at >> 4, 0]
                        s -= near[at >> 4, 1]
                else:
                    at -= 1
                    c -= count[at]
                    s -= count[at] * values[at]
            # Step 3: the lower half is the bins below the middle one and some equal to it.
            below = s + (half - c) * values[at]
            out[lo // stride] = min(total - 2 * below - (length - 2 * half) * values[at], cap)
