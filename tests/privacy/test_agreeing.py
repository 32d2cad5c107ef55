"""Noise that agrees on a tree: its exact law, its price for any unit, its walk against a slow twin."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import PrivacyError, UsageError
from dphist.kernels.trees import agreeing as kernel
from dphist.kernels.trees import tree as trees
from dphist.privacy import agreeing
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.uncertainty import noise_law
from scripted import Script, run

EPSILON = Fraction(3, 2)
WHOLE = 12
# The nodes that have children, level by level, and the parts of all nodes: of 12 on every path.
SHAPES = {
    "two groups": ([1, 0, 0], [4, 8, 8]),
    "three groups": ([1, 1, 0, 0, 0], [2, 4, 10, 6, 6]),
    "three groups, root not measured": ([1, 0, 1, 0, 0], [0, 12, 5, 7, 7]),
    "four groups": ([1, 1, 1, 0, 0, 0, 0], [1, 3, 5, 8, 8, 6, 6]),
}


def made(name: str) -> tuple[np.ndarray, np.ndarray, trees.Tree]:
    inner, parts = SHAPES[name]
    flags = np.array(inner, bool)
    return flags, np.array(parts), trees.shaped_tree(flags)


def curator_of(x: np.ndarray, *, seed: int = 0, sensitivity: int = 1, epsilon: Fraction = EPSILON) -> Curator:
    held = Counts(x, Domain((Integers(0, x.size - 1),)), sensitivity)
    return Curator.simulated(held, epsilon=epsilon, seed=seed)


def totals_of(tree: trees.Tree, z: np.ndarray) -> np.ndarray:
    """Return the sums of some noise, a row each, below every node."""
    below = np.pad(z.cumsum(axis=1), ((0, 0), (1, 0)))
    return below[:, tree.hi] - below[:, tree.lo]


def exact_law(tree: trees.Tree, scales: np.ndarray, most: int = 14) -> tuple[np.ndarray, np.ndarray]:
    """Return all noise of at most so much in every group, and its probability, from the definition."""
    z = np.indices((2 * most + 1,) * tree.k).reshape(tree.k, -1).T - most
    p = np.exp(-(np.abs(totals_of(tree, z)) / scales).sum(axis=1))
    return z, p / p.sum()


def copies(name: str, many: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a tree with so many copies of a small one below nodes that are not measured: a power of two."""
    inner, parts, small = made(name)
    flags, own = [np.ones(1 << h, bool) for h in range(many.bit_length() - 1)], []
    own += [np.zeros(level.size, np.int64) for level in flags]
    for begin, end in small.levels:
        flags.append(np.tile(inner[begin:end], many))
        own.append(np.tile(parts[begin:end], many))
    return np.concatenate(flags), np.concatenate(own)


def distance(seen: dict[tuple[int, ...], int], law: tuple[np.ndarray, np.ndarray]) -> float:
    """Return how far counts are from what a law expects, in standard deviations of the squared distance."""
    total = sum(seen.values())
    often = law[1] * total >= 10
    expected = np.append(law[1][often], law[1][~often].sum()) * total
    found = np.array([seen.get(tuple(z), 0) for z in law[0][often].tolist()] + [0])
    found[-1] = total - found.sum()
    return float(((found - expected) ** 2 / expected - 1).sum() / math.sqrt(2 * expected.size))


def mean_of(law: tuple[np.ndarray, np.ndarray], tree: trees.Tree, node: int) -> float:
    return float((law[1] * np.abs(totals_of(tree, law[0])[:, node])).sum())


@pytest.mark.parametrize("sensitivity", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_the_noise_has_the_law_that_the_proof_is_of(name: str, sensitivity: int) -> None:
    inner, parts = copies(name, 1 << 14)
    _, small, tree = made(name)
    k = (inner.size + 1) // 2
    epsilon = EPSILON * sensitivity  # so that scales are small enough to list the law
    curator = curator_of(np.zeros(k, np.int64), seed=5, sensitivity=sensitivity, epsilon=epsilon)
    found = curator.measure_tree(
        Groups.singletons(k), inner, parts=parts, whole=WHOLE, share=Fraction(1)
    ).values
    z = found.reshape(-1, tree.k)
    keys, many = np.unique(z, axis=0, return_counts=True)
    seen = {tuple(z): c for z, c in zip(keys.tolist(), many.tolist(), strict=True)}
    with np.errstate(divide="ignore"):
        scales = WHOLE / (float(EPSILON) * small)
    law = exact_law(tree, scales, most := 14 if tree.k < 4 else 9)
    assert distance(seen, law) < 6
    for node in np.flatnonzero(small):  # what the scale of a node is estimated from is the mean of |u|
        u = np.abs(z[:, tree.lo[node] : tree.hi[node]].sum(axis=1))
        doubt = 5 * u.std() / math.sqrt(len(u))
        assert abs(u.mean() - mean_of(law, tree, node)) < doubt
        for factor in (0.5, 2.0):
            wrong = np.where(np.arange(tree.size) == node, factor * scales, scales)
            assert abs(u.mean() - mean_of(exact_law(tree, wrong, most), tree, node)) > doubt


@pytest.mark.parametrize("sensitivity", [1, 2, 5])
@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 3)])
@pytest.mark.parametrize("name", SHAPES)
def test_every_group_pays_its_share_for_any_unit(name: str, share: Fraction, sensitivity: int) -> None:
    inner, parts, tree = made(name)
    x, shift = np.arange(tree.k) * 7, 10**6
    found = {}
    for by in (0, -shift, shift):
        script = Script(more=lambda scale, signed, by=by: by if signed else 10 * shift)
        found[by] = run(
            lambda c: c.measure_tree(Groups.singletons(tree.k), inner, parts=parts, whole=WHOLE, share=share),
            x,
            script,
            epsilon=EPSILON,
            sensitivity=sensitivity,
        )
        leaves, others = (
            {s for s, signed in zip(script.scales, script.signed, strict=True) if signed == which}
            for which in (True, False)
        )
        scales = np.asarray(found[by].scale)
        assert leaves == set(scales[tree.leaf].tolist()), "leaves draw two-sided noise of their scales"
        assert others == set(scales[inner & (parts > 0)].tolist()), "inner nodes are tested at theirs"
        assert np.array_equal(found[by].values, x + by), "noise is added, whatever it is"
    cost = [
        sum(1 / Fraction(scales[q]) for q in range(tree.size) if tree.lo[q] <= i < tree.hi[q] and parts[q])
        for i in range(tree.k)
    ]
    assert max(cost) <= EPSILON * share / sensitivity
    assert max(cost) > EPSILON * share / sensitivity * Fraction(99, 100)


def twin(tree: trees.Tree, live: set[int], queues: dict[int, list[int]]) -> np.ndarray:
    """The sampler as its definition says it, each node with draws of its own."""

    def sampled(q: int) -> list[int]:
        if tree.left[q] == 0:
            return [queues[q].pop(0)]
        while True:
            below = sampled(tree.left[q]) + sampled(tree.left[q] + 1)
            if q not in live or queues[q].pop(0) >= abs(sum(below)):
                return below

    return np.array(sampled(0))


@pytest.mark.parametrize("seed", range(40))
def test_the_walk_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, 64), rng.integers(1, 20), replace=False))
    tree = trees.make_tree(cuts.size + 1, int(rng.integers(2, 4)))
    live = np.flatnonzero((rng.random(tree.size) < 0.7) | (tree.left == 0))
    queues = {q: rng.laplace(0, 4, 6000).astype(np.int64) for q in live.tolist()}
    for q in live[tree.left[live] > 0].tolist():
        queues[q] = np.abs(2 * queues[q]) + (rng.random(6000) < 0.3) * 40
    used = dict.fromkeys(live.tolist(), 0)

    def draw(nodes: np.ndarray, signed: bool) -> np.ndarray:
        assert (tree.left[nodes] == 0).all() if signed else (tree.left[nodes] > 0).all()
        out = np.empty(nodes.size, np.int64)
        for i, q in enumerate(nodes.tolist()):
            out[i] = queues[q][used[q]]
            used[q] += 1
        return out

    made_of = agreeing.agreeing_noise(tree, live, rng.uniform(0, 4, tree.size), draw)
    plain = twin(tree, set(live.tolist()), {q: list(numbers) for q, numbers in queues.items()})
    assert np.array_equal(made_of, plain)


def refused(error: type[Exception], words: str, x: int = 2, **given: object) -> None:
    inner, parts, _ = made("two groups")
    curator = curator_of(np.zeros(x, np.int64))
    arguments = {"inner": inner, "parts": parts, "whole": WHOLE, "share": Fraction(1)} | given
    with pytest.raises(error, match=words):
        curator.measure_tree(Groups.singletons(x), arguments.pop("inner"), **arguments)
    assert not curator.spent, "nothing is spent"


@pytest.mark.parametrize("seed", range(20))
def test_fresh_draws_stand_behind_those_that_are_left(seed: int) -> None:
    source = np.random.default_rng(seed)
    k = int(source.integers(1, 9))
    left, more = source.integers(0, 4, (2, k))
    gaps = source.integers(0, 3, k)  # draws that were used lie between the queues
    begin = np.cumsum(gaps + left) - left
    draws, fresh = source.integers(-9, 9, int((gaps + left).sum())), source.integers(10, 99, int(more.sum()))
    new = iter(fresh.tolist())
    wanted = [
        draws[begin[q] : begin[q] + left[q]].tolist() + [next(new) for _ in range(more[q])] for q in range(k)
    ]
    out, begins, ends = kernel.queued(draws, begin, left, fresh, more)
    assert [out[a:b].tolist() for a, b in zip(begins, ends, strict=True)] == wanted
    assert out.size == sum(map(len, wanted)) and list(new) == []


def test_what_cannot_be_measured_is_refused_before_anything_is_spent() -> None:
    refused(PrivacyError, "more than all", parts=np.array([5, 8, 8]))
    refused(PrivacyError, "more than all", parts=np.array([4, 8, 9]))
    refused(PrivacyError, "between 0 and the whole", parts=np.array([-4, 12, 12]))
    refused(UsageError, "every group needs a part", parts=np.array([4, 8, 0]))
    refused(UsageError, "whole parts", parts=np.array([4.0, 8.0, 8.0]))
    refused(UsageError, "has 3 nodes", parts=np.array([4, 8]))
    refused(UsageError, "has 3 nodes", inner=np.array([1, 1, 0, 0, 0], bool), parts=np.array([1, 1, 1, 1, 1]))
    refused(UsageError, "none or two children", inner=np.array([0, 1, 0], bool))
    refused(UsageError, "none or two children", inner=np.array([1, 1, 0], bool))
    refused(UsageError, "too small", share=Fraction(1, 1 << 50))
    with pytest.raises(PrivacyError):
        curator_of(np.zeros(2, np.int64)).measure_tree(
            object(), np.array([1, 0, 0], bool), parts=np.array([4, 8, 8]), whole=WHOLE, share=Fraction(1)
        )


def test_a_walk_that_would_hardly_end_is_refused() -> None:
    k = 1 << 10
    tree = trees.make_tree(k)
    parts = np.where(tree.left == 0, 1, 1 << 30)  # fine totals of groups of which nothing is known
    curator = curator_of(np.zeros(k, np.int64))
    with pytest.raises(UsageError, match="too many draws"):
        curator.measure_tree(
            Groups.singletons(k), tree.left > 0, parts=parts, whole=1 << 40, share=Fraction(1)
        )
    assert not curator.spent


def test_a_share_is_taken_once() -> None:
    inner, parts, _ = made("two groups")
    curator = curator_of(np.zeros(2, np.int64))
    ask = {"parts": parts, "whole": WHOLE, "share": Fraction(2, 3)}
    curator.measure_tree(Groups.singletons(2), inner, **ask)
    assert [spent.share for spent in curator.spent] == [Fraction(2, 3)]
    with pytest.raises(PrivacyError, match="used or taken"):
        curator.measure_tree(Groups.singletons(2), inner, **ask)


def test_totals_are_those_of_the_groups_in_their_order() -> None:
    inner, parts, _ = made("three groups")
    groups = Groups(np.array([0, 2, 3, 5]), np.array([4, 0, 2, 1, 3]))
    script = Script(more=lambda scale, signed: 0)
    found = run(
        lambda c: c.measure_tree(groups, inner, parts=parts, whole=WHOLE, share=Fraction(1)),
        np.array([1, 10, 100, 1000, 10000]),
        script,
    )
    assert found.values.tolist() == [10001, 100, 1010]


# ---- what is known of the law without a draw


def second_moment(normal: float, laplace: float) -> float:
    u = np.linspace(-60, 60, 400_001) * math.sqrt(min(normal, laplace))
    w = np.exp(-np.abs(u) * math.sqrt(2 / laplace) - u * u / (2 * normal))
    return float((w * u * u).sum() / w.sum())


def dense_twin(tree: trees.Tree, variance: np.ndarray) -> np.ndarray:
    """Expectation propagation with matrices and numerical integrals; the precision of every node."""
    matrix = ((np.arange(tree.k) >= tree.lo[:, None]) & (np.arange(tree.k) < tree.hi[:, None])).astype(float)
    precision = 1 / variance
    for _ in range(60):
        for q in np.flatnonzero(np.isfinite(variance)):
            covariance = np.linalg.inv(matrix.T @ (precision[:, None] * matrix))
            others = 1 / (matrix[q] @ covariance @ matrix[q]) - precision[q]
            if others > 1e-9 * precision[q]:
                precision[q] = 1 / second_moment(1 / others, variance[q]) - others
    return precision


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_equal_variances_are_their_dense_twin(k: int) -> None:
    rng = np.random.default_rng(k)
    tree = trees.make_tree(k)
    variance = rng.uniform(1, 9, tree.size)
    variance[rng.random(tree.size) < 0.2] = math.inf
    variance[tree.leaf] = rng.uniform(4, 9, k)
    found = kernel.equal_variances(tree, variance)
    seen = np.isfinite(variance)
    expected = np.minimum(1.04 / dense_twin(tree, variance)[seen], variance[seen])
    assert np.isinf(found[~seen]).all()
    assert found[seen] == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize("name", SHAPES)
def test_they_are_those_of_the_law_to_a_few_percent(name: str) -> None:
    _, parts, tree = made(name)
    with np.errstate(divide="ignore"):
        scales = WHOLE / (1.2 * parts)
    z, p = exact_law(tree, scales, 20 if tree.k < 4 else 12)
    exact = p @ totals_of(tree, z) ** 2.0
    matrix = ((np.arange(tree.k) >= tree.lo[:, None]) & (np.arange(tree.k) < tree.hi[:, None])).astype(float)
    equal = kernel.equal_variances(tree, noise_law.variance(scales))
    covariance = np.linalg.inv(matrix.T @ (matrix / equal[:, None]))
    assert np.diag(matrix @ covariance @ matrix.T) == pytest.approx(exact, rel=0.08)


def test_a_tree_of_leaves_alone_has_independent_noise() -> None:
    tree = trees.make_tree(6)
    variance = np.where(tree.left == 0, 3.0, math.inf)
    assert np.array_equal(kernel.equal_variances(tree, variance), variance)
    assert kernel.expected_visits(tree, variance).tolist() == [1.0] * tree.size


@pytest.mark.parametrize("k", [3, 16, 100])
def test_visits_are_foreseen(k: int) -> None:
    tree = trees.make_tree(k)
    weights = kernel.shared_weights(tree, np.where(tree.left == 0, 1.0, 0.0), 0.5)
    with np.errstate(divide="ignore"):
        scales = 20.0 / weights
    rng = np.random.default_rng(1)
    order, first = kernel.walk_order(tree)
    seen = np.zeros(tree.size)
    live = np.flatnonzero(np.isfinite(scales))
    for _ in range(300):
        end = np.full(tree.size, -1)
        size = 400
        draws = np.zeros((tree.size, size), np.int64)
        for q in live:
            one, two = (rng.geometric(-math.expm1(-1 / scales[q]), size) - 1 for _ in range(2))
            draws[q] = one - two if tree.left[q] == 0 else one
        begin = np.arange(tree.size) * size
        end[live] = begin[live] + size
        start = begin.copy()
        total = np.zeros(tree.size, np.int64)
        assert kernel.walk(tree.left, order, first, draws.ravel(), begin, end, total, 0) == tree.size
        seen += begin - start
    foreseen = kernel.expected_visits(tree, noise_law.variance(scales))
    assert seen[live].sum() / 300 == pytest.approx(foreseen[live].sum(), rel=0.5)


@pytest.mark.parametrize("parts", [[1 << 39, 1 << 30, 1 << 39], [1 << 30, 1 << 39, 1 << 39]])
def test_uneven_trees_are_foreseen_from_below(parts: list[int]) -> None:
    tree = trees.make_tree(2)
    scales = 2.0**40 / np.array(parts)
    rng = np.random.default_rng(2)
    size = 1 << 19
    one, two = (
        np.subtract(*(rng.geometric(-math.expm1(-1 / scales[q]), size) for _ in range(2))) for q in (1, 2)
    )
    passed = np.exp(-np.abs(one + two) / scales[0]).mean()
    foreseen = kernel.expected_visits(tree, 2 * scales**2)
    assert 0.6 < foreseen[0] * passed < 2 and foreseen[1] == foreseen[0]


@pytest.mark.parametrize("ratio", [0.1, 3.0, 29.0, 31.0, 100.0])
def test_second_moments_are_integrals(ratio: float) -> None:
    tree = trees.make_tree(2)  # a root that knows its total so well that each leaf has the other's noise
    variance = np.array([math.inf, 4.0, 4.0 * ratio**2])
    variance[0] = 1.0
    found = kernel.equal_variances(tree, variance)
    assert found == pytest.approx(np.minimum(1.04 / dense_twin(tree, variance), variance), rel=2e-3)


def test_what_is_given_is_copied_before_anything_is_drawn() -> None:
    inner, parts, tree = made("three groups")
    given, shape = parts.copy(), inner.copy()

    def spoil(scale: float, signed: bool) -> int:
        given[:], shape[:] = 12, False
        return 0

    script = Script(more=spoil)
    found = run(
        lambda c: c.measure_tree(Groups.singletons(3), shape, parts=given, whole=WHOLE, share=Fraction(1)),
        np.array([1, 2, 3]),
        script,
        epsilon=EPSILON,
    )
    scales = np.asarray(found.scale)
    assert scales == pytest.approx(WHOLE / (float(EPSILON) * parts))
    for signed, nodes in ((True, tree.leaf), (False, np.flatnonzero(inner))):
        drawn = {s for s, which in zip(script.scales, script.signed, strict=True) if which == signed}
        assert drawn == set(scales[nodes].tolist())


def test_paths_that_are_longer_on_the_right_get_no_more_than_there_is() -> None:
    tree = trees.pruned_tree(np.array([0, 8, 12, 14, 15, 16]))
    found = kernel.shared_weights(tree, np.where(tree.left == 0, 1.0, 0.0), 0.6)
    inner = np.flatnonzero((tree.left > 0) & (np.arange(tree.size) > 0))
    assert found[inner] == pytest.approx(np.full(inner.size, 0.2)), "three levels below the root, each alike"


@pytest.mark.parametrize("k", [1, 2, 3, 7, 32, 100])
def test_a_part_is_spread_over_the_levels_and_no_path_takes_more(k: int) -> None:
    tree = trees.make_tree(k)
    weights = trees.level_weights(tree)
    found = kernel.shared_weights(tree, weights, 0.4)
    paths = [sum(found[q] for q in range(tree.size) if tree.lo[q] <= i < tree.hi[q]) for i in range(k)]
    assert paths == pytest.approx([1.0] * k)
    assert found[0] == pytest.approx(0.6 * weights[0] + (0.4 if k == 1 else 0.0))
    if k == 32:
        inner = (tree.left > 0) & (np.arange(tree.size) > 0)
        assert found[inner] - 0.6 * weights[inner] == pytest.approx(np.full(inner.sum(), 0.4 / 4))


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 17.3, 1e9, math.inf])
def test_a_scale_follows_from_its_variance(scale: float) -> None:
    variance = noise_law.variance(np.array([scale]))
    found = noise_law.scale_of(np.maximum(variance, 1e-12))
    if scale >= 0.3:
        assert found[0] == scale or scale <= found[0] <= 1.01 * scale
        assert len(f"{found[0]:.10g}".replace(".", "").rstrip("0").lstrip("0")) <= 3 or math.isinf(scale)
    assert noise_law.variance(found)[0] >= variance[0]
