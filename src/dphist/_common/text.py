"""Text of others made harmless: terminals obey what they are shown, and spreadsheets what they open."""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # parts of words in some scripts, and of emoji
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, invisible and bidirectional characters, line separators
_FORMULA = re.compile(r"'*[\s\x00]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def harmless(text: str, *, keep: str = "\n\t") -> str:
    r"""Return text whose control characters are written out, such as ``\u001b``, so that none is obeyed.

    They are written as JSON writes them: a JSON document stays the same document.
    """
    if text.isprintable():
        return text
    return "".join(c if _is_harmless(c, keep) else _escaped(c) for c in text)


def _is_harmless(c: str, keep: str) -> bool:
    return c.isprintable() or c in keep or c in _JOINERS or unicodedata.category(c) not in _OBEYED


def _escaped(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def cell(text: str) -> str:
    """Return text as a cell of CSV that no spreadsheet takes for a formula: an apostrophe goes before it.

    Numbers stay as they are. An apostrophe that came before a formula gets another one, so that taking the
    first one off gives the text back.
    """
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def comment(text: str) -> str:
    """Return text for a line of comment in CSV: no part of it, after a separator, begins a formula."""
    return re.sub(r"([,;]['\"\s]*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])", r"\1'", " ".join(text.split()))
