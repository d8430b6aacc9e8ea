"""Arithmetic: small dense kernels, special functions, the search for the best action."""
