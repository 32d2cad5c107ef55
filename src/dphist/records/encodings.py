"""Text in other encodings than UTF-8: turned into UTF-8 as it is read, each line by itself.

Invalid bytes become U+FFFD, and none of them affects another line: in all encodings that
are read, a newline is a character of its own, whatever stands before it.

* Of one byte for each character (``latin-1``, ``windows-1252``, ...): nothing depends on what stands before.
* UTF-16: the units of two bytes; half a character before a newline is one U+FFFD.
* Of one or more bytes (``shift_jis``, ``gb18030``, ...): no byte but the newline's has its value, so lines
  are cut there before they are decoded.

Encodings with shift states (``iso2022_jp``, ``utf-7``) are refused: there a line depends on those before it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from dphist.errors import UsageError

UTF_8 = "utf-8"
_SINGLE = frozenset(
    ["ascii", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "mac-greek", "mac-latin2", "mac-turkish"]
    + [f"iso8859-{part}" for part in range(1, 17) if part != 12]
    + [f"cp{page}" for page in (437, 737, 775, 850, 852, 855, 857, 858, *range(860, 867), 869, 874, 1125)]
    + [f"cp{page}" for page in range(1250, 1259)]
)
_WIDE = frozenset(["utf-16", "utf-16-le", "utf-16-be"])
_MULTIPLE = frozenset(
    ["shift_jis", "cp932", "euc_jp", "gb2312", "gbk", "gb18030", "big5", "cp950", "euc_kr", "cp949"]
)
_EXAMPLES = "utf-8, latin-1, windows-1252, utf-16, iso8859-2, windows-1251, shift_jis, gb18030"


def known(encoding: object) -> str:
    """Return the one name of an encoding that is read, or refuse it."""
    try:
        name = codecs.lookup(encoding).name if isinstance(encoding, str) else ""
    except (LookupError, ValueError):
        name = ""
    if name in ("utf-8", "utf-8-sig"):
        return UTF_8
    if name not in _SINGLE | _WIDE | _MULTIPLE:
        shown = repr(encoding[:40]) if isinstance(encoding, str) else type(encoding).__name__
        raise UsageError(f"the encoding {shown} is not read; take one such as {_EXAMPLES}.")
    return name


def to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield blocks of an encoding, by the name that ``known`` gives, as UTF-8 without a byte order mark."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    if encoding in _MULTIPLE:
        yield from _by_line(blocks, encoding, decoder)
        return
    first = True
    for block in blocks:
        text = decoder.decode(block)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text.encode()
    yield decoder.decode(b"", final=True).encode()


def _by_line(blocks: Iterable[bytes], encoding: str, decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    """Yield blocks as UTF-8; half a character that the decoder keeps ends with its line."""
    for block in blocks:
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if first >= 0:
            yield decoder.decode(block[:first], final=True).encode()
            yield _lines(block[first : last + 1], encoding)
        yield decoder.decode(block[last + 1 :]).encode()
    yield decoder.decode(b"", final=True).encode()


def _lines(block: bytes, encoding: str) -> bytes:
    try:
        return block.decode(encoding).encode()
    except UnicodeDecodeError:
        return b"\n".join(line.decode(encoding, "replace").encode() for line in block.split(b"\n"))
