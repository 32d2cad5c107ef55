"""The budget: exact, journaled and synced to disk before any noise is drawn.

A ledger adds up, per dataset, the epsilon that has been spent. ``charge`` checks the dataset's limit,
writes a row to the journal, waits until the disk has it, and only then returns a `Charge`. The sampler
takes nothing but a charge, and takes each charge once. So, whatever is killed and whenever:

* before the commit: nothing is journaled, and nothing can have been drawn;
* after the commit, before the draw: the budget is wasted, and nothing was learned from it;
* after the draw: it was paid for.

A crash may waste budget and never overspends it. What the file cannot see: a ledger that was deleted, or
put back from an old backup, forgets what it forgot. The checks on opening find accidents, not forgeries.

The journal holds epsilons, names and times, and nothing that was computed from records.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import reprlib
import shlex
import sqlite3
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from pathlib import Path
from threading import Lock
from typing import Self

from dphist.errors import BudgetExceeded, LedgerError, PrivacyError, UsageError, did_you_mean

Words = tuple[str, str, str]  # mechanism, what, purpose

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?|\d+/0*[1-9]\d*)", re.ASCII | re.IGNORECASE)
_LONGEST = 10**30  # of a numerator or denominator: keeps the exact sums short
_LONGEST_TOTAL = 10**4000  # Python refuses to print integers of more than 4300 digits
_SEAL = object()  # held by this module alone, so that a Charge is not made by accident elsewhere

_APPLICATION, _VERSION = 0x64706869, 1
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
_SCHEMA = (
    """CREATE TABLE journal (number INTEGER PRIMARY KEY CHECK (number > 0), moment TEXT NOT NULL,
        dataset TEXT NOT NULL, epsilon TEXT CHECK (epsilon IS NOT NULL OR kind = 'limit'),
        mechanism TEXT NOT NULL, what TEXT NOT NULL, purpose TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('charge', 'limit')))""",
    "CREATE TABLE datasets (name TEXT PRIMARY KEY, spent TEXT NOT NULL, ceiling TEXT)",
    f"CREATE TRIGGER journal_keeps_rows BEFORE DELETE ON journal {_REFUSE}",
    f"CREATE TRIGGER journal_keeps_values BEFORE UPDATE ON journal {_REFUSE}",
    # INSERT OR REPLACE deletes without firing the trigger on DELETE.
    f"""CREATE TRIGGER journal_keeps_numbers BEFORE INSERT ON journal
        WHEN EXISTS (SELECT 1 FROM journal WHERE number = NEW.number) {_REFUSE}""",
)
_STAMP = (f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_VERSION}")
_TROUBLE = {
    sqlite3.SQLITE_NOTADB: "it is not a SQLite file. Name another file, or one that does not exist yet",
    sqlite3.SQLITE_CORRUPT: "it is damaged. Put back a backup that is not older than your last release",
    sqlite3.SQLITE_FULL: "the disk is full. Make room and try again",
    sqlite3.SQLITE_READONLY: "it cannot be written. Make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Make the file and its directory writable",
    sqlite3.SQLITE_BUSY: "another process has held it for 60 seconds. Wait for that process and try again",
}


def parse_epsilon(value: object, *, name: str = "epsilon") -> Fraction:
    """Return exactly the positive number that was written; a float is the decimal it prints as."""
    exact = None
    if isinstance(value, Rational) and not isinstance(value, bool):
        exact = Fraction(int(value.numerator), int(value.denominator))
    elif isinstance(value, str | Decimal | Real):
        text = str(value).strip()
        if len(text) <= 80 and _NUMBER.fullmatch(text):
            exact = Fraction(text)
    if exact is None:
        good, found = '0.5, "0.1" or "1/3"', reprlib.repr(value)
        raise UsageError(f"{name} must be a positive number such as {good}, not {found}.")
    if max(abs(exact.numerator), exact.denominator) > _LONGEST:
        raise UsageError(f"{name} needs more than 30 digits as an exact fraction: write a rounder number.")
    if exact <= 0:
        raise UsageError(f"{name} must be above 0, not {as_decimal(exact)}: write for example 0.5.")
    return exact


def exact_share(share: Fraction) -> Fraction:
    """Return a share as a Fraction of Python integers: of narrower ones its products could wrap."""
    if isinstance(share, bool) or not isinstance(share, Fraction | int) or not 0 < share <= 1:
        raise PrivacyError(f"a share must be a Fraction above 0 and up to 1, not {share!r}.")
    return Fraction(int(share.numerator), int(share.denominator))


def as_decimal(value: Fraction) -> str:
    """Return a fraction as a decimal of at most twelve digits, for reading."""
    return f"{float(value):.12g}"


def _both(value: Fraction) -> str:
    decimal = as_decimal(value)
    return decimal if Fraction(decimal) == value else f"{decimal} (exactly {value})"


@dataclass(frozen=True, eq=False, repr=False)
class Charge:
    """Budget that is already journaled: drawn on once, either whole by `use` or in parts by `take`."""

    epsilon: Fraction
    dataset: str
    purpose: str
    seal: InitVar[object] = None
    _taken: list[Fraction] = field(default_factory=list, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _process: int = field(default_factory=os.getpid, init=False)

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise PrivacyError("a Charge is made by a ledger: call ledger.charge(...).")

    def __repr__(self) -> str:
        return f"Charge(epsilon={_both(self.epsilon)}, dataset={self.dataset!r}, purpose={self.purpose!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise PrivacyError("a Charge is not copied or pickled: two copies could be spent twice.")

    def take(self, share: Fraction, purpose: str) -> Charge:
        """Return a charge of this share of the whole; all shares together can never exceed one."""
        share = exact_share(share)
        self._spend(share, f"cannot give {share} of itself to {purpose!r}")
        return Charge(self.epsilon * share, self.dataset, purpose, _SEAL)

    def use(self) -> Fraction:
        """Return the epsilon to draw with, once."""
        self._spend(Fraction(1), "cannot be used")
        return self.epsilon

    def _spend(self, share: Fraction, refusal: str) -> None:
        if os.getpid() != self._process:  # a fork copies the charge, too
            raise PrivacyError(f"{self!r} was made by another process: charge in the process that draws.")
        with self._lock:
            gone = sum(self._taken, Fraction(0))
            if gone + share > 1:
                raise PrivacyError(f"{self!r} {refusal}: {gone} of it is used or taken. Make a new charge.")
            self._taken.append(share)


@dataclass(frozen=True)
class Entry:
    """One row of a journal; for the kind 'limit', epsilon is the new limit, and None is no limit."""

    number: int
    when: str
    dataset: str
    epsilon: Fraction | None
    mechanism: str
    what: str
    purpose: str
    kind: str

    def to_dict(self) -> dict[str, object]:
        """Return plain values, epsilon both exact and as a decimal."""
        exact = self.epsilon
        shown = {"epsilon": _text(exact), "decimal": None if exact is None else as_decimal(exact)}
        return asdict(self) | shown


def to_json(entries: Iterable[Entry]) -> str:
    """Return entries as a JSON list."""
    return json.dumps([entry.to_dict() for entry in entries], ensure_ascii=False, indent=2)


def to_csv(entries: Iterable[Entry]) -> str:
    """Return entries as CSV with a header, all text in quotes."""
    out = io.StringIO()
    columns = [*Entry.__dataclass_fields__, "decimal"]
    writer = csv.DictWriter(out, columns, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writeheader()
    writer.writerows(entry.to_dict() for entry in entries)
    return out.getvalue()


class LedgerLike(ABC):
    """What keeps a budget: how a charge is made is written here once, and where it is kept below."""

    def charge(
        self,
        epsilon: Fraction,
        *,
        dataset: str = "default",
        mechanism: str,
        what: str,
        purpose: str = "release",
    ) -> Charge:
        """Journal epsilon and only then return it as a charge, or raise and change nothing."""
        epsilon, dataset = parse_epsilon(epsilon), _name(dataset)
        self._spend(dataset, epsilon, (_storable(mechanism), _storable(what), _storable(purpose)))
        return Charge(epsilon, dataset, purpose, _SEAL)

    def check(self, epsilon: Fraction, *, dataset: str = "default") -> None:
        """Raise what `charge` would raise, and charge nothing."""
        self._could_spend(_name(dataset), parse_epsilon(epsilon))

    def spent(self, dataset: str) -> Fraction:
        """Return the sum of all charges to a dataset."""
        return self._account(_name(dataset))[0]

    def limit(self, dataset: str) -> Fraction | None:
        """Return what may be spent in all on a dataset; None is without limit."""
        return self._account(_name(dataset))[1]

    def remaining(self, dataset: str) -> Fraction | None:
        """Return what is left below the limit, at least 0; None is without limit."""
        spent, limit = self._account(_name(dataset))
        return None if limit is None else max(limit - spent, Fraction(0))

    @abstractmethod
    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the journal, oldest first, of one dataset or of all."""

    @abstractmethod
    def _account(self, dataset: str) -> tuple[Fraction, Fraction | None]:
        """Return what is spent and the limit."""

    @abstractmethod
    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        """Refuse what `_spend` would refuse now."""

    @abstractmethod
    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        """Check and journal in one indivisible step; when it returns, the journal is safe."""


class MemoryLedger(LedgerLike):
    """A budget that ends with the process; the limit holds for each dataset."""

    def __init__(self, limit: object = None) -> None:
        self._limit = None if limit is None else parse_epsilon(limit, name="limit")
        self._entries: list[Entry] = []
        self._spent: dict[str, Fraction] = {}
        self._lock = Lock()
        self._process = os.getpid()

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the charges, oldest first, of one dataset or of all."""
        return [e for e in self._entries if dataset in (None, e.dataset)]

    def _account(self, dataset: str) -> tuple[Fraction, Fraction | None]:
        return self._spent.get(dataset, Fraction(0)), self._limit

    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        self._total_with(dataset, epsilon)

    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        with self._lock:
            self._spent[dataset] = self._total_with(dataset, epsilon)
            self._entries.append(Entry(len(self._entries) + 1, _now(), dataset, epsilon, *words, "charge"))

    def _total_with(self, dataset: str, epsilon: Fraction) -> Fraction:
        if os.getpid() != self._process:  # a fork copies the budget, and both sides could spend all of it
            raise PrivacyError(
                "a MemoryLedger keeps the budget of the process that made it, and this is another one: "
                "share a file between processes with Ledger.open."
            )
        advice = "Ask for less, or make the MemoryLedger with a higher limit."
        return _total(dataset, epsilon, *self._account(dataset), advice)


@dataclass(frozen=True)
class Ledger(LedgerLike):
    """A budget in a SQLite file, shared by any number of processes: checked whenever it is opened.

    Args:
        create: make the file if it is missing.
        read_only: for looking only, also where nothing may be written.
    """

    path: Path
    _: KW_ONLY
    create: InitVar[bool] = True
    read_only: bool = field(default=False, repr=False)

    def __post_init__(self, create: bool) -> None:
        if not isinstance(self.path, str | os.PathLike):
            found = type(self.path).__name__
            raise UsageError(f"a ledger is opened by its path, such as Ledger('ledger.db'), not {found}.")
        where = Path(self.path).absolute()
        object.__setattr__(self, "path", where)
        create = create and not self.read_only
        try:
            if "\0" in str(where) or where.is_dir():
                raise LedgerError(f"{str(where)!r} is not a file. Name a file, such as ledger.db.")
            if not where.parent.is_dir():
                raise LedgerError(f"the directory {where.parent} does not exist. Make it, then try again.")
            if not create and not where.exists():
                raise LedgerError(f"there is no ledger at {where}. {_create(where)}")
            if where.exists() and where.stat().st_size == 1:  # SQLite takes it for empty and writes over it
                raise LedgerError(f"{where} is not a SQLite file. Name another file. Nothing was drawn.")
        except OSError as error:
            raise LedgerError(f"the ledger {where} cannot be reached: {error}. Nothing was drawn.") from error
        if not self.read_only:
            with self._transaction("IMMEDIATE", create=create):
                pass
        self.verify()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> Self:
        """Return the ledger at a path, made if it is missing, after checking that it adds up."""
        return cls(path, create=create, read_only=read_only)  # type: ignore[arg-type]

    def set_limit(self, dataset: str, limit: object) -> str:
        """Journal a dataset's new limit, None for no limit, and return what it means in a sentence.

        A limit below what is already spent is allowed; every charge is then refused.
        """
        exact = None if limit is None else parse_epsilon(limit, name="limit")
        with self._transaction("IMMEDIATE") as db:
            spent, _ = _kept(db, _name(dataset))
            if exact is None:
                meaning = "no limit: every charge is journaled and none is refused"
            elif exact <= spent:
                meaning = f"limit {_both(exact)}, with {_both(spent)} already spent: every charge is refused"
            else:
                meaning = f"limit {_both(exact)}, of which {_both(exact - spent)} is left"
            _write(db, (dataset, _text(exact), "", meaning, "limit", "limit"), spent, exact)
        return meaning

    def datasets(self) -> list[str]:
        """Return the names of all datasets that have a charge or a limit."""
        with self._transaction() as db:
            return [name for (name,) in db.execute("SELECT name FROM datasets ORDER BY name")]

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the journal, oldest first, of one dataset or of all."""
        query = "SELECT * FROM journal WHERE ?1 IS NULL OR dataset = ?1 ORDER BY number"
        with self._transaction() as db:
            rows = db.execute(query, (dataset,)).fetchall()
        return [Entry(n, when, name, _fraction(e), *rest) for n, when, name, e, *rest in rows]

    def verify(self) -> None:
        """Raise LedgerError unless the rows are complete and every total is the sum of its rows."""
        charged = "SELECT dataset, epsilon, COUNT(*) FROM journal WHERE kind = 'charge' GROUP BY 1, 2"
        limited = "SELECT dataset, epsilon FROM journal WHERE kind = 'limit' ORDER BY number"
        spent: dict[str, Fraction] = {}
        with self._transaction() as db:  # one snapshot, or a charge in between would look like damage
            schema = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master")}
            rows, last = db.execute("SELECT COUNT(*), IFNULL(MAX(number), 0) FROM journal").fetchone()
            kept = {name: _kept(db, name) for (name,) in db.execute("SELECT name FROM datasets").fetchall()}
            for name, epsilon, times in db.execute(charged):
                spent[name] = spent.get(name, Fraction(0)) + (_fraction(epsilon) or 0) * times
            limits = {name: _fraction(limit) for name, limit in db.execute(limited)}
        summed = {name: (spent.get(name, 0), limits.get(name)) for name in spent | limits}
        if rows != last or kept != summed or not schema.issuperset(_SCHEMA):
            wrong = sorted(name for name in kept | summed if kept.get(name) != summed.get(name))
            raise LedgerError(
                f"the ledger {self.path} was altered outside dphist: its rows, rules and totals do not agree "
                f"(datasets with a wrong total or limit: {', '.join(wrong) or 'none'}). "
                "Put back a backup that is not older than your last release."
            )

    def _account(self, dataset: str) -> tuple[Fraction, Fraction | None]:
        with self._transaction() as db:
            return _kept(db, dataset)

    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        with self._transaction() as db:
            self._total_with(db, dataset, epsilon)

    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        with self._transaction("IMMEDIATE") as db:
            total, limit = self._total_with(db, dataset, epsilon)
            _write(db, (dataset, _text(epsilon), *words, "charge"), total, limit)

    def _total_with(
        self, db: sqlite3.Connection, dataset: str, epsilon: Fraction
    ) -> tuple[Fraction, Fraction | None]:
        command = f"dphist ledger limit {shlex.quote(str(self.path))} VALUE --dataset {shlex.quote(dataset)}"
        known = dict(db.execute("SELECT name, ceiling FROM datasets").fetchall())
        # A slip in the name would otherwise open a new budget beside the limited one.
        if dataset not in known and any(ceiling is not None for ceiling in known.values()):
            raise LedgerError(
                f"dataset {dataset!r} is not known to this ledger, which has limits. "
                f"{did_you_mean(dataset, known)} Nothing was charged. "
                f"Add it with: {command} (VALUE may be none)"
            )
        spent, limit = _kept(db, dataset)
        advice = f"Ask for less, or raise the limit with: {command}"
        return _total(dataset, epsilon, spent, limit, advice), limit

    @contextmanager
    def _transaction(self, kind: str = "DEFERRED", *, create: bool = False) -> Iterator[sqlite3.Connection]:
        # A connection per operation: nothing is shared between threads or across a fork, and the last
        # one to close folds the log into the file. Leaving by an exception rolls back.
        if self.read_only and kind != "DEFERRED":
            raise LedgerError(f"the ledger {self.path} was opened for reading only. Nothing was drawn.")
        uri = f"{self.path.as_uri()}?{'mode=rwc' if create else self._mode()}"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None)) as db:
                # In a write-ahead log EXTRA is FULL: a sync at every commit. It also covers other journals.
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("PRAGMA fullfsync = ON")
                db.execute(f"BEGIN {kind}")
                if not _is_ledger(db, self.path, or_empty=create):
                    for statement in _SCHEMA + _STAMP:
                        db.execute(statement)
                yield db
                db.execute("COMMIT")
                if create:  # Busy when others are at work: the mode they have is as safe.
                    with suppress(sqlite3.OperationalError):
                        db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            trouble = _TROUBLE.get(code, "SQLite cannot work with it")
            raise LedgerError(f"the ledger {self.path}: {trouble} ({error}). Nothing was drawn.") from error

    def _mode(self) -> str:
        """Return how SQLite opens the file: to read in a write-ahead log it would like to write."""
        places = (self.path, self.path.parent)
        if not self.read_only or all(os.access(place, os.W_OK) for place in places):
            return "mode=rw"
        log = self.path.with_name(f"{self.path.name}-wal")
        # Without a log nobody is writing, and the file alone is the whole ledger.
        return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"


def _is_ledger(db: sqlite3.Connection, path: Path, *, or_empty: bool) -> bool:
    """Return True for a ledger, False for an empty file if that is allowed; refuse anything else."""
    queries = ("PRAGMA application_id", "PRAGMA user_version", "SELECT COUNT(*) FROM sqlite_master")
    application, version, objects = (db.execute(query).fetchone()[0] for query in queries)
    if not application and not version and not objects:
        if or_empty:
            return False
        raise LedgerError(f"{path} is empty, not a ledger. {_create(path)}")
    if application != _APPLICATION:
        raise LedgerError(f"{path} is a SQLite file, but not a dphist ledger. Name another file.")
    if version != _VERSION:
        raise LedgerError(f"{path} is a ledger of version {version}, not {_VERSION}. Update dphist.")
    return True


def _kept(db: sqlite3.Connection, dataset: str) -> tuple[Fraction, Fraction | None]:
    query = "SELECT spent, ceiling FROM datasets WHERE name = ?"
    spent, limit = db.execute(query, (dataset,)).fetchone() or ("0/1", None)
    return _fraction(spent) or Fraction(0), _fraction(limit)


def _write(
    db: sqlite3.Connection, row: tuple[str | None, ...], spent: Fraction, limit: Fraction | None
) -> None:
    db.execute("INSERT INTO journal VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", (_now(), *row))
    db.execute("INSERT OR REPLACE INTO datasets VALUES (?, ?, ?)", (row[0], _text(spent), _text(limit)))


def _total(dataset: str, epsilon: Fraction, spent: Fraction, limit: Fraction | None, advice: str) -> Fraction:
    """Return what will be spent with epsilon, or refuse it: the one place where a limit is enforced."""
    total = spent + epsilon
    if limit is not None and total > limit:
        raise BudgetExceeded(
            f"epsilon {_both(epsilon)} was asked of dataset {dataset!r}: its limit is {_both(limit)}, "
            f"{_both(spent)} is spent and {_both(max(limit - spent, Fraction(0)))} is left. "
            f"Nothing was charged. {advice}"
        )
    if total.denominator > _LONGEST_TOTAL:
        raise LedgerError("the exact total grows too long: use rounder epsilons. Nothing was charged.")
    return total


def _text(value: Fraction | None) -> str | None:
    return None if value is None else f"{value.numerator}/{value.denominator}"


def _fraction(text: object) -> Fraction | None:
    if text is None:
        return None
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,4200}/[1-9][0-9]{0,4199}", text):
        raise LedgerError(f"the ledger is damaged: it has {reprlib.repr(text)} in the place of a fraction.")
    return Fraction(text)


def _name(dataset: str) -> str:
    # Names that look alike must be alike, or one dataset would have two budgets.
    if not isinstance(dataset, str) or not dataset.isprintable() or not dataset or dataset != dataset.strip():
        shown = reprlib.repr(dataset)
        raise UsageError(f"a dataset's name must be printable, with no space at its ends, not {shown}.")
    if not unicodedata.is_normalized("NFC", dataset):
        raise UsageError(
            f"the dataset's name {dataset!r} is not in Unicode's composed form (NFC), so it could look like "
            "another name and have a budget of its own. Type it anew, or normalise it."
        )
    return dataset


def _storable(word: str) -> str:
    # A file name that is not UTF-8 reaches us with lone surrogates, which no database stores.
    return str(word).encode("utf-8", "backslashreplace").decode()


def _create(path: Path) -> str:
    return f"Create one with: dphist ledger create {shlex.quote(str(path))}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
