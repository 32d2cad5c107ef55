"""The commands that show, create, limit and export a ledger."""

from __future__ import annotations

import shlex
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from dphist._common.text import harmless
from dphist.cli.common import Command, Commands, JsonFlag, amount, print_table, show
from dphist.errors import LedgerError, UsageError, did_you_mean
from dphist.planning.account import ledger_of
from dphist.privacy.ledger import Ledger, MemoryLedger, parse_epsilon
from dphist.reports.budget import mixed as mixed
from dphist.reports.budget import units as units

app = typer.Typer(
    cls=Commands,
    help="Show, create, limit and export a ledger, the journal of all charges.",
    invoke_without_command=True,
)
LedgerPath = Annotated[Path | None, typer.Argument(help="Ledger file; dphist-ledger.db by default.")]


class Form(StrEnum):
    """How the ledger is exported."""

    csv = "csv"
    json = "json"


@app.callback()
def ledger_default(context: typer.Context) -> None:
    """Show the default ledger when no command is named."""
    if context.invoked_subcommand is None:
        ledger_show(None)


@app.command("show", cls=Command)
def ledger_show(
    file: LedgerPath = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the charges of each dataset and the budget that is left."""
    from dphist.privacy.ledger import to_json
    from dphist.release.show import short_id

    book = _ledger(file, dataset, read_only=True)
    if as_json:
        show(to_json(book.entries(dataset)))
        return
    rows = [
        (
            str(e.number),
            e.when[:16].replace("T", " "),
            e.dataset,
            "none" if e.epsilon is None else amount(e.epsilon),
            e.mechanism if e.kind == "charge" else "limit",
            "\n".join(harmless(word, keep="") for word in (e.what, e.unit) if word and e.kind == "charge"),
            short_id(e.release),
        )
        for e in book.entries(dataset)
    ]
    header = ("no", "when (UTC)", "dataset", "epsilon", "method", "what, and whom it protects", "release")
    if rows:
        print_table(header, rows, right=("no", "epsilon"), fold=("dataset", "method", header[5]))
    else:
        show("nothing was charged yet.")
    for name in [dataset] if dataset is not None else book.datasets() or ["default"]:
        show(budget_line(book, name))


@app.command("create", cls=Command)
def ledger_create(
    file: Annotated[Path, typer.Argument(help="The ledger file to create.")],
    limit: Annotated[
        str | None, typer.Option(help="Limit on the sum of all charges to this dataset.")
    ] = None,
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Create a ledger, with a limit if one is given."""
    wanted = None if limit is None else parse_epsilon(limit, name="limit")
    MemoryLedger().spent(dataset)  # a bad name is refused before there is a file
    if file.is_file():
        Ledger.open(file, read_only=True)  # says so if it is something else
        raise LedgerError(
            f"the ledger {file} exists and stays as it is. To change a limit use: "
            f"dphist ledger limit {shlex.quote(str(file))} VALUE --dataset {shlex.quote(dataset)}"
        )
    book = Ledger.open(file, create=True)
    if wanted is not None:
        book.set_limit(dataset, wanted)
    show(budget_line(book, dataset))


@app.command("limit", cls=Command)
def ledger_limit(
    file: Annotated[Path, typer.Argument(help="The ledger file.")],
    value: Annotated[str, typer.Argument(help="The new limit, or the word none.")],
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Set the limit on the sum of all charges to a dataset; the change itself is journaled."""
    new = None if value.casefold() == "none" else value
    show(f"{dataset!r}: {Ledger.open(file).set_limit(dataset, new)}")


@app.command("export", cls=Command)
def ledger_export(
    file: LedgerPath = None,
    form: Annotated[Form, typer.Option("--format", help="csv or json.")] = Form.csv,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
) -> None:
    """Print the whole journal as CSV or JSON."""
    from dphist.privacy.ledger import to_csv, to_json

    entries = _ledger(file, dataset, read_only=True).entries(dataset)
    show(to_csv(entries) if form is Form.csv else to_json(entries), nl=form is Form.json)


def _ledger(file: Path | None, dataset: str | None, *, read_only: bool) -> Ledger:
    """Return an existing ledger, after checking that it contains the dataset if one is named."""
    book = Ledger.open(ledger_of(file)[0], read_only=read_only)
    known = book.datasets()
    if dataset is not None and dataset not in known:
        near = did_you_mean(dataset, known) if known else "It knows no dataset yet."
        raise UsageError(f"dataset {dataset!r} is not in the ledger {book.path}. {near}")
    return book


def budget_line(book: Ledger, dataset: str) -> str:
    """Return a sentence with the spent and the remaining budget."""
    spent, limit, note = book.spent(dataset), book.limit(dataset), mixed(units(book, dataset))
    note = f"\n  note: that {note}" if note else ""
    if limit is None:
        how = f"dphist ledger limit {shlex.quote(str(_near(book.path)))} VALUE"
        return (
            f"budget of {dataset!r}: spent {amount(spent)}, no limit set{note}\n"
            f"  set one with: {how} --dataset {shlex.quote(dataset)}"
        )
    left = max(limit - spent, Fraction(0))
    return f"budget of {dataset!r}: spent {amount(spent)} of {amount(limit)}, {amount(left)} left{note}"


def _near(path: Path) -> Path:
    """Return a path relative to the current folder if it lies inside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
