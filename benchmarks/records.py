"""Counting records against its limits: ``python -m benchmarks.records``.

One JSON line per figure on standard output, progress on standard error; the exit code is 1 if a limit is
missed. The data is made in a temporary folder and removed. Ratios are of CPU time over all threads, of runs
that take turns: the minimum of the repeats. Wall times stand beside them; on a busy machine they mean little.
Memory is the peak of a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.core import Row, _fastest, _in_turn, _report, _row, _run, _say
from dphist.domain import Domain, Regular
from dphist.errors import UsageError
from dphist.records import count

LIMIT = "2GB"
ONE = Domain((Regular(lo=0, hi=100, bins=4096),))
GRID = Domain((Regular(lo=0, hi=100, bins=1000), Regular(lo=0, hi=100, bins=1000)))
_STEP = ONE.axes[0].edges[1].item()
_BY_HAND = f"""
    SELECT CAST(FLOOR(x / {_STEP!r}) AS BIGINT) AS bin, COUNT(*) AS tally
    FROM read_parquet(?) WHERE x BETWEEN 0 AND 100 GROUP BY bin
"""


def main() -> int:
    """Print every figure and return 1 if one misses its limit."""
    parts = (files, quoted, persons, engines, grid)
    return _report(_in_turn({figures.__name__: partial(_in_a_folder, figures) for figures in parts}))


def _in_a_folder(figures: Callable[[Path], Iterator[Row]]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="dphist-bench-") as folder:
        yield from figures(Path(folder))


def files(folder: Path, *, n: int = 50_000_000, repeats: int = 5) -> Iterator[Row]:
    """Compare a count with the same group-by written by hand, which does not care for edges."""
    path = _write(folder, n)

    def by_hand() -> object:
        with duckdb.connect(config={"memory_limit": LIMIT}) as connection:
            return connection.execute(_BY_HAND, [str(path)]).fetchnumpy()

    def ours() -> object:
        return count(path, ONE, columns="x")

    what = "Parquet, one column of doubles, 4,096 bins"
    by_us, theirs = _fastest(repeats, ours, by_hand)
    yield _row(
        "count against the group-by by hand",
        f"{what}; over SELECT FLOOR(x / step), COUNT(*) in DuckDB with the same memory; CPU time, minimum",
        n,
        repeats,
        by_us / theirs,
        "times the time",
        at_most=1.5,
    )
    walls = _fastest(repeats, ours, by_hand, clock=time.perf_counter)
    for name, wall in zip(("count", "group-by by hand"), walls, strict=True):
        yield _row(name, f"{what}; wall time, minimum", n, repeats, wall, "s")
    yield _row("memory of a count", f"{what}; peak of a process", n, 1, _peak(path, "x"), "MB", at_most=2000)


def quoted(folder: Path, *, n: int = 3_000_000, repeats: int = 5) -> Iterator[Row]:
    """Compare a count of CSV, each line read by itself, with DuckDB's own reader of the same file."""
    path = folder / "quoted.csv"
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT round(random() * 100, 3) AS x, 'ward \"' || (range % 6) || '\", north' AS ward "
            f"FROM range({n})) TO '{path}' (HEADER, FORCE_QUOTE *)"
        )

    def by_hand() -> object:
        with duckdb.connect(config={"memory_limit": LIMIT}) as connection:
            read = (
                "read_csv(?, all_varchar = true, header = true, delim = ',', quote = '\"', parallel = false)"
            )
            hand = _BY_HAND.replace("read_parquet(?)", f"(SELECT TRY_CAST(x AS DOUBLE) AS x FROM {read})")
            return connection.execute(hand, [str(path)]).fetchnumpy()

    def ours() -> object:
        return count(path, ONE, columns="x")

    by_us, theirs = _fastest(repeats, ours, by_hand)
    yield _row(
        "count of quoted CSV against the group-by by hand",
        "CSV, every field quoted, with doubled quotes and commas inside, 4,096 bins; over DuckDB's own "
        "reader, which lets one line take others with it; CPU time, minimum",
        n,
        repeats,
        by_us / theirs,
        "times the time",
        at_most=1.6,
    )


def persons(folder: Path, *, n: int = 20_000_000, people: int = 2_000_000, repeats: int = 3) -> Iterator[Row]:
    """Compare a count bounded per person with one that is not."""
    path = _write(folder, n, people)

    def free() -> object:
        return count(path, ONE, columns="x")

    def bounded() -> object:
        return count(path, ONE, columns="x", unit="person", max_contributions=3)

    what = f"Parquet, {people:,} persons, at most 3 records each, 4,096 bins, memory_limit {LIMIT}"
    without, per_person = _fastest(repeats, free, bounded)
    yield _row(
        "count per person against any record",
        f"{what}; over the same count without persons; CPU time, minimum",
        n,
        repeats,
        per_person / without,
        "times the time",
        at_most=4,
    )
    walls = _fastest(repeats, free, bounded, clock=time.perf_counter)
    for name, wall in zip(("count of any record", "count per person"), walls, strict=True):
        yield _row(name, f"{what}; wall time, minimum", n, repeats, wall, "s")
    peak = _peak(path, "x", unit="person")
    yield _row("memory of a count per person", f"{what}; peak of a process", n, 1, peak, "MB", at_most=2500)


def engines(folder: Path, *, n: int = 10_000_000) -> Iterator[Row]:
    """Compare the counts of Spark on this machine with those of DuckDB, bin by bin."""
    from dphist.records.engines import spark

    try:
        session = spark.session()
    except UsageError as error:
        _say(f"left out: {error}")
        return
    path = _write(folder, n)
    frame = session.read.parquet(str(path))
    here = count(path, ONE, columns="x").values
    start = time.perf_counter()
    there = count(frame, ONE, columns="x").values
    seconds = time.perf_counter() - start
    session.stop()
    what = "the same Parquet file, 4,096 bins, Spark on this machine"
    differ = float(np.count_nonzero(here != there))
    yield _row("Spark against DuckDB", f"{what}; bins that differ", n, 1, differ, "bins", at_most=0)
    yield _row("count in Spark", f"{what}; wall time, with its first compilation", n, 1, seconds, "s")


def grid(folder: Path, *, n: int = 10_000_000) -> Iterator[Row]:
    """Measure the memory of a count of a million bins."""
    path = _write(folder, n)
    peak = _peak(path, "x", "y")
    yield _row("memory of a grid", "1,000 x 1,000 bins; peak of a process", n, 1, peak, "MB", at_most=2000)


def _write(folder: Path, n: int, people: int = 1) -> Path:
    """Write n records that look random: two doubles from 0 to 100 and a person."""
    path = folder / "records.parquet"
    values = ", ".join(f"(hash(i * 8 + {k}) % 100000007) / 1000000.07 AS {c}" for k, c in enumerate("xy", 1))
    rows = f"SELECT CAST(hash(i) % {people} AS BIGINT) AS person, {values} FROM range({n}) AS t(i)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    return path


def _peak(path: Path, *columns: str, unit: str | None = None) -> float:
    """Return the peak memory of a process that counts, in MB; NaN where the system does not tell."""
    domain = "ONE" if len(columns) == 1 else "GRID"
    options = "" if unit is None else f", unit={unit!r}, max_contributions=3"
    # Not getrusage: its peak outlives exec, and would be that of this process.
    code = (
        "from pathlib import Path; from benchmarks.records import GRID, ONE; "
        f"from dphist.records import count; count({str(path)!r}, {domain}, columns={columns!r}{options}); "
        "print(Path('/proc/self/status').read_text())"
    )
    if not Path("/proc/self/status").exists():
        return float("nan")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    kilobytes = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1024


if __name__ == "__main__":
    _run(main)
