"""A release that memory cannot hold is refused before anything is counted or charged."""

import resource
import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import pytest

import dphist
from dphist import records
from dphist.domain import Domain, Integers
from dphist.domain.workload import Rectangles, make_workload
from dphist.errors import DataError, UsageError
from dphist.methods import memory
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import Ledger

MANY = 1 << 19


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(tmp_path / "l.db", create=True)


@pytest.mark.parametrize("method", ["identity", "ahp"])
@pytest.mark.parametrize("give", ["records", "counts"])
def test_bins_that_do_not_fit_are_refused_unpaid(monkeypatch, ledger, method, give):
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    with pytest.raises(UsageError, match=r"524,288 bins need about .* Nothing was charged"):
        if give == "records":
            bins = Integers(0, MANY - 1)
            dphist.histogram([5], bins=bins, epsilon=1, method=method, ledger=ledger, dataset="d")
        else:
            dphist.from_counts(
                np.zeros(MANY, dtype=int), epsilon=1, method=method, ledger=ledger, dataset="d"
            )
    assert ledger.spent("d") == 0


@pytest.mark.parametrize("free", [None, 1 << 30])
def test_what_fits_or_cannot_be_told_is_released(monkeypatch, ledger, free):
    monkeypatch.setattr(memory, "available", lambda: free)
    dphist.histogram([5], bins=Integers(0, MANY - 1), epsilon=1, ledger=ledger, dataset="d")
    assert ledger.spent("d") == 1


def test_running_out_while_counting_costs_nothing(monkeypatch, ledger):
    def none_left(*given):
        raise MemoryError("Hj7781")

    monkeypatch.setattr(records, "_count_arrays", none_left)
    with pytest.raises(DataError, match="more memory than is available; nothing was charged") as caught:
        dphist.histogram([5], bins=10, range=(0, 10), epsilon=1, ledger=ledger, dataset="d")
    assert "Hj7781" not in str(caught.value) and ledger.spent("d") == 0


def run(text, folder):
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_the_limit_of_a_process_is_kept_to(tmp_path):
    """Under a limit of 64 MiB more, 4 million bins are refused and a thousand are not."""
    text = """
        import resource, dphist
        from dphist.domain import Integers
        from dphist.privacy.ledger import Ledger
        book = Ledger.open("l.db", create=True)
        few = dphist.Plan(bins=Integers(0, 999), epsilon=1)
        few.release([5], ledger=book, dataset="first")
        size = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmSize")) << 10
        resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20),) * 2)
        try:
            dphist.Plan(bins=Integers(0, (1 << 22) - 1), epsilon=1).release([5], ledger=book, dataset="d")
        except dphist.errors.UsageError as error:
            print("Nothing was charged" in str(error), book.spent("d"))
        few.release([5], ledger=book, dataset="d")
        print(book.spent("d"))
    """
    assert run(text, tmp_path) == "True 0\n1\n"


def test_limits_that_can_be_told():
    assert memory.available() > 1 << 20
    assert list(memory._limits())
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert len(list(memory._limits())) >= (1 if most == resource.RLIM_INFINITY else 2)


def test_the_limit_of_a_container_is_kept_to(monkeypatch, tmp_path):
    for name, text in (
        ("memory.max", "1000"),
        ("memory.current", "900"),
        ("memory.stat", "anon 5\nfile 50\n"),
    ):
        (tmp_path / name).write_text(text)

    class Place(type(tmp_path)):
        def __truediv__(self, other):
            return tmp_path if self == memory._CGROUPS else super().__truediv__(other)

    monkeypatch.setattr(memory, "_CGROUPS", Place("/sys/fs/cgroup"))
    assert memory.available() == 150
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() > 1 << 20


MEASURE = """
    import gc, dphist, numpy as np
    from dphist.domain import Integers
    from dphist.methods import memory

    def figure(name):
        return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(name)) << 10

    n = {bins}
    plan = dphist.Plan(bins=Integers(0, n - 1), epsilon=1, method={method!r})
    plan.prepare()
    counts = np.where(np.arange(n) < n // 2, 3, np.arange(n) * 7919 % 3001)
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")
    before = figure("VmRSS")
    release = dphist.from_counts(counts, epsilon=1, method={method!r})
    print((figure("VmHWM") - before + counts.nbytes) / memory.bytes_needed(plan.pipeline, plan.domain))
"""


def bytes_per_cell(method, workload, cells=None):
    """Return the peak of all arrays of one run, over a grid at first; a process takes a few bytes more."""
    if cells is None:
        cells = np.where(np.arange(1 << 18) % 4096 < 1000, np.arange(1 << 18) * 7919 % 9, 0).reshape(512, 512)
    some = cells[:64, :64] if cells.ndim == 2 else cells[:4096]
    dphist.simulate(some, epsilon=1, method=method, workload=workload(some.shape))  # compiles
    queries = workload(cells.shape)
    tracemalloc.start()
    try:
        dphist.simulate(cells, epsilon=1, method=method, workload=queries)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak / cells.size


@pytest.mark.parametrize("method", ["quadtree", "hybridtree", "hb", "dawa3"])
def test_trees_over_a_grid_take_few_bytes_a_cell(method):
    assert bytes_per_cell(method, lambda shape: "points") < 138  # 150 in all


@pytest.mark.parametrize("longest", [3, 500])
def test_dawa3_takes_few_bytes_a_cell_for_small_and_large_rectangles(longest):
    """Small ones are answered from a tree along a curve, large ones by the sides of the grid."""

    def rectangles(shape):
        draw = np.random.default_rng(1)
        first = [draw.integers(0, side - 3, 500) for side in shape]
        last = [
            np.minimum(at + 1 + draw.integers(0, longest, 500), side)
            for at, side in zip(first, shape, strict=True)
        ]
        return Rectangles(shape, first[0], last[0], first[1], last[1])

    assert bytes_per_cell("dawa3", rectangles) < 146  # the values that are returned among them


@pytest.mark.parametrize("workload", ["points", "ranges", "prefixes", "random:300"])
def test_dawa3_takes_few_bytes_a_bin_of_a_line_that_it_does_not_group(workload):
    bins = np.arange(1 << 20) * 7919 % 3001
    assert (
        bytes_per_cell("dawa3", lambda shape: workload, bins) < 148
    )  # the values that are returned among them


@pytest.mark.slow
@pytest.mark.parametrize("method", ["identity", "ahp", "h", "dawa3"])
def test_the_figures_are_those_of_the_methods(tmp_path, method):
    run(MEASURE.format(method=method, bins=1 << 10), tmp_path)  # compiling leaves memory
    part = float(run(MEASURE.format(method=method, bins=1 << 20), tmp_path))
    assert 0.1 < part <= 1


def test_what_is_needed_is_a_function_of_the_plan():
    small, large = Domain((Integers(0, 9),)), Domain((Integers(0, 10**6 - 1),))
    for name in ("identity", "ahp"):
        plan = dphist.Plan(bins=large, epsilon=1, method=name)
        few = make_pipeline(name, small, dphist.Plan(bins=small, epsilon=1).queries)
        assert memory.bytes_needed(plan.pipeline, large) == 10**5 * memory.bytes_needed(few, small)


# ---- many groups ------------------------------------------------------------------------------------


def grouped(groups: int, bins: int, *, method: str = "identity", by=("all", "g"), epsilon=1):
    from dphist.planning.grouped import GroupedPlan

    labels = [f"g{i}" for i in range(groups)]
    workload = "points" if method == "identity" else "ranges"
    axis = Integers(0, bins - 1)
    return GroupedPlan(
        by=by, groups=labels, column="x", bins=axis, epsilon=epsilon, method=method, workload=workload
    )


@pytest.mark.parametrize("method", ["identity", "hats", "dawa2"])
def test_groups_that_do_not_fit_are_refused_unpaid(monkeypatch, ledger, method):
    import pandas

    frame = pandas.DataFrame({"g": ["g1"], "x": [5]})
    plan = grouped(5000, 100, method=method)
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    with pytest.raises(
        UsageError, match=r"5,000 groups of 100 bins need about .* Nothing was charged; declare fewer groups"
    ):
        plan.release(frame, ledger=ledger, dataset="d")
    assert ledger.spent("d") == 0


def test_more_groups_than_a_release_takes_are_refused_by_their_number():
    with pytest.raises(
        UsageError, match=r"2,000 groups of 100,000 bins are 200,000,000 bins, .* Declare fewer groups"
    ):
        grouped(2000, 100_000)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", ["identity", "hats", "dawa2", "ahp"])
@pytest.mark.parametrize("bins", [10, 300])
@pytest.mark.parametrize("by", ["g", ("all", "g")])
def test_groups_take_no_more_than_was_said(method, bins, by):
    import tracemalloc
    from fractions import Fraction

    from dphist.methods.levels import bytes_needed, run_levels
    from dphist.privacy.counts import SparseCounts
    from dphist.privacy.curator import Curator

    groups = 20_000 if method == "identity" else 150
    plan = grouped(groups, bins, method=method, by=by)
    plan.prepare()
    cells = np.arange(groups * bins)
    tracemalloc.start()
    held = SparseCounts(cells.copy(), np.ones(cells.size, dtype=np.int64), plan._counted)
    curator = Curator.simulated(held, epsilon=Fraction(1), seed=1)
    run_levels(plan.pipeline, curator, plan.hierarchy, plan.queries, plan.shares)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    once = 20 << 20  # what a block of bins takes, however many there are
    assert peak <= bytes_needed(plan.pipeline, plan.hierarchy, bins) + once


@pytest.mark.parametrize("shape", [(32, 32), (64, 64), (90, 91), (2, 4096), (256, 256), (300, 300)])
@pytest.mark.parametrize("prior", [False, True])
def test_averages_of_a_grid_take_what_is_foreseen_or_what_is_too_little_to_check(shape, prior):
    domain = Domain(tuple(Integers(1, n) for n in shape))
    before = np.arange(domain.n).reshape(shape) if prior else None
    plan = dphist.Plan(bins=domain, epsilon=1, method="average", prior=before, public_prior=prior)
    plan.prepare()
    held = Counts(np.arange(domain.n) % 7, domain)
    tracemalloc.start()
    try:
        plan.pipeline.run(Curator.simulated(held, epsilon=plan.budget, seed=1), plan.queries)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= max(memory.bytes_needed(plan.pipeline, domain), memory._SMALL)


@pytest.mark.parametrize(
    ("method", "workload", "shape", "each"),
    [
        ("average", "points", (2, 4096), memory._RECTANGLES),
        ("average", "points", (90, 92), memory._SQUARES),
        ("average", "points", (362, 362), memory._SQUARES),
        ("average", "points", (363, 363), memory._OTHER),  # nothing is moved to estimate the error
        ("average", "points", (4096,), memory._OTHER),
        ("average", "points", (1, 4096), memory._OTHER),
        ("dawa3", "rectangles", (8, 8), memory._RECTANGLES),  # does not ask how many cells hold records
        ("dawa3", "rectangles", (64, 64), memory._RECTANGLES),  # asks
        ("dawa3", "rectangles", (1, 4096), memory._OTHER + 4096 // memory._PYRAMIDS),  # of one row
    ],
)
def test_averages_over_rectangles_are_foreseen_where_there_are_some(method, workload, shape, each):
    domain = Domain(tuple(Integers(1, n) for n in shape))
    pipeline = make_pipeline(method, domain, make_workload(workload, domain))
    assert memory.bytes_needed(pipeline, domain) == each * domain.n
