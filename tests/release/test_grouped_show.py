"""How a release of many groups shows itself: its line, its table, its pictures and its page."""

from __future__ import annotations

import re
import sys

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.charts import multiples
from dphist.charts.multiples import Panel, multiples_chart
from dphist.domain import Categories, Domain, Instants, Integers
from dphist.errors import UsageError
from dphist.release import grouped_show

EVIL = "<script>alert(1)</script>"
TREE = {"North": ["H1", "H2"], EVIL: ["H3", "H4", "=H5"]}


@pytest.fixture(scope="module")
def release():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(0, 40, 9000), "hospital": rng.choice(["H1", "H2", "H3", "H4", "=H5"], 9000)}
    )
    return dphist.histogram(
        frame,
        column="age",
        bins=Integers(0, 39),
        epsilon=1,
        method="identity",
        by=("region", "hospital"),
        groups=TREE,
        post="integer",
        importances={"region": 10},
    )


def sized(totals, bins: int = 4):
    """Panels whose groups have these totals."""
    return [
        Panel(f"G{i}", np.full(bins, t / bins), np.full(bins, t / bins - 2), np.full(bins, t / bins + 2))
        for i, t in enumerate(totals)
    ]


def drawn(picture):
    return picture.spec["datasets"]["panels"]


def heads(picture):
    return {p["name"]: p["value"] for p in picture.spec["params"]}["panelnames"]


def words(picture):
    return " ".join(picture.spec["title"].get("subtitle", []))


def test_one_line(release):
    assert repr(release) == (
        "GroupedRelease('identity', 2 region x 5 hospital, 40 bins, epsilon=1, unit='one record', "
        "not journaled)"
    )


class TestTable:
    def test_a_row_for_each_bin_of_each_group(self, release):
        table = release.to_pandas()
        assert list(table) == ["level", "group", "parent", "lo", "hi", "value", "raw", "low", "high"]
        assert len(table) == 7 * 40
        part = table[(table["level"] == "hospital") & (table["group"] == "H3")]
        low, high = release["H3"].presentable_intervals()
        for name, column in (("value", release["H3"].values()), ("low", low), ("high", high)):
            assert np.array_equal(part[name], column)
        assert set(part["parent"]) == {EVIL} and part["lo"].tolist() == list(range(40))
        assert set(table[table["level"] == "region"]["parent"]) == {""}
        assert table.attrs["simulated"] is False and table.attrs["method"] == "identity"

    def test_all_libraries_say_the_same(self, release):
        pandas, arrow, polars = release.to_pandas(), release.to_arrow(), release.to_polars()
        assert pandas.to_dict("list") == arrow.to_pydict() == polars.to_dict(as_series=False)
        assert arrow.schema.metadata[b"simulated"] == b"no"

    def test_the_level_is_that_of_the_intervals(self, release):
        wide, narrow = release.to_pandas(level=0.99), release.to_pandas(level=0.5)
        assert (wide["high"] > narrow["high"]).all()

    def test_a_library_that_is_not_there(self, release, monkeypatch):
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(UsageError, match="pip install"):
            release.to_polars()


class TestDraw:
    def test_the_largest_come_first_and_the_rest_is_counted(self):
        labels = [f"G{i}" for i in range(20)]
        values = np.repeat(np.arange(20), np.arange(20) * 30)
        frame = pd.DataFrame({"x": values % 5, "g": np.array(labels)[values]})
        made = dphist.histogram(
            frame,
            column="x",
            bins=Integers(0, 4),
            by="g",
            groups=labels,
            epsilon=10**6,
            method="identity",
        )
        picture = made.plot()
        assert [head[0].split(":")[0] for head in heads(picture)] == [f"G{i}" for i in range(19, 7, -1)]
        assert "The 12 largest are shown; 8 smaller ones are not." in words(picture)
        assert len({row["panel"] for row in drawn(picture)}) == 12
        few = made.plot(groups=["G3", "G12"])
        assert heads(few) == [["G3: 90"], ["G12: 360"]] and "shown" not in words(few)

    def test_a_level_and_labels_are_chosen(self, release, tmp_path):
        assert len(heads(release.plot(of="region"))) == 2
        assert heads(release.plot(of="region", groups=["North"]))[0][0].startswith("North: ")
        path = tmp_path / "p.svg"
        release.plot(path)
        assert path.read_text("utf-8").startswith("<svg")
        for wrong, why in (([], "list of labels"), ("H1", "list of labels"), (["H1"] * 49, "room for 48")):
            with pytest.raises(UsageError, match=why):
                release.plot(groups=wrong)
        with pytest.raises(UsageError, match="no region 'H1'"):
            release.plot(of="region", groups=["H1"])

    def test_values_and_intervals_are_the_releases(self, release):
        rows = [row for row in drawn(release.plot(groups=["H2"])) if row["panel"] == 0][::2]
        low, high = release["H2"].presentable_intervals()
        assert np.allclose([row["value"] for row in rows], release["H2"].values())
        assert np.allclose([row["low"] for row in rows], low)
        assert np.allclose([row["high"] for row in rows], high)

    def test_unknown_intervals_are_not_drawn(self):
        values = np.arange(4.0)
        nothing = np.full(4, np.nan)
        picture = multiples_chart(Domain((Integers(0, 3),)), [Panel("a", values, nothing, nothing)])
        assert {row["low"] for row in drawn(picture)} == {None}
        picture.to_svg()

    def test_groups_without_a_band_are_named(self):
        from benchmarks.group_coverage import Cell, released

        mixed = released(Cell("dawa2", levels=False), 1)  # the levels above have no intervals
        assert "not known how far values are off: R1." in words(mixed.plot(groups=["R0H1", "R1"]))
        assert "How far these values are off is not known." in words(mixed.plot(of="region"))
        assert "not known" not in words(mixed.plot())


class TestShares:
    def test_shares_add_up_to_one(self):
        picture = multiples_chart(Domain((Integers(0, 3),)), sized([4000, 40]), shares=True)
        for panel in (0, 1):
            values = [row["value"] for row in drawn(picture) if row["panel"] == panel][::2]
            assert sum(values) == pytest.approx(1)
        assert heads(picture) == [["G0: 4,000"], ["G1: 40"]]
        assert "share of the group's records" in words(picture)

    def test_sizes_decide(self, release, monkeypatch):
        asked = []
        chart = multiples.multiples_chart
        monkeypatch.setattr(
            multiples, "multiples_chart", lambda *a, **k: asked.append(k["shares"]) or chart(*a, **k)
        )
        release.plot()  # five groups of about the same size
        release.plot(of="region")
        release.plot(groups=["H1", "North"])
        monkeypatch.setattr(grouped_show, "_UNEVEN", 1.5)
        release.plot(groups=["H1", "North"])
        assert asked == [False, False, False, True]

    def test_a_group_that_may_be_empty_has_no_shares(self):
        clear, empty = sized([4000, -8])
        empty = Panel("e", empty.values, empty.low, empty.high, is_clear=False)
        picture = multiples_chart(Domain((Integers(0, 3),)), [clear, empty], shares=True)
        assert {row["value"] for row in drawn(picture) if row["panel"] == 1} == {None}
        assert "No shares of 1 whose total cannot be told from zero." in words(picture)
        assert heads(picture)[1] == ["e: \N{MINUS SIGN}8"]
        picture.to_svg()


class TestLayout:
    @pytest.mark.parametrize(
        ("panels", "across"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 3), (6, 3), (7, 4), (12, 4), (24, 6)]
    )
    def test_rows_are_as_even_as_they_can_be(self, panels, across):
        picture = multiples_chart(Domain((Integers(0, 3),)), sized([100] * panels))
        assert picture.spec["columns"] == across
        width = across * picture.spec["spec"]["width"] + (across - 1) * multiples.GAP
        assert multiples.WIDTH - 60 < width <= multiples.WIDTH

    def test_long_names_have_two_lines_and_keep_their_totals(self):
        panels = sized([123_456] * 5)
        long = "An institution of public health, " * 20
        panels[2] = Panel(long, panels[2].values, panels[2].low, panels[2].high)
        names = heads(multiples_chart(Domain((Integers(0, 3),)), panels))
        assert all(len(head) == 2 for head in names)
        assert names[2][1].endswith("…: 123,456") and names[0] == [" ", "G0: 123,456"]

    def test_a_wide_band_does_not_flatten_the_others(self):
        narrow, wide = sized([400, 400])
        wide = Panel("w", wide.values, wide.values - 1e6, wide.values + 1e6)
        picture = multiples_chart(Domain((Integers(0, 3),)), [narrow, wide])
        lo, hi = picture.spec["spec"]["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert -60 <= lo < hi <= 160 and "cut off" in words(picture)

    def test_many_bins_are_drawn_in_steps(self):
        bins = 1001
        panel = Panel("a", np.arange(bins) * 1.0, np.arange(bins) - 1.0, np.arange(bins) + 1.0)
        picture = multiples_chart(Domain((Integers(0, bins - 1),)), [panel])
        assert len(drawn(picture)) <= 2 * multiples.MOST_COLUMNS
        assert "Each step is the mean of 6 bins" in words(picture)

    def test_labels_are_bars_and_many_labels_are_numbered(self):
        for size, layers in ((5, 2), (80, 3)):
            bins = Domain((Categories(tuple(f"ward {i}" for i in range(size))),))
            picture = multiples_chart(bins, sized([100, 200], size), x_title="ward")
            assert len(picture.spec["spec"]["layer"]) == layers
            assert ("by number" in words(picture)) == (size == 80)
            assert ("ward 3" in picture.to_svg()) == (size == 5)

    def test_a_clock(self):
        bins = Domain((Instants("2024-01-01", "2024-03-01", "1d"),))
        svg = multiples_chart(bins, sized([100, 200, 300, 400], 60)).to_svg()
        assert "2024-01-01" in svg

    def test_nothing_to_draw(self):
        with pytest.raises(UsageError, match="nothing to draw"):
            multiples_chart(Domain((Integers(0, 3),)), [])

    def test_altair_reads_it(self, release):
        altair = pytest.importorskip("altair")
        assert isinstance(release.plot().to_altair(), altair.FacetChart)


class TestPage:
    def test_texts_are_escaped(self, release):
        for page in (release._repr_html_(), release.plot(of="region").to_html()):
            assert EVIL not in page
        assert "alert(1)" in release.plot(of="region").to_svg()
        assert EVIL not in release.plot(of="region").to_svg()

    def test_errors_by_level_and_size(self, release):
        rows = grouped_show.errors(release)
        assert [row[0] for row in rows[1:3]] == ["region", "hospital"]
        assert [re.sub(r" \(.*", "", row[0]) for row in rows[3:]] == [
            f"hospital: {size}" for size in ("small", "middle", "large")
        ]
        assert [row[1] for row in rows[1:]] == ["2", "5", "1", "3", "1"]
        leaves = release.level("hospital").values()
        margin = np.median([np.mean(one.error.bin_margins(level=0.95)) for one in leaves])
        assert rows[2][3] == f"± {margin:,.3g}"
        total = np.median([(one.total().high - one.total().low) / 2 for one in leaves])
        assert rows[2][4] == f"± {total:,.3g}"
        assert "hospital: large" in release._repr_html_()

    def test_classes_are_quarters_by_released_totals(self):
        totals = np.array([5.0, -1, 100, 7, 8, 9, 1000, 6])
        classes = {name.split(" ")[0]: sorted(of.tolist()) for name, of in grouped_show._classes(totals)}
        assert classes == {"small": [0, 1], "middle": [3, 4, 5, 7], "large": [2, 6]}
        assert list(grouped_show._classes(totals[:3])) == []

    def test_unknown_errors_are_called_so(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"x": rng.integers(0, 9, 500), "g": rng.choice(["a", "b"], 500)})
        made = dphist.histogram(
            frame,
            column="x",
            bins=Integers(0, 8),
            epsilon=1,
            by=("all", "g"),
            groups=["a", "b"],
            method="dawa2",
            calibrate=0,
            importances={"all": 0},
        )
        assert grouped_show.errors(made)[1][3:] == ("not known", "not known")

    def test_facts_without_a_picture(self, release, monkeypatch):
        monkeypatch.setattr(grouped_show, "draw", None)
        page = release._repr_html_()
        assert "<svg" not in page and "once for all groups" in page and "not journaled" in page
