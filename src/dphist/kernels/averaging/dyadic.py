"""Averages over all dyadic partitions of noisy counts: a posterior mean, which never sees an exact count.

A block of neighbouring bins is explained in one of several ways, or split into halves, which are explained by
themselves. The ways, for noise of scale 1 and a level l:

* even: all bins have the level, or all are empty;
* outliers: most bins have the level, and a few lie anywhere;
* dispersed: the bins lie about the level, at distances of a Laplace law whose scale is the block's own;
* with a prior: the same three about a multiple of the prior's counts instead of one level;
* on a grid, drawn: each cell by itself has a count by the law of all cells' counts (`sizes`); its neighbours
  do not matter.

The level is the median of the noisy counts, which maximises the likelihood of Laplace noise; its own prior
is a heavy tail about the level of the block before, mixed with a scale-free law. The evidence of a block is
the likelihood times the volume of likely levels. How often each way is taken in blocks of each size is learnt
from the noisy counts themselves (expectation maximisation). Sums over all partitions go from the bins up,
the average over them goes down: O(n log n) for each of several trees, which differ by a shift (a grid's trees
are quadtrees cut into halves; `rectangles` has more blocks). `partitions` has the average over trees.

Nothing here is random, and all results are finite for every finite input.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints, frozen
from dphist.kernels import kernel, subkernel
from dphist.kernels.averaging import GOLDEN
from dphist.kernels.averaging.sizes import drawn

# Chosen on seven public histograms of 4,096 bins (DPBench) and twelve made-up shapes: see docs/constants.md.
SPIKE = 0.5  # how likely an even block is empty
FEW = 64  # bins that are worth as much as the opinion that bins are alike: a few bins are left alone
LOCAL, TAIL = 0.5, 0.5  # the part of the heavy tail in the prior of a level, and its exponent
OUTLIERS, FAR = 0.05, (2.0, 6.0, 20.0, 60.0, 200.0, 600.0)  # how many bins lie apart, and how far
SCALES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 32.0, 64.0, 128.0)  # of dispersed bins
WIDE, WIDER = 0.1, 5.0  # the part of dispersed bins that lie this much farther
MOVED, MOVED_STEPS = 4.0, 1.4  # dispersed bins of less than this scale, or steps, are moved
SMALLEST, LARGEST = 2, 10  # levels whose blocks may have outliers or be dispersed
SHARPNESS = 32.0  # nats of evidence, for each bin, by which a tree's weight is multiplied
ROUNDS = 2  # of expectation maximisation
LEARN, LEARN_BLOCK = 1 << 16, 1 << 12  # of more bins, blocks of so many are learnt from
MEDIANS = 32  # larger blocks have their level by one Newton step from their halves'
MANY = 1 << 19  # bins times trees: more bins have fewer trees

WAYS = 3  # even, outliers, dispersed
SPLIT = 0  # the column of splits among the odds; way k about shape s has 1 + 3 s + k, drawn bins the last
_CELLS, _TOP = 768, 24.0  # of the tables
_NOTHING = 1e-9  # of the largest count of a prior: less is 0
_PLASTIC = (0.7548776662466927, 0.5698402909980532)
KEPT = 1 << 12  # bins, up to which the trees over them are kept: making these takes as long as using them
HEIGHT = 64  # more levels than any tree has
Places: TypeAlias = NDArray[np.int32]
SLIGHT = 1e-6  # parts of a block whose bins differ below this are left at the noisy counts


class Tables(NamedTuple):
    """Logarithms of likelihoods, and how far a bin lies from the level on average, by its noisy distance.

    Outliers have a row in steps of the distance's root, dispersed bins of each scale a row in even steps.
    """

    far: Floats
    far_moved: Floats
    spread: Floats
    spread_moved: Floats
    per_step: Floats
    scales: Floats
    until: Floats  # mean distances up to which a scale is the nearest one


class Explained(NamedTuple):
    """A tree over the bins of each line, and the evidence of every way to explain each of its nodes.

    The evidence of way k about shape s has row 1 + 3 s + k, as the odds have a column, and that of drawn bins
    the last; that of single bins is in ``leaves``. What is said of drawn bins has the rows of `Drawn`, or
    there is no such way.
    """

    lines: int
    z: Floats
    shapes: Floats
    offset: Ints
    start: Places
    first: Places
    levels: Floats
    empty: Floats
    scales: NDArray[np.int8]
    leaves: Floats
    evidence: Floats
    sizes: Floats | None


def first_odds(shapes: int, trust: float, *, by_size: bool = False) -> Floats:
    """Return how often each way is taken before anything is learnt: even blocks and splits mostly."""
    odds = np.full((HEIGHT, 1 + WAYS * shapes + by_size), 0.05 * trust)
    odds[:, SPLIT] = 0.45
    odds[:, _even(odds.shape[1])] = 0.45 / shapes * trust
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _even(columns: int) -> slice:
    """Return which columns of odds are those of even blocks."""
    return slice(1, 1 + WAYS * ((columns - 1) // WAYS), WAYS)


def sizes_of(z: Floats) -> Floats:
    """Return what the law of all counts of a line says of each: the rows of `Drawn`, by line."""
    made = [drawn(line, line if line.size <= LEARN else line[sampled(line.size)]) for line in z]
    return np.ascontiguousarray(np.array(made).transpose(1, 0, 2))


def log_evidence(noisy: Floats, scale: float, *, shifts: int) -> float:
    """Return the logarithm of the evidence of all dyadic partitions of a line, the mean of some trees'.

    It is over the density of noise that is 0, for each bin. The odds are learnt as for averages.
    """
    n, found = noisy.size, 0.0
    z, shapes, tables, trust = noisy[None] / scale, shapes_of(None, n), tables_for(len(SCALES)), n / (n + FEW)
    log_odds = np.log(first_odds(1, trust)[None])
    for tree in range(shifts):
        _, layout = (_kept if n <= KEPT else _tree)(n, None, 1, tree)
        explained = explain(z, shapes, layout, tables, trust)
        if tree == 0:
            log_odds = _learn(explained, log_odds, trust)
        found += _weighed(explained, log_odds)[0]
    return found / shifts


def sampled(n: int) -> Ints:
    """Return blocks of many bins, far apart: enough to learn from."""
    blocks = LEARN // LEARN_BLOCK
    begin = np.arange(blocks) * (n - LEARN_BLOCK) // (blocks - 1) // LEARN_BLOCK * LEARN_BLOCK
    return (begin[:, None] + np.arange(LEARN_BLOCK)).ravel()


def _sample(found: Explained, tables: Tables, trust: float) -> Explained:
    """Return some of the bins of each line."""
    n = found.z.size // found.lines
    bins = sampled(n)
    sizes = None
    if found.sizes is not None:
        each = found.sizes.reshape(3, found.lines, n)[..., bins]
        sizes = np.ascontiguousarray(each).reshape(3, -1)
    z, layout = found.z.reshape(found.lines, n)[:, bins], laid_out(np.arange(LEARN), found.lines)
    shapes = np.ascontiguousarray(found.shapes[:, bins])  # of another layout a loop would be compiled again
    return explain(z, shapes, layout, tables, trust, sizes)


def _learn(found: Explained, log_odds: Floats, trust: float) -> Floats:
    """Return the logarithm of how often blocks of each size take each way, by what one tree found (EM)."""
    for _ in range(ROUNDS):
        post, ways = np.empty_like(found.evidence), np.empty(log_odds.shape[-1])
        _upward(found.offset, found.first, found.leaves.copy(), found.evidence, log_odds, ways, post)
        log_odds = np.log(next_odds(_reached(found.offset, found.first, post, found.lines), trust))
    return log_odds


def next_odds(taken: Floats, trust: float) -> Floats:
    """Return shares of ways from how often they were taken, none of them 0."""
    common = np.zeros(taken.shape[-1], bool)
    common[SPLIT] = common[_even(common.size)] = True
    before = np.where(common, 1.0, 0.1) * trust
    before[SPLIT] = 1.0
    counts = taken + before
    shares = counts / counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.clip(shares, np.where(common, 0.02, 0.001), 0.98))


@cache
def tables_for(moving: int) -> Tables:
    """Return the tables in which the bins of the first few scales of dispersion are moved."""
    roots = (np.arange(_CELLS + 2) * _TOP / _CELLS) ** 2
    apart = [between(r, roots) for r in FAR]
    likely, mean = (sum(each) / len(FAR) for each in zip(*apart, strict=True))
    likely = (1 - OUTLIERS) * np.exp(-roots) + OUTLIERS * likely
    spread, moves, per = [], [], []
    for k, r in enumerate(SCALES):
        gaps = np.arange(_CELLS + 2) * _TOP * (1 + r) / _CELLS
        near, wide = between(r, gaps), between(r * WIDER, gaps)
        density, sums = ((1 - WIDE) * a + WIDE * b for a, b in zip(near, wide, strict=True))
        spread.append(np.log(density))
        moves.append(sums / density if k < moving else gaps)
        per.append(_CELLS / _TOP / (1 + r))
    scales = np.array(SCALES)
    middle = np.sqrt(scales[1:] * scales[:-1])
    until = np.append((1 + middle + middle**2) / (1 + middle), np.inf)
    return Tables(
        np.log(likely), OUTLIERS * mean / likely, np.array(spread), np.array(moves), np.array(per), scales,
        until,
    )  # fmt: skip


def between(r: float, gap: Floats) -> tuple[Floats, Floats]:
    """Return the density of a noisy distance, over that of noise at 0, and the integral of the true distance.

    The true distance u has the Laplace law of scale r, the noise that of scale 1: integrals over u of
    exp(-|u| / r - |gap - u|) / 2r and of u times it, from -infinity to 0, to gap, to infinity.
    """
    r = r if abs(r - 1) > 1e-4 else 1.0001  # the limit, near enough
    out, inside = 1 + 1 / r, 1 / r - 1
    noise, prior = np.exp(-gap), np.exp(-gap / r)
    below, above = noise / out, prior / out
    middle = (noise - prior) / inside
    first = -below / out + (noise / inside**2 - prior * (1 / inside**2 + gap / inside))
    first += above * (gap + 1 / out)
    return (below + middle + above) / (2 * r), first / (2 * r)


def shapes_of(prior: Floats | None, n: int) -> Floats:
    """Return what blocks may be multiples of, a row each: one level, and the prior if there is any of it."""
    even = np.ones((1, n))
    if prior is None or not (top := float(np.max(prior))) > 0:
        return even
    believed = np.maximum(np.asarray(prior, dtype=np.float64).reshape(1, n) / top, 0.0)
    return np.concatenate((even, np.where(believed > _NOTHING, believed, 0.0)))


def back(values: Floats, order: Ints | slice) -> Floats:
    """Return numbers of a tree's leaves as numbers of the bins."""
    if isinstance(order, slice):
        return values
    made = np.empty_like(values)
    made[:, order] = values
    return made


def _tree(
    n: int, shape: tuple[int, int] | None, lines: int, tree: int
) -> tuple[Ints | slice, tuple[Ints, Places, Places]]:
    """Return the bins in the order of a tree's leaves, and the tree over those of each line."""
    order, *keys = _placed(n, shape, tree)
    return order, laid_out(keys.pop(), lines)  # which forgets them as soon as it can


_kept = lru_cache(maxsize=32)(_tree)


def _placed(n: int, shape: tuple[int, int] | None, tree: int) -> tuple[Ints | slice, Ints]:
    """Return the bins in the order of a tree's leaves, and their places there, which may have gaps."""
    if shape is None or 1 in shape:
        span = 1 << (n - 1).bit_length()
        shift = int(tree * GOLDEN % 1.0 * span)
        return slice(None), np.arange(shift, shift + n)
    order, keys = np.empty(n, np.int64), np.empty(n, np.int64)
    _quadtree(*shape, *shifted(shape, tree), order, keys)
    return order, keys


def shifted(shape: tuple[int, int], tree: int) -> tuple[int, int]:
    """Return the place of a shifted grid's first cell."""
    down, right = (
        int(tree * ratio % 1.0 * (1 << (size - 1).bit_length()))
        for ratio, size in zip(_PLASTIC, shape, strict=True)
    )
    return down, right


@kernel
def _quadtree(rows: int, columns: int, down: int, right: int, order: Ints, keys: Ints) -> None:
    """Write the cells of a shifted grid in the order of a quadtree's leaves; squares outside are skipped."""
    depth = 0
    while (1 << depth) < max(rows + down, columns + right):
        depth += 1
    found, key = 0, 0
    while found < order.size:
        r, c = -down, -right
        for bit in range(depth):
            r += ((key >> (2 * bit + 1)) & 1) << bit
            c += ((key >> (2 * bit)) & 1) << bit
        if 0 <= r < rows and 0 <= c < columns:
            order[found] = r * columns + c
            keys[found] = key
            found += 1
            key += 1
            continue
        level = 0  # of the largest square that begins here and lies outside
        while key & ((4 << (2 * level)) - 1) == 0:
            side = 2 << level
            if r < rows and c < columns and r + side > 0 and c + side > 0:
                break
            level += 1
        key += 1 << (2 * level)


def laid_out(keys: Ints, lines: int, most: int = HEIGHT) -> tuple[Ints, Places, Places]:
    """Return where each level begins, and of every node its first bin and its first child.

    Levels above the most are left out.

    Level by level from the leaves up, each with a last entry that is no node: a node ends where the next
    begins, in bins and in children. A node has one or two children. Each level has the nodes of one line
    after those of another.
    """
    height = int(keys[0] ^ keys[-1]).bit_length()
    if lines > 1:
        keys = (keys + (np.arange(lines)[:, None] << height)).ravel()
    bins, children = keys.size, list[Places]()  # the first child of every node and, last, how many there are
    for _ in range(min(height, most)):
        keys = keys >> 1
        begin = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        children.append(np.concatenate(([0], begin, [keys.size]), dtype=np.int32))
        keys = keys[children[-1][:-1]]
    offset = np.cumsum([0, bins + 1, *(each.size for each in children)])
    start, first = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)  # of at most 2^30 nodes
    start[: bins + 1] = np.arange(bins + 1)
    for each, below, begin, end in zip(children, offset[:-2], offset[1:-1], offset[2:], strict=True):
        start[begin:end] = start[below:begin][each]
        first[begin:end] = each + below
    return frozen(offset), frozen(start), frozen(first)


@kernel
def _levels(
    z: Floats,
    q: Floats,
    offset: Ints,
    start: Places,
    first: Places,
    level: Floats,
    away: Floats,
    squares: Floats,
) -> None:
    """Write the level of every node, and how far its bins lie from it together.

    The level is the least absolute deviations fit of z by a multiple of q that is not negative: a weighted
    median for up to ``MEDIANS`` bins, which is there already. Above, the mean of the halves' levels is
    efficient already, and one Newton step mends what small medians lose. ``squares`` are sums of q squared;
    none if q is 1 everywhere, where these are the numbers of bins.
    """
    for i in range(z.size):
        level[i] = max(z[i] / q[i] if q[i] > 0 else 0.0, 0.0)
        away[i] = abs(z[i] - level[i] * q[i])
    for height in range(1, offset.size - 1):
        for node in range(offset[height], offset[height + 1] - 1):
            child = first[node]
            if first[node + 1] - child == 1:
                level[node] = level[child]
                away[node] = away[child]
                continue
            lo, hi, found = start[node], start[node + 1], level[node]
            if hi - lo > MEDIANS:
                mid = start[child + 1]
                left, right = np.float64(mid - lo), np.float64(hi - mid)
                if squares.size > 0:
                    left, right = squares[child], squares[child + 1]
                found = level[child] * left + level[child + 1] * right
                if left + right > 0:
                    found /= left + right
                    slope = 0.0
                    for k in range(lo, hi):
                        slope += q[k] if z[k] > found * q[k] else -q[k]
                    found += slope / (left + right)
            found, gap = max(found, 0.0), 0.0
            for k in range(lo, hi):
                gap += abs(z[k] - found * q[k])
            level[node] = found
            away[node] = gap


@kernel
def _medians(offset: Ints, start: Places, first: Places, ratio: Floats, spare: Floats, level: Floats) -> None:
    """Write the medians of nodes of two children and up to ``MEDIANS`` bins; their bins become sorted."""
    for height in range(1, offset.size - 1):
        for node in range(offset[height], offset[height + 1] - 1):
            lo, hi, child = start[node], start[node + 1], first[node]
            if first[node + 1] - child == 2 and hi - lo <= MEDIANS:
                left, mid = lo, start[child + 1]
                right = mid
                for k in range(hi - lo):
                    if right >= hi or (left < mid and ratio[left] <= ratio[right]):
                        spare[k] = ratio[left]
                        left += 1
                    else:
                        spare[k] = ratio[right]
                        right += 1
                for k in range(hi - lo):
                    ratio[lo + k] = spare[k]
                level[node] = (ratio[(lo + hi - 1) // 2] + ratio[(lo + hi) // 2]) / 2


@kernel
def _weighted_medians(
    offset: Ints,
    start: Places,
    first: Places,
    ratio: Floats,
    weight: Floats,
    total: Floats,
    spare: Floats,
    spare_weight: Floats,
    level: Floats,
) -> None:
    """Write the same of numbers that have weights, given every node's sum of these."""
    for height in range(1, offset.size - 1):
        for node in range(offset[height], offset[height + 1] - 1):
            lo, hi, child = start[node], start[node + 1], first[node]
            if first[node + 1] - child == 2 and hi - lo <= MEDIANS:
                _merge_weighted(ratio, weight, lo, start[child + 1], hi, spare, spare_weight)
                level[node] = _middle(ratio, weight, lo, hi, total[node] / 2)


@subkernel
def _merge_weighted(
    ratio: Floats, weight: Floats, lo: int, mid: int, hi: int, spare: Floats, spare_weight: Floats
) -> None:
    """Merge two sorted halves and their weights."""
    left, right = lo, mid
    for k in range(lo, hi):
        if right >= hi or (left < mid and ratio[left] <= ratio[right]):
            spare[k - lo], spare_weight[k - lo] = ratio[left], weight[left]
            left += 1
        else:
            spare[k - lo], spare_weight[k - lo] = ratio[right], weight[right]
            right += 1
    for k in range(lo, hi):
        ratio[k], weight[k] = spare[k - lo], spare_weight[k - lo]


@subkernel
def _middle(ratio: Floats, weight: Floats, lo: int, hi: int, half: float) -> float:
    """Return the weighted median of sorted numbers: the mean of two where their weights halve the total."""
    below = 0.0
    for k in range(lo, hi):
        below += weight[k]
        if below >= half:
            return float((ratio[k] + ratio[k + 1]) / 2 if below == half and k + 1 < hi else ratio[k])
    return float(ratio[hi - 1])


@kernel
def _evidence(
    z: Floats,
    q: Floats,
    offset: Ints,
    start: Places,
    first: Places,
    level: Floats,
    away: Floats,
    total: Floats,
    squares: Floats,
    far_table: Floats,
    spread: Floats,
    per_step: Floats,
    until: Floats,
    spike: float,
    lines: int,
    lowest: int,
    size: Floats,
    leaves: Floats,
    out: Floats,
    scales: NDArray[np.int8],
    empty: Floats,
) -> None:
    """Write the log evidence of the three ways of every node, over (2 scale) to the power of its bins.

    Args:
        spike: how likely an even block is empty before the noisy counts are seen.
        lowest: the first height whose blocks may have outliers or be dispersed.
        size: room for the sums of absolute values of the nodes of one height.
        leaves: the same of bins, which are always even; none if it is not asked for.
        out: a row for each way, from the nodes above the bins on.
        scales: which scale of dispersion a node has.
        empty: how likely an even block is empty; it may be ``away`` itself, which is read first.
    """
    for height in range(offset.size - 1):
        each = (offset[height + 1] - 1 - offset[height]) // lines  # nodes of a line
        place = -1
        for node in range(offset[height], offset[height + 1] - 1):
            place = place + 1 if place + 1 < each else 0
            lo, hi = start[node], start[node + 1]
            if height == 0:
                absolute = abs(z[node])
            else:  # a node takes the place of its first child, or one before it
                absolute, below = 0.0, offset[height - 1]
                for child in range(first[node], first[node + 1]):
                    absolute += size[child - below]
            size[node - offset[height]] = absolute
            m, at, apart = hi - lo, level[node], away[node]
            empty[node] = 0.0
            whole, power = np.float64(m), np.float64(m)
            if total.size > 0:
                whole, power = total[node], squares[node]
            row = node - offset[1]
            for way in range(WAYS if height > 0 else 0):
                out[way, row] = -np.inf
            if whole <= 0:
                continue
            mean = whole / m
            here = at * mean
            prior = (1 - LOCAL) / (4 * (here + 2))
            if place > 0:
                gap = abs(at - level[node - 1]) * mean + 1
                prior += LOCAL * TAIL / 2 / (gap * math.sqrt(gap))  # gap to the power 1 + TAIL
            else:
                prior += LOCAL / (4 * (here + 2))
            width = 2.0 if m == 1 else mean * math.sqrt(2 * math.pi / power)
            volume = min(width * prior, 1.0)
            none = spike * math.exp(min(apart - absolute, 0.0))
            both = (1 - spike) * volume + none
            empty[node] = none / both
            if height > 0:
                out[0, row] = math.log(both) - apart
            elif leaves.size > 0:
                leaves[node] = math.log(both) - apart
            if m < 4 or height < lowest or height > LARGEST:
                continue
            scale, mean_gap = 0, apart / m
            while mean_gap > until[scale]:
                scale += 1
            scales[node] = scale
            far, near, per, likely = 0.0, 0.0, per_step[scale], spread[scale]
            for k in range(lo, hi):
                gap = abs(z[k] - at * q[k])
                far += _far(far_table, gap)
                near += _read(likely, gap * per)
            cost = math.log(volume)
            out[1, row] = far + cost
            out[2, row] = near + cost


@subkernel
def _read(row: Floats, place: float) -> float:
    """Return the entry of a table between two of its steps; past its end the last step goes on."""
    k = int(min(place, _CELLS + 0.0))
    return float(row[k] + (place - k) * (row[k + 1] - row[k]))


@subkernel
def _far(row: Floats, gap: float) -> float:
    """Return a bin's log likelihood by its distance if some are outliers, a power law past the table."""
    place = _CELLS / _TOP * math.sqrt(gap)
    if place >= _CELLS:
        return float(row[_CELLS] - 3 * math.log(place / _CELLS))
    return _read(row, place)


@kernel
def _upward(
    offset: Ints,
    first: Places,
    below: Floats,
    evidence: Floats,
    log_odds: Floats,
    ways: Floats,
    post: Floats,
) -> None:
    """Write how likely each node is split, or taken in each way, and in `below` each line's log evidence.

    `below` has that of the bins at first. On the way up a node's, of all partitions below it, takes the
    place of its first child's, or one before it. What `ways` holds does not matter. `post` may be `evidence`
    itself. Lines have their own odds.
    """
    lines = log_odds.shape[0]
    for height in range(1, offset.size - 1):
        each = (offset[height + 1] - 1 - offset[height]) // lines  # nodes of a line
        line, end = -1, offset[height]
        for node in range(offset[height], offset[height + 1] - 1):
            if node == end:
                line, end = line + 1, end + each
            child, place = first[node] - offset[height - 1], node - offset[height]
            row = node - offset[1]
            if first[node + 1] - first[node] == 1:
                below[place] = below[child]
                for way in range(ways.size):
                    post[way, row] = 0.0
                post[SPLIT, row] = 1.0
                continue
            ways[SPLIT] = log_odds[line, height, SPLIT] + below[child] + below[child + 1]
            most = ways[SPLIT]
            for way in range(1, ways.size):
                ways[way] = log_odds[line, height, way] + evidence[way, row]
                most = max(most, ways[way])
            total = 0.0
            for way in range(ways.size):
                gap = most - ways[way]
                ways[way] = 0.0 if gap > 50 else math.exp(-gap) if gap > 0 else 1.0
                total += ways[way]
            over = 1 / total
            for way in range(ways.size):
                post[way, row] = ways[way] * over
            below[place] = most + math.log(total)


def _reached(offset: Ints, first: Places, post: Floats, lines: int) -> Floats:
    """Return how often each way is taken, by line and level, if all are as likely as was found."""
    ways, children = len(post), np.diff(first)
    two, reach = children == 2, np.ones(lines)  # how likely each node of a level is a block or holds some
    taken = np.zeros((lines, HEIGHT, ways))
    for height in range(offset.size - 2, 0, -1):
        begin, end = offset[height], offset[height + 1] - 1
        by_way = post[:, begin - offset[1] : end - offset[1]] * reach
        reach = np.repeat(by_way[SPLIT], children[begin:end])
        by_way *= two[begin:end]
        of = np.repeat(np.arange(ways * lines), (end - begin) // lines)  # each way, of each line
        taken[:, height] = np.bincount(of, by_way.ravel()).reshape(ways, lines).T
    return taken


@kernel
def _downward(
    z: Floats,
    shapes: Floats,
    offset: Ints,
    start: Places,
    first: Places,
    levels: Floats,
    empty: Floats,
    scales: NDArray[np.int8],
    post: Floats,
    far_moved: Floats,
    spread_moved: Floats,
    per_step: Floats,
    widths: Floats,
    away: Floats,
    squares: Floats,
    waiting: Ints,
    carried: Floats,
    moved: Floats,
    square: Floats,
) -> None:
    """Add up each bin's posterior mean and mean square, of its distance from its noisy count or from 0.

    A block's part passes to its halves, as moments about the level of whichever node holds it: so numbers far
    larger than the noise lose nothing. The last two arrays are zeros at first. Nodes whose parents are done
    wait in the rows of ``waiting``, with their heights, and ``carried``: a node's chance to be a block or to
    hold some, these moments, and the chance that its bins are drawn, each by itself. The last of them is
    next, so that there are no more than heights. ``away`` and ``squares`` are the moments of drawn bins; none
    if there is no such way.
    """
    for root in range(offset[-2], offset[-1] - 1):
        waiting[0, 0], waiting[0, 1], many = root, offset.size - 2, 1
        carried[0, 0], carried[0, 1], carried[0, 2], carried[0, 3], carried[0, 4] = 1.0, 0.0, 0.0, 0.0, 0.0
        while many > 0:
            many -= 1
            node, height, own = waiting[many, 0], waiting[many, 1], carried[many]
            reach, weight, mean, power, alone = own[0], own[1], own[2], own[3], own[4]
            lo, hi = start[node], start[node + 1]
            m, at = hi - lo, levels[0, node]
            inner = node - offset[1]
            part = reach * post[1, inner] if height > 0 else reach
            none = part * empty[node]
            weight += part
            if none > 0:
                mean -= none * at
                power += none * at * at
            power += (part - none) * (2.0 if m == 1 else (1 + 1.0 / m) / m)
            if height == 0:
                moved[node] += mean
                square[node] += power
                if alone > 0:
                    moved[node] += alone * away[node]
                    square[node] += alone * squares[node]
                continue
            if away.size > 0:
                alone += reach * post[post.shape[0] - 1, inner]
            for way in range(2, 1 + WAYS * shapes.shape[0]):
                part = reach * post[way, inner]
                if part > SLIGHT:
                    shape = (way - 1) // WAYS
                    add_block(
                        z, shapes[shape], lo, hi, levels[shape, node], (way - 1) % WAYS,
                        scales[shape, node], part, far_moved, spread_moved, per_step, widths, moved, square,
                    )  # fmt: skip
            for child in range(first[node], first[node + 1]):
                gap = at - levels[0, child]
                waiting[many, 0], waiting[many, 1], row = child, height - 1, carried[many]
                many += 1
                row[0] = reach * post[SPLIT, inner]
                row[1] = weight
                row[2] = mean + weight * gap if weight > 0 else 0.0
                row[3] = power + gap * (2 * mean + weight * gap) if weight > 0 else 0.0
                row[4] = alone


@subkernel
def add_block(
    z: Floats,
    q: Floats,
    lo: int,
    hi: int,
    level: float,
    way: int,
    scale: int,
    part: float,
    far_moved: Floats,
    spread_moved: Floats,
    per_step: Floats,
    widths: Floats,
    moved: Floats,
    square: Floats,
) -> None:
    """Add a block whose bins differ to the moments of its bins."""
    m = hi - lo
    for k in range(lo, hi):
        gap = z[k] - level * q[k]
        size, kept, doubt = abs(gap), 0.0, (1 + 1.0 / m) / m
        if way == 1:
            place = _CELLS / _TOP * math.sqrt(size)
            kept = size if place >= _CELLS else _read(far_moved, place)
            doubt += 2 * kept / size if size > 0 else 0.0
        elif way == 2:
            kept = _read(spread_moved[scale], size * per_step[scale])
            doubt = 2 / (1 + 1 / (widths[scale] * widths[scale]))
        away = kept - size if gap > 0 else size - kept
        away = max(away, -z[k]) if z[k] > 0 else max(away + z[k], 0.0)
        moved[k] += part * away
        square[k] += part * (away * away + doubt)


def explain(
    z: Floats,
    shapes: Floats,
    layout: tuple[Ints, Places, Places],
    tables: Tables,
    trust: float,
    sizes: Floats | None = None,
    lowest: int = SMALLEST,
) -> Explained:
    """Return a tree over the bins of each line, and the evidence of every way to explain its nodes."""
    lines, (offset, start, first) = len(z), layout
    z, shapes = z.ravel(), np.tile(shapes, lines) if lines > 1 else shapes
    nodes, many = int(offset[-1]), shapes.shape[0]
    levels, empty, unused = np.zeros((many, nodes)), np.zeros(nodes), np.zeros(nodes if many > 1 else 0)
    ways = 1 + WAYS * many + (sizes is not None)
    scales, evidence = np.zeros((many, nodes), np.int8), np.zeros((ways, nodes - int(offset[1])))
    leaves, spare = np.empty(z.size), np.empty((2, MEDIANS))
    size = evidence[SPLIT] if evidence.shape[1] >= z.size else np.empty(z.size)  # nobody reads that row yet
    for s in range(many):
        q, ratio, away, total, squares = shapes[s], leaves, empty, np.empty(0), np.empty(0)
        if s:
            ratio, away = np.divide(z, q, out=np.zeros(z.size), where=q > 0), unused
            total, squares = _added(q, layout), _added(q * q, layout)
        else:
            ratio[:] = z
        if s == 0 or (q == q[0]).all():
            _medians(*layout, ratio, spare[0], levels[s])
        else:
            _weighted_medians(*layout, ratio, q.copy(), total, spare[0], spare[1], levels[s])
        _levels(z, q, *layout, levels[s], away, squares)
        _evidence(
            z, q, *layout, levels[s], away, total, squares, tables.far, tables.spread, tables.per_step,
            tables.until, 0.0 if s else SPIKE * trust, lines, lowest, size, leaves[: 0 if s else z.size],
            evidence[1 + WAYS * s : 1 + WAYS * (s + 1)], scales[s], away,
        )  # fmt: skip
    if sizes is not None:
        evidence[-1] = _added(sizes[0], layout)[offset[1] :]
    return Explained(lines, z, shapes, offset, start, first, levels, empty, scales, leaves, evidence, sizes)


def _added(x: Floats, layout: tuple[Ints, Places, Places]) -> Floats:
    """Return the sum of every node's bins."""
    (offset, _, first), sums = layout, np.zeros(layout[1].size)
    sums[: x.size] = x
    for begin, end in pairwise(offset[1:]):
        child, after = first[begin : end - 1], first[begin + 1 : end]
        sums[begin : end - 1] = sums[child] + np.where(after - child == 2, sums[after - 1], 0.0)
    return sums


def _weighed(found: Explained, log_odds: Floats) -> list[float]:
    """Return each line's log evidence of a tree; how likely each way is takes the place of its evidence."""
    post = found.evidence
    _upward(found.offset, found.first, found.leaves, post, log_odds, np.empty(len(post)), post)
    return [float(each) for each in found.leaves[: found.lines]]


def _averaged(found: Explained, log_odds: Floats, tables: Tables) -> tuple[list[float], Floats, Floats]:
    """Return each line's log evidence of a tree, and the mean and mean square by which it moves each bin.

    The evidence of its nodes and bins is overwritten.
    """
    total, post, height = _weighed(found, log_odds), found.evidence, found.offset.size
    moved, square = found.leaves, np.zeros(found.z.size)
    moved[:] = 0.0
    away, squares = (np.empty(0), np.empty(0)) if found.sizes is None else found.sizes[1:]
    _downward(
        found.z, found.shapes, found.offset, found.start, found.first, found.levels, found.empty,
        found.scales, post, tables.far_moved, tables.spread_moved, tables.per_step, tables.scales, away,
        squares, np.empty((height, 2), np.int64), np.empty((height, 5)), moved, square,
    )  # fmt: skip
    return total, moved.reshape(found.lines, -1), square.reshape(found.lines, -1)


class Known(NamedTuple):
    """What the blocks of all trees are made of: rows of bins, each averaged by itself.

    Args:
        z: noisy counts in units of the noise scale, a row for each line or grid.
        shapes: what blocks may be multiples of, a row each.
        shape: the rows and columns of a grid; None for a line.
        trust: how far a prior that has learnt nothing is followed.
        sizes: what is said of bins drawn each by itself, the rows of `Drawn` by line; None if none are.
    """

    z: Floats
    shapes: Floats
    shape: tuple[int, int] | None
    tables: Tables
    trust: float
    sizes: Floats | None

    def explained(
        self, order: Ints | slice, layout: tuple[Ints, Places, Places], lowest: int = SMALLEST
    ) -> Explained:
        """Return a tree whose leaves are the bins in this order."""
        shapes = self.shapes if len(self.shapes) == 1 else np.ascontiguousarray(self.shapes[:, order])
        sizes = None if self.sizes is None else np.ascontiguousarray(self.sizes[..., order]).reshape(3, -1)
        return explain(self.z[:, order], shapes, layout, self.tables, self.trust, sizes, lowest)


class Tree:
    """A shifted tree over the bins of each line: a quadtree cut into halves over a grid."""

    def __init__(self, known: Known, shift: int) -> None:
        lines, n = known.z.shape
        self.tables, self.trust = known.tables, known.trust
        self.order, layout = (_kept if n * lines <= KEPT else _tree)(n, known.shape, lines, shift)
        self.found = known.explained(self.order, layout)

    def learnt(self, log_odds: Floats) -> Floats:
        """Return the logarithm of how often blocks of each size take each way."""
        found = self.found
        if found.z.size > LEARN * found.lines:
            found = _sample(found, self.tables, self.trust)
        return _learn(found, log_odds, self.trust)

    def averaged(self, log_odds: Floats) -> tuple[list[float], Floats, Floats]:
        """Return each line's log evidence, and the mean and mean square by which each bin moves."""
        evidence, change, changes = _averaged(self.found, log_odds, self.tables)
        return evidence, back(change, self.order), back(changes, self.order)
