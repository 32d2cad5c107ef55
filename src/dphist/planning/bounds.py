"""A range for a column whose range nobody knows: a small paid look at magnitudes, and what follows from it.

The look is a release like any other: a `Plan` with fixed bins over all doubles, the same for every column,
and the method ``identity``. What follows is post-processing of its noisy counts, so that nothing here has to
be trusted with records. With n bins and noise of scale s = max_contributions / epsilon on each:

* A bin is taken to hold records if its noisy count is above t, the least whole number that the noise exceeds
  with a probability of at most 0.01 / n. By the union bound, the probability that any empty bin is taken to
  hold records is at most 0.01.
* The range goes from the lowest such bin to the highest. Which bins lie outside is chosen by the noise, so
  that a bound on their records has to hold for all choices at once. The noise of the first j bins is a sum of
  j independent symmetric terms, and Levy's inequality says of the largest of these sums, over all j, that
  P(max_j S_j > q) <= 2 P(S_n > q) = P(|S_n| > q). With q such that this is (1 - level) / 3, for the bins
  below the range, those above it, and all of them, none of the three true sums is on the wrong side by more
  than q, with probability ``level``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dphist.domain import Variable
from dphist.errors import UsageError
from dphist.planning.plan import Plan
from dphist.privacy.ledger import LedgerLike
from dphist.release import Release
from dphist.uncertainty import noise_law

WRONG = 0.01  # the probability that any empty bin is taken to hold records
_FINE, _DECADES = range(-6, 12), (*range(-30, -6), *range(12, 31))  # exponents: 1, 2, 5, 10 between; or 1, 10
_COARSE = (-300, -250, -200, -150, -100, -50, 50, 100, 150, 200, 250, 300)


@cache
def magnitudes() -> Variable:
    """Return the bins of the look: both signs, zero between them, and all doubles.

    They are finest where numbers about people are: steps of 1, 2, 5 and 10 between a millionth and 10^12.
    """
    texts = [f"{m}e{k}" for k in _FINE for m in (1, 2, 5)]
    texts += [f"1e{k}" for k in (*_DECADES, *_COARSE)]
    edges = sorted({*map(float, texts), sys.float_info.max})
    return Variable(np.array([-e for e in reversed(edges)] + edges))


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """A suggested range, and how far it can be trusted.

    >>> found = dphist.bounds([0, 3, 25, 40] * 500, epsilon=1)
    >>> low, high = found.range
    >>> low <= 0 and high >= 50
    True

    Args:
        range: the suggested ends; None if no bin stood out from the noise. What is nearer to 0 than 1e-300
            counts as 0.
        only_zeros: whether nothing but zeros was seen, so that the range is no more than an example.
        below: the most records that may lie below the range, at the confidence level.
        above: the most records that may lie above it, at the same time.
        part: the largest part of all records that may lie outside; 1 if nothing is known of it.
        level: the confidence level of these three.
        threshold: the noisy count above which a bin is taken to hold records.
        missed: a bin with this many records or more is overlooked with a probability of at most 0.01.
        false_positive: the probability that one empty bin is taken to hold records; 0.01 for all together.
        release: the noisy counts, which were paid for.
    """

    range: tuple[float, float] | None
    only_zeros: bool
    below: int
    above: int
    part: float
    level: float
    threshold: int
    missed: int
    false_positive: float
    release: Release

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the release, ready for JSON.

        >>> found.to_dict()["level"]
        0.95
        """
        fields = {key: value for key, value in vars(self).items() if key != "release"}
        told = {"epsilon": str(self.release.epsilon), "unit": self.release.unit}
        return fields | told | {"range": None if self.range is None else list(self.range)}

    def __str__(self) -> str:
        wrong = f"{100 * WRONG:g} %"
        noise = (
            f"A bin of magnitudes counts as seen above {self.threshold:,} noisy records. One with "
            f"{self.missed:,} records is overlooked with a probability of at most {wrong}; an empty one is "
            f"taken for seen with at most {self.false_positive:.1g}, {wrong} for all bins together."
        )
        if self.range is None:
            return (
                "No range can be suggested: no magnitude has enough records to stand out from the noise. "
                f"{noise} Take public knowledge, or a larger epsilon."
            )
        low, high = (shown_end(end) for end in self.range)
        zeros = " Nothing but zeros was seen, so that any range with 0 will do." if self.only_zeros else ""
        return (
            f"The range {low} to {high}.{zeros} With {100 * self.level:g} % confidence at most "
            f"{self.below:,} records lie below it and {self.above:,} above, together at most "
            f"{100 * self.part:.2g} % of all records. {noise}"
        )


def bounds(
    data: Any,
    *,
    epsilon: Any,
    column: str | None = None,
    where: str | None = None,
    unit: str | None = None,
    max_contributions: int = 1,
    level: float = 0.95,
    table: str | None = None,
    timezone: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
    ledger: LedgerLike | str | os.PathLike[str] | None = None,
    dataset: str = "default",
) -> Bounds:
    """Suggest a range for a column by a private look at the magnitudes of its values, which costs epsilon.

    Records without a number (null, NaN, infinite) are left out. The other arguments are those of ``Plan`` and
    ``Plan.release``.

    >>> low, high = dphist.bounds([-3, 250, 40, 8] * 500, epsilon="0.5").range
    >>> low <= -3 and high >= 250
    True

    Args:
        epsilon: the budget of the look; what is published with the range costs its own.
        level: the confidence level of the bounds on the records that lie outside.
    """
    noise_law.check_level(level)
    plan = look(
        epsilon=epsilon,
        column=column,
        where=where,
        unit=unit,
        max_contributions=max_contributions,
        table=table,
        timezone=timezone,
        well_formed=well_formed,
        encoding=encoding,
        decimal=decimal,
    )
    return suggest(plan.release(data, ledger=ledger, dataset=dataset), level=level)  # type: ignore[arg-type]


def look(**options: Any) -> Plan:
    """Return the plan of the look; the options are those of ``Plan``, except for the bins and the method."""
    return Plan(bins=magnitudes(), method="identity", **options)


def suggest(release: Release, *, level: float = 0.95) -> Bounds:
    """Return the range that noisy counts of magnitudes suggest: post-processing, at no cost."""
    axis, scale = magnitudes(), getattr(release.error, "scale", None)
    if release.domain.axes != (axis,) or not isinstance(scale, float):
        raise UsageError("a range is suggested by a release that dphist bounds has made, and no other.")
    noisy, n = release.raw, axis.n
    threshold = int(noise_law.quantile(scale, 1 - 2 * WRONG / n))
    seen = np.flatnonzero(noisy > threshold)
    within = noise_law.sum_quantile(np.array([scale]), np.array([n]), 1 - (1 - level) / 3)
    first, last = (int(seen[0]), int(seen[-1])) if seen.size else (n, n - 1)
    below, above = (max(0, int(part.sum() + within)) for part in (noisy[:first], noisy[last + 1 :]))
    total = noisy.sum() - within
    ends = _ends(axis, first, last) if seen.size else None
    return Bounds(
        range=ends,
        only_zeros=seen.size == 1 and first == n // 2,
        below=below,
        above=above,
        part=float(min(1.0, (below + above) / total)) if seen.size and total > 0 else 1.0,
        level=level,
        threshold=threshold,
        missed=threshold + 1 + int(noise_law.quantile(scale, 1 - 2 * WRONG)),
        false_positive=noise_law.tail(scale, threshold) / 2,
        release=release,
    )


def _ends(axis: Variable, first: int, last: int) -> tuple[float, float]:
    """Return the ends of the bins that were seen; what is all but zero is zero."""
    zero = axis.n // 2
    low = 0.0 if first == zero else axis.edges[first].item()
    high = 0.0 if last == zero else axis.edges[last + 1].item()
    return (low, high) if low < high else (0.0, 1.0)


def shown_end(end: float) -> str:
    """Return an end of a range as one would type it."""
    return f"{end:.0f}" if end == round(end) and abs(end) < 1e15 else repr(end)
