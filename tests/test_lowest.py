"""The lowest versions that are allowed: derived from pyproject.toml, tested by ``make test-lowest``."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
import sqlglot
from packaging.version import Version
from sqlglot import exp

from dphist.domain import Domain, Integers
from dphist.errors import UsageError
from dphist.records import count, sql

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("lowest", ROOT / ".ci" / "lowest.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def pinned(lines):
    return {name.lower(): Version(version) for name, version in (line.split("==") for line in lines)}


def test_every_dependency_has_one_lowest_version(script):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lowest = pinned(f"{n}=={v}" for n, v in script.lowest(project).items())
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(line for extra in script.RUN_TIME for line in extras[extra])]
    assert set(lowest) == {re.match("[A-Za-z0-9._-]+", line)[0].lower() for line in named}
    text = (ROOT / "constraints.txt").read_text("utf-8")
    newest = pinned(line for line in text.splitlines() if "==" in line)
    assert all(version <= newest[name] for name, version in lowest.items())
    rest = pinned(script.others(text, script.lowest(project)))
    assert not set(rest) & set(lowest)
    assert rest["pytest"] == newest["pytest"]


def test_a_dependency_without_a_lowest_version_is_refused(script):
    for odd in ("numpy", "numpy==2", "numpy<3"):
        project = {"dependencies": [odd], "optional-dependencies": {extra: [] for extra in script.RUN_TIME}}
        with pytest.raises(SystemExit, match="lowest version"):
            script.lowest(project)


def test_sql_that_a_dialect_lacks_is_refused_instead_of_left_out():
    """Old parsers wrote DuckDB's TRY(...) as nothing, with a line in the log; others still do."""
    guarded = exp.Try(this=sqlglot.parse_one("a + 1", dialect="duckdb"))
    assert sql.generate(guarded, "duckdb") == "TRY(a + 1)"
    for dialect in ("postgres", "sqlite"):
        assert guarded.sql(dialect, unsupported_level=sqlglot.ErrorLevel.IGNORE) == "a + 1"
        with pytest.raises(UsageError, match="engine's SQL lacks"):
            sql.generate(guarded, dialect)


def test_a_parser_that_drops_the_guard_stops_every_count_alike(monkeypatch):
    """What the bound of sqlglot was raised for, planted in today's: no record may decide what happens."""
    monkeypatch.setattr(sqlglot.dialects.DuckDB.Generator, "TRY_SUPPORTED", False)
    for last in (1, 2**62):
        table = pa.table({"x": pa.array([1, last], pa.int64())})
        with pytest.raises(UsageError, match="engine's SQL lacks"):
            count(table, Domain((Integers(0, 3),)), columns="x", where="x * 4 > 0")
