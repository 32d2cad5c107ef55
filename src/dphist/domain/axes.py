"""Axes, which define the bins: declared before any record is read, public and immutable.

Five kinds of axis, the last of them in `instants`; a `domain` has one or two:

* ``Regular(lo=0, hi=120, bins=12)`` and ``Variable([0, 18, 65, 120])``: numpy's bins: bin i is
  [edge i, edge i+1), the last one closed on both sides;
* ``Integers(low, high)``: one bin per integer, both ends included;
* ``Categories(labels)``: one bin per declared label, with optional last bins for all others and for nulls;
* ``Instants("2024-01-01", "2025-01-01", freq="1mo")``: one bin per hour, day, month, ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.groups import frozen
from dphist.errors import PrivacyError, UsageError

Outside: TypeAlias = Literal["drop", "clip"]
MAX_BINS = 1 << 27  # what is held bin by bin: counts of 2**27 bins take 1 GiB
MOST_BINS = 1 << 62  # what is held by the bins that are not empty; a number of a bin fits int64
_OTHER, _NULL = "(other)", "(null)"  # what these bins are called if they have no other name
_LOOKED_UP = 1 << 16  # labels of which a dictionary is made for a single question
_FEW = 3  # up to this many values are written by hand; more could be records passed by mistake


@dataclass(frozen=True, kw_only=True)
class Regular:
    """Equal bins, with exactly the edges of ``numpy.linspace(lo, hi, bins + 1)``.

    >>> axis = dphist.Regular(lo=0, hi=120, bins=12)
    >>> axis.n, axis.names()[-1]
    (12, '[110, 120]')
    """

    kind: ClassVar[str] = "regular"
    lo: float
    hi: float
    bins: int

    def __post_init__(self) -> None:
        lo, hi = as_number(self.lo, "the range's low end"), as_number(self.hi, "the range's high end")
        bins = as_int(self.bins, "bins")
        if bins < 1:
            raise UsageError(f"bins must be at least 1, not {bins}.")
        check_size(bins)
        if not lo < hi:
            raise UsageError(f"range must increase: {lo!r} is not below {hi!r}. Give the smaller end first.")
        if not math.isfinite(hi - lo):
            raise UsageError(f"the range {lo!r} to {hi!r} is too wide for double precision.")
        # Neighbouring edges must differ after rounding; twice the coarsest spacing is enough.
        if (hi - lo) / bins <= 2 * math.ulp(max(abs(lo), abs(hi))):
            raise UsageError(f"{bins} bins between {lo!r} and {hi!r} are finer than double precision.")
        for name, value in (("lo", lo), ("hi", hi), ("bins", bins)):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        return self.bins

    @property
    def step(self) -> float:
        """The width of a bin: edge i is the double ``lo + i * step``, the last one ``hi``."""
        return (self.hi - self.lo) / self.bins

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        return frozen(np.linspace(self.lo, self.hi, self.bins + 1))

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        return _index(self.edges, values, outside)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "lo": self.lo, "hi": self.hi, "bins": self.bins}

    def names(self) -> list[str]:
        return _interval_names(self.edges)


@dataclass(frozen=True, eq=False)
class Variable:
    """Bins between increasing edges.

    >>> dphist.Variable([0, 18, 65, 120]).names()
    ['[0, 18)', '[18, 65)', '[65, 120]']
    """

    kind: ClassVar[str] = "variable"
    edges: NDArray[np.float64]

    def __post_init__(self) -> None:
        given = _flat(self.edges)
        few = len(given) <= _FEW
        edges = np.array(
            [
                as_number(e, "an edge" if few else f"edge number {i + 1}", quote=few)
                for i, e in enumerate(given)
            ]
        )
        _check_edges(edges)
        object.__setattr__(self, "edges", frozen(edges))
        check_size(self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash(self.edges.tobytes())

    @property
    def n(self) -> int:
        return self.edges.size - 1

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        return _index(self.edges, values, outside)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "edges": self.edges.tolist()}

    def names(self) -> list[str]:
        return _interval_names(self.edges)


@dataclass(frozen=True)
class Integers:
    """One bin per integer from low to high, both included.

    >>> dphist.Integers(1, 6).n
    6
    """

    kind: ClassVar[str] = "integers"
    low: int
    high: int

    def __post_init__(self) -> None:
        low, high = as_int(self.low, "low"), as_int(self.high, "high")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if high < low:
            raise UsageError(f"an integer range must increase: {low} is above {high}.")
        if max(abs(low), abs(high)) > 1 << 53:
            raise UsageError("integer ends must lie within -2**53 and 2**53.")

    @property
    def n(self) -> int:
        return self.high - self.low + 1

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The edges, each integer standing for the half-open unit that starts at it."""
        refuse_to_list(self.n)
        return frozen(np.arange(self.low, self.high + 2, dtype=np.float64))

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each value's bin, -1 where it has none; a fraction belongs to the integer below."""
        x = np.floor(_floats(values))
        gone = np.isnan(x)
        if outside == "clip":
            x = np.clip(x, self.low, self.high)
        else:
            gone |= (x < self.low) | (x > self.high)
        return np.where(gone, -1, np.where(gone, 0, x) - self.low).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "low": self.low, "high": self.high}

    def names(self) -> list[str]:
        refuse_to_list(self.n)
        return [str(v) for v in range(self.low, self.high + 1)]

    def name(self, bin: int) -> str:
        return str(self.low + bin)


@dataclass(frozen=True)
class Categories:
    """One bin per declared label; ``other`` adds a bin for undeclared labels, ``null`` one for nulls.

    Each of the two is True, or the name of its bin.

    >>> dphist.Categories(["red", "green"], other=True, null="unknown").names()
    ['red', 'green', '(other)', 'unknown']
    """

    kind: ClassVar[str] = "categories"
    labels: tuple[str, ...]
    other: bool | str = False
    null: bool | str = False

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            raise UsageError("categories must be a list of labels, not one string.")
        refuse_column(self.labels, "labels")
        labels = tuple(self.labels)
        object.__setattr__(self, "labels", labels)
        if not labels:
            raise UsageError("categories must name at least one label.")
        if (odd := next((i for i, v in enumerate(labels) if not isinstance(v, str)), None)) is not None:
            raise UsageError(
                f"a category label must be a string; {_named(labels, odd)} is of type "
                f"{type(labels[odd]).__name__}."
            )
        known = set(labels)
        if len(known) < len(labels):
            first = {label: i for i, label in reversed(list(enumerate(labels)))}
            twice = next(i for i, label in enumerate(labels) if first[label] != i)
            raise UsageError(f"the category {_named(labels, twice)} is declared twice; remove one.")
        for name, usual in (("other", _OTHER), ("null", _NULL)):
            label = getattr(self, name)
            if not isinstance(label, bool | str) or label == "":
                raise UsageError(f"{name} is True or the name of a bin, not {shown(label)}.")
            if isinstance(label, str) and (label in known or (name == "null" and label == self.other)):
                raise UsageError(
                    f"{shown(label)} is the name of two bins, one of them for {name}; rename that."
                )
            object.__setattr__(self, name, True if label == usual else label)
        check_size(self.n)

    @property
    def n(self) -> int:
        return len(self.labels) + bool(self.other) + bool(self.null)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        return frozen(np.arange(self.n + 1, dtype=np.float64))

    @cached_property
    def _where(self) -> dict[str, int]:
        """The bin of each label."""
        return {label: i for i, label in enumerate(self.labels)}

    def bin(self, name: str) -> int | None:
        """Return the bin of a label, or of the name of a bin for others; None if there is none.

        Of very many labels no dictionary is made for this: they are looked through, which takes a tenth of a
        second for ten million.
        """
        if name in (others := self._others()):
            return len(self.labels) + others.index(name)
        if len(self.labels) <= _LOOKED_UP:
            return self._where.get(name)
        return self.labels.index(name) if name in self.labels else None

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each label's bin; undeclared labels get the ``other`` or ``null`` bin, or else -1.

        Labels have no ends, so that ``clip`` moves none of them: beside numeric bins it is about these.
        """
        where = self._where
        rest = len(self.labels) if self.other else -1
        missing = self.n - 1 if self.null else -1
        cells = np.asarray(values, dtype=object).ravel().tolist()
        # Null and NaN are not labels, not even undeclared ones.
        return np.array(
            [missing if v is None or v != v else where.get(str(v), rest) for v in cells], dtype=np.int64
        )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "labels": list(self.labels), "other": self.other, "null": self.null}

    def names(self) -> list[str]:
        return [*self.labels, *self._others()]

    def _others(self) -> list[str]:
        """Return the names of the bins beside those of labels."""
        named = ((self.other, _OTHER), (self.null, _NULL))
        return [usual if label is True else str(label) for label, usual in named if label]


def as_int(value: object, name: str) -> int:
    """Return an integer as int; refuse booleans, fractions and anything else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        if isinstance(value, float | np.floating) and float(value).is_integer():
            raise UsageError(f"{name} must be a whole number; write {int(value)} instead of {value!r}.")
        raise UsageError(f"{name} must be a whole number, not {shown(value)}.")
    return int(value)


def shown(value: object) -> str:
    """Return a short plain value as text, and of anything else only its type, since it may hold records."""
    plain = value is None or isinstance(value, bool | float | np.bool_ | np.integer | np.floating)
    short = isinstance(value, str | int) and len(repr(value)) <= 60
    return repr(value) if plain or short else f"a value of type {type(value).__name__}"


def refuse_column(values: object, what: str) -> None:
    """Refuse a column, or an array of labels: as often as not it was read off the records.

    ``df.ward.unique()`` would publish every label that a record has. Of numbers an array is no such sign.
    """
    package = type(values).__module__.partition(".")[0]
    if package in ("pandas", "polars", "pyarrow") or (package == "numpy" and what != "edges"):
        raise PrivacyError(
            f"{what} are published as they are, and those of a {package} {type(values).__name__} may be the "
            "records' own. List them from public knowledge: [...], or list(...) of a public column."
        )


def _flat(edges: object) -> list[Any]:
    try:
        flat: list[Any] = np.asarray(edges).ravel().tolist()
    except ValueError:  # lists of several lengths
        raise UsageError("edges must be a flat list of numbers, not lists inside a list.") from None
    return flat


def _named(values: Sequence[object], at: int) -> str:
    return shown(values[at]) if len(values) <= _FEW else f"number {at + 1}"


def as_number(value: object, name: str, *, quote: bool = True) -> float:
    """Return a finite number as float; refuse booleans, text and anything else."""
    what = shown(value) if quote else f"a {type(value).__name__}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise UsageError(f"{name} must be a number, not {what}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{name} must be finite{f', not {what}' if quote else ''}.")
    return number


def check_size(n: int, most: int = MAX_BINS) -> None:
    """Refuse more bins than fit in memory, or in the numbers of bins."""
    if n > most:
        many = (
            ""
            if most > MAX_BINS
            else " Of whole numbers, times, addresses and codes there may be up to 2^62."
        )
        raise UsageError(f"{n:,} bins are more than the {most:,} that there may be here; use fewer.{many}")


def refuse_to_list(n: int) -> None:
    """Refuse to write out the bins of an axis one by one where they are too many for that."""
    if n > MAX_BINS:
        raise UsageError(
            f"{n:,} bins are too many to write out one by one: ask for sums, or for one row per group "
            "(to_pandas)."
        )


def _check_edges(edges: NDArray[np.float64]) -> None:
    if edges.size < 2:
        raise UsageError("edges must be at least two numbers: one bin.")
    if not np.isfinite(edges).all():
        raise UsageError("edges must be finite; NaN and infinity are not edges.")
    steps = np.diff(edges)
    if (steps < 0).any():
        at = int(np.argmax(steps < 0))
        first, second = (_named(edges.tolist(), i) for i in (at, at + 1))
        raise UsageError(f"edges must increase: {first} is followed by {second}, which is less. Sort them.")
    if (steps == 0).any():
        raise UsageError(
            f"the edge {_named(edges.tolist(), int(np.argmax(steps == 0)))} is repeated; remove one."
        )


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).ravel()


def _index(edges: NDArray[np.float64], values: ArrayLike, outside: Outside) -> NDArray[np.int64]:
    x = _floats(values)
    last = edges.size - 2
    bins = np.searchsorted(edges, x, side="right") - 1
    bins[x == edges[-1]] = last
    gone = np.isnan(x)
    if outside == "drop":
        gone |= (x < edges[0]) | (x > edges[-1])
    bins = np.clip(bins, 0, last)
    bins[gone] = -1
    return bins.astype(np.int64, copy=False)


def _interval_names(edges: NDArray[np.float64]) -> list[str]:
    e = [_spelled(v) for v in edges]
    closers = [")"] * (len(e) - 2) + ["]"]
    return [f"[{a}, {b}{c}" for a, b, c in zip(e, e[1:], closers, strict=False)]


def cut(edges: NDArray[np.float64], value: float) -> int:
    """Return the number of the edge that equals a value; a value between edges is refused."""
    value = as_number(value, "an end of the query")
    with np.errstate(over="ignore"):  # of edges at both ends of all numbers
        at = int(np.argmin(np.abs(edges - value)))
    if is_edge(edges, np.array(at), np.array(value)):
        return at
    beside = edges[max(at - 1, 0) : at + 2]
    if float(_spelled(edges[at])) == value and [_spelled(e) for e in beside].count(_spelled(edges[at])) == 1:
        return at  # as tables and messages write it
    if value < edges[0] or value > edges[-1]:
        ends = f"{_spelled(edges[0])} to {_spelled(edges[-1])}"
        raise UsageError(f"{value:g} lies outside the domain, which runs from {ends}.")
    above = int(np.searchsorted(edges, value))
    raise UsageError(
        f"{value:g} lies inside a bin, where nothing was measured: "
        f"use its edges, {_spelled(edges[above - 1])} or {_spelled(edges[above])}."
    )


def is_edge(edges: NDArray[np.float64], at: NDArray[Any], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether values equal the edges of these numbers, but for what text or arithmetic changes.

    That is little beside the narrower of the two bins at an edge: other bins may be wider by far.
    """
    last, edge = edges.size - 1, edges[at]
    with np.errstate(over="ignore", invalid="ignore"):
        below, above = edge - edges[np.maximum(at - 1, 0)], edges[np.minimum(at + 1, last)] - edge
        beside = np.where(at == 0, above, np.where(at == last, below, np.minimum(below, above)))
        near: NDArray[np.bool_] = np.abs(edge - values) <= 1e-9 * beside + 1e-15 * np.abs(edge)
    return near


def _spelled(edge: float) -> str:
    return f"{edge:.6g}"
