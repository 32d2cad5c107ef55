"""A paid look at a range that nobody knows: one charge, one draw, told again at no cost."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from killed import STEPS

from dphist.planning import once
from dphist.planning.bounds import magnitudes, suggest
from dphist.planning.publication import Publication
from dphist.privacy.ledger import Ledger
from dphist.release import load
from studio_client import studio_page
from studio_killed import charges, kill_in, visible
from studio_plans import plan_text

PLAN = {  # whose range is not known yet, and which is not complete therefore
    "data": "people.csv",
    "ledger": "l.db",
    "dataset": "visits",
    "epsilon": "0.5",
    "unit": "person",
    "histograms": {"ages": {"column": "age", "bins": 12, "range": [None, None], "max_contributions": 2}},
}
ASKED = {"plan": PLAN, "path": "plan.toml", "histogram": "ages", "axis": "", "epsilon": "0.05"}
TARGET = "range-of-age/magnitudes.json"


def prepared(folder, limit=2):
    rows = "\n".join(f"{i % 90},a,p{i}" for i in range(6000))
    (folder / "people.csv").write_text(f"age,kind,person\n{rows}\n")
    Ledger.open(folder / "l.db", create=True).set_limit("visits", limit)
    return studio_page(folder)


@pytest.fixture
def page(here):
    return prepared(here)


def ready(page, asked=ASKED, **more):
    found = page.ask("bounds/prepare", asked, **more)
    return asked | {"publish_token": found["publish_token"], "confirm": found["phrase"]}, found


def test_it_says_what_it_will_charge_and_changes_nothing(page, here):
    before = sorted(here.iterdir())
    _, found = ready(page)
    assert (found["state"], found["charge"], found["phrase"]) == ("new", "0.05", "charge 0.05")
    assert (found["dataset"], found["left_after"], found["limit"]) == ("visits", "1.95", "2")
    assert found["allowed"] and found["found"] is None and sorted(here.iterdir()) == before


def test_it_charges_once_and_is_told_again(page, here):
    asked, _ = ready(page)
    first = page.ask("bounds", asked)
    assert (first["charged"], first["again"], first["found"]["release"]) == ("0.05", False, TARGET)
    (paid,) = charges(here)
    assert paid.token == asked["publish_token"] and str(paid.epsilon) == "1/20"
    release = load(here / TARGET)
    found = suggest(release)
    assert first["found"]["words"] == str(found) and first["found"]["range"] == list(found.range)
    assert release.unit == "one person with at most 2 records" and release.domain.axes == (magnitudes(),)
    low, high = found.range  # by far more records than the noise are in each of these bins
    assert low <= 50 and high >= 90
    for again in (page, studio_page(here)):  # pressed again, reloaded, another server
        assert again.ask("bounds", asked)["found"] == first["found"]
        told = ready(again)[1]
        assert (told["state"], told["found"]) == ("published", first["found"])
    assert charges(here) == [paid] and list(visible(here)) == [TARGET]
    asked, found = ready(page, ASKED | {"epsilon": "0.1"})  # another look
    assert found["state"] == "new" and found["found"] is None
    assert page.ask("bounds", asked)["found"]["release"] == "range-of-age-2/magnitudes.json"
    assert len(charges(here)) == 2


def test_its_plan_is_a_file_from_which_the_shell_would_do_the_same(page, here):
    (here / "range-of-age.toml").write_text("# somebody's own\n")
    asked, _ = ready(page)
    assert page.ask("bounds", asked)["found"]["release"] == "range-of-age-2/magnitudes.json"
    assert (here / "range-of-age.toml").read_text() == "# somebody's own\n"
    made = Publication.load(here / "range-of-age-2.toml")
    book = Ledger.open(here / "l.db")
    assert once.tokens(made, here, book)[0] == [asked["publish_token"]]
    (here / "range-of-age-2.toml").unlink()
    assert ready(page)[1]["state"] == "published"


def test_the_second_axis_and_the_conditions_of_a_histogram_are_its_own(page, here):
    one = {"column": "kind", "categories": ["a"], "y_column": "age", "y_bins": 3, "where": "kind = 'a'"}
    one["timezone"] = "Europe/Berlin"  # in which conditions are evaluated
    asked = ASKED | {"plan": PLAN | {"histograms": {"ages": one}}, "axis": "y_"}
    page.ask("bounds", ready(page, asked)[0])
    plan = Publication.load(here / "range-of-age.toml").plans["magnitudes"]
    assert (plan.column, plan.where, plan.unit) == ("age", "kind = 'a'", "person")
    assert plan.timezone == "Europe/Berlin"


def test_beyond_the_limit_it_is_refused(here):
    page = prepared(here, limit="0.04")
    asked, found = ready(page)
    assert not found["allowed"] and found["reason"].startswith("Refused: epsilon 0.05 is more than the 0.04")
    error = page.refused("bounds", asked, status=409)
    assert (error["code"], error["charged"]) == ("refused", False)
    assert not charges(here) and not visible(here)


def test_wrong_words_and_tokens_charge_nothing(page, here):
    asked, _ = ready(page)
    for words in ("", "charge 0.5", None):
        assert page.refused("bounds", asked | {"confirm": words}, status=400)["charged"] is False
    other = asked | {"epsilon": "0.06"}  # prepared for another amount
    assert page.refused("bounds", other, status=409)["code"] == "changed"
    for change in ({"histogram": "none"}, {"plan": PLAN | {"data": None}}, {"epsilon": "x"}, {"axis": "y_"}):
        assert page.refused("bounds/prepare", ASKED | change, status=400)
    assert page.refused("bounds/prepare", ASKED | {"plan": PLAN | {"data": "../x.csv"}}, status=403)
    assert not charges(here) and not list(here.glob("*.toml"))


@pytest.mark.parametrize("column", ["../up", "a/b", "age + 1", "Größe", "%", "x" * 200])
def test_a_column_of_any_name_has_a_file_in_the_folder(page, here, column):
    one = {"column": column, "integers": [None, None]}
    found = page.ask("bounds/prepare", ASKED | {"plan": PLAN | {"histograms": {"ages": one}}})
    assert "/" not in found["path"] and found["path"].startswith("range-of-")
    assert len(found["path"]) < 60


def test_two_tabs_and_two_servers_at_once_are_one_charge(page, here):
    asked, _ = ready(page)
    pages = [page, page, studio_page(here), studio_page(here)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: each.send("bounds", asked), pages))
    assert len(charges(here)) == 1 and list(visible(here)) == [TARGET]
    assert {f.status_code for f in found} <= {200, 409} and 200 in {f.status_code for f in found}
    told = [each.ask("bounds", asked) for each in pages]
    assert len({json.dumps(one["found"]) for one in told}) == 1 and len(charges(here)) == 1


# ---- killed -----------------------------------------------------------------------------------------

LOST = ("after the charge", "before the draw", "after the draw", "after one file", "before the mark")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return a folder for every step, in which a server was killed at that step of a look."""
    places = {}
    for step in STEPS:
        folder = places[step] = tmp_path_factory.mktemp("looks") / "work"
        folder.mkdir()
        prepared(folder)
        (folder / "plan.toml").write_text(plan_text())
        (folder / "step").write_text(step)
        (folder / "look").write_text(json.dumps(ASKED))
    kill_in(places.values())
    return places


@pytest.mark.parametrize("step", STEPS)
def test_a_server_killed_at_any_step_of_a_look_never_charges_twice_without_a_word(killed, step):
    folder = killed[step]
    before, paid = visible(folder), charges(folder)
    assert len(paid) <= 1 and len(before) <= len(paid)
    page = studio_page(folder, plan=folder / "plan.toml")
    asked, found = ready(page)
    unfinished = page.ask("session")["unfinished"]
    if not paid:
        assert step in ("before the charge", "in the middle of the charge")
        assert found["state"] == "new" and unfinished == [] and not before
        assert page.ask("bounds", asked)["again"] is False
        assert len(charges(folder)) == 1
        return
    assert asked["publish_token"] == paid[0].token
    if before:
        assert step in ("after the rename", "before the answer") and unfinished == []
        assert found["state"] == "published" and page.ask("bounds", asked)["found"] == found["found"]
    elif step == "before the rename":
        assert [(u["state"], u["path"]) for u in unfinished] == [("finishable", "range-of-age.toml")]
        assert found["state"] == "finishable" and found["found"] is None
        (kept,) = [load(p).raw.tolist() for p in folder.rglob("*.json")]
        page.ask("publish/finish", found)
        assert visible(folder) == {TARGET: kept}, "the same draw, not a new one"
        assert ready(page)[1]["found"]["release"] == TARGET
    else:
        assert step in (*LOST, "in the middle of the charge")
        assert [u["state"] for u in unfinished] == ["lost"]
        assert found["state"] == "lost" and found["found"] is None
        assert page.refused("bounds", asked, status=409)["code"] == "lost"
        assert not visible(folder), "nothing is drawn a second time for the same charge"
    assert charges(folder) == paid
    if not visible(folder):
        again, found = ready(page, again=True)  # with its own word and its own charge
        assert found["state"] == "new" and page.ask("bounds", again)["found"]
        assert len(charges(folder)) == 2 and len(visible(folder)) == 1
