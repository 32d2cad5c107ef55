"""Releases of many groups from the command line: what cannot be kept is refused before it is charged."""

from __future__ import annotations

import json
import re
import shutil

import pandas
import pytest

import dphist as package
from dphist.errors import OutputError
from dphist.privacy.ledger import Ledger
from dphist.release import files, grouped_files
from shell import PUBLISH, dphist

BY = ("--by", "kind", "--groups", "groups.txt", "--epsilon", "1", "--ledger", "l.db")


@pytest.fixture
def groups(here):
    (here / "groups.txt").write_text("a\nb\nc\n")
    Ledger.open("l.db", create=True)
    return here


@pytest.fixture
def many(groups, monkeypatch):
    """30 values are more than JSON takes."""
    monkeypatch.setattr(grouped_files, "MOST_IN_JSON", 29)
    return groups


def charged() -> int:
    return len(Ledger.open("l.db").entries())


def test_a_small_release_is_printed_as_json(groups):
    run = dphist(*PUBLISH, *BY, "--json")
    assert [row["group"] for row in json.loads(run.stdout)["rows"]] == ["a", "b", "c"]
    assert package.load("release.json").hierarchy.leaves == ("a", "b", "c")


def test_a_large_release_gets_a_format_that_takes_it(many):
    assert "release: release.parquet" in dphist(*PUBLISH, *BY).stderr
    assert package.load("release.parquet").hierarchy.leaves == ("a", "b", "c")
    assert charged() == 1


@pytest.mark.parametrize("asked", [("--out", "r.json"), ("--out", "r.parquet", "--json")])
def test_a_format_that_does_not_take_it_charges_nothing(many, asked):
    said = dphist(*PUBLISH, *BY, *asked, code=2).stderr
    assert "30 values are too many for .json, which takes 29: save as .parquet" in said
    assert charged() == 0 and not (many / "r.parquet").exists()


def test_a_table_that_would_not_fit_in_memory_charges_nothing(groups, monkeypatch):
    monkeypatch.setattr(grouped_files, "MOST_IN_CSV", 29)
    assert "too many for .csv" in dphist(*PUBLISH, *BY, "--out", "r.csv", code=2).stderr
    assert charged() == 0
    with pytest.raises(OutputError, match="too many for .csv"):
        package.histogram(
            "people.csv", column="age", bins=10, range=(0, 100), by="kind", groups=["a", "b", "c"], epsilon=1
        ).save("r.csv")


def test_a_disk_that_is_too_small_charges_nothing(groups, monkeypatch):
    free = grouped_files.bytes_at_most(30, ".parquet", presented=False) - 1
    usage = shutil.disk_usage(".")._replace(free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    said = dphist(*PUBLISH, *BY, "--out", "r.parquet", code=2).stderr
    assert re.search(r"r.parquet may take .* MiB, and .* are free there.*--out. Nothing was charged", said)
    assert charged() == 0
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=free + 1))
    dphist(*PUBLISH, *BY, "--out", "r.parquet")
    assert charged() == 1


@pytest.mark.parametrize("name", ["r.parquet", "r.json", "r.csv"])
def test_a_disk_that_fills_up_meanwhile_loses_nothing(groups, monkeypatch, name):
    (groups / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(groups / "elsewhere"))
    put = files.put

    def full(target, write, *, replace):
        if "elsewhere" not in str(target):
            raise OutputError("the disk is full.")
        put(target, write, replace=replace)

    monkeypatch.setattr(files, "put", full)
    said = dphist(*PUBLISH, *BY, "--out", name, code=2).stderr
    rescue, target = re.search(r"Move it: mv (\S+) (\S+)", said).groups()
    assert target == ("r.parquet" if name == "r.parquet" else "r.json")
    assert package.load(rescue).hierarchy.leaves == ("a", "b", "c") and charged() == 1


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("post", ["none", "nonneg", "integer"])
def test_no_file_is_larger_than_was_said(tmp_path, ending, post):
    groups = [f"hospital {i}" for i in range(40)]
    frame = pandas.DataFrame({"x": [1.5] * 100, "g": ["hospital 3"] * 100})
    release = package.histogram(
        frame,
        column="x",
        bins=300,
        range=(0, 300),
        by=("all", "g"),
        groups=groups,
        epsilon="0.0001",
        post=post,
    )
    size = release.save(tmp_path / f"r{ending}").stat().st_size
    room = 4096 + 64 * 41  # the header, and the labels
    assert size <= grouped_files.bytes_at_most(41 * 300, ending, presented=post != "none") + room
