"""The catalogue's facts, held against what the pipelines do, and the lists that are asked of it."""

import ast
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from benchmarks import partition as partition_benchmark
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.lab import compare
from dphist.lab.figures import styles
from dphist.methods.catalogue import (
    ALIASES,
    CATALOGUE,
    MANY_BINS,
    choose,
    find,
    make_pipeline,
    usual,
)
from dphist.planning import advise
from dphist.planning.plan import Plan
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

LINE, GRID = Domain((Integers(0, 63),)), Domain((Integers(0, 7),) * 2)
KINDS = {
    "group totals": "exact",
    "fine totals": "exact",
    "unknown": "none",
}  # others: normal


def own(method):
    """Return a domain that a method can serve, with ranges or rectangles to ask."""
    domain = LINE if 1 in method.dimensions else GRID
    return domain, make_workload("ranges" if domain is LINE else "rectangles:40", domain)


def serves(method, domain):
    queries = make_workload("points", domain)
    try:
        make_pipeline(method.name, domain).check(domain, queries)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("method", CATALOGUE.values(), ids=lambda m: m.name)
class TestFacts:
    def test_a_domain_is_served_if_the_catalogue_says_so(self, method):
        most = method.most_bins or 1 << 20
        lines = [Domain((Integers(0, n - 1),)) for n in (1, 64, most, most + 1)]
        planes = [GRID, Domain((Integers(0, 255), Integers(0, 255))), Domain((Integers(0, 511),) * 2)]
        for domain in lines + planes:
            assert serves(method, domain) == method.serves(domain), domain.shape
        assert {len(d.axes) for d in lines + planes if serves(method, d)} == set(method.dimensions)

    def test_the_error_depends_on_the_data_if_the_catalogue_says_so(self, method):
        domain, queries = own(method)
        pipeline, off = make_pipeline(method.name, domain), []
        for x in (np.arange(64) // 16 * 500, np.where(np.arange(64) % 7 == 0, 3, 0)):
            curator = Curator.simulated(Counts(x.reshape(domain.shape), domain), epsilon=Fraction(1), seed=4)
            off.append(pipeline.values(curator, queries)[1].values - x)
        assert method.data_dependent == (not np.allclose(*off, rtol=0, atol=1e-6))

    def test_intervals_rest_on_what_the_catalogue_says(self, method):
        domain, queries = own(method)
        pipeline = make_pipeline(method.name, domain).with_intervals()
        counts = Counts((np.arange(64) // 16 * 500).reshape(domain.shape), domain)
        release = pipeline.run(Curator.simulated(counts, epsilon=Fraction(1), seed=4), queries)
        error = release.error.to_dict()
        told = KINDS.get(error["base"]["kind"] if error["kind"] == "anchored" else error["kind"], "normal")
        assert ("calibrated" if pipeline.calibrate else told) == method.intervals
        assert np.isfinite(release.intervals()).all() == (method.intervals != "none")

    def test_it_has_its_words(self, method):
        assert method.summary.endswith(".") and len(method.summary) < 110
        assert any(c.isdigit() for c in method.citation), "a citation has a year"
        assert method.suits and set(method.usual) <= set(method.dimensions)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_method_under_another_name(alias):
    name = ALIASES[alias]
    assert alias not in CATALOGUE and find(alias) is CATALOGUE[name]
    made, known = make_pipeline(alias, LINE), make_pipeline(name, LINE)
    assert made.name == alias and replace(made, name=name) == known
    x = np.arange(64) // 16
    assert (dphist.simulate(x, epsilon=1, method=alias) == dphist.simulate(x, epsilon=1, method=name)).all()
    assert dphist.from_counts(x, epsilon=1, method=alias).method == alias
    assert Plan(bins=LINE, epsilon=1, method=alias).preview(records=100).releases[0].method == alias
    assert dphist.advise(16, records=100, epsilon=1, methods=[alias]).best.method == alias
    asked = compare.ask(like=["bins=16 records=100 steps"], samples=1, trials=2, methods=[alias])
    assert asked.subjects[0].methods == (alias,)
    assert styles([alias])[alias] == styles([name])[name]


def test_no_name_stands_for_two_methods():
    names = [name for m in CATALOGUE.values() for name in (m.name, *m.aliases)]
    assert len(names) == len(set(names)) and [m.name for m in CATALOGUE.values()] == list(CATALOGUE)
    with pytest.raises(UsageError, match="Did you mean 'stgahp'"):
        find("stghap")


@pytest.mark.parametrize("domain", [LINE, GRID], ids=["line", "grid"])
def test_advise_and_compare_consider_the_same_methods(domain, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    np.save(tmp_path / "x.npy", np.ones(domain.shape, int))
    for workload in ("points", "rectangles:9") if domain is GRID else ("points", "ranges", "random:9"):
        asked = compare.ask(files=[tmp_path / "x.npy"], trials=2, workload=workload).subjects[0].methods
        queries = make_workload(workload, domain)
        assert list(asked) == list(advise.suitable(None, domain, queries)) == list(usual(domain, queries))
        for name in asked:  # and none of them fails
            make_pipeline(name, domain, queries).check(domain, queries)
    assert {"identity", "dawa2", "hb", "privelet"} <= set(asked)
    assert ("quadtree" in asked) == (domain is GRID)


def test_very_many_bins_are_left_to_methods_of_near_linear_cost():
    many, some = (Domain((Integers(0, n - 1),)) for n in (MANY_BINS + 1, MANY_BINS))
    few, all_usual = (usual(domain, make_workload("points", domain)) for domain in (many, some))
    assert set(few) < set(all_usual) and "wf-auto" in set(all_usual) - set(few)
    assert {CATALOGUE[name].cost for name in few} == {"near-linear"}


def test_a_query_takes_every_condition_and_keeps_the_order():
    trees = choose(lambda m: m.family == "tree", lambda m: m.cost == "near-linear")
    assert trees == tuple(
        m.name for m in CATALOGUE.values() if m.family == "tree" and m.cost == "near-linear"
    )
    assert "greedyh" in trees and "greedyh-tuned" not in trees
    assert choose() == tuple(CATALOGUE)


ROOT = Path(__file__).parents[2]


def lists_of_methods(text):
    """Return the lines on which a module or a class keeps three or more methods by hand."""
    found = []
    for node in ast.walk(ast.parse(text)):
        for line in getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef) else []:
            value = getattr(line, "value", None) if isinstance(line, ast.Assign | ast.AnnAssign) else None
            names = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)] if value else []
            if len({str(n) for n in names} & {*CATALOGUE, *ALIASES}) >= 3:
                found.append(line.lineno)
    return found


def test_lists_of_methods_are_asked_of_the_catalogue():
    files = [f for top in ("src", "benchmarks") for f in sorted((ROOT / top).rglob("*.py"))]
    kept = {f.name: lines for f in files if (lines := lists_of_methods(f.read_text()))}
    assert set(kept) == {"catalogue.py"}
    for planted in ('SLOW = ("s1", "mwem", "php")', "class A:\n    best: list = ['h', 'hb', 'hay']"):
        assert lists_of_methods(planted)


def test_the_benchmarks_of_partitions_ask_for_exact_searches():
    assert {"sdahp", "sdwf", "ahp-optimal"} <= set(partition_benchmark.SORTED)
    assert {"s2", "sdwf", "sdahp"} <= set(partition_benchmark.CHOSEN)
    assert set(partition_benchmark.OFFERED) == {"s2", "sdwf"}
    assert not {"noisefirst", "s2-auto", "sa"} & {*partition_benchmark.SORTED, *partition_benchmark.CHOSEN}
