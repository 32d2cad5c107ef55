"""Loops that search for groups of bins."""
