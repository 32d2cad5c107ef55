"""Temporary files, and the removal of those that a killed process left behind.

Whoever makes one holds a lock on it, which the system gives back when the process ends, however it ends. So
a file that can be locked has no owner left: this needs no guessing from process numbers, which mean
nothing in another container. What is only just made may not be locked yet, and is left alone.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
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
        tempfile.TemporaryDirectory(prefix="dphist-spill-", ignore_cleanup_errors=True) as folder,
        (Path(folder) / _LOCK).open("xb") as held,
    ):
        _lock(held.fileno())
        yield folder


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
