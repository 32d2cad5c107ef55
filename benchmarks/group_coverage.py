"""How often 95 % intervals of grouped releases hold the truth, over seeded noise and made-up counts.

A cell is a method, with a share for every level or for the lowest alone, an epsilon, how many records a
person has, and a post-processing. Its groups are of very uneven sizes; some are sparse and some empty. Asked
are the bins and ranges of the groups of every level, sums over several groups, and all bins at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.hierarchy import make_hierarchy
from dphist.planning.grouped import GroupedPlan
from dphist.planning.simulate import trials_by_group
from dphist.privacy.counts import Counts
from dphist.release.grouped import GroupedRelease
from dphist.release.postprocess import Post

BINS, REGIONS, EACH = 32, 5, 8
NAMES = ("nation", "region", "hospital")
TREE = make_hierarchy(NAMES, {f"R{r}": [f"R{r}H{h}" for h in range(EACH)] for r in range(REGIONS)})
IMPORTANT = {"nation": 1, "region": 1, "hospital": 1}  # so that every level is measured
LOWEST = {"nation": 0, "region": 0, "hospital": 1}
RANGES, SETS = 40, 12  # that are asked of each group, and of each release


@dataclass(frozen=True)
class Cell:
    """A kind of release."""

    method: str
    levels: bool
    epsilon: str = "1"
    records: int = 1
    post: Post = "none"

    def __str__(self) -> str:
        measured = "all levels measured" if self.levels else "lowest level measured"
        return f"{self.method}, {measured}, epsilon {self.epsilon}, {self.records} per person, {self.post}"


@dataclass
class Held:
    """How many intervals there were and how many held the truth; some queries have none."""

    asked: int = 0
    inside: int = 0
    without: int = 0

    def add(self, truth: Floats, low: Floats, high: Floats) -> None:
        """Count intervals, NaN where there are none."""
        known = np.isfinite(low) & np.isfinite(high)
        self.asked += int(known.sum())
        self.inside += int(((low <= truth) & (truth <= high) & known).sum())
        self.without += int((~known).sum())

    def joint(self, truth: Floats, low: Floats, high: Floats) -> None:
        """Count bands that hold all of the truth, a row each."""
        known = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
        self.asked += int(known.sum())
        self.inside += int((((low <= truth) & (truth <= high)).all(axis=1) & known).sum())
        self.without += int((~known).sum())

    @property
    def rate(self) -> float:
        """The part of the intervals that held."""
        return self.inside / self.asked if self.asked else float("nan")


def cells() -> Iterator[Cell]:
    """Yield the kinds of releases whose coverage is told."""
    for method, levels, epsilon in itertools.product(
        ("identity", "hats", "dawa2"), (True, False), ("0.1", "1")
    ):
        yield Cell(method, levels, epsilon)
        yield Cell(method, levels, epsilon, records=3, post="integer" if levels else "nonneg")


@cache
def truth() -> tuple[Ints, ...]:
    """Return counts of every level: heavy-tailed sizes; each region has an empty group and a sparse one."""
    draws = np.random.default_rng(11)
    place = np.arange(BINS)
    sizes = np.minimum((draws.pareto(1.1, REGIONS * EACH) + 1) * 80, 50_000)
    rows = []
    for i, size in enumerate(sizes.tolist()):
        shape = np.exp(-(((place - draws.uniform(6, 26)) / draws.uniform(2, 9)) ** 2) / 2) + 0.02
        if i % EACH == 1:
            shape = np.isin(place, draws.integers(0, BINS, 3)).astype(float)  # three bins have it all
        rows.append(draws.multinomial(0 if i % EACH == 0 else round(size), shape / shape.sum()))
    leaves = np.array(rows)
    return tuple(np.add.reduceat(leaves, TREE.runs(i).starts[:-1], axis=0) for i in range(TREE.depth))


def released(cell: Cell, seed: int) -> GroupedRelease:
    """Return a release of the made-up counts with seeded noise."""
    bins = Domain((Integers(0, BINS - 1),))
    plan = GroupedPlan(
        by=NAMES,
        groups={region: [f"{region}H{h}" for h in range(EACH)] for region in TREE.labels[1]},
        importances=IMPORTANT if cell.levels else LOWEST,
        epsilon=cell.epsilon,
        bins=bins,
        method=cell.method,
        workload="ranges",
        post=cell.post,
        unit="person",
        max_contributions=cell.records,
    )
    held = Counts(truth()[-1], Domain((TREE.axis, bins.axes[0])), cell.records)
    ((curator, made),) = trials_by_group(
        plan.pipeline, held, plan.hierarchy, plan.queries, plan.shares, epsilon=plan.budget, seeds=[seed]
    )
    return plan._wrap(curator, made, plan.hierarchy, {})  # noqa: SLF001 - a release charges a ledger


def coverage(cell: Cell, *, trials: int, seed: int = 0) -> dict[str, Held]:
    """Return, by what is asked, how often the intervals of a kind of release hold the truth."""
    found: dict[str, Held] = {}
    for trial in range(trials):
        release = released(cell, seed + trial)
        draws = np.random.default_rng([seed, trial])
        for at, name in enumerate(NAMES):
            exact = truth()[at].astype(np.float64)
            each, joint, all_of_them, ranges = (
                found.setdefault(f"{name}: {what}", Held())
                for what in ("bins", "all bins of a group", "all bins of all groups", "ranges")
            )
            each.add(exact, *release.intervals(of=name))
            joint.joint(exact, *release.intervals(of=name, joint="group"))
            low, high = (end.reshape(1, -1) for end in release.intervals(of=name, joint="all"))
            all_of_them.joint(exact.reshape(1, -1), low, high)
            _ranges(ranges, release, at, draws)
        _sets(found.setdefault("sums over groups", Held()), release, draws)
    return found


def _ranges(held: Held, release: GroupedRelease, at: int, draws: np.random.Generator) -> None:
    for i in range(release.hierarchy.sizes[at]):
        lo, hi = np.sort(draws.integers(0, BINS + 1, (2, RANGES)), axis=0)
        lo, hi = lo[lo < hi], hi[lo < hi]
        margins = release.levels[at].error(i).margins(lo, hi, level=0.95)
        sums, exact = (np.append(0.0, np.cumsum(x[i])) for x in (release.raw(NAMES[at]), truth()[at]))
        middle = sums[hi] - sums[lo]
        held.add(exact[hi] - exact[lo], middle - margins, middle + margins)


def _sets(held: Held, release: GroupedRelease, draws: np.random.Generator) -> None:
    """Ask sums over several groups of one level, or of two levels that do not overlap."""
    for i in range(SETS):
        lo, hi = np.sort(draws.choice(BINS + 1, 2, replace=False)).tolist()
        some = draws.choice(REGIONS * EACH, int(draws.integers(2, 20)), replace=False)
        if i % 3 == 1:  # whole regions
            some = np.flatnonzero(np.isin(TREE.parents[-1], draws.choice(REGIONS, 2, replace=False)))
            groups = sorted({TREE.labels[1][r] for r in TREE.parents[-1][some].tolist()})
        elif i % 3 == 2:  # a region and a few groups elsewhere
            some = np.append(np.flatnonzero(TREE.parents[-1] == 0), some[TREE.parents[-1][some] > 0])
            groups = [TREE.labels[1][0], *(TREE.leaves[j] for j in some[EACH:].tolist())]
        else:
            groups = [TREE.leaves[j] for j in some.tolist()]
        found = release.sum(lo, hi, groups=groups)
        ends = [float("nan") if end is None else end for end in (found.low, found.high)]
        exact = float(truth()[-1][some, lo:hi].sum())
        held.add(*(np.array([x]) for x in (exact, *ends)))
