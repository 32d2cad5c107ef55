"""What the page foresees is what the shell foresees, part by part; nobody works on old questions."""

import itertools
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import dphist as library
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import make_pipeline
from dphist.planning import level_errors
from dphist.planning.advise import advise
from dphist.planning.foresee import Foresight, _hundredths, plan_epsilon
from dphist.planning.grouped_foresee import GroupedForesight
from dphist.planning.preview import Pattern
from dphist.planning.simulated_errors import SimulatedErrors
from dphist.release.words import chance_after
from dphist.studio import edit, foreseeing, told
from dphist.studio.foreseeing import Superseded, Turns
from dphist.studio.start import Start
from shell import dphist
from studio_client import studio_page

PLAN = {
    "data": "people.csv",
    "dataset": "visits",
    "epsilon": "0.5",
    "unit": "person",
    "histograms": {
        "ages": {"share": "0.4", "column": "age", "integers": [0, 15], "method": "identity"},
        "kinds": {"column": "kind", "categories": ["a", "b"], "method": "identity"},
    },
}
ASKED = {
    "plan": PLAN,
    "path": "a.toml",
    "histogram": "ages",
    "records": 5000,
    "shape": {"name": "smooth"},
    "level": 0.95,
    "tab": "t",
}
BY_KIND = {"column": "age", "integers": [0, 5], "by": "kind", "groups": ["a", "b"], "method": "identity"}
GROUPED = ASKED | {"plan": {"epsilon": "1", "histograms": {"h": BY_KIND}}, "histogram": "h"}


@pytest.fixture(scope="module", autouse=True)
def _few_methods():
    """Compare a few methods that start at once: which ones are suitable is tested elsewhere."""
    from dphist.methods import catalogue
    from dphist.planning import advise as module

    some = lambda domain, queries: ("identity", "uniform", "hb", "privelet")  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "usual", some)
        patch.setattr(catalogue, "usual", some)
        yield


def parts(found):
    return {part["part"]: part for part in found}


class TestNumbers:
    def test_they_are_those_of_the_library_and_the_shell(self, page):
        found = page.lines("foresee", ASKED, sequence=1)
        names = [part["part"] for part in found]
        assert names[:2] == ["odds", "error"] and names[-1] == "end"
        last = parts(found)
        options = {"records": 5000, "epsilon": "0.2", "like": "smooth", "methods": ["identity"]}
        expected = advise(library.Integers(0, 15), **options).rows[0]
        assert last["error"]["error"] == expected.error and last["error"]["final"] is True
        assert last["error"]["epsilon"] == "0.2" and last["error"]["method"] == "identity"
        shell = dphist(
            *[
                "preview",
                "--integers",
                "0",
                "15",
                "--epsilon",
                "0.2",
                "--method",
                "identity",
                "--unit",
                "person",
                "--column",
                "age",
            ],
            *["--records", "5000", "--like", "smooth", "--json"],
        )
        told = json.loads(shell.stdout)
        assert last["outcomes"]["outcomes"] == told["outcomes"] and len(told["outcomes"]) == 12
        assert last["outcomes"]["truth"] == told["truth"]
        assert (last["outcomes"]["low"], last["outcomes"]["high"]) == (told["low"], told["high"])
        assert last["error"]["within"] == told["within_95"]

    def test_a_curve_for_every_suitable_method_that_of_the_plan_first(self, page):
        found = page.lines("foresee", ASKED, sequence=1)
        curves = [part for part in found if part["part"] == "curve"]
        assert [c["method"] for c in curves] == ["identity", "identity", "hb", "privelet", "uniform"]
        first, *curves = curves  # from a few trials, before all else is known closely
        names = [(part["part"], part.get("final")) for part in found]
        assert names.index(("curve", None)) < names.index(("error", True)) < names.index(("progress", None))
        assert names.index(("advice", None)) < names.index(("curve", None), names.index(("error", True)) + 2)
        assert [e for e, _ in first["points"]] == [e for e, _ in curves[0]["points"]]
        options = {"records": 5000, "epsilon": "0.2", "like": "smooth"}
        for curve in curves:
            row = advise(library.Integers(0, 15), methods=[curve["method"]], **options).rows[0]
            assert [x for x, _ in curve["points"]] == [x for x, _ in row.curve]
            assert len(curve["points"]) >= 5
        own = dict(map(tuple, curves[0]["points"]))
        assert own[0.2] == parts(found)["error"]["error"]
        assert parts(found)["advice"]["method"] in {c["method"] for c in curves if c["intervals"]}
        worse = ASKED | {"plan": json.loads(json.dumps(PLAN).replace("identity", "privelet"))}
        advice = parts(page.lines("foresee", worse, sequence=2))["advice"]
        assert advice["method"] in ("identity", "hb") and advice["ratio"] > 1.2 and "0." in advice["words"]
        steps = [part for part in found if part["part"] == "progress"]
        assert [(s["done"], s["of"]) for s in steps] == [(i, 6) for i in range(6)]

    def test_of_methods_far_behind_the_ends_of_the_curve_are_enough(self, page, monkeypatch):
        monkeypatch.setattr(foreseeing, "_NEAR", 1)
        curves = [part for part in page.lines("foresee", ASKED, sequence=1) if part["part"] == "curve"]
        whole, *rest = ([e for e, _ in c["points"]] for c in curves[2:])
        assert len(whole) >= 5
        assert all(ends == [whole[0], 0.2, whole[-1]] for ends in rest) and len(rest) == 2

    def test_a_question_that_was_answered_is_not_worked_out_again(self, page, monkeypatch):
        before = page.lines("foresee", ASKED, sequence=1)
        monkeypatch.setattr(Foresight, "__init__", None)  # whoever foresees fails
        again = page.lines("foresee", ASKED, sequence=2)
        assert {part["sequence"] for part in again if part["part"] == "error"} == {2}
        plain = [part | {"sequence": 2} if part["part"] == "error" else part for part in before]
        assert again[:-1] == [part for part in plain if part["part"] != "progress"][:-1]
        for other in ({"records": 6000}, {"level": 0.9}, {"histogram": "kinds"}, {"shape": {}}):
            assert page.lines("foresee", ASKED | other, sequence=3)[-1]["part"] == "failed"

    def test_of_many_answers_the_latest_are_kept(self, page, here, monkeypatch):
        kept, turn = page.studio.foreseeing._told._known, itertools.count(1)
        folder = here / "cache" / "dphist" / "foreseen"
        for most, left in ((1 << 25, 2), (1, 1)):
            monkeypatch.setattr(told, "_MOST_KEPT", most)
            monkeypatch.setattr(told, "_MOST_ON_DISK", most)
            for level in (0.9, 0.8) if left == 2 else (0.7, 0.6):
                assert page.lines("foresee", ASKED, level=level, sequence=next(turn))[-1]["part"] == "end"
            assert len(kept) == left == len(list(folder.iterdir()))
            kept.clear()

    def test_another_studio_tells_what_one_has_answered(self, page, here, monkeypatch):
        answers = [page.lines("foresee", one, sequence=1)[:-1] for one in (ASKED, GROUPED)]
        page.lines("foresee", ASKED | {"shape": {"values": [1] * 16}}, sequence=2)
        files = list((here / "cache" / "dphist" / "foreseen").iterdir())
        assert len(files) == 2 and all(file.stat().st_mode & 0o77 == 0 for file in files)
        with monkeypatch.context() as patch:
            for foresight in (Foresight, GroupedForesight):
                patch.setattr(foresight, "__init__", None)  # whoever foresees fails
            for one, before in zip((ASKED, GROUPED), answers, strict=True):
                again = studio_page(here).lines("foresee", one, sequence=1)[:-1]
                assert again == [part for part in before if part["part"] != "progress"]
        for file in files:
            file.write_bytes(file.read_bytes()[:-1])
        damaged = studio_page(here).lines("foresee", ASKED, sequence=1)[:-1]
        assert parts(damaged)["error"] == parts(answers[0])["error"]

    def test_labels_of_a_file_that_changed_are_another_question(self, page, here):
        (here / "kinds.txt").write_text("a\nb\n")
        plan = PLAN | {
            "histograms": {"h": {"column": "kind", "categories": "kinds.txt", "method": "identity"}}
        }
        asked = ASKED | {"plan": plan, "histogram": "h"}
        for labels in ("a\nb\n", "a\nb\nc\n"):
            (here / "kinds.txt").write_text(labels)
            found = parts(page.lines("foresee", asked, sequence=len(labels)))
            assert len(found["outcomes"]["truth"]) == labels.count("\n")

    def test_what_auto_chose_is_not_simulated_under_both_names(self, monkeypatch):
        domain, queries = library.Domain((library.Integers(0, 15),)), make_workload("points", (16,))
        auto = make_pipeline("auto", domain, queries)
        both = {"auto": auto, auto.choice: make_pipeline(auto.choice, domain, queries)}
        asked = domain, queries, 5000, 1, both, (Pattern("smooth"),)
        study, alone = SimulatedErrors(*asked, True), SimulatedErrors(*asked, False)
        ran, ours = [], SimulatedErrors._trial
        monkeypatch.setattr(
            SimulatedErrors, "_trial", lambda study, *given: ran.append(given) or ours(study, *given)
        )
        epsilon = Fraction(1, 5)
        errors = [study.errors(name, epsilon, 2).tolist() for name in both]
        assert len(ran) == 2 and errors == [alone.errors(name, epsilon, 2).tolist() for name in both]

    def test_what_a_page_asks_first_is_worked_out_before_it_asks(self, here, page, monkeypatch):
        monkeypatch.setattr(edit, "_MOMENT", 0)
        page.ask("plan/save", plan=PLAN, path="a.toml", base_digest=None)
        made = edit.Studio(Start(here))
        monkeypatch.setattr(edit, "vega", lambda: None)
        done = threading.Event()
        real = made.foreseeing.ahead
        monkeypatch.setattr(made.foreseeing, "ahead", lambda plan: (real(plan), done.set()))
        threading.Thread(target=made.ahead, daemon=True).start()
        answered = made.open({"path": "a.toml"})
        assert done.wait(60)
        trials = []
        ours = SimulatedErrors._trial
        monkeypatch.setattr(SimulatedErrors, "_trial", lambda *given: trials.append(1) or ours(*given))
        asked = ASKED | {"plan": answered["plan"], "records": foreseeing.RECORDS}
        for at, name in enumerate(PLAN["histograms"]):
            found = list(made.foreseeing.foresee(asked | {"histogram": name, "sequence": at}))
            assert found[-1]["part"] == "end" and not trials
        with pytest.raises(Superseded):  # whoever asks comes first
            free = made.foreseeing.turns.free()
            free()
            made.foreseeing.turns.take("b", 1)
            free()

    @pytest.mark.parametrize(("bins", "advice"), [(1 << 17, "dphist plan price"), (1 << 28, "many-bins.md")])
    def test_of_too_many_bins_it_is_said_what_tells_of_them(self, page, bins, advice):
        one = {
            "column": "age",
            "integers": [0, bins - 1],
            "method": "listed" if bins > 1 << 27 else "identity",
        }
        asked = ASKED | {"plan": PLAN | {"histograms": {"ages": one}}}
        assert advice in page.refused("foresee", asked, sequence=1, status=400)["message"]

    def test_widths_are_those_of_a_release(self, page):
        widths = parts(page.lines("foresee", ASKED, sequence=1))["widths"]
        plan = library.Plan(integers=(0, 15), epsilon="0.2", method="identity")
        real = plan.release(list(range(16)))
        low, high = real.intervals(level=0.95)
        assert np.allclose(widths["each"], (high - low) / 2)
        low, high = real.intervals(level=0.95, joint=True)
        assert np.allclose(widths["joint"], (high - low) / 2)
        by = {row["bins"]: row for row in widths["lengths"]}
        for joint, name in ((False, "each"), (True, "joint")):
            one = real.sum(0, 8, joint=joint)
            assert math.isclose(by[8][name], (one.high - one.low) / 2, rel_tol=1e-9)
        asked = page.ask("foresee/range", ASKED, lo=0, hi=8)
        one = real.sum(0, 8)
        assert math.isclose(asked["half"], (one.high - one.low) / 2, rel_tol=1e-9)
        assert asked["expected"] == sum(
            parts(page.lines("foresee", ASKED, sequence=2))["outcomes"]["truth"][:8]
        )

    def test_the_odds_add_up_what_was_spent(self, page, here):
        odds = parts(page.lines("foresee", ASKED, sequence=1))["odds"]
        assert odds["with_earlier"] is None and odds["epsilon"] == "0.5"
        assert odds["after"] == 62.3 and "at most 62.3" in odds["words"]
        book = library.Ledger.open(here / "dphist-ledger.db", create=True)
        book.charge("1.5", dataset="visits", mechanism="m", what="w")
        odds = parts(page.lines("foresee", ASKED, sequence=2))["odds"]
        assert odds["with_earlier"]["epsilon"] == "2"
        after = chance_after(Fraction(1, 2), Fraction(2))
        assert 0 <= odds["with_earlier"]["after"] / 100 - after < 0.001
        assert odds["words"].count("at most") == 2

    def test_an_error_has_a_price(self, page):
        cheap, dear = (page.ask("target", ASKED, error=error) for error in (20, 5))
        for found, error in ((cheap, 20), (dear, 5)):
            assert found["error"] <= error
            assert Fraction(found["histogram_epsilon"]) == Fraction(found["epsilon"]) * Fraction("0.4")
        assert Fraction(cheap["epsilon"]) < Fraction(dear["epsilon"])
        again = json.loads(json.dumps(PLAN)) | {"epsilon": dear["epsilon"]}
        got = parts(page.lines("foresee", ASKED | {"plan": again}, sequence=9))["error"]["error"]
        assert got <= 5 * 1.15
        assert page.ask("target", ASKED, error="2%")["epsilon"]
        for bad in (0, -1, "x", None, True, 1e9, 1e-9, []):
            assert page.refused("target", ASKED, error=bad, status=400)["charged"] is False

    def test_nothing_is_read_and_nothing_is_spent(self, page, here):
        (here / "people.csv").unlink()
        page.lines("foresee", ASKED, sequence=1)
        page.ask("target", ASKED, error=10)
        page.ask("foresee/range", ASKED, lo=0, hi=3)
        assert not list(here.glob("*.db"))


@pytest.mark.parametrize(
    ("found", "share", "whole"),
    [
        ("0.25", "1/2", "0.5"),
        ("0.247", "3/5", "0.412"),
        ("0.1", "1/3", "0.3"),
        ("3.333", "1/3", "10"),
        ("12.34", "1/10", "124"),
        ("0.00123", "1/7", "0.00861"),
    ],
)
def test_the_epsilon_of_a_plan_is_rounded_up_to_three_digits(found, share, whole):
    made = plan_epsilon(Fraction(found), Fraction(share))
    assert made == Fraction(whole) and made * Fraction(share) >= Fraction(found)


class TestShares:
    def test_with_them_all_are_off_by_the_same_part_of_an_answer(self, page, here):
        shares = page.ask("plan/shares", plan=PLAN, path="a.toml", records=5000)["shares"]
        assert sum(map(Fraction, shares.values())) == 1
        assert Fraction(shares["ages"]) > Fraction(shares["kinds"])
        plan = json.loads(json.dumps(PLAN))
        for name, share in shares.items():
            plan["histograms"][name]["share"] = share
        off = {}
        for at, name in enumerate(shares):
            found = page.lines("foresee", ASKED | {"plan": plan, "histogram": name}, sequence=at + 1)
            off[name] = parts(found)["error"]["relative"]
        assert 1 / 1.25 < off["ages"] / off["kinds"] < 1.25
        page.ask("plan/save", plan=PLAN, path="a.toml", base_digest=None)
        run = dphist("plan", "price", "a.toml", "--records", "5000", "--shares", "--json")
        assert json.loads(run.stdout)["shares"] == shares

    @pytest.mark.parametrize(
        ("parts", "shares"),
        [
            ({"a": 1.0}, [100]),
            ({"a": 1.0, "b": 1.0, "c": 1.0}, [34, 33, 33]),
            ({"a": 1e9, "b": 1.0, "c": 0.0}, [98, 1, 1]),
            ({"a": 0.0, "b": 0.0}, [50, 50]),
            ({str(i): float(i == 7) for i in range(100)}, [1] * 100),
        ],
    )
    def test_they_are_hundredths_that_add_up(self, parts, shares):
        made = _hundredths(parts)
        assert [100 * share for share in made.values()] == shares

    def test_too_many_and_groups_are_refused(self, page):
        with pytest.raises(UsageError, match="more than 100"):
            _hundredths({str(i): 1.0 for i in range(101)})
        grouped = {"column": "age", "integers": [0, 5], "by": "kind", "groups": ["a", "b"]}
        plan = {"epsilon": "1", "histograms": {"h": grouped}}
        assert "groups" in page.refused("plan/shares", plan=plan, status=400)["message"]


class TestShapes:
    def test_a_drawn_shape_is_the_truth_of_the_outcomes_and_is_not_kept(self, page, here):
        drawn = [0.0] * 8 + [1.0] * 8
        found = page.lines("foresee", ASKED | {"shape": {"values": drawn}}, sequence=1)
        truth = parts(found)["outcomes"]["truth"]
        assert sum(truth[:8]) == 0 and sum(truth) == 5000 and found[-1]["part"] == "end"
        assert not [file for file in (here / "cache").rglob("*") if file.is_file()]

    def test_an_earlier_release_is_a_shape(self, page):
        counts = [0] * 8 + [1000] * 8
        library.from_counts(counts, bins=library.Integers(0, 15), epsilon=50, method="identity").save(
            "old.json"
        )
        found = page.lines("foresee", ASKED | {"shape": {"release": "old.json"}}, sequence=1)
        truth = parts(found)["outcomes"]["truth"]
        assert sum(truth[:8]) < 500 < sum(truth[8:])

    @pytest.mark.parametrize(
        "shape",
        [
            {"values": [1.0]},
            {"values": [-1.0] + [1.0] * 15},
            {"values": [0] * 16},
            {"values": ["x"] * 16},
            {"values": [1e400] * 16},
            {"name": "nothing"},
            {"name": "smooth", "values": []},
            {"release": "none.json"},
            [],
            "smooth",
        ],
    )
    def test_what_is_no_shape_is_refused(self, page, shape):
        if shape in ([], {}):
            return
        body = json.dumps(ASKED | {"shape": shape, "sequence": 1}).replace("Infinity", "1e400")
        assert page.send("foresee", body).status_code in (400, 410, 422)

    def test_what_is_no_number_of_records_is_refused(self, page):
        for records in (0, -5, "many", True, 1e300):
            found = page.send("foresee", ASKED | {"records": records, "sequence": 1})
            last = found.text.splitlines()[-1]
            assert found.status_code == 400 or json.loads(last)["part"] == "failed"


class TestWarnings:
    def foresight(self, records=5000, epsilon=1, look=None, **more):
        plan = library.Plan(epsilon=epsilon, method="identity", **more)
        return Foresight(plan, records=records, look=look or Pattern("smooth"))

    def codes(self, found):
        return {warning.code: warning for warning in found.warnings(0.95)}

    def test_bins_at_an_end_that_hold_less_than_the_noise(self):
        shape = Pattern("drawn", np.array([100.0] * 12 + [0.0] * 4), lasting=False)
        found = self.codes(self.foresight(look=shape, integers=(0, 15)))["small_bins"]
        assert "from about 12 upwards" in found.message and found.remedy == "Make 12 to 15 one bin"
        merged = library.Plan(epsilon=1, bins=found.change["bins"]).domain
        assert merged.n == 13
        values = np.arange(-2, 19)
        before = library.Integers(0, 15).index(values) >= 0
        assert ((merged.axis.index(values) >= 0) == before).all(), "the same records are counted"
        shape = Pattern("drawn", np.array([0.0] * 4 + [100.0] * 12), lasting=False)
        found = self.codes(self.foresight(look=shape, integers=(0, 15)))["small_bins"]
        merged = library.Plan(epsilon=1, bins=found.change["bins"]).domain
        assert "up to about 3" in found.message and merged.n == 13
        assert ((merged.axis.index(values) >= 0) == before).all()
        shape = Pattern("drawn", np.array([100.0] * 14 + [0.0] * 2), lasting=False)
        found = self.codes(self.foresight(look=shape, bins=16, range=(0, 32)))["small_bins"]
        assert found.change["bins"][-2:] == [28.0, 32.0]

    def test_full_bins_are_not_warned_of(self):
        flat = Pattern("drawn", np.ones(16), lasting=False)
        assert self.codes(self.foresight(look=flat, integers=(0, 15))) == {}

    def test_too_many_bins_for_the_epsilon(self):
        flat = Pattern("drawn", np.ones(4096), lasting=False)
        found = self.codes(self.foresight(look=flat, epsilon="0.1", bins=4096, range=(0, 1)))
        warned = found["too_many_bins"]
        assert warned.message.startswith("4,096 bins are too many for epsilon 0.1")
        fewer = warned.change["bins"]
        again = self.foresight(look=Pattern("d", np.ones(fewer)), epsilon="0.1", bins=fewer, range=(0, 1))
        assert self.codes(again) == {}

    def test_people_with_many_records(self):
        told = self.codes(self.foresight(integers=(0, 15), column="a", unit="patient", max_contributions=3))
        assert told["bounded"].message.startswith(
            "Of a patient with more than 3 records, only 3 are counted."
        )
        assert "bounded" not in self.codes(self.foresight(integers=(0, 15)))

    def test_a_workload_that_no_method_serves(self, page):
        few = page.lines("foresee", ASKED | {"records": 20}, sequence=1)
        assert "no_method" in [w["code"] for w in parts(few)["warnings"]["warnings"]]
        many = page.lines("foresee", ASKED | {"records": 10**6}, sequence=2)
        assert "no_method" not in [w["code"] for w in parts(many)["warnings"]["warnings"]]


class TestOtherKinds:
    @pytest.mark.parametrize(
        "one",
        [
            {"column": "kind", "categories": ["a", "b"], "other": "x"},
            {"column": "age", "range": ["2024-01-01", "2024-03-01"], "every": "week"},
            {"column": "age", "bins": 3, "range": [0, 9], "y_column": "kind", "y_categories": ["a", "b"]},
            {"column": "age", "integers": [0, 5], "by": "kind", "groups": ["a", "b"]},
        ],
    )
    def test_all_of_them_are_foreseen(self, page, one, monkeypatch):
        from dphist.planning import advise as module

        monkeypatch.setattr(module, "usual", lambda domain, queries: ("identity", "uniform"))
        plan = {"epsilon": "1", "histograms": {"h": {"method": "identity", **one}}}
        found = page.lines("foresee", ASKED | {"plan": plan, "histogram": "h"}, sequence=1)
        assert found[-1]["part"] == "end", found[-1]
        assert parts(found)["error"]["error"] > 0 and len(parts(found)["outcomes"]["outcomes"]) == 12

    def test_groups_have_the_curves_of_all_methods_that_the_shell_has(self, page):
        found = page.lines("foresee", GROUPED, sequence=1)
        curves = [part for part in found if part["part"] == "curve"]
        assert [c["method"] for c in curves] == [
            "identity",
            "identity",
            "privelet",
            "uniform",
        ]  # hb is the same
        told = parts(found)["error"]
        assert told["final"] and told["levels"][-1]["error"] == told["error"]
        assert dict(map(tuple, curves[1]["points"]))[1] == told["error"]
        shell = dphist(
            "advise", "--integers", "0", "5", "--by", "kind", "--groups", "a,b", "--at", "kind",
            "--epsilon", "1", "--records", "5000", "--like", "smooth", "--json",
            "--method", "identity,privelet,uniform",
        )  # fmt: skip
        rows = {row["method"]: row for row in json.loads(shell.stdout)["rows"]}
        assert [x for x, _ in curves[1]["points"]] == [0.1, 0.3, 1, 3, 10]
        for curve in curves[1:3]:  # those that nothing is simulated for
            assert curve["points"] == rows[curve["method"]]["curve"]
            assert all(a > b for (_, a), (_, b) in itertools.pairwise(curve["points"]))
        shared = [x for x, _ in curves[-1]["points"]]
        assert shared == [x for x, _ in rows["uniform"]["curve"]] and len(shared) == 5
        assert [(p["done"], p["of"]) for p in found if p["part"] == "progress"] == [(i, 4) for i in range(4)]
        assert parts(found)["advice"]["method"] == "identity"
        again = page.lines("foresee", GROUPED, sequence=2)
        assert "progress" not in parts(again)  # it is told again
        assert [p for p in again if p["part"] == "curve"] == curves

    def test_another_method_is_advised_for_all_levels_together(self, page):
        tree = {"by": ["all", "kind"], "groups": ["a", "b"], "method": "privelet"}
        one = {"column": "age", "integers": [0, 5], **tree}
        asked = GROUPED | {"plan": {"epsilon": "1", "histograms": {"h": one}}}
        advice = parts(page.lines("foresee", asked, sequence=1))["advice"]
        assert advice["method"] in ("identity", "hb") and advice["ratio"] > 1.2
        assert "over all levels, by their importance, would be 0." in advice["words"]

    def test_groups_that_were_simulated_are_found_again_and_nobody_works_on_old_questions(
        self, page, monkeypatch
    ):
        asked = json.loads(json.dumps(GROUPED).replace("identity", "uniform"))
        first = page.lines("foresee", asked, sequence=1)
        plan = library.GroupedPlan(
            by="kind", groups=["a", "b"], bins=library.Integers(0, 5), epsilon=1, method="uniform"
        )
        with monkeypatch.context() as patch:
            patch.setattr(level_errors, "trials_by_group", lambda *a, **k: pytest.fail("it ran"))
            after = GroupedForesight(plan, records=5000, like="smooth")
            assert after.rough("uniform") == next(p["error"] for p in first if p["part"] == "error")
            points = {part["method"]: part["points"] for part in first if part["part"] == "curve"}
            for method in ("identity", "privelet"):
                assert list(map(list, after.row(method).curve)) == points[method]
        left = itertools.chain([None] * 3, itertools.repeat(Superseded))

        def check():
            if (wrong := next(left)) is not None:
                raise wrong

        other = GroupedForesight(plan, records=4000, like="smooth", between=check)
        ran = []
        real = level_errors.trials_by_group
        monkeypatch.setattr(level_errors, "trials_by_group", lambda *a, **k: ran.append(1) or real(*a, **k))
        with pytest.raises(Superseded):
            other.rough("uniform")
        assert len(ran) == 3

    def test_labels_are_added_up_like_ranges(self, page):
        asked = ASKED | {"histogram": "kinds"}
        one, both = (page.ask("foresee/range", asked, lo=0, hi=hi) for hi in (1, 2))
        assert 0 < one["half"] < both["half"] and one["expected"] < both["expected"] == 5000

    def test_ranges_of_the_group_that_is_drawn_have_intervals(self, page):
        found = parts(page.lines("foresee", GROUPED, sequence=1))
        assert found["outcomes"]["group"] == "a" and len(found["widths"]["each"]) == 6
        read = page.ask("foresee/range", GROUPED, lo=1, hi=4)
        assert read["expected"] == sum(found["outcomes"]["truth"][1:4])
        assert found["widths"]["each"][0] < read["half"] < read["joint_half"]
        shell = library.GroupedPlan(
            by="kind", groups=["a", "b"], bins=library.Integers(0, 5), epsilon=1, method="identity"
        ).preview(records=5000)
        low, high = shell.releases[0]["a"].intervals(level=0.95)
        assert found["widths"]["each"] == ((high - low) / 2).tolist()

    def test_an_error_of_groups_has_its_price(self, page):
        found = parts(page.lines("foresee", GROUPED, sequence=1))
        half = found["error"]["error"] / 2
        dear = page.ask("target", GROUPED, error=half)
        assert 1.5 < Fraction(dear["epsilon"]) < 2.5 and dear["error"] <= half
        shell = advise(
            library.Integers(0, 5), records=5000, error=half, like="smooth", methods=["identity"],
            by="kind", groups=["a", "b"],
        )  # fmt: skip
        assert Fraction(dear["epsilon"]) == plan_epsilon(shell.rows[0].epsilon, Fraction(1))
        for bad in (0, "x", 1e-9):
            assert page.refused("target", GROUPED, error=bad, status=400)


class TestTurns:
    def test_the_newest_question_of_a_tab_wins(self):
        turns = Turns()
        first, _ = turns.take("a", 1)
        other, _ = turns.take("b", 1)
        first()
        second, _ = turns.take("a", 2)
        second()
        other()
        with pytest.raises(Superseded):
            first()
        late, _ = turns.take("a", 1)
        with pytest.raises(Superseded):
            late()
        for i in range(200):
            turns.take(f"tab {i}", 1)
        with pytest.raises(Superseded):
            second()

    def test_old_work_ends_before_its_next_trial(self, page, monkeypatch):
        trials, waiting, go = [], threading.Event(), threading.Event()
        real = SimulatedErrors._trial

        def slow(self, method, epsilon, run):
            trials.append(threading.get_ident())
            waiting.set()
            assert go.wait(60)
            return real(self, method, epsilon, run)

        monkeypatch.setattr(SimulatedErrors, "_trial", slow)
        with ThreadPoolExecutor(1) as pool:
            old = pool.submit(page.lines, "foresee", ASKED, sequence=1)
            assert waiting.wait(60)
            page_turn, _ = page.studio.foreseeing.turns.take("t", 2)
            go.set()
            found = old.result()
        assert found[-1] == {"part": "superseded"} and len(trials) == 1
        page_turn()

    def test_a_hundred_rapid_changes_leave_no_queue_behind(self, page, monkeypatch):
        made = []
        real = SimulatedErrors.__init__

        def counted(self, *given, **named):
            made.append(1)
            real(self, *given, **named)

        monkeypatch.setattr(SimulatedErrors, "__init__", counted)

        def ask(i):
            plan = PLAN | {"epsilon": f"{0.5 + i / 1000:.3f}"}
            return page.lines("foresee", ASKED | {"plan": plan}, sequence=i)[-1]["part"]

        with ThreadPoolExecutor(16) as pool:
            ends = list(pool.map(ask, range(1, 101)))
        assert ends[-1] == "end" and set(ends) <= {"end", "superseded"}
        assert ends.count("end") < 100
        assert page.lines("foresee", ASKED, sequence=101)[-1]["part"] == "end"  # at once: nobody is before it
        assert threading.active_count() < 60
