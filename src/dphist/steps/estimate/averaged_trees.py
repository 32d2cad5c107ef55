"""Hats or a tree of noisy totals, and values averaged over the prunings of a tree, not least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
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
)
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.uncertainty import noise_law

if TYPE_CHECKING:
    from dphist.kernels.trees import tree as trees

_RESERVE = 0.05  # of a node's budget, for groups that no query of the workload separates


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
        from dphist.kernels.trees import hats_fit, tuning

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
        noisy = tree_totals(  # nobody keeps the weights
            curator,
            groups,
            tree,
            tuning.tuned_weights(tree, groups.sizes, queries_of(workload, groups), reserve=_RESERVE),
            share=share,
        )
        found = fitted_tree(groups, tree, noisy, pruned=pruned)
        given = gathered(tree, groups.starts, noisy.values, np.asarray(noisy.scale), noise_law.variance)
        del tree, noisy  # averages of very many bins need the memory
        return replace(found, values=groups.means(averaged(given)), measured=found.values)


def _cut_off(groups: Groups) -> tuple[trees.Tree, bool]:
    """Return the binary tree over the bins, cut off at the groups, or one over them if they do not fit."""
    from dphist.kernels.trees import tree as trees

    try:
        return trees.pruned_tree(groups.starts), True
    except UsageError:
        return trees.make_tree(groups.k), False
