"""Text in another encoding, or with decimal commas, is counted as declared; a broken line stays alone."""

import gzip
import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dphist as package
from dphist.domain import Categories, Domain, Regular
from dphist.errors import DataError, UsageError
from dphist.privacy.ledger import MemoryLedger
from dphist.records import count, encodings
from dphist.records.check import check
from shell import dphist

NAMES = sorted(encodings._SINGLE | encodings._WIDE | encodings._MULTIPLE)
TOWNS = ("Zürich", "Genève", "Bern")
TOWN = Domain((Categories(TOWNS),))
PRICES = Domain((Regular(lo=0, hi=10, bins=10),))


def utf8(blocks, name):
    return b"".join(encodings.to_utf8(blocks, name))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_every_line_is_decoded_by_itself(name, data):
    """Whatever bytes the others hold, however the file is cut into blocks."""
    if name in encodings._WIDE:
        name = "utf-16-le" if name == "utf-16" else name
        unit = st.binary(min_size=2, max_size=2).filter(lambda two: b"\n" not in two)
        line = st.lists(unit | st.sampled_from([b"\x3d\xd8", b"\xd8\x3d", b"a\0"]), max_size=4).map(b"".join)
    else:
        line = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"\xff"))
    end = "\n".encode(name)
    lines = data.draw(st.lists(line, min_size=1, max_size=6))
    text = b"".join(part + end for part in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    blocks = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    alone = [utf8([part + end], name) for part in lines]
    if alone[0].startswith("\ufeff".encode()):
        return
    together = utf8(blocks, name).removeprefix("\ufeff".encode())
    assert together == b"".join(alone).removeprefix("\ufeff".encode())
    assert all(part.endswith(b"\n") and part.count(b"\n") == 1 for part in alone)


def test_names_of_encodings():
    assert encodings.known("UTF8") == encodings.known("utf-8-sig") == "utf-8"
    assert encodings.known("Latin-1") == "iso8859-1"
    assert encodings.known("windows-1252") == "cp1252"
    assert [encodings.known(name) for name in NAMES] == NAMES
    for wrong in (
        "utf-7",
        "iso2022_jp",
        "hz",
        "rot13",
        "hex",
        "nonsense",
        "",
        None,
        5,
        "idna",
        "utf-32",
        "cp037",
    ):
        with pytest.raises(UsageError, match="is not read"):
            encodings.known(wrong)


def in_encoding(path, encoding, rows=30):
    """Write towns, which are not ASCII, in an encoding."""
    towns = [TOWNS[i % 3] for i in range(rows)]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps({"town": town}, ensure_ascii=False) + "\n" for town in towns)
    else:
        text = "town\n" + "".join(f"{town}\n" for town in towns)
    raw = text.encode(encoding)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".csv.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "cp850", "gb18030"])
def test_text_in_another_encoding_is_counted(tmp_path, encoding, ending):
    path = in_encoding(tmp_path / f"a{ending}", encoding)
    options = {"columns": "town", "encoding": encoding, "well_formed": encoding.startswith("utf-16")}
    if (encoding, ending) == ("utf-16", ".jsonl"):  # whose first bytes are a record's
        options["encoding"] = "utf-16-le"
    assert count(path, TOWN, **options).values.tolist() == [10, 10, 10]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("content", [b"", b"z", b"\xff\xfe{\0}\0\n\0", "town\nBern\n".encode("utf-16")])
@pytest.mark.parametrize("count", [count, check])
def test_wide_text_needs_a_declaration_whatever_it_holds(tmp_path, encoding, content, count):
    """One odd byte would shift all records behind it, and a mark before the first would turn them all."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="odd number of bytes shifts .*--well-formed"):
        count(path, TOWN, columns="town", encoding=encoding)
    if encoding == "utf-16":
        with pytest.raises(UsageError, match="say utf-16-le or utf-16-be"):
            count(path, TOWN, columns="town", encoding=encoding, well_formed=True)
    else:
        count(path, TOWN, columns="town", encoding=encoding, well_formed=True)


@pytest.mark.parametrize("count", [count, check])
def test_wide_text_whose_order_of_bytes_is_open_is_refused(tmp_path, count):
    path = tmp_path / "a.csv"
    path.write_bytes("town\nBern\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="byte order mark.* say utf-16-le or utf-16-be"):
        count(path, TOWN, columns="town", encoding="utf-16", well_formed=True)


def test_the_wrong_encoding_is_told_by_a_check(tmp_path):
    path = in_encoding(tmp_path / "a.csv", "latin-1")
    assert count(path, TOWN, columns="town").values.tolist() == [0, 0, 10]
    found = check(path, TOWN, columns="town")
    assert (found.read, found.counted, found.undecodable) == (30, 10, 20)
    assert "67% have bytes in 'town' that are not valid utf-8: try encoding='latin-1'" in repr(found)
    assert "--encoding" in repr(found)
    assert check(path, TOWN, columns="town", encoding="latin-1").counted == 30


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16-le", "shift_jis"])
def test_an_undecodable_byte_stays_in_its_line(tmp_path, encoding):
    broken = {"utf-16-le": b"\x3d\xd8"}.get(encoding, b"\x81")
    end = "\n".encode(encoding)
    header, good = "town".encode(encoding) + end, "Bern".encode(encoding) + end
    counts = []
    for name, lines in (("a", [good, good, good]), ("b", [good, broken + end, good, good])):
        path = tmp_path / f"{name}.csv"
        path.write_bytes(header + b"".join(lines))
        options = {"encoding": encoding, "well_formed": encoding == "utf-16-le"}
        counts.append(count(path, TOWN, columns="town", **options).values.tolist())
    assert counts == [[0, 0, 3], [0, 0, 3]]
    found = check(path, TOWN, columns="town", **options)
    assert (found.read, found.counted, found.undecodable) == (4, 3, 1)


# --- decimal commas -----------------------------------------------------------------------------------------


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_decimal_commas_are_counted_and_told(tmp_path):
    path = written(tmp_path / "a.csv", "preis;menge\n" + "1,5;3\n" * 9 + "2.5;3\n" + "7;3\n" + "x;3\n")
    assert count(path, PRICES, columns="preis").values.tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
    assert "75% have a comma in 'preis' and are not numbers: try decimal=','" in repr(
        check(path, PRICES, columns="preis")
    )
    # A point is no decimal comma: 2.500 may mean two thousand five hundred.
    expected = [0, 9, 0, 0, 0, 0, 0, 1, 0, 0]
    assert count(path, PRICES, columns="preis", decimal=",").values.tolist() == expected
    found = check(path, PRICES, columns="preis", decimal=",")
    assert (found.counted, found.unreadable) == (10, 2)


@pytest.mark.parametrize(
    ("column", "where", "expected"),
    [
        ("preis * 2", None, 3),
        ("CAST(preis AS DOUBLE) * 2", None, 3),
        ("preis + menge", None, 3),
        ("preis", "preis > 1.4", 3),
        ("preis", "CAST(TRIM(preis) AS DOUBLE) = 1.5", 3),
        ("menge", "preis = '1,5'", 3),
        ("menge", "preis < 1.4", 0),
    ],
)
def test_decimal_commas_inside_expressions(tmp_path, column, where, expected):
    path = written(tmp_path / "a.csv", "preis;menge\n" + "1,5;3,25\n" * 3)
    assert count(path, PRICES, columns=column, where=where, decimal=",").values.sum() == expected


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("preis\n1,5\n1,5\n", "preis"),  # no delimiter at all: a comma is none
        ("preis;menge\n1,5;2\n1,5;2\n", "preis"),
        ("Preis, netto, EUR;menge\n1,5;2\n1,5;2\n", "Preis, netto, EUR"),
        ("preis\tmenge\n1,5\t2\n1,5\t2\n", "preis"),
        ('preis,menge\n"1,5",2\n"1,5",2\n', "preis"),  # quoted commas between commas
    ],
)
def test_the_delimiter_beside_decimal_commas(tmp_path, text, column):
    path = written(tmp_path / "a.csv", text)
    assert count(path, PRICES, columns=column, decimal=",").values.tolist() == [0, 2, *[0] * 8]


def test_the_delimiter_without_decimal_commas_is_as_before(tmp_path):
    path = written(tmp_path / "a.csv", "a,b;c\n1.5;9,9\n")
    assert count(written(path, "a,b\n1.5,2\n"), PRICES, columns="a").values.tolist() == [0, 1, *[0] * 8]


# --- declared, refused and recorded -------------------------------------------------------------------------


def test_wrong_declarations_are_refused_before_anything_is_read(tmp_path):
    path = written(tmp_path / "a.csv", "x\n1\n")
    jsonl = written(tmp_path / "a.jsonl", '{"x": 1}\n')
    for options, words in (
        ({"encoding": "utf-7"}, "is not read"),
        ({"encoding": 8}, "is not read"),
        ({"decimal": ";"}, "decimal must be"),
        ({"decimal": ""}, "decimal must be"),
        ({"decimal": None}, "decimal must be"),
    ):
        for wrong in (
            lambda o: count(path, PRICES, columns="x", **o),
            lambda o: check(path, PRICES, columns="x", **o),
            lambda o: count([1.0], PRICES, **o),
            lambda o: package.Plan(bins=10, range=(0, 10), epsilon=1, **o),
        ):
            with pytest.raises(UsageError, match=words):
                wrong(options)
    with pytest.raises(UsageError, match="REPLACE"):
        count(jsonl, PRICES, columns="x", decimal=",")
    for options in ({"encoding": "latin-1"}, {"decimal": ","}):
        with pytest.raises(UsageError, match="encoding|decimal"):
            count([1.0], PRICES, **options)
    book = MemoryLedger()
    with pytest.raises(UsageError, match="REPLACE"):
        package.histogram(jsonl, bins=10, range=(0, 10), column="x", epsilon=1, decimal=",", ledger=book)
    assert book.spent("default") == 0


def test_a_release_says_how_its_text_was_read(tmp_path):
    path = written(tmp_path / "a.csv", "x;ort\n1,5;Zürich\n", "latin-1")
    release = package.histogram(
        path,
        bins=10,
        range=(0, 10),
        column="x",
        where="ort = 'Zürich'",
        epsilon=1,
        encoding="latin-1",
        decimal=",",
        ledger=MemoryLedger(),
    )
    assert release.provenance["encoding"] == "latin-1"
    assert release.provenance["decimal"] == ","
    plain = package.histogram([1.0], bins=10, range=(0, 10), epsilon=1)
    assert (plain.provenance["encoding"], plain.provenance["decimal"]) == ("utf-8", ".")


def counted_by(run):
    return int(re.search(r"would be counted +(\d+)", run.stdout)[1])


def test_the_commands_take_encoding_and_decimal(here):
    written(here / "l.csv", "preis;ort\n" + "1,5;Zürich\n" * 50, "latin-1")
    flags = ("l.csv", "--column", "preis", "--bins", "10", "--range", "0", "10", "--where", "ort = 'Zürich'")
    assert counted_by(dphist("check", *flags)) == 0
    read = ("--encoding", "latin-1", "--decimal", ",")
    assert counted_by(dphist("check", *flags, *read)) == 50
    dphist("publish", *flags, *read, "--epsilon", "5", "--out", "r.json")
    release = package.load(here / "r.json")
    assert (release.provenance["encoding"], release.provenance["decimal"]) == ("latin-1", ",")
    assert release.values()[1] > 30
    for wrong in (("--encoding", "utf-9"), ("--decimal", "x")):
        for command in (("publish", *flags, "--epsilon", "1"), ("check", *flags)):
            dphist(*command, *wrong, code=2)
