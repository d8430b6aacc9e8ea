"""Code for policies that learn each reward once, with a matrix weighted by the slope."""

from typing import Any

from belated.core.arguments import wrong
from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.model.state import State
from belated.policies.shared.constants import is_logistic


@inlined_kernel
def curved(policy: Any, state: State) -> tuple[Matrix, Matrix, Vector]:
    """The ``ellipsoid`` of a policy whose estimator keeps ``Curved``."""
    return state.fit.H, state.fit.H_inv, state.fit.cap


def is_quasi(family: Family) -> bool:
    """Returns whether b is known not to be the cumulant of the law.

    A law on 0 and 1 has one canonical mean, the logistic one.
    """
    low, high, integer = family.support
    return integer and (low, high) == (0.0, 1.0) and not is_logistic(family)


def check_ridge(lam: float, unit: float) -> float:
    """Returns lam; raises if a matrix to which a reward adds at most ``unit`` may get singular."""
    least = 1e-9 * unit
    if not least <= lam < 1e100:
        raise wrong("lam", lam, f"a number from {least:g} to 1e100, for actions of this max_norm")
    return lam
