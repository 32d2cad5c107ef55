"""The expected error of a release by group, level by level, before anything is spent.

A query is a range of bins in a group, or over several groups together. Where least squares makes the levels
agree (`kernels.levels`), its variance is a product, h of the groups times q of the range: the mean over a
workload is the mean of h over the groups times that of q over the ranges. Both are known without data, so no
simulation is needed. Groups whose values are biased by the data are simulated on made-up counts.

Errors are root mean squares over all groups of a level, all queries of the workload and all releases: it is
squared errors that add up over levels, and that the importances of levels weigh.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist.domain import Domain
from dphist.domain.groups import Floats, Ints
from dphist.domain.hierarchy import Hierarchy
from dphist.domain.workload import LineWorkload
from dphist.errors import UsageError
from dphist.kernels import levels as tree
from dphist.kernels.averaging import GOLDEN
from dphist.methods.levels import is_unbiased, lowest_agreed, mean_variance, upper_method
from dphist.methods.pipeline import Pipeline
from dphist.planning.kept import kept_file, read_kept, write_kept
from dphist.planning.preview import LikeData, Pattern, pattern
from dphist.planning.simulate import trials, trials_by_group
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release import load, nonneg
from dphist.release.grouped import GroupedRelease, Level
from dphist.uncertainty.models import ErrorModel

Squares: TypeAlias = tuple[float, float]  # mean squared errors: of a query of the workload, and of a bin
SumsLike: TypeAlias = Mapping[str, Sequence[str]] | Sequence[Sequence[str]]
GroupedLike: TypeAlias = LikeData | GroupedRelease
_MOST_QUERIES = 1 << 13  # of more, that many at even distances are averaged over
_MOST_RUNS = 64
_UNKNOWN: Squares = (math.nan, math.nan)


@dataclass(frozen=True, kw_only=True)
class LevelError:
    """The expected error of the groups of one level, or of one sum of groups.

    Args:
        name: of the level, or of the sum.
        groups: how many groups the level has, or how many were added up.
        share: the part of epsilon that the level is measured with; 0 for a level or sum that is added up.
        error: the root mean square error of a query of the workload, in records; NaN if it is not known.
        bin_error: that of a single bin.
        exact: whether it was computed from variances, and not simulated on made-up counts.
    """

    name: str
    groups: int
    share: Fraction
    error: float
    bin_error: float
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        known = not math.isnan(self.error)
        return {
            "name": self.name,
            "groups": self.groups,
            "share": str(self.share),
            "error": self.error if known else None,
            "bin_error": self.bin_error if known else None,
            "exact": self.exact,
        }


@dataclass(frozen=True, eq=False)
class MadeUp:
    """Made-up counts of some or all groups of a hierarchy, with these and their groups above."""

    hierarchy: Hierarchy
    counts: Ints  # a row for each group
    all_groups: bool


@dataclass(frozen=True, eq=False)
class GroupedPattern:
    """What the data of many groups may look like.

    Args:
        name: how it is called in tables.
        shapes: what a group may look like; the groups take turns.
        counts: public counts of all groups, a row for each, or None.
    """

    name: str
    shapes: tuple[Pattern, ...] = ()
    counts: Floats | None = field(default=None, repr=False)

    def draw(self, hierarchy: Hierarchy, bins: Domain, records: int, leaves: Ints) -> Ints:
        """Return made-up counts of some groups, of this number of records in all groups together.

        Unless counts are given, the size of a group falls with its rank as 1/rank, in a mixed order.
        """
        if self.counts is None:
            each = 1.0 / (1 + np.argsort(_mixed(len(hierarchy.leaves))))
        else:
            each = self.counts.sum(axis=1)
        each = each * (records / each.sum())
        made = np.zeros((leaves.size, bins.n), dtype=np.int64)
        for row, leaf in zip(made, leaves.tolist(), strict=True):
            if many := round(float(each[leaf])):
                row[:] = self._shape(leaf).draw(bins, many, leaf)
        return made

    def _shape(self, leaf: int) -> Pattern:
        if self.counts is not None:
            return Pattern(self.name, self.counts[leaf])
        return self.shapes[leaf % len(self.shapes)]


def grouped_pattern(
    like: GroupedLike | None, hierarchy: Hierarchy, bins: Domain, usual: Sequence[str]
) -> GroupedPattern:
    """Return the pattern of data that ``like`` describes, or a mixture of the usual shapes.

    Args:
        like: a name of ``shapes.SHAPES``; an earlier release of the same groups and bins or its file, which
            is free to use; or public counts, a row for each group. An earlier release of one histogram, or a
            row of counts, is what every group looks like.
    """
    if like is None:
        return GroupedPattern(f"{len(usual)} shapes mixed", tuple(Pattern(name) for name in usual))
    if isinstance(like, str | os.PathLike) and os.fspath(like).lower().endswith((".json", ".parquet")):
        found = load(like)
        like = found if isinstance(found, GroupedRelease) else like
    if isinstance(like, GroupedRelease):
        return _earlier(like, hierarchy, bins)
    if not isinstance(like, str | os.PathLike) and np.ndim(like) == 2:
        both = Domain((hierarchy.axis, *bins.axes))
        given = pattern(like, both)
        return GroupedPattern(given.name, counts=_rows(given.counts, both))
    one = pattern(like, bins)
    return GroupedPattern(one.name, (one,))


def _earlier(release: GroupedRelease, hierarchy: Hierarchy, bins: Domain) -> GroupedPattern:
    shape = (len(release), release.bins.n)
    if shape != (len(hierarchy.leaves), bins.n):
        raise UsageError(
            f"the earlier release has {shape[0]:,} groups of {shape[1]:,} bins, and this plan "
            f"{len(hierarchy.leaves):,} of {bins.n:,}: give one of the same, or name a shape, such as "
            "like='smooth'."
        )
    rows = np.stack([nonneg(row) for row in release.raw()])
    if not rows.sum() > 0:
        raise UsageError("the earlier release holds no positive counts; name a shape instead.")
    return GroupedPattern(f"like {release.method}", counts=rows)


def _rows(counts: Floats | None, both: Domain) -> Floats:
    assert counts is not None
    return counts.reshape(both.shape)


def _mixed(size: int) -> Ints:
    """Return the numbers below ``size`` in a mixed order, always the same."""
    return np.argsort(np.arange(size) * GOLDEN % 1.0)


class KeptLevels:
    """Mean squared errors of levels that were simulated, found again in the user's cache."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        self._file, self._new = kept_file(question), False
        self.known: dict[str, dict[str, Squares]] = {}
        if self._file is not None:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                self.known = {
                    str(asked): {str(name): _squares(both) for name, both in levels.items()}
                    for asked, levels in read_kept(self._file).items()
                }

    def add(self, asked: str, levels: dict[str, Squares]) -> None:
        """Keep what was simulated for a method, at an epsilon and with an effort."""
        self.known[asked], self._new = levels, True

    def save(self) -> None:
        """Write all of it for the next time, if there is anything new."""
        if self._file is not None and self._new:
            write_kept(self._file, self.known)


def _squares(both: Any) -> Squares:
    per_query, per_bin = map(float, both)
    if min(per_query, per_bin) < 0 or math.inf in (per_query, per_bin):
        raise ValueError("no squared errors")
    return per_query, per_bin


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelErrors:
    """The expected errors of a plan by group.

    Args:
        shares: of the levels, for methods whose values are biased by the data, and for those that are not.
        max_contributions: how many records of one person are counted.
        records: how many there are, about, in all groups together.
        look: what their data may look like.
        sums: groups that are asked for together, by name.
        kept: where what was simulated of methods of the catalogue is found again; None of all others.
        between: called before each trial; what it raises ends the work.
    """

    hierarchy: Hierarchy
    bins: Domain
    queries: LineWorkload
    shares: Mapping[bool, tuple[Fraction, ...]]
    max_contributions: int
    records: int
    look: GroupedPattern
    sums: Mapping[str, Ints] = field(default_factory=dict)  # 1 for each leaf that is in it
    kept: KeptLevels | None = None
    between: Callable[[], None] = lambda: None

    def waiting(self, between: Callable[[], None], *, keep: bool) -> LevelErrors:
        """Return the same study, which is asked before each trial whether anybody still waits for it.

        Args:
            keep: whether what is simulated is kept: all methods must be those of the catalogue. Of counts
                that a caller gave, and of sums, nothing is.
        """
        given = self.look.counts is not None or not all(look.lasting for look in self.look.shapes)
        kept = KeptLevels(self._question) if keep and not given and not self.sums else None
        return replace(self, between=between, kept=kept)

    @property
    def _question(self) -> dict[str, Any]:
        return {
            "levels": self.hierarchy.names,
            "parents": [parents.tolist() for parents in self.hierarchy.parents],
            "groups": self.hierarchy.sizes,
            "shape": self.bins.shape,
            "workload": self.queries.to_dict(),
            "shares": [[str(share) for share in self.shares[biased]] for biased in (False, True)],
            "sensitivity": self.max_contributions,
            "scale": self.records,
            "looks": [look.key for look in self.look.shapes],
        }

    def of(self, pipeline: Pipeline, epsilon: Fraction, *, cells: int, enough: int) -> tuple[LevelError, ...]:
        """Return the expected errors of a method: of all levels, and then of the sums.

        Args:
            cells: how many bins of all groups are simulated at once, where that is needed; 0 for none.
            enough: simulated groups, of all runs, by whose errors those of all groups are told.
        """
        shares = self.shares[not is_unbiased(pipeline)]
        known, lowest = self._known(pipeline, epsilon), lowest_agreed(pipeline, shares)
        names, rows = self.hierarchy.names, list[LevelError]()
        exact = (
            {} if known is None else {name: known.level(at) for at, name in enumerate(names[: lowest + 1])}
        )
        sums = {} if known is None else {name: known.sum_of(leaves) for name, leaves in self.sums.items()}
        unknown = [name for name in self.sums if math.isnan(sums.get(name, (math.nan,))[0])]
        if lowest < self.hierarchy.depth - 1:
            made_up = self._found(pipeline, epsilon, lowest, unknown, cells=cells, enough=enough)
        for name, size, share in zip(names, self.hierarchy.sizes, shares, strict=True):
            rows.append(_row(name, size, share, exact.get(name) or made_up[name], exact=name in exact))
        for name, leaves in self.sums.items():
            found = made_up["sum", name] if name in unknown else sums[name]
            rows.append(_row(name, int(leaves.sum()), Fraction(0), found, exact=name not in unknown))
        return tuple(rows)

    def part(self, pipeline: Pipeline, *, cells: int) -> MadeUp:
        """Return made-up counts of about this many cells, in whole groups of the level above the leaves."""
        size, most = len(self.hierarchy.leaves), max(1, cells // self.bins.n)
        if size <= most:
            leaves, kept = np.arange(size), self.hierarchy
        else:
            above = self.shares[not is_unbiased(pipeline)][:-1]
            measured = [at for at, share in enumerate(above) if share]
            runs = self.hierarchy.runs(measured[-1] if measured else 0)
            order = np.concatenate([np.arange(runs.starts[i], runs.starts[i + 1]) for i in _mixed(runs.k)])
            leaves = np.sort(order[:most])
            kept = self.hierarchy.part(leaves)
        counts = self.look.draw(self.hierarchy, self.bins, self.records, leaves)
        return MadeUp(kept, counts, all_groups=size <= most)

    def _known(self, pipeline: Pipeline, epsilon: Fraction) -> _Known | None:
        """Return the variances of the levels that least squares makes agree."""
        shares = self.shares[not is_unbiased(pipeline)]
        lowest = lowest_agreed(pipeline, shares)
        if lowest < 0:
            return None
        method = upper_method(pipeline, self.bins, self.queries)
        models = [self._noise(method, epsilon * s) if s else None for s in shares[: lowest + 1]]
        base = models[-1]
        if base is None:
            raise UsageError("the lowest level of those that agree must be measured.")
        unit = mean_variance(base)
        v = [math.inf if model is None else mean_variance(model) / unit for model in models]
        top = np.full(self.hierarchy.sizes[0], v[0])
        return _Known(self.hierarchy, self.queries, lowest, (top, *v[1:]), base)

    def _noise(self, pipeline: Pipeline, epsilon: Fraction) -> ErrorModel:
        """Return the error of an unbiased method in one group, which no data can change."""
        nothing = Counts(np.zeros(self.bins.n, dtype=np.int64), self.bins, self.max_contributions)
        trial = next(trials(pipeline, nothing, self.queries, epsilon=epsilon, seeds=[0]))
        return trial.estimated.error

    def _found(
        self, pipeline: Pipeline, epsilon: Fraction, lowest: int, sums: Sequence[str], **effort: int
    ) -> dict[Any, Squares]:
        """Return what was simulated before, or simulate it."""
        if self.kept is None or not effort["cells"]:
            return self._simulated(pipeline, epsilon, lowest, sums, **effort)
        asked = f"{pipeline.name} {epsilon} {effort['cells']} {effort['enough']}"
        if not set(self.hierarchy.names[lowest + 1 :]) <= self.kept.known.get(asked, {}).keys():
            self.kept.add(asked, self._simulated(pipeline, epsilon, lowest, sums, **effort))
        return dict(self.kept.known[asked])

    def _simulated(
        self,
        pipeline: Pipeline,
        epsilon: Fraction,
        lowest: int,
        sums: Sequence[str],
        *,
        cells: int,
        enough: int,
    ) -> dict[Any, Squares]:
        """Return the errors of the levels below the lowest that agrees, and of some sums.

        Of a part of the groups, levels and sums that are added up from all of them remain unknown.
        """
        names = self.hierarchy.names
        if not cells:
            return dict.fromkeys([*names, *(("sum", name) for name in sums)], _UNKNOWN)
        part = self.part(pipeline, cells=cells)
        found: dict[Any, list[Squares]] = {name: [] for name in names[lowest + 1 :]}
        found |= {("sum", name): [] for name in sums}
        whole = part.all_groups or lowest >= 0
        runs = min(_MOST_RUNS, -(-enough // len(part.counts)))
        for _, levels in self.run(pipeline, part, epsilon, seeds=range(runs)):
            for at in range(lowest + 1, len(names)):
                known = whole or at == len(names) - 1
                found[names[at]].append(self.squares(part, levels, at) if known else _UNKNOWN)
            for name in sums:
                missed = levels[-1].values - part.counts if part.all_groups else None
                found["sum", name].append(_UNKNOWN if missed is None else self._sum(missed, self.sums[name]))
        return {name: (_mean(s[0] for s in each), _mean(s[1] for s in each)) for name, each in found.items()}

    def _sum(self, missed: Floats, leaves: Ints) -> Squares:
        together = missed[leaves > 0].sum(axis=0)
        return self.queries.mean_squared_error(together), float(np.mean(together**2))

    def run(
        self, pipeline: Pipeline, part: MadeUp, epsilon: Fraction, *, seeds: Sequence[int]
    ) -> Iterator[tuple[Curator, tuple[Level, ...]]]:
        """Run a method on made-up counts, once for every seed."""
        both = Domain((part.hierarchy.axis, *self.bins.axes))
        counts = Counts(part.counts.ravel(), both, self.max_contributions)
        shares = self.shares[not is_unbiased(pipeline)]
        asked = pipeline, counts, part.hierarchy, self.queries, shares
        for seed in seeds:
            self.between()
            yield from trials_by_group(*asked, epsilon=epsilon, seeds=[seed])

    def squares(self, part: MadeUp, levels: Sequence[Level], at: int) -> Squares:
        """Return one outcome's mean squared error of a level, per query and per bin."""
        starts = part.hierarchy.runs(at).starts[:-1]
        missed = levels[at].values - np.add.reduceat(part.counts, starts, axis=0)
        return _mean(map(self.queries.mean_squared_error, missed)), float(np.mean(missed**2))


def _row(name: str, groups: int, share: Fraction, squares: Squares, *, exact: bool) -> LevelError:
    error, bin_error = map(math.sqrt, squares)
    return LevelError(name=name, groups=groups, share=share, error=error, bin_error=bin_error, exact=exact)


def _mean(each: Iterable[float]) -> float:
    return float(np.mean(list(each)))


@dataclass(frozen=True, eq=False)
class _Known:
    """Variances of levels that least squares made agree, from the top to ``lowest``."""

    hierarchy: Hierarchy
    queries: LineWorkload
    lowest: int
    v: tuple[ArrayLike, ...]
    base: ErrorModel

    def level(self, at: int) -> Squares:
        """Return the mean squared error of a level, per query and per bin."""
        return self._times(float(self._h[at].mean()))

    def sum_of(self, leaves: Ints) -> Squares:
        """Return the mean squared error of a sum of leaves; NaN if it cuts a group that has no variance."""
        starts = self.hierarchy.runs(self.lowest).starts
        weights = leaves[starts[:-1]]
        if not np.array_equal(np.repeat(weights, np.diff(starts)), leaves):
            return _UNKNOWN
        return self._times(tree.set_variance(self._parents, self.v, weights))

    def _times(self, h: float) -> Squares:
        return h * self._per_query, h * mean_variance(self.base)

    @property
    def _parents(self) -> tuple[Ints, ...]:
        return self.hierarchy.parents[: self.lowest]

    @cached_property
    def _h(self) -> tuple[Floats, ...]:
        return tree.variances(self._parents, self.v)

    @cached_property
    def _per_query(self) -> float:
        return float(np.mean(self.base.sum_variances(*self.queries.some_pairs(_MOST_QUERIES))))


def make_sums(sums: SumsLike | None, hierarchy: Hierarchy) -> dict[str, Ints]:
    """Return which leaves are in each of some sums of groups, by name."""
    if sums is None:
        return {}
    if isinstance(sums, str) or not isinstance(sums, Mapping | Sequence):
        raise UsageError(
            "sums is a list of lists of groups, such as [['H1', 'H3']], or names with such lists."
        )
    named = sums if isinstance(sums, Mapping) else {" + ".join(labels): labels for labels in sums}
    return {name: _leaves(labels, hierarchy) for name, labels in named.items()}


def _leaves(labels: Sequence[str], hierarchy: Hierarchy) -> Ints:
    if isinstance(labels, str) or not labels:
        raise UsageError("a sum is a list of groups, such as ['H1', 'H3'].")
    chosen = np.zeros(len(hierarchy.leaves), dtype=np.int64)
    for label in labels:
        level, i = hierarchy.find(label)
        starts = hierarchy.runs(level).starts
        chosen[starts[i] : starts[i + 1]] += 1
    if (chosen > 1).any():
        raise UsageError("two of these groups overlap, so that their records would be counted twice.")
    return chosen
