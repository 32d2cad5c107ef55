"""Whoever writes ``timezone=df.age`` has put records there: no error repeats them, and all are ours."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dphist
from dphist.errors import DphistError, PrivacyError

SECRET, NUMBER = "secret-Bob", 987654321
ODD = {
    "series": pd.Series([SECRET, SECRET]),
    "one": pd.Series([SECRET]),
    "numbers": pd.Series([NUMBER, NUMBER]),
    "index": pd.Index([SECRET, SECRET]),
    "categorical": pd.Categorical([SECRET, SECRET]),
    "frame": pd.DataFrame({"a": [SECRET]}),
    "polars": pl.Series([SECRET, SECRET]),
    "arrow": pa.array([SECRET, SECRET]),
    "scalar": np.array(SECRET),
}
ANYWHERE = {"list": [SECRET, SECRET], "array": np.array([SECRET, SECRET]), "bytes": SECRET.encode()}
RECORDS = pd.DataFrame({"age": [1.0], "ward": ["A"]})
BINS = ("every", "integers", "log", "categories")  # each instead of bins and range


def arguments(name, value, **more):
    usual = {"column": "age", "epsilon": 1, **more}
    if name not in BINS:
        usual |= {"bins": 2, "range": (0, 2)}
    return usual | ({"unit": "ward"} if name == "max_contributions" else {}) | {name: value}


def assert_silent(call, *said):
    """Assert that a call works, or fails in an error of ours that repeats nothing."""
    try:
        call()
    except DphistError as error:
        assert SECRET not in str(error) and "secret" not in str(error) and str(NUMBER) not in str(error), said


@pytest.mark.filterwarnings("ignore:the prior must be public")
@pytest.mark.parametrize("kind", ODD)
def test_no_argument_of_a_plan_is_repeated(kind):
    value = ODD[kind]
    for name in inspect.signature(dphist.Plan).parameters:
        assert_silent(lambda name=name: dphist.Plan(**arguments(name, value)), name)
    for name in inspect.signature(dphist.GroupedPlan).parameters:
        given = {"by": "ward", "groups": ["A"]} | arguments(name, value)
        assert_silent(lambda given=given: dphist.GroupedPlan(**given), name)


@pytest.mark.parametrize("kind", [*ODD, *ANYWHERE])
def test_what_cannot_be_a_list_repeats_none(kind):
    value = (ODD | ANYWHERE)[kind]
    for name in (
        "epsilon",
        "calibrate",
        "timezone",
        "method",
        "post",
        "unit",
        "outside",
        "encoding",
        "decimal",
    ):
        with pytest.raises(DphistError) as error:
            dphist.Plan(**arguments(name, value))
        assert "secret" not in str(error.value) and str(NUMBER) not in str(error.value), name
    for name in ("dataset", "level", "epsilon"):
        with pytest.raises(DphistError) as error:
            dphist.bounds(RECORDS, **{"column": "age", "epsilon": 1, name: value})
        assert "secret" not in str(error.value) and str(NUMBER) not in str(error.value), name
    for wrong in (dphist.Publication, dphist.Publication.load):
        with pytest.raises(DphistError) as error:
            wrong(value)
        assert "secret" not in str(error.value) and str(NUMBER) not in str(error.value), wrong


@pytest.mark.parametrize("kind", ["series", "index", "categorical", "polars", "arrow", "array"])
def test_labels_are_not_read_off_a_column(kind):
    value = (ODD | ANYWHERE)[kind]
    for given in ({"categories": value}, {"by": "ward", "groups": value, "bins": 2, "range": (0, 2)}):
        with pytest.raises(PrivacyError, match="public knowledge"):
            dphist.histogram(RECORDS, column="age", epsilon=1, **given)
    with pytest.raises(PrivacyError, match="public knowledge"):
        dphist.histogram(RECORDS, by="ward", groups=RECORDS.ward.unique(), **arguments("column", "age"))


def test_edges_are_not_read_off_a_column_and_may_be_an_array():
    for edges in (pd.Series([0.0, 1.0]), pl.Series([0.0, 1.0]), pa.array([0.0, 1.0])):
        with pytest.raises(PrivacyError, match="public knowledge"):
            dphist.Plan(bins=edges, column="age", epsilon=1)
    assert dphist.Plan(bins=np.array([0.0, 1.0]), column="age", epsilon=1).domain.n == 1
