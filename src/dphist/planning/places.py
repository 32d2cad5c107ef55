"""Places for releases: they never replace records, a ledger or each other, nor become records themselves."""

from __future__ import annotations

import fnmatch
import glob
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from dphist.errors import OutputError

RELEASES = (".json", ".csv", ".parquet")


def check_apart(data: str, account: Path, places: Mapping[str, Path | None]) -> None:
    """Refuse results that would replace the records, the ledger or each other, or be read as records."""
    ledger = [account.with_name(account.name + more) for more in ("", "-wal", "-shm", "-journal")]
    taken: dict[str, Iterable[Path]] = {"the ledger": ledger}
    for flag, place in places.items():
        if place is None:
            continue
        there = place.exists() or place.is_symlink()
        if there and any(same_file(place, file) for file in data_files(data)):
            raise OutputError(f"{flag} {place} would replace the records; choose another name.")
        for name, files in taken.items():
            if any(same_file(place, file) for file in files):
                raise OutputError(f"{flag} {place} is also {name}; choose another name.")
        if place.suffix.lower() in RELEASES and _would_be_read(data, place):
            raise OutputError(
                f"{place} lies where {data} would read it as records the next time; choose another folder"
                f"{' with --out' if flag == '--out' else ''}."
            )
        taken[flag] = [place]


def data_files(data: str) -> Iterable[Path]:
    """Return the files that a path of records, a folder or a glob of them stands for; they may be links."""
    path = Path(data)
    if path.is_dir():
        return path.rglob("*")
    if not path.exists() and glob.has_magic(data):
        return map(Path, glob.iglob(data, recursive=True))  # noqa: PTH207 - as the records are found
    return [path]


def _would_be_read(data: str, place: Path) -> bool:
    """Return whether a new file would become part of the records in a folder or a glob."""
    path = Path(data)
    if path.is_dir():
        return place.resolve().is_relative_to(path.resolve())
    if path.exists() or not glob.has_magic(data):
        return False
    where, pattern = place.absolute(), path.absolute()
    return fnmatch.fnmatch(str(where), str(pattern)) if "**" in data else where.match(str(pattern))


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one file."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # one is not there, or a ring of links
        return False


def check_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written."""
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist; make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:  # which has no name to leave behind
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise OutputError(f"cannot write in {folder}: {error.strerror}. Choose another place.") from None
