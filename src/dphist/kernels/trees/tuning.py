"""How much of the budget each node of a tree should get for the queries that will be asked.

Nothing here looks at data or spends anything.

``queries`` is "all-ranges", "prefixes" or "points" of the bins, or the ends (lo, hi) of listed ranges [lo,
hi) in bins; an end inside a group takes its part of the group's total. Weights are each node's fraction of
the budget, and sum to one on every path (up to rounding: ``trees.integer_parts`` makes them exact).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.kernels.trees import tuning_closed, tuning_ranges
from dphist.kernels.trees.budget import GIVEN, GREEDY, SWEEP, reallocate, reserve_below, weights_of
from dphist.kernels.trees.located import Located, ends_of, folded, locate
from dphist.kernels.trees.tree import Tree
from dphist.kernels.trees.variances import Queries, closed_form, edges, group_widths, range_ends

FULL_EFFORT = 1 << 17  # groups up to which `tuned_weights` takes its time: about a second
_MANY_RANGES = 1 << 19  # listed ranges above which it does not


def greedy_weights(
    tree: Tree, widths: ArrayLike, queries: Queries, *, decay: bool = True, collapse: bool = False
) -> Floats:
    """Return the weights of GreedyH, DAWA's Algorithm 2: each node's lambda minimises equation (9).

    O(k) for all ranges or prefixes, near O(k + m log k) for m listed ranges. A node's depth, of which the
    published decay is a power, counts the levels that were left out because they had one child.

    Args:
        collapse: give a node everything if no query separates its children. Better for these queries, but
            what lies inside stays unmeasured.
    """
    w = group_widths(widths, tree.k)
    if not isinstance(queries, tuple) and closed_form(queries) == "points":
        return leaves_only(tree)  # what equation (9) chooses for single bins: the paper's section 5.3.3
    passes = Passes.over(tree, w, queries, decay=decay, collapse=collapse)
    share = np.empty(tree.size)
    passes.rise(share, GREEDY)
    return weights_of(tree, share)


def tuned_weights(
    tree: Tree, widths: ArrayLike, queries: Queries, *, quick: bool | None = None, reserve: float = 0.0
) -> Floats:
    """Return weights with a smaller error than the greedy ones: ten starts, then sweeps over all nodes.

    A sweep sets every share to what is best with the rest of the tree as it is. None of this is convex: the
    result is a good local optimum, the same every time.

    Args:
        quick: sweep from the greedy weights only; by default of very many groups or ranges.
        reserve: where no query separates the groups below a node, the part of its budget that they get
            all the same, so that other queries can be answered too.
    """
    w = group_widths(widths, tree.k)
    if not 0 <= reserve < 1:
        raise UsageError(f"the reserve must be at least 0 and below 1, not {reserve!r}.")
    if not isinstance(queries, tuple) and closed_form(queries) == "points":
        return leaves_only(tree)
    if quick is None:
        quick = tree.k > FULL_EFFORT or (isinstance(queries, tuple) and len(queries[0]) > _MANY_RANGES)
    if quick and isinstance(queries, tuple) and tree.measured.all():
        share = _folded_share(tree, edges(w), queries)
    else:
        passes = Passes.over(tree, w, queries, decay=True, collapse=True)
        share = _quickly(passes) if quick else _tune(passes)
    if reserve:
        reserve_below(tree, share, reserve)
    return weights_of(tree, share)


def leaves_only(tree: Tree) -> Floats:
    """Return weights with which nothing but the groups themselves is measured."""
    return np.where(tree.left == 0, 1.0, 0.0)


def _quickly(passes: Passes) -> Floats:
    share = np.empty(passes.tree.size)
    passes.rise(share, GREEDY)
    return _sweep(passes, share, 3)[1]


def _folded_share(tree: Tree, starts: Ints, queries: tuple[Ints, Ints]) -> Floats:
    """Return what `_quickly` does, up to shares of no budget, from the nodes at or above the ends of ranges.

    A leaf of the folded tree with a share keeps all, and hands nothing on; without one all nodes below it
    have none, and its leaves take all.
    """
    fold = folded(tree, ends_of(starts, *range_ends(queries, int(starts[-1]))))
    ranges = locate(fold.tree, fold.ends)
    found = _quickly(Passes.made(fold.tree, starts, ranges, fold.many, decay=True, collapse=True))
    share = leaves_only(tree)
    inner = tree.left[fold.nodes] > 0
    share[fold.nodes[inner]] = found[inner]
    return share


def _tune(passes: Passes) -> Floats:
    best: list[tuple[float, Floats]] = []
    for share, mode in _starts(passes.tree):
        best.append((passes.rise(share, mode), share))
        best.sort(key=_error)  # stable, so equal starts stay in order
        del best[3:]
    error, share = min((_sweep(passes, share, 4) for _, share in best), key=_error)
    other = share.copy()
    for _ in range(3):  # steps of another kind lead out of a poor optimum
        passes.rise(other, GIVEN)
        passes.fall(other)
        reallocate(passes.tree.left, passes.tree.measured, passes.down, other)
    return min((error, share), _sweep(passes, other, 4), key=_error)[1]


def _error(found: tuple[float, Floats]) -> float:
    return found[0]


def _starts(tree: Tree) -> Iterator[tuple[Floats, int]]:
    """Return shares to start from: greedy, then leaves and every few levels measured alike, the root not."""
    yield np.empty(tree.size), GREEDY
    top = int(tree.height[0])
    levels = np.log2(tree.branching)
    first = sorted({max(1, round(o / levels)) for o in (3, 4, 5)})
    for chosen in sorted({tuple(range(o, top, g)) for o in first for g in first}):
        rank = np.zeros(top + 1)
        rank[list(chosen)] = 1.0 / np.arange(2, len(chosen) + 2)
        yield np.where(tree.measured, rank[tree.height], 0.0), GIVEN


def _sweep(passes: Passes, share: Floats, sweeps: int) -> tuple[float, Floats]:
    """Return the least error met and its shares: sweeps need not lower the error every time."""
    share = share.copy()
    least, best = passes.rise(share, GIVEN), share.copy()
    for _ in range(sweeps):
        passes.fall(share)
        error = passes.rise(share, SWEEP)
        if error < least:
            least, best = error, share.copy()
    return least, best


@dataclass(frozen=True, eq=False)
class Passes:
    """Up and down over a tree for fixed queries, with the arrays that every pass uses again."""

    tree: Tree
    starts: Ints
    prefixes: bool
    ranges: Located | None
    many: Floats
    decay: Floats
    collapse: bool
    state: Floats
    down: Floats
    sums: Floats
    parts: Floats

    @classmethod
    def over(cls, tree: Tree, widths: Ints, queries: Queries, *, decay: bool, collapse: bool) -> Passes:
        starts, ranges = edges(widths), None
        if isinstance(queries, tuple):
            ranges = locate(tree, ends_of(starts, *range_ends(queries, int(starts[-1]))))
        prefixes = queries == "prefixes"
        return cls.made(tree, starts, ranges, np.empty(0), decay=decay, collapse=collapse, prefixes=prefixes)

    @classmethod
    def made(
        cls,
        tree: Tree,
        starts: Ints,
        ranges: Located | None,
        many: Floats,
        *,
        decay: bool,
        collapse: bool,
        prefixes: bool = False,
    ) -> Passes:
        depth = int(tree.height[0]) - np.arange(int(tree.height[0]) + 1.0)
        width = (tuning_closed.STATE, tuning_closed.DOWN)
        if ranges is not None:
            width = tuning_ranges.STATE, tuning_ranges.DOWN
        return cls(
            tree=tree,
            starts=starts,
            prefixes=prefixes,
            ranges=ranges,
            many=many,
            decay=tree.branching ** (-depth / 2) if decay else np.ones(depth.size),
            collapse=collapse,
            state=np.empty((tree.size, width[0])),
            down=np.empty((tree.size, width[1])),
            sums=np.empty((0 if ranges is None else ranges.rows, tuning_ranges.SUMS)),
            parts=np.zeros((0 if ranges is None else ranges.top.size, 2)),
        )

    @property
    def variance(self) -> Floats:
        """That of each node's total by what is measured of it and below it, after a rise."""
        return self.state[:, tuning_closed.V]  # the first column of either kind of state

    def rise(self, share: Floats, mode: int) -> float:
        """Return the error of all queries, after setting the shares in this mode."""
        t, r = self.tree, self.ranges
        if r is None:
            return tuning_closed.rise_closed(
                t.lo,
                t.hi,
                t.left,
                t.measured,
                t.height,
                self.starts,
                self.prefixes,
                self.decay,
                self.collapse,
                mode,
                share,
                self.down,
                self.state,
            )
        return tuning_ranges.rise_ranges(
            t.left,
            t.measured,
            t.height,
            r.begin,
            r.begin_into,
            r.end,
            r.end_into,
            r.top,
            r.whole,
            r.row,
            self.many,
            self.decay,
            self.collapse,
            mode,
            share,
            self.down,
            self.state,
            self.sums,
            self.parts,
            np.empty(len(self.sums), np.int64),
            np.empty(len(self.sums)),
            np.empty(len(self.sums)),
        )

    def fall(self, share: Floats, mode: int = GIVEN) -> None:
        """Work out what the rest of the tree knows of every node, after a rise with the same shares."""
        t, r, state, down = self.tree, self.ranges, self.state, self.down
        if r is None:
            tuning_closed.fall_closed(
                t.lo, t.hi, t.left, self.starts, self.prefixes, share, mode, state, down
            )
        else:
            ends = (r.begin, r.begin_into, r.end, r.end_into)
            far = np.zeros_like(self.parts)
            tuning_ranges.fall_ranges(
                t.left, *ends, r.top, r.row, share, mode, state, self.sums, self.parts, far, down
            )
