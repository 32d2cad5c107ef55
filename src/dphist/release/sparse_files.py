"""Release files of very many bins: the document of a release whose bins are groups, and where these start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dphist.domain import MAX_BINS, Domain, Integers
from dphist.domain.groups import Groups
from dphist.errors import DataError, ReleaseFileError
from dphist.release import files, keys
from dphist.release.show import Columns
from dphist.release.sparse import SparseRelease
from dphist.uncertainty.listing import Listing

_EXACT = 1 << 53  # up to here every program reads a whole number of JSON as it is


def document(release: SparseRelease) -> dict[str, Any]:
    """Return the whole document. Numbers of bins are text where some programs could not read them exactly."""
    starts = release.groups.starts.tolist()
    spelled = [str(start) for start in starts] if release.domain.n > _EXACT else starts
    whole = files.document(release.pieces) | _about(release)
    return whole | {"groups": whole["groups"] | {"starts": spelled}}


def _about(release: SparseRelease) -> dict[str, Any]:
    """Return what a document says of all bins, but where the groups start."""
    return {
        "version": files.SPARSE,
        "domain": release.domain.to_dict(),
        "groups": {"kind": "runs", "order": "morton" if release.along_curve else None},
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
        raise DataError("the order of its bins is not known.")
    made = None if listing is None else Listing.from_dict(listing)
    return SparseRelease(
        domain=domain, groups=groups, pieces=pieces, listing=made, along_curve=order == "morton"
    )


def _parquet_columns(release: SparseRelease) -> Columns:
    """Return one row for each group: its first bin and the one after its last, their names, its number."""
    starts, (low, high) = release.groups.starts, release.group_intervals()
    made: Columns = {"start": starts[:-1], "end": starts[1:]}
    if not release.along_curve:
        named = {"first": starts[:-1], "last": starts[1:] - 1}
        for name, bins in named.items():
            made[name] = np.array(keys.bin_names(release.domain, bins.tolist()), dtype=object)
    if release.listing is not None:
        made["listed"] = release.is_listed
    numbers = {"value": release.pieces.presentable, "raw": release.pieces.raw, "low": low, "high": high}
    return made | numbers


def read_parquet(file: Path, described: dict[str, Any], rows: int, types: list[Any]) -> SparseRelease:
    """Return the release that a Parquet file holds."""
    import duckdb

    # A small file may stand for billions of rows, and a text be as long as it likes.
    if not 0 < rows <= MAX_BINS or ("BYTE_ARRAY",) in types:
        raise ReleaseFileError(f"{file.name!r} is damaged: its rows are no groups of bins. Fetch it again.")
    try:
        with duckdb.connect() as db:
            query = 'SELECT "start"::BIGINT AS first, "end"::BIGINT AS last, raw::DOUBLE AS raw'
            found = db.execute(f"{query} FROM read_parquet(?)", [str(file)]).fetchnumpy()
    except duckdb.Error as error:
        raise files.damaged(file, error) from None
    first, last = (np.ma.filled(found[name], -1) for name in ("first", "last"))
    raw = np.ma.filled(found["raw"], np.nan)
    name = repr(file.name)
    if not np.array_equal(first[1:], last[:-1]):
        raise ReleaseFileError(f"{name} is damaged: its groups do not follow each other. Fetch it again.")
    with files.reading(name):
        groups = files.mapping(described["groups"])
        starts = {"groups": {**groups, "starts": [*first.tolist(), int(last[-1])]}}
        return _build({**described, **starts, "raw": raw})


def writer(release: SparseRelease, target: Path) -> Callable[[Path], object]:
    """Return the function that writes a release in the format its path's ending names."""
    ending = target.suffix.lower()
    if ending == ".json":
        text = files.sealed(document(release))
        return lambda file: file.write_text(text, encoding="utf-8")
    if ending == ".parquet":
        head = files.header(release.pieces) | _about(release)
        return lambda file: files.write_parquet(_parquet_columns(release), head, file)
    if ending == ".csv":
        return lambda file: files.write_table(release.pieces, release.columns(), file)
    raise files.no_format(target)
