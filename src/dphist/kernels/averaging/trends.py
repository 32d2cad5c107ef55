"""Bins inside a group that follow the trend of the groups beside it, instead of being all alike.

A group's bins lie on a line through its mean. Its slope is the harmonic mean of the slopes to the means of
both neighbours, and none at a peak or in a trough (van Leer 1974): where the counts are smooth, bins come
closer to them, and next to a jump hardly anything changes. No bin is below 0, and no group's total changes.
"""

from __future__ import annotations

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError


def along_trends(totals: Floats, starts: Ints) -> Floats:
    """Return the bins of groups with these totals, none negative: O(n).

    Args:
        starts: where each group begins among the bins and, last, the number of bins.
    """
    size = np.diff(starts)
    if totals.shape != size.shape or not (totals >= 0.0).all():
        raise UsageError("bins follow a trend of totals that are not negative, one for each group.")
    mean, slope = totals / size, np.zeros(size.size)
    if size.size > 2:
        to_next = 2.0 * np.diff(mean) / (size[:-1] + size[1:])
        before, after = to_next[:-1], to_next[1:]
        rises = before * after > 0.0
        one, two = before[rises], after[rises]
        slope[1:-1][rises] = 2.0 * one * (two / (one + two))
        steepest = 2.0 * mean / size  # so that the line is 0 at the end of the group, half a bin beyond
        np.clip(slope, -steepest, steepest, out=slope)
    middle = 0.5 * (starts[:-1] + starts[1:] - 1)
    bins: Floats = np.repeat(slope, size) * (np.arange(starts[-1]) - np.repeat(middle, size))
    bins += np.repeat(mean, size)
    np.maximum(bins, 0.0, out=bins)
    return bins
