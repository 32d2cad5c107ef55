"""The budget is exact, durable, append-only, and never overspent."""

import copy
import csv
import errno
import fcntl
import io
import json
import multiprocessing
import os
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import ledger as stress
from dphist.errors import BudgetExceeded, LedgerError, PrivacyError, UsageError
from dphist.privacy import journal
from dphist.privacy import ledger as module
from dphist.privacy.journal import Place
from dphist.privacy.ledger import (
    Charge,
    Entry,
    Ledger,
    LedgerLike,
    MemoryLedger,
    parse_epsilon,
    to_csv,
    to_json,
)

VERSION_1 = (
    Path(__file__).parent / "ledgers" / "v1.db"
)  # as version 1 wrote it; beside it a log of 3 more charges
HOW = {"mechanism": "test", "what": "counts of nothing"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture(params=["memory", "file"])
def make(request, path):
    """Make a ledger of either kind, with a limit on the dataset 'default'."""

    def build(limit=None) -> LedgerLike:
        if request.param == "memory":
            return MemoryLedger(limit)
        ledger = Ledger.open(path, create=True)
        if limit is not None:
            ledger.set_limit("default", limit)
        return ledger

    return build


def raw(path, *statements):
    """Do what a person with the sqlite3 shell would do."""
    db = sqlite3.connect(path)
    try:
        for statement in statements:
            out = db.execute(statement).fetchall()
        db.commit()
    finally:
        db.close()
    return out


def run(code, *arguments, check=True):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=120)


# --- epsilon ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (0.1 + 0.2, Fraction(30000000000000004, 10**17)),
        ("0.1", Fraction(1, 10)),
        (" 0.10 ", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("2.", Fraction(2)),
        ("1e-3", Fraction(1, 1000)),
        ("1/3", Fraction(1, 3)),
        ("+2/6", Fraction(1, 3)),
        (Fraction(2, 7), Fraction(2, 7)),
        (Decimal("0.30"), Fraction(3, 10)),
        (Decimal("1E-7"), Fraction(1, 10**7)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_epsilon_is_what_was_written(value, exact):
    parsed = parse_epsilon(value)
    assert parsed == exact
    assert type(parsed) is Fraction
    assert type(parsed.numerator) is int


@pytest.mark.parametrize(
    "value",
    [
        0, 0.0, -0.0, "0", "0/5", -1, -0.5, "-1/3", Fraction(-1, 3), Decimal("-1"),
        float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("Infinity"), "nan", "inf",
        True, False, np.bool_(True), None, "", " ", "one", "1,5", "0.5%", "1/0", "1/2/3", "1//2", "1_000",
        "٣", "0x1", "1 2", "1e", "e5", ".", "1.5/2", b"1", 1j, [1], np.array([1.0]), object(),
        "1e9999999999", "1e-999", Decimal("1e-1000000"), 10**5000, -(10**5000), Fraction(1, 10**40),
        1e-300, "9" * 10**6,
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_epsilon_that_is_none_is_refused(value):
    with pytest.raises(UsageError, match=r"budget must be|budget needs") as caught:
        parse_epsilon(value, name="budget")
    assert len(str(caught.value)) < 200
    assert "such as" in str(caught.value) or "write" in str(caught.value)


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_float_is_read_as_it_prints(value):
    assert (
        parse_epsilon(value)
        == Fraction(repr(value))
        == parse_epsilon(str(value))
        == parse_epsilon(Decimal(repr(value)))
    )
    assert float(parse_epsilon(value)) == value


# --- charges ---------------------------------------------------------------------------------------------


def charge(epsilon=1) -> Charge:
    return MemoryLedger().charge(epsilon, **HOW)


def test_a_charge_is_used_once():
    c = charge("1/3")
    assert c.use() == Fraction(1, 3)
    with pytest.raises(PrivacyError, match="cannot be used"):
        c.use()
    with pytest.raises(PrivacyError, match="cannot give 1/2"):
        c.take(Fraction(1, 2), "more")


def test_a_charge_is_split_and_never_exceeded():
    c = charge(3)
    parts = [c.take(Fraction(1, 3), f"part {i}") for i in range(3)]
    assert [p.use() for p in parts] == [1, 1, 1]
    assert parts[1].purpose == "part 1"
    assert parts[1].dataset == c.dataset == "default"
    with pytest.raises(PrivacyError, match="1 of it is used or taken"):
        c.take(Fraction(1, 10**9), "a crumb")
    with pytest.raises(PrivacyError, match="cannot be used"):
        c.use()


def test_a_charge_that_was_split_is_not_used_whole():
    c = charge()
    c.take(Fraction(1, 10), "a part")
    with pytest.raises(PrivacyError, match="1/10 of it"):
        c.use()
    c.take(Fraction(9, 10), "the rest")


def test_a_refused_share_changes_nothing():
    c = charge()
    c.take(Fraction(1, 2), "half")
    with pytest.raises(PrivacyError):
        c.take(Fraction(2, 3), "too much")
    assert c.take(Fraction(1, 2), "the other half").use() == Fraction(1, 2)


@given(st.lists(st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50), max_size=12))
def test_shares_add_up_to_at_most_the_whole(shares):
    c, total = charge("2/7"), Fraction(0)
    used = Fraction(0)
    for share in shares:
        if total + share <= 1:
            total += share
            used += c.take(share, "part").use()
        else:
            with pytest.raises(PrivacyError):
                c.take(share, "part")
    assert used == total * Fraction(2, 7)


@pytest.mark.parametrize("share", [0, Fraction(-1, 2), Fraction(3, 2), 0.5, "1/2", True, None])
def test_a_share_is_an_exact_fraction(share):
    with pytest.raises(PrivacyError, match="must be a Fraction"):
        charge().take(share, "part")


def test_a_charge_is_made_by_a_ledger_only():
    with pytest.raises(PrivacyError, match="made by a ledger"):
        Charge(Fraction(1), "default", "release", "0" * 32)
    c = charge()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="spent twice"):
            copied(c)
    with pytest.raises((PrivacyError, ValueError)):
        replace(c, epsilon=Fraction(100))
    with pytest.raises(FrozenInstanceError):
        c.epsilon = Fraction(100)


def test_a_charge_shows_its_epsilon_exactly():
    assert repr(charge("1/4")) == "Charge(epsilon=0.25, dataset='default', purpose='release')"
    assert "epsilon=0.333333333333 (exactly 1/3)" in repr(charge("1/3"))


def test_threads_cannot_use_a_charge_twice():
    for _ in range(20):
        c, got, gate = charge(), [], threading.Barrier(8)

        def use(c=c, got=got, gate=gate):
            gate.wait()
            try:
                got.append(c.use())
            except PrivacyError:
                got.append(None)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert sorted(got, key=str) == [1] + [None] * 7


def in_fork(work) -> str:
    """Run work in a forked child and return what it returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            out = str(work())
        except BaseException as error:
            out = f"{type(error).__name__}: {error}"
        os.write(write, out.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


needs_fork = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


class TestFork:
    pytestmark = needs_fork

    def test_a_charge_cannot_be_used_on_both_sides(self):
        c = charge()
        assert "PrivacyError" in in_fork(c.use)
        assert c.use() == 1

    def test_a_budget_in_memory_is_not_doubled(self):
        ledger = MemoryLedger(1)
        for ask in (lambda: ledger.charge(1, **HOW), lambda: ledger.check(1)):
            assert in_fork(ask).startswith("PrivacyError: a MemoryLedger keeps")
        assert ledger.charge(1, **HOW).use() == 1

    def test_a_ledger_opened_before_works_after(self, path):
        ledger = Ledger.open(path, create=True)
        ledger.set_limit("default", 1)
        ledger.charge("1/3", **HOW)
        assert in_fork(lambda: ledger.charge("1/3", **HOW).use()) == "1/3"
        ledger.charge("1/3", **HOW)
        assert "BudgetExceeded" in in_fork(lambda: ledger.charge("1/100", **HOW))
        assert ledger.spent("default") == 1
        ledger.verify()


# --- the budget ------------------------------------------------------------------------------------------


def test_ten_tenths_are_one(make):
    ledger = make(1)
    for _ in range(10):
        ledger.charge(0.1, **HOW)
    assert ledger.spent("default") == 1
    assert ledger.remaining("default") == 0
    with pytest.raises(BudgetExceeded):
        ledger.charge(Fraction(1, 10**25), **HOW)  # less than a float of the total can tell


def test_a_refusal_says_everything_and_changes_nothing(make):
    ledger = make(1)
    ledger.charge("2/3", **HOW)
    before = ledger.entries()
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(0.5, **HOW)
    text = str(caught.value)
    for part in ("epsilon 0.5 was", "limit is 1, ", "0.666666666667 (exactly 2/3) is spent"):
        assert part in text
    assert "0.333333333333 (exactly 1/3) is left" in text
    assert "Nothing was charged" in text
    assert ledger.entries() == before
    assert ledger.spent("default") == Fraction(2, 3)
    ledger.charge("1/3", **HOW)  # what is left can still be spent


def test_the_refusal_of_a_file_says_how_to_raise_the_limit(tmp_path):
    ledger = Ledger.open(tmp_path / "my ledger.db", create=True)
    ledger.set_limit("visits 2024", "0.5")
    with pytest.raises(
        BudgetExceeded, match=re.escape(f"dphist ledger limit '{ledger.path}' VALUE --dataset 'visits 2024'")
    ):
        ledger.charge(1, dataset="visits 2024", **HOW)


def test_without_a_limit_everything_is_journaled(make):
    ledger = make()
    for _ in range(3):
        ledger.charge(1000, **HOW)
    assert ledger.limit("default") is None
    assert ledger.remaining("default") is None
    assert ledger.spent("default") == 3000
    assert len(ledger.entries()) == 3


def test_datasets_have_budgets_of_their_own(make):
    ledger = make(1)
    if isinstance(ledger, Ledger):
        ledger.set_limit("other", None)
    ledger.charge(1, **HOW)
    ledger.charge(1, dataset="other", **HOW)
    assert ledger.spent("other") == ledger.spent("default") == 1
    assert ledger.spent("never seen") == 0
    assert [e.dataset for e in ledger.entries("other") if e.kind == "charge"] == ["other"]


def test_a_slip_in_the_name_does_not_bypass_a_limit(path):
    ledger = Ledger.open(path, create=True)
    ledger.charge(1, dataset="before", **HOW)  # without limits any name will do
    ledger.set_limit("visits", 1)
    add = rf"'vists' is not known .* Did you mean 'visits'.*ledger limit {path} VALUE --dataset vists"
    for ask in (ledger.charge, lambda e, **how: ledger.check(e, dataset=how["dataset"])):
        with pytest.raises(LedgerError, match=add):
            ask(5, dataset="vists", **HOW)
    assert ledger.spent("vists") == 0 and ledger.datasets() == ["before", "visits"]
    ledger.charge(1, dataset="before", **HOW)
    ledger.set_limit("vists", None)  # said on purpose
    ledger.charge(5, dataset="vists", **HOW)
    ledger.set_limit("visits", None)
    ledger.charge(5, dataset="another", **HOW)


def test_asking_whether_it_could_pay_costs_nothing(make):
    ledger = make(1)
    before = ledger.entries()
    ledger.check(1)
    with pytest.raises(BudgetExceeded, match="1 is left"):
        ledger.check("1.5")
    with pytest.raises(UsageError):
        ledger.check(0)
    assert ledger.entries() == before and ledger.remaining("default") == 1


def test_names_that_look_alike_are_alike(make):
    ledger = make()
    ledger.charge(1, dataset="caf\u00e9", **HOW)
    with pytest.raises(UsageError, match="NFC"):
        ledger.charge(1, dataset="cafe\u0301", **HOW)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("name", ["", " a", "a ", "a\n", "a\0b", "\ud800", "\u200b", None, 3])
def test_a_dataset_has_a_readable_name(make, name):
    ledger = make()
    for ask in (
        ledger.spent,
        ledger.limit,
        ledger.remaining,
        lambda name: ledger.charge(1, dataset=name, **HOW),
    ):
        with pytest.raises(UsageError, match="printable"):
            ask(name)
    assert ledger.entries() == []


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), "junk", True])
def test_a_bad_epsilon_is_refused_before_anything_happens(make, epsilon):
    ledger = make()
    with pytest.raises(UsageError):
        ledger.charge(epsilon, **HOW)
    assert ledger.entries() == []


def test_a_total_too_long_to_print_is_refused(make):
    ledger = make()
    with pytest.raises(LedgerError, match="rounder"):
        for i in range(400):
            ledger.charge(Fraction(1, 10**29 + i), **HOW)
    assert ledger.spent("default") == sum((e.epsilon for e in ledger.entries()), Fraction(0))
    ledger.charge(1, **HOW)  # a round one still fits


epsilons = st.one_of(
    st.fractions(min_value=Fraction(1, 1000), max_value=2, max_denominator=1000),
    st.floats(min_value=1e-9, max_value=2),
    st.decimals(min_value="0.001", max_value=2, places=3),
)
datasets = st.sampled_from(["default", "visits", "Ärzte"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.none() | epsilons, asked=st.lists(st.tuples(datasets, epsilons), max_size=12))
def test_any_charges_under_any_limit(tmp_path_factory, limit, asked):
    file = Ledger.open(tmp_path_factory.mktemp("any") / "ledger.db", create=True)
    for name in ("default", "visits", "Ärzte"):
        if limit is not None:
            file.set_limit(name, limit)
    memory = MemoryLedger(limit)
    top = None if limit is None else parse_epsilon(limit)
    totals = dict.fromkeys(("default", "visits", "Ärzte"), Fraction(0))
    for name, epsilon in asked:
        exact = parse_epsilon(epsilon)
        fits = top is None or totals[name] + exact <= top
        for ledger in (file, memory):
            if fits:
                assert ledger.charge(epsilon, dataset=name, **HOW).epsilon == exact
            else:
                rows = len(ledger.entries())
                with pytest.raises(BudgetExceeded):
                    ledger.charge(epsilon, dataset=name, **HOW)
                assert len(ledger.entries()) == rows
        totals[name] += exact if fits else 0
        for ledger in (file, memory):
            assert ledger.spent(name) == totals[name]
            assert ledger.remaining(name) == (None if top is None else top - totals[name])
    file.verify()
    charges = [e for e in file.entries() if e.kind == "charge"]
    assert [(e.dataset, e.epsilon) for e in charges] == [(e.dataset, e.epsilon) for e in memory.entries()]
    for name, total in totals.items():
        assert sum((e.epsilon for e in charges if e.dataset == name), Fraction(0)) == total


# --- limits ----------------------------------------------------------------------------------------------


def test_limits_are_journaled(path):
    ledger = Ledger.open(path, create=True)
    assert ledger.set_limit("default", 1) == "limit 1, of which 1 is left"
    ledger.charge("3/4", **HOW)
    assert ledger.set_limit("default", "1/2").endswith("every charge is refused")
    assert ledger.remaining("default") == 0
    with pytest.raises(BudgetExceeded, match=r"and 0 is left"):
        ledger.charge("1/100", **HOW)
    assert ledger.set_limit("default", None).startswith("no limit")
    ledger.charge(5, **HOW)
    again = Ledger.open(path, create=True)
    assert [(e.kind, e.epsilon) for e in again.entries()] == [
        ("limit", 1), ("charge", Fraction(3, 4)), ("limit", Fraction(1, 2)), ("limit", None), ("charge", 5),
    ]  # fmt: skip
    assert again.limit("default") is None
    assert again.datasets() == ["default"]


@pytest.mark.parametrize("limit", [0, -1, "junk", float("inf")])
def test_a_bad_limit_is_refused(path, limit):
    ledger = Ledger.open(path, create=True)
    with pytest.raises(UsageError, match="limit"):
        ledger.set_limit("default", limit)
    with pytest.raises(UsageError, match="limit"):
        MemoryLedger(limit)
    assert ledger.entries() == []


# --- the journal -----------------------------------------------------------------------------------------


def test_a_row_says_who_what_and_when(make):
    ledger = make()
    unit = "one patient with at most 3 records"
    made = ledger.charge("1/3", mechanism="dawa", what="ages", purpose="trial", unit=unit)
    (entry,) = ledger.entries()
    assert replace(entry, when="") == Entry(
        1, "", "default", Fraction(1, 3), "dawa", "ages", "trial", "charge", unit, made.release
    )
    assert re.fullmatch("[0-9a-f]{32}", made.release)
    assert made.take(Fraction(1, 2), "part").release == made.release
    assert ledger.charge(1, **HOW).release != made.release
    when = datetime.fromisoformat(entry.when)
    assert when.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=5)


NASTY = [
    "'; DROP TABLE journal; --",
    'a "quoted", thing',
    "two\nlines\r",
    "=1+1",
    "naïve ☃",
    "nul\0nul",
    "%s ?",
]


@pytest.mark.parametrize("text", NASTY)
def test_words_are_data(make, text):
    ledger = make()
    ledger.charge(1, mechanism=text, what=text)
    (entry,) = ledger.entries()
    assert (entry.mechanism, entry.what) == (text, text)


def test_a_file_name_that_is_not_unicode_can_be_journaled(make):
    ledger = make()
    ledger.charge(1, mechanism="m", what=os.fsdecode(b"caf\xe9.csv"))
    assert ledger.entries()[0].what == "caf\\udce9.csv"


def test_exports_keep_every_word_and_the_exact_epsilon(path):
    ledger = Ledger.open(path, create=True)
    ledger.set_limit("default", None)
    for text in NASTY:
        ledger.charge("1/3", mechanism="m", what=text)
    rows = list(csv.DictReader(io.StringIO(to_csv(ledger.entries()), newline="")))
    objects = json.loads(to_json(ledger.entries()))
    assert [o["what"] for o in objects[1:]] == NASTY
    assert [r["what"].replace("'=", "=") for r in rows[1:]] == NASTY  # what a spreadsheet would run is quoted
    assert "'=1+1" in [r["what"] for r in rows]
    assert {(r["epsilon"], r["decimal"]) for r in rows[1:]} == {("1/3", "0.333333333333")}
    assert {(o["epsilon"], o["decimal"]) for o in objects[1:]} == {("1/3", "0.333333333333")}
    assert (rows[0]["epsilon"], objects[0]["epsilon"]) == ("", None)
    assert (
        [int(r["number"]) for r in rows] == [o["number"] for o in objects] == list(range(1, len(NASTY) + 2))
    )
    assert to_json([]) == "[]"
    assert to_csv([]).count("\n") == 1


def text(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def full(path):
    """Return a ledger with a limit and three charges, and its bytes."""
    ledger = Ledger.open(path, create=True)
    ledger.set_limit("default", 9)
    for what in ("ages", "naïve ☃", "sizes"):
        ledger.charge("1/3", mechanism="m", what=what, unit="one record")
    return ledger


def test_the_file_can_be_read_by_people(full):
    head, *lines = text(full.path)
    assert head == b"dphist-ledger 2 000000000004\n"
    rows = [json.loads(line[17:]) for line in lines]
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert rows[1] == full.entries()[1].to_row() | {"number": 2, "epsilon": "1/3"}


def altered(full, change):
    """Return the refusal of a ledger whose lines were changed."""
    lines = text(full.path)
    change(lines)
    full.path.write_bytes(b"".join(lines))
    for ask in (full.verify, lambda: Ledger.open(full.path)):
        with pytest.raises(LedgerError, match="Nothing was drawn") as caught:
            ask()
    return str(caught.value)


ALTERED = {
    "a smaller charge": lambda lines: lines.__setitem__(2, lines[2].replace(b"1/3", b"1/9")),
    "a higher limit": lambda lines: lines.__setitem__(1, lines[1].replace(b"9/1", b"99/1")),
    "a row taken out": lambda lines: lines.__delitem__(2),
    "the last row taken out": lambda lines: lines.__delitem__(-1),
    "all rows taken out": lambda lines: lines.__delitem__(slice(1, None)),
    "a row twice": lambda lines: lines.insert(2, lines[2]),
    "two rows swapped": lambda lines: lines.__setitem__(slice(2, 4), [lines[3], lines[2]]),
    "an empty line": lambda lines: lines.insert(2, b"\n"),
    "a line of something else": lambda lines: lines.append(b"hello\n"),
    "no first line": lambda lines: lines.__delitem__(0),
    "a first line cut short": lambda lines: lines.__setitem__(slice(0, None), [b"dphist-ledger 2 0000"]),
}


@pytest.mark.parametrize("change", ALTERED)
def test_a_ledger_that_does_not_add_up_is_refused(full, change):
    assert re.search("damaged|not a dphist ledger", altered(full, ALTERED[change]))


def test_the_row_that_does_not_follow_is_named(full):
    assert "row 2 does not follow" in altered(full, ALTERED["a smaller charge"])


def test_no_part_of_a_ledger_is_taken_for_the_whole(full, tmp_path):
    whole, part = full.path.read_bytes(), tmp_path / "part.db"
    for length in range(len(whole)):
        part.write_bytes(whole[:length])
        with pytest.raises(LedgerError):
            Ledger.open(part, read_only=True)
    part.write_bytes(whole)
    assert Ledger.open(part).spent("default") == 1


def test_rows_of_two_ledgers_do_not_make_one(tmp_path):
    """Each is whole and rightly numbered: what it follows is part of its checksum."""
    made = [Ledger.open(tmp_path / f"{i}.db", create=True) for i in range(2)]
    for ledger, epsilon in zip(made, ("1/2", "1/20"), strict=True):
        for _ in range(2):
            ledger.charge(epsilon, **HOW)
    (head, _, last), (_, first, _) = (text(ledger.path) for ledger in made)
    made[0].path.write_bytes(head + first + last)
    with pytest.raises(LedgerError, match="row 2 does not follow"):
        Ledger.open(made[0].path)


def test_no_byte_can_be_changed_unseen(full, tmp_path):
    whole, other = full.path.read_bytes(), tmp_path / "other.db"
    for i, byte in enumerate(whole):
        for new in (byte ^ 1, 10, 0xFF):
            other.write_bytes(whole[:i] + bytes([new]) + whole[i + 1 :])
            with suppress(LedgerError):
                assert Ledger.open(other, read_only=True).entries() == full.entries()


def forged(path, *rows):
    """Write rows of anything, with checksums that are right."""
    place, lines = Place(), b"dphist-ledger 2 000000000000\n"
    for row in rows:
        lines += f"{journal._checksum(place, row)} ".encode() + row + b"\n"
        place = Place(place.rows + 1, journal._checksum(place, row))
    path.write_bytes(lines)


GOOD = {
    "number": 1, "when": "now", "dataset": "default", "epsilon": "1/3", "mechanism": "m", "what": "w",
    "purpose": "p", "kind": "charge", "unit": "u", "release": "r",
}  # fmt: skip
JUNK = [
    b"", b"5", b"null", b"[]", b"{}", b"\xff\xfe", b'{"number":1}', b"[" * 100_000, b"NaN",
    b'{"number":1' + b"0" * 5000 + b"}", json.dumps(GOOD).encode()[:-1],
    *(json.dumps(GOOD | {key: value}).encode() for key, value in [
        ("number", 2), ("number", "1"), ("number", True), ("number", 1.0), ("number", None),
        ("dataset", None), ("dataset", 3), ("dataset", ["a"]), ("dataset", {"a": 1}), ("what", "\ud800"),
        ("epsilon", None), ("epsilon", 1), ("epsilon", 0.5), ("epsilon", "0/1"), ("epsilon", "-1/3"),
        ("epsilon", "1/0"), ("epsilon", "junk"), ("epsilon", "1/" + "9" * 4000), ("epsilon", ["1/3"]),
        ("kind", "gift"), ("kind", None), ("kind", ["charge"]), ("unit", 7), ("release", None),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk[:60]))
def test_rows_that_are_no_rows_are_a_clear_error(path, junk):
    forged(path, junk)
    with pytest.raises(LedgerError, match="Nothing was drawn"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="Nothing was drawn"):
        Ledger.open(path, read_only=True)


def test_a_forged_total_too_long_to_print_is_a_clear_error(path):
    rows = [GOOD | {"number": i + 1, "epsilon": f"1/{10**29 + i}"} for i in range(400)]
    forged(path, *(json.dumps(row).encode() for row in rows))
    with pytest.raises(LedgerError, match="a total is longer"):
        Ledger.open(path)


def test_what_a_later_version_adds_to_a_row_is_left_alone(path):
    forged(path, json.dumps(GOOD | {"more": [1]}).encode())
    assert Ledger.open(path).spent("default") == Fraction(1, 3)


# --- files that are not ledgers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"x", b"some text\n" * 1000, b"SQLite format 3\0" + b"\xff" * 5000], ids=len
)
def test_a_file_that_is_not_sqlite(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"Nothing was drawn"):
        Ledger.open(path, create=True)
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused_and_left_alone(path):
    raw(path, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(LedgerError, match="not a dphist ledger"):
            Ledger.open(path, create=create)
    assert path.read_bytes() == before


def test_a_later_version_is_refused(path):
    Ledger.open(path, create=True)
    path.write_bytes(path.read_bytes().replace(b"ledger 2", b"ledger 3"))
    with pytest.raises(LedgerError, match=r"version 3, not 2. Update dphist"):
        Ledger.open(path)


def test_a_missing_ledger_is_not_made_unasked(path, tmp_path):
    Ledger.open(tmp_path / "hospital.db", create=True)
    shutil.copy(VERSION_1, tmp_path / "hostel.db")
    (tmp_path / "hospitals.db").write_text("a list of hospitals")
    for ask in (Ledger, Ledger.open, lambda p: Ledger.open(p, create=True, read_only=True)):
        with pytest.raises(LedgerError, match=r"there is no ledger at .*hopsital.db") as caught:
            ask(tmp_path / "hopsital.db")
        assert "Did you mean 'hospital.db'" in str(caught.value) and "hospitals" not in str(caught.value)
        assert f"dphist ledger create {tmp_path}/hopsital.db" in str(caught.value)
    assert not (tmp_path / "hopsital.db").exists()


@pytest.mark.parametrize("create", [True, False])
def test_an_emptied_ledger_does_not_start_anew(path, create):
    Ledger.open(path, create=True).charge(1, **HOW)
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match=r"is empty.*not older than your last release.*ledger create"):
        Ledger.open(path, create=create)
    with pytest.raises(LedgerError, match="is empty"):
        Ledger.open(path, read_only=True)
    assert path.read_bytes() == b""


def test_a_ledger_deleted_under_us_is_not_made_again(path):
    ledger = Ledger.open(path, create=True)
    ledger.charge(1, **HOW)
    path.unlink()
    with pytest.raises(LedgerError, match="it is gone"):
        ledger.charge(1, **HOW)
    path.touch()
    with pytest.raises(LedgerError, match="is empty"):
        ledger.charge(1, **HOW)


def test_a_ledger_replaced_under_us_is_refused_until_it_is_opened_again(path, tmp_path):
    """What was read before must still be there: another ledger in its place would forget charges."""
    ledger, other = Ledger.open(path, create=True), Ledger.open(tmp_path / "other.db", create=True)
    ledger.charge("1/3", **HOW)
    for _ in range(2):
        other.charge("1/7", **HOW)
    shutil.copy(other.path, path)  # in place
    with pytest.raises(LedgerError, match="held before"):
        ledger.spent("default")
    with pytest.raises(LedgerError, match="held before"):
        ledger.charge("1/7", **HOW)
    assert Ledger.open(path).spent("default") == Fraction(2, 7)


def test_the_same_ledger_in_another_file_goes_on(path, tmp_path):
    ledger = Ledger.open(path, create=True)
    ledger.charge("1/7", **HOW)
    shutil.copy(path, tmp_path / "copy.db")
    Ledger.open(tmp_path / "copy.db").charge("3/7", **HOW)
    (tmp_path / "copy.db").replace(path)  # another file, which has every row of the first
    ledger.charge("1/7", **HOW)
    assert ledger.spent("default") == Ledger.open(path).spent("default") == Fraction(5, 7)


def test_a_file_that_loses_its_name_while_we_wait_is_charged_nothing(path, tmp_path, monkeypatch):
    """Whoever replaces the file may do so after we opened it and before it is locked."""
    ledger = Ledger.open(path, create=True)
    ledger.charge("1/7", **HOW)
    lock, aside = journal._lock, tmp_path / "aside.db"

    def replaced_meanwhile(file, name):
        if not aside.exists():
            shutil.copy(path, tmp_path / "copy.db")
            path.rename(aside)
            (tmp_path / "copy.db").rename(path)
        lock(file, name)

    monkeypatch.setattr(journal, "_lock", replaced_meanwhile)
    ledger.charge("3/7", **HOW)
    assert Ledger.open(path).spent("default") == Fraction(4, 7)
    assert Ledger.open(aside).spent("default") == Fraction(1, 7)


def test_a_ledger_that_another_made_meanwhile_is_left_alone(full):
    before = full.path.read_bytes()
    journal.create(full.path)
    assert full.path.read_bytes() == before
    assert [file.name for file in full.path.parent.iterdir()] == [full.path.name]


def test_places_where_no_ledger_can_be(tmp_path):
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger.open(tmp_path)
    with pytest.raises(LedgerError, match=r"directory .* does not exist"):
        Ledger.open(tmp_path / "missing" / "ledger.db")
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger.open("a\0b.db")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_an_unwritable_directory():
    with pytest.raises(LedgerError, match=r"ledger /proc/self/ledger.db: .*Nothing was drawn"):
        Ledger.open("/proc/self/ledger.db", create=True)


@pytest.mark.parametrize(
    "name", ["with space.db", "per%20cent.db", "what?.db", "hash#.db", "Ärzte.db", ":memory:"]
)
def test_any_file_name(tmp_path, name):
    Ledger.open(tmp_path / name, create=True).charge(1, **HOW)
    assert (tmp_path / name).is_file()
    assert Ledger.open(tmp_path / name).spent("default") == 1


def test_a_ledger_is_opened_by_its_name_too(path, tmp_path):
    for made in (Ledger(path, create=True), Ledger(str(path))):
        made.charge(1, **HOW)
        assert made == Ledger.open(path) and made.path == path
    assert repr(Ledger(path)) == f"Ledger(path={path!r})"
    assert Ledger(path).spent("default") == 2
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger(tmp_path)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.db")
    for wrong in (None, 3, b"x.db", sqlite3):
        with pytest.raises(UsageError, match="opened by its path"):
            Ledger(wrong)


def test_a_ledger_opened_for_reading_changes_nothing(path, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.open(path, read_only=True)
    assert not path.exists()
    Ledger.open(path, create=True).charge("1/3", **HOW)
    seen = Ledger.open(path, read_only=True)
    assert seen.spent("default") == Fraction(1, 3) and len(seen.entries()) == 1
    for write in (lambda: seen.charge(1, **HOW), lambda: seen.set_limit("default", 5)):
        with pytest.raises(LedgerError, match=r"for reading only\. Nothing was drawn"):
            write()
    assert len(Ledger.open(path, create=True).entries()) == 1
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("version", ["2", "1", "1 with a log"])
def test_an_auditor_reads_where_nothing_may_be_written(version):
    """Root may write anywhere, so the child becomes somebody else first."""
    code = """if True:
        import os, sqlite3, sys, urllib.parse  # while Python's own folder can still be read
        from dphist.errors import LedgerError
        from dphist.privacy.ledger import Ledger
        if os.geteuid() == 0:
            os.setuid(65534)
        print(Ledger.open(sys.argv[1], read_only=True).spent("default"), end=" ")
        try:
            Ledger.open(sys.argv[1]).charge(1, mechanism="m", what="w")
        except LedgerError:
            print("refused")
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger.db")
        if version == "2":
            Ledger.open(path, create=True).charge("1/2", **HOW)
        else:
            shutil.copy(VERSION_1, path)
        if version == "1 with a log":
            shutil.copy(f"{VERSION_1}-wal", f"{path}-wal")
            holder = sqlite3.connect(path)  # whose index of the log the reader needs
            holder.execute("SELECT * FROM journal").fetchall()
        for file in Path(folder).iterdir():
            file.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            assert run(code, path).stdout.split() == ["1/2", "refused"]
        finally:
            Path(folder).chmod(0o755)
            if version == "1 with a log":
                holder.close()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("ledger.db", create=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ledger.charge(1, **HOW)
    assert Ledger.open(tmp_path / "ledger.db").spent("default") == 1


@pytest.fixture
def small(tmp_path):
    """Mount a file system of 64 KiB."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("mounting needs root")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_full_disk_changes_nothing(small):
    ledger = Ledger.open(small / "ledger.db", create=True)
    ledger.charge(1, **HOW)
    for size in (100_000, 66_000):
        with pytest.raises(LedgerError, match="disk is full. Make room.*Nothing was drawn"):
            ledger.charge(1, mechanism="m", what="x" * size)
    assert len(ledger.entries()) == 1
    ledger.charge(1, **HOW)
    assert Ledger.open(ledger.path).spent("default") == 2


def test_writes_that_fail_halfway_change_nothing(path):
    Ledger.open(path, create=True).charge(1, **HOW)
    code = """if True:
        import resource, sys
        from dphist.errors import LedgerError
        from dphist.privacy.ledger import Ledger
        ledger = Ledger.open(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            ledger.charge(1, mechanism="m", what="x" * 100_000)
        except LedgerError as error:
            print(error)
    """
    assert "Nothing was drawn" in run(code, path).stdout
    assert Ledger.open(path, create=True).spent("default") == 1


def hold(path):
    """Hold a ledger's lock until what is returned is closed."""
    file = path.open("rb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def test_a_ledger_held_by_another_process(path, monkeypatch, caplog):
    ledger = Ledger.open(path, create=True)
    monkeypatch.setattr(journal, "PATIENCE", 0.1)
    with hold(path):
        assert ledger.spent("default") == 0  # reading goes on
        with pytest.raises(LedgerError, match=r"another process has held it.*Nothing was drawn"):
            ledger.charge(1, **HOW)
        assert f"waiting for the ledger {path}" in caplog.text
    monkeypatch.undo()
    for _ in range(3):  # who gave up the wait does not keep the lock
        ledger.charge(1, **HOW)
    assert ledger.spent("default") == 3


def test_who_waits_says_so_and_goes_on(path, monkeypatch, caplog):
    ledger = Ledger.open(path, create=True)
    monkeypatch.setattr(journal, "_UNTOLD", 0.01)
    held = hold(path)
    told = journal.notify

    def notify(text):
        told(text)
        held.close()

    monkeypatch.setattr(journal, "notify", notify)
    ledger.charge(1, **HOW)
    assert caplog.text.count("waiting for the ledger") == 1 and ledger.spent("default") == 1


# --- durability ------------------------------------------------------------------------------------------


def test_the_charge_is_on_disk_before_it_is_returned(path, monkeypatch):
    ledger = Ledger.open(path, create=True)
    done = []

    def spy(name, real):
        def call(*args):
            out = real(*args)
            done.append((name, path.read_bytes().count(b'"what":"w"')))
            return out

        return call

    monkeypatch.setattr(journal, "_sync", spy("sync", journal._sync))
    monkeypatch.setattr(module, "Charge", spy("charge", module.Charge))
    ledger.charge("1/3", mechanism="m", what="w")
    assert done == [("sync", 1), ("charge", 1)]


def test_a_sync_reaches_the_disk(path, monkeypatch):
    """On macOS by F_FULLFSYNC, elsewhere by fsync."""
    ledger, synced = Ledger.open(path, create=True), []
    monkeypatch.setattr(os, "fsync", synced.append)
    if hasattr(fcntl, "F_FULLFSYNC"):
        monkeypatch.setattr(fcntl, "fcntl", lambda file, command: synced.append(file))
    ledger.charge(1, **HOW)
    assert len(synced) == 1


def test_an_interrupted_transaction_leaves_nothing(path, monkeypatch):
    ledger = Ledger.open(path, create=True)
    ledger.charge(1, **HOW)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(journal, "_sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge(1, **HOW)
    monkeypatch.undo()
    assert ledger.spent("default") == 1
    assert len(ledger.entries()) == 1


# --- faults at every step --------------------------------------------------------------------------------

STEPS = ("open", "pread", "pwrite", "fsync", "ftruncate")


def faulty(monkeypatch, at, fault):
    """Let the call number ``at`` to the operating system go wrong; return the calls so far."""
    calls = []

    def wrap(name, real):
        def call(*args):
            calls.append(name)
            return fault(name, real, args) if len(calls) == at else real(*args)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))
    return calls


def fails(name, real, args):
    raise OSError(errno.EIO, "injected")


def half(name, real, args):
    """Do half of a write, and then fail or die."""
    if name == "pwrite":
        real(args[0], args[1][: len(args[1]) // 2], args[2])


def test_an_error_at_any_step_loses_no_charge_and_leaves_a_whole_file(full, monkeypatch):
    def fault_halfway(*call):
        half(*call)
        fails(*call)

    refused, before, at, calls = 0, full.spent("default"), 1, ["first"]
    while len(calls) >= at - 1:  # until a charge needs fewer calls than that
        with monkeypatch.context() as patch:
            calls = faulty(patch, at, fault_halfway if at % 2 else fails)
            try:
                full.charge("1/100", **HOW)
                before += Fraction(1, 100)
            except LedgerError as error:
                assert "injected" in str(error) and "Nothing was drawn" in str(error)
                refused += 1
        assert full.spent("default") == Ledger.open(full.path).spent("default") == before
        at += 1
    assert refused >= 5 and {"pwrite", "fsync"} <= set(calls)


def test_an_error_that_cannot_be_undone_wastes_budget_and_no_more(full, monkeypatch):
    def broken(*args):
        raise OSError(errno.EIO, "injected")

    begun = module.charges_begun()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(LedgerError, match="Nothing was drawn"):
            full.charge("1/100", **HOW)
    assert full.spent("default") == 1 + Fraction(1, 100)
    assert module.charges_begun() == begun + 1, "nobody may say that nothing was charged"
    full.charge("1/100", **HOW)
    assert Ledger.open(full.path).spent("default") == 1 + Fraction(2, 100)


class TestKill:
    pytestmark = needs_fork

    @pytest.mark.parametrize("torn", [False, True])
    def test_a_process_killed_at_any_step_loses_no_charge(self, full, monkeypatch, torn):
        """The charge before is kept, and the one in progress was not drawn on."""

        def dies(name, real, args):
            if torn:
                half(name, real, args)
            os._exit(9)

        spent, at, finished = full.spent("default"), 1, False
        while not finished:
            with monkeypatch.context() as patch:
                faulty(patch, at, dies)
                finished = in_fork(lambda: full.charge("1/100", **HOW).use()) == "1/100"
            after = Ledger.open(full.path).spent("default")
            assert after in ({spent + Fraction(1, 100)} if finished else {spent, spent + Fraction(1, 100)})
            full.charge("1/50", **HOW)
            spent = after + Fraction(1, 50)
            assert Ledger.open(full.path).spent("default") == full.spent("default") == spent
            at += 1
        assert at > 5

    def test_a_lock_is_not_inherited(self, path):
        """A child forked while another thread charges shares its file and must not keep its lock."""
        ledger = Ledger.open(path, create=True)
        read, write = os.pipe()
        with ledger._writing():
            child = os.fork()
            if child == 0:
                os.read(read, 1)
                os._exit(0)
        try:
            with path.open("rb") as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.write(write, b"x")
            os.waitpid(child, 0)
            os.close(read)
            os.close(write)


def test_a_copy_at_any_step_holds_every_charge_made_before(full, tmp_path, monkeypatch):
    copies = []

    def wrap(real):
        def call(*args):
            copies.append(full.path.read_bytes())
            out = real(*args)
            copies.append(full.path.read_bytes())
            return out

        return call

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrap(getattr(os, name)))
        full.charge("1/100", **HOW)
    assert len(set(copies)) == 3  # before, with the row, and with the count
    for content in copies:
        (tmp_path / "copy.db").write_bytes(content)
        copy = Ledger.open(tmp_path / "copy.db")
        assert copy.spent("default") in (1, 1 + Fraction(1, 100))
        copy.charge("1/100", **HOW)


def test_a_copy_taken_while_somebody_reads_is_whole(path, tmp_path):
    ledger = Ledger.open(path, create=True)
    with path.open("rb") as reader:
        reader.read(10)
        ledger.charge(1, **HOW)
        shutil.copy(path, tmp_path / "copy.db")
    assert Ledger.open(tmp_path / "copy.db").spent("default") == 1


@pytest.mark.slow
def test_copies_taken_while_two_processes_charge():
    rows = stress.copies(charges=60)
    assert rows[0]["n"] > 0 and [row["what"] for row in rows if not row["pass"]] == []


# --- one ledger under two names --------------------------------------------------------------------------


def test_a_ledger_with_two_names_is_one_ledger(path, tmp_path):
    ledger = Ledger.open(path, create=True)
    ledger.set_limit("default", 1)
    (tmp_path / "link.db").hardlink_to(path)
    (tmp_path / "soft.db").symlink_to(path)
    for name in ("link.db", "soft.db"):
        Ledger.open(tmp_path / name).charge("1/3", **HOW)
        ledger.charge("1/6", **HOW)
    with pytest.raises(BudgetExceeded):
        Ledger.open(tmp_path / "link.db").charge("1/6", **HOW)
    assert ledger.spent("default") == 1


@pytest.mark.slow
def test_processes_under_two_names_lose_no_charge():
    (row,) = stress.names(processes=4, charges=40)
    assert row["repeats"] == 160 and row["pass"]


@pytest.fixture
def mounted(path, tmp_path):
    """Return a ledger, and the same file mounted at another place, as containers do."""
    Ledger.open(path, create=True)
    place = tmp_path / "container" / "budget.db"
    place.parent.mkdir()
    place.touch()
    command = ["mount", "--bind", path, place]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    yield path, place
    subprocess.run(["umount", place], check=True)


def test_a_mounted_ledger_is_one_ledger(mounted):
    made = stress._together([("charge_and_time", mounted[i % 2], 20) for i in range(4)])[0]
    assert sum(len(line.split()) for line in made) == 80
    assert [len(Ledger.open(name).entries()) for name in mounted] == [80, 80]


def test_a_mounted_ledger_that_was_replaced_is_refused(mounted, tmp_path):
    path, place = mounted
    ledger = Ledger.open(place)
    shutil.copy(path, tmp_path / "backup.db")
    (tmp_path / "backup.db").replace(path)
    for ask in (lambda: ledger.charge(1, **HOW), lambda: Ledger.open(place, read_only=True)):
        with pytest.raises(LedgerError, match=r"replaced where it is mounted from.*Mount it again"):
            ask()


# --- ledgers of version 1 --------------------------------------------------------------------------------


@pytest.fixture(params=["alone", "with a log"])
def old(request, path):
    """Return a ledger of version 1, which was a SQLite file, and what it holds."""
    shutil.copy(VERSION_1, path)
    if request.param == "with a log":
        shutil.copy(f"{VERSION_1}-wal", f"{path}-wal")
    return path, Fraction(1, 3) + (Fraction(3, 4) if request.param == "with a log" else 0)


def test_a_ledger_of_version_1_is_read_and_turned(old, tmp_path):
    path, spent = old
    seen = Ledger.open(path, read_only=True)
    assert path.read_bytes().startswith(b"SQLite")
    before = seen.entries()
    assert [e.number for e in before] == list(range(1, len(before) + 1))
    assert [(e.kind, e.dataset, e.epsilon, e.what) for e in before[2:4]] == [
        ("charge", "visits", Fraction(1, 3), "visits.csv, age"),
        ("charge", "default", Fraction(1, 2), "naïve ☃.csv"),
    ]
    ledger = Ledger.open(path)
    assert ledger.entries() == before == seen.entries()
    assert ledger.spent("visits") == seen.spent("visits") == spent and ledger.spent("default") == Fraction(
        1, 2
    )
    assert ledger.limit("visits") == Fraction(3, 2) and ledger.limit("default") is None
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes().startswith(b"dphist-ledger 2 ")
    ledger.charge("1/12", dataset="visits", **HOW)
    assert seen.spent("visits") == spent + Fraction(1, 12)


def test_a_ledger_of_version_1_with_two_names_is_refused(old, tmp_path):
    """Charges made under one name lie in a log that is named after it."""
    path, spent = old
    link = tmp_path / "link.db"
    link.hardlink_to(path)
    for name in (path, link):
        for read_only in (True, False):
            with pytest.raises(LedgerError, match=r"version 1 and has 2 names.*delete the others"):
                Ledger.open(name, read_only=read_only)
    link.unlink()
    assert Ledger.open(path).spent("visits") == spent


def test_a_ledger_of_version_1_that_could_not_be_turned_is_turned_later(old, monkeypatch):
    path, spent = old

    def busy(*args, **more):
        raise OSError(errno.EBUSY, "mounted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", busy)
        with pytest.raises(LedgerError, match=r"version 1 and cannot be turned.*where it is mounted from"):
            Ledger.open(path)
    assert raw(path, "PRAGMA user_version") == [(2,)]  # which version 1 of the program refuses
    assert [name for name in os.listdir(path.parent) if name.endswith(".tmp")] == []
    assert Ledger.open(path, read_only=True).spent("visits") == spent
    assert Ledger.open(path).spent("visits") == spent


def test_a_linked_ledger_of_version_1_is_turned_where_it_lies(old, tmp_path):
    path, spent = old
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "soft.db"
    link.symlink_to(path)
    Ledger.open(link).charge("1/12", dataset="visits", **HOW)
    assert link.is_symlink() and Ledger.open(path).spent("visits") == spent + Fraction(1, 12)


def test_processes_turn_a_ledger_of_version_1_once(old):
    path, spent = old
    made = stress._together([("open_and_charge", path, "visits") for _ in range(3)])[0]
    assert [line.strip() for line in made] == ["charged"] * 3
    assert Ledger.open(path).spent("visits") == spent + 3 * stress.STEP


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE datasets SET spent = '1/2'"],
        ["UPDATE datasets SET spent = 'junk'"],
        ["UPDATE datasets SET spent = 1"],
        ["UPDATE datasets SET spent = x'ff'"],
        ["UPDATE datasets SET ceiling = '100/1'"],
        ["UPDATE datasets SET ceiling = NULL"],
        ["UPDATE datasets SET name = x'ff00' WHERE name = 'visits'"],
        ["UPDATE datasets SET name = CAST(x'ff00' AS TEXT) WHERE name = 'visits'"],
        ["DELETE FROM datasets"],
        ["INSERT INTO datasets VALUES ('other', '1/1', NULL)"],
        ["INSERT INTO datasets VALUES (NULL, '1/1', NULL)"],
        ["DROP TRIGGER journal_keeps_rows", "DELETE FROM journal WHERE number = 2"],
        ["DROP TRIGGER journal_keeps_rows", "DELETE FROM journal WHERE number = 5"],
        ["DROP TRIGGER journal_keeps_values", "UPDATE journal SET epsilon = '1/1000' WHERE number = 3"],
        ["DROP TRIGGER journal_keeps_values", "UPDATE journal SET what = x'ff' WHERE number = 3"],
        ["DROP TRIGGER journal_keeps_values", "UPDATE journal SET moment = CAST(x'ff' AS TEXT)"],
        ["INSERT INTO journal VALUES (NULL, '', 'default', '1/9', '', '', '', 'charge')"],
        ["INSERT INTO journal VALUES (NULL, '', 'default', '-1/9', '', '', '', 'charge')"],
        ["INSERT INTO journal VALUES (77, '', 'default', '9/1', '', '', '', 'limit')"],
        ["DROP TABLE journal"],
        ["DROP TABLE datasets"],
        ["ALTER TABLE journal RENAME COLUMN what TO thing"],
    ],
)
def test_a_ledger_of_version_1_that_does_not_add_up_is_refused(path, statements):
    shutil.copy(VERSION_1, path)
    raw(path, *statements)
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="Nothing was drawn"):
            Ledger.open(path, read_only=read_only)
    assert path.read_bytes().startswith(b"SQLite")


def test_a_damaged_ledger_of_version_1_is_a_clear_error(path):
    content = VERSION_1.read_bytes()
    for start in range(0, len(content), 512):
        path.write_bytes(content[:start] + b"\xff" * 64 + content[start + 64 :])
        with suppress(LedgerError):
            assert Ledger.open(path, read_only=True).spent("visits") == Fraction(1, 3)


# --- durability and many processes -----------------------------------------------------------------------


def create_many(folder, rounds, gate, results):
    for i in range(rounds):
        gate.wait()
        try:
            Ledger.open(folder / f"{i}.db", create=True).charge("1/7", **HOW)
            results.put("made")
        except Exception as error:
            results.put(repr(error))


@pytest.mark.slow
def test_processes_that_create_one_ledger_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    gate, results, rounds = context.Barrier(3), context.Queue(), 8
    children = [context.Process(target=create_many, args=(tmp_path, rounds, gate, results)) for _ in range(3)]
    for child in children:
        child.start()
    said = [results.get(timeout=60) for _ in range(3 * rounds)]
    for child in children:
        child.join()
    assert said == ["made"] * 3 * rounds
    for i in range(rounds):
        assert Ledger.open(tmp_path / f"{i}.db").spent("default") == Fraction(3, 7)


def test_threads_share_a_ledger(make):
    ledger = make(1)
    granted = []

    def work():
        try:
            while True:
                granted.append(ledger.charge("1/30", **HOW).use())
        except BudgetExceeded:
            pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(granted) == ledger.spent("default") == 1


def test_opening_while_others_charge(path):
    """The check on opening reads one snapshot: a charge in between is not damage."""
    Ledger.open(path, create=True).set_limit("default", 1)
    child = stress._child("charge_until_refused", path, Fraction(1, 40))
    stress._hear(child, "ready")
    stress._say(child)
    while child.poll() is None:
        Ledger.open(path, create=True)
    assert child.communicate()[0].strip() == "40"


@pytest.mark.slow
def test_eight_processes_spend_the_limit_exactly():
    rows = stress.race(processes=8, charges=120)
    assert [row["what"] for row in rows if not row["pass"]] == []
    assert {"name", "what", "n", "repeats", "value", "unit", "limit", "pass"} == set(rows[0])


@pytest.mark.slow
def test_a_killed_process_never_draws_unpaid():
    rows = stress.kill(repeats=6)
    assert [row["what"] for row in rows if not row["pass"]] == []
    wasted = next(row for row in rows if row["what"] == "charges wasted")
    assert wasted["value"] >= 3  # every second kill falls between charge and draw


def test_the_stress_test_notices_unpaid_draws():
    ledger = MemoryLedger()
    for what in "abc":
        ledger.charge(1, mechanism="m", what=what)
    assert stress.account(ledger.entries(), ["a", "b"]) == (0, 1)
    assert stress.account(ledger.entries(), ["a", "b", "b"]) == (1, 1)
    assert stress.account(ledger.entries(), ["a", "b", "c", "d"]) == (1, 0)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("to", ["rows", "nothing", "version 1"])
def test_a_ledger_that_was_rolled_back_is_refused_again_and_again(tmp_path, read_only, to):
    path = tmp_path / "ledger.db"
    writer = Ledger.open(path, create=True)
    empty = path.read_bytes()
    writer.set_limit("default", "1")
    old = {"rows": path.read_bytes(), "nothing": empty, "version 1": VERSION_1.read_bytes()}[to]
    writer.charge(Fraction(1), **HOW)
    looker = Ledger.open(path, read_only=True) if read_only else writer
    assert looker.spent("default") == 1
    path.write_bytes(old)
    for _ in range(2):
        with pytest.raises(LedgerError, match="rows that it held before"):
            looker.spent("default")
        with pytest.raises(LedgerError, match="rows that it held before"):
            writer.check(Fraction(1))
        with pytest.raises(LedgerError, match="rows that it held before"):
            writer.charge(Fraction(1), **HOW)


def test_a_row_that_was_taken_away_again_is_forgotten(tmp_path, monkeypatch):
    """A reader without the lock may have seen it; nobody was told that it was charged."""
    path = tmp_path / "ledger.db"
    writer, looker = Ledger.open(path, create=True), Ledger.open(path)
    writer.charge(Fraction(1, 4), **HOW)
    seen = []

    def fails(_: int) -> None:
        seen.append(looker.spent("default"))
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_sync", fails)
        with pytest.raises(LedgerError):
            writer.charge(Fraction(1, 2), **HOW)
    assert seen == [Fraction(3, 4)]
    assert looker.spent("default") == Fraction(1, 4)
    looker.charge(Fraction(1, 8), **HOW)
    assert looker.spent("default") == writer.spent("default") == Fraction(3, 8)


def test_a_reader_of_version_1_adds_up_once_when_it_is_converted(tmp_path):
    path = tmp_path / "ledger.db"
    shutil.copy(VERSION_1, path)
    looker = Ledger.open(path, read_only=True)
    names = looker.datasets()
    before = {name: looker.spent(name) for name in names}
    Ledger.open(path)
    assert {name: looker.spent(name) for name in names} == before
