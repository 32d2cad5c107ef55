"""The error of grids: of pyramids over their cells, and of products of what is asked of their sides."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dphist.domain.boxes import Boxes
from dphist.domain.groups import Floats, Groups, Ints
from dphist.errors import ReleaseFileError
from dphist.kernels.trees.hat_rules import MOST_CELLS
from dphist.uncertainty import joint_ranges, noise_law
from dphist.uncertainty.models import ErrorModel, NormalSums, Reader, whole_groups

KNOWN_RECTANGLES = (
    "the noise on every answer is known, and so is the variance of every rectangle; intervals take the sum "
    "of that noise to be normal, but for what the cells' own answers have in it, so that a 95 % interval "
    "holds in about 95 % of releases, for this query alone"
)


class GridSums(NormalSums, Protocol):
    """A grid of which the variance of every rectangle is known.

    A grid of one column is a line, of which the model itself knows the ranges.
    """

    @property
    def _shape(self) -> tuple[int, int]:
        """How many rows and columns the grid has."""

    def _rectangles(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        """Return the variances of rectangles, from their first rows and those after the last, and columns."""

    @property
    def _bins(self) -> Floats:
        """The variance of each bin, worked out once."""

    @property
    def _distinct_values(self) -> int:
        return self._shape[0] * self._shape[1]

    def variances(self) -> Floats:
        """Return the variance of each bin."""
        return self._bins

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of ranges of a line or rectangles of a grid."""
        if self._shape[1] == 1 or len(boxes.shape) == 1:
            return super().boxes_margins(boxes, level=level)
        return noise_law.normal_quantile(level) * np.sqrt(self._rectangles(*boxes.ends))

    def joint_boxes(self, boxes: Boxes, *, level: float) -> tuple[Floats, str]:
        """Return margins by the union bound, from the standard deviations."""
        each = joint_ranges.bonferroni(boxes, level)
        if self._shape[1] == 1 or len(boxes.shape) == 1 or each is None:
            return super().joint_boxes(boxes, level=level)
        sd = np.sqrt(self._rectangles(*boxes.ends))
        return np.asarray(noise_law.sum_margin_bound(sd, max(each, 0.9))), joint_ranges.BONFERRONI


class ProductSums(GridSums, Protocol):
    """A grid of which the variance of a rectangle is that of its rows times that of its columns."""

    scale: float

    def _along(self, side: int, lo: Ints, hi: Ints) -> Floats:
        """Return the variances of ranges of rows (side 0) or columns (1) for noise of variance 1."""

    def _weighted(self, side: int, weights: Floats) -> float:
        """Return that of the sum of all rows or columns, each times its weight."""

    def _rectangles(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        return self._along(0, a, b) * self._along(1, c, d) * noise_law.variance(self.scale)

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        """Return those of ranges of cells, row by row; NaN unless they are whole rows or parts of one."""
        out = np.full(lo.shape, math.nan)
        these, box = self._as_boxes(lo, hi)
        out[these] = self._rectangles(*box)
        return out

    def _as_boxes(self, lo: Ints, hi: Ints) -> tuple[NDArray[np.bool_], tuple[Ints, ...]]:
        """Return which ranges of cells are whole rows or parts of one, and those as rectangles."""
        columns = self._shape[1]
        a, c = np.divmod(lo, columns)
        rows, left = np.divmod(hi - lo, columns)
        whole = (c == 0) & (left == 0)
        these = whole | (c + hi - lo <= columns)
        box = (
            a,
            np.where(whole, a + rows, a + 1),
            np.where(whole, 0, c),
            np.where(whole, columns, c + hi - lo),
        )
        return these, tuple(end[these] for end in box)

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of all cells in some rows and some columns; None of any others."""
        if self._shape[1] == 1:
            return super().cells_margin(cells, level=level)
        picked = np.unique(cells // self._shape[1]), np.unique(cells % self._shape[1])
        if picked[0].size * picked[1].size != cells.size:
            return None
        variance = noise_law.variance(self.scale)
        for side, n in enumerate(self._shape):
            variance *= self._weighted(side, np.bincount(picked[side], minlength=n).astype(np.float64))
        return noise_law.normal_quantile(level) * math.sqrt(variance)


@dataclass(frozen=True, eq=False)
class MeasuredGrid(GridSums):
    """Noisy answers to the cells of a grid and to shapes over them, made to agree by least squares.

    Args:
        rows: of the grid.
        columns: of the grid.
        scale: of the noise on each answer, in units of the answers' weights.
    """

    shapes: ClassVar[str]  # what the shapes are called
    rule: ClassVar[int]  # by which they are placed
    rows: int
    columns: int
    scale: float

    @property
    def description(self) -> str:
        return KNOWN_RECTANGLES

    @property
    def _shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @abstractmethod
    def _own(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        """Return the variances of the cells' own answers, added up over rectangles."""

    def boxes_margins(self, boxes: Boxes, *, level: float) -> Floats:
        """Return the margins of ranges of a line or rectangles of a grid."""
        if self.columns == 1 or len(boxes.shape) == 1:
            return super().boxes_margins(boxes, level=level)
        cells = boxes.flat()[2]
        return noise_law.sum_margins(self._rectangles(*boxes.ends), self._own(*boxes.ends), cells, level)

    def transposed(self, rows: int) -> Self:
        """Return the model of the same grid, column after column."""
        return type(self)(self.columns, self.rows, self.scale)

    def to_dict(self) -> dict[str, Any]:
        shape = {"rows": self.rows, "columns": self.columns}
        return {
            "kind": self.kind,
            "n": self.rows * self.columns,
            **shape,
            "scale": self.scale,
            "rule": self.rule,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Self:
        if (rule := described["rule"]) != cls.rule:
            raise ReleaseFileError(
                f"{cls.shapes} by rule {rule} are not known to this version of dphist; update it."
            )
        rows, columns = described["rows"], described["columns"]
        if rows * columns != described["n"]:
            raise ReleaseFileError(f"the {cls.shapes} of a grid are for another number of cells.")
        return cls(rows, columns, described["scale"])


class GridHatTotals(MeasuredGrid, ProductSums):
    """Noisy answers to the cells and to products of triangles, made to agree by least squares.

    A grid of one column was measured as one row, and turned.
    """

    kind: ClassVar[str] = "grid hat totals"
    shapes: ClassVar[str] = "triangles"
    rule: ClassVar[int] = 2

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        """What least squares makes of noise of variance 1 along either side."""
        from dphist.kernels.trees.hats_fit import side_errors

        return side_errors(self.rows, self.columns)

    def _along(self, side: int, lo: Ints, hi: Ints) -> Floats:
        from dphist.kernels.trees.hats_fit import hats_range_variances

        return hats_range_variances(self._sides[side], lo, hi)

    def _weighted(self, side: int, weights: Floats) -> float:
        from dphist.kernels.trees.hats_fit import hats_weighted_variance

        return hats_weighted_variance(self._sides[side], weights)

    @cached_property
    def _bins(self) -> Floats:
        down, across = (self._along(i, np.arange(n), np.arange(1, n + 1)) for i, n in enumerate(self._shape))
        return np.outer(down, across).ravel() * noise_law.variance(self.scale)

    @cached_property
    def _own_along(self) -> tuple[Floats, Floats]:
        """The variances of the own answers of rows and of columns, added up from the first."""
        down, across = (np.concatenate(([0.0], np.cumsum(side.own))) for side in self._sides)
        return down, across

    def _own(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        down, across = self._own_along
        return (down[b] - down[a]) * (across[d] - across[c]) * noise_law.variance(self.scale)

    def _own_answers(self, lo: Ints, hi: Ints) -> tuple[Floats, Ints]:
        own = np.full(lo.shape, math.inf)
        these, box = self._as_boxes(lo, hi)
        own[these] = self._own(*box)
        return own, hi - lo

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of all cells in some rows and some columns; None of any others."""
        margin = super().cells_margin(cells, level=level)
        if margin is None or self.columns == 1:
            return margin
        row, column = np.unique(cells // self.columns), np.unique(cells % self.columns)
        own = self._sides[0].own[row].sum() * self._sides[1].own[column].sum()
        variance = np.array((margin / noise_law.normal_quantile(level)) ** 2)
        return float(noise_law.sum_margins(variance, own * noise_law.variance(self.scale), cells.size, level))


class PyramidTotals(MeasuredGrid):
    """Noisy answers to the cells and to overlapping pyramids over them, made to agree by least squares.

    The grid has two columns or more.
    """

    kind: ClassVar[str] = "pyramid totals"
    shapes: ClassVar[str] = "pyramids"
    rule: ClassVar[int] = 1

    @cached_property
    def _known(self) -> Any:
        from dphist.kernels.trees.pyramids import pyramids_error

        return pyramids_error(self.rows, self.columns)

    def _rectangles(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        from dphist.kernels.trees.pyramids import rectangle_variances

        return rectangle_variances(self._known, a, b, c, d) * noise_law.variance(self.scale)

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        from dphist.kernels.trees.hats_fit import hats_range_variances

        return hats_range_variances(self._known.error, lo, hi) * noise_law.variance(self.scale)

    @cached_property
    def _bins(self) -> Floats:
        row, column = np.divmod(np.arange(self.rows * self.columns), self.columns)
        return self._rectangles(row, row + 1, column, column + 1)

    def cells_margin(self, cells: Ints, *, level: float) -> float | None:
        """Return the margin of the sum of any cells."""
        from dphist.kernels.trees.hats_fit import hats_weighted_variance

        picked = np.bincount(cells, minlength=self.rows * self.columns).astype(np.float64)
        noise, error = noise_law.variance(self.scale), self._known.error
        variance = np.array(hats_weighted_variance(error, picked) * noise)
        return float(noise_law.sum_margins(variance, error.own[cells].sum() * noise, cells.size, level))

    def _own(self, a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
        of = self._known.own
        return np.asarray(of[b, d] - of[a, d] - of[b, c] + of[a, c]) * noise_law.variance(self.scale)

    def _own_answers(self, lo: Ints, hi: Ints) -> tuple[Floats, Ints]:
        below = np.concatenate(([0.0], np.cumsum(self._known.error.own)))
        return (below[hi] - below[lo]) * noise_law.variance(self.scale), hi - lo

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> Self:
        made = super().from_dict(described, read)
        if made.rows * made.columns > MOST_CELLS:
            raise ReleaseFileError(f"there are pyramids over up to {MOST_CELLS:,} cells.")
        return made


@dataclass(frozen=True, eq=False)
class WaveletTotals(ProductSums):
    """Noisy Haar coefficients of a line of groups, or of a grid of single bins, put together again.

    Args:
        groups: the cells of the wavelet; a group's total is spread evenly.
        columns: of the grid; 1 for a line.
        scale: of the noise on each coefficient.
    """

    kind: ClassVar[str] = "wavelet totals"
    groups: Groups
    columns: int
    scale: float

    @property
    def description(self) -> str:
        return (
            "the noise on every coefficient is known, and so is the variance of every range of whole groups "
            "of a line, and of every bin of a grid; intervals take the sum of that noise to be normal, so "
            "that a 95 % interval holds in about 95 % of releases, for this query alone"
        )

    @property
    def _shape(self) -> tuple[int, int]:
        return self.groups.k // self.columns, self.columns

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        from dphist.kernels.transforms.haar import haar_error

        return haar_error(self._shape[0]), haar_error(self.columns)

    def _along(self, side: int, lo: Ints, hi: Ints) -> Floats:
        from dphist.kernels.trees.variances import range_variances

        return range_variances(self._sides[side], lo, hi)

    def _weighted(self, side: int, weights: Floats) -> float:
        from dphist.kernels.trees.variances import weighted_variance

        return weighted_variance(self._sides[side], weights)

    @cached_property
    def _bins(self) -> Floats:
        from dphist.kernels.transforms.haar import haar_variances

        each = haar_variances(*self._shape) * noise_law.variance(self.scale)
        return self.groups.spread(np.where(self.groups.sizes == 1, each, np.nan))

    def _range_variances(self, lo: Ints, hi: Ints) -> Floats:
        if self.columns > 1:
            out = super()._range_variances(lo, hi)
        else:
            out = np.full(lo.shape, math.nan)
            first, last, whole = whole_groups(self.groups, lo, hi)
            out[whole] = self._along(0, first[whole], last[whole]) * noise_law.variance(self.scale)
        out[(lo == 0) & (hi == self.groups.n)] = noise_law.variance(self.scale)
        return out

    def transposed(self, rows: int) -> ErrorModel:
        """Return the model of the same coefficients of a grid, column after column."""
        if self.columns == 1:
            return super().transposed(rows)
        return WaveletTotals(self.groups, rows, self.scale)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "groups": self.groups.to_dict(),
            "columns": self.columns,
            "scale": self.scale,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any], read: Reader) -> WaveletTotals:
        return cls(Groups.from_dict(described["groups"]), described["columns"], described["scale"])
