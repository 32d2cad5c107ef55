"""What a release file may contain: every field of every format is listed here, with what it may depend on.

A field that is not listed fails, and so does one that is listed as the plan's and changes with the data. Who
adds a field to a release adds it here, and says what it may depend on:

* PLAN: what was declared before any record was read. The same for any data and any noise.
* MADE: when and by what program; it knows no record.
* NOISY: what a verb of the curator returned, or was worked out from that alone.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.privacy import noise
from dphist.release import Release
from engine import database
from samples import of_each_kind

pytestmark = pytest.mark.usefixtures("unrehearsed")
PLAN, MADE, NOISY = "the plan alone", "when and by what it was made", "noisy answers"
_STEPS = ("initialize", "order", "partition", "estimate")
_SETTINGS = [
    "step",
    "branching",
    "candidates",
    "center",
    "choices[]",
    "choosing",
    "constant",
    "eta",
    "extra",
    "fanout",
    "flat",
    "formula",
    "groups",
    "halved",
    "least",
    "levels",
    "level",
    "one_sided",
    "passes",
    "penalty",
    "prior",
    "always",
    "pruned",
    "queries",
    "ratio",
    "root",
    "rounds",
    "scarce",
    "blocks",
    "asks",
    "slight",
    "sides",
    "size",
    "weights",
    "xi",
]
_GROUPS = ("kind", "n", "order", "order[]", "starts[]")
_ERRORS = [
    "kind",
    "branching",
    "columns",
    "grid",
    "n",
    "pruned",
    "queries",
    "reason",
    "scale",
    "scale_of_node[]",
    "inner[]",
    "agreeing",
    "tails",
    "scales[]",
    "rows",
    "rule",
    "bias[]",
    "classes[]",
    "cuts",
    "cuts[]",
    "few",
    "distances[]",
    "noise",
    "noise[]",
    "rough",
    "rough.counts[]",
    "rough.kept",
    "rough.scale",
    "runs",
    "runs.bias",
    "runs.length",
    "values[]",
    "measured[]",
    "guesses[]",
    "nearer",
    "risk.mean",
    "risk.error",
    *(f"risk.classes.{key}[]" for key in ("of", "means", "errors")),
]
WHITELIST = {
    **dict.fromkeys(
        ["format", "version", "simulated", "method", "epsilon", "unit", "sensitivity", "bounding", "post"],
        PLAN,
    ),
    **{f"domain.{key}": PLAN for key in ("axes[]", "closure")},
    **{
        f"domain.axes[].{key}": PLAN
        for key in ["kind", "bins", "lo", "hi", "low", "high", "edges[]", "labels[]"]
    },
    **{f"parameters.{step}.{setting}": PLAN for step in _STEPS[:3] for setting in _SETTINGS},
    # the estimate that ran: triangles or a tree, by the groups that were found
    **{f"parameters.estimate.{setting}": NOISY for setting in (*_SETTINGS, "chosen_by")},
    # as spent: a question before grouping may leave more for the estimate, and for no calibration
    **{f"parameters.shares.{key}": NOISY for key in ("initialize", "partition", "estimate", "calibrate")},
    **{
        f"parameters.workload.{key}": PLAN
        for key in ["kind", "n", "shape[]", "x0[]", "x1[]", "y0[]", "y1[]", "lo[]", "hi[]", "lengths[]"]
    },
    "parameters.found.choice": PLAN,  # of auto, by the workload
    **{
        f"provenance.{key}": PLAN
        for key in [
            "source",
            "column[]",
            "where",
            "outside",
            "table",
            "timezone",
            "well_formed",
            "encoding",
            "decimal",
            "dataset",
            "journaled",
            *(f"publication.{key}" for key in ("name", "histogram", "share", "epsilon", "histograms[]")),
        ]
    },
    **{f"versions.{key}": MADE for key in ("dphist", "numpy", "python")},
    "created": MADE,
    "id": MADE,  # names the ledger's row
    # how many groups there are, and what is left to spend, depends on what was measured before
    **{f"charges[]{key}": NOISY for key in ("", ".purpose", ".share", ".epsilon")},
    **{f"groups.{key}": NOISY for key in _GROUPS},
    **{f"error.{key}": NOISY for key in _ERRORS},
    **{f"error.{inner}groups.{key}": NOISY for inner in ("", "base.") for key in _GROUPS},
    **{f"error.base.{key}": NOISY for key in _ERRORS},
    "raw[]": NOISY,
    "values[]": NOISY,
    "sha256": NOISY,  # of all the others
}
# Of many groups, where they differ from those of one histogram.
_MODELS = [
    *_ERRORS,
    "factor",
    "moved",
    "moved[]",
    *(f"groups.{key}" for key in _GROUPS),
]
GROUPED = {
    **{key: of for key, of in WHITELIST.items() if not key.startswith(("error.", "groups."))},
    **{f"by.{key}": PLAN for key in ("names[]", "sizes[]", "other", "shares[]", "variances[]")},
    **{f"parameters.levels.{name}": PLAN for name in ("region", "hospital")},
    # which groups' errors and partitions stand in rows of their own
    **dict.fromkeys(("error[]", "groups[]"), PLAN),
    **{f"error[].{inner}{key}": NOISY for inner in ("", "base.", "base.base.") for key in _MODELS},
    **{f"groups[].{key}": NOISY for key in _GROUPS},
    **{f"rows[].{key}": PLAN for key in ("level", "group", "parent", "factor")},
    **{f"rows[].{key}": NOISY for key in ("raw[]", "values[]")},
    **{f"rows[].error.{inner}{key}": NOISY for inner in ("", "base.", "base.base.") for key in _MODELS},
    **{f"rows[].partition.{key}": NOISY for key in _GROUPS},
}
CSV_HEAD = {"method", "epsilon", "unit", "simulated"}
COLUMNS = {"value", "raw", "low", "high"} | {
    prefix + name for prefix in ("", "x_", "y_") for name in ("lo", "hi", "label")
}
PURPOSES = (
    r"totals of (\d+) disjoint groups|totals of (\d+) runs of groups|(\d+) linear queries"
    r"|totals of (\d+) groups on a tree"
    r"|distances of (\d+) sums from public numbers|choice among (\d+) candidates"
    r"|L1 partition by (all|powers|subtrees) intervals and the (mean|median)|splits of a (\d+)-ary tree"
    r"|(\d{1,3}) disjoint groups, each|one group"
)
N = 40


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of every field and what stands there; a list of plain values is one field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if not any(isinstance(inner, dict | list) for inner in value):
            yield f"{path}[]", value
        for inner in value:
            if isinstance(inner, dict | list):
                yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


def sorted_out(document: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what stands at every path."""
    found: dict[str, list[Any]] = {}
    for path, value in leaves(document):
        found.setdefault(path, []).append(value)
    return found


def numbers(value: Any) -> Iterator[float]:
    """Yield every number in a document, those inside words too."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, str):
        yield from (float(found) for found in re.findall(r"(?<![\w.])\d+(?![\w.])", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def trouble(
    documents: list[dict[str, Any]], totals: list[int], listed: dict[str, str] = WHITELIST
) -> list[str]:
    """Return what is wrong with the documents of one plan, made from data of these totals."""
    found = []
    for document, total in zip(documents, totals, strict=True):
        found += [f"{path} is not listed" for path, _ in leaves(document) if path not in listed]
        found += ["an exact total is written out"] * (float(total) in set(numbers(document)))
        for charge in document["charges"]:
            told = re.fullmatch(PURPOSES, charge["purpose"])
            sizes = [int(group) for group in told.groups() if group and group.isdecimal()] if told else []
            if told is None or max(sizes, default=0) > 5000:
                found.append(f"a purpose tells more than it should: {charge['purpose']}")
    others = [sorted_out(document) for document in documents[1:]]
    for path, value in leaves(documents[0]):
        if listed.get(path) == PLAN:
            found += [f"{path} changes with the data" for other in others if value not in other.get(path, [])]
    return found


@pytest.fixture
def repeat(monkeypatch):
    """Let the next releases draw the noise of a seed, without being stamped as simulated."""

    def start(seed: int) -> None:
        source = noise.Simulated(seed)
        monkeypatch.setattr(noise.Secure, "stream", lambda self: source.stream())

    return start


def records(seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.minimum(rng.integers(0, N, size), rng.integers(0, N, size))


LINE, GRID, OTHER = 123_457, 98_765, 54_321
ON_LINES = [method for method in CATALOGUE if method not in ("quadtree", "hybridtree")]
METHOD_OPTIONS = [{}, {"workload": "ranges"}, {"post": "integer"}]


def three(repeat, publish) -> tuple[list[Release], list[int]]:
    """Return releases of some data, of a neighbour under the same noise, and of other data and noise."""
    some = records(1, LINE)
    data = [some, np.append(some, 7), records(2, OTHER)]
    releases = []
    for values, seed in zip(data, (5, 5, 6), strict=True):
        repeat(seed)
        releases.append(publish(values))
    return releases, [values.size for values in data]


@pytest.mark.parametrize("method", of_each_kind())
def test_a_release_holds_nothing_that_is_not_listed(method, repeat):
    calibrates = make_pipeline(method, Domain((Integers(0, 3),))).estimate.calibrates
    for options in (METHOD_OPTIONS + [{"calibrate": "0.05"}] * calibrates) * (method in ON_LINES):
        made, totals = three(
            repeat,
            lambda x, o=options: dphist.histogram(
                x, bins=Integers(0, N - 1), epsilon="0.1", method=method, **o
            ),
        )
        assert trouble([json.loads(release.to_json()) for release in made], totals) == []
    made, totals = three(
        repeat,
        lambda x: dphist.histogram2d(
            x,
            x[::-1].copy(),
            bins=(5, 8),
            range=((0, N), (0, N)),
            epsilon="0.1",
            method=method,
            post="nonneg",
        ),
    )
    assert trouble([json.loads(release.to_json()) for release in made], totals) == []


@pytest.mark.parametrize("method", ["identity", "dawa", "auto"])
def test_a_release_of_people_in_a_file_holds_nothing_more(method, repeat, tmp_path):
    def publish(values):
        frame = pd.DataFrame({"age": values, "person": np.arange(values.size)})
        path = tmp_path / "people.parquet"
        frame.to_parquet(path)
        return dphist.histogram(
            path,
            bins=4,
            range=(0, N),
            column="age",
            unit="person",
            max_contributions=2,
            epsilon="0.1",
            method=method,
            ledger=str(tmp_path / "book.db"),
        )

    dphist.Ledger.open(tmp_path / "book.db", create=True)
    made, totals = three(repeat, publish)
    assert trouble([json.loads(release.to_json()) for release in made], totals) == []


@pytest.mark.parametrize("name", ["ages", "few"])
def test_a_histogram_of_a_publication_holds_nothing_more(name, repeat):
    def publish(values):
        frame = pd.DataFrame({"age": values, "person": np.arange(values.size)})
        more = {"column": "age", "unit": "person", "max_contributions": 2, "epsilon": "0.1"}
        plans = {
            "ages": dphist.Plan(bins=Integers(0, N - 1), **more),
            "few": dphist.Plan(bins=4, range=(0, N), method="dawa", **more),
        }
        return dphist.Publication(plans).release(frame)[name]

    made, totals = three(repeat, publish)
    assert trouble([json.loads(release.to_json()) for release in made], totals) == []


@pytest.mark.parametrize("method", of_each_kind(ON_LINES))
def test_tables_hold_the_listed_columns_and_the_same_header(method, repeat, tmp_path):
    made, totals = three(
        repeat, lambda x: dphist.histogram(x, bins=Integers(0, N - 1), epsilon="0.1", method=method)
    )
    headers = []
    for release in made:
        head, columns, rows = read_csv(release.save(tmp_path / "r.csv", overwrite=True))
        assert set(head) - {"bounding", "id"} == CSV_HEAD and set(columns) <= COLUMNS
        assert len(rows) == N
        assert head == read_csv(made[0].save(tmp_path / "first.csv", overwrite=True))[0], "the plan's alone"
        described, columns, count = read_parquet(release.save(tmp_path / "r.parquet", overwrite=True))
        assert columns <= COLUMNS and count == N
        headers.append(described)
    assert trouble(headers, totals) == []


def read_csv(path: Path) -> tuple[dict[str, str], list[str], list[list[str]]]:
    lines = path.read_text("utf-8").splitlines()
    head = dict(
        re.fullmatch(r"# dphist (\w+): (.*)", line).groups() for line in lines if line.startswith("#")
    )
    columns, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    return head, columns, rows


def read_parquet(path: Path) -> tuple[dict[str, Any], set[str], int]:
    kept = (
        database()
        .execute("SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)", [str(path)])
        .fetchall()
    )
    columns = {
        name for name, *_ in database().execute("DESCRIBE FROM read_parquet(?)", [str(path)]).fetchall()
    }
    count = database().execute("SELECT num_rows FROM parquet_file_metadata(?)", [str(path)]).fetchone()[0]
    assert [key for key, _ in kept] == ["dphist"], "nothing else stands beside the release"
    return json.loads(kept[0][1]), columns, count


GROUPED_COLUMNS = {"level", "group", "parent", "raw", "factor", "values", "error", "partition"}
HOSPITALS = ["H1", "H2", "H3", "H4", "H5"]


def by_group(values, **options):
    frame = pd.DataFrame({"age": values, "hospital": np.array([*HOSPITALS, "H9"])[values % 6]})
    return dphist.histogram(
        frame,
        column="age",
        bins=Integers(0, N - 1),
        by=("region", "hospital"),
        groups={"North": HOSPITALS[:2], "South": HOSPITALS[2:]},
        epsilon="0.1",
        **options,
    )


class TestGroups:
    @pytest.mark.parametrize("post", ["none", "nonneg", "integer"])
    @pytest.mark.parametrize("method", ["identity", "hats", "dawa2", "dawa", "ahp"])
    def test_a_release_of_groups_holds_nothing_that_is_not_listed(self, method, post, repeat, tmp_path):
        options = {"method": method, "post": post, "other": "elsewhere", "importances": {"region": 5}}
        made, totals = three(repeat, lambda x: by_group(x, **options))
        whole, heads = [], []
        for release in made:
            path = release.save(tmp_path / "r.json", overwrite=True)
            whole.append(json.loads(path.read_text("utf-8")))
            head, columns, count = read_parquet(release.save(tmp_path / "r.parquet", overwrite=True))
            assert columns <= GROUPED_COLUMNS and count == 3 + 6
            assert head == {key: value for key, value in whole[-1].items() if key not in ("rows", "sha256")}
            heads.append(head)
        assert trouble(whole, totals, GROUPED) == []
        assert trouble([json.loads(release["H3"].to_json()) for release in made], totals, OF_ONE) == []
        for other in whole[1:]:
            for row, same in zip(whole[0]["rows"], other["rows"], strict=True):
                for key in ("level", "group", "parent", "factor"):
                    assert row[key] == same[key], "the plan's alone"

    @pytest.mark.parametrize("place", ["by", "parameters", "provenance", "rows", ""])
    def test_an_exact_number_is_seen(self, place, repeat, tmp_path):
        made, totals = three(repeat, lambda x: by_group(x, method="identity"))
        whole = [
            json.loads(release.save(tmp_path / "r.json", overwrite=True).read_text("utf-8"))
            for release in made
        ]
        for document, total in zip(whole, totals, strict=True):
            inner = document["rows"][3] if place == "rows" else document[place] if place else document
            inner["records"] = total
        path = {"rows": "rows[].", "": ""}.get(place, f"{place}.")
        assert f"{path}records is not listed" in trouble(whole, totals, GROUPED)
        whole[1]["by"]["sizes"] = [3, 7]
        assert "by.sizes[] changes with the data" in trouble(whole, totals, GROUPED)


OF_ONE = {
    **WHITELIST,
    **{f"parameters.levels.{name}": PLAN for name in ("region", "hospital")},
    **{f"parameters.group.{key}": PLAN for key in ("level", "label")},
    **{f"error.{inner}{key}": NOISY for inner in ("", "base.", "base.base.") for key in _MODELS},
}


class TestPlanted:
    """The check must be able to fail: exact figures put where they do not belong."""

    @pytest.fixture
    def documents(self, repeat):
        made, totals = three(
            repeat, lambda x: dphist.histogram(x, bins=Integers(0, N - 1), epsilon="0.1", method="auto")
        )
        return [json.loads(release.to_json()) for release in made], totals

    @pytest.mark.parametrize(
        "place", ["", "provenance", "parameters", "parameters.found", "error", "versions"]
    )
    def test_a_number_of_records(self, documents, place):
        made, totals = documents
        for document, total in zip(made, totals, strict=True):
            inner = document
            for key in filter(None, place.split(".")):
                inner = inner.setdefault(key, {})
            inner["records"] = total
        assert f"{place + '.' if place else ''}records is not listed" in trouble(made, totals)

    @pytest.mark.parametrize(
        ("path", "write"),
        [
            (("provenance", "source"), "{} records in memory"),
            (("provenance", "dataset"), "default ({})"),
            (("parameters", "partition", "step"), "partition.Singletons of {}"),
            (("unit",), "one record of {}"),
            (("method",), "auto, parity {:.0%}"),
        ],
    )
    def test_a_number_inside_a_listed_field(self, documents, path, write):
        made, totals = documents
        for document, total in zip(made, totals, strict=True):
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = write.format(total)
        assert f"{'.'.join(path)} changes with the data" in trouble(made, totals)

    def test_a_total_among_the_noisy_fields_or_in_a_purpose(self, documents):
        made, totals = documents
        made[0]["error"]["scale"] = totals[0]
        made[1]["charges"][0]["purpose"] = f"totals of {totals[1]} disjoint groups"
        made[2]["charges"][0]["purpose"] = "totals, mostly of bin 7"
        found = trouble(made, totals)
        assert found.count("an exact total is written out") == 2
        assert sum(text.startswith("a purpose tells") for text in found) == 2
