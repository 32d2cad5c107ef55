"""The contracts of the four slots: what each component may read and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dphist.domain import Domain
from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator, Noisy
from dphist.uncertainty import noise_law
from dphist.uncertainty.listing import Listing
from dphist.uncertainty.models import ErrorModel

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

WIDEST_SCALE = 2.0**38  # of the noise that a step plans with; the sampler draws up to 2^40

Rough: TypeAlias = Noisy | None  # noisy counts, one per bin, or nothing
Order: TypeAlias = Ints | None  # the bins in order; None is the domain's own


@dataclass(frozen=True, eq=False)
class Estimated:
    """The result of an estimator: values, one per bin, and their error model.

    Args:
        rough: the rough counts that the steps looked at; the pipeline adds them.
        noise: the variance of the noise in each group's total, where the error model does not state it.
        by: the step that made the values, where the estimator left that to another one.
        shares: what each step spent, and measuring the bias, by name; the pipeline adds them.
        measured: unbiased values that ``error`` is about, one per bin, where ``values`` were averaged from
            them: intervals come from the measurement, values from the averaging. If it is None, ``error`` is
            about ``values``.
        averaging: what made ``values`` of ``measured``, to be tried on other numbers, which tells how far off
            they are. It reads nothing but its argument.
        groups: the groups that the values are of, one for each, where the estimator found them itself.
        listing: how they were listed, if they were.
    """

    values: Floats
    error: ErrorModel
    rough: Rough = None
    noise: Floats | None = None
    by: Step | None = None
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    measured: Floats | None = None
    averaging: Callable[[Floats], Floats] | None = None
    groups: Groups | None = None
    listing: Listing | None = None


class Step:
    """The base of all components: flags that the pipeline checks, and a check before anything is charged.

    ``calibrates`` says of an estimator that the errors of its values can be measured and put into intervals;
    ``unbiased`` that on single bins its values are right on average, with noise that no data can change;
    ``measures_bins`` of an initializer that it measures every bin, which gives every bin an interval;
    ``ignores_neighbours`` that it does the same whatever bins are next to each other in the domain.
    """

    spends: ClassVar[bool] = False
    needs_rough: ClassVar[bool] = False
    calibrates: ClassVar[bool] = False
    unbiased: ClassVar[bool] = False
    measures_bins: ClassVar[bool] = False
    ignores_neighbours: ClassVar[bool] = False

    def check(self, domain: Domain, workload: Workload) -> None:
        """Raise UsageError if this component cannot serve the domain or the workload."""


def require_rough(rough: Rough) -> Noisy:
    """Return the rough counts that a step requires; the pipeline refuses to run without them."""
    if rough is None:
        raise UsageError("this step needs rough counts, and none were measured: use initialize.Noisy().")
    return rough


def checked_scale(slight: object) -> None:
    """Refuse a scale below which noise is slight that is none."""
    if not isinstance(slight, int | float) or not 0.0 <= slight < math.inf:
        raise UsageError(f"slight is a noise scale from 0 on, not {slight!r}.")


def variance(scale: float | Floats) -> float | Floats:
    """Return the exact variance of noise of some scale, kept above 0 so that weights by it stay finite."""
    return np.maximum(noise_law.variance(scale), 1e-200)


class Initializer(Protocol):
    """Measures rough counts, which later steps may read at no further cost."""

    spends: ClassVar[bool]

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what it cannot serve, before anything is charged."""

    def __call__(self, curator: Curator, *, share: Fraction) -> Rough:
        """Return rough counts, one per bin, or None."""


class Orderer(Protocol):
    """Orders the bins so that similar ones are neighbours; reads rough counts only."""

    needs_rough: ClassVar[bool]

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what it cannot serve, before anything is charged."""

    def __call__(self, domain: Domain, rough: Rough) -> Order:
        """Return the bins in order, or None for the domain's own order."""


class Partitioner(Protocol):
    """Decides which bins share a value."""

    spends: ClassVar[bool]
    needs_rough: ClassVar[bool]

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what it cannot serve, before anything is charged."""

    def __call__(
        self, curator: Curator, rough: Rough, order: Order, *, share: Fraction, later: Fraction
    ) -> Groups:
        """Return a partition of all bins; ``later`` is the share that estimating will have."""


class Estimator(Protocol):
    """Makes the remaining measurements and computes a value for every bin."""

    spends: ClassVar[bool]
    needs_rough: ClassVar[bool]
    calibrates: ClassVar[bool]
    unbiased: ClassVar[bool]

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what it cannot serve, before anything is charged."""

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Return values for every bin and their error model."""
