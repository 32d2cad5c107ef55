"""Boxes: ranges of bins along every axis of a domain, and the sums over them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dphist.domain.groups import Floats, Ints


@dataclass(frozen=True, eq=False)
class Boxes:
    """Ranges of a line, or rectangles of a grid, as arrays of one length.

    Args:
        shape: of the domain.
        ends: for each axis the first bins and those after the last.
    """

    shape: tuple[int, ...]
    ends: tuple[Ints, ...]

    def __len__(self) -> int:
        return self.ends[0].size

    @property
    def possible(self) -> int:
        """How many ranges or rectangles the domain has."""
        return math.prod(k * (k + 1) // 2 for k in self.shape)

    def sums(self, below: tuple[Floats, Floats]) -> Floats:
        """Return the sum over each box, from the running sums of ``running``."""
        if len(self.shape) == 1:
            lo, hi = self.ends
            return sum((part[hi] - part[lo] for part in below), start=np.zeros(lo.shape))
        a, b, c, d = self.ends
        return sum(
            ((part[b, d] - part[a, d]) - (part[b, c] - part[a, c]) for part in below),
            start=np.zeros(a.shape),
        )

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Return where each box begins and ends among all bins, and how many of these it holds."""
        if len(self.shape) == 1:
            lo, hi = self.ends
            return lo, hi, hi - lo
        a, b, c, d = self.ends
        return a * self.shape[1] + c, (b - 1) * self.shape[1] + d, (b - a) * (d - c)

    def cells(self, i: int) -> Ints:
        """Return the bins of one box, rising."""
        if len(self.shape) == 1:
            return np.arange(self.ends[0][i], self.ends[1][i])
        a, b, c, d = (int(end[i]) for end in self.ends)
        return (np.arange(a, b)[:, None] * self.shape[1] + np.arange(c, d)).ravel()


def running(raw: Floats) -> tuple[Floats, Floats]:
    """Return the sums of all values before each edge, along each axis, as two arrays to be added.

    The second holds what rounding took from the first, so that the small sum of a range far from the
    beginning has all its digits.
    """
    sums, lost = raw, np.zeros_like(raw)
    for axis in range(raw.ndim - 1, -1, -1):
        widths = [(1, 0) if i == axis else (0, 0) for i in range(raw.ndim)]
        each, lost = np.pad(sums, widths), np.pad(lost, widths)
        sums = np.cumsum(each, axis=axis)
        before = np.concatenate((np.zeros_like(each.take([0], axis)), sums), axis=axis).take(
            range(sums.shape[axis]), axis
        )
        added = sums - before  # Knuth's sum of two numbers with its rounding error
        lost = np.cumsum(lost + ((before - (sums - added)) + (each - added)), axis=axis)
    return sums, lost
