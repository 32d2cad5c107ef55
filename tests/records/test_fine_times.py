"""Steps of time below a second, and very many steps: exact whole microseconds, from text and types."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dphist
from dphist import records
from dphist.domain import Domain, Instants
from dphist.errors import UsageError

CENTURY = Instants("2000-01-01", "2100-01-01", "1us", "UTC")
MS = Instants("2024-01-01", "2024-01-01T00:00:02", "250ms")


def held(counts):
    bins, tallies = counts.held()
    return dict(zip(bins.tolist(), tallies.tolist(), strict=True))


def test_bins_are_whole_numbers_of_microseconds():
    start = dt.datetime(2000, 1, 1)
    assert CENTURY.n == (dt.datetime(2100, 1, 1) - start) // dt.timedelta(microseconds=1) > 2**51
    last = dt.datetime(2099, 12, 31, 23, 59, 59, 999_999)
    texts = [str(start), "2099-12-31T23:59:59.999999", "2099-12-31 23:59:59.9999999", "2100-01-01", "x"]
    want = [0, CENTURY.n - 1, CENTURY.n - 1, -1, -1]
    assert CENTURY.index(np.array(texts, dtype=object)).tolist() == want
    assert CENTURY.index([last, last.replace(tzinfo=dt.UTC), start.date(), None, pd.NaT]).tolist() == [
        *(CENTURY.n - 1, CENTURY.n - 1, 0, -1, -1)
    ]
    assert CENTURY.index(["1999-12-31", "2101-01-01"], "clip").tolist() == [0, CENTURY.n - 1]
    assert CENTURY.name(CENTURY.n - 1) == "2099-12-31 23:59:59.999999"
    assert CENTURY.cut("2099-12-31T23:59:59.999999") == CENTURY.n - 1
    assert CENTURY.cut("2100-01-01") == CENTURY.n


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "D", "10us"])
def test_numpy_times_of_every_unit(unit):
    cells = np.array(["2024-01-01T00:00:01.250", "1969-12-31T23:59:59.999999", "NaT"], dtype=f"M8[{unit}]")
    want = [
        -1 if np.isnat(c) or c < MS_START or c >= MS_END else int((c - MS_START) // QUARTER) for c in cells
    ]
    assert MS.index(cells).tolist() == want
    far = np.array([2**62, -(2**62)], dtype=np.int64).view(f"M8[{unit}]")
    assert MS.index(far, "clip").tolist() == [MS.n - 1, 0]
    ends = np.array([2**63 - 1, -(2**63) + 1], dtype=np.int64).view(f"M8[{unit}]")
    assert MS.index(ends, "clip").tolist() == [MS.n - 1, 0]


MS_START, MS_END = np.datetime64("2024-01-01T00:00:00"), np.datetime64("2024-01-01T00:00:02")
QUARTER = np.timedelta64(250, "ms")


def test_files_and_tables_are_counted_as_lists_are(tmp_path):
    texts = ["2024-01-01 00:00:00", "2024-01-01T00:00:00.249999", "2024-01-01 00:00:00.25", "2024-01-01"]
    texts += ["2023-12-31 23:59:59.999999", "2024-01-01 00:00:01.999999999", "", "noon"]
    want = {0: 3, 1: 1, 7: 1}
    assert held(records.count(texts, Domain((MS,)))) == want
    path = tmp_path / "t.csv"
    path.write_text("t\n" + "".join(f'"{text}"\n' for text in texts))
    assert held(records.count(path, Domain((MS,)), columns="t")) == want
    times = [dt.datetime.fromisoformat(t) for t in texts[:6]]
    for unit in ("ns", "us", "ms"):
        frame = pl.DataFrame({"t": pl.Series(times, dtype=pl.Datetime(unit))})
        assert held(records.count(frame, Domain((MS,)), columns="t")) == want, unit
    assert held(records.count(pd.DataFrame({"t": pd.to_datetime(times)}), Domain((MS,)), columns="t")) == want


def test_a_grid_of_times_and_one_person_at_most_k_times():
    start = dt.datetime(2050, 1, 1)
    frame = pl.DataFrame({"t": [start + dt.timedelta(microseconds=i) for i in range(40)], "u": ["a"] * 40})
    counts = records.count(frame, Domain((CENTURY,)), columns="t", unit="u", max_contributions=3)
    first = CENTURY.index([start])[0]
    assert sum(held(counts).values()) == 3
    assert all(first <= bin < first + 40 for bin in held(counts))


def test_a_release_of_microseconds_is_asked_in_times():
    times = ["2024-05-06 07:08:09.123456"] * 500 + ["2024-05-06 07:08:10"] * 300
    asked = {"range": ("2000-01-01", "2100-01-01"), "every": "1us", "epsilon": 10**6}
    ranges = dphist.histogram(times, **asked, workload="ranges")
    assert ranges.sum("2024-05-06", "2024-05-07").value == pytest.approx(800)
    assert ranges.sum("2024-05-06 07:08:09.123456", "2024-05-06 07:08:09.123457").value == pytest.approx(500)
    assert str(ranges.quantile(0.5)).startswith("2024-05-06 07:08:09.123456 (")
    assert dphist.SparseRelease.from_dict(ranges.to_dict()) == ranges
    listed = dphist.histogram(times, **asked)
    assert listed.to_pandas()["bin"].tolist() == ["2024-05-06 07:08:09.123456", "2024-05-06 07:08:10.000000"]
    assert listed.value("2024-05-06T07:08:10").value == 300
    few = dphist.histogram(
        times, range=("2024-05-06T07:08:09", "2024-05-06T07:08:11"), every="500ms", epsilon=10**6
    )
    assert few.values().round().tolist() == [500, 0, 300, 0]
    assert few.domain.axis.names()[1] == "2024-05-06 07:08:09.500"
    assert few.domain.axis.moments()[-1] == "2024-05-06 07:08:11.000"
    assert few.rebin(2).domain.axis == Instants("2024-05-06T07:08:09", "2024-05-06T07:08:11", "1000ms", "UTC")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Instants("2024-01-01", "2024-01-02", "1ms", "Europe/Berlin"), "name the time zone UTC"),
        (lambda: Instants("1000-01-01", "9000-01-01", "1s", "Europe/Berlin"), "name the time zone UTC"),
        (lambda: Instants("2024-01-01T00:00:00.5", "2024-01-02", "1s"), "a whole second"),
        (lambda: Instants("2024-01-01", "2024-01-02", "1ns"), "us, ms, s"),
        (lambda: Instants("8999-01-01", "8999-01-01T00:00:00.0001", "1us"), "so far from 1970"),
        (lambda: Instants("1000-01-01", "1000-01-01T00:01", "5us", "UTC"), "so far from 1970"),
        (lambda: CENTURY.names(), "too many to write out"),
        (lambda: CENTURY.moments(), "too many to write out"),
        (lambda: CENTURY.edges, "too many to write out"),
        (
            lambda: CENTURY.cut("1999-01-01"),
            "outside the domain, which runs from 2000-01-01 00:00:00.000000 to",
        ),
        (lambda: CENTURY.cut("2100-01-01T00:00:00.000001"), "outside the domain"),
        (lambda: MS.cut("2024-01-01T00:00:00.3"), "00:00:00.250 or 2024-01-01 00:00:00.500"),
        (
            lambda: Instants("2024-01-01", "2024-01-01T00:00:01", "300ms").cut("2024-01-01T00:00:01.1"),
            "outside",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.parametrize("start", ["1834-01-01", "1970-01-01", "2105-12-31"])
def test_listed_edges_are_told_apart(start):
    axis = Instants(start, f"{start}T00:00:00.001", "1us")
    assert (np.diff(axis.edges) > 0).all() and axis.moment(axis.edges[7]) == f"{start} 00:00:00.000007"


def test_a_last_step_may_be_shorter():
    axis = Instants("2024-01-01", "2024-01-01T00:00:01", "300ms")
    assert (axis.n, axis.is_cut_short, MS.is_cut_short) == (4, True, False)
    assert axis.index(["2024-01-01 00:00:00.9", "2024-01-01 00:00:01"]).tolist() == [3, -1]
    assert axis.edges.tolist()[-1] - axis.edges.tolist()[0] == 1
