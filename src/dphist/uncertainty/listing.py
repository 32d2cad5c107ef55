"""What a listing says of the bins that it lists, and of those that it does not. Public mathematics, no data.

Noise Z of scale s is on every one of N bins, and those whose noisy count reaches t are listed. a = exp(-1/s).

* **One bin, named in advance.** |Z| <= q but for a chance of beta, q the noise's quantile. If the bin is
  listed with v = x + Z, then v - q <= x <= v + q; if it is not, x + Z <= t - 1, so that x <= t - 1 + q. All
  three fail only where |Z| > q: whether the bin is listed or not, the interval covers with the level.
* **All bins that are not listed.** At most n/(t + c) bins hold t + c of n records. P(Z < -c) = a^(c+1)/(1 +
  a) for each, so that none of them has such noise but for a chance of n/(t + c) a^(c+1)/(1 + a). Otherwise
  every bin of t + c records or more has x + Z >= t, and is listed. n is not public: it is bounded by the
  upper end of a total that was measured, whose own failure is added.
* **All bins that are listed.** A bin is in the list because its noise was high, as often as because its count
  was (the winner's curse): v +- q is not an interval for a bin that was chosen because it is listed. For all
  N bins at once P(some Z >= k) <= N a^k/(1 + a), so that x >= v - k + 1 for every listed bin.

Where only the largest are listed (``most``), the least value listed takes the place of t - 1: a bin that was
left out has x + Z at or below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dphist.errors import UsageError
from dphist.uncertainty import noise_law

_MARGIN = 1e-9  # of rounding, towards the higher threshold or margin


def threshold_for(n: int, scale: float, false_bins: float) -> int:
    """Return the least t for which at most so many of n empty bins are listed in expectation.

    >>> threshold_for(2**32, 1.0, 1)
    22
    """
    return max(
        1,
        math.ceil(scale * (math.log(n) - math.log1p(math.exp(-1 / scale)) - math.log(false_bins)) - _MARGIN),
    )


def expected_false(n: int, scale: float, threshold: int) -> float:
    """Return how many of n empty bins are listed in expectation."""
    return math.exp(min(math.log(n) - threshold / scale - math.log1p(math.exp(-1 / scale)), 700.0))


@dataclass(frozen=True)
class Listing:
    """How a listing was made: all of it public.

    Args:
        bins: how many bins there are, listed or not.
        threshold: the least noisy count that is listed.
        scale: of the noise on every bin.
        most: how many of the largest were kept; None if all were.
        cutoff: what no noisy count of a bin that is not listed exceeds.
        total: the noisy number of all records.
        total_scale: of its noise.
    """

    bins: int
    threshold: int
    scale: float
    most: int | None
    cutoff: int
    total: int
    total_scale: float

    def __post_init__(self) -> None:
        if self.threshold < 1 or self.cutoff < self.threshold - 1:
            raise UsageError("a listing's threshold is at least 1, and no bin below it is listed.")

    @property
    def expected_false(self) -> float:
        """How many empty bins are listed in expectation, before only the largest are kept."""
        return expected_false(self.bins, self.scale, self.threshold)

    def margin(self, level: float) -> float:
        """Return q: what a bin named in advance has of noise, at most."""
        return noise_law.quantile(self.scale, level)

    def unlisted(self, level: float) -> float:
        """Return how many records a bin that was named in advance and is not listed has at most."""
        return self.cutoff + self.margin(level)

    def why_unlisted(self, level: float) -> str:
        """Return in words that a bin that was named in advance is not listed, and what that says of it."""
        below = f"below the threshold of {self.threshold:,}"
        if self.most is not None:
            below = f"not one of the {self.most:,} largest noisy counts from {self.threshold:,} on"
        return f"not listed: {below}; its count is at most {self.unlisted(level):,.0f} with {100 * level:g} %"

    def all_unlisted(self, level: float) -> int:
        """Return how many records every bin that is not listed has at most, for all of them at once."""
        beta = (1 - noise_law.check_level(level)) / 2
        records = max(self.total + noise_law.quantile(self.total_scale, 1 - beta), 1)
        a, c = math.exp(-1 / self.scale), 0
        # Steps of about a tenth of the scale: c is the same up to one of them, on the safe side.
        step = max(1, int(self.scale / 10))
        while records / (self.threshold + c) * a ** (c + 1) / (1 + a) > beta:
            c += step
        return self.cutoff + c

    def all_listed(self, level: float) -> int:
        """Return k: every listed bin has more than its value less k records, for all bins at once."""
        beta = 1 - noise_law.check_level(level)
        return threshold_for(self.bins, self.scale, beta)

    def describe(self, level: float = 0.95) -> str:
        """Return in words what may be said of the bins."""
        share = f"{100 * level:g} %"
        false = f"{self.expected_false:,.2g}" if self.expected_false >= 1e-3 else "less than 0.001"
        kept = f"the {self.most:,} largest of the bins" if self.most is not None else "bins"
        return (
            f"This is a list of {kept} whose noisy count is at least {self.threshold:,}; {false} empty bins "
            f"are listed in expectation, by their noise alone. For a bin that was named before the list was "
            f"seen, the {share} interval is its value plus or minus {self.margin(level):,.0f}, or if it is "
            f"not listed, 0 to {self.unlisted(level):,.0f}. Of all bins at once: with {share}, none that is "
            f"not listed has more than {self.all_unlisted(level):,} records, and every listed one has at "
            f"least its value less {self.all_listed(level) - 1:,}. A bin that is picked because it is listed "
            "has more noise than others (the winner's curse): for such bins this last statement holds, not "
            "the interval. Records in bins that are not listed are in no sum but the total."
        )

    def to_dict(self) -> dict[str, Any]:
        # As text: there may be more bins than a double counts.
        return {
            "bins": str(self.bins),
            "threshold": self.threshold,
            "scale": self.scale,
            "most": self.most,
            "cutoff": self.cutoff,
            "total": self.total,
            "total_scale": self.total_scale,
            "expected_false": self.expected_false,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Listing:
        return cls(
            int(described["bins"]),
            *(described[key] for key in ("threshold", "scale", "most", "cutoff", "total", "total_scale")),
        )
