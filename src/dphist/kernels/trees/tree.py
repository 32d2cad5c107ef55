"""Trees of noisy totals over k groups: their shape, exact budgets, and weighted least squares in O(k).

Every tree here is binary and full: 2k - 1 nodes, whatever the branching. A node with more than two children
is split into virtual nodes that are never measured, and a node with one child is left out; neither changes a
least squares answer. Node 0 is the root, parents come before their children, and the two children of a node
are neighbours: ``left[q]`` and ``left[q] + 1``, or 0 at a leaf. Node q covers the groups ``lo[q]`` to ``hi[q]
- 1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels import kernel

Flags = NDArray[np.bool_]
Bytes = NDArray[np.int8]
Nodes = NDArray[np.int32]  # numbers of nodes or groups: of at most 2^27 bins there are fewer than 2^28 nodes
_BLOCK = 1 << 15  # nodes that are looked at together: what is made of them is small
WHOLE = 1 << 32  # parts of a budget; the rounding of a part is far below any noise


@dataclass(frozen=True, eq=False)
class Tree:
    """A full binary tree over k groups, each array with one entry per node.

    Args:
        measured: whether the node is one of the tree with the branching asked for, so may be measured.
        height: the least h such that ``branching**h`` bins would cover the node; 0 at a single bin.
        leaf: the node of each group.
        branching: how many children a node has in the tree asked for.
    """

    lo: Nodes
    hi: Nodes
    left: Nodes
    measured: Flags
    height: Bytes
    leaf: Nodes
    branching: int

    @cached_property
    def parent(self) -> Nodes:
        """The parent of each node; -1 at the root. Pairs of children are numbered as their parents are."""
        parent = np.full(self.size, -1, np.int32)
        parent[1::2] = np.flatnonzero(self.left)
        parent[2::2] = parent[1::2]
        parent.flags.writeable = False
        return parent

    @cached_property
    def levels(self) -> tuple[tuple[int, int], ...]:
        """The first node of each level and the one after its last, from the root down.

        The children of a level's nodes are the nodes of the next, in the same order.
        """
        found, begin, end = [], 0, 1
        while begin < end:
            found.append((begin, end))
            begin, end = end, end + 2 * int(np.count_nonzero(self.left[begin:end]))
        return tuple(found)

    @property
    def k(self) -> int:
        return self.leaf.size

    @property
    def size(self) -> int:
        return self.lo.size


@lru_cache(maxsize=2)  # the tree of a domain is public and the same for every release
def make_tree(k: int, branching: int = 2) -> Tree:
    """Return the tree over k groups that is as complete as it can be: O(k).

    Level h has the nodes [j t^h, min((j + 1) t^h, k)) for the branching t, as in DAWA, section 4.3.
    """
    if k < 1:
        raise UsageError(f"a tree needs at least one group, not {k}.")
    return _tree(np.arange(k + 1), branching)


def is_plain(tree: Tree) -> bool:
    """Return whether a tree is the one that `make_tree` makes over as many groups."""
    plain = _tree(np.arange(tree.k + 1), tree.branching)
    return np.array_equal(plain.lo, tree.lo) and np.array_equal(plain.hi, tree.hi)


def shaped_tree(inner: Flags, branching: int = 2) -> Tree:
    """Return the tree in which these nodes, numbered level by level, have two children: O(k).

    Args:
        inner: whether a node has children, one entry per node.
        branching: how many children a node has in the tree asked for.
    """
    flags = np.asarray(inner, dtype=bool)
    left = np.where(flags, 1 + 2 * (np.cumsum(flags) - flags), 0).astype(np.int32)
    if flags.size != 2 * int(flags.sum()) + 1 or (left[flags] <= np.flatnonzero(flags)).any():
        raise UsageError("a tree's nodes have none or two children, which come after them.")
    lo, hi = (np.full(left.size, start, np.int32) for start in (0, 1))
    leaf = np.empty((left.size + 1) // 2, np.int32)
    _spans(left, lo, hi, leaf)
    return fixed_tree(lo, hi, left, np.ones(left.size, bool), np.zeros(left.size, np.int8), leaf, branching)


def fixed_tree(
    lo: Nodes,
    hi: Nodes,
    left: Nodes,
    measured: Flags,
    height: Bytes,
    leaf: Nodes,
    branching: int,
) -> Tree:
    """Return a tree whose arrays cannot be written to: every tree is so, and each loop is compiled once."""
    for array in (lo, hi, left, measured, height, leaf):
        array.flags.writeable = False
    return Tree(lo, hi, left, measured, height, leaf, branching)


@kernel
def _spans(left: Nodes, lo: Nodes, hi: Nodes, leaf: Nodes) -> None:
    """Write the groups that every node covers, and the node of each group: over 0 and 1."""
    nodes = left.size
    for q in range(nodes - 1, -1, -1):
        if left[q] > 0:
            hi[q] = hi[left[q]] + hi[left[q] + 1]
    for q in range(nodes):
        hi[q] += lo[q]
        if left[q] > 0:
            lo[left[q]] = lo[q]
            lo[left[q] + 1] = lo[q] + hi[left[q]]  # which is still a number of groups
        else:
            leaf[lo[q]] = q


def pruned_tree(starts: Ints, branching: int = 2) -> Tree:
    """Return the tree over the bins, cut off below the groups, which must be nodes of it: O(k log k).

    Args:
        starts: where each group begins among the bins and, last, the number of bins.
    """
    s = np.ascontiguousarray(starts, dtype=np.int64)
    if s.ndim != 1 or s.size < 2 or s[0] != 0 or not (s[1:] > s[:-1]).all():
        raise UsageError("the groups of a tree must start at rising places, the first at 0.")
    return _tree(s, branching)


def _tree(starts: Ints, branching: int) -> Tree:
    if not 2 <= branching <= 1 << 27:
        raise UsageError(f"a tree's branching is a whole number of at least 2, not {branching}.")
    starts, k = starts.view(), starts.size - 1
    starts.flags.writeable = False
    lo, hi, left = (np.zeros(2 * k - 1, np.int32) for _ in range(3))
    measured, height, leaf = np.ones(left.size, np.bool_), np.zeros(left.size, np.int8), np.empty(k, np.int32)
    if not _grow(starts, branching, lo, hi, left, measured, height, leaf):
        raise UsageError(
            f"a group is not a node of the tree of branching {branching}; use make_tree instead."
        )
    return fixed_tree(lo, hi, left, measured, height, leaf, branching)


@kernel
def _grow(
    starts: Ints,
    t: int,
    lo: Nodes,
    hi: Nodes,
    left: Nodes,
    measured: Flags,
    height: Bytes,
    leaf: Nodes,
) -> bool:
    """Fill in a tree, given zeros and, where measured, ones; return whether the groups are its nodes."""
    k = starts.size - 1
    n = starts[k]
    hi[0] = k
    made = 1
    for q in range(left.size):
        first, last = lo[q], hi[q]
        begin, end = starts[first], starts[last]
        span, h = 1, 0  # of the node's children, if it is not a single bin
        if end - begin > 1:
            h = 1
            while span * t < end - begin:
                span *= t
                h += 1
        height[q] = h
        if last - first == 1:
            leaf[first] = q
            continue
        block = span * t
        measured[q] = begin % block == 0 and end == min(begin + block, n)
        half = 1
        while 2 * half * span < end - begin:
            half *= 2
        cut = begin + half * span
        if n == k:
            middle = cut
        else:
            middle, above = first, last  # the first group that does not start before the cut
            while middle < above:
                between = (middle + above) // 2
                if starts[between] < cut:
                    middle = between + 1
                else:
                    above = between
            if starts[middle] != cut:
                return False
        left[q] = made
        for child in range(made, made + 2):
            lo[child] = first if child == made else middle
            hi[child] = middle if child == made else last
        made += 2
    return True


def level_weights(tree: Tree, *, ratio: float = 1.0, root: bool = True) -> Floats:
    """Return each node's fraction of the budget: the same on a level, ``ratio`` times more on the one below.

    A ratio of 1 is Hay et al.; Cormode et al. use 2**(1/3). A leaf takes all that its path has left, so a
    group cut off above the bins gets the budget of the levels below it in one measurement.
    """
    if not (math.isfinite(ratio) and ratio > 0):
        raise UsageError(f"the ratio of two levels' budgets must be positive and finite, not {ratio!r}.")
    top = int(tree.height[0])
    power = ratio ** (top - np.arange(top + 1.0))
    if not root and top:
        power[top] = 0.0
    weights: Floats = (power / power.sum())[tree.height]
    weights[~tree.measured] = 0.0
    rest = np.ones(1)  # what the paths to the nodes of a level have left, which is a leaf's
    for begin, end in tree.levels:
        own, inner = weights[begin:end], tree.left[begin:end] > 0
        np.copyto(own, rest, where=~inner)
        rest = np.repeat(rest[inner] - own[inner], 2)
    return weights


def integer_parts(weights: ArrayLike, *, lo: Nodes, hi: Nodes, k: int, whole: int = WHOLE) -> Ints:
    """Return the fractions as whole numbers of parts, rounded down; no group takes more than ``whole``.

    The sums over every group are formed in integers. Fractions whose sums exceed 1 by more than rounding
    (1e-6) are refused; a smaller excess makes all of them a little smaller.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != np.shape(lo) or w.shape != np.shape(hi) or w.ndim != 1:
        raise UsageError("every node needs a weight, a lo and a hi.")
    if not (np.isfinite(w).all() and (w >= 0).all() and (w <= 1 + 1e-6).all()):
        raise UsageError("a node's fraction of the budget must lie between 0 and 1.")
    if not 0 < whole <= 1 << 40:
        raise UsageError(f"the whole must be between 1 and 2**40 parts, not {whole}.")
    factor, parts = float(whole), np.empty(w.size, np.int64)
    for _ in range(64):
        for at in range(0, w.size, _BLOCK):
            parts[at : at + _BLOCK] = np.minimum(np.floor(w[at : at + _BLOCK] * factor), whole)
        worst = _worst_sum(parts, lo, hi, k)
        if worst <= whole:
            return parts
        factor *= whole / worst * (1.0 - 2.0**-50)
        if factor < whole * (1.0 - 2e-6):
            break
    raise UsageError("the fractions over one group add up to more than the whole budget.")


def _worst_sum(parts: Ints, lo: Nodes, hi: Nodes, k: int) -> int:
    """Return the largest sum over one of k groups."""
    change = np.zeros(k + 1, np.int64)
    for at in range(0, parts.size, _BLOCK):
        some = slice(at, at + _BLOCK)
        np.add.at(change, lo[some], parts[some])
        np.subtract.at(change, hi[some], parts[some])
    return int(np.cumsum(change, out=change).max())


def least_squares(tree: Tree, y: ArrayLike, variance: ArrayLike) -> Floats:
    """Return the group totals that fit the noisy totals ``y`` best: exact weighted least squares, O(k).

    Args:
        y: one noisy total per node; what stands at an unmeasured node is not looked at.
        variance: of each total's noise; infinity where there was no measurement. Zero is allowed. What the
            measurements leave open gets the answer of least norm: equal shares.
    """
    return fitted_over(tree, np.array(y, dtype=np.float64), np.array(variance, dtype=np.float64))


def fitted_over(tree: Tree, y: Floats, variance: Floats) -> Floats:
    """Return what `least_squares` does, for numbers that nobody needs any more: they are overwritten."""
    var = node_variances(tree, variance)
    blocks = [slice(at, at + _BLOCK) for at in range(0, tree.size, _BLOCK)]
    if y.shape != (tree.size,) or not all((np.isfinite(y[b]) | np.isinf(var[b])).all() for b in blocks):
        raise UsageError(f"least squares needs a finite noisy total at each of the {tree.size} nodes.")
    open_leaves = any((np.isinf(var[b]) & (tree.left[b] == 0)).any() for b in blocks)
    x, free = np.empty(tree.k), np.zeros(tree.size if open_leaves else 0)
    _fit(tree.left, tree.lo, y, var, free, x)
    return x


def node_variances(tree: Tree, variance: ArrayLike) -> Floats:
    """Return the variances as one float per node, or say what is wrong with them."""
    var = np.ascontiguousarray(variance, dtype=np.float64)
    if var.shape != (tree.size,) or not (var >= 0).all():
        raise UsageError(f"a tree of {tree.size} nodes needs as many variances, none negative or NaN.")
    return var


@kernel
def _fit(left: Nodes, lo: Nodes, z: Floats, v: Floats, free: Floats, x: Floats) -> None:
    """Fit bottom-up from each subtree alone, then hand every node's correction down to its children.

    ``z`` and ``v``, the noisy totals and their variances at first, become those of the subtrees. ``free``
    counts the leaves below a node that nothing up to and including it has measured. A gap there is theirs to
    fill, for it fits nothing else better; that is the solution of least norm. It is 0 at first; it has no
    entries where all leaves are measured. What ``x`` holds does not matter.
    """
    nodes, some = left.size, free.size > 0
    for q in range(nodes - 1, -1, -1):
        c = left[q]
        if c == 0:
            if np.isinf(v[q]):
                z[q] = 0.0
                v[q] = 0.0
                free[q] = 1.0
            continue
        own, below = v[q], v[c] + v[c + 1]
        total = z[c] + z[c + 1]
        spare = free[c] + free[c + 1] if some else 0.0
        if np.isinf(own):
            z[q] = total
            v[q] = below
            if some:
                free[q] = spare
        elif spare == 0.0:
            both = own + below
            part = below / both if both > 0.0 else 0.0
            z[q] = total + (z[q] - total) * part
            v[q] = own * part
    for q in range(nodes):
        c = left[q]
        if c == 0:
            x[lo[q]] = z[q]
            continue
        gap = z[q] - (z[c] + z[c + 1])
        below = v[c] + v[c + 1]
        spare = free[c] + free[c + 1] if some else 0.0
        if spare > 0.0:
            z[c] += gap * (free[c] / spare)
            z[c + 1] += gap * (free[c + 1] / spare)
        elif below > 0.0:
            z[c] += gap * (v[c] / below)
            z[c + 1] += gap * (v[c + 1] / below)
