"""Benchmarks of speed, error and coverage; not installed."""
