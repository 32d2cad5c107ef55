"""What could come out, before anything is spent: a dozen outcomes, their band, and what they are made of."""

import altair
import numpy as np
import pytest

import dphist
from dphist.charts.curves import curves_chart
from dphist.charts.histogram import outcomes_chart
from dphist.domain import Categories, Domain, Integers, Regular
from dphist.errors import DataError, UsageError
from dphist.planning import shapes
from dphist.planning.preview import pattern, short

LINE = Domain((Integers(0, 63),))
GRID = Domain((Integers(0, 7), Integers(0, 5)))


def plan(**more):
    return dphist.Plan(**{"bins": LINE, "epsilon": "0.1"} | more)


class TestOutcomes:
    def test_a_dozen_differ_around_one_truth_and_the_band_holds_nine_in_ten(self):
        preview = plan().preview(records=20_000)
        assert preview.truth.sum() == 20_000
        assert len({release.raw.tobytes() for release in preview.releases}) == 12
        low, high = preview.band()
        inside = np.mean([(low <= row) & (row <= high) for row in preview.values])
        assert 0.88 < inside < 0.95
        # The band is of what comes out, and the truth lies in it as often as the noise is centred.
        assert np.mean((low <= preview.truth) & (preview.truth <= high)) > 0.95

    def test_the_expected_error_is_that_of_the_noise(self):
        # The mean absolute value of the noise on a bin is close to 1 / epsilon.
        found = [plan(epsilon=e, method="identity").preview(records=20_000).error for e in ("0.1", "0.01")]
        assert found == pytest.approx([10, 100], rel=0.1)

    def test_the_error_is_measured_by_the_workload(self):
        points, prefixes = (plan(workload=w).preview().error for w in ("points", "prefixes"))
        assert prefixes > 2 * points

    def test_it_repeats_itself_and_follows_the_shape(self):
        one, two = plan().preview(like="early"), plan().preview(like="early")
        assert np.array_equal(one.values, two.values)
        assert one.truth[32:].sum() == 0 < plan().preview(like="smooth").truth[32:].sum()

    def test_a_person_with_many_records_costs_more(self):
        person = {"unit": "p", "max_contributions": 5}
        alone, five = (plan(method="identity", **given).preview().error for given in ({}, person))
        assert five == pytest.approx(5 * alone, rel=0.3)

    def test_post_processing_is_part_of_it(self):
        preview = plan(post="integer").preview(records=100)
        assert (preview.values >= 0).all() and (preview.values == np.round(preview.values)).all()

    def test_grids_and_labels(self, tmp_path):
        grid = plan(bins=GRID).preview(records=1000)
        assert grid.truth.sum() == 1000 and grid.band()[0].shape == (8, 6)
        assert "cell" in grid.plot().spec["title"]["text"][0]
        labels = plan(bins=None, categories=["red", "blue"]).preview(records=1000)
        labels.plot(tmp_path / "p.svg")
        assert ">red<" in (tmp_path / "p.svg").read_text("utf-8")

    @pytest.mark.parametrize("records", [0, -1, 1.5, True, 2**60])
    def test_bad_numbers_of_records(self, records):
        with pytest.raises(UsageError, match="records"):
            plan().preview(records=records)

    def test_everything_says_that_it_is_simulated(self):
        preview = plan().preview()
        assert "SIMULATED" in preview._repr_html_() and "<svg" in preview._repr_html_()
        assert "SIMULATED" in preview.plot().spec["title"]["subtitle"][-1]
        with pytest.raises(AttributeError):
            preview.truth = None


class TestWhatItIsLike:
    def test_public_counts_serve_with_a_warning(self, tmp_path):
        counts = np.arange(64)
        np.save(tmp_path / "c.npy", counts)
        (tmp_path / "c.csv").write_text("\n".join(map(str, counts)))
        for like in (counts, tmp_path / "c.npy", str(tmp_path / "c.csv")):
            with pytest.warns(UserWarning, match="must be public"):
                found = pattern(like, LINE)
            assert np.array_equal(found.counts, counts) and not found.lasting
            assert found.draw(LINE, 10**6, 0)[0] == 0

    def test_an_earlier_release_serves_without_one(self, tmp_path):
        release = dphist.from_counts(np.arange(64) * 100, epsilon=1)
        path = release.save(tmp_path / "r.json")
        for like in (release, path):
            found = pattern(like, LINE)
            assert found.lasting and found.draw(LINE, 10**6, 0)[32:].sum() > 700_000
        preview = plan().preview(like=release)
        assert preview.truth[32:].sum() > 7000

    def test_a_simulated_release_is_not_free(self):
        with pytest.warns(UserWarning, match="protects nothing"):
            pattern(plan().preview().releases[0], LINE)

    def test_a_release_of_another_domain_is_refused(self):
        with pytest.raises(UsageError, match="has 12 bins and this domain 64"):
            pattern(dphist.from_counts(range(12), epsilon=1), LINE)
        with pytest.raises(UsageError, match="has 64 bins and this domain 8 x 6"):
            pattern(dphist.from_counts(range(64), epsilon=1), GRID)

    @pytest.mark.parametrize("like", ["sprase", "gone.npy", "some/where.json"])
    def test_what_is_not_there(self, like):
        with pytest.raises(UsageError, match="there is no"):
            pattern(like, LINE)

    @pytest.mark.filterwarnings("ignore:.*must be public")
    @pytest.mark.parametrize(
        "counts",
        [[1.0] * 63, [0] * 64, [-1] * 64, [np.nan] * 64, ["a"] * 64, [[1, 2], [3, 4]], 5],
        ids=["few", "empty", "negative", "nan", "text", "grid", "number"],
    )
    def test_counts_that_are_none(self, counts):
        with pytest.raises((UsageError, DataError)):
            pattern(counts, LINE)

    @pytest.mark.parametrize("text", ["", "age,name\n3,x\n", "secret\n"], ids=["empty", "table", "word"])
    def test_files_that_hold_no_counts_are_not_quoted(self, tmp_path, text):
        (tmp_path / "c.csv").write_text(text)
        with pytest.raises(DataError, match="one count per line") as refused:
            pattern(tmp_path / "c.csv", LINE)
        assert "secret" not in str(refused.value)

    def test_samples_differ_and_shapes_of_a_grid_fill_both_axes(self):
        smooth = pattern("smooth", GRID)
        assert not np.array_equal(smooth.draw(GRID, 1000, 0), smooth.draw(GRID, 1000, 1))
        early = pattern("early", GRID).draw(GRID, 10**5, 0).reshape(8, 6)
        assert early[0, 0] == early.max() == early.sum()

    def test_few_bins_are_never_all_empty(self):
        for seed in range(200):
            assert shapes.draw("heaps", n=3, records=10, seed=seed).sum() == 10


class TestCharts:
    def test_outcomes_are_drawn_with_truth_and_band(self):
        rows = np.random.default_rng(0).normal(50, 5, (40, 600))
        picture = outcomes_chart(
            Domain(Regular(lo=0, hi=1, bins=600)), rows, truth=np.full(600, 50), title="t"
        )
        altair.LayerChart.from_dict(picture.spec)
        assert [layer["mark"]["type"] for layer in picture.spec["layer"]] == ["area", "line", "line"]
        columns = picture.spec["datasets"]["columns"]
        assert len(columns) == 400 and "3 bins" in picture.spec["title"]["subtitle"][-1]
        assert all(row["low"] < row["high"] for row in columns)
        assert len({row["run"] for row in picture.spec["datasets"]["outcomes"]}) == 12
        assert "<svg" in picture.to_svg()

    def test_outcomes_that_cannot_be_drawn(self):
        with pytest.raises(UsageError, match="nothing to draw"):
            outcomes_chart(LINE, np.zeros((0, 64)), truth=np.zeros(64))
        with pytest.raises(UsageError, match="unknown scale"):
            outcomes_chart(LINE, np.zeros((1, 64)), truth=np.zeros(64), scale="Log")

    def test_hostile_labels_stay_data(self):
        hostile = "</script><script>alert(1)</script>"
        domain = Domain((Categories((hostile, "b")),))
        assert hostile not in outcomes_chart(domain, np.ones((3, 2)), truth=[1, 2]).to_html()
        assert hostile not in curves_chart({hostile: [(1.0, 2.0)]}, title=hostile).to_html()

    def test_curves(self):
        curves = {"a": [(1.0, 3.0), (0.1, 30.0)], "b": [(0.1, 50.0), (1.0, 2.0)], "empty": []}
        picture = curves_chart(curves, x_mark=0.5, y_mark=10.0)
        altair.LayerChart.from_dict(picture.spec)
        rows = picture.spec["datasets"]["curves"]
        assert [(r["name"], r["x"]) for r in rows] == [("a", 0.1), ("a", 1.0), ("b", 0.1), ("b", 1.0)]
        assert [r["first"] for r in rows] == [True, True, False, False]
        assert len(picture.spec["layer"]) == 5
        with pytest.raises(UsageError, match="nothing to draw"):
            curves_chart({"a": []})


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.04567, "0.0457"), (4.567, "4.57"), (4567.8, "4,568"), (float("inf"), "inf")],
)
def test_short_numbers(number, text):
    assert short(number) == text


def test_broken_arrays_are_not_quoted(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (Alice Smith 555"
    magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    for data in (magic + header, b"PK\x03\x04broken", b"Alice"):
        (tmp_path / "c.npy").write_bytes(data)
        with pytest.raises(DataError, match="one count per line") as refused:
            pattern(tmp_path / "c.npy", LINE)
        assert "Alice" not in str(refused.value)
    np.save(tmp_path / "c.npy", np.zeros(3, dtype=[("Alice", "f8")]))
    with pytest.raises(DataError, match="one count per line"):
        pattern(tmp_path / "c.npy", LINE)


def test_two_columns_are_a_grid_if_a_grid_is_wanted(tmp_path):
    (tmp_path / "c.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    narrow = Domain((Integers(0, 2), Integers(0, 1)))
    with pytest.warns(UserWarning, match="must be public"):
        assert pattern(tmp_path / "c.csv", narrow).counts.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_file_of_bins_and_counts_is_told_apart(tmp_path):
    (tmp_path / "c.csv").write_text("bin,count\n0,4\n1,5\n2,6\n")
    with pytest.raises(DataError, match="bins and their counts"):
        plan().preview(like=tmp_path / "c.csv")
