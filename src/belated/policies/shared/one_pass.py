"""What policies share that learn from each reward once, with a matrix weighted by the slope."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.model.state import OBSERVED, REFACTOR_EVERY, State
from belated.numerics.linalg import grow
from belated.numerics.pruning import new_cap
from belated.policies.shared.constants import is_logistic


class Curved(NamedTuple):
    """The design weighted by mu', as the fit of an estimator; theta itself is the iterate."""

    H: Matrix  # (d, d) lam I + sum of weight x x'
    H_inv: Matrix  # (d, d)
    cap: Vector  # (d + 4,) bound on H_inv: see numerics/pruning.py
    scalars: Vector  # sums that the radius needs


def new_curved(dim: int, lam: float, scalars: int) -> Curved:
    """No reward has returned yet."""
    return Curved(lam * np.eye(dim), np.eye(dim) / lam, new_cap(dim, lam), np.zeros(scalars))


@inlined_kernel
def curved(policy: Any, state: State) -> tuple[Matrix, Matrix, Vector]:
    """``ellipsoid`` of a policy whose estimator keeps ``Curved``."""
    return state.fit.H, state.fit.H_inv, state.fit.cap


@kernel
def grow_curved(fit: Curved, state: State, weight: float, x: Vector) -> None:
    """``H += weight x x'``."""
    fresh = state.counts[OBSERVED] % REFACTOR_EVERY == 0
    grow(fit.H, fit.H_inv, 0.0, weight, x, fresh, state.work[0])


def is_quasi(family: Family) -> bool:
    """Whether b is known not to be the cumulant of the law.

    A law on 0 and 1 has one canonical mean, the logistic one.
    """
    low, high, integer = family.support
    return integer and (low, high) == (0.0, 1.0) and not is_logistic(family)


def check_ridge(lam: float, unit: float) -> float:
    """Lam, if a matrix to which one reward adds ``unit`` at most stays regular with it."""
    least = 1e-9 * unit
    if not least <= lam < 1e100:
        raise wrong("lam", lam, f"a number from {least:g} to 1e100, for actions of this max_norm")
    return lam
