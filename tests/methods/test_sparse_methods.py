"""Methods for very many bins: which serve them, what `auto` chooses, and that sparse and dense agree."""

from __future__ import annotations

from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest

import dphist
from dphist.domain import MAX_BINS, Addresses, Domain, Integers, curve
from dphist.domain.groups import Groups
from dphist.domain.workload import AllRanges, Points, Prefixes, Ranges
from dphist.errors import BudgetExceeded, UsageError
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.sparse import SparsePipeline, make_sparse, onto
from dphist.privacy.counts import Counts, SparseCounts
from dphist.privacy.curator import Curator
from dphist.uncertainty.listing import Listing, expected_false, threshold_for

LARGE = Domain((Integers(0, 2**40),))
SERVE = ("auto", "dawa2", "uniform")


@pytest.mark.parametrize("method", [name for name in CATALOGUE if name not in SERVE])
def test_a_method_that_needs_every_bin_refuses_very_many_and_names_those_that_do_not(method):
    with pytest.raises(UsageError, match="listed for single bins, dawa2 for ranges or uniform"):
        dphist.Plan(bins=LARGE, epsilon=1, method=method)


def test_a_pipeline_of_ones_own_is_refused_before_anything_is_read_or_charged():
    book = dphist.MemoryLedger()
    with pytest.raises(UsageError, match="listed, dawa2 or uniform"):
        dphist.histogram("no such file", bins=LARGE, epsilon=1, method=dphist.Pipeline(), ledger=book)
    assert book.spent("default") == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "listed:threshold=0"}, "at least 1 record, not 0; without one"),
        ({"method": "listed:threshold=2"}, "more than fit into memory"),
        ({"method": "listed:threshold=5000"}, "far above the noise"),
        ({"method": "listed:most=0"}, "1 to"),
        ({"method": "listed:false=0"}, "above 0"),
        ({"method": "listed:most=2.5"}, "listed:most=50"),
        ({"method": "listed:top=5"}, "listed:most=50"),
        ({"method": "dawa2", "calibrate": "0.05"}, "needs no calibrate"),
        ({"method": "dawa22"}, "Did you mean"),
        ({"workload": "small"}, "points, prefixes, ranges"),
        ({"prior": [1, 2]}, "takes no prior"),
    ],
)
def test_bad_plans_cost_nothing(options, words):
    book = dphist.MemoryLedger()
    with pytest.raises(UsageError, match=words):
        dphist.histogram([5, 5], bins=LARGE, epsilon=1, ledger=book, **options)
    assert book.spent("default") == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Domain((Integers(0, 2**53), Integers(0, 2**10))), "more than"),
        (lambda: Addresses("::/0", 63), "more than 2\\*\\*62"),
        (lambda: dphist.Codes("[A-Z0-9]{13}"), "more than 2\\*\\*62"),
    ],
)
def test_a_domain_above_two_to_the_62_is_refused(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_auto_goes_by_public_facts_alone():
    for workload, chosen in (("points", "listed"), ("ranges", "dawa2"), ("prefixes", "dawa2")):
        plan = dphist.Plan(bins=LARGE, epsilon=1, workload=workload)
        assert plan.pipeline.choice == chosen
    assert isinstance(make_pipeline("auto", Domain((Integers(0, MAX_BINS),))), SparsePipeline)
    assert not isinstance(make_pipeline("auto", Domain((Integers(1, MAX_BINS),))), SparsePipeline)


def test_grids_are_listed_and_those_of_numbers_split_along_a_curve():
    grid = Domain((Integers(0, 2**20), Integers(0, 2**20)))
    assert dphist.Plan(bins=grid, epsilon=1).pipeline.choice == "listed"
    assert dphist.Plan(bins=grid, epsilon=1, method="dawa2")
    for odd in ((Integers(0, 2**30), Integers(0, 3)), (dphist.Codes("[A-Z]{5}"), Integers(0, 2**20))):
        with pytest.raises(UsageError, match="splits a line"):
            dphist.Plan(bins=Domain(odd), epsilon=1, method="dawa2")


def test_places_on_a_curve_and_cells_are_inverse_and_squares_are_runs():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 2**26, (2, 1000))
    rows[:2], columns[:2] = (0, 2**26 - 1), (2**26 - 1, 2**26 - 1)
    at = curve.places(rows, columns)
    assert [a.tolist() for a in curve.cells(at)] == [rows.tolist(), columns.tolist()]
    assert int(at.max()) == 4**26 - 1
    x, y = np.divmod(np.arange(64), 8)
    order = curve.places(x, y)
    assert sorted(order.tolist()) == list(range(64))
    run = (order >= 16) & (order < 32)  # the second quarter
    assert (x[run].min(), x[run].max(), y[run].min(), y[run].max()) == (0, 3, 4, 7)
    assert curve.side((5, 9)) == 16 and curve.side((8, 3)) == 8 and curve.side((1, 1)) == 1


def test_a_curator_along_a_curve_has_the_same_counts_and_account():
    x = np.zeros((5, 3), dtype=np.int64)
    x[4, 2], x[0, 1] = 70, 9
    domain = Domain((Integers(0, 4), Integers(0, 2)))
    curator = Curator.simulated(Counts(x, domain, 2), epsilon=F(10**6), seed=0)
    line = curator.along_curve()
    assert (line.domain.n, line.sensitivity, line.unit) == (64, 2, curator.unit)
    found = line.measure(Groups.singletons(64), share=F(1, 2)).values
    assert {i: v for i, v in enumerate(found.tolist()) if v} == {
        1: 9,
        int(curve.places(*np.array([[4], [2]]))[0]): 70,
    }
    assert curator.spent == line.spent and len(line.spent) == 1
    with pytest.raises(UsageError, match="grid"):
        line.along_curve()


def clustered(n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros(n, dtype=np.int64)
    x[rng.integers(0, n, 200)] += 1
    x[n // 3 : n // 3 + 700] += rng.integers(0, 90, 700)
    return x


@pytest.mark.parametrize("method", ["dawa2", "uniform", "listed", "listed:most=9"])
@pytest.mark.parametrize("seed", [0, 1])
def test_sparse_and_dense_counts_give_the_same_bit_for_bit(method, seed):
    domain = Domain((Integers(0, (1 << 16) - 1),))
    dense = Counts(clustered(1 << 16, seed), domain)
    pipeline = make_sparse(method, domain, None)
    found = []
    for counts in (dense, SparseCounts(*dense.held(), domain)):
        curator = Curator.simulated(counts, epsilon=F(1), seed=seed)
        found.append((*pipeline.found(curator, AllRanges(1 << 16)), curator.spent))
    (groups, made, spent), (others, same, also) = found
    assert np.array_equal(groups.starts, others.starts)
    assert np.array_equal(made.values, same.values)
    assert spent == also
    assert sum(part.share for part in spent) == 1, "all of the budget is spent"
    assert made.listing == same.listing
    assert groups.k > 1 or method == "uniform"


def test_the_splits_are_those_of_the_dense_method():
    """With the same digits, the sparse partition is that of `partition_splits` on dense counts."""
    domain = Domain((Integers(0, (1 << 16) - 1),))
    dense = Counts(clustered(1 << 16), domain)
    pipeline = make_sparse("dawa2", domain, None)
    groups, _ = pipeline.found(Curator.simulated(dense, epsilon=F(1), seed=4), AllRanges(1 << 16))
    same = Curator.simulated(dense, epsilon=F(1), seed=4).partition_splits(share=F(1, 4))
    assert np.array_equal(groups.starts, same.starts)


def test_a_range_on_groups_meets_the_groups_it_met():
    groups = Groups([0, 10, 2**40, 2**41])
    asked = onto(Ranges(2**41, [3, 0, 2**40], [12, 10, 2**41]), groups)
    assert [asked.lo.tolist(), asked.hi.tolist()] == [[0, 0, 2], [2, 1, 3]]
    kinds = [type(onto(w, groups)) for w in (Points(2**41), Prefixes(2**41), AllRanges(2**41))]
    assert kinds == [Points, Prefixes, AllRanges]


def test_the_threshold_lists_the_expected_number_of_empty_bins():
    for n, scale in ((10**6, 1.0), (2**32, 10.0), (2**62, 1.0), (2**62, 2.0**-10), (5, 3.0)):
        for false in (1.0, 100.0, 0.01):
            t = threshold_for(n, scale, false)
            assert expected_false(n, scale, t) <= false * (1 + 1e-6)
            assert t == 1 or expected_false(n, scale, t - 1) > false * (1 - 1e-6)


def test_the_largest_are_the_largest_of_the_whole_list():
    values = np.concatenate([np.zeros(60, dtype=np.int64), [500, 400, 300, 200, 100]])
    domain = Domain((Integers(0, 64),))
    counts = SparseCounts(*Counts(values, domain).held(), domain)
    curator = Curator.simulated(counts, epsilon=F(1), seed=2)
    groups, made = make_sparse("listed:most=3", domain, None).found(curator, Points(65))
    shown = np.flatnonzero(made.values)
    assert groups.starts[shown].tolist() == [60, 61, 62]
    assert made.listing.cutoff == made.values[shown].min()


def test_what_is_said_of_all_bins_holds_in_nearly_all_releases():
    """One bin, all unlisted and all listed bins, against bins that lie around the threshold."""
    domain = Domain((Integers(0, 2**32),))
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, 2**32, 3000))
    tallies = rng.integers(10, 40, cells.size)
    counts = SparseCounts(cells, tallies, domain)
    wrong = np.zeros(3)
    single, runs = 0, 60
    for seed in range(runs):
        pipeline = make_sparse("listed", domain, None)
        groups, made = pipeline.found(Curator.simulated(counts, epsilon=F(1), seed=seed), Points(domain.n))
        at = made.values > 0
        listed = dict(zip(groups.starts[:-1][at].tolist(), made.values[at].tolist(), strict=True))
        kept = np.array([listed.get(c, -1) for c in cells.tolist()])
        info: Listing = made.listing
        out = kept < 0
        wrong[0] += bool((tallies[out] > info.all_unlisted(0.95)).any())
        true = dict(zip(cells.tolist(), tallies.tolist(), strict=True))
        wrong[1] += any(v - info.all_listed(0.95) + 1 > true.get(c, 0) for c, v in listed.items())
        q = info.margin(0.95)
        covered = np.where(out, tallies <= info.unlisted(0.95), np.abs(kept - tallies) <= q)
        single += np.count_nonzero(~covered)
    assert single / (runs * cells.size) <= 0.05
    assert (wrong[:2] / runs <= 0.05 + 0.1).all()


def test_what_draws_made_up_records_and_groups_is_refused_politely():
    plan = dphist.Plan(bins=LARGE, epsilon=1)
    with pytest.raises(UsageError, match="made up for at most"):
        plan.preview()
    with pytest.raises(UsageError, match="leave by= out"):
        dphist.GroupedPlan(by="g", groups=["a", "b"], integers=(0, 99), epsilon=1, method="listed")
    with pytest.raises(UsageError, match="more than"):
        dphist.GroupedPlan(by="g", groups=["a", "b"], bins=LARGE, epsilon=1)


def test_a_plan_of_addresses_is_kept_in_a_file(tmp_path):
    plan = dphist.Plan(column="x", addresses="0.0.0.0/0", prefix=32, epsilon=1, method="listed:most=5")
    again = dphist.Plan.load(plan.save(tmp_path / "plan.toml"))
    assert (again.domain, again.method) == (plan.domain, plan.method)
    codes = dphist.Plan(column="x", codes="[A-Z]{3}", epsilon=1)
    assert dphist.Plan.load(codes.save(tmp_path / "codes.toml")).domain == codes.domain


def test_prefixes_of_few_bins_are_merged_to_shorter_ones():
    few = dphist.histogram(
        ["10.0.0.1"] * 9, addresses="10.0.0.0/24", prefix=32, epsilon=10**6, method="identity"
    )
    assert few.rebin(4).domain.axis == Addresses("10.0.0.0/24", 30)
    assert few.sum("10.0.0.0/30").value == 9
    assert few.count("10.0.0.1").value == 9
    assert few.to_pandas()["label"][1] == "10.0.0.1"


def test_several_very_large_histograms_are_published_together():
    plans = {
        "a": dphist.Plan(bins=LARGE, epsilon=1, column="x"),
        "b": dphist.Plan(bins=LARGE, epsilon=1, column="y"),
    }
    polars = pytest.importorskip("polars")
    data = polars.DataFrame({"x": [5] * 200, "y": [7] * 100 + [9] * 100})
    made = dphist.Publication(plans).release(data, ledger=dphist.MemoryLedger())
    assert made["a"].value(5).low > 150
    assert made["b"].value(7).high < 150 < made["b"].value(7).high + 100


def test_a_release_is_charged_once_and_refused_by_an_empty_budget():
    book = dphist.MemoryLedger(limit=1)
    made = dphist.histogram([3] * 60, bins=LARGE, epsilon=1, ledger=book)
    assert sum(part.epsilon for part in made.charges) == 1 == book.spent("default")
    with pytest.raises(BudgetExceeded):
        dphist.histogram([3] * 60, bins=LARGE, epsilon=1, ledger=book)
