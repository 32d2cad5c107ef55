"""Advice: the error before it is paid for, the epsilon an error costs, and what is kept of it."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from benchmarks import advice as benchmark
from dphist.domain import Domain, Integers, Regular
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE
from dphist.planning import advise as advice
from dphist.planning import kept, simulated_errors
from dphist.planning.advise import advise
from shell import dphist as run_dphist

FEW = ["identity", "uniform", "hb"]
GRID = Domain((Integers(0, 7), Integers(0, 7)))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "dphist" / "advice"


def ask(**more):
    return advise(64, **{"records": 10_000, "methods": FEW} | more)


@functools.cache
def of_all_methods():
    return advise(32, records=1000, epsilon=1)


class TestEpsilon:
    def test_the_error_of_noise_is_one_over_epsilon(self):
        for epsilon in ("0.1", "0.02"):
            rows = {row.method: row for row in ask(epsilon=epsilon).rows}
            assert rows["identity"].error == pytest.approx(1 / float(epsilon), rel=0.05)
            assert rows["identity"].least <= rows["identity"].error <= rows["identity"].most

    def test_the_best_comes_first_and_depends_on_the_question(self):
        found = ask(epsilon=1)
        assert found.best.method == "identity" == found.rows[0].method
        assert [row.error for row in found.rows] == sorted(row.error for row in found.rows)
        assert ask(epsilon="0.0001").best.method == "uniform"
        assert (
            ask(epsilon="0.1", workload="ranges", methods=["identity", "hats"], like="hourly").best.method
            == "hats"
        )
        assert ask(epsilon="0.0001", like="uniform").best.method == "uniform"

    def test_it_agrees_with_a_simulation_of_its_own(self):
        found = ask(epsilon="0.05", methods=["dawa2"], like="smooth", workload="ranges").best
        assert found.trials == 96  # sums vary so much that all runs are needed
        queries, errors = make_workload("ranges", 64), []
        for k in range(30):
            x = dphist.shapes.draw("smooth", n=64, records=10_000, seed=100 + k)
            values = dphist.simulate(x, epsilon="0.05", method="dawa2", workload="ranges", seed=9 + k)
            errors.append(queries.mean_absolute_error(np.asarray(values[0]) - x))
        assert found.error == pytest.approx(np.mean(errors), rel=0.25)

    def test_several_shapes_by_default_and_one_that_is_named(self):
        default, named = ask(epsilon=1), ask(epsilon=1, like="sparse")
        assert [name for name, _ in default.best.shapes] == list(advice.SHAPES)
        assert [name for name, _ in named.best.shapes] == ["sparse"]
        assert named.like == "sparse" and "6 shapes" in default.like
        assert default.best.error == pytest.approx(np.mean([e for _, e in default.best.shapes]))

    def test_the_error_is_told_for_the_easiest_and_the_hardest_data_whatever_is_assumed(self):
        found = ask(epsilon="0.05", methods=["identity", "sdahp"], like="smooth")
        rows = {row.method: row for row in found.rows}
        assert rows["identity"].low == rows["identity"].error == rows["identity"].high
        low, high = rows["sdahp"].low, rows["sdahp"].high
        assert low < 0.6 * rows["sdahp"].error < 1.2 * high
        for like in ("lone", "jagged", "power-shuffled"):  # each of these alone lies between
            alone = ask(epsilon="0.05", methods=["sdahp"], like=like).best
            assert 0.8 * low <= alone.error <= 1.25 * high
            assert (alone.low, alone.high) == (pytest.approx(low, rel=0.2), pytest.approx(high, rel=0.2))
        assert "depending on how the records lie" in ask(epsilon="0.05", methods=["sdahp"]).words()
        assert "depending on" not in ask(epsilon="0.05", methods=["identity"]).words()

    def test_a_method_that_is_ruined_by_other_data_is_not_advised(self):
        found = ask(epsilon="0.05", methods=["identity", "uniform"], like="uniform")
        assert [row.method for row in found.rows] == ["uniform", "identity"]
        assert found.rows[0].high > 10 * found.rows[1].high
        assert found.best.method == "identity"
        assert "uniform is off by" in found.words() and "if the records lie otherwise" in found.words()
        assert found.to_dict()["best"] == "identity"

    def test_methods_far_from_the_best_have_no_range(self):
        found = of_all_methods()
        assert all(row.low is not None for row in found.rows[: advice._RANGED])
        without = [row for row in found.rows if row.low is None]
        assert without and all(row.high is None for row in without)
        last = found.cells()[[row.method for row in found.rows].index(without[-1].method)]
        assert last[-2:] == ("", "")

    def test_the_curve_falls(self):
        for row in ask(epsilon="0.1").rows[:2]:
            epsilons, errors = zip(*row.curve, strict=True)
            assert epsilons == (0.01, 0.03, 0.1, 0.3, 1.0)
            assert row.method == "uniform" or list(errors) == sorted(errors, reverse=True)

    def test_methods_that_do_the_same_are_told_once(self):
        found = ask(epsilon=1, methods=["identity", "greedyh", "hats", "uniform"])
        assert [row.method for row in found.rows] == ["identity", "uniform"]

    def test_people_with_several_records_cost_as_much_more(self):
        one, five = (ask(epsilon="0.1", max_contributions=k, methods=["identity"]).best.error for k in (1, 5))
        assert five == pytest.approx(5 * one, rel=0.05)

    def test_every_suitable_method_is_compared(self):
        found = of_all_methods()
        assert len(found.rows) > 12 and {row.method for row in found.rows} <= set(CATALOGUE)

    def test_grids_have_methods_of_their_own(self):
        found = advise(GRID, records=1000, epsilon=1)
        assert "quadtree" in {row.method for row in found.rows} and found.bins == (8, 8)
        ranged = advise(
            GRID, records=1000, epsilon=1, workload="rectangles", methods=["identity", "quadtree"]
        )
        assert ranged.best.error > found.best.error

    @pytest.mark.parametrize("domain", [Domain((Regular(lo=0, hi=1, bins=64),)), Integers(0, 63), range(65)])
    def test_domains_in_all_their_forms(self, domain):
        assert advise(domain, records=10_000, epsilon=1, methods=FEW).rows == ask(epsilon=1).rows

    @pytest.mark.parametrize("method", [m for m in advice.FIXED if 1 in CATALOGUE[m].dimensions])
    def test_errors_that_are_said_not_to_depend_on_the_data_do_not(self, method):
        found = [ask(epsilon="0.1", like=like, methods=[method]).best.error for like in ("sparse", "smooth")]
        assert found[0] == pytest.approx(found[1], rel=1e-6)


class TestError:
    def test_an_error_buys_its_epsilon(self):
        found = ask(error=20)
        row = next(row for row in found.rows if row.method == "identity")
        assert float(row.epsilon) == pytest.approx(1 / 20, rel=0.06)
        assert 20 / 1.1 < row.error <= 20 == found.target
        # What was solved for is what the other question tells.
        again = ask(epsilon=str(row.epsilon), methods=["identity"]).best
        assert again.error == pytest.approx(row.error, rel=0.03)

    def test_a_share_is_of_what_a_query_answers_on_average(self):
        # 10,000 records in 64 bins: 156 each, of which 10 % are 15.6; a range has a third of all.
        assert ask(error="10%").target == pytest.approx(15.625)
        assert ask(error="1%", workload="ranges").target == pytest.approx(10_000 / 100 * 66 / 3 / 64)

    def test_the_cheapest_comes_first(self):
        found = ask(error=100, workload="ranges", methods=["identity", "hats", "dawa2"])
        assert [row.epsilon for row in found.rows] == sorted(row.epsilon for row in found.rows)
        assert found.best.method != "identity"

    def test_what_cannot_be_reached_is_told(self):
        with pytest.raises(UsageError, match=r"no epsilon up to 1000 .* the smallest is \d+, with uniform"):
            ask(error=1, methods=["uniform"])
        found = ask(error=1)
        assert dict(found.out_of_reach)["uniform"] > 50 and "uniform" not in {
            row.method for row in found.rows
        }

    def test_what_needs_no_data_is_told(self):
        with pytest.raises(UsageError, match="needs no data"):
            ask(error=10_000)

    def test_small_errors_are_reached_where_hardly_any_bin_gets_noise(self):
        found = ask(error=0.1, methods=["identity"])
        assert 2.5 < found.best.epsilon < 4  # 2 exp(-epsilon) records in the mean: 3


class TestLike:
    def test_an_earlier_release_is_free(self, tmp_path):
        release = dphist.from_counts([1000] + [0] * 63, epsilon=1)
        path = release.save(tmp_path / "r.json")
        found = [ask(epsilon="0.1", like=like, methods=["identity", "sdahp"]) for like in (release, path)]
        assert [row.error for row in found[0].rows] == [row.error for row in found[1].rows]
        assert found[0].best.method == "sdahp"

    def test_one_of_another_domain_is_refused(self):
        with pytest.raises(UsageError, match="has 12 bins and this domain 64"):
            ask(epsilon=1, like=dphist.from_counts(range(12), epsilon=1))

    def test_counts_are_warned_of_and_leave_no_trace(self, cache):
        with pytest.warns(UserWarning, match="must be public"):
            found = ask(epsilon=1, like=np.arange(64))
        assert found.like == "like these counts" and not cache.exists()


@pytest.mark.parametrize("records", [0, -5, 0.2, float("nan"), float("inf"), True, "many", None])
def test_scales_that_are_none(records):
    with pytest.raises(UsageError, match="approximate number of records"):
        ask(records=records, epsilon=1)


@pytest.mark.parametrize(
    "bad",
    [
        dict(),
        dict(epsilon=1, error=1),
        dict(epsilon=0),
        dict(epsilon="1e9"),
        dict(epsilon="1e-12"),
        dict(error=0),
        dict(error="0%"),
        dict(error=-3),
        dict(error="two"),
        dict(error=float("nan")),
        dict(error=True),
        dict(epsilon=1, workload="rangs"),
        dict(epsilon=1, like="sprase"),
        dict(epsilon=1, methods=[]),
        dict(epsilon=1, methods="identity"),
        dict(epsilon=1, methods=["identiti"]),
        dict(epsilon=1, methods=["s1"], max_contributions=0),
    ],
    ids=repr,
)
def test_bad_questions(bad):
    with pytest.raises(UsageError):
        ask(**bad)


@pytest.mark.parametrize("domain", [0, -1, True, "12", [1.0]], ids=repr)
def test_bad_domains(domain):
    with pytest.raises(Exception) as refused:
        advise(domain, records=10, epsilon=1)
    assert isinstance(refused.value, dphist.errors.DphistError)


class TestKept:
    def test_the_second_question_runs_nothing(self, cache, monkeypatch):
        first = [ask(epsilon="0.3"), ask(error=30)]
        assert len(list(cache.iterdir())) == 2  # two questions about the same data; all shapes are the other
        monkeypatch.setattr(simulated_errors, "trials", lambda *a, **k: pytest.fail("it ran"))
        assert [ask(epsilon="0.3"), ask(error=30)] == first

    def test_other_questions_are_not_confused(self, cache):
        for more in (
            {},
            {"records": 20_000},
            {"workload": "prefixes"},
            {"like": "sparse"},
            {"max_contributions": 2},
        ):
            ask(epsilon=1, **more)
        assert len(list(cache.iterdir())) == 5 + 4  # of all shapes, whichever of them is assumed

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            '{"errors": 3}',
            '{"errors": {"identity": {"1": ["x", -1]}}}',
            '{"errors": {"identity": [1]}}',
        ],
    )
    def test_a_broken_file_is_ignored_and_mended(self, cache, text):
        first = ask(epsilon=1)
        good = {file: file.read_text("utf-8") for file in cache.iterdir()}
        assert len(good) == 2
        for file in good:
            file.write_text(text)
        assert ask(epsilon=1) == first
        assert all(json.loads(f.read_text("utf-8")) == json.loads(was) for f, was in good.items())

    def test_a_place_that_takes_nothing_is_no_matter(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert ask(epsilon=1).best.method == "identity"

    def test_the_folder_is_the_user_s(self, monkeypatch):
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/somebody")
        assert kept.cache_folder() == Path("/home/somebody/.cache/dphist/advice")

    def test_pipelines_of_one_s_own_are_not_kept(self, cache):
        own = dphist.Pipeline(name="identity", partition=dphist.steps.partition.Whole())
        assert ask(epsilon=1, methods=[own]).best.error > 50
        assert not cache.exists()
        assert ask(epsilon=1, methods=["identity"]).best.error < 2


class TestShown:
    def test_all_of_it(self, tmp_path):
        found = ask(epsilon="0.1")
        assert (
            found.table().splitlines()[1].split()[:3] == ["identity", "0.1", "9.95"]
            or "identity" in found.table()
        )
        assert "Take identity with epsilon 0.1" in str(found) and "10,000 records" in repr(found)
        page = found._repr_html_()
        assert "<table>" in page and "<svg" in page and "SIMULATED" in page
        found.plot(tmp_path / "c.png")
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(AttributeError):
            found.records = 1

    def test_it_goes_into_json(self):
        found = ask(error=20)
        told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert told["best"] == found.best.method and told["simulated"] is True
        assert Fraction(told["epsilon"]) == found.best.epsilon
        assert told["rows"][0]["curve"] and told["target"] == 20

    def test_it_ranks_as_compare_does(self):
        found = ask(epsilon="0.1", methods=["sdwf", "uniform", "sdwf-pow2"], like="steps")
        assert [r.error for r in found.rows] == sorted(r.error for r in found.rows)
        assert {row.method: row.competitive for row in found.rows} == {
            "sdwf": True, "sdwf-pow2": True, "uniform": False
        }  # fmt: skip
        assert ": no significant difference (paired t-test)." in found.sure
        assert [row["competitive"] for row in found.to_dict()["rows"]] == [True, True, False]

    def test_it_says_how_sure_it_is(self):
        clear = ask(epsilon=1, methods=["identity", "uniform"])
        assert "identity wins 24 of 24 runs" in clear.sure and "depends" not in clear.sure
        alone = ask(epsilon="0.05", methods=["identity", "uniform"], like="uniform").sure
        assert alone == "The error of identity does not depend on the data."
        assert "only method" in ask(epsilon=1, methods=["identity"]).sure
        assert "does not depend on the data" in clear.sure
        depends = ask(epsilon="0.05", methods=["identity", "sdahp"], records=100_000)
        assert "depends on the data" in depends.sure


def dphist_says(*arguments, code=0):
    return run_dphist("advise", *arguments, code=code)


class TestCommand:
    ASK = ("--bins", 64, "--records", "1e4", "--method", "identity", "--method", "uniform")

    def test_the_table_the_advice_and_what_comes_next(self, tmp_path):
        run = dphist_says(*self.ASK, "--epsilon", "0.1", "--plot", "c.svg")
        assert "Take identity with epsilon 0.1" in run.stdout and "nothing spent" in run.stdout
        assert "--method identity --workload points --epsilon 0.1" in run.stderr
        assert "<svg" in (tmp_path / "c.svg").read_text("utf-8")

    def test_an_error_as_a_share_and_json(self):
        told = json.loads(dphist_says(*self.ASK, "--error", "10%", "--json").stdout)
        assert told["target"] == pytest.approx(15.625) and told["best"] == "identity"

    def test_grids_and_people(self):
        run = dphist_says(
            "--bins",
            8,
            "--y-bins",
            8,
            "--records",
            1000,
            "--epsilon",
            1,
            "--method",
            "quadtree",
            "--max-contributions",
            2,
        )
        assert "8 x 8 bins" in run.stdout
        assert "--y-bins 8" in run.stderr and "--max-contributions 2" in run.stderr

    def test_a_file_of_counts_is_warned_of(self, tmp_path):
        np.save(tmp_path / "c.npy", np.arange(64))
        run = dphist_says(*self.ASK, "--epsilon", "1", "--like", "c.npy")
        assert run.stderr.startswith("warning: c.npy must be public")
        assert (
            "c.npy"
            in dphist_says(*self.ASK, "--epsilon", 1, "--like", "c.npy", "--plot", "c.npy", code=2).stderr
        )

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ((), "either --epsilon"),
            (("--epsilon", "1", "--error", "2%"), "either --epsilon"),
            (("--error", "0"), "above 0"),
            (("--epsilon", "1", "--records", "0"), "approximate number of records"),
            (("--epsilon", "1", "--bins", "x"), "whole number"),
            (("--epsilon", "1", "--bins", "0"), "at least 1"),
            (("--epsilon", "1", "--like", "sprase"), "Did you mean 'sparse'"),
            (("--epsilon", "1", "--plot", "c.txt"), "ending"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_mistakes(self, more, said):
        given = dict(zip(self.ASK[::2], self.ASK[1::2], strict=True))
        changed = [word for option in given.items() if option[0] not in more for word in option]
        assert said in dphist_says(*changed, *more, code=2).stderr


@pytest.mark.long
@pytest.mark.slow
def test_a_second_answer_is_read_and_not_worked_out_again(tmp_path):
    command = [str(Path(sys.executable).parent / "dphist"), "advise", "--bins", "4096", "--records", "1e6"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "empty")}
    answers, kept = [], []
    for _ in range(2):
        answers.append(subprocess.check_output([*command, "--epsilon", "1"], env=environment))
        files = (tmp_path / "empty").rglob("*")
        kept.append({file: file.stat().st_mtime_ns for file in files if file.is_file()})
    assert answers[0] == answers[1]
    assert kept[0] and kept[0] == kept[1], "the first answer was kept, and the second wrote nothing"


def test_many_bins_are_advised_on():
    assert [row.method for row in advise(100_000, records=1e6, epsilon=1, methods=["identity", "hb"]).rows]


class TestBenchmark:
    def test_it_needs_the_real_histograms(self, tmp_path):
        with pytest.raises(UsageError, match=r"there is no .*ADULTFRANK.n4096.npy"):
            benchmark.main(["--data", str(tmp_path)])

    def test_the_descriptions_are_those_of_the_shapes(self):
        assert set(benchmark.NEAREST.values()) <= set(dphist.shapes.SHAPES)

    def test_a_range_that_does_not_hold_is_a_miss(self, monkeypatch):
        case = benchmark.Case("flat", False, np.full(64, 100))
        said = ask(epsilon="0.01", methods=["sdahp"], records=6400)
        narrow = replace(said, rows=tuple(replace(r, low=9 * r.error, high=9 * r.error) for r in said.rows))
        found = {}
        for name, advised in {"held": said, "missed": narrow}.items():
            monkeypatch.setattr(benchmark, "_questions", lambda *_, a=advised: [(case, a)])
            rows = list(benchmark.stated({}))
            (found[name], _) = (row for row in rows if row["name"] == "truth in the stated range")
        assert (found["held"]["value"], found["held"]["pass"]) == (1, True)
        assert (found["missed"]["value"], found["missed"]["pass"]) == (0, False)
        assert "flat, 64 bins, epsilon 0.01, points: advised sdahp" in rows[0]["what"]

    def test_wrong_parts_are_refused(self, tmp_path):
        for name in benchmark.NEAREST:
            (tmp_path / f"{name}.n4096.npy").touch()
        with pytest.raises(UsageError, match="no part 'state'; there are ranks"):
            benchmark.main(["--data", str(tmp_path), "--parts", "state"])

    @pytest.mark.long
    @pytest.mark.slow
    def test_a_target_is_compared_with_the_truth(self, tmp_path, monkeypatch):
        monkeypatch.setattr(benchmark, "TRIALS", 3)
        np.save(tmp_path / "x.npy", dphist.shapes.draw("sparse", n=4096, records=20_000, seed=77))
        found = benchmark._target(tmp_path / "x.npy", "ADULTFRANK", "points", 0.5)
        assert 0.5 < found["ratio"] < 2  # it is what it was said to look like
        assert benchmark._target(tmp_path / "x.npy", "ADULTFRANK", "points", 1000) is None


def test_an_error_too_small_to_be_seen_is_refused():
    with pytest.raises(UsageError, match="too small to be measured by simulation"):
        dphist.advise(12, records=10_000, error=1e-9, methods=["identity"])


def test_a_file_of_counts_may_begin_with_a_title(tmp_path):
    (tmp_path / "a.csv").write_text("count\n" + "\n".join(map(str, range(12))))
    with pytest.warns(UserWarning, match="must be public"):
        found = dphist.advise(
            12, records=10_000, epsilon=1, like=str(tmp_path / "a.csv"), methods=["identity", "uniform"]
        )
    assert found.best.method == "identity"
