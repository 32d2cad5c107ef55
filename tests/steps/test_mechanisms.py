"""The conformance suite: every component and every mechanism of the catalogue passes all of it."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest

import dphist
from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.methods.catalogue import CATALOGUE, make_pipeline
from dphist.methods.pipeline import Pipeline, Split
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate, initialize, order, partition
from dphist.steps.protocols import Step

SHAPES = {
    "one bin": np.array([7]),
    "two bins": np.array([0, 9]),
    "empty": np.zeros(16, int),
    "ramp": np.arange(33),
    "spikes": np.where(np.arange(64) % 13 == 0, 1000, 0),
    "huge": np.full(20, 10**12),
}


def components(module):
    """Return every component of a slot, built with its defaults."""
    return [
        cls()
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, Step)
        and cls.__module__.startswith(module.__name__)
        and not cls.__name__.startswith("_")
    ]


GRIDS = ("quadtree", "hybridtree")  # which refuse a line
STEPS = (initialize, order, partition, estimate)
ALL_STEPS = [c for module in STEPS for c in components(module)]


def run(method, x, *, epsilon=Fraction(1), seed=0, workload="points"):
    x = x[:, None] if method in GRIDS else x
    domain = Domain(tuple(Integers(0, n - 1) for n in x.shape))
    pipeline = make_pipeline(method, domain)
    queries = make_workload(workload, domain)
    pipeline.check(domain, queries)
    curator = Curator.simulated(Counts(x, domain), epsilon=epsilon, seed=seed)
    return curator, pipeline.run(curator, queries)


@pytest.mark.parametrize("step", ALL_STEPS, ids=repr)
def test_a_component_is_a_frozen_dataclass_that_prints_and_compares(step):
    assert dataclasses.is_dataclass(step)
    assert step.__dataclass_params__.frozen
    assert step == type(step)()
    assert hash(step) == hash(type(step)())
    assert type(step).__name__ in repr(step)
    assert type(step).__doc__
    assert isinstance(step.spends, bool)
    assert isinstance(step.needs_rough, bool)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", CATALOGUE)
class TestEveryMethod:
    def test_gives_every_bin_a_finite_value_and_spends_exactly_everything(self, method, shape):
        curator, release = run(method, SHAPES[shape])
        assert release.raw.shape == SHAPES[shape].shape
        assert np.isfinite(release.raw).all()
        assert sum(s.epsilon for s in curator.spent) == 1
        assert sum(c.share for c in release.charges) == 1
        assert release.simulated
        assert release.method == method

    def test_repeats_itself_with_one_seed_and_not_with_another(self, method, shape):
        first, again = (run(method, SHAPES[shape], epsilon=Fraction(1, 50))[1].raw for _ in range(2))
        other = run(method, SHAPES[shape], epsilon=Fraction(1, 50), seed=1)[1].raw
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_leaves_its_input_alone(self, method, shape):
        x = SHAPES[shape].copy()
        run(method, x)
        assert np.array_equal(x, SHAPES[shape])

    def test_describes_itself_in_json(self, method, shape):
        _, release = run(method, SHAPES[shape])
        written = json.loads(release.to_json())["parameters"]
        assert {"initialize", "order", "partition", "estimate", "shares", "workload"} <= set(written)
        parts = [Fraction(share) for share in written["shares"].values()]
        assert sum(parts) == sum(charge.share for charge in release.charges) == 1
        declared = make_pipeline(method, release.domain).split
        assert Fraction(written["shares"]["estimate"]) >= declared.estimate


@pytest.mark.parametrize("method", CATALOGUE)
def test_a_total_is_unbiased_and_right_at_a_huge_epsilon(method):
    for x in SHAPES.values():
        _, release = run(method, x, epsilon=Fraction(10**6))
        assert release.raw.sum() == pytest.approx(x.sum(), rel=1e-9, abs=1e-6)


def test_identity_is_the_counts_plus_noise_and_uniform_spreads_the_total():
    x = SHAPES["ramp"]
    assert np.array_equal(run("identity", x, epsilon=Fraction(10**6))[1].raw, x)
    assert run("uniform", x, epsilon=Fraction(10**6))[1].raw == pytest.approx(np.full(33, x.mean()))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["identity", "uniform"])
def test_scale_and_epsilon_are_exchangeable(method):
    """Twice the data at half the epsilon has the same relative error (Hay et al. 2016)."""
    x = SHAPES["spikes"]
    small = dphist.simulate(x, epsilon=1, method=method, trials=400, seed=1) - x
    large = dphist.simulate(20 * x, epsilon="1/20", method=method, trials=400, seed=2) - 20 * x
    ratio = np.square(large / 20).mean() / np.square(small).mean()
    # 1 - 1/12 of the discrete law's variance at scale 1 is what the lattice takes off
    assert 0.85 < ratio < 1.15


@dataclasses.dataclass(frozen=True)
class Paid(partition.Singletons):
    spends = True


class TestPipelines:
    def test_shares_must_add_up_to_one(self):
        with pytest.raises(UsageError, match="add up to 1"):
            Split(initialize="0.5", estimate="0.4")
        with pytest.raises(UsageError, match="add up to 1"):
            Split(initialize="0.5", estimate="0.6")
        assert Split(initialize=0.1, partition=0.2, estimate=0.7).partition == Fraction(1, 5)

    @pytest.mark.parametrize("bad", [-0.1, 1.5, "x", None, True, float("nan"), float("inf"), "1/0"])
    def test_a_share_is_a_number_between_nothing_and_all(self, bad):
        with pytest.raises(UsageError, match="share"):
            Split(initialize=bad, estimate=1)

    def test_a_component_that_spends_needs_a_share_and_one_that_does_not_takes_none(self):
        with pytest.raises(UsageError, match="Nothing spends nothing"):
            Pipeline(split=Split(initialize=1))
        with pytest.raises(UsageError, match="Paid needs a share"):
            Pipeline(partition=Paid())
        with pytest.raises(UsageError, match="Singletons spends nothing"):
            Pipeline(split=Split(partition="0.5", estimate="0.5"))

    def test_a_step_that_needs_rough_counts_is_refused_without_them(self):
        @dataclasses.dataclass(frozen=True)
        class Sorted(Step):
            needs_rough = True

            def __call__(self, domain, rough):
                return np.argsort(rough.values)

        with pytest.raises(
            UsageError, match="Sorted needs rough counts, and initialize.Nothing measures none"
        ):
            Pipeline(order=Sorted())

    def test_a_partition_that_does_not_cover_the_domain_is_named(self):
        @dataclasses.dataclass(frozen=True)
        class Short(Step):
            def __call__(self, curator, rough, order, *, share, later):
                return Groups.whole(2)

        with pytest.raises(UsageError, match="Short returned groups of 2 bins for 5"):
            dphist.simulate(np.arange(5), epsilon=1, method=Pipeline(partition=Short()))

    def test_an_unknown_method_is_met_with_a_suggestion(self):
        with pytest.raises(UsageError, match="Did you mean 'identity'"):
            make_pipeline("identty", Domain((Integers(0, 1),)))
        with pytest.raises(UsageError, match="catalogue name or a Pipeline"):
            make_pipeline(3, Domain((Integers(0, 1),)))
