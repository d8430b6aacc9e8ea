"""Laplace's posterior with a prior learnt group by group, for wide and sparse features."""

from belated.estimators.laplace import (  # register how the estimate is made
    refitting,
    silence_changes,
)
from belated.estimators.laplace.fit import Laplace, LaplaceFit

__all__ = ["Laplace", "LaplaceFit", "refitting", "silence_changes"]
