"""The averages over trees and their prunings as they are defined, node by node, for few bins."""

import math

import numpy as np

SPREADS, TRENDS, NEAR = [0, 1 / 32, 1 / 8, 1 / 2], [0, 1 / 32], [1 / 1024, 1 / 128, 1 / 16]
KINDS = {"normal": SPREADS, "trend": TRENDS, "left": NEAR, "right": NEAR}
PARTS = [(kind, c) for kind, spreads in KINDS.items() for c in spreads]  # of the mixture
FIRST = [0.79 * part / 12 for part in (1, 1, 2.5, 7.5)] + [0.2 / 2] * 2 + [0.01 / 6] * 6


def log_normal(x, variance):
    return -0.5 * x * x / variance - 0.5 * math.log(2 * math.pi * variance)


def log_sum(logs):
    best = max(logs)
    return best + math.log(sum(math.exp(x - best) for x in logs))


class Prior:
    def __init__(self):
        self.empty, self.mixture = {}, {}

    def of(self, h):
        return self.empty.get(h, 0.1), self.mixture.get(h, FIRST)

    def learn(self, nodes, heights):
        """Nodes: height, probability to have an empty child, and of each part of the mixture."""
        table = np.zeros((heights, 2 + len(PARTS)))
        for h, emptied, parts in nodes:
            table[h] += [1.0, emptied, *((1 - emptied) * p for p in parts)]
        whole = table.sum(axis=0)
        e = (whole[1] + 0.1) / (whole[0] + 1)
        m = (whole[2:] + 0.5 * len(PARTS) * np.array(FIRST)) / (whole[2:].sum() + 0.5 * len(PARTS))
        for h, row in enumerate(table):
            self.empty[h] = min(max(0.5 * (row[1] + e) / (row[0] + 1), 0.0005), 0.45)
            self.mixture[h] = (row[2:] + m) / (row[2:].sum() + 1)


def trend(before, total, after):
    """The offset of a line through three equal neighbours: none at a peak, and nowhere below 0."""
    slopes = [2 * (total - before), (after - before) / 2, 2 * (after - total)]
    if min(slopes) > 0:
        return -min(slopes) / 8
    return -max(slopes) / 8 if max(slopes) < 0 else 0.0


def spread(kind, c, scale):
    """The variance of a part of the mixture: of the rate, and of records that fall to either half."""
    return (c * scale) ** 2 + (0 if kind in ("left", "right") else scale / 4)


def mixture_posterior(weights, offset, v, left, v_left, right, v_right, scale, drift):
    """The log density of an offset, and the probability of each part of the mixture."""
    logs = []
    for w, (kind, c) in zip(weights, PARTS, strict=True):
        seen = {"normal": (offset, v), "trend": (offset - drift, v), "left": (left, v_left)}
        x, noise = seen.get(kind, (right, v_right))
        sides = 2 if kind in ("left", "right") else 1
        logs.append(math.log(w * sides) + log_normal(x, noise + spread(kind, c, scale)))
    whole = log_sum(logs)
    return whole, [math.exp(x - whole) for x in logs]


def divided_mean(parts, emptied, offset, v, scale, drift, part, total):
    """The mean of the left child's total, given the node's."""
    own, other = part * total, (1 - part) * total
    mean = 0.0
    for p, (kind, c) in zip(parts, PARTS, strict=True):
        gain = spread(kind, c, scale) / (spread(kind, c, scale) + v)
        if kind == "normal":
            mean += p * (own + gain * offset)
        elif kind == "trend":
            mean += p * (own + drift + gain * (offset - drift))
        elif kind == "left":
            mean += p * gain * max(own + offset, 0.0)
        else:
            mean += p * (total - gain * max(other - offset, 0.0))
    mean = min(max(mean, 0.0), total)
    return (1 - sum(emptied)) * mean + emptied[1] * total


def decide(both, left, right):
    """Probabilities of either child being empty; and the evidence."""
    whole = log_sum([both, left, right])
    return (math.exp(left - whole), math.exp(right - whole)), whole


# ---- least squares and the variances of its contrasts -------------------------------------------------


def cut(lo, hi, shift):
    """The height of a node and where it is divided."""
    h = 0
    while (lo + shift) >> h != (hi - 1 + shift) >> h:
        h += 1
    return h, ((hi - 1 + shift) >> (h - 1) << (h - 1)) - shift


def one_tree(x, variance_of, shift, scales, prior):
    """The mean of every bin over the prunings of one tree, and what the prior is learnt from."""
    found, nodes = {}, []

    def up(lo, hi):
        """The evidence for even bins, for anything; and the estimate of the total from inside."""
        if hi - lo == 1:
            return 0.0, 0.0, x[lo]
        h, mid = cut(lo, hi, shift)
        even, known, inside = zip(up(lo, mid), up(mid, hi), strict=True)
        part, total = (mid - lo) / (hi - lo), x[lo:hi].sum()
        offset, v = x[lo:mid].sum() - part * total, variance_of(lo, mid, hi, shift)
        scale, width, drift = max(scales[lo:hi].sum(), 0.0), hi - lo, 0.0
        if width == 2**h and lo >= width and hi + width <= x.size:
            drift = trend(scales[lo - width : lo].sum(), scale, scales[hi : hi + width].sum())
        left = offset + part * scale
        right = scale - left
        empty, weights = prior.of(h)
        density, parts = mixture_posterior(weights, offset, v, left, v, right, v, scale, drift)
        alike = sum(even) + log_normal(offset, v)
        emptied, evidence = decide(
            math.log(1 - 2 * empty) + density + sum(known),
            math.log(empty) + log_normal(left, v) + even[0] + known[1],
            math.log(empty) + log_normal(right, v) + known[0] + even[1],
        )
        found[lo, hi] = mid, emptied, parts, offset, v, scale, drift, part
        nodes.append((h, sum(emptied), parts))
        better = 0.0
        for p, (kind, c) in zip(parts, PARTS, strict=True):
            gain = (c * scale) ** 2 / ((c * scale) ** 2 + v)
            if kind == "left":
                better += p * (inside[1] + gain * max(x[lo:mid].sum(), 0.0))
            elif kind == "right":
                better += p * (inside[0] + gain * max(x[mid:hi].sum(), 0.0))
            else:
                better += p * total
        better = (1 - sum(emptied)) * better + emptied[0] * inside[1] + emptied[1] * inside[0]
        return alike, evidence, better

    _, _, root = up(0, x.size)
    out = np.zeros(x.size)

    def down(lo, hi, total):
        if hi - lo == 1:
            out[lo] = total
            return
        mid, emptied, parts, offset, v, scale, drift, part = found[lo, hi]
        left = divided_mean(parts, emptied, offset, v, scale, drift, part, total)
        down(lo, mid, left)
        down(mid, hi, total - left)

    down(0, x.size, max(root, 0.0))
    return out, nodes


def contrasts(x, covariance, *, learning=2, averaged=8):
    n = x.size
    span = 1
    while span < n:
        span *= 2
    heights = span.bit_length() + 1
    prior, scales, total = Prior(), x, np.zeros(n)

    def exact(lo, mid, hi):
        part = (mid - lo) / (hi - lo)
        w = np.zeros(n)
        w[lo:mid], w[mid:hi] = 1 - part, -part
        return w @ covariance @ w

    shifts = [round(span * (i * 0.6180339887498949 % 1)) for i in range(learning + averaged)]

    def typical(h):
        """The mean of eight whole nodes of a height in each tree, or all if they are fewer."""
        found = []
        for shift in shifts:
            begins = range(-shift % 2**h, n - 2**h + 1, 2**h)
            some = {int(i) for i in np.linspace(0, len(begins) - 1, 8)} if begins else ()
            found += [exact(b, b + 2 ** (h - 1), b + 2**h) for b in (begins[i] for i in sorted(some))]
        return np.mean(found)

    def variance_of(lo, mid, hi, shift):
        h = (mid - lo).bit_length()
        whole = hi - lo == 2**h and (lo + shift) % 2**h == 0
        return typical(h) if whole else exact(lo, mid, hi)

    for i, shift in enumerate(shifts):
        made, nodes = one_tree(x, variance_of, shift, scales, prior)
        if i < learning:
            prior.learn(nodes, heights)
        else:
            total += made
        scales = made
    return total / averaged


# ---- a tree of noisy totals ---------------------------------------------------------------------------


def pruned(tree, sizes, noisy, variance, *, learning=2):
    starts = np.concatenate(([0], np.cumsum(sizes)))
    low, high = starts[tree.lo], starts[tree.hi]
    size = high - low
    variance = np.maximum(variance, 1e-12)
    seen = [q for q in range(tree.size) if np.isfinite(variance[q])]
    open_variance = (1e3 * (max(abs(noisy[q]) for q in seen) + math.sqrt(max(variance[seen])))) ** 2
    prior, bins = Prior(), None

    def empty_below(v):
        under = [q for q in seen if tree.lo[v] <= tree.lo[q] and tree.hi[q] <= tree.hi[v]]
        return sum(-0.5 * noisy[q] ** 2 / variance[q] for q in under)

    def trend_of(v):
        before, after = low[v] - size[v], high[v] + size[v]
        if bins is None or before < 0 or after > bins.size:
            return 0.0
        return trend(bins[before : low[v]].sum(), bins[low[v] : high[v]].sum(), bins[high[v] : after].sum())

    for _ in range(learning + 1):
        message, found, nodes = {}, {}, []
        for v in range(tree.size - 1, -1, -1):
            c, known = tree.left[v], np.isfinite(variance[v])
            if c == 0:
                w = variance[v] if known else open_variance
                message[v] = noisy[v] if known else 0.0, w, 0.5 * math.log(2 * math.pi * w)
                continue
            (m1, v1, z1), (m2, v2, z2) = message[c], message[c + 1]
            part, h, drift = size[c] / size[v], int(tree.height[v]), trend_of(v)
            t = max(m1 + m2, 0.0) if bins is None else bins[low[v] : high[v]].sum()
            empty, weights = prior.of(h)
            noise = (1 - part) ** 2 * v1 + part**2 * v2
            density, parts = mixture_posterior(
                weights, (1 - part) * m1 - part * m2, noise, m1, v1, m2, v2, t, drift
            )
            ways = [
                (m1 + m2, v1 + v2, math.log(1 - 2 * empty) + density + z1 + z2),
                (m2, v2, math.log(empty) + empty_below(c) + z2),
                (m1, v1, math.log(empty) + empty_below(c + 1) + z1),
            ]
            if known:
                w, y = variance[v], noisy[v]
                ways = [
                    (
                        (a * w + y * b) / (b + w),
                        b * (w / (b + w)),
                        z - 0.5 * ((y - a) ** 2 / (b + w) + math.log((b + w) / w)),
                    )
                    for a, b, z in ways
                ]
            emptied, evidence = decide(*(z for _, _, z in ways))
            chance = (1 - sum(emptied), *emptied)
            m = sum(q * a for q, (a, _, _) in zip(chance, ways, strict=True))
            s = sum(q * (b + (a - m) ** 2) for q, (a, b, _) in zip(chance, ways, strict=True))
            message[v] = m, s, evidence
            found[v] = emptied, parts, t, drift, part
            nodes.append((h, sum(emptied), parts))
        out = np.zeros(tree.size)

        def down(v, total, message=message, found=found, out=out):
            out[v] = total
            c = tree.left[v]
            if c == 0:
                return
            emptied, parts, t, drift, part = found[v]
            (m1, v1, _), (m2, v2, _) = message[c], message[c + 1]
            given = m1 + v1 / (v1 + v2) * (total - m1 - m2)
            noise = v1 * (v2 / (v1 + v2))
            left = divided_mean(parts, emptied, given - part * total, noise, t, drift, part, total)
            down(c, left)
            down(c + 1, total - left)

        down(0, max(message[0][0], 0.0))
        prior.learn(nodes, int(tree.height.max()) + 1)
        bins = np.repeat(out[tree.leaf] / sizes, sizes)
    return out[tree.leaf]
