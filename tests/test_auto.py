"""The method that chooses: its features and their price, the table, what a release says of the choice."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dphist
from benchmarks import auto as teacher
from benchmarks import core
from dphist.domain import Categories, Domain, Integers, workload
from dphist.errors import UsageError
from dphist.kernels.levels import Level
from dphist.methods.catalogue import CATALOGUE, make_pipeline, variant
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import auto

LINE = Domain((Integers(0, 255),))
QUESTION = {"feature": "rough", "share": "1/50", "below": 0.5, "then": "uniform", "else": "identity"}


def held(x, sensitivity=1):
    x = np.asarray(x)
    return Counts(x, Domain(tuple(Integers(0, n - 1) for n in x.shape)), sensitivity)


def run(x, *, workload="points", epsilon=Fraction(1), seed=0, method="auto"):
    counts = held(x)
    pipeline = make_pipeline(method, counts.domain)
    queries = dphist.workload.make_workload(workload, counts.domain)
    pipeline.check(counts.domain, queries)
    return pipeline.run(Curator.simulated(counts, epsilon=epsilon, seed=seed), queries)


@pytest.fixture
def asking(monkeypatch):
    """A table that asks two questions before it chooses."""
    second = {"feature": "mass", "share": "1/40", "below": 2.0, "then": "uniform", "else": "dawa2@0.3"}
    tree = QUESTION | {"then": second}
    made = {
        "version": 7,
        "line": dict.fromkeys(("points", "ranges", "prefixes"), tree),
        "grid": {"points": tree},
    }
    monkeypatch.setattr(auto, "table", lambda: made)
    return made


class TestLevels:
    @given(
        x=st.lists(st.integers(0, 60) | st.integers(0, 1 << 53), min_size=1, max_size=40),
        at=st.integers(0, 39),
        of=st.sampled_from(["totals", "distances"]),
        size=st.sampled_from([1, 2, 16]),
        cap=st.integers(1, 100) | st.just(1 << 50),
        steps=st.sampled_from([1, 16, 50]),
    )
    def test_a_record_moves_no_score_by_more_than_one(self, x, at, of, size, cap, steps):
        score = Level(of, size, cap, steps)
        fewer = np.array(x, np.int64)
        more = fewer + (np.arange(fewer.size) == at % fewer.size)
        a, b = score(fewer), score(more)
        assert a.dtype == np.int64
        assert a.shape == b.shape == (score.candidates(fewer.size),)
        assert np.abs(a - b).max() <= score.sensitivity

    def test_a_score_without_the_cap_in_its_place_would_be_caught(self):
        x = np.array([0, 0, 9, 9])
        doubled = Level("totals", 2, 4, 9)(2 * x), Level("totals", 2, 4, 9)(2 * np.array([1, 0, 9, 9]))
        assert np.abs(doubled[0] - doubled[1]).max() == 2  # what a sensitivity of 2 looks like here

    def test_an_order_that_counts_a_bin_twice_is_refused(self):
        for order in ([0, 0], [1, 2], [2, 0]):
            with pytest.raises(UsageError, match="each of them once"):
                Level("totals", 1, 4, 8, order=np.array(order))
        with pytest.raises(UsageError, match="at least 1"):
            Level("totals", 1, 0, 8)

    def test_the_nearest_level_wins(self):
        x = np.array([0, 0, 0, 0, 8, 8, 1, 3])
        assert Level("totals", 1, 4, steps=8)(x).argmax() == 3  # 4 + 4 + 1 + 3 of 32
        assert Level("totals", 4, 4, steps=8)(x).argmax() == 4  # one of two blocks
        assert (
            Level("distances", 4, 20, steps=8)(x).argmax() == 2
        )  # |8-5.5| twice, |1-5.5|, |3-5.5|: 12 of 40
        assert Level("totals", 1, 4, steps=8, order=np.argsort(-x))(x).argmax() == 3

    def test_the_last_block_may_be_short(self):
        assert Level("totals", 3, 5, steps=4)(np.array([1, 1, 1, 5, 0])).argmax() == 3  # 3 and 5 of 10: 8
        assert Level("distances", 16, 5, 8)(np.array([7])).argmax() == 0


class TestFeatures:
    def read(self, x, feature, epsilon=10**6, share=Fraction(1)):
        curator = Curator.simulated(held(x), epsilon=Fraction(epsilon), seed=1)
        return auto.read(curator, feature, share=share), curator

    def test_they_say_what_the_data_look_like(self):
        n = 256
        flat, spiky = np.full(n, 1000), np.where(np.arange(n) % 32 == 5, 1000, 0)
        uneven = np.arange(n) % 2 * 1000
        expected = {  # filled, jagged, rough
            "flat": (flat, 1, 0, 0),
            "spiky": (spiky, 1 / 32, 1 / 16, 1 / 2),
            "uneven": (uneven, 1 / 2, 1, 1),
        }
        for x, *values in expected.values():
            for feature, value in zip(("filled", "jagged", "rough"), values, strict=True):
                assert self.read(x, feature)[0] == pytest.approx(value, abs=1 / 64)

    def test_size_and_scale(self):
        x = np.full(100, 50)
        found, curator = self.read(x, "mass", epsilon=2)
        assert found == pytest.approx(4, abs=0.01)  # 5,000 records, noise of scale 1/2
        assert self.read(x, "signal", epsilon=2)[0] == pytest.approx(2, abs=0.01)
        assert self.read(x, "bins")[0] == 2
        assert not self.read(x, "bins")[1].spent
        assert [s.share for s in curator.spent] == [1]

    def test_a_reading_is_as_noisy_as_its_share_is_small(self):
        x = np.full(256, 3)

        def spread(share):
            curators = (Curator.simulated(held(x), epsilon=Fraction(1), seed=s) for s in range(60))
            return np.std([auto.read(c, "filled", share=Fraction(share)) for c in curators])

        assert spread("1/10") < 0.1 < spread("1/200")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("points", "points"),
        ("all-ranges", "ranges"),
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
    assert auto.kind_of(workload.make_workload(spec, 256)) == kind


def test_the_kind_of_rectangles():
    assert auto.kind_of(workload.make_workload("rectangles:50", (20, 20))) == "ranges"
    assert auto.kind_of(workload.make_workload("points", (20, 20))) == "points"


class TestTable:
    def nodes(self, node, way=()):
        """Yield every way from the root to a leaf."""
        if isinstance(node, str):
            yield way, node
            return
        for branch in ("then", "else"):
            yield from self.nodes(node[branch], (*way, node))

    def test_it_is_complete_and_every_way_through_it_can_be_paid(self):
        table = json.loads(auto.TABLE.read_text("utf-8"))
        known = {"bins", "mass", "signal", *auto.FEATURES}
        assert table["version"] >= 1
        assert {kind: set(table[kind]) for kind in ("line", "grid")} == {
            kind: set(asked) for kind, asked in teacher.WORKLOADS.items()
        }
        for kind, domain in (("line", LINE), ("grid", Domain((Integers(0, 7), Integers(0, 7))))):
            for asked, tree in table[kind].items():
                for way, leaf in self.nodes(tree):
                    questions = {(node["feature"], Fraction(node["share"])) for node in way}
                    assert sum(share for _, share in questions) <= Fraction(1, 20)
                    assert {feature for feature, _ in questions} <= known
                    assert leaf in teacher.CANDIDATES[kind, asked]
                    assert variant(leaf, domain).name == leaf

    def test_it_is_small_enough_to_read(self):
        assert len(auto.TABLE.read_text("utf-8").splitlines()) < 200


def test_a_variant_moves_the_split_and_nothing_else():
    plain, moved = make_pipeline("dawa2", LINE), variant("dawa2@0.3", LINE)
    assert (moved.split.partition, moved.split.estimate) == (Fraction("0.3"), Fraction("0.7"))
    assert (moved.partition, moved.estimate, moved.order) == (plain.partition, plain.estimate, plain.order)
    both = variant("sdawa@0.5", LINE).split
    assert both.initialize / both.partition == Fraction("0.9") / Fraction("0.025")
    assert both.estimate == Fraction("0.5")
    assert variant("ahp", LINE) == make_pipeline("ahp", LINE)


class TestChoosing:
    def test_the_charges_are_exact_and_the_release_says_all(self, asking):
        x = np.full(4096, 40)
        release = run(x)
        found = release.parameters["found"]
        assert [q["feature"] for q in found["features"]] == ["rough", "mass"]
        assert found["choice"] == "dawa2@0.3"
        assert found["share_of_features"] == "9/200"
        assert found["table"] == 7
        assert [c.share for c in release.charges[:2]] == [Fraction(1, 50), Fraction(1, 40)]
        assert sum(c.share for c in release.charges) == 1
        assert sum(c.epsilon for c in release.charges) == release.epsilon
        assert "dawa2@0.3" in release.parameters["estimate"]["choices"]
        read_back = json.loads(release.to_json())["parameters"]["found"]
        assert read_back["choice"] == found["choice"]
        assert read_back["features"][0] == {
            "feature": "rough",
            "share": "1/50",
            "value": found["features"][0]["value"],
        }

    def test_only_what_is_asked_is_paid(self, asking):
        release = run(np.arange(4096) % 2 * 1000)
        assert release.parameters["found"]["choice"] == "identity"
        assert [c.share for c in release.charges] == [Fraction(1, 50), Fraction(49, 50)]
        assert release.groups.are_singletons
        assert release.error.scale == pytest.approx(50 / 49)

    def test_groups_and_error_are_those_of_the_choice(self, asking):
        release = run(np.zeros(4096, int), epsilon=Fraction(1, 100))
        assert release.parameters["found"]["choice"] == "uniform"
        assert release.groups.k == 1
        assert release.sum(0, 4096).low is not None

    def test_a_choice_that_asks_nothing_is_the_method_itself(self, monkeypatch):
        trees = dict.fromkeys(("points", "ranges", "prefixes"), "ahp")
        monkeypatch.setattr(auto, "table", lambda: {"version": 1, "line": trees})
        x = np.arange(64)
        assert np.array_equal(run(x, seed=5).raw, run(x, seed=5, method="ahp").raw)

    def test_noise_beyond_all_counts_asks_nothing(self, asking):
        release = run(np.arange(256), epsilon=Fraction(1, 10**9))
        assert release.parameters["found"]["choice"] == "identity"
        assert [c.share for c in release.charges] == [1]

    def test_a_table_that_leads_nowhere_is_refused_before_anything_is_paid(self, asking):
        domain, queries = LINE, workload.make_workload("points", LINE)
        with pytest.raises(UsageError, match="'uniform', which was not given"):
            dphist.Pipeline(estimate=auto.Auto()).check(domain, queries)

    def test_a_grid_is_read_along_its_curve(self, asking):
        x = np.kron([[0, 900], [900, 0]], np.ones((32, 32), int))  # even in quarters, uneven in rows
        found = run(x).parameters["found"]
        assert found["features"][0]["value"] < 0.2
        assert found["choice"] == "dawa2@0.3"


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 100])
@pytest.mark.parametrize("spec", ["points", "prefixes", "all-ranges"])
def test_any_number_of_bins_and_any_workload(n, spec):
    release = run(np.arange(n), workload=spec)
    assert np.isfinite(release.raw).all()
    assert sum(c.share for c in release.charges) == 1
    spent = Fraction(release.parameters["found"]["share_of_features"])
    assert spent <= Fraction(1, 20)


def test_categories_and_grids():
    labels = tuple("abcdefg")
    release = dphist.from_counts(np.arange(7), epsilon=1, method="auto", edges=Domain((Categories(labels),)))
    assert release.method == "auto"
    for spec in ("points", "rectangles:20"):
        release = run(np.arange(48).reshape(6, 8), workload=spec)
        assert np.isfinite(release.raw).all()
        assert sum(c.share for c in release.charges) == 1


class TestShares:
    @pytest.mark.parametrize("method", ["identity", "sdwf-auto", "dawa2", "uniformgrid", "sdawa", "auto"])
    def test_a_pipeline_can_be_given_a_part_of_the_budget(self, method):
        counts = held(np.arange(64))
        curator = Curator.simulated(counts, epsilon=Fraction(1), seed=3)
        queries = workload.make_workload("points", counts.domain)
        first = curator.measure(dphist.Groups.whole(64), share=Fraction(1, 3))
        make_pipeline(method, counts.domain).values(curator, queries, share=Fraction(2, 3))
        assert first.scale == pytest.approx(3)
        assert sum(s.share for s in curator.spent) == 1

    def test_all_its_shares_shrink_alike(self):
        counts = held(np.arange(64))
        curator = Curator.simulated(counts, epsilon=Fraction(1), seed=3)
        sdawa = make_pipeline("sdawa", counts.domain)
        sdawa.values(curator, workload.make_workload("points", counts.domain), share=Fraction(1, 2))
        parts = sdawa.split.initialize, sdawa.split.partition, sdawa.split.estimate
        assert [s.share for s in curator.spent] == [part / 2 for part in parts]


class TestTeaching:
    def rows(self, errors, said):
        return [
            {"errors": {"points": e}, "features": [f] * teacher.READINGS}
            for e, f in zip(errors, said, strict=True)
        ]

    def reading(self, **values):
        return {f"{f} {s}": values.get(f, 0.0) for f, s in teacher.QUESTIONS}

    def test_a_telling_feature_is_asked_for_at_the_least_price(self):
        errors = [{"a": 1, "b": 3}, {"a": 3, "b": 1}] * 100
        said = [self.reading(rough=0.1), self.reading(rough=0.9)] * 100
        tree = teacher.learn(self.rows(errors, said), "points")
        assert tree == {"feature": "rough", "share": "1/200", "below": 0.5, "then": "a", "else": "b"}

    def test_what_tells_nothing_is_not_asked(self):
        source = np.random.default_rng(1)
        errors = [{"a": 1 + source.random(), "b": 2 + source.random()} for _ in range(200)]
        said = [self.reading(rough=v, mass=4 * v) for v in source.random(200)]
        assert teacher.learn(self.rows(errors, said), "points") == "a"

    def test_what_gains_less_than_it_costs_is_not_asked(self):
        errors = [{"a": 1, "b": 1.004}, {"a": 1.004, "b": 1}] * 100
        said = [self.reading(rough=0.1), self.reading(rough=0.9)] * 100
        assert isinstance(teacher.learn(self.rows(errors, said), "points"), str)

    def test_a_public_number_costs_nothing(self):
        errors = [{"a": 1, "b": 1.02}, {"a": 1.02, "b": 1}] * 100
        said = [self.reading(bins=2.0, rough=0.1), self.reading(bins=3.0, rough=0.9)] * 100
        assert teacher.learn(self.rows(errors, said), "points")["feature"] == "bins"

    def test_bad_failures_count_twice(self):
        errors = [{"a": 1, "b": 1.25}] * 170 + [{"a": 3, "b": 1}] * 30
        assert teacher.learn(self.rows(errors, [self.reading()] * 200), "points") == "b"

    def test_examples_are_the_same_for_everybody_and_different_from_each_other(self):
        made = [teacher.example("line", k) for k in range(8)]
        assert all(np.array_equal(e.counts, teacher.example("line", k).counts) for k, e in enumerate(made))
        assert len({e.counts.tobytes() for e in made}) == 8
        assert len({e.counts.size for e in made}) > 2
        assert teacher.example("grid", 1).counts.ndim == 2
        for kind, k in itertools.product(("line", "grid"), range(40)):
            assert teacher.example(kind, k).counts.sum() >= 29

    def test_every_candidate_is_of_the_catalogue(self):
        names = {label.partition("@")[0] for labels in teacher.CANDIDATES.values() for label in labels}
        assert names <= set(CATALOGUE)
        assert not {label for labels in teacher.CANDIDATES.values() for label in labels} & {"auto"}

    @pytest.mark.slow
    def test_a_study_is_resumed_and_repeats_itself(self, tmp_path, monkeypatch):
        number = next(k for k in range(100) if teacher.example("grid", k).counts.size == 64)
        monkeypatch.setattr(
            teacher, "CANDIDATES", {("grid", "points"): ("identity",), ("grid", "ranges"): ("dawa2",)}
        )
        (first,) = teacher.collect(tmp_path, {"grid": [number]}, jobs=1)
        assert set(first["errors"]["points"]) == {"identity"}
        monkeypatch.setattr(teacher, "study", None)  # it must not be asked again
        (again,) = teacher.collect(tmp_path, {"grid": [number]}, jobs=1)
        assert again == json.loads(json.dumps(first))


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
