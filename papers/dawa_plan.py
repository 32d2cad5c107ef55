"""What the DAWA paper measured, and the cells that measure it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Rectangles, Workload, make_workload
from dphist.errors import UsageError
from dphist.lab import data as bench_data
from dphist.lab.data import Source
from dphist.lab.grid import Cell
from dphist.lab.metrics import summarise
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.l1 import noisy_partition
from dphist.steps import bisect, iterative, partition
from dphist.steps.protocols import Partitioner

Row = dict[str, Any]
BINS = 4096
EPSILONS = ("0.01", "0.05", "0.1", "0.5")
ONE = "0.1"  # the epsilon of Figures 4 to 6
RIVALS = ("identity", "privelet", "mwem-tuned", "efpa", "php", "structurefirst")
OURS = ("greedyh-tuned", "hats", "dawa2")
MAIN = (*RIVALS[:2], "mwem", *RIVALS[2:], "dawa", *OURS)
HALVES = ("dawa", "partition+laplace", "greedyh")
SECOND = ("dawa", "partition+laplace", "partition+uniform", "partition+geometric")
PLANE = ("quadtree", "mwem", "hybridtree", "dpcube", "uniformgrid", "adaptivegrid", "dawa", "dawa2")
WORKLOADS = {
    "points": "identity",
    "random": "uniform",
    "clustered": "clustered",
    "large-clustered": "large clustered",
}
ROUNDS = (10, 20, 30, 50, 100, 200)
ERROR = "mean absolute error (records)"
DOUBLE = "optimal at twice the price"  # of a bucket: what Table 1 turns out to be made with
# Degrees of longitude and latitude: the rectangles, and the region of the grid (Cormode et al. 2012).
RECTANGLES = ((1.0, 1.0), (5.0, 5.0), (10.0, 10.0), (15.0, 0.2))
REGION = (21.82, 17.67)
QUERIES = 2000


@dataclass(frozen=True)
class Published:
    """A data set of the paper, easiest first: how its file may be called, and what stands for it."""

    name: str
    file: str
    stand: Source
    buckets: int  # Table 1


DATA = (
    Published("Nettrace", "NETTRACE", Source("Nettrace", "early", BINS, 25_714), 22),
    Published("Adult", "ADULT", Source("Adult", "sparse", BINS, 17_665), 29),
    Published("Med. Cost", "MEDCOST", Source("Med. Cost", "sparse", BINS, 9_415, 1), 20),
    Published("S. Logs", "SEARCHLOGS", Source("S. Logs", "hourly", BINS, 335_889), 500),
    Published("Income", "INCOME", Source("Income", "heaps", BINS, 20_787_122), 1537),
    Published("Patents", "PATENT", Source("Patents", "tail", BINS, 27_948_226), 1870),
    Published("HepPh", "HEP", Source("HepPh", "tail", BINS, 347_414, 1), 2168),
)
EASY, HARD, THREE = ("Nettrace", "Adult", "Med. Cost"), ("Patents", "HepPh"), ("Nettrace", "S. Logs", "HepPh")
# Table 2: the error of each over DAWA's, at each epsilon: the least and the largest over the data.
TABLE_2: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "identity": ((2.04, 2.27, 2.00, 2.06), (26.42, 22.97, 20.85, 25.47)),
    "privelet": ((1.00, 1.11, 0.98, 1.01), (12.93, 11.24, 10.20, 12.46)),
    "mwem-tuned": ((2.65, 3.00, 2.54, 3.39), (17.00, 19.14, 22.54, 68.75)),
    "efpa": ((0.88, 3.20, 3.84, 3.60), (18.94, 43.58, 41.09, 43.69)),
    "php": ((2.20, 1.98, 1.81, 1.25), (7.09, 17.57, 31.41, 138.14)),
    "structurefirst": ((0.86, 1.01, 0.82, 0.89), (10.85, 9.77, 8.32, 10.89)),
}
STATED = (("privelet", "Nettrace", 196.6), ("mwem-tuned", "Nettrace", 60.12), ("mwem-tuned", "HepPh", 722.3))


@dataclass(frozen=True)
class Size:
    """How much is run.

    Args:
        draws: how many random workloads of each kind.
        trials: of each cell.
        side: of the made-up grid.
        files: how many grids of the folder at most.
    """

    draws: int
    trials: int
    side: int
    files: int
    epsilons: tuple[str, ...]
    boxes: int


QUICK = Size(draws=5, trials=3, side=256, files=2, epsilons=("0.01", "0.1", "0.5"), boxes=200)
FULL = Size(draws=5, trials=20, side=1024, files=100, epsilons=EPSILONS, boxes=500)


def lines_of(folder: Path | None) -> tuple[Source, ...]:
    """Return the paper's seven histograms: files where the folder has them, else what stands for them."""
    found = _files(folder, 1)
    sources = []
    for data in DATA:
        file = next((f for f in found if Path(f.shape).name.upper().startswith(data.file)), None)
        if file is None:
            sources.append(data.stand)
        else:
            large = file.counts().size > BINS
            sources.append(replace(file, name=data.name, n=BINS if large else None))
    return tuple(sources)


def planes_of(folder: Path | None, size: Size, out: Path) -> tuple[Source, ...]:
    """Return the grids: made-up towns, and those of the folder that have the most records."""
    place = out / "data" / f"towns-{size.side}.npy"
    place.parent.mkdir(parents=True, exist_ok=True)
    np.save(place, towns(size.side))
    files = sorted(_files(folder, 2), key=lambda source: -int(source.counts().sum()))
    return (Source("towns", str(place)), *files[: size.files])


def _files(folder: Path | None, axes: int) -> tuple[Source, ...]:
    if folder is None:
        return ()
    try:
        return bench_data.folder(folder, dims=axes)
    except UsageError:  # none of so many axes: made-up data stands for them
        return ()


def towns(side: int, *, records: int = 1_000_000, seed: int = 0) -> Ints:
    """Return a made-up map: many small towns and few large ones, in two lands with nothing between."""
    source = np.random.default_rng(seed)
    many = 300
    people = source.pareto(1.1, many) + 0.1
    which = source.choice(many, size=records, p=people / people.sum())
    west = source.random(many) < 0.5
    middle = np.where(west[:, None], source.uniform((0.02, 0.6), (0.45, 0.98), (many, 2)), 0.0)
    middle += np.where(west[:, None], 0.0, source.uniform((0.6, 0.02), (0.98, 0.45), (many, 2)))
    width = 0.004 + 0.012 * np.sqrt(people / people.max())
    place = middle[which] + source.normal(size=(records, 2)) * width[which, None]
    inside = place[((place >= 0) & (place < 1)).all(axis=1)]
    cell = (inside * side).astype(np.int64)
    return np.bincount(cell[:, 0] * side + cell[:, 1], minlength=side * side).reshape(side, side)


def build(name: str, domain: Domain, workload: Workload | None = None) -> Pipeline:
    """Return the pipeline of a name; ``mwem@30`` is MWEM with 30 rounds."""
    base, _, rounds = name.partition("@")
    if rounds:
        return Pipeline(estimate=iterative.Mwem(rounds=int(rounds)), name=base)
    return make_pipeline(name, domain, workload)


def queries(name: str, domain: Domain) -> Workload:
    """Return the workload of a name; ``box:15x0.2:200:1`` is 200 rectangles of so many degrees, draw 1."""
    if not name.startswith("box:"):
        return make_workload(name, domain)
    _, degrees, many, number = name.split(":")
    source = np.random.default_rng([int(number), int(many)])
    ends: list[Ints] = []
    for side, wide, whole in zip(domain.shape, map(float, degrees.split("x")), REGION, strict=True):
        length = min(side, max(1, round(side * wide / whole)))
        start = source.integers(0, side - length + 1, int(many))
        ends += [start, start + length]
    return Rectangles(domain.shape, *ends)


def tuning(sources: Sequence[Source], size: Size) -> list[Cell]:
    """Return the cells by which MWEM's rounds are chosen, as the paper does: looking at the exact answers."""
    told = f"random:{QUERIES}:0"
    return [Cell(s, ONE, told, f"mwem@{t}", min(size.trials, 5)) for s in sources for t in ROUNDS]


def best_rounds(rows: Iterable[Row]) -> dict[str, int]:
    """Return for each data set the number of rounds with the least error."""
    found = summarise(
        [r for r in rows if r["status"] == "ok"], by=["dataset", "method"], value="mean_absolute"
    )
    best: dict[str, Row] = {}
    for line in found:
        if line["mean"] < best.get(line["dataset"], {"mean": math.inf})["mean"]:
            best[line["dataset"]] = line
    return {name: int(line["method"].partition("@")[2]) for name, line in best.items()}


def on_lines(sources: Sequence[Source], size: Size, rounds: Mapping[str, int]) -> list[Cell]:
    """Return the cells of Figures 3, 4 and 6."""
    cells = []
    for source in sources:
        tuned = f"mwem@{rounds.get(source.name, 10)}"
        for number in range(size.draws):
            told = f"random:{QUERIES}:{number}"
            for epsilon in EPSILONS:
                more = {"partition+laplace": 0, "greedyh": 0} if epsilon == ONE else {}
                for method in (*MAIN, *more):
                    label = tuned if method == "mwem-tuned" else method
                    cells.append(Cell(source, epsilon, told, label, size.trials))
            if source.name in THREE:
                some = [f"clustered:{QUERIES}:{number}", f"large-clustered:{QUERIES}:{number}", told]
                some += ["points"] if not number else []
                cells += [Cell(source, ONE, w, m, size.trials) for w in some for m in SECOND]
    return list({cell.key: cell for cell in cells}.values())


def on_planes(planes: Sequence[Source], size: Size) -> list[Cell]:
    """Return the cells of Figure 7."""
    cells = []
    for source in planes:
        for wide, high in RECTANGLES:
            told = f"box:{wide:g}x{high:g}:{size.boxes}:0"
            cells += [Cell(source, e, told, m, size.trials) for e in size.epsilons for m in PLANE]
    return cells


@dataclass(frozen=True)
class Cut:
    """What a partition costs, mean over trials: Definition 5 of the paper, and how many buckets it has."""

    dataset: str
    method: str
    cost: float
    buckets: float


def partitions(sources: Sequence[Source], trials: int) -> list[Cut]:
    """Return Table 1 and Figure 5: the partitions that 0.1 buys, by what they cost where 0.1 is left."""
    steps: dict[str, Partitioner] = {
        "dawa": partition.L1(),
        "dawa-all": partition.L1(candidates="all"),
        "php": bisect.PHp(),
        "dawa2": partition.Splits(),
    }
    half = Split(partition=Fraction(1, 2), estimate=Fraction(1, 2))
    found = []
    for source in sources:
        x = source.counts()
        held = Counts(x, Domain((Integers(0, x.size - 1),)))
        for name, price in (("optimal", 1 / float(ONE)), (DOUBLE, 2 / float(ONE))):
            best = Groups(_optimal(source, price))
            found.append(Cut(source.name, name, cost(x, best), best.k))
        for name, step in steps.items():
            pipeline = Pipeline(partition=step, split=half)
            chosen = []
            for trial in range(trials):
                curator = Curator.simulated(held, epsilon=2 * Fraction(ONE), seed=trial)
                chosen.append(pipeline.values(curator, make_workload("points", held.domain))[0])
            costs, buckets = [cost(x, g) for g in chosen], [g.k for g in chosen]
            found.append(Cut(source.name, name, float(np.mean(costs)), float(np.mean(buckets))))
    return found


def cost(x: Ints, found: Groups) -> float:
    """Return what a partition costs: how far bins are from their bucket's mean, and noise for each bucket."""
    return float(np.abs(x - found.means(found.totals(x))).sum()) + found.k / float(ONE)


def _optimal(source: Source, price: float) -> Ints:
    """Return the partition of least cost, of exact counts and without noise: for public data alone.

    Args:
        price: what a bucket costs.
    """
    return noisy_partition(
        source.counts(),
        lambda sensitivity, size: np.zeros(size, np.int64),
        candidates="all",
        center="mean",
        penalty=price,
        fanout=2,
    )


def named(row: Row) -> Row:
    """Return a row with the kind of its workload, and the name under which MWEM's tuned rounds are shown."""
    kind, *rest = row["judged"].split(":")
    tuned = row["method"].startswith("mwem@")
    return row | {
        "kind": rest[0] if kind == "box" else kind,
        "method": "mwem-tuned" if tuned else row["method"],
    }


@dataclass(frozen=True)
class Look:
    """Finds the mean absolute error of a method in a setting; NaN if it failed or was not run."""

    at: Mapping[tuple[str, float, str, str], float]

    @classmethod
    def into(cls, rows: Iterable[Row]) -> Look:
        """Return a look into rows; random workloads of a kind count as one."""
        good = [row for row in rows if row["status"] == "ok"]
        found = summarise(good, by=["dataset", "epsilon", "kind", "method"], value="mean_absolute")
        return cls({(r["dataset"], r["epsilon"], r["kind"], r["method"]): r["mean"] for r in found})

    def error(self, dataset: str, epsilon: str, method: str, kind: str = "random") -> float:
        """Return the error, by default on uniform intervals."""
        return self.at.get((dataset, float(epsilon), kind, method), math.nan)

    def over(self, method: str, dataset: str, epsilon: str, kind: str = "random") -> float:
        """Return the error over DAWA's."""
        return self.error(dataset, epsilon, method, kind) / self.error(dataset, epsilon, "dawa", kind)
