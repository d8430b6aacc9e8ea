"""Certified lazy Newton: the exact penalised estimate without recomputing it."""

from belated.estimators.newton import certificate  # registers how the estimate is made
from belated.estimators.newton.fit import LazyNewton

__all__ = ["LazyNewton", "certificate"]
