"""Draws the twelve most common pictures: ``python docs/pictures/gallery.py`` writes SVG files into gallery/.

All data are made up and all noise is simulated, with fixed seeds: the same files come out every time.
``python docs/pictures/gallery.py FOLDER .png`` writes them elsewhere, and at 900 and at 420 pixels.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dphist
from dphist import Categories, Domain, Instants, Integers, Regular, Variable
from dphist.charts.multiples import Panel, multiples_chart
from dphist.charts.picture import CONFIG, Picture

Floats = NDArray[np.float64]
HERE = Path(__file__).parent / "gallery"
WARDS = [
    "Cardiology and chest pain",
    "Surgery",
    "Children",
    "Emergency",
    "Intensive care, adults",
    "Eye clinic",
]
PLACES = re.compile(r' (?:d|transform|x|y|x1|x2|y1|y2)="[^"]*"')  # attributes
SIZES = {900: 430, 420: 360}  # width and height


def hill(n: int, *tops: tuple[float, float, float]) -> Floats:
    """Return made-up counts: a sum of hills, each with its place and width (shares of n) and height."""
    at = (np.arange(n) + 0.5) / n
    return np.sum([high * np.exp(-(((at - x) / wide) ** 2)) for x, wide, high in tops], axis=0)


AGES = ((0.25, 0.16, 900), (0.62, 0.2, 2100))


def publish(counts: Any, bins: Any, epsilon: str, column: Any, **how: Any) -> dphist.Release:
    """Return a simulated release of made-up counts, with plain noise unless another method is named."""
    counts = np.round(counts).astype(np.int64)
    domain = bins if isinstance(bins, Domain) else Domain(bins)
    plan = dphist.Plan(bins=domain, epsilon=epsilon, column=column, **{"method": "identity"} | how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the counts must be public: they are made up
        return plan.preview(records=int(counts.sum()), like=counts).releases[0]


def ages(size: Any) -> Picture:
    """Even bins."""
    release = publish(hill(12, *AGES), Regular(lo=0, hi=120, bins=12), "0.05", "age")
    return release.plot(title="Visits by age", xlabel="age, years", ylabel="visits", size=size)


def single_years(size: Any) -> Picture:
    """One bin for each whole number."""
    release = publish(hill(121, *AGES) / 10, Integers(0, 120), "0.1", "age")
    return release.plot(title="Visits by single year of age", xlabel="age, years", ylabel="visits", size=size)


def minutes(size: Any) -> Picture:
    """Many bins."""
    release = publish(hill(240, (0.05, 0.08, 500), (0.3, 0.2, 300)), Integers(0, 239), "0.05", "wait")
    return release.plot(title="Waiting time", xlabel="minutes", ylabel="visits", size=size)


def age_groups(size: Any) -> Picture:
    """Bins of unequal width."""
    bins = Variable([0, 1, 5, 15, 18, 30, 45, 65, 80, 120])
    counts = [260, 700, 1100, 420, 2300, 3900, 8200, 9100, 4100]
    release = publish(counts, bins, "0.02", "age")
    return release.plot(title="Visits by age group", xlabel="age", ylabel="visits", size=size)


def log_costs(size: Any) -> Picture:
    """Logarithmic bins."""
    bins = Variable(np.geomspace(1, 1e6, 25))
    release = publish(hill(24, (0.55, 0.2, 1500)), bins, "0.03", "cost")
    return release.plot(title="Visits by cost", xlabel="cost, euros", ylabel="visits", size=size)


def wards(size: Any) -> Picture:
    """Labels."""
    release = publish([4100, 3300, 2050, 6900, 640, 1200], Categories(WARDS), "0.02", "ward")
    return release.plot(title="Visits by ward", ylabel="visits", size=size)


def weeks(size: Any) -> Picture:
    """Weeks of a year."""
    bins = Instants("2024-01-01", "2025-01-01", "1w")
    counts = 300 + 90 * np.cos(np.arange(53) / 52 * 2 * np.pi)
    counts[-1] *= 2 / 7
    release = publish(counts, bins, "0.1", "admitted")
    return release.plot(title="Visits per week, 2024", xlabel="week from", ylabel="visits", size=size)


def merged(size: Any) -> Picture:
    """Neighbouring bins that were measured together."""
    counts = hill(120, (0.0, 0.1, 7000), (0.3, 0.03, 1500), (0.52, 0.03, 1600), (0.72, 0.04, 1000))
    release = publish(counts, Integers(0, 119), "0.03", "stay", method="dawa2")
    return release.plot(title="Length of stay", xlabel="hours", ylabel="visits", size=size)


def grid(size: Any) -> Picture:
    """Two axes."""
    bins = Domain((Regular(lo=0, hi=120, bins=12), Regular(lo=0, hi=240, bins=8)))
    counts = np.outer(hill(12, *AGES), hill(8, (0.1, 0.35, 3.0)))
    release = publish(counts, bins, "0.01", ("age", "wait"))
    title = "Visits by age and waiting time"
    return release.plot(title=title, xlabel="age, years", ylabel="minutes waited", size=size)


def regions(size: Any) -> Picture:
    """A histogram for each of several groups."""
    panels = []
    for k, name in enumerate(("North", "East", "South", "West", "Islands", "Capital")):
        counts = hill(24, (0.25 + 0.03 * k, 0.16, 40), (0.6, 0.2, 90 - 12 * k))
        one = publish(counts, Regular(lo=0, hi=120, bins=24), "0.3", "age")
        panels.append(Panel(name, one.values(), *one.presentable_intervals()))
    said = "identity; epsilon 0.3; intervals: 95 % for each bin on its own; SIMULATED: not private"
    domain = Domain(Regular(lo=0, hi=120, bins=24))
    return multiples_chart(
        domain, panels, title="Age of visitors in six regions", subtitle=said, x_title="age", size=size
    )


def preview(size: Any) -> Picture:
    """What could come out."""
    del size  # it has its own
    return dphist.Plan(bins=24, range=(0, 120), epsilon="0.1").preview(records=200_000).plot()


def advice(size: Any) -> Picture:
    """Which method."""
    del size  # it has its own
    methods = ["identity", "hats", "dawa2", "ahp", "uniform"]
    return dphist.advise(
        1024, records=1e6, epsilon="0.1", workload="ranges", like="heaps", methods=methods
    ).plot()


ALL = (
    *(ages, single_years, minutes, age_groups, log_costs, wards),
    *(weeks, merged, grid, regions, preview, advice),
)


def main(folder: Path = HERE, ending: str = ".svg") -> None:
    """Write every picture, and as PNG at two sizes."""
    folder.mkdir(exist_ok=True)
    for draw in ALL:
        for width, height in SIZES.items():
            if ending == ".svg" and width != max(SIZES):
                continue
            tall = height if draw is not grid or width == 900 else 420
            name = draw.__name__ + ("" if ending == ".svg" else f"-{width}") + ending
            made = draw((width, tall) if ending != ".svg" else None)
            config = CONFIG | {"aria": False}
            small = Picture(made.spec | {"config": config})
            if ending == ".svg":
                (folder / name).write_text(shortened(small.to_svg()), "utf-8")
            else:
                small.save(folder / name, scale=1.0, overwrite=True)


CIRCLE = re.compile(  # two arcs are one
    r'<path transform="translate\(([-\d.]+),([-\d.]+)\)" '
    r'd="M([\d.]+),0A\3,\3,0,1,1,-\3,0A\3,\3,0,1,1,\3,0" ([^>]*?)/>'
)


def shortened(svg: str) -> str:
    """Return a picture without what nobody sees: further digits, attributes of defaults, empty shapes."""
    unused = r' (?:opacity="1"|pointer-events="none"|aria-[a-z]+="[^"]*"|role="[^"]*"|class="[^"]*")'
    tags = re.compile(r"<[^>]*>")  # no word between tags is touched
    small = tags.sub(lambda tag: re.sub(unused, "", PLACES.sub(_rounded, tag[0])), svg)
    small = re.sub(r'<path d="(?:" display="none"|M0,0h0v0h0Z")/>', "", small)
    return CIRCLE.sub(r'<circle cx="\1" cy="\2" r="\3" \4/>', small)


def _rounded(places: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), places[0])


if __name__ == "__main__":
    main(*([Path(sys.argv[1]), *sys.argv[2:]] if sys.argv[1:] else []))
