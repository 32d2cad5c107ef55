"""Which cases of a long sweep are tried at once, and which before a version (`make test-long`)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dphist.domain import Domain, Integers
from dphist.domain.workload import make_workload
from dphist.methods import catalogue
from dphist.methods.catalogue import CATALOGUE

LONG = (pytest.mark.long, pytest.mark.slow)


def later(*values):
    """Return a case of a sweep that is tried before a version alone."""
    return pytest.param(*values, marks=LONG)


def _components(method: str) -> tuple[type, type]:
    """Return the classes of the steps in which methods differ most."""
    line, grid = Domain((Integers(0, 99),)), Domain((Integers(0, 9), Integers(0, 9)))
    domain = line if 1 in CATALOGUE[method].dimensions else grid
    made = catalogue.make_pipeline(method, domain, make_workload("points", domain))
    return type(made.partition), type(made.estimate)


KINDS = ("auto", *{_components(method): method for method in CATALOGUE if method != "auto"}.values())


def of_each_kind(methods: Iterable[str] = CATALOGUE) -> list:
    """Return methods of which those that share their components with another are tried later."""
    return [method if method in KINDS else later(method) for method in methods]
