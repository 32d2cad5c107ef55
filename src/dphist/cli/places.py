"""Checks of output files: results never replace records, a ledger or each other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from dphist.errors import OutputError
from dphist.planning.places import RELEASES, check_apart, check_folder

OverwriteFlag = Annotated[bool, typer.Option("--overwrite", help="Let the chart replace an existing file.")]
PICTURES = (".png", ".svg", ".html", ".vl.json")


def check_places(data: str, account: Path, out: Path, plot: Path | None) -> None:
    """Refuse results that could not be written, or would replace the records, the ledger or each other."""
    check_writable(out, RELEASES)
    if plot is not None:
        check_writable(plot, PICTURES)
    check_apart(data, account, {"--out": out, "--plot": plot})


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file, unless that was asked for."""
    if not overwrite and (path.exists() or path.is_symlink()):
        raise OutputError(f"{path} exists; choose another name or add --overwrite.")


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
