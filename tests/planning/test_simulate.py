"""One loop simulates everything: the same seed is the same trial, whoever asks."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.methods.catalogue import make_pipeline
from dphist.planning import simulated_errors
from dphist.planning.audit_method import published
from dphist.planning.plan import Plan
from dphist.planning.preview import Pattern, preview
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts

ROOT = Path(__file__).parents[2]
LINE = Domain((Integers(0, 63),))
X = np.arange(64) // 16 * 30
ONE = Fraction(1)


def made(method, seeds, spec="ranges"):
    queries = make_workload(spec, LINE)
    pipeline = make_pipeline(method, LINE, queries)
    return list(trials(pipeline, Counts(X, LINE), queries, epsilon=ONE, seeds=seeds))


@pytest.mark.parametrize("method", ["identity", "dawa2", "wf-auto"])
def test_the_same_seed_is_the_same_trial_for_all_who_ask(method):
    first, second = made(method, [0, 1])
    assert not np.array_equal(first.values, second.values)
    plan = Plan(bins=LINE, epsilon=1, method=method, workload="ranges", calibrate=0)
    assert np.array_equal(
        dphist.simulate(X, epsilon=1, method=method, workload="ranges", trials=2),
        [first.values, second.values],
    )
    shown = preview(plan.pipeline, plan.queries, Counts(X, LINE), epsilon=ONE, post="none", like="X")
    assert np.array_equal(shown.values[:2], [first.values, second.values])
    assert np.array_equal(published(plan)(X, 1), [second.values, second.groups.labels()])
    study = simulated_errors.SimulatedErrors(
        LINE, plan.queries, 10**4, 1, {method: plan.pipeline}, (Pattern("smooth"),), False
    )
    held = study._counts(1)
    (asked,) = trials(plan.pipeline, held, plan.queries, epsilon=ONE, seeds=[1])
    off = plan.queries.mean_absolute_error(asked.values - held.values)
    assert study.errors(method, ONE, 2)[1] == off


def test_a_trial_is_the_release_that_a_run_would_publish():
    (trial,) = made("dawa2", [7])
    release = trial.release(post="none", provenance={"source": "test"})
    assert release.simulated and release.method == "dawa2" and release.provenance["source"] == "test"
    assert np.array_equal(release.raw, trial.values) and release.groups == trial.groups
    assert sum(c.share for c in release.charges) == 1


def simulating(path):
    """Return the functions of a file that make a simulated curator."""
    functions = (f for f in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(f, ast.FunctionDef))
    return {
        f.name
        for f in functions
        for call in ast.walk(f)
        if isinstance(call, ast.Attribute) and call.attr == "simulated" and isinstance(call.value, ast.Name)
        if call.value.id in ("Curator", "_Watched")
    }


def test_no_other_loop_simulates_a_pipeline():
    folders = [ROOT / "src" / "dphist", ROOT / "benchmarks", ROOT / "papers"]
    found = {p.name: names for f in folders for p in f.rglob("*.py") if (names := simulating(p))}
    assert found == {
        "simulate.py": {"_curators"},
        "rehearsal.py": {
            "_run",
            "_trees_over_groups",
            "_trees_of_many_bins",
        },  # before a charge, below this layer
        "audit_method.py": {"calls", "replayed", "run"},  # single verbs, watched and repeated
        "trees.py": {"_curator"},  # single steps
        "intervals.py": {"cells"},  # releases with their intervals
        "scale.py": {"release", "listing", "drawn"},  # very many bins, which no loop of these holds
    }
