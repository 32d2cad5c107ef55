"""dphist: histograms under differential privacy.

The whole system in ten lines; each number names a folder or a file::

    records  --count-->  Counts          1 records/: in the engine where the data is
    Counts   --------->  Curator         2 privacy/: the boundary; the budget is charged before noise is drawn
    Curator  --noise-->  rough counts    3 steps/initialize.py
             --------->  an order        4 steps/order.py
             --------->  groups          5 steps/partition/
             --noise-->  values          6 steps/estimate/
    values   --------->  Release         7 release/: immutable, with confidence intervals and charges
    Release  --------->  charts          8 charts/

``methods/`` runs steps 3 to 6 and names the published combinations, ``domain/`` defines bins and workloads,
``uncertainty/`` holds the error models, and ``planning/`` the functions that most people call:

>>> import dphist
>>> ages = [23, 35, 35, 41, 67]
>>> release = dphist.histogram(ages, bins=12, range=(0, 120), epsilon=1.0)
>>> release.sum(30, 50).level
0.95
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dphist._common import __version__ as __version__

if TYPE_CHECKING:
    from dphist import errors, kernels, steps
    from dphist.domain import (
        Addresses,
        Categories,
        Codes,
        Domain,
        Hashed,
        Instants,
        Integers,
        Regular,
        Variable,
        workload,
    )
    from dphist.domain.groups import Groups
    from dphist.methods.catalogue import CATALOGUE
    from dphist.methods.pipeline import Pipeline, Split
    from dphist.planning import shapes
    from dphist.planning.advise import Advice, advise
    from dphist.planning.bounds import Bounds, bounds
    from dphist.planning.grouped import GroupedPlan
    from dphist.planning.plan import Plan, from_counts, histogram, histogram2d, simulate
    from dphist.planning.preview import Preview
    from dphist.planning.publication import Publication
    from dphist.privacy.ledger import Ledger, MemoryLedger
    from dphist.release import Estimate, Estimates, Release, SparseRelease, load
    from dphist.reports.page import report

# The module of each public name. Names are looked up when first used, so that `import dphist` stays fast.
_HOME = {
    "Addresses": "domain",
    "Advice": "planning.advise",
    "Bounds": "planning.bounds",
    "CATALOGUE": "methods.catalogue",
    "Categories": "domain",
    "Codes": "domain",
    "Domain": "domain",
    "Estimate": "release",
    "Estimates": "release",
    "GroupedPlan": "planning.grouped",
    "Groups": "domain.groups",
    "Hashed": "domain",
    "Instants": "domain",
    "Integers": "domain",
    "Ledger": "privacy.ledger",
    "MemoryLedger": "privacy.ledger",
    "Pipeline": "methods.pipeline",
    "Plan": "planning.plan",
    "Preview": "planning.preview",
    "Publication": "planning.publication",
    "Regular": "domain",
    "Release": "release",
    "SparseRelease": "release",
    "Split": "methods.pipeline",
    "Variable": "domain",
    "advise": "planning.advise",
    "bounds": "planning.bounds",
    "from_counts": "planning.plan",
    "histogram": "planning.plan",
    "histogram2d": "planning.plan",
    "load": "release",
    "report": "reports.page",
    "simulate": "planning.plan",
}
_MODULES = {
    "errors": "errors",
    "kernels": "kernels",
    "shapes": "planning.shapes",
    "steps": "steps",
    "workload": "domain.workload",
}

__all__ = [
    "CATALOGUE",
    "Addresses",
    "Advice",
    "Bounds",
    "Categories",
    "Codes",
    "Domain",
    "Estimate",
    "Estimates",
    "GroupedPlan",
    "Groups",
    "Hashed",
    "Instants",
    "Integers",
    "Ledger",
    "MemoryLedger",
    "Pipeline",
    "Plan",
    "Preview",
    "Publication",
    "Regular",
    "Release",
    "SparseRelease",
    "Split",
    "Variable",
    "advise",
    "bounds",
    "errors",
    "from_counts",
    "histogram",
    "histogram2d",
    "kernels",
    "load",
    "report",
    "shapes",
    "simulate",
    "steps",
    "workload",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"dphist.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dphist.{_MODULES[name]}")
    raise AttributeError(f"module 'dphist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
