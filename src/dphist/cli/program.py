"""All commands, and the translation of errors into one message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

from dphist._common import __version__
from dphist.cli.common import CODES, Asking, Charging, Command, Commands, say, show
from dphist.errors import DphistError

# The module and the kind of each command, in the order of the help; only the module of the command which was
# named is imported.
_COMMANDS: dict[str, tuple[str, type[Command]]] = {
    "check": ("check", Command),
    "publish": ("publish", Charging),
    "bounds": ("bounds", Charging),
    "query": ("look", Asking),
    "plot": ("look", Command),
    "export": ("handin", Command),
    "report": ("handin", Command),
    "methods": ("look", Command),
    "audit": ("look", Command),
    "demo": ("demo", Charging),
    "advise": ("advise", Command),
    "preview": ("advise", Command),
    "compare": ("lab", Command),
    "shapes": ("lab", Command),
    "studio": ("studio", Command),
    "warm": ("warm", Command),
}
_GROUPS = ("plan", "ledger")


def made(words: list[str]) -> typer.Typer:
    """Return the program: the command that the first word names, or all of them."""
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
    app.callback(invoke_without_command=True)(_version)
    named = words[:1] if words and words[0] in (*_COMMANDS, *_GROUPS) else (*_COMMANDS, *_GROUPS)
    for name in named:
        if name in _GROUPS:
            app.add_typer(import_module(f"dphist.cli.{name}").app, name=name)
        else:
            home, kind = _COMMANDS[name]
            app.command(cls=kind)(getattr(import_module(f"dphist.cli.{home}"), name))
    return app


def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        show(f"dphist {__version__}")
        raise typer.Exit


def run(app: Callable[[], None]) -> None:
    """Run the command that the arguments name."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except DphistError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
