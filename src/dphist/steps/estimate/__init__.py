"""Step 4: a value for every bin: group means, averages, trees, transforms, grids, multiplicative weights."""

from dphist.steps.estimate.averaged import Averaged
from dphist.steps.estimate.averaged_trees import AveragedTree
from dphist.steps.estimate.grids import AdaptiveGrid, HybridTree, QuadTree
from dphist.steps.estimate.iterative import Mwem
from dphist.steps.estimate.listed import Listed
from dphist.steps.estimate.means import FineMeans, GroupMeans, LeastSquares, RoughMeans, WeightedMeans
from dphist.steps.estimate.transforms import Efpa, Privelet
from dphist.steps.estimate.trees import Hats, Tree, WorkloadTree

__all__ = [
    "AdaptiveGrid",
    "Averaged",
    "AveragedTree",
    "Efpa",
    "FineMeans",
    "GroupMeans",
    "Hats",
    "HybridTree",
    "LeastSquares",
    "Listed",
    "Mwem",
    "Privelet",
    "QuadTree",
    "RoughMeans",
    "Tree",
    "WeightedMeans",
    "WorkloadTree",
]
