"""The plan that the page edits is a plan file, and what is shown of it is what the shell would do."""

import json
import re
from pathlib import Path

import pytest

from dphist.planning.plan_files import text_of
from dphist.planning.publication import Publication
from dphist.release.words import unit_word
from shell import dphist
from studio_client import studio_page

PLAN = {
    "data": "people.csv",
    "dataset": "visits",
    "epsilon": "0.5",
    "unit": "person",
    "histograms": {
        "ages": {"share": "1/3", "column": "age", "integers": [0, 119], "max_contributions": 3},
        "kinds": {"column": "kind", "categories": ["a", "b"], "other": "elsewhere", "null": None},
        "even": {"column": "age", "bins": 4, "range": [0, 100], "outside": "clip", "where": "age > 3"},
        "own": {"column": "age", "bins": [0, 18, 65, 120], "workload": "ranges"},
        "logs": {"column": "age", "log": [1, 1000], "bins": 3, "method": "identity"},
        "weeks": {
            "column": "age",
            "range": ["2024-01-01", "2024-03-01"],
            "every": "week",
            "timezone": "Europe/Berlin",
        },
        "grid": {"column": "age", "bins": 4, "range": [0, 100], "y_column": "kind", "y_categories": ["a"]},
        "by": {
            "column": "age",
            "integers": [0, 9],
            "by": "kind",
            "groups": ["a", "b"],
            "group_other": "x",
            "post": "nonneg",
        },
    },
}


def changed(**more):
    plan = json.loads(json.dumps(PLAN))
    for path, value in more.items():
        *inside, last = path.split("__")
        place = plan
        for word in inside:
            place = place[word]
        place[last] = value
    return plan


def test_a_plan_is_normalised_and_checking_it_again_changes_nothing(page):
    first = page.ask("plan/check", plan=PLAN, path="a.toml")
    assert first["problems"] == [] and first["plan"]["data"] == "people.csv"
    again = page.ask("plan/check", plan=first["plan"], path="a.toml")
    assert again == first
    assert list(first["plan"]["histograms"]) == list(PLAN["histograms"])
    other = page.ask("plan/check", plan=changed(epsilon="0.6"), path="a.toml")
    assert other["plan_digest"] != first["plan_digest"]


def test_the_file_the_shell_and_python_are_the_same_plan(page, here):
    shown = page.ask("plan/save", plan=PLAN, path="a.toml", base_digest=None)
    assert (here / "a.toml").read_text() == shown["toml"]
    loaded = Publication.load("a.toml")
    assert text_of(loaded, Path()) == shown["toml"]
    run = {}
    exec(shown["python"].replace("releases = publication.release()", ""), run)
    assert text_of(run["publication"], Path()) == shown["toml"]
    assert run["publication"].name == loaded.name == "a"
    facts = json.loads(dphist("plan", "show", "a.toml", "--json").stdout)
    for name, one in shown["histograms"].items():
        assert facts["histograms"][name]["bins"] == one["bins"]
        assert facts["histograms"][name]["unit"] == one["unit"]
    assert shown["shell"].splitlines() == ["dphist plan price a.toml", "dphist plan publish a.toml"]


def test_a_ledger_of_the_start_is_part_of_the_command(here):
    (here / "my ledger.db").touch()
    shown = studio_page(here, ledger=here / "my ledger.db").ask("plan/check", plan=PLAN, path="a.toml")
    assert shown["shell"].startswith("DPHIST_LEDGER='my ledger.db' dphist plan price a.toml\n")


def test_axes_are_drawn_from_the_plan(page):
    shown = page.ask("plan/check", plan=PLAN, path="a.toml")["histograms"]
    assert [shown[n]["axes"][0]["kind"] for n in ("ages", "kinds", "even", "own", "logs", "weeks")] == [
        "integers",
        "categories",
        "regular",
        "variable",
        "variable",
        "instants",
    ]
    assert shown["ages"]["axes"][0]["edges"][:3] == [0, 1, 2] and shown["ages"]["axes"][0]["n"] == 120
    assert shown["kinds"]["axes"][0]["names"] == ["a", "b", "elsewhere"]
    assert shown["weeks"]["axes"][0]["moments"][0].startswith("2024-01-01")
    assert [axis["name"] for axis in shown["grid"]["axes"]] == ["age", "kind"]
    assert shown["by"]["groups"] == {"names": ["kind"], "sizes": [3], "labels": ["a", "b", "x"]}
    many = page.ask("plan/check", plan=changed(histograms__ages__integers=[0, 49_999]), path="a.toml")
    axis = many["histograms"]["ages"]["axes"][0]
    assert axis["cut"] and axis["edges"] is None and len(axis["names"]) == 400
    huge = page.ask("plan/check", plan=changed(histograms__ages__integers=[0, 10**8]), path="a.toml")
    assert huge["histograms"]["ages"]["axes"][0]["names"] == []
    assert huge["histograms"]["ages"]["axes"][0]["ends"] == [0, 10**8 + 1]


@pytest.mark.parametrize(
    ("where", "value", "path"),
    [
        ("epsilon", "-1", "epsilon"),
        ("epsilon", 0.5j.imag * float("1e-12"), "epsilon"),
        ("histograms__ages__integers", [9, 3], "histograms.ages"),
        ("histograms__ages__share", "1.5", ""),
        ("histograms__kinds__methd", "x", "histograms.kinds"),
        ("histograms__even__bins", 0, "histograms.even.bins"),
        ("histograms", {}, ""),
        ("histograms__own", [], ""),
    ],
)
def test_what_is_wrong_is_said_where_it_is(page, where, value, path):
    found = page.ask("plan/check", plan=changed(**{where: value}))
    assert found["plan_digest"] is None and found["toml"] is None
    (problem,) = found["problems"]
    assert problem["path"].startswith(path) and problem["message"].endswith((".", "?", "= 1"))


def test_each_histogram_has_its_own_problem_and_the_others_are_still_drawn(page):
    plan = changed(histograms__ages__integers=[9, 3], histograms__logs__log=[-1, 3])
    found = page.ask("plan/check", plan=plan)
    assert [p["path"].split(".")[1] for p in found["problems"]] == ["ages", "logs"]
    assert set(found["histograms"]) == set(PLAN["histograms"]) - {"ages", "logs"}


def test_a_file_that_another_program_changed_is_not_replaced(page, here):
    first = page.ask("plan/save", plan=PLAN, path="a.toml", base_digest=None)
    assert (
        page.refused("plan/save", plan=PLAN, path="a.toml", base_digest=None, status=409)["code"] == "changed"
    )
    (here / "a.toml").write_text(first["toml"] + "# a thought\n")
    newer = page.refused("plan/save", plan=PLAN, path="a.toml", base_digest=first["file_digest"], status=409)
    assert newer["code"] == "changed" and "a thought" in (here / "a.toml").read_text()
    opened = page.ask("plan/open", path="a.toml")
    assert opened["plan_digest"] == first["plan_digest"] and opened["file_digest"] != first["file_digest"]
    page.ask("plan/save", plan=PLAN, path="a.toml", base_digest=opened["file_digest"])
    assert "a thought" not in (here / "a.toml").read_text()


def test_a_list_of_labels_that_may_be_records_is_not_shown(page, here):
    (here / "wards.txt").write_text("A\nB\n")
    shown = page.ask("plan/check", plan=changed(histograms__kinds__categories="wards.txt"))
    assert shown["histograms"]["kinds"]["axes"][0]["names"] == ["A", "B", "elsewhere"]
    (here / "secret.csv").write_text("Xyzzy\nPlugh\n")
    for where in ("histograms__kinds__categories", "histograms__by__groups"):
        plan = changed(**{where: "secret.csv"})
        del plan["data"]
        error = page.refused("plan/check", plan=plan, status=422)
        assert error["code"] == "privacy_rule" and "Xyzzy" not in json.dumps(error)


@pytest.mark.parametrize("name", ["secret.json", "secret", "secret.db", "secret.csv.zst", "linked.txt"])
def test_only_what_is_named_as_a_list_of_labels_is_read_as_one(page, here, name):
    held = here / ("secret.csv" if name == "linked.txt" else name)
    held.write_text("Xyzzy\nPlugh\n")
    if name == "linked.txt":
        (here / name).symlink_to(held)
    error = page.refused("plan/check", plan=changed(histograms__kinds__categories=name), status=422)
    assert error["code"] == "privacy_rule" and "Xyzzy" not in json.dumps(error)


def test_no_glob_or_folder_of_records_leads_out_by_a_link(page, here, tmp_path_factory):
    away = tmp_path_factory.mktemp("away")
    (away / "people.csv").write_text("elsewhere\n1\n")
    (here / "link").symlink_to(away)
    (here / "some").mkdir()
    (here / "some" / "more.csv").write_text("age\n1\n")
    assert page.ask("columns", data="some")["columns"] == page.ask("columns", data="s*/*.csv")["columns"]
    (here / "some" / "people.csv").symlink_to(away / "people.csv")
    for source in ("link/people.csv", "l[i]nk/people.csv", "*/people.csv", "**/*.csv", "some", "a\0b"):
        for ask, said in (("columns", {"data": source}), ("plan/check", {"plan": changed(data=source)})):
            error = page.refused(ask, said, status=403)
            assert error["code"] == "forbidden" and "elsewhere" not in json.dumps(error)


def test_the_records_are_no_prior_and_their_number_is_not_said(page, here):
    (here / "ages.csv").write_text("age\n" + "7\n" * 53)
    plan = {"data": "ages.csv", "epsilon": "1", "histograms": {"ages": {"column": "age", "integers": [0, 9]}}}
    plan["histograms"]["ages"] |= {"prior": "ages.csv", "public_prior": True, "method": "average"}
    (problem,) = page.ask("plan/check", plan=plan)["problems"]
    said = problem["message"].replace(str(here), "")  # a folder may have any number in its name
    assert "holds the records" in said and not re.search(r"\b53\b", said)


def test_a_wrong_plan_is_not_saved(page, here):
    assert page.refused("plan/save", plan=changed(epsilon="0"), path="a.toml", base_digest=None, status=400)
    assert page.refused("plan/save", plan=PLAN, path="a.txt", base_digest=None, status=400)
    assert not list(here.glob("a.*"))
    assert page.refused("plan/open", path="a.toml", status=410)["code"] == "gone"


class TestColumns:
    def test_the_header_of_text_has_names_without_types(self, page):
        assert page.ask("columns", data="people.csv")["columns"] == [
            {"name": name, "type": None} for name in ("age", "kind", "person")
        ]

    def test_a_schema_has_types_and_no_statistics(self, page, here):
        import duckdb

        duckdb.sql("COPY (SELECT 987654321 AS n, 'Xyzzy'::ENUM('Xyzzy') AS e, 'Xyzzy' AS t) TO 'p.parquet'")
        found = page.send("columns", {"data": "p.parquet"})
        assert found.json()["columns"] == [
            {"name": "n", "type": "INTEGER"},
            {"name": "e", "type": "VARCHAR"},
            {"name": "t", "type": "VARCHAR"},
        ]
        assert b"Xyzzy" not in found.content and b"9876" not in found.content

    def test_labels_of_an_enum_are_data(self, page, here):
        import duckdb

        with duckdb.connect("d.duckdb") as db:
            db.execute("CREATE TYPE mood AS ENUM ('Xyzzy', 'Plugh')")
            db.execute("CREATE TABLE t (m mood, n BIGINT)")
        found = page.ask("columns", data="d.duckdb", table="t")["columns"]
        assert found == [{"name": "m", "type": "ENUM"}, {"name": "n", "type": "BIGINT"}]
        assert "table" in page.refused("columns", data="d.duckdb", status=400)["message"]

    def test_json_has_no_header_and_no_record_is_read_for_one(self, page, here):
        (here / "j.jsonl").write_text('{"Xyzzy": 1}\n')
        assert page.ask("columns", data="j.jsonl")["columns"] == []


@pytest.mark.parametrize(
    ("column", "word"),
    [
        ("patient_id", "patient"),
        ("patient", "patient"),
        ("Customer No", "customer"),
        ("personId", "person"),
        ("house_hold_key", "house hold"),
        ("tailnum", "tailnum"),
        ("paid", "paid"),
        ("id", "person"),
        ("p1", "person"),
        ("<b>1", "person"),
        (None, "record"),
    ],
)
def test_whoever_is_protected_has_the_word_of_the_column(column, word):
    assert unit_word(column) == word
