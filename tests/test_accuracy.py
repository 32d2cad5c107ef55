"""Error models against brute force and simulation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.domain.groups import Groups
from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import ErrorModel, GroupTotals, Unknown
from dphist.uncertainty.reading import error_model_from_dict


def draws(rng, scale, size):
    p = -np.expm1(-1 / np.asarray(scale))
    return rng.geometric(p, size) - rng.geometric(p, size)


def members(groups):
    """The twin's view: each group as a set of bins."""
    order = np.arange(groups.n) if groups.order is None else groups.order
    return [set(order[a:b].tolist()) for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)]


def brute_margin(groups, scales, lo, hi, level):
    """The twin: collect the groups that fit inside and see whether they fill the range."""
    wanted = set(range(lo, hi))
    inside = [g for g, bins in enumerate(members(groups)) if bins <= wanted]
    if set().union(*(members(groups)[g] for g in inside)) != wanted:
        return None
    used = np.array([scales[g] for g in inside], dtype=float)
    return noise_law.sum_quantile(used, np.ones(used.size, dtype=np.int64), level)


@st.composite
def partitions(draw):
    n = draw(st.integers(1, 9))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    order = draw(st.one_of(st.none(), st.permutations(range(n))))
    return Groups(np.array([0, *cuts, n]), None if order is None else np.array(order))


@settings(deadline=None)
@given(groups=partitions(), data=st.data())
def test_every_range_agrees_with_brute_force(groups, data):
    each = st.lists(st.sampled_from([0.4, 3.0, 8.0]), min_size=groups.k, max_size=groups.k)
    scale = data.draw(st.one_of(st.just(2.5), each))
    model = GroupTotals(groups, np.array(scale))
    scales = np.broadcast_to(scale, groups.k)
    for lo in range(groups.n + 1):
        for hi in range(lo, groups.n + 1):
            expected = brute_margin(groups, scales, lo, hi, 0.9)
            found = model.margin(lo, hi, level=0.9)
            assert found == expected and (found is None or isinstance(found, float))
    variances = model.variances()
    band = model.joint(level=0.9)
    for g, bins in enumerate(members(groups)):
        for b in bins:
            assert np.isnan(band[b]) == np.isnan(variances[b]) == (len(bins) > 1)
            assert len(bins) > 1 or variances[b] == pytest.approx(
                noise_law.variance(float(scales[g])), rel=1e-14
            )


def test_an_empty_range_has_no_error():
    for order in (None, np.array([2, 0, 1])):
        model = GroupTotals(Groups(np.array([0, 2, 3]), order), 1.0)
        assert [model.margin(b, b, level=0.95) for b in range(4)] == [0, 0, 0, 0]


def coverages(model, rng, scales, *, releases, level):
    """How often noise of the given scales stays inside the margin of one range, and inside the joint band."""
    noise = draws(rng, scales, (releases, model.groups.k))
    margin = model.margin(0, model.groups.n // 2, level=level)
    single = np.mean(np.abs(noise[:, : model.groups.k // 2].sum(axis=1)) <= margin)
    return single, np.mean((np.abs(noise) <= model.joint(level=level)).all(axis=1))


def test_simulated_releases_are_covered_and_a_wrong_scale_is_noticed():
    rng = np.random.default_rng(11)
    releases, n, level = 20_000, 100, 0.95
    scales = np.repeat([20.0, 70.0], n // 2)
    model = GroupTotals(Groups.singletons(n), scales)
    slack = 4 * math.sqrt(level * (1 - level) / releases)
    lattice = 0.01  # what one step of the lattice is worth at these scales, for the joint band
    for found in coverages(model, rng, scales, releases=releases, level=level):
        assert level - slack <= found <= level + lattice + slack
    for found in coverages(model, rng, scales * 1.1, releases=releases, level=level):
        assert found < level - slack
    for found in coverages(model, rng, scales * 0.9, releases=releases, level=level):
        assert found > level + slack


def test_the_joint_band_is_as_narrow_as_the_lattice_allows():
    n, scale = 1000, 4.0
    band = GroupTotals(Groups.singletons(n), scale).joint(level=0.95)
    assert band.shape == (n,) and np.ptp(band) == 0
    k = int(band[0])
    assert (1 - noise_law.tail(scale, k)) ** n >= 0.95 > (1 - noise_law.tail(scale, k - 1)) ** n


def test_the_joint_band_counts_only_bins_that_have_one():
    groups = Groups(np.array([0, 1, 4, 5]), np.array([4, 0, 1, 2, 3]))
    band = GroupTotals(groups, np.array([3.0, 900.0, 3.0])).joint(level=0.9)
    (k,) = noise_law.joint_quantile(np.array([3.0]), np.array([2]), 0.9)
    assert band[[4, 3]].tolist() == [k, k]
    assert np.isnan(band[:3]).all()


def test_a_total_never_measured_has_no_bound_and_spoils_no_other():
    model = GroupTotals(Groups.singletons(3), np.array([2.0, math.inf, 2.0]))
    pair = GroupTotals(Groups.singletons(2), 2.0)
    assert model.margin(0, 1, level=0.9) == pair.margin(0, 1, level=0.9)
    assert model.margin(0, 2, level=0.9) == math.inf
    assert model.joint(level=0.9)[[0, 2]].tolist() == pair.joint(level=0.9).tolist()
    assert model.joint(level=0.9)[1] == model.variances()[1] == math.inf


def test_words_say_what_is_covered():
    identity = GroupTotals(Groups.singletons(4), 1.0).description
    grouped = GroupTotals(Groups.whole(4), 1.0).description
    assert identity.startswith("exact: the noise on every bin is known")
    assert grouped.startswith("exact for ranges made of whole groups") and "cuts a group" in grouped
    for words in (identity, grouped):
        assert "its query alone" in words and "at once" in words
    assert "the tree is pruned" in Unknown("the tree is pruned").description


def test_unknown_knows_nothing():
    model: ErrorModel = Unknown("why")
    assert model.variances() is None
    assert model.margin(0, 1, level=0.95) is None
    assert model.joint(level=0.95) is None


@pytest.mark.parametrize(
    "model",
    [
        GroupTotals(Groups.singletons(5), 2.5),
        GroupTotals(Groups.singletons(3), np.array([2.0, math.inf, 4.0])),
        GroupTotals(Groups(np.array([0, 2, 3]), np.array([2, 0, 1])), np.array([1.5, 3.0])),
        GroupTotals(Groups.whole(4), math.inf),
        Unknown("the spread inside a group was not measured"),
    ],
    ids=["identity", "uneven", "permuted", "unmeasured", "unknown"],
)
def test_models_survive_json(model):
    described, n = model.to_dict(), model.groups.n if isinstance(model, GroupTotals) else 4
    again = error_model_from_dict(json.loads(json.dumps(described, allow_nan=False)), n)
    assert type(again) is type(model)
    assert again.to_dict() == described
    assert again.description == model.description
    if isinstance(model, GroupTotals):
        assert again.margin(0, model.groups.n, level=0.9) == model.margin(0, model.groups.n, level=0.9)
        assert np.array_equal(again.joint(level=0.9), model.joint(level=0.9), equal_nan=True)


def test_equal_scales_are_written_once():
    assert GroupTotals(Groups.singletons(1000), np.full(1000, 3.0)).to_dict() == {
        "kind": "group totals",
        "groups": {"kind": "singletons", "n": 1000},
        "scale": 3.0,
    }


def test_a_model_keeps_its_own_scales():
    scales = np.array([1.0, 2.0])
    model = GroupTotals(Groups.singletons(2), scales)
    scales[0] = 99
    assert model.to_dict()["scale"] == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        model.scale[0] = 99


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, np.ones(2), np.array([1.0, math.nan, 1.0])])
def test_scales_must_be_positive_and_fit_the_groups(scale):
    with pytest.raises(UsageError, match="positive scale"):
        GroupTotals(Groups.singletons(3), scale)


@pytest.mark.parametrize(("lo", "hi"), [(-1, 2), (2, 1), (0, 4)])
def test_ranges_outside_the_bins_are_refused(lo, hi):
    with pytest.raises(UsageError, match="not a range"):
        GroupTotals(Groups.singletons(3), 1.0).margin(lo, hi, level=0.95)


def test_a_foreign_kind_is_refused():
    with pytest.raises(ReleaseFileError, match="later version"):
        error_model_from_dict({"kind": "oracle"}, 4)
