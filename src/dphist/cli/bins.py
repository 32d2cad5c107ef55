"""The bins of a plan, from the options of the command line."""

from __future__ import annotations

import csv
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphist.cli.common import say, to_float, to_whole
from dphist.errors import UsageError

if TYPE_CHECKING:
    from dphist.cli.options import Axes, Groups
    from dphist.domain import Domain
    from dphist.domain.declare import Spell

_OF_AN_AXIS = (
    *("bins", "range", "every", "integers", "log", "categories", "other", "null"),
    *("addresses", "prefix", "codes", "hashed", "salt"),
)


def check_columns(axes: Axes) -> None:
    """Refuse bins without the columns that are to be counted."""
    if axes.column is None:
        raise UsageError("--column is needed: the column to count, or an SQL expression of columns.")
    if axes.y_column is None and _declared(axes, "y_"):
        raise UsageError(f"--y-column is needed with {flags(axes, 'y_')[0]}: the second column of a grid.")


def make_bins(axes: Axes) -> dict[str, Any]:
    """Return the domain, the columns and the time zone of a plan."""
    grid = axes.column is not None and axes.y_column is not None
    return {
        "bins": make_domain(axes),
        "column": (axes.column, axes.y_column) if grid else axes.column,
        "timezone": axes.timezone,
    }


def make_domain(axes: Axes) -> Domain:
    """Return the bins that the options declare; a grid, if any of them is about a second axis."""
    from dphist.domain import Domain, declared_axis

    grid = axes.y_column is not None or _declared(axes, "y_")
    return Domain(
        tuple(
            declared_axis(_declaration(axes, prefix), _spelled(prefix))
            for prefix in (("", "y_") if grid else ("",))
        )
    )


def make_groups(groups: Groups, axes: Axes) -> tuple[dict[str, Any], Axes]:
    """Return what a plan by group needs besides, if anything, and the options of its bins."""
    from dphist.domain.declare import sort_other

    if groups.by is None:
        if groups.groups or groups.group_other or groups.importance:
            raise UsageError("--groups, --group-other and --importance go with --by, the column of groups.")
        return {}, axes
    if groups.groups is None:
        raise UsageError(
            "--by needs --groups: a file of all groups, one per line, from public knowledge. Groups that are "
            "read off the data would tell who is in it."
        )
    other, group_other = sort_other(axes.categories, axes.other, groups.group_other)
    names = _row(groups.by, "--by")
    return {
        "by": names[0] if len(names) == 1 else tuple(names),
        "groups": _labels(groups.groups, "--groups"),
        "group_other": group_other,
        "importances": _importances(groups.importance or []),
    }, replace(axes, other=other)


def say_what_is_short(domain: Domain) -> None:
    """Tell of a last bin of time that is shorter than the others."""
    for axis in domain.axes:
        if axis.kind == "instants" and axis.is_cut_short:  # type: ignore[union-attr]
            end, last = axis.edge_name(axis.n), axis.name(axis.n - 1)  # type: ignore[union-attr]
            say(f"note: the last bin, {last}, is shorter than the others: --range ends at {end}.")


def words(bundle: Any) -> list[str]:
    """Return the options of a bundle as they are written on the command line, those that were given."""
    said: list[str] = []
    for field in fields(bundle):
        value, flag = getattr(bundle, field.name), f"--{field.name.replace('_', '-')}"
        if value == field.default:
            continue
        if isinstance(value, list):
            said += [word for each in value for word in (flag, each)]
        else:
            parts = [] if value is True else value if isinstance(value, tuple) else (str(value),)
            said += [flag, *parts]
    return said


def flags(axes: Axes, prefix: str) -> list[str]:
    """Return the options of one axis that were given, by their names."""
    return [f"--{prefix}{key}".replace("_", "-") for key in _declared(axes, prefix)]


def _declared(axes: Axes, prefix: str) -> list[str]:
    return [key for key in _OF_AN_AXIS if getattr(axes, prefix + key) is not None]


def _declaration(axes: Axes, prefix: str) -> dict[str, Any]:
    """Return the declaration of one axis, as plain values."""
    said = {key: getattr(axes, prefix + key) for key in _declared(axes, prefix)}
    flag = _spelled(prefix)
    if "bins" in said:
        text = said["bins"]
        is_list = "," in text
        said["bins"] = (
            [to_float(e, flag("bins")) for e in _row(text, flag("bins"))]
            if is_list
            else to_whole(text, flag("bins"))
        )
    if "range" in said and "every" not in said:
        said["range"] = tuple(_number_or_text(end) for end in said["range"])
    if "integers" in said:
        said["integers"] = tuple(to_whole(end, flag("integers")) for end in said["integers"])
    for key in ("prefix", "hashed"):
        if key in said:
            said[key] = to_whole(said[key], flag(key))
    if "log" in said:
        said["log"] = tuple(to_float(end, flag("log")) for end in said["log"])
    if "categories" in said:
        said["categories"] = _labels(said["categories"], flag("categories"))
    return said | {"timezone": axes.timezone}


def _spelled(prefix: str) -> Spell:
    """Return how the keys of a declaration are written as options."""

    def spell(key: str, *values: Any) -> str:
        own = key in _OF_AN_AXIS
        flag = f"--{prefix if own else ''}{key}".replace("_", "-")
        return " ".join([flag, *(shlex.quote(str(value)) for value in values)])

    return spell


def _labels(text: str, name: str) -> str | list[str]:
    """Return the labels of a line of CSV; or the name of a file, which has neither commas nor quotes."""
    is_file = Path(text).exists() if len(text) < 1000 else False
    return text if is_file or not re.search('[,"\n]', text) else _row(text, name)


def _importances(texts: list[str]) -> dict[str, float] | str | None:
    """Return a number for each level that was named, or the word for all of them."""
    if len(texts) == 1 and texts[0] in ("points", "levels", "totals"):
        return texts[0]
    weights = dict(_weight(text) for text in texts)
    if len(weights) < len(texts):
        raise UsageError("--importance was given twice for one level, and only one would count.")
    return weights or None


def _weight(text: str) -> tuple[str, float]:
    level, found, weight = text.rpartition("=")
    if not found:
        raise UsageError(
            "--importance takes a level and a number, such as region=0.1, or one of points, levels, totals, "
            f"not {text!r}."
        )
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


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
