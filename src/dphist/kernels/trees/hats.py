"""Single bins and overlapping triangles ("hats"): better than trees for all ranges and all prefixes.

A level cuts the n bins into equal parts and puts a hat on every cut: weights that rise to it and fall to the
next ones. All weights are whole numbers, and every bin's own query gets what its hats leave of ``whole``: so
one unit moves the answers by exactly ``whole`` in all. The hats are sorted by their ends. Then each overlaps
only a run of the hats before it, the matrix of their overlaps has a Cholesky factor inside the same runs, and
least squares takes time and memory proportional to n times the number of levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dphist.domain.groups import Ints, frozen
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.transforms.exact import exact_answers
from dphist.kernels.trees.variances import closed_form

WHOLE = 1 << 12  # counts of up to 2**49 in all are answered exactly; a finer grid gains nothing


@dataclass(frozen=True, eq=False)
class HatShape:
    """The weights of whole-number queries over n bins: first the bins one by one, then the hats.

    Args:
        bins: the weight of each bin in its own query.
        first: where each hat begins.
        offset: where each hat's weights begin in ``weights``, and, last, how many there are.
        weights: of the bins under each hat, from its first.
        whole: what every bin's weights add up to.
    """

    bins: Ints
    first: Ints
    offset: Ints
    weights: Ints
    whole: int

    @property
    def n(self) -> int:
        return self.bins.size

    @property
    def size(self) -> int:
        return self.bins.size + self.first.size


@lru_cache(maxsize=2)
def fitted_hats(n: int, queries: str, *, whole: int = WHOLE) -> HatShape:
    """Return hats for all ranges or all prefixes of n bins; single bins, and few of them, need none.

    The rule was fitted to optima found for n from 64 to 32,768 and is within 1 % of them: each level is r
    times as wide as the one before, the finest some r bins, the number of the coarsest parts in proportion to
    r, equal weights for all levels and the bins, and as few levels as keep r to 25. Prefixes all begin at the
    first bin, so they have a hat there; the last bin has none, as the total is but one of many queries.
    """
    if n < 1 or whole < 16:
        raise UsageError("hats need at least one bin, and a whole of at least 16.")
    if closed_form(queries) == "points" or n < 24:  # up to there the bins alone are better
        return make_hats(n, cuts=np.empty(0, np.int64), weights=np.empty(0, np.int64), whole=whole)
    finest, coarsest = (1.25, 0.6) if queries == "all-ranges" else (1.1, 0.3)
    levels = 1
    while finest * coarsest * 25.0 ** (levels + 1) < n:
        levels += 1
    r = (n / (finest * coarsest)) ** (1.0 / (levels + 1))
    cuts = np.rint(n / (finest * r ** np.arange(1.0, levels + 1))).astype(np.int64)
    weights = np.full(levels, whole // (levels + 1))
    return make_hats(
        n, cuts=np.clip(cuts, 2, n), weights=weights, whole=whole, at_start=queries == "prefixes"
    )


def make_hats(
    n: int, *, cuts: Ints, weights: Ints, whole: int = WHOLE, at_start: bool = False, at_end: bool = False
) -> HatShape:
    """Return the bins and one level of hats for each entry of ``cuts``.

    Args:
        cuts: into how many parts each level cuts the bins, at least 2 and at most n.
        weights: of each level at the top of a hat, out of ``whole``; the bins need some of it themselves.
        at_start: whether half a hat stands on the first bin too.
        at_end: whether half a hat stands on the last bin too.
    """
    parts, tops = (np.atleast_1d(np.asarray(x, dtype=np.int64)) for x in (cuts, weights))
    if n < 1 or parts.shape != tops.shape or parts.ndim != 1 or not ((parts >= 2) & (parts <= n)).all():
        raise UsageError(f"hats over {n} bins need levels of 2 to {n} parts and a weight for each level.")
    whole = int(whole)
    if not (0 < whole <= 1 << 30 and (tops > 0).all() and int(tops.sum()) < whole):
        raise UsageError("the levels' weights must be positive and together below the whole, up to 2**30.")
    first, last, level, peak = [], [], [], []
    for i, m in enumerate(parts.tolist()):
        j = np.arange(0 if at_start else 1, m + 1 if at_end else m, dtype=np.int64)
        # Bin b, with its centre at (2b + 1)/2n, is under hat j if it is nearer than 1/m to the cut j/m.
        low = np.maximum((2 * n * (j - 1) - m) // (2 * m) + 1, 0)
        high = np.minimum(-((-2 * n * (j + 1) + m) // (2 * m)), n)
        kept = low < high
        first.append(low[kept])
        last.append(high[kept])
        peak.append(j[kept])
        level.append(np.full(int(kept.sum()), i))
    a, b, j, at = (np.concatenate([np.empty(0, np.int64), *x]) for x in (first, last, peak, level))
    order = np.lexsort((a, b))
    offset = np.zeros(a.size + 1, np.int64)
    np.cumsum((b - a)[order], out=offset[1:])
    heights, bins = _weigh(n, whole, a[order], offset, j[order], parts[at[order]], tops[at[order]])
    if bins.min() < 1:
        raise UsageError("the levels' weights leave nothing for the bins themselves; make them smaller.")
    return HatShape(frozen(bins), frozen(a[order]), frozen(offset), frozen(heights), whole)


@kernel
def _weigh(
    n: int, whole: int, first: Ints, offset: Ints, peak: Ints, parts: Ints, tops: Ints
) -> tuple[Ints, Ints]:
    weights = np.empty(offset[first.size], np.int64)
    bins = np.full(n, whole, np.int64)
    for h in range(first.size):
        for i in range(offset[h + 1] - offset[h]):
            b = first[h] + i
            w = (tops[h] * (2 * n - abs((2 * b + 1) * parts[h] - 2 * n * peak[h])) + n) // (2 * n)  # rounded
            weights[offset[h] + i] = w
            bins[b] -= w
    return weights, bins


def column_sums(hats: HatShape) -> Ints:
    """Return the sum of |weights| of each bin over all queries, added up from the weights themselves."""
    return _column_sums(hats.bins, hats.first, hats.offset, hats.weights)


@kernel
def _column_sums(bins: Ints, first: Ints, offset: Ints, weights: Ints) -> Ints:
    sums = np.abs(bins)
    for h in range(first.size):
        for i in range(offset[h], offset[h + 1]):
            sums[first[h] + i - offset[h]] += abs(weights[i])
    return sums


def apply_hats(hats: HatShape, x: Ints) -> Ints:
    """Return the answers of all queries to counts x, cut off at +-2^61: O(n) for each level."""
    if x.shape != (hats.n,) or x.dtype != np.int64:
        raise UsageError(f"hats over {hats.n} bins are applied to as many whole numbers.")
    return exact_answers(
        lambda part: _apply(hats.bins, hats.first, hats.offset, hats.weights, part), x, most=hats.whole
    )


@kernel
def _apply(bins: Ints, first: Ints, offset: Ints, weights: Ints, x: Ints) -> Ints:
    n = bins.size
    out = np.empty(n + first.size, np.int64)
    for i in range(n):
        out[i] = bins[i] * x[i]
    for h in range(first.size):
        total = np.int64(0)
        for i in range(offset[h], offset[h + 1]):
            total += weights[i] * x[first[h] + i - offset[h]]
        out[n + h] = total
    return out
