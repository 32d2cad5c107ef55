"""Every query on exact counts that is an object: linear queries and scores, each with its proof.

`Curator.measure_linear` accepts the types that the union ``Linear`` names, `Curator.choose` those of
``Score``; no other type, no subclass and no look-alike is ever handed a count. Each class proves its
sensitivity in its docstring. The proofs share these facts:

* Neighbouring counts differ by one record, which adds 1 to the count of one bin. A unit of D records is D
  such steps, so the curator multiplies the sensitivity by D.
* Parameters are public. They are copied, checked and made read-only when the object is made; the sensitivity
  is computed from them by the class and cannot be passed in. The curator makes every object anew from its
  parameters before it is handed a count, so that what was changed since is checked again.
* The answers are a function of the parameters and the counts alone, and nothing is stored.
* Cutting a number off at public ends, min(max(a, low), high), is 1-Lipschitz: it moves no further than
  before. Answers that could exceed 2^61 are cut off there, so that no sum wraps around.
* Where ``order`` is given, the bins are first put into that order. It names every bin exactly once, so a
  record still adds 1 to one count.

This module imports numba with the loops that it calls: import it where it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias, TypeVar, get_args

import numpy as np

from dphist.domain import as_int
from dphist.domain.groups import Groups, Ints, frozen
from dphist.errors import PrivacyError, UsageError
from dphist.kernels.partition import cuts, deviations
from dphist.kernels.transforms import fourier, haar, weights
from dphist.kernels.trees import hats

_CEILING = 1 << 61
_Query = TypeVar("_Query")

# --- linear queries: fixed whole-number weights; the sensitivity is the worst bin's sum of |weights|


@dataclass(frozen=True, eq=False, slots=True)
class OnGroups:
    """Linear queries over the totals of a partition's groups, in its order.

    Sensitivity: a record lies in one group and adds 1 to its total, so the answers move by what they move
    when one cell of the inner queries rises by 1.
    """

    inner: Linear
    groups: Groups

    def __post_init__(self) -> None:
        _set(self, "inner", admitted(self.inner, LINEAR))
        _check_groups(self.groups, self.inner.n)

    @property
    def n(self) -> int:
        return self.groups.n

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def sensitivity(self) -> int:
        """That of the inner queries."""
        return self.inner.sensitivity

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers."""
        return self.inner(self.groups.totals(counts))


@dataclass(frozen=True, eq=False, slots=True)
class Multiples:
    """Every cell times one whole number, so that noise in steps of 1 is in steps of 1/weight of a record.

    Sensitivity: a record adds 1 to one cell and so moves one answer by ``weight``. Counts above 2^61/weight
    are cut off there.
    """

    n: int
    weight: int

    def __post_init__(self) -> None:
        _set(self, "n", _at_least(1, self.n, "the number of cells"))
        _set(self, "weight", _at_least(1, self.weight, "the weight"))

    @property
    def size(self) -> int:
        return self.n

    @property
    def sensitivity(self) -> int:
        """The weight."""
        return self.weight

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers: O(n)."""
        return np.minimum(counts, _CEILING // self.weight) * self.weight


@dataclass(frozen=True, eq=False, slots=True)
class Haar:
    """The total and, at every node of a binary tree, the left half less the right half (Privelet).

    Privelet's coefficient is that difference over the node's size, with noise of scale 1/size: the weights of
    the published levels and the sizes cancel, so every weight here is 1 or -1 and nothing is rounded. On a
    grid the columns are transformed, then the rows. No answer exceeds the total of the counts, below 2^62.

    Sensitivity: a cell of a line is in the total and in the difference of every node above it, with weight 1
    or -1: 1 + its depth. A query of a grid is a query of the rows times one of the columns, so a cell's sum
    of |weights| is the product of those of its row and its column.
    """

    rows: int
    columns: int = 1

    def __post_init__(self) -> None:
        _set(self, "rows", _at_least(1, self.rows, "the number of rows"))
        _set(self, "columns", _at_least(1, self.columns, "the number of columns"))

    @property
    def n(self) -> int:
        return self.rows * self.columns

    @property
    def size(self) -> int:
        return self.n

    @property
    def sensitivity(self) -> int:
        """That of the deepest cell, counted on the trees of both axes."""
        rows, columns = (1 + int(haar.leaf_depths(k).max()) for k in (self.rows, self.columns))
        return rows * columns

    def __call__(self, counts: Ints) -> Ints:
        """Return the exact answers: O(n) per axis."""
        return haar.haar_answers(counts.reshape(self.rows, self.columns))


@dataclass(frozen=True, eq=False, slots=True)
class Fourier:
    """Cosine and sine sums of the lowest frequencies 0, 1, ..., with weights rounded to whole numbers.

    Sensitivity: a record in cell j moves every sum by its weight of j, a rounded cosine or sine; the
    |weights| of each cell are added up from the very table that answers.

    Args:
        n: the number of cells.
        frequencies: how many, from 0; at most n // 2 + 1.
        weight: of a cosine of 1; rounding puts every weight off by at most a half.
    """

    n: int
    frequencies: int
    weight: int

    def __post_init__(self) -> None:
        _set(self, "n", _at_least(1, self.n, "the number of cells"))
        _set(self, "frequencies", as_int(self.frequencies, "the number of frequencies"))
        _set(self, "weight", as_int(self.weight, "the weight"))
        most = fourier.most_frequencies(self.n)
        if not 1 <= self.frequencies <= most or not 1 <= self.weight <= fourier.MOST_WEIGHT:
            raise UsageError("Fourier sums need 1 to n // 2 + 1 frequencies, and weights of 1 to 2**16.")

    @property
    def size(self) -> int:
        return self.frequencies + fourier.sine_count(self.n, self.frequencies)

    @property
    def sensitivity(self) -> int:
        """The worst cell's sum of |weights|."""
        return int(fourier.column_sums(self.n, self.frequencies, self.weight).max())

    @property
    def length_sensitivity(self) -> int:
        """At least how far a record moves the square root of the energies' sum, a whole number.

        That root is the Euclidean length of the vector of all sums, in which every frequency but the first
        occurs twice at most. A record moves the vector by its cell's weights, whose squared length is at most
        2 frequencies - 1 times the largest cosine^2 + sine^2 of the table; by the triangle inequality the
        vector's length moves no further. The root is rounded up.
        """
        cosines, sines = (table.astype(np.int64) for table in fourier.tables(self.n, self.weight))
        most = int((cosines**2 + sines**2).max())
        return math.isqrt(most * (2 * self.frequencies - 1) - 1) + 1

    def __call__(self, counts: Ints) -> Ints:
        """Return the answers, cut off at +-2^61: O(n frequencies)."""
        return fourier.fourier_answers(counts, self.frequencies, self.weight)


@dataclass(frozen=True, eq=False, slots=True)
class Boxes:
    """Sums over the boxes [x0, x1) x [y0, y1) of a grid whose cells are numbered row by row.

    Sensitivity: a record moves the sum of every box that contains its cell by 1; how many those are is
    counted for every cell.
    """

    shape: tuple[int, int]
    x0: Ints
    x1: Ints
    y0: Ints
    y1: Ints

    def __post_init__(self) -> None:
        rows, columns = (_at_least(1, k, "a side of the grid") for k in self.shape)
        _set(self, "shape", (rows, columns))
        for name in ("x0", "x1", "y0", "y1"):
            _set(self, name, _ints(getattr(self, name), "the sides of boxes"))
        x0, x1, y0, y1 = self.sides
        one_size = x0.shape == x1.shape == y0.shape == y1.shape != (0,)
        if not (one_size and _rise(x0, x1, rows) and _rise(y0, y1, columns)):
            raise UsageError(f"boxes have sides that rise inside a grid of {rows} by {columns} cells.")

    @classmethod
    def ranges(cls, n: int, lo: Ints, hi: Ints) -> Boxes:
        """Return the ranges [lo, hi) of a line."""
        return cls((n, 1), lo, hi, np.zeros_like(lo), np.ones_like(lo))

    @property
    def sides(self) -> weights.Sides:
        """The four sides of every box."""
        return self.x0, self.x1, self.y0, self.y1

    @property
    def n(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def size(self) -> int:
        return self.x0.size

    @property
    def sensitivity(self) -> int:
        """How many boxes contain the cell that is in most."""
        return int(weights.box_cover(self.shape, self.sides).max())

    def take(self, which: list[int]) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.shape, *(side[which] for side in self.sides))

    def __call__(self, counts: Ints) -> Ints:
        """Return every box's sum, exactly."""
        exact: Ints = weights.box_sums(counts.reshape(self.shape), self.sides)
        return exact


@dataclass(frozen=True, eq=False, slots=True)
class Hats:
    """Every bin by itself and overlapping triangles over the bins, for all ranges or all prefixes.

    Of a grid, every query of the rows times every one of the columns; for ``rectangles``, every cell by
    itself and overlapping pyramids over the cells, which are a line to these.

    Sensitivity: a record in a bin moves the bin's own answer and those of the triangles or pyramids over it,
    each by its weight there; the |weights| of every bin are added up from the very arrays that answer. Of a
    grid without pyramids, it moves a product by the weight of its row times that of its column, so all by the
    product of these sums.

    Args:
        n: the number of bins.
        queries: what the triangles are fitted to: ``all-ranges``, ``prefixes`` or ``points``; of a grid also
            ``rectangles``.
        columns: of the grid whose cells the bins are, row by row; 1 for a line.
    """

    n: int
    queries: str
    columns: int = 1

    def __post_init__(self) -> None:
        _set(self, "n", _at_least(1, self.n, "the number of bins"))
        _set(self, "queries", str(self.queries))
        _set(self, "columns", _at_least(1, self.columns, "the number of columns"))
        if self.n % self.columns:
            raise UsageError(f"{self.n} cells are no grid of {self.columns} columns.")
        self._sides()  # refuses queries without a hat decomposition

    def _sides(self) -> tuple[hats.HatShape, ...]:
        return hats.sides_of(self.n // self.columns, self.columns, self.queries)

    @property
    def size(self) -> int:
        return math.prod(side.size for side in self._sides())

    @property
    def sensitivity(self) -> int:
        """The worst bin's sum of |weights|; of products, the worst row's times the worst column's."""
        return math.prod(int(hats.column_sums(side).max()) for side in self._sides())

    def __call__(self, counts: Ints) -> Ints:
        """Return the answers, cut off at +-2^61: O(n) for each level."""
        return hats.apply_hats(self._sides(), counts)


# --- scores: a whole number per candidate, the more the better; the sensitivity bounds the change of each


@dataclass(frozen=True, eq=False, slots=True)
class Cuts:
    """P-HP: stay with a partition, or cut one of its groups in two: minus the absolute error that results.

    Sensitivity 1: a group costs the sum of its bins' distances from their median. With any fixed centre a
    record moves one distance by 1, hence the sum by at most 1, and so it moves the least sum over all
    centres, which the median attains. Each candidate is a partition, and a record lies in one of its groups.
    The penalty is public, and a group's cost is cut off at a public cap.

    Args:
        starts: where the groups of the partition so far begin and, last, n.
        penalty: what a further group costs.
        order: of the bins; None is the domain's.
    """

    sensitivity: ClassVar[int] = 1
    starts: Ints
    penalty: int
    order: Ints | None = None

    def __post_init__(self) -> None:
        _set(self, "starts", _rising(self.starts, "a partition's starts"))
        _set(self, "penalty", min(_at_least(0, self.penalty, "the penalty"), 1 << 60))
        _set(self, "order", _order(self.order, self.n))

    @property
    def n(self) -> int:
        return int(self.starts[-1])

    @property
    def size(self) -> int:
        """How many candidates there are: staying, then a cut before bin 1, ..., n - 1."""
        return self.n

    def __call__(self, counts: Ints) -> Ints:
        """Return minus the cost of every candidate: O(n log n)."""
        return -cuts.cut_costs(_ordered(counts, self.order), self.starts, self.penalty)


@dataclass(frozen=True, eq=False, slots=True)
class LastCut:
    """StructureFirst: where the last group begins, if the groups before it are the best that there are.

    A candidate's score is minus the least cost of the bins before it in at most ``pieces`` groups, and of one
    group from it to ``end``; costs are those of `Cuts`.

    Sensitivity 1: a record moves the cost of every fixed partition by at most 1 (see `Cuts`), and so it moves
    the least over partitions. Candidates from ``end`` on have a constant score that never wins.

    Args:
        edges: the places where groups may begin, from 0, and, last, n.
        end: up to which of them.
        pieces: how many groups may lie before the last.
        order: of the bins; None is the domain's.
    """

    sensitivity: ClassVar[int] = 1
    edges: Ints
    end: int
    pieces: int
    order: Ints | None = None

    def __post_init__(self) -> None:
        _set(self, "edges", _rising(self.edges, "the places of boundaries"))
        _set(self, "end", _at_least(0, self.end, "the end"))
        _set(self, "pieces", _at_least(1, self.pieces, "the number of groups"))
        _set(self, "order", _order(self.order, self.n))
        if self.end >= self.edges.size:
            raise UsageError(f"the end is one of {self.edges.size} places, not number {self.end}.")

    @property
    def n(self) -> int:
        return int(self.edges[-1])

    @property
    def size(self) -> int:
        return self.edges.size - 1

    def __call__(self, counts: Ints) -> Ints:
        """Return the scores: O(n places + pieces places^2)."""
        out = np.full(self.size, -_CEILING, np.int64)
        x = _ordered(counts, self.order)
        out[: self.end] = -cuts.last_cut_costs(x, self.edges[: self.end + 1], self.pieces)
        return out


@dataclass(frozen=True, eq=False, slots=True)
class Medians:
    """Hybrid trees: where to cut a box of a grid into parts of equal totals: minus the difference.

    Sensitivity 1: a record is in one of the two parts or in neither, and moves their difference by at most 1.

    Args:
        shape: of the grid.
        box: first row, last row + 1, first column, last column + 1.
        axis: whether rows (0) or columns (1) are parted; the side has at least two cells.
    """

    sensitivity: ClassVar[int] = 1
    shape: tuple[int, int]
    box: tuple[int, int, int, int]
    axis: int

    def __post_init__(self) -> None:
        rows, columns = (_at_least(1, k, "a side of the grid") for k in self.shape)
        r0, r1, c0, c1 = (_at_least(0, side, "a side of the box") for side in self.box)
        _set(self, "shape", (rows, columns))
        _set(self, "box", (r0, r1, c0, c1))
        _set(self, "axis", as_int(self.axis, "the axis"))
        inside = r0 < r1 <= rows and c0 < c1 <= columns
        if not inside or self.axis not in (0, 1) or self.size < 1:
            raise UsageError("a box lies inside its grid, and the side that is parted has two cells or more.")

    @property
    def n(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def size(self) -> int:
        return self.box[2 * self.axis + 1] - self.box[2 * self.axis] - 1

    def __call__(self, counts: Ints) -> Ints:
        """Return minus |one part - the other| for a cut after the first, second, ... line."""
        r0, r1, c0, c1 = self.box
        lines = counts.reshape(self.shape)[r0:r1, c0:c1].sum(axis=1 - self.axis)
        before = np.cumsum(lines)
        gap: Ints = np.abs(before[:-1] - (before[-1] - before[:-1]))
        return -gap


@dataclass(frozen=True, eq=False, slots=True)
class Dropped:
    """EFPA: minus the square root of what dropping the higher frequencies loses plus what the kept ones cost.

    Sensitivity: what is lost is a sum of squares of linear answers, the cost a public constant. Together they
    are the squared length of a vector, of which a record moves the dropped answers only: by at most
    `Fourier.length_sensitivity`, and so the length by no more. That is a whole number, so rounding both
    lengths down keeps it, and the length is cut off at 2^61.

    Args:
        sums: of all the frequencies that may be kept.
        noise: what keeping 1, 2, ... of them would add, in the units of the squared sums.
        groups: the cells of the sums.
    """

    sums: Fourier
    noise: tuple[int, ...]
    groups: Groups

    def __post_init__(self) -> None:
        _set(self, "sums", admitted(self.sums, (Fourier,)))
        _set(self, "noise", tuple(_at_least(0, v, "the cost of noise") for v in self.noise))
        _check_groups(self.groups, self.sums.n)
        if len(self.noise) != self.size:
            raise UsageError(f"{self.size} numbers of frequencies need as many costs, not {len(self.noise)}.")

    @property
    def n(self) -> int:
        return self.groups.n

    @property
    def size(self) -> int:
        """How many candidates there are: keep 1, 2, ... of the frequencies."""
        return self.sums.frequencies

    @property
    def sensitivity(self) -> int:
        """How far a record moves the length of the vector of all sums."""
        return self.sums.length_sensitivity

    def __call__(self, counts: Ints) -> Ints:
        """Return the scores in exact integer arithmetic."""
        lost = fourier.energies(self.sums(self.groups.totals(counts)), self.sums.frequencies)
        scores = np.empty(len(lost), np.int64)
        rest = 0
        for kept in range(len(lost), 0, -1):  # from all down to one
            scores[kept - 1] = -min(math.isqrt(rest + self.noise[kept - 1]), _CEILING)
            rest += lost[kept - 1]
        return scores


@dataclass(frozen=True, eq=False, slots=True)
class WorstAnswered:
    """MWEM: how far each box's sum is from a public answer to it.

    Sensitivity 1: a record moves a box's sum by at most 1, and so its distance from a fixed number.
    """

    sensitivity: ClassVar[int] = 1
    boxes: Boxes
    answers: Ints
    groups: Groups

    def __post_init__(self) -> None:
        _set(self, "boxes", admitted(self.boxes, (Boxes,)))
        _set(self, "answers", frozen(np.clip(_ints(self.answers, "the answers"), -_CEILING, _CEILING)))
        _check_groups(self.groups, self.boxes.n)
        if self.answers.size != self.boxes.size:
            raise UsageError(f"{self.boxes.size} boxes need as many answers, not {self.answers.size}.")

    @property
    def n(self) -> int:
        return self.groups.n

    @property
    def size(self) -> int:
        return self.boxes.size

    def __call__(self, counts: Ints) -> Ints:
        """Return the distances."""
        distance: Ints = np.abs(self.boxes(self.groups.totals(counts)) - self.answers)
        return distance


@dataclass(frozen=True, eq=False, slots=True)
class Roughness:
    """Whether the blocks of 16 bins are rough: candidate 0 if they are, 1 if they are not.

    A block's roughness is the sum of its bins' distances from their median, at most ``cap``. Together the
    blocks are rough at a public part of the most that they could be. Or runs of bins are looked at, a power
    of 4 of them in a block, whose quarters are compared, and quarters of these, and so on: the block is as
    rough as the roughest of these levels, each divided by how many it compares (`deviations.block_costs`).

    Sensitivity 1: a record adds 1 to the total of one bin or run, and so moves the sum of distances of its
    block by at most 1, on every level (see `Cuts`), and no other block's. So it does a whole part of such a
    sum, rounded down, and the greatest of some of them. The other score is as far below that part as this one
    is above it, so that it moves as much, the other way: the question has half the noise that a constant
    would give it.

    Args:
        n: the number of bins.
        cap: differences above this number of records count as this number.
        order: of the bins; None is the domain's.
        percent: of the most that they could be, from which on blocks are rough.
        starts: where runs of bins begin, and n; None for single bins.
        block: how many bins or runs are a block; what is left over is not looked at.
    """

    sensitivity: ClassVar[int] = 1
    n: int
    cap: int
    order: Ints | None = None
    percent: int = 75
    starts: Ints | None = None
    block: int = 16

    def __post_init__(self) -> None:
        _set(self, "n", _at_least(1, self.n, "the number of bins"))
        _set(self, "cap", min(_at_least(1, self.cap, "the cap"), 1 << 38))
        _set(self, "order", _order(self.order, self.n))
        _set(self, "percent", min(_at_least(1, self.percent, "the percentage"), 100))
        if self.starts is not None:
            _set(self, "starts", _rising(self.starts, "the starts of runs"))
            if self.starts[-1] != self.n:
                raise UsageError(f"the runs are of {self.starts[-1]} bins, not of {self.n}.")
        _set(self, "block", _at_least(2, self.block, "the size of a block"))

    @property
    def size(self) -> int:
        return 2

    def __call__(self, counts: Ints) -> Ints:
        """Return the roughness of all blocks together, and what mirrors it at the bar."""
        x = _ordered(counts, self.order)
        x = x if self.starts is None else np.add.reduceat(x, self.starts[:-1])
        size = min(self.block, x.size)
        costs = np.minimum(deviations.block_costs(x, size, nested=self.starts is not None), self.cap)
        found, bar = int(costs.sum()), self.percent * costs.size * self.cap // 100
        return np.array([found, 2 * bar - found])


# --- the seal: what is not named here is handed no count

Linear: TypeAlias = OnGroups | Multiples | Haar | Fourier | Boxes | Hats
Score: TypeAlias = Cuts | LastCut | Medians | Dropped | WorstAnswered | Roughness
LINEAR: tuple[type, ...] = get_args(Linear)
SCORES: tuple[type, ...] = get_args(Score)


def admitted(query: _Query, kinds: tuple[type, ...]) -> _Query:
    """Return a query made anew from its public parameters; refuse what is exactly none of these types."""
    if not any(type(query) is kind for kind in kinds):  # by identity: a type can claim to equal another
        raise PrivacyError(
            f"a {type(query).__name__} is handed no counts: declare it in dphist.privacy.queries and prove "
            f"its sensitivity there, or use one of {', '.join(kind.__name__ for kind in kinds)}."
        )
    parameters = {f.name: getattr(query, f.name) for f in fields(query)}  # type: ignore[arg-type]
    return type(query)(**parameters)


def _set(query: object, name: str, value: object) -> None:
    object.__setattr__(query, name, value)  # frozen for everybody else


def _at_least(least: int, value: object, name: str) -> int:
    number = as_int(value, name)
    if number < least:
        raise UsageError(f"{name} must be at least {least}, not {number}.")
    return number


def _ints(values: Ints, name: str) -> Ints:
    given = np.asarray(values)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise UsageError(f"{name} must be a row of whole numbers.")
    return frozen(np.array(given, dtype=np.int64))


def _rise(low: Ints, high: Ints, end: int) -> bool:
    return bool((low >= 0).all() and (low < high).all() and (high <= end).all())


def _rising(values: Ints, name: str) -> Ints:
    found = _ints(values, name)
    if found.size < 2 or found[0] != 0 or not (found[1:] > found[:-1]).all():
        raise UsageError(f"{name} must increase from 0 to the number of bins.")
    return found


def _order(order: Ints | None, n: int) -> Ints | None:
    """Return an order of n bins; one that names a bin twice would double what a record moves."""
    return None if order is None else Groups(np.array([0, n]), order).order


def _ordered(counts: Ints, order: Ints | None) -> Ints:
    return counts if order is None else counts[order]


def _check_groups(groups: Groups, cells: int) -> None:
    # A subclass would be handed the exact counts, and could return anything as their totals.
    if type(groups) is not Groups:
        raise PrivacyError(f"groups must be a Groups, not a {type(groups).__name__}.")
    if groups.k != cells:
        raise UsageError(f"the queries are over {cells} cells and the partition has {groups.k} groups.")
