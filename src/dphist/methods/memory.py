"""Whether a release fits into memory: computed from its plan alone, before anything is counted or charged.

A method's arrays grow with the number of bins. How many bytes they come to was measured for some methods of
each kind, and a test holds the figures to three of them.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dphist.domain import Domain
from dphist.errors import UsageError
from dphist.kernels.averaging import MOST_IN_RECTANGLES
from dphist.kernels.trees.hat_rules import MOST_CELLS
from dphist.methods.pipeline import Pipeline
from dphist.methods.sparse import SparsePipeline
from dphist.steps.estimate import Averaged, AveragedTree, GroupMeans, RoughMeans, WeightedMeans
from dphist.steps.estimate.means import FineMeans
from dphist.steps.partition import Singletons

# Bytes for each bin: of methods that measure every bin alone, of those that group bins, and of the others.
_ALONE, _GROUPED, _OTHER = 64, 256, 384
_RECTANGLES = 2560  # bytes for each cell of a grid that is averaged over rectangles, with a prior
_SQUARES, _MOVED = (
    1088,
    1 << 17,
)  # the same over quadtrees, of up to so many cells, which are moved to judge it
_PYRAMIDS = 3  # cells of a grid that pyramids may measure, for a byte more for each cell
_SMALL = 1 << 24  # requests below this number of bytes are not checked
_CGROUPS = Path("/sys/fs/cgroup")


def refuse_what_does_not_fit(pipeline: Pipeline, domain: Domain) -> None:
    """Refuse a release whose arrays are larger than the memory that is free."""
    wanted = bytes_needed(pipeline, domain)
    _refuse(
        wanted,
        f"{domain.n:,} bins need",
        f" with {pipeline.name}",
        "take fewer bins, a method that leaves every bin alone (identity), or a larger machine.",
    )


def refuse_groups_that_do_not_fit(method: str, wanted: int, *, groups: int, bins: int) -> None:
    """Refuse a release of many groups that is larger than the memory that is free."""
    _refuse(
        wanted,
        f"{groups:,} groups of {bins:,} bins need",
        f" with {method}",
        "declare fewer groups and count the others together, take fewer bins, the method identity without "
        "levels, or a larger machine.",
    )


def refuse_several_that_do_not_fit(wanted: int, *, histograms: int) -> None:
    """Refuse releases that are made together and do not fit into the free memory together."""
    _refuse(
        wanted,
        f"{histograms} histograms together need",
        "",
        "take fewer bins, or publish some of them by themselves.",
    )


def _refuse(wanted: int, need: str, way: str, instead: str) -> None:
    """Refuse what is larger than the memory that is free; small releases do not ask how much that is."""
    free = available() if wanted > _SMALL else None
    if free is not None and wanted > free:
        raise UsageError(
            f"{need} about {wanted / 2**30:.1f} GiB of memory{way}, and {free / 2**30:.1f} GiB are free. "
            f"Nothing was charged; {instead}"
        )


def bytes_needed(pipeline: Pipeline, domain: Domain) -> int:
    """Return about how many bytes a release takes at its widest, counts included.

    What a sparse one takes grows with the records, which are not public: it is not foretold.
    """
    if isinstance(pipeline, SparsePipeline):
        return 0
    averaged = _OTHER
    if len(domain.axes) == 2 and min(domain.shape) > 1 and domain.n <= _MOVED:
        averaged = _RECTANGLES if domain.n <= MOST_IN_RECTANGLES else _SQUARES
    if isinstance(pipeline.estimate, AveragedTree) and pipeline.estimate.asks and domain.n <= MOST_CELLS:
        return domain.n * max(_OTHER + domain.n // _PYRAMIDS, averaged)
    if isinstance(pipeline.estimate, (Averaged, AveragedTree)):
        return domain.n * averaged
    if not isinstance(pipeline.estimate, (GroupMeans, FineMeans, WeightedMeans, RoughMeans)):
        return domain.n * _OTHER
    return domain.n * (_ALONE if isinstance(pipeline.partition, Singletons) else _GROUPED)


def available() -> int | None:
    """Return how many bytes this process can still take: by the system, its container and its own limit."""
    found = list(_limits())
    return max(0, min(found)) if found else None


def _limits() -> Iterator[int]:
    with suppress(OSError, ValueError):
        yield _figure(Path("/proc/meminfo"), "MemAvailable:") << 10
    with suppress(OSError, ValueError):  # no limit is the word "max"
        folder = _CGROUPS / Path("/proc/self/cgroup").read_text().partition("0::/")[2].strip()
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        yield limit - used + _figure(folder / "memory.stat", "file")  # what files fill is given back
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):
            yield most - (_figure(Path("/proc/self/status"), "VmSize:") << 10)


def _figure(path: Path, name: str) -> int:
    """Return a figure of the operating system by its name."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name} ") or line.startswith(f"{name}\t"):
            return int(line.split()[1])
    raise ValueError(name)
