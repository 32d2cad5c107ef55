"""Slow, obvious twins of the partition kernels: exact fractions, every cut tried."""

from fractions import Fraction
from itertools import combinations, pairwise


def sse(group):
    """Sum of squared distances to the mean, exact."""
    values = [Fraction(v) for v in group]
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values)


def cost(h, starts, beta, a, b):
    """Total cost of a partition, exact."""
    h = [Fraction(v) for v in h]
    beta, a, b = Fraction(beta), Fraction(a), Fraction(b)
    return sum(sse(h[i:j]) + beta + (a / (b + (j - i)) if a else 0) for i, j in pairwise(starts))


def least_cost(h, beta, a, b, sizes=None):
    """Least cost over all partitions into runs (of the given sizes): O(n^2) groups, each from scratch."""
    h = [Fraction(v) for v in h]
    beta, a, b = Fraction(beta), Fraction(a), Fraction(b)
    best = [Fraction(0)]
    for j in range(1, len(h) + 1):
        tried = []
        total = square = Fraction(0)
        for i in range(j - 1, -1, -1):
            total += h[i]
            square += h[i] ** 2
            size = j - i
            if sizes is None or size in sizes:
                tried.append(best[i] + square - total**2 / size + beta + (a / (b + size) if a else 0))
        best.append(min(tried))
    return best[-1]


def least_float(h, beta, a, b):
    """The same in doubles that do not cancel (Welford), for a few hundred numbers."""
    h = [float(v - h[0]) for v in h]
    best = [0.0]
    for j in range(1, len(h) + 1):
        least = float("inf")
        mean = spread = 0.0
        for i in range(j - 1, -1, -1):
            size = j - i
            d = h[i] - mean
            mean += d / size
            spread += d * (h[i] - mean)
            least = min(least, best[i] + spread + beta + a / (b + size))
        best.append(least)
    return best[-1]


def least_sse(h, k):
    """Least SSE over all partitions into exactly k runs."""
    n = len(h)
    cuts = combinations(range(1, n), k - 1)
    return min(cost(h, [0, *c, n], 0, 0, 0) for c in cuts)


def greedy(h, beta, a, b):
    """SORTaki, Algorithm 5, as printed."""
    error = lambda group: sse(group) + Fraction(beta) + Fraction(a) / (Fraction(b) + len(group))  # noqa: E731
    done, group = [0], [h[0]]
    for i in range(1, len(h)):
        if error([*group, h[i]]) < error(group) + error([h[i]]):
            group.append(h[i])
        else:
            done.append(i)
            group = [h[i]]
    return [*done, len(h)]


def look_ahead(h, j, a):
    """AHP's err*(H_j): the least error of H_j in a cluster that begins with it, over all of them."""
    errors = []
    for end in range(j + 1, len(h) + 1):
        size = end - j
        mean = Fraction(sum(int(v) for v in h[j:end]), size)
        errors.append((int(h[j]) - mean) ** 2 + Fraction(a) / size**2)
    return min(errors)


def ahp_greedy(h, a):
    """AHP, Algorithm 3, with the noisy count where the paper prints the true one."""
    error = lambda group: sse(group) + Fraction(a) / len(group)  # noqa: E731
    done, group = [0], [h[0]]
    for j in range(1, len(h)):
        if error([*group, h[j]]) < error(group) + look_ahead(h, j, a):
            group.append(h[j])
        else:
            done.append(j)
            group = [h[j]]
    return [*done, len(h)]


def kd(h, threshold):
    """Cut in two where the SSE falls most, while the variance exceeds the threshold."""
    h = [int(v) for v in h]
    if sse(h) <= Fraction(threshold) * len(h):
        return [0, len(h)]
    at = min(range(1, len(h)), key=lambda i: sse(h[:i]) + sse(h[i:]))
    return kd(h[:at], threshold)[:-1] + [at + s for s in kd(h[at:], threshold)]


def mean_cost(window, grid):
    """floor(grid * sum |x - mean|), exact."""
    window = [int(v) for v in window]
    mean = Fraction(sum(window), len(window))
    return int(Fraction(grid) * sum(abs(v - mean) for v in window) // 1)


def median_cost(window):
    """Least sum of distances to one number."""
    window = [int(v) for v in window]
    return min(sum(abs(v - c) for v in window) for c in window)


def dp_lengths(costs, lengths):
    """Least total cost of a partition into windows of the given lengths."""
    n = len(costs[0])
    best = [0]
    for j in range(1, n + 1):
        best.append(min(best[j - m] + int(c[j - m]) for m, c in zip(lengths, costs, strict=True) if m <= j))
    return best[-1]


def subtree_partitions(n, fanout):
    """All partitions of n = fanout^h bins into full subtrees, as lists of starts without the last."""
    if n == 1:
        return [[0]]
    part = n // fanout
    children = subtree_partitions(part, fanout)
    found = [[]]
    for c in range(fanout):
        found = [done + [c * part + s for s in one] for done in found for one in children]
    return [[0], *found]
