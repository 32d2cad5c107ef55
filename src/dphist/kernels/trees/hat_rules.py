"""How far apart hats stand and how high, level by level, and how many levels there are.

``python -m benchmarks.strategies`` compares the outcome with evenly spaced hats and with free weights, and
fits these constants anew. They were fitted to 32 to 330 bins (one level), 180 to 4,096 (two) and 5,000 to
26,000 (three), to all ranges and all prefixes themselves: no data came in. Four levels repeat the constants
of three.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """The constants of one level, as of `hats.place_knots`.

    Args:
        apart: the distance of neighbours in a cell of D bins, in units of D^(l/(l+1)) ``rise + 4 v (1 - v)``.
        rise: how little that distance depends on the place v in the cell.
        outer_apart: as ``apart``, in the first and the last cell; a single cell is both.
        outer_rise: as ``rise``, in the first and the last cell.
        start: how far the first knot is from the first bin, in such distances.
        end: how far the last knot is from the last bin, in such distances.
        height: of the hats, in units of 1/(l+1) of what coarser levels leave.
        yields: how much the height of coarser hats takes off, in units of itself.
    """

    apart: float
    rise: float
    outer_apart: float
    outer_rise: float
    start: float
    end: float
    height: float
    yields: float


MOST_CELLS = 1 << 14  # of a grid under pyramids; triangles of its sides do better before that

# From how many bins on a first, second, ... level pays.
LEAST: dict[str, tuple[int, ...]] = {
    "all-ranges": (24, 480, 8_600, 160_000),
    "prefixes": (14, 205, 3_600, 62_000),
}

# For one level, two and three: the rule of each level, the finest first.
_FITTED: dict[str, tuple[tuple[Rule, ...], ...]] = {
    "all-ranges": (
        (Rule(0.815, 0.932, 0.815, 0.932, 0.359, 0.359, 0.959, 1.0),),
        (
            Rule(0.496, 1.340, 1.133, 0.464, 0.250, 0.250, 0.974, 1.011),
            Rule(0.740, 1.497, 0.740, 1.497, 0.554, 0.554, 0.940, 1.0),
        ),
        (
            Rule(0.397, 1.844, 0.820, 0.801, 0.308, 0.308, 1.018, 1.045),
            Rule(0.448, 1.563, 0.895, 0.760, 0.405, 0.405, 1.036, 1.215),
            Rule(0.870, 1.315, 0.870, 1.315, 0.521, 0.521, 0.932, 1.0),
        ),
    ),
    "prefixes": (
        (Rule(1.277, 0.405, 1.277, 0.405, 0.441, 0.464, 1.001, 1.0),),
        (
            Rule(0.548, 1.177, 0.989, 0.522, 0.449, 0.345, 1.025, 1.097),
            Rule(1.381, 0.464, 1.381, 0.464, 0.457, 0.637, 1.022, 1.0),
        ),
        (
            Rule(0.555, 1.158, 0.917, 0.552, 0.450, 0.312, 1.042, 1.069),
            Rule(0.580, 1.048, 1.178, 0.402, 0.493, 0.425, 1.032, 1.147),
            Rule(1.473, 0.514, 1.473, 0.514, 0.468, 0.677, 1.013, 1.0),
        ),
    ),
}

# The same, and for four levels: the finest of three is repeated.
RULES = {name: (*fitted, (fitted[-1][0], *fitted[-1])) for name, fitted in _FITTED.items()}
