"""Bins that occur and how often, made and merged by sorting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.domain.groups import Ints

Tallies = tuple[Ints, Ints]


def tallied(bins: NDArray[np.signedinteger]) -> Tallies:
    """Return the bins that occur among those of some records, rising, and how often each does.

    The records' bins are put in order where they are: there may be no room for a copy.
    """
    bins.sort()
    starts = _starts(bins)
    return bins[starts].astype(np.int64), np.diff(starts, append=bins.size)


def merged(one: Tallies, other: Tallies) -> Tallies:
    """Return the tallies of two sets of records together, in the order of their bins."""
    if not one[0].size:
        return rising(*other)
    bins = np.concatenate((one[0], other[0]))
    order = np.argsort(bins, kind="stable")  # linear where the bins of each rise
    bins, tallies = bins[order], np.concatenate((one[1], other[1]))[order]
    starts = _starts(bins)
    return bins[starts], np.add.reduceat(tallies, starts)


def rising(bins: Ints, tallies: Ints) -> Tallies:
    """Return tallies in the order of their bins."""
    if (bins[1:] > bins[:-1]).all():
        return bins, tallies
    order = np.argsort(bins)
    return bins[order], tallies[order]


def _starts(found: NDArray[np.signedinteger]) -> Ints:
    """Return where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1]))[: found.size])
