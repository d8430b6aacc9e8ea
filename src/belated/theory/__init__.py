"""The paper's statements as numbers to compute and as inequalities to check."""

from belated.theory.audits import STATEMENTS, Worst, audit
from belated.theory.bounds import (
    DelayBounds,
    RegretBounds,
    delay_bounds,
    regret_bound,
)
from belated.theory.planning import DelayCost, Way, delay_cost

__all__ = [
    "STATEMENTS",
    "DelayBounds",
    "DelayCost",
    "RegretBounds",
    "Way",
    "Worst",
    "audit",
    "delay_bounds",
    "delay_cost",
    "regret_bound",
]
