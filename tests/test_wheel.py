"""What is installed: the package alone, without papers, benchmarks and their figures."""

import ast
import os
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTSIDE = {"papers", "benchmarks", "results", "tests", "docs"}


def test_the_wheel_is_made_of_the_package_alone():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    build = settings["tool"]["hatch"]["build"]
    modules = "src/dphist/studio/page"  # which are built into static/app.js
    assert build["targets"]["wheel"] == {"packages": ["src/dphist"], "exclude": [modules]}
    assert set(build) == {"targets"}
    inside = {part for path in (ROOT / "src" / "dphist").rglob("*") for part in (path.name, path.stem)}
    assert not OUTSIDE & inside


def test_nothing_installed_imports_what_is_not():
    for path in (ROOT / "src" / "dphist").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in named} & OUTSIDE, path


def test_a_built_wheel_holds_no_paper_and_no_benchmark(tmp_path):
    build = pytest.importorskip("hatchling.build", reason="hatchling is what pip builds the wheel with")
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        wheel = tmp_path / build.build_wheel(str(tmp_path))
    finally:
        os.chdir(before)
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"dphist"}
    assert not [name for name in names if OUTSIDE & set(Path(name).parts)]
    assert "dphist/py.typed" in names and "dphist/planning/plan.py" in names
    pages = {name for name in names if name.startswith("dphist/studio/static/")}
    assert {Path(name).name for name in pages} >= {"index.html", "app.js", "style.css"}
