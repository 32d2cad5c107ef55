"""Where a studio starts, and what the command says that starts it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import dphist as library
from dphist.cli import studio as command
from dphist.errors import UsageError
from dphist.planning import flights
from dphist.planning.account import ledger_of
from dphist.planning.publication import Publication
from dphist.privacy.ledger import Ledger
from dphist.studio.start import Start
from shell import dphist
from studio_client import studio_page


@pytest.fixture
def served(monkeypatch):
    """Return what would be served, instead of serving it."""
    from dphist.studio import serve

    seen = []
    monkeypatch.setattr(serve, "serve", lambda make, **how: seen.append((make, how)))
    return seen


def test_it_starts_in_the_folder_of_what_was_named(here):
    (here / "sub").mkdir()
    (here / "sub" / "p.toml").write_text("")
    book = here / "l.db"
    Ledger.open(book, create=True)
    assert Start.of(None, None) == Start(Path.cwd())
    assert Start.of("people.csv", book) == Start(here, data="people.csv", ledger=book)
    assert Start.of("sub/p.toml", None) == Start(here / "sub", plan=Path("sub/p.toml"))
    assert Start.of("sub", None) == Start(Path("sub"))
    assert Start.of("postgresql://a@b/c", None) == Start(Path.cwd(), data="postgresql://a@b/c")
    library.from_counts([1, 2], epsilon=1, method="identity").save("r.json")
    with pytest.raises(UsageError, match=r"is a release; look at it with: dphist studio --view \."):
        Start.of("r.json", None)
    for named, ledger in (("none.csv", None), (None, Path("none.db"))):
        with pytest.raises(UsageError, match="there is no"):
            Start.of(named, ledger)


def test_the_session_says_what_was_named(here):
    (here / "p.toml").write_text(
        'data = "people.csv"\ndataset = "visits"\nepsilon = 1\n'
        '[histograms.a]\ncolumn = "age"\nintegers = [0, 9]\n'
    )
    Ledger.open(here / "l.db", create=True).set_limit("visits", 2)
    found = studio_page(here, plan=here / "p.toml", ledger=here / "l.db").ask("session")
    assert (found["plan"], found["ledger"], found["dataset"]) == ("p.toml", "l.db", "visits")
    assert found["budget"] == {
        "ledger": "l.db",
        "exists": True,
        "dataset": "visits",
        "limit": "2",
        "spent": "0",
        "left": "2",
    }
    assert {m["name"] for m in found["methods"]} >= {"identity", "hats"} and found["shapes"]
    found = studio_page(here, data="people.csv").ask("session")
    assert (found["plan"], found["data"], found["budget"]["exists"]) == (None, "people.csv", False)
    (here / "p.toml").write_text("epsilon = nothing")
    assert studio_page(here, plan=here / "p.toml").ask("session")["plan"] == "p.toml"  # a wrong one too


def test_a_ledger_is_made_once_and_with_a_limit(here):
    page = studio_page(here)
    assert page.ask("ledger") == {"ledger": "dphist-ledger.db", "exists": False, "datasets": []}
    for bad in ({"limit": "-1"}, {"limit": "x"}, {"dataset": " x"}, {"dataset": 3}):
        assert page.refused("ledger/create", bad, status=400)
    assert not (here / "dphist-ledger.db").exists()
    made = page.ask("ledger/create", limit="4", dataset="visits")
    assert [(d["dataset"], d["limit"], d["left"]) for d in made["datasets"]] == [("visits", "4", "4")]
    assert page.refused("ledger/create", limit="9", dataset="visits", status=409)["code"] == "changed"
    assert str(Ledger.open(here / "dphist-ledger.db").limit("visits")) == "4"


def test_the_flights_are_there_with_a_plan_and_a_ledger_of_their_own(here, monkeypatch):
    made = []
    monkeypatch.setattr(flights, "table", lambda out: made.append((out / "flights.parquet").touch()))
    page = studio_page(here)
    path = page.ask("demo/open")["plan"]
    assert page.ask("demo/open")["plan"] == path == "dphist-studio-demo/flights.toml" and len(made) == 1
    publication = Publication.load(here / path)
    assert set(publication.plans) == {"delays", "carriers"}
    assert str(Ledger.open(here / "dphist-studio-demo" / "ledger.db").limit("flights")) == "4"


FIRST_VIEW = """
import sys
from functools import partial
from pathlib import Path
from dphist.cli import program, studio
from dphist.studio import serve, service
from dphist.studio.start import Start
program.made(["studio"])
start = Start.of("p.toml", None)
print(sorted({"numpy", "dphist.domain", "dphist.studio.edit"} & set(sys.modules)))  # until it is served
functions = serve.begun(partial(studio._functions, start))()
functions["session"]({})
assert functions["plan/open"]({"path": "p.toml"})["plan_digest"]
heavy = {"numba", "duckdb", "pandas", "polars", "pyarrow", "scipy", "altair", "vl_convert", "sqlglot"}
print(sorted(heavy & set(sys.modules)), flush=True)
"""


class TestCommand:
    def test_without_its_packages_it_says_how_to_get_them(self, here, monkeypatch):
        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *more: None if name == "uvicorn" else real(name, *more)
        )
        assert "pip install 'dphist[studio]'" in dphist("studio", code=2).stderr

    def test_it_serves_on_the_port_that_was_asked_for(self, here, served):
        dphist("studio", "people.csv", "--no-browser", "--allow-root", "--port", "8123")
        ((_, how),) = served
        assert how["port"] == 8123 and how["browser"] is False

    def test_a_demo_begins_with_the_flights(self, here, served, monkeypatch):
        monkeypatch.setattr(flights, "table", lambda out: (out / "flights.parquet").touch())
        dphist("studio", "--demo", "--allow-root")
        assert served and (here / "dphist-studio-demo" / "flights.toml").exists()
        assert "leave FILE" in dphist("studio", "x.csv", "--demo", "--allow-root", code=2).stderr

    def test_a_reader_becomes_a_process_of_its_own(self, here, monkeypatch):
        seen = []

        def execv(program, words):
            seen.append(words)
            raise SystemExit(0)

        monkeypatch.setattr(command.os, "execv", execv)
        dphist("studio", "--view", ".", "--no-browser", "--allow-root")
        assert seen == [
            [sys.executable, "-m", "dphist.studio.view", ".", "--port", "0", "--no-browser", "--allow-root"]
        ]
        for more in (["people.csv"], ["--ledger", "l.db"], ["--demo"]):
            assert "--view shows" in dphist("studio", "--view", ".", *more, code=2).stderr

    def test_the_page_is_sent_before_what_answers_is_there(self):
        import threading

        from dphist.studio.service import application
        from studio_client import PORT, TOKEN, Page

        ready = threading.Event()

        def functions():
            ready.wait(60)
            return {"session": lambda asked: {"ok": True}}

        page = Page(application(functions, port=lambda: PORT, token=TOKEN))
        for name in ("/", "/static/app.js", "/static/style.css"):
            assert page.client.get(name).status_code == 200
        ready.set()
        assert page.ask("session") == {"ok": True}

    def test_the_first_view_waits_for_nothing_heavy(self, here):
        (here / "p.toml").write_text(
            'data = "people.csv"\nepsilon = 1\n[histograms.a]\ncolumn = "age"\nintegers = [0, 9]\n'
        )
        run = subprocess.run([sys.executable, "-c", FIRST_VIEW], capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (0, "[]\n[]\n"), run.stderr

    def test_a_port_that_is_taken_is_said(self, here):
        import socket

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            run = dphist("studio", "--no-browser", "--allow-root", "--port", port, code=2)
        assert "is not free" in run.stderr

    def test_the_page_is_part_of_what_is_installed(self):
        from importlib import resources

        folder = resources.files("dphist.studio") / "static"
        assert {"index.html", "app.js", "style.css"} <= {place.name for place in folder.iterdir()}


def test_the_ledger_that_pays_is_found_as_in_the_shell(here, monkeypatch):
    assert ledger_of(None) == (Path("dphist-ledger.db"), True)
    assert ledger_of("l.db") == (Path("l.db"), False)
    monkeypatch.setenv("DPHIST_LEDGER", "mine.db")
    assert ledger_of(None) == (Path("mine.db"), False)
    assert studio_page(here).ask("session")["ledger"] == "mine.db"
    assert studio_page(here, ledger=here / "l.db").ask("session")["ledger"] == "l.db"
    monkeypatch.delenv("DPHIST_LEDGER")
    assert (
        "a new ledger was made"
        in dphist(
            "publish",
            "people.csv",
            "--column",
            "age",
            "--integers",
            "0",
            "9",
            "--epsilon",
            "1",
            "--method",
            "identity",
        ).stderr
    )
    assert ledger_of(None) == (Path("dphist-ledger.db"), False)
