"""Positions of empty bins that noise lifts: exact by algebra, by digits placed at boundaries, and in law."""

from __future__ import annotations

import itertools
import math
from decimal import ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest

from dphist.errors import UsageError
from dphist.privacy import gaps, noise

SETTINGS = [(1.0, 22), (1.0, 41), (10.0, 216), (0.3, 5), (2.5, 1), (1.0, 68), (100.0, 30), (0.01, 1)]
ONES = (1 << 64) - 1


class Fixed:
    """Digits that a test sets; whatever comes after them is all zeros or all ones."""

    def __init__(self, words, more=0):
        self.next, self.rest = list(words), more

    def words(self, k):
        found, self.next = self.next[:k], self.next[k:]
        return np.array(found, dtype=np.uint64)

    def more(self):
        return self.rest


@pytest.mark.parametrize("p", [F(1, 3), F(2, 7)])
@pytest.mark.parametrize("block", [1, 2, 4])
def test_gaps_in_two_parts_hit_every_set_with_its_probability(p, block):
    q = 1 - p

    def gap(g):
        high, low = divmod(g, block)
        return (q ** (block * high) * (1 - q**block)) * (q**low * p / (1 - q**block))

    for n in range(1, 7):
        for many in range(n + 1):
            for hit in itertools.combinations(range(n), many):
                chance, at = F(1), 0
                for bin in hit:
                    chance, at = chance * gap(bin - at), bin + 1
                chance *= 1 - sum(gap(g) for g in range(n - at))
                assert chance == p**many * q ** (n - many)


@pytest.mark.parametrize(("scale", "threshold"), SETTINGS)
def test_the_rate_is_as_precise_as_it_says(scale, threshold):
    rate = gaps.Rate(scale, threshold)
    with localcontext() as context:
        context.prec = 400
        a = (-1 / Decimal(scale)).exp()
        exact = -(1 - (-threshold / Decimal(scale)).exp() / (1 + a)).ln()
        for precision in (30, 60, 110):
            assert abs(rate.at(precision) / exact - 1) < Decimal(10) ** -precision
        assert abs(Decimal(rate.c) * rate.block * exact - 1) < Decimal(2) ** -51


@pytest.mark.parametrize(("scale", "threshold"), SETTINGS)
def test_the_rate_is_the_same_in_whatever_arithmetic_the_caller_has_set(scale, threshold):
    usual = gaps.Rate(scale, threshold)
    with localcontext(Context(prec=3, rounding=ROUND_UP, Emax=9, Emin=-9)):
        rate = gaps.Rate(scale, threshold)
        assert (rate.c, rate.block) == (usual.c, usual.block)
        found = gaps.hits(1 << 40, rate, noise.Simulated(1).stream()) if rate.p < 1e-6 else None
    if found is not None:
        assert found.tolist() == gaps.hits(1 << 40, usual, noise.Simulated(1).stream()).tolist()


@pytest.mark.parametrize(("scale", "threshold"), SETTINGS)
def test_digits_at_a_boundary_fall_on_its_right_side(scale, threshold):
    rate = gaps.Rate(scale, threshold)
    most = 1 << 62
    with localcontext() as context:
        context.prec = 120
        r = rate.at(110)
        for k in {1, 2, 3, 10, 1000, round(rate.c), round(5 * rate.c)} if rate.c < 2**40 else {1, 2, 3}:
            word = int((-k * r * rate.block).exp() * 2**63)  # H >= k iff u is at most this
            if not 2 < word < 2**63 - 2:
                continue
            below, above = (
                int(gaps._high_parts(rate, 1, Fixed([word << 1], more), most)[0]) for more in (0, ONES)
            )
            assert (below, above) == (k, k - 1), "digits after the 63rd decide"
            for near in (word - 1, word + 1):
                got = int(gaps._high_parts(rate, 1, Fixed([near << 1]), most)[0])
                ends = (-(Decimal(end) / 2**63).ln() / (r * rate.block) for end in (near + 1, near))
                assert math.floor(next(ends)) <= got <= math.floor(next(ends))
        for low in {1, rate.block // 3, rate.block - 1} - {0} if rate.block > 1 else ():
            word = int((-low * r).exp() * 2**63)
            if word > 2**63 - 3:
                continue
            before = [gaps._below(rate, low, w, Fixed([], 0)) for w in (word - 1, word)]
            assert before == [True] * 2
            after = [gaps._below(rate, low, w, Fixed([], m)) for w, m in ((word, ONES), (word + 1, 0))]
            assert after == [False] * 2


def test_low_parts_that_are_rejected_are_drawn_again():
    rate = gaps.Rate(1.0, 22)
    digits = rate.block.bit_length() - 1
    last = rate.block - 1  # the least likely one: u beyond exp(-last r) rejects it
    words = [last << (64 - digits), ONES, 5 << (64 - digits), 0]
    assert gaps._low_parts(rate, 1, Fixed(words)).tolist() == [5]
    words = [last << (64 - digits), 0]
    assert gaps._low_parts(rate, 1, Fixed(words)).tolist() == [last]


def test_the_longest_gap_does_not_wrap_around():
    rate = gaps.Rate(0.01, 1)  # hits are so rare that a block is as long as any
    assert rate.block == 1 << 60
    # u near 0: beyond the last block; the low part is all ones, accepted.
    words = [*[2] * 8, *[ONES] * 8, *[0] * 8]
    assert gaps.hits(1 << 62, rate, Fixed(words)).size == 0
    # u near 1: no block is passed over, and of the next one all bins but the last.
    words = [*[ONES - 1] * 8, *[ONES] * 8, *[0] * 8]
    found = gaps.hits(1 << 62, rate, Fixed(words, ONES))
    assert found.tolist() == [(i << 60) - 1 for i in range(1, 5)]


@pytest.mark.parametrize(
    ("n", "scale", "threshold"), [(1000, 0.5, 2), (10**9, 10.0, 160), (1 << 40, 1.0, 24), (1 << 62, 1.0, 40)]
)
def test_hits_are_as_many_and_as_even_as_they_should_be(n, scale, threshold):
    rate, source, runs = gaps.Rate(scale, threshold), noise.Simulated(5), 400
    found = [gaps.hits(n, rate, source.stream()) for _ in range(runs)]
    assert all((np.diff(f) > 0).all() and (f >= 0).all() and (f < n).all() for f in found)
    expected = n * rate.p
    many = np.array([f.size for f in found])
    assert abs(many.mean() - expected) < 4.5 * math.sqrt(expected / runs)
    assert 0.75 < many.var() / (expected * (1 - rate.p)) < 1.3
    places = np.concatenate(found) / n
    assert abs(places.mean() - 0.5) < 4.5 * math.sqrt(1 / 12 / places.size)
    if n > 10**6:
        odd = np.concatenate(found) & 1
        assert abs(odd.mean() - 0.5) < 4.5 * math.sqrt(0.25 / odd.size)


def test_a_first_chunk_that_is_full_goes_on_where_it_ended(monkeypatch):
    rate = gaps.Rate(2.0, 1)
    monkeypatch.setattr(gaps, "_CHUNK", 7)
    found = gaps.hits(5000, rate, noise.Simulated(3).stream())
    assert (np.diff(found) > 0).all()
    assert abs(found.size - 5000 * rate.p) < 5 * math.sqrt(5000 * rate.p)


@pytest.mark.parametrize(("threshold", "words"), [(0, "at least 1"), (-3, "at least 1"), (2000, "far above")])
def test_thresholds_that_cannot_be_drawn_are_refused(threshold, words):
    with pytest.raises(UsageError, match=words):
        gaps.Rate(1.0, threshold)


def test_a_gap_beyond_the_end_is_no_hit_in_a_last_block_that_is_cut_off():
    rate = gaps.Rate(1.0, 22)
    n = rate.block + rate.block // 2
    beyond = [*[2] * 8, *[0] * 8, *[0] * 8]  # u near 0: many blocks are passed over
    assert rate.block > 1 and gaps.hits(n, rate, Fixed(beyond)).size == 0
