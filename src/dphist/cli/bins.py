"""The bins of a plan, from the options of the command line."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from dphist.cli.common import to_float, to_whole
from dphist.errors import PrivacyError, UsageError


def check_flags(
    column: str | None,
    y_column: str | None,
    y_bins: str | None,
    y_range: tuple[str, str] | None,
) -> None:
    """Refuse options that contradict each other, naming them as on the command line."""
    if column is None:
        raise UsageError("--column is needed: the column to count, or an SQL expression of columns.")
    grid = {"--y-column": y_column, "--y-bins": y_bins, "--y-range": y_range}
    missing = [flag for flag, value in grid.items() if value is None]
    if missing and len(missing) < len(grid):
        raise UsageError(f"a grid needs --y-column, --y-bins and --y-range; add {' and '.join(missing)}.")


def make_bins(
    bins: str | None,
    span: tuple[str, str] | None,
    categories: str | None,
    y_bins: str | None,
    y_span: tuple[str, str] | None,
) -> dict[str, Any]:
    """Return the bins of a plan from the options that were given."""
    from dphist.domain import Domain, make_axis

    given = [o for o, v in (("--bins", bins), ("--categories", categories)) if v]
    if len(given) != 1:
        raise UsageError(
            "say what the bins are with exactly one of --bins N --range LO HI, --bins EDGES or --categories"
            + (f"; you gave {' and '.join(given)}." if given else ".")
        )
    edges = bins if bins and "," in bins else None
    if span is None and bins and not edges:
        raise UsageError(
            "--range LO HI is needed with --bins: the smallest and largest possible value, from public "
            "knowledge, such as --range 0 120. A range read off the data would leak a record."
        )
    if span is not None and (edges or categories):
        what = f"{given[0]} {edges or categories}"
        raise UsageError(f"--range goes with a number of --bins; {what} already says where the bins are.")
    if edges:
        x: dict[str, Any] = {"bins": [to_float(e, "--bins") for e in _row(edges, "--bins")]}
    elif categories:
        x = {"categories": _row(categories, "--categories")}
    else:
        x = {"bins": to_whole(bins or "", "--bins"), "range": _span(span)}
    if y_bins is None:
        return x
    if "categories" in x:
        raise UsageError(
            "a grid on the command line needs numeric bins; histogram2d in Python has labels too."
        )
    y = make_axis(to_whole(y_bins, "--y-bins"), _span(y_span))
    return {"bins": Domain((make_axis(x["bins"], x.get("range")), y))}


def make_groups(
    by: str | None, groups: str | None, other: str | None, importances: list[str] | None
) -> dict[str, Any]:
    """Return what a plan by group needs besides; nothing if no option asks for groups."""
    if by is None:
        if groups or other or importances:
            raise UsageError("--groups, --other and --importance go with --by, the column of groups.")
        return {}
    if groups is None:
        raise UsageError(
            "--by needs --groups: a file of all groups, one per line, from public knowledge. Groups that are "
            "read off the data would tell who is in it."
        )
    names = _row(by, "--by")
    is_file = Path(groups).exists() or "," not in groups
    weights = dict(_weight(text) for text in importances or ())
    return {
        "by": names[0] if len(names) == 1 else tuple(names),
        "groups": groups if is_file else _row(groups, "--groups"),
        "other": other,
        "importances": weights or None,
    }


def _weight(text: str) -> tuple[str, float]:
    level, found, weight = text.rpartition("=")
    if not found:
        raise UsageError(f"--importance takes a level and a number, such as region=0.1, not {text!r}.")
    return level, to_float(weight, "--importance")


def _row(text: str, name: str) -> list[str]:
    """Return the cells of one line of CSV; blanks count inside quotes only."""
    tight = re.sub(r'("(?:[^"]|"")*")|\s*,\s*', lambda found: found[1] or ",", text.strip())
    try:
        (cells,) = csv.reader([tight], strict=True)
    except (csv.Error, ValueError):
        raise UsageError(
            f'{name} is a line of CSV, such as red,green,"blue, dark"; the quotes of {text!r} do not match.'
        ) from None
    if "" in cells and '""' not in tight:
        raise UsageError(f'{name} has a comma too many: {text!r}. An empty label is written "".')
    return cells


def _span(span: tuple[str, str] | None) -> tuple[float, float] | None:
    return None if span is None else (_end(span[0]), _end(span[1]))


def _end(text: str) -> float:
    if text.casefold() in {"auto", "min", "max", "data"}:
        raise PrivacyError(
            f"--range {text} would be read off the data, which leaks a record. Give two numbers from public "
            "knowledge: a form's limits, a law, a code book. Records beyond them are dropped, or counted in "
            "the end bins with --outside clip."
        )
    if re.match(r"[0-9]{4}-[0-9]{2}|[0-9]{1,2}[./][0-9]{1,2}[./]", text):
        raise UsageError(
            f"--range takes numbers, not the date {text!r}. Bins of time are made in Python: "
            'bins=dphist.Instants("2024-01-01", "2025-01-01", freq="1mo"). Or count a number of the '
            "date, such as --column 'EXTRACT(MONTH FROM visited)' --bins 12 --range 1 13."
        )
    return to_float(text, "--range")
