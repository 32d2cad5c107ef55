"""Li, Hay, Miklau, Wang: A Data- and Workload-Aware Algorithm for Range Queries (PVLDB 2014).

Figures 3 to 7 and Tables 1 and 2: DAWA, its two halves alone, its rivals on a line and on a grid, with our
methods beside them. Errors are mean absolute errors of a query, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dphist.charts.picture import Picture
from dphist.lab.figures import groups, lines
from dphist.lab.grid import run
from dphist.lab.metrics import summarise
from papers.dawa_plan import (
    DATA,
    DOUBLE,
    EPSILONS,
    ERROR,
    FULL,
    HALVES,
    MAIN,
    ONE,
    OURS,
    PLANE,
    QUICK,
    SECOND,
    STATED,
    TABLE_2,
    THREE,
    WORKLOADS,
    Cut,
    Look,
    Row,
    Size,
    best_rounds,
    build,
    lines_of,
    named,
    on_lines,
    on_planes,
    partitions,
    planes_of,
    queries,
    tuning,
)
from papers.dawa_text import page
from papers.findings import known
from papers.tables import table


def reproduce(*, out: Path, quick: bool, data: Path | None, jobs: int, backend: str | None) -> None:
    """Run the experiments and write tables.md, the figures and README.md to a folder."""
    size = QUICK if quick else FULL
    run_all(size, out=out, quick=quick, data=data, jobs=jobs, backend=backend)


def run_all(size: Size, *, out: Path, quick: bool, data: Path | None, jobs: int, backend: str | None) -> None:
    """Run experiments of a size, and write what they say."""
    sources, planes = lines_of(data), planes_of(data, size, out)
    how = {"out": out, "jobs": jobs, "backend": backend, "build": build, "queries": queries}
    tuned = run(tuning(sources, size), **how)  # type: ignore[arg-type]
    rounds = best_rounds(tuned)
    rows = run([*on_lines(sources, size, rounds), *on_planes(planes, size)], **how)  # type: ignore[arg-type]
    cut = partitions(sources, size.trials)
    shown = [named(row) for row in rows]
    look = Look.into(shown)
    drawn = draw(shown, cut, out=out)
    (out / "tables.md").write_text("# Tables\n\n" + "\n".join(tables(look, cut, rounds)), "utf-8")
    text = page([*tuned, *rows], look, cut, drawn, sources=(*sources, *planes), quick=quick, data=data)
    (out / "README.md").write_text(text, "utf-8")


def draw(rows: Sequence[Row], cut: Sequence[Cut], *, out: Path) -> list[tuple[str, str]]:
    """Draw the figures in the paper's layout and return their files and titles."""
    good = [row for row in rows if row["status"] == "ok"]
    means = summarise(good, by=["dataset", "epsilon", "kind", "method"], value="mean_absolute")
    order = [data.name for data in DATA]
    bars: Row = {
        "low": "low",
        "high": "high",
        "subtitle": "95 % bootstrap intervals over workloads and trials",
    }
    axes: Row = {"x": "dataset", "y": "mean", "by": "method", "x_title": "data, easiest first"}
    drawn: list[tuple[str, str]] = []

    def part(
        methods: Sequence[str], *, epsilons: Sequence[str] = (ONE,), kinds: Sequence[str] = ("random",)
    ) -> list[Row]:
        """Return means in the order in which they are drawn."""
        ranked = {float(e): i for i, e in enumerate(epsilons)}
        some = [m for m in means if m["method"] in methods and m["kind"] in kinds and m["epsilon"] in ranked]
        some = [m for m in some if m["dataset"] in order]
        some.sort(key=lambda m: (order.index(m["dataset"]), methods.index(m["method"])))
        return sorted(some, key=lambda m: (ranked[m["epsilon"]], kinds.index(m["kind"])))

    def keep(picture: Picture, file: str, title: str) -> None:
        picture.save(out / file)
        drawn.append((file, title))

    title = "Figure 3: error on uniform intervals"
    figure = groups(
        part(MAIN, epsilons=EPSILONS), column="epsilon", title=title, y_title=ERROR, **axes, **bars
    )
    keep(figure, "figure-3.png", title)
    title = f"Figure 4: the two steps of DAWA alone, uniform intervals, epsilon {ONE}"
    keep(groups(part(HALVES), title=title, y_title=ERROR, **axes, **bars), "figure-4.png", title)
    title = f"Figure 5: cost of the partition that epsilon {ONE} buys"
    costs = [{"dataset": c.dataset, "method": c.method, "mean": c.cost} for c in cut if c.method != DOUBLE]
    keep(groups(costs, title=title, y_title="cost of the partition (records)", **axes), "figure-5.png", title)
    title = f"Figure 6: ways to measure the buckets, epsilon {ONE}"
    some = [m for m in part(SECOND, kinds=tuple(WORKLOADS)) if m["dataset"] in THREE]
    some = [m | {"workload": f"{WORKLOADS[m['kind']]} workload"} for m in some]
    figure = groups(some, column="workload", columns=2, title=title, y_title=ERROR, **axes, **bars)
    keep(figure, "figure-6.png", title)
    for name in dict.fromkeys(m["dataset"] for m in means if m["dataset"] not in order):
        some = [m | {"rectangles": _degrees(m["kind"])} for m in means if m["dataset"] == name]
        some.sort(key=lambda m: PLANE.index(m["method"]))
        title = f"Figure 7: error on rectangles, {name}"
        axes = {"x": "epsilon", "y": "mean", "by": "method", "x_title": "epsilon", "y_title": ERROR}
        keep(lines(some, column="rectangles", title=title, **axes, **bars), f"figure-7-{name}.png", title)
    return drawn


def tables(look: Look, cut: Sequence[Cut], rounds: Mapping[str, int]) -> list[str]:
    """Return Tables 1 and 2 beside the published ones, and the errors behind the figures."""
    names = [data.name for data in DATA]
    buckets = {(c.dataset, c.method): c.buckets for c in cut}
    costs = {(c.dataset, c.method): c.cost for c in cut}
    made = [
        table(
            [
                {"data": d.name, "paper": d.buckets}
                | {name: int(buckets[d.name, name]) for name in ("optimal", DOUBLE)}
                for d in DATA
            ],
            columns=["data", "optimal", DOUBLE, "paper"],
            title=f"Table 1: buckets of the best partition at epsilon {ONE}",
            note="As the text defines it a bucket costs 1 / epsilon; the other column doubles that.",
        )
    ]
    for which, extreme, column in (("a: least", min, 0), ("b: largest", max, 1)):
        listed = []
        for method in (*TABLE_2, "mwem", *OURS):
            line: Row = {"method": method}
            for i, e in enumerate(EPSILONS):
                found = known(look.over(method, name, e) for name in names)
                line[f"{e} here"] = extreme(found, default=None)
                line[f"{e} paper"] = TABLE_2[method][column][i] if method in TABLE_2 else None
            listed.append(line)
        title = f"Table 2{which} ratio of a method's error to DAWA's over the data, uniform intervals"
        columns = ["method", *(f"{e} {who}" for e in EPSILONS for who in ("here", "paper"))]
        made.append(table(listed, columns=columns, title=title))
    listed = [
        {"method": m, "data": d, "here": look.error(d, ONE, m), "paper": value} for m, d, value in STATED
    ]
    title = f"Errors the paper states, uniform intervals, epsilon {ONE}"
    made.append(table(listed, columns=["method", "data", "here", "paper"], title=title))
    for epsilon in EPSILONS:
        methods = [*MAIN, *(("partition+laplace", "greedyh") if epsilon == ONE else ())]
        listed = [{"method": m} | {n: look.error(n, epsilon, m) for n in names} for m in methods]
        title = f"Figure 3: mean absolute error, uniform intervals, epsilon {epsilon}"
        made.append(table(listed, columns=["method", *names], title=title))
    listed = [
        {"partition": m} | {n: costs[n, m] for n in names}
        for m in dict.fromkeys(c.method for c in cut)
        if m != DOUBLE
    ]
    made.append(table(listed, columns=["partition", *names], title="Figure 5: cost of the partition"))
    listed = [{"data": n, "rounds": t} for n, t in rounds.items()]
    made.append(
        table(listed, columns=["data", "rounds"], title="MWEM's rounds, chosen with the answers in sight")
    )
    return made


def _degrees(kind: str) -> str:
    wide, high = kind.split("x")
    return f"rectangles of {wide}° by {high}°"
