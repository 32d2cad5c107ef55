"""Measurements: of speed, and of accuracy over datasets, workloads and methods."""
