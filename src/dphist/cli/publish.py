"""The command that publishes a private histogram; a release that is paid for is never lost."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist.cli import options
from dphist.cli.bins import check_columns, say_what_is_short
from dphist.cli.common import Interrupted, amount, say, show
from dphist.cli.ledger import budget_line, mixed, units
from dphist.cli.options import OUTPUT, PRIVACY, bundled, option
from dphist.cli.places import check_disk, check_free, check_places
from dphist.cli.plans import expected_error, make_plan
from dphist.cli.shown import show_release
from dphist.cli.stream import check_format, spooled
from dphist.cli.warm import how_often
from dphist.domain import Integers, Keyed
from dphist.domain.declare import refuse_own_labels
from dphist.errors import DphistError, OutputError, UsageError, is_interrupt
from dphist.kernels import noticing
from dphist.planning.account import ledger_of
from dphist.privacy.counts import unit_words
from dphist.privacy.ledger import Ledger, MemoryLedger
from dphist.uncertainty.models import bounding

if TYPE_CHECKING:
    from dphist.domain import Axis
    from dphist.planning.plan import Plan
    from dphist.release import Release


@bundled
def publish(
    data: options.Data,
    axes: options.Axes,
    groups: options.Groups,
    reading: options.Reading,
    epsilon: Annotated[str, option(PRIVACY, "Privacy budget: 0.5", "E")],
    person: options.Person,
    looks: options.Looks,
    method: Annotated[str, option(PRIVACY, "Default: auto; plain noise: identity.", "NAME")] = "auto",
    calibrate: Annotated[
        str | None,
        option(PRIVACY, "Part of epsilon for measuring bias.", "PART"),
    ] = None,
    workload: Annotated[
        str,
        option(PRIVACY, "points, ranges, prefixes, rectangles; random:2000, rectangles:200", "NAME"),
    ] = "points",
    prior: Annotated[Path | None, option(PRIVACY, "Earlier release or public counts.", "FILE")] = None,
    public_prior: Annotated[
        bool, option(PRIVACY, "Counts in --prior are public.", None, "--public-prior")
    ] = False,
    ledger: Annotated[Path | None, option(PRIVACY, "Made with: dphist ledger create", "FILE")] = None,
    dataset: Annotated[str, option(PRIVACY, "Whom the ledger charges; default.", "NAME")] = "default",
    post: Annotated[str, option(OUTPUT, "Values: none (default), nonneg, integer.", "HOW")] = "none",
    out: Annotated[Path | None, option(OUTPUT, "The release: .json, .csv or .parquet.", "FILE")] = None,
    plot: Annotated[Path | None, option(OUTPUT, "Its picture: .png, .svg or .html.", "FILE")] = None,
    overwrite: Annotated[
        bool, option(OUTPUT, "Let --out and --plot replace files.", None, "--overwrite")
    ] = False,
    dry_run: Annotated[
        bool, option(OUTPUT, "Read no data, spend nothing; check the rest.", None, "--dry-run")
    ] = False,
    as_json: Annotated[bool, option(OUTPUT, "Print the result as JSON.", None, "--json")] = False,
) -> None:
    """Publish a private histogram of CSV, TSV, JSON lines, Parquet or a database.

    Bins come from public knowledge, never from the data: see docs/shell.md.
    """
    from dphist.planning import plan as api
    from dphist.release import fresh_name

    check_columns(axes)
    refuse_own_labels(data, axes.categories, axes.y_categories, groups.groups, prior)
    _check_looks(looks, plot)
    choices = {"method": method, "calibrate": calibrate, "workload": workload, "post": post}
    belief = {"prior": prior, "public_prior": public_prior}
    plan = make_plan(axes, groups, reading, person, epsilon=epsilon, **choices, **belief)
    say_what_is_short(plan.domain)
    if plot is not None:
        refuse_to_draw(plan)
    if plan.budget > api.LARGE_EPSILON:
        say(f"warning: epsilon {amount(plan.budget)} hardly protects a single record. {api.COMMON_EPSILONS}")
    check_format(data, reading.format)
    account, fresh = ledger_of(ledger)
    target = Path(_default_name(plan)) if out is None else out
    check_places(data, account, target, plot)
    _check_room(plan, target, as_json=as_json)
    for place in (out, plot):
        if place is not None:
            check_free(place, overwrite=overwrite)
    if dry_run:
        if out is None:
            target = fresh_name(target)
        _show_plan(plan, data, account, dataset, target, as_json, fresh=fresh)
        return
    saved, books = None, [] if fresh else [Ledger.open(account)]
    before = books[0].spent(dataset) if books else Fraction(0)

    def make() -> Ledger:
        books.append(Ledger.open(account, create=True))
        say(f"a new ledger was made: {account}")
        return books[0]

    book = api.UnmadeLedger(make) if fresh else books[0]
    try:
        _prepare(plan, plot)
        with spooled(data, reading.format) as source:
            release: Any = plan.release(source, ledger=book, dataset=dataset)
        with undisturbed():
            saved, done = save_or_rescue(release, target, overwrite=overwrite and out is not None)
            if out is not None and done and saved != out:
                say(f"error: {out} was written by another process meanwhile, and is not replaced.")
                done = False
            say(f"release: {saved}")
        if plan.pipeline.calibrate and groups.by is None and not release.error.is_calibrated:
            say("note: nothing was calibrated, since no bins share a value.")
        if plot is not None:
            done = _draw(release, plot, saved, overwrite=overwrite, looks=looks) and done
        if as_json:
            show(release.to_json())
        else:
            show_release(release)
            _say_what_to_mind(release)
        say(budget_line(books[0], dataset))
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interrupt(error):
            raise
        said = _safe(plan, saved, plot) if saved else unsaved(books, dataset, before)
        raise Interrupted(said) from None
    if not done:
        raise typer.Exit(OutputError.exit_code)


def _say_what_to_mind(release: Any) -> None:
    """Say for whom intervals hold, and that a release with hardly a bin above 0 may be of a wrong column."""
    from dphist.release import Release
    from dphist.release.words import of_most

    if most := of_most(release, 0.95):
        say(f"note: {most}.")
    if not isinstance(release, Release):
        return
    told, low = int((release.presentable_intervals()[0] >= 0.5).sum()), release.total().low
    few = told <= 1 + 0.05 * release.domain.n and low is not None and low < 0.5
    if told == 0 or few:
        what = "no more bins than chance lifts" if told else "no bin"
        ask = "should there be records, are this their column and their range?"
        say(f"note: {what} can be told from 0; {ask}")


def _default_name(plan: Plan) -> str:
    """Return a name in a format that takes as many values as a plan has."""
    from dphist.planning.grouped import GroupedPlan
    from dphist.release.grouped_files import MOST_IN_JSON

    many = isinstance(plan, GroupedPlan) and plan.size > MOST_IN_JSON
    return "release.parquet" if many else "release.json"


def _check_room(plan: Plan, target: Path, *, as_json: bool) -> None:
    """Refuse a format or a disk that all groups do not fit in, before anything is charged."""
    from dphist.planning.grouped import GroupedPlan
    from dphist.release.grouped_files import bytes_at_most, refuse_too_many

    if isinstance(plan, GroupedPlan):
        ending = target.suffix.lower()
        for each in (ending, ".json") if as_json else (ending,):
            refuse_too_many(plan.size, each)
        check_disk(target, bytes_at_most(plan.size, ending, presented=plan.post != "none"))


def _prepare(plan: Plan, plot: Path | None) -> None:
    """Compile and import what the steps after the charge need, so that nothing can fail there."""
    import rich.table  # noqa: F401 - the release is shown in one

    if plot is not None:
        import vl_convert  # noqa: F401
    name = plan.method if isinstance(plan.method, str) else plan.method.name
    with noticing(lambda: say(f"compiling {name}, {how_often()} ...")):
        plan.prepare()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C for the milliseconds in which a release that is paid for is saved."""
    if threading.current_thread() is not threading.main_thread():  # which no Ctrl-C reaches
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def save_or_rescue(release: Release, target: Path, *, overwrite: bool) -> tuple[Path, bool]:
    """Save a release that is paid for; if its file cannot be written, save it elsewhere.

    Returns:
        Where it is, and whether that is where it was meant to be.
    """
    from dphist.release import save_fresh

    try:
        return (release.save(target, overwrite=True) if overwrite else save_fresh(release, target)), True
    except DphistError as error:
        try:
            kept = target if target.suffix.lower() == ".parquet" else target.with_suffix(".json")
            rescue = release.save(Path(tempfile.mkdtemp(prefix="dphist-")) / kept.name)
        except (DphistError, OSError):
            show(release.to_json())
            say(f"error: {error} The release is paid for, so it was printed instead: keep that output.")
            sys.exit(error.exit_code)
        move = f"mv {shlex.quote(str(rescue))} {shlex.quote(str(kept))}"
        say(
            f"error: {error} The release is paid for, so it was kept in {rescue}. Do not publish again: that "
            f"would be charged again. Move it: {move}"
        )
        return rescue, False


def unsaved(books: list[Ledger], dataset: str, before: Fraction) -> str:
    """Return the message of an interrupt before the release is saved, with what was charged."""
    try:
        charged = books[0].spent(dataset) - before if books else Fraction(0)
    except DphistError:
        return f"interrupted; look with: dphist ledger show {shlex.quote(str(books[0].path))}"
    if not charged:
        return "interrupted; nothing was charged."
    return f"interrupted after epsilon {amount(charged)} was charged; nothing was saved."


def _safe(plan: Plan, saved: Path, plot: Path | None) -> str:
    """Return the message of an interrupt after the release is saved."""
    safe = f"interrupted; the release is safe in {saved}, and epsilon {amount(plan.budget)} was charged."
    return safe if plot is None or plot.exists() else safe + _later(saved, plot)


def _later(saved: Path, plot: Path) -> str:
    """Return the command that draws a saved release."""
    if saved.suffix.lower() == ".csv":
        return ""
    return f" Draw it with: dphist plot {shlex.quote(str(saved))} {shlex.quote(str(plot))}"


def _check_looks(looks: options.Looks, plot: Path | None) -> None:
    """Refuse a size that no picture can have, and words without a picture, before anything is spent."""
    from dphist.charts.picture import checked_size

    checked_size(looks.size)
    if plot is None and looks != options.Looks():
        raise UsageError("--title, --xlabel, --ylabel and --size are of a picture: add --plot FILE.")


def refuse_to_draw(plan: Plan) -> None:
    """Refuse a picture that no release of this plan has."""
    from dphist.methods.sparse import SparsePipeline
    from dphist.release.sparse import UNDRAWN
    from dphist.steps.estimate import Listed

    grid = isinstance(plan.pipeline, SparsePipeline) and len(plan.domain.axes) == 2
    if grid and not isinstance(plan.pipeline.estimate, Listed):
        raise UsageError(f"{UNDRAWN}; leave --plot out.")


def _draw(release: Release, plot: Path, saved: Path, *, overwrite: bool, looks: options.Looks) -> bool:
    """Draw a saved release, or print the command that draws it later."""
    if not getattr(release, "has_picture", True):
        say("picture: none, for no bin is listed.")
        return True
    try:
        check_free(plot, overwrite=overwrite)  # it may have come meanwhile
        release.plot(plot, overwrite=overwrite, **vars(looks))
    except Exception as error:  # whatever the renderer says: the release is worth more than its picture
        say(f"error: no picture: {error} The release is safe in {saved}.{_later(saved, plot)}")
        return False
    say(f"picture: {plot}")
    return True


def _show_plan(
    plan: Plan, data: str, account: Path, dataset: str, target: Path, as_json: bool, *, fresh: bool
) -> None:
    """Ask the ledger, without creating it, and print what would happen."""
    book = MemoryLedger() if fresh else Ledger.open(account, read_only=True)
    book.check(plan.budget, dataset=dataset)
    left = book.remaining(dataset)
    unit = unit_words(plan.unit, plan.max_contributions)
    labels = any(axis.kind == "categories" for axis in plan.domain.axes)
    facts: dict[str, Any] = {
        "data": data,
        "column": plan.column if isinstance(plan.column, str) else " by ".join(plan.column or ()),
        "bins": plan.domain.n,
        "labels" if labels else "range": " by ".join(_extent(axis) for axis in plan.domain.axes),
        "timezone": plan.zone,
        **({"well_formed": True} if plan.well_formed else {}),
        **({"encoding": plan.encoding} if plan.encoding != "utf-8" else {}),
        **({"decimal": plan.decimal} if plan.decimal != "." else {}),
        **_group_facts(plan),
        "unit": unit,
        **({} if plan.unit is None else {"bounding": bounding(plan.max_contributions)}),
        "epsilon": str(plan.epsilon),
        "method": plan.method if isinstance(plan.method, str) else plan.method.name,
        **({} if plan.prior is None else {"prior": str(plan.prior)}),
        **({"calibrate": f"{amount(part)} of epsilon"} if (part := plan.pipeline.calibrate) else {}),
        **expected_error(plan),
        "ledger": str(account),
        "dataset": dataset,
        "left": None if left is None else amount(left),
        "left_after": None if left is None else amount(left - plan.budget),
        "release": str(target),
    }
    if as_json:
        show(json.dumps(facts))
        return
    facts["ledger"] += " (would be made)" if fresh else ""
    show("dry run: nothing read, nothing charged")
    for name, fact in facts.items():
        show(f"  {name.replace('_', ' ') + ':':<11} {'no limit' if fact is None else fact}")
    if note := mixed([unit, *units(book, dataset)]):
        show(f"  note:       with this one, the budget {note}")


def _group_facts(plan: Plan) -> dict[str, Any]:
    """Return how many groups a plan has, and what each level is measured with."""
    from dphist.planning.grouped import GroupedPlan

    if not isinstance(plan, GroupedPlan):
        return {}
    levels = zip(plan.hierarchy.names, plan.hierarchy.sizes, plan.shares, strict=True)
    return {
        "groups": "; ".join(f"{size:,} {name}, {amount(share)} of epsilon" for name, size, share in levels)
    }


def _extent(axis: Axis) -> str:
    if axis.kind == "categories":
        names = axis.names()
        return ", ".join(names[:8]) + (f", ... ({len(names)} labels)" if len(names) > 8 else "")
    if axis.kind == "instants":
        return " to ".join(axis.edge_name(i) for i in (0, axis.n))  # type: ignore[union-attr]
    if isinstance(axis, Integers | Keyed):
        return f"{axis.name(0)} to {axis.name(axis.n - 1)}"
    return f"{axis.edges[0]:.12g} to {axis.edges[-1]:.12g}"
