"""The page that is handed in: what it says, that it is safe and whole; altered releases are refused."""

import base64
import errno
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dphist
from dphist._common.rounded import interval
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import LedgerError, OutputError, ReleaseFileError, UsageError
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release import files, words
from dphist.reports import tables
from dphist.reports.published import published
from shell import dphist as run

EVIL = "<script>alert('x')</script>"
QUIET = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "h3",
    "p",
    "b",
    "i",
    "ul",
    "li",
}
QUIET |= {"table", "caption", "thead", "tbody", "tr", "th", "td", "div", "span", "small", "br", "a", "figure"}
QUIET |= {"figcaption", "svg", "g", "path", "line", "text", "tspan", "rect", "defs", "clippath", "stop"}
QUIET |= {"lineargradient"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt install chromium")


class Read(HTMLParser):
    """What a browser would see of a page."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.tables, self.style = [], ""
        self.feed(Path(path).read_text("utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} is closed and was not the last one opened"

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
            return
        self.texts.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def check_safe(page):
    """Whatever the releases say: nothing runs, nothing is loaded, and nothing is left open."""
    assert page.open == []
    assert set(page.tags) <= QUIET, set(page.tags) - QUIET
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "xlink:href", "action", "formaction"), (tag, name)
        if name == "href":
            assert value.startswith(("data:text/csv;base64,", "data:application/json;base64,"))
        if not name.startswith("xmlns") and name != "href":
            assert "://" not in value and "javascript:" not in value, (tag, name, value)
        assert re.fullmatch(r"(?:(?!url\().)*|url\(#[\w-]+\)", value, re.DOTALL), (tag, name, value)
    assert "url(" not in page.style and "@import" not in page.style
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'") and "script" not in policy
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for _, _, value in page.attributes:
        for name in re.findall(r"url\(#([\w-]+)\)", value):
            assert name in ids


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    return tmp_path


def visits(**more):
    """Publish made-up visits, charged to a ledger."""
    if not Path("visits.csv").exists():
        rows = [f"{i // 4},{(7 * i) % 97},{'ABC'[i % 3]}\n" for i in range(3000)]
        Path("visits.csv").write_text("patient,age,ward\n" + "".join(rows))
        dphist.Ledger.open("l.db", create=True).set_limit("visits", 4)
    given = {"column": "age", "bins": 10, "range": (0, 100), "epsilon": "0.5", "unit": "patient"}
    given |= {"max_contributions": 3, "ledger": "l.db", "dataset": "visits"} | more
    return dphist.histogram("visits.csv", **given)


def hostile():
    labels = [EVIL, "a & b", '"quoted"', "tab\t\x1b[31m", "</text></svg>", "\ud800 half"]
    described = dphist.from_counts([300, 20, 5, 80, 9, 7], bins=labels, epsilon=1).to_dict()
    described["provenance"] |= {"column": [EVIL], "where": f"x = '{EVIL}'", "dataset": EVIL}
    described["unit"] = f"one {EVIL}"
    described["sensitivity"], described["method"] = 2, f"custom {EVIL}"
    return dphist.Release.from_dict(described)


# ---- what it says -----------------------------------------------------------------------------------


def test_a_page_says_what_there_is_to_say(folder):
    release = visits(method="identity")
    dphist.report(release, "r.html", title="Hospital visits by age, 2024", ledger="l.db")
    page = Read("r.html")
    check_safe(page)
    assert page.text.count("Hospital visits by age, 2024") == 3  # title, heading and citation
    head, *rows = page.tables[0]
    assert head == ["age", "records", "95\xa0% interval"]
    low, high = release.intervals()
    for i, (name, value, ends) in enumerate(rows):
        assert name.replace("\xa0", " ") == release.domain.axis.names()[i]
        assert value.replace("\N{MINUS SIGN}", "-").replace(",", "") == f"{release.raw[i]:.0f}"
        wanted = f"{low[i]:,.0f} to {high[i]:,.0f}".replace("-", "\N{MINUS SIGN}")
        assert ends == wanted
    assert len(rows) == 10
    for text in (
        "epsilon = 0.5 (delta = 0)",
        "one patient with at most 3 records",
        "changes the counts by at most 3",
        release.bounding,
        "independent noise of scale 6.",
        "They are unbiased for the records that were counted.",
        "Nothing was rounded, smoothed or left out afterwards.",
        published(release).citation,
        release.error.description.rstrip("."),
        f"dphist {dphist.__version__}",
        release.id,
        'The dataset "visits" has spent 0.5 of its limit of 4 in 1 charge; 3.5 is left.',
        "How to cite",
        f"release {release.id[:8]}, {release.created[:10]}",
    ):
        assert text in page.text, text
    for name, text in words.UNKNOWN_TO_SOFTWARE:
        assert f"{name.capitalize()}." in page.text and text in page.text
    assert page.tags.count("svg") == 2, "for a wide and for a narrow screen"


@pytest.mark.parametrize(("most", "said"), [(1, "1 record of each is"), (3, "3 records of each are")])
def test_how_many_records_of_each_are_counted(folder, most, said):
    dphist.report(visits(max_contributions=most), "r.html", ledger="l.db")
    text = Read("r.html").text
    assert f"At most {said} counted." in text and f"protected; at most {said} counted" in text


def test_the_odds_are_in_words_and_numbers(folder):
    dphist.report(visits(), "r.html", ledger="l.db")
    page = Read("r.html")
    assert (
        "with a chance of 10 in 100, can hold so afterwards with a chance of 15.5 in 100 at most" in page.text
    )
    table = next(t for t in page.tables if t[0][0] == "their belief before")
    assert [text.replace("\xa0", " ") for text in table[0][1:]] == [
        "after this table (ε = 0.5)",
        "after the one charge so far (ε = 0.5)",
        "if the whole budget is spent (ε = 4)",
    ]
    assert table[2] == ["10\xa0in\xa0100", "15.5", "15.5", "85.9"]  # 10 e^4 / (90 + 10 e^4) = 85.85


def test_several_releases_stand_on_one_page_and_their_charges_add_up(folder):
    ages, wards = (
        visits(),
        visits(column="ward", bins=None, range=None, categories=["A", "B", "C"], epsilon=1),
    )
    records = visits(unit=None, max_contributions=1, epsilon="0.25")
    dphist.report([ages, wards, ages], "two.html", title="Visits")
    page = Read("two.html")
    check_safe(page)
    for text in ("Records by age", "Records by ward", "after these 2 tables (ε = 1.5)"):
        assert text in page.text.replace("\xa0", " "), text
    assert "if the whole budget" not in page.text and "Privacy budget" not in page.text
    dphist.report([ages, records], "mixed.html", ledger="l.db")
    page = Read("mixed.html")
    assert "after the table that protects one patient of visits (ε = 0.5)" in page.text.replace("\xa0", " ")
    assert "after the table that protects one record of visits (ε = 0.25)" in page.text.replace("\xa0", " ")
    assert "so it bounds the loss of none of them" in page.text and "so far (" not in page.text
    assert "A person with k records is protected with k times" in page.text


def test_groups_have_their_totals_and_errors(folder):
    release = visits(by=("wing", "ward"), groups={"west": ["A", "B"], "east": ["C"]}, post="integer")
    dphist.report(release, "r.html")
    page = Read("r.html")
    check_safe(page)
    by_wing, by_ward, errors = page.tables[:3]
    assert by_wing[0][0] == "wing" and [row[0] for row in by_ward[1:]] == ["A", "B", "C"]
    for row in by_ward[1:]:
        total = release[row[0]].total()
        assert row[1] == f"{release[row[0]].values().sum():,.0f}"
        assert row[2] == interval(max(total.low, 0), total.high)
    assert errors[0][:2] == ["level", "groups"]
    assert "for each of the declared groups (2 of wing, 3 of ward)" in page.text
    assert "Across: age; upwards: records." in page.text, "what the picture says of itself"


def test_a_grid_has_cells_and_sums_with_intervals(folder):
    grid = dphist.from_counts([[500, 6], [7, 80]], bins=([0, 1, 2], ["x", "y"]), epsilon="0.5")
    dphist.report(grid, "r.html")
    page = Read("r.html")
    check_safe(page)
    cells, along_y, along_x = page.tables[:3]
    low, high = grid.intervals()
    assert cells[1][1] == f"{grid.raw[0]:,.0f}{interval(low[0, 0], high[0, 0])}"
    assert [row[0] for row in along_x[1:]] == ["x", "y"]
    answer = grid.sum((0, 2), ["y"])
    assert along_x[2][1] == f"{answer.value:,.0f}"
    assert along_x[2][2] == interval(answer.low, answer.high)
    assert "The colour of a cell" in page.text and along_y[0][0] == "bin"


def test_long_histograms_are_summed_and_long_lists_cut(folder):
    line = dphist.from_counts(np.arange(401), epsilon=1)
    made = next(tables.tables(line, level=0.9))
    assert len(made.rows) == 58 and "sum of 7 of the 401 published bins" in made.note
    assert "The last row has fewer" in made.note
    answer = line.sum(7, 14, level=0.9)
    assert made.rows[1][1] == f"{answer.value:,.0f}"
    assert made.rows[1][2] == interval(answer.low, answer.high)
    even = next(tables.tables(dphist.from_counts(np.ones(400, int), epsilon=1), level=0.9))
    assert len(even.rows) == 50 and "fewer" not in even.note
    labels = [f"label {i}" for i in range(300)]
    many = next(tables.tables(dphist.from_counts(np.arange(300) * 100, bins=labels, epsilon=1), level=0.9))
    assert [row[0] for row in many.rows] == labels[200:] and "100 largest of 300" in many.note


def test_a_page_of_averaged_values_names_the_choice_and_where_intervals_come_from(folder):
    release = visits()
    dphist.report(release, "r.html", ledger="l.db")
    text = Read("r.html").text
    for said in (
        "The method is auto, which chose average by the queries that were declared",
        published(release).citation,
        "The values were averaged or grouped after the measurement",
        "Where noisy counts look alike, values are averages of them, and no value is below 0. Nothing was",
        "answers to ranges are moved into its intervals",
        release.bounding,
    ):
        assert said in text, said
    assert "The estimates are as measured" not in text and "unbiased for the records" not in text


@pytest.mark.parametrize(
    ("method", "calibrate", "said"),
    [
        ("average", 0, ", and no value is below 0. Nothing was rounded or left out afterwards."),
        ("s2", 0, "values are averages of them. Nothing was rounded or left out afterwards."),
        ("s2", "0.05", "may be biased. Nothing was rounded or left out afterwards."),
        ("identity", 0, "Nothing was rounded, smoothed or left out afterwards."),
    ],
)
def test_values_that_were_averaged_or_share_a_group_are_not_said_to_be_as_measured(method, calibrate, said):
    counts = np.repeat([40, 2, 300, 0], 25)
    domain = Domain((Integers(0, 99),))
    curator = Curator.simulated(Counts(counts, domain), epsilon=Fraction("0.1"), seed=1)
    queries = make_workload("points", domain)
    made = make_pipeline(method, domain, queries)
    release = replace(made, calibrate=Fraction(calibrate)).run(curator, queries)
    assert (release.raw >= 0).all() == (method == "average"), "noise of 10 records on 25 empty bins"
    assert any(said in text for text in words.methods(release, published(release)))


def test_numbers_are_written_with_as_many_digits_as_their_error_allows():
    assert tables.number(-0.3) == "0" and tables.number(-1234.6) == "\N{MINUS SIGN}1,235"
    assert tables.number(-0.04, 1) == "0.0" and tables.number(3.26, 1) == "3.3"
    assert tables.ends(math.nan, math.nan) == tables.ends(None, 3.0) == "not known"
    assert tables.digits_of(np.array([0.0]), np.array([1.0])) == 1
    assert tables.digits_of(np.array([0.0]), np.array([9.0])) == 0
    assert tables.digits_of(np.array([np.nan]), np.array([np.nan])) == 0


def test_unknown_errors_are_called_unknown(folder):
    release = dphist.from_counts([30, 20, 50, 10], epsilon=1, method="efpa")
    dphist.report(release, "r.html")
    page = Read("r.html")
    assert {row[2] for row in page.tables[0][1:]} == {"not known"}
    assert "whose error is not known" in page.text and "Each interval holds on its own, in" not in page.text


def test_a_simulated_release_is_stamped_and_has_no_odds(folder):
    described = dphist.from_counts([30, 20], epsilon=1).to_dict() | {"simulated": True}
    del described["id"]
    dphist.report(dphist.Release.from_dict(described), "r.html")
    page = Read("r.html")
    assert page.text.count("SIMULATED: not private.") >= 3 and "their belief before" not in page.text


def test_the_release_and_its_table_are_inside(folder):
    release = visits(post="integer")
    dphist.report(release, "r.html")
    links = [value for tag, name, value in Read("r.html").attributes if (tag, name) == ("a", "href")]
    table, document = (base64.b64decode(link.partition("base64,")[2]).decode() for link in links)
    release.export("t.csv")
    assert table == Path("t.csv").read_text("utf-8")
    assert dphist.Release.from_dict(json.loads(document)) == release


# ---- safe -------------------------------------------------------------------------------------------


def test_no_text_of_others_is_obeyed(folder):
    release = hostile()
    dphist.report(release, "r.html", title=EVIL)
    source = Path("r.html").read_text("utf-8")
    assert "<script" not in source and "\x1b" not in source
    page = Read("r.html")
    check_safe(page)
    assert page.text.count(EVIL) >= 6, "escaped, not left out"
    assert [row[0] for row in page.tables[0][1:3]] == [EVIL, "a\xa0&\xa0b"]


def test_labels_of_groups_and_hostile_expressions_in_titles(folder):
    release = visits(by="ward", groups=["A", "B", EVIL], where="age < 90 AND 1 < 2")
    dphist.report(release, "r.html")
    page = Read("r.html")
    check_safe(page)
    assert EVIL in [row[0] for row in page.tables[0]]
    assert "Only records that meet the condition age < 90 AND 1 < 2 were counted." in page.text
    named = hostile()
    assert words.usual_title(named) == "Records by bin", "no expression is a title"


# ---- what the ledger confirms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"epsilon": "1/100", "charges": []}, {"unit": "one person"}, {"method": "dawa"}], ids=str
)
def test_a_release_that_was_altered_is_refused_by_its_ledger(folder, change):
    visits().save("r.json")
    described = json.loads(Path("r.json").read_text()) | change
    del described["sha256"]  # which a forger would leave out
    Path("r.json").write_text(json.dumps(described))
    stderr = run("report", "r.json", "--out", "r.html", "--ledger", "l.db", code=4).stderr
    assert "was altered: it states" in stderr and "Fetch the release again" in stderr
    assert not Path("r.html").exists()


def test_a_release_whose_values_were_altered_is_refused(folder):
    visits(post="integer").save("r.json")
    described = json.loads(Path("r.json").read_text())
    described["values"][0] += 50
    Path("r.json").write_text(json.dumps(described))
    assert "damaged" in run("report", "r.json", "--out", "r.html", code=4).stderr
    assert not Path("r.html").exists()


def test_another_ledger_and_releases_of_no_ledger(folder):
    release = visits()
    dphist.Ledger.open("other.db", create=True)
    with pytest.raises(UsageError, match="holds no charge for release"):
        dphist.report(release, "r.html", ledger="other.db")
    with pytest.raises(UsageError, match="charged to no ledger"):
        dphist.report(dphist.from_counts([1, 2], epsilon=1), "r.html", ledger="l.db")
    with pytest.raises(LedgerError):
        dphist.report(release, "r.html", ledger="nowhere.db")
    assert not Path("r.html").exists()


# ---- nothing lost -----------------------------------------------------------------------------------


def test_nothing_is_replaced_unasked_and_nothing_half_written(folder, monkeypatch):
    release = dphist.from_counts([30, 20], epsilon=1)
    release.save("r.json")
    Path("r.html").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        dphist.report(release, "r.html")
    assert "add --overwrite" in run("report", "r.json", "--out", "r.html", code=2).stderr
    assert "the ending must be" in run("report", "r.json", "--out", "r.json", "--overwrite", code=2).stderr

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files, "_sync", full)
        with pytest.raises(OutputError, match="the disk is full"):
            dphist.report(release, "r.html", overwrite=True)
    assert Path("r.html").read_text() == "mine"
    assert sorted(file.name for file in folder.iterdir()) == ["r.html", "r.json"]
    assert run("report", "r.json", "--out", "r.html", "--overwrite").stdout == "r.html\n"
    first = Path("r.html").read_bytes()
    dphist.report(release, "r.html")  # the same page again
    assert Path("r.html").read_bytes() == first


def test_bad_arguments(folder):
    release = dphist.from_counts([30, 20], epsilon=1)
    for wrong, words_ in (([], "nothing to report"), ([3], "not of a int"), ([release, None], "NoneType")):
        with pytest.raises(UsageError, match=words_):
            dphist.report(wrong, "r.html")
    with pytest.raises(OutputError, match="end it in .html"):
        dphist.report(release, "r.pdf")
    with pytest.raises(OutputError, match="end it in .yaml"):
        dphist.report(release, "r.html", registry="r.txt")
    with pytest.raises(UsageError, match="level"):
        dphist.report(release, "r.html", level=2)
    with pytest.raises(ReleaseFileError, match="there is no file"):
        dphist.report("gone.json", "r.html")
    assert list(folder.iterdir()) == []


# ---- the odds ---------------------------------------------------------------------------------------


@given(st.fractions(Fraction(1, 1000), Fraction(999, 1000)), st.fractions(Fraction(1, 100), 20))
def test_a_belief_changes_by_at_most_what_epsilon_allows(before, epsilon):
    after, e = words.chance_after(before, epsilon), math.exp(epsilon)
    assert after == pytest.approx(float(before) * e / (1 - float(before) + float(before) * e))
    shown = words.of_hundred(after)
    assert shown == "over 99.9" or float(shown) >= 100 * after - 1e-6, "an upper bound is rounded up"
    assert words.chance_after(before, Fraction(10**6)) <= 1.0


def test_words_for_small_and_large_epsilons():
    assert "can hardly change what they believe of one person" in words.odds_in_words(
        Fraction(1, 10), "one patient"
    )
    assert "can somewhat change what they believe of one record" in words.odds_in_words(
        Fraction(1), "one record"
    )
    assert "can strongly change" in words.odds_in_words(Fraction(3), "one record")
    assert words.of_hundred(0.999999) == "over 99.9" and words.of_hundred(0.105) == "10.5"
    assert words.guess_in_words(Fraction(30), "patient").endswith("With this release, at most 100.")
    assert "with a chance of 100 in 100 at most" in words.odds_in_words(Fraction(30), "one record")


# ---- the registry -----------------------------------------------------------------------------------


def test_the_draft_has_what_software_knows_and_marks_the_rest(folder):
    yaml = pytest.importorskip("yaml")
    release = visits(post="integer")
    dphist.report(release, "r.html", title=f'Visits: {EVIL} "2024" #1', registry="r.yaml")
    text = Path("r.yaml").read_text("utf-8")
    made = yaml.safe_load(text)
    told = made["deployment"]
    assert set(told) == {
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "implementation",
        "administrative",
    }
    assert (
        told["basic"]["name"] == f'Visits: {EVIL} "2024" #1'
        and made["url_slug"] == "visits-script-alert-x-script-2024-1"
    )
    assert told["basic"]["publication_date"] == release.created[:10]
    assert told["dp_variant"]["variant_name"] == "Pure DP"
    assert told["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5}
    assert told["privacy_loss"]["privacy_unit"] == release.unit
    assert "discrete Laplace" in told["implementation"]["mechanisms"]
    assert "whole numbers" in told["implementation"]["post_processing"]
    unknown = [
        told["basic"]["data_curators"][0]["data_curator_name"],
        told["basic"]["intended_use"],
        told["deployment_model"]["trust_assumptions"],
        told["deployment_model"]["data_source_type_details"],
        told["implementation"]["justification"],
        *told["administrative"]["registry_authors"],
    ]
    assert all(field.startswith("FILL IN") for field in unknown)


def test_epsilons_for_different_people_are_not_added_up(folder):
    yaml = pytest.importorskip("yaml")
    one, other = visits(), visits(unit=None, max_contributions=1)
    dphist.report([one, other], "r.html", registry="r.yaml")
    told = yaml.safe_load(Path("r.yaml").read_text("utf-8"))["deployment"]["privacy_loss"]
    assert told["privacy_parameters"]["epsilon"].startswith("FILL IN")
    assert "would bound the loss of nobody" in told["privacy_parameters_details"]
    dphist.report([one, one], "s.html", registry="s.yaml")
    told = yaml.safe_load(Path("s.yaml").read_text("utf-8"))["deployment"]["privacy_loss"]
    assert told["privacy_parameters"] == {"epsilon": 0.5}, "paid for once"


# ---- in a browser -----------------------------------------------------------------------------------


def browse(*arguments):
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    )
    flags += " --disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=2000"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={Path.cwd() / 'browser'}", *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=240).stdout.decode(
        "utf-8", "replace"
    )


MEASURE = """<script>addEventListener("load", () => parent.postMessage([document.documentElement.scrollWidth,
 ...["wide", "thin"].map(n => getComputedStyle(document.querySelector("." + n)).display)].join(" "), "*"))
</script></body>"""


@in_browser
def test_it_fits_a_telephone_and_a_desk(folder):
    release = visits(column="ward", bins=None, range=None, categories=["A", "B", "A very long label " * 4])
    dphist.report([release, visits()], "r.html", ledger="l.db")
    page = Path("r.html").read_text("utf-8")
    # Programs are forbidden on the page, so that a copy without that rule measures itself.
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", MEASURE)
    Path("copy.html").write_text(free, "utf-8")
    for width, shown in ((400, "none block"), (1000, "block none")):
        Path("frame.html").write_text(
            f'<iframe src="copy.html" style="width:{width}px;height:900px;border:0"></iframe><p></p><script>'
            "addEventListener('message', m => document.querySelector('p').textContent = 'measured ' + m.data)"
            "</script>"
        )
        dom = browse("--dump-dom", f"--window-size={width + 100},1000", (folder / "frame.html").as_uri())
        assert f"measured {width} {shown}" in dom, dom[-300:]


@in_browser
def test_it_prints_on_a4(folder):
    dphist.report(visits(), "r.html")
    browse("--no-pdf-header-footer", f"--print-to-pdf={folder / 'r.pdf'}", (folder / "r.html").as_uri())
    pdf = (folder / "r.pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 3
    (width, height) = map(float, re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", pdf).groups())
    assert (round(width), round(height)) == (595, 842)
    browse(f"--screenshot={folder / 'r.png'}", "--window-size=1000,1400", (folder / "r.html").as_uri())
    assert (folder / "r.png").read_bytes().startswith(b"\x89PNG")


def test_the_tile_has_the_half_width_of_the_intervals_in_the_table(tmp_path):
    counts = np.random.default_rng(4).integers(0, 900, 60)
    release = dphist.from_counts(
        counts, epsilon=0.1, ledger=dphist.Ledger.open(tmp_path / "l.db", create=True)
    )
    low, high = release.intervals()
    page = tmp_path / "page.html"
    dphist.report([release], page)
    tile = re.search(
        r"<b>± ([\d.,]+)</b>records: the 95 % interval of a typical bin", page.read_text("utf-8")
    )
    half = float(np.median(high - low)) / 2
    assert half <= float(tile[1].replace(",", "")) <= half + 1


@pytest.mark.parametrize(("method", "most"), [("dawa2", True), ("identity", False)])
def test_the_tile_says_where_intervals_hold_for_most_bins(tmp_path, method, most):
    """They miss more of the bins that differ from their group, which may be those that matter."""
    ledger = dphist.Ledger.open(tmp_path / "l.db", create=True)
    counts, page = np.repeat([20, 900, 40], 100), tmp_path / "page.html"
    release = dphist.from_counts(counts, epsilon=0.1, method=method, workload="ranges", ledger=ledger)
    assert release.holds_for_most == most
    dphist.report([release], page)
    assert ("about 95 % of all bins lie in theirs" in page.read_text("utf-8")) == most


def test_a_report_names_the_prior(tmp_path):
    ledger = dphist.Ledger.open(tmp_path / "l.db", create=True)
    first = dphist.from_counts([400, 30, 900, 0], epsilon=1, ledger=ledger)
    path = first.save(tmp_path / "last-year.json")
    made = {
        f"the release {first.id} (last-year.json)": {"prior": path},
        "counts that are declared public": {"prior": [400, 30, 900, 1], "public_prior": True},
    }
    how = {"epsilon": 1, "method": "average", "ledger": ledger}
    for said, given_prior in made.items():
        release = dphist.from_counts([410, 35, 890, 2], **how, **given_prior)
        text = " ".join(words.methods(release))
        assert f"They follow the shape of {said} where the measurement does not contradict it." in text
    with pytest.warns(UserWarning, match="must be public"):
        release = dphist.from_counts([410, 35, 8, 2], **how, prior=[4, 3, 8, 1])
    text = " ".join(words.methods(release))
    assert "counts that were given as a prior, and are not declared public" in text
    with pytest.warns(UserWarning, match="simulated"):
        doubtful = dphist.from_counts(
            [410, 35, 8, 2],
            **how,
            prior=dphist.Plan(bins=first.domain, epsilon=1).preview(records=9).releases[0],
        )
    assert "They follow the shape of a simulated release where" in " ".join(words.methods(doubtful))
    for one, why in ((release, "they are private"), (doubtful, "it was made from private counts")):
        (told,) = (
            text for name, text in words.limits(one) if name == "The guarantee does not cover the prior"
        )
        assert f"if {why}, the release discloses these" in told
        assert f"That is so if its prior is public. {told}" in " ".join(words.methods(one))
    assert all("prior" not in name for name, _ in words.limits(first))
    assert "shape of" not in " ".join(words.methods(first))
