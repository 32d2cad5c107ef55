"""Loops that average estimates over many partitions."""
