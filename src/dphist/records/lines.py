"""The records of a text file: its physical lines, each read by itself.

One record must not move another, so what a line means is a function of that line alone:

* A line ends at a newline (with the carriage return before it) or with the file. No quote opened in a
  line reaches into the next. A carriage return elsewhere is a space.
* Bytes that are not of the encoding (``encodings``), and NUL, are U+FFFD.
* Of delimited text, a quoted field ends at the latest with its line; what stands between its closing quote
  and the next delimiter belongs to it; a quote inside a bare field is a character.
* A line of more than ``LONGEST`` bytes of UTF-8, its carriage return among them, is left out whole.
* Byte order marks at the start of a line, of the first as of any other, are not part of it.

Two kinds of files cannot be cut so: delimited text with newlines inside quoted fields, and JSON arrays. Who
declares them ``well_formed`` says that a correct program wrote every record of them; then a newline inside
quotes, or a comma inside an element, ends no record, and one more record still moves no other.
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dphist.records import encodings

BLOCK = 1 << 18  # bytes taken at a time: what a processor keeps near
LONGEST = 1_000_000  # bytes of a line; DuckDB takes twice as many
_MARKS = re.compile(rb"^(?:\xef\xbb\xbf)+", re.MULTILINE)
UNKNOWN = "\N{REPLACEMENT CHARACTER}".encode()


def raw(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield the text of a file as UTF-8, uncompressed and without a byte order mark, a block at a time."""
    return _bytes(path) if encoding == encodings.UTF_8 else encodings.to_utf8(_bytes(path), encoding)


def _bytes(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        first = file.read(BLOCK)
        yield first.removeprefix(codecs.BOM_UTF8)
        while block := file.read(BLOCK):
            yield block


def is_ended(path: Path, encoding: str) -> bool:
    """Return whether a file of text ends with a newline, or is empty; a packed one is taken to."""
    if path.suffix.lower() == ".gz":
        return True
    wide = encoding.startswith("utf-16")
    with path.open("rb") as file:
        file.seek(-min(2 if wide else 1, file.seek(0, 2)), 2)
        return file.read() in ((b"", b"\n\0", b"\0\n") if wide else (b"", b"\n"))


def whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines that are not too long; the last one need not have had its newline."""
    rest, dead = b"", False  # a dead line is too long, and left out up to its newline
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            start = block.index(b"\n") + 1 if dead else 0
            yield short(rest + block[start:end])
            rest, dead = block[end:], False
        elif not dead:
            rest += block
        if len(rest) > LONGEST:
            rest, dead = b"", True
    if rest:
        yield rest + b"\n"


def line_count(blocks: Iterable[bytes], skips_blank: bool) -> int:
    """Return how many lines there are, too long ones among them, and empty ones unless they are skipped."""
    many, start = 0, b""  # the start of the unfinished line, enough to decide whether it is empty
    for block in blocks:
        *ended, last = (start + block).split(b"\n")
        many += len(ended) - (ended.count(b"") + ended.count(b"\r") if skips_blank else 0)
        start = last[:2]
    return many + (start not in (b"", b"\r"))


def open_quotes(blocks: Iterable[bytes]) -> int:
    """Return how many lines have an odd number of quotes: one that their own line does not close."""
    many = quotes = 0  # the quotes of the unfinished line
    for block in blocks:
        bytes_ = np.frombuffer(block, dtype=np.uint8)
        is_quote = bytes_[(bytes_ == 34) | (bytes_ == 10)] == 34
        before = quotes + np.cumsum(is_quote)[~is_quote]  # each newline, from the start of the first line
        many += int((np.diff(before, prepend=0) % 2).sum())
        quotes += int(is_quote.sum()) - (int(before[-1]) if before.size else 0)
    return many + quotes % 2


def whole_records(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole records of well-formed delimited text, which end at newlines outside quotes."""
    rest = b""
    for block in blocks:
        text = rest + block
        end = _last_end(text)
        if not end and len(text) > 8 * LONGEST:  # no correct writer made this: memory must not grow with it
            end = text.rfind(b"\n") + 1 or len(text)
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest + b"\n"


def _last_end(text: bytes) -> int:
    """Return where the last whole record ends: behind a newline before which the number of quotes is even."""
    if text.count(b'"') % 2 == 0:
        end = text.rfind(b"\n") + 1
        if text.count(b'"', end) % 2 == 0:
            return end
    # Before the last quote of an odd number, or of the field that the last newline lies in.
    bytes_ = np.frombuffer(text, dtype=np.uint8)
    marks = np.flatnonzero((bytes_ == 34) | (bytes_ == 10))
    is_quote = bytes_[marks] == 34
    ends = marks[~is_quote & (np.cumsum(is_quote) % 2 == 0)]
    return int(ends[-1]) + 1 if ends.size else 0


def elements(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of well-formed JSON with every element of a top-level array on a line of its own."""
    from dphist.kernels.text import elements_to_lines  # compiled code takes a while to load

    depth = state = 0
    for block in blocks:
        text = np.frombuffer(block, dtype=np.uint8).copy()
        depth, state = elements_to_lines(text, depth, state)
        yield text.tobytes()


def clean(block: bytes, delimiter: str = "\1") -> bytes:
    """Return lines of valid UTF-8 without NUL and carriage returns; the delimiter \\1 stands for none."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    for control in b"\0\1" if delimiter == "\1" else b"\0":
        block = block.replace(bytes((control,)), UNKNOWN)
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            block = block.decode("utf-8", "replace").encode()  # a newline is part of no broken character
        # DuckDB drops one at the start of what it reads: of whichever record is the first of its part.
        if codecs.BOM_UTF8 in block:
            block = _MARKS.sub(b"", block)
    return block


def short(block: bytes) -> bytes:
    """Return the lines that are not too long."""
    if _all_short(block):
        return block
    return b"".join(line for line in block.splitlines(keepends=True) if len(line) <= LONGEST + 1)


def _all_short(block: bytes) -> bool:
    start = 0
    while start < len(block):
        start = block.rfind(b"\n", start, start + LONGEST + 1) + 1
        if not start:
            return False
    return True


def requoted(block: bytes, delimiter: str) -> bytes:
    """Return the lines, rewriting those whose quotes no correct writer would produce."""
    if b'"' not in block:
        return block
    from dphist.kernels.text import stray_quotes  # compiled code takes a while to load

    text = np.frombuffer(block, dtype=np.uint8)
    parts, done = [], 0
    begin, end = stray_quotes(text, 0, ord(delimiter))
    while begin >= 0:
        parts += [block[done:begin], _written(split(block[begin : end - 1].decode(), delimiter), delimiter)]
        done = end
        begin, end = stray_quotes(text, end, ord(delimiter))
    return b"".join([*parts, block[done:]]) if parts else block


def split(line: str, delimiter: str) -> list[str]:
    """Return the fields of one line, whatever its quotes are like."""
    cells, at = [], 0
    while True:
        inside: list[str] = []
        if line.startswith('"', at):
            at = _unquote(line, at + 1, inside)
        end = line.find(delimiter, at)
        cells.append("".join(inside) + line[at : end if end >= 0 else None])
        if end < 0:
            return cells
        at = end + 1


def _unquote(line: str, at: int, inside: list[str]) -> int:
    """Append the text between quotes, from behind the first one; return where the field continues."""
    while True:
        end = line.find('"', at)
        if end < 0:
            inside.append(line[at:])
            return len(line)
        inside.append(line[at:end])
        if not line.startswith('"', end + 1):
            return end + 1
        inside.append('"')
        at = end + 2


def compile_loops() -> None:
    """Compile the loops that read text, which a first file would otherwise wait for."""
    requoted(b'"a"b\n', ",")
    list(elements([b"[1]"]))


def _written(cells: list[str], delimiter: str) -> bytes:
    quoted = ('"' + cell.replace('"', '""') + '"' for cell in cells)
    line = delimiter.join(quoted).encode() + b"\n"
    return line if len(line) < 2 * LONGEST else b""
