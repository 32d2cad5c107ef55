"""All commands, and the translation of errors into one message and an exit code."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from dphist._common import __version__
from dphist.cli import advise, bounds, check, handin, lab, ledger, look, plan, publish, studio, warm
from dphist.cli.common import CODES, Charging, Command, Commands, say, show
from dphist.errors import DphistError

app = typer.Typer(
    cls=Commands,
    help="Publish histograms under differential privacy.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        show(f"dphist {__version__}")
        raise typer.Exit


app.command(cls=Command)(check.check)
app.command(cls=Charging)(publish.publish)
app.command(cls=Charging)(bounds.bounds)
app.command(cls=Command, context_settings={"ignore_unknown_options": True})(look.query)
for command in (
    look.plot,
    handin.export,
    handin.report,
    look.methods,
    look.audit,
    look.demo,
    advise.advise,
    advise.preview,
    lab.compare,
    lab.shapes,
    studio.studio,
    warm.warm,
):
    app.command(cls=Charging if command is look.demo else Command)(command)
app.add_typer(plan.app, name="plan")
app.add_typer(ledger.app, name="ledger")


def run() -> None:
    """Run the command that the arguments name."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except DphistError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
