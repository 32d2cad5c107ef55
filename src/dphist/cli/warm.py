"""The command that compiles all kernels ahead, so that later runs start at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from dphist.cli.common import say, show
from dphist.errors import UsageError
from dphist.kernels import noticing, place

if TYPE_CHECKING:
    from dphist.planning.plan import Plan

_LINES, _GRIDS = ("points", "prefixes", "ranges", "random:64"), ("points", "rectangles:64")
_BINS, _SIDE = 64, 16


def warm() -> None:
    """Compile every method now, which takes some minutes, so that later runs start at once."""
    from dphist.methods.catalogue import CATALOGUE
    from dphist.records.lines import compile_loops

    folder = place()
    if folder is None:
        show(
            "compiled code can be kept nowhere, so there is nothing to do ahead: every run compiles what it "
            "needs. To keep it, set NUMBA_CACHE_DIR to a folder that only you can write to."
        )
        return
    compile_loops()
    names, compiled = list(CATALOGUE), 0
    for done, name in enumerate(names, 1):
        compiled_names: list[str] = []
        with noticing(partial(compiled_names.append, name)):
            for plan in _plans(name):
                plan.prepare()
        compiled += len(compiled_names)
        if sys.stderr.isatty() or compiled_names:
            say(f"{done} of {len(names)}: {name}{' compiled' if compiled_names else ''}")
    show(f"all {len(names)} methods are compiled ({compiled} of them just now) and kept in {folder}")


def how_often() -> str:
    """Return how often a method is compiled here, in words."""
    if place() is not None:
        return "once"
    return "as in every run: compiled code can be kept nowhere (set NUMBA_CACHE_DIR to a folder of your own)"


def _plans(method: str) -> Iterator[Plan]:
    """Yield a plan of every kind of domain and workload that a method can serve."""
    from dphist.domain import Domain, Integers
    from dphist.planning.plan import Plan

    line, grid = Domain((Integers(0, _BINS - 1),)), Domain((Integers(0, _SIDE - 1), Integers(0, _SIDE)))
    kinds = [(line, queries) for queries in _LINES] + [(grid, queries) for queries in _GRIDS]
    for domain, queries in kinds:
        for part in (0, "0.05"):
            with suppress(UsageError):  # some serve lines or grids alone, and some are never calibrated
                yield Plan(bins=domain, epsilon=1, method=method, workload=queries, calibrate=part)
