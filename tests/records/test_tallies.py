"""Records of very many bins are counted by sorting: the tallies are those of a plain count."""

from __future__ import annotations

import sqlite3
from collections import Counter

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.domain import Categories, Domain, Integers
from dphist.records import count
from dphist.records.engines import duck
from dphist.records.tallies import merged, rising, tallied

BINS = st.lists(st.integers(0, 12), max_size=40)


def plain(*records: list[int]) -> tuple[list[int], list[int]]:
    found = sorted(Counter(bin for part in records for bin in part).items())
    return [bin for bin, _ in found], [tally for _, tally in found]


def lists(made) -> tuple[list[int], list[int]]:
    return made[0].tolist(), made[1].tolist()


@given(BINS)
def test_runs_of_equal_bins_are_tallies(bins):
    made = tallied(np.array(bins, dtype=np.int32))
    assert lists(made) == plain(bins)
    assert [part.dtype for part in made] == [np.int64, np.int64]


@given(BINS, BINS, BINS)
def test_tallies_of_parts_add_up(one, two, three):
    made = merged(tallied(np.array(one, dtype=np.int32)), tallied(np.array(two, dtype=np.int32)))
    assert lists(merged(made, tallied(np.array(three, dtype=np.int32)))) == plain(one, two, three)


@given(st.permutations(list(range(9))))
def test_tallies_in_any_order_of_bins(order):
    bins = np.array(order, dtype=np.int64)
    assert lists(rising(bins, 10 * bins)) == (list(range(9)), list(range(0, 90, 10)))
    assert lists(merged((bins[:4], bins[:4] + 1), (bins[4:], bins[4:] + 1))) == (
        list(range(9)),
        list(range(1, 10)),
    )


def records() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    who = [f"p{i}" for i in rng.integers(0, 60, 3000)]
    frame = pd.DataFrame(
        {"g": rng.choice(["a", "b", "c", "d"], 3000), "x": rng.integers(-5, 55, 3000), "who": who}
    )
    frame.loc[::7, "x"] = None
    return frame


@pytest.fixture(params=["parquet", "csv", "jsonl", "sqlite", "frame"])
def source(request, tmp_path):
    frame, path = records(), tmp_path / f"records.{request.param}"
    match request.param:
        case "parquet":
            frame.to_parquet(path)
        case "csv":
            frame.to_csv(path, index=False)
        case "jsonl":
            frame.to_json(path, orient="records", lines=True)
        case "sqlite":
            with sqlite3.connect(path) as database:
                frame.to_sql("records", database, index=False)
        case "frame":
            return {"data": frame}
    return {"data": path} | ({"table": "records"} if request.param == "sqlite" else {})


DOMAIN = Domain((Categories(("c", "a", "z", "b")), Integers(0, 49)))


@pytest.fixture(params=[1, 100, 1 << 25])
def by_sorting(request, monkeypatch):
    """Let records be sorted that would be grouped, this many at a time."""
    monkeypatch.setattr(duck, "_SORTED", request.param if request.param > 1 else 37)
    monkeypatch.setattr("dphist.records.engines.untyped._PART", 4000)

    def begin():
        monkeypatch.setattr(duck.Duck, "groups_up_to", 10)

    return begin


def test_sorted_records_are_counted_as_grouped_ones(source, by_sorting):
    grouped = count(**source, domain=DOMAIN, columns=("g", "x"))
    by_sorting()
    assert np.array_equal(count(**source, domain=DOMAIN, columns=("g", "x")).values, grouped.values)
    frame = records()
    there = frame[frame["g"].isin(["a", "b", "c"]) & frame["x"].between(0, 49)]
    assert grouped.values.sum() == len(there)


def test_sorted_records_are_bounded_over_all_bins(source, by_sorting):
    by_sorting()
    made = count(**source, domain=DOMAIN, columns=("g", "x"), unit="who", max_contributions=2)
    frame = records()
    there = frame[frame["g"].isin(["a", "b", "c"]) & frame["x"].between(0, 49)]
    assert made.values.sum() == there.groupby("who").size().clip(upper=2).sum()
    assert made.sensitivity == 2


def test_no_record_at_all(tmp_path, by_sorting):
    by_sorting()
    path = tmp_path / "none.parquet"
    pd.DataFrame({"g": ["x"], "x": [1]}).to_parquet(path)
    assert not count(path, DOMAIN, columns=("g", "x")).values.any()


def test_a_private_table_is_not_left_behind(tmp_path, monkeypatch, by_sorting):
    by_sorting()
    path = tmp_path / "records.parquet"
    records().to_parquet(path)
    said, run = [], duck.Duck._execute
    monkeypatch.setattr(
        duck.Duck, "_execute", lambda self, text, *a, **k: said.append(text) or run(self, text, *a, **k)
    )
    count(path, DOMAIN, columns=("g", "x"))
    assert said[-1] == "DROP TABLE dphist_bins"


def test_which_way_is_taken_depends_on_the_bins_alone(tmp_path, monkeypatch):
    said, run = [], duck.Duck._execute
    monkeypatch.setattr(
        duck.Duck, "_execute", lambda self, text, *a, **k: said.append(text) or run(self, text, *a, **k)
    )
    path = tmp_path / "few.parquet"
    with duckdb.connect() as db:
        db.execute("COPY (SELECT 3 AS x) TO ? (FORMAT parquet)", [str(path)])
    for bins, sorts in ((duck.Duck.groups_up_to, False), (duck.Duck.groups_up_to + 1, True)):
        said.clear()
        assert count(path, Domain((Integers(0, bins - 1),)), columns="x").values[3] == 1
        assert any("dphist_bins" in text for text in said) == sorts
