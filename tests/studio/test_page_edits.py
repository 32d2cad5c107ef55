"""What is typed, saved and opened while answers are under way: no edit is lost, or lands on another plan."""

import math

import pytest
from test_page_publish import EPSILON, Held, Office, at_publish, opened, saved

from studio_browser import serving, tab


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return Office(tmp_path_factory.mktemp("edits"))


@pytest.fixture(scope="module")
def studio(office):
    with serving(office.folder) as served:
        yield served


def on_disk(office, name):
    return (office.folder / f"{name}.toml").read_text()


def test_what_is_typed_while_a_save_is_under_way_is_saved_next(browser, office, studio):
    office.plan("typed")
    with tab(browser, studio) as one:
        at_publish(one, "typed").go("design")
        one.page.fill(EPSILON, "0.25")
        one.page.wait_for_selector("text=Changed, not saved")
        save = Held(one, "plan/save")
        one.page.click('text="Save"')
        save.wait()
        one.page.fill(EPSILON, "0.75")
        save.let_go()
        one.page.wait_for_selector('.crumb >> text="Saved"')
        one.page.wait_for_selector("#budget >> text=ε 0.75")
        assert "epsilon = 0.75" in on_disk(office, "typed")


def test_a_second_press_of_save_is_no_other_program(browser, office, studio):
    office.plan("pressed")
    with tab(browser, studio) as one:
        at_publish(one, "pressed").go("design")
        one.page.fill(EPSILON, "0.25")
        one.page.wait_for_selector("#budget >> text=ε 0.25")
        one.press_twice("Save")
        one.page.wait_for_selector('.crumb >> text="Saved"')
        while one.running("plan/save") or one.running("session"):
            one.page.wait_for_timeout(20)
        assert not one.refused
        assert one.page.locator(".note.bad").count() == 0


def test_an_edit_that_was_about_to_be_saved_is_saved_when_another_plan_is_opened(browser, office, studio):
    office.plan("left")
    office.plan("entered")
    ours = "# mine, and no page's\n" + on_disk(office, "entered")
    (office.folder / "entered.toml").write_text(ours)
    with tab(browser, studio) as one:
        at_publish(one, "left")
        saved(one, "0.25")
        one.page.click("text=Open a plan")
        one.page.wait_for_selector('.list >> text="entered.toml"')
        one.page.evaluate(
            """label => {
                const field = document.querySelector(label);
                field.value = '0.33';
                field.dispatchEvent(new Event('input'));
                const all = [...document.querySelectorAll('.list button')];
                all.find(one => one.innerText.includes('entered')).click();
            }""",
            EPSILON,
        )
        one.page.wait_for_selector('.crumb >> text="entered.toml"')
        assert "epsilon = 0.33" in on_disk(office, "left")
        one.page.wait_for_timeout(1000)  # longer than the page waits before it saves by itself
        assert on_disk(office, "entered") == ours
        assert "Saved" in one.text(".crumb")


def test_the_check_of_a_plan_does_not_land_on_the_one_just_opened(browser, office, studio):
    office.plan("checked")
    office.plan("unchecked", epsilon="0.9")
    with tab(browser, studio) as one:
        at_publish(one, "checked").go("design")
        check = Held(one, "plan/check")
        one.page.fill(EPSILON, "0.33")
        check.wait()
        opened(one, "unchecked")
        check.let_go()
        assert "ε 0.9" in one.text("#budget")
        one.go("publish")
        one.page.wait_for_selector("text=Publish and charge ε 0.9")


def test_the_columns_of_a_plan_do_not_land_on_the_one_just_opened(browser, office, studio):
    (office.folder / "other.csv").write_text("size,colour\n1,red\n")
    office.plan("columns")
    office.plan("others")
    other = on_disk(office, "others").replace("people.csv", "other.csv").replace('"age"', '"size"')
    (office.folder / "others.toml").write_text(other.replace('"kind"', '"colour"'))
    with tab(browser, studio) as one:
        columns = Held(one, "columns")
        one.enter()
        opened(one, "columns")
        columns.wait()
        opened(one, "others")
        one.page.wait_for_selector(".chip >> text=colour")
        columns.let_go()
        assert "colour" in one.text(".chips >> nth=0")
        assert "age" not in one.text(".chips >> nth=0")


def test_an_edit_is_kept_in_the_tab_before_it_is_checked(browser, office, studio):
    office.plan("kept")
    with tab(browser, studio) as one:
        at_publish(one, "kept").go("design")
        one.page.fill(EPSILON, "0.44")
        one.page.reload()
        one.page.wait_for_selector("#budget >> text=ε 0.44")
        assert one.page.input_value(EPSILON) == "0.44"
        assert "Changed, not saved" in one.text(".crumb")


def middle(one, selector):
    box = one.page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_an_answer_that_comes_while_a_button_is_pressed_does_not_take_the_click_away(browser, office, studio):
    office.plan("clicked")
    with tab(browser, studio) as one:
        at_publish(one, "clicked").go("design")
        one.page.mouse.move(*middle(one, ".head .btn.pri"))
        one.page.mouse.down()
        one.page.evaluate("dispatchEvent(new Event('hashchange'))")  # which draws the page anew
        one.page.mouse.up()
        one.heading("How wrong will it be?")


def test_the_slider_stays_under_the_pointer_while_answers_arrive(browser, office, studio):
    office.plan("slow")
    with tab(browser, studio) as one:
        at_publish(one, "slow").go("foresee")
        one.page.wait_for_selector("#sl")
        x, y = middle(one, "#sl")
        one.page.mouse.move(x, y)
        one.page.mouse.down()
        one.page.mouse.move(x - 60, y)
        first = float(one.page.input_value("#sl"))
        one.page.evaluate("dispatchEvent(new Event('hashchange'))")
        one.page.mouse.move(x - 160, y)
        last = float(one.page.input_value("#sl"))
        assert last < first - 0.1
        one.page.mouse.up()
        one.page.wait_for_selector(f"#budget >> text=ε {math.exp(last):.2g}")


def test_a_list_of_files_that_is_asked_for_twice_opens_once(browser, office, studio):
    office.plan("listed")
    with tab(browser, studio) as one:
        at_publish(one, "listed")
        files = Held(one, "files", many=2)
        one.press_twice("Open a plan")
        files.wait().let_go()
        one.page.wait_for_selector("dialog")
        assert one.page.locator("dialog").count() == 1
        one.page.keyboard.press("Escape")
        one.page.wait_for_selector("dialog", state="hidden")
        one.page.click("text=Open a plan")
        one.page.wait_for_selector("dialog")
