"""The release: immutable, honest about its error, saved and read back whole."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import itertools
import json
import math
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dphist
from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.domain.groups import Groups
from dphist.errors import OutputError, PrivacyError, ReleaseFileError, UsageError
from dphist.kernels.halving import halved, public_key, public_uniforms, whole_numbers
from dphist.methods.pipeline import Pipeline, Split
from dphist.release import Estimate, Merged, Release, Spent, integer, load, nonneg, save_fresh
from dphist.release.postprocess import rising
from dphist.steps.estimate import Privelet
from dphist.steps.partition import FixedSize
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import (
    FineTotals,
    GroupTotals,
    HatTotals,
    TreeTotals,
    Unknown,
)
from dphist.uncertainty.products import GridHatTotals, PyramidTotals, WaveletTotals

TENTH = Fraction(1, 10)
NASTY = "<script>alert('x')</script>&\"\n\u202e☃"


def make(domain: Domain, raw: Any, **changes: Any) -> Release:
    groups = Groups.singletons(domain.n)
    fields: dict[str, Any] = {
        "domain": domain,
        "raw": np.asarray(raw),
        "post": "none",
        "groups": groups,
        "error": GroupTotals(groups, 10.0),
        "epsilon": TENTH,
        "charges": (Spent("bins", Fraction(1), TENTH),),
        "unit": "one record",
        "sensitivity": 1,
        "method": "identity",
        "parameters": {"estimate": {"step": "estimate.GroupMeans"}, "sizes": [1, 2]},
        "provenance": {"source": "visits.parquet", "column": ["age"], "where": None},
        "versions": {"dphist": "0.1.0"},
        "created": "2025-01-01T00:00:00+00:00",
        "simulated": False,
    }
    return Release(**(fields | changes))


def line(raw: Any, **changes: Any) -> Release:
    return make(Domain((Regular(lo=0, hi=len(raw), bins=len(raw)),)), raw, **changes)


def noise(seed: int, scale: float, shape: Any) -> Any:
    """Discrete Laplace draws by the difference of two geometric ones."""
    draw = np.random.default_rng(seed)
    p = -math.expm1(-1 / scale)
    return (draw.geometric(p, shape) - draw.geometric(p, shape)).astype(np.float64)


# ---- post-processing ------------------------------------------------------------------------------------

small_values = st.lists(
    st.floats(-1e6, 1e6).map(lambda v: round(v, 3)) | st.integers(-50, 50).map(float), min_size=1, max_size=30
).map(np.array)


def slow_nonneg(raw: Any, total: float) -> Any:
    """Block by block, halves along the longest side; in fractions, so without any rounding."""
    exact = np.array([Fraction(v) for v in raw.ravel().tolist()], dtype=object).reshape(raw.shape)
    made = np.empty(raw.shape, dtype=object)

    def share(block: tuple[slice, ...], value: Fraction, sides: tuple[int, ...]) -> None:
        axis = sides.index(max(sides))  # of the largest block of this step, the same for all
        if sides[axis] == 1:
            made[block] = value
            return
        rest = (*sides[:axis], -(-sides[axis] // 2), *sides[axis + 1 :])
        low, high = block[axis].start, block[axis].stop
        if high - low == 1:
            share(block, value, rest)
            return
        halves = (slice(low, (low + high) // 2), slice((low + high) // 2, high))
        first, second = ((*block[:axis], half, *block[axis + 1 :]) for half in halves)
        wanted = exact[first].sum() + (value - exact[block].sum()) / 2
        got = min(max(wanted, Fraction(0)), value)
        share(first, got, rest)
        share(second, value - got, rest)

    share(tuple(slice(0, n) for n in raw.shape), Fraction(total), raw.shape)
    return made.astype(float)


def grids(value: Any) -> Any:
    """Lines and grids of several shapes."""
    shapes = st.sampled_from([(1,), (2,), (3,), (7,), (16,), (25,), (1, 1), (1, 6), (4, 4), (3, 5), (8, 3)])
    return shapes.flatmap(
        lambda shape: st.lists(value, min_size=math.prod(shape), max_size=math.prod(shape)).map(
            lambda values: np.array(values, dtype=float).reshape(shape)
        )
    )


eighths = st.integers(-400, 400).map(lambda v: v / 8)  # they add up exactly


@given(grids(eighths))
def test_nonneg_is_the_slow_halving(raw):
    total = max(float(raw.sum()), 0.0)
    wanted = raw if raw.min() >= 0 else slow_nonneg(raw, total)
    np.testing.assert_allclose(nonneg(raw), wanted, atol=1e-9)


@given(grids(st.floats(-1e6, 1e6) | eighths))
def test_nonneg_keeps_the_total_and_nothing_is_negative(raw):
    found = nonneg(raw)
    assert (found >= 0).all() and found.shape == raw.shape
    assert found.sum() == pytest.approx(max(raw.sum(), 0.0), rel=1e-9, abs=1e-6)
    np.testing.assert_array_equal(nonneg(np.abs(raw)), np.abs(raw))


def test_nonneg_keeps_the_total_where_clipping_inflates_it():
    raw = noise(1, 10.0, 1000)
    raw[:10] += 500
    assert nonneg(raw).sum() == pytest.approx(raw.sum())
    assert np.maximum(raw, 0).sum() > raw.sum() + 1000  # what we avoid
    np.testing.assert_array_equal(nonneg(np.array([-3.0, 1.0])), [0.0, 0.0])


def all_ranges(errors: Any) -> float:
    """The root mean squared error over all ranges, from the running sums."""
    sums = np.concatenate(([0.0], np.cumsum(errors)))
    return math.sqrt(2 * sums.var() * sums.size / (sums.size - 1))


@pytest.mark.parametrize("made", [nonneg, integer])
@pytest.mark.parametrize("full", [0.05, 0.3, 1.0])
def test_presentable_values_keep_the_error_of_ranges(made, full):
    """Where bins are empty, the nearest values take from full ones: 3 to 5 times the error here."""
    n = 2048
    truth = np.where(np.arange(n) < full * n, 40.0, 0.0)
    raw = truth + noise(3, 20.0, n)
    assert all_ranges(made(raw) - truth) < 1.15 * all_ranges(raw - truth)
    grid, seen = raw.reshape(32, 64), truth.reshape(32, 64)
    rows = np.abs((made(grid) - seen).sum(axis=1)).mean()
    assert rows < 1.15 * np.abs((grid - seen).sum(axis=1)).mean()


def slow_integer(raw: Any) -> list[int]:
    """Count the marks u, u + 1, ... that every bin's part of the running sum passes; in fractions."""
    total = round(max(float(raw.sum()), 0.0))
    digest = hashlib.sha256(b"dphist rounding" + raw.astype("<f8").tobytes()).digest()
    start = Fraction(int.from_bytes(hashlib.sha256(digest + bytes(8)).digest()[:8], "little") >> 11, 2**53)
    run, low, made = Fraction(0), 0, []
    for value in slow_nonneg(raw, total).ravel().tolist():
        run += Fraction(value)
        made.append(math.floor(run + start) - low)
        low = math.floor(run + start)
    return made


@given(grids(eighths))
def test_integer_is_the_slow_rounding(raw):
    raw = raw + 0.0
    found = integer(raw)
    assert found.ravel().tolist() == slow_integer(raw)
    moved = np.cumsum(found.ravel() - halved(raw, np.array(found.sum())).ravel())
    assert np.ptp(np.concatenate(([0.0], moved))) < 1  # every sum of neighbours


@given(small_values)
def test_presentable_integers_have_the_rounded_total(raw):
    release = line(raw, post="integer")
    values = release.values()
    assert values.sum() == round(max(float(raw.sum()), 0.0))
    assert (values >= 0).all() and (values == np.floor(values)).all()
    np.testing.assert_array_equal(release.raw, raw)
    again = line(values, post="integer")
    np.testing.assert_array_equal(again.values(), values)  # whole numbers stay as they are


def test_rounding_is_unbiased_and_its_start_is_a_public_hash():
    values = np.array([0.25, 1.5, 0.0, 3.0, 0.125, 2.125])
    starts = (np.arange(4096) + 0.5) / 4096
    found = whole_numbers(np.tile(values, (4096, 1)), starts)
    np.testing.assert_array_equal(found.mean(axis=0), values)
    assert (np.abs(found - values) < 1).all() and (found.sum(axis=1) == 7).all()
    key = public_key(values)
    assert key == public_key(values.astype(">f8")) != public_key(values + 1)
    assert public_key(np.array([0.0])) == public_key(np.array([-0.0]))
    many = public_uniforms(key, 40_001)
    np.testing.assert_array_equal(many[:3], public_uniforms(key, 3))
    assert many.size == 40_001 and (many >= 0).all() and (many < 1).all()
    assert np.abs(np.histogram(many, 16, (0, 1))[0] - 2500).max() < 300
    assert abs(np.corrcoef(many[1:], many[:-1])[0, 1]) < 0.03


def test_rounding_takes_nothing_back_where_running_sums_overshoot():
    values = np.array([0.1, 0.6, 0.9, 0.8, 0.6, 0.0])
    assert np.cumsum(values)[-2] > 3.0
    found = whole_numbers(values, np.array(1 - 2.0**-53))
    assert (found >= 0).all() and found.sum() == 3


def test_grids_are_halved_as_grids():
    """The longer side first: here the columns, where the bins in their order would halve the rows."""
    raw = np.array([[9.0, -4.0, -6.0, 5.0], [-8.0, 1.0, 7.0, 0.5]])
    for post in ("nonneg", "integer"):
        release = make(Domain((Integers(0, 1), Integers(0, 3))), raw, post=post)
        wanted = slow_nonneg(raw, 4.5) if post == "nonneg" else np.reshape(slow_integer(raw), raw.shape)
        np.testing.assert_array_equal(release.values(), wanted)
    assert not np.array_equal(nonneg(raw).ravel(), nonneg(raw.ravel()))


def former_nonneg(raw: Any) -> Any:
    """Drop what falls below zero, share the loss among the rest, again: the nearest values of all."""
    total, alive = raw.sum(), set(range(raw.size))
    if total <= 0:
        return np.zeros_like(raw)
    while True:
        loss = (math.fsum(raw[i] for i in alive) - total) / len(alive)
        kept = {i for i in alive if raw[i] - loss > 0}
        if kept == alive:
            return np.array([raw[i] - loss if i in alive else 0.0 for i in range(raw.size)])
        alive = kept


def former_integer(raw: Any) -> list[int]:
    values = former_nonneg(raw)
    down = [math.floor(v) for v in values]
    by_remainder = sorted(range(len(down)), key=lambda i: (-(values[i] - down[i]), i))
    for i in by_remainder[: round(max(raw.sum(), 0)) - sum(down)]:
        down[i] += 1
    return down


@given(st.lists(st.integers(-40, 80).map(lambda v: v / 8), min_size=1, max_size=12).map(np.array))
@example(np.array([9.0, -4.0, -4.0, 3.0, 0.5, 0.25]))
def test_files_with_the_former_values_open_with_the_present_ones(raw):
    """Ties of remainders aside, which the last digit of a quotient decided."""
    older = line(raw, post="nonneg").to_dict() | {"values": former_nonneg(raw).tolist()}
    assert Release.from_dict(older) == line(raw, post="nonneg")
    parts = np.sort(former_nonneg(raw) % 1)
    if (np.diff(parts) > 1e-6).all() and parts[-1] < 1 - 1e-6:
        older = line(raw, post="integer").to_dict() | {"values": former_integer(raw)}
        np.testing.assert_array_equal(Release.from_dict(older).values(), line(raw, post="integer").values())
    for post in ("nonneg", "integer"):
        other = line(raw, post=post).to_dict()
        other["values"] = [v + 2 for v in other["values"]]
        with pytest.raises(ReleaseFileError, match="do not follow"):
            Release.from_dict(other)


# ---- the object -----------------------------------------------------------------------------------------


def test_nothing_can_be_changed():
    given_raw = np.array([1.0, -2.0, 3.0])
    release = line(given_raw, post="nonneg")
    given_raw[0] = 99
    assert release.raw[0] == 1.0
    for array in (release.raw, release.values(), release.presentable, line([1.0]).counts()):
        with pytest.raises(ValueError):
            array[0] = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.epsilon = Fraction(1)
    with pytest.raises(TypeError):
        release.parameters["estimate"]["step"] = "another"
    with pytest.raises(TypeError):
        release.provenance["column"] = "name"
    values, edges = release.to_numpy()
    values[0] = 7
    assert release.values()[0] != 7 and not edges.flags.writeable


def test_replace_makes_a_new_one_with_fresh_values():
    release = line([1.5, -2.0, 3.0])
    assert release.values().tolist() == [1.5, -2.0, 3.0]
    changed = dataclasses.replace(release, post="integer")
    assert changed.values().sum() == 2.0 and changed.values().min() >= 0.0
    assert release.values().tolist() == [1.5, -2.0, 3.0]
    assert changed != release and dataclasses.replace(changed, post="none") == release
    assert hash(dataclasses.replace(release)) == hash(release)
    assert release != "something else"


def test_a_changed_raw_value_or_header_is_another_release():
    release = line([1.0, 2.0])
    assert line([1.0, 2.0]) == release
    assert line([1.0, 2.5]) != release
    assert line([1.0, 2.0], simulated=True) != release
    assert line([1.0, 2.0], error=Unknown("none")) != release


def test_pickles_by_its_document():
    release = line([1.0, 2.5], post="nonneg")
    assert pickle.loads(pickle.dumps(release)) == release


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"raw": [1.0, 2.0]}, "3 bins"),
        ({"raw": [1.0, math.nan, 2.0]}, "finite"),
        ({"raw": [1.0, math.inf, 2.0]}, "finite"),
        ({"post": "nonnegative"}, "Did you mean 'nonneg'"),
        ({"groups": Groups.singletons(4)}, "groups"),
        ({"epsilon": 0.1}, "Fraction"),
        ({"epsilon": Fraction(0)}, "above 0"),
        ({"sensitivity": 0}, "at least 1"),
        ({"sensitivity": True}, "whole number"),
        ({"parameters": {"x": object()}}, "only JSON values"),
        ({"parameters": {"x": [math.nan]}}, "only JSON values"),
        ({"provenance": {1: "x"}}, "strings for keys"),
    ],
)
def test_a_wrong_field_is_refused(change, what):
    with pytest.raises(UsageError, match=what):
        make(Domain((Integers(0, 2),)), [1.0, 2.0, 3.0]) and make(
            Domain((Integers(0, 2),)), **({"raw": [1.0, 2.0, 3.0]} | change)
        )


def test_charges_beyond_the_stated_epsilon_are_refused():
    shares = (Spent("a", Fraction(1), TENTH), Spent("b", Fraction(1), TENTH))
    with pytest.raises(PrivacyError, match="more than the epsilon"):
        line([1.0], charges=shares)


def test_one_bin_is_not_said_to_be_several():
    release = dphist.from_counts([4], bins=[0, 1], epsilon=1)
    assert "Release('auto', 1 bin, epsilon=1" in repr(release) and "1 bin)" in repr(release.axes[0])
    plan = dphist.Plan(bins=1, range=(0, 1), epsilon=1, method="identity")
    preview = plan.preview(records=100)
    assert "'identity', 1 bin, epsilon" in repr(preview)
    assert dphist.advise(1, records=100, epsilon=1, methods=["identity"]).question().startswith("1 bin, 100")
    groups = dphist.GroupedPlan(
        bins=1, range=(0, 1), epsilon=1, by="ward", groups=["A", "B"], method="identity"
    )
    seen = groups.preview(records=100)
    assert ", 1 bin, epsilon" in seen.question() and ", 1 bin, epsilon=1" in repr(seen.releases[0])


def test_repr_is_one_line():
    assert repr(line([1.0, 2.0])) == "Release('identity', 2 bins, epsilon=0.1, unit='one record')"
    odd = make(
        Domain((Integers(0, 1), Integers(0, 2))),
        np.zeros(6),
        epsilon=Fraction(1, 3),
        charges=(),
        simulated=True,
        unit="a\nb",
    )
    assert repr(odd) == "Release('identity', 2 x 3 bins, epsilon=1/3, unit='a b', SIMULATED)"


def test_a_million_bins_cost_nothing_until_asked():
    raw = np.zeros(1_000_000)
    domain = Domain((Regular(lo=0, hi=1, bins=raw.size),))
    groups = Groups.singletons(raw.size)
    error = GroupTotals(groups, 10.0)
    make(domain, raw, groups=groups, error=error)
    tracemalloc.start()
    try:
        make(domain, raw, groups=groups, error=error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * raw.nbytes  # a copy and a mask; a Python object per bin would take four times as much


# ---- the plotting protocol ------------------------------------------------------------------------------


def test_speaks_uhi():
    from uhi.numpy_plottable import ensure_plottable_histogram
    from uhi.typing.plottable import PlottableAxisGeneric, PlottableHistogram

    domain = Domain((Variable(np.array([0.0, 1.0, 4.0])), Categories(("a", "b"), other=True)))
    release = make(domain, np.arange(6))
    assert isinstance(release, PlottableHistogram)
    assert ensure_plottable_histogram(release) is release
    assert release.kind == "COUNT"
    assert release.values().shape == release.variances().shape == release.counts().shape == (2, 3)
    x, y = release.axes
    assert isinstance(x, PlottableAxisGeneric)
    assert (len(x), list(x), x.traits.discrete, x.traits.circular) == (2, [(0, 1), (1, 4)], False, False)
    assert (list(y), y[-1], y.traits.discrete) == (["a", "b", "(other)"], "(other)", True)
    whole = line([1, 2]).axes[0], make(Domain((Integers(5, 6),)), [1, 2]).axes[0]
    assert list(whole[1]) == [5, 6] and whole[1].traits.discrete and whole[0] != whole[1]
    assert x == make(domain, np.zeros(6)).axes[0] and x != y
    with pytest.raises(IndexError):
        x[2]


def test_variances_are_those_of_the_law_or_none():
    np.testing.assert_allclose(line([1, 2]).variances(), noise_law.variance(10.0))
    assert line([1, 2], error=Unknown("why")).variances() is None


# ---- sums and intervals ---------------------------------------------------------------------------------


def test_sum_takes_edges_in_data_units():
    ages = make(Domain((Integers(20, 59),)), np.arange(40.0))
    found = ages.sum(30, 40)
    margin = noise_law.sum_quantile(np.array([10.0]), np.array([10]), 0.95)
    assert found == Estimate(145.0, 145.0 - margin, 145.0 + margin, 0.95, ages.error.description)
    assert ages.sum(20, 60).value == ages.total().value == sum(range(40))
    assert ages.sum(20, 60).high == ages.total().high
    assert ages.count(25).value == ages.count("25").value == 5.0
    assert ages.sum(30, 40, level=0.5).high < found.high
    assert str(found).startswith("145 (") and "level 0.95" in str(found)
    assert "note" not in repr(found)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda r: r.sum(0.5, 2), "inside a bin"),
        (lambda r: r.sum(0, 9), "outside the domain"),
        (lambda r: r.sum(2, 1), "must increase"),
        (lambda r: r.sum(1, 1), "must increase"),
        (lambda r: r.sum(1), "two of its edges"),
        (lambda r: r.sum("0", "1"), "must be a number"),
        (lambda r: r.sum(0, math.nan), "finite"),
        (lambda r: r.sum(0, 1, level=1.0), "0.95"),
        (lambda r: r.total(level=0), "0.95"),
        (lambda r: r.intervals(level=95), "0.95"),
        (lambda r: r.count(1), "sum"),
        (lambda r: r.quantile(1.5), "0 to 1"),
        (lambda r: r.quantile(math.nan), "0 to 1"),
        (lambda r: r.quantile("0.5"), "0 to 1"),
        (lambda r: r.rebin(3), "divisor"),
        (lambda r: r.rebin(0), "divisor"),
        (lambda r: r.rebin(2.0), "whole number"),
        (lambda r: r.rebin([0, 2]), "ends of the domain"),
        (lambda r: r.rebin([0, 2.5, 4]), "inside a bin"),
        (lambda r: r.rebin([0, 2, 2, 4]), "must increase"),
        (lambda r: r.rebin("2"), "whole number"),
    ],
)
def test_a_wrong_question_is_refused(ask, what):
    with pytest.raises(UsageError, match=what):
        ask(line([1.0, 2.0, 3.0, 4.0]))


def test_categories_are_asked_by_label():
    release = make(Domain((Categories(("red", "green", "blue"), other=True),)), [1.0, 2.0, 4.0, 8.0])
    assert release.sum("red").value == release.count("red").value == 1.0
    assert release.sum("red", "blue").value == release.sum(["blue", "red"]).value == 5.0
    assert release.count("(other)").value == 8.0
    two = noise_law.sum_quantile(np.array([10.0]), np.array([2]), 0.95)
    assert release.sum("red", "blue").high == 5.0 + two  # not neighbours, and still exact
    with pytest.raises(UsageError, match="Did you mean 'green'"):
        release.sum("gren")
    for ask in (lambda: release.sum(), lambda: release.sum([]), lambda: release.sum(3)):
        with pytest.raises(UsageError, match="label"):
            ask()
    for ask in (release.cdf, lambda: release.quantile(0.5), lambda: release.rebin(2)):
        with pytest.raises(UsageError, match="no order"):
            ask()


def test_whole_numbers_are_named_by_number():
    release = make(Domain((Integers(5, 7),)), [1.0, 2.0, 4.0])
    for wrong in (8, "x", 5.0):
        with pytest.raises(UsageError):
            release.count(wrong)


def test_rectangles_of_a_grid():
    domain = Domain((Regular(lo=0, hi=4, bins=4), Categories(("a", "b", "c"))))
    release = make(domain, np.arange(12.0))
    found = release.sum((1, 3), ["a", "c"])
    assert found.value == 3 + 5 + 6 + 8
    assert found.high - found.value == noise_law.sum_quantile(np.array([10.0]), np.array([4]), 0.95)
    assert release.sum((0, 4), ("a", "b", "c")).value == release.total().value == 66
    assert release.sum((2, 3), "b").value == 7
    for wrong in ((0, 4), (), ((0, 4),)):
        with pytest.raises(UsageError, match="axis"):
            release.sum(*wrong)
    # Scales that differ: the law of the sum is still known.
    scales = np.linspace(1, 12, 12)
    uneven = make(domain, np.arange(12.0), error=GroupTotals(Groups.singletons(12), scales))
    margin = noise_law.sum_quantile(scales[[3, 5, 6, 8]], np.ones(4, dtype=np.int64), 0.95)
    assert uneven.sum((1, 3), ["a", "c"]).high == 22 + margin
    # Groups that a rectangle cuts: no interval, and it says why.
    coarse = make(domain, np.arange(12.0), error=GroupTotals(Groups(np.array([0, 6, 12])), 10.0))
    cut = coarse.sum((1, 3), ["a", "c"])
    assert (cut.low, cut.high) == (None, None) and "group" in cut.note and "no interval" in str(cut)
    assert coarse.sum((0, 2), ["a", "b", "c"]).low is not None  # two whole rows are one group


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.2, "-0.2"),
        (37.456789, "37.4568"),
        (1234.5, "1,234.5"),
        (99999.96, "100,000"),
        (30_000_000.0, "30,000,000"),
        (30_000_000.4, "30,000,000"),
        (-1234567.0, "-1,234,567"),
        (math.nan, "nan"),
    ],
)
def test_an_estimate_without_width_is_read_in_full(value, shown):
    assert str(Estimate(value, value, value, 0.95, "x")) == f"{shown} ({shown} to {shown}, level 0.95)"
    assert str(Estimate(value, None, None, 0.95, "why")) == f"{shown} (no interval: why)"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ((2056.57, 2015.78, 2097.36), "2,057 (2,015 to 2,098"),
        ((0.156628, 0.0, 48.5645), "0 (0 to 49"),
        ((435.451, 406.0, 456.0), "435 (406 to 456"),
        ((13.53, 7.49, 19.51), "13.5 (7.4 to 19.6"),
        ((-3.2, -7.7, 1.1), "-3.2 (-7.7 to 1.1"),
        ((0.123456, 0.12, 0.13), "0.1235 (0.12 to 0.13"),
        ((30_000_000.6, 29_999_990.2, 30_000_011.0), "30,000,001 (29,999,990 to 30,000,011"),
        ((5.25, 0.0, math.inf), "5.25 (0 to inf"),
        ((152345.9, 152340.4, 152351.4), "152,345.9 (152,340.4 to 152,351.4"),
        ((45231.26, 45231.18, 45231.34), "45,231.26 (45,231.18 to 45,231.34"),
        ((1e9, 1e9 - 1e-7, 1e9 + 1e-7), "1,000,000,000 (1,000,000,000 to 1,000,000,000"),
        ((0.0, -5e-324, 5e-324), "0 (-4.94066e-324 to 4.94066e-324"),
    ],
)
def test_an_estimate_has_the_digits_that_its_interval_supports(answer, shown):
    assert str(Estimate(*answer, 0.95, "x")) == f"{shown}, level 0.95)"


def test_what_is_simulated_says_so_wherever_it_goes():
    real, fake = line([5.0, 3.0]), line([5.0, 3.0], simulated=True)
    answers = (
        lambda r: r.sum(0, 1),
        lambda r: r.total(),
        lambda r: r.quantile(0.5),
        lambda r: dataclasses.replace(r, error=Unknown("why")).sum(0, 1),
        lambda r: dataclasses.replace(r, error=Unknown("why")).quantile(0.5),
        lambda r: dataclasses.replace(r, raw=[-1.0, 0.0]).quantile(0.5),
        lambda r: r.rebin(2).total(),
    )
    for ask in answers:
        assert ask(fake).note.startswith("SIMULATED: not private. ")
        assert str(ask(fake)).count("SIMULATED: not private.") == 1
        assert "SIMULATED" not in ask(real).note + str(ask(real))
    assert fake.to_pandas().attrs["simulated"] is True and real.to_pandas().attrs["simulated"] is False
    assert fake.to_arrow().schema.metadata[b"simulated"] == b"yes: not private"
    assert real.to_arrow().schema.metadata == {
        b"simulated": b"no",
        b"method": b"identity",
        b"epsilon": b"0.1",
        b"unit": b"one record",
    }
    assert "\\udc" in repr(line([1.0], unit="\udce9").to_arrow().schema.metadata)
    kinds = [r.plot().spec["layer"][0]["encoding"]["color"]["scale"]["domain"] for r in (real, fake)]
    assert kinds == [["private", "interval"], ["simulated", "interval"]]


def test_an_unknown_error_is_said_and_not_guessed():
    release = line([1.0, 2.0], error=Unknown("nobody worked it out"))
    assert release.sum(0, 1) == Estimate(1.0, None, None, 0.95, release.error.description)
    assert release.total().low is None and release.quantile(0.5).low is None
    assert "nobody worked it out" in release.quantile(0.5).note
    for joint in (False, True):
        assert np.isnan(release.intervals(joint=joint)).all()


def test_intervals_match_one_by_one():
    groups = Groups(np.array([0, 1, 2, 4, 5]), np.array([4, 0, 1, 2, 3]))
    error = GroupTotals(groups, np.array([1.0, 5.0, 20.0, 5.0]))
    release = line(np.arange(5.0), groups=groups, error=error)
    low, high = release.intervals(level=0.9)
    for i in range(5):
        margin = error.margin(i, i + 1, level=0.9)
        expected = (math.nan, math.nan) if margin is None else (i - margin, i + margin)
        np.testing.assert_array_equal((low[i], high[i]), expected)
    assert np.isnan(low).sum() == 2


def test_intervals_cover_as_often_as_they_say():
    trials, scale, level = 40_000, 3.0, 0.9
    release = line(np.arange(6.0) * 7, error=GroupTotals(Groups.singletons(6), scale))
    errors = noise(3, scale, (trials, 6))  # the half-widths do not depend on what was drawn
    alone = release.intervals(level=level)[1] - release.raw
    joint = release.intervals(level=level, joint=True)[1] - release.raw
    range_ = release.sum(1, 4, level=level)
    half = range_.high - range_.value
    assert range_.value - range_.low == half
    np.testing.assert_array_equal(release.raw - release.intervals(level=level)[0], alone)
    sigma = math.sqrt(level * (1 - level) / trials)
    covered = [
        (np.abs(errors[:, 0]) <= alone[0]).mean(),
        (np.abs(errors) <= joint).all(axis=1).mean(),
        (np.abs(errors[:, 1:4].sum(axis=1)) <= half).mean(),
    ]
    for share in covered:
        assert level - 4 * sigma <= share <= 0.935  # whole numbers may add a little, never take
    narrower = [
        (np.abs(errors[:, 0]) <= alone[0] - 1).mean(),
        (np.abs(errors) <= joint - 1).all(axis=1).mean(),
        (np.abs(errors[:, 1:4].sum(axis=1)) <= half - 1).mean(),
    ]
    for share in narrower:
        assert share < level - 4 * sigma  # one less on each side would be found out


# ---- cdf and quantiles ----------------------------------------------------------------------------------


@given(small_values)
def test_cdf_rises_from_zero_to_one(raw):
    shares = line(raw).cdf()
    if raw.sum() <= 0:
        assert np.isnan(shares).all()
        return
    assert shares[0] == 0.0 and shares[-1] == 1.0 and (np.diff(shares) >= 0).all()


def slow_rising(raw: Any) -> list[float]:
    sums = [math.fsum(raw[:i]) for i in range(len(raw) + 1)]
    sums = [min(max(v, 0.0), max(sums[-1], 0.0)) for v in sums]
    return [(max(sums[: i + 1]) + min(sums[i:])) / 2 for i in range(len(sums))]


@given(small_values)
def test_running_sums_rise_and_change_no_more_than_needed(raw):
    found = rising(raw)
    size = max(1.0, float(np.abs(raw).max()))
    np.testing.assert_allclose(found, slow_rising(raw), atol=1e-6 * size)
    assert (np.diff(found) >= 0).all()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40).map(np.array), st.integers(0, 99))
def test_rising_sums_are_never_worse_than_the_raw_ones(truth, seed):
    exact = np.concatenate(([0], np.cumsum(truth)))
    raw = truth + noise(seed, 5.0, truth.size)
    worst = np.abs(np.cumsum(raw) - exact[1:]).max()
    assert np.abs(rising(raw) - exact).max() <= worst + 1e-9


def test_quantiles_stay_right_where_most_bins_hold_only_noise():
    """Running sums of values cut off at 0 would be drawn towards the empty bins."""
    n, scale = 20_000, 10.0
    truth = np.round(20 * np.exp(-(((np.arange(n) / n - 0.2) / 0.1) ** 2)))
    exact = np.searchsorted(np.cumsum(truth), truth.sum() / 2)
    raw = truth + noise(1, scale, n)
    found = line(raw, error=GroupTotals(Groups.singletons(n), scale)).quantile(0.5)
    assert found.low <= exact <= found.high and found.high - found.low < 400
    assert abs(found.value - exact) < 100
    drawn = np.searchsorted(np.cumsum(np.maximum(raw, 0)), np.maximum(raw, 0).sum() / 2)
    assert drawn > found.high + 500  # what we avoid


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any), st.integers(0, 40))
def test_quantile_interpolates_inside_its_bin(counts, fortieths):
    """The twin walks the bins and stops where the sum is reached."""
    q, total = Fraction(fortieths, 40), sum(counts)
    value = line(np.array(counts, dtype=float)).quantile(fortieths / 40).value
    below = Fraction(0)
    for i, count in enumerate(counts):
        if count and below + count >= q * total:
            assert value == pytest.approx(float(i + (q * total - below) / count), abs=1e-9)
            return
        below += count
    raise AssertionError("no bin reached the quantile")


def test_quantile_without_mass_says_so():
    found = line([-1.0, 0.0]).quantile(0.5)
    assert (
        math.isnan(found.value)
        and found.low is None
        and "no quantiles: its total is not above zero" in found.note
    )


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("merge", [1, 4])
def test_quantile_intervals_cover_at_least_the_level(q, merge):
    n, scale, trials, level = 40, 4.0, 400, 0.9
    truth = np.round(400 * np.exp(-0.5 * ((np.arange(n) - 15) / 5) ** 2))
    exact = line(truth).rebin(merge).quantile(q).value
    covered = strict = 0
    widths = []
    for raw in truth + noise(17, scale, (trials, n)):
        found = (
            line(raw, error=GroupTotals(Groups.singletons(n), scale)).rebin(merge).quantile(q, level=level)
        )
        covered += int(found.low <= exact <= found.high)
        strict += int(found.low == exact == found.high)
        widths.append(found.high - found.low)
    assert covered / trials >= level
    assert strict < trials  # an interval of no width would not do
    if 0 < q < 1:
        assert np.median(widths) <= max(3, 2 * merge)  # conservative, not useless


def test_quantile_intervals_with_a_scale_per_bin_agree_with_one_scale():
    raw = np.round(100 * np.exp(-0.5 * ((np.arange(30) - 12) / 4) ** 2))
    groups = Groups.singletons(30)
    uneven = np.full(30, 2.0)
    uneven[29] = 2.0 + 1e-9
    one = line(raw, error=GroupTotals(groups, 2.0)).quantile(0.3)
    each = line(raw, error=GroupTotals(groups, uneven)).quantile(0.3)
    assert dataclasses.astuple(one)[:4] == pytest.approx(dataclasses.astuple(each)[:4])
    lost = uneven.copy()
    lost[3] = math.inf
    assert line(raw, error=GroupTotals(groups, lost)).quantile(0.3).low is None


# ---- merging bins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hats", "quadtree", "privelet", "identity"])
def test_variances_of_projections_are_those_of_sums_of_cells_that_are_not_independent(method):
    release = dphist.from_counts(np.ones((16, 20), int), epsilon=1, method=method, workload="rectangles:40")
    for axis in (0, 1):
        of = np.moveaxis(np.arange(320).reshape(16, 20), axis, 0)
        margins = [release.error.cells_margin(np.sort(cells), level=0.8) for cells in of]
        exact = np.square(np.array(margins) / noise_law.normal_quantile(0.8))
        off = 0.1 if method == "identity" else 1e-6  # whose margins are whole numbers
        np.testing.assert_allclose(release.project(axis).variances(), exact, rtol=off)


def test_variances_of_merged_bins_are_unknown_where_those_of_theirs_are():
    groups = Groups(np.array([0, 2, 3, 4, 5]))
    merged = GroupTotals(groups, 2.0).merged(np.array([0, 1, 3, 5]))
    found = merged.variances()
    assert np.isnan(found[:2]).all() and found[2] == pytest.approx(2 * noise_law.variance(2.0))
    assert GroupTotals(groups, 2.0).merged(np.array([0, 3, 5])).merged(np.array([0, 2])).variances() is None


@pytest.mark.parametrize("workload", ["ranges", "points"])
def test_variances_cannot_be_written_to(workload):
    release = dphist.from_counts(np.ones(40, int), epsilon=1, method="hats", workload=workload)
    with pytest.raises(ValueError, match="read-only"):
        release.variances()[0] = 0.0


def test_rebin_adds_up_and_stays_exact():
    release = line(np.arange(12.0), post="integer")
    coarse = release.rebin(3)
    assert coarse.raw.tolist() == [3.0, 12.0, 21.0, 30.0]
    assert coarse.domain == Domain((Regular(lo=0, hi=12, bins=4),))
    assert coarse.post == "integer" and coarse.epsilon == release.epsilon
    assert coarse.parameters["rebinned_from"] == 12
    for lo, hi in itertools.combinations((0, 3, 6, 9, 12), 2):
        assert dataclasses.astuple(coarse.sum(lo, hi))[:4] == dataclasses.astuple(release.sum(lo, hi))[:4]
    assert coarse.total().high == release.total().high
    np.testing.assert_allclose(coarse.variances(), 3 * noise_law.variance(10.0))
    low, high = coarse.intervals()
    assert (low[1], high[1]) == (release.sum(3, 6).low, release.sum(3, 6).high)
    wide = coarse.intervals(joint=True)[1] - coarse.raw
    assert (wide == noise_law.sum_quantile(np.array([10.0]), np.array([3]), 1 - 0.05 / 4)).all()
    assert release.rebin(1) is release


def test_rebin_twice_is_rebin_once():
    release = line(np.arange(12.0))
    once, twice = release.rebin(6), release.rebin(2).rebin(3)
    assert once == twice and isinstance(twice.error, Merged) and isinstance(twice.error.base, GroupTotals)


def test_rebin_at_edges_and_of_integers():
    release = make(Domain((Integers(10, 15),)), np.arange(6.0))
    coarse = release.rebin([10, 11, 14, 16])
    assert coarse.raw.tolist() == [0.0, 6.0, 9.0]
    assert coarse.domain.axis.edges.tolist() == [10, 11, 14, 16]
    assert coarse.sum(11, 14).high == release.sum(11, 14).high
    low, high = coarse.intervals()
    assert (low[2], high[2]) == (release.sum(14, 16).low, release.sum(14, 16).high)


def test_rebin_of_groups_knows_what_they_know():
    groups = Groups(np.array([0, 2, 4, 6]))
    release = line(np.arange(6.0), groups=groups, error=GroupTotals(groups, 10.0))
    assert np.isfinite(release.rebin(2).intervals()[0]).all()
    assert np.isnan(release.rebin(3).intervals()).all()
    assert np.isnan(release.rebin(3).intervals(joint=True)).all()
    assert line([1.0, 2.0], error=Unknown("x")).rebin(2).total().low is None


# ---- tables ---------------------------------------------------------------------------------------------


def test_numpy_shape():
    release = make(Domain((Regular(lo=0, hi=2, bins=2), Integers(0, 2))), np.arange(6))
    values, x, y = release.to_numpy()
    assert values.shape == (2, 3) and x.tolist() == [0, 1, 2] and y.tolist() == [0, 1, 2, 3]


def test_frames_hold_the_same_table():
    release = line([1.5, -2.0], post="nonneg")
    low, high = np.maximum(release.intervals(), 0)  # no count is negative, and these are presentable
    expected = {
        "lo": [0.0, 1.0],
        "hi": [1.0, 2.0],
        "value": release.values().tolist(),
        "raw": [1.5, -2.0],
        "low": low.tolist(),
        "high": high.tolist(),
    }
    assert release.to_pandas().to_dict("list") == expected
    assert release.to_arrow().to_pydict() == expected
    assert release.to_polars().to_dict(as_series=False) == expected
    frame = release.to_pandas()
    frame.loc[0, "raw"] = 99
    assert release.raw[0] == 1.5


def test_frames_of_grids_and_labels():
    release = make(Domain((Categories(("a", "b")), Integers(4, 6))), np.arange(6.0))
    frame = release.to_pandas()
    assert list(frame.columns) == ["x_label", "y_lo", "y_hi", "value", "raw", "low", "high"]
    assert frame["x_label"].tolist() == ["a", "a", "a", "b", "b", "b"]
    assert frame["y_lo"].tolist() == [4, 5, 6, 4, 5, 6]
    assert release.to_polars()["x_label"].to_list() == release.to_arrow()["x_label"].to_pylist()


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_missing_dataframe_library_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    ask = {"pandas": Release.to_pandas, "pyarrow": Release.to_arrow, "polars": Release.to_polars}[library]
    with pytest.raises(UsageError, match=r"pip install 'dphist\[frames\]'"):
        ask(line([1.0]))


# ---- files ----------------------------------------------------------------------------------------------

texts = st.text(max_size=12) | st.sampled_from([NASTY, "", "'; DROP TABLE x", "\x00", "\ud800", "é", "=1+1"])
ends = st.floats(-1e6, 1e6, allow_subnormal=False)
axes = st.one_of(
    st.builds(
        lambda lo, width, bins: Regular(lo=lo, hi=lo + width, bins=bins),
        ends,
        st.floats(0.01, 1e6),
        st.integers(1, 6),
    ),
    st.lists(ends.map(lambda v: round(v, 3)), min_size=2, max_size=6, unique=True).map(
        lambda edges: Variable(np.sort(np.array(edges)))
    ),
    st.builds(lambda low, size: Integers(low, low + size), st.integers(-1000, 1000), st.integers(0, 5)),
    st.builds(Categories, st.lists(texts, min_size=1, max_size=5, unique=True).map(tuple), st.booleans()),
)


@st.composite
def releases(draw: Any) -> Release:
    domain = Domain(tuple(draw(st.lists(axes, min_size=1, max_size=2))))
    n = domain.n
    numbers = st.floats(-1e300, 1e300) | st.integers(-(2**60), 2**60).map(float) | st.floats(-9, 9)
    starts = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=3))})
    order = draw(st.none() | st.permutations(range(n)))
    groups = draw(st.sampled_from([Groups.singletons(n), Groups(np.array(starts), order)]))
    scale = draw(st.floats(0.01, 1e6) | st.just(math.inf))
    error = draw(
        st.sampled_from(
            [
                GroupTotals(groups, scale),
                GroupTotals(groups, np.arange(1, groups.k + 1) / 3),
                Unknown(draw(texts)),
                Merged(GroupTotals(Groups.singletons(2 * n), 2.0), np.arange(n + 1) * 2),
            ]
        )
    )
    epsilon = draw(st.fractions(Fraction(1, 10**6), 100))
    return make(
        domain,
        draw(st.lists(numbers, min_size=n, max_size=n)),
        post=draw(st.sampled_from(["none", "nonneg", "integer"])),
        groups=groups,
        error=error,
        epsilon=epsilon,
        charges=(
            Spent(draw(texts), Fraction(1, 3), epsilon / 3),
            Spent("b", Fraction(2, 3), epsilon / 2),
        ),
        unit=draw(texts),
        sensitivity=draw(st.integers(1, 100)),
        method=draw(texts),
        parameters={draw(texts): [draw(texts), {"a": None, "b": 0.1}]},
        provenance={"column": draw(texts), "where": draw(texts)},
        simulated=draw(st.booleans()),
    )


calm = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@calm
@given(releases())
def test_json_and_parquet_come_back_equal(tmp_path, release):
    for ending in (".json", ".parquet"):
        path = release.save(tmp_path / f"r{ending}", overwrite=True)
        back = load(path)
        assert back == release
        assert back.to_dict() == release.to_dict()
        np.testing.assert_array_equal(back.raw, release.raw)
        np.testing.assert_array_equal(back.values(), release.values())
    held = json.loads((tmp_path / "r.json").read_text("ascii"))
    assert re.fullmatch("[0-9a-f]{64}", held.pop("sha256")) and held == release.to_dict()
    release.save(tmp_path / "r.csv", overwrite=True)
    repr(release)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_a_release_keeps_the_id_it_was_paid_under_and_older_files_have_none(tmp_path):
    release = line([1.0, 2.5], id="0123456789abcdef" * 2)
    for name in ("r.json", "r.parquet"):
        again = load(release.save(tmp_path / name))
        assert again == release and again.id == release.id
    assert "id=01234567)" in repr(release) and "01234567" in release._repr_html_()
    older = release.to_dict()
    del older["id"]
    assert Release.from_dict(older).id is None and "id" not in line([1.0, 2.5]).to_dict()
    assert Release.from_dict(older) != release


def test_the_document_is_what_the_description_says(tmp_path):
    release = line([1.0, 2.5, -0.5], post="nonneg", id="0" * 32)
    found = json.loads(release.save(tmp_path / "r.json").read_text())
    text = (Path(__file__).parents[2] / "docs" / "release-format.md").read_text()
    table = text[text.index("| field |") : text.index("### `domain`")]
    named = [row.split("`")[1] for row in table.splitlines() if row.startswith("| `")]
    assert list(found) == named
    assert found["epsilon"] == "1/10" and found["charges"][0]["share"] == "1"
    assert '"raw":[1,2.5,-0.5]' in (tmp_path / "r.json").read_text()
    assert "values" not in line([1.0]).to_dict()
    assert found["domain"]["closure"] == "left-closed, last bin closed"
    for kind in ("group totals", "merged", "unknown"):
        assert f'`"{kind}"`' in text
    assert GroupTotals(Groups.singletons(1), 1.0).to_dict()["kind"] == "group totals"
    assert Unknown("x").to_dict()["kind"] == "unknown"


def test_csv_is_a_table_with_a_stamp(tmp_path):
    domain = Domain((Categories(('a "quoted", label', "b")),))
    release = make(domain, [1.0, 2.5], unit="one\nuser", simulated=True, error=Unknown("none"))
    path = release.save(tmp_path / "r.csv")
    assert path.read_text() == (
        "# dphist method: identity\n# dphist epsilon: 0.1\n# dphist unit: one user\n"
        f"# dphist simulated: yes: not private\n# dphist bounding: {release.bounding}\n"
        "label,value,raw,low,high\n"
        '"a ""quoted"", label",1,1,,\nb,2.5,2.5,,\n'
    )
    with pytest.raises(ReleaseFileError, match=r"\.json or \.parquet"):
        load(path)


def test_parquet_is_a_plain_table_too(tmp_path):
    import duckdb

    path = line([1.5, -2.0], error=Unknown("x")).save(tmp_path / "r.parquet")
    with duckdb.connect() as db:
        rows = db.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    assert rows == [(0.0, 1.0, 1.5, 1.5, None, None), (1.0, 2.0, -2.0, -2.0, None, None)]


def changed(**changes: Any) -> Any:
    document = line([1.0, 2.0, 3.0]).to_dict()
    for key, value in changes.items():
        document[key] = value
    return document


def without(key: str) -> Any:
    return {k: v for k, v in line([1.0, 2.0, 3.0]).to_dict().items() if k != key}


GOOD = line([1.0, 2.0, 3.0]).to_json()
DAMAGED = {
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "cut short": (GOOD[: len(GOOD) // 2].encode(), "cut short"),
    "not text": (b"\xff\xfe\x00\x01", "not text"),
    "prose": (b"hello", "not whole JSON"),
    "a list": (b"[1, 2]", "not a dphist release"),
    "foreign": (b'{"type": "FeatureCollection"}', "not a dphist release"),
    "later version": (json.dumps(changed(version=99)).encode(), "pip install --upgrade dphist"),
    "odd version": (json.dumps(changed(version="1")).encode(), "version"),
    "no version": (json.dumps(without("version")).encode(), "version"),
    "true version": (json.dumps(changed(version=True)).encode(), "version"),
    "too few values": (json.dumps(changed(raw=[1, 2])).encode(), "3 bins and it holds 2 values"),
    "no list": (json.dumps(changed(raw="123")).encode(), "no list of values"),
    "text value": (json.dumps(changed(raw=[1, 2, "3"])).encode(), "not a number"),
    "true value": (json.dumps(changed(raw=[1, 2, True])).encode(), "not a number"),
    "null value": (json.dumps(changed(raw=[1, 2, None])).encode(), "not a number"),
    "NaN": (json.dumps(changed(raw=[1, 2, math.nan])).encode(), "NaN"),
    "Infinity": (json.dumps(changed(raw=[1, 2, -math.inf])).encode(), "-Infinity"),
    "overflow": (GOOD.replace('"raw":[1,2,3]', '"raw":[1,2,1e999]').encode(), "finite"),
    "huge integer": (GOOD.replace('"raw":[1,2,3]', f'"raw":[1,2,1{"0" * 400}]').encode(), "damaged"),
    "endless integer": (GOOD.replace('"raw":[1,2,3]', f'"raw":[1,2,1{"0" * 9000}]').encode(), "damaged"),
    "deep": (b"[" * 200_000, "damaged"),
    "unknown axis": (json.dumps(changed(domain={"axes": [{"kind": "hexagons"}]})).encode(), "hexagons"),
    "no axes": (json.dumps(changed(domain={"axes": []})).encode(), "one or two axes"),
    "unknown groups": (json.dumps(changed(groups={"kind": "cloud", "n": 3})).encode(), "cloud"),
    "huge groups": (
        json.dumps(changed(groups={"kind": "singletons", "n": 10**13})).encode(),
        "another number",
    ),
    "odd groups": (json.dumps(changed(groups=[])).encode(), "damaged"),
    "unknown error": (json.dumps(changed(error={"kind": "vague"})).encode(), "vague"),
    "huge error": (
        json.dumps(
            changed(error={"kind": "group totals", "scale": 1, "groups": {"kind": "singletons", "n": 10**13}})
        ).encode(),
        "another number",
    ),
    "merged error of others": (
        json.dumps(changed(error={"kind": "merged", "starts": [0, 1], "base": {"kind": "unknown"}})).encode(),
        "another number",
    ),
    "unknown post": (json.dumps(changed(post="magic")).encode(), "magic"),
    "float epsilon": (json.dumps(changed(epsilon=0.1)).encode(), "1/10"),
    "giant epsilon": (json.dumps(changed(epsilon="1e999999999")).encode(), "1/10"),
    "zero epsilon": (json.dumps(changed(epsilon="0")).encode(), "above 0"),
    "zero below": (json.dumps(changed(epsilon="1/0")).encode(), "1/10"),
    "charges": (json.dumps(changed(charges=[{"purpose": "x"}])).encode(), "'share'"),
    "overcharged": (json.dumps(changed(epsilon="1/20")).encode(), "more than the epsilon"),
    "simulated": (json.dumps(changed(simulated="no")).encode(), "true or false"),
    "id": (json.dumps(changed(id="A name")).encode(), "32 hexadecimal digits"),
    "no id": (json.dumps(changed(id=None)).encode(), "32 hexadecimal digits"),
    "unit": (json.dumps(changed(unit=7)).encode(), "text"),
    "parameters": (json.dumps(changed(parameters=[])).encode(), "object"),
    "other values": (json.dumps(changed(values=[1, 2, 4])).encode(), "do not follow"),
    "cut Parquet": (b"PAR1 and then nothing", "damaged"),
    **{
        f"no {key}": (json.dumps(without(key)).encode(), key)
        for key in ("domain", "raw", "epsilon", "post", "error")
    },
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_says_what_to_do(tmp_path, case):
    content, what = DAMAGED[case]
    path = tmp_path / "release.json"
    path.write_bytes(content)
    with pytest.raises(ReleaseFileError, match=what) as caught:
        load(path)
    message = str(caught.value)
    assert "release.json" in message and len(message) < 400


ODD = ["x", None, [], ["x"], {}, -1, 0, 0.5, True, 10**400, [[1]]]


@pytest.fixture(scope="module")
def of_models():
    """Documents of a grid of 6 by 4 bins or of a line of 24, by the kind of their error model."""
    line = dphist.from_counts(range(24), epsilon=1, method="identity")
    sides = {"bins": (6, 4), "range": ((0, 6), (0, 4))}
    grid = dphist.histogram2d([1, 2], [1, 3], epsilon=1, method="identity", **sides)
    alone = Groups.singletons(24)
    tree = TreeTotals(alone, 2, False, np.full(47, 2.0))
    lines = (HatTotals(24, "all-ranges", 9.0), FineTotals(GroupTotals(alone, 9.0), 16), tree)
    grids = (GridHatTotals(6, 4, 9.0), PyramidTotals(6, 4, 9.0), WaveletTotals(alone, 4, 9.0))
    made = [dataclasses.replace(line, error=error) for error in lines]
    made += [dataclasses.replace(grid, error=error) for error in grids]
    return {release.error.kind: release.to_dict() for release in made}


@pytest.mark.parametrize(
    "kind, name",
    [
        ("grid hat totals", "rows"),
        ("grid hat totals", "columns"),
        ("grid hat totals", "scale"),
        ("pyramid totals", "rows"),
        ("pyramid totals", "columns"),
        ("pyramid totals", "scale"),
        ("wavelet totals", "columns"),
        ("wavelet totals", "scale"),
        ("tree totals", "branching"),
        ("tree totals", "pruned"),
        ("hat totals", "scale"),
        ("hat totals", "queries"),
        ("fine totals", "grid"),
        ("fine totals", "scale"),
    ],
)
def test_an_entry_of_another_kind_is_refused_in_our_words(of_models, kind, name):
    good = of_models[kind]
    assert Release.from_dict(good).error.kind == kind
    for odd in ODD:
        if (name, odd) in (("pruned", True), ("scale", 0.5), ("scale", None)):
            continue
        with pytest.raises(ReleaseFileError, match="is damaged") as found:
            Release.from_dict(good | {"error": good["error"] | {name: odd}})
        assert not re.search("ufunc|dtype|NoneType|object|convert|argument|supported", str(found.value)), odd


@pytest.mark.parametrize("rows, columns", [(4, 6), (3, 8), (2, 12), (12, 2)])
def test_an_error_model_of_a_grid_of_other_sides_is_refused(of_models, rows, columns):
    for kind in ("grid hat totals", "pyramid totals", "wavelet totals"):
        good = of_models[kind]
        sides = {"columns": columns} if kind == "wavelet totals" else {"rows": rows, "columns": columns}
        with pytest.raises(ReleaseFileError, match="for a grid of other rows and columns"):
            Release.from_dict(good | {"error": good["error"] | sides})


def test_the_error_model_of_one_axis_of_a_grid_still_loads(of_models):
    grid = Release.from_dict(of_models["wavelet totals"])
    assert Release.from_dict(grid.project(0).to_dict()).sum(0, 2) == grid.project(0).sum(0, 2)


def test_the_undamaged_file_loads(tmp_path):
    """The twin of the table above: it is the damage that is refused."""
    path = tmp_path / "release.json"
    path.write_text("\ufeff" + GOOD, encoding="utf-8")
    assert load(path) == line([1.0, 2.0, 3.0])
    path.write_text(json.dumps(changed(later_addition={"x": 1})))
    assert load(str(path)) == line([1.0, 2.0, 3.0])


def test_every_cut_of_a_file_is_refused(tmp_path):
    path = tmp_path / "r.json"
    for size in range(0, len(GOOD), 7):
        path.write_bytes(GOOD.encode()[:size])
        with pytest.raises(ReleaseFileError):
            load(path)


def test_missing_files_directories_and_foreign_parquet(tmp_path):
    import duckdb

    with pytest.raises(ReleaseFileError, match="no file"):
        load(tmp_path / "nothing.json")
    with pytest.raises(ReleaseFileError, match="directory"):
        load(tmp_path)
    path = tmp_path / "other.parquet"
    with duckdb.connect() as db:
        db.execute("COPY (SELECT 1 AS raw) TO ? (FORMAT parquet)", [str(path)])
        with pytest.raises(ReleaseFileError, match="not a dphist release"):
            load(path)
        head = json.dumps({k: v for k, v in json.loads(GOOD).items() if k != "raw"})
        query = "COPY ({}) TO ? (FORMAT parquet, KV_METADATA {{dphist: ?}})"
        for rows, what in (
            ("SELECT 1.0 AS raw", "holds 1 values"),
            ("SELECT unnest([1.0, NULL, 2.0]) AS raw", "finite"),
            ("SELECT unnest([1, 2, 3]) AS cooked", "damaged"),
            ("SELECT unnest(['a', 'b', 'c']) AS raw", "damaged"),
        ):
            db.execute(query.format(rows), [str(path), head])
            with pytest.raises(ReleaseFileError, match=what):
                load(path)
        db.execute(query.format("SELECT unnest([1, 2, 3]) AS raw"), [str(path), head])
    assert load(path) == line([1.0, 2.0, 3.0])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReleaseFileError, match="damaged"):
        load(path)


def files(folder: Path) -> Iterator[str]:
    return (p.name for p in folder.iterdir())


@pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), PermissionError(13, "no")]
)
def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch, ending, failure):
    path = tmp_path / f"r{ending}"
    line([1.0]).save(path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    expected = OutputError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        line([1.0, 2.0]).save(path, overwrite=True)
    assert path.read_bytes() == before and list(files(tmp_path)) == [path.name]
    if isinstance(failure, OSError):
        assert "untouched" in str(caught.value)
        assert ("disk is full" if failure.errno == errno.ENOSPC else "no permission") in str(caught.value)


def test_a_full_disk_while_writing(tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OutputError, match="Free some space"):
        line([1.0]).save(tmp_path / "r.json")
    assert list(files(tmp_path)) == []


def test_places_that_cannot_be_written(tmp_path):
    release = line([1.0])
    (tmp_path / "folder.json").mkdir()
    for path, what in (
        (tmp_path / "none" / "r.json", "create it first"),
        (tmp_path / "folder.json", "is a directory"),
        (tmp_path / "r.xlsx", r"\.json, \.parquet, \.csv"),
        (tmp_path / "r", r"\.json, \.parquet, \.csv"),
    ):
        with pytest.raises(OutputError, match=what):
            release.save(path)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(OutputError, match="not an ordinary file"):
        release.save(tmp_path / "pipe.json")
    assert sorted(files(tmp_path)) == ["folder.json", "pipe.json"]


def test_saving_through_a_link_replaces_what_it_points_at(tmp_path):
    line([2.0]).save(tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to("real.json")
    line([1.0]).save(tmp_path / "link.json", overwrite=True)
    assert (tmp_path / "link.json").is_symlink() and load(tmp_path / "real.json") == line([1.0])
    (tmp_path / "ahead.json").symlink_to("later.json")
    line([3.0]).save(tmp_path / "ahead.json")
    assert (tmp_path / "ahead.json").is_symlink() and load(tmp_path / "later.json") == line([3.0])


@pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
def test_a_release_replaces_nothing_but_itself_unasked(tmp_path, ending):
    import duckdb

    path = tmp_path / f"r{ending}"
    path.touch()  # as mktemp does: nothing to lose
    before = line([1.0]).save(path).read_bytes()
    assert line([1.0]).save(path).read_bytes() == before  # the same once more: nothing is lost
    with pytest.raises(OutputError, match=r"is not this release.*overwrite=True"):
        line([2.0, 3.0]).save(path)
    assert path.read_bytes() == before
    if ending == ".parquet":
        with duckdb.connect() as db:
            db.execute("COPY (SELECT 1 AS raw) TO ? (FORMAT parquet)", [str(path)])
    else:
        path.write_text('{"age": 30}\n{"format": "dphist-release"}' if ending == ".json" else "age\n30\n")
    records = path.read_bytes()
    assert records != before
    with pytest.raises(OutputError, match=r"is not this release.*another name"):
        line([2.0, 3.0]).save(path)
    assert path.read_bytes() == records
    line([2.0, 3.0]).save(path, overwrite=True)
    assert path.read_bytes() != records and list(files(tmp_path)) == [path.name]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_fresh_name_is_never_somebody_elses(tmp_path, monkeypatch, links):
    if not links:

        def refuse(*_: Any) -> None:
            raise PermissionError(errno.EPERM, "not permitted")

        monkeypatch.setattr(Path, "hardlink_to", refuse)
    (tmp_path / "r-2.json").write_text("mine")
    made = [save_fresh(line([float(i)]), tmp_path / "r.json") for i in range(3)]
    assert [p.name for p in made] == ["r.json", "r-3.json", "r-4.json"]
    assert [load(p).raw[0] for p in made] == [0.0, 1.0, 2.0]
    # Taken between the look and the write: both of the racers get their file.
    seen = Path.exists
    monkeypatch.setattr(Path, "exists", lambda self: self.name == "gone" and seen(self))
    assert save_fresh(line([5.0]), tmp_path / "r.json").name == "r-5.json"
    with pytest.raises(OutputError, match="is not this release"):
        line([6.0]).save(tmp_path / "r.json")
    monkeypatch.undo()
    assert (tmp_path / "r-2.json").read_text() == "mine" and load(tmp_path / "r.json").raw[0] == 0.0
    assert not [name for name in files(tmp_path) if name.startswith(".")]


def test_a_fresh_name_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="disk is full"):
        save_fresh(line([1.0]), tmp_path / "r.json")
    assert list(files(tmp_path)) == []


def test_odd_file_names(tmp_path):
    for name in ("it's.parquet", "glob*[a]?.parquet", "x;y.PARQUET", "ünï.JSON"):
        path = line([1.0, 2.0]).save(tmp_path / name)
        assert load(path) == line([1.0, 2.0])


def test_opening_needs_nothing_private(tmp_path):
    path = line([1.0, 2.0]).save(tmp_path / "r.json")
    program = (
        "import sys; from dphist.release import load; r = load(sys.argv[1]); r.sum(0, 1); r.quantile(0.5)\n"
        "private = ('dphist.privacy', 'dphist.privacy.counts', 'dphist.records')\n"
        "heavy = ('duckdb', 'altair', 'pandas', 'numba', 'cryptography')\n"
        "bad = [m for m in sys.modules if m.startswith(private) or m in heavy]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)


# ---- pictures -------------------------------------------------------------------------------------------


def test_html_escapes_every_text():
    domain = Domain((Categories(("a", NASTY)),))
    release = make(
        domain,
        [5.0, 3.0],
        unit=NASTY,
        method=NASTY,
        created=NASTY,
        error=Unknown(NASTY),
        provenance={"column": NASTY},
        simulated=True,
    )
    page = release._repr_html_()
    assert "<script" not in page.lower() and "&lt;script&gt;" in page and "SIMULATED" in page


def test_html_shows_facts_even_without_a_picture(monkeypatch):
    release = line([5.0, 3.0])
    assert "<svg" in release._repr_html_()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page = release._repr_html_()
    assert "<svg" not in page and "identity" in page and "0.1" in page


def test_plot_draws_saves_and_refuses(tmp_path):
    release = line([5.0, -3.0, 4.0], post="nonneg")
    release.plot(tmp_path / "p.svg", log=True, truth=[4, 0, 4])
    assert "<svg" in (tmp_path / "p.svg").read_text()[:200]
    assert "95 %" in json.dumps(release.plot().spec) and "80 %" in json.dumps(release.plot(level=0.8).spec)
    blind = dataclasses.replace(release, error=Unknown("x"), simulated=True)
    text = json.dumps(blind.plot().spec)
    assert "95 %" not in text and "SIMULATED" in text
    half = dataclasses.replace(
        release, error=GroupTotals(Groups.singletons(3), np.array([1.0, math.inf, 2.0]))
    )
    half.plot()
    grid = make(Domain((Integers(0, 1), Integers(0, 1))), np.arange(4))
    assert grid.plot().to_svg()
    assert release.plot().spec["title"]["text"] == ["Records by age"]
    assert release.plot().spec["title"]["subtitle"][0].startswith("identity; epsilon 0.1; unit: one record")
    assert grid.plot().spec["title"]["text"] == ["Records by bin"]  # one column is not two
    both = dataclasses.replace(grid, provenance={"column": ["age", "pay"], "where": "age > 3"})
    assert both.plot().spec["title"]["text"] == ["Records by age and pay"]
    assert "where age > 3" in both.plot().spec["title"]["subtitle"][0]
    with pytest.raises(UsageError, match="grid"):
        grid.plot(truth=[1, 2, 3, 4])


class TestInstants:
    @pytest.fixture
    def release(self):
        axis = dphist.Instants("2024-03-29", "2024-04-12", freq="1d", tz="Europe/Berlin")
        return dphist.from_counts([1000] * 14, epsilon=1, bins=axis)

    def test_quantiles_are_told_by_the_clock(self, release):
        middle = release.quantile(0.5)
        json.dumps(dataclasses.asdict(middle))
        assert str(middle).startswith("2024-04-0") and middle.value > 1.7e9
        assert re.fullmatch(r"\S+( \S+)? \(2024-04-0\d to 2024-04-0\d, level 0.95\)", str(middle))

    def test_merged_steps_are_steps(self, release):
        weeks = release.rebin(7).domain.axis
        assert weeks == dphist.Instants("2024-03-29", "2024-04-12", freq="7d", tz="Europe/Berlin")
        assert release.rebin(["2024-03-29", "2024-04-05", "2024-04-12"]).domain.axis == weeks
        assert release.rebin(release.domain.axis.edges[::7]).domain.axis == weeks
        uneven = release.rebin(["2024-03-29", "2024-03-30", "2024-04-12"]).domain.axis
        assert uneven.kind == "variable" and uneven.n == 2
        with pytest.raises(UsageError, match="from 2024-03-29 to 2024-04-12"):
            release.rebin(["2024-03-30", "2024-04-12"])

    def test_tables_say_when_bins_begin_and_end(self, release, tmp_path):
        table = release.to_pandas()
        assert table["lo"].tolist()[1:] == table["hi"].tolist()[:-1]
        assert (table["lo"][2], table["hi"][2]) == ("2024-03-31", "2024-04-01")
        text = release.save(tmp_path / "r.csv").read_text("utf-8")
        assert "\n2024-03-31,2024-04-01," in text
        hours = dphist.Instants("2024-03-31", "2024-03-31T05:00", freq="1h", tz="Europe/Berlin")
        fine = dphist.Instants("2024-03-31", "2024-03-31T00:02", freq="30s").moments()
        assert fine[:2] == ["2024-03-31 00:00:00", "2024-03-31 00:00:30"]
        assert hours.moments()[:3] == [
            "2024-03-31 00:00+01:00", "2024-03-31 01:00+01:00", "2024-03-31 03:00+02:00"
        ]  # fmt: skip

    def test_pictures_have_dates_below(self, release, tmp_path):
        release.plot(tmp_path / "p.svg")
        assert ">2024-03-31<" in (tmp_path / "p.svg").read_text("utf-8")


def test_a_picture_of_all_bins_at_once_says_so(tmp_path):
    release = dphist.from_counts([5, 900, 40], epsilon=1)
    for joint, words in ((False, "each bin on its own"), (True, "all bins at once")):
        release.plot(tmp_path / "p.svg", joint=joint, overwrite=joint)
        assert words in (tmp_path / "p.svg").read_text("utf-8")
    with pytest.raises(OutputError, match="overwrite=True"):
        release.plot(tmp_path / "p.svg")
    saved = release.save(tmp_path / "r.json")
    command = [sys.executable, "-m", "dphist", "plot", str(saved), str(tmp_path / "q.svg"), "--joint"]
    subprocess.run(command, check=True, capture_output=True)
    assert "all bins at once" in (tmp_path / "q.svg").read_text("utf-8")


def test_a_wavelet_over_groups_of_a_grid_reads_back(tmp_path):
    made = Pipeline(partition=FixedSize(4), estimate=Privelet(), split=Split(estimate=Fraction(1)))
    release = dphist.from_counts(np.full((8, 8), 5), epsilon=1, method=made)
    assert dphist.load(release.save(tmp_path / "r.json")) == release


@pytest.mark.parametrize(
    ("freq", "right", "wrong"),
    [
        ("1w", ["2024-01-01", "2024-01-08"], ["2024", "2024-01"]),
        ("1h", ["2024-01-01 00:00"], ["2024", "2024-01", "2024-01-01"]),
        ("1d", ["2024-01-01", "2024-01-02"], ["2024", "2024-01"]),
        ("1mo", ["2024-01", "2024-02", "2024-01-01"], ["2024"]),
        ("12mo", ["2024", "2024-01"], []),
        ("1y", ["2024"], []),
    ],
)
def test_a_bin_of_time_is_not_named_by_a_longer_period(freq, right, wrong):
    domain = Domain((Instants("2024-01-01", "2026-01-01", freq),))
    release = dphist.from_counts(np.full(domain.n, 40), bins=domain, epsilon=100)
    for name in right:
        assert release.count(name).value == pytest.approx(40, abs=2)
    for name in wrong:
        with pytest.raises(
            UsageError, match=rf"^{name} is a (year|month|day), and a bin lasts 1 .*: ask for"
        ):
            release.count(name)
    if freq != "1w":  # years begin within weeks
        half = 40 * domain.n / 2
        assert release.sum("2024", "2025").value == pytest.approx(half, rel=0.02), "as edges they are"
