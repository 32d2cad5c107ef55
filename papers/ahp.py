"""AHP (Zhang, Chen, Xu, Meng, Xie, SDM 2014): Tables 2 to 4 and Figures 2 to 5, on stand-ins for its data."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Domain
from dphist.domain.workload import RangesOfLength, Workload, make_workload
from dphist.lab.data import Source, folder
from dphist.lab.grid import Grid
from dphist.planning import shapes
from papers import tables
from papers.claims import Judge, listing
from papers.look import Look, Row, measured
from papers.runner import Facts, Report, Run, draw
from papers.tables import Pair

_REAL = " (real)"


def report(run: Run, facts: Facts) -> Report:
    """Run Tables 2 to 4 and Figures 2 to 5."""
    found = sources(facts, run.data, run.out / "data")
    names, lengths = list(found), [f"length:{length}" for length in facts["lengths"]]
    epsilons, methods = [t["epsilon"] for t in facts["tables"]], tuple(facts["methods"].values())
    trials = 5 if run.quick else 50
    work = Grid(tuple(found.values()), epsilons, ("points",), methods, trials, tuple(lengths))
    rows = run.rows(work.cells(), queries=queries)
    points = measured(rows, error="mean_squared")
    pairs = pairs_of(facts, Look.into(points), names)
    printed = [
        tables.beside(
            [p for p in pairs if p.table == t["name"]],
            title=f"Table {t['name']}: Kullback-Leibler divergence, epsilon {t['epsilon']}",
        )
        for t in facts["tables"]
    ]
    printed += [_squared_table(facts, name, Look.into(points)) for name in names]
    pictures = {}
    for name in names:
        some = [p | {"panel": f"epsilon {p['epsilon']:g}"} for p in points if p["dataset"] == name]
        some = [p | {"length": int(p["queries"].partition(":")[2])} for p in some]
        if some:
            words = {"figure": _figure(facts, name), "data": name}
            pictures[f"figure-{_file(facts, name)}.png"] = draw(facts, "length", some, **words)
    if both := divergences(facts, pairs):
        pictures["divergence.png"] = draw(facts, "divergence", both)
    compared = tables.verdict([p for p in pairs if p.published is not None])
    judge = judge_of(facts, points, names)
    sections = [
        tables.table(likeness_of(facts, found), title="The data, and Table 1", note="Ours / published."),
        f"## What agrees\n\n{compared}",
        listing(judge.findings(facts["claims"]["paper"]), title="What the paper says of its results"),
        listing(judge.findings(facts["claims"]["beside"]), title="What the paper does not ask"),
    ]
    return Report(rows, sections, printed, pictures)


def judge_of(facts: Facts, points: Sequence[Row], names: Sequence[str]) -> Judge:
    """Return what checks the claims: measured points with published divergences beside them."""
    lengths = [f"length:{length}" for length in facts["lengths"]]
    epsilons = [t["epsilon"] for t in facts["tables"]]
    published = [
        {"dataset": name, "epsilon": t["epsilon"], "queries": lengths[0], "method": facts["methods"][method]}
        | {"published": row[t["data"].index(_published(name))]}
        for t, name in product(facts["tables"], names)
        for method, row in t["divergence"].items()
    ]
    sets = {"data": names, "lengths": lengths, "shortest": lengths[0], "epsilons": epsilons}
    sets |= {"methods": list(facts["methods"].values()), "five": list(facts["methods"].values())[:5]}
    sets |= {"longer": list(pairwise(lengths)), "smaller": list(pairwise(epsilons))}
    return Judge(Look.into([*points, *published]), sets)


def queries(spec: str, domain: Domain) -> Workload:
    """Return a workload by name; ``length:64`` is all ranges of 64 bins."""
    name, _, length = spec.partition(":")
    if name == "length" and length.isdecimal():
        return RangesOfLength(domain.n, (int(length),))
    return make_workload(spec, domain)


def stand_in(name: str, facts: Facts) -> NDArray[np.int64]:
    """Return made-up counts with the empty bins, mean and variance of Table 1, in the order of a shape."""
    d = facts["data"][name]
    n, full = d["bins"], d["bins"] - d["empty"]
    center = d["mean"] * n / full
    spread = (d["variance"] + d["mean"] ** 2) * n / full - center**2
    # Gamma laws have any mean and variance; the shape only says where the large ones are.
    source = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = source.gamma(center**2 / spread, spread / center, full)
    counts = np.zeros(n, np.int64)
    counts[d["empty"] :] = np.sort(np.maximum(np.rint(drawn), 1))
    out = np.empty_like(counts)
    out[np.argsort(shapes.find(d["order"]).weights(n), kind="stable")] = counts
    return out


def sources(facts: Facts, data: Path | None, made: Path) -> dict[str, Source]:
    """Return what stands for each data set, and real files of two of them, which have fewer bins.

    Args:
        made: the folder that the stand-ins are written to.
    """
    made.mkdir(exist_ok=True)
    found = {}
    for name in facts["data"]:
        # By this name it is never taken for a real file, even if the results lie within the folder of data.
        path = made / f"stand-in-{name.lower().replace(' ', '-')}.npy"
        np.save(path, stand_in(name, facts))
        found[name] = Source(name, str(path))
    for file in folder(data, dims=1) if data else ():
        if known := facts["real"].get(file.name.upper()):
            found[known + _REAL] = replace(file, name=known + _REAL)
    return found


def pairs_of(facts: Facts, look: Look, names: Sequence[str]) -> list[Pair]:
    """Return our divergences beside the published ones; real files stand beside the same figures."""
    made = []
    first = f"length:{facts['lengths'][0]}"
    for t, (method, ours), name in product(facts["tables"], facts["methods"].items(), names):
        row = t["divergence"].get(method)
        published = None if row is None else row[t["data"].index(_published(name))]
        mean = look.figure("divergence", name, t["epsilon"], first, ours)
        made.append(Pair(t["name"], name, method, None if math.isnan(mean) else mean, published))
    return made


def likeness_of(facts: Facts, found: dict[str, Source]) -> list[Row]:
    """Return Table 1 for the stand-ins beside the published figures."""
    rows = []
    for name, source in found.items():
        x, d = source.counts(), facts["data"][_published(name)]
        both = {
            "bins": (x.size, d["bins"]),
            "empty bins": (int((x == 0).sum()), d["empty"]),
            "mean": (float(x.mean()), d["mean"]),
            "variance": (float(x.var()), d["variance"]),
            "largest": (int(x.max()), d["largest"]),
        }
        row = {"data": name, "order": "real" if name.endswith(_REAL) else d["order"]}
        rows.append(row | {k: f"{tables.number(a)} / {tables.number(b)}" for k, (a, b) in both.items()})
    return rows


def divergences(facts: Facts, pairs: Sequence[Pair]) -> list[Row]:
    """Return the divergences of all tables, ours and published."""
    epsilons = {t["name"]: t["epsilon"] for t in facts["tables"]}
    rows = [
        {"panel": f"{p.column}, epsilon {epsilons[p.table]}", "method": facts["methods"][p.method]}
        | {"figure": who, "divergence": value}
        for p in pairs
        for who, value in (("here", p.ours), ("published", p.published))
        if value
    ]
    return sorted(rows, key=lambda row: str(row["panel"]).split(",")[0])


def _published(name: str) -> str:
    return name.removesuffix(_REAL)


def _figure(facts: Facts, name: str) -> int:
    return int(facts["data"][_published(name)]["figure"])


def _file(facts: Facts, name: str) -> str:
    return f"{_figure(facts, name)}" + ("-real" if name.endswith(_REAL) else "")


def _squared_table(facts: Facts, name: str, look: Look) -> str:
    settings = product((t["epsilon"] for t in facts["tables"]), facts["lengths"])
    columns = {f"epsilon {e}, {length}": (name, e, f"length:{length}") for e, length in settings}
    methods = facts["methods"]
    columns = {column: at for column, at in columns.items() if look.known("error", *at, methods.values())}
    title = f"Figure {_figure(facts, name)}: mean squared error of ranges, {name}"
    return look.table(methods, columns, title=title, note="By epsilon and length in bins; ours alone.")
