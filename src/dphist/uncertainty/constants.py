"""Every number in the calibrated intervals that no theorem gives, with its meaning and its origin.

The constants marked "adjusted" were set by hand so that nominal 95 % intervals hold for 90 to 99.5 % of bins
and of ranges. `make bench-error` judges them: nine methods that group bins, on seven real histograms of
DPBench and eight made-up shapes of 4,096 bins, at epsilon 0.01, 0.1 and 1 (results/error/coverage.md). They
were adjusted on these same histograms; on three other shapes 78 of 81 cells were within the limits and none
was below. No command fits them: change one, run `make bench-error`, compare the tables. The constants marked
"design" divide a budget or a domain, and those marked "derived" follow from a law. None of them bears on
privacy, and the joint band uses `JOINT_PARTS` alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

# ---- half-widths: uncertainty/calibrated.py --------------------------------------------------------------

# From the mean deviation E|X| to the standard deviation of a normal variable. Derived: sqrt(pi/2).
SD_OVER_MEAN_DEVIATION = math.sqrt(math.pi / 2)

# The same ratio for the bias of a part of a group at the end of a range. The tail is heavier than normal:
# some groups are far less even than others of their class, and ranges end in long groups more often than in
# short ones. Adjusted, in three rounds from 1.6 to 1.8 to 2.2; judged by ranges of sa, dawa, dawa2, s1+pmm.
SD_OVER_MEAN_DEVIATION_AT_CUTS = 2.2

# How wide the tail of a bin's bias is, as a multiple of a Laplace variable's with the same mean deviation.
# Adjusted; judged by single bins: of groups of neighbours (a few bins are quite unlike the rest); of bins
# sorted by their noisy counts; and of such bins whose noisy counts enter the values again (sdwf).
TAIL_OF_NEIGHBOURS = 1.12
TAIL_OF_SORTED = 0.9
TAIL_OF_SORTED_REUSED = 1.0

# The ratio for a few bins at an end of a range, if the sum of their biases is the narrower bound. Derived:
# at 95 % it is as wide as the bins' own intervals are.
SD_OVER_MEAN_DEVIATION_OF_FEW = TAIL_OF_NEIGHBOURS * math.log(20) / 1.96

# The fraction of the noise's standard deviation that counts in a range of sorted bins. Below 1 because noise
# that came out large is also in the measured bias of long runs; above 1 where noisy counts enter the values
# again and the law of the noise is known approximately. Adjusted; judged by
# ranges of ahp and sdahp, and of sdwf.
NOISE_BESIDE_RUNS = 0.8
NOISE_BESIDE_RUNS_REUSED = 1.2

# How fast the quantile of |X|, X normal with mean m and standard deviation s, goes from two-sided (m = 0) to
# one-sided (m far from 0): exp(-FOLDED_DECAY m/s). Derived numerically: the result is never below the exact
# quantile, and above it by at most 7.5 % of s (tests/uncertainty/test_uncertainty.py).
FOLDED_DECAY = 2.2

# Into how many equal parts the joint band divides the probability of a miss. Design: one part for the totals,
# one for the second bound, one for safety.
JOINT_PARTS = 3

# ---- what is measured: steps/calibrate.py ----------------------------------------------------------------

# The fraction of the calibration's share for single bins. The rest is for parts of groups, of which there are
# fewer. Design.
SHARE_FOR_BINS = Fraction(2, 5)

# The largest number of classes of bins and of halves of groups, each with a measured sum; and the number of
# long runs (quarters of the domain) of methods that sort. Design.
BIN_CLASSES = 4
HALF_CLASSES = 2
LONG_RUNS = 4

# With fewer groups than the first number, they are cut into about as many pieces as the second, not into
# halves, and the interval at the usual level is as wide as the pieces may deviate together. Design.
FEW_GROUPS = 8
PIECES = 16
USUAL_LEVEL = 0.95

# How many times the noise's scale the records of a class should be; otherwise there are fewer classes.
# Design.
RECORDS_OVER_SCALE = 20

# The fraction of a measured sum's standard error that is taken to be bias if nothing speaks against it, up to
# the value that bins share. It counts where records are few beside the noise. Adjusted; judged by groups of a
# hundred records at epsilon 0.1 (`make bench-groups`), and by decaying and jagged ones.
HIDDEN = 0.5

# How many scales of its noise are added to a measured sum, which is then an upper confidence bound: above the
# true sum in 97.5 % of releases. The bare sum is too small in half of them, and intervals held in 81 % at
# worst (64 bins). Adjusted; judged by dawa, dawa2, sa and uniform at 16 to 4,096 bins.
UPPER = 3.0

# Steps per record in which distances are measured. Design: rounding is then far below the noise.
GRID_OF_DISTANCES = 1 << 8

# E|X| of noise with standard deviation 1: for the Laplace law, derived; for a sum of several draws, between
# that and sqrt(2/pi) = 0.798 of the normal law. Adjusted.
MEAN_DEVIATION_OF_LAPLACE = math.sqrt(0.5)
MEAN_DEVIATION_OF_SUMS = 0.78

# E[X^2] / E|X|^2 of a bin's error. Between pi/2 of the normal law and 2 of Laplace's. Adjusted.
SECOND_MOMENT = 1.8

# The correlation of biases before anything is measured: a sum of m bins is taken to grow like
# m^(0.5 + 0.5 CORRELATION); 0 means independent biases, 1 equal ones. Adjusted.
CORRELATION = 0.4

# A value below zero is taken to be biased by its size divided by this, at least, where noisy counts are used
# again. Adjusted; judged by single bins of sdwf.
VALUE_BELOW_ZERO_OVER_BIAS = 3
