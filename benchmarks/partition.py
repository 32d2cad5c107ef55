"""Speed, exactness and quality of the partitions: ``python -m benchmarks.partition [--data DIR]``.

One JSON line per figure on standard output, progress and a readable table on standard error; the exit
code is 1 if a limit is missed. Times are CPU time, the minimum of the repeats; ratios are to a stable
``np.argsort`` of as many doubles, measured in turn with what they judge.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dphist
from benchmarks.core import Row, _fastest, _in_turn, _report, _row, _run, _say
from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.kernels.partition import changepoints, costs, deviations, l1_search, segments
from dphist.lab.data import DPBENCH
from dphist.methods.catalogue import CATALOGUE, Method, choose, make_pipeline
from dphist.methods.pipeline import Pipeline
from dphist.steps import partition
from dphist.steps.partition import formulas
from dphist.uncertainty import noise_law

EPSILONS = ("0.01", "0.1", "1")


def _search(method: Method) -> partition.Optimal | None:
    """Return the exact search for the best groups that a method makes as published, if it makes one."""
    step = method.build(Domain((Integers(0, 63),))).partition
    return step if isinstance(step, partition.Optimal) and step.penalty == "published" else None


SORTED = choose(lambda m: m.family == "sorted", lambda m: _search(m) is not None)
METHODS = choose(
    lambda m: m.family in ("sorted", "runs") or m.name == "identity",
    lambda m: m.cost in ("near-linear", "quadratic"),
)
# Tried with penalty="auto", which the catalogue offers of some.
CHOSEN = choose(
    lambda m: m.family in ("sorted", "runs"),
    lambda m: (search := _search(m)) is not None and getattr(search.formula, "extra", None) == 0,
)
OFFERED = tuple(name for name in CHOSEN if f"{name}-auto" in CATALOGUE)
GB = 1 << 30


def main(arguments: list[str] | None = None) -> int:
    """Print every figure and return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partition", description=__doc__)
    parser.add_argument("--data", type=Path, default=DPBENCH, help="folder with 1D/*.npy, real histograms")
    parser.add_argument("--trials", type=int, default=20, help="of every method on every histogram")
    given = parser.parse_args(arguments)

    def real() -> dict[str, Ints]:
        return _real(given.data)

    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "exactness": exactness,
        "whole releases": whole_releases,
        "unordered": unordered,
        "growth": growth,
        "the private L1 partition": l1_partitions,
        "memory": memory,
        "penalties": lambda: penalties(real() | made_up(), trials=-(-given.trials // 2)),
        "quality": lambda: quality(real(), trials=given.trials),
    }
    return _report(_in_turn(parts))


def whole_releases(*, sizes: tuple[int, ...] = (1_000_000, 10_000_000)) -> Iterator[Row]:
    """Time sorted methods end to end on ready counts."""
    for n in sizes:
        repeats, limit = (5, 8) if n <= 1_000_000 else (2, 10)
        doubles = np.random.default_rng(2).standard_normal(n)
        for shape, counts in _large(n).items():
            sort, *taken = _fastest(
                repeats,
                partial(np.argsort, doubles, kind="stable"),
                *(partial(dphist.simulate, counts, epsilon="0.1", method=m) for m in SORTED),
            )
            for method, seconds in zip(SORTED, taken, strict=True):
                what = f"simulate(method='{method}'), {shape}, {seconds:.2f} s of CPU, over stable argsort"
                yield _row(method, what, n, repeats, seconds / sort, "argsorts", at_most=limit)


def unordered(*, n: int = 1_000_000) -> Iterator[Row]:
    """Time S2 end to end, with its own penalty and with one chosen from the noisy counts."""
    doubles = np.random.default_rng(2).standard_normal(n)
    for shape, counts in _large(n).items():
        sort, s2, chosen = _fastest(
            3,
            partial(np.argsort, doubles, kind="stable"),
            partial(dphist.simulate, counts, epsilon="0.1", method="s2"),
            partial(dphist.simulate, counts, epsilon="0.1", method=_auto("s2", n)),
        )
        what = f"simulate, {shape}, unordered bins, over stable argsort"
        yield _row("s2", f"{what}; {s2:.2f} s of CPU", n, 3, s2 / sort, "argsorts", at_most=8)
        yield _row("s2, penalty='auto'", f"{what}; {chosen:.2f} s of CPU", n, 3, chosen / sort, "argsorts")


def growth(*, sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)) -> Iterator[Row]:
    """Fit the exponent of n in the time of the unordered search, on shapes that could defeat its pruning."""
    rough = noise_law.variance(40.0)
    final = noise_law.variance(40.0 / 3)
    for name, formula in (
        ("1/epsilon^2 (published)", formulas.Constant()),
        ("by size (unbiased error)", formulas.Unbiased()),
        ("2 rough ln n", formulas.Logarithmic()),
    ):
        search = partition.Optimal(formula)
        for shape in _series(4):
            seconds = []
            for n in sizes:
                h = _series(n)[shape]
                repeats = 3 if n >= 1_000_000 else 10
                seconds += _fastest(repeats, partial(search.cut, h, rough, final))
            slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
            what = f"exponent of n, {sizes[0]} to {sizes[-1]} bins, {shape}, {seconds[-1]:.3f} s at the last"
            yield _row(f"growth of s2, {name}", what, sizes[-1], 3, slope, "exponent", at_most=1.2)


def l1_partitions() -> Iterator[Row]:
    """Time the private L1 partition: costs, noise and search."""
    n = 1 << 20
    doubles = np.random.default_rng(2).standard_normal(n)
    distinct = np.random.default_rng(3).permutation(n).astype(np.int64)
    for shape, counts in (_large(n) | {"all counts different": distinct}).items():
        sort, taken = _fastest(
            2,
            partial(np.argsort, doubles, kind="stable"),
            partial(dphist.simulate, counts, epsilon="0.1", method="sa"),
        )
        what = f"simulate(method='sa'), {shape}, {taken:.2f} s of CPU, over stable argsort"
        yield _row("L1, powers of two", what, n, 2, taken / sort, "argsorts", at_most=30)
    n = 32_768
    for shape, counts in (_large(n) | {"all counts different": distinct[distinct < n]}).items():
        (taken,) = _fastest(1, partial(dphist.simulate, counts, epsilon="0.1", method="s1"))
        yield _row("L1, all intervals", f"simulate(method='s1'), {shape}", n, 1, taken, "s", at_most=30)


def memory(*, n: int = 10_000_000) -> Iterator[Row]:
    """Measure the peak of a process that does nothing else than one release."""
    code = (
        "import resource, sys, numpy as np, dphist\n"
        "c = np.minimum(np.random.default_rng(1).zipf(1.5, int(sys.argv[2])), 10**6)\n"
        "dphist.simulate(c, epsilon='0.1', method=sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    for method in (*SORTED, "sdwf-pow2", "s2", "sa"):
        run = subprocess.run(
            [sys.executable, "-c", code, method, str(n)], check=True, capture_output=True, text=True
        )
        peak = int(run.stdout) * 1024 / GB
        yield _row("memory", f"peak of simulate(method='{method}')", n, 1, peak, "GiB", at_most=4 * 1e9 / GB)


def exactness(*, inputs: int = 3000) -> Iterator[Row]:
    """Compare every exact search with a slow twin that tries all last groups: O(n^2), exact squares."""
    rng = np.random.default_rng(7)
    worst: dict[str, float] = {}
    for _ in range(inputs):
        h = _awkward(rng)
        ordered = np.sort(h)
        unit = float(rng.choice([0.5, 10, 1000, 1e6]))
        beta, a = (float(v) for v in unit * rng.choice([0, 0.1, 1, 10], 2))
        numbers = formulas.Penalty(beta, a, float(rng.choice([0, 0.3, 9])))._asdict()
        powers = 2 ** np.arange(h.size.bit_length())
        k, price = int(rng.integers(1, h.size + 1)), int(rng.integers(0, 50))
        x = np.abs(h[:24])
        table, ordered_table = _squares(h), _squares(ordered)
        median = l1_search.best_intervals(x, center="median", penalty=price)
        free = formulas.Penalty(0.0, 0.0, 0.0)._asdict()
        pairs = {
            "optimal_sorted": (
                costs.cost(ordered, segments.optimal_sorted(ordered, **numbers), **numbers),
                _least_cost(ordered_table, **numbers),
            ),
            "optimal_runs": (
                costs.cost(h, changepoints.optimal_runs(h, **numbers), **numbers),
                _least_cost(table, **numbers),
            ),
            "powers_of_two": (
                costs.cost(h, changepoints.powers_of_two(h, **numbers), **numbers),
                _least_cost(table, **numbers, sizes=powers),
            ),
            "k_groups_sorted": (
                costs.cost(ordered, segments.k_groups_sorted(ordered, k), **free),
                _least_sse(ordered_table, k),
            ),
            "L1 over all intervals": (
                float(sum(_l1(x[i:j]) + price for i, j in itertools.pairwise(median))),
                float(_least_l1(x, price)),
            ),
        }
        for name, (found, least) in pairs.items():
            gap = 0.0 if found == least else abs(found - least) / max(least, 1e-300)
            worst[name] = max(worst.get(name, 0.0), gap)
    for name, gap in worst.items():
        what = f"largest relative distance from an O(n^2) twin over {inputs} inputs, counts to 1e12"
        yield _row(f"exactness of {name}", what, 60, inputs, gap, "relative", at_most=1e-9)


def penalties(shapes: dict[str, Ints], *, trials: int) -> Iterator[Row]:
    """Compare larger penalties, and the one chosen from the noisy counts, with the published one."""
    for method in CHOSEN:
        ratios: dict[str, list[tuple[float, str]]] = {}
        for epsilon in EPSILONS:
            for shape, counts in shapes.items():
                base = _error(counts, method, epsilon, trials)
                for name, pipeline in _variants(method, counts.size).items():
                    ratio = _error(counts, pipeline, epsilon, trials) / base
                    ratios.setdefault(name, []).append((ratio, f"{shape}, epsilon {epsilon}"))
        for name, found in ratios.items():
            mean = math.exp(sum(math.log(r) for r, _ in found) / len(found))
            most, where = max(found)
            # Offered where it keeps the promise: better on average, never more than 10 % worse.
            judged = name == "auto" and method in OFFERED
            what = f"squared error over the published penalty's, {len(found)} shapes and epsilons"
            row = partial(_row, f"{method}, penalty {name}", n=counts.size, repeats=trials, unit="times")
            yield row(f"{what}, geometric mean", value=mean, at_most=1.0 if judged else None)
            yield row(f"{what}, worst: {where}", value=most, at_most=1.1 if judged else None)


def quality(shapes: dict[str, Ints], *, trials: int) -> Iterator[Row]:
    """Print the squared error per bin of every method on real histograms, and a table of it."""
    table: dict[tuple[str, str], dict[str, float]] = {}
    for epsilon in EPSILONS:
        for shape, counts in shapes.items():
            methods: dict[str, str | Pipeline] = {m: m for m in METHODS}
            methods |= {f"{m}, auto": _auto(m, counts.size) for m in OFFERED}
            for name, method in methods.items():
                error = _error(counts, method, epsilon, trials)
                table.setdefault((epsilon, name), {})[shape] = error
                what = f"{shape}, epsilon {epsilon}: squared error per bin"
                yield _row(f"quality of {name}", what, counts.size, trials, error, "records^2")
    for epsilon in EPSILONS if shapes else ():
        _say(f"\nsquared error per bin over identity's, epsilon {epsilon}")
        _say(f"{'':14}" + "".join(f"{shape[:10]:>11}" for shape in shapes) + f"{'geo mean':>11}")
        base = table[epsilon, "identity"]
        for (_, name), errors in ((k, v) for k, v in table.items() if k[0] == epsilon):
            shown = [base[s] if name == "identity" else errors[s] / base[s] for s in shapes]
            last = [1.0] if name == "identity" else shown
            mean = math.exp(sum(math.log(v) for v in last) / len(last))
            _say(f"{name:14}" + "".join(f"{v:11.4g}" for v in (*shown, mean)))


def made_up(n: int = 4096) -> dict[str, Ints]:
    """Return histograms of known shapes."""
    rng = np.random.default_rng(5)
    at = (np.arange(n) + 0.5) / n
    power = (20_000 / np.arange(1, n + 1) ** 1.1).astype(np.int64)
    spikes = np.zeros(n, dtype=np.int64)
    spikes[rng.choice(n, n // 100, replace=False)] = (10 ** rng.uniform(1, 4, n // 100)).astype(np.int64)
    cuts = np.sort(rng.choice(n, 19, replace=False))
    heaps = (60 * np.exp(-3 * at)).astype(np.int64)
    heaps[::10] *= 4
    heaps[::100] *= 5
    hump = 400 * np.exp(-0.5 * ((at - 0.35) / 0.1) ** 2) + 150 * np.exp(-0.5 * ((at - 0.7) / 0.04) ** 2)
    return {
        "power law": power,
        "power law, shuffled": rng.permutation(power),
        "sparse spikes": spikes,
        "steps": (10 ** rng.uniform(0, 3, 20)).astype(np.int64)[np.searchsorted(cuts, np.arange(n))],
        "smooth": hump.astype(np.int64),
        "nothing but noise": np.full(n, 20),
        "heaps at round numbers": heaps,
        "falling, Poisson": rng.poisson(100 * np.exp(-4 * at)),
        "rough": rng.integers(0, 200, n),
    }


def _real(folder: Path) -> dict[str, Ints]:
    files = sorted((folder / "1D").glob("*.npy"))
    if not files:
        _say(f"there are no histograms in {folder / '1D'}: made-up shapes alone. Use --data for real ones.")
    return {f.name.split(".")[0]: np.load(f).astype(np.int64) for f in files}


def _large(n: int) -> dict[str, Ints]:
    rng = np.random.default_rng(1)
    return {
        "power law": np.minimum(rng.zipf(1.5, n), 10**6).astype(np.int64),
        "runs of 1000 bins": np.repeat(rng.integers(0, 2000, n // 1000 + 1), 1000)[:n],
    }


def _series(n: int) -> dict[str, Ints]:
    """Return noisy rows for the unordered search; the last two have long stretches of equal numbers."""
    rng = np.random.default_rng(1)
    p = -math.expm1(-1 / 40)
    noise = rng.geometric(p, n) - rng.geometric(p, n)
    steps = np.repeat(rng.integers(0, 5000, n // 200 + 1), 200)[:n]
    spikes = np.where(rng.random(n) < 0.001, 10_000, 0)
    return {
        "noise alone": noise,
        "noisy steps": steps + noise,
        "noisy ramp": np.arange(n) // 4 + noise,
        "thresholded spikes": np.where(spikes + noise < 400, 0, spikes + noise),
        "flat stretches without noise": np.repeat(rng.integers(0, 5000, n // 5000 + 1), 5000)[:n],
    }


def _auto(method: str, n: int) -> Pipeline:
    pipeline = make_pipeline(method, Domain((Integers(0, n - 1),)))
    return _with(pipeline, penalty="auto")


def _variants(method: str, n: int) -> dict[str, Pipeline]:
    """Return a method with other penalties per group."""
    pipeline = make_pipeline(method, Domain((Integers(0, n - 1),)))
    found = {"auto": _with(pipeline, penalty="auto")}
    if hasattr(pipeline.partition.formula, "extra"):  # type: ignore[attr-defined]
        formula = pipeline.partition.formula  # type: ignore[attr-defined]
        for extra in (1.0, 4.0, round(2 * math.log(n), 1)):
            larger = dataclasses.replace(formula, extra=extra)
            found[f"+{extra:g} rough variances"] = _with(pipeline, formula=larger)
    return found


def _with(pipeline: Pipeline, **changes: Any) -> Pipeline:
    step: Any = pipeline.partition
    return dataclasses.replace(pipeline, partition=dataclasses.replace(step, **changes))


def _error(counts: Ints, method: str | Pipeline, epsilon: str, trials: int) -> float:
    values = dphist.simulate(counts, epsilon=epsilon, method=method, trials=trials, seed=1)
    return float(np.mean((np.asarray(values) - counts) ** 2))


def _awkward(rng: np.random.Generator) -> Ints:
    """Return up to 60 numbers with ties, zeros, negatives, or counts to 1e12."""
    n = int(rng.integers(1, 4) if rng.random() < 0.2 else rng.integers(4, 61))
    kind = int(rng.integers(0, 6))
    if kind == 0:
        return np.zeros(n, dtype=np.int64)
    if kind == 1:
        return rng.integers(0, 3, n)
    if kind == 2:
        return rng.integers(-50, 50, n)
    if kind == 3:
        h = rng.integers(-40, 100, n)
        return np.where(h < 30, 0, h)
    if kind == 4:
        return np.where(rng.random(n) < 0.3, 10**12, 0) + rng.integers(-1000, 1000, n)
    return (10 ** rng.uniform(0, 12, n)).astype(np.int64)


def _squares(h: Ints) -> Floats:
    """Return SSE of h[i:j] at [i, j], infinite where i >= j: whole numbers until the last division."""
    n = h.size
    x = (h - h.min()).astype(object)
    one, two = (np.concatenate([[0], np.cumsum(v)]) for v in (x, x * x))
    size = np.arange(n + 1) - np.arange(n + 1)[:, None]
    s, q = one - one[:, None], two - two[:, None]
    exact = (size.astype(object) * q - s * s).astype(np.float64)
    return np.where(size > 0, exact / np.maximum(size, 1), np.inf)


def _least_cost(table: Floats, *, beta: float, a: float, b: float, sizes: Ints | None = None) -> float:
    n = len(table) - 1
    best = np.zeros(n + 1)
    for j in range(1, n + 1):
        size = np.arange(j, 0, -1)
        tried = best[:j] + table[:j, j] + beta + a / (b + size)
        best[j] = tried.min() if sizes is None else tried[np.isin(size, sizes)].min()
    return float(best[n])


def _least_sse(table: Floats, k: int) -> float:
    best = table[0]
    for _ in range(k - 1):
        best = (best[:, None] + table).min(axis=0)
    return float(best[-1])


def _l1(x: Ints) -> int:
    s = np.sort(x)
    half = s.size // 2
    return int(s[s.size - half :].sum() - s[:half].sum())


def _least_l1(x: Ints, price: int) -> int:
    cap = deviations.cost_cap(x.size)
    best = [0]
    for j in range(1, x.size + 1):
        best.append(min(best[i] + min(_l1(x[i:j]), cap) + price for i in range(j)))
    return best[-1]


if __name__ == "__main__":
    _run(main)
