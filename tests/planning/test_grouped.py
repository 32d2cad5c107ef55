"""Histograms by group: one count, one charge, every declared group."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.errors import DphistError, UsageError
from dphist.planning.grouped import GroupedPlan
from dphist.privacy.ledger import Ledger, MemoryLedger
from shell import dphist as shell

SURE = 10**6  # so large an epsilon that the noise is nothing
TREE = {"North": ["H1", "H2"], "South": ["H3", "H4"]}
AGES = {"column": "age", "bins": 4, "range": (0, 100)}


@pytest.fixture
def visits(tmp_path):
    rows = [
        ("H1", 10, "a"),
        ("H1", 30, "b"),
        ("H2", 60, "a"),
        ("H3", 60, "a"),
        ("H9", 10, "c"),
        ("", 10, "d"),
    ]
    path = tmp_path / "visits.csv"
    path.write_text("hospital,age,person\n" + "".join(f"{h},{a},{p}\n" for h, a, p in rows))
    return path


def publish(data, **options):
    options = {"by": "hospital", "groups": ["H1", "H2", "H3", "H4"], "epsilon": SURE} | AGES | options
    return dphist.histogram(data, **options)


def test_every_declared_group_appears_and_no_other(visits):
    release = publish(visits, ledger=MemoryLedger())
    assert list(release) == ["H1", "H2", "H3", "H4"]
    assert release.values().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert "H9" not in release
    with pytest.raises(UsageError, match="no group 'H9'"):
        release["H9"]


def test_undeclared_groups_may_be_counted_together(visits):
    release = publish(visits, other="elsewhere", ledger=MemoryLedger())
    assert release["elsewhere"].values().tolist() == [1, 0, 0, 0]  # H9; a record without a label has no group


def test_levels_add_up_and_are_found_by_name(visits):
    release = publish(visits, by=("nation", "region", "hospital"), groups=TREE, ledger=MemoryLedger())
    assert release["North"].values().tolist() == [1, 1, 1, 0]
    assert release["nation", "all"].values().tolist() == [1, 1, 2, 0]
    assert list(release.level("region")) == ["North", "South"]
    assert release.sum(50, 75, groups=["North", "H3"]).value == 2
    assert release.total().value == 4
    with pytest.raises(UsageError, match="overlap"):
        release.sum(groups=["North", "H1"])


def test_one_charge_is_journaled_however_many_groups(visits, tmp_path):
    book = Ledger.open(tmp_path / "l.db", create=True)
    release = publish(visits, epsilon=1, ledger=book, by=("region", "hospital"), groups=TREE)
    (entry,) = book.entries()
    assert (entry.epsilon, book.spent("default"), entry.release) == (1, 1, release.id)
    assert sum(charge.epsilon for charge in release.charges) == release.epsilon == 1
    assert release.provenance["column"] == ("hospital", "age")


def test_a_person_is_bounded_over_all_groups_together(visits):
    counted = [
        publish(visits, unit="person", max_contributions=2, ledger=MemoryLedger()).total().value
        for _ in range(5)
    ]
    assert counted == [3.0] * 5  # a has three records in three groups, of which two count; b has one
    release = publish(visits, unit="person", max_contributions=2, ledger=MemoryLedger())
    assert release["H1"].sensitivity == 2
    assert "at most 2 per unit" in release["H1"].total().note


@pytest.mark.parametrize("method", ["identity", "hats", "dawa2", "sa"])
def test_a_group_is_a_release_like_any_other(visits, method):
    release = publish(visits, method=method, workload="ranges", ledger=MemoryLedger(), epsilon=2)
    one = release["H1"]
    assert isinstance(one, dphist.Release)
    assert (one.epsilon, one.method, one.domain.n) == (2, release.method, 4)
    assert one.parameters["group"] == {"level": "hospital", "label": "H1"}
    low, _ = release.intervals()
    assert np.array_equal(one.intervals()[0], low[0], equal_nan=True)
    assert one.total().low is not None


@pytest.mark.parametrize("post", ["nonneg", "integer"])
def test_presentable_values_add_up_too(visits, post):
    release = publish(
        visits,
        by=("nation", "region", "hospital"),
        groups=TREE,
        epsilon="0.5",
        post=post,
        ledger=MemoryLedger(),
    )
    leaves = release.values()
    assert (leaves >= 0).all()
    assert np.array_equal(leaves.sum(axis=0), release.values("nation")[0])
    assert np.array_equal(release["North"].values(), leaves[:2].sum(axis=0))
    if post == "integer":
        assert np.array_equal(leaves, np.rint(leaves))


def test_sums_over_groups_have_the_variance_that_adding_up_leaves():
    counts = {"hospital": ["H1", "H2", "H3", "H4"] * 50, "age": list(range(0, 100)) * 2}
    pandas = pytest.importorskip("pandas")
    release = publish(pandas.DataFrame(counts), by=("nation", "region", "hospital"), groups=TREE, epsilon=1,
                      importances={"nation": 50, "region": 1})  # fmt: skip
    assert release.shares[0] > 0
    whole, parts = release.sum(0, 50), [release.sum(0, 50, groups=[g]) for g in ("North", "South")]
    assert whole.high - whole.low < sum(part.high - part.low for part in parts)
    one = release["North"].sum(0, 50)
    assert (one.low, one.high) == pytest.approx((parts[0].low, parts[0].high))
    everywhere = release.sum(0, 50, groups=["H1", "H2"])
    assert everywhere.high - everywhere.low == pytest.approx(one.high - one.low)


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups": None},
        {"groups": ["H1", "H1"]},
        {"groups": {"North": ["H1"], "South": ["H1"]}},
        {"groups": "missing.txt"},
        {"by": ("nation", "hospital"), "importances": {"nation": 0, "hospital": 0}},
        {"importances": {"city": 1}},
        {"importances": {"hospital": float("nan")}},
        {"importances": [1]},
        {"groups": ["H1"], "other": "H1"},
        {"groups": ["H1", None]},
        {"groups": []},
        {"groups": [("N", "H1"), "H2"]},
        {"by": ("hospital", "hospital")},
        {"by": "clinic"},
        {"by": ""},
        {"column": None},
        {"method": "quadtree"},
        {"bins": dphist.Domain((dphist.Integers(0, 3), dphist.Integers(0, 3))), "range": None},
        {"epsilon": "1e-9", "unit": "person", "max_contributions": 10**6},
    ],
)
def test_what_is_wrong_is_refused_before_the_charge(visits, wrong):
    book = MemoryLedger()
    with pytest.raises(DphistError):
        publish(visits, ledger=book, **wrong)
    assert book.entries() == []


def test_a_grid_by_group_is_refused_in_its_own_words(visits):
    grid = dphist.Domain((dphist.Integers(0, 3), dphist.Integers(0, 3)))
    with pytest.raises(UsageError, match="histogram of one axis"):
        publish(visits, bins=grid, range=None, column=("age", "age"))
    with pytest.raises(UsageError, match="name the column to count"):
        publish(visits, column=None)


def test_categories_by_group(visits):
    release = publish(
        visits, column="person", categories=["a", "b"], bins=None, range=None, group_other="rest"
    )
    assert release.values().tolist() == [[1, 1], [1, 0], [1, 0], [0, 0], [0, 0]]
    assert release["H1"].count("a").value == 1


def test_a_pair_of_arrays_is_groups_and_values():
    release = publish((np.array(["H1", "H4", "H1"]), np.array([10, 60, 30])), column=None)
    assert release.values().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_odd_labels_are_counted_as_they_are(tmp_path):
    pandas = pytest.importorskip("pandas")
    odd = ["H\t1", "H\n2", '"q"', "it's", "Caf\u00e9", "a,b", "%s", "\u202eR"]
    data = pandas.DataFrame({"hospital": odd, "age": [10] * len(odd)})
    release = publish(data, groups=odd, other="rest")
    assert release.values()[:, 0].tolist() == [1] * len(odd) + [0]
    for name in ("r.parquet", "r.json", "r.csv"):
        release.save(tmp_path / name)
    for name in ("r.parquet", "r.json"):
        again = dphist.load(tmp_path / name)
        assert list(again) == [*odd, "rest"]
        assert all(again[label].total().value == 1 for label in odd)
    release.plot(tmp_path / "r.png")


def test_a_level_and_a_label_name_a_group_in_sums_too(visits):
    same = {"A": ["A", "H1"], "B": ["H3"]}
    release = publish(visits, by=("region", "hospital"), groups=same)
    assert release.sum(groups="A").value == 0  # the lowest of that name
    assert release.sum(groups=[("region", "A"), "B"]).value == 3
    with pytest.raises(UsageError, match="level and label"):
        release["a", "b", "c"]


def test_groups_without_by_are_a_mistake(visits):
    with pytest.raises(UsageError, match="go with by="):
        dphist.histogram(visits, **AGES, epsilon=1, groups=["H1"])


def test_more_cells_than_memory_are_refused_before_the_charge(visits, monkeypatch):
    from dphist.methods import memory

    monkeypatch.setattr(memory, "available", lambda: 1 << 28)
    book = MemoryLedger()
    with pytest.raises(UsageError, match="memory"):
        publish(visits, groups=[f"H{i}" for i in range(10**5)], bins=1000, method="hats", ledger=book)
    assert book.entries() == []


def test_a_plan_tells_its_shares():
    plan = GroupedPlan(by=("nation", "hospital"), groups=["A", "B"], epsilon=1, **AGES)
    assert sum(plan.shares) == 1
    assert plan.hierarchy.sizes == (1, 2)
    assert isinstance(plan.shares[0], Fraction)


def test_totals_of_biased_groups_have_intervals_by_default(visits):
    options = {"by": ("nation", "region", "hospital"), "groups": TREE, "epsilon": 1, "workload": "ranges"}
    release = publish(visits, method="dawa2", ledger=MemoryLedger(), **options)
    assert all(release.shares)
    assert release["all"].total().low is not None
    assert release.sum(0, 50, groups=["North", "South"]).low is not None
    assert "have none" in release.sum(0, 50, groups=["H1", "H3"]).note


@pytest.mark.parametrize("method", ["hats", "dawa2"])
@pytest.mark.parametrize("depth", [1, 3])
def test_nothing_is_compiled_after_the_charge(visits, method, depth):
    from dphist import kernels
    from dphist.kernels.trees.tree import make_tree
    from dphist.methods import rehearsal

    rehearsal._rehearsed.clear()
    make_tree.cache_clear()
    names, groups = (("n", "r", "hospital"), TREE) if depth == 3 else ("hospital", ["H1", "H2"])
    plan = GroupedPlan(by=names, groups=groups, epsilon=1, method=method, post="integer", **AGES)
    for loop in kernels.LOOPS:
        loop._reset_overloads()
    plan.prepare()
    before = {(loop.py_func.__qualname__, str(s)) for loop in kernels.LOOPS for s in loop.signatures}
    plan.release(visits, ledger=MemoryLedger()).values()
    after = {(loop.py_func.__qualname__, str(s)) for loop in kernels.LOOPS for s in loop.signatures}
    assert {found for found in after - before if "line" not in found[0]} == set()


def test_the_command_line_publishes_and_asks_by_group(visits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups.txt").write_text("North\tH1\nNorth\tH2\nSouth\tH3\nSouth\tH4\n")
    shell("ledger", "create", "l.db")
    ages = ("--column", "age", "--bins", "4", "--range", "0", "100", "--ledger", "l.db", "--epsilon", "1")
    by = ("--by", "nation,region,hospital", "--groups", "groups.txt", "--importance", "nation=5")
    dry = shell("publish", "visits.csv", *ages, *by, "--dry-run").stdout
    assert "4 hospital" in dry
    out = shell("publish", "visits.csv", *ages, *by, "--out", "r.parquet", "--plot", "r.png")
    assert "North" in out.stdout
    assert "spent 1" in out.stderr
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert "level 0.95" in shell("query", "r.parquet", "--group", "H1", "25", "75").stdout
    assert "level 0.95" in shell("query", "r.parquet", "--group", "H1", "--group", "H3", "25", "75").stdout
    assert "level 0.95" in shell("query", "r.parquet", "0", "100").stdout
    shell("plot", "r.parquet", "all.svg")
    shell("plot", "r.parquet", "some.svg", "--group", "H1", "--group", "North")
    shell("plot", "r.parquet", "one.svg", "--group", "H1", "--joint")
    drawn = [(tmp_path / name).read_text() for name in ("all.svg", "some.svg", "one.svg")]
    assert ["H3" in picture for picture in drawn] == [True, False, False]
    assert "name it with --group" in shell("plot", "r.parquet", "x.svg", "--log", code=2).stderr
    assert "no group" in shell("query", "r.parquet", "--group", "H8", "0", "100", code=2).stderr
    assert "--by needs --groups" in shell("publish", "visits.csv", *ages, "--by", "hospital", code=2).stderr
    assert "go with --by" in shell("publish", "visits.csv", *ages, "--group-other", "x", code=2).stderr
    assert Ledger.open("l.db").spent("default") == 1


WRONG = [
    ("A\nA\n", (), "declared twice"),
    ("N\tA\nS\tA\n", (), "in two groups above it"),
    ("\n \n", (), "at least one group"),
    ("N\tA\nB\n", (), "as many groups above it"),
    ("A\t\n", (), "is empty"),
    ("A\nB\n", ("--importance", "n=0", "--importance", "hospital=0"), "above 0"),
    ("A\nB\n", ("--importance", "n=-1"), "importance of n"),
    ("A\nB\n", ("--importance", "n=nan"), "importance of n"),
    ("A\nB\n", ("--importance", "n=inf"), "importance of n"),
    ("A\nB\n", ("--importance", "n"), "such as region=0.1"),
    ("A\nB\n", ("--importance", "city=1"), "no level 'city'"),
    ("A\nB\n", ("--importance", "n=1", "--importance", "n=2"), "twice for one level"),
    ("A\nB\n", ("--by", "hospital,hospital"), "same name"),
    ("A\nB\n", ("--by", "a,b,c,hospital"), "by names 4 levels"),
    ("A\nB\n", ("--group-other", "A"), "declared twice"),
    (None, (), "cannot be read"),
]


@pytest.mark.parametrize(("text", "more", "says"), WRONG)
def test_the_command_line_refuses_what_is_wrong_before_the_charge(
    text, more, says, visits, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "g.txt").write_text(text)
    shell("ledger", "create", "l.db")
    by = () if "--by" in more else ("--by", "n,hospital" if more[:1] == ("--importance",) else "hospital")
    ages = ("--column", "age", "--bins", "4", "--range", "0", "100", "--ledger", "l.db", "--epsilon", "1")
    run = shell("publish", "visits.csv", *ages, *by, "--groups", "g.txt", *more, "--out", "r.json", code=2)
    assert says in run.stderr
    assert Ledger.open("l.db").entries() == []
    assert not (tmp_path / "r.json").exists()


def test_the_command_line_warns_of_groups_that_look_alike(visits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.txt").write_bytes("\ufeffH1\r\n\r\nh1\r\nH2 \r\n".encode())
    shell("ledger", "create", "l.db")
    ages = ("--column", "age", "--bins", "4", "--range", "0", "100", "--ledger", "l.db", "--epsilon", "1")
    run = shell("publish", "visits.csv", *ages, "--by", "hospital", "--groups", "g.txt", "--dry-run")
    assert "warning: groups differ only in case, spaces or Unicode forms: 'H1' and 'h1'" in run.stderr
    assert "warning: groups begin or end with spaces: 'H2 '" in run.stderr
    assert ".py" not in run.stderr
