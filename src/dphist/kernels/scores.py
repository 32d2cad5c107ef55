"""Scores for private selection: each declares its sensitivity, and the tests try it on neighbours."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Groups, Ints
from dphist.kernels import kernel
from dphist.kernels.partition.deviations import Ranks, cost_cap, ranks
from dphist.kernels.partition.l1_search import empty_lists, enter, entries, median_row
from dphist.kernels.transforms.fourier import Fourier
from dphist.kernels.transforms.weights import Boxes


@dataclass(frozen=True)
class BinCounts:
    """Each bin's own count: choosing by it finds the fullest bin."""

    sensitivity: ClassVar[int] = 1
    monotone: ClassVar[bool] = True

    def candidates(self, n: int) -> int:
        """Return n: every bin is a candidate."""
        return n

    def __call__(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts; a unit only ever adds to them, so all scores move one way."""
        return counts


class _ByOne:
    """What the scores below declare, unless they say otherwise: one record moves a score by at most 1."""

    sensitivity: int = 1
    monotone: bool = False  # some scores may rise while others fall


@dataclass(frozen=True, eq=False)
class Cuts(_ByOne):
    """P-HP: stay with a partition, or cut one of its groups in two: minus the absolute error that results.

    A group costs the sum of its bins' distances from its median, which one record changes by at most 1, and
    a constant. Each candidate is a partition and a record lies in one of its groups, so no score moves by
    more than 1; two may move in opposite directions, one record bringing a bin nearer to one median and
    further from another.

    Args:
        starts: the partition so far, and n.
        penalty: what a further group costs.
        order: of the bins; None is the domain's.
    """

    starts: Ints
    penalty: int
    order: Ints | None = None

    def candidates(self, n: int) -> int:
        """Return n: staying, then a cut before bins 1 to n - 1."""
        return n

    def __call__(self, counts: Ints) -> Ints:
        """Return minus the cost of every candidate: O(n log n)."""
        x = counts if self.order is None else counts[self.order]
        cap = cost_cap(x.size)
        out = np.zeros(x.size, np.int64)
        whole = 0
        for a, b in itertools.pairwise(self.starts.tolist()):
            values, rank = ranks(x[a:b])
            right = _suffix_costs(x[a:b], values, rank, cap)
            left = _suffix_costs(x[a:b][::-1].copy(), values, rank[::-1].copy(), cap)[::-1]
            alone = int(right[0])
            out[a + 1 : b] = alone - left[:-1] - right[1:] - self.penalty
            whole += alone
        out[self.starts[1:-1]] = -self.penalty  # a cut that is there already
        return out - whole


@dataclass(frozen=True, eq=False)
class LastCut(_ByOne):
    """StructureFirst: where the last of some groups begins, if those before it are the best that there are.

    A candidate's score is minus the least cost of cutting the bins before it into at most ``pieces`` groups,
    and of one group from it to ``end``; costs are those of `Cuts`. For a fixed partition a record changes the
    cost by at most 1, so it changes the least over partitions by at most 1.

    Args:
        edges: the places where groups may begin, from 0 to n: public.
        end: up to which of them.
        pieces: how many groups may lie before the last.
        order: of the bins; None is the domain's.
    """

    edges: Ints
    end: int
    pieces: int
    order: Ints | None = None

    def candidates(self, n: int) -> int:
        """Return one for each place but the last."""
        return self.edges.size - 1

    def __call__(self, counts: Ints) -> Ints:
        """Return the scores; places from ``end`` on cannot win: O(n places + pieces places^2)."""
        x = counts if self.order is None else counts[self.order]
        out = np.full(self.edges.size - 1, -(1 << 61), np.int64)
        if self.end:
            values, rank = ranks(x[: self.edges[self.end]])
            out[: self.end] = _last_cuts(
                x, values, rank, self.edges[: self.end + 1], self.pieces, cost_cap(x.size)
            )
        return out


@dataclass(frozen=True, eq=False)
class Medians(_ByOne):
    """Hybrid trees: where to cut a box of a grid so that both parts hold as much: minus the difference.

    A record is on one side and changes the difference by 1, so no score moves by more; some rise, some fall.

    Args:
        shape: of the grid.
        box: first row, last row + 1, first column, last column + 1.
        axis: whether rows (0) or columns (1) are parted; the side has at least two cells.
    """

    shape: tuple[int, int]
    box: tuple[int, int, int, int]
    axis: int

    def candidates(self, n: int) -> int:
        """Return how many inner edges the side has."""
        return self.box[2 * self.axis + 1] - self.box[2 * self.axis] - 1

    def __call__(self, counts: Ints) -> Ints:
        """Return minus |one part - the other| for a cut after the first, second, ... line."""
        r0, r1, c0, c1 = self.box
        lines = counts.reshape(self.shape)[r0:r1, c0:c1].sum(axis=1 - self.axis)
        before = np.cumsum(lines)
        gap: Ints = np.abs(before[:-1] - (before[-1] - before[:-1]))
        return -gap


@dataclass(frozen=True, eq=False)
class Dropped(_ByOne):
    """EFPA: minus the square root of what dropping the higher frequencies loses plus what the kept ones cost.

    The first is a sum of squares of whole-number linear answers, the second a public constant: together the
    squared length of a vector, and a record moves a vector's length no further than its end point. That is at
    most ``norm_bound`` of the sums, a whole number, and rounding both lengths down keeps it.

    Args:
        sums: of all the frequencies that may be kept.
        noise: what keeping 1, 2, ... of them would add, in the units of the squared sums.
    """

    sums: Fourier
    noise: tuple[int, ...]
    groups: Groups

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", self.sums.norm_bound())

    def candidates(self, n: int) -> int:
        """Return how many frequencies there are: keep 1, 2, ... of them."""
        return self.sums.frequencies

    def __call__(self, counts: Ints) -> Ints:
        """Return the scores in exact integer arithmetic."""
        lost = self.sums.energies(self.sums(self.groups.totals(counts)))
        scores = np.empty(len(lost), np.int64)
        rest = 0
        for kept in range(len(lost), 0, -1):  # from all down to one
            scores[kept - 1] = -min(math.isqrt(rest + self.noise[kept - 1]), 1 << 61)
            rest += lost[kept - 1]
        return scores


@dataclass(frozen=True, eq=False)
class WorstAnswered(_ByOne):
    """MWEM: how far each box's sum is from a public answer to it; a record changes a sum by at most 1."""

    boxes: Boxes
    answers: Ints
    groups: Groups

    def candidates(self, n: int) -> int:
        """Return the number of boxes, which the workload fixes."""
        return self.boxes.size

    def __call__(self, counts: Ints) -> Ints:
        """Return the distances."""
        distance: Ints = np.abs(self.boxes(self.groups.totals(counts)) - self.answers)
        return distance


@kernel
def _suffix_costs(x: Ints, values: Ints, rank: Ranks, cap: int) -> Ints:
    """Return the median cost of x[i:] for every i: O(n) once the ranks are known."""
    n, distinct = x.size, values.size
    out = np.zeros(n, np.int64)
    entry = entries(rank, distinct)
    lists = empty_lists(distinct)
    for j in range(1, n + 1):
        enter(j, rank, entry, lists)
    median_row(n, x, values, rank, lists, np.empty_like(lists), cap, out)
    return out


@kernel
def _last_cuts(x: Ints, values: Ints, rank: Ranks, edges: Ints, pieces: int, cap: int) -> Ints:
    """Return minus (least cost of x[:e] in at most ``pieces`` groups + cost of x[e:end]) for each edge e."""
    m = edges.size - 1
    n = edges[m]
    cost = np.zeros((m + 1, m + 1), np.int64)  # [j, i]: of the bins between edges i and j
    row = np.zeros(n, np.int64)
    entry = entries(rank, values.size)
    lists = empty_lists(values.size)
    work = np.empty_like(lists)
    at = 1
    for j in range(1, n + 1):
        enter(j, rank, entry, lists)
        if j == edges[at]:
            median_row(j, x, values, rank, lists, work, cap, row)
            for i in range(at):
                cost[at, i] = row[edges[i]]
            at += 1
    best = cost[:, 0].copy()
    for _ in range(1, pieces):
        for j in range(m, 1, -1):  # downwards, so that best[i] is still that of one group less
            least = best[j]
            for i in range(1, j):
                least = min(least, best[i] + cost[j, i])
            best[j] = least
    out = np.empty(m, np.int64)
    for i in range(m):
        out[i] = -(best[i] + cost[m, i])
    return out
