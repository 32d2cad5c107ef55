"""Axes from plain declarations: one grammar for Python's arguments, the command line and plan files.

======================================================  =================================================
``bins = 12, range = [0, 120]``                         equal bins
``bins = [0, 18, 65, 120]``                             bins between edges
``integers = [0, 120]``                                 one bin per integer, both ends included
``log = [1, 1e6], bins = 24``                           equal ratios: the edges of ``numpy.geomspace``
``range = ["2024-01-01", "2025-01-01"],``               one bin per hour, day, week, month, quarter or year,
``every = "week", timezone = "Europe/Berlin"``          or ``"15min"``; the time zone is UTC if none is named
``categories = ["red", "green"], other = "elsewhere",`` labels, or the name of a file with one per line; with
``null = "unknown"``                                    bins for all other labels and for missing ones
``addresses = "10.0.0.0/8", prefix = 24``               one bin per prefix of a network
``codes = "[A-Z][0-9]{2}"``                             one bin per code of a form
``hashed = 30, salt = "searches of 2026"``              keys of any text, hashed into 2^30 bins
======================================================  =================================================

``declared_axis`` makes the axis, and ``declaration`` goes the other way. Nothing here looks at records.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dphist.domain.addresses import Addresses
from dphist.domain.axes import (
    Categories,
    Integers,
    Regular,
    Variable,
    as_int,
    as_number,
    check_size,
    refuse_column,
    shown,
)
from dphist.domain.codes import Codes
from dphist.domain.domain import Axis
from dphist.domain.hashed import Hashed
from dphist.domain.instants import UNITS, Instants
from dphist.errors import PrivacyError, UsageError, did_you_mean

Spell: TypeAlias = Callable[..., str]  # how a key, and values for it, are written where they come from
EVERY = {"hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "quarter": "3mo", "year": "1y"}
_TAKES = {  # the key that decides, and what goes with it
    "integers": (),
    "log": ("bins",),
    "every": ("range",),
    "categories": ("other", "null"),
    "addresses": ("prefix",),
    "codes": (),
    "hashed": ("salt",),
    "bins": ("range",),
}
KEYS = (
    *("bins", "range", "every", "integers", "log", "categories", "other", "null"),
    *("addresses", "prefix", "codes", "hashed", "salt", "timezone"),
)
_OFF_THE_DATA = ("auto", "min", "max", "data")


def in_python(key: str, *values: Any) -> str:
    """Return a key as Python writes it, with example values if any are given."""
    if not values:
        return key
    return f"{key}={values[0]!r}" if len(values) == 1 else f"{key}={values!r}"


def declared_axis(declaration: Mapping[str, Any], spell: Spell = in_python) -> Axis:
    """Return the axis that plain values declare; see the module for the keys. None stands for no value.

    >>> declared_axis({"range": ["2024-01-01", "2024-04-01"], "every": "month"}).names()
    ['2024-01', '2024-02', '2024-03']

    Args:
        spell: how keys are written in the messages of errors.
    """
    given = {key: value for key, value in declaration.items() if value is not None}
    if unknown := [key for key in given if key not in KEYS]:
        raise UsageError(f"bins have no {shown(unknown[0])}. {did_you_mean(str(unknown[0]), KEYS)}")
    kinds = [key for key in _TAKES if key in given and key != "bins"] or ["bins"]
    if len(kinds) > 1:
        raise UsageError(
            f"{spell(kinds[0])} and {spell(kinds[1])} each say what the bins are; leave one out."
        )
    kind = kinds[0]
    for key in given:
        if key not in (kind, *_TAKES[kind], "timezone"):
            _refuse_beside(key, kind, spell)
    make: dict[str, Callable[[dict[str, Any], Spell], Axis]] = {
        **{"integers": _integers, "log": _log, "every": _steps, "categories": _labels, "bins": _bins},
        **{"addresses": _addresses, "codes": _codes, "hashed": _hashed},
    }
    return make[kind](given, spell)


def make_axis(bins: Any, range: Any = None) -> Axis:
    """Return the axis that numpy's ``bins`` and ``range`` describe; an axis is returned as it is."""
    if not isinstance(bins, Axis):
        return declared_axis({"bins": bins, "range": range})
    if range is not None:
        raise UsageError("range is for a number of bins; these bins already have their ends.")
    return bins


def declaration(axis: Axis) -> dict[str, Any]:
    """Return the plain values that declare an axis: ``declared_axis(declaration(axis)) == axis``.

    >>> declaration(declared_axis({"log": [1, 1000], "bins": 3}))
    {'log': [1.0, 1000.0], 'bins': 3}
    """
    if isinstance(axis, Regular):
        return {"bins": axis.bins, "range": [axis.lo, axis.hi]}
    if isinstance(axis, Integers):
        return {"integers": [axis.low, axis.high]}
    if isinstance(axis, Addresses):
        return {"addresses": axis.network, "prefix": axis.prefix}
    if isinstance(axis, Codes):
        return {"codes": axis.pattern}
    if isinstance(axis, Hashed):
        return {"hashed": axis.bits} | ({"salt": axis.salt} if axis.salt else {})
    if isinstance(axis, Categories):
        names = axis.names()
        at = len(axis.labels)
        other = {"other": names[at]} if axis.other else {}
        return {"categories": list(axis.labels), **other, **({"null": names[-1]} if axis.null else {})}
    if isinstance(axis, Instants):
        if axis.tz is None:
            raise UsageError("bins of time are declared with a time zone; give Instants tz='UTC' or another.")
        words = {freq: word for word, freq in EVERY.items()}
        ends = [end.removesuffix("T00:00:00") for end in (axis.start, axis.stop)]
        return {"range": ends, "every": words.get(axis.freq, axis.freq), "timezone": axis.tz}
    edges: list[float] = axis.edges.tolist()
    if axis.n > 1 and edges[0] > 0 and np.array_equal(np.geomspace(edges[0], edges[-1], axis.n + 1), edges):
        return {"log": [edges[0], edges[-1]], "bins": axis.n}
    return {"bins": edges}


def sort_other(
    categories: object, other: str | None, group_other: str | None
) -> tuple[str | None, str | None]:
    """Return what ``other`` means beside groups: a bin of the labels, or else the group of all others."""
    if categories is None and group_other is None:
        return None, other
    return other, group_other


def refuse_own_labels(data: object, *lists: object) -> None:
    """Refuse labels, or a prior, that are the file of the records itself, which would publish them."""
    if not isinstance(data, str | os.PathLike):
        return
    for listed in lists:
        if not isinstance(listed, str | os.PathLike):
            continue
        try:
            is_same = Path(listed).samefile(data)
        except (OSError, ValueError):  # one of them is no file
            continue
        if is_same:
            raise PrivacyError(
                f"{os.fspath(listed)} holds the records, and what is read off them would be published as it "
                "is. Write labels or a prior from public knowledge, in a file of their own."
            )


def _lines(path: str | os.PathLike[str], what: str) -> list[str]:
    """Return the lines of a file of public labels, blank ones too."""
    try:
        return Path(path).read_text("utf-8-sig").split("\n")  # labels may hold any other separator
    except OSError as error:
        raise UsageError(
            f"the {what} cannot be read from {os.fspath(path)}: {error.strerror}. Give a file with one on "
            "each line, or in Python a list."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{os.fspath(path)} is not UTF-8; save the list of {what} as UTF-8.") from None
    except ValueError:  # a NUL in its name
        raise UsageError(f"the {what} cannot be read from a file of that name.") from None


def read_lines(path: str | os.PathLike[str], what: str) -> list[tuple[int, str]]:
    """Return the lines of a file of public labels that are not blank, with their numbers."""
    return [(at, line) for at, line in enumerate(_lines(path, what), 1) if line.strip()]


def _refuse_beside(key: str, kind: str, spell: Spell) -> None:
    if key == "range":
        raise UsageError(
            f"{spell('range')} goes with a number of {spell('bins')} or with {spell('every')}; "
            f"{spell(kind)} already says where the bins are."
        )
    if key in ("other", "null"):
        raise UsageError(
            f"{spell('other')} and {spell('null')} name bins beside those of {spell('categories')}; "
            "leave them out, or declare labels."
        )
    if key == "prefix":
        raise UsageError(f"{spell('prefix')} goes with {spell('addresses')}; leave it out.")
    if key == "salt":
        raise UsageError(f"{spell('salt')} goes with {spell('hashed')}; leave it out.")
    raise UsageError(f"{spell(key)} and {spell(kind)} each say what the bins are; leave one out.")


def _bins(given: dict[str, Any], spell: Spell) -> Axis:
    """Equal bins, or edges: numpy's."""
    bins, range = given.get("bins"), given.get("range")
    if bins is None:
        if _dated(range):
            raise UsageError(
                f"{spell('range')} has dates: say how long a bin is, such as {spell('every', 'week')}."
            )
        raise UsageError(
            f"{spell('bins')} is needed, or another word for what the bins are: "
            f"{spell('bins', 12)} with {spell('range', 0, 120)}; edges; {spell('integers', 0, 120)}; "
            f"{spell('log', 1, 1000)} with {spell('bins', 6)}; {spell('every', 'week')} with a range of "
            f"dates; or {spell('categories')}."
        )
    if isinstance(bins, str):
        raise PrivacyError(
            f"{spell('bins')} {shown(bins)} would be computed from the data, which leaks; give a number "
            "or edges."
        )
    if isinstance(bins, Iterable) and not (isinstance(bins, np.ndarray) and bins.ndim == 0):
        if range is not None:
            two = isinstance(range, Sequence) and any(isinstance(end, Sequence | np.ndarray) for end in range)
            more = " Two columns are a grid: histogram2d." if two else ""
            raise UsageError(
                f"{spell('range')} goes with a number of {spell('bins')}; edges have their ends.{more}"
            )
        refuse_column(bins, "edges")
        return Variable(bins)  # type: ignore[arg-type]
    number = as_int(bins, spell("bins"))
    if range is None:
        raise UsageError(
            f"{spell('range')} is needed with a number of {spell('bins')}. {_how_to_choose(spell)}"
        )
    lo, hi = _ends(range, "range", spell)
    if _dated((lo, hi)):
        raise UsageError(
            f"{spell('range')} has dates: say how long a bin is, such as {spell('every', 'week')}, instead "
            f"of {spell('bins')}."
        )
    lo, hi = (as_number(end, f"an end of {spell('range')}") for end in (lo, hi))
    return Regular(lo=lo, hi=hi, bins=number)


def _integers(given: dict[str, Any], spell: Spell) -> Axis:
    ends = _ends(given["integers"], "integers", spell)
    return Integers(*(as_int(end, f"an end of {spell('integers')}") for end in ends))


def _addresses(given: dict[str, Any], spell: Spell) -> Axis:
    if "prefix" not in given:
        raise UsageError(
            f"{spell('addresses')} needs {spell('prefix')}, how many bits of an address a bin shares, such "
            f"as {spell('prefix', 24)}."
        )
    return Addresses(given["addresses"], as_int(given["prefix"], spell("prefix")))


def _codes(given: dict[str, Any], spell: Spell) -> Axis:
    return Codes(given["codes"])


def _hashed(given: dict[str, Any], spell: Spell) -> Axis:
    return Hashed(as_int(given["hashed"], spell("hashed")), given.get("salt", ""))


def _log(given: dict[str, Any], spell: Spell) -> Axis:
    lo, hi = (as_number(end, f"an end of {spell('log')}") for end in _ends(given["log"], "log", spell))
    if "bins" not in given:
        raise UsageError(
            f"{spell('log')} needs {spell('bins')}, the number of bins, such as {spell('bins', 24)}."
        )
    if isinstance(given["bins"], Iterable):
        raise UsageError(f"{spell('log')} takes a number of {spell('bins')}; edges need no {spell('log')}.")
    bins = as_int(given["bins"], spell("bins"))
    if not lo > 0:
        raise UsageError(
            f"{spell('log')} needs ends above 0, for {lo:g} has no logarithm. Begin at the least value that "
            f"matters, such as 1: records below it are dropped, or with {spell('outside', 'clip')} counted "
            "in the first bin."
        )
    if not lo < hi:
        raise UsageError(
            f"{spell('log')} must increase: {lo:g} is not below {hi:g}. Give the smaller end first."
        )
    if bins < 1:
        raise UsageError(f"{spell('bins')} must be at least 1, not {bins}.")
    check_size(bins)
    if math.log(hi / lo) / bins <= 8 * np.finfo(np.float64).eps:
        raise UsageError(f"{bins} bins between {lo:g} and {hi:g} are finer than double precision.")
    return Variable(np.geomspace(lo, hi, bins + 1))


def _steps(given: dict[str, Any], spell: Spell) -> Axis:
    if "range" not in given:
        raise UsageError(
            f"{spell('every')} needs {spell('range')}: the first day and the day after the last, such as "
            f"{spell('range', '2024-01-01', '2025-01-01')}."
        )
    start, stop = _ends(given["range"], "range", spell)
    for end in (start, stop):
        if not _is_date(end):
            raise UsageError(
                f"{spell('every')} makes bins of time: {spell('range')} needs two dates, such as "
                f"{spell('range', '2024-01-01', '2025-01-01')}, not {shown(end)}."
            )
    every = given["every"]
    freq = EVERY.get(every, every) if isinstance(every, str) else every
    if not isinstance(freq, str) or not re.fullmatch(rf"[1-9]\d{{0,8}}({'|'.join(UNITS)})", freq):
        near = did_you_mean(every, EVERY) if isinstance(every, str) else ""
        raise UsageError(
            f"{spell('every')} is one of {', '.join(EVERY)}, or a number with one of {' '.join(UNITS)} such "
            f"as 15min; not {shown(every)}. {near if 'mean' in near else ''}".rstrip()
        )
    return Instants(start, stop, freq, given.get("timezone", "UTC"))


def _labels(given: dict[str, Any], spell: Spell) -> Axis:
    labels = given["categories"]
    if isinstance(labels, str | os.PathLike):
        labels = _from_file(labels, spell)
    elif not isinstance(labels, Iterable):
        raise UsageError(f"{spell('categories')} must be a list of labels, or a file with one per line.")
    for key in ("other", "null"):
        if key in given and (not isinstance(given[key], str | bool) or given[key] == ""):
            raise UsageError(f"{spell(key)} is the label of a bin, not {shown(given[key])}.")
    refuse_column(labels, "labels")
    return Categories(tuple(labels), given.get("other", False), given.get("null", False))


def _from_file(path: str | os.PathLike[str], spell: Spell) -> list[str]:
    """Return the labels of a file, each once."""
    if not Path(path).exists():
        alone = spell("categories", '"' + os.fspath(path) + '"') if spell is not in_python else "a list of it"
        raise UsageError(
            f"{spell('categories')}: there is no file {shown(os.fspath(path))}. Name a file of public "
            f"labels, one per line, or list the labels; a single label is given as {alone}."
        )
    labels = [line for line in _lines(path, "labels") if line.strip()]
    if not labels:
        raise UsageError(f"{os.fspath(path)} has no labels; write one per line.")
    if len({*labels}) < len(labels):
        first: dict[str, int] = {}
        lines = read_lines(path, "labels")
        at, label = next((at, label) for at, label in lines if first.setdefault(label, at) != at)
        raise UsageError(
            f"line {at} of {os.fspath(path)} repeats the label of line {first[label]}; remove one."
        )
    return labels


def _is_scalar(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0


def _ends(value: Any, key: str, spell: Spell) -> tuple[Any, Any]:
    """Return two ends, which do not come from the data."""
    if isinstance(value, str):
        raise PrivacyError(
            f"{spell(key)} {shown(value)} would be read off the data, which leaks a record. "
            f"{_how_to_choose(spell)}"
        )
    if not isinstance(value, Sequence | np.ndarray) or _is_scalar(value) or len(value) != 2:
        raise UsageError(
            f"{spell(key)} must be two numbers or dates, for example {spell(key, 0, 120)}, not "
            f"{shown(value)}."
        )
    for end in value:
        if isinstance(end, str) and re.match(r"\d{1,2}[./]\d{1,2}[./]|\d{4}[./]\d", end):
            raise UsageError(f"{spell(key)}: dates are written as 2024-01-31, not {shown(end)}.")
        if isinstance(end, str) and end.casefold() in _OFF_THE_DATA:
            raise PrivacyError(
                f"{spell(key)} {end} would be read off the data, which leaks a record. "
                f"{_how_to_choose(spell)}"
            )
    return value[0], value[1]


def _how_to_choose(spell: Spell) -> str:
    return (
        f"Give the possible values, for example {spell('range', 0, 120)} for ages, from public knowledge: a "
        "form's limits, a code book, a law of nature; never the minimum and maximum of the data. "
        f"Records outside are dropped, or counted in the end bins with {spell('outside', 'clip')}."
    )


def _is_date(end: object) -> bool:
    return isinstance(end, date | np.datetime64) or (
        isinstance(end, str) and re.match(r"\d{4}(-|$)|\d{8}(T|$)", end) is not None
    )


def _dated(ends: object) -> bool:
    return isinstance(ends, Sequence) and not isinstance(ends, str) and any(map(_is_date, ends))
