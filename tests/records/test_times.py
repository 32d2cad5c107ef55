"""A time beyond every calendar is one record that is counted or left out, and moves no other."""

from __future__ import annotations

import datetime as dt
import itertools

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.records import Tally, count, count_together

DAY = dt.datetime(2024, 1, 3, 12, tzinfo=dt.UTC)
PER = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FAR = [2**62, -(2**62), 2**63 - 1, -(2**63) + 1, 10**15 * 9]
CLOCK = Domain((Instants("2024-01-01", "2024-01-06"),))
ZONED = Domain((Instants("2024-01-01", "2024-01-06", tz="UTC"),))
ONE = Domain((Integers(1, 1),))


def whole(unit: str) -> list[int]:
    """Return 20 times of one day, and those that no calendar has."""
    return [int(DAY.timestamp()) * PER[unit] + 1000 * i for i in range(20)] + FAR


def as_table(data):
    return pa.table({"t": data, "x": [1.0] * len(data)})


def as_arrow(cells):
    return as_table(cells)


def as_dataset(cells):
    return ds.dataset(as_table(cells))


def as_reader(cells):
    return as_table(cells).to_reader(max_chunksize=7)


def as_polars(cells):
    if cells.type.unit == "s":
        pytest.skip("polars has no seconds")
    made = pl.Series(cells.cast(pa.int64()).to_pylist(), dtype=pl.Int64)
    return pl.DataFrame(
        {"t": made.cast(pl.Datetime(cells.type.unit, cells.type.tz)), "x": [1.0] * len(cells)}
    )


def as_pandas(cells):
    times = pd.Series(cells.cast(pa.int64()).to_numpy().view(f"M8[{cells.type.unit}]"))
    times = times.dt.tz_localize("UTC") if cells.type.tz else times
    return pd.DataFrame({"t": times, "x": 1.0})


def as_pandas_arrow(cells):
    return pd.DataFrame({"t": pd.Series(cells, dtype=pd.ArrowDtype(cells.type)), "x": 1.0})


def as_pandas_objects(cells):
    return as_pandas(cells).assign(note=["a"] * (len(cells) - 1) + [None])


FRAMES = [as_arrow, as_dataset, as_reader, as_polars, as_pandas, as_pandas_arrow, as_pandas_objects]


@pytest.mark.parametrize("load", FRAMES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", PER)
def test_far_times_in_memory(load, unit, zone):
    cells = pa.array(whole(unit), pa.int64()).cast(pa.timestamp(unit, zone))
    domain = CLOCK if zone is None else ZONED
    several = ("t > TIMESTAMP '2020-01-01'", "EXTRACT(year FROM t) = 2024", "t IS NULL OR x = 1")
    several = several[: 3 if zone is None else 1]
    asked = [Tally(domain, ("t",)), Tally(domain, ("t",), outside="clip")]
    asked += [Tally(ONE, ("x",), where) for where in several]
    asked += [Tally(ONE, ("x",), unit="t")]
    got, clipped, *others = (found.values for found in count_together(load(cells), asked))
    assert got.tolist() == [0, 0, 20, 0, 0]
    assert clipped[2] == 20 and clipped.sum() <= 25 and not clipped[[1, 3]].any()
    for asking, (found,) in zip([*several, "unit"], others, strict=True):
        assert 20 <= found <= 25, asking


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_far_times_in_parquet(tmp_path, unit, zone):
    cells = pa.array(whole(unit), pa.int64()).cast(pa.timestamp(unit, zone))
    folder = tmp_path / "k=7"
    folder.mkdir()
    pq.write_table(as_table(cells), folder / "a.parquet", version="2.6")
    domain = CLOCK if zone is None else ZONED
    for path in (folder / "a.parquet", tmp_path):
        assert count(path, domain, columns="t").values.tolist() == [0, 0, 20, 0, 0]
    assert count(tmp_path, domain, columns="t", where="k = '7'").values.tolist() == [0, 0, 20, 0, 0]
    pq.write_table(as_table(cells), folder / "b.parquet", version="2.6")
    assert count(tmp_path, domain, columns="t").values.tolist() == [0, 0, 40, 0, 0]


@pytest.mark.parametrize("type", ["TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP", "DATE"])
def test_far_times_in_a_database(tmp_path, type):
    unit = {"TIMESTAMP_S": "s", "TIMESTAMP_MS": "ms", "TIMESTAMP_NS": "ns"}.get(type, "us")
    cells = pa.array(whole(unit), pa.int64()).cast(pa.timestamp(unit))
    if type == "DATE":
        days = [int(DAY.timestamp()) // 86400] * 20 + [2**31 - 1, -(2**31) + 1, -(2**31)]
        cells = pa.array(days, pa.int32()).cast(pa.date32())
    with duckdb.connect(str(tmp_path / "d.duckdb")) as made:
        made.execute(f"CREATE TABLE d (t {type}, x DOUBLE)")
        made.register("far", as_table(cells))
        made.execute("INSERT INTO d SELECT * FROM far")
    assert count(tmp_path / "d.duckdb", CLOCK, columns="t", table="d").values.tolist() == [0, 0, 20, 0, 0]
    for where in ("CAST(t AS TIMESTAMP) > TIMESTAMP '2020-01-01'", "CAST(t AS DATE) IS NOT NULL"):
        got = count(tmp_path / "d.duckdb", ONE, columns="x", table="d", where=where).values
        assert 20 <= got[0] <= 25, where


@pytest.mark.parametrize("load", ["arrow", "polars", "date64", "parquet"])
@pytest.mark.parametrize("outside", ["drop", "clip"])
def test_far_dates(load, outside, tmp_path):
    day = int(DAY.timestamp()) // 86400
    days = [day] * 20 + [2**31 - 1, -(2**31) + 1, -(2**31), 2**30]
    table = pa.table({"t": pa.array(days, pa.int32()).cast(pa.date32())})
    if load == "date64":
        far = [2**62, -(2**62), 2**63 - 1]
        table = pa.table({"t": pa.array([day * 86_400_000] * 20 + far, pa.int64()).view(pa.date64())})
    data = pl.DataFrame({"t": pl.Series(days, dtype=pl.Int32).cast(pl.Date)}) if load == "polars" else table
    if load == "parquet":
        data = tmp_path / "d.parquet"
        pq.write_table(table, data)
    got = count(data, CLOCK, columns="t", outside=outside).values
    assert got[2] == 20 and not got[[1, 3]].any()
    assert outside == "clip" or got.sum() == 20


NOON = 12 * 3600
ODD_TIMES = {"s": [-1, 86_400, 2**31 - 1, -(2**31)], "ms": [-1, 86_400_000, 2**31 - 1, -(2**31)]}
ODD_TIMES |= {
    unit: [-1, 86_400 * 10**9, 2**40 * 10**3, 2**62, 2**63 - 1, -(2**63) + 1] for unit in ("us", "ns")
}


def times_of_day(unit):
    """Return 20 times at noon, and some that no day has."""
    stored, type = (pa.int32(), pa.time32) if unit in ("s", "ms") else (pa.int64(), pa.time64)
    return pa.array([NOON * PER[unit]] * 20 + ODD_TIMES[unit], stored).view(type(unit))


def polars_times(cells):
    if cells.type != pa.time64("ns"):
        pytest.skip("polars has nanoseconds alone")
    return pl.from_arrow(as_table(cells))


DAILY = [
    *("EXTRACT(hour FROM t) = 12", "t IS NOT NULL", "t > TIME '11:00'", "CAST(t AS VARCHAR) > ''"),
    *("EXTRACT(second FROM t) = 0", "t + INTERVAL 1 SECOND > TIME '00:00'"),
]


@pytest.mark.parametrize("load", [as_arrow, as_dataset, as_reader, polars_times, as_pandas_arrow, "parquet"])
@pytest.mark.parametrize("unit", PER)
def test_times_that_no_day_has(load, unit, tmp_path):
    cells = times_of_day(unit)
    if load == "parquet":
        pq.write_table(as_table(cells), tmp_path / "t.parquet", version="2.6")
        data = tmp_path / "t.parquet"
    else:
        data = load(cells)
    found = count_together(data, [Tally(ONE, ("x",), where) for where in DAILY])
    for where, got in zip(DAILY, found, strict=True):
        assert 20 <= got.values[0] <= 20 + len(ODD_TIMES[unit]), where
    if load == as_arrow:
        hours = count(as_table(cells), Domain((Integers(0, 23),)), columns="EXTRACT(hour FROM t)").values
        assert hours[12] == 20 and hours.sum() <= 20 + len(ODD_TIMES[unit])
        assert count(as_table(cells), ONE, columns="x", unit="t").values[0] >= 1


def polars_spans(cells):
    if cells.type.unit == "s":
        pytest.skip("polars has no seconds")
    made = pl.Series(cells.cast(pa.int64()).to_pylist(), dtype=pl.Int64).cast(pl.Duration(cells.type.unit))
    return pl.DataFrame({"t": made, "x": [1.0] * len(cells)})


def pandas_spans(cells):
    return pd.DataFrame({"t": cells.cast(pa.int64()).to_numpy().view(f"m8[{cells.type.unit}]"), "x": 1.0})


SPANS = [as_arrow, as_dataset, as_reader, polars_spans, pandas_spans, as_pandas_arrow]


@pytest.mark.parametrize("load", SPANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("unit", PER)
def test_spans_beyond_the_longest(load, unit):
    cells = pa.array([90 * PER[unit]] * 20 + FAR, pa.int64()).view(pa.duration(unit))
    several = ("t IS NOT NULL", "t > INTERVAL 1 MINUTE", "EXTRACT(minute FROM t) = 1", "t + t > t")
    found = count_together(load(cells), [Tally(ONE, ("x",), where) for where in several])
    for where, got in zip(several, found, strict=True):
        assert 20 <= got.values[0] <= 25, where
    assert 1 <= count(load(cells), ONE, columns="x", unit="t").values[0] <= 6


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])
def test_far_times_in_numpy(unit):
    good = np.array([DAY.replace(tzinfo=None)] * 20, dtype="M8[us]")
    if unit in ("ps", "fs", "as"):  # which reach a few months around 1970 at most
        good = good[:0]
    values = np.concatenate([good.astype(f"M8[{unit}]").view("i8"), FAR]).view(f"M8[{unit}]")
    at = {"Y": 0, "M": 0, "W": None}.get(unit, 2)
    for outside in ("drop", "clip"):
        for data in (values, list(values)):
            got = count(data, CLOCK, outside=outside).values
            assert outside == "clip" or got.sum() in (0, good.size)
            assert at is None or got[at] >= good.size
            assert got[1:4].sum() in (0, good.size)


class Raising(dt.tzinfo):
    """A time zone that cannot say what it is."""

    def __init__(self, error):
        self.error = error

    def utcoffset(self, when):
        raise self.error


class Huge(dt.tzinfo):
    def utcoffset(self, when):
        return "no offset"


ZONES = [Raising(RuntimeError("Hj7781")), Raising(ValueError("Hj7781")), Raising(RecursionError()), Huge()]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("domain", [CLOCK, ZONED])
def test_a_zone_that_raises(zone, domain):
    times = [dt.datetime(2024, 1, 3)] * 3
    odd = dt.datetime(2024, 1, 3, tzinfo=zone)
    edge = [dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.datetime.max]
    for data in ([*times, odd, *edge], np.array([*times, odd], dtype=object)):
        got = count(data, domain).values
        assert got[2] in (3, 4) and got.sum() == got[2]
    frame = pd.DataFrame({"t": pd.Series([*times, odd], dtype=object)})
    got = count(frame, domain, columns="t").values
    assert got[2] in (3, 4) and got.sum() == got[2]


AXES = [Integers(0, 2), Regular(lo=0, hi=3, bins=3), Variable([0, 1, 2, 3.0])]


@pytest.mark.parametrize("axis", AXES, ids=lambda a: a.kind)
@pytest.mark.parametrize("odd", ["1", "nan", "inf", "-inf", "1e4000", "-1e4000", "1e-4000"])
def test_long_doubles(axis, odd):
    """The widest floats of numpy, alone and among plain numbers, as values and as whole arrays."""
    value = np.longdouble(odd)
    plain = [2.0] * 5
    expected = {"1": [0, 1, 5], "1e-4000": [1, 0, 5]}.get(odd, [0, 0, 5])
    wide = np.array([*plain, value], dtype=np.longdouble)
    series = pd.Series([*plain, value], dtype=object)
    for data in ([*plain, value], wide, wide.astype(object), np.array([*plain, value], dtype=object)):
        assert count(data, Domain((axis,))).values.tolist() == expected
    for frame in (pd.DataFrame({"x": wide}), pd.DataFrame({"x": series})):
        assert count(frame, Domain((axis,)), columns="x").values.tolist() == expected
        kept = [e if e != 5 else 0 for e in expected] if sum(expected) > 5 else [0, 0, 0]
        got = count(frame, Domain((axis,)), columns="x", where="x < 2").values.tolist()
        assert got == kept
    got = count(pd.DataFrame({"x": wide[::-1], "u": wide}), Domain((axis,)), columns="x", unit="u").values
    assert got.sum() <= 2


def test_half_and_long_doubles_as_labels():
    labels = Domain((Categories(("a", "1.0")),))
    got = count(["a", np.longdouble("1e4000"), np.longdouble(1), np.float16(1)], labels).values
    assert got.tolist() == [1, 2]


def test_a_mix_of_every_odd_value_in_one_list():
    odd = [
        np.longdouble("nan"),
        None,
        "x",
        b"\xff",
        object(),
        10**5000,
        -(10**5000),
        1j,
        [1],
        {},
        dt.date.max,
    ]
    for some in itertools.combinations(odd, 2):
        assert count([1.0, 1.0, *some], Domain((Integers(1, 1),))).values.tolist() == [2], some
