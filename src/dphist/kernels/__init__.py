"""Compiled loops: arrays in, arrays out, no randomness. Their modules import numba: import them where used.

A loop is compiled when it first runs, and cached on disk where numba finds a folder of this user:
$NUMBA_CACHE_DIR, beside the source, or in the home's cache. The cached files are executable, so a folder
that others may write to is never chosen. Without such a folder every process compiles anew, and any fault
of a cached file only leads to another compilation.

>>> import numpy as np
>>> from dphist.kernels.halving import whole_numbers
>>> whole_numbers(np.array([0.5, 1.5, 2.0]), np.array(0.25)).sum().item()
4.0
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., object])
LOOPS: list[Any] = []  # the loops of all modules that were imported so far
_waiting: list[Callable[[], None]] = []  # who wants to know of the next compilation
_told: list[bool] = []  # whether somebody was told of one


def kernel(function: _Function) -> _Function:
    """Compile a loop, keep the result on disk where that is possible, and let other threads run beside it."""
    return cast(_Function, _compiled(function))


def subkernel(function: _Function) -> _Function:
    """Compile what only other loops call, as a part of each of these: that saves up to a third of the time.

    What calls from Python need would take half the time of a small one. A loop in another file is compiled
    anew only when its own file changes: after a change of what it calls, delete its ``__pycache__``.
    """
    loop = _compiled(function, no_cpython_wrapper=True, forceinline=True)
    loop.__class__ = _for_loops_alone()
    return cast(_Function, loop)


def _compiled(function: Callable[..., object], **options: bool) -> Any:
    from numba import njit

    _listen()
    # Nobody calls them from C. A division by 0 is infinite, or nan, as in numpy, and 0 of integers: no error.
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    loop: Any = cast(Any, njit)(error_model="numpy", **options)(function)
    with suppress(RuntimeError, OSError):  # no writable folder was found
        loop._cache = _forgiving_cache()(function)  # noqa: SLF001 - as numba's own `enable_caching` does
    LOOPS.append(loop)
    return loop


@cache
def _for_loops_alone() -> Any:
    """Return numba's compiled functions, made to refuse a call from Python, which would end the process."""
    base: Any = importlib.import_module("numba.core.registry").CPUDispatcher

    def refuse(loop: Any, *given: object) -> object:
        raise TypeError(f"{loop.py_func.__name__} is called by compiled loops alone.")

    return type("ForLoops", (base,), {"__call__": refuse})


def place() -> Path | None:
    """Return the folder that caches compiled loops; None if no folder can be written."""
    import dphist.kernels.transforms.weights  # noqa: F401 - any of the modules: the loops lie together

    paths = [loop.stats.cache_path for loop in LOOPS]
    return None if None in paths else Path(os.path.commonpath(paths))


@contextmanager
def noticing(notify: Callable[[], None]) -> Iterator[None]:
    """Call ``notify`` once, as soon as a loop has to be compiled inside this context."""
    _waiting.append(notify)
    try:
        yield
    finally:
        if notify in _waiting:
            _waiting.remove(notify)


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Tell a person at a terminal or in a notebook that a method is being compiled; once in a process.

    A program that listens itself (``noticing``) is left to say so in its own words.
    """
    watched = sys.stderr is not None and (sys.stderr.isatty() or hasattr(sys, "ps1"))
    if not watched or _waiting or _told:
        yield
        return
    with noticing(lambda: print(f"compiling {name}: some seconds, once ...", file=sys.stderr, flush=True)):
        yield


@cache
def _forgiving_cache() -> Any:
    """Return numba's cache, made tolerant: a full disk or a damaged file is not an error."""
    base: Any = importlib.import_module("numba.core.caching").FunctionCache

    class Forgiving(base):  # type: ignore[misc]
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with suppress(Exception):
                return super().load_overload(sig, target_context)
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with suppress(Exception):
                super().save_overload(sig, data)

    return Forgiving


@cache
def _listen() -> None:
    """Notify all waiting callers when numba begins to compile, which it does not when it reads from disk."""
    events: Any = importlib.import_module("numba.core.event")

    class Listener(events.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            while _waiting:
                _told[:] = [True]
                _waiting.pop()()

        def on_end(self, event: Any) -> None:
            pass

    events.register("numba:compile", Listener())
