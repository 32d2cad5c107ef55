"""Hats or a tree of noisy totals, and values averaged over the prunings of a tree, not least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from dphist.domain.groups import Floats, Groups, Ints, frozen
from dphist.domain.workload import Points, Workload
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
)
from dphist.steps.protocols import WIDEST_SCALE, Estimated, Rough, Step, checked_scale, variance
from dphist.steps.questions import below, cannot_ask, whole_level
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import TreeTotals

if TYPE_CHECKING:
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees.variances import Queries

_RESERVE = 0.05  # of a node's budget, for groups that no query of the workload separates
_WIDER = 1.04  # by which variances are stated larger: those of the largest nodes are known least well
_MOST_AGREEING = 1 << 13  # groups on which noise that agrees is tried
_MOST_DRAWS = 1 << 22  # that it may take, foreseen: some tenths of a second
# Of the share of a grid of n cells, n-ths that ask how many are held, or else that part; the level in noise
# scales up to which a cell is held in part, and how many may be for noise on each, times the squared gain.
_ASKED, _MOST_ASKED = Fraction(12), Fraction(1, 32)
_HELD, _FEW_HELD = 1.5, 0.45
# Groups of a line, and bins that stay alone, up to which their totals are posterior means by the law of their
# noise, if it agrees. Of listed ranges bins alone are measured as groups are.
_FEW_GROUPS, _FEW_ALONE = 256, 64
_FEW_RECORDS = 1000.0  # in noise scales of the whole budget: up to so many in all are few


@dataclass(frozen=True)
class AveragedTree(Step):
    """Bins and triangles, or a tuned tree cut off at the groups; then averages over all its prunings (ours).

    Every bin has the mean of what it would be if the bins of this or that node were all alike or empty, each
    weighted by what the noisy totals say of it: less error than least squares where neighbours are alike or
    empty, about the same elsewhere, and never below 0. It costs nothing, and intervals stay what they are,
    but for ends that are moved to hold a value. Of up to 256 groups of a line, or 64 bins alone, they are
    posterior means by the exact law of noise that agrees, or the mean of such and of averages
    (`totals_of_few`).
    Cells of a grid that pyramids measured are averaged by the contrasts of its sides' trees (`products`);
    those that triangles of its sides measured are left as they are. Both may be below 0.

    Args:
        flat: whether every bin has noise of its own, and no totals have, if it is a group by itself: a
            rectangle of a grid of few cells is the sum of a few, and of many nodes of a tree.
        slight: a scale of noise below which this is so in any case: noise of whole records vanishes faster
            than its scale does, and nodes of a tree have wider noise.
        asks: whether 12 parts in n of the share ask how many cells of a grid hold records, if none is
            grouped, and pyramids or triangles of its sides would have less error in a grid that is full:
            among few that do, each has noise of its own, for noise on empty cells is averaged away.
    """

    spends: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    flat: bool = False
    slight: float = 0.0
    asks: bool = False

    def __post_init__(self) -> None:
        checked_scale(self.slight)

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        slight, flat = curator.scale(share) < self.slight, self.flat
        asked = share * min(_ASKED / groups.n, _MOST_ASKED)
        if self.asks and not slight and _can_ask(curator, groups, workload, asked, share - asked):
            flat, share = _few_are_held(curator, asked), share - asked
        if groups.are_singletons and (flat or slight):
            plain = Averaged(always=not (slight or isinstance(workload, Points)))
            found = plain(curator, rough, Groups.singletons(groups.n), workload, share=share)
            return replace(found, by=plain)
        grid = grid_hats_for(curator, groups, workload, share=share)
        if grid is not None:
            return over_grid(curator, grid, share=share)
        queries = hats_for(curator, groups, workload, share=share)
        if queries is None:
            return _over_groups(curator, groups, queries_of(workload, groups), share=share)
        weights = _weights_of_bins(workload, queries) if groups.n <= _MOST_AGREEING else None
        if weights is None or _too_wide(weights, curator.scale(share)):
            return over_hats(curator, queries, share=share)
        return _over_bins(curator, groups, weights, share=share)


def _can_ask(curator: Curator, groups: Groups, workload: Workload, share: Fraction, left: Fraction) -> bool:
    """Return whether there is anything to ask: what is left pays for sums of neighbours, and they gain."""
    if cannot_ask(curator, share / 2):
        return False
    return grid_hats_for(curator, groups, workload, share=left) is not None


def _few_are_held(curator: Curator, share: Fraction) -> bool:
    """Ask whether so few cells hold records that noise on each does better than on sums of neighbours.

    By these a rectangle's error is a public part of what noise on all of its cells would make of it.
    """
    from dphist.kernels.trees.pyramids import grid_gain

    rows, columns = curator.domain.shape
    level = max(whole_level(curator, _HELD), 1)
    return below(curator, level, share) < _FEW_HELD * grid_gain(rows, columns) ** 2 * level * rows * columns


def over_grid(curator: Curator, queries: str, *, share: Fraction) -> Estimated:
    """Return averages of what cells and pyramids say of a grid; what triangles of its sides do is left."""
    from dphist.kernels.averaging.products import averaged_pyramids
    from dphist.kernels.trees import hats

    found = measured_grid(curator, queries, share=share)
    if queries != "rectangles":
        return found
    (rows, columns), scale = curator.domain.shape, curator.scale(share) * float(hats.WHOLE)
    made = averaged_pyramids(found.values, rows, columns, float(variance(scale)))
    return replace(found, values=made, measured=found.values)


def over_hats(curator: Curator, queries: str, *, share: Fraction) -> Estimated:
    """Return averages over shifted trees of what bins and triangles say."""
    from dphist.kernels.averaging.contrasts import averaged_by, spread_of
    from dphist.kernels.trees import hats_fit

    answers, error = measured_hats(curator, queries, share=share)
    # What a copy works out is not kept: averages of very many bins need the memory.
    spread = spread_of(curator.domain.n, partial(hats_fit.hats_range_variances, replace(error)))
    found = fitted_hats(queries, answers, error)
    del answers, error
    return replace(found, values=averaged_by(found.values, spread), measured=found.values)


def _over_bins(curator: Curator, groups: Groups, weights: Floats, *, share: Fraction) -> Estimated:
    """Return the mean of averages over the tree of all bins and of those over shifted trees.

    Its noise agrees, so that the bins themselves are known as well as by any other tree.
    """
    from dphist.kernels.averaging.contrasts import averaged_by, spread_of
    from dphist.kernels.averaging.pruned import averaged, gathered
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees import variances

    tree = trees.make_tree(groups.n)
    noisy = agreeing_totals(curator, groups, tree, weights, share=share)
    bins = noisy.values[tree.leaf].astype(np.float64)
    model = TreeTotals(groups, tree.branching, False, noisy.scale, agreeing=True)
    if groups.order is None and groups.n <= _FEW_ALONE:
        return Estimated(posterior(tree, groups, noisy), model, measured=bins)
    error = variances.tree_error(tree, noise_law.variance(noisy.scale))
    values = averaged(gathered(tree, groups.starts, noisy.values, noisy.scale, noise_law.variance))
    values += averaged_by(bins, spread_of(groups.n, partial(variances.range_variances, error)))
    values *= 0.5
    return Estimated(values, model, measured=bins)


def _over_groups(curator: Curator, groups: Groups, asked: Queries, *, share: Fraction) -> Estimated:
    """Return averages over the tree of the bins that is cut off at the groups."""
    from dphist.kernels.averaging.pruned import averaged, gathered
    from dphist.kernels.averaging.trends import along_trends

    tree, pruned = _cut_off(groups)
    noisy = _measured(curator, groups, tree, asked, share=share)
    if isinstance(noisy, Agreeing):
        model = TreeTotals(groups, tree.branching, pruned, noisy.scale, agreeing=True)
        found = Estimated(groups.means(noisy.values[tree.leaf].astype(np.float64)), model)
    else:
        found = fitted_tree(groups, tree, noisy, pruned=pruned)
    if isinstance(noisy, Agreeing) and groups.order is None and groups.k <= _FEW_GROUPS:
        totals = totals_of_few(tree, groups, noisy, scale=curator.scale(Fraction(1)))
    else:
        given = gathered(tree, groups.starts, noisy.values, np.asarray(noisy.scale), noise_law.variance)
        del tree, noisy  # averages of very many bins need the memory
        totals = averaged(given)
        del given
    # Along a curve through a grid, groups before and after are not those on either side.
    values = along_trends(totals, groups.starts) if groups.order is None else groups.means(totals)
    return replace(found, values=values, measured=found.values)


def _measured(
    curator: Curator, groups: Groups, tree: trees.Tree, asked: Queries, *, share: Fraction
) -> Noisy | Agreeing:
    """Return noisy totals of a tree's nodes, whose noise is drawn so that it agrees where that is better."""
    from dphist.kernels.trees import tuning, tuning_agreeing, variances

    def tuned() -> Floats:
        return tuning.tuned_weights(tree, groups.sizes, asked, reserve=_RESERVE)

    if asked == "points" or not 2 < groups.k <= _MOST_AGREEING:
        return tree_totals(curator, groups, tree, tuned(), share=share)  # nobody keeps the weights
    weights = tuned()
    alone = 2.0 * variances.expected_error(tree, weights, groups.sizes, asked)
    together = tuning_agreeing.agreeing_weights(
        tree, groups.sizes, asked, weights, below=alone, draws=_MOST_DRAWS
    )
    if together is None or _too_wide(together, curator.scale(share)):
        return tree_totals(curator, groups, tree, weights, share=share)
    return agreeing_totals(curator, groups, tree, together, share=share)


@lru_cache(maxsize=8)  # the same for every release of a plan
def _weights_of_bins(workload: Workload, queries: str) -> Floats | None:
    """Return the weights of noise that agrees on a tree of all bins; None if triangles have less error."""
    from dphist.kernels.trees import hats, hats_fit, tuning, tuning_agreeing
    from dphist.kernels.trees import tree as trees

    n = math.prod(workload.shape)
    tree, ones, asked = trees.make_tree(n), np.ones(n, np.int64), queries_of(workload, Groups.singletons(n))
    weights = tuning.tuned_weights(tree, ones, asked, reserve=_RESERVE)
    triangles = 2.0 * hats_fit.hats_expected_error(hats.fitted_hats(n, queries), asked)
    found = tuning_agreeing.agreeing_weights(tree, ones, asked, weights, below=triangles, draws=_MOST_DRAWS)
    return None if found is None else frozen(found)


def _too_wide(weights: Floats, scale: float) -> bool:
    """Return whether a node would have noise wider than the sampler draws, if it is measured at all."""
    return scale > float(weights.min(initial=1.0, where=weights > 0.0)) * WIDEST_SCALE


class Agreeing(NamedTuple):
    """Noisy totals of a tree's nodes that agree with each other.

    Args:
        scale: of independent noise that would be as large.
        own: the scale of each node's factor in the law of the noise; infinite if it has none.
    """

    values: Ints
    scale: Floats
    own: Floats

    def deviations(self, tree: trees.Tree) -> Floats:
        """Return the standard deviation of the noise of each node's total."""
        from dphist.kernels.trees import variances

        error = variances.tree_error(tree, noise_law.variance(self.scale))
        return np.sqrt(np.maximum(variances.range_variances(error, tree.lo, tree.hi), 0.0))


def agreeing_totals(
    curator: Curator, groups: Groups, tree: trees.Tree, weights: Floats, *, share: Fraction
) -> Agreeing:
    """Return totals of all nodes whose noise agrees."""
    from dphist.kernels.trees import agreeing
    from dphist.kernels.trees import tree as trees

    parts = trees.integer_parts(weights, lo=tree.lo, hi=tree.hi, k=tree.k)
    noisy = curator.measure_tree(groups, tree.left > 0, parts=parts, whole=trees.WHOLE, share=share)
    below, own = np.concatenate(([0], np.cumsum(noisy.values))), np.asarray(noisy.scale)
    equal = agreeing.equal_variances(tree, noise_law.variance(own))
    return Agreeing(below[tree.hi] - below[tree.lo], noise_law.scale_of(_WIDER * equal), own)


def posterior(tree: trees.Tree, groups: Groups, noisy: Agreeing, *, few: bool = False) -> Floats:
    """Return the posterior means of the groups' totals."""
    from dphist.kernels.averaging.posterior import posterior_totals

    values = noisy.values.astype(np.float64)
    return posterior_totals(tree, groups.starts, values, noisy.own, noisy.deviations(tree), few=few)


def totals_of_few(tree: trees.Tree, groups: Groups, noisy: Agreeing, *, scale: float) -> Floats:
    """Return the totals of not too many groups: posterior means, or on longer lines a more cautious mean.

    Of few records a large part may lie in groups that look empty; and means that move the total of all by
    more than its standard error rest on a prior that hardly is that of these data. Either way the mean of two
    others is taken: of those for which empty groups are rarer, and of averages over prunings.

    Args:
        scale: of noise that the whole budget pays.
    """
    from dphist.kernels.averaging.pruned import averaged, gathered

    total = float(noisy.values[0])
    if groups.n <= _FEW_ALONE or total > _FEW_RECORDS * scale:
        found = posterior(tree, groups, noisy)
        if groups.n <= _FEW_ALONE or abs(float(found.sum()) - total) <= noisy.deviations(tree)[0]:
            return found
    cautious = posterior(tree, groups, noisy, few=True)
    cautious += averaged(gathered(tree, groups.starts, noisy.values, noisy.scale, noise_law.variance))
    return cautious * 0.5


def _cut_off(groups: Groups) -> tuple[trees.Tree, bool]:
    """Return the binary tree over the bins, cut off at the groups, or one over them if they do not fit."""
    from dphist.kernels.trees import tree as trees

    try:
        return trees.pruned_tree(groups.starts), True
    except UsageError:
        return trees.make_tree(groups.k), False
