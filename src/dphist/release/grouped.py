"""A release of many groups: one histogram for each of them and for every level they add up to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist._common.spent import Spent
from dphist.domain import Domain, shown
from dphist.domain.groups import Floats, Groups, Ints, frozen
from dphist.domain.hierarchy import Hierarchy
from dphist.errors import UsageError
from dphist.release import answers
from dphist.release.plain import freeze
from dphist.release.postprocess import POSTS, Post, present_levels
from dphist.release.release import Estimate, Release, bounding_of, check_paid, stamped
from dphist.uncertainty import noise_law
from dphist.uncertainty.anchored import joined
from dphist.uncertainty.models import ErrorModel
from dphist.uncertainty.reconciled import Reconciled

if TYPE_CHECKING:
    from dphist.charts.picture import Picture

AskedGroups: TypeAlias = str | Sequence[str | tuple[str, str]]
Numbers: TypeAlias = NDArray[np.float64] | NDArray[np.signedinteger]
_TOGETHER = 1 << 20  # values that are added up at once
_FROZEN = ("parameters", "provenance", "versions")
_NO_SUM = (
    "no interval: groups whose values are biased by the data, and whose bins were not all measured, have "
    "none for sums over several of them."
)


@dataclass(frozen=True, eq=False)
class Level:
    """What is known of the groups of one level.

    Args:
        numbers: a row of bins for each group, as estimated; whole numbers may take fewer bytes.
        errors: the error of each group's bins before ``factors``; a single one is that of all groups.
        groups: which bins of each group share a value; a single one is that of all groups.
        factors: of the variances, one for each group.
        variance: of a measurement on this level, in units of the lowest of the levels that were made to agree
            by least squares; infinite for a level that was not measured, and NaN for one that did not agree.
        presentable: the values after post-processing, where a file holds them.
    """

    numbers: Numbers
    errors: Sequence[ErrorModel]
    groups: Sequence[Groups]
    factors: Floats
    variance: float = 1.0
    presentable: Floats | None = None

    def __post_init__(self) -> None:
        if self.numbers.dtype.kind == "f" and not np.isfinite(self.numbers).all():
            raise UsageError("a release's values must be finite numbers.")
        self.numbers.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        """How many groups there are, and bins in each."""
        return self.numbers.shape

    @cached_property
    def values(self) -> Floats:
        """A row of bins for each group, as doubles."""
        return frozen(self.numbers.astype(np.float64, copy=False))

    def rows(self, groups: Sequence[int]) -> Floats:
        """Return the values of some groups."""
        made: Floats = self.numbers[groups].astype(np.float64, copy=False)
        return made

    def block(self, groups: range) -> Numbers:
        """Return the values of groups that lie side by side."""
        return self.numbers[groups.start : groups.stop]

    def presented(self, group: int | None = None) -> Floats | None:
        """Return the presentable values of a group, or of all; None where they are yet to be made."""
        return self.presentable if self.presentable is None or group is None else self.presentable[group]

    def error(self, i: int) -> ErrorModel:
        """Return the error of one group's bins."""
        base, factor = self.errors[i if len(self.errors) > 1 else 0], float(self.factors[i])
        return base if factor == 1.0 else Reconciled(base, self.shape[1], factor)

    def partition(self, i: int) -> Groups:
        """Return which bins of one group share a value."""
        return self.groups[i if len(self.groups) > 1 else 0]


class AnyLevel(Protocol):
    """A level in memory, or in a file whose rows are read when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many groups there are, and bins in each."""
        ...

    @property
    def values(self) -> Floats:
        """A row of bins for each group."""
        ...

    @property
    def errors(self) -> Sequence[ErrorModel]:
        """The error of each group's bins before ``factors``, or a single one."""
        ...

    @property
    def groups(self) -> Sequence[Groups]:
        """Which bins of each group share a value, or a single partition."""
        ...

    @property
    def factors(self) -> Floats:
        """Factors of the variances."""
        ...

    @property
    def variance(self) -> float:
        """The variance of a measurement on this level."""
        ...

    def rows(self, groups: Sequence[int]) -> Floats:
        """Return the values of some groups."""
        ...

    def block(self, groups: range) -> Numbers:
        """Return the values of groups that lie side by side, as they are kept."""
        ...

    def presented(self, group: int | None = None) -> Floats | None:
        """Return presentable values that are kept."""
        ...

    def error(self, i: int) -> ErrorModel:
        """Return the error of one group's bins."""
        ...

    def partition(self, i: int) -> Groups:
        """Return which bins of one group share a value."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupedRelease:
    """Private histograms of all groups of a hierarchy, paid for by one charge, and adding up.

    ``release["H17"]`` is the histogram of one group, a `Release` like any other; ``release.level("region")``
    has those of a level. Sums over groups and bins come with an interval of their own: ``release.sum(30, 50,
    groups=["H17", "H18"])``.

    Args:
        hierarchy: the groups of every level.
        bins: the bins of every group.
        levels: what was found, one entry per level, the top first.
        shares: the part of epsilon that each level was measured with.
    """

    hierarchy: Hierarchy
    bins: Domain
    levels: tuple[AnyLevel, ...]
    shares: tuple[Fraction, ...]
    post: Post
    epsilon: Fraction
    charges: tuple[Spent, ...]
    unit: str
    sensitivity: int
    method: str
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    versions: Mapping[str, Any]
    created: str
    simulated: bool
    id: str | None = None

    def __post_init__(self) -> None:
        if len(self.bins.axes) != 1:
            raise UsageError("a group's histogram has one axis.")
        shapes = [(size, self.bins.n) for size in self.hierarchy.sizes]
        if [level.shape for level in self.levels] != shapes:
            raise UsageError("every group of the hierarchy needs a value for each of its bins.")
        if self.post not in POSTS:
            raise UsageError(f"there is no post={self.post!r}; it is one of {', '.join(POSTS)}.")
        check_paid(self.epsilon, self.charges, self.sensitivity)
        for name in _FROZEN:
            object.__setattr__(self, name, freeze(getattr(self, name), name))

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], GroupedRelease], tuple[dict[str, Any]]]:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        texts = {name: json.dumps(dict(parts[name]), default=dict) for name in _FROZEN}
        return _remade, (parts | texts,)

    # ---- what it holds ------------------------------------------------------------------------------

    def __getitem__(self, group: str | tuple[str, str]) -> Release:
        """Return the histogram of a group, by its label or, if that is on two levels, by level and label."""
        return self._node(*self._find(group))

    def __contains__(self, group: object) -> bool:
        return isinstance(group, str) and any(group in labels for labels in self.hierarchy.labels)

    def __iter__(self) -> Iterator[str]:
        return iter(self.hierarchy.leaves)

    def __len__(self) -> int:
        return len(self.hierarchy.leaves)

    @property
    def holds_for_most(self) -> bool:
        """Whether intervals of a group hold for most bins or ranges, and are no promise about each."""
        return any(error.is_calibrated for level in self.levels for error in level.errors)

    def level(self, name: str) -> dict[str, Release]:
        """Return the histograms of all groups of a level, by their labels."""
        at = self.hierarchy.level(name)
        self.raw(name)  # of a file, all rows at once
        return {label: self._node(at, i) for i, label in enumerate(self.hierarchy.labels[at])}

    def values(self, level: str | None = None) -> Floats:
        """Return the presentable values of a level, by default the lowest: a row of bins for each group."""
        return self._presented(self._at(level))

    def totals(self, level: str | None = None) -> Floats:
        """Return the sum of the presentable bins of each group of a level, by default the lowest."""
        at = self._at(level)
        if self.post != "none":
            return np.asarray(self._presented(at).sum(axis=1))
        found = self.levels[at]
        size, n = found.shape
        starts = range(0, size, max(_TOGETHER // n, 1))
        blocks = (found.block(range(i, min(i + starts.step, size))) for i in starts)
        return np.concatenate([block.sum(axis=1, dtype=np.float64) for block in blocks])

    def raw(self, level: str | None = None) -> Floats:
        """Return the values of a level as they were estimated."""
        return self.levels[self._at(level)].values

    def intervals(
        self,
        level: float = 0.95,
        *,
        of: str | None = None,
        joint: Literal["group", "all"] | None = None,
    ) -> tuple[Floats, Floats]:
        """Return low and high ends around the values of a level, by default the lowest; NaN where unknown.

        Args:
            level: the confidence level.
            of: the name of the level.
            joint: None for each bin on its own, ``"group"`` for all bins of a group at once, ``"all"`` for
                all bins of all groups of the level at once.
        """
        noise_law.check_level(level)
        if joint not in (None, "group", "all"):
            raise UsageError(f"joint is 'group', 'all' or None, not {shown(joint)}.")
        found = self.levels[self._at(of)]
        rows = found.shape[0]
        each = 1 - (1 - level) / rows if joint == "all" else level
        low, high = np.empty(found.shape), np.empty(found.shape)
        for i, values in enumerate(found.values):
            low[i], high[i] = found.error(i).bin_intervals(values, level=each, joint=joint is not None)
        return low, high

    # ---- questions ----------------------------------------------------------------------------------

    def sum(self, *where: Any, groups: AskedGroups | None = None, level: float = 0.95) -> Estimate:
        """Return the sum of some bins over some groups, with an interval for this one query.

        Args:
            where: the bins, as `Release.sum` takes them; all of them if nothing is said.
            groups: labels of groups that do not overlap, of any level, or pairs of level and label; by
                default all leaves.
            level: the confidence level.
        """
        noise_law.check_level(level)
        cells = answers.cells(self.bins, where) if where else np.arange(self.bins.n)
        nodes = self._nodes(groups)
        value = float(sum(self.levels[at].rows(rows)[:, cells].sum() for at, rows in nodes.items()))
        error = self._error_of(nodes)
        note = self._note(_NO_SUM if error is None else error.description)
        if error is None:
            return self._sum_over_measured(value, nodes, cells, level) or Estimate(
                value, None, None, level, note
            )
        answer, low, high = error.cells_answer(value, cells, level=level)
        known = not math.isnan(low)
        return Estimate(answer, low if known else None, high if known else None, level, note)

    def _sum_over_measured(
        self, value: float, nodes: Mapping[int, Sequence[int]], cells: Ints, level: float
    ) -> Estimate | None:
        """Return the sum over groups whose bins were measured one by one before they were averaged."""
        ((at, rows), *others) = nodes.items()
        found = self.levels[at]
        models = [] if others else [found.error(i) for i in rows]
        together = joined(models, found.rows(rows)) if models else None
        if together is None:
            return None
        every = (np.arange(len(rows))[:, None] * self.bins.n + cells).ravel()
        answer, low, high = together.cells_answer(value, every, level=level)
        if len(self.levels) > 1:  # the values add up with those of other levels, and stay where they are
            answer, low, high = value, min(low, value), max(high, value)
        return Estimate(answer, low, high, level, self._note(together.description))

    def total(self, *, groups: AskedGroups | None = None, level: float = 0.95) -> Estimate:
        """Return the sum of all bins over some groups, by default all of them."""
        return self.sum(groups=groups, level=level)

    @property
    def bounding(self) -> str:
        """What the values are about if a unit may have more records than are counted, otherwise nothing."""
        return bounding_of(self.unit, self.sensitivity)

    # ---- handing out --------------------------------------------------------------------------------

    def to_pandas(self, *, level: float = 0.95) -> Any:
        """Return a pandas table, one row for each bin of each group of each level."""
        from dphist.release.grouped_show import frame

        return frame(self, "pandas", level=level)

    def to_arrow(self, *, level: float = 0.95) -> Any:
        """Return the same as a pyarrow table."""
        from dphist.release.grouped_show import frame

        return frame(self, "pyarrow", level=level)

    def to_polars(self, *, level: float = 0.95) -> Any:
        """Return the same as a polars table."""
        from dphist.release.grouped_show import frame

        return frame(self, "polars", level=level)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write .parquet or .json, which ``dphist.load`` reads, or .csv."""
        from dphist.release.grouped_files import save

        return save(self, path, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        level: float = 0.95,
        title: str | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write a table for spreadsheets and other programs: .csv, .xlsx (with a sheet on methods), .parquet.

        What each column means, and the release itself, stand in a file of metadata beside it (CSVW), by which
        ``dphist.load`` finds the release again.

        Args:
            level: the confidence level of the intervals.
            title: of the table, for its metadata.
            overwrite: replace another file of that name.
        """
        from dphist.release.export import export

        return export(self, path, level=level, title=title, overwrite=overwrite)

    def to_json(self) -> str:
        """Return the document of a small release as JSON."""
        from dphist.release.grouped_files import to_json

        return to_json(self)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        of: str | None = None,
        groups: Sequence[str] | None = None,
        level: float = 0.95,
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
        size: tuple[float, float] | None = None,
        overwrite: bool = False,
    ) -> Picture:
        """Return a picture with a small histogram for each group; saved too if a path is given.

        Args:
            of: the level whose groups are drawn; by default the lowest.
            groups: which of them; by default the largest.
            level: the confidence level of the bands.
            title: what stands above the picture; by default what was counted.
            xlabel: the name of the bins' axis.
            ylabel: the name of the other axis.
            size: width and height of the whole picture in pixels, such as (900, 400).
            overwrite: replace another file of that name.
        """
        from dphist.release.grouped_show import draw
        from dphist.release.show import Looks

        looks = Looks(title, xlabel, ylabel, size)
        picture = draw(self, of=of, groups=groups, level=level, looks=looks)
        if path is not None:
            picture.save(path, overwrite=overwrite)
        return picture

    def __repr__(self) -> str:
        from dphist.release.grouped_show import one_line

        return one_line(self)

    def _repr_html_(self) -> str:
        from dphist.release.grouped_show import page

        return page(self)

    # ---- inside -------------------------------------------------------------------------------------

    def _at(self, level: str | None) -> int:
        return self.hierarchy.depth - 1 if level is None else self.hierarchy.level(level)

    @cached_property
    def _presentable(self) -> tuple[Floats, ...]:
        """The values of every level after post-processing, which keeps them adding up."""
        raw, factors = zip(*((level.values, level.factors) for level in self.levels), strict=True)
        return present_levels(self.hierarchy.parents, raw, factors, post=self.post)

    def _presented(self, level: int, i: int | None = None) -> Floats:
        """Return the presentable values of a level or of one of its groups."""
        kept = self.levels[level].presented(i) if self.post != "none" else None
        if kept is not None:
            return kept
        return self._presentable[level] if i is None else self._presentable[level][i]

    def _node(self, level: int, i: int) -> Release:
        found, name = self.levels[level], self.hierarchy.names[level]
        return Release(
            domain=self.bins,
            raw=found.rows([i])[0],
            post=self.post,
            groups=found.partition(i),
            error=found.error(i),
            epsilon=self.epsilon,
            charges=self.charges,
            unit=self.unit,
            sensitivity=self.sensitivity,
            method=self.method,
            parameters={
                **self.parameters,
                "group": {"level": name, "label": self.hierarchy.labels[level][i]},
            },
            provenance=self.provenance,
            versions=self.versions,
            created=self.created,
            simulated=self.simulated,
            id=self.id,
            presented=None if self.post == "none" else self._presented(level, i),
        )

    def _find(self, group: str | tuple[str, str]) -> tuple[int, int]:
        """Return level and number of a group."""
        if not isinstance(group, tuple):
            return self.hierarchy.find(group)
        if len(group) != 2:
            raise UsageError("name a group by its label, or by level and label.")
        level = self.hierarchy.level(group[0])
        return level, self.hierarchy.at(level, group[1])

    def _nodes(self, groups: AskedGroups | None) -> dict[int, list[int]]:
        """Return the numbers of some groups by their level; refuses groups that overlap."""
        if groups is None:
            return {self.hierarchy.depth - 1: list(range(len(self)))}
        labels = [groups] if isinstance(groups, str) else list(groups)
        if not labels:
            raise UsageError("name at least one group.")
        nodes: dict[int, list[int]] = {}
        for label in labels:
            at, i = self._find(label)
            nodes.setdefault(at, []).append(i)
        if (self._weights(nodes) > 1).any():
            raise UsageError("two of these groups overlap, so that their records would be counted twice.")
        return nodes

    def _weights(self, nodes: Mapping[int, Sequence[int]]) -> Floats:
        """Return how often each leaf is in some groups."""
        weights = np.zeros(len(self))
        for at, rows in nodes.items():
            starts = self.hierarchy.runs(at).starts
            for i in rows:
                weights[starts[i] : starts[i + 1]] += 1
        return weights

    def _error_of(self, nodes: Mapping[int, Sequence[int]]) -> ErrorModel | None:
        """Return the error of the sum of some groups' bins, None where it is not known."""
        if len(nodes) == 1:
            ((at, rows),) = nodes.items()
            if len(rows) == 1:
                return self.levels[at].error(rows[0])
        agreed = [i for i, level in enumerate(self.levels) if not math.isnan(level.variance)]
        lowest = max(agreed, default=-1)
        if lowest < 0 or any(at > lowest for at in nodes):
            return None
        from dphist.kernels.levels import set_variance

        base = self.levels[lowest]
        weights = self._weights(nodes)[self.hierarchy.runs(lowest).starts[:-1]]
        v = [np.full(level.shape[0], level.variance) for level in self.levels[: lowest + 1]]
        factor = set_variance(self.hierarchy.parents[:lowest], v, weights)
        return Reconciled(base.errors[0], self.bins.n, factor)

    def _note(self, words: str) -> str:
        return stamped(words, self.bounding, simulated=self.simulated)


def _remade(parts: dict[str, Any]) -> GroupedRelease:
    """Return the release of pickled parts."""
    return GroupedRelease(**(parts | {name: json.loads(parts[name]) for name in _FROZEN}))
