"""Noise by script: the curator's own verbs run with draws that a test sets, and tell which law each was of.

`scripted` takes the place of the one function that draws noise. A test can then compare what a verb does on
two neighbouring data sets under noise that it chooses, and price the difference by the laws that the verb
itself asked for: no part of a mechanism is written a second time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from dphist.domain import Domain, Integers
from dphist.privacy import noise
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator

Verb = Callable[[Curator], Any]


@dataclass
class Script:
    """Values for the draws in their order, and what was drawn: a scale and a kind for each value.

    Args:
        values: what the draws return; beyond its end ``more`` makes them.
        more: called with a scale and whether the draw is two-sided.
    """

    values: list[int] = field(default_factory=list)
    more: Callable[[float, bool], int] = lambda scale, signed: 0
    scales: list[float] = field(default_factory=list)
    signed: list[bool] = field(default_factory=list)

    def draw(self, scales: np.ndarray, size: int, stream: object, *, signed: bool) -> np.ndarray:
        """Stand in for the sampler."""
        out = np.empty(size, np.int64)
        for i, scale in enumerate(np.broadcast_to(scales, size).tolist()):
            at = len(self.scales)
            if at == len(self.values):
                self.values.append(self.more(scale, signed))
            out[i] = self.values[at]
            self.scales.append(scale)
            self.signed.append(signed)
        return out


@contextmanager
def scripted(script: Script) -> Iterator[Script]:
    """Let every draw come from a script."""
    with patch.object(noise, "_draw", script.draw):
        yield script


def run(verb: Verb, x: Any, script: Script, *, epsilon: Fraction = Fraction(1), sensitivity: int = 1) -> Any:
    """Return what a verb says of counts under scripted noise."""
    x = np.asarray(x)
    held = Counts(x, Domain(tuple(Integers(0, n - 1) for n in x.shape)), sensitivity)
    with scripted(script):
        return verb(Curator.simulated(held, epsilon=epsilon, seed=0))


def neighbours(x: Any) -> Iterator[np.ndarray]:
    """Yield the counts with one record more in each bin, and with one less where there is one."""
    x = np.asarray(x)
    for i, step in itertools.product(range(x.size), (1, -1)):
        if x.flat[i] + step >= 0:
            y = x.copy()
            y.flat[i] += step
            yield y


def tail(k: int, scale: float, signed: bool) -> float:
    """Return P(draw >= k), exactly up to rounding, of the law that the sampler has."""
    a = math.exp(-1 / scale)
    if not signed:
        return a**k if k > 0 else 1.0
    return a**k / (1 + a) if k > 0 else 1 - a ** (1 - k) / (1 + a)


def rest(k: int, scale: float, signed: bool) -> float:
    """Return P(draw < k), with no cancellation."""
    a = math.exp(-1 / scale)
    if not signed:
        return -math.expm1(-k / scale) if k > 0 else 0.0
    return a ** (1 - k) / (1 + a) if k <= 0 else 1 - a**k / (1 + a)


def random_noise(rng: np.random.Generator, width: float = 1.0) -> Callable[[float, bool], int]:
    """Return a maker of draws that stay near what a record changes, so that close calls are common."""

    def more(scale: float, signed: bool) -> int:
        size = int(rng.integers(0, max(int(width * scale), 1) + 2))
        return size if not signed or rng.random() < 0.5 else -size

    return more
