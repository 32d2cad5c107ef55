"""Loops that average estimates over many partitions."""

import math

MOST_IN_RECTANGLES = 1 << 13  # cells of a grid that is also averaged over `rectangles`
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples, modulo 1, are spread evenly however many there are
