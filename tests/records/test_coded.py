"""Addresses, codes and large numbers of bins: every engine counts what Python counts."""

from __future__ import annotations

import ipaddress
import random

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dphist import records
from dphist.domain import Addresses, Categories, Codes, Domain, Hashed, Integers
from dphist.errors import DataError, UsageError

R = random.Random(2)
V4 = [
    *(f"10.{R.randrange(256)}.{R.randrange(256)}.{R.randrange(256)}" for _ in range(120)),
    *("11.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "", "1.2.3", "10.1.2.3\n", "010.1.1.1", "10.256.1.1"),
    *(None, "10.1.2.3 ", "10.1.2.3.4", "10,1,2,3", "\u0661\u0660.1.2.3"),
]
V6 = [
    *(
        str(
            ipaddress.IPv6Address(
                ((R.getrandbits(128) >> R.choice([0, 16, 64, 100])) << R.choice([0, 64])) % 2**128
            )
        )
        for _ in range(150)
    ),
    *(
        "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8",
        "::",
        "1::",
        "2001:DB8::ABCD",
        "1.2.3.4",
        "x::",
        "::ffff:1.2.3.4",
    ),
    *("2001:db8:1:2:3:4:5:6", ":::", "1::\n", "1:2:3:4:5:6:7:8:9", "12345::", "fe80::1%eth0", None),
]
CODES = [*("".join(R.choice("ABCXYZ019") for _ in range(3)) for _ in range(120)), "A00", "B07", "B0", "B077"]
CODES += ["", None, "é00", "A0é", "a00"]
KEYS = [*CODES, *V6[-9:], "a" * 5000, "\u65e5\u672c", "\0", "x\ufffd", "it's \\ %", " a", "a "]
CASES = [
    *(
        (Addresses(net, prefix), V4)
        for net, prefix in (("10.0.0.0/8", 24), ("10.16.0.0/12", 32), ("0.0.0.0/0", 32))
    ),
    *((Addresses(net, prefix), V4) for net, prefix in (("0.0.0.0/0", 5), ("10.1.2.0/24", 30))),
    *(
        (Addresses(net, prefix), V6)
        for net, prefix in (("::/0", 62), ("2001:db8::/32", 64), ("::/67", 128), ("::/0", 1))
    ),
    *((Codes(pattern), CODES) for pattern in ("[A-Z][0-9]{2}", "[A-Z0-9]{3}", "B[0-9]{2}")),
    *(
        (Hashed(bits, salt), KEYS)
        for bits, salt in ((1, ""), (7, "s"), (30, "it's \\ \u00e9"), (61, ""), (62, ""))
    ),
]


def held(counts):
    bins, tallies = counts.held()
    return dict(zip(bins.tolist(), tallies.tolist(), strict=True))


@pytest.mark.parametrize(("axis", "values"), CASES, ids=[str(axis) for axis, _ in CASES])
def test_the_query_counts_what_python_counts(axis, values):
    domain = Domain((axis,))
    expected: dict[int, int] = {}
    for value in values:
        bin = axis.bin(value)
        if bin is not None:
            expected[bin] = expected.get(bin, 0) + 1
    assert held(records.count(values, domain)) == expected
    assert held(records.count(pl.DataFrame({"v": values}), domain, columns="v")) == expected


def test_addresses_are_those_of_the_standard_library():
    every = Addresses("::/0", 62)
    for value in V6:
        try:
            whole = int(ipaddress.IPv6Address(value)) >> 66 if value and not set(value) & {"%", "."} else None
        except ValueError:
            whole = None
        assert every.bin(value) == whole, value
    assert Addresses("0.0.0.0/0", 32).bin("1.2.3.4") == 0x01020304


@pytest.mark.parametrize("axis", [Addresses("10.0.0.0/8", 24), Addresses("0.0.0.0/0", 32)])
def test_a_check_tells_what_a_count_would_do(axis):
    from dphist.records.check import check

    counted = sum(axis.bin(value) is not None for value in V4)
    for data, options in ((V4, {}), (pl.DataFrame({"v": V4}), {"columns": "v"})):
        found = check(data, Domain((axis,)), **options)
        assert (found.read, found.counted) == (len(V4), counted)
        said = dict(found.rows())
        assert sum(many for words, many in said.items() if "no address" in words) == len(V4) - counted - 2
        assert sum(many for words, many in said.items() if "missing" in words) == 2


def test_names_and_bins_are_inverse():
    for axis in (
        Addresses("10.0.0.0/8", 26),
        Addresses("2001:db8::/32", 90),
        Codes("[A-Z][0-9]{2}-[a-f]{4}"),
    ):
        for bin in (0, 1, 77, axis.n // 3, axis.n - 1):
            name = axis.name(bin)
            assert axis.run(name) == (bin, bin + 1)
            assert axis.bin(name.partition("/")[0]) == bin


def test_a_person_counts_at_most_k_times_in_bins_beyond_every_packing():
    """Bins of 40 digits would not fit beside a draw of 35 in one whole number."""
    domain = Domain((Integers(0, 2**50),))
    far = [2**50 - i for i in range(30)]
    data = pl.DataFrame({"v": far * 2, "u": ["ann"] * 30 + ["bob"] * 30})
    for k in (1, 3):
        found = held(records.count(data, domain, columns="v", unit="u", max_contributions=k))
        assert sum(found.values()) == 2 * k
        assert set(found) <= set(far), "no bin but those of their records"


def test_files_of_text_are_counted_likewise(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text(
        "v,u\n" + "".join(f"10.0.{i % 7}.{i % 5},{i % 20}\n" for i in range(2000)) + "1.2.3,4\nx,5\n"
    )
    domain = Domain((Addresses("0.0.0.0/0", 32),))
    assert sum(held(records.count(path, domain, columns="v")).values()) == 2000
    few = records.count(path, domain, columns="v", unit="u", max_contributions=2)
    assert sum(held(few).values()) == 40


def test_large_grids_and_arrays_are_counted_by_the_bins_that_occur():
    domain = Domain((Integers(0, 2**30), Categories(["a", "b"])))
    x, y = np.array([5, 2**30, 5, -1]), np.array(["a", "b", "a", "b"], dtype=object)
    want = {5 * 2: 2, 2**30 * 2 + 1: 1}
    assert held(records.count((x, y), domain)) == want
    assert held(records.count(pl.DataFrame({"x": x, "y": y.tolist()}), domain, columns=("x", "y"))) == want


def test_a_dictionary_of_labels_from_a_file(tmp_path):
    """Labels twice are refused before anything is read; many of them are listed, named and asked quickly."""
    import dphist

    path = tmp_path / "labels.txt"
    labels = [f"L{i:06d}" for i in range(200_000)]
    path.write_text("\n".join(labels), "utf-8")
    made = dphist.histogram(
        ["L000007"] * 300 + ["L199999"] * 200, categories=path, epsilon=1, method="listed"
    )
    assert made.value("L000007").low > 200
    assert {"L000007", "L199999"} <= {*made.to_pandas()["bin"]}
    path.write_text("\n".join([*labels, "L000007"]), "utf-8")
    book = dphist.MemoryLedger()
    with pytest.raises(UsageError, match="line 200001 of .* repeats the label of line 8"):
        dphist.histogram(["x"], categories=path, epsilon=1, ledger=book)
    with pytest.raises(UsageError, match="declared twice"):
        Categories([*labels, "L000007"])
    assert book.spent("default") == 0


def test_very_many_labels_are_looked_through_and_not_compared(monkeypatch):
    """A dictionary of ten million labels takes a gigabyte, and comparing a slip with all of them minutes."""
    from dphist.errors import did_you_mean

    axis = Categories(["a", "b", "c"], other="rest", null=True)
    for most in (1 << 16, 0):
        monkeypatch.setattr("dphist.domain.axes._LOOKED_UP", most)
        monkeypatch.setattr("dphist.domain.axes.Categories._where", {"b": 1} if most else None)
        assert [axis.bin(name) for name in ("b", "rest", "(null)", "x")] == [1, 3, 4, None]
    assert "too many to look for a similar one" in did_you_mean("x", (str(i) for i in range(100_001)))


@pytest.mark.parametrize("axis", [Addresses("0.0.0.0/0", 32), Codes("[A-Z]{8}"), Hashed(30)])
def test_columns_that_are_no_text_are_refused(axis):
    with pytest.raises(DataError, match="text"):
        records.count(pl.DataFrame({"v": [1, 2]}), Domain((axis,)), columns="v")
    with pytest.raises(DataError, match="text"):
        records.count(np.array([1.5]), Domain((axis,)))
    with pytest.raises(UsageError, match="clip is for numeric bins"):
        records.count(["A"], Domain((axis,)), outside="clip")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Addresses("10.0.0.1/8", 24), "not a network"),
        (lambda: Addresses("10.0.0.0/8", 4), "from 8 to 32 bits"),
        (lambda: Addresses("10.0.0.0/8", 33), "from 8 to 32"),
        (lambda: Addresses(7, 24), "a network is text"),
        (lambda: Addresses("10.0.0.0/8", 24.0), "whole number"),
        (lambda: Codes(""), "1 to 64 places"),
        (lambda: Codes("a" * 64 + "[0-9]"), "1 to 64 places"),
        (lambda: Codes("a{99}" * 100_000), "1 to 64 places"),
        (lambda: Codes("[A-Z"), "not understood"),
        (lambda: Codes("[Z-A]"), "must rise"),
        (lambda: Codes("[AA]"), "twice"),
        (lambda: Codes("é{3}"), "ASCII"),
        (lambda: Codes(5), "pattern"),
        *((lambda bits=bits: Hashed(bits), "1 to 62 bits") for bits in (0, 63, -1)),
        (lambda: Hashed("30"), "whole number"),
        *((lambda salt=salt: Hashed(30, salt), "a salt is") for salt in (5, "a" * 101, "\ufffd", "\ud800")),
        *(
            (lambda form=form: Codes(form), "outside brackets")
            for form in ("[0-9]+", "(A|B)[0-9]", r"\d{3}", "^A$")
        ),
        *((lambda form=form: Codes(form), "write it last") for form in ("A[^0-9]", r"[\d]{3}", r"[A-Z\-]")),
        (lambda: Codes(".{3}"), "a point stands for itself"),
        *((lambda form=form: Codes(form), "not understood") for form in ("[0-9]{2,3}", "[[:digit:]]", "A{}")),
    ],
)
def test_bad_declarations_say_what_to_write(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_the_hash_is_the_documented_one_and_what_has_no_text_is_left_out_alone():
    from hashlib import sha256

    assert Hashed(62).bin("abc") == 0xBA7816BF8F01CFEA >> 2  # FIPS 180-2, appendix B.1
    assert Hashed(20, "sal").bin("tkey") == int(sha256(b"saltkey").hexdigest()[:5], 16)
    assert Hashed(20).name(255) == "000ff"
    cells = ["a", None, "\ud800", "b\ufffd", float("nan"), pd.NaT]
    assert held(records.count(cells, Domain((Hashed(30),)))) == {Hashed(30).bin("a"): 1}


def test_cells_without_a_type_are_the_same_keys_in_a_list_an_array_and_a_table():
    cells = ["a", "5", 5, b"5", True, 1.5, None]
    series = pd.Series(cells, dtype=object)
    found = {Hashed(40).bin(key): 1 for key in ("a", "b'5'", "true", "1.5")} | {Hashed(40).bin("5"): 2}
    for data in (cells, np.array(cells, dtype=object), series):
        assert held(records.count(data, Domain((Hashed(40),)))) == found
        assert held(records.count(data, Domain((Codes("[0-9a]"),)))) == {10: 1, 5: 2}
    host = [ipaddress.ip_address("10.0.0.7"), "10.0.0.7"]
    for data in (host, pd.Series(host, dtype=object)):
        assert held(records.count(data, Domain((Addresses("10.0.0.0/24", 32),)))) == {7: 2}


def test_the_longest_codes_are_counted():
    axis = Codes("a" * 33 + "[01]{31}")
    assert (axis.n, len(axis.places)) == (1 << 31, 64)
    last = pl.DataFrame({"code": [axis.name(axis.n - 1)]})
    cells, tallies = records.count(last, Domain((axis,)), columns="code").held()
    assert (cells.tolist(), tallies.tolist()) == ([axis.n - 1], [1])


def test_signs_of_regular_expressions_stand_for_themselves_in_brackets_and_a_point_anywhere():
    assert Codes("A[+][0-9].").name(3) == "A+3."
    assert Codes(r"[^][\][0^][a\]").name(3) == "^\\^\\"


def test_several_domains_of_very_many_bins_are_counted_as_each_alone():
    axis = Addresses("::/0", 62)
    frame = pl.DataFrame({"a": ["ffff:ffff:ffff:ffff::1", "::1", "ffff::", None]})
    one = records.Tally(Domain((axis,)), ("a",))
    together = records.count_together(frame, [one] * 3)
    wanted = [part.tolist() for part in records.count(frame, one.domain, columns="a").held()]
    assert wanted[0][-1] == axis.n - 1
    assert [[part.tolist() for part in made.held()] for made in together] == [wanted] * 3
