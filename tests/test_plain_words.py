"""What people read beside the numbers: what is counted and left out, who keeps the budget, which epsilon."""

import html
import json
import math
import re
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import dphist
from dphist import Ledger, MemoryLedger, cli, records
from dphist.cli.shown import show_release
from dphist.domain import Domain, Integers, Regular
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.planning import plan as api
from dphist.planning.advise import advise
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.uncertainty.models import bounding
from samples import of_each_kind

ROOT = Path(__file__).parent.parent
NAMES = list(CATALOGUE)
LINE, GRID = Domain((Integers(0, 11),)), Domain((Integers(0, 3), Integers(0, 2)))


def command(words):
    with patch("sys.argv", ["dphist", *words.split()]), suppress(SystemExit):
        cli.main()


def flat(text):
    return " ".join(text.split())


def written(picture):
    """Return what stands below a picture's title."""
    return flat(" ".join(picture.spec["title"]["subtitle"]))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    Path("one.csv").write_text("person,age\n" + "p,30\n" * 1000, "utf-8")
    return tmp_path


class TestBounding:
    def test_it_says_how_many_are_kept_and_what_that_does(self):
        text = bounding(3)
        for words in ("counted after keeping at most 3 per unit", "left out", "biased downwards"):
            assert words in text
        assert (
            "not known from the release and not in any interval" in text
            and "at most 1 per unit" in bounding(1)
        )

    def test_one_person_with_a_thousand_records(self, here, capsys):
        command(
            "publish one.csv --column age --bins 2 --range 0 120 --epsilon 1 --unit person "
            "--max-contributions 3 --out r.json --plot r.svg"
        )
        out = flat(capsys.readouterr().out)
        assert bounding(3) in out
        release = dphist.load("r.json")
        assert json.loads(Path("r.json").read_text("utf-8"))["bounding"] == bounding(3) == release.bounding
        assert "true count" not in release.error.description
        assert bounding(3) in written(release.plot())
        assert html.escape(bounding(3)) in release._repr_html_()
        assert bounding(3) in release.sum(0, 60).note and bounding(3) in release.quantile(0.5).note
        release.save("r.csv")
        assert f"# dphist bounding: {bounding(3)}\n" in Path("r.csv").read_text("utf-8")
        assert release.to_pandas().attrs["bounding"] == bounding(3)
        assert release.to_arrow().schema.metadata[b"bounding"].decode() == bounding(3)
        release.save("r.parquet")
        assert dphist.load("r.parquet") == release
        command("query r.json 0 60")
        assert bounding(3) in flat(capsys.readouterr().err)
        command("query r.json 0 60 --json")
        assert bounding(3) in json.loads(capsys.readouterr().out)["note"]
        command("publish one.csv --column age --bins 2 --range 0 120 --epsilon 1 --unit person --dry-run")
        assert bounding(1) in flat(capsys.readouterr().out)

    @pytest.mark.parametrize("at_most", [1, 5])
    def test_a_plan_and_its_preview_say_it(self, at_most):
        plan = api.Plan(bins=Regular(lo=0, hi=9, bins=9), epsilon=1, unit="p", max_contributions=at_most)
        preview = plan.preview(records=100)
        assert bounding(at_most) in repr(preview) and bounding(at_most) in written(preview.plot())
        assert html.escape(bounding(at_most)) in preview._repr_html_()
        grid = api.Plan(bins=GRID, epsilon=1, unit="p", max_contributions=at_most).preview(records=100)
        assert bounding(at_most) in written(grid.plot())
        assert bounding(at_most) in written(grid.releases[0].plot())

    def test_advice_says_it(self, here, capsys):
        asked = {"records": 1000, "epsilon": 1, "methods": ["identity"], "like": "smooth"}
        advice = advise(8, **asked, max_contributions=4)
        assert bounding(4) in str(advice) and bounding(4) in written(advice.plot())
        assert advice.to_dict()["bounding"] == bounding(4) and advice.to_dict()["max_contributions"] == 4
        command(
            "advise --bins 8 --records 1000 --epsilon 1 --method identity --max-contributions 4 --like smooth"
        )
        assert bounding(4) in flat(capsys.readouterr().out)
        assert "biased" not in str(advise(8, **asked)) and "bounding" not in advise(8, **asked).to_dict()

    def test_counts_that_were_bounded_by_their_maker_say_it_too(self):
        assert dphist.from_counts([3, 4], epsilon=1, sensitivity=3).bounding == bounding(3)

    def test_where_a_record_is_protected_there_is_nothing_to_say(self, capsys):
        release = dphist.from_counts([3, 4], epsilon=1, method="identity")
        assert release.bounding == "" and release.to_dict()["bounding"] is None
        show_release(release)
        shown = (
            capsys.readouterr().out,
            release._repr_html_(),
            release.total().note,
            written(release.plot()),
        )
        assert not any("biased" in text for text in shown)

    def test_the_example_of_the_docs_is_worked_out(self):
        text = (ROOT / "docs" / "error.md").read_text("utf-8")
        rows = re.findall(r"^\| (\d+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
        assert len(rows) == 6
        visits = np.repeat([1, 2, 3, 5, 10, 40], [6000, 2000, 1000, 500, 400, 100])
        people = np.repeat(np.arange(visits.size), visits)
        frame = pytest.importorskip("polars").DataFrame({"person": people, "age": people % 120})
        domain = Domain((Integers(0, 119),))
        for row in rows:
            k, left_out, bias, noise, both = (float(cell.replace(",", "")) for cell in row)
            counts = records.count(frame, domain, columns="age", unit="person", max_contributions=int(k))
            assert int(visits.sum()) - int(counts.values.sum()) == left_out
            # The mean absolute value of discrete Laplace noise of scale k / epsilon, epsilon being 1/2.
            assert round(1 / math.sinh(0.5 / k), 1) == noise and abs(left_out / 120 - bias) <= 0.05 + 1e-9
            assert abs(left_out / 120 + 1 / math.sinh(0.5 / k) - both) <= 0.05 + 1e-9


class TestEpsilon:
    def test_one_recommendation_stands_everywhere(self, here, capsys):
        command("publish one.csv --column age --bins 2 --range 0 120 --epsilon 11 --dry-run")
        assert api.COMMON_EPSILONS in flat(capsys.readouterr().err)
        assert api.COMMON_EPSILONS in flat((ROOT / "docs" / "error.md").read_text("utf-8"))

    def test_no_other_one_is_given(self):
        texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
        for path in texts:
            text = flat(re.sub(r'"\s*\n\s*f?"', "", path.read_text("utf-8")))
            for found in re.finditer(
                r"[Cc]ommon choices|[Uu]sual epsilon|epsilon\w* (?:lie|lies) between", text
            ):
                assert text[found.start() :].startswith("Common choices for everything that is published")
        assert str(api.LARGE_EPSILON) in api.COMMON_EPSILONS

    def test_the_readme_spends_what_it_recommends(self):
        text = (ROOT / "README.md").read_text("utf-8")
        low, high = (
            Fraction(x) for x in re.search(r"between ([\d.]+) and ([\d.]+);", api.COMMON_EPSILONS).groups()
        )
        (limit,) = map(Fraction, re.findall(r"--limit ([\d.]+)", text))
        spent = [Fraction(x) for x in re.findall(r"epsilon[= ]([\d.]+\d)", text)]
        assert spent and limit <= high and all(low <= x <= high for x in spent)


def test_the_first_example_protects_a_person():
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```(?:sh|python)\n(.*?)^```", text, re.M | re.S)
    shell = next(block for block in blocks if "dphist publish" in block)
    python = next(block for block in blocks if "dphist.histogram(" in block)
    first = python[python.index("dphist.histogram(") :]
    first = first[: first.index(")\n")]
    assert "--unit patient_id --max-contributions 3" in shell
    assert 'unit="patient_id", max_contributions=3' in first


class TestJournaled:
    def test_data_in_memory_without_a_ledger_says_not_journaled(self, here):
        release = dphist.histogram([1.0, 2.0], bins=2, range=(0, 4), epsilon=1)
        assert release.provenance["journaled"] is False
        assert "not journaled" in repr(release) and "not journaled" in release._repr_html_()

    def test_only_a_ledger_that_lasts_journals(self, here):
        class Own(MemoryLedger):
            """A ledger of somebody's own that ends with the process."""

        class Other(api.LedgerLike):
            """One that keeps nothing at all."""

            def entries(self, dataset=None):
                return []

            def _account(self, dataset):
                return Fraction(0), None

            def _could_spend(self, dataset, epsilon):
                pass

            def _spend(self, dataset, epsilon, words):
                pass

        for book in (MemoryLedger(), Own(), Other()):
            release = dphist.from_counts([1, 2], epsilon=1, ledger=book)
            assert release.provenance["journaled"] is False and "not journaled" in repr(release)
        lasting = dphist.from_counts([1, 2], epsilon=1, ledger=Ledger.open("l.db", create=True))
        assert lasting.provenance["journaled"] is True and "journaled" not in repr(lasting)
        assert "not journaled" not in lasting._repr_html_()


class TestCutIntervals:
    @pytest.mark.parametrize("post", ["nonneg", "integer"])
    def test_presentable_tables_show_intervals_cut_at_0(self, post, capsys):
        plan = api.Plan(bins=Integers(0, 11), epsilon="0.1", method="identity", post=post)
        curator = Curator.simulated(Counts(np.zeros(12, dtype=int), LINE), epsilon=plan.budget, seed=3)
        release = plan.pipeline.run(curator, plan.queries, post=post)
        low, _ = release.intervals()
        assert (low < 0).any()  # around the raw values they are as they were
        for table in (release.to_pandas(), release.to_polars().to_pandas()):
            assert np.array_equal(table["low"], np.maximum(low, 0)) and (table["high"] >= table["low"]).all()
        show_release(release)
        rows = re.findall(r"^\d+ +\S+ +(\S+) to (\S+)", capsys.readouterr().out, re.M)
        assert len(rows) == 12 and all(float(a) >= 0 and float(b) >= 0 for a, b in rows)

    def test_the_cut_loses_no_truth(self):
        truth, missed = np.array([0, 0, 1, 5]), 0
        plan = api.Plan(bins=Integers(0, 3), epsilon="0.1", post="nonneg")
        for seed in range(200):
            curator = Curator.simulated(Counts(truth, plan.domain), epsilon=plan.budget, seed=seed)
            release = plan.pipeline.run(curator, plan.queries, post="nonneg")
            held = [
                (a <= truth) & (truth <= b) for a, b in (release.intervals(), release.presentable_intervals())
            ]
            assert (held[1] | ~held[0]).all()
            missed += int((~held[1]).sum())
        assert missed <= 0.08 * 800

    def test_as_estimated_nothing_is_cut(self):
        release = dphist.from_counts([0, 0], epsilon="0.01")
        assert np.array_equal(release.intervals(), release.presentable_intervals())


class TestDomains:
    @pytest.mark.parametrize("method", ["quadtree", "hybridtree"])
    def test_a_grid_method_refuses_a_line_before_anything_is_charged(self, method, here):
        book = MemoryLedger()
        with pytest.raises(UsageError, match="this domain is a line"):
            dphist.from_counts([5, 6, 7, 8], epsilon=1, method=method, ledger=book)
        assert book.spent("default") == 0

    @pytest.mark.usefixtures("unrehearsed")
    @pytest.mark.parametrize("method", of_each_kind(NAMES))
    @pytest.mark.parametrize("shape", [(12,), (1,), (4, 3), (1, 5), (5, 1)])
    def test_every_method_serves_a_domain_or_refuses_it_unpaid(self, method, shape):
        domain = Domain(tuple(Integers(0, n - 1) for n in shape))
        counts = np.resize([5, 500, 20, 0], shape)
        for workload in ("points", "ranges", "prefixes") if len(shape) == 1 else ("points", "rectangles"):
            queries = dphist.Plan(bins=domain, epsilon=1, workload=workload).queries
            pipeline, book = make_pipeline(method, domain), MemoryLedger()
            try:
                pipeline.check(domain, queries)
            except UsageError:
                with pytest.raises(UsageError):
                    dphist.from_counts(counts, epsilon=1, method=method, workload=workload, ledger=book)
                assert book.spent("default") == 0
                continue
            release = dphist.from_counts(counts, epsilon=1, method=method, workload=workload, ledger=book)
            assert book.spent("default") == 1 and release.values().shape == shape
