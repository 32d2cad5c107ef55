"""Workloads: sets of range queries on a histogram. Public, and known before any record is read.

>>> dphist.workload.make_workload("ranges", dphist.Domain(dphist.Integers(0, 9))).size
55

A range [lo, hi) is the sum of the bins lo..hi-1. A workload is implicit where it is large: totals of error
over all n(n+1)/2 ranges cost one pass over the prefix sums of the error, and no range is ever listed.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.renamed import old_names, warn_renamed
from dphist.domain import MAX_BINS, MOST_BINS, Domain, as_int, shown
from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError, did_you_mean

Array: TypeAlias = NDArray[Any]
Block: TypeAlias = tuple[slice | Ints, slice | Ints]  # lows and highs among 0..n; one low may serve all
Kind: TypeAlias = Literal["points", "ranges", "prefixes"]
MAX_LISTED = 4096  # bins whose ranges, 8 million, are still listed one by one
MAX_SAMPLE = 10_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Workload(ABC):
    """A set of queries; one that occurs twice counts twice. Errors are values less truth, one per bin."""

    kind: ClassVar[str]
    n: int = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    size: int = field(init=False)  # how many queries there are

    @abstractmethod
    def cells(self) -> Iterator[Ints]:
        """Return the bins of each query in turn."""

    @abstractmethod
    def coverage(self) -> Floats:
        """Return how many queries contain each bin."""

    @abstractmethod
    def _sums(self, x: Array) -> Iterator[Array]: ...  # the answers in blocks, so that totals never hold all

    def answers(self, x: ArrayLike) -> Array:
        """Return every query's sum of x, in order; exact int64 for integers, else float64."""
        return np.concatenate(list(self._sums(self._bins(x))))

    def mean_answer(self, records: float) -> float:
        """Return the mean answer to a query, if so many records are spread evenly over all bins."""
        return records * float(self.coverage().sum()) / (self.n * self.size)

    def squared_error(self, errors: ArrayLike) -> float:
        """Return the squared error added over all queries."""
        return math.fsum(float(sums @ sums) for sums in self._sums(self._errors(errors)))

    def absolute_error(self, errors: ArrayLike) -> float:
        """Return the absolute error added over all queries."""
        return math.fsum(float(np.abs(sums).sum()) for sums in self._sums(self._errors(errors)))

    def max_absolute_error(self, errors: ArrayLike) -> float:
        """Return the largest absolute error of a query."""
        return max(float(np.abs(sums).max()) for sums in self._sums(self._errors(errors)))

    def mean_squared_error(self, errors: ArrayLike) -> float:
        """Return the squared error per query."""
        return self.squared_error(errors) / self.size

    def mean_absolute_error(self, errors: ArrayLike) -> float:
        """Return the absolute error per query."""
        return self.absolute_error(errors) / self.size

    def to_dict(self) -> dict[str, Any]:
        """Return the workload as plain values, ready for JSON."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return {"kind": self.kind, **{name: np.asarray(v).tolist() for name, v in given.items()}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.shape, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} queries, shape={self.shape})"

    def _errors(self, errors: ArrayLike) -> Floats:
        return self._bins(errors).astype(np.float64, copy=False)

    def _bins(self, x: ArrayLike) -> Array:
        a = np.asarray(x)
        if a.dtype.kind not in "biuf":
            raise UsageError(f"a workload adds up numbers, not {a.dtype}.")
        if a.shape not in ((self.n,), self.shape):
            raise UsageError(f"this workload is over {self.n} bins; what it was given has shape {a.shape}.")
        exact = a.dtype.kind != "f"
        floats = a.ravel().astype(np.float64)
        with np.errstate(over="ignore"):
            total = np.abs(floats).sum()
        if not total < (1 << 62 if exact else np.inf):
            raise UsageError("a workload adds up finite numbers, integers to less than 2**62; these are not.")
        return a.ravel().astype(np.int64) if exact else floats


@dataclass(frozen=True, eq=False, repr=False)
class LineWorkload(Workload):
    """A workload over the bins of one axis."""

    n: int

    def __post_init__(self) -> None:
        shape = _shape(self.n, axes=1)
        _set(self, n=shape[0], shape=shape, size=shape[0])

    @abstractmethod
    def _blocks(self) -> Iterator[Block]: ...

    def _sums(self, x: Array) -> Iterator[Array]:
        parts = _prefix(x)
        return (reduce(np.add, (p[hi] - p[lo] for p in parts)) for lo, hi in self._blocks())

    def pairs(self) -> tuple[Ints, Ints]:
        """Return every query's lo and hi, in the order of the answers."""
        at = np.arange(self.n + 1)
        lows, highs = zip(*(np.broadcast_arrays(at[lo], at[hi]) for lo, hi in self._blocks()), strict=True)
        return np.concatenate(lows), np.concatenate(highs)

    def some_pairs(self, most: int) -> tuple[Ints, Ints]:
        """Return every query's lo and hi; of more than ``most``, that many at even distances."""
        lo, hi = self.pairs()
        at = _evenly(self.size, most)
        return lo[at], hi[at]

    def cells(self) -> Iterator[Ints]:
        return (np.arange(lo, hi) for lo, hi in zip(*self.pairs(), strict=True))

    def coverage(self) -> Floats:
        steps, at = np.zeros(self.n + 1), np.arange(self.n + 1)
        for lo, hi in self._blocks():
            np.add.at(steps, at[lo], at[hi].size / at[lo].size)
            np.add.at(steps, at[hi], -1.0)
        return steps.cumsum()[:-1]


class Points(LineWorkload):
    """Every bin by itself: the identity."""

    kind = "points"

    def _blocks(self) -> Iterator[Block]:
        yield slice(0, self.n), slice(1, None)

    def _sums(self, x: Array) -> Iterator[Array]:
        yield x


class Prefixes(LineWorkload):
    """The ranges [0, j) for j = 1..n: the cumulative histogram."""

    kind = "prefixes"

    def _blocks(self) -> Iterator[Block]:
        yield slice(0, 1), slice(1, None)


class AllRanges(LineWorkload):
    """All n(n+1)/2 ranges, in order of lo, then hi."""

    kind = "all-ranges"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, size=self.n * (self.n + 1) // 2)

    def _blocks(self) -> Iterator[Block]:
        if self.n > MAX_LISTED:
            raise UsageError(
                f"{self.size} ranges are too many to list; use the totals (squared_error, absolute_error, "
                f"max_absolute_error), which list none, or a sample: random({self.n}, 2000)."
            )
        return ((slice(lo, lo + 1), slice(lo + 1, None)) for lo in range(self.n))

    def some_pairs(self, most: int) -> tuple[Ints, Ints]:
        at, lows = _evenly(self.size, most), np.arange(self.n)
        first = lows * (2 * self.n - lows + 1) // 2  # how many ranges begin further left
        lo = np.searchsorted(first, at, side="right") - 1
        return lo, at - first[lo] + lo + 1

    def coverage(self) -> Floats:
        return np.arange(1.0, self.n + 1) * np.arange(self.n, 0, -1.0)

    def _prefix_sums(self, errors: ArrayLike) -> Array:
        # A range's error is the difference of two of these n+1 numbers, and any two make a range.
        return reduce(np.add, _prefix(self._errors(errors)))

    def squared_error(self, errors: ArrayLike) -> float:
        """Return the squared error added over all ranges, in O(n)."""
        p = self._prefix_sums(errors)
        p = p - p.mean()  # so that the difference below does not cancel
        return float((self.n + 1) * (p @ p) - p.sum() ** 2)

    def absolute_error(self, errors: ArrayLike) -> float:
        """Return the absolute error added over all ranges, in O(n log n)."""
        # Above the i-th smallest p is a gap that i (n+1-i) pairs straddle: as many as ranges contain bin i.
        return float(np.diff(np.sort(self._prefix_sums(errors))) @ self.coverage())

    def max_absolute_error(self, errors: ArrayLike) -> float:
        """Return the largest absolute error of a range, in O(n)."""
        return float(np.ptp(self._prefix_sums(errors)))


@dataclass(frozen=True, eq=False, repr=False)
class RangesOfLength(LineWorkload):
    """All ranges of the given lengths, shortest first; lengths above n are left out."""

    kind = "ranges-of-length"
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = sorted(set(_wholes(self.lengths, "lengths").tolist()))
        kept = tuple(length for length in asked if length <= self.n)
        if not kept or asked[0] < 1:
            raise UsageError(f"ranges over {self.n} bins have 1 to {self.n} bins; the lengths were {asked}.")
        _set(self, lengths=kept, size=sum(self.n + 1 - length for length in kept))

    def _blocks(self) -> Iterator[Block]:
        return ((slice(0, self.n + 1 - length), slice(length, None)) for length in self.lengths)


@dataclass(frozen=True, eq=False, repr=False)
class Ranges(LineWorkload):
    """Given ranges, in the given order."""

    kind = "explicit"
    lo: Ints
    hi: Ints

    def __post_init__(self) -> None:
        super().__post_init__()
        lo, hi = _ends(self.lo, self.hi, self.n)
        _set(self, lo=lo, hi=hi, size=lo.size)

    def _blocks(self) -> Iterator[Block]:
        yield self.lo, self.hi


@dataclass(frozen=True, eq=False, repr=False)
class Rectangles(Workload):
    """Given rectangles [x0, x1) x [y0, y1) of a grid; x counts along its first axis, y along its second."""

    kind = "rectangles"
    shape: tuple[int, ...]
    x0: Ints
    x1: Ints
    y0: Ints
    y1: Ints

    def __post_init__(self) -> None:
        rows, columns = shape = _shape(self.shape, axes=2)
        (x0, x1), (y0, y1) = _ends(self.x0, self.x1, rows, "x in "), _ends(self.y0, self.y1, columns, "y in ")
        if x0.size != y0.size:
            raise UsageError(f"rectangles need as many ranges of x as of y, not {x0.size} and {y0.size}.")
        _set(self, shape=shape, n=rows * columns, size=x0.size, x0=x0, x1=x1, y0=y0, y1=y1)

    def _corners(self) -> Iterator[tuple[tuple[Ints, Ints], int]]:
        for x, sign in ((self.x1, 1), (self.x0, -1)):
            yield from (((x, self.y1), sign), ((x, self.y0), -sign))

    def _sums(self, x: Array) -> Iterator[Array]:
        parts = [q.T for p in _prefix(x.reshape(self.shape)) for q in _prefix(p.T)]
        yield reduce(np.add, (sign * p[at] for p in parts for at, sign in self._corners()))

    def cells(self) -> Iterator[Ints]:
        """Return the bins of each query in turn, numbered row by row."""
        columns = self.shape[1]
        for x0, x1, y0, y1 in zip(self.x0, self.x1, self.y0, self.y1, strict=True):
            yield (np.arange(x0, x1)[:, None] * columns + np.arange(y0, y1)).ravel()

    def coverage(self) -> Floats:
        """Return how many queries contain each bin, row by row."""
        steps = np.zeros([bins + 1 for bins in self.shape])
        for at, sign in self._corners():
            np.add.at(steps, at, sign)
        return steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1].ravel()


__getattr__ = old_names(globals(), points="Points", prefixes="Prefixes", all_ranges="AllRanges")


def small(n: int) -> RangesOfLength:
    """Return all ranges of 1 to 10 bins: SORTaki's small ranges."""
    return RangesOfLength(n, tuple(range(1, 11)))


def big(n: int) -> RangesOfLength:
    """Return all ranges of 100, 200, ..., 1000 bins: SORTaki's big ranges."""
    return RangesOfLength(n, tuple(range(100, 1001, 100)))


def fraction(n: int, percent: float) -> RangesOfLength:
    """Return all ranges that span a percentage of the bins, rounded, and at least one bin."""
    if not isinstance(percent, int | float) or not 0 < percent <= 100:
        raise UsageError(f"a percentage of the bins must be above 0 and at most 100, not {shown(percent)}.")
    return RangesOfLength(n, (max(1, round(as_int(n, "n") * percent / 100)),))


def explicit(n: int, pairs: Iterable[Sequence[int]]) -> Ranges:
    """Return the ranges that pairs (lo, hi) of bin numbers spell out, hi exclusive."""
    if isinstance(pairs, str) or not isinstance(pairs, Iterable) or getattr(pairs, "ndim", 1) == 0:
        raise UsageError(f"queries must be a list of pairs (lo, hi), not {shown(pairs)}.")
    listed = [tuple(pair) if isinstance(pair, Sequence | np.ndarray) else (pair,) for pair in pairs]
    for i, pair in enumerate(listed):
        if len(pair) != 2:
            raise UsageError(f"queries[{i}] must be a pair (lo, hi) of bin numbers.")
    return Ranges(n, *([pair[end] for pair in listed] for end in (0, 1)))  # type: ignore[arg-type]


def random(n: int, m: int = 2000, *, draw: int = 0) -> Ranges:
    """Return m ranges whose first and last bins are two uniform bins in order."""
    first, last = _uniform_ends(_words(f"random {n}", m, 2, draw), n)
    return Ranges(n, first, last)


def clustered(n: int, m: int = 2000, *, centers: int = 5, sd: float = 256, draw: int = 0) -> Ranges:
    """Return DAWA's clustered ranges, equally many about each of some uniform centres.

    About a centre c they run from c - |X| to c + |Y|, X and Y normal, and end where the domain ends.
    """
    if not isinstance(sd, int | float) or not 0 < sd <= MAX_BINS:
        raise UsageError(f"sd must be a positive number of bins, not {shown(sd)}.")
    (n,) = _shape(n, axes=1)
    uniform = (_words(f"clustered {n}", m, 2, draw) >> 11) * 2.0**-53
    radius, angle = sd * np.sqrt(-2 * np.log1p(-uniform[0])), 2 * np.pi * uniform[1]  # Box and Muller's
    left, right = (np.abs(radius * turn).astype(np.int64) for turn in (np.cos(angle), np.sin(angle)))
    centre = np.resize((_words(f"centers {n}", centers, 1, draw) % n).astype(np.int64), m)
    return Ranges(n, np.maximum(centre - left, 0), np.minimum(centre + right + 1, n))


def random_rectangles(shape: Sequence[int], m: int = 2000, *, draw: int = 0) -> Rectangles:
    """Return m rectangles, of uniform first and last bins along either axis."""
    rows, columns = grid = _shape(shape, axes=2)
    words = _words(f"rectangles {rows} {columns}", m, 4, draw)
    return Rectangles(grid, *_uniform_ends(words[:2], rows), *_uniform_ends(words[2:], columns))


_NAMED: dict[str, Callable[[int], Workload]] = {
    "points": Points,
    "prefixes": Prefixes,
    "ranges": AllRanges,
    "small": small,
    "big": big,
}
_OLD = {"identity": "points", "all-ranges": "ranges"}  # names that go with the next version
_SAMPLED: dict[str, Callable[..., Workload]] = {
    "random": random,
    "clustered": clustered,
    "large-clustered": partial(clustered, sd=1024),
    "rectangles": random_rectangles,
}


def make_workload(spec: Any, over: Domain | int | Sequence[int]) -> Workload:
    """Return the workload over a domain (or shape) that a name, pairs (lo, hi) or a workload describe.

    After ``random`` and the like may follow how many queries, and which public sample: ``random:2000:1``.
    """
    shape = over.shape if isinstance(over, Domain) else _shape(over)
    n = math.prod(shape)
    if isinstance(spec, str) and spec in _OLD:
        warn_renamed(f"the workload {spec!r}", repr(_OLD[spec]))
        spec = _OLD[spec]
    name, *rest = spec.split(":") if isinstance(spec, str) else [""]
    if isinstance(spec, str) and name not in _NAMED | _SAMPLED:
        raise UsageError(f"there is no workload {name!r}. {did_you_mean(name, _NAMED | _SAMPLED)}")
    fits_grids = isinstance(spec, Points | Rectangles) or name in ("points", "rectangles")
    if len(shape) > 1 and not fits_grids:
        raise UsageError("ranges have one axis, and this domain is a grid: use rectangles, or points.")
    if len(rest) > 2 * (name in _SAMPLED) or not all(number.isdecimal() for number in rest):
        raise UsageError(f"the workload {spec!r} is not understood; {_forms()}.")
    if n > MAX_BINS and not (name in ("points", "prefixes", "ranges") if name else True):
        raise UsageError(
            f"a workload over {n:,} bins is points, prefixes, ranges, or pairs of bins; not {name}."
        )
    if name in _SAMPLED:
        first = shape if name == "rectangles" else n
        made = _SAMPLED[name](first, *map(int, rest[:1]), draw=int(rest[1]) if rest[1:] else 0)
    elif name:
        made = _NAMED[name](n)
    else:
        made = spec if isinstance(spec, Workload) else explicit(n, spec)
    if made.n != n or (made.shape != shape and not isinstance(made, Points)):
        raise UsageError(
            f"the workload has the shape {made.shape} and the domain {shape}; make it for this domain."
        )
    return made


def _forms() -> str:
    """Return how a workload can be named, for an error."""
    sampled = ", ".join(f"{name}:2000" for name in _SAMPLED)
    return f"write {', '.join(_NAMED)}, or how many are drawn at random: {sampled}"


def workload_from_dict(described: dict[str, Any]) -> Workload:
    """Return the workload that ``to_dict`` described."""
    kinds = {c.kind: c for c in (Points, Prefixes, AllRanges, RangesOfLength, Ranges, Rectangles)}
    given = dict(described)
    kind = given.pop("kind", None)
    try:
        return kinds[kind](**given)
    except (KeyError, TypeError) as e:
        raise UsageError(f"a workload of kind {kind!r} cannot be read; it may be of a later version.") from e


def _set(workload: Workload, **derived: object) -> None:
    for name, value in derived.items():
        object.__setattr__(workload, name, value)


def _shape(over: object, axes: int | None = None) -> tuple[int, ...]:
    shape = tuple(as_int(v, "a number of bins") for v in (over if isinstance(over, Sequence) else [over]))
    if len(shape) not in ((1, 2) if axes is None else (axes,)):
        take = {1: "ranges, prefixes or points", 2: "rectangles or points"}.get(
            len(shape), "bins of one or two"
        )
        raise UsageError(
            f"ranges and prefixes need bins of one axis and rectangles a grid of two. These bins, {shape}, "
            f"have {len(shape)}: take {take}."
        )
    if min(shape) < 1 or math.prod(shape) > MOST_BINS:
        raise UsageError(f"a workload is over 1 to {MOST_BINS} bins, not {shape}.")
    return shape


def _wholes(values: object, name: str) -> Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    listed = np.atleast_1d(np.asarray(values, dtype=object)).tolist()  # as they are: 2.5 and 10**30 too
    return np.array([as_int(v, f"{name}[{i}]") for i, v in enumerate(listed)], dtype=object)


def _ends(lo: Ints, hi: Ints, n: int, axis: str = "") -> tuple[Ints, Ints]:
    a, b = _wholes(lo, "queries"), _wholes(hi, "queries")
    if a.ndim != 1 or a.shape != b.shape or not a.size:
        raise UsageError(f"a workload needs queries, as many lows as highs, not {a.shape} and {b.shape}.")
    wrong = (a < 0) | (b > n) | (a >= b)
    if wrong.any():
        i = int(np.argmax(wrong))
        found = f"queries[{i}] is {axis}[{a[i]}, {b[i]})"
        raise UsageError(f"{found}; ends must increase and lie in 0..{n}, and the high end is exclusive.")
    a, b = a.astype(np.int64), b.astype(np.int64)
    a.flags.writeable = b.flags.writeable = False
    return a, b


def _evenly(size: int, most: int) -> Ints:
    """Return the numbers below ``size``, or ``most`` of them at even distances."""
    if size <= most:
        return np.arange(size)
    at: Ints = np.floor((np.arange(most) + 0.5) * (size / most)).astype(np.int64)
    return at


def _prefix(x: Array) -> list[Array]:
    """Return arrays that add up to the sums of x[:0], x[:1], ..., x[:n] along the first axis.

    Integers are exact. For floats the second array holds what rounding took from the first (Knuth's
    two-sum), so that a short range between large prefix sums keeps its digits.
    """
    p = np.zeros((x.shape[0] + 1, *x.shape[1:]), dtype=x.dtype)
    np.cumsum(x, axis=0, out=p[1:])
    if x.dtype.kind != "f":
        return [p]
    step = p[1:] - p[:-1]
    lost = np.zeros_like(p)
    np.cumsum((p[:-1] - (p[1:] - step)) + (x - step), axis=0, out=lost[1:])
    return [p, lost]


def _words(label: str, m: int, width: int, draw: int) -> NDArray[np.uint64]:
    """Return uniform 64-bit words, one row for each of the width numbers that a query takes."""
    # Public samples, the same everywhere and for everyone: no noise is made of them and nothing is hidden.
    if not 1 <= as_int(m, "a sample's size") <= MAX_SAMPLE:
        raise UsageError(f"a sample has 1 to {MAX_SAMPLE} queries, not {m}.")
    label = f"dphist workload {label} {as_int(draw, 'draw')}"
    digest = hashlib.shake_128(label.encode()).digest(8 * m * width)
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64).reshape(m, width).T


def _uniform_ends(words: NDArray[np.uint64], n: int) -> tuple[Ints, Ints]:
    first, last = np.sort(words % _shape(n, axes=1)[0], axis=0).astype(np.int64)  # n < 2**27: bias < 2**-37
    return first, last + 1


def kind_of(workload: Workload) -> Kind:
    """Return which kind of queries a workload asks most like: points, ranges or prefixes."""
    if isinstance(workload, Points):
        return "points"
    covered = workload.coverage().ravel()
    # Measured: with 32 bins in a query the methods for points and for ranges are equally good.
    if covered.sum() <= max(1.0, min(32.0, workload.n / 8)) * workload.size:
        return "points"
    if len(workload.shape) == 1 and 2 * max(covered[0], covered[-1]) > workload.size:
        return "prefixes"  # every other query begins or ends where the domain does
    return "ranges"
