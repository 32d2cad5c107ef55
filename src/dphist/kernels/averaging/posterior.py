"""Posterior means of the totals of a small tree whose noise agrees, by the exact law of that noise.

The likelihood. `dphist.privacy.agreeing` draws the noise of all totals together, so that totals T which make
y of the noisy ones have the likelihood of a product of exp(-|y_v - T_v| / s_v) over all nodes v. No total is
negative, and no noise is taken to be normal, but for how far a grid reaches: what counts where few records
are divided among few groups.

The prior. Any total of the root is as likely as any other. A node has the part a of its bins in its left
child, and its total T is divided in one of these ways:

* even: the left child's part of T has a normal law with mean a and the variance a (1 - a) / (c + 1), for one
  of the concentrations c in ``EVEN``. Records fall to either child by chance, too, which adds a (1 - a) / T;
  that is all where c is infinite. If the child's total deviates by less than half a step, or by more than T
  itself, for chance divides no part of a record, it is a T;
* one child is empty, the left or the right one, each with the same probability;
* uneven: a beta law with mean a, of one of the concentrations ``UNEVEN``; chance makes these smaller.

A total of 0 can be divided in one way only, which says nothing of these. How likely each way is depends on
the height of a node, and is learnt from the noisy totals by expectation maximisation: heights near each other
count together. Before, children of many bins are less likely empty than those of few. What is empty counts
for an empty child, too, though less: among many empty nodes another is likely.

The sums. Given T, what is measured below a node is independent of all else. Let m_v(T) be the likelihood of
everything at and below v, on an even grid of totals and linear in between. From the leaves up, m_v is its
own factor times the mean, over the ways to divide T, of the product of both children's. From the root down,
r_v(T) is the derivative of the whole evidence by m_v(T), so that r_v m_v is what the posterior of T_v is in
proportion to. That is O(points^2) for each node.

Nothing here is random, and all results are finite and not negative for every input up to 1e300.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dphist.domain.groups import Floats, Ints, frozen
from dphist.errors import UsageError
from dphist.kernels import kernel, subkernel
from dphist.kernels.beta import incomplete_beta
from dphist.kernels.trees.tree import Nodes, Tree

EVEN = np.array([math.inf, 65536.0, 4096.0, 256.0])
UNEVEN = (24.0, 4.0, 1.0, 0.35)
POINTS = 35  # totals of a node's grid
_REACH = 5.0  # standard deviations of its noise, to either side
_ROUNDS = 3  # of learning
_EMPTY, _UNEVEN = EVEN.size, EVEN.size + 1  # columns of the prior: even ways, an empty child, uneven ways
_FIRST_EVEN = (0.15, 0.1, 0.1, 0.15)
_FIRST_EMPTY, _FALLS = 0.4, 0.2  # for a node of two bins, and by how much its odds fall for each height above
_OF_FEW = 0.25  # times as likely where there are few records: those of a node are more easily overlooked
_NOTHING_THERE = 0.4  # of an empty child that a node counts for if it is empty; nothing where there are few
_OPINION = 0.5  # nodes that the prior before anything is learnt counts as
_NEARBY = 0.5  # how much a node of the next height counts beside one of a height itself
_FAR = 4.0  # standard deviations of an even way that are gone through
_ENDS, _STEPS = 6.0, 1024  # of a table of the normal law
_NORMAL = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in np.linspace(-_ENDS, _ENDS, _STEPS + 1)])
_CELLS = 128  # of a table of beta laws; their ends are finer towards 0 and 1
_OCTAVES = 14  # of totals that have tables of their own; in larger ones chance is nothing
_LEAST = 0.25  # concentration; chance alone would leave none to a total below a record
_NOTHING = 1e-200  # a likelihood that is none, and the sum of some
_SMALL = 1e-9  # the narrowest noise, in records: below it counts are known exactly


def posterior_totals(
    tree: Tree, starts: Ints, noisy: Floats, scale: Floats, deviation: Floats, *, few: bool = False
) -> Floats:
    """Return non-negative totals of the groups.

    Args:
        starts: where each group begins among the bins and, last, the number of bins.
        noisy: the total of each node, that of its children together.
        scale: s_v of each node; infinite where it has no factor. Every leaf has one.
        deviation: the standard deviation of each node's noise.
        few: whether there are few records in all, so that nodes that look empty more often hold some.
    """
    given = noisy, scale, deviation
    if any(each.shape != (tree.size,) for each in given) or starts.shape != (tree.k + 1,):
        raise UsageError(f"a posterior needs a noisy total, a scale and a deviation of {tree.size} nodes.")
    if not (np.isfinite(noisy).all() and np.isfinite(deviation).all() and (scale > 0.0).all()):
        raise UsageError("a posterior needs finite totals and deviations, and scales above 0.")
    if tree.k == 1:
        return np.maximum(noisy[tree.leaf], 0.0)
    return _Posterior(tree, starts, *given, few).means()


class _Posterior:
    """The grids of a tree's nodes, and what its passes share."""

    def __init__(
        self, tree: Tree, starts: Ints, noisy: Floats, scale: Floats, deviation: Floats, few: bool
    ) -> None:
        self.tree, self.noisy, self.scale = tree, noisy, np.maximum(scale, _SMALL)
        self.low, self.step = grids(tree, noisy, np.maximum(deviation, _SMALL))
        inner = tree.left > 0
        size = (starts[tree.hi] - starts[tree.lo]).astype(np.float64)
        self.part = np.zeros(tree.size)
        self.part[inner] = size[tree.left[inner]] / size[inner]
        parts, which = np.unique(self.part[inner], return_inverse=True)
        self.which = np.zeros(tree.size, np.int64)
        self.which[inner] = which
        self.laws = np.stack([beta_laws(float(part)) for part in parts])
        self.first = first_odds(int(tree.height.max()) + 1, few)
        self.nothing = 0.0 if few else _NOTHING_THERE

    def means(self) -> Floats:
        """Return the posterior means of the groups' totals, with what is learnt in a few rounds."""
        prior = self.first
        for _ in range(_ROUNDS):
            prior = self._learnt(prior, *self.passed(prior)[1:])
        return self.passed(prior)[0][self.tree.leaf]

    def passed(self, prior: Floats) -> tuple[Floats, Floats, Floats]:
        """Pass once from the leaves up and down again.

        Returns:
            The posterior mean of every node's total; how many nodes of each height are divided in each even
            way, and how many have an empty child; how many are uneven, by the cells of their parts.
        """
        tree, shape = self.tree, (self.tree.size, POINTS)
        laws = np.einsum("hc,pocx->hpox", prior[:, _UNEVEN:], self.laws)
        given = (
            tree.left.copy(),
            self.part,
            self.which,
            tree.height.astype(np.int64),
            self.noisy,
            self.scale,
        )
        known = (*given, self.low, self.step, prior, laws, np.empty(shape), np.empty(tree.size))
        _rise(*known)
        mean, counted = np.empty(tree.size), np.zeros((len(prior), _UNEVEN))
        uneven = np.zeros((*laws.shape[:3], _CELLS))
        _fall(*known, np.zeros(shape), self.nothing, mean, counted, uneven)
        return mean, counted, uneven

    def _learnt(self, prior: Floats, counted: Floats, uneven: Floats) -> Floats:
        """Return the prior of the next round: each height's ways, and fewer of those near it."""
        cells = prior[:, None, None, _UNEVEN:, None] * np.diff(self.laws, axis=3)
        whole = cells.sum(axis=3, keepdims=True)
        responsible = np.divide(cells, whole, out=np.zeros_like(cells), where=whole > 0.0)
        found = np.concatenate((counted, np.einsum("hpocx,hpox->hc", responsible, uneven)), axis=1)
        height = np.arange(len(prior))
        near = _NEARBY ** np.abs(height[:, None] - height) @ found
        return np.asarray((near + _OPINION * self.first) / (near.sum(axis=1, keepdims=True) + _OPINION))


def first_odds(heights: int, few: bool) -> Floats:
    """Return how likely each way to divide the nodes of each height is before anything is learnt."""
    falls = 1.0 + _FALLS * np.maximum(np.arange(heights) - 1.0, 0.0)
    empty = _FIRST_EMPTY * (_OF_FEW if few else 1.0) / falls
    even = np.tile(_FIRST_EVEN, (heights, 1))
    each = (1.0 - empty - even.sum(axis=1)) / len(UNEVEN)
    return np.column_stack((even, empty, *[each] * len(UNEVEN)))


def grids(tree: Tree, noisy: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return the least total of each node's grid, and its step: totals that its noise may have come from."""
    low = np.maximum(noisy - _REACH * deviation, 0.0)
    high = np.maximum(noisy, 0.0) + _REACH * deviation
    for q in np.flatnonzero(tree.left)[::-1]:  # not below what its children have at least
        c = tree.left[q]
        high[q] = max(high[q], low[c] + low[c + 1] + _REACH * deviation[q])
    # Totals of which a double has no digit for the noise are as far apart as doubles are.
    return low, np.maximum((high - low) / (POINTS - 1), np.spacing(high))


@lru_cache(maxsize=256)  # most nodes are halved
def beta_laws(part: float) -> Floats:
    """Return the distribution functions of the beta laws with a mean: [octave of the total, law, cell's end].

    The ends u of the cells lie at 2 x^2 and, above a half, 1 - 2 (1 - x)^2, for even x.
    """
    out = np.empty((_OCTAVES, len(UNEVEN), _CELLS + 1))
    for octave in range(_OCTAVES):
        for i, c in enumerate(UNEVEN):
            own = max(1.0 / (1.0 / (c + 1.0) + 2.0 ** -(octave + 0.5)) - 1.0, _LEAST)
            _beta_law(own * part, own * (1.0 - part), out[octave, i])
    return frozen(out)


@kernel
def _beta_law(a: float, b: float, out: Floats) -> None:
    """Write the distribution function of a beta law at the ends of all cells."""
    cells = out.size - 1
    for j in range(cells + 1):
        x = j / cells
        out[j] = incomplete_beta(a, b, 2.0 * x * x if x <= 0.5 else 1.0 - 2.0 * (1.0 - x) * (1.0 - x))


@kernel
def _rise(
    left: Nodes,
    part: Floats,
    which: Ints,
    height: Ints,
    noisy: Floats,
    scale: Floats,
    low: Floats,
    step: Floats,
    prior: Floats,
    laws: Floats,
    message: Floats,
    largest: Floats,
) -> None:
    """Write m of every node over its largest value, and that.

    Args:
        part: of the bins that the left child has.
        which: the number of that part among the laws.
        laws: the distribution functions of the left child's part of a total where it is uneven, times the
            probability that it is: [height, part, octave of the total, cell's end].
    """
    for q in range(left.size - 1, -1, -1):
        best, c, ways = 0.0, left[q], prior[height[q]]
        for j in range(POINTS):
            total = low[q] + step[q] * j
            found = 1.0
            if c > 0:
                d = c + 1
                one, two = _at(message, low, step, c, part[q] * total), 0.0
                if one > 0.0:
                    two = _at(message, low, step, d, total - part[q] * total)
                found = one * two  # a total of 0 is divided in one way
                if total > 0.0:
                    # The child whose grid is finer is gone through point by point.
                    e, f = (c, d) if step[c] <= step[d] else (d, c)
                    mean, exact, found = (part[q] if e < f else 1.0 - part[q]) * total, found, 0.0
                    for k in range(EVEN.size):
                        sd = _deviation(total, part[q], EVEN[k])
                        if _exact(sd, step[e], total):
                            found += ways[k] * exact
                            continue
                        first, last = _near(low, step, e, f, total, mean, sd)
                        begin, end = _normal(-mean / sd), _normal((total - mean) / sd)
                        before, whole = _cut((low[e] + step[e] * (first - 0.5) - mean) / sd, begin, end), 0.0
                        for i in range(first, last + 1):
                            own = low[e] + step[e] * i
                            after = _cut((own + 0.5 * step[e] - mean) / sd, begin, end)
                            other = _at(message, low, step, f, max(total - own, 0.0))
                            whole += (after - before) * message[e, i] * other
                            before = after
                        found += ways[k] * whole / (end - begin)
                    one, two = _at(message, low, step, c, 0.0), _at(message, low, step, d, 0.0)
                    if one > 0.0:
                        found += 0.5 * ways[_EMPTY] * one * _at(message, low, step, d, total)
                    if two > 0.0:
                        found += 0.5 * ways[_EMPTY] * two * _at(message, low, step, c, total)
                    law = laws[height[q], which[q], _octave(total)]
                    first, last = _reached(low, step, e, f, total)
                    before = _below(law, (low[e] + step[e] * (first - 0.5)) / total, e > f)
                    for i in range(first, last + 1):
                        own = low[e] + step[e] * i
                        after = _below(law, (own + 0.5 * step[e]) / total, e > f)
                        other = _at(message, low, step, f, max(total - own, 0.0))
                        found += abs(after - before) * message[e, i] * other
                        before = after
            message[q, j] = found * _factor(noisy[q], scale[q], low[q], total)
            best = max(best, message[q, j])
        if not best > _NOTHING:  # nothing of the grid is likely at all
            best = 1.0
            for j in range(POINTS):
                message[q, j] = 1.0
        for j in range(POINTS):
            message[q, j] /= best
        largest[q] = best


@kernel
def _fall(
    left: Nodes,
    part: Floats,
    which: Ints,
    height: Ints,
    noisy: Floats,
    scale: Floats,
    low: Floats,
    step: Floats,
    prior: Floats,
    laws: Floats,
    message: Floats,
    largest: Floats,
    outside: Floats,
    nothing: float,
    mean: Floats,
    counted: Floats,
    uneven: Floats,
) -> None:
    """Write the mean of every node's total; add up how likely each way to divide the nodes of a height was.

    Args:
        message: as `_rise` wrote it, and ``largest``; its other arguments are the same.
        outside: r of every node, 0 at first.
        nothing: of an empty child that an empty node counts for.
        uneven: how likely uneven parts are of each cell of the laws.
    """
    cells = uneven.shape[3]
    for j in range(POINTS):
        outside[0, j] = 1.0
    for q in range(left.size):
        whole, moment = _moments(outside, message, low, step, q)
        if not whole > _NOTHING:  # nothing that the others allow is likely: what is below the node by itself
            for j in range(POINTS):
                outside[q, j] = 1.0
            whole, moment = _moments(outside, message, low, step, q)
        mean[q] = moment / whole
        c = left[q]
        if c == 0:
            continue
        d, ways, h = c + 1, prior[height[q]], height[q]
        for j in range(POINTS):
            total = low[q] + step[q] * j
            own = outside[q, j] / whole * _factor(noisy[q], scale[q], low[q], total) / largest[q]
            if not own > 0.0:
                continue
            one, i, x = _spot(message, low, step, c, part[q] * total)
            two, k, y = _spot(message, low, step, d, total - part[q] * total)
            if total == 0.0:
                if one > 0.0 and two > 0.0:
                    counted[h, _EMPTY] += nothing * own * one * two
                    _add(outside, c, i, x, own * two)
                    _add(outside, d, k, y, own * one)
                continue
            e, f = (c, d) if step[c] <= step[d] else (d, c)
            middle, exact = (part[q] if e < f else 1.0 - part[q]) * total, 0.0
            for w in range(EVEN.size):
                sd = _deviation(total, part[q], EVEN[w])
                if _exact(sd, step[e], total):
                    exact += ways[w]
                    counted[h, w] += own * ways[w] * one * two
                    continue
                first, last = _near(low, step, e, f, total, middle, sd)
                begin, end = _normal(-middle / sd), _normal((total - middle) / sd)
                before = _cut((low[e] + step[e] * (first - 0.5) - middle) / sd, begin, end)
                for m in range(first, last + 1):
                    point = low[e] + step[e] * m
                    after = _cut((point + 0.5 * step[e] - middle) / sd, begin, end)
                    weight = own * ways[w] * (after - before) / (end - begin)
                    before = after
                    three, r, z = _spot(message, low, step, f, max(total - point, 0.0))
                    if weight * message[e, m] * three > 0.0:
                        counted[h, w] += weight * message[e, m] * three
                        _add(outside, e, m, 0.0, weight * three)
                        _add(outside, f, r, z, weight * message[e, m])
            if exact > 0.0 and one > 0.0 and two > 0.0:
                _add(outside, c, i, x, own * exact * two)
                _add(outside, d, k, y, own * exact * one)
            weight = own * 0.5 * ways[_EMPTY]
            for side in range(2):
                e, f = (c, d) if side == 0 else (d, c)
                one = _at(message, low, step, e, 0.0)
                two, k, y = _spot(message, low, step, f, total)
                if one > 0.0 and two > 0.0:
                    counted[h, _EMPTY] += weight * one * two
                    _add(outside, e, 0, 0.0, weight * two)
                    _add(outside, f, k, y, weight * one)
            e, f = (c, d) if step[c] <= step[d] else (d, c)
            octave = _octave(total)
            law = laws[h, which[q], octave]
            first, last = _reached(low, step, e, f, total)
            before = _below(law, (low[e] + step[e] * (first - 0.5)) / total, e > f)
            for i in range(first, last + 1):
                point = low[e] + step[e] * i
                after = _below(law, (point + 0.5 * step[e]) / total, e > f)
                weight = own * abs(after - before)
                before = after
                two, k, y = _spot(message, low, step, f, max(total - point, 0.0))
                likely = weight * message[e, i] * two
                if likely > 0.0:
                    _add(outside, e, i, 0.0, weight * two)
                    _add(outside, f, k, y, weight * message[e, i])
                    u = min(point / total, 1.0)
                    cell = min(int(_place(1.0 - u if e > f else u) * cells), cells - 1)
                    uneven[h, which[q], octave, cell] += likely


@subkernel
def _moments(outside: Floats, message: Floats, low: Floats, step: Floats, q: int) -> tuple[float, float]:
    """Return the sum of what a node's posterior is in proportion to, and of that times the total."""
    whole, moment = 0.0, 0.0
    for j in range(POINTS):
        likely = outside[q, j] * message[q, j]
        whole += likely
        moment += likely * (low[q] + step[q] * j)
    return whole, moment


@subkernel
def _factor(noisy: float, scale: float, low: float, total: float) -> float:
    """Return a node's own factor of the likelihood, over the largest it has on its grid."""
    return math.exp((max(low - noisy, 0.0) - abs(noisy - total)) / scale)


@subkernel
def _spot(message: Floats, low: Floats, step: Floats, q: int, total: float) -> tuple[float, int, float]:
    """Return m of a node at a total, the point of its grid before it, and how far it is to the next.

    Outside of the grid it is 0.
    """
    x = (total - low[q]) / step[q]
    if x < -1e-9 or x > POINTS - 1 + 1e-9:
        return 0.0, 0, 0.0
    i = min(max(int(x), 0), POINTS - 2)
    x = min(max(x - i, 0.0), 1.0)
    return message[q, i] + x * (message[q, i + 1] - message[q, i]), i, x


@subkernel
def _at(message: Floats, low: Floats, step: Floats, q: int, total: float) -> float:
    """Return m of a node at a total."""
    found, _, _ = _spot(message, low, step, q, total)
    return found


@subkernel
def _add(outside: Floats, q: int, i: int, x: float, weight: float) -> None:
    """Add to r of a node what a product with `_spot` says of the two points about a total."""
    outside[q, i] += weight * (1.0 - x)
    if x > 0.0:
        outside[q, i + 1] += weight * x


@subkernel
def _reached(low: Floats, step: Floats, e: int, f: int, total: float) -> tuple[int, int]:
    """Return the first and the last point of one child's grid that leave a total of the other's grid."""
    least = (total - (low[f] + step[f] * (POINTS - 1)) - low[e]) / step[e]
    most = (total - low[f] - low[e]) / step[e]
    least, most = max(least - 1e-9, 0.0), min(most + 1e-9, POINTS - 1.0)
    return math.ceil(min(least, float(POINTS))), math.floor(max(most, -1.0))


@subkernel
def _deviation(total: float, part: float, concentration: float) -> float:
    """Return the standard deviation of the left child's total where a node is divided evenly."""
    return math.sqrt(total * part * (1.0 - part) * (1.0 + total / (concentration + 1.0)))


@subkernel
def _exact(sd: float, step: float, total: float) -> bool:
    """Return whether an even way leaves a child its part of the bins; chance divides no part of a record."""
    return sd < 0.5 * step or sd > total


@subkernel
def _near(low: Floats, step: Floats, e: int, f: int, total: float, mean: float, sd: float) -> tuple[int, int]:
    """Return the first and the last point of one child's grid that an even way is likely to reach."""
    first, last = _reached(low, step, e, f, total)
    least, most = (mean - _FAR * sd - low[e]) / step[e], (mean + _FAR * sd - low[e]) / step[e]
    least, most = min(max(least, 0.0), float(POINTS)), min(max(most, -1.0), POINTS - 1.0)
    return max(first, math.ceil(least)), min(last, math.floor(most))


@subkernel
def _normal(z: float) -> float:
    """Return the normal law's distribution function."""
    x = (z + _ENDS) * (_STEPS / (2.0 * _ENDS))
    if x <= 0.0:
        return 0.0
    if x >= _STEPS:
        return 1.0
    i = int(x)
    return float(_NORMAL[i] + (x - i) * (_NORMAL[i + 1] - _NORMAL[i]))


@subkernel
def _cut(z: float, begin: float, end: float) -> float:
    """Return the same between its values at 0 and at the whole total."""
    return min(max(_normal(z), begin), end)


@subkernel
def _octave(total: float) -> int:
    """Return which tables of beta laws a total has."""
    return min(math.floor(math.log2(max(total, 1.0))), _OCTAVES - 1)


@subkernel
def _place(u: float) -> float:
    """Return where a part lies among the cells of a table, from 0 to 1; see `beta_laws`."""
    return math.sqrt(0.5 * u) if u <= 0.5 else 1.0 - math.sqrt(0.5 * (1.0 - u))


@subkernel
def _below(law: Floats, u: float, mirrored: bool) -> float:
    """Return a distribution function at a part, or at what is left of the whole beside it."""
    if mirrored:
        u = 1.0 - u
    if u <= 0.0:
        return 0.0
    cells = law.size - 1
    if u >= 1.0:
        return float(law[cells])
    x = _place(u) * cells
    i = min(int(x), cells - 1)
    return float(law[i] + (x - i) * (law[i + 1] - law[i]))
