"""Old names work for one version: each does what the new one does, and warns of what to write instead."""

import doctest
import importlib
import inspect
import json

import numpy as np
import pytest

import dphist
from dphist.domain import workload
from dphist.lab import compare, data, grid
from dphist.planning import shapes
from dphist.planning.audit import audit
from dphist.planning.audit_method import audit_method
from shell import dphist as invoke

ASK = {"epsilon": 1, "methods": ["identity"], "like": "smooth"}
TABLE = {"a": [1.0, 2.0], "b": [1.0, 2.0]}


def frame():
    return pytest.importorskip("pandas").DataFrame(TABLE)


def mechanism(counts, trial):
    return counts + trial % 2


KEYWORDS = {
    "advise records": (lambda **k: dphist.advise(8, **ASK, **k).rows, "scale", "records", 1000),
    "advise bins": (lambda **k: dphist.advise(records=9, **ASK, **k).rows, "domain", "bins", 8),
    "from_counts bins": (
        lambda **k: dphist.from_counts([1, 2], epsilon=1, **k).domain,
        "edges",
        "bins",
        [0, 1, 9],
    ),
    "from_counts": (
        lambda **k: dphist.from_counts([1, 2], epsilon=1, **k).sensitivity,
        "unit_sensitivity",
        "sensitivity",
        3,
    ),
    "simulate bins": (
        lambda **k: dphist.simulate([1, 2], epsilon=1, **k).tolist(),
        "edges",
        "bins",
        [0, 1, 9],
    ),
    "simulate": (
        lambda **k: dphist.simulate([1, 2], epsilon=1, **k).tolist(),
        "unit_sensitivity",
        "sensitivity",
        3,
    ),
    "histogram2d": (
        lambda **k: dphist.histogram2d(frame(), bins=2, range=((0, 4), (0, 4)), epsilon=1, **k).domain,
        "columns",
        "column",
        ("a", "b"),
    ),
    "draw": (lambda **k: shapes.draw("smooth", n=8, **k).tolist(), "scale", "records", 50),
    "like": (lambda **k: shapes.Like(n=8, shape="smooth", **k), "scale", "records", 50),
    "source": (lambda **k: data.Source("a", "smooth", 8, **k), "scale", "records", 50),
    "shapes_as": (lambda **k: data.shapes_as(["smooth"], n=8, **k), "scale", "records", 50),
    "audit": (lambda **k: audit(mechanism, claim=1, pair=([0], [1]), **k).trials, "runs", "trials", 100),
    "audit_method": (lambda **k: next(audit_method("identity", **k))[1].trials, "runs", "trials", 100),
}


@pytest.mark.parametrize(("ask", "old", "new", "value"), KEYWORDS.values(), ids=KEYWORDS)
def test_an_old_keyword_does_what_the_new_one_does_and_warns(ask, old, new, value):
    expected = ask(**{new: value})
    with pytest.warns(DeprecationWarning, match=rf"^{old}= is called {new}= now; .* next version\.$") as said:
        assert ask(**{old: value}) == expected
    assert {w.filename for w in said} == {__file__}  # it points at who wrote the old name
    with pytest.raises(TypeError, match=old):
        ask(**{old: value, new: value})


def test_signatures_show_new_names_alone():
    for function, new in ((dphist.advise, "records"), (dphist.from_counts, "bins"), (shapes.draw, "records")):
        assert new in inspect.signature(function).parameters
    shown = {name for f in (dphist.advise, dphist.from_counts) for name in inspect.signature(f).parameters}
    assert not shown & {"scale", "domain", "edges", "unit_sensitivity"}


def test_old_attributes_are_read_with_a_warning():
    advice = dphist.advise(8, records=1000, **ASK)
    for thing, old, new in (
        (advice, "scale", "records"),
        (advice.best, "runs", "trials"),
        (data.Source("a", "smooth", 8, 50), "scale", "records"),
        (audit(mechanism, claim=1, pair=([0], [1]), trials=100), "runs", "trials"),
    ):
        with pytest.warns(DeprecationWarning, match=rf"^\.{old} is called \.{new} now"):
            assert getattr(thing, old) == getattr(thing, new)
    assert "scale" not in repr(advice) and "scale" not in advice.__dataclass_fields__


def test_a_picture_may_still_be_asked_for_by_its_scale():
    release = dphist.from_counts([10, 200], epsilon=1)
    preview = dphist.Plan(bins=4, range=(0, 4), epsilon=1).preview(records=100)
    for plot in (release.plot, preview.plot):
        with pytest.warns(DeprecationWarning, match=r'scale="log" is called log=True now'):
            assert plot(scale="log").spec == plot(log=True).spec
        with pytest.warns(DeprecationWarning):
            assert plot(scale="linear").spec == plot().spec != plot(log=True).spec
        with pytest.raises(TypeError, match="scale"):
            plot(scale="cubic")


def test_old_names_of_workloads():
    for old, new in (("points", "Points"), ("prefixes", "Prefixes"), ("all_ranges", "AllRanges")):
        with pytest.warns(DeprecationWarning, match=f"^{old} is called {new} now"):
            assert getattr(workload, old) is getattr(workload, new)
    with pytest.raises(AttributeError, match=r"module 'dphist\.domain\.workload' has no attribute 'all'"):
        _ = workload.all
    for old, new in (("identity", "points"), ("all-ranges", "ranges")):
        with pytest.warns(DeprecationWarning, match=f"the workload '{old}' is called '{new}' now"):
            assert workload.make_workload(old, 8) == workload.make_workload(new, 8)


def test_old_words_for_made_up_data():
    with pytest.warns(DeprecationWarning, match="called") as said:
        assert shapes.parse_like("n=64 scale=1e4 steps") == shapes.Like(64, 10_000, "steps")
    assert [str(w.message).split(" is called ")[0] for w in said] == ["n=", "scale="]


def test_rows_of_the_old_format_go_on_under_the_new_name(tmp_path):
    """A folder whose rows call the number of records ``scale`` is resumed, and nothing runs again."""
    cells = [grid.Cell(data.Source("flat", "uniform", 16, 120), "1", "points", "identity", trials=2)]
    rows = grid.run(cells, out=tmp_path, jobs=1, progress=False)
    file = tmp_path / grid.ROWS
    old = [
        {"scale" if k == "records" else k: v for k, v in json.loads(line).items()}
        for line in file.read_text().splitlines()
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in old))
    assert grid.run(cells, out=tmp_path, jobs=1, progress=False) == rows
    assert [row["records"] for row in rows] == [120, 120] and len(file.read_text().splitlines()) == 2


def test_json_keeps_the_old_keys_beside_the_new_ones():
    told = dphist.advise(8, records=1000, **ASK).to_dict()
    assert told["records"] == told["scale"] == 1000
    assert told["rows"][0]["trials"] == told["rows"][0]["runs"]


def test_old_options_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = ("--bins", "8", "--epsilon", "1", "--method", "identity,uniform", "--like", "smooth", "--json")
    new, old, joined = (
        invoke("advise", *ask, *words)
        for words in (("--records", "900"), ("--scale", "900"), ("--scale=900",))
    )
    assert new.stdout == old.stdout == joined.stdout and new.stderr == ""
    assert [row["method"] for row in json.loads(new.stdout)["rows"]].count("uniform") == 1
    said = "warning: --scale is called --records now; the old name goes with the next version.\n"
    assert old.stderr == joined.stderr == said
    (tmp_path / "x.csv").write_text("age\n5\n30\n")
    base = ("publish", "x.csv", "--column", "age", "--epsilon", "1", "--dry-run", "--json")
    new, old = (invoke(*base, option, "0,18,65") for option in ("--bins", "--edges"))
    assert json.loads(new.stdout) == json.loads(old.stdout) and json.loads(new.stdout)["range"] == "0 to 65"
    assert "--edges is called --bins now" in old.stderr and "warning" not in new.stderr
    told = invoke("compare", "--like", "n=8 scale=50 steps", "--method", "identity", "--trials", "2",
                  "--epsilon", "1", "--jobs", "1", "--no-progress")  # fmt: skip
    assert "warning: scale= is called records= now" in told.stderr and "records=50" in told.stdout


def test_a_value_that_looks_like_an_old_option_is_left_alone():
    told = invoke("check", "--column", "age", "--bins", "0,5", "--", "--edges", code=4)
    assert "is called" not in told.stderr


@pytest.mark.parametrize("name", ["_common.renamed", "planning.shapes"])
def test_the_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    done = doctest.testmod(importlib.import_module(f"dphist.{name}"), extraglobs={"dphist": dphist})
    assert done.failed == 0 < done.attempted


def test_shapes_and_advice_are_exported():
    assert isinstance(dphist.advise(8, records=1000, **ASK), dphist.Advice)
    assert dphist.shapes is shapes and {"shapes", "Advice"} <= set(dphist.__all__)
    assert np.array_equal(dphist.shapes.draw("steps", n=4, records=9), shapes.draw("steps", n=4, records=9))


def test_a_comparison_calls_the_records_by_their_name():
    asked = compare.ask(
        like=["bins=8 records=50 steps"], methods=["identity"], trials=2, samples=1, epsilons=["1"]
    )
    made = compare.run(asked, jobs=1, progress=False)
    (ranking,) = made.rankings
    assert made.to_dict()["rankings"][0].items() >= {"records": 50, "scale": 50}.items()
    assert ranking.records == 50 and ranking.title == "steps bins=8 records=50, epsilon 1"
    with pytest.warns(DeprecationWarning, match=r"\.scale is called \.records now"):
        assert ranking.scale == 50


def test_a_release_is_read_by_one_name(tmp_path):
    release = dphist.from_counts([1, 2], epsilon=1)
    path = release.save(tmp_path / "r.json")
    with pytest.warns(DeprecationWarning, match=r"Release\.load is called dphist\.load now"):
        assert dphist.Release.load(path) == dphist.load(path) == release
