"""The command line: results on stdout, everything else on stderr, an exit code that says what went wrong.

Nothing here replaces records, a ledger or a release that was paid for, and no interrupt leaves half a file.
"""

from __future__ import annotations

import csv
import errno
import fnmatch
import glob
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dphist.errors import DphistError, LedgerError, OutputError, PrivacyError, UsageError, did_you_mean
from dphist.privacy.ledger import Charge, Ledger, MemoryLedger, as_decimal, parse_epsilon
from dphist.version import __version__

if TYPE_CHECKING:
    from dphist.api import Plan
    from dphist.domain import Axis
    from dphist.release import Estimate, Release

CODES = "Exit codes: 0 done, 2 usage, 3 the ledger refuses, 4 bad data, 5 a privacy rule, 130 interrupted."
RELEASES, PICTURES = (".json", ".csv", ".parquet"), (".png", ".svg", ".html", ".vl.json")
LARGE_EPSILON = 10
SCREEN = 80  # columns, where we cannot ask


class _Command(TyperCommand):
    """A command whose flags are listed without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))


class _Commands(TyperGroup):
    """Commands whose interrupts and broken pipes are told by us, before Typer ends the program."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _told():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


def _bare(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Interrupted(KeyboardInterrupt):
    """An interrupt that knows what to say."""


@dataclass(frozen=True)
class _Watched(Ledger):
    """A ledger that remembers how far a charge came, so that an interrupt can be told truthfully."""

    steps: list[str] = field(default_factory=list, repr=False, compare=False)

    def charge(self, epsilon: Fraction, **words: Any) -> Charge:
        self.steps.append("asked")
        charge = super().charge(epsilon, **words)
        self.steps.append("paid")
        return charge

    def told(self, epsilon: Fraction) -> str:
        """Return what an interrupt has to say."""
        if not self.steps:
            return "interrupted; nothing was charged."
        if "paid" in self.steps:
            return f"interrupted after epsilon {_amount(epsilon)} was charged; nothing was saved."
        seen = f"dphist ledger show {shlex.quote(str(self.path))}"
        return f"interrupted while epsilon {_amount(epsilon)} was being charged; look with: {seen}"


app = typer.Typer(
    cls=_Commands,
    help="Publish histograms under differential privacy.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(
    cls=_Commands,
    help="Show, create, limit and export the record of what was spent.",
    invoke_without_command=True,
)
app.add_typer(ledger_app, name="ledger")


class Form(StrEnum):
    """How the ledger is exported."""

    csv = "csv"
    json = "json"


JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
LedgerPath = Annotated[Path | None, typer.Argument(help="Ledger file; dphist-ledger.db by default.")]


def main() -> None:
    """Run the command line; every error of ours becomes one clear message and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except DphistError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as error:
        if not _is_interrupt(error):
            raise
        kept = "interrupted. What was charged stays charged (see: dphist ledger show); files are whole."
        _say(str(error) if isinstance(error, _Interrupted) else kept)
        raise typer.Exit(130) from None
    except OSError as error:
        with suppress(OSError, ValueError):  # or the last flush would complain once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # the reader of our output went away, as `head` does
            raise typer.Exit(0) from None
        _say(f"error: the output could not be written: {error.strerror or error}.")
        raise typer.Exit(OutputError.exit_code) from None


def _is_interrupt(error: BaseException) -> bool:
    """Return whether this is a Ctrl-C, which DuckDB may report in its own words."""
    if isinstance(error, KeyboardInterrupt):
        return True
    return isinstance(error, RuntimeError) and "query interrupted" in str(error).lower()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"dphist {__version__}")
        raise typer.Exit


@app.command(cls=_Command)
def publish(
    data: Annotated[str, typer.Argument(help="CSV, TSV, JSON lines or Parquet; a path, a glob or a folder.")],
    epsilon: Annotated[str, typer.Option(help="The privacy budget of this release, such as 0.5 or 1/3.")],
    column: Annotated[
        str | None, typer.Option(help="Column to count, or an SQL expression of columns.")
    ] = None,
    bins: Annotated[str | None, typer.Option(help="Number of equal bins.")] = None,
    range_: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--range", metavar="LO HI", help="Smallest and largest possible value: public knowledge."
        ),
    ] = None,
    y_column: Annotated[str | None, typer.Option(help="Second column, for a grid.")] = None,
    y_bins: Annotated[str | None, typer.Option(help="Number of bins of the second column.")] = None,
    y_range: Annotated[tuple[str, str] | None, typer.Option(metavar="LO HI", help="Its range.")] = None,
    edges: Annotated[str | None, typer.Option(help="Explicit bin edges: 0,18,65,120")] = None,
    categories: Annotated[
        str | None, typer.Option(help='Labels to count, as a line of CSV: red,green,"blue, dark"')
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Count only records that meet this SQL condition.")
    ] = None,
    outside: Annotated[str, typer.Option(help="Records beyond the range: drop or clip.")] = "drop",
    unit: Annotated[str | None, typer.Option(help="Column that names a person; default one record.")] = None,
    max_contributions: Annotated[int, typer.Option(help="Records counted per person.")] = 1,
    method: Annotated[str, typer.Option(help="A name from: dphist methods")] = "identity",
    workload: Annotated[
        str, typer.Option(help="The queries that matter, such as points or ranges.")
    ] = "points",
    post: Annotated[
        str, typer.Option(help="Presentable values beside the raw: none, nonneg, integer.")
    ] = "none",
    table: Annotated[str | None, typer.Option(help="Table or SELECT, when DATA is a database file.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger file; made if missing.")] = None,
    dataset: Annotated[str, typer.Option(help="Whose budget in the ledger this is.")] = "default",
    out: Annotated[Path | None, typer.Option(help="Where the release goes: .json, .csv or .parquet.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let --out replace a file that exists.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes: .png, .svg or .html.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all, ask the ledger, read no data, spend nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Publish a private histogram of DATA."""
    from dphist import api

    _check_flags(column, y_column, y_bins, y_range, unit, max_contributions, categories, outside)
    plan = api.Plan(
        **_bins(bins, range_, edges, categories, y_bins, y_range),
        epsilon=epsilon,
        column=(column, y_column) if column is not None and y_column is not None else column,
        where=where,
        outside=outside,  # type: ignore[arg-type]
        unit=unit,
        max_contributions=max_contributions,
        method=method,
        workload=workload,
        post=post,  # type: ignore[arg-type]
        table=table,
    )
    if plan.budget > LARGE_EPSILON:
        _say(
            f"warning: epsilon {_amount(plan.budget)} protects hardly anyone: it leaves almost no doubt "
            "about a single record. Common choices lie between 0.01 and 1."
        )
    account, target = _ledger_path(ledger), Path("release.json") if out is None else out
    _check_places(data, account, target, plot)
    if out is not None and out.exists() and not overwrite:
        raise OutputError(f"{out} exists; choose another name or add --overwrite.")
    if dry_run:
        _show_plan(plan, data, account, dataset, target, as_json)
        return
    book = _Watched.open(account)
    try:
        release = plan.release(data, ledger=book, dataset=dataset)
        with _undisturbed():
            saved = _save_or_rescue(release, target, overwrite=overwrite and out is not None)
            if out is not None and saved.name != out.name:
                _say(f"warning: {out} was taken by somebody else meanwhile.")
            _say(f"release: {saved}")
    except BaseException as error:
        if _is_interrupt(error):
            raise _Interrupted(book.told(plan.budget)) from None
        raise
    try:
        drawn = plot is None or _draw(release, plot, saved)
        if as_json:
            typer.echo(release.to_json())
        else:
            _show_release(release)
        _say(_budget_line(book, dataset))
    except KeyboardInterrupt:
        raise _Interrupted(f"interrupted; the release is safe in {saved}.") from None
    if not drawn:
        raise typer.Exit(OutputError.exit_code)


@app.command(cls=_Command, context_settings={"ignore_unknown_options": True})
def query(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    part: Annotated[
        list[str],
        typer.Argument(
            metavar="PART",
            help="Two bin edges LO HI (the upper is not included); labels; or of a grid XLO XHI YLO YHI.",
        ),
    ],
    level: Annotated[float, typer.Option(help="Confidence level of the interval.")] = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Answer how many records lie between LO and HI, with its error; free, as often as you like."""
    from dphist.release import load

    loaded = load(release)
    answer = _ask(loaded, part, level)
    if not as_json:
        typer.echo(str(answer))
        return
    ends = {"value": answer.value, "low": answer.low, "high": answer.high, "level": level}
    typer.echo(json.dumps(ends | {"note": answer.note, "simulated": loaded.simulated}))


@app.command(cls=_Command)
def plot(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    out: Annotated[Path, typer.Argument(help="Picture: .png, .svg or .html.")],
    log: Annotated[bool, typer.Option("--log", help="Logarithmic counts.")] = False,
    level: Annotated[float, typer.Option(help="Confidence level of the error band.")] = 0.95,
) -> None:
    """Draw a saved release with its error band."""
    from dphist.release import load

    loaded = load(release)
    _check_writable(out, PICTURES)
    if _same(out, release):
        raise OutputError(f"{out} is the release itself; choose another name.")
    loaded.plot(out, scale="log" if log else "linear", level=level)
    typer.echo(str(out))


@app.command(cls=_Command)
def methods(as_json: JsonFlag = False) -> None:
    """List the catalogue: every method with what it does and who published it."""
    from dphist.mechanisms import METHODS

    if as_json:
        rows = [{"name": m.name, "summary": m.summary, "citation": m.citation} for m in METHODS]
        typer.echo(json.dumps(rows, indent=2))
        return
    header = ("method", "what it does", "published by")
    _table(header, [(m.name, m.summary, m.citation) for m in METHODS], fold=header[1:])


@app.command(cls=_Command)
def audit(
    method: Annotated[str, typer.Argument(help="A name from: dphist methods")],
    epsilon: Annotated[str, typer.Option(help="What the method shall promise.")] = "1",
    runs: Annotated[int, typer.Option(help="Runs on each of two neighbours; more see more.")] = 10_000,
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes: .png, .svg or .html.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Try to refute a method's promise: a lower bound on what it loses, from simulated runs alone.

    Exit code 5 if the promise is refuted, which no method here should ever be.
    """
    from dphist.api import Plan
    from dphist.domain import Domain, Integers
    from dphist.plots import overlap_chart
    from dphist.privacy.audit import audit as examine

    if plot is not None:
        _check_writable(plot, PICTURES)
    try:
        plan = Plan(bins=Domain((Integers(0, 7),)), epsilon=epsilon, method=method)
    except UsageError as error:  # a few methods need a grid
        try:
            plan = Plan(bins=Domain((Integers(0, 3), Integers(0, 3))), epsilon=epsilon, method=method)
        except UsageError:
            raise error from None
    _say(f"running {method} about {max(8 * runs, 14_000):,} times on made-up counts ...")
    found = examine(_simulated(plan), claim=plan.budget, runs=runs, bins=plan.domain.n)
    verdict = "refuted" if found.violated else "not refuted"
    without, within = (x.tolist() for x in found.pair)
    if as_json:
        words = {"method": method, "claim": float(found.claim), "bound": found.bound}
        words |= {"violated": found.violated, "pair": [without, within], "event": found.event}
        words |= {"seen": list(found.seen), "tested": found.scores[0].size}
        typer.echo(json.dumps(words | {"runs": found.runs, "beta": found.beta}))
    else:
        typer.echo(f"claim    epsilon {_amount(found.claim)}: {verdict}")
        typer.echo(f"bound    at least {found.bound:.3g}, but for a chance of {found.beta:g}")
        typer.echo(f"pair     {' '.join(map(str, without))} without the record")
        typer.echo(f"         {' '.join(map(str, within))} with it")
        typer.echo(f"event    {found.event}")
    if plot is not None:
        overlap_chart(
            {"without the record": found.scores[0], "with it": found.scores[1]},
            threshold=found.threshold,
            upwards=found.upwards,
            title=f"{method}: claims {_amount(found.claim)}, loses at least {found.bound:.2f}: {verdict}",
            subtitle=f"{' '.join(map(str, without))} or {' '.join(map(str, within))}? Event: {found.event}",
            x_title="evidence for the record (log likelihood ratio, learned from other runs)",
        ).save(plot)
        _say(f"picture: {plot}")
    if found.violated:
        raise typer.Exit(PrivacyError.exit_code)


@app.command(cls=_Command)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("dphist-demo"),
    epsilon: Annotated[str, typer.Option(help="The privacy budget.")] = "0.01",
) -> None:
    """Publish 336,776 real flights (public data), and leave release, picture and ledger behind."""
    from dphist import demonstration

    demonstration.run(out, epsilon=epsilon, say=_say, show=_show_release)


@ledger_app.callback()
def ledger_default(context: typer.Context) -> None:
    """Show the default ledger when no command is named."""
    if context.invoked_subcommand is None:
        ledger_show(None)


@ledger_app.command("show", cls=_Command)
def ledger_show(
    file: LedgerPath = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what was spent, when and on what, and what is left."""
    from dphist.privacy.ledger import to_json

    book = _ledger(file, dataset, read_only=True)
    if as_json:
        typer.echo(to_json(book.entries(dataset)))
        return
    rows = [
        (
            str(e.number),
            e.when[:16].replace("T", " "),
            e.dataset,
            e.kind,
            "none" if e.epsilon is None else _amount(e.epsilon),
            e.mechanism,
            e.what if e.kind == "charge" else "",
        )
        for e in book.entries(dataset)
    ]
    header = ("no", "when (UTC)", "dataset", "kind", "epsilon", "method", "what")
    if rows:
        _table(header, rows, right=("no", "epsilon"), fold=("dataset", "method", "what"))
    else:
        typer.echo("nothing was charged yet.")
    for name in [dataset] if dataset is not None else book.datasets() or ["default"]:
        typer.echo(_budget_line(book, name))


@ledger_app.command("create", cls=_Command)
def ledger_create(
    file: Annotated[Path, typer.Argument(help="The ledger file to make.")],
    limit: Annotated[str | None, typer.Option(help="The most this dataset may ever spend.")] = None,
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Create a ledger, with a limit if one is given."""
    wanted = None if limit is None else parse_epsilon(limit, name="limit")
    MemoryLedger().spent(dataset)  # a bad name is refused before there is a file
    if file.exists() and file.is_file() and file.stat().st_size:
        Ledger.open(file, read_only=True)  # says so if it is something else
        raise LedgerError(
            f"the ledger {file} exists and stays as it is. To change a limit use: "
            f"dphist ledger limit {shlex.quote(str(file))} VALUE --dataset {shlex.quote(dataset)}"
        )
    book = Ledger.open(file)
    if wanted is not None:
        book.set_limit(dataset, wanted)
    typer.echo(_budget_line(book, dataset))


@ledger_app.command("limit", cls=_Command)
def ledger_limit(
    file: Annotated[Path, typer.Argument(help="The ledger file.")],
    value: Annotated[str, typer.Argument(help="The new limit, or none.")],
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Set the most a dataset may ever spend; the change itself is journaled."""
    new = None if value.casefold() == "none" else value
    typer.echo(f"{dataset!r}: {Ledger.open(file, create=False).set_limit(dataset, new)}")


@ledger_app.command("export", cls=_Command)
def ledger_export(
    file: LedgerPath = None,
    form: Annotated[Form, typer.Option("--format", help="csv or json.")] = Form.csv,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
) -> None:
    """Print the whole journal as CSV or JSON."""
    from dphist.privacy.ledger import to_csv, to_json

    entries = _ledger(file, dataset, read_only=True).entries(dataset)
    typer.echo(to_csv(entries) if form is Form.csv else to_json(entries), nl=form is Form.json)


def _check_flags(
    column: str | None,
    y_column: str | None,
    y_bins: str | None,
    y_range: tuple[str, str] | None,
    unit: str | None,
    max_contributions: int,
    categories: str | None,
    outside: str,
) -> None:
    """Refuse flags that do not go together, in the words of the command line."""
    if column is None:
        raise UsageError("--column is needed: the column to count, or an SQL expression of columns.")
    grid = {"--y-column": y_column, "--y-bins": y_bins, "--y-range": y_range}
    missing = [flag for flag, value in grid.items() if value is None]
    if missing and len(missing) < len(grid):
        raise UsageError(f"a grid needs --y-column, --y-bins and --y-range; add {' and '.join(missing)}.")
    if unit is None and max_contributions != 1:
        raise UsageError("--max-contributions goes with --unit, the column that names a person.")
    if categories and outside == "clip":
        raise UsageError("--outside clip goes with numeric bins: categories have no ends to clip to.")


def _bins(
    bins: str | None,
    span: tuple[str, str] | None,
    edges: str | None,
    categories: str | None,
    y_bins: str | None,
    y_span: tuple[str, str] | None,
) -> dict[str, Any]:
    """Return the bins of a plan from whichever of the options was given."""
    from dphist.domain import Domain, make_axis

    given = [o for o, v in (("--bins", bins), ("--edges", edges), ("--categories", categories)) if v]
    if len(given) != 1:
        raise UsageError(
            "say what the bins are with exactly one of --bins N --range LO HI, --edges or --categories"
            + (f"; you gave {' and '.join(given)}." if given else ".")
        )
    if span is None and bins:
        raise UsageError(
            "--range LO HI is needed with --bins: the smallest and largest possible value, from public "
            "knowledge, such as --range 0 120. A range read off the data would leak a record."
        )
    if span is not None and not bins:
        raise UsageError(f"--range goes with --bins; {given[0]} already says where the bins are.")
    if edges:
        x: dict[str, Any] = {"bins": [_float(e, "--edges") for e in _row(edges, "--edges")]}
    elif categories:
        x = {"categories": _row(categories, "--categories")}
    else:
        x = {"bins": _whole(bins or "", "--bins"), "range": _span(span)}
    if y_bins is None:
        return x
    if "categories" in x:
        raise UsageError(
            "a grid on the command line needs numeric bins; histogram2d in Python has labels too."
        )
    y = make_axis(_whole(y_bins, "--y-bins"), _span(y_span))
    return {"bins": Domain((make_axis(x["bins"], x.get("range")), y))}


def _row(text: str, name: str) -> list[str]:
    """Return the cells of one line of CSV; blanks count inside quotes only."""
    tight = re.sub(r'("(?:[^"]|"")*")|\s*,\s*', lambda found: found[1] or ",", text.strip())
    try:
        (cells,) = csv.reader([tight], strict=True)
    except (csv.Error, ValueError):
        raise UsageError(
            f'{name} is a line of CSV, such as red,green,"blue, dark"; the quotes of {text!r} do not match.'
        ) from None
    if "" in cells and '""' not in tight:
        raise UsageError(f'{name} has a comma too many: {text!r}. An empty label is written "".')
    return cells


def _span(span: tuple[str, str] | None) -> tuple[float, float] | None:
    return None if span is None else (_end(span[0]), _end(span[1]))


def _end(text: str) -> float:
    if text.casefold() in {"auto", "min", "max", "data"}:
        raise PrivacyError(
            f"--range {text} would be read off the data, which leaks a record. Give two numbers from public "
            "knowledge: a form's limits, a law, a code book. Records beyond them are dropped, or counted in "
            "the end bins with --outside clip."
        )
    return _float(text, "--range")


def _float(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} needs a number, not {text!r}.") from None


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} needs a whole number, not {text!r}.") from None


def _ask(release: Release, part: list[str], level: float) -> Estimate:
    """Return the answer to a query whose parts stand one after the other, axis by axis."""
    axes = release.domain.axes
    labelled = [axis.kind == "categories" for axis in axes]
    if len(axes) == 1 and labelled[0]:
        return release.sum(part, level=level)
    if len(axes) == 1 and len(part) == 1 and axes[0].kind == "integers":
        return release.count(part[0], level=level)
    if len(part) != sum(1 if label else 2 for label in labelled):
        words = ["LABEL" if label else "LO HI" for label in labelled]
        if len(axes) == 2:
            words = [f"X{words[0].replace(' ', ' X')}", f"Y{words[1].replace(' ', ' Y')}"]
        kind = "this release is a grid" if len(axes) == 2 else "this release has numeric bins"
        raise UsageError(f"{kind}; ask at its bin edges: dphist query RELEASE {' '.join(words)}")
    rest = iter(part)
    where = [
        next(rest) if axis.kind == "categories" else _ends(axis, next(rest), next(rest)) for axis in axes
    ]
    return release.sum(*(where[0] if len(axes) == 1 else where), level=level)


def _ends(axis: Axis, lo: str, hi: str) -> tuple[Any, Any]:
    if axis.kind == "instants":
        return lo, hi
    return _float(lo, "LO"), _float(hi, "HI")


def _check_places(data: str, account: Path, out: Path, plot: Path | None) -> None:
    """Refuse results that could not be written, or would replace the records, the ledger or each other."""
    _check_writable(out, RELEASES)
    if plot is not None:
        _check_writable(plot, PICTURES)
    ledger = [account.with_name(account.name + more) for more in ("", "-wal", "-shm", "-journal")]
    taken: dict[str, Iterable[Path]] = {"the ledger": ledger}
    for flag, place in (("--out", out), ("--plot", plot)):
        if place is None:
            continue
        if (place.exists() or place.is_symlink()) and any(_same(place, file) for file in _data_files(data)):
            raise OutputError(f"{flag} {place} would replace the records; choose another name.")
        for name, files in taken.items():
            if any(_same(place, file) for file in files):
                raise OutputError(f"{flag} {place} is also {name}; choose another name.")
        if place.suffix.lower() in RELEASES and _would_be_read(data, place):
            raise OutputError(
                f"{place} lies where {data} would read it as records the next time; choose another folder"
                f"{' with --out' if flag == '--out' else ''}."
            )
        taken[flag] = [place]


def _data_files(data: str) -> Iterable[Path]:
    path = Path(data)
    if path.is_dir():
        return path.rglob("*")
    if not path.exists() and glob.has_magic(data):
        return map(Path, glob.iglob(data, recursive=True))  # noqa: PTH207 - as the records are found
    return [path]


def _would_be_read(data: str, place: Path) -> bool:
    """Return whether a new file would be among the records that a folder or a glob stands for."""
    path = Path(data)
    if path.is_dir():
        return place.resolve().is_relative_to(path.resolve())
    if path.exists() or not glob.has_magic(data):
        return False
    where, pattern = place.absolute(), path.absolute()
    return fnmatch.fnmatch(str(where), str(pattern)) if "**" in data else where.match(str(pattern))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # one is not there, or a ring of links
        return False


def _check_writable(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a place that cannot take the result, before anything is charged."""
    if not path.name.lower().endswith(endings):
        raise OutputError(f"{path}: the ending must be one of {', '.join(endings)}.")
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist; make it first.")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".dphist-") as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise OutputError(f"cannot write in {path.parent}: {error.strerror}. Choose another place.") from None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Save without listening to Ctrl-C: what is paid for is worth the milliseconds."""
    if threading.current_thread() is not threading.main_thread():  # which no Ctrl-C reaches
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _save_or_rescue(release: Release, target: Path, *, overwrite: bool) -> Path:
    """Save a release that is paid for; if its place fails now, any other place is better than losing it."""
    from dphist.release import save_fresh

    try:
        return release.save(target, overwrite=True) if overwrite else save_fresh(release, target)
    except DphistError as error:
        try:
            rescue = release.save(Path(tempfile.mkdtemp(prefix="dphist-")) / target.with_suffix(".json").name)
        except (DphistError, OSError):
            typer.echo(release.to_json())
            _say(f"error: {error} The release is paid for, so it was printed instead: keep that output.")
            sys.exit(error.exit_code)
        _say(f"warning: {error} The release is paid for, so it was kept in {rescue}.")
        return rescue


def _draw(release: Release, plot: Path, saved: Path) -> bool:
    """Draw a release that is saved, or say how to do it later."""
    try:
        release.plot(plot)
    except Exception as error:  # whatever the renderer says: the release is worth more than its picture
        again = f"dphist plot {shlex.quote(str(saved))} {shlex.quote(str(plot))}"
        later = f"; draw it with: {again}" if saved.suffix.lower() != ".csv" else ""
        _say(f"error: no picture: {error} The release is safe in {saved}{later}")
        return False
    _say(f"picture: {plot}")
    return True


def _ledger_path(file: Path | None) -> Path:
    from dphist.api import DEFAULT_LEDGER

    return file or Path(os.environ.get("DPHIST_LEDGER", DEFAULT_LEDGER))


def _ledger(file: Path | None, dataset: str | None, *, read_only: bool) -> Ledger:
    """Return a ledger that exists and knows the dataset, if one is named."""
    book = Ledger.open(_ledger_path(file), create=False, read_only=read_only)
    known = book.datasets()
    if dataset is not None and dataset not in known:
        near = did_you_mean(dataset, known) if known else "It knows no dataset yet."
        raise UsageError(f"dataset {dataset!r} is not in the ledger {book.path}. {near}")
    return book


def _budget_line(book: Ledger, dataset: str) -> str:
    spent, limit = book.spent(dataset), book.limit(dataset)
    if limit is None:
        how = f"dphist ledger limit {shlex.quote(str(_near(book.path)))} VALUE"
        return (
            f"budget of {dataset!r}: spent {_amount(spent)}, no limit set\n"
            f"  set one with: {how} --dataset {shlex.quote(dataset)}"
        )
    left = max(limit - spent, Fraction(0))
    return f"budget of {dataset!r}: spent {_amount(spent)} of {_amount(limit)}, {_amount(left)} left"


def _near(path: Path) -> Path:
    """Return a path as a person here would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _amount(value: Fraction) -> str:
    """Return a budget for reading: as it was written where that is short, otherwise rounded."""
    text = as_decimal(value)
    return text if len(text) <= 10 else f"{float(value):.6g}"


def _show_plan(plan: Plan, data: str, account: Path, dataset: str, target: Path, as_json: bool) -> None:
    """Ask the ledger, which is not made, and print what would happen."""
    there = account.exists() and account.stat().st_size > 0
    if not there and not account.parent.is_dir():
        raise LedgerError(f"the directory {account.parent} does not exist. Make it, then try again.")
    book = Ledger.open(account, read_only=True) if there else MemoryLedger()
    book.check(plan.budget, dataset=dataset)
    left = book.remaining(dataset)
    facts: dict[str, Any] = {
        "data": data,
        "column": plan.column if isinstance(plan.column, str) else " by ".join(plan.column or ()),
        "bins": plan.domain.n,
        "range": " by ".join(_extent(axis) for axis in plan.domain.axes),
        "unit": "one record"
        if plan.unit is None
        else f"one {plan.unit} with at most {plan.max_contributions} records",
        "epsilon": str(plan.epsilon),
        "method": plan.method if isinstance(plan.method, str) else plan.method.name,
        "ledger": str(account),
        "dataset": dataset,
        "left": None if left is None else _amount(left),
        "left_after": None if left is None else _amount(left - plan.budget),
        "release": str(target),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    facts["ledger"] += "" if there else " (would be made)"
    typer.echo("dry run: nothing read, nothing charged")
    for name, fact in facts.items():
        typer.echo(f"  {name.replace('_', ' ') + ':':<11} {'no limit' if fact is None else fact}")


def _extent(axis: Axis) -> str:
    if axis.kind == "categories":
        names = axis.names()
        return ", ".join(names[:8]) + (f", ... ({len(names)} labels)" if len(names) > 8 else "")
    if axis.kind == "instants":
        return f"{axis.start} to {axis.stop}"  # type: ignore[union-attr]
    return f"{axis.edges[0]:.12g} to {axis.edges[-1]:.12g}"


def _show_release(release: Release) -> None:
    """Print a release as a table, thinned out to a screenful; of a grid, its total."""
    typer.echo(repr(release))
    if len(release.domain.axes) != 1:
        shape = " x ".join(str(n) for n in release.domain.shape)
        typer.echo(f"grid of {shape} bins; records in all: {release.total()}")
        typer.echo("ask for a part of it with: dphist query RELEASE XLO XHI YLO YHI")
        return
    from rich.cells import cell_len

    names, values = release.domain.axis.names(), release.values()
    low, high = release.intervals()
    shown = range(len(names)) if len(names) <= 24 else [*range(12), *range(len(names) - 12, len(names))]
    rows = []
    for i in shown:
        error = f"{low[i]:,.0f} to {high[i]:,.0f}" if low[i] == low[i] else "not known"
        rows.append((names[i], f"{values[i]:,.0f}", error))
    header = ("bin", "records", "95 % interval")
    numbers = sum(max(cell_len(row[k]) for row in [header, *rows]) for k in (1, 2))
    longest = max(cell_len(row[0]) for row in [header, *rows])
    # The bars get what the numbers leave, and labels are shortened before the bars are.
    room = max(_width(SCREEN) - numbers - 6, 16)
    label = min(longest, max(room - 30, room // 2))
    bar, top = min(30, room - label), max(float(values.max()), 1.0)
    bars = ["█" * round(bar * max(float(values[i]), 0.0) / top) for i in shown]
    table = [(*row, drawn) for row, drawn in zip(rows, bars, strict=True)]
    if len(names) > 24:
        table.insert(12, ("…", "…", "…", ""))
    _table((*header, ""), table, right=header[1:], label=label, width=_width(SCREEN))


def _width(otherwise: int) -> int:
    """Return how wide the screen is; what is piped has no screen."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else otherwise


def _table(
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    label: int | None = None,
    width: int | None = None,
) -> None:
    """Print a table.

    Args:
        right: columns of numbers.
        fold: columns whose texts may take several lines.
        label: the most that the first column gets; longer texts are cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in header:
        short = name == header[0] and label is not None
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=short or name not in fold,
            overflow="ellipsis" if short else "fold",
            max_width=label if short else None,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Printed by us, since Rich ends the program where a pipe is closed.
    console = Console(width=width or _width(160))
    with console.capture() as text:
        console.print(table)
    typer.echo(text.get(), nl=False)


def _simulated(plan: Plan) -> Callable[[Any, int], Any]:
    """Return a plan's mechanism with noise that is repeatable by the trial's number: values and groups."""
    import numpy as np

    from dphist.counts import Counts
    from dphist.privacy.curator import Curator

    def run(counts: Any, trial: int) -> Any:
        held = Counts(counts.reshape(plan.domain.shape), plan.domain)
        curator = Curator.simulated(held, epsilon=plan.budget, seed=trial)
        groups, estimated = plan.pipeline.values(curator, plan.queries)
        return np.stack([estimated.values, groups.labels()])

    return run


def _say(text: str) -> None:
    with suppress(OSError):
        typer.echo(text, err=True)


if __name__ == "__main__":
    main()
