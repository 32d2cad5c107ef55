"""The catalogue: published name -> pipeline, a sentence each.

A mechanism is built for a domain, because a few choose a public parameter from its size; none looks at
data. ``dphist methods`` prints this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction as F  # noqa: N817 - shares read like numbers
from typing import Literal

from dphist.domain import Domain
from dphist.errors import UsageError, did_you_mean
from dphist.pipeline import Pipeline, Split
from dphist.steps import estimate, formulas, initialize, order, partition
from dphist.steps.protocols import Estimator, Initializer, Orderer, Partitioner


@dataclass(frozen=True)
class Method:
    """One line of the catalogue."""

    name: str
    build: Callable[[Domain], Pipeline]
    summary: str
    citation: str


def identity(domain: Domain) -> Pipeline:
    """Noise on every bin."""
    return Pipeline(partition=partition.Singletons(), estimate=estimate.GroupMeans())


def uniform(domain: Domain) -> Pipeline:
    """A noisy total, spread evenly."""
    return Pipeline(partition=partition.Whole(), estimate=estimate.GroupMeans())


def _line(domain: Domain) -> Orderer:
    """Return the order in which methods that group neighbours see a domain: along a curve if it is a grid."""
    return order.Hilbert() if len(domain.axes) == 2 else order.AsGiven()


def _sorted(
    partitioner: Partitioner, estimator: Estimator, share: F, *, initializer: Initializer | None = None
) -> Pipeline:
    """Return a method that sorts the bins by their rough counts, groups them for free, and estimates."""
    return Pipeline(
        initialize=initializer or initialize.Noisy(),
        order=order.ByNoisyCount(),
        partition=partitioner,
        estimate=estimator,
        split=Split(initialize=share, estimate=1 - share),
    )


def ahp(domain: Domain) -> Pipeline:
    """Thresholded noisy counts, sorted, greedy clusters, one noisy mean per cluster."""
    return _sorted(
        partition.AhpGreedy(), estimate.GroupMeans(), F("0.5"), initializer=initialize.Thresholded()
    )


def ahp_optimal(domain: Domain) -> Pipeline:
    """AHP with the clusters of least error of all."""
    best = partition.Optimal(formula=formulas.Ahp())
    return _sorted(best, estimate.GroupMeans(), F("0.5"), initializer=initialize.Thresholded())


def ahp_empirical(domain: Domain) -> Pipeline:
    """AHP with the best of four rules of thumb for the number of clusters."""
    return _sorted(
        partition.Empirical(), estimate.GroupMeans(), F("0.5"), initializer=initialize.Thresholded()
    )


def gahp(domain: Domain) -> Pipeline:
    """Noisy counts in the order given, greedy groups."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=partition.Greedy(formula=formulas.Ahp()),
        split=Split(initialize=F("0.5"), estimate=F("0.5")),
    )


def sgahp(domain: Domain) -> Pipeline:
    """Sorted noisy counts, greedy groups."""
    return _sorted(partition.Greedy(formula=formulas.Ahp()), estimate.GroupMeans(), F("0.5"))


def sdahp(domain: Domain) -> Pipeline:
    """Sorted noisy counts, the best groups, one noisy mean each."""
    return _sorted(partition.Optimal(formula=formulas.Unbiased()), estimate.GroupMeans(), F("0.9"))


def sdwf(domain: Domain) -> Pipeline:
    """Sorted noisy counts, the best groups, rough and fresh means weighted."""
    best = partition.Optimal(formula=formulas.Unbiased(weighted=True))
    return _sorted(best, estimate.WeightedMeans(), F("0.9"))


def sdahp_pow2(domain: Domain) -> Pipeline:
    """The published approximation of sdahp."""
    return _sorted(partition.PowersOfTwo(formula=formulas.Unbiased()), estimate.GroupMeans(), F("0.9"))


def sdwf_pow2(domain: Domain) -> Pipeline:
    """The published approximation of sdwf."""
    powers = partition.PowersOfTwo(formula=formulas.Unbiased(weighted=True))
    return _sorted(powers, estimate.WeightedMeans(), F("0.9"))


def dpc(domain: Domain) -> Pipeline:
    """Noisy counts, kd-tree groups, rough and fresh means weighted."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=partition.KdTree(),
        estimate=estimate.WeightedMeans(),
        split=Split(initialize=F("0.9"), estimate=F("0.1")),
    )


def sdpc(domain: Domain) -> Pipeline:
    """Sorted noisy counts, kd-tree groups, rough and fresh means weighted."""
    return _sorted(partition.KdTree(), estimate.WeightedMeans(), F("0.9"))


def sdawa(domain: Domain) -> Pipeline:
    """Sorted by noisy counts, the private L1 partition, rough and fresh means weighted."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=order.ByNoisyCount(),
        partition=partition.L1(),
        estimate=estimate.WeightedMeans(),
        split=Split(initialize=F("0.9"), partition=F("0.025"), estimate=F("0.075")),
    )


def s1(domain: Domain) -> Pipeline:
    """The private L1 partition over all intervals, one noisy mean per group."""
    return Pipeline(
        order=_line(domain),
        partition=partition.L1(candidates="all"),
        split=Split(partition=F("0.25"), estimate=F("0.75")),
    )


def sa(domain: Domain) -> Pipeline:
    """The private L1 partition over intervals of power-of-two sizes."""
    return Pipeline(
        order=_line(domain), partition=partition.L1(), split=Split(partition=F("0.25"), estimate=F("0.75"))
    )


def s2(domain: Domain) -> Pipeline:
    """Noisy counts, the groups of least squared error, one noisy mean per group."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=partition.Optimal(formula=formulas.Constant()),
        split=Split(initialize=F("0.25"), estimate=F("0.75")),
    )


def _ordered_l1(candidates: Literal["all", "powers"]) -> Pipeline:
    """Return S1 or S~ on ordered bins; ordering and grouping both read the data, so they share 0.65."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=order.ByNoisyCount(),
        partition=partition.L1(candidates=candidates),
        split=Split(initialize=F("0.325"), partition=F("0.325"), estimate=F("0.35")),
    )


def o_s1(domain: Domain) -> Pipeline:
    """Bins ordered privately, then S1."""
    return _ordered_l1("all")


def o_sa(domain: Domain) -> Pipeline:
    """Bins ordered privately, then S~."""
    return _ordered_l1("powers")


def o_s2(domain: Domain) -> Pipeline:
    """Bins ordered privately, then S2 on the same noisy counts."""
    return _sorted(partition.Optimal(formula=formulas.Constant()), estimate.GroupMeans(), F("0.65"))


_AHP = "Zhang, Chen, Xu, Meng, Xie, SDM 2014"
_SORTAKI = "Doudalis, Mehrotra, 2017 (SORTaki)"
_ENGINEERING = "Kellaris, Papadopoulos, Papadias, TKDE 2019"

METHODS = (
    Method(
        "identity",
        identity,
        "Noise on every bin: unbiased, exact error bars, no assumption about the data.",
        "Dwork, McSherry, Nissim, Smith, TCC 2006; Ghosh, Roughgarden, Sundararajan, STOC 2009",
    ),
    Method(
        "uniform",
        uniform,
        "One noisy total spread evenly over all bins: the other extreme, for tiny budgets.",
        "Hay, Machanavajjhala, Miklau, Chen, Zhang, SIGMOD 2016 (baseline)",
    ),
    Method("ahp", ahp, "Noisy counts, small ones zeroed, sorted; greedy clusters share a mean.", _AHP),
    Method("ahp-optimal", ahp_optimal, "AHP with the exact best clusters, in O(n log n).", _AHP),
    Method("ahp-empirical", ahp_empirical, "AHP with exact clusters for four rules of thumb.", _AHP),
    Method("gahp", gahp, "AHP's greedy groups of neighbouring bins, nothing sorted.", _SORTAKI),
    Method("sgahp", sgahp, "AHP's greedy groups of sorted bins.", _SORTAKI),
    Method("stgahp", ahp, "The same as ahp, under SORTaki's name for it.", _SORTAKI),
    Method("sdahp", sdahp, "Sorted bins, exact best groups by the unbiased error, one mean each.", _SORTAKI),
    Method("sdwf", sdwf, "As sdahp, with rough and fresh means weighted by their variances.", _SORTAKI),
    Method("sdahp-pow2", sdahp_pow2, "As sdahp, with groups of power-of-two sizes (published).", _SORTAKI),
    Method("sdwf-pow2", sdwf_pow2, "As sdwf, with groups of power-of-two sizes (published).", _SORTAKI),
    Method("dpc", dpc, "DPCube's kd-tree groups with rough and fresh means weighted.", _SORTAKI),
    Method("sdpc", sdpc, "As dpc, on sorted bins.", _SORTAKI),
    Method("sdawa", sdawa, "DAWA's private partition on sorted bins, means weighted.", _SORTAKI),
    Method("s1", s1, "Private L1 partition over all intervals; one mean per group.", _ENGINEERING),
    Method("sa", sa, "Private L1 partition over power-of-two intervals (S~).", _ENGINEERING),
    Method("s2", s2, "Noisy counts, groups of least squared error; one mean per group.", _ENGINEERING),
    Method("o+s1", o_s1, "Bins ordered privately, then s1; both steps paid for.", _ENGINEERING),
    Method("o+sa", o_sa, "Bins ordered privately, then sa; both steps paid for.", _ENGINEERING),
    Method("o+s2", o_s2, "Bins ordered privately, then s2 on the same noisy counts.", _ENGINEERING),
)
CATALOGUE = {method.name: method for method in METHODS}


def make_pipeline(method: str | Pipeline, domain: Domain) -> Pipeline:
    """Return the pipeline of a catalogue name; a pipeline is returned as it is."""
    if isinstance(method, Pipeline):
        return method
    if not isinstance(method, str):
        raise UsageError(f"method must be a catalogue name or a Pipeline, not {method!r}.")
    if method not in CATALOGUE:
        raise UsageError(f"there is no method {method!r}. {did_you_mean(method, CATALOGUE)}")
    return replace(CATALOGUE[method].build(domain), name=method)
