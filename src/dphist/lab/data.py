"""What methods are compared on: made-up shapes, files of public counts, and the demo's real records.

A `Source` describes a histogram and makes its counts when asked, so that a grid of thousands of cells is
cheap to write down and to send to other processes. Nothing here is private.
"""

from __future__ import annotations

import math
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dphist._common.renamed import renamed, renamed_fields
from dphist.errors import DataError, UsageError, did_you_mean
from dphist.planning import flights, shapes
from dphist.privacy.counts import MAX_COUNT

if TYPE_CHECKING:
    import duckdb

Ints = NDArray[np.int64]
FILES = (".npy", ".csv")
DPBENCH = Path(os.environ.get("DPHIST_BENCH_DATA", "dpbench"))  # real histograms, for the benchmarks
_DEMO = "demo:"


@renamed_fields(scale="records")
@dataclass(frozen=True)
class Source:
    """One histogram, described.

    Args:
        name: its label in tables.
        shape: a name in ``shapes.SHAPES``, a path to a .npy or .csv file of counts, or ``demo:NAME``.
        n: the number of bins; neighbouring bins of a file are merged until this many are left (on a grid,
            equally many along both axes). None is as many as the file has.
        records: how many to draw from the shape; None takes the file's counts as they are.
        draw: which sample, if any is drawn.
    """

    name: str
    shape: str
    n: int | None = None
    records: int | None = None
    draw: int = 0

    @property
    def label(self) -> str:
        """The shape without folders: what rows and seeds know it by, wherever the files are kept."""
        return self.shape if self.shape.startswith(_DEMO) else Path(self.shape).name

    def counts(self) -> Ints:
        """Return the counts, of one axis or of two."""
        if not self.shape.startswith(_DEMO) and not self.shape.endswith(FILES):
            shapes.find(self.shape)
            if self.n is None or self.records is None:
                raise UsageError(f"the shape {self.shape!r} needs n, how many bins, and records, how many.")
            return shapes.draw(self.shape, n=self.n, records=self.records, seed=self.draw)
        if self.shape.startswith(_DEMO):
            full = _flights(self.shape.removeprefix(_DEMO))
        else:
            full = read(Path(self.shape))
        x = full if self.n is None else _coarser(full, self.n)
        if self.records is None:
            return x
        return shapes.draw(x.ravel(), n=x.size, records=self.records, seed=self.draw).reshape(x.shape)


@renamed(scale="records")
def shapes_as(names: Iterable[str], *, n: int, records: int) -> tuple[Source, ...]:
    """Return made-up histograms of the shapes named, all with as many bins and records."""
    return tuple(Source(shapes.find(name).name, name, n, records) for name in names)


@renamed(scale="records")
def folder(
    path: str | Path, *, n: int | None = None, records: int | None = None, dims: int | None = None
) -> tuple[Source, ...]:
    """Return the histograms in the .npy and .csv files below a folder, in order of their paths.

    A file's label is its name up to the first dot, or its path where two files would have the same.

    Args:
        n: how many bins each is made to have.
        records: how many are drawn from each.
        dims: 1 or 2 keeps those of one axis, or grids; None keeps all.
    """
    top = Path(path)
    if not top.is_dir():
        raise UsageError(f"there is no folder {top}: give one that holds .npy or .csv files of counts.")
    files = sorted(f for f in top.rglob("*") if f.suffix in FILES and f.is_file())
    # All are read now, so that a damaged file is reported before hours of work, not after.
    kept = [f for f in files if read(f).ndim in ((1, 2) if dims is None else (dims,))]
    if not kept:
        kind = {None: "", 1: " of one axis", 2: " of two axes"}[dims]
        raise UsageError(f"no .npy or .csv file{kind} below {top}: put histograms there, one in each file.")
    names = Counter(_label(f) for f in kept)
    return tuple(
        Source(_label(f) if names[_label(f)] == 1 else str(f.relative_to(top)), str(f.resolve()), n, records)
        for f in kept
    )


def demo() -> tuple[Source, ...]:
    """Return histograms of the real flights in the ``demo`` extra, as they are."""
    flights.archive()
    return tuple(Source(name, _DEMO + name) for name in FLIGHTS)


def read(path: Path) -> Ints:
    """Return the counts in a file.

    A .npy file holds an array of one or two axes. A .csv file holds a column of counts, or a grid of them,
    after an optional line of titles.
    """
    try:
        x = shapes.read_numbers(path)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None
    except ValueError:  # its text may quote the file, which might not be public
        raise DataError(
            f"{path} is not a file of counts: it needs numbers alone, one column in the order of the bins or "
            "a grid of them, in .csv with at most one line of titles, or a plain array in .npy."
        ) from None
    return _whole(x, path)


def _label(path: Path) -> str:
    return path.name.split(".")[0] or path.name


def _whole(x: NDArray[Any], path: Path) -> Ints:
    if x.ndim not in (1, 2) or not x.size:
        raise DataError(f"{path} must hold a list or a grid of counts, not an array of shape {x.shape}.")
    if x.dtype.kind not in "iuf":
        raise DataError(f"{path} must hold whole numbers, not {x.dtype}.")
    if np.isnan(x).any():
        raise DataError(f"{path} holds NaN; write 0 for an empty bin.")
    if (x < 0).any():
        raise DataError(f"{path} holds negative numbers; counts must be >= 0.")
    if (x > MAX_COUNT).any():
        raise DataError(f"{path} holds numbers above 2**53, the largest count that is allowed.")
    if (x != np.floor(x)).any():
        raise DataError(f"{path} holds fractions; counts are whole numbers: round them if that is right.")
    return x.astype(np.int64)


def _coarser(x: Ints, n: int) -> Ints:
    """Return a histogram with neighbouring bins put together until n are left."""
    if not 1 <= n <= x.size:
        raise UsageError(f"a histogram of {x.size} bins can be made coarser, not one of {n}: lower n.")
    if x.ndim == 1:
        return np.add.reduceat(x, np.arange(n) * x.size // n)
    step = math.isqrt(x.size // n)
    rows, columns = x.shape
    if n * step * step != x.size or rows % step or columns % step:
        raise UsageError(
            f"a grid of {rows} x {columns} cannot be cut into {n} squares of cells; for example "
            f"n={x.size // 4} puts 2 x 2 cells together, if both sides are even."
        )
    return np.asarray(x.reshape(rows // step, step, columns // step, step).sum(axis=(1, 3)))


# Real histograms, as SQL over the flights: the bin's number along each axis, and how many bins there are.
# The sizes are declared from what is possible (minutes of a day, a flight's longest), not read off the data.
FLIGHTS: Mapping[str, tuple[tuple[str, int], ...]] = MappingProxyType(
    {
        "arrival-delay": (("arr_delay + 120", 1440),),
        "departure-minute": (("(dep_time // 100 * 60 + dep_time % 100) % 1440", 1440),),
        "distance": (("distance", 5120),),
        "air-time": (("air_time", 720),),
        "delay-by-hour": (("arr_delay + 60", 256), ("hour", 24)),
    }
)


def _flights(name: str) -> Ints:
    if name not in FLIGHTS:
        raise UsageError(f"there is no demo histogram {name!r}. {did_you_mean(name, FLIGHTS)}")
    return _all_flights()[name]


@cache  # reading the flights takes a second
def _all_flights() -> dict[str, Ints]:
    import duckdb

    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(flights.archive()) as files:
        inner = next(member for member in files.namelist() if Path(member).name == "flights.csv")
        source = files.extract(inner, place)
        with duckdb.connect() as database:
            database.read_csv(source, na_values="NA").create("flights")
            return {name: _count(database, axes) for name, axes in FLIGHTS.items()}


def _count(database: duckdb.DuckDBPyConnection, axes: Sequence[tuple[str, int]]) -> Ints:
    bins = ", ".join(f"CAST({sql} AS INTEGER) AS b{i}" for i, (sql, _) in enumerate(axes))
    inside = " AND ".join(f"b{i} BETWEEN 0 AND {size - 1}" for i, (_, size) in enumerate(axes))
    found = database.sql(
        f"SELECT *, count(*) FROM (SELECT {bins} FROM flights) WHERE {inside} GROUP BY ALL"
    ).fetchnumpy()
    *at, many = (np.asarray(column) for column in found.values())
    out = np.zeros([size for _, size in axes], dtype=np.int64)
    out[tuple(at)] = many
    out.flags.writeable = False
    return out
