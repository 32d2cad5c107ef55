"""SORTaki (Doudalis, Mehrotra, 2017): Tables III to IX, on made-up data of the published sizes.

Table I's count of groups says how alike the stand-ins are to the paper's data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TypeAlias

from dphist.charts.picture import Picture
from dphist.domain import Domain
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.lab import metrics
from dphist.lab.data import Source, folder
from dphist.lab.grid import Cell
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.steps import partition
from dphist.steps.partition import formulas
from papers import tables
from papers.look import Look, Row, measured
from papers.runner import Facts, Report, Run, draw, made_up
from papers.tables import Pair

Column: TypeAlias = tuple[str, str, str]  # data set, epsilon, share of the initializer
PLAIN = "-plain"  # AHP with SORTaki's greedy partitioner (Algorithm 5), which does not look ahead


def report(run: Run, facts: Facts) -> Report:
    """Run Tables III to IX."""
    found = sources(facts, run.data)
    cells = [cell for table in facts["tables"] for cell in cells_of(facts, table, found, quick=run.quick)]
    rows = run.rows(cells, build=build)
    look = Look.into(measured(rows, error="scaled"))
    pairs = {table["name"]: pairs_of(facts, table, look) for table in facts["tables"]}
    printed, pictures = [], {}
    for table in facts["tables"]:
        name, mine = table["name"], pairs[table["name"]]
        title = f"Table {name}: {table['caption']}"
        note = f"Scaled average per query error, in multiples of {_unit(table)}."
        printed.append(tables.beside(mine, title=title, note=note))
        if picture := picture_of(facts, table, mine):
            pictures[f"table-{name}.png"] = picture
    every = [pair for mine in pairs.values() for pair in mine]
    compared = tables.verdict([p for p in every if p.method not in facts["ours"]])
    note = facts["notes"]["likeness"]
    sections = [
        tables.table(groups_of(facts, found), title="The data, and Table I", note=note),
        f"## What agrees\n\n{compared}",
        exact_groups(every),
    ]
    return Report(rows, sections, printed, pictures)


def build(label: str, domain: Domain, workload: Workload | None = None) -> Pipeline:
    """Return a method as the paper runs it; ``sdwf@0.3`` is sdwf with 0.3 of epsilon spent on rough counts.

    What is left goes to estimating, or a quarter of it to a partition that must be paid for. A kd-tree's
    threshold is 2/epsilon^2, of the whole epsilon; the catalogue's is the variance of the rough counts.
    """
    name, _, share = label.partition("@")
    made = make_pipeline(name.removesuffix(PLAIN), domain)
    if name.endswith(PLAIN):
        made = replace(made, partition=partition.Greedy(formula=formulas.Ahp()))
    if not share:
        return replace(made, name=label)
    try:
        rough = Fraction(share)
    except (ValueError, ZeroDivisionError):
        rough = Fraction(-1)
    if not 0 < rough < 1 or not (made.initialize.spends and made.estimate.spends):
        raise UsageError(
            f"{label!r} is not understood; write 'sdwf@0.3', a method that begins with rough counts."
        )
    if isinstance(made.partition, partition.KdTree):
        made = replace(made, partition=partition.KdTree(xi=float(rough) ** 2))
    cut = (1 - rough) / 4 if made.partition.spends else Fraction(0)
    split = Split(initialize=rough, partition=cut, estimate=1 - rough - cut)
    return replace(made, split=split, name=label)


def sources(facts: Facts, data: Path | None) -> dict[str, Source]:
    """Return what stands for each data set: a shape of its size, or a real file of its name."""
    found = {source.name: source for source in made_up(facts)}
    for file in folder(data, dims=1) if data else ():
        name = next((name for name in found if name.upper() == file.name.upper()), None)
        if name and file.counts().size >= facts["data"][name]["bins"]:
            found[name] = replace(file, name=name, n=found[name].n, records=found[name].records)
    return found


def columns_of(table: Facts) -> list[Column]:
    """Return what each column of a table is about."""
    return list(product(table["data"], table["epsilons"], table["shares"]))


def methods_of(facts: Facts, table: Facts) -> list[str]:
    """Return the methods of a table by the paper's names, with those that are ours alone."""
    return [method for method in facts["methods"] if method in table["errors"] or method in facts["ours"]]


def label_of(facts: Facts, method: str, share: str) -> str:
    """Return our label of a published method with the initializer's share."""
    ours = str(facts["methods"][method])
    return f"{ours[:-1]}@{share}" if ours.endswith("*") else ours


def cells_of(facts: Facts, table: Facts, found: dict[str, Source], *, quick: bool) -> list[Cell]:
    """Return the cells of a table."""
    cells = []
    for (data, epsilon, share), method in product(columns_of(table), methods_of(facts, table)):
        # Many bins are many draws: their mean hardly varies from trial to trial.
        few = (found[data].n or 0) > 10_000
        trials = (2 if few else 10) if quick else (10 if few else 50)
        label = label_of(facts, method, share)
        cells.append(Cell(found[data], epsilon, table["workload"], label, trials=trials))
    return cells


def pairs_of(facts: Facts, table: Facts, look: Look) -> list[Pair]:
    """Return our figures of a table beside the published ones, in its units."""
    made = []
    for method in methods_of(facts, table):
        printed = table["errors"].get(method, [None] * len(columns_of(table)))
        for (data, epsilon, share), published in zip(columns_of(table), printed, strict=True):
            mean = look.error(data, epsilon, table["workload"], label_of(facts, method, share))
            ours = None if math.isnan(mean) else mean / table["unit"]
            column = _words(table, (data, epsilon, share))
            made.append(Pair(table["name"], column, method, ours, published))
    return made


def groups_of(facts: Facts, found: dict[str, Source]) -> list[Row]:
    """Return Table I: how many groups the greedy partitioner makes of exact counts, ours and published."""
    rows = []
    for name, source in found.items():
        x, published, here = source.counts(), facts["data"][name]["groups"], []
        for epsilon in (1.0, 0.5, 0.1):
            variance = 2 / (epsilon / 2) ** 2
            here.append(partition.Greedy().cut(x, variance, variance).size - 1)
        both = list(zip((1, 0.5, 0.1), here, published, strict=True))
        apart = math.exp(sum(abs(math.log(a / b)) for _, a, b in both) / 3)
        shape = source.label if source.shape == source.label else f"real: {source.label}"
        row: Row = {"data": name, "stands for it": shape, "bins": x.size, "records": int(x.sum())}
        rows.append(row | {f"groups, {e}": f"{a:,} / {b:,}" for e, a, b in both} | {"apart": apart})
    return rows


def picture_of(facts: Facts, table: Facts, pairs: Sequence[Pair]) -> tuple[str, Picture] | None:
    """Return a table as a picture: lines over the initializer's share, or dots for every shape."""
    cell = {(p.column, p.method): p for p in pairs}
    by_share = len(table["shares"]) > 1
    rows: list[Row] = []
    for where, method in product(columns_of(table), facts["methods"]):
        column = _words(table, where)
        pair, base = cell.get((column, method)), cell[column, "Identity"]
        if pair is None or (by_share and method not in table["errors"]):  # the exact ones lie on the others
            continue
        name = facts["methods"][method].removesuffix("*")
        both = (("here", pair.ours, base.ours), ("published", pair.published, base.published))
        for who, value, least in both:
            if value and least:
                panel = f"{where[0]}, epsilon {where[1]}" + (f", {who}" if by_share else "")
                row = {"panel": panel, "method": name, "figure": who, "share": float(where[2])}
                rows.append(row | {"error": value if by_share else value / least})
    if not rows:
        return None
    words = {"table": table["name"], "caption": table["caption"], "unit": _unit(table)}
    if by_share:
        return draw(facts, "share", rows, **words)
    return draw(facts, "shape", [row for row in rows if row["method"] != "laplace"], **words)


def exact_groups(pairs: Sequence[Pair]) -> str:
    """Return a table of what the best groups of all sizes gain over those of power-of-two sizes."""
    rows = []
    for name in dict.fromkeys(p.table for p in pairs):
        cell = {(p.method, p.column): p.ours for p in pairs if p.table == name and p.ours}
        row: Row = {"table": name}
        for exact, powers in (("sdahp", "sDAHP"), ("sdwf", "sDWF"), ("identity", "Identity")):
            ratios = [
                v / base for (m, c), v in cell.items() if m == exact and (base := cell.get((powers, c)))
            ]
            row[f"{exact} over {powers}"] = metrics.geometric_mean(ratios) if ratios else None
        rows.append(row)
    title = "Our own rows: error over that of the published method, geometric mean over the columns"
    note = "The best groups of all sizes for the noisy counts need not be the best for the true ones."
    return tables.table(rows, title=title, note=note)


def _words(table: Facts, where: Column) -> str:
    """Return a column in words."""
    data, epsilon, share = where
    return f"{data}, epsilon {epsilon}" + (f", share {share}" if len(table["shares"]) > 1 else "")


def _unit(table: Facts) -> str:
    return f"1e{round(math.log10(table['unit']))}"
