"""Loops of linear transforms: Haar, Fourier and multiplicative weights."""
