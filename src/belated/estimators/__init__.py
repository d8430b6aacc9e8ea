"""How theta follows from the rewards that have returned."""

from belated.estimators.lazy_newton import LazyNewton
from belated.estimators.ridge import Ridge

__all__ = ["LazyNewton", "Ridge"]
