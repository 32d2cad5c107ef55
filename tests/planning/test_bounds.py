"""A suggested range: its bins, the law of its errors by simulation, and data of many shapes."""

import json
import math
import sys

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.errors import BudgetExceeded, UsageError
from dphist.planning.bounds import WRONG, look, magnitudes, suggest
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.privacy.ledger import MemoryLedger

RNG = np.random.default_rng(0)
SURE = 10**6  # an epsilon at which the noise is zero


def simulated(values, *, epsilon, runs, k=1):
    """Return suggestions for the same values with noise of different seeds, and the counts."""
    plan = look(epsilon=epsilon, unit="p", max_contributions=k)
    counts, _ = np.histogram(values, magnitudes().edges)
    held = Counts(counts, plan.domain, k)
    made = trials(plan.pipeline, held, plan.queries, epsilon=plan.budget, seeds=range(runs))
    return [suggest(each.release(post="none", provenance={})) for each in made], counts


def outside(found, values):
    values = values[np.isfinite(values)]
    low, high = found.range
    return int((values < low).sum()), int((values > high).sum())


def test_the_bins_hold_every_number_and_are_the_same_whatever_the_data():
    edges = magnitudes().edges
    assert edges[0] == -sys.float_info.max and edges[-1] == sys.float_info.max
    assert np.array_equal(edges, -edges[::-1]) and (np.diff(edges) > 0).all()
    zero = magnitudes().n // 2
    assert magnitudes().index([0.0, -0.0, 5e-324, 1e-301]).tolist() == [zero] * 4
    for number in (1e-300, 1e-7, 0.02, 1, 7, 1e6, 4e11, 1e29, 1e299, sys.float_info.max):
        at = int(magnitudes().index([number])[0])
        assert edges[at] <= number <= edges[at + 1]
        inside = (edges[at] + edges[at + 1]) / 2 if at < magnitudes().n - 1 else 1.5e308
        assert magnitudes().index([-inside])[0] == 2 * zero - at
    fine = edges[(edges >= 1e-6) & (edges <= 1e12)]
    assert (fine[1:] / fine[:-1]).max() <= 2.5 + 1e-9


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.full(3000, 100.0), (100, 200)),
        (np.full(3000, -100.0), (-100, -50)),
        (np.zeros(3000), (0, 1)),
        (np.tile([0.0, 7.0], 2000), (0, 10)),
        (np.tile([0.0, -7.0], 2000), (-10, 0)),
        (np.tile([1950.0, 2020.0], 2000), (1000, 5000)),
        (np.tile([-0.03, 250_000.0], 2000), (-0.05, 500_000)),
        (np.tile([1e-40, 1e200], 2000), (1e-50, 1e250)),
        (np.tile([sys.float_info.max, -sys.float_info.max], 2000), (-sys.float_info.max, sys.float_info.max)),
        (np.tile([5e-324, 3.0], 2000), (0, 5)),
        (np.tile([np.nan, np.inf, -np.inf, 4.0], 2000), (2, 5)),
    ],
)
def test_ranges_of_many_shapes(values, wanted):
    found = dphist.bounds(values, epsilon=SURE)
    assert found.range == wanted
    assert found.only_zeros == bool((values == 0).all())
    assert found.part < 0.01 and (found.below, found.above) == outside(found, values)


def test_nothing_is_suggested_where_nothing_stands_out():
    for values in ([], [3.0] * 5, [math.nan] * 5000, [math.inf] * 5000):
        (found, *_), _ = simulated(np.array(values), epsilon="0.1", runs=1)
        assert found.range is None and found.part == 1
        assert "No range can be suggested" in str(found)
        assert found.to_dict()["range"] is None


def test_empty_bins_are_taken_for_others_no_more_often_than_is_said():
    """2,000 runs with a probability of at most 0.01: 60 and more would come by chance once in 10^11 times."""
    found, _ = simulated(np.array([]), epsilon=1, runs=2000)
    assert sum(each.range is not None for each in found) < 60
    assert found[0].false_positive * magnitudes().n <= WRONG
    assert found[0].false_positive * magnitudes().n > WRONG / 10, "no higher than need be"


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("shape", ["lognormal", "cauchy", "few", "spread"])
def test_what_lies_outside_is_bounded_as_often_as_is_said(shape, k):
    values = {
        "lognormal": RNG.lognormal(4, 3, 5000),
        "cauchy": RNG.standard_cauchy(5000) * 100,
        "few": RNG.normal(50, 10, 150),
        "spread": 10.0 ** RNG.uniform(-30, 30, 3000),  # so that many bins hold too few records to be seen
    }[shape]
    made, _ = simulated(values, epsilon=1, runs=300, k=k)
    suggested = [found for found in made if found.range is not None]
    good = 0
    for found in suggested:
        below, above = outside(found, values)
        good += below <= found.below and above <= found.above and (below + above) / values.size <= found.part
    assert good >= 0.95 * len(suggested)
    if shape != "spread":
        assert suggested or k == 4


def test_a_bin_with_enough_records_is_seen():
    plan_threshold = simulated(np.array([]), epsilon=1, runs=1)[0][0]
    made, _ = simulated(np.full(plan_threshold.missed, 3.0), epsilon=1, runs=500)
    assert sum(found.range is None for found in made) <= 20, "5 of 500 are expected at most"


def test_people_with_several_records():
    frame = pd.DataFrame({"cost": [120.0] * 4000, "person": np.arange(4000) // 4})
    found = dphist.bounds(frame, column="cost", epsilon=SURE, unit="person", max_contributions=2)
    assert found.release.sensitivity == 2 and found.range == (100, 200)
    one, two = (simulated(np.array([]), epsilon=1, runs=1, k=k)[0][0].threshold for k in (1, 2))
    assert two == pytest.approx(2 * one, abs=2)
    assert found.to_dict()["unit"] == "one person with at most 2 records"


def test_it_is_charged_like_everything():
    ledger = MemoryLedger(limit=1)
    found = dphist.bounds([3.0] * 1000, epsilon="0.75", ledger=ledger, dataset="d")
    assert float(ledger.spent("d")) == 0.75 == float(found.release.epsilon)
    with pytest.raises(BudgetExceeded):
        dphist.bounds([3.0] * 1000, epsilon="0.75", ledger=ledger, dataset="d")
    with pytest.raises(UsageError, match="level"):
        dphist.bounds([3.0], epsilon="0.1", level=1.5, ledger=ledger, dataset="d")
    assert float(ledger.spent("d")) == 0.75


def test_a_suggestion_is_postprocessing_of_its_own_release_alone(tmp_path):
    found = dphist.bounds([3.0] * 1000, epsilon=SURE)
    again = suggest(dphist.load(found.release.save(tmp_path / "look.json")))
    assert again.to_dict() == found.to_dict()
    assert json.loads(json.dumps(found.to_dict()))["range"] == [2.0, 5.0]
    with pytest.raises(UsageError, match="no other"):
        suggest(dphist.histogram([3.0], bins=3, range=(0, 3), epsilon=1))


def test_an_edge_is_told_by_the_bins_beside_it_and_not_by_wider_ones():
    edges = magnitudes().edges
    look_at = dphist.bounds([5.0] * 100, epsilon=1).release  # whose bins reach from one end of all numbers
    assert [e.value for e in (look_at.sum(edges[0], edges[-1]), look_at.total())] == [look_at.raw.sum()] * 2
    several = look_at.sum(edges[:-1].tolist(), edges[1:].tolist())
    assert several.value.tolist() == look_at.raw.tolist()
    logs = dphist.from_counts([1] * 9, bins=[10.0**k for k in range(10)], epsilon=1, method="identity")
    assert logs.sum(0.1 + 0.9 - 1e-16, 1e9).value == logs.raw.sum()  # arithmetic may change the last digits
    for release, end in ((look_at, 5.5), (look_at, 3e-200), (logs, 1.05), (logs, 10.001)):
        for asked in (end, [end, end]):
            with pytest.raises(UsageError, match="lies inside a bin"):
                release.sum(asked, 1e9 if asked == end else [1e9, 1e9])
