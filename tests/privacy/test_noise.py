"""The sampler: each word gives the value that the inverse of the law gives it, and no digit is reused."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from fractions import Fraction
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dphist.errors import PrivacyError, UsageError
from dphist.privacy import noise
from dphist.privacy.ledger import MemoryLedger

SCALES = (2.0**-10, 0.3, 0.5, 1.0, 10 / 3, 4.0, 100.0, 12345.678, 1e6, 2.0**30, 2.0**36, 2.0**40)
ONES = (1 << 64) - 1
CONTINUATIONS = (0, ONES, 0x9E3779B97F4A7C15)
GOLDEN = [34, -47, 10, 2753, 2260, -446]


def charge(epsilon):
    return MemoryLedger().charge(Fraction(epsilon), mechanism="test", what="test")


def draw(sampler, scale, size, source):
    """Draw with exactly this scale."""
    found, used = sampler(charge(1 / Fraction(scale)), sensitivity=1, size=size, source=source)
    assert used == scale and found.dtype == np.int64 and found.shape == (size,)
    return found


class Playback:
    """A source whose words are given; further digits too, of which the last repeats for ever."""

    simulated = True

    def __init__(self, words, *further):
        self.given, self.further, self.asked = np.array(words, np.uint64), further, 0

    def stream(self):
        return self

    def words(self, k):
        now, self.given = self.given[:k], self.given[k:]
        return now

    def more(self):
        self.asked += 1
        return self.further[min(self.asked, len(self.further)) - 1]


def truth(scale, w, signed, *further):
    """The slow twin: floor(-s ln(h u)) at 500 bits, for the u whose digits are w and those that follow."""
    with mpmath.workprec(500):
        s, places = mpmath.mpf(scale), 63
        for digits in further[:-1]:
            w, places = (w << 64) | digits, places + 64
        # further[-1] repeated for ever is further[-1] / (2^64 - 1).
        u = (w + mpmath.mpf(further[-1]) / ONES) / mpmath.mpf(2) ** places
        h = (1 + mpmath.exp(-1 / s)) / 2 if signed else 1
        return int(mpmath.floor(-s * mpmath.log(h * u)))


def boundary(scale, k, signed, bits):
    """floor(2^bits q), where q = P(|X| >= k): the digits of u at which |X| changes from k to k - 1."""
    with mpmath.workprec(500):
        inverse = 1 / mpmath.mpf(scale)
        h = (1 + mpmath.exp(-inverse)) / 2 if signed else 1
        return int(mpmath.floor(mpmath.exp(-k * inverse) / h * mpmath.mpf(2) ** bits))


def awkward(scale, signed, seed=1):
    """Words next to boundaries, in the tails, at powers of two, and some of any size."""
    rng = np.random.default_rng(seed)
    ks = [1, 2, 3, 5, 10] + [int(scale * m) for m in (0.5, 1, 2, 5, 10, 20, 30, 40) if scale * m >= 1]
    near = [boundary(scale, k, signed, 63) + d for k in ks for d in range(-3, 4)]
    powers = [(1 << e) + d for e in range(63) for d in (-1, 0, 1)]
    ends = [0, 1, 2, 3, 5, (1 << 63) - 1, (1 << 63) - 2, (1 << 44) - 1, 1 << 44]
    spread = [int(2.0**e) for e in rng.uniform(0, 62.9, 80)] + rng.integers(0, 1 << 63, 80).tolist()
    return [w for w in near + powers + ends + spread if 0 <= w < 1 << 63]


@pytest.fixture
def exact_calls(monkeypatch):
    calls, genuine = [], noise._exact
    monkeypatch.setattr(noise, "_exact", lambda *a: calls.append(a[:2]) or genuine(*a))
    return calls


@pytest.mark.parametrize("further", CONTINUATIONS)
@pytest.mark.parametrize("sampler", [noise.laplace, noise.geometric])
def test_every_word_gives_its_exact_value(sampler, further, exact_calls, monkeypatch):
    monkeypatch.setattr(noise, "_CHUNK", 100)
    signed, extended = sampler is noise.laplace, 0
    for scale in SCALES:
        # u = 0 exactly has probability 0 and no value.
        ws = [w for w in awkward(scale, signed) if w or further]
        source = Playback([(w << 1) | (i & 1) for i, w in enumerate(ws)], further)
        got = draw(sampler, scale, len(ws), source)
        want = np.array([truth(scale, w, signed, further) for w in ws])
        if signed:
            want[1::2] *= -1
        np.testing.assert_array_equal(got, want, err_msg=f"scale {scale}")
        extended += source.asked
    assert len(exact_calls) > 500
    assert extended > 30
    assert {scale for scale, _ in exact_calls} >= set(SCALES[1:])


@pytest.mark.parametrize("further", CONTINUATIONS)
def test_every_word_gives_its_exact_value_with_a_scale_each(further, exact_calls, monkeypatch):
    monkeypatch.setattr(noise, "_CHUNK", 100)
    whole = 1 << 40
    targets = np.array([s for s in SCALES if s < 2.0**39])
    # Sensitivity/epsilon = 2^-10, so that parts from 2^40 down to 2 give scales from 2^-10 up to 2^29...
    low = np.maximum((whole * 2.0**-10 / targets[targets <= 2.0**30]).astype(np.int64), 1)
    # ... and 2^2, for scales up to 2^36.
    high = np.maximum((whole * 4.0 / targets[targets >= 4.0]).astype(np.int64), 1)
    for epsilon, wanted in ((1 << 10, low), (Fraction(1, 4), high)):
        _, scales = noise.laplace_each(
            charge(epsilon), sensitivity=1, parts=wanted, whole=whole, source=noise.Simulated(0)
        )
        pairs = [
            (p, s, w) for p, s in zip(wanted, scales, strict=True) for w in awkward(s, True) if w or further
        ]
        pairs = [pairs[i] for i in np.random.default_rng(2).permutation(len(pairs))]
        parts = np.array([p for p, _, _ in pairs])
        source = Playback([(w << 1) | (i & 1) for i, (_, _, w) in enumerate(pairs)], further)
        got, used = noise.laplace_each(
            charge(epsilon), sensitivity=1, parts=parts, whole=whole, source=source
        )
        np.testing.assert_array_equal(used, [s for _, s, _ in pairs])
        want = np.array([truth(s, w, True, further) for _, s, w in pairs])
        want[1::2] *= -1
        np.testing.assert_array_equal(got, want)
        assert source.asked > 5
    assert len(exact_calls) > 500


@pytest.mark.parametrize("sampler", [noise.laplace, noise.geometric])
def test_as_many_digits_are_drawn_as_it_takes(sampler):
    signed = sampler is noise.laplace
    for scale in SCALES:
        k = max(1, int(2 * scale))
        if boundary(scale, k, signed, 255) >> 192 == 0:
            continue  # the boundary is beyond the first 63 digits
        digits = boundary(scale, k, signed, 255)
        w, first, second, third = digits >> 192, digits >> 128 & ONES, digits >> 64 & ONES, digits & ONES
        for last, value in ((0, k), (ONES, k - 1)):
            if last == third:
                continue
            source = Playback([w << 1], first, second, last)
            got = int(draw(sampler, scale, 1, source)[0])
            assert got == truth(scale, w, signed, first, second, last) == value
            assert source.asked >= 3


class SloppyNumpy:
    """numpy with a logarithm that is wrong by so many units in the last place, up or down."""

    def __init__(self, units):
        self.units, self.rng = units, np.random.default_rng(3)

    def __getattr__(self, name):
        return getattr(np, name)

    def log(self, x, out=None):
        exact = np.log(x)
        return np.add(exact, self.rng.integers(-1, 2, x.size) * self.units * np.spacing(exact), out=out)


@pytest.mark.parametrize(("units", "same"), [(3, True), (1 << 15, False)])
def test_values_do_not_depend_on_the_last_bits_of_the_logarithm(units, same, monkeypatch):
    def all_draws():
        parts = np.arange(1, 40_001)
        each, _ = noise.laplace_each(
            charge(2.0**-10), sensitivity=1, parts=parts, whole=40_000, source=noise.Simulated(5)
        )
        return np.concatenate([each, draw(noise.laplace, 2.0**30, 200_000, noise.Simulated(5))])

    want = all_draws()
    monkeypatch.setattr(noise, "np", SloppyNumpy(units))
    assert np.array_equal(all_draws(), want) == same


# ---- the law, statistically ------------------------------------------------------------------------------


def laplace_cdf(x, scale):
    a = math.exp(-1 / scale)
    x = np.asarray(x, float)
    return np.where(x < 0, np.exp(x / scale) / (1 + a), 1 - np.exp(-(x + 1) / scale) / (1 + a))


def geometric_cdf(x, scale):
    return -np.expm1(-(np.asarray(x, float) + 1) / scale)


def chi_square(draws, cdf, scale):
    """p-value of draws under a law, in about 40 cells of similar probability."""
    lo, hi = int(-30 * scale) - 2, int(30 * scale) + 2
    levels = np.linspace(0, 1, 41)[1:-1]
    cuts = []
    for level in levels:  # the least x with cdf(x) >= level, by bisection
        a, b = lo, hi
        while b - a > 1:
            mid = (a + b) // 2
            a, b = (a, mid) if cdf(mid, scale) >= level else (mid, b)
        cuts.append(b)
    cuts = np.unique(cuts)
    expected = np.diff(cdf(cuts, scale), prepend=0.0, append=1.0) * draws.size
    seen = np.bincount(np.searchsorted(cuts, draws, side="left"), minlength=cuts.size + 1)
    keep = expected > 5
    assert keep.sum() >= 2
    seen, expected = (np.append(v[keep], v[~keep].sum()) for v in (seen, expected))
    if expected[-1] == 0:
        assert seen[-1] == 0
        seen, expected = seen[:-1], expected[:-1]
    return stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), seen.size - 1)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 100.0, 1e6, 2.0**34])
@pytest.mark.parametrize(("sampler", "cdf"), [(noise.laplace, laplace_cdf), (noise.geometric, geometric_cdf)])
def test_law_is_right_and_ten_percent_off_is_caught(sampler, cdf, scale):
    draws = draw(sampler, scale, 200_000, noise.Simulated(11))
    assert chi_square(draws, cdf, scale) > 1e-4
    for wrong in (0.9, 1.1):
        assert chi_square(draws, cdf, scale * wrong) < 1e-6


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_law_with_a_scale_each(scale):
    parts = np.tile([1, 2, 4], 100_000)
    draws, scales = noise.laplace_each(
        charge(1 / Fraction(scale)), sensitivity=1, parts=parts, whole=4, source=noise.Simulated(12)
    )
    for part in (1, 2, 4):
        right = scale * 4 / part
        assert scales[parts == part] == pytest.approx(right, rel=1e-14)
        assert chi_square(draws[parts == part], laplace_cdf, right) > 1e-4
        for wrong in (0.9, 1.1):
            assert chi_square(draws[parts == part], laplace_cdf, right * wrong) < 1e-6


def test_secure_draws_follow_the_law():
    assert chi_square(draw(noise.laplace, 3.0, 200_000, noise.Secure()), laplace_cdf, 3.0) > 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_tails_signs_and_neighbours(scale):
    draws = draw(noise.laplace, scale, 4_000_000, noise.Simulated(13))
    a = math.exp(-1 / scale)
    for level in (1e-3, 1e-4, 1e-5):
        k = math.ceil(scale * math.log(2 / (1 + a) / level))
        beyond = 2 * math.exp(-k / scale) / (1 + a)
        count = int((np.abs(draws) >= k).sum())
        assert stats.binomtest(count, draws.size, beyond).pvalue > 1e-4
        assert stats.binomtest(3 * count, draws.size, beyond).pvalue < 1e-6
    up, down = int((draws > 0).sum()), int((draws < 0).sum())
    assert stats.binomtest(up, up + down).pvalue > 1e-4
    # A draw tells nothing about the next one, nor its size about its sign.
    kind = (draws > 0) + 2 * (np.abs(draws) > scale)
    table = np.bincount(kind[:-1] * 4 + kind[1:], minlength=16).reshape(4, 4)
    assert stats.chi2_contingency(table).pvalue > 1e-4
    large = np.abs(draws[draws != 0]) > scale
    signs = np.bincount((draws[draws != 0] > 0) * 2 + large, minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(signs).pvalue > 1e-4


# ---- sources ---------------------------------------------------------------------------------------------


def test_simulated_repeats_itself_and_seeds_differ():
    one, same = noise.Simulated(1), noise.Simulated(1)
    a, b = (draw(noise.laplace, 1e6, 1000, one) for _ in range(2))
    np.testing.assert_array_equal(a, draw(noise.laplace, 1e6, 1000, same))
    np.testing.assert_array_equal(b, draw(noise.laplace, 1e6, 1000, same))
    others = [draw(noise.laplace, 1e6, 1000, noise.Simulated(s)) for s in (0, -1, 2, 1 << 300)]
    for x, y in [(a, b)] + [(a, other) for other in others]:
        assert (x == y).mean() < 0.01
    assert noise.Simulated.simulated and not noise.Secure.simulated


def test_simulated_values_never_change():
    assert draw(noise.laplace, 1000.0, 6, noise.Simulated(7)).tolist() == GOLDEN
    long = draw(noise.laplace, 1000.0, 100_000, noise.Simulated(7))
    assert long[:6].tolist() == GOLDEN


@pytest.mark.parametrize("seed", [True, 1.0, "1", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(UsageError, match="seed"):
        noise.Simulated(seed)


def test_further_digits_do_not_shift_the_words():
    key = bytes(range(32))
    one, other = noise.Stream(key), noise.Stream(key)
    whole = one.words(10)
    pieces = [other.words(3)]
    digits = [other.more() for _ in range(3)]
    pieces.append(other.words(7))
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    assert digits == [one.more() for _ in range(3)]
    assert len({*digits, *whole.tolist()}) == 13


def test_secure_never_repeats_and_keeps_nothing():
    source = noise.Secure()
    a, b = (draw(noise.laplace, 1e6, 1000, source) for _ in range(2))
    assert (a == b).mean() < 0.01
    assert vars(source) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_secure_differs_after_a_fork():
    source, found = noise.Secure(), []
    for _ in range(2):
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's that are idle here
            child = os.fork()
        if child == 0:
            try:
                os.write(writing, draw(noise.laplace, 1e6, 100, source).tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            found.append(np.frombuffer(pipe.read(), np.int64))
        os.waitpid(child, 0)
    found.append(draw(noise.laplace, 1e6, 100, source))
    assert [x.size for x in found] == [100, 100, 100]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (found[i] == found[j]).sum() < 3


@pytest.mark.parametrize("how", ["laplace", "geometric", "each"])
def test_every_vector_of_noise_has_a_key_of_32_fresh_bytes_and_of_nothing_else(how, monkeypatch):
    given, keys = [], []

    class Recorded(noise.Stream):
        def __init__(self, key):
            keys.append(key)
            super().__init__(key)

    def entropy(size):
        given.append(hashlib.shake_256(b"%d" % len(given)).digest(size))
        return given[-1]

    paid = [charge(1) for _ in range(3)]
    monkeypatch.setattr(os, "urandom", entropy)
    monkeypatch.setattr(noise, "Stream", Recorded)
    for one in paid:
        once(how, one, noise.Secure())
    assert [len(key) for key in keys] == [32, 32, 32]
    assert keys == given, "the key is the operating system's 32 bytes, drawn once for each vector"


@pytest.mark.parametrize("how", ["laplace", "geometric", "each"])
def test_without_entropy_nothing_is_drawn(how, monkeypatch):
    def broken(size):
        raise OSError("no entropy")

    drawn = []
    monkeypatch.setattr(os, "urandom", broken)
    monkeypatch.setattr(noise, "_draw", lambda *a, **k: drawn.append(a))
    with pytest.raises(OSError, match="no entropy"):
        once(how, charge(1), noise.Secure())
    assert drawn == []


# ---- charges and scales ----------------------------------------------------------------------------------


def once(how, paid, source):
    if how == "each":
        parts = np.array([1, 0, 3])
        return noise.laplace_each(paid, sensitivity=1, parts=parts, whole=4, source=source)
    return getattr(noise, how)(paid, sensitivity=1, size=3, source=source)


@pytest.mark.parametrize("how", ["laplace", "geometric", "each"])
def test_a_charge_is_used_once_and_before_any_word_is_drawn(how):
    paid, order = charge(1), []

    class Watching(noise.Simulated):
        def stream(self):
            with pytest.raises(PrivacyError):
                paid.use()
            order.append("stream")
            return super().stream()

    source = Watching(1)
    once(how, paid, source)
    assert order == ["stream"]
    with pytest.raises(PrivacyError):
        once(how, paid, source)
    assert order == ["stream"]


positive = st.fractions(Fraction(1, 10**9), 10**6, max_denominator=10**12)


@given(positive, st.integers(1, 1000))
def test_scale_is_never_below_the_exact_one_nor_far_above(epsilon, sensitivity):
    scale, exact = noise.scale_for(epsilon, sensitivity), sensitivity / epsilon
    assert Fraction(scale) >= exact
    if exact >= Fraction(noise.MIN_SCALE):
        assert math.nextafter(math.nextafter(scale, 0), 0) < exact
        assert math.nextafter(scale, 0) < exact
    else:
        assert scale == noise.MIN_SCALE


@given(
    positive,
    st.integers(1, 100),
    st.integers(1, noise.MAX_WHOLE).flatmap(
        lambda whole: st.tuples(st.just(whole), st.lists(st.integers(0, whole), min_size=1, max_size=20))
    ),
)
def test_scales_each_are_never_below_the_exact_ones_nor_far_above(epsilon, sensitivity, budget):
    whole, parts = budget
    exact = [None if p == 0 else sensitivity * whole / (epsilon * p) for p in parts]
    too_much = any(x is not None and x > noise.MAX_SCALE for x in exact)
    try:
        draws, scales = noise.laplace_each(
            charge(epsilon),
            sensitivity=sensitivity,
            parts=np.array(parts),
            whole=whole,
            source=noise.Simulated(1),
        )
    except UsageError:
        assert too_much
        return
    assert not too_much
    for drawn, scale, want in zip(draws.tolist(), scales.tolist(), exact, strict=True):
        if want is None:
            assert drawn == 0 and scale == math.inf
        else:
            assert want <= Fraction(scale)
            assert scale == noise.MIN_SCALE or Fraction(scale) <= want * (1 + Fraction(1, 1 << 50))


def test_a_part_of_nothing_draws_nothing():
    parts = np.zeros(1000, np.int64)
    parts[::2] = 3
    draws, scales = noise.laplace_each(
        charge(1), sensitivity=1, parts=parts, whole=3 << 20, source=noise.Simulated(1)
    )
    assert not draws[1::2].any() and np.isinf(scales[1::2]).all()
    assert (draws[::2] != 0).mean() > 0.99 and scales[::2] == pytest.approx(1 << 20)
    for none in (np.zeros(5, np.int64), np.zeros(0, np.int64)):
        draws, scales = noise.laplace_each(
            charge(1), sensitivity=1, parts=none, whole=3, source=noise.Simulated(1)
        )
        assert draws.tolist() == [0] * none.size and scales.tolist() == [math.inf] * none.size


@pytest.mark.parametrize(
    ("parts", "whole"),
    [([-1, 2], 3), ([1, 4], 3), ([0.5, 1], 3), ([0], 0), ([1], (1 << 40) + 1)],
)
def test_parts_beyond_the_whole_are_refused_unspent(parts, whole):
    paid = charge(1)
    with pytest.raises(UsageError):
        noise.laplace_each(paid, sensitivity=1, parts=np.array(parts), whole=whole, source=noise.Simulated(1))
    assert paid.use() == 1


def test_scale_limits():
    assert noise.scale_for(Fraction(1, 1 << 40), 1) == noise.MAX_SCALE
    with pytest.raises(UsageError, match="epsilon is too small"):
        noise.scale_for(Fraction(1, (1 << 40) + 1), 1)
    with pytest.raises(UsageError, match="epsilon is too small"):
        noise.scale_for(Fraction(1, 10**5000), 1)
    assert noise.scale_for(Fraction(1024), 1) == noise.MIN_SCALE
    assert noise.scale_for(Fraction(10**5000), 1) == noise.MIN_SCALE
    for sensitivity in (0, -1, True, 1.0):
        with pytest.raises(UsageError, match="sensitivity"):
            noise.scale_for(Fraction(1), sensitivity)
    with pytest.raises(UsageError, match="epsilon"):
        noise.scale_for(Fraction(0), 1)
    with pytest.raises(UsageError, match="epsilon is too small"):
        noise.laplace(charge("1e-13"), sensitivity=1, size=1, source=noise.Simulated(1))
    # Above 1024 the noise stays that of 1024: practically none, and never an error.
    for sampler in (noise.laplace, noise.geometric):
        draws, scale = sampler(charge(10**9), sensitivity=1, size=10_000, source=noise.Simulated(1))
        assert scale == noise.MIN_SCALE and not draws.any()


def test_strict_floating_point_settings_of_the_caller_do_not_matter():
    with np.errstate(all="raise"):
        draws = draw(noise.laplace, 2.0**-10, 1, Playback([0], ONES))
        _, scales = noise.laplace_each(
            charge(1), sensitivity=1, parts=np.array([0, 1]), whole=1, source=noise.Simulated(1)
        )
    assert draws.tolist() == [truth(2.0**-10, 0, True, ONES)] and scales[0] == math.inf


def test_no_draws():
    for sampler in (noise.laplace, noise.geometric):
        assert draw(sampler, 1.0, 0, noise.Secure()).size == 0


def test_runs_without_a_part_take_nothing_from_the_stream():
    parts = np.random.default_rng(4).integers(0, 3, 3 * noise._CHUNK + 5)
    live = parts > 0

    def drawn(each):
        return noise.laplace_each(charge(1), sensitivity=1, parts=each, whole=4, source=noise.Simulated(7))

    (draws, scales), (dense, their) = drawn(parts), drawn(parts[live])
    assert np.array_equal(draws[live], dense) and np.array_equal(scales[live], their)
    assert not draws[~live].any() and np.isinf(scales[~live]).all()


def test_one_scale_for_all_is_found_among_all_of_them():
    """Draws of one scale are made faster; a last one of another scale must not be taken for one of these."""
    parts = np.array([5, 5, 5, 1])
    seen = []
    original = noise._draw

    def recorded(scales, size, stream, *, signed):
        seen.append(np.broadcast_to(scales, size).tolist())
        return original(scales, size, stream, signed=signed)

    with patch.object(noise, "_draw", recorded):
        for given in (parts, parts[:3], parts[:1], parts[:0]):
            charge = MemoryLedger().charge(Fraction(1), mechanism="m", what="w")
            noise.Draws(charge, noise.Simulated(1)).of_parts(sensitivity=1, parts=given, whole=5, signed=True)
    assert seen[0] == pytest.approx([1, 1, 1, 5]) and seen[1] == pytest.approx([1, 1, 1])
    assert [len(each) for each in seen] == [4, 3, 1, 0]
