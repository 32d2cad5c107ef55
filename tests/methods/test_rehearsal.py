"""What can fail without data fails before the charge: compiling, importing, and finding a place for both."""

import errno
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from dphist import kernels
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.kernels.averaging import dyadic, rectangles
from dphist.kernels.averaging.posterior import beta_laws
from dphist.kernels.trees import pyramids, tuning_agreeing
from dphist.kernels.trees import tree as trees
from dphist.kernels.trees.hats import fitted_hats
from dphist.kernels.trees.tree import make_tree
from dphist.methods import catalogue, rehearsal
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.pipeline import Pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import Ledger, MemoryLedger
from dphist.steps import estimate
from dphist.steps.estimate import averaged_trees
from dphist.steps.order import AsGiven
from samples import KINDS, later, of_each_kind

SOURCE = Path(dphist.__file__).parent
LINES, GRIDS = ("points", "prefixes", "ranges", "small", "random:40"), ("points", "rectangles:20")


def compiled():
    """Return every loop and signature that was compiled or read from disk so far."""
    return {(loop.py_func.__qualname__, str(sig)) for loop in kernels.LOOPS for sig in loop.signatures}


def forget():
    """Bring the process back to where nothing is compiled; what is on disk stays there."""
    rehearsal._rehearsed.clear()
    for remembered in (
        make_tree,
        fitted_hats,
        dyadic._kept,
        rectangles._kept_blocks,
        pyramids.pyramids_error,
        pyramids.grid_gain,
        averaged_trees._weights_of_bins,
        beta_laws,
    ):
        remembered.cache_clear()  # what is kept needs no loop again
    for loop in kernels.LOOPS:
        loop._reset_overloads()


def plans(method, sizes, sides, lines=LINES, grids=GRIDS, parts=(0, "0.05")):
    kinds = [(Domain((Integers(1, n),)), w) for n in sizes for w in lines]
    kinds += [(Domain((Integers(1, n), Integers(1, n + 2))), w) for n in sides for w in grids]
    for domain, workload in kinds:
        for part in parts:
            try:
                yield dphist.Plan(bins=domain, epsilon=1, method=method, workload=workload, calibrate=part)
            except UsageError:
                continue


def compiled_after_rehearsal(plan):
    """Return what a release compiles though it was rehearsed, on very different data."""
    forget()
    plan.prepare()
    before, n = compiled(), plan.domain.n
    draws = np.random.default_rng(n)
    for x in (
        np.full(n, 50),
        np.concatenate([np.full(n // 2, 100), draws.poisson(30, n - n // 2)]),
        draws.integers(0, 10**9, n),
    ):
        curator = Curator.simulated(Counts(x, plan.domain), epsilon=plan.budget, seed=1)
        with np.errstate(all="ignore"):
            release = plan.pipeline.run(curator, plan.queries)
        release.intervals()
        release.total()
    return compiled() - before


@pytest.mark.parametrize(
    ("workloads", "parts"),
    [
        (("points",), (0, "0.05")),
        (("ranges",), ("0.05",)),
        later(("ranges",), (0,)),
        (("random:40",), (0,)),
        later(("random:40",), ("0.05",)),
    ],
)
@pytest.mark.parametrize("method", of_each_kind())
def test_a_rehearsed_release_compiles_nothing(method, workloads, parts):
    for plan in plans(method, [300], [20], workloads, ("points",) * ("points" in workloads), parts):
        assert compiled_after_rehearsal(plan) == set(), plan


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", KINDS)
def test_a_rehearsed_release_compiles_nothing_of_any_size(method):
    for plan in plans(method, [1, 2, 1000], [2], ("points", "ranges", "random:40")):
        assert compiled_after_rehearsal(plan) == set(), plan


@pytest.mark.parametrize("method", ["hats", "dawa3"])
@pytest.mark.parametrize(
    ("shape", "queries"),
    [((60, 64), 40), ((60, 64), 3), ((18, 21), 40), ((110, 100), 40), ((1, 1100), 40), ((1100, 2), 40)],
)
def test_rectangles_measured_by_pyramids_or_triangles_compile_nothing_either(method, shape, queries):
    domain = Domain(tuple(Integers(1, n) for n in shape))
    plan = dphist.Plan(bins=domain, epsilon=1, method=method, workload=f"rectangles:{queries}")
    assert compiled_after_rehearsal(plan) == set()


@pytest.mark.parametrize("method", ["dawa", "dawa2", "wf-auto"])
def test_thousands_of_distinct_counts_compile_nothing_either(method):
    plan = dphist.Plan(bins=1 << 12, range=(0, 1), epsilon="0.1", method=method)
    assert compiled_after_rehearsal(plan) == set()


@pytest.mark.parametrize("workload", ["ranges", "prefixes"])
@pytest.mark.parametrize("epsilon", ["0.01", "1"])
@pytest.mark.parametrize("bins", [3, 16, 40, 65, 100, 256])
def test_short_lines_compile_nothing_either(bins, epsilon, workload):
    plan = dphist.Plan(bins=bins, range=(0, 1), epsilon=epsilon, method="dawa3", workload=workload)
    assert compiled_after_rehearsal(plan) == set()


@pytest.mark.parametrize(
    ("bins", "epsilon", "ranges"),
    [
        (31, "0.0128", [(21, 29), (28, 29), (12, 28), (10, 30), (2, 26)]),
        (56, "0.00563", [(38, 53), (48, 52), (20, 54), (0, 33), (54, 55)]),
    ],
)
def test_few_bins_in_few_groups_compile_nothing_after_the_charge(bins, epsilon, ranges):
    domain = Domain((Integers(0, bins - 1),))
    plan = dphist.Plan(bins=domain, epsilon=epsilon, method="dawa3", workload=ranges)
    forget()
    plan.prepare()
    before = compiled()
    for seed in range(6):
        held = Counts(np.zeros(bins, np.int64), domain)
        plan.pipeline.run(Curator.simulated(held, epsilon=plan.budget, seed=seed), plan.queries)
    assert compiled() - before == set()


@pytest.mark.parametrize("shape", [(70_000,), (260, 260)])
def test_a_prior_of_very_many_bins_compiles_nothing_either(shape):
    domain = Domain(tuple(Integers(1, n) for n in shape))
    prior = np.where(np.arange(domain.n) < domain.n - 10, 0, 5).reshape(shape)
    plan = dphist.Plan(bins=domain, epsilon=1, method="average", prior=prior, public_prior=True)
    assert compiled_after_rehearsal(plan) == set()


@pytest.mark.parametrize("workload", ["ranges", "prefixes", "random:40"])
@pytest.mark.parametrize("bins", [1000, 1024, 4096])
def test_even_blocks_compile_nothing_either(bins, workload):
    domain = Domain((Integers(0, bins - 1),))
    plan = dphist.Plan(bins=domain, epsilon=1, method="dawa3", workload=workload)
    forget()
    plan.prepare()
    before, held = compiled(), Counts(np.full(bins, 8), domain)
    runs = [
        plan.pipeline.run(Curator.simulated(held, epsilon=plan.budget, seed=s), plan.queries)
        for s in range(4)
    ]
    assert any(len(set(np.diff(one.groups.starts[:-1]))) == 1 for one in runs)  # even blocks
    assert compiled() - before == set()


@pytest.mark.parametrize("workload", ["ranges", "prefixes"])
@pytest.mark.parametrize("bins", [3000, 9000])
def test_thousands_of_bins_that_stay_alone_compile_nothing_either(bins, workload):
    plan = dphist.Plan(bins=bins, range=(0, 1), epsilon="0.5", method="dawa3", workload=workload)
    assert compiled_after_rehearsal(plan) == set()


@pytest.mark.parametrize(
    ("method", "workload", "most"),
    [("efpa", "points", 1), ("mwem", "points", 1), ("hats", "ranges", 7), ("average", "points", 5)],
)
def test_a_first_use_compiles_few_loops(method, workload, most):
    forget()
    dphist.Plan(bins=300, range=(0, 1), epsilon=1, method=method, workload=workload).prepare()
    called = [loop for loop in kernels.LOOPS if "no_cpython_wrapper" not in loop.targetoptions]
    assert 0 < sum(len(loop.signatures) for loop in called) <= most


def test_a_rehearsal_happens_once_and_before_the_charge(monkeypatch):
    happened = []
    monkeypatch.setattr(rehearsal, "_run", lambda *a: happened.append("rehearsed"))
    charge = MemoryLedger.charge
    monkeypatch.setattr(MemoryLedger, "charge", lambda *a, **k: happened.append("charged") or charge(*a, **k))
    forget()
    for _ in range(2):
        dphist.histogram([1, 2, 3], bins=60, range=(0, 10), epsilon="0.7")
    assert happened == ["rehearsed", "charged", "charged"]
    happened.clear()
    dphist.from_counts(np.arange(60), epsilon="0.7", sensitivity=3)
    assert happened == ["rehearsed", "charged"]


class Broken(AsGiven):
    def __call__(self, domain, rough):
        raise ZeroDivisionError


class OnlyFor100(AsGiven):
    def __call__(self, domain, rough):
        if domain.n != 100:
            raise ZeroDivisionError


class NotFor30(AsGiven):
    def __call__(self, domain, rough):
        if domain.n == 30:
            raise ZeroDivisionError


def test_a_component_that_fails_on_the_domain_alone_costs_nothing():
    book = MemoryLedger()
    with pytest.raises(ZeroDivisionError):
        dphist.from_counts(np.arange(30), epsilon=1, method=Pipeline(order=NotFor30()), ledger=book)
    assert book.spent("default") == 0


def test_a_component_that_always_fails_costs_nothing_and_one_for_its_own_domain_works():
    book = MemoryLedger()
    with pytest.raises(ZeroDivisionError):
        dphist.from_counts(np.arange(100), epsilon=1, method=Pipeline(order=Broken()), ledger=book)
    assert book.spent("default") == 0
    dphist.from_counts(np.arange(100), epsilon=1, method=Pipeline(order=OnlyFor100()), ledger=book)
    assert book.spent("default") == 1


@pytest.mark.parametrize("shape", [(1,), (2,), (48,), (7, 5)])
@pytest.mark.parametrize("spec", [*LINES, "big", "clustered", *GRIDS, [(0, 2000), (1999, 2000)]])
def test_a_workload_keeps_its_kind_over_other_bins(spec, shape):
    if (spec in GRIDS[1:]) != (len(shape) == 2):
        return
    old = make_workload(spec, (2000,) if len(shape) == 1 else (40, 50))
    new = rehearsal.resized(old, shape)
    assert type(new) is type(old)
    assert new.shape == shape
    assert 1 <= new.size <= max(64, shape[0] * (shape[0] + 1) // 2)


# ---- where compiled loops are kept ----------------------------------------------------------------------


@pytest.fixture
def beside(monkeypatch):
    """Keep loops where they are kept by default, whatever the tests are run with."""
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", "")


def loop_of(folder, name, body="return x + 1"):
    """Return a compiled loop whose source lies in a folder."""
    file = folder / f"{name}.py"
    source = f"from dphist.kernels import kernel\n\n\n@kernel\ndef run(x):\n    {body}\n"
    if not file.exists() or file.read_text() != source:  # a new time would make it another source
        file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels.LOOPS.remove(module.run)
    return module.run


@pytest.mark.usefixtures("beside")
def test_a_loop_is_compiled_once_and_told_only_then(tmp_path):
    told = []
    with kernels.noticing(lambda: told.append("compiling")):
        first = loop_of(tmp_path, "loop")
        assert (first(1), first(1.5)) == (2, 2.5)
    assert told == ["compiling"]
    with kernels.noticing(lambda: told.append("again")):
        again = loop_of(tmp_path, "loop")
        assert (again(1), again(1.5)) == (2, 2.5)
    assert told == ["compiling"]
    assert sum(again.stats.cache_hits.values()) == 2


def test_what_only_loops_call_refuses_a_call_from_python():
    """Numba would end the process without a word."""
    from dphist.kernels.partition import hulls

    sums, corners = np.array([0, 3, 4, 9]), np.zeros(4, np.int32)
    assert hulls._push.py_func(sums, corners, 0, 0, 2, 1) == 1
    with pytest.raises(TypeError, match="_push is called by compiled loops alone"):
        hulls._push(sums, corners, 0, 0, 2, 1)


@pytest.mark.usefixtures("beside")
def test_a_person_who_waits_is_told_once_unless_a_program_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "_told", [])
    with kernels.telling("first"):
        loop_of(tmp_path, "unwatched")(1)
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)  # as in a notebook
    heard = []
    with kernels.noticing(lambda: heard.append(1)), kernels.telling("second"):
        loop_of(tmp_path, "heard")(1)
    assert heard == [1] and not capsys.readouterr().err
    monkeypatch.setattr(kernels, "_told", [])
    for name in ("third", "fourth"):
        with kernels.telling(name):
            loop_of(tmp_path, name)(1)
    assert capsys.readouterr().err == "compiling third: some seconds, once ...\n"


@pytest.mark.usefixtures("beside")
def test_damaged_and_unwritable_files_are_a_reason_to_compile_and_no_more(tmp_path, monkeypatch):
    from numba.core.caching import IndexDataCacheFile

    assert loop_of(tmp_path, "loop")(1) == 2
    kept = [p for p in (tmp_path / "__pycache__").iterdir() if p.suffix in (".nbi", ".nbc")]
    assert len(kept) == 2
    for file in kept:
        whole = file.read_bytes()
        for damage in (b"", b"\x80garbage", whole[: len(whole) // 2]):
            file.write_bytes(damage)
            assert loop_of(tmp_path, "loop")(1) == 2
    monkeypatch.setattr(IndexDataCacheFile, "save", full_disk)
    assert loop_of(tmp_path, "other")(1) == 2


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("beside")
def test_without_a_place_loops_are_compiled_and_kept_nowhere(tmp_path, monkeypatch):
    (tmp_path / "__pycache__").write_text("no folder")
    monkeypatch.setenv("HOME", os.devnull)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    loop = loop_of(tmp_path, "loop")
    assert loop.stats.cache_path is None
    assert loop(1) == 2


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """Return an environment whose packages cannot be written and whose user has no home, also for root."""
    root = tmp_path_factory.mktemp("container")
    shutil.copytree(SOURCE, root / "dphist", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {loops.parent for loops in (root / "dphist" / "kernels").rglob("*.py")}:
        (folder / "__pycache__").write_text("a file, where numba would make a folder")
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_", "DPHIST_"))}
    return keep | {"PYTHONPATH": str(root), "HOME": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}


def python(*arguments, env, cwd, code=0):
    run = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, text=True, capture_output=True, check=False
    )
    assert run.returncode == code, run
    assert "Traceback" not in run.stderr
    return run


PUBLISH = ("publish", "x.csv", "--column", "x", "--bins", "60", "--range", "0", "60", "--epsilon", "1")
PUBLISH += ("--method", "dawa2", "--workload", "ranges", "--ledger", "l.db", "--out", "r.json")


@pytest.mark.long
@pytest.mark.slow
def test_the_command_line_publishes_where_nothing_can_be_kept(container, tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(map(str, range(60))))
    Ledger.open(tmp_path / "l.db", create=True)
    run = python("-m", "dphist", *PUBLISH, env=container, cwd=tmp_path)
    assert "compiling dawa2, as in every run" in run.stderr
    assert Ledger.open(tmp_path / "l.db").spent("default") == 1
    assert dphist.load(tmp_path / "r.json").method == "dawa2"
    warmed = python("-m", "dphist", "warm", env=container, cwd=tmp_path).stdout
    assert "kept nowhere" in warmed
    assert "NUMBA_CACHE_DIR" in warmed


def test_after_the_rehearsal_nothing_more_is_imported_or_compiled(container, tmp_path):
    text = """
        import sys, dphist
        from dphist import kernels
        from dphist.planning import plan as plan_module
        plan = dphist.Plan(bins=60, range=(0, 60), epsilon=1, method="h", workload="ranges")
        plan.prepare()
        modules, told = set(sys.modules), []
        with kernels.noticing(lambda: told.append("compiled")):
            counts = dphist.Plan.release.__globals__["Counts"](list(range(60)), plan.domain)
            book = dphist.Ledger("l.db", create=True)
            release = plan_module._publish(plan, counts, book, "default", {"source": "counts"})
            release.intervals(), release.total(), repr(release)
            release.save("r.json"), release.save("r.csv")
        print(sorted(set(sys.modules) - modules), told, book.spent("default"), kernels.place())
    """
    run = python("-c", textwrap.dedent(text), env=container, cwd=tmp_path)
    assert run.stdout == "[] [] 1 None\n"


def test_an_interrupt_while_compiling_costs_nothing(tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(map(str, range(60))))
    Ledger.open(tmp_path / "l.db", create=True)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "dphist", *PUBLISH]
    with subprocess.Popen(command, env=env, cwd=tmp_path, text=True, stderr=subprocess.PIPE) as run:
        first = run.stderr.readline()
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read()
    assert first == "compiling dawa2, once ...\n"
    assert (run.returncode, rest) == (130, "interrupted; nothing was charged.\n")
    assert Ledger.open(tmp_path / "l.db").entries() == []


def test_warm_compiles_every_kind_and_says_where(tmp_path, monkeypatch, capsys):
    from dphist.cli import warm

    some = {name: CATALOGUE[name] for name in ("identity", "quadtree", "s2+h")}
    monkeypatch.setattr(catalogue, "CATALOGUE", some)
    forget()
    warm.warm()
    out = capsys.readouterr().out
    assert re.search(r"all 3 methods are compiled \(\d of them just now\) and kept in ", out)
    assert str(kernels.place()) in out
    before = compiled()
    for name in ("quadtree", "s2+h"):
        for plan in plans(name, [80], [9], ("points", "prefixes", "ranges", "random:9")):
            plan.prepare()
    assert compiled() == before


def test_warm_compiles_what_reads_text(tmp_path, monkeypatch):
    from dphist.cli import warm
    from dphist.kernels import text
    from dphist.records import count

    monkeypatch.setattr(catalogue, "CATALOGUE", {})
    forget()
    warm.warm()
    assert text.stray_quotes.signatures and text.elements_to_lines.signatures
    before = compiled()
    (tmp_path / "r.csv").write_text('a,b\n5,"x"\n6,"y\n"7"z,\n')
    (tmp_path / "r.json").write_text('[{"a": 5},\n {"a": 6}]')
    for name in ("r.csv", "r.json"):
        well_formed = name == "r.json"
        count(tmp_path / name, Domain((Integers(5, 7),)), columns="a", well_formed=well_formed)
    assert compiled() == before


def test_a_rehearsal_is_no_release(tmp_path):
    """Neither ledger nor file nor noise is touched by it."""
    plan = dphist.Plan(bins=60, range=(0, 60), epsilon=Fraction(1, 3), method="dawa")
    assert plan.prepare() is None
    assert list(tmp_path.iterdir()) == []
    assert json.loads(plan.release(list(range(60))).to_json())["simulated"] is False


def test_a_tree_over_groups_is_rehearsed_with_every_kind_of_ranges_and_both_kinds_of_noise():
    forget()
    rehearsal._trees_over_groups()
    before = compiled()
    half, tree = Fraction(1, 2), trees.pruned_tree(np.array([0, 8, 12, 16]))
    groups, ends = Groups(np.array([0, 8, 12, 16])), (np.array([0, 3]), np.array([9, 4]))
    for queries in ("all-ranges", "prefixes", ends):
        counts = Counts(np.arange(16), Domain((Integers(0, 15),)))
        made = Curator.simulated(counts, epsilon=half, seed=0)
        weights = tuning_agreeing.agreeing_weights(
            tree, groups.sizes, queries, trees.level_weights(tree), below=math.inf, draws=math.inf
        )
        found = averaged_trees.agreeing_totals(made, groups, tree, weights, share=half)
        averaged_trees.posterior(tree, groups, found)
        noisy = estimate.trees.tree_totals(made, groups, tree, weights, share=half)
        estimate.trees.fitted_tree(groups, tree, noisy, pruned=True)
    assert compiled() - before == set()


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "2"])
@pytest.mark.parametrize(
    ("method", "shape", "workload"),
    [("average2", (500,), "points"), ("dawa3", (20, 25), "rectangles:20"), ("dawa3", (6, 40), "points")],
)
def test_bins_that_a_question_may_leave_alone_are_grouped_and_left_alone_before_the_charge(
    monkeypatch, method, shape, workload, epsilon
):
    """Of the few bins of a rehearsal chance decides whether they stand out: it takes both ways anyhow."""
    found, values = set(), Pipeline.values

    def watched(self, curator, queries):
        groups, estimated = values(self, curator, queries)
        found.add(groups.are_singletons)
        return groups, estimated

    monkeypatch.setattr(Pipeline, "values", watched)
    rehearsal._rehearsed.clear()
    domain = Domain(tuple(Integers(0, n - 1) for n in shape))
    queries = make_workload(workload, domain)
    rehearsal.rehearse(make_pipeline(method, domain, queries), domain, queries, epsilon=Fraction(epsilon))
    assert found == {True, False}


@pytest.mark.parametrize("epsilon", ["0.02", "1"])
def test_few_cells_of_any_kind_compile_nothing_after_the_charge(epsilon):
    forget()
    domain = Domain((Integers(0, 19), Integers(0, 24)))
    queries = make_workload("rectangles:20", domain)
    made = make_pipeline("auto", domain, queries)
    rehearsal.rehearse(made, domain, queries, epsilon=Fraction(epsilon))
    before, height = compiled(), round(60 / float(epsilon))
    cells = np.arange(500)
    for x in (cells * 0, cells // 100 * height, cells * 7919 % 13 * height, (cells % 31 == 0) * height):
        for seed in range(3):
            curator = Curator.simulated(Counts(x, domain), epsilon=Fraction(epsilon), seed=seed)
            made.run(curator, queries).intervals()
    assert compiled() == before


def test_a_prior_whose_first_bins_are_empty_compiles_nothing_after_the_charge():
    prior = np.zeros((9, 9), np.int64)
    prior[-1, -4:] = 1, 5, 2, 7
    domain = Domain((Integers(1, 9), Integers(1, 9)))
    plan = dphist.Plan(bins=domain, epsilon=1, method="average", prior=prior, public_prior=True)
    assert compiled_after_rehearsal(plan) == set()
