"""Estimators that alternate private selection and measurement (MWEM)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphist.domain.groups import Groups
from dphist.domain.workload import AllRanges, LineWorkload, Rectangles, Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.protocols import Estimated, Rough, Step
from dphist.uncertainty.models import Unknown

if TYPE_CHECKING:
    from dphist.privacy.queries import Boxes

_BELIEVED = "the values are the flattest that agree with a few noisy answers, and what they miss is unknown"


@dataclass(frozen=True)
class Mwem(Step):
    """Multiplicative weights and private selection of the worst-answered query (Hardt et al. 2012).

    The queries are those of the workload. All ranges are too many to try, so the 2n - 1 ranges of a binary
    tree stand for them; they also serve where groups are not the domain's own bins in order.

    Args:
        rounds: how many queries are measured: public, as the total of the counts is not.
        passes: how often each round goes through everything measured so far.
    """

    spends: ClassVar[bool] = True
    ignores_neighbours: ClassVar[bool] = True
    rounds: int = 10
    passes: int = 100

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.passes < 1:
            raise UsageError("Mwem needs at least one round and one pass.")

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Spend as much on the total as on a round, of which choosing and measuring take a half each."""
        from dphist.kernels.transforms.weights import box_sums, reweighted
        from dphist.privacy.queries import OnGroups, WorstAnswered

        boxes = _boxes(workload, groups)
        turn = share / (self.rounds + 1)
        total = float(curator.measure(Groups.whole(groups.n), share=turn).values[0])
        values = np.full(boxes.shape, total / groups.k)
        chosen: list[int] = []
        answers: list[int] = []
        for _ in range(self.rounds):
            believed = np.floor(box_sums(values, boxes.sides)).astype(np.int64)
            chosen.append(curator.choose(WorstAnswered(boxes, believed, groups), share=turn / 2))
            asked = OnGroups(boxes.take(chosen[-1:]), groups)
            answers += curator.measure_linear(asked, share=turn / 2).values.tolist()
            if total > 0:  # weights have no sign; of a noisy total that is not positive nothing is learnt
                measured = np.array(answers, dtype=np.float64)
                values = reweighted(values, boxes.take(chosen).sides, measured, passes=self.passes)
        return Estimated(groups.means(values.ravel()), Unknown(_BELIEVED))


def _boxes(workload: Workload, groups: Groups) -> Boxes:
    """Return the queries as boxes of cells."""
    from dphist.kernels.trees import tree as trees
    from dphist.privacy.queries import Boxes

    plain = groups.are_singletons and groups.order is None
    if plain and isinstance(workload, Rectangles):
        rows, columns = workload.shape
        return Boxes((rows, columns), workload.x0, workload.x1, workload.y0, workload.y1)
    if plain and isinstance(workload, LineWorkload) and not isinstance(workload, AllRanges):
        return Boxes.ranges(groups.n, *workload.pairs())
    tree = trees.make_tree(groups.k, 2)
    return Boxes.ranges(groups.k, tree.lo.astype(np.int64), tree.hi.astype(np.int64))
