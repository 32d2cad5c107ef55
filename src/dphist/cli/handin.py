"""The commands export and report: what is handed in, made of saved releases alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dphist.cli.common import say, show
from dphist.cli.places import check_free, check_writable, same_file
from dphist.errors import OutputError

TABLES = (".csv", ".xlsx", ".parquet")
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files of these names.")]


def export(
    release: Annotated[Path, typer.Argument(help="A saved release.")],
    table: Annotated[Path, typer.Argument(help="The table to write: .csv, .xlsx or .parquet.")],
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    title: Annotated[str | None, typer.Option(help="Title of the table, for its metadata.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a release as a table for spreadsheets and other programs, with metadata beside it.

    The column estimate_for_sums is as measured; presentable_not_for_sums, if there is one, is for reading. An
    .xlsx file has the methods on a second sheet. dphist query answers from the table as from the release, as
    long as its metadata (TABLE-metadata.json, CSVW) stay beside it.
    """
    from dphist.release import load
    from dphist.release.export import export as write
    from dphist.release.export import metadata_of
    from dphist.reports.published import published

    loaded = load(release)
    check_writable(table, TABLES)
    for place in (table, metadata_of(table)):
        _check_place(place, [release], overwrite=overwrite)
    write(loaded, table, level=level, title=title, published=published(loaded), overwrite=overwrite)
    show(str(table))
    say(f"metadata: {metadata_of(table)}")


def _check_place(place: Path, releases: list[Path], *, overwrite: bool) -> None:
    if any(same_file(place, release) for release in releases):
        raise OutputError(f"{place} is a release itself; choose another name.")
    check_free(place, overwrite=overwrite)
