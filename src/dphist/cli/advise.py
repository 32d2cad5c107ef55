"""The commands that look ahead: the best method, and what a plan could publish, before anything is spent."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dphist._common.rounded import interval
from dphist.cli import options
from dphist.cli.bins import make_domain, make_groups, words
from dphist.cli.common import (
    SCREEN,
    amount,
    listed,
    print_table,
    progress,
    say,
    screen_width,
    show,
    to_float,
    warnings_said,
)
from dphist.cli.options import BINS, OUTPUT, PRIVACY, bundled, option
from dphist.cli.places import PICTURES, check_free, check_writable
from dphist.cli.plans import RECORDS, SHAPE, make_plan, numbered, without_range
from dphist.errors import OutputError, UsageError
from dphist.planning.places import same_file

if TYPE_CHECKING:
    from dphist.planning.advise import Advice
    from dphist.planning.grouped_advice import GroupedAdvice
    from dphist.planning.grouped_preview import GroupedPreview
    from dphist.planning.preview import Preview

_DATA = "Made-up data"  # a panel of the help
_LIKE = "Shape (dphist shapes), earlier release, or public counts."
Like = Annotated[str | None, option(_DATA, _LIKE, "WHAT")]
Sums = Annotated[
    list[str] | None, option(BINS, "Groups asked for together: A,B; repeat it.", "GROUPS", "--sum")
]
Plot = Annotated[Path | None, option(OUTPUT, "A chart: .png, .svg or .html.", "FILE")]
Overwrite = Annotated[bool, option(OUTPUT, "Let the chart replace a file.", None, "--overwrite")]
Json = Annotated[bool, option(OUTPUT, "Print the result as JSON.", None, "--json")]


@bundled
def advise(
    axes: options.Axes,
    groups: options.Groups,
    records: Annotated[str, option(_DATA, "Approximate number of records, such as 1e6.", "N")],
    person: options.Person,
    epsilon: Annotated[str | None, option(PRIVACY, "Budget for which to predict the error.", "E")] = None,
    error: Annotated[
        str | None, option(PRIVACY, "Or the error to reach: records per query, or 2%.", "X")
    ] = None,
    at: Annotated[str | None, option(PRIVACY, "The level whose error that is.", "LEVEL")] = None,
    workload: Annotated[
        str,
        option(PRIVACY, "points, ranges, prefixes, rectangles; random:2000, rectangles:200", "NAME"),
    ] = "points",
    method: Annotated[list[str] | None, option(PRIVACY, "Compare only these methods: A,B", "NAMES")] = None,
    sums: Sums = None,
    like: Like = None,
    plot: Plot = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Recommend a method and predict its error by simulation; reads no private data, spends nothing.

    Bins are declared as for dphist publish; a number of --bins needs no --range here.
    """
    from dphist.planning.advise import advise as ask

    _check_plot(plot, like, overwrite=overwrite)
    if (epsilon is None) == (error is None):
        raise UsageError("give either --epsilon (what will the error be?) or --error (what does it cost?).")
    grouped, bins = make_groups(groups, numbered(axes))
    if not grouped and (at is not None or sums):
        raise UsageError("--at and --sum go with --by, the column of groups.")
    more: dict[str, Any] = grouped | {"at": at, "sums": _sums(sums)} if grouped else {}
    with warnings_said(), progress(shown=not as_json) as said:
        advice: Advice | GroupedAdvice = ask(
            make_domain(bins),
            records=to_float(records, "--records"),
            epsilon=epsilon,
            error=error,
            workload=workload,
            like=like,
            methods=listed(method) or None,
            max_contributions=person.max_contributions,
            progress=said,
            **more,
        )
    _draw(advice, plot, overwrite=overwrite)
    if as_json:
        show(json.dumps(advice.to_dict() | {"command": _next(advice, axes, groups, person)}))
        return
    show(f"{advice.question()} (simulated; no private records read, nothing spent)")
    if grouped:
        show("root mean square errors per query, in records, for each level; ~ depends on the data")
    header = advice.header()
    print_table(header, advice.cells(), right=header[1:], width=max(screen_width(SCREEN), SCREEN))
    show(advice.words())
    say(f"next: {_next(advice, axes, groups, person)}")


@bundled
def preview(
    axes: options.Axes,
    groups: options.Groups,
    reading: options.Reading,
    epsilon: Annotated[str, option(PRIVACY, "Privacy budget: 0.5", "E")],
    person: options.Person,
    method: Annotated[str, option(PRIVACY, "Default: auto; plain noise: identity.", "NAME")] = "auto",
    calibrate: Annotated[str | None, option(PRIVACY, "Part of epsilon for measuring bias.", "PART")] = None,
    workload: Annotated[
        str,
        option(PRIVACY, "points, ranges, prefixes, rectangles; random:2000, rectangles:200", "NAME"),
    ] = "points",
    post: Annotated[str, option(OUTPUT, "Values: none (default), nonneg, integer.", "HOW")] = "none",
    records: Annotated[str, option(_DATA, f"Approximate number of records; default {RECORDS:,}.", "N")] = str(
        RECORDS
    ),
    like: Like = SHAPE,
    sums: Sums = None,
    group: Annotated[str | None, option(OUTPUT, "The group that is drawn.", "LABEL")] = None,
    plot: Plot = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Show what a plan could publish: its expected error and simulated outcomes; spends nothing.

    The options are those of dphist publish, without DATA, which is not read.
    """
    from dphist.planning.grouped import GroupedPlan

    _check_plot(plot, like, overwrite=overwrite)
    choices = {"method": method, "calibrate": calibrate, "workload": workload, "post": post}
    plan = make_plan(numbered(axes), groups, reading, person, epsilon=epsilon, **choices)
    many: Any = to_float(records, "--records")
    assumed: dict[str, Any] = {"records": int(many) if many.is_integer() else many, "like": like}
    if not isinstance(plan, GroupedPlan) and (sums or group):
        raise UsageError("--sum and --group go with --by, the column of groups.")
    with warnings_said(), progress(shown=not as_json) as said:
        said(f"{plan.pipeline.name} at epsilon {amount(plan.budget)}")
        if isinstance(plan, GroupedPlan):
            _show_groups(plan.preview(**assumed, sums=_sums(sums)), group, plot, overwrite, as_json)
        else:
            _show_one(plan.preview(**assumed), plot, overwrite, as_json)


def _check_plot(plot: Path | None, like: str | None, *, overwrite: bool) -> None:
    if plot is not None:
        check_writable(plot, PICTURES)
        check_free(plot, overwrite=overwrite)
        if like is not None and same_file(plot, Path(like)):
            raise OutputError(f"{plot} is what --like reads; choose another name.")


def _sums(texts: list[str] | None) -> list[list[str]] | None:
    return [listed([text]) for text in texts] if texts else None


def _draw(drawn: Any, plot: Path | None, *, overwrite: bool, **more: Any) -> None:
    if plot is not None:
        drawn.plot(plot, overwrite=overwrite, **more)
        say(f"picture: {plot}")


def _show_one(found: Preview, plot: Path | None, overwrite: bool, as_json: bool) -> None:
    """Print a preview of one histogram: its errors, and bin by bin what came out."""
    from dphist.planning.preview import short

    _draw(found, plot, overwrite=overwrite)
    per_bin = float(np.abs(found.values - found.truth).mean())
    low, high = (ends.ravel() for ends in found.band())
    if as_json:
        facts = {
            "error": found.error,
            "bin_error": per_bin,
            "within_95": found.within(0.95),
            "errors": found.errors.tolist(),
            "truth": found.truth.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "outcomes": [release.presentable.tolist() for release in found.releases],
            "like": found.like,
            "simulated": True,
        }
        show(json.dumps(facts))
        return
    show(repr(found))
    show(f"expected error: {short(found.error)} records per query, {short(per_bin)} per bin (mean absolute)")
    show(f"95 of 100 answers are within {short(found.within(0.95))} records of the truth")
    if len(found.domain.axes) == 1:
        names, n = found.domain.axis.names(), found.domain.n
        rows: list[tuple[str, ...]] = []
        shown = _some(n)
        for before, i in zip([-1, *shown], shown, strict=False):
            rows += [("…", "…", "…")] if i > before + 1 else []
            rows.append((names[i], f"{found.truth[i]:,}", interval(low[i], high[i])))
        header = ("bin", "made up", "nine in ten outcomes")
        print_table(header, rows, right=header[1:], label=SCREEN // 2, width=screen_width(SCREEN))
    drawn = len(found.releases)
    errors = ", ".join(short(float(e)) for e in found.errors[:drawn])
    all_of_them = "" if drawn == len(found.errors) else f" of {len(found.errors)}"
    show(f"errors per query of {drawn}{all_of_them} outcomes: {errors}")


def _some(n: int) -> list[int]:
    """Return the bins that are shown: all of a few, and of many so few that a row stands between any two."""
    return list(range(n)) if n <= 24 else [int(i) for i in np.linspace(0, n - 1, 12)]


def _show_groups(
    found: GroupedPreview, group: str | None, plot: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Print a preview by group: the errors of each level."""
    _draw(found, plot, overwrite=overwrite, group=group)
    if as_json:
        facts = {
            "levels": [row.to_dict() for row in found.levels],
            "sums": [row.to_dict() for row in found.sums],
            "groups": list(found.hierarchy.leaves),
            "truth": found.truth.tolist(),
            "outcomes": [release.values().tolist() for release in found.releases],
            "like": found.like,
            "simulated": True,
        }
        show(json.dumps(facts))
        return
    show(f"{found.question()}; SIMULATED: no private records read, nothing spent")
    show("root mean square errors, in records")
    header = found.header()
    print_table(header, found.cells(), right=header[1:], width=max(screen_width(SCREEN), SCREEN))
    if found.releases[0].bounding:
        show(found.releases[0].bounding)


def _next(
    advice: Advice | GroupedAdvice, axes: options.Axes, groups: options.Groups, person: options.Person
) -> str:
    """Return the command that publishes with the recommended method."""
    said = ["dphist", "publish", "DATA"]
    said += [] if axes.column else ["--column", "COLUMN"]
    said += words(axes)
    ranges = without_range(axes)
    said += ["--range", "LO", "HI"] if "" in ranges else []
    said += ["--y-range", "LO", "HI"] if "y_" in ranges else []
    grid = any(word.startswith("--y-") for word in said)
    said += ["--y-column", "COLUMN"] if grid and axes.y_column is None else []
    said += words(groups)
    said += ["--unit", "PERSON"] if person.max_contributions > 1 and person.unit is None else []
    said += words(person)
    chosen = advice.best.to_dict()
    said += ["--method", chosen["method"], "--workload", advice.workload, "--epsilon", chosen["epsilon"]]
    said += ["--ledger", "LEDGER.db", "--out", "RELEASE.parquet" if groups.by else "RELEASE.json"]
    return shlex.join(said)
