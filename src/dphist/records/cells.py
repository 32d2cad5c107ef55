"""The meaning of one cell of a source without types, which never depends on other cells."""

from __future__ import annotations

import math

import numpy as np

UNDECODED = "\N{REPLACEMENT CHARACTER}"  # replaces bytes, or half a character, that are not valid text


def written(cell: object) -> str | None:
    """Return a cell as text: true and false, whole numbers in digits, doubles to their last bit."""
    if isinstance(cell, str):
        text = str(cell)
    elif cell is None:
        return None
    elif isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    elif isinstance(cell, float | np.floating):
        return None if math.isnan(cell) else repr(float(cell))
    else:
        try:
            if cell != cell:  # only NaN, NaT and a decimal's NaN differ from themselves
                return None
            text = str(cell)
        except Exception:  # any object may be in a list; one without a text has no value
            return None
    # Engines do not accept a lone surrogate as text, and one record must not stop all others.
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def number(cell: object) -> float:
    """Return a cell as a number, NaN where it is not one."""
    if cell is None or (hasattr(cell, "__len__") and not isinstance(cell, str)):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if cell > 0 else -math.inf  # type: ignore[operator]
    except Exception:  # any object may be in a list; most are not numbers
        return math.nan
