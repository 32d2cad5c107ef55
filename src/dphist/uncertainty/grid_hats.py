"""The error of a grid that was measured by triangles over its rows times triangles over its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Ints
from dphist.errors import ReleaseFileError
from dphist.uncertainty import noise_law
from dphist.uncertainty.models import NormalSums, Reader, boxes_of


@dataclass(frozen=True, eq=False)
class GridHatTotals(NormalSums):
    """Noisy answers to the cells and to products of triangles, made to agree by least squares.

    Queries, noise and least squares of the grid are products of those of its sides. So the variance of a
    rectangle is that of its rows times that of its columns.

    Args:
        rows: of the grid.
        columns: of the grid, two or more.
        scale: of the noise on each answer, in units of the answers' weights.
    """

    kind: ClassVar[str] = "grid hat totals"
    rows: int
    columns: int
    scale: float

    @property
    def description(self) -> str:
        return (
            "the noise on every answer is known, and so is the variance of every rectangle; intervals take "
            "the sum of that noise to be normal, so that a 95 % interval holds in about 95 % of releases, "
            "for this query alone"
        )

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        """What least squares makes of noise of variance 1 along either side."""
        from dphist.kernels.trees.hats_fit import side_errors

        return side_errors(self.rows, self.columns)

    @cached_property
    def _bins(self) -> Floats:
        from dphist.kernels.trees.hats_fit import hats_range_variances

        down, across = (
            hats_range_variances(side, np.arange(n), np.arange(1, n + 1))
            for side, n in zip(self._sides, (self.rows, self.columns), strict=True)
        )
        return np.outer(down, across).ravel() * noise_law.variance(self.scale)

    @property
    def _distinct_values(self) -> int:
        return self.rows * self.columns

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return self._bins

    def _rectangles(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        """Return the variances of rectangles, from their first rows and those after the last, and columns."""
        from dphist.kernels.trees.hats_fit import hats_range_variances

        down, across = self._sides
        unit = hats_range_variances(down, a, b) * hats_range_variances(across, c, d)
        return unit * noise_law.variance(self.scale)

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        out = np.full(lo.shape, math.nan)
        these, box = boxes_of(lo, hi, self.columns)
        out[these] = self._rectangles(*box)
        return out

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of rectangles."""
        if len(boxes.shape) == 1:
            return super().boxes_margins(boxes, level=level)
        return noise_law.normal_quantile(level) * np.sqrt(self._rectangles(*boxes.ends))

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of all cells in some rows and some columns; None of any others."""
        from dphist.kernels.trees.hats_fit import hats_weighted_variance

        rows, columns = np.unique(cells // self.columns), np.unique(cells % self.columns)
        if rows.size * columns.size != cells.size:
            return None
        variance = noise_law.variance(self.scale)
        for side, picked, n in zip(self._sides, (rows, columns), (self.rows, self.columns), strict=True):
            variance *= hats_weighted_variance(side, np.bincount(picked, minlength=n).astype(np.float64))
        return noise_law.normal_quantile(level) * math.sqrt(variance)

    def transposed(self, rows: int) -> GridHatTotals:
        """Return the model of the same grid, column after column."""
        return GridHatTotals(self.columns, self.rows, self.scale)

    def to_dict(self) -> dict[str, Any]:
        shape = {"rows": self.rows, "columns": self.columns}
        return {"kind": self.kind, "n": self.rows * self.columns} | shape | {"scale": self.scale, "rule": 2}

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> GridHatTotals:
        if (rule := described["rule"]) != 2:
            raise ReleaseFileError(
                f"triangles by rule {rule} are not known to this version of dphist; update it."
            )
        rows, columns = described["rows"], described["columns"]
        whole = type(rows) is int and type(columns) is int
        if not whole or rows < 1 or columns < 2 or rows * columns != described["n"]:
            raise ReleaseFileError("the triangles of a grid are for another number of cells.")
        return cls(rows, columns, described["scale"])
