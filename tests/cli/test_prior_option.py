"""``dphist publish --prior``: an earlier release, or public counts, before anything is charged."""

import json

import numpy as np
import pytest

from shell import dphist

ROWS = [3, 3, 3, 7, 7, 1]
ASKED = ("publish", "x.csv", "--column", "x", "--integers", "0", "9", "--epsilon", "1", "--ledger", "l.db")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(map(str, ROWS)) + "\n")
    np.savetxt(tmp_path / "counts.csv", np.bincount(ROWS, minlength=10), fmt="%d")
    dphist("ledger", "create", "l.db", "--limit", "9")
    dphist(*ASKED, "--out", "last.json")
    dphist(*ASKED[:5], "0", "8", *ASKED[7:], "--out", "other.json")
    return tmp_path


def spent():
    return json.loads(dphist("ledger", "show", "l.db", "--json").stdout)


def test_an_earlier_release_is_a_prior(here):
    last = json.loads((here / "last.json").read_text())
    made = dphist(*ASKED, "--method", "average", "--prior", "last.json", "--out", "new.json")
    assert "warning" not in made.stderr
    new = json.loads((here / "new.json").read_text())
    assert new["provenance"]["prior"]["release"] == last["id"]
    shown = dphist(*ASKED, "--method", "average", "--prior", "last.json", "--dry-run")
    assert "prior:      last.json" in shown.stdout


def test_counts_are_warned_of_unless_they_are_said_to_be_public(here):
    made = dphist(*ASKED, "--method", "average", "--prior", "counts.csv", "--dry-run")
    assert "counts.csv must be public" in made.stderr and "--public-prior" in made.stderr
    assert "the release discloses them: do not hand it out, and make another" in made.stderr
    made = dphist(*ASKED, "--method", "average", "--prior", "counts.csv", "--public-prior", "--out", "n.json")
    assert "warning" not in made.stderr
    assert json.loads((here / "n.json").read_text())["provenance"]["prior"]["file"] == "counts.csv"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--method", "identity", "--prior", "last.json"), "takes no prior"),
        (("--method", "average", "--prior", "none.json"), "there is no file"),
        (("--method", "average", "--prior", "other.json"), "of other bins"),
    ],
)
def test_what_cannot_be_a_prior_costs_nothing(here, more, words):
    before = spent()
    refused = dphist(*ASKED, *more, code=2)
    assert words in refused.stderr and spent() == before
