"""Step 3: which bins share one value.

Groups known beforehand (`plain`) or found on `rough` counts cost nothing. `private` partitions and
`bisect` look at the data, through the curator, and pay; `grids` do the one or the other.
"""

from dphist.steps.partition.bisect import PHp, StructureFirst
from dphist.steps.partition.grids import KdGrid, UniformGrid
from dphist.steps.partition.plain import FixedSize, Singletons, Whole
from dphist.steps.partition.private import L1, FaintBins, PlainSplits, Splits
from dphist.steps.partition.rough import (
    AhpGreedy,
    Empirical,
    Greedy,
    KdTree,
    Optimal,
    PowersOfTwo,
    Subtrees,
)

__all__ = [
    "L1",
    "AhpGreedy",
    "Empirical",
    "FaintBins",
    "FixedSize",
    "Greedy",
    "KdGrid",
    "KdTree",
    "Optimal",
    "PHp",
    "PlainSplits",
    "PowersOfTwo",
    "Singletons",
    "Splits",
    "StructureFirst",
    "Subtrees",
    "UniformGrid",
    "Whole",
]
