"""What the paper on engineering methods says, checked, and the page that tells it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dphist.lab.data import Source
from papers.engineering_plan import (
    ABOUT,
    BETWEEN,
    INTERVALS,
    LARGE,
    LENGTHS,
    METHODS,
    POINTS,
    QUERIES,
    SKYLINES,
    SMALL,
    TOP,
    Look,
    Row,
    plan,
    size_of,
)
from papers.findings import Finding, count, known, less, listing, ratios, tally
from papers.tables import head, number, table

_HONEST = "ordering and grouping both read the data, so both are paid for here"
_OTHER = "other data than the paper's"
_FAST = "our trees and S2's groups take near-linear time, so the order of times is another one"
_QUARTER = "cutting the tree takes a quarter of the budget, which does not come back where bins differ"
_PROOF = "S1 adds noise to single bins too, and at full scale: the proof needs both"


def general(points: Sequence[Row], datasets: Sequence[str]) -> list[Finding]:
    """Check what the paper says of all its data against the measurements on some."""
    look = Look.into(points)
    settings = [(d, e) for d in datasets for e in (SMALL, LARGE)]
    panels = [(d, e, q) for d, e in settings for q in QUERIES]
    on = Counter(m for panel in panels for m in look.skyline(*panel))
    some = bool(on)
    each = [(d, e, m) for d, e in settings for m in ("s1", "sa", "s2")]
    errors = [
        (look.error(d, e, INTERVALS, f"{m}+mm"), look.error(d, e, INTERVALS, f"{m}+pmm")) for d, e, m in each
    ]
    times = [(look.seconds(d, e, f"{m}+mm"), look.seconds(d, e, f"{m}+pmm")) for d, e, m in each]
    fastest = [look.fastest(d, e) for d, e in settings]
    worst = [look.worst(d, e, INTERVALS, TOP) for d, e in settings]
    exact = [look.best(d, e, POINTS, TOP) for d in datasets for e in (SMALL, *BETWEEN, LARGE)]
    long = [look.best(d, e, "64%", TOP) for d, e in settings]

    def compare(a: str, b: str, where: Sequence[tuple[str, str, str]]) -> tuple[list[bool | None], str]:
        both = [(look.error(*at, a), look.error(*at, b)) for at in where]
        return [less(y, x) for x, y in both], ratios(f"error of {a} over {b}", both)

    at_small, at_large = ([(d, e, POINTS) for d in datasets] for e in (SMALL, LARGE))
    return [
        count(
            "Table 2",
            "S2+H is on more skylines than any other (15 of 16)",
            [on["s2+h"] == max(on.values())] if some else [],
            f"of {len(panels)} skylines: {tally(on.elements())}",
            reason=_FAST,
        ),
        count(
            "Table 2",
            "no method with MM is on a skyline",
            [
                m not in look.skyline(*panel)
                for panel in panels
                for m in METHODS
                if m.endswith("+mm") and some
            ],
            reason=_FAST,
            every=True,
        ),
        count(
            "Table 2",
            "of the methods that order, only O+S~ is on skylines (4 of 16)",
            [on["o+sa"] > 0, not on["o+s1"], not on["o+s2"]] if some else [],
            ", ".join(f"{m} on {on[m]}" for m in ("o+s1", "o+sa", "o+s2")),
            reason=f"{_HONEST}; but O+S2 groups the very counts by which it orders, for nothing, and fast",
        ),
        count(
            "7.2",
            "PMM, tuned to prefixes, has errors like those of MM, tuned to all intervals",
            [0.8 <= a / b <= 1.25 for a, b in errors if a > 0 and b > 0],
            ratios("error of MM over PMM, all intervals", errors),
            reason="the two weigh the levels of the tree differently",
        ),
        count(
            "7.2",
            "PMM is orders of magnitude faster than MM",
            [a / b >= 10 for a, b in times if a > 0 and b > 0],
            ratios("time of MM over PMM", times),
            reason="here both tune a tree in near-linear time, without a matrix",
        ),
        count(
            "7.2",
            "the fastest is H, S1+H or S2+H",
            [m in ("h", "s1+h", "s2+h") for m in fastest if m],
            tally(fastest),
            reason=_FAST,
        ),
        count(
            "7.4", "H is always worse than S1+H", *compare("h", "s1+h", panels), reason=_QUARTER, every=True
        ),
        count(
            "7.4",
            "O+S~ has the highest error of the best five, with few exceptions (all intervals)",
            [m == "o+sa" for m in worst if m],
            tally(worst),
            reason=_OTHER,
        ),
        count(
            "7.4",
            "for points, S~ has the least error of the best five",
            [m == "sa" for m in exact if m],
            tally(exact),
            reason=_OTHER,
        ),
        count(
            "7.4",
            "for long intervals (64 %), S2+H has the least error of the best five",
            [m == "s2+h" for m in long if m],
            tally(long),
            reason="a long interval gains nothing from grouping, which takes a quarter of the budget",
        ),
        count(
            "7.2",
            f"grouping by absolute error beats squared error at epsilon {SMALL} (S1 and S2, points)",
            *compare("s2", "s1", at_small),
            reason=_PROOF,
        ),
        count(
            "7.2",
            f"grouping by squared error beats absolute error at epsilon {LARGE} (S1 and S2, points)",
            *compare("s1", "s2", at_large),
            reason=_OTHER,
        ),
    ]


def special(points: Sequence[Row]) -> list[Finding]:
    """Check what the paper says of one of its data sets against what stands for it here."""
    look = Look.into(points)
    log = look.skyline("Log", LARGE, INTERVALS)
    lengths = [look.best("Citations", SMALL, r, TOP) for r in LENGTHS]
    slowest = max(
        known(look.seconds("Log", LARGE, m) for m in METHODS if m.endswith("+mm")), default=math.nan
    )
    pums = [look.skyline("PUMS", e, POINTS) for e in (SMALL, LARGE)]
    return [
        count(
            "Figure 6b",
            f"on Log at epsilon {LARGE}, S2+H is the fastest and the most exact for all intervals",
            [log == ("s2+h",)] if log else [],
            f"the skyline: {', '.join(log)}",
            reason=_FAST,
        ),
        count(
            "7.1",
            "MM would take about a month on Log",
            [] if math.isnan(slowest) else [slowest > 86_400],
            f"the slowest of the three takes {number(slowest)} s",
            reason="the tree's best weights are found without the N by N matrix of the workload",
        ),
        count(
            "Figure 17a",
            f"on Citations at epsilon {SMALL}, S~ has the least error at every length",
            [m == "sa" for m in lengths if m],
            f"from 1 % to 64 %: {', '.join(lengths)}",
            reason=_OTHER,
            every=True,
        ),
        count(
            "Figures 9a, 10a",
            "on PUMS, O+S~ is on the skyline for points",
            ["o+sa" in members for members in pums if members],
            reason=_HONEST,
        ),
    ]


def page(
    rows: Sequence[Row],
    points: Sequence[Row],
    drawn: Sequence[tuple[str, str]],
    *,
    made: Sequence[Source],
    real: Sequence[Source],
    quick: bool,
    data: Path | None,
) -> str:
    """Return the text that goes with the tables and figures, worked out from the rows."""
    about = (
        "Fifteen combinations of four blocks (ordering, smoothing, fixed queries, hierarchy) are judged by "
        "time and error together. Every run here is private as a whole: ordering and grouping are paid for, "
        "and noise is drawn exactly. Time is CPU time of one run on this machine, compiled code, one thread; "
        "the paper's is Java's of 2018. Its figures are pictures without numbers: what can be compared is "
        "who is on which skyline, and what the text says."
    )
    sources = (*made, *real)
    held = [
        {
            "data": s.name,
            "bins": size_of(points, s.name),
            "records": next((p["scale"] for p in rows if p["dataset"] == s.name), None),
            "from": s.label if s in real else f"made up, shape {s.shape}",
            "what": ABOUT.get(s.name, "a file, as it is"),
        }
        for s in sources
    ]
    agreed = membership(points)
    parts = [
        head(
            "Engineering methods for private histograms, again",
            "engineering",
            quick=quick,
            data=data,
            rows=rows,
            about=about,
        ),
        f"A full run takes about {number(_full_hours(points, sources))} hours of CPU time by what these "
        "cells took; divide it by the number of cores.\n",
        table(held, columns=["data", "bins", "records", "from", "what"], title="Data"),
    ]
    if agreed["panels"]:
        parts.append(
            "### The skylines\n\n"
            f"The paper names {agreed['theirs']} members of {agreed['panels']} skylines; {agreed['both']} of "
            f"them are on ours, which have {agreed['ours']} members. At least one member is the same in "
            f"{agreed['touching']} of {agreed['panels']}. Times of a millisecond and less differ by little "
            "and by chance, so membership on the side of speed is uncertain.\n"
        )
    parts.append(
        listing(
            [*general(points, [s.name for s in made]), *special(points)],
            title="What the paper says, on the made-up data",
        )
    )
    if real:
        parts.append(listing(general(points, [s.name for s in real]), title="The same on the real files"))
    parts.append("### Figures\n\n" + "\n".join(f"![{title}]({file})" for file, title in drawn) + "\n")
    return "\n".join(parts)


def membership(points: Sequence[Row]) -> dict[str, int]:
    """Return how many skyline members of the paper's figures are the same here."""
    look = Look.into(points)
    pairs = [(set(look.skyline(d, e, q)), set(theirs)) for d, e, q, theirs in SKYLINES.values()]
    pairs = [(ours, theirs) for ours, theirs in pairs if ours]
    return {
        "panels": len(pairs),
        "ours": sum(len(ours) for ours, _ in pairs),
        "theirs": sum(len(theirs) for _, theirs in pairs),
        "both": sum(len(ours & theirs) for ours, theirs in pairs),
        "touching": sum(bool(ours & theirs) for ours, theirs in pairs),
    }


def _full_hours(points: Sequence[Row], sources: Sequence[Source]) -> float:
    took = {(p["dataset"], p["epsilon"], p["method"]): p["seconds"] for p in points}
    cells = plan(sources, quick=False)
    each = (c.trials * took.get((c.source.name, float(c.epsilon), c.method), 0.0) for c in cells)
    return float(sum(each)) / 3600
