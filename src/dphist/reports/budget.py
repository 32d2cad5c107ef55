"""What the ledger says of the releases on a page: that they are what was paid for, and what is left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dphist.errors import ReleaseFileError, UsageError
from dphist.privacy.ledger import Entry, LedgerLike

if TYPE_CHECKING:
    from dphist.release.words import AnyRelease
    from dphist.reports.sheet import Budget


def budgets(releases: Sequence[AnyRelease], book: LedgerLike) -> list[Budget]:
    """Return the budgets of the datasets of some releases, once the ledger has confirmed each of them."""
    from dphist.reports.sheet import Budget

    entries = {entry.release: entry for entry in book.entries() if entry.release}
    for release in releases:
        if not release.simulated:
            _confirm(release, entries)
    names = dict.fromkeys(str(release.provenance.get("dataset", "default")) for release in releases)
    return [
        Budget(
            name,
            book.spent(name),
            book.limit(name),
            sum(entry.kind == "charge" for entry in book.entries(name)),
            mixed(units(book, name)),
        )
        for name in names
    ]


def _confirm(release: AnyRelease, entries: dict[str, Entry]) -> None:
    """Refuse a release that states something else than what the ledger charged for it."""
    from dphist.release.show import not_journaled, short_id

    if release.id is None or not_journaled(release):
        raise UsageError("a release that was charged to no ledger cannot be looked up in one: leave it out.")
    name = short_id(release.id)
    if release.id not in entries:
        raise UsageError(f"this ledger holds no charge for release {name}: name the ledger that paid for it.")
    paid = entries[release.id]
    stated = (release.epsilon, release.unit, release.method, release.provenance.get("dataset"))
    charged = (paid.epsilon, paid.unit, paid.mechanism, paid.dataset)
    if published := release.provenance.get("publication"):  # one charge, of which this has a share
        stated, charged = _of_share(release, published, paid)
    for what, told, kept in zip(("epsilon", "unit", "method", "dataset"), stated, charged, strict=True):
        if told != kept:
            raise ReleaseFileError(
                f"release {name} was altered: it states {what} {_shown(told)}, and the ledger charged "
                f"{_shown(kept)} for it. Fetch the release again from where it was published."
            )


def _of_share(
    release: AnyRelease, published: Mapping[str, Any], paid: Entry
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what one histogram of a publication states of the charge, and what the ledger says of it.

    The ledger names the methods of all histograms, and the largest bound on a person's records.
    """
    whole = release.epsilon / Fraction(str(published["share"]))
    named = release.method if release.method in paid.mechanism.split(", ") else paid.mechanism
    stated = (whole, _person(release.unit), release.method, release.provenance.get("dataset"))
    return stated, (paid.epsilon, _person(paid.unit), named, paid.dataset)


def _person(unit: str) -> str:
    return re.sub(r" with at most [0-9]+ records?$", "", unit)


def _shown(value: object) -> str:
    from dphist.release.show import decimal

    return decimal(value) if isinstance(value, Fraction) else repr(value)


def units(book: LedgerLike, dataset: str) -> list[str]:
    """Return whom the charges to a dataset protect, in words."""
    return sorted({e.unit or "a unit not stated" for e in book.entries(dataset) if e.kind == "charge"})


def mixed(units: list[str]) -> str:
    """Return a note about a sum of charges that protect different units.

    However many records of a person each of them counts, charges for one column of persons all protect the
    whole person, so that their sum bounds what a person loses.
    """
    if len(set(map(_person, units))) < 2:
        return ""
    return (
        f"adds up charges for different units ({'; '.join(sorted(set(units)))}), so it bounds the loss of "
        "none of them. A person with k records may lose k times what was charged for one record."
    )
