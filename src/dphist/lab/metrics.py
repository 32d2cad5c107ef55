"""What the rows of a grid say: means with intervals, regret, and which methods are among the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dphist.errors import UsageError

Row = Mapping[str, Any]
RESAMPLES = 1000
# All that says which trial of which experiment a row is, but for the method.
_TRIAL = ("dataset", "n", "records", "draw", "epsilon", "workload", "judged", "trial")


def summarise(rows: Iterable[Row], *, by: Sequence[str], value: str) -> list[dict[str, Any]]:
    """Return per group the mean, the 95th percentile, and a 95 % bootstrap interval of the mean.

    Rows without a value, as those of failed cells, are left out. The interval is the percentile bootstrap's,
    always of the same resamples; from five trials it is somewhat too narrow.

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
    rows: Iterable[Row], *, cell: Sequence[str], value: str, level: float = 0.05
) -> dict[tuple[Any, ...], list[str]]:
    """Return per cell the methods not significantly worse than the one of least mean, best first.

    As in DPBench: a t-test against the best, two-sided, at a level divided by the number of comparisons
    (Bonferroni). Trials are paired: the same sample of the same data under the same name.
    """
    found = {}
    for key, group in _grouped(rows, cell, value).items():
        trials: dict[str, dict[tuple[Any, ...], float]] = {}
        for row in group:
            trials.setdefault(row["method"], {})[tuple(row.get(name) for name in _TRIAL)] = row[value]
        ranked = sorted(trials, key=lambda method: math.fsum(trials[method].values()) / len(trials[method]))
        best, least = trials[ranked[0]], level / max(1, len(ranked) - 1)
        found[key] = [ranked[0]]
        for method in ranked[1:]:
            both = [at for at in trials[method] if at in best]
            if paired_t_test([trials[method][at] for at in both], [best[at] for at in both]) >= least:
                found[key].append(method)
    return found


def paired_t_test(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of Student's t-test that pairs differ by nothing on average.

    Fewer than two pairs show nothing: 1. Pairs that all differ by the same leave no doubt: 0, or 1 if by 0.
    """
    d = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    if d.size < 2:
        return 1.0
    spread = float(d.std(ddof=1)) / math.sqrt(d.size)
    if spread == 0:
        return float(d.mean() == 0)
    t = float(d.mean()) / spread
    return incomplete_beta((d.size - 1) / 2, 0.5, (d.size - 1) / (d.size - 1 + t * t))


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


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 10_000):  # Lentz's method
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d, tiny)
            c = _away(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value / a


def _away(x: float, tiny: float) -> float:
    return x if abs(x) > tiny else tiny


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
    low, high = np.percentile(x[at].mean(axis=1), [2.5, 97.5])
    return {
        "mean": float(x.mean()),
        "p95": float(np.percentile(x, 95)),
        "low": float(low),
        "high": float(high),
        "trials": x.size,
    }


def _ratio(value: float, best: float) -> float:
    if best == 0:
        return 1.0 if value == 0 else math.inf
    return value / best
