"""Ledgers of version 1, which were SQLite files: read as they are, and turned into journals before a charge.

Version 1 kept new charges in a second file beside the first, named after it. Under another name of the same
file they cannot be found, so a file with several names is refused until it has one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

from dphist.errors import LedgerError
from dphist.privacy import journal
from dphist.privacy.journal import Row, damaged, fraction

_APPLICATION = 0x64706869
_TURNED = 2  # stamped on a file that was turned, so that version 1 of the program leaves it alone
_COLUMNS = ("when", "dataset", "epsilon", "mechanism", "what", "purpose", "kind")


def read(path: Path) -> list[Row]:
    """Return the rows of a ledger of version 1, which must add up."""
    with _connected(path, _mode(path)) as db:
        db.execute("BEGIN")
        return _rows(db, path)


def convert(path: Path) -> None:
    """Put a journal with the same rows in the place of a ledger of version 1.

    The caller holds the file's lock. A process of version 1 that waits for the old file finds it stamped and
    refuses it; a crash before the last step leaves the old file, stamped and whole, to be turned again.
    """
    target = path.resolve()
    with _connected(path, "mode=rw") as db:
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA fullfsync = ON")
        db.execute("BEGIN IMMEDIATE")
        rows = _rows(db, path)
        db.execute(f"PRAGMA user_version = {_TURNED}")
        db.execute("COMMIT")
    try:
        journal.create(target, rows, replace=True)
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} is of version 1 and cannot be turned into version {journal.VERSION} here "
            f"({error}). If it is mounted, open it once where it is mounted from. Nothing was drawn."
        ) from error


def _mode(path: Path) -> str:
    """Return how SQLite opens a file to read it: in a write-ahead log it would like to write."""
    if all(os.access(place, os.W_OK) for place in (path, path.parent)):
        return "mode=rw"
    log = path.with_name(f"{path.name}-wal")
    # Without a log nobody is writing, and the file alone is the whole ledger.
    return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"


@contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    names = path.stat().st_nlink
    if names != 1:
        raise LedgerError(
            f"the ledger {path} is of version 1 and has {names} names (hard links): charges made under one "
            "name may be missing under another. Nothing was drawn. Keep the name under which it was charged, "
            "delete the others, and try again."
        )
    uri = f"{path.absolute().as_uri()}?{mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=journal.PATIENCE, isolation_level=None)) as db:
            db.text_factory = bytes
            yield db
    except UnicodeDecodeError as error:  # of SQLite's own words about what it found
        raise damaged(path, "SQLite cannot read it") from error
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise damaged(path, f"SQLite cannot read it ({error})") from error
        raise LedgerError(
            f"the ledger {path} is of version 1, and SQLite cannot work with it now ({error}). Nothing was "
            "drawn. Stop other programs that use it, make the file and its directory writable, and try again."
        ) from error


def _rows(db: sqlite3.Connection, path: Path) -> list[Row]:
    """Return all rows, after checking that none is missing and that they explain every total and limit."""
    queries = ("PRAGMA application_id", "PRAGMA user_version")
    application, version = (db.execute(query).fetchone()[0] for query in queries)
    if application != _APPLICATION:
        raise LedgerError(f"{path} is a SQLite file, but not a dphist ledger. Name another file.")
    if version not in (1, _TURNED):
        raise LedgerError(f"{path} is a ledger of version {version}, not {journal.VERSION}. Update dphist.")
    words = "moment, dataset, epsilon, mechanism, what, purpose, kind"
    found = db.execute(f"SELECT number, {words} FROM journal ORDER BY number").fetchall()
    if [row[0] for row in found] != list(range(1, len(found) + 1)):
        raise damaged(path, "rows are missing")
    rows = [
        {"number": row[0]} | dict(zip(_COLUMNS, (_text(value, path) for value in row[1:]), strict=True))
        for row in found
    ]
    totals = db.execute("SELECT name, spent, ceiling FROM datasets")
    kept = [tuple(_text(value, path) for value in row) for row in totals]
    summed: dict[str | None, tuple[Fraction, str | None]] = {}
    for row in rows:
        spent, limit = summed.get(row["dataset"], (Fraction(0), None))
        if row["kind"] == "limit":
            limit = row["epsilon"]
        else:
            spent += fraction(row["epsilon"], path)
        summed[row["dataset"]] = spent, limit
    if {name: (fraction(spent, path), limit) for name, spent, limit in kept} != summed:
        raise damaged(path, "its rows and totals do not agree")
    return rows


def _text(value: object, path: Path) -> str | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise damaged(path, "a word in it is not text") from None
