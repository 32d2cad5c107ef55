"""Best partitions of sorted numbers whose groups cost SSE + beta + a/(b + size).

Every function takes ``h``, int64 or float64 of shape (n,), and returns ``starts``, int64: where each group
begins and, last, n. SSE is the sum of squared distances to the group's mean.

On sorted numbers the cost satisfies the quadrangle inequality (use the mean of the long group as the centre
of one crossing group and the mean of the short one as the centre of the other; a convex penalty of the size
keeps it), so the best last cut moves right as the end moves right: O(n log n) instead of O(n^2). Ties may
have to be cut, so equal numbers are not merged first.

Two bounds keep the arithmetic exact. With D^2 = 2 (beta + 2 p(1) - p(2)), p(l) = a/(b + l): cutting one end
element off costs at most D^2/2 and saves at least half its squared distance to the mean of the rest, so no
group of an optimum spans more than 2D. Only pairs inside that band are looked at, and there the sums of
h - h_j and of its square are small: prefix sums may wrap around 2^64 and their differences are still exact.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.partition.costs import (
    TINY,
    Row,
    cost,
    cost_of,
    is_sorted,
    numbers,
    on_grid,
    penalties,
    trace,
)

__all__ = ["cost", "k_groups_sorted", "optimal_sorted"]

_ROOM = 61  # bits for the largest sum of squares


def _sorted_numbers(h: ArrayLike) -> Row:
    x = numbers(h)
    if not is_sorted(x):
        raise UsageError("this partition needs sorted numbers; sort them first, or use optimal_runs.")
    return x


def optimal_sorted(h: ArrayLike, *, beta: float, a: float, b: float) -> Ints:
    """Return the least-cost partition of sorted numbers: O(n log n) time, O(n) memory.

    Exact for integers while n times the square of the band is below 2^61, and with two-limb sums while n
    times the band itself is; beyond that, and for floats, the numbers are first rounded to a power-of-two
    grid that is at most n 2^-60 of the band.
    """
    x = _sorted_numbers(h)
    beta, a, b = penalties(beta, a, b)
    return trace(_solve_sorted(x, beta, a, b))


def _solve_sorted(x: Row, beta: float, a: float, b: float) -> Ints:
    n = x.size
    band = 2.0 * math.sqrt(2.0 * (beta + 2.0 * a / (b + 1.0) - a / (b + 2.0)))
    span = float(x[-1]) - float(x[0])
    band = max(min(band, span) * (1 + 1e-9), TINY)
    if x.dtype == np.int64 and math.log2(n) + 2 * math.log2(band + 1) < _ROOM:
        return _least_cuts(cast(Ints, x), math.ceil(band), 0, beta, a, b)
    room = _ROOM - math.log2(n)
    exponent = math.floor(room - 1 - math.log2(band))
    top = max(abs(float(x[0])), abs(float(x[-1])), TINY)
    exponent = min(exponent, math.floor(61.99 - math.log2(top)))
    fine, unit = on_grid(x, exponent)
    if unit != 1.0:
        beta, a = beta / unit**2, a / unit**2
    return _least_cuts(fine, math.ceil(band / unit) + 1, int(room / 2), beta, a, b)


def _least_cuts(h: Ints, band: int, bits: int, beta: float, a: float, b: float) -> Ints:
    """Return the start of the last group of the best partition of h[:j], for j = 0..n."""
    n = h.size
    one, two, first, back = np.zeros((4, n + 1), np.int64)
    hh, hl, ll = np.zeros((3, n + 1 if bits else 1), np.int64)
    best = np.full(n + 1, np.inf)
    _add_up(h, bits, one, two, hh, hl, ll)
    left, right, halved = np.zeros(70, np.int64), np.zeros(70, np.int64), np.zeros(70, np.bool_)
    _search(h, band, bits, beta, a, b, one, two, hh, hl, ll, first, left, right, halved, best, back)
    return back


@kernel
def _search(
    h: Ints,
    band: int,
    bits: int,
    beta: float,
    a: float,
    b: float,
    one: Ints,
    two: Ints,
    hh: Ints,
    hl: Ints,
    ll: Ints,
    first: Ints,
    left: Ints,
    right: Ints,
    halved: NDArray[np.bool_],
    best: Floats,
    back: Ints,
) -> None:
    """Write the least costs of h[:j], over infinities, and the starts of their last groups, over zeros.

    Divide and conquer on the ends (l, r]: the best start for the middle lies between those of l and of r, and
    starts in (l, m] are offered to r once they are final. Each level looks at each start once. ``first`` gets
    the first start inside the band of each end; the three after it are stacks.
    """
    n = h.size
    i = 0
    for j in range(1, n + 1):
        # Unsigned, because the numbers may be further apart than an int64 holds.
        while np.uint64(h[j - 1]) - np.uint64(h[i]) > np.uint64(band):
            i += 1
        first[j] = i
    best[0] = 0.0
    right[0] = n
    top = 0
    lo, hi, j = first[n], first[0], n  # start 0 is offered to the last end, if it is in its band
    while True:
        if bits == 0:
            _offer(best, back, h, one, two, beta, a, b, lo, hi, j)
        else:
            _offer_wide(best, back, h, one, two, hh, hl, ll, bits, beta, a, b, lo, hi, j)
        while top >= 0 and right[top] - left[top] == 1:
            top -= 1
        if top < 0:
            return
        size = left[top]
        r = right[top]
        m = (size + r) // 2
        if halved[top]:
            lo, hi, j = max(size + 1, first[r]), m, r
            left[top] = m
            halved[top] = False
        else:
            last = (
                back[r] if best[r] < np.inf else size
            )  # no start up to size reaches r: all of them may serve m
            lo, hi, j = max(back[size], first[m]), last, m
            halved[top] = True
            top += 1
            left[top] = size
            right[top] = m
            halved[top] = False


@kernel
def _add_up(h: Ints, bits: int, one: Ints, two: Ints, hh: Ints, hl: Ints, ll: Ints) -> None:
    """Write prefix sums modulo 2^64 of h, h^2; with bits, of h, H, H^2, HL, L^2 where h = H 2^bits + L."""
    for k in range(h.size):
        x = h[k]
        one[k + 1] = one[k] + x
        if bits == 0:
            two[k + 1] = two[k] + x * x
        else:
            high = x >> bits
            low = x - (high << bits)
            two[k + 1] = two[k] + high
            hh[k + 1] = hh[k] + high * high
            hl[k + 1] = hl[k] + high * low
            ll[k + 1] = ll[k] + low * low


# The two offers are functions of their own, with every array an argument: one function with a branch, a table
# or a tuple of the sums takes twice as long.
@subkernel
def _offer(
    best: Floats,
    back: Ints,
    h: Ints,
    one: Ints,
    two: Ints,
    beta: float,
    a: float,
    b: float,
    lo: int,
    hi: int,
    j: int,
) -> None:
    """Let the starts lo..hi compete for the group that ends at j; the first of equals wins."""
    least = best[j]
    start = back[j]
    c = h[j - 1]  # measured from here the wrapped sums are small again
    for i in range(lo, hi + 1):
        size = j - i
        d = one[j] - one[i]
        s = np.float64(d - size * c)
        q = np.float64((two[j] - two[i]) - 2 * c * d + size * c * c)
        v = best[i] + (q - s * s / size + beta + a / (b + size))
        if v < least:
            least = v
            start = i
    best[j] = least
    back[j] = start


@subkernel
def _offer_wide(
    best: Floats,
    back: Ints,
    h: Ints,
    one: Ints,
    two: Ints,
    hh: Ints,
    hl: Ints,
    ll: Ints,
    bits: int,
    beta: float,
    a: float,
    b: float,
    lo: int,
    hi: int,
    j: int,
) -> None:
    """Do the same where the sum of squares may exceed 64 bits: its three parts do not."""
    least = best[j]
    start = back[j]
    c = h[j - 1]
    unit = np.float64(np.int64(1) << bits)
    u = c >> bits
    w = c - (u << bits)
    for i in range(lo, hi + 1):
        size = j - i
        d = one[j] - one[i]
        s = np.float64(d - size * c)
        high = two[j] - two[i]
        low = d - (high << bits)
        x = (hh[j] - hh[i]) - u * (2 * high - size * u)
        y = (hl[j] - hl[i]) - u * low - w * (high - size * u)
        z = (ll[j] - ll[i]) - w * (2 * low - size * w)
        q = (np.float64(x) * unit + 2.0 * np.float64(y)) * unit + np.float64(z)
        v = best[i] + (q - s * s / size + beta + a / (b + size))
        if v < least:
            least = v
            start = i
    best[j] = least
    back[j] = start


def k_groups_sorted(h: ArrayLike, k: int) -> Ints:
    """Return the partition of sorted numbers into exactly k groups of least SSE.

    The least SSE is convex in the number of groups (the costs satisfy the quadrangle inequality), so a price
    per group finds every corner of it: about ten O(n log n) searches. Where k lies on a straight piece
    between two corners, the partitions of the corners are spliced, which is optimal by the same inequality.
    """
    x = _sorted_numbers(h)
    if not 1 <= k <= x.size:
        raise UsageError(f"{x.size} numbers cannot be cut into {k} groups; choose 1 to {x.size}.")
    return _price_search(x, int(k))[0]


def _price_search(x: Row, k: int) -> tuple[Ints, float]:
    """Return the best k groups and a price per group at which they (or their neighbours) are best."""
    n = x.size
    changes = np.flatnonzero(x[1:] != x[:-1]) + 1
    if k > changes.size:  # no error is left; the surplus cuts may fall anywhere
        free = np.setdiff1d(np.arange(1, n), changes, assume_unique=True)[: k - 1 - changes.size]
        return np.concatenate([[0], np.sort(np.concatenate([changes, free])), [n]]).astype(np.int64), 0.0
    few = np.array([0, n])  # too few groups, and the price that gives them
    many = np.concatenate([[0], changes, [n]])
    sse_few, sse_many = cost_of(x, few, 0.0, 0.0, 0.0), 0.0
    price_few, price_many = math.inf, 0.0
    if k == 1:
        return few, sse_few
    price = sse_few / k**3 * 2.0
    if n >= 64 * k:  # every eighth number costs an eighth
        price = 8.0 * _price_search(x[::8].copy(), k)[1] or price
    for step in range(200):
        middle = trace(_solve_sorted(x, price, 0.0, 0.0))
        m = middle.size - 1
        sse = cost_of(x, middle, 0.0, 0.0, 0.0)
        if m == k:
            return middle, price
        chord = (sse_few - sse_many) / (many.size - few.size)
        if price == chord and sse + price * m >= (sse_few + price * (few.size - 1)) * (1 - 1e-14):
            break  # a straight piece of the curve: no corner between the two
        if m < k:
            few, sse_few, price_few = middle, sse, price
        else:
            many, sse_many, price_many = middle, sse, price
        chord = (sse_few - sse_many) / (many.size - few.size)
        if price_few == math.inf or price_many == 0.0:
            price = price * min(max((m / k) ** 3, 0.02), 50.0) if step < 20 else chord
        else:
            lo, hi = few.size - 1, many.size - 1
            t = math.log(k / lo) / math.log(hi / lo)
            guess = price_few * (price_many / price_few) ** t
            price = guess if hi - lo > 3 and step % 4 != 3 and price_many < guess < price_few else chord
    return _splice(few, many, k), price


def _splice(few: Ints, many: Ints, k: int) -> Ints:
    """Return k groups made of the beginning of one partition and the end of the other.

    Where a group of ``few`` contains the group of ``many`` that lies k - len(few) places later, crossing over
    costs nothing: the two crossed partitions together cost no more than the two given ones.
    """
    ahead = k - (few.size - 1)
    shifted = many[ahead : ahead + few.size]
    i = int(np.flatnonzero(shifted[1:] <= few[1 : shifted.size])[0])
    return np.concatenate([many[: i + ahead + 1], few[i + 1 :]])
