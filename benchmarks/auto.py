"""Teaches ``auto`` which method to take, and tells how well it does.

``python -m benchmarks.auto train`` runs the candidates on made-up histograms, learns the table from what
they did and writes it into the package; what was run is kept in ``--out``, so that a stopped training
goes on where it was. ``python -m benchmarks.auto evaluate --data DIR`` then holds the method against every
other one on real histograms that the training never saw: JSON lines, exit code 1 if a limit is missed.

Error is the root of the mean squared error per query of the workload, over all trials; regret is a method's
error over the least error that any method of the catalogue has on the same data, epsilon and workload.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.core import Row, _report, _row, _run, _say
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.workload import make_workload
from dphist.lab import data, grid, metrics
from dphist.methods.catalogue import CATALOGUE, variant
from dphist.planning import shapes
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import auto
from dphist.steps.order import hilbert

VERSION = 1
OUT = Path("build/auto")
EXAMPLES = {"line": 300, "grid": 80}
SIZES = {"line": (64, 256, 1024, 1024, 4096, 4096, 16384), "grid": (8, 16, 32, 64, 64, 128)}
EPSILONS = ("0.01", "0.1", "1")
WORKLOADS = {
    "line": {"points": "points", "ranges": "random:2000", "prefixes": "prefixes"},
    "grid": {"points": "points", "ranges": "rectangles:500"},
}
CANDIDATES = {
    ("line", "points"): (
        *("wf-auto", "identity", "dawa2", "dawa2@0.3", "uniformgrid", "adaptivegrid", "s2-auto@0.7", "sdpc"),
    ),
    ("line", "ranges"): ("dawa2", "dawa2@0.3", "hats", "greedyh-tuned", "uniformgrid", "adaptivegrid"),
    ("line", "prefixes"): ("dawa2", "dawa2@0.3", "hats", "greedyh-tuned", "uniformgrid", "adaptivegrid"),
    ("grid", "points"): (
        *("wf-auto", "identity", "dawa2", "dawa2@0.3", "uniformgrid", "adaptivegrid", "sdpc", "dpcube"),
    ),
    ("grid", "ranges"): (
        *("dawa2", "dawa2@0.3", "adaptivegrid", "uniformgrid", "quadtree", "hybridtree", "dpcube"),
        *("privelet", "wf-auto"),
    ),
}
TRIALS = {"points": 4, "ranges": 6, "prefixes": 6}
SHARES = ("1/200", "1/100", "1/50", "1/25")
QUESTIONS = (
    ("bins", "0"),
    *((feature, share) for feature in ("mass", "signal", *auto.FEATURES) for share in SHARES),
)
READINGS = 4  # of each feature, each with its own noise
MOST = Fraction(1, 20)  # of the budget, for all questions on a path
DEEPEST, LEAST = 4, 100  # questions on a path; readings at a leaf
GAIN = 0.001  # what a question must bring, in mean cost over all readings, to be worth a line of the table
FOLDS = 8  # of the examples, each judged by trees that did not see it
ABOUT = """# How auto fares

Made by `python -m benchmarks.auto`: its error over that of the best other method, its questions
paid for."""
HELD_OUT = 1_000_000  # the number of the first example that is never learnt from


@dataclass(frozen=True)
class Example:
    """A made-up histogram to learn from."""

    name: str
    counts: Ints
    epsilon: str

    @property
    def held(self) -> Counts:
        """The counts over a domain of their own."""
        return Counts(self.counts, Domain(tuple(Integers(0, bins - 1) for bins in self.counts.shape)))


def example(kind: str, number: int) -> Example:
    """Return the made-up line or grid of a number: the same for everybody."""
    source = np.random.default_rng((0xA070, kind == "grid", number))
    side = int(source.choice(SIZES[kind]))
    shape = (side,) if kind == "line" else (side, side)
    n = math.prod(shape)
    name, weights = _line(n, source) if kind == "line" else _grid(side, source)
    epsilon = str(source.choice(EPSILONS))
    least = max(-2.0, math.log10(30 / n))  # with fewer records all methods are equally lost
    noises = n * 10 ** source.uniform(least, 4)  # records, in scales of the noise that the budget buys
    scale = round(noises / float(epsilon))
    return Example(name, source.multinomial(scale, weights).reshape(shape).astype(np.int64), epsilon)


def _line(n: int, source: np.random.Generator) -> tuple[str, Floats]:
    """Return weights of n bins: a shape, changed in one of six ways so that there are more than eleven."""

    def some(bins: int) -> tuple[str, Floats]:
        shape = shapes.SHAPES[str(source.choice(sorted(shapes.SHAPES)))]
        return shape.name, shape.weights(bins, seed=int(source.integers(1 << 30)))

    change = source.integers(6)
    factor = int(2 ** source.integers(1, 6))
    if change == 1:
        (first, a), (second, b), part = some(n), some(n), source.uniform(0.05, 0.95)
        name, w = f"{first} and {second}", part * a + (1 - part) * b
    elif change == 2:
        cut = max(1, min(n - 1, int(n * source.uniform(0.1, 0.9))))
        (first, a), (second, b), part = some(cut), some(n - cut), source.uniform(0.05, 0.95)
        name, w = f"{first} then {second}", np.concatenate([part * a, (1 - part) * b])
    elif change == 3:
        first, a = some(-(-n // factor))
        name, w = f"{first} stretched", np.repeat(a, factor)[:n]
    elif change == 4:
        first, a = some(n)
        name, w = f"{first} sharpened", a ** np.exp(source.uniform(-0.7, 0.7))
    elif change == 5:
        first, a = some(4 * n)
        name, w = f"{first} coarsened", a.reshape(n, 4).sum(axis=1)
    else:
        name, w = some(n)
    if source.random() < 0.5:
        w = w[::-1]
    return name, w / w.sum()


def _grid(side: int, source: np.random.Generator) -> tuple[str, Floats]:
    """Return weights of a square: a line laid along a curve, the product of two lines, or clouds."""
    way = source.integers(3)
    if way == 0:
        name, along = _line(side * side, source)
        w = np.zeros(side * side)
        w[hilbert(side, side)] = along
        return f"{name} along a curve", w
    if way == 1:
        (first, a), (second, b) = _line(side, source), _line(side, source)
        return f"{first} by {second}", np.outer(a, b).ravel()
    x, y = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2)
    w = np.full((side, side), 1e-6)
    for _ in range(int(source.integers(1, 12))):
        (u, v), width = source.random(2), np.exp(source.uniform(-4.5, -1))
        w += source.pareto(1.5) / width**2 * np.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * width**2))
    return "clouds", (w / w.sum()).ravel()


def study(kind: str, number: int) -> Row:
    """Return what every candidate does on an example, and what the features say of it."""
    made = example(kind, number)
    held, epsilon = made.held, Fraction(made.epsilon)
    errors = {
        asked: _errors(kind, number, asked, CANDIDATES[kind, asked], trials=TRIALS[asked])
        for asked in WORKLOADS[kind]
        if asked == "points" or number % 2 == 0  # the others take longer, and there is less to learn
    }
    readings = []
    for k in range(READINGS):
        said = {}
        for j, (feature, share) in enumerate(QUESTIONS):
            curator = Curator.simulated(held, epsilon=epsilon, seed=_seed(number, "read", k, j))
            said[f"{feature} {share}"] = auto.read(curator, feature, share=Fraction(share))
        readings.append(said)
    return {
        "kind": kind,
        "number": number,
        "name": made.name,
        "shape": made.counts.shape,
        "epsilon": made.epsilon,
        "records": int(held.values.sum()),
        "errors": errors,
        "features": readings,
    }


def _errors(kind: str, number: int, asked: str, labels: Iterable[str], *, trials: int) -> dict[str, float]:
    """Return the root mean squared error per query of some methods on an example."""
    made = example(kind, number)
    held, found = made.held, {}
    workload = make_workload(WORKLOADS[kind][asked], held.domain)
    for label in labels:
        pipeline = variant(label, held.domain)
        squared = []
        for trial in range(trials):
            seed = _seed(number, asked, label, trial)
            curator = Curator.simulated(held, epsilon=Fraction(made.epsilon), seed=seed)
            values = pipeline.values(curator, workload)[1].values
            squared.append(workload.mean_squared_error(values - held.values))
        found[label] = float(f"{math.sqrt(np.mean(squared)):.6g}")
    return found


def _seed(*what: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest())


def collect(out: Path, numbers: dict[str, Iterable[int]], *, jobs: int) -> list[Row]:
    """Return the studies of all examples; those that ``out`` has are not done again."""
    from joblib import Parallel, delayed

    out.mkdir(parents=True, exist_ok=True)
    path = out / "studies.jsonl"
    kept = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    rows = {(row["kind"], row["number"]): row for row in kept}
    wanted = [(kind, number) for kind, some in numbers.items() for number in some]
    todo = [item for item in wanted if item not in rows]
    _say(f"{len(todo)} of {len(wanted)} examples to be studied ...")
    with path.open("a", encoding="utf-8") as file:
        found = Parallel(n_jobs=jobs, return_as="generator_unordered")(delayed(study)(*item) for item in todo)
        for done, row in enumerate(found, 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows[row["kind"], row["number"]] = row
            if done % 50 == 0:
                _say(f"{done} of {len(todo)}")
    return [rows[item] for item in wanted]


def learn(rows: Sequence[Row], asked: str) -> auto.Node:
    """Return the decision tree for one kind of workload that the studies teach.

    A tree must be worth its questions on examples that it was not grown on; if it is not, one method is taken
    for all, and nothing is asked.
    """
    rows = [row for row in rows if asked in row["errors"]]
    labels = list(rows[0]["errors"][asked])
    regret = np.log([[row["errors"][asked][label] for label in labels] for row in rows])
    regret -= regret.min(axis=1, keepdims=True)
    # What counts is the mean of log regret; beyond 1.5 it counts twice, so that nothing fares very badly.
    cost = np.repeat(regret + np.maximum(0, regret - math.log(1.5)), READINGS, axis=0)
    said = [reading for row in rows for reading in row["features"]]
    read = np.array([[reading[f"{f} {s}"] for f, s in QUESTIONS] for reading in said])
    fold = np.repeat(np.arange(len(rows)) % FOLDS, READINGS)

    def tree(part: NDArray[np.bool_], depth: int) -> auto.Node:
        least = GAIN * float(part.sum())
        return _grow(read[part], cost[part], labels, least=least, depth=depth, asked={})

    def elsewhere(depth: int) -> float:
        """Return the cost of trees on what they were not grown on, their questions paid for."""
        total = 0.0
        for k in range(FOLDS):
            grown = tree(fold != k, depth)
            for i in np.flatnonzero(fold == k):
                name, paid = auto.look_up(grown, lambda f, s, i=i: said[i][f"{f} {s}"])  # type: ignore[misc]
                spent = sum((Fraction(question["share"]) for question in paid), Fraction(0))
                total += cost[i, labels.index(name)] - math.log1p(-float(spent))
        return total

    deepest = min(range(DEEPEST + 1), key=elsewhere)
    return tree(np.ones(len(fold), dtype=bool), deepest)


def _grow(
    read: Floats, cost: Floats, labels: list[str], *, least: float, depth: int, asked: dict[int, Fraction]
) -> auto.Node:
    """Return the best label for some readings, or the question that brings most, its own price included.

    Args:
        read: what was read, readings x questions.
        cost: of every label, readings x labels.
        least: what a question must bring.
        depth: how many more may follow one another.
        asked: the questions on the way here, and what each took of the budget.
    """
    alone = cost.sum(axis=0)
    best, found = float(alone.min()) - least, None
    spent = sum(asked.values(), Fraction(0))
    for j, (_, share) in enumerate(QUESTIONS if depth else ()):
        price = Fraction(0) if j in asked else Fraction(share)
        if spent + price > MOST:
            continue
        order = np.argsort(read[:, j], kind="stable")
        values, sums = read[order, j], np.cumsum(cost[order], axis=0)
        # Wherever noise decides the error, a share less makes it as much larger.
        paid = -math.log1p(-float(price / (1 - spent))) * len(cost)
        for at in np.unique(np.searchsorted(values, np.quantile(values, np.linspace(0.02, 0.98, 49)))):
            if not LEAST <= at <= len(cost) - LEAST or values[at] == values[at - 1]:
                continue
            total = float(sums[at - 1].min() + (sums[-1] - sums[at - 1]).min()) + paid
            if total < best:
                best, found = total, (j, float(values[at - 1] + values[at]) / 2)
    if found is None:
        return labels[int(alone.argmin())]
    j, below = found
    below = float(f"{below:.3g}")
    inside = read[:, j] < below
    way = asked | {j: asked.get(j, Fraction(QUESTIONS[j][1]))}
    then, other = (
        _grow(read[part], cost[part], labels, least=least, depth=depth - 1, asked=way)
        for part in (inside, ~inside)
    )
    if then == other and isinstance(then, str):
        return then
    feature, share = QUESTIONS[j]
    return {"feature": feature, "share": share, "below": below, "then": then, "else": other}


def train(out: Path, *, jobs: int) -> None:
    """Study the examples, learn the trees and write the table."""
    rows = collect(out, {kind: range(count) for kind, count in EXAMPLES.items()}, jobs=jobs)
    found: dict[str, Any] = {
        "version": VERSION,
        "made_by": "python -m benchmarks.auto train",
        "examples": EXAMPLES,
        "features": {name: feature.meaning for name, feature in auto.FEATURES.items()}
        | {
            "mass": "the decimal logarithm of the number of records, in scales of the noise",
            "signal": "the same of the mean count per bin",
            "bins": "the same of the number of bins, which is public",
        },
    }
    for kind in EXAMPLES:
        some = [row for row in rows if row["kind"] == kind]
        found[kind] = {asked: learn(some, asked) for asked in WORKLOADS[kind]}
    auto.TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    _say(f"wrote {auto.TABLE}")


def made_up(out: Path, *, count: int, jobs: int) -> Iterator[Row]:
    """Hold the method against its own candidates on made-up data that it was not taught with."""
    numbers = range(HELD_OUT, HELD_OUT + count)
    studied = collect(out, dict.fromkeys(EXAMPLES, numbers), jobs=jobs)
    for kind, workloads in WORKLOADS.items():
        rows = [row for row in studied if row["kind"] == kind]
        for asked in workloads:
            some = [row for row in rows if asked in row["errors"]]
            ours = [_errors(kind, row["number"], asked, ("auto",), trials=6)["auto"] for row in some]
            least = [min(row["errors"][asked].values()) for row in some]
            regret = np.array(ours) / np.array(least)
            what = "made-up histograms, not learnt from; regret against the best of the candidates"
            mean, most = metrics.geometric_mean(regret), float(np.quantile(regret, 0.95))
            yield _row(f"{kind}, {asked}: mean", what, len(some), 6, mean, "times")
            yield _row(f"{kind}, {asked}: 95 % are below", what, len(some), 6, most, "times")
            fixed = {
                label: metrics.geometric_mean(
                    [row["errors"][asked][label] / low for row, low in zip(some, least, strict=True)]
                )
                for label in CANDIDATES[kind, asked]
            }
            best = min(fixed, key=fixed.__getitem__)
            yield _row(
                f"{kind}, {asked}: always {best}", what, len(some), TRIALS[asked], fixed[best], "times"
            )


def real(folder: Path, out: Path, *, jobs: int, trials: int) -> Iterator[Row]:
    """Hold the method against every other one on real histograms."""
    sources = data.folder(folder, dims=1)
    methods = list(CATALOGUE)
    workloads = tuple(WORKLOADS["line"].values())
    first = grid.run(grid.Grid(sources, EPSILONS, workloads, methods, 3).cells(), out=out, jobs=jobs)
    cell = ("dataset", "epsilon", "workload")
    rough = metrics.regret(metrics.summarise(first, by=(*cell, "method"), value="mean_squared"), cell=cell)
    near = {tuple(line[k] for k in (*cell, "method")) for line in rough if line["regret"] < 4}
    again = [
        grid.Cell(source, epsilon, workload, method, trials)
        for source in sources
        for epsilon in EPSILONS
        for workload in workloads
        for method in methods
        if method == "auto" or (source.name, float(epsilon), workload, method) in near
    ]
    second = grid.run(again, out=out, jobs=jobs)
    # The first trials of the second round are those of the first.
    found = {tuple(row[k] for k in (*cell, "method", "trial")): row for row in (*first, *second)}
    lines = metrics.summarise(found.values(), by=(*cell, "method"), value="mean_squared")
    errors: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        errors.setdefault(tuple(line[k] for k in cell), {})[line["method"]] = math.sqrt(line["mean"])
    least = {at: min(v for m, v in each.items() if m != "auto") for at, each in errors.items()}
    everywhere = [m for m in methods if all(m in each for each in errors.values())]
    regret = {m: {at: each[m] / least[at] for at, each in errors.items()} for m in everywhere}
    names = {spec: asked for asked, spec in WORKLOADS["line"].items()}
    for at, value in regret["auto"].items():
        what = "auto's error over the least of any method, per query, its own features paid for"
        yield _row(f"{at[0]}, epsilon {at[1]:g}, {names[at[2]]}", what, 1, trials, value, "times", at_most=2)
    mean = {method: metrics.geometric_mean(list(each.values())) for method, each in regret.items()}
    ours = mean.pop("auto")
    what = f"geometric mean of the regret over {len(regret['auto'])} cells"
    cells = len(regret["auto"])
    yield _row("auto", what, cells, trials, ours, "times", at_most=1.15)
    worst = max(regret["auto"].values())
    yield _row("auto, worst", "the largest regret of all cells", cells, trials, worst, "times", at_most=2)
    for method in sorted(mean, key=mean.__getitem__)[:5]:
        also = f"{what}; its worst is {max(regret[method].values()):.3g}"
        yield _row(f"always {method}", also, cells, trials, mean[method], "times")
    ratio, also = ours / min(mean.values()), f"{what}, over that of the best method"
    yield _row("auto against one method", also, cells, trials, ratio, "times", at_most=1)


def main(arguments: list[str] | None = None) -> int:
    """Train, or evaluate: print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto", description=__doc__)
    parser.add_argument("what", choices=("train", "evaluate", "held-out"))
    parser.add_argument(
        "--data", type=Path, default=data.DPBENCH, help="a folder with real histograms, .npy or .csv"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where studies and trials are kept")
    parser.add_argument("--table", type=Path, help="a Markdown file for all figures")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--trials", type=int, default=20, help="of every method that comes near the best")
    given = parser.parse_args(arguments)
    if given.what == "train":
        train(given.out, jobs=given.jobs)
        return 0
    if given.what == "held-out":
        rows = made_up(given.out, count=100, jobs=given.jobs)
    else:
        rows = real(given.data, given.out, jobs=given.jobs, trials=given.trials)
    return _report(rows, table=given.table, about=ABOUT)


if __name__ == "__main__":
    _run(main)
