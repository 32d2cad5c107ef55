"""One rule, one sentence, one reading: what a release says and asks on its way is written in one place."""

import doctest
import json
from fractions import Fraction

import pytest

import dphist
from dphist import records
from dphist.domain import Categories, Domain, Regular
from dphist.errors import UsageError
from dphist.planning import plan as plan_module
from dphist.privacy import counts, curator, ledger
from dphist.records.check import check
from dphist.release import Spent
from shell import dphist as invoke

BINS = {"bins": 3, "range": (0, 60)}
AGES = Domain((Regular(lo=0, hi=60, bins=3),))


@pytest.fixture
def visits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("pid,age\na,5\na,15\nb,30\n")
    return "visits.csv"


@pytest.mark.parametrize(
    ("unit", "k", "words"),
    [
        (None, 1, "one record"),
        ("pid", 1, "one pid with at most 1 record"),
        ("pid", 3, "one pid with at most 3 records"),
    ],
)
def test_the_unit_has_the_same_words_in_preview_dry_run_release_and_ledger(visits, unit, k, words):
    plan = dphist.Plan(**BINS, epsilon=1, column="age", unit=unit, max_contributions=k)
    book = dphist.Ledger.open("l.db", create=True)
    release = plan.release(visits, ledger=book)
    options = () if unit is None else ("--unit", unit, "--max-contributions", k)
    asked = ("--column", "age", "--bins", "3", "--range", "0", "60", "--epsilon", "1", *options)
    shown = json.loads(invoke("publish", visits, *asked, "--ledger", "l.db", "--dry-run", "--json").stdout)
    said = {release.unit, plan.preview().releases[0].unit, shown["unit"], book.entries()[0].unit}
    assert said == {words} == {counts.unit_words(unit, k)}


def test_ready_counts_have_their_words_from_there_too():
    for sensitivity, words in ((1, "one record"), (4, "one unit that changes the counts by 4")):
        release = dphist.from_counts([5, 6], epsilon=1, sensitivity=sensitivity)
        assert release.unit == words == counts.unit_words(None, sensitivity)
    assert doctest.testmod(counts).failed == 0 < doctest.testmod(counts).attempted


def test_the_rules_of_unit_and_clipping_have_one_text_each(visits):
    """Python, the command line, counting and checking refuse the same in the same words."""
    table = [visits, "--column", "age", "--epsilon", "1"]
    numbers, labels = ("--bins", "3", "--range", "0", "60"), ("--categories", "a,b")
    for given, domain, flags in (
        ({**BINS, "max_contributions": 2}, AGES, (*numbers, "--max-contributions", "2")),
        (
            {"categories": ["a", "b"], "outside": "clip"},
            Domain((Categories(["a", "b"]),)),
            (*labels, "--outside", "clip"),
        ),
    ):
        reading = {key: value for key, value in given.items() if key in ("max_contributions", "outside")}
        said = {invoke("publish", *table, *flags, code=2).stderr.replace(" Nothing was charged.", "")}
        said |= {invoke("check", *table[:3], *flags, code=2).stderr}
        for ask in (
            lambda given=given: dphist.Plan(**given, epsilon=1, column="age"),
            lambda domain=domain, reading=reading: records.count(visits, domain, columns="age", **reading),
            lambda domain=domain, reading=reading: check(visits, domain, columns="age", **reading),
        ):
            with pytest.raises(UsageError) as refused:
                ask()
            said.add(f"error: {refused.value}\n")
        assert len(said) == 1, said


def test_a_column_that_is_no_name_is_refused_before_any_record_is_read():
    for wrong in (5, [1, 2], "", ("a", "")):
        with pytest.raises(UsageError, match="a column must be a name"):
            dphist.Plan(**BINS, epsilon=1, column=wrong)


def test_epsilon_is_read_once(visits, monkeypatch):
    """Where a plan is made; from there on it is an exact fraction."""
    read, real = [], ledger._read
    monkeypatch.setattr(ledger, "_read", lambda value: read.append(value) or real(value))
    book = dphist.Ledger.open("l.db", create=True)
    release = dphist.histogram(visits, **BINS, column="age", epsilon="0.1", ledger=book)
    assert read == ["0.1"] and release.epsilon == book.spent("default") == Fraction(1, 10)


def test_what_the_curator_spent_is_what_the_release_says():
    assert curator.Spent is Spent
    release = dphist.from_counts([5, 6], epsilon="0.5")
    assert release.charges == (Spent("totals of 2 disjoint groups", Fraction(1), Fraction(1, 2)),)
    with pytest.warns(DeprecationWarning, match="SpentShare is called Spent now"):
        assert dphist.release.SpentShare is Spent


def test_a_document_is_plain_and_belongs_to_whoever_asked():
    release = dphist.from_counts([5, 6], epsilon="0.5", method="identity", workload=[(0, 1), (0, 2)])

    def kinds(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {type(value)}.union(*map(kinds, inner))

    document = release.to_dict()
    assert kinds(document) <= {dict, list, str, int, float, bool, type(None)}
    document["parameters"]["shares"]["estimate"] = document["raw"][0] = 7
    assert release.to_dict() != document and release.parameters["shares"]["estimate"] == "1"
    assert json.loads(release.to_json()) == release.to_dict()


def test_no_public_name_takes_or_gives_exact_counts_to_publish():
    assert not [name for name in ("publish", "_publish") if hasattr(dphist.Plan, name)]
    assert not {"records", "Counts", "Curator"} & set(dphist.__all__)
    assert [n for n in vars(plan_module) if "publish" in n] == ["_publish", "_publish_together"]
