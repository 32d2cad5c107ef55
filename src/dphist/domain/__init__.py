"""Public nouns, declared before any record is read: axes, domains, groups of bins and workloads."""

from __future__ import annotations

from dphist.domain.addresses import Addresses
from dphist.domain.axes import (
    MAX_BINS,
    MOST_BINS,
    Categories,
    Integers,
    Outside,
    Regular,
    Variable,
    as_int,
    cut,
    shown,
)
from dphist.domain.codes import Codes
from dphist.domain.declare import KEYS, declaration, declared_axis, make_axis
from dphist.domain.domain import Axis, Domain, Keyed, Labelled, clock_zone
from dphist.domain.hashed import Hashed
from dphist.domain.instants import NEEDS_ZONE, Instants

__all__ = [
    "KEYS",
    "MAX_BINS",
    "MOST_BINS",
    "NEEDS_ZONE",
    "Addresses",
    "Axis",
    "Categories",
    "Codes",
    "Domain",
    "Hashed",
    "Instants",
    "Integers",
    "Keyed",
    "Labelled",
    "Outside",
    "Regular",
    "Variable",
    "as_int",
    "clock_zone",
    "cut",
    "declaration",
    "declared_axis",
    "make_axis",
    "shown",
]
