"""Errors of methods on made-up data: simulated when first needed, and cached on disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from dphist.domain import Domain
from dphist.domain.groups import Floats
from dphist.domain.workload import Ranges, Rectangles, Workload
from dphist.methods.catalogue import MANY_BINS, find
from dphist.methods.pipeline import Pipeline
from dphist.planning.kept import kept_file, read_kept, write_kept
from dphist.planning.preview import Pattern
from dphist.planning.simulate import Trial, trials
from dphist.privacy.counts import Counts
from dphist.privacy.ledger import as_decimal
from dphist.steps.anchor import anchored

_KNOWN = 0.02  # an error is known well if its standard error is this part of it
_MOST_RUNS, _MOST_LISTED = 96, 48  # fewer for listed queries, to which trees are tuned slowly


class SimulatedErrors:
    """The simulated errors of methods on some patterns of data; missing ones are simulated when asked for."""

    def __init__(
        self,
        domain: Domain,
        queries: Workload,
        records: int,
        sensitivity: int,
        pipelines: dict[str, Pipeline],
        looks: tuple[Pattern, ...],
        named: bool,
        progress: Callable[[str], None] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it.

        Args:
            progress: called with a few words before each simulation.
            between: called before each trial; what it raises ends the work.
        """
        self._say, self._between = progress or (lambda text: None), between
        self.pipelines, self._named = pipelines, named
        self._domain, self._queries, self._records = domain, queries, records
        self._sensitivity, self.looks = sensitivity, looks
        self._data: dict[int, Counts] = {}
        self._known: dict[str, dict[str, list[float]]] = {}
        self._chosen = {name: p.choice for name, p in pipelines.items() if named and _is_choice(p, pipelines)}
        self._new = False
        # Few bins give few errors to average over, and many bins take long.
        times = 4 if domain.n <= 256 else 2 if domain.n <= MANY_BINS else 1
        self.few = len(looks) if len(looks) > 1 else 4 if domain.n <= MANY_BINS else 2
        self.many = self.few * times
        most = _MOST_LISTED if isinstance(queries, Ranges) else _MOST_RUNS
        self.most = self.many if isinstance(queries, Rectangles) or domain.n > MANY_BINS else most

    def about(self, looks: tuple[Pattern, ...]) -> SimulatedErrors:
        """Return the same methods and queries on other patterns of data."""
        asked = self._domain, self._queries, self._records, self._sensitivity, self.pipelines
        return SimulatedErrors(*asked, looks, self._named, self._say, self._between)

    @property
    def finest(self) -> float:
        """The smallest error that a few runs can measure: about twenty bins must be off by a record."""
        return 20 / (self.few * self._domain.n)

    def errors(self, method: str, epsilon: Fraction, runs: int) -> Floats:
        """Return the mean absolute error per query of the first runs; each run has other data and noise."""
        method = self._chosen.get(method, method)  # what was simulated under one name is not under another
        known = self._known.setdefault(method, {}).setdefault(str(epsilon), [])
        if len(known) < runs:
            self._say(f"{method} at epsilon {as_decimal(epsilon)}")
        for run in range(len(known), runs):
            self._between()
            counts = self._counts(run)
            trial = self._trial(method, epsilon, run)
            known.append(self._queries.mean_absolute_error(trial.values - counts.values))
            self._new = True
        return np.array(known[:runs])

    def has_intervals(self, method: str, epsilon: Fraction) -> bool:
        """Return whether a release of this method has confidence intervals."""
        if self._named:
            return find(method).intervals != "none"
        if self.pipelines[method].calibrate:
            return True
        found = self._trial(method, epsilon, 0)
        return anchored(found.curator.domain, found.estimated, quick=True).variances() is not None

    def mean(self, method: str, epsilon: Fraction, runs: int) -> float:
        """Return the error averaged over the first runs."""
        return float(self.errors(method, epsilon, runs).mean())

    def by_shape(self, method: str, epsilon: Fraction, runs: int) -> dict[str, float]:
        """Return the error for each pattern of data, averaged over the first runs."""
        errors, looks = self.errors(method, epsilon, runs), len(self.looks)
        return {look.name: float(errors[k::looks].mean()) for k, look in enumerate(self.looks)}

    def doubt(self, method: str, epsilon: Fraction, runs: int | None = None) -> float:
        """Return the standard error of the mean, without the variance between shapes."""
        errors, looks = self.errors(method, epsilon, runs or self.many), len(self.looks)
        within = np.concatenate([errors[k::looks] - errors[k::looks].mean() for k in range(looks)])
        return float(within.std() / math.sqrt(errors.size))

    def settle(self, method: str, epsilon: Fraction) -> int:
        """Return the number of runs for a small standard error: sums vary far more than single bins."""
        runs = self.many
        while runs < self.most and self.doubt(method, epsilon, runs) > _KNOWN * self.mean(
            method, epsilon, runs
        ):
            runs = min(2 * runs, self.most)
        return runs

    def without_data(self) -> float:
        """Return the error of spreading the records evenly, which needs no data."""
        each = self._records / self._domain.n
        runs = (self._counts(run).values for run in range(self.few))
        return float(np.mean([self._queries.mean_absolute_error(each - x) for x in runs]))

    def _trial(self, method: str, epsilon: Fraction, run: int) -> Trial:
        counts, queries = self._counts(run), self._queries
        return next(trials(self.pipelines[method], counts, queries, epsilon=epsilon, seeds=[run]))

    def _counts(self, run: int) -> Counts:
        if run not in self._data:
            sample, k = divmod(run, len(self.looks))
            made_up = self.looks[k].draw(self._domain, self._records, sample)
            self._data[run] = Counts(made_up, self._domain, self._sensitivity)
        return self._data[run]

    # ---- kept on disk -------------------------------------------------------------------------------

    def _file(self) -> Path | None:
        """Return the file of the cache, or None.

        Errors on counts given by the caller are never stored, nor are those of a pipeline that may change.
        """
        if not all(look.lasting for look in self.looks):
            return None
        if not self._named:
            return None
        return kept_file(
            {
                "shape": self._domain.shape,
                "scale": self._records,
                "sensitivity": self._sensitivity,
                "workload": self._queries.to_dict(),
                "looks": [look.key for look in self.looks],
            }
        )

    def load_cache(self) -> None:
        """Read the cache; a file that is foreign or damaged is ignored."""
        file = self._file()
        if file is None:
            return
        with suppress(OSError, ValueError, TypeError, AttributeError):
            self._known = {
                str(method): {str(Fraction(e)): [_error(x) for x in errors] for e, errors in by.items()}
                for method, by in read_kept(file).items()
            }

    def save_cache(self) -> None:
        """Write the cache atomically; failure to write is ignored."""
        file = self._file()
        if file is not None and self._new:
            write_kept(file, self._known)


def _is_choice(pipeline: Pipeline, pipelines: dict[str, Pipeline]) -> bool:
    """Return whether a pipeline is the one of the method that ``auto`` chose, under another name."""
    chosen = pipelines.get(pipeline.choice)
    return chosen is not None and replace(pipeline, name=chosen.name, choice=chosen.choice) == chosen


def _error(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
        raise ValueError("no error")
    return float(number)
