"""Loops that average estimates over many partitions."""

import math

GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples, modulo 1, are spread evenly however many there are
