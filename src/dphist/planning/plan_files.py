"""Plan files: a publication as TOML, which a person writes and only the studio rewrites.

::

    data = "visits.csv"          paths are relative to the folder of the plan file
    ledger = "hospital.db"
    dataset = "visits"
    epsilon = 1                  of all histograms together
    unit = "patient_id"

    [histograms.ages]
    share = 0.6                  of epsilon; those without a share divide the rest equally
    column = "age"
    integers = [0, 120]

The bins are declared as in Python and on the command line (`dphist.domain.declare`), and those of the second
axis of a grid with ``y_`` before each word. A word that is not known is an error, and so is a share too much.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from dphist.domain import KEYS, Domain, declaration, declared_axis, shown
from dphist.domain.declare import refuse_own_labels, sort_other
from dphist.errors import DphistError, OutputError, UsageError, did_you_mean
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan import Plan
from dphist.planning.publication import Publication
from dphist.privacy.ledger import parse_epsilon
from dphist.release.files import save_with

_TEXT, _WORDS = (str,), (str, list)
_TOP: dict[str, tuple[type, ...]] = {
    "data": _TEXT,
    "ledger": _TEXT,
    "dataset": _TEXT,
    "epsilon": (int, float, str),
    "unit": _TEXT,
    "table": _TEXT,
    "encoding": _TEXT,
    "decimal": _TEXT,
    "well_formed": (bool,),
    "histograms": (dict,),
}
_OF_ALL = ("unit", "table", "encoding", "decimal", "well_formed")
_OF_AXES = tuple(key for key in KEYS if key != "timezone")
_OF_GROUPS = ("by", "groups", "group_other", "importances")
_ONE: dict[str, tuple[type, ...]] = {
    "share": (int, float, str),
    "column": _TEXT,
    **dict.fromkeys(_OF_AXES, (object,)),
    "timezone": _TEXT,
    "y_column": _TEXT,
    **{f"y_{key}": (object,) for key in _OF_AXES},
    "by": _WORDS,
    "groups": (str, list, dict),
    "group_other": _TEXT,
    "importances": (dict, str),
    "where": _TEXT,
    "outside": _TEXT,
    "max_contributions": (int,),
    "method": _TEXT,
    "calibrate": (int, float, str),
    "workload": _WORDS,
    "prior": _TEXT,
    "public_prior": (bool,),
    "post": _TEXT,
}
_PLAIN = ("where", "outside", "max_contributions", "method", "calibrate", "workload", "public_prior", "post")
_USUAL: dict[str, Any] = {
    "dataset": "default",
    "encoding": "utf-8",
    "decimal": ".",
    "well_formed": False,
    "outside": "drop",
    "max_contributions": 1,
    "method": "auto",
    "workload": "points",
    "public_prior": False,
    "post": "none",
}
_KINDS = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}

TEMPLATE = """\
# A publication: several histograms of one dataset, paid for with one charge.
#   dphist plan show FILE      what is planned
#   dphist plan price FILE     its price and expected errors, before anything is spent
#   dphist plan publish FILE   all histograms, or none
# Paths are relative to this file. Lines that begin with # are comments.

data = {data}        # CSV, TSV, JSON lines, Parquet, a folder of them, or a database
# table = "visits"          # of a database
# ledger = "hospital.db"    # made with: dphist ledger create hospital.db --limit 2 --dataset visits
# dataset = "visits"        # whose budget in the ledger is charged
epsilon = 1                 # of all histograms together
# unit = "patient_id"       # the column of the person who is protected; without it, one record is

[histograms.ages]
share = 0.6                 # of epsilon; histograms without a share divide the rest equally
column = "age"              # or an SQL expression
integers = [0, 120]         # bins come from public knowledge, never from the data
# max_contributions = 3     # records counted per person, in this histogram
# method = "dawa"           # see: dphist methods
# workload = "ranges"       # what matters: points, ranges, prefixes; of a grid rectangles
# where = "age >= 18"
# prior = "last-year.json"  # an earlier release of the same bins, with method = "average"

[histograms.wards]
column = "ward"
categories = ["A", "B", "C"]  # or the name of a file with one label per line
other = "elsewhere"

# Other bins:
#   bins = 24, range = [0, 120]                                     equal bins
#   bins = [0, 18, 65, 120]                                         edges
#   log = [1, 1e6] with bins = 24                                   equal ratios
#   range = ["2024-01-01", "2025-01-01"] with every = "week"        time, and timezone = "Europe/Berlin"
# A grid has a second axis: y_column = "ward", y_categories = ["A", "B"], y_bins, y_range and so on.
# A histogram for each group: by = "ward", groups = ["A", "B"] or a file, group_other = "elsewhere".
"""


def read(path: str | os.PathLike[str]) -> Publication:
    """Return the publication that a plan file describes; nothing else is read."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a plan file is given by its name, not by {shown(path)}.")
    file = Path(path)
    said = parsed(file)
    try:
        return publication_of(said, file)
    except DphistError as error:
        raise type(error)(f"{file}: {error}") from None


def parsed(file: Path) -> dict[str, Any]:
    """Return the words of a plan file."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"there is no plan file {file}; write one with: dphist plan new {file}") from None
    except OSError as error:
        raise UsageError(f"the plan file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; save the plan file as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}.") from None


def publication_of(said: Mapping[str, Any], file: Path) -> Publication:
    """Return the publication that the words of a plan file describe, wherever they were written.

    Args:
        file: the plan file, which need not be there: it names the publication, and paths are relative to it.
    """
    _check(said, _TOP, "a plan file")
    if "epsilon" not in said:
        raise UsageError("epsilon is needed, the budget of all histograms together, such as: epsilon = 1")
    epsilon = parse_epsilon(said["epsilon"])
    histograms = said.get("histograms", {})
    if not histograms:
        raise UsageError("no histogram is planned; write a table for each, such as [histograms.ages].")
    for name, one in histograms.items():
        if not isinstance(one, dict):
            raise UsageError(f"a histogram is a table, such as [histograms.{name}], not a value.")
        _check(one, _ONE, f"the histogram {name!r}")
    shares = _shares({name: one.get("share") for name, one in histograms.items()})
    of_all = {key: said[key] for key in _OF_ALL if key in said}
    places = {key: _place(said[key], file.parent) for key in ("data", "ledger") if key in said}
    for one in histograms.values():
        lists = [one[key] for key in ("categories", "y_categories", "groups", "prior") if key in one]
        files = [_place(each, file.parent) for each in lists if isinstance(each, str)]
        refuse_own_labels(places.get("data"), *files)
    plans = {
        name: _in_its_name(name, one, epsilon * shares[name], of_all, file.parent)
        for name, one in histograms.items()
    }
    return Publication(plans, name=file.stem, dataset=said.get("dataset", "default"), **places)


def _check(said: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], what: str) -> None:
    """Refuse words that are not known, and values that are not of their type."""
    for key, value in said.items():
        if key not in known:
            raise UsageError(f"{what} has no {shown(key)}. {did_you_mean(key, known)}")
        kinds = known[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and not {bool, object} & set(kinds)):
            wanted = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))
            raise UsageError(f"{what}: {key} must be {wanted}, not {shown(value)}.")


def _shares(given: dict[str, Any]) -> dict[str, Fraction]:
    """Return every histogram's part of epsilon; they add up to 1."""
    shares = {
        name: parse_epsilon(share, name=f"the share of {name!r}")
        for name, share in given.items()
        if share is not None
    }
    total = sum(shares.values(), Fraction(0))
    without = [name for name in given if name not in shares]
    if total > 1 or (without and total == 1):
        nothing = f", and nothing is left for {without[0]!r}" if without else ""
        raise UsageError(f"the shares add up to {_written(total)}{nothing}: they are parts of 1. Lower some.")
    if without:
        return {name: shares.get(name, (1 - total) / len(without)) for name in given}
    if total < 1:
        raise UsageError(
            f"the shares add up to {_written(total)}, and {_written(1 - total)} of epsilon would buy "
            'nothing: make them add up to 1 (such as "1/3"), or leave one out, which then takes the rest.'
        )
    return shares


def _in_its_name(
    name: str, one: dict[str, Any], epsilon: Fraction, of_all: dict[str, Any], folder: Path
) -> Plan:
    try:
        return _plan(one, epsilon, of_all, folder)
    except DphistError as error:
        raise type(error)(f"the histogram {name!r}: {error}") from None


def _plan(one: dict[str, Any], epsilon: Fraction, of_all: dict[str, Any], folder: Path) -> Plan:
    if "column" not in one:
        raise UsageError('column is needed: the column to count, such as column = "age".')
    other, group_other = one.get("other"), one.get("group_other")
    grouped: dict[str, Any] = {}
    if "by" in one:
        if "groups" not in one:
            raise UsageError("by needs groups, the list of all of them, or the name of a file, one per line.")
        other, group_other = sort_other(one.get("categories"), other, group_other)
        by, groups = one["by"], one["groups"]
        grouped = {
            "by": tuple(by) if isinstance(by, list) else by,
            "groups": _place(groups, folder) if isinstance(groups, str) else groups,
            "group_other": group_other,
            "importances": one.get("importances"),
        }
    elif extra := [key for key in _OF_GROUPS if key in one]:
        raise UsageError(f"{extra[0]} goes with by, the column that names the group.")
    first = {key: one.get(key) for key in _OF_AXES} | {"other": other}
    second = {key: one.get(f"y_{key}") for key in _OF_AXES}
    is_grid = "y_column" in one
    if not is_grid and any(value is not None for value in second.values()):
        raise UsageError("y_column is needed, the second column of a grid.")
    axes = [_axis(first, one.get("timezone"), folder, "")]
    if is_grid:
        axes.append(_axis(second, one.get("timezone"), folder, "y_"))
    options = {key: one[key] for key in _PLAIN if key in one}
    if isinstance(options.get("workload"), list):
        options["workload"] = [
            tuple(pair) if isinstance(pair, list) else pair for pair in options["workload"]
        ]
    if "prior" in one:
        options["prior"] = _place(one["prior"], folder)
    make: Any = GroupedPlan if grouped else Plan
    return make(  # type: ignore[no-any-return]
        bins=Domain(tuple(axes)),
        column=(one["column"], one["y_column"]) if is_grid else one["column"],
        timezone=one.get("timezone"),
        epsilon=epsilon,
        **grouped,
        **of_all,
        **options,
    )


def _axis(declared: dict[str, Any], timezone: str | None, folder: Path, prefix: str) -> Any:
    labels = declared["categories"]
    if isinstance(labels, str):
        declared = declared | {"categories": _place(labels, folder)}

    def spell(key: str, *values: Any) -> str:
        word = key if key in ("timezone", "outside") else prefix + key
        if not values:
            return word
        return f"{word} = {_toml(values[0] if len(values) == 1 else list(values))}"

    return declared_axis({**declared, "timezone": timezone}, spell)


def _place(path: str, folder: Path) -> str:
    """Return a path that is relative to the plan file as one that can be opened; an address stays."""
    return path if "://" in path or path == "-" else str(folder / path)


def new(path: str | os.PathLike[str], *, data: str = "visits.csv") -> Path:
    """Write a plan file with an example of everything, to be edited; no file is replaced."""
    text = TEMPLATE.format(data=_toml(data))
    return _written_to(path, text, overwrite=False)


def write(publication: Publication, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a publication as a plan file; its comments are nobody's, so that only new files are written."""
    return _written_to(path, text_of(publication, Path(path).parent), overwrite=overwrite)


def text_of(publication: Publication, folder: Path) -> str:
    """Return a publication as the text of a plan file in that folder; the same publication, the same text."""
    said = words_of(publication, folder)
    lines = _lines({key: value for key, value in said.items() if key != "histograms"})
    for name, one in said["histograms"].items():
        lines += ["", f"[histograms.{_key(name)}]", *_lines(one)]
    return "\n".join(lines) + "\n"


def words_of(publication: Publication, folder: Path) -> dict[str, Any]:
    """Return what a plan file in that folder says of a publication: every word that is not its default."""
    first = next(iter(publication.plans.values()))
    top: dict[str, Any] = {
        "data": _from(publication.data, folder),
        "ledger": _from(publication.ledger, folder),
        "dataset": publication.dataset,
        "epsilon": _number(publication.budget),
        **{key: getattr(first, key) for key in _OF_ALL},
    }
    histograms = {
        name: _told({"share": _number(publication.shares[name]), **_described(plan, folder)})
        for name, plan in publication.plans.items()
    }
    return _told(top) | {"histograms": histograms}


def _told(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words that say more than their defaults."""
    return {key: value for key, value in said.items() if value is not None and value != _USUAL.get(key)}


def _lines(said: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in said.items()]


def _described(plan: Plan, folder: Path) -> dict[str, Any]:
    """Return what a plan file says of one histogram."""
    if not isinstance(plan.method, str):
        raise UsageError("a plan with a pipeline of its own cannot be written; name a method.")
    if not isinstance(plan.workload, str | list | tuple):
        raise UsageError("a plan file names its workload, or lists pairs of bins; this one is an object.")
    if not isinstance(plan.prior, str | os.PathLike | None):
        raise UsageError("a plan file names the file of its prior: save it, and give prior= its path.")
    columns = (plan.column,) if isinstance(plan.column, str) else plan.column
    if columns is None:
        raise UsageError("a plan file names the column to count: give the plan one.")
    said: dict[str, Any] = {}
    for prefix, column, axis in zip(("", "y_"), columns, plan.domain.axes, strict=False):
        said[f"{prefix}column"] = column
        said |= {(key if key == "timezone" else prefix + key): v for key, v in declaration(axis).items()}
    if plan.timezone is not None:
        said["timezone"] = plan.timezone
    if isinstance(plan, GroupedPlan):
        groups = plan.groups
        said["by"] = plan.by if isinstance(plan.by, str) else list(plan.by)
        said["groups"] = _from(groups, folder) if isinstance(groups, str | os.PathLike) else groups
        said |= {"group_other": plan.group_other, "importances": plan.importances}
    return said | {
        **{key: getattr(plan, key) for key in _PLAIN if key not in ("workload", "calibrate")},
        "workload": plan.workload,
        "prior": _from(plan.prior, folder),
        "calibrate": None if plan.calibrate is None else _number(plan.pipeline.calibrate),
    }


def _from(path: str | os.PathLike[str] | None, folder: Path) -> str | None:
    """Return a path as it is written in a plan file of that folder."""
    if path is None:
        return None
    text = os.fspath(path)
    if "://" in text or text == "-":
        return text
    if Path(text).is_absolute() and not (folder.is_absolute() and Path(text).is_relative_to(folder)):
        return text
    return os.path.relpath(text, folder)


def _number(value: Fraction) -> float | int | str:
    """Return a number that is read as exactly this one."""
    if value.denominator == 1:
        return int(value)
    return float(value) if Fraction(repr(float(value))) == value else str(value)


def _written(value: Fraction) -> str:
    return str(_number(value))


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    return "[" + ", ".join(map(_toml, value)) + "]"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml(name)


def _written_to(path: str | os.PathLike[str], text: str, *, overwrite: bool) -> Path:
    target = Path(path)
    if target.suffix.lower() != ".toml":
        raise OutputError(f"{target}: a plan file ends in .toml.")
    if target.exists() and not overwrite:
        raise OutputError(f"{target} exists and is not replaced; choose another name.")
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise UsageError("a text with half a character cannot be written to a plan file.") from None
    return save_with(lambda file: file.write_bytes(content), target, overwrite=overwrite)
