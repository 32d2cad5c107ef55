"""Releases of very many bins are handed out like others: tables, pages and cards of their groups."""

from __future__ import annotations

import re
from fractions import Fraction as F  # noqa: N817

import numpy as np
import pytest
from test_sparse_release import made

import dphist
from dphist.domain import Addresses, Domain, Instants, Integers
from dphist.domain.workload import Points
from dphist.errors import ReleaseFileError, UsageError
from dphist.methods.sparse import make_sparse
from dphist.privacy.counts import SparseCounts
from dphist.privacy.curator import Curator
from dphist.release.export import export
from shell import dphist as shell

HOSTS = Domain((Addresses("0.0.0.0/0", 32),))
CELLS, TALLIES = [5, 70_000, 2**31], [900, 800, 700]


@pytest.fixture(scope="module")
def releases():
    times = Domain((Instants("2024-01-01", "2025-01-01", "1us", "UTC"),))
    grid = Domain((Integers(0, 2**14), Integers(0, 2**14)))
    return {
        "listed": made(HOSTS, CELLS, TALLIES, "listed", epsilon=F(1)),
        "empty": made(HOSTS, CELLS, [1, 1, 1], "listed:threshold=60", epsilon=F(1)),
        "groups": made(HOSTS, CELLS, TALLIES, epsilon=F(1), post="nonneg"),
        "times": made(times, CELLS, TALLIES, epsilon=F(1)),
        "squares": made(grid, CELLS[:2], TALLIES[:2], epsilon=F(1)),
    }


@pytest.mark.parametrize("ending", [".csv", ".xlsx", ".parquet"])
def test_exported_tables_lead_back_to_the_release(tmp_path, releases, ending):
    for name, release in releases.items():
        path = export(release, tmp_path / f"{name}{ending}")
        assert dphist.load(path) == release, name
    if ending == ".csv":
        lines = (tmp_path / "listed.csv").read_text().splitlines()
        assert lines[0] == "bin,estimate_for_sums,low_95,high_95"
        assert {"0.0.0.5", "0.1.17.112", "128.0.0.0"} <= {line.partition(",")[0] for line in lines[1:]}
        head = (tmp_path / "groups.csv").read_text().partition("\n")[0]
        assert head == "first,last,bins,estimate_for_sums,presentable_not_for_sums,low_95,high_95"


def test_a_page_about_each(tmp_path, releases):
    texts = {}
    for name, release in releases.items():
        page = dphist.report(release, tmp_path / f"{name}.html").read_text()
        texts[name] = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
        assert ("<figure" in page) == (name not in ("empty", "squares")), name
        assert "SIMULATED" in page
    t = releases["listed"].listing.threshold
    assert f"those whose noisy count reached {t}, a public threshold, are published" in texts["listed"]
    assert "winner's curse" in texts["listed"].replace("&#x27;", "'")
    assert "at least (95 %, all at once)" in texts["listed"]
    assert "scale inf" not in texts["listed"]
    assert "No noisy count reached the threshold." in texts["empty"]
    assert "groups of neighbours, which were found privately" in texts["groups"]
    assert "31,622,400,000,000 steps of 1us from 2024-01-01 to 2025-01-01" in texts["times"]


def test_a_card_for_notebooks(releases):
    for name, release in releases.items():
        card = release._repr_html_()
        assert ("<svg" in card) == (name not in ("empty", "squares")), name
        assert "<script" not in card
    assert "0.1.17.112" in releases["listed"]._repr_html_()
    assert "intervals of bins that were named before the list was seen" in releases["listed"]._repr_html_()
    assert repr(releases["groups"]).replace("'", "&#x27;") in releases["groups"]._repr_html_()


def test_what_needs_every_bin_says_what_to_use_instead(tmp_path, releases):
    """The studio, and whatever else has a number for each bin, opens releases in this way."""
    from dphist.release.files import load_dense

    path = releases["listed"].save(tmp_path / "hosts.json")
    with pytest.raises(ReleaseFileError, match="dphist query, look at it with dphist plot or report"):
        load_dense(path)


def test_the_sensitivity_is_that_of_the_counts():
    counts = SparseCounts(
        np.array([5]), np.array([90]), HOSTS, sensitivity=3, unit="one person with at most 3 records"
    )
    curator = Curator.simulated(counts, epsilon=F(1), seed=0)
    release = make_sparse("listed", HOSTS, Points(HOSTS.n)).run(curator, Points(HOSTS.n))
    assert release.sensitivity == 3
    assert release.listing.scale > 3
    assert release.to_dict()["sensitivity"] == 3


def test_pictures_of_windows_of_time(releases):
    windows = releases["times"].drawn()
    assert windows.domain.axis.names()[:2] == ["2024-01-01 00:00", "2024-01-06 17:15"]
    assert windows.values().sum() == pytest.approx(releases["times"].total().value)
    with pytest.raises(UsageError, match="not drawn"):
        releases["squares"].plot()
    with pytest.raises(UsageError, match="nothing to draw"):
        releases["empty"].plot()


def test_tables_and_pages_from_the_shell(here, releases):
    releases["listed"].save("hosts.json")
    assert shell("export", "hosts.json", "hosts.csv").stdout == "hosts.csv\n"
    assert shell("query", "hosts.csv", "0.0.0.5").stdout == shell("query", "hosts.json", "0.0.0.5").stdout
    assert shell("report", "hosts.json", "--out", "hosts.html").stdout == "hosts.html\n"
    (here / "xy.csv").write_text("x,y\n1,2\n")
    grid = ("--column", "x", "--integers", "0", "99999", "--y-column", "y", "--y-integers", "0", "99999")
    said = shell(
        *("publish", "xy.csv", *grid, "--method", "dawa2", "--epsilon", "1", "--plot", "x.png"), code=2
    )
    assert "leave --plot out. Nothing was charged." in said.stderr
