"""The command line: results on stdout, everything else on stderr, an exit code that says what went wrong.

Exit codes: 0 done, 2 usage, 3 the ledger refuses, 4 bad data, 5 a privacy rule, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist.errors import DphistError, OutputError, PrivacyError, UsageError
from dphist.version import __version__

if TYPE_CHECKING:
    from dphist.api import Plan
    from dphist.privacy.ledger import Ledger
    from dphist.release import Release

app = typer.Typer(
    help="Publish histograms under differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
ledger_app = typer.Typer(
    help="Show, create, limit and export the record of what was spent.", invoke_without_command=True
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
    try:
        app()
    except DphistError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted. What was charged stays charged (see: dphist ledger show); files are whole.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stderr.close()
        sys.exit(0)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"dphist {__version__}")
        raise typer.Exit


@app.command()
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
    categories: Annotated[str | None, typer.Option(help="Labels to count: red,green,blue")] = None,
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
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes: .png, .svg or .html.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, touch no data, spend nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Publish a private histogram of DATA."""
    from dphist import api

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
    target = _fresh("release.json") if out is None else out
    if dry_run:
        _show_plan(plan, data, target, as_json)
        return
    _check_writable(target, (".json", ".csv", ".parquet"))
    if plot is not None:
        _check_writable(plot, (".png", ".svg", ".html", ".json"))
    release = plan.release(data, ledger=ledger, dataset=dataset)
    saved = _save_or_rescue(release, target)
    if plot is not None:
        release.plot(plot)
        _say(f"picture: {plot}")
    if as_json:
        typer.echo(saved.read_text("utf-8") if saved.suffix == ".json" else release.to_json())
    else:
        _show_release(release)
    _say(f"release: {saved}")
    book = api.open_ledger(ledger, durable=True)
    _say(_budget_line(book, dataset))


@app.command(context_settings={"ignore_unknown_options": True})
def query(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    lo: Annotated[str, typer.Argument(help="Lower bin edge, or a label.")],
    hi: Annotated[str | None, typer.Argument(help="Upper bin edge (not included).")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the interval.")] = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Answer how many records lie between LO and HI, with its error; free, as often as you like."""
    from dphist.release import load

    loaded = load(release)
    if hi is None:
        answer = loaded.count(lo, level=level)
    else:
        answer = loaded.sum(_float(lo, "LO"), _float(hi, "HI"), level=level)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "value": answer.value,
                    "low": answer.low,
                    "high": answer.high,
                    "level": level,
                    "note": answer.note,
                }
            )
        )
    else:
        typer.echo(str(answer))


@app.command()
def plot(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    out: Annotated[Path, typer.Argument(help="Picture: .png, .svg or .html.")],
    log: Annotated[bool, typer.Option("--log", help="Logarithmic counts.")] = False,
    level: Annotated[float, typer.Option(help="Confidence level of the error band.")] = 0.95,
) -> None:
    """Draw a saved release with its error band."""
    from dphist.release import load

    loaded = load(release)
    _check_writable(out, (".png", ".svg", ".html", ".json"))
    loaded.plot(out, scale="log" if log else "linear", level=level)
    typer.echo(str(out))


@app.command()
def methods(as_json: JsonFlag = False) -> None:
    """List the catalogue: every method with what it does and who published it."""
    from dphist.mechanisms import METHODS

    if as_json:
        rows = [{"name": m.name, "summary": m.summary, "citation": m.citation} for m in METHODS]
        typer.echo(json.dumps(rows, indent=2))
        return
    _table(("method", "what it does", "published by"), [(m.name, m.summary, m.citation) for m in METHODS])


@app.command()
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


@ledger_app.command("show")
def ledger_show(
    file: LedgerPath = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what was spent, by whom, and what is left."""
    from dphist.privacy.ledger import to_json

    book = _ledger(file)
    if as_json:
        typer.echo(to_json(book.entries(dataset)))
        return
    rows = [
        (str(e.number), e.when, e.dataset, e.kind, _amount(e.epsilon), e.mechanism, e.what)
        for e in book.entries(dataset)
    ]
    _table(("no", "when (UTC)", "dataset", "kind", "epsilon", "mechanism", "what"), rows)
    names = [dataset] if dataset is not None else book.datasets()
    for name in names:
        typer.echo(_budget_line(book, name))


@ledger_app.command("create")
def ledger_create(
    file: Annotated[Path, typer.Argument(help="The ledger file to make.")],
    limit: Annotated[str | None, typer.Option(help="The most this dataset may ever spend.")] = None,
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Create a ledger, with a limit if one is given."""
    from dphist.privacy.ledger import Ledger, parse_epsilon

    wanted = None if limit is None else parse_epsilon(limit, name="limit")
    book = Ledger.open(file)
    if wanted is not None:
        book.set_limit(dataset, wanted)
    typer.echo(_budget_line(book, dataset))


@ledger_app.command("limit")
def ledger_limit(
    file: Annotated[Path, typer.Argument(help="The ledger file.")],
    value: Annotated[str, typer.Argument(help="The new limit, or none.")],
    dataset: Annotated[str, typer.Option(help="The dataset's name.")] = "default",
) -> None:
    """Set the most a dataset may ever spend; the change itself is journaled."""
    typer.echo(f"{dataset!r}: {_ledger(file).set_limit(dataset, None if value == 'none' else value)}")


@ledger_app.command("export")
def ledger_export(
    file: LedgerPath = None,
    form: Annotated[Form, typer.Option("--format", help="csv or json.")] = Form.csv,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
) -> None:
    """Print the whole journal as CSV or JSON."""
    from dphist.privacy.ledger import to_csv, to_json

    entries = _ledger(file).entries(dataset)
    typer.echo(to_csv(entries) if form is Form.csv else to_json(entries), nl=form is Form.json)


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
    if edges:
        x: dict[str, Any] = {"bins": [_float(e, "--edges") for e in edges.split(",")]}
    elif categories:
        x = {"categories": [c.strip() for c in categories.split(",")]}
    else:
        x = {"bins": _whole(bins or "", "--bins"), "range": _span(span)}
    if y_bins is None:
        return x
    if "categories" in x:
        raise UsageError(
            "a grid on the command line needs numeric bins; use dphist.histogram2d for categories."
        )
    y = make_axis(_whole(y_bins, "--y-bins"), _span(y_span))
    return {"bins": Domain((make_axis(x["bins"], x.get("range")), y))}


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


def _fresh(name: str) -> Path:
    """Return a name in this folder that no file has yet: a paid release is never written over."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return path


def _check_writable(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a place that cannot take the result, before anything is charged."""
    if path.suffix.lower() not in endings:
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


def _save_or_rescue(release: Release, target: Path) -> Path:
    """Save a release that is paid for; if its place fails now, any other place is better than losing it."""
    try:
        release.save(target)
        return target
    except DphistError as error:
        rescue = Path(tempfile.mkdtemp(prefix="dphist-")) / "release.json"
        try:
            release.save(rescue)
        except DphistError:
            typer.echo(release.to_json())
            _say(f"error: {error} The release is paid for, so it was printed instead: keep that output.")
            sys.exit(error.exit_code)
        _say(f"warning: {error} The release is paid for, so it was kept in {rescue}.")
        return rescue


def _ledger(file: Path | None) -> Ledger:
    import os

    from dphist.api import DEFAULT_LEDGER
    from dphist.privacy.ledger import Ledger

    return Ledger.open(file or Path(os.environ.get("DPHIST_LEDGER", DEFAULT_LEDGER)), create=False)


def _budget_line(book: Any, dataset: str) -> str:
    spent, limit = book.spent(dataset), book.limit(dataset)
    if limit is None:
        return f"budget of {dataset!r}: spent {_amount(spent)}, no limit set (dphist ledger limit FILE VALUE)"
    left = max(limit - spent, 0)
    return f"budget of {dataset!r}: spent {_amount(spent)} of {_amount(limit)}, {_amount(left)} left"


def _amount(value: Any) -> str:
    return "" if value is None else f"{float(value):g}"


def _show_plan(plan: Plan, data: str, target: Path, as_json: bool) -> None:
    facts = {
        "data": data,
        "bins": plan.domain.n,
        "epsilon": str(plan.epsilon),
        "method": plan.method if isinstance(plan.method, str) else plan.method.name,
        "release": str(target),
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(
            "dry run: nothing read, nothing charged\n" + "\n".join(f"  {k}: {v}" for k, v in facts.items())
        )


def _show_release(release: Release) -> None:
    """Print a release as a table, thinned out to a screenful."""
    typer.echo(repr(release))
    if len(release.domain.axes) != 1:
        return
    names, values = release.domain.axis.names(), release.values()
    low, high = release.intervals()
    shown = range(len(names)) if len(names) <= 24 else [*range(12), *range(len(names) - 12, len(names))]
    top = max(float(values.max()), 1.0)
    rows = []
    for i in shown:
        error = f"{low[i]:,.0f} to {high[i]:,.0f}" if low[i] == low[i] else "not known"
        bar = "█" * round(30 * max(float(values[i]), 0.0) / top)
        rows.append((names[i], f"{values[i]:,.0f}", error, bar))
        if i == 11 and len(names) > 24:
            rows.append(("…", "…", "…", ""))
    _table(("bin", "records", "95 % interval", ""), rows)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    # A table that is piped is not cut to the width of a screen that is not there.
    Console(width=None if console.is_terminal else 160).print(table)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    main()
