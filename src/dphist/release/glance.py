"""Whether a file is a release, from its first bytes or its footer: other files are not read to find out."""

from __future__ import annotations

from pathlib import Path

_PARQUET = b"PAR1"
_STAMP, _LONGEST = b"dphist-release", 1 << 26  # bytes of a footer


def is_release(path: Path) -> bool:
    """Return whether a file begins, or in Parquet ends, as our releases do; no record is read."""
    return bool(_about(path))


def mentions(path: Path, release: str) -> bool:
    """Return whether a file is a release and names this one."""
    about = _about(path)
    if not about or path.suffix.lower() == ".parquet":
        return release.encode() in about
    return release.encode() in path.read_bytes()


def _about(path: Path) -> bytes:
    """Return the bytes that say what a file is, if it is a release; nothing otherwise."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() != ".parquet":
                head = file.read(64)
                return head if b'"format":"dphist-release"' in head.replace(b" ", b"") else b""
            size = file.seek(0, 2)
            file.seek(max(size - 8, 0))
            tail = file.read(8)
            if len(tail) < 8 or tail[4:] != _PARQUET:
                return b""
            length = int.from_bytes(tail[:4], "little")
            file.seek(max(size - 8 - length, 0))
            footer = file.read(min(length, _LONGEST))
            return footer if _STAMP in footer else b""
    except OSError:
        return b""
