"""The card of a release in a notebook: plain HTML, safe, and shown whole by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

import dphist
from dphist.release.show import MOST_ROWS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def ages():
    counts = np.random.default_rng(3).integers(200, 900, 12)
    return dphist.from_counts(counts, bins=np.arange(0, 130, 10).tolist(), epsilon=1)


def test_it_holds_picture_table_and_facts_and_no_script():
    card = ages()._repr_html_()
    assert "<svg" in card
    assert card.count("<tr>") > 12
    assert not re.search(r"<script|javascript:|\son\w+=|<link|@import|<iframe", card)
    low, high = ages().intervals()
    assert low.shape == high.shape


def test_the_table_has_values_and_intervals_of_every_bin():
    release = dphist.from_counts([1234, 5], bins=["<b>red</b>", "green"], epsilon=10**6)
    card = release._repr_html_()
    assert "&lt;b&gt;red&lt;/b&gt;" in card
    assert "<b>red" not in card
    assert "<td class='number'>1,234</td>" * 3 in card


def test_a_long_table_is_cut_and_unknown_intervals_are_dashes():
    long = dphist.from_counts(
        np.arange(MOST_ROWS + 50), bins=dphist.Regular(lo=0, hi=1, bins=MOST_ROWS + 50), epsilon=1
    )
    assert "50 more bins" in long._repr_html_()
    unknown = dphist.from_counts([5, 6, 7], bins=[0, 1, 2, 3], method="efpa", epsilon=1)
    assert "<td class='number'>\u2013</td>" in unknown._repr_html_()


@pytest.mark.filterwarnings("ignore")  # of the converter's
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt install chromium")
@pytest.mark.parametrize("width", [1100, 500])
def test_a_notebook_page_shows_it_in_a_browser(tmp_path, width):
    nbconvert = pytest.importorskip("nbconvert", reason="no nbconvert here: pip install nbconvert")
    nbformat = pytest.importorskip("nbformat")
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": "release", "id": "a"}
    release = ages()
    output["data"] = {"text/html": release._repr_html_(), "text/plain": repr(release)}
    book = {"cells": [cell | {"outputs": [output]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    exporter = nbconvert.HTMLExporter(embed_images=True, mathjax_url="", require_js_url="", mermaid_js_url="")
    text, _ = exporter.from_notebook_node(nbformat.reads(json.dumps(book), as_version=4))
    measure = (
        "<script>onload=()=>{const c=document.querySelector('.dphist-card'),r=e=>e.getBoundingClientRect();"
        "const s=r(c.querySelector('svg')),t=c.querySelector('.bins table');"
        "document.title=[r(c).width,s.width,s.height,t.rows.length,c.scrollWidth>c.clientWidth].join()}</script>"
    )
    page = tmp_path / "notebook.html"
    page.write_text(text.replace("</body>", f"{measure}</body>"), encoding="utf-8")
    shot = tmp_path / "card.png"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},1100",
        "--hide-scrollbars",
    ]
    run = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000"]
    subprocess.run(
        [*run, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True, timeout=120
    )
    dom = subprocess.run([*run, "--dump-dom", page.as_uri()], check=True, capture_output=True, timeout=120)
    title = re.search(r"<title>([\d.,a-z]+)</title>", dom.stdout.decode())
    assert title, "the card is on the page"
    card, wide, high, rows, spills = title[1].split(",")
    assert 0 < float(wide) <= float(card) <= width
    assert float(high) > 100
    assert int(rows) == 13
    assert spills == "false"
    assert struct.unpack(">II", shot.read_bytes()[16:24])[0] == width


def test_the_card_of_a_grid_of_thousands_of_cells_is_small():
    grid = dphist.from_counts(np.full((64, 64), 20), epsilon=1, method="identity")
    assert len(grid._repr_html_()) < 420_000  # twice that, with words for each cell that nobody reads
