"""dphist plan: a file of several histograms, priced before anything is spent, published all or none."""

import contextlib
import json
import os
import signal

import pytest

import dphist as library
from dphist.cli import plan as command
from shell import dphist, program

PLAN = """\
data = "people.csv"
ledger = "l.db"
dataset = "people"
epsilon = 0.6   # a comment
unit = "person"

[histograms.ages]
share = "2/3"
column = "age"
bins = 10
range = [0, 100]
max_contributions = 5

[histograms.kinds]
column = "kind"
categories = ["a", "b"]
"""


@pytest.fixture
def planned(here):
    (here / "plan.toml").write_text(PLAN)
    dphist("ledger", "create", "l.db", "--limit", "1", "--dataset", "people")
    return here


def spent():
    return library.Ledger.open("l.db", read_only=True).spent("people")


def test_a_new_plan_is_one_that_can_be_shown(here):
    said = dphist("plan", "new", "plan.toml", "--data", "people.csv").stdout
    assert "dphist plan price plan.toml" in said
    shown = dphist("plan", "show", "plan.toml").stdout
    assert "people.csv" in shown and "wards" in shown and "0.6" in shown
    before = (here / "plan.toml").read_text()
    assert "exists" in dphist("plan", "new", "plan.toml", code=2).stderr
    assert (here / "plan.toml").read_text() == before


def test_show_reads_neither_records_nor_a_ledger(planned):
    (planned / "people.csv").unlink()
    (planned / "l.db").unlink()
    said = json.loads(dphist("plan", "show", "plan.toml", "--json").stdout)
    assert said["epsilon"] == "3/5" and said["unit"] == "one person with at most 5 records"
    assert {name: h["epsilon"] for name, h in said["histograms"].items()} == {"ages": "2/5", "kinds": "1/5"}
    assert dphist("plan", "show", "plan.toml").stdout.count("  auto  ") == 2


def test_the_price_and_the_errors_of_all_come_before_anything_is_spent(planned):
    (planned / "people.csv").unlink()
    said = json.loads(dphist("plan", "price", "plan.toml", "--json").stdout)
    assert (said["left"], said["left_after"]) == ("1", "2/5")
    ages, kinds = (said["histograms"][name]["expected_error"]["points"] for name in ("ages", "kinds"))
    assert ages == pytest.approx(2**0.5 * 5 / 0.4, rel=0.2), "noise of scale k / epsilon"
    assert kinds == pytest.approx(2**0.5 / 0.2, rel=0.5)
    text = dphist("plan", "price", "plan.toml", "--records", "500").stdout
    assert "epsilon 0.6, charged once to 'people'" in text and "1 now, 0.4 after" in text
    assert spent() == 0


def test_a_plan_that_costs_more_than_is_left_is_refused_by_both(planned):
    dphist("ledger", "limit", "l.db", "0.5", "--dataset", "people")
    assert "0.6" in dphist("plan", "price", "plan.toml", code=3).stdout, "its price is shown all the same"
    dphist("plan", "publish", "plan.toml", code=3)
    assert spent() == 0 and not (planned / "plan").exists()


def test_all_are_published_for_one_charge(planned):
    run = dphist("plan", "publish", "plan.toml")
    assert run.stderr.startswith("releases: plan\n") and "spent 0.6 of 1, 0.4 left" in run.stderr
    assert sorted(f.name for f in (planned / "plan").iterdir()) == ["ages.json", "kinds.json"]
    (charge,) = [e for e in library.Ledger.open("l.db").entries("people") if e.kind == "charge"]
    assert str(charge.epsilon) == "3/5" and charge.what == "people.csv: ages, kinds"
    ages = library.load("plan/ages.json")
    assert str(ages.epsilon) == "2/5" and ages.sensitivity == 5
    assert ages.provenance["publication"]["epsilon"] == "3/5"
    assert ages.provenance["publication"]["share"] == "2/3"
    assert (planned / "plan.toml").read_text() == PLAN, "comments and all"
    assert [p.name for p in planned.iterdir() if p.name.startswith(".")] == [], "nothing is left behind"


def test_a_second_publication_takes_a_folder_of_its_own(planned):
    dphist("ledger", "limit", "l.db", "2", "--dataset", "people")
    dphist("plan", "publish", "plan.toml")
    first = (planned / "plan" / "ages.json").read_text()
    assert "releases: plan-2" in dphist("plan", "publish", "plan.toml").stderr
    assert (planned / "plan" / "ages.json").read_text() == first
    assert "exists" in dphist("plan", "publish", "plan.toml", "--out", "plan", code=2).stderr
    dphist("plan", "publish", "plan.toml", "--out", "third")
    assert (planned / "third" / "kinds.json").exists()


def test_other_records_under_the_same_plan(planned):
    (planned / "june.csv").write_text("age,kind,person\n1,a,x\n")
    made = json.loads(dphist("plan", "publish", "plan.toml", "june.csv", "--json").stdout)
    assert made["ages"]["provenance"]["source"] == "june.csv"
    text = (planned / "june.csv").read_text()
    run = program("plan", "publish", "plan.toml", "-", input=text, code=3)
    assert "left" in run.stderr


def test_groups_and_grids_and_times_in_a_plan_file(here):
    (here / "plan.toml").write_text(
        'data = "people.csv"\nepsilon = 100000\n'
        '[histograms.by_kind]\ncolumn = "age"\nbins = 2\nrange = [0, 100]\nby = "kind"\ngroups = ["a", "b"]\n'
        '[histograms.grid]\ncolumn = "age"\nbins = 2\nrange = [0, 100]\ny_column = "kind"\n'
        'y_categories = ["a", "b"]\n'
    )
    made = json.loads(dphist("plan", "publish", "plan.toml", "--json").stdout)
    assert set(made) == {"by_kind", "grid"}
    groups, grid = library.load("plan/by_kind.json"), library.load("plan/grid.json")
    assert groups["a"].values().tolist() == grid.values()[:, 0].tolist() == [250, 250]
    shown = dphist("plan", "show", "plan.toml").stdout
    assert "age by kind" in shown and "for each kind" in shown
    told = json.loads(dphist("plan", "price", "plan.toml", "--json").stdout)["histograms"]
    assert set(told["by_kind"]["expected_error"]) == {"kind"}, "an error for each level"


def test_what_is_wrong_is_said_before_the_charge(planned):
    (planned / "plan.toml").write_text(PLAN.replace("categories", "categorys"))
    assert "Did you mean 'categories'" in dphist("plan", "publish", "plan.toml", code=2).stderr
    (planned / "plan.toml").write_text(PLAN.replace('"2/3"', "1.2"))
    assert "1.2" in dphist("plan", "publish", "plan.toml", code=2).stderr
    (planned / "plan.toml").write_text(PLAN.replace('"kind"', '"kinds"'))
    assert "Did you mean" in dphist("plan", "publish", "plan.toml", code=4).stderr
    (planned / "plan.toml").write_text(PLAN.replace("l.db", "m.db"))
    assert "m.db" in dphist("plan", "publish", "plan.toml", code=3).stderr
    (planned / "plan.toml").write_text(PLAN.replace('data = "people.csv"\n', ""))
    assert "names no data" in dphist("plan", "publish", "plan.toml", code=2).stderr
    (planned / "plan.toml").write_text(PLAN)
    assert "does not exist" in dphist("plan", "publish", "plan.toml", "--out", "no/where", code=2).stderr
    (planned / "records").mkdir()
    (planned / "people.csv").rename(planned / "records" / "people.csv")
    (planned / "plan.toml").write_text(PLAN.replace("people.csv", "records"))
    said = dphist("plan", "publish", "plan.toml", "--out", "records/new", code=2).stderr
    assert "read it as records" in said
    assert spent() == 0 and not (planned / "m.db").exists()


def test_no_part_of_a_publication_is_ever_seen_alone(planned, monkeypatch):
    """Where the second file cannot be written, neither is there; both are kept elsewhere."""
    real = library.Release.save

    def fails(self, path, **more):
        if path.name == "kinds.json" and path.absolute().parents[2] == planned:
            raise library.errors.OutputError("the disk is full.")
        return real(self, path, **more)

    (planned / "elsewhere").mkdir()
    monkeypatch.setattr(library.Release, "save", fails)
    monkeypatch.setattr(command.tempfile, "tempdir", str(planned / "elsewhere"))
    said = dphist("plan", "publish", "plan.toml", code=2).stderr
    assert "the disk is full. The releases are paid for, so they were kept in" in said and "mv " in said
    assert not (planned / "plan").exists() and not [p for p in planned.iterdir() if p.name.startswith(".")]
    (kept,) = (planned / "elsewhere").glob("dphist-*/plan")
    assert sorted(p.name for p in kept.iterdir()) == ["ages.json", "kinds.json"]


def test_releases_that_can_be_saved_nowhere_are_printed(planned, monkeypatch):
    def fails(*_, **__):
        raise library.errors.OutputError("the disk is full.")

    monkeypatch.setattr(command, "_save", fails)
    run = dphist("plan", "publish", "plan.toml", code=2)
    assert "keep that output" in run.stderr
    first, second = run.stdout.splitlines()[0], run.stdout
    assert json.loads(first) and second.count('"publication"') == 2


def test_interrupts_say_what_was_charged_and_saved(planned, monkeypatch):
    from dphist import records
    from dphist.methods.pipeline import Pipeline

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(records, "count_together", stop)
        assert (
            dphist("plan", "publish", "plan.toml", code=130).stderr == "interrupted; nothing was charged.\n"
        )
    dphist("ledger", "limit", "l.db", "none", "--dataset", "people")
    with monkeypatch.context() as patch:  # not while it is rehearsed, but after the charge
        rehearse = Pipeline.run
        patch.setattr(Pipeline, "run", lambda self, curator, *a, **k: stop() if not curator.is_simulated
                      else rehearse(self, curator, *a, **k))  # fmt: skip
        said = dphist("plan", "publish", "plan.toml", code=130).stderr
        assert said.endswith("interrupted after epsilon 0.6 was charged; nothing was saved.\n")
        assert not (planned / "plan").exists()
    real = command.undisturbed

    @contextlib.contextmanager
    def pressed_at_the_end():
        with real():
            yield
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "undisturbed", pressed_at_the_end)
    said = dphist("plan", "publish", "plan.toml", code=130).stderr
    assert said.endswith("interrupted; the releases are safe in plan, and epsilon 0.6 was charged.\n")
    assert (planned / "plan" / "ages.json").exists()


def test_ctrl_c_while_saving_waits_for_all_of_them(planned, monkeypatch):
    real = command._save

    def pressed(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*args)

    monkeypatch.setattr(command, "_save", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        dphist("plan", "publish", "plan.toml")
        assert len(list((planned / "plan").iterdir())) == 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_ledger_that_nobody_named_is_made_just_before_the_charge(here):
    text = PLAN.replace('ledger = "l.db"\n', "")
    (here / "plan.toml").write_text(text.replace('"kind"', '"kinds"'))
    dphist("plan", "publish", "plan.toml", code=4)
    assert not (here / "dphist-ledger.db").exists()
    (here / "plan.toml").write_text(text)
    assert "a new ledger was made" in dphist("plan", "publish", "plan.toml").stderr


def test_many_groups_are_saved_as_parquet(here, monkeypatch):
    from dphist.release import grouped_files

    monkeypatch.setattr(grouped_files, "MOST_IN_JSON", 3)
    (here / "plan.toml").write_text(
        'data = "people.csv"\nepsilon = 1\n'
        '[histograms.ages]\ncolumn = "age"\nbins = 2\nrange = [0, 100]\nby = "kind"\ngroups = ["a", "b"]\n'
    )
    dphist("plan", "publish", "plan.toml")
    assert library.load("plan/ages.parquet")["a"].values().size == 2


def test_a_grouped_release_is_printed_as_json_too(here):
    ask = ("--column", "age", "--bins", "2", "--range", "0", "100", "--by", "kind", "--groups", "a,b")
    made = dphist("publish", "people.csv", *ask, "--epsilon", "1", "--json").stdout
    assert json.loads(made)["epsilon"] == "1"
