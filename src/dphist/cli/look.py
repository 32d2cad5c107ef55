"""The commands query, plot, methods, audit and demo."""

from __future__ import annotations

import csv
import io
import json
import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist._common.rounded import nothing_else
from dphist.cli.common import (
    JsonFlag,
    amount,
    print_table,
    say,
    show,
    to_float,
)
from dphist.cli.places import PICTURES, OverwriteFlag, check_free, check_writable
from dphist.cli.shown import example_part, show_release, spelled_edges
from dphist.domain import Addresses, Codes, Hashed, Instants, Integers, Labelled
from dphist.errors import DataError, OutputError, PrivacyError, UsageError
from dphist.planning.places import same_file
from dphist.release.answers import shared_bins

if TYPE_CHECKING:
    from dphist.domain import Axis, Domain
    from dphist.planning.audit import Audit
    from dphist.release import Estimate, Release


def query(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART",
            help="Two bin edges LO HI (HI is excluded), such as 30 50 or 2024-01-01 2024-02-05; or labels; "
            "for a grid one after the other: XLO XHI YLO YHI.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Of a release by group: one of them, or several to be added up."),
    ] = None,
    ranges: Annotated[
        Path | None,
        typer.Option(
            help="Many ranges at once: a CSV file with the columns lo and hi (or label; of a grid x_lo, ...)."
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option(metavar="Q", help="The value below which this share of the records lies."),
    ] = None,
    mean: Annotated[bool, typer.Option("--mean", help="The mean of the records.")] = False,
    joint: Annotated[
        bool, typer.Option("--joint", help="An interval for a part that was picked after looking.")
    ] = False,
    since: Annotated[
        Path | None, typer.Option(help="An earlier release of the same bins: how the answer changed.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of each interval.")] = 0.95,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write the answers as CSV, one row each.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Answer how many records lie between LO and HI, with a confidence interval; spends nothing.

    Many ranges, quantiles and the mean are answered likewise. Without a PART the whole release is shown.
    """
    from dphist.release import load
    from dphist.release.show import short_id

    loaded: Any = load(release)
    asked = _one_group(loaded, group)
    if as_csv and as_json:
        raise UsageError("take --csv or --json, not both.")
    if ranges is not None or quantile or mean or as_csv:
        if joint or since is not None:
            raise UsageError("--joint and --since go with one PART.")
        rows = _rows(asked, part, ranges, quantile or [], mean, level)
        _show_rows(rows, loaded, level, as_csv=as_csv, as_json=as_json)
        if not as_json and (most := _of_most(asked, level)):
            say(f"note: {most}")
        return
    if not part:
        example = shlex.join(example_part(asked.domain))
        if as_json or joint or since is not None or (group and isinstance(asked, _Sums)):
            raise UsageError(f"ask for a part, such as {example}; or take --ranges, --quantile or --mean.")
        show_release(loaded if isinstance(asked, _Sums) else asked)
        if most := _of_most(asked, level):
            say(f"note: {most}")
        say(f"ask for a part, such as: dphist query {shlex.quote(str(release))} {example}")
        return
    answer = _ask(asked, part, level, joint=joint)
    changed = None if since is None else _change(asked, since, group, part, level, joint=joint)
    accuracy = "" if isinstance(asked, _Sums) else asked.error.accuracy
    if not as_json:
        show(str(answer))
        if changed is not None:
            show(f"changed by {changed}")
        empty = nothing_else([answer.low], [answer.high])
        most = _of_most(asked, level) if answer.low is not None and not joint else ""
        for words in filter(
            None, (_ends_in(asked.domain, part), empty, most, accuracy, shared_bins(asked.domain))
        ):
            say(f"note: {words}")
        if loaded.bounding and answer.low is not None:  # else the answer says it with why it has no interval
            say(f"note: {loaded.bounding}")
        if loaded.id is not None:
            say(f"from release {short_id(loaded.id)}")
        return
    ends = {"value": answer.value, "low": answer.low, "high": answer.high, "level": level}
    more = {"note": answer.note, "accuracy": accuracy}
    more |= {"simulated": loaded.simulated, "release": loaded.id}
    if changed is not None:
        more["change"] = {"value": changed.value, "low": changed.low, "high": changed.high}
    show(json.dumps(ends | more))


def _ends_in(domain: Domain, part: list[str]) -> str:
    """Return which integers lie between the edges of a part, for the upper one is not among them."""
    axes = domain.axes
    if len(part) != 2 * len(axes) or not all(isinstance(axis, Integers) for axis in axes):
        return ""
    ends = [int(_number(axes[0], text, "an end")) for text in part]
    runs = (f"{lo} to {hi - 1}" for lo, hi in zip(ends[::2], ends[1::2], strict=True))
    return f"this counts {' by '.join(runs)}, both included"


def _of_most(asked: Any, level: float) -> str:
    """Return that intervals are no promise about each bin or range, where they are none."""
    from dphist.release.words import of_most

    return of_most(asked.release if isinstance(asked, _Sums) else asked, level)


def _change(
    asked: Any, since: Path, group: list[str] | None, part: list[str], level: float, *, joint: bool
) -> Estimate:
    """Return how the answer about a part changed since an earlier release."""
    from dphist.release import load
    from dphist.release.differences import change, level_of_each

    earlier = _one_group(load(since), group)
    if earlier.domain != asked.domain:
        raise UsageError(f"{since} has other bins: only the same bins can be compared.")
    new, old = (_ask(each, part, level_of_each(level), joint=joint) for each in (asked, earlier))
    return change(new, old)


def _rows(
    release: Any,
    part: list[str] | None,
    ranges: Path | None,
    quantiles: list[float],
    mean: bool,
    level: float,
) -> list[tuple[list[str], Estimate]]:
    """Return every question in words, with its answer."""
    rows = [(part, _ask(release, part, level))] if part else []
    if ranges is not None:
        rows += _answers(release, _read_ranges(ranges, release.domain), level)
    if (quantiles or mean) and isinstance(release, _Sums):
        raise UsageError("quantiles and means are of one group: name it with --group.")
    if quantiles or mean:
        _check_ordered(release, "mean" if mean else "quantile")
    rows += [([f"quantile {q:g}"], release.quantile(q, level=level)) for q in quantiles]
    return rows + ([(["mean"], release.mean(level=level))] if mean else [])


def _check_ordered(release: Any, asked: str) -> None:
    """Refuse what only numbers in a row have, and say what the shell can be asked instead."""
    axes = release.domain.axes
    example = shlex.join(example_part(release.domain))
    if len(axes) == 2:
        instead = ""
        if hasattr(release, "project"):
            given = "0.5" if asked == "quantile" else ""
            instead = f", or in Python for release.project(axis).{asked}({given})"
        raise UsageError(f"a grid has no {asked}: ask for a part, such as {example}{instead}.")
    if isinstance(axes[0], Labelled):
        what = "hashed keys have" if isinstance(axes[0], Hashed) else "labels have"
        raise UsageError(f"{what} no {asked}: ask for one of them, such as {example}.")


def _read_ranges(path: Path, domain: Domain) -> list[list[str]]:
    """Return the parts that a file of ranges lists, a list for each, in the order of the axes."""
    names = [
        ("", "x_", "y_")[(len(domain.axes) == 2) * (i + 1)] + name
        for i, axis in enumerate(domain.axes)
        for name in (["label"] if isinstance(axis, Labelled) else ["lo", "hi"])
    ]
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            read = csv.DictReader(file)
            if not set(names) <= set(read.fieldnames or ()):
                raise DataError(f"{path} needs a first line with the columns {', '.join(names)}.")
            found = [[row[name] for name in names] for row in read]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from None
    if not found or any(text is None for row in found for text in row):
        raise DataError(f"{path} needs at least one row, and in each a text under {', '.join(names)}.")
    return found


def _answers(release: Any, parts: list[list[str]], level: float) -> list[tuple[list[str], Estimate]]:
    """Return each part with its answer; ranges of numbers and of time are asked all at once."""
    axes = release.domain.axes
    if isinstance(release, _Sums) or any(isinstance(axis, Labelled) for axis in axes):
        return [(part, _ask(release, part, level)) for part in parts]
    columns = iter(zip(*parts, strict=True))
    where = [tuple(_end(axis, next(columns), name) for name in ("LO", "HI")) for axis in axes]
    return list(zip(parts, release.sum(*(where[0] if len(axes) == 1 else where), level=level), strict=True))


def _show_rows(
    rows: list[tuple[list[str], Estimate]], release: Any, level: float, *, as_csv: bool, as_json: bool
) -> None:
    """Write many answers, for people or for machines."""
    if as_json:
        answers = [{"asked": part, "value": a.value, "low": a.low, "high": a.high} for part, a in rows]
        more = {"note": rows[0][1].note, "simulated": release.simulated, "release": release.id}
        show(json.dumps({"answers": answers, "level": level} | more))
        return
    if as_csv:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("asked", "value", "low", "high", "level"))
        table.writerows((" ".join(part), *_written(a), level) for part, a in rows)
        show(text.getvalue().rstrip("\n"))
    else:
        for part, a in rows:
            show(f"{' '.join(part)}: {a}")
    if release.bounding:
        say(f"note: {release.bounding}")


def _written(answer: Estimate) -> tuple[Any, ...]:
    """Return value, low and high as in a table: instants as the clock shows them, no text for unknown."""
    if answer.spelled:
        return (*answer.spelled, "", "")[:3]
    return tuple("" if x is None else x for x in (answer.value, answer.low, answer.high))


class _Sums:
    """Several groups of a release, asked as if they were one."""

    def __init__(self, release: Any, groups: list[str] | None) -> None:
        self.release, self.groups, self.domain = release, groups, release.bins

    def sum(self, *where: Any, level: float) -> Estimate:
        """Return the sum over the groups."""
        answer: Estimate = self.release.sum(*where, groups=self.groups, level=level)
        return answer

    def count(self, label: str, *, level: float) -> Estimate:
        """Return one bin's sum over the groups."""
        from dphist.release.answers import bin_named

        at = bin_named(self.domain, label)
        return self.sum(*spelled_edges(self.domain.axis)[at : at + 2], level=level)


def _one_group(release: Any, groups: list[str] | None) -> Any:
    """Return what is asked: a release, or some groups of one."""
    if not hasattr(release, "hierarchy"):
        if groups:
            raise UsageError("this release has no groups; leave --group out.")
        return release
    return release[groups[0]] if groups and len(groups) == 1 else _Sums(release, groups)


def _ask(release: Release, part: list[str], level: float, *, joint: bool = False) -> Estimate:
    """Return the answer to a query whose parts are listed axis by axis."""
    from dphist.release import Release

    how: Any = {"level": level, "joint": True} if joint else {"level": level}
    if joint and not isinstance(release, Release):
        of = "one group: name it with --group" if isinstance(release, _Sums) else "bins that are all listed"
        raise UsageError(f"--joint is of {of}.")
    axes = release.domain.axes
    labelled = [isinstance(axis, Labelled) for axis in axes]
    if not any(labelled) and (flag := next((text for text in part if text.startswith("--")), None)):
        raise UsageError(f"no such option: {flag}; dphist query --help lists them.")
    if len(axes) == 1 and labelled[0]:
        return _single(release.sum(part, **how))
    if not joint and len(axes) == 1 and len(part) == 1 and isinstance(axes[0], Integers | Instants):
        return release.count(part[0], level=level)
    if any(isinstance(axis, Addresses | Codes) for axis in axes):
        return _ask_by_text(release, part, how)
    # Whatever the other axis leaves are labels.
    most = len(part) - 2 if labelled.count(True) == 1 else 1
    if most < 1 or len(part) != sum(most if label else 2 for label in labelled):
        words = ["LABEL" if label else "LO HI" for label in labelled]
        if len(axes) == 2:
            words = [f"X{words[0].replace(' ', ' X')}", f"Y{words[1].replace(' ', ' Y')}"]
        kind = "this release is a grid" if len(axes) == 2 else "this release has no labels"
        raise UsageError(
            f"{kind}; ask at its bin edges: dphist query RELEASE {' '.join(words)}, such as "
            f"{shlex.join(example_part(release.domain))}"
        )
    rest = iter(part)
    where = [
        list(islice(rest, most)) if isinstance(axis, Labelled) else _ends(axis, next(rest), next(rest))
        for axis in axes
    ]
    return _single(release.sum(*(where[0] if len(axes) == 1 else where), **how))


def _ask_by_text(release: Release, part: list[str], how: dict[str, Any]) -> Estimate:
    """Return the answer to a query of addresses or codes: one part of each axis, or two ends of the line."""
    axes = release.domain.axes
    if len(axes) == 2:
        if len(part) != 2 or not all(isinstance(axis, Addresses | Codes | Labelled) for axis in axes):
            example = shlex.join(example_part(release.domain))
            raise UsageError(f"this release is a grid; name a part of each axis, such as {example}")
        pairs = zip(axes, part, strict=True)
        where = [[text] if isinstance(axis, Labelled) else text for axis, text in pairs]
        return _single(release.sum(*where, **how))
    axis: Any = axes[0]
    if len(part) == 1 and "joint" not in how:
        first, last = axis.run(part[0])
        if last - first == 1:  # of a listing, a bin that is not listed has an interval, too
            return release.count(part[0], **how)
    return _single(release.sum(*part, **how))


def _single(answer: Estimate) -> Estimate:
    """Return the answer to one query, whose type is then known."""
    return answer


def _end(axis: Axis, texts: tuple[str, ...], name: str) -> list[Any]:
    as_text = isinstance(axis, Instants | Addresses | Codes)
    return [text if as_text else _number(axis, text, name) for text in texts]


def _ends(axis: Axis, lo: str, hi: str) -> tuple[Any, Any]:
    if isinstance(axis, Instants):
        return lo, hi
    return _number(axis, lo, "LO"), _number(axis, hi, "HI")


def _number(axis: Axis, text: str, name: str) -> float:
    """Return an end; a whole number of an axis of integers as it is, since doubles end at 2**53."""
    is_whole = isinstance(axis, Integers) and text.removeprefix("-").isdecimal()
    return int(text) if is_whole else to_float(text, name)


def plot(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    out: Annotated[Path, typer.Argument(help="File for the chart: .png, .svg or .html.")],
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Of a release by group: one of them, or several side by side."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Draw counts on a logarithmic axis.")] = False,
    level: Annotated[float, typer.Option(help="Confidence level of the error band.")] = 0.95,
    joint: Annotated[
        bool, typer.Option("--joint", help="Draw the band that holds simultaneously for all bins.")
    ] = False,
    title: Annotated[str, typer.Option(help="Title of the picture; by default what was counted.")] = "",
    xlabel: Annotated[str, typer.Option(help="Name of the axis of the bins.")] = "",
    ylabel: Annotated[str, typer.Option(help="Name of the other axis.")] = "",
    size: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="WIDTH HEIGHT", help="Of the whole picture, in pixels: 900 400"),
    ] = None,
    overwrite: OverwriteFlag = False,
) -> None:
    """Draw a saved release with its error band; of a release by group its largest groups, side by side."""
    from dphist.release import load

    loaded: Any = load(release)
    options: dict[str, Any] = {"level": level, "overwrite": overwrite}
    options |= {"title": title, "xlabel": xlabel, "ylabel": ylabel, "size": size}
    if isinstance(one := _one_group(loaded, group), _Sums):
        if log or joint:
            raise UsageError("--log and --joint go with a picture of one group: name it with --group.")
        options |= {"groups": group}
    else:
        loaded = one
        options |= {"log": log}
        if hasattr(loaded, "pieces"):
            if joint:
                raise UsageError("--joint is for releases that have a number for every bin; leave it out.")
            del options["level"]
        else:
            options |= {"joint": joint}
    check_writable(out, PICTURES)
    if same_file(out, release):
        raise OutputError(f"{out} is the release itself; choose another name.")
    check_free(out, overwrite=overwrite)
    loaded.plot(out, **options)
    show(str(out))


def methods(as_json: JsonFlag = False) -> None:
    """List every method with a description and its citation."""
    from dphist.methods.catalogue import CATALOGUE, LISTED

    known = [*CATALOGUE.values(), LISTED]
    if as_json:
        show(json.dumps([{n: v for n, v in vars(m).items() if n != "build"} for m in known], indent=2))
        return
    header = ("method", "what it does", "facts", "published by")
    rows = [(" = ".join((m.name, *m.aliases)), m.summary, "; ".join(m.facts), m.citation) for m in known]
    print_table(header, rows, fold=header[1:])


def audit(
    method: Annotated[str, typer.Argument(help="Name of a method; dphist methods lists them.")],
    epsilon: Annotated[str, typer.Option(help="The epsilon that the method claims.")] = "1",
    trials: Annotated[
        int,
        typer.Option(help="Runs on each of two neighbouring data sets; more runs find smaller violations."),
    ] = 15_000,
    by_group: Annotated[
        bool,
        typer.Option("--by-group", help="Audit a release by group: units with records in several groups."),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="File for the chart: .png, .svg or .html.")] = None,
    overwrite: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Try to refute a method's privacy claim: lower bounds on its epsilon, from simulated runs alone.

    Each query that the method asks of the data is audited separately, then its whole output, up to the first
    violation. The exit code is 5 if there is one, which should never happen for a method of the catalogue.
    """
    from dphist.charts.histogram import overlap_chart
    from dphist.planning.audit_method import audit_groups, audit_method

    if plot is not None:
        check_writable(plot, PICTURES)
        check_free(plot, overwrite=overwrite)
    say(f"running {method} on made-up counts, {trials:,} times and more for each question (minutes) ...")
    audits = []
    asked = audit_method(method, epsilon=epsilon, trials=trials)
    if by_group:
        asked = iter([("all groups together", audit_groups(method, epsilon=epsilon, trials=trials))])
    for part, found in asked:
        audits.append((part, found))
        say(f"{part}: claims {amount(found.claim)}, loses at least {found.bound:.3g}")
        if found.violated:
            break
    part, found = audits[-1]
    verdict = "refuted" if found.violated else "not refuted"
    without, within = (x.tolist() for x in found.pair)
    if as_json:
        rows = [_summary(part, found) for part, found in audits]
        show(json.dumps({"method": method, **rows.pop(), "parts": rows}))
    else:
        show(f"claim    epsilon {amount(found.claim)} for {part}: {verdict}")
        show(f"bound    at least {found.bound:.3g}, but for a chance of {found.beta:.1g}")
        show(f"pair     {' '.join(map(str, without))} without the unit")
        show(f"         {' '.join(map(str, within))} with it")
        show(f"event    {found.event}")
    if plot is not None:
        overlap_chart(
            {"without the unit": found.scores[0], "with it": found.scores[1]},
            threshold=found.threshold,
            upwards=found.upwards,
            title=f"{method}: claims {amount(found.claim)}, loses at least {found.bound:.2f}: {verdict}",
            subtitle=f"{' '.join(map(str, without))} or {' '.join(map(str, within))}? Event: {found.event}",
            x_title="evidence for the unit (log likelihood ratio, learned from other runs)",
        ).save(plot, overwrite=overwrite)
        say(f"picture: {plot}")
    if found.violated:
        raise typer.Exit(PrivacyError.exit_code)


def _summary(part: str, found: Audit) -> dict[str, Any]:
    """Return an audit as plain values for JSON."""
    return {
        "part": part,
        "claim": float(found.claim),
        "bound": found.bound,
        "violated": found.violated,
        "pair": [x.tolist() for x in found.pair],
        "event": found.event,
        "seen": list(found.seen),
        "tested": found.scores[0].size,
        "trials": found.trials,
        "runs": found.trials,  # its old name, for one version
        "beta": found.beta,
    }
