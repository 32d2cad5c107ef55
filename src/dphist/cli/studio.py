"""The command that opens the studio, a page on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from dphist.cli.common import say
from dphist.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from dphist.studio.service import Functions
    from dphist.studio.start import Start


def studio(
    file: Annotated[
        str | None,
        typer.Argument(help="A plan file, records, or a folder to work in; by default this folder."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger, for plans that name none.", metavar="FILE")
    ] = None,
    view: Annotated[
        Path | None, typer.Option(help="Only look at the releases in a folder.", metavar="FOLDER")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Begin with 336,776 public flights, in dphist-studio-demo/.")
    ] = False,
    port: Annotated[int, typer.Option(help="The port of this machine; by default a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address alone.")] = False,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Run as root, in a container of your own.")
    ] = False,
) -> None:
    """Open a page on which a publication is designed, priced, published and explored.

    It is served to this machine alone. With --view it shows releases, and has no access to records or a
    ledger.
    """
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise UsageError(
            "the studio needs two more packages: pip install 'dphist[studio]' (from a clone: pip install "
            "'.[studio]')."
        )
    if view is not None:
        if file is not None or ledger is not None or demo:
            raise UsageError("--view shows a folder of releases; leave FILE, --ledger and --demo out.")
        _look(view, port, no_browser=no_browser, allow_root=allow_root)
    from dphist.studio.serve import refuse_root, serve
    from dphist.studio.start import Start

    refuse_root(allowed=allow_root)
    if demo:
        from dphist.planning import flights

        if file is not None or ledger is not None:
            raise UsageError("--demo has a plan and a ledger of its own; leave FILE and --ledger out.")
        file = str(flights.studio(Path("dphist-studio-demo")))
    start = Start.of(file, ledger)
    serve(partial(_made, start), port=port, browser=not no_browser, say=say)


def _made(start: Start, port: Callable[[], int], token: str) -> ASGIApp:
    """Return the studio: what it answers with is imported while the browser opens and reads the page."""
    from dphist.studio.serve import begun
    from dphist.studio.service import application

    return application(begun(partial(_functions, start)), port=port, token=token)


def _functions(start: Start) -> Functions:
    from dphist.studio.edit import Studio

    made = Studio(start)
    Thread(target=made.ahead, daemon=True).start()
    return made.functions()


def _look(folder: Path, port: int, *, no_browser: bool, allow_root: bool) -> None:
    """Become a process that never imports the private half."""
    flags = ["--no-browser"] * no_browser + ["--allow-root"] * allow_root
    words = [sys.executable, "-m", "dphist.studio.view", str(folder), "--port", str(port), *flags]
    os.execv(sys.executable, words)
