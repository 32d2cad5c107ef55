"""An axis of IP addresses: one bin per prefix of a declared network."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.domain.axes import MOST_BINS, Outside, as_int, refuse_to_list, shown
from dphist.domain.groups import frozen
from dphist.errors import UsageError

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9a-fA-F]{1,4}"
# What is an address as text, the same in Python and in every engine. In the second line :: stands for one
# group or more; addresses with a zone or a dotted end are none.
FORMS = {
    4: rf"^({_OCTET}[.]){{3}}{_OCTET}$",
    6: f"^(({_GROUP}:){{7}}{_GROUP}|({_GROUP}:){{1,7}}:|:((:{_GROUP}){{1,7}}|:)|"
    + "|".join(f"({_GROUP}:){{1,{a}}}(:{_GROUP}){{1,{7 - a}}}" for a in range(1, 7))
    + ")$",
}
_FORMS = {family: re.compile(form) for family, form in FORMS.items()}


@dataclass(frozen=True)
class Addresses:
    """One bin per prefix of an IP network, in the order of the addresses.

    Records are addresses written as text: 10.1.2.3, or 2001:db8::1. An address of the other family or of
    another network, and any other text, is a record outside the domain, which is dropped.

    >>> axis = dphist.Addresses("10.0.0.0/8", prefix=24)
    >>> axis.n, axis.name(258)
    (65536, '10.1.2.0/24')

    Args:
        network: the addresses that can occur, such as 0.0.0.0/0, ::/0 or 2001:db8::/32.
        prefix: the length of a bin's prefix: 32 is one bin per IPv4 address, 24 one per 256 of them.
    """

    kind: ClassVar[str] = "addresses"
    network: str
    prefix: int

    def __post_init__(self) -> None:
        if not isinstance(self.network, str):
            raise UsageError(f"a network is text such as 10.0.0.0/8, not {shown(self.network)}.")
        try:
            net = ipaddress.ip_network(self.network)
        except ValueError:
            raise UsageError(
                f"{shown(self.network)} is not a network: write its first address and the length of its "
                "prefix, such as 10.0.0.0/8 or 2001:db8::/32; 0.0.0.0/0 is all of IPv4, ::/0 all of IPv6."
            ) from None
        object.__setattr__(self, "network", str(net))
        object.__setattr__(self, "prefix", as_int(self.prefix, "prefix"))
        if not net.prefixlen <= self.prefix <= net.max_prefixlen:
            raise UsageError(
                f"the prefix of a bin in {net} is from {net.prefixlen} to {net.max_prefixlen} bits long, "
                f"not {self.prefix}."
            )
        if self.n > MOST_BINS:
            raise UsageError(
                f"the prefixes of length {self.prefix} in {net} are more than 2**62; take a shorter prefix "
                "or a smaller network."
            )

    @cached_property
    def _net(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network(self.network)

    @property
    def family(self) -> int:
        """4 or 6."""
        return self._net.version

    @property
    def base(self) -> int:
        """The first address of the network, as a whole number."""
        return int(self._net.network_address)

    @property
    def length(self) -> int:
        """How many bits of an address the whole network shares."""
        return self._net.prefixlen

    @property
    def bits(self) -> int:
        """How many bits an address has."""
        return self._net.max_prefixlen

    @property
    def n(self) -> int:
        return 1 << (self.prefix - self.length)

    @property
    def edges(self) -> NDArray[np.float64]:
        """The numbers of the bins, as those of categories."""
        refuse_to_list(self.n)
        return frozen(np.arange(self.n + 1, dtype=np.float64))

    def name(self, bin: int) -> str:
        """Return the prefix of a bin."""
        first = self.base + (int(bin) << (self.bits - self.prefix))
        kind = ipaddress.IPv4Address if self.family == 4 else ipaddress.IPv6Address
        return f"{kind(first)}/{self.prefix}" if self.prefix < self.bits else str(kind(first))

    def names(self) -> list[str]:
        refuse_to_list(self.n)
        return [self.name(i) for i in range(self.n)]

    def bin(self, text: object) -> int | None:
        """Return the bin of an address, None for whatever has none."""
        if not isinstance(text, str) or not _FORMS[self.family].fullmatch(text):
            return None
        whole = int(ipaddress.IPv4Address(text) if self.family == 4 else ipaddress.IPv6Address(text))
        past = (whole - self.base) >> (self.bits - self.prefix)
        return past if 0 <= past < self.n else None

    def index(self, values: ArrayLike, outside: Outside = "drop") -> NDArray[np.int64]:
        """Return each address's bin, -1 where it has none; no end is nearest to another address."""
        cells = np.asarray(values, dtype=object).ravel().tolist()
        found = (self.bin(cell) for cell in cells)
        return np.array([-1 if at is None else at for at in found], dtype=np.int64)

    def run(self, text: str) -> tuple[int, int]:
        """Return the first bin of an address or of a network inside this one, and the one after its last."""
        try:
            part = ipaddress.ip_network(text)
        except ValueError:
            raise UsageError(
                f"{shown(text)} is not an address or a network, such as {self.name(0)}."
            ) from None
        if part.version != self.family or not part.subnet_of(self._net):  # type: ignore[arg-type]
            raise UsageError(f"{part} lies outside the domain, which is {self.network}.")
        if part.prefixlen > self.prefix and "/" in text:
            raise UsageError(
                f"{part} lies inside a bin, where nothing was measured: the bins are prefixes of length "
                f"{self.prefix}."
            )
        first = (int(part.network_address) - self.base) >> (self.bits - self.prefix)
        return first, first + (1 << max(self.prefix - part.prefixlen, 0))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "network": self.network, "prefix": self.prefix}
