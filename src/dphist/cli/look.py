"""The commands that spend nothing: query and plot a release, list and audit methods, the demo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphist.cli.common import JsonFlag, amount, print_table, say, show, show_release, to_float
from dphist.cli.places import PICTURES, OverwriteFlag, check_free, check_writable, same_file
from dphist.errors import OutputError, PrivacyError, UsageError

if TYPE_CHECKING:
    from dphist.api import Plan
    from dphist.domain import Axis
    from dphist.release import Estimate, Release


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
    from dphist.release.show import short_id

    loaded = load(release)
    answer = _ask(loaded, part, level)
    if not as_json:
        show(str(answer))
        if loaded.bounding and answer.low is not None:  # else the answer says it with why it has no interval
            say(f"note: {loaded.bounding}")
        if loaded.id is not None:
            say(f"from release {short_id(loaded.id)}")
        return
    ends = {"value": answer.value, "low": answer.low, "high": answer.high, "level": level}
    more = {"note": answer.note, "simulated": loaded.simulated, "release": loaded.id}
    show(json.dumps(ends | more))


def _ask(release: Release, part: list[str], level: float) -> Estimate:
    """Return the answer to a query whose parts stand one after the other, axis by axis."""
    axes = release.domain.axes
    labelled = [axis.kind == "categories" for axis in axes]
    if not any(labelled) and (flag := next((text for text in part if text.startswith("--")), None)):
        raise UsageError(f"no such option: {flag}; dphist query --help lists them.")
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
    return to_float(lo, "LO"), to_float(hi, "HI")


def plot(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    out: Annotated[Path, typer.Argument(help="Picture: .png, .svg or .html.")],
    log: Annotated[bool, typer.Option("--log", help="Logarithmic counts.")] = False,
    level: Annotated[float, typer.Option(help="Confidence level of the error band.")] = 0.95,
    joint: Annotated[bool, typer.Option("--joint", help="A band that holds for all bins at once.")] = False,
    overwrite: OverwriteFlag = False,
) -> None:
    """Draw a saved release with its error band."""
    from dphist.release import load

    loaded = load(release)
    check_writable(out, PICTURES)
    if same_file(out, release):
        raise OutputError(f"{out} is the release itself; choose another name.")
    check_free(out, overwrite=overwrite)
    loaded.plot(out, scale="log" if log else "linear", level=level, joint=joint)
    show(str(out))


def methods(as_json: JsonFlag = False) -> None:
    """List the catalogue: every method with what it does and who published it."""
    from dphist.mechanisms import METHODS

    if as_json:
        rows = [{"name": m.name, "summary": m.summary, "citation": m.citation} for m in METHODS]
        show(json.dumps(rows, indent=2))
        return
    header = ("method", "what it does", "published by")
    print_table(header, [(m.name, m.summary, m.citation) for m in METHODS], fold=header[1:])


def audit(
    method: Annotated[str, typer.Argument(help="A name from: dphist methods")],
    epsilon: Annotated[str, typer.Option(help="What the method shall promise.")] = "1",
    runs: Annotated[int, typer.Option(help="Runs on each of two neighbours; more see more.")] = 10_000,
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes: .png, .svg or .html.")] = None,
    overwrite: OverwriteFlag = False,
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
        check_writable(plot, PICTURES)
        check_free(plot, overwrite=overwrite)
    try:
        plan = Plan(bins=Domain((Integers(0, 7),)), epsilon=epsilon, method=method, calibrate=0)
    except UsageError as error:  # a few methods need a grid
        try:
            grid = Domain((Integers(0, 3), Integers(0, 3)))
            plan = Plan(bins=grid, epsilon=epsilon, method=method, calibrate=0)
        except UsageError:
            raise error from None
    say(f"running {method} about {max(8 * runs, 14_000):,} times on made-up counts ...")
    found = examine(_simulated(plan), claim=plan.budget, runs=runs, bins=plan.domain.n)
    verdict = "refuted" if found.violated else "not refuted"
    without, within = (x.tolist() for x in found.pair)
    if as_json:
        words = {"method": method, "claim": float(found.claim), "bound": found.bound}
        words |= {"violated": found.violated, "pair": [without, within], "event": found.event}
        words |= {"seen": list(found.seen), "tested": found.scores[0].size}
        show(json.dumps(words | {"runs": found.runs, "beta": found.beta}))
    else:
        show(f"claim    epsilon {amount(found.claim)}: {verdict}")
        show(f"bound    at least {found.bound:.3g}, but for a chance of {found.beta:g}")
        show(f"pair     {' '.join(map(str, without))} without the record")
        show(f"         {' '.join(map(str, within))} with it")
        show(f"event    {found.event}")
    if plot is not None:
        overlap_chart(
            {"without the record": found.scores[0], "with it": found.scores[1]},
            threshold=found.threshold,
            upwards=found.upwards,
            title=f"{method}: claims {amount(found.claim)}, loses at least {found.bound:.2f}: {verdict}",
            subtitle=f"{' '.join(map(str, without))} or {' '.join(map(str, within))}? Event: {found.event}",
            x_title="evidence for the record (log likelihood ratio, learned from other runs)",
        ).save(plot)
        say(f"picture: {plot}")
    if found.violated:
        raise typer.Exit(PrivacyError.exit_code)


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


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("dphist-demo"),
    epsilon: Annotated[str, typer.Option(help="The privacy budget.")] = "0.01",
) -> None:
    """Publish 336,776 real flights (public data), and leave release, picture and ledger behind."""
    from dphist import demonstration

    demonstration.run(out, epsilon=epsilon, say=say, show=show_release)
