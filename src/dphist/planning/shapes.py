"""Made-up public data: named shapes of histograms, and samples of any size drawn from them.

A shape is a public description: neither private records nor the noise that protects them are involved.
Methods are compared and recommended on such samples.

>>> dphist.shapes.draw("sparse", n=64, records=1000).sum().item()
1000
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist._common.renamed import renamed, renamed_fields, warn_renamed
from dphist.domain import MAX_BINS
from dphist.errors import DataError, UsageError, did_you_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_MOST = 1 << 53  # records in one made-up histogram: what counts may hold


@dataclass(frozen=True)
class Shape:
    """A kind of histogram.

    Args:
        weigh: makes the share of records in each of n bins, up to a factor, from n and a random source.
        summary: what it looks like.
        stands_for: which published data sets are like it.
    """

    name: str
    weigh: Callable[[int, np.random.Generator], Floats]
    summary: str
    stands_for: str

    def weights(self, n: int, *, seed: int = 0) -> Floats:
        """Return the share of records in each of n bins, together 1."""
        w = self.weigh(n, _source(self.name, seed))
        return np.asarray(w / w.sum())


@renamed_fields(scale="records")
@dataclass(frozen=True)
class Like:
    """Data described in words: how many bins, how many records, which shape."""

    n: int
    records: int
    shape: str


def read_numbers(path: Path, *, axes: int = 1) -> NDArray[Any]:
    """Return the numbers of a public file: an array in .npy, else a column or a grid with commas between.

    One line of titles may come first. A ValueError or OSError says that it cannot be read; the text of the
    former may quote the file, which may be private by mistake, and must not be shown.

    Args:
        axes: how many are wanted; two columns for one axis are most likely bins beside their counts.
    """
    if path.suffix.lower() == ".npy":
        try:
            with path.open("rb") as file:
                found = np.load(file, allow_pickle=False)
        except OSError:
            raise
        except Exception:  # whatever a broken header raises: numpy has it evaluated, unzipped and allocated
            raise ValueError("no array") from None
        if not isinstance(found, np.ndarray) or found.dtype.names is not None:  # titles are not to be shown
            raise ValueError("no numbers")
        return found
    lines = [line for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    titled = bool(lines) and not all(_is_number(cell) for cell in lines[0].split(","))
    if not lines[titled:]:
        raise DataError(f"{path} holds no numbers: write one count per line.")
    x = np.loadtxt(lines[titled:], delimiter=",", ndmin=2, comments=None, dtype=np.float64)
    if axes == 1 and x.shape[1] == 2 and (titled or (len(x) > 2 and (np.diff(x[:, 0]) == 1).all())):
        raise DataError(
            f"{path} looks like bins and their counts: keep the counts alone, in order of the bins."
        )
    return np.asarray(x.ravel() if 1 in x.shape else x)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@renamed(scale="records")
def draw(shape: str | Shape | ArrayLike, *, n: int, records: int, seed: int = 0) -> Ints:
    """Return counts in n bins of exactly ``records`` records drawn at random from a shape.

    >>> int(draw("steps", n=8, records=100).sum())
    100

    Any histogram can serve as a shape: its neighbouring bins are first merged until n
    are left, as DPBench's generator does.
    """
    if n < 1:
        raise UsageError(f"a histogram needs at least one bin, not {n}.")
    if n > MAX_BINS:
        raise UsageError(
            f"records are made up for at most {MAX_BINS:,} bins, and these are {n:,}: what a release of so "
            "many says of its error depends on its records; docs/many-bins.md has figures."
        )
    if not 1 <= records <= _MOST:
        raise UsageError(f"records, how many there are, must be between 1 and 2**53, not {records}.")
    if isinstance(shape, str):
        shape = find(shape)
    name = shape.name if isinstance(shape, Shape) else "own"
    weights = shape.weights(n, seed=seed) if isinstance(shape, Shape) else _coarser(shape, n)
    return _source(f"{name} sample", seed).multinomial(records, weights).astype(np.int64)


def find(name: str) -> Shape:
    """Return the shape of a name."""
    if name not in SHAPES:
        raise UsageError(f"there is no shape {name!r}. {did_you_mean(name, SHAPES)}")
    return SHAPES[name]


def parse_like(text: str) -> Like:
    """Return the data that words such as ``bins=4096 records=1e6 sparse`` describe."""
    n, records, shape = 4096, 1_000_000, "smooth"
    for word in text.replace(",", " ").split():
        key, found, value = word.partition("=")
        if not found:
            shape = find(word).name
        elif (key := _now_called(key)) == "bins":
            n = _whole(value, key)
        elif key == "records":
            records = _whole(value, key)
        elif key == "shape":
            shape = find(value).name
        else:
            raise UsageError(f"{word!r} is not understood; write it like 'bins=4096 records=1e6 sparse'.")
    return Like(n, records, shape)


def _now_called(key: str) -> str:
    new = {"n": "bins", "scale": "records"}.get(key, key)
    if new != key:
        warn_renamed(f"{key}=", f"{new}=")
    return new


def _whole(text: str, name: str) -> int:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        number = math.nan
    if not 1 <= number <= _MOST or number != int(number):
        raise UsageError(f"{name} must be a whole number of at least 1, such as 4096 or 1e6, not {text!r}.")
    return int(number)


def _source(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng((zlib.crc32(name.encode()), seed))


def _coarser(histogram: ArrayLike, n: int) -> Floats:
    x = np.asarray(histogram, dtype=np.float64).ravel()
    if not np.isfinite(x).all() or (x < 0).any() or x.sum() <= 0:
        raise UsageError("a histogram that serves as a shape needs counts of 0 or more, and not all 0.")
    if n > x.size:
        raise UsageError(f"a histogram of {x.size} bins cannot be a shape for {n}: give n={x.size} or fewer.")
    starts = np.arange(n) * x.size // n
    coarse = np.add.reduceat(x, starts)
    return np.asarray(coarse / coarse.sum())


def _uniform(n: int, source: np.random.Generator) -> Floats:
    return np.ones(n)


def _smooth(n: int, source: np.random.Generator) -> Floats:
    x = (np.arange(n) + 0.5) / n
    w = np.full(n, 0.02)
    for center, width, height in zip(
        source.uniform(0.1, 0.9, 4), source.uniform(0.03, 0.2, 4), source.uniform(0.3, 1, 4), strict=True
    ):
        w += height * np.exp(-0.5 * ((x - center) / width) ** 2)
    return w


def _steps(n: int, source: np.random.Generator) -> Floats:
    k = min(n, 24)
    cuts = np.sort(source.permutation(n - 1)[: k - 1] + 1)
    heights = source.lognormal(0, 1.2, k)
    return np.asarray(heights[np.searchsorted(cuts, np.arange(n), side="right")])


def _power_sorted(n: int, source: np.random.Generator) -> Floats:
    return np.asarray((np.arange(n) + 1.0 + n / 2000) ** -source.uniform(1.0, 1.4), dtype=np.float64)


def _power_shuffled(n: int, source: np.random.Generator) -> Floats:
    w: Floats = np.asarray((np.arange(n) + 1.0 + n / 200) ** -0.9, dtype=np.float64)
    source.shuffle(w)
    return w


def _ip(n: int, source: np.random.Generator) -> Floats:
    block = max(1, n // 256)
    busy = np.repeat(source.pareto(0.9, -(-n // block)), block)[:n]
    here = source.random(n) < 0.35
    return np.asarray(busy * source.pareto(1.2, n) * here + 1e-12)


def _sparse(n: int, source: np.random.Generator) -> Floats:
    w = np.zeros(n)
    k = max(1, n // 50)
    w[source.choice(n, size=k, replace=False)] = source.pareto(0.6, k) + 0.05
    w[0] = w.sum() * 2  # the many who report nothing
    return w


def _early(n: int, source: np.random.Generator) -> Floats:
    w = np.exp(-np.arange(n) / max(1.0, n / 150)) * source.gamma(4, 1, n)
    w[max(1, n // 25) :] = 0
    return w


def _hourly(n: int, source: np.random.Generator) -> Floats:
    t = np.arange(n)
    day = np.exp(1.2 * np.sin(2 * np.pi * t / 24)) * np.where(t // 24 % 7 >= 5, 0.5, 1)
    level = np.exp(np.cumsum(source.normal(0, 0.03, n)))
    bursts = np.zeros(n)
    for _ in range(max(3, n // 250)):
        at, peak, fall = source.integers(n), source.pareto(1.1) * 4, source.uniform(3, 40)
        bursts[at:] += peak * np.exp(-(t[at:] - at) / fall)
    return np.asarray(level / level.mean() * day + bursts)


def _heaps(n: int, source: np.random.Generator) -> Floats:
    x = (np.arange(n) + 0.5) / n
    w = np.exp(-0.5 * ((np.log(x) - math.log(0.12)) / 0.8) ** 2) / x * source.gamma(1.5, 1, n)
    w /= w.sum()
    for every, share in ((max(2, n // 40), 0.35), (max(2, n // 200), 0.25), (max(2, n // 800), 0.15)):
        heap = np.zeros(n)
        heap[::every] = np.exp(-3 * x[::every]) * source.gamma(1, 1, heap[::every].size)
        w += share * heap / heap.sum()
    w[0] += 0.15  # no income at all
    w[source.random(n) < 0.3] *= 0.0
    if not w.any():  # of a few bins all may be empty
        w[0] = 1.0
    return w


def _tail(n: int, source: np.random.Generator) -> Floats:
    x = (np.arange(n) + 1.0) / n
    rise = (1 - np.exp(-x / 0.02)) * np.exp(-x / source.uniform(0.15, 0.5))
    return np.asarray((rise + 1e-4) * source.gamma(6, 1 / 6, n))


def _jagged(n: int, source: np.random.Generator) -> Floats:
    return np.asarray(source.gamma(1.5, 1, n) + 0.1)


def _lone(n: int, source: np.random.Generator) -> Floats:
    w = np.zeros(n)
    w[source.choice(n, size=min(n, 5), replace=False)] = source.uniform(0.5, 1, min(n, 5))
    return w


def _rhythm(n: int, source: np.random.Generator) -> Floats:
    beat = source.uniform(0, 1, 12) ** 3
    level = 1 + 0.5 * np.sin(2 * np.pi * np.arange(n) / max(n, 2))
    return np.asarray(beat[np.arange(n) % 12] * level + 1e-3)


_ALL = (
    Shape("uniform", _uniform, "all bins equal", "the best case for grouping"),
    Shape("smooth", _smooth, "a few broad humps, such as ages", "census ages"),
    Shape("steps", _steps, "two dozen flat pieces", "data that a partition fits exactly"),
    Shape("power-sorted", _power_sorted, "a power law in falling order", "Bid-Freq, NetTrace"),
    Shape("power-shuffled", _power_shuffled, "a power law in no order", "Amazon"),
    Shape("ip", _ip, "random addresses in busy and idle blocks", "Bid-IP"),
    Shape("sparse", _sparse, "few spikes, most records in the first bin, the rest empty", "Adult, MedCost"),
    Shape("early", _early, "all records in the first few bins, the rest empty", "NetTrace in DPBench"),
    Shape("hourly", _hourly, "peaks by hour and day, with bursts", "Search logs"),
    Shape("heaps", _heaps, "salaries, heaped on round amounts", "MD-Sal, IPUMS income, Wage-per-hour"),
    Shape("tail", _tail, "a quick rise and a long rough tail", "HepTh, Patent citations"),
    Shape("jagged", _jagged, "no bin like its neighbours, none empty", "the worst case for grouping"),
    Shape("lone", _lone, "all records in five bins", "a code that hardly anyone uses"),
    Shape("rhythm", _rhythm, "a pattern that repeats every twelve bins", "months, hours of a timetable"),
)
SHAPES = {shape.name: shape for shape in _ALL}
USUAL = ("smooth", "sparse", "early", "hourly", "heaps", "tail")  # where nothing is said about the data
# From the easiest to the hardest: what the error of a method may be if nothing is known of the data.
RANGE = ("lone", "uniform", "early", "sparse", "smooth", "steps", "power-sorted", "heaps", "ip", "hourly",
         "rhythm", "tail", "power-shuffled", "jagged")  # fmt: skip
EXTREMES = ("lone", "uniform", "power-shuffled", "jagged")  # of these, for very many bins
