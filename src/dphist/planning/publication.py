"""Publications: several histograms of one dataset, published together for one charge, all or none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dphist.domain import shown
from dphist.domain.declare import refuse_own_labels
from dphist.errors import UsageError
from dphist.methods.memory import refuse_several_that_do_not_fit
from dphist.planning.plan import (
    Plan,
    UnmadeLedger,
    _publish_together,
    lasts,
    open_ledger,
    refuse_wide_noise,
)
from dphist.privacy.ledger import LedgerLike

_NAME = re.compile(r"\w[\w .-]{0,99}")
_OF_ALL = ("unit", "table", "well_formed", "encoding", "decimal")  # what says whose records they are


@dataclass(frozen=True)
class Publication:
    """Several histograms of the same records, with the price and the errors of all before any is spent.

    A unit may be in every histogram, so that their epsilons add up (sequential composition); the sum is
    charged once. Each histogram has its own ``max_contributions``.

    >>> publication = dphist.Publication({
    ...     "ages": dphist.Plan(column="age", bins=12, range=(0, 120), epsilon="0.7"),
    ...     "wards": dphist.Plan(column="ward", categories=["A", "B"], epsilon="0.3"),
    ... })
    >>> publication.budget, publication.shares["ages"]
    (Fraction(1, 1), Fraction(7, 10))

    Args:
        plans: a plan for each histogram, by the name of the histogram.
        name: the name of the publication, which every release of it states.
        data: the records, if ``release`` is not given others.
        ledger: the ledger, if ``release`` is not given another.
        dataset: the name under which the ledger adds up the charges about these people.
    """

    plans: Mapping[str, Plan]
    name: str = field(default="publication", kw_only=True)
    data: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    ledger: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    dataset: str = field(default="default", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.plans, Mapping):
            raise UsageError(f"a publication needs a dictionary of plans, not {shown(self.plans)}.")
        plans = dict(self.plans)
        object.__setattr__(self, "plans", MappingProxyType(plans))
        if not plans:
            raise UsageError("a publication needs at least one histogram: a name, and a plan of it.")
        seen: dict[str, str] = {}
        for key, plan in plans.items():
            if not isinstance(plan, Plan):
                raise UsageError(f"the histogram {shown(key)} needs a Plan, not a {type(plan).__name__}.")
            if not isinstance(key, str) or not _NAME.fullmatch(key):
                raise UsageError(
                    f"{shown(key)} cannot be the name of a histogram: take letters, digits, _, - and blanks, "
                    "for its file is named so."
                )
            if (same := seen.setdefault(key.casefold(), key)) != key:
                raise UsageError(f"the histograms {same!r} and {key!r} would have files of one name.")
        first, *others = plans.items()
        for key, plan in others:
            for about in _OF_ALL:
                if getattr(plan, about) != getattr(first[1], about):
                    raise UsageError(
                        f"{about} is that of the whole dataset, and {first[0]!r} and {key!r} differ in it."
                    )

    @property
    def budget(self) -> Fraction:
        """What all histograms together cost."""
        return sum((plan.budget for plan in self.plans.values()), Fraction(0))

    @property
    def shares(self) -> dict[str, Fraction]:
        """The part of the budget that each histogram has."""
        return {key: plan.budget / self.budget for key, plan in self.plans.items()}

    def prepare(self) -> None:
        """Check the memory, and compile and import everything that the releases need; spends nothing.

        >>> publication.prepare()
        """
        for plan in self.plans.values():
            refuse_wide_noise(plan, plan.max_contributions)
            plan.prepare()
        # The counts of all are held at once, and so are their releases.
        wanted = sum(plan._bytes for plan in self.plans.values())  # noqa: SLF001 - of plans, which these are
        refuse_several_that_do_not_fit(wanted, histograms=len(self.plans))

    def release(
        self,
        data: Any = None,
        *,
        ledger: LedgerLike | str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        token: str = "",
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Count the records in one pass, charge the ledger once, and publish all histograms.

        >>> import pandas
        >>> visits = pandas.DataFrame({"age": [23, 35, 67], "ward": ["A", "B", "A"]})
        >>> releases = publication.release(visits)
        >>> releases["wards"].epsilon, releases["wards"].provenance["publication"]["epsilon"]
        (Fraction(3, 10), '1')

        Args:
            data: the records, as in ``Plan.release``; by default those that the publication names.
            ledger: the ledger, as in ``Plan.release``; by default that of the publication.
            dataset: the name of the dataset in the ledger; by default that of the publication.
            token: a name for this publication: the ledger charges it once, and refuses it afterwards.
            progress: called with the step that begins: preparing, counting, charging, drawing.
        """
        from dphist import records

        source = self._source(data)
        whose = self.dataset if dataset is None else dataset
        book = open_ledger(self.ledger if ledger is None else ledger, durable=lasts(source))  # type: ignore[arg-type]
        say = progress or (lambda step: None)
        say("preparing")
        book.check(self.budget, dataset=whose)
        self.prepare()
        say("counting")
        counts = records.count_together(source, self._tallies, **self._reading)
        if isinstance(book, UnmadeLedger):
            book = book.make()
        say("charging")
        return _publish_together(self.plans, counts, book, whose, source, self.name, token, say)

    def check_fit(self, data: Any = None) -> None:
        """Raise what ``release`` would raise about the names and types of columns; reads no record.

        >>> import pandas
        >>> publication.check_fit(pandas.DataFrame({"age": [23, 35], "ward": ["A", "B"]}))
        """
        from dphist.records import schema

        schema.check_fit(self._source(data), self._tallies, **self._reading)

    def _source(self, data: Any) -> Any:
        """Return the records that are counted, which are no list of labels."""
        source = self.data if data is None else data
        if source is None:
            raise UsageError("the publication names no data: give the records, or say data = in its file.")
        for plan in self.plans.values():
            refuse_own_labels(source, *plan._lists)  # noqa: SLF001 - of plans, which these are
        return source

    @property
    def _tallies(self) -> list[Any]:
        return [plan._tally for plan in self.plans.values()]  # noqa: SLF001 - of plans, which these are

    @property
    def _reading(self) -> dict[str, Any]:
        first = next(iter(self.plans.values()))
        return {about: getattr(first, about) for about in _OF_ALL if about != "unit"}

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a TOML file, which ``Publication.load`` and ``dphist plan`` read.

        >>> publication.save("plan.toml").name
        'plan.toml'
        """
        from dphist.planning.plan_files import write

        return write(self, path, overwrite=overwrite)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Publication:
        """Read a plan file; nothing else is read, and nothing is spent.

        >>> dphist.Publication.load(publication.save("plan.toml")).budget
        Fraction(1, 1)
        """
        from dphist.planning.plan_files import read

        return read(path)
