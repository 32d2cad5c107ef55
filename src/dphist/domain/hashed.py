"""An axis of texts that nobody declared: a public hash puts each of them into one of a number of bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.axes import MOST_BINS, Outside, as_int, refuse_to_list, shown
from dphist.domain.groups import frozen
from dphist.errors import UsageError

_MOST_BITS = MOST_BINS.bit_length() - 1
_LONGEST_SALT = 100
LONGEST_KEY = 1 << 27  # characters: with any salt in front, a text that every engine holds
_UNDECODED = "\ufffd"  # stands for bytes that are no text


@dataclass(frozen=True)
class Hashed:
    """2**bits bins for keys of any text: a key's bin is the first ``bits`` bits of a hash of it.

    The hash is the SHA-256 of the UTF-8 of the salt followed by the key, the same in every engine. Several
    keys may share a bin: see ``chance``.

    >>> axis = dphist.Hashed(30, salt="searches of 2026")
    >>> axis.n, axis.name(axis.bin("weather"))
    (1073741824, '12657a1e')
    >>> round(axis.chance(1_000_000), 6)
    0.000931

    Args:
        bits: 1 to 62. With ten more than the number of keys has digits in base 2, about one key in a thousand
            shares its bin.
        salt: a public text, chosen before the records are read: with another one, other keys share a bin.
    """

    kind: ClassVar[str] = "hashed"
    bits: int
    salt: str = ""

    def __post_init__(self) -> None:
        bits = as_int(self.bits, "the number of bits of a hash")
        if not 1 <= bits <= _MOST_BITS:
            raise UsageError(f"a hash has 1 to {_MOST_BITS} bits, not {bits}: 30 is 2**30 bins.")
        salt = self.salt
        if not isinstance(salt, str) or len(salt) > _LONGEST_SALT or not _is_key(salt) or "\0" in salt:
            raise UsageError(f"a salt is a text of at most {_LONGEST_SALT} characters, not {shown(salt)}.")
        object.__setattr__(self, "bits", bits)

    @property
    def n(self) -> int:
        return 1 << self.bits

    @property
    def edges(self) -> NDArray[np.float64]:
        """The numbers of the bins, as those of categories."""
        refuse_to_list(self.n)
        return frozen(np.arange(self.n + 1, dtype=np.float64))

    def name(self, bin: int) -> str:
        """Return the number of a bin in base 16: which keys are in it, it does not tell."""
        return f"{int(bin):0{-(-self.bits // 4)}x}"

    def names(self) -> list[str]:
        refuse_to_list(self.n)
        return [self.name(i) for i in range(self.n)]

    def bin(self, key: object) -> int | None:
        """Return the bin of a key, None for what is no text."""
        if not isinstance(key, str) or len(key) > LONGEST_KEY or not _is_key(key):
            return None
        digest = sha256((self.salt + key).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - self.bits)

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each key's bin, -1 for what is no text; a count writes cells of no type as text first."""
        found = (self.bin(cell) for cell in np.asarray(values, dtype=object).ravel().tolist())
        return np.array([-1 if at is None else at for at in found], dtype=np.int64)

    def run(self, key: str) -> tuple[int, int]:
        """Return the bin of a key, and the one after it."""
        if (at := self.bin(key)) is None:
            raise UsageError(f"a key is a text, such as 'some key'; not {shown(key)}.")
        return at, at + 1

    def chance(self, keys: int) -> float:
        """Return the chance that a key shares its bin with one of so many other keys.

        Over the choice of the hash, each of them falls into the bin with chance 2**-bits, independently.
        """
        others = as_int(keys, "the number of other keys")
        if others < 0:
            raise UsageError(f"the number of other keys is at least 0, not {others}.")
        return -math.expm1(others * math.log1p(-1 / self.n))

    @property
    def words(self) -> str:
        """What a value says of a key, whatever the records are."""
        salt = f"with the salt {self.salt!r}" if self.salt else "without salt"
        return (
            f"Keys are hashed (SHA-256 {salt}) into 2^{self.bits} bins, and a value may contain the records "
            "of other keys in the same bin: if a million other keys occur, one of them is in the bin of a "
            f"given key with a chance of {_percent(self.chance(10**6))}. The upper end of an interval holds "
            "for the key all the same, its lower end only for all keys of the bin together."
        )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "bits": self.bits, "salt": self.salt}


def _is_key(text: str) -> bool:
    """Return whether a text is one in UTF-8, with all of its characters."""
    return _UNDECODED not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _percent(chance: float) -> str:
    return "less than 0.0001 %" if chance < 1e-6 else f"{100 * chance:.3g} %"
