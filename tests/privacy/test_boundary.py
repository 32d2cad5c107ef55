"""The boundary is guarded by machines, and every guard is shown a violation that it must catch."""

import ast
import functools
import io
import shutil
import subprocess
import sys
import textwrap
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dphist"
BIN = Path(sys.executable).parent

FORBIDDEN = {"rng", "prng", "seed", "random_state", "generator"}
MAY_SEED = {  # public or made-up counts only; what they return is stamped simulated or is no release
    ("planning/plan.py", "simulate"),
    ("planning/shapes.py", "weights"),
    ("planning/shapes.py", "draw"),
    ("planning/shapes.py", "_source"),
}


@functools.cache
def nodes(text):
    """Return every node of a source."""
    return list(ast.walk(ast.parse(text)))


def seeded_parameters(path, text):
    """Return the functions of a file that take randomness as an argument though they must not."""
    if path.parts[:1] in {("privacy",), ("bench",)}:
        return []
    found = []
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            a = node.args
            names = {arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg] if arg}
            name = getattr(node, "name", "<lambda>")
            if names & FORBIDDEN and (str(path), name) not in MAY_SEED:
                found.append(name)
    return found


def misplaced_calls(path, text, names, homes):
    """Return calls of private constructors outside the files that may make them."""
    if str(path) in homes:
        return []
    return [
        node.func.id
        for node in nodes(text)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def sources():
    return [(p.relative_to(SOURCE), p.read_text("utf-8")) for p in sorted(SOURCE.rglob("*.py"))]


def test_a_planted_seed_is_caught():
    planted = "def step(curator, *, seed=0):\n    pass\nf = lambda rng: rng\n"
    assert seeded_parameters(Path("steps/order.py"), planted) == ["step", "<lambda>"]
    assert seeded_parameters(Path("privacy/noise.py"), planted) == []
    assert seeded_parameters(Path("planning/plan.py"), "def simulate(seed): pass\ndef other(seed): pass") == [
        "other"
    ]


def test_no_function_outside_the_boundary_takes_randomness():
    assert {str(p): found for p, t in sources() if (found := seeded_parameters(p, t))} == {}


CHARGE_HOMES = {"privacy/ledger.py"}
CURATOR_HOMES = {"privacy/curator.py", "planning/plan.py"}


def test_a_planted_charge_is_caught():
    planted = "from dphist.privacy.ledger import Charge\nfree = Charge(1)\n"
    assert misplaced_calls(Path("steps/estimate.py"), planted, {"Charge"}, CHARGE_HOMES) == ["Charge"]
    assert misplaced_calls(Path("privacy/ledger.py"), planted, {"Charge"}, CHARGE_HOMES) == []


@pytest.mark.parametrize(("name", "homes"), [("Charge", CHARGE_HOMES), ("Curator", CURATOR_HOMES)])
def test_charges_and_curators_are_made_in_one_place(name, homes):
    assert {str(p): found for p, t in sources() if (found := misplaced_calls(p, t, {name}, homes))} == {}


CHECKERS = {("planning/plan.py", "Plan.check"), ("cli/check.py", "check")}


def checks(path, text):
    """Return where a file reaches what a check tells: by importing it, by its name, or by Plan.check."""
    found = []

    def visit(node, inside):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = (*inside, node.name)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            return
        named = []
        if isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            named = [a.name for a in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            named = [node.value]  # an import by name
        elif isinstance(node, ast.Attribute) and node.attr == "check":
            owner = ast.unparse(node.value)
            named = ["dphist.records.check"] if owner in ("plan", "self", "records", "Plan") else []
        if any(n == "records.check" or n.startswith("dphist.records.check") for n in named):
            found.append(".".join(inside))
        for inner in ast.iter_child_nodes(node):
            visit(inner, inside)

    visit(ast.parse(text), ())
    return [where for where in found if (str(path), where) not in CHECKERS]


CHECKED = {
    "an import": "from dphist.records.check import check\n",
    "an import of the module": "from dphist.records import check\n",
    "a lazy import": "def f():\n    import dphist.records.check\n",
    "an import by name": "import importlib\nimportlib.import_module('dphist.records.check')\n",
    "Plan.check": "def publish(plan, data):\n    return plan.check(data)\n",
    "Plan.check inside a plan": "class Plan:\n    def release(self, data):\n        self.check(data)\n",
}


@pytest.mark.parametrize("what", CHECKED)
def test_a_planted_check_is_caught(what):
    for path in (
        "release/release.py",
        "methods/pipeline.py",
        "cli/publish.py",
        "planning/plan.py",
        "privacy/curator.py",
    ):
        assert checks(Path(path), CHECKED[what]), path


def test_what_a_check_tells_reaches_no_other_function():
    assert {str(p): found for p, t in sources() if (found := checks(p, t))} == {}


SENSITIVITIES = {"sensitivity", "bound"}
MAY_STATE = {  # what was paid for, what an audit found, contribution bounding: no noise is scaled by them
    ("release/release.py", "Release.sensitivity"),
    ("release/grouped.py", "GroupedRelease.sensitivity"),
    ("release/sparse.py", "SparseRelease.sensitivity"),
    ("planning/audit.py", "Audit.bound"),
    ("records/sql.py", "Engine.bound"),
}


def stated_sensitivities(path, text):
    """Return where classes outside the boundary state a sensitivity, and called classes of kernels."""
    if path.parts[0] == "privacy":
        return []
    found = []
    for node in (n for n in nodes(text) if isinstance(n, ast.ClassDef)):
        for member in node.body:
            names = {getattr(member, "name", "")}
            if isinstance(member, ast.AnnAssign):
                names = {getattr(member.target, "id", "")}
            elif isinstance(member, ast.Assign):
                names = {getattr(target, "id", "") for target in member.targets}
            wrong = names & SENSITIVITIES | (names & {"__call__"} if path.parts[0] == "kernels" else set())
            found += [f"{node.name}.{name}" for name in wrong]
        found += [
            f"{node.name}.{inner.attr}"
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and inner.attr in SENSITIVITIES
        ]
    return [name for name in found if (str(path), name) not in MAY_STATE and not _bounds_records(path, name)]


def _bounds_records(path, name):
    return path.parts[:2] == ("records", "engines") and name.endswith(".bound")


STATED = {
    "a constant": "class Mine:\n    sensitivity = 1\n",
    "an annotated constant": "class Mine:\n    sensitivity: int = 1\n",
    "a property": "class Mine:\n    @property\n    def sensitivity(self):\n        return 1\n",
    "a method": "class Mine:\n    def bound(self):\n        return 1\n",
    "an attribute": "class Mine:\n    def __init__(self):\n        self.sensitivity = 1\n",
    "inside a function": "def f():\n    class Mine:\n        sensitivity = 1\n",
}


@pytest.mark.parametrize("what", STATED)
def test_a_planted_sensitivity_is_caught(what):
    for path in ("kernels/scores.py", "steps/partition.py", "uncertainty/models.py", "release/release.py"):
        assert stated_sensitivities(Path(path), STATED[what]), path
    assert not stated_sensitivities(Path("privacy/queries.py"), STATED[what])


def test_a_planted_class_of_a_kernel_that_is_called_is_caught():
    planted = "class Score:\n    def __call__(self, counts):\n        return counts\n"
    assert stated_sensitivities(Path("kernels/partition/cuts.py"), planted) == ["Score.__call__"]
    assert stated_sensitivities(Path("steps/order.py"), planted) == []


def test_no_file_outside_the_boundary_states_a_sensitivity():
    assert {str(p): found for p, t in sources() if (found := stated_sensitivities(p, t))} == {}


LINTED = {
    "numpy.random in a step": ("steps/order.py", "import numpy as np\nx = np.random.laplace()\n"),
    "numpy.random by from": ("steps/order.py", "from numpy.random import default_rng\n"),
    "random in a step": ("steps/order.py", "import random\n"),
    "secrets in the api": ("planning/plan.py", "import secrets\n"),
    "scipy.stats in a kernel": ("kernels/extra.py", "import scipy.stats\n"),
    "os.urandom in the pipeline": ("methods/pipeline.py", "import os\nk = os.urandom(8)\n"),
    "the curator's counts": ("steps/estimate.py", "def f(curator):\n    return curator._Curator__counts\n"),
    "a legacy generator": ("charts/picture.py", "import numpy as np\nx = np.random.RandomState(1)\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LINTED)
def test_ruff_catches_a_planted(what, tmp_path):
    file, text = LINTED[what]
    target = tmp_path / "src" / "dphist" / file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target.write_text('"""Planted."""\n\n' + text, "utf-8")
    run = subprocess.run(
        [BIN / "ruff", "check", "--no-cache", "--select", "TID251,SLF001,NPY002", "src"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert any(rule in run.stdout for rule in ("TID251", "SLF001", "NPY002"))


def test_ruff_allows_entropy_in_the_noise_module():
    run = subprocess.run(
        [BIN / "ruff", "check", "--select", "TID251,SLF001,NPY002", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


IMPORTS = {
    "a step that imports the noise": ("steps/order.py", "from dphist.privacy import noise"),
    "a step that imports the pipeline": ("steps/order.py", "from dphist.methods import pipeline"),
    "a picture that imports counts": ("charts/picture.py", "from dphist.privacy.counts import Counts"),
    "a release that imports the ledger": ("release/release.py", "from dphist.privacy import ledger"),
    "a release that checks records": ("release/release.py", "from dphist.records import check"),
    "a publish that checks records": ("cli/publish.py", "from dphist.records.check import check"),
    "a pipeline that checks records": ("methods/pipeline.py", "from dphist.records.check import check"),
    "an error model that imports queries": ("uncertainty/models.py", "from dphist.privacy import queries"),
    "a kernel that imports queries": ("kernels/partition/cuts.py", "from dphist.privacy import queries"),
    "a step that imports counts": ("steps/estimate/means.py", "from dphist.privacy.counts import Counts"),
    "a lazy import of the curator in a release": (
        "release/release.py",
        "def f() -> None:\n    from dphist.privacy.curator import Curator\n    Curator",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", IMPORTS)
def test_import_linter_catches(what, tmp_path):
    file, text = IMPORTS[what]
    shutil.copytree(SOURCE, tmp_path / "dphist", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "dphist" / file
    target.write_text(target.read_text("utf-8") + "\n" + textwrap.dedent(text) + "\n", "utf-8")
    run = subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": str(BIN)},
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "BROKEN" in run.stdout


def code_lines(text):
    """Return how many lines of a file hold code: no blanks, no comments, no docstrings."""
    tree = ast.parse(text)
    docs = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    prose = {line for n in docs for line in range(n.lineno, n.end_lineno + 1)}
    layout = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = [t for t in tokens if tokenize.tok_name[t.type] not in layout]
    return len({line for t in code for line in range(t.start[0], t.end[0] + 1)} - prose)


def test_the_door_stays_small_enough_to_read_in_an_afternoon():
    assert code_lines('"""Doc."""\n\n# why\nx = 1\ny = (\n    2\n)\n') == 4
    lines = {str(p): code_lines(t) for p, t in sources() if p.parts[0] == "privacy"}
    # Of about 1,970: 330 declare queries, 740 keep the ledger and its file, 890 are counts, noise and verbs.
    assert sum(lines.values()) <= 1975, lines
