"""Runs many methods on many inputs, in parallel, and can be stopped and started again at any moment.

The unit of work is a `Cell`: one method on one input, all its trials. A finished cell is appended to
``rows.jsonl`` at once and synced, so what was finished before a crash is never run again. On starting again:

* a cell all of whose rows are there is kept, whichever version of dphist wrote them (each row says which);
* a cell of which a part is missing, because a disk was full or the process killed in the middle of the write,
  is run again;
* a cell that failed is tried again, except where this same version said that the request itself is wrong
  (`UsageError`), for then it will stay wrong.

Every method gets the same input and no side information: it meets the counts through a simulated curator, and
receives the public domain, epsilon and the workload, but neither the number of records nor the shape.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dphist._common import __version__
from dphist.domain import Domain, Integers
from dphist.domain.workload import Workload, make_workload
from dphist.errors import OutputError, UsageError
from dphist.lab.data import Source
from dphist.lab.metrics import kl_divergence
from dphist.methods.catalogue import make_pipeline
from dphist.methods.pipeline import Pipeline
from dphist.methods.rehearsal import rehearse
from dphist.planning.simulate import trials
from dphist.privacy.counts import Counts
from dphist.privacy.ledger import parse_epsilon

Row = dict[str, Any]
Build = Callable[[str, Domain, Workload], Pipeline]
Queries = Callable[[str, Domain], Workload]
Kept = dict[str, dict[tuple[int | None, str], Row]]  # cell -> trial and judge -> row
ROWS, TABLE = "rows.jsonl", "rows.parquet"
# The columns of a row and their types in the Parquet file.
COLUMNS = {
    "dataset": "VARCHAR",
    "shape": "VARCHAR",
    "n": "BIGINT",
    "records": "BIGINT",
    "draw": "BIGINT",
    "epsilon": "DOUBLE",
    "workload": "VARCHAR",
    "judged": "VARCHAR",
    "method": "VARCHAR",
    "trial": "BIGINT",
    "seed": "BIGINT",
    "seconds": "DOUBLE",
    "mean_squared": "DOUBLE",
    "mean_absolute": "DOUBLE",
    "max_absolute": "DOUBLE",
    "scaled": "DOUBLE",
    "kl": "DOUBLE",
    "groups": "BIGINT",
    "status": "VARCHAR",
    "error": "VARCHAR",
    "dphist": "VARCHAR",
    "numpy": "VARCHAR",
    "python": "VARCHAR",
    "cell": "VARCHAR",
}
_QUIET = 30.0  # seconds between two lines of progress where nobody watches a bar


@dataclass(frozen=True)
class Cell:
    """One method on one input, all trials: what is run, saved and resumed as a whole.

    Args:
        workload: the workload that the method receives.
        judged: the workloads by which its values are scored; empty means the one it receives.
    """

    source: Source
    epsilon: str
    workload: str
    method: str
    trials: int = 5
    judged: tuple[str, ...] = ()
    budget: Fraction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", str(self.epsilon))
        object.__setattr__(self, "judged", tuple(self.judged))
        object.__setattr__(self, "budget", parse_epsilon(self.epsilon))
        if self.trials < 1:
            raise UsageError(f"trials must be at least 1, not {self.trials}.")

    @property
    def judges(self) -> tuple[str, ...]:
        """The workloads that judge, spelled out."""
        return self.judged or (self.workload,)

    @property
    def key(self) -> str:
        """A text that names the cell, the same in every process and wherever the data is kept."""
        return json.dumps([*self._subject, self.trials, self.judges])

    def seed(self, trial: int) -> int:
        """Return the seed of a trial, which the number of trials and the judges do not change."""
        text = json.dumps([*self._subject, trial]).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1  # fits a signed column

    @property
    def _subject(self) -> tuple[str | int | None, ...]:
        s = self.source
        return (s.name, s.label, s.n, s.records, s.draw, self.epsilon, self.workload, self.method)


@dataclass(frozen=True)
class Grid:
    """Every method on every source, at every epsilon and workload."""

    sources: Sequence[Source]
    epsilons: Sequence[str]
    workloads: Sequence[str]
    methods: Sequence[str]
    trials: int = 5
    judged: tuple[str, ...] = ()

    def cells(self) -> tuple[Cell, ...]:
        """Return the product, methods changing fastest."""
        axes = itertools.product(self.sources, self.epsilons, self.workloads, self.methods)
        return tuple(Cell(*at, self.trials, self.judged) for at in axes)


def run(
    cells: Iterable[Cell],
    *,
    out: Path | str | None,
    jobs: int = -1,
    backend: str | None = None,
    build: Build = make_pipeline,
    queries: Queries = make_workload,
    progress: bool = True,
) -> list[Row]:
    """Run the cells that are not yet in ``out/rows.jsonl`` and return the rows of all of them.

    At the end ``out/rows.parquet`` holds every row of the folder, those of earlier grids too.

    Args:
        out: a folder; None keeps the rows in memory alone.
        jobs: how many cells at once; -1 is one per core, 1 stays in this process.
        backend: ``dask``, or any other name that joblib knows; None is this machine's cores.
        build: makes the pipeline of a method's name for a domain and a workload; sent to other processes.
        queries: makes the workload of a name over a domain; sent to other processes.
        progress: show progress and the expected remaining time on stderr.
    """
    asked = _unique(cells)
    with ExitStack() as stack:
        kept: Kept = {}
        journal = None if out is None else stack.enter_context(_Journal.open(Path(out), kept))
        done = {key for key, cell in asked.items() if _is_done(cell, kept.get(key, {}))}
        todo = [cell for key, cell in asked.items() if key not in done]
        shown = stack.enter_context(_Progress.start(len(asked), len(todo), progress))
        shown.report_reused(kept[key] for key in done)
        work = partial(run_cell, build=build, queries=queries)
        for rows in stack.enter_context(closing(_spread(work, todo, jobs, backend))):
            if journal is not None:
                journal.append(rows)
            _keep(kept, rows)
            shown.step(failed=rows[0]["status"] != "ok")
        if out is not None:
            _write_table(Path(out), kept)
    return [row for key in asked for row in kept[key].values()]


def run_cell(cell: Cell, *, build: Build = make_pipeline, queries: Queries = make_workload) -> list[Row]:
    """Return the rows of one cell: one per trial and judge, or a single one that says why it failed."""
    started = _versions() | {
        "dataset": cell.source.name,
        "shape": cell.source.label,
        "n": cell.source.n,
        "records": cell.source.records,
        "draw": cell.source.draw,
        "epsilon": float(cell.budget),
        "workload": cell.workload,
        "method": cell.method,
        "cell": cell.key,
    }
    try:
        return [
            _row(started | found | {"status": "ok", "error": ""}) for found in _trials(cell, build, queries)
        ]
    except Exception as error:  # whatever a method does wrong, the others go on
        kind = UsageError if isinstance(error, UsageError) else type(error)
        text = f"{kind.__name__}: {error}"[:1000]
        return [_row(started | {"judged": cell.judges[0], "status": "failed", "error": text})]


def _trials(cell: Cell, build: Build, queries: Queries) -> Iterator[Row]:
    exact = cell.source.counts()
    domain = _domain(exact.shape)
    held = Counts(exact, domain)
    truth, records = held.values, int(held.values.sum())
    workload = queries(cell.workload, domain)
    pipeline = build(cell.method, domain, workload)
    judges = [(name, queries(name, domain)) for name in dict.fromkeys(cell.judges)]
    pipeline.check(domain, workload)
    rehearse(pipeline, domain, workload, epsilon=Fraction(1))  # compiles, so that no trial is timed with that
    seeds = [cell.seed(trial) for trial in range(cell.trials)]
    made = trials(pipeline, held, workload, epsilon=cell.budget, seeds=seeds)
    for number, (seed, trial) in enumerate(zip(seeds, made, strict=True)):
        errors = trial.values - truth
        common = {
            "n": domain.n,
            "records": records,
            "trial": number,
            "seed": seed,
            "seconds": trial.seconds,
            "kl": kl_divergence(truth, trial.values),
            "groups": trial.groups.k,
        }
        for name, judge in judges:
            squared = judge.mean_squared_error(errors)
            yield common | {
                "judged": name,
                "mean_squared": squared,
                "mean_absolute": judge.mean_absolute_error(errors),
                "max_absolute": judge.max_absolute_error(errors),
                "scaled": squared / records if records else None,
            }


def _domain(shape: tuple[int, ...]) -> Domain:
    return Domain(tuple(Integers(0, bins - 1) for bins in shape))


def _versions() -> Row:
    return {"dphist": __version__, "numpy": np.__version__, "python": platform.python_version()}


def _row(found: Row) -> Row:
    return {name: found.get(name) for name in COLUMNS}


def _unique(cells: Iterable[Cell]) -> dict[str, Cell]:
    asked: dict[str, Cell] = {}
    for cell in cells:
        if asked.setdefault(cell.key, cell) != cell:
            raise UsageError(
                f"two files are called {cell.source.name!r}: give each source a name of its own."
            )
    return asked


def _keep(kept: Kept, rows: Iterable[Row]) -> None:
    """Put rows with those of their cells; a later result replaces an earlier one."""
    for row in rows:
        cell = kept.setdefault(row["cell"], {})
        if row["status"] == "failed" or (None, "") in cell:
            cell.clear()
        cell[(None, "") if row["status"] == "failed" else (row["trial"], row["judged"])] = row


def _is_done(cell: Cell, rows: dict[tuple[int | None, str], Row]) -> bool:
    if (failed := rows.get((None, ""))) is not None:
        return bool(failed["error"].startswith("UsageError") and failed["dphist"] == __version__)
    return all(at in rows for at in itertools.product(range(cell.trials), cell.judges))


class _Journal:
    """The rows on disk: read once, then only ever added to, by one process at a time."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self._path, self._file = path, file

    @classmethod
    @contextmanager
    def open(cls, out: Path, kept: Kept) -> Iterator[_Journal]:
        """Lock a folder, put the rows found there into ``kept``, and open them for more."""
        path = out / ROWS
        with ExitStack() as stack:
            try:
                out.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((out / ".lock").open("a"))
                _lock(lock.fileno(), out)
                whole = _read(path, kept)
                file = stack.enter_context(path.open("ab", buffering=0))
                if not whole:
                    file.write(b"\n")  # what was torn stays on a line of its own
            except OSError as error:
                raise OutputError(f"cannot write results to {out}: {error.strerror or error}.") from error
            yield cls(path, file)

    def append(self, rows: list[Row]) -> None:
        """Add a cell's rows in one write, and wait until the disk has them."""
        text = memoryview("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())
        try:
            while text:
                text = text[self._file.write(text) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            why = error.strerror or error
            raise OutputError(
                f"cannot write to {self._path}: {why}. Run again to go on from there."
            ) from error


def _lock(descriptor: int, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"another run writes to {out}: wait for it, or give this one its own folder."
        ) from None


def _read(path: Path, kept: Kept) -> bool:
    """Put the rows of a file into ``kept`` and return whether its last line is whole."""
    line = b"\n"
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                try:
                    found = json.loads(line)
                    row = _row({"records": found.get("scale")} | found)  # as rows of version 0.1 call it
                except (ValueError, AttributeError):  # torn: its cell is not complete, and is run again
                    continue
                if row["status"] is not None and isinstance(row["cell"], str):
                    _keep(kept, [row])
    return line.endswith(b"\n")


def _write_table(out: Path, kept: Kept) -> None:
    """Write all rows as Parquet, under another name until it is whole."""
    import duckdb

    plain, partial_table = out / f"{ROWS}.part", out / f"{TABLE}.part"
    rows = [row for cell in kept.values() for row in cell.values()]
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with duckdb.connect() as database:
        found = database.read_json(str(plain), columns=COLUMNS, format="newline_delimited")
        found.write_parquet(str(partial_table))
    partial_table.replace(out / TABLE)
    plain.unlink()


def _spread(
    work: Callable[[Cell], list[Row]], todo: Sequence[Cell], jobs: int, backend: str | None
) -> Generator[list[Row], None, None]:
    """Return the cells' rows as they are finished, in any order."""
    if not todo:
        return
    if jobs == 1 and backend is None:
        yield from map(work, todo)
        return
    try:
        import joblib
    except ImportError:
        raise UsageError("comparing methods runs them side by side: pip install 'dphist[lab]'.") from None

    tasks = (joblib.delayed(work)(cell) for cell in todo)
    with ExitStack() as stack:
        if backend == "dask":
            stack.enter_context(_dask(jobs))
        # Ctrl-C is reported by this process; otherwise each worker would print a traceback.
        quiet = {"initializer": _ignore_interrupts} if backend in (None, "loky") else {}
        try:
            stack.enter_context(joblib.parallel_config(backend or "loky", n_jobs=jobs, **quiet))
        except ValueError as error:
            raise UsageError(f"joblib has no backend {backend!r}; register it first. ({error})") from None
        try:
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        except ValueError:
            # A backend that returns lists alone gets a few cells at a time, so that they are saved.
            parallel = joblib.Parallel(batch_size=1)
            many = 4 * parallel.n_jobs if parallel.n_jobs > 0 else 64
            while batch := list(itertools.islice(tasks, many)):
                yield from parallel(batch)
            return
        try:
            yield from stack.enter_context(closing(parallel(tasks)))
        except BrokenExecutor:
            raise UsageError(
                "a worker process died, most likely for want of memory. What was finished is saved: "
                "run it again with fewer jobs."
            ) from None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _dask(jobs: int) -> Iterator[None]:
    """Use the Dask client there is, that of $DASK_SCHEDULER_ADDRESS, or one of this machine's cores."""
    try:
        import distributed
    except ImportError:
        raise UsageError("the backend dask needs: pip install 'distributed>=2025.1'.") from None
    dask: Any = distributed  # which has types in part
    try:
        dask.default_client()
    except ValueError:  # no table yet
        where = os.environ.get("DASK_SCHEDULER_ADDRESS")
        own = {"n_workers": jobs if jobs > 0 else None, "threads_per_worker": 1, "dashboard_address": None}
        try:
            client = dask.Client(where) if where else dask.Client(**own)
        except OSError as error:
            raise UsageError(
                f"no Dask scheduler answers at {where}: start it, or correct it. ({error})"
            ) from None
        with client:
            yield
    else:
        yield


class _Progress:
    """Shows on stderr how far a run is: a bar in a terminal, otherwise a line now and then."""

    def __init__(self, cells: int, todo: int, loud: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._todo, self._done, self._failed, self._loud = todo, 0, 0, loud
        self._start = self._last = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells, time left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not (loud and sys.stderr.isatty()),
            speed_estimate_period=600,  # cells may take minutes
        )
        self._task = self._bar.add_task("running", total=todo)
        if cells > todo:
            self.say(f"{cells - todo} of {cells} cells were finished before and are kept")

    @classmethod
    @contextmanager
    def start(cls, cells: int, todo: int, loud: bool) -> Iterator[_Progress]:
        """Show progress inside this context, and remove the bar at its end."""
        shown = cls(cells, todo, loud)
        with nullcontext() if shown._bar.disable else shown._bar:  # rich 14 ends even one that is not shown
            yield shown
        if todo:
            shown.say(f"{shown._done} cells run, {shown._failed} failed")

    def say(self, text: str) -> None:
        """Write a line, above the bar if there is one."""
        if self._loud and self._bar.disable:
            print(text, file=sys.stderr, flush=True)
        elif self._loud:
            self._bar.console.print(text, highlight=False)

    def report_reused(self, cells: Iterable[dict[Any, Row]]) -> None:
        """Report reused rows that may surprise: rows of other versions, and failures."""
        rows = [row for cell in cells for row in cell.values()]
        others = {row["dphist"] for row in rows} - {__version__}
        if others:
            self.say(f"rows of dphist {', '.join(sorted(others))} are kept; this is {__version__}")
        failed = sum(row["status"] == "failed" for row in rows)
        if failed:
            self.say(f"{failed} of them are wrong requests that failed; a new folder would try them again")

    def step(self, *, failed: bool) -> None:
        """Count one more cell."""
        self._done += 1
        self._failed += failed
        what = f"running, {self._failed} failed" if self._failed else "running"
        self._bar.update(self._task, advance=1, description=what)
        now = time.monotonic()
        if self._bar.disable and now - self._last >= _QUIET:
            left = (now - self._start) / self._done * (self._todo - self._done)
            self.say(f"{what}: {self._done} of {self._todo} cells, about {left / 60:.1f} minutes left")
            self._last = now
