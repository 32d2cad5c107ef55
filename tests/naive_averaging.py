"""Averages over dyadic partitions by their definition, block by block: a recursion over lists of bins."""

import math

import numpy as np

from dphist.kernels.averaging import dyadic, partitions, sizes
from dphist.kernels.averaging.dyadic import LARGEST, LOCAL, MEDIANS, SMALLEST, SPIKE, TAIL, WAYS


def places(n, shape, tree):
    """Return, for every bin, its place among the leaves of a tree."""
    if shape is None or 1 in shape:
        span = 1 << (n - 1).bit_length()
        return [int(tree * 0.6180339887498949 % 1.0 * span) + i for i in range(n)]
    moved = [
        int(tree * ratio % 1.0 * (1 << (size - 1).bit_length()))
        for ratio, size in zip((0.7548776662466927, 0.5698402909980532), shape, strict=True)
    ]
    found = []
    for cell in range(n):
        row, column = cell // shape[1] + moved[0], cell % shape[1] + moved[1]
        bits = [f"{v:032b}" for v in (row, column)]
        found.append(int("".join(a + b for a, b in zip(*bits, strict=True)), 2))
    return found


def law_of_sizes(z):
    """Return the log density, the mean and the mean square about max(z, 0) of every noisy count's size.

    Integrals of each law's density times that of the noise, step by step; of the far law, which hardly
    changes over a few noise scales, the moments are those of the noise.
    """

    def joint(i, mean):
        at = max(z[i], 0.0)
        below = np.linspace(-min(at, 60.0), 0.0, 20_001)
        away = np.concatenate((below, np.linspace(0.0, 60.0, 20_001)[1:]))
        return away, np.exp(-(at + away) / mean - np.abs(z[i] - at - away)) / mean

    laws = []
    for i in range(len(z)):
        at = max(z[i], 0.0)
        row = [(math.exp(-abs(z[i])), -at, at * at)]
        for mean in sizes.MEANS:
            away, density = joint(i, mean)
            moments = [np.trapezoid(density * away**k, away) for k in (0, 1, 2)]
            row.append((moments[0], *(m / max(moments[0], 1e-300) for m in moments[1:])))
        row.append((math.sqrt(sizes.FAR) * z[i] ** -1.5 if z[i] > sizes.FAR else 0.0, 0.0, 2.0))
        laws.append(row)
    weights = [1 / len(laws[0])] * len(laws[0])
    for _ in range(sizes.ROUNDS):
        taken = [sizes.BEFORE / len(weights)] * len(weights)
        for row in laws:
            parts = [w * law[0] for w, law in zip(weights, row, strict=True)]
            taken = [t + part / sum(parts) for t, part in zip(taken, parts, strict=True)]
        weights = [t / sum(taken) for t in taken]
    found = []
    for row in laws:
        parts = [w * law[0] for w, law in zip(weights, row, strict=True)]
        mean, square = (sum(p * law[k] for p, law in zip(parts, row, strict=True)) for k in (1, 2))
        found.append((math.log(sum(parts)) - sizes.FITTED, mean / sum(parts), square / sum(parts)))
    return np.array(found).T


class Tree:
    def __init__(self, z, shapes, place, tables, spike, drawn=None, height=None):
        self.spike, self.drawn = spike, drawn
        self.z, self.shapes, self.place, self.tables = z, shapes, place, tables
        self.bins = sorted(range(len(z)), key=place.__getitem__)
        self.height = (place[self.bins[0]] ^ place[self.bins[-1]]).bit_length() if height is None else height
        self.level = {}  # by shape, height and place
        for height in range(self.height + 1):
            for block in self.blocks(height):
                for s in range(len(shapes)):
                    self.level[s, height, self.name(block, height)] = self.fit(s, block, height)

    def name(self, block, height):
        return self.place[block[0]] >> height

    def blocks(self, height):
        found = {}
        for i in self.bins:
            found.setdefault(self.place[i] >> height, []).append(i)
        return list(found.values())

    def halves(self, block, height):
        found = {}
        for i in block:
            found.setdefault(self.place[i] >> (height - 1), []).append(i)
        return list(found.values())

    def fit(self, s, block, height):
        z, q = self.z[block], self.shapes[s][block]
        if len(block) <= MEDIANS:
            pairs = sorted((a / b, b) for a, b in zip(z, q, strict=True) if b > 0)
            below = 0.0
            for k, (ratio, weight) in enumerate(pairs):
                below += weight
                if below >= q.sum() / 2:
                    if math.isclose(below, q.sum() / 2) and k + 1 < len(pairs):
                        ratio = (ratio + pairs[k + 1][0]) / 2
                    return max(ratio, 0.0)
            return 0.0
        halves = self.halves(block, height)
        levels = [self.level[s, height - 1, self.name(half, height - 1)] for half in halves]
        if len(halves) == 1:
            return levels[0]
        squares = [(self.shapes[s][half] ** 2).sum() for half in halves]
        at = np.dot(levels, squares) / sum(squares)
        return max(at + np.where(z > at * q, q, -q).sum() / sum(squares), 0.0)

    def ways(self, block, height):
        """Yield each way's log evidence, and its bins' means and mean squares about their counts."""
        own = np.maximum(self.z[block], 0)
        m = len(block)
        for s, shape in enumerate(self.shapes):
            z, q = self.z[block], shape[block]
            level = self.level[s, height, self.name(block, height)]
            if q.sum() <= 0:
                yield from ((-math.inf, own * 0, own * 0) for _ in range(WAYS))
                continue
            here = level * q.mean()
            row = self.blocks(height)
            before = row[row.index(block) - 1] if block != row[0] else None
            prior = (1 - LOCAL) / (4 * (here + 2))
            if before is None:
                prior += LOCAL / (4 * (here + 2))
            else:
                gap = abs(level - self.level[s, height, self.name(before, height)]) * q.mean()
                prior += LOCAL * TAIL / 2 / (gap + 1) ** (1 + TAIL)
            width = 2 if m == 1 else q.mean() * math.sqrt(2 * math.pi / (q**2).sum())
            cost = math.log(min(width * prior, 1))
            gaps = np.abs(z - level * q)
            even, doubt = cost - gaps.sum(), 2 if m == 1 else (1 + 1 / m) / m
            if s == 0:
                one, none = math.log(1 - self.spike) + even, math.log(self.spike) - np.abs(z).sum()
                both = np.logaddexp(one, none)
                p = math.exp(none - both)
                yield (
                    both,
                    (1 - p) * (level - own) - p * own,
                    (1 - p) * ((level - own) ** 2 + doubt) + p * own**2,
                )
            else:
                yield even, level * q - own, (level * q - own) ** 2 + doubt
            if m < 4 or not SMALLEST <= height <= LARGEST:
                yield from ((-math.inf, own * 0, own * 0) for _ in range(WAYS - 1))
                continue
            yield self.outliers(z, level * q, own, doubt, cost)
            yield self.dispersed(z, level * q, own, cost)

    def outliers(self, z, at, own, doubt, cost):
        t, gaps = self.tables, np.abs(z - at)
        roots = np.arange(t.far.size) * 24 / 768
        likely = np.where(gaps < 576, np.interp(np.sqrt(gaps), roots, t.far), 0.0)
        likely += np.where(gaps < 576, 0.0, t.far[768] - 3 * np.log(np.sqrt(np.maximum(gaps, 1)) / 24))
        kept = np.where(gaps < 576, np.interp(np.sqrt(gaps), roots, t.far_moved), gaps)
        value = np.maximum(at + np.sign(z - at) * kept, 0)
        doubt = doubt + np.where(gaps > 0, 2 * kept / np.maximum(gaps, 1e-300), 0)
        return likely.sum() + cost, value - own, (value - own) ** 2 + doubt

    def dispersed(self, z, at, own, cost):
        t, gaps = self.tables, np.abs(z - at)
        k = int(np.searchsorted(t.until, gaps.mean()))
        steps = np.arange(t.spread.shape[1]) / t.per_step[k]

        def read(row):
            past = row[-1] + (gaps - steps[-1]) * (row[-1] - row[-2]) * t.per_step[k]
            return np.where(gaps <= steps[-1], np.interp(gaps, steps, row), past)

        value = np.maximum(at + np.sign(z - at) * read(t.spread_moved[k]), 0)
        doubt = 2 / (1 + 1 / t.scales[k] ** 2)
        return read(t.spread[k]).sum() + cost, value - own, (value - own) ** 2 + doubt

    def average(self, odds, block=None, height=None):
        """Return a block's log evidence, its bins' moments in its order, and the ways taken by level."""
        block, height = (self.bins, self.height) if block is None else (block, height)
        taken = np.zeros_like(odds)
        if height == 0:
            evidence, mean, square = next(self.ways(block, 0))
            return evidence, mean, square, taken
        below = [self.average(odds, half, height - 1) for half in self.halves(block, height)]
        if len(below) == 1:
            return below[0]
        whole = [sum(b[0] for b in below), *(np.concatenate([b[k] for b in below]) for k in (1, 2))]
        every = [whole, *self.ways(block, height)]
        if self.drawn is not None:
            likely, moved, square = self.drawn[:, block]
            every.append((likely.sum(), moved, square))
        logs = np.array([math.log(odds[height, w]) + way[0] for w, way in enumerate(every)])
        total = np.logaddexp.reduce(logs)
        post = np.exp(logs - total)
        taken[height] = post
        taken += post[0] * sum(b[3] for b in below)
        mean, square = (sum(p * way[k] for p, way in zip(post, every, strict=True)) for k in (1, 2))
        return total, mean, square, taken


class Rectangles:
    """Blocks of 2^a rows and 2^b columns, each halved down or across, every one by itself."""

    def __init__(self, z, shape, known, shift):
        down, right = (
            int(shift * ratio % 1.0 * (1 << (size - 1).bit_length()))
            for ratio, size in zip((0.7548776662466927, 0.5698402909980532), shape, strict=True)
        )
        self.bins = list(range(len(z)))
        self.at = [(i // shape[1] + down, i % shape[1] + right) for i in self.bins]
        if shape[1] > shape[0]:
            self.at = [(c, r) for r, c in self.at]
        self.tall, self.wide = ((min(each) ^ max(each)).bit_length() for each in zip(*self.at, strict=True))
        self.trees = []
        for b in range(self.wide + 1):
            place = [
                ((c >> b) << (self.tall + b)) | ((r % (1 << self.tall)) << b) | (c % (1 << b))
                for r, c in self.at
            ]
            self.trees.append(Tree(z, *known[:1], place, *known[1:], height=self.tall + b))

    def halves(self, block, side, power):
        found = {}
        for i in block:
            found.setdefault(self.at[i][side] >> (power - 1), []).append(i)
        return list(found.values())

    def average(self, odds):
        self.found = {}
        return self.of(odds, self.bins, self.tall, self.wide)

    def of(self, odds, block, a, b):
        """Return a block's log evidence, all bins' moments, and the ways taken by height."""
        if (a, b, block[0]) not in self.found:
            self.found[a, b, block[0]] = self.made(odds, block, a, b)
        return self.found[a, b, block[0]]

    def made(self, odds, block, a, b):
        n, height, taken = len(self.bins), a + b, np.zeros_like(odds)

        def placed(likely, *moments):
            out = np.zeros((2, n))
            out[:, own] = moments
            return likely, *out

        # A tree has its bins in its own order, in which blocks are found by their bins.
        tree = self.trees[b]
        own = next(each for each in tree.blocks(height) if set(each) == set(block))
        if height == 0:
            return *placed(*next(tree.ways(own, 0))), taken
        cuts = [
            [
                self.of(odds, half, a - (side == 0), b - (side == 1))
                for half in self.halves(block, side, power)
            ]
            for side, power in ((0, a), (1, b))
            if power > 0
        ]
        for cut in cuts:
            if len(cut) == 1:
                return cut[0]
        logs = np.array([sum(half[0] for half in cut) - math.log(len(cuts)) for cut in cuts])
        split = np.logaddexp.reduce(logs)
        parts = np.exp(logs - split)
        whole = [
            split,
            *(sum(p * sum(h[k] for h in cut) for p, cut in zip(parts, cuts, strict=True)) for k in (1, 2)),
        ]
        every = [whole, *(placed(*way) for way in tree.ways(own, height))]
        if tree.drawn is not None:
            likely, moved, square = tree.drawn[:, own]
            every.append(placed(likely.sum(), moved, square))
        logs = np.array([math.log(odds[height, w]) + way[0] for w, way in enumerate(every)])
        total = np.logaddexp.reduce(logs)
        post = np.exp(logs - total)
        taken[height] = post
        taken += post[0] * sum(p * sum(h[3] for h in cut) for p, cut in zip(parts, cuts, strict=True))
        mean, square = (sum(p * way[k] for p, way in zip(post, every, strict=True)) for k in (1, 2))
        return total, mean, square, taken


def dyadic_average(noisy, scale, *, shape=None, prior=None, step=1.0, shifts=8):
    noisy = np.asarray(noisy, dtype=float)
    n = noisy.size
    shapes = [np.ones(n)]
    if prior is not None and max(prior) > 0:
        q = np.asarray(prior, dtype=float) / max(prior)
        shapes.append(np.where(q > 1e-9, q, 0.0))
    scales = np.array(dyadic.SCALES)
    moving = int((scales < min(dyadic.MOVED, 1 + dyadic.MOVED_STEPS * scale / step)).sum())
    trust = n / (n + dyadic.FEW)
    drawn = None if shape is None or 1 in shape else law_of_sizes(noisy / scale)
    odds = dyadic.first_odds(len(shapes), trust, by_size=drawn is not None)
    trees = 1 if n == 1 else max(1, min(shifts, dyadic.MANY // n))
    tables, spike, grid, parts = dyadic.tables_for(moving), SPIKE * trust, drawn is not None, []
    sets = (
        min(shifts, partitions.MOST_SETS, partitions.MANY_BLOCKS // (n * min(shape).bit_length()))
        if grid
        else 0
    )
    for count, rectangles in ((trees, False), (sets if n <= partitions.MOST_IN_RECTANGLES else 0, True)):
        learnt = odds
        for k in range(count):
            if rectangles:
                tree = Rectangles(noisy / scale, shape, (shapes, tables, spike, drawn), k)
            else:
                tree = Tree(noisy / scale, shapes, places(n, shape, k), tables, spike, drawn)
            for _ in range(dyadic.ROUNDS if k == 0 else 0):
                learnt = dyadic.next_odds(tree.average(learnt)[3], trust)
            evidence, mean, square, _ = tree.average(learnt)
            back = np.arange(n) if rectangles else np.argsort(tree.bins)
            parts.append((evidence, mean[back], square[back]))
    logs = np.array([(p[0] - parts[0][0]) * min(1.0, dyadic.SHARPNESS / n) for p in parts])
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean, square = (sum(w * p[k] for w, p in zip(weights, parts, strict=True)) for k in (1, 2))
    values = np.maximum(np.maximum(noisy, 0) + scale * mean, 0)
    values = np.where(np.abs(scale * mean) <= step / 4, np.maximum(noisy, 0), values)
    return values, scale * np.sqrt(np.maximum(square - mean**2, 0))
