"""How far released values may be from the truth: error models, computed from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dphist import law
from dphist.errors import ReleaseFileError, UsageError
from dphist.groups import Floats, Groups, Ints


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
                "exact: the noise on every bin is known; a 95 % interval contains the true count in at least "
                f"95 % of releases. {once}"
            )
        return (
            "exact for ranges made of whole groups: the noise on every group's total is known; a 95 % "
            "interval contains the true count in at least 95 % of releases. No interval for a range that "
            f"cuts a group: how records lie inside a group was not measured. {once}"
        )

    def variances(self) -> Floats:
        """Return the variance of each bin that is a group of its own, NaN for the others."""
        scale = self.scale if isinstance(self.scale, np.ndarray) else np.full(self.groups.k, self.scale)
        return self.groups.spread(np.where(self._alone, law.variance(scale), np.nan))

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the exact half-width for a union of whole groups, for this query alone; else None."""
        law.check_level(level)
        if not 0 <= lo <= hi <= self.groups.n:
            raise UsageError(f"bins {lo} to {hi} are no range of the {self.groups.n} bins.")
        inside = self._inside(lo, hi)
        if inside is None:
            return None
        distinct, which = self._scales
        repeats = np.bincount(which[inside], minlength=distinct.size)
        return float(law.sum_quantile(distinct, repeats, level))

    def joint(self, *, level: float) -> Floats:
        """Return half-widths that hold at once for all bins that are their own group, NaN for the others."""
        law.check_level(level)
        distinct, which = self._scales
        width = np.full(distinct.size, math.inf)  # a total never measured has no bound and uses up no level
        finite = np.isfinite(distinct)
        repeats = np.bincount(which[self._alone], minlength=distinct.size)
        width[finite] = law.joint_quantile(distinct[finite], repeats[finite], level)
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
    if kind == "unknown":
        return Unknown.from_dict(described)
    raise ReleaseFileError(f"unknown kind of error model {kind!r}; this file may come from a later version.")
