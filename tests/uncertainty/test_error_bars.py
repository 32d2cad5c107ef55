"""Error bars by default: what publishing pays for them, what it says of that, and what stays as published."""

import dataclasses
import json
from contextlib import suppress
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import dphist
from dphist import cli
from dphist.cli.shown import show_release
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.pipeline import INTERVALS
from dphist.planning import shapes
from dphist.planning.advise import advise
from dphist.planning.plan import Plan
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps.partition import Singletons
from dphist.uncertainty.calibrated import Calibrated
from samples import of_each_kind

STEPS = np.repeat([5, 500, 20, 900], 16)
LINE, GRID = Domain((Integers(0, 63),)), Domain((Integers(0, 7), Integers(0, 7)))
NAMES = list(CATALOGUE)
# Methods whose errors nobody can measure yet: they say that they are not known.
UNKNOWN = {"efpa", "mwem"}
# The error that each estimator states, when it is not calibrated.
KINDS = {
    "estimate.GroupMeans": {"group totals"},
    "estimate.RoughMeans": {"group totals"},
    "estimate.WeightedMeans": {"group totals"},
    "estimate.LeastSquares": {"group totals"},
    "estimate.Tree": {"tree totals"},
    "estimate.WorkloadTree": {"tree totals"},
    "estimate.Hats": {"hat totals"},
    "estimate.Averaged": {"group totals"},
    "estimate.AveragedTree": {"hat totals", "tree totals"},
    "estimate.FineMeans": {"fine totals"},
    "estimate.Privelet": {"wavelet totals"},
    "estimate.Efpa": {"unknown"},
    "estimate.Mwem": {"unknown"},
    "estimate.AdaptiveGrid": {"unknown"},
    "estimate.QuadTree": {"tree totals", "unknown"},
    "estimate.HybridTree": {"tree totals", "unknown"},
}


def simulated(plan, counts, seed=1):
    """Return the release of a plan on public counts, with noise that can be repeated."""
    curator = Curator.simulated(Counts(counts, plan.domain), epsilon=plan.budget, seed=seed)
    return plan.pipeline.run(curator, plan.queries)


def command(words):
    """Run a command line."""
    with patch("sys.argv", ["dphist", *words.split()]), suppress(SystemExit):
        cli.main()


def calibrating(release):
    """Return the share that was spent on measuring errors, which is done last."""
    last = takewhile(lambda c: c.purpose.startswith("distances"), reversed(release.charges))
    return sum((c.share for c in last), Fraction(0))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    return tmp_path


def test_who_follows_advice_gets_an_interval_in_every_row(here, capsys):
    compared = ["identity", "noisefirst", "dawa2", "sdwf-auto", "wf-auto"]
    advice = advise(64, records=5000, epsilon="0.1", like="early", methods=compared)
    assert advice.best.method == "wf-auto"
    plan = Plan(bins=64, range=(0, 64), epsilon=advice.best.epsilon, method=advice.best.method)
    release = simulated(plan, shapes.draw("early", n=64, records=5000, seed=0))
    show_release(release)
    assert "not known" not in capsys.readouterr().out
    assert np.isfinite(release.intervals()).all() and np.isfinite(release.intervals(joint=True)).all()
    assert release.sum(3, 40).low is not None


@pytest.mark.parametrize("method", NAMES)
def test_a_method_that_groups_bins_pays_for_its_error_bars_and_no_other_does(method):
    for domain in (LINE, GRID):
        try:
            plan = Plan(bins=domain, epsilon=1, method=method)
        except UsageError:
            continue
        published = make_pipeline(method, domain)
        groups = not isinstance(published.partition, Singletons)
        if not groups or published.initialize.measures_bins:  # which gives every bin an interval
            assert plan.pipeline == published
        else:
            assert plan.pipeline == dataclasses.replace(published, calibrate=INTERVALS)
        assert Plan(bins=domain, epsilon=1, method=method, calibrate=0).pipeline == published


def test_every_way_to_publish_pays_and_none_pays_that_is_told_not_to(here):
    data = np.repeat(np.arange(64), STEPS)
    Path("x.csv").write_text("x\n" + "\n".join(map(str, data)) + "\n", "utf-8")
    run = "publish x.csv --column x --bins 64 --range 0 64 --epsilon 1 --method sa --out r.json --overwrite"

    def ways(**calibrate):
        yield dphist.from_counts(STEPS, epsilon=1, method="sa", **calibrate)
        yield dphist.histogram(data, 64, (0, 64), epsilon=1, method="sa", **calibrate)
        yield dphist.histogram2d(
            data % 8, data // 8, 8, ((0, 8), (0, 8)), epsilon=1, method="uniform", **calibrate
        )
        command(run + "".join(f" --{name} {value}" for name, value in calibrate.items()))
        yield dphist.load("r.json")

    for release in ways():
        assert isinstance(release.error, Calibrated) and calibrating(release) == INTERVALS
        assert release.parameters["shares"]["calibrate"] == "1/20"
        assert sum(c.share for c in release.charges) == 1
    for release in ways(calibrate=0):
        assert not isinstance(release.error, Calibrated) and calibrating(release) == 0
        assert "calibrate" not in release.parameters["shares"]


def test_a_plan_says_before_it_spends_what_error_bars_will_take(here, capsys):
    Path("x.csv").write_text("x\n1\n", "utf-8")
    run = "publish x.csv --column x --bins 64 --range 0 64 --epsilon 1 --dry-run --json --method "
    command(run + "dawa")
    assert json.loads(capsys.readouterr().out)["calibrate"] == "0.05 of epsilon"
    for silent in ("identity", "wf-auto", "dawa --calibrate 0"):
        command(run + silent)
        assert "calibrate" not in json.loads(capsys.readouterr().out)


def test_a_pipeline_of_ones_own_keeps_the_part_it_has():
    mine = dataclasses.replace(make_pipeline("sa", LINE), calibrate="0.2", name="mine")
    assert Plan(bins=LINE, epsilon=1, method=mine).pipeline == mine
    bare = dataclasses.replace(mine, calibrate=0)
    assert Plan(bins=LINE, epsilon=1, method=bare).pipeline.calibrate == INTERVALS


def test_simulate_and_compare_run_methods_as_published():
    published = make_pipeline("dawa", LINE)
    assert published.calibrate == 0
    held = Counts(STEPS, LINE)
    curator = Curator.simulated(held, epsilon=Fraction(1), seed=7 << 32)
    expected = published.values(curator, make_workload("points", LINE))[1].values
    assert np.array_equal(dphist.simulate(STEPS, epsilon=1, method="dawa", seed=7)[0], expected)
    # compare and the papers' reruns build their pipelines by name, without a plan.
    assert all(make_pipeline(name, LINE).calibrate == 0 for name in NAMES)


def test_advice_and_preview_price_error_bars_in(here):
    plain, paid = (
        advise(LINE, records=20_000, epsilon="0.1", like="smooth", methods=[m]).best.error
        for m in (
            dataclasses.replace(make_pipeline("dawa", LINE), name="bare", calibrate="1/1000"),
            "dawa",
        )
    )
    assert 1.02 < paid / plain < 1.10  # the same noise, five percent wider
    preview = Plan(bins=LINE, epsilon="0.1", method="dawa").preview(records=20_000)
    assert all(calibrating(r) == INTERVALS or r.groups.are_singletons for r in preview.releases)
    assert any(isinstance(r.error, Calibrated) for r in preview.releases)


def test_advice_says_which_method_will_not_know_its_error(here):
    for method in ("noisefirst", "efpa", "identity", "wf-auto", "hb"):
        asked = advise(16, records=1000, epsilon=1, like="smooth", methods=[method])
        assert ("has no intervals" in asked.words()) == (method == "efpa")


def test_what_is_not_needed_is_given_back_and_said_so():
    # Nobody is alike, and noise is small: every bin stays alone, and the estimate gets the part.
    counts = 10_000 * np.arange(64) ** 2
    for method in ("sa", "dawa2"):
        plan = Plan(bins=LINE, epsilon=1, method=method, workload="ranges")
        release = simulated(plan, counts)
        assert release.groups.are_singletons and plan.pipeline.calibrate == INTERVALS
        assert sum(c.share for c in release.charges) == 1
        assert release.parameters["shares"]["calibrate"] == "0"
        assert np.isfinite(release.intervals()).all()


@pytest.mark.parametrize("method", sorted(UNKNOWN))
def test_what_cannot_be_measured_is_honestly_not_known(method, capsys):
    release = dphist.from_counts(STEPS, epsilon=1, method=method)
    assert np.isnan(release.intervals()).all() and "calibrate" not in release.parameters["shares"]
    show_release(release)
    out = capsys.readouterr().out
    assert "not known" in out and release.error.description.removeprefix("no interval: ")[:40] in " ".join(
        out.split()
    )


@pytest.mark.parametrize("method", of_each_kind(NAMES))
@pytest.mark.parametrize("workload", ["points", "ranges", "prefixes", "rectangles", [(3, 40), (0, 9)]])
def test_provenance_names_what_ran(method, workload):
    domain = GRID if workload == "rectangles" else LINE
    try:
        plan = Plan(bins=domain, epsilon="0.1", method=method, workload=workload)
    except UsageError:
        pytest.skip("not for this domain")
    for counts in (STEPS, 10_000 * np.arange(64) ** 2):
        parameters = (release := simulated(plan, counts.reshape(domain.shape))).to_dict()["parameters"]
        error = release.error.to_dict()
        base = error
        while base["kind"] in ("calibrated", "anchored"):
            base = base["base"]
        kind = base["kind"]
        first = parameters["initialize"]["step"] != "initialize.Nothing"
        averaged = parameters["estimate"]["step"] in ("estimate.Averaged", "estimate.AveragedTree")
        assert (error["kind"] == "anchored") == (first or averaged)
        assert kind in ({"group totals"} if first else KINDS[parameters["estimate"]["step"]])
        assert release.groups.are_singletons or parameters["partition"]["step"] != "partition.Singletons"
        assert ("calibrate" in parameters["shares"] and parameters["shares"]["calibrate"] != "0") == bool(
            calibrating(release)
        )


def test_a_tree_is_not_called_hats():
    release = dphist.from_counts(STEPS, epsilon="0.1", method="dawa2", workload="ranges")
    named = release.parameters["estimate"]["step"]
    hats = release.error.to_dict()["kind"] == "hat totals"  # where no two bins share a value, which is rare
    assert named == ("estimate.Hats" if hats else "estimate.WorkloadTree")
    tree = simulated(Plan(bins=LINE, epsilon="0.1", method="hats", workload="points"), STEPS)
    assert tree.to_dict()["parameters"]["estimate"] == {
        "step": "estimate.WorkloadTree",
        "weights": "tuned",
        "queries": "workload",
        "branching": 2,
        "chosen_by": "estimate.Hats",
    }
