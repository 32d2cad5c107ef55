"""Keys that nobody declared: asked for later, with the chance that another key shares the bin."""

from __future__ import annotations

import math
from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Hashed
from dphist.domain.workload import AllRanges, Points, Rectangles
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, choose, find, make_pipeline, usual
from dphist.steps.estimate import GroupMeans
from dphist.steps.partition import Singletons

SURE = F(10**6)


@pytest.fixture(scope="module")
def listed():
    return dphist.histogram(["ann"] * 90 + ["bob"] * 50 + [None], hashed=40, salt="s", epsilon=SURE)


@pytest.fixture(scope="module")
def dense():
    return dphist.histogram(["ann"] * 90 + ["bob"] * 50, hashed=12, salt="s", epsilon=SURE, method="identity")


def test_a_key_is_asked_for_by_itself(listed, dense, tmp_path):
    for release in (listed, dense):
        again = dphist.load(release.save(tmp_path / f"{release.domain.n}.json"))
        assert again == release
        assert (again.count("ann").value, again.count("bob").value, again.count("eve").value) == (90, 50, 0)
        assert again.sum("ann").value == 90
        assert again.sum(["ann", "bob"]).value == 140
        assert again.total().value == 140
    assert listed.value("ann").value == 90
    assert str(listed.value("eve")).startswith("not listed")
    assert listed.to_pandas()["bin"].tolist() == sorted(Hashed(40, "s").name(b) for b in _bins(40))


def _bins(bits):
    return [Hashed(bits, "s").bin(key) for key in ("ann", "bob")]


def test_keys_that_share_a_bin_are_counted_together():
    axis = Hashed(3)
    first, *others = [f"k{i}" for i in range(200)]
    second = next(key for key in others if axis.bin(key) == axis.bin(first))
    release = dphist.histogram([first] * 20 + [second] * 30, hashed=3, epsilon=SURE, method="identity")
    assert release.count(first).value == release.count(second).value == 50
    assert release.sum([first, second]).value == 50, "a bin is counted once"


def test_every_answer_says_that_other_keys_may_share_the_bin(listed, dense):
    for answer in (listed.value("ann"), listed.value("eve"), listed.sum(["ann", "bob"]), dense.count("ann")):
        assert "a value may contain the records of other keys in the same bin" in answer.note
        assert "The upper end of an interval holds for the key all the same" in answer.note
    assert "with a chance of less than 0.0001 %" in listed.description
    assert "with a chance of 0.0931 %" in Hashed(30).words


def test_the_chance_of_a_shared_bin_is_that_of_the_hash():
    assert Hashed(1).chance(0) == 0
    assert Hashed(1).chance(1) == pytest.approx(1 / 2)
    assert Hashed(1).chance(3) == pytest.approx(7 / 8)
    assert Hashed(62).chance(2**62) == pytest.approx(1 - math.exp(-1))
    assert Hashed(62).chance(1) == pytest.approx(2.0**-62, rel=1e-12)
    keys = Hashed(8, "z").index([f"k{i}" for i in range(101)])
    share = np.mean([np.count_nonzero(keys == bin) > 1 for bin in keys])
    assert abs(share - Hashed(8).chance(100)) < 0.2
    with pytest.raises(UsageError, match="at least 0"):
        Hashed(8).chance(-1)


def test_hashed_keys_have_no_order(listed, dense):
    for release in (listed, dense):
        with pytest.raises(UsageError, match=r"no (order|quantiles)"):
            release.quantile(0.5)
        with pytest.raises(UsageError, match="a key is a text"):
            release.count(5)
    book = dphist.MemoryLedger()
    for asked in ({"workload": "ranges"}, {"method": "dawa2"}):
        with pytest.raises(UsageError, match="hashed keys have none"):
            dphist.histogram(["a"], hashed=40, epsilon=1, ledger=book, **asked)
    for bits in (3, 40):
        for asked in ("ranges", "prefixes", [(0, 2)]):
            with pytest.raises(UsageError, match=r"hashed keys have none: use the workload points"):
                dphist.histogram(["a"], hashed=bits, epsilon=1, ledger=book, workload=asked)
    with pytest.raises(UsageError, match="salt goes with hashed"):
        dphist.histogram([1], integers=(0, 9), salt="x", epsilon=1, ledger=book)
    assert book.spent("default") == 0


def _takes_neighbours(family):
    return family in ("runs", "runs and tree", "tree", "transform", "grid")


@pytest.mark.parametrize("name", [*CATALOGUE, "listed"])
def test_methods_that_take_neighbours_together_refuse_hashed_keys(name):
    line = Domain((Hashed(4),))
    grid = Domain((dphist.Integers(0, 3), Hashed(4)))
    for domain in (line, grid):
        if len(domain.axes) not in find(name).dimensions:
            continue
        pipeline = make_pipeline(name, domain)
        if _takes_neighbours(find(name).family):
            with pytest.raises(UsageError, match=r"hashed keys have none: use auto, listed or uniform"):
                pipeline.check(domain, Points(domain.n))
            with pytest.raises(UsageError, match="hashed keys have none"):
                dphist.Plan(bins=domain, epsilon=1, method=name)
        else:
            pipeline.check(domain, Points(domain.n))
            with pytest.raises(UsageError, match="hashed keys have none: use the workload points"):
                pipeline.check(line, AllRanges(line.n))


def test_what_auto_chooses_for_hashed_keys_leaves_every_bin_alone():
    for domain in (Domain((Hashed(4),)), Domain((Hashed(2), dphist.Integers(0, 3)))):
        made = make_pipeline("auto", domain, Points(domain.n))
        assert (made.choice, made.estimate, made.partition) == ("identity", GroupMeans(), Singletons())
    assert make_pipeline("auto", Domain((Hashed(40),)), Points(1 << 40)).choice == "listed"
    compared = usual(Domain((Hashed(4),)), Points(16))
    assert {"identity", "uniform", "sdahp"} <= set(compared)
    assert set(compared) <= set(choose(lambda m: m.family in ("baseline", "sorted")))


def test_the_other_axis_of_a_grid_of_hashed_keys_may_be_asked_in_ranges():
    grid = Domain((Hashed(3), dphist.Integers(0, 9)))
    one, some = (Rectangles(grid.shape, [0, 2], [1, last], [0, 3], [10, 7]) for last in (3, 4))
    whole = Rectangles(grid.shape, [0], [8], [2], [5])
    for workload in (one, whole):
        make_pipeline("auto", grid, workload).check(grid, workload)
    with pytest.raises(UsageError, match="hashed keys have none"):
        make_pipeline("identity", grid, some).check(grid, some)
    with pytest.raises(UsageError, match="hashed keys have none"):
        dphist.histogram((["a"], ["k"]), by="g", groups=["a"], hashed=3, epsilon=1, workload="ranges")


def test_a_grid_of_keys_and_labels_is_listed():
    domain = Domain((Hashed(30), dphist.Categories(["a", "b"])))
    keys = np.array(["ann", "ann", "bob"], dtype=object)
    release = dphist.histogram2d(
        keys, np.array(["a", "b", "b"], dtype=object), bins=domain.axes, epsilon=SURE
    )
    assert release.value("ann", "b").value == 1
    assert release.value("bob", "a").value == 0
    assert release.sum("ann", ["a", "b"]).value == 2
