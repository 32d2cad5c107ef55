"""The catalogue: every method with its pipeline and the facts that choose between methods.

A pipeline is built for a domain, because a few methods choose a public parameter from its size; none looks at
data. ``dphist methods`` prints this table, docs/methods/README.md repeats it, and every list of methods
elsewhere is a query by `choose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction as F  # noqa: N817 - shares read like numbers
from functools import partial
from html import escape
from typing import Any, Literal

from dphist.domain import Domain, Hashed, shown
from dphist.domain.workload import Kind, Workload, kind_of
from dphist.errors import UsageError, did_you_mean
from dphist.methods.pipeline import Pipeline, Split
from dphist.steps import estimate, initialize, order, partition
from dphist.steps.partition import formulas
from dphist.steps.protocols import Estimator, Initializer, Orderer, Partitioner

Family = Literal["baseline", "sorted", "runs", "runs and tree", "tree", "transform", "grid", "selection"]
_ALONE = 16  # bins up to which `dawa3` groups none: averages over all of them have less error
_FEW_BINS, _FEW_CELLS = (
    256,
    1024,
)  # up to which a line has blocks, and cells are grouped unless they stand out
_ASKED_CELLS = 400  # above which sums of neighbours gain more than the question whether they would costs
_TIMES = 12  # times as long as wide: from here on `dawa3` groups the cells of a grid along its longer side
MANY_BINS = 1 << 15  # above this, only methods of near-linear cost are usual


@dataclass(frozen=True)
class Method:
    """One line of the catalogue.

    Args:
        summary: a description in one sentence.
        citation: the publication.
        build: makes the pipeline for a domain.
        family: the idea behind it. ``sorted`` groups bins of similar counts, ``runs`` groups neighbours,
            ``runs and tree`` measures a tree over such groups, ``selection`` repeats private selections.
        dimensions: the supported numbers of axes.
        data_dependent: whether its error depends on the counts; otherwise the error is known beforehand.
        cost: how the time of a run grows with the number of bins: near-linear, near-linear and ``repeated``
            about log n times, ``slow``, which is more often than that, or quadratic.
        time: the same in formulas, for n bins and m queries.
        most_bins: the most bins that it serves, or None.
        suits: the kinds of queries for which it is designed.
        intervals: the basis of a release's intervals by default: the exact law of the noise (of the first
            measurement, where values are averaged or grouped after it), its variance and the normal law,
            errors measured with a part of epsilon (``calibrated``), or ``none``.
        usual: for which numbers of axes `advise` and `compare` try it by default: it was best
            somewhere on generated shapes of three sizes, or is well known.
        aliases: other names under which papers know it.
    """

    name: str
    summary: str
    citation: str
    build: Callable[[Domain], Pipeline]
    family: Family
    dimensions: tuple[int, ...] = (1, 2)
    data_dependent: bool = True
    cost: Literal["near-linear", "repeated", "slow", "quadratic"] = "near-linear"
    time: str = "O(n log n)"
    most_bins: int | None = None
    suits: tuple[Kind, ...] = ("points",)
    intervals: Literal["exact", "normal", "calibrated", "none"] = "calibrated"
    usual: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """Its queries, its domains, the basis of its intervals and its cost, as text."""
        domains = " and ".join(("lines", "grids")[d - 1] for d in self.dimensions)
        up_to = f", up to {self.most_bins:,} bins" if self.most_bins else ""
        error = "" if self.data_dependent else ", error known beforehand"
        intervals = f"{self.intervals if self.intervals != 'none' else 'no'} intervals{error}"
        return ", ".join(self.suits), domains, intervals, f"{self.time}{up_to}"

    def serves(self, domain: Domain) -> bool:
        """Return whether it can publish histograms over a domain."""
        return len(domain.axes) in self.dimensions and domain.n <= (self.most_bins or domain.n)


def choose(*where: Callable[[Method], bool]) -> tuple[str, ...]:
    """Return the names of the methods for which every condition holds, in the order of the catalogue.

    >>> choose(lambda m: m.family == "grid", lambda m: 1 not in m.dimensions)
    ('quadtree', 'hybridtree')
    """
    return tuple(m.name for m in CATALOGUE.values() if all(holds(m) for holds in where))


def usual(domain: Domain, queries: Workload) -> tuple[str, ...]:
    """Return the methods that are compared for a domain unless others are named; few for very many bins."""
    return choose(
        lambda m: len(domain.axes) in m.usual and m.serves(domain),
        lambda m: m.cost == "near-linear" or domain.n <= MANY_BINS,
        lambda m: _accepts(m, domain, queries),
    )


def _accepts(method: Method, domain: Domain, queries: Workload) -> bool:
    try:
        make_pipeline(method.name, domain, queries).check(domain, queries)
    except UsageError:
        return False
    return True


def find(name: str) -> Method:
    """Return the method of a name or an alias."""
    known = ALIASES.get(name, name)
    if known == LISTED.name:
        return LISTED
    if known not in CATALOGUE:
        near = did_you_mean(name, [*CATALOGUE, *ALIASES, LISTED.name])
        raise UsageError(f"there is no method {name!r}. {near}")
    return CATALOGUE[known]


def make_pipeline(method: str | Pipeline, domain: Domain, workload: Workload | None = None) -> Pipeline:
    """Return the pipeline of a catalogue name or alias; a pipeline is returned as it is.

    Args:
        workload: the basis of the choice of ``auto``; None means single bins.
    """
    if isinstance(method, Pipeline):
        return method
    if not isinstance(method, str):
        raise UsageError(f"method must be a catalogue name or a Pipeline, not {shown(method)}.")
    if domain.is_large or method.partition(":")[0] == "listed":
        from dphist.methods.sparse import make_sparse

        if method.partition(":")[0] not in ("auto", "listed"):
            find(method)  # which knows near misses
        made: Pipeline = make_sparse(ALIASES.get(method, method), domain, workload)
    else:
        made = _auto(domain, workload) if method == "auto" else find(method).build(domain)
    return replace(made, name=method)


# ---- pipelines ------------------------------------------------------------------------------------------


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


def _ahp(partitioner: Partitioner) -> Pipeline:
    """Return a method that zeroes small noisy counts and sorts the bins before it groups them."""
    return _sorted(partitioner, estimate.GroupMeans(), F("0.5"), initializer=initialize.Thresholded())


def _along(domain: Domain, partitioner: Partitioner, estimator: Estimator, share: F) -> Pipeline:
    """Return a method that groups neighbours for free by their rough counts, and estimates."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=_line(domain),
        partition=partitioner,
        estimate=estimator,
        split=Split(initialize=share, estimate=1 - share),
    )


def _sdawa(domain: Domain) -> Pipeline:
    return Pipeline(
        initialize=initialize.Noisy(),
        order=order.ByNoisyCount(),
        partition=partition.L1(),
        estimate=estimate.WeightedMeans(),
        split=Split(initialize=F("0.9"), partition=F("0.025"), estimate=F("0.075")),
    )


def _ordered_l1(candidates: Literal["all", "powers"]) -> Pipeline:
    """Return S1 or S~ on ordered bins; ordering and grouping both read the data, so they share 0.65."""
    return Pipeline(
        initialize=initialize.Noisy(),
        order=order.ByNoisyCount(),
        partition=partition.L1(candidates=candidates),
        split=Split(initialize=F("0.325"), partition=F("0.325"), estimate=F("0.35")),
    )


def _selected(domain: Domain, partitioner: Partitioner) -> Pipeline:
    """Return groups by private selection with half the budget, one noisy total each with the other."""
    return Pipeline(
        order=_line(domain), partition=partitioner, split=Split(partition=F("0.5"), estimate=F("0.5"))
    )


def _smoothed(domain: Domain, partitioner: Partitioner, estimator: Estimator) -> Pipeline:
    """Return groups of neighbours by a quarter of the budget, and an estimate over them by the rest."""
    if not partitioner.spends:
        return _along(domain, partitioner, estimator, F("0.25"))
    return Pipeline(
        order=_line(domain),
        partition=partitioner,
        estimate=estimator,
        split=Split(partition=F("0.25"), estimate=F("0.75")),
    )


def _dawa2(domain: Domain) -> Pipeline:
    return Pipeline(
        order=_line(domain),
        partition=partition.Splits(),
        estimate=estimate.Hats(),
        split=Split(partition=F("0.15"), estimate=F("0.85")),
    )


def _dawa3(domain: Domain) -> Pipeline:
    grid = len(domain.axes) == 2
    few = domain.n <= (_FEW_CELLS if grid else _FEW_BINS)
    slight = _slight(domain.n)
    averaged = estimate.AveragedTree(
        flat=grid and few, slight=slight, asks=grid and domain.shape[1] > 1 and domain.n > _ASKED_CELLS
    )
    if domain.n <= _ALONE:
        return _tree(domain, averaged)
    # On a grid better groups are worth more. Of few bins halves would be too many to measure each.
    share = F("0.25") if grid else F("0.12") if few else F("0.16")
    return Pipeline(
        order=order.ToAndFro() if grid and max(domain.shape) >= _TIMES * min(domain.shape) else _line(domain),
        partition=partition.Splits(
            halved=grid or not few,
            sides=grid and not few and domain.shape[1] > 1,
            level=1.5 if few and grid else None,
            scarce=None if grid or few else 250.0,
            blocks=1 if grid else 4,
            slight=slight,
        ),
        estimate=averaged,
        split=Split(partition=share, estimate=1 - share),
    )


def _slight(n: int) -> float:
    """Return the scale at which the noise of n single bins has a variance of half a record squared in all.

    It is nearly 2 exp(-1/scale) for each: noise of whole records vanishes faster than its scale does. Less
    than this is not worth a tree, whose totals would take a part of the budget from every bin.
    """
    return round(1.0 / math.log(4 * n), 4)


def _average(domain: Domain) -> Pipeline:
    return Pipeline(estimate=estimate.Averaged())


def _average2(domain: Domain) -> Pipeline:
    if not _asks_first(domain):
        return _average(domain)
    # What is asked is of the order of n noise scales: the more bins, the less it costs.
    share = F(sum(partition.FaintBins.parts), 4 * math.isqrt(domain.n))
    return Pipeline(
        partition=partition.FaintBins(),
        estimate=estimate.AveragedTree(flat=True),
        split=Split(partition=share, estimate=1 - share),
    )


def _asks_first(domain: Domain) -> bool:
    """Return whether `average2` asks if noise would drown the bins: of few bins the question is too dear."""
    return len(domain.axes) == 1 and domain.n > _FEW_BINS


def _tree(domain: Domain, tree: Estimator) -> Pipeline:
    """Return a tree over all bins, nothing else."""
    return Pipeline(order=_line(domain), estimate=tree)


def _hb(domain: Domain) -> Pipeline:
    def error(b: int) -> float:  # Qardaji et al. 2013, the error of a range with consistency
        levels = 1
        while b**levels < domain.n:
            levels += 1
        return (b - 1) * levels**3 - 2 * (b + 1) * levels**2 / 3

    return _tree(domain, estimate.Tree(branching=min(range(2, 257), key=error)))


def _dpcube(domain: Domain) -> Pipeline:
    return Pipeline(
        initialize=initialize.Noisy(),
        partition=partition.KdGrid(),
        estimate=estimate.LeastSquares(),
        split=Split(initialize=F("0.5"), estimate=F("0.5")),
    )


def _uniformgrid(domain: Domain) -> Pipeline:
    return Pipeline(partition=partition.UniformGrid(), split=Split(partition=F("0.05"), estimate=F("0.95")))


def _auto(domain: Domain, workload: Workload | None = None) -> Pipeline:
    """Return the method for a kind of queries, which is public: choosing it costs nothing."""
    if any(isinstance(axis, Hashed) for axis in domain.axes):  # whose neighbours have nothing in common
        name = "identity"
    else:
        kind = "points" if workload is None else kind_of(workload)
        points = "average2" if _asks_first(domain) else "average"
        name = points if kind == "points" else "dawa3"
    chosen = CATALOGUE[name]
    return replace(chosen.build(domain), choice=chosen.name)


_MEANS = estimate.GroupMeans()
_WEIGHTED = estimate.WeightedMeans()
_S1 = partition.L1(candidates="all")
_SA = partition.L1()
_S2 = partition.Optimal(formula=formulas.Constant())
_BEST = partition.Optimal(formula=formulas.Unbiased())
_BEST_WEIGHTED = partition.Optimal(formula=formulas.Unbiased(weighted=True))
_POWERS = partition.PowersOfTwo(formula=formulas.Unbiased())
_POWERS_WEIGHTED = partition.PowersOfTwo(formula=formulas.Unbiased(weighted=True))
_GREEDY = partition.Greedy(formula=formulas.Ahp())
_MM = estimate.WorkloadTree(queries="ranges")
_PMM = estimate.WorkloadTree(queries="prefixes")
_PRUNED = estimate.Tree(branching=16, pruned=True)
_EVEN = estimate.Tree(branching=2, root=True)
_GROWING = estimate.Tree(branching=2, ratio=2 ** (1 / 3), root=True)
# A segment costs its SSE and two variances: one the SSE lacks of noise, one the mean has. The least over all
# partitions is the least over k of the best k segments.
_NOISEFIRST = Pipeline(
    initialize=initialize.Noisy(),
    partition=partition.Optimal(formula=formulas.Unbiased(extra=1)),
    estimate=estimate.RoughMeans(),
    split=Split(initialize=F(1)),
)

# ---- the table ------------------------------------------------------------------------------------------

_DWORK = "Dwork, McSherry, Nissim, Smith, TCC 2006"
_AHP = "Zhang, Chen, Xu, Meng, Xie, SDM 2014"
_SORTAKI = "Doudalis, Mehrotra, 2017 (SORTaki)"
_DAWA = "Li, Hay, Miklau, Wang, PVLDB 2014 (DAWA)"
_HIERARCHY = "Qardaji, Yang, Li, PVLDB 2013"
_ENGINEERING = "Kellaris, Papadopoulos, Papadias, TKDE 2019"
_XU = "Xu, Zhang, Xiao, Yang, Yu, Winslett, VLDB Journal 2013"
_ACS = "Acs, Castelluccia, Chen, ICDM 2012"
_CORMODE = "Cormode, Procopiuc, Srivastava, Shen, Yu, ICDE 2012"
_GRIDS = "Qardaji, Yang, Li, ICDE 2013"

_LINES, _PLANES, _BOTH = (1,), (2,), (1, 2)
_SHORT: tuple[Kind, ...] = ("points", "ranges")
_LONG: tuple[Kind, ...] = ("ranges", "prefixes")
_ANY: tuple[Kind, ...] = ("points", "ranges", "prefixes")
_ALL_INTERVALS: Any = {"cost": "quadratic", "time": "O(n^2)", "most_bins": 1 << 16}  # as candidates

# fmt: off
_baseline = partial(Method, family="baseline", time="O(n)")
_sorting = partial(Method, family="sorted", intervals="exact")
_runs = partial(Method, family="runs")
_runs_tree = partial(Method, family="runs and tree", suits=_LONG)
_trees = partial(Method, family="tree", data_dependent=False, time="O(n)", suits=_LONG, intervals="normal")
_transform = partial(Method, family="transform")
_selection = partial(Method, family="selection")
_grid = partial(Method, family="grid", suits=("ranges",))

_METHODS = (
    _baseline("identity", "Noise on every bin: unbiased, exact error bars, no assumption about the data.",
        f"{_DWORK}; Ghosh, Roughgarden, Sundararajan, STOC 2009", lambda d: Pipeline(), data_dependent=False,
        intervals="exact", usual=_BOTH),
    _baseline("laplace", "As identity with continuous noise, as published: to repeat the papers' baselines.",
        _DWORK, lambda d: Pipeline(estimate=estimate.FineMeans()), data_dependent=False, intervals="exact"),
    _baseline("uniform", "One noisy total spread evenly over all bins: the other extreme, for tiny budgets.",
        "Hay, Machanavajjhala, Miklau, Chen, Zhang, SIGMOD 2016 (baseline)",
        lambda d: Pipeline(partition=partition.Whole()), usual=_BOTH),
    _baseline("auto", "average for single bins and short ranges, dawa3 for long ranges and prefixes (ours).",
        "dphist 2026; after Kotsogiannis, Machanavajjhala, Hay, Miklau, SIGMOD 2017 (Pythia)", _auto,
        time="that of its choice", suits=_ANY, intervals="exact"),
    _sorting("ahp", "Noisy counts, small ones zeroed, sorted; greedy clusters share a mean.",
        _AHP, lambda d: _ahp(partition.AhpGreedy()), usual=_BOTH, aliases=("stgahp",)),
    _sorting("ahp-optimal", "AHP with the clusters of least error, found exactly.",
        _AHP, lambda d: _ahp(partition.Optimal(formula=formulas.Ahp()))),
    _sorting("ahp-empirical", "AHP with exact clusters, their number by the best of four rules of thumb.",
        _AHP, lambda d: _ahp(partition.Empirical())),
    _sorting("sgahp", "Noisy counts, sorted; AHP's greedy clusters share a mean.",
        _SORTAKI, lambda d: _sorted(_GREEDY, _MEANS, F("0.5")), usual=_BOTH),
    _sorting("sdahp", "Sorted bins, exact best groups by the unbiased error, one mean each.",
        _SORTAKI, lambda d: _sorted(_BEST, _MEANS, F("0.9")), usual=_BOTH),
    _sorting("sdwf", "As sdahp, with rough and fresh means weighted by their variances.",
        _SORTAKI, lambda d: _sorted(_BEST_WEIGHTED, _WEIGHTED, F("0.9"))),
    _sorting("sdahp-pow2", "As sdahp, with groups of power-of-two sizes (as published).",
        _SORTAKI, lambda d: _sorted(_POWERS, _MEANS, F("0.9"))),
    _sorting("sdwf-pow2", "As sdwf, with groups of power-of-two sizes (as published).",
        _SORTAKI, lambda d: _sorted(_POWERS_WEIGHTED, _WEIGHTED, F("0.9"))),
    _sorting("sdwf-auto", "As sdwf, with a penalty per group chosen from the noisy counts (ours).",
        _SORTAKI, lambda d: _sorted(replace(_BEST_WEIGHTED, penalty="auto"), _WEIGHTED, F("0.9")),
        cost="repeated", time="O(n log^2 n)", usual=_BOTH),
    _sorting("sdpc", "Sorted bins, DPCube's kd-tree groups, rough and fresh means weighted.",
        _SORTAKI, lambda d: _sorted(partition.KdTree(), _WEIGHTED, F("0.9")), time="O(n) per level"),
    _sorting("sdawa", "Sorted bins, DAWA's private partition, rough and fresh means weighted.",
        _SORTAKI, _sdawa),
    _sorting("o+s1", "Bins ordered privately, then s1; both steps paid for.",
        _ENGINEERING, lambda d: _ordered_l1("all"), **_ALL_INTERVALS),
    _sorting("o+sa", "Bins ordered privately, then sa; both steps paid for.",
        _ENGINEERING, lambda d: _ordered_l1("powers")),
    _sorting("o+s2", "Bins ordered privately, then s2 on the same noisy counts.",
        _ENGINEERING, lambda d: _sorted(_S2, _MEANS, F("0.65")), usual=_BOTH),
    _sorting("gs", "Bins ordered privately, groups of one fixed size.",
        "Kellaris, Papadopoulos, PVLDB 2013 (GS, without sampling)",
        lambda d: _sorted(partition.FixedSize(), _MEANS, F("0.5"))),
    _runs("gahp", "AHP's greedy groups of neighbouring bins, nothing sorted.",
        _SORTAKI, lambda d: _along(d, _GREEDY, _MEANS, F("0.5")), time="O(n)", intervals="exact"),
    _runs("dpc", "DPCube's kd-tree groups of neighbours, rough and fresh means weighted.",
        _SORTAKI, lambda d: _along(d, partition.KdTree(), _WEIGHTED, F("0.9")), time="near-linear",
        suits=_SHORT, intervals="exact", usual=_LINES),
    _runs("wf-auto", "As sdwf-auto, with groups of neighbouring bins, nothing sorted (ours).",
        _SORTAKI, lambda d: _along(d, replace(_BEST_WEIGHTED, penalty="cautious"), _WEIGHTED, F("0.98")),
        cost="slow", time="near-linear", intervals="exact", usual=_LINES),
    _runs("average", "Noise on every bin, averaged over all dyadic partitions of a line or a grid (ours).",
        "dphist 2026; after Willems, Shtarkov, Tjalkens, IEEE Trans. Inf. Theory 1995 (tree weighting)",
        _average, intervals="exact", usual=_BOTH),
    _runs("average2", "As average, but with groups where noise on every bin would drown them (ours).",
        "dphist 2026; after Li, Hay, Miklau, Wang, PVLDB 2014 (DAWA)", _average2, intervals="exact",
        usual=_LINES),
    _runs("s1", "Private L1 partition over all intervals; one mean per group.",
        _ENGINEERING, lambda d: _smoothed(d, _S1, _MEANS), suits=_SHORT, **_ALL_INTERVALS),
    _runs("sa", "Private L1 partition over power-of-two intervals (S~); one mean per group.",
        _ENGINEERING, lambda d: _smoothed(d, _SA, _MEANS), suits=_SHORT, aliases=("partition+laplace",)),
    _runs("s2", "Noisy counts, groups of least squared error; one mean per group.",
        _ENGINEERING, lambda d: _smoothed(d, _S2, _MEANS), time="near-linear", suits=_SHORT,
        intervals="exact"),
    _runs("s2-auto", "As s2, with a penalty per group chosen from the noisy counts (ours).",
        _ENGINEERING, lambda d: _smoothed(d, replace(_S2, penalty="auto"), _MEANS), cost="repeated",
        time="near-linear", suits=_SHORT, intervals="exact", usual=_LINES),
    _runs("noisefirst", "Noisy counts, the best number of best segments, means of the same noisy counts.",
        _XU, lambda d: replace(_NOISEFIRST, order=_line(d)), time="near-linear", intervals="exact",
        usual=_LINES),
    _runs("structurefirst", "Boundaries by private selection; one mean per group.",
        _XU, lambda d: _selected(d, partition.StructureFirst()), cost="quadratic",
        time="O(n m + k m^2) per boundary", suits=_SHORT),
    _runs("php", "Recursive bisection by private selection; one mean per group.",
        _ACS, lambda d: _selected(d, partition.PHp()), time="O(n log^2 n)", suits=_SHORT),
    _runs_tree("s1+mm", "s1's groups, a tree for all ranges.",
        _ENGINEERING, lambda d: _smoothed(d, _S1, _MM), suits=("ranges",), **_ALL_INTERVALS),
    _runs_tree("sa+mm", "sa's groups, a tree for all ranges.",
        _ENGINEERING, lambda d: _smoothed(d, _SA, _MM), suits=("ranges",)),
    _runs_tree("s2+mm", "s2's groups, a tree for all ranges.",
        _ENGINEERING, lambda d: _smoothed(d, _S2, _MM), time="near-linear", suits=("ranges",),
        intervals="exact"),
    _runs_tree("s1+pmm", "s1's groups, a tree for all prefixes.",
        _ENGINEERING, lambda d: _smoothed(d, _S1, _PMM), suits=("prefixes",), **_ALL_INTERVALS),
    _runs_tree("sa+pmm", "sa's groups, a tree for all prefixes.",
        _ENGINEERING, lambda d: _smoothed(d, _SA, _PMM), suits=("prefixes",)),
    _runs_tree("s2+pmm", "s2's groups, a tree for all prefixes.",
        _ENGINEERING, lambda d: _smoothed(d, _S2, _PMM), time="near-linear", suits=("prefixes",),
        intervals="exact"),
    _runs_tree("s1+h", "A 16-ary tree cut off where the L1 error says that bins are alike.",
        _ENGINEERING, lambda d: _smoothed(d, partition.L1(candidates="subtrees"), _PRUNED)),
    _runs_tree("s2+h", "A 16-ary tree cut off where the squared error of noisy counts says so.",
        _ENGINEERING, lambda d: _smoothed(d, partition.Subtrees(), _PRUNED), time="O(n)", intervals="exact"),
    _runs_tree("dawa", "Private L1 partition, then a tree tuned to the workload.",
        _DAWA, lambda d: _smoothed(d, _SA, estimate.WorkloadTree()), usual=_BOTH),
    _runs_tree("dawa-all", "DAWA with all intervals as candidate groups.",
        _DAWA, lambda d: _smoothed(d, _S1, estimate.WorkloadTree()), **_ALL_INTERVALS),
    _runs_tree("dawa2", "DAWA's idea with splits from the root down, then hats or a tuned tree (ours).",
        _DAWA, _dawa2, usual=_BOTH),
    _runs_tree("dawa3", "As dawa2, and values averaged over prunings of a tree (ours).",
        _DAWA, _dawa3, usual=_BOTH),
    _runs_tree("partition+uniform", "DAWA's partition, a binary tree with even budgets.",
        _DAWA, lambda d: _smoothed(d, _SA, _EVEN)),
    _runs_tree("partition+geometric",
        "DAWA's partition, a binary tree whose budgets grow towards the leaves.",
        _DAWA, lambda d: _smoothed(d, _SA, _GROWING)),
    _trees("h", "A 16-ary tree of totals with even budgets, made consistent.",
        _HIERARCHY, lambda d: _tree(d, estimate.Tree(branching=16))),
    _trees("hb", "As h, with the branching that is best for random ranges of n bins.",
        _HIERARCHY, _hb, usual=_BOTH),
    _trees("hay", "A binary tree of totals with even budgets, made consistent.",
        "Hay, Rastogi, Miklau, Suciu, PVLDB 2010", lambda d: _tree(d, _EVEN)),
    _trees("greedyh", "A tree over all bins tuned to the workload, no partition.",
        _DAWA, lambda d: _tree(d, estimate.WorkloadTree()), time="O(n + m log n)"),
    _trees("greedyh-tuned", "greedyh with further sweeps over its weights (ours).",
        _DAWA, lambda d: _tree(d, estimate.WorkloadTree(weights="tuned")), cost="repeated",
        time="sweeps of O(n + m log n)", usual=_LINES),
    _trees("hats", "Bins and overlapping triangles: best for all ranges, prefixes or rectangles (ours).",
        "dphist 2026; after the p-Identity strategies of McKenna et al., PVLDB 2018 (HDMM)",
        lambda d: _tree(d, estimate.Hats()), usual=_BOTH),
    _trees("geometric-tree", "A binary tree whose budgets grow towards the leaves, made consistent.",
        _CORMODE, lambda d: _tree(d, _GROWING), suits=_SHORT),
    _transform("efpa", "The lowest Fourier frequencies, their number chosen privately.",
        _ACS, lambda d: _tree(d, estimate.Efpa()), cost="quadratic", time="O(n m)", suits=_SHORT,
        intervals="none", usual=_LINES),
    _transform("privelet", "Haar wavelet coefficients with level weights, along both axes of a grid.",
        "Xiao, Wang, Gehrke, ICDE 2010 (Privelet)", lambda d: Pipeline(estimate=estimate.Privelet()),
        data_dependent=False, time="O(n)", suits=_LONG, intervals="normal", usual=_BOTH),
    _selection("mwem",
        "Ten rounds: privately pick the worst-answered query, measure it, update by multiplicative weights.",
        "Hardt, Ligett, McSherry, NIPS 2012 (MWEM)", lambda d: Pipeline(estimate=estimate.Mwem()),
        cost="repeated", time="O(n + m) per round", suits=_ANY, intervals="none"),
    _grid("dpcube", "Noisy cells, a kd-tree over them, least squares of both rounds.",
        "Xiao, Gardner, Xiong, ICDE 2012 (DPCube)", _dpcube, time="O(n) per level", suits=_SHORT,
        intervals="exact", usual=_PLANES),
    _grid("quadtree", "A quadtree of totals with budgets that grow towards the cells, made consistent.",
        _CORMODE, lambda d: Pipeline(estimate=estimate.QuadTree()), dimensions=_PLANES, data_dependent=False,
        intervals="normal", usual=_PLANES),
    _grid("hybridtree", "A quadtree whose upper cuts are private medians.",
        _CORMODE, lambda d: Pipeline(estimate=estimate.HybridTree()), dimensions=_PLANES, intervals="normal",
        usual=_PLANES),
    _grid("uniformgrid", "Equal boxes, as many as a noisy total allows, one noisy total each.",
        _GRIDS, _uniformgrid, time="O(n)", usual=_BOTH),
    _grid("adaptivegrid", "A coarse grid, refined where its noisy counts are large.",
        _GRIDS, lambda d: Pipeline(estimate=estimate.AdaptiveGrid()), time="O(n)", intervals="none",
        usual=_BOTH),
)
# fmt: on


class Catalogue(dict[str, Method]):
    """The methods by their names; it shows itself as a table.

    >>> dphist.CATALOGUE["dawa"].summary
    'Private L1 partition, then a tree tuned to the workload.'
    """

    def __repr__(self) -> str:
        widest = max(map(len, self), default=0)
        return "\n".join(f"{name:<{widest}}  {method.summary}" for name, method in self.items())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>"
            f"{escape(method.summary)}</td><td style='text-align:left'>{escape(method.citation)}</td></tr>"
            for name, method in self.items()
        )
        return f"<table>{rows}</table>"


# For very many bins: its releases have a number per listed bin, not per bin, and are of a kind of their own.
LISTED = Method(
    "listed",
    "Noise on every bin; those that reach a public threshold are published, of up to 2^62 bins.",
    "Cormode, Procopiuc, Srivastava, Tran, ICDT 2012",
    lambda d: make_pipeline("listed", d),
    "baseline",
    time="O(records)",
    intervals="exact",
)
CATALOGUE = Catalogue({method.name: method for method in _METHODS})
ALIASES = {alias: method.name for method in _METHODS for alias in method.aliases}
