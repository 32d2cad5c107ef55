"""Single bins and overlapping triangles ("hats"): better than trees for all ranges and all prefixes.

A level puts hats on knots: weights that rise to a knot from the one before, and fall to the next. All weights
are whole numbers, and every bin's own query gets what its hats leave of ``whole``: so one unit moves the
answers by exactly ``whole`` in all. The hats are sorted by their ends. Then each overlaps only a run of the
hats before it, the matrix of their overlaps has a Cholesky factor inside the same runs, and least squares
takes time and memory proportional to n times the number of levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Ints, frozen
from dphist.errors import UsageError
from dphist.kernels import kernel
from dphist.kernels.transforms.exact import exact_answers
from dphist.kernels.trees.hat_rules import LEAST, MOST_CELLS, RULES, Rule
from dphist.kernels.trees.variances import closed_form

WHOLE = 1 << 12  # counts of up to 2**49 in all are answered exactly; a finer grid gains nothing
WHOLE_OF_A_SIDE = 1 << 10  # of each side of a grid: products of their weights are answers
_BLOCK = 1 << 16  # weights that are made at once
GRID = 8  # to which part of a bin knots are rounded
_PYRAMID = 0.32  # the weight of a pyramid at its top, out of the whole
Weights: TypeAlias = NDArray[np.int32]  # each is below a whole of at most 2^30


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
    weights: Weights
    whole: int

    @property
    def n(self) -> int:
        return self.bins.size

    @property
    def size(self) -> int:
        return self.bins.size + self.first.size


class Level(NamedTuple):
    """One level of hats: each rises from the knot before its own and falls to the one after it.

    Args:
        knots: of the hats, and one more on either side, rising. If the first two are equal, the first hat is
            flat from the first bin to its knot.
        tops: the weights of the hats at their knots.
        half: half a bin, in the units of the knots.
    """

    knots: Ints
    tops: Ints
    half: int


@lru_cache(maxsize=4)
def fitted_hats(n: int, queries: str, *, whole: int = WHOLE) -> HatShape:
    """Return hats for all ranges or all prefixes of n bins; single bins, and few of them, need none.

    `hat_rules` has the constants, and from how many bins on each level pays.
    """
    if n < 1 or whole < 16:
        raise UsageError("hats need at least one bin, and a whole of at least 16.")
    levels = 0 if closed_form(queries) == "points" else sum(n >= least for least in LEAST[queries])
    rules = RULES[queries][levels - 1] if levels else ()
    return stack_hats(n, place_knots(n, rules, mirrored=queries == "prefixes", whole=whole), whole=whole)


def place_knots(n: int, rules: Sequence[Rule], *, mirrored: bool, whole: int = WHOLE) -> list[Level]:
    """Return where hats stand, the coarsest level first, by rules that were fitted to optimal hats.

    The knots of a level cut the bins into cells, and finer levels lie in each cell as they would in so many
    bins by themselves. Hats at a part v of a cell of D bins, with l levels still to come, stand D^(l/(l+1))
    apart, times a factor that rises with 4 v (1 - v): the nearer to the middle, the more ranges inside the
    cell hold a bin, and the noise of every hat in a range is in its sum.

    Args:
        rules: for each level, the finest first.
        mirrored: whether all queries begin at the first bin, as prefixes do. To these the bins are the right
            half of twice as many: the first cell is half a cell, and its first hat is flat.
    """
    cells, levels = np.array([0.0, n]), list[Level]()
    for depth in range(len(rules), 0, -1):
        rule = rules[depth - 1]
        knots = _knots(n, cells, rule, depth, mirrored)
        left = float(whole) - rule.yields * sum(_heights(level, knots[1:-1]) for level in levels)
        tops = np.rint(np.broadcast_to(left * rule.height / (depth + 1.0), knots.size - 2)).astype(np.int64)
        levels.append(Level(knots, tops, GRID // 2))
        cells = np.unique(np.concatenate(([0.0], knots[1:-1] / GRID, [n])))
    return levels


def _knots(n: int, cells: Floats, rule: Rule, depth: int, mirrored: bool) -> Ints:
    """Return the knots of one level, given where cells begin and, last, n."""
    begin, size = cells[:-1].copy(), np.diff(cells)
    if mirrored:
        begin[0], size[0] = -size[0], 2.0 * size[0]
    apart, rise = np.full(size.size, rule.apart), np.full(size.size, rule.rise)
    apart[[0, -1]], rise[[0, -1]] = rule.outer_apart, rule.outer_rise
    apart *= size ** (depth / (depth + 1.0))
    centres = np.ceil(cells - 0.5).astype(np.int64)  # how many bins have their centre before each end
    cell = np.repeat(np.arange(size.size), centres[1:] - centres[:-1])
    v = (np.arange(n) + 0.5 - begin[cell]) / size[cell]
    passed = np.concatenate(([0.0], np.cumsum(1.0 / (apart[cell] * (rise[cell] + 4.0 * v * (1.0 - v))))))
    count = max(round(float(passed[-1]) - rule.start - rule.end), 2)
    steps = (rule.start + np.arange(count + 1)) * (passed[-1] / (rule.start + count + rule.end))
    knots = np.unique(np.rint(np.interp(steps, passed, np.arange(n + 1.0)) * GRID).astype(np.int64))
    return np.append(knots[0], knots) if mirrored else knots


def _heights(level: Level, at: Ints) -> Floats:
    """Return what the hats of a level add up to at some places."""
    first = level.tops[0] if level.knots[0] == level.knots[1] else 0
    return np.interp(at, level.knots, np.concatenate(([first], level.tops, [0])))


def even_hats(n: int, queries: str) -> HatShape:
    """Return the hats of former releases: evenly spaced and of equal heights.

    Each level is r times as wide as the one before, the finest some r bins, the number of the coarsest parts
    in proportion to r, and there are as few levels as keep r to 25.
    """
    if closed_form(queries) == "points" or n < 24:
        return stack_hats(n, [])
    finest, coarsest = (1.25, 0.6) if queries == "all-ranges" else (1.1, 0.3)
    levels = 1
    while finest * coarsest * 25.0 ** (levels + 1) < n:
        levels += 1
    r = (n / (finest * coarsest)) ** (1.0 / (levels + 1))
    cuts = np.rint(n / (finest * r ** np.arange(1.0, levels + 1))).astype(np.int64)
    tops = np.full(levels, WHOLE // (levels + 1))
    return make_hats(n, cuts=np.clip(cuts, 2, n), weights=tops, at_start=queries == "prefixes")


def make_hats(
    n: int, *, cuts: Ints, weights: Ints, whole: int = WHOLE, at_start: bool = False, at_end: bool = False
) -> HatShape:
    """Return the bins and one level of evenly spaced hats for each entry of ``cuts``.

    Args:
        cuts: into how many parts each level cuts the bins, at least 2 and at most n.
        weights: of each level at the top of a hat, out of ``whole``; the bins need some of it themselves.
        at_start: whether half a hat stands on the first bin too.
        at_end: whether half a hat stands on the last bin too.
    """
    parts, tops = (np.atleast_1d(np.asarray(x, dtype=np.int64)) for x in (cuts, weights))
    if n < 1 or parts.shape != tops.shape or parts.ndim != 1 or not ((parts >= 2) & (parts <= n)).all():
        raise UsageError(f"hats over {n} bins need levels of 2 to {n} parts and a weight for each level.")
    levels = list[Level]()
    for m, top in zip(parts.tolist(), tops.tolist(), strict=True):
        knots = 2 * n * np.arange(-1 if at_start else 0, m + 2 if at_end else m + 1)
        levels.append(Level(knots, np.full(knots.size - 2, top), m))
    return stack_hats(n, levels, whole=whole)


def stack_hats(n: int, levels: Sequence[Level], *, whole: int = WHOLE) -> HatShape:
    """Return the bins and levels of hats, with weights rounded to whole numbers, out of ``whole``."""
    whole = int(whole)
    tops = np.concatenate([np.empty(0, np.int64), *(level.tops for level in levels)])
    if not (0 < whole <= 1 << 30 and ((tops > 0) & (tops < whole)).all()):
        raise UsageError("the levels' weights must be positive and below the whole, which is at most 2**30.")
    parts = [_hats_of(n, level) for level in levels]
    columns = np.concatenate([np.empty((7, 0), np.int64), *parts], axis=1)
    rows = np.ascontiguousarray(columns[:, np.lexsort((columns[0], columns[1]))])
    first, last, half, left, peak, right, tops = rows
    offset = np.zeros(first.size + 1, np.int64)
    np.cumsum(last - first, out=offset[1:])
    weights = np.empty(offset[-1], np.int32)
    _weigh(first, offset, half, left, peak, right, tops, weights)
    bins = np.full(n, whole)
    for b, w in _under(first, offset, weights):
        bins[b] -= w
    if bins.min() < 1:
        raise UsageError("the levels' weights leave nothing for the bins themselves; make them smaller.")
    return HatShape(frozen(bins), frozen(first), frozen(offset), frozen(weights), whole)


def _hats_of(n: int, level: Level) -> Ints:
    """Return the columns that `_weigh` reads: a bin is under a hat if its centre lies between the knots."""
    left, peak, right = level.knots[:-2], level.knots[1:-1], level.knots[2:]
    bin_size = 2 * level.half
    first = np.where(left == peak, 0, np.maximum((left - level.half) // bin_size + 1, 0))
    last = np.minimum(-((level.half - right) // bin_size), n)
    columns = np.stack((first, last, np.full(left.size, level.half), left, peak, right, level.tops))
    return columns[:, first < last]


def _weigh(
    first: Ints, offset: Ints, half: Ints, left: Ints, peak: Ints, right: Ints, tops: Ints, weights: Weights
) -> None:
    """Write the weights, rounded: of some hats at once, as long as these have few."""
    cuts = np.searchsorted(offset, np.arange(0, offset[-1], _BLOCK))
    for i, j in pairwise(np.unique(np.append(cuts, first.size)).tolist()):
        hat = np.repeat(np.arange(i, j), np.diff(offset[i : j + 1]))
        away = 2 * (np.arange(offset[i], offset[j]) + (first - offset[:-1])[hat]) + 1
        away = away * half[hat] - peak[hat]
        side = np.where(away > 0, (right - peak)[hat], (peak - left)[hat])
        np.abs(away, out=away)
        rounded = (2 * tops[hat] * (side - away) + side) // np.maximum(2 * side, 1)
        weights[offset[i] : offset[j]] = np.where(side == 0, tops[hat], rounded)


@lru_cache(maxsize=4)
def column_sums(hats: HatShape) -> Ints:
    """Return the sum of |weights| of each bin over all queries, added up from the weights themselves."""
    sums = np.abs(hats.bins)
    _add_columns(hats.first, hats.offset, hats.weights, sums)
    if (sums == sums[0]).all():  # as it should be: nothing large is kept
        return np.broadcast_to(sums[:1].copy(), sums.shape)
    return frozen(sums)


def _add_columns(first: Ints, offset: Ints, weights: Weights, sums: Ints) -> None:
    for b, w in _under(first, offset, weights):
        sums[b] += np.abs(w)


def _under(first: Ints, offset: Ints, weights: Weights) -> Iterator[tuple[slice, Weights]]:
    """Yield the bins under each hat, and their weights."""
    last = first + np.diff(offset)
    for b, e, i, j in zip(*(x.tolist() for x in (first, last, offset[:-1], offset[1:])), strict=True):
        yield slice(b, e), weights[i:j]


@lru_cache(maxsize=4)
def fitted_pyramids(rows: int, columns: int) -> HatShape:
    """Return the cells of a grid, row by row, and pyramids over them, for all rectangles.

    A pyramid is a hat of the rows times a hat of the columns. To a line of all cells it is a hat with gaps,
    where its weights are 0. Triangles of the sides measure every cell together with strips of single rows and
    single columns, too: of few cells these cost more than they help.
    """
    if min(rows, columns) < 2 or rows * columns > MOST_CELLS:
        raise UsageError(f"pyramids are for grids of up to {MOST_CELLS:,} cells, two or more along a side.")
    down, across = (_one_level(n, round(math.sqrt(rows * columns) / 8.0)) for n in (rows, columns))
    top, unit = round(_PYRAMID * WHOLE), WHOLE_OF_A_SIDE**2
    runs, first = list[Ints](), list[int]()
    for row, tall in down:
        for column, wide in across:
            over = np.zeros((tall.size, columns), np.int64)
            over[:, column : column + wide.size] = (2 * top * np.outer(tall, wide) + unit) // (2 * unit)
            runs.append(over.ravel()[column : (tall.size - 1) * columns + column + wide.size])
            first.append(row * columns + column)
    begin, size = np.array(first), np.array([run.size for run in runs])
    at = np.lexsort((begin, begin + size))
    bins = np.full(rows * columns, WHOLE)
    for run, lo in zip(runs, first, strict=True):
        bins[lo : lo + run.size] -= run
    weights = np.concatenate([runs[i] for i in at]).astype(np.int32)
    offset = np.concatenate(([0], np.cumsum(size[at])))
    return HatShape(frozen(bins), frozen(begin[at]), frozen(offset), frozen(weights), WHOLE)


def _one_level(n: int, count: int) -> list[tuple[int, Ints]]:
    """Return one level of hats over a side, the first bin and the weights of each: denser at the ends.

    Few are evenly spaced. Of many, those at the ends are half as wide as those in the middle.
    """
    count = min(max(count, 1), max(n // 2, 1))
    u, least = (np.arange(count + 1) + 0.5) / (count + 1), min(0.2 + 2.4 / count, 1.0)
    gaps = least + (1.0 - least) * 4.0 * u * (1.0 - u)
    knots = np.rint(np.concatenate(([0.0], np.cumsum(gaps))) * (n * GRID / gaps.sum())).astype(np.int64)
    level = Level(knots, np.full(count, WHOLE_OF_A_SIDE), GRID // 2)
    side = stack_hats(n, [level], whole=2 * WHOLE_OF_A_SIDE)
    return [
        (int(lo), w.astype(np.int64))
        for lo, w in zip(side.first, np.split(side.weights, side.offset[1:-1]), strict=True)
    ]


def sides_of(rows: int, columns: int, queries: str) -> tuple[HatShape, ...]:
    """Return the hats of a line of so many rows and one column, or those of both sides of a grid.

    For rectangles of a grid, the pyramids over its cells, which are a line then.
    """
    if columns == 1:
        return (fitted_hats(rows, queries),)
    if queries == "rectangles":
        return (fitted_pyramids(rows, columns),)
    return tuple(fitted_hats(n, queries, whole=WHOLE_OF_A_SIDE) for n in (rows, columns))


def apply_hats(sides: tuple[HatShape, ...], x: Ints) -> Ints:
    """Return the answers of all queries to counts x, cut off at +-2^61: O(n) for each level.

    Args:
        sides: of a line or of a grid, whose queries are those of the rows times those of the columns.
        x: the counts, those of a grid row by row.
    """
    shape = tuple(side.n for side in sides)
    if x.shape != (math.prod(shape),) or x.dtype != np.int64:
        raise UsageError(
            f"hats over {' x '.join(map(str, shape))} bins are applied to as many whole numbers."
        )

    def apply(part: Ints) -> Ints:
        found = part.reshape(shape[0], -1)
        for side in sides:  # down the columns; of a grid, then along the rows
            answers = np.zeros((side.size, found.shape[1]), np.int64)
            np.multiply(side.bins[:, np.newaxis], found, out=answers[: side.n])
            _apply(side.first, side.offset, side.weights, found, answers)
            found = np.ascontiguousarray(answers.T)
        return found.ravel()

    return exact_answers(apply, x, most=math.prod(side.whole for side in sides))


@kernel
def _apply(first: Ints, offset: Ints, weights: Weights, x: Ints, out: Ints) -> None:
    """Write the hats' answers to every column of x, below those of the bins."""
    n, columns = x.shape
    for h in range(first.size):
        for i in range(offset[h], offset[h + 1]):
            for j in range(columns):
                out[n + h, j] += np.int64(weights[i]) * x[first[h] + i - offset[h], j]
