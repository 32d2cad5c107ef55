"""Runs a method in every group of a hierarchy, level by level, and makes the levels add up.

Every level has a share of the budget, and every group of a level the whole of that share, because the groups
of a level are disjoint (`Curator.split`). A method whose values are unbiased and whose noise does not depend
on the data measures all levels, and least squares over the tree makes them agree (`kernels.levels`). One
whose values are biased by the data stays in the leaves: biases of many groups would add up above them. There
the upper levels are measured by an unbiased method, and the leaves are moved towards their sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Real
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Domain
from dphist.domain.groups import Groups, Ints
from dphist.domain.hierarchy import Hierarchy
from dphist.domain.workload import Points, Workload
from dphist.errors import UsageError
from dphist.kernels import levels
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline
from dphist.privacy.curator import Curator
from dphist.release.grouped import Level
from dphist.steps.anchor import anchored
from dphist.steps.estimate import GroupMeans
from dphist.steps.order import AsGiven
from dphist.steps.partition import Singletons
from dphist.uncertainty.models import ErrorModel, GroupTotals, Unknown
from dphist.uncertainty.reconciled import Reconciled

Importances: TypeAlias = Mapping[str, float] | str
ALONG_GROUPS = ("points", "levels", "totals")
UPPER = Fraction(1, 10)  # the importance of an upper level beside the leaves'
_FINEST = 1000  # shares are whole thousandths
_BLOCK = 1 << 18  # cells that are measured at once
# Bytes: for each bin of noise alone, and where levels were made to agree; for each group whose bins a method
# measures by itself, and for each of these bins. A test holds them to what some methods take.
_WHOLE, _AGREED, _EACH, _EACH_BIN = 24, 64, 4096, 96
_ENOUGH = 20  # noise scales beyond which a larger group takes no larger part of a difference
_ADDED = "the levels above were not measured, and the sums of biased groups are biased"


def is_unbiased(pipeline: Pipeline) -> bool:
    """Return whether a method measures every bin in a way that no data can change, with known noise."""
    alone = isinstance(pipeline.partition, Singletons) and isinstance(pipeline.order, AsGiven)
    return alone and not pipeline.initialize.spends and pipeline.estimate.unbiased


def upper_method(pipeline: Pipeline, bins: Domain, workload: Workload) -> Pipeline:
    """Return the method of the upper levels: the leaves' own if it is unbiased, otherwise one that is."""
    return pipeline if is_unbiased(pipeline) else usual_above(bins, workload)


def usual_above(bins: Domain, workload: Workload) -> Pipeline:
    """Return the unbiased method that measures levels above biased ones."""
    return make_pipeline("identity" if isinstance(workload, Points) else "hats", bins, workload)


def lowest_agreed(pipeline: Pipeline, shares: Sequence[Fraction]) -> int:
    """Return the lowest level that least squares makes agree with those above it; -1 if there is none."""
    if is_unbiased(pipeline):
        return len(shares) - 1
    return max((level for level, share in enumerate(shares[:-1]) if share), default=-1)


def make_importances(hierarchy: Hierarchy, importances: Importances | None = None) -> dict[str, float]:
    """Return how much a squared error counts on each level.

    Args:
        importances: a number for each level, or a word for the queries along the groups: ``points`` asks for
            the lowest level's groups alone, ``totals`` for those of the top level, and ``levels`` for all of
            them. By default, and for levels that are not named, 1 for the lowest and 1/10 above it.
    """
    names = hierarchy.names
    given = dict.fromkeys(names[:-1], float(UPPER)) | {names[-1]: 1.0}
    if isinstance(importances, str):
        if importances not in ALONG_GROUPS:
            raise UsageError(
                f"importances are a number for each level, or one of {', '.join(ALONG_GROUPS)}, not "
                f"{importances!r}."
            )
        asked = {"points": names[-1:], "totals": names[:1], "levels": names}[importances]
        return {name: weight if name in asked else 0.0 for name, weight in given.items()}
    if not isinstance(importances, Mapping | None):
        raise UsageError(f"importances are numbers by the names of levels, such as {{{names[0]!r}: 0.5}}.")
    for name, value in (importances or {}).items():
        if name not in names:
            raise UsageError(f"there is no level {name!r}; the levels are {', '.join(names)}.")
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
            raise UsageError(f"the importance of {name} must be a number from 0 on, not {value!r}.")
        given[name] = float(value)
    return given


def make_shares(
    hierarchy: Hierarchy, importances: Importances | None = None, *, biased: bool = False
) -> tuple[Fraction, ...]:
    """Return the share of each level, the top first; 0 for a level that is the sum of those below it.

    Args:
        importances: those of the levels, see ``make_importances``.
        biased: whether the leaves' values are biased by the data. Their sums are then no estimates of the
            levels above, which are all measured unless their importance is 0.
    """
    weights = list(make_importances(hierarchy, importances).values())
    best = (levels.shares_apart if biased else levels.best_shares)(hierarchy.sizes, weights)
    upper = [Fraction(round(float(s) * _FINEST), _FINEST) for s in best[:-1]]
    if (least := Fraction(1, _FINEST)) > (left := 1 - sum(upper, Fraction(0))):
        upper[upper.index(max(upper))] -= least - left  # the leaves are always measured
    return (*upper, 1 - sum(upper, Fraction(0)))


def bytes_needed(pipeline: Pipeline, hierarchy: Hierarchy, n: int) -> int:
    """Return about how many bytes all groups take, the counts of n bins of each included."""
    groups = sum(hierarchy.sizes)
    if not _is_plain(pipeline):
        return groups * (_EACH + n * _EACH_BIN)
    return groups * n * (_WHOLE if hierarchy.depth == 1 else _AGREED)


def run_levels(
    pipeline: Pipeline,
    curator: Curator,
    hierarchy: Hierarchy,
    workload: Workload,
    shares: Sequence[Fraction],
) -> tuple[Level, ...]:
    """Measure every level that has a share, and return all of them, adding up."""
    upper = upper_method(pipeline, Domain((curator.domain.axes[1],)), workload)
    above = [
        _measured(upper, curator, hierarchy, level, workload, share) if share else None
        for level, share in enumerate(shares[:-1])
    ]
    leaves = _measured(pipeline, curator, hierarchy, hierarchy.depth - 1, workload, shares[-1])
    if is_unbiased(pipeline):
        return _reconciled([*above, leaves], hierarchy)
    return _moved(above, leaves, hierarchy, scale=curator.scale(shares[-1]))


def _measured(
    pipeline: Pipeline,
    curator: Curator,
    hierarchy: Hierarchy,
    level: int,
    workload: Workload,
    share: Fraction,
) -> Level:
    """Run a method in every group of a level; each has the whole share, and no two read one record."""
    n = curator.domain.axes[1].n
    if level == hierarchy.depth - 1 and _is_plain(pipeline):
        return _cells(curator, n, share)
    parts = curator.split(hierarchy.runs(level), share=share)
    found = [(part.domain, *pipeline.values(part, workload)) for part in parts]
    fixed = is_unbiased(pipeline)
    return Level(
        numbers=np.stack([estimated.values for *_, estimated in found]),
        errors=[
            anchored(domain, estimated, quick=True)
            for domain, _, estimated in (found[:1] if fixed else found)
        ],
        groups=[groups for _, groups, _ in (found[:1] if fixed else found)],
        factors=np.ones(len(found)),
    )


def _is_plain(pipeline: Pipeline) -> bool:
    """Return whether a method is nothing but noise on every bin."""
    return is_unbiased(pipeline) and type(pipeline.estimate) is GroupMeans


def _cells(curator: Curator, n: int, share: Fraction) -> Level:
    """Measure the bins of many groups at once: all of them are disjoint."""
    rows = curator.domain.axes[0].n
    blocks = Groups(np.append(np.arange(0, rows, max(_BLOCK // n, 1)), rows))
    values, scale = np.empty((rows, n), dtype=np.int16), 1.0
    parts = curator.split(blocks, share=share, summed=False)
    for at, part in zip(blocks.starts, parts, strict=False):
        noisy = part.measure(Groups.singletons(part.domain.n), share=Fraction(1))
        values = _holding(values, noisy.values)
        values[at : at + part.domain.shape[0]] = noisy.values.reshape(-1, n)
        scale = float(np.max(noisy.scale))
    alone = Groups.singletons(n)
    return Level(values, [GroupTotals(alone, scale)], [alone], np.ones(rows))


def _holding(kept: NDArray[np.signedinteger], more: Ints) -> NDArray[np.signedinteger]:
    """Return an array of whole numbers of a type that holds some more of them."""
    least, greatest = int(more.min()), int(more.max())
    for type in (np.int16, np.int32, np.int64):
        room = np.iinfo(type)
        if room.bits >= 8 * kept.itemsize and room.min <= least and greatest <= room.max:
            break
    return kept.astype(type, copy=False)


def _reconciled(measured: Sequence[Level | None], hierarchy: Hierarchy) -> tuple[Level, ...]:
    """Return unbiased levels, made to agree; their errors are factors of the lowest one's."""
    lowest = measured[-1]
    if lowest is None or len(measured) == 1:
        return tuple(level for level in measured if level is not None)
    unit, n = mean_variance(lowest.errors[0]), lowest.values.shape[1]
    v = [math.inf if level is None else mean_variance(level.errors[0]) / unit for level in measured]
    y = [
        np.zeros((size, n)) if level is None else level.values
        for size, level in zip(hierarchy.sizes, measured, strict=False)
    ]
    parents = hierarchy.parents[: len(measured) - 1]
    factors = levels.variances(parents, v)
    values = levels.reconcile(parents, v, y)
    return tuple(
        Level(x, lowest.errors, lowest.groups, h, variance)
        for x, h, variance in zip(values, factors, v, strict=True)
    )


def mean_variance(error: ErrorModel) -> float:
    """Return the mean variance of a measured bin, kept above 0 so that weights by it stay finite."""
    variances = error.variances()
    return math.inf if variances is None else max(float(np.mean(variances)), 1e-100)


def _moved(
    above: Sequence[Level | None], leaves: Level, hierarchy: Hierarchy, *, scale: float
) -> tuple[Level, ...]:
    """Return biased leaves below unbiased levels, moved so that they add up.

    What the leaves of a group lack of it is shared by their totals up to 20 noise scales: empty groups stay
    clean, and a large one takes no more than any other that is clearly not empty.
    """
    lowest = max((i for i, level in enumerate(above) if level is not None), default=-1)
    known = _reconciled(above[: lowest + 1], hierarchy) if lowest >= 0 else ()
    values, errors, n = leaves.values, list(leaves.errors), leaves.values.shape[1]
    if known:
        runs = hierarchy.runs(lowest)
        starts, label = runs.starts[:-1], runs.labels()
        parts = np.clip(values.sum(axis=1), scale / 100, _ENOUGH * scale)
        parts /= np.add.reduceat(parts, starts)[label]
        gap = known[-1].values - np.add.reduceat(values, starts, axis=0)
        moved = parts[:, None] * gap[label]
        values = values + moved
        errors = [Reconciled(error, n, 1.0, move) for error, move in zip(errors, moved, strict=True)]
    values = levels.on_grid(values)
    made = [Level(values, errors, leaves.groups, np.ones(len(values)), math.nan)]
    for level in reversed(range(hierarchy.depth - 1)):
        sums = np.add.reduceat(values, hierarchy.runs(level).starts[:-1], axis=0)
        if level <= lowest:
            made.insert(0, dataclasses.replace(known[level], numbers=sums))
        else:
            none = Level(sums, [Unknown(_ADDED)], [Groups.singletons(n)], np.ones(len(sums)), math.nan)
            made.insert(0, none)
    return tuple(made)
