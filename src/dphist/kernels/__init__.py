"""Compiled loops: arrays in, arrays out, no randomness. Imports numba: import it where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile a loop, keep the result on disk, and let other threads run beside it."""
    return cast(_Function, njit(cache=True, nogil=True)(function))
