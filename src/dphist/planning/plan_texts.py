"""A publication before it is published, as others read it: in words, and as the Python that publishes it."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

from dphist.domain import Axis, Categories, Instants, Integers, Keyed, Regular
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan import Plan
from dphist.planning.plan_files import words_of
from dphist.planning.publication import Publication
from dphist.privacy.counts import unit_words
from dphist.release.show import decimal
from dphist.release.words import bins_in_words
from dphist.uncertainty.models import bounding

_OF_PUBLICATION = ("data", "ledger", "dataset", "epsilon", "histograms")
_AXES = ("bins", "range", "every", "integers", "log", "categories", "other", "null", "timezone")
_ELSEWHERE = ("share", "column", "y_column", *_AXES, *(f"y_{key}" for key in _AXES))


def in_words(publication: Publication) -> list[str]:
    """Return what a publication will publish, a sentence or two for each matter.

    >>> plan = dphist.Plan(column="age", integers=(0, 119), epsilon=1)
    >>> in_words(dphist.Publication({"ages": plan}, data="visits.csv"))[1]
    'The histogram ages counts records by age, in 120 whole numbers, from 0 to 119, with epsilon 1.'
    """
    plans = publication.plans
    most = max(plan.max_contributions for plan in plans.values())
    unit = next(iter(plans.values())).unit
    many = "one histogram" if len(plans) == 1 else f"{len(plans)} histograms"
    source = "" if publication.data is None else f" of {_short(publication.data)}"
    told = [
        f"{many.capitalize()}{source} will be published together, for epsilon {decimal(publication.budget)}, "
        f"which protects {unit_words(unit, most)}."
    ]
    told += [_one(name, plan) for name, plan in plans.items()]
    if unit is None:
        told.append(
            "If a person can have several records, their protection is weaker: name the column that "
            "identifies a person."
        )
    else:
        told.append(bounding(most))
    return told


def _one(name: str, plan: Plan) -> str:
    columns = [plan.column] if isinstance(plan.column, str) else list(plan.column or ())
    axes = [bins_in_words(axis) for axis in plan.domain.axes]
    by = [f"by {c}, in {bins}" for c, bins in zip(columns, axes, strict=True)]
    text = f"The histogram {name} counts records {', and '.join(by)}"
    if isinstance(plan, GroupedPlan):
        tree = plan.hierarchy
        text += f", for each of {tree.sizes[-1]:,} declared groups of {tree.names[-1]}"
    text += f", with epsilon {decimal(plan.budget)}."
    if plan.where:
        text += f" Only records that meet the condition {plan.where} are counted."
    if plan.outside == "clip":
        text += " Records outside the range are counted in the nearest bin."
    if plan.unit is not None:
        many = plan.max_contributions
        text += (
            f" Of each {plan.unit} at most {'1 record is' if many == 1 else f'{many} records are'} counted."
        )
    return text


def _short(data: str | os.PathLike[str]) -> str:
    text = os.fspath(data)
    return text.partition("://")[0] if "://" in text else Path(text).name


def in_python(publication: Publication, folder: Path) -> str:
    """Return the Python that publishes a publication, to be run in a folder."""
    said = words_of(publication, folder)
    lines = ["import dphist", "", "publication = dphist.Publication(", "    {"]
    for name, plan in publication.plans.items():
        kind = "GroupedPlan" if isinstance(plan, GroupedPlan) else "Plan"
        lines.append(f"        {name!r}: dphist.{kind}(")
        lines += [f"            {key}={value}," for key, value in _arguments(plan, said, name).items()]
        lines.append("        ),")
    lines.append("    },")
    told = {"name": publication.name} | {k: said[k] for k in ("data", "ledger", "dataset") if k in said}
    lines += [f"    {key}={value!r}," for key, value in told.items()]
    return "\n".join([*lines, ")", "releases = publication.release()", ""])


def _arguments(plan: Plan, said: dict[str, Any], name: str) -> dict[str, str]:
    """Return the arguments of a plan as they are written."""
    one = said["histograms"][name]
    made: dict[str, str] = {"epsilon": _exact(plan.budget)}
    if len(plan.domain.axes) == 2:
        made["column"] = repr((one["column"], one["y_column"]))
        made["bins"] = f"dphist.Domain(({', '.join(_axis(axis) for axis in plan.domain.axes)}))"
    else:
        made["column"] = repr(one["column"])
        made |= {key: repr(one[key]) for key in _AXES if key in one}
    made |= {key: repr(value) for key, value in one.items() if key not in _ELSEWHERE}
    return made | {key: repr(value) for key, value in said.items() if key not in _OF_PUBLICATION}


def _exact(value: Fraction) -> str:
    return repr(decimal(value))


def _axis(axis: Axis) -> str:
    """Return an axis as Python writes it."""
    if isinstance(axis, Regular):
        return f"dphist.Regular(lo={axis.lo!r}, hi={axis.hi!r}, bins={axis.bins})"
    if isinstance(axis, Integers):
        return f"dphist.Integers({axis.low}, {axis.high})"
    if isinstance(axis, Categories | Instants | Keyed):
        return f"dphist.{axis!r}"
    return f"dphist.Variable({axis.edges.tolist()!r})"
