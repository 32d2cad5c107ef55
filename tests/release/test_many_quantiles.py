"""Quantiles of a list: what they have in common is worked out once, and each is as if asked for alone."""

from __future__ import annotations

import numpy as np
import pytest

import dphist
from dphist.release.release import Release

SHARES = [0.1, 0.25, 0.5, 0.75, 0.9]


def made(what):
    if what == "line":
        return dphist.from_counts(np.full(64, 90), epsilon=1, method="hats", workload="ranges")
    return dphist.histogram(list(range(0, 4000, 3)), integers=(0, 2**30), epsilon=1, workload="ranges")


@pytest.mark.parametrize("what", ["line", "very many bins"])
def test_each_is_as_if_asked_for_alone(what):
    release = made(what)
    many = release.quantile(SHARES)
    for i, q in enumerate(SHARES):
        one = release.quantile(q)
        assert (many[i].value, many[i].low, many[i].high) == (one.value, one.low, one.high)
    assert len(release.quantile(np.array(SHARES))) == len(release.quantile(tuple(SHARES))) == len(SHARES)


def test_the_intervals_of_all_edges_are_worked_out_once(monkeypatch):
    release, asked = made("line"), []
    ends = Release._share_ends
    monkeypatch.setattr(Release, "_share_ends", lambda *args: asked.append(1) or ends(*args))
    release.quantile(SHARES)
    assert len(asked) == 1


def test_so_are_those_of_very_many_bins(monkeypatch):
    release, asked = made("very many bins"), []
    answers = type(release.error).range_answers
    count = lambda *args, **more: asked.append(1) or answers(*args, **more)  # noqa: E731
    monkeypatch.setattr(type(release.error), "range_answers", count)
    release.quantile(0.5)
    alone = len(asked)
    release.quantile(SHARES)
    assert len(asked) == 2 * alone
