"""The paper's statements as numbers one can compute."""

from belated.theory.bounds import (
    DelayBounds,
    RegretBounds,
    delay_bounds,
    regret_bound,
)

__all__ = ["DelayBounds", "RegretBounds", "delay_bounds", "regret_bound"]
