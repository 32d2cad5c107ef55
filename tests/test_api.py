"""What most people call: checked first, charged before drawing, nothing spent on a mistake."""

import doctest
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.errors import BudgetExceeded, DataError, DphistError, LedgerError, PrivacyError, UsageError

AGES = np.array([3, 17, 17, 25, 38, 38, 38, 61, 90, 119, 130, -4])
SURE = 10**6  # an epsilon at which the noise is zero, to see what was counted


def test_public_names_are_what_all_says():
    assert sorted(dphist.__all__) == sorted(set(dphist.__all__))  # the linter keeps their order
    for name in dphist.__all__:
        assert getattr(dphist, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        dphist.nonsense  # noqa: B018


def test_the_package_docstring_runs():
    assert doctest.testmod(dphist).failed == 0


def test_importing_stays_light():
    code = (
        "import sys, dphist; heavy = {'numba', 'duckdb', 'altair', 'pandas', 'sqlglot', 'cryptography'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_histogram_counts_like_numpy():
    release = dphist.histogram(AGES, bins=12, range=(0, 120), epsilon=SURE)
    want, edges = np.histogram(AGES, bins=12, range=(0, 120))
    assert np.array_equal(release.raw, want)
    assert np.array_equal(release.to_numpy()[1], edges)
    clipped = dphist.histogram(AGES, bins=12, range=(0, 120), epsilon=SURE, outside="clip")
    assert clipped.raw.sum() == AGES.size
    by_edges = dphist.histogram(AGES, bins=[0, 18, 65, 120], epsilon=SURE)
    assert by_edges.raw.tolist() == [3, 5, 2]
    integers = dphist.histogram(AGES, bins=dphist.Integers(17, 38), epsilon=SURE)
    assert integers.raw[[0, 21]].tolist() == [2, 3]


def test_categories_and_grids():
    release = dphist.histogram(["a", "b", "b", "z"], categories=["a", "b", "c"], epsilon=SURE)
    assert release.raw.tolist() == [1, 2, 0], "an empty bin is there like any other"
    x, y = np.array([0.1, 0.9, 0.9]), np.array([5, 15, 15])
    grid = dphist.histogram2d(x, y, bins=(2, 2), range=((0, 1), (0, 20)), epsilon=SURE)
    assert grid.values().tolist() == np.histogram2d(x, y, bins=(2, 2), range=((0, 1), (0, 20)))[0].tolist()


def test_a_dataframe_and_a_file_give_the_same(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"age": AGES, "other": "x"})
    frame.to_csv(tmp_path / "people.csv", index=False)
    dphist.Ledger.open(tmp_path / "l.db", create=True)
    for data in (frame, tmp_path / "people.csv", str(tmp_path / "people.csv")):
        release = dphist.histogram(
            data, bins=12, range=(0, 120), column="age", epsilon=SURE, ledger=tmp_path / "l.db"
        )
        assert np.array_equal(release.raw, np.histogram(AGES, bins=12, range=(0, 120))[0])


def test_from_counts_takes_edges_labels_axes_and_grids():
    assert dphist.from_counts([1, 2, 3], epsilon=SURE).sum(0, 2).value == 3
    assert dphist.from_counts([1, 2], bins=[0, 18, 99], epsilon=SURE).sum(18, 99).value == 2
    labelled = dphist.from_counts([1, 2], bins=["a", "b"], epsilon=SURE)
    assert labelled.domain.axis.names() == ["a", "b"]
    grid = dphist.from_counts([[1, 2], [3, 4]], epsilon=SURE)
    assert grid.values().tolist() == [[1, 2], [3, 4]]
    unit = dphist.from_counts([5, 5], epsilon=1, sensitivity=4)
    assert unit.sensitivity == 4
    assert "4" in unit.unit


def test_a_release_says_how_it_was_made(tmp_path):
    ledger = dphist.Ledger.open(tmp_path / "l.db", create=True)
    release = dphist.histogram(AGES, bins=3, range=(0, 120), epsilon="1/3", ledger=ledger, dataset="ages")
    assert release.epsilon == Fraction(1, 3)
    assert (release.method, release.parameters["found"]) == ("auto", {"choice": "average"})
    assert release.provenance["dataset"] == "ages"
    assert not release.simulated
    assert ledger.spent("ages") == Fraction(1, 3)
    (entry,) = ledger.entries()
    assert (entry.release, entry.unit) == (release.id, "one record")
    assert release.rebin(3).id == release.id


def test_a_path_that_is_no_ledger_is_not_made_one(tmp_path):
    dphist.Ledger.open(tmp_path / "hospital.db", create=True)
    with pytest.raises(
        LedgerError, match=r"no ledger .*Did you mean 'hospital.db'.*Ledger.open\(path, create=True"
    ):
        dphist.from_counts([1, 2], epsilon=1, ledger=tmp_path / "hopsital.db")
    assert not (tmp_path / "hopsital.db").exists()


@pytest.mark.parametrize(
    "epsilon", [0, -1, float("nan"), float("inf"), True, "much", "", None, [1], "0", "-0.5", 1e-14]
)
def test_a_bad_epsilon_is_refused_and_charged_to_nobody(epsilon):
    ledger = dphist.MemoryLedger(limit=10)
    with pytest.raises(UsageError):
        dphist.from_counts([1, 2], epsilon=epsilon, ledger=ledger)
    assert ledger.spent("default") == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (dict(bins=10), UsageError, "range is needed"),
        (dict(bins=10, range="auto"), PrivacyError, "leaks"),
        (dict(bins="auto"), PrivacyError, "leaks"),
        (dict(), UsageError, "bins is needed"),
        (dict(bins=0, range=(0, 1)), UsageError, "at least 1"),
        (dict(bins=2, range=(0, 1), categories=["a"]), UsageError, "leave one out"),
        (dict(bins=2, range=(0, 1), method="identiy"), UsageError, "Did you mean 'identity'"),
        (dict(bins=2, range=(0, 1), workload="rangs"), UsageError, "ranges"),
        (dict(bins=2, range=(0, 1), workload=[(0, 9)]), UsageError, "queries"),
        (dict(bins=2, range=(0, 1), outside="keep"), UsageError, "'drop' or 'clip'"),
        (dict(bins=2, range=(0, 1), post="pretty"), UsageError, "nonneg"),
        (dict(bins=2, range=(0, 1), max_contributions=3), UsageError, "needs unit"),
        (dict(bins=2, range=(0, 1), max_contributions=0), UsageError, "at least 1"),
        (dict(bins=2, range=(0, 1), column="age"), DphistError, "column"),
    ],
)
def test_bad_arguments_are_refused_and_charged_to_nobody(arguments, error, words):
    ledger = dphist.MemoryLedger(limit=10)
    with pytest.raises(error, match=words):
        dphist.histogram(AGES, **arguments, epsilon=1, ledger=ledger)
    assert ledger.spent("default") == 0


@pytest.mark.parametrize("counts", [[1.5], [-1], [float("nan")], [], [[[1]]], ["a"], [2**60]])
def test_bad_counts_are_refused_and_charged_to_nobody(counts):
    ledger = dphist.MemoryLedger(limit=10)
    with pytest.raises((DataError, UsageError)):
        dphist.from_counts(counts, epsilon=1, ledger=ledger)
    assert ledger.spent("default") == 0


def test_a_spent_ledger_says_what_is_left(tmp_path):
    ledger = dphist.Ledger.open(tmp_path / "l.db", create=True)
    ledger.set_limit("default", Fraction(1))
    dphist.from_counts([1, 2], epsilon="0.75", ledger=tmp_path / "l.db")
    with pytest.raises(BudgetExceeded, match=r"0\.25"):
        dphist.from_counts([1, 2], epsilon="0.5", ledger=tmp_path / "l.db")
    assert ledger.spent("default") == Fraction(3, 4)
    dphist.from_counts([1, 2], epsilon="0.25", ledger=tmp_path / "l.db")


def test_the_ledger_is_asked_before_the_records_are_read(tmp_path):
    ledger = dphist.MemoryLedger(limit="0.1")
    with pytest.raises(BudgetExceeded):
        dphist.histogram(tmp_path / "missing.csv", bins=2, range=(0, 1), column="a", epsilon=1, ledger=ledger)


def test_records_on_disk_are_journaled_durably_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    dphist.histogram("a.csv", bins=2, range=(0, 4), column="x", epsilon="0.5")
    assert dphist.Ledger.open(tmp_path / "dphist-ledger.db").spent("default") == Fraction(1, 2)
    monkeypatch.setenv("DPHIST_LEDGER", str(tmp_path / "other.db"))
    with pytest.raises(LedgerError, match="there is no ledger"):
        dphist.histogram("a.csv", bins=2, range=(0, 4), column="x", epsilon="0.5")
    dphist.Ledger.open(tmp_path / "other.db", create=True)
    dphist.histogram("a.csv", bins=2, range=(0, 4), column="x", epsilon="0.5")
    assert dphist.Ledger.open(tmp_path / "other.db").spent("default") == Fraction(1, 2)


def test_data_in_memory_is_journaled_where_the_environment_says_and_says_so_if_nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    assert not dphist.from_counts([1, 2], epsilon=1).provenance["journaled"]
    monkeypatch.setenv("DPHIST_LEDGER", str(tmp_path / "l.db"))
    dphist.Ledger.open(tmp_path / "l.db", create=True)
    assert dphist.from_counts([1, 2], epsilon=1).provenance["journaled"]
    assert dphist.Ledger.open(tmp_path / "l.db").spent("default") == 1


def test_any_path_is_a_file_and_is_charged(tmp_path, monkeypatch):
    import os

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    (entry,) = [e for e in os.scandir(tmp_path) if e.name == "a.csv"]
    dphist.histogram(entry, bins=2, range=(0, 4), column="x", epsilon=5)
    assert dphist.Ledger.open("dphist-ledger.db").spent("default") == 5


@pytest.mark.parametrize("driver", ["psycopg", "pyspark.sql"])
def test_records_on_a_server_are_journaled_durably_by_default(tmp_path, monkeypatch, driver):
    from dphist import records
    from dphist.privacy.counts import Counts

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    monkeypatch.setattr(records, "count", lambda data, domain, **_: Counts([1, 2], domain))
    table = type("Table", (), {"__module__": driver})()
    release = dphist.histogram(table, bins=2, range=(0, 4), column="x", epsilon="0.5")
    assert release.provenance["journaled"]
    assert dphist.Ledger.open("dphist-ledger.db").spent("default") == Fraction(1, 2)


def test_a_release_names_its_source_without_folders_hosts_or_passwords(tmp_path, monkeypatch):
    from dphist import records
    from dphist.privacy.counts import Counts

    monkeypatch.setattr(records, "count", lambda data, domain, **_: Counts([1, 2], domain))
    address = "postgresql://steward:right-horse@ward.example/patients"
    for data, told in ((tmp_path / "visits.csv", "visits.csv"), (address, "postgresql")):
        book = dphist.Ledger.open(tmp_path / f"{told}.db", create=True)
        release = dphist.histogram(data, bins=2, range=(0, 4), column="x", epsilon=1, ledger=book)
        assert release.provenance["source"] == told
        assert book.entries()[0].what == f"{told}, x"


def test_noise_too_wide_to_draw_is_refused_before_it_is_paid_for():
    ledger = dphist.MemoryLedger()
    with pytest.raises(UsageError, match="too small.*choose 0.015 or more"):
        dphist.from_counts([1, 2], epsilon=1e-9, sensitivity=10**6, ledger=ledger)
    assert ledger.spent("default") == 0
    dphist.from_counts([1, 2], epsilon="0.015", sensitivity=10**6, ledger=ledger)
    with pytest.raises(UsageError, match="too small"):
        dphist.from_counts([1, 2], epsilon="0.0149", sensitivity=10**6, ledger=ledger)


def test_a_ledger_is_a_path_or_a_ledger():
    with pytest.raises(UsageError, match="path or a ledger"):
        dphist.from_counts([1], epsilon=1, ledger=5)


def test_a_ledger_that_cannot_be_opened_stops_everything(tmp_path):
    with pytest.raises(LedgerError):
        dphist.from_counts([1], epsilon=1, ledger=tmp_path)
    (tmp_path / "junk.db").write_text("this is no ledger, it is a letter to an aunt" * 40)
    with pytest.raises(LedgerError):
        dphist.from_counts([1], epsilon=1, ledger=tmp_path / "junk.db")


def test_a_crash_after_the_charge_wastes_budget_and_never_overspends(monkeypatch):
    from dphist.privacy import noise

    ledger = dphist.MemoryLedger(limit=1)
    dphist.from_counts([1, 2], epsilon=1)  # rehearsed by now, so that the next noise is that of a release
    monkeypatch.setattr(noise, "laplace", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        dphist.from_counts([1, 2], epsilon=1, ledger=ledger)
    assert ledger.spent("default") == 1


class TestPlan:
    def test_a_plan_is_checked_when_it_is_made(self):
        with pytest.raises(UsageError):
            dphist.Plan(bins=10, epsilon=1)
        plan = dphist.Plan(bins=120, range=(0, 120), epsilon=1.0)
        with pytest.raises(AttributeError):
            plan.epsilon = 2

    def test_a_preview_touches_no_data_and_is_stamped(self):
        preview = dphist.Plan(bins=20, range=(0, 1), epsilon=1).preview(records=5000)
        assert len(preview.releases) == 12 and all(release.simulated for release in preview.releases)
        assert "SIMULATED" in repr(preview)
        assert all(4500 < release.raw.sum() < 5500 for release in preview.releases)

    def test_a_plan_releases(self):
        plan = dphist.Plan(bins=12, range=(0, 120), epsilon=SURE)
        assert plan.release(AGES).raw.sum() == 10


class TestSimulate:
    def test_it_is_stamped_repeatable_and_free(self):
        x = np.arange(10)
        values = dphist.simulate(x, epsilon=1, method="identity", workload="points", trials=5, seed=3)
        assert values.shape == (5, 10)
        assert values.simulated
        assert values[0].simulated
        assert np.array_equal(values, dphist.simulate(x, epsilon=1, method="identity", trials=5, seed=3))
        assert not np.array_equal(values[0], values[1])
        assert not np.array_equal(values, dphist.simulate(x, epsilon=1, method="identity", trials=5, seed=4))
        default, auto = (dphist.simulate(x, epsilon=1, seed=3, **m) for m in ({}, {"method": "auto"}))
        assert np.array_equal(default, auto)

    def test_more_trials_keep_the_earlier_ones(self):
        x = np.arange(6)
        few, many = (dphist.simulate(x, epsilon=1, trials=t, seed=9) for t in (2, 7))
        assert np.array_equal(few, many[:2])

    @pytest.mark.parametrize("bad", [dict(trials=0), dict(trials=1.5), dict(seed=0.5), dict(seed=True)])
    def test_bad_arguments(self, bad):
        with pytest.raises(UsageError):
            dphist.simulate([1, 2], epsilon=1, **bad)
