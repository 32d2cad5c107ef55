"""Where listed ranges lie in a tree: the nodes of their ends, and the lowest node that holds both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel
from dphist.kernels.trees.tree import Flags, Nodes, Tree, fixed_tree, shaped_tree
from dphist.kernels.trees.variances import positions


class Located(NamedTuple):
    """Ranges sorted by their tops, last node first; ranges from bin 0 or to bin n come last, with top -1.

    ``into`` is how far into its group an end lies, 0 on an edge; ``whole[q]`` is how many ranges begin at or
    before node q less how many end before its end. Nodes in or below which a range ends are numbered in
    ``row`` from 1 to ``rows`` - 1; the others have 0.
    """

    begin: Ints  # the nodes where they begin, -1 at the first bin
    begin_into: Floats
    end: Ints  # the nodes where they end, -1 at the last bin
    end_into: Floats
    top: Ints
    whole: Floats
    row: Ints
    rows: int


class Ends(NamedTuple):
    """The groups in which ranges begin and end, and how far into them; 0 is on the edge before the group."""

    begin: Ints
    begin_into: Floats
    end: Ints
    end_into: Floats


class Folded(NamedTuple):
    """A tree cut off below the nodes in or below which no range ends, each of which is one group.

    Args:
        tree: its nodes are those of the whole tree, in the same order.
        nodes: their numbers there.
        many: how many groups each has there.
        ends: of the ranges, among the groups of this tree.
    """

    tree: Tree
    nodes: Ints
    many: Floats
    ends: Ends


def ends_of(starts: Ints, lo: Ints, hi: Ints) -> Ends:
    """Return where the ranges [lo, hi), in bins, end among the groups."""
    if starts[-1] == starts.size - 1:
        return Ends(lo, np.zeros(lo.size), hi, np.zeros(hi.size))
    a, b = (positions(starts, x) for x in (lo, hi))
    begin, end = a.astype(np.int64), b.astype(np.int64)
    return Ends(begin, a - begin, end, b - end)


def folded(tree: Tree, ends: Ends) -> Folded:
    """Return the tree cut off where no range ends any more: O(m log k) nodes for m ranges."""
    places = np.concatenate([2 * at + (into > 0) for at, into in (ends[:2], ends[2:])])
    places.sort()
    levels, flags, these = list[Ints](), list[Flags](), np.zeros(1, np.int64)
    while these.size:
        lo, hi = 2 * tree.lo[these].astype(np.int64), 2 * tree.hi[these].astype(np.int64)
        inside = np.searchsorted(places, lo, side="right") < np.searchsorted(places, hi)
        levels.append(these)
        flags.append(inside & (tree.left[these] > 0))
        left = tree.left[these[flags[-1]]].astype(np.int64)
        these = np.stack((left, left + 1), axis=1).ravel()
    nodes = np.concatenate(levels)
    made = shaped_tree(np.concatenate(flags), tree.branching)
    small = fixed_tree(
        made.lo, made.hi, made.left, made.measured, tree.height[nodes], made.leaf, made.branching
    )
    edges = np.append(tree.lo[nodes[small.leaf]], tree.k)
    begin, end = (np.searchsorted(edges, at) for at in (ends.begin, ends.end))
    many = (tree.hi[nodes] - tree.lo[nodes]).astype(np.float64)
    return Folded(small, nodes, many, Ends(begin, ends.begin_into, end, ends.end_into))


def locate(tree: Tree, ends: Ends) -> Located:
    """Return where ranges lie in the tree: O(k + m log k)."""
    m, nodes = ends.begin.size, tree.size
    begin, end, top, tops = (np.empty(m, np.int64) for _ in range(4))
    begin_into, end_into, whole, row = np.empty(m), np.empty(m), np.empty(nodes), np.zeros(nodes, np.int64)
    at_edge, count = np.full(tree.k + 1, -1), np.zeros(nodes + 2, np.int64)
    rows = _locate(
        tree.lo, tree.hi, tree.left, tree.parent, tree.leaf, *ends, at_edge, tops, count,
        np.zeros((2, tree.k + 2)), begin, begin_into, end, end_into, top, whole, row,
    )  # fmt: skip
    return Located(begin, begin_into, end, end_into, top, whole, row, rows)


@kernel
def _locate(
    lo: Nodes,
    hi: Nodes,
    left: Nodes,
    parent: Nodes,
    leaf: Nodes,
    a: Ints,
    a_into: Floats,
    b: Ints,
    b_into: Floats,
    at_edge: Ints,
    tops: Ints,
    count: Ints,
    running: Floats,
    begin: Ints,
    begin_into: Floats,
    end: Ints,
    end_into: Floats,
    top_of: Ints,
    whole: Floats,
    row: Ints,
) -> int:
    """Write the fields of `Located`, return the last; dense matrices of tests/naive_trees.py check their use.

    ``at_edge`` is -1 everywhere, ``count``, ``running`` and ``row`` are 0.
    """
    k, m, nodes = leaf.size, a.size, left.size
    begun, ended = running[0], running[1]
    # Step 1: the one node that each inner edge between groups cuts in two.
    for q in range(nodes):
        if left[q] > 0:
            at_edge[hi[left[q]]] = q
    # Step 2: the top of each range, by climbing from both ends: a node's number exceeds its parent's.
    for i in range(m):
        group = a[i]
        x = at_edge[group] if a_into[i] == 0.0 else leaf[group]
        begun[group if a_into[i] == 0.0 else group + 1] += 1.0
        group = b[i]
        y = at_edge[group] if b_into[i] == 0.0 else leaf[group]
        ended[group + 1] += 1.0
        if x < 0 or y < 0:
            top = np.int64(-1)
        else:
            while x != y:
                if x > y:
                    x = parent[x]
                else:
                    y = parent[y]
            top = x
        tops[i] = top
        count[nodes - top] += 1
    # Step 3: sort the ranges by their tops, by counting, last node first.
    for q in range(nodes + 1):
        count[q + 1] += count[q]
    for i in range(m - 1, -1, -1):
        count[nodes - tops[i]] -= 1
        to = count[nodes - tops[i]]
        top_of[to] = tops[i]
        begin_into[to] = a_into[i]
        begin[to] = at_edge[a[i]] if a_into[i] == 0.0 else leaf[a[i]]
        end_into[to] = b_into[i]
        end[to] = at_edge[b[i]] if b_into[i] == 0.0 else leaf[b[i]]
    # Step 4: how many ranges contain each node, from running counts of begins and ends.
    for e in range(k):
        begun[e + 1] += begun[e]
        ended[e + 1] += ended[e]
    for q in range(nodes):
        whole[q] = begun[lo[q]] - ended[hi[q]]
    # Step 5: number the nodes that contain an end, and their ancestors.
    for i in range(m):
        if begin[i] >= 0:
            row[begin[i]] = 1
        if end[i] >= 0:
            row[end[i]] = 1
    rows = 1
    for q in range(nodes - 1, -1, -1):
        if row[q] > 0:
            row[q] = rows
            rows += 1
            if q > 0:
                row[parent[q]] = 1
    return rows
