"""The room of uncertainty: files of earlier versions, one reader, no type tests, one table of constants."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

import dphist
from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty import calibrated, constants
from dphist.uncertainty.models import ErrorModel, Unknown
from dphist.uncertainty.reading import KINDS, error_model_from_dict

SOURCE = Path(dphist.__file__).parent
# Releases of earlier versions, at least one for every kind of model, with the numbers that the code of that
# time gave; but the variances of merged bins, which were wrong, and the margins of rectangles of grids, which
# were too narrow for a few cells.
FILES = sorted((Path(__file__).parent / "error_models").glob("*.json"))


def stored(file):
    return json.loads(file.read_text("utf-8"))


def same(found, kept, rtol=1e-12):
    """Whether numbers are the stored ones, but for the last digits, in which processors differ."""
    if kept is None or found is None:
        return kept is found
    kept = np.array([float(x) for x in np.atleast_1d(kept)])  # "inf" and "nan" are text in JSON
    return np.allclose(np.atleast_1d(found), kept, rtol=rtol, atol=0, equal_nan=True)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_release_of_an_earlier_version_opens_with_the_same_intervals(file):
    document, expected = stored(file)["release"], stored(file)["expected"]
    release = dphist.Release.from_dict(document)
    model = release.error
    assert model.to_dict() == document["error"], "what is written is what was read"
    assert same(model.variances(), expected["variances"])
    for level, answers in expected["levels"].items():
        at = float(level)
        for a, b, margin in answers["ranges"]:
            assert margin is None or same(model.margin(a, b, level=at), margin)  # more may be known by now
        lo, hi, margins = zip(*answers["ranges"], strict=True)
        every = model.margins(np.array(lo), np.array(hi), level=at)
        assert all(m is None or same(one, m) for one, m in zip(every, margins, strict=True))
        found = model.bin_margins(level=at)
        assert same(found, answers["bins"]) or (found is None and set(answers["bins"]) == {"nan"})
        assert same(model.joint(level=at), answers["joint"])
        for cells, margin in answers["cells"]:
            assert margin is None or same(model.cells_margin(np.array(cells), level=at), margin)
        for q, margins in answers["quantiles"]:
            assert same(model.quantile_margins(q, level=at), margins)
        low, high = release.intervals(level=at)
        with np.errstate(invalid="ignore"):
            wide = np.maximum(release.raw - low.ravel(), high.ravel() - release.raw)
        assert same(wide, answers["bins"], rtol=1e-9)
        if "ends" in answers:  # they need not be symmetric
            assert same(low, answers["ends"][0]) and same(high, answers["ends"][1])


def test_the_stored_releases_have_every_kind_of_model():
    errors = [stored(f)["release"]["error"] for f in FILES]
    assert {e["kind"] for e in errors} == set(KINDS)
    calibrated_on = {e["base"]["kind"] for e in errors if e["kind"] == "calibrated"}
    assert calibrated_on == {"group totals", "tree totals", "unknown"}
    optional = {"noise", "cuts", "runs", "rough"}
    assert set().union(*(optional & set(e) for e in errors)) == optional


@pytest.mark.parametrize("file", [f for f in FILES if f.stem != "unknown"], ids=lambda f: f.stem)
def test_the_number_of_bins_is_checked_before_a_model_is_built(file, monkeypatch):
    document = stored(file)["release"]
    described, n, built = document["error"], len(document["raw"]), []

    class Watched(dict):
        def __getitem__(self, kind):
            built.append(kind)
            return super().__getitem__(kind)

    monkeypatch.setattr("dphist.uncertainty.reading.KINDS", Watched(KINDS))
    with pytest.raises(UsageError, match="another number of bins"):
        error_model_from_dict(described, n + 1)
    assert not built
    assert error_model_from_dict(described, n).to_dict() == described
    assert built


@pytest.mark.parametrize("name", ["merged-group-totals-bins", "calibrated-runs"])
def test_a_nested_model_of_another_size_or_kind_is_refused(name):
    document = stored(FILES[0].parent / f"{name}.json")["release"]
    huge = {"kind": "group totals", "groups": {"kind": "singletons", "n": 10**15}, "scale": 1.0}
    with pytest.raises(UsageError, match="another number of bins"):
        error_model_from_dict(document["error"] | {"base": huge}, len(document["raw"]))
    with pytest.raises(ReleaseFileError, match="later version"):
        error_model_from_dict(document["error"] | {"base": {"kind": "oracle"}}, len(document["raw"]))


def test_the_former_name_of_the_description_warns():
    with pytest.warns(DeprecationWarning, match="description"):
        assert Unknown("why").words == Unknown("why").description == "no interval: why"


def test_a_model_that_states_nothing_knows_nothing():
    class Silent(ErrorModel):
        kind = "silent"

    model = Silent()
    assert model.variances() is model.bin_margins(level=0.9) is model.joint(level=0.9) is None
    assert model.margin(0, 3, level=0.9) is model.cells_margin(np.array([0, 2]), level=0.9) is None
    assert model.quantile_margins(0.5, level=0.9) is model.total_noise is None
    assert not model.is_calibrated
    assert np.isnan(model.margins(np.array([0, 1]), np.array([2, 2]), level=0.9)).all()
    assert model.merged(np.array([0, 2])).joint(level=0.9) is None


# ---- no type tests ---------------------------------------------------------------------------------------

MODELS = {model.__name__ for model in KINDS.values()} | {"ErrorModel", "NormalSums"}


def type_tests(source):
    """Return the lines that ask whether something is a certain error model."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call | ast.Compare | ast.MatchClass):
            continue
        inside = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
        names = {n.id if isinstance(n, ast.Name) else n.attr for n in inside}
        asks = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
        compares = isinstance(node, ast.Compare) and names & {"type", "__class__"}
        if (asks or compares or isinstance(node, ast.MatchClass)) and names & MODELS:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "planted",
    [
        "if isinstance(release.error, Calibrated): pass",
        "x = isinstance(e, GroupTotals | TreeTotals)",
        "x = isinstance(e, models.GroupTotals)",
        "x = type(e) is Merged",
        "x = issubclass(e.__class__, Unknown)",
        "match e:\n    case Calibrated(): pass",
    ],
)
def test_a_planted_type_test_is_found(planted):
    assert type_tests(planted)


def test_nobody_asks_which_error_model_it_is():
    assert not type_tests("error = Calibrated(base, groups); x = isinstance(error, dict)")
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    asked = {str(f.relative_to(SOURCE)): lines for f in files if (lines := type_tests(f.read_text("utf-8")))}
    assert asked == {}


# ---- one table of constants ------------------------------------------------------------------------------

# Numbers that need no explanation: halves, what keeps logarithms and quotients finite, and limits of width.
PLAIN = {0.0, 0.5, 1.0, 2.0, 1e-12, 1e-300, 50.0}


def unexplained(source):
    """Return the fractions in a source that are not plain."""
    values = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
    return [v for v in values if isinstance(v, float) and v not in PLAIN]


@pytest.mark.parametrize("module", ["uncertainty/calibrated.py", "steps/calibrate.py"])
def test_tuned_numbers_stand_in_the_table_alone(module):
    source = (SOURCE / module).read_text("utf-8")
    assert unexplained(source) == []
    assert unexplained(source + "\nwide = 1.12 * noise\n") == [1.12]


def test_every_constant_says_its_origin():
    block, origins = "", {}
    for line in (SOURCE / "uncertainty" / "constants.py").read_text("utf-8").split("\n"):
        if line.startswith("# ") or not line:
            block = block + line.lower() if line else ""
        elif line[0].isupper() and " = " in line:
            origins[line.split(" = ")[0]] = any(w in block for w in ("adjusted", "derived", "design"))
    assert origins == {name: True for name in vars(constants) if name.isupper()}
    assert len(origins) > 15


def test_the_folded_normal_quantile_is_near_the_exact_one():
    normal = NormalDist()
    means = np.linspace(0, 8, 100)
    for level in (0.8, 0.9, 0.95, 0.99, 0.999):
        found = calibrated._folded_normal_quantile(means, np.ones(100), level)
        for mean, m in zip(means.tolist(), found.tolist(), strict=True):
            less, more = (normal.cdf(m + d - mean) - normal.cdf(-m - d - mean) for d in (-0.075, 1e-9))
            assert less < level <= more


def test_triangles_by_a_later_rule_are_refused():
    described = {"kind": "hat totals", "n": 30, "queries": "prefixes", "scale": 8192.0}
    former, present = (error_model_from_dict(described | x, 30) for x in ({}, {"rule": 2}))
    assert not np.allclose(former.variances(), present.variances(), rtol=0.01)
    with pytest.raises(ReleaseFileError, match="rule 3"):
        error_model_from_dict(described | {"rule": 3}, 30)
