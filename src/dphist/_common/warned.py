"""Warnings that name the line of the caller, however deep in the package they arise."""

from __future__ import annotations

import inspect
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn(text: str) -> None:
    """Warn at the line that called into this package: Python shows what one line did once, and no more."""
    frame, level, ours = inspect.currentframe(), 1, 1
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            ours = level
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=ours + 1)
