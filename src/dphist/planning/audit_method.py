"""Audits of a whole method: each of its queries on the data separately, then its whole output.

Whatever a method learns, it learns through the verbs of the curator, and each verb promises the share of the
budget that it takes. So each call of a verb that a method makes is repeated, with the arguments it had, as a
mechanism of its own. This shows far more than what later steps leave of its answer. Three choices make
violations easy to detect:

* its budget is 5/2, at which a wrong noise scale is detected with the fewest runs;
* its unit is two records, in one bin or in two, so that a sensitivity which ignores the unit is detected;
* the domain has few bins, and the options of a verb are those that leave its proof the least slack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dphist._common.renamed import renamed
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.planning.audit import Audit, Mechanism, audit
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan import Plan
from dphist.planning.simulate import trials, trials_by_group
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

BUDGET, UNIT = Fraction(5, 2), 2
TRIALS, BETA = 15_000, 1e-6
_VERBS = (
    "measure", "measure_ranges", "measure_tree", "measure_linear", "measure_distances", "choose",
    "partition_l1", "partition_splits",
)  # fmt: skip
# Options that leave the least slack on four bins: from its median every group's deviation moves by as much
# as the largest group's, and a penalty keeps single bins from winning by chance; a binary tree is deeper.
_HARSH: dict[str, dict[str, Any]] = {
    "partition_l1": {"center": "median", "penalty": 2.0, "one_sided": False, "fanout": 2},
    "partition_splits": {"fanout": 2},
}


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a verb, as a method made it but for the options in `_HARSH`."""

    verb: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The verb, and the kind of score or queries it was given."""
        kinds = [type(a).__name__ for a in self.args if not isinstance(a, np.ndarray | Groups)]
        return " ".join([self.verb, *kinds])


@renamed(runs="trials")
def audit_method(
    method: str, *, epsilon: object = 1, trials: int = TRIALS, beta: float = BETA
) -> Iterator[tuple[str, Audit]]:
    """Yield an audit of every verb that a method calls, by name, and at last of all that it publishes.

    Args:
        method: a name of the catalogue.
        epsilon: what the whole method shall promise.
        trials: how often each of them runs on each of two neighbours, besides the search for these.
        beta: how likely any of the bounds may be too high.
    """
    small = _plan(method, epsilon, 4)
    found = calls(small)
    each = beta / (len(found) + 1)
    for call in found:
        mechanism = replayed(call, small.domain)
        yield (
            call.name,
            audit(mechanism, claim=BUDGET, trials=trials, beta=each, bins=small.domain.n, unit=UNIT),
        )
    plan = _plan(method, epsilon, 8, calibrate=0)
    yield (
        "all that is published",
        audit(published(plan), claim=plan.budget, trials=trials, beta=each, bins=plan.domain.n),
    )


def audit_groups(
    method: str, *, epsilon: object = 1, trials: int = TRIALS, beta: float = BETA, unit: int = UNIT
) -> Audit:
    """Return an audit of a method by group: four groups in two regions, and units with records in several.

    Args:
        method: a name of the catalogue, of those that publish lines.
        epsilon: what the release of all groups and levels shall promise.
        trials: how often it runs on each of two neighbours, besides the search for these.
        beta: how likely the bound may be too high.
        unit: how many records a unit has, in one group or in as many.
    """
    plan = grouped_plan(method, epsilon)
    cells = plan.hierarchy.sizes[-1] * plan.domain.n
    mechanism = published_groups(plan, unit)
    return audit(mechanism, claim=plan.budget, trials=trials, beta=beta, bins=cells, unit=unit)


def grouped_plan(method: str, epsilon: object) -> GroupedPlan:
    """Return a plan of four groups of two bins in two regions, in which both levels are measured."""
    return GroupedPlan(
        by=("region", "group"),
        groups={"A": ["a", "b"], "B": ["c", "d"]},
        importances={"region": 1},
        bins=Domain((Integers(0, 1),)),
        epsilon=epsilon,
        method=method,
        calibrate=0,
    )


def published_groups(plan: GroupedPlan, unit: int) -> Mechanism:
    """Return a release by group as a mechanism: groups side by side for each bin, so that units cross them.

    The values of the lowest level are all that there is to see: the levels above are their sums.
    """
    domain = Domain((plan.hierarchy.axis, *plan.domain.axes))

    def run(counts: Any, trial: int) -> Any:
        held = Counts(counts.reshape(plan.domain.n, -1).T, domain, sensitivity=unit)
        ((_, made),) = trials_by_group(
            plan.pipeline, held, plan.hierarchy, plan.queries, plan.shares, epsilon=plan.budget, seeds=[trial]
        )
        return made[-1].values.T.ravel()

    return run


def calls(plan: Plan) -> list[Call]:
    """Return the calls that a plan's method makes on some made-up counts, one of each kind."""
    found: dict[str, Call] = {}
    heights = (0, round(8 / plan.budget), round(100 / plan.budget))
    for trial, height in enumerate(3 * heights):
        x = np.zeros(plan.domain.n, dtype=np.int64)
        x[: plan.domain.n // 2] = height
        watched = _Watched.simulated(_counts(x, plan.domain, UNIT), epsilon=plan.budget, seed=trial)
        assert isinstance(watched, _Watched)
        plan.pipeline.values(watched, plan.queries)
        for call in watched.calls:
            found.setdefault(call.name, call)
    return list(found.values())


def replayed(call: Call, domain: Domain) -> Mechanism:
    """Return a call as a mechanism: its share, out of a budget that makes the share worth `BUDGET`."""
    epsilon = BUDGET / call.options["share"]

    def run(counts: Any, trial: int) -> Any:
        curator = Curator.simulated(_counts(counts, domain, UNIT), epsilon=epsilon, seed=trial)
        answer = getattr(curator, call.verb)(*call.args, **call.options)
        if isinstance(answer, Groups):
            return np.stack([answer.labels(), answer.labels()])
        return np.atleast_1d(answer if isinstance(answer, int) else answer.values)

    return run


def published(plan: Plan) -> Mechanism:
    """Return a plan's method with noise that is repeatable by the trial's number: values and groups."""

    def run(counts: Any, trial: int) -> Any:
        held = _counts(counts, plan.domain, 1)
        (made,) = trials(plan.pipeline, held, plan.queries, epsilon=plan.budget, seeds=[trial])
        return np.stack([made.values, made.groups.labels()])

    return run


def _plan(method: str, epsilon: object, bins: int, **options: Any) -> Plan:
    line, grid = Domain((Integers(0, bins - 1),)), Domain((Integers(0, 3), Integers(0, 3)))
    try:
        return Plan(bins=line, epsilon=epsilon, method=method, **options)
    except UsageError as error:  # a few methods need a grid
        try:
            return Plan(bins=grid, epsilon=epsilon, method=method, **options)
        except UsageError:
            raise error from None


def _counts(x: Any, domain: Domain, unit: int) -> Counts:
    return Counts(x.reshape(domain.shape), domain, sensitivity=unit)


class _Watched(Curator):
    """A curator that remembers which of its verbs were called, and with what."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[Call] = []


def _watch(verb: str) -> Callable[..., Any]:
    def call(self: _Watched, *args: Any, **options: Any) -> Any:
        self.calls.append(Call(verb, args, options | _HARSH.get(verb, {})))
        return getattr(Curator, verb)(self, *args, **options)

    return call


for _verb in _VERBS:
    setattr(_Watched, _verb, _watch(_verb))
