"""Release files of very many bins: the document of a release whose bins are groups, and where these start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import OutputError, ReleaseFileError
from dphist.release import files
from dphist.release.sparse import SparseRelease
from dphist.uncertainty.listing import Listing

_EXACT = 1 << 53  # up to here every program reads a whole number of JSON as it is


def document(release: SparseRelease) -> dict[str, Any]:
    """Return the whole document. Numbers of bins are text where some programs could not read them exactly."""
    starts = release.groups.starts.tolist()
    spelled = [str(start) for start in starts] if release.domain.n > _EXACT else starts
    return files.document(release.pieces) | {
        "version": files.SPARSE,
        "domain": release.domain.to_dict(),
        "groups": {"kind": "runs", "starts": spelled, "order": "morton" if release.along_curve else None},
        "listing": None if release.listing is None else release.listing.to_dict(),
    }


def read_document(described: object, name: str) -> SparseRelease:
    """Return the release that a document describes, or raise ReleaseFileError with the reason."""
    if files.version_of(described, name) != files.SPARSE:
        raise ReleaseFileError(f"{name} is not about very many bins; dphist.load opens it.")
    with files.reading(name):
        return _build(files.mapping(described))


def _build(described: Mapping[str, Any]) -> SparseRelease:
    domain = Domain.from_dict(described["domain"])
    starts = np.array([int(start) for start in described["groups"]["starts"]], dtype=np.int64)
    groups = Groups(starts)
    alone = {
        "version": files.VERSION,
        "domain": Domain((Integers(0, groups.k - 1),)).to_dict(),
        "groups": {"kind": "singletons", "n": groups.k},
    }
    pieces = files.read_document({**described, **alone}, "the part about its groups")
    listing, order = described["listing"], described["groups"]["order"]
    if order not in (None, "morton"):
        raise ValueError("the order of its bins is not known.")
    made = None if listing is None else Listing.from_dict(listing)
    return SparseRelease(
        domain=domain, groups=groups, pieces=pieces, listing=made, along_curve=order == "morton"
    )


def writer(release: SparseRelease, target: Path) -> Callable[[Path], object]:
    """Return the function that writes a release in the format its path's ending names."""
    ending = target.suffix.lower()
    if ending == ".json":
        text = files.sealed(document(release))
        return lambda file: file.write_text(text, encoding="utf-8")
    if ending == ".csv":
        return lambda file: files.write_table(release.pieces, release.columns(), file)
    raise no_format(target)


def no_format(target: Path) -> OutputError:
    """Return the error of a name whose ending names no format that such a release has."""
    return OutputError(f"{target.name!r}: a release of very many bins is saved as .json, or as a .csv table.")
