"""Files of releases of many groups: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.hierarchy import make_hierarchy
from dphist.errors import OutputError, ReleaseFileError
from dphist.release import grouped_files
from dphist.release.files import load_one
from dphist.release.grouped import GroupedRelease, Level
from dphist.uncertainty.models import GroupTotals
from engine import database

TREE = {"North": ["H1", "H2"], "South": ["H3", "H4", "H5"]}
KINDS = {
    "levels": {"method": "hats", "post": "integer", "by": ("nation", "region", "hospital"), "groups": TREE},
    "moved": {
        "method": "dawa2",
        "post": "nonneg",
        "by": ("region", "hospital"),
        "groups": TREE,
        "other": "elsewhere",
        "importances": {"region": 100},
    },
    "flat": {"method": "identity", "post": "none", "by": "hospital", "groups": ["H3", "H1"]},
}


def publish(**options):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(0, 40, 3000), "hospital": rng.choice(["H1", "H3", "H4", "H7"], 3000)}
    )
    return dphist.histogram(frame, column="age", bins=Integers(0, 39), epsilon="0.5", **options)


@pytest.fixture(scope="module", params=KINDS)
def release(request):
    return publish(**KINDS[request.param])


@pytest.fixture(scope="module")
def moved():
    return publish(**KINDS["moved"])


@pytest.fixture(params=["whole", "by row"])
def reading(request, monkeypatch):
    """Small files are read whole; here also as large ones are, row by row."""
    if request.param == "by row":
        monkeypatch.setattr(grouped_files, "MOST_IN_JSON", 0)
    return request.param


def same(a: GroupedRelease, b: GroupedRelease) -> None:
    assert grouped_files.header(a) == grouped_files.header(b)
    assert a.hierarchy.to_dict() == b.hierarchy.to_dict()
    for at, name in enumerate(a.hierarchy.names):
        label = a.hierarchy.labels[at][-1]
        one, other = a[name, label], b[name, label]
        assert one == other and np.array_equal(one.values(), other.values())
        for ask in (lambda r: r.error.to_dict(), lambda r: r.groups.to_dict(), lambda r: r.sum(3, 20)):
            assert ask(one) == ask(other)
        assert np.array_equal(a.levels[at].factors, b.levels[at].factors)
        assert np.array_equal(a.raw(name), b.raw(name))
        assert np.array_equal(a.values(name), b.values(name))
        assert np.array_equal(a.intervals(of=name), b.intervals(of=name), equal_nan=True)
    assert a.sum(3, 20, groups=["H1", "H3"]) == b.sum(3, 20, groups=["H1", "H3"])
    assert a.total() == b.total()


class TestRoundTrip:
    def test_parquet(self, release, tmp_path, reading):
        path = release.save(tmp_path / "r.parquet")
        loaded = dphist.load(path)
        assert isinstance(loaded.levels[0], Level) == (reading == "whole")
        same(loaded, release)

    def test_json(self, release, tmp_path):
        same(dphist.load(release.save(tmp_path / "r.json")), release)

    def test_what_was_loaded_is_saved_to_the_last_byte(self, release, tmp_path, reading):
        path = release.save(tmp_path / "r.parquet")
        loaded = dphist.load(path)
        assert loaded.save(tmp_path / "again.parquet").read_bytes() == path.read_bytes()
        assert loaded.save(path) == path, "the same release may be saved again"

    def test_one_group(self, release, tmp_path):
        for name in ("one.json", "one.parquet"):
            path = release["H1"].save(tmp_path / name)
            one = load_one(path)
            assert one == release["H1"] and np.array_equal(one.values(), release["H1"].values())
            assert one.rebin(2).total() == release["H1"].rebin(2).total()
            assert pickle.loads(pickle.dumps(one)) == one

    @pytest.mark.parametrize("at_once", [1, 80, 200, 1 << 30])
    def test_a_file_in_many_blocks_is_the_one_in_few(self, tmp_path, monkeypatch, release, at_once):
        whole = release.save(tmp_path / "whole.parquet")
        monkeypatch.setattr(grouped_files, "_ROW_GROUP", at_once)  # values, of 40 bins
        same(dphist.load(release.save(tmp_path / "blocks.parquet")), dphist.load(whole))

    def test_several_row_groups(self, tmp_path, monkeypatch):
        made = many(14_000)
        monkeypatch.setattr(grouped_files, "_ROW_GROUP", 2048 * 20)
        path = made.save(tmp_path / "r.parquet")
        with duckdb.connect() as db:
            stored = db.execute("SELECT num_row_groups FROM parquet_file_metadata(?)", [str(path)]).fetchone()
        assert stored[0] == 7
        loaded = dphist.load(path)
        assert not isinstance(loaded.levels[0], Level)
        for label in ("G0", "G2047", "G2048", "G13999"):
            assert np.array_equal(loaded[label].raw, made[label].raw)
        assert loaded.sum(3, 9, groups=["G13999", "G7"]) == made.sum(3, 9, groups=["G13999", "G7"])
        assert loaded.total() == made.total()
        assert np.array_equal(pickle.loads(pickle.dumps(loaded))["G17"].raw, made["G17"].raw)

    @pytest.mark.filterwarnings("ignore:groups begin or end with spaces")
    def test_labels_of_all_kinds(self, tmp_path, reading):
        labels = ["a'b", 'q"q', "Ünï\u202ecode", "=1+1", "tab\there", " x", "NULL", "ΩΩ"]
        made = many(len(labels), labels=labels)
        loaded = dphist.load(made.save(tmp_path / "r.parquet"))
        assert loaded.hierarchy.leaves == tuple(labels)
        assert all(np.array_equal(loaded[label].raw, made[label].raw) for label in labels)

    def test_half_a_character_is_written_out(self, tmp_path):
        made = many(2, labels=["a\ud800", "b"])
        assert list(dphist.load(made.save(tmp_path / "r.parquet"))) == ["a\\ud800", "b"]

    def test_csv_is_a_long_table(self, moved, tmp_path):
        path = moved.save(tmp_path / "r.csv")
        table = pd.read_csv(path, comment="#", keep_default_na=False, na_values=[""])
        assert list(table) == ["level", "group", "parent", "lo", "hi", "value", "raw", "low", "high"]
        assert len(table) == sum(moved.hierarchy.sizes) * 40
        leaf = table[(table["level"] == "hospital") & (table["group"] == "H3")]
        assert np.array_equal(leaf["raw"], moved["H3"].raw) and set(leaf["parent"]) == {"South"}
        with pytest.raises(ReleaseFileError, match="table for other programs"):
            dphist.load(path)


def many(size: int, *, labels=None, seed: int = 1) -> GroupedRelease:
    rng = np.random.default_rng(seed)
    alone = Groups.singletons(20)
    leaves = Level(
        np.round(rng.normal(0, 9, (size, 20)) * 16) / 16,
        [GroupTotals(alone, 5.0)],
        [alone],
        np.ones(size),
    )
    return GroupedRelease(
        hierarchy=make_hierarchy("place", labels or [f"G{i}" for i in range(size)]),
        bins=Domain((Integers(0, 19),)),
        levels=(leaves,),
        shares=(Fraction(1),),
        post="none",
        epsilon=Fraction(1, 5),
        charges=(),
        unit="one record",
        sensitivity=1,
        method="identity",
        parameters={},
        provenance={},
        versions={},
        created="2026-01-01T00:00:00+00:00",
        simulated=False,
    )


class TestWithoutDphist:
    def test_sql_reads_a_group(self, release, tmp_path):
        path = release.save(tmp_path / "r.parquet")
        with duckdb.connect() as db:
            query = f"SELECT raw FROM '{path}' WHERE \"group\" = 'H3'"
            ((raw,),) = db.execute(query).fetchall()
            rows = db.execute(f"SELECT level, \"group\", parent FROM '{path}'").fetchall()
        assert raw == release["H3"].raw.tolist()
        tree = release.hierarchy
        assert [(at, label) for at, label, _ in rows] == [
            (at, label) for at, labels in enumerate(tree.labels) for label in labels
        ]
        assert [parent for at, _, parent in rows if at == 0] == [None] * tree.sizes[0]

    def test_presentable_values_are_whole_and_add_up(self, tmp_path):
        path = publish(**KINDS["levels"]).save(tmp_path / "r.parquet")
        with duckdb.connect() as db:
            query = f"SELECT level, sum(list_sum(\"values\")) FROM '{path}' GROUP BY 1"
            assert len({total for _, total in db.execute(query).fetchall()}) == 1
            types = {n: t for n, t, *_ in db.execute(f"DESCRIBE FROM '{path}'").fetchall()}
        assert types["values"] == "BIGINT[]" and types["raw"] == "DOUBLE[]" and types["level"] == "TINYINT"

    def test_the_header_does_not_grow_with_the_groups(self, tmp_path):
        few, more = (len(grouped_files.files.written(grouped_files.header(many(n)))) for n in (10, 90_000))
        assert more - few == len("90000") - len("10")


class TestSaving:
    def test_another_release_is_left_alone(self, tmp_path):
        for ending in ("json", "parquet", "csv"):
            path = many(3).save(tmp_path / f"r.{ending}")
            before = path.read_bytes()
            with pytest.raises(OutputError, match="not replaced"):
                many(3, seed=2).save(path)
            assert path.read_bytes() == before
            many(3, seed=2).save(path, overwrite=True)
            assert path.read_bytes() != before and len(list(tmp_path.glob(f"*{ending}*"))) == 1

    def test_a_name_without_a_format(self, tmp_path):
        with pytest.raises(OutputError, match="names a format"):
            many(3).save(tmp_path / "r.txt")

    def test_json_takes_few_values(self, tmp_path):
        largest = grouped_files.MOST_IN_JSON // 20
        many(largest).save(tmp_path / "most.json")
        with pytest.raises(OutputError, match=r"too many for \.json.*\.parquet"):
            many(largest + 1).save(tmp_path / "r.json")
        assert not (tmp_path / "r.json").exists()

    def test_fresh_names(self, tmp_path):
        from dphist.release import save_fresh

        names = [save_fresh(many(3, seed=s), tmp_path / "r.parquet").name for s in (1, 2)]
        assert names == ["r.parquet", "r-2.parquet"]

    def test_a_full_disk_leaves_nothing(self, tmp_path, monkeypatch):
        def fails(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(grouped_files, "_write_parquet", fails)
        with pytest.raises(OutputError, match="disk is full"):
            many(3).save(tmp_path / "r.parquet")
        assert list(tmp_path.iterdir()) == []


class TestALargeFile:
    """Rows are read when they are asked for, from the file that was opened and no other."""

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch):
        monkeypatch.setattr(grouped_files, "MOST_IN_JSON", 0)

    def test_opening_reads_no_values(self, moved, tmp_path, monkeypatch):
        path = moved.save(tmp_path / "r.parquet")
        asked = []
        run = grouped_files._Stored._run
        monkeypatch.setattr(
            grouped_files._Stored, "_run", lambda self, db, q, p: asked.append(q) or run(self, db, q, p)
        )
        loaded = dphist.load(path)
        assert not any("raw" in query for query in asked)
        asked.clear()
        loaded["H3"]
        assert sum("raw" in query for query in asked) == 1 and all("IN (?)" in q for q in asked if "raw" in q)

    def test_a_file_that_was_replaced(self, tmp_path):
        path = many(3).save(tmp_path / "r.parquet")
        loaded = dphist.load(path)
        many(3, seed=2).save(path, overwrite=True)
        with pytest.raises(ReleaseFileError, match="has changed since"):
            loaded["G1"]
        path.unlink()
        with pytest.raises(ReleaseFileError, match="no longer there"):
            loaded["G1"]

    @pytest.mark.parametrize("together", [1, 100, 1 << 20])
    def test_totals_and_copies_take_the_memory_of_a_block(self, tmp_path, monkeypatch, together):
        made = many(50)
        monkeypatch.setattr("dphist.release.grouped._TOGETHER", together)
        monkeypatch.setattr(grouped_files, "_ROW_GROUP", 100)
        path = made.save(tmp_path / "r.parquet")
        loaded = dphist.load(path)
        for release in (made, loaded):
            assert np.array_equal(release.totals(), made.values().sum(axis=1))
        assert loaded.save(tmp_path / "again.parquet").read_bytes() == path.read_bytes()
        assert "values" not in loaded.levels[0].__dict__, "nor was all of it read at once"

    def test_a_level_is_read_at_once(self, moved, tmp_path):
        loaded = dphist.load(moved.save(tmp_path / "r.parquet"))
        made, original = loaded.level("hospital"), moved.level("hospital")
        assert made.keys() == original.keys()
        assert all(made[label] == original[label] for label in made)
        assert "values" in loaded.levels[1].__dict__


# ---- damaged and hostile ----------------------------------------------------------------------------


def rewrite(path: Path, *, head=None, columns: str = "*", rows: str = "", to: Path | None = None) -> Path:
    """Write a Parquet file anew with other columns, rows or another header."""
    target = to or path.with_name("hostile.parquet")
    (text,) = (
        database()
        .execute("SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = 'dphist'", [str(path)])
        .fetchone()
    )
    document = json.loads(text)
    if head is not None:
        head(document)
    database().execute(
        f"COPY (SELECT {columns} FROM read_parquet(?, file_row_number = true) {rows}) TO ? "
        "(FORMAT parquet, KV_METADATA {dphist: ?})",
        [str(path), str(target), json.dumps(document)],
    )
    return target


PLAIN = "* EXCLUDE (file_row_number)"


def touch(loaded: GroupedRelease) -> None:
    """Ask for all that a release has."""
    for name in loaded.hierarchy.names:
        for one in loaded.level(name).values():
            one.total()
        loaded.values(name)


@pytest.mark.parametrize(
    "columns",
    [
        "* EXCLUDE (file_row_number, raw)",
        "* EXCLUDE (file_row_number, factor)",
        '* EXCLUDE (file_row_number, "group")',
        "* EXCLUDE (file_row_number, parent)",
        "* EXCLUDE (file_row_number, level)",
        '* EXCLUDE (file_row_number, "values")',
        "* EXCLUDE (file_row_number, error)",
        "* EXCLUDE (file_row_number, partition)",
        f"{PLAIN} REPLACE (raw[:39] AS raw)",
        f"{PLAIN} REPLACE (list_append(raw, 1.0) AS raw)",
        # as many values in all, in lists of other lengths
        f"{PLAIN} REPLACE (CASE file_row_number WHEN 4 THEN raw[:39] WHEN 5 THEN list_append(raw, 1.0) "
        "ELSE raw END AS raw)",
        f"{PLAIN} REPLACE (list_transform(raw, lambda x: 'nan'::DOUBLE) AS raw)",
        f"{PLAIN} REPLACE (list_transform(raw, lambda x: CASE WHEN x > 0 THEN NULL ELSE x END) AS raw)",
        f"{PLAIN} REPLACE (list_transform(raw, lambda x: x::VARCHAR) AS raw)",
        f"{PLAIN} REPLACE (raw[1] AS raw)",
        f"{PLAIN} REPLACE ('x' AS factor)",
        f"{PLAIN} REPLACE (0.0::DOUBLE AS factor)",
        f"{PLAIN} REPLACE ('inf'::DOUBLE AS factor)",
        f"{PLAIN} REPLACE (NULL::DOUBLE AS factor)",
        f'{PLAIN} REPLACE (NULL::VARCHAR AS "group")',
        f"{PLAIN} REPLACE ('H1' AS \"group\")",
        f"{PLAIN} REPLACE (' ' AS \"group\")",
        f"{PLAIN} REPLACE ('Atlantis' AS parent)",
        f"{PLAIN} REPLACE (CASE WHEN level = 1 THEN 'South' END AS parent)",
        f"{PLAIN} REPLACE ((1 - level)::TINYINT AS level)",
        f"{PLAIN} REPLACE (level::VARCHAR AS level)",
        f'{PLAIN} REPLACE (list_transform("values", lambda x: -x - 1) AS "values")',
        f'{PLAIN} REPLACE (list_transform("values", lambda x: \'inf\'::DOUBLE) AS "values")',
        f'{PLAIN} REPLACE ("values"[:39] AS "values")',
        f"{PLAIN} REPLACE ('{{' AS error)",
        f"{PLAIN} REPLACE ('[]' AS error)",
        f"{PLAIN} REPLACE (NULL::VARCHAR AS error)",
        f'{PLAIN} REPLACE (\'{{"kind": "wishful"}}\' AS error)',
        f"{PLAIN} REPLACE (replace(error, '\"n\":40', '\"n\":4000000000') AS error)",
        f"{PLAIN} REPLACE (repeat(error, 10000) AS error)",
        f"{PLAIN} REPLACE (regexp_replace(error, '\"moved\":.*]', '\"moved\":[1.0]') AS error)",
        f'{PLAIN} REPLACE (\'{{"kind": "singletons", "n": 41}}\' AS partition)',
        f'{PLAIN} REPLACE (\'{{"kind": "heap"}}\' AS partition)',
    ],
)
def test_other_columns_are_refused(moved, tmp_path, columns, reading):
    path = rewrite(moved.save(tmp_path / "r.parquet"), columns=columns)
    with pytest.raises(ReleaseFileError, match="damaged"):
        touch(dphist.load(path))


@pytest.mark.parametrize("rows", ["LIMIT 3", "WHERE level = 1", "LIMIT 0"])
def test_other_rows_are_refused(moved, tmp_path, rows, reading):
    path = rewrite(moved.save(tmp_path / "r.parquet"), columns=PLAIN, rows=rows)
    with pytest.raises(ReleaseFileError, match="damaged"):
        dphist.load(path)


def test_the_planted_damage_is_all_there_is(moved, tmp_path, reading):
    path = rewrite(moved.save(tmp_path / "r.parquet"), columns=PLAIN)
    same(dphist.load(path), moved)


def change(place: str, value: object):
    def edit(document) -> None:
        *above, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
        inner = document
        for key in above:
            inner = inner[key]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value

    return edit


HEADERS = [
    ("by", ...),
    ("by", 3),
    ("by.names", ...),
    ("by.names", ["region"]),
    ("by.names", ["region", "region"]),
    ("by.names", [1, 2]),
    ("by.names", ["a", "b", "c", "d", "e", "f", "g"]),
    ("by.sizes", [3, 10**12]),
    ("by.sizes", [3.0, 6.0]),
    ("by.sizes", [True, 6]),
    ("by.sizes", [0, 9]),
    ("by.sizes", [6, 3]),
    ("by.sizes", [3]),
    ("by.other", "yes"),
    ("by.shares", ["1/2"]),
    ("by.shares", ["1e9", "1"]),
    ("by.variances", [1, 1, 1]),
    ("by.variances", [-1.0]),
    ("by.variances", ["x"]),
    ("error", ...),
    ("error", [None]),
    ("error.0", {"kind": "wishful"}),
    ("error.0", {"kind": "hat totals", "n": 10**12, "queries": 3, "scale": 1.0}),
    ("groups", ...),
    ("groups.0", {"kind": "singletons", "n": 10**12}),
    ("domain", ...),
    ("domain.axes.0.high", 40),
    ("epsilon", "1/0"),
    ("epsilon", "1/1000"),  # less than the charges
    ("post", "upwards"),
    ("post", "integer"),  # and the values are not whole
    ("simulated", "no"),
    ("id", "x"),
    ("created", None),
    ("parameters", []),
    ("version", 0),
    ("version", True),
]


@pytest.mark.parametrize(("place", "value"), HEADERS)
def test_other_headers_are_refused(moved, tmp_path, place, value, reading):
    path = rewrite(moved.save(tmp_path / "r.parquet"), head=change(place, value), columns=PLAIN)
    with pytest.raises(ReleaseFileError, match="damaged"):
        touch(dphist.load(path))


@pytest.fixture(scope="module")
def document(moved):
    return json.loads(grouped_files.files.written(grouped_files.document(moved)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *HEADERS,
        ("rows", ...),
        ("rows", {}),
        ("rows", []),
        ("rows.0", None),
        ("rows.0.raw", ...),
        ("rows.0.raw", [1.0] * 41),
        ("rows.0.raw", "x"),
        ("rows.0.raw.0", True),
        ("rows.0.raw.0", "1"),
        ("rows.0.raw.0", 10**400),
        ("rows.0.factor", 0),
        ("rows.0.factor", "1"),
        ("rows.0.values.0", 0.25),
        ("rows.0.values", ...),
        ("rows.4.error", ...),
        ("rows.4.partition", ...),
        ("rows.4.error", {"kind": "wishful"}),
        ("rows.4.error.factor", -1),
        ("rows.4.error.moved", [float("1e308")] * 40 + [1.0]),
        ("rows.4.group", 7),
        ("rows.4.group", "H1"),
        ("rows.4.parent", "H1"),
        ("rows.4.level", 0),
    ],
)
def test_json_is_read_with_the_same_suspicion(document, tmp_path, place, value):
    changed = copy.deepcopy(document)
    change(place, value)(changed)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ReleaseFileError, match="damaged"):
        touch(dphist.load(path))


def test_a_later_version(document, moved, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(document | {"version": 99}), encoding="utf-8")
    later = rewrite(moved.save(tmp_path / "r.parquet"), head=change("version", 99), columns=PLAIN)
    for path in (tmp_path / "r.json", later):
        with pytest.raises(ReleaseFileError, match="later dphist"):
            dphist.load(path)


def test_unknown_fields_are_ignored(document, tmp_path, moved):
    (tmp_path / "r.json").write_text(json.dumps(document | {"moon": "full"}), encoding="utf-8")
    same(dphist.load(tmp_path / "r.json"), moved)


def test_a_small_file_that_stands_for_a_large_one(moved, tmp_path, reading):
    """A kilobyte may stand for billions of equal values; their number is compared before any is read."""
    columns = f"{PLAIN} REPLACE (list_transform(range(100000), lambda x: 1.0::DOUBLE) AS raw)"
    path = rewrite(moved.save(tmp_path / "r.parquet"), columns=columns)
    with pytest.raises(ReleaseFileError, match="40 values in each"):
        dphist.load(path)


def test_labels_as_long_as_memory(moved, tmp_path, monkeypatch, reading):
    path = moved.save(tmp_path / "r.parquet")
    monkeypatch.setattr(grouped_files, "_MOST_TEXT", 20)
    with pytest.raises(ReleaseFileError, match="labels are longer"):
        dphist.load(path)


def test_cut_short(moved, tmp_path):
    path = moved.save(tmp_path / "r.parquet")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ReleaseFileError, match="damaged"):
        dphist.load(path)


class TestOneHistogramOrMany:
    def test_where_one_is_needed_many_are_refused(self, moved, tmp_path, document):
        path = moved.save(tmp_path / "r.parquet")
        with pytest.raises(ReleaseFileError, match=r"each of 6 groups.*save one of them"):
            load_one(path)
        with pytest.raises(ReleaseFileError, match="about many groups"):
            dphist.Release.from_dict(document)

    def test_values_that_do_not_follow_need_a_group(self, moved):
        described = moved["H3"].to_dict()
        described["values"] = [value + 1 for value in described["values"]]
        other = dphist.Release.from_dict(described)
        assert other.values()[0] == described["values"][0] and other != moved["H3"]
        del described["parameters"]["group"]
        with pytest.raises(ReleaseFileError, match="do not follow"):
            dphist.Release.from_dict(described)

    @pytest.mark.parametrize("wrong", [-1.0, 1e400, "x"])
    def test_values_of_a_group_must_be_possible(self, moved, wrong):
        described = moved["H3"].to_dict()
        described["values"][0] = wrong
        with pytest.raises(ReleaseFileError, match="damaged"):
            dphist.Release.from_dict(described)

    def test_whole_values_stay_whole(self):
        described = publish(**KINDS["levels"])["H3"].to_dict()
        described["values"][0] = 0.5
        with pytest.raises(ReleaseFileError, match="whole"):
            dphist.Release.from_dict(described)
