"""The command that reruns the papers: what it writes, and what it says of a mistake."""

import sys
from pathlib import Path

import pytest

import papers
from papers.__main__ import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_BENCH_DATA", raising=False)
    return tmp_path


def ask(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["papers", *map(str, words)])
    return main()


def test_a_paper_says_what_it_wrote(here, monkeypatch, capsys):
    asked = []

    def tiny(name, *, out, **more):
        out.mkdir(parents=True, exist_ok=True)
        (out / "tables.md").write_text("new")
        asked.append((name, out, more))
        return out

    monkeypatch.setattr(papers, "reproduce", tiny)
    (here / "results" / "dawa").mkdir(parents=True)
    (here / "results" / "dawa" / "old.md").write_text("old")
    assert ask(monkeypatch, "dawa", "--jobs", "1") == 0
    assert capsys.readouterr().out.split() == [str(Path("results/dawa/tables.md"))]
    assert ask(monkeypatch, "dawa", "--quick", "--backend", "dask", "--data", here) == 0
    plain = {"quick": False, "data": None, "jobs": 1, "backend": None}
    assert asked[0] == ("dawa", Path("results/dawa"), plain)
    other = {"quick": True, "data": here, "jobs": -1, "backend": "dask"}
    assert asked[1] == ("dawa", Path("results/dawa-quick"), other)


def test_an_interrupted_paper_says_how_to_go_on(here, monkeypatch, capsys):
    def stop(name, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(papers, "reproduce", stop)
    assert ask(monkeypatch, "dawa") == 130
    assert "kept in results/dawa: the same command goes on" in capsys.readouterr().err


def test_an_unknown_paper_and_a_missing_folder(here, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        ask(monkeypatch, "sortak")
    assert "sortaki" in capsys.readouterr().err
    assert ask(monkeypatch, "dawa", "--data", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (here / "results").exists()
