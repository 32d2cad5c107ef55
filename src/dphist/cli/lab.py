"""The laboratory's commands: compare methods on public or made-up data, and list its shapes."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dphist.cli.common import (
    SCREEN,
    Interrupted,
    JsonFlag,
    listed,
    print_table,
    say,
    screen_width,
    show,
    warnings_said,
)
from dphist.errors import UsageError

if TYPE_CHECKING:
    from dphist.lab.compare import Comparison, Ranking

FEW = 5  # trials of which a t-test makes little

Jobs = Annotated[int, typer.Option(help="Number of parallel runs; -1 for one per core.")]
Backend = Annotated[
    str | None, typer.Option(help="Backend of joblib that runs them, such as dask; default: this machine.")
]
Quiet = Annotated[bool, typer.Option("--no-progress", help="Do not show progress.")]


def compare(
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Public counts: a .npy or .csv file, or a folder; may be repeated."
        ),
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help='Made-up data: "bins=4096 records=1e6 sparse"; may be repeated. Shapes: dphist shapes',
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Methods, or all: a comma-separated list, or repeated. Default: as advise.",
        ),
    ] = None,
    epsilon: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUES", help="A comma-separated list, or repeated. Default: 0.1,1"),
    ] = None,
    workload: Annotated[str, typer.Option(help="The queries that matter: points, ranges, ...")] = "points",
    trials: Annotated[int, typer.Option(help="Runs of each method on each dataset.")] = 10,
    samples: Annotated[int, typer.Option(help="Number of samples of made-up data among the trials.")] = 5,
    metric: Annotated[
        str, typer.Option(help="mean_absolute, mean_squared, max_absolute, scaled or kl.")
    ] = "mean_absolute",
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Also choose the best method on one half of the datasets and report its error on the other.",
        ),
    ] = False,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for chart, page and rows; the same command again resumes.")
    ] = None,
    as_json: JsonFlag = False,
    no_progress: Quiet = False,
) -> None:
    """Rank methods by their error on public or made-up data; spends nothing."""
    from dphist.lab import compare as lab

    if data:
        say("warning: this runs without privacy: use public data only.")
    with warnings_said():
        question = lab.ask(
            files=data or (),
            like=like or (),
            samples=samples,
            methods=listed(method),
            epsilons=listed(epsilon) or ("0.1", "1"),
            workload=workload,
            trials=trials,
            metric=metric,
            split=split,
        )
    command = shlex.join(["dphist", *sys.argv[1:]])
    if out is not None:
        lab.claim(out, command=command)
    if trials < FEW:
        say(f"note: {trials} trials distinguish few methods; use 10 or more before you choose.")
    with _resumable(out):
        made = lab.run(question, out=out, jobs=jobs, backend=backend, progress=not no_progress)
        files = [] if out is None else lab.keep(made, out, command=command)
    if as_json:
        show(json.dumps(made.to_dict()))
    else:
        _show(made)
    for file in files:
        say(f"written: {file}")
    if out is None and not as_json:
        say("add --out DIR for a picture, a page and the rows")
    if not any(ranking.lines for ranking in made.rankings):
        raise UsageError("every method failed; the reasons are above.")


def shapes(as_json: JsonFlag = False) -> None:
    """List the shapes of made-up data, for --like."""
    from dphist.planning.shapes import SHAPES

    header = ("shape", "what it looks like", "stands for")
    rows = [(shape.name, shape.summary, shape.stands_for) for shape in SHAPES.values()]
    if as_json:
        names = ("name", "summary", "stands_for")
        show(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    print_table(header, rows, fold=header[1:])


@contextmanager
def _resumable(out: Path | None) -> Iterator[None]:
    """Print on an interrupt what is saved and how to resume, and nothing else."""
    with warnings.catch_warnings():
        # joblib's advice on tasks that are cut short, which here is what was asked for.
        warnings.filterwarnings("ignore", message=".*still being processed", category=UserWarning)
        try:
            yield
        except KeyboardInterrupt:
            kept = f"what was finished is kept in {out}: the same command goes on from there."
            lost = "nothing was kept; with --out DIR the same command would go on from here."
            raise Interrupted(f"interrupted; {lost if out is None else kept}") from None


def _show(made: Comparison) -> None:
    """Print the rankings, and a summary if there are several."""
    from dphist.lab.compare import METRICS
    from dphist.lab.page import choices_in_words, ratio

    question = made.question
    show(f"{METRICS[question.metric]}; workload {question.workload}; {question.trials} trials")
    for ranking in made.rankings:
        _show_ranking(ranking)
    if len(made.rankings) > 1:
        show(f"\nover all {len(made.rankings)}")
        header = ("method", "times the best", "at worst", "competitive")
        rows = [
            (s.method, ratio(s.regret), ratio(s.worst), f"{s.among_best} of {s.rankings}")
            for s in made.overall
        ]
        print_table(header, rows, right=header[1:], width=screen_width(SCREEN))
    for words in choices_in_words(made):
        show("\n" + textwrap.fill(words, screen_width(SCREEN)))
    show("competitive: not significantly worse than the best (paired t-test)")


def _show_ranking(ranking: Ranking) -> None:
    from dphist.lab.page import duration, figure, mark, ratio

    show(f"\n{ranking.title}")
    header = ("method", "error", "95 % interval", "times the best", "time", "")
    rows = [
        (
            line.method,
            figure(line.mean),
            f"{figure(line.low)} to {figure(line.high)}",
            ratio(line.regret),
            duration(line.seconds),
            mark(line),
        )
        for line in ranking.lines
    ]
    if rows:
        print_table(header, rows, right=header[1:5], width=screen_width(SCREEN))
    for method, why in ranking.failed.items():
        show(f"{method} failed: {why}")
