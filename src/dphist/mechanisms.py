"""The catalogue: published name -> pipeline, a sentence each.

A mechanism is built for a domain, because a few choose a public parameter from its size; none looks at
data. ``dphist methods`` prints this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dphist.domain import Domain
from dphist.errors import UsageError, did_you_mean
from dphist.pipeline import Pipeline
from dphist.steps import estimate, partition


@dataclass(frozen=True)
class Method:
    """One line of the catalogue."""

    name: str
    build: Callable[[Domain], Pipeline]
    summary: str
    citation: str


def identity(domain: Domain) -> Pipeline:
    """Noise on every bin."""
    return Pipeline(partition=partition.Singletons(), estimate=estimate.GroupMeans())


def uniform(domain: Domain) -> Pipeline:
    """A noisy total, spread evenly."""
    return Pipeline(partition=partition.Whole(), estimate=estimate.GroupMeans())


METHODS = (
    Method(
        "identity",
        identity,
        "Noise on every bin: unbiased, exact error bars, no assumption about the data.",
        "Dwork, McSherry, Nissim, Smith, TCC 2006; Ghosh, Roughgarden, Sundararajan, STOC 2009",
    ),
    Method(
        "uniform",
        uniform,
        "One noisy total spread evenly over all bins: the other extreme, for tiny budgets.",
        "Hay, Machanavajjhala, Miklau, Chen, Zhang, SIGMOD 2016 (baseline)",
    ),
)
CATALOGUE = {method.name: method for method in METHODS}


def make_pipeline(method: str | Pipeline, domain: Domain) -> Pipeline:
    """Return the pipeline of a catalogue name; a pipeline is returned as it is."""
    if isinstance(method, Pipeline):
        return method
    if not isinstance(method, str):
        raise UsageError(f"method must be a catalogue name or a Pipeline, not {method!r}.")
    if method not in CATALOGUE:
        raise UsageError(f"there is no method {method!r}. {did_you_mean(method, CATALOGUE)}")
    return replace(CATALOGUE[method].build(domain), name=method)
