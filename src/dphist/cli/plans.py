"""A plan from the options of the command line, and what is expected of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dphist.cli.bins import flags, make_bins, make_groups
from dphist.cli.common import to_whole, warnings_said
from dphist.cli.stream import read_as
from dphist.errors import UsageError

if TYPE_CHECKING:
    from dphist.cli.options import Axes, Groups, Person, Reading
    from dphist.planning.plan import Plan

RECORDS, SHAPE = 10_000, "smooth"  # what is assumed of the data where nothing is said
_FEW, _CELLS = 4, 1 << 12  # runs, and bins of all groups, by which an error is told roughly
_MOST_BINS = 1 << 20


def make_plan(axes: Axes, groups: Groups, reading: Reading, person: Person, **more: Any) -> Plan:
    """Return the plan that the options describe."""
    from dphist.planning.grouped import GroupedPlan
    from dphist.planning.plan import Plan

    grouped, axes = make_groups(groups, axes)
    make = GroupedPlan if grouped else Plan
    with warnings_said():
        return make(**make_bins(axes), **grouped, **read_as(reading), **vars(person), **more)


def without_range(axes: Axes) -> list[str]:
    """Return which of the axes, by the beginning of their options, have a number of bins and no range."""
    alone = [p for p in ("", "y_") if flags(axes, p) == [f"--{p}bins".replace("_", "-")]]
    return [p for p in alone if "," not in getattr(axes, f"{p}bins")]


def numbered(axes: Axes) -> Axes:
    """Return the options of axes with numbers for values where no range was given: no error depends on it."""
    for prefix in without_range(axes):
        text, flag = getattr(axes, f"{prefix}bins"), f"--{prefix}bins".replace("_", "-")
        if to_whole(text, flag) < 1:
            raise UsageError(f"{flag} must be at least 1.")
        span: Any = {f"{prefix}range": ("0", text)}
        axes = replace(axes, **span)
    return axes


def expected_error(plan: Plan) -> dict[str, Any]:
    """Return the expected error of a plan, roughly; what depends on the data is of made-up records."""
    from dphist.planning.grouped import GroupedPlan

    if plan.domain.n > _MOST_BINS:
        return {}
    if isinstance(plan, GroupedPlan):
        return {"error": _by_level(plan)}
    from dphist.planning.preview import pattern, short
    from dphist.planning.simulate import trials
    from dphist.privacy.counts import Counts

    made_up = pattern(SHAPE, plan.domain).draw(plan.domain, RECORDS, 0)
    counts = Counts(made_up, plan.domain, plan.max_contributions)
    runs = trials(plan.pipeline, counts, plan.queries, epsilon=plan.budget, seeds=range(_FEW))
    error = np.mean([plan.queries.mean_absolute_error(run.values - made_up) for run in runs])
    return {"error": f"{short(float(error))} records per query on average ({_assumed()})"}


def _by_level(plan: Any) -> str:
    from dphist.planning.preview import short

    study = plan.errors(records=RECORDS, like=SHAPE)
    rows = study.of(plan.pipeline, plan.budget, cells=_CELLS, enough=_FEW)
    levels = ", ".join(f"{row.name} {short(row.error)}" for row in rows)
    return f"{levels} records per query, root mean square ({_assumed()})"


def _assumed() -> str:
    return f"simulated on {RECORDS:,} made-up records, {SHAPE}; dphist preview says more"
