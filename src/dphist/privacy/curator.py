"""The privacy boundary: the curator owns the exact counts, and all its answers are noisy and paid for.

A curator is made from counts and one charge that the ledger has already journaled and synced. Each
verb takes a share of that charge, draws, and returns noisy numbers or a decision. Exact counts go
nowhere else, except to the queries of `dphist.privacy.queries` and the pure kernels that these and the verbs
call, which store nothing. Each verb's docstring proves its cost:

* ``measure``         noisy totals of disjoint groups
* ``measure_ranges``  noisy totals of nested or overlapping runs of groups, a budget for each
* ``measure_tree``    noisy totals of the groups whose noise is small on all nodes of a tree over them
* ``measure_linear``  noisy answers to fixed whole-number linear queries
* ``measure_distances``  noisy sums of how far totals are from public numbers
* ``choose``          the noisy best of some candidates
* ``partition_l1``    the noisy best partition into groups of similar bins
* ``partition_splits``  the nodes of a tree that hold similar bins, found from the root down
* ``list_bins``       the bins whose noisy counts reach a public threshold
* ``gather``          a curator of the totals of groups, for the same charge
* ``along_curve``     a curator of a grid's cells in another order, for the same charge
* ``split``           a curator for each of some disjoint sets of records, each with the same share

Throughout, neighbours are two data sets of which one has one unit more. The unit changes the counts by
D = ``counts.sensitivity`` in all: sum over bins of |x_i - x'_i| <= D. Shares add up to at most one, so
by sequential composition all verbs together lose at most the charge's epsilon.

Every public number that scales noise, a bound, a grid or a share, becomes a Python integer or a Fraction of
them before any arithmetic: a narrower integer could overflow, and the noise scale with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dphist._common.spent import Spent
from dphist.domain import Domain, Integers, as_int, curve
from dphist.domain.groups import Groups, kept
from dphist.errors import PrivacyError, UsageError
from dphist.kernels.partition.node_sizes import checked_trees
from dphist.privacy import gaps, l1, noise, splits
from dphist.privacy.counts import MAX_COUNT, Counts, SparseCounts
from dphist.privacy.ledger import Charge, MemoryLedger, exact_share
from dphist.uncertainty import noise_law

if TYPE_CHECKING:
    from dphist.privacy import queries

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Runs = Ints | NDArray[np.int32]
_AT_ONCE = 1 << 15  # runs that are looked at together: what is made of them is small
MOST_LIFTED = 1 << 24  # empty bins that are listed by their noise, in expectation: half a GiB


@dataclass(frozen=True, eq=False)
class Noisy:
    """Noisy integers and the public scale of their noise: one for all, or one each.

    Args:
        measured: the numbers as they were drawn, where a step changed them since; public too.
    """

    values: Ints
    scale: float | Floats
    measured: Ints | None = None

    @property
    def variance(self) -> float | Floats:
        """The exact variance of the noise, infinite where nothing was measured."""
        return noise_law.variance(self.scale)


class Curator:
    """Holds exact counts and a paid charge; answers only through noise."""

    def __init__(
        self, counts: Counts | SparseCounts, charge: Charge, *, source: noise.Source | None = None
    ) -> None:
        self.__counts = counts
        self.__charge = charge
        self.__source = noise.Secure() if source is None else source
        self.__spent: list[Spent] = []

    @classmethod
    def simulated(cls, counts: Counts | SparseCounts, *, epsilon: Fraction, seed: int) -> Curator:
        """Return a curator of public or made-up counts with seeded noise, which charges no ledger."""
        charge = MemoryLedger().charge(epsilon, mechanism="simulated", what="public counts")
        return cls(counts, charge, source=noise.Simulated(seed))

    @property
    def domain(self) -> Domain:
        """The public domain."""
        return self.__counts.domain

    @property
    def epsilon(self) -> Fraction:
        """The total budget of this release."""
        return self.__charge.epsilon

    @property
    def release(self) -> str | None:
        """The random name of the release in the ledger; None if no ledger was charged."""
        return None if self.is_simulated else self.__charge.release

    @property
    def sensitivity(self) -> int:
        """The largest change of the counts by one unit, added over all bins: public."""
        return self.__counts.sensitivity

    @property
    def unit(self) -> str:
        """Whom the guarantee protects."""
        return self.__counts.unit

    @property
    def is_simulated(self) -> bool:
        """Whether the noise can be repeated, so that nothing here is private."""
        return self.__source.simulated

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The charges of the verbs, in order."""
        return tuple(self.__spent)

    def scale(self, share: Fraction) -> float:
        """Return the noise scale that ``measure`` would use for a share: public, spends nothing."""
        return noise.scale_for(self.epsilon * exact_share(share), self.sensitivity)

    def measure(self, groups: Groups, *, share: Fraction) -> Noisy:
        """Return the noisy total of each group of a partition.

        Sensitivity: the groups are disjoint, so the totals change by at most sum |x_i - x'_i| <= D in
        all. Discrete Laplace noise of scale D/e on each makes any output at most exp(e) times likelier
        on one neighbour than on the other: the log ratio is at most (e/D) times the change of the totals.
        """
        self.__check_groups(groups)
        draws, scale = noise.laplace(
            self.__take(share, f"totals of {groups.k} disjoint groups"),
            sensitivity=self.sensitivity,
            size=groups.k,
            source=self.__source,
        )
        draws += self.__counts.totals(groups)
        return Noisy(draws, scale)

    def measure_ranges(
        self, groups: Groups, lo: Runs, hi: Runs, *, parts: Ints, whole: int, share: Fraction
    ) -> Noisy:
        """Return noisy totals of runs of groups, run i being groups lo[i] to hi[i]-1.

        Run i gets ``parts[i]/whole`` of this share's epsilon e; a run with no part is not measured.
        Runs may nest or overlap in any way, as long as no group is charged more than the whole.

        Sensitivity: noise of scale D * whole/(parts[i] * e) on run i costs (parts[i]/whole) * (e/D) times
        the change of its total. Adding up over runs, a change of bin j by d_j costs at most
        d_j * (e/D) * (sum of parts of the runs that contain j)/whole. The sum is at most ``whole`` for every
        group: it is computed below, in integers, from the runs themselves and not from any tree they are
        said to form. So the loss is at most (e/D) * sum d_j <= e.
        """
        self.__check_groups(groups)
        given = [np.asarray(a) for a in (lo, hi, parts)]
        if any(a.dtype.kind not in "iu" or a.shape != given[0].shape or a.ndim != 1 for a in given):
            raise UsageError("runs need three integer arrays of one length: lo, hi and parts.")
        lo, hi, parts = (kept(a) for a in given)
        parts = parts.astype(np.int64, copy=False)
        whole = as_int(whole, "the whole")
        change = _within_whole(lo, hi, parts, whole, groups.k)
        change[0], prefix = 0, change
        np.cumsum(self.__counts.totals(groups), out=prefix[1:])
        draws, scales = noise.laplace_each(
            self.__take(share, f"totals of {int((parts > 0).sum())} runs of groups"),
            sensitivity=self.sensitivity,
            parts=parts,
            whole=whole,
            source=self.__source,
        )
        for some in _blocks(lo.size):
            draws[some] += np.where(parts[some] > 0, prefix[hi[some]] - prefix[lo[some]], 0)
        return Noisy(draws, scales)

    def measure_tree(
        self, groups: Groups, inner: NDArray[np.bool_], *, parts: Ints, whole: int, share: Fraction
    ) -> Noisy:
        """Return the noisy totals of the groups, and the scale of every node in the law of their noise.

        Node v gets ``parts[v]/whole`` of this share's epsilon e: its scale is D * whole/(parts[v] * e), or
        infinite without a part. The noise is that of `dphist.privacy.agreeing`: small on every node with a
        part, and not a Laplace draw of its scale, which is why the scales are not those of the values.

        Args:
            inner: which nodes of a full binary tree over the groups have children, numbered level by level
                from the root; the leaves are the groups, in their order.

        Sensitivity and proof: `dphist.privacy.agreeing`. There 1/s_v is at most parts[v] * e/(whole * D), and
        the sum of the parts of all nodes above a group and of itself is at most ``whole``: it is computed
        below, in integers, from the runs of groups that the nodes cover. So it loses at most e.
        """
        from dphist.kernels.trees import agreeing as law
        from dphist.kernels.trees.tree import shaped_tree
        from dphist.privacy import agreeing  # imports numba

        self.__check_groups(groups)
        given = np.asarray(parts)
        if (
            given.dtype.kind not in "iu"
            or np.shape(inner) != (2 * groups.k - 1,)
            or given.shape != np.shape(inner)
        ):
            raise UsageError(
                f"a tree over {groups.k} groups has {2 * groups.k - 1} nodes, with whole parts each."
            )
        tree, whole = shaped_tree(np.array(inner, dtype=bool)), as_int(whole, "the whole")
        parts = np.array(given, dtype=np.int64)
        _within_whole(tree.lo, tree.hi, parts, whole, groups.k)
        if parts[tree.leaf].min() < 1:
            raise UsageError("every group needs a part of the budget, or its noise would have no bound.")
        scales = noise.scales_for(self.epsilon * exact_share(share), self.sensitivity, parts, whole)
        with np.errstate(divide="ignore"):  # the same for every epsilon, though scales have a least value
            reached = law.expected_visits(tree, 2.0 * np.square(whole / parts))
        if reached.sum() > agreeing.MOST_DRAWS:
            raise UsageError("noise that agrees on this tree takes too many draws; use measure_ranges.")
        draws = noise.Draws(self.__take(share, f"totals of {groups.k} groups on a tree"), self.__source)

        def draw(nodes: Ints, signed: bool) -> Ints:
            return draws.of_parts(
                sensitivity=self.sensitivity, parts=parts[nodes], whole=whole, signed=signed
            )

        z = agreeing.agreeing_noise(tree, np.flatnonzero(parts), reached, draw)
        return Noisy(z + self.__counts.totals(groups), scales)

    def measure_linear(self, query: queries.Linear, *, share: Fraction) -> Noisy:
        """Return noisy answers to linear queries, in units of their weights.

        Sensitivity: a record in bin j changes the answers by the weights of j, in all by at most the queries'
        own sensitivity S, proved in `dphist.privacy.queries`; D records by at most D S. Noise of scale D S/e
        on every answer then loses at most e.
        """
        from dphist.privacy import queries  # imports numba

        query = queries.admitted(query, queries.LINEAR)
        moved, size = self.__check_query(query)
        answers = query(self.__counts.values.copy())
        if answers.dtype != np.int64 or answers.shape != (size,):
            raise PrivacyError("linear queries must answer with one int64 each.")
        draws, scale = noise.laplace(
            self.__take(share, f"{size} linear queries"),
            sensitivity=self.sensitivity * moved,
            size=size,
            source=self.__source,
        )
        draws += answers
        return Noisy(draws, scale)

    def measure_distances(
        self, groups: Groups, centres: Ints, classes: Ints, *, grid: int, share: Fraction
    ) -> Noisy:
        """Return, for each class of groups, the noisy sum of their totals' distances from public centres.

        Args:
            groups: disjoint, as ever.
            centres: one whole number per group, in steps of 1/grid of a record; so are the answers.
            classes: which sum each group's distance goes to, from 0 on; -1 leaves it out.
            grid: how many steps a record has.
            share: the part of the budget it takes.

        Sensitivity: a record changes one total by 1, its distance by at most ``grid``, and so one sum by as
        much; D records change the sums by at most D * grid in all. Cutting distances off at a public bound
        moves them no more, and keeps the sums inside int64.
        """
        self.__check_groups(groups)
        centres, classes = (np.asarray(a) for a in (centres, classes))
        if any(a.dtype != np.int64 or a.shape != (groups.k,) for a in (centres, classes)):
            raise UsageError(f"{groups.k} groups need as many centres and classes, of int64.")
        grid = as_int(grid, "the grid")
        if not 1 <= grid <= 1 << 16 or classes.min() < -1 or not 0 <= classes.max() < groups.k:
            raise UsageError(
                "distances need a grid up to 2**16, and classes from -1 to the number of groups."
            )
        # Whatever it refuses is refused before the share is taken.
        noise.scale_for(self.epsilon * exact_share(share), self.sensitivity * grid)
        draws, scale = noise.laplace(
            self.__take(share, f"distances of {int((classes >= 0).sum())} sums from public numbers"),
            sensitivity=self.sensitivity * grid,
            size=int(classes.max()) + 1,
            source=self.__source,
        )
        bound = (1 << 61) // (groups.k * grid)
        whole, rest = np.divmod(np.clip(centres, -(1 << 61), 1 << 61), grid)
        far = np.clip(self.__counts.totals(groups) - whole, -bound, bound) * grid - rest
        np.add.at(draws, classes[classes >= 0], np.abs(far)[classes >= 0])
        return Noisy(draws, scale)

    def choose(self, score: queries.Score, *, share: Fraction) -> int:
        """Return the candidate whose score plus one-sided noise is greatest, the first of equals.

        Report-noisy-max with geometric noise Z >= 0, P(Z >= k) = exp(-k/s), on integer scores q. (With
        exponential noise on the reals this is permute-and-flip, Ding et al. 2021.) One unit moves a score by
        at most B = D S, S the sensitivity proved in `dphist.privacy.queries`. Fix the winner c and all noise
        but Z_c: c wins iff Z_c >= T, T an integer set by the other candidates less q_c, the fixed tie order
        included. From one neighbour to the other T moves by at most 2B. For every integer T and t >= 0, P(Z
        >= T + t) >= exp(-t/s) P(Z >= T). So s = 2B/e loses at most e. Scores are clipped to +-2^61 first,
        which moves them no more than before and keeps sums inside int64.
        """
        from dphist.privacy import queries  # imports numba

        score = queries.admitted(score, queries.SCORES)
        moved, size = self.__check_query(score)
        scores = score(self.__counts.values.copy())
        if scores.dtype != np.int64 or scores.shape != (size,):
            raise PrivacyError("a score must be one int64 per candidate, as many as it declares.")
        draws, _ = noise.geometric(
            self.__take(share, f"choice among {size} candidates"),
            sensitivity=2 * self.sensitivity * moved,
            size=size,
            source=self.__source,
        )
        return int(np.argmax(np.clip(scores, -(1 << 61), 1 << 61) + draws))

    def partition_l1(
        self,
        *,
        candidates: l1.Candidates,
        center: l1.Center,
        one_sided: bool,
        penalty: float,
        share: Fraction,
        order: Ints | None = None,
        fanout: int = 16,
    ) -> Groups:
        """Return the partition of least noisy L1 cost; the costs themselves never leave.

        Args:
            candidates: all intervals, those of power-of-two sizes, or full subtrees of a ``fanout``-ary tree.
            center: whether a group's cost is measured from its mean or from its median.
            one_sided: subtract geometric noise (its mean added back) instead of adding two-sided noise:
                the same guarantee at half the variance.
            penalty: what a group costs besides, in records: public.
            share: the part of the budget it takes.
            order: the bins in the order in which they are grouped: public.

        Sensitivity and proof: `dphist.privacy.l1`, for one record; D records are D steps, so the noise is
        D times as wide.
        """
        n = self.domain.n
        if order is not None:
            order = Groups(np.array([0, n]), order).order  # refuses anything but a permutation of the bins
        if candidates == "all" and n > l1.MOST_INTERVALS:
            raise UsageError(f"all intervals of {n} bins are too many; use candidates='powers'.")
        fanout, penalty = as_int(fanout, "a tree's fanout"), float(penalty)
        if fanout < 2 or not 0 <= penalty < math.inf:
            raise UsageError(f"a tree's fanout is at least 2 and a penalty from 0 on: {fanout}, {penalty}.")
        widest = 2 * l1.change(n, center) * self.sensitivity
        if widest and noise.scale_for(self.epsilon * exact_share(share), widest) * 64 * n > 2.0**61:
            raise UsageError(f"epsilon is too small: noise on the costs of {n} bins would not fit; use more.")
        draws = noise.Draws(
            self.__take(share, f"L1 partition by {candidates} intervals and the {center}"), self.__source
        )

        def draw(sensitivity: int, size: int) -> Ints:
            bound = sensitivity * self.sensitivity
            if not one_sided:
                return draws.laplace(sensitivity=bound, size=size)[0]
            z, scale = draws.geometric(sensitivity=bound, size=size)
            np.subtract(round(1 / math.expm1(1 / scale)) if scale > 2**-9 else 0, z, out=z)
            return z

        x = self.__counts.values if order is None else self.__counts.values[order]
        starts = l1.noisy_partition(
            x, draw, candidates=candidates, center=center, penalty=penalty, fanout=fanout
        )
        return Groups(starts, order)

    def partition_splits(
        self, *, share: Fraction, order: Ints | None = None, fanout: int = 4, blocks: int = 1
    ) -> Groups:
        """Return the nodes of a tree over the bins whose bins are similar; the scores are not published.

        Args:
            share: the part of the budget it takes.
            order: the bins in the order in which the tree has them: public.
            fanout: how many parts a node is split into.
            blocks: of how many trees side by side, at least; of several, the fanout is a power of 2.

        Sensitivity and proof: `dphist.privacy.splits`, for one record; D records are D steps, so the noise is
        D times as wide.
        """
        if order is not None:
            # Groups refuses anything but a permutation of the bins.
            order = Groups(np.array([0, self.domain.n]), order).order
        (fanout, blocks), share = checked_trees(fanout, blocks), exact_share(share)
        bound = splits.SENSITIVITY * self.sensitivity
        scale = noise.scale_for(self.epsilon * share, bound)
        draws = noise.Draws(self.__take(share, f"splits of a {fanout}-ary tree"), self.__source)

        def draw(size: int) -> Ints:
            return draws.laplace(sensitivity=bound, size=size)[0]

        if order is None and isinstance(self.__counts, SparseCounts):
            n, held = self.domain.n, self.__counts.held()
            return Groups(splits.sparse_splits(*held, n, draw, scale=scale, fanout=fanout, blocks=blocks))
        x = self.__counts.values if order is None else self.__counts.values[order]
        return Groups(splits.noisy_splits(x, draw, scale=scale, fanout=fanout, blocks=blocks), order)

    def list_bins(self, *, threshold: int, share: Fraction) -> tuple[Ints, Noisy]:
        """Return the bins whose noisy count is at least a public threshold, rising, and these noisy counts.

        Sensitivity and proof. With noise of scale D/e on every one of N bins, what ``measure`` returns for
        single bins loses at most e, and leaving out those below a constant is post-processing of it. That is
        the law of this verb, though it draws for few bins. Bins are independent, so the law is a product over
        bins; let x be a bin's count, Z its noise, t >= 1 the threshold, a = exp(-e/D), or of a wider scale:

        * a bin with x > 0 draws its own Z and is listed with x + Z if that is at least t: as it stands;
        * a bin with x = 0 is listed with probability p = P(Z >= t) = a^t/(1 + a), and then shows t + G,
          P(G = k) = P(Z = t + k)/p = (1 - a) a^k. So bins are hit, each with probability p on its own
          (`dphist.privacy.gaps`), and every hit on an empty bin gets t + G, G geometric of the same scale.

        The hits are drawn over all N bins, and those on bins with records are thrown away, unused: what they
        are, and how many draws they take, does not depend on the data, and what is left of them is one hit of
        probability p for every empty bin, independent of all others.
        """
        threshold = as_int(threshold, "the threshold")
        rate = gaps.Rate(self.scale(share), threshold)  # which refuses what it cannot draw
        if rate.p * self.domain.n > MOST_LIFTED:
            raise UsageError(
                f"about {rate.p * self.domain.n:.2g} empty bins would be listed; use a higher threshold."
            )
        draws = noise.Draws(self.__take(share, f"bins of at least {threshold} noisy records"), self.__source)
        cells, tallies = self.__counts.held()
        z, scale = draws.laplace(sensitivity=self.sensitivity, size=cells.size)
        z += tallies
        kept = z >= threshold
        hit = draws.lifted(sensitivity=self.sensitivity, threshold=threshold, n=self.domain.n)
        empty = hit[~_among(hit, cells)]
        above, _ = draws.geometric(sensitivity=self.sensitivity, size=empty.size)
        bins, values = np.concatenate((cells[kept], empty)), np.concatenate((z[kept], threshold + above))
        order = np.argsort(bins)
        return bins[order], Noisy(values[order], scale)

    def gather(self, groups: Groups) -> Curator:
        """Return a curator of the totals of disjoint groups, each of them one bin, with this same charge.

        Nothing is drawn and nothing is spent. The totals of disjoint groups change by at most sum |x_i -
        x'_i| <= D in all, as counts do, also where they are cut off at the largest count: so all verbs cost
        with them what they cost with counts. The groups must be public.
        """
        self.__check_groups(groups)
        totals = np.minimum(self.__counts.totals(groups), MAX_COUNT)
        domain = Domain((Integers(0, groups.k - 1),))
        made = Curator(
            Counts(totals, domain, self.sensitivity, self.unit), self.__charge, source=self.__source
        )
        made.__spent = self.__spent  # one charge, one account
        return made

    def along_curve(self) -> Curator:
        """Return a curator of a grid's cells along Morton's curve, with this same charge.

        Nothing is drawn and nothing is spent. Every cell keeps its count under another public number, and
        numbers of places outside the grid have no records on any data: the counts change by what they changed
        before.
        """
        shape = self.domain.shape
        if len(shape) != 2 or max(shape) > curve.LONGEST_SIDE:
            raise UsageError("a curve goes through a grid of at most 2**26 cells along either axis.")
        cells, tallies = self.__counts.held()
        places = curve.places(*np.divmod(cells, shape[1]))
        order, line = np.argsort(places), Domain((Integers(0, curve.side(shape) ** 2 - 1),))
        moved = SparseCounts(places[order], tallies[order], line, self.sensitivity, self.unit)
        made = Curator(moved, self.__charge, source=self.__source)
        made.__spent = self.__spent
        return made

    def split(self, rows: Groups, *, share: Fraction, summed: bool = True) -> Iterator[Curator]:
        """Return a curator for each group of rows, with this share of the budget for its own records.

        Args:
            rows: a partition of the bins of the first axis: public.
            share: the part of the budget that every one of them gets, taken once.
            summed: whether a group's rows are added up, so that its bins are those of the second axis;
                otherwise its bins are those of its rows, one after the other.

        Proof (parallel composition, adaptive). Let steps t = 1, 2, ... read the sets of cells S_t, and let
        step t lose at most L_t for a change of one count in S_t by one. The steps, their sets and their
        losses may be chosen by any rule from the outputs before them. The law of all outputs is the product
        of the steps' laws given the outputs before. Change one count, of cell c, by one: given the same
        outputs before, factors with c outside S_t stay as they are, and the others change by at most
        exp(L_t). So if on every path the L_t of the steps that read c add up to at most L, for every c, the
        whole loses at most L for this change, and at most D L for a unit, which moves the counts by D such
        changes. The verbs of a curator with epsilon e lose at most e/D for a change by one (their own proofs
        go record by record), so that all of its steps together have L = e/D. Here a cell belongs to exactly
        one group of rows, ``rows`` being a partition, and so to exactly one of the curators: all of them
        together lose what one of them loses, and it does not matter in which order they are asked, nor
        whether one is asked because of what another said.

        The bound on a unit's records must hold over all groups together, as that of `records.count` does: D
        is the sensitivity of all counts, and every curator here draws for the whole of it.
        """
        if type(rows) is not Groups:
            raise PrivacyError(f"rows must be a Groups, not a {type(rows).__name__}.")
        first, *others = self.domain.axes
        if len(others) != 1 or rows.n != first.n:
            raise UsageError("to split takes a grid, and a partition of the bins of its first axis.")
        many = rows.k if summed else rows.n
        purpose = f"{many:,} disjoint groups, each" if many > 1 else "one group"
        # Copies: what is read later is a partition still.
        rows = Groups(rows.starts.copy(), None if rows.order is None else rows.order.copy())
        charges = self.__charge.each(share, rows.k, purpose)
        share = exact_share(share)
        self.__spent.append(Spent(purpose, share, self.epsilon * share))
        return (self.__part(rows, i, charge, summed) for i, charge in enumerate(charges))

    def __part(self, rows: Groups, i: int, charge: Charge, summed: bool) -> Curator:
        """Return the curator of one group of rows, which holds the counts of no other."""
        own = slice(int(rows.starts[i]), int(rows.starts[i + 1]))
        bins = self.domain.axes[1]
        if rows.order is None:
            cells = self.__counts.block(own.start * bins.n, own.stop * bins.n).reshape(-1, bins.n)
        else:
            cells = self.__counts.values.reshape(-1, bins.n)[rows.order[own]]
        domain = Domain((bins,)) if summed else Domain((Integers(0, len(cells) - 1), bins))
        if summed:  # cut off at what a count may be, which moves it no more: nothing may be refused here
            cells = np.minimum(cells.sum(axis=0), MAX_COUNT)
        return Curator(Counts(cells, domain, self.sensitivity, self.unit), charge, source=self.__source)

    def __check_groups(self, groups: Groups) -> None:
        # A subclass would be handed the exact counts, and could return anything as their totals.
        if type(groups) is not Groups:
            raise PrivacyError(f"groups must be a Groups, not a {type(groups).__name__}.")
        if groups.n != self.domain.n:
            raise UsageError(f"the partition covers {groups.n} bins and the domain has {self.domain.n}.")

    def __check_query(self, query: queries.Linear | queries.Score) -> tuple[int, int]:
        """Return the sensitivity of a query and how many answers it gives, both public."""
        moved = as_int(query.sensitivity, "a query's sensitivity")
        size = as_int(query.size, "the number of answers")
        if moved < 1 or size < 1:
            raise PrivacyError("a query declares a sensitivity of at least 1, and gives at least one answer.")
        if query.n != self.domain.n:
            raise UsageError(f"the queries are over {query.n} bins and the domain has {self.domain.n}.")
        return moved, size

    def __take(self, share: Fraction, purpose: str) -> Charge:
        part = self.__charge.take(share, purpose)
        self.__spent.append(Spent(purpose, exact_share(share), part.epsilon))
        return part

    def __repr__(self) -> str:
        return f"Curator(<{self.domain.n} exact counts, private>, epsilon={self.epsilon})"


def _blocks(size: int) -> list[slice]:
    return [slice(at, at + _AT_ONCE) for at in range(0, size, _AT_ONCE)]


def _within_whole(lo: Runs, hi: Runs, parts: Ints, whole: int, k: int) -> Ints:
    """Refuse runs of groups that take more than the whole of any group, or are none; return room for k + 1.

    The sums are formed in integers, from the runs themselves.
    """
    if not (lo.size and lo.min() >= 0 and (lo < hi).all() and hi.max() <= k):
        raise UsageError(f"every run must be a range within the {k} groups, 0 <= lo < hi.")
    if parts.min() < 0 or not 0 < whole <= 1 << 40 or int(parts.max()) > whole:
        raise PrivacyError("a run's part must lie between 0 and the whole, the whole up to 2**40.")
    if lo.size > (1 << 62) // whole:
        raise UsageError("too many runs for exact budget arithmetic; use a smaller whole.")
    change = np.zeros(k + 1, dtype=np.int64)
    for some in _blocks(lo.size):
        np.add.at(change, lo[some], parts[some])
        np.subtract.at(change, hi[some], parts[some])
    worst = int(np.cumsum(change, out=change).max())
    if worst > whole:
        raise PrivacyError(f"the runs over one group take {worst} parts of {whole}: more than all.")
    return change


def _among(some: Ints, cells: Ints) -> NDArray[np.bool_]:
    """Return which of some bins are among others, both rising."""
    at = np.searchsorted(cells, some)
    return (at < cells.size) & (cells[np.minimum(at, cells.size - 1)] == some) if cells.size else at < 0
