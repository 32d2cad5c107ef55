"""The benchmark of accuracy: what it judges on, how it counts, and that a miss is a miss."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dphist
from benchmarks import accuracy, held_out
from benchmarks.accuracy import Case, Figure, Held
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import make_pipeline
from dphist.steps.partition import Splits


@pytest.mark.parametrize("name", held_out.LINES)
@pytest.mark.parametrize("n", [1, 2, 16, 1000])
def test_held_out_lines_are_drawn_at_every_size_and_again_alike(name, n):
    counts = held_out.line(name, n=n, records=5000)
    assert counts.shape == (n,) and counts.sum() == 5000 and (counts >= 0).all()
    assert np.array_equal(counts, held_out.line(name, n=n, records=5000))
    assert n < 16 or not np.array_equal(counts, held_out.line(name, n=n, records=5000, seed=1))


@pytest.mark.parametrize("name", held_out.GRIDS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (20, 30)])
def test_held_out_grids_too(name, shape):
    counts = held_out.grid(name, rows=shape[0], columns=shape[1], records=5000)
    assert counts.shape == shape and counts.sum() == 5000 and (counts >= 0).all()


def test_what_judges_is_not_what_methods_and_advice_were_made_on():
    assert len(held_out.LINES) >= 20
    for name in {*held_out.LINES} & {*dphist.shapes.SHAPES}:
        own = held_out.LINES[name](64, np.random.default_rng(0))
        theirs = dphist.shapes.SHAPES[name].weigh(64, np.random.default_rng(0))
        assert not np.allclose(own / own.sum(), theirs / theirs.sum()), name


def test_every_shape_is_judged_at_two_sizes_of_three_and_at_several_densities():
    lines = [(case.name, case.counts.size, case.counts.sum()) for case in accuracy.made_up_lines()]
    sizes = {name: {n for m, n, _ in lines if m == name} for name in held_out.LINES}
    assert all(len(of) == 2 for of in sizes.values())
    assert set.union(*sizes.values()) == {*accuracy.SIZES}
    assert {total // n for _, n, total in lines} == {*accuracy.DENSITY}
    assert {case.counts.shape for case in accuracy.made_up_grids()} == {*accuracy.SIDES}
    assert {case.counts.size for case in accuracy.made_up_lines([50])} == {50}


def test_ratios_and_their_errors():
    assert accuracy.ratio(Figure(3, 0.3), Figure(6, 0)) == Figure(0.5, pytest.approx(0.05))
    assert accuracy.ratio(Figure(0, 0), Figure(0, 0)) == Figure(1, 0)
    assert accuracy.ratio(Figure(1, 0), Figure(0, 0)).value == math.inf
    mean = accuracy.geometric_mean([Figure(2, 0.2), Figure(8, 0)])
    assert mean == Figure(pytest.approx(4), pytest.approx(4 * 0.1 / 2))
    draws = np.random.default_rng(1).normal(5, 2, 10_000)
    assert accuracy.mean(draws).se == pytest.approx(0.02, rel=0.05)


def test_a_limit_is_held_or_missed_on_its_side():
    verdicts = [
        accuracy._figure("former", "x", Figure(value, 0), **limit)["verdict"]
        for value, limit in (
            (1.0, {"at_most": 1.0}),
            (1.01, {"at_most": 1.0}),
            (math.inf, {"at_most": 8}),
            (0.9, {"at_least": 0.9}),
            (0.89, {"at_least": 0.9}),
            (0.5, {}),
        )
    ]
    assert verdicts == ["held", "missed", "missed", "held", "missed", None]


def test_intervals_are_counted_as_they_hold():
    held = Held([], [], [], [])
    truth = np.array([0.0, 10, 20, 30])
    held.add(truth + 1, truth - 1, truth + 3, truth)
    held.add(truth + 3, truth + np.array([1, -1, -1, -1]), truth + 5, truth)
    assert held.shares == [1.0, 0.75] and held.coverage.value == 0.875 and not held.within
    assert held.errors == [1.0, 3.0] and held.width == pytest.approx(np.mean([2.0, 2.75]) / 2)
    assert held.full == [(3, 3), (3, 3)]  # the bin that is missed is empty
    known = Held([0.95], [1.0], [1.0], [(1, 1)])
    assert known.within
    known.add(truth, np.full(4, np.nan), truth, truth)
    assert known.unknown == 4 and not known.within


def test_intervals_of_most_may_hold_more_often_but_not_less():
    truth = np.arange(4.0)
    for of_most in (True, False):
        sure = Held([], [], [], [])
        sure.add(truth, truth - 1, truth + 1, truth, of_most=of_most)
        assert sure.within == of_most
        sure.add(truth, truth + 1, truth + 2, truth, of_most=of_most)
        assert not sure.within


def test_exact_noise_covers_what_it_should_and_half_of_it_does_not(monkeypatch):
    monkeypatch.setitem(accuracy.RELEASES, 64, 20)
    monkeypatch.setattr(accuracy, "QUERIES", 100)
    plain = make_pipeline
    monkeypatch.setattr(accuracy, "make_pipeline", lambda m, d, w=None: plain("identity", d, w))
    case = Case("ramp", False, np.arange(64) * 10)
    found = accuracy._covered(case, "points", "0.1")
    assert found["bins"].within and found["ranges"].within
    assert len(found["bins"].errors) == 20  # and no more, for nothing is missed

    class Half(dphist.Release):
        def intervals(self, **more):
            low, high = super().intervals(**more)
            return self.raw + (low - self.raw) / 2, self.raw + (high - self.raw) / 2

    def wrap(trial, **more):
        made = plain_release(trial, **more)
        return Half(**{name: getattr(made, name) for name in made.__dataclass_fields__})

    plain_release = accuracy.trials.__globals__["Trial"].release
    monkeypatch.setattr(accuracy.trials.__globals__["Trial"], "release", wrap)
    narrow = accuracy._covered(case, "points", "0.1")
    assert narrow["bins"].coverage.value < 0.85 and not narrow["bins"].within
    assert len(narrow["bins"].errors) == 80  # a miss is looked at again


def test_the_former_auto_is_what_it_was():
    line, plane = (Domain(tuple(Integers(0, n - 1) for n in shape)) for shape in ((64,), (8, 8)))
    assert accuracy.former(line, "points") == make_pipeline("wf-auto", line)
    found = accuracy.former(line, "prefixes")
    assert replace(found, partition=Splits()) == make_pipeline("dawa2", line)
    assert (found.partition.rough, found.partition.cap) == ((75, 75), (20, 20))
    assert str(accuracy.former(plane, "rectangles").split.partition) == "3/10"


def test_regret_is_over_the_best_of_all_others_by_fresh_runs():
    case = Case("flat", False, np.full(64, 1000))
    queries = make_workload("points", case.domain)
    served = accuracy._serving(case.domain, queries)
    assert {"auto", "identity", "uniform", "dawa"} <= set(served) and "quadtree" not in served
    few = {name: served[name] for name in ("identity", "uniform", "hb")} | {"auto": served["identity"]}
    best, found, runs = accuracy._searched(few, case, queries, "0.01")
    assert best == "uniform" and runs == 5 * accuracy.FRESH
    assert accuracy.ratio(found["auto"], found["best"]).value > 3
    few["auto"] = served["uniform"]
    best, found, runs = accuracy._searched(few, case, queries, "0.01")
    assert runs == accuracy.FRESH
    assert accuracy.ratio(found["auto"], found["best"]).value == 1  # the same method, the same noise


@pytest.mark.long
def test_a_part_prints_its_lines_and_writes_its_table(tmp_path, monkeypatch, capsys):
    case = Case("ramp", False, np.arange(20) * 10)
    monkeypatch.setattr(accuracy, "made_up_lines", lambda *_: [case])
    monkeypatch.setattr(accuracy, "made_up_grids", lambda *_: [])
    monkeypatch.setattr(accuracy, "ASKED", {"points": "points"})
    monkeypatch.setattr(accuracy, "WORST", 0.0)
    to = ["--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    table = tmp_path / "table.md"
    assert accuracy.main([*to, "--parts", "former", "--table", str(table)]) == 1
    told = capsys.readouterr()
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [row["epsilon"] for row in rows if "ratio" in row] == [0.01, 0.1, 1]
    worst = next(row for row in rows if "figure" in row and row["figure"].endswith("the worst cell"))
    assert worst["verdict"] == "missed" and "ramp, 20 bins" in worst["cells"][0]
    assert "missed: points: auto's error" in told.err
    text = table.read_text("utf-8")
    assert "| **missed** |" in text and "## former" in text and "## peers" not in text


def test_wrong_parts_are_refused():
    with pytest.raises(UsageError, match="no part 'speeed'; there are peers"):
        accuracy.main(["--parts", "speeed"])


def test_without_public_data_the_peers_are_left_out(capsys):
    assert list(accuracy.peers(None)) == []
    assert "no NETTRACE" in capsys.readouterr().err


def test_every_kept_part_is_in_the_table(tmp_path):
    row = accuracy._figure("speed", "a release", Figure(3, 0), at_most=8)
    assert accuracy._measured("speed", [row], tmp_path) == 0
    rows, seconds = accuracy._kept(tmp_path)
    assert rows == [row] and set(seconds) == {"speed"}
    assert "| a release | 3 | at most 8 | held |" in accuracy.table(rows, seconds)
