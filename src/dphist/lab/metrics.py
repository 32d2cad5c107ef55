"""What the rows of a grid say: means with intervals, regret, and which methods are among the best."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dphist.errors import UsageError
from dphist.planning import ranking
from dphist.uncertainty.noise_law import normal_quantile

Row = Mapping[str, Any]
RESAMPLES = 1000
# All that says which trial of which experiment a row is, but for the method.
_TRIAL = ("dataset", "n", "records", "draw", "epsilon", "workload", "judged", "trial")


def summarise(rows: Iterable[Row], *, by: Sequence[str], value: str) -> list[dict[str, Any]]:
    """Return per group the mean, the 95th percentile, and a 95 % bootstrap interval of the mean.

    Rows without a value, as those of failed cells, are left out. The interval is the percentile bootstrap's,
    always of the same resamples. That of few trials is too narrow by what Student's t is wider than the
    normal law, and by the bias of their variance: both ends are moved out by as much (Hesterberg 2015).

    Args:
        by: the columns that make a group.
        value: the column that is summarised.
    """
    groups = _grouped(rows, by, value)
    return [
        dict(zip(by, key, strict=True)) | _summary([row[value] for row in g]) for key, g in groups.items()
    ]


def regret(summary: Iterable[Row], *, cell: Sequence[str], value: str = "mean") -> list[dict[str, Any]]:
    """Return the summary with each line's regret: its value over the least in its cell, 1 for the best."""
    lines = [dict(line) for line in summary]
    best = {key: min(line[value] for line in group) for key, group in _grouped(lines, cell, value).items()}
    for line in lines:
        line["regret"] = _ratio(line[value], best[tuple(line[name] for name in cell)])
    return lines


def competitive(
    rows: Iterable[Row], *, cell: Sequence[str], value: str, level: float = ranking.LEVEL
) -> dict[tuple[Any, ...], list[str]]:
    """Return per cell the methods not significantly worse than the one of least mean, best first.

    Trials are paired: the same sample of the same data under the same name.
    """
    found = {}
    for key, group in _grouped(rows, cell, value).items():
        trials: dict[str, dict[Hashable, float]] = {}
        for row in group:
            trials.setdefault(row["method"], {})[tuple(row.get(name) for name in _TRIAL)] = row[value]
        found[key] = ranking.competitive(trials, level=level)
    return found


def held_out(rows: Iterable[Row], *, cell: Sequence[str], value: str) -> list[dict[str, Any]]:
    """Return for either half of the datasets how the method that is best on the other half fares on it.

    The first, third, ... dataset are one half and the others the second. On one half the method is chosen
    whose regret has the least geometric mean, among those with a value in every cell; what it does there
    flatters it, for it was chosen by that. What it does on the other half does not.

    Args:
        cell: the columns that make a cell, ``dataset`` among them.
        value: the column by which methods are judged.
    """
    lines = regret(summarise(rows, by=[*cell, "method"], value=value), cell=cell)
    names = list(dict.fromkeys(line["dataset"] for line in lines))
    if len(names) < 2:
        raise UsageError(
            "a choice is judged on other data than it was made on, and there is but one dataset: give "
            "another --like or --data."
        )
    cells = {tuple(line[name] for name in cell) for line in lines}
    found: dict[str, dict[tuple[Any, ...], Row]] = {}
    for line in lines:
        found.setdefault(line["method"], {})[tuple(line[name] for name in cell)] = line
    everywhere = {method: list(own.values()) for method, own in found.items() if set(own) == cells}
    if not everywhere:
        raise UsageError("no method ran on all datasets: name others with --method.")
    halves = names[::2], names[1::2]
    return [_judged(everywhere, chosen_on, judged_on) for chosen_on, judged_on in (halves, halves[::-1])]


def _judged(
    lines: Mapping[str, Sequence[Row]], chosen_on: Sequence[str], judged_on: Sequence[str]
) -> dict[str, Any]:
    """Return what the best method on some datasets does on others, beside the best that there was."""

    def regrets(method: str, on: Sequence[str]) -> list[float]:
        return [line["regret"] for line in lines[method] if line["dataset"] in on]

    def mean(method: str, on: Sequence[str]) -> float:
        return geometric_mean(regrets(method, on))

    chosen = min(lines, key=lambda method: mean(method, chosen_on))
    best = min(lines, key=lambda method: mean(method, judged_on))
    return {
        "chosen_on": tuple(chosen_on),
        "judged_on": tuple(judged_on),
        "method": chosen,
        "regret_where_chosen": mean(chosen, chosen_on),
        "regret": mean(chosen, judged_on),
        "worst": max(regrets(chosen, judged_on)),
        "best": best,
        "best_regret": mean(best, judged_on),
    }


def kl_divergence(counts: ArrayLike, values: ArrayLike) -> float:
    """Return the Kullback-Leibler divergence of published values from the counts, in nats.

    Values below 0 become 0; then one record is added to every bin of both (Laplace's rule, so that no bin
    is impossible), and both are divided by their sums. Exact values have the divergence 0.
    """
    p, q = (np.maximum(np.asarray(x, dtype=np.float64).ravel(), 0) + 1 for x in (counts, values))
    p, q = p / p.sum(), q / q.sum()
    return max(0.0, float(p @ np.log(p / q)))


def geometric_mean(x: ArrayLike) -> float:
    """Return the geometric mean of numbers of 0 or more; 0 if one is."""
    a = np.asarray(x, dtype=np.float64).ravel()
    if not a.size or not (a >= 0).all():
        raise UsageError("a geometric mean is of at least one number, and none below 0.")
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(a).mean()))


def _grouped(rows: Iterable[Row], by: Sequence[str], value: str) -> dict[tuple[Any, ...], list[Row]]:
    if isinstance(by, str):
        raise UsageError(f"columns are given as a list, such as [{by!r}].")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for name in (*by, value):
            if name not in row:
                raise UsageError(f"there is no column {name!r}; there are {', '.join(row)}.")
        if row[value] is not None and not math.isnan(row[value]):
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


def _summary(values: Sequence[float]) -> dict[str, Any]:
    x = np.asarray(values, dtype=np.float64)
    # One set of resamples for all groups of a size: the same rows always give the same interval.
    at = np.random.default_rng(0).integers(0, x.size, (RESAMPLES, x.size))
    mean = float(x.mean())
    low, high = mean + _wider(x.size) * (np.percentile(x[at].mean(axis=1), [2.5, 97.5]) - mean)
    return {
        "mean": mean,
        "p95": float(np.percentile(x, 95)),
        "low": float(low if (x < 0).any() else max(low, 0.0)),  # no mean of errors is below 0
        "high": float(high),
        "trials": x.size,
    }


@cache
def _wider(trials: int) -> float:
    """Return how many times too narrow the interval of so many trials is."""
    if trials < 2:
        return 1.0
    return ranking.t_quantile(0.975, trials - 1) / normal_quantile(0.95) * math.sqrt(trials / (trials - 1))


def _ratio(value: float, best: float) -> float:
    if best == 0:
        return 1.0 if value == 0 else math.inf
    return value / best
