"""The budget: exact, journaled and synced to disk before any noise is drawn.

A ledger adds up, per dataset, the epsilon that has been spent. ``charge`` checks the dataset's limit,
writes a row to the journal, waits until the disk has it, and only then returns a `Charge`. The sampler
takes nothing but a charge, and takes each charge once. So, whatever is killed and whenever:

* before the commit: nothing is journaled, and nothing can have been drawn;
* after the commit, before the draw: the budget is wasted, and nothing was learned from it;
* after the draw: it was paid for.

A crash may waste budget and never overspends it; `privacy/journal.py` says why the file is always whole.
What it cannot see: deleting the file or restoring an old copy loses the charges made since. The checks find
accidents, not forgeries.

The journal holds epsilons, names and times, and nothing that was computed from records.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from pathlib import Path
from threading import Lock
from typing import Self

from dphist._common.text import cell
from dphist.domain import shown
from dphist.errors import AlreadyCharged, BudgetExceeded, LedgerError, PrivacyError, UsageError, did_you_mean
from dphist.privacy import journal, sqlite_ledger
from dphist.privacy.journal import Place, Row

Words = tuple[str, str, str, str, str, str]  # mechanism, what, purpose, unit, release, token
Account = tuple[Fraction, Fraction | None]  # spent, limit

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?|\d+/0*[1-9]\d*)", re.ASCII | re.IGNORECASE)
_LONGEST = 10**30  # of a numerator or denominator: keeps the exact sums short
_LONGEST_TOTAL = 10**4000  # Python refuses to print integers of more than 4300 digits
_TOKEN = re.compile(r"[\w.:-]{0,128}", re.ASCII)
_SEAL = object()  # held by this module alone, so that a Charge is not made by accident elsewhere

_KINDS = {("charge", False), ("limit", False), ("limit", True)}  # kind, and whether without a number
_NOTHING: Account = (Fraction(0), None)
_BEGUN = [0]  # charges that this process has begun to write to a file


def parse_epsilon(value: object, *, name: str = "epsilon") -> Fraction:
    """Return exactly the positive number that was written; a float is the decimal it prints as.

    What was read once is a Fraction, and is only checked from then on.
    """
    exact = value if isinstance(value, Rational) and not isinstance(value, bool) else _read(value)
    if exact is None:
        good = '0.5, "0.1" or "1/3"'
        raise UsageError(f"{name} must be a positive number such as {good}, not {shown(value)}.")
    exact = Fraction(int(exact.numerator), int(exact.denominator))
    if max(abs(exact.numerator), exact.denominator) > _LONGEST:
        raise UsageError(f"{name} needs more than 30 digits as an exact fraction: write a rounder number.")
    if exact <= 0:
        raise UsageError(f"{name} must be above 0, not {as_decimal(exact)}: write for example 0.5.")
    return exact


def _read(value: object) -> Fraction | None:
    """Return the number that a text or a float writes, or None."""
    text = str(value).strip() if isinstance(value, str | Decimal | Real) else ""
    return Fraction(text) if len(text) <= 80 and _NUMBER.fullmatch(text) else None


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
    release: str  # the name of the release that it pays for: random, and in the journal too
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
        return Charge(self.epsilon * share, self.dataset, purpose, self.release, _SEAL)

    def each(self, share: Fraction, size: int, purpose: str) -> Iterator[Charge]:
        """Return ``size`` charges of this share of the whole, for records that no two of them read.

        The share is taken once, here, before the first of them is handed out; each is handed out once. Only
        `Curator.split` may call this: it hands every charge out together with records of its own.
        """
        taken = self.take(share, purpose)
        epsilon = taken.use()  # nobody can draw with it besides
        return (taken._one_of_many(epsilon) for _ in range(size))  # noqa: SLF001 - of this class

    def _one_of_many(self, epsilon: Fraction) -> Charge:
        self._refuse_another_process()  # a fork copies the iterator, and both could hand out the same groups
        return Charge(epsilon, self.dataset, self.purpose, self.release, _SEAL)

    def use(self) -> Fraction:
        """Return the epsilon to draw with, once."""
        self._spend(Fraction(1), "cannot be used")
        return self.epsilon

    def _refuse_another_process(self) -> None:
        if os.getpid() != self._process:  # a fork copies the charge, too
            raise PrivacyError(f"{self!r} was made by another process: charge in the process that draws.")

    def _spend(self, share: Fraction, refusal: str) -> None:
        self._refuse_another_process()
        with self._lock:
            gone = sum(self._taken, Fraction(0))
            if gone + share > 1:
                raise PrivacyError(f"{self!r} {refusal}: {gone} of it is used or taken. Make a new charge.")
            self._taken.append(share)


@dataclass(frozen=True)
class Entry:
    """One row of a journal; in a row of kind 'limit', epsilon is the new limit, None for no limit."""

    number: int
    when: str
    dataset: str
    epsilon: Fraction | None
    mechanism: str
    what: str
    purpose: str
    kind: str
    unit: str = ""  # whom the charge protects; rows of version 1 do not say
    release: str = ""  # which release it paid for
    token: str = ""  # what is charged once, however often it is asked for; nothing if it may be repeated

    def to_row(self) -> Row:
        """Return the entry as a row of a journal, which numbers its rows itself."""
        row = asdict(self) | {"epsilon": _text(self.epsilon)}
        del row["number"]
        if not self.token:
            del row["token"]
        return row

    def to_dict(self) -> dict[str, object]:
        exact = self.epsilon
        shown = {"epsilon": _text(exact), "decimal": None if exact is None else as_decimal(exact)}
        return asdict(self) | shown


def to_json(entries: Iterable[Entry]) -> str:
    """Return entries as a JSON list."""
    return json.dumps([entry.to_dict() for entry in entries], ensure_ascii=False, indent=2)


def to_csv(entries: Iterable[Entry]) -> str:
    """Return entries as CSV with a header, all text in quotes and none of it a formula."""
    out = io.StringIO()
    columns = [*Entry.__dataclass_fields__, "decimal"]
    writer = csv.DictWriter(out, columns, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        row = entry.to_dict()
        writer.writerow({k: cell(v) if isinstance(v, str) else v for k, v in row.items()})
    return out.getvalue()


class LedgerLike(ABC):
    """A privacy budget for each dataset. Subclasses say where the journal is stored."""

    def charge(
        self,
        epsilon: Fraction,
        *,
        dataset: str = "default",
        mechanism: str,
        what: str,
        purpose: str = "release",
        unit: str = "",
        token: str = "",
    ) -> Charge:
        """Journal epsilon and only then return it as a charge, or raise and change nothing.

        >>> charge = ledger.charge("0.5", dataset="visits", mechanism="identity", what="ages")
        >>> charge.epsilon
        Fraction(1, 2)

        Args:
            unit: whom the charge protects: one record, or one person.
            token: a name for what is to be charged once. It is written with the charge in one step, and a
                second charge of the same token is refused, by whichever process and whenever it is made.
        """
        epsilon, dataset = parse_epsilon(epsilon), _name(dataset)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise UsageError(
                f"a token is at most 128 letters, digits and . : _ - of ASCII, not {shown(token)}."
            )
        release = os.urandom(16).hex()  # noqa: TID251 - a name, drawn before anything is known
        said = _storable(mechanism), _storable(what), _storable(purpose), _storable(unit)
        self._spend(dataset, epsilon, (*said, release, token))
        return Charge(epsilon, dataset, purpose, release, _SEAL)

    def check(self, epsilon: Fraction, *, dataset: str = "default") -> None:
        """Raise what ``charge`` would raise, and charge nothing.

        >>> ledger.check(1, dataset="visits")
        """
        self._could_spend(_name(dataset), parse_epsilon(epsilon))

    def spent(self, dataset: str) -> Fraction:
        """Return the sum of all charges to a dataset.

        >>> ledger.spent("visits")
        Fraction(0, 1)
        """
        return self._account(_name(dataset))[0]

    def limit(self, dataset: str) -> Fraction | None:
        """Return the limit of a dataset's charges; None if there is no limit.

        >>> ledger.limit("visits")
        Fraction(2, 1)
        """
        return self._account(_name(dataset))[1]

    def remaining(self, dataset: str) -> Fraction | None:
        """Return the budget that is left, at least 0; None if there is no limit.

        >>> ledger.remaining("visits")
        Fraction(2, 1)
        """
        spent, limit = self._account(_name(dataset))
        return None if limit is None else max(limit - spent, Fraction(0))

    def entry_of(self, token: str) -> Entry | None:
        """Return the charge of a token, or None if it was not charged.

        >>> ledger.entry_of("visits-2025") is None
        True
        """
        return next((entry for entry in self.entries() if token and entry.token == token), None)

    @abstractmethod
    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the journal, oldest first, of one dataset or of all."""

    @abstractmethod
    def _account(self, dataset: str) -> Account:
        """Return what is spent and the limit."""

    @abstractmethod
    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        """Refuse what `_spend` would refuse now."""

    @abstractmethod
    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        """Check and journal in one indivisible step; when it returns, the journal is safe."""


class MemoryLedger(LedgerLike):
    """A budget in memory, which ends with the process; the limit holds for each dataset.

    >>> ledger = dphist.MemoryLedger(limit=2)
    >>> release = dphist.from_counts([30, 20], epsilon="0.5", ledger=ledger)
    >>> ledger.remaining("default")
    Fraction(3, 2)
    """

    def __init__(self, limit: object = None) -> None:
        self._limit = None if limit is None else parse_epsilon(limit, name="limit")
        self._entries: list[Entry] = []
        self._spent: dict[str, Fraction] = {}
        self._lock = Lock()
        self._process = os.getpid()

    def __repr__(self) -> str:
        spent = ", ".join(f"{name!r}: {as_decimal(e)}" for name, e in sorted(self._spent.items()))
        limit = "none" if self._limit is None else as_decimal(self._limit)
        return f"MemoryLedger(limit {limit}, spent {{{spent}}}; ends with the process)"

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the charges of one dataset or of all, oldest first.

        >>> [entry.mechanism for entry in ledger.entries()]
        ['auto']
        """
        return [e for e in self._entries if dataset in (None, e.dataset)]

    def _account(self, dataset: str) -> Account:
        return self._spent.get(dataset, Fraction(0)), self._limit

    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        self._total_with(dataset, epsilon)

    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        with self._lock:
            _refuse_again(words[-1], {entry.token: entry.number for entry in self._entries})
            self._spent[dataset] = self._total_with(dataset, epsilon)
            number, kept = len(self._entries) + 1, _charged(dataset, epsilon, words)
            self._entries.append(replace(kept, number=number))

    def _total_with(self, dataset: str, epsilon: Fraction) -> Fraction:
        if os.getpid() != self._process:  # a fork copies the budget, and both sides could spend all of it
            raise PrivacyError(
                "a MemoryLedger keeps the budget of the process that made it, and this is another one: "
                "share a file between processes with Ledger.open."
            )
        advice = "Ask for less, or make the MemoryLedger with a higher limit."
        return _total(dataset, epsilon, *self._account(dataset), advice)


@dataclass(frozen=True)
class _Balances:
    """The budget of each dataset, spent and limit, as the journal states it up to a place; and all tokens."""

    place: Place = field(default_factory=Place)
    accounts: dict[str, Account] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)  # the number of the row that charged each

    def after(self, place: Place, entries: Iterable[Entry]) -> _Balances:
        accounts, tokens = self.accounts.copy(), self.tokens.copy()
        for number, entry in enumerate(entries, self.place.rows + 1):
            if entry.token:
                tokens.setdefault(entry.token, number)
            spent, limit = accounts.get(entry.dataset, _NOTHING)
            if entry.kind == "limit":
                limit = entry.epsilon
            else:
                spent += entry.epsilon or 0
            accounts[entry.dataset] = spent, limit
        return _Balances(place, accounts, tokens)


@dataclass(frozen=True)
class Ledger(LedgerLike):
    """A budget in a file that any number of processes may share; every row is checked when it is opened.

    >>> ledger = dphist.Ledger.open("visits.db", create=True)
    >>> ledger.set_limit("visits", 2)
    'limit 2, of which 2 is left'

    Args:
        create: create the file if it is missing; otherwise a missing file is an error, since a misspelt
            name would open a new budget.
        read_only: open for reading only, also where the file cannot be written.
    """

    path: Path
    _: KW_ONLY
    create: InitVar[bool] = False
    read_only: bool = field(default=False, repr=False)
    # The balances at the last reading. Rows are never removed: a file without these rows was rolled back,
    # and this object refuses it.
    _known: list[_Balances] = field(
        default_factory=lambda: [_Balances()], init=False, repr=False, compare=False
    )

    def __post_init__(self, create: bool) -> None:
        if not isinstance(self.path, str | os.PathLike):
            found = type(self.path).__name__
            raise UsageError(
                f"a ledger is opened by its path, such as Ledger.open('ledger.db'), not {found}."
            )
        where = Path(self.path).absolute()
        object.__setattr__(self, "path", where)
        try:
            if "\0" in str(where) or where.is_dir():
                raise LedgerError(f"{str(where)!r} is not a file. Name a file, such as ledger.db.")
            if not where.parent.is_dir():
                raise LedgerError(f"the directory {where.parent} does not exist. Make it, then try again.")
            missing = not where.exists()
        except OSError as error:
            raise LedgerError(f"the ledger {where} cannot be reached: {error}. Nothing was drawn.") from error
        if missing and not (create and not self.read_only):
            raise LedgerError(f"there is no ledger at {where}. {journal.near(where)}")
        with journal.troubles(where):
            if missing:
                journal.create(where)
        if self.read_only:
            self.verify()
        else:
            with self._writing():
                pass

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False) -> Self:
        """Return the ledger at a path, after checking every row; with ``create``, create a missing file.

        >>> dphist.Ledger.open("visits.db", read_only=True).datasets()
        ['visits']
        """
        return cls(path, create=create, read_only=read_only)  # type: ignore[arg-type]

    def set_limit(self, dataset: str, limit: object) -> str:
        """Journal a dataset's new limit, None for no limit, and return its meaning in a sentence.

        A limit below the budget that is already spent is allowed; every charge is then refused.

        >>> ledger.set_limit("visits", "1/2")
        'limit 0.5, of which 0.5 is left'
        """
        exact = None if limit is None else parse_epsilon(limit, name="limit")
        with self._writing() as (file, book):
            spent, _ = book.accounts.get(_name(dataset), _NOTHING)
            if exact is None:
                meaning = "no limit: every charge is journaled and none is refused"
            elif exact <= spent:
                meaning = f"limit {_both(exact)}, with {_both(spent)} already spent: every charge is refused"
            else:
                meaning = f"limit {_both(exact)}, of which {_both(exact - spent)} is left"
            self._append(file, book, Entry(0, _now(), dataset, exact, "", meaning, "limit", "limit"))
        return meaning

    def datasets(self) -> list[str]:
        """Return the names of all datasets that have a charge or a limit.

        >>> ledger.datasets()
        ['visits']
        """
        return sorted(self._book().accounts)

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the journal of one dataset or of all, oldest row first.

        >>> [entry.kind for entry in ledger.entries("visits")]
        ['limit']
        """
        return [entry for entry in self._read(_Balances())[1] if dataset in (None, entry.dataset)]

    def verify(self) -> None:
        """Raise LedgerError unless every row is present, complete and consistent with the rows before it.

        >>> ledger.verify()
        """
        self._read(_Balances())

    def _account(self, dataset: str) -> Account:
        return self._book().accounts.get(dataset, _NOTHING)

    def _could_spend(self, dataset: str, epsilon: Fraction) -> None:
        self._check(self._book(), dataset, epsilon)

    def _spend(self, dataset: str, epsilon: Fraction, words: Words) -> None:
        with self._writing() as (file, book):
            _refuse_again(words[-1], book.tokens)
            self._check(book, dataset, epsilon)
            _BEGUN[0] += 1
            self._append(file, book, _charged(dataset, epsilon, words))

    def _check(self, book: _Balances, dataset: str, epsilon: Fraction) -> None:
        """Refuse a charge beyond the limit, and a new dataset in a ledger that has limits."""
        command = f"dphist ledger limit {shlex.quote(str(self.path))} VALUE --dataset {shlex.quote(dataset)}"
        known = book.accounts
        # A slip in the name would otherwise open a new budget beside the limited one.
        if dataset not in known and any(limit is not None for _, limit in known.values()):
            raise LedgerError(
                f"dataset {dataset!r} is not known to this ledger, which has limits. "
                f"{did_you_mean(dataset, known)} Nothing was charged. "
                f"Add it with: {command} (VALUE may be none)"
            )
        advice = f"Ask for less, or raise the limit with: {command}"
        _total(dataset, epsilon, *known.get(dataset, _NOTHING), advice)

    def _append(self, file: int, book: _Balances, entry: Entry) -> None:
        place = journal.append(file, book.place, entry.to_row())
        self._known[0] = book.after(place, [entry])

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, _Balances]]:
        """Hold the file as its only writer, and say what it holds."""
        if self.read_only:
            raise LedgerError(f"the ledger {self.path} was opened for reading only. Nothing was drawn.")
        with journal.writing(self.path) as file:
            old = journal.is_sqlite(file)
            if old:
                sqlite_ledger.convert(self.path)
            else:
                self._known[0] = book = self._scan(file, self._known[0])[0]
                yield file, book
        if old:
            with self._writing() as held:
                yield held

    def _book(self) -> _Balances:
        book = self._read(self._known[0])[0]
        if book.place.settled:
            self._known[0] = book
        return book

    def _read(self, known: _Balances) -> tuple[_Balances, list[Entry]]:
        """Return what the file holds, and its entries after those that are known."""
        with journal.reading(self.path) as file:
            if not journal.is_sqlite(file):
                try:
                    return self._scan(file, known)
                except LedgerError:  # perhaps a row was just being taken away: once more, with nobody writing
                    with journal.held(file, self.path):
                        return self._scan(file, known)
        if known.place.rows:
            raise journal.damaged(self.path, journal.ROLLED_BACK)
        entries = [_entry(row, self.path) for row in sqlite_ledger.read(self.path)]
        return _Balances().after(Place(settled=False), entries), entries

    def _scan(self, file: int, known: _Balances) -> tuple[_Balances, list[Entry]]:
        place, rows = journal.read(file, known.place, self.path)
        entries = [_entry(row, self.path) for row in rows]
        book = known.after(place, entries)
        if any(spent.denominator > _LONGEST_TOTAL for spent, _ in book.accounts.values()):
            raise journal.damaged(self.path, "a total is longer than any that is allowed")
        return book, entries


def charges_begun() -> int:
    """Return how many charges this process has begun to write to a file, whether or not that went well."""
    return _BEGUN[0]


def _charged(dataset: str, epsilon: Fraction, words: Words) -> Entry:
    mechanism, what, purpose, unit, release, token = words
    return Entry(0, _now(), dataset, epsilon, mechanism, what, purpose, "charge", unit, release, token)


def _refuse_again(token: str, charged: Mapping[str, int]) -> None:
    """Refuse a second charge of a token: the one place where it is enforced, under the ledger's lock."""
    if token and token in charged:
        raise AlreadyCharged(
            f"this was charged before, as entry {charged[token]} of the ledger. Nothing was charged again.",
            charged[token],
        )


def _entry(row: Row, path: Path) -> Entry:
    """Return the entry that a row describes; the file is not trusted."""
    names = ("when", "dataset", "mechanism", "what", "purpose", "kind", "unit", "release", "token")
    words = {"unit": "", "release": "", "token": ""} | {name: row[name] for name in names if name in row}
    epsilon = None if row.get("epsilon") is None else journal.fraction(row["epsilon"], path)
    texts = len(words) == len(names) and all(
        isinstance(word, str) and _storable(word) == word for word in words.values()
    )
    fits = epsilon is None or (epsilon > 0 and max(epsilon.numerator, epsilon.denominator) <= _LONGEST)
    if not texts or not fits or (words["kind"], epsilon is None) not in _KINDS:
        raise journal.damaged(path, f"row {row['number']} is neither a charge nor a limit")
    return Entry(row["number"], epsilon=epsilon, **words)


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


def _name(dataset: str) -> str:
    # Names that look equal must be equal, or one dataset would have two budgets.
    if not isinstance(dataset, str) or not dataset.isprintable() or not dataset or dataset != dataset.strip():
        found = shown(dataset)
        raise UsageError(f"a dataset's name must be printable, with no space at its ends, not {found}.")
    if not unicodedata.is_normalized("NFC", dataset):
        raise UsageError(
            f"the dataset's name {dataset!r} is not in Unicode's composed form (NFC), so it could look like "
            "another name and have a budget of its own. Type it again, or normalise it."
        )
    return dataset


def _storable(word: str) -> str:
    # A file name that is not UTF-8 reaches us with lone surrogates, which no database stores.
    return str(word).encode("utf-8", "backslashreplace").decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
