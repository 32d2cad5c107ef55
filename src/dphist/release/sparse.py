"""The release of a domain of which most bins share a number: up to 2^62 bins, and one number per group."""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dphist.domain import MAX_BINS, Categories, Domain, Instants, Integers, Labelled, Variable, curve
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import UsageError
from dphist.release import answers, keys
from dphist.release.keys import Run
from dphist.release.release import Estimate, Estimates, Release
from dphist.uncertainty import noise_law
from dphist.uncertainty.listing import Listing
from dphist.uncertainty.models import OWN_TAILS, Ends, Unknown

if TYPE_CHECKING:
    from dphist.charts.picture import Picture

_EXACT = "The noise on every group's number is known; an interval of whole groups has at least its level. "
_NORMAL = "The variance of the noise of every range of whole groups is known; it is taken to be normal"
_CUT = (
    "Where a range cuts a group, the interval reaches from none of the group's records to all of them. It "
    "holds for its query alone."
)
UNDRAWN = "groups of a grid of very many bins are not drawn"
_WINDOWS, _LARGEST = 64, 40  # columns of a picture, and of one of a listing


_T = TypeVar("_T")


def _of_pieces(read: Callable[[Release], _T], told: str) -> _T:
    """Return a property that is the one of the pieces."""
    return cast(_T, property(lambda release: read(release.pieces), doc=told))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SparseRelease:
    """A private histogram of very many bins: a partition of them into groups, and one number per group.

    ``dphist.histogram`` returns it for a domain of more than 2**27 bins, and for the method ``listed``. It
    is asked like a ``Release``; what would write out every bin is refused.

    >>> hosts = dphist.histogram(["10.0.0.1"] * 90, addresses="0.0.0.0/0", prefix=32, epsilon=1)
    >>> hosts
    SparseRelease('auto', 4,294,967,296 bins, epsilon=1, unit='one record', not journaled)
    >>> 50 < hosts.value("10.0.0.1").value < 130, hosts.value("10.9.9.9").low
    (True, 0.0)
    >>> ports = dphist.histogram([80] * 100_000, integers=(0, 2**40), epsilon=1, workload="ranges")
    >>> small = dphist.from_counts([90, 0, 0], epsilon=1, method="listed")

    Args:
        domain: all bins.
        groups: runs of bins; those of a listing are the listed bins and the gaps between them.
        pieces: the same release with one bin for each group: its values, their errors, charges, provenance.
        listing: how the bins were listed, and what may be said of them; None if the groups cover the domain.
        along_curve: whether the groups are squares of a grid, runs of Morton's curve through it.
    """

    domain: Domain
    groups: Groups
    pieces: Release
    listing: Listing | None = None
    along_curve: bool = False

    def __post_init__(self) -> None:
        places = curve.side(self.domain.shape) ** 2 if self.along_curve else self.domain.n
        if self.groups.n != places or self.groups.order is not None:
            raise UsageError(f"the groups must be runs of the {self.domain.n:,} bins.")
        if self.pieces.domain.n != self.groups.k:
            raise UsageError(f"{self.groups.k:,} groups need a number each, not {self.pieces.domain.n:,}.")
        if self.listing is not None and self.listing.bins != self.domain.n:
            raise UsageError("the listing is about another number of bins.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseRelease):
            return NotImplemented
        alike = self.domain == other.domain and self.listing == other.listing
        alike = alike and self.along_curve == other.along_curve
        return (
            alike and np.array_equal(self.groups.starts, other.groups.starts) and self.pieces == other.pieces
        )

    def __hash__(self) -> int:
        return hash((self.pieces, self.domain.n))

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], SparseRelease], tuple[dict[str, Any]]]:
        return SparseRelease.from_dict, (self.to_dict(),)

    # ---- what it says of itself, as any release -----------------------------------------------------

    epsilon = _of_pieces(lambda pieces: pieces.epsilon, "What the whole release cost.")
    charges = _of_pieces(
        lambda pieces: pieces.charges, "The parts of ``epsilon`` and what each was spent on."
    )
    unit = _of_pieces(lambda pieces: pieces.unit, "Whom the guarantee protects.")
    sensitivity = _of_pieces(
        lambda pieces: pieces.sensitivity,
        "The largest change of the exact counts that one unit can cause, added over all bins.",
    )
    method = _of_pieces(lambda pieces: pieces.method, "The name of the method.")
    parameters = _of_pieces(lambda pieces: pieces.parameters, "The method's components and settings.")
    provenance = _of_pieces(
        lambda pieces: pieces.provenance,
        "Where the records came from and how they were selected; never a count.",
    )
    versions = _of_pieces(lambda pieces: pieces.versions, "Of the software that made it.")
    created = _of_pieces(lambda pieces: pieces.created, "The time of publication in UTC, as ISO 8601.")
    simulated = _of_pieces(
        lambda pieces: pieces.simulated, "Whether the noise came from a seed, so that nothing is protected."
    )
    id = _of_pieces(
        lambda pieces: pieces.id,
        "The random name of this release in the ledger; None if no ledger was charged.",
    )
    post = _of_pieces(lambda pieces: pieces.post, "How presentable values follow from the raw ones.")
    bounding = _of_pieces(
        lambda pieces: pieces.bounding,
        "The warning about the bias of contribution bounding; empty if a unit is one record.",
    )
    error = _of_pieces(lambda pieces: pieces.error, "The error model of the groups' numbers.")

    @property
    def description(self) -> str:
        """What its intervals cover; of a listing, what may be said of listed bins and of all others.

        >>> hosts.description.startswith("This is a list of bins whose noisy count is at least 23;")
        True
        """
        tails = OWN_TAILS[getattr(self.error, "tails", False)]
        own = (_EXACT if self.error.group_scales is not None else f"{_NORMAL}{tails}. ") + _CUT
        words = own if self.listing is None else self.listing.describe()
        return f"{words} {answers.shared_bins(self.domain)}".rstrip()

    # ---- questions ----------------------------------------------------------------------------------

    def sum(self, *where: Any, level: float = 0.95) -> Estimate | Estimates:
        """Return the sum of some bins: between two ends, of a network, of codes with one beginning, of
        labels.

        Two lists of ends ask for many ranges at once. On a grid give a part of each axis. The sum of a
        listing is that of its listed bins, and has no interval.

        >>> 90_000 < ports.sum(0, 1024).value < 110_000
        True
        """
        noise_law.check_level(level)
        if len(self.domain.axes) == 2:
            return self._of_box(where, level)
        if keys.are_arrays(where) and not isinstance(self.domain.axis, Labelled):
            each = [
                self._of_runs(keys.line_runs(self.domain.axis, pair), level)
                for pair in zip(*where, strict=True)
            ]
            return _together(each, level, self._sum_note())
        return self._of_runs(keys.line_runs(self.domain.axis, where), level)

    def value(self, *key: Any, level: float = 0.95) -> Estimate:
        """Return the number of one bin, named by its key: an address, a code, a label, a whole number.

        The interval holds for a key that was not chosen by looking at the release. A bin that shares its
        group's number has its share of it, and between 0 and all of the group's records.

        >>> print(hosts.value("10.9.9.9"))
        not listed: below the threshold of 23; its count is at most 25 with 95 %
        """
        noise_law.check_level(level)
        at = keys.key_bin(self.domain, key)
        if self.along_curve:
            row, column = divmod(at, self.domain.shape[1])
            return self._of_squares([(row, row + 1)], [(column, column + 1)], level)
        return self._of_runs([(at, at + 1)], level)

    def count(self, *key: Any, level: float = 0.95) -> Estimate:
        """Return ``value`` of a key, under the name that a ``Release`` has for it.

        >>> hosts.count("10.9.9.9").value
        0.0
        """
        return self.value(*key, level=level)

    def total(self, *, level: float = 0.95) -> Estimate:
        """Return the number of all records; for a listing it was measured by itself.

        >>> hosts.total(level=0.99).level
        0.99
        """
        noise_law.check_level(level)
        if self.listing is None:
            return self.pieces.total(level=level)
        margin = noise_law.quantile(self.listing.total_scale, level)
        value = float(self.listing.total)
        note = "The noise on the number of all records is known; the interval holds for it alone."
        return Estimate(value, value - margin, value + margin, level, self._note(note))

    def quantile(self, q: Any, *, level: float = 0.95) -> Estimate | Estimates:
        """Return the bin below which the share q of the records lies, as a number and in the words of the
        axis.

        >>> ports.quantile(0.5).value
        80.0
        """
        self._refuse_listing("quantiles")
        answers.ordered_axis(self.domain)
        if isinstance(q, list | tuple | np.ndarray):
            edges, many = self._edge_answers(level), self.pieces.quantile(q, level=level)
            each = [self._quantile(many[i], share, edges) for i, share in enumerate(q)]
            return _together(each, level, each[0].note)
        return self._quantile(self.pieces.quantile(q, level=level), q, self._edge_answers(level))

    def _quantile(self, found: Estimate, q: float, edges: tuple[Ends, Ends]) -> Estimate:
        """Return a quantile of the groups as one of the bins."""
        axis, level = self.domain.axis, found.level
        if math.isnan(found.value):
            return found
        found = self._between(found, float(q), *edges)
        starts, last = self.groups.starts, self.domain.n - 1
        piece = min(int(found.value), self.groups.k - 1)
        inside = found.value - piece
        size = int(starts[piece + 1]) - int(starts[piece])
        at = [min(int(starts[piece]) + int(inside * size), last)]
        if found.low is not None and found.high is not None:
            at += [int(starts[int(found.low)]), int(starts[min(math.ceil(found.high), self.groups.k)]) - 1]
        value, *ends = (keys.position(axis, bin) for bin in at)
        words = tuple(keys.spelled(axis, bin) for bin in at)
        low, high = ends or (None, None)
        return Estimate(value, low, high, level, found.note, words)

    def _edge_answers(self, level: float) -> tuple[Ends, Ends]:
        """Return the ends of the intervals of the records below and above each edge between two groups."""
        k = self.groups.k
        edges, each = np.arange(1, k), 1 - (1 - level) / 2
        sums, ends = self._below[edges], (np.zeros_like(edges), np.full_like(edges, k))
        below = self.error.range_answers(sums, ends[0], edges, level=each)
        above = self.error.range_answers(self._below[-1] - sums, edges, ends[1], level=each)
        return below[1:], above[1:]

    def _between(self, found: Estimate, q: float, below: Ends, above: Ends) -> Estimate:
        """Return a quantile with the ends of the groups that may hold it.

        A group is refuted if the records below it are certainly more than the share q, or those up to its end
        certainly less. The right one passes but for a chance of 1 - level: either test fails by the interval
        of the records below or by that of those above, on one side of each.
        """
        not_too_high = (1 - q) * below[0] - q * above[1] <= 0
        not_too_low = (1 - q) * below[1] - q * above[0] >= 0
        possible = np.flatnonzero(np.append(True, not_too_high) & np.append(not_too_low, True))
        low, high = (possible[0], possible[-1] + 1) if possible.size else (found.value, found.value)
        note = "Holds for this quantile alone, with at least the stated level (the union bound). "
        return replace(
            found,
            low=min(float(low), found.value),
            high=max(float(high), found.value),
            note=self._note(note + self.description),
        )

    def mean(self, *, level: float = 0.95) -> NoReturn:
        """Refuse: where the records of a group lie inside it was not measured.

        >>> ports.mean()
        Traceback (most recent call last):
        dphist.errors.UsageError: a release of very many bins has no mean; ask for quantile(0.5), the median.
        """
        raise UsageError("a release of very many bins has no mean; ask for quantile(0.5), the median.")

    def cdf(self, x: Any = None, *, level: float = 0.95) -> NoReturn:
        """Refuse: sums have intervals here, shares of records have none.

        >>> ports.cdf(443)
        Traceback (most recent call last):
        dphist.errors.UsageError: a release of very many bins has no shares; ask for sums and total().
        """
        raise UsageError("a release of very many bins has no shares; ask for sums and total().")

    # ---- what has a number for every bin -------------------------------------------------------------

    def values(self) -> Floats:
        """Return a value for every bin, up to 2**27 of them; more are refused.

        >>> hosts.values()
        Traceback (most recent call last):
        dphist.errors.UsageError: 4,294,967,296 bins are too many to write out; ask sum(...) or value(...), \
or take to_pandas(), which has one row per group.
        """
        self._refuse_large()
        return self._spread(self.pieces.presentable / self._areas).reshape(self.domain.shape)

    def counts(self) -> Floats:
        """Return ``values()`` under the name that plotting libraries use; they are not exact counts.

        >>> small.counts().shape
        (3,)
        """
        return self.values()

    def intervals(self, *, level: float = 0.95, joint: bool = False) -> tuple[Floats, Floats]:
        """Return the ends of every bin's interval, up to 2**27 bins: those of ``value``.

        >>> small.intervals()[0].shape
        (3,)
        """
        self._refuse_large()
        if joint:
            raise UsageError(
                "the intervals hold for each bin on its own; the description says what holds for all."
            )
        low, high = self.group_intervals(level=level)
        low = np.where(self._areas > 1, 0.0, low)
        shape = self.domain.shape
        return self._spread(low).reshape(shape), self._spread(high).reshape(shape)

    @property
    def axes(self) -> NoReturn:
        """Refuse the protocol of plotting libraries, which asks for every bin."""
        self._refuse_large()
        raise AttributeError("axes")  # not of this protocol: hasattr is False

    def to_numpy(self) -> tuple[Floats, ...]:
        """Return values and edges, like ``numpy.histogram``, up to 2**27 bins.

        >>> len(small.to_numpy()[1])
        4
        """
        return (self.values(), *(axis.edges for axis in self.domain.axes))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values(), dtype=dtype)

    def _refuse_large(self) -> None:
        if self.domain.n > MAX_BINS:
            raise UsageError(
                f"{self.domain.n:,} bins are too many to write out; ask sum(...) or value(...), or take "
                "to_pandas(), which has one row per group."
            )

    # ---- handing out --------------------------------------------------------------------------------

    def columns(self, *, level: float = 0.95) -> dict[str, Any]:
        """Return the table: one row per listed bin, or else one per group, with its first and last bin.

        >>> list(hosts.columns())
        ['bin', 'value', 'raw', 'low', 'high']
        """
        low, high = self.group_intervals(level=level)
        if self.post != "none":
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        numbers = {"value": self.pieces.presentable, "raw": self.pieces.raw, "low": low, "high": high}
        starts = self.groups.starts
        if self.listing is not None:
            at = self._listed
            names = keys.bin_names(self.domain, starts[:-1][at].tolist())
            return {"bin": _texts(names)} | {name: column[at] for name, column in numbers.items()}
        if self.along_curve:
            return self._table_of_squares(numbers)
        first = keys.bin_names(self.domain, starts[:-1].tolist())
        last = keys.bin_names(self.domain, (starts[1:] - 1).tolist())
        return {"first": _texts(first), "last": _texts(last), "bins": self.groups.sizes} | numbers

    def to_pandas(self, *, level: float = 0.95) -> Any:
        """Return a pandas table: one row per listed bin, or else one per group.

        The intervals are for bins that were named before the list was seen; ``description`` says what holds
        for those that are picked from it.

        >>> list(hosts.to_pandas()), list(ports.to_pandas())[:3]
        (['bin', 'value', 'raw', 'low', 'high'], ['first', 'last', 'bins'])
        """
        return self._frame("pandas", level)

    def to_arrow(self, *, level: float = 0.95) -> Any:
        """Return the table of ``to_pandas`` as a pyarrow table.

        >>> hosts.to_arrow().column_names[0]
        'bin'
        """
        return self._frame("pyarrow", level)

    def to_polars(self, *, level: float = 0.95) -> Any:
        """Return the table of ``to_pandas`` as a polars table.

        >>> hosts.to_polars().width
        5
        """
        return self._frame("polars", level)

    def _frame(self, library: str, level: float) -> Any:
        from dphist.release.show import to_frame

        return to_frame(self.pieces, self.columns(level=level), library)

    def to_json(self) -> str:
        """Return the document of docs/release-format.md as JSON text.

        >>> hosts.to_json().startswith("{")
        True
        """
        from dphist.release.files import written
        from dphist.release.sparse_files import document

        return written(document(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the same document as dictionaries and lists.

        >>> dphist.SparseRelease.from_dict(hosts.to_dict()) == hosts
        True
        """
        made: dict[str, Any] = json.loads(self.to_json())
        return made

    @classmethod
    def from_dict(cls, described: object) -> SparseRelease:
        """Return the release that ``to_dict`` described.

        >>> dphist.SparseRelease.from_dict(hosts.to_dict()).method
        'auto'
        """
        from dphist.release.sparse_files import read_document

        return read_document(described, "this document")

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a .json or .parquet file, which ``dphist.load`` reads, or a .csv file of the table.

        >>> dphist.load(hosts.save("hosts.json")) == hosts
        True
        """
        from dphist.release.files import save_with
        from dphist.release.sparse_files import writer

        return save_with(writer(self, Path(path)), path, overwrite=overwrite)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        zoom: Sequence[Any] | None = None,
        log: bool = False,
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
        size: tuple[float, float] | None = None,
        overwrite: bool = False,
    ) -> Picture:
        """Return a chart of a part of the domain in equal windows; of a listing, its largest bins.

        >>> ports.plot("ports.svg", zoom=(0, 1024)).to_svg().startswith("<svg")
        True

        Args:
            zoom: the part that is drawn, in the words of ``sum``; by default the whole domain.
            log: draw the counts on a logarithmic axis.
            overwrite: replace an existing file.
        """
        looks: dict[str, Any] = {"title": title, "xlabel": xlabel, "ylabel": ylabel, "size": size}
        return self.drawn(zoom=zoom).plot(path, log=log, overwrite=overwrite, **looks)

    def drawn(self, *, zoom: Sequence[Any] | None = None) -> Release:
        """Return what ``plot`` draws, as a release of few bins: the largest of a listing, or equal windows.

        >>> ports.drawn(zoom=(0, 1024)).domain.n
        64
        """
        if self.listing is not None:
            return self._largest()
        if not self.has_picture:
            raise UsageError(f"{UNDRAWN}; ask sum((x0, x1), (y0, y1)).")
        return self._windows(zoom)

    @property
    def has_picture(self) -> bool:
        """Whether there is something to draw: a listed bin, or groups along a line."""
        return bool(self._listed.size) if self.listing is not None else len(self.domain.axes) == 1

    def _largest(self) -> Release:
        """Return the largest listed bins as a release of their own, for a picture."""
        at = self._listed
        if not self.has_picture:
            raise UsageError("no bin is listed: there is nothing to draw.")
        largest = at[np.sort(np.lexsort((at, -self.pieces.raw[at]))[:_LARGEST])]
        names = keys.bin_names(self.domain, self.groups.starts[:-1][largest].tolist())
        alone = Groups.singletons(largest.size)
        error = Unknown("bins that are drawn because they are listed have more noise than others")
        domain = Domain((Categories(tuple(names)),))
        return replace(self.pieces, domain=domain, raw=self.pieces.raw[largest], groups=alone, error=error)

    def _windows(self, zoom: Sequence[Any] | None) -> Release:
        """Return the sums of equal windows as a release of their own, for a picture."""
        axis, n = self.domain.axis, self.domain.n
        (first, last), *_ = [(0, n)] if zoom is None else keys.line_runs(axis, tuple(zoom))
        many = min(_WINDOWS, last - first)
        edges = [first + (last - first) * i // many for i in range(many + 1)]
        sums = np.array([self._sum([run]) for run in pairwise(edges)])
        if isinstance(axis, Integers):
            shown: Any = Variable(np.array([axis.low + edge for edge in edges], dtype=np.float64))
        elif isinstance(axis, Instants):
            shown = Categories(tuple(axis.edge_names(edges[:-1])))
        else:
            shown = Categories(tuple(keys.bin_names(self.domain, edges[:-1])))
        error = Unknown("the windows of a picture cut groups; ask sum(...) for intervals")
        alone = Groups.singletons(many)
        return replace(self.pieces, domain=Domain((shown,)), raw=sums, groups=alone, error=error)

    def __repr__(self) -> str:
        from dphist.release.show import one_line

        return one_line(self)

    def _repr_html_(self) -> str:
        from dphist.release.show import page

        return page(self)

    # ---- inside -------------------------------------------------------------------------------------

    @cached_property
    def _scales(self) -> Floats:
        """The scale of the noise of each group of a listing: infinite for a gap."""
        known = self.error.group_scales
        scale = math.nan if known is None else known
        return np.broadcast_to(np.asarray(scale, dtype=np.float64), self.groups.k)

    @cached_property
    def _listed(self) -> Ints:
        """Which groups are listed bins."""
        return np.flatnonzero(np.isfinite(self._scales))

    @cached_property
    def _below(self) -> Floats:
        """The sum of the values of the first 0, 1, 2, ... groups."""
        return np.concatenate(([0.0], np.cumsum(self.pieces.raw)))

    @cached_property
    def _starts(self) -> list[int]:
        return [int(start) for start in self.groups.starts.tolist()]

    def _piece(self, bin: int) -> int:
        """Return the group of a bin."""
        return bisect_right(self._starts, bin) - 1

    def _until(self, edge: int) -> float:
        """Return the sum of the values of all bins before an edge, inside a group by its share of bins."""
        if edge == self.domain.n:
            return float(self._below[-1])
        piece = self._piece(edge)
        start, end = self._starts[piece], self._starts[piece + 1]
        return float(self._below[piece]) + float(self.pieces.raw[piece]) * ((edge - start) / (end - start))

    def _sum(self, runs: list[Run]) -> float:
        return math.fsum(self._until(last) - self._until(first) for first, last in runs)

    def _of_runs(self, runs: list[Run], level: float) -> Estimate:
        if self.listing is not None or len(runs) > 1:
            if len(runs) == 1 and self._is_listed(runs[0]):
                return self._of_pieces(*self._inner(runs[0]), level)
            if self.listing is not None and sum(last - first for first, last in runs) == 1:
                return self._of_unlisted(self.listing, level)
            return Estimate(self._sum(runs), None, None, level, self._sum_note())
        (run,) = runs
        inner, outer = self._inner(run), self._outer(run)
        if inner == outer:
            return self._of_pieces(*inner, level)
        low = self._of_pieces(*inner, level).low if inner[0] < inner[1] else 0.0
        high = self._of_pieces(*outer, level).high
        if low is None or high is None:
            return Estimate(self._sum(runs), None, None, level, self._sum_note())
        value = self._sum(runs)
        low, high = min(max(low, 0.0), value), max(high, value)  # the counts inside a group are not negative
        return Estimate(value, low, high, level, self._sum_note())

    def _of_unlisted(self, listing: Listing, level: float) -> Estimate:
        """Return what may be said of one bin that is not listed."""
        words = listing.why_unlisted(level)
        note = self._note(f"{words}. {self.description}")
        return Estimate(0.0, 0.0, float(listing.unlisted(level)), level, note, words=words)

    def _of_pieces(self, first: int, last: int, level: float) -> Estimate:
        """Return the sum of whole groups."""
        answer: Estimate = self.pieces.sum(first, last, level=level)
        return replace(answer, note=self._note(self.description))

    def _is_listed(self, run: Run) -> bool:
        """Return whether a run of bins is made of listed ones alone."""
        first, last = self._inner(run)
        return (
            first < last
            and (first, last) == self._outer(run)
            and bool(np.isfinite(self._scales[first:last]).all())
        )

    def _inner(self, run: Run) -> Run:
        """Return the groups that lie in a run of bins."""
        first = self._piece(run[0])
        first += self._starts[first] < run[0]
        last = bisect_right(self._starts, run[1]) - 1
        return first, max(first, last)

    def _outer(self, run: Run) -> Run:
        """Return the groups that meet a run of bins."""
        return self._piece(run[0]), self._piece(run[1] - 1) + 1

    def _of_box(self, where: tuple[Any, ...], level: float) -> Estimate:
        """Return the sum over a rectangle of a grid: of its listed bins."""
        if len(where) != 2:
            raise UsageError("on a grid name a part of each axis: sum((0, 10), ['a']).")
        rows, across = (
            keys.line_runs(axis, part if isinstance(part, tuple) else (part,))
            for axis, part in zip(self.domain.axes, where, strict=True)
        )
        if self.along_curve:
            return self._of_squares(rows, across, level)
        if self.listing is None:
            area = math.prod(sum(b - a for a, b in runs) for runs in (rows, across))
            note = "The records of a group are taken to lie evenly in it. " + self.description
            return Estimate(
                float(self.pieces.raw.sum()) * (area / self.domain.n), None, None, level, self._note(note)
            )
        if all(len(runs) == 1 and runs[0][1] - runs[0][0] == 1 for runs in (rows, across)):
            at = rows[0][0] * self.domain.shape[1] + across[0][0]
            return self._of_runs([(at, at + 1)], level)
        row, column = np.divmod(self.groups.starts[:-1][self._listed], self.domain.shape[1])
        kept = _within(row, rows) & _within(column, across)
        return Estimate(float(self.pieces.raw[self._listed][kept].sum()), None, None, level, self._sum_note())

    @cached_property
    def _squares(self) -> tuple[Ints, Ints, Ints, Ints]:
        return curve.squares(self.groups, self.domain.shape)

    @cached_property
    def _areas(self) -> Floats:
        """How many bins of the domain each group has; 1 for a square beside the grid, which has no bin."""
        if not self.along_curve:
            return self.groups.sizes.astype(np.float64)
        top, bottom, left, right = self._squares
        return np.maximum((bottom - top) * (right - left), 1).astype(np.float64)

    def _spread(self, per_group: Floats) -> Floats:
        """Return each bin's entry of its group."""
        if not self.along_curve:
            return self.groups.spread(per_group)
        places = curve.places(*np.divmod(np.arange(self.domain.n), self.domain.shape[1]))
        return np.asarray(per_group[np.searchsorted(self.groups.starts, places, side="right") - 1])

    def _of_squares(self, rows: list[Run], across: list[Run], level: float) -> Estimate:
        """Return the sum over rectangles: of squares that they cut, their share of the area."""
        top, bottom, left, right = self._squares
        shared = np.zeros(self.groups.k)
        for (a, b), (c, d) in product(rows, across):
            height = np.maximum(np.minimum(bottom, b) - np.maximum(top, a), 0)
            shared += height * np.maximum(np.minimum(right, d) - np.maximum(left, c), 0)
        share, raw = shared / self._areas, self.pieces.raw
        value = float((share * raw).sum())
        inner, outer = np.flatnonzero(share >= 1), np.flatnonzero(share > 0)
        low, high = 0.0, self.error.cells_answer(float(raw[outer].sum()), outer, level=level)[2]
        if inner.size:
            low = self.error.cells_answer(float(raw[inner].sum()), inner, level=level)[1]
        if inner.size < outer.size:
            low, high = min(max(low, 0.0), value), max(high, value)
        return Estimate(value, low, high, level, self._sum_note())

    def _table_of_squares(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Return the table of the squares that have bins, by the cells at two of their corners."""
        top, bottom, left, right = self._squares
        kept, across = (bottom > top) & (right > left), self.domain.shape[1]
        first = keys.bin_names(self.domain, (top * across + left)[kept].tolist())
        last = keys.bin_names(self.domain, ((bottom - 1) * across + right - 1)[kept].tolist())
        made = {"first": _texts(first), "last": _texts(last), "bins": self._areas[kept].astype(np.int64)}
        return made | {name: column[kept] for name, column in numbers.items()}

    @property
    def is_listed(self) -> NDArray[np.bool_]:
        """For each group, whether it is a listed bin; none is if the groups cover the domain.

        >>> hosts.is_listed.sum() >= 1, ports.is_listed.any()
        (np.True_, np.False_)
        """
        return np.isfinite(self._scales) & (self.listing is not None)

    def group_intervals(self, *, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of every group's interval; of a gap of a listing, those of each of its bins.

        >>> ports.group_intervals()[0].size == ports.groups.k
        True
        """
        low, high = self.pieces.intervals(level=level)
        if self.listing is None:
            return low, high
        gap = ~np.isfinite(self._scales)
        return np.where(gap, 0.0, low), np.where(gap, self.listing.unlisted(level), high)

    def _refuse_listing(self, what: str) -> None:
        if self.listing is not None:
            raise UsageError(
                f"a listing leaves out the records of all bins below its threshold, and has no {what}; "
                "publish with the method dawa2, or workload ranges, for these."
            )

    def _sum_note(self) -> str:
        if self.listing is None:
            return self._note(self.description)
        return self._note(
            "no interval: the sum is that of the listed bins; the records of all others were not measured. "
            + self.description
        )

    def _note(self, words: str) -> str:
        from dphist.release.release import stamped

        return stamped(words, self.bounding, simulated=self.simulated)


def _together(each: Sequence[Estimate], level: float, note: str) -> Estimates:
    """Return several answers as arrays; an end that is not known is NaN."""
    rows = [[e.value, *(math.nan if x is None else x for x in (e.low, e.high))] for e in each]
    value, low, high = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Estimates(value, low, high, level, note)


def _within(at: Ints, runs: list[Run]) -> Any:
    found = np.zeros(at.size, dtype=bool)
    for first, last in runs:
        found |= (at >= first) & (at < last)
    return found


def _texts(names: list[str]) -> Any:
    return np.array(names, dtype=object)
