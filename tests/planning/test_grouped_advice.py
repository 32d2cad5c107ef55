"""Advice by group: the error of every level, and the epsilon for one of them."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

import dphist
from dphist.errors import UsageError
from dphist.planning import level_errors
from dphist.planning.grouped import GroupedPlan

GROUPS = {f"R{i}": [f"H{i}-{j}" for j in range(8)] for i in range(5)}
TREE = {"by": ("nation", "region", "hospital"), "groups": GROUPS}
FEW = ["identity", "hats", "dawa2", "efpa"]


def ask(**more):
    return dphist.advise(
        48, **{"records": 40_000, "workload": "ranges", "methods": FEW, "epsilon": 1} | TREE | more
    )


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def advice():
    return ask(sums=[["H1-1", "R2"]])


def test_every_level_has_its_error_and_they_are_those_of_the_preview(advice):
    assert {row.method for row in advice.rows} == set(FEW)
    row = next(row for row in advice.rows if row.method == "hats")
    plan = GroupedPlan(bins=dphist.Integers(0, 47), epsilon=1, method="hats", workload="ranges", **TREE)
    preview = plan.preview(records=40_000, sums=[["H1-1", "R2"]])
    assert [level.error for level in row.levels] == pytest.approx([level.error for level in preview.levels])
    assert row.sums[0].error == pytest.approx(preview.sums[0].error)
    assert advice.header() == ("method", "epsilon", "nation", "region", "hospital", "H1-1 + R2")


def test_methods_are_ranked_by_what_counts(advice):
    weights = dict(advice.importances)
    assert weights == {"nation": 0.1, "region": 0.1, "hospital": 1.0}
    for row in advice.rows:
        squares = sum(weights[level.name] * level.error**2 for level in row.levels)
        assert row.error == pytest.approx(math.sqrt(squares / 1.2))
    assert [row.error for row in advice.rows] == sorted(row.error for row in advice.rows)
    top = ask(at="nation")
    assert top.at == "nation" and all(row.error == row.levels[0].error for row in top.rows)


def test_only_a_method_with_intervals_is_recommended(advice):
    rows = {row.method: row for row in advice.rows}
    assert not rows["efpa"].intervals and rows["dawa2"].intervals and rows["hats"].intervals
    assert advice.best.method != "efpa"


def test_simulated_figures_are_told_from_known_ones(advice):
    rows = {row.method: row for row in advice.rows}
    assert all(level.exact for level in rows["hats"].levels)
    assert [level.exact for level in rows["dawa2"].levels] == [True, True, False]
    plan = GroupedPlan(bins=48, range=(0, 48), epsilon=1, method="dawa2", workload="ranges", **TREE)
    assert [level.share for level in rows["dawa2"].levels] == list(plan.shares)
    assert [level.share for level in rows["hats"].levels] != list(plan.shares)
    dawa2 = next(cells for cells in advice.cells() if cells[0] == "dawa2")
    assert dawa2[4].startswith("~") and not dawa2[2].startswith("~")


@pytest.mark.parametrize("at", [None, "region", "nation"])
def test_the_epsilon_for_an_error_reaches_it_and_little_less_does_not(at):
    found = ask(epsilon=None, error=30, at=at, methods=["hats", "identity", "dawa2"])
    level = ("nation", "region", "hospital").index(at or "hospital")
    assert [row.epsilon for row in found.rows] == sorted(row.epsilon for row in found.rows)
    for row in found.rows:
        assert 30 / 1.05 < row.levels[level].error <= 30
    again = ask(epsilon=found.best.epsilon, methods=[found.best.method])
    assert again.best.levels[level].error == pytest.approx(found.best.levels[level].error)


def test_an_error_in_percent_is_of_a_mean_answer_on_that_level():
    # A range of 48 bins covers 50/3 of them on average: of 40,000 records in 5 regions, about 2,778.
    found = ask(epsilon=None, error="1%", at="region", methods=["hats"])
    assert found.target == pytest.approx(40_000 / 5 * (50 / 3) / 48 / 100)


def test_the_words_and_the_file_tell_all(advice, tmp_path):
    text = str(advice)
    assert "on level hospital" in text and "root mean square" in text and "40 hospital" in text
    described = json.loads(json.dumps(advice.to_dict()))
    assert described["best"] == advice.best.method and len(described["rows"][0]["levels"]) == 3
    assert described["groups"] == {"nation": 1, "region": 5, "hospital": 40}
    advice.plot(tmp_path / "a.svg")
    assert ">region<" in (tmp_path / "a.svg").read_text("utf-8")
    assert "<table>" in advice._repr_html_() and "GroupedAdvice(" in repr(advice)
    assert {len(curve) for curve in advice.curves.values()} == {5}


def test_the_best_methods_have_curves_and_a_level_in_question_draws_them(advice, tmp_path):
    for row in advice.rows:
        assert [epsilon for epsilon, _ in row.curve] == [0.1, 0.3, 1, 3, 10]
        assert dict(row.curve)[1] == row.error
    hats = next(row for row in advice.rows if row.method == "hats")
    dear = ask(methods=["hats"], epsilon=3).best
    assert dict(hats.curve)[3] == pytest.approx(dear.error)
    assert json.loads(json.dumps(hats.to_dict()))["curve"] == [list(point) for point in hats.curve]
    drawn = ask(methods=["identity", "hats"], at="region").plot().to_svg()
    assert "on level region" in drawn and ">hats<" in drawn and ">identity<" in drawn


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dphist" / "advice"


def simulate(*, keep=True, method="uniform", **more):
    asked = {"by": "ward", "records": 100, "like": "smooth"} | more
    studied = {name: asked.pop(name) for name in ("records", "like", "sums") if name in asked}
    plan = GroupedPlan(groups=["A", "B"], bins=4, range=(0, 4), epsilon=1, method=method, **asked)
    study = plan.errors(**studied).waiting(lambda: None, keep=keep)
    found = study.of(plan.pipeline, plan.budget, cells=8, enough=4)
    if study.kept is not None:
        study.kept.save()
    return found


def test_what_was_simulated_is_found_again(cache, monkeypatch):
    others = ({"by": "city"}, {"records": 101}, {"like": "early"}, {"unit": "u", "max_contributions": 2})
    first = [simulate(**more) for more in ({}, *others)]
    assert len(list(cache.iterdir())) == len(first) == len({rows[-1].error for rows in first}) + 1
    monkeypatch.setattr(level_errors, "trials_by_group", lambda *a, **k: pytest.fail("it ran"))
    assert [simulate(**more) for more in ({}, *others)] == first
    with pytest.raises(pytest.fail.Exception):
        simulate(method="ahp")


def test_advice_is_found_again(cache, monkeypatch):
    few = {"by": "ward", "groups": ["A", "B"], "records": 100, "epsilon": 1, "methods": ["uniform"]}
    first = dphist.advise(4, **few)
    monkeypatch.setattr(level_errors, "trials_by_group", lambda *a, **k: pytest.fail("it ran"))
    assert dphist.advise(4, **few) == first


@pytest.mark.filterwarnings("ignore:these counts must be public")
def test_what_a_caller_made_is_not_kept(cache):
    simulate(keep=False)
    simulate(like=[5, 6, 7, 8])
    simulate(like=[[5, 6, 7, 8], [1, 1, 1, 1]])
    simulate(sums=[["A", "B"]])
    assert not cache.exists()
    own = dphist.Pipeline(name="identity", partition=dphist.steps.partition.Whole())
    dphist.advise(4, by="ward", groups=["A", "B"], records=100, epsilon=1, methods=[own])
    assert not cache.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"errors": 3}', '{"errors": {"x": {"ward": [-1, 2]}}}'])
def test_a_broken_file_is_ignored_and_mended(cache, text):
    first = simulate()
    (file,) = cache.iterdir()
    good = file.read_text("utf-8")
    file.write_text(text)
    assert simulate() == first and file.read_text("utf-8") == good


def test_progress_names_each_method(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = []
    ask(methods=["identity", "hats"], progress=said.append)
    assert "identity at epsilon 1" in said and "hats at epsilon 1" in said
    said.clear()
    plain = {"records": 100, "epsilon": "0.7", "methods": ["identity"], "like": "early"}
    dphist.advise(8, **plain, progress=said.append)
    assert "identity at epsilon 0.7" in said
    said.clear()
    dphist.advise(8, **plain, progress=said.append)
    assert not said  # the second time it is known


@pytest.mark.long
def test_the_usual_methods_without_the_slow_ones_and_each_once():
    found = dphist.advise(16, records=1000, epsilon=1, by="ward", groups=["A", "B"], like="early")
    names = [row.method for row in found.rows]
    assert "wf-auto" not in names and "identity" in names and len(names) > 5
    assert len({tuple(level.error for level in row.levels) for row in found.rows}) == len(names)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"groups": None}, "by= needs groups="),
        ({"at": "city"}, "no level"),
        ({"epsilon": None}, "either epsilon"),
        ({"error": 5}, "either epsilon"),
        ({"epsilon": "0"}, "epsilon"),
        ({"records": 0}, "records"),
        ({"importances": {"nation": 0, "region": 0, "hospital": 0}}, "importance"),
        ({"by": None}, "go with by="),
        ({"epsilon": None, "error": 1e-300}, "no epsilon up to"),
        ({"epsilon": None, "error": 1e300}, "hardly any epsilon"),
        ({"methods": ["quadtree"]}, "grid"),
    ],
)
def test_what_is_wrong_is_said(wrong, words):
    with pytest.raises(UsageError, match=words):
        ask(**{"methods": ["identity"]} | wrong)


def test_one_person_with_many_records():
    one, five = (ask(methods=["hats"], max_contributions=k) for k in (1, 5))
    assert five.best.levels[2].error == pytest.approx(5 * one.best.levels[2].error, rel=0.02)
    assert "at most 5 per unit" in five.words() and Fraction(1) == five.best.epsilon
