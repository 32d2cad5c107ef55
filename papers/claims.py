"""What a paper says in words, checked against the figures of a run: one line each, with a verdict.

A claim is declared in the paper's TOML file::

    [[claims.line]]
    where = "Figure 4"
    claim = "on easy data, DAWA has much less error than its tree alone (half or less)"
    each = { data = "easy", epsilon = "0.1", queries = "random" }
    check = "2 * error('dawa') < error('greedyh')"
    figures = [{ ratio = "tree alone over DAWA", of = "error('greedyh') / error('dawa')" }]

``each`` makes the cases: every combination of the values, where a value is a list, the name of a list in
``[sets]``, or a single text. ``check`` is an expression over the names of ``each`` and of ``[sets]`` and over

* ``error(method)``, ``seconds(method)``, ``divergence(method)``, ``cost(method)``, ``buckets(method)`` and
  ``published(method)``, in the setting of the case, or in another: ``error('dawa', epsilon='0.01')``;
* ``best(methods)`` and ``worst(methods)``, by their error, and ``fastest(methods)``;
* ``least(methods)``, the error of the best, and ``skyline(methods)``;
* what the paper's own module defines.

A case that lacks a figure is left out. With ``all`` or ``some``, a case holds if the check does for all, or
for some, of these combinations. ``every = true`` is for what the paper says of every case: a single exception
makes it agree in part only. ``per`` makes a claim for each combination. ``figures`` are printed as evidence:
``ratio`` and its range, ``tally`` of names, ``names`` themselves (``if`` chooses), ``values``, and ``count``,
the cases in which another check holds; each over the claim's cases, or over an ``each`` of its own.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from types import CodeType
from typing import Any

from dphist.errors import UsageError
from dphist.lab.metrics import geometric_mean
from papers.look import Look
from papers.tables import number, table

Case = dict[str, Any]
MOSTLY, PARTLY = 0.75, 0.4  # shares of cases from which a statement agrees, and agrees in part
WORDS = ("agrees", "in part", "differs", "not run")
FIGURES = ("error", "seconds", "divergence", "cost", "buckets", "published")
KEYS = {"where", "claim", "each", "all", "some", "per", "check", "every", "figures"}
KINDS = ("ratio", "tally", "names", "values", "count")
_ALLOWED = (
    *(ast.Expression, ast.Compare, ast.cmpop, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp),
    *(ast.boolop, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.Subscript),
)


class Missing(Exception):  # noqa: N818 - it is caught, never told
    """A figure that a check needs was not measured."""


@dataclass(frozen=True)
class Finding:
    """One statement of a paper, and how it fares here.

    Args:
        share: of the cases in which it is so; NaN if none could be looked at.
        evidence: the figures.
        enough: the share from which it agrees: 1 for what is said of every case.
    """

    where: str
    claim: str
    share: float
    evidence: str
    enough: float = MOSTLY

    @property
    def verdict(self) -> str:
        """One of ``WORDS``."""
        if math.isnan(self.share):
            return "not run"
        return "agrees" if self.share >= self.enough else "in part" if self.share >= PARTLY else "differs"


@dataclass(frozen=True)
class Judge:
    """Checks claims against the figures of a run.

    Args:
        sets: lists that claims name.
        functions: what the paper's own module adds, each called with the case first.
    """

    look: Look
    sets: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def findings(self, claims: Iterable[Mapping[str, Any]]) -> list[Finding]:
        """Return how each claim fares, in their order."""
        return [found for claim in claims for found in self._findings(claim)]

    def _findings(self, claim: Mapping[str, Any]) -> Iterator[Finding]:
        if unknown := set(claim) - KEYS:
            raise UsageError(f"the claim {claim.get('claim')!r} has {unknown}; there are {sorted(KEYS)}.")
        for given in self._cases(claim.get("per", {})):
            cases = [given | case for case in self._cases(claim.get("each", {}))]
            held = [h for case in cases if (h := self._holds(claim, case)) is not None]
            evidence = [f"in {sum(held)} of {len(held)}"] if held else []
            evidence += [
                text for told in claim.get("figures", ()) if (text := self._told(told, claim, cases))
            ]
            share = sum(held) / len(held) if held else math.nan
            text = claim["claim"].format_map({**self.sets, **given})
            enough = 1.0 if claim.get("every") else MOSTLY
            yield Finding(claim["where"], text, share, "; ".join(evidence), enough)

    def _cases(self, asked: Mapping[str, Any]) -> list[Case]:
        """Return every combination of values, the last name changing fastest."""
        lists = [self.sets.get(v, [v]) if isinstance(v, str) else v for v in asked.values()]
        # A name in [sets] may stand for a single text.
        lists = [[values] if isinstance(values, str) else values for values in lists]
        return [dict(zip(asked, values, strict=True)) for values in product(*lists)]

    def _inner(self, claim: Mapping[str, Any], case: Case, expression: str) -> list[Any]:
        """Return an expression's values over ``all`` or ``some``, those that are known."""
        inner = self._cases(claim.get("all", claim.get("some", {})))
        return [v for more in inner if (v := self.value(expression, case | more)) is not None]

    def _holds(self, claim: Mapping[str, Any], case: Case) -> bool | None:
        found = self._inner(claim, case, claim["check"])
        return (any(found) if "some" in claim else all(found)) if found else None

    def value(self, expression: str, case: Case) -> Any:
        """Return what an expression is in a case; None if a figure is missing."""
        try:
            return eval(_compiled(expression), {"__builtins__": {}}, self._names(case))
        except (Missing, ZeroDivisionError):
            return None

    def _names(self, case: Case) -> dict[str, Any]:
        def figure(name: str) -> Callable[..., float]:
            return lambda method, **more: _there(self.look.figure(name, *_at(case | more), method))

        def extreme(name: str, pick: Any) -> Callable[..., str]:
            def find(methods: Sequence[str], **more: str) -> str:
                known = self.look.known(name, *_at(case | more), methods)
                return str(pick(_there(known), key=lambda m: known[m]))

            return find

        names: dict[str, Any] = {name: figure(name) for name in FIGURES}
        names |= {"best": extreme("error", min), "worst": extreme("error", max), "abs": abs}
        names["fastest"] = extreme("seconds", min)
        names["least"] = lambda methods, **more: min(
            _there(self.look.known("error", *_at(case | more), methods)).values()
        )
        names["skyline"] = lambda methods, **more: _there(self.look.skyline(*_at(case | more), methods))
        for name, function in self.functions.items():
            names[name] = lambda *given, function=function: _there(function(case, *given))
        return {**names, **self.sets, **case}

    def _told(self, told: Mapping[str, Any], claim: Mapping[str, Any], cases: Sequence[Case]) -> str:
        """Return one piece of evidence in words, empty if there is none."""
        (kind,) = (kind for kind in KINDS if kind in told)
        own = "each" in told
        cases = self._cases(told["each"]) if own else cases
        cases = [case for case in cases if "if" not in told or self.value(told["if"], case)]
        found = [(case, self._inner({} if own else claim, case, told["of"])) for case in cases]
        # Within a case of several combinations the largest figure tells.
        known = [(case, max(values)) for case, values in found if values]
        what = told[kind].format_map({**self.sets, "cases": len(cases)}) if kind != "values" else ""
        values = [value for _, value in known]
        if kind == "ratio":
            return ratios(what, values)
        if kind == "values":
            return ", ".join(told[kind].format_map({**case, "value": number(v)}) for case, v in known)
        if kind == "count":
            text = f"in {sum(values)} of {len(values)}" if values else ""
        else:
            flat = [name for v in values for name in ([v] if isinstance(v, str) else v)]
            text = tally(flat) if kind == "tally" else ", ".join(flat) or "none"
        return f"{what}: {text}" if what and text else text


@cache
def _compiled(expression: str) -> CodeType:
    """Return an expression of the small language that claims are written in."""
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise UsageError(f"a check has no {type(node).__name__}: {expression!r}.")
    return compile(tree, expression, "eval")


def _at(case: Mapping[str, str]) -> tuple[str, str, str]:
    return case["data"], case["epsilon"], case["queries"]


def _there(found: Any) -> Any:
    """Return what was found, or end the check if it is nothing."""
    if found is None or found in ((), {}) or (isinstance(found, float) and math.isnan(found)):
        raise Missing
    return found


def ratios(what: str, quotients: Iterable[float]) -> str:
    """Return the geometric mean of quotients and their range, in words."""
    found = [q for q in quotients if 0 < q < math.inf]
    if not found:
        return ""
    ends = f" in geometric mean, {number(min(found))} to {number(max(found))}" if len(found) > 1 else ""
    return f"{what}: {number(geometric_mean(found))}{ends}"


def tally(names: Iterable[str]) -> str:
    """Return how often each name occurs, the most frequent first."""
    return ", ".join(f"{name} {many}" for name, many in Counter(names).most_common())


def listing(findings: Sequence[Finding], *, title: str) -> str:
    """Return the findings as a Markdown table, and a line that counts the verdicts."""
    columns = ["where", "statement", "here", "figures"]
    rows = [dict(zip(columns, (f.where, f.claim, f.verdict, f.evidence), strict=True)) for f in findings]
    verdicts = Counter(finding.verdict for finding in findings)
    total = ", ".join(f"{verdicts[word]} {word}" for word in WORDS if verdicts[word])
    return f"{table(rows, title=title)}\nOf {len(findings)} statements: {total}.\n"
