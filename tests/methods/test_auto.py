"""The method that chooses by the workload: which it takes, and what a release says of it."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dphist
from benchmarks import core
from dphist.domain import Categories, Domain, Integers, workload
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.planning import advise
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

LINE, GRID = Domain((Integers(0, 255),)), Domain((Integers(0, 15),) * 2)
LONG = Domain((Integers(0, 511),))
CHOICES = [
    (LINE, "points", "average"),
    (LONG, "points", "average2"),
    (LINE, "ranges", "dawa3"),
    (LINE, "prefixes", "dawa3"),
    (GRID, "points", "average"),
    (GRID, "rectangles:40", "dawa3"),
]


def run(x, *, spec="points", seed=0, method="auto"):
    x = np.asarray(x)
    domain = Domain(tuple(Integers(0, n - 1) for n in x.shape))
    queries = workload.make_workload(spec, domain)
    pipeline = make_pipeline(method, domain, queries).with_intervals()
    pipeline.check(domain, queries)
    return pipeline.run(Curator.simulated(Counts(x, domain), epsilon=Fraction(1), seed=seed), queries)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("points", "points"),
        ("ranges", "ranges"),
        ("random:500", "ranges"),
        ("prefixes", "prefixes"),
        ("big", "ranges"),
        ("small", "points"),
        ([(5, 37)], "points"),
        ([(5, 38)], "ranges"),
        ([(0, 1), (7, 9)], "points"),
        ([(0, 90), (0, 250), (3, 100)], "prefixes"),
        ([(90, 256), (20, 256)], "prefixes"),
        ([(5, 90)], "ranges"),
    ],
    ids=str,
)
def test_the_kind_of_a_workload_is_read_off_its_queries(spec, kind):
    assert workload.kind_of(workload.make_workload(spec, 256)) == kind


def test_the_kind_of_rectangles():
    assert workload.kind_of(workload.make_workload("rectangles:50", (20, 20))) == "ranges"
    assert workload.kind_of(workload.make_workload("points", (20, 20))) == "points"


class TestChoosing:
    @pytest.mark.parametrize(("domain", "spec", "choice"), CHOICES)
    def test_it_is_the_method_for_the_workload_under_its_own_name(self, domain, spec, choice):
        queries = workload.make_workload(spec, domain)
        assert workload.kind_of(queries) in CATALOGUE[choice].suits
        chosen = make_pipeline(choice, domain)
        assert make_pipeline("auto", domain, queries) == replace(chosen, name="auto", choice=choice)

    @pytest.mark.parametrize(("domain", "spec", "choice"), CHOICES)
    def test_its_values_and_charges_are_those_of_the_choice(self, domain, spec, choice):
        x = np.arange(domain.n).reshape(domain.shape) // 64 * 40
        ours, theirs = (run(x, spec=spec, seed=5, method=method) for method in ("auto", choice))
        assert np.array_equal(ours.raw, theirs.raw) and ours.charges == theirs.charges
        assert ours.error.to_dict() == theirs.error.to_dict()

    def test_the_release_says_what_was_chosen_and_which_steps_ran(self):
        release = run(np.arange(256) // 64 * 40, spec="ranges")
        written = json.loads(release.to_json())
        chosen = run(np.arange(256) // 64 * 40, spec="ranges", method="dawa3")
        assert (written["method"], written["parameters"]["found"]) == ("auto", {"choice": "dawa3"})
        steps = {k: v for k, v in written["parameters"].items() if k != "found"}
        assert steps == json.loads(chosen.to_json())["parameters"]
        assert sum(c.share for c in release.charges) == 1

    def test_every_way_to_ask_takes_the_workload_into_account(self):
        x = np.arange(256) // 64 * 40
        for spec, choice in (("points", "average"), ("ranges", "dawa3")):
            plan = dphist.Plan(bins=LINE, epsilon=1, method="auto", workload=spec)
            assert plan.pipeline.choice == choice
            made, same = (
                dphist.simulate(x, epsilon=1, method=m, workload=spec, seed=3) for m in ("auto", choice)
            )
            assert np.array_equal(made, same)
            preview = plan.preview(records=1000)
            assert preview.releases[0].parameters["found"] == {"choice": choice}
            (advised,) = advise.suitable(["auto"], LINE, plan.queries).values()
            assert advised == plan.pipeline


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 100])
@pytest.mark.parametrize("spec", ["points", "prefixes", "ranges"])
def test_any_number_of_bins_and_any_workload(n, spec):
    release = run(np.arange(n), spec=spec)
    assert np.isfinite(release.raw).all()
    assert sum(c.share for c in release.charges) == 1


def test_categories_and_grids():
    labels = tuple("abcdefg")
    release = dphist.from_counts(np.arange(7), epsilon=1, method="auto", bins=Domain((Categories(labels),)))
    assert release.method == "auto"
    for spec in ("points", "rectangles:20"):
        release = run(np.arange(48).reshape(6, 8), spec=spec)
        assert np.isfinite(release.raw).all()
        assert sum(c.share for c in release.charges) == 1


def test_a_report_is_kept_as_a_table(tmp_path, capsys):
    rows = [
        core._row("first", "within", 1, 2, 1.05, "times", at_most=2),
        core._row("second", "without", 1, 2, 3.0, "times", at_most=2),
    ]
    assert core._report(rows, table=tmp_path / "deep" / "t.md", about="# About") == 1
    text = (tmp_path / "deep" / "t.md").read_text("utf-8")
    assert text.startswith("# About\n")
    assert "| first: within | 2 | 1.05 | times | 2 |" in text and "| **3** |" in text
    assert len(capsys.readouterr().out.splitlines()) == 2
