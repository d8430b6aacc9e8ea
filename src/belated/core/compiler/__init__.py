"""Compiling kernels into each other and keeping them on disk, by parts of Numba that may change."""
