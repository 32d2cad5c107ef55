"""A publication that is charged once, in the shell as in the studio: run again, it is shown or finished."""

import json
from pathlib import Path

import pytest

import dphist as library
from dphist.planning import once
from dphist.privacy.ledger import Ledger
from dphist.release.glance import is_release
from shell import dphist
from studio_client import studio_page

PLAN = """\
data = "people.csv"
ledger = "l.db"
epsilon = 0.5
[histograms.ages]
column = "age"
integers = [0, 9]
method = "identity"
"""
PUBLISH = ("plan", "publish", "plan.toml", "--once")


class Killed(BaseException):
    """The end of the process: nothing catches it."""


def killed(*_):
    raise Killed


@pytest.fixture
def planned(here):
    (here / "plan.toml").write_text(PLAN)
    Ledger.open("l.db", create=True).set_limit("default", 2)
    return here


def charges():
    return [entry for entry in Ledger.open("l.db").entries() if entry.kind == "charge"]


def test_run_again_it_shows_the_same_releases_and_charges_nothing(planned):
    first = dphist(*PUBLISH, "--json")
    again = dphist(*PUBLISH, "--json")
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert "published before, and charged as entry 2" in again.stderr and len(charges()) == 1
    assert [p.name for p in planned.glob("plan*")] == ["plan.toml", "plan"] or len(
        list(planned.glob("plan*"))
    ) == 2
    found = studio_page(planned).ask("plan/open", path="plan.toml")
    state = studio_page(planned).ask("publish/prepare", path="plan.toml", plan_digest=found["plan_digest"])
    assert state["state"] == "published" and state["entry"] == 2, "the studio knows what the shell published"


def test_other_records_or_another_plan_are_another_publication(planned):
    dphist(*PUBLISH)
    (planned / "more.csv").write_text((planned / "people.csv").read_text())
    dphist("plan", "publish", "plan.toml", "more.csv", "--once")
    (planned / "plan.toml").write_text(PLAN.replace("0.5", "0.25"))
    dphist(*PUBLISH)
    assert [str(e.epsilon) for e in charges()] == ["1/2", "1/2", "1/4"]


def test_without_it_every_run_is_a_new_charge_and_the_second_says_so(planned):
    first, second = (dphist("plan", "publish", "plan.toml") for _ in range(2))
    assert "charged before" not in first.stderr
    assert "charged before, as entry 2, and is charged again now; --once shows" in second.stderr
    assert len(charges()) == 2


def test_it_finds_what_was_published_without_it(planned):
    first = dphist("plan", "publish", "plan.toml", "--json")
    again = dphist(*PUBLISH, "--json")
    assert json.loads(first.stdout) == json.loads(again.stdout) and len(charges()) == 1


def test_two_runs_at_the_same_moment_are_one_charge(planned, monkeypatch):
    from dphist.cli import plan

    real = plan._released

    def overtaken(*given):
        real(*given)
        return real(*given)

    monkeypatch.setattr(plan, "_released", overtaken)
    said = dphist("plan", "publish", "plan.toml", code=3).stderr
    assert "another process published this plan meanwhile, as entry 2" in said and "run this again" in said
    assert len(charges()) == 1


def test_standard_input_has_no_name_and_no_token(planned, monkeypatch):
    for _ in range(2):
        with Path("people.csv").open() as records:
            monkeypatch.setattr("sys.stdin", records)
            dphist("plan", "publish", "plan.toml", "-")
    assert len(charges()) == 2 and not any(entry.token for entry in charges())


def test_what_only_lacks_its_name_is_finished(planned, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(once, "_named", killed)
        with pytest.raises(Killed):
            dphist(*PUBLISH)
    assert len(charges()) == 1 and not (planned / "plan").exists()
    run = dphist(*PUBLISH)
    assert "finished without a new charge" in run.stderr and len(charges()) == 1
    assert (planned / "plan" / "ages.json").exists() and not list(planned.glob(".dphist-release-*"))


def test_what_is_lost_is_said_and_not_drawn_again(planned, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(once, "save", killed)
        with pytest.raises(Killed):
            dphist(*PUBLISH)
    run = dphist(*PUBLISH, code=3)
    said = " ".join(run.stderr.split())
    assert f"(entry 2 of the ledger) was charged, but {once.NOT_HERE}" in said and "leave --once out" in said
    assert len(charges()) == 1 and not (planned / "plan").exists()


def test_what_is_whole_but_for_a_file_is_lost(planned, monkeypatch):
    two = PLAN.partition("[")[2].replace("ages", "again")
    (planned / "plan.toml").write_text(f"{PLAN}[{two}")
    with monkeypatch.context() as patch:
        patch.setattr(once, "_named", killed)
        with pytest.raises(Killed):
            dphist(*PUBLISH)
    (gone,) = planned.glob(".dphist-release-*/releases/again.json")
    gone.unlink()
    assert "its releases are not here" in dphist(*PUBLISH, code=3).stderr
    assert len(charges()) == 1 and not (planned / "plan").exists()


def test_there_is_no_mark_before_every_file_is_written(planned, monkeypatch):
    seen = []
    synced = once._synced

    def watched(path):
        seen.append((path.name, bool(list(planned.glob(f".dphist-release-*/{once._MARK}")))))
        synced(path)

    monkeypatch.setattr(once, "_synced", watched)
    dphist(*PUBLISH)
    at = [marked for _, marked in seen].index(True)
    assert [name for name, _ in seen[:at]] == ["ages.json", "releases"] and seen[at][0] == once._MARK


def test_records_without_a_name_are_refused(planned):
    assert "standard input" in dphist("plan", "publish", "plan.toml", "-", "--once", code=2).stderr


def test_records_beside_it_are_not_read_to_find_it(planned, monkeypatch):
    import duckdb

    (planned / "data").mkdir()
    duckdb.sql("COPY (SELECT 1 AS age) TO 'data/x.parquet'")
    (planned / "data" / "y.json").write_text('{"age": 1}\n' * 10_000)
    dphist(*PUBLISH)
    read = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or real(path))
    dphist(*PUBLISH)
    assert "y.json" not in read and "x.parquet" not in read
    assert is_release(planned / "plan" / "ages.json") and not is_release(planned / "data" / "x.parquet")


def test_releases_in_parquet_are_found(planned):
    from dphist.release.glance import mentions

    made = library.from_counts([1, 2], epsilon=1, method="identity")
    for name in ("r.json", "r.parquet"):
        made.save(name)
        assert is_release(Path(name)) and mentions(Path(name), made.id)
        assert not mentions(Path(name), "0" * 32)
    assert not is_release(Path("people.csv")) and not is_release(Path("none.json"))


def test_a_folder_that_was_moved_is_found(planned):
    dphist(*PUBLISH)
    (planned / "plan").rename(planned / "handed in")
    assert "releases: handed in" in dphist(*PUBLISH).stderr and len(charges()) == 1
