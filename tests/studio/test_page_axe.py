"""axe-core finds no fault of any impact: all views and states, two widths, light and dark."""

import contextlib
import os
from pathlib import Path

import pytest
from test_page_views import released, written

from studio_browser import NARROW, WIDE, serving, showing, tab

ROOT = Path(__file__).parent.parent.parent
TOOLS = Path(os.environ.get("DPHIST_PAGE_TOOLS", ROOT / ".venv" / "page-tools"))
AXE = TOOLS / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed; make test-studio installs it"
)


def faults(one, where):
    """Return what axe-core finds on the page as it is."""
    if not one.page.evaluate("() => !!window.axe"):
        one.page.evaluate(AXE.read_text("utf-8"))
    found = one.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(where, x["impact"], x["id"], [node["target"] for node in x["nodes"]][:4]) for x in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("axe")
    path = written(made, "people")
    written(made, "greedy", epsilon="9")
    written(made, "done")
    with contextlib.chdir(made):
        released(path)
    return made


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "400"])
def test_axe_finds_nothing(browser, folder, size, theme):
    options = {"viewport": size, "color_scheme": theme, "bypass_csp": True}
    found = []
    with serving(folder) as served, tab(browser, served, **options) as one:
        one.enter()
        found += faults(one, "start")
        one.page.click("text=Open a plan")
        found += faults(one, "list of plans")
        one.page.click('.list >> text="people.toml"')
        one.heading("What do you want to count?")
        one.page.click("summary >> text=Advanced")
        found += faults(one, "design")
        one.page.fill("[aria-label='Largest value']", "-5")
        one.page.wait_for_selector(".why")
        found += faults(one, "impossible")
        one.page.fill("[aria-label='Largest value']", "99")
        one.page.wait_for_selector("text=100 bins of age")
        one.page.click("text=I do not know the range")
        found += faults(one, "look")
        one.page.click("dialog >> text=Go on")
        one.page.wait_for_selector("#cf")
        found += faults(one, "pay for a look")
        one.page.keyboard.press("Escape")
        one.page.click("text=Plan file")
        found += faults(one, "plan file")
        one.go("foresee")
        one.page.wait_for_selector("#oc [role=slider]")
        one.page.wait_for_selector("#cc [role=slider]")
        found += faults(one, "foresee")
        for mode in ("Side by side", "Compared", "Show as table"):
            one.page.click(f"text={mode}")
        found += faults(one, "foresee compared")
        one.go("explore=people/ages.json")
        one.page.wait_for_selector("#xread .v")
        found += faults(one, "explore")
        one.go("explore=grid.json")
        one.page.wait_for_selector("#xc image")
        found += faults(one, "grid")
        one.page.click("text=As printed")
        one.page.wait_for_selector(".vega svg")
        found += faults(one, "as printed")
        one.go("ledger")
        one.page.wait_for_selector("#lc svg")
        found += faults(one, "ledger")
        one.go("publish")
        one.page.click("text=Save and go on")
        one.page.wait_for_selector("#pub:enabled")
        found += faults(one, "publish")
        one.page.click("#pub")
        found += faults(one, "confirm")
        one.page.keyboard.press("Escape")
        one.page.click("text=Open a plan")
        one.page.click('.list >> text="greedy.toml"')
        one.heading("What do you want to count?")
        one.go("publish")
        one.page.wait_for_selector("text=Only the owner of the ledger")
        found += faults(one, "refused")
        one.page.click("text=Open a plan")
        one.page.click('.list >> text="done.toml"')
        one.heading("What do you want to count?")
        one.go("publish")
        one.page.wait_for_selector("#pub:enabled, .note.plain")
        if one.page.locator("#pub").count():  # the first of these tests publishes, the others look again
            one.page.click("#pub")
            one.page.fill("#cf", "charge 2")
            one.page.keyboard.press("Enter")
        one.heading("Published")
        found += faults(one, "published")
        served.stop()
        one.page.evaluate("location.hash = '#ledger'")
        one.page.wait_for_selector("text=The studio was stopped.")
        found += faults(one, "stopped")
    with showing(folder / "people") as served, tab(browser, served, **options) as one:
        one.page.goto(served.entrance)
        one.heading("Published histograms")
        found += faults(one, "folder")
    assert found == []
