"""Text files: what a line says is a function of that line alone, and names of files are taken literally."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import gzip
import io
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dphist
from dphist import Categories, Domain, Regular
from dphist.errors import DataError, UsageError
from dphist.privacy.ledger import Ledger
from dphist.records import count
from samples import later

TENS = Domain((Regular(lo=0, hi=100, bins=10),))
LABEL = Categories(("1", "a", "he said", "x,y", 'q"q'), other=True, null=True)
CELLS = Domain((LABEL, LABEL))
FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def total(path: Path | str, **options: object) -> int:
    return int(count(path, TENS, columns="a", progress=False, **options).values.sum())


def cells(path: Path, **options: object) -> np.ndarray:
    """Count the two columns of a file, nulls and unknown text too: every record is somewhere."""
    return count(path, CELLS, columns=("a", "b"), progress=False, **options).values


@contextlib.contextmanager
def small_parts(block: int = 7, part: int = 20) -> Iterator[None]:
    """Let the ends of blocks and parts fall everywhere."""
    from dphist.records import lines
    from dphist.records.engines import untyped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        patch.setattr(untyped, "_PART", part)
        yield


# --- delimited text -----------------------------------------------------------------------------------------

DIRTY = {
    "unclosed quote": b'5,"he said',
    "quote alone": b'"',
    "quote in the middle": b'5,12" pipe',
    "text behind a quote": b'5,"a"b',
    "three quotes": b'5,"""',
    "space before a quote": b'5, "x',
    "backslash": b'5,"a\\"',
    "not UTF-8": b"5,caf\xe9",
    "cut character": b"5,\xe2\x82",
    "NUL": b"5,a\0b",
    "carriage return": b"5,x\r6,y",
    "quoted carriage return": b'5,"x\r6,y',
    "too few": b"5",
    "too many": b"5,6,7,8,9",
    "only delimiters": b",,,,,,",
    "too long": b"5," + b"x" * 3_000_000,
    "long and quoted": b'5,"' + b'x"' * 700_000,
    "long before": b"x" * 3_000_000 + b",5",
    "blank": b"",
    "spaces": b"   ",
    "comment": b"# 5,6",
    "header again": b"a,b",
}


@pytest.mark.parametrize("dirty", DIRTY.values(), ids=DIRTY)
@pytest.mark.parametrize("at", [0, 1500, 3000], ids=["first", "middle", "last"])
def test_a_dirty_line_moves_no_other(tmp_path, dirty, at):
    clean = [b"5,x"] * 3000
    path = tmp_path / "r.csv"
    for end in (b"\n", b"\r\n")[: 1 + (at > 0)]:
        path.write_bytes(end.join([b"a,b", *clean[:at], dirty, *clean[at:]]) + end)
        assert total(path) in (3000, 3001)


def test_every_dirty_line_counts_as_it_is_documented(tmp_path):
    path = tmp_path / "r.csv"

    def read(line: bytes) -> tuple[str, ...]:
        path.write_bytes(b"a,b\n" + line + b"\n")
        found = np.flatnonzero(cells(path))
        assert found.size == 1
        names = (*LABEL.labels, "other", "null")
        return tuple(names[i] for i in np.unravel_index(found[0], CELLS.shape))

    assert read(b'1,"he said') == ("1", "he said")
    assert read(b'1,"x,y') == ("1", "x,y")
    assert read(b'1,"x",y') == ("1", "other")
    assert read(b'1,q"q') == ("1", 'q"q')
    assert read(b'1,"q"q') == ("1", "other")  # qq
    assert read(b'1,"q""q') == ("1", 'q"q')
    assert read(b'1,"he" said') == ("1", "he said")
    assert read(b"1,he\rsaid") == ("1", "he said")
    assert read(b"1") == ("1", "null")
    assert read(b"1,a,2,3") == ("1", "a")
    assert read(b"1,\xff") == ("1", "other")


MARKS = st.sampled_from(
    [b'"', b'""', b",", b"\r", b"a", b"1", b" ", b"\0", b"\xff", b"\xc3", b"\xa9", b"\\", b"#"]
)
LINE = st.lists(MARKS, max_size=8).map(b"".join)


@FEW
@given(
    before=st.lists(LINE, max_size=5), after=st.lists(LINE, max_size=5), last=st.sampled_from([b"", b"\n"])
)
def test_the_records_of_a_file_are_those_of_its_lines(tmp_path, before, after, last):
    """Counts of lines add up: reading is a function of each line alone, wherever blocks and parts end."""

    def read(lines: list[bytes], last: bytes = b"\n") -> np.ndarray:
        path = tmp_path / "r.csv"
        path.write_bytes(b"\n".join([b"a,b", *lines]) + (last if lines else b"\n"))
        return cells(path)

    apart = read(before) + read(after)
    with small_parts():
        together = read([*before, *after], last)
    if last or not (before + after) or (before + after)[-1].strip(b"\r"):
        assert together.tolist() == apart.tolist()
    assert np.abs(together - apart).sum() <= 1
    assert apart.sum() <= len(before) + len(after)


@FEW
@given(
    st.lists(st.tuples(*[st.sampled_from(["1", "a", "he said", "x,y", 'q"q', "é", " 1"])] * 2), max_size=9)
)
def test_what_a_correct_writer_wrote_is_read_back(tmp_path, rows):
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([("a", "b"), *rows])
    path = tmp_path / "r.csv"
    path.write_text(made.getvalue())
    known = {label: i for i, label in enumerate(LABEL.labels)}
    expected = np.zeros(CELLS.n, dtype=np.int64)
    for row in rows:
        first, second = (known.get(cell, len(known)) for cell in row)
        expected[first * LABEL.n + second] += 1
    with small_parts():
        assert cells(path).tolist() == expected.tolist()
    assert cells(path, well_formed=True).tolist() == expected.tolist()


@pytest.mark.parametrize(("name", "mark"), [("r.csv", ";"), ("r.csv", "\t"), ("r.csv", "|"), ("r.tsv", "\t")])
def test_every_delimiter(tmp_path, name, mark):
    lines = ["a,b", '1,"x,y"', '1,"he said', 'a,12" pipe', "1,a"]
    path = tmp_path / name
    path.write_text("\n".join(lines).replace(",", mark).replace(f"x{mark}y", "x,y"))
    grid = cells(path).reshape(CELLS.shape)
    assert grid[0].tolist() == [0, 1, 1, 1, 0, 0, 0]
    assert grid[1].tolist() == [0, 0, 0, 0, 0, 1, 0]


def test_marks_ends_and_compression_change_nothing(tmp_path):
    lines = [b"a,b", b"", b"1,a", b'1,"he said', b"1,a", b"5"]
    plain = tmp_path / "r.csv"
    plain.write_bytes(b"\n".join(lines) + b"\n")
    expected = cells(plain).tolist()
    assert sum(expected) == 4
    for content in (
        b"\n".join(lines),
        b"\r\n".join(lines),
        b"\xef\xbb\xbf" + b"\n".join(lines),
        b"\n\r\n" + b"\n".join(lines),
    ):
        plain.write_bytes(content)
        assert cells(plain).tolist() == expected
    packed = tmp_path / "p.csv.gz"
    packed.write_bytes(gzip.compress(b"\n".join(lines)))
    assert cells(packed).tolist() == expected


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.csv.gz"])
@pytest.mark.parametrize(("mark", "encoding"), [(MARK, "utf-8"), (MARK * 2, "utf-8"), (MARK, "gb18030")])
def test_a_byte_order_mark_says_the_same_before_every_record(tmp_path, name, mark, encoding):
    """Whether a record is the first of a part, or of the file, depends on those before it."""

    def bytes_of(bodies: list[bytes]) -> bytes:
        if "jsonl" in name:
            text = b"".join(b'%s{"a": %s}\n' % (b[: -len(b.lstrip(MARK))], b.lstrip(MARK)) for b in bodies)
        else:
            text = b"a,b\n" + b"".join(body + b",x\n" for body in bodies)
        text = text.decode().encode(encoding)
        return gzip.compress(text) if name.endswith("gz") else text

    def tally(bodies: list[bytes]) -> np.ndarray:
        (tmp_path / name).write_bytes(bytes_of(bodies))
        return count(tmp_path / name, TENS, columns="a", encoding=encoding, progress=False).values

    one = np.eye(10, dtype=int)[5]
    for part, fronts in ((1, ([], [b"7"] * 2)), (20, ([b"7"] * 2,))):
        with small_parts(part=part):
            data = [mark + b"55", b"7", mark + b"55", b"7"]
            for front in fronts:
                without = tally([*front, *data])
                assert (tally([mark + b"55", *front, *data]) - without == one).all()
                assert (tally([*front, *data, mark + b"55"]) - without == one).all()


def text_of(kind: str, rows: list[bytes]) -> bytes:
    """Write values of a padded to a length, as lines of CSV or JSON."""
    return b"a,b\n" * (kind == "csv") + b"".join(rows)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_a_line_that_is_too_long_is_left_out_whole_wherever_blocks_end(tmp_path, monkeypatch, kind, encoding):
    """Neither its head nor its tail is a record, and its carriage return is one of its bytes."""
    from dphist.records import lines

    monkeypatch.setattr(lines, "LONGEST", 60)
    inside = b'5,"' if kind == "csv" else b'{"a": 5, "b": "'
    end = b'"' if kind == "csv" else b'"}'
    wide = "\u0416".encode(encoding) if encoding in ("gb18030", "shift_jis") else b"z"

    def line(long: int, tail: bytes = b"") -> bytes:
        each = len(wide.decode(encoding).encode())
        fill, odd = divmod(long - len(inside) - len(end), each)
        return inside + wide * fill + b"z" * odd + end + tail

    small = line(20) + b"\n"
    cut = line(60)[: -len(end)] + b"z" * 40 + b"\n"
    # Behind a carriage return where the longest line ends, and with a whole record in what follows.
    returned = line(60) + b"\r" + line(30) + b"\n"
    dragged = line(61) + b"z" * 50 + b"," + line(30) + b"\n"
    expected = {
        line(60) + b"\n": 1,
        line(61) + b"\n": 0,
        cut: 0,
        returned: 0,
        dragged: 0,
        line(60, b"\r\n"): 0,
    }
    path = tmp_path / f"r.{kind}"
    for block in (7, 61):
        for record, many in expected.items():
            for front in range(2):
                with small_parts(block=block, part=50):
                    path.write_bytes(text_of(kind, [small] * front + [record] + [small] * 3))
                    assert total(path, encoding=encoding) == front + many + 3, (block, record, front)


def test_a_header_that_is_too_long_is_not_passed_over(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b"\na," + b"b" * 1_000_000 + b"\n1,2\n3,4\n")
    with pytest.raises(DataError, match="first line .* longer than 1,000,000 bytes"):
        total(path)


def test_one_dirty_file_moves_no_other(tmp_path):
    for at in range(3):
        (tmp_path / f"{at}.csv").write_text('a,b\n5,x\n5,"he said')
    with small_parts():
        assert total(tmp_path) == 6
    assert total(tmp_path) == 6


def test_a_person_is_bounded_over_all_parts_of_a_file(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,who\n" + "5,ann\n15,bob\n5,ann\n,ann\n5,\n" * 30)
    with small_parts(part=50):
        found = count(path, TENS, columns="a", unit="who", max_contributions=3, progress=False).values
    assert found.tolist() == [3, 3, 0, 0, 0, 0, 0, 0, 0, 0]


def test_folders_named_by_a_key_are_columns(tmp_path):
    for name, rows in (("y=1", 3), ("y=a%20b", 2), ("y=__HIVE_DEFAULT_PARTITION__", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.csv").write_text("a,b\n" + "5,x\n" * rows)
        (tmp_path / name / "r.jsonl").write_text('{"a": 5}\n' * rows)
    years = Domain((Categories(("1", "a b"), null=True),))
    for ending in ("csv", "jsonl"):
        found = count(f"{tmp_path}/*/*.{ending}", years, columns="y", where="a = 5", progress=False)
        assert found.values.tolist() == [3, 2, 1]
    (tmp_path / "r.csv").write_text("a,b\n5,x\n")
    assert total(f"{tmp_path}/**/*.csv") == 7  # not all files have the key


FOLDERS = ("csv", "jsonl", "parquet")


def write_ward(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, r.values())) for r in rows), ""]))


WARDS = Domain((Categories(("A", "B", "C"), null=True),))


@pytest.mark.parametrize("ending", FOLDERS)
@pytest.mark.parametrize("times", [False, True])
def test_folders_above_the_named_path_say_nothing(tmp_path, ending, times):
    """Where somebody keeps the data is no column, and takes the place of none."""
    more = {"t": [dt.time(5)] * 3} if times and ending == "parquet" else {}
    kept = tmp_path / "ward=B" / "year=1"
    for name in ("ward=C", "ward=A"):
        write_ward(kept / name / f"x.{ending}", age=[5, 6, 7], **more)
    write_ward(kept.parent / f"x.{ending}", ward=["A", "A", "C"], age=[5, 6, 7], **more)
    own = [f"{kept.parent}/x.{ending}", f"{kept.parent}/*.{ending}"]
    for data in own:
        assert count(data, WARDS, columns="ward", progress=False).values.tolist() == [2, 0, 1, 0], data
    for data in (kept, f"{kept}/*/x.{ending}", f"{tmp_path}/ward=B/year=*/**/x.{ending}"):
        assert count(data, WARDS, columns="ward", progress=False).values.tolist() == [3, 0, 3, 0], data
    inside = f"{kept}/ward=C/x.{ending}"
    if ending == "jsonl":
        assert count(inside, WARDS, columns="ward", progress=False).values.tolist() == [0, 0, 0, 3]
        return
    for data in (inside, kept / "ward=C"):
        with pytest.raises(DataError, match="no column 'ward'"):
            count(data, WARDS, columns="ward", progress=False)
    with pytest.raises(DataError, match="no column 'year'"):
        count(kept, WARDS, columns="year", progress=False)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_folder_with_the_name_of_a_column_is_refused(tmp_path, ending, rows):
    """Whatever the records are, and before anything is charged."""
    write_ward(tmp_path / "WARD=A" / f"x.{ending}", ward=["B"] * rows, age=[5] * rows)
    ledger = Ledger.open(tmp_path.parent / f"{tmp_path.name}.db", create=True)
    with pytest.raises(DataError, match="name of a column, and of folders"):
        dphist.histogram(tmp_path, bins=2, range=(0, 10), epsilon=1, column="age", ledger=ledger, dataset="d")
    assert ledger.spent("d") == 0


# --- declared well-formed -----------------------------------------------------------------------------------


def test_newlines_inside_quotes_need_a_declaration(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b'"a",b\r\n5,"he\r\nsaid ""x"", 6\n"\n6,z\n' * 1 + b'7,"\n\n\n"\n' * 9)
    assert total(path, well_formed=True) == 11
    with small_parts():
        assert total(path, well_formed=True) == 11
    assert total(path) == 2 + 9  # each line is a record, and these begin with a number


def test_a_header_over_two_lines_needs_a_declaration(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('\n"age\nof all",a\n1,5\n2,5\n')
    assert total(path, well_formed=True) == 2


def test_a_release_says_what_was_declared(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('a,b\n5,"x\ny"\n')
    options = {"bins": 10, "range": (0, 100), "epsilon": 1, "column": "a", "ledger": dphist.MemoryLedger()}
    assert dphist.histogram(path, **options).provenance["well_formed"] is False
    assert dphist.histogram(path, **options, well_formed=True).provenance["well_formed"] is True


def test_what_is_no_text_file_cannot_be_declared_well_formed(tmp_path):
    with pytest.raises(UsageError, match="well_formed"):
        count([1.0], TENS, well_formed=True)
    path = tmp_path / "r.parquet"
    duckdb.sql("SELECT 5 AS a").write_parquet(str(path))
    with pytest.raises(UsageError, match="well_formed"):
        total(path, well_formed=True)
    with pytest.raises(UsageError, match="well_formed"):
        total(path, well_formed="yes")


# --- JSON ---------------------------------------------------------------------------------------------------

BROKEN = {
    "half a surrogate": b'{"a": 5, "b": "\\ud800"}',
    "half a surrogate, raw": b'{"a": 5, "b": "\xed\xa0\x80"}',
    "not UTF-8": b'{"a": 5, "b": "caf\xe9"}',
    "not UTF-8 in a name": b'{"a": 5, "\xff": 1}',
    "NUL": b'{"a": 5, "b": "\0"}',
    "null": b"null",
    "number": b"5",
    "text": b'"a"',
    "array": b"[5]",
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "huge number": b'{"a": 1e999999}',
    "long": b'{"a": 5, "b": "' + b"x" * 3_000_000 + b'"}',
}
CUT = {
    "unclosed": b'{"a": 5, "b": "x',
    "brace": b"{",
    "control": b'{"a": 5}\1{',
    "deep and unclosed": b'{"a": ' + b"[" * 100_000,
    "bracket": b"]}",
    "broken in two": b'{"a": 5,\n"b": "x"}',
    "broken in a text": b'{"a": 5, "b": "x}\n{y"}',
    "broken at a brace": b'{"b": {"a": 5}\n, "a": 5}',
    "parquet": b"PAR1",
    "gzip": b"\x1f\x8b",
    "zip": b"PK\3\4",
    "blank": b"",
}
NULLS = Domain((Categories(("5",), other=True, null=True),))


@pytest.mark.parametrize("broken", [*BROKEN.values(), *CUT.values()], ids=[*BROKEN, *CUT])
@pytest.mark.parametrize("at", [0, 1, 3], ids=["first", "second", "last"])
def test_a_broken_json_line_moves_no_other_and_counts_once_at_most(tmp_path, broken, at):
    clean = [b'{"a": 5, "b": "x"}'] * 3
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join([*clean[:at], broken, *clean[at:]]))
    found = count(path, NULLS, columns="a", progress=False).values
    assert found.sum() in (3, 4)
    assert found[0] >= 3


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("at", [0, 1, 3], ids=["first", "second", "last"])
def test_an_element_that_cannot_be_read_moves_no_other(tmp_path, broken, at):
    clean = [b'{"a": 5,\n "b": "x, [{\\"y\\\\"}'] * 3
    path = tmp_path / "r.json"
    path.write_bytes(b"[" + b",".join([*clean[:at], broken, *clean[at:]]) + b"]")
    found = count(path, NULLS, columns="a", well_formed=True, progress=False).values
    assert found.sum() in (3, 4)
    assert found[0] >= 3


@pytest.mark.parametrize("content", [b"", b"\n", b"null\n", b"5\n", b"\xef\xbb\xbf", b"   \r\n\n"])
def test_json_lines_without_a_record_are_no_error(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    assert count(path, NULLS, columns="a", progress=False).values.tolist() == [0, 0, 0]
    assert count(path, NULLS, columns="a", unit="who", progress=False).values.tolist() == [0, 0, 0]


def test_json_names_are_taken_exactly(tmp_path):
    """No name is another but for case: which of the two a record has would be the record's choice."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"Age": 15, "age": 25}\n{"age": 35}\n{"AGE": 45}\n')

    def bins(column: str, where: str | None = None) -> list[int]:
        tally = count(path, TENS, columns=column, where=where, progress=False).values
        return np.flatnonzero(tally).tolist()

    assert (bins("Age"), bins("age"), bins("AGE")) == ([1], [2, 3], [4])
    assert bins("age", "Age = 15") == bins("age", '"Age" < 20 AND age > 20') == [2]
    assert bins("Age", "age = 25 AND AGE IS NULL") == bins("Age + 0 * age") == [1]


def test_a_json_array_needs_a_declaration(tmp_path):
    path = tmp_path / "r.json"
    for content in (b"[]", b'[{"a": 5}]', b"null", b""):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="well_formed.*jsonl"):
            total(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('"\\[]{},:a\n é', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a"]', max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    records=st.lists(st.dictionaries(st.sampled_from(["a", "b", "]"]), VALUES, max_size=3), max_size=5),
    indent=st.sampled_from([None, 1]),
    block=st.integers(1, 9),
)
def test_elements_of_a_json_array_are_found_wherever_blocks_end(records, indent, block):
    from dphist.records import lines

    for text in (
        json.dumps(records, indent=indent, ensure_ascii=False).encode(),
        b"\n".join(json.dumps(r).encode() for r in records),
    ):
        blocks = (text[i : i + block] for i in range(0, len(text), block))
        found = b"".join(lines.whole_lines(lines.elements(blocks))).split(b"\n")
        assert [json.loads(line) for line in found if line.strip()] == records


FIELD = rb'(?:[^",\n]*|"(?:[^"\n]|"")*")'


def test_a_loop_never_reads_behind_the_last_line():
    from dphist.kernels.text import stray_quotes

    for text in (b"a", b'"a', b'a\n"b""', b'"'):
        with pytest.raises(ValueError, match="no newline"):
            stray_quotes(np.frombuffer(text, dtype=np.uint8), 0, ord(","))
    assert stray_quotes(np.frombuffer(b"", dtype=np.uint8), 0, ord(",")) == (-1, -1)


@given(st.lists(st.lists(st.sampled_from([b'"', b",", b"a"]), max_size=7).map(b"".join), max_size=6))
def test_lines_with_stray_quotes_are_all_found(made):
    from dphist.kernels.text import stray_quotes

    text = np.frombuffer(b"".join(line + b"\n" for line in made), dtype=np.uint8)
    found, end = [], 0
    begin, end = stray_quotes(text, 0, ord(","))
    while begin >= 0:
        found.append(text[begin : end - 1].tobytes())
        begin, end = stray_quotes(text, end, ord(","))
    assert found == [line for line in made if not re.fullmatch(FIELD + b"(?:," + FIELD + b")*", line)]


# --- names of files -----------------------------------------------------------------------------------------


def write(path: Path, n: int) -> None:
    """Write n records in the format that the name says."""
    ending = path.suffix
    if ending in (".csv", ".tsv"):
        path.write_text(("a,b\n" + "5,x\n" * n).replace(",", "\t" if ending == ".tsv" else ","))
    elif ending == ".jsonl":
        path.write_text('{"a": 5}\n' * n)
    elif ending == ".json":
        path.write_text(json.dumps([{"a": 5}] * n))
    elif ending == ".parquet":
        plain = path.parent.parent / "plain.parquet"  # DuckDB writes to the name as it stands
        duckdb.sql(f"SELECT 5 AS a FROM range({n})").write_parquet(str(plain))
        plain.rename(path)
    elif ending == ".duckdb":
        with duckdb.connect(str(path)) as made:
            made.execute(f"CREATE TABLE t AS SELECT 5 AS a FROM range({n})")
    else:
        with contextlib.closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE t (a INTEGER)")
            made.executemany("INSERT INTO t VALUES (5)", [()] * n)
            made.commit()


ODD_NAMES = [("x[1]", "x1"), ("x*", "xy"), ("x?", "xy"), ("x[!a]", "xb"), ("x]", "x")]


@pytest.mark.parametrize(
    ("ending", "name", "other"),
    [(ending, *names) for ending in ("csv", "parquet", "duckdb") for names in ODD_NAMES]
    + [(ending, *names) for ending in ("tsv", "json", "jsonl", "sqlite") for names in ODD_NAMES[:2]]
    + [later(ending, *names) for ending in ("tsv", "json", "jsonl", "sqlite") for names in ODD_NAMES[2:]],
)
def test_names_are_taken_literally(tmp_path, ending, name, other):
    options = {"well_formed": True} if ending == "json" else {}
    folder = tmp_path / "in[1]"
    (tmp_path / "in1").mkdir()
    folder.mkdir()
    write(folder / f"{name}.{ending}", 10)
    write(folder / f"{other}.{ending}", 99)
    write(tmp_path / "in1" / f"{other}.{ending}", 1000)
    one = options | ({"table": "t"} if ending in ("duckdb", "sqlite") else {})
    assert total(folder / f"{name}.{ending}", **one) == 10
    assert total(folder / f"{other}.{ending}", **one) == 99
    if "table" not in one:
        assert total(folder, **options) == 109
        assert total(f"{tmp_path}/in[[]1]/x*.{ending}", **options) == 109
        assert total(f"{tmp_path}/in[[]1]/x?.{ending}" if len(other) == 2 else folder, **options) >= 99
