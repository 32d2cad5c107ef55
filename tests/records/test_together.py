"""Several histograms of the same records: each counted as if it were alone, and the records read once."""

import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.errors import DataError
from dphist.records import Tally, count, count_together
from dphist.records.engines import duck

ROWS = 5000
AGES = Domain((Integers(0, 119),))
COSTS = Domain((Variable(np.geomspace(1, 1e4, 101)),))  # more edges than are written out as comparisons
WARDS = Domain((Categories(("A", "B", "C"), other=True, null=True),))
GRID = Domain((Categories(("A", "B")), Regular(lo=0, hi=120, bins=6)))
WEEKS = Domain((Instants("2024-01-01", "2025-01-01", "1w", "UTC"),))


def visits(rows=ROWS):
    draws = np.random.default_rng(3)
    costs = draws.lognormal(4, 2, rows)
    costs[::50] = np.nan
    return pd.DataFrame(
        {
            "age": draws.integers(-5, 130, rows),
            "cost": costs,
            "ward": pd.array(draws.choice(["A", "B", "C", "D", None], rows), dtype="string"),
            "day": pd.Timestamp("2023-12-20") + pd.to_timedelta(draws.integers(0, 400, rows), "D"),
            "person": [f"p{i}" for i in draws.integers(0, 700, rows)],
        }
    )


def asked(unit=None, k=(1, 1, 1, 1, 1)):
    return [
        Tally(AGES, ("age",), unit=unit, max_contributions=k[0]),
        Tally(COSTS, ("cost",), outside="clip", unit=unit, max_contributions=k[1]),
        Tally(WARDS, ("ward",), where="age >= 18", unit=unit, max_contributions=k[2]),
        Tally(GRID, ("ward", "age"), unit=unit, max_contributions=k[3]),
        Tally(WEEKS, ("day",), unit=unit, max_contributions=k[4]),
    ]


def alone(data, each, **options):
    how = {"where": each.where, "outside": each.outside, "unit": each.unit, **options}
    return count(data, each.domain, columns=each.columns, max_contributions=each.max_contributions, **how)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return the same records in every kind of source."""
    tmp_path, frame = tmp_path_factory.mktemp("sources"), visits()
    frame.to_csv(tmp_path / "visits.csv", index=False)
    frame.to_json(tmp_path / "visits.jsonl", orient="records", lines=True, date_format="iso")
    parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "visits.parquet")
    with duckdb.connect(str(tmp_path / "visits.db")) as database:
        database.execute("CREATE TABLE visits AS SELECT * FROM frame")
    with sqlite3.connect(tmp_path / "visits.sqlite") as database:
        frame.astype({"day": str}).to_sql("visits", database, index=False)
    objects = frame.astype({"ward": object, "person": object})
    return {
        "pandas": (frame, {}),
        "objects": (objects, {}),
        "arrow": (pa.Table.from_pandas(frame), {}),
        "csv": (tmp_path / "visits.csv", {}),
        "jsonl": (tmp_path / "visits.jsonl", {}),
        "parquet": (tmp_path / "visits.parquet", {}),
        "duckdb": (tmp_path / "visits.db", {"table": "visits"}),
        "sqlite": (tmp_path / "visits.sqlite", {"table": "visits"}),
    }


KINDS = ["pandas", "objects", "arrow", "csv", "jsonl", "parquet", "duckdb", "sqlite"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_counted_as_if_it_were_alone(kind, sources):
    data, options = sources[kind]
    together = count_together(data, asked(), **options)
    for each, found in zip(asked(), together, strict=True):
        assert np.array_equal(found.values, alone(data, each, **options).values), each
        assert found.values.sum() > 0
        assert (found.sensitivity, found.unit, found.domain) == (1, "one record", each.domain)


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_its_own_bound_on_a_persons_records(kind, sources):
    """What a person keeps is drawn, so that the totals are compared: they do not depend on the draws."""
    data, options = sources[kind]
    bounds = (1, 3, 2, 50, 1)
    together = count_together(data, asked("person", bounds), **options)
    frame = visits()
    ages, weeks = frame[frame.age.between(0, 119)], frame[frame.day.dt.year == 2024]
    labelled = frame[frame.age >= 18]
    for rows, at in ((ages, 0), (labelled, 2), (weeks, 4)):
        kept = rows.groupby("person").size().clip(upper=bounds[at])
        assert together[at].values.sum() == kept.sum() < len(rows)
    for each, found, k in zip(asked("person", bounds), together, bounds, strict=True):
        assert found.values.sum() == alone(data, each, **options).values.sum()
        assert found.sensitivity == k
        assert found.unit.startswith("one person with at most")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_of_a_file_add_up(kind, sources, monkeypatch):
    from dphist.records.engines import untyped

    monkeypatch.setattr(untyped, "_PART", 1 << 12)
    data, _ = sources[kind]
    for unit in (None, "person"):
        for each, found in zip(asked(unit), count_together(data, asked(unit)), strict=True):
            assert found.values.sum() == alone(data, each).values.sum()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_persons_and_records_are_counted_side_by_side_in_parts_of_a_file(kind, sources, monkeypatch):
    from dphist.records.engines import untyped

    monkeypatch.setattr(untyped, "_PART", 1 << 12)
    data, _ = sources[kind]
    mixed = [asked("person")[0], asked()[0], asked("person")[2], asked()[2]]
    for each, found in zip(mixed, count_together(data, mixed), strict=True):
        assert found.values.sum() == alone(data, each).values.sum() > 0
        assert found.unit == alone(data, each).unit


def test_a_stream_is_whole_for_persons_and_for_records():
    held = pa.table({"age": [1, 2, 2], "person": ["a", "a", "b"]})
    mixed = [Tally(AGES, ("age",), unit="person"), Tally(AGES, ("age",))]
    assert [found.values.sum() for found in count_together(held.to_reader(), mixed)] == [2, 3]


def scans(monkeypatch):
    """Return the texts of the queries that DuckDB runs from now on."""
    texts = []
    run = duck.Duck._execute

    def noted(self, text, *rest, **more):
        texts.append(text)
        return run(self, text, *rest, **more)

    monkeypatch.setattr(duck.Duck, "_execute", noted)
    return texts


@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_the_records_are_read_once(kind, unit, sources, monkeypatch):
    data, _ = sources[kind]
    texts = scans(monkeypatch)
    count_together(data, asked(unit))
    reading = [
        t for t in texts if f'"{duck.SOURCE}"' in t and not t.startswith("DESCRIBE") and "LIMIT 0" not in t
    ]
    assert len(reading) == 1, reading


def test_text_that_is_not_utf8_is_marked_in_all_of_them(tmp_path):
    broken = pa.array([b"A", b"\xff", b"B"], pa.binary()).cast(pa.string(), safe=False)
    table = pa.table({"ward": broken, "age": [3, 4, 5]})
    parquet.write_table(table, tmp_path / "broken.parquet")
    tallies = [Tally(WARDS, ("ward",)), Tally(AGES, ("age",))]
    wards, ages = count_together(tmp_path / "broken.parquet", tallies)
    assert wards.values.tolist() == [1, 1, 0, 1, 0]
    assert ages.values.sum() == 3


def test_time_zones_are_kept_apart():
    moments = pd.DataFrame({"at": pd.to_datetime(["2024-01-01T23:30"]).tz_localize("UTC")})
    hour = Domain((Integers(0, 23),))
    here, there = (Tally(hour, ("EXTRACT(hour FROM at)",), timezone=z) for z in ("UTC", "Europe/Berlin"))
    first, second, third = count_together(moments, [here, there, here])
    assert [int(c.values.argmax()) for c in (first, second, third)] == [23, 0, 23]


def test_plain_arrays_are_counted_for_each():
    first, second = count_together([1, 2, 2], [Tally(AGES), Tally(Domain((Regular(lo=0, hi=4, bins=2),)))])
    assert first.values[:3].tolist() == [0, 1, 2]
    assert second.values.tolist() == [1, 2]


def test_a_mistake_in_one_stops_all():
    with pytest.raises(DataError, match="Did you mean 'age'"):
        count_together(visits(10), [Tally(AGES, ("age",)), Tally(AGES, ("agee",))])
    with pytest.raises(DataError, match="text"):
        count_together(visits(10), [Tally(AGES, ("age",)), Tally(AGES, ("ward",))])
