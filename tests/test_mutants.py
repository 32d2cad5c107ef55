"""The table of planted privacy bugs fits the source, and the report tells of all of them."""

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "mutants"))
import run

BUGS = run.mutations()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_bug_can_be_planted(bug):
    text = (run.ROOT / bug.file).read_text()
    assert text.count(bug.was) == 1, "the code has changed: so must tests/mutants/mutations.toml"
    ast.parse(bug.plant(text))
    assert bug.plant(text) != text
    assert bug.tests
    for name in bug.tests:
        path, *inside = name.partition("[")[0].split("::")
        there = (run.ROOT / path).read_text() if inside else (run.ROOT / path).exists()
        assert there and all(re.search(rf"(def|class) {part}\b", there) for part in inside), name


def test_there_are_enough_of_them_and_each_has_a_name():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 60


def test_a_bug_that_no_longer_fits_is_refused():
    with pytest.raises(SystemExit, match="occurs 2 times"):
        run.Mutation("x", "", "x.py", "a", "b", ()).plant("a a")
