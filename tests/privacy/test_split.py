"""Parallel composition: curators of disjoint groups share one charge, whoever is asked first and why."""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import os
import pickle
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import PrivacyError, UsageError
from dphist.privacy.counts import MAX_COUNT, Counts
from dphist.privacy.curator import Curator
from dphist.privacy.ledger import Ledger, MemoryLedger
from scripted import Script, run

ALL, HALF = Fraction(1), Fraction(1, 2)
EACH = Groups.singletons(2)


def curator(x, *, sensitivity=1, epsilon=1, book=None):
    x = np.asarray(x)
    domain = Domain(tuple(Integers(0, n - 1) for n in x.shape))
    charge = (book or MemoryLedger()).charge(Fraction(epsilon), mechanism="test", what="test")
    return Curator(Counts(x, domain, sensitivity, "one person"), charge)


def adaptive(top: Curator) -> list[int]:
    """Ask two groups by turns, each question chosen by what the other group said."""
    a, b = top.split(EACH, share=ALL)
    told = a.measure(Groups.singletons(2), share=HALF).values.tolist()
    if sum(told) % 2:
        return told + b.measure(Groups.singletons(2), share=ALL).values.tolist()
    total = b.measure(Groups.whole(2), share=Fraction(9, 10)).values.tolist()
    share = HALF if total[0] > 1 else Fraction(1, 4)
    again = a.measure(Groups.whole(2), share=share).values.tolist()
    return told + total + again + b.measure(Groups.whole(2), share=Fraction(1, 10)).values.tolist()


def levels(top: Curator) -> list[int]:
    """Measure the sum of the groups and each of them, one share after the other."""
    out = []
    for rows, share in ((Groups.whole(2), Fraction(1, 5)), (EACH, Fraction(4, 5))):
        for part in top.split(rows, share=share):
            out += part.measure(Groups.singletons(2), share=ALL).values.tolist()
    return out


def blocks(top: Curator) -> list[int]:
    """Measure the cells of all groups of a block at once."""
    (both,) = top.split(Groups.whole(2), share=HALF, summed=False)
    out = both.measure(Groups.singletons(4), share=ALL).values.tolist()
    for part in top.split(EACH, share=HALF, summed=False):
        out += part.measure(Groups.singletons(2), share=ALL).values.tolist()
    return out


def lost(ask, x, y, noise, sensitivity) -> float:
    """Return how much likelier the answers that this noise leads to on x are there than on y: exactly.

    The noise that leads to the same answers on y is found draw by draw, by the mechanism itself; what it
    is likelier or less likely follows from the scales that the mechanism drew with.
    """
    script = Script(list(noise))
    answers = run(ask, x, script, sensitivity=sensitivity)
    drawn, scales = script.values[: len(script.scales)], script.scales
    other: list[int] = []
    for i, answer in enumerate(answers):
        without = run(ask, y, Script([*other, 0]), sensitivity=sensitivity)
        other.append(answer - without[i])
    return sum((abs(b) - abs(a)) / s for a, b, s in zip(drawn, other, scales, strict=True))


@pytest.mark.parametrize("ask", [adaptive, levels, blocks])
@pytest.mark.parametrize("records", [1, 2])
def test_a_unit_costs_epsilon_however_many_groups_it_is_in(ask, records):
    x = np.array([[1, 2], [0, 1]])
    worst = 0.0
    for cells in itertools.combinations_with_replacement(range(4), records):
        y = x.copy()
        np.add.at(y.reshape(-1), list(cells), 1)
        for noise in itertools.product((-1, 2), repeat=3):
            for one, two in ((x, y), (y, x)):
                worst = max(worst, lost(ask, one, two, noise, records))
    assert worst == pytest.approx(1.0, abs=1e-9)  # not above epsilon, and the whole of it is used


def test_a_step_that_reads_another_group_is_found():
    def cheating(top: Curator) -> list[int]:
        a, _ = top.split(EACH, share=ALL)
        (all_of_it,) = top_again(top).split(Groups.whole(2), share=ALL)
        return [
            *a.measure(Groups.whole(2), share=ALL).values.tolist(),
            *all_of_it.measure(Groups.whole(2), share=ALL).values.tolist(),
        ]

    def top_again(top: Curator) -> Curator:
        return Curator.simulated(top._Curator__counts, epsilon=top.epsilon, seed=0)

    x, y = np.array([[1, 2], [0, 1]]), np.array([[2, 2], [0, 1]])
    worst = max(lost(cheating, x, y, z, 1) for z in itertools.product((-2, 0, 3), repeat=2))
    assert worst == pytest.approx(2.0)


def test_every_group_has_its_own_sums_and_the_whole_sensitivity():
    x = np.arange(12).reshape(4, 3)
    rows = Groups(np.array([0, 1, 4]), np.array([2, 0, 1, 3]))
    big = 10**6  # so much budget that the noise is nothing
    parts = list(curator(x, sensitivity=5, epsilon=5 * big).split(rows, share=ALL))
    found = [part.measure(Groups.singletons(3), share=ALL).values.tolist() for part in parts]
    assert found == [x[2].tolist(), x[[0, 1, 3]].sum(axis=0).tolist()]
    assert [(p.sensitivity, p.unit, p.domain.shape) for p in parts] == [(5, "one person", (3,))] * 2
    cells = list(curator(x, epsilon=big).split(rows, share=ALL, summed=False))
    assert [p.domain.shape for p in cells] == [(1, 3), (3, 3)]
    found = [p.measure(Groups.singletons(p.domain.n), share=ALL).values.tolist() for p in cells]
    assert found == [x[2].tolist(), x[[0, 1, 3]].ravel().tolist()]


def test_one_line_of_a_journal_pays_for_all_groups(tmp_path):
    book = Ledger.open(tmp_path / "l.db", create=True)
    top = curator(np.ones((3000, 2), int), book=book)
    parts = top.split(Groups.singletons(3000), share=ALL)
    assert [(s.purpose, s.epsilon) for s in top.spent] == [("3,000 disjoint groups, each", 1)]
    for part in parts:
        part.measure(Groups.whole(2), share=ALL)
    assert (len(book.entries()), book.spent("default")) == (1, 1)


def test_the_share_is_taken_at_the_call_and_no_more_than_there_is():
    top = curator(np.ones((2, 2), int))
    top.split(EACH, share=HALF)  # nobody asks any of them
    with pytest.raises(PrivacyError, match="1/2 of it is used or taken"):
        top.split(EACH, share=Fraction(2, 3))
    with pytest.raises(PrivacyError, match="1/2 of it is used or taken"):
        top.measure(Groups.whole(4), share=Fraction(2, 3))
    top.split(EACH, share=HALF)
    with pytest.raises(PrivacyError):
        top.split(EACH, share=Fraction(1, 1000))


def test_the_groups_come_once_and_none_can_spend_twice():
    parts = curator(np.ones((2, 2), int)).split(EACH, share=ALL)
    first, _ = parts
    assert list(parts) == []
    first.measure(Groups.whole(2), share=ALL)
    with pytest.raises(PrivacyError, match="is used or taken"):
        first.measure(Groups.whole(2), share=Fraction(1, 100))


def forked(act) -> str:
    """Return what an act in a forked process says: the name of its error, or what it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = act()
        except Exception as error:
            said = type(error).__name__
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_gets_no_group():
    parts = curator(np.ones((3, 2), int)).split(Groups.singletons(3), share=ALL)
    first = next(parts)

    def draw(part) -> str:
        part.measure(Groups.whole(2), share=ALL)
        return "drawn"

    assert forked(lambda: draw(next(parts))) == "PrivacyError"  # not made yet
    assert forked(lambda: draw(first)) == "PrivacyError"  # made already
    assert [draw(part) for part in (first, *parts)] == ["drawn"] * 3


def test_rows_that_are_altered_later_move_no_group():
    x = np.arange(8).reshape(4, 2)
    rows = Groups(np.array([0, 1, 2, 4]), np.array([3, 2, 1, 0]))
    parts = curator(x, epsilon=10**6).split(rows, share=ALL)
    found = [next(parts)]
    for array, now in ((rows.starts, [0, 2, 3, 4]), (rows.order, [3, 3, 3, 3])):
        array.flags.writeable = True
        array[:] = now
    found += parts
    told = [part.measure(Groups.singletons(2), share=ALL).values.tolist() for part in found]
    assert told == [[6, 7], [4, 5], [2, 4]]


def test_a_copy_of_a_part_draws_on_the_same_charge_and_none_is_pickled():
    parts = curator(np.ones((2, 2), int)).split(EACH, share=ALL)
    first = next(parts)
    for make in (copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError):
            make(first)
    with pytest.raises(TypeError):
        copy.copy(parts)
    copy.copy(first).measure(Groups.whole(2), share=ALL)
    with pytest.raises(PrivacyError, match="is used or taken"):
        first.measure(Groups.whole(2), share=ALL)


def test_a_refused_question_costs_a_part_nothing_and_threads_share_what_it_has():
    (part,) = curator(np.ones((1, 3), int)).split(Groups.whole(1), share=ALL)
    with pytest.raises(UsageError):
        part.measure(Groups.whole(5), share=ALL)
    drawn = []

    def draw() -> None:
        with contextlib.suppress(PrivacyError):
            drawn.append(part.measure(Groups.whole(3), share=HALF))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 2


def test_threads_that_take_groups_by_turns_get_each_once():
    parts = curator(np.arange(400).reshape(200, 2), epsilon=10**6).split(Groups.singletons(200), share=ALL)
    found = []

    def take() -> None:
        while True:
            try:
                part = next(parts)
            except StopIteration:
                return
            except ValueError:  # another thread is taking one
                continue
            found.append(part.measure(Groups.singletons(2), share=ALL).values.tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[2 * i, 2 * i + 1] for i in range(200)]


class Overlapping(Groups):
    """Says that it is a partition, and hands out all rows every time."""


@pytest.mark.parametrize(
    ("rows", "share", "error"),
    [
        (Overlapping(np.arange(3)), ALL, PrivacyError),
        (np.arange(3), ALL, PrivacyError),
        (Groups.singletons(3), ALL, UsageError),
        (EACH, Fraction(3, 2), PrivacyError),
        (EACH, Fraction(-1), PrivacyError),
        (EACH, 0.5, PrivacyError),
    ],
)
def test_what_is_no_partition_or_no_share_is_refused_and_costs_nothing(rows, share, error):
    top = curator(np.ones((2, 2), int))
    with pytest.raises((error, UsageError)):
        top.split(rows, share=share)
    assert top.spent == ()
    top.measure(Groups.whole(4), share=ALL)


def test_a_line_has_no_rows_to_split():
    with pytest.raises(UsageError, match="takes a grid"):
        curator(np.ones(4, int)).split(Groups.singletons(4), share=ALL)


def test_sums_beyond_what_a_count_may_be_are_no_refusal():
    top = curator(np.full((3, 2), MAX_COUNT), epsilon=10**6)
    (whole,) = top.split(Groups.whole(3), share=ALL)
    assert whole.measure(Groups.singletons(2), share=ALL).values.tolist() == [MAX_COUNT] * 2


def test_the_parts_of_a_simulated_curator_are_simulated():
    held = Counts(np.ones((2, 2), int), Domain((Integers(0, 1), Integers(0, 1))))
    parts = Curator.simulated(held, epsilon=ALL, seed=3).split(EACH, share=ALL)
    assert all(part.is_simulated and part.release is None for part in parts)


def test_parallel_charges_are_made_in_one_place():
    """A charge that many may draw on must come with records of its own: only the curator hands it out."""
    calls = [
        (path.relative_to(Path(dphist.__file__).parent).as_posix(), node.func.attr)
        for path in Path(dphist.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "each"
    ]
    assert calls == [("privacy/curator.py", "each")]
