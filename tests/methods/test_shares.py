"""A release states the shares that its steps spent, not those that were planned."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

ROUGH, FLAT = np.random.default_rng(1).integers(0, 20_000, 512), np.full(512, 100)


def shares_of(release):
    return {name: Fraction(share) for name, share in release.parameters["shares"].items()}


def released(counts, method, workload):
    """Return a release with intervals and repeatable noise: a question may be answered wrongly by chance."""
    domain = Domain((Integers(0, len(counts) - 1),))
    plan = dphist.Plan(bins=domain, epsilon=1, method=method, workload=workload)
    held = Curator.simulated(Counts(np.asarray(counts), domain), epsilon=plan.budget, seed=1)
    return plan.pipeline.run(held, plan.queries)


@pytest.mark.parametrize("method", ["dawa2", "dawa3"])
def test_what_a_question_left_is_in_the_share_of_the_estimate(method):
    release = released(ROUGH, method, "ranges")
    *total, question, measured = release.charges
    assert len(total) == (method == "dawa3") and question.purpose == "choice among 2 candidates"
    assert shares_of(release) == {
        "initialize": 0,
        "partition": question.share + sum(part.share for part in total),
        "estimate": measured.share,
        "calibrate": 0,
    }


@pytest.mark.parametrize("method", ["dawa", "dawa3", "sdahp", "identity"])
def test_the_shares_add_up_to_what_was_charged(method):
    release = released(FLAT, method, "points" if method in ("sdahp", "identity") else "ranges")
    assert sum(shares_of(release).values()) == sum(charge.share for charge in release.charges) == 1
    if method == "dawa3":
        assert shares_of(release)["calibrate"] == Fraction(1, 20) and len(release.charges) == 6


def test_so_do_those_of_very_many_bins():
    release = dphist.histogram([80] * 1000, integers=(0, 2**40), epsilon=1, workload="ranges")
    assert sum(shares_of(release).values()) == sum(charge.share for charge in release.charges) == 1


@pytest.mark.parametrize("method", ["dawa3", "average2", "identity"])
def test_planned_shares_add_up_with_those_of_intervals(method):
    domain = Domain((Integers(0, 999),))
    made = make_pipeline(method, domain, make_workload("points", domain)).with_intervals()
    for pipeline in (made, make_pipeline(method, domain, make_workload("points", domain))):
        shares = pipeline.describe(make_workload("points", domain))["shares"]
        assert sum(Fraction(share) for share in shares.values()) == 1
