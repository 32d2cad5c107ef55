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
    names = [t for target in targets for t in getattr(target, "elts", [target])]
    return [t.id for t in names if isinstance(t, ast.Name) and t.id.isupper()]


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
    assert {n for n in marks if marks[n]} >= {"TAIL_OF_SORTED", "UPPER", "HIDDEN"}
    assert {n for n in marks if "no data" in lines[n]} == {n for n in marks if not marks[n]}


ROWS = re.findall(r"^\| .* \|$", PAGE, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("row", ROWS, ids=[row[2:40] for row in ROWS])
def test_a_constant_is_where_the_page_says(row):
    paths = [ROOT / "src/dphist" / path for path in re.findall(r"`([\w/]+/\w+\.py)`", row.split("|")[2])]
    assert paths and all(path.is_file() for path in paths)
    assert {*re.findall(r"`([A-Z_]+)`", row)} <= {name for path in paths for name in constants(path)}


def test_the_constants_of_the_averages_are_on_the_page():
    chosen = (
        (ROOT / "src/dphist/kernels/averaging/dyadic.py").read_text("utf-8").split("docs/constants.md")[1]
    )
    names = re.findall(r"^([A-Z_]+)(?:, ([A-Z_]+))? = ", chosen.split("\n\n")[0], flags=re.MULTILINE)
    assert len(names) >= 10
    for name in filter(None, (n for pair in names for n in pair)):
        assert f"`{name}`" in PAGE, f"docs/constants.md must say which data chose {name}"
