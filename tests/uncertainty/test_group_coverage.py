"""Intervals of grouped releases hold as often as they say: bins, ranges, sums over groups, bands."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.group_coverage import NAMES, REGIONS, Cell, cells, coverage, released, truth
from samples import later

CELLS = [
    Cell("identity", levels=True, epsilon="0.1", records=3, post="integer"),
    Cell("hats", levels=False),
    later(Cell("hats", levels=True, epsilon="0.1", records=3, post="nonneg")),
    Cell("dawa2", levels=True),
    later(Cell("dawa2", levels=False, epsilon="0.1")),
]


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_intervals_of_groups_hold_as_often_as_they_say(cell):
    trials = 12
    for what, held in coverage(cell, trials=trials, seed=77).items():
        if not held.asked:
            assert cell.method == "dawa2" and "hospital" not in what
            continue
        # Intervals of one release are not independent; those of different groups nearly are.
        apart = trials * {"nation": 1, "region": REGIONS, "sums o": 3}.get(what[:6], 20)
        few = 3 * np.sqrt(0.05 * 0.95 / min(held.asked, apart))
        assert held.rate >= (0.95 if "all bins" in what else 0.9) - few, what
        # Bounds of what was measured, and not the bare sums, make intervals of grouped bins wider.
        most = 0.998 if cell.method == "dawa2" else 0.995
        assert held.rate <= most or held.asked < 2000 or "all bins" in what, what


def test_every_kind_of_release_is_in_the_table():
    made = list(cells())
    assert {(c.method, c.levels, c.epsilon, c.records) for c in made} == {
        (method, levels, epsilon, records)
        for method in ("identity", "hats", "dawa2")
        for levels in (True, False)
        for epsilon in ("0.1", "1")
        for records in (1, 3)
    }
    assert {c.post for c in made} == {"none", "nonneg", "integer"}
    assert (truth()[-1].sum(axis=1) == 0).sum() == REGIONS  # an empty group in each region


@pytest.mark.parametrize("method", ["hats", "dawa2"])
def test_post_processing_moves_no_interval(method):
    plain, whole = (released(Cell(method, levels=True, post=post), 5) for post in ("none", "integer"))
    for name in NAMES:
        assert np.array_equal(plain.intervals(of=name), whole.intervals(of=name), equal_nan=True)
        assert np.array_equal(plain.raw(name), whole.raw(name))


def test_ranges_of_a_group_are_told_as_in_the_table():
    release = released(Cell("dawa2", levels=True), 3)
    for at, name in enumerate(NAMES):
        error, one = release.levels[at].error(0), release[name, release.hierarchy.labels[at][0]]
        found = one.sum(4, 20)
        assert found.high - found.value == pytest.approx(error.margin(4, 20, level=0.95))


def test_what_has_no_interval_says_why():
    release = released(Cell("dawa2", levels=False), 1)
    for found in (release.total(), release["R1"].total(), release.sum(3, 9, groups=["R0H1", "R2H3"])):
        assert found.low is None
        assert "biased" in found.note
    assert np.isnan(release.intervals(of="region")[0]).all()
