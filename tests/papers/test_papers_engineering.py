"""The paper on engineering methods, run again in small: the plan, the tables, the figures and the page."""

from collections import Counter

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.methods.catalogue import CATALOGUE
from papers import engineering, runner
from papers.engineering import LARGE, SMALL, membership, plan, queries, real_files
from papers.look import Look
from papers.runner import Run, load, made_up, perform

FACTS = load("engineering")
SETS, METHODS = FACTS["sets"], list(FACTS["methods"])
SIZES = {"Rome": 1442, "Log": 32_768, "Citations": 2414, "PUMS": 7578}


def point(dataset, epsilon, queries, method, error, seconds=1.0):
    at = {"dataset": dataset, "epsilon": epsilon, "queries": queries, "method": method}
    return at | {"n": 64, "error": error, "seconds": seconds}


def test_the_skylines_in_words_give_the_totals_of_table_2():
    named = Counter(method for skyline in FACTS["skylines"].values() for method in skyline["members"])
    assert named == FACTS["skyline_totals"]
    assert len(FACTS["skylines"]) == 16
    assert set(named) <= set(METHODS) <= set(CATALOGUE)
    assert len(METHODS) == 15
    assert all(set(SETS[name]) <= set(METHODS) for name in ("top", "mm", "slow", "ordering"))
    assert list(FACTS["queries"]) == SETS["kinds"] and {SMALL, LARGE} == set(SETS["ends"])


@pytest.mark.parametrize("quick", [True, False])
def test_the_plan_has_all_fifteen_methods_at_every_size_of_the_paper(quick):
    cells = plan(FACTS, made_up(FACTS), quick=quick)
    assert {c.source.name: c.source.n for c in cells} == SIZES
    for name in SIZES:
        here = [c for c in cells if c.source.name == name]
        for epsilon in SETS["epsilons"]:
            run = {c.method for c in here if c.epsilon == epsilon}
            assert run == set(METHODS if epsilon in SETS["ends"] else SETS["top"])
        assert all(set(SETS["kinds"]) <= set(c.judged) for c in here)
        lengths = {c.method for c in here if set(SETS["lengths"]) <= set(c.judged) and c.epsilon == SMALL}
        assert lengths == set(SETS["top"])


def test_the_quick_plan_leaves_time_for_ten_minutes_on_two_cores():
    # Measured: weighing all intervals of 32,768 bins takes 12 to 13 s, and grows with the square.
    quick, full = ({c.key: c for c in plan(FACTS, made_up(FACTS), quick=q)} for q in (True, False))
    slow = [c for c in quick.values() if c.method in SETS["slow"]]
    assert sum(c.trials * 13 * (c.source.n / 32_768) ** 2 for c in slow) < 2 * 300
    assert min(c.trials for c in full.values()) > max(2, min(c.trials for c in quick.values())) >= 2


def test_lengths_are_shares_of_the_domain():
    domain = Domain((Integers(0, 199),))
    assert queries("4%", domain).size == 200 + 1 - 8
    assert queries("points", domain).size == 200


def test_files_larger_than_the_papers_largest_are_made_coarser(tmp_path):
    np.save(tmp_path / "big.npy", np.ones(40_000, dtype=np.int64))
    np.save(tmp_path / "small.npy", np.ones(100, dtype=np.int64))
    np.save(tmp_path / "grid.npy", np.ones((4, 4), dtype=np.int64))
    assert {s.name: s.counts().size for s in real_files(FACTS, tmp_path)} == {"big": 32_768, "small": 100}
    assert real_files(FACTS, None) == ()


def test_findings_follow_the_measurements():
    def verdicts(error, data=SIZES):
        points = [
            point(d, e, q, m, error(m), 1 + i)
            for d in data
            for e in SETS["epsilons"]
            for q in (*SETS["kinds"], *SETS["lengths"])
            for i, m in enumerate(METHODS)
        ]
        judge = engineering.judge_of(FACTS, Look.into(points), list(data))
        found = judge.findings([*FACTS["claims"]["general"], *FACTS["claims"]["special"]])
        assert len(found) == 16
        return {f.claim: f.verdict for f in found}, lambda words: next(
            f.verdict for f in found if words in f.claim
        )

    _, tree = verdicts(lambda m: 1.0 if m == "s2+h" else 2.0)
    assert tree("long intervals") == "agrees"
    assert tree("more skylines than any other") == "agrees", "with s1, the fastest"
    assert tree("H is always worse") == "differs", "equal is not worse"
    assert tree("only O+S~") == "in part", "the other two are not on any"
    assert tree("about a month") == "differs"
    _, flat = verdicts(lambda m: 1.0 if m == "h" else 2.0)
    assert flat("long intervals") == flat("more skylines than any other") == "differs"
    _, cut = verdicts(lambda m: 1.0 if m == "s1+h" else 2.0)
    assert cut("H is always worse") == "agrees"
    nothing, _ = verdicts(lambda m: 1.0, data={})
    assert set(nothing.values()) == {"not run"}


def test_members_of_the_papers_skylines_are_counted():
    times = (("h", 9.0, 1.0), ("sa", 4.0, 2.0), ("s1", 5.0, 3.0))
    look = Look.into([point("Rome", SMALL, "points", m, e, s) for m, e, s in times])
    assert membership(FACTS, look) == {"panels": 1, "ours": 2, "theirs": 3, "both": 1, "touching": 1}


@pytest.mark.long
@pytest.mark.slow
def test_small_data_gives_all_tables_figures_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(
        runner, "save", lambda picture, path: path.write_bytes(b"drawn")
    )  # test_figures draws
    data, out = tmp_path / "real", tmp_path / "out"
    for place in (data, out):
        place.mkdir()
    np.save(data / "file.npy", np.arange(50))
    sizes = zip(FACTS["data"].items(), (40, 96, 48, 64), strict=True)
    small = {name: d | {"bins": n, "records": 2000} for (name, d), n in sizes}
    perform(Run("engineering", out, quick=True, data=data, jobs=1), FACTS | {"data": small})
    pictures = {path.name for path in out.glob("*.png")}
    assert {f"figure-{i:02}.png" for i in range(3, 19)} <= pictures
    assert {"skyline-made-up-0.01.png", "skyline-real-1.png", "epsilon-real.png"} <= pictures
    page = (out / "README.md").read_text("utf-8")
    assert all(f"({name})" in page for name in pictures)
    assert "papers engineering --quick --data" in page and "hours of CPU time" in page
    assert "What the paper says" in page and "| Rome | 40 | 2,000 | made up, shape hourly |" in page
    tables = (out / "tables.md").read_text("utf-8")
    assert "Table 1: time" in tables and "Table 2: methods on the skyline" in tables
    assert "| s2+h |" in tables and "| file, 0.01 |" in tables.replace(" file, 1 |", "")
    assert not any(word in page + tables for word in ("nan", "None"))
