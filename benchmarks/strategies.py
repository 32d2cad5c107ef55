"""Hats for all ranges and all prefixes: compare their error per query, or fit the constants of their rule.

    python -m benchmarks.strategies                     by the rule, evenly spaced, and with every weight free
    python -m benchmarks.strategies prefixes 2 700      fit the two levels of hats for prefixes in 700 steps

A fit begins at the constants of `dphist.kernels.trees.hat_rules`, lowers the mean logarithm of the error over
numbers of bins that so many levels are for, by the method of Nelder and Mead, and prints what to put there.
With every weight free, the gradient leads from the rule's hats to a local minimum; none below is known. No
data are read: all of this is public arithmetic.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import minimize

from dphist.domain.groups import Floats
from dphist.errors import UsageError
from dphist.kernels.trees.hat_rules import LEAST, RULES, Rule
from dphist.kernels.trees.hats import HatShape, even_hats, fitted_hats, place_knots, stack_hats
from dphist.kernels.trees.hats_fit import hats_expected_error
from dphist.kernels.trees.variances import query_count

_FINE = 1 << 16  # a whole that makes the error a smoother function of the constants
_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 1 << 14, 1 << 17, 1 << 20)
_FREE = 1024  # bins, up to which every weight is set free


def compare() -> None:
    """Print the error per query, in units of 2/epsilon^2."""
    print("| bins | queries | evenly spaced | by the rule | ratio | every weight free |")
    print("|---|---|---|---|---|---|")
    for n in _SIZES:
        for queries in LEAST:
            hats = fitted_hats(n, queries)
            even, ruled = (hats_expected_error(x, queries) for x in (even_hats(n, queries), hats))
            free = f"{_free_error(hats, queries):.2f}" if n <= _FREE else ""
            print(
                f"| {n:,} | {queries} | {even:.2f} | {ruled:.2f} | {ruled / even:.3f} | {free} |", flush=True
            )


def _free_error(hats: HatShape, queries: str) -> float:
    """Return the least error that changing any weight leads to, with as many hats."""
    shape = (hats.first.size, hats.n)
    weights = np.zeros(shape)
    for h, first in enumerate(hats.first):
        part = hats.weights[hats.offset[h] : hats.offset[h + 1]]
        weights[h, first : first + part.size] = part

    def error_and_gradient(flat: Floats) -> tuple[float, Floats]:
        error, gradient = _error_of(flat.reshape(shape), queries)
        return error, gradient.ravel()

    start = (weights / hats.bins).ravel()  # relative to the bins' own weights
    bounds = [(0.0, None)] * start.size
    options = {"maxiter": 400, "maxcor": 20}
    found = minimize(error_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun)


def _error_of(relative: Floats, queries: str) -> tuple[float, Floats]:
    """Return the error per query of the bins and rows of weights relative to theirs, and its gradient.

    With R = (1 + T'T)^-1, T the relative weights and s = 1 + their sums, the error is tr(R diag(s) W'W
    diag(s)): what McKenna and others call a p-Identity strategy.
    """
    p, n = relative.shape
    scale, count = 1.0 + relative.sum(axis=0), query_count(np.ones(n, np.int64), queries)
    at = np.arange(float(n))
    often = n - at if queries == "prefixes" else (at + 1) * (n - at)  # queries that hold each bin
    solved = np.linalg.solve(np.eye(p) + relative @ relative.T, relative)
    across = _times_gram(relative * scale, queries)
    kept = (solved * across).sum(axis=0)
    back = _times_gram(solved * scale, queries) * scale
    gradient = 2.0 * (often * scale - kept) - 2.0 * (back - (back @ solved.T) @ relative)
    return float(((often * scale - kept) * scale).sum()) / count, gradient / count


def _times_gram(rows: Floats, queries: str) -> Floats:
    """Return rows times W'W of all prefixes or all ranges."""
    prefixes = np.cumsum(np.cumsum(rows, axis=1)[:, ::-1], axis=1)[:, ::-1]
    if queries == "prefixes":
        return np.asarray(prefixes)
    n = rows.shape[1]
    ends = n - np.arange(float(n))
    return np.asarray((n + 1) * prefixes - np.outer(rows @ ends, ends))


def fit(queries: str, levels: int, steps: int) -> None:
    """Print better constants for this many levels."""
    least, most = (*LEAST[queries], 4 * LEAST[queries][-1])[levels - 1 : levels + 1]
    sizes = np.unique(np.rint(np.geomspace(least, most, 11)).astype(int)).tolist()
    rules = RULES[queries][levels - 1]
    even = {n: hats_expected_error(even_hats(n, queries), queries) for n in sizes}

    def cost(constants: Floats) -> float:
        if (constants < 0.02).any():
            return 10.0
        rule = _as_rules(constants, queries)
        return float(np.mean([np.log(_error_by(rule, n, queries) / even[n]) for n in sizes]))

    start = np.array([x for rule in rules for x in rule])
    simplex = start * (1.0 + 0.15 * np.vstack((np.zeros(start.size), np.eye(start.size))))
    options = {"maxfev": steps, "adaptive": True, "initial_simplex": simplex}
    found = minimize(cost, start, method="Nelder-Mead", options=options)
    print(
        f"{np.exp(cost(start)):.4f} of the error of evenly spaced hats before, {np.exp(found.fun):.4f} now:"
    )
    for rule in _as_rules(found.x, queries):
        print(f"Rule({', '.join(f'{x:.3f}' for x in rule)}),")


def _as_rules(constants: Floats, queries: str) -> list[Rule]:
    """Return constants as rules; hats for all ranges are the same from either end."""
    rules = [Rule(*row) for row in constants.reshape(-1, len(Rule._fields)).tolist()]
    return rules if queries == "prefixes" else [rule._replace(end=rule.start) for rule in rules]


def _error_by(rule: list[Rule], n: int, queries: str) -> float:
    try:
        levels = place_knots(n, rule, mirrored=queries == "prefixes", whole=_FINE)
        return hats_expected_error(stack_hats(n, levels, whole=_FINE), queries)
    except UsageError:  # nothing is left for the bins
        return 1e9


if __name__ == "__main__":
    if len(sys.argv) > 1:
        fit(sys.argv[1], *map(int, sys.argv[2:4]))
    else:
        compare()
