"""Chooses the method: a few private numbers of the data, looked up in a table learnt on made-up data.

The idea is Pythia's (Kotsogiannis et al., SIGMOD 2017): no method is best everywhere, and which one is good
here can be told from very little. A number is read only when the table asks for it, and paid for like
everything else. The table was learnt on generated shapes alone (`benchmarks.auto`): looking at it is free.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from dphist.domain import Domain
from dphist.domain.groups import Groups
from dphist.domain.workload import Workload
from dphist.errors import UsageError
from dphist.privacy.curator import Curator
from dphist.steps.order import Hilbert
from dphist.steps.protocols import Estimated, Rough, Step

TABLE = Path(__file__).with_name("auto_table.json")
Node = str | Mapping[str, Any]  # a method's name, or a question with two further nodes
_NOISIEST = 1 << 24  # records: where noise is wider there is nothing to read, and questions would widen it
UNREAD = "identity"  # what is done then


@dataclass(frozen=True)
class Feature:
    """A number between 0 and 1: how much of what it could be blocks of bins make together.

    Args:
        of: what a block counts: its records, or how far its bins are from their median, added up.
        size: bins of a block.
        noises: where a block's count is cut off, in scales of the noise that the whole budget would buy.
        meaning: in words.
    """

    of: Literal["totals", "distances"]
    size: int
    noises: int
    meaning: str


FEATURES = {
    "filled": Feature("totals", 1, 4, "the share of bins that stand out from the noise"),
    "jagged": Feature(
        "distances", 2, 4, "the share of neighbouring pairs that differ by more than the noise"
    ),
    "rough": Feature("distances", 16, 32, "the share of blocks of 16 bins whose bins do"),
}


class Choice(Protocol):
    """A whole method that can be run with a share of the budget: a pipeline."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what it cannot serve, before anything is charged."""

    def with_intervals(self, part: Fraction) -> Choice:
        """Return it with this part of its budget for calibrating, if it can use that."""

    def describe(self, workload: Workload, estimated: Estimated) -> dict[str, Any]:
        """Return how the values were made, ready for JSON."""

    def values(self, curator: Curator, workload: Workload, *, share: Fraction) -> tuple[Groups, Estimated]:
        """Run it."""


@cache
def table() -> dict[str, Any]:
    """Return the table that comes with the package."""
    found: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return found


def trees_for(domain: Domain) -> dict[str, Node]:
    """Return the table's decision trees for lines or for grids, by kind of workload."""
    trees: dict[str, Node] = table()["line" if len(domain.axes) == 1 else "grid"]
    return trees


def leaves(node: Node) -> list[str]:
    """Return the methods that a decision tree can lead to, each once."""
    if isinstance(node, str):
        return [node]
    return list(dict.fromkeys(leaves(node["then"]) + leaves(node["else"])))


def kind_of(workload: Workload) -> str:
    """Return which kind of queries a workload asks most like: points, ranges or prefixes."""
    covered = workload.coverage().ravel()
    # Measured: with 32 bins in a query the methods for points and for ranges are equally good.
    if covered.sum() <= max(1.0, min(32.0, workload.n / 8)) * workload.size:
        return "points"
    if len(workload.shape) == 1 and 2 * max(covered[0], covered[-1]) > workload.size:
        return "prefixes"  # every other query begins or ends where the domain does
    return "ranges"


def read(curator: Curator, feature: str, *, share: Fraction) -> float:
    """Return one feature of the data, noisy and paid for.

    Besides those of `FEATURES` there is ``mass``, the decimal logarithm of the number of records, in scales
    of the noise that the whole budget would buy; ``signal``, the same of the mean count per bin; and
    ``bins``, of the number of bins, which is public and free.
    """
    n, noise = curator.domain.n, curator.scale(Fraction(1))
    if feature == "bins":
        return round(math.log10(n), 3)
    if feature in ("signal", "mass"):
        total = int(curator.measure(Groups.whole(n), share=share).values[0])
        return round(math.log10(max(total / noise, 1.0)) - (math.log10(n) if feature == "signal" else 0), 3)
    from dphist.kernels.levels import Level

    asked = FEATURES[feature]
    order = Hilbert()(curator.domain, None) if len(curator.domain.axes) == 2 else None
    cap = min(max(round(asked.noises * noise), 1), (1 << 60) // n)
    steps = min(max(-(-n // asked.size) * asked.noises // 16, 16), 4096)  # of 16 noises: no reading is finer
    return round(curator.choose(Level(asked.of, asked.size, cap, steps, order), share=share) / steps, 4)


def look_up(node: Node, ask: Callable[[str, Fraction], float]) -> tuple[str, list[dict[str, Any]]]:
    """Return the method that a decision tree leads to, and what was asked on the way.

    Args:
        ask: answers a question, a feature and the share that may be spent on it; called once for each.
    """
    asked: dict[tuple[str, str], float] = {}
    while not isinstance(node, str):
        question = node["feature"], node["share"]
        if question not in asked:
            asked[question] = ask(question[0], Fraction(question[1]))
        node = node["then" if asked[question] < node["below"] else "else"]
    return node, [{"feature": f, "share": s, "value": v} for (f, s), v in asked.items()]


@dataclass(frozen=True)
class Auto(Step):
    """A method chosen by what the data look like, run on what is left of the budget.

    Args:
        choices: the methods to choose from, under the names that the table has for them.
    """

    spends: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    regroups: ClassVar[bool] = True
    choices: tuple[Choice, ...] = ()

    def check(self, domain: Domain, workload: Workload) -> None:
        """Refuse what any method cannot serve to which the table may lead."""
        for name in leaves(trees_for(domain)[kind_of(workload)]):
            self._choice(name).check(domain, workload)

    def calibrated(self, part: Fraction) -> Auto:
        """Return the same choice of methods, each with this part of its budget for calibrating."""
        return replace(self, choices=tuple(choice.with_intervals(part) for choice in self.choices))

    def __call__(
        self, curator: Curator, rough: Rough, groups: Groups, workload: Workload, *, share: Fraction
    ) -> Estimated:
        """Ask what the table wants to know, run the method it leads to, and note both."""
        kind = kind_of(workload)
        tree = trees_for(curator.domain)[kind]
        if curator.scale(share) > _NOISIEST:
            tree = UNREAD
        name, asked = look_up(tree, lambda feature, part: read(curator, feature, share=part * share))
        spent = sum((Fraction(question["share"]) for question in asked), Fraction(0)) * share
        choice = self._choice(name)
        found, estimated = choice.values(curator, workload, share=share - spent)
        steps = choice.describe(workload, estimated)
        notes = {
            "choice": name,
            "steps": {name: step for name, step in steps.items() if name != "workload"},
            "features": asked,
            "share_of_features": str(spent),
            "kind": kind,
            "table": table()["version"],
        }
        return replace(estimated, groups=found, notes=notes, by=None)

    def _choice(self, name: str) -> Choice:
        for choice in self.choices:
            if choice.name == name:
                return choice
        raise UsageError(f"the table may choose {name!r}, which was not given; use method='auto'.")
