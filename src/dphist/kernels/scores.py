"""Scores for private selection: each declares its sensitivity, and the tests try it on neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BinCounts:
    """Each bin's own count: choosing by it finds the fullest bin."""

    sensitivity: ClassVar[int] = 1
    monotone: ClassVar[bool] = True

    def candidates(self, n: int) -> int:
        """Return n: every bin is a candidate."""
        return n

    def __call__(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts; a unit only ever adds to them, so all scores move one way."""
        return counts
