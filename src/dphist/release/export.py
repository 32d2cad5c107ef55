"""Tables for spreadsheets and other programs, with what machines read of them in a file beside (CSVW).

Beside ``ages.csv`` lies ``ages.csv-metadata.json``: what each column means, how the release was made, and the
release itself, so that ``dphist.load("ages.csv")`` and ``dphist query ages.csv`` lead back to it. Checksums
in it tell a table or a release that was altered afterwards.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dphist._common.text import harmless
from dphist.errors import OutputError, ReleaseFileError
from dphist.release import files, show, words
from dphist.release.grouped import GroupedRelease
from dphist.release.release import STAMP, Release
from dphist.release.sparse import SparseRelease
from dphist.uncertainty import noise_law

ENDINGS = (".csv", ".xlsx", ".parquet")
CONTEXT = "http://www.w3.org/ns/csvw"
NOTE = "dphist-release"
ESTIMATE, PRESENTABLE = "estimate_for_sums", "presentable_not_for_sums"
_LATER = "-metadata.json", "-release.parquet"


def export(
    release: words.AnyRelease,
    path: str | os.PathLike[str],
    *,
    level: float = 0.95,
    title: str | None = None,
    published: words.Published | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a table as its ending says, .csv, .xlsx or .parquet, and its metadata beside it."""
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in ENDINGS:
        raise OutputError(
            f"{target.name!r} names no kind of table: end it in {', '.join(ENDINGS)}. The release itself is "
            "saved with release.save as .json."
        )
    noise_law.check_level(level)
    check_closed(target)
    table = columns_of(release, level=level)
    sheet = _Words(release, title or words.usual_title(release), words.methods(release, published), level)
    kinds: dict[str, Callable[[Path], object]] = {
        ".csv": lambda file: _write_csv(table, file),
        ".xlsx": lambda file: _write_xlsx(table, sheet, file),
        ".parquet": lambda file: _write_parquet(table, sheet, file),
    }
    if ending == ".xlsx":
        _check_rows(table)

    def write(file: Path) -> None:
        # The metadata are in their place before the table is: a table never stands there alone.
        kinds[ending](file)
        _put_beside(release, table, sheet, target, file, overwrite=overwrite)

    with _nothing_left(target):
        put(target, write, overwrite=overwrite)
    return target


def metadata_of(table: Path) -> Path:
    """Return the name of a table's metadata, as the standard (CSVW) gives it."""
    return table.with_name(table.name + _LATER[0])


def check_closed(target: Path) -> None:
    """Refuse to replace a file that an office program holds open: its owner would save over it."""
    for mark in (f".~lock.{target.name}#", f"~${target.name}"):
        if target.with_name(mark).exists():
            raise OutputError(
                f"{str(target)!r} is open in another program ({mark} says so): close it there, or choose "
                "another name."
            )


# ---- the table --------------------------------------------------------------------------------------


class _Words:
    """What is written about a table."""

    def __init__(self, release: words.AnyRelease, title: str, methods: list[str], level: float) -> None:
        self.release, self.title, self.methods, self.level = release, title, methods, level


def columns_of(release: words.AnyRelease, *, level: float) -> show.Columns:
    """Return the columns of the table under names that say what they are for."""
    if isinstance(release, GroupedRelease):
        from dphist.release.grouped_show import columns

        found = columns(release, level=level)
    elif isinstance(release, SparseRelease):
        found = release.columns(level=level)
    else:
        found = show.columns(release, level=level)
    value, raw, low, high = (found.pop(name) for name in ("value", "raw", "low", "high"))
    table = {_place(name): column for name, column in found.items()}
    measured = None if isinstance(release, GroupedRelease) else release.error.summable_values
    table[ESTIMATE] = raw if measured is None else measured
    if release.post != "none" or measured is not None:
        table[PRESENTABLE] = value
    return table | {f"low_{100 * level:g}": low, f"high_{100 * level:g}": high}


def _place(name: str) -> str:
    """Return the name of a column that says where a bin is."""
    start, _, last = name.rpartition("_")
    made = {"lo": "from", "hi": "to"}.get(last, last)
    return f"{start}_{made}" if start else made


def describe(name: str, level: float) -> str:
    """Return what a column of the table holds."""
    percent = f"{100 * level:g} %"
    known = {
        ESTIMATE: "The estimate as measured: use this one for sums, means and further work. It may be "
        "negative or fractional.",
        PRESENTABLE: "The value for reading: averaged, made nonnegative or whole after the measurement, and "
        "biased by that. Do not add these up.",
        f"low_{100 * level:g}": f"Lower end of the {percent} interval of this bin alone; empty if unknown.",
        f"high_{100 * level:g}": f"Upper end of the {percent} interval of this bin alone; empty if unknown.",
        "from": "Where the bin begins; this point belongs to it.",
        "to": "Where the bin ends; this point belongs to the next bin, except for the last one.",
        "label": "The label that was counted.",
        "bin": "The bin that is listed.",
        "first": "The first bin of the group.",
        "last": "The last bin of the group, which belongs to it.",
        "bins": "How many bins the group has; the estimate is of all of them together.",
        "level": "The level of the groups.",
        "group": "The label of the group.",
        "parent": "The group above it, if there is one.",
    }
    return known.get(name) or known[name.rpartition("_")[2]]


def csv_text(release: words.AnyRelease, *, level: float) -> str:
    """Return the table of a release as CSV."""
    out = io.StringIO()
    _write_rows(columns_of(release, level=level), out)
    return out.getvalue()


def _write_csv(table: show.Columns, file: Path) -> None:
    with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        _write_rows(table, out)


def _write_rows(table: show.Columns, out: TextIO) -> None:
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(table)
    rows.writerows(zip(*(files.cells(column) for column in table.values()), strict=True))


def _check_rows(table: show.Columns) -> None:
    from dphist.release import xlsx

    rows = next(iter(table.values())).size
    if rows >= xlsx.MOST_ROWS:
        raise OutputError(
            f"{rows:,} rows are too many for a sheet of .xlsx, which holds {xlsx.MOST_ROWS:,}: export .csv "
            "or .parquet."
        )


def _write_xlsx(table: show.Columns, said: _Words, file: Path) -> None:
    from dphist.release import xlsx

    columns = [_plain(column) for column in table.values()]
    wide = [max(12, min(len(name) + 2, 28)) for name in table]
    about = [(name, describe(name, said.level)) for name in table]
    stamp = [("SIMULATED", STAMP)] if said.release.simulated else []
    told = [("title", said.title), *stamp, *(("methods", text) for text in said.methods)]
    told += [(name, text) for name, text in words.limits(said.release)]
    told += [("how to cite", words.citation(said.release, said.title))]
    xlsx.write(
        file,
        [
            xlsx.Sheet("Table", list(table), zip(*columns, strict=True), wide),
            xlsx.Sheet("Methods", ("what", "text"), [*told, *about], (30, 110), wrapped=True),
        ],
    )


def _plain(column: NDArray[Any]) -> list[Any]:
    return (
        files.numbers(column) if column.dtype.kind == "f" and np.isfinite(column).all() else column.tolist()
    )


def _write_parquet(table: show.Columns, said: _Words, file: Path) -> None:
    import duckdb

    made = {
        name: np.array([str(v).encode("utf-8", "backslashreplace").decode() for v in column], dtype=object)
        if column.dtype == object
        else column
        for name, column in table.items()
    }
    texts = {"title": said.title, "methods": "\n".join(said.methods)} | show.stamps(said.release)
    pairs = ", ".join(f"{name}: ?" for name in texts)
    try:
        with duckdb.connect() as db:
            db.register("bins", made)
            db.execute(
                f"COPY (FROM bins) TO ? (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{pairs}}})",
                [str(file), *(harmless(text) for text in texts.values())],
            )
    except duckdb.Error as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error


# ---- what lies beside it ----------------------------------------------------------------------------


def _put_beside(
    release: words.AnyRelease,
    table: show.Columns,
    said: _Words,
    target: Path,
    written: Path,
    *,
    overwrite: bool,
) -> None:
    """Write the metadata of a table that is written and not yet in its place."""
    kept = document(release)
    if kept is None:
        apart = target.with_name(target.name + _LATER[1])
        release.save(apart, overwrite=overwrite)
        held: dict[str, Any] = {"file": apart.name, "sha256": _sum_of_file(apart)}
    else:
        held = {"document": kept, "sha256": files.seal_of(kept)}
    note = {"type": NOTE, "table_sha256": _sum_of_file(written), **held}
    text = json.dumps(
        _metadata(table, said, target.name) | {"notes": [note]}, ensure_ascii=True, default=dict
    )
    put(metadata_of(target), lambda file: file.write_text(text, encoding="utf-8"), overwrite=overwrite)


def document(release: words.AnyRelease) -> dict[str, Any] | None:
    """Return the release as a document; None if it is too large for one."""
    if isinstance(release, Release | SparseRelease):
        return release.to_dict()
    from dphist.release import grouped_files

    if sum(release.hierarchy.sizes) * release.bins.n > grouped_files.MOST_IN_JSON:
        return None
    made: dict[str, Any] = json.loads(files.written(grouped_files.document(release)))
    return made


def _metadata(table: show.Columns, said: _Words, name: str) -> dict[str, Any]:
    """Return the description of a table in the vocabulary of CSVW."""
    release = said.release
    return {
        "@context": [CONTEXT, {"language": "en"}],
        "url": name,
        "dc:title": said.title,
        "dc:description": "\n".join(said.methods),
        "dc:issued": release.created[:10],
        "dc:bibliographicCitation": words.citation(release, said.title),
        "dialect": {"encoding": "utf-8", "header": True, "delimiter": ",", "lineTerminators": ["\n"]},
        "tableSchema": {
            "columns": [
                {
                    "name": column,
                    "titles": column,
                    "datatype": _datatype(values),
                    "dc:description": describe(column, said.level),
                }
                for column, values in table.items()
            ]
        },
    }


def _datatype(column: NDArray[Any]) -> str:
    return {"f": "number", "i": "integer"}.get(column.dtype.kind, "string")


def _sum_of_file(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# ---- back to the release ----------------------------------------------------------------------------


def load_beside(table: Path) -> words.AnyRelease | None:
    """Return the release of an exported table; None if nothing beside it says that it is one."""
    beside = metadata_of(table)
    if table.suffix.lower() not in ENDINGS or not beside.is_file():
        return None
    try:
        described = files.parse(beside.read_bytes(), beside.name)
        known = _sum_of_file(table)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReleaseFileError(f"{str(table)!r} cannot be read: {error.strerror}.") from None
    note = note_of(described)
    if note is None:
        return None
    if note.get("table_sha256") != known:
        raise ReleaseFileError(
            f"{table.name!r} is not as it was exported: its checksum differs. Export it again, or ask the "
            "release file itself."
        )
    return read_note(note, beside)


def note_of(described: object) -> Mapping[str, Any] | None:
    """Return what a table's metadata hold of a release; None if they are not ours."""
    notes = described.get("notes") if isinstance(described, Mapping) else None
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, Mapping) and note.get("type") == NOTE:
            return note
    return None


def read_note(note: Mapping[str, Any], metadata: Path) -> words.AnyRelease:
    """Return the release that a table's metadata hold, if it is the one that was exported."""
    document, name = note.get("document"), repr(metadata.name)
    if isinstance(document, Mapping):
        if files.seal_of(document) != note.get("sha256"):
            raise _altered(name)
        return files.from_document(document, name)
    file = note.get("file")
    apart = metadata.parent / str(file)
    if not isinstance(file, str) or Path(file).name != file or not apart.is_file():
        raise ReleaseFileError(f"{name} names a release file that is not beside it; export the table again.")
    if _sum_of_file(apart) != note.get("sha256"):
        raise _altered(repr(apart.name))
    return files.load(apart)


def _altered(name: str) -> ReleaseFileError:
    return ReleaseFileError(
        f"the release in {name} was altered after the export: its checksum differs. Export the table again."
    )


# ---- writing ----------------------------------------------------------------------------------------


def put(target: Path, write: Callable[[Path], object], *, overwrite: bool) -> None:
    """Let a function write a file, which replaces another one only if asked to."""
    try:
        files.put(target, write, replace=overwrite)
    except FileExistsError:
        raise OutputError(
            f"{str(target)!r} exists and holds something else, so it is not replaced: choose another name, "
            "or say overwrite=True (--overwrite)."
        ) from None


@contextmanager
def _nothing_left(target: Path) -> Iterator[None]:
    """Remove the metadata of a table that could not be put in its place, if they are new."""
    beside = [target.with_name(target.name + more) for more in _LATER]
    new = [file for file in beside if not file.exists()]
    try:
        yield
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        raise
