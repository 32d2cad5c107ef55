"""Speed of the core against its limits: ``python -m benchmarks.core``.

One JSON line per figure on standard output, progress on standard error; the exit code is 1 if a limit is
missed. Times in this process are CPU time, those of other processes wall time: the minimum of the repeats.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchmarks import ledger
from dphist._common import __version__
from dphist.errors import DphistError, UsageError
from dphist.privacy import noise
from dphist.privacy.ledger import Charge, MemoryLedger

Row = dict[str, Any]
DRAWS = 10_000_000
SCALE = 10


def main() -> int:
    """Print every figure and return 1 if one misses its limit."""
    of_ledger = (ledger.race, ledger.wait, ledger.names, ledger.copies, ledger.kill)
    parts = (samplers, pipeline, afterwards, starting, *of_ledger)
    return _report(_in_turn({figures.__name__: figures for figures in parts}))


def samplers(*, n: int = DRAWS, peer_n: int = 100_000) -> Iterator[Row]:
    """Compare our sampler with OpenDP's, with numpy's, and with one scale per draw."""
    peer = _opendp()
    zeros = [0] * peer_n
    numpy_draws = np.random.Generator(np.random.PCG64(1))
    p = -np.expm1(-1 / SCALE)
    parts = np.random.default_rng(1).integers(1, 1001, n)
    source = noise.Secure()
    ours, theirs, each = _fastest(
        5,
        lambda: noise.laplace(_charge(), sensitivity=SCALE, size=n, source=source),
        lambda: numpy_draws.geometric(p, n) - numpy_draws.geometric(p, n),
        lambda: noise.laplace_each(_charge(), sensitivity=SCALE, parts=parts, whole=1000, source=source),
    )
    (opendp,) = _fastest(3, lambda: peer(zeros))
    what = f"discrete Laplace, scale {SCALE}, CPU time, minimum of repeats"
    yield _row("sampler", what, n, 5, ours / n * 1e9, "ns/draw")
    yield _row(
        "sampler against OpenDP",
        f"OpenDP vector<i64> at n={peer_n} (minimum of 3) over ours at n={n}, per draw; {what}",
        n,
        5,
        (opendp / peer_n) / (ours / n),
        "times as fast",
        at_least=200,
    )
    yield _row(
        "sampler against numpy",
        f"difference of two Generator(PCG64).geometric over ours, in turn; {what}",
        n,
        5,
        theirs / ours,
        "times as fast",
        at_least=1,
    )
    yield _row(
        "one scale per draw",
        f"laplace_each with parts 1 to 1000 of 1000 over laplace with one scale; {what}",
        n,
        5,
        each / ours,
        "times the time",
        at_most=2.5,
    )


def pipeline(*, n: int = 1_000_000) -> Iterator[Row]:
    """Compare a whole release of noisy counts with the draws inside it."""
    import dphist

    counts = np.random.default_rng(1).integers(0, 1000, n)
    source = noise.Secure()
    draw, release = _fastest(
        7,
        lambda: noise.laplace(_charge(), sensitivity=1, size=n, source=source),
        lambda: dphist.from_counts(counts, epsilon=1, method="identity"),
    )
    yield _row(
        "release of noisy counts",
        "from_counts(counts, epsilon=1, method='identity') over the noise draw alone; CPU time, minimum",
        n,
        7,
        release / draw,
        "times the time",
        at_most=3,
    )


def afterwards(*, n: int = 1_000_000, repeats: int = 5) -> Iterator[Row]:
    """Compare what is done with a release with a stable argsort of as many doubles."""
    import dphist
    from dphist.charts.histogram import histogram_chart
    from dphist.domain import workload
    from dphist.uncertainty import noise_law

    values = np.random.default_rng(1).normal(size=n)
    release = dphist.from_counts(np.zeros(n, np.int64), epsilon=1)
    ranges, scales = workload.AllRanges(n), np.geomspace(1, 1e6, 20)
    levels = iter(np.linspace(0.9, 0.95, repeats + 1).tolist())
    histogram_chart(release.domain, values).to_png()  # the first drawing starts the converter
    sort, wrapped, answered, quantile, drawn = _fastest(
        repeats,
        lambda: np.argsort(values, kind="stable"),
        lambda: replace(release, raw=values),
        lambda: ranges.squared_error(values),
        lambda: noise_law.sum_quantile(scales, np.full(20, 1000), next(levels)),
        lambda: histogram_chart(release.domain, values, low=values - 1, high=values + 1).to_png(),
    )
    for name, taken, most in (
        ("a release made of its values", wrapped, 0.3),
        ("the squared error over all ranges", answered, 1.0),
        ("a quantile of 20,000 draws of 20 scales", quantile, 0.1),
        ("a picture with intervals", drawn, 15.0),
    ):
        what = f"{name}, over a stable argsort of as many doubles; CPU time, minimum"
        yield _row(name, what, n, repeats, taken / sort, "argsorts", at_most=most)


def starting(*, repeats: int = 7) -> Iterator[Row]:
    """Time what a person waits for first: the import and the help page, in processes of their own."""
    codes = ("import numpy", "import dphist", "import dphist; dphist.histogram")
    commands = [[sys.executable, "-c", code] for code in codes]
    script = Path(sys.executable).with_name("dphist")
    if not script.exists():
        raise UsageError(f"there is no {script}: install the package first, with pip install -e .")
    commands.append([str(script), "--help"])
    runs = [
        lambda c=command: subprocess.run(c, check=True, stdout=subprocess.DEVNULL) for command in commands
    ]
    base, package, function, page = _fastest(repeats, *runs, clock=time.perf_counter)
    what = "in a new process, wall time, minimum; the interpreter's own start is in both"
    for code, seconds in zip(codes[1:], (package, function), strict=True):
        yield _row(
            "import", f"'{code}' over 'import numpy', {what}", 1, repeats, seconds / base, "times", at_most=3
        )
    yield _row("help", "dphist --help, wall time, minimum", 1, repeats, page, "s", at_most=1)


def _opendp() -> Callable[[list[int]], object]:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise UsageError("the comparison needs OpenDP: pip install opendp") from error
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measure: Callable[[list[int]], object] = dp.m.make_laplace(*space, scale=float(SCALE))
    return measure


def _charge() -> Charge:
    return MemoryLedger().charge(Fraction(1), mechanism="bench", what="nothing")


def _fastest(
    repeats: int, *runs: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return each run's least time; they take turns, so that a busy moment hits all alike."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            start = clock()
            run()
            best[i] = min(best[i], clock() - start)
    return best


def _row(
    name: str,
    what: str,
    n: int,
    repeats: int,
    value: float,
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    limit: Any = at_most if at_most is not None else at_least
    if at_most is not None and at_least is not None:
        limit = [at_least, at_most]
    passed = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    found: Row = {"name": name, "what": what, "n": n, "repeats": repeats, "value": float(f"{value:.4g}")}
    return found | {"unit": unit, "limit": limit, "pass": passed}


def _in_turn(parts: Mapping[str, Callable[[], Iterable[Row]]]) -> Iterator[Row]:
    """Yield the figures of every part, and say which is at work."""
    for name, figures in parts.items():
        _say(f"{name} ...")
        yield from figures()


def _report(rows: Iterable[Row], *, table: Path | None = None, about: str = "") -> int:
    """Print figures as they come; return 1 if one misses its limit.

    Args:
        table: a Markdown file to be written with all of them.
        about: what stands above them in it.
    """
    kept = []
    for row in rows:
        print(json.dumps(row), flush=True)
        kept.append(row)
    if table is not None:
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(_table(kept, about), "utf-8")
    missed = sum(not row["pass"] for row in kept)
    _say(f"{missed} limits missed" if missed else "all within their limits")
    return int(missed > 0)


def _table(rows: Sequence[Row], about: str) -> str:
    lines = [about.strip(), "", f"{time.strftime('%Y-%m-%d')}, dphist {__version__}.", ""]
    lines += ["| what | repeats | figure | unit | limit |", "| --- | ---: | ---: | --- | ---: |"]
    for row in rows:
        limit = "" if row["limit"] is None else f"{row['limit']:g}"
        figure = f"{row['value']:.4g}" if row["pass"] else f"**{row['value']:.4g}**"
        cells = (f"{row['name']}: {row['what']}", row["repeats"], figure, row["unit"], limit)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _run(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark as a command."""
    try:
        sys.exit(main())
    except DphistError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    _run(main)
