"""The DAWA paper, run again in small: the plan, the tables, the figures and the page."""

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.lab.data import Source
from dphist.lab.grid import Cell, run_cell
from dphist.methods.catalogue import find
from papers import dawa, runner
from papers.dawa import DOUBLE, build, cost, named, partitions, queries, towns
from papers.look import Look
from papers.runner import Run, load, perform

FACTS = load("dawa")
SETS, NAMES = FACTS["sets"], list(FACTS["data"])
TINY = {"draws": 1, "trials": 1, "side": 16, "files": 1, "epsilons": ["0.1", "0.5"], "boxes": 5}


def test_every_method_is_known_and_every_published_ratio_has_its_place():
    methods = {*SETS["main"], *SETS["second"], *SETS["plane"], *SETS["halves"]} - {"mwem-tuned"}
    assert all(find(name) for name in methods)
    assert list(FACTS["ratios"]) == SETS["rivals"] and {*SETS["rivals"], "dawa"} == set(SETS["seven"])
    for ratio in FACTS["ratios"].values():
        assert len(ratio["least"]) == len(ratio["largest"]) == len(SETS["epsilons"])
        assert all(a <= b for a, b in zip(ratio["least"], ratio["largest"], strict=True))
    assert [data["buckets"] for data in FACTS["data"].values()] == [22, 29, 20, 500, 1537, 1870, 2168]


@pytest.mark.parametrize("size", FACTS["size"].values(), ids=FACTS["size"])
def test_the_plan_covers_the_papers_settings(size):
    sources = dawa.lines_of(FACTS, None)
    assert [s.name for s in sources] == NAMES
    cells = dawa.line_cells(FACTS, sources, size, {s.name: 20 for s in sources})
    assert len({c.key for c in cells}) == len(cells)
    for source in sources:
        for epsilon in SETS["epsilons"]:
            here = [c for c in cells if c.source == source and c.epsilon == epsilon]
            uniform = {(c.method, c.workload) for c in here if c.workload.startswith("random")}
            assert {m for m, _ in uniform} >= {*SETS["main"], "mwem@20"} - {"mwem-tuned"}
            assert len({w for m, w in uniform if m == "dawa"}) == 5
    kinds = {c.workload.split(":")[0] for c in cells if c.method == "partition+uniform"}
    assert kinds == {"points", "random", "clustered", "large-clustered"}
    planes = dawa.plane_cells(FACTS, [Source("towns", "x.npy")], size)
    assert {c.method for c in planes} == set(SETS["plane"])
    assert len({c.workload for c in planes}) == 4


def test_files_stand_where_the_paper_had_their_data(tmp_path):
    bins = 4096
    np.save(tmp_path / "NETTRACE.n4096.npy", np.ones(bins, dtype=np.int64))
    np.save(tmp_path / "HEPTH.n8192.npy", np.ones(2 * bins, dtype=np.int64))
    found = {s.name: s for s in dawa.lines_of(FACTS, tmp_path)}
    assert found["Nettrace"].shape.endswith("NETTRACE.n4096.npy") and found["Nettrace"].n is None
    assert found["HepPh"].n == bins and found["HepPh"].counts().sum() == 2 * bins
    assert found["Adult"].shape == "sparse"
    only = tmp_path / "grids"
    only.mkdir()
    np.save(only / "g.npy", np.ones((8, 8), dtype=np.int64))
    assert dawa.lines_of(FACTS, only) == dawa.lines_of(FACTS, None)
    assert [s.name for s in dawa.planes_of(only, TINY, tmp_path)] == ["towns", "g"]


def test_towns_are_sparse_repeatable_and_in_two_lands():
    x = towns(64, records=20_000)
    assert np.array_equal(x, towns(64, records=20_000))
    assert 19_000 < x.sum() <= 20_000
    assert (x == 0).mean() > 0.3
    quarters = x.reshape(2, 32, 2, 32).sum(axis=(1, 3))
    assert quarters[0, 1] > 10 * quarters[0, 0] and quarters[1, 0] > 10 * quarters[1, 1]


def test_boxes_are_as_many_degrees_as_they_say():
    domain = Domain((Integers(0, 255), Integers(0, 255)))
    made = queries("box:15x0.2:30:0", domain)
    assert made.size == 30
    assert set(made.x1 - made.x0) == {176} and set(made.y1 - made.y0) == {3}
    assert queries("box:15x0.2:30:0", domain) == made and queries("box:15x0.2:30:1", domain) != made
    assert set((everything := queries("box:90x90:3:0", domain)).x1) == {256} and set(everything.x0) == {0}
    assert queries("points", domain).size == 256**2


def test_mwem_is_tuned_by_the_least_error():
    domain = Domain((Integers(0, 9),))
    assert build("mwem@30", domain).estimate.rounds == 30
    assert build("dawa", domain).name == "dawa"
    base = {"dataset": "Adult", "status": "ok", "workload": "random"}
    rows = [base | {"method": f"mwem@{t}", "mean_absolute": e} for t, e in ((10, 5.0), (20, 3.0), (30, 4.0))]
    assert dawa.best_rounds(rows) == {"Adult": 20}
    assert len(dawa.tuning(FACTS, dawa.lines_of(FACTS, None), TINY)) == 7 * 6


def test_the_cost_of_a_partition_is_the_papers():
    x = np.array([2, 3, 8, 1, 0, 2, 0, 4, 2, 4])
    found = Groups(np.array([0, 2, 3, 7, 10]))  # Example 1: [1,2] [3,3] [4,7] [8,10]
    by_hand = 2 * 0.5 + 0 + (0.25 + 0.75 + 1.25 + 0.75) + 2 * (4 / 3)
    spread = sum(abs(x[a:b] - x[a:b].mean()).sum() for a, b in ((0, 2), (2, 3), (3, 7), (7, 10)))
    assert by_hand == pytest.approx(spread)
    assert cost(x, found) == pytest.approx(by_hand + 4 / 0.1)


def test_no_partition_costs_less_than_the_optimal_one():
    sources = [Source("steps", "steps", 64, 3000), Source("tail", "tail", 64, 3000)]
    for dataset in ("steps", "tail"):
        costs = {c["method"]: c["cost"] for c in partitions(sources, 2) if c["dataset"] == dataset}
        assert set(costs) == {"optimal", DOUBLE, "dawa", "dawa-all", "php", "dawa2"}
        # Costs inside the search are rounded down to eighths, once for each bucket.
        assert costs["optimal"] <= min(costs.values()) + 64 / 8
    x = sources[0].counts()
    (best,) = [c["cost"] for c in partitions(sources[:1], 1) if c["method"] == "optimal"]
    every = [cost(x, Groups(np.array(s))) for s in ([0, 64], [0, 32, 64], list(range(65)))]
    assert best <= min(every) + 8


def test_rows_are_named_as_the_figures_show_them():
    assert named({"judged": "random:2000:3", "method": "mwem@30"})["method"] == "mwem-tuned"
    assert named({"judged": "random:2000:3", "method": "dawa"}) == {
        "judged": "random:2000:3",
        "queries": "random",
        "method": "dawa",
    }
    assert named({"judged": "box:1x1:200:0", "method": "dawa"})["queries"] == "1x1"


def test_findings_follow_the_measurements():
    cut = partitions([Source(name, "steps", 16, 500) for name in NAMES], 1)
    planes, boxes = ["towns"], ["0.1", "0.5"]

    def verdicts(error):
        points = [
            {"dataset": n, "epsilon": e, "queries": "random", "method": m, "error": error(m)}
            for n in NAMES
            for e in SETS["epsilons"]
            for m in (*SETS["main"], "greedyh")
        ]
        points += [
            {"dataset": "towns", "epsilon": e, "queries": "1x1", "method": m, "error": error(m)}
            for e in boxes
            for m in SETS["plane"]
        ]
        judge = dawa.judge_of(FACTS, Look.into([*points, *cut, *dawa.published(FACTS)]), planes, boxes)
        found = judge.findings([*FACTS["claims"]["line"], *FACTS["claims"]["plane"]])
        assert len(found) == 19
        return lambda words: next(f.verdict for f in found if words in f.claim)

    same = verdicts(lambda m: 10.0)
    assert same("a tenth of Privelet") == "differs"
    assert same("22 %") == "agrees"
    assert same("StructureFirst's error") == "agrees"
    assert same("Partition+Geometric") == same("Partition+Laplace") == "not run"
    assert same("so many buckets") == "differs"
    better = verdicts(lambda m: 1.0 if m == "dawa" else 20.0)
    assert better("a tenth of Privelet") == better("7.09 times") == better("only data-dependent") == "agrees"
    assert better("every data-dependent") == "differs", "of five, only dawa is better"
    assert better("along a curve") == "agrees"
    assert better("grows as epsilon falls (from 0.5 to 0.1)") == "differs", "it stays the same"


@pytest.mark.parametrize("method", SETS["plane"])
def test_methods_for_grids_answer_boxes(method, tmp_path):
    np.save(tmp_path / "g.npy", towns(8, records=500))
    cell = Cell(Source("g", str(tmp_path / "g.npy")), "1", "box:5x5:4:0", method, 1)
    (row,) = run_cell(cell, build=build, queries=queries)
    assert row["status"] == "ok", row["error"]
    assert row["mean_absolute"] >= 0


@pytest.mark.slow
def test_small_data_gives_all_tables_figures_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(
        runner, "save", lambda picture, path: path.write_bytes(b"drawn")
    )  # test_figures draws
    data = {name: d | {"bins": 64, "records": 3000} for name, d in FACTS["data"].items()}
    facts = FACTS | {"data": data, "queries": 50, "rounds": [5, 10], "size": {"quick": TINY}}
    perform(Run("dawa", tmp_path, quick=True, jobs=1), facts)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {*(f"figure-{i}.png" for i in range(3, 7)), "figure-7-towns.png"}
    page = (tmp_path / "README.md").read_text("utf-8")
    assert all(f"({name})" in page for name in pictures)
    assert "papers dawa --quick" in page and "made up, two lands of towns" in page
    assert "Ours over DAWA" in page and "What the paper says" in page and "Failed" not in page
    tables = (tmp_path / "tables.md").read_text("utf-8")
    assert "Table 1" in tables and "Table 2a: least" in tables and "Table 2b: largest" in tables
    assert "| 26.4 |" in tables and "| Nettrace |" in tables
    assert not any(word in page + tables for word in ("nan", "None"))
