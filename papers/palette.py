"""PNG files with a palette: drawings of few colours in a third of the bytes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from dphist.kernels import kernel

Bytes = NDArray[np.uint8]
_START = b"\x89PNG\r\n\x1a\n"
_SHADES = 6  # bits of each colour that are told apart


def with_palette(png: bytes) -> bytes:
    """Return an opaque PNG of 8 bits a channel in its 256 most frequent colours, or those next to them."""
    chunks = chunks_of(png)
    width, height, _, kind = struct.unpack(">IIBB", chunks[0][1][:10])
    deep = {2: 3, 6: 4}[kind]
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + deep * width)
    pixels = _unfiltered(lines[:, 0].copy(), lines[:, 1:].copy(), deep).reshape(-1, deep)[:, :3]
    shades = (pixels >> (8 - _SHADES)).astype(np.int64) @ np.array([1 << 2 * _SHADES, 1 << _SHADES, 1])
    many = np.bincount(shades, minlength=1 << 3 * _SHADES)
    found = np.flatnonzero(many)
    found = found[np.argsort(-many[found], kind="stable")]  # the most frequent first: they are the palette
    levels = np.stack([found >> 2 * _SHADES, found >> _SHADES, found]) & ((1 << _SHADES) - 1)
    colours = (levels << (8 - _SHADES) | levels >> (2 * _SHADES - 8)).T
    place = np.zeros(many.size, np.uint8)
    place[found] = [((colours[:256] - colour) ** 2).sum(axis=1).argmin() for colour in colours]
    rows = place[shades].reshape(height, width)
    body = np.pad(rows, ((0, 0), (1, 0)))  # every line begins with the filter 0: none
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", colours[:256].astype(np.uint8).tobytes())]
    parts += [(b"IDAT", zlib.compress(body.tobytes(), 9)), (b"IEND", b"")]
    return _START + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def chunks_of(png: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and bodies of a PNG's parts."""
    found, at = [], len(_START)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


@kernel
def _unfiltered(kinds: Bytes, lines: Bytes, deep: int) -> Bytes:
    """Return the bytes of all lines, each of which says how they are predicted by those left and above."""
    for y in range(lines.shape[0]):
        for x in range(lines.shape[1]):
            left = int(lines[y, x - deep]) if x >= deep else 0
            above = int(lines[y - 1, x]) if y else 0
            corner = int(lines[y - 1, x - deep]) if y and x >= deep else 0
            guess = (0, left, above, (left + above) // 2, 0)[int(kinds[y])]
            if kinds[y] == 4:  # Paeth's: whichever of the three is nearest to left + above - corner
                a, b, c = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
                guess = left if a <= b and a <= c else above if b <= c else corner
            lines[y, x] = (int(lines[y, x]) + guess) & 255
    return lines
