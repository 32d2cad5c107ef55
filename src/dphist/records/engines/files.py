"""The files that a path stands for, and checks that their contents fit their endings.

The checks read the first and last bytes only. No message quotes what a file holds.
"""

from __future__ import annotations

import codecs
import difflib
import glob
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote

from dphist.errors import DataError, DphistError, UsageError
from dphist.records import encodings, lines

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
    root: Path  # the named folder, or that in which a glob begins; for a single file, the one it lies in


@dataclass(frozen=True)
class Text:
    """Properties of text files that are declared before any record is read."""

    well_formed: bool = False  # a correct program wrote every record
    encoding: str = encodings.UTF_8
    decimal: str = "."  # or ",": the mark of numbers in delimited text

    def __post_init__(self) -> None:
        if not isinstance(self.well_formed, bool):
            raise UsageError("well_formed is True or False.")
        object.__setattr__(self, "encoding", encodings.known(self.encoding))
        if not isinstance(self.decimal, str) or self.decimal not in (".", ","):
            raise UsageError("decimal must be '.' or ',': the mark before the decimals of a number.")


PLAIN = Text()


@dataclass(frozen=True)
class Header:
    """The first line of delimited text.

    Args:
        names: of the columns. A name that stands there before has a number behind it.
        repeated: the names that stand there more than once, in any case, casefolded.
    """

    delimiter: str
    names: tuple[str, ...]
    repeated: frozenset[str] = frozenset()


def find(path: Path, text: Text = PLAIN) -> Files:
    """Return the data files that a path, a folder or a glob stands for, all checked, each file once."""
    listed = [p.absolute() for p in _list(path)]
    found = list({_identity(p): p for p in reversed(listed)}.values())[::-1]
    packed = [p for p in found if p.suffix.lower() == ".gz" and p.with_suffix("") in found]
    if packed:
        raise UsageError(
            f"{packed[0].with_suffix('').name} and {packed[0].name} lie side by side: one may be a copy of "
            "the other, and each record must be counted once. Name one, or move one away."
        )
    formats = {p: _format(p) for p in found}
    if len(set(formats.values())) > 1:
        raise UsageError(f"{path} holds files of several formats; name one, for example {path}/*.csv.")
    for p in found:
        _check(p, formats[p], text)
    first = _database(found[0]) if formats[found[0]] is None else formats[found[0]]
    assert first is not None
    if first in ("duckdb", "sqlite") and len(found) > 1:
        raise UsageError(f"{path} stands for several databases; name one.")
    return Files(first, tuple(found), str(path), _root(path))


def header(found: Files, text: Text) -> Header:
    """Return the header of delimited text; all files must have the same."""
    headers = [_header(path, found.format, text) for path in found.paths]
    if any(other != headers[0] for other in headers):
        raise DataError(f"the files of {found.name} differ in their first lines; name those that agree.")
    return headers[0]


def records(path: Path, format: Format, text: Text) -> Iterator[bytes]:
    """Yield the records of a text file in blocks, the header left behind; see ``lines`` for what one is."""
    try:
        if format in ("csv", "tsv"):
            yield from _split_header(path, text)[1]
        else:
            blocks = lines.raw(path, text.encoding)
            yield from lines.whole_lines(lines.elements(blocks) if format == "json" else blocks)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(_why_unread(path, error)) from None


def _why_unread(path: Path, error: Exception) -> str:
    """Return why a file could not be read to its end; nothing that was read of it is repeated."""
    if isinstance(error, EOFError):
        return f"{path} was cut short: the end of what gzip packed is missing. Copy or download it again."
    if isinstance(error, zlib.error | gzip.BadGzipFile):
        return f"{path} is damaged: gzip cannot unpack it. Copy or download it again."
    return f"{path} cannot be read; it may be on a lost drive."


def folders(found: Files) -> list[dict[str, str | None]]:
    """Return the columns that folders named key=value give each file; none unless all files have these keys.

    Only folders below the named path count: those above it are where the data happens to be stored.
    """
    below = [path.parts[len(found.root.parts) : -1] for path in found.paths]
    said = [dict(part.split("=", 1) for part in parts if "=" in part.strip("=")) for parts in below]
    if any(list(other) != list(said[0]) for other in said):
        return [{} for _ in said]
    return [
        {k: None if v == "__HIVE_DEFAULT_PARTITION__" else unquote(v) for k, v in one.items()} for one in said
    ]


def refuse_keys(found: Files, keys: Iterable[str], names: Iterable[str]) -> None:
    """Refuse a folder's key that is also the name of a column, since either could be meant."""
    own = {name.casefold() for name in names}
    if both := [key for key in keys if key.casefold() in own]:
        raise DataError(
            f"in {found.name} {both[0]!r} is the name of a column, and of folders {both[0]}=... as well; "
            "name the files of one such folder, or rename the folders."
        )


def _root(path: Path) -> Path:
    """Return the folder below which folders named key=value describe their files."""
    whole = path.absolute()
    if path.is_dir():
        return whole
    if path.exists():
        return whole.parent
    fixed = list(takewhile(lambda part: not glob.has_magic(part), whole.parts[:-1]))
    return Path(*fixed)


def _split_header(path: Path, text: Text) -> tuple[bytes, Iterator[bytes]]:
    """Return the first line that is not blank, and the blocks of records behind it."""
    blocks = (lines.whole_records if text.well_formed else lines.whole_lines)(lines.raw(path, text.encoding))
    for block in blocks:
        start = end = 0
        while start < len(block) and not block[start:end].strip():
            start, end = end, block.index(b"\n", end) + 1
            while text.well_formed and block.count(b'"', start, end) % 2:
                end = block.index(b"\n", end) + 1
        if start < len(block):
            return block[start:end], chain([block[end:]], blocks)
    return b"", iter(())


def _header(path: Path, format: Format, text: Text) -> Header:
    try:
        if not text.well_formed:
            _refuse_long_header(path, text)
        line = lines.clean(_split_header(path, text)[0]).decode().rstrip("\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(_why_unread(path, error)) from None
    except OSError:
        raise DataError(f"the first line of {path} cannot be read; it should name the columns.") from None
    if re.fullmatch(r'"?sep=.?"?', line.strip(), re.IGNORECASE):
        raise DataError(
            f"the first line of {path} tells spreadsheets the delimiter (sep=): remove it, so that the next "
            "one, which names the columns, is the first."
        )
    # The delimiter is inferred from the header alone, never from the records.
    delimiter = "\t" if format == "tsv" else _delimiter(_outside_quotes(line), text.decimal)
    names: list[str] = []
    repeated = set()
    for at, cell in enumerate(lines.split(line, delimiter)):
        name = stem = cell.strip() or f"column{at}"
        again = 0
        while name.casefold() in (n.casefold() for n in names):
            again += 1
            name = f"{stem}_{again}"
            repeated.add(stem.casefold())
        names.append(name)
    return Header(delimiter, tuple(names), frozenset(repeated))


def _refuse_long_header(path: Path, text: Text) -> None:
    """Refuse a header that is left out like a record of its length: a record would take its place."""
    rest = b""
    for block in lines.raw(path, text.encoding):
        *whole, rest = (rest + block).split(b"\n")
        first = next((line for line in whole if line.strip()), b"")
        if max(len(first), len(rest)) > lines.LONGEST:
            raise DataError(
                f"the first line of {path} is longer than {lines.LONGEST:,} bytes; it should name "
                "the columns."
            )
        if first:
            return


def _delimiter(line: str, decimal: str) -> str:
    """Return the most frequent delimiter; beside decimal commas, a comma only if there is no other."""
    if decimal == ",":
        others = max(";\t|", key=line.count)
        return others if others in line or "," not in line else ","
    return max(",;\t|", key=line.count)


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])


def _identity(path: Path) -> tuple[int, int] | Path:
    """Return an identity that two names of one file share, by hard or symbolic links."""
    try:
        status = path.stat()
    except OSError:
        return path
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


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
    raise DataError(f"there is no file {text!r}.{_near(path)}")


def _near(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        names = []
    near = difflib.get_close_matches(path.name, names, n=3)
    return f" Did you mean {' or '.join(repr(str(path.parent / name)) for name in near)}?" if near else ""


def _known(path: Path) -> bool:
    try:
        return _format(path) is not None
    except UsageError:
        return False


def _format(path: Path) -> Format | None:
    """Return the format that a file's ending names; None for a database, recognised by its first bytes."""
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


def _check(path: Path, format: Format | None, text: Text) -> None:
    """Refuse a file that is unreadable, cut short or not of its format.

    JSON has no header: its first bytes belong to a record, so they are not looked at, and none need be there.
    """
    try:
        head = _head(path, format)
        if format in ("json", "jsonl"):
            return
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty; a file of records has at least a header.")
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
        elif (
            text.encoding == "utf-16"
            and format is not None
            and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        ):
            raise DataError(
                f"{path} does not begin with a byte order mark, so utf-16 leaves its order of bytes open: "
                "say utf-16-le or utf-16-be."
            )
        # A NUL behind the header is in a record, which must not stop the others.
        elif format is not None and (
            (b"\0" in head.partition(b"\n")[0] and not text.encoding.startswith("utf-16"))
            or head[:4] in (b"PAR1", b"PK\3\4")
        ):
            raise DataError(
                f"{path} is not a text file, whatever its ending says; give it the ending of its format, "
                "or say what its encoding is, such as utf-16."
            )
    except PermissionError:
        raise DataError(f"{path} may not be read by this user; ask for permission to read it.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(_why_unread(path, error)) from None


def _head(path: Path, format: Format | None) -> bytes:
    with path.open("rb") as file:
        head = file.read(4096)
    if path.suffix.lower() == ".gz":
        if head[:2] != b"\x1f\x8b":
            raise DataError(f"{path} is not compressed with gzip, whatever its ending says.")
        with gzip.open(path) as file:
            return file.read(4096)
    if head[:2] == b"\x1f\x8b" and format not in ("json", "jsonl"):
        raise DataError(
            f"{path} is compressed with gzip; let its name end in .gz, or unpack it first (gzip -dc)."
        )
    return head


def _database(path: Path) -> Format:
    with path.open("rb") as file:
        head = file.read(16)
    if head == _SQLITE_MAGIC:
        return "sqlite"
    if head[8:12] == b"DUCK":
        return "duckdb"
    raise DataError(f"{path} is neither a DuckDB nor an SQLite database, whatever its ending says.")
