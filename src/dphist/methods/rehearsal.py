"""A run on made-up counts before the charge: whatever can fail without data fails here, at no cost.

A rehearsal takes the same steps as the release, over a few bins and with repeatable noise. It imports what
they import and compiles the loops that they run, so that a release which is paid for does neither. It reads
no record, and its results are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Ranges, RangesOfLength, Rectangles, Workload
from dphist.kernels import telling
from dphist.kernels.trees.hat_rules import LEAST
from dphist.methods.pipeline import Pipeline
from dphist.methods.sparse import SparsePipeline
from dphist.privacy.counts import Counts, SparseCounts
from dphist.privacy.curator import Curator
from dphist.release import Post
from dphist.steps.estimate import AveragedTree, Hats
from dphist.steps.partition import FaintBins, Splits
from dphist.steps.protocols import Partitioner

_LINE, _SIDE = 48, 8  # bins of a made-up line, and along either axis of a made-up grid
_MANY = (1 << 11) + 1  # of a tree that has more nodes than are looked up the short way
_LONG = LEAST["all-ranges"][0]  # a side of so many rows or columns has triangles of its own
_MOST_QUERIES = 64
_MOST_REMEMBERED = 1024
_rehearsed: set[object] = set()


def rehearse(
    pipeline: Pipeline,
    domain: Domain,
    workload: Workload,
    *,
    epsilon: Fraction,
    sensitivity: int = 1,
    post: Post = "none",
) -> None:
    """Run a mechanism on made-up counts, once in a process, and raise what the release would raise."""
    then = _after_its_question(pipeline.partition)
    if then is not None:
        grouping = replace(pipeline, partition=then)
        rehearse(grouping, domain, workload, epsilon=epsilon, sensitivity=sensitivity, post=post)
    if isinstance(pipeline.estimate, AveragedTree) and pipeline.estimate.asks:
        for flat in (False, True):  # for chance decides what a question finds of a few bins
            answered = replace(pipeline.estimate, asks=False, flat=flat)
            alone = Pipeline(order=pipeline.order, estimate=answered, name=pipeline.name)
            rehearse(alone, domain, workload, epsilon=epsilon, sensitivity=sensitivity, post=post)
    usual = (_LINE,) if len(domain.axes) == 1 else (_SIDE, _SIDE)
    # Few bins take shortcuts that more do not take, and the other way round.
    shapes = {usual, tuple(map(min, domain.shape, usual))}
    if len(domain.axes) == 2 and len({*domain.shape}) == 2:  # uneven boxes take other ways than squares
        shapes.add(tuple(map(min, domain.shape, (_SIDE - 2, _SIDE - 1))))
    cases = [(shape, resized(workload, shape)) for shape in sorted(shapes)]
    if isinstance(pipeline.estimate, Hats | AveragedTree) and isinstance(workload, Rectangles):
        cases += _with_long_sides(domain)
    for shape, asked in cases:
        small = Domain(tuple(Integers(0, n - 1) for n in shape))
        key = (repr(pipeline), shape, repr(asked.to_dict()), epsilon, sensitivity, post)
        if key in _rehearsed:
            continue
        try:
            _run(pipeline, small, asked, epsilon, sensitivity, post)
        except Exception:  # a user's component may fit this domain alone
            if shape == domain.shape or domain.is_large:
                raise
            _run(pipeline, domain, workload, epsilon, sensitivity, post)
        _remember(key)
    if isinstance(pipeline.estimate, AveragedTree):
        many = (_trees_of_many_bins,) if domain.n >= _MANY else ()
        for part in (_trees_over_groups, _averages_over_trees, *many):
            if part not in _rehearsed:
                with telling(pipeline.name):
                    part()
                _remember(part)


def _after_its_question(partition: Partitioner) -> Partitioner | None:
    """Return what groups bins if they are not found to stay alone: of a few bins chance decides that."""
    if isinstance(partition, FaintBins):
        return partition.then
    if isinstance(partition, Splits) and partition.level is not None:
        return replace(partition, level=None)
    return None


def _trees_over_groups() -> None:
    """Measure a tree whose noise agrees, with its posterior, and one that is made to: groups decide which."""
    from dphist.kernels.trees.tree import level_weights, pruned_tree
    from dphist.kernels.trees.tuning_agreeing import agreeing_weights
    from dphist.steps.estimate.averaged_trees import agreeing_totals, posterior
    from dphist.steps.estimate.trees import fitted_tree, tree_totals

    n = 4
    curator = Curator.simulated(
        Counts(np.zeros(n, np.int64), Domain((Integers(0, n - 1),))), epsilon=Fraction(1), seed=0
    )
    tree = pruned_tree(np.arange(n + 1))
    ones, listed, weights = np.ones(n, np.int64), (np.array([0]), np.array([n])), level_weights(tree)
    for queries in ("all-ranges", listed):
        found = agreeing_weights(tree, ones, queries, weights, below=math.inf, draws=math.inf)
        weights = weights if found is None else found
    half = Fraction(1, 2)
    alone = Groups.singletons(n)
    posterior(tree, alone, agreeing_totals(curator, alone, tree, weights, share=half))
    halves, two = Groups(np.array([0, n // 2, n])), pruned_tree(np.array([0, n // 2, n]))
    noisy = tree_totals(curator, halves, two, level_weights(two), share=half)
    fitted_tree(halves, two, noisy, pruned=True)


def _averages_over_trees() -> None:
    """Average over a tree and over shifted ones: of short lines chance decides whether any release does."""
    from dphist.kernels.averaging.contrasts import averaged_by, spread_of
    from dphist.kernels.averaging.pruned import averaged, gathered
    from dphist.kernels.trees import variances
    from dphist.kernels.trees.tree import pruned_tree
    from dphist.uncertainty.noise_law import variance

    starts = Groups.singletons(_LINE).starts
    tree = pruned_tree(starts)
    ones = np.ones(tree.size)
    averaged(gathered(tree, starts, np.zeros(tree.size, np.int64), ones, variance))
    error = variances.tree_error(tree, ones)
    averaged_by(np.zeros(_LINE), spread_of(_LINE, partial(variances.range_variances, error)))


def _trees_of_many_bins() -> None:
    """Measure triangles, and look up ranges of a large tree: what thousands of bins need, and few do not."""
    from dphist.kernels.trees import tree as trees
    from dphist.kernels.trees import variances
    from dphist.steps.estimate.averaged_trees import over_hats

    line = Domain((Integers(0, _LINE - 1),))
    held = Counts(np.zeros(_LINE, np.int64), line)
    over_hats(Curator.simulated(held, epsilon=Fraction(1), seed=0), "all-ranges", share=Fraction(1))
    tree = trees.make_tree(_MANY)
    each = np.arange(_MANY)
    variances.range_variances(variances.tree_error(tree, np.ones(tree.size)), each, each + 1)


def _with_long_sides(domain: Domain) -> list[tuple[tuple[int, ...], Workload]]:
    """Return a grid measured by triangles or pyramids, if the domain may be, and queries for it.

    Of all rectangles, both gain most with the whole grid. One query is for a single cell: single cells
    have loops of their own, as have queries that are looked up together, being many.
    """
    if max(domain.shape) < _LONG and min(domain.shape) < 2:
        return []
    rows, columns = (min(n, _LONG) for n in domain.shape)
    first = np.zeros(_MOST_QUERIES, dtype=np.int64)
    ends = [np.append(first[1:] + n, 1) for n in (rows, columns)]
    return [((rows, columns), Rectangles((rows, columns), first, ends[0], first, ends[1]))]


def _remember(key: object) -> None:
    if len(_rehearsed) >= _MOST_REMEMBERED:
        _rehearsed.clear()
    _rehearsed.add(key)


def _run(
    pipeline: Pipeline, domain: Domain, workload: Workload, epsilon: Fraction, sensitivity: int, post: Post
) -> None:
    for made_up in _patterns(domain.n, height=64 * (1 + int(sensitivity / epsilon))):
        counts: Counts | SparseCounts = Counts(made_up, domain, sensitivity)
        if isinstance(pipeline, SparsePipeline):
            counts = SparseCounts(*counts.held(), domain, sensitivity)
        curator = Curator.simulated(counts, epsilon=epsilon, seed=0)
        with telling(pipeline.name), np.errstate(all="ignore"):  # these numbers are discarded
            release = pipeline.run(curator, workload, post=post)
            release.intervals()
            release.total()
            release.to_json()


def _patterns(n: int, *, height: int) -> Iterator[Ints]:
    """Yield counts that lead to one group, to some, and to none, being this high above the noise."""
    height = min(height, 1 << 40)
    jagged = np.arange(n) * 7919 % 13 * height
    yield np.zeros(n, dtype=np.int64)
    yield np.where(np.arange(n) < n - n // 8, height, jagged)
    yield jagged


def resized(workload: Workload, shape: tuple[int, ...]) -> Workload:
    """Return a workload of the same kind over another number of bins."""
    if workload.shape == shape:
        return workload
    n = int(np.prod(shape))
    if isinstance(workload, RangesOfLength):
        return RangesOfLength(n, tuple(sorted({min(length, n) for length in workload.lengths})))
    if isinstance(workload, Ranges):
        return Ranges(n, *_scaled(workload.lo, workload.hi, workload.n, n))
    if isinstance(workload, Rectangles):
        (x0, x1), (y0, y1) = (
            _scaled(lo, hi, old, new)
            for lo, hi, old, new in zip(
                (workload.x0, workload.y0), (workload.x1, workload.y1), workload.shape, shape, strict=True
            )
        )
        return Rectangles(shape, x0, x1, y0, y1)
    return type(workload)(n)  # type: ignore[call-arg]


def _scaled(lo: Ints, hi: Ints, old: int, new: int) -> tuple[Ints, Ints]:
    low = lo[:_MOST_QUERIES] * new // old
    return low, np.maximum(-(-hi[:_MOST_QUERIES] * new // old), low + 1)
