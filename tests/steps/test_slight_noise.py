"""Where noise on single bins is slight, nothing else is measured: by public numbers alone."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import _slight, make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps.estimate import AveragedTree
from dphist.steps.partition import Splits
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import GroupTotals

SHAPES = [(20,), (100,), (300,), (5000,), (20, 30), (40, 50)]


def run(x, *, epsilon, spec="random:50", sensitivity=1, bins=None, seed=0):
    domain = Domain(tuple(Integers(0, n - 1) for n in np.shape(x)))
    held = Counts(np.asarray(x), domain, sensitivity)
    made = Curator.simulated(held, epsilon=Fraction(epsilon), seed=seed)
    queries = make_workload("rectangles:50" if len(domain.axes) == 2 else spec, domain)
    pipeline = make_pipeline("dawa3", bins or domain, queries)
    return *pipeline.values(made, queries), made


def patterns(shape):
    n = int(np.prod(shape))
    yield np.zeros(shape, np.int64)
    yield np.full(shape, 7)
    yield (np.arange(n) * 7919 % 13 * 1000).reshape(shape)


@pytest.mark.parametrize("n", [1, 3, 16, 100, 4096, 1 << 20])
def test_the_noise_of_all_bins_together_has_a_variance_of_little_more_than_half(n):
    assert n * noise_law.variance(_slight(n)) == pytest.approx(0.5 / (1 - 1 / (4 * n)) ** 2, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_all_of_epsilon_is_for_single_bins_whatever_the_data(shape, sensitivity):
    n = int(np.prod(shape))
    for x in patterns(shape):
        groups, found, made = run(x, epsilon=sensitivity * 1.01 / _slight(n), sensitivity=sensitivity)
        (spent,) = made.spent
        assert (spent.purpose, spent.share) == (f"totals of {n} disjoint groups", 1)
        assert groups.are_singletons and isinstance(found.error, GroupTotals)
        assert np.all(found.error.scale == made.scale(Fraction(1)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_wider_noise_is_as_it_was(shape, sensitivity):
    n = int(np.prod(shape))
    for x in patterns(shape):
        _, _, made = run(x, epsilon=sensitivity * 0.99 / _slight(n), sensitivity=sensitivity)
        assert len(made.spent) > 1 and made.spent[0].share < Fraction(1, 4)


@pytest.mark.parametrize("spec", ["ranges", "prefixes"])
def test_few_bins_have_no_tree_then(spec):
    x = np.arange(12)
    tree, flat = (run(x, epsilon=part / _slight(12), spec=spec)[2].spent[0] for part in (0.99, 1.01))
    assert (tree.purpose, flat.purpose) == ("totals of 12 groups on a tree", "totals of 12 disjoint groups")


def test_a_rehearsal_over_fewer_bins_takes_the_way_of_the_release():
    bins, few = Domain((Integers(0, 4095),)), np.arange(48) * 100
    for epsilon, alone in (
        ("6", False),
        ("10", True),
    ):  # 48 bins of their own would have slight noise at both
        *_, made = run(few, epsilon=epsilon, bins=bins)
        assert (len(made.spent) == 1) == alone


@pytest.mark.parametrize("spec", ["random:200", "prefixes"])
def test_errors_are_those_of_single_bins(spec):
    """With epsilon 7 on 256 bins a tree has three times the error."""
    x = np.random.default_rng(1).poisson(50, 256)
    queries = make_workload(spec, Domain((Integers(0, 255),)))
    off = [
        queries.mean_absolute_error(run(x, epsilon="7", spec=spec, seed=seed)[1].values - x)
        for seed in range(40)
    ]
    assert np.mean(off) < 0.2


def line(x, *, epsilon):
    domain = Domain((Integers(0, len(x) - 1),))
    held = Counts(np.asarray(x), domain)
    return Curator.simulated(held, epsilon=Fraction(epsilon), seed=0), make_workload("ranges", domain)


def test_noise_is_slight_for_nobody_who_did_not_say_so():
    assert AveragedTree().slight == Splits().slight == 0.0
    made, queries = line(np.arange(12), epsilon="9")
    AveragedTree()(made, None, Groups.singletons(12), queries, share=Fraction(1))
    assert made.spent[0].purpose == "totals of 12 groups on a tree"


def test_the_share_that_is_spent_says_whether_noise_is_slight():
    made, queries = line(np.arange(12), epsilon="6")
    step = AveragedTree(slight=0.2)  # of all of epsilon it is
    step(made, None, Groups.singletons(12), queries, share=Fraction(1, 2))
    assert made.spent[0].purpose == "totals of 12 groups on a tree"


def test_groups_stay_groups_however_slight_the_noise_is():
    made, queries = line(np.arange(12), epsilon="9")
    found = AveragedTree(slight=0.2)(made, None, Groups(np.array([0, 6, 12])), queries, share=Fraction(1))
    assert found.error.total_noise.k == 2


def test_a_release_says_which_step_measured_its_bins():
    x = np.arange(100)
    domain = Domain((Integers(0, 99),))
    queries = make_workload("ranges", domain)
    made = Curator.simulated(Counts(x, domain), epsilon=Fraction(7), seed=0)
    said = make_pipeline("dawa3", domain, queries).run(made, queries).parameters["estimate"]
    assert "Averaged" in str(said) and "AveragedTree" in said["chosen_by"]


def test_dawa2_groups_nothing_where_the_noise_of_its_question_is_far_below_a_record():
    domain = Domain((Integers(0, 99),))
    queries = make_workload("ranges", domain)
    made = Curator.simulated(Counts(np.full(100, 7), domain), epsilon=Fraction(200), seed=0)
    groups, _ = make_pipeline("dawa2", domain, queries).values(made, queries)
    assert groups.are_singletons and len(made.spent) == 1


@pytest.mark.parametrize("step", [Splits, AveragedTree])
@pytest.mark.parametrize("slight", ["x", None, math.nan, math.inf, -0.1])
def test_what_is_no_scale_is_refused(step, slight):
    with pytest.raises(UsageError, match="slight"):
        step(slight=slight)


def test_averages_that_do_harm_are_not_taken():
    """A record in one bin of very many looks like noise, and is none as often."""
    x = np.zeros(1024, np.int64)
    x[::128] = 1
    x[700:] = 40
    kept = [run(x, epsilon="8.5", seed=seed)[1].values[:700].sum() for seed in range(12)]
    assert np.median(kept) > 3.0
