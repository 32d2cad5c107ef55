"""The papers' own ways of grouping a row of numbers: greedy, rules of thumb for k, and kd-splits.

``h`` is int64 or float64 of shape (n,); ``starts`` (int64) says where each group begins and, last, n. Sums
are exact integers, as in ``changepoints``.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.partition import hulls
from dphist.kernels.partition.costs import Row, cost, gridded, is_sorted, numbers, penalties
from dphist.kernels.partition.segments import k_groups_sorted


def greedy(h: ArrayLike, *, beta: float, a: float, b: float) -> Ints:
    """Return SORTaki's greedy partition (Algorithm 5): left to right, join while joining costs less. O(n)."""
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    fine, unit = gridded(x)
    starts = np.zeros(fine.size + 1, np.int64)
    k = _greedy(fine, beta / unit**2, a / unit**2, b, starts)
    return starts[: k + 1].copy()


@kernel
def _greedy(x: Ints, beta: float, a: float, b: float, starts: Ints) -> int:
    """Write where the groups begin, over zeros, and, last, n; return how many there are."""
    n = x.size
    k = 1
    size = 1
    total = np.int64(0)  # of the open group, measured from x[0]
    for i in range(1, n):
        y = x[i] - x[0]
        off = np.float64(size * y - total)
        # Line 5: er1 < er2, less what both sides share.
        joined = off * off / (np.float64(size) * (size + 1)) + a / (b + size + 1)
        if joined < a / (b + size) + a / (b + 1) + beta:
            size += 1
            total += y
        else:
            starts[k] = i
            k += 1
            size = 1
            total = y
    starts[k] = n
    return k


def ahp_greedy(h: ArrayLike, *, a: float) -> Ints:
    """Return AHP's greedy clusters (Algorithm 3) for the group cost SSE + a/size.

    A number joins if the error of the joined cluster is below that of the cluster plus err*, the least
    error the number could have in a cluster that begins with it. On sorted numbers err* is the minimum over
    all such clusters, which is what the paper's stop rule computes too, and only whether it exceeds the gap
    matters: a few jumps instead of a walk. On unsorted numbers the stop rule decides what err* is, so it is
    walked.
    """
    x = numbers(h)
    _, a, _ = penalties(0.0, a, 0.0)
    fine, unit = gridded(x)
    return _ahp_greedy(fine, a / unit**2, is_sorted(fine))


def _ahp_greedy(x: Ints, a: float, ordered: bool) -> Ints:
    """Return the clusters, by jumps on sorted numbers, else by the paper's walk."""
    sums, starts = np.zeros((2, x.size + 1), np.int64)
    np.cumsum(x - x[0], out=sums[1:])
    k = _walk(x, sums, a, ordered, starts)
    return starts[: k + 1].copy()


@kernel
def _walk(x: Ints, sums: Ints, a: float, ordered: bool, starts: Ints) -> int:
    """Write where the clusters begin, over zeros, and, last, n; return how many there are."""
    n = x.size
    k = 1
    for j in range(1, n):
        size = j - starts[k - 1]
        off = np.float64(size * (x[j] - x[0]) - (sums[j] - sums[starts[k - 1]]))
        # Line 8: err(C with H_j) - err(C) < err*(H_j)
        gap = (off * off - a) / (np.float64(size) * (size + 1))
        if gap <= 0.0 and a > 0.0:
            continue  # err* is positive
        if ordered:
            joins = not _reaches(sums, x[j] - x[0], j, n, a, gap)
        else:
            joins = gap < _look_ahead(sums, x[j] - x[0], j, n, a)
        if not joins:
            starts[k] = j
            k += 1
    starts[k] = n
    return k


@subkernel
def _reaches(sums: Ints, y: int, j: int, n: int, a: float, gap: float) -> bool:
    """Say whether some cluster that begins at j gives its first number an error of at most ``gap``.

    The squared distance to the mean only grows with the size m, so a size that could do needs
    a/m^2 <= gap - distance(m): jump to the first that could and look again.
    """
    m = np.int64(1)
    while j + m <= n:
        off = np.float64((sums[j + m] - sums[j]) - m * y) / m
        room = gap - off * off
        if room < 0.0:
            return False
        if a / (np.float64(m) * m) <= room:
            return True
        if room == 0.0:
            return False
        m = max(m + 1, np.int64(min(np.sqrt(a / room) * (1.0 - 1e-12), 9e15)))
    return False


@kernel
def _look_ahead(sums: Ints, y: int, j: int, n: int, a: float) -> float:
    """Return err* with the paper's stop rule: once the distance grew by all that is left, no size can win."""
    least = a
    distance, noise = 0.0, a
    last = a / np.float64(n - j) ** 2
    for m in range(2, n - j + 1):
        off = np.float64((sums[j + m] - sums[j]) - m * y) / m
        if off * off - distance >= noise - last:
            break
        distance = off * off
        noise = a / (np.float64(m) * m)
        least = min(least, distance + noise)
    return least


def empirical_sizes(h: ArrayLike) -> tuple[int, int, int, int]:
    """Return AHP's four rules for k: square root, Sturges, Doane (as AHP prints it), Rice; each 1 to n."""
    x = numbers(h)
    n = x.size
    d = (x - x[n // 2]).astype(np.float64)
    d -= d.mean()
    scale = float(np.abs(d).max())
    doane = 1.0 + math.log2(n)
    if n > 2 and scale > 0.0:
        d /= scale
        skew = abs(float((d**3).sum()) / float((d**2).sum()) ** 1.5) ** (1 / 3)
        doane += math.log2(1.0 + skew / math.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3.0))))
    rules = (
        math.isqrt(n - 1) + 1,
        math.ceil(1.0 + math.log2(n)),
        math.ceil(doane),
        math.ceil(2.0 * n ** (1 / 3) - 1e-9),
    )
    root, sturges, doane_k, rice = (min(max(k, 1), n) for k in rules)
    return root, sturges, doane_k, rice


def empirical(h: ArrayLike, *, a: float) -> Ints:
    """Return AHP's empirical clusters (Algorithm 2): of the exact k-group optima for four k, the cheapest.

    The group cost is SSE + a/size and the numbers must be sorted.
    """
    x = numbers(h)
    best = np.array([0, x.size])
    least = math.inf
    for k in dict.fromkeys(empirical_sizes(x)):
        starts = k_groups_sorted(x, k)
        total = cost(x, starts, beta=0.0, a=a, b=0.0)
        if total < least:
            best, least = starts, total
    return best


Split = Literal["best", "half"]


def kd_splits(h: ArrayLike, *, threshold: float, split: Split = "best") -> Ints:
    """Return DPCube's partition of a row: cut a group in two while its variance exceeds the threshold.

    Args:
        split: "best" cuts where the SSE falls most, "half" in the middle. O(n log n) and some corners of
            hulls for each cut (`hulls`); numbers so large that products might not fit take O(n) per level.
    """
    x = numbers(h)
    grid, least, best = _kd_input(x, (x.size, 1), threshold, split)
    row = grid[:, 0]
    fits = hulls.fits(row)
    labels = _labels(
        grid[:1] if fits else grid, least, best
    )  # compiled in a rehearsal, whatever numbers follow
    if not fits:
        return np.append(np.flatnonzero(np.diff(labels[:, 0], prepend=-1)), x.size)
    sums, squares = np.zeros((2, row.size + 1), np.int64)
    np.cumsum(row, out=sums[1:])
    np.cumsum(row * row, out=squares[1:])
    made = hulls.make_hulls(sums, block=hulls.BLOCK)
    starts, stack = np.empty(row.size + 1, np.int64), np.empty(row.size + 1, np.int64)
    k = _kd_row(sums, squares, *made, hulls.BLOCK, hulls.SHORT, least, best, stack, starts)
    return starts[: k + 1].copy()


@kernel
def _kd_row(
    sums: Ints,
    squares: Ints,
    corners: hulls.Places,
    begin: Ints,
    first: Ints,
    block: int,
    short: int,
    threshold: float,
    best: bool,
    stack: Ints,
    starts: Ints,
) -> int:
    """Write where the groups of a row begin, and, last, its length; return how many there are.

    ``stack`` holds the ends of the parts that are to be looked at, the first of them on top.
    """
    stack[0] = sums.size - 1
    top, groups, a = 0, 0, np.int64(0)  # a literal would have `best_cut` compiled once more
    while top >= 0:
        b = stack[top]
        m, total = b - a, sums[b] - sums[a]
        whole = total // m  # the mean, in two parts, so that differences are exact
        rest = total - whole * m
        part = np.float64(rest) / m
        about = squares[b] - squares[a] - whole * (2 * total - whole * m)  # squares about the whole part
        if m == 1 or np.float64(about) - rest * part <= threshold * m:
            starts[groups] = a
            groups += 1
            a = b
            top -= 1
            continue
        at = (a + b) // 2
        if best:
            at = hulls.best_cut(sums, corners, begin, first, block, short, a, b, whole, part)
        top += 1
        stack[top] = at
    starts[groups] = sums.size - 1
    return groups


def kd_grid(h: ArrayLike, *, threshold: float, split: Split = "best") -> Ints:
    """Return DPCube's partition of a grid of shape (rows, columns) as group numbers 0.. of that shape.

    Args:
        split: "best" cuts the rectangle, along either side, where the SSE falls most; "half" cuts its longer
            side in the middle.
    """
    grid = np.asarray(h)
    if grid.ndim != 2:
        raise UsageError(f"a kd-grid needs two dimensions, not shape {grid.shape}.")
    return _labels(*_kd_input(numbers(grid.ravel()), grid.shape, threshold, split))


def _kd_input(x: Row, shape: tuple[int, int], threshold: float, split: Split) -> tuple[Ints, float, bool]:
    if not (math.isfinite(threshold) and threshold >= 0):
        raise UsageError(f"the variance threshold must be finite and at least 0, not {threshold!r}.")
    if split not in ("best", "half"):
        raise UsageError(f"split must be 'best' or 'half', not {split!r}.")
    fine, unit = gridded(x)
    return (fine - fine[0]).reshape(shape), threshold / unit**2, split == "best"


def _labels(x: Ints, threshold: float, best: bool) -> Ints:
    """Return the numbers of the rectangles, from the top left."""
    labels, stack = np.zeros(x.shape, np.int64), np.zeros((x.size + 1, 4), np.int64)
    stack[0, 1::2] = x.shape
    _kd(x, threshold, best, stack, np.zeros(max(x.shape), np.int64), labels)
    return labels


@kernel
def _kd(x: Ints, threshold: float, best: bool, stack: Ints, lines: Ints, labels: Ints) -> None:
    """Number the rectangles from the top left, with a stack of those to be looked at: O(cells) per level.

    The stack has the whole at first; ``lines`` is room for a number of each row, or of each column.
    """
    top = 0
    groups = 0
    while top >= 0:
        r0, r1, c0, c1 = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        top -= 1
        cells = (r1 - r0) * (c1 - c0)
        total = np.int64(0)
        for r in range(r0, r1):
            for c in range(c0, c1):
                total += x[r, c]
        whole = total // cells  # the mean, in two parts, so that differences are exact
        part = np.float64(total - whole * cells) / cells
        sse = 0.0
        for r in range(r0, r1):
            for c in range(c0, c1):
                d = np.float64(x[r, c] - whole) - part
                sse += d * d
        if cells == 1 or sse <= threshold * cells:
            for r in range(r0, r1):
                for c in range(c0, c1):
                    labels[r, c] = groups
            groups += 1
            continue
        side = np.int64(0 if r1 - r0 >= c1 - c0 else 1)
        at = (r0 + r1) // 2 if side == 0 else (c0 + c1) // 2
        if best:
            most = -1.0
            for axis in range(2):
                count = r1 - r0 if axis == 0 else c1 - c0
                if count == 1:
                    continue
                width = cells // count
                for i in range(count):
                    lines[i] = 0
                for r in range(r0, r1):
                    for c in range(c0, c1):
                        lines[r - r0 if axis == 0 else c - c0] += x[r, c] - whole
                left = np.int64(0)
                for i in range(1, count):
                    left += lines[i - 1]
                    size = np.float64(i * width)
                    off = np.float64(left) - size * part
                    gain = off * off / (size * (cells - size))  # what the SSE falls by, over cells
                    if gain > most:
                        most = gain
                        side = np.int64(axis)
                        at = (r0 if axis == 0 else c0) + i
        for end in range(2):  # the first part on top, so that numbers rise from the top left
            top += 1
            stack[top, 0] = r0
            stack[top, 1] = r1
            stack[top, 2] = c0
            stack[top, 3] = c1
            stack[top, 2 * side + end] = at
