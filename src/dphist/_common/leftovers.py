"""Temporary files, and the removal of those that a killed process left behind.

Whoever makes one holds a lock on it, which the system gives back when the process ends, however it ends. So
a file that can be locked has no owner left: this needs no guessing from process numbers, which mean
nothing in another container. What is only just made may not be locked yet, and is left alone.

What a spill folder holds may be records, so that it does not wait for the next process where that can be
helped: a process that is told to end, or whose terminal is closed, removes its own and then ends so.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and nothing swept
    fcntl = None  # type: ignore[assignment]

_NEW = 60.0  # seconds for which a file may be without its lock
_FILES, _FOLDERS, _LOCK = ".dphist-*.tmp", "dphist-spill-*", "lock"
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_held: list[tuple[int, list[str]]] = []  # the spill folders that are open, with their processes


@contextmanager
def file_beside(target: Path) -> Iterator[Path]:
    """Yield an empty file in the target's folder; afterwards it is gone, if it is still there."""
    sweep_files(target.parent)
    file = target.parent / f".dphist-{os.getpid()}-{time.monotonic_ns()}.tmp"
    try:
        with file.open("xb") as held:
            _lock(held.fileno())
            yield file
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def spill_folder() -> Iterator[str]:
    """Yield a folder for what does not fit in memory, which only this user can read."""
    sweep_folders(Path(tempfile.gettempdir()))
    with (
        _emptied_when_told_to_end() as mine,
        tempfile.TemporaryDirectory(prefix="dphist-spill-", ignore_cleanup_errors=True) as folder,
        (Path(folder) / _LOCK).open("xb") as held,
    ):
        mine.append(folder)
        _lock(held.fileno())
        yield folder


@contextmanager
def _emptied_when_told_to_end() -> Iterator[list[str]]:
    """Yield a list of folders that a signal to end removes first, unless somebody else handles the signal."""
    entry: tuple[int, list[str]] = (os.getpid(), [])
    _held.append(entry)
    in_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in _ENDING if in_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, _end)
        yield entry[1]
    finally:
        for number in ours:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)
        _held.remove(entry)


def _end(number: int, *_: object) -> None:
    """Remove the spill folders of this process, and end as the signal alone would have ended it."""
    for process, folders in _held:
        if process == os.getpid():  # not those of the process that this one was forked from
            for folder in folders:
                _empty(Path(folder))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _empty(folder: Path) -> None:
    """Remove a spill folder, its lock last: with it, what others still write is swept once they are gone."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                with suppress(OSError):
                    path.unlink()
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)


def sweep_files(folder: Path) -> None:
    """Remove half-written files of processes that are gone from a folder."""
    for file in _ours(folder, _FILES):
        if stat.S_ISREG(file.lstat().st_mode) and _is_abandoned(file):
            with suppress(OSError):
                file.unlink()


def sweep_folders(folder: Path) -> None:
    """Remove spill folders of processes that are gone: what they hold may be records."""
    for spill in _ours(folder, _FOLDERS):
        if stat.S_ISDIR(spill.lstat().st_mode) and _is_abandoned(spill / _LOCK):
            shutil.rmtree(spill, ignore_errors=True)


def _ours(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield files with our naming and this user's ownership that are old enough."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            found = path.lstat()
            if found.st_uid == _user() and time.time() - found.st_mtime > _NEW:
                yield path


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1


def _lock(file: int) -> None:
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_abandoned(path: Path) -> bool:
    """Return whether nobody holds the lock on a file; not where that cannot be known."""
    if fcntl is None:
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False
