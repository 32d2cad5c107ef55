"""Bytes that are not UTF-8 in a typed column of text: one record without a label, which moves no other."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dphist.domain import Categories, Domain, Integers
from dphist.errors import DataError
from dphist.records import Tally, count, count_together
from dphist.records.check import check

ONE = Domain((Integers(1, 1),))
WARDS = Domain((Categories(("a", "b", "?", "a?", ""), other=True, null=True),))
GOOD = [b"a", b"b", None, "é?".encode()]
BAD = [b"\xff", b"a\xff", b"a\xe2\x82", b"\xed\xa0\x80", b"a\xc0\x80b"]


def text(cells, type=None):
    """Return Arrow text of any bytes, as a careless writer would make it."""
    large = pa.array(cells, pa.large_binary())
    made = pa.Array.from_buffers(pa.large_string(), len(cells), large.buffers())
    return made if type is None else made.cast(type)


def table(cells, **others):
    return pa.table({"t": text(cells), "x": [1] * len(cells), **others})


def as_arrow(cells, folder):
    return table(cells)


def as_small(cells, folder):
    small = pa.array(cells, pa.binary())
    return pa.table(
        {"t": pa.Array.from_buffers(pa.string(), len(cells), small.buffers()), "x": [1] * len(cells)}
    )


def as_dictionary(cells, folder):
    known = list(dict.fromkeys(c for c in cells if c is not None))
    at = pa.array([None if c is None else known.index(c) for c in cells], pa.int32())
    return pa.table({"t": pa.DictionaryArray.from_arrays(at, text(known)), "x": [1] * len(cells)})


def as_dataset(cells, folder):
    return ds.dataset(table(cells))


def as_reader(cells, folder):
    return table(cells).to_reader(max_chunksize=2)


def as_polars(cells, folder):
    return pl.from_arrow(table(cells))


def as_pandas_arrow(cells, folder):
    return pd.DataFrame({"t": pd.Series(text(cells), dtype=pd.ArrowDtype(pa.large_string())), "x": 1})


def as_pandas_text(cells, folder):
    return pd.DataFrame({"t": pd.array(text(cells), dtype="string[pyarrow]"), "x": 1})


def as_parquet(cells, folder):
    pq.write_table(table(cells), folder / "r.parquet", row_group_size=2)
    return folder / "r.parquet"


def as_plain_parquet(cells, folder):
    pq.write_table(table(cells), folder / "p.parquet", use_dictionary=False, compression="none")
    return folder / "p.parquet"


def as_parquet_with_times(cells, folder):
    """Return a file that is read by way of Arrow."""
    times = pa.array([5] * len(cells), pa.int32()).view(pa.time32("ms"))
    pq.write_table(table(cells, u=times), folder / "u.parquet")
    return folder / "u.parquet"


def as_parquet_folders(cells, folder):
    for key in ("1", "2"):
        (folder / f"k={key}").mkdir(exist_ok=True)
        pq.write_table(table(cells[int(key) - 1 :: 2]), folder / f"k={key}" / "r.parquet", row_group_size=1)
    return folder


LOADS = [as_arrow, as_small, as_dictionary, as_dataset, as_reader, as_polars, as_pandas_arrow, as_pandas_text]
LOADS += [as_parquet, as_plain_parquet, as_parquet_with_times, as_parquet_folders]
EVERY = [as_arrow, as_polars, as_pandas_text, as_parquet, as_parquet_folders]  # as others are read
CONDITIONS = [
    *("LOWER(t) = 'a'", "LENGTH(t) = 1", "t LIKE 'a%'", "t ILIKE 'A%'", "t > 'a'", "t < 'z'", "t = '?'"),
    *("TRIM(UPPER(t)) = 'A'", "REPLACE(t, 'a', 'b') = 'b'", "SUBSTRING(t, 1, 1) = 'a'", "t <> 'a'"),
]


@pytest.mark.parametrize("load", LOADS, ids=lambda f: f.__name__)
def test_bytes_that_are_no_text_are_one_record(load, tmp_path):
    rows = GOOD * 5
    assert count(load(rows, tmp_path), WARDS, columns="t").values.tolist() == [5, 5, 0, 0, 0, 5, 5]
    assert count(load([*rows, *BAD], tmp_path), WARDS, columns="t").values.tolist() == [5, 5, 0, 0, 0, 10, 5]
    asked = [Tally(ONE, ("x",), where) for where in (CONDITIONS if load in EVERY else CONDITIONS[::3])]
    without = count_together(load(rows, tmp_path), asked)
    found = count_together(load([*rows, BAD[1]], tmp_path), asked)
    for each, before, after in zip(asked, without, found, strict=True):
        assert after.values[0] - before.values[0] in (0, 1), each.where
        assert before.values[0] > 0 or each.where == "t = '?'"


@pytest.mark.parametrize("load", LOADS, ids=lambda f: f.__name__)
def test_people_whose_ids_are_no_text_are_left_out(load, tmp_path):
    """Different bytes would be read as one id, and one person's records would push another's out."""
    rows = [b"a", b"b", b"a?"] * 4
    assert count(load(rows, tmp_path), ONE, columns="x", unit="t", max_contributions=2).values[0] == 6
    data = load([*rows, *BAD, *BAD], tmp_path)
    assert count(data, ONE, columns="x", unit="t", max_contributions=2).values[0] == 6
    found = check(load([*rows, *BAD, *BAD], tmp_path), ONE, columns="x", unit="t", max_contributions=2)
    assert (found.read, found.counted, found.bounded, found.undecodable_unit) == (22, 6, 6, 10)
    assert found.without_unit == 0 and "t: undecodable" in dict(found.rows())


@pytest.mark.parametrize("load", [as_parquet, as_plain_parquet, as_parquet_folders], ids=lambda f: f.__name__)
def test_parquet_of_such_bytes_needs_nothing_installed(load, tmp_path, monkeypatch):
    data = load([*GOOD, *BAD], tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert count(data, WARDS, columns="t").values.tolist() == [1, 1, 0, 0, 0, 6, 1]


def test_a_record_moves_no_other_by_the_extremes_of_a_group(tmp_path):
    """The text of one group has bytes above U+FFFF; a record beside it must not bring them into a range."""
    last = "m\uffff"
    for more in ([], [b"m\xff"], [b"mz"], [b"a"]):
        pq.write_table(table([b"m\xff", *more]), tmp_path / "r.parquet")
        where = f"t > '{last}'"
        assert count(tmp_path / "r.parquet", ONE, columns="x", where=where).values[0] == 0, more


def test_many_groups_and_files_stay_in_step(tmp_path):
    cells = [b"id-%d?" % i + b"\xff?" * (i % 7 == 0) for i in range(30_000)]
    for part in range(3):
        pq.write_table(
            pa.table({"t": text(cells), "x": np.arange(30_000)}),
            tmp_path / f"{part}.parquet",
            row_group_size=1_000,
        )
    tens = Domain((Integers(0, 9),))
    got = count(tmp_path, tens, columns="x % 10", where="t LIKE '%?'").values
    whole = np.arange(30_000)[np.arange(30_000) % 7 > 0]
    assert got.tolist() == (3 * np.bincount(whole % 10)).tolist()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_ids_of_text_files_that_are_no_text_are_left_out(tmp_path, ending):
    ids = [b"a", b"b", b"a", b"c\xff", b"c\xfe", b"c\xfe"]
    lines = [b"x,t"] if ending == "csv" else []
    lines += [b"1,%s" % i if ending == "csv" else b'{"x": 1, "t": "%s"}' % i for i in ids]
    path = tmp_path / f"r.{ending}"
    path.write_bytes(b"\n".join([*lines, b""]))
    assert count(path, ONE, columns="x", unit="t").values[0] == 2
    found = check(path, ONE, columns="x", unit="t")
    assert (found.counted, found.bounded, found.undecodable_unit, found.without_unit) == (2, 1, 3, 0)
    assert any("--encoding" in hint for hint in found.hints)
    assert check(path, ONE, columns="x", unit="t", encoding="latin-1").undecodable_unit == 0


def test_half_characters_in_python_text_are_marked_too():
    frame = pd.DataFrame({"t": pd.Series(["a", "a", "b\ud800", "b\udc00", "b?"], dtype=object), "x": 1})
    assert count(frame, ONE, columns="x", unit="t").values[0] == 2
    assert count(frame, WARDS, columns="t").values.tolist() == [2, 0, 0, 0, 0, 3, 0]


def test_a_damaged_file_is_still_an_error(tmp_path):
    path = as_plain_parquet([b"a" * 50] * 200, tmp_path)
    raw = bytearray(path.read_bytes())
    raw[4:60] = b"\xff" * 56
    path.write_bytes(raw)
    with pytest.raises(DataError, match="not said here"):
        count(path, WARDS, columns="t")
