"""The definitions of trees, equation (9), least squares and hats in dense matrices, for small k."""

import numpy as np


def level_nodes(k, t):
    """All distinct nodes (lo, hi) of the paper's level-structured t-ary tree, each with its lowest level."""
    found, span, level = {}, 1, 0
    while True:
        for lo in range(0, k, span):
            found.setdefault((lo, min(lo + span, k)), level)
        if span >= k:
            return found
        span, level = span * t, level + 1


def node_matrix(lo, hi, k):
    at = np.arange(k)
    return ((at >= np.asarray(lo)[:, None]) & (at < np.asarray(hi)[:, None])).astype(float)


def fit(matrix, y, variance):
    """Weighted least squares of least norm, its covariance, and a basis of what is left undetermined."""
    seen = np.isfinite(variance)
    scale = 1 / np.sqrt(variance[seen])
    scaled = matrix[seen] * scale[:, None]
    inverse = np.linalg.pinv(scaled, rcond=1e-12)
    x = inverse @ (np.asarray(y, float)[seen] * scale)
    return x, inverse @ inverse.T, np.eye(matrix.shape[1]) - inverse @ scaled


def query_list(widths, queries):
    n = int(np.sum(widths))
    if isinstance(queries, tuple):
        return np.asarray(queries[0]), np.asarray(queries[1])
    if queries == "prefixes":
        return np.zeros(n, int), np.arange(1, n + 1)
    if queries == "points":
        return np.arange(n), np.arange(1, n + 1)
    lo, hi = np.triu_indices(n)
    return lo, hi + 1


def query_matrix(widths, queries):
    """The transformed workload (DAWA, Definition 6): what each query takes of each group."""
    lo, hi = query_list(widths, queries)
    edge = np.concatenate([[0], np.cumsum(widths)])
    common = np.minimum(hi[:, None], edge[None, 1:]) - np.maximum(lo[:, None], edge[None, :-1])
    return np.clip(common, 0, None) / np.asarray(widths, float)


def equation_nine(w, blocks, mu, lam):
    """Equation (9) at a node: w are its columns of the workload, blocks the A of its children."""
    size = sum(b.shape[0] for b in blocks)
    below, gram, at = np.zeros((size, size)), mu * w.T @ w, 0
    for block in blocks:
        here = slice(at, at + block.shape[0])
        below[here, here] = block
        gram[here, here] += (1 - mu) * w[:, here].T @ w[:, here]
        at += block.shape[0]
    return np.trace(np.linalg.solve((1 - lam) ** 2 * below + lam * lam * np.ones((size, size)), gram))


def children(nodes, lo, hi):
    """The largest nodes strictly inside (lo, hi), left to right."""
    inside = sorted((a, -b) for a, b in nodes if lo <= a and b <= hi and (a, b) != (lo, hi))
    out, at = [], lo
    for a, minus_b in inside:
        if a == at:
            out.append((a, -minus_b))
            at = -minus_b
    return out


def greedy(w, k, t, decay, share):
    """Follow Algorithm 2 with the given shares: yield (node, objective as a function of lambda) bottom-up."""
    nodes = level_nodes(k, t)
    top = nodes[0, k]
    solved = {(i, i + 1): np.ones((1, 1)) for i in range(k)}
    for (lo, hi), level in sorted(nodes.items(), key=lambda item: item[1]):
        if hi - lo == 1:
            continue
        blocks = [solved[child] for child in children(nodes, lo, hi)]
        mu = t ** (-(top - level) / 2) if decay else 1.0

        def objective(lam, w=w[:, lo:hi], blocks=blocks, mu=mu):
            return equation_nine(w, blocks, mu, lam)

        yield (lo, hi), objective
        lam, at = share[lo, hi], 0
        a = np.full((hi - lo, hi - lo), lam * lam)
        for block in blocks:
            here = slice(at, at + block.shape[0])
            a[here, here] += (1 - lam) ** 2 * block
            at += block.shape[0]
        solved[lo, hi] = a


def hat_matrix(hats):
    rows = np.zeros((hats.size, hats.n))
    rows[: hats.n] = np.diag(hats.bins)
    for h, first in enumerate(hats.first):
        weights = hats.weights[hats.offset[h] : hats.offset[h + 1]]
        rows[hats.n + h, first : first + weights.size] = weights
    return rows


def hat_variances(hats, variance):
    """All ranges, begins and ends, and the variance of each from the inverse of the normal equations."""
    rows = hat_matrix(hats)
    covariance = np.linalg.inv(rows.T @ (rows / variance[:, None]))
    until = np.zeros((hats.n + 1, hats.n + 1))
    until[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    lo, hi = np.triu_indices(hats.n + 1, 1)
    return lo, hi, until[hi, hi] - until[hi, lo] - until[lo, hi] + until[lo, lo]


def lines(n, levels):
    """The weights of hats between knots, one row each, from their definition, not rounded."""
    rows = []
    for knots, tops, half in levels:
        centre = (2 * np.arange(n) + 1) * half
        for i, top in enumerate(tops):
            heights = np.zeros(knots.size)
            heights[i + 1] = top
            row = np.interp(centre, knots, heights)
            if knots[i] == knots[i + 1]:
                row[centre <= knots[i]] = top
            rows.append(row * ((centre > knots[i]) | (knots[i] == knots[i + 1])) * (centre < knots[i + 2]))
    return np.array([row for row in rows if row.any()]).reshape(-1, n)


def triangles(n, cuts, tops, at_start, at_end):
    """The weights of all hats, one row each, from their definition, not rounded."""
    centre = (np.arange(n) + 0.5) / n
    rows = [
        top * np.clip(1 - abs(centre * m - j), 0, None)
        for m, top in zip(cuts, tops, strict=True)
        for j in range(0 if at_start else 1, m + 1 if at_end else m)
    ]
    return np.array([row for row in rows if row.any()]).reshape(-1, n)
