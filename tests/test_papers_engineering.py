"""The paper on engineering methods, run again in small: the plan, the tables, the figures and the page."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dphist.charts.picture import Picture
from dphist.domain import Domain, Integers
from dphist.lab.data import Source
from dphist.methods.catalogue import CATALOGUE
from papers import engineering
from papers.engineering_plan import (
    BETWEEN,
    DATA,
    EVERY_INTERVAL,
    INTERVALS,
    LARGE,
    LENGTHS,
    METHODS,
    POINTS,
    SKYLINES,
    SMALL,
    TABLE_2,
    TOP,
    Look,
    measured,
    plan,
    queries,
    real_files,
    trials,
)
from papers.engineering_text import general, membership, special
from papers.findings import Finding, count, less, listing, ratios, tally

SIZES = {"Rome": 1442, "Log": 32_768, "Citations": 2414, "PUMS": 7578}


def point(dataset, epsilon, judged, method, error, seconds=1.0):
    return {
        "dataset": dataset,
        "n": 64,
        "epsilon": float(epsilon),
        "judged": judged,
        "method": method,
        "error": error,
        "seconds": seconds,
    }


def test_the_skylines_in_words_give_the_totals_of_table_2():
    named = Counter(method for *_, members in SKYLINES.values() for method in members)
    assert named == TABLE_2
    assert len(SKYLINES) == 16
    assert set(named) <= set(METHODS) <= set(CATALOGUE)
    assert len(METHODS) == 15


@pytest.mark.parametrize("quick", [True, False])
def test_the_plan_has_all_fifteen_methods_at_every_size_of_the_paper(quick):
    cells = plan(DATA, quick=quick)
    assert {c.source.name: c.source.n for c in cells} == SIZES
    for name in SIZES:
        here = [c for c in cells if c.source.name == name]
        for epsilon in (SMALL, LARGE):
            assert {c.method for c in here if c.epsilon == epsilon} == set(METHODS)
        for epsilon in BETWEEN:
            assert {c.method for c in here if c.epsilon == epsilon} == set(TOP)
        assert all({POINTS, INTERVALS} <= set(c.judged) for c in here)
        lengths = {c.method for c in here if set(LENGTHS) <= set(c.judged) and c.epsilon == SMALL}
        assert lengths == set(TOP)


def test_the_quick_plan_leaves_time_for_ten_minutes_on_two_cores():
    # Measured: weighing all intervals of 32,768 bins takes 12 to 13 s, and grows with the square.
    cells = [c for c in plan(DATA, quick=True) if c.method in EVERY_INTERVAL]
    assert sum(c.trials * 13 * (c.source.n / 32_768) ** 2 for c in cells) < 2 * 300
    assert trials("s1", 32_768, quick=False) > trials("s1", 32_768, quick=True) >= 2


def test_lengths_are_shares_of_the_domain():
    domain = Domain((Integers(0, 199),))
    assert queries("4%", domain).size == 200 + 1 - 8
    assert queries(POINTS, domain).size == 200


def test_files_larger_than_the_papers_largest_are_made_coarser(tmp_path):
    np.save(tmp_path / "big.npy", np.ones(40_000, dtype=np.int64))
    np.save(tmp_path / "small.npy", np.ones(100, dtype=np.int64))
    np.save(tmp_path / "grid.npy", np.ones((4, 4), dtype=np.int64))
    assert {s.name: s.counts().size for s in real_files(tmp_path)} == {"big": 32_768, "small": 100}
    assert real_files(None) == ()


def test_time_is_a_median_and_error_a_mean():
    row = {"dataset": "Rome", "n": 8, "epsilon": 1.0, "judged": POINTS, "method": "h", "status": "ok"}
    rows = [row | {"seconds": s, "mean_squared": e} for s, e in ((1.0, 1.0), (2.0, 2.0), (9.0, 6.0))]
    (found,) = measured([*rows, row | {"status": "failed", "seconds": None, "mean_squared": None}])
    assert found["seconds"] == 2.0
    assert found["error"] == 3.0


def test_a_look_finds_the_skyline_the_best_and_the_missing():
    points = [
        point("Rome", SMALL, POINTS, "h", 9.0, 1.0),
        point("Rome", SMALL, POINTS, "sa", 4.0, 2.0),
        point("Rome", SMALL, POINTS, "s1", 5.0, 3.0),
    ]
    look = Look.into(points)
    assert set(look.skyline("Rome", SMALL, POINTS)) == {"h", "sa"}
    assert look.best("Rome", SMALL, POINTS, TOP) == "sa"
    assert look.worst("Rome", SMALL, POINTS, TOP) == "h"
    assert look.fastest("Rome", SMALL) == "h"
    assert math.isnan(look.error("Rome", LARGE, POINTS, "h"))
    assert look.best("Log", SMALL, POINTS, TOP) == ""
    assert membership(points) == {"panels": 1, "ours": 2, "theirs": 3, "both": 1, "touching": 1}


def test_findings_follow_the_measurements():
    def made(error):
        return [
            point(d, e, q, m, error(m), 1 + i)
            for d in SIZES
            for e in (SMALL, *BETWEEN, LARGE)
            for q in (POINTS, INTERVALS, *LENGTHS)
            for i, m in enumerate(METHODS)
        ]

    def verdict(points, claim):
        found = [f for f in general(points, list(SIZES)) if claim in f.claim]
        return found[0].verdict

    tree = made(lambda m: 1.0 if m == "s2+h" else 2.0)
    assert verdict(tree, "long intervals") == "agrees"
    assert verdict(made(lambda m: 1.0 if m == "h" else 2.0), "long intervals") == "differs"
    assert verdict(tree, "H is always worse") == "differs"  # equal is not worse
    assert verdict(made(lambda m: 1.0 if m == "s1+h" else 2.0), "H is always worse") == "agrees"
    assert {f.verdict for f in special([])} == {"not run"}
    assert {f.verdict for f in general([], ["Rome"])} == {"not run"}


def test_a_finding_says_why_only_where_it_differs():
    found = [
        count("1", "so it is", [True, True], reason="unseen"),
        count("2", "half of it", [True, False, None], "figures", reason="half the reason"),
        count("3", "not so", [False], reason="the reason"),
        count("4", "nobody knows", [None], reason="unseen"),
    ]
    assert [f.verdict for f in found] == ["agrees", "in part", "differs", "not run"]
    mostly = [True] * 9 + [False]
    assert count("5", "often", mostly, reason="").verdict == "agrees"
    assert count("5", "always", mostly, reason="", every=True).verdict == "in part"
    text = listing(found, title="t")
    assert "unseen" not in text and "half the reason" in text and "the reason" in text
    assert "Of 4 statements: 1 agrees, 1 in part, 1 differs, 1 not run." in text
    assert found[1].evidence == "in 1 of 2; figures"
    assert isinstance(found[0], Finding)
    assert less(1, 2) and less(2, 1) is False and less(math.nan, 1) is None
    assert ratios("x", [(2.0, 1.0), (8.0, 1.0), (1.0, math.nan)]) == "x: 4 in geometric mean, 2 to 8"
    assert ratios("x", []) == ""
    assert tally(["b", "a", "a", ""]) == "a 2, b 1"


@pytest.mark.slow
def test_small_data_gives_all_tables_figures_and_a_page(tmp_path, monkeypatch):
    made = [replace(s, n=n, scale=2000) for s, n in zip(DATA, (40, 96, 48, 64), strict=True)]
    monkeypatch.setattr("papers.engineering_plan.trials", lambda *_, quick: 2)
    monkeypatch.setattr(Picture, "to_png", lambda *_, scale: b"drawn")  # test_figures draws
    np.save(tmp_path / "file.npy", np.arange(50))
    real = [Source("file", str(tmp_path / "file.npy"))]
    out = tmp_path / "out"
    out.mkdir()
    engineering.run_all(made, real, out=out, quick=True, data=tmp_path, jobs=1, backend=None)
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
