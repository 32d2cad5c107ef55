"""Kellaris, Papadopoulos, Papadias: Engineering Methods for Differentially Private Histograms (TKDE 2019).

Figures 3 to 18 and Tables 1 and 2: fifteen combinations of four blocks, judged by time and error together.
None of the fifteen is told the queries, so one run of a method is judged by points, by all intervals, and by
intervals of several lengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from dphist.charts.picture import Picture
from dphist.domain import Domain
from dphist.domain.workload import Workload, fraction, make_workload
from dphist.lab import data as bench_data
from dphist.lab.data import Source
from dphist.lab.figures import lines, skyline
from dphist.lab.grid import Cell
from papers.claims import Case, Judge, listing
from papers.look import Look, Row, measured
from papers.runner import Facts, Report, Run, data_table
from papers.tables import number, table

SMALL, LARGE = "0.01", "1"
INTERVALS = "all-ranges"
ERROR = "mean squared error (records²)"
_BARS: Row = {"low": "low", "high": "high", "y_title": ERROR}


def report(run: Run, facts: Facts) -> Report:
    """Run Figures 3 to 18 and Tables 1 and 2, on what stands for the paper's data and on real files."""
    made, real = made_up(facts), real_files(facts, run.data)
    rows = run.rows(plan(facts, (*made, *real), quick=run.quick), queries=queries)
    points = ordered(facts, measured(rows, error="mean_squared"))
    look, ours, files = Look.into(points), [s.name for s in made], [s.name for s in real]
    printed = [speed_table(facts, look, ours), skyline_table(facts, look), *error_tables(facts, look, ours)]
    printed += error_tables(facts, look, files) if files else []
    about = {name: d["about"] for name, d in facts["data"].items()}
    held = [d | {"what": about.get(d["data"], "a file, as it is")} for d in data_table((*made, *real), rows)]
    hours = number(_full_hours(facts, points, (*made, *real)))
    general, special = facts["claims"]["general"], facts["claims"]["special"]
    sections = [
        f"A full run takes about {hours} hours of CPU time by what these cells took; divide it by the number "
        "of cores.\n",
        table(held, columns=["data", "bins", "records", "from", "what"], title="Data"),
        membership_text(membership(facts, look)),
        listing(
            judge_of(facts, look, ours).findings([*general, *special]),
            title="What the paper says, on the made-up data",
        ),
    ]
    if real:
        found = judge_of(facts, look, files).findings(general)
        sections.append(listing(found, title="The same on the real files"))
    return Report(rows, sections, printed, draw(facts, points, look, ours, files))


def judge_of(facts: Facts, look: Look, names: Sequence[str]) -> Judge:
    """Return what checks the claims on some data."""
    methods = tuple(facts["methods"])
    sets = facts["sets"] | {"data": list(names), "methods": methods}
    panels = [look.skyline(*at, methods) for at in product(names, sets["ends"], sets["kinds"])]

    def skylines(case: Case, method: str) -> int | None:
        """Return on how many skylines a method is, None if there are none."""
        return sum(method in panel for panel in panels) if any(panels) else None

    return Judge(look, sets, {"skylines": skylines})


def queries(name: str, domain: Domain) -> Workload:
    """Return the workload of a name; ``4%`` is all intervals that span so much of the domain."""
    return fraction(domain.n, float(name[:-1])) if name.endswith("%") else make_workload(name, domain)


def made_up(facts: Facts) -> tuple[Source, ...]:
    """Return what stands for the paper's data."""
    return tuple(Source(name, d["shape"], d["bins"], d["records"]) for name, d in facts["data"].items())


def real_files(facts: Facts, folder: Path | None) -> tuple[Source, ...]:
    """Return the files of one axis in a folder, made coarser if they are larger than the paper's largest."""
    if folder is None:
        return ()
    most = max(d["bins"] for d in facts["data"].values())
    found = bench_data.folder(folder, dims=1)
    return tuple(replace(s, n=most) if s.counts().size > most else s for s in found)


def plan(facts: Facts, sources: Sequence[Source], *, quick: bool) -> tuple[Cell, ...]:
    """Return the cells: all methods at the smallest and largest epsilon, the best five between them too."""
    sets, cells = facts["sets"], []
    between = [e for e in sets["epsilons"] if e not in sets["ends"]]
    for source, method in product(sources, facts["methods"]):
        n, best = source.counts().size, method in sets["top"]
        slow = weight(facts, method, n)
        trials = (2 if slow > 1e8 else 5 if slow > 1e7 else 10) if quick else (10 if slow > 1e8 else 100)
        for epsilon in (*sets["ends"], *(between if best else ())):
            lengths = sets["lengths"] if best and epsilon in sets["ends"] else ()
            cells.append(Cell(source, epsilon, INTERVALS, method, trials, (*sets["kinds"], *lengths)))
    # The longest first, so that no core is left alone with one of them at the end.
    return tuple(sorted(cells, key=lambda c: -weight(facts, c.method, c.source.n or 0) * c.trials))


def weight(facts: Facts, method: str, n: int) -> float:
    """Return roughly how many steps a run takes."""
    return float(n) ** 2 if method in facts["sets"]["slow"] else 30.0 * n


def ordered(facts: Facts, points: Sequence[Row]) -> list[Row]:
    """Return points in the order of the paper's data, then files, and of its methods."""
    names, methods = list(facts["data"]), list(facts["methods"])
    place = {name: i for i, name in enumerate(names)}
    return sorted(points, key=lambda p: (place.get(p["dataset"], len(names)), methods.index(p["method"])))


def draw(
    facts: Facts, points: Sequence[Row], look: Look, made: Sequence[str], real: Sequence[str]
) -> dict[str, tuple[str, Picture]]:
    """Return the figures in the paper's layout, by their files, with their titles."""
    sets, kinds = facts["sets"], facts["queries"]
    named = [p | {"kind": kinds[p["queries"]]} for p in points if p["queries"] in kinds]
    there = {p["dataset"] for p in points}
    made, real = ([name for name in names if name in there] for names in (made, real))
    drawn: dict[str, tuple[str, Picture]] = {}
    how: Row = {"error": "error", "column": "kind", "error_title": ERROR}
    for i, data in enumerate(facts["data"]):
        if data not in made:
            continue
        what = f"{data}, {look.size(data):,} bins"
        for j, epsilon in enumerate(sets["ends"]):
            title = f"Figure {3 + 2 * i + j}: time against error, {what}, epsilon {epsilon}"
            part = [p for p in named if p["dataset"] == data and p["epsilon"] == float(epsilon)]
            drawn[f"figure-{3 + 2 * i + j:02}.png"] = title, skyline(part, title=title, **how)
        title = f"Figure {11 + i}: error against epsilon, {what}"
        part = [p for p in named if p["dataset"] == data and p["method"] in sets["top"]]
        drawn[f"figure-{11 + i}.png"] = title, _against_epsilon(part, title)
        title = f"Figure {15 + i}: error against the length of intervals, {what}"
        drawn[f"figure-{15 + i}.png"] = title, _against_length(facts, points, [data], title)
    drawn = dict(sorted(drawn.items()))
    for (kind, names), epsilon in product((("made-up", made), ("real", real)), sets["ends"]):
        part = [p for p in named if p["dataset"] in names and p["epsilon"] == float(epsilon)]
        if part:
            part = [p | {"data": f"{p['dataset']} ({p['n']:,} bins)"} for p in part]
            title = f"The skyline of time and error, {kind} data, epsilon {epsilon}"
            columns = 2 if len(names) <= 4 else 4
            picture = skyline(part, row="data", title=title, columns=columns, **how)
            drawn[f"skyline-{kind}-{epsilon}.png"] = title, picture
    if real:
        part = [p for p in named if p["dataset"] in real and p["method"] in sets["top"]]
        part = [p | {"kind": f"{p['dataset']}, {p['kind']}"} for p in part]
        title = "Error against epsilon, real data"
        drawn["epsilon-real.png"] = title, _against_epsilon(part, title)
        title = "Error against the length of intervals, real data"
        drawn["length-real.png"] = title, _against_length(facts, points, real, title)
    return drawn


def _against_epsilon(part: Sequence[Row], title: str) -> Picture:
    note = "mean and 95 % bootstrap interval over trials; the best method of each group of the paper"
    how: Row = {"columns": 2 if len({p["kind"] for p in part}) <= 8 else 4, "x_title": "epsilon"}
    how |= {"title": title, "subtitle": note, "column": "kind"}
    return lines(part, x="epsilon", y="error", by="method", **how, **_BARS)


def _against_length(facts: Facts, points: Sequence[Row], names: Sequence[str], title: str) -> Picture:
    sets = facts["sets"]
    part = [
        p | {"length": float(p["queries"][:-1]), "panel": f"{p['dataset']}, epsilon {p['epsilon']:g}"}
        for name in names
        for p in points
        if p["dataset"] == name and p["method"] in sets["top"] and p["queries"] in sets["lengths"]
    ]
    part.sort(key=lambda p: (names.index(p["dataset"]), p["epsilon"]))
    note = "all intervals of one length; mean and 95 % bootstrap interval over trials"
    how: Row = {"columns": 2 if len(names) <= 4 else 4, "x_title": "length of the intervals (% of the bins)"}
    how |= {"title": title, "subtitle": note, "column": "panel"}
    return lines(part, x="length", y="error", by="method", **how, **_BARS)


def speed_table(facts: Facts, look: Look, names: Sequence[str]) -> str:
    """Return Table 1 with the time measured at every size, and how it grows."""
    sizes = dict(sorted(((name, look.size(name)) for name in names), key=lambda pair: pair[1]))
    listed = []
    for method, told in facts["methods"].items():
        times = {name: look.figure("seconds", name, LARGE, "points", method) for name in sizes}
        line: Row = {"method": method, "paper's name": told["name"], "paper's time": f"O({told['time']})"}
        line |= {f"{name}, N={n:,} (ms)": 1000 * times[name] for name, n in sizes.items()}
        listed.append(line | {"grows as": _growth(times, sizes)})
    note = (
        f"CPU time of one run in milliseconds at epsilon {LARGE}, median over trials. The last column is the "
        "power of N between the smallest and the largest size. The paper prints no times, except that MM "
        "would take about a month on Log."
    )
    return table(listed, columns=list(listed[0]), title="Table 1: time", note=note)


def _growth(times: Mapping[str, float], sizes: Mapping[str, int]) -> str:
    first, *_, last = sizes if len(sizes) > 1 else (*sizes, *sizes)
    if sizes[first] >= sizes[last] or not times[first] > 0 or not times[last] > 0:
        return ""
    return f"N^{math.log(times[last] / times[first]) / math.log(sizes[last] / sizes[first]):.1f}"


def _skylines(facts: Facts, look: Look) -> dict[str, tuple[set[str], set[str]]]:
    """Return for each figure who is on the skyline here, and who in the paper."""
    methods = tuple(facts["methods"])
    return {
        figure: (set(look.skyline(s["data"], s["epsilon"], s["queries"], methods)), set(s["members"]))
        for figure, s in facts["skylines"].items()
    }


def skyline_table(facts: Facts, look: Look) -> str:
    """Return Table 2: who is on the skyline of which figure, here and in the paper."""
    found = _skylines(facts, look)
    listed = []
    for method in facts["methods"]:
        line: Row = {"method": method}
        for figure, (ours, theirs) in found.items():
            here, there = method in ours, method in theirs
            line[figure] = "both" if here and there else "here" if here else "paper" if there else ""
        line["here"] = sum(method in ours for ours, _ in found.values())
        listed.append(line | {"paper": facts["skyline_totals"].get(method, 0)})
    note = (
        "Columns are the paper's figures: 3 and 4 Rome, 5 and 6 Log, 7 and 8 Citations, 9 and 10 PUMS; odd "
        f"ones epsilon {SMALL}, even ones {LARGE}; a for points, b for all intervals."
    )
    return table(listed, columns=list(listed[0]), title="Table 2: methods on the skyline", note=note)


def error_tables(facts: Facts, look: Look, names: Sequence[str]) -> list[str]:
    """Return the errors behind the skylines, a table for each kind of query."""
    made = []
    for kind, words in facts["queries"].items():
        at = {f"{name}, {e}": (name, e) for name, e in product(names, facts["sets"]["ends"])}
        listed = [
            {"method": m} | {column: look.error(*where, kind, m) for column, where in at.items()}
            for m in facts["methods"]
        ]
        title = f"Mean squared error, {words} ({', '.join(names)})"
        note = "Columns are data and epsilon."
        made.append(table(listed, columns=["method", *at], title=title, note=note))
    return made


def membership(facts: Facts, look: Look) -> dict[str, int]:
    """Return how many skyline members of the paper's figures are the same here."""
    pairs = [(ours, theirs) for ours, theirs in _skylines(facts, look).values() if ours]
    return {
        "panels": len(pairs),
        "ours": sum(len(ours) for ours, _ in pairs),
        "theirs": sum(len(theirs) for _, theirs in pairs),
        "both": sum(len(ours & theirs) for ours, theirs in pairs),
        "touching": sum(bool(ours & theirs) for ours, theirs in pairs),
    }


def membership_text(agreed: Mapping[str, int]) -> str:
    """Return in words how alike the skylines are."""
    if not agreed["panels"]:
        return ""
    return (
        f"### The skylines\n\nThe paper names {agreed['theirs']} members of {agreed['panels']} skylines; "
        f"{agreed['both']} of them are on ours, which have {agreed['ours']} members. At least one member is "
        f"the same in {agreed['touching']} of {agreed['panels']}. Times of a millisecond and less differ by "
        "little and by chance, so membership on the side of speed is uncertain.\n"
    )


def _full_hours(facts: Facts, points: Sequence[Row], sources: Sequence[Source]) -> float:
    took = {(p["dataset"], p["epsilon"], p["method"]): p["seconds"] for p in points}
    cells = plan(facts, sources, quick=False)
    each = (c.trials * took.get((c.source.name, float(c.epsilon), c.method), 0.0) for c in cells)
    return float(sum(each)) / 3600
