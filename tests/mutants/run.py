"""Plants privacy bugs one at a time in a copy of the source tree, and shows the test that kills each.

``make mutants`` runs all of them; ``--only NAME ...`` some; ``--changed`` those in files that differ from a
branch. The bugs stand in ``mutations.toml``, what became of them in ``results/mutants.md``, whose tests are
tried first the next time. The working tree is never touched.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests/mutants/mutations.toml"
REPORT = ROOT / "results/mutants.md"
PARTS = (
    ".ci",
    "src",
    "tests",
    "papers",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
    "constraints.txt",
)
# What is tried when the tests named for a bug do not notice it.
BROAD = tuple(
    f"tests/{name}.py"
    for name in [
        "privacy/test_verbs",
        "privacy/test_curator",
        "privacy/test_l1",
        "privacy/test_splits",
        "privacy/test_noise",
        "privacy/test_counts",
        "test_api",
        "privacy/test_ledger",
        "release/test_release_contents",
        "privacy/test_boundary",
        "privacy/test_limits",
    ]
)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "numba", "duckdb", "pandas", "polars", "pyarrow.parquet", "scipy.stats", "sqlglot"]
)
_ROW = re.compile(r"^\| (\S+) \| .* \| `(tests/\S+)` \| (quick|slow) \|$")


@dataclass(frozen=True)
class Mutation:
    """A bug: one text in one file that becomes another, and the tests that should notice."""

    name: str
    what: str
    file: str
    was: str
    became: str
    tests: tuple[str, ...]

    def plant(self, text: str) -> str:
        """Return the text with the bug; the place must be there, and once."""
        if text.count(self.was) != 1:
            raise SystemExit(f"{self.name}: its text occurs {text.count(self.was)} times in {self.file}.")
        return text.replace(self.was, self.became)


@dataclass(frozen=True)
class Outcome:
    """What became of a bug: the test that killed it, or None."""

    mutation: Mutation
    killer: str | None
    slow: bool = False

    def row(self) -> str:
        """Return it as a row of the report."""
        bug = self.mutation
        end = f"`{self.killer}` | {'slow' if self.slow else 'quick'}" if self.killer else "**survives** | "
        return f"| {bug.name} | {bug.what} | `{bug.file}` | {end} |"


def mutations() -> list[Mutation]:
    """Return the bugs of the table."""
    rows = tomllib.loads(TABLE.read_text())["mutation"]
    return [Mutation(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def known() -> dict[str, Outcome]:
    """Return what the report says of each bug that it tells killed."""
    if not REPORT.exists():
        return {}
    found = [m for line in REPORT.read_text().splitlines() if (m := _ROW.match(line))]
    bugs = {bug.name: bug for bug in mutations()}
    return {m[1]: Outcome(bugs[m[1]], m[2], m[3] == "slow") for m in found if m[1] in bugs}


def copy_tree(where: Path) -> Path:
    """Copy what the tests need, times and caches included, so that no loop is compiled again."""
    where.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, where / part, copy_function=shutil.copy2)
        elif source.exists():
            shutil.copy2(source, where / part)
    return where


def failing(tree: Path, tests: Iterable[str], *, slow: bool) -> str | None:
    """Return the first test that fails, or None if all pass."""
    words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "slow" if slow else "not slow", *tests]
    with tempfile.NamedTemporaryFile("r", suffix=".txt") as told:
        child = FORKS.Process(target=_pytest, args=(tree, words, told.name))
        child.start()
        child.join()
        text = told.read()
    # As pytest wrote it: what a fork server knows of its children is now and then lost.
    code = int(last[1]) if (last := re.search(r"^ended: (\d+)$", text, re.MULTILINE)) else child.exitcode
    if code in (0, 5):  # 5: there is no such test
        return None
    found = re.search(r"^(?:FAILED|ERROR) (tests/[\w/.:]+)", text, re.MULTILINE)  # without parameters
    if found is None:
        raise SystemExit(f"pytest ended with {code}:\n{text[-3000:]}")
    return found[1]


def _pytest(tree: Path, words: list[str], told: str) -> None:
    """Run pytest on a tree, in a process that has imported all but dphist already."""
    with Path(told).open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(tree)
    sys.dont_write_bytecode = False  # of the same files many times
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path.insert(0, str(tree / "src"))
    import pytest

    code = int(pytest.main(words))
    print(f"\nended: {code}", flush=True)
    sys.exit(code)


def attack(bug: Mutation, tree: Path, hint: Outcome | None) -> Outcome:
    """Plant a bug in a copy, look for a test that fails, and take it out again."""
    path = tree / bug.file
    before, times = path.read_text(), path.stat()
    path.write_text(bug.plant(before))
    try:
        if hint is not None and hint.killer and failing(tree, [hint.killer], slow=hint.slow):
            return hint
        for tests, slow in ((bug.tests[:1], False), (bug.tests, False), (bug.tests, True), (BROAD, False)):
            if killer := failing(tree, tests, slow=slow):
                return Outcome(bug, killer, slow)
        return Outcome(bug, None)
    finally:
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def report(outcomes: list[Outcome]) -> str:
    """Return the table with a summary above it."""
    killed = [o for o in outcomes if o.killer]
    slow = sum(o.slow for o in killed)
    left = [o.mutation.name for o in outcomes if not o.killer]
    return "\n".join(
        [
            "# Privacy bugs, planted one at a time",
            "",
            f"`make mutants` plants {len(outcomes)} bugs, one at a time in a copy of the source. "
            "What each line was and became stands in `tests/mutants/mutations.toml`. "
            f"Killed: {len(killed)}, of these {len(killed) - slow} by quick tests (`make quick`) and {slow} "
            f"by slow ones (`make test`). Survivors: {', '.join(left) or 'none'}.",
            "",
            "The test named is the first that failed; others may too.",
            "",
            "| | the bug | file | killed by | |",
            "|---|---|---|---|---|",
            *(outcome.row() for outcome in outcomes),
            "",
        ]
    )


def main() -> None:
    """Attack, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="bugs to plant; by default all")
    parser.add_argument("--changed", metavar="BRANCH", nargs="?", const="main", help="those in changed files")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    asked = parser.parse_args()
    bugs, hints = mutations(), known()
    some = bugs
    if asked.only:
        some = [bug for bug in bugs if bug.name in asked.only]
    if asked.changed:
        diff = ["git", "diff", "--name-only", asked.changed]
        names = subprocess.run(diff, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        some = [bug for bug in some if bug.file in names]
    for bug in some:
        bug.plant((ROOT / bug.file).read_text())
    with tempfile.TemporaryDirectory(prefix="dphist-mutants-") as temporary:
        trees: Queue[Path] = Queue()
        for i in range(asked.jobs):
            trees.put(copy_tree(Path(temporary) / str(i)))

        def one(bug: Mutation) -> Outcome:
            tree = trees.get()
            try:
                outcome = attack(bug, tree, hints.get(bug.name))
            finally:
                trees.put(tree)
            print(outcome.row(), flush=True)
            hints[bug.name] = outcome
            REPORT.write_text(report([hints.get(b.name, Outcome(b, None)) for b in bugs]))
            return outcome

        with ThreadPoolExecutor(asked.jobs) as pool:
            found = {o.mutation.name: o for o in pool.map(one, some)}

        def fails_anyway(test: tuple[str, bool]) -> bool:
            tree = trees.get()
            try:
                return failing(tree, [test[0]], slow=test[1]) is not None
            finally:
                trees.put(tree)

        tests = sorted({(o.killer, o.slow) for o in found.values() if o.killer})
        with ThreadPoolExecutor(asked.jobs) as pool:  # each alone, as it was run with the bug
            broken = {test for test, fails in zip(tests, pool.map(fails_anyway, tests), strict=True) if fails}
    for name, outcome in found.items():
        if (outcome.killer, outcome.slow) in broken:  # a test that fails anyway kills nothing
            print(f"{outcome.killer} fails without any bug: mend it, and plant {name} again.")
            found[name] = Outcome(outcome.mutation, None)
    merged = [found.get(bug.name) or hints.get(bug.name) or Outcome(bug, None) for bug in bugs]
    REPORT.write_text(report(merged))
    left = [o.mutation.name for o in merged if not o.killer]
    print(
        f"{len(merged) - len(left)} of {len(merged)} killed" + (f"; left: {', '.join(left)}" if left else "")
    )
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
