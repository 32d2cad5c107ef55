"""What the DAWA paper says, checked, and the page that tells it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dphist.lab.data import Source
from dphist.lab.metrics import geometric_mean
from papers.dawa_plan import DATA, DOUBLE, EASY, EPSILONS, HARD, ONE, OURS, RIVALS, THREE, Cut, Look, Row
from papers.findings import Finding, count, known, less, listing, ratios, tally
from papers.tables import head, number, table

_FIXED = (
    "the proof needs noise on single bins, at full scale and not clipped: the published partition has less"
)
_PHP = "P-HP makes a dozen choices in all here, each paid for"


def findings(look: Look, cut: Sequence[Cut]) -> list[Finding]:
    """Check what the paper says against the measurements on a line."""
    names = [data.name for data in DATA]
    dependent = ("mwem-tuned", "efpa", "php", "structurefirst", "dawa")
    cheap = {(c.dataset, c.method): c.cost for c in cut}
    buckets = {(c.dataset, c.method): c.buckets for c in cut}
    alike = {name: [abs(buckets[d.name, name] / d.buckets - 1) for d in DATA] for name in ("optimal", DOUBLE)}
    best = [
        min((m for m in (*RIVALS, "dawa")), key=lambda m: look.error(n, e, m))
        for n in names
        for e in EPSILONS
    ]
    logs = [m for m in dependent if look.error("S. Logs", ONE, m) < look.error("S. Logs", ONE, "privelet")]
    spread = [
        (max(found), min(found))
        for e in EPSILONS
        if (found := known(look.error(n, e, "structurefirst") for n in names))
    ]
    every = [(n, e) for n in names for e in EPSILONS]
    easy = look.error("Nettrace", "0.01", "privelet")

    def versus(method: str, data: Sequence[str], kind: str = "random") -> list[tuple[float, float]]:
        return [(look.error(n, ONE, method, kind), look.error(n, ONE, "dawa", kind)) for n in data]

    return [
        count(
            "5.2",
            "on Nettrace at epsilon 0.01, every data-dependent method beats Privelet",
            [less(look.error("Nettrace", "0.01", m), easy) for m in dependent],
            f"not: {', '.join(m for m in dependent if look.error('Nettrace', '0.01', m) >= easy) or 'none'}",
            reason="every choice that looks at the data is paid for here",
            every=True,
        ),
        count(
            "5.2",
            "there DAWA's error is a tenth of Privelet's or less",
            [less(10 * look.error("Nettrace", "0.01", "dawa"), easy)],
            ratios("Privelet over DAWA", [(look.over("privelet", "Nettrace", "0.01"), 1.0)]),
            reason=_FIXED,
        ),
        count(
            "5.2",
            "on Search Logs, DAWA is the only data-dependent method that beats Privelet",
            [logs == ["dawa"]],
            f"those that do: {', '.join(logs) or 'none'}",
            reason=_FIXED,
        ),
        count(
            "Table 2",
            "every rival has 7.09 times DAWA's error or more on some data, at every epsilon",
            [
                max(known(look.over(m, n, e) for n in names), default=math.nan) >= 7.09
                for m in RIVALS
                for e in EPSILONS
            ],
            reason=_FIXED,
            every=True,
        ),
        count(
            "Table 2",
            "DAWA is nowhere more than 22 % worse than a rival",
            [
                look.over(m, n, e) >= 0.82
                for m in RIVALS
                for n, e in every
                if not math.isnan(look.over(m, n, e))
            ],
            f"best of the paper's seven: {tally(best)}",
            reason=_FIXED,
            every=True,
        ),
        count(
            "5.2",
            "StructureFirst's error hardly depends on the data",
            [high / low < 2 for high, low in spread],
            ratios("largest over least", spread),
            reason="its cuts are nearly random, and cost more where counts are large",
        ),
        count(
            "Figure 4",
            "on easy data, DAWA has much less error than its tree alone (half or less)",
            [less(2 * b, a) for a, b in versus("greedyh", EASY)],
            ratios("tree alone over DAWA", versus("greedyh", EASY)),
            reason=_FIXED,
        ),
        count(
            "Figure 4",
            "on hard data, DAWA is almost as exact as its tree alone (within a third)",
            [less(b, 4 / 3 * a) for a, b in versus("greedyh", HARD)],
            ratios("tree alone over DAWA", versus("greedyh", HARD)),
            reason="a quarter of the budget buys a partition of no use",
        ),
        count(
            "Figure 4",
            "on easy data, one total per bucket is about as good as DAWA's tree (within a third)",
            [3 / 4 < a / b < 4 / 3 for a, b in versus("partition+laplace", EASY) if b > 0],
            ratios("one total per bucket over DAWA", versus("partition+laplace", EASY)),
            reason="partitions here have more buckets",
        ),
        count(
            "Figure 4",
            "on hard data, one total per bucket is much worse (twice or more)",
            [less(2 * b, a) for a, b in versus("partition+laplace", HARD)],
            ratios("one total per bucket over DAWA", versus("partition+laplace", HARD)),
            reason="buckets are fewer here",
        ),
        count(
            "Figure 5",
            "the partition from all intervals costs close to the optimum (within a third)",
            [less(cheap[n, "dawa-all"], 4 / 3 * cheap[n, "optimal"]) for n in names],
            ratios("over the optimum", [(cheap[n, "dawa-all"], cheap[n, "optimal"]) for n in names]),
            reason=_FIXED,
        ),
        count(
            "Table 1",
            "the optimal partition has so many buckets (within 2 %)",
            [off < 0.02 for off in alike["optimal"]],
            f"at twice the price of a bucket: in {sum(off < 0.02 for off in alike[DOUBLE])} of {len(DATA)}",
            reason="a bucket seems to have cost twice what the text says, or the data is another",
        ),
        count(
            "Figure 5",
            "P-HP's partition of Income and of Patents costs 1.6 million or more",
            [cheap[n, "php"] >= 1.6e6 for n in ("Income", "Patents")],
            ", ".join(f"{n} {number(cheap[n, 'php'])}" for n in ("Income", "Patents")),
            reason=_PHP,
        ),
        count(
            "Figure 5",
            "powers of two cost about as much as all intervals (within a half)",
            [less(cheap[n, "dawa"], 1.5 * cheap[n, "dawa-all"]) for n in names],
            ratios("powers over all", [(cheap[n, "dawa"], cheap[n, "dawa-all"]) for n in names]),
            reason="fewer candidates need less noise for the same proof, and fit less well",
        ),
        count(
            "Figure 5",
            "P-HP's partition costs more than ten times DAWA's on all but Adult and Medical Cost",
            [less(10 * cheap[n, "dawa"], cheap[n, "php"]) for n in names if n not in ("Adult", "Med. Cost")],
            ratios("P-HP over DAWA", [(cheap[n, "php"], cheap[n, "dawa"]) for n in names]),
            reason=_PHP,
        ),
        count(
            "Figure 6",
            "DAWA beats Partition+Geometric on uniform intervals",
            [less(b, a) for a, b in versus("partition+geometric", THREE)],
            ratios("Partition+Geometric over DAWA", versus("partition+geometric", THREE)),
            reason="",
            every=True,
        ),
        count(
            "Figure 6",
            "on the identity workload DAWA is the same as Partition+Laplace (within 5 %)",
            [0.95 < a / b < 1.05 for a, b in versus("partition+laplace", THREE, "points") if b > 0],
            ratios("Partition+Laplace over DAWA", versus("partition+laplace", THREE, "points")),
            reason="few trials",
            every=True,
        ),
    ]


def on_the_plane(look: Look, planes: Sequence[str], epsilons: Sequence[str]) -> list[Finding]:
    """Check what the paper says of rectangles."""
    published = ("quadtree", "mwem", "hybridtree", "dpcube")
    kinds = list(dict.fromkeys(kind for name, _, kind, _ in look.at if name in planes))
    cells = [(n, e, k) for n in planes for e in epsilons for k in kinds]
    best = {c: min((look.error(c[0], c[1], m, c[2]), m) for m in (*published, "dawa")) for c in cells}
    gaps = {
        e: [(best_of(look, n, e, k, published), look.error(n, e, "dawa", k)) for n in planes for k in kinds]
        for e in epsilons
    }
    first, last = epsilons[0], epsilons[-1]
    wider = [less(b[0] / b[1], a[0] / a[1]) for a, b in zip(gaps[first], gaps[last], strict=True)]
    return [
        count(
            "Figure 7",
            "DAWA along a curve is as good as the methods for grids, or better (within a tenth)",
            [less(look.error(n, e, "dawa", k), 1.1 * best[n, e, k][0]) for n, e, k in cells],
            f"best: {tally(m for _, m in best.values())}",
            reason="other data, and queries that the paper's text does not fully describe",
        ),
        count(
            "Figure 7",
            f"its lead grows as epsilon falls (from {last} to {first})",
            wider,
            "; ".join(ratios(f"best other over DAWA at {e}", gaps[e]) for e in (first, last)),
            reason="other data",
        ),
    ]


def best_of(look: Look, dataset: str, epsilon: str, kind: str, methods: Sequence[str]) -> float:
    """Return the least error of some methods."""
    return min(known(look.error(dataset, epsilon, m, kind) for m in methods), default=math.nan)


def page(
    rows: Sequence[Row],
    look: Look,
    cut: Sequence[Cut],
    drawn: Sequence[tuple[str, str]],
    *,
    sources: Sequence[Source],
    quick: bool,
    data: Path | None,
) -> str:
    """Return the text that goes with the tables and figures, worked out from the rows."""
    about = (
        "DAWA groups neighbouring bins that look alike, then measures the groups by a tree tuned to the "
        "queries. Here its partition is drawn with the noise that a complete proof needs. `mwem` makes ten "
        "rounds; `mwem-tuned` makes as many as are best with the exact answers in sight, as in the paper, "
        "which is not private. `greedyh-tuned`, `hats` and `dawa2` are ours. The paper's HepPh is DPBench's "
        "HEPTH."
    )
    planes = list(dict.fromkeys(r["dataset"] for r in rows if r["workload"].startswith("box:")))
    epsilons = [f"{e:g}" for e in sorted({r["epsilon"] for r in rows if r["dataset"] in planes})]
    made = {d.stand: f"made up, shape {d.stand.shape}" for d in DATA}
    made |= {s: "made up, two lands of towns" for s in sources if s.name == "towns"}
    held = [
        {
            "data": s.name,
            "bins": next((r["n"] for r in rows if r["dataset"] == s.name), None),
            "records": next((r["scale"] for r in rows if r["dataset"] == s.name), None),
            "from": made.get(s, s.label),
        }
        for s in sources
    ]
    names = [d.name for d in DATA]
    ours = []
    for method in OURS:
        line: Row = {"method": method}
        for epsilon in EPSILONS:
            found = known(look.over(method, n, epsilon) for n in names)
            line[epsilon] = geometric_mean(found) if found else None
            line[f"{epsilon} better"] = f"{sum(r < 1 for r in found)} of {len(found)}"
        ours.append(line)
    parts = [
        head("DAWA, again", "dawa", quick=quick, data=data, rows=rows, about=about),
        table(held, columns=["data", "bins", "records", "from"], title="Data"),
        listing([*findings(look, cut), *on_the_plane(look, planes, epsilons)], title="What the paper says"),
        table(
            ours,
            columns=["method", *(c for e in EPSILONS for c in (e, f"{e} better"))],
            title="Ours over DAWA, uniform intervals",
            note="Geometric mean over the data of a method's error over DAWA's, and on how many it is less.",
        ),
        "### Figures\n\n" + "\n".join(f"![{title}]({file})" for file, title in drawn) + "\n",
    ]
    return "\n".join(parts)
