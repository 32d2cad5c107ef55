"""Publications and plan files: one charge for several histograms, all or none, and words that are checked."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.domain import Categories, Domain, Instants, Integers
from dphist.errors import BudgetExceeded, DataError, LedgerError, OutputError, PrivacyError, UsageError
from dphist.planning import plan as planning
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan_files import new
from dphist.privacy.ledger import MemoryLedger

SURE = 10**6  # an epsilon at which the noise is zero, to see what was counted


def visits(rows=400):
    at = np.arange(rows)
    return pd.DataFrame(
        {
            "age": at % 100,
            "ward": np.array(["A", "B", "C"])[at % 3],
            "cost": 1.0 + at,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(at % 300, "D"),
            "person": at // 4,
        }
    )


def two(epsilon=1, **more):
    half = Fraction(epsilon) / 2
    return dphist.Publication(
        {
            "ages": dphist.Plan(column="age", integers=(0, 119), epsilon=half, **more),
            "wards": dphist.Plan(column="ward", categories=["A", "B"], other="else", epsilon=half, **more),
        },
        name="spring",
    )


def test_one_charge_pays_for_all_of_them():
    ledger = MemoryLedger(limit=3)
    releases = two().release(visits(), ledger=ledger, dataset="visits")
    (entry,) = ledger.entries()
    assert entry.epsilon == ledger.spent("visits") == 1
    assert (entry.purpose, entry.mechanism, entry.unit) == ("publication", "auto", "one record")
    assert entry.what == "DataFrame in memory: ages, wards"
    for name, release in releases.items():
        assert release.epsilon == Fraction(1, 2)
        assert sum(part.epsilon for part in release.charges) == Fraction(1, 2)
        assert release.id == entry.release
        said = release.provenance["publication"]
        assert (said["name"], said["histogram"], said["share"], said["epsilon"]) == (
            "spring",
            name,
            "1/2",
            "1",
        )
        assert release.provenance["column"] == ({"ages": "age", "wards": "ward"}[name],)


def test_every_histogram_counts_what_its_own_plan_says():
    plans = {
        "adults": dphist.Plan(column="age", bins=[0, 50, 100], where="age >= 18", epsilon=SURE),
        "wards": dphist.Plan(column="ward", categories=["A", "B", "C"], epsilon=SURE),
        "costs": dphist.Plan(column="cost", log=(1, 100), bins=2, outside="clip", epsilon=SURE),
        "grid": dphist.Plan(
            column=("ward", "age"), bins=Domain((Categories(("A", "B")), Integers(0, 99))), epsilon=SURE
        ),
        "groups": GroupedPlan(
            column="age", bins=2, range=(0, 100), by="ward", groups=["A", "B"], epsilon=SURE
        ),
    }
    together = dphist.Publication(plans).release(visits())
    for name, plan in plans.items():
        assert np.array_equal(together[name].values(), plan.release(visits()).values()), name


def test_each_has_the_noise_of_its_own_share_and_bound(monkeypatch):
    """The scale of the noise is k over the epsilon of the share, whatever the others have."""
    seen = []
    real = planning.Curator

    def watched(counts, charge):
        seen.append((counts.sensitivity, charge.epsilon))
        return real(counts, charge)

    monkeypatch.setattr(planning, "Curator", watched)
    publication = dphist.Publication(
        {
            "ages": dphist.Plan(
                column="age",
                integers=(0, 119),
                epsilon="0.9",
                unit="person",
                max_contributions=3,
                method="identity",
            ),
            "wards": dphist.Plan(
                column="ward", categories=["A"], epsilon="0.1", unit="person", method="identity"
            ),
        }
    )
    ledger = MemoryLedger()
    releases = publication.release(visits(), ledger=ledger)
    assert seen == [(3, Fraction(9, 10)), (1, Fraction(1, 10))]
    assert releases["ages"].error.scale == pytest.approx(3 / 0.9)
    assert releases["wards"].error.scale == pytest.approx(1 / 0.1)
    assert ledger.entries()[0].unit == "one person with at most 3 records", "the largest bound of all"


def test_all_shares_are_taken_and_charged_before_the_first_draw(monkeypatch):
    order, ledger = [], MemoryLedger()
    spend, run = MemoryLedger._spend, dphist.Plan._run

    def charged(own, *a):
        if own is ledger:  # a rehearsal on made-up counts has another
            order.append("charge")
        return spend(own, *a)

    monkeypatch.setattr(MemoryLedger, "_spend", charged)
    monkeypatch.setattr(dphist.Plan, "_run", lambda *a: (order.append("draw"), run(*a))[1])
    two().release(visits(), ledger=ledger)
    assert order == ["charge", "draw", "draw"]


def test_what_one_of_them_cannot_do_costs_nothing(monkeypatch):
    ledger = MemoryLedger(limit=1)
    frame = visits().drop(columns="ward")
    with pytest.raises(DataError, match="ward"):
        two().release(frame, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        two(2).release(visits(), ledger=ledger)
    tiny = dphist.Plan(column="age", integers=(0, 119), epsilon="1e-9", unit="person", max_contributions=10)
    fine = dphist.Plan(column="age", integers=(0, 119), epsilon=1, unit="person")
    with pytest.raises(UsageError, match="too small"):
        dphist.Publication({"fine": fine, "tiny": tiny}).release(visits(), ledger=MemoryLedger())
    monkeypatch.setattr(dphist.Plan, "prepare", lambda self: (_ for _ in ()).throw(UsageError("memory")))
    with pytest.raises(UsageError, match="memory"):
        two().release(visits(), ledger=ledger)
    assert ledger.entries() == []


def test_histograms_that_fit_one_by_one_and_not_together_cost_nothing(monkeypatch):
    from dphist.methods import memory

    plans = {f"h{i}": dphist.Plan(bins=1 << 18, range=(0, 1), epsilon=1) for i in range(3)}
    needs = memory.bytes_needed(plans["h0"].pipeline, plans["h0"].domain)
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda: 2 * needs)
    ledger = MemoryLedger()
    with pytest.raises(UsageError, match="3 histograms together need"):
        dphist.Publication(plans).release([0.5], ledger=ledger)
    assert ledger.entries() == []
    dphist.Publication({key: plans[key] for key in ("h0", "h1")}).release([0.5], ledger=ledger)


def test_the_ledger_is_asked_before_the_records_are_read(monkeypatch):
    from dphist import records

    monkeypatch.setattr(records, "count_together", lambda *a, **k: pytest.fail("records were read"))
    with pytest.raises(BudgetExceeded):
        two().release(visits(), ledger=MemoryLedger(limit="0.9"))


def test_plans_of_different_people_are_no_publication():
    by_person = dphist.Plan(column="age", integers=(0, 119), epsilon=1, unit="person")
    by_record = dphist.Plan(column="age", integers=(0, 119), epsilon=1)
    with pytest.raises(UsageError, match="unit is that of the whole dataset"):
        dphist.Publication({"a": by_person, "b": by_record})
    with pytest.raises(UsageError, match="at least one"):
        dphist.Publication({})
    with pytest.raises(UsageError, match="name of a histogram"):
        dphist.Publication({"../a": by_record})
    with pytest.raises(UsageError, match="one name"):
        dphist.Publication({"a": by_record, "A": by_record})
    with pytest.raises(UsageError, match="names no data"):
        dphist.Publication({"a": by_record}).release()


def test_plain_arrays_can_be_published_twice():
    plans = {
        "fine": dphist.Plan(bins=4, range=(0, 4), epsilon=SURE),
        "all": dphist.Plan(bins=[0, 4], epsilon=SURE),
    }
    releases = dphist.Publication(plans).release([1, 2, 2])
    assert releases["fine"].raw.tolist() == [0, 1, 2, 0] and releases["all"].raw.tolist() == [3]


# Plan files


def written(tmp_path, text):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return file


ONE = "epsilon = 1\n[histograms.ages]\ncolumn = 'age'\nintegers = [0, 119]\n"
TWO = "[histograms.b]\ncolumn = 'b'\nintegers = [0, 1]\n"


def test_the_template_is_a_plan_and_is_not_written_over(tmp_path):
    file = new(tmp_path / "plan.toml", data="records of 'May'.csv")
    plan = dphist.Publication.load(file)
    assert plan.budget == 1 and plan.shares == {"ages": Fraction(3, 5), "wards": Fraction(2, 5)}
    assert plan.data == str(tmp_path / "records of 'May'.csv") and plan.name == "plan"
    with pytest.raises(OutputError, match="exists"):
        new(file)
    with pytest.raises(OutputError, match=r"\.toml"):
        new(tmp_path / "plan.json")


def test_every_kind_of_bins_is_written_and_read_back(tmp_path):
    year, grid = (
        ("2024-01-01", "2025-01-01"),
        (Instants("2024-01-01", "2024-03-01", "1d", "UTC"), Categories(("A",))),
    )
    tree = {"N orth": ["A", "B"], "S": ["C"]}
    options = {
        "equal": {"bins": 12, "range": (0, 120), "epsilon": "1/3", "method": "dawa", "outside": "clip"},
        "edges": {"bins": [0, 18.5, 65], "epsilon": "0.1", "where": "b = 'x\"y\\'"},
        "whole": {"integers": (-3, 120), "max_contributions": 4},
        "log": {"log": (1, 1e6), "bins": 24, "workload": [(0, 3), (2, 9)]},
        "time": {"range": year, "every": "week", "timezone": "Europe/Berlin"},
        "labels": {"categories": ["é", "a\x7f\n"], "other": "rest", "null": "none", "post": "integer"},
        "grid": {"column": ("t", "c"), "bins": Domain(grid), "calibrate": 0},
    }
    plans = {
        name: dphist.Plan(**({"epsilon": 1, "column": "a", "unit": "p"} | each))
        for name, each in options.items()
    }
    plans["groups"] = GroupedPlan(
        column="a",
        bins=4,
        range=(0, 4),
        by=("region", "ward"),
        groups=tree,
        other="else",
        importances={"region": 0.5, "ward": 1},
        epsilon=1,
        unit="p",
    )
    whole = dphist.Publication(plans, data="v.csv", ledger="l.db", dataset="d")
    (tmp_path / "deep").mkdir()
    file = whole.save(tmp_path / "deep" / "many.toml")
    again = dphist.Publication.load(file)
    assert again.budget == whole.budget and again.dataset == "d"
    for name, plan in plans.items():
        other = again.plans[name]
        assert type(other) is type(plan), name
        for key in (
            "domain",
            "budget",
            "column",
            "where",
            "unit",
            "max_contributions",
            "zone",
            "outside",
            "post",
        ):
            assert getattr(other, key) == getattr(plan, key), (name, key)
        assert other.pipeline == plan.pipeline and other.queries.to_dict() == plan.queries.to_dict()
    assert again.plans["groups"].hierarchy.labels == plans["groups"].hierarchy.labels
    assert again.plans["groups"].shares == plans["groups"].shares
    with pytest.raises(OutputError, match="exists"):
        whole.save(file)


def test_a_plan_is_saved_and_loaded(tmp_path):
    plan = dphist.Plan(column="age", bins=12, range=(0, 120), epsilon="1/3", method="dawa", workload="ranges")
    again = dphist.Plan.load(plan.save(tmp_path / "p.toml"))
    assert (again.budget, again.domain, again.pipeline) == (plan.budget, plan.domain, plan.pipeline)
    two().save(tmp_path / "two.toml")
    with pytest.raises(UsageError, match="Publication.load"):
        dphist.Plan.load(tmp_path / "two.toml")
    mine = dphist.Plan(column="a", bins=2, range=(0, 2), epsilon=1, method=dphist.Pipeline())
    with pytest.raises(UsageError, match="name a method"):
        mine.save(tmp_path / "mine.toml")
    with pytest.raises(UsageError, match="column"):
        dphist.Plan(bins=2, range=(0, 2), epsilon=1).save(tmp_path / "none.toml")


def test_paths_are_relative_to_the_plan_file(tmp_path, monkeypatch):
    (tmp_path / "wards.txt").write_text("A\nB\n")
    file = written(
        tmp_path,
        "data = 'v.csv'\nledger = 'l.db'\nepsilon = 1\n"
        "[histograms.w]\ncolumn = 'ward'\ncategories = 'wards.txt'\n"
        "[histograms.g]\ncolumn = 'age'\nintegers = [0, 9]\nby = 'ward'\ngroups = 'wards.txt'\n",
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan = dphist.Publication.load(file)
    assert (plan.data, plan.ledger) == (str(tmp_path / "v.csv"), str(tmp_path / "l.db"))
    assert plan.plans["w"].domain.axis.labels == ("A", "B")
    assert plan.plans["g"].hierarchy.leaves == ("A", "B")
    address = written(tmp_path, "data = 'postgresql://h/d'\n" + ONE)
    assert dphist.Publication.load(address).data == "postgresql://h/d"


def test_dates_of_toml_are_dates(tmp_path):
    file = written(
        tmp_path,
        "epsilon = 1\n[histograms.w]\ncolumn = 'day'\nrange = [2024-01-01, 2025-01-01]\nevery = 'month'\n",
    )
    assert dphist.Publication.load(file).plans["w"].domain.n == 12


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("epsilom = 1\n" + ONE, UsageError, "Did you mean 'epsilon'"),
        (ONE + "metod = 'dawa'\n", UsageError, "histogram 'ages' has no 'metod'.*'method'"),
        (ONE + "y_binss = 3\n", UsageError, "y_bins"),
        (ONE.replace("epsilon = 1\n", ""), UsageError, "epsilon is needed"),
        (ONE.replace("epsilon = 1", "epsilon = 0"), UsageError, "above 0"),
        (ONE.replace("epsilon = 1", "epsilon = true"), UsageError, "epsilon must be"),
        ("epsilon = 1\n", UsageError, "no histogram"),
        ("epsilon = 1\n[histograms]\nages = 3\n", UsageError, "is a table"),
        (ONE + "share = 1.5\n", UsageError, "add up to 1.5"),
        (ONE + "share = 0\n", UsageError, "above 0"),
        (ONE + "share = 0.4\n", UsageError, "0.6 of epsilon would buy nothing"),
        (ONE + "share = 1\n" + TWO, UsageError, "nothing is left for 'b'"),
        (ONE + "share = 0.7\n" + TWO + "share = 0.4\n", UsageError, "add up to 1.1"),
        (ONE + "column = 'x'\n", UsageError, "not TOML"),
        (ONE.replace("column = 'age'\n", ""), UsageError, "column is needed"),
        (ONE.replace("'age'", "5"), UsageError, "column must be text"),
        (ONE + "max_contributions = '3'\n", UsageError, "whole number"),
        (ONE + "max_contributions = true\n", UsageError, "whole number"),
        (ONE + "bins = 3\n", UsageError, "each say what the bins are"),
        (ONE.replace("integers = [0, 119]", "bins = 3"), UsageError, r"range = \[0, 120\]"),
        (ONE.replace("integers = [0, 119]", "bins = 3\nrange = ['min', 'max']"), PrivacyError, "leaks"),
        (ONE + "y_bins = 3\n", UsageError, "y_column is needed"),
        (ONE + "groups = ['A']\n", UsageError, "goes with by"),
        (ONE + "by = 'ward'\n", UsageError, "by needs groups"),
        (ONE + "method = 'dawaa'\n", UsageError, "dawa"),
        (ONE + "max_contributions = 3\n", UsageError, "unit"),
    ],
)
def test_what_is_wrong_in_a_plan_file_is_said(tmp_path, text, error, says):
    file = written(tmp_path, text)
    with pytest.raises(error, match=says) as caught:
        dphist.Publication.load(file)
    assert str(caught.value).startswith(str(file))


def test_shares_are_exact_and_divide_the_rest(tmp_path):
    more = "".join(f"[histograms.h{i}]\ncolumn = 'b'\nintegers = [0, 1]\n" for i in range(3))
    plan = dphist.Publication.load(written(tmp_path, ONE.replace("= 1", "= 0.1") + "share = 0.1\n" + more))
    assert plan.shares == {"ages": Fraction(1, 10), **{f"h{i}": Fraction(3, 10) for i in range(3)}}
    assert plan.budget == Fraction(1, 10), "exactly, as it is written"


def test_a_plan_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="dphist plan new"):
        dphist.Publication.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"data = '\xe9'\n")
    with pytest.raises(UsageError, match="UTF-8"):
        dphist.Publication.load(tmp_path / "latin.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        dphist.Publication.load(tmp_path)


def test_a_ledger_that_is_named_must_exist(tmp_path):
    visits().to_csv(tmp_path / "v.csv", index=False)
    plan = dphist.Publication.load(written(tmp_path, "data = 'v.csv'\nledger = 'l.db'\n" + ONE))
    with pytest.raises(LedgerError, match=r"l\.db"):
        plan.release()
    assert not (tmp_path / "l.db").exists()
    book = dphist.Ledger.open(tmp_path / "l.db", create=True)
    (release,) = plan.release().values()
    assert book.spent("default") == 1 and release.provenance["journaled"]


def test_a_report_adds_up_the_histograms_of_one_charge(tmp_path):
    """They share a charge, and so an id: neither is taken for the other, and the ledger confirms each."""
    from dphist.reports import budget, registry, sheet

    book = dphist.Ledger.open(tmp_path / "l.db", create=True)
    plans = {
        "ages": dphist.Plan(
            column="age", integers=(0, 119), epsilon="0.7", unit="person", max_contributions=3, method="dawa"
        ),
        "wards": dphist.Plan(column="ward", categories=["A"], epsilon="0.3", unit="person"),
    }
    both = list(dphist.Publication(plans).release(visits(), ledger=book).values())
    (known,) = budget.budgets(both, book)
    assert known.spent == 1 and known.charges == 1
    assert sheet._losses([*both, both[0]], [])[0].epsilon == registry._total([*both, both[0]]) == 1
    forged = [
        replace(both[0], epsilon=Fraction(8, 10)),
        replace(both[1], unit="one record"),
        replace(both[1], method="ahp"),
    ]
    for release in forged:
        with pytest.raises(dphist.errors.ReleaseFileError, match="was altered"):
            budget.budgets([release], book)
