"""The ledger under stress: many processes, two names, copies, and kills between charge and draw."""

from __future__ import annotations

import itertools
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dphist.errors import BudgetExceeded, LedgerError
from dphist.privacy.ledger import Entry, Ledger

Row = dict[str, Any]
STEP = Fraction(1, 1000)


def race(*, processes: int = 8, charges: int = 600) -> list[Row]:
    """Let processes charge at once until each is refused; the total must be the limit exactly."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "race.db")
        ledger = Ledger.open(path, create=True)
        ledger.set_limit("default", 1)
        # Three sizes of charge: the smallest goes on until nothing at all is left.
        sizes = [Fraction(1 + i % 3, charges) for i in range(processes)]
        said, seconds = _together([("charge_until_refused", path, size) for size in sizes])
        granted = [int(word) for word in said]
        ledger.verify()
        spent, rows = ledger.spent("default"), ledger.entries()
    given = sum((g * size for g, size in zip(granted, sizes, strict=True)), Fraction(0))
    made = sum(granted)
    journaled = sum(entry.kind == "charge" for entry in rows)

    def row(what: str, value: float, unit: str, *, passed: bool, limit: float | None = 0) -> Row:
        return _row("ledger race", what, processes, made, value, unit, limit, passed=passed)

    return [
        row("distance of the total from the limit", float(spent - 1), "epsilon", passed=spent == 1),
        row("charges granted and not journaled", made - journaled, "charges", passed=made == journaled),
        row("granted less journaled", float(given - spent), "epsilon", passed=given == spent),
        row("charges per second", made / seconds, "charges/s", passed=True, limit=None),
    ]


def wait(*, processes: int = 16, charges: int = 40) -> list[Row]:
    """Time every charge while so many processes charge without a pause."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wait.db")
        ledger = Ledger.open(path, create=True)
        said, _ = _together([("charge_and_time", path, charges)] * processes)
        seconds = sorted(float(word) for line in said for word in line.split())
        journaled = len(ledger.entries())
    median, slow = statistics.median(seconds), seconds[len(seconds) * 99 // 100]

    def row(what: str, value: float, unit: str, limit: float | None, *, passed: bool = True) -> Row:
        return _row("ledger wait", what, processes, len(seconds), value, unit, limit, passed=passed)

    lost = processes * charges - journaled
    return [
        row("charges made and not journaled", lost, "charges", 0, passed=not lost),
        row("a charge, median", 1e3 * median, "ms", None),
        row("a charge, 99 of 100", 1e3 * slow, "ms", None),
        row("99 of 100 over median", slow / median, "times the time", 20, passed=slow <= 20 * median),
    ]


def names(*, processes: int = 4, charges: int = 100) -> list[Row]:
    """Charge one file under two names at once; every charge must be in the journal, under either name."""
    with tempfile.TemporaryDirectory() as folder:
        path, link = Path(folder, "one.db"), Path(folder, "other.db")
        Ledger.open(path, create=True)
        link.hardlink_to(path)
        work = [("charge_and_time", (path, link)[i % 2], charges) for i in range(processes)]
        made = sum(len(line.split()) for line in _together(work)[0])
        journaled = [len(Ledger.open(name).entries()) for name in (path, link)]
    lost = made - min(journaled)
    what = "charges made under two names and not journaled"
    return [_row("ledger names", what, processes, made, lost, "charges", 0, passed=not lost)]


def copies(*, processes: int = 2, charges: int = 150) -> list[Row]:
    """Copy a ledger again and again while it is charged; a copy is refused, or holds all made before it."""
    taken = refused = short = 0
    with tempfile.TemporaryDirectory() as folder:
        path, copy = Path(folder, "busy.db"), Path(folder, "copy.db")
        ledger = Ledger.open(path, create=True)
        children = [_child("charge_and_time", path, charges) for _ in range(processes)]
        for child in children:
            _hear(child, "ready")
        for child in children:
            _say(child)
        while any(child.poll() is None for child in children):
            before = ledger.spent("default")
            shutil.copyfile(path, copy)
            taken += 1
            try:
                short += Ledger.open(copy).spent("default") < before
            except LedgerError:
                refused += 1
        for child in children:
            child.communicate()

    def row(what: str, value: int, limit: int | None) -> Row:
        passed = limit is None or value <= limit
        return _row("ledger copies", what, taken, charges, value, "copies", limit, passed=passed)

    return [row("copies that lack a charge made before", short, 0), row("copies refused", refused, None)]


def kill(*, repeats: int = 100) -> list[Row]:
    """Kill -9 processes between charge and draw, and at any moment; no draw may be unpaid.

    The draw is a line written to a file, after ``Charge.use``, with the name its charge is journaled under.
    """
    limit, most, unreadable = 4 * repeats * STEP, Fraction(0), 0  # each two kills need at most 6 steps
    moments = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path, drawn = Path(folder, "kill.db"), Path(folder, "draws.txt")
        drawn.touch()
        ledger = Ledger.open(path, create=True)
        ledger.set_limit("default", limit)
        for i in range(repeats):
            between = i % 2 == 0
            child = _child("charge_and_draw", path, drawn, i, int(between))
            _hear(child, "ready")
            _say(child)
            if between:
                _hear(child, "charged")
            else:
                time.sleep(moments.uniform(0, 0.06))
            child.kill()
            child.communicate()
            try:
                most = max(most, Ledger.open(path).spent("default"))
            except LedgerError:
                unreadable += 1
        entries, draws = ledger.entries(), drawn.read_text().split()
        charges = sum(entry.kind == "charge" for entry in entries)
        unpaid, wasted = account(entries, draws)
        survivor = _child("charge_until_refused", path, STEP)
        survivor.communicate("\n")
        ledger.verify()
        total = ledger.spent("default")

    def row(what: str, value: float, unit: str, most: float, *, passed: bool) -> Row:
        return _row("ledger kill", what, charges, repeats, value, unit, most, passed=passed)

    return [
        row("most spent after a kill", float(most), "epsilon", float(limit), passed=most <= limit),
        row("kills after which the ledger was unreadable", unreadable, "kills", 0, passed=not unreadable),
        row("draws without a journal row of their own", unpaid, "draws", 0, passed=not unpaid),
        # A process has at most one charge between journal and draw when it is killed.
        row("charges wasted", wasted, "charges", repeats, passed=wasted <= repeats),
        row(
            "total once the survivor is refused", float(total), "epsilon", float(limit), passed=total == limit
        ),
    ]


def account(entries: Iterable[Entry], draws: Iterable[str]) -> tuple[int, int]:
    """Return how many draws have no journal row of their own, and how many charges have no draw."""
    paid = Counter(entry.what for entry in entries if entry.kind == "charge")
    made = Counter(draws)
    return (made - paid).total(), (paid - made).total()


def charge_until_refused(path: str, epsilon: str) -> None:
    """Be a child process: charge until refused, and print how many charges were granted."""
    ledger = Ledger.open(path)
    _ready()
    for granted in itertools.count():
        try:
            ledger.charge(Fraction(epsilon), mechanism="race", what="stress")
        except BudgetExceeded:
            print(granted)
            return


def charge_and_time(path: str, charges: str) -> None:
    """Be a child process: charge so many times, and print how many seconds each charge took."""
    ledger = Ledger.open(path)
    _ready()
    seconds = []
    for _ in range(int(charges)):
        start = time.perf_counter()
        ledger.charge(STEP, mechanism="time", what="stress")
        seconds.append(time.perf_counter() - start)
    print(*seconds)


def open_and_charge(path: str, dataset: str) -> None:
    """Be a child process: open a ledger when told to, and charge once."""
    _ready()
    Ledger.open(path).charge(STEP, dataset=dataset, mechanism="open", what="stress")
    print("charged")


def charge_and_draw(path: str, drawn: str, name: str, between: str) -> None:
    """Be a child process: charge and draw five times, or charge once; then wait to be killed."""
    ledger = Ledger.open(path)
    with Path(drawn).open("ab", buffering=0) as out:
        _ready()
        for i in range(5):
            charge = ledger.charge(STEP, mechanism="kill", what=f"{name}-{i}")
            if int(between):
                print("charged", flush=True)
                time.sleep(60)
            charge.use()
            out.write(f"{name}-{i}\n".encode())
        time.sleep(60)


def _together(work: Sequence[tuple[object, ...]]) -> tuple[list[str], float]:
    """Start child processes, let them begin at once, and return what each said and how long they took."""
    children = [_child(str(verb), *arguments) for verb, *arguments in work]
    for child in children:
        _hear(child, "ready")
    start = time.perf_counter()
    for child in children:
        _say(child)
    said = [child.communicate()[0] for child in children]
    return said, time.perf_counter() - start


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _child(verb: str, *arguments: object) -> subprocess.Popen[str]:
    code = f"import sys; from benchmarks.ledger import {verb}; {verb}(*sys.argv[1:])"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _hear(child: subprocess.Popen[str], word: str) -> None:
    heard = child.stdout.readline().strip() if child.stdout else ""
    if heard != word:
        raise LedgerError(
            f"a process of the stress test said {heard!r} instead of {word!r}; see its error above."
        )


def _say(child: subprocess.Popen[str]) -> None:
    if child.stdin:
        child.stdin.write("\n")
        child.stdin.flush()


def _row(
    name: str, what: str, n: int, repeats: int, value: float, unit: str, limit: float | None, *, passed: bool
) -> Row:
    return {
        "name": name,
        "what": what,
        "n": n,
        "repeats": repeats,
        "value": value,
        "unit": unit,
        "limit": limit,
        "pass": passed,
    }
