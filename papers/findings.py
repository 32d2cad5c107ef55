"""What a paper says in words, checked against measurements: one line each, with figures and a verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dphist.lab.metrics import geometric_mean
from papers.tables import number, table

MOSTLY, PARTLY = 0.75, 0.4  # shares of cases from which a statement agrees, and agrees in part
WORDS = ("agrees", "in part", "differs", "not run")


@dataclass(frozen=True)
class Finding:
    """One statement of a paper, and how it fares here.

    Args:
        share: of the cases in which it is so; NaN if none could be looked at.
        evidence: the figures.
        reason: why it may differ, told only where it does.
        enough: the share from which it agrees: 1 for what is said of every case.
    """

    where: str
    claim: str
    share: float
    evidence: str
    reason: str
    enough: float = MOSTLY

    @property
    def verdict(self) -> str:
        """One of ``WORDS``."""
        if math.isnan(self.share):
            return "not run"
        return "agrees" if self.share >= self.enough else "in part" if self.share >= PARTLY else "differs"


def count(
    where: str,
    claim: str,
    cases: Iterable[bool | None],
    evidence: str = "",
    *,
    reason: str,
    every: bool = False,
) -> Finding:
    """Return the finding of a statement about several cases; None is a case that was not run.

    Args:
        every: the paper says it of every case, so a single other one makes it agree in part only.
    """
    found = [case for case in cases if case is not None]
    many = f"in {sum(found)} of {len(found)}" if found else ""
    share = sum(found) / len(found) if found else math.nan
    told = "; ".join(part for part in (many, evidence) if part)
    return Finding(where, claim, share, told, reason, 1.0 if every else MOSTLY)


def less(a: float, b: float) -> bool | None:
    """Return whether a is less than b, None if one is missing."""
    return None if math.isnan(a) or math.isnan(b) else a < b


def known(values: Iterable[float]) -> list[float]:
    """Return the values that are not missing."""
    return [value for value in values if not math.isnan(value)]


def ratios(what: str, pairs: Iterable[tuple[float, float]]) -> str:
    """Return the geometric mean of quotients and their range, in words."""
    found = [a / b for a, b in pairs if a > 0 and b > 0]
    if not found:
        return ""
    ends = f"{number(min(found))} to {number(max(found))}" if len(found) > 1 else ""
    return f"{what}: {number(geometric_mean(found))}" + (f" in geometric mean, {ends}" if ends else "")


def tally(names: Iterable[str]) -> str:
    """Return how often each name occurs, the most frequent first."""
    return ", ".join(f"{name} {many}" for name, many in Counter(n for n in names if n).most_common())


def listing(findings: Sequence[Finding], *, title: str) -> str:
    """Return the findings as a Markdown table, and a line that counts the verdicts."""
    rows: list[dict[str, Any]] = []
    for finding in findings:
        why = finding.reason if finding.verdict in ("in part", "differs") else ""
        rows.append({"where": finding.where, "the paper": finding.claim, "here": finding.verdict})
        rows[-1] |= {"figures": finding.evidence, "likely reason": why}
    verdicts = Counter(finding.verdict for finding in findings)
    total = ", ".join(f"{verdicts[word]} {word}" for word in WORDS if verdicts[word])
    shown = table(rows, columns=list(rows[0]), title=title)
    return f"{shown}\nOf {len(findings)} statements: {total}.\n"
