"""Advice against the truth on real histograms: ``python -m benchmarks.advice --data FOLDER``.

FOLDER holds DPBench's seven 1-D histograms as NAME.n4096.npy. Each is described in advance by the shape that
``dphist.shapes`` says stands for it; the advice is asked about that shape and the number of records alone,
and compared with what the methods then do on the real counts. And what is said where nothing is known of the
data, an expected error and its range, is compared with the truth on these and on the histograms of
`benchmarks.held_out`, on which nothing was tuned. One JSON line per figure; the exit code is 1 if a limit is
missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from benchmarks import held_out
from benchmarks.accuracy import Case, errors, mean
from benchmarks.core import Row, _report, _row, _run, _say
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, choose, make_pipeline
from dphist.planning.advise import FIXED, Advice, advise
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts

# What `dphist.shapes` says its shapes stand for; taken over before anything was compared.
NEAREST = {
    "ADULTFRANK": "sparse",
    "HEPTH": "tail",
    "INCOME": "heaps",
    "MEDCOST": "sparse",
    "NETTRACE": "early",
    "PATENT": "tail",
    "SEARCHLOGS": "hourly",
}
WORKLOADS = ("points", "random", "prefixes")
EPSILONS = ("0.01", "0.1", "1")
TARGETS = {"points": (1, 10, 100), "random": (10, 100, 1000), "prefixes": (10, 100, 1000)}
TRIALS, PILOT, NEAR = 40, 3, 1.5  # trials of the true error, for methods that are near the best of a pilot
SAME = {"laplace", "auto"}  # identity but for its steps, and one of the others
SLOW = set(choose(lambda m: m.cost == "quadratic"))  # of these a quarter of the trials
REPEATS = 3  # of the times
ABOUT = """# Advice against the truth

Made by `python -m benchmarks.advice`: what is advised for the shape that stands for a histogram, against
what the methods then do on the real one."""
FIRST = 1000  # the first seed of the truth, far from those that advice uses


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the seven histograms")
    parser.add_argument("--jobs", type=int, default=-1, help="cells at once")
    parser.add_argument("--table", type=Path, help="a Markdown file for all figures")
    parser.add_argument("--quick", action="store_true", help="one epsilon and one target, fewer trials")
    parser.add_argument("--parts", default="ranks,targets,stated,times", help="a comma-separated list")
    given = parser.parse_args(arguments)
    files = {name: given.data / f"{name}.n4096.npy" for name in NEAREST}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise UsageError(
            f"there is no {missing[0]}: give the folder of DPBench's 1-D histograms with --data."
        )
    parts = {
        "ranks": lambda: ranks(files, given.jobs, given.quick),
        "targets": lambda: targets(files, given.jobs, given.quick),
        "stated": lambda: stated(files, given.quick),
        "times": times,
    }
    if wrong := [part for part in given.parts.split(",") if part not in parts]:
        raise UsageError(f"there is no part {wrong[0]!r}; there are {', '.join(parts)}.")
    rows = itertools.chain.from_iterable(parts[part]() for part in given.parts.split(","))
    return _report(rows, table=given.table, about=ABOUT)


def ranks(files: dict[str, Path], jobs: int, quick: bool) -> Iterator[Row]:
    """Compare the three methods that are advised with the best by the true error."""
    cells = [
        (path, name, w, e)
        for name, path in files.items()
        for w in WORKLOADS
        for e in EPSILONS[: 1 if quick else 3]
    ]
    _say(f"advice and truth of {len(cells)} cells ...")
    found = Parallel(n_jobs=jobs)(delayed(_cell)(*cell, quick=quick) for cell in cells)
    for (_, name, w, e), cell in zip(cells, found, strict=True):
        what = f"{name} as {NEAREST[name]}, {w}, epsilon {e}: advised {', '.join(cell['advised'])}; "
        what += f"best {cell['best']}, of all methods {cell['catalogue']}; "
        what += "true error of the first advised over that of the best considered"
        yield _row("advice in one cell", what, 4096, cell["trials"], cell["regret"], "times the error")
    n = len(found)
    shares = {key: float(np.mean([cell[key] for cell in found])) for key in ("hit", "hit_all", "near")}
    asked = f"share of {n} cells: seven histograms, {len(WORKLOADS)} workloads, mean absolute error"
    yield _row(
        "best among the advised three",
        f"{asked}; the best of the methods considered",
        4096,
        n,
        shares["hit"],
        "of cells",
        at_least=0.8,
    )
    yield _row(
        "best of all among the three",
        f"{asked}; the best of the whole catalogue",
        4096,
        n,
        shares["hit_all"],
        "of cells",
    )
    near = f"{asked}; one of the three is within 10 % of the best of the whole catalogue"
    yield _row("near the best among the three", near, 4096, n, shares["near"], "of cells")
    regret = float(np.exp(np.mean([np.log(cell["regret"]) for cell in found])))
    first = "true error of the first advised over that of the best considered, geometric mean"
    yield _row("regret of the advice", first, 4096, n, regret, "times the error")


def targets(files: dict[str, Path], jobs: int, quick: bool) -> Iterator[Row]:
    """Compare an error that was asked for with the true one at the epsilon that was advised."""
    cells = [
        (path, name, w, t)
        for name, path in files.items()
        for w in WORKLOADS
        for t in TARGETS[w][: 1 if quick else 3]
    ]
    _say(f"epsilon for {len(cells)} targets ...")
    found = Parallel(n_jobs=jobs)(delayed(_target)(*cell) for cell in cells)
    ratios = []
    for (_, name, w, t), cell in zip(cells, found, strict=True):
        if cell is None:
            _say(f"{name} as {NEAREST[name]}, {w}: an error of {t} needs no data at all; nothing was advised")
            continue
        ratios.append(cell["ratio"])
        what = f"{name} as {NEAREST[name]}, {w}, {t} records per query: "
        what += f"{cell['method']}, epsilon {cell['epsilon']}"
        yield _row(
            "error for one target",
            f"{what}; true error over it",
            4096,
            TRIALS,
            cell["ratio"],
            "of the target",
        )
    off = [max(r, 1 / r) for r in ratios]
    what = f"median of {len(off)} targets: the factor by which the true error misses it, either way"
    yield _row("error for a target", what, 4096, len(off), float(np.median(off)), "times", at_most=1.5)
    chosen = [cell["method"] for cell in found if cell is not None]
    some = [factor for factor, method in zip(off, chosen, strict=True) if method not in FIXED]
    adapt = f"the same for the {len(some)} targets where a method was advised that adapts to the data"
    yield _row("error for a target, adaptive", adapt, 4096, len(some), float(np.median(some)), "times")
    near = float(np.mean(np.array(off) <= 1.5))
    yield _row("targets met", "share of targets within a factor of 1.5", 4096, len(off), near, "of targets")


def stated(files: dict[str, Path], quick: bool = False) -> Iterator[Row]:
    """Compare what is said where nothing is known of the data with the truth: the error, and its range."""
    for workload in ("points", "random"):
        found: list[Stated] = []
        for case, advice in _questions(files, workload, quick):
            found.append(_stated(case, advice, workload))
            yield found[-1].row(workload)
        cells = f"{len(found)} cells: public and held-out histograms, {workload}, nothing known of the data"
        for name, share, limit in (
            ("truth in the stated range", [f.holds for f in found], 0.9),
            ("truth within 1.5 of the expected error", [_factor(f) <= 1.5 for f in found], None),
            ("best among the first three", [f.hit for f in found], None),
        ):
            value = float(np.mean(share))
            yield _row(name, f"share of {cells}", 0, len(found), value, "of cells", at_least=limit)
        worst = max(found, key=_factor)
        far = f"{cells}; the worst: {worst.what}, {worst.error:.3g} came out as {worst.truth:.3g}"
        off = float(np.median([_factor(f) for f in found]))
        yield _row("factor between expected and true", f"median of {far}", 0, len(found), off, "times")
        wide = float(np.median([f.high / f.low for f in found if f.low > 0]))
        yield _row("high end over low end", f"median of {cells}", 0, len(found), wide, "times")


@dataclass(frozen=True)
class Stated:
    """What was said of a histogram, and the truth, known up to a standard error."""

    what: str
    method: str
    error: float
    low: float
    high: float
    truth: float
    se: float
    hit: bool

    @property
    def holds(self) -> bool:
        """Whether the truth lies in the range, as far as these runs tell."""
        return self.low - 3 * self.se <= self.truth <= self.high + 3 * self.se

    def row(self, workload: str) -> Row:
        """Return a line about this cell."""
        said = f"{self.method}, {self.error:.3g}, from {self.low:.3g} to {self.high:.3g}"
        what = f"{self.what}, {workload}: advised {said}; true error over the expected one"
        return _row("stated error", what, 0, 1, self.truth / self.error, "times")


def _factor(said: Stated) -> float:
    return max(said.truth / said.error, said.error / said.truth)


def _questions(files: dict[str, Path], workload: str, quick: bool) -> Iterator[tuple[Case, Advice]]:
    """Yield histograms with the advice for as many bins and records, at several epsilons."""
    for n in (256,) if quick else (256, 2000):
        made_up = [Case(m, False, held_out.line(m, n=n, records=100 * n)) for m in held_out.LINES]
        for epsilon in EPSILONS:
            advice = advise(n, records=100 * n, epsilon=epsilon, workload=workload)
            yield from ((case, advice) for case in made_up)
    for name, path in () if quick else files.items():
        case = Case(name, True, np.add.reduceat(np.load(path).astype(np.int64), np.arange(0, 4096, 4)))
        for epsilon in EPSILONS:
            total = int(case.counts.sum())
            yield case, advise(1024, records=total, epsilon=epsilon, workload=workload)


def _stated(case: Case, advice: Advice, workload: str) -> Stated:
    best, queries = advice.best, make_workload(workload, case.domain)
    runs = 4 if workload == "points" else 8
    first = list(dict.fromkeys([best.method, *(row.method for row in advice.rows[:6])]))
    true = {}
    for method in first:
        pipeline = make_pipeline(method, case.domain, queries).with_intervals()  # as it is published
        true[method] = mean(errors(pipeline, case, queries, str(best.epsilon), runs))
    what = f"{case.name}, {case.facts['bins']} bins, epsilon {float(best.epsilon):g}"
    hit = min(true, key=lambda m: true[m].value) in [row.method for row in advice.rows[:3]]
    low, high = best.low or 0.0, best.high or float("inf")
    found = true[best.method]
    return Stated(what, best.method, best.error, low, high, found.value, found.se, hit)


def times() -> Iterator[Row]:
    """Time the command in new processes: nothing kept, all kept, and with no compiled kernels either."""
    script = Path(sys.executable).with_name("dphist")
    if not script.exists():
        raise UsageError(f"there is no {script}: install the package first, with pip install -e .")
    questions = [
        ("--workload", w, *ask)
        for w in ("points", "ranges", "prefixes")
        for ask in (("--epsilon", "1"), ("--error", "2%"))
    ]
    command = [str(script), "advise", "--bins", "4096", "--records", "1e6"]
    cold: dict[tuple[str, ...], float] = {}
    warm: dict[tuple[str, ...], float] = {}
    for question in questions:
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as empty:
                for least in (cold, warm):
                    seconds = _wall([*command, *question], {"XDG_CACHE_HOME": empty})
                    least[question] = min(seconds, least.get(question, seconds))
    what = f"dphist advise at 4,096 bins, the slowest of {len(questions)} questions, wall time, minimum"
    yield _row("advice, cold", f"{what}; nothing kept", 4096, REPEATS, max(cold.values()), "s", at_most=10)
    yield _row("advice, warm", f"{what}; asked before", 4096, REPEATS, max(warm.values()), "s", at_most=1)
    with tempfile.TemporaryDirectory() as empty:
        first = _wall([*command, *questions[0]], {"XDG_CACHE_HOME": empty, "NUMBA_CACHE_DIR": empty})
    yield _row("advice, first ever", "the same with every kernel to compile", 4096, 1, first, "s")


def _wall(command: list[str], more: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | more)
    return time.perf_counter() - start


def _cell(path: Path, name: str, workload: str, epsilon: str, *, quick: bool) -> dict[str, Any]:
    counts = _real(path)
    advice = advise(4096, records=counts.values.sum(), epsilon=epsilon, workload=workload, like=NEAREST[name])
    advised = [row.method for row in advice.rows[:3]]
    leave = SAME | (SLOW if quick else set())
    names = [name for name in CATALOGUE if name not in leave]
    pilot = {m: _true(counts, m, workload, epsilon, 1 if m in SLOW else PILOT) for m in names}
    limit = NEAR * min(pilot.values())
    runs = 10 if quick else TRIALS
    truth = {
        m: _true(counts, m, workload, epsilon, runs // 4 if m in SLOW else runs)
        for m in names
        if pilot[m] <= limit or m in advised
    }
    considered = {row.method for row in advice.rows}
    best = min((m for m in truth if m in considered), key=lambda m: truth[m])
    catalogue = min(truth, key=lambda m: truth[m])
    return {
        "advised": advised,
        "best": best,
        "catalogue": catalogue,
        "hit": best in advised,
        "hit_all": catalogue in advised or any(truth[m] == truth[catalogue] for m in advised),
        "near": min(truth[m] for m in advised) <= 1.1 * truth[catalogue],
        "regret": truth[advised[0]] / truth[best],
        "trials": runs,
    }


def _target(path: Path, name: str, workload: str, target: float) -> dict[str, Any] | None:
    counts = _real(path)
    try:
        total, near = counts.values.sum(), NEAREST[name]
        advice = advise(4096, records=total, error=target, workload=workload, like=near)
    except UsageError as refused:
        if "needs no data" not in str(refused):
            raise
        return None
    best = advice.best
    found = _true(counts, best.method, workload, str(best.epsilon), TRIALS)
    return {"method": best.method, "epsilon": f"{float(best.epsilon):g}", "ratio": found / target}


def _real(path: Path) -> Counts:
    return Counts(np.load(path).astype(np.int64), Domain((Integers(0, 4095),)))


def _true(counts: Counts, method: str, workload: str, epsilon: str, runs: int) -> float:
    """Return the mean absolute error per query on real counts; infinite where the method does not apply."""
    queries = make_workload(workload, counts.domain)
    pipeline = make_pipeline(method, counts.domain, queries).with_intervals()  # as it is published
    try:
        pipeline.check(counts.domain, queries)
    except UsageError:
        return float("inf")
    seeds = range(FIRST, FIRST + runs)
    made = trials(pipeline, counts, queries, epsilon=Fraction(epsilon), seeds=seeds)
    return float(np.mean([queries.mean_absolute_error(trial.values - counts.values) for trial in made]))


if __name__ == "__main__":
    _run(main)
