"""The commands of plan files: several histograms of one dataset, priced before and published all or none."""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist._common.text import harmless
from dphist.cli.common import (
    Charging,
    Command,
    Commands,
    Interrupted,
    JsonFlag,
    amount,
    print_table,
    say,
    show,
    warnings_said,
)
from dphist.cli.ledger import budget_line, mixed, units
from dphist.cli.publish import undisturbed, unsaved
from dphist.cli.shown import show_release
from dphist.cli.stream import spooled
from dphist.cli.warm import how_often
from dphist.errors import (
    AlreadyCharged,
    DphistError,
    LedgerError,
    OutputError,
    UsageError,
    is_interrupt,
)
from dphist.kernels import noticing
from dphist.planning.account import ledger_of
from dphist.planning.places import check_apart, check_folder
from dphist.privacy.counts import unit_words
from dphist.privacy.ledger import Ledger, LedgerLike, MemoryLedger

if TYPE_CHECKING:
    from dphist.planning.plan import Plan
    from dphist.planning.publication import Publication

app = typer.Typer(
    cls=Commands,
    help="Plan several histograms in a file: their price first, one charge, all or none.",
    no_args_is_help=True,
)
PlanFile = Annotated[Path, typer.Argument(help="The plan file, which ends in .toml", metavar="PLAN")]
Records = Annotated[int, typer.Option(help="Approximate number of records, from public knowledge.")]
Like = Annotated[str, typer.Option(help="Shape of the data: see dphist shapes; or an earlier release.")]


@app.command("new", cls=Command)
def plan_new(
    file: PlanFile,
    data: Annotated[str, typer.Option(help="The records: a file, a glob or a folder.")] = "visits.csv",
) -> None:
    """Write a plan file with comments and an example of everything; no file is replaced."""
    from dphist.planning.plan_files import new

    made = new(file, data=data)
    show(f"{made} was written; edit it, then: dphist plan price {shlex.quote(str(made))}")


@app.command("show", cls=Command)
def plan_show(file: PlanFile, as_json: JsonFlag = False) -> None:
    """Show what a plan file publishes; reads neither records nor a ledger."""
    publication = _load(file)
    if as_json:
        show(json.dumps(_facts(publication)))
        return
    _show_facts(publication)
    header = ("histogram", "counts", "bins", "method", "share", "epsilon")
    rows = [_row(publication, name) for name in publication.plans]
    print_table(header, rows, right=("bins", "share", "epsilon"), fold=("counts", "method"))


@app.command("price", cls=Command)
def plan_price(
    file: PlanFile,
    records: Records = 10_000,
    like: Like = "smooth",
    shares: Annotated[
        bool, typer.Option("--shares", help="Also say with which shares all errors are alike.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the price and the expected errors of all histograms, and what the ledger would have left.

    Errors are those of simulated releases of made-up records. Reads no records and spends nothing.
    """
    publication = _load(file)
    account, fresh = ledger_of(publication.ledger)
    book = MemoryLedger() if fresh else Ledger.open(account, read_only=True)
    with warnings_said(), noticing(lambda: say(f"compiling, {how_often()} ...")):
        errors = {name: _errors(plan, records=records, like=like) for name, plan in publication.plans.items()}
        even = _even_shares(publication, records) if shares else {}
    left = book.remaining(publication.dataset)
    after = None if left is None else left - publication.budget
    if as_json:
        facts = _facts(publication) | {
            "ledger": str(account),
            "left": None if left is None else str(left),
            "left_after": None if after is None else str(after),
            "records": records,
            "like": like,
            **({"shares": even} if shares else {}),
        }
        for name, found in errors.items():
            known = {what: None if math.isnan(error) else error for what, error in found.items()}
            facts["histograms"][name]["expected_error"] = known
        show(json.dumps(facts))
    else:
        header = ("histogram", "queries", "method", "share", "epsilon", "expected error")
        rows = [
            (
                name,
                harmless(what, keep=""),
                *_row(publication, name)[3:],
                "not known" if math.isnan(error) else f"{error:,.3g}",
            )
            for name, found in errors.items()
            for what, error in found.items()
        ]
        print_table(header, rows, right=("share", "epsilon", "expected error"), fold=("queries", "method"))
        show(f"errors: root mean square of a query, in records, with {records:,} made-up records ({like})")
        if shares:
            told = ", ".join(f"{name} {share}" for name, share in even.items())
            show(f"shares: {told}; then all are off by about the same part of an answer")
        price = amount(publication.budget)
        show(f"price: epsilon {price}, charged once to {publication.dataset!r} in {account}")
        if left is None:
            show("left: no limit is set")
        elif after is not None and after >= 0:
            show(f"left: {amount(left)} now, {amount(after)} after the publication")
        unit = _unit(publication)
        if note := mixed([unit, *units(book, publication.dataset)]):
            show(f"note: with this one, the budget {note}")
    book.check(publication.budget, dataset=publication.dataset)


@app.command("publish", cls=Charging)
def plan_publish(
    file: PlanFile,
    data: Annotated[
        str | None, typer.Argument(help="Other records than the plan names; - is standard input.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the releases; by default named as the plan.")
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Charge this plan once: run again, show or finish what was published."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Publish all histograms of a plan file, or none: one count, one charge, one folder of releases.

    Whatever can fail without the records fails before the charge.
    """
    publication = _load(file)
    source = str(publication.data) if data is None and publication.data is not None else data
    if source is None:
        raise UsageError(f'{file} names no data; write data = "visits.csv" in it, or name the records here.')
    account, fresh = ledger_of(publication.ledger)
    folder = file.with_suffix("") if out is None else out
    token, charged = "", list[str]()
    if source != "-":
        publication = replace(publication, data=source)
        charged, token = _tokens(publication, file, account, fresh=fresh)
    elif once:
        raise UsageError("--once needs records that can be named again: give a file, not standard input.")
    if once and charged:
        from dphist.release import load

        before = _published_before(charged[-1], Ledger.open(account), folder)
        _show_releases({name: load(path) for name, path in before.items()}, as_json=as_json)
        return
    _check_places(publication, source, account, folder, named=out is not None)
    saved, books = None, [] if fresh else [Ledger.open(account)]
    if charged and (last := books[0].entry_of(charged[-1])):
        say(
            f"note: this plan was charged before, as entry {last.number}, and is charged again now; --once "
            "shows what was published then, and charges nothing."
        )
    spent = books[0].spent(publication.dataset) if books else Fraction(0)

    def make() -> Ledger:
        books.append(Ledger.open(account, create=True))
        say(f"a new ledger was made: {account}")
        return books[0]

    from dphist.planning.plan import UnmadeLedger

    book = UnmadeLedger(make) if fresh else books[0]
    try:
        _prepare(publication)
        with spooled(source, None) as counted:
            releases = _released(publication, counted, book, token)
        with undisturbed():
            saved, done = _save_or_rescue(publication, releases, folder)
            if out is not None and done and saved != out:
                say(f"error: {out} was made by another process meanwhile, and is not replaced.")
                done = False
            say(f"releases: {saved}")
        _show_releases(releases, as_json=as_json)
        say(budget_line(books[0], publication.dataset))
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interrupt(error):
            raise
        said = unsaved(books, publication.dataset, spent)
        if saved is not None:
            price = amount(publication.budget)
            said = f"interrupted; the releases are safe in {saved}, and epsilon {price} was charged."
        raise Interrupted(said) from None
    if not done:
        raise typer.Exit(OutputError.exit_code)


def _tokens(publication: Publication, file: Path, account: Path, *, fresh: bool) -> tuple[list[str], str]:
    """Return the tokens that this plan was charged with, and the one that a further charge has."""
    from dphist.planning.once import tokens

    return tokens(publication, file.parent, MemoryLedger() if fresh else Ledger.open(account))


def _released(publication: Publication, counted: str, book: LedgerLike, token: str) -> Mapping[str, Any]:
    try:
        return publication.release(counted, ledger=book, token=token)
    except AlreadyCharged as error:
        raise LedgerError(
            f"another process published this plan meanwhile, as entry {error.number} of the ledger. Nothing "
            "was charged here. To see what it published, add --once; for a further charge, run this again."
        ) from None


def _published_before(token: str, book: Ledger, folder: Path) -> Mapping[str, Path]:
    """Return the releases of a charge, finished if need be."""
    from dphist.planning.once import NOT_HERE, finish, look

    standing = look(folder, token, book)
    if standing.state == "finishable":
        say(f"finished without a new charge: {finish(folder, standing)}")
        standing = look(folder, token, book)
    number = standing.entry.number if standing.entry else 0
    if standing.state == "published" and standing.files:
        say(f"this plan was published before, and charged as entry {number}; nothing is charged again.")
        say(f"releases: {next(iter(standing.files.values())).parent}")
        return standing.files
    how = "is being published." if standing.state == "running" else f"was charged, but {NOT_HERE}"
    raise LedgerError(
        f"this plan (entry {number} of the ledger) {how} Nothing was charged now. To publish it as a new "
        "charge, leave --once out."
    )


def _show_releases(releases: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        show(json.dumps({name: json.loads(made.to_json()) for name, made in releases.items()}))
        return
    for name, made in releases.items():
        show(f"{harmless(name, keep='')}: epsilon {amount(made.epsilon)}")
        show_release(made)


def _load(file: Path) -> Publication:
    from dphist.planning.publication import Publication

    with warnings_said():
        return Publication.load(file)


def _unit(publication: Publication) -> str:
    plans = publication.plans.values()
    return unit_words(next(iter(plans)).unit, max(plan.max_contributions for plan in plans))


def _files(publication: Publication) -> dict[str, str]:
    from dphist.planning.once import file_names

    return file_names(publication)


def _save(publication: Publication, releases: Mapping[str, Any], folder: Path) -> Path:
    from dphist.planning.once import save

    return save(publication, releases, folder)


def _check_places(publication: Publication, source: str, account: Path, folder: Path, *, named: bool) -> None:
    """Refuse a folder that is there already if it was named, or in which nothing could be written."""
    check_folder(folder.parent)
    if named and (folder.exists() or folder.is_symlink()):
        raise OutputError(f"{folder} exists; name a new folder for the releases.")
    places = {f"the file of {name!r},": folder / file for name, file in _files(publication).items()}
    check_apart(source, account, places)


def _prepare(publication: Publication) -> None:
    """Compile and import what the steps after the charge need, so that nothing can fail there."""
    import rich.table  # noqa: F401 - the releases are shown in one

    with noticing(lambda: say(f"compiling, {how_often()} ...")):
        publication.prepare()


def _save_or_rescue(publication: Publication, releases: Mapping[str, Any], folder: Path) -> tuple[Path, bool]:
    """Save releases that are paid for, all in one step; if that fails, save them elsewhere.

    Returns:
        Their folder, and whether that is where it was meant to be.
    """
    try:
        return _save(publication, releases, folder), True
    except (DphistError, OSError) as error:
        why = (
            str(error) if isinstance(error, DphistError) else f"{folder} cannot be written: {error.strerror}."
        )
        try:
            rescue = _save(publication, releases, Path(tempfile.mkdtemp(prefix="dphist-")) / folder.name)
        except (DphistError, OSError):
            for made in releases.values():
                show(made.to_json())
            say(f"error: {why} The releases are paid for, so they were printed instead: keep that output.")
            sys.exit(OutputError.exit_code)
        move = f"mv {shlex.quote(str(rescue))} {shlex.quote(str(folder))}"
        say(
            f"error: {why} The releases are paid for, so they were kept in {rescue}. Do not publish again: "
            f"that would be charged again. Move them: {move}"
        )
        return rescue, False


def _even_shares(publication: Publication, records: int) -> dict[str, str]:
    from dphist.planning.foresee import even_shares

    return {name: amount(share) for name, share in even_shares(publication, records=records).items()}


def _errors(plan: Plan, *, records: int, like: str) -> dict[str, float]:
    """Return the root mean square error of a query, of each level where there are groups; NaN is unknown."""
    from dphist.planning.grouped import GroupedPlan

    if isinstance(plan, GroupedPlan):
        levels = plan.preview(records=records, like=like).levels
        return {level.name: float(level.error) for level in levels}
    looked = plan.preview(records=records, like=like)
    words = plan.workload if isinstance(plan.workload, str) else "queries"
    squares = [plan.queries.mean_squared_error(row - looked.truth) for row in looked.values]
    return {words: math.sqrt(sum(squares) / len(squares))}


def _facts(publication: Publication) -> dict[str, Any]:
    """Return what a publication is, ready for JSON."""
    return {
        "name": publication.name,
        "data": None if publication.data is None else str(publication.data),
        "ledger": None if publication.ledger is None else str(publication.ledger),
        "dataset": publication.dataset,
        "unit": _unit(publication),
        "epsilon": str(publication.budget),
        "histograms": {
            name: {
                "share": str(publication.shares[name]),
                "epsilon": str(plan.budget),
                "column": plan.column if isinstance(plan.column, str) else list(plan.column or ()),
                "bins": plan.domain.n,
                "method": plan.pipeline.name,
                "unit": unit_words(plan.unit, plan.max_contributions),
                "file": _files(publication)[name],
            }
            for name, plan in publication.plans.items()
        },
    }


def _show_facts(publication: Publication) -> None:
    facts = _facts(publication)
    facts["ledger"] = facts["ledger"] or "the default"
    facts["epsilon"] = amount(publication.budget)
    for key in ("name", "data", "ledger", "dataset", "unit", "epsilon"):
        show(f"{key + ':':<9} {'not named' if facts[key] is None else facts[key]}")


def _row(publication: Publication, name: str) -> tuple[str, ...]:
    from dphist.planning.grouped import GroupedPlan

    plan = publication.plans[name]
    column = plan.column if isinstance(plan.column, str) else " by ".join(plan.column or ())
    bins = " x ".join(f"{n:,}" for n in plan.domain.shape)
    if isinstance(plan, GroupedPlan):
        column += f", for each {plan.hierarchy.names[-1]}"
        bins += f" x {plan.hierarchy.sizes[-1]:,}"
    share = amount(publication.shares[name])
    return (name, harmless(column, keep=""), bins, plan.pipeline.name, share, amount(plan.budget))
