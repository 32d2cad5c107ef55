"""The command that suggests a range where none is known publicly; it is charged like everything else."""

from __future__ import annotations

import json
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from dphist.cli import options
from dphist.cli.common import Interrupted, say, show
from dphist.cli.ledger import budget_line
from dphist.cli.options import DATA, OUTPUT, PRIVACY, bundled, option
from dphist.cli.places import check_free, check_places
from dphist.cli.publish import save_or_rescue, undisturbed, unsaved
from dphist.cli.stream import check_format, read_as, spooled
from dphist.errors import OutputError, UsageError, is_interrupt
from dphist.planning.account import ledger_of
from dphist.privacy.ledger import Ledger


@bundled
def bounds(
    data: options.Data,
    column: Annotated[str, option(DATA, "Column of numbers, or an SQL expression.", "NAME")],
    reading: options.Reading,
    epsilon: Annotated[str, option(PRIVACY, "Privacy budget of the look: 0.05", "E")],
    person: options.Person,
    level: Annotated[
        float, option(PRIVACY, "Confidence level of what lies outside; default 0.95.", "P")
    ] = 0.95,
    ledger: Annotated[Path | None, option(PRIVACY, "Made with: dphist ledger create", "FILE")] = None,
    dataset: Annotated[str, option(PRIVACY, "Whom the ledger charges; default.", "NAME")] = "default",
    out: Annotated[Path | None, option(OUTPUT, "The noisy counts of magnitudes.", "FILE")] = None,
    as_json: Annotated[bool, option(OUTPUT, "Print the result as JSON.", None, "--json")] = False,
) -> None:
    """Suggest a range for a column of DATA by a private look at the magnitudes of its values.

    It costs epsilon. Use it where no public range is known: a form's limits or a code book cost nothing.
    """
    from dphist.planning.bounds import look, shown_end, suggest
    from dphist.planning.plan import UnmadeLedger
    from dphist.uncertainty.noise_law import check_level

    check_level(level)
    if reading.outside != "drop":
        raise UsageError("--outside is of no use here: the bins of magnitudes hold every number.")
    plan = look(column=column, epsilon=epsilon, **read_as(reading), **vars(person))
    check_format(data, reading.format)
    account, fresh = ledger_of(ledger)
    if out is not None:
        check_places(data, account, out, None)
        check_free(out, overwrite=False)
    books = [] if fresh else [Ledger.open(account)]
    before = books[0].spent(dataset) if books else Fraction(0)

    def make() -> Ledger:
        books.append(Ledger.open(account, create=True))
        say(f"a new ledger was made: {account}")
        return books[0]

    done = True
    try:
        plan.prepare()
        with spooled(data, reading.format) as source:
            book = UnmadeLedger(make) if fresh else books[0]
            release: Any = plan.release(source, ledger=book, dataset=dataset)
        with undisturbed():
            found = suggest(release, level=level)
            if as_json:
                show(json.dumps(found.to_dict()))
            else:
                show(str(found))
            if found.range is not None and not as_json:
                show(f"--range {' '.join(map(shown_end, found.range))}")
            if out is not None:
                saved, done = save_or_rescue(release, out, overwrite=False)
                done = done and saved == out
                say(f"release: {saved}")
        say(budget_line(books[0], dataset))
        if found.range is not None:
            ends = " ".join(map(shown_end, found.range))
            say(f"next: dphist publish {shlex.quote(data)} --column {shlex.quote(column)} --range {ends} ...")
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interrupt(error):
            raise
        raise Interrupted(unsaved(books, dataset, before)) from None
    if not done:
        raise typer.Exit(OutputError.exit_code)
