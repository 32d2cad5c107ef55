"""Loops over trees of totals: budgets, least squares and variances."""
