"""An axis of codes of a fixed length over declared characters: every possible code is a bin."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.axes import MOST_BINS, Outside, refuse_to_list, shown
from dphist.domain.groups import frozen
from dphist.errors import UsageError

_PLACE = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]{}]))(?:\{([1-9][0-9]?)\})?")
_MOST_PLACES = 64  # each is a part of the query; of 2**62 codes no more places can differ
_SUCH = "such as [A-Z0-9]{11}, or [A-Z][0-9]{2} for the first characters of ICD-10"
_REGULAR = "*+?|()^$\\"


@dataclass(frozen=True)
class Codes:
    """One bin per code: one character of a declared class at each place, in the order of the classes.

    >>> axis = dphist.Codes("[A-Z][0-9]{2}")
    >>> axis.n, axis.name(0), axis.bin("B07")
    (2600, 'A00', 107)

    Args:
        pattern: for each place the characters that can stand there, in brackets, with ranges such as A-Z; a
            number in braces repeats it. A letter, digit or - outside brackets stands for itself.
    """

    kind: ClassVar[str] = "codes"
    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise UsageError(f"codes are declared by a pattern {_SUCH}; not by {shown(self.pattern)}.")
        if not 1 <= len(self.places) <= _MOST_PLACES:
            raise UsageError(f"a pattern of codes has 1 to {_MOST_PLACES} places, {_SUCH}.")
        if self.n > MOST_BINS:
            raise UsageError(
                f"the codes of {shown(self.pattern)} are more than 2**62; declare fewer places or characters."
            )

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The characters that can stand at each place, in order."""
        found: list[str] = []
        at = 0
        while at < len(self.pattern):
            place = _PLACE.match(self.pattern, at)
            if place is None:
                raise UsageError(
                    f"the pattern {shown(self.pattern)} is not understood at place {at + 1}; {_SUCH}."
                )
            if len(found) > _MOST_PLACES:
                break  # too many, however many they are
            if place[2] == "." and place[3]:
                raise UsageError(
                    f"a point stands for itself here, not for any character: list those that can, {_SUCH}."
                )
            found += [_characters(place[1]) if place[1] else _outside(place[2])] * int(place[3] or 1)
            at = place.end()
        return tuple(found)

    @property
    def n(self) -> int:
        return math.prod(map(len, self.places))

    @property
    def edges(self) -> NDArray[np.float64]:
        """The numbers of the bins, as those of categories."""
        refuse_to_list(self.n)
        return frozen(np.arange(self.n + 1, dtype=np.float64))

    def name(self, bin: int) -> str:
        """Return the code of a bin."""
        found, left = [], int(bin)
        for place in reversed(self.places):
            left, at = divmod(left, len(place))
            found.append(place[at])
        return "".join(reversed(found))

    def names(self) -> list[str]:
        refuse_to_list(self.n)
        return [self.name(i) for i in range(self.n)]

    def bin(self, text: object) -> int | None:
        """Return the bin of a code, None for any other text."""
        if not isinstance(text, str) or len(text) != len(self.places):
            return None
        found = 0
        for place, character in zip(self.places, text, strict=True):
            at = place.find(character)
            if at < 0:
                return None
            found = found * len(place) + at
        return found

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each code's bin, -1 where it has none."""
        found = (self.bin(cell) for cell in np.asarray(values, dtype=object).ravel().tolist())
        return np.array([-1 if at is None else at for at in found], dtype=np.int64)

    def run(self, text: str) -> tuple[int, int]:
        """Return the first bin of the codes that begin with a text, and the one after their last."""
        first, size = 0, self.n
        if not isinstance(text, str) or len(text) > len(self.places):
            raise UsageError(f"{shown(text)} is not the beginning of a code, such as {self.name(0)}.")
        for place, character in zip(self.places, text, strict=False):
            at = place.find(character)
            if at < 0:
                raise UsageError(f"{shown(text)} is not the beginning of a code, such as {self.name(0)}.")
            size //= len(place)
            first += at * size
        return first, first + size

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "pattern": self.pattern}


def _outside(character: str) -> str:
    """Return a character that stands for itself; those that mean something in regular expressions do not."""
    if character in _REGULAR:
        raise UsageError(
            f"{character} outside brackets is no repetition or choice here: codes have one fixed length. "
            f"Repeat a place by a number in braces, {_SUCH}; for the character itself write [{character}]."
        )
    return _plain(character)


def _plain(character: str) -> str:
    if not (character.isascii() and character.isprintable()):
        raise UsageError("the characters of codes are those of ASCII that can be printed.")
    return character


def _characters(text: str) -> str:
    """Return the characters of a class such as A-Z0-9, each once."""
    if len(text) > 1 and (text[0] == "^" or "\\" in text[:-1]):
        sign = "^" if text[0] == "^" else "\\"
        raise UsageError(
            f"[{text}] names the characters that can stand at a place, and {sign} gives none of them another "
            f"meaning: list all of them, {_SUCH}; for the character {sign} itself write it last."
        )
    found = ""
    for one in re.finditer("(.)-(.)|(.)", text, re.DOTALL):
        first, last = (one[1], one[2]) if one[3] is None else (one[3], one[3])
        if _plain(first) > _plain(last):
            raise UsageError(f"the range {first}-{last} of characters must rise.")
        found += "".join(map(chr, range(ord(first), ord(last) + 1)))
    if len(set(found)) != len(found):
        raise UsageError(f"the characters [{text}] name one of them twice; remove one.")
    return found
