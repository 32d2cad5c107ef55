"""The command that predicts a release's error by simulation, before anything is spent."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist.cli.common import (
    SCREEN,
    JsonFlag,
    listed,
    print_table,
    say,
    screen_width,
    show,
    to_float,
    to_whole,
    warnings_said,
)
from dphist.cli.places import PICTURES, OverwriteFlag, check_free, check_writable, same_file
from dphist.errors import OutputError, UsageError

if TYPE_CHECKING:
    from dphist.planning.advise import Advice


def advise(
    bins: Annotated[str, typer.Option(help="Number of bins.")],
    records: Annotated[str, typer.Option(help="Approximate number of records, such as 1e6.")],
    epsilon: Annotated[
        str | None, typer.Option(help="Privacy budget for which to predict the error.")
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(help="Or the mean error per query to reach, in records or as 2% of a mean answer."),
    ] = None,
    workload: Annotated[
        str, typer.Option(help="The queries that matter, such as points or ranges.")
    ] = "points",
    like: Annotated[
        str | None,
        typer.Option(
            help="Expected shape of the data: a name (dphist shapes), an earlier release (.json, "
            ".parquet), or public counts (.npy, .csv). Default: several shapes."
        ),
    ] = None,
    y_bins: Annotated[str | None, typer.Option(help="Number of bins of a second column.")] = None,
    max_contributions: Annotated[
        int, typer.Option(help="Number of records counted per person; the others are left out.")
    ] = 1,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Compare only these methods: a comma-separated list, or repeated."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="File for a chart of error against epsilon: .png, .svg or .html.")
    ] = None,
    overwrite: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Recommend a method and predict its error by simulation; reads no private data, spends nothing."""
    from dphist.domain import Domain, Integers
    from dphist.planning.advise import advise as ask

    if plot is not None:
        check_writable(plot, PICTURES)
        check_free(plot, overwrite=overwrite)
        if like is not None and same_file(plot, Path(like)):
            raise OutputError(f"{plot} is what --like reads; choose another name.")
    if (epsilon is None) == (error is None):
        raise UsageError("give either --epsilon (what will the error be?) or --error (what does it cost?).")
    shape = [
        to_whole(text, name) for text, name in ((bins, "--bins"), (y_bins, "--y-bins")) if text is not None
    ]
    if min(shape) < 1:
        raise UsageError("--bins must be at least 1.")
    domain: Any = shape[0] if len(shape) == 1 else Domain(tuple(Integers(0, n - 1) for n in shape))
    with warnings_said():
        advice = ask(
            domain,
            records=to_float(records, "--records"),
            epsilon=epsilon,
            error=error,
            workload=workload,
            like=like,
            methods=listed(method) or None,
            max_contributions=max_contributions,
        )
    if plot is not None:
        advice.plot(plot, overwrite=overwrite)
        say(f"picture: {plot}")
    if as_json:
        show(json.dumps(advice.to_dict()))
        return
    show(f"{advice.question()} (simulated; no private records read, nothing spent)")
    header = advice.header()
    print_table(header, advice.cells(), right=header[1:], width=max(screen_width(SCREEN), SCREEN))
    show(advice.words())
    say(f"next: {_next(advice, bins, y_bins, max_contributions)}")


def _next(advice: Advice, bins: str, y_bins: str | None, at_most: int) -> str:
    """Return the command that publishes with the recommended method."""
    words = ["dphist", "publish", "DATA", "--column", "COLUMN", "--bins", bins, "--range", "LO", "HI"]
    words += [] if y_bins is None else ["--y-column", "COLUMN", "--y-bins", y_bins, "--y-range", "LO", "HI"]
    words += [] if at_most == 1 else ["--unit", "PERSON", "--max-contributions", str(at_most)]
    chosen = advice.best.to_dict()
    words += ["--method", chosen["method"], "--workload", advice.workload, "--epsilon", chosen["epsilon"]]
    words += ["--ledger", "LEDGER.db", "--out", "RELEASE.json"]
    return shlex.join(words)
