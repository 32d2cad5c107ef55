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
from dphist.methods.pipeline import Pipeline, Split
from dphist.steps import auto as auto_step
from dphist.steps import (
    bisect,
    estimate,
    formulas,
    grids,
    initialize,
    iterative,
    order,
    partition,
    transforms,
)
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


def laplace(domain: Domain) -> Pipeline:
    """Noise on every bin, in steps far below one record."""
    return Pipeline(partition=partition.Singletons(), estimate=transforms.FineMeans())


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
    return _smoothed(domain, partition.L1(candidates="all"), estimate.GroupMeans())


def sa(domain: Domain) -> Pipeline:
    """The private L1 partition over intervals of power-of-two sizes."""
    return _smoothed(domain, partition.L1(), estimate.GroupMeans())


def s2(domain: Domain) -> Pipeline:
    """Noisy counts, the groups of least squared error, one noisy mean per group."""
    return _smoothed(domain, partition.Optimal(formula=formulas.Constant()), estimate.GroupMeans())


def s2_auto(domain: Domain) -> Pipeline:
    """S2 with the penalty per group that noisy counts, halved, say is best."""
    return _smoothed(
        domain,
        partition.Optimal(formula=formulas.Constant(), penalty="auto"),
        estimate.GroupMeans(),
    )


def sdwf_auto(domain: Domain) -> Pipeline:
    """sdwf with the penalty per group that noisy counts, halved, say is best."""
    best = partition.Optimal(formula=formulas.Unbiased(weighted=True), penalty="auto")
    return _sorted(best, estimate.WeightedMeans(), F("0.9"))


def wf_auto(domain: Domain) -> Pipeline:
    """sdwf-auto with neighbouring bins grouped, nothing sorted."""
    best = partition.Optimal(formula=formulas.Unbiased(weighted=True), penalty="cautious")
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=best,
        estimate=estimate.WeightedMeans(),
        split=Split(initialize=F("0.98"), estimate=F("0.02")),
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


def _tree(domain: Domain, tree: Estimator) -> Pipeline:
    """Return a tree over all bins, nothing else."""
    return Pipeline(order=_line(domain), estimate=tree)


def _smoothed(domain: Domain, partitioner: Partitioner, tree: Estimator) -> Pipeline:
    """Return groups by a quarter of the budget, and a tree over them by the rest."""
    paid = partitioner.spends
    return Pipeline(
        initialize=initialize.Nothing() if paid else initialize.Noisy(),
        order=_line(domain),
        partition=partitioner,
        estimate=tree,
        split=Split(
            initialize=F(0) if paid else F("0.25"),
            partition=F("0.25") if paid else F(0),
            estimate=F("0.75"),
        ),
    )


def h(domain: Domain) -> Pipeline:
    """A 16-ary tree, even budgets, the root left out."""
    return _tree(domain, estimate.Tree(branching=16))


def hay(domain: Domain) -> Pipeline:
    """A binary tree, even budgets, root included, made consistent."""
    return _tree(domain, estimate.Tree(branching=2, root=True))


def hb(domain: Domain) -> Pipeline:
    """A tree with the branching that is best for random ranges of n bins, from n alone."""

    def error(b: int) -> float:  # Qardaji et al. 2013, the error of a range with consistency
        levels = 1
        while b**levels < domain.n:
            levels += 1
        return (b - 1) * levels**3 - 2 * (b + 1) * levels**2 / 3

    return _tree(domain, estimate.Tree(branching=min(range(2, 257), key=error)))


def greedyh(domain: Domain) -> Pipeline:
    """A tree tuned to the workload, no partition."""
    return _tree(domain, estimate.WorkloadTree())


def greedyh_tuned(domain: Domain) -> Pipeline:
    """greedyh with our sweeps over its weights."""
    return _tree(domain, estimate.WorkloadTree(weights="tuned"))


def hats(domain: Domain) -> Pipeline:
    """Single bins and overlapping triangles."""
    return _tree(domain, estimate.Hats())


def dawa(domain: Domain) -> Pipeline:
    """The private L1 partition, then a tree tuned to the workload."""
    return _smoothed(domain, partition.L1(), estimate.WorkloadTree())


def dawa_all(domain: Domain) -> Pipeline:
    """DAWA with all intervals as candidates."""
    return _smoothed(domain, partition.L1(candidates="all"), estimate.WorkloadTree())


def dawa2(domain: Domain) -> Pipeline:
    """Groups split off a tree where bins differ, then hats or a tree tuned to the workload."""
    return Pipeline(
        order=_line(domain),
        partition=partition.Splits(),
        estimate=estimate.Hats(),
        split=Split(partition=F("0.15"), estimate=F("0.85")),
    )


def partition_uniform(domain: Domain) -> Pipeline:
    """DAWA's partition, a binary tree with even budgets."""
    return _smoothed(domain, partition.L1(), estimate.Tree(branching=2, root=True))


def partition_geometric(domain: Domain) -> Pipeline:
    """DAWA's partition, a binary tree whose budgets grow towards the leaves."""
    tree = estimate.Tree(branching=2, ratio=2 ** (1 / 3), root=True)
    return _smoothed(domain, partition.L1(), tree)


def noisefirst(domain: Domain) -> Pipeline:
    """Noisy counts, the best number of best segments, means of the same noisy counts."""
    # A segment costs its SSE and two variances: one the SSE lacks of noise, one the mean has. The least over
    # all partitions is the least over k of the best k segments.
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=partition.Optimal(formula=formulas.Unbiased(extra=1)),
        estimate=estimate.RoughMeans(),
        split=Split(initialize=F(1)),
    )


def _selected(domain: Domain, partitioner: Partitioner) -> Pipeline:
    """Return groups by private selection with half the budget, one noisy total each with the other."""
    return Pipeline(
        order=_line(domain), partition=partitioner, split=Split(partition=F("0.5"), estimate=F("0.5"))
    )


def structurefirst(domain: Domain) -> Pipeline:
    """Boundaries by private selection, one noisy mean per group."""
    return _selected(domain, bisect.StructureFirst())


def php(domain: Domain) -> Pipeline:
    """Bisections by private selection, one noisy mean per group."""
    return _selected(domain, bisect.PHp())


def gs(domain: Domain) -> Pipeline:
    """Bins sorted by noisy count, groups of one size, one noisy mean each."""
    return _sorted(bisect.FixedSize(), estimate.GroupMeans(), F("0.5"))


def efpa(domain: Domain) -> Pipeline:
    """The lowest Fourier frequencies, their number chosen privately."""
    return _tree(domain, transforms.Efpa())


def privelet(domain: Domain) -> Pipeline:
    """Haar wavelet coefficients with level weights, along both axes of a grid."""
    return Pipeline(estimate=transforms.Privelet())


def geometric_tree(domain: Domain) -> Pipeline:
    """A binary tree whose budgets grow towards the leaves, made consistent."""
    return _tree(domain, estimate.Tree(branching=2, ratio=2 ** (1 / 3), root=True))


def mwem(domain: Domain) -> Pipeline:
    """Ten times the worst-answered query, measured, and weights multiplied until they agree."""
    return Pipeline(estimate=iterative.Mwem())


def dpcube(domain: Domain) -> Pipeline:
    """Noisy counts, kd-tree groups, least squares of rough and fresh counts."""
    return Pipeline(
        initialize=initialize.Noisy(),
        partition=grids.KdGrid(),
        estimate=estimate.LeastSquares(),
        split=Split(initialize=F("0.5"), estimate=F("0.5")),
    )


def quadtree(domain: Domain) -> Pipeline:
    """Quarters of quarters with budgets that grow towards the cells, made consistent."""
    return Pipeline(estimate=grids.QuadTree())


def hybridtree(domain: Domain) -> Pipeline:
    """A quadtree whose upper cuts are private medians."""
    return Pipeline(estimate=grids.HybridTree())


def uniformgrid(domain: Domain) -> Pipeline:
    """Equal boxes, their number set by a noisy total, one noisy total each."""
    return Pipeline(partition=grids.UniformGrid(), split=Split(partition=F("0.05"), estimate=F("0.95")))


def adaptivegrid(domain: Domain) -> Pipeline:
    """A coarse grid, refined where its noisy counts are large."""
    return Pipeline(estimate=grids.AdaptiveGrid())


def auto(domain: Domain) -> Pipeline:
    """A method chosen by the workload and private features, from a table learnt on made-up data."""
    trees = auto_step.trees_for(domain).values()
    names = dict.fromkeys(name for tree in trees for name in auto_step.leaves(tree))
    choices = tuple(variant(name, domain) for name in (*names, *({auto_step.UNREAD} - set(names))))
    return Pipeline(estimate=auto_step.Auto(choices=choices))


def variant(label: str, domain: Domain) -> Pipeline:
    """Return a method of the catalogue; ``dawa2@0.3`` spends 0.3 on what comes before its estimate."""
    name, _, share = label.partition("@")
    made = make_pipeline(name, domain)
    if not share:
        return made
    before = made.split.initialize + made.split.partition
    factor = F(share) / before
    first, second = made.split.initialize * factor, made.split.partition * factor
    return replace(
        made, name=label, split=Split(initialize=first, partition=second, estimate=1 - first - second)
    )


_S1 = partition.L1(candidates="all")
_S2 = partition.Optimal(formula=formulas.Constant())
_MM = estimate.WorkloadTree(queries="ranges")
_PMM = estimate.WorkloadTree(queries="prefixes")
_PRUNED = estimate.Tree(branching=16, pruned=True)


_AHP = "Zhang, Chen, Xu, Meng, Xie, SDM 2014"
_SORTAKI = "Doudalis, Mehrotra, 2017 (SORTaki)"
_DAWA = "Li, Hay, Miklau, Wang, PVLDB 2014 (DAWA)"
_HATS = "dphist 2026; after the p-Identity strategies of McKenna et al., PVLDB 2018 (HDMM)"
_HAY = "Hay, Rastogi, Miklau, Suciu, PVLDB 2010"
_HIERARCHY = "Qardaji, Yang, Li, PVLDB 2013"
_ENGINEERING = "Kellaris, Papadopoulos, Papadias, TKDE 2019"
_XU = "Xu, Zhang, Xiao, Yang, Yu, Winslett, VLDB Journal 2013"
_ACS = "Acs, Castelluccia, Chen, ICDM 2012"
_CORMODE = "Cormode, Procopiuc, Srivastava, Shen, Yu, ICDE 2012"
_GRIDS = "Qardaji, Yang, Li, ICDE 2013"

METHODS = (
    Method(
        "identity",
        identity,
        "Noise on every bin: unbiased, exact error bars, no assumption about the data.",
        "Dwork, McSherry, Nissim, Smith, TCC 2006; Ghosh, Roughgarden, Sundararajan, STOC 2009",
    ),
    Method(
        "laplace",
        laplace,
        "As identity with continuous noise, as published: to repeat the papers' baselines.",
        "Dwork, McSherry, Nissim, Smith, TCC 2006",
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
    Method(
        "s2-auto",
        s2_auto,
        "As s2, with a penalty per group chosen from the noisy counts (ours).",
        _ENGINEERING,
    ),
    Method(
        "sdwf-auto",
        sdwf_auto,
        "As sdwf, with a penalty per group chosen from the noisy counts (ours).",
        _SORTAKI,
    ),
    Method(
        "wf-auto",
        wf_auto,
        "As sdwf-auto, with groups of neighbouring bins, nothing sorted (ours).",
        _SORTAKI,
    ),
    Method("o+s1", o_s1, "Bins ordered privately, then s1; both steps paid for.", _ENGINEERING),
    Method("o+sa", o_sa, "Bins ordered privately, then sa; both steps paid for.", _ENGINEERING),
    Method("s1+mm", lambda d: _smoothed(d, _S1, _MM), "s1's groups, a tree for all ranges.", _ENGINEERING),
    Method(
        "sa+mm",
        lambda d: _smoothed(d, partition.L1(), _MM),
        "sa's groups, a tree for all ranges.",
        _ENGINEERING,
    ),
    Method("s2+mm", lambda d: _smoothed(d, _S2, _MM), "s2's groups, a tree for all ranges.", _ENGINEERING),
    Method(
        "s1+pmm", lambda d: _smoothed(d, _S1, _PMM), "s1's groups, a tree for all prefixes.", _ENGINEERING
    ),
    Method(
        "sa+pmm",
        lambda d: _smoothed(d, partition.L1(), _PMM),
        "sa's groups, a tree for all prefixes.",
        _ENGINEERING,
    ),
    Method(
        "s2+pmm", lambda d: _smoothed(d, _S2, _PMM), "s2's groups, a tree for all prefixes.", _ENGINEERING
    ),
    Method(
        "s1+h",
        lambda d: _smoothed(d, partition.L1(candidates="subtrees"), _PRUNED),
        "A 16-ary tree cut off where the L1 error says that bins are alike.",
        _ENGINEERING,
    ),
    Method(
        "s2+h",
        lambda d: _smoothed(d, partition.Subtrees(), _PRUNED),
        "A 16-ary tree cut off where the squared error of noisy counts says so.",
        _ENGINEERING,
    ),
    Method("h", h, "A 16-ary tree of totals with even budgets, made consistent.", _HIERARCHY),
    Method("hb", hb, "As h, with the best branching for the number of bins.", _HIERARCHY),
    Method("hay", hay, "A binary tree of totals with even budgets, made consistent.", _HAY),
    Method("dawa", dawa, "Private L1 partition, then a tree tuned to the workload.", _DAWA),
    Method("dawa-all", dawa_all, "DAWA with all intervals as candidate groups.", _DAWA),
    Method("dawa2", dawa2, "DAWA's idea with splits from the root down and tuned weights (ours).", _DAWA),
    Method("greedyh", greedyh, "A tree over all bins tuned to the workload, no partition.", _DAWA),
    Method("greedyh-tuned", greedyh_tuned, "greedyh with our sweeps over its weights.", _DAWA),
    Method("hats", hats, "Bins and overlapping triangles: best for all ranges or prefixes (ours).", _HATS),
    Method("partition+laplace", sa, "DAWA's partition, one total per group.", _DAWA),
    Method("partition+uniform", partition_uniform, "DAWA's partition, an even binary tree.", _DAWA),
    Method(
        "partition+geometric", partition_geometric, "DAWA's partition, a tree with growing budgets.", _DAWA
    ),
    Method("o+s2", o_s2, "Bins ordered privately, then s2 on the same noisy counts.", _ENGINEERING),
    Method("noisefirst", noisefirst, "Noisy counts, best segments, means of the same noisy counts.", _XU),
    Method("structurefirst", structurefirst, "Boundaries by private selection; one mean per group.", _XU),
    Method("php", php, "Recursive bisection by private selection; one mean per group.", _ACS),
    Method("efpa", efpa, "The lowest Fourier frequencies, their number chosen privately.", _ACS),
    Method(
        "gs",
        gs,
        "Bins ordered privately, groups of one fixed size.",
        "Kellaris, Papadopoulos, PVLDB 2013 (GS, without sampling)",
    ),
    Method(
        "privelet",
        privelet,
        "Haar wavelet coefficients with level weights, 1-D and 2-D.",
        "Xiao, Wang, Gehrke, ICDE 2010 (Privelet)",
    ),
    Method("geometric-tree", geometric_tree, "A binary tree whose budgets grow to the leaves.", _CORMODE),
    Method(
        "mwem",
        mwem,
        "Multiplicative weights on the ten worst-answered queries, privately found.",
        "Hardt, Ligett, McSherry, NIPS 2012 (MWEM)",
    ),
    Method(
        "dpcube",
        dpcube,
        "Noisy cells, a kd-tree over them, least squares of both rounds.",
        "Xiao, Gardner, Xiong, ICDE 2012 (DPCube)",
    ),
    Method("quadtree", quadtree, "A quadtree of totals with geometric budgets, made consistent.", _CORMODE),
    Method("hybridtree", hybridtree, "A quadtree whose upper cuts are private medians.", _CORMODE),
    Method("uniformgrid", uniformgrid, "Equal boxes, as many as a noisy total allows.", _GRIDS),
    Method("adaptivegrid", adaptivegrid, "A coarse grid, finer boxes where it is full.", _GRIDS),
    Method(
        "auto",
        auto,
        "Chooses one of the others by the workload and, where it pays, by private features (ours).",
        "dphist 2026; after Kotsogiannis, Machanavajjhala, Hay, Miklau, SIGMOD 2017 (Pythia)",
    ),
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
