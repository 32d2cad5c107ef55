"""The ledger's file: one text of self-checking lines, to which rows are only ever added.

A row is one line: a checksum of itself and of all rows before it, then a JSON object. It is written under an
exclusive lock of the file and synced before `append` returns. There is no second file, so that

* **any number of names** (hard links, a file mounted into containers) are one file, one lock and one text:
  the lock is of the inode, whichever name it was opened by;
* **a copy taken at any moment** holds every row that was synced before the copying began, since rows do not
  move and are not rewritten;
* **a process killed at any moment** leaves at most one unacknowledged row: complete, and then it
  counts, or cut short, and then the next writer removes it;
* **a write or sync that fails** takes its row away again. If even that fails, the row counts, for nothing.

The first line says how many rows were on disk when it was written, after they were. A file with fewer is a
copy that was cut short, or damaged, and is refused; so is one whose checksums do not follow from each other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import reprlib
import shlex
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from dphist.errors import LedgerError, did_you_mean

try:
    import fcntl
except ImportError:  # no POSIX: everything but ledgers in files works
    fcntl = None  # type: ignore[assignment]

Row = dict[str, Any]

VERSION = 2  # version 1 was a SQLite file
SQLITE = b"SQLite format 3\0"
ROLLED_BACK = "it does not hold the rows that it held before"
PATIENCE = 60.0  # seconds that a writer waits for its turn
_HEAD = re.compile(rb"dphist-ledger (\d{1,9}) (\d{12})\n")
_LENGTH = len(b"dphist-ledger 2 000000000000\n")
_COUNT_AT = len(b"dphist-ledger 2 ")
_UNTOLD = 1.0  # seconds of waiting before a message
_MAGIC_AT, _MAGIC = 68, bytes.fromhex("64706869")  # the application id of a ledger in SQLite
_TROUBLE = {
    errno.ENOENT: "it is gone. Put it back, or name the ledger that is meant",
    errno.ENOSPC: "the disk is full. Make room and try again",
    errno.EDQUOT: "the disk is full. Make room and try again",
    errno.EFBIG: "the disk is full. Make room and try again",
    errno.EACCES: "it cannot be opened. Make the file and its directory writable",
    errno.EPERM: "it cannot be opened. Make the file and its directory writable",
    errno.EROFS: "it cannot be written. Make the file and its directory writable",
}


@dataclass(frozen=True)
class Place:
    """How far a journal was read: its checksum stands for every row up to there."""

    rows: int = 0
    checksum: str = "0" * 16
    last: int = _LENGTH  # where the last line that was read begins
    end: int = _LENGTH  # where the next one will
    settled: bool = True  # False if the last row might be one whose writing failed, and be taken away


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """Open a journal to look at it, without a lock: a row that is being written is not there yet."""
    with troubles(path):
        file = os.open(path, os.O_RDONLY)
        try:
            _has_this_name(file, path)
            yield file
        finally:
            os.close(file)


@contextmanager
def writing(path: Path) -> Iterator[int]:
    """Open a journal as the only writer, after all who came before."""
    with troubles(path):
        file = _acquire(path)
        try:
            yield file
        finally:
            _release(file)


@contextmanager
def held(file: int, path: Path) -> Iterator[None]:
    """Keep writers away from a journal that is open."""
    _lock(file, path)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def read(file: int, place: Place, path: Path) -> tuple[Place, list[Row]]:
    """Return the rows that come after a place, and where they end; refuse what does not follow from it."""
    count = _count(file, path)  # before the rows: those that it counts are there by now
    lines = _rest(file, place.last).split(b"\n")[:-1]  # text without a final newline is not yet a row
    if place.rows:
        if not lines or lines[0][:16] != place.checksum.encode():
            raise damaged(path, ROLLED_BACK)
        del lines[0]
    rows = []
    for line in lines:
        place = _after(place, line)
        rows.append(_row(line, place, path))
    if place.rows < count:
        raise damaged(
            path, f"it holds {place.rows} whole rows of at least {count}: a copy that was cut short"
        )
    return replace(place, settled=place.rows <= count), rows


def append(file: int, place: Place, row: Row) -> Place:
    """Write a row at the journal's end and wait until the disk has it; if that fails, take it away."""
    line = _line(place, row)
    try:
        if os.fstat(file).st_size != place.end:  # half a row, by a process that was killed
            os.ftruncate(file, place.end)
        _write(file, line, place.end)
        _sync(file)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file, place.end)
        raise
    place = _after(place, line[:-1])
    with suppress(OSError):  # the count may lag behind the rows, never the other way round
        _write(file, b"%012d" % place.rows, _COUNT_AT)
    return place


def create(path: Path, rows: Iterable[Row] = (), *, replace: bool = False) -> None:
    """Put a journal at a path in one step, or leave the one that is there by then."""
    place, text = Place(), b""
    for row in rows:
        line = _line(place, row)
        place, text = _after(place, line[:-1]), text + line
    beside = path.with_name(f".dphist-{os.getpid()}-{time.monotonic_ns()}.tmp")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            _write(file, b"dphist-ledger %d %012d\n" % (VERSION, place.rows) + text, 0)
            _sync(file)
        finally:
            os.close(file)
        if replace:
            beside.replace(path)
        else:
            _name_once(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_sqlite(file: int) -> bool:
    """Return whether an open file is one of SQLite's."""
    return os.pread(file, len(SQLITE), 0) == SQLITE


def near(path: Path) -> str:
    """Return what to do about a ledger that is not there: the names of those that are, and how to make it."""
    found = []
    with suppress(OSError):
        found = [file.name for file in sorted(path.parent.iterdir())[:1000] if _looks_like_one(file)]
    meant = f"{did_you_mean(path.name, found)} " if found else ""
    return (
        f"{meant}A new one is made by: dphist ledger create {shlex.quote(str(path))} --limit VALUE "
        "(in Python: Ledger.open(path, create=True))"
    )


def fraction(text: object, path: Path) -> Fraction:
    """Return the exact number above or at 0 that a row holds."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,4200}/[1-9][0-9]{0,4199}", text):
        raise damaged(path, f"it has {reprlib.repr(text)} in the place of a fraction")
    return _exact(text)


@lru_cache(1000)
def _exact(text: str) -> Fraction:
    return Fraction(text)


def damaged(path: Path, how: str) -> LedgerError:
    """Return the refusal of a file that is not what was written."""
    return LedgerError(
        f"the ledger {path} is damaged or was altered outside dphist: {how}. Nothing was drawn. "
        "Put back a copy that is not older than your last release."
    )


@contextmanager
def troubles(path: Path) -> Iterator[None]:
    """Turn what the operating system says into what to do."""
    if fcntl is None:
        raise LedgerError("a ledger in a file needs the file locks of Linux or macOS: on Windows use WSL.")
    try:
        yield
    except OSError as error:
        trouble = _TROUBLE.get(error.errno or 0, "it cannot be read or written. Look after the disk")
        raise LedgerError(f"the ledger {path}: {trouble} ({error}). Nothing was drawn.") from error


# ---- lines ------------------------------------------------------------------------------------------


def _line(place: Place, row: Row) -> bytes:
    text = json.dumps({"number": place.rows + 1} | row, separators=(",", ":")).encode()
    return f"{_checksum(place, text)} ".encode() + text + b"\n"


def _checksum(place: Place, text: bytes) -> str:
    return hashlib.blake2b(place.checksum.encode() + text, digest_size=8).hexdigest()


def _after(place: Place, line: bytes) -> Place:
    return Place(place.rows + 1, _checksum(place, line[17:]), place.end, place.end + len(line) + 1)


def _row(line: bytes, place: Place, path: Path) -> Row:
    """Return the row of a line, whose checksum and number must be those of its place."""
    row = None
    if line[:17] == f"{place.checksum} ".encode():
        with suppress(ValueError, RecursionError):
            row = json.loads(line[17:])
    if not isinstance(row, dict) or type(row.get("number")) is not int or row["number"] != place.rows:
        raise damaged(path, f"row {place.rows} does not follow from the rows before it")
    return row


def _count(file: int, path: Path) -> int:
    """Return how many rows there are at least, from the first line of a ledger; refuse other files."""
    first = os.pread(file, _LENGTH, 0)
    if not first:
        raise LedgerError(
            f"the ledger {path} is empty: it was emptied, or never written. Nothing was drawn. Put back a "
            "copy that is not older than your last release; if there never was one, delete the file and make "
            f"a ledger with: dphist ledger create {shlex.quote(str(path))}"
        )
    found = _HEAD.match(first)
    if not found:
        if not first.startswith(b"dphist-ledger "):
            raise LedgerError(f"{path} is not a dphist ledger. Nothing was drawn. Name another file.")
        raise damaged(path, "its first line is not whole")
    if int(found[1]) != VERSION:
        raise LedgerError(f"{path} is a ledger of version {int(found[1])}, not {VERSION}. Update dphist.")
    return int(found[2])


def _looks_like_one(file: Path) -> bool:
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as opened:
                head = opened.read(_MAGIC_AT + len(_MAGIC))
            return head.startswith(b"dphist-ledger ") or (head.startswith(SQLITE) and head.endswith(_MAGIC))
    return False


# ---- files ------------------------------------------------------------------------------------------


def _rest(file: int, start: int) -> bytes:
    parts = []
    while part := os.pread(file, 1 << 20, start):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(file: int, text: bytes, start: int) -> None:
    while text:
        written = os.pwrite(file, text, start)
        text, start = text[written:], start + written


def _sync(file: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where a sync otherwise stops at the drive's own memory
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fsync(file)


def _name_once(file: Path, name: Path) -> None:
    """Give a file its name, unless another has it by now."""
    try:
        name.hardlink_to(file)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        with suppress(FileExistsError):
            name.open("xb").close()
            file.replace(name)


def _acquire(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR)
        try:
            _lock(file, path)
            if _has_this_name(file, path):
                return file
        except BaseException:
            _release(file)
            raise
        _release(file)  # another file has the name by now


def _has_this_name(file: int, path: Path) -> bool:
    """Return whether an open file still has its name; refuse one that has none and is only mounted here."""
    mine = os.fstat(file)
    same = os.path.samestat(mine, path.stat())
    if same and not mine.st_nlink:
        raise LedgerError(
            f"the ledger {path} was deleted or replaced where it is mounted from: charges made here would be "
            "forgotten. Nothing was drawn. Mount it again."
        )
    return same


def _release(file: int) -> None:
    with suppress(OSError):  # said, since a process that was forked meanwhile holds the same lock
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _queue(file, path)


def _queue(file: int, path: Path) -> None:
    """Wait for the lock in the kernel's queue, in a thread, so that we can speak or give up meanwhile."""
    own, ours, given_up = os.dup(file), threading.Event(), threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(own, fcntl.LOCK_EX)
            ours.set()
            if given_up.is_set():
                fcntl.flock(own, fcntl.LOCK_UN)
        os.close(own)

    threading.Thread(target=wait, daemon=True).start()
    try:
        if ours.wait(min(_UNTOLD, PATIENCE)):
            return
        notify(f"waiting for the ledger {path}: another process is charging it.")
        if not ours.wait(PATIENCE):
            raise LedgerError(
                f"the ledger {path}: another process has held it for {PATIENCE:g} seconds. Wait for that "
                "process and try again. Nothing was drawn."
            )
    except BaseException:
        given_up.set()
        raise


def notify(text: str) -> None:
    """Log a warning: shown on stderr unless the program that uses us has decided otherwise."""
    import logging

    logging.getLogger("dphist").warning(text)
