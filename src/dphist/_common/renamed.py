"""Former names, which work for one more version with a DeprecationWarning that gives the new name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller that a name will be removed."""
    warnings.warn(
        f"{old} is called {new} now; the old name goes with the next version.",
        DeprecationWarning,
        stacklevel=3,
    )


def renamed(**new_names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function take keyword arguments by their old names.

    >>> @renamed(scale="records")
    ... def ask(*, records):
    ...     return records
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     ask(scale=5)
    5
    >>> print(said[0].message)
    scale= is called records= now; the old name goes with the next version.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **given: _P.kwargs) -> _R:
            for old, new in new_names.items():
                if old in given and new not in given:  # of both, Python itself refuses the old one
                    warn_renamed(f"{old}=", f"{new}=")
                    given[new] = given.pop(old)
            return function(*args, **given)

        return call

    return decorate


def renamed_fields(**new_names: str) -> Callable[[_C], _C]:
    """Let a dataclass be made and read by the old names of its fields."""

    def decorate(cls: _C) -> _C:
        cls.__init__ = renamed(**new_names)(cls.__init__)  # type: ignore[misc]
        for old, new in new_names.items():
            setattr(cls, old, renamed_attribute(old, new))
        return cls

    return decorate


def renamed_attribute(old: str, new: str) -> property:
    """Return a property that reads another one, and warns."""

    def read(self: Any) -> Any:
        warn_renamed(f".{old}", f".{new}")
        return getattr(self, new)

    return property(read, doc=f"The old name of ``{new}``.")


def renamed_scale(plot: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a picture be asked for with ``scale="log"``, which is ``log=True`` now."""

    @functools.wraps(plot)
    def call(*args: _P.args, **given: _P.kwargs) -> _R:
        if given.get("scale") in ("linear", "log") and "log" not in given:
            warn_renamed('scale="log"', "log=True")
            given["log"] = given.pop("scale") == "log"
        return plot(*args, **given)

    return call


def old_names(module: dict[str, Any], **new_names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that still knows some of its names by what they were."""

    def find(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        warn_renamed(name, new_names[name])
        return module[new_names[name]]

    return find
