"""The one reader of error models in release files."""

from __future__ import annotations

from typing import Any

from dphist.errors import ReleaseFileError, UsageError
from dphist.uncertainty.anchored import Anchored
from dphist.uncertainty.calibrated import Calibrated
from dphist.uncertainty.grid_hats import GridHatTotals
from dphist.uncertainty.models import (
    ErrorModel,
    FineTotals,
    GroupTotals,
    HatTotals,
    Merged,
    TreeTotals,
    Unknown,
    WaveletTotals,
)
from dphist.uncertainty.reconciled import Reconciled

KINDS: dict[str, type[ErrorModel]] = {
    model.kind: model
    for model in (
        GroupTotals,
        FineTotals,
        TreeTotals,
        HatTotals,
        GridHatTotals,
        WaveletTotals,
        Calibrated,
        Anchored,
        Reconciled,
        Merged,
        Unknown,
    )
}


def error_model_from_dict(described: dict[str, Any], n: int) -> ErrorModel:
    """Return the error model of n bins that ``to_dict`` described; nested models are read likewise.

    The number of bins is compared before a model is built: a damaged number must not ask for all the memory
    there is.
    """
    kind = described["kind"]
    if kind not in KINDS:
        raise ReleaseFileError(
            f"unknown kind of error model {kind!r}; this file may come from a later version."
        )
    if _number_of_bins(described, n) != n:
        raise UsageError("the error model is for another number of bins.")
    return KINDS[kind].from_dict(described, error_model_from_dict)


def _number_of_bins(described: dict[str, Any], default: int) -> Any:
    """Return for how many bins a model is, without building it; the default if the model fits any number."""
    if described["kind"] == Merged.kind:
        return len(described["starts"]) - 1
    groups = described.get("groups", described)
    if "starts" in groups:
        return groups["starts"][-1]
    return groups.get("n", default)
