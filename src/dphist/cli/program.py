"""All commands, and the translation of errors into one message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

from dphist._common import __version__
from dphist.cli.common import CODES, Charging, Command, Commands, say, show
from dphist.errors import DphistError

# The module of each command, in the order of the help. Only that of the command which was named is imported.
_HOME = {
    "check": "check",
    "publish": "publish",
    "bounds": "bounds",
    "query": "look",
    "plot": "look",
    "export": "handin",
    "report": "handin",
    "methods": "look",
    "audit": "look",
    "demo": "look",
    "advise": "advise",
    "preview": "advise",
    "compare": "lab",
    "shapes": "lab",
    "studio": "studio",
    "warm": "warm",
}
_GROUPS = ("plan", "ledger")
_CHARGING = ("publish", "bounds", "demo")


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
    named = [word for word in words[:1] if word in _HOME or word in _GROUPS]
    for name in named or (*_HOME, *_GROUPS):
        module = import_module(f"dphist.cli.{_HOME.get(name, name)}")
        if name in _GROUPS:
            app.add_typer(module.app, name=name)
            continue
        settings = {"ignore_unknown_options": True} if name == "query" else None
        kind = Charging if name in _CHARGING else Command
        app.command(cls=kind, context_settings=settings)(getattr(module, name))
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
