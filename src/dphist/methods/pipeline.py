"""Pipelines: the four steps in order, and the split of the budget among them."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dphist._common import __version__
from dphist.domain import Domain, Hashed, shown
from dphist.domain.groups import Groups
from dphist.domain.workload import Points, Ranges, Rectangles, Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.release import Post, Release
from dphist.steps.anchor import anchored
from dphist.steps.calibrate import calibrate
from dphist.steps.estimate import Averaged, GroupMeans
from dphist.steps.initialize import Nothing
from dphist.steps.order import AsGiven
from dphist.steps.partition import FaintBins, Singletons
from dphist.steps.prior import Prior
from dphist.steps.protocols import Estimated, Estimator, Initializer, Orderer, Partitioner

INTERVALS = Fraction(1, 20)  # the share of the budget with which a method that groups bins measures its bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """The shares of epsilon that the steps take: exact fractions that sum to 1; 0.9 is read as 9/10.

    >>> dphist.Split(partition=0.25, estimate=0.75).partition
    Fraction(1, 4)
    """

    initialize: Fraction = Fraction(0)
    partition: Fraction = Fraction(0)
    estimate: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _share(getattr(self, field.name), field.name))
        total = self.initialize + self.partition + self.estimate
        if total != 1:
            raise UsageError(f"the shares must add up to 1, and they add up to {total}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A mechanism: four components and their shares of the budget. Components can be combined freely.

    >>> from dphist.steps import estimate, partition
    >>> mine = dphist.Pipeline(partition=partition.Whole(), estimate=estimate.GroupMeans())
    >>> dphist.simulate([120, 80, 15, 0, 3], epsilon=1, method=mine).shape
    (1, 5)

    Args:
        calibrate: the share of the budget, taken before the split, that measures the bias, so that bins
            which share a value get intervals too. A method that leaves every bin alone, or measures every bin
            first, needs none.
        choice: the name of the method in the catalogue, if ``auto`` chose it.
    """

    initialize: Initializer = dataclasses.field(default_factory=Nothing)
    order: Orderer = dataclasses.field(default_factory=AsGiven)
    partition: Partitioner = dataclasses.field(default_factory=Singletons)
    estimate: Estimator = dataclasses.field(default_factory=GroupMeans)
    split: Split = dataclasses.field(default_factory=lambda: Split(estimate=Fraction(1)))
    name: str = "custom"
    calibrate: Fraction = Fraction(0)
    choice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "calibrate", _share(self.calibrate, "calibrate"))
        if self.calibrate >= 1:
            raise UsageError(
                "calibrate must be a fraction of the budget, such as '0.05'; the method needs the rest."
            )
        if self.calibrate and not self.estimate.calibrates:
            raise UsageError(
                f"the errors of {_name(self.estimate)} cannot be calibrated: leave calibrate out, or use "
                "a method that groups bins, such as dawa, ahp, sdahp, sdwf or s2."
            )
        for slot in ("initialize", "partition", "estimate"):
            step, share = getattr(self, slot), getattr(self.split, slot)
            if step.spends and not share:
                raise UsageError(f"{_name(step)} needs a share of the budget: give split.{slot} more than 0.")
            if share and not step.spends:
                raise UsageError(f"{_name(step)} spends nothing: set split.{slot} to 0, not {share}.")
        for slot in ("order", "partition", "estimate"):
            step = getattr(self, slot)
            if step.needs_rough and not self.initialize.spends:
                raise UsageError(
                    f"{_name(step)} needs rough counts, and {_name(self.initialize)} measures none: "
                    "use initialize.Noisy() and give split.initialize a share."
                )

    def check(self, domain: Domain, workload: Workload) -> None:
        """Raise UsageError if a component cannot serve the domain or the workload; nothing is charged."""
        if domain.is_large and type(self) is Pipeline:
            raise UsageError(
                f"{self.name} holds a number for every bin, and {domain.n:,} bins are too many for that: use "
                "the method listed, dawa2 or uniform, or wider bins."
            )
        _refuse_neighbours_of_hashes(self, domain, workload)
        for step in (self.initialize, self.order, self.partition, self.estimate):
            step.check(domain, workload)

    @property
    def _ignores_neighbours(self) -> bool:
        """Whether bins that are next to each other in the domain have no more to do with each other."""
        alone, sorts = (getattr(step, "ignores_neighbours", False) for step in (self.partition, self.order))
        return (alone or sorts) and getattr(self.estimate, "ignores_neighbours", False)

    def values(self, curator: Curator, workload: Workload) -> tuple[Groups, Estimated]:
        """Run the four steps, and measure the bias if a share is reserved for it."""
        kept = self.calibrate
        first, second, third = (
            part * (1 - kept) for part in (self.split.initialize, self.split.partition, self.split.estimate)
        )
        spent = [spent_so_far(curator)]
        rough = self.initialize(curator, share=first)
        spent.append(spent_so_far(curator))
        order = self.order(curator.domain, rough)
        groups = self.partition(curator, rough, order, share=second, later=third)
        spent.append(spent_so_far(curator))
        if groups.n != curator.domain.n:
            raise UsageError(
                f"{_name(self.partition)} returned groups of {groups.n} bins for {curator.domain.n}."
            )
        if groups.are_singletons:  # no bins share a value, so there is no bias to measure
            third, kept = third + kept, Fraction(0)
        # Budget that the partitioner left unused goes to the estimate; a charge cannot give more than it has.
        unused = first + second - spent[-1]
        estimated = self.estimate(curator, rough, groups, workload, share=third + unused)
        spent.append(spent_so_far(curator))
        estimated = dataclasses.replace(estimated, rough=rough)
        if kept:
            estimated = calibrate(curator, groups, estimated, share=kept)
        spent.append(spent_so_far(curator))
        return groups, dataclasses.replace(estimated, shares=_between(spent))

    def run(
        self,
        curator: Curator,
        workload: Workload,
        *,
        post: Post = "none",
        provenance: dict[str, Any] | None = None,
    ) -> Release:
        """Run the four steps and return their result as a release."""
        groups, estimated = self.values(curator, workload)
        return self.wrap(curator, workload, groups, estimated, post=post, provenance=provenance)

    def wrap(
        self,
        curator: Curator,
        workload: Workload,
        groups: Groups,
        estimated: Estimated,
        *,
        post: Post = "none",
        provenance: dict[str, Any] | None = None,
        quick: bool = False,
    ) -> Release:
        """Return the result of a run as a release, with all charges.

        Args:
            quick: for one of many: its intervals are made with less effort, and its error is not estimated.
        """
        # With a share for the bias an anchor is the exception, for which a rehearsal compiles nothing, unless
        # bins are grouped only where they are faint.
        rare = self.calibrate > 0 and not isinstance(self.partition, FaintBins)
        error = anchored(curator.domain, estimated, quick=quick or rare)
        made = dataclasses.replace(estimated, error=error)
        return self.released(curator, workload, curator.domain, groups, made, post, provenance)

    def released(
        self,
        curator: Curator,
        workload: Workload,
        domain: Domain,
        groups: Groups,
        estimated: Estimated,
        post: Post,
        provenance: dict[str, Any] | None,
    ) -> Release:
        """Return estimated values of the bins of a domain as a release: one of all bins, or of groups."""
        return Release(
            domain=domain,
            raw=estimated.values,
            post=post,
            groups=groups,
            error=estimated.error,
            method=self.name,
            parameters=self.describe(workload, estimated),
            provenance=provenance or {},
            **origin(curator),
        )

    def with_intervals(self, part: Fraction = INTERVALS) -> Pipeline:
        """Return this method with a share of the budget for measuring its bias.

        It is returned unchanged if it has such a share already, if it leaves every bin alone, if it measures
        every bin first, which gives intervals for nothing, or if its errors cannot be measured.
        """
        groups = not isinstance(self.partition, Singletons)
        free = getattr(self.initialize, "measures_bins", False)
        needs = groups and not free and self.estimate.calibrates and not self.calibrate
        return dataclasses.replace(self, calibrate=part) if needs else self

    def with_prior(self, read: Callable[[], Prior]) -> Pipeline:
        """Return this method with public numbers of the same bins, which are read if it takes any.

        Only methods that average do. One that would group faint bins leaves every bin alone: a prior has a
        number for each.
        """
        if isinstance(self.partition, FaintBins):
            whole = Split(estimate=Fraction(1))
            alone = dataclasses.replace(
                self,
                partition=Singletons(),
                estimate=Averaged(),
                split=whole,
                calibrate=Fraction(0),
                choice="average" if self.choice else "",
            )
            return alone.with_prior(read)
        if not isinstance(self.estimate, Averaged):
            taken = f"{self.name} takes {self.choice} for this workload, which" if self.choice else self.name
            raise UsageError(f"the method {taken} takes no prior: use method='average', or leave prior= out.")
        return dataclasses.replace(self, estimate=dataclasses.replace(self.estimate, prior=read()))

    def describe(self, workload: Workload, estimated: Estimated | None = None) -> dict[str, Any]:
        """Return the steps and their shares, ready for JSON.

        Args:
            estimated: the result of a run; the description then names the steps that ran, and the shares are
                those that they spent. What a question before grouping left is in that of the estimate.
        """
        steps = {slot: _describe(getattr(self, slot)) for slot in ("initialize", "order", "partition")}
        declared = {
            f.name: getattr(self.split, f.name) * (1 - self.calibrate) for f in dataclasses.fields(self.split)
        }
        declared |= {"calibrate": self.calibrate} if self.calibrate else {}
        spent = {} if estimated is None else estimated.shares
        shares = {name: str(spent.get(name, share)) for name, share in declared.items()}
        by = None if estimated is None else estimated.by
        chosen = {} if by is None else _describe(by) | {"chosen_by": _name(self.estimate)}
        return {
            **steps,
            "estimate": chosen or _describe(self.estimate),
            "shares": shares,
            "workload": workload.to_dict(),
            **({"found": {"choice": self.choice}} if self.choice else {}),
        }


def origin(curator: Curator) -> dict[str, Any]:
    """Return what every release says of its charge, of whom it protects, and of what made it and when."""
    return {
        "epsilon": curator.epsilon,
        "charges": curator.spent,
        "unit": curator.unit,
        "sensitivity": curator.sensitivity,
        "versions": {
            "dphist": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "simulated": curator.is_simulated,
        "id": curator.release,
    }


def _refuse_neighbours_of_hashes(made: Pipeline, domain: Domain, workload: Workload) -> None:
    """Refuse queries and methods that take bins of hashed keys together because they are neighbours."""
    for along, axis in enumerate(domain.axes):
        if not isinstance(axis, Hashed):
            continue
        if not _asks_one_or_all(workload, along, axis.n):
            raise UsageError(
                "a range is of neighbouring bins, and hashed keys have none: use the workload points, and "
                "ask for keys one by one, or for a list of them."
            )
        if not made._ignores_neighbours:  # noqa: SLF001 - of a pipeline, which this is a part of
            raise UsageError(
                f"{made.name} takes neighbouring bins together, and hashed keys have none: use auto, listed "
                "or uniform; up to 2^27 bins also identity, or a method that sorts the bins, such as ahp."
            )


def _asks_one_or_all(workload: Workload, along: int, n: int) -> bool:
    """Return whether every query asks for one of the n bins along an axis, or for all of them."""
    if isinstance(workload, Points):
        return True
    if not isinstance(workload, Ranges | Rectangles):
        return False
    if isinstance(workload, Ranges):
        widths = workload.hi - workload.lo
    else:
        widths = workload.y1 - workload.y0 if along else workload.x1 - workload.x0
    return bool(np.isin(widths, (1, n)).all())


def spent_so_far(curator: Curator) -> Fraction:
    """Return the share of the budget that was spent by now."""
    return sum((part.share for part in curator.spent), Fraction(0))


def _between(spent: Sequence[Fraction]) -> dict[str, Fraction]:
    """Return what each step spent, from what was spent in all before the first and after each of them."""
    steps = ("initialize", "partition", "estimate", "calibrate")
    return {step: after - before for step, (before, after) in zip(steps, pairwise(spent), strict=True)}


def _share(value: object, name: str) -> Fraction:
    try:
        # A float is read as the decimal that it prints as: 0.9 is nine tenths.
        share = Fraction(repr(value) if isinstance(value, float) else value)  # type: ignore[call-overload]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        share = Fraction(-1)
    if isinstance(value, bool) or not 0 <= share <= 1 or not math.isfinite(share):
        raise UsageError(f"the share of {name} must be between 0 and 1, such as '0.25', not {shown(value)}.")
    return Fraction(share)


def _name(step: object) -> str:
    """Return the slot and class of a component of this package, or the module and class of any other."""
    module = type(step).__module__
    ours = module.startswith("dphist.steps.")
    return f"{module.split('.')[2 if ours else -1]}.{type(step).__name__}"


def _describe(step: object) -> dict[str, Any]:
    """Return a component's name and its fields, as plain values."""
    if not dataclasses.is_dataclass(step) or isinstance(step, type):
        return {"step": _name(step)}
    fields = {f.name: getattr(step, f.name) for f in dataclasses.fields(step)}
    return {"step": _name(step)} | {k: _plain(v) for k, v in fields.items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Pipeline):
        return value.name
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
