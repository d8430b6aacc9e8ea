"""The design matrix of all rounds, for policies that count decisions and not only rewards."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.model.state import DECIDED, REFACTOR_EVERY, State
from belated.numerics.linalg import grow
from belated.numerics.pruning import new_cap, renew


class AllRounds(NamedTuple):
    """The design matrix of all decisions, whether their reward has returned or not."""

    V: Matrix  # (d, d) lam I + sum of x x' over all rounds
    V_inv: Matrix  # (d, d)
    cap: Vector  # (d + 4,) bound on V_inv: see numerics/pruning.py


def all_rounds(dim: int, lam: float) -> AllRounds:
    """Returns the memory before the first decision."""
    return AllRounds(lam * np.eye(dim), np.eye(dim) / lam, new_cap(dim, lam))


@inlined_kernel
def add_round(memory: Any, state: State, x: Vector) -> None:
    """Adds the played action ``x``. ``memory`` is ``AllRounds``, or has its fields and more."""
    decided = state.counts[DECIDED]
    fresh = decided % REFACTOR_EVERY == 0
    grow(memory.V, memory.V_inv, 0.0, 1.0, x, fresh, state.work[0])
    renew(memory.cap, memory.V, memory.V_inv, decided, state.work[0])
