"""What may be given as ``prior=``: an earlier release of the same bins, or counts that are public."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dphist._common.warned import warn
from dphist.domain import Axis, Domain, Regular, Variable
from dphist.errors import DataError, UsageError
from dphist.planning.preview import RELEASES, read_counts
from dphist.release import Release, load_one
from dphist.steps.prior import Prior

PriorLike: TypeAlias = Release | str | os.PathLike[str] | ArrayLike


@dataclass(frozen=True)
class Believed:
    """A prior, and what the provenance of a release says of it."""

    prior: Prior
    origin: dict[str, Any] = field(hash=False)


def believed(given: PriorLike | None, domain: Domain, *, public: bool) -> Believed:
    """Return the prior of a plan; whatever is wrong with it is said before anything is charged.

    Args:
        given: a release or its file (.json, .parquet), or public counts or their file (.npy, .csv, .txt).
        public: whether counts that are given were declared public; releases are public by themselves,
            but for simulated ones, which are only warned of.
    """
    if isinstance(given, Release):
        return _earlier(given, domain, {})
    if not isinstance(given, str | os.PathLike):
        try:
            counts = np.asarray(given)
        except (ValueError, TypeError):
            raise DataError("the prior must be counts, one number for each bin.") from None
        return _counts(counts, domain, {"counts": "in memory"}, "the prior", public=public)
    path = Path(given)
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}: prior= takes a release, public counts, or a file.")
    if path.suffix.lower() in RELEASES:
        return _earlier(load_one(path), domain, {"file": path.name, "sha256": _digest(path)})
    # The digest of counts that are private by mistake would tell whoever guesses them that they guessed well.
    origin = {"file": path.name, **({"sha256": _digest(path)} if public else {})}
    return _counts(read_counts(path, len(domain.axes)), domain, origin, path.name, public=public)


def _earlier(release: Release, domain: Domain, origin: dict[str, Any]) -> Believed:
    name = "the earlier release" if release.id is None else f"the release {release.id}"
    if not _are_the_same(release.domain, domain):
        raise UsageError(
            f"{name} that prior= names is of other bins than this histogram: give one of the same bins, or "
            "leave prior= out."
        )
    if release.simulated:
        warn(
            f"{name} that prior= names is simulated: it protects nothing, and it may look like no real data."
        )
    counts = np.maximum(np.asarray(release.raw, dtype=np.float64).ravel(), 0.0)
    said = {"release": release.id, "method": release.method, "simulated": release.simulated, **origin}
    return Believed(Prior(counts, name), said)


def _are_the_same(one: Domain, other: Domain) -> bool:
    """Return whether the bins of two domains are the same: of equal edges, however these were given."""

    def alike(a: Axis, b: Axis) -> bool:
        given = isinstance(a, Regular | Variable) and isinstance(b, Regular | Variable)
        return a == b or (given and np.array_equal(a.edges, b.edges))

    return len(one.axes) == len(other.axes) and all(map(alike, one.axes, other.axes))


def _counts(counts: Any, domain: Domain, origin: dict[str, Any], name: str, *, public: bool) -> Believed:
    if counts.dtype.kind not in "iuf":
        raise DataError(f"{name} must be counts, one number for each bin, not {counts.dtype}.")
    if counts.shape != domain.shape:
        raise UsageError(
            f"{name} must be of the same bins, with a number for each: its shape is {counts.shape}, and that "
            f"of the bins {domain.shape}."
        )
    known = counts.astype(np.float64).ravel()
    if not np.isfinite(known).all() or (known < 0).any():
        raise DataError(f"{name} must be counts of 0 or more.")
    if not public:
        warn(
            f"{name} must be public: a release with it follows its shape, and no noise protects it. If it "
            "holds private counts, the release discloses them: do not hand it out, and make another without "
            "this prior. If it is public, say so with public_prior=True (--public-prior)."
        )
    return Believed(Prior(known, "public counts" if public else "counts"), {**origin, "public": public})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
