"""Certified lazy Newton: the exact penalised estimate without recomputing it."""
