"""Examples of every type that the curator accepts: whoever declares a query adds its example here.

The tests that compare neighbours go through `queries.LINEAR` and `queries.SCORES` and take the examples from
this table; a declared type without one fails `tests/privacy/test_queries.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from dphist.domain.groups import Groups
from dphist.privacy import queries

Rng = np.random.Generator


def maybe_order(rng: Rng, n: int) -> np.ndarray | None:
    return rng.permutation(n) if rng.random() < 0.5 else None


def starts(rng: Rng, n: int) -> np.ndarray:
    return np.unique([0, n, *rng.integers(0, n + 1, 3)])


def groups(rng: Rng, n: int) -> Groups:
    return Groups(np.arange(n + 1) if rng.random() < 0.5 else starts(rng, n), maybe_order(rng, n))


def shape(rng: Rng, n: int) -> tuple[int, int]:
    rows = int(rng.choice([k for k in range(1, n + 1) if n % k == 0]))
    return rows, n // rows


def fourier(rng: Rng, n: int) -> queries.Fourier:
    return queries.Fourier(n, int(rng.integers(1, n // 2 + 2)), int(rng.choice([1, 64, 1 << 16])))


def boxes(rng: Rng, n: int) -> queries.Boxes:
    rows, columns = shape(rng, n)
    m = int(rng.integers(1, 6))
    x0, y0 = rng.integers(0, rows, m), rng.integers(0, columns, m)
    return queries.Boxes(
        (rows, columns), x0, rng.integers(x0 + 1, rows + 1), y0, rng.integers(y0 + 1, columns + 1)
    )


def on_groups(rng: Rng, n: int) -> queries.OnGroups:
    cells = groups(rng, n)
    inner = [kind for kind in queries.LINEAR if kind is not queries.OnGroups]
    return queries.OnGroups(EXAMPLES[inner[int(rng.integers(len(inner)))]](rng, cells.k), cells)


def last_cut(rng: Rng, n: int) -> queries.LastCut:
    edges = starts(rng, n)
    end = int(rng.integers(1, edges.size))
    return queries.LastCut(edges, end, int(rng.integers(1, 4)), maybe_order(rng, n))


def medians(rng: Rng, n: int) -> queries.Medians:
    sides = rows, columns = shape(rng, n)
    axis = int(np.argmax(sides)) if min(sides) < 2 else int(rng.integers(2))
    return queries.Medians((rows, columns), (0, rows, 0, columns), axis)


def dropped(rng: Rng, n: int) -> queries.Dropped:
    cells = groups(rng, n)
    sums = fourier(rng, cells.k)
    noise = tuple(int(v) for v in rng.integers(0, 1 << 20, sums.frequencies))
    return queries.Dropped(sums, noise if rng.random() < 0.5 else (0,) * sums.frequencies, cells)


def worst_answered(rng: Rng, n: int) -> queries.WorstAnswered:
    cells = groups(rng, n)
    asked = boxes(rng, cells.k)
    return queries.WorstAnswered(asked, rng.integers(-9, 90, asked.size), cells)


def hats(rng: Rng, n: int) -> queries.Hats:
    rows, columns = shape(rng, n)
    pyramids = ["rectangles"] * 3 if min(rows, columns) > 1 else []
    return queries.Hats(n, str(rng.choice(["all-ranges", "prefixes", "points", *pyramids])), columns)


# A query over n bins, n >= 2, with parameters drawn at random.
EXAMPLES: dict[type, Callable[[Rng, int], Any]] = {
    queries.OnGroups: on_groups,
    queries.Multiples: lambda rng, n: queries.Multiples(n, int(rng.integers(1, 2000))),
    queries.Haar: lambda rng, n: queries.Haar(*shape(rng, n)),
    queries.Fourier: fourier,
    queries.Boxes: boxes,
    queries.Hats: hats,
    queries.Cuts: lambda rng, n: queries.Cuts(starts(rng, n), int(rng.integers(0, 9)), maybe_order(rng, n)),
    queries.LastCut: last_cut,
    queries.Medians: medians,
    queries.Dropped: dropped,
    queries.WorstAnswered: worst_answered,
    queries.Roughness: lambda rng, n: queries.Roughness(
        n,
        int(rng.integers(1, 300)),
        maybe_order(rng, n),
        int(rng.integers(1, 101)),
        starts(rng, n) if rng.random() < 0.5 else None,
        int(rng.integers(2, 20)),
    ),
}


@contextmanager
def also(*kinds: type) -> Iterator[None]:
    """Declare further types for a while: those that a test plants to look at the curator itself."""
    with (
        patch.object(queries, "LINEAR", (*queries.LINEAR, *kinds)),
        patch.object(queries, "SCORES", (*queries.SCORES, *kinds)),
    ):
        yield
