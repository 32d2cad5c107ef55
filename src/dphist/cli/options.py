"""The options that several commands share, in bundles: a command takes a bundle as one parameter.

``@bundled`` gives the command the options of each bundle among its parameters, one by one::

    @bundled
    def publish(data: Data, axes: Axes, reading: Reading, person: Person) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

DATA, BINS, PRIVACY, OUTPUT = "Data", "Bins", "Privacy", "Output"  # the panels of a command's help


def option(panel: str, help: str, metavar: str | None = None, *names: str, hidden: bool = False) -> Any:
    """Return an option of a panel; defaults are said in its text."""
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, hidden=hidden
    )


def _y(of: str, metavar: str | None = None) -> Any:
    """Return an option of a grid's second axis, which is as that of the first."""
    return option(BINS, f"As --{of}, for --y-column.", metavar, hidden=True)


Word: TypeAlias = str | None
Pair: TypeAlias = tuple[str, str] | None
Data = Annotated[
    str,
    typer.Argument(help="A file, glob, folder, or - (standard input)"),
]


@dataclass(frozen=True, kw_only=True)
class Axes:
    """What is counted, and into which bins: `dphist.domain.declare` on the command line."""

    column: Annotated[Word, option(DATA, "Column to count, or an SQL expression.", "NAME")] = None
    bins: Annotated[Word, option(BINS, "Number of equal bins, or edges: 0,18,65,120", "N")] = None
    range: Annotated[Pair, option(BINS, "Least and greatest possible value; public.", "LO HI")] = None
    every: Annotated[Word, option(BINS, "Bins of time: hour, day, week, month, ...", "STEP")] = None
    integers: Annotated[Pair, option(BINS, "A bin per integer, both ends included.", "LO HI")] = None
    log: Annotated[Pair, option(BINS, "--bins of equal ratio, such as --log 1 1e6.", "LO HI")] = None
    categories: Annotated[Word, option(BINS, "Labels: A,B,C or a file, one per line.", "LABELS")] = None
    other: Annotated[Word, option(BINS, "A bin for other labels; --null: without any.", "LABEL")] = None
    null: Annotated[
        Word, option(BINS, "A bin for records without a label; its name.", "LABEL", hidden=True)
    ] = None
    addresses: Annotated[Word, option(BINS, "IP network, with --prefix; --codes, --hashed", "NET")] = None
    prefix: Annotated[Word, option(BINS, "Length of a bin's prefix.", "N", hidden=True)] = None
    codes: Annotated[Word, option(BINS, "A bin per code: '[A-Z][0-9]{2}'", "FORM", hidden=True)] = None
    hashed: Annotated[Word, option(BINS, "2^BITS bins of hashed keys.", "BITS", hidden=True)] = None
    salt: Annotated[Word, option(BINS, "Public text of the hash.", "TEXT", hidden=True)] = None
    timezone: Annotated[Word, option(BINS, "Of times: UTC (default), Europe/Berlin, ...", "ZONE")] = None
    y_column: Annotated[Word, option(BINS, "Second axis; also --y-bins, --y-every, ...", "NAME")] = None
    y_bins: Annotated[Word, _y("bins", "N")] = None
    y_range: Annotated[Pair, _y("range", "LO HI")] = None
    y_every: Annotated[Word, _y("every", "STEP")] = None
    y_integers: Annotated[Pair, _y("integers", "LO HI")] = None
    y_log: Annotated[Pair, _y("log", "LO HI")] = None
    y_categories: Annotated[Word, _y("categories", "LABELS")] = None
    y_other: Annotated[Word, _y("other", "LABEL")] = None
    y_null: Annotated[Word, _y("null", "LABEL")] = None
    y_addresses: Annotated[Word, _y("addresses", "NET")] = None
    y_prefix: Annotated[Word, _y("prefix", "N")] = None
    y_codes: Annotated[Word, _y("codes", "FORM")] = None
    y_hashed: Annotated[Word, _y("hashed", "BITS")] = None
    y_salt: Annotated[Word, _y("salt", "TEXT")] = None


@dataclass(frozen=True, kw_only=True)
class Groups:
    """One histogram for each of some groups."""

    by: Annotated[Word, option(BINS, "A histogram per group: column, or levels.", "COLUMN")] = None
    groups: Annotated[Word, option(BINS, "The groups: A,B,C or a file, one per line.", "FILE")] = None
    group_other: Annotated[Word, option(BINS, "A group for all others.", "LABEL")] = None
    importance: Annotated[
        list[str] | None, option(BINS, "Weight of a level's errors; or points, totals.", "LEVEL=W")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which records are counted, and how they are read."""

    where: Annotated[Word, option(DATA, "Count only records that meet this condition.", "SQL")] = None
    table: Annotated[Word, option(DATA, "Table or SELECT, if DATA is a database.", "NAME")] = None
    format: Annotated[Word, option(DATA, "Of standard input: csv (default), tsv, jsonl.", "NAME")] = None
    encoding: Annotated[str, option(DATA, "Of text; latin-1, utf-16, ... Default: utf-8.", "NAME")] = "utf-8"
    decimal: Annotated[str, option(DATA, "Decimal mark in CSV: . (default) or ,", "MARK")] = "."
    well_formed: Annotated[
        bool, option(DATA, "A correct program wrote every record.", None, "--well-formed")
    ] = False
    outside: Annotated[str, option(DATA, "Records beyond the range: drop (default) or clip.", "HOW")] = "drop"


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who is protected."""

    unit: Annotated[Word, option(PRIVACY, "Column of the person who is protected.", "COLUMN")] = None
    max_contributions: Annotated[int, option(PRIVACY, "Records counted per person; default 1.", "N")] = 1


@dataclass(frozen=True, kw_only=True)
class Looks:
    """The words and the size of a picture."""

    title: Annotated[str, option(OUTPUT, "Of the picture; also --xlabel, --ylabel, --size", "TEXT")] = ""
    xlabel: Annotated[str, option(OUTPUT, "Name of the axis of the bins.", "TEXT", hidden=True)] = ""
    ylabel: Annotated[str, option(OUTPUT, "Name of the other axis.", "TEXT", hidden=True)] = ""
    size: Annotated[
        tuple[float, float] | None,
        option(OUTPUT, "Of the whole picture, in pixels: 900 400", "WIDTH HEIGHT", hidden=True),
    ] = None


def bundled(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose bundles are spread out into their options."""
    hints = get_type_hints(command, include_extras=True)
    spread: list[inspect.Parameter] = []
    bundles: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            spread.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
            continue
        bundles[name] = kind
        inner = get_type_hints(kind, include_extras=True)
        spread += [
            inspect.Parameter(
                f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=inner[f.name]
            )
            for f in fields(kind)
        ]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in bundles.items()
        }
        command(**given, **made)

    call.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return call
