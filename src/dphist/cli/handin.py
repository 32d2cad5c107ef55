"""The commands export and report: what is handed in, made of saved releases alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dphist.cli.common import say, show
from dphist.cli.places import check_free, check_writable
from dphist.errors import OutputError
from dphist.planning.places import same_file

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
    from dphist.release.export import export as write
    from dphist.release.export import metadata_of
    from dphist.release.files import load
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
        raise OutputError(f"{place} is a release or the ledger itself; choose another name.")
    check_free(place, overwrite=overwrite)


def report(
    releases: Annotated[list[Path], typer.Argument(metavar="RELEASE...", help="Saved releases.")],
    out: Annotated[Path, typer.Option(metavar="PAGE", help="The page to write, .html.")],
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that paid: the page then says what is left in it.")
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(help="A second file, .yaml: a draft for the registry of deployments of such releases."),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    overwrite: Overwrite = False,
) -> None:
    """Write one page about releases, to be read, printed and handed in; spends nothing.

    It holds pictures, tables with intervals, what was done, what an attacker could learn at most, how to
    cite, and a checklist of what the software cannot know. It is one file that loads nothing from elsewhere.
    """
    from dphist.reports.page import ENDINGS, RECORDS
    from dphist.reports.page import report as write

    places = [(out, ENDINGS), *([] if registry is None else [(registry, RECORDS)])]
    for place, endings in places:
        check_writable(place, endings)
        _check_place(place, [*releases, *([] if ledger is None else [ledger])], overwrite=overwrite)
    write(releases, out, title=title, ledger=ledger, registry=registry, level=level, overwrite=overwrite)
    show(str(out))
    if registry is not None:
        say(f"draft for the registry: {registry}")
