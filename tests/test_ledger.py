"""The budget is exact, durable, append-only, and never overspent."""

import copy
import csv
import io
import json
import multiprocessing
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dphist.bench import ledger as stress
from dphist.errors import BudgetExceeded, LedgerError, PrivacyError, UsageError
from dphist.privacy import ledger as module
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
        ledger = Ledger.open(path)
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
        Charge(Fraction(1), "default", "release")
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
        ledger = Ledger.open(path)
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
    ledger = Ledger.open(tmp_path / "my ledger.db")
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
    ledger = Ledger.open(path)
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
    file = Ledger.open(tmp_path_factory.mktemp("any") / "ledger.db")
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
    ledger = Ledger.open(path)
    assert ledger.set_limit("default", 1) == "limit 1, of which 1 is left"
    ledger.charge("3/4", **HOW)
    assert ledger.set_limit("default", "1/2").endswith("every charge is refused")
    assert ledger.remaining("default") == 0
    with pytest.raises(BudgetExceeded, match=r"and 0 is left"):
        ledger.charge("1/100", **HOW)
    assert ledger.set_limit("default", None).startswith("no limit")
    ledger.charge(5, **HOW)
    again = Ledger.open(path)
    assert [(e.kind, e.epsilon) for e in again.entries()] == [
        ("limit", 1), ("charge", Fraction(3, 4)), ("limit", Fraction(1, 2)), ("limit", None), ("charge", 5),
    ]  # fmt: skip
    assert again.limit("default") is None
    assert again.datasets() == ["default"]


@pytest.mark.parametrize("limit", [0, -1, "junk", float("inf")])
def test_a_bad_limit_is_refused(path, limit):
    ledger = Ledger.open(path)
    with pytest.raises(UsageError, match="limit"):
        ledger.set_limit("default", limit)
    with pytest.raises(UsageError, match="limit"):
        MemoryLedger(limit)
    assert ledger.entries() == []


# --- the journal -----------------------------------------------------------------------------------------


def test_a_row_says_who_what_and_when(make):
    ledger = make()
    ledger.charge("1/3", mechanism="dawa", what="ages", purpose="trial")
    (entry,) = ledger.entries()
    assert replace(entry, when="") == Entry(
        1, "", "default", Fraction(1, 3), "dawa", "ages", "trial", "charge"
    )
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
    ledger = Ledger.open(path)
    ledger.set_limit("default", None)
    for text in NASTY:
        ledger.charge("1/3", mechanism="m", what=text)
    rows = list(csv.DictReader(io.StringIO(to_csv(ledger.entries()), newline="")))
    objects = json.loads(to_json(ledger.entries()))
    assert [r["what"] for r in rows[1:]] == [o["what"] for o in objects[1:]] == NASTY
    assert {(r["epsilon"], r["decimal"]) for r in rows[1:]} == {("1/3", "0.333333333333")}
    assert {(o["epsilon"], o["decimal"]) for o in objects[1:]} == {("1/3", "0.333333333333")}
    assert (rows[0]["epsilon"], objects[0]["epsilon"]) == ("", None)
    assert (
        [int(r["number"]) for r in rows] == [o["number"] for o in objects] == list(range(1, len(NASTY) + 2))
    )
    assert to_json([]) == "[]"
    assert to_csv([]).count("\n") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET epsilon = '1/1000'",
        "DELETE FROM journal",
        "INSERT OR REPLACE INTO journal SELECT 1, moment, dataset, '1/9', '', '', '', kind FROM journal",
        "REPLACE INTO journal VALUES (1, '', 'default', '1/9', '', '', '', 'charge')",
    ],
)  # fmt: skip
def test_the_journal_is_append_only(path, statement):
    ledger = Ledger.open(path)
    ledger.charge(1, **HOW)
    before = ledger.entries()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw(path, statement)
    assert Ledger.open(path).entries() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE datasets SET spent = '1/2'"],
        ["UPDATE datasets SET spent = '0/1'"],
        ["UPDATE datasets SET spent = 'junk'"],
        ["UPDATE datasets SET spent = '1/0'"],
        ["UPDATE datasets SET spent = 1"],
        ["UPDATE datasets SET ceiling = '100/1'"],
        ["UPDATE datasets SET ceiling = NULL"],
        ["DELETE FROM datasets"],
        ["INSERT INTO datasets VALUES ('other', '1/1', NULL)"],
        ["DROP TRIGGER journal_keeps_rows"],
        ["DROP TRIGGER journal_keeps_rows", "DELETE FROM journal WHERE number = 2"],
        ["DROP TRIGGER journal_keeps_values", "UPDATE journal SET epsilon = '1/1000' WHERE number = 2"],
        ["INSERT INTO journal VALUES (NULL, '', 'default', '1/9', '', '', '', 'charge')"],
        ["INSERT INTO journal VALUES (NULL, '', 'default', '-1/9', '', '', '', 'charge')"],
        ["INSERT INTO journal VALUES (77, '', 'default', '9/1', '', '', '', 'limit')"],
        ["DROP TABLE journal"],
        ["DROP TABLE datasets"],
    ],
)
def test_a_ledger_that_does_not_add_up_is_refused(path, statements):
    ledger = Ledger.open(path)
    ledger.set_limit("default", 9)
    ledger.charge(1, **HOW)
    ledger.charge(1, **HOW)
    ledger.verify()
    raw(path, *statements)
    with pytest.raises(LedgerError):
        Ledger.open(path)
    with pytest.raises(LedgerError):
        ledger.verify()


def test_the_dataset_that_does_not_add_up_is_named(path):
    ledger = Ledger.open(path)
    ledger.charge(1, dataset="visits", **HOW)
    ledger.charge(1, dataset="ages", **HOW)
    raw(path, "UPDATE datasets SET spent = '1/2' WHERE name = 'visits'")
    with pytest.raises(LedgerError, match=r"altered outside dphist.*limit: visits\).*backup"):
        ledger.verify()


# --- files that are not ledgers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"x", b"some text\n" * 1000, b"SQLite format 3\0" + b"\xff" * 5000], ids=len
)
def test_a_file_that_is_not_sqlite(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"Nothing was drawn"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused_and_left_alone(path):
    raw(path, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(LedgerError, match="not a dphist ledger"):
            Ledger.open(path, create=create)
    assert path.read_bytes() == before


def test_a_later_version_is_refused(path):
    Ledger.open(path)
    raw(path, "PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match=r"version 2, not 1. Update dphist"):
        Ledger.open(path)


def test_a_damaged_ledger_is_refused(path):
    ledger = Ledger.open(path)
    for _ in range(10):
        ledger.charge(1, mechanism="m", what="w" * 2000)
    content = bytearray(path.read_bytes())
    content[5000:-100] = b"\xff" * len(content[5000:-100])
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"damaged|altered"):
        Ledger.open(path)


def test_a_missing_ledger_is_not_made_unasked(path):
    with pytest.raises(LedgerError, match=r"there is no ledger at .*dphist ledger create"):
        Ledger.open(path, create=False)
    assert not path.exists()


def test_an_empty_file_is_a_ledger_only_if_one_may_be_made(path):
    path.touch()
    with pytest.raises(LedgerError, match=r"is empty, not a ledger.*dphist ledger create"):
        Ledger.open(path, create=False)
    assert Ledger.open(path).entries() == []


def test_a_ledger_deleted_under_us_is_not_made_again(path):
    ledger = Ledger.open(path)
    ledger.charge(1, **HOW)
    path.unlink()
    with pytest.raises(LedgerError, match="cannot be opened"):
        ledger.charge(1, **HOW)
    path.touch()
    with pytest.raises(LedgerError, match="is empty"):
        ledger.charge(1, **HOW)


def test_places_where_no_ledger_can_be(tmp_path):
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger.open(tmp_path)
    with pytest.raises(LedgerError, match=r"directory .* does not exist"):
        Ledger.open(tmp_path / "missing" / "ledger.db")
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger.open("a\0b.db")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_an_unwritable_directory():
    with pytest.raises(LedgerError, match=r"cannot be opened. Make the file and its directory writable"):
        Ledger.open("/proc/self/ledger.db")


@pytest.mark.parametrize(
    "name", ["with space.db", "per%20cent.db", "what?.db", "hash#.db", "Ärzte.db", ":memory:"]
)
def test_any_file_name(tmp_path, name):
    Ledger.open(tmp_path / name).charge(1, **HOW)
    assert (tmp_path / name).is_file()
    assert Ledger.open(tmp_path / name, create=False).spent("default") == 1


def test_a_ledger_is_opened_by_its_name_too(path, tmp_path):
    for made in (Ledger(path), Ledger(str(path))):
        made.charge(1, **HOW)
        assert made == Ledger.open(path) and made.path == path
    assert repr(Ledger(path)) == f"Ledger(path={path!r})"
    assert Ledger(path).spent("default") == 2
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger(tmp_path)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.db", create=False)
    for wrong in (None, 3, b"x.db", sqlite3):
        with pytest.raises(UsageError, match="opened by its path"):
            Ledger(wrong)


def test_a_ledger_opened_for_reading_changes_nothing(path, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.open(path, read_only=True)
    assert not path.exists()
    Ledger.open(path).charge("1/3", **HOW)
    seen = Ledger.open(path, read_only=True)
    assert seen.spent("default") == Fraction(1, 3) and len(seen.entries()) == 1
    for write in (lambda: seen.charge(1, **HOW), lambda: seen.set_limit("default", 5)):
        with pytest.raises(LedgerError, match=r"for reading only\. Nothing was drawn"):
            write()
    assert len(Ledger.open(path).entries()) == 1
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("busy", [False, True], ids=["alone", "with a log"])
def test_an_auditor_reads_where_nothing_may_be_written(busy):
    """Root may write anywhere, so the child becomes somebody else first."""
    code = """if True:
        import os, sys
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
        Ledger.open(path).charge("1/3", **HOW)
        holder = sqlite3.connect(path, isolation_level=None) if busy else None
        if holder:  # a connection that is open keeps the log, in which the next charge lies
            holder.execute("SELECT * FROM journal").fetchall()
            Ledger.open(path).charge("1/3", **HOW)
            assert Path(f"{path}-wal").stat().st_size
        for file in Path(folder).iterdir():
            file.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            assert run(code, path).stdout.split() == ["2/3" if busy else "1/3", "refused"]
        finally:
            Path(folder).chmod(0o755)
            if holder:
                holder.close()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("ledger.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ledger.charge(1, **HOW)
    assert Ledger.open(tmp_path / "ledger.db").spent("default") == 1


def hampered(monkeypatch, pragma, timeout=60):
    real = sqlite3.connect

    def connect(*args, **kwargs):
        db = real(*args, **(kwargs | {"timeout": timeout}))
        db.execute(pragma)
        return db

    monkeypatch.setattr(module.sqlite3, "connect", connect)


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        ("PRAGMA max_page_count = 1", "disk is full. Make room"),
        ("PRAGMA query_only = ON", "it cannot be written"),
    ],
)
def test_a_full_disk_or_a_read_only_file_changes_nothing(path, monkeypatch, pragma, words):
    ledger = Ledger.open(path)
    ledger.charge(1, **HOW)
    before = ledger.entries()
    with monkeypatch.context() as patch:
        hampered(patch, pragma)
        with pytest.raises(LedgerError, match=f"{words}.*Nothing was drawn"):
            ledger.charge(1, mechanism="m", what="x" * 100_000)
    assert ledger.entries() == before
    ledger.verify()


def test_writes_that_fail_halfway_change_nothing(path):
    Ledger.open(path).charge(1, **HOW)
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
    assert Ledger.open(path).spent("default") == 1


def test_a_ledger_held_by_another_process(path, monkeypatch):
    ledger = Ledger.open(path)
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        assert ledger.spent("default") == 0  # reading goes on
        hampered(monkeypatch, "PRAGMA temp_store = 2", timeout=0.1)
        with pytest.raises(LedgerError, match=r"another process has held it.*Nothing was drawn"):
            ledger.charge(1, **HOW)
    finally:
        holder.close()
    ledger.charge(1, **HOW)


# --- durability and many processes -----------------------------------------------------------------------


def test_the_charge_is_on_disk_before_it_is_returned(path, monkeypatch):
    ledger = Ledger.open(path)
    seen, settings_seen, real, connect = [], [], module.Charge, sqlite3.connect

    class Tracing(sqlite3.Connection):
        def execute(self, sql, *args):
            if sql == "COMMIT":
                modes = "PRAGMA journal_mode", "PRAGMA synchronous"
                settings_seen.append(tuple(super(Tracing, self).execute(m).fetchone()[0] for m in modes))
            return super().execute(sql, *args)

    def spy(*args):
        db = connect(path)
        seen.append(db.execute("SELECT epsilon, what FROM journal").fetchall())
        db.close()
        return real(*args)

    monkeypatch.setattr(module, "Charge", spy)
    monkeypatch.setattr(module.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Tracing))
    with monkeypatch.context():
        ledger.charge("1/3", mechanism="m", what="w")
    assert seen == [[("1/3", "w")]]
    assert settings_seen == [("wal", 3)]  # 3 is EXTRA: at least FULL, a sync at every commit


def test_an_interrupted_transaction_leaves_nothing(path, monkeypatch):
    ledger = Ledger.open(path)
    ledger.charge(1, **HOW)

    def interrupted(*args):
        real(*args)
        raise KeyboardInterrupt

    real = module._write
    monkeypatch.setattr(module, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge(1, **HOW)
    monkeypatch.undo()
    assert ledger.spent("default") == 1
    assert len(ledger.entries()) == 1


def create_many(folder, rounds, gate, results):
    for i in range(rounds):
        gate.wait()
        try:
            Ledger.open(folder / f"{i}.db").charge("1/7", **HOW)
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
        assert Ledger.open(tmp_path / f"{i}.db", create=False).spent("default") == Fraction(3, 7)


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
    Ledger.open(path).set_limit("default", 1)
    child = stress._child("charge_until_refused", path, Fraction(1, 40))
    stress._hear(child, "ready")
    stress._say(child)
    while child.poll() is None:
        Ledger.open(path)
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
