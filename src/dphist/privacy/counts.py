"""Exact counts, which must never leave the boundary. Their text shows their size and no count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain import Domain, as_int
from dphist.domain.groups import Groups, Ints
from dphist.errors import DataError, PrivacyError, UsageError

MAX_COUNT = 1 << 53
MAX_TOTAL = 1 << 62  # any sum of bins, plus noise, stays inside int64


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """How many records fall into each bin of a domain.

    Args:
        values: whole numbers, one per bin (a grid's row by row, or of the grid's own shape).
        sensitivity: by how much one unit can change the counts, added over all bins.
        unit: whom the guarantee protects: one record, or one person with several records.
    """

    values: NDArray[np.int64] = field(metadata={"private": True})
    domain: Domain
    sensitivity: int = 1
    unit: str = "one record"

    def __post_init__(self) -> None:
        if as_int(self.sensitivity, "the unit's sensitivity") < 1:
            raise UsageError(f"the unit's sensitivity must be at least 1, not {self.sensitivity}.")
        object.__setattr__(self, "sensitivity", int(self.sensitivity))
        object.__setattr__(self, "values", _exact(self.values, self.domain))

    def block(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the counts of bins first to last - 1."""
        return self.values[first:last]

    def totals(self, groups: Groups) -> Ints:
        """Return the sum over each group."""
        return groups.totals(self.values)

    def held(self) -> tuple[Ints, Ints]:
        """Return the bins that hold records, rising, and how many each of them holds."""
        cells = np.flatnonzero(self.values)
        return cells, self.values[cells]

    def __repr__(self) -> str:
        return f"Counts(<{self.domain.n} exact counts, private>, unit={self.unit!r})"

    def __reduce__(self) -> NoReturn:
        _refuse_copies()


@dataclass(frozen=True, eq=False, repr=False)
class SparseCounts:
    """Counts of many bins, of which most are 0 and take no memory.

    Args:
        cells: the bins that hold records, rising.
        tallies: how many each of them holds.
        domain: all bins, those without records among them.
        sensitivity: as that of `Counts`.
        unit: as that of `Counts`.
    """

    cells: NDArray[np.int64] = field(metadata={"private": True})
    tallies: NDArray[np.int64] = field(metadata={"private": True})
    domain: Domain
    sensitivity: int = 1
    unit: str = "one record"

    def __post_init__(self) -> None:
        rising = (self.cells[1:] > self.cells[:-1]).all()
        if self.cells.size and not (rising and self.cells[0] >= 0 and self.cells[-1] < self.domain.n):
            raise DataError("the bins that hold records must be bins of the domain, each named once.")
        if as_int(self.sensitivity, "the unit's sensitivity") < 1:
            raise UsageError(f"the unit's sensitivity must be at least 1, not {self.sensitivity}.")
        object.__setattr__(self, "sensitivity", int(self.sensitivity))
        object.__setattr__(self, "tallies", _checked(self.tallies))

    @property
    def values(self) -> NDArray[np.int64]:
        """The counts of all bins: as much memory as there are bins."""
        if self.domain.is_large:
            raise UsageError(
                f"this needs a number for each of {self.domain.n:,} bins, which are too many; use the method "
                "listed, dawa2 or uniform, or wider bins."
            )
        return self.block(0, self.domain.n)

    def totals(self, groups: Groups) -> Ints:
        """Return the sum over each group: O(groups + bins that hold records)."""
        if groups.order is not None:
            return groups.totals(self.values)
        sums = np.concatenate(([0], np.cumsum(self.tallies)))
        return np.diff(sums[np.searchsorted(self.cells, groups.starts)])

    def held(self) -> tuple[Ints, Ints]:
        """Return the bins that hold records, rising, and how many each of them holds."""
        return self.cells, self.tallies

    def block(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the counts of bins first to last - 1."""
        inside = slice(*np.searchsorted(self.cells, (first, last)))
        out = np.zeros(last - first, dtype=np.int64)
        out[self.cells[inside] - first] = self.tallies[inside]
        return out

    def __repr__(self) -> str:
        return f"SparseCounts(<{self.domain.n} exact counts, private>, unit={self.unit!r})"

    def __reduce__(self) -> NoReturn:
        _refuse_copies()


def _refuse_copies() -> NoReturn:
    raise PrivacyError("exact counts are not pickled: publish a release and save that instead.")


def unit_words(column: str | None, sensitivity: int) -> str:
    """Return whom counts protect, in words, wherever they are shown or written.

    >>> unit_words("patient", 3), unit_words("patient", 1), unit_words(None, 1)
    ('one patient with at most 3 records', 'one patient with at most 1 record', 'one record')

    Args:
        column: the column that says whose record it is, or None.
        sensitivity: by how much one unit can change the counts, added over all bins.
    """
    if column is not None:
        return f"one {column} with at most {sensitivity} record{'s' if sensitivity > 1 else ''}"
    return "one record" if sensitivity == 1 else f"one unit that changes the counts by {sensitivity}"


def _exact(values: ArrayLike, domain: Domain) -> NDArray[np.int64]:
    """Return a read-only int64 copy, or raise an error that discloses no count."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            raise DataError("counts contain NaN; write 0 for an empty bin.")
        raise DataError("counts must be integers, not floats; round them yourself if that is right.")
    if array.dtype.kind not in "iu":
        raise DataError(f"counts must be integers, not {array.dtype}.")
    if array.shape not in ((domain.n,), domain.shape):
        raise DataError(f"the domain has {domain.n} bins and the counts have shape {array.shape}.")
    return _checked(array)


def _checked(array: NDArray[Any]) -> NDArray[np.int64]:
    """Return counts as a read-only line of int64, each within its bounds."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and (array > MAX_COUNT).any():
        raise DataError("a count is above 2**53: that is an overflow, not a count.")
    out = array.astype(np.int64).ravel()
    low, high = (int(out.min()), int(out.max())) if out.size else (0, 0)
    if low < 0:
        raise DataError("counts must be >= 0; found a negative one.")
    if high > MAX_COUNT:
        raise DataError("a count is above 2**53: that is an overflow, not a count.")
    if high * out.size > MAX_TOTAL and _total(out) > MAX_TOTAL:
        raise DataError("the counts add up to more than 2**62: that is an overflow.")
    out.flags.writeable = False
    return out


def _total(x: NDArray[np.int64]) -> int:
    """Return the exact sum, in halves so that it cannot wrap."""
    return (int((x >> 32).sum()) << 32) + int((x & 0xFFFFFFFF).sum())
