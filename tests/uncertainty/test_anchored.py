"""Intervals from the measurement, values from the averaging: exact laws, by enumeration of the noise."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist import cli
from dphist.cli.shown import show_release
from dphist.domain import Categories, Domain, Integers
from dphist.domain.boxes import Boxes
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.curator import Noisy as NoisyCounts
from dphist.release.files import written
from dphist.release.words import methods
from dphist.steps.anchor import anchored, guessed
from dphist.steps.order import hilbert
from dphist.steps.protocols import Estimated
from dphist.uncertainty import noise_law, risk
from dphist.uncertainty.anchored import OUTER, Anchored, moved_into, one_sided_quantile, tilted
from dphist.uncertainty.models import GroupTotals, HatTotals, Unknown
from dphist.uncertainty.reading import error_model_from_dict
from dphist.uncertainty.reconciled import Reconciled
from dphist.uncertainty.risk import Classes, Risk, estimated_risk, public_draws

LEVELS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
FIRST = ("ahp", "sgahp", "dpc", "s2", "noisefirst", "s2+h")  # methods that measure every bin first


def law(scale, tail=1e-14):
    """Return all draws but those of a total probability below the tail, and their probabilities."""
    most = math.ceil(scale * math.log(4 / tail)) + 1
    z = np.arange(-most, most + 1)
    a = math.exp(-1 / scale)
    return z, (1 - a) / (1 + a) * a ** np.abs(z)


def released(method, counts, *, epsilon="0.1", seed=1, workload="points"):
    counts = np.asarray(counts)
    domain = Domain(tuple(Integers(0, n - 1) for n in counts.shape))
    curator = Curator.simulated(Counts(counts, domain), epsilon=Fraction(epsilon), seed=seed)
    pipeline = make_pipeline(method, domain).with_intervals()
    return pipeline.run(curator, make_workload(workload, domain))


def model(n=12, scale=5.0, *, seed=3, guesses=True, shape=None):
    """Return true counts and a model whose values have nothing to do with them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 60, n)
    measured = (
        counts + rng.geometric(1 - math.exp(-1 / scale), n) - rng.geometric(1 - math.exp(-1 / scale), n)
    )
    near = np.where(np.arange(n) % 3 == 0, math.nan, np.maximum(measured + 3, 0))
    values = np.round(rng.uniform(0, 100, n), 3)
    base = GroupTotals(Groups.singletons(n), scale)
    return counts, Anchored(base, measured.astype(float), values, near if guesses else None)


# ---- single bins: tilted intervals ------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.05, 0.4, 1.0, 3.0, 11.0])
@pytest.mark.parametrize("level", LEVELS)
def test_a_tilted_interval_holds_for_every_count_and_every_guess(scale, level):
    z, p = law(scale)
    far = int(6 * scale) + 4
    for guess in (math.nan, 0.0, 2.0, 2.5, float(far)):
        for x in range(2 * far):
            low, high = tilted(x + z.astype(float), np.full(z.size, guess), scale, level)
            assert p[(low <= x) & (x <= high)].sum() >= level - 1e-12, (guess, x)


@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_a_tilted_interval_is_as_narrow_as_it_may_be(scale):
    z, p = law(scale)
    near, far = one_sided_quantile(scale, OUTER * 0.05), one_sided_quantile(scale, (1 - OUTER) * 0.05)
    assert p[z > near].sum() <= 0.045 < p[z > near - 1].sum()
    assert p[z > far].sum() <= 0.005 < p[z > far - 1].sum()
    low, high = tilted(np.array([100.0]), np.array([100.0]), scale, 0.95)
    assert (low[0], high[0]) == (100 - near, 100 + near)  # as measured: a guess that is right narrows it
    low, high = tilted(np.array([100.0]), np.array([0.0]), scale, 0.95)
    assert (low[0], high[0]) == (100 - far, 100 + near)  # one that is far off widens it, on its own side
    low, high = tilted(np.array([100.0]), np.array([1e6]), scale, 0.95)
    assert (low[0], high[0]) == (100 - near, 100 + far)
    equal = noise_law.quantile(scale, 0.95)
    low, high = tilted(np.array([100.0]), np.array([math.nan]), scale, 0.95)
    assert (low[0], high[0]) == (100 - equal, 100 + equal) and near < equal < far


@pytest.mark.parametrize("tail", [1e-9, 0.005, 0.3, 0.499, 0.5, 0.8])
def test_one_sided_quantiles_are_the_least(tail):
    for scale in (0.1, 1.0, 4.0):
        z, p = law(scale)
        k = one_sided_quantile(scale, tail)
        assert k >= 0 and p[z > k].sum() <= tail + 1e-13
        assert k == 0 or p[z > k - 1].sum() > tail - 1e-13


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("shape", [(8,), (9,), (12,), (31,), (4, 4), (3, 7)])
def test_a_guess_never_sees_the_noise_of_its_own_bin(shape, quick):
    n = math.prod(shape)
    path = hilbert(*shape) if len(shape) == 2 else None
    noisy = np.random.default_rng(0).integers(-5, 80, n).astype(float)
    guesses, doubts = guessed(noisy, 4.0, path, quick=quick)
    assert np.isfinite(doubts).all()
    for i in range(n):
        for other in (-1000.0, 55.0, 1e6):
            moved = noisy.copy()
            moved[i] = other
            again = guessed(moved, 4.0, path, quick=quick)
            assert again[0][i] == guesses[i] and again[1][i] == doubts[i]
    other = guessed(noisy + (np.arange(n) == 1) * 500, 4.0, path, quick=quick)
    assert (other[0] != guesses).any()


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_few_bins_have_no_guess(n):
    assert np.isinf(guessed(np.arange(n) * 1.0, 1.0, None)[1]).all()


@pytest.mark.parametrize("shape", [(10,), (3, 4)])
@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_a_release_holds_every_count_given_the_noise_of_all_other_bins(shape, scale):
    rng = np.random.default_rng(5)
    n, domain = math.prod(shape), Domain(tuple(Integers(0, k - 1) for k in shape))
    counts = np.repeat(rng.integers(0, 40, -(-n // 3)), 3)[:n]
    z, p = law(scale, tail=1e-9)
    others = rng.geometric(1 - math.exp(-1 / scale), n) - rng.geometric(1 - math.exp(-1 / scale), n)
    for i in range(0, n, 3):
        held = 0.0
        for draw, chance in zip(z, p, strict=True):
            noisy = counts + np.where(np.arange(n) == i, draw, others)
            rough = NoisyCounts(noisy, scale)
            values = np.sort(np.maximum(noisy, 0)).astype(float)  # as wrong as can be
            error = anchored(domain, Estimated(values, Unknown("why"), rough=rough))
            low, high = error.bin_intervals(values, level=0.9)
            assert (low <= values).all() and (values <= high).all() and (high >= 0).all()
            held += chance * bool(low[i] <= counts[i] <= high[i])
        assert held >= 0.9 - 1e-8


def test_a_guess_narrows_intervals_where_bins_are_alike():
    counts = np.repeat([0, 500], 128)
    found = released("noisefirst", counts, epsilon="0.1")
    low, high = found.intervals()
    raw = np.maximum(found.error.measured + 30, 0) - np.maximum(found.error.measured - 30, 0)
    assert np.mean(high - low) < 0.93 * np.mean(raw)


# ---- no NaN, whatever the groups --------------------------------------------------------------


@pytest.mark.parametrize("method", FIRST)
@pytest.mark.parametrize("counts", [np.repeat([3, 400], 10), 10_000 * np.arange(20) ** 2, np.zeros(20, int)])
def test_a_method_that_measures_every_bin_first_gives_every_bin_an_interval(method, counts):
    found = released(method, counts)
    assert not found.error.is_calibrated and sum(c.share for c in found.charges) == 1
    assert not [c for c in found.charges if c.purpose.startswith("distances")]
    for ends in (found.intervals(), found.intervals(joint=True), found.intervals(level=0.5)):
        assert np.isfinite(ends).all()
    edges = list(itertools.combinations(range(21), 2))
    answers = found.sum(*np.array(edges).T)
    assert np.isfinite(answers.low).all() and (answers.low <= answers.value).all()
    assert (answers.value <= answers.high).all()
    if found.raw.sum() > 0:
        assert found.quantile(0.5).low is not None and found.mean().low is not None
    assert np.isfinite(found.rebin(2).intervals()).all()


@pytest.mark.parametrize("method", ["ahp", "noisefirst", "dpcube"])
def test_a_grid_has_intervals_of_cells_rectangles_and_both_projections(method):
    counts = np.add.outer(np.arange(6) * 20, np.arange(5) * 7)
    found = released(method, counts)
    assert np.isfinite(found.intervals()).all()
    box = found.sum((1, 4), (2, 5))
    many = found.sum(([1, 0], [4, 6]), ([2, 0], [5, 5]))
    assert (many.value[0], many.low[0], many.high[0]) == (box.value, box.low, box.high)
    cells = Boxes((6, 5), tuple(map(np.array, ([1], [4], [2], [5])))).cells(0)
    scale = found.error.base.scale
    measured = found.error.measured[cells].sum()
    margin = noise_law.sum_quantile(np.array([scale]), np.array([9]), 0.95)
    assert (box.low, box.high) == (max(measured - margin, 0), max(measured + margin, 0))
    for axis in (0, 1):
        line = found.project(axis)
        assert np.isfinite(line.intervals()).all()
        parts = found.error.measured.reshape(6, 5).sum(axis=1 - axis)
        assert np.allclose(line.error.measured_values, parts)
    other = found.project(1)
    assert other.sum(1, 3).low == max(found.error.measured.reshape(6, 5)[:, 1:3].sum() - wide(scale, 12), 0)


def wide(scale, bins):
    return noise_law.sum_quantile(np.array([scale]), np.array([bins]), 0.95)


def test_intervals_start_from_counts_before_small_ones_were_dropped():
    found = released("ahp", np.zeros(64, int), epsilon="0.1")
    assert (found.error.measured < 0).any() and (found.error.measured > 0).any()
    low, high = found.intervals(level=0.5)
    assert ((low > 0) | (high < 5)).any()  # they miss in half of the cases, as they say


def test_a_paid_measurement_of_errors_is_kept():
    domain = Domain((Integers(0, 63),))
    pipeline = dphist.Pipeline(**vars(make_pipeline("sdahp", domain)) | {"calibrate": Fraction(1, 10)})
    curator = Curator.simulated(Counts(np.repeat([5, 80], 32), domain), epsilon=Fraction(1), seed=2)
    assert pipeline.run(curator, make_workload("points", domain)).error.is_calibrated


@pytest.mark.parametrize(
    ("method", "shape"), [("noisefirst", (16,)), ("ahp", (64,)), ("dpc", (16,)), ("ahp", (6, 6))]
)
@pytest.mark.parametrize("data", ["flat", "sparse", "jagged"])
def test_intervals_hold_in_repeatable_releases(method, shape, data):
    rng = np.random.default_rng(8)
    n = math.prod(shape)
    x = {"flat": np.full(n, 30), "sparse": 400 * (np.arange(n) % 7 == 0), "jagged": rng.integers(0, 300, n)}
    counts, bins, ranges = x[data].reshape(shape), [], []
    for seed in range(25):
        found = released(method, counts, seed=seed)
        low, high = found.intervals()
        bins.append(np.mean((low <= counts) & (counts <= high)))
        if len(shape) == 1:
            lo = rng.integers(0, n - 1, 40)
            hi = rng.integers(lo + 1, n + 1)
            asked = found.sum(lo, hi)
            truth = np.array([counts[a:b].sum() for a, b in zip(lo, hi, strict=True)])
            ranges.append(np.mean((asked.low <= truth) & (truth <= asked.high)))
    assert np.mean(bins) > 0.93 and (not ranges or np.mean(ranges) > 0.93)


# ---- ranges: the answer is moved into the interval of what was measured -----------------------


@pytest.mark.parametrize("nearer", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_lies_in_the_interval_of_the_measured_sum_at_every_level(level, nearer):
    _, error = model()
    error = replace(error, nearer=nearer)
    below = np.concatenate(([0], np.cumsum(error.values)))
    lo, hi = map(np.array, zip(*itertools.combinations(range(13), 2), strict=True))
    sums = below[hi] - below[lo]
    answers, low, high = error.range_answers(sums, lo, hi, level=level)
    for a, b, s, answer, least, most in zip(lo, hi, sums, answers, low, high, strict=True):
        measured = error.measured[a:b].sum()
        margin = noise_law.sum_quantile(np.array([5.0]), np.array([b - a]), level)
        if b - a == 1:
            assert answer == pytest.approx(s) and least <= answer <= most
            continue
        usual = wide(5.0, b - a) * (1 - nearer * (b - a) / 12)
        assert answer == pytest.approx(min(max(s, max(measured - usual, 0)), max(measured + usual, 0)))
        assert least == pytest.approx(min(max(measured - margin, 0), answer))
        assert most == pytest.approx(max(max(measured + margin, 0), answer))
    assert (answers != sums).any()


def test_rectangles_and_scattered_bins_are_moved_as_ranges_are():
    error = replace(model(guesses=False)[1], nearer=0.5)
    boxes = Boxes((3, 4), tuple(map(np.array, ([0, 1], [3, 3], [0, 1], [4, 3]))))
    sums = np.array([error.values[boxes.cells(i)].sum() for i in range(2)])
    answers, low, high = error.boxes_answers(sums, boxes, level=0.9)
    for i in range(2):
        one = error.cells_answer(float(sums[i]), boxes.cells(i), level=0.9)
        assert one == pytest.approx((answers[i], low[i], high[i]))
    measured, usual = error.measured[boxes.cells(1)].sum(), wide(5.0, 4) * (1 - 0.5 * 4 / 12)
    assert answers[1] == pytest.approx(np.clip(sums[1], max(measured - usual, 0), measured + usual))
    assert answers[1] != pytest.approx(sums[1])


def test_no_bins_are_none_whatever_they_are_moved_by():
    at = np.array([3])
    for nearer in (0.0, 0.5):
        error = replace(model()[1], nearer=nearer)
        assert [float(x[0]) for x in error.range_answers(np.zeros(1), at, at, level=0.95)] == [0, 0, 0]
        assert ("a part of it for many bins" in error.description) == (nearer > 0)


def test_releases_made_before_are_moved_as_they_were():
    error = replace(model()[1], nearer=0.5)
    described = error.to_dict()
    again = error_model_from_dict(described, 12)
    assert again.nearer == 0.5 and again.transposed(3).nearer == 0.5
    del described["nearer"]
    assert error_model_from_dict(described, 12).nearer == 0.0
    assert "nearer" not in model()[1].to_dict()
    whole = np.array([error.values.sum()]), np.array([0]), np.array([12])
    before, now = (e.range_answers(*whole, level=0.95) for e in (model()[1], error))
    assert abs(now[0] - error.measured.sum()) < abs(before[0] - error.measured.sum())
    assert before[1:] == now[1:]  # intervals are what they were


@pytest.mark.parametrize(
    ("method", "workload", "nearer"),
    [("average", "points", 0.5), ("dawa3", "ranges", 0.5), ("ahp", "points", 0.0), ("dpc", "points", 0.0)],
)
def test_only_what_was_measured_with_all_of_the_budget_draws_sums_nearer(method, workload, nearer):
    """Rough counts have a part of it, and the values made of a second measurement know better."""
    assert released(method, np.arange(100) % 7 * 50, workload=workload).error.nearer == nearer


@pytest.mark.parametrize("part", [-0.1, 1.1, math.nan])
def test_intervals_do_not_become_narrower_than_nothing(part):
    with pytest.raises(UsageError, match="from 0 to 1"):
        replace(model()[1], nearer=part)


def test_the_total_of_averaged_bins_is_about_as_good_as_what_was_measured():
    """Averages of a rough field are biased: their sum, moved into the whole interval, is off by more."""
    counts = np.random.default_rng(2).poisson(np.random.default_rng(1).gamma(0.3, 40, (32, 32)))
    off = []
    for seed in range(24):
        found = released("average", counts, epsilon="0.1", seed=seed)
        off.append((found.total().value - counts.sum(), found.error.measured.sum() - counts.sum()))
    mine, raw = np.abs(off).mean(axis=0)
    assert mine < 1.15 * raw


def test_what_is_not_known_moves_nothing():
    nan = np.array([math.nan])
    answers, low, high = moved_into(np.array([7.0]), (nan, nan), (nan, nan))
    assert answers[0] == 7 and np.isnan([low[0], high[0]]).all()


def test_the_range_of_one_bin_is_that_bin():
    _, error = model()
    low, high = error.bin_intervals(error.values, level=0.95)
    answers = error.range_answers(error.values, np.arange(12), np.arange(1, 13), level=0.95)
    assert np.allclose(answers, (error.values, low, high))
    assert error.cells_answer(error.values[4], np.array([4]), level=0.95) == pytest.approx(
        (error.values[4], low[4], high[4])
    )


def test_symmetric_margins_contain_the_intervals():
    _, error = model()
    for level in (0.5, 0.95):
        low, high = error.bin_intervals(error.values, level=level)
        margins = error.bin_margins(level=level)
        assert np.allclose(margins, np.maximum(error.values - low, high - error.values))
        low, high = error.bin_intervals(error.values, level=level, joint=True)
        assert np.allclose(error.joint(level=level), np.maximum(error.values - low, high - error.values))
        lo, hi = np.array([0, 2]), np.array([12, 7])
        sums = np.array([error.values[a:b].sum() for a, b in zip(lo, hi, strict=True)])
        _, low, high = error.range_answers(sums, lo, hi, level=level)
        margins = error.margins(lo, hi, level=level)
        assert (sums - margins <= low + 1e-9).all() and (high <= sums + margins + 1e-9).all()
        assert error.margin(2, 7, level=level) == margins[1]
        cells = np.array([1, 4, 5])
        value = error.values[cells].sum()
        _, least, most = error.cells_answer(value, cells, level=level)
        assert error.cells_margin(cells, level=level) == pytest.approx(max(value - least, most - value))
    boxes = Boxes((3, 4), tuple(map(np.array, ([0, 1], [2, 3], [1, 0], [3, 4]))))
    sums = np.array([error.values[boxes.cells(i)].sum() for i in range(2)])
    _, low, high = error.boxes_answers(sums, boxes, level=0.95)
    assert np.allclose(error.boxes_margins(boxes, level=0.95), np.maximum(sums - low, high - sums))


def test_quantiles_means_and_shares_are_bounded_by_what_was_measured():
    n = 40
    counts = np.repeat([100, 300], n // 2)
    scale, domain = 4.0, Domain((Integers(0, n - 1),))
    noise = np.random.default_rng(1).integers(-6, 7, n)
    values = np.r_[np.full(20, 500.0), np.zeros(20)]  # an averaging that is quite wrong
    error = Anchored(GroupTotals(Groups.singletons(n), scale), (counts + noise).astype(float), values)
    found = dphist.Release.from_dict(json.loads(written(_document(domain, values, error))))
    below = np.concatenate(([0], np.cumsum(counts))) / counts.sum()
    for edge in (3, 20, 33):
        share = found.cdf(edge)
        assert share.low <= below[edge] <= share.high
    mean = float(np.arange(n) @ counts) / counts.sum()
    assert found.mean().low <= mean <= found.mean().high and found.mean().low <= found.mean().value
    median = found.quantile(0.5)
    assert median.low <= 26.7 <= median.high and median.low <= median.value <= median.high
    nothing = Anchored(error.base, np.zeros(n) - 1, values)
    empty = dphist.Release.from_dict(json.loads(written(_document(domain, values, nothing))))
    assert (empty.mean().low, empty.mean().high) == (0, n)


def _document(domain, values, error):
    made = dphist.from_counts(np.zeros(domain.shape, int), epsilon=1).to_dict()
    n = values.size
    return made | {
        "domain": domain.to_dict(),
        "groups": {"kind": "singletons", "n": n},
        "raw": values.tolist(),
        "error": error.to_dict(),
    }


def test_coarser_bins_are_moved_into_what_was_measured_too():
    counts = np.r_[np.full(32, 2), np.full(32, 3)]
    found = released("ahp", counts, epsilon="0.05", seed=3)
    coarse = found.rebin(32)
    answers = found.sum([0, 32], [32, 64])
    assert np.allclose(coarse.raw, answers.value)
    assert np.allclose(coarse.intervals(), (answers.low, answers.high))
    assert coarse.sum(0, 64).low == found.total().low
    low, high = coarse.intervals(joint=True)
    assert (low <= coarse.intervals()[0]).all() and (high >= coarse.intervals()[1]).all()


# ---- groups -----------------------------------------------------------------------------------


def test_a_group_moved_to_add_up_keeps_the_interval_of_its_measurement():
    _, error = model()
    moved = np.linspace(-30, 40, 12)
    within = Reconciled(error, 12, 1.0, moved)
    values = error.values + moved
    low, high = within.bin_intervals(values, level=0.95)
    before = error._measured_ends(0.95)
    assert np.allclose(low, np.minimum(before[0], values)) and np.allclose(
        high, np.maximum(before[1], values)
    )
    sums = np.array([values.sum()])
    ends = np.array([0]), np.array([12])
    answer, least, most = within.range_answers(sums, *ends, level=0.95)
    assert answer == sums and least <= answer <= most
    assert least == min(error.range_answers(sums, *ends, level=0.95)[1], sums)
    assert within.cells_answer(values[[0, 5]].sum(), np.array([0, 5]), level=0.9)[0] == values[[0, 5]].sum()
    box = Boxes((12,), (np.array([2]), np.array([6])))
    assert np.allclose(
        within.boxes_answers(values[2:6].sum(keepdims=True), box, level=0.9),
        within.range_answers(values[2:6].sum(keepdims=True), *box.ends, level=0.9),
    )
    assert within.measured_values is error.measured and within.weighted_margin(np.ones(12), level=0.9)
    plain = Reconciled(error.base, 12, 1.0, moved)
    assert plain.measured_values is None and plain.weighted_margin(np.ones(12), level=0.9) is None


def test_groups_of_averaged_bins_have_intervals_on_every_level(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = {"a": [5] * 8, "b": [40] * 8, "c": [0] * 8}
    rows = [(g, i) for g, row in counts.items() for i, k in enumerate(row) for _ in range(k)]
    data = {"g": [g for g, _ in rows], "x": [x for _, x in rows]}
    pd = pytest.importorskip("pandas")
    found = dphist.histogram(
        pd.DataFrame(data),
        column="x",
        bins=Integers(0, 7),
        epsilon=1,
        method="noisefirst",
        by=("all", "g"),
        groups=list(counts),
    )
    for level in ("all", "g"):
        low, high = found.intervals(of=level)
        assert np.isfinite(low).all() and (low <= found.raw(level)).all() and (found.raw(level) <= high).all()
    one = found["b"]
    assert one.sum(0, 4).low is not None and found.sum(0, 4, groups=["b"]).low == one.sum(0, 4).low
    both = found.sum(2, 6, groups=["b", "c"])
    measured = sum(found.levels[-1].error(i).measured_values[2:6].sum() for i in (1, 2))
    margin = noise_law.sum_quantile(np.array([found.levels[-1].error(1).bin_scale]), np.array([8]), 0.95)
    assert both.value == pytest.approx(found.raw()[1:, 2:6].sum())
    assert both.low == pytest.approx(min(max(measured - margin, 0), both.value))
    assert both.high == pytest.approx(max(measured + margin, both.value)) and "unbiased" in both.note
    assert found.sum(2, 6).low is not None and found.sum(2, 6, groups=["b", ("g", "c")]).low == both.low
    found.save("groups.parquet")
    again = dphist.load("groups.parquet")
    assert np.array_equal(again.intervals()[0], found.intervals()[0])


# ---- the squared error ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize(
    "g", [lambda y: y**2, lambda y: y > 3, lambda y: np.maximum(y, 0), lambda y: np.sin(y**3 / 7)]
)
def test_steins_identity_of_the_discrete_laplace_law(scale, g):
    z, p = law(scale, tail=1e-13)
    a = math.exp(-1 / scale)
    r = (1 + a) / (1 - a)
    x = 2
    left = (p * z * g(x + z)).sum()
    right = r * sum(q * np.sign(w) * (p * g(x + z + w)).sum() for w, q in zip(z, p, strict=True))
    assert left == pytest.approx(right, abs=1e-7 * scale**3)


def test_the_squared_error_is_right_on_average_for_any_averaging(monkeypatch):
    scale, x = 0.6, np.array([3.0, 1.0])
    z, p = law(scale, tail=1e-7)

    def average(y):
        one, two = y[..., 0], y[..., 1]
        return np.stack((np.maximum(one + 0.4 * two, 0.0), np.abs(two) ** 0.5 + (one > 2)), axis=-1)

    moves = {}
    monkeypatch.setattr(risk, "public_draws", lambda measured, scale: moves["z"])
    truth = expected = 0.0
    for (one, two), chance in zip(itertools.product(z, z), np.outer(p, p).ravel(), strict=True):
        if chance < 1e-12:
            continue
        y = x + np.array([one, two])
        truth += chance * np.mean((average(y) - x) ** 2)
        for move, likely in zip(z, p, strict=True):
            moves["z"] = np.array([move, move], dtype=float)
            expected += chance * likely * estimated_risk(y, average(y), scale, average, None).mean
    assert expected == pytest.approx(truth, rel=1e-4)


def test_public_draws_have_the_law_and_depend_on_nothing_but_the_release():
    measured = np.arange(200_000.0)
    for scale in (0.5, 6.0):
        draws = public_draws(measured, scale)
        v = noise_law.variance(scale)
        assert abs(draws.mean()) < 5 * math.sqrt(v / draws.size)
        assert draws.var() == pytest.approx(v, rel=0.05)
        assert np.mean(np.abs(draws) > 2 * scale) == pytest.approx(noise_law.tail(scale, 2 * scale), rel=0.05)
        assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.02
        assert np.array_equal(draws, public_draws(measured, scale))
    assert not np.array_equal(draws, public_draws(measured + 1, 6.0))


@pytest.mark.parametrize("n", [64, 2048])
def test_the_squared_error_is_near_the_truth_in_repeatable_releases(n):
    rng = np.random.default_rng(4)
    scale, counts = 10.0, np.repeat(rng.integers(0, 200, n // 16), 16)

    def average(y):
        wide = np.concatenate((y[..., :1], y, y[..., -1:]), axis=-1)
        return (wide[..., :-2] + 2 * y + wide[..., 2:]) / 4

    told, true, errors = [], [], []
    for _ in range(60 if n == 64 else 8):
        p = 1 - math.exp(-1 / scale)
        measured = (counts + rng.geometric(p, n) - rng.geometric(p, n)).astype(float)
        found = estimated_risk(measured, average(measured), scale, average, np.arange(n) * 1.0)
        told.append(found.mean)
        true.append(np.mean((average(measured) - counts) ** 2))
        errors.append(found.error)
    assert abs(np.mean(told) - np.mean(true)) < 4 * np.mean(errors) / math.sqrt(len(told))
    assert 0.4 < np.std(np.array(told) - true) / np.mean(errors) < 2.5
    assert (found.classes is None) == (n < 1024)


def test_the_squared_error_is_as_sure_as_it_says_where_averaging_changes_nothing():
    rng, scale, n = np.random.default_rng(5), 5.0, 100
    p, off, errors = 1 - math.exp(-1 / scale), [], []
    for _ in range(400):
        noise = (rng.geometric(p, n) - rng.geometric(p, n)).astype(float)
        found = estimated_risk(noise, noise, scale, lambda y: y, None)
        off.append(found.mean - np.mean(noise**2))
        errors.append(found.error)
    assert np.std(off) == pytest.approx(np.mean(errors), rel=0.15)


def test_the_squared_error_of_nothing_and_of_very_many_bins_is_not_estimated():
    assert estimated_risk(np.zeros(4), np.zeros(4), 1e-9, lambda y: y, None) is None
    many = np.zeros(risk._MOST + 1)
    assert estimated_risk(many, many, 1.0, lambda y: pytest.fail("it takes too long"), None) is None
    runs = []
    part = np.zeros(risk._PARTS * risk._MOVED)
    found = estimated_risk(part, part, 1.0, lambda y: runs.extend(y) or y * 0, np.zeros(part.size))
    assert len(runs) == 2 and found.classes.means.size == 4
    assert found.mean == pytest.approx(-noise_law.variance(1.0))  # zero is right, and here nothing is noisy


def test_moving_many_bins_at_once_changes_the_estimate_little():
    from dphist.kernels.averaging.partitions import dyadic_average

    rng = np.random.default_rng(7)
    x, scale, told, true = np.repeat(rng.integers(0, 300, 32), 16), 10.0, [], []
    p = 1 - math.exp(-1 / scale)
    for _ in range(4):
        measured = (x + rng.geometric(p, x.size) - rng.geometric(p, x.size)).astype(float)
        values = dyadic_average(measured, scale)[0]
        told.append(estimated_risk(measured, values, scale, lambda y: dyadic_average(y, scale)[0], None))
        true.append(np.mean((values - x) ** 2))
    off = np.mean([found.mean for found in told]) - np.mean(true)
    assert abs(off) < 3 * np.mean([found.error for found in told]) / 2


def test_words_say_whether_the_squared_error_can_be_told_from_nothing():
    assert "about 3, at most about 3.32" in Risk(9.0, 1.0).description
    few = Risk(1.0, 4.0).description
    assert "at most about 3" in few and "it may be much less" in few
    assert "at most about 2" in Risk(-5.0, 2.0).description
    for bad in (lambda: Risk(math.nan, 1.0), lambda: Risk(1.0, -1.0)):
        with pytest.raises(UsageError):
            bad()
    with pytest.raises(UsageError):
        Classes(np.array([0, 2]), np.array([1.0, 1.0]), np.array([1.0, 1.0]))


def test_the_squared_error_is_shown_with_the_release(tmp_path, monkeypatch, capsys):
    values = np.full(16, 40.0)
    error = Anchored(GroupTotals(Groups.singletons(16), 10.0), values, values, None, Risk(9.0, 0.5))
    domain = Domain((Integers(0, 15),))
    found = dphist.Release.from_dict(json.loads(written(_document(domain, values, error))))
    words = "Root mean square error of this release: about 3, at most"
    assert words in found._repr_html_()
    assert any(words in line for line in methods(found))
    show_release(found)
    assert words in " ".join(capsys.readouterr().out.split())
    found.save(tmp_path / "r.json")
    monkeypatch.setattr("sys.argv", ["dphist", "query", str(tmp_path / "r.json"), "2", "5"])
    with suppress(SystemExit):
        cli.main()
    assert words in " ".join(capsys.readouterr().err.split())
    plain = dphist.from_counts([1, 2, 3], epsilon=1, method="identity")
    assert "mean square" not in plain._repr_html_() and plain.error.accuracy == ""


def test_intervals_of_most_bins_are_narrower_and_asked_for_by_name():
    rng = np.random.default_rng(2)
    n, scale = 2048, 10.0
    counts = np.full(n, 40)
    measured = (counts + rng.geometric(1 - math.exp(-0.1), n) - rng.geometric(1 - math.exp(-0.1), n)).astype(
        float
    )
    values = np.full(n, 40.0)
    classes = Classes(np.arange(n) * 2 // n, np.array([4.0, 9000.0]), np.array([0.4, 1.0]))
    error = Anchored(
        GroupTotals(Groups.singletons(n), scale), measured, values, None, Risk(9.0, 0.5, classes)
    )
    found = dphist.Release.from_dict(
        json.loads(written(_document(Domain((Integers(0, n - 1),)), values, error)))
    )
    low, _ = found.intervals()
    narrow = found.intervals(most=True)
    half = math.log(20) / math.sqrt(2) * math.sqrt(4 + 2.5 * 0.4)
    assert np.allclose(narrow[1][: n // 2] - 40, half) and np.allclose(narrow[0][: n // 2], 40 - half)
    assert np.array_equal(narrow[0][n // 2 :], low[n // 2 :])  # there the others are no narrower
    with pytest.raises(UsageError, match="not for both"):
        found.intervals(most=True, joint=True)
    with pytest.raises(UsageError, match=r"1,024 bins or more"):
        dphist.from_counts([1, 2, 3], epsilon=1).intervals(most=True)
    moved = found.error.transposed(32)
    assert np.array_equal(moved.risk.classes.of, classes.of.reshape(32, -1).T.ravel())


# ---- files and bad input ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: released("ahp", np.arange(24) * 9), lambda: released("dpcube", np.eye(6, dtype=int) * 90)],
)
def test_an_anchored_release_reads_back(make, tmp_path):
    found = make()
    assert found.to_dict()["error"]["kind"] == "anchored" and "values" not in found.to_dict()["error"]
    for again in (
        dphist.Release.from_dict(found.to_dict()),
        pickle.loads(pickle.dumps(found)),
        dphist.load(found.save(tmp_path / "r.json")),
        dphist.load(found.save(tmp_path / "r.parquet")),
        dphist.load(found.export(tmp_path / "t.csv")),
    ):
        assert again == found
        assert np.array_equal(again.intervals(), found.intervals()) and again.total() == found.total()
    if len(found.domain.axes) == 1:
        coarse = found.rebin(2)
        assert dphist.Release.from_dict(coarse.to_dict()) == coarse
        assert np.array_equal(dphist.Release.from_dict(coarse.to_dict()).intervals(), coarse.intervals())


def test_the_note_says_where_intervals_come_from_and_what_bounding_leaves_out():
    domain = Domain((Integers(0, 15),))
    counts = Counts(np.arange(16) * 10, domain, 3)
    curator = Curator.simulated(counts, epsilon=Fraction(1), seed=1)
    found = make_pipeline("noisefirst", domain).run(curator, make_workload("points", domain))
    for note in (
        found.sum(2, 9).note,
        found.total().note,
        found.count(3).note,
        found.sum([0, 1], [3, 5]).note,
    ):
        assert "unbiased measurement" in note and "moved into" in note
        assert "not in any interval" in note  # what contribution bounding left out


def test_what_does_not_fit_is_refused():
    base = GroupTotals(Groups.singletons(3), 1.0)
    for wrong in (np.zeros(2), np.array([0, math.nan, 1]), np.zeros((3, 1))):
        with pytest.raises(UsageError):
            Anchored(base, wrong, np.zeros(3))
    with pytest.raises(UsageError, match="guesses"):
        Anchored(HatTotals(3, "prefixes", 1.0), np.zeros(3), np.zeros(3), np.zeros(3))
    with pytest.raises(UsageError, match="classes"):
        classes = Classes(np.array([0, 0]), np.array([1.0]), np.array([1.0]))
        Anchored(base, np.zeros(3), np.zeros(3), None, Risk(1.0, 1.0, classes))


@pytest.mark.parametrize("epsilon", ["1e-9", "1e6"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_bins_and_extreme_epsilons_have_finite_intervals(n, epsilon):
    found = released("noisefirst", np.arange(n) * 1000, epsilon=epsilon)
    assert np.isfinite(found.intervals()).all() and found.total().low is not None
    low, high = found.intervals()
    assert (low <= found.raw).all() and (found.raw <= high).all()


def test_labels_are_summed_with_the_law_of_their_number():
    found = dphist.from_counts([30, 20, 50, 10, 7], bins=list("abcde"), epsilon=1, method="noisefirst")
    estimate = found.sum("a", "c", "e")
    cells = np.array([0, 2, 4])
    margin = noise_law.sum_quantile(np.array([1.0]), np.array([3]), 0.95)
    measured = found.error.measured[cells].sum()
    assert estimate.high == max(measured + margin, estimate.value) and isinstance(
        found.domain.axis, Categories
    )
