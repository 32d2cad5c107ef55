"""What is known of records before any is read: the names and declared types of their columns.

They come from the first line of delimited text, from a Parquet file's schema and from a database's catalogue.
JSON has no header: its names are in its records, and are not looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dphist.records import Tally, as_frame, declared, engine_of, in_our_words
from dphist.records.engines import files
from dphist.records.engines.files import Text


@in_our_words
def columns(
    data: Any,
    *,
    table: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
) -> dict[str, str | None]:
    """Return the columns of records with their declared types, None where none is declared; reads no record.

    Args:
        data: as in `count`.
        table: as in `count`; so are the others.
    """
    text = Text(well_formed, encoding, decimal)
    frame, _ = as_frame(data, ())
    if frame is None:
        return {}
    if isinstance(frame, Path):
        found = files.find(frame, text)
        if found.format in ("csv", "tsv"):
            return dict.fromkeys(files.header(found, text).names)
        if found.format in ("json", "jsonl"):
            return {}
    with engine_of(frame).connect(frame, table=table, zone="UTC", progress=False) as engine:
        fields = engine.columns()
    return {name: None if field.untyped else field.type for name, field in fields.items()}


@in_our_words
def check_fit(
    data: Any,
    tallies: Sequence[Tally],
    *,
    table: str | None = None,
    well_formed: bool = False,
    encoding: str = "utf-8",
    decimal: str = ".",
) -> None:
    """Raise what `count_together` would raise about names and types; reads no record."""
    from dphist.records import query

    frame, only = as_frame(data, ())
    written_as = declared(frame, Text(well_formed, encoding, decimal))
    if frame is None:
        return
    for zone in dict.fromkeys(each.zone for each in tallies):
        options = {"table": table, "zone": zone, "progress": False, **written_as}
        with engine_of(frame).connect(frame, **options) as engine:
            for each in (one for one in tallies if one.zone == zone):
                names = each.columns or only
                query.ask(engine, each.domain, columns=names, where=each.where, unit=each.unit)
