"""Immutable JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dphist.errors import UsageError

_DEEPEST = 64


def freeze(value: Any, name: str, depth: int = 0) -> Any:
    """Return an immutable copy of a JSON value: lists become tuples."""
    if depth > _DEEPEST:
        raise UsageError(f"{name} must not be nested more than {_DEEPEST} levels deep.")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise UsageError(f"{name} must have strings for keys, to be written as JSON.")
        return MappingProxyType({key: freeze(inner, name, depth + 1) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(inner, name, depth + 1) for inner in value)
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(f"{name} must contain only JSON values; a {type(value).__name__} is not one.")
