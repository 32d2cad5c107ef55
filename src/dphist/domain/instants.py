"""Bins of time: one per hour, day, week, month, ..., in a named time zone."""

from __future__ import annotations

import calendar
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.axes import Outside, check_size, shown
from dphist.domain.groups import frozen
from dphist.errors import UsageError

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTHS = {"Y": 366 * 86_400, "M": 31 * 86_400, "W": 7 * 86_400, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_FIRST_YEAR, _LAST_YEAR = 1000, 9000  # all clocks and calendars that are asked for know these
NEEDS_ZONE = (
    "the values have a time zone and the bins have none: declare the axis with tz='UTC', or with the zone "
    "whose days and months you mean."
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Instants:
    """One bin per step of time from ``start`` to ``stop``, which is not included; the last may be shorter.

    >>> dphist.Instants("2024-01-01", "2024-04-01", "1mo").names()
    ['2024-01', '2024-02', '2024-03']

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
            # The offset is written only where the clock is ambiguous: in the hour that it runs through twice.
            text = wall.isoformat() if wall.fold else wall.replace(tzinfo=None).isoformat()
            object.__setattr__(self, name, text)
        first, last = (_epoch(self._wall(text, "")) for text in (self.start, self.stop))
        if not first < last:
            raise UsageError(f"an Instants axis must increase: {self.start} is not before {self.stop}.")
        count, unit = self._step
        seconds = count * (_SECONDS.get(unit) or 28 * 86_400)
        check_size((last - first) // seconds)

    @property
    def n(self) -> int:
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
        return frozen(np.unique(np.append(inner, stop)).astype(np.float64))

    @cached_property
    def clock(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What the clock showed at the edges, rising, and the bin that begins there; the end comes last."""
        shown = self.edges.copy()
        if self.tz not in (None, "UTC"):
            shown += [self._offset(int(e)) for e in self.edges]
        new = np.append(True, shown[1:] > np.maximum.accumulate(shown)[:-1])
        new[-1] = True  # the end; if the clock had shown it before, it stays behind what came first
        shown[-1] = max(shown[-1], shown[:-1][new[:-1]].max() + 1)
        return frozen(shown[new]), np.flatnonzero(new)

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
            f"{value} lies inside a bin, where nothing was measured: "
            f"ask at its edges, {shown[0]} or {shown[1]}."
        )

    def to_dict(self) -> dict[str, Any]:
        own = {"start": self.start, "stop": self.stop, "freq": self.freq, "tz": self.tz}
        return {"kind": self.kind, **own, "closure": "left-closed"}

    def names(self) -> list[str]:
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
        return None if self.tz is None else time_zone(self.tz)

    def _wall(self, value: object, name: str) -> datetime:
        """Return what the axis's clock shows at an instant, as it was written."""
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if isinstance(value, str):
            value = _read(value, name)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime) or value != value:  # NaT is not itself
            raise UsageError(f"{name} must be a date or time such as '2024-01-31', not {shown(value)}.")
        if value.microsecond or getattr(value, "nanosecond", 0):
            raise UsageError(f"{name} must be a whole second, not {value!s}.")
        if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            raise UsageError(f"{name} must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}, not {value!s}.")
        plain = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, fold=value.fold
        )
        if value.tzinfo is None:
            wall = plain.replace(tzinfo=self._zone, fold=0)
            again = wall.astimezone(UTC).astimezone(self._zone) if self._zone else wall
            # A day whose midnight the clock left out begins where the clock goes on.
            if again.replace(tzinfo=None) != wall.replace(tzinfo=None) and plain.time() != time():
                raise UsageError(
                    f"{name}: the clock of {self.tz} did not show {plain}; it was put forward to "
                    f"{again.replace(tzinfo=None)}. Name a time that it showed, or a date."
                )
            return wall
        if self._zone is None:
            raise UsageError(
                f"{name} has a time zone, {value!s}; say with tz= whose clock the bins follow, or leave the "
                "zone out."
            )
        return plain.replace(tzinfo=value.tzinfo).astimezone(self._zone)

    def _offset(self, at: int) -> float:
        """Return the offset of the clock from UTC at an instant; the smaller one where it changes."""
        moments = (datetime.fromtimestamp(s, self._zone) for s in (at - 1, at))
        return min((m.utcoffset() or timedelta()).total_seconds() for m in moments)

    @property
    def is_cut_short(self) -> bool:
        """Whether the last step is shorter than the others, since ``stop`` comes before its end."""
        count, unit = self._step
        start, stop = self._wall(self.start, "start"), self.edges[-1]
        if unit in ("s", "min", "h"):
            return bool((stop - self.edges[0]) % (count * _SECONDS[unit]))
        steps = self.n
        while (end := _later(start, count * steps, unit)) < stop:  # steps of no length have no bin
            steps += 1
        return bool(end > stop)

    def every(self, times: int) -> Instants:
        """Return the axis with steps ``times`` times as long."""
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


def _read(text: str, name: str) -> datetime:
    """Return a moment that is written as a year, a month, a date, or a date and a time."""
    whole = f"{text}-01-01" if re.fullmatch(r"\d{4}", text) else text
    whole = f"{whole}-01" if re.fullmatch(r"\d{4}-\d{2}", whole) else whole
    try:
        return datetime.fromisoformat(whole)
    except ValueError:
        day = re.match(r"(\d{4})-(0[1-9]|1[0-2])-(\d{2})(?!\d)", whole)
        if day and int(day[1]) and not 1 <= int(day[3]) <= (last := _days(int(day[1]), int(day[2]))):
            raise UsageError(
                f"{name}: there is no day {day[0]}; the last of that month is {day[1]}-{day[2]}-{last}."
            ) from None
        raise UsageError(f"{name} must be a date or time such as '2024-01-31', not {text!r}.") from None


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def _later(wall: datetime, steps: int, unit: str) -> float:
    """Return the same time of day, this many days, weeks, months or years later."""
    try:
        if unit in ("d", "w"):
            return _epoch(wall + timedelta(days=steps * (7 if unit == "w" else 1)))
        years, month = divmod(wall.month - 1 + steps * (12 if unit == "y" else 1), 12)
        year = wall.year + years
        last = _days(year, month + 1)
        return _epoch(wall.replace(year=year, month=month + 1, day=min(wall.day, last)))
    except (OverflowError, ValueError):  # beyond the last year of the calendar
        return math.inf


def _epoch(wall: datetime) -> int:
    """Return the seconds since 1970 of an instant, or of what a clock without a zone shows."""
    aware = wall if wall.tzinfo is not None else wall.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(seconds=1)


def time_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name in the IANA database."""
    try:
        if name == "localtime":  # whatever the machine is set to
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):  # not found, or not a valid name
        raise UsageError(
            f"there is no time zone {shown(name)}; write one like 'Europe/Berlin' or 'UTC'. If it exists, "
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
