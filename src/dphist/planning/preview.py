"""Simulated releases before anything is spent: made-up counts and simulated noise.

Nothing here reads private records. What the data may look like comes from a named shape, from counts that
are public, or from an earlier release; the noise comes from fixed seeds, and every outcome is stamped so.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist._common.renamed import renamed_scale
from dphist._common.warned import warn
from dphist.charts.heatmap import heatmap_chart
from dphist.charts.histogram import outcomes_chart
from dphist.charts.picture import Picture, svg_or_nothing
from dphist.domain import Domain
from dphist.domain.groups import Floats, Ints
from dphist.domain.workload import LineWorkload, Workload
from dphist.errors import DataError, UsageError
from dphist.methods.pipeline import Pipeline
from dphist.planning import shapes
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.release import Post, Release, load_one, nonneg

LikeData: TypeAlias = str | os.PathLike[str] | Release | ArrayLike
DRAWN = 12  # outcomes that are kept as releases and drawn
OUTCOMES, MOST_BINS = 40, 1 << 16  # outcomes behind the band; with more bins only those that are drawn
RELEASES = (".json", ".parquet")
_ASKED = 20_000  # queries of an outcome whose errors are looked at one by one


@dataclass(frozen=True, eq=False)
class Pattern:
    """What the data may look like: a named shape, or the counts of something public.

    Args:
        name: how it is called in tables.
        counts: counts to draw from, or None for the shape of that name.
        lasting: whether results may be cached on disk: not for counts that only the caller declares public.
    """

    name: str
    counts: Floats | None = field(default=None, repr=False)
    lasting: bool = True

    def draw(self, domain: Domain, records: int, sample: int) -> Ints:
        """Return made-up counts with this number of records in total; each sample differs."""
        if self.counts is not None:
            return shapes.draw(self.counts, n=domain.n, records=records, seed=sample)
        if len(domain.axes) == 1:
            return shapes.draw(self.name, n=domain.n, records=records, seed=sample)
        # A grid whose axes do not depend on each other, each of the shape.
        shape = shapes.find(self.name)
        rows, columns = (shape.weights(n, seed=2 * sample + k) for k, n in enumerate(domain.shape))
        return shapes.draw(np.outer(rows, columns), n=domain.n, records=records, seed=sample)

    @property
    def key(self) -> str:
        """A text that names the pattern, the same in every run."""
        if self.counts is None:
            return self.name
        return hashlib.blake2b(np.ascontiguousarray(self.counts).tobytes(), digest_size=16).hexdigest()


def pattern(like: LikeData, domain: Domain) -> Pattern:
    """Return the pattern of data that ``like`` describes.

    Args:
        like: a name of ``shapes.SHAPES``; an earlier release or its file (.json, .parquet), which is free to
            use; or counts that are public, as an array or a file (.npy, .csv).
    """
    if isinstance(like, Release):
        return _earlier(like, domain, like.method)
    if isinstance(like, str) and (like in shapes.SHAPES or not _is_path(like)):
        return Pattern(shapes.find(like).name)
    if not isinstance(like, str | os.PathLike):
        return _public(np.asarray(like), domain, "these counts")
    path = Path(like)
    if not path.is_file():
        raise UsageError(
            f"there is no file {str(path)!r}, and no shape of that name: see dphist.shapes.SHAPES."
        )
    if path.suffix.lower() in RELEASES:
        return _earlier(load_one(path), domain, path.name)
    return _public(read_counts(path, len(domain.axes)), domain, path.name)


def _is_path(text: str) -> bool:
    return bool(Path(text).suffix) or os.sep in text or Path(text).exists()


def _earlier(release: Release, domain: Domain, name: str) -> Pattern:
    if release.domain.shape != domain.shape:
        has, needs = (" x ".join(f"{n:,}" for n in d.shape) for d in (release.domain, domain))
        raise UsageError(
            f"the earlier release {name!r} has {has} bins and this domain {needs}: give a release of the "
            "same bins, or name a shape, such as like='smooth'."
        )
    if release.simulated:
        warn(f"the release {name!r} is simulated and protects nothing: the data behind it must be public.")
    values = nonneg(release.raw.reshape(domain.shape)).ravel()
    if not values.sum() > 0:
        raise UsageError(f"the earlier release {name!r} holds no positive counts; name a shape instead.")
    return Pattern(f"like {name}", values, lasting=not release.simulated)


def _public(counts: Any, domain: Domain, name: str) -> Pattern:
    warn(
        f"{name} must be public: results that are computed from them are not protected by noise. If they "
        "are private, stop here, and name a shape or an earlier release instead."
    )
    if counts.dtype.kind not in "iuf":
        raise DataError(f"{name} must be counts, one number per bin, not {counts.dtype}.")
    if not (counts.ndim == 1 and len(domain.axes) == 1) and counts.shape != domain.shape:
        raise UsageError(f"{name} must have the shape {domain.shape} of the domain, not {counts.shape}.")
    known = counts.astype(np.float64).ravel()
    if known.size < domain.n:
        raise UsageError(
            f"{name} have {known.size:,} bins, fewer than the {domain.n:,} of the domain: give as many."
        )
    if not np.isfinite(known).all() or (known < 0).any() or not known.sum() > 0:
        raise DataError(f"{name} must be counts of 0 or more, and not all 0.")
    return Pattern(f"like {name}", known, lasting=False)


def read_counts(path: Path, axes: int) -> Any:
    """Return the counts of a public file; no error repeats what is in it."""
    how = "write one count per line (.csv, a header line is allowed), or a numpy array (.npy)"
    if path.suffix.lower() not in (".npy", ".csv", ".txt"):
        raise UsageError(
            f"{path.name!r} is not a file of counts or a release: {how}; releases end in .json or .parquet."
        )
    try:
        return shapes.read_numbers(path, axes=axes)
    except DataError:
        raise
    except (ValueError, OSError):
        # The message of numpy would quote the contents of the file.
        raise DataError(f"{path.name!r} cannot be read as counts: {how}.") from None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Preview:
    """A dozen simulated releases of made-up data, and their errors.

    >>> plan = dphist.Plan(bins=4, range=(0, 40), epsilon=1)
    >>> preview = plan.preview(records=1000)
    >>> len(preview.releases), preview.releases[0].simulated
    (12, True)

    Args:
        releases: the dozen, each stamped simulated.
        values: the values of all outcomes, one row each; the dozen comes first.
        truth: the made-up counts.
        errors: each outcome's mean absolute error per query of the workload.
        like: the shape of the made-up data.
        queries: the workload.
    """

    releases: tuple[Release, ...]
    values: Floats
    truth: Ints
    errors: Floats
    like: str
    queries: Workload = field(repr=False)

    @property
    def domain(self) -> Domain:
        """The domain of all outcomes."""
        return self.releases[0].domain

    @property
    def error(self) -> float:
        """The expected absolute error per query, in records: the mean over all outcomes."""
        return float(self.errors.mean())

    def within(self, level: float = 0.95) -> float:
        """Return how far off this part of all answers is at most, over all queries and outcomes.

        >>> 0 < preview.error < preview.within(0.95)
        True
        """
        missed = [_some_answers(self.queries, row - self.truth) for row in self.values]
        return float(np.quantile(np.abs(np.concatenate(missed)), level))

    def band(self) -> tuple[Floats, Floats]:
        """Return for each bin the ends between which nine in ten outcomes lie.

        >>> low, high = preview.band()
        >>> bool((low <= high).all())
        True
        """
        low, high = np.quantile(self.values, (0.05, 0.95), axis=0)
        shape = self.domain.shape
        return low.reshape(shape), high.reshape(shape)

    @renamed_scale
    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        log: bool = False,
        overwrite: bool = False,
    ) -> Picture:
        """Return a chart of the made-up counts, the band and the dozen; for a grid, of the expected error.

        >>> preview.plot("outcomes.svg").to_svg().startswith("<svg")
        True
        """
        if len(self.domain.axes) == 2:
            missed = np.abs(self.values - self.truth).mean(axis=0)
            picture = heatmap_chart(
                self.domain,
                missed,
                title="Expected error of each cell",
                subtitle=self._subtitle(),
                note=self.releases[0].bounding,
            )
        else:
            picture = outcomes_chart(
                self.domain,
                self.values,
                truth=self.truth,
                drawn=len(self.releases),
                title=f"What {self._method()} could publish",
                subtitle=self._subtitle(),
                scale="log" if log else "linear",
                note=self.releases[0].bounding,
            )
        if path is not None:
            picture.save(path, overwrite=overwrite)
        return picture

    def __repr__(self) -> str:
        about = f" {self.releases[0].bounding}" if self.releases[0].bounding else ""
        return f"Preview({self._method()!r}, {self._words()}, SIMULATED){about}"

    def _method(self) -> str:
        return self.releases[0].method

    def _words(self) -> str:
        from dphist.release.show import decimal

        bins = " x ".join(f"{n:,}" for n in self.domain.shape)
        bins += " bin" if bins == "1" else " bins"
        least, most = (short(e) for e in (self.errors.min(), self.errors.max()))
        return (
            f"{bins}, epsilon {decimal(self.releases[0].epsilon)}, {int(self.truth.sum()):,} made-up "
            f"records, {self.like}; error per query {short(self.error)} ({least} to {most} in "
            f"{len(self.errors)} outcomes)"
        )

    def _subtitle(self) -> str:
        return f"{self._words()}; SIMULATED: not private, no records read"

    def _repr_html_(self) -> str:
        picture = svg_or_nothing(self.plot)
        return f"<div>{picture}<p>{html.escape(repr(self))}</p></div>"


def preview(
    pipeline: Pipeline,
    queries: Workload,
    counts: Counts,
    *,
    epsilon: Fraction,
    post: Post,
    like: str,
    between: Callable[[], None] = lambda: None,
) -> Preview:
    """Run a mechanism many times on made-up counts.

    Args:
        between: called before each trial; what it raises ends the work.
    """
    provenance = {"source": "preview", "like": like}
    outcomes = range(OUTCOMES if counts.domain.n <= MOST_BINS else DRAWN)
    seeds = (trial for trial in outcomes if between() is None)  # type: ignore[func-returns-value]
    made = trials(pipeline, counts, queries, epsilon=epsilon, seeds=seeds)
    all_releases = (trial.release(post=post, provenance=provenance) for trial in made)
    releases = tuple(itertools.islice(all_releases, DRAWN))
    rows = [r.presentable for r in (*releases, *all_releases)]
    values, truth = np.array(rows), counts.values
    values.flags.writeable = False
    errors = np.array([queries.mean_absolute_error(row - truth) for row in values])
    return Preview(releases=releases, values=values, truth=truth, errors=errors, like=like, queries=queries)


def _some_answers(queries: Workload, errors: Floats) -> Floats:
    """Return the errors of all queries; of very many, of some at even distances."""
    if isinstance(queries, LineWorkload) and queries.size > _ASKED:
        sums = np.concatenate([[0.0], np.cumsum(errors)])
        lo, hi = queries.some_pairs(_ASKED)
        return np.asarray(sums[hi] - sums[lo])
    return np.asarray(queries.answers(errors))


def short(number: float) -> str:
    """Return a number of records for reading: three digits, or all before the point."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{digits}f}"


def patterns(like: LikeData | None, domain: Domain, usual: Sequence[str]) -> tuple[Pattern, ...]:
    """Return the pattern that was named, or the usual ones."""
    if like is None:
        return tuple(Pattern(name) for name in usual)
    return (pattern(like, domain),)
