"""Addresses and codes on the command line: published, queried and drawn; refusals cost nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from dphist import from_counts
from dphist.cli.shown import show_release
from shell import dphist

SURE = ("--epsilon", "1000000")


@pytest.fixture
def flows(here):
    rows = [f"10.0.{i % 3}.{i % 7},{'AB'[i % 2]}0{i % 10}\n" for i in range(4200)]
    (here / "flows.csv").write_text("src,code\n" + "".join(rows) + "::1,zz\n,\n")
    return here


def test_hosts_are_listed_and_asked(flows):
    hosts = ("--column", "src", "--addresses", "0.0.0.0/0", "--prefix", "32")
    said = dphist("publish", "flows.csv", *hosts, *SURE, "--out", "hosts.json", "--plot", "hosts.png")
    assert "10.0.0.0 " in said.stdout and "winner's curse" in " ".join(said.stdout.split())
    assert dphist("query", "hosts.json", "10.0.0.0").stdout.startswith("200 (200 to 200")
    absent = dphist("query", "hosts.json", "10.9.0.0").stdout
    assert absent == "not listed: below the threshold of 1; its count is at most 0 with 95 %\n"
    assert dphist("publish", "flows.csv", *hosts, *SURE, "--out", "hosts.parquet").stdout
    assert dphist("query", "hosts.parquet", "10.0.0.0").stdout.startswith("200 (200 to 200")
    asked = json.loads(dphist("query", "hosts.json", "10.0.0.0/24", "--json").stdout)
    assert asked["value"] == 1400 and asked["low"] is None
    assert (flows / "hosts.png").stat().st_size > 1000
    assert dphist("plot", "hosts.json", "again.svg").stdout == "again.svg\n"


def test_a_listing_of_nothing_has_no_picture_and_is_no_error(flows):
    nobody = ("--column", "src", "--where", "src = 'x'", "--addresses", "0.0.0.0/0", "--prefix", "32")
    said = dphist("publish", "flows.csv", *nobody, *SURE, "--out", "none.json", "--plot", "none.png").stderr
    assert "picture: none, for no bin is listed." in said and not (flows / "none.png").exists()


def test_ranges_and_codes(flows):
    nets = ("--column", "src", "--addresses", "0.0.0.0/0", "--prefix", "32", "--workload", "ranges")
    assert dphist("publish", "flows.csv", *nets, *SURE, "--out", "nets.json").stdout
    assert dphist("query", "nets.json", "10.0.0.0/23").stdout.startswith("2,800 (")
    assert dphist("query", "nets.json", "10.0.0.0", "10.0.1.0").stdout.startswith("1,400 (")
    assert dphist("query", "nets.json", "--quantile", "0.5").stdout.startswith("quantile 0.5: 10.0.1.")
    codes = ("--column", "code", "--codes", "[A-Z][0-9]{2}")
    assert dphist("publish", "flows.csv", *codes, *SURE, "--method", "identity", "--out", "codes.json").stdout
    assert dphist("query", "codes.json", "A0").stdout.startswith("2,100 (")
    assert dphist("query", "codes.json", "A00").stdout.startswith("420 (")


def test_keys_are_hashed_and_asked(flows):
    keys = ("--column", "code", "--hashed", "40", "--salt", "flows", *SURE)
    assert dphist("publish", "flows.csv", *keys, "--out", "keys.json").stdout
    said = dphist("query", "keys.json", "A00")
    assert said.stdout.startswith("420 (420 to 420")
    assert "may contain the records of other keys" in said.stderr
    assert dphist("query", "keys.json", "never seen").stdout.startswith("not listed: below the threshold")
    few = (
        "--column",
        "code",
        "--hashed",
        "9",
        "--y-column",
        "src",
        "--y-hashed",
        "2",
        "--method",
        "identity",
    )
    assert dphist("publish", "flows.csv", *few, *SURE, "--out", "few.json").stdout
    asked = dphist("query", "few.json", "A00", "10.0.0.0", "--json")
    assert json.loads(asked.stdout)["value"] >= 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--addresses", "0.0.0.0/0"), "needs --prefix"),
        (("--addresses", "0.0.0.0/0", "--prefix", "40"), "from 0 to 32"),
        (("--addresses", "::/0", "--prefix", "64"), "more than 2**62"),
        (("--prefix", "24", "--integers", "0", "9"), "goes with --addresses"),
        (("--codes", "[A-Z"), "not understood"),
        (("--codes", "[^0-9]{3}"), "write it last"),
        (("--hashed", "63"), "1 to 62 bits"),
        (("--hashed", "x"), "--hashed needs a whole number"),
        (("--hashed", "9", "--workload", "ranges"), "hashed keys have none: use the workload points"),
        (("--hashed", "9", "--method", "dawa3"), "hashed keys have none: use auto, listed or uniform"),
        (("--salt", "x", "--integers", "0", "9"), "--salt goes with --hashed"),
        (("--addresses", "0.0.0.0/0", "--prefix", "32", "--method", "hb"), "listed for single bins"),
        (("--addresses", "0.0.0.0/0", "--prefix", "32", "--out", "x.txt"), ".json"),
        (("--addresses", "0.0.0.0/0", "--prefix", "32", "--method", "listed:threshold=1"), "fit into memory"),
    ],
)
def test_what_cannot_be_published_costs_nothing(flows, options, words):
    said = dphist("publish", "flows.csv", "--column", "src", "--epsilon", "1", *options, code=2)
    assert words in said.stderr.replace("\n", " ")
    assert not (flows / "dphist-ledger.db").exists()


def test_a_dry_run_and_the_list_of_methods(flows):
    hosts = ("--column", "src", "--addresses", "10.0.0.0/8", "--prefix", "32", "--y-column", "code")
    facts = dphist("publish", "flows.csv", *hosts, "--y-codes", "[A-Z][0-9]{2}", *SURE, "--dry-run", "--json")
    assert json.loads(facts.stdout)["bins"] == 2600 << 24
    assert "listed" in dphist("methods").stdout


def test_no_count_is_minus_0(capsys):
    release = from_counts([1, 2, 3, 4], epsilon=1, method="identity")
    show_release(replace(release, raw=np.array([-0.3, -0.0, 0.4, 2.0])))
    said = capsys.readouterr().out
    assert said.count(" 0 ") == 3
    assert not re.search(r"-0\b", said)
