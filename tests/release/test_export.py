"""Exported tables: what they say, what lies beside them, the way back to the release, and nothing lost."""

import csv
import errno
import json
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import dphist
from dphist.errors import OutputError, ReleaseFileError, UsageError
from dphist.release import export, files, words, xlsx
from shell import dphist as run

SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
HOSTILE = [
    "<script>alert(1)</script>",
    '=HYPERLINK("x")',
    "-2+3",
    "a,b",
    'say "x"',
    "_x0041_",
    "tab\there\x1b",
]
KINDS = (".csv", ".xlsx", ".parquet")


def line(post="none", method="identity", **more):
    given = {"bins": [0, 10, 20, 30, 40], "epsilon": 1, "post": post, "method": method} | more
    return dphist.from_counts([30, 20, 50, 0], **given)


def labelled(post="integer"):
    return dphist.from_counts(range(10, 10 + len(HOSTILE)), bins=HOSTILE, epsilon=1, post=post)


def grid():
    return dphist.from_counts([[5, 6], [7, 8]], bins=([0, 1, 2], ["x", "y"]), epsilon=1)


def grouped(tmp_path, *, post="integer", bins=6):
    file = tmp_path / "visits.csv"
    file.write_text("age,ward\n" + "".join(f"{i % 60},{'ABC'[i % 3]}\n" for i in range(900)), "utf-8")
    return dphist.histogram(
        file,
        column="age",
        bins=bins,
        range=(0, 60),
        by=("wing", "ward"),
        groups={"west": ["A", "B"], "east": ["C"]},
        epsilon=1,
        post=post,
        ledger=dphist.MemoryLedger(),
    )


def rows_of(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sheets_of(path):
    """Return the cells of every sheet of a workbook, read as XML."""
    with zipfile.ZipFile(path) as book:
        assert book.testzip() is None
        names = [
            s.get("name") for s in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{SHEET}sheet")
        ]
        for part in book.namelist():
            ElementTree.fromstring(book.read(part))  # each part is whole XML
        return {
            name: [
                [_value(cell) for cell in row]
                for row in ElementTree.fromstring(book.read(f"xl/worksheets/sheet{i}.xml")).iter(
                    f"{SHEET}row"
                )
            ]
            for i, name in enumerate(names, 1)
        }


def _value(cell):
    assert cell.find(f"{SHEET}f") is None, "a formula"
    if cell.get("t") == "inlineStr":
        return cell.find(f"{SHEET}is/{SHEET}t").text
    number = cell.find(f"{SHEET}v")
    return None if number is None else float(number.text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_csv_has_no_comments_and_names_that_cannot_be_mistaken(folder):
    release = line(post="integer")
    release.export("table.csv")
    text = Path("table.csv").read_text("utf-8")
    assert not text.startswith("#") and "# dphist" not in text
    found = rows_of("table.csv")
    assert list(found[0]) == [
        "from",
        "to",
        "estimate_for_sums",
        "presentable_not_for_sums",
        "low_95",
        "high_95",
    ]
    assert [float(row["estimate_for_sums"]) for row in found] == release.raw.tolist()
    assert [float(row["presentable_not_for_sums"]) for row in found] == release.values().tolist()
    low, high = release.presentable_intervals()
    assert [float(row["low_95"]) for row in found] == low.tolist()
    assert [float(row["high_95"]) for row in found] == high.tolist()
    assert [row["from"] for row in found] == ["0", "10", "20", "30"]


def test_without_post_processing_there_is_one_value_and_the_level_is_in_the_name(folder):
    line().export("table.csv", level=0.9)
    assert list(rows_of("table.csv")[0]) == ["from", "to", "estimate_for_sums", "low_90", "high_90"]
    with pytest.raises(UsageError, match="level"):
        line().export("other.csv", level=1.5)
    assert not Path("other.csv").exists()


def test_unknown_ends_are_empty_cells(folder):
    release = dphist.from_counts([30, 20, 50, 10], epsilon=1, method="efpa")
    assert np.isnan(release.intervals()[0]).all()
    for kind in KINDS:
        release.export(f"table{kind}")
    assert {row["low_95"] for row in rows_of("table.csv")} == {""}
    assert {row[3] for row in sheets_of("table.xlsx")["Table"][1:]} == {None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", [line, lambda: line("nonneg"), labelled, grid])
def test_the_table_leads_back_to_its_release(folder, kind, made):
    release = made()
    path = release.export(f"table{kind}")
    assert dphist.load(path) == release
    assert dphist.load(f"table{kind}-metadata.json") == release


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [False, True])
def test_groups_lead_back_too_however_many(folder, kind, many, monkeypatch):
    from dphist.release import grouped_files

    release = grouped(folder)
    if many:  # more values than a document may hold: the release lies beside as Parquet
        monkeypatch.setattr(grouped_files, "MOST_IN_JSON", 10)
    release.export(f"table{kind}")
    assert Path(f"table{kind}-release.parquet").exists() is many
    back = dphist.load(f"table{kind}")
    for name in ("wing", "ward"):
        assert np.array_equal(back.raw(name), release.raw(name))
        assert np.array_equal(back.values(name), release.values(name))
    assert back.sum(0, 20, groups=["A"]) == release.sum(0, 20, groups=["A"])
    if kind == ".csv":
        found = rows_of("table.csv")
        assert [row["group"] for row in found[:1]] == ["west"] and found[-1]["parent"] == "east"
        assert len(found) == (2 + 3) * 6
    if many:
        Path(f"table{kind}-release.parquet").unlink()
        with pytest.raises(ReleaseFileError, match="not beside it"):
            dphist.load(f"table{kind}")


def test_of_averaged_values_the_measurement_is_for_sums_and_they_are_for_reading(folder):
    release = line(method="average")
    release.export("table.csv")
    found = rows_of("table.csv")
    assert [float(row["estimate_for_sums"]) for row in found] == release.error.measured.tolist()
    assert [float(row["presentable_not_for_sums"]) for row in found] == release.values().tolist()
    line(method="hats", workload="ranges").export("tree.csv")
    assert "presentable_not_for_sums" not in rows_of("tree.csv")[0]
    averaged = line(method="dawa3", workload="ranges")  # sums of its values are the better ones
    averaged.export("averaged.csv")
    assert [float(row["estimate_for_sums"]) for row in rows_of("averaged.csv")] == averaged.raw.tolist()


def test_query_works_on_what_was_exported(folder):
    line().save("r.json")
    wanted = run("query", "r.json", "10", "30").stdout
    for kind in KINDS:
        assert run("export", "r.json", f"t{kind}").stdout == f"t{kind}\n"
        assert run("query", f"t{kind}", "10", "30").stdout == wanted
    run("export", "t.csv", "again.xlsx")
    assert run("query", "again.xlsx", "10", "30").stdout == wanted


def test_the_methods_stand_on_a_second_sheet_with_the_publication(folder):
    release = line(post="nonneg", sensitivity=3)
    release.save("r.json")
    run("export", "r.json", "t.xlsx", "--title", "Visits <2024>")
    book = sheets_of("t.xlsx")
    assert list(book) == ["Table", "Methods"]
    assert book["Table"][0][2:4] == ["estimate_for_sums", "presentable_not_for_sums"]
    assert [row[2] for row in book["Table"][1:]] == release.raw.tolist()
    said = " ".join(row[1] for row in book["Methods"])
    for text in (
        "Visits <2024>",
        "epsilon = 1 (delta = 0)",
        "at most 3, added over all bins",
        release.bounding,
        "Dwork",
        "negative numbers were removed",
        f"dphist {dphist.__version__}",
    ):
        assert text in said, text


def test_no_label_is_obeyed_by_a_spreadsheet_or_breaks_the_file(folder):
    release = labelled()
    for kind in KINDS:
        release.export(f"t{kind}")
    in_csv = [row["label"] for row in rows_of("t.csv")]
    assert in_csv[1] == '\'=HYPERLINK("x")' and in_csv[2] == "'-2+3"
    in_book = [row[0] for row in sheets_of("t.xlsx")["Table"][1:]]
    assert in_book[:5] == HOSTILE[:5]
    assert in_book[5] == "_x005F_x0041_", "which a spreadsheet shows as _x0041_"
    assert "\x1b" not in in_book[6]


def test_characters_that_xml_cannot_hold(folder):
    odd = ["\ufffe", "\ud800", "\x00", "x" * 40_000]
    dphist.from_counts([1, 2, 3, 4], bins=odd, epsilon=1).export("t.xlsx")
    cells = [row[0] for row in sheets_of("t.xlsx")["Table"][1:]]
    assert cells[0] == "\ufffd" and len(cells[3]) == xlsx.MOST_LETTERS


def test_metadata_follow_the_vocabulary_of_csvw(folder):
    release = labelled()
    release.export("ward table.csv", title="Wards")
    told = json.loads(Path("ward table.csv-metadata.json").read_text("utf-8"))
    assert told["@context"] == ["http://www.w3.org/ns/csvw", {"language": "en"}]
    assert told["url"] == "ward table.csv" and told["dc:title"] == "Wards"
    assert told["dc:issued"] == release.created[:10]
    described = told["tableSchema"]["columns"]
    assert [column["name"] for column in described] == list(rows_of("ward table.csv")[0])
    assert [column["datatype"] for column in described] == ["string", *["number"] * 4]
    assert "sums" in described[1]["dc:description"] and "Do not add" in described[2]["dc:description"]
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", column["name"]) for column in described)


def test_a_column_of_every_kind_of_axis_is_described(folder):
    instants = dphist.Instants("2024-01-01", "2024-02-01", "1w")
    for bins in (
        instants,
        dphist.Integers(0, 3),
        dphist.Regular(lo=0, hi=1, bins=2),
        dphist.Categories(["a"]),
    ):
        release = dphist.from_counts(np.ones(bins.n, int), bins=bins, epsilon=1)
        release.export("t.csv", overwrite=True)
        assert dphist.load("t.csv") == release
        assert words.methods(release)[0].count("Records were counted in") == 1
    assert rows_of("t.csv")[0]["label"] == "a"


def test_a_simulated_release_says_so_everywhere(folder):
    described = line().to_dict() | {"simulated": True}
    del described["id"]
    fake = dphist.Release.from_dict(described)
    fake.export("t.xlsx")
    assert "SIMULATED" in [row[0] for row in sheets_of("t.xlsx")["Methods"]]
    assert "SIMULATED" in json.loads(Path("t.xlsx-metadata.json").read_text())["dc:description"]


# ---- bad input and bad luck -------------------------------------------------------------------------


def test_a_table_that_was_altered_is_refused(folder):
    line().export("t.csv")
    Path("t.csv").write_text(Path("t.csv").read_text().replace("10", "11"))
    with pytest.raises(ReleaseFileError, match="not as it was exported: its checksum differs"):
        dphist.load("t.csv")


@pytest.mark.parametrize("many", [False, True])
def test_a_release_file_that_was_altered_is_refused(folder, many):
    release = grouped(folder) if many else line()
    release.save("r.json")
    described = json.loads(Path("r.json").read_text())
    laid_out = json.dumps(described, indent=2, sort_keys=True)
    Path("r.json").write_text(laid_out)  # the same, laid out anew
    dphist.load("r.json")
    changes = [("created", "2020-01-01"), ("unit", "one house"), ("epsilon", "3")]
    for field, value in changes:
        Path("r.json").write_text(json.dumps(described | {field: value}))
        with pytest.raises(ReleaseFileError, match="was altered after it was saved: its checksum differs"):
            dphist.load("r.json")
    if not many:
        described["raw"][0] += 1
        Path("r.json").write_text(json.dumps(described))
        assert "was altered" in run("report", "r.json", "--out", "r.html", code=4).stderr
        assert not Path("r.html").exists()
        del described["sha256"]  # as files of earlier versions have none
        Path("r.json").write_text(json.dumps(described))
        dphist.load("r.json")


def test_a_release_that_was_altered_beside_its_table_is_refused(folder):
    line().export("t.csv")
    beside = Path("t.csv-metadata.json")
    told = json.loads(beside.read_text())
    told["notes"][0]["document"]["raw"][0] += 1
    beside.write_text(json.dumps(told))
    for path in ("t.csv", beside):
        with pytest.raises(ReleaseFileError, match="was altered after the export"):
            dphist.load(path)


def test_a_table_without_its_metadata_says_what_is_missing(folder):
    for kind in (".csv", ".xlsx"):
        line().export(f"t{kind}")
        Path(f"t{kind}-metadata.json").unlink()
        with pytest.raises(ReleaseFileError, match=f"put t{kind}-metadata.json beside it"):
            dphist.load(f"t{kind}")


def test_metadata_of_others_are_not_taken_for_ours(folder):
    release = line()
    release.save("r.parquet")
    Path("r.parquet-metadata.json").write_text('{"notes": [{"type": "Annotation"}, 3]}')
    assert dphist.load("r.parquet") == release
    note = {"type": "dphist-release", "file": "../r.parquet", "sha256": ""}
    with pytest.raises(ReleaseFileError, match="not beside it"):
        export.read_note(note, folder / "t.csv-metadata.json")


@pytest.mark.parametrize("kind", KINDS)
def test_an_existing_file_is_never_replaced_unasked(folder, kind):
    first, second = line(), line()
    first.export(f"t{kind}")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    first.export(f"t{kind}")  # the same again is no harm, and the same to the last byte
    with pytest.raises(OutputError, match="exists"):
        second.export(f"t{kind}")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    second.export(f"t{kind}", overwrite=True)
    assert dphist.load(f"t{kind}") == second


def test_a_foreign_table_of_that_name_loses_nothing_and_gets_no_metadata(folder):
    Path("t.csv").write_text("mine\n")
    with pytest.raises(OutputError, match="exists"):
        line().export("t.csv")
    assert [file.name for file in folder.iterdir()] == ["t.csv"] and Path("t.csv").read_text() == "mine\n"
    line().save("r.parquet")
    assert "add --overwrite" in run("export", "r.parquet", "t.csv", code=2).stderr
    assert (
        "is a release or the ledger itself"
        in run("export", "r.parquet", "r.parquet", "--overwrite", code=2).stderr
    )
    dphist.load("r.parquet")


@pytest.mark.parametrize("mark", [".~lock.t.xlsx#", "~$t.xlsx"])
def test_a_workbook_that_is_open_elsewhere_is_left_alone(folder, mark):
    line().export("t.xlsx")
    before = Path("t.xlsx").read_bytes()
    Path(mark).write_text("somebody")
    with pytest.raises(OutputError, match=r"is open in another program .* close it there"):
        line().export("t.xlsx", overwrite=True)
    assert Path("t.xlsx").read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", ["table", "metadata"])
def test_a_full_disk_loses_nothing(folder, monkeypatch, kind, at):
    first = line()
    first.export(f"t{kind}")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if at == "table":
        monkeypatch.setattr(
            export, {".csv": "_write_csv", ".xlsx": "_write_xlsx", ".parquet": "_write_parquet"}[kind], full
        )
    else:
        monkeypatch.setattr(export, "_metadata", full)
    for name, overwrite in ((f"t{kind}", True), (f"new{kind}", False)):
        with pytest.raises(OutputError, match="the disk is full.*untouched"):
            line().export(name, overwrite=overwrite)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert dphist.load(folder / f"t{kind}") == first


def test_places_that_cannot_be_written(folder, monkeypatch):
    with pytest.raises(OutputError, match="names no kind of table"):
        line().export("t.json")
    with pytest.raises(OutputError, match="no directory"):
        line().export("nowhere/t.csv")

    def denied(*_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "_sync", denied)
    with pytest.raises(OutputError, match="no permission"):
        line().export("t.csv")
    assert list(folder.iterdir()) == []


def test_more_rows_than_a_sheet_holds(folder, monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_ROWS", 4)
    with pytest.raises(OutputError, match=r"4 rows are too many .* \.csv or \.parquet"):
        line().export("t.xlsx")
    assert list(folder.iterdir()) == []
