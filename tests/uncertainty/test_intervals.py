"""Calibrated intervals: what they cost, what they rest on, and whether they hold what they say."""

import contextlib
import dataclasses
import json
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dphist
from benchmarks.error import Cell, coverage, main, summary, table
from dphist import cli
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import random
from dphist.errors import PrivacyError, ReleaseFileError, UsageError
from dphist.lab.data import Source
from dphist.methods.catalogue import make_pipeline
from dphist.planning import shapes
from dphist.planning.audit import audit
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import calibrate
from dphist.uncertainty import constants, noise_law
from dphist.uncertainty.bias import fit_bias, isotonic_sums, poisson_mean_deviation
from dphist.uncertainty.calibrated import Calibrated, RoughCounts, Runs
from dphist.uncertainty.models import GroupTotals, TreeTotals
from dphist.uncertainty.reading import error_model_from_dict

ONE = Fraction(1)
SHARED = ("ahp", "sdahp", "sdwf", "dawa", "dawa2", "sa", "s2", "s2+h", "s1+pmm")
SMALL = shapes.draw("hourly", n=256, records=20_000)


def curator(values, *, epsilon=ONE, seed=0, sensitivity=1):
    domain = Domain((Integers(0, len(values) - 1),))
    return Curator.simulated(Counts(np.asarray(values), domain, sensitivity), epsilon=epsilon, seed=seed)


def calibrated(method, *, counts=SMALL, epsilon="0.2", seed=1, calibrate="0.1", workload="random:100"):
    domain = Domain((Integers(0, counts.size - 1),))
    pipeline = dataclasses.replace(make_pipeline(method, domain), calibrate=calibrate)
    door = curator(counts, epsilon=Fraction(epsilon), seed=seed)
    return pipeline.run(door, dphist.workload.make_workload(workload, domain))


# ---- the verb --------------------------------------------------------------------------------------------


def distances(x, groups, centres, classes, grid=1):
    """The twin: one group after the other."""
    out = [0] * (max(classes) + 1)
    order = range(len(x)) if groups.order is None else groups.order.tolist()
    for g in range(groups.k):
        total = sum(x[order[i]] for i in range(groups.starts[g], groups.starts[g + 1]))
        if classes[g] >= 0:
            out[classes[g]] += abs(grid * total - centres[g])
    return out


@st.composite
def asked(draw):
    n = draw(st.integers(1, 8))
    x = draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    order = draw(st.one_of(st.none(), st.permutations(range(n))))
    groups = Groups(np.array([0, *cuts, n]), None if order is None else np.array(order))
    grid = draw(st.sampled_from([1, 4, 256]))
    centres = draw(st.lists(st.integers(-(10**4), 10**4), min_size=groups.k, max_size=groups.k))
    classes = draw(st.lists(st.integers(-1, groups.k - 1), min_size=groups.k, max_size=groups.k))
    classes[0] = max(classes[0], 0)
    return x, groups, centres, classes, grid


def exactly(x, groups, centres, classes, grid):
    sure = curator(np.array(x), epsilon=Fraction(10**9))
    return sure.measure_distances(
        groups, np.array(centres), np.array(classes), grid=grid, share=ONE
    ).values.tolist()


@settings(deadline=None)
@given(asked(), st.data())
def test_distances_agree_with_brute_force_and_move_by_no_more_than_the_record(case, data):
    x, groups, centres, classes, grid = case
    before = exactly(x, groups, centres, classes, grid)
    assert before == distances(x, groups, centres, classes, grid)
    more = list(x)
    more[data.draw(st.integers(0, len(x) - 1))] += 1
    after = exactly(more, groups, centres, classes, grid)
    assert sum(abs(a - b) for a, b in zip(after, before, strict=True)) <= grid


@pytest.mark.parametrize("sensitivity", [1, 3])
def test_the_noise_on_distances_has_the_scale_of_the_unit_and_the_grid(sensitivity):
    n, centres = 20_000, np.zeros(20_000, dtype=np.int64)
    door = curator(np.zeros(n, int), epsilon=Fraction(1, 2), sensitivity=sensitivity)
    noisy = door.measure_distances(Groups.singletons(n), centres, np.arange(n), grid=4, share=Fraction(1, 2))
    scale = 4 * sensitivity / 0.25
    assert noisy.scale == pytest.approx(scale)
    assert noisy.values.var() == pytest.approx(noise_law.variance(scale), rel=0.1)
    assert noisy.values.var() != pytest.approx(noise_law.variance(scale / 1.25), rel=0.1)
    assert door.spent[0].epsilon == Fraction(1, 4) and "distances" in door.spent[0].purpose


def test_huge_distances_are_cut_off_and_never_wrap_around():
    x = np.array([1 << 52, 0, 1 << 52])
    far = np.array([-(1 << 62), 1 << 62, 0])
    found = curator(x, epsilon=Fraction(10**9)).measure_distances(
        Groups.singletons(3), far, np.array([0, 0, 0]), grid=1 << 16, share=ONE
    )
    assert 0 < found.values[0] < 1 << 62


@pytest.mark.parametrize(
    ("centres", "classes", "grid"),
    [
        ([0, 0], [0, 0, 0], 1),
        ([0.5, 0, 0], [0, 0, 0], 1),
        ([0, 0, 0], [0, -2, 0], 1),
        ([0, 0, 0], [-1, -1, -1], 1),
        ([0, 0, 0], [0, 3, 0], 1),
        ([0, 0, 0], [0, 0, 0], 0),
        ([0, 0, 0], [0, 0, 0], 1 << 17),
    ],
)
def test_distances_that_make_no_sense_are_refused_and_cost_nothing(centres, classes, grid):
    door = curator([1, 2, 3])
    with pytest.raises(UsageError):
        door.measure_distances(
            Groups.singletons(3), np.array(centres), np.array(classes), grid=grid, share=ONE
        )
    assert door.spent == ()


def test_only_real_groups_are_measured():
    class Spy(Groups):
        def totals(self, x):
            raise AssertionError("the counts got out")

    zeros = np.zeros(1, dtype=np.int64)
    with pytest.raises(PrivacyError, match="Spy"):
        curator([1, 2, 3]).measure_distances(Spy(np.array([0, 3])), zeros, zeros, grid=1, share=ONE)


@pytest.mark.slow
def test_an_audit_of_distances_finds_no_violation_but_for_half_the_noise():
    domain, centres = Domain((Integers(0, 3),)), np.array([0, 2, 1, 0])

    def mechanism(epsilon):
        def run(counts, trial):
            door = Curator.simulated(Counts(counts, domain), epsilon=epsilon, seed=trial)
            groups = Groups.singletons(4)
            return door.measure_distances(groups, centres, np.arange(4), grid=2, share=ONE).values

        return run

    pair = np.zeros(4, int), np.array([0, 0, 0, 1])
    assert not audit(mechanism(ONE), claim=ONE, trials=2000, pair=pair).violated
    assert audit(mechanism(Fraction(2)), claim=ONE, trials=2000, pair=pair).violated


# ---- what a release pays and says ------------------------------------------------------------------------


@pytest.mark.parametrize("method", SHARED)
def test_a_calibrated_release_spends_what_it_says_and_reads_back(method, tmp_path):
    release = calibrated(method, epsilon="0.1")
    assert sum(charge.share for charge in release.charges) == 1
    assert release.parameters["shares"]["calibrate"] == "1/10"
    low, high = release.intervals()
    assert np.isfinite(low).all() and (high > low).all()
    band = release.intervals(joint=True)
    assert np.isfinite(band[0]).all()
    assert release.sum(3, 100).low is not None
    back = dphist.Release.from_dict(json.loads(release.to_json()))
    assert back == release
    lo, hi = random(256, 200).pairs()
    if isinstance(release.error, Calibrated):
        assert [c.purpose for c in release.charges if "distances" in c.purpose]
        np.testing.assert_array_equal(
            back.error.margins(lo, hi, level=0.9), release.error.margins(lo, hi, level=0.9)
        )
        assert "measured" in release.error.description and "joint band" in release.error.description
    np.testing.assert_array_equal(back.intervals(joint=True), band)
    assert dphist.load(release.save(tmp_path / "r.parquet")) == release


def test_without_calibrating_nothing_changes():
    domain = Domain((Integers(0, 255),))
    plain = make_pipeline("sdahp", domain).run(curator(SMALL, epsilon=ONE), dphist.workload.Points(256))
    assert [charge.share for charge in plain.charges] == [Fraction(9, 10), Fraction(1, 10)]
    assert not plain.error.is_calibrated and "calibrate" not in plain.parameters["shares"]
    assert np.isfinite(plain.intervals()).all()  # by the first measurement
    plain = make_pipeline("sa", domain).run(curator(SMALL, epsilon=ONE), dphist.workload.Points(256))
    assert isinstance(plain.error, GroupTotals) and math.isnan(plain.intervals()[0].min())


@pytest.mark.parametrize("method", ["identity", "h", "hats"])
def test_a_method_that_hides_nothing_keeps_all_of_its_budget(method):
    release = calibrated(method, epsilon="0.1")
    assert sum(charge.share for charge in release.charges) == 1
    assert not [charge for charge in release.charges if "distances" in charge.purpose]
    assert not isinstance(release.error, Calibrated)


@pytest.mark.parametrize(
    ("method", "calibrate", "words"),
    [
        ("efpa", "0.05", "cannot be calibrated"),
        ("dawa", "1.5", "between 0 and 1"),
        ("dawa", 1, "fraction of the budget"),
        ("dawa", "much", "between 0 and 1"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_before_anything_is_spent(method, calibrate, words):
    with pytest.raises(UsageError, match=words):
        dphist.from_counts(SMALL, epsilon=1, method=method, calibrate=calibrate)


def test_the_front_door_takes_calibrate():
    release = dphist.histogram(
        np.arange(500) % 64, bins=64, range=(0, 64), epsilon=1, method="sa", calibrate="0.2"
    )
    assert release.parameters["shares"]["calibrate"] == "1/5"
    small = dphist.from_counts([3, 4, 5], epsilon="0.000001", method="uniform", calibrate="0.1")
    assert np.isfinite(small.intervals()[0]).all()


def test_the_command_line_takes_calibrate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ages.csv").write_text("age\n" + "\n".join(str(i % 90) for i in range(900)) + "\n")
    words = "publish ages.csv --column age --bins 90 --range 0 90 --epsilon 1 --method s2 --calibrate 0.1"
    dphist.Ledger.open("l.db", create=True)
    for more in ("--dry-run", "--ledger l.db --out r.json"):
        monkeypatch.setattr(sys, "argv", ["dphist", *words.split(), *more.split()])
        with contextlib.suppress(SystemExit):
            cli.main()
    said = capsys.readouterr()
    assert "0.1 of epsilon" in said.out and "nothing was calibrated" not in said.err
    assert dphist.load("r.json").parameters["shares"]["calibrate"] == "1/10"
    alone = [*words.replace("s2", "identity").split(), "--ledger", "l.db", "--out", "i.json"]
    monkeypatch.setattr(sys, "argv", ["dphist", *alone])
    with contextlib.suppress(SystemExit):
        cli.main()
    assert "nothing was calibrated, since no bins share a value" in capsys.readouterr().err


def test_a_grid_has_intervals_for_its_cells():
    release = dphist.from_counts(np.arange(64).reshape(8, 8), epsilon=1, method="dawa", calibrate="0.1")
    assert np.isfinite(release.intervals()[0]).all()
    whole = dphist.from_counts(np.arange(64).reshape(8, 8), epsilon=1, method="sdahp", calibrate="0.1")
    assert np.isfinite(whole.intervals()[0]).all() and whole.total().low is not None


@pytest.mark.parametrize(
    "damage",
    [
        {"bias": [1.0]},
        {"classes": [99]},
        {"scale": -1.0},
        {"cuts": [0.0]},
        {"few": 0.0},
        {"few": "wide"},
        {"base": {"kind": "unknown", "reason": "x"}},
    ],
    ids=str,
)
def test_a_damaged_model_is_refused(damage):
    described = calibrated("sa").to_dict()
    if "classes" in damage:
        damage = {"classes": damage["classes"] * len(described["error"]["classes"])}
    with pytest.raises(ReleaseFileError):
        dphist.Release.from_dict(described | {"error": described["error"] | damage})


# ---- the arithmetic --------------------------------------------------------------------------------------


def test_ranges_of_whole_groups_stay_exact_and_levels_widen():
    for method in ("sa", "s2+h", "sdahp"):
        model = calibrated(method).error
        starts = model.groups.starts
        assert model.margin(0, 256, level=0.9) == model.base.margin(0, 256, level=0.9)
        if model.groups.order is None:
            a, b = int(starts[1]), int(starts[-2])
            assert model.margin(a, b, level=0.9) == model.base.margin(a, b, level=0.9)
        lo, hi = random(256, 50).pairs()
        assert (model.margins(lo, hi, level=0.99) > model.margins(lo, hi, level=0.9)).all()
        assert (model.bin_margins(level=0.99) > model.bin_margins(level=0.9)).all()
        assert (model.joint(level=0.99) >= model.joint(level=0.9)).all()
        assert model.margin(7, 7, level=0.9) == 0
        assert model.margin(7, 8, level=0.9) == model.bin_margins(level=0.9)[7]
        with pytest.raises(UsageError):
            model.margin(5, 257, level=0.9)


def test_two_bins_of_a_long_group_have_at_most_twice_the_bias_of_one():
    found = calibrated("sa").error
    assert found.few == constants.SD_OVER_MEAN_DEVIATION_OF_FEW
    group = int(np.argmax(found.groups.sizes))
    size, lo = int(found.groups.sizes[group]), int(found.groups.starts[group])
    assert size > 2 and found.bias[group] > 0
    found = dataclasses.replace(found, half_bias=100 * found.bias)  # so that the few bins are what counts
    noise = found.base.total_noise.variances[group] * (2 / size) ** 2
    bias = 2 * found.few * found.bias[group]
    assert found.margin(lo, lo + 2, level=0.95) == pytest.approx(
        1.95996 * math.hypot(math.sqrt(noise), bias), rel=1e-5
    )
    tail = constants.TAIL_OF_NEIGHBOURS * math.log(20)  # of one bin, at 95 %
    assert 1.95996 * found.few == pytest.approx(tail, rel=1e-4)
    described = found.to_dict()
    del described["few"]
    former = error_model_from_dict(described, 256)
    assert former.few == pytest.approx(math.sqrt(math.pi / 2)) and former.to_dict() == described


def test_the_noise_of_a_range_that_cuts_groups_is_that_of_even_parts():
    groups = Groups(np.array([0, 4, 6, 16]))
    base = GroupTotals(groups, 10.0)
    tree = TreeTotals(groups, 2, False, np.array([np.inf, np.inf, 10.0, 10.0, 10.0]))
    empty = {
        "groups": groups,
        "values": np.zeros(3),
        "bias": np.zeros(3),
        "distances": np.zeros(1),
        "classes": np.zeros(3, dtype=np.int64),
        "scale": 1.0,
        "half_bias": np.zeros(3),
    }
    z = 1.959963984540054
    for model in (Calibrated(base, **empty), Calibrated(tree, **empty)):
        each = noise_law.variance(10.0)
        wide = model.margins(np.array([1, 6, 2]), np.array([11, 9, 4]), level=0.95)
        part = np.array([0.75**2 + 1 + 0.5**2, 0.3**2, 0.5**2])
        np.testing.assert_allclose(wide, z * np.sqrt(part * each), rtol=1e-9)


def test_rough_counts_say_what_the_average_cannot():
    # Two values swapped: the rough counts know on which side the error is, and the interval must reach it.
    order = np.argsort(np.arange(64) % 2, kind="stable")
    groups = Groups(np.array([0, 32, 64]), order)
    counts = np.where(np.arange(64) < 32, 1000, 0)
    model = Calibrated(
        GroupTotals(groups, 5.0),
        groups,
        values=np.array([500.0, 500.0]),
        bias=np.array([500.0, 500.0]),
        distances=np.array([32_000.0]),
        classes=np.array([0, 0]),
        scale=10.0,
        runs=Runs(16.0, 8000.0),
        rough=RoughCounts(counts, 2.0, 0.0),
    )
    assert model.margin(0, 32, level=0.95) == pytest.approx(16_000, rel=0.02)
    assert model.margin(16, 48, level=0.95) < 200  # one half makes up for the other


def test_the_joint_band_is_never_narrower_than_what_is_known():
    for method in ("sa", "dawa", "sdahp", "sdwf"):
        release = calibrated(method)
        band, model = release.error.joint(level=0.95), release.error
        assert (band >= np.maximum(-release.raw, 0) - 1e-9).all(), "a value below zero is at least so far off"
        alone = model.groups.spread(model.groups.sizes) == 1
        if method == "sa" and alone.any():
            assert (band[alone] >= noise_law.quantile(float(np.max(model.base.scale)), 0.95)).all()


def test_merged_bins_add_up_their_band():
    release = calibrated("sa")
    coarse = release.rebin(4)
    assert coarse.sum(0, 64).high == release.sum(0, 64).high
    low, high = coarse.intervals(joint=True)
    fine = release.error.joint(level=0.95).reshape(-1, 4).sum(axis=1)
    np.testing.assert_allclose((high - low) / 2, fine)
    assert dphist.Release.from_dict(json.loads(coarse.to_json())) == coarse


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), min_size=1, max_size=8),
)
def test_rising_means_rise_keep_the_sum_and_leave_rising_ones_alone(pairs):
    sums, sizes = (np.array(a) for a in zip(*pairs, strict=True))
    found = isotonic_sums(sums.astype(float), sizes)
    means = found / sizes
    assert (np.diff(means) >= -1e-9).all()
    assert found.sum() == pytest.approx(sums.sum())
    np.testing.assert_allclose(isotonic_sums(found, sizes), found, atol=1e-9)


def test_the_poisson_distance_is_the_mean_of_the_law():
    for mean in (0.0, 0.05, 0.7, 1.0, 3.4, 20.0, 49.5, 60.0):
        k = np.arange(400)
        logs = k * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in k]) if mean else None
        exact = 0.0 if logs is None else float((np.exp(logs) * abs(k - mean)).sum())
        assert poisson_mean_deviation(np.array([mean]))[0] == pytest.approx(exact, rel=0.01, abs=1e-12)


def test_the_prior_is_enlarged_or_cut_down_to_the_bound():
    noise, prior, weights = np.array([1.0, 2.0]), np.array([3.0, 3.0]), np.array([5, 5])
    expected = float(weights @ np.hypot(noise, prior))

    def total(bias):
        return float(weights @ np.hypot(noise, bias))

    def found(bound):
        return fit_bias(noise, prior, weights, bound)

    np.testing.assert_allclose(found(expected), prior)
    assert total(found(expected + 50)) == pytest.approx(expected + 50)
    assert total(found(expected - 10)) == pytest.approx(expected - 10)
    assert found(-100.0).max() == 0
    uneven = fit_bias(noise, np.array([0.5, 9.0]), weights, 20.0)
    assert uneven[0] == 0.5 and 0.5 < uneven[1] < 9, "the larger ones are cut first"


def test_biases_follow_an_upper_bound_of_the_measured_sums_never_the_bare_ones():
    noise, prior, sizes = np.zeros(4), np.full(4, 0.1), np.full(4, 5)
    classes, sums, scale = np.array([0, 0, 1, 1]), np.array([20.0, 60.0]), 7.0
    found = calibrate._biases(noise, prior, sizes, classes, sums, scale)
    means = [float(sizes[classes == c] @ found[classes == c]) for c in (0, 1)]
    assert means == pytest.approx([20 + 3 * scale, 60 + 3 * scale])


@pytest.mark.parametrize("method", ["dawa", "dawa2", "sa"])
@pytest.mark.parametrize("data", ["smooth", "steps", "sparse", "heaps"])
def test_few_bins_hold_what_they_say_in_repeatable_releases(method, data):
    n, held, ranges = 64, [], []
    domain, rng = Domain((Integers(0, n - 1),)), np.random.default_rng(5)
    counts = shapes.draw(data, n=n, records=20_000, seed=5)
    below = np.concatenate(([0], np.cumsum(counts)))
    pipeline = make_pipeline(method, domain, dphist.workload.AllRanges(n)).with_intervals()
    for seed in range(12):
        door = Curator.simulated(Counts(counts, domain), epsilon=Fraction(1, 50), seed=seed)
        release = pipeline.run(door, dphist.workload.AllRanges(n))
        low, high = release.intervals()
        held.append(np.mean((low <= counts) & (counts <= high)))
        lo = rng.integers(0, n, 50)
        hi = rng.integers(lo + 1, n + 1)
        asked, truth = release.sum(lo, hi), below[hi] - below[lo]
        ranges.append(np.mean((asked.low <= truth) & (truth <= asked.high)))
    assert np.mean(held) > 0.9 and np.mean(ranges) > 0.9


# ---- whether they hold -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "shape", "epsilon"),
    [
        ("sa", "smooth", "1"),
        ("dawa2", "heaps", "0.1"),
        ("sdahp", "power-sorted", "0.1"),
        ("sdwf", "steps", "1"),
    ],
)
def test_intervals_hold_about_as_often_as_they_say(method, shape, epsilon):
    cell = Cell(Source(shape, shape, 1024, 200_000), method, epsilon, "0.05", 15)
    row = coverage(cell)
    assert 0.88 <= row["points"] <= 0.998 and 0.85 <= row["ranges"] <= 0.998 and row["joint"] >= 0.9
    assert row["half_points"] < 12 * row["error_points"]
    # Noise alone would promise far too much: the test must be able to see the difference.
    plain = make_pipeline(method, Domain((Integers(0, 1023),)))
    counts = cell.source.counts()
    estimated = dataclasses.replace(plain, calibrate="0.05").values(
        curator(counts, epsilon=Fraction(epsilon)), random(1024, 100)
    )[1]
    if isinstance(estimated.error, Calibrated):
        bare = dataclasses.replace(estimated.error, bias=np.zeros(estimated.error.groups.k))
        assert (abs(counts - estimated.values) <= bare.bin_margins(level=0.95)).mean() < 0.85


@pytest.mark.slow
def test_the_coverage_benchmark_prints_a_line_per_cell_and_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.error.SHAPES", ("steps",))
    monkeypatch.setattr("benchmarks.error.N", 256)
    main(
        [
            "--data",
            str(tmp_path / "none"),
            "--releases",
            "2",
            "--methods",
            "sa",
            "--jobs",
            "1",
            "--out",
            str(tmp_path),
        ]
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["coverage"] * 3 + ["coverage summary"]
    assert rows[-1] == json.loads(json.dumps(summary("sa", rows[:3])))
    text = (tmp_path / "coverage.md").read_text()
    assert text == table(rows[:3]) and "| steps |" in text


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_so_few_bins_that_a_long_run_is_no_longer_than_a_bin_still_have_intervals(n):
    for seed in range(8):
        counts = Counts(np.arange(n) * 10, Domain((Integers(0, n - 1),)))
        door = Curator.simulated(counts, epsilon=ONE, seed=seed)
        pipeline = dataclasses.replace(make_pipeline("ahp", counts.domain), calibrate=Fraction(1, 20))
        release = pipeline.run(door, dphist.workload.Points(n))
        assert np.isfinite(release.intervals()[0]).all()
        assert math.isfinite(release.total().low)


def test_distances_are_measured_from_what_the_intervals_of_averaged_values_are_about(monkeypatch):
    n = 1024
    x = np.random.default_rng(2).poisson(np.repeat([3, 40, 9, 300], n // 4))
    plan = dphist.Plan(
        bins=Domain((Integers(0, n - 1),)), epsilon="0.1", method="dawa3", workload="random:50"
    )
    asked = []
    measure = Curator.measure_distances

    def recorded(self, groups, centres, *given, grid, **others):
        asked.append(np.asarray(centres) / grid)
        return measure(self, groups, centres, *given, grid=grid, **others)

    monkeypatch.setattr(Curator, "measure_distances", recorded)
    held = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=1)
    model = plan.pipeline.run(held, plan.queries).error
    groups = model.base.groups
    assert np.allclose(groups.spread(model.base.values), model.measured)
    bins = [each for each in asked if each.size == n]
    assert bins and all(np.allclose(each, model.measured, atol=0.01) for each in bins)
    assert not np.allclose(model.values, model.measured, atol=1)


@pytest.mark.parametrize("method", ["hats", "dawa3", "dawa", "privelet"])
def test_quantiles_of_overlapping_sums_have_intervals_by_the_shares_below_all_edges(method):
    x = np.random.default_rng(4).poisson(200 * np.exp(-(((np.arange(101) - 40) / 20) ** 2)))
    below = np.concatenate(([0], np.cumsum(x))) / x.sum()
    plan = dphist.Plan(bins=Domain((Integers(0, 100),)), epsilon="0.05", method=method, workload="ranges")
    held = []
    for seed in range(12):
        noisy = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=seed)
        release = plan.pipeline.run(noisy, plan.queries)
        shares = release.cdf(np.arange(102))
        for q in (0.1, 0.5, 0.9):
            found = release.quantile(q)
            possible = [j for j in range(101) if shares.low[j] <= q <= shares.high[j + 1]]
            assert found.low == min(possible[0], found.value) and "shares" in found.note
            assert found.high == max(possible[-1] + 1, found.value)
            own = int(np.searchsorted(below, q, side="right")) - 1  # the bin that has the quantile
            held.append(found.low <= own and own + 1 <= found.high)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize(("n", "workload"), [(40, "ranges"), (64, "prefixes"), (100, "random:300")])
def test_ranges_picked_after_looking_hold_all_at_once_with_noise_that_agrees(n, workload):
    plan = dphist.Plan(
        bins=Domain((Integers(0, n - 1),)), epsilon="0.05", method="dawa3", workload=workload, calibrate=0
    )
    x = 9_000 + np.arange(n) % 2 * 20_000  # so rough that no bins are grouped
    lo, hi = np.triu_indices(n + 1, 1)
    below = np.concatenate(([0], np.cumsum(x)))
    held, over = [], np.zeros(0)
    for seed in range(150):
        noisy = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=seed)
        release = plan.pipeline.run(noisy, plan.queries)
        assert release.error.base.agreeing
        found = release.sum(lo, hi, joint=True)
        held.append(((found.low <= below[hi] - below[lo]) & (below[hi] - below[lo] <= found.high)).all())
        if seed == 0:
            assert "simulated" in found.note
            alone = release.sum(lo, hi)
            over = (found.high - found.low) / (alone.high - alone.low)
    assert np.mean(held) >= 0.9
    assert 1.5 < np.median(over) < 3, "with Bonferroni's inequality, four times as wide as one alone"


def test_a_joint_band_of_merged_groups_lies_between_nothing_and_the_total():
    n = 1024
    x = np.random.default_rng(5).poisson(np.repeat([2, 30, 5, 12], n // 4))
    plan = dphist.Plan(bins=Domain((Integers(0, n - 1),)), epsilon="0.05", method="dawa3", workload="ranges")
    held = []
    for seed in range(12):
        noisy = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=seed)
        release = plan.pipeline.run(noisy, plan.queries)
        assert release.error.is_calibrated
        coarse = release.rebin(64)
        low, high = coarse.intervals(joint=True)
        exact = x.reshape(-1, 64).sum(axis=1)
        held.append(((low <= exact) & (exact <= high)).all())
        assert (low >= np.minimum(coarse.raw, 0)).all()
        assert (high <= np.maximum(release.total(level=0.975).high, coarse.raw) + 1e-6).all()
        assert (low <= coarse.raw).all() and (coarse.raw <= high).all()
    assert np.mean(held) > 0.9
