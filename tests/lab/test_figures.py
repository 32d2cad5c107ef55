"""Pictures of measurements: what is drawn, how, and what is refused."""

import json
import math
from itertools import combinations, product

import altair
import pytest

from dphist.errors import UsageError
from dphist.lab.figures import STYLES, dots, front, groups, lines, skyline, styles
from dphist.methods.catalogue import CATALOGUE

FIFTEEN = [
    *("s1", "sa", "s2", "o+s1", "o+sa", "o+s2", "s1+mm", "sa+mm", "s2+mm"),
    *("s1+pmm", "sa+pmm", "s2+pmm", "h", "s1+h", "s2+h"),
]
ROWS = [
    {
        "method": method,
        "dataset": dataset,
        "epsilon": epsilon,
        "seconds": 1e-4 * 1.9**i,
        "mean_squared": 1e6 / (epsilon * (1 + (7 * i) % 15)),
    }
    for i, method in enumerate(FIFTEEN)
    for dataset, epsilon in product(("Rome", "Log"), (0.01, 0.1, 1.0))
]
TITLES = {"title": "Error", "x_title": "epsilon", "y_title": "mean squared error (records²)"}


def values(picture, panel=0):
    spec = picture.spec
    return (spec["concat"][panel] if "concat" in spec else spec)["data"]["values"]


def test_every_method_of_the_catalogue_has_its_own_look():
    looks = styles(CATALOGUE)
    assert len({(s.colour, s.mark) for s in looks.values()}) == len(CATALOGUE)
    assert looks["dawa"] == styles(["x", "dawa"])["dawa"]  # the same in every picture
    assert set(FIFTEEN) <= set(STYLES)


def test_unknown_names_get_looks_that_nothing_else_in_the_picture_has():
    names = [*FIFTEEN, "Rome", "Log", "sdahp@0.5"]
    looks = styles(names)
    assert list(looks) == names
    assert len(set(looks.values())) == len(names)
    few = styles(["a", "b", "c"])
    assert len({s.colour for s in few.values()}) == len({s.mark for s in few.values()}) == 3


def test_the_front_is_what_no_other_beats_in_both():
    assert front([1, 2, 3, 2.5], [9, 4, 1, 5]) == [True, True, True, False]
    assert front([1, 1], [2, 2]) == [True, True]  # equals do not beat each other
    assert front([1, 1], [2, 3]) == [True, False]


def test_lines_average_rows_that_agree():
    rows = [{"m": "s1", "e": 0.1, "y": y} for y in (2.0, 4.0)] + [{"m": "s1", "e": 1.0, "y": 1.0}]
    picture = lines(rows, x="e", y="y", by="m", **TITLES)
    assert [r["y"] for r in values(picture)] == [3.0, 1.0]


def test_rows_that_a_logarithmic_axis_cannot_show_are_left_out():
    rows = [{"m": "s1", "e": e, "y": y} for e, y in ((0.1, 0.0), (0.2, math.nan), (0.5, None), (1.0, 2.0))]
    picture = lines(rows, x="e", y="y", by="m", **TITLES)
    assert [r["e"] for r in values(picture)] == [1.0]
    with pytest.raises(UsageError, match="nothing to draw"):
        lines(rows[:3], x="e", y="y", by="m", **TITLES)
    with pytest.raises(UsageError, match="nothing to draw"):
        lines([], x="e", y="y", by="m", **TITLES)
    plain = lines(rows, x="e", y="y", by="m", log_x=False, log_y=False, **TITLES)
    assert [r["y"] for r in values(plain)] == [0.0, 2.0]


def test_the_skyline_names_every_method_and_bolds_the_front():
    picture = skyline(
        [r for r in ROWS if r["epsilon"] == 1], column="dataset", title="t", error_title="error"
    )
    assert len(picture.spec["concat"]) == 2
    for panel in range(2):
        drawn = values(picture, panel)
        assert [r["method"] for r in drawn] == FIFTEEN
        best = front([r["seconds"] for r in drawn], [r["mean_squared"] for r in drawn])
        assert [r["skyline"] for r in drawn] == best
        assert 1 < sum(best) < 15
    svg = picture.to_svg()
    assert all(svg.count(f">{name}<") == 2 for name in FIFTEEN)
    assert ">Rome<" in svg and ">Log<" in svg


def test_labels_of_the_skyline_do_not_cover_each_other():
    crowd = [{"method": m, "seconds": 1 + i / 50, "mean_squared": 5 + i % 3} for i, m in enumerate(FIFTEEN)]
    crowd.append({"method": "far", "seconds": 100.0, "mean_squared": 500.0})
    picture = skyline(crowd, title="t", error_title="error")
    spec = picture.spec
    axes = spec["layer"][2]["encoding"]
    across, up = axes["x"]["scale"]["domain"], axes["y"]["scale"]["domain"]

    def pixel(value, ends, length):
        return length * math.log(value / ends[0]) / math.log(ends[1] / ends[0])

    boxes = []
    for row in values(picture):
        u, v = pixel(row["label x"], across, spec["width"]), pixel(row["label y"], up, spec["height"])
        half = 3 * len(row["method"])
        assert u - half >= 0 and u + half <= spec["width"] and 0 <= v <= spec["height"]
        boxes.append((u - half, v - 5, u + half, v + 5))
    for a, b in combinations(boxes, 2):
        assert min(a[2], b[2]) <= max(a[0], b[0]) or min(a[3], b[3]) <= max(a[1], b[1])


def test_dots_rank_each_panel_by_itself():
    rows = [
        {"m": m, "d": d, "x": x, "lo": x / 2, "hi": x * 2}
        for m, d, x in (("a", "p", 3.0), ("b", "p", 1.0), ("a", "q", 1.0), ("b", "q", 3.0))
    ]
    picture = dots(rows, x="x", y="m", column="d", low="lo", high="hi", title="t", x_title="error")
    orders = [panel["layer"][0]["encoding"]["y"]["sort"] for panel in picture.spec["concat"]]
    assert orders == [["b", "a"], ["a", "b"]]


def test_groups_keep_the_order_of_the_rows():
    rows = [r | {"lo": r["mean_squared"] / 2, "hi": r["mean_squared"] * 2} for r in ROWS]
    picture = groups(
        rows, x="dataset", y="mean_squared", by="method", column="epsilon", low="lo", high="hi", **TITLES
    )
    assert len(picture.spec["concat"]) == 3
    encoding = picture.spec["concat"][0]["layer"][1]["encoding"]
    assert encoding["x"]["sort"] == ["Rome", "Log"] and encoding["xOffset"]["sort"] == FIFTEEN


def test_ticks_are_round_few_and_readable():
    svg = skyline(
        [r for r in ROWS if r["dataset"] == "Log"], title="t", error_title="mean squared error (records²)"
    ).to_svg()
    assert ">1 ms<" in svg and ">100 ms<" in svg and ">mean squared error (records²)<" in svg
    svg = lines(ROWS, x="epsilon", y="mean_squared", by="method", column="dataset", **TITLES).to_svg()
    assert ">0.01<" in svg and ">1e6<" in svg and ">method<" in svg and "undefined" not in svg


@pytest.mark.parametrize("kind", ["lines", "skyline", "dots", "groups"])
def test_specs_are_valid_vega_lite_and_plain_json(kind):
    few = [r for r in ROWS if r["method"] in ("s1", "h") and r["epsilon"] < 1]  # validating takes long
    pictures = {
        "lines": lambda: lines(few, x="epsilon", y="mean_squared", by="method", column="dataset", **TITLES),
        "skyline": lambda: skyline(few, column="dataset", row="epsilon", title="t", error_title="error"),
        "groups": lambda: groups(few, x="dataset", y="mean_squared", by="method", **TITLES),
        "dots": lambda: dots(few, x="mean_squared", y="method", by="epsilon", title="t", x_title="error"),
    }
    spec = pictures[kind]().spec
    json.dumps(spec, allow_nan=False)
    altair.Chart.from_dict(spec) if "layer" in spec else altair.ConcatChart.from_dict(spec)
