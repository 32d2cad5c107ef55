"""A charge as the curator reports it and every release records it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Spent:
    """What one measurement took of the budget, and what for."""

    purpose: str
    share: Fraction
    epsilon: Fraction
