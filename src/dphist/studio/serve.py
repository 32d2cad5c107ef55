"""A studio on this machine: the loopback address alone, a random port, a token that only its owner sees."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dphist.errors import UsageError

if TYPE_CHECKING:  # the address is printed before these are imported
    import uvicorn
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
Made = TypeVar("Made")
PUBLICATION = "publication"  # the name of the thread that must not be cut off


def new_token() -> str:
    """Return a secret of 32 bytes."""
    return os.urandom(32).hex()  # noqa: TID251 - a password of this process, no noise


def refuse_root(*, allowed: bool) -> None:
    """Refuse to run as root, who could be asked for any file, unless that was wanted."""
    if not allowed and hasattr(os, "geteuid") and os.geteuid() == 0:
        raise UsageError(
            "the studio does not run as root: start it as yourself. In a container that is yours alone add "
            "--allow-root."
        )


def begun(make: Callable[[], Made]) -> Callable[[], Made]:
    """Begin to make something in a thread, and return what waits for it: most of a second goes to imports."""
    worker = ThreadPoolExecutor(1)
    waiting = worker.submit(make)
    worker.shutdown(wait=False)
    return waiting.result


def serve(
    make: Callable[[Callable[[], int], str], ASGIApp],
    *,
    port: int,
    browser: bool,
    say: Callable[[str], None],
) -> None:
    """Run a studio until Ctrl-C.

    Args:
        make: makes the application, given how to learn the port and the token, while the browser opens.
        port: 0 takes a free one.
    """
    with _listening(port) as listener:
        chosen = listener.getsockname()[1]
        token = new_token()
        address = f"http://{LOOPBACK}:{chosen}/#token={token}"
        say(f"the studio is at {address}")
        say("only this machine can reach it, and only with this address. End it with Ctrl-C.")
        started = True
        with _page(address) as page, suppress(KeyboardInterrupt):  # which is how it ends
            if browser:
                threading.Thread(target=_open, args=(page, say), daemon=True).start()
            server = _server(make(lambda: chosen, token))
            server.run(sockets=[listener])
            started = server.started
    if not started:
        sys.exit(1)
    busy = any(thread.name == PUBLICATION for thread in threading.enumerate())
    say("the studio was stopped." + " A publication is being finished; please wait." * busy)


def _server(app: ASGIApp) -> uvicorn.Server:
    import uvicorn

    settings = uvicorn.Config(
        app,
        log_level="critical",  # no line about a request: a path could be private
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
        ws="none",
    )
    return uvicorn.Server(settings)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()  # a browser that is fast waits, and is not refused
        except (OSError, OverflowError):
            raise UsageError(f"port {port} is not free on this machine; leave --port out.") from None
        yield listener
    finally:
        listener.close()


@contextmanager
def _page(address: str) -> Iterator[Path]:
    """Yield a file that leads to the studio: the list of processes would show the token to other users."""
    with tempfile.TemporaryDirectory(prefix="dphist-studio-") as folder:  # which only this user can read
        page = Path(folder) / "open.html"
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">\n', "utf-8")
        yield page


def _open(page: Path, say: Callable[[str], None]) -> None:
    try:
        opened = webbrowser.open(page.as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        say("no browser could be opened: open the address above in one.")
