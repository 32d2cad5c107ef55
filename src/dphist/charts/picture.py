"""Pictures of histograms: Vega-Lite descriptions, drawn to PNG, SVG and one-file HTML without a network.

Pictures are made of public numbers. Every text a person gave travels as data inside the description.
"""

from __future__ import annotations

import html
import json
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.leftovers import file_beside
from dphist.domain import Domain
from dphist.domain.groups import Floats
from dphist.errors import OutputError, UsageError

if TYPE_CHECKING:
    import altair

Spec: TypeAlias = dict[str, Any]

MAX_BARS, MAX_COLUMNS, MAX_CELLS = 150, 1000, 128

WIDTH, HEIGHT = 720, 320

SMALLEST, LARGEST = 200, 4000  # pixels of a whole picture

MAP_WIDTH, MAP_HEIGHT, ERROR_HEIGHT = 640, 390, 130

MOST_LISTED, LIST_ROW = 60, 22  # labels in a list of bars, and the pixels of each

LETTER, ROOMY = 6.3, 14  # the width of a letter, and the least cell that can be drawn smaller

INSET, QUARTER, DARK = 0.14, 0.25, 0.6  # of smaller cells, of well-known values, where letters turn white

SCHEMA, MIME = "https://vega.github.io/schema/vega-lite/v6.json", "application/vnd.vegalite.v6+json"

WHITE, INK, MUTED, GREY = "#FFFFFF", "#262626", "#57606A", "#87909A"

BLUE, BAR, VERMILION = "#0A5A97", "#4A8FC7", "#B84700"  # lines, bars under whiskers, what stands out

SKY, FAINT = "#7DB1DB", "#F1F3F6"  # bands, which a line of their own names, and empty cells

# Curves: distinct under the common kinds of colour blindness, and each dark enough for white paper.
INKS = ("#1050C8", "#733000", "#1B9A7E", "#D048B8", "#958A2A", "#222222")

RAMP = ["#DCE9F5", "#BDD7EC", "#95C0E1", "#5FA0CF", "#2678B2", "#0A4F86", "#06325A"]  # cells, from zero up

TEXT = {"labelFontSize": 12, "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal"}

CONFIG: Spec = {
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "title": {"anchor": "start", "frame": "bounds", "color": INK, "fontSize": 18, "offset": 12}
    | {"subtitleColor": INK, "subtitleFontSize": 13, "subtitlePadding": 6, "subtitleLineHeight": 17},
    "axis": TEXT | {"gridColor": "#E6E6E6", "titleFontSize": 13, "titlePadding": 10, "labelPadding": 4},
    "legend": TEXT | {"titleFontSize": 12, "labelLimit": 300},
    "range": {"heatmap": RAMP, "ramp": RAMP},
}

LEGEND: Spec = {"orient": "top", "title": None, "symbolType": "square", "symbolOpacity": 1, "offset": 4}

Table: TypeAlias = Sequence[Sequence[str]]  # words, the first row is the head

MOST_ROWS = 1000  # of a page's table

ENDINGS = (".png", ".svg", ".html", ".vl.json")

TIP = {"tooltip": {"content": "data"}}

# The policy keeps the page off the network, whatever a description may ask for.
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
body{{margin:1rem auto;padding:0 .6rem;max-width:75rem;
font:15px/1.45 Helvetica,Arial,sans-serif;color:#262626}}
#picture,#picture svg.marks{{display:block;width:100%;height:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}
th,td{{text-align:right;padding:.15rem .8rem;border-bottom:1px solid #ddd}}
th:first-child,td:first-child{{text-align:left;overflow-wrap:anywhere}}
</style><script>{library}</script></head><body><div id="picture"></div>{table}<script>
vegaEmbed("#picture", {spec}, {{renderer: "svg", actions: {{export: true, source: false, editor: false}}}});
</script></body></html>"""


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, held as its Vega-Lite description; ``altair.Chart.from_dict(picture.spec)`` reads it."""

    spec: Spec
    table: Table = ()

    def __repr__(self) -> str:
        return f"Picture({self.spec['description']!r})"

    def to_png(self, *, scale: float = 2.0) -> bytes:
        """Return the picture as PNG; scale 2 suits dense screens and print."""
        import vl_convert

        if not 0.1 <= scale <= 10:
            raise UsageError(f"scale must lie between 0.1 and 10, not {scale!r}.")
        return bytes(vl_convert.vegalite_to_png(self.spec, scale=scale))

    def to_svg(self) -> str:
        """Return the picture as SVG."""
        import vl_convert

        return str(vl_convert.vegalite_to_svg(self.spec))

    def to_html(self) -> str:
        """Return a page as wide as its window: the picture, the program that draws it, and the table of it.

        It loads nothing else.
        """
        # '</script' and '<!--' end or bend a script wherever they stand in it, so no '<' of the description
        # may remain. This is why the page is ours: vl-convert's leaves them in.
        spec = json.dumps(self.spec).replace("<", "\\u003c")
        title, table = html.escape(self.spec["description"]), _page_table(self.table)
        return PAGE.format(title=title, library=_library(), spec=spec, table=table)

    def save(self, path: str | os.PathLike[str], *, scale: float = 2.0, overwrite: bool = False) -> Path:
        """Write the picture as its ending says: .png, .svg, .html, or .vl.json for its description.

        Another file of that name is left alone unless ``overwrite=True``, and so it is if writing fails.
        """
        target = Path(path)
        texts: dict[str, Callable[[], str]] = {".svg": self.to_svg, ".html": self.to_html}
        texts[".vl.json"] = lambda: json.dumps(self.spec)
        ending = next((e for e in ENDINGS if target.name.lower().endswith(e)), "")
        if not ending:
            raise OutputError(
                f"{target.name!r} names no picture: end it in {', '.join(ENDINGS)}.{_json(target)}"
            )
        if not target.parent.is_dir():
            raise OutputError(f"there is no directory {str(target.parent)!r}; make it first.")
        content = self.to_png(scale=scale) if ending == ".png" else texts[ending]().encode()
        try:
            if not overwrite and target.is_file() and target.read_bytes() not in (b"", content):
                raise OutputError(
                    f"{str(target)!r} exists and is not this picture: choose another name, or say "
                    "overwrite=True."
                )
            with file_beside(target) as partial:
                partial.write_bytes(content)
                partial.replace(target)
        except OSError as error:
            raise OutputError(
                f"{str(target)!r} cannot be written: {error.strerror}; try elsewhere."
            ) from error
        return target

    def to_altair(
        self,
    ) -> altair.Chart | altair.LayerChart | altair.ConcatChart | altair.VConcatChart | altair.FacetChart:
        """Return the picture as an Altair chart, to restyle or combine with others."""
        try:
            import altair
        except ImportError:
            raise UsageError("Altair is not installed: pip install altair.") from None

        if "concat" in self.spec:
            return altair.ConcatChart.from_dict(self.spec, validate=False)
        if "vconcat" in self.spec:
            return altair.VConcatChart.from_dict(self.spec, validate=False)
        if "facet" in self.spec:
            return altair.FacetChart.from_dict(self.spec, validate=False)
        kind = altair.LayerChart if "layer" in self.spec else altair.Chart
        # Validating every row of the data takes minutes for a heat map, and the tests validate the shape.
        return kind.from_dict(self.spec, validate=False)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Spec:
        return {"image/svg+xml": self.to_svg(), MIME: self.spec, "text/plain": repr(self)}


def frame(
    title: str,
    subtitle: str,
    notes: Sequence[str],
    about: str,
    tables: Spec,
    names: Spec,
    *,
    width: float = WIDTH,
) -> Spec:
    """Return what every description has: its words, broken into lines for a width, and its data by name."""
    name, letters = plain(title), max(width / WIDTH, 0.3)
    head: Spec = {"text": textwrap.wrap(name, int(76 * letters), max_lines=3, placeholder=" …") or [" "]}
    lines = [line for part in (subtitle, *notes) for line in textwrap.wrap(plain(part), int(112 * letters))]
    head |= {"subtitle": lines} if lines else {}
    head |= {"subtitleColor": VERMILION, "subtitleFontWeight": "bold"} if "SIMULATED" in subtitle else {}
    spec = {"$schema": SCHEMA, "description": f"{name}: {about}" if name else about, "title": head}
    rows = {key: _rows(table) for key, table in tables.items()}
    params = [{"name": key, "value": labels} for key, labels in names.items() if labels]
    return spec | {"config": CONFIG, "datasets": rows, "params": params}


def _rows(table: dict[str, NDArray[Any]]) -> list[Spec]:
    columns = [[None if v != v else v for v in part.tolist()] for part in table.values()]  # NaN is no JSON
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def checked(values: ArrayLike, domain: Domain, name: str, *, gaps: bool = False) -> Floats:
    """Return one number for each bin, or say what is wrong with them."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((domain.n,), domain.shape):
        raise UsageError(f"the domain has {domain.n} bins and {name} has shape {array.shape}.")
    if not gaps and not np.isfinite(array).all():
        raise UsageError(f"{name} must be finite: NaN and infinity cannot be drawn.")
    return array.ravel()


def checked_size(size: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the width and height of a whole picture in pixels, or say what is wrong with them."""
    if size is None:
        return None
    try:
        width, height = (float(side) for side in size)
    except (TypeError, ValueError):
        raise UsageError("size is a width and a height in pixels, such as (900, 400).") from None
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise UsageError(f"a picture is {SMALLEST} to {LARGEST} pixels wide and high, such as 900 by 400.")
    return width, height


def fit(size: tuple[float, float] | None, width: float, height: float) -> Spec:
    """Return the size of a picture: of its field, or, if a person asks for a size, of the whole."""
    if size is None:
        return {"width": width, "height": height}
    fit = {"type": "fit", "contains": "padding"}
    return {"width": size[0], "height": size[1], "autosize": fit}


def words_of(number: float) -> str:
    """Return a number as people write it, with a true minus; a dash where there is none."""
    if not math.isfinite(number):
        return "\u2013"
    whole = number == round(number) or abs(number) >= 1e5
    text = f"{number:z,.0f}" if whole else f"{number:,.6g}"
    return "0" if text == "-0" else text.replace("-", "\u2212")


@cache
def _library() -> str:
    """Return the program that draws pages; to bundle it takes a second."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _page_table(table: Table) -> str:
    if not table:
        return ""
    made = html_table([[plain(word) for word in row] for row in table])
    return f"<details open><summary>Table</summary>{made}</details>"


def html_table(table: Table) -> str:
    """Return a table as HTML, every word escaped."""
    tags = ["th", *["td"] * (len(table) - 1)]
    rows = (
        "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in row)
        for tag, row in zip(tags, table, strict=True)
    )
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def svg_or_nothing(draw: Callable[[], Picture]) -> str:
    """Return a picture for a notebook, which shall show the figures even where none can be drawn."""
    try:
        return draw().to_svg()
    except Exception:
        return ""


def _json(target: Path) -> str:
    ours = target.suffix.lower() == ".json"  # the ending of releases, which a picture must not write over
    return f" For the Vega-Lite description: {target.stem}.vl.json." if ours else ""


def plain(text: str) -> str:
    """Return a text in which control characters, line breaks and lone surrogates are blanks."""
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in text)
