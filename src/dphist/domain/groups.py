"""A partition of the bins into groups that share one value. Public, like every result of a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dphist.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_Array = TypeVar("_Array", bound=NDArray[Any])


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of the bins: bins in some order, cut into runs.

    >>> groups = dphist.Groups([0, 2, 5])
    >>> groups.n, groups.k, groups.sizes.tolist()
    (5, 2, [2, 3])

    Args:
        starts: where each run begins in the ordered bins, and, last, n; ``starts[0]`` is 0.
        order: the bins in order; None is the order of the domain.
    """

    starts: Ints
    order: Ints | None = None

    def __post_init__(self) -> None:
        s = kept(self.starts).astype(np.int64, copy=False)
        if s.ndim != 1 or s.size < 2 or s[0] != 0 or not (s[1:] > s[:-1]).all():
            raise UsageError("a partition's starts must increase from 0 to the number of bins.")
        object.__setattr__(self, "starts", frozen(s))
        if self.order is not None:
            o = kept(self.order).astype(np.int64, copy=False)
            seen = np.zeros(self.n, dtype=bool)
            if o.shape == (self.n,) and o.min() >= 0 and o.max() < self.n:
                seen[o] = True
            if not seen.all():
                raise UsageError("a partition's order must list every bin exactly once.")
            object.__setattr__(self, "order", frozen(o))

    @staticmethod
    @lru_cache(maxsize=4)  # making a million starts takes as long as drawing their noise
    def singletons(n: int) -> Groups:
        """Return one group per bin."""
        return Groups(np.arange(n + 1))

    @staticmethod
    def whole(n: int) -> Groups:
        """Return one group of all bins."""
        return Groups(np.array([0, n]))

    @property
    def n(self) -> int:
        return int(self.starts[-1])

    @property
    def k(self) -> int:
        return self.starts.size - 1

    @property
    def sizes(self) -> Ints:
        """How many bins each group has."""
        return np.diff(self.starts)

    def ordered(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the bins' entries in this partition's order."""
        return x if self.order is None else x[self.order]

    @property
    def are_singletons(self) -> bool:
        """Whether every bin is its own group."""
        return self.k == self.n

    def means(self, totals: NDArray[Any]) -> Floats:
        """Return each bin's share of its group's total."""
        if not self.are_singletons:
            return self.spread(totals / self.sizes)
        return self.spread(totals.astype(np.float64, copy=self.order is None))  # otherwise it is copied below

    def totals(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over each group."""
        x = self.ordered(x)
        return x if self.are_singletons else np.add.reduceat(x, self.starts[:-1])

    def spread(self, per_group: NDArray[Any]) -> NDArray[Any]:
        """Return each bin's entry of its group."""
        runs = per_group if self.are_singletons else np.repeat(per_group, self.sizes)
        if self.order is None:
            return runs
        out = np.empty_like(runs)
        out[self.order] = runs
        return out

    def ended(self, edges: Ints) -> Ints:
        """Return how many groups, being runs of neighbours, end at or before each of these edges of bins.

        Few edges are searched for; for many, a table of all takes less time.
        """
        if self.are_singletons:
            return edges
        if edges.size < self.n // 16:
            return np.searchsorted(self.starts, edges, side="right") - 1
        table = np.zeros(self.n + 1, dtype=np.int64)
        table[self.starts[1:]] = 1
        return np.cumsum(table, out=table)[edges]

    def labels(self) -> Ints:
        """Return each bin's group number."""
        return self.spread(np.arange(self.k))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; one bin per group is written as such."""
        if self.are_singletons and self.order is None:
            return {"kind": "singletons", "n": self.n}
        order = None if self.order is None else self.order.tolist()
        return {"kind": "runs", "starts": self.starts.tolist(), "order": order}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Groups:
        if described["kind"] == "singletons":
            return cls.singletons(described["n"])
        return cls(np.array(described["starts"]), described["order"])


def kept(numbers: Any) -> Any:
    """Return whole numbers that nobody changes by accident: those given, if they are read-only, or a copy.

    An array of a type of its own is copied too: it could look on while exact counts are added up by it.
    """
    own = type(numbers) is np.ndarray and numbers.base is None and not numbers.flags.writeable
    return numbers if own and numbers.dtype in (np.int32, np.int64) else np.array(numbers, dtype=np.int64)


def frozen(array: _Array) -> _Array:
    """Return the array itself, made read-only."""
    array.flags.writeable = False
    return array
