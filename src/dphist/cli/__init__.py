"""The command line: results on stdout, everything else on stderr, and an exit code for each kind of error.

Nothing here replaces records, a ledger or a release that was paid for, and no interrupt leaves half a file.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

INTERRUPTED = 130


def main() -> None:
    """Run the command line: `dphist.cli.program`, which is imported here so that Ctrl-C ends that quietly."""
    _fill_closed_streams()
    try:
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, _leave) if is_main else None
        from dphist.cli import program

        app = program.made(sys.argv[1:])
        if is_main:
            signal.signal(signal.SIGINT, before)
        program.run(app)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _leave(*_: object) -> None:
    """End at once: no file is open yet, so that there is nothing to clean up."""
    with suppress(OSError):
        os.write(2, b"interrupted; nothing was charged.\n")
    os._exit(INTERRUPTED)


def _fill_closed_streams() -> None:
    """Put nothing in the place of closed streams, or the next file that is opened would be taken for one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: PTH123, SIM115 - for good
