"""The queries that the curator hands counts to: sealed, and each as sensitive as it says, on neighbours."""

import dataclasses
import inspect
from fractions import Fraction

import numpy as np
import pytest

from declared import EXAMPLES, also
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import DphistError, PrivacyError, UsageError
from dphist.privacy import queries
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

DECLARED = (*queries.LINEAR, *queries.SCORES)
UNITS = [1, 3]
ONE = Fraction(1)


def named(kind):
    return kind.__name__


def curator(x):
    return Curator.simulated(Counts(np.asarray(x), Domain((Integers(0, len(x) - 1),))), epsilon=ONE, seed=0)


# --- every declared type is tried


def stated_classes():
    """Return the classes of the module that state a sensitivity."""
    return {
        kind
        for kind in vars(queries).values()
        if inspect.isclass(kind) and kind.__module__ == queries.__name__ and "sensitivity" in vars(kind)
    }


def test_every_declared_type_has_an_example_and_every_class_is_declared():
    assert set(EXAMPLES) == set(DECLARED), "add an example to tests/declared.py"
    assert stated_classes() == set(DECLARED), "name the class in the union Linear or Score"
    assert len(set(DECLARED)) == len(DECLARED)


def counts_of(rng, n):
    """Return counts of many kinds: no records, few, many, ties, and counts as large as a release may hold."""
    top = int(rng.choice([0, 1, 3, 10, 1000, 1 << 40, (1 << 53) - 9]))
    return rng.integers(0, top + 1, n) * (rng.random(n) < rng.choice([0.3, 1.0]))


def neighbour(rng, x, unit):
    """Return the counts with one unit more: its records in one bin or in several."""
    y = x.copy()
    bins = rng.integers(0, x.size, unit)
    np.add.at(y, bins if rng.random() < 0.5 else bins[:1].repeat(unit), 1)
    return y


def change(query, x, y):
    """Return by how much the answers differ: a score's largest change, all of a linear query's together."""
    before, after = (query(v.copy()) for v in (x, y))
    assert before.dtype == after.dtype == np.int64
    assert before.shape == after.shape == (query.size,)
    moved = [abs(int(b) - int(a)) for a, b in zip(before, after, strict=True)]
    return max(moved) if type(query) in queries.SCORES else sum(moved)


def worst_ratio(kind, make, unit, trials):
    """Return the largest change that neighbours made, over what the query says of a unit."""
    rng = np.random.default_rng(unit)
    worst = Fraction(0)
    for _ in range(trials):
        n = int(rng.integers(2, 40))
        query = make(rng, n)
        assert query.n == n
        assert type(query.sensitivity) is int
        x = counts_of(rng, n)
        found = change(query, x, neighbour(rng, x, unit))
        worst = max(worst, Fraction(found, unit * query.sensitivity))
    return worst


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", DECLARED, ids=named)
def test_neighbours_move_the_answers_by_no_more_than_the_sensitivity(kind, unit):
    worst = worst_ratio(kind, EXAMPLES[kind], unit, trials=300)
    assert worst <= 1
    assert worst > Fraction(9, 10), "some neighbours need all of it, or nearly: a smaller one would be caught"


@pytest.mark.parametrize("kind", queries.LINEAR, ids=named)
def test_a_linear_query_is_as_sensitive_as_its_worst_column(kind):
    rng = np.random.default_rng(5)
    for n in (2, 3, 8, 25, 48):
        for _ in range(6):
            query = EXAMPLES[kind](rng, n)
            matrix = np.stack([query(e) for e in np.eye(n, dtype=np.int64)])
            assert np.abs(matrix).sum(axis=1).max() == query.sensitivity
            x = rng.integers(0, 1000, n)
            assert query(x).tolist() == (x @ matrix).tolist(), "linear"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Understated:
    """A score that moves by two and says one."""

    n: int
    sensitivity = 1

    @property
    def size(self):
        return self.n

    def __call__(self, counts):
        return 2 * counts


@pytest.mark.parametrize("unit", UNITS)
def test_a_planted_wrong_sensitivity_is_found(unit):
    with also(Understated):
        assert worst_ratio(Understated, lambda rng, n: Understated(n), unit, trials=50) == 2


# --- the seal


def look_alike(kept):
    class Cuts:
        n = size = 3
        sensitivity = 1

        def __call__(self, counts):
            kept.append(counts)
            return counts

    return Cuts()


def subclass(kept):
    class Mine(queries.Multiples):
        def __call__(self, counts):
            kept.append(counts)
            return counts

    return Mine(3, 1)


def subclass_of_a_score(kept):
    class Mine(queries.Roughness):
        def __call__(self, counts):
            kept.append(counts)
            return counts[:2]

    return Mine(3, 1)


def claims_to_equal(kept):
    class Meta(type):
        def __eq__(cls, other):
            return True

        __hash__ = type.__hash__

    class Any(metaclass=Meta):
        n = size = 3
        sensitivity = 1
        __class__ = queries.Multiples

        def __call__(self, counts):
            kept.append(counts)
            return counts

    return Any()


def a_function(kept):
    def score(counts):
        kept.append(counts)
        return counts

    score.n = score.size = 3
    score.sensitivity = 1
    return score


PLANTED = [look_alike, subclass, subclass_of_a_score, claims_to_equal, a_function]


@pytest.mark.parametrize("make", PLANTED, ids=lambda f: f.__name__)
def test_what_is_not_declared_is_handed_no_count_and_costs_nothing(make):
    kept = []
    door = curator([1, 2, 3])
    for verb in (door.choose, door.measure_linear):
        with pytest.raises(PrivacyError, match="declare it"):
            verb(make(kept), share=ONE)
    assert kept == []
    assert door.spent == ()


def test_a_query_is_accepted_by_its_own_verb_alone():
    door = curator([1, 2, 3])
    with pytest.raises(PrivacyError):
        door.choose(queries.Multiples(3, 1), share=ONE)
    with pytest.raises(PrivacyError):
        door.measure_linear(queries.Cuts(np.array([0, 3]), 0), share=ONE)
    assert door.spent == ()


def test_what_lies_inside_a_query_is_checked_too():
    kept = []
    plain, spy = Groups.singletons(3), type("Spy", (Groups,), {})(np.array([0, 1, 2, 3]))
    sums = queries.Fourier(3, 2, 4)
    boxes = queries.Boxes.ranges(3, np.array([0]), np.array([2]))
    other = type("Other", (queries.Fourier,), {})(3, 2, 4)
    more = type("More", (queries.Boxes,), {})(boxes.shape, *boxes.sides)
    for make in (
        *(lambda f=f: queries.OnGroups(f(kept), plain) for f in PLANTED),
        lambda: queries.OnGroups(queries.Multiples(3, 1), spy),
        lambda: queries.OnGroups(queries.Cuts(np.array([0, 3]), 0), plain),
        lambda: queries.Dropped(other, (0, 0), plain),
        lambda: queries.Dropped(sums, (0, 0), spy),
        lambda: queries.WorstAnswered(more, np.array([1]), plain),
        lambda: queries.WorstAnswered(boxes, np.array([1]), spy),
    ):
        with pytest.raises(PrivacyError):
            make()
    assert kept == []


def test_numbers_of_a_type_of_their_own_are_copied_and_see_no_count():
    seen = []

    class Spy(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            seen.append(method)
            plain = [i.view(np.ndarray) if isinstance(i, Spy) else i for i in inputs]
            return getattr(ufunc, method)(*plain, **options)

        def astype(self, *args, **options):
            return self

    def spying(numbers):
        made = Spy((len(numbers),), np.int64)
        made[:] = numbers
        made.flags.writeable = False
        return made

    groups = Groups(spying([0, 2, 3]), spying([2, 0, 1]))
    assert type(groups.starts) is np.ndarray and type(groups.order) is np.ndarray
    seen.clear()
    door = curator([1, 2, 3])
    runs = [spying(a) for a in ([0, 1], [1, 2], [1, 1])]
    door.measure_ranges(groups, *runs[:2], parts=runs[2], whole=1, share=ONE / 2)
    door.measure(groups, share=ONE / 2)
    assert seen == []


def test_a_query_swapped_inside_another_is_refused_at_the_door():
    kept = []
    door = curator([1, 2, 3])
    query = queries.OnGroups(queries.Multiples(3, 1), Groups.singletons(3))
    object.__setattr__(query, "inner", look_alike(kept))
    with pytest.raises(PrivacyError, match="declare it"):
        door.measure_linear(query, share=ONE)
    assert kept == []
    assert door.spent == ()


@pytest.mark.parametrize("kind", DECLARED, ids=named)
def test_instances_are_frozen_and_their_arrays_read_only(kind):
    query = EXAMPLES[kind](np.random.default_rng(1), 12)
    for field in dataclasses.fields(query):
        value = getattr(query, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(query, field.name, value)
        if isinstance(value, np.ndarray):
            assert type(value) is np.ndarray
            with pytest.raises(ValueError, match="read-only"):
                value[0] = 1
    assert not hasattr(query, "__dict__"), "no attribute can be added"
    for name in ("sensitivity", "size", "__call__"):
        with pytest.raises((AttributeError, TypeError)):
            object.__setattr__(query, name, 1)


@pytest.mark.parametrize("kind", DECLARED, ids=named)
def test_no_sensitivity_can_be_passed_in(kind):
    assert not {"sensitivity", "bound"} & {f.name for f in dataclasses.fields(kind)}
    with pytest.raises(TypeError):
        kind(sensitivity=1)


def test_parameters_are_copies():
    order, starts = np.array([2, 0, 1]), np.array([0, 1, 3])
    query = queries.Cuts(starts, 0, order)
    order[:] = 0
    starts[:] = 0
    assert query.order.tolist() == [2, 0, 1]
    assert query.starts.tolist() == [0, 1, 3]


MUTATED = {
    "a bin twice in an order": (queries.Roughness(3, 5, np.array([2, 1, 0])), "order", np.array([0, 0, 0])),
    "a run twice": (
        queries.Roughness(3, 5, None, 50, np.array([0, 1, 3])),
        "starts",
        np.array([0, 1, 0, 3]),
    ),
    "a group twice": (queries.Cuts(np.array([0, 3]), 0), "starts", np.array([0, 3, 0, 3])),
    "a weight of zero": (queries.Multiples(3, 2), "weight", 0),
    "a weight that is no whole number": (queries.Multiples(3, 2), "weight", 0.25),
    "other cells": (queries.Haar(3), "rows", 4),
    "sides that fall": (queries.Boxes.ranges(3, np.array([0]), np.array([2])), "x0", np.array([3])),
}


@pytest.mark.parametrize("what", MUTATED)
def test_a_mutated_instance_is_checked_again_at_the_door(what):
    query, name, value = MUTATED[what]
    query = queries.admitted(query, DECLARED)
    object.__setattr__(query, name, value)
    door = curator([1, 2, 3])
    verb = door.choose if type(query) in queries.SCORES else door.measure_linear
    with pytest.raises(DphistError):
        verb(query, share=ONE)
    assert door.spent == ()


def test_arrays_made_writable_again_change_nothing_that_the_curator_uses():
    order = np.array([2, 1, 0])
    query = queries.Roughness(3, 5, order)
    query.order.flags.writeable = True
    query.order[:] = 0
    door = curator([1, 2, 3])
    with pytest.raises(UsageError, match="every bin exactly once"):
        door.choose(query, share=ONE)
    assert door.spent == ()


SENSELESS = {
    "an order that names a bin twice": lambda: queries.Cuts(np.array([0, 2]), 0, np.array([0, 0])),
    "an order of other bins": lambda: queries.Roughness(2, 4, np.array([1, 2])),
    "an order of fewer bins": lambda: queries.Roughness(3, 4, np.array([0, 1])),
    "starts that fall": lambda: queries.Cuts(np.array([0, 2, 1]), 0),
    "a negative penalty": lambda: queries.Cuts(np.array([0, 2]), -1),
    "no cap": lambda: queries.Roughness(4, 0),
    "no pieces": lambda: queries.LastCut(np.array([0, 2]), 1, 0),
    "an end beyond the places": lambda: queries.LastCut(np.array([0, 2]), 2, 1),
    "a box beyond its grid": lambda: queries.Medians((2, 2), (0, 3, 0, 2), 0),
    "a side of one cell": lambda: queries.Medians((2, 1), (0, 2, 0, 1), 1),
    "a third axis": lambda: queries.Medians((2, 2), (0, 2, 0, 2), 2),
    "a box that is empty": lambda: queries.Boxes.ranges(4, np.array([2]), np.array([2])),
    "no box": lambda: queries.Boxes.ranges(4, np.array([], int), np.array([], int)),
    "sides that are no whole numbers": lambda: queries.Boxes.ranges(4, np.array([0.5]), np.array([2.0])),
    "too few answers": lambda: queries.WorstAnswered(
        queries.Boxes.ranges(2, np.array([0, 1]), np.array([2, 2])), np.array([1]), Groups.singletons(2)
    ),
    "too few costs": lambda: queries.Dropped(queries.Fourier(4, 3, 1), (0, 0), Groups.singletons(4)),
    "cells that are not the groups": lambda: queries.OnGroups(queries.Haar(3), Groups.singletons(4)),
    "too many frequencies": lambda: queries.Fourier(8, 6, 4),
    "a weight of nothing": lambda: queries.Fourier(8, 2, 0),
    "hats for unknown queries": lambda: queries.Hats(9, "ranges"),
    "no rows": lambda: queries.Haar(0),
    "cells that fill no rows": lambda: queries.Hats(9, "points", 2),
    "no columns": lambda: queries.Hats(9, "points", 0),
    "no percentage": lambda: queries.Roughness(9, 3, None, 0),
    "runs of other bins": lambda: queries.Roughness(9, 3, None, 50, np.array([0, 3, 8])),
    "runs that fall": lambda: queries.Roughness(9, 3, None, 50, np.array([0, 5, 3, 9])),
    "blocks of one": lambda: queries.Roughness(9, 3, None, 50, None, 1),
}


@pytest.mark.parametrize("what", SENSELESS)
def test_senseless_parameters_are_refused(what):
    with pytest.raises(UsageError):
        SENSELESS[what]()


@pytest.mark.parametrize("kind", DECLARED, ids=named)
def test_a_query_over_other_bins_is_refused_and_costs_nothing(kind):
    door = curator([1, 2, 3])
    query = EXAMPLES[kind](np.random.default_rng(2), 4)
    verb = door.choose if kind in queries.SCORES else door.measure_linear
    with pytest.raises(UsageError, match="over 4 bins"):
        verb(query, share=ONE)
    assert door.spent == ()
