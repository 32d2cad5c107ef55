"""Li, Hay, Miklau, Wang: A Data- and Workload-Aware Algorithm for Range Queries (PVLDB 2014).

Figures 3 to 7 and Tables 1 and 2: DAWA, its two halves alone, its rivals on a line and on a grid, with our
methods beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dphist.charts.picture import Picture
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups, Ints
from dphist.domain.workload import Rectangles, Workload, make_workload
from dphist.errors import UsageError
from dphist.lab import data as bench_data
from dphist.lab.data import Source
from dphist.lab.grid import Cell
from dphist.lab.metrics import geometric_mean, summarise
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.planning.simulate import trials as run_trials
from dphist.privacy.counts import Counts
from dphist.privacy.l1 import noisy_partition
from dphist.steps import estimate, partition
from dphist.steps.protocols import Partitioner
from papers.claims import Judge, listing
from papers.look import Look, Row, measured
from papers.runner import Facts, Report, Run, data_table, draw, load, made_up
from papers.tables import table

ONE = "0.1"  # the epsilon of Figures 4 to 6
DOUBLE = "optimal at twice the price"  # of a bucket: what Table 1 turns out to be made with
REGION: tuple[float, float] = tuple(load("dawa")["region"])


def report(run: Run, facts: Facts) -> Report:
    """Run Figures 3 to 7 and Tables 1 and 2."""
    size = facts["size"]["quick" if run.quick else "full"]
    on_line, on_plane = lines_of(facts, run.data), planes_of(run.data, size, run.out)
    tuned = run.rows(tuning(facts, on_line, size), build=build, queries=queries)
    rounds = best_rounds(tuned)
    cells = [*line_cells(facts, on_line, size, rounds), *plane_cells(facts, on_plane, size)]
    rows = run.rows(cells, build=build, queries=queries)
    points = measured([named(row) for row in rows], error="mean_absolute")
    cut = partitions(on_line, size["trials"])
    look = Look.into([*points, *cut, *published(facts)])
    held = data_table((*on_line, *on_plane), rows)
    held = [
        line | {"from": "made up, two lands of towns"} if line["data"] == "towns" else line for line in held
    ]
    judge = judge_of(facts, look, [source.name for source in on_plane], size["epsilons"])
    found = judge.findings([*facts["claims"]["line"], *facts["claims"]["plane"]])
    sections = [
        table(held, title="Data"),
        listing(found, title="What the paper says"),
        ours_table(facts, look),
    ]
    printed = tables(facts, look, list(dict.fromkeys(c["method"] for c in cut)), rounds)
    return Report([*tuned, *rows], sections, printed, pictures(facts, points, cut))


def judge_of(facts: Facts, look: Look, planes: Sequence[str], epsilons: Sequence[str]) -> Judge:
    """Return what checks the claims."""
    boxes = list(dict.fromkeys(queries for name, _, queries, _ in look.at if name in planes))
    sets = facts["sets"] | {"data": list(facts["data"]), "planes": planes, "boxes": boxes}
    sets |= {"plane_epsilons": epsilons, "first": epsilons[0], "last": epsilons[-1]}
    return Judge(look, sets)


def lines_of(facts: Facts, folder: Path | None) -> tuple[Source, ...]:
    """Return the paper's seven histograms: files where the folder has them, else what stands for them."""
    files, sources = _files(folder, 1), []
    for made in made_up(facts):
        start, bins = facts["data"][made.name]["file"], made.n or 0
        file = next((f for f in files if Path(f.shape).name.upper().startswith(start)), None)
        if file:
            made = replace(file, name=made.name, n=bins if file.counts().size > bins else None)
        sources.append(made)
    return tuple(sources)


def planes_of(folder: Path | None, size: Facts, out: Path) -> tuple[Source, ...]:
    """Return the grids: made-up towns, and those of the folder that have the most records."""
    place = out / "data" / f"towns-{size['side']}.npy"
    place.parent.mkdir(parents=True, exist_ok=True)
    np.save(place, towns(size["side"]))
    files = sorted(_files(folder, 2), key=lambda source: -int(source.counts().sum()))
    return (Source("towns", str(place)), *files[: size["files"]])


def _files(folder: Path | None, axes: int) -> tuple[Source, ...]:
    if folder is None:
        return ()
    try:
        return bench_data.folder(folder, dims=axes)
    except UsageError:  # none of so many axes: made-up data stands for them
        return ()


def towns(side: int, *, records: int = 1_000_000, seed: int = 0) -> Ints:
    """Return a made-up map: many small towns and few large ones, in two lands with nothing between."""
    source = np.random.default_rng(seed)
    many = 300
    people = source.pareto(1.1, many) + 0.1
    which = source.choice(many, size=records, p=people / people.sum())
    west = source.random(many) < 0.5
    middle = np.where(west[:, None], source.uniform((0.02, 0.6), (0.45, 0.98), (many, 2)), 0.0)
    middle += np.where(west[:, None], 0.0, source.uniform((0.6, 0.02), (0.98, 0.45), (many, 2)))
    width = 0.004 + 0.012 * np.sqrt(people / people.max())
    place = middle[which] + source.normal(size=(records, 2)) * width[which, None]
    inside = place[((place >= 0) & (place < 1)).all(axis=1)]
    cell = (inside * side).astype(np.int64)
    return np.bincount(cell[:, 0] * side + cell[:, 1], minlength=side * side).reshape(side, side)


def build(name: str, domain: Domain, workload: Workload | None = None) -> Pipeline:
    """Return the pipeline of a name; ``mwem@30`` is MWEM with 30 rounds."""
    base, _, rounds = name.partition("@")
    if rounds:
        return Pipeline(estimate=estimate.Mwem(rounds=int(rounds)), name=base)
    return make_pipeline(name, domain, workload)


def queries(name: str, domain: Domain) -> Workload:
    """Return the workload of a name; ``box:15x0.2:200:1`` is 200 rectangles of so many degrees, draw 1."""
    if not name.startswith("box:"):
        return make_workload(name, domain)
    _, degrees, many, number = name.split(":")
    source = np.random.default_rng([int(number), int(many)])
    ends: list[Ints] = []
    for side, wide, whole in zip(domain.shape, map(float, degrees.split("x")), REGION, strict=True):
        length = min(side, max(1, round(side * wide / whole)))
        start = source.integers(0, side - length + 1, int(many))
        ends += [start, start + length]
    return Rectangles(domain.shape, *ends)


def tuning(facts: Facts, sources: Sequence[Source], size: Facts) -> list[Cell]:
    """Return the cells by which MWEM's rounds are chosen, as the paper does: looking at the exact answers."""
    told, trials = f"random:{facts['queries']}:0", min(size["trials"], 5)
    return [Cell(s, ONE, told, f"mwem@{t}", trials) for s, t in product(sources, facts["rounds"])]


def best_rounds(rows: Iterable[Row]) -> dict[str, int]:
    """Return for each data set the number of rounds with the least error."""
    good = [row for row in rows if row["status"] == "ok"]
    means = summarise(good, by=["dataset", "method"], value="mean_absolute")
    best: dict[str, str] = {}
    for line in sorted(means, key=lambda line: float(line["mean"])):
        best.setdefault(line["dataset"], line["method"])
    return {line["dataset"]: int(best[line["dataset"]].partition("@")[2]) for line in means}


def line_cells(facts: Facts, sources: Sequence[Source], size: Facts, rounds: Mapping[str, int]) -> list[Cell]:
    """Return the cells of Figures 3, 4 and 6."""
    sets, trials, cells = facts["sets"], size["trials"], []
    for source, number in product(sources, range(size["draws"])):
        many = f"{facts['queries']}:{number}"
        for epsilon in sets["epsilons"]:
            for method in _figure_3(facts, epsilon):
                label = f"mwem@{rounds.get(source.name, 10)}" if method == "mwem-tuned" else method
                cells.append(Cell(source, epsilon, f"random:{many}", label, trials))
        if source.name in sets["three"]:
            some = [f"{kind}:{many}" for kind in ("clustered", "large-clustered", "random")]
            some += ["points"] if not number else []
            cells += [Cell(source, ONE, w, m, trials) for w, m in product(some, sets["second"])]
    return list({cell.key: cell for cell in cells}.values())


def plane_cells(facts: Facts, planes: Sequence[Source], size: Facts) -> list[Cell]:
    """Return the cells of Figure 7."""
    kinds = [f"box:{wide:g}x{high:g}:{size['boxes']}:0" for wide, high in facts["rectangles"]]
    axes = product(planes, kinds, size["epsilons"], facts["sets"]["plane"])
    return [Cell(source, epsilon, told, method, size["trials"]) for source, told, epsilon, method in axes]


def partitions(sources: Sequence[Source], trials: int) -> list[Row]:
    """Return Table 1 and Figure 5: the partitions that 0.1 buys, by what they cost where 0.1 is left."""
    steps: dict[str, Partitioner] = {
        "dawa": partition.L1(),
        "dawa-all": partition.L1(candidates="all"),
        "php": partition.PHp(),
        "dawa2": partition.Splits(),
    }
    half = Split(partition=Fraction(1, 2), estimate=Fraction(1, 2))
    found = []
    for source in sources:
        x = source.counts()
        held = Counts(x, Domain((Integers(0, x.size - 1),)))
        chosen = {name: [_optimal(x, price / float(ONE))] for name, price in (("optimal", 1), (DOUBLE, 2))}
        for name, step in steps.items():
            pipeline = Pipeline(partition=step, split=half)
            points = make_workload("points", held.domain)
            runs = run_trials(pipeline, held, points, epsilon=2 * Fraction(ONE), seeds=range(trials))
            chosen[name] = [trial.groups for trial in runs]
        for name, made in chosen.items():
            point: Row = {"dataset": source.name, "epsilon": ONE, "queries": "partition", "method": name}
            point |= {"cost": float(np.mean([cost(x, g) for g in made]))}
            found.append(point | {"buckets": float(np.mean([g.k for g in made]))})
    return found


def cost(x: Ints, found: Groups) -> float:
    """Return what a partition costs: how far bins are from their bucket's mean, and noise for each bucket."""
    return float(np.abs(x - found.means(found.totals(x))).sum()) + found.k / float(ONE)


def _optimal(x: Ints, price: float) -> Groups:
    """Return the partition of least cost, of exact counts and without noise: for public data alone.

    Args:
        price: what a bucket costs.
    """
    how: dict[str, Any] = {"candidates": "all", "center": "mean", "penalty": price, "fanout": 2}
    return Groups(noisy_partition(x, lambda sensitivity, size: np.zeros(size, np.int64), **how))


def published(facts: Facts) -> list[Row]:
    """Return Table 1's numbers of buckets."""
    setting = {"epsilon": ONE, "queries": "partition", "method": "published"}
    return [setting | {"dataset": name, "buckets": d["buckets"]} for name, d in facts["data"].items()]


def named(row: Row) -> Row:
    """Return a row with the kind of its workload, and the name under which MWEM's tuned rounds are shown."""
    kind, *rest = row["judged"].split(":")
    method = "mwem-tuned" if row["method"].startswith("mwem@") else row["method"]
    return row | {"queries": rest[0] if kind == "box" else kind, "method": method}


def pictures(facts: Facts, points: Sequence[Row], cut: Sequence[Row]) -> dict[str, tuple[str, Picture]]:
    """Return the figures in the paper's layout, by their files, with their titles."""
    sets, order, kinds = facts["sets"], list(facts["data"]), list(facts["workloads"])

    def part(methods: Sequence[str], epsilons: Sequence[str], among: Sequence[str]) -> list[Row]:
        """Return points in the order in which they are drawn."""
        ranked = {float(e): i for i, e in enumerate(epsilons)}
        some = [p for p in points if p["method"] in methods and p["queries"] in among]
        some = [p for p in some if p["epsilon"] in ranked and p["dataset"] in order]
        some.sort(key=lambda p: (order.index(p["dataset"]), methods.index(p["method"])))
        return sorted(some, key=lambda p: (ranked[p["epsilon"]], kinds.index(p["queries"])))

    ways = [p for p in part(sets["second"], [ONE], kinds) if p["dataset"] in sets["three"]]
    ways = [p | {"workload": f"{facts['workloads'][p['queries']]} workload"} for p in ways]
    drawn = {
        "figure-3.png": draw(facts, "main", part(sets["main"], sets["epsilons"], ["random"])),
        "figure-4.png": draw(facts, "halves", part(sets["halves"], [ONE], ["random"]), epsilon=ONE),
        "figure-5.png": draw(facts, "cost", [c for c in cut if c["method"] != DOUBLE], epsilon=ONE),
        "figure-6.png": draw(facts, "ways", ways, epsilon=ONE),
    }
    for name in dict.fromkeys(p["dataset"] for p in points if p["dataset"] not in order):
        some = [p for p in points if p["dataset"] == name]
        some = [p | {"rectangles": "rectangles of {}° by {}°".format(*p["queries"].split("x"))} for p in some]
        some.sort(key=lambda p: sets["plane"].index(p["method"]))
        drawn[f"figure-7-{name}.png"] = draw(facts, "plane", some, data=name)
    return drawn


def tables(facts: Facts, look: Look, cuts: Sequence[str], rounds: Mapping[str, int]) -> list[str]:
    """Return Tables 1 and 2 beside the published ones, and the errors behind the figures."""
    names, epsilons = list(facts["data"]), facts["sets"]["epsilons"]

    def cut(what: str, name: str, method: str) -> float:
        return look.figure(what, name, ONE, "partition", method)

    columns = {"optimal": "optimal", DOUBLE: DOUBLE, "paper": "published"}
    listed: list[Row] = [
        {"data": n} | {column: int(cut("buckets", n, m)) for column, m in columns.items()} for n in names
    ]
    title = f"Table 1: buckets of the best partition at epsilon {ONE}"
    note = "As the text defines it a bucket costs 1 / epsilon; the other column doubles that."
    made = [table(listed, title=title, note=note)]
    over = "ratio of a method's error to DAWA's over the data, uniform intervals"
    for letter, which, extreme in (("a", "least", min), ("b", "largest", max)):
        listed = [{"method": method} for method in (*facts["ratios"], "mwem", *facts["sets"]["ours"])]
        for line, (i, e) in product(listed, enumerate(epsilons)):
            line[f"{e} here"] = extreme(over_dawa(look, line["method"], e, names), default=None)
            line[f"{e} paper"] = facts["ratios"].get(line["method"], {which: [None] * 4})[which][i]
        made.append(table(listed, title=f"Table 2{letter}: {which} {over}"))
    listed = [{"method": s["method"], "data": s["data"], "paper": s["error"]} for s in facts["stated"]]
    for line in listed:
        line["here"] = look.error(line["data"], ONE, "random", line["method"])
    title = f"Errors the paper states, uniform intervals, epsilon {ONE}"
    made.append(table(listed, columns=["method", "data", "here", "paper"], title=title))
    for epsilon in epsilons:
        methods = {method: method for method in _figure_3(facts, epsilon)}
        title = f"Figure 3: mean absolute error, uniform intervals, epsilon {epsilon}"
        made.append(look.table(methods, {n: (n, epsilon, "random") for n in names}, title=title))
    listed = [{"partition": m} | {n: cut("cost", n, m) for n in names} for m in cuts if m != DOUBLE]
    made.append(table(listed, title="Figure 5: cost of the partition"))
    listed = [{"data": n, "rounds": t} for n, t in rounds.items()]
    return [*made, table(listed, title="MWEM's rounds, chosen with the answers in sight")]


def over_dawa(look: Look, method: str, epsilon: str, names: Sequence[str]) -> list[float]:
    """Return a method's error over DAWA's on uniform intervals, wherever both are known."""
    found = (
        look.error(n, epsilon, "random", method) / look.error(n, epsilon, "random", "dawa") for n in names
    )
    return [ratio for ratio in found if not math.isnan(ratio)]


def ours_table(facts: Facts, look: Look) -> str:
    """Return how our methods compare with DAWA."""
    listed = []
    for method in facts["sets"]["ours"]:
        line: Row = {"method": method}
        for epsilon in facts["sets"]["epsilons"]:
            found = over_dawa(look, method, epsilon, list(facts["data"]))
            line[epsilon] = geometric_mean(found) if found else None
            line[f"{epsilon} better"] = f"{sum(r < 1 for r in found)} of {len(found)}"
        listed.append(line)
    note = "Geometric mean over the data of a method's error over DAWA's, and on how many it is less."
    return table(listed, title="Ours over DAWA, uniform intervals", note=note)


def _figure_3(facts: Facts, epsilon: str) -> list[str]:
    """Return the methods run on uniform intervals: at one epsilon also DAWA's halves, for Figure 4."""
    more = [m for m in ("partition+laplace", "greedyh") if epsilon == ONE]
    return [*facts["sets"]["main"], *more]
