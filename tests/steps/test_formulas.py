"""Error formulas, the public halves of rough counts, and the penalty they choose."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.errors import UsageError
from dphist.methods import catalogue
from dphist.steps.partition import Optimal, formulas
from dphist.steps.partition.formulas import Ahp, Constant, Halves, Logarithmic, Unbiased, public_noise
from dphist.uncertainty import noise_law

SCALES = (0.3, 1.0, 4.0, 40.0)


def noisy(x, scale, seed):
    rng = np.random.default_rng(seed)
    p = -math.expm1(-1 / scale)
    return np.asarray(x) + rng.geometric(p, len(x)) - rng.geometric(p, len(x))


def auto(formula, x, scale, seed, *, final, ordered=False):
    """The number of groups with the published penalty and with the chosen one, and the chosen starts."""
    h = noisy(x, scale, seed)
    h = np.sort(h) if ordered else h
    rough = noise_law.variance(scale)
    old = Optimal(formula).cut(h, rough, final)
    new = Optimal(formula, penalty="auto").cut(h, rough, final)
    return old.size - 1, new.size - 1, new


def with_auto(name, n):
    pipeline = catalogue.make_pipeline(name, Domain((Integers(0, n - 1),)))
    return dataclasses.replace(pipeline, partition=dataclasses.replace(pipeline.partition, penalty="auto"))


def test_the_published_penalties():
    rough, final = 200.0, 800.0
    assert Ahp().penalty(rough=rough, final=final, n=10) == (0, 800, 0)
    assert Unbiased().penalty(rough=rough, final=final, n=10) == (200, 800, 0)
    assert Unbiased(weighted=True).penalty(rough=rough, final=final, n=10) == (200, 800, 4)
    assert Unbiased(extra=2).penalty(rough=rough, final=final, n=10) == (600, 800, 0)
    assert Constant().penalty(rough=rough, final=final, n=10) == (600, 0, 0)
    assert Constant(extra=1).penalty(rough=rough, final=final, n=10) == (800, 0, 0)
    assert Logarithmic().penalty(rough=rough, final=final, n=1) == (200, 0, 0)
    assert Logarithmic().penalty(rough=rough, final=final, n=100).beta == pytest.approx(400 * math.log(100))


@pytest.mark.parametrize("extra", [-1, math.nan, math.inf])
def test_a_penalty_below_nothing_is_refused(extra):
    with pytest.raises(UsageError, match="extra"):
        Unbiased(extra=extra)
    with pytest.raises(UsageError, match="extra"):
        Constant(extra=extra)


def test_an_unknown_penalty_is_refused():
    with pytest.raises(UsageError, match="published"):
        Optimal(penalty="automatic")


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_cautious_takes_no_noise_for_filled_bins_and_finds_those_that_are(scale):
    """Noise alone lifts one of n empty bins by ln n scales, which auto believes at times."""
    x = np.zeros(2048, dtype=np.int64)
    x[700] = round(100 * scale)
    rough, final = noise_law.variance(scale), noise_law.variance(50 * scale)
    found = {"auto": [], "cautious": []}
    for seed in range(20):
        h = noisy(x, scale, seed)
        for penalty, cuts in found.items():
            cuts.append(Optimal(Unbiased(weighted=True), penalty=penalty).cut(h, rough, final).tolist())
    assert sum(cut != [0, 700, 701, 2048] for cut in found["cautious"]) <= 1
    assert sum(cut != [0, 700, 701, 2048] for cut in found["auto"]) >= 2


def test_cautious_leaves_bins_alone_that_all_differ():
    x = np.random.default_rng(5).integers(0, 10_000, 500)
    h = noisy(x, 1.0, 1)
    for penalty in ("auto", "cautious"):
        assert Optimal(Unbiased(weighted=True), penalty=penalty).cut(h, 2.0, 2e4).size > 450


@pytest.mark.parametrize("scale", SCALES)
def test_public_noise_has_the_law_it_claims(scale):
    n = 200_000
    w = public_noise(np.zeros(n, dtype=np.int64), noise_law.variance(scale), 0)
    assert w.dtype == np.int64
    a = math.exp(-1 / scale)
    for k in range(-6, 7):
        p = (1 - a) / (1 + a) * a ** abs(k)
        assert abs((w == k).sum() - n * p) < 5 * math.sqrt(n * p) + 5
    assert w.var() == pytest.approx(noise_law.variance(scale), rel=0.05)
    assert abs(w.mean()) < 5 * math.sqrt(noise_law.variance(scale) / n)


def test_public_noise_repeats_itself_and_depends_on_counts_and_turn():
    h = np.arange(100_000)
    one = public_noise(h, 50.0, 0)
    np.testing.assert_array_equal(one, public_noise(h.copy(), 50.0, 0))
    for other in (public_noise(h, 50.0, 1), public_noise(h + (h == 7), 50.0, 0)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(one, h)[0, 1]) < 0.02
    assert (public_noise(h, 1e-200, 0) == 0).all()  # no noise to imitate
    assert np.abs(public_noise(h, 2.0**80, 0)).max() < 2**46


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("x", [0, 7])
def test_the_second_half_knows_the_count_whatever_the_first_is(scale, x):
    """E[second | first] = x and E[second^2 - excess | first] = x^2, exactly, whatever first is."""
    reach = math.ceil(60 * scale)
    noise = np.arange(-reach, reach + 1)
    p = np.exp(-np.abs(noise) / scale)
    p /= p.sum()
    c = 1 / math.tanh(1 / scale)
    for z in (x, x + 1, x - 3, x + round(4 * scale)):  # values of the first half, outliers too
        w = z - x - noise  # first = x + noise + w
        weight = p * np.exp(-np.abs(w) / scale)
        weight /= weight.sum()
        second = x + noise - w
        excess = w**2 + c * np.abs(w) + c**2 - 1
        assert (weight * second).sum() == pytest.approx(x, abs=1e-9 * scale)
        assert (weight * (second**2 - excess)).sum() == pytest.approx(x**2, abs=1e-8 * scale**2)
        # The variance in place of the excess would not do: it depends on the first half.
        if z == x + round(4 * scale):
            assert abs((weight * (second**2 - 2 * noise_law.variance(scale))).sum() - x**2) > 0.1 * scale**2


@pytest.mark.parametrize("scale", SCALES)
def test_halves_carry_that_excess(scale):
    h = noisy(np.arange(50), scale, 1)
    rough = noise_law.variance(scale)
    half = Halves.of(h, rough=rough, turn=2, ordered=False)
    c = 1 / math.tanh(1 / scale)
    np.testing.assert_array_equal(half.first + half.second, 2 * h)
    np.testing.assert_array_equal(half.first - half.second, 2 * half.shift)
    np.testing.assert_allclose(half.excess, half.shift**2 + c * np.abs(half.shift) + c**2 - 1, rtol=1e-9)
    ordered = Halves.of(np.sort(h), rough=rough, turn=2, ordered=True)
    assert (np.diff(ordered.first) >= 0).all()
    np.testing.assert_array_equal(np.sort(ordered.first + ordered.second), np.sort(2 * h))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_a_chosen_partition_is_estimated_without_bias(weighted):
    """Noise with one spike, where choosing flatters most: the mean over many draws meets the truth."""
    n, scale, final = 64, 5.0, 900.0
    rough = noise_law.variance(scale)
    x = np.full(n, 30)
    x[20] = 60
    formula = Unbiased(weighted=weighted)
    gaps, naive = [], []
    for seed in range(1500):
        h = noisy(x, scale, seed)
        w = noisy(np.zeros(n, dtype=np.int64), scale, 10_000 + seed)  # fresh, for the mean over both
        c = 1 / math.tanh(1 / scale)
        half = Halves(h + w, h - w, w, w**2 + c * np.abs(w) + c**2 - 1)
        charged = formula.penalty(rough=2 * rough, final=final, n=n)
        starts = Optimal(formula).cut(half.first, 2 * rough, final)
        truth = 0.0
        for i, j in itertools.pairwise(starts):
            m = j - i
            old = charged.b / (charged.b + m)
            truth += ((x[i:j] - x[i:j].mean()) ** 2).sum() + (1 - old) ** 2 * final / m
            truth += old**2 * (half.first[i:j].mean() - x[i:j].mean()) ** 2 * m
        constant = (half.second**2).sum() - (
            (x**2).sum() + half.excess.sum()
        )  # mean 0 but for the noise of x
        found = half.error(starts, b=charged.b, final=final) - half.excess.sum() - constant
        gaps.append(found - truth)
        flattered = formulas.Halves(half.first, half.first, w * 0, np.full(n, 2 * rough))
        naive.append(flattered.error(starts, b=charged.b, final=final) - 2 * rough * n - truth)
    error = np.std(gaps) / math.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4 * error
    assert np.mean(naive) < -10 * error  # judged by the half it was chosen on, a partition looks far better


def test_pure_noise_is_left_almost_whole():
    x = np.full(4096, 20)
    runs = [auto(Constant(), x, 40.0, seed, final=400.0) for seed in range(7)]
    assert min(old for old, _, _ in runs) > 900
    assert np.median([new for _, new, _ in runs]) < 30
    for seed in range(7):
        old, new, _ = auto(Unbiased(weighted=True), x, 11.0, seed, final=20_000.0, ordered=True)
        assert old > 8
        assert new <= 2


def test_clear_steps_are_found():
    x = np.repeat([0, 5000, 1000, 9000], 256)
    runs = [auto(Constant(), x, 40.0, seed, final=400.0) for seed in range(7)]
    assert min(old for old, _, _ in runs) > 200
    assert np.median([new for _, new, _ in runs]) < 20
    for _, _, starts in runs:
        assert {0, 256, 512, 768, 1024} <= set(starts.tolist())


def test_rough_data_keep_their_groups():
    x = np.random.default_rng(1).integers(0, 100_000, 2000)
    old, new, _ = auto(Constant(), x, 4.0, 1, final=4.0)
    assert new >= old > 1900


@pytest.mark.parametrize("formula", [Ahp(), Unbiased(), Unbiased(weighted=True), Constant(), Logarithmic()])
@pytest.mark.parametrize("ordered", [False, True])
def test_every_formula_goes_with_auto_at_every_size(formula, ordered):
    for n in (1, 2, 3, 17, 300):
        for big in (0, 10**12):
            x = np.random.default_rng(n).integers(0, 50, n) + big * (np.arange(n) % 3 == 0)
            for final in (0.0, 300.0):
                _, _, starts = auto(formula, x, 10.0, n, final=final, ordered=ordered)
                _, _, again = auto(formula, x, 10.0, n, final=final, ordered=ordered)
                np.testing.assert_array_equal(starts, again)
                assert starts[0] == 0
                assert starts[-1] == n
                assert (np.diff(starts) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gain"), [("s2", 0.7), ("sdwf", 0.7)])
def test_auto_pays_on_average_and_never_costs_much(name, gain):
    n = 1024
    rng = np.random.default_rng(3)
    at = np.arange(n) / n
    spikes = np.zeros(n, dtype=np.int64)
    spikes[rng.choice(n, 12, replace=False)] = rng.integers(100, 5000, 12)
    shapes = {
        "noise": np.full(n, 20),
        "steps": np.repeat(rng.integers(0, 800, 16), n // 16),
        "spikes": spikes,
        "smooth": (400 * np.exp(-0.5 * ((at - 0.4) / 0.1) ** 2)).astype(np.int64),
        "rough": rng.integers(0, 2000, n),
    }
    pipeline, ratios = with_auto(name, n), []
    for x in shapes.values():
        errors = [
            np.mean((dphist.simulate(x, epsilon="0.1", method=method, trials=10, seed=5) - x) ** 2)
            for method in (name, pipeline)
        ]
        ratios.append(errors[1] / errors[0])
    assert max(ratios) < 1.1
    assert np.exp(np.mean(np.log(ratios))) < gain


def test_a_release_says_how_its_penalty_was_chosen():
    described = with_auto("s2", 16).describe(dphist.Plan(bins=16, range=(0, 16), epsilon=1).queries)
    assert described["partition"]["penalty"] == "auto"
