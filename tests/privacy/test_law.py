"""The law of the noise against convolutions, high precision, closed forms and simulation."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from dphist.errors import UsageError
from dphist.uncertainty import noise_law

LEVELS = (0.01, 0.5, 0.9, 0.95, 0.999, 1 - 1e-6)


def ints(*values):
    return np.array(values, dtype=np.int64)


def floats(*values):
    return np.array(values, dtype=np.float64)


def pmf(scale, reach):
    """The probabilities of -reach..reach, by their definition."""
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1.0))


def convolved(scales, repeats, reach):
    """The twin: P(abs(S) <= k) for k = 0..reach, draw by draw."""
    sums = np.ones(1)
    for scale, m in zip(scales, repeats, strict=True):
        for _ in range(m):
            sums = np.convolve(sums, pmf(scale, reach))
            middle = sums.size // 2
            sums = sums[max(middle - reach, 0) : middle + reach + 1]
    middle = sums.size // 2
    return np.cumsum(np.concatenate([sums[middle : middle + 1], 2 * sums[middle + 1 :]]))


def two_draw_tail(scale, k):
    """P(abs(X + Y) > k) for two draws of one scale, summed in closed form with 60 digits."""
    with mp.workdps(60):
        a, n = mp.exp(-1 / mp.mpf(scale)), mp.mpf(k) + 1
        constant = (1 + a**2) / (1 - a**2)
        return 2 * ((1 - a) / (1 + a)) ** 2 * a**n * ((n + constant) / (1 - a) + a / (1 - a) ** 2)


def draws(rng, scale, size):
    p = -math.expm1(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def computed_tail(scales, repeats, level, k):
    fixed, turning, _ = noise_law._contour(np.array(scales, dtype=float), np.array(repeats), 1 - level)
    return noise_law._sum_tail(fixed, turning, k)


# ---- one draw


@pytest.mark.parametrize("scale", [2.0**-10, 0.01, 0.3, 1.0, 7.5, 1e3, 1e9, 2.0**40])
def test_closed_forms_agree_with_sixty_digits(scale):
    with mp.workdps(60):
        a = mp.exp(-1 / mp.mpf(scale))
        exact = 2 * a / (1 - a) ** 2
        assert noise_law.variance(scale) == pytest.approx(float(exact), rel=1e-13, abs=1e-300)
        for k in (0, 1, 2, int(scale), int(3 * scale), int(20 * scale) + 1):
            exact = 2 * a ** (k + 1) / (1 + a)
            assert noise_law.tail(scale, k) == pytest.approx(float(exact), rel=1e-13, abs=1e-300)


def test_variance_is_that_of_the_pmf_and_takes_arrays():
    scales = floats(0.2, 1, 5)
    x = np.arange(-400, 401.0)
    assert noise_law.variance(scales) == pytest.approx([pmf(s, 400) @ x**2 for s in scales], rel=1e-12)
    assert noise_law.variance(floats(math.inf, 2**40)).tolist() == pytest.approx([math.inf, 2.0**81])
    assert isinstance(noise_law.variance(3.0), float)


def test_tail_at_the_ends():
    assert noise_law.tail(3.0, -1) == noise_law.tail(3.0, -1e9) == 1
    assert noise_law.tail(3.0, 2.9) == noise_law.tail(3.0, 2)
    assert noise_law.tail(3.0, math.inf) == 0
    assert noise_law.tail(math.inf, 10) == 1


@pytest.mark.parametrize("scale", [2.0**-10, 0.05, 0.3, 1.0, 20.0, 1e4, 1e9, 2.0**40])
@pytest.mark.parametrize("level", LEVELS)
def test_quantile_is_the_least_that_covers(scale, level):
    k = noise_law.quantile(scale, level)
    assert isinstance(k, int)
    assert noise_law.tail(scale, k) <= 1 - level
    assert k == 0 or noise_law.tail(scale, k - 1) > 1 - level
    assert noise_law.sum_quantile(floats(scale), ints(1), level) == k


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 111.0, 1e4])
def test_a_tail_that_is_met_exactly_is_enough_and_one_digit_less_is_not(scale):
    for k in range(int(min(12 * scale, 3000)) + 2):
        t = noise_law.tail(scale, k)
        assert noise_law._least(np.array(scale), t) == k
        assert noise_law._least(np.array(scale), math.nextafter(t, 0)) == k + 1


def test_quantile_of_a_huge_scale_is_the_continuous_one():
    assert noise_law.quantile(1e9, 0.95) == pytest.approx(1e9 * math.log(20), rel=1e-8)
    assert noise_law.quantile(math.inf, 0.5) == math.inf


# ---- sums


@pytest.mark.parametrize(
    ("scales", "repeats"),
    [
        ([1.0], [2]),
        ([0.05], [3]),
        ([0.15], [40]),
        ([0.3], [5]),
        ([3.0], [30]),
        ([20.0], [2]),
        ([0.3, 1.0, 7.0], [1, 2, 3]),
        ([25.0, 1.0], [1, 60]),
        ([25.0, 24.9], [1, 1]),
        ([30.0, 0.01, 0.1], [1, 5, 5]),
    ],
)
def test_sums_agree_with_convolution(scales, repeats):
    sd = math.sqrt(np.array(repeats) @ noise_law.variance(np.array(scales)))
    reach = int(35 * max(scales) + 12 * sd + 60)
    covered = convolved(scales, repeats, reach)
    for level in LEVELS:
        k = noise_law.sum_quantile(np.array(scales), np.array(repeats), level)
        assert k == int(np.argmax(covered >= level))
        for near in (max(k - 1, 0), k, k + 1, 2 * k):
            assert computed_tail(scales, repeats, level, near) == pytest.approx(1 - covered[near], abs=1e-12)


@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0, 1e3, 1e6, 1e9, 2.0**40])
@pytest.mark.parametrize("level", [*LEVELS, 1 - 1e-9])
def test_two_draws_agree_with_their_closed_form(scale, level):
    k = noise_law.sum_quantile(floats(scale), ints(2), level)
    assert two_draw_tail(scale, k) <= (1 - level) * (1 + 1e-10)
    assert k == 0 or two_draw_tail(scale, k - 1) > (1 - level) * (1 - 1e-10)
    assert computed_tail([scale], [2], level, k) == pytest.approx(float(two_draw_tail(scale, k)), rel=1e-10)


def test_one_heavy_draw_hides_a_light_one():
    k = noise_law.sum_quantile(floats(1e9, 1.0), ints(1, 1), 0.95)
    assert k == pytest.approx(noise_law.quantile(1e9, 0.95), rel=1e-8)


def test_two_far_scales_agree_with_their_mixture():
    # For continuous Laplace variables, by partial fractions of the characteristic function.
    s, r = 3e9, 1e8
    k = noise_law.sum_quantile(floats(s, r), ints(1, 1), 0.99)
    a, b = s**2 / (s**2 - r**2), r**2 / (s**2 - r**2)
    assert a * math.exp(-k / s) - b * math.exp(-k / r) == pytest.approx(0.01, rel=1e-8)


def test_a_million_draws_are_nearly_normal():
    # Edgeworth's correction for the kurtosis, 3/10**6, is below the tolerance.
    for scale in (1.0, 1e6):
        sd = math.sqrt(1e6 * noise_law.variance(scale))
        k = noise_law.sum_quantile(floats(scale), ints(10**6), 0.95)
        assert k == pytest.approx(1.959964 * sd, rel=1e-3)
        assert k == pytest.approx(1.959964 * sd, rel=1e-5, abs=1)


@pytest.mark.parametrize(
    ("scales", "repeats"),
    [
        ([1e9], [2]),
        ([1e9, 9.99e8], [1, 1]),
        ([1e9], [10**6]),
        ([2.0**40, 2.0**-10, 1.0, 1e3], [1, 1, 1, 10**6]),
        (np.geomspace(1e-3, 1e12, 200), np.ones(200, dtype=np.int64)),
        ([0.03], [10**8]),
        ([1e12, 1e-2], [1, 1]),
        ([2.0**-10], [10**8]),
    ],
)
def test_a_finer_rule_changes_nothing(monkeypatch, scales, repeats):
    for level in (*LEVELS, 1 - 1e-9):
        k = noise_law.sum_quantile(np.array(scales), np.array(repeats), level)
        near = (k * 4 // 5, k, k + 1, 2 * k)
        coarse = [computed_tail(scales, repeats, level, j) for j in near]
        with monkeypatch.context() as finer:
            finer.setattr(noise_law, "_STEP", noise_law._STEP / 3)
            finer.setattr(noise_law, "_NODES", noise_law._NODES * 4)
            fine = [computed_tail(scales, repeats, level, j) for j in near]
        assert coarse == pytest.approx(fine, abs=1e-9 * (1 - level) + 1e-15)


def test_a_rule_too_coarse_is_noticed(monkeypatch):
    monkeypatch.setattr(noise_law, "_STEP", noise_law._STEP * 8)
    assert abs(computed_tail([1e9], [2], 0.95, 4 * 10**9) - float(two_draw_tail(1e9, 4 * 10**9))) > 1e-9


def coverage(rng, true_scale, *, model_scale, m, releases):
    """How often the model's 95 % interval holds a sum of m draws of the true scale."""
    k = noise_law.sum_quantile(floats(model_scale), ints(m), 0.95)
    p = -math.expm1(-1 / true_scale)
    sums = rng.negative_binomial(m, p, releases) - rng.negative_binomial(m, p, releases)
    return np.mean(np.abs(sums) <= k), k


@pytest.mark.parametrize("m", [2, 17, 1000, 10**6])
def test_simulated_sums_are_covered_and_a_wrong_scale_is_noticed(m):
    rng = np.random.default_rng(20240 + m)
    n = 40_000
    slack = 4.5 * math.sqrt(0.95 * 0.05 / n)
    right, k = coverage(rng, 50.0, model_scale=50.0, m=m, releases=n)
    lattice = computed_tail([50.0], [m], 0.95, k - 1) - computed_tail([50.0], [m], 0.95, k)
    assert abs(right - 0.95) <= slack + lattice
    assert coverage(rng, 55.0, model_scale=50.0, m=m, releases=n)[0] < 0.95 - slack
    assert coverage(rng, 45.0, model_scale=50.0, m=m, releases=n)[0] > 0.95 + slack + lattice


def test_equal_scales_are_grouped_and_absent_ones_ignored():
    expected = noise_law.sum_quantile(floats(2, 5), ints(3, 4), 0.9)
    assert noise_law.sum_quantile(floats(5, 2, 5, math.inf, 2), ints(1, 1, 3, 0, 2), 0.9) == expected
    assert noise_law.sum_quantile(floats(), ints(), 0.9) == 0
    assert noise_law.sum_quantile(floats(2), ints(0), 0.9) == 0
    assert noise_law.sum_quantile(floats(2, math.inf), ints(1, 1), 0.9) == math.inf


def test_sums_take_a_search_by_halves(monkeypatch):
    noise_law._sum_quantile.cache_clear()
    scales, repeats = np.geomspace(1, 1e6, 20), np.full(20, 1000)
    tails = []
    real = noise_law._sum_tail
    monkeypatch.setattr(noise_law, "_sum_tail", lambda *given: tails.append(given) or real(*given))
    for level in (0.91, 0.92, 0.93, 0.94, 0.95):
        assert noise_law.sum_quantile(scales, repeats, level) > 10**6
    assert 0 < len(tails) <= 5 * 64  # a walk over the tens of millions of values would take as many


# ---- many at once


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 10.0, 1e9])
@pytest.mark.parametrize("n", [1, 7, 1000, 10**8])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_one_common_scale_is_the_least_k(scale, n, level):
    (k,) = noise_law.joint_quantile(floats(scale), ints(n), level).tolist()

    def covered(k):
        with mp.workdps(40):
            a = mp.exp(-1 / mp.mpf(scale))
            return (1 - 2 * a ** (k + 1) / (1 + a)) ** n

    assert covered(k) >= level * (1 - 1e-14)
    assert k == 0 or covered(k - 1) < level * (1 + 1e-14)


def test_mixed_scales_share_the_largest_tail_that_reaches_the_level():
    scales, repeats, level = floats(0.4, 3.0, 11.0), ints(50, 20, 3), 0.9
    # The twin tries every tail probability at which some k changes, from the largest down.
    tails = sorted({noise_law.tail(s, k) for s in scales for k in range(400)}, reverse=True)
    for t in tails:
        ks = [next(k for k in range(500) if noise_law.tail(s, k) <= t) for s in scales]
        inside = [(1 - noise_law.tail(s, k)) ** m for s, k, m in zip(scales, ks, repeats, strict=True)]
        if math.prod(inside) >= level:
            break
    assert noise_law.joint_quantile(scales, repeats, level).tolist() == ks
    assert noise_law.joint_quantile(scales, repeats, level).dtype == np.int64


def test_joint_coverage_in_simulation():
    rng = np.random.default_rng(77)
    releases, n, scale = 2000, 1000, 10.0
    (k,) = noise_law.joint_quantile(floats(scale), ints(n), 0.95).tolist()
    slack = 4 * math.sqrt(0.95 * 0.05 / releases)
    worst = np.abs(draws(rng, scale, (releases, n))).max(axis=1)
    exact = {j: (1 - noise_law.tail(scale, j)) ** n for j in (k - 1, k)}
    assert exact[k] >= 0.95 > exact[k - 1]
    for j in (k - 1, k):
        assert abs(np.mean(worst <= j) - exact[j]) <= slack
    for wrong in (9.0, 11.0):  # the simulation tells a scale that is 10 % off
        worst = np.abs(draws(rng, wrong, (releases, n))).max(axis=1)
        assert abs(np.mean(worst <= k) - exact[k]) > slack


def test_joint_leaves_out_what_is_not_drawn():
    alone = noise_law.joint_quantile(floats(5.0), ints(9), 0.9).tolist()
    both = noise_law.joint_quantile(floats(5.0, 80.0), ints(9, 0), 0.9).tolist()
    assert both[:1] == alone
    assert noise_law.joint_quantile(floats(), ints(), 0.9).size == 0


# ---- the simple bound


@pytest.mark.parametrize("level", [0.9, 0.903, 0.908, 0.915, 0.92, 0.95, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9])
def test_the_bound_is_wide_enough_and_not_much_wider(level):
    rng = np.random.default_rng(5)
    sums = [
        ([s], [m]) for s in (0.02, 0.1, 0.3, 0.7, 1, 3, 9, 30, 1e6) for m in (1, 2, 3, 8, 100, 10**4, 10**6)
    ]
    sums += [([1e5, 1e5 * r], [1, m]) for r in (0.1, 0.3, 0.5, 0.8) for m in (1, 3, 10, 1000)]
    sums += [(np.exp(rng.normal(0, 2, 5)), rng.integers(1, 9, 5)) for _ in range(20)]
    for scales, repeats in sums:
        scales, repeats = np.array(scales, dtype=float), np.array(repeats)
        sd = math.sqrt(repeats @ noise_law.variance(scales))
        assert noise_law.sum_quantile(scales, repeats, level) <= noise_law.sum_margin_bound(sd, level)
    one = noise_law.quantile(1e6, level) / noise_law.sum_margin_bound(
        math.sqrt(noise_law.variance(1e6)), level
    )
    assert 0.97 < one <= 1


def test_the_bound_takes_arrays():
    sd = floats(1.0, 10.0)
    assert noise_law.sum_margin_bound(sd, 0.95).tolist() == [
        noise_law.sum_margin_bound(x, 0.95) for x in (1.0, 10.0)
    ]


# ---- refusals


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, math.nan, True, "0.9"])
def test_a_level_lies_between_zero_and_one(level):
    with pytest.raises(UsageError, match="between 0 and 1"):
        noise_law.quantile(1.0, level)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_is_positive(scale):
    with pytest.raises(UsageError, match="positive"):
        noise_law.variance(scale)
    with pytest.raises(UsageError, match="positive"):
        noise_law.sum_quantile(floats(scale), ints(2), 0.9)


def test_other_refusals():
    with pytest.raises(UsageError, match="whole numbers"):
        noise_law.sum_quantile(floats(1, 2), ints(1), 0.9)
    with pytest.raises(UsageError, match="whole numbers"):
        noise_law.joint_quantile(floats(1), ints(-1), 0.9)
    with pytest.raises(UsageError, match="whole numbers"):
        noise_law.sum_quantile(floats(1), floats(1), 0.9)
    with pytest.raises(UsageError, match="finite"):
        noise_law.joint_quantile(floats(1, math.inf), ints(1, 1), 0.9)
    with pytest.raises(UsageError, match=r"from 0\.9"):
        noise_law.sum_margin_bound(1.0, 0.5)
