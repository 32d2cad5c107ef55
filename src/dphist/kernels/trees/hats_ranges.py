"""Variances of many ranges of bins under hats, by selected inversion and by sweeps from cuts.

Let M be the matrix that `hats_fit` factorises, y normal with covariance M^-1, and g the sums of weight times
own variance of a range under every hat. The range's variance is the sum of its bins' own ones less Var(g'y).
Hats that do not overlap have no entry in M. So the hats over a cut make y on its left independent of y on its
right, and of M^-1 only the entries of hats that overlap are ever needed: those in the rows of the factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dphist.domain.groups import Floats, Ints, frozen
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.hats import HatShape, Weights

_BLOCK = 1 << 12  # segments or hats that are gone through at once


class Segments(NamedTuple):
    """The runs of bins under the same hats, and what is known of y for the hats over each.

    Args:
        edge: where each segment begins and, last, the number of bins.
        over: the hats over each segment, rising, then -1; the other arrays have zeros there.
        ends: of each hat the bin after its last; then, of each, its first bin.
        covariance: of y, for the hats over each segment.
        links: how the best guess of a hat's y is made of those over its last segment that end later; then,
            of those over its first segment that begin earlier.
    """

    edge: Ints
    over: Ints
    ends: Ints
    covariance: Floats
    links: Floats


class Sums(NamedTuple):
    """Sums over the first bins of each segment, up to some places of it.

    Args:
        places: rising, the ends of all segments among them.
        sums: one segment after the other, up to each of its places: the sums of weight times own variance
            under each of its hats, and then of the own variances alone.
    """

    places: Ints
    sums: Floats


def make_segments(hats: HatShape, base: Ints, factor: Floats) -> Segments:
    """Return the segments: O(levels^3) for each hat, and O(n) for each level.

    Args:
        base: where the row of each hat would begin in ``factor``, did it begin with the first hat.
    """
    first, last = hats.first, hats.first + np.diff(hats.offset)
    edge = np.unique(np.concatenate(([0, hats.n], first, last)))
    begin, end = np.searchsorted(edge, first), np.searchsorted(edge, last)
    count = np.cumsum(np.bincount(begin, minlength=edge.size) - np.bincount(end, minlength=edge.size))
    most = int(count.max())
    over = _list_hats(begin, end, edge.size - 1, most)
    inverse = np.empty(factor.size)
    _invert(over, end - 1, base, factor, inverse, np.empty(most))
    covariance = _gather(over, base, inverse)
    del inverse
    links = np.empty((2, base.size, most))
    _link(over, covariance, end - 1, np.arange(0, -base.size, -1), links[0])
    _link(over, covariance, begin, np.lexsort((last, first)).argsort(), links[1])
    return Segments(edge, over, np.stack((last, first)), covariance, links)


def make_sums(known: Segments, hats: HatShape, own: Floats, places: Ints) -> Sums:
    """Return the sums up to some places, or to all: O(n) for each level, and their memory for each place.

    Args:
        own: the variance of each bin from its own query alone.
        places: rising, the ends of all segments among them.
    """
    edge, over = known.edge, known.over
    skipped, step = hats.offset[:-1] - hats.first, over.shape[1] + 1
    if places.size > hats.n:  # every place is passed on the way to the end of its segment
        segment, width, passed = np.arange(edge.size - 1), np.diff(edge), step
        row = edge[:-1] + segment
    else:
        segment, passed = np.searchsorted(edge, places[1:]) - 1, 0
        row, width = np.arange(1, places.size) + segment, places[1:] - edge[segment]
    sums = np.zeros((places.size + edge.size - 1, step))
    ones, out = frozen(np.ones(int(width.max()), np.int32)), sums.ravel()
    for some in _blocks(segment.size):
        these, widths, at = segment[some], width[some], row[some] * step
        none = frozen(np.zeros(these.size, np.int64))
        running_sums(frozen(edge[these]), none, widths, ones, own, at + step - 1, passed, out)
        r, x = np.nonzero(over[these] >= 0)
        begin, hat = edge[these[r]], over[these[r], x]
        where = frozen(skipped[hat] + begin)
        running_sums(frozen(begin), where, widths[r], hats.weights, own, at[r] + x, passed, out)
    return Sums(places, sums)


def range_variances(known: Segments, known_sums: Sums, lo: Ints, hi: Ints) -> Floats:
    """Return the variance of each range of bins [lo, hi), none empty: O(levels^2) for each, and the sweeps.

    A range is cut before that of its segments whose number has the most trailing zeros. Ranges for which
    these are as many share their sweeps: O(levels^2) for every segment between a cut and the ranges' ends.

    Args:
        known_sums: all begins and ends are among their places.
    """
    (places, sums), edge, ends = known_sums, known.edge, known.ends
    if places.size <= edge[-1]:  # bins between two places are as one
        edge, ends, lo, hi = (np.searchsorted(places, at) for at in (edge, ends, lo, hi))
    of_bin = np.repeat(np.arange(edge.size - 1), np.diff(edge))
    first, last = of_bin[lo], of_bin[hi - 1]
    bits = np.frexp((first ^ last).astype(np.float64))[1]  # up to the highest in which they differ
    segments, most = known.over.shape
    out = np.empty(lo.size)
    for b in np.unique(bits).tolist():
        these = np.flatnonzero(bits == b)
        a, z, s, t = (x[these] for x in (lo, hi, first, last))
        if b == 0:
            found = np.empty(s.size)
            _inside(s, a + s, z + s, sums, known.covariance, found)
            out[these] = found
        else:
            place = np.zeros(
                segments, np.int64
            )  # of its state; segments that nobody asks for share the first
            place[s] = place[t] = 1
            asked = np.flatnonzero(place)
            place[asked] = np.arange(1, asked.size + 1)
            state = np.zeros((asked.size + 1, most + 1, most + 1))
            _sweep_all(
                edge, known.over, ends, sums, known.covariance, known.links, s, t,
                t >> b - 1 << b - 1, np.arange(segments), np.arange(segments), np.empty((2, most), np.int64),
                np.empty((most, most)), np.empty((most + 1, most + 1)), place, state,
            )  # fmt: skip
            row, parts = np.full(of_bin.size, -1), np.empty((min(2 * a.size, of_bin.size), most + 1))
            _list_parts(edge, sums, known.covariance, place, state, s, t, a, z, row, parts)
            found = np.empty(a.size)
            _join(parts, row[a], row[z - 1], found)
            out[these] = found
    return out


def _list_hats(begin: Ints, end: Ints, segments: int, most: int) -> Ints:
    """Return the hats over each segment, rising, then -1."""
    over = np.full((segments, most), -1)
    for some in _blocks(segments):
        these = np.flatnonzero((begin < some.stop) & (end > some.start))
        first = np.maximum(begin[these], some.start)
        width = np.minimum(end[these], some.stop) - first
        hat = np.repeat(these, width)
        segment = np.arange(hat.size) + np.repeat(first - (np.cumsum(width) - width), width)
        order = np.argsort(segment, kind="stable")
        segment, many = segment[order], np.bincount(segment - some.start, minlength=some.stop - some.start)
        before = (np.cumsum(many) - many)[segment - some.start]
        over[segment, np.arange(hat.size) - before] = hat[order]
    return over


@kernel
def running_sums(
    first: Ints, where: Ints, width: Ints, weights: Weights, x: Floats, at: Ints, step: int, out: Floats
) -> None:
    """Write the sums of weight times x over the first 1, 2, ... bins of each run.

    Args:
        first: the first bin of each run, whose weight is the one at ``where``.
        at: where the sum over no bin of each run belongs, which is not written.
        step: how far apart the sums are written; if 0, the sum over the whole run is what stays.
    """
    for run in range(first.size):
        total, k = 0.0, at[run]
        for i in range(width[run]):
            total += weights[where[run] + i] * x[first[run] + i]
            k += step
            out[k] = total


@kernel
def _invert(over: Ints, at: Ints, base: Ints, factor: Floats, inverse: Floats, column: Floats) -> None:
    """Write M^-1 in the rows of the factor: Takahashi's recursion, from the last hat back.

    The later hats that a hat overlaps all hold its last bin. So they are over its last segment, ``at``, and
    overlap each other: no entry is asked for that is not in the rows.
    """
    most = over.shape[1]
    for h in range(base.size - 1, -1, -1):
        s, root = at[h], factor[base[h] + h]
        own = 1.0 / (root * root)
        for x in range(most):
            column[x] = factor[base[over[s, x]] + h] / root if over[s, x] > h else 0.0
        for x in range(most):
            i = over[s, x]
            if i > h:
                total = 0.0
                for y in range(most):
                    j = over[s, y]
                    if j > i:
                        total -= column[y] * inverse[base[j] + i]
                    elif j > h:
                        total -= column[y] * inverse[base[i] + j]
                inverse[base[i] + h] = total
                own -= column[x] * total
        inverse[base[h] + h] = own


def _gather(over: Ints, base: Ints, inverse: Floats) -> Floats:
    """Return the covariance of y for the hats over each segment."""
    segments, most = over.shape
    covariance = np.zeros((segments, most, most))
    for some in _blocks(segments):
        hats, own = over[some], covariance[some]
        for x in range(most):
            held = np.flatnonzero(hats[:, x] >= 0)
            for y in range(x + 1):
                own[held, x, y] = own[held, y, x] = inverse[base[hats[held, x]] + hats[held, y]]
    return covariance


def _blocks(n: int) -> list[slice]:
    """Return slices of as many rows as a processor's nearest memory holds."""
    return [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]


def _link(over: Ints, covariance: Floats, at: Ints, rank: Ints, links: Floats) -> None:
    """Write every hat's links to those of a lower rank among the hats over the segment ``at``.

    Of each hat these come first, then the hat itself, then what is left: so many rows and columns of the
    Cholesky factor as it needs are those of its own covariance, and the others are not looked at.
    """
    for some in _blocks(at.size):
        near = over[at[some]]
        lower = (near >= 0) & (rank[near] < rank[some, np.newaxis])
        itself = near == np.arange(some.start, some.stop)[:, np.newaxis]
        slots = np.argsort(2 - 2 * lower - itself, axis=1, kind="stable")
        found = _solved(covariance[at[some]], slots.T, lower.sum(axis=1))
        np.put_along_axis(links[some], slots, found.T, axis=1)


def _solved(covariance: Floats, slot: Ints, k: Ints) -> Floats:
    """Return the links of some hats to the first k of their slots, by Cholesky factors, and zeros."""
    most, hats = slot.shape
    root, found, each = np.empty((most, most, hats)), np.zeros((most, hats)), np.arange(hats)
    with np.errstate(all="ignore"):
        for a in range(most):
            for b in range(a + 1):
                total = covariance[each, slot[a], slot[b]]
                for c in range(b):
                    total -= root[a, c] * root[b, c]
                root[a, b] = np.sqrt(total) if a == b else total / root[b, b]
        last = root[k, :, each].T
        for a in range(most - 2, -1, -1):
            total = last[a].copy()
            for b in range(a + 1, most - 1):
                np.subtract(total, root[b, a] * found[b], out=total, where=b < k)
            np.divide(total, root[a, a], out=found[a], where=a < k)
    return found


@subkernel
def _take_root(covariance: Floats, slot: Ints, k: int | np.int64, root: Floats) -> None:
    """Write the lower Cholesky factor of the covariance of the first k slots."""
    for a in range(k):
        for b in range(a + 1):
            total = covariance[slot[a], slot[b]]
            for c in range(b):
                total -= root[a, c] * root[b, c]
            root[a, b] = np.sqrt(total) if a == b else total / root[b, b]


@kernel
def _inside(segment: Ints, begin: Ints, end: Ints, sums: Floats, covariance: Floats, out: Floats) -> None:
    """Write the variances of ranges that lie in one segment each, given as rows of ``sums``."""
    most = covariance.shape[1]
    for r in range(segment.size):
        s, a, b = segment[r], begin[r], end[r]
        out[r] = sums[b, most] - sums[a, most]
        for x in range(most):
            weight = sums[b, x] - sums[a, x]
            taken = weight * covariance[s, x, x]
            for y in range(x):
                taken += 2.0 * (sums[b, y] - sums[a, y]) * covariance[s, x, y]
            out[r] -= weight * taken


# The y of the hats over a cut are sums of independent e_1, e_2, ... of variance 1. The state of a segment is
# about the range between a cut and that segment. It has a row for each of the segment's hats: the covariance
# of its y with g'y of the range, then with every e. The last row has the variance of the range, then the
# covariances of g'y with every e. With every bin that joins the range, that row is what changes.


@subkernel
def _extend(
    s: int,
    place: int,
    begin: int,
    end: int,
    sums: Floats,
    covariance: Floats,
    state: Floats,
    out: Floats,
    row: int | np.int64,
) -> None:
    """Write the last row of a segment's state once a part of it, given as rows of ``sums``, has joined."""
    most = covariance.shape[1]
    for e in range(most + 1):
        out[row, e] = state[place, most, e]
    variance = sums[end, most] - sums[begin, most]
    for x in range(most):
        weight = sums[end, x] - sums[begin, x]
        taken = weight * covariance[s, x, x] + 2.0 * state[place, x, 0]
        for y in range(x):
            taken += 2.0 * (sums[end, y] - sums[begin, y]) * covariance[s, x, y]
        variance -= weight * taken
        for e in range(1, most + 1):
            out[row, e] += weight * state[place, x, e]
    out[row, 0] += variance


@kernel
def _sweep_all(
    edge: Ints,
    over: Ints,
    ends: Ints,
    sums: Floats,
    covariance: Floats,
    links: Floats,
    first: Ints,
    last: Ints,
    cut: Ints,
    low: Ints,
    high: Ints,
    hats: Ints,
    root: Floats,
    rows: Floats,
    place: Ints,
    state: Floats,
) -> None:
    """Sweep both sides of every cut as far as a range reaches; no segment is beside two cuts.

    Args:
        low: the numbers of the segments, which become the first that is to be reached from each cut.
        high: the numbers of the segments, which become the last that is to be reached from each cut.
        hats, root, rows: room for what a sweep needs; what it holds does not matter.
        place: where the state of each segment is written; what nobody asks for is written over.
    """
    for r in range(first.size):
        low[cut[r]] = min(low[cut[r]], first[r])
        high[cut[r]] = max(high[cut[r]], last[r])
    for c in range(low.size):
        if low[c] < c:
            for side in range(2):  # 0 goes left, 1 goes right
                _begin(edge[c], over[c], ends[1], covariance[c], hats, root, rows)
                stop = high[c] if side else low[c]
                _sweep(
                    edge, over, ends[side], sums, covariance, links[side], side, c, stop, hats[0], rows,
                    place, state,
                )  # fmt: skip


@subkernel
def _sweep(
    edge: Ints,
    over: Ints,
    ends: Ints,
    sums: Floats,
    covariance: Floats,
    links: Floats,
    side: int,
    cut: int,
    stop: int,
    before: Ints,
    rows: Floats,
    place: Ints,
    state: Floats,
) -> None:
    """Write the states of all segments between a cut and ``stop``; the last row is what is reached."""
    most = over.shape[1]
    s = cut - 1 + side
    while True:
        own = state[place[s]]
        _enter(side, edge[s + 1 - side], over[s], ends, links, before, rows, own)
        for e in range(most + 1):
            own[most, e] = rows[most, e]
        if s == stop:
            return
        begin, end = edge[s] + s, edge[s + 1] + s
        _extend(s, place[s], begin, end, sums, covariance, state, rows, most)
        for x in range(most):
            before[x] = over[s, x]
            for e in range(most + 1):
                rows[x, e] = own[x, e]
            for y in range(most):
                rows[x, 0] += (sums[end, y] - sums[begin, y]) * covariance[s, x, y]
        s += 2 * side - 1


@subkernel
def _begin(
    edge: int, over: Ints, first: Ints, covariance: Floats, hats: Ints, root: Floats, rows: Floats
) -> None:
    """Write the hats over a cut, then -1, below them their slots, and their rows while the range is empty."""
    for x in range(rows.shape[0]):
        for e in range(rows.shape[1]):
            rows[x, e] = 0.0
    k = np.int64(0)
    for x in range(over.size):
        hats[0, x] = -1
        if over[x] >= 0 and first[over[x]] < edge:
            hats[0, k] = over[x]
            hats[1, k] = x
            k += 1
    _take_root(covariance, hats[1], k, root)
    for a in range(k):
        for b in range(a + 1):
            rows[a, b + 1] = root[a, b]


@subkernel
def _enter(
    side: int,
    edge: int,
    over: Ints,
    ends: Ints,
    links: Floats,
    before: Ints,
    rows: Floats,
    state: Floats,
) -> None:
    """Write the rows of a segment's hats: those of the segment before, and the new ones by their links."""
    y = 0
    for x in range(over.size):
        if over[x] >= 0 and ends[over[x]] != edge:
            while before[y] != over[x]:
                y += 1
            for e in range(rows.shape[1]):
                state[x, e] = rows[y, e]
    for i in range(over.size):
        x = i if side else over.size - 1 - i  # those that are linked to come first
        if over[x] >= 0 and ends[over[x]] == edge:
            for e in range(rows.shape[1]):
                state[x, e] = 0.0
            for z in range(over.size):
                if links[over[x], z] != 0.0:
                    for e in range(rows.shape[1]):
                        state[x, e] += links[over[x], z] * state[z, e]


@kernel
def _list_parts(
    edge: Ints,
    sums: Floats,
    covariance: Floats,
    place: Ints,
    state: Floats,
    first: Ints,
    last: Ints,
    lo: Ints,
    hi: Ints,
    row: Ints,
    parts: Floats,
) -> None:
    """Write what becomes of the range from the cut to each end: every end once, ``row`` says where."""
    k = np.int64(0)
    for r in range(lo.size):
        if row[lo[r]] < 0:
            row[lo[r]] = k
            s = first[r]
            _extend(s, place[s], lo[r] + s, edge[s + 1] + s, sums, covariance, state, parts, k)
            k += 1
        if row[hi[r] - 1] < 0:
            row[hi[r] - 1] = k
            s = last[r]
            _extend(s, place[s], edge[s] + s, hi[r] + s, sums, covariance, state, parts, k)
            k += 1


@kernel
def _join(parts: Floats, left: Ints, right: Ints, out: Floats) -> None:
    for r in range(left.size):
        shared = 0.0
        for e in range(1, parts.shape[1]):
            shared += parts[left[r], e] * parts[right[r], e]
        out[r] = parts[left[r], 0] + parts[right[r], 0] - 2.0 * shared
