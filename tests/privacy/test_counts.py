"""Exact counts are exact, and keep to themselves."""

import pickle

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.errors import DataError, PrivacyError, UsageError
from dphist.privacy.counts import Counts

THREE = Domain((Integers(0, 2),))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 2.0, 3.0], "not floats"),
        ([1.0, np.nan, 3.0], "NaN"),
        ([1, -2, 3], "negative"),
        (["1", "2", "3"], "must be integers"),
        ([True, False, True], "must be integers"),
        ([1, 2], "3 bins"),
        ([[1, 2, 3]], "3 bins"),
        ([2**53 + 1, 0, 0], "overflow"),
        (np.array([2**63, 0, 0], dtype=np.uint64), "overflow"),
        ([2**70, 0, 0], "must be integers"),
    ],
)
def test_what_is_no_count_is_refused_without_telling_any(values, words):
    with pytest.raises(DataError, match=words) as caught:
        Counts(values, THREE)
    assert "9007199254740993" not in str(caught.value)


def test_a_total_beyond_int64_is_refused_and_the_largest_allowed_is_not():
    n = 1024
    domain = Domain((Integers(0, n - 1),))
    with pytest.raises(DataError, match="overflow"):
        Counts(np.full(n, 2**53), Domain((Integers(0, n - 1),))) and Counts(
            np.full(4 * n, 2**53), Domain((Integers(0, 4 * n - 1),))
        )
    assert Counts(np.full(n, 2**52), domain).values.sum() == n * 2**52


@pytest.mark.parametrize("sensitivity", [0, -1, 1.5, True, "2"])
def test_the_units_sensitivity_is_a_positive_whole_number(sensitivity):
    with pytest.raises(UsageError):
        Counts([1, 2, 3], THREE, sensitivity)


def test_counts_copy_freeze_hide_and_refuse_to_be_pickled():
    mine = np.array([11, 22, 33])
    counts = Counts(mine, THREE)
    mine[0] = 0
    assert counts.values.tolist() == [11, 22, 33]
    with pytest.raises(ValueError, match="read-only"):
        counts.values[0] = 1
    assert "22" not in repr(counts)
    assert "22" not in str(counts)
    with pytest.raises(PrivacyError):
        pickle.dumps(counts)


def test_a_grid_may_come_in_its_own_shape():
    grid = Domain((Integers(0, 1), Integers(0, 2)))
    assert Counts([[1, 2, 3], [4, 5, 6]], grid).values.tolist() == [1, 2, 3, 4, 5, 6]
