"""The error of m listed ranges on a tree, and how it depends on each share: near O(k + m) each way.

To a node, a range is of the kind R (begins at or before it, ends inside), L (begins inside, ends at or after
it), I (inside), whole or nothing. Only sums over each kind are stored. A range is visited where its ends lie
and at its top, the lowest node that has both ends strictly inside, where it turns from L and R of the
children into I. An end on an edge between groups lies in the one node that the edge cuts in two; an end
inside a group lies in its leaf.
"""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.kernels import kernel, subkernel
from dphist.kernels.trees.budget import (
    BUDGET,
    GREEDY,
    KNOWN,
    PULL,
    SEEN,
    SWEEP,
    WIDTH,
    greedy_share,
    settled,
    swept_share,
)
from dphist.kernels.trees.tree import Bytes, Flags, Nodes

V, J, B, CROSS = 0, 1, 2, 3  # columns of the state: see kernels.trees.budget
STATE = 4
# Nodes in or below which a range ends have a row of sums besides; row 0 is for all others and stays 0. N_R, R
# and RR: the number of ranges of kind R, and the sums of F(end) and its square; N_L, L and LL: the same of 1
# - F(begin) for kind L; N_I and II: of kind I, with the squared parts they take of the node's total.
N_R, R, RR, N_L, L, LL, N_I, II = range(8)
# Ranges whose end (begin) is the node's middle edge; of the ranges whose top this is, with the parts g and f
# of the two children, the sums of g^2, g f and f^2; and the sum over all ranges of (c1 - c2)^2.
MID_R, MID_L, GG, GF, FF, BOTH = range(8, 14)
# Sums on the way down: of g (c1 - c2); of e and e times the part covered, for kinds R and L; see
# `fall_ranges`.
_ALONG, _R0, _R1, _RM, _L0, _L1, _LM = range(14, 21)
SUMS = 21
_FAR, _PART, _LOOSE = (
    WIDTH,
    WIDTH + 1,
    WIDTH + 2,
)  # columns on the way down, after those of kernels.trees.budget
DOWN = WIDTH + 3


@subkernel
def _climb(q: int, f: float, up: Ints, shift: Floats, slope: Floats) -> float:
    """Return F on the highest node joined so far, given F on that of row q; paths are halved on the way."""
    while up[q] != q:
        p = up[q]
        if up[p] != p:
            shift[q] = shift[p] + slope[p] * shift[q]
            slope[q] *= slope[p]
            up[q] = up[p]
        f = shift[q] + slope[q] * f
        q = up[q]
    return f


@subkernel
def _join(kind: Floats, n: np.int64, part: float) -> None:
    """Add one range to the three sums of a kind; a literal as its place would be compiled by itself."""
    kind[n] += 1.0
    kind[n + 1] += part
    kind[n + 2] += part * part


@subkernel
def _leave(kind: Floats, n: np.int64, part: float) -> None:
    """Take one range out of the three sums of a kind."""
    kind[n] -= 1.0
    kind[n + 1] -= part
    kind[n + 2] -= part * part
    if kind[n] == 0.0:
        kind[n + 1] = 0.0
        kind[n + 2] = 0.0


@kernel
def rise_ranges(
    left: Nodes,
    measured: Flags,
    height: Bytes,
    begin: Ints,
    begin_into: Floats,
    end: Ints,
    end_into: Floats,
    top: Ints,
    whole: Floats,
    row: Ints,
    many: Floats,
    decay: Floats,
    collapse: bool,
    mode: int,
    share: Floats,
    down: Floats,
    state: Floats,
    sums: Floats,
    parts: Floats,
    up: Ints,
    shift: Floats,
    slope: Floats,
) -> float:
    """Fill ``state`` and ``sums``, set ``share`` unless it is given, and return the error of all ranges.

    ``parts`` (m, 2) receives the parts that each range takes of the two children of its top. The slow twin
    is the dense ``query_matrix`` with ``fit`` (and ``greedy``) of tests/naive_trees.py. ``up``, ``shift`` and
    ``slope`` are room for a number of each row of sums. ``many`` is how many groups each node has, of a tree
    that is cut off where no range ends, or nothing.

    No query tells the groups of such a leaf apart, so J is 0 in it and at all nodes below it. Then each of
    these keeps all that reaches it if the queries move its total at all, and nothing otherwise, in both ways
    to choose a share: and so the variance of the leaf's total is 1 or its number of groups.
    """
    m = top.size
    for r in range(sums.shape[0]):
        up[r] = r
        for k in range(sums.shape[1]):
            sums[r, k] = 0.0
    # Step 1: every end joins the sums of the node in which it lies.
    for i in range(m):
        a, b = begin[i], end[i]
        if a >= 0 and a != top[i]:
            if left[a] > 0:
                sums[row[a], MID_L] += 1.0
            else:
                _join(sums[row[a]], np.int64(N_L), 1.0 - begin_into[i])
        if b >= 0 and b != top[i]:
            if left[b] > 0:
                sums[row[b], MID_R] += 1.0
            else:
                _join(sums[row[b]], np.int64(N_R), end_into[i])
    i = 0
    for q in range(left.size - 1, -1, -1):
        c = left[q]
        me = sums[row[q]]
        # Step 2, a leaf: ranges inside it take their length of it; ranges are sorted by their tops.
        if c == 0:
            while i < m and top[i] == q:
                me[N_I] += 1.0
                length = end_into[i] - begin_into[i]
                me[II] += length * length
                i += 1
            b = whole[q] + me[N_I] + me[RR] + me[LL] + me[II]
            if mode == KNOWN:
                pass
            elif many.size == 0:
                share[q] = 1.0
            elif mode == GREEDY:
                share[q] = 1.0 if b > 0.0 else 0.0
            elif mode == SWEEP:
                share[q] = swept_share(0.0, 1.0, state[q, V], down[q])
            state[q, V] = 1.0 / share[q] if share[q] > 0.0 else many[q]
            state[q, J] = 0.0
            state[q, B] = b
            state[q, CROSS] = 0.0
            continue
        # Step 3: a range with its top here leaves L and R of the children and becomes I.
        d = c + 1
        one, two = sums[row[c]], sums[row[d]]
        while i < m and top[i] == q:
            g = 0.0
            f = 0.0
            if begin[i] != q:
                into = _inside(state, left, begin[i], begin_into[i])
                g = 1.0 - _climb(row[begin[i]], into, up, shift, slope)
                _leave(one, np.int64(N_L), g)
            if end[i] != q:
                into = _inside(state, left, end[i], end_into[i])
                f = _climb(row[end[i]], into, up, shift, slope)
                _leave(two, np.int64(N_R), f)
            parts[i, 0] = g
            parts[i, 1] = f
            me[N_I] += 1.0
            me[GG] += g * g
            me[GF] += g * f
            me[FF] += f * f
            i += 1
        # Step 4: the sums of the node from those of its children, whose F is scaled by t and 1 - t.
        v1, v2 = state[c, V], state[d, V]
        s = v1 + v2
        t = v1 / s
        across = whole[q]  # the sum over all ranges of c1 c2
        if row[q] > 0:
            up[row[c]] = row[q]
            shift[row[c]] = 0.0
            slope[row[c]] = t
            up[row[d]] = row[q]
            shift[row[d]] = t
            slope[row[d]] = 1.0 - t
            up[0] = 0  # the nodes without ends share this row: nothing climbs from there
            _merge(t, me, one, two)
            across += me[N_I] + two[R] + one[L] + me[GF]
        # Step 5: as steps 3 and 4 of `rise_closed`: the error, and the node's share.
        b = whole[q] + me[N_I] + me[RR] + me[LL] + me[II]
        j = state[c, J] + state[d, J] + me[BOTH] * (t * v2)
        if mode == GREEDY:
            cross = 2.0 * v1 * v2 * across
            if not measured[c]:
                cross += state[c, CROSS]
            if not measured[d]:
                cross += state[d, CROSS]
            state[q, CROSS] = cross
            share[q] = greedy_share(j, b, cross, s, decay[height[q]], collapse) if measured[q] else 0.0
        elif mode == SWEEP:
            share[q] = swept_share(j, s, state[q, V], down[q]) if measured[q] else 0.0
        state[q, V], state[q, J] = settled(j, s, share[q], mode)
        state[q, B] = b
    return float(state[0, V] * state[0, B] + state[0, J])


@subkernel
def _merge(t: float, me: Floats, one: Floats, two: Floats) -> None:
    """Make the sums of a node from those of its children."""
    u = 1.0 - t
    ends = one[RR] + me[MID_R] + (two[N_R] - 2.0 * two[R] + two[RR])
    begins = two[LL] + me[MID_L] + (one[N_L] - 2.0 * one[L] + one[LL])
    me[BOTH] = max(ends + begins + (me[GG] - 2.0 * me[GF] + me[FF]) + one[II] + two[II], 0.0)
    me[N_R] = one[N_R] + me[MID_R] + two[N_R]
    me[R] = t * (one[R] + me[MID_R] + two[N_R]) + u * two[R]
    me[RR] = t * t * (one[RR] + me[MID_R] + two[N_R]) + 2.0 * t * u * two[R] + u * u * two[RR]
    me[N_L] = two[N_L] + me[MID_L] + one[N_L]
    me[L] = u * (two[L] + me[MID_L] + one[N_L]) + t * one[L]
    me[LL] = u * u * (two[LL] + me[MID_L] + one[N_L]) + 2.0 * t * u * one[L] + t * t * one[LL]
    me[N_I] += one[N_I] + two[N_I]
    me[II] = t * t * (one[II] + me[GG]) + 2.0 * t * u * me[GF] + u * u * (two[II] + me[FF])


@subkernel
def _inside(state: Floats, left: Nodes, q: int, into: float) -> float:
    """Return F of an end on the node it lies in."""
    c = left[q]
    return into if c == 0 else state[c, V] / (state[c, V] + state[c + 1, V])


@kernel
def fall_ranges(
    left: Nodes,
    begin: Ints,
    begin_into: Floats,
    end: Ints,
    end_into: Floats,
    top: Ints,
    row: Ints,
    share: Floats,
    mode: int,
    state: Floats,
    sums: Floats,
    parts: Floats,
    e: Floats,
    down: Floats,
) -> None:
    """Fill ``down``: the budget that reaches each node, S and H as in ``swept_share``.

    As in ``fall_closed``, a prefix that ends inside a node has the covariance far + S F(end) with its total,
    and H follows from the sums ``along`` of g (c1 - c2). The far end of a range, beyond its top's other
    child, has with every node below the covariance part * e: e is fixed at the top, part is the node's part
    of the root. The slow twin is ``check_fall`` in tests/kernels/test_kernels_trees.py, by dense matrices.
    ``e`` has zeros, two for each range.
    """
    nodes, m = left.size, top.size
    for r in range(sums.shape[0]):
        for k in range(_ALONG, sums.shape[1]):
            sums[r, k] = 0.0
    # Step 1, from the root down: budget, S, far, and each node's part of the root.
    down[0, _FAR] = 0.0
    down[0, BUDGET] = 1.0
    down[0, SEEN] = state[0, V]
    down[0, _PART] = 1.0
    for q in range(nodes):
        c = left[q]
        if c == 0:
            continue
        me, one, two = down[q], down[c], down[c + 1]
        v1, v2 = state[c, V], state[c + 1, V]
        t = v1 / (v1 + v2)
        u = 1.0 - t
        budget = 1.0 if mode == KNOWN else me[BUDGET] * (1.0 - share[q])
        one[BUDGET] = budget
        two[BUDGET] = budget
        one[_PART] = me[_PART] * t
        two[_PART] = me[_PART] * u
        if budget == 0.0:
            me[_LOOSE] = 0.0
            one[SEEN] = 0.0
            two[SEEN] = 0.0
            one[_FAR] = 0.0
            two[_FAR] = 0.0
            continue
        me[_LOOSE] = t * v2 / (budget * budget)
        one[SEEN] = t * t * me[SEEN] + me[_LOOSE]
        two[SEEN] = u * u * me[SEEN] + me[_LOOSE]
        one[_FAR] = t * me[_FAR]
        two[_FAR] = u * (me[_FAR] + t * me[SEEN]) - me[_LOOSE]
    # Step 2: e of each range at its top; of the far begin for nodes of kind R, of the far end for kind L.
    for i in range(m):
        a, b, q = begin[i], end[i], top[i]
        if q < 0:
            e[i, 1] = down[0, SEEN]  # these end with everything, or begin with it: nothing is to their left
        elif left[q] > 0:
            c = left[q]
            t = state[c, V] / (state[c, V] + state[c + 1, V])
            u = 1.0 - t
            f1, f2 = 1.0 - parts[i, 0], parts[i, 1]
            far, seen, loose = down[q, _FAR], down[q, SEEN], down[q, _LOOSE]
            e[i, 0] = (u * (far + seen * t * f1) - loose * f1) / down[c + 1, _PART]
            e[i, 1] = (t * (far + seen * (t + u * f2)) + loose * (1.0 - f2)) / down[c, _PART]
        if a >= 0 and a != q:
            if left[a] > 0:
                sums[row[a], _LM] += e[i, 1]
            else:
                sums[row[a], _L0] += e[i, 1]
                sums[row[a], _L1] += e[i, 1] * (1.0 - begin_into[i])
        if b >= 0 and b != q:
            if left[b] > 0:
                sums[row[b], _RM] += e[i, 0]
            else:
                sums[row[b], _R0] += e[i, 0]
                sums[row[b], _R1] += e[i, 0] * end_into[i]
    # Step 3, from the leaves up: add up g (c1 - c2) at each node; e leaves the sums at the range's top.
    i = 0
    for q in range(nodes - 1, -1, -1):
        c = left[q]
        one, two = sums[row[c]], sums[row[c + 1 if c > 0 else 0]]
        while i < m and top[i] == q:
            if c > 0 and begin[i] != q:
                one[_L0] -= e[i, 1]
                one[_L1] -= e[i, 1] * parts[i, 0]
            if c > 0 and end[i] != q:
                two[_R0] -= e[i, 0]
                two[_R1] -= e[i, 0] * parts[i, 1]
            i += 1
        if c > 0 and row[q] > 0:
            if one[N_L] == 0.0:
                one[_L0] = 0.0
                one[_L1] = 0.0
            if two[N_R] == 0.0:
                two[_R0] = 0.0
                two[_R1] = 0.0
            t = state[c, V] / (state[c, V] + state[c + 1, V])
            _add_up(t, down[q], sums[row[q]], one, two)
    # Step 4, from the root down: H of both children from H of the node.
    down[0, PULL] = down[0, SEEN] * down[0, SEEN] * state[0, B]
    for q in range(nodes):
        c = left[q]
        if c == 0:
            continue
        t = state[c, V] / (state[c, V] + state[c + 1, V])
        u = 1.0 - t
        loose, along, both = down[q, _LOOSE], sums[row[q], _ALONG], sums[row[q], BOTH]
        own = loose * loose * both
        down[c, PULL] = max(t * t * down[q, PULL] + 2.0 * t * loose * along + own, 0.0)
        down[c + 1, PULL] = max(u * u * down[q, PULL] - 2.0 * u * loose * along + own, 0.0)


@subkernel
def _add_up(t: float, down: Floats, me: Floats, one: Floats, two: Floats) -> None:
    """Add up g (c1 - c2) over the ranges at a node, kind by kind, and pass the far ends' sums on."""
    u = 1.0 - t
    far, seen = down[_FAR], down[SEEN]
    middle = far + seen * t
    kind_r = far * one[R] + seen * t * one[RR]
    kind_r += middle * (me[MID_R] + two[N_R] - two[R]) + seen * u * (two[R] - two[RR])
    kind_l = far * (one[N_L] - one[L]) + seen * t * (one[N_L] - 2.0 * one[L] + one[LL])
    kind_l += middle * me[MID_L] + (far + seen) * two[L] - seen * u * two[LL]
    kind_i = t * (one[II] + me[GG]) - u * (two[II] + me[FF]) + (u - t) * me[GF]
    beyond = (one[_R1] + me[_RM] + two[_R0] - two[_R1]) + (one[_L0] - one[_L1] + me[_LM] + two[_L1])
    me[_ALONG] = kind_r + kind_l + seen * kind_i - down[_PART] * beyond
    me[_R0] = one[_R0] + me[_RM] + two[_R0]
    me[_R1] = t * (one[_R1] + me[_RM] + two[_R0]) + u * two[_R1]
    me[_L0] = two[_L0] + me[_LM] + one[_L0]
    me[_L1] = u * (two[_L1] + me[_LM] + one[_L0]) + t * one[_L1]
