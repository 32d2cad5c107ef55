"""The studio for readers: a folder of releases, without records, without a ledger, without the private half.

This module, and all that it imports, never imports `dphist.privacy` or `dphist.records`.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from dphist.errors import DphistError, UsageError
from dphist.studio.places import Places
from dphist.studio.serve import begun, refuse_root, serve
from dphist.studio.service import Asked, application, vega


def functions(folder: Path) -> dict[str, Callable[[Asked], Any]]:
    """Return the questions that a reader may ask: none of them publishes."""
    from dphist.studio.releases import Releases, session

    places = Places(folder)
    releases = Releases(places, lambda release: None)
    return {
        "session": lambda asked: session(places),
        "files": lambda asked: releases.files(asked, lines=True),
        **releases.functions(),
    }


def app(folder: Path, *, port: Callable[[], int], token: str) -> ASGIApp:
    """Return the application of a folder of releases."""
    return application(begun(partial(functions, folder)), port=port, token=token)


def main(arguments: list[str] | None = None) -> None:
    """Run a studio for readers: what `dphist studio --view FOLDER` becomes."""
    parser = argparse.ArgumentParser(prog="dphist studio --view", allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--allow-root", action="store_true")
    given = parser.parse_args(arguments)
    try:
        refuse_root(allowed=given.allow_root)
        if not given.folder.is_dir():
            raise UsageError(f"{given.folder} is no folder; name the folder of the releases.")
        threading.Thread(target=vega, daemon=True).start()
        serve(
            lambda port, token: app(given.folder, port=port, token=token),
            port=given.port,
            browser=not given.no_browser,
            say=lambda text: print(text, file=sys.stderr),
        )
    except DphistError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
