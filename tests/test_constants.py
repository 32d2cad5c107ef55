"""The page on the data behind the constants names every one of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/constants.md").read_text("utf-8")
HELD = ROOT / "src/dphist/uncertainty/constants.py"


def constants(path):
    """Return the names that a module assigns in capitals."""
    tree = ast.parse(path.read_text("utf-8"))
    targets = [t for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
               for t in (node.targets if isinstance(node, ast.Assign) else [node.target])]  # fmt: skip
    return [t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()]


@pytest.mark.parametrize("name", constants(HELD))
def test_every_constant_of_the_intervals_is_on_the_page(name):
    assert re.search(rf"`{name}`", PAGE), f"docs/constants.md must say which data chose {name}"


def test_adjusted_constants_are_not_said_to_need_no_data():
    text, marks = HELD.read_text("utf-8"), {}
    for name in constants(HELD):
        *_, comment = text.split(f"\n{name} = ")[0].rsplit("\n\n", 1)
        marks[name] = "Adjusted" in comment
    marks["MEAN_DEVIATION_OF_LAPLACE"] = False  # derived; the one beside it is not
    lines = {n: line for line in PAGE.splitlines() for n in re.findall(r"`([A-Z_]+)`", line)}
    assert {n for n in marks if marks[n]} >= {"TAIL_OF_SORTED", "CAUTION", "HIDDEN"}
    assert {n for n in marks if "no data" in lines[n]} == {n for n in marks if not marks[n]}


def test_every_file_that_the_page_names_is_there():
    for path in re.findall(r"`((?:kernels|methods|steps|uncertainty|planning|domain)/[\w/]+\.py)`", PAGE):
        assert (ROOT / "src/dphist" / path).is_file(), path
    assert len(re.findall(r"^\| .* \|$", PAGE, flags=re.MULTILINE)) > 10
