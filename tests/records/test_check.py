"""What becomes of every record is told to the steward, exactly, and to nobody else."""

import copy
import json
import math
import pickle
import sqlite3
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dphist as package
from dphist.domain import Categories, Domain, Instants, Integers, Regular
from dphist.errors import DataError, PrivacyError, UsageError
from dphist.records import count, lines
from dphist.records.check import BANNER, check
from dphist.records.lines import line_count
from shell import dphist

LEFT_OUT = ("filtered", "undecodable", "missing", "unreadable", "unknown", "outside")
LEFT_OUT += ("without_unit", "undecodable_unit", "bounded")
AGES = Domain((Regular(lo=0, hi=120, bins=12),))
KINDS = Domain((Categories(("red", "green")),))


def left_out(found):
    return {name: getattr(found, name) for name in LEFT_OUT if getattr(found, name)}


def agrees(data, domain, **options):
    """Check and count; every record has one fate, and what is counted is what a count has."""
    found = check(data, domain, **options)
    assert found.counted == count(data, domain, **options).values.sum()
    assert found.read == found.counted + sum(left_out(found).values())
    assert sum(many for _, many in found.rows()[1:]) == found.read
    return found


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


# --- zeros are told -----------------------------------------------------------------------------------------


def test_decimal_commas_are_told(tmp_path):
    rows = "".join(f'"{i % 90},5",x\n' for i in range(98)) + "7,x\n8,x\n"
    found = agrees(written(tmp_path / "a.csv", "age,kind\n" + rows), AGES, columns="age")
    assert (found.read, found.counted, found.unreadable) == (100, 2, 98)
    assert any("98% have a comma in 'age'" in hint for hint in found.hints)


def test_a_text_column_in_numeric_bins_is_told(tmp_path):
    path = written(tmp_path / "a.csv", "age,kind\n" + "5,red\n" * 20)
    found = agrees(path, AGES, columns="kind")
    assert left_out(found) == {"unreadable": 20}
    assert "100% have no number in 'kind'" in repr(found)


def test_a_label_typed_wrong_is_told(tmp_path):
    path = written(tmp_path / "a.csv", "kind\n" + "Red \n" * 19 + "blue\n")
    found = agrees(path, KINDS, columns="kind")
    assert left_out(found) == {"unknown": 20}
    assert "95% have in 'kind' a declared label but for case or spaces" in repr(found)
    assert agrees(path, Domain((Categories(("Rde", "grene")),)), columns="kind").unknown == 20
    assert left_out(agrees(path, Domain((Categories(("red",), other=True),)), columns="kind")) == {}


def test_a_wrong_range_a_wrong_filter_and_a_missing_person_are_told(tmp_path):
    path = written(tmp_path / "a.csv", "age,who\n" + "1980,\n" * 10 + "30,p\n" * 10)
    assert left_out(agrees(path, AGES, columns="age")) == {"outside": 10}
    assert "50% lie outside the range of 'age'" in repr(check(path, AGES, columns="age"))
    nobody = agrees(path, AGES, columns="age", where="who = 'P'")
    assert left_out(nobody) == {"filtered": 20}
    assert "no record meets the condition" in repr(nobody)
    people = agrees(path, Domain((Integers(0, 3000),)), columns="age", unit="who", max_contributions=3)
    assert left_out(people) == {"without_unit": 10, "bounded": 7}
    assert "50% have no who" in repr(people)


def test_an_empty_file_is_told(tmp_path):
    found = agrees(written(tmp_path / "a.csv", "age\n"), AGES, columns="age")
    assert (found.read, found.counted) == (0, 0)
    assert "no record was read" in repr(found)


def test_what_cannot_be_counted_is_refused_as_in_a_count(tmp_path):
    path = written(tmp_path / "a.csv", "age\n1\n")
    for wrong, options in (
        (DataError, {"columns": "agee"}),
        (UsageError, {"columns": ()}),
        (UsageError, {"columns": "age", "max_contributions": 2}),
        (UsageError, {"columns": "age", "outside": "wrap"}),
    ):
        with pytest.raises(wrong) as counting:
            count(path, AGES, **options)
        with pytest.raises(wrong) as checking:
            check(path, AGES, **options)
        assert str(checking.value) == str(counting.value)
    with pytest.raises(UsageError, match="table with named columns"):
        check([1.0], AGES, columns="age")


# --- every engine and format --------------------------------------------------------------------------------

CELLS = {
    "age": ["1", "2,5", "x", None, "500", "30", "40", "50", "60"],
    "kind": ["red", "RED", "red", "green", "blue", None, "red", "red", "green"],
    "who": ["p", "p", "p", "q", "q", "q", "p", "p", None],
}


def untyped_sources(folder):
    lines = [dict(zip(CELLS, row, strict=True)) for row in zip(*CELLS.values(), strict=True)]
    for ending, mark in ((".csv", ","), (".tsv", "\t")):
        rows = [mark.join("" if c is None else f'"{c}"' for c in line.values()) for line in lines]
        yield written(folder / f"a{ending}", "\n".join([mark.join(CELLS), *rows, ""])), {}
    yield written(folder / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines)), {}
    yield written(folder / "a.json", json.dumps(lines)), {"well_formed": True}
    with sqlite3.connect(folder / "a.sqlite") as database:
        database.execute("CREATE TABLE t (age, kind, who)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", list(zip(*CELLS.values(), strict=True)))
    database.close()
    yield folder / "a.sqlite", {"table": "t"}
    yield pd.DataFrame(CELLS, dtype=object), {}


def test_every_source_without_types_tells_the_same(tmp_path):
    for data, options in untyped_sources(tmp_path):
        ages = agrees(data, AGES, columns="age", **options)
        assert left_out(ages) == {"missing": 1, "unreadable": 2, "outside": 1}, data
        kinds = agrees(data, KINDS, columns="kind", unit="who", **options)
        assert left_out(kinds) == {"missing": 1, "unknown": 2, "without_unit": 1, "bounded": 3}, data
        both = agrees(
            data, Domain((*AGES.axes, *KINDS.axes)), columns=("age", "kind"), where="who = 'p'", **options
        )
        assert left_out(both) == {"filtered": 4, "unreadable": 2}, data


def test_people_are_told_over_all_parts_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("dphist.records.lines.BLOCK", 7)
    monkeypatch.setattr("dphist.records.engines.untyped._PART", 20)
    path = written(tmp_path / "a.csv", "age,who\n" + "5,p\n6,q\n" * 20)
    found = agrees(path, AGES, columns="age", unit="who", max_contributions=3)
    assert left_out(found) == {"bounded": 34}


def test_every_source_with_types_tells_the_same(tmp_path):
    table = pa.table({"age": [1.0, None, math.nan, 500.0, 7.0, 8.0], "who": ["p"] * 6})
    pq.write_table(table, tmp_path / "a.parquet")
    with duckdb.connect(tmp_path / "a.duckdb") as database:
        database.register("rows", table)
        database.execute("CREATE TABLE t AS SELECT * FROM rows")
    for data, options in (
        (table, {}),
        (tmp_path / "a.parquet", {}),
        (tmp_path / "a.duckdb", {"table": "t"}),
        (pl.from_arrow(table), {}),
        (table.to_pandas(), {}),
    ):
        found = agrees(data, AGES, columns="age", unit="who", max_contributions=2, **options)
        assert left_out(found) == {"missing": 2, "outside": 1, "bounded": 1}, data


def test_bare_arrays_tell_the_same():
    found = agrees([1, 2.5, None, math.nan, "x", "2,5", "7", 500, ""], AGES)
    assert left_out(found) == {"missing": 3, "unreadable": 2, "outside": 1}
    masked = np.ma.masked_array([1.0, 2.0, 300.0], mask=[True, False, False])
    assert left_out(agrees(masked, AGES)) == {"missing": 1, "outside": 1}
    assert left_out(agrees(["red", "Red", "b", None, "\ufffd"], KINDS)) == {
        "missing": 1,
        "unknown": 2,
        "undecodable": 1,
    }
    days = Domain((Instants("2024-01-01", "2024-02-01", freq="1d"),))
    times = ["2024-01-05", "2023-01-05", "soon", None, np.datetime64("NaT"), np.datetime64("2024-01-31")]
    assert left_out(agrees(times, days)) == {"missing": 2, "unreadable": 1, "outside": 1}
    grid = Domain((*AGES.axes, *KINDS.axes))
    assert left_out(agrees(([1, 500, 3], ["x", "red", "red"]), grid)) == {"unknown": 1, "outside": 1}


CELL = st.one_of(
    st.integers(-50, 200).map(str),
    st.floats(-10, 130, width=32).map(str),
    st.sampled_from(
        ["", " ", "nan", "inf", "-inf", "1,5", '"1,5"', '""', "NULL", "red", "Red", "é", "1e400", "1 2"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters='"\r\n,;'), max_size=4),
)
LINES = st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=30)


@settings(max_examples=12)
@given(LINES, st.sampled_from(["drop", "clip"]), st.integers(1, 3))
def test_on_any_dirty_file_every_record_has_one_fate(tmp_path_factory, lines, outside, k):
    path = tmp_path_factory.mktemp("dirty") / "a.csv"
    written(path, "".join(f"{line}\n" for line in ["age,kind,who", *map(",".join, lines)]))
    ages = agrees(path, AGES, columns="age", outside=outside, unit="who", max_contributions=k)
    grid = agrees(path, Domain((*AGES.axes, *KINDS.axes)), columns=("age", "kind"), where="who <> 'red'")
    assert ages.read == grid.read


def test_a_person_in_several_parts_of_a_file_is_one_person(tmp_path, monkeypatch):
    monkeypatch.setattr("dphist.records.engines.untyped._PART", 60)
    monkeypatch.setattr("dphist.records.lines.BLOCK", 30)
    path = written(tmp_path / "a.csv", "age,who\n" + "".join(f"{i % 50},p{i % 3}\n" for i in range(90)))
    found = agrees(path, AGES, columns="age", unit="who", max_contributions=4)
    assert (found.read, found.counted, found.bounded) == (90, 12, 78)
    assert agrees(path, AGES, columns="age").read == 90


# --- nobody else is told ------------------------------------------------------------------------------------


def test_a_check_is_shown_and_never_saved():
    plan = package.Plan(bins=12, range=(0, 120), epsilon=1)
    found = plan.check([1, 2, 500])
    assert repr(found).startswith(BANNER)
    assert str(found).startswith(BANNER)
    for save in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="not private"):
            save(found)
    for save in (json.dumps, dict, list):
        with pytest.raises(TypeError):
            save(found)
    release = plan.release([1, 2, 500])
    with pytest.raises(UsageError, match="only JSON values") as refused:
        replace(release, provenance={"check": found})
    assert "records read" not in str(refused.value)


def test_a_plan_checks_what_it_would_count(tmp_path):
    path = written(tmp_path / "a.csv", "age,who\n" + "5,p\n" * 10 + "x,p\n" * 4 + "7,q\n")
    plan = package.Plan(
        bins=12, range=(0, 120), epsilon=1, column="age", unit="who", max_contributions=3, where="age < 7"
    )
    found = plan.check(path)
    assert (found.counted, found.filtered, found.bounded) == (3, 5, 7)
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


FLAGS = ("people.csv", "--column", "age", "--bins", "10", "--range", "0", "50")


def test_the_command_tells_and_writes_nothing(here):
    before = {p.name: p.read_bytes() for p in here.iterdir()}
    run = dphist("check", *FLAGS, "--unit", "person", "--max-contributions", "7")
    assert {p.name: p.read_bytes() for p in here.iterdir()} == before
    assert run.stdout.startswith(BANNER)
    told = dict(line.strip().rsplit("  ", 1) for line in run.stdout.splitlines() if line.startswith("  "))
    told = {words.strip(): int(many.replace(",", "")) for words, many in told.items()}
    assert told == {
        "records read": 1000,
        "would be counted": 70,
        "age: undecodable": 0,
        "age: missing": 0,
        "age: not a number": 0,
        "age: outside the range": 490,
        "without a person": 0,
        "person: undecodable": 0,
        "beyond the bound on one person": 440,
    }
    assert run.stderr == ""
    dphist("check", "people.csv", "--column", "kind", "--categories", "a,c")
    dphist("check", *FLAGS, "--y-column", "age", "--y-bins", "2", "--y-range", "0", "9")
    dphist(
        "check",
        "people.csv",
        "--column",
        "age",
        "--bins",
        "0,5,9",
        "--outside",
        "clip",
        "--where",
        "age > 3",
    )
    assert "--epsilon" not in dphist("check", "--help").stdout
    dphist("check", "nothing.csv", *FLAGS[1:], code=4)
    dphist("check", "people.csv", "--column", "age", code=2)


def test_publish_says_none_of_it(here):
    (here / "people.csv").write_text("age,kind\n" + "x,Red\n" * 500 + "1980,red\n" * 300 + '"1,5",\n' * 200)
    secret = [
        words for words, _ in check(here / "people.csv", AGES, columns="age", where="kind <> 'z'").rows()
    ]
    secret += [hint[4:40] for hint in check(here / "people.csv", AGES, columns="age").hints]
    secret += [BANNER, "NOT PRIVATE", "hint:", "undecodable", "not a number", "dphist check"]
    for more in ((), ("--json",), ("--dry-run",)):
        run = dphist("publish", *FLAGS, "--epsilon", "1", *more)
        said = run.stdout + run.stderr + "".join(p.read_text("utf-8") for p in here.glob("*.json"))
        assert [words for words in secret if words in said] == []


def test_lines_that_are_no_record_are_told(tmp_path):
    long = b"x" * 1_000_001
    path = tmp_path / "r.csv"
    path.write_bytes(b"age,b\n5,x\n\n" + b"6," + long + b"\n\r\n7,y\n8," + long)
    found = check(path, AGES, columns="age")
    assert (found.read, found.counted, found.lines_left_out) == (2, 2, 2)
    assert "lines that are not records" in repr(found) and any("longer than" in hint for hint in found.hints)
    path.write_bytes(b"age\n5\n\n\n6\n")  # of one column, an empty line is a record
    found = check(path, AGES, columns="age")
    assert (found.read, found.missing, found.lines_left_out) == (4, 2, 0)
    assert "not records" not in repr(found)
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"age": 5}\n[1]\n\nnull\n{"age": \n6}\n {"age": 7}\n{"age": "' + long + b'"}\n')
    found = check(path, AGES, columns="age")
    assert (found.read, found.counted, found.lines_left_out) == (2, 2, 5)
    path.write_bytes(b"5\n" * 3)
    found = check(path, AGES, columns="age")
    assert (found.read, found.lines_left_out) == (0, 3) and len(found.hints) == 2


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 18])
def test_lines_are_counted_wherever_blocks_end(block):
    text = b"a\n\r\n\nbb\n\rc\n\n \r\n" + b"d" * 50
    for end in range(len(text) + 1):
        whole = text[:end]
        parts = [whole[i : i + block] for i in range(0, end, block)]
        lines = whole.split(b"\n")
        lines = lines if lines[-1] else lines[:-1]
        assert line_count(parts, True) == sum(line not in (b"", b"\r") for line in lines)


def test_newlines_inside_quotes_and_repeated_names_get_a_hint(tmp_path):
    text = "age;who;Age;note\n" + '1;x;2;"one\ntwo"\n' * 3 + '5;"y ""z""";6;\n'
    (tmp_path / "r.csv").write_text(text)
    found = check(tmp_path / "r.csv", Domain((Integers(0, 9),)), columns="age", unit="who")
    quotes, names, *_ = found.hints
    assert quotes.startswith("6 lines have a quote") and "--well-formed" in quotes
    assert "names 'age' more than once" in names and "the next is called 'age_1' here" in names
    assert count(tmp_path / "r.csv", Domain((Integers(6, 6),)), columns="age_1").values.tolist() == [1]
    told = check(tmp_path / "r.csv", Domain((Integers(0, 9),)), columns="who", unit="note", well_formed=True)
    assert not any("quote" in hint or "more than once" in hint for hint in told.hints)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_open_quotes_are_those_of_each_line_however_the_file_is_cut(size):
    text = b'a"b\n""\n\n"\n"x""\nplain\n"last'
    blocks = [text[i : i + size] for i in range(0, len(text), size)]
    assert lines.open_quotes(blocks) == sum(line.count(b'"') % 2 for line in text.split(b"\n")) == 4


def test_a_file_that_ends_in_the_middle_of_a_line_gets_a_hint(tmp_path):
    def told(name, content, **more):
        (tmp_path / name).write_bytes(content)
        found = check(tmp_path / name, Domain((Integers(0, 99),)), columns="age", **more)
        return any("without a newline" in hint for hint in found.hints)

    assert told("cut.csv", b"age\n12\n34\n5") and not told("whole.csv", b"age\n12\n34\n56\n")
    assert told("cut.jsonl", b'{"age": 1}\n{"age": 2') and not told("whole.jsonl", b'{"age": 1}\n')
    assert not told("array.json", b'[{"age": 1}]', well_formed=True)
    wide = {"encoding": "utf-16-le", "well_formed": True}
    assert not told("wide.csv", "age\n12\n".encode("utf-16-le"), **wide)
    assert told("cut-wide.csv", "age\n12\n3".encode("utf-16-le"), **wide)
    # The last line is a record like any other: a count neither refuses it nor leaves it out.
    assert count(tmp_path / "cut.csv", Domain((Integers(5, 5),)), columns="age").values.tolist() == [1]
