"""Releases of very many bins: what they answer, what they refuse, and that files keep every number."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest

import dphist
from dphist.domain import Addresses, Categories, Codes, Domain, Integers
from dphist.domain.workload import AllRanges, Points
from dphist.errors import OutputError, ReleaseFileError, UsageError
from dphist.methods.sparse import make_sparse
from dphist.privacy.counts import SparseCounts
from dphist.privacy.curator import Curator

SURE = F(10**6)


def made(domain, cells, tallies, method="dawa2", epsilon=SURE, seed=0, post="none"):
    counts = SparseCounts(np.array(cells, dtype=np.int64), np.array(tallies, dtype=np.int64), domain)
    workload = AllRanges(domain.n) if method == "dawa2" else Points(domain.n)
    curator = Curator.simulated(counts, epsilon=epsilon, seed=seed)
    return make_sparse(method, domain, workload).run(curator, workload, post=post)


WIDE = Domain((Addresses("::/0", 62),))  # 2^62 bins
CELLS = [3, 4, 2**61 + 1, 2**62 - 1]
TALLIES = [500, 600, 700, 800]


@pytest.fixture(scope="module")
def ranges():
    return made(WIDE, CELLS, TALLIES)


@pytest.fixture(scope="module")
def listed():
    return made(WIDE, CELLS, TALLIES, "listed")


def test_sums_of_bins_beyond_the_whole_numbers_of_doubles(ranges, listed):
    for release in (ranges, listed):
        assert release.domain.n == 1 << 62
        assert release.sum("::/1").value == pytest.approx(1100)
        assert release.sum("8000::/1").value == pytest.approx(1500)
        assert release.sum("::/0").value == pytest.approx(2600)
        for bin, tally in zip(CELLS, TALLIES, strict=True):
            name = WIDE.axis.name(bin)
            assert release.value(name).value == pytest.approx(tally)
            assert release.sum(name).value == pytest.approx(tally)
        assert release.value(WIDE.axis.name(2**62 - 2)).value == pytest.approx(0)
        assert release.total().value == pytest.approx(2600)
    assert ranges.sum("::", WIDE.axis.name(4)).value == pytest.approx(500), "the second end is excluded"


def test_quantiles_name_bins_exactly(ranges, listed):
    median = ranges.quantile(0.5)
    assert str(median).startswith(WIDE.axis.name(2**61 + 1))
    assert len(ranges.quantile([0.1, 0.9])) == 2
    with pytest.raises(UsageError, match="dawa2"):
        listed.quantile(0.5)
    with pytest.raises(UsageError, match="median"):
        ranges.mean()
    with pytest.raises(UsageError, match="sums and total"):
        ranges.cdf(WIDE.axis.name(4))


def test_files_keep_every_number(tmp_path, ranges, listed):
    for release in (ranges, listed):
        path = release.save(tmp_path / f"{release.listing is None}.json")
        again = dphist.load(path)
        assert again == release
        assert again.groups.starts.tolist() == release.groups.starts.tolist()
        starts = json.loads(path.read_text())["groups"]["starts"]
        assert all(isinstance(start, str) for start in starts), "other programs read numbers as doubles"
        assert pickle.loads(pickle.dumps(release)) == release
        table = (release.save(tmp_path / f"{release.listing is None}.csv")).read_text()
        assert WIDE.axis.name(2**62 - 1) in table
    small = made(Domain((Integers(0, 2**40),)), [5], [90])
    assert all(isinstance(s, int) for s in small.to_dict()["groups"]["starts"])
    with pytest.raises(OutputError, match=r"\.json"):
        ranges.save(tmp_path / "x.txt")
    with pytest.raises(ReleaseFileError, match="number for each"):
        dphist.release.load_one(tmp_path / "True.json")
    damaged = ranges.to_dict() | {"groups": {"starts": ["0", "5"]}}
    with pytest.raises(ReleaseFileError, match="damaged"):
        dphist.SparseRelease.from_dict(damaged)


def test_parquet_holds_a_row_for_each_group(tmp_path, ranges, listed):
    import pyarrow.parquet as pq

    grid = Domain((Integers(0, 2**14), Integers(0, 2**14)))
    squares = made(grid, [5, 70_000], [900, 800], "dawa2")
    assert squares.along_curve
    for i, release in enumerate((ranges, listed, squares)):
        path = release.save(tmp_path / f"{i}.parquet")
        again = dphist.load(path)
        assert again == release
        assert again.groups.starts.tolist() == release.groups.starts.tolist()
        assert pq.read_table(path).num_rows == release.groups.k
    table = pq.read_table(tmp_path / "1.parquet").to_pydict()
    kept = [i for i, is_listed in enumerate(table["listed"]) if is_listed]
    assert [table["start"][i] for i in kept] == CELLS
    assert [table["first"][i] for i in kept] == [WIDE.axis.name(bin) for bin in CELLS]
    assert [table["value"][i] for i in kept] == TALLIES


@pytest.mark.parametrize("change", ["DROP", "raw::VARCHAR", "start + 7", "NULL"])
def test_damaged_parquet_is_refused(tmp_path, ranges, change):
    import duckdb

    path, other = ranges.save(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    with duckdb.connect() as db:
        [(head,)] = db.execute("SELECT value FROM parquet_kv_metadata(?)", [str(path)]).fetchall()
        columns = {"DROP": '* EXCLUDE ("end")', "raw::VARCHAR": "* REPLACE (raw::VARCHAR AS raw)"}
        columns["NULL"] = '* REPLACE (IF("start" = 0, NULL, raw) AS raw)'
        chosen = columns.get(change, '* REPLACE (IF("start" = 3, 2, "start") AS "start")')
        db.execute(
            f"COPY (SELECT {chosen} FROM read_parquet('{path}')) TO '{other}' "
            "(FORMAT parquet, KV_METADATA {dphist: ?})",
            [head.decode()],
        )
    with pytest.raises(ReleaseFileError, match="damaged"):
        dphist.load(other)


def test_what_would_write_out_every_bin_is_refused_politely(ranges):
    for ask in (ranges.values, ranges.counts, ranges.to_numpy, ranges.intervals, lambda: np.asarray(ranges)):
        with pytest.raises(UsageError, match="4,611,686,018,427,387,904 bins are too many to write out"):
            ask()
    with pytest.raises(UsageError, match="too many"):
        ranges.axes  # noqa: B018


def test_an_interval_of_a_range_that_cuts_a_group_holds_whatever_lies_where():
    """The group's records may lie anywhere in it: all of them are between the ends."""
    domain = Domain((Integers(0, 2**30),))
    rng = np.random.default_rng(3)
    cells = np.unique(rng.normal(2**29, 2**22, 4000).astype(np.int64))
    tallies = np.ones(cells.size, dtype=np.int64)
    sums = np.concatenate([[0], np.cumsum(tallies)])
    missed = asked = 0
    for seed in range(4):
        release = made(domain, cells, tallies, epsilon=F(1), seed=seed)
        lo = np.sort(rng.integers(0, 2**30, (150, 2)), axis=1)
        lo[:100] = np.sort(rng.integers(2**29 - 2**23, 2**29 + 2**23, (100, 2)), axis=1)
        answers = release.sum(lo[:, 0].tolist(), (lo[:, 1] + 1).tolist())
        true = sums[np.searchsorted(cells, lo[:, 1] + 1)] - sums[np.searchsorted(cells, lo[:, 0])]
        missed += np.count_nonzero((answers.low > true) | (answers.high < true))
        asked += true.size
    assert missed / asked < 0.05
    one = release.sum(int(lo[0, 0]), int(lo[0, 1]) + 1)
    assert one.low <= one.value <= one.high


def test_a_listing_says_what_it_is_and_gives_every_key_an_interval():
    release = made(WIDE, [9], [90], "listed", epsilon=F(1), seed=1)
    words = release.description
    assert "winner's curse" in words
    assert "none that is not listed has more than" in words
    absent = release.value("2001::")
    assert (absent.value, absent.low) == (0, 0)
    assert absent.high == release.listing.threshold - 1 + release.listing.margin(0.95)
    assert release.sum("::/1").low is None
    assert "not measured" in release.sum("::/1").note
    names = release.to_pandas()["bin"].tolist()
    assert WIDE.axis.name(9) in names


def test_a_bin_that_is_not_listed_says_so_however_it_is_asked_for():
    release = made(WIDE, [9], [90], "listed", epsilon=F(1), seed=1)
    absent = release.value("2001::", level=0.9)
    t, most = release.listing.threshold, release.listing.unlisted(0.9)
    words = f"not listed: below the threshold of {t}; its count is at most {most:.0f} with 90 %"
    assert str(absent) == f"{words} SIMULATED: not private."
    assert words in absent.note
    assert release.sum("2001::", level=0.9) == absent
    assert str(release.value(WIDE.axis.name(9))).startswith(f"{release.value(WIDE.axis.name(9)).value:g} (")
    few = made(WIDE, [9, 12], [90, 80], "listed:most=1", epsilon=SURE)
    assert str(few.value(WIDE.axis.name(12))).startswith("not listed: not one of the 1 largest noisy counts")
    grid = made(Domain((Codes("[A-Z]{4}"), Codes("[0-9]{4}"))), [7], [40], "listed")
    assert grid.sum("AAAA", "0008") == grid.value("AAAA", "0008")
    assert str(grid.sum("AAAA", "0008")).startswith("not listed")
    assert grid.sum("AAAA", "0007").low == grid.value("AAAA", "0007").low is not None
    labels = made(Domain((Categories(["a", "b"]),)), [0], [40], "listed")
    assert str(labels.sum(["b"])).startswith("not listed")


def test_the_text_of_a_release_tells_no_number_that_was_not_released():
    """Neither the text nor the document depends on the data but through groups and noisy numbers."""
    texts = [repr(made(WIDE, [9], [t], "listed", epsilon=F(1))) for t in (1, 90)]
    assert texts[0] == texts[1]
    keys = set(made(WIDE, [9], [90], "listed", epsilon=F(1)).to_dict())
    dense = set(dphist.from_counts([1, 2], epsilon=1).to_dict())
    assert keys - dense <= {"listing"}


def test_a_product_of_labels_is_listed_and_asked_by_both_keys():
    domain = Domain((Codes("[A-Z][0-9]{4}"), Codes("[0-9]{5}")))
    assert domain.is_large
    key = domain.axes[0].bin("B1234") * 10**5 + 10115
    release = made(domain, [key], [40], "listed")
    assert release.value("B1234", "10115").value == 40
    assert release.value("B1234", "10116").value == 0
    assert release.sum("B", "10").value == 40
    assert release.sum("B", "11").value == 0
    assert release.columns()["bin"].tolist() == ["B1234, 10115"]
    with pytest.raises(UsageError, match="2 keys"):
        release.value("B1234")


def test_a_fine_grid_is_split_into_squares_whose_sums_have_intervals(tmp_path):
    domain = Domain((Integers(0, 2**25 - 1), Integers(0, 2**24 + 5)))
    across = domain.shape[1]
    rng = np.random.default_rng(1)
    rows = np.clip(rng.normal(2**24, 2**12, 20_000), 0, 2**25 - 1).astype(np.int64)
    columns = np.clip(rng.normal(2**23, 2**12, 20_000), 0, across - 1).astype(np.int64)
    release = made(domain, *np.unique(rows * across + columns, return_counts=True), epsilon=F(1), seed=1)
    assert release.along_curve and release.listing is None
    missed, asked, middle = 0, 0, np.array([[2**24], [2**23]])
    for _ in range(60):
        (a, b), (c, d) = np.sort(rng.integers(-(2**13), 2**13, (2, 2)), axis=1) + middle
        found = release.sum((int(a), int(b) + 1), (int(c), int(d) + 1))
        true = np.count_nonzero((rows >= a) & (rows <= b) & (columns >= c) & (columns <= d))
        assert found.low <= found.value <= found.high
        missed += not found.low <= true <= found.high
        asked += 1
    assert missed / asked <= 0.1
    whole = release.sum((0, 2**25), (0, across))
    assert whole.value == pytest.approx(release.total().value, abs=300), (
        "squares beside the grid hold noise alone"
    )
    assert release.value(5, 5).low <= release.value(5, 5).value <= release.value(5, 5).high
    assert dphist.load(release.save(tmp_path / "grid.json")) == release
    table = release.columns()
    assert table["bins"].sum() == domain.n
    assert table["first"][0] == "0, 0"


def test_a_small_grid_along_a_curve_has_a_value_for_every_bin():
    domain = Domain((Integers(0, 4), Integers(0, 2)))
    release = made(domain, [1, 14], [90_000, 70_000])
    values = release.values()
    assert values.shape == (5, 3)
    assert values[4, 2] == pytest.approx(70_000) and values[0, 1] == pytest.approx(90_000)
    low, high = release.intervals()
    assert (low <= values).all() and (values <= high).all()
    assert release.value(4, 2).value == pytest.approx(70_000)
    assert release.sum((0, 1), (0, 3)).value == pytest.approx(90_000)


def test_pictures_are_aggregated_and_zoomed(tmp_path, ranges, listed):
    assert ranges.plot().to_svg().startswith("<svg")
    assert ranges.plot(tmp_path / "a.svg", zoom=("::/4",)).to_svg().count("<svg")
    assert "fffc" in listed.plot().to_svg()


def test_presentable_values_of_groups():
    domain = Domain((Integers(0, 2**40),))
    release = made(domain, [5, 2**39], [30, 2], epsilon=F(1), post="integer", seed=3)
    values = release.columns()["value"]
    assert (values >= 0).all()
    assert (values == np.round(values)).all()
    assert dphist.SparseRelease.from_dict(release.to_dict()) == release


def test_uniform_has_one_number():
    domain = Domain((Integers(0, 2**40 - 1),))
    release = made(domain, [5], [1000], "uniform")
    half = release.sum(0, 2**39)
    assert (half.value, half.low) == (500, 0)
    assert half.high >= 1000
    grid = Domain((Integers(0, 2**20 - 1), Integers(0, 2**20 - 1)))
    assert made(grid, [5], [1000], "uniform").sum((0, 2**19), (0, 2**19)).value == 250


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r.sum("10.0.0.0/8"), "outside the domain"),
        (lambda r: r.sum("nonsense"), "not an address"),
        (lambda r: r.sum("::1/128"), "inside a bin"),
        (lambda r: r.sum("8000::", "::"), "must increase"),
        (lambda r: r.sum(3), "named by text"),
        (lambda r: r.value("::/8"), "ask for their sum"),
        (lambda r: r.sum("::/1", level=2), "level"),
    ],
)
def test_questions_that_cannot_be_answered(ranges, ask, words):
    with pytest.raises(UsageError, match=words):
        ask(ranges)
