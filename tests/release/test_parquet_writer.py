"""The writer of Parquet: what it writes, other programs read as it was."""

from __future__ import annotations

import io

import duckdb
import numpy as np
import polars
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.release import parquet
from dphist.release.parquet import Column, Writer

COLUMNS = [
    Column("level", "int8"),
    Column("group", "text"),
    Column("parent", "text"),
    Column("factor", "double"),
    Column("raw", "doubles"),
    Column("values", "int64s"),
]


def written(blocks, *, columns=COLUMNS, metadata=None) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, columns)
    for block in blocks:
        writer.block(block, rows=len(block["raw"]))
    writer.close(metadata or {})
    return file.getvalue()


def block(raw, *, values=None, level=0, parent=None, label="g"):
    raw = np.asarray(raw)
    rows = len(raw)
    return {
        "level": np.full(rows, level),
        "group": [f"{label}{i}" for i in range(rows)],
        "parent": None if parent is None else [parent] * rows,
        "factor": np.linspace(0.1, 1, rows),
        "raw": raw,
        "values": np.zeros(raw.shape, np.int64) if values is None else values,
    }


def read(content: bytes, tmp_path) -> list[list[tuple]]:
    """Return the rows that every reader finds."""
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with duckdb.connect() as db:
        one = db.execute("FROM read_parquet(?)", [str(path)]).fetchall()
    names = [column.name for column in COLUMNS]
    table = pyarrow.parquet.read_table(path).to_pylist()
    frame = polars.read_parquet(path).to_dicts()
    return [one, *([tuple(row[name] for name in names) for row in rows] for rows in (table, frame))]


def expected(blocks) -> list[tuple]:
    return [
        (
            int(b["level"][i]),
            b["group"][i],
            None if b["parent"] is None else b["parent"][i],
            float(b["factor"][i]),
            [float(v) for v in b["raw"][i]],
            [int(v) for v in b["values"][i]],
        )
        for b in blocks
        for i in range(len(b["raw"]))
    ]


RNG = np.random.default_rng(4)
RAW = {
    "whole numbers close together": RNG.integers(-30, 60, (50, 7)).astype(float),
    "whole numbers of fewer bytes": RNG.integers(-30, 60, (50, 7)).astype(np.int16),
    "whole numbers two bytes apart": RNG.integers(-300, 600, (900, 7)).astype(np.int32),
    "all that two bytes hold": np.resize(np.arange(-32768, 32768), (9363, 7)).astype(np.int16),
    "whole numbers far apart": RNG.integers(-(2**52), 2**52, (50, 7)),
    "sixteenths": np.round(RNG.normal(0, 9, (700, 7)) * 16) / 16,
    "fractions": RNG.normal(0, 9, (50, 7)),
    "large and small": RNG.normal(0, 1, (50, 7)) * 10.0 ** RNG.integers(-300, 300, (50, 7)),
    "beyond all whole numbers": np.full((3, 7), 1e300),
    "one value": np.full((9, 7), 5.0),
    "one row": np.arange(7.0)[None],
}


@pytest.mark.parametrize("name", RAW)
def test_numbers_are_read_as_they_were(name, tmp_path):
    blocks = [block(RAW[name]), block(RAW[name][:1], level=1, parent="g0")]
    for found in read(written(blocks), tmp_path):
        assert found == expected(blocks)


def test_whole_numbers_and_doubles_are_written_alike():
    whole = RAW["whole numbers of fewer bytes"]
    assert written([block(whole)]) == written([block(whole.astype(float))])


def test_whole_numbers_of_eight_bytes(tmp_path):
    far = np.array([[2**62, 2**53 + 1, -(2**62)]])
    near = np.array([[2**53 + 1, 2**53 + 3, 2**53 + 2]])
    blocks = [block(np.zeros((1, 3)), values=values) for values in (far, near)]
    for found in read(written(blocks), tmp_path):
        assert found == expected(blocks)


@pytest.mark.parametrize("bins", [1, 2, 8, 200, 5000])
def test_lists_of_every_length(bins, tmp_path):
    blocks = [block(RNG.integers(0, 9, (rows, bins)).astype(float)) for rows in (1, 20, 3)]
    for found in read(written(blocks), tmp_path):
        assert found == expected(blocks)


def test_texts_of_every_kind(tmp_path):
    made = block(np.zeros((6, 2)))
    made["group"] = ["", "a'b", "Ünï", "\N{SMILE}", "x" * 100_000, "\0"]
    for found in read(written([made]), tmp_path):
        assert [row[1] for row in found] == made["group"]


def test_many_blocks(tmp_path):
    blocks = [block(RNG.integers(0, 9, (2, 3)).astype(float), label=f"b{i}-") for i in range(40)]
    for found in read(written(blocks), tmp_path):
        assert found == expected(blocks)
    about = pyarrow.parquet.read_metadata(tmp_path / "x.parquet")
    assert (about.num_rows, about.num_row_groups) == (80, 40)


def test_metadata_and_extremes(tmp_path):
    made = block(np.zeros((3, 2)))
    made["group"] = ["m", "é", "a"]
    long = block(np.zeros((1, 2)))
    long["group"] = ["y" * 65]
    path = tmp_path / "x.parquet"
    path.write_bytes(written([made, long], metadata={"dphist": "{...}", "other": "ü"}))
    about = pyarrow.parquet.read_metadata(path)
    assert about.metadata == {b"dphist": b"{...}", b"other": "ü".encode()}
    first, second = (about.row_group(i).column(1) for i in (0, 1))
    assert (first.statistics.min, first.statistics.max) == ("a", "é")
    assert second.statistics is None or not second.statistics.has_min_max
    assert about.row_group(0).column(2).statistics.null_count == 3
    for found in read(path.read_bytes(), tmp_path):
        assert [row[1] for row in found] == ["m", "é", "a", "y" * 65]
    with duckdb.connect() as db:
        assert db.execute("SELECT level FROM read_parquet(?) WHERE \"group\" = 'é'", [str(path)]).fetchall()


def test_sizes_in_the_footer_are_those_of_the_file(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(written([block(RAW["sixteenths"]), block(RAW["fractions"])]))
    about = pyarrow.parquet.read_metadata(path)
    columns = [about.row_group(g).column(c) for g in range(2) for c in range(about.num_columns)]
    at = 4
    for column in columns:
        start = column.dictionary_page_offset or column.data_page_offset
        assert start == at
        at += column.total_compressed_size
    assert at + about.serialized_size + 8 == path.stat().st_size


def test_memory_does_not_grow_with_the_blocks():
    class Nowhere(io.BytesIO):
        size = 0

        def write(self, content) -> int:
            self.size += len(content)
            return len(content)

    file = Nowhere()
    writer = Writer(file, COLUMNS)
    for _ in range(50):
        writer.block(block(RAW["whole numbers close together"]), rows=50)
    kept = sum(map(len, writer._blocks))
    assert kept < 50 * 700, "a few hundred bytes of footer for each block, whatever is in it"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(
                st.one_of(
                    st.integers(-300, 300).map(float), st.floats(allow_nan=False, allow_infinity=False)
                ),
                min_size=n,
                max_size=n,
            ),
            min_size=1,
            max_size=9,
        )
    )
)
def test_any_numbers(tmp_path_factory, rows):
    blocks = [block(np.array(rows))]
    for found in read(written(blocks), tmp_path_factory.mktemp("any")):
        assert [row[4] for row in found] == rows


def test_numbers_of_thrift():
    assert [parquet._varint(n) for n in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"]
    assert [parquet._zigzag(n) for n in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]
