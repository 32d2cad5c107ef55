"""The ledger as the page shows it: what is left of each dataset, and where the budget went."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from dphist.errors import UsageError
from dphist.planning.account import ledger_of
from dphist.planning.publication import Publication
from dphist.privacy.ledger import Entry, Ledger, LedgerLike, MemoryLedger, parse_epsilon
from dphist.release.words import at_most_of_hundred, chance_after
from dphist.reports.budget import mixed, units
from dphist.studio.answers import exact
from dphist.studio.guard import Refusal
from dphist.studio.places import Places
from dphist.studio.service import Asked


class Ledgers:
    """The ledger of a session, and those that plans name."""

    def __init__(self, places: Places, named: Path | None) -> None:
        self.places, self.named = places, named

    def account(self, publication: Publication | None) -> tuple[Path, bool]:
        """Return the ledger of a plan, or of the session, and whether publishing is to make it."""
        return ledger_of((None if publication is None else publication.ledger) or self.named)

    def opened(self, publication: Publication | None, *, read_only: bool) -> tuple[LedgerLike, bool]:
        """Return the ledger, and whether there is one: in the place of one that will be made stands none."""
        path, made = self.account(publication)
        if made:
            return MemoryLedger(), False
        if not path.exists():
            name = self.places.name(path)
            raise Refusal(
                410, "gone", f"the ledger {name} is not there. Nothing was charged.", path=name, charged=False
            )
        return Ledger.open(path, read_only=read_only), True

    def budget(self, publication: Publication | None, dataset: str) -> dict[str, Any]:
        """Return what is spent and left of a dataset."""
        path, _ = self.account(publication)
        said = {"ledger": self.places.name(path), "exists": path.exists(), "dataset": dataset}
        if not path.exists():
            return said | {"limit": None, "spent": "0", "left": None}
        book = Ledger.open(path, read_only=True)
        spent, limit, left = book.spent(dataset), book.limit(dataset), book.remaining(dataset)
        return said | {"limit": exact(limit), "spent": exact(spent), "left": exact(left)}

    # ---- questions ----------------------------------------------------------------------------------

    def show(self, publication: Publication | None) -> dict[str, Any]:
        """Return every dataset of a ledger with its entries, oldest first."""
        path, _ = self.account(publication)
        said = {"ledger": self.places.name(path), "exists": path.exists()}
        if not path.exists():
            return said | {"datasets": []}
        book = Ledger.open(path, read_only=True)
        return said | {"datasets": [_dataset(book, name) for name in book.datasets()]}

    def create(self, publication: Publication | None, asked: Asked) -> dict[str, Any]:
        """Make the ledger, with a limit; one that is there stays as it is."""
        path, _ = self.account(publication)
        limit = None if asked.get("limit") is None else parse_epsilon(asked["limit"], name="limit")
        dataset = asked.get("dataset") or (publication.dataset if publication else "default")
        if not isinstance(dataset, str):
            raise UsageError("dataset must be a name.")
        MemoryLedger().spent(dataset)  # a bad name is refused before there is a file
        if path.exists():
            name = self.places.name(path)
            raise Refusal(
                409, "changed", f"the ledger {name} is there already, and stays as it is.", path=name
            )
        book = Ledger.open(path, create=True)
        if limit is not None:
            book.set_limit(dataset, limit)
        return self.show(publication)


def _dataset(book: Ledger, name: str) -> dict[str, Any]:
    spent = Fraction(0)
    rows = []
    for entry in book.entries(name):
        spent += entry.epsilon or 0 if entry.kind == "charge" else 0
        rows.append(_entry(entry) | {"spent_after": exact(spent)})
    return {
        "dataset": name,
        "limit": exact(book.limit(name)),
        "spent": exact(book.spent(name)),
        "left": exact(book.remaining(name)),
        "after": at_most_of_hundred(chance_after(Fraction(1, 2), book.spent(name))),
        "note": mixed(units(book, name)),
        "entries": rows,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "when": entry.when,
        "kind": entry.kind,
        "epsilon": exact(entry.epsilon),
        "mechanism": entry.mechanism,
        "what": entry.what,
        "purpose": entry.purpose,
        "unit": entry.unit,
        "release": entry.release,
    }
