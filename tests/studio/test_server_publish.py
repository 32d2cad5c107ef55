"""Publishing from the page: one charge and one draw, whatever is pressed, lost or killed, and whenever."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from killed import STEPS

from dphist.errors import AlreadyCharged
from dphist.planning import once
from dphist.planning.publication import Publication
from dphist.privacy.ledger import Ledger, MemoryLedger
from dphist.release import load
from shell import dphist
from studio_client import studio_page
from studio_killed import charges, kill_in, visible
from studio_plans import plan_text

ABOUT = {"path": "plan.toml"}


def prepared(folder, limit=2):
    (folder / "plan.toml").write_text(plan_text())
    Ledger.open(folder / "l.db", create=True).set_limit("visits", limit)
    return studio_page(folder, plan=folder / "plan.toml")


@pytest.fixture
def page(here):
    return prepared(here)


def ready(page, **more):
    digest = page.ask("plan/open", ABOUT)["plan_digest"]
    about = ABOUT | {"plan_digest": digest}
    found = page.ask("publish/prepare", about | more)
    return about | {"publish_token": found["publish_token"], "confirm": found["phrase"]}, found


class TestPrepare:
    def test_it_says_what_will_be_charged_and_changes_nothing(self, page, here):
        _, found = ready(page)
        assert (found["state"], found["charge"], found["phrase"]) == ("new", "0.5", "charge 0.5")
        assert (found["spent"], found["limit"], found["left"], found["left_after"]) == ("0", "2", "2", "1.5")
        assert found["allowed"] and found["reason"] is None and all(c["ok"] for c in found["checks"])
        assert [h["file"] for h in found["histograms"]] == ["ages.json", "kinds.json"]
        assert not charges(here) and sorted(p.name for p in here.iterdir()) == [
            "l.db",
            "people.csv",
            "plan.toml",
        ]

    def test_a_second_tab_gets_the_same_token_and_so_does_another_server(self, page, here):
        token = ready(page)[1]["publish_token"]
        assert ready(page)[1]["publish_token"] == token
        assert ready(studio_page(here))[1]["publish_token"] == token

    def test_another_plan_has_another_token(self, page, here):
        token = ready(page)[1]["publish_token"]
        (here / "plan.toml").write_text(plan_text(epsilon="0.25"))
        assert ready(page)[1]["publish_token"] != token

    def test_a_plan_that_is_not_saved_cannot_be_published(self, page):
        assert page.refused("publish/prepare", ABOUT, plan_digest="0" * 64, status=409)["code"] == "changed"

    def test_beyond_the_limit_it_is_refused_and_not_only_warned(self, here):
        page = prepared(here, limit="0.4")
        about, found = ready(page)
        assert not found["allowed"] and found["left_after"] is None and found["most"] == "0.4"
        assert (
            found["reason"] == "Refused: epsilon 0.5 is more than the 0.4 that is left. Nothing was charged."
        )
        error = page.refused("publish", about, status=409)
        assert (error["code"], error["charged"]) == ("refused", False)
        assert not charges(here) and not visible(here)

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (lambda here: (here / "people.csv").unlink(), "there is no file"),
            (lambda here: (here / "people.csv").write_text("years,kind,person\n"), "age"),
        ],
    )
    def test_data_that_do_not_fit_are_said_before_anything_is_read(self, page, here, change, what):
        change(here)
        about, found = ready(page)
        assert not found["allowed"] and what in found["reason"]
        error = page.refused("publish", about, status=422)
        assert error["charged"] is False and not charges(here)

    def test_a_ledger_that_is_gone_is_said(self, page, here):
        digest = page.ask("plan/open", ABOUT)["plan_digest"]
        (here / "l.db").unlink()
        error = page.refused("publish/prepare", ABOUT, plan_digest=digest, status=410)
        assert (error["code"], error["charged"]) == ("gone", False)


class TestPublish:
    def test_an_opened_plan_says_whether_it_was_published_as_it_is(self, page, here):
        assert page.ask("plan/open", ABOUT)["published"] is False
        page.ask("publish", ready(page)[0])
        found = page.ask("plan/open", ABOUT)
        assert found["published"] is True
        asked = ABOUT | {"base_digest": found["file_digest"]}
        saved = page.ask("plan/save", asked, plan=found["plan"] | {"epsilon": "0.25"})
        assert saved["published"] is False
        asked["base_digest"] = saved["file_digest"]
        assert page.ask("plan/save", asked, plan=found["plan"])["published"] is True
        (here / "l.db").unlink()
        assert page.ask("plan/open", ABOUT)["published"] is False  # nobody knows any more

    def test_a_release_that_was_deleted_is_not_called_lost_by_a_stop_alone(self, page, here):
        import shutil

        page.ask("publish", ready(page)[0])
        shutil.move(here / "plan", here / ".away")
        words = ready(page)[1]["words"]
        assert "moved or deleted" in words and "was stopped before" in words and "new charge" in words
        shutil.move(here / ".away", here / "plan")
        assert ready(page)[1]["state"] == "published"

    def test_a_ledger_that_another_process_holds_is_said(self, page, here, monkeypatch):
        from dphist.privacy import journal

        about, _ = ready(page)
        monkeypatch.setattr(journal, "PATIENCE", 0.05)
        with journal.writing(here / "l.db"):
            error = page.refused("publish", about, status=409)
        assert (error["code"], error["charged"]) == ("locked", False)
        assert page.ask("publish", about)["again"] is False and len(charges(here)) == 1

    def test_records_that_vanish_while_they_are_counted_cost_nothing(self, page, here, monkeypatch):
        from dphist import records

        about, _ = ready(page)
        real = records.count_together

        def vanishing(*given, **named):
            (here / "people.csv").unlink()
            return real(*given, **named)

        monkeypatch.setattr(records, "count_together", vanishing)
        error = page.refused("publish", about, status=422)
        assert error["charged"] is False and not charges(here)
        assert page.ask("publish/state", about)["state"] == "new"

    def test_it_charges_once_and_shows_the_same_release_again(self, page, here):
        about, _ = ready(page)
        first = page.ask("publish", about)
        assert (first["charged"], first["entry"], first["again"]) == ("0.5", 2, False)
        names = [r["path"] for r in first["publication"]["releases"]]
        assert names == ["plan/ages.json", "plan/kinds.json"]
        before = visible(here)
        assert list(before) == names
        for again in (page, studio_page(here)):  # pressed again, reloaded, another server
            assert again.ask("publish", about) == first | {"again": True}
            found = ready(again)[1]
            assert (found["state"], found["publication"]) == ("published", first["publication"])
            assert again.ask("publish/state", about)["state"] == "published"
            assert again.ask("session")["unfinished"] == []
        assert visible(here) == before and len(charges(here)) == 1
        assert [e.token for e in charges(here)] == [about["publish_token"]]

    def test_the_releases_are_those_of_the_shell(self, page, here):
        page.ask("publish", ready(page)[0])
        opened = page.ask("release/open", path="plan/ages.json")
        assert opened["publication"] == {
            "name": "plan",
            "histogram": "ages",
            "share": "1/2",
            "epsilon": "1/2",
            "histograms": ["ages", "kinds"],
        }
        facts = json.loads(dphist("query", "plan/ages.json", "0", "5", "--json").stdout)
        asked = page.ask("release/query", path="plan/ages.json", ranges=[[0, 5]], level=0.95)
        assert asked["ranges"][0]["value"] == facts["value"] and asked["ranges"][0]["low"] == facts["low"]
        assert dphist("report", "plan/ages.json", "--ledger", "l.db", "--out", "r.html").returncode == 0

    def test_wrong_words_charge_nothing(self, page, here):
        about, _ = ready(page)
        for words in ("", "charge", "charge 0.50", "Charge 0.5", "charge 0.5 ", None, 0.5):
            assert page.refused("publish", about | {"confirm": words}, status=400)["charged"] is False
        for token in ("", "x" * 64, "f" * 64, None, 3):
            assert page.send("publish", about | {"publish_token": token}).status_code in (400, 409)
        assert not charges(here) and not visible(here)

    def test_a_new_charge_needs_a_new_token_and_leaves_the_first_release(self, page, here):
        first = page.ask("publish", ready(page)[0])
        before = visible(here)
        about, found = ready(page, again=True)
        assert found["state"] == "new" and about["publish_token"] != first["publish_token"]
        second = page.ask("publish", about)
        assert second["publication"]["folder"] == "plan-2" and second["entry"] == 3
        assert {k: v for k, v in visible(here).items() if k in before} == before
        assert ready(page)[1]["publication"] == second["publication"]
        old = page.ask("publish", about | {"publish_token": first["publish_token"]})
        assert old["publication"] == first["publication"] and len(charges(here)) == 2

    def test_many_presses_at_once_are_one_charge(self, page, here):
        about, _ = ready(page)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: page.ask("publish", about), range(8)))
        assert len(charges(here)) == 1
        assert [f["again"] for f in found].count(False) >= 1
        assert len({json.dumps(f["publication"]) for f in found}) == 1

    def test_two_servers_at_once_are_one_charge(self, page, here):
        about, _ = ready(page)
        pages = [page, *(studio_page(here) for _ in range(3))]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda each: each.send("publish", about), pages))
        assert len(charges(here)) == 1 and len(visible(here)) == 2
        assert {f.status_code for f in found} <= {200, 409} and 200 in {f.status_code for f in found}
        for each in pages:
            assert each.ask("publish", about)["again"] is True
        assert len(charges(here)) == 1

    def test_another_plan_waits_while_one_is_published(self, page, here, monkeypatch):
        (here / "other.toml").write_text(plan_text(epsilon="0.25"))
        about, _ = ready(page)
        other = ABOUT | {"path": "other.toml"}
        other["plan_digest"] = page.ask("plan/open", other)["plan_digest"]
        found = page.ask("publish/prepare", other)
        other |= {"publish_token": found["publish_token"], "confirm": found["phrase"]}
        counting, go = Event(), Event()
        release = Publication.release

        def slow(self, *given, **named):
            counting.set()
            assert go.wait(60)
            return release(self, *given, **named)

        monkeypatch.setattr(Publication, "release", slow)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(page.ask, "publish", about)
            assert counting.wait(60)
            assert page.refused("publish", other, status=409)["code"] == "already_running"
            assert page.ask("publish/state", about)["state"] == "preparing"
            (work,) = [thread for thread in threading.enumerate() if thread.name == "publication"]
            assert not work.daemon, "the process ends after the release that is paid for, not before"
            assert studio_page(here).ask("publish/state", about)["state"] == "running"
            elsewhere = studio_page(here).refused("publish", about, status=409)
            assert elsewhere["charged"] is False
            go.set()
            assert first.result()["charged"] == "0.5"
        assert len(charges(here)) == 1

    def test_a_disk_that_fails_after_the_charge_keeps_the_draw_to_be_written_later(
        self, page, here, monkeypatch
    ):
        about, _ = ready(page)
        drawn = []

        def fails(publication, releases, target):
            drawn.append({name: made.raw.tolist() for name, made in releases.items()})
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(once, "save", fails)
            error = page.refused("publish", about, status=500)
            assert error["charged"] is True and "entry 2" in error["message"]
            assert page.ask("publish/state", about)["state"] == "finishable"
            (here / "other.toml").write_text(plan_text(epsilon="0.25"))
        found = page.ask("publish/finish", about)
        assert found["again"] is True and len(charges(here)) == 1
        assert visible(here) == {f"plan/{name}.json": raw for name, raw in drawn[0].items()}

    def test_a_draw_that_waits_to_be_written_is_written_though_the_plan_was_edited(
        self, page, here, monkeypatch
    ):
        about, _ = ready(page)
        with monkeypatch.context() as patched:
            patched.setattr(once, "_named", lambda kept, target: (_ for _ in ()).throw(OSError(28, "full")))
            page.refused("publish", about, status=500)
        whole = {place.name: place.read_bytes() for place in here.glob(".dphist-release-*/releases/*")}
        assert whole
        edited = (here / "plan.toml").read_text()
        for name in whole:
            edited = edited.replace(f"[histograms.{Path(name).stem}]", f"[histograms.{Path(name).stem}2]")
        (here / "plan.toml").write_text(edited)
        page.ask("publish/finish", about)
        assert {place.name: place.read_bytes() for place in (here / "plan").iterdir()} == whole
        assert len(charges(here)) == 1

    def test_no_other_publication_takes_the_place_of_a_draw_that_waits_to_be_written(
        self, page, here, monkeypatch
    ):
        about, _ = ready(page)
        with monkeypatch.context() as patched:
            patched.setattr(once, "save", lambda *given: (_ for _ in ()).throw(OSError(28, "full")))
            page.refused("publish", about, status=500)
        following, _ = ready(page, again=True)
        assert following["publish_token"] != about["publish_token"]
        assert "Finish it first" in page.refused("publish", following, status=409)["message"]
        assert len(charges(here)) == 1
        assert page.ask("publish/finish", about)["state"] == "published"

    def test_the_default_ledger_is_made_by_the_first_publication(self, here):
        (here / "plan.toml").write_text(plan_text(ledger=None))
        page = studio_page(here, plan=here / "plan.toml")
        about, found = ready(page)
        assert found["exists"] is False and found["allowed"] and found["limit"] is None
        assert not (here / "dphist-ledger.db").exists()
        assert page.ask("publish", about)["entry"] == 1
        assert page.ask("publish", about)["again"] is True
        assert len(Ledger.open(here / "dphist-ledger.db").entries()) == 1


# ---- killed -----------------------------------------------------------------------------------------

UNCHARGED = ("before the charge",)
LOST = ("after the charge", "before the draw", "after the draw", "after one file", "before the mark")
FINISHABLE = ("before the rename",)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return a folder for every step, in which a server was killed at that step."""
    places = {}
    for step in STEPS:
        folder = places[step] = tmp_path_factory.mktemp("killed") / "work"
        folder.mkdir()
        rows = "\n".join(f"{i % 10},{'ab'[i % 2]},p{i % 10}" for i in range(100))
        (folder / "people.csv").write_text(f"age,kind,person\n{rows}\n")
        (folder / "step").write_text(step)
        prepared(folder)
    kill_in(places.values())
    return places


@pytest.mark.parametrize("step", STEPS)
def test_a_server_killed_at_any_step_never_charges_twice_without_a_word(killed, step):
    folder = killed[step]
    before, paid = visible(folder), charges(folder)
    assert len(paid) <= 1 and len(before) in (0, 2), "all histograms are visible, or none"
    page = studio_page(folder, plan=folder / "plan.toml")
    about, found = ready(page)
    unfinished = page.ask("session")["unfinished"]
    if not paid:
        assert found["state"] == "new" and unfinished == [] and not before
        assert step in (*UNCHARGED, "in the middle of the charge")
        page.ask("publish", about)
        assert len(charges(folder)) == 1
        return
    assert about["publish_token"] == paid[0].token and found["entry"] == paid[0].number
    if before:
        assert step in ("after the rename", "before the answer") and unfinished == []
        assert page.ask("publish", about)["again"] is True
    elif step in FINISHABLE:
        assert [u["state"] for u in unfinished] == ["finishable"]
        assert "without a new charge" in unfinished[0]["words"]
        error = page.refused("publish", about, status=409)
        assert (error["code"], error["charged"]) == ("unfinished", True)
        kept = {p.name: load(p).raw.tolist() for p in folder.rglob("*.json")}
        assert page.ask("publish/finish", about)["again"] is True
        assert {Path(k).name: v for k, v in visible(folder).items()} == kept, "the same draw, not a new one"
        assert page.ask("publish", about)["again"] is True
    else:
        assert [u["state"] for u in unfinished] == ["lost"]
        error = page.refused("publish", about, status=409)
        assert (error["code"], error["charged"]) == ("lost", True)
        assert "lost" in error["message"] and "new charge" in error["message"]
        assert page.refused("publish/finish", about, status=409)["code"] == "lost"
        assert not visible(folder), "nothing is drawn a second time for the same charge"
    assert charges(folder) == paid
    if not visible(folder):
        page.ask("publish", ready(page, again=True)[0])  # with its own word and its own charge
        assert len(charges(folder)) == 2 and len(visible(folder)) == 2


def test_every_step_was_as_expected(killed):
    """So that the test above has seen each of its branches."""
    assert set(UNCHARGED) | set(LOST) | set(FINISHABLE) < set(STEPS)
    for step in (*LOST, *FINISHABLE, "after the rename", "before the answer"):
        assert charges(killed[step]), step


def test_a_publication_without_its_name_is_found_though_the_plan_was_edited(here, tmp_path):
    page = prepared(here)
    about, _ = ready(page)
    page.ask("publish", about)
    entry = charges(here)[0]
    kept = here / f".dphist-release-{entry.release}"
    kept.mkdir()
    (here / "plan").rename(kept / "releases")
    (kept / "whole").touch()
    (here / "plan.toml").write_text(plan_text(epsilon="0.25"))
    (left,) = studio_page(here, plan=here / "plan.toml").ask("session")["unfinished"]
    assert left["state"] == "finishable" and left["publish_token"] == entry.token
    page.ask("publish/finish", left)
    assert list(visible(here)) == ["plan/ages.json", "plan/kinds.json"] and len(charges(here)) == 1
    assert not kept.exists()


# ---- the ledger's token -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_token_is_charged_once(kind, tmp_path):
    book = Ledger.open(tmp_path / "l.db", create=True) if kind == "file" else MemoryLedger()
    how = {"mechanism": "m", "what": "w", "token": "visits-2025"}
    book.charge("0.5", **how)
    for epsilon, dataset in (("0.5", "default"), ("0.1", "default"), ("0.5", "other")):
        with pytest.raises(AlreadyCharged, match="entry 1 of the ledger") as found:
            book.charge(epsilon, dataset=dataset, **how)
        assert found.value.number == 1 and found.value.exit_code == 3
    book.charge("0.5", **how | {"token": "visits-2026"})
    for _ in range(2):
        book.charge("0.1", mechanism="m", what="w")  # without a token as often as one likes
    assert [e.token for e in book.entries()] == ["visits-2025", "visits-2026", "", ""]
    assert book.entry_of("visits-2026").number == 2 and book.entry_of("") is None
    if kind == "file":
        again = Ledger.open(tmp_path / "l.db")
        with pytest.raises(AlreadyCharged):
            again.charge("0.5", **how)
        assert '"token"' not in (tmp_path / "l.db").read_text().splitlines()[-1]


def test_a_token_is_charged_once_by_two_ledgers_of_one_file(tmp_path):
    one, two = (Ledger.open(tmp_path / "l.db", create=True) for _ in range(2))
    one.charge("0.5", mechanism="m", what="w", token="t")
    with pytest.raises(AlreadyCharged):
        two.charge("0.5", mechanism="m", what="w", token="t")
    assert two.spent("default") == one.spent("default")


@pytest.mark.parametrize("token", ["a b", "x" * 129, "ü", "a\n", None, 3])
def test_a_token_is_a_short_word(token):
    from dphist.errors import UsageError

    book = MemoryLedger()
    with pytest.raises(UsageError, match="token"):
        book.charge("0.5", mechanism="m", what="w", token=token)
    assert not book.entries()


def test_a_refused_charge_leaves_its_token_free(tmp_path):
    from dphist.errors import BudgetExceeded

    book = Ledger.open(tmp_path / "l.db", create=True)
    book.set_limit("default", "0.1")
    with pytest.raises(BudgetExceeded):
        book.charge("0.5", mechanism="m", what="w", token="t")
    book.set_limit("default", None)
    assert book.charge("0.5", mechanism="m", what="w", token="t")
