"""How far least squares answers on a tree are from the truth: the variance of any range, and of all at once.

Given the total x of a node, the totals of its children are t x + e and (1 - t) x - e, where e is independent
of everything outside the node. So an answer that takes the parts c1 and c2 of the children takes t c1 + (1 -
t) c2 of x, and adds the variance (c1 - c2)^2 Var(e): one step per level, sums of squares only, nothing
cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError, did_you_mean
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.tree import Nodes, Tree, node_variances

# The queries: "all-ranges", "prefixes" or "points" of the bins, or the ends (lo, hi) of ranges [lo, hi) in
# bins.
Queries: TypeAlias = str | tuple[Ints, Ints]

_TOP = (1 << 12) - 1  # nodes that fit into a processor's nearest memory; odd, so that siblings stay together
_NONE = 1e-9  # a part that is 0 but for rounding
_GROUPS_PER_RANGE = 8  # with more, sorting the ends takes longer than climbing from anywhere


@dataclass(frozen=True, eq=False)
class TreeError:
    """What the variance of a least squares answer depends on.

    Args:
        part: t of each node, the part of its total's error that its left child takes.
        loose: the variance of e of each node; infinity where no measurement distinguishes the children.
        total: the variance of the root.
    """

    tree: Tree
    part: Floats
    loose: Floats
    total: float

    @cached_property
    def above(self) -> Floats:
        """For each node its parent, whether it is the left child, and the parent's part and loose variance.

        What a step from a node to its parent needs lies together: at a million leaves, reading from memory is
        what takes the time.
        """
        parent = self.tree.parent
        is_left = self.tree.left[parent] == np.arange(parent.size)
        return np.column_stack((parent, is_left, self.part[parent], self.loose[parent]))


def tree_error(tree: Tree, variance: ArrayLike) -> TreeError:
    """Return what the variance of any range is read from: O(k), with variances as in ``least_squares``."""
    part, loose, v = np.full(tree.size, 0.5), np.zeros(tree.size), node_variances(tree, variance).copy()
    for (begin, end), (child, last) in zip(tree.levels[-2::-1], tree.levels[:0:-1], strict=True):
        inner = begin + np.flatnonzero(tree.left[begin:end])
        one, two = v[child:last:2], v[child + 1 : last : 2]
        part[inner] = _part_of_first(one, two)
        loose[inner] = combined(one, two)
        v[inner] = combined(v[inner], one + two)
    return TreeError(tree, part, loose, float(v[0]))


def _part_of_first(one: Floats, two: Floats) -> Floats:
    """Return the part of the error of a sum that the first summand has; either variance may be infinite."""
    with np.errstate(invalid="ignore"):
        part = one / (one + two)
    part[np.isinf(two) | (one + two == 0.0)] = 0.0
    part[np.isinf(one)] = 1.0
    part[np.isinf(one) & np.isinf(two)] = 0.5  # arbitrary: an answer that tells them apart has no variance
    return part


def combined(own: Floats, below: Floats) -> Floats:
    """Return the variance of the best mean of two independent estimates, either of them possibly infinite."""
    with np.errstate(invalid="ignore"):
        found = own * (below / (own + below))
    found[own + below == 0.0] = 0.0
    np.copyto(found, below, where=np.isinf(own))
    np.copyto(found, own, where=np.isinf(below))
    return found


@subkernel
def added(change: float, loose: float) -> float:
    """Return change^2 loose, and 0 if the change is 0, up to rounding, and the other infinite."""
    if np.isinf(loose):
        return np.inf if abs(change) > _NONE else 0.0
    return change * change * loose


def range_variances(error: TreeError, begin: ArrayLike, end: ArrayLike) -> Floats:
    """Return the variance of each answer to a range of groups: O(log k) per range.

    Args:
        begin: where the ranges begin, in groups; 3.25 leaves out a quarter of group 3, taken to be spread
            evenly.
        end: where they end.
    """
    a, b = (np.atleast_1d(np.ascontiguousarray(x, dtype=np.float64)) for x in (begin, end))
    k = error.tree.k
    if a.shape != b.shape or a.ndim != 1 or not ((a >= 0) & (a <= b) & (b <= k)).all():
        raise UsageError(f"ranges need as many begins as ends, rising, within the {k} groups.")
    leaf, out = error.tree.leaf, np.empty(a.size)
    firsts, lasts = _ends_in_groups(a, b, k)
    many = a.size >= leaf.size // _GROUPS_PER_RANGE and error.tree.size > _TOP
    climbed = np.empty((2, a.size if many else 0, 3))
    if many:
        for side, groups in enumerate((firsts, lasts)):
            order = np.empty(a.size, np.int64)
            _by_group(groups, np.zeros(k + 1, np.int64), order)
            _climb(side, leaf, error.above, order, groups, b if side else a, climbed[side])
    _answer(leaf, error.above, error.total, a, b, firsts, lasts, climbed, out)
    return out


@subkernel
def _up_from_begin(above: Floats, node: int, right_of: float, variance: float) -> tuple[int, float, float]:
    """Return the parent, what a range that begins below takes of it, and the variance so far.

    What it takes of the left child and of the right one is written without a branch, which no processor could
    predict.
    """
    is_left, part = above[node, 1], above[node, 2]
    right = is_left + (1.0 - is_left) * right_of
    change = is_left * right_of - right
    return int(above[node, 0]), right + part * change, variance + added(change, above[node, 3])


@subkernel
def _up_from_end(above: Floats, node: int, left_of: float, variance: float) -> tuple[int, float, float]:
    """Return the parent, what a range that ends below takes of it, and the variance so far."""
    is_left, part = above[node, 1], above[node, 2]
    right = (1.0 - is_left) * left_of
    change = is_left * left_of + (1.0 - is_left) - right
    return int(above[node, 0]), right + part * change, variance + added(change, above[node, 3])


@kernel
def _by_group(groups: Ints, place: Ints, order: Ints) -> None:
    """Write the order that sorts these numbers of groups, of which ``place`` has zeros: O(size + k)."""
    for i in range(groups.size):
        place[groups[i] + 1] += 1
    for g in range(place.size - 1):
        place[g + 1] += place[g]
    for i in range(groups.size):
        order[place[groups[i]]] = i
        place[groups[i]] += 1


def _ends_in_groups(begin: Floats, end: Floats, k: int) -> tuple[Ints, Ints]:
    """Return the groups in which ranges begin and end; an end on an edge belongs to the group before it."""
    firsts, lasts = begin.astype(np.int64), end.astype(np.int64)
    np.minimum(firsts, k - 1, out=firsts)
    lasts -= (lasts > firsts) & (lasts == end)
    return firsts, lasts


@kernel
def _climb(
    side: int, leaf: Nodes, above: Floats, order: Ints, groups: Ints, at: Floats, climbed: Floats
) -> None:
    """Write the top node to which the begins (0) or ends (1) climb, what they take of it, and the variance.

    Siblings are both among the top nodes or neither, so no top node at which a climb ends lies below another.
    """
    for k in range(order.size):
        i = order[k]
        node, variance = leaf[groups[i]], 0.0
        part = at[i] - groups[i] if side else groups[i] + 1.0 - at[i]
        while node >= _TOP:
            if side:
                node, part, variance = _up_from_end(above, node, part, variance)
            else:
                node, part, variance = _up_from_begin(above, node, part, variance)
        climbed[i, 0] = node
        climbed[i, 1] = part
        climbed[i, 2] = variance


@kernel
def _answer(
    leaf: Nodes,
    above: Floats,
    total: float,
    begin: Floats,
    end: Floats,
    firsts: Ints,
    lasts: Ints,
    climbed: Floats,
    out: Floats,
) -> None:
    """Write the variances; where ranges are many, their ends climb to the top nodes in the groups' order.

    The lower part of a climb from anywhere waits for memory at every step. Neighbours climb through the same
    nodes, so that in their order they do not, and the upper part is small enough to stay near the processor.
    A range takes the same steps either way, and its variance has the same digits.
    """
    begins, ends = climbed[0], climbed[1]
    for i in range(begin.size):
        first, last = firsts[i], lasts[i]
        if first == last:
            a, variance, cover = leaf[first], 0.0, end[i] - begin[i]
        else:
            if i < begins.shape[0] and begins[i, 0] != ends[i, 0]:
                a, right_of, one = int(begins[i, 0]), begins[i, 1], begins[i, 2]
                b, left_of, two = int(ends[i, 0]), ends[i, 1], ends[i, 2]
            else:
                a, right_of, one = leaf[first], first + 1.0 - begin[i], 0.0
                b, left_of, two = leaf[last], end[i] - last, 0.0
            # Both ends climb to the children of the lowest node that holds them; deeper nodes come later.
            while above[a, 0] != above[b, 0]:
                if a > b:
                    a, right_of, one = _up_from_begin(above, a, right_of, one)
                else:
                    b, left_of, two = _up_from_end(above, b, left_of, two)
            variance = one + two + added(right_of - left_of, above[a, 3])
            cover = left_of + above[a, 2] * (right_of - left_of)
            a = np.int64(above[a, 0])
        while a != 0:
            is_left, part = above[a, 1], above[a, 2]
            variance += added(cover, above[a, 3])
            cover *= is_left * part + (1.0 - is_left) * (1.0 - part)
            a = np.int64(above[a, 0])
        out[i] = variance + added(cover, total)


def weighted_variance(error: TreeError, weights: Floats) -> float:
    """Return the variance of the sum of the groups' totals, each times its weight: O(k)."""
    tree = error.tree
    cover = np.empty(tree.size)
    cover[tree.leaf] = weights
    return float(_weighted(tree.left, error.part, error.loose, error.total, cover))


@kernel
def _weighted(left: Nodes, part: Floats, loose: Floats, total: float, cover: Floats) -> float:
    """Return the variance of a sum, given the weights at the leaves; those of all nodes are written."""
    variance = 0.0
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        if c > 0:
            variance += added(cover[c] - cover[c + 1], loose[q])
            cover[q] = part[q] * cover[c] + (1.0 - part[q]) * cover[c + 1]
    return variance + added(cover[0], total)


def group_variances(error: TreeError) -> Floats:
    """Return the variance of every group's total: O(k)."""
    tree, v = error.tree, np.full(error.tree.size, error.total)
    for (begin, end), (child, last) in pairwise(tree.levels):
        inner = begin + np.flatnonzero(tree.left[begin:end])
        part, loose, above = error.part[inner], error.loose[inner], v[inner]
        for side, taken in enumerate((part, 1.0 - part)):
            with np.errstate(invalid="ignore"):
                own = taken * taken * above
            np.copyto(own, np.where(taken > _NONE, np.inf, 0.0), where=np.isinf(above))  # as `added` does
            v[child + side : last : 2] = own + loose
    return v[tree.leaf]


def total_variance(error: TreeError, widths: ArrayLike, queries: Queries) -> float:
    """Return the sum of the variances of all queries: O(k), and O(log k) for each range that is listed.

    Args:
        widths: how many bins each group has; a group's total is spread evenly over them.
    """
    w = group_widths(widths, error.tree.k)
    starts = edges(w)
    if isinstance(queries, tuple):
        begin, end = (positions(starts, x) for x in range_ends(queries, int(starts[-1])))
        return float(range_variances(error, begin, end).sum())
    if closed_form(queries) == "points":
        return float((group_variances(error) / w).sum())
    tree = error.tree
    return _sum_all(
        tree.lo, tree.hi, tree.left, error.part, error.loose, error.total, starts, queries == "prefixes"
    )


def expected_error(tree: Tree, weights: ArrayLike, widths: ArrayLike, queries: Queries) -> float:
    """Return E, the trace tr(W'W (Y'C^2 Y)^-1) per query: the variance of an answer is 2 E / epsilon^2.

    Args:
        weights: each node's fraction of the budget; 0 is unmeasured.
    """
    c = np.asarray(weights, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        variance = 1.0 / (c * c)
    return total_variance(tree_error(tree, variance), widths, queries) / query_count(widths, queries)


def query_count(widths: ArrayLike, queries: Queries) -> int:
    """Return how many queries there are."""
    if isinstance(queries, tuple):
        return int(np.size(queries[0]))
    n = int(np.sum(widths))
    return n * (n + 1) // 2 if closed_form(queries) == "all-ranges" else n


def closed_form(queries: str) -> str:
    """Return the name of a workload that need not be listed, or say which there are."""
    known = ("all-ranges", "prefixes", "points")
    if queries not in known:
        raise UsageError(f"unknown queries {queries!r}. {did_you_mean(str(queries), known)}")
    return queries


def group_widths(widths: ArrayLike, k: int) -> Ints:
    """Return the groups' sizes in bins, or say what is wrong with them."""
    w = np.asarray(widths)
    if w.dtype.kind not in "iu" or w.shape != (k,) or not (w >= 1).all():
        raise UsageError(f"{k} groups need as many widths, whole numbers of at least one bin.")
    return w.astype(np.int64)


def edges(widths: Ints) -> Ints:
    """Return where each group begins and, last, the number of bins."""
    out = np.zeros(widths.size + 1, np.int64)
    np.cumsum(widths, out=out[1:])
    return out


def range_ends(queries: tuple[Ints, Ints], n: int) -> tuple[Ints, Ints]:
    """Return the listed ranges' ends as int64, or say what is wrong with them."""
    lo, hi = (np.asarray(x) for x in queries)
    if lo.dtype.kind not in "iu" or hi.dtype.kind not in "iu" or lo.shape != hi.shape or lo.ndim != 1:
        raise UsageError("listed ranges need two rows of whole numbers of one length: lo and hi.")
    if not lo.size or lo.min() < 0 or hi.max() > n or not (lo < hi).all():
        raise UsageError(f"every listed range must be [lo, hi) with 0 <= lo < hi <= {n}.")
    return np.ascontiguousarray(lo, np.int64), np.ascontiguousarray(hi, np.int64)


def positions(starts: Ints, bins: Ints) -> Floats:
    """Return where these ends of bins lie, in groups: 3.25 is a quarter into group 3."""
    group = np.minimum(np.searchsorted(starts, bins, side="right") - 1, starts.size - 2)
    out: Floats = group + (bins - starts[group]) / (starts[group + 1] - starts[group])
    return out


# All ranges and all prefixes: let F(x) be the part of a node's total expected left of the end x, linear
# inside a group. Sums over pairs of ends need only the number, mean and squared deviations of F over the ends
# inside.


@subkernel
def leaf_spread(width: int) -> float:
    """Return the squared deviations of 1/w, ..., (w - 1)/w from their mean 1/2."""
    return (width - 1.0) * (width - 2.0) / (12.0 * width)


@subkernel
def pooled(
    n1: float, mean1: float, dev1: float, middle: float, n2: float, mean2: float, dev2: float
) -> tuple[float, float]:
    """Return the mean and the squared deviations of n1 numbers, one in the middle, and n2 more."""
    mean = (n1 * mean1 + middle + n2 * mean2) / (n1 + 1.0 + n2)
    dev = dev1 + dev2 + n1 * (mean1 - mean) ** 2 + (middle - mean) ** 2 + n2 * (mean2 - mean) ** 2
    return mean, dev


@subkernel
def covered(prefixes: bool, before: float, inside: float, after: float, mean: float, dev: float) -> float:
    """Return the sum over the queries of (F(end) - F(begin))^2: F is 0 before the node and 1 after it."""
    if prefixes:
        return dev + inside * mean * mean + after
    ends = before + inside + after
    return ends * dev + before * (inside * mean**2) + after * (inside * (1.0 - mean) ** 2) + before * after


@subkernel
def contrast(
    prefixes: bool, ends: float, n1: float, mean1: float, dev1: float, n2: float, mean2: float, dev2: float
) -> float:
    """Return the sum over the queries of (c1 - c2)^2, c1 and c2 being what they take of the two children."""
    mean, dev = pooled(n1, mean1, dev1, 1.0, n2, 1.0 - mean2, dev2)
    inside = n1 + 1.0 + n2
    if prefixes:
        return dev + inside * mean * mean
    return ends * dev + inside * mean * mean * (ends - inside)


@kernel
def _sum_all(
    lo: Nodes, hi: Nodes, left: Nodes, part: Floats, loose: Floats, total: float, starts: Ints, prefixes: bool
) -> float:
    nodes = left.size
    ends = starts[starts.size - 1] + 1.0
    mean = np.empty(nodes)
    dev = np.empty(nodes)
    variance = 0.0
    for q in range(nodes - 1, -1, -1):
        width = starts[hi[q]] - starts[lo[q]]
        c = left[q]
        if c == 0:
            mean[q] = 0.5
            dev[q] = leaf_spread(width)
            continue
        d = c + 1
        n1 = starts[hi[c]] - starts[lo[c]] - 1.0
        n2 = width - n1 - 2.0
        t, u = part[q], 1.0 - part[q]
        if loose[q] > 0.0:
            variance += loose[q] * contrast(prefixes, ends, n1, mean[c], dev[c], n2, mean[d], dev[d])
        mean[q], dev[q] = pooled(n1, t * mean[c], t * t * dev[c], t, n2, t + u * mean[d], u * u * dev[d])
    return variance + total * covered(prefixes, 1.0, ends - 2.0, 1.0, mean[0], dev[0])
