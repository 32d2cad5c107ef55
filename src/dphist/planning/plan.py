"""The functions that most people call: records in, a release out.

The order never varies: the plan is checked without any data; the ledger is opened and asked whether the
budget suffices; the required memory is compared with the available memory; the mechanism is rehearsed on
made-up counts, which compiles and imports what it needs; the records are counted; the charge is journaled
and synced; the noise is drawn. An error at any point before the charge costs nothing.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.renamed import renamed
from dphist.domain import (
    KEYS,
    Axis,
    Categories,
    Domain,
    Integers,
    Outside,
    Variable,
    as_int,
    clock_zone,
    declared_axis,
    make_axis,
    shown,
)
from dphist.domain.declare import refuse_own_labels
from dphist.domain.hierarchy import GroupsLike
from dphist.domain.workload import Workload, make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import make_pipeline
from dphist.methods.levels import Importances
from dphist.methods.memory import bytes_needed, refuse_what_does_not_fit
from dphist.methods.pipeline import Pipeline
from dphist.methods.rehearsal import rehearse
from dphist.methods.sparse import SparsePipeline
from dphist.planning.account import DEFAULT_LEDGER
from dphist.planning.preview import LikeData, Preview, pattern, preview
from dphist.planning.simulate import trials as run_trials
from dphist.privacy.counts import Counts, SparseCounts, unit_words
from dphist.privacy.curator import Curator
from dphist.privacy.journal import notify
from dphist.privacy.ledger import Ledger, LedgerLike, MemoryLedger, parse_epsilon
from dphist.records import Tally, validate_reading
from dphist.records.engines.files import Text
from dphist.release import POSTS, Post, Release
from dphist.uncertainty.constants import SHARE_FOR_BINS

if TYPE_CHECKING:
    from dphist.planning.prior import Believed, PriorLike
    from dphist.records.check import Check
    from dphist.release.grouped import GroupedRelease

Bins = int | Sequence[float] | NDArray[np.float64] | Axis | Domain
WorkloadLike = str | Workload | Sequence[tuple[int, int]]
_LEAST_EPSILON = Fraction(1, 10**9)
_WIDEST = 1 << 26  # largest noise scale of a share: steps multiply it by up to 2^14, the sampler allows 2^40
_SERVERS = ("psycopg", "pyspark", "duckdb", "_duckdb")  # objects whose records outlive this process
LARGE_EPSILON = 10
COMMON_EPSILONS = (
    "Common choices for everything that is published about the same people together lie between 0.1 and 2; "
    f"above {LARGE_EPSILON} hardly anyone is protected."
)


def _is_default(value: object, default: object) -> bool:
    return value is default or (
        isinstance(default, str | int) and type(value) is type(default) and value == default
    )


def _told(name: str, value: object) -> str:
    """Return an argument as it is written; counts are not repeated."""
    return "..." if name == "prior" and not isinstance(value, str | os.PathLike | Release) else repr(value)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A complete description of a release, made before any record is read.

    >>> plan = dphist.Plan(bins=12, range=(0, 120), epsilon=1, method="dawa", workload="ranges")
    >>> plan.domain.n, plan.budget
    (12, Fraction(1, 1))

    Args:
        bins: a number of equal bins over ``range``, explicit edges, an axis such as ``Integers(0, 120)``,
            or a ``Domain``.
        range: the smallest and largest possible value, from public knowledge, never from the data.
        every: bins of time instead: ``hour``, ``day``, ``week``, ``month``, ``quarter`` or ``year``, from the
            first date of ``range`` up to the second, on the clock of ``timezone``.
        integers: one bin per integer instead, from the first to the second, both included.
        log: the ends of ``bins`` bins of equal ratio instead, such as ``(1, 1e6)``.
        categories: labels to count instead, or the name of a file of labels, one per line.
        other, null: the names of bins for all other labels, and for records without a label.
        addresses: a network of IP addresses to count instead, such as ``0.0.0.0/0``, by prefixes of the
            length ``prefix``.
        codes: all codes of a pattern to count instead, such as ``[A-Z][0-9]{2}``.
        hashed: keys of any text to count instead, hashed into 2**hashed bins, with a public ``salt``.
        epsilon: the privacy budget of this release (docs/error.md says how to choose it).
        column: the column to count, or an SQL expression of columns; a pair for a grid.
        where: an SQL condition; only records that meet it are counted.
        outside: what happens to records outside the domain: ``drop`` them, or ``clip`` them to the end bins.
        unit: the column that identifies a person, who is then protected; None protects one record.
        max_contributions: the number of records counted per person (contribution bounding). The others are
            left out, which biases counts downwards; intervals do not include this bias (docs/error.md).
        method: a catalogue name (``dphist methods``) or a ``Pipeline``.
        calibrate: the fraction of epsilon spent on measuring the bias, so that methods which group bins
            give an interval for every bin and range. The default is ``"0.05"`` for such methods and nothing
            for the others; 0 runs the method as published.
        workload: the queries that matter, by name or as pairs of bin numbers.
        prior: an earlier release of the same bins, or public counts of them, or a file of either. The values
            follow its shape where the noisy counts agree with it. For methods that average.
        public_prior: declares that a prior which is no release is public.
        post: post-processing of the values: ``nonneg``, ``integer`` or ``none``. The unbiased values are
            published too.
        table: the table or SELECT statement to read, if the data is a database.
        well_formed: declares that a correct program wrote every record of a CSV, TSV or JSON file, so that a
            newline inside quotes or an element of a JSON array cannot take other records with it.
        timezone: the time zone of bins of time, and in which expressions are evaluated; by default that of
            the bins, else UTC.
        encoding: the encoding of a CSV, TSV or JSON file, such as ``latin-1`` or ``utf-16``.
        decimal: the decimal mark of numbers in CSV and TSV: ``.`` or ``,``.
    """

    epsilon: Any
    bins: Bins | None = None
    range: Any = None
    every: str | None = None
    integers: tuple[int, int] | None = None
    log: tuple[float, float] | None = None
    categories: Sequence[str] | str | os.PathLike[str] | None = None
    other: str | None = None
    null: str | None = None
    addresses: str | None = None
    prefix: int | None = None
    codes: str | None = None
    hashed: int | None = None
    salt: str | None = None
    column: str | tuple[str, str] | None = None
    where: str | None = None
    outside: Outside = "drop"
    unit: str | None = None
    max_contributions: int = 1
    method: str | Pipeline = "auto"
    calibrate: Any = None
    workload: WorkloadLike = "points"
    prior: PriorLike | None = None
    public_prior: bool = False
    post: Post = "none"
    table: str | None = None
    timezone: str | None = None
    well_formed: bool = False
    encoding: str = "utf-8"
    decimal: str = "."
    domain: Domain = field(init=False, repr=False)
    budget: Fraction = field(init=False, repr=False)

    def __repr__(self) -> str:
        """Return the plan as the call that makes it: what differs from the defaults."""
        said = ((f.name, getattr(self, f.name), f.default) for f in fields(self) if f.init)
        parts = (
            f"{name}={_told(name, value)}" for name, value, default in said if not _is_default(value, default)
        )
        return f"Plan({', '.join(parts)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", make_domain(**{key: getattr(self, key) for key in KEYS}))
        object.__setattr__(self, "budget", parse_epsilon(self.epsilon))
        if self.budget < _LEAST_EPSILON:
            raise UsageError(
                f"epsilon {self.epsilon} is below {_LEAST_EPSILON}: the release would be noise alone."
            )
        if not isinstance(self.post, str) or self.post not in POSTS:
            raise UsageError(f"post must be one of {', '.join(POSTS)}, not {shown(self.post)}.")
        if not isinstance(self.public_prior, bool):
            raise UsageError(f"public_prior must be True or False, not {shown(self.public_prior)}.")
        if self.public_prior and self.prior is None:
            raise UsageError("public_prior=True (--public-prior) is of a prior: give prior= (--prior) too.")
        validate_reading(self._counted, self._columns, self.outside, self.unit, self.max_contributions)
        self.zone  # noqa: B018 - a wrong zone is refused here
        Text(self.well_formed, self.encoding, self.decimal)  # as are a wrong encoding and a wrong mark
        self.pipeline.check(self.domain, self.queries)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The mechanism, built for this domain."""
        made = self._with_prior(make_pipeline(self._named_method, self.domain, self.queries))
        return made.with_intervals() if self.calibrate is None else replace(made, calibrate=self.calibrate)

    @property
    def _named_method(self) -> str | Pipeline:
        return self.method

    def _with_prior(self, made: Pipeline) -> Pipeline:
        return made if self.prior is None else made.with_prior(lambda: self._believed.prior)

    @cached_property
    def _believed(self) -> Believed:
        from dphist.planning.prior import believed

        return believed(self.prior, self.domain, public=self.public_prior)

    @property
    def _of_prior(self) -> dict[str, Any]:
        """What a release says of its prior."""
        return {} if self.prior is None else {"prior": self._believed.origin}

    @cached_property
    def zone(self) -> str:
        """The time zone in which expressions are evaluated, whatever that of the machine or the server."""
        return clock_zone(self.domain, self.timezone)

    @cached_property
    def queries(self) -> Workload:
        """The workload over this domain."""
        return make_workload(self.workload, self.domain)

    def release(
        self, data: Any, *, ledger: LedgerLike | str | Path | None = None, dataset: str = "default"
    ) -> Release:
        """Count the records, charge the ledger and publish.

        >>> plan.release([23, 35, 35, 41, 67])
        Release('dawa', 12 bins, epsilon=1, unit='one record', not journaled)

        Args:
            data: an array, a dataframe, a DuckDB relation, or a path to CSV, JSON lines or Parquet.
            ledger: a ledger, or the path of an existing one; by default the path in ``$DPHIST_LEDGER``.
                Without either, records on disk are charged to ``dphist-ledger.db`` in the current folder,
                which is created if it is missing, and data in memory is charged to no ledger: such a
                release says ``journaled: false``.
            dataset: the name under which the ledger adds up the charges about these people.
        """
        from dphist import records

        refuse_own_labels(data, *self._lists)
        book = open_ledger(ledger, durable=lasts(data))
        book.check(self.budget, dataset=dataset)
        self.prepare()
        counts = records.count(data, self._counted, **self._reading)
        if isinstance(book, UnmadeLedger):
            book = book.make()
        return _publish(self, counts, book, dataset, self._provenance(data))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the plan as a TOML file, which ``Plan.load`` and ``dphist plan`` read.

        >>> ages = dphist.Plan(column="age", integers=(0, 120), epsilon=1)
        >>> dphist.Plan.load(ages.save("ages.toml")).domain == ages.domain
        True
        """
        from dphist.planning.publication import Publication

        return Publication({"histogram": self}).save(path, overwrite=overwrite)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan:
        """Read a plan file of one histogram; ``Publication.load`` reads files of several.

        >>> ages = dphist.Plan(column="age", integers=(0, 120), epsilon=1)
        >>> dphist.Plan.load(ages.save("plan.toml")).budget
        Fraction(1, 1)
        """
        from dphist.planning.publication import Publication

        plans = Publication.load(path).plans
        if len(plans) != 1:
            raise UsageError(
                f"{os.fspath(path)} plans {len(plans)} histograms: read it with dphist.Publication.load."
            )
        return next(iter(plans.values()))

    def prepare(self, *, sensitivity: int | None = None) -> None:
        """Check the memory, and compile and import everything that a release needs; spends nothing.

        The method runs once on a few made-up counts. ``release`` calls this by itself before it counts. It
        takes seconds when a method first runs on a machine (``dphist warm`` compiles all methods ahead), and
        milliseconds afterwards.

        >>> plan.prepare()

        Args:
            sensitivity: the largest change of the counts by one unit; by default ``max_contributions``.
        """
        refuse_what_does_not_fit(self.pipeline, self.domain)
        if isinstance(self.pipeline, SparsePipeline):
            moved = self.max_contributions if sensitivity is None else sensitivity
            self.pipeline.check_noise(self.domain, epsilon=self.budget, sensitivity=moved)
        rehearse(
            self.pipeline,
            self.domain,
            self.queries,
            epsilon=self.budget,
            sensitivity=self.max_contributions if sensitivity is None else sensitivity,
            post=self.post,
        )

    def check(self, data: Any) -> Check:
        """Return how many records would be counted, and why the others would not: exact and NOT PRIVATE.

        This is for the data steward alone, before the first release. It spends nothing; its result can be
        printed but not saved.

        >>> found = plan.check([23, 35, 35, 41, 167])
        >>> found.read, found.counted, found.outside
        (5, 4, 1)
        """
        from dphist.records.check import check

        return check(data, self._counted, **self._reading)

    @property
    def _counted(self) -> Domain:
        """The bins into which records are counted."""
        return self.domain

    @property
    def _bytes(self) -> int:
        """About how much memory the release takes at its widest."""
        return bytes_needed(self.pipeline, self.domain)

    @property
    def _tally(self) -> Tally:
        """What is counted, for a count of several histograms."""
        how = (self.where, self.outside, self.unit, self.max_contributions, self.timezone)
        return Tally(self._counted, self._columns, *how)

    @property
    def _lists(self) -> tuple[object, ...]:
        """What may be the names of files that must not be the records."""
        return (self.categories, self.prior)

    def _provenance(self, data: Any) -> dict[str, Any]:
        """Return where the records come from and how they are selected, as it was declared."""
        return {
            "source": _source(data),
            "column": list(self._columns),
            "where": self.where,
            "outside": self.outside,
            "table": self.table,
            "timezone": self.zone,
            "well_formed": self.well_formed,
            "encoding": self.encoding,
            "decimal": self.decimal,
            **self._of_prior,
        }

    def _shares(self) -> Iterator[Fraction]:
        """Yield the parts of the budget that are drawn with; 0 is none."""
        split, kept = self.pipeline.split, self.pipeline.calibrate
        yield from (part * (1 - kept) for part in (split.initialize, split.partition, split.estimate))
        yield kept * SHARE_FOR_BINS

    def _run(self, curator: Curator, provenance: dict[str, Any]) -> Release:
        """Draw all that the charge pays for."""
        return self.pipeline.run(curator, self.queries, post=self.post, provenance=provenance)

    @property
    def _columns(self) -> tuple[str, ...]:
        if self.column is None:
            return ()
        several = isinstance(self.column, tuple | list)
        return tuple(self.column) if several else (self.column,)  # type: ignore[return-value]

    @property
    def _reading(self) -> dict[str, Any]:
        """The arguments with which records are counted and checked."""
        return {
            "columns": self._columns,
            "where": self.where,
            "outside": self.outside,
            "unit": self.unit,
            "max_contributions": self.max_contributions,
            "table": self.table,
            "timezone": self.timezone,
            "well_formed": self.well_formed,
            "encoding": self.encoding,
            "decimal": self.decimal,
        }

    def preview(self, *, records: int = 10_000, like: LikeData = "smooth") -> Preview:
        """Return a dozen simulated releases of made-up records; spends nothing.

        >>> plan.preview(records=1000, like="sparse").like
        'sparse'

        Args:
            records: the approximate number of records, from public knowledge.
            like: the expected shape of the data: a name such as ``sparse``, an earlier release, or public
                counts.
        """
        look = pattern(like, self.domain)
        many = as_int(records, "records")
        if many < 1:
            raise UsageError(
                f"records, the approximate number of records, must be at least 1, not {records}."
            )
        made_up = look.draw(self.domain, many, 0)
        unit = unit_words(self.unit, self.max_contributions)
        counts = Counts(made_up, self.domain, self.max_contributions, unit)
        return preview(
            self.pipeline, self.queries, counts, epsilon=self.budget, post=self.post, like=look.name
        )


@overload
def histogram(
    data: Any, bins: Any = ..., range: Any = ..., *, epsilon: Any, by: None = None, **options: Any
) -> Release: ...
@overload
def histogram(
    data: Any, bins: Any = ..., range: Any = ..., *, epsilon: Any, by: str | Sequence[str], **options: Any
) -> GroupedRelease: ...
def histogram(  # type: ignore[misc]
    data: Any,
    bins: Bins | None = None,
    range: Any = None,
    *,
    epsilon: Any,
    every: str | None = None,
    integers: tuple[int, int] | None = None,
    log: tuple[float, float] | None = None,
    categories: Sequence[str] | str | os.PathLike[str] | None = None,
    other: str | None = None,
    null: str | None = None,
    addresses: str | None = None,
    prefix: int | None = None,
    codes: str | None = None,
    hashed: int | None = None,
    salt: str | None = None,
    column: str | tuple[str, str] | None = None,
    where: str | None = None,
    outside: Outside = "drop",
    unit: str | None = None,
    max_contributions: int = 1,
    method: str | Pipeline = "auto",
    calibrate: Any = None,
    workload: WorkloadLike = "points",
    prior: PriorLike | None = None,
    public_prior: bool = False,
    post: Post = "none",
    table: str | None = None,
    timezone: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    by: str | Sequence[str] | None = None,
    groups: GroupsLike | None = None,
    group_other: str | None = None,
    importances: Importances | None = None,
    ledger: LedgerLike | str | Path | None = None,
    dataset: str = "default",
) -> Release | GroupedRelease:
    """Publish a private histogram of records; the arguments are those of ``Plan`` and ``Plan.release``.

    With ``by`` it publishes one for each of the declared ``groups``, at the price of one.

    >>> dphist.histogram([23, 35, 35, 41, 67], bins=12, range=(0, 120), epsilon=1)
    Release('auto', 12 bins, epsilon=1, unit='one record', not journaled)
    >>> dphist.histogram(["red", "blue"], categories=["red", "green"], other="rest", epsilon=1).axes[0][2]
    'rest'
    """
    options: dict[str, Any] = {
        "bins": bins,
        "range": range,
        "every": every,
        "integers": integers,
        "log": log,
        "categories": categories,
        "other": other,
        "null": null,
        "addresses": addresses,
        "prefix": prefix,
        "codes": codes,
        "hashed": hashed,
        "salt": salt,
        "epsilon": epsilon,
        "column": column,
        "where": where,
        "outside": outside,
        "unit": unit,
        "max_contributions": max_contributions,
        "method": method,
        "calibrate": calibrate,
        "workload": workload,
        "prior": prior,
        "public_prior": public_prior,
        "post": post,
        "table": table,
        "timezone": timezone,
        "well_formed": well_formed,
        "encoding": encoding,
        "decimal": decimal,
    }
    if by is None:
        if groups is not None or group_other is not None or importances is not None:
            raise UsageError(
                "groups, group_other and importances go with by=, the column that names the group."
            )
        return Plan(**options).release(data, ledger=ledger, dataset=dataset)
    from dphist.planning.grouped import GroupedPlan

    if groups is None:
        raise UsageError(
            "by= needs groups=, the list of all of them: groups that were read off the data would leak."
        )
    more: Any = {"by": by, "groups": groups, "group_other": group_other, "importances": importances}
    grouped = GroupedPlan(**more, **options)
    return grouped.release(data, ledger=ledger, dataset=dataset)


@renamed(columns="column")
def histogram2d(
    x: Any,
    y: Any = None,
    bins: Any = None,
    range: Any = None,
    *,
    epsilon: Any,
    column: tuple[str, str] | None = None,
    where: str | None = None,
    outside: Outside = "drop",
    unit: str | None = None,
    max_contributions: int = 1,
    method: str | Pipeline = "auto",
    calibrate: Any = None,
    workload: WorkloadLike = "points",
    prior: PriorLike | None = None,
    public_prior: bool = False,
    post: Post = "none",
    table: str | None = None,
    timezone: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    ledger: LedgerLike | str | Path | None = None,
    dataset: str = "default",
) -> Release:
    """Publish a private two-dimensional histogram of two arrays, or of one table with a pair as ``column``.

    ``bins`` and ``range`` are as in ``numpy.histogram2d``: one number or a pair; a pair of pairs.

    >>> release = dphist.histogram2d([1, 2, 3], [8, 8, 9], bins=(4, 2), range=((0, 4), (0, 10)), epsilon=1)
    >>> release.values().shape
    (4, 2)
    """
    if (y is None) == (column is None):
        raise UsageError("give either two arrays x and y, or one table with column=('a', 'b').")
    plan = Plan(
        bins=_grid(bins, range),
        epsilon=epsilon,
        column=column,
        where=where,
        outside=outside,
        unit=unit,
        max_contributions=max_contributions,
        method=method,
        calibrate=calibrate,
        workload=workload,
        prior=prior,
        public_prior=public_prior,
        post=post,
        table=table,
        timezone=timezone,
        well_formed=well_formed,
        encoding=encoding,
        decimal=decimal,
    )
    return plan.release(x if y is None else (x, y), ledger=ledger, dataset=dataset)


def _publish(
    plan: Plan, counts: Counts | SparseCounts, book: LedgerLike, dataset: str, provenance: dict[str, Any]
) -> Release:
    """Charge, then draw: the last two steps of every release."""
    refuse_wide_noise(plan, counts.sensitivity)
    plan.prepare(sensitivity=counts.sensitivity)
    what = ", ".join(str(v) for v in (provenance["source"], *provenance.get("column", [])) if v)
    provenance |= _charged_to(book, dataset)
    charge = book.charge(
        plan.budget, dataset=dataset, mechanism=plan.pipeline.name, what=what, unit=counts.unit
    )
    curator = Curator(counts, charge)
    return plan._run(curator, provenance)  # noqa: SLF001


def _charged_to(book: LedgerLike, dataset: str) -> dict[str, Any]:
    """Return what a release says of its ledger."""
    # Ledgers of any other class end with the process.
    return {"dataset": dataset, "journaled": isinstance(book, Ledger)}


def refuse_wide_noise(plan: Plan, sensitivity: int) -> None:
    """Refuse an epsilon for which the sampler has no noise that is wide enough."""
    smallest = min(filter(None, plan._shares()), default=Fraction(1))  # noqa: SLF001 - this is a part of plans
    least = sensitivity / (_WIDEST * smallest)
    if plan.budget < least:
        unit = Fraction(10) ** (math.floor(math.log10(least)) - 1)
        kept = plan.pipeline.calibrate
        less = " Or set calibrate=0, which spends nothing on measuring errors." if kept else ""
        raise UsageError(
            f"epsilon is too small for this sensitivity: choose {float(math.ceil(least / unit) * unit):.2g} "
            f"or more.{less}"
        )


def _publish_together(
    plans: Mapping[str, Plan],
    counts: Sequence[Counts | SparseCounts],
    book: LedgerLike,
    dataset: str,
    data: Any,
    name: str,
    token: str,
    say: Callable[[str], None],
) -> dict[str, Release]:
    """Charge once for several histograms of the same people, then draw each with its share.

    Sequential composition: histogram i has epsilon_i, and counts of sensitivity k_i as proved in
    `records.count_together`, so that it loses at most epsilon_i, whatever the others say. All of them
    together lose at most the sum, which is what is charged. All shares are taken before the first draw, and a
    charge gives no more than it has.
    """
    total = sum((plan.budget for plan in plans.values()), Fraction(0))
    shares = {key: plan.budget / total for key, plan in plans.items()}
    said = {
        key: plan._provenance(data)  # noqa: SLF001 - as above
        | _charged_to(book, dataset)
        | {
            "publication": {
                "name": name,
                "histogram": key,
                "share": str(shares[key]),
                "epsilon": str(total),
                "histograms": list(plans),
            },
        }
        for key, plan in plans.items()
    }
    charge = book.charge(
        total,
        dataset=dataset,
        mechanism=", ".join(dict.fromkeys(plan.pipeline.name for plan in plans.values())),
        what=f"{_source(data)}: {', '.join(plans)}",
        purpose="publication",
        unit=max(counts, key=lambda held: held.sensitivity).unit,
        token=token,
    )
    say("drawing")
    paid = [charge.take(share, key) for key, share in shares.items()]
    curators = [Curator(held, part) for held, part in zip(counts, paid, strict=True)]
    return {
        key: plan._run(curator, said[key])  # noqa: SLF001
        for (key, plan), curator in zip(plans.items(), curators, strict=True)
    }


@renamed(edges="bins", unit_sensitivity="sensitivity")
def from_counts(
    counts: ArrayLike,
    *,
    epsilon: Any,
    method: str | Pipeline = "auto",
    calibrate: Any = None,
    workload: WorkloadLike = "points",
    prior: PriorLike | None = None,
    public_prior: bool = False,
    bins: Any = None,
    ledger: LedgerLike | str | Path | None = None,
    sensitivity: int = 1,
    post: Post = "none",
    dataset: str = "default",
) -> Release:
    """Publish counts that were computed elsewhere.

    >>> release = dphist.from_counts([300, 20, 50], bins=["red", "green", "blue"], epsilon=1, sensitivity=2)
    >>> release.count("red").level, release.sensitivity
    (0.95, 2)

    Args:
        counts: exact integers, one per bin; two dimensions make a grid.
        bins: edges, labels, an axis or a domain (for a grid, a pair); by default the bins are numbered
            from 0.
        sensitivity: the largest change of the counts by one person, added over all bins.
    """
    exact = np.asarray(counts)
    plan = Plan(
        bins=_domain_of(exact, bins),
        epsilon=epsilon,
        method=method,
        calibrate=calibrate,
        workload=workload,
        prior=prior,
        public_prior=public_prior,
        post=post,
    )
    book = open_ledger(ledger, durable=False)
    book.check(plan.budget, dataset=dataset)
    held = Counts(exact, plan.domain, sensitivity, unit_words(None, sensitivity))
    return _publish(plan, held, book, dataset, {"source": "counts", **plan._of_prior})  # noqa: SLF001


class SimulatedValues(np.ndarray[Any, np.dtype[np.float64]]):
    """Values with seeded noise, which protects nothing: trials x bins."""

    simulated: ClassVar[bool] = True


@renamed(edges="bins", unit_sensitivity="sensitivity")
def simulate(
    counts: ArrayLike,
    *,
    epsilon: Any,
    method: str | Pipeline = "auto",
    workload: WorkloadLike = "points",
    prior: PriorLike | None = None,
    trials: int = 1,
    seed: int = 0,
    bins: Any = None,
    sensitivity: int = 1,
) -> SimulatedValues:
    """Run a mechanism on public or made-up counts; spends nothing. The result is not private.

    A method runs as published: unlike in a release, no share of its budget measures its bias.

    >>> dphist.simulate([300, 20, 50], epsilon=1, bins=[0, 10, 20, 30], trials=5).shape
    (5, 3)

    Returns:
        An array of values, one row per trial, stamped ``simulated``. The same seed gives the same array.
    """
    exact = np.asarray(counts)
    plan = Plan(
        bins=_domain_of(exact, bins),
        epsilon=epsilon,
        method=method,
        workload=workload,
        prior=prior,
        public_prior=prior is not None,
    )
    published = plan._with_prior(make_pipeline(method, plan.domain, plan.queries))  # noqa: SLF001
    held = Counts(exact, plan.domain, sensitivity)
    if as_int(trials, "trials") < 1:
        raise UsageError(f"trials must be at least 1, not {trials}.")
    first = (
        as_int(seed, "seed") << 32
    )  # the trial fills the low 32 bits: seeds of different trials never meet
    seeds = range(first, first + trials)
    runs = run_trials(published, held, plan.queries, epsilon=plan.budget, seeds=seeds)
    out = np.empty((trials, held.domain.n))
    for row, trial in zip(out, runs, strict=True):
        row[:] = trial.values
    return out.view(SimulatedValues)


def lasts(data: Any) -> bool:
    """Return whether the records outlive this process, so that their ledger must, too."""
    return isinstance(data, str | os.PathLike) or type(data).__module__.split(".")[0] in _SERVERS


class UnmadeLedger(MemoryLedger):
    """A ledger whose file is created only after the records are counted, just before the charge."""

    def __init__(self, make: Callable[[], Ledger]) -> None:
        super().__init__()
        self.make = make


def open_ledger(ledger: LedgerLike | str | Path | None, *, durable: bool) -> LedgerLike:
    """Return the given ledger, or the one at a path, in $DPHIST_LEDGER, in the default file, or in memory."""
    if isinstance(ledger, LedgerLike):
        return ledger
    if ledger is None:
        ledger = os.environ.get("DPHIST_LEDGER")
    if ledger is None:
        if durable and not Path(DEFAULT_LEDGER).exists():
            return UnmadeLedger(default_ledger)
        return default_ledger() if durable else MemoryLedger()
    if not isinstance(ledger, str | os.PathLike):
        raise UsageError(f"ledger must be a path or a ledger, not {type(ledger).__name__}.")
    return Ledger.open(ledger)


def default_ledger() -> Ledger:
    """Return the default ledger of the current folder; create it with a message if it is missing."""
    missing = not Path(DEFAULT_LEDGER).exists()
    book = Ledger.open(DEFAULT_LEDGER, create=True)
    if missing:
        notify(
            f"a new ledger was made: {book.path}. It has no limit yet; set one with: "
            f"dphist ledger limit {shlex.quote(str(book.path))} VALUE"
        )
    return book


def make_domain(bins: Any = None, **declared: Any) -> Domain:
    """Return the domain of bins as they are declared (`dphist.domain.declare`), of an axis, or a domain."""
    if not isinstance(bins, Axis | Domain):
        return Domain((declared_axis({"bins": bins, **declared}),))
    if extra := [key for key, value in declared.items() if value is not None and key != "timezone"]:
        raise UsageError(f"{extra[0]} says what the bins are, and so does the {type(bins).__name__} given.")
    return bins if isinstance(bins, Domain) else Domain((bins,))


def _grid(bins: Any, range: Any) -> Domain:
    """Return the grid of numpy's ``bins`` and ``range``: for both axes, or a pair."""
    if isinstance(bins, Domain):
        if range is not None:
            raise UsageError("range is for a number of bins; a Domain already has its ends.")
        if len(bins.axes) != 2:
            raise UsageError("this Domain has one axis, and a grid has two; or call histogram.")
        return bins
    if bins is None:
        raise UsageError("bins is needed: one number or a pair, with range=((xlo, xhi), (ylo, yhi)).")
    several = isinstance(bins, list | tuple) or (isinstance(bins, np.ndarray) and bins.ndim == 1)
    pair = tuple(bins) if several and len(bins) == 2 else (bins, bins)  # a longer list is edges for both
    if isinstance(range, str):
        make_axis(2, range)  # which says what it would leak
    ranges = (None, None) if range is None else range
    if not isinstance(ranges, list | tuple | np.ndarray) or len(ranges) != 2:
        raise UsageError("range must be a pair of pairs, ((xlo, xhi), (ylo, yhi)): one for each axis.")
    return Domain(tuple(make_axis(b, r) for b, r in zip(pair, ranges, strict=True)))


def _domain_of(counts: NDArray[Any], bins: Any) -> Domain:
    """Return the domain of given counts: numbered from 0 unless ``bins`` describes the bins."""
    if isinstance(bins, Domain):
        return bins
    if counts.ndim not in (1, 2) or not counts.size:
        raise UsageError(f"counts must be a list or a grid of at least one bin, not shape {counts.shape}.")
    if bins is None:
        return Domain(tuple(Integers(0, n - 1) for n in counts.shape))
    per_axis = (bins,) if counts.ndim == 1 else tuple(bins)
    return Domain(tuple(_axis_of(each) for each in per_axis))


def _axis_of(bins: Any) -> Axis:
    if isinstance(bins, Axis):
        return bins
    if len(bins) and all(isinstance(label, str) for label in bins):
        return Categories(tuple(bins))
    return Variable(np.asarray(bins))


def _source(data: Any) -> str:
    """Return where records came from, without folders, hosts or passwords."""
    if not isinstance(data, str | os.PathLike):
        return f"{type(data).__name__} in memory"
    scheme, found, _ = os.fspath(data).partition("://")
    return scheme if found else Path(data).name
