"""How far a long count is, on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dphist._common.text import harmless


@contextmanager
def watching(name: str, share: Callable[[], float | None], *, shown: bool) -> Iterator[None]:
    """Show on stderr, if that is a terminal and it takes over a second, how far the work inside is.

    Args:
        share: returns the finished part, from 0 to 1; None or a negative number if it is unknown.
    """
    if not (shown and sys.stderr is not None and sys.stderr.isatty()):
        yield
        return
    start = time.monotonic()
    done = threading.Event()

    def watch() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.2
            part = share()
            far = f"{time.monotonic() - start:.0f} s" if part is None or part < 0 else f"{min(part, 1):4.0%}"
            print(f"\r\033[Kcounting {harmless(name, keep='')}: {far}", end="", file=sys.stderr, flush=True)
        if wait < 1.0:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
