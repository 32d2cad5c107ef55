"""Which files a path means, and whether they are what their ending says.

The checks read the first and last bytes only. No message quotes what a file holds.
"""

from __future__ import annotations

import glob
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dphist.errors import DataError, DphistError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "json", "jsonl", "parquet", "duckdb", "sqlite"]

_TEXT: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_DATABASE = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3", ".db3")
_PARQUET = (".parquet", ".pq")
_KNOWN = ", ".join([*_TEXT, *_PARQUET, *_DATABASE]) + " (and .csv.gz and so on)"
_SQLITE_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True)
class Files:
    """Files of one format, and the text that names them in messages."""

    format: Format
    paths: tuple[Path, ...]
    name: str


def find(path: Path) -> Files:
    """Return the data files that a path, a folder or a glob stands for, all checked."""
    found = [p.absolute() for p in _list(path)]
    formats = {p: _format(p) for p in found}
    if len(set(formats.values())) > 1:
        raise UsageError(f"{path} holds files of several formats; name one, for example {path}/*.csv.")
    for p in found:
        _check(p, formats[p])
    first = _database(found[0]) if formats[found[0]] is None else formats[found[0]]
    assert first is not None
    if first in ("duckdb", "sqlite") and len(found) > 1:
        raise UsageError(f"{path} means several databases; name one.")
    return Files(first, tuple(found), str(path))


def _list(path: Path) -> list[Path]:
    text = str(path)
    try:
        if path.is_dir():
            inside = (p for p in sorted(path.rglob("*")) if not p.name.startswith((".", "_")))
            found = [p for p in inside if p.is_file() and _known(p)]
            if not found:
                raise DataError(f"the folder {text} holds no data files. These endings are read: {_KNOWN}.")
            return found
        if path.exists():
            if set(text) & set("*?"):  # the engine would read it as a pattern and open other files too
                raise UsageError(f"the name of {text} holds a * or a ?; rename the file.")
            return [path]
    except PermissionError:
        raise DataError(f"{text} may not be read by this user; ask for permission to read it.") from None
    except DphistError:
        raise
    except (OSError, ValueError):  # too long a name, or a NUL inside
        raise DataError(f"{text[:200]!r} is not a path that can be opened.") from None
    if "://" in text or text.startswith(("http:/", "https:/", "s3:/")):
        raise UsageError(f"{text} is an address; download the file first and give its path.")
    if glob.has_magic(text):
        found = [p for p in map(Path, sorted(glob.glob(text, recursive=True))) if p.is_file()]  # noqa: PTH207
        if found:
            return found
        raise DataError(f"no file matches {text}.")
    near = f" There are files in {path.parent}; check the name." if path.parent.is_dir() else ""
    raise DataError(f"there is no file {text!r}.{near}")


def _known(path: Path) -> bool:
    try:
        return _format(path) is not None
    except UsageError:
        return False


def _format(path: Path) -> Format | None:
    """Return the format that an ending says; None for a database, which its first bytes tell."""
    ending = path.suffix.lower()
    if ending == ".gz":
        inner = path.with_suffix("").suffix.lower()
        if inner in _TEXT:
            return _TEXT[inner]
        raise UsageError(f"{path} has the ending {inner}.gz, which is not read. Endings: {_KNOWN}.")
    if ending in _TEXT:
        return _TEXT[ending]
    if ending in _PARQUET:
        return "parquet"
    if ending in _DATABASE:
        return None
    shown = f"the ending {ending}" if ending else "no ending"
    raise UsageError(f"{path} has {shown}, so its format is unknown. Endings: {_KNOWN}.")


def _check(path: Path, format: Format | None) -> None:
    """Refuse a file that is empty, unreadable, cut short or not of its format."""
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty; a file of records has at least a header.")
        head = _head(path)
        if format == "parquet":
            with path.open("rb") as file:
                file.seek(-min(4, path.stat().st_size), 2)
                tail = file.read()
            if head[:4] != b"PAR1":
                raise DataError(f"{path} is not a Parquet file, whatever its ending says.")
            if tail != b"PAR1" or path.stat().st_size < 12:
                raise DataError(f"{path} is a Parquet file that was cut short; copy it again.")
        elif format is not None and not head.strip():
            raise DataError(f"{path} is empty; a file of records has at least a header.")
        elif format is not None and (b"\0" in head or head[:4] in (b"PAR1", b"PK\3\4")):
            raise DataError(
                f"{path} is not a text file, whatever its ending says; give it the ending of its format, "
                "or save it again as UTF-8 text."
            )
    except PermissionError:
        raise DataError(f"{path} may not be read by this user; ask for permission to read it.") from None
    except (OSError, EOFError):
        raise DataError(f"{path} cannot be read; it may be damaged or on a lost drive.") from None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(4096)
    if path.suffix.lower() == ".gz":
        if head[:2] != b"\x1f\x8b":
            raise DataError(f"{path} is not compressed with gzip, whatever its ending says.")
        try:
            with gzip.open(path) as file:
                return file.read(4096)
        except EOFError:
            raise DataError(f"{path} was cut short; copy it again.") from None
    if head[:2] == b"\x1f\x8b":
        raise DataError(f"{path} is compressed with gzip; let its name end in .gz.")
    return head


def _database(path: Path) -> Format:
    with path.open("rb") as file:
        head = file.read(16)
    if head == _SQLITE_MAGIC:
        return "sqlite"
    if head[8:12] == b"DUCK":
        return "duckdb"
    raise DataError(f"{path} is neither a DuckDB nor an SQLite database, whatever its ending says.")
