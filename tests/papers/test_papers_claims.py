"""Claims: what they are checked by, how they are judged, and that every one of them is understood."""

import math

import pytest

from dphist.errors import UsageError
from papers import PAPERS
from papers.claims import KINDS, Finding, Judge, listing, ratios, tally
from papers.look import Look, measured
from papers.runner import load


def point(data, epsilon, queries, method, error, seconds=1.0):
    at = {"dataset": data, "epsilon": epsilon, "queries": queries, "method": method}
    return at | {"n": 64, "error": error, "seconds": seconds}


FOUR = [point(d, "1", "points", m, e) for d, m, e in zip("aabb", "xyxy", (1.0, 4.0, 9.0, 3.0), strict=True)]
SETS = {"data": ["a", "b"], "both": ["x", "y"], "one": "1"}
EACH = {"data": "data", "epsilon": "one", "queries": "points"}


def found(*, points=FOUR, functions=None, **claim):
    claim = {"where": "", "claim": "c", "each": EACH} | claim
    return Judge(Look.into(points), SETS, functions or {}).findings([claim])


def evidence(of, *, each=None, **figure):
    figure |= {"of": of} | ({"each": each} if each else {})
    (one,) = found(check="error('x') > 0", figures=[figure])
    return one.evidence.removeprefix("in 2 of 2").removeprefix("; ")


@pytest.mark.parametrize(
    ("check", "share"),
    [
        ("error('x') < error('y')", 0.5),
        ("2 * error('x') < error('y')", 0.5),
        ("0.2 < error('x') / error('y') < 4", 1.0),
        ("error('x', data='a') < error('y')", 1.0),
        ("best(both) == 'x'", 0.5),
        ("worst(both) in ('y', 'z') and not data == 'b'", 0.5),
        ("least(both) <= 3", 1.0),
        ("abs(error('x') - 5) == 4", 1.0),
        ("skyline(both) == ('x',)", 0.5),
        ("fastest(both) == 'x'", 1.0),
        ("error('x') < error('z')", math.nan),
        ("error('x') / 0 > 1", math.nan),
    ],
)
def test_a_check_is_counted_over_its_cases(check, share):
    (one,) = found(check=check)
    assert one.share == pytest.approx(share, nan_ok=True)


def test_a_case_that_lacks_a_figure_is_left_out():
    (one,) = found(points=FOUR[:3], check="error('x') < error('y')")
    assert (one.share, one.evidence) == (1.0, "in 1 of 1")


def test_all_some_and_per():
    each = {"epsilon": "1", "queries": "points"}
    check = "error('x') < error('y')"
    assert [f.verdict for f in found(each=each, all={"data": "data"}, check=check)] == ["differs"]
    assert [f.verdict for f in found(each=each, some={"data": "data"}, check=check)] == ["agrees"]
    split = found(each=each, per={"data": "data"}, claim="on {data}", check=check)
    assert [(f.claim, f.verdict) for f in split] == [("on a", "agrees"), ("on b", "differs")]


def test_every_and_mostly():
    points = [point(str(i), "1", "points", "x", i) for i in range(10)]
    each = {"data": [str(i) for i in range(10)], "epsilon": "1", "queries": "points"}
    (mostly,) = found(points=points, each=each, check="error('x') > 0")
    (every,) = found(points=points, each=each, check="error('x') > 0", every=True)
    assert (mostly.share, mostly.verdict, every.verdict) == (0.9, "agrees", "in part")
    verdicts = [Finding("", "", share, "").verdict for share in (0.75, 0.74, 0.4, 0.39, math.nan)]
    assert verdicts == ["agrees", "in part", "in part", "differs", "not run"]


def test_evidence_is_made_of_the_same_figures():
    assert (
        evidence("error('y') / error('x')", ratio="y over x")
        == "y over x: 1.15 in geometric mean, 0.333 to 4"
    )
    assert evidence("best(both)", tally="best") == "best: x 1, y 1"
    assert evidence("data", names="not", **{"if": "error('x') > 5"}) == "not: b"
    assert evidence("data", names="not", **{"if": "error('x') > 50"}) == "not: none"
    assert evidence("error('x')", values="{data} {value}") == "a 1, b 9"
    assert evidence("error('x') > 2", count="above") == "above: in 1 of 2"
    assert evidence("skyline(both)", tally="of {cases}", each=EACH | {"data": "a"}) == "of 1: x 1"
    (one,) = found(
        each=EACH, all={"m": "both"}, check="True", figures=[{"values": "{value}", "of": "error(m)"}]
    )
    assert one.evidence == "in 2 of 2; 4, 9", "the largest within a case"
    assert ratios("x", [2.0, 8.0, math.inf, 0.0]) == "x: 4 in geometric mean, 2 to 8"
    assert ratios("x", []) == "" and tally(["b", "a", "a"]) == "a 2, b 1"


def test_a_paper_may_define_more():
    functions = {"twice": lambda case, x: 2 * x if case["data"] == "a" else None}
    (one,) = found(check="twice(2) == 4", functions=functions)
    assert one.evidence == "in 1 of 1"


@pytest.mark.parametrize("check", ["[m for m in both]", "both.sort()", "(lambda: 1)()", "{1: 2}"])
def test_a_check_is_an_expression_and_no_program(check):
    with pytest.raises(UsageError, match="a check has no"):
        found(check=check)
    with pytest.raises(NameError):
        found(check="open('file')")


def test_a_misspelt_key_is_refused():
    with pytest.raises(UsageError, match="'evry'"):
        found(check="True", evry=True)


def test_a_listing_counts_the_verdicts():
    listed = listing([Finding("1", "so", 1.0, "e"), Finding("2", "not", 0.0, "f")], title="t")
    assert "| 1 | so | agrees | e |" in listed and "Of 2 statements: 1 agrees, 1 differs." in listed


@pytest.mark.parametrize("name", PAPERS)
def test_no_claim_gives_a_reason_that_its_run_does_not_check(name):
    for claim in (claim for group in load(name).get("claims", {}).values() for claim in group):
        assert "reason" not in claim and claim["check"] and claim["where"]
        assert all(
            sum(kind in figure for kind in KINDS) == 1 and "of" in figure
            for figure in claim.get("figures", ())
        )


def test_time_is_a_median_and_error_a_mean():
    row = {
        "dataset": "Rome",
        "n": 8,
        "epsilon": 1.0,
        "judged": "points",
        "method": "h",
        "status": "ok",
        "kl": 1.0,
    }
    rows = [row | {"seconds": s, "mean_squared": e} for s, e in ((1.0, 1.0), (2.0, 2.0), (9.0, 6.0))]
    failed = row | {"status": "failed", "seconds": None, "mean_squared": None}
    (one,) = measured([*rows, failed], error="mean_squared")
    assert (one["seconds"], one["error"], one["divergence"], one["queries"]) == (2.0, 3.0, 1.0, "points")
    (renamed,) = measured([row | {"queries": "all"} for row in rows], error="mean_squared")
    assert renamed["queries"] == "all"


def test_a_look_finds_the_skyline_and_the_missing():
    points = [
        point("d", "1", "q", m, e, s) for m, e, s in (("h", 9.0, 1.0), ("sa", 4.0, 2.0), ("s1", 5.0, 3.0))
    ]
    look = Look.into(
        [*points, {"dataset": "d", "epsilon": 1.0, "queries": "q", "method": "h", "published": 7}]
    )
    assert look.skyline("d", "1", "q", ["s1", "sa", "h"]) == ("sa", "h")
    assert (look.error("d", "1.0", "q", "h"), look.figure("published", "d", "1", "q", "h")) == (9.0, 7.0)
    assert math.isnan(look.error("d", "0.1", "q", "h")) and look.skyline("e", "1", "q", ["h"]) == ()
    assert (look.size("d"), look.size("e")) == (64, 0)
