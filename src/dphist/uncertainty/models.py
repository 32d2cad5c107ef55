"""How far released values may be from the truth: error models, computed from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty import noise_law


def bounding(at_most: int) -> str:
    """Return what no error model can tell where a unit may have more records than are counted."""
    return (
        f"Values and intervals are about the records counted after keeping at most {at_most} per unit. "
        "Records beyond are left out, so counts are biased downwards, by an amount not known from the "
        "release and not in any interval."
    )


class ErrorModel(Protocol):
    """What is known about the errors of a release."""

    @property
    def words(self) -> str:
        """What an interval covers and how it was obtained, or why there is none."""

    def variances(self) -> Floats | None:
        """Return the variance of each bin's error, NaN where it is unknown; None if it is for all."""

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the half-width for the sum of bins lo to hi - 1, for this query alone; None if unknown."""

    def joint(self, *, level: float) -> Floats | None:
        """Return half-widths that hold for all bins at once, NaN where unknown; None if that is for all."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""


@dataclass(frozen=True, eq=False)
class GroupTotals:
    """One noisy total per group, with independent discrete Laplace noise, spread evenly over its bins.

    Sums of whole groups err by their noise alone, whose law is known. Inside a group the even spread adds a
    bias that depends on the counts there, and of that nothing is claimed.

    Args:
        scale: of the noise, one for all groups or one per group; infinity for a group never measured.
    """

    groups: Groups
    scale: float | Floats

    def __post_init__(self) -> None:
        s = np.array(self.scale, dtype=np.float64)
        if s.shape not in ((), (self.groups.k,)) or not (s > 0).all():
            raise UsageError(
                f"the noise of {self.groups.k} groups needs one positive scale, or one for each."
            )
        s.flags.writeable = False
        object.__setattr__(self, "scale", float(s.flat[0]) if (s == s.flat[0]).all() else s)

    @property
    def words(self) -> str:
        """What an interval covers and how it was obtained."""
        once = "An interval holds for its query alone; the joint band holds for all of its bins at once."
        if self._alone.all():
            return (
                "exact: the noise on every bin is known; a 95 % interval contains the exact count of the "
                f"records that were counted in at least 95 % of releases. {once}"
            )
        return (
            "exact for ranges made of whole groups: the noise on every group's total is known; a 95 % "
            "interval contains the exact count of the records that were counted in at least 95 % of "
            "releases. No interval for a range that cuts a group: how records lie inside a group was not "
            f"measured; releases made with calibrate= pay for that, and give one. {once}"
        )

    def variances(self) -> Floats:
        """Return the variance of each bin that is a group of its own, NaN for the others."""
        scale = self.scale if isinstance(self.scale, np.ndarray) else np.full(self.groups.k, self.scale)
        return self.groups.spread(np.where(self._alone, noise_law.variance(scale), np.nan))

    def total_variances(self) -> Floats:
        """Return the variance of each group's total."""
        return np.broadcast_to(noise_law.variance(np.asarray(self.scale)), self.groups.k)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the exact half-width for a union of whole groups, for this query alone; else None."""
        noise_law.check_level(level)
        if not 0 <= lo <= hi <= self.groups.n:
            raise UsageError(f"bins {lo} to {hi} are no range of the {self.groups.n} bins.")
        inside = self._inside(lo, hi)
        if inside is None:
            return None
        distinct, which = self._scales
        repeats = np.bincount(which[inside], minlength=distinct.size)
        return float(noise_law.sum_quantile(distinct, repeats, level))

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold at once for all bins that are their own group, NaN for the others."""
        noise_law.check_level(level)
        distinct, which = self._scales
        width = np.full(distinct.size, math.inf)  # a total never measured has no bound and uses up no level
        finite = np.isfinite(distinct)
        repeats = np.bincount(which[self._alone], minlength=distinct.size)
        width[finite] = noise_law.joint_quantile(distinct[finite], repeats[finite], level)
        return self.groups.spread(np.where(self._alone, width[which], np.nan))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; an infinite scale is written as null, for JSON has no infinity."""
        each = np.atleast_1d(self.scale).tolist()
        scale = [None if math.isinf(s) else s for s in each]
        return {
            "kind": "group totals",
            "groups": self.groups.to_dict(),
            "scale": scale if isinstance(self.scale, np.ndarray) else scale[0],
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> GroupTotals:
        """Return the model that ``to_dict`` described."""
        scale = np.array(described["scale"], dtype=np.float64)  # null is read as NaN
        return cls(Groups.from_dict(described["groups"]), np.where(np.isnan(scale), math.inf, scale))

    @cached_property
    def _alone(self) -> NDArray[np.bool_]:
        alone: NDArray[np.bool_] = self.groups.sizes == 1
        return alone

    @cached_property
    def _scales(self) -> tuple[Floats, Ints]:
        """The distinct scales, and which of them each group has."""
        if isinstance(self.scale, np.ndarray):
            distinct, which = np.unique(self.scale, return_inverse=True)
            return distinct, which
        return np.array([self.scale]), np.zeros(self.groups.k, dtype=np.int64)

    @cached_property
    def _labels(self) -> Ints:
        return self.groups.labels()

    def _inside(self, lo: int, hi: int) -> slice | NDArray[np.bool_] | None:
        """Return the groups that make up a range: a slice or a mask; None if the range cuts a group."""
        if self.groups.order is None:
            first, last = np.searchsorted(self.groups.starts, (lo, hi))
            whole = self.groups.starts[first] == lo and self.groups.starts[last] == hi
            return slice(first, last) if whole or lo == hi else None
        touched = np.bincount(self._labels[lo:hi], minlength=self.groups.k)
        mask = touched > 0
        return mask if (touched[mask] == self.groups.sizes[mask]).all() else None


@dataclass(frozen=True, eq=False)
class FineTotals:
    """Noisy totals on a grid finer than whole records: the noise of ``base``, divided by ``grid``."""

    base: GroupTotals
    grid: int

    @property
    def words(self) -> str:
        """What an interval covers and how it was obtained."""
        return self.base.words

    def variances(self) -> Floats:
        """Return the variance of each bin that is a group of its own, NaN for the others."""
        return self.base.variances() / self.grid**2

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the exact half-width for a union of whole groups, for this query alone; else None."""
        wide = self.base.margin(lo, hi, level=level)
        return None if wide is None else wide / self.grid

    def bin_margins(self, *, level: float) -> Floats:
        """Return each bin's own half-width, NaN where it is unknown."""
        alone = self.base.groups.sizes == 1
        # As on the base, one number for all or one each; the same scale is worked out once.
        scales, which = np.unique(np.broadcast_to(self.base.scale, alone.shape), return_inverse=True)
        each = np.array([noise_law.quantile(float(s), level) for s in scales])[which]
        return self.base.groups.spread(np.where(alone, each / self.grid, np.nan))

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold at once for all bins that are their own group, NaN for the others."""
        return self.base.joint(level=level) / self.grid

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return self.base.to_dict() | {"kind": "fine totals", "grid": self.grid}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> FineTotals:
        """Return the model that ``to_dict`` described."""
        return cls(GroupTotals.from_dict(described), described["grid"])


@dataclass(frozen=True, eq=False)
class TreeTotals:
    """Noisy totals on a tree over the groups, made to agree by least squares, spread evenly inside a group.

    Args:
        groups: the leaves of the tree.
        branching: how many children a node has.
        pruned: whether the tree is the one over the bins, cut off at the groups, or one over the groups.
        scales: the noise of each node, infinite where it was not measured.
    """

    groups: Groups
    branching: int
    pruned: bool
    scales: Floats

    @property
    def words(self) -> str:
        """What the intervals cover."""
        return (
            "the noise on every total of the tree is known, and so is the variance of every range of "
            "whole groups; intervals take the sum of that noise to be normal, so that a 95 % interval holds "
            "in about 95 % of releases, for this query alone. Ranges that cut a group have none: how records "
            "lie inside a group was not measured; releases made with calibrate= pay for that, and give one"
        )

    @cached_property
    def _error(self) -> Any:
        from dphist.kernels.trees import tree as trees
        from dphist.kernels.trees import variances

        tree = trees.make_tree(self.groups.k, self.branching)
        if self.pruned:
            tree = trees.pruned_tree(self.groups.starts, self.branching)
        return variances.tree_error(tree, noise_law.variance(self.scales))

    @cached_property
    def _bins(self) -> Floats:
        """The variance of each bin, NaN where it shares a group, infinite where nothing determines it."""
        return self.groups.spread(np.where(self.groups.sizes == 1, self.total_variances(), np.nan))

    def total_variances(self) -> Floats:
        """Return the variance of each group's total, infinite where nothing determines it."""
        from dphist.kernels.trees import variances

        return variances.group_variances(self._error)

    def noise_variances(self, begin: Floats, end: Floats) -> Floats:
        """Return the variance of the noise of ranges of groups; 3.25 is a quarter into group 3."""
        from dphist.kernels.trees import variances

        return variances.range_variances(self._error, begin, end)

    def variances(self) -> Floats:
        """Return the variance of each bin that is its own group, NaN for the others."""
        return np.where(np.isfinite(self._bins), self._bins, np.nan)

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the half-width for the sum of bins lo to hi-1, for this query alone."""
        from dphist.kernels.trees import variances

        z = _normal(level)
        if lo == hi:
            return 0.0
        if self.groups.order is None:
            first, last = (int(i) for i in np.searchsorted(self.groups.starts, (lo, hi)))
            whole = self.groups.starts[first] == lo and self.groups.starts[last] == hi
        else:
            first, last, whole = 0, self.groups.k, (lo, hi) == (0, self.groups.n)
        if not whole:
            return None
        variance = float(variances.range_variances(self._error, [first], [last])[0])
        return z * math.sqrt(variance) if math.isfinite(variance) else None

    def bin_margins(self, *, level: float) -> Floats:
        """Return each bin's own half-width, NaN where it is unknown."""
        return _normal(level) * np.sqrt(self.variances())

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold for all bins at once, by the union bound: conservative."""
        missing = (1 - noise_law.check_level(level)) / self.groups.k
        return np.asarray(noise_law.sum_margin_bound(np.sqrt(self.variances()), 1 - missing))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; scales that recur are written once, an infinite one as null."""
        distinct, which = np.unique(self.scales, return_inverse=True)
        return {
            "kind": "tree totals",
            "groups": self.groups.to_dict(),
            "branching": self.branching,
            "pruned": self.pruned,
            "scales": [None if math.isinf(s) else s for s in distinct.tolist()],
            "scale_of_node": which.tolist(),
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> TreeTotals:
        """Return the model that ``to_dict`` described."""
        distinct = np.array(described["scales"], dtype=np.float64)  # null is read as NaN
        scales = np.where(np.isnan(distinct), math.inf, distinct)[np.array(described["scale_of_node"])]
        groups = Groups.from_dict(described["groups"])
        if scales.shape != (2 * groups.k - 1,):
            raise ReleaseFileError("the release's error model does not fit its groups; the file is damaged.")
        return cls(groups, described["branching"], described["pruned"], scales)


@dataclass(frozen=True, eq=False)
class HatTotals:
    """Noisy answers to the bins and to overlapping triangles over them, made to agree by least squares.

    Args:
        n: the number of bins.
        queries: what the triangles were fitted to: ``all-ranges`` or ``prefixes``.
        scale: of the noise on each answer, in units of the answers' weights.
    """

    n: int
    queries: str
    scale: float

    @property
    def words(self) -> str:
        """What the intervals cover."""
        return (
            "the noise on every answer is known, and so is the variance of every range; intervals take the "
            "sum of that noise to be normal, so that a 95 % interval holds in about 95 % of releases, for "
            "this query alone"
        )

    @cached_property
    def _error(self) -> Any:
        from dphist.kernels.trees import hats, hats_fit

        return hats_fit.hats_error(hats.fitted_hats(self.n, self.queries), noise_law.variance(self.scale))

    @cached_property
    def _bins(self) -> Floats:
        return self._ranges(np.arange(self.n), np.arange(1, self.n + 1))

    def _ranges(self, lo: Ints, hi: Ints) -> Floats:
        from dphist.kernels.trees import hats_fit

        return hats_fit.hats_range_variances(self._error, lo, hi)

    def variances(self) -> Floats:
        """Return the variance of each bin."""
        return self._bins

    def margin(self, lo: int, hi: int, *, level: float) -> float:
        """Return the half-width for the sum of bins lo to hi-1, for this query alone."""
        return _normal(level) * math.sqrt(float(self._ranges(np.array([lo]), np.array([hi]))[0]))

    def bin_margins(self, *, level: float) -> Floats:
        """Return each bin's own half-width."""
        return _normal(level) * np.sqrt(self._bins)

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold for all bins at once, by the union bound: conservative."""
        missing = (1 - noise_law.check_level(level)) / self.n
        return np.asarray(noise_law.sum_margin_bound(np.sqrt(self._bins), 1 - missing))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": "hat totals", "n": self.n, "queries": self.queries, "scale": self.scale}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> HatTotals:
        """Return the model that ``to_dict`` described."""
        return cls(described["n"], described["queries"], described["scale"])


@dataclass(frozen=True, eq=False)
class WaveletTotals:
    """Noisy Haar coefficients of a line of groups, or of a grid of single bins, put together again.

    Args:
        groups: the cells of the wavelet; a group's total is spread evenly.
        columns: of the grid; 1 for a line.
        scale: of the noise on each coefficient.
    """

    groups: Groups
    columns: int
    scale: float

    @property
    def words(self) -> str:
        """What the intervals cover."""
        return (
            "the noise on every coefficient is known, and so is the variance of every range of whole groups "
            "of a line, and of every bin of a grid; intervals take the sum of that noise to be normal, so "
            "that a 95 % interval holds in about 95 % of releases, for this query alone"
        )

    @cached_property
    def _bins(self) -> Floats:
        from dphist.kernels.transforms.haar import Haar

        each = Haar(self.groups.k // self.columns, self.columns).variances() * noise_law.variance(self.scale)
        return self.groups.spread(np.where(self.groups.sizes == 1, each, np.nan))

    def variances(self) -> Floats:
        """Return the variance of each bin that is its own group, NaN for the others."""
        return self._bins

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the half-width for the sum of bins lo to hi-1, for this query alone."""
        from dphist.kernels.transforms.haar import haar_range_variance

        z = _normal(level)
        if lo == hi:
            return 0.0
        if (lo, hi) == (0, self.groups.n):
            return z * math.sqrt(noise_law.variance(self.scale))
        if self.groups.order is not None or self.columns > 1:
            return None
        first, last = (int(i) for i in np.searchsorted(self.groups.starts, (lo, hi)))
        if self.groups.starts[first] != lo or self.groups.starts[last] != hi:
            return None
        return z * math.sqrt(haar_range_variance(self.groups.k, first, last) * noise_law.variance(self.scale))

    def bin_margins(self, *, level: float) -> Floats:
        """Return each bin's own half-width, NaN where it is unknown."""
        return _normal(level) * np.sqrt(self._bins)

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold for all bins at once, by the union bound: conservative."""
        missing = (1 - noise_law.check_level(level)) / self.groups.k
        return np.asarray(noise_law.sum_margin_bound(np.sqrt(self._bins), 1 - missing))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "kind": "wavelet totals",
            "groups": self.groups.to_dict(),
            "columns": self.columns,
            "scale": self.scale,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> WaveletTotals:
        """Return the model that ``to_dict`` described."""
        return cls(Groups.from_dict(described["groups"]), described["columns"], described["scale"])


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + noise_law.check_level(level)) / 2)


@dataclass(frozen=True)
class Unknown:
    """No interval can be given.

    Args:
        reason: why, for the person who reads the release.
    """

    reason: str

    @property
    def words(self) -> str:
        """Why there is no interval."""
        return f"no interval: {self.reason}"

    def variances(self) -> None:
        """Return None: unknown."""

    def margin(self, lo: int, hi: int, *, level: float) -> None:
        """Return None: unknown."""

    def joint(self, *, level: float) -> None:
        """Return None: unknown."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": "unknown", "reason": self.reason}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Unknown:
        """Return the model that ``to_dict`` described."""
        return cls(described["reason"])


def error_model_from_dict(described: dict[str, Any]) -> ErrorModel:
    """Return the error model that a ``to_dict`` described."""
    kind = described.get("kind")
    if kind == "group totals":
        return GroupTotals.from_dict(described)
    if kind == "fine totals":
        return FineTotals.from_dict(described)
    if kind == "tree totals":
        return TreeTotals.from_dict(described)
    if kind == "hat totals":
        return HatTotals.from_dict(described)
    if kind == "wavelet totals":
        return WaveletTotals.from_dict(described)
    if kind == "unknown":
        return Unknown.from_dict(described)
    raise ReleaseFileError(f"unknown kind of error model {kind!r}; this file may come from a later version.")
