"""Shared by every command: printing results, and exiting on interrupts and broken pipes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from dphist._common.text import harmless
from dphist.errors import DphistError, OutputError, UsageError, is_interrupt

CODES = "Exit codes: 0 done, 2 usage, 3 the ledger refuses, 4 bad data, 5 a privacy rule, 130 interrupted."
SCREEN = 80  # columns, where we cannot ask
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


OLD_OPTIONS = {"--scale": "--records", "--edges": "--bins", "--runs": "--trials"}  # for one version
HOW_TO_JOIN = {
    "--categories": "join the labels with commas: --categories A,B",
    "--bins": "give it once; edges are joined with commas: --bins 0,18,65",
    "--groups": "name one file, or join the labels with commas: --groups A,B",
    "--where": "join the conditions with AND: --where 'A AND B'",
}


_NUMBERS = {
    "number": "write a number such as 0.5, with a decimal point.",
    "integer": "write a whole number such as 3.",
}


class Command(TyperCommand):
    """A command whose flags are listed without a type, and whose options are given once."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option of help, in the last panel where there are several."""
        found = super().get_help_option(ctx)
        panels = [getattr(p, "rich_help_panel", None) for p in self.params if not getattr(p, "hidden", False)]
        if found is not None and panels and panels[-1] is not None:
            found.rich_help_panel = panels[-1]
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; refuse a repeated option that takes one value."""
        args = self._renamed(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option in {id(o): o for o in order if order.count(o) > 1}.values():
            if isinstance(option, TyperOption) and not option.multiple and not option.is_flag:
                name = option.opts[0]
                advice = HOW_TO_JOIN.get(name, "give it once")
                raise UsageError(f"{name} was given more than once, and only one would count: {advice}.")
        with _in_our_words():
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))

    def _renamed(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments with former option names replaced, and warn about each."""
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        end = args.index("--") if "--" in args else len(args)
        for at, word in enumerate(args[:end]):
            old, equals, value = word.partition("=")
            new = OLD_OPTIONS.get(old)
            if new in known and old not in known:
                say(f"warning: {old} is called {new} now; the old name goes with the next version.")
                args = [*args[:at], f"{new}{equals}{value}", *args[at + 1 :]]
        return args


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Say of an option that is no number what it should be."""
    try:
        yield
    except Exception as error:
        said = str(vars(error).get("message", ""))
        for kind, words in _NUMBERS.items():
            if said.startswith(f"Input should be a valid {kind}"):
                vars(error)["message"] = words
        raise


class Asking(Command):
    """A command whose arguments may look like options, as -5 does: they are ends of a query."""

    ignore_unknown_options = True


class Charging(Command):
    """A command that charges a ledger: an error that came before says that nothing was charged."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _saying_if_nothing_was_charged():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _saying_if_nothing_was_charged():
            return super().invoke(ctx)


@contextmanager
def _saying_if_nothing_was_charged() -> Iterator[None]:
    """Add to the message of an error that nothing was charged, unless a charge was begun or it says so."""
    from dphist.privacy.ledger import charges_begun

    before = charges_begun()
    try:
        yield
    except Exception as error:
        if charges_begun() == before:
            _add(error, "Nothing was charged.")
        raise


def _add(error: Exception, words: str) -> None:
    """Add a sentence to the message of an error of this package, or of the reading of arguments."""
    text = str(error)
    if words.rstrip(".").casefold() in text.casefold():
        return
    if isinstance(error, DphistError):
        error.args = (f"{text}{' ' if text.endswith('.') else chr(10)}{words}",)
    elif hasattr(error, "format_message"):
        said = vars(error).get("message")
        vars(error)["message"] = f"{said.rstrip('.')}. {words}" if said else words


class Commands(TyperGroup):
    """A command group that handles interrupts and broken pipes before Typer ends the program."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))

    def make_context(self, *args: Any, **more: Any) -> Any:
        with exit_cleanly():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with exit_cleanly():
            return super().invoke(ctx)


def _bare(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Interrupted(KeyboardInterrupt):
    """An interrupt with its own message."""


@contextmanager
def exit_cleanly() -> Iterator[None]:
    """Turn an interrupt, a broken pipe or a full disk into its message and exit code."""
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interrupt(error):
            raise
        kept = "interrupted. What was charged stays charged (see: dphist ledger show); files are whole."
        say(str(error) if isinstance(error, Interrupted) else kept)
        raise typer.Exit(130) from None
    except OSError as error:
        with suppress(OSError, ValueError):  # or the last flush would complain once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # the reader of our output went away, as `head` does
            raise typer.Exit(0) from None
        say(f"error: the output could not be written: {error.strerror or error}.")
        raise typer.Exit(OutputError.exit_code) from None


def show(text: str, *, nl: bool = True) -> None:
    """Print a result on stdout, without control characters that a terminal would obey."""
    typer.echo(harmless(text), nl=nl)


def say(text: str) -> None:
    """Print a message on stderr, without control characters that a terminal would obey."""
    with suppress(OSError, ValueError):
        typer.echo(harmless(text), err=True)


@contextmanager
def progress(*, shown: bool) -> Iterator[Callable[[str], None]]:
    """Return what tells on a terminal what is being simulated: on one line, which is erased at the end."""
    stream = sys.stderr
    if not shown or stream is None or not stream.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: _write(stream, f"simulating {harmless(text, keep='')} ...")
    finally:
        _write(stream, "")


def _write(stream: TextIO, text: str) -> None:
    """Write a line of a terminal again."""
    with suppress(OSError, ValueError):
        stream.write(f"\r\033[K{text}")
        stream.flush()


@contextmanager
def warnings_said() -> Iterator[None]:
    """Print warnings of the library on stderr at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest, **more: say(f"warning: {message}")
        yield


def listed(texts: list[str] | None) -> list[str]:
    """Return the values of an option that is repeated or holds a comma-separated list."""
    return [word.strip() for text in texts or () for word in text.split(",") if word.strip()]


def amount(value: Fraction) -> str:
    """Return a budget for reading: as it was written where that is short, otherwise rounded."""
    from dphist.privacy.ledger import as_decimal

    text = as_decimal(value)
    return text if len(text) <= 10 else f"{float(value):.6g}"


def to_float(text: str, name: str) -> float:
    """Return the number that an option holds."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} needs a number, not {text!r}.") from None


def to_whole(text: str, name: str) -> int:
    """Return the integer that an option holds."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} needs a whole number, not {text!r}.") from None


def screen_width(otherwise: int) -> int:
    """Return the width of the screen, or ``otherwise`` without a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else otherwise


def print_table(
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    label: int | None = None,
    width: int | None = None,
) -> None:
    """Print a table.

    Args:
        right: columns of numbers.
        fold: columns whose texts may take several lines.
        label: the most that the first column gets; longer texts are cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in header:
        short = name == header[0] and label is not None
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=short or name not in fold,
            overflow="ellipsis" if short else "fold",
            max_width=label if short else None,
        )
    for row in rows:
        kept = ("\n" if name in fold else "" for name in header)
        table.add_row(*(Text(harmless(cell, keep=k)) for cell, k in zip(row, kept, strict=True)))
    # Printed by us, since Rich ends the program where a pipe is closed.
    console = Console(width=width or screen_width(160))
    with console.capture() as text:
        console.print(table)
    typer.echo(text.get(), nl=False)  # as it is: the colours are Rich's, and the cells are harmless
