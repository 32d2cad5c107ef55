"""Totals that add up: least squares over a public tree of groups, its variances, and the best shares.

A tree (or, with several nodes on the top level, a forest) is given by ``parents``: one array for each level
below the top, in which ``parents[l][i]`` is the node of level l above node i of level l + 1. The arrays are
sorted and leave no parent out, so that the children of a node are a run and sums over them are
``np.add.reduceat``. Every function takes time and memory O(nodes), ``reconcile`` O(nodes x bins).

**Theorem.** Let every node i have an unbiased estimate y_i of its n bins with covariance v_i Q, with the same
matrix Q at every node (one strategy for all), independent between nodes, v_i = inf where nothing was measured
and finite at the leaves. Generalised least squares under "a parent is the sum of its children" is then, for
each bin by itself and whatever Q is,

    up:    leaf z = y, u = v;  above: S = sum z_c, U = sum u_c, u = 1/(1/v + 1/U), z = S + (u/v) (y - S)
    down:  top x = z;          below: x_c = z_c + (u_c/U) (x_parent - S)

and the estimate x_i has the covariance h_i Q with h = u at the top and h_c = u_c - (u_c/U)^2 (U - h_parent).

*Proof.* What is minimised is the sum over nodes of (y_i - x_i)' inv(Q) (y_i - x_i) / v_i. In the coordinates
inv(sqrt(Q)) x the norm is Euclidean, and adding up, which acts on nodes only, is what it was. So the problem
falls into n scalar ones with equal weights 1/v_i, whose common solution H commutes with sqrt(Q): it may be
applied to the bins as they are. The scalar problem: z is the best estimate of a node from its own subtree
and u its variance, since y and S are independent and weighed by their precisions. Given x_parent, the
children are the z_c moved the least, in units of u_c, to the sum x_parent, which is the step down. For h: S
and z_c - (u_c/U) S are uncorrelated, so x_c = (u_c/U) x_parent + r_c with r_c uncorrelated to x_parent, and
Var(r_c) = u_c - u_c^2/U.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError

GRID = 1 / 16  # leaves are rounded to it: sums of such numbers are exact up to 2^49
MOST_LEVELS = 8  # `best_shares` compares 2^(levels - 1) sets of them
_LEAST = 1e-3  # the least importance of the leaves, beside the largest of all: without them nothing adds up
_SWEEPS = 60


@dataclass(frozen=True, eq=False)
class _Known:
    """The estimate of a node from its own subtree, per level.

    Args:
        runs: where the children of each node begin on the next level; one array for each level but the last.
        v: the variance of the node's own measurement.
        u: that of the estimate from the node's whole subtree.
        below: that of the sum of its children; one array for each level but the last.
    """

    runs: tuple[Ints, ...]
    v: tuple[Floats, ...]
    u: tuple[Floats, ...]
    below: tuple[Floats, ...]


def reconcile(
    parents: Sequence[Ints], v: Sequence[ArrayLike], y: Sequence[NDArray[np.floating]]
) -> tuple[Floats, ...]:
    """Return the least squares estimates of all levels, which add up exactly.

    Leaves are rounded to sixteenths and the other levels are their sums: all sums of bins and nodes are then
    exact in doubles, so equal to the last bit in any order. (Where the values add up to more than 2^49 the
    grid is coarser, by as much as that takes.)

    Args:
        parents: the tree, see above.
        v: per level the variance of a measurement, one number or one per node; inf where there was none.
        y: per level the measured values, a row per node; ignored where v is inf.
    """
    known = _know(parents, v)
    values = [np.asarray(rows, dtype=np.float64) for rows in y]
    if [len(rows) for rows in values] != [u.size for u in known.u]:
        raise UsageError("the values of each level need one row for each of its nodes.")
    z, sums = values[-1], [np.empty(0)] * len(parents)
    each = [z]
    for level in reversed(range(len(parents))):
        sums[level] = np.add.reduceat(z, known.runs[level], axis=0)
        own = (known.u[level] / known.v[level])[:, None]  # 0 where nothing was measured
        z = sums[level] + own * np.where(own > 0, values[level] - sums[level], 0.0)
        each.insert(0, z)
    x = each[0]
    for level, parent in enumerate(parents):
        part = known.u[level + 1] / known.below[level][parent]
        moved = (x - sums[level])[parent]
        moved *= part[:, None]
        x = np.add(each[level + 1], moved, out=moved)
    return _added_up(known.runs, on_grid(x))


def on_grid(values: Floats) -> Floats:
    """Return rows of values rounded to a power of two, so coarse that none of their sums is ever rounded.

    The running sums of a row are rounded, so that every range of it is off by one step at most. Bins that
    share one value would otherwise be off alike, and ranges by as much as their bins together.
    """
    whole = float(np.abs(values).sum()) + 2 * values.size * GRID
    step = max(GRID, 2.0 ** (math.frexp(whole)[1] - 52))
    rounded: Floats = np.cumsum(values, axis=-1)
    rounded /= step
    np.rint(rounded, out=rounded)
    rounded[..., 1:] -= rounded[..., :-1].copy()
    rounded *= step
    rounded += 0.0  # no negative zeros
    return rounded


def _added_up(runs: Sequence[Ints], leaves: Floats) -> tuple[Floats, ...]:
    levels = [leaves]
    for run in reversed(runs):
        levels.insert(0, np.add.reduceat(levels[0], run, axis=0))
    return tuple(levels)


def variances(parents: Sequence[Ints], v: Sequence[ArrayLike]) -> tuple[Floats, ...]:
    """Return h per level: after ``reconcile`` a node's bins have the covariance h Q."""
    known = _know(parents, v)
    h = [known.u[0]]
    for level, parent in enumerate(parents):
        u, below = known.u[level + 1], known.below[level]
        h.append(u - (u / below[parent]) ** 2 * (below - h[level])[parent])
    return tuple(h)


def set_variance(parents: Sequence[Ints], v: Sequence[ArrayLike], weights: ArrayLike) -> float:
    """Return h of the sum of leaves times their weights, after ``reconcile``.

    By the theorem the leaves below a node are (u_c/U) x_node + r_c, where the r of different nodes are
    uncorrelated with each other and with x_node, and Cov(r) = diag(u) - u u'/U. So the weights m of the
    children add m' Cov(r) m and leave the weight m'u/U to the node, level by level. Whole nodes add nothing:
    m = 1.
    """
    known = _know(parents, v)
    m = np.asarray(weights, dtype=np.float64)
    if m.shape != known.u[-1].shape:
        raise UsageError(f"there are {known.u[-1].size} leaves and {m.size} weights.")
    total = 0.0
    for level in reversed(range(len(parents))):
        u, run, below = known.u[level + 1], known.runs[level], known.below[level]
        mean = np.add.reduceat(m * u, run) / below
        apart = (
            m - mean[parents[level]]
        )  # m'diag(u)m - (m'u)^2/U, without taking a difference of large numbers
        total += float((apart * apart * u).sum())
        m = mean
    return total + float((m * m * known.u[0]).sum())


def _know(parents: Sequence[Ints], v: Sequence[ArrayLike]) -> _Known:
    if len(v) != len(parents) + 1:
        raise UsageError(f"{len(parents) + 1} levels need as many variances, not {len(v)}.")
    runs = tuple(_runs(parent) for parent in parents)
    sizes = [run.size for run in runs] + [parents[-1].size if parents else np.size(v[0])]
    if any(parent.size != size for parent, size in zip(parents, sizes[1:], strict=True)):
        raise UsageError("every node needs a child on the next level, and every child a parent.")
    own = tuple(_variance(each, size) for each, size in zip(v, sizes, strict=True))
    if not np.isfinite(own[-1]).all():
        raise UsageError("every leaf must be measured: give each a finite variance.")
    u, below = [own[-1]], list[Floats]()
    for run, variance in zip(reversed(runs), reversed(own[:-1]), strict=True):
        below.insert(0, np.add.reduceat(u[0], run))
        u.insert(0, 1 / (1 / variance + 1 / below[0]))
    return _Known(runs, own, tuple(u), tuple(below))


def _runs(parent: Ints) -> Ints:
    """Return where the children of each parent begin."""
    steps = np.diff(parent)
    if parent.ndim != 1 or parent.size == 0 or parent[0] != 0 or not ((steps == 0) | (steps == 1)).all():
        raise UsageError("parents must be sorted, begin with 0 and leave no node without children.")
    return np.concatenate(([0], np.flatnonzero(steps) + 1)).astype(np.int64)


def _variance(v: ArrayLike, size: int) -> Floats:
    given = np.asarray(v, dtype=np.float64)
    if given.shape not in ((), (size,)) or not (given > 0).all():
        raise UsageError("a level's variance must be one number above 0, or one for each of its nodes.")
    return np.broadcast_to(given, size)


# ---- shares -----------------------------------------------------------------------------------------------


def even_variances(shares: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return h per level in an even tree with ``counts[l]`` nodes on level l: O(levels).

    v is 1/share^2, or inf for a share of 0: the scale of the noise and the strategy are common factors.
    """
    v = [1 / (s * s) if s > 0 else math.inf for s in shares]
    children = [below / above for above, below in pairwise(counts)]
    u = v.copy()
    for level in reversed(range(len(children))):
        u[level] = 1 / (1 / v[level] + 1 / (children[level] * u[level + 1]))
    h = u.copy()
    for level, f in enumerate(children):
        h[level + 1] = u[level + 1] - (f * u[level + 1] - h[level]) / (f * f)
    return h


def cost(shares: Sequence[float], counts: Sequence[int], importances: Sequence[float]) -> float:
    """Return the mean variance of each level in an even tree, times its importance, added up."""
    h = even_variances(shares, counts)
    return sum(w * each for w, each in zip(importances, h, strict=True) if w > 0)


def best_shares(counts: Sequence[int], importances: Sequence[float]) -> Floats:
    """Return the shares of the budget, one per level, with the least ``cost``; 0 is "not measured".

    If levels were not tied to each other, the least sum of w/s^2 would be at s proportional to the cube root
    of w. They are, and the cost is not convex: the least share of a level is worse than none. So every set
    of levels that contains the leaves begins with the cube roots and is improved by itself, one share at a
    time; the best set is taken. The leaves are always measured, so their importance counts as at least
    1/1000 of the largest.

    Args:
        counts: how many nodes each level has, top first.
        importances: what the variance of a node of each level counts for; at least one is above 0.
    """
    w = _weights(counts, importances)
    measured = [(*upper, True) for upper in product((False, True), repeat=len(w) - 1)]
    found = [
        _improved(counts, w, levels) for levels in measured
    ]  # the leaves alone come first: more must pay
    least = min(each for each, _ in found)
    shares = np.array(next(s for each, s in found if each <= least * (1 + 1e-9)))
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def shares_apart(counts: Sequence[int], importances: Sequence[float]) -> Floats:
    """Return the shares of levels of which none may be the sum of those below it, because these are biased.

    Every level of some importance is measured by itself: the least sum of w/s^2 is at s proportional to the
    cube root of w.
    """
    shares = np.cbrt(_weights(counts, importances))
    return np.asarray(shares / shares.sum())


def _weights(counts: Sequence[int], importances: Sequence[float]) -> list[float]:
    """Return the importances in units of the largest, checked; that of the leaves is never 0."""
    given = [float(w) for w in importances]
    if len(given) != len(counts) or not counts:
        raise UsageError(f"there are {len(counts)} levels and {len(given)} importances: give one for each.")
    if len(counts) > MOST_LEVELS:
        raise UsageError(
            f"at most {MOST_LEVELS} levels can share a budget, not {len(counts)}: leave some out."
        )
    if not all(0 <= w < math.inf for w in given):
        raise UsageError("an importance is a number, 0 or above.")
    if not any(given):
        raise UsageError("at least one level must have an importance above 0.")
    w = [each / max(given) for each in given]
    w[-1] = max(w[-1], _LEAST)
    return w


def _improved(
    counts: Sequence[int], w: Sequence[float], measured: Sequence[bool]
) -> tuple[float, list[float]]:
    """Return the cost and shares of one set of levels, from the cube roots on by coordinate search."""
    shares = _normal([math.cbrt(each + _LEAST) if on else 0.0 for each, on in zip(w, measured, strict=True)])
    now, step = cost(shares, counts, w), 0.5
    for _ in range(_SWEEPS):
        moved = False
        for level in (i for i, on in enumerate(measured) if on):
            for factor in (1 + step, 1 / (1 + step)):
                other = _normal([s * factor if i == level else s for i, s in enumerate(shares)])
                then = cost(other, counts, w)
                if then < now * (1 - 1e-12):
                    shares, now, moved = other, then, True
        if not moved:
            step /= 2
    return now, shares


def _normal(shares: Sequence[float]) -> list[float]:
    whole = sum(shares)
    return [s / whole for s in shares]
