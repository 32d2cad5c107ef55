"""Checks of output files: results never replace records, a ledger or each other."""

from __future__ import annotations

import fnmatch
import glob
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from dphist.errors import OutputError

OverwriteFlag = Annotated[bool, typer.Option("--overwrite", help="Let the chart replace an existing file.")]
RELEASES, PICTURES = (".json", ".csv", ".parquet"), (".png", ".svg", ".html", ".vl.json")


def check_places(data: str, account: Path, out: Path, plot: Path | None) -> None:
    """Refuse results that could not be written, or would replace the records, the ledger or each other."""
    check_writable(out, RELEASES)
    if plot is not None:
        check_writable(plot, PICTURES)
    check_apart(data, account, {"--out": out, "--plot": plot})


def check_apart(data: str, account: Path, places: Mapping[str, Path | None]) -> None:
    """Refuse results that would replace the records, the ledger or each other, or be read as records."""
    ledger = [account.with_name(account.name + more) for more in ("", "-wal", "-shm", "-journal")]
    taken: dict[str, Iterable[Path]] = {"the ledger": ledger}
    for flag, place in places.items():
        if place is None:
            continue
        there = place.exists() or place.is_symlink()
        if there and any(same_file(place, file) for file in _data_files(data)):
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


def _data_files(data: str) -> Iterable[Path]:
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


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file, unless that was asked for."""
    if not overwrite and (path.exists() or path.is_symlink()):
        raise OutputError(f"{path} exists; choose another name or add --overwrite.")


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one file."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # one is not there, or a ring of links
        return False


def check_disk(path: Path, needed: int) -> None:
    """Refuse a file that may not fit on its disk, before anything is charged."""
    free = shutil.disk_usage(path.absolute().parent).free
    if needed > free:
        raise OutputError(
            f"{path} may take {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} are free there. Free some "
            "space, or choose another place with --out. Nothing was charged."
        )


def check_writable(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file that cannot be written, before anything is charged."""
    if not path.name.lower().endswith(endings):
        raise OutputError(f"{path}: the ending must be one of {', '.join(endings)}.")
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file.")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written."""
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist; make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:  # which has no name to leave behind
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise OutputError(f"cannot write in {folder}: {error.strerror}. Choose another place.") from None
