"""Writes Parquet, a block of rows at a time: as much of the format as a release of many groups needs.

Every block is a row group of its own, with one page for each column, so that memory is that of one block and
a reader fetches a single row by reading few. Numbers on a grid that lie close together, as whole counts and
multiples of 1/16 do, are stored as the places in a dictionary of all numbers between the least and the
greatest; their bytes are packed by how often each occurs. Format: https://parquet.apache.org/docs/file-format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"PAR1"
_INT32, _INT64, _DOUBLE, _BYTES = 1, 2, 5, 6  # physical types
_UTF8, _LIST, _INT8 = 0, 3, 15  # what they stand for
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_PLAIN, _RLE, _DICTIONARY = 0, 3, 8  # encodings
_GZIP = 2
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_FINEST = 16  # steps of a number that is on a grid
_LONGEST = 64  # bytes of a text that is kept as the least or greatest of its block
_WHOLE = 2.0**53

Kind = Literal["int8", "text", "double", "doubles", "int64s"]
_TYPES = {"int8": _INT32, "text": _BYTES, "double": _DOUBLE, "doubles": _DOUBLE, "int64s": _INT64}
_DTYPES = {"int8": "<i4", "double": "<f8", "doubles": "<f8", "int64s": "<i8"}


@dataclass(frozen=True)
class Column:
    """A column: numbers, texts that may be missing, or a list of numbers in every row."""

    name: str
    kind: Kind

    @property
    def is_list(self) -> bool:
        """Whether every row has a list."""
        return self.kind in ("doubles", "int64s")

    @property
    def path(self) -> tuple[str, ...]:
        """The names from the column to its numbers."""
        return (self.name, "list", "element") if self.is_list else (self.name,)


class Writer:
    """A Parquet file that is being written: blocks of rows, then the footer.

    >>> writer = Writer(opened, [Column("group", "text"), Column("raw", "doubles")])
    >>> writer.block({"group": ["a", "b"], "raw": np.ones((2, 3))}, rows=2)
    >>> writer.close({"key": "value"})
    """

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        self._file, self._columns = file, columns
        self._at, self._rows = 0, 0
        self._blocks: list[bytes] = []
        self._put(_MAGIC)

    def block(self, columns: Mapping[str, Any], *, rows: int) -> None:
        """Write some rows: numbers or texts for each column, a matrix for lists, None if all are missing."""
        start = self._at
        chunks = [self._chunk(column, columns[column.name], rows) for column in self._columns]
        size, self._rows = self._at - start, self._rows + rows
        written = sum(plain for _, plain in chunks)
        self._blocks.append(
            _struct(
                (1, _structs([made for made, _ in chunks])),
                (2, _i64(written)),
                (3, _i64(rows)),
                (6, _i64(size)),
            )
        )

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write what the file is about, and where its blocks are."""
        coded = [(key.encode(), text.encode()) for key, text in metadata.items()]
        pairs = [_struct((1, _binary(key)), (2, _binary(text))) for key, text in coded]
        ordered = _struct((1, _nested(_struct())))  # texts compare by their bytes
        footer = _struct(
            (1, _i32(2)),
            (2, _structs([*self._schema()])),
            (3, _i64(self._rows)),
            (4, _structs(self._blocks)),
            (5, _structs(pairs)),
            (6, _binary(b"dphist")),
            (7, _structs([ordered] * len(self._columns))),
        )
        self._put(footer + struct.pack("<I", len(footer)) + _MAGIC)

    def _put(self, content: bytes) -> None:
        self._file.write(content)
        self._at += len(content)

    def _schema(self) -> list[bytes]:
        made = [_struct((4, _binary(b"schema")), (5, _i32(len(self._columns))))]
        for column in self._columns:
            name, type = (4, _binary(column.name.encode())), (1, _i32(_TYPES[column.kind]))
            if column.is_list:
                made += [
                    _struct((3, _i32(_REQUIRED)), name, (5, _i32(1)), (6, _i32(_LIST))),
                    _struct((3, _i32(_REPEATED)), (4, _binary(b"list")), (5, _i32(1))),
                    _struct(type, (3, _i32(_REQUIRED)), (4, _binary(b"element"))),
                ]
            elif column.kind == "text":
                made.append(_struct(type, (3, _i32(_OPTIONAL)), name, (6, _i32(_UTF8))))
            elif column.kind == "int8":
                made.append(_struct(type, (3, _i32(_REQUIRED)), name, (6, _i32(_INT8))))
            else:
                made.append(_struct(type, (3, _i32(_REQUIRED)), name))
        return made

    def _chunk(self, column: Column, cells: Any, rows: int) -> tuple[bytes, int]:
        """Write a column of a block; return its entry in the footer, and its size before it was packed."""
        start, dictionary, statistics = self._at, b"", None
        if column.kind == "text":
            body, encoding, many = _texts(cells, rows), _PLAIN, rows
            statistics = _extremes(cells, rows)
        else:
            numbers = np.asarray(cells).reshape(-1)
            many = numbers.size
            dictionary, body, encoding = _numbers(numbers, _DTYPES[column.kind])
            body = (_list_levels(rows, many // rows) if column.is_list else b"") + body
        plain = 0
        if dictionary:
            size = len(dictionary) // np.dtype(_DTYPES[column.kind]).itemsize
            about = _struct((1, _i32(size)), (2, _i32(_PLAIN)))
            plain += self._page(_DICTIONARY_PAGE, dictionary, (7, _nested(about)), zlib.Z_DEFAULT_STRATEGY)
        data = self._at
        about = _struct((1, _i32(many)), (2, _i32(encoding)), (3, _i32(_RLE)), (4, _i32(_RLE)))
        packing = zlib.Z_DEFAULT_STRATEGY if column.kind == "text" else zlib.Z_HUFFMAN_ONLY
        plain += self._page(_DATA_PAGE, body, (5, _nested(about)), packing)
        described = _struct(
            (1, _i32(_TYPES[column.kind])),
            (2, _list(5, [_varint(_zigzag(e)) for e in sorted({_PLAIN, _RLE, encoding})])),
            (3, _list(8, [_text(part) for part in column.path])),
            (4, _i32(_GZIP)),
            (5, _i64(many)),
            (6, _i64(plain)),
            (7, _i64(self._at - start)),
            (9, _i64(data)),
            *([(11, _i64(start))] if dictionary else []),
            *([(12, _nested(statistics))] if statistics else []),
        )
        return _struct((2, _i64(start)), (3, _nested(described))), plain

    def _page(self, type: int, body: bytes, about: tuple[int, tuple[int, bytes]], packing: int) -> int:
        """Write a page; return its size before it was packed."""
        packer = zlib.compressobj(1, zlib.DEFLATED, 31, 8, packing)
        packed = packer.compress(body) + packer.flush()
        header = _struct((1, _i32(type)), (2, _i32(len(body))), (3, _i32(len(packed))), about)
        self._put(header + packed)
        return len(header) + len(body)


def _numbers(numbers: NDArray[Any], dtype: str) -> tuple[bytes, bytes, int]:
    """Return a dictionary, or nothing, with the encoded numbers and how they are encoded."""
    found = _steps(numbers)
    if found is not None:
        steps, grid = found
        low, high = int(steps.min()), int(steps.max())
        if high - low < min(1 << 16, max(256, numbers.size // 4)):
            width = np.dtype("<u1" if high - low < 256 else "<u2")
            all_between = np.arange(low, high + 1)
            known = (all_between if grid == 1 else all_between / grid).astype(dtype)
            eights = -(-numbers.size // 8)
            places = np.zeros(8 * eights, dtype=width)
            np.subtract(steps, low, out=places[: numbers.size], casting="unsafe")
            run = bytes([8 * width.itemsize]) + _varint(eights << 1 | 1)
            return known.tobytes(), run + places.tobytes(), _DICTIONARY
    return b"", numbers.astype(dtype).tobytes(), _PLAIN


def _steps(numbers: NDArray[Any]) -> tuple[NDArray[Any], int] | None:
    """Return numbers as steps of the grid they are on, of 1 or else of 1/16; None if they are on neither."""
    if numbers.dtype.kind == "i":
        return numbers, 1
    if np.abs(numbers).max() >= _WHOLE / _FINEST:
        return None
    for grid in (1, _FINEST):
        steps = numbers * grid
        if np.array_equal(steps, np.rint(steps)):
            return steps, grid
    return None


def _texts(cells: Sequence[str] | None, rows: int) -> bytes:
    """Return texts that are all there, or all missing."""
    if cells is None:
        return _levels(_run(rows, 0))
    coded = [text.encode() for text in cells]
    return _levels(_run(rows, 1)) + b"".join([struct.pack("<I", len(text)) + text for text in coded])


def _extremes(cells: Sequence[str] | None, rows: int) -> bytes | None:
    """Return the least and the greatest of some texts, by which a reader skips a block."""
    if cells is None:
        return _struct((3, _i64(rows)))
    low, high = min(cells).encode(), max(cells).encode()  # characters are in the order of their bytes
    if max(len(low), len(high)) > _LONGEST:
        return None
    return _struct((3, _i64(0)), (5, _binary(high)), (6, _binary(low)))


def _list_levels(rows: int, length: int) -> bytes:
    """Return which numbers begin a list, and that none is missing."""
    row = _run(1, 0) + (_run(length - 1, 1) if length > 1 else b"")
    return _levels(row * rows) + _levels(_run(rows * length, 1))


def _levels(runs: bytes) -> bytes:
    return struct.pack("<I", len(runs)) + runs


def _run(length: int, level: int) -> bytes:
    return _varint(length << 1) + bytes([level])


# ---- Thrift's compact protocol ----------------------------------------------------------------------

Field = tuple[int, bytes]  # its type and its content


def _struct(*fields: tuple[int, Field]) -> bytes:
    """Return fields with rising numbers, and their end."""
    made, last = b"", 0
    for number, (type, content) in fields:
        made += bytes([(number - last) << 4 | type]) + content
        last = number
    return made + b"\0"


def _i32(value: int) -> Field:
    return 5, _varint(_zigzag(value))


def _i64(value: int) -> Field:
    return 6, _varint(_zigzag(value))


def _binary(content: bytes) -> Field:
    return 8, _varint(len(content)) + content


def _text(content: str) -> bytes:
    return _binary(content.encode())[1]


def _nested(content: bytes) -> Field:
    return 12, content


def _structs(items: Sequence[bytes]) -> Field:
    return _list(12, items)


def _list(type: int, items: Sequence[bytes]) -> Field:
    size = bytes([len(items) << 4 | type]) if len(items) < 15 else bytes([0xF0 | type]) + _varint(len(items))
    return 9, size + b"".join(items)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ~(value << 1)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
