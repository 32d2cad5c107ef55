"""Look before you spend: preview, dry runs, and advice that is a command."""

from __future__ import annotations

import io
import json
import shlex
import sys
from itertools import pairwise

import pytest

from dphist.cli import publish as publishing
from shell import PUBLISH, dphist, program

BY = ("--by", "nation,region,ward", "--groups", "groups.txt")


@pytest.fixture
def here(here):
    (here / "groups.txt").write_text("North\tA\nNorth\tB\nSouth\tC\n", "utf-8")
    return here


def json_of(*arguments):
    return json.loads(dphist(*arguments, "--json").stdout)


class TestPreview:
    PLAN = ("preview", "--column", "age", "--bins", "10", "--range", "0", "100", "--epsilon", "0.5")

    def test_it_tells_the_error_per_query_and_per_bin_and_a_dozen_outcomes(self, here):
        text = dphist(*self.PLAN, "--workload", "prefixes", "--records", "1e5", "--like", "early").stdout
        assert "100,000 made-up records, early" in text and "SIMULATED" in text
        assert "records per query" in text and "per bin" in text and "[90, 100]" in text
        found = json_of(*self.PLAN, "--workload", "prefixes")
        assert len(found["outcomes"]) == 12 and len(found["truth"]) == 10 and found["simulated"]
        assert found["error"] > found["bin_error"] > 0 and sum(found["truth"]) == 10_000

    def test_it_reads_no_data_and_makes_no_file_but_the_picture(self, here):
        before = sorted(path.name for path in here.iterdir())
        run = dphist(*self.PLAN, "--plot", "p.svg")
        assert "picture: p.svg" in run.stderr and "SIMULATED" in (here / "p.svg").read_text("utf-8")
        assert sorted(path.name for path in here.iterdir()) == sorted([*before, "p.svg"])
        assert "exists" in dphist(*self.PLAN, "--plot", "p.svg", code=2).stderr
        dphist(*self.PLAN, "--plot", "p.svg", "--overwrite")

    def test_any_axis_of_publish_and_its_words(self, here):
        weeks = ("--range", "2024-01-01", "2024-02-26", "--every", "week")
        assert "2024-02-19" in dphist("preview", *weeks, "--epsilon", "1").stdout
        labels = dphist("preview", "--categories", "red,green", "--other", "rest", "--epsilon", "1").stdout
        assert "green" in labels and "rest" in labels
        grid = ("--bins", "4", "--y-integers", "0", "3", "--y-column", "b", "--column", "a")
        assert "4 x 4 bins" in dphist("preview", *grid, "--epsilon", "1").stdout

    def test_bins_that_are_left_out_leave_a_sign(self):
        def rows(n):
            bins = ("--bins", str(n), "--range", "0", str(n), "--epsilon", "1")
            text = dphist("preview", *bins).stdout
            assert "errors per query of 12 of 40 outcomes: " in text
            return [line.split(maxsplit=1)[0] for line in text.splitlines() if line[:1] in "[…"]

        assert len(rows(24)) == 24 and "…" not in rows(24)
        for n in (25, 40, 300):
            shown = rows(n)
            assert shown[0] == "[0," and shown[-1] == f"[{n - 1}," and len(shown) <= 24
            left = [int(name[1:-1]) for name in shown if name != "…"]
            assert len(left) == 12 and shown.count("…") == sum(b > a + 1 for a, b in pairwise(left))

    def test_groups_have_an_error_for_each_level_and_sum(self, here):
        text = dphist(*self.PLAN, *BY, "--sum", "A,South", "--workload", "ranges").stdout
        for word in ("nation", "region", "ward", "A + South", "root mean square", "SIMULATED"):
            assert word in text
        found = json_of(*self.PLAN, *BY, "--sum", "A,South", "--importance", "totals")
        assert [row["name"] for row in found["levels"]] == ["nation", "region", "ward"]
        assert found["levels"][0]["error"] < found["levels"][2]["error"]  # totals alone were asked for
        dphist(*self.PLAN, *BY, "--plot", "g.svg", "--group", "North")
        assert "SIMULATED" in (here / "g.svg").read_text("utf-8")

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (("--records", "0"), "records"),
            (("--records", "many"), "--records needs a number"),
            (("--like", "smoth"), "smooth"),
            (("--group", "A"), "go with --by"),
            (("--sum", "A"), "go with --by"),
            ((*BY, "--group", "Z"), "'Z' was not simulated"),
            ((*BY, "--sum", "Z"), "no group"),
            ((*BY, "--importance", "ranges"), "points, levels, totals"),
            (("--plot", "p.txt"), "ending"),
            (("--epsilon", "2"), "more than once"),
        ],
    )
    def test_what_is_wrong_is_said(self, here, more, words):
        plot = ("--plot", "p.svg") if "--group" in more else ()
        assert words in dphist(*self.PLAN, *more, *plot, code=2).stderr


class TestDryRun:
    def test_it_tells_the_expected_error_and_what_would_be_left(self, here):
        dphist("ledger", "create", "l.db")
        dphist("ledger", "limit", "l.db", "3")
        ask = (*PUBLISH, "--epsilon", "1", "--dry-run", "--ledger", "l.db")
        found = json_of(*ask)
        assert (found["left"], found["left_after"]) == ("3", "2")
        error = float(found["error"].split()[0])
        assert 0.4 < error < 1.8 and "made-up" in found["error"]  # of noise of scale 1
        text = dphist(*ask).stdout
        assert "error:      " in text and "left after: 2" in text

    def test_groups_too(self, here):
        text = dphist(*PUBLISH, *BY, "--epsilon", "1", "--dry-run").stdout
        assert "nation" in text and "root mean square" in text

    def test_its_error_is_that_of_the_unit(self, here):
        ask = (*PUBLISH, "--epsilon", "1", "--dry-run", "--unit", "person", "--max-contributions")
        one, ten = (float(json_of(*ask, k)["error"].split()[0]) for k in ("1", "10"))
        assert 5 < ten / one < 20


class TestAdvice:
    FEW = ("--records", "1e4", "--epsilon", "0.5", "--method", "identity,hats", "--like", "smooth")
    AXES = (
        ("--column", "age", "--bins", "10", "--range", "0", "100"),
        ("--column", "age", "--bins", "0,18,65,120"),
        (
            "--column",
            "visited",
            "--range",
            "2024-01-01",
            "2025-01-01",
            "--every",
            "week",
            "--timezone",
            "UTC",
        ),
        ("--column", "age", "--integers", "0", "120"),
        ("--column", "cost", "--log", "1", "1e6", "--bins", "24"),
        ("--column", "ward", "--categories", 'A,"B, C",D', "--other", "rest", "--null", "none"),
        ("--column", "a b", "--bins", "4", "--range", "-2", "2", "--y-column", "s", "--y-categories", "m,f"),
        ("--column", "age", "--bins", "10", "--range", "0", "100", *BY, "--importance", "nation=2"),
        ("--column", "age", "--bins", "10", "--range", "0", "100", "--unit", "p", "--max-contributions", "3"),
    )

    @pytest.mark.parametrize("axes", AXES)
    def test_the_command_that_it_prints_is_the_plan_it_advised_on(self, here, monkeypatch, axes):
        few = ("--method", "identity,uniform") if "--y-column" in axes else ()
        ask = ("advise", *axes, *(few or self.FEW[4:6]), *self.FEW[:4], "--like", "smooth")
        printed = dphist(*ask).stderr.split("next: ")[1].strip()
        advised = json_of(*ask)
        assert advised["command"] == printed
        plans = []
        monkeypatch.setattr(publishing, "_show_plan", lambda plan, *rest, **more: plans.append(plan))
        dphist("ledger", "create", "LEDGER.db")
        dphist(*shlex.split(printed)[1:], "--dry-run")
        (plan,) = plans
        assert (plan.method, str(plan.epsilon)) == (advised["best"], "0.5")
        assert plan.workload == "points" and plan.max_contributions == advised["max_contributions"]
        if "--by" in axes:
            assert dict(zip(plan.hierarchy.names, plan.hierarchy.sizes, strict=True)) == advised["groups"]
            assert plan.importances == {"nation": 2.0} and plan.domain.n == advised["bins"]
        else:
            assert list(plan.domain.shape) == advised["bins"]
        asked = []
        monkeypatch.setattr(publishing, "_show_plan", lambda plan, *rest, **more: asked.append(plan))
        dphist("publish", "DATA", *axes, "--epsilon", "1", "--ledger", "LEDGER.db", "--dry-run")
        assert asked[0].domain == plan.domain and asked[0].column == plan.column

    def test_a_number_of_bins_will_do_and_the_range_is_left_open(self, here):
        run = dphist("advise", "--bins", "10", *self.FEW)
        assert "--column COLUMN --bins 10 --range LO HI --method" in run.stderr
        run = dphist("advise", "--bins", "4", "--y-bins", "3", *self.FEW[:4], "--method", "identity")
        assert "--range LO HI --y-range LO HI --y-column COLUMN" in run.stderr

    def test_groups_have_a_column_for_each_level(self, here):
        run = dphist("advise", "--bins", "10", *BY, *self.FEW, "--sum", "A,South", "--workload", "ranges")
        header = next(line for line in run.stdout.splitlines() if line.startswith("method"))
        assert header.split(maxsplit=5) == ["method", "epsilon", "nation", "region", "ward", "A + South"]
        assert "on level ward" in run.stdout and "--by nation,region,ward --groups groups.txt" in run.stderr
        priced = ("--records", "1e4", "--error", "5", "--at", "nation", "--method", "identity")
        found = json_of("advise", "--bins", "10", *BY, *priced)
        assert found["at"] == "nation" and 4.5 < found["rows"][0]["levels"][0]["error"] <= 5

    @pytest.mark.parametrize("more", [("--at", "ward"), ("--sum", "A")])
    def test_levels_without_groups(self, here, more):
        assert "go with --by" in dphist("advise", "--bins", "10", *self.FEW, *more, code=2).stderr

    def test_progress_is_shown_on_a_terminal_alone_and_never_with_json(self, here, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
        ask = ("advise", "--bins", "10", "--records", "9876", "--epsilon", "0.5", "--method", "identity")
        assert "simulating" not in dphist(*ask).stderr
        terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})
        from contextlib import redirect_stderr, redirect_stdout

        from dphist import cli

        for more, shown in (((), True), (("--json",), False)):
            err, out = terminal(), io.StringIO()
            monkeypatch.setattr(sys, "argv", ["dphist", *ask[:3], "--records", "777", *ask[5:], *more])
            monkeypatch.setenv("XDG_CACHE_HOME", str(here / f"cache{shown}"))
            with redirect_stderr(err), redirect_stdout(out):
                try:
                    cli.main()
                except SystemExit as end:
                    assert not end.code
            assert ("simulating identity at epsilon 0.5" in err.getvalue()) == shown
            assert "simulating" not in out.getvalue()


def test_the_program_has_both(here):
    assert "Show what a plan could publish" in program("preview", "--help").stdout
    assert "preview" in program("--help").stdout
