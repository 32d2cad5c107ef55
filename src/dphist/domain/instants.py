"""Bins of time: one per microsecond, second, hour, day, week, month, ..., in a named time zone."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.axes import MAX_BINS, MOST_BINS, Outside, check_size, refuse_to_list, shown
from dphist.domain.groups import frozen
from dphist.errors import UsageError

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_ELAPSED = {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6}  # in microseconds
_LENGTHS = {"Y": 366 * 86_400, "M": 31 * 86_400, "W": 7 * 86_400, "D": 86_400, "h": 3600, "m": 60, "s": 1}
UNITS = (*_ELAPSED, "d", "w", "mo", "y")  # of steps
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
            the second; for steps of ``ms`` or ``us`` to the microsecond. They are kept as text.
        freq: a number and one of ``us ms s min h d w mo y``. Hours and less are elapsed time; days and more
            follow the calendar, so that a local day may have 23 or 25 hours and a month has its own length.
            Steps of ``us`` or ``ms``, and more than 2**27 steps, need the time zone UTC or none.
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
        self.step  # noqa: B018 - a wrong freq and a wrong zone are refused here
        self._zone  # noqa: B018
        for name in ("start", "stop"):
            wall = self._wall(getattr(self, name), name)
            # The offset is written only where the clock is ambiguous: in the hour that it runs through twice.
            text = wall.isoformat() if wall.fold else wall.replace(tzinfo=None).isoformat()
            object.__setattr__(self, name, text)
        first, last = (_epoch(self._wall(text, "")) for text in (self.start, self.stop))
        if not first < last:
            raise UsageError(f"an Instants axis must increase: {self.start} is not before {self.stop}.")
        if self.ticks is not None:
            if self.tz not in (None, "UTC"):
                raise UsageError(
                    f"steps of {self.freq} from {self.start} to {self.stop} are too fine to follow the clock "
                    f"of {self.tz}: name the time zone UTC, or take longer steps."
                )
            # Edges that are listed are seconds in doubles, which tell such steps apart near 1970 alone.
            far = max(abs(first), abs(last)) / 1e6
            if self.n <= MAX_BINS and self.ticks[2] < 2e6 * float(np.spacing(far)):
                raise UsageError(
                    f"steps of {self.freq} are too fine so far from 1970: take longer ones, or more than "
                    f"{MAX_BINS:,} bins."
                )
            return
        count, unit = self.step
        seconds = count * (_SECONDS.get(unit) or 28 * 86_400)
        check_size((last - first) // (seconds * 10**6))

    @cached_property
    def ticks(self) -> tuple[int, int, int] | None:
        """The start, the end and a step in microseconds since 1970, where the bins are too fine or too many
        for a list of edges; else None.
        """
        count, unit = self.step
        if unit not in _ELAPSED:
            return None
        first, end = (_epoch(self._wall(text, "")) for text in (self.start, self.stop))
        step = count * _ELAPSED[unit]
        bins = -((first - end) // step)
        check_size(bins, MOST_BINS)
        return (first, end, step) if unit in ("us", "ms") or bins > MAX_BINS else None

    @property
    def n(self) -> int:
        if self.ticks is None:
            return self.edges.size - 1
        first, end, step = self.ticks
        return -((first - end) // step)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The edges in seconds since 1970 (UTC; without a time zone, of the clock itself)."""
        if self.ticks is not None:
            refuse_to_list(self.n)
            first, end, step = self.ticks
            return frozen(np.append(np.arange(first, end, step), end) / 1e6)
        start, stop = (_epoch(self._wall(text, "")) // 10**6 for text in (self.start, self.stop))
        count, unit = self.step
        if unit in ("s", "min", "h"):
            inner: list[float] | NDArray[np.int64] = np.arange(start, stop, count * _SECONDS[unit])
        else:
            inner, wall = [], self._wall(self.start, "start")
            while (at := _later(wall, count * len(inner), unit)) < stop:
                inner.append(at)
        # A day that the calendar of a place left out has no bin.
        return frozen(np.unique(np.append(inner, stop)).astype(np.float64))

    @cached_property
    def clock(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What the clock showed at the edges, rising, and the bin that begins there; the end comes last."""
        if self.ticks is not None:
            return self.edges, np.arange(self.n + 1)
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
        if cells.dtype.kind == "M":
            known, aware = ~np.isnat(cells), np.zeros(cells.size, dtype=np.bool_)
            micros = _microseconds_of(cells)
        else:
            found = [_moment(v) for v in cells.tolist()]
            known = np.array([at is not None for at, _ in found], dtype=np.bool_)
            aware = np.array([zoned for _, zoned in found], dtype=np.bool_)
            micros = np.array([at or 0 for at, _ in found], dtype=np.int64)
        if self.tz is None:  # an instant has no place on a clock without a zone
            known &= ~aware
        if self.ticks is not None:
            return self._index_ticks(*self.ticks, micros, known, outside)
        edges, bins = self.clock
        seconds = np.where(known, micros // 10**6, math.nan)
        whole_edges = self.edges, np.arange(self.n + 1)
        by_clock = _index_below(edges, bins, seconds, outside)
        return np.where(aware, _index_below(*whole_edges, seconds, outside), by_clock)

    def _index_ticks(
        self,
        first: int,
        end: int,
        step: int,
        micros: NDArray[np.int64],
        known: NDArray[np.bool_],
        outside: Outside,
    ) -> NDArray[np.int64]:
        if outside == "clip":
            micros = np.clip(micros, first, end - 1)
        known = known & (micros >= first) & (micros < end)
        return np.where(known, (np.where(known, micros, first) - first) // step, -1)

    def cut(self, value: object) -> int:
        """Return which edge an instant is, given as ``start`` and ``stop`` may be."""
        at = _epoch(self._wall(value, "an end of the query"))
        if self.ticks is not None:
            first, end, step = self.ticks
            i = self.n + 1 if at > end else max(-((first - at) // step), 0)
        else:
            i = int(np.searchsorted(self.edges, at / 10**6))
        if i <= self.n and self._tick(i) == at:
            return i
        if i == 0 or i > self.n:
            ends = f"{self._name(self._tick(0))} to {self._name(self._tick(self.n))}"
            raise UsageError(f"{value} lies outside the domain, which runs from {ends}.")
        raise UsageError(
            f"{value} lies inside a bin, where nothing was measured: "
            f"ask at its edges, {self._name(self._tick(i - 1))} or {self._name(self._tick(i))}."
        )

    def _tick(self, i: int) -> int:
        """Return an edge in microseconds since 1970."""
        if self.ticks is None:
            return int(self.edges[i]) * 10**6
        first, end, step = self.ticks
        return min(first + int(i) * step, end)

    def to_dict(self) -> dict[str, Any]:
        own = {"start": self.start, "stop": self.stop, "freq": self.freq, "tz": self.tz}
        return {"kind": self.kind, **own, "closure": "left-closed"}

    def names(self) -> list[str]:
        refuse_to_list(self.n)
        return [self.name(i) for i in range(self.n)]

    def name(self, bin: int) -> str:
        """Return when a bin begins."""
        return self._name(self._tick(bin))

    @cached_property
    def step(self) -> tuple[int, str]:
        """How long a bin lasts: a number, and one of `UNITS`."""
        found = (
            re.fullmatch(rf"([1-9]\d{{0,8}})({'|'.join(UNITS)})", self.freq)
            if isinstance(self.freq, str)
            else None
        )
        if found is None:
            raise UsageError(
                f"freq must be a number and one of {', '.join(UNITS)}, such as '1h' or '1mo'; "
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
        is_fine = self.step[1] in ("us", "ms")
        if getattr(value, "nanosecond", 0) or (value.microsecond and not is_fine):
            raise UsageError(f"{name} must be a whole {'micro' if is_fine else ''}second, not {value!s}.")
        if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            raise UsageError(f"{name} must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}, not {value!s}.")
        plain = datetime(
            *(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond),
            fold=value.fold,
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
        count, unit = self.step
        if self.ticks is not None:
            first, last, step = self.ticks
            return (last - first) % step > 0
        start, stop = self._wall(self.start, "start"), self.edges[-1]
        if unit in ("s", "min", "h"):
            return bool((stop - self.edges[0]) % (count * _SECONDS[unit]))
        steps = self.n
        while (end := _later(start, count * steps, unit)) < stop:  # steps of no length have no bin
            steps += 1
        return bool(end > stop)

    def every(self, times: int) -> Instants:
        """Return the axis with steps ``times`` times as long."""
        count, unit = self.step
        return Instants(self.start, self.stop, f"{count * times}{unit}", self.tz)

    def moment(self, seconds: float) -> str:
        """Return what the axis's clock shows at an instant in seconds since 1970: its midnights as dates."""
        return self._written([round(seconds) * 10**6 if self.ticks is None else round(seconds * 1e6)])[0]

    def moments(self) -> list[str]:
        """Return what the clock shows at the edges: dates, if days or longer steps begin at midnight."""
        refuse_to_list(self.n)
        return self.edge_names(range(self.n + 1))

    def edge_names(self, which: Iterable[int]) -> list[str]:
        """Return what the clock shows at some edges, all written alike."""
        return self._written([self._tick(i) for i in which])

    def seconds(self, i: int) -> float:
        """Return one edge in seconds since 1970."""
        return self._tick(i) / 10**6

    def edge_name(self, i: int) -> str:
        """Return what the clock shows at one edge."""
        return self.moments()[i] if self.ticks is None else self._name(self._tick(i))

    def _written(self, micros: list[int]) -> list[str]:
        """Return instants, all written alike."""
        walls = [self._clock(at) for at in micros]
        if self.tz in (None, "UTC"):
            walls = [wall.replace(tzinfo=None) for wall in walls]
        if self.step[1] in ("d", "w", "mo", "y") and all(wall.time() == time() for wall in walls):
            return [wall.date().isoformat() for wall in walls]
        if any(wall.microsecond for wall in walls):
            return [wall.isoformat(" ", _fraction(walls)) for wall in walls]
        precision = "seconds" if any(wall.second for wall in walls) else "minutes"
        return [wall.isoformat(" ", precision) for wall in walls]

    def _clock(self, at: int) -> datetime:
        """Return what the clock shows at an instant in microseconds since 1970."""
        return (_EPOCH + timedelta(microseconds=at)).astimezone(self._zone or UTC)

    def _name(self, at: int) -> str:
        wall = self._clock(at)
        _, unit = self.step
        if unit in _ELAPSED or not self.start.endswith("T00:00:00"):
            shown = wall if self.tz not in (None, "UTC") else wall.replace(tzinfo=None)
            if unit == "us" or wall.microsecond:
                return shown.isoformat(" ", "microseconds" if unit == "us" else _fraction([wall]))
            if unit == "ms":
                return shown.isoformat(" ", "milliseconds")
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
            return _epoch(wall + timedelta(days=steps * (7 if unit == "w" else 1))) // 10**6
        years, month = divmod(wall.month - 1 + steps * (12 if unit == "y" else 1), 12)
        year = wall.year + years
        last = _days(year, month + 1)
        return _epoch(wall.replace(year=year, month=month + 1, day=min(wall.day, last))) // 10**6
    except (OverflowError, ValueError):  # beyond the last year of the calendar
        return math.inf


def _epoch(wall: datetime) -> int:
    """Return the microseconds since 1970 of an instant, or of what a clock without a zone shows."""
    aware = wall if wall.tzinfo is not None else wall.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _fraction(walls: list[datetime]) -> str:
    return "microseconds" if any(wall.microsecond % 1000 for wall in walls) else "milliseconds"


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


def _moment(value: object) -> tuple[int | None, bool]:
    """Return a value's microseconds since 1970, None for none, and whether it has a zone."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None, False
    try:
        if isinstance(value, np.datetime64):
            return None if np.isnat(value) else _microseconds_of(np.array([value])).item(), False
        if isinstance(value, datetime):
            return (_epoch(value) if value == value else None), value.tzinfo is not None  # NaT is not itself
        if isinstance(value, date):
            return (value - _EPOCH.date()).days * 86_400 * 10**6, False
    except Exception:  # whatever the value's own time zone raises
        return None, False
    return None, False  # one odd value must not stop the others


def _microseconds_of(cells: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Return microseconds since 1970, anything for none; numpy's conversion wraps around far from there."""
    unit, step = np.datetime_data(cells.dtype)
    # At most 2**62 microseconds, which no axis reaches.
    each = _ELAPSED[unit] if unit in ("us", "ms") else _LENGTHS.get(unit, 0) * 10**6
    # At either end of what nanoseconds reach numpy rounds beyond it.
    far = 2**62 // (step * each) if each else 2**63 - 10**9
    moved = np.clip(cells.view(np.int64), -far, far).view(cells.dtype)
    if unit in ("fs", "as"):  # no factor leads from these to coarser units
        moved = moved.astype("datetime64[ns]")
    return moved.astype("datetime64[us]").astype(np.int64)


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
