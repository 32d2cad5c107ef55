"""Hats or a tree of noisy totals, and values averaged over the prunings of a tree, not least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphist.domain.groups import Floats, Groups, Ints
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator, Noisy
from dphist.steps.estimate.averaged import Averaged
from dphist.steps.estimate.trees import (
    fitted_hats,
    fitted_tree,
    grid_hats_for,
    hats_for,
    measured_grid,
    measured_hats,
    queries_of,
    tree_totals,
    wide_enough,
)
from dphist.steps.protocols import WIDEST_SCALE, Estimated, Rough, Step
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import TreeTotals

if TYPE_CHECKING:
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees.variances import Queries

_RESERVE = 0.05  # of a node's budget, for groups that no query of the workload separates
# Parts of the budget that are tried for all levels alike, for noise that agrees; the rest is that of separate
# noise, or goes to the groups themselves.
_SPREAD, _SPREAD_OF_GROUPS = (0.15, 0.3, 0.45), (0.45, 0.6, 0.75)
_MOST_AGREEING = 1 << 13  # groups on which noise that agrees is tried
_MOST_DRAWS = 1 << 22  # that it may take: a tenth of a second


@dataclass(frozen=True)
class AveragedTree(Step):
    """Bins and triangles, or a tuned tree cut off at the groups; then averages over all its prunings (ours).

    Every bin has the mean of what it would be if the bins of this or that node were all alike or empty, each
    weighted by what the noisy totals say of it: less error than least squares where neighbours are alike or
    empty, about the same elsewhere, and never below 0. It costs nothing, and intervals stay what they are.
    Rectangles of a grid whose cells are not grouped are left as pyramids, or triangles of its sides, measured
    them.

    Args:
        flat: whether every bin has noise of its own, and no totals have, if it is a group by itself: a
            rectangle of a grid of few cells is the sum of a few, and of many nodes of a tree.
    """

    spends: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    flat: bool = False

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        from dphist.kernels.averaging.contrasts import averaged_by, spread_of
        from dphist.kernels.averaging.pruned import averaged, gathered
        from dphist.kernels.averaging.trends import along_trends
        from dphist.kernels.trees import hats_fit

        if self.flat and groups.are_singletons:
            plain = Averaged()
            found = plain(curator, rough, Groups.singletons(groups.n), workload, share=share)
            return replace(found, by=plain)
        grid = grid_hats_for(curator, groups, workload, share=share)
        if grid is not None:
            return measured_grid(curator, grid, share=share)
        queries = hats_for(curator, groups, workload, share=share)
        if queries is not None:
            answers, error = measured_hats(curator, queries, share=share)
            # What a copy works out is not kept: averages of very many bins need the memory.
            spread = spread_of(groups.n, partial(hats_fit.hats_range_variances, replace(error)))
            found = fitted_hats(queries, answers, error)
            del answers, error
            values = averaged_by(found.values, spread)
            return replace(found, values=values, measured=found.values)
        tree, pruned = _cut_off(groups)
        noisy, agreeing = _measured(curator, groups, tree, queries_of(workload, groups), share=share)
        if agreeing:
            model = TreeTotals(groups, tree.branching, pruned, np.asarray(noisy.scale), agreeing=True)
            found = Estimated(groups.means(noisy.values[tree.leaf].astype(np.float64)), model)
        else:
            found = fitted_tree(groups, tree, noisy, pruned=pruned)
        given = gathered(tree, groups.starts, noisy.values, np.asarray(noisy.scale), noise_law.variance)
        del tree, noisy
        totals = averaged(given)
        del given
        # Along a curve through a grid, groups before and after are not those on either side.
        values = along_trends(totals, groups.starts) if groups.order is None else groups.means(totals)
        return replace(found, values=values, measured=found.values)


def _measured(
    curator: Curator, groups: Groups, tree: trees.Tree, asked: Queries, *, share: Fraction
) -> tuple[Noisy, bool]:
    """Return noisy totals of a tree's nodes, and whether their noise was drawn so that it agrees."""
    from dphist.kernels.trees import tuning

    def tuned() -> Floats:
        return tuning.tuned_weights(tree, groups.sizes, asked, reserve=_RESERVE)

    if asked == "points" or not 2 < groups.k <= _MOST_AGREEING:
        return tree_totals(curator, groups, tree, tuned(), share=share), False  # nobody keeps the weights
    weights = tuned()
    together = _agreeing_weights(tree, weights, groups.sizes, asked, scale=curator.scale(share))
    if together is None:
        return tree_totals(curator, groups, tree, weights, share=share), False
    return agreeing_totals(curator, groups, tree, together, share=share), True


def _agreeing_weights(
    tree: trees.Tree, weights: Floats, sizes: Ints, asked: Queries, *, scale: float
) -> Floats | None:
    """Return the weights of noise that agrees, or None if independent noise is better, or takes less time.

    Args:
        weights: of independent noise, tuned to the queries that are asked.
        sizes: how many bins each group has.
        scale: of the noise that the whole budget buys.
    """
    from dphist.kernels.trees import agreeing, variances

    def error(variance: Floats) -> float:
        return variances.total_variance(variances.tree_error(tree, variance), sizes, asked)

    alone = np.where(tree.left == 0, 1.0, 0.0)
    with np.errstate(divide="ignore"):
        least, best = error(noise_law.variance(scale / weights)), None
        for rest, part in (*((weights, p) for p in _SPREAD), *((alone, p) for p in _SPREAD_OF_GROUPS)):
            tried = agreeing.shared_weights(tree, rest, part)
            if scale > tried[tree.leaf].min() * WIDEST_SCALE:
                continue
            own = noise_law.variance(scale / tried)
            found = error(agreeing.equal_variances(tree, own))
            if found < least and agreeing.expected_visits(tree, own).sum() < _MOST_DRAWS:
                least, best = found, tried
    return best


def agreeing_totals(
    curator: Curator, groups: Groups, tree: trees.Tree, weights: Floats, *, share: Fraction
) -> Noisy:
    """Return totals of all nodes whose noise agrees, and the scales of independent noise as large as it."""
    from dphist.kernels.trees import agreeing
    from dphist.kernels.trees import tree as trees

    parts = trees.integer_parts(wide_enough(weights, curator.scale(share)), lo=tree.lo, hi=tree.hi, k=tree.k)
    noisy = curator.measure_tree(groups, tree.left > 0, parts=parts, whole=trees.WHOLE, share=share)
    below = np.concatenate(([0], np.cumsum(noisy.values)))
    equal = agreeing.equal_variances(tree, noise_law.variance(np.asarray(noisy.scale)))
    return Noisy(below[tree.hi] - below[tree.lo], noise_law.scale_of(equal))


def _cut_off(groups: Groups) -> tuple[trees.Tree, bool]:
    """Return the binary tree over the bins, cut off at the groups, or one over them if they do not fit."""
    from dphist.kernels.trees import tree as trees

    try:
        return trees.pruned_tree(groups.starts), True
    except UsageError:
        return trees.make_tree(groups.k), False
