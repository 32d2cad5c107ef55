"""What a bin is. A domain is declared before any record is read; it is public and never changes.

Four kinds of axis, and a domain of one or two of them:

* ``Regular(lo=0, hi=120, bins=12)`` and ``Variable([0, 18, 65, 120])``: numpy's bins: bin i is
  [edge i, edge i+1), the last one closed on both sides;
* ``Integers(low, high)``: one bin per whole number, both ends included;
* ``Categories(labels)``: one bin per declared label, with an optional last bin for all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.errors import PrivacyError, UsageError

Outside: TypeAlias = Literal["drop", "clip"]
MAX_BINS = 1 << 27  # a million million cells are a mistake; 134 million still fit in memory


@dataclass(frozen=True, kw_only=True)
class Regular:
    """Evenly spaced bins, with the very edges of ``numpy.linspace(lo, hi, bins + 1)``."""

    kind: ClassVar[str] = "regular"
    lo: float
    hi: float
    bins: int

    def __post_init__(self) -> None:
        lo, hi = _number(self.lo, "the range's low end"), _number(self.hi, "the range's high end")
        bins = whole(self.bins, "bins")
        if bins < 1:
            raise UsageError(f"bins must be at least 1, not {bins}.")
        _check_size(bins)
        if not lo < hi:
            raise UsageError(f"range must rise: {lo!r} is not below {hi!r}.")
        if not math.isfinite(hi - lo):
            raise UsageError(f"the range {lo!r} to {hi!r} is too wide for double precision.")
        # Neighbouring edges must differ after rounding; twice the coarsest spacing is enough.
        if (hi - lo) / bins <= 2 * math.ulp(max(abs(lo), abs(hi))):
            raise UsageError(f"{bins} bins between {lo!r} and {hi!r} are finer than double precision.")
        for name, value in (("lo", lo), ("hi", hi), ("bins", bins)):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """How many bins there are."""
        return self.bins

    @property
    def step(self) -> float:
        """The width of a bin: edge i is the double ``lo + i * step``, the last one ``hi``."""
        return (self.hi - self.lo) / self.bins

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The edges, read-only."""
        return _frozen(np.linspace(self.lo, self.hi, self.bins + 1))

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each value's bin, -1 where it has none; NaN never has one."""
        return _index(self.edges, values, outside)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": self.kind, "lo": self.lo, "hi": self.hi, "bins": self.bins}

    def names(self) -> list[str]:
        """Return one short text per bin."""
        return _interval_names(self.edges)


@dataclass(frozen=True, eq=False)
class Variable:
    """Bins between given, rising edges."""

    kind: ClassVar[str] = "variable"
    edges: NDArray[np.float64]

    def __post_init__(self) -> None:
        edges = np.array([_number(e, "an edge") for e in np.asarray(self.edges).ravel().tolist()])
        _check_edges(edges)
        object.__setattr__(self, "edges", _frozen(edges))
        _check_size(self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash(self.edges.tobytes())

    @property
    def n(self) -> int:
        """How many bins there are."""
        return self.edges.size - 1

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each value's bin, -1 where it has none; NaN never has one."""
        return _index(self.edges, values, outside)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": self.kind, "edges": self.edges.tolist()}

    def names(self) -> list[str]:
        """Return one short text per bin."""
        return _interval_names(self.edges)


@dataclass(frozen=True)
class Integers:
    """One bin per whole number from low to high, both included."""

    kind: ClassVar[str] = "integers"
    low: int
    high: int

    def __post_init__(self) -> None:
        low, high = whole(self.low, "low"), whole(self.high, "high")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if high < low:
            raise UsageError(f"an integer range must rise: {low} is above {high}.")
        if max(abs(low), abs(high)) > 1 << 53:
            raise UsageError("integer ends must lie within -2**53 and 2**53.")
        _check_size(self.n)

    @property
    def n(self) -> int:
        """How many bins there are."""
        return self.high - self.low + 1

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The edges, each integer standing for the half-open unit that starts at it."""
        return _frozen(np.arange(self.low, self.high + 2, dtype=np.float64))

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
        """Return a JSON-ready description."""
        return {"kind": self.kind, "low": self.low, "high": self.high}

    def names(self) -> list[str]:
        """Return one short text per bin."""
        return [str(v) for v in range(self.low, self.high + 1)]


@dataclass(frozen=True)
class Categories:
    """One bin per declared label; ``other`` adds a last bin for every label not declared."""

    kind: ClassVar[str] = "categories"
    labels: tuple[str, ...]
    other: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            raise UsageError("categories must be a list of labels, not one string.")
        labels = tuple(self.labels)
        object.__setattr__(self, "labels", labels)
        if not labels:
            raise UsageError("categories must name at least one label.")
        odd = [v for v in labels if not isinstance(v, str)]
        if odd:
            raise UsageError(f"a category label must be a string, not {odd[0]!r}.")
        if len(set(labels)) < len(labels):
            twice = next(label for i, label in enumerate(labels) if label in labels[:i])
            raise UsageError(f"the category {twice!r} is declared twice.")
        _check_size(self.n)

    @property
    def n(self) -> int:
        """How many bins there are."""
        return len(self.labels) + self.other

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Bin numbers as edges: categories have positions, not values."""
        return _frozen(np.arange(self.n + 1, dtype=np.float64))

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each label's bin, -1 (or the ``other`` bin) where it is not declared."""
        if outside == "clip":
            raise UsageError("categories have no ends to clip to; declare other=True instead.")
        where = {label: i for i, label in enumerate(self.labels)}
        rest = len(self.labels) if self.other else -1
        cells = np.asarray(values, dtype=object).ravel().tolist()
        return np.array([_category(v, where, rest) for v in cells], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": self.kind, "labels": list(self.labels), "other": self.other}

    def names(self) -> list[str]:
        """Return one short text per bin."""
        return [*self.labels, *(["(other)"] if self.other else [])]


Axis: TypeAlias = Regular | Variable | Integers | Categories


@dataclass(frozen=True)
class Domain:
    """One axis, or a grid of two; bins of a grid are numbered row by row (numpy's C order)."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        axes = (self.axes,) if isinstance(self.axes, Axis) else tuple(self.axes)
        object.__setattr__(self, "axes", axes)
        if not 1 <= len(axes) <= 2:
            raise UsageError(f"a domain has one or two axes, not {len(axes)}.")
        _check_size(self.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many bins each axis has."""
        return tuple(axis.n for axis in self.axes)

    @property
    def n(self) -> int:
        """How many bins there are in all."""
        return math.prod(self.shape)

    @property
    def axis(self) -> Axis:
        """The only axis of a one-dimensional domain."""
        if len(self.axes) != 1:
            raise UsageError("this needs a one-dimensional histogram, and the domain is a grid.")
        return self.axes[0]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "axes": [axis.to_dict() for axis in self.axes],
            "closure": "left-closed, last bin closed",
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Domain:
        """Return the domain that ``to_dict`` described."""
        return cls(tuple(_axis_from_dict(axis) for axis in described["axes"]))


_HOW_TO_CHOOSE = (
    "Say what values are possible, for example range=(0, 120) for ages, from public knowledge: a form's "
    "limits, a code book, a law of nature; never the data's own minimum and maximum. "
    "Records beyond it are handled by outside='drop' or 'clip'."
)


def make_axis(bins: int | Sequence[float] | Axis, range: tuple[float, float] | None = None) -> Axis:
    """Return the axis that numpy's ``bins`` and ``range`` describe; an axis is returned as it is."""
    if isinstance(bins, Axis):
        if range is not None:
            raise UsageError("range goes with a number of bins; these bins already have their ends.")
        return bins
    if isinstance(bins, str):
        raise PrivacyError(
            f"bins={bins!r} would be worked out from the data, which leaks; give a number or edges."
        )
    if isinstance(bins, Iterable) or (isinstance(bins, np.ndarray) and bins.ndim > 0):
        if range is not None:
            raise UsageError("range goes with a number of bins; explicit edges already have their ends.")
        return Variable(np.asarray(bins))
    number = whole(bins, "bins")
    if range is None:
        raise UsageError(f"range is needed with a number of bins. {_HOW_TO_CHOOSE}")
    if isinstance(range, str):
        raise PrivacyError(
            f"range={range!r} would be read off the data, which leaks a record. {_HOW_TO_CHOOSE}"
        )
    if not isinstance(range, Sequence | np.ndarray) or len(range) != 2:
        raise UsageError(f"range must be two numbers, for example (0, 120), not {range!r}.")
    return Regular(lo=range[0], hi=range[1], bins=number)


def whole(value: object, name: str) -> int:
    """Return a whole number as int; refuse booleans, fractions and anything else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        if isinstance(value, float | np.floating) and float(value).is_integer():
            raise UsageError(f"{name} must be a whole number; write {int(value)} instead of {value!r}.")
        raise UsageError(f"{name} must be a whole number, not {value!r}.")
    return int(value)


def _number(value: object, name: str) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise UsageError(f"{name} must be a number, not {value!r}.")
    if not math.isfinite(value):
        raise UsageError(f"{name} must be finite, not {value!r}.")
    return float(value)


def _check_size(n: int) -> None:
    if n > MAX_BINS:
        raise UsageError(f"{n} bins are more than the {MAX_BINS} this package handles; use fewer.")


def _check_edges(edges: NDArray[np.float64]) -> None:
    if edges.size < 2:
        raise UsageError("edges must be at least two numbers: one bin.")
    if not np.isfinite(edges).all():
        raise UsageError("edges must be finite; NaN and infinity are not edges.")
    steps = np.diff(edges)
    if (steps < 0).any():
        at = int(np.argmax(steps < 0))
        raise UsageError(f"edges must rise: {edges[at]} is followed by {edges[at + 1]}. Sort them.")
    if (steps == 0).any():
        raise UsageError(f"the edge {edges[int(np.argmax(steps == 0))]} is repeated; remove one.")


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).ravel()


def _category(value: object, where: dict[str, int], rest: int) -> int:
    if value is None or value != value:  # null and NaN are no label, not even an undeclared one
        return -1
    return where.get(str(value), rest)


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
    e = [f"{v:.6g}" for v in edges]
    closers = [")"] * (len(e) - 2) + ["]"]
    return [f"[{a}, {b}{c}" for a, b, c in zip(e, e[1:], closers, strict=False)]


def cut(edges: NDArray[np.float64], value: float) -> int:
    """Return which edge a value is; one between edges is refused with its neighbours named."""
    value = _number(value, "an end of the query")
    at = int(np.argmin(np.abs(edges - value)))
    # An edge that went through text or arithmetic may differ in its last digits.
    if abs(edges[at] - value) <= 1e-9 * (edges[-1] - edges[0]) / (edges.size - 1):
        return at
    if value < edges[0] or value > edges[-1]:
        raise UsageError(f"{value:g} lies outside the domain, which runs from {edges[0]:g} to {edges[-1]:g}.")
    above = int(np.searchsorted(edges, value))
    raise UsageError(
        f"{value:g} falls inside a bin, and what is inside a bin was never measured: "
        f"ask at its edges, {edges[above - 1]:g} or {edges[above]:g}."
    )


def _frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False
    return array


def _axis_from_dict(described: dict[str, Any]) -> Axis:
    kind = described.get("kind")
    if kind == "regular":
        return Regular(lo=described["lo"], hi=described["hi"], bins=described["bins"])
    if kind == "variable":
        return Variable(np.asarray(described["edges"]))
    if kind == "integers":
        return Integers(described["low"], described["high"])
    if kind == "categories":
        return Categories(tuple(described["labels"]), described["other"])
    raise UsageError(f"unknown kind of axis {kind!r}; this file may come from a later version.")
