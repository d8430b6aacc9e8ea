"""The paper's statements as numbers one can compute, and as inequalities one can watch."""

from belated.theory.audits import STATEMENTS, Worst, audit
from belated.theory.bounds import (
    DelayBounds,
    RegretBounds,
    delay_bounds,
    regret_bound,
)

__all__ = [
    "STATEMENTS",
    "DelayBounds",
    "RegretBounds",
    "Worst",
    "audit",
    "delay_bounds",
    "regret_bound",
]
