"""Nothing of a record is in an answer, a log or a release's metadata; labels that are code are text."""

import csv
import io
import json
import re
import zipfile

import pytest

import dphist as library
from dphist.privacy.ledger import Ledger
from studio_client import studio_page, view_page

# A value, a person and a number of records that would be known wherever they came out.
TEXT, NUMBER, PERSON, ROWS = "Hjordis-Quartz", "7781.7781", "Vexillographer", 2371
# Long ones, and numbers that stand alone: other digits come about by chance, in names and in noise.
TRACES = re.compile(
    rb"Hjordis|Quartz-|s-Quartz|Vexillographer|7781[.,]778|(?<![\w.,-])(?:2371|2,371|7781)(?![\w.])"
)
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=HYPERLINK(1)",
    "+1",
    "-1",
    "@sum",
    "datum.x",
    "{{7*7}}",
    "'; DROP TABLE x; --",
    "\u202eabc",
    "</script><script>",
]
PLAN = {
    "data": "people.csv",
    "ledger": "l.db",
    "dataset": "visits",
    "epsilon": "0.5",
    "unit": "person",
    "histograms": {
        "ages": {"column": "age", "integers": [0, 9], "method": "identity", "where": "age < 100"},
        "kinds": {"column": "kind", "categories": ["a", "b"], "method": "identity"},
    },
}


def ask_everything(page, path="plan.toml"):
    """Ask every question of the studio, right and wrong, so that all its traffic is seen."""
    saved = page.ask("plan/save", plan=PLAN, path=path, base_digest=None)
    about = {"path": path, "plan_digest": saved["plan_digest"]}
    for name, asked in {
        "session": {},
        "files": {},
        "columns": {"data": "people.csv"},
        "plan/check": {"plan": PLAN},
        "plan/open": about,
        "target": {"plan": PLAN, "histogram": "ages", "error": 20},
        "foresee": {"plan": PLAN, "histogram": "ages", "records": 1000, "shape": {"name": "smooth"}},
        "foresee/range": {"plan": PLAN, "histogram": "ages", "records": 1000, "lo": 0, "hi": 3},
        "publish/prepare": about,
    }.items():
        assert page.send(name, asked).status_code == 200, name
    ready = page.ask("publish/prepare", about)
    token = {"publish_token": ready["publish_token"], "confirm": ready["phrase"]}
    for wrong in ({"confirm": "no"}, {"plan_digest": "0"}, {"publish_token": "f" * 64}):
        page.send("publish", about | token | wrong)
    made = page.ask("publish", about | token)
    page.ask("publish", about | token)
    page.ask("publish/state", about | token)
    page.send("publish/finish", about | token)
    page.ask("publish/prepare", about | {"again": True})
    look = {
        "plan": PLAN,
        "path": path,
        "histogram": "ages",
        "epsilon": "2",
    }  # no sum is a canary by chance
    ready = page.ask("bounds/prepare", look)
    token = {"publish_token": ready["publish_token"], "confirm": ready["phrase"]}
    page.send("bounds", look | token | {"confirm": "no"})
    looked = page.ask("bounds", look | token)["found"]
    assert page.ask("bounds/prepare", look)["found"] == looked
    for release in [*made["publication"]["releases"], {"path": looked["release"]}]:
        asked = {"path": release["path"]}
        page.ask("release/open", asked)
        page.ask("release/query", asked | {"ranges": [[0, 2]], "joint": True, "compare": release["path"]})
        page.send("release/query", asked | {"quantiles": [0.5]})
        page.ask("release/table", asked)
        for form in ("png", "svg", "csv", "xlsx", "json", "parquet"):
            assert page.send("release/export", asked | {"format": form}).status_code == 200
    paths = [r["path"] for r in made["publication"]["releases"]]
    report = page.ask("report", paths=paths, title="Visits")
    assert page.send("release/export", {"path": report["path"], "format": "html"}).status_code == 200
    page.ask("ledger", about)
    page.send("release/open", {"path": "people.csv"})
    page.send("release/export", {"path": "people.csv", "format": "csv"})
    page.send("release/export", {"path": "people.csv", "format": "html"})
    page.send("foresee", {"plan": PLAN, "histogram": "ages", "shape": {"release": "people.csv"}})
    return made


@pytest.fixture
def planted(here, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    from dphist.planning import advise

    monkeypatch.setattr(advise, "usual", lambda domain, queries: ("identity", "uniform"))
    Ledger.open(here / "l.db", create=True).set_limit("visits", 4)
    return here


def seen_of(page, folder):
    """Return everything that left the studio: answers, and files that it wrote, unpacked."""
    found = list(page.seen)
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "people.csv":
            found.append(path.read_bytes())
    for content in list(found):
        if content[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                found += [packed.read(name) for name in packed.namelist()]
    return found


def traces(contents):
    """Return what of the records is in some contents; numbers are looked for in text alone."""
    found = []
    for content in contents:
        packed = content[:4] in (b"\x89PNG", b"PK\x03\x04", b"PAR1")
        kept = [m for m in TRACES.findall(content) if not packed or len(m) > 6]
        found += [(m, content[:200]) for m in kept]
    return found


def test_a_canary_in_the_records_is_nowhere(planted, capfd):
    """Values, persons and the number of records; among the values odd ones, at which engines stop."""
    # Most of them lie in no bin: a noisy count must not be the number of records by chance.
    ages = ["3", "50", TEXT]
    rows = [f"{ages[i % 3]},{TEXT},{PERSON}{i}" for i in range(ROWS - 2)]
    rows += [f"{NUMBER},{TEXT},{PERSON}", f'"{NUMBER},{TEXT}']
    (planted / "people.csv").write_text("age,kind,person\n" + "\n".join(rows) + "\n")
    page = studio_page(planted)
    ask_everything(page)
    out, err = capfd.readouterr()
    assert traces([*seen_of(page, planted), out.encode(), err.encode()]) == []


def test_a_canary_in_parquet_is_nowhere_though_its_footer_holds_extremes_and_counts(planted, capfd):
    import duckdb

    (planted / "people.csv").unlink()
    duckdb.sql(
        f"COPY (SELECT CASE i % 2 WHEN 0 THEN {NUMBER} ELSE 3 END AS age, '{TEXT}' AS kind, "
        f"'{PERSON}' || i AS person FROM range({ROWS}) t(i)) TO 'people.parquet'"
    )
    page = studio_page(planted, data="people.parquet")
    page.ask("session")
    page.ask("files")
    page.ask("columns", data="people.parquet")
    plan = PLAN | {"data": "people.parquet"}
    saved = page.ask("plan/save", plan=plan, path="p.toml", base_digest=None)
    about = {"path": "p.toml", "plan_digest": saved["plan_digest"]}
    ready = page.ask("publish/prepare", about)
    assert ready["allowed"], ready["reason"]
    page.ask("publish", about | {"publish_token": ready["publish_token"], "confirm": ready["phrase"]})
    page.send("release/open", {"path": "people.parquet"})
    out, err = capfd.readouterr()
    assert traces([*seen_of(page, planted / "p"), out.encode(), err.encode()]) == []


def test_the_search_finds_what_it_looks_for():
    for text in (TEXT, NUMBER, PERSON, f"{ROWS} rows", f"rows: {ROWS}", "2,371 records", '{"n":2371}'):
        assert traces([text.encode()]), text
    assert not traces([b"0.2371", b"12371", b"a2371f", b"23710", b"2026-11-16T10:23.710"])


def test_the_database_of_a_plan_does_not_give_its_password_away(planted):
    address = "postgresql://ann:Plugh99@127.0.0.1:1/visits"
    page = studio_page(planted, data=address)
    plan = PLAN | {"data": address, "table": "t"}
    checked = page.ask("plan/check", plan=plan, path="p.toml")
    assert checked["problems"] == []
    found = page.send("columns", {"data": address, "table": "t"})
    assert found.status_code == 422 and b"Plugh99" not in found.content


class TestHostileLabels:
    def test_they_are_text_wherever_they_are_sent(self, planted):
        page = studio_page(planted)
        one = {"column": "kind", "categories": HOSTILE, "method": "identity"}
        plan = PLAN | {"histograms": {"kinds": one}}
        checked = page.ask("plan/check", plan=plan, path="h.toml")
        assert checked["histograms"]["kinds"]["axes"][0]["names"] == HOSTILE
        saved = page.ask("plan/save", plan=plan, path="h.toml", base_digest=None)
        assert saved["plan"]["histograms"]["kinds"]["categories"] == HOSTILE
        about = {"path": "h.toml", "plan_digest": saved["plan_digest"]}
        ready = page.ask("publish/prepare", about)
        page.ask("publish", about | {"publish_token": ready["publish_token"], "confirm": ready["phrase"]})
        opened = page.send("release/open", {"path": "h/kinds.json"})
        assert opened.headers["content-type"] == "application/json"
        assert opened.json()["axes"][0]["names"] == HOSTILE
        for form, cells in (("csv", self.of_csv), ("xlsx", self.of_xlsx)):
            table = page.send("release/export", {"path": "h/kinds.json", "format": form, "title": "=1+1"})
            assert "attachment" in table.headers["content-disposition"]
            assert not [c for c in cells(table.content) if c[:1] in "=@" or (c[:1] in "+-" and c[1:] != "1")]
        report = page.ask("report", paths=["h/kinds.json"], title="<script>alert(1)</script>")
        text = (planted / report["path"]).read_text()
        assert "<script" not in text and "<img" not in text

    def of_csv(self, content):
        rows = csv.DictReader(io.StringIO(content.decode()))
        return [row["label"] for row in rows]

    def of_xlsx(self, content):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            sheet = b"".join(packed.read(n) for n in packed.namelist() if n.endswith(".xml"))
        assert b"<f>" not in sheet  # no formula
        return []

    def test_no_label_is_inside_an_expression_of_a_picture(self, planted):
        made = library.from_counts([1] * len(HOSTILE), bins=HOSTILE, epsilon=1, method="identity")
        made.save("h.json")
        spec = studio_page(planted).ask("release/open", path="h.json")["spec"]

        def expressions(node):
            if isinstance(node, dict):
                for key, inner in node.items():
                    if key in ("expr", "calculate", "labelExpr", "test", "filter", "signal", "format"):
                        yield json.dumps(inner)
                    if key not in ("datasets", "values", "value", "params"):
                        yield from expressions(inner)
            elif isinstance(node, list):
                for inner in node:
                    yield from expressions(inner)

        written = "".join(expressions(spec))
        assert not [label for label in HOSTILE[:2] + HOSTILE[-1:] if label[:10] in written]

    def test_a_name_of_a_file_is_harmless_in_a_header(self, planted):
        library.from_counts([1, 2], epsilon=1, method="identity").save('a"b;c.json')
        for page in (studio_page(planted), view_page(planted)):
            found = page.send("release/export", {"path": 'a"b;c.json', "format": "csv"})
            assert found.headers["content-disposition"] == 'attachment; filename="a_b_c.csv"'


class TestReleases:
    @pytest.fixture
    def page(self, planted):
        line = library.Plan(integers=(0, 5), epsilon=1, method="identity")
        line.release([1, 2, 2, 3, 5] * 200).save("line.json")
        line.release([1, 2, 2, 3, 3, 3, 5] * 200).save("later.json")
        library.histogram2d([1, 2], [1, 1], bins=(3, 2), range=((0, 3), (0, 2)), epsilon=1).save("grid.json")
        groups = library.GroupedPlan(
            by=("all", "ward"), groups=["A", "B"], integers=(0, 5), epsilon=1, method="identity"
        )
        groups.release((["A", "B", "A"], [1, 2, 3])).save("groups.json")
        return view_page(planted)

    def test_a_folder_lists_its_releases_with_a_line_each(self, page):
        found = {f["path"]: f for f in page.ask("files")["files"]}
        assert found["line.json"]["kind"] == "release" and len(found["line.json"]["line"]) == 6
        assert found["groups.json"]["release"]["epsilon"] == "1"
        assert found["people.csv"] == {"path": "people.csv", "kind": "data"}
        assert found["l.db"]["kind"] == "ledger"

    def test_a_line_is_what_the_library_says(self, page):
        real = library.load("line.json")
        found = page.ask("release/open", path="line.json", level=0.9)
        assert found["values"] == real.raw.tolist() and found["kind"] == "line"
        for name, joint in (("each", False), ("joint", True)):
            low, high = real.intervals(level=0.9, joint=joint)
            assert found[name] == {"low": low.tolist(), "high": high.tolist()}
        assert found["negatives"] == int((real.raw < 0).sum())
        asked = page.ask("release/query", path="line.json", ranges=[[1, 4]], quantiles=[0.5], joint=True)
        one = real.sum(1, 4, joint=True)
        assert (asked["ranges"][0]["value"], asked["ranges"][0]["low"]) == (one.value, one.low)
        assert (asked["ranges"][0]["from"], asked["ranges"][0]["to"]) == ("1", "3")
        assert asked["quantiles"][0]["value"] == real.quantile(0.5).value
        table = page.ask("release/table", {"path": "line.json", "from": 2}, rows=2)
        assert table["of"] == 6 and [row[0] for row in table["rows"]] == [2, 3]

    def test_two_releases_are_compared_by_intervals_that_hold_for_both(self, page):
        asked = page.ask("release/query", path="later.json", ranges=[[0, 4]], compare="line.json")
        (found,) = asked["compare"]["change"]
        new, old = (library.load(f).sum(0, 4, level=0.975) for f in ("later.json", "line.json"))
        assert found["value"] == new.value - old.value
        assert found["low"] == pytest.approx(new.low - old.high)
        assert found["high"] == pytest.approx(new.high - old.low)
        assert page.refused("release/query", path="grid.json", ranges=[], compare="line.json", status=400)

    def test_grids_and_groups(self, page):
        grid = page.ask("release/open", path="grid.json")
        assert (grid["kind"], grid["shape"], len(grid["values"])) == ("grid", [3, 2], 6)
        box = page.ask("release/query", path="grid.json", ranges=[[0, 2, 0, 1]], joint=True)["ranges"][0]
        assert box["value"] == pytest.approx(library.load("grid.json").sum((0, 2), (0, 1), joint=True).value)
        groups = page.ask("release/open", path="groups.json")
        assert groups["kind"] == "groups" and groups["groups"]["chosen"] == ["ward", "A"]
        other = page.ask("release/open", path="groups.json", group=["ward", "B"])
        assert other["values"] == library.load("groups.json")["B"].raw.tolist()

    @pytest.mark.parametrize(
        "asked",
        [
            {"ranges": [[0]]},
            {"ranges": [[3, 2]]},
            {"ranges": [[0, 99]]},
            {"ranges": [["a", "b"]]},
            {"ranges": "all"},
            {"ranges": [[0, 1]] * 300},
            {"quantiles": ["x"]},
            {"quantiles": [2]},
            {"level": 2},
            {"level": "x"},
            {"joint": 1},
            {"group": ["ward", "A"]},
        ],
    )
    def test_a_wrong_question_is_refused_in_words(self, page, asked):
        error = page.refused("release/query", {"path": "line.json"} | asked, status=400)
        assert error["code"] == "usage" and error["message"].endswith((".", "?"))

    def test_a_release_that_is_gone_or_damaged_is_said(self, page, planted):
        (planted / "line.json").write_text('{"format":"dphist-release","version":1}')
        assert page.refused("release/open", path="line.json", status=422)["code"] == "bad_data"
        (planted / "line.json").unlink()
        assert page.refused("release/open", path="line.json", status=410)["code"] == "gone"
        assert page.ask("files", under="nowhere")["files"] == []  # as before anything was published
        assert page.refused("files", under="people.csv", status=410)["code"] == "gone"

    def test_what_is_said_of_intervals_is_true_of_those_that_are_shown(self, page):
        said = page.ask("release/open", path="line.json")["limits"]
        alone, joint = ([name for name, _ in said[which]] for which in ("each", "joint"))
        assert "Each interval holds by itself" in alone and "All intervals hold at once" in joint
        assert "Each interval holds by itself" not in joint and len(alone) == len(joint)


@pytest.mark.parametrize("said", [{"x": 1}, "abc", 5, {"epsilon": "1e999999", "histograms": ["a", "b"]}])
def test_what_a_file_says_of_its_publication_may_be_anything(said):
    from dataclasses import replace

    from dphist.studio.releases import _protects

    release = library.from_counts([5, 6], epsilon=2)
    assert _protects(replace(release, provenance={"publication": said})) == (
        "It protects one record with epsilon 2."
    )


def test_whom_a_release_protects_is_said_with_the_word_of_the_unit():
    from fractions import Fraction
    from types import SimpleNamespace

    from dphist.studio.releases import _protects

    for unit, word in (
        ("one patient_id with at most 3 records", "one patient with at most 3 records"),
        ("one person with at most 1 record", "one person with at most 1 record"),
        ("one record", "one record"),
    ):
        made = SimpleNamespace(provenance={}, epsilon=Fraction(2), unit=unit)
        assert _protects(made) == f"It protects {word} with epsilon 2."


def test_the_facts_of_a_release_say_whom_it_protects_and_not_by_which_column(here):
    (here / "patients.csv").write_text("patient_id,age\n1,3\n1,4\n2,5\n")
    plan = library.Plan(
        column="age", bins=library.Integers(0, 9), epsilon=1, unit="patient_id", max_contributions=2
    )
    plan.release("patients.csv").save("by.json")
    facts = view_page(here).ask("release/open", path="by.json")["about"]
    assert ["protects", "one patient with at most 2 records (sensitivity 2)"] in facts
    assert "patient_id" not in str(facts)
