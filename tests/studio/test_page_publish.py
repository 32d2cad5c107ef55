"""Publishing in a browser: one typed confirmation, one charge, the same release for whoever looks again."""

import math
from fractions import Fraction

import pytest

from dphist.planning.bounds import suggest
from dphist.privacy.ledger import Ledger
from dphist.release import load
from studio_browser import serving, tab
from studio_plans import plan_text

EPSILON = "[aria-label='Epsilon of the whole plan']"


class Office:
    """A folder with records, a ledger with a limit for every plan, and a studio."""

    def __init__(self, folder):
        self.folder = folder
        rows = "\n".join(f"{i % 10},{'ab'[i % 2]}" for i in range(1000))
        (folder / "people.csv").write_text(f"age,kind\n{rows}\n")
        self.ledger = Ledger.open(folder / "ledger.db", create=True)

    def plan(self, name, epsilon="0.5", limit="4"):
        made = plan_text(ledger="ledger.db", dataset=name, epsilon=epsilon, unit=None)
        (self.folder / f"{name}.toml").write_text(made)
        self.ledger.set_limit(name, limit)

    def charges(self, name):
        return [one.epsilon for one in self.ledger.entries(name) if one.kind == "charge"]

    def releases(self, name):
        return {path.name: path.read_bytes() for path in sorted((self.folder / name).glob("*.json"))}


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return Office(tmp_path_factory.mktemp("office"))


@pytest.fixture(scope="module")
def studio(office):
    with serving(office.folder) as served:
        yield served


def at_publish(one, name):
    """Open a plan and go to its publication."""
    one.enter()
    one.page.click("text=Open a plan")
    one.page.click(f'.list >> text="{name}.toml"')
    one.heading("What do you want to count?")
    one.go("publish")
    return one


def opened(one, name):
    """Open another plan, from wherever the page is."""
    one.page.click("text=Open a plan >> nth=0")
    one.page.click(f'.list >> text="{name}.toml"')
    one.page.wait_for_selector(f'.crumb >> text="{name}.toml"')
    one.heading("What do you want to count?")


def published(one, words="charge 0.5"):
    """Press Publish and type the words."""
    one.page.click("#pub")
    one.page.fill("#cf", words)
    one.page.keyboard.press("Enter")
    one.heading("Published")


def left_while_charging(one, charged):
    """Type the words, and press Escape while the charge is under way."""
    one.page.fill("#cf", "charge 0.5")
    one.page.keyboard.press("Enter")
    charged.wait()
    while one.page.locator("dialog").count():
        one.page.keyboard.press("Escape")
        one.page.wait_for_timeout(20)


def saved(one, epsilon):
    """Type an epsilon at the design and save it; from now on the page saves by itself."""
    one.go("design")
    one.page.fill(EPSILON, epsilon)
    one.page.wait_for_selector("text=Changed, not saved")
    one.page.click('text="Save"')
    one.page.wait_for_selector('.crumb >> text="Saved"')


class Held:
    """The first answers to a question wait until they are let go."""

    def __init__(self, one, name, many=1):
        self.one, self.name, self.many, self.routes = one, name, many, []
        one.page.route(f"**/api/{name}", self._asked)

    def _asked(self, route):
        if len(self.routes) < self.many:
            self.routes.append(route)
        else:
            route.continue_()

    def wait(self):
        while not self.routes:
            self.one.page.wait_for_timeout(20)
        return self

    def let_go(self):
        """Let the answers come, and wait until the page has read them."""
        self.many = 0
        for route in self.routes:
            route.continue_()
        while self.one.running(self.name):
            self.one.page.wait_for_timeout(20)
        self.one.page.evaluate("() => new Promise(next => setTimeout(next, 50))")


def test_one_typed_confirmation_charges_once_and_a_reload_shows_the_same_release(browser, office, studio):
    office.plan("once")
    with tab(browser, studio) as one:
        at_publish(one, "once").page.wait_for_selector("#pub")
        assert one.sent.count("publish/prepare") == 1, "the button is not drawn anew under the pointer"
        assert "With this release, at most 62.3." in one.text()  # of 100, which e^0.5 / (1 + e^0.5) bounds
        one.go("ledger")
        one.page.wait_for_selector("text=What is left")
        assert "The sum assumes the worst" not in one.text()  # before anything is spent
        one.page.evaluate("location.hash = '#explore'")
        one.page.wait_for_selector("text=/Nothing published yet|Records by/")
        one.go("publish")
        one.page.click("#pub")
        assert "Charge epsilon 0.5 to “once”?" in one.text("dialog")
        assert "3.5 of 4 is left" in one.text("dialog")
        one.page.keyboard.type("charge 5")
        one.page.keyboard.press("Enter")
        assert one.page.is_visible("dialog")
        assert one.page.is_disabled("dialog .spend")
        assert "publish" not in one.sent
        one.page.fill("#cf", "charge 0.5")
        one.page.keyboard.press("Enter")
        one.heading("Published")
        assert "Epsilon 0.5 was charged once" in one.text()
        assert "already published" not in one.text()
        assert office.charges("once") == [Fraction(1, 2)]
        drawn = office.releases("once")
        assert set(drawn) == {"ages.json", "kinds.json"}
        one.page.reload()
        one.heading("Published")
        assert "This plan was already published. You see the same release again." in one.text()
        assert "3.5 left" in one.text("#budget")
        one.go("design")
        one.page.reload()
        one.heading("What do you want to count?")
        assert "3.5 left" in one.text("#budget")
        assert "this plan" not in one.text("#budget")
        one.go("publish")
        one.page.click("text=Publish again as a new charge")
        one.page.wait_for_selector("dialog")
        one.page.keyboard.press("Escape")
        one.heading("Published")
        assert "this plan" not in one.text("#budget")
        one.page.click("text=Explore ages")
        one.heading("Records by age")
        assert "Each interval holds by itself" not in one.text()
        one.page.click("text=Each alone")
        assert "Each interval holds by itself" in one.text()
        assert not one.refused
        assert "One of 2 histograms that together protect one record with epsilon 0.5." in one.text()
        one.go("ledger")
        one.page.wait_for_selector("text=What is left")
        assert "3.5 left of 4" in one.text()
        assert "is right at most 62.3 times" in one.text()
        assert office.charges("once") == [Fraction(1, 2)]
        assert office.releases("once") == drawn


def test_two_tabs_that_publish_at_once_are_charged_once(browser, office, studio):
    office.plan("twice")
    with tab(browser, studio) as one, tab(browser, studio) as two:
        for each in (one, two):
            at_publish(each, "twice").page.click("#pub")
            each.page.fill("#cf", "charge 0.5")
        for each in (one, two):  # neither waits for its answer
            each.page.evaluate("() => document.querySelector('dialog .spend').click()")
        for each in (one, two):
            each.heading("Published")
        assert office.charges("twice") == [Fraction(1, 2)]
        two.page.reload()
        two.heading("Published")
        assert office.charges("twice") == [Fraction(1, 2)]
        assert len(office.releases("twice")) == 2


def test_a_button_pressed_many_times_publishes_once(browser, office, studio):
    office.plan("eager")
    with tab(browser, studio) as one:
        at_publish(one, "eager").page.click("#pub")
        one.page.fill("#cf", "charge 0.5")
        one.page.evaluate(
            "() => { for (let i = 0; i < 20; i++) document.querySelector('dialog .spend').click(); }"
        )
        one.heading("Published")
        assert one.sent.count("publish") == 1
        assert office.charges("eager") == [Fraction(1, 2)]


def test_beyond_the_limit_is_refused_and_what_is_left_can_be_used(browser, office, studio):
    office.plan("greedy", epsilon="3", limit="1")
    with tab(browser, studio) as one:
        at_publish(one, "greedy").page.wait_for_selector("#pub")
        assert one.page.is_disabled("#pub")
        assert "Nothing was charged" in one.text()
        assert "Beyond the limit 2" in one.text()
        assert one.page.locator(".bar .over").count() == 1
        one.page.click("text=Use 1 instead")
        one.page.wait_for_selector("#pub:enabled")
        assert "Publish and charge ε 1" in one.text()
        assert office.charges("greedy") == []


def test_everything_can_be_published_by_keys_alone(browser, office, studio):
    office.plan("keys")
    with tab(browser, studio) as one:
        one.enter()
        for _ in range(30):
            one.page.keyboard.press("Tab")
            if one.page.evaluate("() => document.activeElement.innerText.startsWith('Open a plan')"):
                break
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector("dialog")
        for _ in range(30):
            one.page.keyboard.press("Tab")
            if one.page.evaluate("() => document.activeElement.innerText.startsWith('keys.toml')"):
                break
        one.page.keyboard.press("Enter")
        one.heading("What do you want to count?")
        one.page.keyboard.press("g")
        one.page.keyboard.press("p")
        one.page.wait_for_selector("#pub:enabled")
        for _ in range(30):
            one.page.keyboard.press("Tab")
            if one.page.evaluate("() => document.activeElement.id") == "pub":
                break
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector("dialog #cf")
        one.page.keyboard.press("Escape")
        one.page.wait_for_selector("dialog", state="hidden")
        assert office.charges("keys") == []
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector("dialog #cf")
        one.page.keyboard.type("charge 0.5")
        one.page.keyboard.press("Enter")
        one.heading("Published")
        assert office.charges("keys") == [Fraction(1, 2)]


def test_changes_are_saved_before_they_can_be_published(browser, office, studio):
    office.plan("draft")
    with tab(browser, studio) as one:
        at_publish(one, "draft")
        one.go("design")
        one.page.fill("[aria-label='Epsilon of the whole plan']", "0.25")
        one.page.wait_for_selector("text=Changed, not saved")
        one.go("publish")
        assert one.page.locator("#pub").count() == 0
        one.page.click("text=Save and go on")
        one.page.wait_for_selector("text=Publish and charge ε 0.25")
        assert "epsilon = 0.25" in (office.folder / "draft.toml").read_text()


def test_a_studio_that_was_stopped_says_that_nothing_is_lost(browser, office):
    office.plan("stopped")
    with serving(office.folder) as served, tab(browser, served) as one:
        at_publish(one, "stopped").page.click("#pub")
        one.page.fill("#cf", "charge 0.5")
        served.stop()
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector("text=The studio was stopped.")
        assert "Nothing is lost: the plan is saved" in one.text()
        assert "dphist studio stopped.toml" in one.text()
        assert one.page.locator("#main button:enabled, #main input:enabled").count() == 0
        assert office.charges("stopped") == []


def test_a_file_of_records_becomes_a_plan_a_ledger_a_grid_and_groups(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{i % 10},{'ab'[i % 2]}" for i in range(1000))
    (tmp_path / "visits.csv").write_text(f"age,kind\n{rows}\n")
    with serving(tmp_path, data=str(tmp_path / "visits.csv")) as served, tab(browser, served) as one:
        one.enter()
        one.page.click("text=Add the first histogram")
        one.page.click("summary >> text=Advanced")
        one.page.select_option(".grid3 select >> nth=1", "identity")
        one.page.click(".seg >> text=Whole numbers")
        one.page.fill("[aria-label='Smallest value']", "0")
        one.page.fill("[aria-label='Largest value']", "9")
        one.page.wait_for_selector("text=10 bins of age")
        one.page.click("text=Add a second column (grid)")
        one.page.click("text=Labels >> nth=1")
        one.page.fill("textarea", "a\nb")
        one.page.wait_for_selector("text=20 bins of age and kind")
        one.page.click("text=Add a histogram")
        one.page.select_option("[aria-label='Column']", "age")
        one.page.click(".seg >> text=Own edges")
        one.page.fill("[aria-label='Edges, with commas between']", "0, 5, 10")
        one.page.click("text=One histogram per group")
        one.page.select_option("[aria-label='Column of the groups']", "kind")
        one.page.fill("textarea", "a\nb")
        one.page.select_option(".grid3 select >> nth=1", "identity")
        one.page.wait_for_selector("text=2 bins of age, one histogram per kind")
        one.page.click('text="Save"')
        one.page.wait_for_selector('.crumb >> text="Saved"')
        one.go("publish")
        one.page.click("text=Create a ledger with a limit")
        one.page.fill("dialog input", "4")
        one.page.keyboard.press("Enter")
        one.page.click("#pub")
        one.page.fill("#cf", "charge 0.5")
        one.page.keyboard.press("Enter")
        one.heading("Published")
        one.page.click("text=Explore age")
        one.page.wait_for_selector("#xread >> text=3 to 4, a to b")
        one.page.focus("[aria-label='Last corner of the rectangle']")
        one.page.keyboard.press("ArrowUp")
        one.page.wait_for_selector('#xread >> text="3 to 4, a"')
        one.go("explore=visits/kind.json")
        one.page.wait_for_selector(".multi button[aria-pressed=true]")
        one.page.click(".multi button >> text=b")
        one.heading("age: b")
        assert len((tmp_path / "visits.toml").read_text().split("[histograms")) == 3


@pytest.mark.parametrize("state", ["finishable", "lost"])
def test_a_charge_without_a_release_is_told_and_never_repeated_by_itself(browser, office, studio, state):
    offered = {"finishable": "Finish it without a new charge", "lost": "Publish again as a new charge"}[state]
    words = "Epsilon 0.5 was charged (entry 7), but the release was not finished."
    office.plan(state)

    def answer(route):
        found = route.fetch()
        route.fulfill(response=found, json=found.json() | {"state": state, "words": words})

    with tab(browser, studio) as one:
        one.page.route("**/api/publish/prepare", answer)
        at_publish(one, state).page.wait_for_selector(f"text={words}")
        assert one.page.is_disabled("#pub")
        assert one.page.locator(f"text={offered}").count() == 1
        assert not [name for name in one.sent if name in ("publish", "publish/finish")]
        assert office.charges(state) == []


def test_a_ledger_that_is_locked_or_gone_is_told_plainly(browser, office, studio):
    office.plan("locked")
    with tab(browser, studio) as one:
        at_publish(one, "locked").page.wait_for_selector("#pub:enabled")
        told = {
            "code": "locked",
            "message": "The ledger ledger.db is locked by another process.",
            "charged": False,
        }
        one.page.route("**/api/publish", lambda route: route.fulfill(status=409, json={"error": told}))
        one.page.click("#pub")
        one.page.fill("#cf", "charge 0.5")
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector(".note.bad >> text=is locked by another process")
        assert "Nothing was charged and nothing was published." in one.text(".note.bad")
        one.page.unroute("**/api/publish")
        one.page.click("text=Try again")
        one.page.wait_for_selector("#pub:enabled")
        assert office.charges("locked") == []


def test_a_range_that_nobody_knows_is_looked_for_once_and_taken_over(browser, office, studio):
    office.plan("looked")
    with tab(browser, studio) as one:
        at_publish(one, "looked").go("design")
        for again in (False, True):
            one.page.click("text=I do not know the range")
            assert "It is charged like a release, once." in one.text("dialog")
            one.page.fill("dialog input", "0.25")
            one.page.click("dialog >> text=Go on")
            if not again:
                one.page.wait_for_selector("dialog >> text=Charge epsilon 0.25 to “looked”?")
                assert one.page.is_disabled("dialog .spend")
                one.page.fill("#cf", "charge 0.25")
                one.page.click("dialog .spend")
            one.page.wait_for_selector("dialog >> text=Use this range")
            assert office.charges("looked") == [Fraction(1, 4)]
            if not again:
                one.page.click("dialog >> text=Close")
        low, high = suggest(load(office.folder / "range-of-age" / "magnitudes.json")).range
        one.page.click("dialog >> text=Use this range")
        one.page.wait_for_function(
            "ends => ends.every((end, i) => +document.querySelectorAll('.hbody input.f')[i].value === end)",
            arg=[float(math.floor(low)), float(math.ceil(high))],
        )
        assert "Changed, not saved" in one.text(".crumb")
        one.page.wait_for_selector("#budget >> text=3.25")  # of 4: the look, and the plan of 0.5 to come


def test_the_publication_of_a_plan_is_not_shown_under_another(browser, office, studio):
    office.plan("first")
    office.plan("second")
    with tab(browser, studio) as one:
        at_publish(one, "first")
        published(one)
        opened(one, "second")
        one.go("publish")
        published(one)
        opened(one, "first")
        one.go("publish")
        one.heading("Published")
        assert "first.toml" in one.text(".crumb")
        assert "first/ages.json" in one.text(".receipt")
        assert "second/" not in one.text()


def test_what_was_prepared_for_a_plan_is_not_charged_from_another(browser, office, studio):
    office.plan("late")
    office.plan("early", epsilon="0.9")
    with tab(browser, studio) as one:
        one.enter()
        opened(one, "late")
        prepared = Held(one, "publish/prepare")
        one.go("publish")
        prepared.wait()
        opened(one, "early")
        one.go("publish")
        one.page.wait_for_selector("#pub:enabled")
        prepared.let_go()
        assert "Publish and charge ε 0.9" in one.text()
        published(one, "charge 0.9")
        assert office.charges("late") == []
        assert office.charges("early") == [Fraction(9, 10)]


def test_the_receipt_is_that_of_the_plan_after_an_edit(browser, office, studio):
    office.plan("edited", epsilon="0.2")
    with tab(browser, studio) as one:
        at_publish(one, "edited")
        saved(one, "0.25")
        one.go("foresee")
        one.page.fill("#eps", "0.7")  # which counts when nothing is typed for a while, or the field is left
        one.page.keyboard.press("Tab")
        one.go("publish")
        one.page.wait_for_selector("text=Publish and charge ε 0.7")
        published(one, "charge 0.7")
        assert office.charges("edited") == [Fraction(7, 10)]


def test_escape_while_a_charge_is_under_way_takes_nothing_back(browser, office, studio):
    office.plan("escaped")
    with tab(browser, studio) as one:
        at_publish(one, "escaped").page.click("#pub")
        charged = Held(one, "publish")
        left_while_charging(one, charged)
        charged.let_go()
        one.heading("Published")
        assert one.page.locator("#pub").count() == 0
        assert office.charges("escaped") == [Fraction(1, 2)]


def test_the_answer_to_a_charge_is_not_taken_for_the_plan_opened_meanwhile(browser, office, studio):
    office.plan("gone-by")
    office.plan("opened-meanwhile")
    with tab(browser, studio) as one:
        at_publish(one, "gone-by").page.click("#pub")
        charged = Held(one, "publish")
        left_while_charging(one, charged)
        opened(one, "opened-meanwhile")
        charged.let_go()
        assert "this plan" in one.text("#budget")  # which was not published
        one.go("publish")
        one.page.wait_for_selector("#pub:enabled")
        assert "Published" not in one.text("h1")


def test_a_second_press_of_publish_again_asks_once(browser, office, studio):
    office.plan("again")
    with tab(browser, studio) as one:
        at_publish(one, "again")
        published(one)
        asked = Held(one, "publish/prepare")
        one.press_twice("Publish again as a new charge")
        asked.wait().let_go()
        one.page.wait_for_selector("dialog")
        assert one.page.locator("dialog").count() == 1
        assert one.sent.count("publish/prepare") == 2
