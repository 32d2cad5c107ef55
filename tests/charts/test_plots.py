"""Pictures: what is drawn, that files are of their kind, and that no text can break out of them."""

import json
import math
import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import altair
import numpy as np
import pytest

from dphist.charts import picture as plots
from dphist.charts.heatmap import heatmap_chart
from dphist.charts.histogram import histogram_chart
from dphist.charts.picture import Picture
from dphist.domain import Categories, Domain, Integers, Regular, Variable
from dphist.errors import OutputError, UsageError

HOSTILE = "</script><script>alert(1)</script><!-- <b>&amp;\"'{{x}} \x00\x1b\n\ud800"
SVG = "{http://www.w3.org/2000/svg}"


def regular(n):
    return Domain(Regular(lo=0, hi=10, bins=n))


def noisy(n, seed=0):
    return np.random.default_rng(seed).normal(50, 20, n)


def marks(picture):
    return [layer["mark"]["type"] for layer in picture.spec["layer"]]


def layers_of(picture, kind):
    return [one for one in picture.spec["layer"] if kind in one["transform"][0]["calculate"]]


def table(picture, name):
    return picture.spec["datasets"][name]


def valid(picture):
    """Let altair's schema judge the description; the rows are only numbers and would take minutes."""
    spec = picture.spec | {"datasets": {name: rows[:3] for name, rows in picture.spec["datasets"].items()}}
    return altair.Chart.from_dict(spec)


# What is drawn


@pytest.mark.parametrize("n", [1, 2, 10, 40, plots.MAX_BARS])
def test_each_bin_is_one_bar(n):
    values = noisy(n)
    picture = histogram_chart(regular(n), values, title="t")
    rows = table(picture, "bins")
    assert marks(picture) == ["bar"]
    assert [row["value"] for row in rows] == values.tolist()
    assert [row["x from"] for row in rows] + [rows[-1]["x to"]] == np.linspace(0, 10, n + 1).tolist()
    valid(picture)


@pytest.mark.parametrize("n", [plots.MAX_BARS + 1, plots.MAX_COLUMNS])
def test_more_bins_than_bars_become_steps_with_two_corners_each(n):
    values = noisy(n)
    picture = histogram_chart(regular(n), values)
    rows = table(picture, "corners")
    edges = np.linspace(0, 10, n + 1)
    assert set(marks(picture)) == {"area", "line"}
    assert "bins" not in picture.spec["datasets"]
    assert [row["corner"] for row in rows] == [e for i in range(n) for e in (edges[i], edges[i + 1])]
    assert [row["value"] for row in rows] == [v for v in values for _ in range(2)]
    valid(picture)


@pytest.mark.parametrize(("n", "k"), [(1001, 2), (1999, 2), (2000, 2), (2001, 3), (10_007, 11)])
def test_columns_are_aggregated_as_a_slow_twin_does(n, k):
    values, truth = noisy(n), noisy(n, 1)
    half = np.abs(noisy(n, 2))
    low, high = values - half, values + 2 * half
    low[: 3 * k] = np.nan  # three columns without, and one with a part
    high[3 * k] = np.inf
    picture = histogram_chart(regular(n), values, low=low, high=high, truth=truth)
    rows = table(picture, "corners")[::2]
    assert table(picture, "corners")[1::2] == [
        row | {"corner": nxt} for row, nxt in zip(rows, [*[r["corner"] for r in rows[1:]], 10.0], strict=True)
    ]
    edges = np.linspace(0, 10, n + 1)
    columns = [range(start, min(start + k, n)) for start in range(0, n, k)]
    assert len(rows) == len(columns) <= plots.MAX_COLUMNS
    for row, column in zip(rows, columns, strict=True):
        mean = math.fsum(values[i] for i in column) / len(column)
        assert row["corner"] == edges[column[0]]
        assert row["value"] == pytest.approx(mean)
        assert row["truth"] == pytest.approx(math.fsum(truth[i] for i in column) / len(column))
        assert (row["least"], row["most"]) == (min(values[column]), max(values[column]))
        known = [i for i in column if math.isfinite(low[i]) and math.isfinite(high[i])]
        if known:
            width = math.fsum(half[i] for i in known) / len(known)
            assert row["low"] == pytest.approx(mean - width)
            assert row["high"] == pytest.approx(mean + 2 * width)
        else:
            assert row["low"] is row["high"] is None
    assert f"each column shows {k:,} bins" in " ".join(picture.spec["title"]["subtitle"])
    assert "typical" in " ".join(picture.spec["title"]["subtitle"])
    valid(picture)


@pytest.mark.parametrize("n", [10, 120, 500, 5000])
def test_band_and_truth_are_there_exactly_when_given(n):
    values = noisy(n)
    plain = histogram_chart(regular(n), values)
    band = histogram_chart(regular(n), values, low=values - 1, high=values + 1)
    both = histogram_chart(regular(n), values, low=values - 1, high=values + 1, truth=values)
    assert not layers_of(plain, "interval") and not layers_of(plain, "true")
    assert layers_of(band, "interval") and not layers_of(band, "true")
    assert layers_of(both, "interval") and layers_of(both, "true")
    legend = both.spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert {"private", "true"} <= set(legend)
    valid(both)


def test_missing_interval_parts_are_not_drawn():
    values = noisy(12)
    low, high = values - 5, values + 5
    low[2], high[5], low[7] = np.nan, np.inf, -np.inf
    picture = histogram_chart(regular(12), values, low=low, high=high)
    gone = [i for i, row in enumerate(table(picture, "bins")) if row["low"] is None or row["high"] is None]
    assert gone == [2, 5, 7]
    rules = [e for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}line") if e.get("stroke") == plots.INK]
    assert len(rules) == 12 - 3
    assert "NaN" not in json.dumps(picture.spec) and "Infinity" not in json.dumps(picture.spec)


def test_an_interval_may_lie_beside_its_value():
    picture = histogram_chart(regular(2), [0.0, 5.0], low=[-4.0, 6.0], high=[-1.0, 7.0])
    assert [(row["low"], row["high"]) for row in table(picture, "bins")] == [(-4.0, -1.0), (6.0, 7.0)]


def test_logarithmic_heights_keep_zero_and_negative_values():
    values = np.array([-30.0, 0.0, 3.0, 1e6])
    picture = histogram_chart(regular(4), values, scale="log")
    y = picture.spec["layer"][0]["encoding"]["y"]
    assert y["scale"]["type"] == "symlog"
    assert y["scale"]["domain"][0] < -30 and y["scale"]["domain"][1] > 1e6
    assert 0 in y["axis"]["values"] and 1e6 in y["axis"]["values"]
    assert len(y["axis"]["values"]) <= 9
    texts = [e.text for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}text")]
    assert {"1,000,000", "10,000", "100", "0"} <= set(texts)


def test_whole_numbers_stand_in_the_middle_of_their_bins():
    rows = table(histogram_chart(Domain(Integers(3, 6)), noisy(4)), "bins")
    assert [row["x middle"] for row in rows] == [3, 4, 5, 6]


def test_categories_are_written_and_long_ones_cut():
    labels = ("a", "b" * 80, "<i>c</i>", "(other)")
    picture = histogram_chart(Domain(Categories(labels, other=True)), noisy(5), truth=noisy(5))
    assert [row["x bin"] for row in table(picture, "bins")] == [*labels, "(other)"]
    svg = picture.to_svg()
    shown = [text for e in ET.fromstring(svg).iter(f"{SVG}text") if (text := e.text)]
    assert {"a", "<i>c</i>"} <= set(shown) and shown.count("(other)") == 2
    assert any(re.fullmatch("b+…", text) for text in shown) and "b" * 80 not in shown
    valid(picture)


def test_many_categories_are_thinned_and_then_numbered():
    some = histogram_chart(Domain(Categories([f"c{i}" for i in range(120)])), noisy(120))
    values = some.spec["layer"][0]["encoding"]["x"]["axis"]["values"]
    assert values[0] == 1 and 30 <= len(values) <= 60
    texts = [e.text or "" for e in ET.fromstring(some.to_svg()).iter(f"{SVG}text")]
    assert [text for text in texts if re.fullmatch(r"c\d+", text)] == [f"c{i - 1}" for i in values]
    many = histogram_chart(Domain(Categories([f"c{i}" for i in range(400)])), noisy(400), x_title="port")
    assert many.spec["layer"][0]["encoding"]["x"]["title"] == "port, by number"


def test_very_uneven_edges_are_named_and_others_measured():
    wild = histogram_chart(Domain(Variable([0, 1, 10, 1000])), noisy(3))
    mild = histogram_chart(Domain(Variable([0, 1, 3, 10])), noisy(3))
    assert wild.spec["params"] == [{"name": "xnames", "value": ["[0, 1)", "[1, 10)", "[10, 1000]"]}]
    assert "none is drawn to scale" in " ".join(wild.spec["title"]["subtitle"])
    assert mild.spec["params"] == []
    assert [row["x to"] for row in table(mild, "bins")] == [1, 3, 10]


@pytest.mark.parametrize(
    ("lo", "hi", "shown", "hidden"),
    [
        (0, 120, ["0", "120"], []),
        (1900, 2020, ["1900", "2000"], ["1,900", "1.9k"]),
        (0, 5e6, ["0", "1M"], ["0M", "1000000"]),
        (1e9, 1e9 + 10, ["1,000,000,002"], ["1G"]),
        (0, 0.001, ["0.0005"], ["500µ"]),
    ],
)
def test_ticks_read_as_people_write_numbers(lo, hi, shown, hidden):
    svg = histogram_chart(Domain(Regular(lo=lo, hi=hi, bins=10)), np.ones(10)).to_svg()
    texts = {e.text for e in ET.fromstring(svg).iter(f"{SVG}text")}
    assert set(shown) <= texts
    assert not set(hidden) & texts


def test_titles_and_the_word_simulated_are_seen():
    picture = histogram_chart(
        regular(3), [1, 2, 3], subtitle="SIMULATED: no privacy. " + 20 * "more words ", x_title="ages"
    )
    head = picture.spec["title"]
    assert head["subtitleColor"] == plots.VERMILION and head["subtitleFontWeight"] == "bold"
    assert len(head["subtitle"]) > 1
    svg = picture.to_svg()
    assert "SIMULATED: no privacy" in svg and ">ages<" in svg and ">records<" in svg
    calm = histogram_chart(regular(3), [1, 2, 3], subtitle="epsilon 1").spec["title"]
    assert "subtitleColor" not in calm


@pytest.mark.parametrize("values", [np.zeros(5), -np.ones(5), np.full(5, 1e-9), np.full(5, 1e15)])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_flat_and_extreme_values_are_drawn(values, scale):
    assert histogram_chart(regular(5), values, scale=scale).to_png(scale=1).startswith(b"\x89PNG")


# Heat maps


@pytest.mark.parametrize("shape", [(3, 5), (128, 7), (129, 300), (1000, 2)])
def test_cells_are_sums_as_a_slow_twin_finds_them(shape):
    domain = Domain((Regular(lo=0, hi=1, bins=shape[0]), Integers(0, shape[1] - 1)))
    grid = noisy(shape[0] * shape[1]).reshape(shape)
    picture = heatmap_chart(domain, grid, title="t")
    j, k = (math.ceil(n / 128) for n in shape)
    want = {
        (round(a / shape[0], 9), b - 0.5): grid[a : a + j, b : b + k].sum()
        for a in range(0, shape[0], j)
        for b in range(0, shape[1], k)
    }
    got = {(round(row["x from"], 9), row["y from"]): row["value"] for row in table(picture, "cells")}
    assert got == pytest.approx(want)
    said = f"sum of {j:,} x {k:,} bins" in " ".join(picture.spec["title"].get("subtitle", []))
    assert said == (j * k > 1)
    assert sum(got.values()) == pytest.approx(grid.sum())
    assert heatmap_chart(domain, grid.ravel()).spec["datasets"] == picture.spec["datasets"]
    valid(picture)


def test_skewed_cells_get_bent_colours_and_an_honest_legend():
    domain = Domain((Integers(0, 19), Integers(0, 19)))
    grid = np.zeros((20, 20))
    grid[3, 4], grid[5, 6] = 1e6, -10
    picture = heatmap_chart(domain, grid)
    assert picture.spec["encoding"]["color"]["field"] == "shade"
    shades = sorted({round(row["shade"], 9) for row in table(picture, "cells")})
    assert shades == pytest.approx([-math.log(11), 0, math.log1p(1e6)])
    texts = {e.text for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}text")}
    assert {"1,000,000", "10,000", "100"} <= texts or {"1,000,000", "1,000"} <= texts
    even = heatmap_chart(domain, grid * 0 + 3)
    assert even.spec["layer"][0]["encoding"]["color"]["field"] == "value"
    assert even.to_png(scale=1).startswith(b"\x89PNG")


def test_labels_on_both_sides():
    domain = Domain((Categories(("p", "q")), Categories(("u", "v", "w"))))
    picture = heatmap_chart(domain, np.arange(6.0), x_title="first", y_title="second")
    rows = table(picture, "cells")
    assert [(row["x bin"], row["y bin"], row["value"]) for row in rows][:4] == [
        ("p", "u", 0),
        ("p", "v", 1),
        ("p", "w", 2),
        ("q", "u", 3),
    ]
    texts = [e.text for e in ET.fromstring(picture.to_svg()).iter(f"{SVG}text")]
    assert {"p", "q", "u", "v", "w", "first", "second"} <= set(texts)
    valid(picture)


# What is refused


def test_wrong_arguments_are_refused_with_advice():
    with pytest.raises(UsageError, match="did you mean 'log'|Did you mean 'log'"):
        histogram_chart(regular(3), [1, 2, 3], scale="lgo")
    with pytest.raises(UsageError, match="go together"):
        histogram_chart(regular(3), [1, 2, 3], low=[0, 0, 0])
    with pytest.raises(UsageError, match="swapped"):
        histogram_chart(regular(3), [1, 2, 3], low=[2, 3, 4], high=[0, 1, 2])
    with pytest.raises(UsageError, match=r"3 bins and truth has shape \(2,\)"):
        histogram_chart(regular(3), [1, 2, 3], truth=[1, 2])
    with pytest.raises(UsageError, match="finite"):
        histogram_chart(regular(3), [1, np.nan, 3])
    with pytest.raises(UsageError, match="two axes"):
        heatmap_chart(regular(3), [1, 2, 3])
    with pytest.raises(UsageError, match="one-dimensional"):
        histogram_chart(Domain((Integers(0, 1), Integers(0, 1))), np.ones(4))
    with pytest.raises(UsageError, match="scale"):
        histogram_chart(regular(3), [1, 2, 3]).to_png(scale=1e6)


# Files


@pytest.fixture(scope="module")
def picture():
    return histogram_chart(regular(10), noisy(10), low=noisy(10) - 9, high=noisy(10) + 9, title="Ages")


def test_files_are_of_their_kind(picture, tmp_path):
    png = picture.save(tmp_path / "a.PNG").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.rstrip().endswith(b"IEND\xaeB`\x82")
    small = picture.save(str(tmp_path / "b.png"), scale=1.0).read_bytes()
    assert int.from_bytes(png[16:20]) == pytest.approx(2 * int.from_bytes(small[16:20]), abs=2)
    assert ET.fromstring(picture.save(tmp_path / "a.svg").read_text()).tag == f"{SVG}svg"
    assert json.loads(picture.save(tmp_path / "a.vl.json").read_text()) == picture.spec
    assert picture.save(tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.PNG", "a.html", "a.svg", "a.vl.json", "b.png"]


def test_saved_files_have_ordinary_permissions(picture, tmp_path):
    (tmp_path / "plain").write_text("")
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_picture_replaces_nothing_but_itself_unasked(picture, tmp_path):
    (tmp_path / "a.json").write_text("a release")
    with pytest.raises(OutputError, match=r"end it in .*Vega-Lite description: a\.vl\.json"):
        picture.save(tmp_path / "a.json")
    (tmp_path / "b.vl.json").write_text('{"format": "dphist-release"}')
    with pytest.raises(OutputError, match="exists and is not this picture.*overwrite=True"):
        picture.save(tmp_path / "b.vl.json")
    assert "dphist-release" in (tmp_path / "b.vl.json").read_text()
    other = histogram_chart(regular(3), [1, 2, 3])
    for name in ("c.vl.json", "c.svg", "c.png", "c.html"):
        before = picture.save(tmp_path / name).read_bytes()
        assert picture.save(tmp_path / name).read_bytes() == before
        with pytest.raises(OutputError, match="exists and is not this picture"):
            other.save(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
        assert other.save(tmp_path / name, overwrite=True).read_bytes() != before
    assert (tmp_path / "a.json").read_text() == "a release"


def test_what_is_simulated_is_not_called_private():
    for n in (10, plots.MAX_BARS + 1):
        spec = json.dumps(histogram_chart(regular(n), noisy(n), truth=noisy(n), simulated=True).spec)
        assert "'simulated'" in spec and "private" not in spec
        assert "'private'" in json.dumps(histogram_chart(regular(n), noisy(n), truth=noisy(n)).spec)


def test_what_cannot_be_written_is_said(picture, tmp_path):
    with pytest.raises(OutputError, match=r"'a\.gif' names no picture: end it in \.png"):
        picture.save(tmp_path / "a.gif")
    with pytest.raises(OutputError, match="no directory .*make it first"):
        picture.save(tmp_path / "none" / "a.png")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        picture.save(tmp_path / "folder.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.svg"]


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failed_save_leaves_the_old_file(picture, tmp_path, monkeypatch, step):
    target = tmp_path / "a.svg"
    target.write_text("old")

    def full(self, *_):
        if step == "write_bytes":
            with self.open("wb") as file:
                file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(target), step, full)
    with pytest.raises(OutputError, match="No space left"):
        picture.save(target, overwrite=True)
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.svg"]


def test_notebooks_get_a_picture_and_its_description(picture):
    shown = picture._repr_mimebundle_(include=None, exclude=None)
    assert shown["application/vnd.vegalite.v6+json"]["$schema"].endswith("vega-lite/v6.json")
    assert ET.fromstring(shown["image/svg+xml"]).tag == f"{SVG}svg"
    assert "histogram of 10 bins" in shown["text/plain"] == repr(picture)


# Texts are data


class Tags(HTMLParser):
    """Every element with its attributes, and the text inside scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)


def test_the_page_loads_nothing_and_hostile_texts_stay_texts():
    domain = Domain(Categories((HOSTILE, "ok")))
    picture = histogram_chart(
        domain, [1, 2], title=HOSTILE, subtitle=HOSTILE, x_title=HOSTILE, y_title=HOSTILE, truth=[1, 2]
    )
    page = Tags()
    text = picture.to_html()
    page.feed(text)
    kind = [tag for tag, _ in page.tags]
    assert kind.count("script") == 2 and not {"link", "img", "iframe", "b"} & set(kind)
    assert all("src" not in attrs and "href" not in attrs for _, attrs in page.tags)
    assert "default-src 'none'" in text
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert "alert(1)" not in scripts[0]
    # The description is one JSON object again, and the same one.
    inside = scripts[1]
    assert "<" not in inside
    spec, _ = json.JSONDecoder().raw_decode(inside[inside.index("{") :])
    assert spec == picture.spec
    assert "<script>alert(1)</script>" in spec["title"]["text"][0]
    assert not re.search(r"[\x00-\x08\x0e-\x1f]", text[-5000:])


def test_hostile_texts_in_svg_and_png():
    domain = Domain((Categories((HOSTILE, "ok")), Integers(0, 3)))
    picture = heatmap_chart(
        domain, np.arange(8), title=HOSTILE, subtitle=HOSTILE, x_title=HOSTILE, y_title=HOSTILE
    )
    tree = ET.fromstring(picture.to_svg())
    allowed = {"svg", "g", "rect", "path", "text", "tspan", "line", "defs"}
    allowed |= {"linearGradient", "stop", "clipPath"}
    assert {e.tag.removeprefix(SVG) for e in tree.iter()} <= allowed
    assert any("alert(1)" in (e.text or "") for e in tree.iter())
    assert picture.to_png(scale=1).startswith(b"\x89PNG")


def test_texts_are_never_expressions():
    words = "'); alert(1); ('"
    picture = histogram_chart(Domain(Categories((words, "b"))), [1, 2], title=words, x_title=words)

    def expressions(part):
        if isinstance(part, dict):
            for key, value in part.items():
                if key in ("labelExpr", "calculate", "test", "expr", "signal"):
                    yield value
                elif key not in ("datasets", "params"):
                    yield from expressions(value)
        elif isinstance(part, list):
            for value in part:
                yield from expressions(value)

    found = list(expressions(picture.spec))
    assert found and not any("alert" in text for text in found)


# Size


@pytest.mark.parametrize("n", [100_000, 1_000_000])
def test_large_histograms_are_drawn_from_a_few_thousand_numbers(n):
    values = noisy(n)
    drawn = histogram_chart(regular(n), values, low=values - 1, high=values + 1, truth=values)
    assert drawn.to_png().startswith(b"\x89PNG")
    assert len(table(drawn, "corners")) <= 2 * plots.MAX_COLUMNS
    assert len(json.dumps(drawn.spec)) < 1e6


def test_importing_plots_loads_no_renderer():
    import subprocess
    import sys

    heavy = ("altair", "vl_convert", "pandas")
    code = f"import sys, dphist.charts.picture; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pictures_are_frozen(picture):
    assert isinstance(picture, Picture)
    with pytest.raises(AttributeError):
        picture.spec = {}


def test_a_picture_is_an_altair_chart_when_asked():
    import altair

    line = histogram_chart(Domain((Integers(0, 2),)), [1, 2, 3], low=[0, 1, 2], high=[2, 3, 4]).to_altair()
    grid = heatmap_chart(Domain((Integers(0, 1), Integers(0, 1))), [[1, 2], [3, 4]]).to_altair()
    assert isinstance(line, altair.LayerChart)
    assert isinstance(grid, altair.LayerChart)
    assert line.to_dict()["layer"]
