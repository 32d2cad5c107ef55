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
from dphist.lab.grid import Cell
from papers.claims import Case, Judge, listing
from papers.look import Look, Row, measured
from papers.runner import Facts, Report, Run, data_table, draw, made_up
from papers.tables import number, table

SMALL, LARGE = "0.01", "1"
INTERVALS = "ranges"


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
    agreed = membership(facts, look)
    general, special = facts["claims"]["general"], facts["claims"]["special"]
    sections = [
        facts["notes"]["hours"].format(number(_full_hours(facts, points, (*made, *real)))),
        table(held, title="Data"),
        facts["notes"]["members"].format_map(agreed) if agreed["panels"] else "",
        listing(
            judge_of(facts, look, ours).findings([*general, *special]),
            title="What the paper says, on the made-up data",
        ),
    ]
    if real:
        found = judge_of(facts, look, files).findings(general)
        sections.append(listing(found, title="The same on the real files"))
    return Report(rows, sections, printed, pictures(facts, points, look, ours, files))


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


def pictures(
    facts: Facts, points: Sequence[Row], look: Look, made: Sequence[str], real: Sequence[str]
) -> dict[str, tuple[str, Picture]]:
    """Return the figures in the paper's layout, by their files, with their titles."""
    sets, kinds = facts["sets"], facts["queries"]
    named = [p | {"kind": kinds[p["queries"]]} for p in points if p["queries"] in kinds]
    best = [p for p in named if p["method"] in sets["top"]]
    lengths = [
        p | {"length": float(p["queries"][:-1]), "panel": f"{p['dataset']}, epsilon {p['epsilon']:g}"}
        for p in points
        if p["method"] in sets["top"] and p["queries"] in sets["lengths"]
    ]
    lengths.sort(key=lambda p: ([*made, *real].index(p["dataset"]), p["epsilon"]))
    there = {p["dataset"] for p in points}
    drawn: dict[str, tuple[str, Picture]] = {}
    for i, data in enumerate(made):
        if data not in there:
            continue
        words = {"data": f"{data}, {look.size(data):,} bins"}
        for j, epsilon in enumerate(sets["ends"]):
            part = [p for p in named if p["dataset"] == data and p["epsilon"] == float(epsilon)]
            more = {"figure": 3 + 2 * i + j, "epsilon": epsilon}
            drawn[f"figure-{3 + 2 * i + j:02}.png"] = draw(facts, "time", part, **words, **more)
        part = [p for p in best if p["dataset"] == data]
        drawn[f"figure-{11 + i}.png"] = draw(facts, "epsilon", part, figure=11 + i, **words)
        part = [p for p in lengths if p["dataset"] == data]
        drawn[f"figure-{15 + i}.png"] = draw(facts, "length", part, figure=15 + i, **words)
    drawn = dict(sorted(drawn.items()))
    for (kind, names), epsilon in product((("made-up", made), ("real", real)), sets["ends"]):
        part = [p for p in named if p["dataset"] in names and p["epsilon"] == float(epsilon)]
        part = [p | {"data": f"{p['dataset']} ({p['n']:,} bins)"} for p in part]
        if part:
            picture = draw(facts, f"skyline-{kind}", part, epsilon=epsilon)
            drawn[f"skyline-{kind}-{epsilon}.png"] = picture
    if real:
        part = [p | {"kind": f"{p['dataset']}, {p['kind']}"} for p in best if p["dataset"] in real]
        drawn["epsilon-real.png"] = draw(facts, "epsilon-real", part)
        part = [p for p in lengths if p["dataset"] in real]
        drawn["length-real.png"] = draw(facts, "length-real", part)
    return drawn


def speed_table(facts: Facts, look: Look, names: Sequence[str]) -> str:
    """Return Table 1 with the time measured at every size, and how it grows."""
    sizes = dict(sorted(((name, look.size(name)) for name in names), key=lambda pair: pair[1]))
    listed = []
    for method, told in facts["methods"].items():
        times = {name: look.figure("seconds", name, LARGE, "points", method) for name in sizes}
        line: Row = {"method": method, "paper's name": told["name"], "paper's time": f"O({told['time']})"}
        line |= {f"{name}, N={n:,} (ms)": 1000 * times[name] for name, n in sizes.items()}
        listed.append(line | {"grows as": _growth(times, sizes)})
    return table(listed, title="Table 1: time", note=facts["notes"]["time"])


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
    return table(listed, title="Table 2: methods on the skyline", note=facts["notes"]["skylines"])


def error_tables(facts: Facts, look: Look, names: Sequence[str]) -> list[str]:
    """Return the errors behind the skylines, a table for each kind of query."""
    settings = list(product(names, facts["sets"]["ends"]))
    return [
        look.table(
            {method: method for method in facts["methods"]},
            {f"{name}, {e}": (name, e, kind) for name, e in settings},
            title=f"Mean squared error, {words} ({', '.join(names)})",
            note="Columns are data and epsilon.",
        )
        for kind, words in facts["queries"].items()
    ]


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


def _full_hours(facts: Facts, points: Sequence[Row], sources: Sequence[Source]) -> float:
    took = {(p["dataset"], p["epsilon"], p["method"]): p["seconds"] for p in points}
    cells = plan(facts, sources, quick=False)
    each = (c.trials * took.get((c.source.name, float(c.epsilon), c.method), 0.0) for c in cells)
    return float(sum(each)) / 3600
