"""The one reader of error models in release files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty.anchored import Anchored
from dphist.uncertainty.calibrated import Calibrated
from dphist.uncertainty.models import (
    ErrorModel,
    FineTotals,
    GroupTotals,
    HatTotals,
    Merged,
    TreeTotals,
    Unknown,
)
from dphist.uncertainty.products import GridHatTotals, PyramidTotals, WaveletTotals
from dphist.uncertainty.reconciled import Reconciled

KINDS: dict[str, type[ErrorModel]] = {
    model.kind: model
    for model in (
        GroupTotals,
        FineTotals,
        TreeTotals,
        HatTotals,
        GridHatTotals,
        PyramidTotals,
        WaveletTotals,
        Calibrated,
        Anchored,
        Reconciled,
        Merged,
        Unknown,
    )
}


Check = tuple[Callable[[Any], bool], str]  # whether an entry is what it should be, and that in words


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**62


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e300


_POSITIVE: Check = (_is_positive, "a number above 0")
_SCALES: Check = (  # null where nothing was measured
    lambda value: all(s is None or _is_positive(s) for s in (value if isinstance(value, list) else [value])),
    "a number above 0, or a list of them",
)
_WHOLE: Check = (partial(_is_whole, least=1), "a whole number above 0")
_SEVERAL: Check = (partial(_is_whole, least=2), "a whole number of 2 or more")
_FLAG: Check = (lambda value: type(value) is bool, "true or false")
_QUERIES: Check = (lambda value: value in ("all-ranges", "prefixes"), "all-ranges or prefixes")
_ENTRIES: dict[str, dict[str, Check]] = {
    GroupTotals.kind: {"scale": _SCALES},
    FineTotals.kind: {"scale": _SCALES, "grid": _WHOLE},
    TreeTotals.kind: {"branching": _SEVERAL, "pruned": _FLAG},
    HatTotals.kind: {"scale": _POSITIVE, "queries": _QUERIES},
    GridHatTotals.kind: {"scale": _POSITIVE, "rows": _WHOLE, "columns": _WHOLE},
    PyramidTotals.kind: {"scale": _POSITIVE, "rows": _SEVERAL, "columns": _SEVERAL},
    WaveletTotals.kind: {"scale": _POSITIVE, "columns": _WHOLE},
    Calibrated.kind: {"scale": _POSITIVE},
    Reconciled.kind: {"factor": _POSITIVE},
}


def error_model_from_dict(described: dict[str, Any], n: int, columns: int | None = None) -> ErrorModel:
    """Return the error model of n bins that ``to_dict`` described; nested models are read likewise.

    The number of bins is compared before a model is built: a damaged number must not ask for all the memory
    there is.

    Args:
        columns: of the grid, or 1 for a line, if the model is about its bins as they are.
    """
    kind = described["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ReleaseFileError(
            f"unknown kind of error model {str(kind)[:40]!r}; this file may come from a later version."
        )
    if _number_of_bins(described, n) != n:
        raise UsageError("the error model is for another number of bins.")
    for name, (is_right, words) in _ENTRIES.get(kind, {}).items():
        if not is_right(described[name]):
            raise ReleaseFileError(f"the {name} of its error model should be {words}.")
    stated = described.get("columns", columns or 1)
    line = kind == WaveletTotals.kind and stated == 1  # of groups, or of cells in another order
    if not line and (stated != (columns or stated) or n % stated):
        raise ReleaseFileError("its error model is for a grid of other rows and columns.")
    inside = None if kind == Merged.kind else columns  # what was merged may have been a grid
    return KINDS[kind].from_dict(described, partial(error_model_from_dict, columns=inside))


def _number_of_bins(described: dict[str, Any], default: int) -> Any:
    """Return for how many bins a model is, without building it; the default if the model fits any number."""
    if described["kind"] == Merged.kind:
        return len(described["starts"]) - 1
    groups = described.get("groups", described)
    if "starts" in groups:
        return groups["starts"][-1]
    return groups.get("n", default)
