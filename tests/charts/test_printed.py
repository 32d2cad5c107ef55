"""Pictures one would print: true widths, thin intervals, blocks, words, one notation, safe colours."""

import itertools
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import altair
import numpy as np
import pytest

import dphist as dp
from dphist.charts import picture as plots
from dphist.charts.columns import tick_text
from dphist.charts.curves import LINE_GAP, curves_chart
from dphist.charts.heatmap import heatmap_chart
from dphist.charts.histogram import histogram_chart, outcomes_chart
from dphist.charts.multiples import Panel, multiples_chart
from dphist.domain import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.domain.groups import Groups
from dphist.errors import UsageError
from dphist.release.show import plain_name
from shell import dphist

SVG = "{http://www.w3.org/2000/svg}"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
UNEVEN = Domain(Variable([0, 1, 5, 20]))


def texts(picture):
    return [e.text for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}text") if e.text]


def subtitle(picture):
    return " ".join(picture.spec["title"].get("subtitle", []))


def bins(picture):
    return picture.spec["datasets"]["bins"]


def marks(picture, kind):
    return [layer for layer in picture.spec["layer"] if layer["mark"]["type"] == kind]


# Widths


def test_the_area_of_an_uneven_bar_is_its_count():
    counts = np.array([100.0, 200.0, 300.0])
    picture = histogram_chart(UNEVEN, counts, low=counts - 40, high=counts + 40, truth=counts, x_title="age")
    rows = bins(picture)
    areas = [row["value"] * (row["x to"] - row["x from"]) for row in rows]
    assert areas == pytest.approx(counts)
    assert [row["truth"] for row in rows] == [row["value"] for row in rows] == [100, 50, 20]
    assert [row["high"] - row["low"] for row in rows] == pytest.approx([80, 20, 80 / 15])
    assert [row["count"] for row in rows] == ["100", "200", "300"]
    y = picture.spec["layer"][0]["encoding"]["y"]
    assert y["title"] == "records per unit of age (density)"
    assert "area of a bar is its count" in subtitle(picture)
    altair.LayerChart.from_dict(picture.spec)


@pytest.mark.parametrize(
    "axis", [Regular(lo=1e9, hi=1e9 + 1, bins=7), Variable(np.linspace(0, 1, 8)), Integers(1, 7)]
)
def test_even_bins_are_counts(axis):
    picture = histogram_chart(Domain(axis), np.arange(7.0))
    assert [row["value"] for row in bins(picture)] == list(range(7))
    assert "density" not in subtitle(picture)
    assert picture.spec["layer"][0]["encoding"]["y"]["title"] == "records"


def test_many_uneven_bins_keep_their_area_when_columns_are_joined():
    edges = np.cumsum(np.r_[0, np.tile([1.0, 3.0], 1500)])
    counts = np.arange(3000.0)
    rows = histogram_chart(Domain(Variable(edges)), counts).spec["datasets"]["corners"]
    areas = [a["value"] * (b["corner"] - a["corner"]) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    assert sum(areas) == pytest.approx(counts.sum())


def test_logarithmic_bins_lie_on_a_logarithmic_axis():
    picture = histogram_chart(Domain(Variable(np.geomspace(1, 1e6, 25))), np.arange(24.0))
    x = picture.spec["layer"][0]["encoding"]["x"]
    assert x["scale"] == {"type": "log", "domain": [1, pytest.approx(1e6)], "nice": False}
    assert [row["value"] for row in bins(picture)] == list(range(24))
    first = bins(picture)[0]
    assert first["x middle"] ** 2 == pytest.approx(first["x from"] * first["x to"])
    assert {"1", "100", "10,000", "1,000,000"} <= set(texts(picture))
    altair.LayerChart.from_dict(picture.spec)


def test_a_week_that_is_cut_short_is_said():
    year = Domain(Instants("2024-01-01", "2025-01-01", "1w"))
    months = Domain(Instants("2024-01-01", "2025-01-01", "1mo"))
    assert "last bin is shorter" in subtitle(histogram_chart(year, np.ones(year.n)))
    assert "shorter" not in subtitle(histogram_chart(months, np.ones(12)))


# Intervals and blocks


@pytest.mark.parametrize("n", [5, 60, 150])
def test_intervals_are_thin_lines_without_caps(n):
    values = np.full(n, 50.0)
    picture = histogram_chart(Domain(Integers(1, n)), values, low=values - 9, high=values + 9)
    assert [layer["mark"]["type"] for layer in picture.spec["layer"]] == ["bar", "rule"]
    assert picture.spec["layer"][1]["mark"]["strokeWidth"] <= 1.25


def test_intervals_that_cannot_be_seen_are_said():
    values = np.full(12, 10_000.0)
    small = histogram_chart(Domain(Integers(1, 12)), values, low=values - 18, high=values + 18)
    large = histogram_chart(Domain(Integers(1, 12)), values, low=values - 1800, high=values + 1800)
    assert "about ± 18 records: hardly to be seen" in subtitle(small)
    assert "too small" not in subtitle(large)


def test_bins_that_were_measured_together_are_one_block():
    groups = Groups(np.array([0, 3, 4, 10]))
    values = np.repeat([5.0, 9.0, 2.0], [3, 1, 6])
    picture = histogram_chart(Domain(Integers(0, 9)), values, low=values - 1, high=values + 1, groups=groups)
    assert [(r["x from"], r["x to"], r["value"]) for r in bins(picture)] == [
        (-0.5, 2.5, 5),
        (2.5, 3.5, 9),
        (3.5, 9.5, 2),
    ]
    assert "10 bins, 3 measurements" in subtitle(picture)
    assert "share one mean and are drawn as one block" in subtitle(picture)
    whiskers = [e for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}line") if e.get("stroke") == plots.INK]
    assert len(whiskers) == 3


def test_only_equal_neighbours_of_one_measurement_are_a_block():
    groups = Groups(np.array([0, 2, 4]), np.array([0, 2, 1, 3]))  # bins 0 and 2, and bins 1 and 3
    scattered = histogram_chart(Domain(Integers(0, 3)), [1.0, 2.0, 1.0, 2.0], groups=groups)
    assert len(bins(scattered)) == 4
    alike = histogram_chart(Domain(Integers(0, 3)), [1.0, 1.0, 1.0, 1.0])
    assert len(bins(alike)) == 4
    split = histogram_chart(Domain(Integers(0, 3)), [1.0, 2.0, 1.0, 1.0], groups=Groups(np.array([0, 4])))
    assert [row["value"] for row in bins(split)] == [1, 2, 1]
    assert "all numbers in common, and bin by bin elsewhere" in subtitle(split)
    assert "share one mean" not in subtitle(split)


def test_a_few_blocks_of_many_bins_are_bars():
    n = 5000
    picture = histogram_chart(
        Domain(Regular(lo=0, hi=1, bins=n)),
        np.repeat([1.0, 2.0], n // 2),
        groups=Groups(np.array([0, n // 2, n])),
    )
    assert [(r["x from"], r["x to"]) for r in bins(picture)] == [(0, 0.5), (0.5, 1)]
    assert "each column" not in subtitle(picture)


# Labels, and ticks


def test_labels_that_do_not_fit_are_a_list_with_flat_labels():
    labels = [f"Department of number {i}" for i in range(20)]
    values = np.arange(20.0)
    picture = histogram_chart(
        Domain(Categories(labels)), values, low=values - 1, high=values + 1, truth=values
    )
    where = picture.spec["layer"][0]["encoding"]
    assert where["y"]["field"] == "x from" and where["x"]["field"] == "value"
    assert where["y"]["axis"]["labelAngle"] == 0 and where["y"]["scale"]["reverse"]
    assert set(labels) <= set(texts(picture))
    assert not re.search(r"rotate\((?!0\))[^)]*\)[^>]*>Department", picture.to_svg())
    altair.LayerChart.from_dict(picture.spec)
    short = histogram_chart(Domain(Categories(["a", "b"])), [1, 2])
    assert short.spec["layer"][0]["encoding"]["x"]["field"] == "x from"


@pytest.mark.parametrize("top", [900.0, 12_000.0, 99_000.0, 120_000.0, 1.7e6, 3e7, 5e9])
def test_an_axis_has_one_notation(top):
    values = np.linspace(0, top, 8)
    picture = histogram_chart(Domain(Categories([*"abcdefgh"])), values)
    numbers = [text for text in texts(picture) if re.match(r"^[\u2212\d]", text) and text != "0"]
    assert len(numbers) >= 3
    assert len({re.sub(r"[\d.,\u2212]", "", text) for text in numbers}) == 1
    assert not any("e" in text for text in numbers)
    assert len(set(numbers)) == len(numbers)


def test_few_edges_are_all_written_where_they_fit():
    shown = texts(histogram_chart(Domain(Variable([0, 10, 15, 18, 30, 45, 65, 80, 120])), np.ones(8)))
    assert {"0", "10", "15", "30", "45", "65", "80", "120"} <= set(shown)


def test_a_logarithmic_axis_has_all_digits():
    assert "~s" not in tick_text(1, 1e6, log=True)
    assert "~s" in tick_text(1, 1e9, log=True)


# Grids

GRID = Domain((Integers(0, 3), Integers(0, 2)))


def test_cells_show_numbers_and_how_well_they_are_known():
    values = np.array([[1000, 1000, 1000], [10, -40, 1000], [1000, 1000, 1000], [1000, 1000, 1e3]])
    half = np.array([[10, 240, 260], [20, 20, np.nan], [10, 10, 10], [10, 10, 10]])
    picture = heatmap_chart(GRID, values, low=values - half, high=values + half)
    known = [row["known"] for row in picture.spec["datasets"]["cells"]]
    assert known == [2, 2, 1, 0, 0, 2, 2, 2, 2, 2, 2, 2]
    assert texts(picture).count("1,000") >= 9 and "10" not in texts(picture)
    assert "dot: cannot be told from zero" in subtitle(picture)
    full, small = marks(picture, "rect")[1:]
    assert small["mark"]["xOffset"] == -small["mark"]["x2Offset"] > 0 == full["mark"].get("xOffset", 0)
    assert len(marks(picture, "point")) == 1
    altair.LayerChart.from_dict(picture.spec)


def test_small_squares_lie_inside_their_cells_on_both_kinds_of_axes():
    for axes in ((Integers(0, 3), Integers(0, 2)), (Integers(0, 3), Categories(("a", "b", "c")))):
        values = np.full(12, 100.0)
        picture = heatmap_chart(Domain(axes), values, low=values - 50, high=values + 50)
        paths = [e.get("d") for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}path")]
        sizes = [
            tuple(map(float, m.groups()))
            for d in paths
            if (m := re.match(r"M[-\d.]+,[-\d.]+h([\d.]+)v([\d.]+)h", d or ""))
        ]
        cell = (picture.spec["width"] / 4, picture.spec["height"] / 3)
        inside = [
            (w, h)
            for w, h in sizes
            if w == pytest.approx(0.72 * cell[0]) and h == pytest.approx(0.72 * cell[1])
        ]
        assert len(inside) == 12


def test_large_grids_have_no_numbers_and_letters_have_contrast():
    wide = Domain((Integers(0, 99), Integers(0, 2)))
    values = np.full(300, 1234.0)
    small = heatmap_chart(wide, values, low=np.where(np.arange(300) < 9, -1, 1233), high=values + 1)
    assert "number" not in small.spec["datasets"]["cells"][0]
    assert "left blank cannot be told from zero" in subtitle(small)
    full, less = marks(small, "rect")  # nothing is drawn below them, and a page is white
    assert {layer["transform"][0]["filter"] for layer in (full, less)} == {
        "datum.known == 2",
        "datum.known == 1",
    }
    assert contrast(plots.WHITE, plots.RAMP[0]) >= 1.2 and not marks(small, "point")
    assert full["mark"]["aria"] is less["mark"]["aria"] is False  # thousands of words that no table lacks
    rows = heatmap_chart(GRID, np.arange(12.0)).spec["datasets"]["cells"]
    assert {row["ink"] for row in rows if row["value"] < 6} == {plots.INK}
    assert {row["ink"] for row in rows if row["value"] > 8} == {plots.WHITE}


# Previews and advice


def test_a_thin_band_is_drawn_by_itself():
    truth = np.full(24, 10_000.0)
    rows = truth + np.random.default_rng(0).normal(0, 9, (40, 24))
    thin = outcomes_chart(Domain(Integers(0, 23)), rows, truth=truth)
    thick = outcomes_chart(Domain(Integers(0, 23)), 100 * (rows - truth) + truth, truth=truth)
    below = thin.spec["vconcat"][1]["layer"]
    assert [layer["encoding"]["y"]["field"] for layer in below] == ["low off", "outcome off", "truth off"]
    reach = below[0]["encoding"]["y"]["scale"]["domain"]
    columns = thin.spec["datasets"]["columns"]
    band = np.median([row["high off"] - row["low off"] for row in columns])
    assert band / (reach[1] - reach[0]) > 0.1
    assert all(row["truth off"] == 0 for row in columns)
    assert "times as large" in subtitle(thin) and "layer" in thick.spec
    assert isinstance(thin.to_altair(), altair.VConcatChart)
    altair.VConcatChart.from_dict(thin.spec)


def test_curves_are_named_at_their_ends():
    curves = {
        "first": [(0.1, 100.0), (1.0, 10.0)],
        "second": [(0.1, 90.0), (1.0, 10.01)],
        "far": [(1.0, 99.0)],
    }
    picture = curves_chart(curves)
    ends = {row["name"]: row for row in picture.spec["datasets"]["ends"]}
    assert {row["x"] for row in ends.values()} == {1.0}
    lo, hi = np.log(picture.spec["layer"][0]["encoding"]["y"]["scale"]["domain"])
    at = {name: plots.HEIGHT * (np.log(row["y"]) - lo) / (hi - lo) for name, row in ends.items()}
    assert at["second"] - at["first"] == pytest.approx(LINE_GAP)
    assert ends["far"]["y"] == pytest.approx(99.0)
    assert picture.spec["layer"][0]["encoding"]["color"]["legend"] is None
    assert {"first", "second", "far"} <= set(texts(picture))


# Words and sizes


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("age", "age"),
        ("wait time", "wait time"),
        ('"wait time"', "wait time"),
        ("patient-age", "patient-age"),
        ("end", "end"),
        ("CAST(wait AS int)", ""),
        ("CASE WHEN a THEN b ELSE c END", ""),
        ("age - 1", ""),
        ("a + b", ""),
        ("x is null", ""),
        ("2024", ""),
    ],
)
def test_no_expression_is_a_title(column, name):
    assert plain_name(column) == name
    plan = dp.Plan(bins=4, range=(0, 4), column=column, epsilon=1, method="identity")
    release = plan.preview(records=100).releases[0]
    release = type(release)(**{**vars_of(release), "provenance": {"column": (column,)}})
    picture = release.plot()
    assert picture.spec["title"]["text"] == [f"Records by {name or 'bin'}"]
    assert picture.spec["layer"][0]["encoding"]["x"]["title"] == (name or None)


def vars_of(release):
    from dataclasses import fields

    return {f.name: getattr(release, f.name) for f in fields(release) if f.init}


def test_the_words_of_a_person_are_taken():
    release = dp.from_counts([5, 6, 7], epsilon=1)
    picture = release.plot(title="Visits", xlabel="age, years", ylabel="visits", size=(640, 300))
    assert picture.spec["title"]["text"] == ["Visits"]
    assert {"Visits", "age, years", "visits"} <= set(texts(picture))
    box = ET.fromstring(picture.to_svg())
    assert (float(box.get("width")), float(box.get("height"))) == (640, 300)
    grid = dp.from_counts([[5, 6], [7, 8]], epsilon=1).plot(
        title="T", xlabel="a", ylabel="b", size=(500, 400)
    )
    assert {"T", "a", "b"} <= set(texts(grid))


@pytest.mark.parametrize("size", [(10, 300), (300, 10), (9000, 300), ("wide", 3), (300,), 300, (np.nan, 300)])
def test_wrong_sizes_are_refused(size):
    with pytest.raises(UsageError, match="900"):
        dp.from_counts([5, 6, 7], epsilon=1).plot(size=size)


def test_small_pictures_take_a_size_and_words():
    panels = [Panel(f"g{i}", np.ones(4), np.zeros(4), np.full(4, 2.0)) for i in range(6)]
    picture = multiples_chart(Domain(Integers(0, 3)), panels, y_title="visits", size=(500, 400))
    box = ET.fromstring(picture.to_svg())
    assert float(box.get("width")) <= 500 and float(box.get("height")) <= 400
    assert "upwards: visits" in subtitle(picture)


def test_the_shell_takes_words_and_size(here):
    dp.from_counts([5, 6, 7], epsilon=1).save("r.json")
    words = ("--title", "Visits", "--xlabel", "age", "--ylabel", "visits", "--size", "640", "300")
    assert dphist("plot", "r.json", "r.svg", *words).returncode == 0
    box = ET.fromstring((here / "r.svg").read_text("utf-8"))
    assert (float(box.get("width")), float(box.get("height"))) == (640, 300)
    assert {"Visits", "age", "visits"} <= {e.text for e in box.iter(f"{SVG}text")}


def test_publishing_draws_with_words_and_refuses_them_before_a_charge(here):
    (here / "d.csv").write_text("age\n3\n4\n")
    how = ("publish", "d.csv", "--column", "age", "--integers", "0", "9", "--epsilon", "1")
    book = ("--ledger", "b.ledger", "--out", "r.json")
    dphist("ledger", "create", "b.ledger", "--limit", "5")
    spent = (here / "b.ledger").read_bytes()
    wrong = dphist(*how, *book, "--plot", "r.svg", "--size", "9", "300", code=2).stderr
    assert "900 by 400" in wrong
    assert "add --plot FILE" in dphist(*how, *book, "--title", "Visits", code=2).stderr
    assert (here / "b.ledger").read_bytes() == spent and not (here / "r.json").exists()
    dphist(*how, *book, "--plot", "r.svg", "--title", "Visits", "--size", "640", "300")
    assert ">Visits<" in (here / "r.svg").read_text("utf-8")


# Pages


def test_a_page_is_as_wide_as_its_window_and_has_the_table():
    picture = histogram_chart(
        Domain(Categories(("a<b", "c"))), [1234.5, -3], low=[1000, np.nan], high=[2000, np.nan]
    )
    whole = picture.to_html()
    page = whole[: whole.index("<script>")] + whole[whole.index('<div id="picture">') :]
    assert "width:100%" in page and 'name="viewport"' in page
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    assert rows == [
        ["bin", "value", "low", "high"],
        ["a&lt;b", "1,234.5", "1,000", "2,000"],
        ["c", "\u22123", "\u2013", "\u2013"],
    ]
    grid = heatmap_chart(GRID, np.arange(12.0)).to_html()
    assert "<td>11</td>" in grid
    panels = [Panel("g", np.arange(4.0) + 77, np.zeros(4), np.full(4, 99.0))]
    assert "<td>80</td>" in multiples_chart(Domain(Integers(0, 3)), panels).to_html()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt install chromium")
@pytest.mark.parametrize("width", [1100, 500])
def test_a_browser_draws_the_page_as_wide_as_the_window(tmp_path, width):
    measure = (
        "<script>setInterval(()=>{const w=s=>document.querySelector(s).getBoundingClientRect().width;"
        "document.title=[innerWidth,w('svg.marks'),w('summary svg'),document.body.scrollWidth].join()},200)"
        "</script>"
    )
    page = tmp_path / "page.html"
    before, after = histogram_chart(UNEVEN, [1, 2, 3], title="t").to_html().rsplit("</body>", 1)
    page.write_text(f"{before}{measure}</body>{after}", "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", "--dump-dom"]
    flags += [f"--window-size={width},800", f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run([CHROMIUM, *flags], capture_output=True, text=True, timeout=300, check=True)
    window, drawn, menu, body = map(float, re.search(r"<title>([\d.,]+)</title>", done.stdout)[1].split(","))
    assert 0.85 * window <= drawn <= window and body <= window  # no more and no less than the window
    assert menu < 40


# Colours


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


# Machado, Oliveira and Fernandes (2009), severity 1: what people without one kind of cones see.
SIGHT = {
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def lab(colour, sight):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(sight) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in to_xyz @ seen / [0.9505, 1, 1.089]]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_contrast_of_text_lines_and_bars():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    for colour in (plots.INK, plots.MUTED, plots.VERMILION):  # also text
        assert contrast(colour, plots.WHITE) >= 4.5
    for colour in (plots.BLUE, plots.BAR, plots.GREY, *plots.INKS):
        assert contrast(colour, plots.WHITE) >= 3
    assert contrast(plots.INK, plots.BAR) >= 3  # a whisker on its bar
    assert contrast(plots.BLUE, plots.SKY) >= 3  # a line on its band
    assert contrast(plots.MUTED, plots.FAINT) >= 3  # a dot on its cell


def test_contrast_of_numbers_on_their_cells():
    shades = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in plots.RAMP]
    for share in np.linspace(0, 1, 101):
        mixed = [
            round(np.interp(share, np.linspace(0, 1, len(shades)), part))
            for part in zip(*shades, strict=True)
        ]
        cell = "#" + "".join(f"{part:02X}" for part in mixed)
        assert contrast(plots.WHITE if share > plots.DARK else plots.INK, cell) >= 3.5


@pytest.mark.parametrize("sight", SIGHT)
def test_curves_can_be_told_apart_without_some_cones(sight):
    seen = [lab(colour, SIGHT[sight]) for colour in plots.INKS]
    pairs = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(pairs) >= 15
    ramp = [lab(colour, SIGHT[sight])[0] for colour in plots.RAMP]
    assert all(a > b + 5 for a, b in itertools.pairwise(ramp))


# The pictures of the documentation


def test_the_twelve_pictures_of_the_page_are_small_and_drawn_by_the_script():
    import runpy

    docs = Path(__file__).parents[2] / "docs"
    script = runpy.run_path(str(docs / "pictures" / "gallery.py"))
    names = {draw.__name__ for draw in script["ALL"]}
    files = list((docs / "pictures" / "gallery").iterdir())
    page = (docs / "pictures.md").read_text("utf-8")
    assert len(names) == 12 and {file.name for file in files} == {f"{name}.svg" for name in names}
    assert set(re.findall(r"gallery/(\w+)\.svg", page)) == names
    assert all(file.stat().st_size < 150_000 for file in files)
    for name in ("age_groups", "log_costs"):
        saved = ET.parse(docs / "pictures" / "gallery" / f"{name}.svg")
        assert words(saved.getroot()) == words(ET.fromstring(script[name](None).to_svg()))


def words(svg):
    return ["".join(e.itertext()) for e in svg.iter(f"{SVG}text")]
