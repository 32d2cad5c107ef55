"""Overlapping totals, of the nodes of a tree or of triangles, made to agree by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from dphist.domain.groups import Floats, Groups, Ints
from dphist.domain.workload import AllRanges, LineWorkload, Points, Prefixes, Ranges, Rectangles, Workload
from dphist.errors import UsageError
from dphist.kernels.trees.hat_rules import LEAST
from dphist.privacy.curator import Curator, Noisy
from dphist.steps.protocols import WIDEST_SCALE, Estimated, Rough, Step, variance
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import HatTotals, TreeTotals
from dphist.uncertainty.products import GridHatTotals, PyramidTotals

if TYPE_CHECKING:
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees.hats_fit import HatsError

_RESERVE = 0.02
_MOST_COMPARED = 1 << 16  # bins up to which hats are compared with the tuned tree: half a second


@dataclass(frozen=True)
class Tree(Step):
    """Noisy totals on every level of a tree, made to agree by least squares (Hay et al. 2010).

    Args:
        branching: how many children a node has; 16 is best for ranges (Qardaji et al. 2013).
        ratio: how many times a level's budget the next below gets; 2**(1/3) is Cormode et al. 2012.
        root: whether the total of everything is measured too; ranges seldom need it.
        pruned: cut the tree over the bins off at the groups, which must be its nodes; what the levels below a
            group would have had buys one better measurement of the group (S1+H, S2+H).
    """

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    branching: int = 16
    ratio: float = 1.0
    root: bool = False
    pruned: bool = False

    def __post_init__(self) -> None:
        if self.branching < 2 or not (math.isfinite(self.ratio) and self.ratio > 0):
            raise UsageError("a tree needs a branching of at least 2 and a positive ratio of its levels.")

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Measure level by level; every record is in one node of each."""
        from dphist.kernels.trees import tree as trees

        if self.pruned:
            tree = trees.pruned_tree(groups.starts, self.branching)
        else:
            tree = trees.make_tree(groups.k, self.branching)
        return fitted_tree(  # nobody keeps the weights, nor the totals
            groups,
            tree,
            tree_totals(
                curator,
                groups,
                tree,
                trees.level_weights(tree, ratio=self.ratio, root=self.root),
                share=share,
            ),
            pruned=self.pruned,
        )


@dataclass(frozen=True)
class WorkloadTree(Step):
    """A tree whose nodes share the budget as the queries need it: DAWA's second stage (Li et al. 2014).

    Args:
        weights: ``greedy`` as published (equation 9), or ``tuned`` by further sweeps (ours), which takes a
            fifth or more off the squared error. Neither looks at data.
        queries: what the tree is for: the release's ``workload``, or always all ``ranges`` (the papers' MM)
            or all ``prefixes`` (PMM).
        branching: of the tree.
    """

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    weights: Literal["greedy", "tuned"] = "greedy"
    queries: Literal["workload", "ranges", "prefixes"] = "workload"
    branching: int = 2

    def __post_init__(self) -> None:
        if self.weights not in ("greedy", "tuned") or self.queries not in ("workload", "ranges", "prefixes"):
            raise UsageError(
                "WorkloadTree takes weights greedy or tuned; queries workload, ranges or prefixes."
            )

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Work out the weights, which is public, then measure and fit."""
        from dphist.kernels.trees import tree as trees
        from dphist.kernels.trees import tuning

        tree = trees.make_tree(groups.k, self.branching)
        asked = {"ranges": "all-ranges", "prefixes": "prefixes"}.get(self.queries) or queries_of(
            workload, groups
        )
        if self.weights == "greedy":
            weights = tuning.greedy_weights(tree, groups.sizes, asked)
        else:
            # A small share goes to groups that no query of the workload separates: other queries may.
            weights = tuning.tuned_weights(tree, groups.sizes, asked, reserve=_RESERVE)
        return fitted_tree(
            groups, tree, tree_totals(curator, groups, tree, weights, share=share), pruned=False
        )


@dataclass(frozen=True)
class Hats(Step):
    """Every bin and one to four levels of overlapping triangles, made to agree by least squares (ours).

    For all ranges of 24 single bins or more, and all prefixes of 14 or more, this beats the best tree: from
    some 200 bins on by 15 to 20 % of the squared error. For listed ranges the better of the triangles for all
    ranges and the tuned tree is chosen from the ranges alone; for anything else the tuned tree is used.
    Rectangles of a grid are measured by single cells and pyramids over them or, of some 9,000 cells or more,
    by triangles over its rows times triangles over its columns: that takes 24 % off the squared error of the
    tuned tree along a curve for 64 x 64 cells, half for 512 x 512.
    """

    spends: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        grid = grid_hats_for(curator, groups, workload, share=share)
        if grid is not None:
            return measured_grid(curator, grid, share=share)
        queries = hats_for(curator, groups, workload, share=share)
        if queries is None:
            tree = WorkloadTree(weights="tuned")
            return replace(tree(curator, rough, groups, workload, share=share), by=tree)
        return fitted_hats(queries, *measured_hats(curator, queries, share=share))


def hats_for(curator: Curator, groups: Groups, workload: Workload, *, share: Fraction) -> str | None:
    """Return the queries for which hats answer a workload better than the tuned tree; None if none do."""
    kinds: dict[type[Workload], str] = {AllRanges: "all-ranges", Prefixes: "prefixes"}
    queries, n = kinds.get(type(workload)), groups.n
    # A record has weight 2^12 in the queries, so their noise is that much wider.
    too_wide = curator.scale(share) * 2.0**12 > WIDEST_SCALE
    least = LEAST[queries or "all-ranges"][0]
    if n < least or not groups.are_singletons or groups.order is not None or too_wide:
        return None
    if queries is None and isinstance(workload, Ranges) and n <= _MOST_COMPARED:
        return "all-ranges" if _hats_win(workload) else None
    return queries


def measured_hats(curator: Curator, queries: str, *, share: Fraction) -> tuple[Noisy, HatsError]:
    """Return noisy answers of bins and triangles, and the law of their noise."""
    from dphist.kernels.trees import hats, hats_fit
    from dphist.privacy import queries as private

    n = curator.domain.n
    noisy = curator.measure_linear(private.Hats(n, queries), share=share)
    return noisy, hats_fit.hats_error(hats.fitted_hats(n, queries), variance(float(np.max(noisy.scale))))


def fitted_hats(queries: str, noisy: Noisy, error: HatsError) -> Estimated:
    """Return what noisy answers of bins and triangles say of every bin."""
    from dphist.kernels.trees import hats_fit

    model = HatTotals(error.hats.n, queries, float(np.max(noisy.scale)))
    return Estimated(hats_fit.solve_hats(error, noisy.values), model)


def grid_hats_for(curator: Curator, groups: Groups, workload: Workload, *, share: Fraction) -> str | None:
    """Return which hats answer listed rectangles of a grid better than its cells do; None if none do.

    Triangles of its sides are for ``all-ranges`` of these, pyramids for ``rectangles``.
    """
    from dphist.kernels.trees import hats, hats_fit, pyramids

    if not isinstance(workload, Rectangles) or not groups.are_singletons or workload.shape[1] == 1:
        return None
    rows, columns = workload.shape
    some = slice(None, None, -(-workload.size // 1000))  # a sample suffices
    x0, x1, y0, y1 = (ends[some] for ends in (workload.x0, workload.x1, workload.y0, workload.y1))
    least, best = float(((x1 - x0) * (y1 - y0)).mean()), None
    # A record has weight 2^20 in the products of the sides' queries, so their noise is that much wider.
    if curator.scale(share) * float(hats.WHOLE_OF_A_SIDE) ** 2 <= WIDEST_SCALE:
        down, across = hats_fit.side_errors(rows, columns)
        each = hats_fit.hats_range_variances(down, x0, x1) * hats_fit.hats_range_variances(across, y0, y1)
        if (error := float(each.mean()) * float(hats.WHOLE_OF_A_SIDE) ** 4) < least:
            least, best = error, "all-ranges"
    if pyramids.have_pyramids(rows, columns) and curator.scale(share) * float(hats.WHOLE) <= WIDEST_SCALE:
        each = pyramids.rectangle_variances(pyramids.pyramids_error(rows, columns), x0, x1, y0, y1)
        if float(each.mean()) * float(hats.WHOLE) ** 2 < least:
            best = "rectangles"
    return best


def measured_grid(curator: Curator, queries: str, *, share: Fraction) -> Estimated:
    """Return what cells and triangles or pyramids say of a grid's cells, and the law of its noise."""
    from dphist.kernels.trees import hats_fit, pyramids
    from dphist.privacy import queries as private

    rows, columns = curator.domain.shape
    noisy = curator.measure_linear(private.Hats(rows * columns, queries, columns), share=share)
    scale = float(np.max(noisy.scale))
    if queries == "rectangles":
        error = pyramids.pyramids_error(rows, columns).error
        return Estimated(hats_fit.solve_hats(error, noisy.values), PyramidTotals(rows, columns, scale))
    found = hats_fit.solve_sides(*hats_fit.side_errors(rows, columns), noisy.values)
    return Estimated(found, GridHatTotals(rows, columns, scale))


def _hats_win(workload: Ranges) -> bool:
    """Return whether triangles for all ranges answer the listed ones better than the tree tuned to them."""
    from dphist.kernels.trees import hats, hats_fit, tuning, variances
    from dphist.kernels.trees import tree as trees

    tree, ones, n = trees.make_tree(workload.n), np.ones(workload.n, dtype=np.int64), workload.n
    weights = tuning.tuned_weights(tree, ones, workload.pairs(), reserve=_RESERVE)
    lo, hi = (ends[:: -(-workload.size // 1000)] for ends in workload.pairs())  # a sample suffices
    triangles = hats_fit.hats_expected_error(hats.fitted_hats(n, "all-ranges"), (lo, hi))
    return triangles < variances.expected_error(tree, weights, ones, (lo, hi))


def tree_totals(
    curator: Curator, groups: Groups, tree: trees.Tree, weights: Floats, *, share: Fraction
) -> Noisy:
    """Return the noisy totals of a tree's nodes; their budgets are exact integers."""
    from dphist.kernels.trees import tree as trees

    # A node with so little of the budget would be noise alone, and wider than the sampler draws.
    least = curator.scale(share) / WIDEST_SCALE
    if ((weights > 0) & (weights < least)).any():
        weights = np.where(weights < least, 0.0, weights)
    parts = trees.integer_parts(weights, lo=tree.lo, hi=tree.hi, k=tree.k)
    del weights
    if not parts.any():
        parts[tree.leaf] = trees.WHOLE
    parts.flags.writeable = False
    return curator.measure_ranges(groups, tree.lo, tree.hi, parts=parts, whole=trees.WHOLE, share=share)


def fitted_tree(
    groups: Groups, tree: trees.Tree, noisy: Noisy, *, pruned: bool, inner: trees.Flags | None = None
) -> Estimated:
    """Return what noisy totals of a tree's nodes say of every bin: least squares makes them agree.

    Args:
        inner: which nodes have children, of a tree that does not follow from the number of groups.
    """
    from dphist.kernels.trees import tree as trees

    error = TreeTotals(groups, tree.branching, pruned, np.asarray(noisy.scale), inner)
    totals = noisy.values.astype(np.float64)
    del noisy
    fitted = trees.fitted_over(tree, totals, noise_law.variance(error.scales))
    del totals
    return Estimated(groups.means(fitted), error)


def queries_of(workload: Workload, groups: Groups) -> str | tuple[Ints, Ints]:
    """Return a workload as ranges of the bins in the groups' order."""
    if isinstance(workload, Points):
        return "points"
    if groups.order is None:
        if isinstance(workload, AllRanges):
            return "all-ranges"
        if isinstance(workload, Prefixes):
            return "prefixes"
        if isinstance(workload, LineWorkload):
            return workload.pairs()
    return runs(workload, groups.order)


def runs(workload: Workload, order: Ints | None) -> tuple[Ints, Ints]:
    """Return the runs of consecutive places that the queries take in an order of the bins."""
    path = np.arange(math.prod(workload.shape)) if order is None else order
    place = np.empty_like(path)
    place[path] = np.arange(path.size)
    if isinstance(workload, Rectangles):
        from dphist.kernels.curve import runs_in

        columns = workload.shape[1]
        row, column = np.divmod(path, columns)
        jumps = 1 + np.flatnonzero(np.maximum(np.abs(np.diff(row)), np.abs(np.diff(column))) > 1)
        if jumps.size <= 2 * sum(workload.shape):  # otherwise the order is not a space-filling curve
            boxes = np.stack((workload.x0, workload.x1, workload.y0, workload.y1)).astype(np.int64)
            return runs_in(boxes, columns, path, place, jumps)
    lows, highs = [], []
    for cells in workload.cells():
        at = np.sort(place[cells])
        breaks = np.flatnonzero(np.diff(at) > 1)
        lows.append(at[np.concatenate(([0], breaks + 1))])
        highs.append(at[np.concatenate((breaks, [at.size - 1]))] + 1)
    return np.concatenate(lows), np.concatenate(highs)
