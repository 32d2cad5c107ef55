"""What a bin is. A domain is declared before any record is read; it is public and never changes.

Five kinds of axis, and a domain of one or two of them:

* ``Regular(lo=0, hi=120, bins=12)`` and ``Variable([0, 18, 65, 120])``: numpy's bins: bin i is
  [edge i, edge i+1), the last one closed on both sides;
* ``Integers(low, high)``: one bin per whole number, both ends included;
* ``Categories(labels)``: one bin per declared label, with optional last bins for all others and for nulls;
* ``Instants("2024-01-01", "2025-01-01", freq="1mo")``: one bin per hour, day, month, ...
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo

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
        given = np.asarray(self.edges).ravel().tolist()
        few = len(given) <= _FEW
        edges = np.array(
            [_number(e, "an edge" if few else f"edge number {i + 1}", quote=few) for i, e in enumerate(given)]
        )
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
    """One bin per declared label; ``other`` adds a bin for labels not declared, ``null`` one for nulls."""

    kind: ClassVar[str] = "categories"
    labels: tuple[str, ...]
    other: bool = False
    null: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            raise UsageError("categories must be a list of labels, not one string.")
        labels = tuple(self.labels)
        object.__setattr__(self, "labels", labels)
        if not labels:
            raise UsageError("categories must name at least one label.")
        if odd := [i for i, v in enumerate(labels) if not isinstance(v, str)]:
            raise UsageError(
                f"a category label must be a string; {_named(labels, odd[0])} is of type "
                f"{type(labels[odd[0]]).__name__}."
            )
        first = {label: i for i, label in reversed(list(enumerate(labels)))}
        if twice := [i for i, label in enumerate(labels) if first[label] != i]:
            raise UsageError(f"the category {_named(labels, twice[0])} is declared twice.")
        _check_size(self.n)

    @property
    def n(self) -> int:
        """How many bins there are."""
        return len(self.labels) + self.other + self.null

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Bin numbers as edges: categories have positions, not values."""
        return _frozen(np.arange(self.n + 1, dtype=np.float64))

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each label's bin; -1, or the ``other`` or ``null`` bin, where it is none."""
        if outside == "clip":
            raise UsageError("categories have no ends to clip to; declare other=True instead.")
        where = {label: i for i, label in enumerate(self.labels)}
        rest = len(self.labels) if self.other else -1
        missing = self.n - 1 if self.null else -1
        cells = np.asarray(values, dtype=object).ravel().tolist()
        # Null and NaN are no label, not even an undeclared one.
        return np.array(
            [missing if v is None or v != v else where.get(str(v), rest) for v in cells], dtype=np.int64
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": self.kind, "labels": list(self.labels), "other": self.other, "null": self.null}

    def names(self) -> list[str]:
        """Return one short text per bin."""
        return [*self.labels, *(["(other)"] if self.other else []), *(["(null)"] if self.null else [])]


@dataclass(frozen=True)
class Instants:
    """One bin per step of time from ``start`` to ``stop``, which is not included; the last may be shorter.

    Args:
        start, stop: ISO text such as ``"2024-01-31"`` or ``"2024-01-31T08:00"``, a date or a datetime, to
            the second. They are kept as text.
        freq: a number and one of ``s min h d w mo y``. Hours and less are elapsed time; days and more
            follow the calendar, so that a local day may have 23 or 25 hours and a month has its own length.
        tz: the time zone whose clock the bins follow, such as ``"Europe/Berlin"``. Without one the bins
            follow a clock that never changes, and only values without a zone can be counted.

    A value with a zone is an instant and belongs to the bin it lies in. A value without one is what the
    clock showed: of an hour that the clock ran through twice it belongs to the first, and of one that it
    left out to the bin that follows.
    """

    kind: ClassVar[str] = "instants"
    start: str
    stop: str
    freq: str = "1d"
    tz: str | None = None

    def __post_init__(self) -> None:
        self._step  # noqa: B018 - a wrong freq and a wrong zone are refused here
        self._zone  # noqa: B018
        for name in ("start", "stop"):
            wall = self._wall(getattr(self, name), name)
            # An offset is kept only where the clock alone could not tell: in an hour it ran through twice.
            text = wall.isoformat() if wall.fold else wall.replace(tzinfo=None).isoformat()
            object.__setattr__(self, name, text)
        first, last = (_epoch(self._wall(text, "")) for text in (self.start, self.stop))
        if not first < last:
            raise UsageError(f"an Instants axis must rise: {self.start} is not before {self.stop}.")
        count, unit = self._step
        seconds = count * (_SECONDS.get(unit) or 28 * 86_400)
        _check_size((last - first) // seconds)

    @property
    def n(self) -> int:
        """How many bins there are."""
        return self.edges.size - 1

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The edges in whole seconds since 1970 (UTC; without a time zone, of the clock itself)."""
        start, stop = self._wall(self.start, "start"), _epoch(self._wall(self.stop, "stop"))
        count, unit = self._step
        if unit in ("s", "min", "h"):
            inner: list[float] | NDArray[np.int64] = np.arange(_epoch(start), stop, count * _SECONDS[unit])
        else:
            inner = []
            while (at := _later(start, count * len(inner), unit)) < stop:
                inner.append(at)
        # A day that the calendar of a place left out has no bin.
        return _frozen(np.unique(np.append(inner, stop)).astype(np.float64))

    @cached_property
    def clock(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What the clock showed at the edges, rising, and the bin that begins there; the end comes last."""
        shown = self.edges.copy()
        if self.tz not in (None, "UTC"):
            shown += [self._offset(int(e)) for e in self.edges]
        new = np.append(True, shown[1:] > np.maximum.accumulate(shown)[:-1])
        new[-1] = True  # the end; if the clock had shown it before, it stays behind what came first
        shown[-1] = max(shown[-1], shown[:-1][new[:-1]].max() + 1)
        return _frozen(shown[new]), np.flatnonzero(new)

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each value's bin, -1 where it has none; datetime64, or dates and datetimes."""
        cells = np.asarray(values).ravel()
        edges, bins = self.clock
        if cells.dtype.kind == "M":
            return _index_below(edges, bins, _seconds_of(cells), outside)
        found = [_moment(v) for v in cells.tolist()]
        seconds = np.array([s for s, _ in found], dtype=np.float64)
        aware = np.array([known for _, known in found], dtype=np.bool_)
        if self.tz is None:  # an instant has no place on a clock without a zone
            seconds[aware] = math.nan
        whole_edges = self.edges, np.arange(self.n + 1)
        by_clock = _index_below(edges, bins, seconds, outside)
        return np.where(aware, _index_below(*whole_edges, seconds, outside), by_clock)

    def cut(self, value: object) -> int:
        """Return which edge an instant is, given as ``start`` and ``stop`` may be."""
        at = _epoch(self._wall(value, "an end of the query"))
        i = int(np.searchsorted(self.edges, at))
        if i < self.edges.size and self.edges[i] == at:
            return i
        shown = [self._name(int(e)) for e in self.edges[[max(i - 1, 0), min(i, self.n)]]]
        if i in (0, self.edges.size):
            ends = f"{self._name(int(self.edges[0]))} to {self._name(int(self.edges[-1]))}"
            raise UsageError(f"{value} lies outside the domain, which runs from {ends}.")
        raise UsageError(
            f"{value} falls inside a bin, and what is inside a bin was never measured: "
            f"ask at its edges, {shown[0]} or {shown[1]}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        own = {"start": self.start, "stop": self.stop, "freq": self.freq, "tz": self.tz}
        return {"kind": self.kind, **own, "closure": "left-closed"}

    def names(self) -> list[str]:
        """Return when each bin begins, as its clock shows it."""
        return [self._name(int(e)) for e in self.edges[:-1]]

    @cached_property
    def _step(self) -> tuple[int, str]:
        found = (
            re.fullmatch(r"([1-9]\d{0,8})(s|min|h|d|w|mo|y)", self.freq)
            if isinstance(self.freq, str)
            else None
        )
        if found is None:
            raise UsageError(
                "freq must be a number and one of s, min, h, d, w, mo, y, such as '1h' or '1mo'; "
                f"not {self.freq!r}."
            )
        return int(found[1]), found[2]

    @cached_property
    def _zone(self) -> ZoneInfo | None:
        return None if self.tz is None else _time_zone(self.tz)

    def _wall(self, value: object, name: str) -> datetime:
        """Return what the axis's clock shows at an instant, as it was written."""
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise UsageError(
                    f"{name} must be a date or time such as '2024-01-31', not {value!r}."
                ) from None
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime) or value != value:  # NaT is not itself
            raise UsageError(f"{name} must be a date or time such as '2024-01-31', not {value!r}.")
        if value.microsecond or getattr(value, "nanosecond", 0):
            raise UsageError(f"{name} must be a whole second, not {value!s}.")
        if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            raise UsageError(f"{name} must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}, not {value!s}.")
        plain = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, fold=value.fold
        )
        if value.tzinfo is None:
            return plain.replace(tzinfo=self._zone, fold=0)
        if self._zone is None:
            raise UsageError(
                f"{name} has a time zone, {value!s}; say with tz= whose clock the bins follow, or leave the "
                "zone out."
            )
        return plain.replace(tzinfo=value.tzinfo).astimezone(self._zone)

    def _offset(self, at: int) -> float:
        """Return by how much the clock is ahead of UTC at an instant; the lesser one where it is changed."""
        moments = (datetime.fromtimestamp(s, self._zone) for s in (at - 1, at))
        return min((m.utcoffset() or timedelta()).total_seconds() for m in moments)

    def every(self, times: int) -> Instants:
        """Return the axis with steps so many times as long."""
        count, unit = self._step
        return Instants(self.start, self.stop, f"{count * times}{unit}", self.tz)

    def moment(self, seconds: float) -> str:
        """Return what the axis's clock shows at an instant in seconds since 1970: its midnights as dates."""
        return self._written([seconds])[0]

    def moments(self) -> list[str]:
        """Return what the clock shows at the edges: dates, if days or longer steps begin at midnight."""
        return self._written(self.edges.tolist())

    def _written(self, seconds: list[float]) -> list[str]:
        """Return instants, all written alike."""
        walls = [datetime.fromtimestamp(round(at), self._zone or UTC) for at in seconds]
        if self.tz in (None, "UTC"):
            walls = [wall.replace(tzinfo=None) for wall in walls]
        if self._step[1] in ("d", "w", "mo", "y") and all(wall.time() == time() for wall in walls):
            return [wall.date().isoformat() for wall in walls]
        precision = "seconds" if any(wall.second for wall in walls) else "minutes"
        return [wall.isoformat(" ", precision) for wall in walls]

    def _name(self, at: int) -> str:
        wall = datetime.fromtimestamp(at, self._zone or UTC)
        _, unit = self._step
        if unit in ("s", "min", "h") or not self.start.endswith("T00:00:00"):
            shown = wall if self.tz not in (None, "UTC") else wall.replace(tzinfo=None)
            return shown.isoformat(" ", "seconds" if unit == "s" or wall.second else "minutes")
        whole_months = unit in ("mo", "y") and self.start.endswith("-01T00:00:00")
        whole_years = unit == "y" and self.start.endswith("-01-01T00:00:00")
        return wall.strftime("%Y" if whole_years else "%Y-%m" if whole_months else "%Y-%m-%d")


_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTHS = {"Y": 366 * 86_400, "M": 31 * 86_400, "W": 7 * 86_400, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_FIRST_YEAR, _LAST_YEAR = 1000, 9000  # all clocks and calendars that are asked for know these
NEEDS_ZONE = (
    "the values have a time zone and the bins have none: declare the axis with tz='UTC', or with the zone "
    "whose days and months you mean."
)


def _later(wall: datetime, steps: int, unit: str) -> float:
    """Return the instant of the same time of day so many days, weeks, months or years later."""
    try:
        if unit in ("d", "w"):
            return _epoch(wall + timedelta(days=steps * (7 if unit == "w" else 1)))
        years, month = divmod(wall.month - 1 + steps * (12 if unit == "y" else 1), 12)
        year = wall.year + years
        last = calendar.monthrange(year, month + 1)[1]
        return _epoch(wall.replace(year=year, month=month + 1, day=min(wall.day, last)))
    except (OverflowError, ValueError):  # beyond the last year of the calendar
        return math.inf


def _epoch(wall: datetime) -> int:
    """Return the seconds since 1970 of an instant, or of what a clock without a zone shows."""
    aware = wall if wall.tzinfo is not None else wall.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(seconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time_zone(name: str) -> ZoneInfo:
    try:
        if name == "localtime":  # whatever the machine is set to
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):  # not found, or a name that is no name
        raise UsageError(
            f"there is no time zone {name!r}; write one like 'Europe/Berlin' or 'UTC'. If it exists, "
            "this machine lacks the time zone database: pip install tzdata."
        ) from None


def _moment(value: object) -> tuple[float, bool]:
    """Return a value's whole seconds since 1970, NaN for none, and whether it has a zone."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return math.nan, False
    try:
        if isinstance(value, np.datetime64):
            return _seconds_of(np.array([value])).item(), False
        if isinstance(value, datetime):
            return float(_epoch(value)), value.tzinfo is not None
        if isinstance(value, date):
            return float((value - _EPOCH.date()).days * 86_400), False
    except Exception:  # whatever the value's own time zone raises
        return math.nan, False
    return math.nan, False  # one odd value must not stop the others


def _seconds_of(cells: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Return whole seconds since 1970, NaN for none; numpy's own conversion wraps around far from there."""
    unit, step = np.datetime_data(cells.dtype)
    if unit in ("fs", "as"):  # no factor leads from these to seconds
        moved = cells.astype("datetime64[ns]")
    else:
        # At most 2**53 seconds, which no axis reaches.
        far = 2**53 // (step * _LENGTHS[unit]) if unit in _LENGTHS else 2**63 - 1
        moved = np.clip(cells.view(np.int64), -far, far).view(cells.dtype)
    seconds = moved.astype("datetime64[s]").astype(np.float64)
    seconds[np.isnat(cells)] = math.nan
    return seconds


def _index_below(
    edges: NDArray[np.float64], bins: NDArray[np.int64], x: NDArray[np.float64], outside: Outside
) -> NDArray[np.int64]:
    """Return the bin of the last edge not above each value; the last edge is outside."""
    at = np.searchsorted(edges, x, side="right") - 1
    gone = np.isnan(x)
    if outside == "drop":
        gone |= (x < edges[0]) | (x >= edges[-1])
    found = bins[np.clip(at, 0, edges.size - 2)]
    found[gone] = -1
    return found


Axis: TypeAlias = Regular | Variable | Integers | Categories | Instants


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
            f"bins={shown(bins)} would be worked out from the data, which leaks; give a number or edges."
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
            f"range={shown(range)} would be read off the data, which leaks a record. {_HOW_TO_CHOOSE}"
        )
    if not isinstance(range, Sequence | np.ndarray) or len(range) != 2:
        raise UsageError(f"range must be two numbers, for example (0, 120), not {shown(range)}.")
    return Regular(lo=range[0], hi=range[1], bins=number)


def whole(value: object, name: str) -> int:
    """Return a whole number as int; refuse booleans, fractions and anything else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        if isinstance(value, float | np.floating) and float(value).is_integer():
            raise UsageError(f"{name} must be a whole number; write {int(value)} instead of {value!r}.")
        raise UsageError(f"{name} must be a whole number, not {shown(value)}.")
    return int(value)


def shown(value: object) -> str:
    """Return a plain value as it was written, and of anything else only its type: it may hold records."""
    plain = value is None or isinstance(value, bool | float | np.bool_ | np.integer | np.floating)
    short = isinstance(value, str | int) and len(repr(value)) <= 60
    return repr(value) if plain or short else f"a value of type {type(value).__name__}"


_FEW = 3  # so many values are what somebody wrote by hand; more could be records given by mistake


def _named(values: Sequence[object], at: int) -> str:
    return shown(values[at]) if len(values) <= _FEW else f"number {at + 1}"


def _number(value: object, name: str, *, quote: bool = True) -> float:
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
        first, second = (_named(edges.tolist(), i) for i in (at, at + 1))
        raise UsageError(f"edges must rise: {first} is followed by {second}, which is less. Sort them.")
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
        return Categories(tuple(described["labels"]), described["other"], described.get("null", False))
    if kind == "instants":
        return Instants(*(described[key] for key in ("start", "stop", "freq", "tz")))
    raise UsageError(f"unknown kind of axis {kind!r}; this file may come from a later version.")


def clock_zone(domain: Domain, timezone: str | None) -> str:
    """Return whose clock expressions follow: the declared zone, else that of bins of time, else UTC."""
    followed = {axis.tz for axis in domain.axes if isinstance(axis, Instants) and axis.tz is not None}
    if timezone is None:
        return followed.pop() if len(followed) == 1 else "UTC"
    _time_zone(timezone)
    if followed and timezone not in followed:
        raise UsageError(
            f"the bins follow the clock of {' and '.join(sorted(followed))}, and timezone says {timezone}; "
            "leave timezone out, or let both say the same."
        )
    return timezone
