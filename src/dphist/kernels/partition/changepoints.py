"""Optimal partitions of a row of numbers into runs, whose groups cost SSE + beta + a/(b + size).

``h`` is int64 or float64 of shape (n,); ``starts`` (int64) says where each run begins and, last, n. Sums are
exact integers (floats are rounded to a grid of at most n 2^-62 of their range), and an SSE only ever grows
by squares, so there is no cancellation however large the counts are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel
from dphist.kernels.partition.costs import gridded, numbers, penalties, trace


def optimal_runs(h: ArrayLike, *, beta: float, a: float = 0.0, b: float = 0.0) -> Ints:
    """Return the least-cost partition into runs: O(n) memory, near-linear time on noisy numbers.

    A start is dropped only when another is at least as good whatever comes later (see ``_best_runs``), so the
    result is exact. Numbers without noise, such as ramps, may keep hundreds of starts alive.
    """
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    fine, unit = gridded(x)
    return trace(_best_runs(fine, beta / unit**2, a / unit**2, b))


@kernel
def _best_runs(x: Ints, beta: float, a: float, b: float) -> Ints:
    """Return the start of the last run of the best partition of x[:t], for t = 0..n.

    The slow twin is ``least_cost`` in tests/naive_partitions.py. The numbers in brackets mark the steps of
    the proof in the code.

    [1] best[t] = min over starts u of best[u] + SSE(u, t) + p(t - u) + beta, with p(l) = a/(b + l)
    decreasing and convex. Compare starts u < t for an end s beyond t whose run has the level m (SSE is the
    minimum over m):

    - [2] u costs best[u] + SSE(u, t) + (t - u)(m - mean(u, t))^2 + rest + p(s - u), and t costs
      best[t] + rest + p(s - t). Let gap = best[t] - best[u] - SSE(u, t). As p(s - u) <= p(s - t), t loses for
      good to u wherever (t - u)(m - mean)^2 <= gap; and as p(s - t) - p(s - u) is at most
      slack = p(1) - p(t - u + 1), u loses for good to t wherever (t - u)(m - mean)^2 >= gap + slack.
    - [3] So a start keeps at most two intervals of levels where it may still win, and is dropped when both
      are empty.
    - [4] If gap < 0, u loses at all levels for every end s with p(s - t) - p(s - u) <= -gap: its expiry.

    [5] A cut between equal numbers v is not needed if beta >= 4a. Let the groups beside it have sizes L, R
    and means g apart. Unless merging them is as good, g^2 > beta (1/L + 1/R); let v be at least g/2 from the
    left mean: moving one v to the right saves at least g^2/4 (1/(L - 1) + 1/(R + 1)) > beta/(4 L (L - 1))
    of SSE and costs at most p(L - 1) - p(L) <= a/(L (L - 1)), so the cut was not optimal.

    [6] Otherwise such starts are held back until the stretch of equal numbers ends: inside it their runs
    have no SSE, so a start with an older rival of smaller best loses; only the others are tried, and none of
    them while even their smallest best plus their smallest p is too large.
    """
    n = x.size
    best = np.empty(n + 1)
    back = np.zeros(n + 1, np.int64)
    best[0] = 0.0
    sums = np.zeros(n + 1, np.int64)
    for t in range(n):
        sums[t + 1] = sums[t] + (x[t] - x[0])
    low = np.float64(x.min() - x[0])
    high = np.float64(x.max() - x[0])
    size = 64
    start = np.zeros(size, np.int64)
    expiry = np.full(size, n + 1, np.int64)
    state = np.empty((size, 5))  # SSE so far, then the intervals [1, 2] and [3, 4]
    _fresh(state, 0, low, high)
    alive = 1
    stretch = 0  # start of the current stretch of equal numbers
    hold = beta < 4.0 * a
    held = np.empty(n if hold else 0, np.int64)  # starts inside it
    held_count = 0
    rare = np.empty(held.size, np.int64)  # those of them that no older one beats
    rare_count = 0
    floor = np.inf
    p_one = a / (b + 1.0)
    for t in range(1, n + 1):
        y = x[t - 1] - x[0]
        # [1] The minimum over the starts that may still win; each SSE grows by one square.
        least = np.inf
        argmin = 0
        for c in range(alive):
            u = start[c]
            span = t - u
            if span > 1:
                off = np.float64((span - 1) * y - (sums[t - 1] - sums[u]))
                state[c, 0] += off * off / (np.float64(span) * (span - 1))
            v = best[u] + state[c, 0] + a / (b + span)
            if v < least:
                least = v
                argmin = u
        # [6] And over the starts held back inside a stretch of equal numbers.
        if held_count and floor + a / (b + (t - held[0])) < least:
            for c in range(rare_count):
                v = best[rare[c]] + a / (b + (t - rare[c]))
                if v < least:
                    least = v
                    argmin = rare[c]
        best[t] = least + beta
        back[t] = argmin
        inside = t < n and x[t] == x[t - 1]
        if t == n or (inside and not hold):  # [5]
            continue
        barred_from, barred_to = 1.0, 0.0  # the levels at which the new start t loses
        kept = 0
        for c in range(alive):
            u = start[c]
            span = t - u
            gap = best[t] - best[u] - state[c, 0]
            reach = gap + p_one - a / (b + span + 1.0)
            until = expiry[c]
            if reach <= 0.0 or until <= t + 1:  # [2], [4]: u loses at every level
                continue
            if gap < 0.0:  # [4]: the least d with a span / ((b + d)(b + d + span)) <= -gap
                root = 0.5 * (np.sqrt(np.float64(span) * span + 4.0 * a * span / -gap) - span)
                wait = np.ceil(root * (1.0 + 1e-9) - b)
                if wait < until - t:
                    until = t + max(1, int(wait))
            # [3] Intersect the intervals of u with the levels where it does not lose; rounding only widens.
            mean = np.float64(sums[t] - sums[u]) / span
            radius = np.sqrt(reach / span) * (1.0 + 1e-12) + 1e-15 * abs(mean)
            from_1 = max(state[c, 1], mean - radius)
            to_1 = min(state[c, 2], mean + radius)
            from_2 = max(state[c, 3], mean - radius)
            to_2 = min(state[c, 4], mean + radius)
            if from_1 > to_1 and from_2 > to_2:
                continue
            # [2] The levels where t loses to u: of two intervals the union if they meet, else the longer.
            if gap > 0.0:
                inner = np.sqrt(gap / span) * (1.0 - 1e-12) - 1e-15 * abs(mean)
                if barred_from > barred_to or (
                    (mean - inner > barred_to or mean + inner < barred_from)
                    and 2.0 * inner > barred_to - barred_from
                ):
                    barred_from, barred_to = mean - inner, mean + inner
                elif mean - inner <= barred_to and mean + inner >= barred_from:
                    barred_from, barred_to = min(barred_from, mean - inner), max(barred_to, mean + inner)
            start[kept] = u
            expiry[kept] = until
            state[kept, 0] = state[c, 0]
            state[kept, 1] = from_1
            state[kept, 2] = to_1
            state[kept, 3] = from_2
            state[kept, 4] = to_2
            kept += 1
        alive = kept
        # [6] Hold t back inside a stretch; at its end, t and those held back become starts.
        if inside:
            if best[t] < min(floor, best[stretch]):
                rare[rare_count] = t
                rare_count += 1
            floor = min(floor, best[t])
            held[held_count] = t
            held_count += 1
            continue
        stretch = t
        joining = held_count + 1
        while alive + joining > size:
            size *= 2
            start = _longer(start, size)
            expiry = _longer(expiry, size)
            wider = np.empty((size, 5))
            wider[:alive] = state[:alive]
            state = wider
        for c in range(joining):
            new = held[c] if c < held_count else t
            start[alive] = new
            expiry[alive] = n + 1
            _fresh(state, alive, low, high)
            if new == t and barred_from < barred_to:
                state[alive, 2] = barred_from
                state[alive, 3] = barred_to
                state[alive, 4] = high
                if low > barred_from and barred_to > high:
                    continue
            alive += 1
        held_count = 0
        rare_count = 0
        floor = np.inf
    return back


@kernel
def _fresh(state: Floats, c: int, low: float, high: float) -> None:
    """Give a new start all levels and no SSE."""
    state[c, 0] = 0.0
    state[c, 1] = low
    state[c, 2] = high
    state[c, 3] = 1.0
    state[c, 4] = 0.0


@kernel
def _longer(row: Ints, size: int) -> Ints:
    longer = np.empty(size, np.int64)
    longer[: row.size] = row
    return longer


def powers_of_two(h: ArrayLike, *, beta: float, a: float, b: float) -> Ints:
    """Return the least-cost partition into runs whose sizes are powers of two: O(n log n) time, O(n) memory.

    This is the papers' approximation (SORTaki, Algorithm 6 restricted as DAWA is). A window's SSE is that of
    its halves plus the squared difference of their sums over its size: nothing cancels.
    """
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    fine, unit = gridded(x)
    return trace(_best_powers(fine, beta / unit**2, a / unit**2, b))


@kernel
def _best_powers(x: Ints, beta: float, a: float, b: float) -> Ints:
    n = x.size
    best = np.empty(n + 1)
    back = np.zeros(n + 1, np.int64)
    best[0] = 0.0
    sums = np.zeros(n + 1, np.int64)
    for j in range(n):
        sums[j + 1] = sums[j] + (x[j] - x[0])
    ring = np.zeros(2 * n)  # at 2^k + j mod 2^k: the SSE of the window of 2^k that ended at the last such j
    for j in range(1, n + 1):
        least = best[j - 1] + beta + a / (b + 1.0)
        argmin = j - 1
        sse = 0.0
        half = 1
        while 2 * half <= j:
            slot = half + (j & (half - 1))
            earlier = ring[slot]
            ring[slot] = sse
            off = np.float64((sums[j] - sums[j - half]) - (sums[j - half] - sums[j - 2 * half]))
            half *= 2
            sse += earlier + off * off / half
            v = best[j - half] + sse + beta + a / (b + half)
            if v < least:
                least = v
                argmin = j - half
        ring[half + (j & (half - 1))] = sse
        best[j] = least
        back[j] = argmin
    return back
