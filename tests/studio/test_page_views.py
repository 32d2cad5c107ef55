"""What the page shows without publishing: its views, what it does with bad files, labels and addresses."""

import contextlib
import re
from pathlib import Path

import pytest
from test_page_publish import Held

import dphist
from dphist.planning import plan_files
from dphist.privacy.ledger import Ledger
from studio_browser import NARROW, VIEWS, serving, showing, tab

HOSTILE = [
    "<img src=x onerror=\"window.hit='img'\">",
    "</script><script>window.hit='script'</script>",
    "{{constructor.constructor('window.hit=1')()}}",
    "datum.value + '\"); window.hit=2; (\"'",
    "${window.hit=3}",
    "=1+1",
]
PLAN = """\
data = "people.csv"
ledger = "{ledger}.db"
dataset = "people"
epsilon = {epsilon}
unit = "person"

[histograms.ages]
column = "age"
integers = [0, 99]
method = "identity"
workload = "ranges"
max_contributions = 3

[histograms.kinds]
column = "kind"
categories = {labels}
method = "identity"
max_contributions = 3
"""


def written(folder, name, labels="['a', 'b']", epsilon="2"):
    """Write records and a plan of them."""
    rows = "\n".join(f"{i % 100},{'ab'[i % 2]},p{i % 500}" for i in range(1000))
    (folder / "people.csv").write_text(f"age,kind,person\n{rows}\n")
    path = folder / f"{name}.toml"
    path.write_text(PLAN.format(labels=labels, ledger=name, epsilon=epsilon))
    Ledger.open(folder / f"{name}.db", create=True).set_limit("people", "4")
    return path


def released(path):
    """Publish a plan file from Python, into the folder of its name, and a grid of known counts beside it."""
    counts = [[100 * (3 * i + j) for j in range(3)] for i in range(4)]
    bins = dphist.Domain((dphist.Integers(0, 3), dphist.Categories(["a", "b", "c"])))
    dphist.from_counts(counts, bins=bins, epsilon=1000, method="identity").save(path.parent / "grid.json")
    publication = plan_files.read(path)
    (path.parent / path.stem).mkdir()
    for name, release in publication.release().items():
        release.save(path.parent / path.stem / f"{name}.json")


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    path = written(folder, "people")
    with contextlib.chdir(folder):
        released(path)
    with serving(folder, plan=path) as served:
        served.folder = folder
        yield served


def test_the_token_leaves_the_address_and_a_reload_works(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        assert "token" not in one.page.url
        one.page.reload()
        one.heading("What do you want to count?")


def test_without_the_token_the_page_says_so_and_reads_nothing(browser, studio):
    with tab(browser, studio) as one:
        one.page.goto(studio.address)
        one.page.wait_for_selector(".note.bad")
        assert "needs the address that the studio printed" in one.text()
        assert "Nothing was read or spent" in one.text()
        assert [name for name in one.sent if "/" not in name] == ["session"]


def test_without_javascript_the_page_says_what_to_do(browser, studio):
    with tab(browser, studio, java_script_enabled=False) as one:
        one.page.goto(studio.entrance)
        assert "The studio needs JavaScript. Nothing was read or spent." in one.text("body")
        assert "dphist plan --help" in one.text("body")


def test_the_plan_is_shown_and_edited_as_the_plan_file(browser, studio):
    path = written(studio.folder, "edited")
    with tab(browser, studio) as one:
        one.enter()
        one.page.click("text=Open a plan")
        one.page.click(".list >> text=edited.toml")
        one.page.wait_for_selector("text=edited.toml >> nth=0")
        one.page.fill("[aria-label='Largest value']", "89")
        one.page.wait_for_selector("text=90 bins of age")
        one.page.click("text=Plan file")
        one.page.wait_for_selector("pre >> text=89")
        assert "Changed, not saved" in one.text()
        assert "integers = [0, 99]" in path.read_text()  # nothing is written unasked
        one.page.click('text="Save"')
        one.page.wait_for_selector('.crumb >> text="Saved"')
        assert "integers = [0, 89]" in path.read_text()
        assert one.page.inner_text("pre").strip() == path.read_text().strip()
        one.page.click("text=Shell")
        assert "dphist plan publish edited.toml" in one.page.inner_text("pre")


def test_what_is_impossible_turns_red_and_the_last_complete_plan_stays(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        one.page.fill("[aria-label='Largest value']", "-5")
        one.page.wait_for_selector("input.wrong[aria-invalid=true], .why")
        assert "last plan that was complete" in one.text("aside")
        assert one.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Largest value"
        one.page.fill("[aria-label='Largest value']", "99")
        one.page.wait_for_selector("text=100 bins of age")
        assert one.page.locator(".why").count() == 0


def test_every_kind_of_bins_has_its_sentence(browser, studio):
    fill = {
        "Equal widths": {"Lower bound": "0", "Upper bound": "60", "Number of bins": "12"},
        "Log scale": {"Lower bound": "1", "Upper bound": "1000", "Number of bins": "13"},
        "Time": {"First day": "2024-01-01", "Day after the last": "2024-04-08"},
        "Labels": {"Labels, one on each line, or the name of a file of them": "\n".join("abcdefghijklmno")},
        "Own edges": {"Edges, with commas between": ", ".join(map(str, range(17)))},
    }
    with tab(browser, studio) as one:
        one.enter()
        for at, (kind, holes) in enumerate(fill.items(), 12):
            one.page.click(f".seg >> text={kind}")
            for label, value in holes.items():
                one.page.fill(f"[aria-label='{label}']", value)
            one.page.wait_for_selector(f"text={at} bins of age")


def test_shares_move_by_keys_and_are_divided(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        one.page.focus("[aria-label='Boundary between ages and kinds']")
        one.page.keyboard.press("PageUp")
        one.page.wait_for_selector(".hrow >> text=60 %")
        assert one.page.get_attribute(".grip", "aria-valuetext") == "ages 60 percent"
        one.page.click("text=Divide equally")
        one.page.wait_for_selector(".hrow >> text=50 % >> nth=1")
        one.page.click("text=Divide for equal relative error")
        one.page.wait_for_function("() => !document.querySelector('.hrow').innerText.includes('50 %')")
        assert one.page.locator(".note.bad").count() == 0


def test_grids_and_groups_are_declared_in_words(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        one.page.click("text=Add a second column (grid)")
        one.page.select_option("[aria-label='Column'] >> nth=1", "kind")
        one.page.click("text=Labels >> nth=1")
        one.page.fill("textarea", "a\nb")
        one.page.wait_for_selector("text=200 bins of age and kind")
        one.page.click("text=Remove the second column")
        one.page.click("text=One histogram per group")
        one.page.select_option("[aria-label='Column of the groups']", "kind")
        one.page.fill("textarea", "a\nb")
        one.page.wait_for_selector("text=100 bins of age, one histogram per kind")


def test_a_plan_file_that_another_program_changed_is_never_written_over(browser, studio):
    path = written(studio.folder, "shared")
    with tab(browser, studio) as one:
        one.enter()
        one.page.click("text=Open a plan")
        one.page.click(".list >> text=shared.toml")
        one.page.wait_for_selector(".crumb >> text=shared.toml")
        one.page.fill("[aria-label='Epsilon of the whole plan']", "0.25")
        theirs = path.read_text() + "# a comment\n"
        path.write_text(theirs)
        one.page.wait_for_selector('text="Save"')
        one.page.click('text="Save"')
        one.page.wait_for_selector("text=was changed by another program")
        assert path.read_text() == theirs
        one.page.click("text=Keep mine as a copy")
        one.page.wait_for_selector(".crumb >> text=shared-copy.toml")
        assert "epsilon = 0.25" in (studio.folder / "shared-copy.toml").read_text()
        other = (studio.folder / "shared-copy.toml").read_text().replace("0.25", "0.75")
        (studio.folder / "shared-copy.toml").write_text(other)
        one.page.evaluate("() => { dispatchEvent(new Event('focus')); }")  # back from an editor
        one.page.click("text=Load it")
        one.page.wait_for_selector("#budget >> text=ε 0.75")


def test_explore_reads_ranges_by_keys_and_by_pointer(browser, studio):
    with tab(browser, studio) as one:
        one.enter().go("explore=people/ages.json")
        one.page.wait_for_selector("#xread .v")
        first = one.text("#xread")
        one.page.focus("[aria-label='End of the selected range']")
        one.page.keyboard.press("PageUp")
        one.page.wait_for_function(
            "old => document.querySelector('#xread').innerText.replace(/\\s+/g, ' ') !== old", arg=first
        )
        assert one.page.get_attribute("[aria-label='End of the selected range']", "aria-valuenow") == "59"
        assert "30 to 59" in one.text("#xread")
        box = one.page.locator("#xc svg").bounding_box()
        one.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
        one.page.mouse.down()
        one.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 90, steps=4)
        one.page.mouse.up()
        one.page.wait_for_function("() => !document.querySelector('#xread').innerText.includes('30 to 59')")
        one.page.click("text=Each alone")
        one.page.wait_for_selector("text=This interval holds for one range chosen beforehand")
        assert one.page.locator("#tab tr.sel").count() > 10


def test_a_rectangle_of_a_grid_is_read_by_keys_and_by_pointer(browser, studio):
    reads = "text => document.querySelector('#xread')?.innerText.replace(/\\s+/g, ' ').includes(text)"
    with tab(browser, studio) as one:
        one.enter().page.evaluate("location.hash = '#explore=grid.json'")
        one.page.wait_for_function(reads, arg="1, a to c 1,200")
        corner = one.page.locator("[aria-label='Last corner of the rectangle']")
        corner.focus()
        one.page.keyboard.press("ArrowRight")
        one.page.wait_for_function(reads, arg="1 to 2, a to c 3,300")
        one.page.keyboard.press("ArrowUp")
        one.page.wait_for_function(reads, arg="1 to 2, a to b 2,000")
        assert re.search(r" 2, .*b$", corner.get_attribute("aria-valuetext"))
        for key in (
            "ArrowLeft",
            "ArrowLeft",
            "ArrowLeft",
            "PageDown",
            "ArrowUp",
        ):  # as far as the other corner
            one.page.keyboard.press(key)
        one.page.wait_for_function(reads, arg="1, a 300 ")
        box = one.page.locator("#xc image").bounding_box()
        at = lambda i, j: (box["x"] + box["width"] * (i + 0.5) / 4, box["y"] + box["height"] * (j + 0.5) / 3)  # noqa: E731
        one.page.mouse.move(*at(3, 2))
        one.page.mouse.down()
        one.page.mouse.move(*at(2, 1), steps=3)
        one.page.mouse.up()
        one.page.wait_for_function(reads, arg="2 to 3, b to c 3,600")
        assert "95 % interval, all ranges at once" in one.text("#xread")
        assert one.page.locator("#tab tr.sel").count() == 4
        one.page.click("text=As printed")
        one.page.wait_for_selector("#xc .mark-rect", state="attached")


def test_every_download_is_a_file_and_the_report_is_saved_too(browser, studio):
    begins = {"XLSX": b"PK", "CSV": b"", "JSON": b"{", "PNG": b"\x89PNG", "SVG": b"<svg"}
    with tab(browser, studio) as one:
        one.enter().go("explore=people/kinds.json")
        one.page.wait_for_selector("#xread .v")
        for kind, start in begins.items():
            with one.page.expect_download() as found:
                one.page.click(f'.btn >> text="{kind}"')
            content = Path(found.value.path()).read_bytes()
            assert found.value.suggested_filename.endswith(f".{kind.lower()}")
            assert content.startswith(start)
            assert len(content) > 50
        with one.page.expect_download() as found:
            one.page.click("text=Make the report")
        assert b"differential privacy" in Path(found.value.path()).read_bytes()
        assert list((studio.folder / "people").glob("report*.html"))


def test_two_releases_are_compared(browser, studio):
    with tab(browser, studio) as one:
        one.enter().go("explore=people/ages.json")
        one.page.wait_for_selector("#xread .v")
        one.page.click("text=Compare")
        one.page.click(".list >> text=people >> nth=0")
        one.page.click(".list >> text=ages.json")
        one.page.wait_for_selector("text=Change since")


def test_what_a_range_holds_stands_beside_that_range(browser, studio):
    with tab(browser, studio) as one:
        one.enter().go("explore=people/ages.json")
        one.page.wait_for_selector("#xread >> text=30 to 49")
        first = one.text("#xread")
        query = Held(one, "release/query")
        one.page.focus("[aria-label='End of the selected range']")
        one.page.keyboard.press("ArrowRight")
        query.wait()
        one.page.click("#theme")  # which draws the page anew
        assert one.text("#xread") == first
        query.let_go()
        one.page.wait_for_selector("#xread >> text=30 to 50")
        assert one.text("#xread") != first


def test_a_release_that_comes_late_is_not_shown_for_the_one_that_was_opened(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        opened = Held(one, "release/open")
        one.page.evaluate("location.hash = '#explore=people/ages.json'")
        opened.wait()
        one.page.evaluate("location.hash = '#explore=people/kinds.json'")
        one.heading("Records by kind")
        opened.let_go()
        assert "Records by kind" in one.text("h1")


def test_a_report_that_is_asked_for_twice_is_made_once(browser, studio):
    with tab(browser, studio) as one:
        one.enter().go("explore=people/ages.json")
        one.page.wait_for_selector("#xread .v")
        report = Held(one, "report")
        with one.page.expect_download():
            one.press_twice("Make the report")
            report.wait().let_go()
        assert one.sent.count("report") == 1
        assert one.page.locator(".note.bad").count() == 0


def test_a_comparison_is_stopped_before_its_answer_is_drawn_anew(browser, studio):
    with tab(browser, studio) as one:
        one.enter().go("explore=people/ages.json")
        one.page.wait_for_selector("#xread .v")
        one.page.click("text=Compare")
        one.page.click(".list >> text=people >> nth=0")
        one.page.click(".list >> text=ages.json")
        one.page.wait_for_selector("text=Change since")
        one.page.click("text=Stop comparing")
        one.page.wait_for_selector("text=Change since", state="hidden")


def test_labels_that_are_code_are_shown_and_never_run(browser, tmp_path, monkeypatch):
    labels = "[" + ", ".join("'''" + label + "'''" for label in HOSTILE) + "]"
    path = written(tmp_path, "hostile", labels)
    monkeypatch.chdir(tmp_path)
    released(path)
    with serving(tmp_path, plan=path) as served, tab(browser, served) as one:
        one.enter()
        one.page.click("text=kinds >> nth=0")
        one.page.wait_for_selector(".chip >> text=onerror")
        one.go("explore=hostile/kinds.json")
        one.page.wait_for_selector("#xread .v")
        shown = one.page.inner_text("#tab")
        assert all(label in shown for label in HOSTILE)
        one.page.click("text=As printed")
        one.page.wait_for_selector(".vega svg")
        assert one.page.evaluate("window.hit") is None
        assert one.page.locator("#main img, #main script").count() == 0


def test_nothing_scrolls_sideways_on_a_phone(browser, studio):
    with tab(browser, studio, viewport=NARROW) as one:
        one.enter()
        for view in VIEWS:
            one.go(view)
            one.page.wait_for_timeout(300)
            assert one.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view


def test_a_folder_of_releases_is_read_only(browser, studio):
    with showing(studio.folder / "people") as served, tab(browser, served) as one:
        one.page.goto(served.entrance)
        one.heading("Published histograms")
        one.page.wait_for_selector("text=, read only")
        assert not one.page.is_visible("#nav")
        one.page.click("text=Records by age")
        one.page.wait_for_selector("#xread .v")
        before = sorted((studio.folder / "people").iterdir())
        with one.page.expect_download() as found:
            one.page.click("text=Make the report")
        assert b"differential privacy" in Path(found.value.path()).read_bytes()
        assert sorted((studio.folder / "people").iterdir()) == before
        assert not re.search(r"publish|ledger|plan", " ".join(one.sent))


def test_keys_go_to_views_and_no_key_spends(browser, studio):
    with tab(browser, studio) as one:
        one.enter()
        for key, view in zip("felpd", ["foresee", "explore", "ledger", "publish", "design"], strict=True):
            one.page.keyboard.press("g")
            one.page.keyboard.press(key)
            one.page.wait_for_function(
                r"name => document.title === name + ' \u2013 dphist studio'", arg=view.title()
            )
            assert one.page.evaluate("document.activeElement.id") == "main"
        one.page.keyboard.press("?")
        one.page.wait_for_selector("dialog >> text=No key spends budget")
        one.page.keyboard.press("Escape")
        assert "publish" not in one.sent


def test_a_release_of_too_many_bins_is_told_and_the_next_one_opens(browser, tmp_path):
    dphist.histogram(["A00B1C2D3E4"] * 200, codes="[A-Z0-9]{11}", epsilon=1).save(tmp_path / "codes.json")
    dphist.from_counts([50, 60, 70], epsilon=1, method="identity").save(tmp_path / "few.json")
    with showing(tmp_path) as served, tab(browser, served) as one:
        held = []
        one.page.route("**/api/files", lambda route: held.append(route))
        one.page.goto(served.entrance)
        one.page.wait_for_selector("text=Reading the folder.")
        while not held:
            one.page.wait_for_timeout(50)
        held[0].continue_()
        one.page.wait_for_selector("text=one release, read only")
        one.page.evaluate("location.hash = '#explore=codes.json'")
        one.page.wait_for_selector("text=ask it with dphist query")
        assert not re.search("Opening the release|Nothing published", one.text())
        one.page.evaluate("location.hash = '#explore=few.json'")
        one.page.wait_for_selector("#xread .v")
        assert "ask it with dphist query" not in one.text()
