"""AHP (Zhang, Chen, Xu, Meng, Xie, SDM 2014): Tables 2 to 4 and Figures 2 to 5, on stand-ins for its data.

Every number below ``# Table`` is a fact of the paper. The figures' numbers are not printed, so what the text
claims of them is checked instead.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.charts.picture import Picture
from dphist.domain import Domain
from dphist.domain.workload import RangesOfLength, Workload, make_workload
from dphist.lab import figures, grid, metrics
from dphist.lab.data import Source, folder
from dphist.planning import shapes
from papers import tables
from papers.tables import Pair

TITLE = "AHP, run again"
ABOUT = """
Tables 2 to 4 print the Kullback-Leibler divergence of the published histogram. The paper does not say what
becomes of counts that noise made negative or zero; here they become 0, and one record is added to every bin
of both histograms. Figures 2 to 5 show the mean squared error of all ranges of a length; their numbers and
lengths are not printed. Every method pays for all that it looks at.

- `AHP` is `ahp`, with greedy clusters; `ahp-optimal` and `ahp-empirical` are the paper's other two.
- `NF` and `SF` got a number of groups as an input, which the paper does not tell; here they find it.
- `laplace` is noise on every bin, for comparison.

The stand-ins have the bins, empty bins, mean and variance of Table 1; a made-up shape says which bins are the
fuller ones.
"""

# Table 1: bins, empty bins, mean, variance, largest count. Then the shape that says which bins are fuller.
DATASETS = {
    "Location": (7_725, 4_720, 24.13, 4_764.57, 467, "ip"),
    "Social Network": (11_342, 0, 59.49, 2_995, 1_678, "power-sorted"),
    "Search Log": (32_768, 17_082, 10.25, 577.31, 496, "hourly"),
    "NetTrace": (65_536, 63_318, 0.39, 91.01, 1_423, "power-sorted"),
}
FIGURES = {"Location": 2, "Social Network": 3, "Search Log": 4, "NetTrace": 5}
REAL = {"SEARCHLOGS": "Search Log", "NETTRACE": "NetTrace"}  # DPBench's names, with fewer bins

# Table 2, Table 3 and Table 4: the divergence of each method on the data sets in the order of Table 1.
TABLES = {
    "1": {
        "AHP": (0.018, 0.071, 0.054, 0.153),
        "NF": (0.843, 1.001, 1.582, 2.839),
        "SF": (1.242, 2.051, 2.085, 3.835),
        "PHP": (0.621, 0.801, 0.132, 0.904),
        "GS": (1.451, 2.611, 2.115, 4.816),
    },
    "0.1": {
        "AHP": (0.203, 0.309, 0.103, 0.572),
        "NF": (1.381, 2.753, 2.467, 4.726),
        "SF": (2.983, 2.054, 3.457, 4.359),
        "PHP": (0.805, 0.602, 0.159, 2.026),
        "GS": (1.539, 3.251, 4.157, 6.917),
    },
    "0.01": {
        "AHP": (0.467, 0.825, 0.189, 1.229),
        "NF": (2.588, 3.099, 5.584, 6.926),
        "SF": (4.948, 6.058, 5.340, 6.841),
        "PHP": (1.076, 1.019, 0.86, 2.280),
        "GS": (3.803, 5.112, 7.046, 8.187),
    },
}
METHODS = {
    "AHP": "ahp",
    "NF": "noisefirst",
    "SF": "structurefirst",
    "PHP": "php",
    "GS": "gs",
    "ahp-optimal": "ahp-optimal",
    "ahp-empirical": "ahp-empirical",
    "laplace": "laplace",
}
LENGTHS = (1, 4, 16, 64, 256, 1024)
NUMBER = {epsilon: str(2 + i) for i, epsilon in enumerate(TABLES)}  # epsilon -> which table

Means: TypeAlias = dict[tuple[str, float, int, str], float]  # data set, epsilon, length, our method


def queries(spec: str, domain: Domain) -> Workload:
    """Return a workload by name; ``length:64`` is all ranges of 64 bins."""
    name, _, length = spec.partition(":")
    if name == "length" and length.isdecimal():
        return RangesOfLength(domain.n, (int(length),))
    return make_workload(spec, domain)


def stand_in(name: str) -> NDArray[np.int64]:
    """Return made-up counts with the empty bins, mean and variance of Table 1, in the order of a shape."""
    n, empty, mean, variance, _, shape = DATASETS[name]
    full = n - empty
    center = mean * n / full
    spread = (variance + mean**2) * n / full - center**2
    # Gamma laws have any mean and variance; the shape only says where the large ones are.
    source = np.random.default_rng(zlib.crc32(name.encode()))
    counts = np.zeros(n, np.int64)
    counts[empty:] = np.sort(np.maximum(np.rint(source.gamma(center**2 / spread, spread / center, full)), 1))
    out = np.empty_like(counts)
    out[np.argsort(shapes.find(shape).weights(n), kind="stable")] = counts
    return out


def sources(data: Path | None, made: Path) -> dict[str, Source]:
    """Return what stands for each data set, and real files of two of them, which have fewer bins.

    Args:
        made: the folder that the stand-ins are written to.
    """
    made.mkdir(exist_ok=True)
    found = {}
    for name in DATASETS:
        # By this name it is never taken for a real file, even if the results lie within the folder of data.
        path = made / f"stand-in-{name.lower().replace(' ', '-')}.npy"
        np.save(path, stand_in(name))
        found[name] = Source(name, str(path))
    for file in folder(data, dims=1) if data else ():
        if known := REAL.get(file.name.upper()):
            found[f"{known} (real)"] = replace(file, name=f"{known} (real)")
    return found


def reproduce(*, out: Path, quick: bool, data: Path | None, jobs: int, backend: str | None) -> None:
    """Run Tables 2 to 4 and Figures 2 to 5 and write tables.md, figures and README.md."""
    stand_ins = sources(data, out / "data")
    judged = tuple(f"length:{length}" for length in LENGTHS)
    work = grid.Grid(
        tuple(stand_ins.values()),
        tuple(TABLES),
        ("points",),
        tuple(METHODS.values()),
        5 if quick else 50,
        judged,
    )
    rows = grid.run(work.cells(), out=out, jobs=jobs, backend=backend, queries=queries)
    pairs = pairs_of(rows, stand_ins)
    squared = _means(rows, "mean_squared")
    printed = [
        tables.beside(
            [p for p in pairs if p.table == number],
            title=f"Table {number}: Kullback-Leibler divergence, epsilon {epsilon}",
        )
        for epsilon, number in NUMBER.items()
    ]
    printed += [_squared_table(name, squared) for name in stand_ins]
    (out / "tables.md").write_text("\n".join([f"# {TITLE}: tables\n", *printed]), "utf-8")
    drawn = {name: picture for name in stand_ins if (picture := picture_of(name, squared))}
    files = [picture.save(out / f"figure-{_figure(name)}.png").name for name, picture in drawn.items()]
    if (dots := divergences(pairs)) is not None:
        files.append(dots.save(out / "divergence.png").name)
    likeness = data_table(stand_ins)
    page = [
        tables.head(TITLE, "ahp", quick=quick, data=data, rows=rows, about=ABOUT),
        tables.table(
            likeness, columns=list(likeness[0]), title="The data, and Table 1", note="Ours / published."
        ),
        "## What agrees\n",
        tables.verdict([p for p in pairs if p.published is not None], reason),
        tables.table(
            claims(pairs, squared),
            columns=["claim", "holds here"],
            title="What the paper says of its tables and figures",
        ),
        "## More\n",
        "- [tables.md](tables.md): every table with both figures in each cell, and the squared errors",
        *(f"- [{name}]({name})" for name in files),
        "- `rows.parquet`: every trial\n",
    ]
    (out / "README.md").write_text("\n".join(page), "utf-8")


def pairs_of(rows: Sequence[dict[str, Any]], names: Sequence[str] | dict[str, Source]) -> list[Pair]:
    """Return our divergences beside the published ones; real files stand beside the same figures."""
    means = _means(rows, "kl")
    made = []
    for (epsilon, printed), (method, ours), name in product(TABLES.items(), METHODS.items(), names):
        row = printed.get(method)
        published = None if row is None else row[list(FIGURES).index(_published(name))]
        mean = means.get((name, float(epsilon), LENGTHS[0], ours))
        made.append(Pair(NUMBER[epsilon], name, method, mean, published))
    return made


def reason(pair: Pair) -> str:
    """Return why a figure may differ from the published one."""
    if pair.method in ("NF", "SF"):
        return (
            "Other settings, and other data: the number of groups was an input of the paper's runs and is "
            "not printed; here the method finds it."
        )
    if "(real)" in pair.column:
        return "Other data: real, but with fewer bins, and another rule for empty and negative counts."
    return "Other data: a stand-in of the same size, and another rule for empty and negative counts."


def claims(pairs: Sequence[Pair], squared: Means) -> list[dict[str, Any]]:
    """Return what the paper's text says of its results, and in how many cases it holds here.

    The last lines ask how plain noise here compares with the published figures.
    """
    rivals = [m for m in METHODS if m in TABLES["1"]]
    columns = dict.fromkeys((p.table, p.column) for p in pairs)
    lowest = []
    for column in columns:
        here = {p.method: p.ours for p in pairs if (p.table, p.column) == column and p.ours is not None}
        lowest += [_least(here, rivals) == "AHP"] if "AHP" in here else []
    least: dict[str, list[bool]] = {}
    for name, epsilon, length in dict.fromkeys((n, e, length) for n, e, length, _ in squared):
        errors = {m: v for m in rivals if (v := squared.get((name, epsilon, length, METHODS[m]))) is not None}
        least.setdefault(name, []).append(_least(errors, rivals) == "AHP")
    longer, tighter = [], []
    for (name, epsilon, length, method), error in squared.items():
        for a, b in pairwise(LENGTHS):
            if length == a and (name, epsilon, b, method) in squared:
                longer.append(squared[name, epsilon, b, method] > error)
        if (name, epsilon / 10, length, method) in squared:
            tighter.append(squared[name, epsilon / 10, length, method] > error)
    found = [("AHP has the least divergence of the five, everywhere", lowest)]
    found += [(f"AHP has the least squared error of the five, {name}", v) for name, v in least.items()]
    found += [("longer ranges have a larger squared error", longer)]
    found += [("a smaller epsilon has a larger squared error", tighter)]
    plain = {(p.table, p.column): p.ours for p in pairs if p.method == "laplace" and p.ours is not None}
    for method in rivals:
        theirs = {(p.table, p.column): p.published for p in pairs if p.method == method and p.published}
        beaten = [plain[at] < value for at, value in theirs.items() if at in plain]
        found.append((f"(not in the paper) `laplace` here is below {method}'s published divergence", beaten))
    return [{"claim": text, "holds here": f"{sum(held)} of {len(held)}"} for text, held in found if held]


def _least(errors: dict[str, float], methods: Sequence[str]) -> str:
    return min((m for m in methods if m in errors), key=lambda m: errors[m], default="")


def data_table(stand_ins: dict[str, Source]) -> list[dict[str, Any]]:
    """Return Table 1 for the stand-ins beside the published figures."""
    rows = []
    for name, source in stand_ins.items():
        x = source.counts()
        n, zeros, mean, variance, most, _ = DATASETS[_published(name)]
        both = {
            "bins": (x.size, n),
            "empty bins": (int((x == 0).sum()), zeros),
            "mean": (float(x.mean()), mean),
            "variance": (float(x.var()), variance),
            "largest": (int(x.max()), most),
        }
        order = DATASETS[name][-1] if name in DATASETS else "real"
        row = {"data": name, "order": order}
        rows.append(row | {k: f"{tables.number(a)} / {tables.number(b)}" for k, (a, b) in both.items()})
    return rows


def picture_of(name: str, squared: Means) -> Picture | None:
    """Return the squared error against the length of a range, a panel for each epsilon."""
    rows = [
        {"epsilon": f"epsilon {epsilon:g}", "length": length, "method": method, "error": error}
        for (data, epsilon, length, method), error in squared.items()
        if data == name
    ]
    if not rows:
        return None
    return figures.lines(
        rows,
        x="length",
        y="error",
        by="method",
        column="epsilon",
        title=f"AHP, Figure {FIGURES[_published(name)]}: squared error of ranges, {name}",
        subtitle="mean over trials and over all ranges of a length",
        x_title="length of the range, bins",
        y_title="mean squared error, records²",
        columns=3,
    )


def divergences(pairs: Sequence[Pair]) -> Picture | None:
    """Return the divergences of all tables, ours and published."""
    epsilons = {number: epsilon for epsilon, number in NUMBER.items()}
    rows = [
        {"panel": f"{p.column}, epsilon {epsilons[p.table]}", "method": METHODS[p.method]}
        | {"figure": who, "divergence": value}
        for p in pairs
        for who, value in (("here", p.ours), ("published", p.published))
        if value
    ]
    if not rows:
        return None
    return figures.dots(
        sorted(rows, key=lambda row: str(row["panel"]).split(",")[0]),
        x="divergence",
        y="method",
        by="figure",
        column="panel",
        title="AHP, Tables 2 to 4: Kullback-Leibler divergence, here and as published",
        subtitle="the data stand in for the paper's",
        x_title="Kullback-Leibler divergence, nats",
        columns=3,
    )


def _published(name: str) -> str:
    return name.removesuffix(" (real)")


def _figure(name: str) -> str:
    return f"{FIGURES[_published(name)]}" + ("-real" if name.endswith("(real)") else "")


def _means(rows: Sequence[dict[str, Any]], value: str) -> Means:
    found = metrics.summarise(rows, by=("dataset", "epsilon", "judged", "method"), value=value)
    return {
        (r["dataset"], r["epsilon"], int(r["judged"].partition(":")[2]), r["method"]): float(r["mean"])
        for r in found
    }


def _squared_table(name: str, squared: Means) -> str:
    keys = [(epsilon, length) for epsilon, length in product(map(float, TABLES), LENGTHS)]
    label = {key: f"epsilon {key[0]:g}, {key[1]}" for key in keys}
    rows = [
        {"method": method} | {label[e, length]: squared.get((name, e, length, ours)) for e, length in keys}
        for method, ours in METHODS.items()
    ]
    columns = [label[key] for key in keys if any(row[label[key]] is not None for row in rows)]
    title = f"Figure {FIGURES[_published(name)]}: mean squared error of ranges, {name}"
    return tables.table(
        rows, columns=["method", *columns], title=title, note="By epsilon and length in bins; ours alone."
    )
