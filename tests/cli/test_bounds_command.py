"""dphist bounds: a range where none is public, paid for and printed as an option of publish."""

import json

import pytest

import dphist as library
from shell import dphist


@pytest.fixture
def costs(here):
    rows = "".join(f"{cost},p{i // 2}\n" for i, cost in enumerate([12, 80, 350, "x", ""] * 800))
    (here / "costs.csv").write_text("cost,person\n" + rows)
    dphist("ledger", "create", "l.db", "--limit", "300")
    return here


ASK = ("bounds", "costs.csv", "--column", "cost", "--ledger", "l.db")


def test_the_range_is_printed_as_publish_takes_it(costs):
    run = dphist(*ASK, "--epsilon", "100")  # at which no noise moves a range
    *_, line = run.stdout.splitlines()
    assert line == "--range 10 500"
    assert "95 % confidence" in run.stdout and "spent 100 of 300" in run.stderr
    dphist("publish", "costs.csv", "--column", "cost", "--bins", "5", *line.split(), "--epsilon", "100",
           "--ledger", "l.db")  # fmt: skip


def test_machines_read_it_too_and_the_counts_can_be_kept(costs):
    more = ("--unit", "person", "--max-contributions", "2", "--level", "0.9", "--out", "look.json")
    told = json.loads(dphist(*ASK, "--epsilon", "200", "--json", *more).stdout)
    assert told["range"] == [10, 500] and told["level"] == 0.9
    assert told["unit"] == "one person with at most 2 records" and 0 <= told["part"] < 0.01
    assert library.load("look.json").sensitivity == 2


def test_nothing_is_charged_for_a_mistake(costs):
    assert "limit" in dphist(*ASK, "--epsilon", "301", code=3).stderr
    dphist(*ASK, "--epsilon", "0.1", "--level", "2", code=2)
    dphist(*ASK, "--epsilon", "0.1", "--outside", "clip", code=2)
    dphist("bounds", "costs.csv", "--column", "cots", "--epsilon", "0.1", "--ledger", "l.db", code=4)
    dphist(*ASK, "--epsilon", "0.1", "--out", "costs.csv", code=2)
    dphist("bounds", "costs.csv", "--column", "cost", "--epsilon", "0.1", "--ledger", "m.db", code=3)
    assert library.Ledger.open("l.db").spent("default") == 0


def test_few_records_get_no_range_and_are_told_why(costs, monkeypatch):
    from dphist.planning import bounds

    monkeypatch.setattr(bounds, "WRONG", 1e-12)  # so that no noise is taken for records here
    (costs / "few.csv").write_text("cost\n1\n2\n")
    run = dphist("bounds", "few.csv", "--column", "cost", "--epsilon", "0.1", "--ledger", "l.db")
    assert "No range can be suggested" in run.stdout and "--range" not in run.stdout


def test_an_interrupt_says_what_was_charged(costs, monkeypatch):
    from dphist import records

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "count", stop)
    assert dphist(*ASK, "--epsilon", "0.1", code=130).stderr == "interrupted; nothing was charged.\n"
