"""The laboratory: data, the grid that runs it and can be killed, and the statistics of its rows."""

import doctest
import errno
import json
import math
import os
import signal
import subprocess
import sys
import time

import duckdb
import numpy as np
import pytest
import scipy.special
import scipy.stats

from dphist._common import __version__
from dphist.domain import Domain, Integers
from dphist.errors import DataError, OutputError, UsageError
from dphist.kernels.beta import incomplete_beta
from dphist.lab import data, grid, metrics
from dphist.methods.catalogue import make_pipeline
from dphist.planning import ranking

FLAT = data.Source("flat", "uniform", n=300, records=3200)
TINY = data.Source("tiny", "heaps", n=300, records=1000)
GRID = grid.Grid((FLAT, TINY), ("0.5", "2"), ("points", "prefixes"), ("identity", "uniform"), trials=3)
FIGURES = ("mean_squared", "mean_absolute", "max_absolute", "scaled", "kl")


def run(cells, out=None, **options):
    return grid.run(cells, out=out, **{"jobs": 1, "progress": False} | options)


def timeless(rows):
    """Return rows without the one column that no two runs share."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def lines_of(out):
    return (out / grid.ROWS).read_bytes().splitlines(keepends=True)


class Counting:
    """Builds methods and remembers for which of them, and where; one of them fails until mended."""

    def __init__(self, error=None):
        self.built, self.error = [], error

    def __call__(self, method, domain, workload):
        self.built.append(method)
        if method == "broken" and self.error is not None:
            raise self.error
        return make_pipeline("identity" if method == "broken" else method, domain)


def deadly(method, domain, workload):
    if method == "dies":
        os._exit(1)
    return make_pipeline(method, domain, workload)


# The data.


def test_a_source_draws_its_shape_again_and_again_the_same():
    source = data.Source("a", "heaps", n=64, records=5000)
    assert source.counts().sum() == 5000
    assert np.array_equal(source.counts(), source.counts())
    other = data.Source("a", "heaps", n=64, records=5000, draw=1)
    assert not np.array_equal(source.counts(), other.counts())


def test_a_shape_needs_its_size():
    with pytest.raises(UsageError, match="needs n, how many bins, and records"):
        data.Source("a", "heaps", n=64).counts()
    with pytest.raises(UsageError, match="no shape 'heap'. Did you mean 'heaps'"):
        data.Source("a", "heap", n=64, records=1).counts()
    with pytest.raises(UsageError, match="no shape"):
        data.shapes_as(["nothing"], n=4, records=4)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("3\n0\n5\n", [3, 0, 5]),
        ("count\n3\n0\n5\n", [3, 0, 5]),
        ("\ufeffcount\r\n3\r\n0\r\n\r\n5", [3, 0, 5]),
        ("3.0\n0\n5e0\n", [3, 0, 5]),
        ("3,0,5\n", [3, 0, 5]),
        ("7\n", [7]),
        ("1,2\n3,4\n5,6\n", [[1, 2], [3, 4], [5, 6]]),
        ("a,b,c\n1,2,3\n4,5,6\n", [[1, 2, 3], [4, 5, 6]]),
    ],
    ids=["column", "title", "windows", "floats", "row", "one", "grid", "titled-grid"],
)
def test_csv_files_are_read(tmp_path, text, counts):
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode())
    read = data.Source("a", str(file)).counts()
    assert read.dtype == np.int64
    assert read.tolist() == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no numbers"),
        ("count\n", "holds no numbers"),
        ("1\n-2\n", "negative"),
        ("1\nnan\n", "NaN"),
        ("1\ninf\n", "above 2"),
        ("1\n2.5\n", "fractions"),
        ("1\ntwo\n", "not a file of counts"),
        ("1\n\n2,3\n", "not a file of counts"),
        ("1;2\n3;4\n", "not a file of counts"),
        ("bin,count\n0,3\n1,5\n", "looks like bins and their counts"),
        ("1,3\n2,5\n3,9\n", "looks like bins and their counts"),
    ],
    ids=[
        "empty",
        "title",
        "negative",
        "nan",
        "inf",
        "half",
        "word",
        "ragged",
        "semicolon",
        "titled",
        "pairs",
    ],
)
def test_csv_files_that_hold_no_counts_are_refused(tmp_path, text, message):
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        data.read(file)
    assert str(file) in str(caught.value)


def test_a_file_of_something_else_is_not_quoted(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("name,age\nJohn Smith,41\n")
    with pytest.raises(DataError) as caught:
        data.read(file)
    said = str(caught.value).replace(str(file), "")
    assert "Smith" not in said and "41" not in said


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1, -1]), "negative"),
        (np.array([1.0, np.nan]), "NaN"),
        (np.array([1.5]), "fractions"),
        (np.array([2.0**60]), "above 2"),
        (np.zeros(0, dtype=int), "list or a grid"),
        (np.zeros((2, 2, 2), dtype=int), "list or a grid"),
        (np.array(3), "list or a grid"),
        (np.array(["1", "2"]), "whole numbers, not <U1"),
        (np.array([True, False]), "whole numbers, not bool"),
        (np.array([{}], dtype=object), "not a file of counts"),
    ],
    ids=["negative", "nan", "fraction", "large", "empty", "cube", "scalar", "text", "bool", "objects"],
)
def test_npy_files_that_hold_no_counts_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=message):
        data.read(tmp_path / "a.npy")


def test_damaged_and_missing_files_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100))
    whole = (tmp_path / "a.npy").read_bytes()
    for cut in (0, 5, 50, len(whole) - 8):
        (tmp_path / "a.npy").write_bytes(whole[:cut])
        with pytest.raises(DataError, match="a.npy"):
            data.read(tmp_path / "a.npy")
    with pytest.raises(DataError, match="cannot read .*gone.npy: No such file"):
        data.Source("gone", str(tmp_path / "gone.npy")).counts()


def test_a_folder_gives_every_histogram_below_it_in_order(tmp_path):
    for name in ("b/HEPTH.n4.npy", "a.npy", "b/a.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, np.array([1, 2, 3, 4]))
    np.save(tmp_path / "grid.npy", np.ones((2, 3)))
    (tmp_path / "notes.txt").write_text("no counts")
    names = ["a.npy", "b/HEPTH.n4.npy", "b/a.npy", "grid"]
    labels = ["HEPTH" if "HEPTH" in name else name for name in names]
    assert [s.name for s in data.folder(tmp_path)] == labels
    assert [s.name for s in data.folder(tmp_path, dims=2)] == ["grid"]
    assert [s.counts().tolist() for s in data.folder(tmp_path, dims=1, n=2)] == [[3, 7]] * 3
    assert [s.counts().sum() for s in data.folder(tmp_path, records=50)] == [50] * 4


def test_a_folder_without_histograms_or_with_a_bad_one_says_so(tmp_path):
    with pytest.raises(UsageError, match="no .npy or .csv file below"):
        data.folder(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        data.folder(tmp_path / "gone")
    np.save(tmp_path / "a.npy", np.array([1, 2]))
    with pytest.raises(UsageError, match="of two axes below"):
        data.folder(tmp_path, dims=2)
    np.save(tmp_path / "b.npy", np.array([-1]))
    with pytest.raises(DataError, match=r"b\.npy holds negative"):
        data.folder(tmp_path)


def test_files_are_made_coarser_without_losing_a_record(tmp_path):
    x = np.arange(10)
    np.save(tmp_path / "line.npy", x)
    line = data.Source("line", str(tmp_path / "line.npy"), n=3).counts()
    assert line.tolist() == [0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8 + 9]
    np.save(tmp_path / "grid.npy", np.arange(24).reshape(4, 6))
    coarse = data.Source("grid", str(tmp_path / "grid.npy"), n=6).counts()
    assert coarse.tolist() == [[0 + 1 + 6 + 7, 2 + 3 + 8 + 9, 4 + 5 + 10 + 11], [62, 70, 78]]
    one, two = (data.Source("a", str(tmp_path / "grid.npy"), records=999, draw=d).counts() for d in (1, 2))
    assert one.shape == two.shape == (4, 6)
    assert not np.array_equal(one, two)
    for n, message in ((7, "cannot be cut"), (25, "coarser"), (0, "coarser")):
        with pytest.raises(UsageError, match=message):
            data.Source("grid", str(tmp_path / "grid.npy"), n=n).counts()


@pytest.mark.slow
def test_the_demo_counts_real_flights():
    sources = {s.name: s.counts() for s in data.demo()}
    assert {name: x.shape for name, x in sources.items()} == {
        name: tuple(size for _, size in axes) for name, axes in data.FLIGHTS.items()
    }
    # 336,776 flights left or were cancelled; 9,430 have no arrival delay and 8,255 never left.
    assert sources["distance"].sum() == 336_776
    assert sources["departure-minute"].sum() == 336_776 - 8_255
    assert sources["air-time"].sum() == sources["arrival-delay"].sum() == 336_776 - 9_430
    assert sources["departure-minute"][60 * 3 : 60 * 4].sum() < sources["departure-minute"][60 * 8]
    assert np.array_equal(sources["delay-by-hour"].sum(axis=1), sources["arrival-delay"][60:316])
    with pytest.raises(UsageError, match="Did you mean 'distance'"):
        data.Source("x", "demo:distanc").counts()


# The grid.


def test_rows_hold_what_they_promise():
    cells = GRID.cells()
    rows = run(cells)
    assert len(cells) == 16
    assert len(rows) == 16 * 3
    assert {tuple(row) for row in rows} == {tuple(grid.COLUMNS)}
    for row, cell in zip(rows[::3], cells, strict=True):
        assert (row["dataset"], row["shape"]) == (cell.source.name, cell.source.shape)
        assert (row["n"], row["records"], row["draw"]) == (300, cell.source.records, 0)
        assert (row["epsilon"], row["method"]) == (float(cell.epsilon), cell.method)
        assert row["workload"] == row["judged"] == cell.workload
        assert (row["status"], row["error"], row["cell"]) == ("ok", "", cell.key)
        assert (row["dphist"], row["numpy"]) == (__version__, np.__version__)
        assert row["groups"] == (300 if cell.method == "identity" else 1)
    assert [row["trial"] for row in rows] == [0, 1, 2] * 16
    assert len({row["seed"] for row in rows}) == 48
    assert all(0 <= row["seed"] < 1 << 63 and row["seconds"] >= 0 for row in rows)
    assert timeless(run(cells)) == timeless(rows)


def test_figures_are_those_of_the_simulated_release():
    import dphist
    from dphist.privacy.counts import Counts
    from dphist.privacy.curator import Curator
    from dphist.privacy.ledger import parse_epsilon

    cell = grid.Cell(TINY, "0.3", "points", "identity", trials=1, judged=("points", "ranges"))
    points, ranges = run([cell])
    x = TINY.counts()
    domain = Domain((Integers(0, 299),))
    curator = Curator.simulated(Counts(x, domain), epsilon=parse_epsilon("0.3"), seed=points["seed"])
    work = dphist.workload.make_workload("points", domain)
    e = make_pipeline("identity", domain).values(curator, work)[1].values - x
    assert points["mean_squared"] == pytest.approx(np.mean(e**2))
    assert points["mean_absolute"] == pytest.approx(np.mean(np.abs(e)))
    assert points["max_absolute"] == np.abs(e).max()
    assert points["scaled"] == pytest.approx(np.mean(e**2) / 1000)
    sums = [e[lo:hi].sum() for lo in range(300) for hi in range(lo + 1, 301)]
    assert ranges["mean_squared"] == pytest.approx(np.mean(np.square(sums)))
    assert (ranges["trial"], ranges["judged"], ranges["kl"]) == (0, "ranges", points["kl"])


def test_seeds_never_change():
    # Written down: other figures would make old rows and new ones of one folder disagree.
    cell = grid.Cell(FLAT, "0.5", "points", "identity", trials=3)
    assert cell.key == '["flat", "uniform", 300, 3200, 0, "0.5", "points", "identity", 3, ["points"]]'
    assert cell.seed(0) == 2_528_395_637_228_267_072
    more = grid.Cell(FLAT, "0.5", "points", "identity", trials=9, judged=("points", "prefixes"))
    assert more.seed(0) == cell.seed(0) != cell.seed(1)


def test_a_file_has_one_key_wherever_it_is_kept(tmp_path):
    here, there = (data.Source("a", str(tmp_path / place / "a.npy")) for place in ("x", "y"))
    cells = [grid.Cell(source, "1", "points", "identity") for source in (here, there)]
    assert cells[0].key == cells[1].key
    with pytest.raises(UsageError, match="two files are called 'a'"):
        run(cells)


def test_grids_of_two_axes_run_too(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(16.0).reshape(4, 4))
    methods = ("identity", "uniformgrid")
    rows = run(
        grid.Grid(data.folder(tmp_path), ["1"], ["points", "rectangles:20"], methods, trials=2).cells()
    )
    assert {(row["status"], row["n"], row["records"]) for row in rows} == {("ok", 16, 120)}


def test_wrong_cells_are_refused_before_anything_runs():
    with pytest.raises(UsageError, match="epsilon must be above 0"):
        grid.Grid((FLAT,), ("0",), ("points",), ("identity",)).cells()
    with pytest.raises(UsageError, match="trials must be at least 1"):
        grid.Cell(FLAT, "1", "points", "identity", trials=0)


def test_a_failing_cell_is_marked_and_the_others_go_on(tmp_path):
    cells = [grid.Cell(TINY, "1", "points", m, trials=2) for m in ("identity", "broken", "uniform")]
    build = Counting(error=ZeroDivisionError("of course"))
    rows = run(cells, tmp_path, build=build)
    assert [row["status"] for row in rows] == ["ok", "ok", "failed", "ok", "ok"]
    failed = rows[2]
    assert failed["error"] == "ZeroDivisionError: of course"
    assert all(failed[name] is None for name in (*FIGURES, "seconds", "trial", "seed", "groups"))
    assert (failed["dataset"], failed["method"], failed["judged"]) == ("tiny", "broken", "points")
    # On resuming it is tried again, alone, and a success replaces the failure.
    build.built.clear()
    assert run(cells, tmp_path, build=build) == rows
    assert build.built == ["broken"]
    build.error = None
    assert [row["status"] for row in run(cells, tmp_path, build=build)] == ["ok"] * 6
    table = duckdb.read_parquet(str(tmp_path / grid.TABLE))
    assert table.filter("method = 'broken'").project("status, trial").fetchall() == [("ok", 0), ("ok", 1)]


def test_a_wrong_request_is_not_tried_again_by_the_same_version(tmp_path, monkeypatch, capsys):
    cells = [grid.Cell(TINY, "1", "points", "broken", trials=1)]
    build = Counting(error=UsageError("never"))
    (row,) = run(cells, tmp_path, build=build)
    assert row["error"] == "UsageError: never"
    build.built.clear()
    assert run(cells, tmp_path, build=build, progress=True) == [row]
    assert build.built == []
    assert "1 of them are wrong requests that failed" in capsys.readouterr().err
    monkeypatch.setattr(grid, "__version__", "99.0")
    build.error = None
    assert run(cells, tmp_path, build=build)[0]["status"] == "ok"


def test_a_mistake_in_a_trial_loses_the_cell_and_says_why(tmp_path):
    few = data.Source("few", "heaps", n=32, records=100)
    rows = run([grid.Cell(few, "1", "big", "identity"), grid.Cell(TINY, "1", "points", "identiti")])
    assert "the lengths were" in rows[0]["error"]
    assert "Did you mean 'identity'" in rows[1]["error"]
    gone = data.Source("gone", str(tmp_path / "gone.npy"))
    (row,) = run([grid.Cell(gone, "1", "points", "identity")])
    assert row["error"].startswith("DataError: cannot read")


def test_resuming_repeats_nothing(tmp_path):
    cells = GRID.cells()
    build = Counting()
    first = run(cells[:6], tmp_path, build=build)
    assert len(build.built) == 6
    rows = run(cells, tmp_path, build=build)
    assert len(build.built) == 16
    assert rows[:18] == first  # seconds too: these are the very rows
    assert run(cells, tmp_path, build=build) == rows
    assert len(build.built) == 16
    assert timeless(rows) == timeless(run(cells))


@pytest.mark.slow
def test_a_torn_end_is_run_again_wherever_it_was_torn(tmp_path):
    cells = [grid.Cell(TINY, "1", "points", m, trials=2) for m in ("identity", "uniform")]
    whole = run(cells, tmp_path)
    text = (tmp_path / grid.ROWS).read_bytes()
    ends = np.cumsum([len(line) for line in lines_of(tmp_path)])
    cuts = {
        0,
        1,
        *(int(end) + step for end in ends[:-1] for step in (-1, 0, 1)),
        len(text) - 2,
        len(text) - 1,
    }
    for cut in sorted(cuts):
        (tmp_path / grid.ROWS).write_bytes(text[:cut])
        build = Counting()
        rows = run(cells, tmp_path, build=build)
        assert timeless(rows) == timeless(whole), cut
        # A cell is there with its second line, of which no more than the end of line may be missing.
        again = [m for m, end in (("identity", ends[1]), ("uniform", ends[3])) if cut < end - 1]
        assert build.built == again, cut
        assert run(cells, tmp_path, build=build) == rows, cut
        table = duckdb.read_parquet(str(tmp_path / grid.TABLE))
        assert table.aggregate("count(*), count(DISTINCT (method, trial))").fetchall() == [(4, 4)], cut


def test_foreign_lines_are_passed_over(tmp_path):
    (tmp_path / grid.ROWS).write_bytes(b'{"half": \nnull\n[1]\n{"cell": 3}\n\xff\xfe\n')
    assert len(run(GRID.cells(), tmp_path)) == 48
    assert lines_of(tmp_path)[:2] == [b'{"half": \n', b"null\n"]


def test_rows_of_another_version_are_kept_and_told(tmp_path, capsys):
    cells = GRID.cells()[:2]
    run(cells, tmp_path)
    old = (tmp_path / grid.ROWS).read_text().replace(f'"dphist": "{__version__}"', '"dphist": "0.0.1"')
    (tmp_path / grid.ROWS).write_text(old)
    assert {row["dphist"] for row in run(cells, tmp_path, progress=True)} == {"0.0.1"}
    told = capsys.readouterr().err
    assert "2 of 2 cells were finished before" in told
    assert f"rows of dphist 0.0.1 are kept; this is {__version__}" in told


def test_two_runs_do_not_share_a_folder(tmp_path):
    class Nosy(Counting):
        def __call__(self, method, domain, workload):
            with pytest.raises(UsageError, match="another run writes to"):
                run(GRID.cells(), tmp_path)
            self.built.append("asked")
            return super().__call__(method, domain)

    build = Nosy()
    run(GRID.cells()[:1], tmp_path, build=build)
    assert "asked" in build.built
    run(GRID.cells()[:2], tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write results to"):
        run(GRID.cells(), tmp_path / "file")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left on device. Run again to go on"):
            run(GRID.cells(), tmp_path)
    assert len(run(GRID.cells(), tmp_path)) == 48


def test_the_table_holds_every_row_of_the_folder(tmp_path):
    cells = GRID.cells()
    rows = [*run(cells[:3], tmp_path), *run([*cells[3:5], grid.Cell(TINY, "1", "points", "nope")], tmp_path)]
    table = duckdb.read_parquet(str(tmp_path / grid.TABLE))
    assert dict(zip(table.columns, map(str, table.types), strict=True)) == grid.COLUMNS
    assert [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()] == rows
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", grid.ROWS, grid.TABLE]


def test_no_cells_make_an_empty_table(tmp_path):
    assert run([], tmp_path) == []
    table = duckdb.read_parquet(str(tmp_path / grid.TABLE))
    assert (table.columns, table.fetchall()) == (list(grid.COLUMNS), [])


def test_progress_is_a_line_where_nobody_watches(capsys, monkeypatch):
    monkeypatch.setattr(grid, "_QUIET", 0.0)
    run([*GRID.cells()[:3], grid.Cell(TINY, "1", "points", "nope")], progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("running: 1 of 4 cells, about ")
    assert lines[0].endswith(" minutes left")
    assert lines[3].startswith("running, 1 failed: 4 of 4 cells")
    assert lines[4:] == ["4 cells run, 1 failed"]
    run(GRID.cells()[:3])
    assert capsys.readouterr().err == ""


def test_backends_that_do_not_exist_are_named():
    with pytest.raises(UsageError, match="joblib has no backend 'clouds'"):
        run(GRID.cells(), backend="clouds")


def test_a_backend_of_joblib_is_passed_through():
    assert timeless(run(GRID.cells(), backend="threading", jobs=2)) == timeless(run(GRID.cells()))


def test_a_backend_that_returns_lists_alone_is_given_a_few_cells_at_a_time(tmp_path):
    import joblib
    from joblib._parallel_backends import ThreadingBackend

    class Lists(ThreadingBackend):
        supports_return_generator = False

    joblib.register_parallel_backend("lists", Lists)
    try:
        rows = run(GRID.cells(), tmp_path, backend="lists", jobs=2)
    finally:
        joblib.parallel.BACKENDS.pop("lists")
    assert timeless(rows) == timeless(run(GRID.cells()))


def test_without_distributed_dask_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="pip install 'distributed"):
        run(GRID.cells(), backend="dask")


@pytest.mark.slow
def test_several_processes_give_the_same_rows(tmp_path):
    cells = [*GRID.cells(), grid.Cell(TINY, "1", "points", "nope")]
    rows = run(cells, tmp_path, jobs=2)
    assert timeless(rows) == timeless(run(cells))
    assert rows == run(cells, tmp_path, jobs=2)
    more = [grid.Cell(TINY, str(e), "points", "identity", trials=1) for e in range(1, 5)]
    with pytest.raises(UsageError, match="a worker process died"):
        run([*more, grid.Cell(TINY, "9", "points", "dies")], tmp_path, jobs=2, build=deadly)
    assert run(cells, tmp_path, jobs=2) == rows


@pytest.mark.long
@pytest.mark.slow
def test_a_local_dask_cluster_gives_the_same_rows(tmp_path):
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        rows = run(GRID.cells(), tmp_path, backend="dask", jobs=-1)
    assert timeless(rows) == timeless(run(GRID.cells()))


CHILD = """
import resource, sys, time
from dphist.lab import data, grid
from dphist.methods.catalogue import make_pipeline
from dphist.planning import ranking

def slowly(method, domain, workload):
    time.sleep(0.02)
    return make_pipeline(method, domain, workload)

tiny = data.Source("tiny", "heaps", n=300, records=1000)
cells = grid.Grid((tiny,), [str(e) for e in range(1, 101)], ("points",), ("identity",), trials=3).cells()
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
grid.run(cells, out=sys.argv[1], jobs=1, build=slowly)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "full"])
def test_a_run_that_ends_badly_is_resumed(tmp_path, end):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), end], stderr=subprocess.PIPE, text=True
    )
    with child:
        deadline = time.monotonic() + 60
        while end == "killed" and child.poll() is None and time.monotonic() < deadline:
            if (tmp_path / grid.ROWS).exists() and len(lines_of(tmp_path)) >= 12:
                child.send_signal(signal.SIGKILL)
            time.sleep(0.005)
        said = child.communicate(timeout=60)[1]
    assert child.returncode == (-signal.SIGKILL if end == "killed" else 1), said
    assert "OutputError" in said or end == "killed"
    before = [json.loads(line) for line in lines_of(tmp_path) if line.endswith(b"}\n")]
    finished = {c for c in (row["cell"] for row in before) if sum(r["cell"] == c for r in before) == 3}
    assert 0 < len(finished) < 100
    epsilons = [str(e) for e in range(1, 101)]
    cells = grid.Grid((TINY,), epsilons, ("points",), ("identity",), trials=3).cells()
    build = Counting()
    rows = run(cells, tmp_path, build=build)
    assert len(build.built) == 100 - len(finished)
    assert [row for row in rows if row["cell"] in finished] == [r for r in before if r["cell"] in finished]
    assert timeless(rows) == timeless(run(cells))


# The statistics.


def made(values, **columns):
    return [{"method": "a", "trial": i, "x": v} | columns for i, v in enumerate(values)]


def test_a_summary_is_of_the_groups_asked_for():
    rows = [*made([1.0, 2.0, 3.0], cell="p"), *made([5.0], cell="q"), *made([None, math.nan], cell="r")]
    p, q = metrics.summarise(rows, by=["cell"], value="x")
    assert (p["cell"], p["mean"], p["trials"]) == ("p", 2.0, 3)
    assert p["p95"] == pytest.approx(2.9)
    assert (
        0 == p["low"] < 2 < p["high"] < 2 + 4.303 / math.sqrt(3) * 1.5
    )  # Student's t of three trials is wide
    assert q == {"cell": "q", "mean": 5.0, "p95": 5.0, "low": 5.0, "high": 5.0, "trials": 1}
    assert metrics.summarise(rows, by=["cell"], value="x") == [p, q]
    assert metrics.summarise([], by=["cell"], value="x") == []
    with pytest.raises(UsageError, match="there is no column 'y'"):
        metrics.summarise(rows, by=["cell"], value="y")
    with pytest.raises(UsageError, match="as a list"):
        metrics.summarise(rows, by="cell", value="x")


def test_bootstrap_intervals_cover_about_as_often_as_they_say():
    rng = np.random.default_rng(3)
    rows = [row for i in range(400) for row in made(rng.normal(10, 2, 40).tolist(), cell=i)]
    summary = metrics.summarise(rows, by=["cell"], value="x")
    covered = np.mean([line["low"] <= 10 <= line["high"] for line in summary])
    assert 0.90 <= covered <= 0.98  # 0.95 less what 40 values lack; the share itself wobbles by 0.011
    width = np.mean([line["high"] - line["low"] for line in summary])
    assert width == pytest.approx(2 * 1.96 * 2 / math.sqrt(40), rel=0.05)


@pytest.mark.parametrize("trials", [3, 5, 10])
def test_intervals_of_few_trials_cover_as_often_too(trials):
    rng = np.random.default_rng(4)
    rows = [row for i in range(2000) for row in made(rng.normal(10, 2, trials).tolist(), cell=i)]
    summary = metrics.summarise(rows, by=["cell"], value="x")
    assert 0.93 <= np.mean([line["low"] <= 10 <= line["high"] for line in summary]) <= 0.975


def test_quantiles_of_students_t_are_scipys():
    for freedom in (1, 2, 9, 200):
        for level in (0.6, 0.975, 0.9999):
            theirs = scipy.stats.t.ppf(level, freedom)
            assert ranking.t_quantile(level, freedom) == pytest.approx(theirs, rel=1e-9)


def test_regret_is_over_the_best_of_the_cell():
    summary = [
        {"cell": c, "method": m, "mean": v}
        for c, m, v in [("p", "a", 2.0), ("p", "b", 3.0), ("q", "a", 8.0), ("q", "b", 4.0), ("z", "a", 0.0)]
    ]
    assert [line["regret"] for line in metrics.regret(summary, cell=["cell"])] == [1, 1.5, 2, 1, 1]
    assert "regret" not in summary[0]
    none = metrics.regret([*summary, {"cell": "z", "method": "b", "mean": 1.0}], cell=["cell"])
    assert none[-1]["regret"] == math.inf


def test_the_t_test_is_scipys():
    rng = np.random.default_rng(1)
    for size in (2, 3, 5, 20, 300):
        for shift in (0, 0.1, 1, 30):
            a, b = rng.normal(shift, 1, size), rng.normal(0, 1, size)
            ours, theirs = ranking.paired_t_test(a, b), scipy.stats.ttest_rel(a, b).pvalue
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-300)
    assert ranking.paired_t_test([1], [5]) == 1
    assert doctest.testmod(ranking).failed == 0 < doctest.testmod(ranking).attempted
    assert ranking.paired_t_test([1, 2], [1, 2]) == 1
    assert ranking.paired_t_test([2, 3], [1, 2]) == 0


def test_the_incomplete_beta_function_is_scipys():
    for a in (0.5, 1, 2.5, 40, 5000):
        for b in (0.5, 1, 3, 700):
            for x in (0, 1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9, 1):
                ours, theirs = incomplete_beta(float(a), float(b), float(x)), scipy.special.betainc(a, b, x)
                assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-290), (a, b, x)


def test_competitive_are_those_not_significantly_worse():
    rng = np.random.default_rng(2)
    base = rng.normal(100, 10, 20)
    methods = {"best": base, "like": base + rng.normal(0.05, 1, 20), "worse": base + rng.normal(3, 1, 20)}
    rows = [row | {"method": m, "cell": "p"} for m, v in methods.items() for row in made(v.tolist())]
    assert metrics.competitive(rows, cell=["cell"], value="x") == {("p",): ["best", "like"]}
    # The pairs decide: without them a difference of 3 drowns in a spread of 10.
    assert scipy.stats.ttest_ind(methods["best"], methods["worse"]).pvalue > 0.2


def test_competitive_divides_the_level_by_the_comparisons():
    rng = np.random.default_rng(6)
    a, b = np.zeros(8), rng.normal(0.8, 1, 8)
    p = scipy.stats.ttest_rel(a, b).pvalue
    assert 0.05 / 9 < p < 0.05
    rows = [*made(a.tolist(), method="a", cell=1), *made(b.tolist(), method="b", cell=1)]
    assert metrics.competitive(rows, cell=["cell"], value="x") == {(1,): ["a"]}
    others = [row for i in range(8) for row in made((a + 99 + i).tolist(), method=f"other{i}", cell=1)]
    assert metrics.competitive(rows + others, cell=["cell"], value="x") == {(1,): ["a", "b"]}


def test_geometric_means():
    assert metrics.geometric_mean([1, 4, 16]) == pytest.approx(4)
    assert metrics.geometric_mean([0, 5]) == 0
    for wrong in ([], [-1, 2], [math.nan]):
        with pytest.raises(UsageError, match="geometric mean"):
            metrics.geometric_mean(wrong)


def test_kl_divergence_is_that_of_the_smoothed_shares():
    counts, values = np.array([3, 0, 6]), np.array([2.5, -4.0, 9.0])
    p, q = np.array([4, 1, 7]) / 12, np.array([3.5, 1, 10]) / 14.5
    assert metrics.kl_divergence(counts, values) == pytest.approx(scipy.stats.entropy(p, q))
    assert metrics.kl_divergence(counts, counts) == 0
    assert metrics.kl_divergence(counts, values) > 0
