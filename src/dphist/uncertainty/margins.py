"""Half-widths for what a release is asked: bins, cells, quantiles, and bins merged from finer ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.uncertainty import noise_law
from dphist.uncertainty.calibrated import Calibrated
from dphist.uncertainty.models import (
    ErrorModel,
    FineTotals,
    GroupTotals,
    HatTotals,
    TreeTotals,
    WaveletTotals,
    error_model_from_dict,
)


@dataclass(frozen=True, eq=False)
class Merged:
    """The error of bins that were merged from finer ones, worked out from the finer ones' model.

    Args:
        base: the model of the finer bins.
        starts: where each merged bin begins among the finer ones, and, last, how many finer ones there are.
    """

    kind: ClassVar[str] = "merged"
    base: ErrorModel
    starts: Ints

    def __post_init__(self) -> None:
        starts = np.array(self.starts, dtype=np.int64)
        if starts.ndim != 1 or starts.size < 2 or starts[0] != 0 or (np.diff(starts) < 1).any():
            raise UsageError("merged bins must start at rising places, the first at 0.")
        starts.flags.writeable = False
        object.__setattr__(self, "starts", starts)

    @property
    def words(self) -> str:
        """What the interval covers."""
        return (
            f"{self.base.words} Bins were merged from finer ones; their joint band is wider than it must be."
        )

    def variances(self) -> Floats | None:
        """Return the variance of each merged bin."""
        fine = self.base.variances()
        return None if fine is None else np.add.reduceat(fine, self.starts[:-1])

    def margin(self, lo: int, hi: int, *, level: float) -> float | None:
        """Return the half-width for the sum of merged bins lo..hi-1, this query alone."""
        return self.base.margin(int(self.starts[lo]), int(self.starts[hi]), level=level)

    def joint(self, *, level: float) -> Floats | None:
        """Return half-widths that hold for all merged bins at once, by the union bound."""
        if isinstance(self.base, Calibrated):  # its intervals for single queries are no safe bounds
            return np.add.reduceat(self.base.joint(level=level), self.starts[:-1])
        k = self.starts.size - 1
        each = bin_margins(self, k, level=1.0 - (1.0 - level) / k)
        return None if np.isnan(each).all() else each

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": self.kind, "base": self.base.to_dict(), "starts": self.starts.tolist()}


def merged(base: ErrorModel, starts: Ints) -> Merged:
    """Return the model of bins merged at these starts; merging twice is merging once."""
    if isinstance(base, Merged):
        return Merged(base.base, base.starts[starts])
    return Merged(base, starts)


def error_from_dict(described: dict[str, Any], *, n: int) -> ErrorModel:
    """Return the model that ``to_dict`` described, for a histogram of n bins."""
    if described["kind"] == Merged.kind:
        starts = np.array(described["starts"], dtype=np.int64)
        if starts.size != n + 1:
            raise UsageError("the error model is for another number of bins.")
        return Merged(error_from_dict(described["base"], n=int(starts[-1])), starts)
    groups = described.get("groups")
    build: Callable[[dict[str, Any]], ErrorModel] = error_model_from_dict
    if described["kind"] == "calibrated":
        build = Calibrated.from_dict
    # Looked at before anything is built: a damaged number must not ask for all the memory there is.
    if groups is not None and (groups["n"] if "n" in groups else groups["starts"][-1]) != n:
        raise UsageError("the error model is for another number of bins.")
    return build(described)


def bin_margins(error: ErrorModel, n: int, *, level: float) -> Floats:
    """Return each bin's own half-width, NaN where it is unknown; bins that are alike are worked out once."""
    if isinstance(error, Calibrated | FineTotals | TreeTotals | HatTotals | WaveletTotals):
        return error.bin_margins(level=level)
    if isinstance(bin_scales(error), float):
        return np.full(n, _or_nan(error.margin(0, 1, level=level)))
    alike = _alike(error)
    if alike is None:
        return np.array([_or_nan(error.margin(i, i + 1, level=level)) for i in range(n)])
    _, first, which = np.unique(alike, return_index=True, return_inverse=True)
    each = [_or_nan(error.margin(int(i), int(i) + 1, level=level)) for i in first]
    return np.array(each)[which]


def cells_margin(error: ErrorModel, cells: Ints, *, level: float) -> float | None:
    """Return the half-width for the sum of some bins, given in rising order."""
    first, last = int(cells[0]), int(cells[-1])
    if last - first == cells.size - 1:
        return error.margin(first, last + 1, level=level)
    scales = bin_scales(error)
    if scales is None:
        return None
    if isinstance(scales, float):  # every bin has the same noise: only their number matters
        return error.margin(0, cells.size, level=level)
    kinds, repeats = np.unique(scales[cells], return_counts=True)
    return float(noise_law.sum_quantile(kinds, repeats.astype(np.int64), level))


def bin_scales(error: ErrorModel) -> float | Floats | None:
    """Return the noise scale of every bin, if each bin has noise of its own: one for all, or one each."""
    if not isinstance(error, GroupTotals) or error.groups.k != error.groups.n:
        return None
    if np.ndim(error.scale) == 0:
        return float(error.scale)
    return error.groups.spread(np.asarray(error.scale))


def quantile_margins(error: ErrorModel, n: int, *, q: float, level: float) -> Floats | None:
    """Return, for each of the n + 1 edges, a half-width for (1-q) x (bins below) - q x (bins above).

    Chernoff's bound: conservative, and the same work for a million edges as for one. With
    log E[exp(uX)] = -log1p(-2 var sinh(u/2)^2) for discrete Laplace noise X, every t > 0 for which this is
    finite bounds the half-width by (log(2/(1-level)) + the sum of the logarithms at t) / t; the least over a
    grid of t is taken.
    """
    edges = error.starts if isinstance(error, Merged) else np.arange(n + 1)
    scales = bin_scales(error.base if isinstance(error, Merged) else error)
    if scales is None:
        return None
    variance = np.asarray(noise_law.variance(scales))
    worst = float(variance.max())
    if not math.isfinite(worst):
        return None
    n = int(edges[-1])
    chance = math.log(2.0 / (1.0 - level))
    # A scale so small that its noise is always 0 in double precision has the variance 0.
    limit = 2.0 * math.asinh(math.sqrt(0.5 / max(worst, 1e-300))) / max(q, 1.0 - q)
    # The best t is near limit * sqrt(chance / number of bins in play); beyond both ends the bound only grows.
    grid = limit * np.geomspace(min(0.5, 0.5 * math.sqrt(chance / n)), 0.999, 32)
    best = np.full(edges.size, np.inf)
    for t in grid:
        below, above = (_below(_log_moment(variance, w * t), edges) for w in (1.0 - q, q))
        np.minimum(best, (chance + below + above[-1] - above) / t, out=best)
    return best


def _log_moment(variance: Floats, u: float) -> Floats:
    return np.asarray(-np.log1p(-2.0 * variance * math.sinh(0.5 * u) ** 2), dtype=np.float64)


def _below(each: Floats, edges: Ints) -> Floats:
    """Return the sum of the bins below each edge; one number stands for all bins."""
    if each.ndim == 0:
        return edges.astype(np.float64) * float(each)
    sums: Floats = np.concatenate(([0.0], np.cumsum(each)))
    return sums[edges]


def _alike(error: ErrorModel) -> Floats | Ints | None:
    """Return a number for each bin such that bins with the same number have the same half-width."""
    if isinstance(error, GroupTotals):
        sizes = error.groups.sizes
        scales = np.broadcast_to(np.asarray(error.scale, dtype=np.float64), sizes.shape)
        return error.groups.spread(np.where(sizes == 1, scales, -1.0))
    if isinstance(error, Merged) and isinstance(bin_scales(error.base), float):
        return np.diff(error.starts)
    return None


def _or_nan(margin: float | None) -> float:
    return math.nan if margin is None else float(margin)
