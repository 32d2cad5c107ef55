"""Kellaris, Papadopoulos, Papadias: Engineering Methods for Differentially Private Histograms (TKDE 2019).

Figures 3 to 18 and Tables 1 and 2: fifteen combinations of four blocks, judged by time and error together.
None of the fifteen is told the queries, so one run of a method is judged by points, by all intervals, and by
intervals of several lengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from dphist.charts.picture import Picture
from dphist.lab.data import Source
from dphist.lab.figures import lines, skyline
from dphist.lab.grid import run
from papers.engineering_plan import (
    DATA,
    ERROR,
    LARGE,
    LENGTHS,
    METHODS,
    QUERIES,
    SKYLINES,
    SMALL,
    TABLE_2,
    TOP,
    Look,
    Row,
    measured,
    plan,
    queries,
    real_files,
    size_of,
)
from papers.engineering_text import page
from papers.tables import table


def reproduce(*, out: Path, quick: bool, data: Path | None, jobs: int, backend: str | None) -> None:
    """Run the experiments and write tables.md, the figures and README.md to a folder."""
    run_all(DATA, real_files(data), out=out, quick=quick, data=data, jobs=jobs, backend=backend)


def run_all(
    made: Sequence[Source],
    real: Sequence[Source],
    *,
    out: Path,
    quick: bool,
    data: Path | None,
    jobs: int,
    backend: str | None,
) -> None:
    """Run the experiments on what stands for the paper's data and on real files, and write what they say."""
    rows = run(plan((*made, *real), quick=quick), out=out, jobs=jobs, backend=backend, queries=queries)
    points = measured(rows)
    ours, files = ([source.name for source in sources] for sources in (made, real))
    drawn = draw(points, out=out, made=ours, real=files)
    tables = [speed_table(points, ours), skyline_table(points), *error_tables(points, ours)]
    tables += error_tables(points, files) if files else []
    (out / "tables.md").write_text("# Tables\n\n" + "\n".join(tables), "utf-8")
    text = page(rows, points, drawn, made=made, real=real, quick=quick, data=data)
    (out / "README.md").write_text(text, "utf-8")


def draw(
    points: Sequence[Row], *, out: Path, made: Sequence[str], real: Sequence[str]
) -> list[tuple[str, str]]:
    """Draw the figures in the paper's layout and return their files and titles."""
    sizes = {p["dataset"]: p["n"] for p in points}
    named = [p | {"queries": QUERIES[p["judged"]]} for p in points if p["judged"] in QUERIES]
    drawn: list[tuple[str, str]] = []

    def keep(picture: Picture, file: str, title: str) -> None:
        picture.save(out / file)
        drawn.append((file, title))

    made, real = ([name for name in names if name in sizes] for names in (made, real))
    place = {source.name: i for i, source in enumerate(DATA)}
    for dataset in made:
        for epsilon in (SMALL, LARGE):
            figure = 3 + 2 * place[dataset] + (epsilon == LARGE)
            part = [p for p in named if p["dataset"] == dataset and p["epsilon"] == float(epsilon)]
            title = (
                f"Figure {figure}: time against error, {dataset}, {sizes[dataset]:,} bins, epsilon {epsilon}"
            )
            keep(
                skyline(part, error="error", column="queries", title=title, error_title=ERROR),
                f"figure-{figure:02}.png",
                title,
            )
    for dataset in made:
        part = [p for p in named if p["dataset"] == dataset and p["method"] in TOP]
        figure = 11 + place[dataset]
        title = f"Figure {figure}: error against epsilon, {dataset}, {sizes[dataset]:,} bins"
        keep(_against_epsilon(part, title), f"figure-{figure}.png", title)
    for dataset in made:
        figure = 15 + place[dataset]
        title = f"Figure {figure}: error against the length of intervals, {dataset}, {sizes[dataset]:,} bins"
        keep(_against_length(points, [dataset], title), f"figure-{figure}.png", title)
    for kind, names in (("made-up", made), ("real", real)):
        for epsilon in (SMALL, LARGE):
            part = [p for p in named if p["dataset"] in names and p["epsilon"] == float(epsilon)]
            if part:
                part = [p | {"data": f"{p['dataset']} ({p['n']:,} bins)"} for p in part]
                title = f"The skyline of time and error, {kind} data, epsilon {epsilon}"
                picture = skyline(
                    part,
                    error="error",
                    column="queries",
                    row="data",
                    title=title,
                    error_title=ERROR,
                    columns=2 if len(names) <= 4 else 4,
                )
                keep(picture, f"skyline-{kind}-{epsilon}.png", title)
    if real:
        part = [p for p in named if p["dataset"] in real and p["method"] in TOP]
        part = [p | {"queries": f"{p['dataset']}, {p['queries']}"} for p in part]
        title = "Error against epsilon, real data"
        keep(_against_epsilon(part, title), "epsilon-real.png", title)
        title = "Error against the length of intervals, real data"
        keep(_against_length(points, real, title), "length-real.png", title)
    return drawn


def _against_epsilon(part: Sequence[Row], title: str) -> Picture:
    note = "mean and 95 % bootstrap interval over trials; the best method of each group of the paper"
    return lines(
        part,
        x="epsilon",
        y="error",
        by="method",
        column="queries",
        title=title,
        subtitle=note,
        columns=2 if len({p["queries"] for p in part}) <= 8 else 4,
        x_title="epsilon",
        y_title=ERROR,
        low="low",
        high="high",
    )


def _against_length(points: Sequence[Row], datasets: Sequence[str], title: str) -> Picture:
    part = [
        p | {"length": float(p["judged"][:-1]), "panel": f"{p['dataset']}, epsilon {p['epsilon']:g}"}
        for name in datasets
        for p in points
        if p["dataset"] == name and p["method"] in TOP and p["judged"] in LENGTHS
    ]
    part.sort(key=lambda p: (datasets.index(p["dataset"]), p["epsilon"]))
    return lines(
        part,
        x="length",
        y="error",
        by="method",
        column="panel",
        title=title,
        subtitle="all intervals of one length; mean and 95 % bootstrap interval over trials",
        columns=2 if len(datasets) <= 4 else 4,
        x_title="length of the intervals (% of the bins)",
        y_title=ERROR,
        low="low",
        high="high",
    )


def speed_table(points: Sequence[Row], datasets: Sequence[str]) -> str:
    """Return Table 1 with the time measured at every size, and how it grows."""
    look = Look.into(points)
    sizes = dict(sorted(((d, size_of(points, d)) for d in datasets), key=lambda pair: pair[1]))
    listed = []
    for method, (name, complexity) in METHODS.items():
        times = {d: look.seconds(d, LARGE, method) for d in sizes}
        line: Row = {"method": method, "paper's name": name, "paper's time": f"O({complexity})"}
        listed.append(
            line
            | {_ms(d, n): 1000 * times[d] for d, n in sizes.items()}
            | {"grows as": _growth(times, sizes)}
        )
    note = (
        f"CPU time of one run in milliseconds at epsilon {LARGE}, median over trials. The last column is the "
        "power of N between the smallest and the largest size. The paper prints no times, except that MM "
        "would take about a month on Log."
    )
    columns = ["method", "paper's name", "paper's time", *(_ms(d, n) for d, n in sizes.items()), "grows as"]
    return table(listed, columns=columns, title="Table 1: time", note=note)


def _ms(dataset: str, n: int) -> str:
    return f"{dataset}, N={n:,} (ms)"


def _growth(times: Mapping[str, float], sizes: Mapping[str, int]) -> str:
    first, *_, last = sizes if len(sizes) > 1 else (*sizes, *sizes)
    if sizes[first] >= sizes[last] or not times[first] > 0 or not times[last] > 0:
        return ""
    return f"N^{math.log(times[last] / times[first]) / math.log(sizes[last] / sizes[first]):.1f}"


def skyline_table(points: Sequence[Row]) -> str:
    """Return Table 2: who is on the skyline of which figure, here and in the paper."""
    look = Look.into(points)
    found = {f: look.skyline(d, e, q) for f, (d, e, q, _) in SKYLINES.items()}
    listed = []
    for method in METHODS:
        line: Row = {"method": method}
        for figure, (*_, theirs) in SKYLINES.items():
            here, there = method in found[figure], method in theirs
            line[figure] = "both" if here and there else "here" if here else "paper" if there else ""
        total = sum(method in members for members in found.values())
        listed.append(line | {"here": total, "paper": TABLE_2.get(method, 0)})
    note = (
        "Columns are the paper's figures: 3 and 4 Rome, 5 and 6 Log, 7 and 8 Citations, 9 and 10 PUMS; odd "
        f"ones epsilon {SMALL}, even ones {LARGE}; a for points, b for all intervals."
    )
    columns = ["method", *SKYLINES, "here", "paper"]
    return table(listed, columns=columns, title="Table 2: methods on the skyline", note=note)


def error_tables(points: Sequence[Row], datasets: Sequence[str]) -> list[str]:
    """Return the errors behind the skylines, a table for each kind of query."""
    look = Look.into(points)
    tables = []
    for judged, name in QUERIES.items():
        listed = []
        for method in METHODS:
            errors = {f"{d}, {e}": look.error(d, e, judged, method) for d in datasets for e in (SMALL, LARGE)}
            listed.append({"method": method} | errors)
        columns = ["method", *(f"{d}, {e}" for d in datasets for e in (SMALL, LARGE))]
        title = f"Mean squared error, {name} ({', '.join(datasets)})"
        tables.append(table(listed, columns=columns, title=title, note="Columns are data and epsilon."))
    return tables
