"""Coverage of 95 % intervals by number of bins (``python -m benchmarks.intervals dawa2 --bins 16 64``).

One JSON line per cell (method, bins, histogram, epsilon) and per number of bins: how often the intervals of
single bins, of non-empty bins and of ranges hold, and how wide they are beside the error. ``--data DIR`` adds
histograms of one axis (.npy), summed to the number of bins.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dphist.domain import Domain, Integers
from dphist.domain.groups import Floats, Ints
from dphist.domain.workload import make_workload
from dphist.methods.catalogue import find, make_pipeline
from dphist.planning import shapes
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.release import Release

SHAPES = ("uniform", "smooth", "steps", "power-shuffled", "sparse", "hourly", "heaps", "tail")
EPSILONS = ("0.01", "0.1", "1")
RELEASES = {16: 40, 64: 30, 256: 15, 1024: 6}  # of a cell; three of more bins
RECORDS, BINS = 1_000_000, 4096  # of the made-up histograms, in proportion for fewer bins
RANGES = 200  # asked of each release


def histograms(n: int, data: Path | None) -> Iterator[tuple[str, Ints]]:
    """Yield public and made-up counts of n bins."""
    for file in sorted(data.glob("*.npy")) if data else ():
        yield file.stem, np.load(file).astype(np.int64).reshape(n, -1).sum(axis=1)
    for name in SHAPES:
        yield name, shapes.draw(name, n=n, records=RECORDS * min(n, BINS) // BINS, seed=5)


def judged(release: Release, counts: Ints, asked: tuple[Ints, Ints]) -> Floats:
    """Return which parts of the intervals hold, and widths and errors, of bins and of ranges."""
    low, high = release.intervals()
    held = (low <= counts) & (counts <= high)
    below = np.concatenate(([0], np.cumsum(counts)))
    truth, sums = below[asked[1]] - below[asked[0]], release.sum(*asked)
    found = [held.mean(), held[counts > 0].mean() if counts.any() else 1.0]
    found += [(high - low).mean() / 2, np.abs(release.raw - counts).mean()]
    found += [np.mean((sums.low <= truth) & (truth <= sums.high)), (sums.high - sums.low).mean() / 2]
    return np.array([*found, np.abs(sums.value - truth).mean()])


def cells(method: str, n: int, data: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a line for every histogram and epsilon, then their summary."""
    domain, draw = Domain((Integers(0, n - 1),)), np.random.default_rng(1)
    queries = make_workload("points" if find(method).suits == ("points",) else "ranges", domain)
    pipeline, lines = make_pipeline(method, domain, queries).with_intervals(), []
    for name, counts in histograms(n, data):
        for epsilon in EPSILONS:
            found = []
            for seed in range(RELEASES.get(n, 3)):
                length = np.minimum(np.exp(draw.uniform(0, np.log(n), RANGES)).astype(np.int64) + 1, n)
                lo = (draw.random(RANGES) * (n - length + 1)).astype(np.int64)
                curator = Curator.simulated(Counts(counts, domain), epsilon=Fraction(epsilon), seed=seed)
                found.append(judged(pipeline.run(curator, queries), counts, (lo, lo + length)))
            bins, full, half, error, ranges, half_range, error_range = np.mean(found, axis=0).tolist()
            lines.append((bins, ranges, half / max(error, 1e-9), half_range / max(error_range, 1e-9)))
            yield {"method": method, "bins": n, "histogram": name, "epsilon": epsilon, "of bins": bins} | {
                "of full bins": full, "of ranges": ranges, "wide": lines[-1][2], "wide ranges": lines[-1][3]
            }  # fmt: skip
    table = np.array(lines)
    for name, column, wide in (("bins", 0, 2), ("ranges", 1, 3)):
        least, middle, most = np.quantile(table[:, column], (0, 0.5, 1)).tolist()
        summary = {"method": method, "bins": n, "of": name, "least": least, "median": middle, "most": most}
        yield summary | {
            "below 90 %": int((table[:, column] < 0.9).sum()),
            "half-width over error": float(np.median(table[:, wide])),
        }


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--bins", nargs="+", type=int, default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    for method in given.methods:
        for n in given.bins:
            for line in cells(method, n, given.data):
                print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}))


if __name__ == "__main__":
    main()
