"""Intervals that hold for most bins are not said to hold for each."""

import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.charts import heatmap
from dphist.charts.columns import block_words
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release import words
from dphist.release.grouped import GroupedRelease
from dphist.release.show import subtitle
from dphist.reports import sheet


def released(method, workload):
    counts = np.repeat([40, 2, 300, 0], 100)
    domain = Domain((Integers(0, 399),))
    curator = Curator.simulated(Counts(counts, domain), epsilon=Fraction("0.1"), seed=1)
    queries = make_workload(workload, domain)
    return make_pipeline(method, domain, queries).with_intervals().run(curator, queries)


@pytest.fixture(scope="module")
def merged():
    found = released("dawa3", "ranges")
    assert found.groups.k < 400
    return found


@pytest.fixture(scope="module")
def alone():
    return released("average", "points")


def test_a_release_knows_for_whom_its_intervals_hold(merged, alone):
    assert merged.holds_for_most and not alone.holds_for_most


def test_pictures_say_it(merged, alone):
    assert "intervals: for about 95 % of all bins" in subtitle(merged, 0.95)
    assert "intervals: for about 80 % of all bins" in subtitle(merged, 0.8)
    assert "intervals: 95 % for all bins at once" in subtitle(merged, 0.95, joint=True)
    assert "intervals: 90 % for each bin on its own" in subtitle(alone, 0.9)


def test_limits_say_it(merged, alone):
    names = [[name for name, _ in words.limits(each)] for each in (merged, alone)]
    assert "Intervals hold for most bins" in names[0] and "Each interval holds by itself" not in names[0]
    assert "Each interval holds by itself" in names[1]
    at_once = [name for name, _ in words.limits(merged, joint=True)]
    assert "All intervals hold at once" in at_once and "Intervals hold for most bins" not in at_once


def test_reports_say_it(merged, alone):
    of_most, of_each = (sheet._reading(each, 0.95) for each in (merged, alone))
    assert "about 95 % of all bins, not for each" in of_most and "holds on its own" not in of_most
    assert "Each interval holds on its own, in about 95 of 100 releases" in of_each


def test_answers_say_it_in_the_shell(merged, alone, tmp_path):
    for found, said in ((merged, True), (alone, False)):
        path = found.save(tmp_path / f"{found.method}.json")
        command = [sys.executable, "-m", "dphist", "query", str(path), "10", "60", "--level", "0.9"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert ("hold for about 90 % of all bins and ranges, not for each" in done.stderr) == said
        for more in (["10", "60", "--csv"], [], ["10", "60", "--joint"]):
            done = subprocess.run([*command[:5], *more], check=True, capture_output=True, text=True)
            assert ("hold for about 95 %" in done.stderr) == (said and "--joint" not in more)


def test_publishing_says_it_and_that_nothing_was_found(tmp_path):
    records = tmp_path / "visits.csv"
    command = [sys.executable, "-m", "dphist", "publish", str(records), "--column", "age", "--epsilon", "1"]
    command += ["--integers", "0", "99", "--ledger", str(tmp_path / "new.db")]
    dphist.Ledger.open(tmp_path / "new.db", create=True)
    for method, rows, said, nothing in (
        ("dawa2", 400, True, False),
        ("identity", 400, False, False),
        ("identity", 0, False, True),
    ):
        records.write_text("age\n" + "7\n" * rows + "x\n")
        done = subprocess.run(
            [*command, "--method", method], check=True, capture_output=True, text=True, cwd=tmp_path
        )
        assert ("hold for about 95 % of all bins and ranges, not for each" in done.stderr) == said
        assert "picked after looking" not in done.stderr, "calibrated ranges have no joint interval"
        assert ("can be told from 0; should there be records" in done.stderr) == nothing


@pytest.mark.parametrize(("method", "most"), [("dawa2", True), ("identity", False)])
def test_releases_of_groups_know_it_too(method, most):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 40, 3000), "ward": rng.choice(["a", "b"], 3000)})
    found = dphist.histogram(
        frame, column="age", bins=Integers(0, 39), by="ward", groups=["a", "b"], epsilon="0.5", method=method
    )
    assert found.holds_for_most == words.holds_for_most(found) == most
    assert ("about 95 % of all bins" in subtitle(found, 0.95)) == most


def test_some_groups_are_enough():
    class Known:
        is_calibrated = False

    class Measured:
        is_calibrated = True

    level = SimpleNamespace(errors=[Known()]), SimpleNamespace(errors=[Known(), Measured()])
    assert GroupedRelease.holds_for_most.fget(SimpleNamespace(levels=level))
    assert not GroupedRelease.holds_for_most.fget(SimpleNamespace(levels=level[:1]))


def test_listed_bins_speak_for_themselves():
    found = dphist.histogram([1, 2, 2, 900], bins=Integers(0, 1 << 40), epsilon=1, method="listed")
    assert not words.holds_for_most(found)


def test_captions_of_reports_say_it(merged, alone):
    of_most, of_each = (sheet._caption(each, 0.95, "") for each in (merged, alone))
    assert "meant to hold for about 95 % of all bins" in of_most and "on its own" not in of_most
    assert "of each bin on its own" in of_each


def test_bins_measured_together_wherever_they_lie_are_called_so():
    groups = Groups(np.array([0, 2, 4]), np.array([0, 2, 1, 3]))
    assert "bins of like counts" in block_words(groups, 4, 4)


def test_cells_that_may_be_zero_are_left_blank():
    """An interval from 0 to 0 about a value of 0 is known well, and is zero."""
    values, low, high = (
        np.array(x, dtype=float) for x in ([0, 41, 100, 100], [0, 0, 90, 50], [0, 63, 110, 150])
    )
    assert heatmap._known(values, low, high).tolist() == [0, 0, 2, 1]
    assert heatmap._known(values, np.full(4, np.nan), high).tolist() == [2, 2, 2, 2]
