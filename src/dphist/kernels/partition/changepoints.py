"""Optimal partitions of a row of numbers into runs, whose groups cost SSE + beta + a/(b + size).

``h`` is int64 or float64 of shape (n,); ``starts`` (int64) says where each run begins and, last, n. Sums are
exact integers (floats are rounded to a grid of at most n 2^-62 of their range), and an SSE only ever grows
by squares, so there is no cancellation however large the counts are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel, subkernel
from dphist.kernels.partition.costs import gridded, numbers, penalties, trace
from dphist.kernels.partition.deviations import Whole

_EVERY = 4  # steps after which starts are compared again


def optimal_runs(h: ArrayLike, *, beta: float, a: float = 0.0, b: float = 0.0) -> Ints:
    """Return the least-cost partition into runs: O(n) memory, near-linear time on noisy numbers.

    A start is dropped only when another is at least as good whatever comes later (see ``_best_runs``), so the
    result is exact. Numbers without noise, such as ramps, may keep hundreds of starts alive.
    """
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    fine, unit = gridded(x)
    return trace(_last_starts(fine, beta / unit**2, a / unit**2, b))


def _last_starts(x: Ints, beta: float, a: float, b: float) -> Ints:
    """Return the start of the last run of the best partition of x[:t], for t = 0..n.

    There is room for n + 1 starts, most of which is never touched.
    """
    n = x.size
    low, high = float(x.min() - x[0]), float(x.max() - x[0])
    back, sums = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    start, expiry = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    held, rare = (np.empty(n if beta < 4.0 * a else 0, np.int64) for _ in range(2))
    _best_runs(
        x, beta, a, b, low, high, np.empty(n + 1), back, sums, start, expiry, np.empty(n + 1),
        np.empty((n + 1, 5)), held, rare,
    )  # fmt: skip
    return back


@kernel
def _best_runs(
    x: Ints,
    beta: float,
    a: float,
    b: float,
    low: float,
    high: float,
    best: Floats,
    back: Ints,
    sums: Ints,
    start: Ints,
    expiry: Ints,
    near: Floats,
    state: Floats,
    held: Ints,
    rare: Ints,
) -> None:
    """Write the start of the last run of the best partition of x[:t] to back[t], for t = 0..n.

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

    [7] Every few steps the starts that are left are compared again, see `_compare_again`.

    Args:
        low, high: the least and the largest number, less the first.
        best: room for the least costs.
        start, expiry: room for the starts that may still win, and when they no longer do.
        back, sums: zeros.
        near: room for the gap from each of these starts to the one before it.
        state: room for their SSE so far, then their intervals [1, 2] and [3, 4].
        held: room for the starts inside a stretch of equal numbers; none if they need not be held back.
        rare: room for those of them that no older one beats.
    """
    n = x.size
    best[0] = 0.0
    for t in range(n):
        sums[t + 1] = sums[t] + (x[t] - x[0])
    start[0] = 0
    expiry[0] = n + 1
    near[0] = 0.0
    alive: Whole = np.int64(0)  # of this type, as literals would have loops compiled for themselves
    _fresh(state, alive, low, high)
    alive += 1
    stretch = 0  # start of the current stretch of equal numbers
    hold = held.size > 0
    held_count = 0
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
        kept = np.int64(0)
        gap_before, before = 0.0, start[0]  # from the last kept start, which is this one
        for c in range(alive):
            u = start[c]
            if c > 0:
                gap_before += near[c] - _between(sums, before, start[c - 1], u)
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
            near[kept] = gap_before
            gap_before, before = 0.0, u
            state[kept, 0] = state[c, 0]
            state[kept, 1] = from_1
            state[kept, 2] = to_1
            state[kept, 3] = from_2
            state[kept, 4] = to_2
            kept += 1
        alive = kept
        if t % _EVERY == 0:  # [7]
            level = np.float64(sums[t] - sums[argmin]) / (t - argmin)
            alive = _compare_again(t, alive, level, a, b, best, sums, start, expiry, near, state)
        # [6] Hold t back inside a stretch; at its end, t and those held back become starts.
        if inside:
            if best[t] < min(floor, best[stretch]):
                rare[rare_count] = t
                rare_count += 1
            floor = min(floor, best[t])
            held[held_count] = t
            held_count += 1
            continue
        for c in range(held_count + 1):
            new = held[c] if c < held_count else t
            start[alive] = new
            expiry[alive] = n + 1
            near[alive] = 0.0
            if alive > 0:
                u = start[alive - 1]
                near[alive] = best[new] - best[u]
                if u < stretch:
                    near[alive] -= state[alive - 1, 0] - _between(sums, u, new, t)
            _fresh(state, alive, low, high)
            if new == t and barred_from < barred_to:
                state[alive, 2] = barred_from
                state[alive, 3] = barred_to
                state[alive, 4] = high
                if low > barred_from and barred_to > high:
                    continue
            alive += 1
        stretch = t
        held_count = 0
        rare_count = 0
        floor = np.inf


@subkernel
def _fresh(state: Floats, c: Whole, low: float, high: float) -> None:
    """Give a new start all levels and no SSE."""
    state[c, 0] = 0.0
    state[c, 1] = low
    state[c, 2] = high
    state[c, 3] = 1.0
    state[c, 4] = 0.0


@subkernel
def _between(sums: Ints, u: int, t: int, v: int) -> float:
    """Return SSE(u, v) - SSE(u, t) - SSE(t, v), which is 0 if t is u or v."""
    if t <= u or v <= t:
        return 0.0
    one, two = np.float64(t - u), np.float64(v - t)
    off = np.float64(sums[t] - sums[u]) / one - np.float64(sums[v] - sums[t]) / two
    return off * off * (one * two / (one + two))


@subkernel
def _compare_again(
    now: int,
    alive: Whole,
    level: float,
    a: float,
    b: float,
    best: Floats,
    sums: Ints,
    start: Ints,
    expiry: Ints,
    near: Floats,
    state: Floats,
) -> Whole:
    """Narrow the levels at which starts may still win, when all ends lie beyond ``now``; return how many may.

    - Of two starts u < t, what u's longer run may gain by p is now at most p(now + 1 - t) - p(now + 1 - u),
      which is less than it was when t was new: step [2] again, with that as the slack.
    - Of three starts u < t < v, with w = (v - t) / (v - u), t loses for good to u or v wherever its cost is
      above w times that of u plus 1 - w times that of v. In that difference the squares of the level cancel,
      and of p a second difference is left, which for a convex p is largest at the next end: so t loses on one
      side of a level.

    Both are asked of neighbours among the starts that may win above the present level, and among those that
    may win below it. The gap = best[t] - best[u] - SSE(u, t) of two starts never changes; it is the sum of
    the gaps between them, less what SSE gains by the sections becoming one. A margin of some times the root
    of n roundings, which is what n of them come to, keeps a start that is as good as another.
    """
    for side in range(2):
        members, before, gap = 0, sums[0], 0.0  # the last of them, none at first, and the gap from there
        last_span, last_mean, last_gap, last_p, last_margin = 1, 0.0, 0.0, 0.0, 0.0
        for c in range(alive):
            t = start[c]
            if members > 0:
                gap += near[c] - _between(sums, start[before], start[c - 1], t)
            one, two = state[c, 1] <= state[c, 2], state[c, 3] <= state[c, 4]
            if side == 0 and not ((one and state[c, 2] >= level) or (two and state[c, 4] >= level)):
                continue
            if side == 1 and not ((one and state[c, 1] <= level) or (two and state[c, 3] <= level)):
                continue
            members += 1
            d = before
            before = c
            if members == 1:
                continue
            u = start[d]
            span = t - u
            mean = np.float64(sums[t] - sums[u]) / span
            margin = 4e-16 * (np.sqrt(np.float64(sums.size)) + 16.0) * (best[now] + best[t] + abs(gap))
            p_u, p_t = a / (b + (now - u) + 1.0), a / (b + (now - t) + 1.0)
            reach = gap + p_t - p_u + margin
            radius = np.sqrt(reach / span) * (1.0 + 1e-12) + 1e-15 * abs(mean) if reach > 0.0 else -1.0
            _narrow(state, d, mean - radius, mean + radius)
            if members > 2:
                w = np.float64(span) / (span + last_span)
                tilt = w * last_span * (last_mean - mean)
                rest = (1.0 - w) * gap - w * last_gap + w * last_p + (1.0 - w) * p_t - p_u
                rest += margin + last_margin
                if tilt != 0.0:
                    edge = 0.5 * (last_mean + mean + rest / tilt)
                    wider = 1e-12 * (abs(edge) + abs(mean) + abs(last_mean))
                    _narrow(
                        state,
                        d,
                        edge - wider if tilt < 0.0 else -np.inf,
                        edge + wider if tilt > 0.0 else np.inf,
                    )
                elif rest < 0.0:
                    _narrow(state, d, np.inf, -np.inf)
            last_span, last_mean, last_gap, last_p, last_margin = span, mean, gap, p_u, margin
            gap = 0.0
    kept, gap, before = 0, 0.0, start[0]
    for c in range(alive):
        if c > 0:
            gap += near[c] - _between(sums, before, start[c - 1], start[c])
        if state[c, 1] > state[c, 2] and state[c, 3] > state[c, 4]:
            continue
        before = start[c]
        near[kept] = gap
        gap = 0.0
        start[kept] = start[c]
        expiry[kept] = expiry[c]
        for i in range(5):
            state[kept, i] = state[c, i]
        kept += 1
    return kept


@subkernel
def _narrow(state: Floats, c: Whole, low: float, high: float) -> None:
    """Take the levels below ``low`` and above ``high`` from a start."""
    state[c, 1] = max(state[c, 1], low)
    state[c, 2] = min(state[c, 2], high)
    state[c, 3] = max(state[c, 3], low)
    state[c, 4] = min(state[c, 4], high)


def powers_of_two(h: ArrayLike, *, beta: float, a: float, b: float) -> Ints:
    """Return the least-cost partition into runs whose sizes are powers of two: O(n log n) time, O(n) memory.

    This is the papers' approximation (SORTaki, Algorithm 6 restricted as DAWA is). A window's SSE is that of
    its halves plus the squared difference of their sums over its size: nothing cancels.
    """
    x = numbers(h)
    beta, a, b = penalties(beta, a, b)
    fine, unit = gridded(x)
    back, sums = np.zeros(x.size + 1, np.int64), np.zeros(x.size + 1, np.int64)
    _best_powers(fine, beta / unit**2, a / unit**2, b, np.zeros(x.size + 1), back, sums, np.zeros(2 * x.size))
    return trace(back)


@kernel
def _best_powers(
    x: Ints, beta: float, a: float, b: float, best: Floats, back: Ints, sums: Ints, ring: Floats
) -> None:
    """Write the start of the last run of the best partition of x[:j] to back[j]; all four are 0 at first."""
    n = x.size
    for j in range(n):
        sums[j + 1] = sums[j] + (x[j] - x[0])
    # The ring has, at 2^k + j mod 2^k: the SSE of the window of 2^k that ended at the last such j.
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
