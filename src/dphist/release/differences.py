"""How much the same part of two releases differs."""

from __future__ import annotations

from dphist.errors import UsageError
from dphist.release.release import Estimate


def change(new: Estimate, old: Estimate) -> Estimate:
    """Return the difference of two answers of one level 1 - a/2, with an interval of level 1 - a.

    Each interval misses with a chance of at most a/2, whatever the other does, so that with a chance of at
    least 1 - a both hold (the union bound). Then the difference lies between the least and the greatest that
    their ends allow. It holds for releases of the same people too, whose errors need not be independent.

    >>> old, new = (dphist.Estimate(x, x - 2, x + 2, 0.975, "") for x in (10.0, 13.0))
    >>> str(change(new, old))
    '3 (-1 to 7, level 0.95)'
    """
    if new.level != old.level:
        raise UsageError("answers are compared at one level: ask for both with the same.")
    level = round(1 - 2 * (1 - new.level), 12)
    value, note = new.value - old.value, "The intervals of both answers, joined by the union bound."
    if new.low is None or new.high is None or old.low is None or old.high is None:
        return Estimate(value, None, None, level, "no interval: that of one of the two answers is not known.")
    return Estimate(value, new.low - old.high, new.high - old.low, level, note)


def level_of_each(level: float) -> float:
    """Return the level at which both answers are asked for, so that their difference has this one."""
    return 1 - (1 - level) / 2
