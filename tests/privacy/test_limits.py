"""No count that is allowed makes a method refuse, warn or lose its numbers: at the limits of the docs."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import DataError, UsageError
from dphist.kernels.transforms.exact import exact_answers
from dphist.kernels.trees.hats import fitted_hats, sides_of
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.planning import plan as api
from dphist.privacy import counts, noise
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import MemoryLedger, parse_epsilon
from dphist.privacy.queries import Hats
from samples import of_each_kind

TOP = counts.MAX_COUNT
FULL = counts.MAX_TOTAL // counts.MAX_COUNT  # so many bins at the top make the largest total
HUGE = Fraction(10**30)  # the largest epsilon that is taken


def one_full(shape: tuple[int, ...]) -> np.ndarray:
    x = np.zeros(shape, np.int64)
    x.flat[x.size // 2] = TOP
    return x


LINES = {
    "one bin, empty": np.zeros(1, np.int64),
    "one bin, full": np.array([TOP]),
    "all zeros": np.zeros(40, np.int64),
    "one full bin": one_full((40,)),
    "the largest total": np.full(FULL, TOP),
    "the largest total, uneven": np.where(np.arange(FULL + 8) % 65 == 7, 0, TOP),
}
GRIDS = {
    "one bin, full": np.array([[TOP]]),
    "all zeros": np.zeros((5, 7), np.int64),
    "one full bin": one_full((5, 7)),
    "the largest total": np.full((16, FULL // 16), TOP),
}


def least_epsilon(method: str, x: np.ndarray, calibrate: Fraction) -> Fraction:
    """Return the smallest epsilon that a release of this method is not refused for."""
    pipeline = make_pipeline(method, Domain(tuple(Integers(0, n - 1) for n in x.shape)))
    split = pipeline.split
    parts = [p for p in (split.initialize, split.partition, split.estimate) if p]
    shares = [p * (1 - calibrate) for p in parts] + [calibrate / 4] * bool(calibrate)
    return max(1 / (api._WIDEST * min(shares)), api._LEAST_EPSILON).limit_denominator(10**12) * 2


def drive(method: str, x: np.ndarray, epsilon: Fraction, workload: str, calibrate: Fraction) -> None:
    """Publish; what is refused must be refused before it is paid for, and for empty counts as well."""
    options = dict(epsilon=epsilon, method=method, workload=workload, calibrate=calibrate)
    ledger = MemoryLedger()
    try:
        release = dphist.from_counts(x, ledger=ledger, **options)
    except UsageError:
        assert ledger.spent("default") == 0
        with pytest.raises(UsageError):
            dphist.from_counts(np.zeros_like(x), **options)
        return
    assert np.isfinite(release.raw).all()
    assert sum(spent.share for spent in release.charges) <= 1
    release.to_json()


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize("epsilon", ["least", "usual", "huge"])
@pytest.mark.parametrize("method", of_each_kind())
def test_no_allowed_count_stops_a_method(method: str, epsilon: str) -> None:
    for name, x in [*LINES.items(), *GRIDS.items()]:
        several = ("ranges", "prefixes", "random:30") if x.ndim == 1 else ("rectangles:30",)
        asked = ("points", *several) if epsilon == "usual" and name.startswith("the largest") else ("points",)
        calibrates = make_pipeline(method, Domain((Integers(0, 3),))).estimate.calibrates
        for workload in asked:
            for calibrate in (Fraction(0), Fraction(1, 20))[: 1 + (calibrates and workload == "points")]:
                least = least_epsilon(method, x, calibrate)
                value = {"least": least, "usual": Fraction(1), "huge": HUGE}[epsilon]
                drive(method, x, value, workload, calibrate)


@pytest.mark.parametrize("method", CATALOGUE)
def test_the_least_epsilon_is_really_taken(method: str) -> None:
    x = np.zeros((40, 1) if method in ("quadtree", "hybridtree") else 40, np.int64)
    least = least_epsilon(method, x, Fraction(0))
    dphist.from_counts(x, method=method, epsilon=least, calibrate=0)
    with pytest.raises(UsageError, match="too small|below"):
        dphist.from_counts(x, method=method, epsilon=least / 4, calibrate=0)


def test_the_documented_limits_are_those_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| overflow |"))
    powers = [1 << int(power) for power in re.findall(r"2\^(\d+)", row)]
    assert powers == [counts.MAX_COUNT, counts.MAX_TOTAL, 1 << 61]
    ends = [Fraction(10) ** int(power) for power in re.findall(r"10\^(-?\d+)", row)]
    assert ends == [api._LEAST_EPSILON, HUGE]
    assert parse_epsilon(HUGE) == HUGE
    with pytest.raises(UsageError):
        parse_epsilon(HUGE + 1)
    held = Counts(np.full(FULL, TOP), Domain((Integers(0, FULL - 1),)))
    assert int(held.values.sum()) == counts.MAX_TOTAL
    for beyond in (np.array([TOP + 1]), np.append(np.full(FULL, TOP), 1)):
        with pytest.raises(DataError, match=r"2\*\*"):
            Counts(beyond, Domain((Integers(0, beyond.size - 1),)))


@pytest.mark.parametrize("top", [100, 1 << 40, 1 << 53])
@pytest.mark.parametrize("most", [1, 1 << 12, 1 << 16, 1 << 40])
def test_linear_answers_are_exact_at_every_length_of_digits(top: int, most: int) -> None:
    rng = np.random.default_rng(most % 1000 + top % 1000)
    weights = rng.integers(-most, most + 1, (20, 30))
    x = rng.integers(0, top, 30)
    right = [sum(int(w) * int(c) for w, c in zip(row, x, strict=True)) for row in weights]
    cut = [max(min(v, 1 << 61), -(1 << 61)) for v in right]
    assert exact_answers(lambda part: weights @ part, x, most=most).tolist() == cut


def test_whether_linear_answers_are_refused_does_not_depend_on_the_counts() -> None:
    for x in (np.zeros(1 << 10, np.int64), np.full(1 << 10, 1 << 52)):
        with pytest.raises(UsageError, match="too many"):
            exact_answers(lambda part: part, x, most=1 << 51)
        exact_answers(lambda part: part, x, most=1 << 49)


@pytest.mark.parametrize("queries", ["all-ranges", "prefixes"])
def test_hats_answer_the_largest_counts_and_a_record_moves_them_no_further(queries: str) -> None:
    fitted = Hats(FULL, queries)
    for x in (np.full(FULL, TOP - 1), one_full((FULL,)) // 2, one_full((FULL,)) // (1 << 4) - 1):
        x = np.maximum(x, 0)
        more = x.copy()
        more[FULL // 2] += 1
        before, after = fitted(x), fitted(more)
        assert np.abs(after - before).sum() <= fitted.sensitivity
        assert max(abs(before).max(), abs(after).max()) <= 1 << 61
    bins = fitted_hats(FULL, queries).bins
    exact = [int(x[i]) * int(bins[i]) for i in range(FULL)]
    assert before[:FULL].tolist() == exact


def test_hats_of_both_sides_answer_the_largest_counts_and_a_record_moves_them_no_further() -> None:
    rows, columns = 30, FULL // 30
    fitted, sides = Hats(30 * columns, "all-ranges", columns), sides_of(rows, columns, "all-ranges")
    for x in (np.full(fitted.n, TOP - 1), one_full((fitted.n,)) // 2, one_full((fitted.n,)) // (1 << 20)):
        more = x.copy()
        more[fitted.n // 2] += 1
        before, after = fitted(x), fitted(more)
        assert np.abs(after - before).sum() <= fitted.sensitivity
        assert max(abs(before).max(), abs(after).max()) <= 1 << 61
    weight = int(np.multiply.outer(*(side.bins for side in sides)).ravel()[fitted.n // 2])
    assert before.reshape(-1, sides[1].size)[:rows, :columns].ravel()[fitted.n // 2] == weight * int(
        x[fitted.n // 2]
    )


def test_hats_of_both_sides_are_cut_off_and_never_wrap_around() -> None:
    sides = sides_of(30, 26, "all-ranges")
    dense = [np.zeros((side.size, side.n), dtype=object) for side in sides]
    for made, side in zip(dense, sides, strict=True):
        made[range(side.n), range(side.n)] = side.bins.tolist()
        for h, (first, at, end) in enumerate(zip(side.first, side.offset, side.offset[1:], strict=False)):
            made[side.n + h, first : first + end - at] = side.weights[at:end].tolist()
    for digits in (30, 34, 40, 41, 45, 50, 53):  # the sums of some of them fit, weighted or not
        x = np.random.default_rng(digits).integers((1 << digits) - 9, (1 << digits) + 1, (30, 26))
        exact = dense[0].dot(x.astype(object)).dot(dense[1].T).ravel()
        assert Hats(780, "all-ranges", 26)(x.ravel()).tolist() == [min(v, 1 << 61) for v in exact]


def test_pyramids_answer_the_largest_counts_and_a_record_moves_them_no_further() -> None:
    fitted, (shape,) = Hats(780, "rectangles", 26), sides_of(30, 26, "rectangles")
    assert fitted.sensitivity == shape.whole == 1 << 12
    dense = np.zeros((shape.size, shape.n), dtype=object)
    dense[range(shape.n), range(shape.n)] = shape.bins.tolist()
    for h, (first, at, end) in enumerate(zip(shape.first, shape.offset, shape.offset[1:], strict=False)):
        dense[shape.n + h, first : first + end - at] = shape.weights[at:end].tolist()
    for digits in (30, 40, 45, 48, 50, 53):
        x = np.random.default_rng(digits).integers((1 << digits) - 9, (1 << digits) + 1, 780)
        more = x.copy()
        more[digits] += 1
        exact = dense.dot(x.astype(object))
        assert fitted(x).tolist() == [min(v, 1 << 61) for v in exact]
        assert np.abs(fitted(more) - fitted(x)).sum() <= fitted.sensitivity


def test_noise_at_the_ends_of_what_a_release_may_ask_fits_beside_the_largest_answers() -> None:
    # 2^61 is where answers are cut off: noise is below 64 scales but with a chance of 10^-27.
    assert (1 << 61) + 64 * int(noise.MAX_SCALE) < 1 << 62
    held = Counts(np.full(FULL, TOP), Domain((Integers(0, FULL - 1),)))
    wide = Curator.simulated(held, epsilon=Fraction(1, 1 << 40), seed=1)
    assert wide.measure(Groups.whole(FULL), share=Fraction(1)).values[0] > 1 << 61
