"""No test asserts how long something took: on a busy machine it would fail for no reason.

Times are compared in benchmarks, as ratios of runs that take turns. A test may wait until a deadline, and
compare one CPU time with another.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

WALL = {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "timeit"}
CPU = {"process_time", "process_time_ns", "thread_time", "thread_time_ns", "ru_utime", "ru_stime"}
TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))


def _reads(node: ast.AST, clocks: set[str]) -> bool:
    """Say whether an expression reads one of the clocks itself: time.perf_counter(), or perf_counter()."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in clocks - {"time"}:
            return True
        if isinstance(part, ast.Call):
            called = part.func
            if isinstance(called, ast.Name) and called.id in clocks - {"time"}:
                return True
            of_module = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
            if of_module and called.value.id == "time" and called.attr in clocks:
                return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _timed(tree: ast.AST, clocks: set[str], known: set[str]) -> set[str]:
    """Return the names that hold what was worked out from a clock: variables, lists, and functions."""
    found = set(known)

    def tainted(node: ast.AST | None) -> bool:
        return node is not None and (_reads(node, clocks) or bool(_names(node) & found))

    while True:
        before = len(found)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if tainted(node.value):
                    found |= {n for target in targets for n in _names(target)}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("test") and any(
                    isinstance(part, ast.Return) and tainted(part.value) for part in ast.walk(node)
                ):
                    found.add(node.name)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("append", "extend", "add")
                and any(tainted(value) for value in node.args)
            ):
                found |= _names(node.func.value)
        if len(found) == before:
            return found


def timed_asserts(source: str) -> list[int]:
    """Return the lines of asserts that compare a wall-clock time with anything, or CPU time with a number."""
    if not any(clock in source for clock in (*(WALL | CPU) - {"time"}, "time.time")):
        return []
    tree = ast.parse(source)
    lines = []
    for clocks, wall in ((WALL, True), (CPU, False)):
        outer = ast.Module(
            [node for node in tree.body if not getattr(node, "name", "").startswith(("test", "Test"))], []
        )
        plain = (node for node in outer.body if not isinstance(node, ast.FunctionDef | ast.ClassDef))
        shared = _timed(outer, clocks, set()) & {
            *(getattr(node, "name", "") for node in outer.body),
            *(name for node in plain for name in _names(node)),
        }
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for function in functions:
            names = _timed(function, clocks, shared)
            for node in ast.walk(function):
                if not isinstance(node, ast.Assert):
                    continue
                for part in ast.walk(node.test):
                    if not isinstance(part, ast.Compare):
                        continue
                    sides = [part.left, *part.comparators]
                    timed = [_reads(side, clocks) or bool(_names(side) & names) for side in sides]
                    if any(timed) and (wall or not all(timed)):
                        lines.append(node.lineno)
    return sorted(set(lines))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_no_test_asserts_a_time(path: Path) -> None:
    assert timed_asserts(path.read_text("utf-8")) == []


PLANTED = {
    "at once": "def test_x():\n    a = time.perf_counter()\n    f()\n    assert time.perf_counter() - a < 8",
    "by a name": "def test_x():\n    a = perf_counter()\n    took = perf_counter() - a\n    assert took < 1",
    "the best of several": (
        "def test_x():\n    best = 9\n    for _ in range(3):\n        t = time.monotonic()\n        f()\n"
        "        best = min(best, time.monotonic() - t)\n    assert best < 1"
    ),
    "by a function inside": (
        "def test_x():\n    def seconds():\n        t = time.time()\n        return time.time() - t\n"
        "    assert min(seconds() for _ in range(7)) < 0.2"
    ),
    "by a function outside": (
        "def seconds(f):\n    found = []\n    t = time.perf_counter_ns()\n    f()\n"
        "    found.append(time.perf_counter_ns() - t)\n    return min(found)\n"
        "def test_x():\n    assert seconds(f) < 3"
    ),
    "one wall time with another": (
        "def test_x():\n    a = time.time()\n    b = time.time()\n    assert time.time() - b < b - a"
    ),
    "CPU time with a number": (
        "def test_x():\n    a = time.process_time()\n    f()\n    assert time.process_time() - a < 5"
    ),
    "in a class": "class TestX:\n    def test_x(self):\n        t = time.time()\n        assert t < 1",
}
HARMLESS = {
    "a deadline": (
        "def test_x():\n    until = time.monotonic() + 60\n    while time.monotonic() < until and not g():\n"
        "        pass\n    assert g()"
    ),
    "a ratio of CPU times": (
        "def seconds(f):\n    t = process_time()\n    f()\n    return process_time() - t\n"
        "def test_x():\n    sort = seconds(f)\n    assert seconds(g) < 7 * sort"
    ),
    "a column called time": "def test_x():\n    assert table.time == 3 and row['time'] < 5",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_time_is_found(planted: str) -> None:
    assert len(timed_asserts(PLANTED[planted])) == 1


@pytest.mark.parametrize("harmless", HARMLESS)
def test_deadlines_and_ratios_are_not_mistaken_for_one(harmless: str) -> None:
    assert timed_asserts(HARMLESS[harmless]) == []
