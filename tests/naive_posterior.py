"""The plain twin of `dphist.kernels.averaging.posterior`: sums over all points of all grids, nothing clever.

The evidence is linear in what is said of any node at any point of its grid. So the posterior of a node's
total is the evidence with all other points of that node left out, over the evidence; and so for everything
else that is counted.
"""

import math
from functools import cache

import numpy as np
from scipy.special import betainc, ndtr

EVEN = (math.inf, 65536.0, 4096.0, 256.0)
UNEVEN = (24.0, 4.0, 1.0, 0.35)
EMPTY = len(EVEN)  # the column of an empty child, after those of even ways and before those of uneven ones
POINTS, REACH, CELLS, OCTAVES = 35, 5.0, 128, 14
NORMAL = np.linspace(-6, 6, 1025)


def first(heights, few=False):
    """The prior before anything is learnt."""
    rows = []
    for h in range(heights):
        empty = (0.1 if few else 0.4) / (1 + 0.2 * max(h - 1, 0))
        rows.append([0.15, 0.1, 0.1, 0.15, empty, *[(0.5 - empty) / 4] * 4])
    return np.array(rows)


@cache
def table(part, octave):
    """The distribution functions of the beta laws at the ends of the cells, as in the module."""
    x = np.arange(CELLS + 1) / CELLS
    u = np.where(x <= 0.5, 2 * x**2, 1 - 2 * (1 - x) ** 2)
    out = []
    for c in UNEVEN:
        own = max(1 / (1 / (c + 1) + 2.0 ** -(octave + 0.5)) - 1, 0.25)
        out.append(betainc(own * part, own * (1 - part), u))
    return np.array(out)


def place(u):
    return math.sqrt(u / 2) if u <= 0.5 else 1 - math.sqrt((1 - u) / 2)


def below(law, u):
    if u <= 0 or u >= 1:
        return 0.0 if u <= 0 else law[-1]
    return float(np.interp(place(u) * CELLS, np.arange(CELLS + 1), law))


class Twin:
    def __init__(self, tree, starts, noisy, scale, deviation, few=False):
        self.tree, self.noisy, self.scale, self.few = tree, noisy, scale, few
        self.low = np.maximum(noisy - REACH * deviation, 0)
        high = np.maximum(noisy, 0) + REACH * deviation
        for q in range(tree.size - 1, -1, -1):
            if c := tree.left[q]:
                high[q] = max(high[q], self.low[c] + self.low[c + 1] + REACH * deviation[q])
        self.grid = [np.linspace(a, b, POINTS) for a, b in zip(self.low, high, strict=True)]
        self.part = np.zeros(tree.size)
        for q in np.flatnonzero(tree.left):
            a, b, c = (starts[i] for i in (tree.lo[q], tree.hi[tree.left[q]], tree.hi[q]))
            self.part[q] = (b - a) / (c - a)

    def at(self, message, q, total):
        g = self.grid[q]
        return float(np.interp(total, g, message[q])) if g[0] - 1e-12 <= total <= g[-1] + 1e-12 else 0.0

    def ways(self, message, prior, q, total):
        """Each way to divide a total, as (column, cell of the uneven part, octave, what it adds).

        The only way to divide nothing has the column -1.
        """
        c = self.tree.left[q]
        d, a, p = c + 1, self.part[q], prior[self.tree.height[q]]
        alike = self.at(message, c, a * total) * self.at(message, d, total - a * total)
        if total <= 0:
            yield -1, -1, -1, alike
            return
        for e, f in ((c, d), (d, c)):
            yield EMPTY, -1, -1, p[EMPTY] / 2 * self.at(message, e, 0.0) * self.at(message, f, total)
        octave = min(int(math.log2(max(total, 1))), OCTAVES - 1)
        law = p[EMPTY + 1 :] @ table(a, octave)
        step = [self.grid[node][1] - self.grid[node][0] for node in (c, d)]
        e, f = (c, d) if step[0] <= step[1] else (d, c)
        half = min(step) / 2
        mean = total * (a if e == c else 1 - a)
        for k, concentration in enumerate(EVEN):
            sd = math.sqrt(total * a * (1 - a) * (1 + total / (concentration + 1)))
            if sd < half or sd > total:
                yield k, -1, -1, p[k] * alike
                continue
            points = self.grid[e]
            ends = np.concatenate((points - half, [points[-1] + half]))
            law_at = np.interp(np.clip((np.clip(ends, 0, total) - mean) / sd, -6, 6), NORMAL, ndtr(NORMAL))
            none, all_of = (np.interp((x - mean) / sd, NORMAL, ndtr(NORMAL)) for x in (0, total))
            for i, point in enumerate(points):
                if abs(point - mean) <= 4 * sd and total - point > -1e-9 * half:
                    mass = (law_at[i + 1] - law_at[i]) / (all_of - none)
                    other = self.at(message, f, max(total - point, 0.0))
                    yield k, -1, -1, p[k] * mass * message[e][i] * other
        for i, point in enumerate(self.grid[e]):
            one, two = (point - half) / total, (point + half) / total
            if e == d:
                one, two = 1 - two, 1 - one
            mass = below(law, two) - below(law, one)
            u = min(point / total, 1.0)
            cell = min(int(place(1 - u if e == d else u) * CELLS), CELLS - 1)
            left = total - point
            # Points whose own total is that of the node but for rounding leave nothing to the other child.
            other = self.at(message, f, max(left, 0.0)) if left > -1e-9 * half else 0.0
            yield EMPTY + 1, cell, octave, mass * message[e][i] * other

    def messages(self, prior, changed=None, to=None):
        """The message of every node, and one of them replaced: then those above it are made anew."""
        out, above = [np.zeros(POINTS) for _ in self.grid], range(self.tree.size)
        if changed is not None:
            out, above = list(self.known), [changed]
            while above[-1]:
                above.append(int(self.tree.parent[above[-1]]))
        for q in sorted(above, reverse=True):
            factor = self.factor(q)
            if self.tree.left[q]:
                found = [sum(w[3] for w in self.ways(out, prior, q, total)) for total in self.grid[q]]
                out[q] = factor * np.array(found)
            else:
                out[q] = factor
            if q == changed:
                out[q] = to
        return out

    def factor(self, q):
        return np.exp(-np.abs(self.noisy[q] - self.grid[q]) / self.scale[q])

    def evidence(self, prior, changed=None, to=None):
        return self.messages(prior, changed, to)[0].sum()

    def passed(self, prior):
        """The mean of every node; how many nodes are even or have an empty child; uneven ones by cell.

        ``empty`` is how many are empty themselves.
        """
        self.known = message = self.messages(prior)
        whole = message[0].sum()
        mean, heights = np.empty(self.tree.size), int(self.tree.height.max()) + 1
        counted, uneven, self.empty = np.zeros((heights, EMPTY + 1)), {}, 0.0
        for q in range(self.tree.size):
            mean[q] = self.evidence(prior, q, message[q] * self.grid[q]) / whole
            if not self.tree.left[q]:
                continue
            for j, (total, factor) in enumerate(zip(self.grid[q], self.factor(q), strict=True)):
                weight = factor * self.evidence(prior, q, np.eye(POINTS)[j]) / whole
                for column, cell, octave, what in self.ways(message, prior, q, total):
                    if column < 0:
                        self.empty += weight * what
                        counted[self.tree.height[q], EMPTY] += (0 if self.few else 0.4) * weight * what
                    elif column <= EMPTY:
                        counted[self.tree.height[q], column] += weight * what
                    else:
                        key = int(self.tree.height[q]), float(self.part[q]), octave, cell
                        uneven[key] = uneven.get(key, 0.0) + weight * what
        return mean, counted, uneven

    def learnt(self, prior, counted, uneven):
        heights = len(prior)
        found = np.concatenate((counted, np.zeros((heights, len(UNEVEN)))), axis=1)
        for (height, part, octave, cell), many in uneven.items():
            mass = prior[height, EMPTY + 1 :] * np.diff(table(part, octave), axis=1)[:, cell]
            if mass.sum() > 0:
                found[height, EMPTY + 1 :] += many * mass / mass.sum()
        out = np.empty_like(found)
        for h in range(heights):
            near = sum(0.5 ** abs(h - other) * found[other] for other in range(heights))
            out[h] = (near + 0.5 * first(heights, self.few)[h]) / (near.sum() + 0.5)
        return out

    def means(self, rounds=3):
        prior = first(int(self.tree.height.max()) + 1, self.few)
        for _ in range(rounds):
            prior = self.learnt(prior, *self.passed(prior)[1:])
        return self.passed(prior)[0][self.tree.leaf]
